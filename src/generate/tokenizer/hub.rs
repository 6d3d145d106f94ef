//! Tokenizers of the `tokenizers` crate.
//!
//! Long texts are encoded in chunks on all cores, if the tokenizer has a [`SplitRule`]. The tokens
//! are the same.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::split::{CONTEXT, SplitRule};
use super::{Piece, TokenStream, Vocabulary, tiktoken};
use crate::base::{Diagnostic, Diagnostics};
use crate::weights::file;

const TOKENIZER_JSON: &str = "tokenizer.json";
const QWEN_TIKTOKEN: &str = "qwen.tiktoken";

/// Minimum size of a text that is encoded in chunks, in bytes.
const LONG: usize = 64 << 10;

/// Maximum size of a chunk with cached tokens, in bytes.
const WORD: usize = 64;

/// The tokenizer of a model.
///
/// ```
/// use ascend_tp::generate::Tokenizer;
///
/// let tokenizer = Tokenizer::open("models/tiny-qwen2".as_ref(), 512)?;
/// let ids = tokenizer.encode("In the beginning")?;
/// assert_eq!(tokenizer.decode(&ids)?, "In the beginning");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    file: &'static str,
    /// Number of rows of the model's embedding.
    vocab_size: usize,
    split: Option<SplitRule>,
}

