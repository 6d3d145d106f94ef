//! Search for the newest undamaged checkpoint of a run.
//!
//! All processes choose the same checkpoint, and each reads a share of the files. If all
//! checkpoints are damaged, the search fails instead of starting a new run.

use std::path::{Path, PathBuf};

use super::read::Checkpoint;
use super::{Error, folder};
use crate::base::{Diagnostic, Diagnostics};
use crate::world::ProcessGroup;

/// A checkpoint with missing or altered data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedCheckpoint {
    /// Folder of the checkpoint, named after its step.
    pub path: PathBuf,
    /// Problems of the checkpoint, each with its file.
    pub problems: Vec<String>,
}

/// Newest undamaged checkpoint of a run.
#[derive(Debug)]
pub struct UndamagedCheckpoint {
    /// The newest checkpoint without a changed byte.
    pub checkpoint: Checkpoint,
    /// Newer, damaged checkpoints, newest first.
    pub skipped: Vec<DamagedCheckpoint>,
}

/// Finds the newest undamaged checkpoint of a run and reads all its bytes. Every process of the
/// group makes the same call. Returns `None` if no folder is named after a step.
///
/// # Errors
/// Every checkpoint is damaged, the folder cannot be read, or another process ended.
pub fn newest_undamaged(folder: &Path, group: &ProcessGroup) -> Result<Option<UndamagedCheckpoint>, Error> {
    let stored = folder::stored(folder).map_err(|error| unreadable(folder, &error));
    let mine = stored.map(|stored| stored.into_iter().map(|(step, _)| step).collect::<Vec<u64>>());
    let of_all = super::save::agree(group, "the stored checkpoints", mine.map_err(Error::from))?;
    // The first process renames checkpoints, so its list counts.
    let steps = of_all.into_iter().next().unwrap_or_default();
    let mut skipped: Vec<DamagedCheckpoint> = Vec::new();
    for step in steps.iter().rev() {
        let path = folder.join(folder::name(*step));
        let (size, rank) = (group.size(), group.rank());
        let opened = Checkpoint::open(&path)
            .and_then(|checkpoint| checkpoint.verify_share(rank, size).map(|()| checkpoint));
        // The final error has its own help.
        let without_help = |problem: &Diagnostic| Diagnostic { help: None, ..problem.clone() }.to_string();
        let mine: Vec<String> = match &opened {
            Ok(_) => Vec::new(),
            Err(problems) => problems.items().iter().map(without_help).collect(),
        };
        let of_all = super::save::agree(group, "the damage of a checkpoint", Ok(mine))?;
        match opened {
            Ok(checkpoint) if of_all.iter().all(Vec::is_empty) => {
                return Ok(Some(UndamagedCheckpoint { checkpoint, skipped }));
            }
            _ => {
                let mut problems = of_all.concat();
                problems.sort_unstable();
                problems.dedup();
                skipped.push(DamagedCheckpoint { path, problems });
            }
        }
    }
    if skipped.is_empty() {
        return Ok(None);
    }
    let mut all = Diagnostics::new();
    for DamagedCheckpoint { path, problems } in skipped {
        let problem = Diagnostic::new(path.display().to_string(), "damaged").found(problems.join(", "));
        all.push(problem.help("all checkpoints are damaged: restore a copy, or choose another folder"));
    }
    Err(all.into())
}

pub(super) fn unreadable(folder: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::new(folder.display().to_string(), "cannot be read").found(error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use serde_json::json;

    use super::super::{PartBytes, ShardedTensor, Sharding, Writer};
    use super::*;
    use crate::base::{DType, Shape};
    use crate::placement::{Layout, Mesh};

    /// Writes one file with one tensor per step.
    fn save(folder: &Path, steps: &[u64]) {
        let mesh = Mesh::new(&[("tp", 1)]).unwrap();
        let (shape, layout) = (Shape::from([4].as_slice()), Layout::replicated(1));
        let tensor = ShardedTensor::placed("w", &shape, DType::F32, &mesh, &layout);
        let sharding = Sharding::new(mesh, vec![tensor]).unwrap();
        let mut writer = Writer::new(folder, None, sharding, Arc::new(ProcessGroup::alone())).unwrap();
        for step in steps {
            let part = PartBytes { rank: 0, tensor: "w".to_owned(), bytes: vec![*step as u8; 16] };
            writer.begin(*step, json!({}), vec![part]).unwrap();
        }
        writer.finish().unwrap();
    }

    fn newest(folder: &Path) -> Result<Option<UndamagedCheckpoint>, Error> {
        newest_undamaged(folder, &ProcessGroup::alone())
    }

    const FILE: &str = "rank-00000-of-00001.safetensors";

    #[test]
    fn damage_of_every_kind_is_skipped_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let at = |step: u64| folder.path().join(folder::name(step));
        assert!(newest(folder.path()).unwrap().is_none(), "no checkpoint is no damage");
        save(folder.path(), &[1, 2, 3, 4, 5, 6]);
        let flipped = at(6).join(FILE);
        let mut bytes = fs::read(&flipped).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&flipped, bytes).unwrap();
        fs::write(at(5).join("index.json"), "{").unwrap();
        fs::remove_file(at(4).join(FILE)).unwrap();
        fs::remove_file(at(3).join("index.json")).unwrap();
        let found = newest(folder.path()).unwrap().unwrap();
        assert_eq!(found.checkpoint.index().step, 2);
        let paths: Vec<PathBuf> = found.skipped.iter().map(|damaged| damaged.path.clone()).collect();
        assert_eq!(paths, [6, 5, 4, 3].map(at));
        let expected = ["torn or altered: expected digest", "or incomplete", "cannot be read", "index.json"];
        for (damaged, expected) in found.skipped.iter().zip(expected) {
            assert!(damaged.problems.len() == 1 && damaged.problems[0].contains(expected), "{damaged:?}");
        }

        for step in [1, 2] {
            fs::write(at(step).join(FILE), "").unwrap();
        }
        let error = newest(folder.path()).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 6, "{error}");
        assert!(
            error.contains("step-00000001: damaged: found ") && error.contains("all checkpoints are damaged"),
            "{error}"
        );
        fs::remove_dir_all(folder.path().join("step-00000006")).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let error = newest(&folder.path().join("file")).unwrap_err().to_string();
        assert!(error.contains("file: cannot be read: found "), "{error}");
    }

    #[test]
    fn damaged_checkpoints_are_set_aside_and_do_not_count_as_kept() {
        let folder = tempfile::tempdir().unwrap();
        save(folder.path(), &[1, 2, 3]);
        let at = |step: u64| folder.path().join(folder::name(step));
        fs::write(at(2).join(FILE), "").unwrap();
        folder::keep_newest(folder.path(), 3, 2, &super::super::storage::Disk).unwrap();
        assert!(at(1).exists() && at(3).exists(), "a damaged checkpoint took the place of an undamaged one");
        let aside = [(); 2].map(|()| {
            fs::create_dir_all(at(2)).unwrap();
            folder::set_aside(&at(2)).unwrap()
        });
        assert_eq!(
            aside.map(|path| path.file_name().unwrap().to_owned()),
            ["step-00000002.damaged", "step-00000002.damaged-2"]
        );
        let steps =
            || folder::stored(folder.path()).unwrap().into_iter().map(|(step, _)| step).collect::<Vec<_>>();
        assert_eq!(steps(), [1, 3]);
        // A writer keeps checkpoints of later steps.
        save(folder.path(), &[2]);
        folder::keep_newest(folder.path(), 2, 1, &super::super::storage::Disk).unwrap();
        assert_eq!(steps(), [2, 3]);
    }
}
