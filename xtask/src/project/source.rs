//! A text file with its code and doc comments.

use std::collections::BTreeSet;
use std::ops::Range;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    /// Text of equal length without comments and literals; empty if not Rust.
    pub(crate) code: String,
    line_starts: Vec<usize>,
    test_code: Vec<Range<usize>>,
}

impl Source {
    /// Parses a file.
    ///
    /// # Panics
    /// If a Rust file is not well-formed.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let tokens: TokenStream = if path.ends_with(".rs") {
            text.parse().unwrap_or_else(|error| panic!("{path}: {error}"))
        } else {
            TokenStream::new()
        };
        let mut code: Vec<u8> = text.bytes().map(|byte| if byte == b'\n' { byte } else { b' ' }).collect();
        copy_code(&tokens, text, &mut code);
        let code = if path.ends_with(".rs") { code } else { Vec::new() };
        let mut test_code = Vec::new();
        if is_test_file(path) {
            test_code.push(Range { start: 0, end: text.len() });
        }
        without_tests(tokens, &mut test_code);
        let line_starts = std::iter::once(0)
            .chain(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(i, _)| i + 1));
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code: String::from_utf8(code).expect("whole characters are copied"),
            line_starts: line_starts.collect(),
            test_code,
        }
    }

    pub(crate) fn line(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at)
    }

    /// Returns true if the byte is in test-only code.
    pub(crate) fn is_test(&self, at: usize) -> bool {
        self.test_code.iter().any(|range| range.contains(&at))
    }
}

pub(crate) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = text[..*at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_test_file(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Skips doc comments, because their tokens differ from the text.
fn copy_code(tokens: &TokenStream, text: &str, code: &mut [u8]) {
    let copy = |code: &mut [u8], place: Range<usize>, token: &str| {
        if text.get(place.clone()) == Some(token) {
            code[place].copy_from_slice(token.as_bytes());
        }
    };
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(name) => copy(code, name.span().byte_range(), &name.to_string()),
            TokenTree::Punct(sign) => {
                copy(code, sign.span().byte_range(), sign.as_char().encode_utf8(&mut [0; 4]));
            }
            TokenTree::Literal(literal) if !text[literal.span().byte_range()].contains(['"', '\'']) => {
                copy(code, literal.span().byte_range(), &literal.to_string());
            }
            TokenTree::Literal(_) => {}
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                if text.get(group.span_open().byte_range()) == Some(open) {
                    copy(code, group.span_open().byte_range(), open);
                    copy(code, group.span_close().byte_range(), close);
                    copy_code(&group.stream(), text, code);
                }
            }
        }
    }
}

/// Returns the number of tokens, two or three, of a `#[doc = "…"]` or `#![doc = "…"]` at the start
/// of `tokens`.
///
/// The parser turns each line of a doc comment into such an attribute.
pub(crate) fn doc_tokens(tokens: &[TokenTree]) -> Option<usize> {
    let (hash, attribute, count) = match tokens {
        [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] => (hash, attribute, 2),
        [TokenTree::Punct(hash), TokenTree::Punct(_), TokenTree::Group(attribute), ..] => {
            (hash, attribute, 3)
        }
        _ => return None,
    };
    let text = attribute.stream().to_string();
    let is_doc = text.strip_prefix("doc").is_some_and(|rest| rest.trim_start().starts_with('='));
    (hash.as_char() == '#' && is_doc).then_some(count)
}

/// Adds the byte ranges of removed items to `tests`.
pub(crate) fn without_tests(tokens: TokenStream, tests: &mut Vec<Range<usize>>) -> TokenStream {
    let mut kept: Vec<TokenTree> = Vec::new();
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        match (&token, rest.peek()) {
            (TokenTree::Punct(hash), Some(TokenTree::Group(attribute)))
                if hash.as_char() == '#' && is_of_tests(attribute) =>
            {
                let Range { start, mut end } = hash.span().byte_range();
                // The item's docs and attributes before this one would be left without an item.
                while let [.., TokenTree::Punct(sign), TokenTree::Group(other)] = kept.as_slice()
                    && sign.as_char() == '#'
                    && other.delimiter() == Delimiter::Bracket
                {
                    kept.truncate(kept.len() - 2);
                }
                // An item with braces in its value ends at `;`.
                let mut ends_with_block = true;
                for token in rest.by_ref() {
                    end = token.span().byte_range().end;
                    match token {
                        TokenTree::Ident(word)
                            if ["use", "const", "static", "type"].iter().any(|item| word == item) =>
                        {
                            ends_with_block = false;
                        }
                        TokenTree::Ident(word) if word == "fn" => ends_with_block = true,
                        TokenTree::Group(group)
                            if group.delimiter() == Delimiter::Brace && ends_with_block =>
                        {
                            break;
                        }
                        TokenTree::Punct(sign) if sign.as_char() == ';' => break,
                        _ => {}
                    }
                }
                tests.push(start..end);
            }
            (TokenTree::Group(group), _) => {
                let mut inner = Group::new(group.delimiter(), without_tests(group.stream(), tests));
                inner.set_span(group.span());
                kept.push(TokenTree::Group(inner));
            }
            _ => kept.push(token),
        }
    }
    kept.into_iter().collect()
}

fn is_of_tests(attribute: &Group) -> bool {
    let text = attribute.stream().to_string();
    let words: BTreeSet<&str> = text.split(|c: char| !is_word(c)).collect();
    text.starts_with("cfg")
        && !text.starts_with("cfg_attr")
        && words.contains("test")
        && !words.contains("not")
}
