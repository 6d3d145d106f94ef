//! The original Qwen's `qwen.tiktoken`.
//!
//! Input: lines with a base64 token and its rank. Output: the same tokenizer in the form of a
//! `tokenizer.json`. Invariants: the ids are the ranks, followed by the special tokens in the
//! publisher's order. Encoding gives the same ids as tiktoken: two tokens merge if their
//! concatenation is a token, and the merge of the lowest rank comes first.
//!
//! # Source
//! The tokenizer published with the Qwen checkpoints (`tokenization_qwen.py`) for the expression
//! that splits the text, the Unicode form and the special tokens.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::base::{Diagnostic, Diagnostics};

/// Expression that splits a text into words, numbers of one digit, punctuation and spaces. No merge
/// crosses a border.
pub(super) const SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const NAMED_SPECIAL_TOKENS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
const EXTRA_SPECIAL_TOKENS: usize = 205;

/// Returns the content of an equal `tokenizer.json`.
pub(super) fn to_tokenizer_json(file: &str, bytes: &[u8]) -> Result<Value, Diagnostics> {
    let tokens = parse(file, bytes)?;
    let alphabet = alphabet();
    let printed = |token: &[u8]| token.iter().map(|&byte| alphabet[usize::from(byte)]).collect::<String>();
    let vocabulary: serde_json::Map<String, Value> =
        tokens.iter().enumerate().map(|(rank, token)| (printed(token), rank.into())).collect();
    let merges: Vec<[String; 2]> =
        merges(&tokens).into_iter().map(|(left, right)| [printed(left), printed(right)]).collect();
    let special: Vec<Value> = special_tokens()
        .enumerate()
        .map(|(index, content)| {
            json!({"id": tokens.len() + index, "content": content, "special": true, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false})
        })
        .collect();
    Ok(json!({
        "version": "1.0",
        "added_tokens": special,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        ]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges, "ignore_merges": true},
    }))
}

/// Returns the special tokens in the order of their ids.
fn special_tokens() -> impl Iterator<Item = String> {
    let extras = (0..EXTRA_SPECIAL_TOKENS).map(|index| format!("<|extra_{index}|>"));
    NAMED_SPECIAL_TOKENS.into_iter().map(str::to_owned).chain(extras)
}

/// Returns the tokens in the order of their ranks.
fn parse(file: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Diagnostics> {
    let mut problems = Diagnostics::new();
    let mut ranked: Vec<(usize, Vec<u8>)> = Vec::new();
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let mut parts = line.split(u8::is_ascii_whitespace).filter(|part| !part.is_empty());
        let parsed = match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => continue,
            (Some(token), Some(rank), None) => STANDARD
                .decode(token)
                .ok()
                .zip(std::str::from_utf8(rank).ok().and_then(|rank| rank.parse().ok()))
                .map(|(token, rank)| (rank, token))
                .filter(|(_, token)| !token.is_empty()),
            _ => None,
        };
        match parsed {
            Some(entry) => ranked.push(entry),
            None => problems.push(
                Diagnostic::new(format!("{file}: line {}", index + 1), "not a token and its rank")
                    .expected("base64 of a token, a space, an integer")
                    .found(shortened(line)),
            ),
        }
    }
    if problems.is_empty() {
        ranked.sort_unstable();
        check(file, &ranked, &mut problems);
    }
    problems.into_result(ranked.into_iter().map(|(_, token)| token).collect())
}

/// Checks that ranks count from 0 without gaps, that no token is duplicated, and that every byte is
/// a token.
fn check(file: &str, ranked: &[(usize, Vec<u8>)], problems: &mut Diagnostics) {
    if let Some((index, (rank, _))) = ranked.iter().enumerate().find(|(index, (rank, _))| index != rank) {
        problems.push(
            Diagnostic::new(file, "the ranks do not count from 0 without gaps").expected(index).found(rank),
        );
    }
    let mut first: HashMap<&[u8], usize> = HashMap::with_capacity(ranked.len());
    for (rank, token) in ranked {
        if let Some(other) = first.insert(token, *rank) {
            problems.push(
                Diagnostic::new(file, "a token has two ranks")
                    .found(format!("{} at {other} and {rank}", shortened(token))),
            );
        }
    }
    let missing: Vec<u8> = (0..=u8::MAX).filter(|byte| !first.contains_key([*byte].as_slice())).collect();
    if let Some(byte) = missing.first() {
        problems.push(
            Diagnostic::new(file, "bytes without a token: not every text can be encoded")
                .expected("all 256 bytes")
                .found(format!("{} missing, the first {byte:#04x}", missing.len())),
        );
    }
}

/// Returns bytes as text for a message.
fn shortened(bytes: &[u8]) -> String {
    const LONGEST: usize = 40;
    format!("`{}`", bytes[..bytes.len().min(LONGEST)].escape_ascii())
}

