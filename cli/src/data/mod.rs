//! The command `data`: trains a tokenizer, prepares indexed data, and shows prepared data.
//!
//! Input: files. Output: files, or a report. Invariant: each written file is complete or absent.
//! The `.idx` makes indexed data valid, so it is removed first and written last.

mod text;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ascend_tp::base::{Bytes, Diagnostic, Diagnostics};
use ascend_tp::generate::tokenizer::Tokenizer;
use ascend_tp::train::data::{
    Encoder, Error, IGNORE, SkippedLines, Summary, TextFile, TokenIndex, TokenType, bin_path, idx_path,
    inspect, learn_tokenizer, prefix_of, prepare,
};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use super::failure::{Failure, Outcome};
use super::files::{self, Draft};
use super::progress::ProgressLine;
use super::site::keep;
use super::template::TemplateOptions;
use super::values::positive;
use super::{note, print_json, print_report};

pub(super) const EXAMPLES: &str = "\
Examples:
  ascend-tp data tokenizer corpus.txt --vocab-size 4096 --out my-tokenizer
  ascend-tp data prepare corpus.txt chats.jsonl --tokenizer my-tokenizer --out corpus
  ascend-tp data inspect corpus";

const PREPARE_EXAMPLES: &str = "\
Writes PREFIX.bin and PREFIX.idx in Megatron's format. For conversations it also writes
PREFIX.ignore.bin and .idx, with 1 for each token that is not learned. Ids have 16 bits if the
tokenizer has fewer than 65,500 ids. PREFIX.prepared.json records the tokenizer for `data inspect`.

A line of a .jsonl has `text`, or a conversation: `messages` (OpenAI), `conversations` (ShareGPT),
`instruction` and `output` (Alpaca), or `prompt` and `completion`. Only answers of the assistant are
learned, except answers of `weight` 0.

Examples:
  ascend-tp data prepare corpus.txt --separator '\\n\\n' --tokenizer Qwen2.5-7B --out corpus
  ascend-tp data prepare chats.jsonl more.jsonl --tokenizer Qwen2.5-7B-Instruct --out chats";

const INSPECT_EXAMPLES: &str = "\
Examples:
  ascend-tp data inspect corpus
  ascend-tp data inspect corpus --tokenizer Qwen2.5-7B --documents 10
  ascend-tp data inspect corpus --json | jq .lengths.median";

const TOKENIZER_EXAMPLES: &str = "\
Writes tokenizer.json and tokenizer_config.json, which transformers opens too. Token 0 is <|endoftext|>.

Examples:
  ascend-tp data tokenizer corpus.txt --vocab-size 4096 --out my-tokenizer";

#[derive(Debug, Args)]
pub(super) struct DataCommandOptions {
    #[command(subcommand)]
    part: DataCommand,
}

#[derive(Debug, Subcommand)]
enum DataCommand {
    /// Encode texts in Megatron's format
    #[command(after_help = PREPARE_EXAMPLES)]
    Prepare(PrepareOptions),
    /// Show the content of prepared data: counts, lengths, the first documents
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(CorpusInspectOptions),
    /// Train a tokenizer, a byte-level BPE, on texts
    #[command(after_help = TOKENIZER_EXAMPLES)]
    Tokenizer(TokenizerOptions),
}

