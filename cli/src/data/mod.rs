//! `data`: texts → a tokenizer, indexed data, and what is in it.
//!
//! Input → output: files → files, or a report. Invariant: what is written is there whole or not at
//! all. Indexed data is so with its `.idx`, which goes first and comes last.

mod text;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ascend_tp::base::{Bytes, Diagnostic, Diagnostics};
use ascend_tp::generate::tokenizer::Tokenizer;
use ascend_tp::train::data::{
    Encoder, Error, IGNORE, Summary, TextFile, TokenIndex, TokenType, bin_path, idx_path, inspect,
    learn_tokenizer, prefix_of, prepare,
};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::failure::{Failure, Outcome};
use super::files::{self, Draft};
use super::progress::Progress;
use super::site::keep;
use super::values::positive;
use super::{note, print_json, print_report};

pub(super) const EXAMPLES: &str = "\
Examples:
  ascend-tp data tokenizer corpus.txt --vocab-size 4096 --out my-tokenizer
  ascend-tp data prepare corpus.txt chats.jsonl --tokenizer my-tokenizer --out corpus
  ascend-tp data inspect corpus";

const PREPARE_EXAMPLES: &str = "\
Writes PREFIX.bin and PREFIX.idx, as Megatron reads them, and for messages PREFIX.ignore.bin and .idx: 1 for each
token that is not to be learned. Ids are stored in 16 bits where the tokenizer has fewer than 65,500.

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
pub(super) struct DataOptions {
    #[command(subcommand)]
    part: DataCommand,
}

#[derive(Debug, Subcommand)]
enum DataCommand {
    /// Make token ids of texts, in Megatron's format
    #[command(after_help = PREPARE_EXAMPLES)]
    Prepare(PrepareOptions),
    /// Show what prepared data holds: counts, lengths, the first documents
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(CorpusInspectOptions),
    /// Make a tokenizer, a byte-level BPE, from texts
    #[command(after_help = TOKENIZER_EXAMPLES)]
    Tokenizer(TokenizerOptions),
}

