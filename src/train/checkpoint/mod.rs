//! Checkpoints of a training run, which load on any other mesh.
//!
//! - Input: the layout of the tensors on the ranks ([`Sharding`]) and the bytes of each rank.
//! - Output: a folder `step-00000050`, which a [`Writer`] writes while training continues.
//! - [`Checkpoint`] opens such a folder and reads any part of any tensor, bit for bit, whatever
//!   layout wrote it. [`reshard`] writes a checkpoint again for another mesh. [`export`] writes
//!   only the model, in the format of other tools.
//!
//! ```text
//! SAVE/step-00000050/rank-00003-of-00008.safetensors   shards of rank 3, with place and layout
//! SAVE/step-00000050/index.json                        step, mesh, digests, shards, state
//! ```
//!
//! Invariants:
//!
//! - A folder with this name is complete, because it is renamed after all ranks have their files on
//!   disk. A folder without `index.json` does not count.
//! - Each element is stored once.
//! - Reads never return altered data. The index has a digest of itself and of every file, and a
//!   file is verified before its first use.
//! - Numbers are never converted. Only an export converts them, to the requested type.
//!
//! Not here: programs, optimizers and schedules. The caller names the tensors and defines `state`.

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

/// Reasons why a checkpoint cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments or the files are invalid. Lists every problem; nothing was written.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// A file or a folder could not be written. Earlier checkpoints are unchanged.
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
