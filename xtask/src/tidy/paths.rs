//! What the rules ask of a file: where it is, and which modules its paths name.

use crate::project::source::{Source, is_word, words};

impl Source {
    /// Whether the file lies below one of these folders, or is one of these files.
    pub(crate) fn is_below(&self, places: &[&str]) -> bool {
        places.iter().any(|place| {
            if place.ends_with('/') { self.path.starts_with(place) } else { self.path == *place }
        })
    }

    /// Module path of a file of the library: `src/exec/trace.rs` is `["exec", "trace"]`,
    /// `src/exec/mod.rs` is `["exec"]`. Empty for the roots and for files elsewhere.
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

/// The names that follow `root::`, each with its position: `root::a::b` has `a`, `root::{a::b, c}`
/// has `a` and `c`, and a glob has `*`.
pub(crate) fn children<'a>(code: &'a str, root: &'a str) -> Vec<(usize, &'a str)> {
    let mut names = Vec::new();
    for at in words(code, root) {
        let Some(rest) = code[at + root.len()..].trim_start().strip_prefix("::") else { continue };
        names_of_path(code, code.len() - rest.len(), &mut names);
    }
    names
}

/// The names of the crate's root that `super::super::…` reaches from a module of this depth. In a
/// module inside the file one step more is needed, so there the names may be the file's own.
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

/// The names a path goes on with at `at`: one, or those of a group in braces.
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
            // After a trailing comma there is no name.
            if !item.starts_with('}') {
                names.push((code.len() - item.len(), name(item)));
            }
        }
    }
}

/// The identifier, or the star, that a text begins with.
fn name(text: &str) -> &str {
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    if end == 0 && text.starts_with('*') { "*" } else { &text[..end] }
}
