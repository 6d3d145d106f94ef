//! The data of a run: ready batches, or samples of documents.
//!
//! Input: [`DataOptions`]. Output: a [`Dataset`], or all problems; the batch of any step.
//! Invariant: problems of later steps that can be known at the start are reported at the start.

use std::ops::Range;

use super::corpus::Corpus;
use super::digest::Digest;
use super::pack::PackedCorpus;
use super::problems::SkippedLines;
use super::source::CorpusSource;
use super::tokens::ReadyBatches;
use super::{Batch, DataOptions, Error, MOST_PROBLEMS, MOST_TOKENS};
use crate::base::{Diagnostic, Diagnostics};

#[derive(Debug)]
pub(super) enum Dataset {
    Packed(PackedCorpus),
    Ready(ReadyBatches),
}

impl Dataset {
    /// Opens the files for a run that starts at `first_step`.
    pub(super) fn open(options: &DataOptions, first_step: u64) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        for (name, number) in [("sequence", options.sequence), ("global batch", options.global_batch)] {
            if number == 0 {
                problems.push(Diagnostic::new(name, "nothing to train on").expected("at least 1").found(0));
            }
        }
        let tokens = options.global_batch.checked_mul(options.sequence);
        if tokens.is_none_or(|tokens| tokens > MOST_TOKENS) {
            let found = format!("{} sequences of {} tokens", options.global_batch, options.sequence);
            let problem = Diagnostic::new("global batch", "more tokens than a step can have");
            problems.push(problem.expected(format!("at most {MOST_TOKENS}")).found(found));
        }
        let has_sizes = problems.is_empty();
        let opened = match options.sources.as_slice() {
            [] => Err(Diagnostic::new("data", "no files").into()),
            [CorpusSource::Tokens { path }] => ReadyBatches::open(path, options).map(Self::Ready),
            _ => Corpus::open(options).and_then(|corpus| {
                if has_sizes {
                    Ok(Self::Packed(PackedCorpus::new(corpus, options)?))
                } else {
                    Err(Diagnostics::new())
                }
            }),
        };
        match opened {
            Ok(dataset) if problems.is_empty() => {
                dataset.check_labels(first_step..options.steps, &mut problems);
                problems.into_result(dataset)
            }
            Ok(_) => Err(problems),
            Err(found) => {
                problems.append(found);
                Err(problems)
            }
        }
    }

    /// Returns the batch of a step.
    ///
    /// # Errors
    /// A file has changed since it was opened, or no label counts.
    pub(super) fn batch(&self, step: u64) -> Result<Batch, Error> {
        let batch = match self {
            Self::Packed(packed) => packed.batch(step)?,
            Self::Ready(ready) => ready.batch(step)?,
        };
        if batch.counted_labels() == 0 { Err(Error::NoLabels { step }) } else { Ok(batch) }
    }

    pub(super) fn skipped(&self) -> SkippedLines {
        match self {
            Self::Packed(packed) => packed.corpus.skipped().clone(),
            Self::Ready(_) => SkippedLines::default(),
        }
    }

    pub(super) fn digest(&self) -> String {
        let mut digest = Digest::new();
        match self {
            Self::Packed(packed) => packed.corpus.add_to(&mut digest),
            Self::Ready(ready) => digest = ready.digest(),
        }
        digest.text()
    }

    /// Reports the steps without a label that counts, if the data itself gives labels weight zero.
    fn check_labels(&self, steps: Range<u64>, problems: &mut Diagnostics) {
        let has_ignored = match self {
            Self::Packed(packed) => packed.corpus.has_ignored(),
            Self::Ready(ready) => ready.has_ignored(),
        };
        if !has_ignored {
            return;
        }
        for step in steps {
            let problem = match self.batch(step) {
                Ok(_) => continue,
                Err(Error::NoLabels { .. }) => {
                    Diagnostic::new(format!("step {step}"), "no label of the whole batch counts")
                        .help("a longer sequence or a larger global batch has some")
                }
                Err(error) => Diagnostic::new("data", error.to_string()),
            };
            problems.push(problem);
            if problems.items().len() == MOST_PROBLEMS {
                return;
            }
        }
    }
}