impl Tokenizer {
    /// Opens `tokenizer.json`, or else the original Qwen's `qwen.tiktoken`, in the folder `dir`.
    /// The model's embedding has `vocab_size` rows.
    ///
    /// The model may have more rows than the tokenizer has tokens, because published models are
    /// padded. If the tokenizer has ids beyond the rows of the model, only texts that need such an
    /// id fail.
    ///
    /// # Errors
    /// Neither file exists, or the file is malformed.
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
        // A file may request truncation or padding of prompts. Both would change the input of the
        // model.
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|error| Diagnostic::new(file, "cannot be used without truncation").found(error))?;
        let split = SplitRule::of(&inner);
        Ok(Self { inner, file, vocab_size, split })
    }

    /// Refuses ids beyond the rows of the model.
    fn check(&self, ids: &[u32]) -> Result<(), Diagnostics> {
        let Some(id) = ids.iter().find(|id| **id as usize >= self.vocab_size) else { return Ok(()) };
        let token = self.inner.id_to_token(*id).unwrap_or_default();
        Err(Diagnostic::new(self.file, "the text has a token outside the model's vocabulary")
            .expected(format!("ids below vocab_size = {} of config.json", self.vocab_size))
            .found(format!("`{token}`, which has id {id}"))
            .help("take the tokenizer and config.json from the same model, or leave the token out")
            .into())
    }

    /// Returns the number of ids, including unused ids below the largest id.
    #[must_use]
    #[doc(hidden)]
    pub fn size(&self) -> usize {
        self.inner.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1)
    }

    /// Returns the ids of a text, with the special tokens that the tokenizer adds. Special tokens
    /// written in the text become their ids.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of the text, or the model has no row for a token.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Diagnostics> {
        self.encode_with(text, true)
    }

    /// Returns the ids of a text that already has its special tokens, such as the text of a chat
    /// template.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of the text, or the model has no row for a token.
    #[doc(hidden)]
    pub fn encode_whole(&self, text: &str) -> Result<Vec<u32>, Diagnostics> {
        self.encode_with(text, false)
    }

    /// Returns the tokens of a text with their ranges. As in [`encode_whole`](Self::encode_whole),
    /// no special tokens are added.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of the text, or the model has no row for a token.
    #[doc(hidden)]
    pub fn pieces(&self, text: &str) -> Result<Vec<Piece>, Diagnostics> {
        match &self.split {
            Some(rule) if text.len() >= LONG => self.pieces_by_chunk(text, rule),
            _ => self.pieces_at_once(text),
        }
    }

    fn pieces_at_once(&self, text: &str) -> Result<Vec<Piece>, Diagnostics> {
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

    fn pieces_by_chunk(&self, text: &str, rule: &SplitRule) -> Result<Vec<Piece>, Diagnostics> {
        let mut starts = rule.starts(text);
        starts.push(text.len());
        let chunks: Vec<&[usize]> = starts.windows(2).collect();
        // One range of chunks per thread, so that a thread encodes each word once.
        let share = chunks.len().div_ceil(rayon::current_num_threads()).max(1);
        let parts = chunks.par_chunks(share).map(|chunks| {
            let mut known: FxHashMap<&str, Vec<Piece>> = FxHashMap::default();
            let mut all_pieces = Vec::new();
            for ends in chunks {
                let (start, chunk) = (ends[0], &text[ends[0]..ends[1]]);
                if start == 0 {
                    all_pieces.extend(self.pieces_at_once(chunk)?);
                } else if let Some(pieces) = known.get(chunk) {
                    all_pieces.extend(pieces.iter().map(|piece| moved(piece, start)));
                } else {
                    let pieces = self.pieces_of_chunk(chunk)?;
                    all_pieces.extend(pieces.iter().map(|piece| moved(piece, start)));
                    if chunk.len() <= WORD {
                        known.insert(chunk, pieces);
                    }
                }
            }
            Ok(all_pieces)
        });
        Ok(parts.collect::<Result<Vec<_>, Diagnostics>>()?.concat())
    }

    /// Returns the tokens of a chunk after the first chunk.
    fn pieces_of_chunk(&self, chunk: &str) -> Result<Vec<Piece>, Diagnostics> {
        let pieces = self.pieces_at_once(&[CONTEXT, chunk].concat())?;
        let context = CONTEXT.len();
        let rest = pieces.into_iter().skip_while(|piece| piece.bytes.start < context);
        Ok(rest
            .map(|piece| Piece { bytes: piece.bytes.start - context..piece.bytes.end - context, ..piece })
            .collect())
    }

    fn encode_with(&self, text: &str, adds_special: bool) -> Result<Vec<u32>, Diagnostics> {
        let encode = |text: &str, adds_special| {
            let encoding = self.inner.encode_fast(text, adds_special);
            let encoding = encoding.map_err(|error| self.failed("the prompt cannot be encoded", &error))?;
            self.check(encoding.get_ids())?;
            Ok::<_, Diagnostics>(encoding.get_ids().to_vec())
        };
        let Some(rule) = self.split.as_ref().filter(|_| text.len() >= LONG) else {
            return encode(text, adds_special);
        };
        let ids = |text: &[Piece]| text.iter().map(|piece| piece.id).collect::<Vec<_>>();
        if !adds_special {
            return Ok(ids(&self.pieces_by_chunk(text, rule)?));
        }
        // The tokenizer adds the same special tokens around every text.
        let (whole, plain) = (encode(CONTEXT, true)?, encode(CONTEXT, false)?);
        let mut places = (0..=whole.len() - plain.len()).filter(|at| whole[*at..].starts_with(&plain));
        let (Some(at), None) = (places.next(), places.next()) else { return encode(text, true) };
        let pieces = self.pieces_by_chunk(text, rule)?;
        Ok([&whole[..at], &ids(&pieces), &whole[at + plain.len()..]].concat())
    }

    /// Returns the text of ids, without special tokens. Invalid UTF-8 becomes U+FFFD. Ids without a
    /// token, such as the padding rows of the model, give no text.
    ///
    /// # Errors
    /// The tokenizer's decoder fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String, Diagnostics> {
        self.inner.decode(ids, true).map_err(|error| self.failed("ids cannot be decoded", &error))
    }

    /// Returns a decoder of the ids that follow `prompt`.
    #[must_use]
    #[doc(hidden)]
    pub fn stream(self: &Arc<Self>, prompt: &[u32]) -> TokenStream {
        TokenStream::new(self, prompt)
    }

    /// Returns the id of a token, such as `<|endoftext|>`.
    #[must_use]
    #[doc(hidden)]
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Returns the bytes of the tokens of all rows of the model.
    #[must_use]
    #[doc(hidden)]
    pub fn vocabulary(&self) -> Vocabulary {
        Vocabulary::of(&self.inner, self.vocab_size)
    }

    fn failed(&self, message: &str, error: &tokenizers::Error) -> Diagnostics {
        Diagnostic::new(self.file, message).found(error).into()
    }
}

/// Returns a token of a chunk with its range in the whole text. The chunk begins at `start`.
fn moved(piece: &Piece, start: usize) -> Piece {
    Piece { bytes: start + piece.bytes.start..start + piece.bytes.end, ..*piece }
}

