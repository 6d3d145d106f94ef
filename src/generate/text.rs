//! The text of a growing sequence, up to the first stop text.
//!
//! - Input: ids, one at a time.
//! - Output: text that can no longer change, and the stop text that ends the sequence.
//! - Invariants: the pieces add up to the text before the first stop text.

use std::sync::Arc;

use crate::base::Diagnostics;

use super::tokenizer::{TokenStream, Tokenizer};

#[derive(Clone, Debug)]
pub(super) struct Text {
    stream: TokenStream,
    stops: Vec<String>,
    /// Text that may be the beginning of a stop text.
    held: String,
}

impl Text {
    pub(super) fn new(tokenizer: &Arc<Tokenizer>, prompt: &[u32], stops: &[String]) -> Self {
        Self { stream: tokenizer.stream(prompt), stops: stops.to_vec(), held: String::new() }
    }

    /// Returns the text that is certain after the next id, and the stop text found.
    pub(super) fn push(&mut self, id: u32) -> Result<(String, Option<String>), Diagnostics> {
        let new = self.stream.push(id)?.unwrap_or_default();
        Ok(self.add(&new))
    }

    /// Returns the text after the next id, where no stop text counts.
    pub(super) fn push_without_stop(&mut self, id: u32) -> Result<String, Diagnostics> {
        let mut text = std::mem::take(&mut self.held);
        text.push_str(&self.stream.push(id)?.unwrap_or_default());
        Ok(text)
    }

    pub(super) fn finish(mut self) -> Result<(String, Option<String>), Diagnostics> {
        let rest = self.stream.clone().finish()?.unwrap_or_default();
        let (mut text, stop) = self.add(&rest);
        if stop.is_none() {
            text.push_str(&self.held);
        }
        Ok((text, stop))
    }

    fn add(&mut self, new: &str) -> (String, Option<String>) {
        self.held.push_str(new);
        let first = self.stops.iter().filter_map(|stop| Some((self.held.find(stop)?, stop))).min();
        if let Some((at, stop)) = first {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), Some(stop.clone()));
        }
        // Holds back the longest suffix that some stop text begins with.
        let begins = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        let certain = self.held.char_indices().map(|(at, _)| at).find(begins).unwrap_or(self.held.len());
        let kept = self.held.split_off(certain);
        (std::mem::replace(&mut self.held, kept), None)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn through(stops: &[&str], pieces: &[&str]) -> (Vec<String>, Option<String>) {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2");
        let tokenizer = Arc::new(Tokenizer::open(&model, 4096).unwrap());
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut text = Text::new(&tokenizer, &[], &stops);
        let mut found = Vec::new();
        for piece in pieces {
            let (certain, stop) = text.add(piece);
            found.push(certain);
            if stop.is_some() {
                return (found, stop);
            }
        }
        found.push(text.finish().unwrap().0);
        (found, None)
    }

    #[test]
    fn a_text_ends_before_the_first_stop_text() {
        let (found, stop) = through(&["\n\n", "END"], &["a\n", "b\n", "\nc"]);
        assert_eq!((found.concat().as_str(), stop.as_deref()), ("a\nb", Some("\n\n")));
        let (found, stop) = through(&["XY", "X"], &["aXY"]);
        assert_eq!((found.concat().as_str(), stop.as_deref()), ("a", Some("X")));
        // Bytes of one character are never separated.
        let (found, stop) = through(&["é!"], &["né", "é", "!"]);
        assert_eq!(
            (found, stop.as_deref()),
            (vec!["n".to_owned(), "é".to_owned(), String::new()], Some("é!"))
        );
    }

    #[test]
    fn a_stop_text_has_no_effect_before_it_may_end_the_text() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2");
        let tokenizer = Arc::new(Tokenizer::open(&model, 4096).unwrap());
        let stops = ["the".to_owned()];
        let mut text = Text::new(&tokenizer, &[], &stops);
        let ids = tokenizer.encode("In the beginning").unwrap();
        let first: String = ids.iter().map(|id| text.push_without_stop(*id).unwrap()).collect();
        assert!("In the beginning".starts_with(&first) && first.contains("the"), "{first}");
        let stop = ids.iter().find_map(|id| text.push(*id).unwrap().1);
        assert_eq!(stop.as_deref(), Some("the"));
    }

    #[test]
    fn only_what_may_become_a_stop_text_is_held_back() {
        let (found, stop) = through(&["abc"], &["xa", "b", "d", "ab"]);
        assert_eq!((found, stop), (["x", "", "abd", "", "ab"].map(str::to_owned).to_vec(), None));
        assert_eq!(through(&[], &["a", "b"]).0, ["a", "b", ""]);
    }
}
