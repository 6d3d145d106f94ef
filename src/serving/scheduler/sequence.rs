//! One sequence: its tokens, lengths and tables.
//!
//! - Input: tokens that are scheduled, computed, and sampled.
//! - Output: the next work of the sequence.
//! - Invariants: [`SequenceLengths`].
//! - Not here: blocks that other sequences hold.

use smallvec::SmallVec;

use super::config::{Overlap, SchedulerConfig};
use super::request::{End, SequenceId};
use crate::serving::blocks::{BlockId, Chain, Forms};
use crate::serving::step::{BlockTable, ResultRef};

/// Place of a sequence in the order of service. Smaller is served first.
///
/// `due` is the step of submission minus `ageing` steps for each level of priority. So a request
/// gains one level for each `ageing` steps of waiting, and the order of two requests never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) due: i64,
    pub(super) arrival: u64,
}

/// The lengths of a sequence in tokens: `cached ≤ computed ≤ scheduled ≤ known + ahead`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceLengths {
    /// Tokens with states from a prefix hit.
    pub cached: u32,
    /// Tokens with states in the caches, from the prefix hit and completed steps.
    pub computed: u32,
    /// Tokens with states after the steps in flight, drafts included.
    pub scheduled: u32,
    /// Tokens with known ids: the prompt and generated tokens.
    pub known: u32,
    /// Drafts in flight, and tokens that steps in flight sample.
    pub ahead: u32,
}

impl SequenceLengths {
    /// Checks the invariant.
    ///
    /// # Panics
    /// The invariant does not hold.
    pub(super) fn check(&self) {
        let holds = self.cached <= self.computed
            && self.computed <= self.scheduled
            && self.scheduled <= self.known + self.ahead;
        assert!(holds, "lengths of a sequence: {self:?}");
    }
}

/// State of a running sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequencePhase {
    /// The sequence gets rows and chunks.
    Running,
    /// The sequence is preempted when its steps in flight have completed.
    Leaving,
    /// The sequence ended. It is released when its steps in flight have completed.
    Ended,
}

/// The work that a sequence needs from the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequenceWork {
    /// The sequence waits for a step in flight.
    Nothing,
    /// A row of the decode run.
    DecodeRow,
    /// A chunk that ends at `limit` at the latest.
    Chunk { limit: u32 },
}

#[derive(Debug)]
pub(super) struct ScheduledSequence {
    pub(super) id: SequenceId,
    pub(super) rank: Rank,
    pub(super) prompt: u32,
    pub(super) adapter: Option<u32>,
    pub(super) max_new: u32,
    /// The client wants logprobs of the prompt, so every prompt token has to be computed.
    pub(super) wants_prompt_logprobs: bool,
    /// Ids of the prompt and of generated tokens.
    pub(super) tokens: Vec<u32>,
    pub(super) lengths: SequenceLengths,
    /// Tokens of the prefix hit at the first admission.
    pub(super) first_hit: Option<u32>,
    pub(super) chain: Chain,
    /// Number of blocks that are in the prefix index or were refused by it.
    pub(super) published: u32,
    pub(super) tables: SmallVec<[BlockTable; 2]>,
    /// The recurrent state after the scheduled tokens. The sequence holds one reference to it.
    pub(super) state: Option<BlockId>,
    pub(super) phase: SequencePhase,
    /// Steps in flight with this sequence.
    pub(super) in_flight: u32,
    /// Drafts in flight. Until they are verified, the next position is unknown.
    pub(super) drafts: u32,
    /// The last result of a step in flight, if its token is the next to compute.
    pub(super) source: Option<ResultRef>,
}

impl ScheduledSequence {
    /// Returns the number of tokens to compute. The last generated token is not computed.
    pub(super) fn wanted(&self) -> u32 {
        self.prompt + self.max_new.max(1) - 1
    }

    /// Returns the number of generated tokens with known ids.
    pub(super) const fn generated(&self) -> u32 {
        self.lengths.known - self.prompt
    }

    /// Returns whether chunks of the prompt return the logits of all positions.
    pub(super) const fn scores_prompt(&self) -> bool {
        self.wants_prompt_logprobs && self.generated() == 0
    }

    pub(super) fn work(&self, config: &SchedulerConfig) -> SequenceWork {
        let is_busy = self.drafts > 0 || (config.overlap == Overlap::Disjoint && self.in_flight > 0);
        let SequenceLengths { scheduled: start, known, ahead, .. } = self.lengths;
        if self.phase != SequencePhase::Running || is_busy || start >= self.wanted().min(known + ahead) {
            SequenceWork::Nothing
        } else if start < self.prompt {
            SequenceWork::Chunk { limit: self.prompt }
        } else if config.forms == Forms::Same && known.saturating_sub(start) > config.known_width() {
            SequenceWork::Chunk { limit: known }
        } else {
            SequenceWork::DecodeRow
        }
    }

    /// Extends the chain to all full blocks before `end`.
    pub(super) fn extend_chain(&mut self, config: &SchedulerConfig, end: u32) {
        let size = config.block_size.get() as usize;
        for number in self.chain.blocks().len()..end as usize / size {
            let tokens = &self.tokens[number * size..(number + 1) * size];
            let prompt_tokens = match config.forms {
                Forms::Same => size,
                Forms::ByPosition => (self.prompt as usize).saturating_sub(number * size).min(size),
            };
            self.chain.push(tokens, u32::try_from(prompt_tokens).unwrap_or(u32::MAX));
        }
    }

    /// Forgets all computed tokens, and the tables.
    pub(super) fn reset(&mut self) {
        self.lengths = SequenceLengths { known: self.lengths.known, ..SequenceLengths::default() };
        self.published = 0;
        self.tables.clear();
        self.drafts = 0;
        self.source = None;
        self.phase = SequencePhase::Running;
    }

    /// Returns [`End::Length`] if the prompt is computed and no token is left to generate.
    pub(super) fn end_by_length(&self) -> Option<End> {
        let is_complete = self.generated() >= self.max_new && self.lengths.computed >= self.prompt;
        is_complete.then_some(End::Length)
    }
}
