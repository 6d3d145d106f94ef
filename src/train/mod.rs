//! Training of a model on any mesh: loss, gradients and optimizer form one program.
//!
//! - Input: a model, a [`Recipe`] and data.
//! - Output: updated weights on the cards, and the loss and the gradient norm of each step.
//! - Modules: [`data`] makes batches and [`program`] builds the ops of a step. [`layouts`] shards
//!   gradients and moments (`ZeRO`), and [`context`] distributes the tokens of a sequence.
//!   [`Trainer`] runs the steps, [`checkpoint`] stores the state and [`metrics`] records each step.
//!
//! Invariants:
//!
//! - The batch of a step depends only on the data, the seed and the step, never on the layout.
//! - A step is a function of the weights, the moments and the global batch.
//! - The loss is the sum over counted labels, divided by their number in the whole global batch.
//!   Micro-batches and cards do not change this definition.
//!
//! Gradients and moments are ordinary values with layouts. The collectives follow from the sharding
//! rules of the ops.

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
