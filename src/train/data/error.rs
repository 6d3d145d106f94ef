//! Errors of reading and writing training data.

use std::io;

use crate::base::Diagnostics;

/// The error of reading or writing training data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Problems found before the run starts.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// A file that was readable when the run started can no longer be read.
    #[error("step {step}: {place}: cannot be read: {source}")]
    Read {
        /// Step of the batch.
        step: u64,
        /// File and range of tokens.
        place: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A token beyond the vocabulary, in a file that had no such token when the run started.
    #[error(
        "step {step}: {place}: token beyond the vocabulary: expected ids below {vocabulary}, found {token}; the file has changed"
    )]
    Token {
        /// Step of the batch.
        step: u64,
        /// File, document and position of the token.
        place: String,
        /// Token id in the file.
        token: i64,
        /// Rows of the model's embedding.
        vocabulary: usize,
    },
    /// A batch without a label that counts. Its loss would be NaN.
    #[error(
        "step {step}: no label of the whole batch counts; a longer sequence or a larger global batch has some"
    )]
    NoLabels {
        /// Step of the batch, from 0.
        step: u64,
    },
    /// A batch after the last step was requested.
    #[error("the run has {steps} steps, and the batches of all have been given")]
    Finished {
        /// Number of steps of the run.
        steps: u64,
    },
    /// A batch was requested after an earlier batch failed, or the loader's thread has ended.
    #[error("the data has ended with an earlier failure")]
    Ended,
    /// The prepared data could not be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}
