//! Folder with the checkpoints of a run.
//!
//! A checkpoint is a folder with an index, named after its step. Step names with a leading dot and
//! the suffix `.partial` or `.removed` belong to the writer.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::index::INDEX;
use super::read::Checkpoint;
use super::storage::Storage;

const DIGITS: usize = 8;

pub(super) fn name(step: u64) -> String {
    format!("step-{step:0DIGITS$}")
}

pub(super) fn partial_name(step: u64) -> String {
    format!(".{}.partial", name(step))
}

pub(super) fn removed_name(step: u64) -> String {
    format!(".{}.removed", name(step))
}

pub(super) fn step_of(text: &str) -> Option<u64> {
    let step = text.strip_prefix("step-")?.parse().ok()?;
    (name(step) == text).then_some(step)
}

/// Returns complete checkpoints, oldest first.
pub(super) fn complete(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut checkpoints = Vec::new();
    for (name, path) in entries(folder)? {
        if let Some(step) = step_of(&name)
            && path.join(INDEX).is_file()
        {
            checkpoints.push((step, path));
        }
    }
    checkpoints.sort_unstable();
    Ok(checkpoints)
}

/// Returns every folder that is named after a step, oldest first, even if it is damaged.
///
/// # Errors
/// The folder cannot be read.
pub fn stored(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let named = entries(folder)?.into_iter().filter_map(|(name, path)| Some((step_of(&name)?, path)));
    let mut found: Vec<(u64, PathBuf)> = named.collect();
    found.sort_unstable();
    Ok(found)
}

/// Renames a damaged checkpoint, so that no run loads it. Returns the new path, such as
/// `step-00000050.damaged`.
///
/// # Errors
/// The folder cannot be renamed.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let numbered = |number: usize| match number {
        1 => path.with_file_name(format!("{name}.damaged")),
        number => path.with_file_name(format!("{name}.damaged-{number}")),
    };
    let mut number = 1;
    while numbered(number).try_exists()? {
        number += 1;
    }
    fs::rename(path, numbered(number))?;
    Ok(numbered(number))
}

/// Removes checkpoints that an ended process was writing or removing.
pub(super) fn clear(folder: &Path, storage: &dyn Storage) -> io::Result<()> {
    for (name, path) in entries(folder)? {
        let inner = name.strip_prefix('.').and_then(|name| name.rsplit_once('.'));
        if inner.is_some_and(|(name, end)| step_of(name).is_some() && ["partial", "removed"].contains(&end)) {
            storage.remove_folder(&path)?;
        }
    }
    Ok(())
}

/// Removes the oldest checkpoints up to step `newest` until `keep` remain. A checkpoint that does
/// not open is neither counted nor removed, because it may be the only data of a step.
pub(super) fn keep_newest(folder: &Path, newest: u64, keep: usize, storage: &dyn Storage) -> io::Result<()> {
    let mut old = complete(folder)?;
    old.retain(|(step, path)| *step <= newest && Checkpoint::open(path).is_ok());
    old.truncate(old.len().saturating_sub(keep));
    for (step, path) in old {
        // No reader sees a half-removed checkpoint.
        let removed = folder.join(removed_name(step));
        storage.rename(&path, &removed)?;
        storage.remove_folder(&removed)?;
    }
    Ok(())
}

/// Returns sorted names with paths. A missing folder is empty.
fn entries(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut named_paths = Vec::new();
    for entry in entries {
        let entry = entry?;
        // Checkpoint names are always UTF-8.
        if let Ok(name) = entry.file_name().into_string() {
            named_paths.push((name, entry.path()));
        }
    }
    named_paths.sort_unstable();
    Ok(named_paths)
}

#[cfg(test)]
mod tests {
    use super::super::storage::Disk;
    use super::*;

    #[test]
    fn steps_have_one_name_each() {
        assert_eq!((name(50).as_str(), step_of("step-00000050")), ("step-00000050", Some(50)));
        assert_eq!(step_of(&name(u64::MAX)), Some(u64::MAX));
        for other in
            ["step-50", "step-000000050", "step-0000005x", "step-+0000050", ".step-00000050", "step-"]
        {
            assert_eq!(step_of(other), None, "{other}");
        }
    }

    #[test]
    fn only_what_is_complete_counts_and_only_the_writers_own_goes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, has_index) in [
            ("step-00000003", true),
            ("step-00000001", true),
            ("step-00000002", true),
            ("step-00000009", false),
            ("best", true),
            (".step-00000004.partial", true),
            (".step-00000004.removed", true),
            (".step-00000004.mine", true),
            (".mine.partial", true),
        ] {
            fs::create_dir(at(name)).unwrap();
            if has_index {
                fs::write(at(name).join(INDEX), "{}").unwrap();
            }
        }
        let steps = || complete(folder.path()).unwrap().into_iter().map(|(step, _)| step).collect::<Vec<_>>();
        assert_eq!(steps(), [1, 2, 3]);
        clear(folder.path(), &Disk).unwrap();
        keep_newest(folder.path(), 2, 1, &Disk).unwrap();
        assert_eq!(steps(), [1, 2, 3], "what does not open is not counted, and not removed");
        let names: Vec<String> = entries(folder.path()).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                ".mine.partial",
                ".step-00000004.mine",
                "best",
                "step-00000001",
                "step-00000002",
                "step-00000003",
                "step-00000009"
            ]
        );
        assert_eq!(complete(&at("none")).unwrap(), []);
    }
}
