//! Positions where a long text can be split without changing its tokens.
//!
//! Input: a tokenizer. Output: a [`SplitRule`], if such positions are known; the starts of a text's
//! chunks. Invariant: the concatenated tokens of the chunks are the tokens of the text.
//!
//! The tokenizers library needs memory and time that grow faster than the text, and encodes every
//! occurrence of a word again. Chunks of about a word are encoded once each.
//!
//! A chunk starts with a space after a character that is not white space, with a newline after an
//! ASCII letter, or with Chinese punctuation after an ideograph. No known expression matches across
//! such a position. The expressions match a space only as their first character or within white
//! space, and their look-ahead tests white space only. A match that ends with a letter continues
//! only with letters, marks or an apostrophe. NFC composes nothing across an ASCII character, or
//! between an ideograph and punctuation. A position that an added token covers or touches is not a
//! start.

use std::ops::RangeInclusive;

use serde_json::Value;
use tokenizers::models::ModelWrapper;

use super::tiktoken;

/// Expressions that split texts into words, from Qwen, Llama 3 and gpt-oss.
pub(super) const KNOWN: [&str; 3] = [
    tiktoken::SPLIT,
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// Text before a chunk while it is encoded. With it the chunk is not at the start of a text.
pub(super) const CONTEXT: &str = "a";

/// Punctuation of Chinese texts, which have few spaces.
const PUNCTUATION: [char; 7] = ['、', '。', '，', '！', '：', '；', '？'];

/// Ideographs of all versions of Unicode. They are letters that NFC does not change.
const IDEOGRAPHS: RangeInclusive<char> = '\u{4E00}'..='\u{9FA5}';

/// The positions where the texts of a tokenizer can be split.
#[derive(Clone, Debug)]
pub(super) struct SplitRule {
    /// Tokens that are found before the text is split into words, by their first byte.
    added: Vec<Vec<String>>,
}

impl SplitRule {
    /// Returns the rule of a tokenizer; `None` if its model, normalizer, words or added tokens are
    /// of an unknown kind.
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer) -> Option<Self> {
        let json = |part: Option<Value>| part.unwrap_or(Value::Null);
        let normalizer = json(tokenizer.get_normalizer().and_then(|part| serde_json::to_value(part).ok()));
        let words = json(tokenizer.get_pre_tokenizer().and_then(|part| serde_json::to_value(part).ok()));
        let is_stable = matches!(tokenizer.get_model(), ModelWrapper::BPE(model) if model.dropout.is_none());
        let is_composed = normalizer["type"] == "NFC";
        if !is_stable || !(normalizer.is_null() || is_composed) || !are_known(&words) {
            return None;
        }
        let mut added = vec![Vec::new(); 256];
        let mut tokens: Vec<_> =
            tokenizer.get_added_vocabulary().get_added_tokens_decoder().values().collect();
        tokens.sort_unstable_by(|a, b| a.content.cmp(&b.content));
        for token in tokens {
            let text = &token.content;
            let touches_context = text == CONTEXT || text.contains(char::is_whitespace);
            if touches_context || (token.normalized && is_composed) {
                return None;
            }
            added[usize::from(*text.as_bytes().first()?)].push(text.clone());
        }
        Some(Self { added })
    }

    /// Returns the starts of a text's chunks, in bytes and in ascending order. The first start is
    /// 0.
    pub(super) fn starts(&self, text: &str) -> Vec<usize> {
        let bytes = text.as_bytes();
        let mut starts = vec![0];
        // The end of all added tokens found so far.
        let mut covered = None;
        for (offset, byte) in bytes.iter().enumerate() {
            let found = self.added[usize::from(*byte)]
                .iter()
                .filter(|token| bytes[offset..].starts_with(token.as_bytes()));
            covered = covered.max(found.map(|token| offset + token.len()).max());
            let is_start = match byte {
                b' ' => text[..offset].chars().next_back().is_some_and(|before| !before.is_whitespace()),
                b'\n' => offset > 0 && bytes[offset - 1].is_ascii_alphabetic(),
                0xE3 | 0xEF => {
                    text[offset..].starts_with(PUNCTUATION)
                        && text[..offset].ends_with(|c| IDEOGRAPHS.contains(&c))
                }
                _ => false,
            };
            if is_start && covered.is_none_or(|end| end < offset) {
                starts.push(offset);
            }
        }
        starts
    }
}

/// Returns whether a pre-tokenizer splits words by a known expression.
fn are_known(words: &Value) -> bool {
    let is_byte_level = |part: &Value, by_expression: bool| {
        part["type"] == "ByteLevel" && part["add_prefix_space"] == false && part["use_regex"] == by_expression
    };
    if words["type"] != "Sequence" {
        return is_byte_level(words, true);
    }
    let Some([split, bytes]) = words["pretokenizers"].as_array().map(Vec::as_slice) else { return false };
    let expression = split["pattern"]["Regex"].as_str().unwrap_or_default();
    let is_split = split["type"] == "Split" && split["behavior"] == "Isolated" && split["invert"] == false;
    is_split && KNOWN.contains(&expression) && is_byte_level(bytes, false)
}
