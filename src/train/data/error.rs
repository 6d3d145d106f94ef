//! What can go wrong between the files and a batch.

use std::io;

use crate::base::Diagnostics;

/// The failure of reading or writing training data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Found before anything ran.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// A file could be read when the run began, and cannot now.
    #[error("step {step}: {place}: cannot be read: {source}")]
    Read {
        /// The step whose batch it was.
        step: u64,
        /// File and tokens.
        place: String,
        /// What the system says.
        source: io::Error,
    },
    /// A token that the model has no row for, in a file that had none when the run began.
    #[error(
        "step {step}: {place}: token beyond the vocabulary: expected ids below {vocabulary}, found {token}; the file has changed"
    )]
    Token {
        /// The step whose batch it was.
        step: u64,
        /// File, document and token.
        place: String,
        /// The id in the file.
        token: i64,
        /// Rows of the model's embedding.
        vocabulary: usize,
    },
    /// A loss over no labels is no number.
    #[error(
        "step {step}: no label of the whole batch counts; a longer sequence or a larger global batch has some"
    )]
    NoLabels {
        /// The step of that batch, from 0.
        step: u64,
    },
    /// More batches were asked for than the run has.
    #[error("the run has {steps} steps, and the batches of all have been given")]
    Finished {
        /// Steps of the run.
        steps: u64,
    },
    /// A batch was asked for after one had failed, or the thread that makes them is gone.
    #[error("the data has ended with an earlier failure")]
    Ended,
    /// What is prepared could not be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}