#[derive(Debug, Args)]
struct PrepareOptions {
    /// Texts: FILE.txt, or FILE.jsonl with a text or a conversation in each line
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Folder with tokenizer.json or qwen.tiktoken, and a chat template for conversations
    #[arg(long, value_name = "DIR")]
    tokenizer: PathBuf,
    /// Prefix of the written files PREFIX.bin and PREFIX.idx
    #[arg(long, value_name = "PREFIX")]
    out: PathBuf,
    /// Text between two documents of a .txt, with \n, \r, \t and \\ [default: the whole file is one
    /// document]
    #[arg(long, value_name = "TEXT", value_parser = unescaped, allow_hyphen_values = true)]
    separator: Option<String>,
    /// Maximum number of invalid lines to skip, over all files
    #[arg(long, default_value = "0", value_name = "N")]
    skip_bad_lines: usize,
    #[command(flatten)]
    template: TemplateOptions,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct CorpusInspectOptions {
    /// Prefix of the .bin and the .idx
    #[arg(value_name = "PREFIX")]
    prefix: PathBuf,
    /// Folder with the tokenizer that decodes the documents [default: the tokenizer that `data
    /// prepare` recorded]
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
    /// Number of documents to show
    #[arg(long, default_value = "3", value_name = "N")]
    documents: usize,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct TokenizerOptions {
    /// Texts: FILE.txt, or FILE.jsonl with a text or a conversation in each line
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Number of tokens, including all bytes and the end of text
    #[arg(long, value_name = "N", value_parser = positive)]
    vocab_size: usize,
    /// Maximum number of invalid lines to skip, over all files
    #[arg(long, default_value = "0", value_name = "N")]
    skip_bad_lines: usize,
    /// Folder to write the tokenizer to
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &DataCommandOptions) -> Result<Outcome, Failure> {
    match &options.part {
        DataCommand::Prepare(options) => run_prepare(options)?,
        DataCommand::Inspect(options) => run_inspect(options)?,
        DataCommand::Tokenizer(options) => run_tokenizer(options)?,
    }
    Ok(Outcome::Done)
}

#[derive(Debug, Serialize)]
struct PrepareReport {
    out: PathBuf,
    documents: usize,
    tokens: u64,
    /// Number of tokens with a label of weight zero.
    ignored: u64,
    dtype: TokenType,
    /// Number of invalid lines that were skipped.
    skipped_lines: usize,
    files: Vec<PathBuf>,
}

/// The content of `PREFIX.prepared.json`.
#[derive(Debug, Serialize, Deserialize)]
struct PreparedRecord {
    /// Folder of the tokenizer.
    tokenizer: PathBuf,
    /// Number of the tokenizer's ids.
    vocabulary: usize,
}

/// Returns the path of `PREFIX.prepared.json`.
fn record_path(prefix: &Path) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(".prepared.json");
    name.into()
}

fn run_prepare(options: &PrepareOptions) -> Result<(), Failure> {
    let mut problems = Diagnostics::new();
    let texts = texts(&options.files, options.separator.as_deref(), &mut problems);
    let encoder = keep(Encoder::open(&options.tokenizer, usize::MAX), &mut problems);
    let template = keep(options.template.open_changed(&options.tokenizer), &mut problems).flatten();
    let mut with_ignore = options.out.clone().into_os_string();
    with_ignore.push(IGNORE);
    let with_ignore = PathBuf::from(with_ignore);
    let [bin, idx] = [bin_path(&options.out), idx_path(&options.out)];
    let record = record_path(&options.out);
    let [ignore_bin, ignore_idx] = [bin_path(&with_ignore), idx_path(&with_ignore)];
    for path in [&bin, &idx, &ignore_bin, &ignore_idx, &record] {
        keep(files::check("--out", path).map_err(Diagnostics::from), &mut problems);
    }
    let Some(encoder) = encoder.filter(|_| problems.is_empty()) else { return Err(problems.into()) };
    let encoder = encoder.with_template(template);

    let mut tokens = Draft::new("--out", bin.clone());
    let mut ignore = Draft::new("--out", ignore_bin.clone());
    let progress = ProgressLine::reading(bytes_of(&options.files));
    let prepared = prepare(&texts, &encoder, options.skip_bad_lines, &mut tokens, &mut ignore, &|read| {
        progress.advance(read);
    });
    progress.finish();
    let prepared = prepared?;
    note_skipped(&prepared.skipped);

    // From here on the old data is invalid until the new data is complete.
    for path in [&idx, &ignore_idx, &ignore_bin, &record] {
        remove(path)?;
    }
    tokens.commit()?;
    let mut written = vec![bin, idx.clone()];
    if let Some(index) = &prepared.ignore {
        ignore.commit()?;
        write_index(&ignore_idx, index)?;
        written.extend([ignore_bin, ignore_idx]);
    }
    write_record(&record, options, &encoder)?;
    write_index(&idx, &prepared.index)?;
    written.push(record);
    let report = PrepareReport {
        out: options.out.clone(),
        documents: prepared.index.lengths.len(),
        tokens: prepared.tokens,
        ignored: prepared.ignored,
        dtype: prepared.index.dtype,
        skipped_lines: prepared.skipped.count,
        files: written,
    };
    if options.json { print_json(&report) } else { print_report(&text::prepared(&report)) }
}

fn write_record(path: &Path, options: &PrepareOptions, encoder: &Encoder) -> Result<(), Failure> {
    let tokenizer = options.tokenizer.canonicalize().unwrap_or_else(|_| options.tokenizer.clone());
    let record = PreparedRecord { tokenizer, vocabulary: encoder.tokenizer().size() };
    files::write("--out", path, |out| {
        serde_json::to_writer_pretty(&mut *out, &record)?;
        out.write_all(b"\n")
    })
}

/// Prints the number of skipped lines, and the problems of the first ones.
pub(super) fn note_skipped(skipped: &SkippedLines) {
    if skipped.count > 0 {
        let lines = if skipped.count == 1 {
            "1 bad line was".to_owned()
        } else {
            format!("{} bad lines were", skipped.count)
        };
        note(&format!("{lines} skipped"));
        skipped.problems.lines().iter().for_each(|line| note(&format!("  {line}")));
    }
}

fn write_index(path: &Path, index: &TokenIndex) -> Result<(), Failure> {
    files::write("--out", path, |out| index.write(out))
}

fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let place = format!("--out: {}", path.display());
            Err(Failure::Run(
                Diagnostics::from(Diagnostic::new(place, "cannot be removed").found(error)).into(),
            ))
        }
        _ => Ok(()),
    }
}

