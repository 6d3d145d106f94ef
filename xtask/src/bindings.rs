//! Regenerates the bindings of `ascend-tp-sys`, or checks that they are up to date.
//!
//! Input: the headers of a toolkit or of `sys/include`. Output: `sys/src/bindings.rs` and `sys/src/prototypes.rs`.
//! The work is done by the build script of `ascend-tp-sys` under its feature `bindgen`; this chore runs it and moves or
//! compares the files.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

const FILES: [&str; 2] = ["bindings.rs", "prototypes.rs"];

/// Writes the bindings into the source tree, from `toolkit`'s headers if there is one.
pub(crate) fn write(toolkit: Option<&OsStr>) -> Result<String> {
    let folder = fresh_folder()?;
    generate(&folder, toolkit)?;
    for file in FILES {
        let to = source_folder().join(file);
        fs::copy(folder.join(file), &to).with_context(|| format!("cannot write {}", to.display()))?;
    }
    remove(&folder)?;
    let from = toolkit.map_or_else(|| "sys/include".to_owned(), |toolkit| toolkit.display().to_string());
    Ok(format!("wrote {} from {from}", FILES.map(|file| format!("sys/src/{file}")).join(" and ")))
}

/// Fails if the committed bindings are not those of `sys/include`.
pub(crate) fn check() -> Result<String> {
    let folder = fresh_folder()?;
    generate(&folder, None)?;
    let mut differing = Vec::new();
    for file in FILES {
        let committed = read(&source_folder().join(file))?;
        let generated = read(&folder.join(file))?;
        if let Some(line) = first_difference(&committed, &generated) {
            differing.push(format!("sys/src/{file} differs from line {line} on"));
        }
    }
    remove(&folder)?;
    if !differing.is_empty() {
        bail!("{}; run `cargo xtask bindings` and commit the result", differing.join(", "));
    }
    Ok("the committed bindings are those of sys/include".to_owned())
}

/// Runs the build script with the generated files going to `folder`.
fn generate(folder: &Path, toolkit: Option<&OsStr>) -> Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["check", "--quiet", "--package", "ascend-tp-sys", "--features", "bindgen"])
        .env("ASCEND_TP_BINDINGS_DIR", folder)
        .env_remove("ASCEND_TP_HEADERS")
        .env_remove("ASCEND_TOOLKIT_HOME");
    if let Some(toolkit) = toolkit {
        command.env("ASCEND_TP_HEADERS", toolkit);
    }
    let status = command.status().context("cannot run cargo")?;
    if !status.success() {
        bail!(
            "the bindings were not made ({status}); bindgen needs libclang, and a toolkit's headers must be those of \
             CANN 9.x or newer, which declare every function of sys/src/symbols.rs"
        );
    }
    Ok(())
}

/// An empty folder, new for each run, so that the build script runs and its files are not those of an earlier run.
fn fresh_folder() -> Result<PathBuf> {
    let folder = env::temp_dir().join(format!("ascend-tp-bindings-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

fn remove(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

fn source_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sys/src")
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The first line, counted from 1, in which two texts differ.
fn first_difference(left: &str, right: &str) -> Option<usize> {
    if left == right {
        return None;
    }
    let same = left.lines().zip(right.lines()).take_while(|(left, right)| left == right).count();
    Some(same + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_a_line_number() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some(2));
    }
}
