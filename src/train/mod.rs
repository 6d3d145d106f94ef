//! Training: a loss, its gradients and an optimizer as one program, on any mesh.
//!
//! Input → output: a model, a [`Recipe`] and batches of tokens → weights that are updated on the cards, with the loss and the
//! norm of the gradients of each step. Nothing here knows how values are split: gradients and moments are values with
//! layouts ([`layouts`] pins them, which is what `ZeRO` is), and the collectives follow from the rules of the ops.
//!
//! Invariants: a step is a function of the weights, the moments and the global batch alone; the loss is the sum over counted
//! labels divided by their number in the whole global batch, however it is cut into micro-batches and over cards.

pub mod layouts;
pub mod optimizer;
pub mod program;
pub mod recipe;
mod trainer;

pub use layouts::Zero;
pub use optimizer::Optimizer;
pub use recipe::{Recipe, Schedule, ScheduleKind};
pub use trainer::{Batch, Error, Layout, Step, Trainer, plans};
