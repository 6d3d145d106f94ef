//! Training data: paths and formats of files.
//!
//! Input: a path. Output: a [`CorpusSource`]. The format follows from the name alone, so that a
//! broken file is reported as a file of its format.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::encoder::Encoder;
use super::indexed::{bin_path, idx_path, prefix_of};
use crate::base::Diagnostic;

/// A source of samples.
#[derive(Clone, Debug)]
pub enum CorpusSource {
    /// Texts, which are encoded when the run starts and stay in memory.
    Text {
        /// Path and format of the file.
        file: TextFile,
        /// Tokenizer and chat template for the texts.
        encoder: Arc<Encoder>,
    },
    /// Megatron's `PREFIX.bin` and `PREFIX.idx`, with `PREFIX.ignore.bin` and `.idx` if some labels
    /// have weight zero. The tokens are read in chunks.
    Indexed {
        /// Common prefix of the file names.
        prefix: PathBuf,
    },
    /// A safetensors file of ready batches, used without other sources. It has `tokens` i32
    /// `[steps, global_batch, sequence + 1]` and optionally `ignore` u8 `[steps, global_batch,
    /// sequence]`, with 1 for a label of weight zero.
    Tokens {
        /// Path of the safetensors file.
        path: PathBuf,
    },
}

/// A file of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    /// Path of the file, which ends in `.txt` or `.jsonl`.
    pub path: PathBuf,
    /// Format of the documents in the file.
    pub format: TextFormat,
}

/// The format of the documents in a file of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// The whole file is one document.
    Whole,
    /// Documents are separated by this text, which belongs to no document.
    Separated(String),
    /// One JSON object per line: `text`, or a conversation or prompt in the format of OpenAI,
    /// ShareGPT, Alpaca or TRL. In a conversation only the assistant's messages are learned, and
    /// only if their `weight` is not 0. Other keys of a line are not read.
    JsonLines,
}

/// Names of text files, for messages.
const TEXTS: &str = "FILE.txt or FILE.jsonl";

/// Names of all data files, for messages.
const KNOWN: &str =
    "FILE.txt, FILE.jsonl, FILE.safetensors with tokens, or PREFIX of PREFIX.bin and PREFIX.idx";

impl TextFile {
    /// Returns the file of a path that ends in `.txt` or `.jsonl`.
    ///
    /// # Errors
    /// The path has another ending.
    pub fn of(path: &Path, separator: Option<&str>) -> Result<Self, Diagnostic> {
        let format = match extension(path) {
            "txt" => {
                separator.map_or(TextFormat::Whole, |separator| TextFormat::Separated(separator.to_owned()))
            }
            "jsonl" => TextFormat::JsonLines,
            _ => return Err(unknown(path, TEXTS)),
        };
        Ok(Self { path: path.to_path_buf(), format })
    }

    /// Returns the name of the file for messages.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl CorpusSource {
    /// Returns the source of a path. `encoder` is for texts, and `separator` separates the
    /// documents of a `.txt`.
    ///
    /// # Errors
    /// The name is not of a known kind, or it is a text and there is no encoder.
    pub fn of(
        path: &Path,
        encoder: Option<&Arc<Encoder>>,
        separator: Option<&str>,
    ) -> Result<Self, Diagnostic> {
        match extension(path) {
            "txt" | "jsonl" => {
                let file = TextFile::of(path, separator)?;
                let encoder = encoder.ok_or_else(|| {
                    Diagnostic::new(path.display().to_string(), "a text needs a tokenizer")
                        .help("name the folder of one, or prepare the text with `ascend-tp data prepare`")
                })?;
                Ok(Self::Text { file, encoder: Arc::clone(encoder) })
            }
            "safetensors" => Ok(Self::Tokens { path: path.to_path_buf() }),
            "bin" | "idx" => Ok(Self::Indexed { prefix: prefix_of(path) }),
            _ if idx_path(path).exists() || bin_path(path).exists() => {
                Ok(Self::Indexed { prefix: path.to_path_buf() })
            }
            _ => Err(unknown(path, KNOWN)),
        }
    }
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

fn unknown(path: &Path, expected: &str) -> Diagnostic {
    let found = if path.exists() { "a file of another name" } else { "nothing there" };
    let problem = Diagnostic::new(path.display().to_string(), "no data of a known kind")
        .expected(expected)
        .found(found);
    match extension(path) {
        "gz" => problem.help("decompress it with `gunzip`"),
        "zst" => problem.help("decompress it with `unzstd`"),
        "json" => problem.help("write its list as lines: `jq -c '.[]' FILE.json > FILE.jsonl`"),
        "parquet" | "arrow" => {
            problem.help("write it as JSON lines, such as with `to_json(lines=True)` of datasets")
        }
        _ => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_the_kind() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("corpus.v1.idx"), "").unwrap();
        std::fs::write(path("table.csv"), "").unwrap();
        let of = |name: &str| CorpusSource::of(&path(name), None, None);
        for name in ["corpus.v1", "corpus.v1.idx", "corpus.v1.bin"] {
            assert!(
                matches!(of(name).unwrap(), CorpusSource::Indexed { prefix } if prefix == path("corpus.v1")),
                "{name}"
            );
        }
        assert!(matches!(of("a.safetensors").unwrap(), CorpusSource::Tokens { .. }));
        assert!(of("a.txt").unwrap_err().to_string().contains("a text needs a tokenizer"));
        assert!(of("table.csv").unwrap_err().to_string().ends_with("found a file of another name"));
        assert!(of("a.jsonl.gz").unwrap_err().to_string().ends_with("decompress it with `gunzip`"));
        assert!(of("a.json").unwrap_err().to_string().contains("jq -c '.[]'"));
        assert!(of("absent").unwrap_err().to_string().ends_with("found nothing there"));
        let text = |separator| TextFile::of(&path("a.txt"), separator).unwrap().format;
        assert_eq!(
            (text(None), text(Some("\n\n"))),
            (TextFormat::Whole, TextFormat::Separated("\n\n".to_owned()))
        );
        assert_eq!(TextFile::of(&path("a.jsonl"), Some("|")).unwrap().format, TextFormat::JsonLines);
        assert!(TextFile::of(&path("a.bin"), None).is_err());
    }
}
