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
#[doc(hidden)]
pub mod checkpoint;
#[doc(hidden)]
pub mod choices;
mod compile;
mod compress;
#[doc(hidden)]
pub mod context;
#[doc(hidden)]
pub mod data;
mod error;
mod exact;
#[doc(hidden)]
pub mod init;
mod inputs;
#[doc(hidden)]
pub mod layouts;
mod loss_scale;
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod metrics;
#[doc(hidden)]
pub mod optimizer;
#[doc(hidden)]
pub mod program;
mod random;
#[doc(hidden)]
pub mod recipe;
mod routers;
#[doc(hidden)]
pub mod stages;
mod trainer;
#[doc(hidden)]
pub mod verify;

pub use builder::TrainerBuilder;
pub use checkpoint::{Checkpoint, Writer};
pub use compile::Layout;
#[doc(hidden)]
pub use compile::{Compiled, Lowered, StepProgram, check, compile, lower};
#[doc(hidden)]
pub use compress::Compress;
/// ```
/// use std::sync::Arc;
///
/// use ascend_tp::train::{CorpusSource, DataOptions, Encoder, Loader};
///
/// let encoder = Arc::new(Encoder::open("models/tiny-qwen2".as_ref(), 512)?);
/// let source = CorpusSource::of("models/tiny-qwen2/text.txt".as_ref(), Some(&encoder), None)
///     .map_err(|problem| problem.to_string())?;
/// let options = DataOptions {
///     sources: vec![source],
///     sequence: 16,
///     global_batch: 2,
///     seed: 7,
///     vocabulary: 512,
///     steps: 10,
///     skip_bad_lines: 0,
/// };
/// let batch = Loader::start(&options, 0)?.next()?;
/// assert_eq!(batch.tokens.len(), 2 * 17);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use data::{Batch, CorpusSource, DataOptions, Encoder, Loader};
pub use error::Error;
#[doc(hidden)]
pub use error::NonFiniteGradient;
pub use layouts::Zero;
#[doc(hidden)]
pub use loss_scale::{LossScale, LossScaling};
pub use optimizer::Optimizer;
pub use program::Recompute;
pub use recipe::{Recipe, Schedule, ScheduleKind, TrainingPrecision};
pub use routers::RouterOutcome;
#[doc(hidden)]
pub use trainer::Times;
pub use trainer::{Progress, StepOutcome, Trainer};