#[derive(Debug, Args)]
struct PrepareOptions {
    /// Texts: FILE.txt, or FILE.jsonl with `text` or `messages` in each line
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Folder with tokenizer.json or qwen.tiktoken, and for messages a chat template
    #[arg(long, value_name = "DIR")]
    tokenizer: PathBuf,
    /// Where the data is written: PREFIX.bin and PREFIX.idx
    #[arg(long, value_name = "PREFIX")]
    out: PathBuf,
    /// What is between two documents of a .txt, with \n, \r, \t and \\ [default: the whole file is
    /// one]
    #[arg(long, value_name = "TEXT", value_parser = unescaped, allow_hyphen_values = true)]
    separator: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct CorpusInspectOptions {
    /// What the names of the .bin and the .idx begin with
    #[arg(value_name = "PREFIX")]
    prefix: PathBuf,
    /// Folder with a tokenizer: documents are shown as text too
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
    /// How many documents are shown
    #[arg(long, default_value = "3", value_name = "N")]
    documents: usize,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct TokenizerOptions {
    /// Texts: FILE.txt, or FILE.jsonl with `text` or `messages` in each line
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Tokens, all bytes and the end of text among them
    #[arg(long, value_name = "N", value_parser = positive)]
    vocab_size: usize,
    /// Folder that the tokenizer is written into
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(options: &DataOptions) -> Result<Outcome, Failure> {
    match &options.part {
        DataCommand::Prepare(options) => run_prepare(options)?,
        DataCommand::Inspect(options) => run_inspect(options)?,
        DataCommand::Tokenizer(options) => run_tokenizer(options)?,
    }
    Ok(Outcome::Done)
}

/// What was written.
#[derive(Debug, Serialize)]
struct PrepareReport {
    out: PathBuf,
    documents: usize,
    tokens: u64,
    /// Tokens that count nothing as labels.
    ignored: u64,
    dtype: TokenType,
    files: Vec<PathBuf>,
}

fn run_prepare(options: &PrepareOptions) -> Result<(), Failure> {
    let mut problems = Diagnostics::new();
    let texts = texts(&options.files, options.separator.as_deref(), &mut problems);
    let encoder = keep(Encoder::open(&options.tokenizer, usize::MAX), &mut problems);
    let mut with_ignore = options.out.clone().into_os_string();
    with_ignore.push(IGNORE);
    let with_ignore = PathBuf::from(with_ignore);
    let [bin, idx] = [bin_path(&options.out), idx_path(&options.out)];
    let [ignore_bin, ignore_idx] = [bin_path(&with_ignore), idx_path(&with_ignore)];
    for path in [&bin, &idx, &ignore_bin, &ignore_idx] {
        keep(files::check("--out", path).map_err(Diagnostics::from), &mut problems);
    }
    let Some(encoder) = encoder.filter(|_| problems.is_empty()) else { return Err(problems.into()) };

    let mut tokens = Draft::new("--out", bin.clone());
    let mut ignore = Draft::new("--out", ignore_bin.clone());
    let progress = Progress::reading(bytes_of(&options.files));
    let prepared = prepare(&texts, &encoder, &mut tokens, &mut ignore, &|read| progress.advance(read));
    progress.finish();
    let prepared = prepared?;

    // From here on the old data is none, until the new one is complete.
    for path in [&idx, &ignore_idx, &ignore_bin] {
        remove(path)?;
    }
    tokens.commit()?;
    let mut written = vec![bin, idx.clone()];
    if let Some(index) = &prepared.ignore {
        ignore.commit()?;
        write_index(&ignore_idx, index)?;
        written.extend([ignore_bin, ignore_idx]);
    }
    write_index(&idx, &prepared.index)?;
    let report = PrepareReport {
        out: options.out.clone(),
        documents: prepared.index.lengths.len(),
        tokens: prepared.tokens,
        ignored: prepared.ignored,
        dtype: prepared.index.dtype,
        files: written,
    };
    if options.json { print_json(&report) } else { print_report(&text::prepared(&report)) }
}

fn write_index(path: &Path, index: &TokenIndex) -> Result<(), Failure> {
    files::write("--out", path, |out| index.write(out))
}

/// Removes a file that may be there.
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

/// What indexed data holds, with the first documents as text.
#[derive(Debug, Serialize)]
struct InspectReport {
    #[serde(flatten)]
    summary: Summary,
    /// The texts of the first documents' first tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    texts: Option<Vec<String>>,
}

fn run_inspect(options: &CorpusInspectOptions) -> Result<(), Failure> {
    let mut problems = Diagnostics::new();
    let tokenizer = options.tokenizer.as_ref().map(|folder| Tokenizer::open(folder, usize::MAX));
    let tokenizer = keep(tokenizer.transpose(), &mut problems).flatten();
    let summary = match inspect(&prefix_of(&options.prefix), options.documents) {
        Ok(summary) => Some(summary),
        Err(Error::Refused(found)) => keep(Err(found), &mut problems),
        Err(error) => return Err(error.into()),
    };
    let Some(summary) = summary.filter(|_| problems.is_empty()) else { return Err(problems.into()) };
    let texts = tokenizer.map(|tokenizer| {
        let text = |ids: &[i64]| {
            // The tokenizer says nothing of ids that it does not have.
            let ids: Vec<u32> = ids.iter().map(|id| u32::try_from(*id).unwrap_or(u32::MAX)).collect();
            tokenizer.decode(&ids)
        };
        summary.first.iter().map(|document| text(&document.ids)).collect::<Result<Vec<_>, _>>()
    });
    let report = InspectReport { summary, texts: texts.transpose()? };
    if options.json { print_json(&report) } else { print_report(&text::inspected(&report)) }
}

/// What was learned.
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
    let progress = Progress::reading(bytes_of(&options.files));
    let learned = learn_tokenizer(&texts, options.vocab_size, &|read| progress.advance(read));
    progress.finish();
    let learned = learned?;
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

/// Bytes of all files, as far as they are there.
fn bytes_of(files: &[PathBuf]) -> Bytes {
    files.iter().filter_map(|file| Some(Bytes(fs::metadata(file).ok()?.len()))).sum()
}

/// A text with the line ends and tabs that it stands for.
fn unescaped(text: &str) -> Result<String, String> {
    let mut found = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        found.push(match letter {
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
    if found.is_empty() {
        Err("expected a text that is between two documents, found nothing".to_owned())
    } else {
        Ok(found)
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
