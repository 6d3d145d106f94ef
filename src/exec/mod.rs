//! Walks plans. One rank is one thread with one card; nothing here knows a Transformer or a mesh.
//!
//! Input → output: the plans of all ranks, a [`Cann`](crate::device::Cann) and the processes of the
//! world → an [`Engine`] that loads weights and runs a plan on all ranks at once, from named input
//! tensors to named output tensors. It runs the ranks of its own process: all of them, or one
//! beside those of the other processes.
//!
//! Invariants: what can be asked of the card once is asked once, when the engine starts (operators,
//! workspaces, memory); a run only enqueues, but that attention is told anew how many keys to read,
//! once in [`KEY_BLOCK`] tokens. Nothing is pending when [`Engine::run`] returns. If a rank fails
//! it leaves its communicators at once, so the others end too, and the error names the rank that
//! failed first, its card and the op. The same holds between processes, which tell each other, and
//! notice when one is gone.

mod card;
mod checks;
mod engine;
mod error;
mod exchange;
mod gate;
mod keys;
mod locate;
mod prepare;
mod rank;
mod shards;
mod tensors;
mod timing;
mod upload;

pub use card::{Launching, Marks};
pub use checks::{communicators_wanted, memory_wanted, regions_wanted, target_of};
pub use engine::{Clock, Engine, EngineOptions, Observation, ProgramId, Run, SharedWeights};
pub use error::{Error, RankError};
pub use keys::BLOCK as KEY_BLOCK;
pub use prepare::prepare;
pub use shards::{Part, Shards};
pub use tensors::{Elements, NamedTensors};
pub use timing::Timed;
pub use upload::Uploads;
