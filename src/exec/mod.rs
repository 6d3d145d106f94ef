//! Walks plans. One rank is one thread with one card; nothing here knows a Transformer or a mesh.
//!
//! Input → output: the plans of all ranks and a [`Cann`](crate::device::Cann) → an [`Engine`] that loads weights and runs
//! a plan on all ranks at once, from the bytes of the inputs to the bytes of the outputs.
//!
//! Invariants: what can be asked of the card once is asked once, when the engine starts (operators, workspaces,
//! memory); a run only enqueues. Nothing is pending when [`Engine::run`] returns. If a rank fails it leaves its
//! communicators at once, so the others end too, and the error names the rank that failed first, its card and the op.

mod card;
mod engine;
mod error;
mod prepare;

pub use engine::{Engine, Fill, FillError, Inputs, Observation, Outputs, Write};
pub use error::{Error, RankError};
