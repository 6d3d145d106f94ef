//! The visible text of a choice: the text of its tokens, the texts of special tokens that the
//! request shows, up to the first stop text.
//!
//! - Input: tokens with their texts from the engine, and the last text.
//! - Output: text that can no longer change, and the end by a stop text.
//! - Invariants: texts of special tokens are at the places of their tokens. A stop text may begin
//!   or end inside of one. All text that was held back follows at the end.
//! - Not here: stop texts of requests that show no special tokens. The engine finds them.

use ascend_tp::generate::tokenizer::Vocabulary;

/// Special tokens with texts that belong to an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShownTokens {
    All,
    /// Ids of special tokens.
    These(Vec<u32>),
}

impl ShownTokens {
    /// Returns whether an answer has no special token.
    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self, Self::These(ids) if ids.is_empty())
    }

    fn shows(&self, vocabulary: &Vocabulary, id: u32) -> bool {
        match self {
            Self::All => vocabulary.is_special(id),
            Self::These(ids) => ids.contains(&id),
        }
    }

    /// Returns a text of the engine. A shown token adds the text of the token.
    pub(crate) fn add(&self, vocabulary: &Vocabulary, id: u32, mut text: String) -> String {
        if self.shows(vocabulary, id) {
            text.push_str(&vocabulary.text(id));
        }
        text
    }
}

/// A stop text in the text of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundStop {
    pub(crate) stop: String,
    /// Number of tokens up to the one that completes the stop text.
    pub(crate) tokens: usize,
}

/// The text of a choice so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct VisibleText {
    stops: Vec<String>,
    /// Number of first tokens that ignore stop texts.
    min_tokens: usize,
    /// Number of tokens so far.
    tokens: usize,
    /// Text that may be the beginning of a stop text.
    held: String,
    found: Option<FoundStop>,
}

impl VisibleText {
    pub(crate) fn new(stops: &[String], min_tokens: usize) -> Self {
        Self { stops: stops.to_vec(), min_tokens, ..Self::default() }
    }

    /// Returns the stop text that ended the choice.
    pub(crate) const fn found(&self) -> Option<&FoundStop> {
        self.found.as_ref()
    }

    /// Takes the text of the next token. Returns the text that is certain.
    pub(crate) fn push(&mut self, text: &str) -> String {
        self.tokens += 1;
        if self.tokens <= self.min_tokens {
            return text.to_owned();
        }
        self.add(text)
    }

    /// Takes the last text of the choice. Returns all text that was held back.
    pub(crate) fn finish(&mut self, text: &str) -> String {
        let mut last = self.add(text);
        last.push_str(&std::mem::take(&mut self.held));
        last
    }

    fn add(&mut self, text: &str) -> String {
        if self.found.is_some() {
            return String::new();
        }
        self.held.push_str(text);
        let first = self.stops.iter().filter_map(|stop| Some((self.held.find(stop)?, stop))).min();
        if let Some((at, stop)) = first {
            self.found = Some(FoundStop { stop: stop.clone(), tokens: self.tokens });
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let may_begin = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        let certain = self.held.char_indices().map(|(at, _)| at).find(may_begin);
        let kept = self.held.split_off(certain.unwrap_or(self.held.len()));
        std::mem::replace(&mut self.held, kept)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ascend_tp::generate::Tokenizer;

    use super::*;

    fn through(stops: &[&str], pieces: &[&str]) -> (Vec<String>, Option<FoundStop>) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut text = VisibleText::new(&stops, 0);
        let mut found: Vec<String> = pieces.iter().map(|piece| text.push(piece)).collect();
        found.push(text.finish(""));
        (found, text.found().cloned())
    }

    fn stop(stop: &str, tokens: usize) -> Option<FoundStop> {
        Some(FoundStop { stop: stop.to_owned(), tokens })
    }

    #[test]
    fn a_special_token_follows_the_text_before_it() {
        // "ab" was held back when the special token came.
        let (found, end) = through(&["abX"], &["ab", "<|x|>", "c"]);
        assert_eq!((found.concat().as_str(), end), ("ab<|x|>c", None));
        assert_eq!(found[0], "");
    }

    #[test]
    fn a_stop_text_may_end_or_begin_inside_a_special_token() {
        let (found, end) = through(&["b<|e"], &["ab", "<|end|>", "c"]);
        assert_eq!((found.concat().as_str(), end), ("a", stop("b<|e", 2)));
        let (found, end) = through(&["|>c"], &["ab", "<|end|>", "cd", "e"]);
        assert_eq!((found.concat().as_str(), end), ("ab<|end", stop("|>c", 3)));
    }

    #[test]
    fn held_text_follows_at_the_end() {
        let (found, end) = through(&["|>X"], &["ab", "<|end|>"]);
        assert_eq!((found, end), (["ab", "<|end", "|>"].map(str::to_owned).to_vec(), None));
        let mut text = VisibleText::new(&["bc".to_owned()], 0);
        assert_eq!((text.push("ab").as_str(), text.finish("cd").as_str()), ("a", ""));
        assert_eq!(text.found().cloned(), stop("bc", 1));
    }

    #[test]
    fn no_stop_text_counts_in_the_first_tokens() {
        let mut text = VisibleText::new(&["a".to_owned()], 1);
        assert_eq!((text.push("a").as_str(), text.push("ba").as_str()), ("a", "b"));
        assert_eq!(text.found().cloned(), stop("a", 2));
    }

    #[test]
    fn only_shown_tokens_have_a_text() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/kjv-qwen2");
        let vocabulary = Tokenizer::open(&dir, 4096).unwrap().vocabulary();
        let special = vocabulary.text(0);
        assert!(vocabulary.is_special(0) && !vocabulary.is_special(300));
        for (shown, id, expected) in [
            (ShownTokens::All, 0, format!("a{special}")),
            (ShownTokens::All, 300, "a".to_owned()),
            (ShownTokens::These(vec![0]), 0, format!("a{special}")),
            (ShownTokens::These(vec![]), 0, "a".to_owned()),
        ] {
            assert_eq!(shown.add(&vocabulary, id, "a".to_owned()), expected);
        }
        assert!(ShownTokens::These(vec![]).is_empty() && !ShownTokens::All.is_empty());
    }
}
