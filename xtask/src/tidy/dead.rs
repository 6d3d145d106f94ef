//! Unreachable files, and documents that name missing files.
//!
//! - Input: the files known to git.
//! - Output: Rust files that are no target root and that no `mod`, `#[path]` or `include!` names;
//!   other files without a mention of the name or a read of the folder; missing Rust files in
//!   documents.
//! - Limits: computed names are unknown. A name prefix with a brace or a star stands for all files
//!   with this prefix.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::project;
use crate::project::source::words;

/// Files that tools find by themselves.
const READ_BY_TOOLS: [&str; 7] = [
    ".cargo/config.toml",
    ".dockerignore",
    ".gitignore",
    "clippy.toml",
    "kernels/.clang-format",
    "rustfmt.toml",
    "tests/torch/conftest.py",
];

/// Cases that trybuild reads by the pattern `*.rs`, with the compiler's messages.
const READ_BY_PATTERN: &str = "tests/compile_fail/";

/// Folders of a package where each file, or `main.rs` of each subfolder, is a target.
const TARGET_FOLDERS: [&str; 4] = ["src/bin/", "tests/", "benches/", "examples/"];

/// Returns all findings.
pub(super) fn files(root: &Path) -> Result<Vec<String>> {
    let paths = project::files(root)?;
    // Weights and pictures are not text.
    let texts: BTreeMap<&str, String> = paths
        .iter()
        .filter_map(|path| Some((path.as_str(), fs::read_to_string(root.join(path)).ok()?)))
        .collect();
    let mut found = dead(&paths, &texts);
    found.extend(gone(&paths, &texts));
    Ok(found)
}

/// Returns Rust files that documents name, but that do not exist.
fn gone(paths: &[String], texts: &BTreeMap<&str, String>) -> Vec<String> {
    let is_there =
        |named: &str| paths.iter().any(|path| path == named || path.ends_with(&format!("/{named}")));
    let is_path =
        |word: &&str| word.ends_with(".rs") && word.contains('/') && !word.contains(['{', '*', ' ']);
    let documents = texts.iter().filter(|(path, _)| path.ends_with(".md"));
    documents
        .flat_map(|(path, text)| text.lines().enumerate().map(move |(at, line)| (path, at + 1, line)))
        .flat_map(|(path, at, line)| {
            // Text between backticks.
            let named = line.split('`').skip(1).step_by(2).filter(is_path).filter(|named| !is_there(named));
            named.map(move |named| format!("{path}:{at}: {named} does not exist: update the path"))
        })
        .collect()
}

fn dead(paths: &[String], texts: &BTreeMap<&str, String>) -> Vec<String> {
    let roots = roots(paths, texts);
    let is_dead = |path: &&String| {
        let is_reached = if path.ends_with(".rs") {
            roots.contains(*path) || is_module(path, &roots, texts) || is_included(path, texts)
        } else {
            READ_BY_TOOLS.contains(&path.as_str()) || is_named(path, texts)
        };
        !is_reached && !path.starts_with(READ_BY_PATTERN)
    };
    let mut dead_paths: Vec<String> = paths
        .iter()
        .filter(is_dead)
        .map(|path| format!("{path}: nothing names this file: remove it"))
        .collect();
    let gone = READ_BY_TOOLS.iter().filter(|tool| !paths.iter().any(|path| path == *tool));
    dead_paths
        .extend(gone.map(|tool| format!("READ_BY_TOOLS: {tool} does not exist: remove it from the list")));
    dead_paths
}

/// Returns the root files of all targets.
fn roots(paths: &[String], texts: &BTreeMap<&str, String>) -> BTreeSet<String> {
    let mut roots = BTreeSet::new();
    for (path, text) in texts {
        let Some(folder) =
            path.strip_suffix("Cargo.toml").filter(|folder| folder.is_empty() || folder.ends_with('/'))
        else {
            continue;
        };
        let given = text.lines().filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix(".rs\""));
        roots.extend(given.map(|given| up(&format!("{folder}{given}.rs"))));
        for path in paths {
            let Some(inside) = path.strip_prefix(folder).filter(|inside| inside.ends_with(".rs")) else {
                continue;
            };
            let first = ["src/lib.rs", "src/main.rs", "build.rs"].contains(&inside);
            if first || TARGET_FOLDERS.iter().any(|folder| is_target(inside, folder, text)) {
                roots.insert(path.clone());
            }
        }
    }
    roots
}

