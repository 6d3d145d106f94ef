//! A text file of the project as the rules see it: its lines, its code without comments and literals, its test code.

use std::ops::Range;

/// One text file.
pub(crate) struct Source {
    /// Path from the root of the project, with `/`.
    pub(crate) path: String,
    /// The file as it is.
    pub(crate) text: String,
    /// The text of the same length with comments, strings and characters blanked; empty if this is not Rust.
    pub(crate) code: String,
    line_starts: Vec<usize>,
    test_code: Vec<Range<usize>>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { blank_comments_and_literals(text) } else { String::new() };
        let line_starts =
            std::iter::once(0).chain(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(i, _)| i + 1));
        let test_code = if is_test_file(path) { std::iter::once(0..text.len()).collect() } else { test_items(&code) };
        Self { path: path.to_owned(), text: text.to_owned(), line_starts: line_starts.collect(), test_code, code }
    }

    /// Line of a byte, from 1.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at)
    }

    /// Whether the byte belongs to code that only tests compile.
    pub(crate) fn is_test(&self, at: usize) -> bool {
        self.test_code.iter().any(|range| range.contains(&at))
    }
}

/// Where `word` stands in `text` as a whole word.
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

/// The items marked `#[cfg(test)]`, from the attribute to the closing brace or semicolon.
fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut items = Vec::new();
    let attribute = "#[cfg(test)]";
    for (start, _) in code.match_indices(attribute) {
        let mut depth = 0;
        let mut end = code.len();
        for (at, byte) in code.bytes().enumerate().skip(start + attribute.len()) {
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth -= 1,
                _ => {}
            }
            if depth == 0 && matches!(byte, b'}' | b';') {
                end = at + 1;
                break;
            }
        }
        items.push(start..end);
    }
    items
}

/// The text with the bytes of comments, strings and characters replaced by spaces, line ends kept.
fn blank_comments_and_literals(text: &str) -> String {
    let mut code = text.to_owned().into_bytes();
    let mut at = 0;
    while at < text.len() {
        let length = literal_length(text, at);
        if length == 0 {
            at += 1;
            continue;
        }
        for byte in &mut code[at..at + length] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += length;
    }
    String::from_utf8(code).expect("whole characters are blanked")
}

/// Bytes of the comment, string or character that starts at `at`; 0 if none does.
fn literal_length(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let until = |from: usize, end: &str| {
        text.get(from..).and_then(|rest| rest.find(end)).map_or(text.len() - at, |found| from + found + end.len() - at)
    };
    match bytes[at] {
        b'/' if bytes[at..].starts_with(b"//") => text[at..].find('\n').unwrap_or(text.len() - at),
        b'/' if bytes[at..].starts_with(b"/*") => block_comment_length(&bytes[at..]),
        b'"' => string_length(&bytes[at..]),
        b'r' if at == 0 || !is_word(char::from(bytes[at - 1])) || is_literal_prefix(bytes, at - 1) => {
            let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
            let open = at + 1 + hashes;
            if bytes.get(open) == Some(&b'"') { until(open + 1, &format!("\"{}", "#".repeat(hashes))) } else { 0 }
        }
        // An escape always is a character; otherwise the quote must close right behind, else it opens a lifetime.
        b'\'' if bytes.get(at + 1) == Some(&b'\\') => until(at + 3, "'"),
        b'\'' => {
            let character = text[at + 1..].chars().next().map_or(0, char::len_utf8);
            if bytes.get(at + 1 + character) == Some(&b'\'') { character + 2 } else { 0 }
        }
        _ => 0,
    }
}

/// Whether the byte is the `b` or `c` of `br"…"` or `cr"…"`.
fn is_literal_prefix(bytes: &[u8], at: usize) -> bool {
    matches!(bytes[at], b'b' | b'c') && (at == 0 || !is_word(char::from(bytes[at - 1])))
}

fn block_comment_length(bytes: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (at, depth) = (at + 2, depth + 1);
        } else if bytes[at..].starts_with(b"*/") {
            (at, depth) = (at + 2, depth - 1);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}
