//! Tokens of hand-written Rust files. Macros are not expanded.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::project;
use crate::project::source::{doc_tokens, without_tests};

pub(crate) struct RustFile {
    pub(crate) path: String,
    /// Package folder; empty for the root.
    pub(crate) package: String,
    pub(crate) shipped: TokenStream,
    pub(crate) whole: TokenStream,
    pub(crate) lines: usize,
}

pub(crate) fn read(root: &Path) -> Result<Vec<RustFile>> {
    let files = project::files(root)?;
    let packages: Vec<&str> = files
        .iter()
        .filter_map(|file| file.strip_suffix("Cargo.toml"))
        .map(|folder| folder.trim_end_matches('/'))
        .collect();
    let mut sources = Vec::new();
    // Compile-fail cases are not valid Rust.
    let rust = files.iter().filter(|file| file.ends_with(".rs") && !file.contains("/compile_fail/"));
    for path in rust {
        let text = fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        if text.starts_with("// Made by") {
            continue;
        }
        let whole: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("{path}: {error}"))?;
        let owner =
            packages.iter().filter(|folder| folder.is_empty() || path.starts_with(&format!("{folder}/")));
        let package =
            (*owner.max_by_key(|folder| folder.len()).context("the root folder has no Cargo.toml")?)
                .to_owned();
        let in_package = path[package.len()..].trim_start_matches('/');
        let is_shipped = in_package.starts_with("src/") || in_package == "build.rs";
        let is_shipped = is_shipped && !in_package.contains("/tests/") && !in_package.ends_with("/tests.rs");
        let shipped =
            if is_shipped { without_tests(whole.clone(), &mut Vec::new()) } else { TokenStream::new() };
        sources.push(RustFile { path: path.clone(), package, shipped, whole, lines: text.lines().count() });
    }
    Ok(sources)
}

/// Returns the lines with tokens other than doc comments.
pub(crate) fn code_lines(tokens: &TokenStream) -> BTreeSet<usize> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut lines = BTreeSet::new();
    let mut position = 0;
    while position < tokens.len() {
        if let Some(count) = doc_tokens(&tokens[position..]) {
            position += count;
            continue;
        }
        match &tokens[position] {
            TokenTree::Group(group) => {
                lines.extend([group.span_open().start().line, group.span_close().end().line]);
                lines.extend(code_lines(&group.stream()));
            }
            // A string may span lines.
            other => lines.extend(other.span().start().line..=other.span().end().line),
        }
        position += 1;
    }
    lines
}

pub(crate) fn unsafe_blocks(tokens: &TokenStream) -> usize {
    let (mut count, mut opens) = (0, false);
    for token in tokens.clone() {
        if let TokenTree::Group(group) = &token {
            count +=
                usize::from(opens && group.delimiter() == Delimiter::Brace) + unsafe_blocks(&group.stream());
        }
        opens = matches!(&token, TokenTree::Ident(word) if word == "unsafe");
    }
    count
}

pub(crate) fn words(tokens: &TokenStream) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let (mut is_pub, mut is_export) = (false, false);
    for token in tokens.clone() {
        match &token {
            TokenTree::Ident(word) if word == "pub" => is_pub = true,
            TokenTree::Ident(word) if word == "use" && is_pub => is_export = true,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis && is_pub => {}
            TokenTree::Punct(end) if end.as_char() == ';' => (is_pub, is_export) = (false, false),
            _ if is_export => {}
            TokenTree::Ident(word) => {
                is_pub = false;
                words.insert(word.to_string());
            }
            TokenTree::Group(group) => {
                is_pub = false;
                words.extend(self::words(&group.stream()));
            }
            _ => is_pub = false,
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
//! A header
//! of two lines.
/// One word.
pub fn shipped() {
    // said to nobody
    call(
        1,
    );
}
#[cfg(test)]
use std::{fs, io};
#[cfg(not(test))]
const KEPT: u8 = 0;
#[cfg(all(test, unix))]
mod tests {
    #[doc = \"x\"]
    fn test() {}
}
pub(crate) use inner::Name;
";

    #[test]
    fn what_is_for_tests_is_not_shipped() {
        let whole: TokenStream = FILE.parse().unwrap();
        let shipped = without_tests(whole, &mut Vec::new());
        let words = words(&shipped);
        assert!(words.contains("shipped") && words.contains("KEPT"), "{words:?}");
        assert!(["io", "tests", "inner", "Name"].iter().all(|gone| !words.contains(*gone)), "{words:?}");
        assert_eq!(code_lines(&shipped).into_iter().collect::<Vec<_>>(), [4, 6, 7, 8, 9, 12, 13, 19]);
        let documented = "fn kept() {} /// Gone.\n#[must_use] #[cfg(test)] fn gone() {}".parse().unwrap();
        assert_eq!(without_tests(documented, &mut Vec::new()).to_string(), "fn kept () { }");
        let blocks = "unsafe fn f() { unsafe { g() } m! { unsafe { h() } } }".parse().unwrap();
        assert_eq!(unsafe_blocks(&blocks), 2);
    }
}
