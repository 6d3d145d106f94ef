//! The training data: files → the tokens, labels and document borders of each step.
//!
//! Input → output: [`CorpusSource`]s and [`DataOptions`] → [`Loader`] → one [`Batch`] a step.
//! Everything that can be wrong with the files is found by [`Loader::start`], all of it at once.
//!
//! | file | what |
//! |---|---|
//! | `source`, `reader`, `encoder` | texts and JSON lines → documents of token ids |
//! | `indexed` | Megatron's `.bin` and `.idx`, read and written |
//! | `tokens` | safetensors of ready batches |
//! | `corpus`, `pack`, `order` | the documents of all files as one row of tokens → samples, in the order of a seed |
//! | `loader` | samples → the batches of the next steps, on a thread of its own |
//! | `prepare`, `inspect`, `vocabulary` | what the commands `data prepare`, `data inspect` and `data tokenizer` do |
//!
//! Invariants:
//! - Sample `k` of step `n` is a pure function of the data, the seed, `n`, `k` and the global
//!   batch. Nothing here knows how many cards there are, and a run that is continued at step `n`
//!   sees what it would have seen.
//! - Of an epoch each token is a label exactly once, but for the first of a document, which nothing
//!   comes before, and those that the data gives weight zero. The last sample of an epoch is filled
//!   with labels of weight zero; no sample is left out.
//! - Documents stay in the order of the files; samples are shuffled. A sample holds whole documents
//!   and parts of two, and says where they end, so that none sees another.

mod corpus;
mod dataset;
mod digest;
mod encoder;
mod error;
mod indexed;
mod inspect;
mod loader;
mod order;
mod pack;
mod prepare;
mod reader;
mod source;
mod tokens;
#[cfg(feature = "text")]
mod vocabulary;

pub use encoder::{Document, END_OF_TEXT, Encoder};
pub use error::Error;
pub use indexed::{IGNORE, TokenIndex, TokenType, bin_path, idx_path, prefix_of};
pub use inspect::{FirstDocument, Lengths, Summary, inspect};
pub use loader::{Loader, LoaderState};
pub use prepare::{PreparedCorpus, prepare};
pub use source::{CorpusSource, TextFile, TextFormat};
#[cfg(feature = "text")]
pub use vocabulary::{LearnedTokenizer, learn_tokenizer};

/// Greatest number of tokens of a step.
pub(super) const MOST_TOKENS: usize = 1 << 28;

/// Where a run's batches come from and how large they are.
#[derive(Clone, Debug)]
pub struct DataOptions {
    /// The files, one after another.
    pub sources: Vec<CorpusSource>,
    /// Labels of a sample; it has one token more.
    pub sequence: usize,
    /// Samples of a step, over all cards and micro-batches.
    pub global_batch: usize,
    /// Decides the order of the samples.
    pub seed: u64,
    /// Rows of the model's embedding: every token id is below.
    pub vocabulary: usize,
    /// Steps of the whole run, those before a resume included.
    pub steps: u64,
}

/// What a step trains on.
///
/// # Shapes
/// All are row-major. The model reads `tokens[.., ..sequence]`, the labels are `tokens[.., 1..]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The step, from 0.
    pub step: u64,
    /// Samples of the step, over all cards.
    pub global_batch: usize,
    /// Labels of a sample.
    pub sequence: usize,
    /// `[global_batch, sequence + 1]`: token ids.
    pub tokens: Vec<i32>,
    /// `[global_batch, sequence]`: 1 where the label counts nothing, else 0.
    pub ignore: Vec<u8>,
    /// `[global_batch, sequence]`: how far the read token is from the first of its document in this
    /// sample.
    pub positions: Vec<i32>,
    /// `[global_batch, sequence]`: which document of this sample the read token belongs to, from 0.
    /// A token sees those before it with the same number.
    pub documents: Vec<i32>,
}

impl Batch {
    /// One without data, for measuring and checking: ids of the whole vocabulary in no order, one
    /// document a sample, and all labels count. It follows from the numbers alone.
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

    /// One without samples, with room for all.
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

    /// How many labels count, over the whole batch: what the loss is divided by.
    #[must_use]
    pub fn counted_labels(&self) -> u64 {
        self.ignore.iter().filter(|ignored| **ignored == 0).count() as u64
    }
}

/// Most problems of one file that are looked for; a file of another kind has one in every line.
const MOST_PROBLEMS: usize = 1000;
