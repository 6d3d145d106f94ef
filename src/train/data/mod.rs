//! The training data: reads files and makes the tokens, labels and document borders of each step.
//!
//! Input: [`CorpusSource`]s and [`DataOptions`]. Output: a [`Loader`], which gives one [`Batch`]
//! per step. [`Loader::start`] reports all problems of the files together.
//!
//! | file | content |
//! |---|---|
//! | `source`, `reader`, `record`, `json`, `encoder` | texts and JSON lines → documents of token ids |
//! | `problems` | bad lines, which may be skipped, and other problems |
//! | `indexed` | Megatron's `.bin` and `.idx`, read and written |
//! | `tokens` | safetensors of ready batches |
//! | `corpus`, `pack`, `order` | the concatenated documents of all files → samples in a seeded order |
//! | `loader` | samples → the batches of the next steps, on a separate thread |
//! | `prepare`, `inspect`, `vocabulary` | the commands `data prepare`, `data inspect` and `data tokenizer` |
//!
//! Invariants:
//! - Sample `k` of step `n` is a pure function of the data, the seed, `n`, `k` and the global
//!   batch. The number of cards does not matter. A run that is resumed at step `n` gets the same
//!   samples as an uninterrupted run.
//! - Each token of an epoch is a label exactly once. Exceptions are the first token of a document,
//!   which has no context, and tokens that the data gives weight zero. The last sample of an epoch
//!   is padded with labels of weight zero. No sample is dropped.
//! - Documents stay in the order of the files; samples are shuffled. A sample may hold parts of
//!   several documents. It stores their borders, so attention never crosses a border.

mod corpus;
mod dataset;
mod digest;
mod encoder;
mod error;
mod indexed;
mod inspect;
mod json;
mod loader;
mod order;
mod pack;
mod prepare;
mod problems;
mod reader;
mod record;
mod source;
mod tokens;
#[cfg(feature = "text")]
mod vocabulary;

pub use encoder::{Document, END_OF_TEXT, Encoder};
pub use error::Error;
pub use indexed::{IGNORE, TokenIndex, TokenType, bin_path, idx_path, prefix_of};
pub use inspect::{FirstDocument, Lengths, NegativeIds, Summary, inspect};
pub use loader::{Loader, LoaderState};
pub use prepare::{PreparedCorpus, prepare};
pub use problems::SkippedLines;
pub use source::{CorpusSource, TextFile, TextFormat};
#[cfg(feature = "text")]
pub use vocabulary::{LearnedTokenizer, learn_tokenizer};

/// Maximum number of tokens of a step.
pub(super) const MOST_TOKENS: usize = 1 << 28;

/// The files and the batch sizes of a run.
#[derive(Clone, Debug)]
pub struct DataOptions {
    /// Files in their order.
    pub sources: Vec<CorpusSource>,
    /// Number of labels of a sample. A sample has one more token.
    pub sequence: usize,
    /// Samples of a step, over all cards and micro-batches.
    pub global_batch: usize,
    /// Seed of the order of the samples.
    pub seed: u64,
    /// Rows of the model's embedding. Every token id must be below.
    pub vocabulary: usize,
    /// Steps of the whole run, including the steps before a resume.
    pub steps: u64,
    /// Maximum number of bad lines to skip, over all texts.
    pub skip_bad_lines: usize,
}

/// The samples of one step.
///
/// # Shapes
/// All arrays are row-major. The model reads `tokens[.., ..sequence]`, and the labels are
/// `tokens[.., 1..]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Number of the step, from 0.
    pub step: u64,
    /// Samples of the step, over all cards.
    pub global_batch: usize,
    /// Number of labels of a sample.
    pub sequence: usize,
    /// Token ids of all samples, `[global_batch, sequence + 1]`.
    pub tokens: Vec<i32>,
    /// Flags of labels, `[global_batch, sequence]`: 1 for a label of weight zero, else 0.
    pub ignore: Vec<u8>,
    /// Position of each input token within its document in this sample, `[global_batch, sequence]`.
    pub positions: Vec<i32>,
    /// Number of each input token's document within this sample, from 0, `[global_batch,
    /// sequence]`. A token attends to earlier tokens with the same number only.
    pub documents: Vec<i32>,
}

impl Batch {
    /// Returns a batch without data, for measuring and checking. Its ids are scattered over the
    /// vocabulary, each sample is one document, and all labels count. The same arguments give the
    /// same batch.
    #[must_use]
    pub fn scattered(step: u64, global_batch: usize, sequence: usize, vocabulary: usize) -> Self {
        let labels = global_batch * sequence;
        let number = |at: u64| i32::try_from(at).unwrap_or_default();
        // Knuth's multiplicative hash: neighbours are far apart.
        let id = |at: u64| (at.wrapping_mul(2_654_435_761) % (1 << 32) * vocabulary as u64) >> 32;
        let tokens = (labels + global_batch) as u64;
        Self {
            step,
            global_batch,
            sequence,
            tokens: (1..=tokens).map(|at| number(id(step * tokens + at))).collect(),
            ignore: vec![0; labels],
            positions: (0..labels).map(|at| number((at % sequence) as u64)).collect(),
            documents: vec![0; labels],
        }
    }

    /// Returns a batch without samples. Its arrays have the final capacity.
    fn with_room(step: u64, global_batch: usize, sequence: usize) -> Self {
        let labels = global_batch * sequence;
        Self {
            step,
            global_batch,
            sequence,
            tokens: Vec::with_capacity(labels + global_batch),
            ignore: Vec::with_capacity(labels),
            positions: Vec::with_capacity(labels),
            documents: Vec::with_capacity(labels),
        }
    }

    /// Returns the number of labels that count in the whole batch. The loss is divided by this
    /// number.
    #[must_use]
    #[doc(hidden)]
    pub fn counted_labels(&self) -> u64 {
        self.ignore.iter().filter(|ignored| **ignored == 0).count() as u64
    }
}

/// Maximum number of problems that are collected per file. A file of a wrong kind has a problem in
/// every line.
const MOST_PROBLEMS: usize = 1000;
