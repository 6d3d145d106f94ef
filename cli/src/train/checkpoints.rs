//! The checkpoints that a run writes.
//!
//! Input → output: steps as they are done → checkpoints, one under way at a time. Invariants: a
//! checkpoint is written only if weights moved since the one before, and never after a skipped
//! step, so that none takes the place of a healthy one; a failure to write ends the run at the next
//! step.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascend_tp::train::checkpoint::{Saved, Writer};
use ascend_tp::train::{Progress, StepOutcome, Trainer};
use ascend_tp::world::ProcessGroup;
use serde_json::Value;

use super::super::failure::Failure;

/// Checkpoints of a run that is at work.
pub(super) struct Checkpoints {
    writer: Writer,
    /// The last that is complete.
    last: Option<Saved>,
    /// Updates of the weights in the last one, or in the one that the run began from.
    updates: usize,
    /// Whether one is due that a skipped step has put off.
    is_due: bool,
}

impl Checkpoints {
    /// Begins to write in a folder, of which the newest `keep` stay.
    ///
    /// # Errors
    /// What [`Writer::new`] refuses.
    pub(super) fn begin(
        folder: &Path,
        keep: Option<NonZero<usize>>,
        trainer: &Trainer,
        group: &Arc<ProcessGroup>,
    ) -> Result<Self, Failure> {
        let writer = Writer::new(folder, keep, trainer.sharding().clone(), Arc::clone(group))?;
        Ok(Self { writer, last: None, updates: trainer.progress().updates, is_due: false })
    }

    /// Begins a checkpoint after a step, if one is due; `state` is what it keeps besides tensors.
    ///
    /// # Errors
    /// The checkpoint before could not be written, or a tensor is not finite.
    pub(super) fn after(
        &mut self,
        step: &StepOutcome,
        every: Option<NonZero<usize>>,
        trainer: &mut Trainer,
        state: impl FnOnce(Progress) -> Result<Value, Failure>,
    ) -> Result<(), Failure> {
        if let Some(saved) = self.writer.poll()? {
            self.last = Some(saved);
        }
        self.is_due |= every.is_some_and(|every| (step.step + 1).is_multiple_of(every.get()));
        if self.is_due && !step.is_skipped {
            self.save(trainer, state(trainer.progress())?)?;
        }
        Ok(())
    }

    /// Writes what is not saved yet, if there is a `state`, and waits. Returns the folder of the
    /// last checkpoint of this run, if it wrote any.
    ///
    /// # Errors
    /// A checkpoint could not be written, or a tensor is not finite.
    pub(super) fn finish(
        mut self,
        trainer: &mut Trainer,
        state: Option<Value>,
    ) -> Result<Option<PathBuf>, Failure> {
        if let Some(state) = state.filter(|_| self.updates < trainer.progress().updates) {
            self.save(trainer, state)?;
        }
        let last = self.writer.finish()?.or(self.last);
        Ok(last.map(|saved| saved.path))
    }

    fn save(&mut self, trainer: &mut Trainer, state: Value) -> Result<(), Failure> {
        let before = self.writer.begin(trainer.next_step() as u64, state, trainer.checkpoint_parts()?)?;
        self.last = before.or(self.last.take());
        (self.updates, self.is_due) = (trainer.progress().updates, false);
        Ok(())
    }
}
