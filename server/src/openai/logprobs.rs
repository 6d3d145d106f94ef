//! Log-probabilities in answers.
//!
//! - Input: tokens with the library's log-probabilities.
//! - Output: the JSON of completions (lists by field) and of chat (one object per token).
//! - Invariants: a token has the same number as chosen token and among the most likely tokens.
//!   Tokens of half of a character have their bytes. −∞ is written as −9999, because JSON has none.

use std::collections::BTreeMap;

use ascend_tp::generate::LogProbabilities;
use ascend_tp::generate::tokenizer::Vocabulary;
use serde_json::{Map, Value, json};

/// The number for a probability of zero, as in vLLM.
const IMPOSSIBLE: f32 = -9999.0;

fn number(log_probability: f32) -> f32 {
    log_probability.max(IMPOSSIBLE)
}

/// The `logprobs` of a completion.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompletionLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
    text_offset: Vec<usize>,
    /// Number of characters that began before the next token.
    characters: usize,
}

impl CompletionLogprobs {
    /// Adds a token. The first token of a text has no log-probability.
    pub(crate) fn push(&mut self, vocabulary: &Vocabulary, id: u32, found: Option<&LogProbabilities>) {
        let bytes = vocabulary.bytes(id);
        let is_inside = bytes.first().is_some_and(|byte| is_continuation(*byte));
        self.text_offset.push(self.characters.saturating_sub(usize::from(is_inside)));
        if !vocabulary.is_special(id) {
            self.characters += bytes.iter().filter(|byte| !is_continuation(**byte)).count();
        }
        let token = vocabulary.text(id);
        self.token_logprobs.push(found.map(|found| number(found.chosen)));
        self.top_logprobs.push(found.map(|found| {
            let likeliest = found.likeliest.iter().map(|(id, log)| (vocabulary.text(*id), number(*log)));
            // The chosen token comes last, so that its number counts.
            likeliest.chain([(token.clone(), number(found.chosen))]).collect()
        }));
        self.tokens.push(token);
    }

    /// Returns the tokens since the last call.
    pub(crate) fn take(&mut self) -> Value {
        let rest = Self { characters: self.characters, ..Self::default() };
        let Self { tokens, token_logprobs, top_logprobs, text_offset, .. } = std::mem::replace(self, rest);
        json!({
            "tokens": tokens,
            "token_logprobs": token_logprobs,
            "top_logprobs": top_logprobs,
            "text_offset": text_offset,
        })
    }
}

const fn is_continuation(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

/// Returns a token of the `logprobs` of a chat.
pub(crate) fn chat_token(vocabulary: &Vocabulary, id: u32, found: &LogProbabilities) -> Value {
    let top = found.likeliest.iter().map(|(id, log)| token(vocabulary, *id, *log)).collect::<Vec<_>>();
    let mut chosen = token(vocabulary, id, found.chosen);
    chosen.insert("top_logprobs".to_owned(), top.into());
    chosen.into()
}

fn token(vocabulary: &Vocabulary, id: u32, log_probability: f32) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("token".to_owned(), vocabulary.text(id).into());
    fields.insert("logprob".to_owned(), json!(number(log_probability)));
    fields.insert("bytes".to_owned(), json!(vocabulary.bytes(id)));
    fields
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ascend_tp::generate::Tokenizer;

    use super::*;

    #[test]
    fn offsets_count_characters_and_halves_share_one() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/kjv-qwen2");
        let tokenizer = Tokenizer::open(&dir, 4096).unwrap();
        let (vocabulary, ids) = (tokenizer.vocabulary(), tokenizer.encode("é中 the").unwrap());
        let found = LogProbabilities { chosen: f32::NEG_INFINITY, likeliest: vec![(5, -0.5)] };
        let mut logprobs = CompletionLogprobs::default();
        for (at, id) in ids.iter().enumerate() {
            logprobs.push(&vocabulary, *id, Some(&found).filter(|_| at > 0));
        }
        let json = logprobs.take();
        assert_eq!(json["tokens"].as_array().unwrap().len(), ids.len());
        let offsets: Vec<u64> =
            json["text_offset"].as_array().unwrap().iter().map(|at| at.as_u64().unwrap()).collect();
        assert!(offsets.starts_with(&[0, 0, 1, 1, 1]) && offsets.ends_with(&[2]), "{json}");
        assert_eq!((&json["token_logprobs"][0], &json["top_logprobs"][0]), (&Value::Null, &Value::Null));
        assert_eq!(json["token_logprobs"][1], json!(-9999.0));
        let token = json["tokens"][1].as_str().unwrap();
        assert_eq!(json["top_logprobs"][1][token], json["token_logprobs"][1]);
        assert_eq!(logprobs.take()["tokens"], json!([]));
        let chat = chat_token(&vocabulary, ids[2], &found);
        assert_eq!(chat["bytes"].as_array().unwrap().len(), 1, "{chat}");
        assert_eq!(chat["top_logprobs"][0]["logprob"], json!(-0.5));
    }
}