/// Returns the bytes of a file, or `None` if the file does not exist.
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
    use std::sync::{Arc, LazyLock};

    use proptest::prelude::ProptestConfig;
    use proptest::{prop_assert_eq, proptest};
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
        let tokenizer = Arc::new(Tokenizer::open(&shipped(), 4096).unwrap());
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

    /// Parts of texts: white space of all kinds, punctuation, contractions, added tokens, and words
    /// of other scripts.
    const PARTS: [&str; 27] = [
        "the",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "king",
        "'s",
        "'",
        ", ",
        ".\n",
        "<|endoftext|>",
        "<x>",
        "1234",
        "é",
        "e\u{301}",
        "中文",
        "，",
        "。\n",
        "神、天",
        "\u{3000}",
        "\u{a0}",
        "🦀",
        "A",
        "/\n",
        " \u{301}",
        "<|endof",
    ];

    fn text_of(parts: &[usize]) -> String {
        parts.iter().map(|part| PARTS[part % PARTS.len()]).collect()
    }

    /// Returns the shipped tokenizer, and variants with each known expression and with tokens
    /// around a text.
    fn tokenizers() -> Vec<Tokenizer> {
        let text = std::fs::read_to_string(shipped().join("tokenizer.json")).unwrap();
        let shipped: serde_json::Value = serde_json::from_str(&text).unwrap();
        let known = super::super::split::KNOWN.into_iter().map(|expression| {
            let mut json = shipped.clone();
            json["normalizer"] = serde_json::json!({"type": "NFC"});
            json["pre_tokenizer"] = serde_json::json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]});
            json["post_processor"] = serde_json::json!({"type": "Sequence", "processors": [
                {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
                {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                 "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}}]});
            json["added_tokens"].as_array_mut().unwrap().push(serde_json::json!({"id": 4096, "content": "<x>",
                "single_word": true, "lstrip": true, "rstrip": true, "normalized": false, "special": false}));
            json
        });
        let all: Vec<_> = [shipped.clone()].into_iter().chain(known).collect();
        let open = |json: &serde_json::Value| {
            Tokenizer::from_json("tokenizer.json", json.to_string().as_bytes(), 5000).unwrap()
        };
        all.iter().map(open).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn chunks_have_the_tokens_of_the_text(parts in proptest::collection::vec(0..PARTS.len(), 0..60)) {
            let text = text_of(&parts);
            for tokenizer in TOKENIZERS.iter() {
                let rule = tokenizer.split.as_ref().unwrap();
                let expected = tokenizer.pieces_at_once(&text).unwrap();
                prop_assert_eq!(tokenizer.pieces_by_chunk(&text, rule).unwrap(), expected);
            }
        }
    }

    static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(tokenizers);

    #[test]
    fn a_long_text_is_encoded_in_chunks_of_about_a_word() {
        let text = "In the beginning God created, the heaven\nand. ".repeat(1500);
        for tokenizer in TOKENIZERS.iter() {
            let whole = tokenizer.inner.encode_fast(text.as_str(), true).unwrap();
            assert_eq!(tokenizer.encode(&text).unwrap(), whole.get_ids());
            let whole = tokenizer.inner.encode_fast(text.as_str(), false).unwrap();
            assert_eq!(tokenizer.encode_whole(&text).unwrap(), whole.get_ids());
            let rule = tokenizer.split.as_ref().unwrap();
            assert_eq!(rule.starts(&text).len(), 1 + 8 * 1500);
            assert_eq!(rule.starts(&"起初，神创造天地。".repeat(3)).len(), 1 + 2 * 3);
        }
    }

    #[test]
    fn tokenizers_of_unknown_words_are_not_split() {
        let text = std::fs::read_to_string(shipped().join("tokenizer.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let splits = |json: &serde_json::Value| {
            Tokenizer::from_json("tokenizer.json", json.to_string().as_bytes(), 5000).unwrap().split.is_some()
        };
        assert!(splits(&json));
        for (key, value) in [
            ("normalizer", serde_json::json!({"type": "NFKC"})),
            (
                "pre_tokenizer",
                serde_json::json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
            ),
            ("pre_tokenizer", serde_json::Value::Null),
        ] {
            let mut other = json.clone();
            other[key] = value;
            assert!(!splits(&other), "{key}: {}", other[key]);
        }
        let mut other = json;
        other["added_tokens"][0]["content"] = "of the".into();
        assert!(!splits(&other), "a token with a space");
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
