//! Checkpoints of a training run, which load on any other mesh.
//!
//! A [`Writer`] saves a [`Sharding`] of tensors while training continues. A [`Checkpoint`] reads
//! any part of a tensor, bit for bit, whatever layout wrote it.
//! [`reshard`](fn@reshard) writes for another mesh, and [`export`](fn@export) writes the model for
//! other tools.
//!
//! ```text
//! SAVE/step-00000050/rank-00003-of-00008.safetensors   shards of rank 3, with place and layout
//! SAVE/step-00000050/index.json                        step, mesh, digests, shards, state
//! ```
//!
//! Invariants:
//!
//! - A folder with this name is complete, because it is renamed after all files are on disk. A
//!   folder without `index.json` does not count.
//! - Each element is stored once. Only an export converts numbers.
//! - Reads never return altered data. The index has digests of itself and all files, and a file is
//!   verified before its first use.
//!
//! The caller names the tensors and defines `state`.

mod cover;
mod export;
mod folder;
mod index;
mod newest;
mod rank_file;
mod read;
mod reshard;
mod save;
mod sharding;
mod storage;
mod writer;

use std::io;
use std::path::Path;

pub use export::{Exported, export, export_adapter};
pub use folder::{set_aside, stored};
pub use index::{FileRecord, Index, PartRecord, SourceRecord, TensorRecord};
pub use newest::{DamagedCheckpoint, UndamagedCheckpoint, newest_undamaged};
pub use read::Checkpoint;
pub use reshard::{reshard, stored_layouts_on};
pub use save::Saved;
pub use sharding::{ShardedTensor, Sharding, Summand};
pub use writer::{PartBytes, Writer};

use crate::base::{Diagnostic, Diagnostics};
use crate::weights::FolderError;
use crate::world::PeerFailure;

/// Reasons why a checkpoint cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every invalid argument or file. Nothing was written.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// Failed write. Earlier checkpoints are unchanged.
    #[error("{0}")]
    Write(Diagnostic),
    /// Process that ended before the checkpoint was complete.
    #[error(transparent)]
    Peer(#[from] PeerFailure),
}

impl Error {
    fn write(path: &Path, what: impl Into<String>, error: &io::Error) -> Self {
        Self::Write(Diagnostic::new(path.display().to_string(), what).found(error))
    }
}

impl From<Diagnostic> for Error {
    fn from(problem: Diagnostic) -> Self {
        Self::Refused(problem.into())
    }
}

impl From<FolderError> for Error {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Refused(problems) => Self::Refused(problems),
            FolderError::Write(problem) => Self::Write(problem),
        }
    }
}
