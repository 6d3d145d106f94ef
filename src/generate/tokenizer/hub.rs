//! The tokenizers that the `tokenizers` crate reads.

use std::io::ErrorKind;
use std::path::Path;

use super::{Piece, TokenStream, tiktoken};
use crate::base::{Diagnostic, Diagnostics};
use crate::weights::file;

const TOKENIZER_JSON: &str = "tokenizer.json";
const QWEN_TIKTOKEN: &str = "qwen.tiktoken";

/// A model's tokenizer.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    file: &'static str,
    /// Rows of the model's embedding.
    vocab_size: usize,
}

impl Tokenizer {
    /// Reads `tokenizer.json`, or else the original Qwen's `qwen.tiktoken`, in the folder `dir`,
    /// for a model whose embedding has `vocab_size` rows.
    ///
    /// The model may have more rows than the tokenizer has tokens; published models are padded so.
    /// A tokenizer with ids that the model has no row for fails when a text needs such an id.
    ///
    /// # Errors
    /// Neither file is there, or the file is malformed.
    pub fn open(dir: &Path, vocab_size: usize) -> Result<Self, Diagnostics> {
        if let Some(bytes) = read(dir, TOKENIZER_JSON)? {
            return Self::from_json(TOKENIZER_JSON, &bytes, vocab_size);
        }
        if let Some(bytes) = read(dir, QWEN_TIKTOKEN)? {
            let json = tiktoken::to_tokenizer_json(QWEN_TIKTOKEN, &bytes)?;
            return Self::from_json(QWEN_TIKTOKEN, json.to_string().as_bytes(), vocab_size);
        }
        let problem = Diagnostic::new(dir.display().to_string(), "no tokenizer in this folder")
            .expected(format!("{TOKENIZER_JSON} or {QWEN_TIKTOKEN}"));
        Err(if dir.join("tokenizer.model").exists() {
            problem.found("tokenizer.model").help(
                "download the model's tokenizer.json too, or make one with transformers' save_pretrained",
            )
        } else {
            problem.help("download the tokenizer's files into the folder of config.json")
        }
        .into())
    }

    fn from_json(file: &'static str, bytes: &[u8], vocab_size: usize) -> Result<Self, Diagnostics> {
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| {
            Diagnostic::new(file, "not a tokenizer of the tokenizers library").found(error)
        })?;
        // A file may ask for prompts to be cut or filled to a length; both would change what the
        // model is asked.
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|error| Diagnostic::new(file, "cannot be used without truncation").found(error))?;
        Ok(Self { inner, file, vocab_size })
    }

    /// Refuses ids that the model has no row for.
    fn check(&self, ids: &[u32]) -> Result<(), Diagnostics> {
        let Some(id) = ids.iter().find(|id| **id as usize >= self.vocab_size) else { return Ok(()) };
        let token = self.inner.id_to_token(*id).unwrap_or_default();
        Err(Diagnostic::new(self.file, "the text has a token outside the model's vocabulary")
            .expected(format!("ids below vocab_size = {} of config.json", self.vocab_size))
            .found(format!("`{token}`, which has id {id}"))
            .help("take the tokenizer and config.json from the same model, or leave the token out")
            .into())
    }

    /// Number of ids, the unused ones below the largest included.
    #[must_use]
    pub fn size(&self) -> usize {
        self.inner.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1)
    }

    /// The ids of a text, with the tokens that the model wants at its start, if any. Special tokens
    /// written in the text become their ids.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of the text, or one that the model has no row for.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Diagnostics> {
        self.encode_with(text, true)
    }

    /// As [`encode`](Self::encode) for a text that has the tokens at its start already, as chat
    /// templates write them.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of the text, or one that the model has no row for.
    pub fn encode_whole(&self, text: &str) -> Result<Vec<u32>, Diagnostics> {
        self.encode_with(text, false)
    }

    /// As [`encode_whole`](Self::encode_whole), with the part of the text that each token stands
    /// for.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of the text, or one that the model has no row for.
    pub fn pieces(&self, text: &str) -> Result<Vec<Piece>, Diagnostics> {
        let encoding = self
            .inner
            .encode(text, false)
            .map_err(|error| self.failed("the text cannot be encoded", &error))?;
        self.check(encoding.get_ids())?;
        let added = self.inner.get_added_vocabulary();
        let tokens = encoding.get_tokens().iter().map(|token| added.is_special_token(token));
        let parts = encoding.get_ids().iter().zip(encoding.get_offsets());
        Ok(parts
            .zip(tokens)
            .map(|((id, (start, end)), is_special)| Piece { id: *id, bytes: *start..*end, is_special })
            .collect())
    }

    fn encode_with(&self, text: &str, adds_special: bool) -> Result<Vec<u32>, Diagnostics> {
        let encoding = self
            .inner
            .encode_fast(text, adds_special)
            .map_err(|error| self.failed("the prompt cannot be encoded", &error))?;
        self.check(encoding.get_ids())?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of ids, without special tokens. Bytes that are no UTF-8 become U+FFFD; ids that the
    /// tokenizer has no token for, which are the padding rows of the model's vocabulary, give no
    /// text.
    ///
    /// # Errors
    /// The tokenizer's decoder fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String, Diagnostics> {
        self.inner.decode(ids, true).map_err(|error| self.failed("ids cannot be decoded", &error))
    }

    /// A decoder of the ids that follow `prompt` one by one.
    #[must_use]
    pub fn stream(&self, prompt: &[u32]) -> TokenStream<'_> {
        TokenStream::new(self, prompt)
    }

    /// The id of a token written exactly so, such as `<|endoftext|>`.
    #[must_use]
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    fn failed(&self, message: &str, error: &tokenizers::Error) -> Diagnostics {
        Diagnostic::new(self.file, message).found(error).into()
    }
}

