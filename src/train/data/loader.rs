//! The batches of a run, in the order of the steps.
//!
//! Input: [`DataOptions`] and the first step. Output: a [`Loader`] and its batches. Invariants: a
//! thread makes the next batches while the cards train. The thread ends when the loader is dropped.
//! Each step has exactly one batch, and the batch does not depend on the step at which the run
//! started.

use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, bounded};
use serde::{Deserialize, Serialize};

use super::dataset::Dataset;
use super::problems::SkippedLines;
use super::{Batch, DataOptions, Error};
use crate::base::{Diagnostic, Diagnostics};

/// Maximum number of batches that are ready in advance.
const AHEAD: usize = 2;

/// The state of the data that a checkpoint stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderState {
    /// Seed of the order of the samples.
    pub seed: u64,
    /// Step of the next batch.
    pub step: u64,
    /// Number of labels of a sample.
    pub sequence: usize,
    /// Samples of a step.
    pub global_batch: usize,
    /// Digest of the names, sizes and first bytes of the files and of the starts of documents. For
    /// texts it covers all ids, and so the tokenizer.
    pub digest: String,
}

impl LoaderState {
    /// Checks that `self`, the state of the resumed run, gives the same batches as the saved run.
    ///
    /// # Errors
    /// Every difference from the saved run, except the step.
    pub fn check_continues(&self, saved: &Self) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        for (what, expected, found) in [
            ("seed", saved.seed.to_string(), self.seed.to_string()),
            ("sequence", saved.sequence.to_string(), self.sequence.to_string()),
            ("global batch", saved.global_batch.to_string(), self.global_batch.to_string()),
            ("digest of the files", saved.digest.clone(), self.digest.clone()),
        ] {
            if expected != found {
                problems.push(
                    Diagnostic::new(
                        format!("data: {what}"),
                        "not the data that the checkpoint was trained on",
                    )
                    .expected(expected)
                    .found(found)
                    .help("resume with the same data, or begin a new run from the checkpoint's weights"),
                );
            }
        }
        problems.into_result(())
    }
}

/// A loader that makes batches in advance on a separate thread.
#[derive(Debug)]
pub struct Loader {
    state: LoaderState,
    skipped: SkippedLines,
    steps: u64,
    /// The queue of batches; `None` while the loader is dropped.
    batches: Option<Receiver<Result<Batch, Error>>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Opens the data and starts to make the batches from `first_step` on.
    ///
    /// # Errors
    /// Every problem of the options and the files, or the thread cannot be started.
    pub fn start(options: &DataOptions, first_step: u64) -> Result<Self, Error> {
        let dataset = Dataset::open(options, first_step)?;
        let state = LoaderState {
            seed: options.seed,
            step: first_step,
            sequence: options.sequence,
            global_batch: options.global_batch,
            digest: dataset.digest(),
        };
        let (steps, skipped) = (options.steps, dataset.skipped());
        let (sender, batches) = bounded(AHEAD);
        let make = move || {
            for step in first_step..steps {
                let batch = dataset.batch(step);
                let failed = batch.is_err();
                if sender.send(batch).is_err() || failed {
                    return;
                }
            }
        };
        let thread = Builder::new().name("data".to_owned()).spawn(make)?;
        Ok(Self { state, skipped, steps, batches: Some(batches), thread: Some(thread) })
    }

    /// Waits for the batch of the next step and returns it.
    ///
    /// # Errors
    /// A file has changed since the run started, no label counts, or the last step is over.
    #[expect(clippy::should_implement_trait, reason = "a batch can fail, and its end is an error")]
    pub fn next(&mut self) -> Result<Batch, Error> {
        if self.state.step >= self.steps {
            return Err(Error::Finished { steps: self.steps });
        }
        let received = self.batches.as_ref().and_then(|batches| batches.recv().ok());
        let batch = received.unwrap_or(Err(Error::Ended))?;
        self.state.step = batch.step + 1;
        Ok(batch)
    }

    /// Returns the bad lines that were skipped.
    #[must_use]
    pub const fn skipped(&self) -> &SkippedLines {
        &self.skipped
    }

    /// Returns the state for a checkpoint. A resumed run continues with the next batch.
    #[must_use]
    #[doc(hidden)]
    pub fn state(&self) -> LoaderState {
        self.state.clone()
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Dropping the receiver ends the thread.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
