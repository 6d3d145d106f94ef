//! Runs plans: each rank is one thread with one device.
//!
//! Invariants:
//! - An [`Engine`] prepares operators, workspaces and memory once, at the start; a run only
//!   enqueues work. Only attention is prepared again, for the lengths of a run.
//! - No work is pending after [`Engine::run`] returns.
//! - If a rank fails, all ranks end, in all processes. The error names the first failed rank, its
//!   device and the op.

mod card;
mod checks;
mod engine;
mod error;
mod exchange;
mod gate;
mod lengths;
mod locate;
mod prepare;
mod rank;
mod shards;
mod tensors;
mod timing;
mod upload;

pub use card::{Launching, Marks};
pub use checks::{communicators_wanted, memory_wanted, regions_wanted, target_of};
pub use engine::{Engine, EngineOptions, Observation, ProgramId, Run, SharedWeights};
pub use error::{Error, RankError};
pub use prepare::prepare;
pub(crate) use rank::panic_text;
pub use shards::{Part, Shards};
pub use tensors::{Elements, NamedTensors};
pub use timing::{Clock, Timed};
pub use upload::Uploads;
