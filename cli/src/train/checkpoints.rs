//! The checkpoints that a run writes, at most one at a time.
//!
//! A checkpoint is written only if weights have changed since the previous one. No checkpoint is
//! written after a skipped step, so it cannot replace a healthy one. A failed write ends the run at
//! the next step.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascend_tp::train::checkpoint::{Saved, Writer};
use ascend_tp::train::{Progress, StepOutcome, Trainer};
use ascend_tp::world::ProcessGroup;
use serde_json::Value;

use super::super::failure::Failure;

pub(super) struct Checkpoints {
    writer: Writer,
    last: Option<Saved>,
    /// Number of weight updates in the last checkpoint, or in the checkpoint that the run started
    /// from.
    updates: usize,
    /// Whether a checkpoint is due but was delayed by a skipped step.
    is_due: bool,
}

impl Checkpoints {
    /// Starts a writer for a folder, which keeps the newest `keep` checkpoints.
    pub(super) fn begin(
        folder: &Path,
        keep: Option<NonZero<usize>>,
        trainer: &Trainer,
        group: &Arc<ProcessGroup>,
    ) -> Result<Self, Failure> {
        let writer = Writer::new(folder, keep, trainer.sharding().clone(), Arc::clone(group))?;
        Ok(Self { writer, last: None, updates: trainer.progress().updates, is_due: false })
    }

    /// Starts a checkpoint after a step, if one is due. `state` is stored in addition to tensors.
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

    /// Writes unsaved weights, if `state` is given, and waits. Returns the folder of the last
    /// checkpoint of this run.
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