/// The summary of indexed data, with the first documents as text.
#[derive(Debug, Serialize)]
struct InspectReport {
    #[serde(flatten)]
    summary: Summary,
    /// Texts of the first tokens of the first documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    texts: Option<Vec<String>>,
}

fn run_inspect(options: &CorpusInspectOptions) -> Result<(), Failure> {
    let mut problems = Diagnostics::new();
    let tokenizer = options.tokenizer.as_ref().map(|folder| Tokenizer::open(folder, usize::MAX));
    let tokenizer = match keep(tokenizer.transpose(), &mut problems).flatten() {
        None if options.tokenizer.is_none() => recorded_tokenizer(&prefix_of(&options.prefix)),
        given => given,
    };
    let summary = match inspect(&prefix_of(&options.prefix), options.documents) {
        Ok(summary) => Some(summary),
        Err(Error::Refused(found)) => keep(Err(found), &mut problems),
        Err(error) => return Err(error.into()),
    };
    let Some(summary) = summary.filter(|_| problems.is_empty()) else { return Err(problems.into()) };
    let texts = tokenizer.map(|tokenizer| {
        let text = |ids: &[i64]| {
            // Decoding skips ids that the tokenizer does not have.
            let ids: Vec<u32> = ids.iter().map(|id| u32::try_from(*id).unwrap_or(u32::MAX)).collect();
            tokenizer.decode(&ids)
        };
        summary.first.iter().map(|document| text(&document.ids)).collect::<Result<Vec<_>, _>>()
    });
    let report = InspectReport { summary, texts: texts.transpose()? };
    if options.json { print_json(&report) } else { print_report(&text::inspected(&report)) }
}

