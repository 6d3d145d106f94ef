//! Which files there are, and how each is to be read.
//!
//! Input → output: a path → a [`CorpusSource`]: by its name, and by nothing else, so that a file
//! that is broken is reported as what it was to be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::encoder::Encoder;
use super::indexed::{bin_path, idx_path, prefix_of};
use crate::base::Diagnostic;

/// Something that samples are made of.
#[derive(Clone, Debug)]
pub enum CorpusSource {
    /// Texts, which become token ids when the run begins and stay in memory.
    Text {
        /// The file, and how documents stand in it.
        file: TextFile,
        /// What makes ids of it.
        encoder: Arc<Encoder>,
    },
    /// `PREFIX.bin` and `PREFIX.idx` of Megatron, and `PREFIX.ignore.bin` and `.idx` if some labels
    /// count nothing. They are read piece by piece.
    Indexed {
        /// What the names begin with.
        prefix: PathBuf,
    },
    /// A safetensors file with `tokens` i32 `[steps, global_batch, sequence + 1]`, taken batch by
    /// batch as they stand, and perhaps `ignore` u8 `[steps, global_batch, sequence]`: 1 where a
    /// label counts nothing. It is all the data there is.
    Tokens {
        /// Where the safetensors file is.
        path: PathBuf,
    },
}

/// A file of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    /// Where it is; the name ends in `.txt` or `.jsonl`.
    pub path: PathBuf,
    /// How documents stand in it.
    pub format: TextFormat,
}

/// How documents stand in a file of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// The whole file is one.
    Whole,
    /// This text is between any two, and belongs to neither.
    Separated(String),
    /// A JSON object a line: `{"text": "…"}`, or `{"messages": [{"role": "…", "content": "…"},
    /// …]}`, where only what assistants say are labels. Other keys of a line are not read.
    JsonLines,
}

/// What a path may end in.
const KNOWN: &str =
    "FILE.txt, FILE.jsonl, FILE.safetensors with tokens, or PREFIX of PREFIX.bin and PREFIX.idx";

impl TextFile {
    /// The file of a name that ends in `.txt` or `.jsonl`.
    ///
    /// # Errors
    /// It ends in neither.
    pub fn of(path: &Path, separator: Option<&str>) -> Result<Self, Diagnostic> {
        let format = match extension(path) {
            "txt" => {
                separator.map_or(TextFormat::Whole, |separator| TextFormat::Separated(separator.to_owned()))
            }
            "jsonl" => TextFormat::JsonLines,
            _ => return Err(unknown(path, "FILE.txt or FILE.jsonl")),
        };
        Ok(Self { path: path.to_path_buf(), format })
    }

    /// What the file is called in messages.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl CorpusSource {
    /// The source that a path names. `encoder` is for texts, and `separator` stands between the
    /// documents of a `.txt`.
    ///
    /// # Errors
    /// Nothing of a known kind has such a name, or it is a text and there is no encoder.
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
    Diagnostic::new(path.display().to_string(), "no data of a known kind").expected(expected).found(found)
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
