//! Training of a model on any mesh: loss, gradients and optimizer form one program.
//!
//! A [`Recipe`] describes a run, and a [`Trainer`] runs its steps. [`data`] makes batches,
//! [`program`] builds steps, [`layouts`] shards gradients and moments (`ZeRO`), [`checkpoint`]
//! stores the state and [`metrics`] records each step. Gradients and moments are ordinary values
//! with layouts, so collectives follow from the sharding rules of the ops.
//!
//! Invariants:
//!
//! - A batch depends only on the data, the seed and the step.
//! - A step is a function of the weights, the moments and the global batch.
//! - The loss is the sum over counted labels, divided by their number in the global batch, on every
//!   layout.

mod builder;
pub mod checkpoint;
mod compile;
mod compress;
pub mod context;
pub mod data;
mod error;
mod exact;
pub mod init;
pub mod layouts;
mod loss_scale;
pub mod memory;
pub mod metrics;
pub mod optimizer;
pub mod program;
pub mod recipe;
pub mod stages;
mod trainer;
pub mod verify;

pub use builder::TrainerBuilder;
pub use compile::{Compiled, Layout, Lowered, StepProgram, check, compile, lower};
pub use compress::Compress;
pub use error::{Error, NonFiniteGradient};
pub use layouts::Zero;
pub use loss_scale::{LossScale, LossScaling};
pub use optimizer::Optimizer;
pub use program::Recompute;
pub use recipe::{Recipe, Schedule, ScheduleKind};
pub use trainer::{Progress, StepOutcome, Times, Trainer};