/// Returns the tokenizer that `data prepare` recorded for a prefix. Prints the reason if the
/// recorded tokenizer cannot be used.
fn recorded_tokenizer(prefix: &Path) -> Option<Tokenizer> {
    let path = record_path(prefix);
    let text = fs::read_to_string(&path).ok()?;
    let cannot = |why: &dyn std::fmt::Display| {
        note(&format!(
            "{}: the recorded tokenizer cannot be used: {why}; pass --tokenizer DIR",
            path.display()
        ));
    };
    let record: PreparedRecord = serde_json::from_str(&text).map_err(|error| cannot(&error)).ok()?;
    let tokenizer =
        Tokenizer::open(&record.tokenizer, usize::MAX).map_err(|problems| cannot(&problems)).ok()?;
    if tokenizer.size() == record.vocabulary {
        return Some(tokenizer);
    }
    let (folder, found) = (record.tokenizer.display(), tokenizer.size());
    cannot(&format!("{folder} has another tokenizer: expected {} ids, found {found}", record.vocabulary));
    None
}

#[derive(Debug, Serialize)]
struct TokenizerReport {
    out: PathBuf,
    size: usize,
    documents: u64,
    bytes: Bytes,
    files: Vec<PathBuf>,
}

fn run_tokenizer(options: &TokenizerOptions) -> Result<(), Failure> {
    let mut problems = Diagnostics::new();
    let texts = texts(&options.files, None, &mut problems);
    keep(files::check_folder("--out", &options.out).map_err(Diagnostics::from), &mut problems);
    problems.into_result(())?;
    let progress = ProgressLine::reading(bytes_of(&options.files));
    let learned =
        learn_tokenizer(&texts, options.vocab_size, options.skip_bad_lines, &|read| progress.advance(read));
    progress.finish();
    let learned = learned?;
    note_skipped(&learned.skipped);
    if learned.size < options.vocab_size {
        note(&format!(
            "{} tokens were asked for; the texts have words for {}",
            options.vocab_size, learned.size
        ));
    }
    fs::create_dir_all(&options.out)?;
    let mut written = Vec::new();
    for (name, text) in &learned.files {
        let path = options.out.join(name);
        files::write("--out", &path, |out| out.write_all(text.as_bytes()))?;
        written.push(path);
    }
    let report = TokenizerReport {
        out: options.out.clone(),
        size: learned.size,
        documents: learned.documents,
        bytes: learned.bytes,
        files: written,
    };
    if options.json { print_json(&report) } else { print_report(&text::learned(&report)) }
}

fn texts(paths: &[PathBuf], separator: Option<&str>, problems: &mut Diagnostics) -> Vec<TextFile> {
    let texts = paths
        .iter()
        .filter_map(|path| keep(TextFile::of(path, separator).map_err(Diagnostics::from), problems));
    texts.collect()
}

/// Returns the total size of the files that exist.
fn bytes_of(files: &[PathBuf]) -> Bytes {
    files.iter().filter_map(|file| Some(Bytes(fs::metadata(file).ok()?.len()))).sum()
}

/// Replaces the escapes \n, \r, \t and \\ in a text.
pub(super) fn unescaped(text: &str) -> Result<String, String> {
    let mut unescaped = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        unescaped.push(match letter {
            '\\' => match letters.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('\\') => '\\',
                other => {
                    let other = other.map_or_else(|| "nothing".to_owned(), |other| other.to_string());
                    return Err(format!("expected n, r, t or \\ after a \\, found {other}"));
                }
            },
            letter => letter,
        });
    }
    if unescaped.is_empty() {
        Err("expected a text that is between two documents, found nothing".to_owned())
    } else {
        Ok(unescaped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_may_be_a_line_end() {
        assert_eq!(unescaped(r"\n\n").unwrap(), "\n\n");
        assert_eq!(unescaped(r"--\t\r\\n").unwrap(), "--\t\r\\n");
        assert!(unescaped(r"a\x").unwrap_err().ends_with("found x"));
        assert!(unescaped("\\").unwrap_err().ends_with("found nothing"));
        assert!(unescaped("").is_err());
    }
}
