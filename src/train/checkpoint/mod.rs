//! Checkpoints of a training run: layouts plus bytes, so that one loads on any other mesh.
//!
//! Input → output: how tensors lie on the ranks ([`Sharding`]) and each rank's bytes → a folder
//! `step-00000050`, written beside the steps by a [`Writer`]; such a folder → a [`Checkpoint`], of
//! which any part of any tensor is read, bit for bit, whatever layout it was written from.
//! [`reshard`] writes it again for another mesh, [`export`] writes the model alone as others read
//! it.
//!
//! ```text
//! SAVE/step-00000050/rank-00003-of-00008.safetensors   shards of rank 3, with place and layout
//! SAVE/step-00000050/index.json                        step, mesh, digests, shards, state
//! ```
//!
//! Invariants: a folder of this name is complete, because it takes its name when all ranks have
//! their part on disk; without `index.json` it counts for nothing. An element is stored once.
//! Nothing that differs from what was written is ever given: the index carries a digest of itself
//! and of every file, and a file is read through before the first use of it. Numbers are never
//! converted on the way (an export does, and says to what).
//!
//! It knows no program, optimizer or schedule: the caller names tensors, and `state` is the
//! caller's own.

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
pub use sharding::{ShardedTensor, Sharding};
pub use writer::{PartBytes, Writer};

use crate::base::{Diagnostic, Diagnostics};
use crate::world::PeerFailure;

/// Why a checkpoint is not written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was given or found is wrong: all of it. Nothing was written.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// A file or folder could not be written. Earlier checkpoints are as they were.
    #[error("{0}")]
    Write(Diagnostic),
    /// Another process ended before the checkpoint was complete.
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
