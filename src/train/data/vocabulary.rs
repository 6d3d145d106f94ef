//! A tokenizer trained on texts.
//!
//! Input: texts and a size. Output: the files of a byte-level BPE, which this program and
//! transformers open. Invariants: the tokenizer has a token for each byte, so every text can be
//! encoded and decoded again. Id 0 ends a text. The same texts give the same files.

use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

use super::Error;
use super::encoder::END_OF_TEXT;
use super::problems::{SkippedLines, TextProblems};
use super::reader::Reader;
use super::record::WrittenDocument;
use super::source::TextFile;
use crate::base::{Bytes, Diagnostic, Diagnostics};

/// Minimum size: a token for each byte, and the token that ends a text.
const FEWEST: usize = 257;

/// Maximum size, because the trainer reserves memory for all tokens.
const MOST: usize = 1 << 20;

/// Maximum size of the texts, because the trainer counts pairs of tokens in 31 bits.
const MOST_BYTES: u64 = i32::MAX as u64;

/// A trained tokenizer, with counts of the training texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedTokenizer {
    /// Number of tokens. It is below the requested size if the texts have too few words.
    pub size: usize,
    /// Number of documents it was trained on.
    pub documents: u64,
    /// Bytes of text it was trained on.
    pub bytes: Bytes,
    /// Bad lines that were skipped.
    pub skipped: SkippedLines,
    /// Names and contents of the files.
    pub files: [(&'static str, String); 2],
}

/// Trains a byte-level BPE of `size` tokens. In conversations it reads the contents of the
/// messages, not the text of the template. Up to `skip_bad_lines` lines without a document are
/// skipped.
///
/// # Errors
/// The size is too small or too large, a file cannot be read, there are too many bad lines, or the
/// texts are larger than the trainer's limit.
pub fn learn_tokenizer(
    from: &[TextFile],
    size: usize,
    skip_bad_lines: usize,
    progress: &dyn Fn(Bytes),
) -> Result<LearnedTokenizer, Error> {
    let mut problems = TextProblems::with_limit(skip_bad_lines);
    if size > MOST {
        let problem = Diagnostic::new("vocabulary size", "more tokens than any model has");
        problems.push(problem.expected(format!("at most {MOST}")).found(size));
    }
    if size < FEWEST {
        problems.push(
            Diagnostic::new("vocabulary size", "too few tokens")
                .expected(format!("at least {FEWEST}: each byte, and {END_OF_TEXT}"))
                .found(size),
        );
    }
    let (documents, texts) = read(from, &mut problems, progress);
    let bytes: u64 = texts.iter().map(|text| text.len() as u64).sum();
    if bytes > MOST_BYTES {
        problems.push(
            Diagnostic::new("all texts", "more than can be counted")
                .expected(Bytes(MOST_BYTES))
                .found(Bytes(bytes))
                .help("use fewer texts, which give nearly the same tokenizer"),
        );
    }
    let skipped = problems.into_result()?;
    if bytes == 0 {
        return Err(Error::Refused(Diagnostic::new("all texts", "the texts are empty").into()));
    }
    let refused = |error| Diagnostics::from(Diagnostic::new("tokenizer", "cannot be made").found(error));
    let tokenizer = learn(&texts, size).map_err(refused)?;
    let config = serde_json::json!({
        "eos_token": END_OF_TEXT,
        "model_max_length": 1e30,
        "tokenizer_class": "PreTrainedTokenizerFast",
    });
    let files = [
        ("tokenizer.json", tokenizer.to_string(true).map_err(refused)? + "\n"),
        ("tokenizer_config.json", format!("{config:#}\n")),
    ];
    Ok(LearnedTokenizer {
        size: tokenizer.get_vocab_size(true),
        documents,
        bytes: Bytes(bytes),
        skipped,
        files,
    })
}

/// Returns the number of documents and all their texts.
fn read(from: &[TextFile], problems: &mut TextProblems, progress: &dyn Fn(Bytes)) -> (u64, Vec<String>) {
    let (mut documents, mut texts) = (0, Vec::new());
    for file in from {
        let mut reader = match Reader::open(file) {
            Ok(reader) => reader,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        loop {
            let before = reader.read();
            let chunk = reader.next_chunk(problems);
            progress(Bytes(reader.read().0 - before.0));
            if chunk.is_empty() {
                break;
            }
            documents += chunk.len() as u64;
            for placed in chunk {
                match placed.written {
                    WrittenDocument::Text(text) => texts.push(text),
                    WrittenDocument::Completion { prompt, completion } => texts.push(prompt + &completion),
                    WrittenDocument::Messages(conversation) => {
                        texts.extend(conversation.turns.into_iter().map(|turn| turn.message.content));
                    }
                }
            }
        }
    }
    (documents, texts)
}

fn learn(texts: &[String], size: usize) -> tokenizers::Result<Tokenizer> {
    // The first word of a text gets no space that the text does not have.
    let bytes = ByteLevel::default().add_prefix_space(false);
    let trainer = BpeTrainer::builder()
        .vocab_size(size)
        .show_progress(false)
        .special_tokens(vec![AddedToken::from(END_OF_TEXT, true)])
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(bytes)).with_decoder(Some(bytes));
    // Words never cross the end of a line. The lines are counted on all cores.
    let lines = texts.iter().flat_map(|text| text.split_inclusive('\n'));
    tokenizer.train(&mut TrainerWrapper::from(trainer), lines)?;
    Ok(tokenizer)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::super::encoder::Encoder;
    use super::super::record::WrittenDocument;
    use super::super::source::TextFormat;
    use super::*;

    fn text(folder: &Path) -> TextFile {
        let path: PathBuf = folder.join("a.txt");
        let text =
            "And God said, Let there be light: and there was light.\nAnd the earth was without form.\n"
                .repeat(20);
        std::fs::write(&path, text).unwrap();
        TextFile { path, format: TextFormat::Whole }
    }

    #[test]
    fn a_learned_tokenizer_opens_and_gives_every_text_back() {
        let folder = tempfile::tempdir().unwrap();
        let learned = learn_tokenizer(&[text(folder.path())], 280, 0, &|_: Bytes| {}).unwrap();
        assert_eq!((learned.size, learned.documents), (280, 1));
        for (name, text) in &learned.files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let encoder = Encoder::open(folder.path(), 280).unwrap();
        let tokenizer = encoder.tokenizer();
        assert_eq!((tokenizer.size(), tokenizer.id_of(END_OF_TEXT)), (280, Some(0)));
        for text in ["And God said", " naïve\t中文 🦀\r\n\n", ""] {
            assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()).unwrap(), text);
        }
        assert!(
            tokenizer.encode("And there was light").unwrap().len() < 12,
            "it has merged what is frequent"
        );
        let document = encoder.encode(&WrittenDocument::Text("light".to_owned())).unwrap();
        assert_eq!(document.ids.last(), Some(&0));
        assert_eq!(
            learn_tokenizer(&[text(folder.path())], 280, 0, &|_: Bytes| {}).unwrap(),
            learned,
            "the same again"
        );
    }

    #[test]
    fn a_text_of_few_words_gives_fewer_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let learned = learn_tokenizer(&[text(folder.path())], 5000, 0, &|_: Bytes| {}).unwrap();
        assert!((280..400).contains(&learned.size), "{}", learned.size);
    }

    #[test]
    fn what_cannot_be_learned_from_is_refused_together() {
        let folder = tempfile::tempdir().unwrap();
        let lines = TextFile { path: folder.path().join("b.jsonl"), format: TextFormat::JsonLines };
        std::fs::write(&lines.path, "{\"text\": 1}\n").unwrap();
        let message = learn_tokenizer(&[lines], 256, 0, &|_: Bytes| {}).unwrap_err().to_string();
        assert!(
            message.contains("vocabulary size: too few tokens: expected at least 257: each byte"),
            "{message}"
        );
        assert!(message.contains("b.jsonl: line 1: not a document"), "{message}");
        let empty = TextFile { path: folder.path().join("c.txt"), format: TextFormat::Whole };
        std::fs::write(&empty.path, "").unwrap();
        let message = learn_tokenizer(&[empty], 300, 0, &|_: Bytes| {}).unwrap_err().to_string();
        assert_eq!(message, "all texts: the texts are empty");
    }
}
