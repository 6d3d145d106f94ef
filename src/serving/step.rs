//! One step as plain data.
//!
//! - Input: decisions of the scheduler.
//! - Output: [`StepPlan`], and the block [`Tables`] that a receiver keeps.
//! - Invariants: a plan holds changes of tables, never whole tables. Changes apply in order, before
//!   the programs run.
//! - Not here: which tokens a step computes, and how a program runs them.
//!
//! A receiver runs a plan in this order: the changes, the chunk, the decode run.

mod tables;

use smallvec::SmallVec;

use crate::base::define_id;
use crate::serving::blocks::BlockId;

pub use tables::{BlockTable, Tables};

define_id!(
    /// The index of a running sequence and of its block tables in all groups.
    TableId,
    "table"
);

/// Everything that ranks need to run one step, except the ids of tokens in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// Number of the step. It grows by one.
    pub number: u64,
    /// Changes of the tables since the previous plan, in order.
    pub changes: Vec<Change>,
    /// The prefill run: a chunk of one sequence.
    pub chunk: Option<Chunk>,
    /// The decode run: rows of sequences that generate.
    pub decode: Option<DecodeRun>,
}

/// A change of the tables of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The sequence ended or was preempted, and its table can be used again.
    Release {
        /// The table of the sequence.
        table: TableId,
    },
    /// A sequence starts with empty tables.
    Admit {
        /// The table of the sequence.
        table: TableId,
        /// Length of the prompt in tokens.
        prompt: u32,
        /// The adapter of the sequence, by its position in the model's set.
        adapter: Option<u32>,
    },
    /// The table of one group changes at its ends.
    Extend {
        /// The table of the sequence.
        table: TableId,
        /// The group of paged states.
        group: u32,
        /// Number of blocks that the start of the table advances.
        dropped: u32,
        /// Blocks to append at the end of the table.
        appended: SmallVec<[BlockId; 2]>,
    },
}

/// The recurrent states that a run of one sequence reads and writes.
///
/// No other run of the step reads or writes `to`. Several runs can read one `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateStep {
    /// The state before the first token. `None` at the start of a sequence: the state is zeros.
    pub from: Option<BlockId>,
    /// The state after the last token. It equals `from` if only this sequence uses that state.
    pub to: BlockId,
}

/// The form of a token, by its position in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenForm {
    /// The form of a prompt.
    Prompt,
    /// The form of generated tokens.
    Generated,
}

/// Contiguous tokens of one sequence, all of one form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The table of the sequence.
    pub table: TableId,
    /// Position of the first token.
    pub start: u32,
    /// Ids of the tokens, without padding.
    pub tokens: Vec<u32>,
    /// Number of tokens of the program, with padding on the right.
    pub padded: u32,
    /// The form of all tokens.
    pub form: TokenForm,
    /// Whether the last token's logits give a new token.
    pub samples: bool,
    /// Whether the logits of all tokens are wanted, for logprobs of the prompt.
    pub scores: bool,
    /// The recurrent states, if the model has recurrent layers.
    pub state: Option<StateStep>,
}

/// One run of the decode program, or of the verify program if `width` is greater than 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodeRun {
    /// Number of rows of the program. Padding rows at the end use null blocks.
    pub padded: u32,
    /// Number of tokens per row of the program, with padding on the right.
    pub width: u32,
    /// Rows of sequences, without padding rows.
    pub rows: Vec<DecodeRow>,
}

/// Contiguous tokens of one sequence in the generated form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeRow {
    /// The table of the sequence.
    pub table: TableId,
    /// Position of the first token.
    pub position: u32,
    /// The token before the first one, if its id is known.
    pub before: Option<u32>,
    /// The first token, known or in flight.
    pub first: StepToken,
    /// Further known tokens, which a preemption dropped.
    pub known: SmallVec<[u32; 4]>,
    /// Draft tokens after the known ones.
    pub drafts: SmallVec<[u32; 4]>,
    /// Whether the logits of the last known token and of the drafts give new tokens.
    pub samples: bool,
    /// The recurrent states, if the model has recurrent layers.
    pub state: Option<StateStep>,
}

impl DecodeRow {
    /// Returns the number of tokens, known ones and drafts.
    #[must_use]
    pub fn token_count(&self) -> u32 {
        1 + len(&self.known) + len(&self.drafts)
    }
}

/// The first token of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepToken {
    /// The id is known to the scheduler.
    Id(u32),
    /// The token that a step in flight samples.
    Result(ResultRef),
}

/// A reference to the last token that a row of an earlier step sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultRef {
    /// Number of the step.
    pub step: u64,
    /// The row of that step.
    pub row: ResultRow,
}

/// A sampling row of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultRow {
    /// The chunk of the step.
    Chunk,
    /// A row of the decode run, by its index.
    Decode(u32),
}

/// Returns the length of a list, which is less than the longest context.
pub(super) fn len<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
