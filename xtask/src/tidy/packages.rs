//! What `cargo package --workspace` asks of each package.
//!
//! Input: the manifests of the workspace. Output: a finding for each package that has neither a
//! library nor a program: cargo packages none of the workspace then. Does not: run cargo, which
//! would want every package's dependencies at hand.

use std::path::Path;

use crate::project::source::Source;

/// Files by any of which a package has a target.
const FIRST_FILES: [&str; 2] = ["src/lib.rs", "src/main.rs"];

/// The findings; `is_file` says whether a path of the workspace is one, also behind a link.
pub(super) fn without_target(sources: &[Source], is_file: impl Fn(&Path) -> bool) -> Vec<String> {
    let manifests =
        sources.iter().filter_map(|source| Some((source, source.path.strip_suffix("Cargo.toml")?)));
    manifests
        .filter(|(manifest, folder)| {
            let has_file = || FIRST_FILES.iter().any(|file| is_file(&Path::new(folder).join(file)));
            manifest.text.contains("[package]") && !manifest.text.contains("[[bin]]") && !has_file()
        })
        .map(|(manifest, _)| {
            format!("{}: no library and no program: cargo packages no such workspace", manifest.path)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_of_tests_alone_is_found() {
        let manifests = [
            ("Cargo.toml", "[workspace]"),
            ("a/Cargo.toml", "[package]"),
            ("b/Cargo.toml", "[package]\n[[bin]]"),
            ("c/Cargo.toml", "[package]\n[[test]]"),
        ];
        let sources: Vec<Source> = manifests.iter().map(|(path, text)| Source::new(path, text)).collect();
        let found = without_target(&sources, |path| path == Path::new("a/src/lib.rs"));
        assert_eq!(found, ["c/Cargo.toml: no library and no program: cargo packages no such workspace"]);
    }
}