/// The file's bytes, or `None` if it is not there.
fn read(dir: &Path, name: &str) -> Result<Option<Vec<u8>>, Diagnostics> {
    match file::read(&dir.join(name)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Diagnostic::new(name, "cannot be read").found(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use tempfile::TempDir;

    use super::Tokenizer;

    fn shipped() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2")
    }

    fn folder(files: &[(&str, &str)]) -> TempDir {
        let folder = TempDir::new().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn refused(folder: &TempDir) -> String {
        let message = Tokenizer::open(folder.path(), 100).unwrap_err().to_string();
        message.replace(&folder.path().display().to_string(), "DIR")
    }

    #[test]
    fn the_shipped_model_encodes_as_its_reference() {
        let tokenizer = Tokenizer::open(&shipped(), 4096).unwrap();
        let text = std::fs::read_to_string(shipped().join("expected.json")).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
        let ids = |value: &serde_json::Value| serde_json::from_value::<Vec<u32>>(value.clone()).unwrap();
        let cases = expected["cases"].as_array().unwrap();
        assert!(cases.len() > 1);
        for case in cases {
            let prompt = ids(&case["prompt_ids"]);
            assert_eq!(tokenizer.encode(case["prompt"].as_str().unwrap()).unwrap(), prompt);
            let generated = ids(&case["greedy_ids"]);
            let text = tokenizer.decode(&[prompt.clone(), generated.clone()].concat()).unwrap();
            assert_eq!(text, case["text"].as_str().unwrap());
            let mut stream = tokenizer.stream(&prompt);
            let mut streamed = case["prompt"].as_str().unwrap().to_owned();
            for id in generated {
                streamed.extend(stream.push(id).unwrap());
            }
            streamed.extend(stream.finish().unwrap());
            assert_eq!(streamed, text);
        }
        assert_eq!(tokenizer.id_of("<|endoftext|>"), Some(0));
        assert_eq!(tokenizer.size(), 4096);
    }

    #[test]
    fn any_text_comes_back() {
        let tokenizer = Tokenizer::open(&shipped(), 4096).unwrap();
        for text in ["", " ", "Tab\tand\r\nlines\n\n", "naïve 中文 🦀👩‍👩‍👧 \u{FFFD}", "a  b   c"]
        {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        }
        assert_eq!(tokenizer.decode(&[0]).unwrap(), "");
        assert_eq!(tokenizer.encode("<|endoftext|>").unwrap(), [0]);
    }

    #[test]
    fn pieces_say_what_they_stand_for() {
        let tokenizer = Tokenizer::open(&shipped(), 4096).unwrap();
        let text = "é the<|endoftext|>\nking";
        let pieces = tokenizer.pieces(text).unwrap();
        let ids: Vec<u32> = pieces.iter().map(|piece| piece.id).collect();
        assert_eq!(ids, tokenizer.encode_whole(text).unwrap());
        let special: Vec<&str> =
            pieces.iter().filter(|piece| piece.is_special).map(|piece| &text[piece.bytes.clone()]).collect();
        assert_eq!(special, ["<|endoftext|>"]);
        assert_eq!(pieces[0].bytes, 0..2);
        assert_eq!(pieces[pieces.len() - 1].bytes.end, text.len());
    }

    #[test]
    fn a_file_that_cuts_and_pads_is_overruled() {
        let text = std::fs::read_to_string(shipped().join("tokenizer.json")).unwrap();
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json["truncation"] = serde_json::json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
        json["padding"] = serde_json::json!({"strategy": {"Fixed": 64}, "direction": "Left", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"});
        let folder = folder(&[("tokenizer.json", &json.to_string())]);
        let tokenizer = Tokenizer::open(folder.path(), 4096).unwrap();
        assert_eq!(tokenizer.encode("In the beginning").unwrap(), [1143, 259, 2078]);
    }

    #[test]
    fn an_id_beyond_the_vocabulary_is_refused_where_a_text_needs_it() {
        let tokenizer = Tokenizer::open(&shipped(), 2078).unwrap();
        assert_eq!(tokenizer.encode("In the").unwrap(), [1143, 259]);
        for refused in [
            tokenizer.encode("In the beginning").unwrap_err(),
            tokenizer.encode_whole("In the beginning").unwrap_err(),
            tokenizer.pieces("In the beginning").unwrap_err(),
        ] {
            assert_eq!(
                refused.to_string(),
                "tokenizer.json: the text has a token outside the model's vocabulary: expected ids below \
                 vocab_size = 2078 of config.json, found `Ġbeginning`, which has id 2078; \
                 take the tokenizer and config.json from the same model, or leave the token out"
            );
        }
    }

    #[test]
    fn folders_without_a_tokenizer() {
        assert_eq!(
            refused(&folder(&[])),
            "DIR: no tokenizer in this folder: expected tokenizer.json or qwen.tiktoken; \
             download the tokenizer's files into the folder of config.json"
        );
        assert!(
            refused(&folder(&[("tokenizer.model", "")]))
                .contains("found tokenizer.model; download the model's")
        );
        let message = refused(&folder(&[("tokenizer.json", "{")]));
        assert!(
            message.starts_with("tokenizer.json: not a tokenizer of the tokenizers library"),
            "{message}"
        );
    }
}
