//! The project's text files, as rules and counts read them.

pub(crate) mod imports;
pub(crate) mod source;

use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

/// Made by a program from other files of the project; checked by that program.
const GENERATED: [&str; 3] = ["sys/src/bindings.rs", "sys/src/names.rs", "sys/src/symbols.rs"];

/// Folders that are no sources: build products, version control, model files, fixtures.
const SKIPPED_FOLDERS: [&str; 4] = ["target", ".git", "models", "tests/fixtures"];
const TEXT_EXTENSIONS: [&str; 9] = ["rs", "toml", "md", "h", "hpp", "c", "cpp", "asc", "sh"];

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every text file of the project, in the order of their paths.
pub(crate) fn read() -> Vec<Source> {
    let root = root();
    let mut sources = Vec::new();
    read_folder(&root, "", &mut sources);
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

fn read_folder(root: &Path, folder: &str, sources: &mut Vec<Source>) {
    let entries = fs::read_dir(root.join(folder)).unwrap_or_else(|error| panic!("folder {folder}: {error}"));
    for entry in entries {
        let entry = entry.unwrap_or_else(|error| panic!("folder {folder}: {error}"));
        let name =
            entry.file_name().into_string().unwrap_or_else(|name| panic!("{folder}: {} is not UTF-8", name.display()));
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        let kind = entry.file_type().unwrap_or_else(|error| panic!("{path}: {error}"));
        if kind.is_dir() && !SKIPPED_FOLDERS.contains(&path.as_str()) {
            read_folder(root, &path, sources);
        }
        let extension = Path::new(&path).extension().and_then(|extension| extension.to_str());
        let is_text = extension.is_some_and(|extension| TEXT_EXTENSIONS.contains(&extension)) || path == ".ci/run";
        if kind.is_file() && is_text && !GENERATED.contains(&path.as_str()) {
            let text = fs::read_to_string(root.join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            sources.push(Source::new(&path, &text));
        }
    }
}
