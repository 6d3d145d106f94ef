//! The batches of a run, one after another.
//!
//! Input → output: [`DataOptions`] and the first step → [`Loader`] → batches. Invariants: a thread
//! makes the next few while the cards work on one, and ends when the loader does; batches come in
//! the order of their steps, none twice and none left out; which batch a step has does not depend
//! on where the run began.

use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, bounded};
use serde::{Deserialize, Serialize};

use super::dataset::Dataset;
use super::{Batch, DataOptions, Error};
use crate::base::{Diagnostic, Diagnostics};

/// Batches that wait for their step.
const AHEAD: usize = 2;

/// What a checkpoint keeps of the data: which it was, and how far the run is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderState {
    /// The seed of the order.
    pub seed: u64,
    /// The step whose batch comes next.
    pub step: u64,
    /// Labels of a sample.
    pub sequence: usize,
    /// Samples of a step.
    pub global_batch: usize,
    /// Names, sizes and the beginnings of the files, and where documents end; of texts all ids, so
    /// the tokenizer too.
    pub digest: String,
}

impl LoaderState {
    /// Whether a run that was saved goes on with the same batches.
    ///
    /// # Errors
    /// Everything in which `self`, the run that goes on, differs from the one that was saved, but
    /// for the step.
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

/// Makes batches ahead of those who use them.
#[derive(Debug)]
pub struct Loader {
    state: LoaderState,
    steps: u64,
    /// None once the loader ends.
    batches: Option<Receiver<Result<Batch, Error>>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Opens the data and starts to make the batches from `first_step` on.
    ///
    /// # Errors
    /// Everything that is wrong with the options and the files, or the system gives no thread.
    pub fn start(options: &DataOptions, first_step: u64) -> Result<Self, Error> {
        let dataset = Dataset::open(options, first_step)?;
        let state = LoaderState {
            seed: options.seed,
            step: first_step,
            sequence: options.sequence,
            global_batch: options.global_batch,
            digest: dataset.digest(),
        };
        let steps = options.steps;
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
        Ok(Self { state, steps, batches: Some(batches), thread: Some(thread) })
    }

    /// The batch of the next step; waits for it.
    ///
    /// # Errors
    /// A file has changed since the run began, no label counts, or all steps have been given.
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

    /// What to keep so that a later run goes on with the batch that comes next.
    #[must_use]
    pub fn state(&self) -> LoaderState {
        self.state.clone()
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // The thread ends as soon as nobody is there to take a batch.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
