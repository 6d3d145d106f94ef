//! Location of a file, and the modules its paths name.

use crate::project::source::{Source, is_word, words};

impl Source {
    /// Returns whether the file is one of `places` or below one.
    pub(crate) fn is_below(&self, places: &[&str]) -> bool {
        places.iter().any(|place| {
            if place.ends_with('/') { self.path.starts_with(place) } else { self.path == *place }
        })
    }

    /// Returns the module path: `["exec", "trace"]` for `src/exec/trace.rs`, `["exec"]` for
    /// `src/exec/mod.rs`. Empty for root files and files outside the library.
    pub(crate) fn module(&self) -> Vec<&str> {
        let Some(path) = self.path.strip_prefix("src/").and_then(|path| path.strip_suffix(".rs")) else {
            return vec![];
        };
        let mut module: Vec<&str> = path.split('/').collect();
        if module == ["lib"] || module == ["main"] || module.last() == Some(&"mod") {
            module.pop();
        }
        module
    }
}

/// Returns the names after `root::` with their positions: `a` in `root::a::b`, `a` and `c` in
/// `root::{a::b, c}`, `*` for a glob.
pub(crate) fn children<'a>(code: &'a str, root: &'a str) -> Vec<(usize, &'a str)> {
    let mut names = Vec::new();
    for at in words(code, root) {
        let Some(rest) = code[at + root.len()..].trim_start().strip_prefix("::") else { continue };
        names_of_path(code, code.len() - rest.len(), &mut names);
    }
    names
}

/// Returns the names in the crate root that `super::super::…` reaches from a module of this depth.
/// In an inline module they may be names of the file itself.
pub(crate) fn root_names_by_super(code: &str, depth: usize) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    for at in words(code, "super") {
        let (mut rest, mut supers) = (&code[at..], 0);
        while let Some(after) =
            rest.strip_prefix("super").and_then(|rest| rest.trim_start().strip_prefix("::"))
        {
            (rest, supers) = (after.trim_start(), supers + 1);
        }
        let is_inside_chain = code[..at].ends_with("super::");
        if supers >= depth && depth > 0 && !is_inside_chain {
            names_of_path(code, code.len() - rest.len(), &mut names);
        }
    }
    names
}

/// Adds the next name of a path, or all names of a group in braces.
fn names_of_path<'a>(code: &'a str, at: usize, names: &mut Vec<(usize, &'a str)>) {
    let rest = code[at..].trim_start();
    let start = code.len() - rest.len();
    if !rest.starts_with('{') {
        names.push((start, name(rest)));
        return;
    }
    let mut depth = 0;
    for (offset, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return;
        }
        if depth == 1 && matches!(c, '{' | ',') {
            let item = rest[offset + 1..].trim_start();
            // A trailing comma has no name after it.
            if !item.starts_with('}') {
                names.push((code.len() - item.len(), name(item)));
            }
        }
    }
}

/// Returns the identifier or star at the start of a text.
fn name(text: &str) -> &str {
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    if end == 0 && text.starts_with('*') { "*" } else { &text[..end] }
}