/// Returns whether a file in `folder` is a target of the package.
fn is_target(file: &str, folder: &str, manifest: &str) -> bool {
    let Some(name) =
        file.strip_prefix(folder).map(|file| file.trim_end_matches("/main.rs").trim_end_matches(".rs"))
    else {
        return false;
    };
    let is_found = folder != "tests/" || !manifest.contains("autotests = false");
    !name.contains('/') && (is_found || manifest.contains(&format!("name = \"{name}\"")))
}

/// Resolves `..` in a path.
fn up(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Returns whether a possible parent declares the file as a module.
fn is_module(path: &str, roots: &BTreeSet<String>, texts: &BTreeMap<&str, String>) -> bool {
    let (mut folder, mut name) = split(path.trim_end_matches(".rs"));
    if name == "mod" {
        (folder, name) = split(folder);
    }
    let declares = |parent: &str| {
        texts.get(parent).is_some_and(|text| {
            words(text, name)
                .any(|at| text[..at].ends_with("mod ") && text[at + name.len()..].starts_with(';'))
        })
    };
    let in_folder = roots.iter().filter(|root| split(root).0 == folder);
    in_folder.map(String::as_str).any(declares)
        || declares(&format!("{folder}/mod.rs"))
        || declares(&format!("{folder}.rs"))
}

/// Returns whether another Rust file includes the file by path.
fn is_included(path: &str, texts: &BTreeMap<&str, String>) -> bool {
    texts.iter().filter(|(other, _)| other.ends_with(".rs")).any(|(other, text)| {
        let mut lines = text.lines().filter(|line| line.contains("#[path = ") || line.contains("include!("));
        lines.any(|line| line.split('"').any(|literal| up(&format!("{}/{literal}", split(other).0)) == path))
    })
}

/// Returns whether another file contains the name, a `join` of the folder, or the folder with a
/// prefix pattern of the name.
fn is_named(path: &str, texts: &BTreeMap<&str, String>) -> bool {
    let (folder, name) = split(path);
    let folder = split(folder).1;
    let (joined, below) = (format!("join(\"{folder}\")"), format!("{folder}/"));
    texts.iter().filter(|(other, _)| **other != path).any(|(_, text)| {
        let is_pattern = || {
            text.match_indices(&below).any(|(at, _)| {
                let rest = &text[at + below.len()..];
                rest.find(['{', '*']).is_some_and(|end| name.starts_with(&rest[..end]))
            })
        };
        text.contains(name) || (!folder.is_empty() && (text.contains(&joined) || is_pattern()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_reached_by_what_names_it() {
        let files = [
            (
                "Cargo.toml",
                "autotests = false\n[[test]]\nname = \"one\"\n[[test]]\npath = \"tests/suite/all.rs\"\n",
            ),
            ("src/lib.rs", "mod a;\n// mod gone;x\n"),
            ("src/a.rs", "mod b;\nconst T: &str = include_str!(\"t/one.txt\");"),
            ("src/a/b.rs", "fn f(part: &str) { read(format!(\"data/b-{part}.json\")) }"),
            ("src/c.rs", ""),
            ("src/t/one.txt", ""),
            ("src/t/two.txt", ""),
            ("src/data/b-1.json", ""),
            ("src/data/c-1.json", ""),
            ("tests/suite/all.rs", "#[path = \"../common/given.rs\"]\nmod given;"),
            ("tests/common/given.rs", ""),
            ("tests/common/other.rs", ""),
            ("tests/one.rs", ""),
            ("tests/two.rs", ""),
        ];
        let paths: Vec<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        let texts = files.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
        let found = dead(&paths, &texts);
        let found: Vec<&str> = found
            .iter()
            .filter_map(|line| line.strip_suffix(": nothing names this file: remove it"))
            .collect();
        assert_eq!(
            found,
            [
                "Cargo.toml",
                "src/c.rs",
                "src/t/two.txt",
                "src/data/c-1.json",
                "tests/common/other.rs",
                "tests/two.rs"
            ]
        );
    }

    #[test]
    fn documents_name_files_that_are_there() {
        let paths = ["docs/A.md", "src/a/b.rs"].map(str::to_owned);
        let text = "`src/a/b.rs`, `a/b.rs` and `b.rs`\n`c.rs`, `src/{a,b}.rs`, c/b.rs, `src/c/b.rs`\n";
        let texts = [("docs/A.md", text.to_owned()), ("src/a/b.rs", "//! `src/c/b.rs`".to_owned())].into();
        assert_eq!(gone(&paths, &texts), ["docs/A.md:2: src/c/b.rs does not exist: update the path"]);
    }
}