/// Returns all pairs of tokens that form a token, sorted by rank.
fn merges(tokens: &[Vec<u8>]) -> Vec<(&[u8], &[u8])> {
    let ranks: HashMap<&[u8], usize> =
        tokens.iter().enumerate().map(|(rank, token)| (token.as_slice(), rank)).collect();
    let mut merges = Vec::with_capacity(2 * tokens.len());
    for token in tokens {
        let from = merges.len();
        let splits = (1..token.len()).map(|at| token.split_at(at));
        merges.extend(
            splits.filter_map(|(left, right)| Some(((left, right), (ranks.get(left)?, ranks.get(right)?)))),
        );
        // If several pairs form a token, the pair with the more frequent halves comes first.
        merges[from..].sort_unstable_by_key(|(_, ranks)| *ranks);
    }
    merges.into_iter().map(|(merge, _)| merge).collect()
}

/// Returns the character of byte-level tokenizers for each byte: the same character if it is
/// visible, else the next unused character from U+0100 on.
fn alphabet() -> [char; 256] {
    let mut free = '\u{100}'..;
    std::array::from_fn(|byte| {
        let byte = byte as u8;
        match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
            _ => free.next().unwrap_or(char::REPLACEMENT_CHARACTER),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::ProptestConfig;
    use proptest::{prop_assert_eq, proptest};
    use tempfile::TempDir;

    use super::super::Tokenizer;
    use super::{alphabet, to_tokenizer_json};

    const TEXT: &str = "In the beginning God created the heaven and the earth. And the earth was without form, \
        and void; \
        and darkness was upon the face of the deep. 起初　神创造天地。地是空虚混沌，渊面黑暗；神的灵运行在水面上。 \
        naïve café, naïve cafés: 123 4567 't was 'tis; they're we'll I'd\n\n  let x = vec![1, 2, 3];\n\tdone";

    /// Returns the 256 bytes, followed by tokens made by repeatedly merging the most frequent pair
    /// in the words of `TEXT`.
    fn trained(count: usize) -> Vec<Vec<u8>> {
        let mut tokens: Vec<Vec<u8>> = (0..=u8::MAX).rev().map(|byte| vec![byte]).collect();
        let mut words: Vec<Vec<Vec<u8>>> =
            TEXT.split_inclusive(' ').map(|word| word.bytes().map(|byte| vec![byte]).collect()).collect();
        while tokens.len() < 256 + count {
            let mut pairs: HashMap<Vec<u8>, usize> = HashMap::new();
            for pair in words.iter().flat_map(|word| word.windows(2)) {
                *pairs.entry(pair.concat()).or_default() += 1;
            }
            let known = |token: &Vec<u8>| tokens.contains(token);
            let best = pairs
                .into_iter()
                .filter(|(token, _)| !known(token))
                .max_by_key(|(token, n)| (*n, token.clone()));
            let Some((best, _)) = best else { break };
            for word in &mut words {
                let mut position = 0;
                while position + 1 < word.len() {
                    if [word[position].as_slice(), &word[position + 1]].concat() == best {
                        word.remove(position + 1);
                        word[position].clone_from(&best);
                    }
                    position += 1;
                }
            }
            tokens.push(best);
        }
        tokens
    }

    fn file(tokens: &[Vec<u8>]) -> String {
        tokens
            .iter()
            .enumerate()
            .map(|(rank, token)| format!("{} {rank}\n", STANDARD.encode(token)))
            .collect()
    }

    fn open(text: &str, vocab_size: usize) -> Result<Tokenizer, String> {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("qwen.tiktoken"), text).unwrap();
        Tokenizer::open(folder.path(), vocab_size).map_err(|problems| problems.to_string())
    }

    /// Encodes a piece like tiktoken: merges the adjacent pair of the lowest rank until no pair is
    /// a token.
    fn tiktoken(tokens: &[Vec<u8>], piece: &str) -> Vec<u32> {
        let rank = |token: &[u8]| tokens.iter().position(|known| known == token);
        let mut parts: Vec<Vec<u8>> = piece.bytes().map(|byte| vec![byte]).collect();
        loop {
            let ranks =
                parts.windows(2).enumerate().filter_map(|(at, pair)| Some((rank(&pair.concat())?, at)));
            let Some((_, at)) = ranks.min() else { break };
            let right = parts.remove(at + 1);
            parts[at].extend(right);
        }
        parts.iter().map(|part| rank(part).unwrap() as u32).collect()
    }

    #[test]
    fn texts_come_back_and_special_tokens_follow_the_ranks() {
        let tokens = trained(120);
        let tokenizer = open(&file(&tokens), 1000).unwrap();
        let ids = tokenizer.encode(TEXT).unwrap();
        assert!(ids.len() + 50 < TEXT.len(), "merges are used");
        assert_eq!(tokenizer.decode(&ids).unwrap(), TEXT);
        let first = tokens.len() as u32;
        for (index, name) in
            ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|extra_0|>"].into_iter().enumerate()
        {
            assert_eq!(tokenizer.id_of(name), Some(first + index as u32));
            assert_eq!(tokenizer.encode(name).unwrap(), [first + index as u32]);
        }
        assert_eq!(tokenizer.id_of("<|extra_204|>"), Some(first + 207));
        assert_eq!(tokenizer.size(), tokens.len() + 208);
        assert_eq!(tokenizer.decode(&[first, first + 2]).unwrap(), "");
    }

    #[test]
    fn the_split_keeps_digits_apart_and_words_with_their_space() {
        let mut tokens = trained(0);
        for token in [" a", "12", "ab", "'s", "\n\n"] {
            tokens.push(token.as_bytes().to_vec());
        }
        let tokenizer = open(&file(&tokens), 1000).unwrap();
        let id = |token: &str| tokens.iter().position(|known| known == token.as_bytes()).unwrap() as u32;
        let ids = |parts: &[&str]| parts.iter().map(|part| id(part)).collect::<Vec<_>>();
        assert_eq!(tokenizer.encode("12 ab's").unwrap(), ids(&["1", "2", " a", "b", "'s"]));
        assert_eq!(tokenizer.encode("\n\nab").unwrap(), ids(&["\n\n", "ab"]));
    }

    #[test]
    fn text_is_brought_to_the_composed_form() {
        let tokenizer = open(&file(&trained(50)), 1000).unwrap();
        assert_eq!(tokenizer.encode("cafe\u{301}").unwrap(), tokenizer.encode("caf\u{e9}").unwrap());
    }

    #[test]
    fn the_vocabulary_has_the_bytes_of_the_file() {
        let tokens = trained(50);
        let vocabulary = open(&file(&tokens), 1000).unwrap().vocabulary();
        for (id, token) in (0..).zip(&tokens) {
            assert_eq!(vocabulary.bytes(id), token);
        }
        let end = tokens.len() as u32;
        assert_eq!((vocabulary.text(end).as_str(), vocabulary.is_special(end)), ("<|endoftext|>", true));
    }

    proptest! {
        // Each case trains a vocabulary and opens a tokenizer.
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn words_are_merged_as_tiktoken_does(word in "[a-eghinorst]{1,12}", count in 0..200usize) {
            let tokens = trained(count);
            let tokenizer = open(&file(&tokens), 1000).unwrap();
            prop_assert_eq!(tokenizer.encode(&word).unwrap(), tiktoken(&tokens, &word));
        }
    }

    #[test]
    fn bad_lines_are_named() {
        let message =
            to_tokenizer_json("q", b"IQ== 0\nIg==\n!!!! 1\n\nIw== x\nJA== 1 2\n").unwrap_err().to_string();
        let expected = "not a token and its rank: expected base64 of a token, a space, an integer, found";
        let lines: Vec<String> = [(2, "Ig=="), (3, "!!!! 1"), (5, "Iw== x"), (6, "JA== 1 2")]
            .map(|(n, l)| format!("q: line {n}: {expected} `{l}`"))
            .into();
        assert_eq!(message.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_file_that_is_something_else_is_not_told_line_by_line() {
        let problems = to_tokenizer_json("q", "<html>\n".repeat(500).as_bytes()).unwrap_err();
        assert_eq!(problems.items().len(), 500);
        assert!(
            problems
                .to_string()
                .ends_with("not a token and its rank: 490 more of these, the last at q: line 500")
        );
    }

    #[test]
    fn ranks_and_tokens_are_complete_and_unique() {
        let refused = |text: &str| to_tokenizer_json("q", text.as_bytes()).unwrap_err().to_string();
        let good = file(&trained(0));
        let message = refused(&format!("{good}YWI= 300\n"));
        assert_eq!(message, "q: the ranks do not count from 0 without gaps: expected 256, found 300");
        let message = refused(&format!("{good}YQ== 256\n"));
        assert_eq!(message, "q: a token has two ranks: found `a` at 158 and 256");
        let message = refused("YQ== 0\n");
        let missing = "expected all 256 bytes, found 255 missing, the first 0x00";
        assert_eq!(message, format!("q: bytes without a token: not every text can be encoded: {missing}"));
    }

    #[test]
    fn a_token_beyond_the_vocabulary_is_refused_where_a_text_has_it() {
        let tokenizer = open(&file(&trained(0)), 300).unwrap();
        assert_eq!(tokenizer.encode("a").unwrap().len(), 1);
        let message = tokenizer.encode("a<|extra_204|>").unwrap_err().to_string();
        assert!(
            message.contains("vocab_size = 300 of config.json, found `<|extra_204|>`, which has id 463"),
            "{message}"
        );
    }

    #[test]
    fn every_byte_has_its_own_character() {
        let mut characters = alphabet().to_vec();
        assert_eq!((characters[0], characters[usize::from(b' ')], characters[0xAD]), ('Ā', 'Ġ', 'Ń'));
        characters.sort_unstable();
        characters.dedup();
        assert_eq!(characters.len(), 256);
    }
}
