//! Training: a loss, its gradients and an optimizer as one program, on any mesh.
//!
//! Input → output: a model, a [`Recipe`] and data → weights that are updated on the cards, with the
//! loss and the norm of the gradients of each step. [`data`] makes the batches, [`program`] the ops
//! of a step, [`layouts`] says where gradients and moments lie (which is what `ZeRO` is),
//! [`context`] which tokens of a sequence a card has, [`Trainer`] runs them, [`checkpoint`] keeps
//! all of it and [`metrics`] what each step did. Nothing here knows how values are split: gradients
//! and moments are values with layouts, and the collectives follow from the rules of the ops.
//!
//! Invariants: what a step is given depends on the data, the seed and the step alone, never on how
//! the model lies on cards; a step is a function of weights, moments and global batch; the loss is
//! the sum over counted labels divided by their number in the whole global batch, however it is cut
//! into micro-batches and over cards.

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
