//! Text of ids while they are generated.
//!
//! Input: ids, one by one. Output: new text of whole characters. Invariants: the concatenated
//! pieces are the text of all ids. A character whose bytes belong to several ids is returned with
//! the last id. The work per id does not grow with the length of the text.

use std::sync::Arc;

use super::Tokenizer;
use crate::base::Diagnostics;

/// Character that a decoder returns for invalid or incomplete UTF-8.
const REPLACEMENT: char = '\u{FFFD}';

/// Number of ids of the prompt that are decoded with the first generated ids, because decoders
/// treat the start of a text differently.
const CONTEXT_IDS: usize = 8;

/// A decoder of the ids that follow a prompt.
#[derive(Clone, Debug)]
pub struct TokenStream {
    tokenizer: Arc<Tokenizer>,
    /// Last ids. The ids of returned text come first.
    window: Vec<u32>,
    /// Number of ids at the front of the window that are context only.
    context: usize,
    /// Bytes of the window's text that were returned.
    emitted: usize,
    /// Whether `emitted` was computed from the context.
    started: bool,
}

impl TokenStream {
    pub(super) fn new(tokenizer: &Arc<Tokenizer>, prompt: &[u32]) -> Self {
        let window = prompt[prompt.len().saturating_sub(CONTEXT_IDS)..].to_vec();
        let tokenizer = Arc::clone(tokenizer);
        Self { tokenizer, context: window.len(), window, emitted: 0, started: false }
    }

    /// Takes the next id. Returns the text that it completes, if any.
    ///
    /// # Errors
    /// The tokenizer's decoder fails.
    pub fn push(&mut self, id: u32) -> Result<Option<String>, Diagnostics> {
        if !self.started {
            self.emitted = self.tokenizer.decode(&self.window)?.len();
            self.started = true;
        }
        self.window.push(id);
        let text = self.tokenizer.decode(&self.window)?;
        let complete = text.trim_end_matches(REPLACEMENT);
        // There is no new text, or the decoder changed a part of an incomplete character.
        let Some(new) = text.get(self.emitted..complete.len()).filter(|new| !new.is_empty()) else {
            return Ok(None);
        };
        let new = new.to_owned();
        self.emitted = complete.len();
        if complete.len() == text.len() {
            // All text is returned. The ids of this piece are enough context for the next piece.
            self.window.drain(..self.context);
            self.context = self.window.len();
            self.emitted = self.tokenizer.decode(&self.window)?.len();
        }
        Ok(Some(new))
    }

    /// Returns the rest of the text, with an incomplete character as U+FFFD.
    ///
    /// # Errors
    /// The tokenizer's decoder fails.
    pub fn finish(self) -> Result<Option<String>, Diagnostics> {
        if !self.started {
            return Ok(None);
        }
        let text = self.tokenizer.decode(&self.window)?;
        Ok(text.get(self.emitted..).filter(|rest| !rest.is_empty()).map(str::to_owned))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::super::Tokenizer;

    fn tokenizer() -> Arc<Tokenizer> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2");
        Arc::new(Tokenizer::open(&folder, 4096).unwrap())
    }

    /// Returns the pieces of a stream, including the piece of `finish`.
    fn pieces(tokenizer: &Arc<Tokenizer>, prompt: &[u32], ids: &[u32]) -> Vec<String> {
        let mut stream = tokenizer.stream(prompt);
        let mut pieces: Vec<String> = ids.iter().filter_map(|&id| stream.push(id).unwrap()).collect();
        pieces.extend(stream.finish().unwrap());
        pieces
    }

    #[test]
    fn a_character_of_several_ids_comes_out_whole() {
        let tokenizer = tokenizer();
        let text = "ein 中 und 🦀🦀 é";
        let ids = tokenizer.encode(text).unwrap();
        assert!(ids.len() > text.chars().count() / 2 + 5, "the characters are spread over ids");
        for start in 0..3 {
            let streamed = pieces(&tokenizer, &ids[..start], &ids[start..]);
            assert_eq!(tokenizer.decode(&ids[..start]).unwrap() + &streamed.concat(), text);
            assert!(streamed.iter().all(|piece| !piece.contains('\u{FFFD}')), "{streamed:?}");
        }
    }

    #[test]
    fn an_unfinished_character_comes_last() {
        let tokenizer = tokenizer();
        let ids = tokenizer.encode("a中").unwrap();
        let streamed = pieces(&tokenizer, &[], &ids[..ids.len() - 1]);
        assert_eq!(streamed, ["a", "\u{FFFD}"]);
        assert_eq!(pieces(&tokenizer, &ids, &[]), Vec::<String>::new());
    }

    #[test]
    fn bytes_that_never_become_a_character_do_not_stop_the_text() {
        let tokenizer = tokenizer();
        let half = tokenizer.encode("中").unwrap()[0];
        let mut ids = vec![half; 20];
        ids.extend(tokenizer.encode(" and the").unwrap());
        let streamed = pieces(&tokenizer, &[], &ids).concat();
        assert_eq!(streamed, tokenizer.decode(&ids).unwrap());
        assert!(streamed.ends_with(" and the"), "{streamed}");
    }

    #[test]
    fn a_real_replacement_character_is_text() {
        let tokenizer = tokenizer();
        let text = "a\u{FFFD}b\u{FFFD}";
        assert_eq!(pieces(&tokenizer, &[], &tokenizer.encode(text).unwrap()).concat(), text);
    }

    #[test]
    fn special_tokens_give_no_text() {
        let tokenizer = tokenizer();
        let [mut ids, rest] = ["In the", " beginning"].map(|text| tokenizer.encode(text).unwrap());
        ids.push(0);
        ids.extend(rest);
        assert_eq!(pieces(&tokenizer, &[], &ids).concat(), "In the beginning");
    }

    #[test]
    fn the_window_stays_short() {
        let tokenizer = tokenizer();
        let ids = tokenizer.encode("And the king said unto him. ").unwrap().repeat(50);
        let mut stream = tokenizer.stream(&ids);
        for &id in &ids {
            stream.push(id).unwrap();
            assert!(stream.window.len() <= 2 * super::CONTEXT_IDS);
        }
    }
}
