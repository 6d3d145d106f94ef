//! Text files of the project.

pub(crate) mod imports;
pub(crate) mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use source::Source;

/// Generated files, checked by their generators.
const GENERATED: [&str; 3] = ["sys/src/bindings.rs", "sys/src/names.rs", "sys/src/symbols.rs"];

const SKIPPED_FOLDERS: [&str; 2] = ["models/", "tests/fixtures/"];
const TEXT_EXTENSIONS: [&str; 9] = ["rs", "toml", "md", "h", "hpp", "c", "cpp", "asc", "sh"];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Lists files below `root` that git has or would add, as sorted relative paths.
pub(crate) fn files(root: &Path) -> Result<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(arguments).current_dir(root).output().context("cannot run git")?;
    if !listed.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr).trim());
    }
    let listed = String::from_utf8(listed.stdout).context("git names a file that is not UTF-8")?;
    // Git still lists removed files, and links to folders.
    let mut files: Vec<String> =
        listed.split_terminator('\0').filter(|file| root.join(file).is_file()).map(str::to_owned).collect();
    files.sort();
    Ok(files)
}

/// Reads every text file below `root`, in path order.
pub(crate) fn read(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for path in files(root)? {
        let extension = Path::new(&path).extension().and_then(|extension| extension.to_str());
        let is_text =
            extension.is_some_and(|extension| TEXT_EXTENSIONS.contains(&extension)) || path == ".ci/run";
        let is_skipped = SKIPPED_FOLDERS.iter().any(|folder| path.starts_with(folder));
        if is_text && !is_skipped && !GENERATED.contains(&path.as_str()) {
            let text = fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
            sources.push(Source::new(&path, &text));
        }
    }
    Ok(sources)
}
