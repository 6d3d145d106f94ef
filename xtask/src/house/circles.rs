//! Which files of a crate import each other in circles.
//!
//! Input: the files of one folder. Output: the sets of files of which each leads to each other by imports, largest first.
//! A path leads to the file of the longest module it names: `crate::a::b::C` to `a/b.rs`. Does not: follow what a module
//! exports again, or count `mod a;` as an import.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::source::RustFile;

/// The circles among the files below `folder`, which ends in `/src/` or is `src/`.
pub(crate) fn circles<'a>(sources: &'a [RustFile], folder: &str) -> Vec<Vec<&'a str>> {
    let files: Vec<(&str, &RustFile)> =
        sources.iter().filter_map(|source| Some((source.path.strip_prefix(folder)?, source))).collect();
    let modules: BTreeMap<Vec<String>, usize> =
        files.iter().enumerate().map(|(index, (path, _))| (module_of(path), index)).collect();
    let edges: Vec<BTreeSet<usize>> = files
        .iter()
        .map(|(path, source)| {
            let mut paths = Paths { modules: &modules, here: module_of(path), found: BTreeSet::new() };
            paths.walk(&source.shipped, &[]);
            paths.found
        })
        .collect();
    let reached: Vec<BTreeSet<usize>> = (0..edges.len()).map(|from| reachable(&edges, from)).collect();
    let mut circles: Vec<Vec<&str>> = Vec::new();
    for from in 0..edges.len() {
        let circle: Vec<usize> = reached[from].iter().copied().filter(|to| reached[*to].contains(&from)).collect();
        // Each circle is met once a file; it counts where its first file is met.
        if circle.len() > 1 && circle[0] == from {
            circles.push(circle.into_iter().map(|index| files[index].0).collect());
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// `a/b.rs` and `a/b/mod.rs` are `[a, b]`, `lib.rs` is the root.
fn module_of(path: &str) -> Vec<String> {
    let mut names: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|name| ["lib", "main", "mod"].contains(&name.as_str())) {
        names.pop();
    }
    names
}

fn reachable(edges: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<usize> = edges[from].iter().copied().collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(&edges[next]);
        }
    }
    reached
}

/// Finds the paths of one file.
struct Paths<'a> {
    modules: &'a BTreeMap<Vec<String>, usize>,
    here: Vec<String>,
    found: BTreeSet<usize>,
}

impl Paths<'_> {
    /// Follows every path among tokens in the module `inner` of the file.
    fn walk(&mut self, tokens: &TokenStream, inner: &[String]) {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at..] {
                [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Group(block), ..]
                    if word == "mod" && block.delimiter() == Delimiter::Brace =>
                {
                    self.walk(&block.stream(), &[inner, &[name.to_string()]].concat());
                    at += 3;
                }
                [TokenTree::Ident(first), rest @ ..] if starts_path(rest) => {
                    let mut base = self.here.clone();
                    base.extend_from_slice(inner);
                    match first.to_string().as_str() {
                        "crate" => base.clear(),
                        "self" => {}
                        "super" => drop(base.pop()),
                        child => base.push(child.to_owned()),
                    }
                    // A path that starts with a name is one of this crate if the name is a module within this one.
                    let is_own = ["crate", "self", "super"].iter().any(|root| first == root);
                    at += 1;
                    if is_own || self.modules.contains_key(&base) {
                        at += self.follow(base, &tokens[at..], inner);
                    } else {
                        at += 3;
                    }
                }
                [TokenTree::Group(group), ..] => {
                    self.walk(&group.stream(), inner);
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    /// Follows a path from `base` over `::name` and `::{…}`; gives the number of tokens it has.
    fn follow(&mut self, mut base: Vec<String>, tokens: &[TokenTree], inner: &[String]) -> usize {
        let mut at = 0;
        while starts_path(&tokens[at..]) {
            match tokens.get(at + 2) {
                Some(TokenTree::Ident(name)) if name == "super" => drop(base.pop()),
                Some(TokenTree::Ident(name)) => base.push(name.to_string()),
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    self.follow_group(&base, &group.stream(), inner);
                    return at + 3;
                }
                _ => break,
            }
            at += 3;
        }
        self.reach(&base);
        at
    }

    /// Follows each path of `{a, b::c}` from `base`.
    fn follow_group(&mut self, base: &[String], group: &TokenStream, inner: &[String]) {
        let tokens: Vec<TokenTree> = group.clone().into_iter().collect();
        for item in tokens.split(|token| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ',')) {
            let mut path = base.to_vec();
            if let Some(TokenTree::Ident(name)) = item.first() {
                if name != "self" {
                    path.push(name.to_string());
                }
                self.follow(path, &item[1..], inner);
            }
        }
    }

    /// Notes the file of the longest module that `path` begins with.
    fn reach(&mut self, path: &[String]) {
        let own = self.modules.get(&self.here);
        let reached = (0..=path.len()).rev().find_map(|length| self.modules.get(&path[..length]));
        self.found.extend(reached.filter(|index| Some(*index) != own));
    }
}

/// Whether tokens begin with `::`.
fn starts_path(tokens: &[TokenTree]) -> bool {
    let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(colon) if colon.as_char() == ':');
    matches!(tokens, [first, second, _, ..] if is_colon(first) && is_colon(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> RustFile {
        let shipped: TokenStream = text.parse().unwrap();
        RustFile { path: path.to_owned(), package: String::new(), whole: shipped.clone(), shipped, lines: 0 }
    }

    #[test]
    fn files_that_lead_to_each_other_are_a_circle() {
        let sources = [
            source("src/lib.rs", "mod a; mod b; mod c; pub use a::A;"),
            source("src/a/mod.rs", "use crate::{b::B, c};"),
            source("src/b.rs", "fn f() { super::a::inner::g(); mod deep { use super::super::c::C; } }"),
            source("src/a/inner.rs", "use super::A; use std::fmt;"),
            source("src/c.rs", "use other::a::A; fn f(a: A) -> other::crate_name::B {}"),
        ];
        assert_eq!(circles(&sources, "src/"), [["a/mod.rs", "b.rs", "a/inner.rs"]]);
    }
}
