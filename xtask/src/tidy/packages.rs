//! Packages without a target, with which `cargo package --workspace` fails.
//!
//! - Input: the manifests of the workspace.
//! - Output: packages with neither a library nor a program. Cargo then packages nothing.
//! - Not here: running cargo, which needs all dependencies.

use std::path::Path;

use crate::project::source::Source;

/// Root files of a library or program.
const FIRST_FILES: [&str; 2] = ["src/lib.rs", "src/main.rs"];

/// Returns the findings. `is_file` tests a path of the workspace and follows links.
pub(super) fn without_target(sources: &[Source], is_file: impl Fn(&Path) -> bool) -> Vec<String> {
    let manifests =
        sources.iter().filter_map(|source| Some((source, source.path.strip_suffix("Cargo.toml")?)));
    manifests
        .filter(|(manifest, folder)| {
            let has_file = || FIRST_FILES.iter().any(|file| is_file(&Path::new(folder).join(file)));
            manifest.text.contains("[package]") && !manifest.text.contains("[[bin]]") && !has_file()
        })
        .map(|(manifest, _)| {
            format!("{}: neither a library nor a program: cargo cannot package the workspace", manifest.path)
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
        assert_eq!(
            found,
            ["c/Cargo.toml: neither a library nor a program: cargo cannot package the workspace"]
        );
    }
}
