//! Sizes and policy of a scheduler.
//!
//! - Input: a [`SchedulerConfig`].
//! - Output: the problems of the config, and the number of blocks that a sequence needs.
//! - Not here: how many blocks fit a card.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;

use crate::base::{Diagnostic, Diagnostics};
use crate::compile::{CacheSize, Deployment};
use crate::config::ModelConfig;
use crate::serving::blocks::Forms;

/// Sizes and policy of a scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    /// Tokens in a block.
    pub block_size: NonZeroU32,
    /// The groups of paged states. Each group has a separate block table.
    pub groups: Vec<GroupConfig>,
    /// Number of recurrent states, the null state included, if the model has recurrent layers.
    ///
    /// A state is that of one sequence in all recurrent layers. Each running sequence uses one, and
    /// two in steps after a prefix hit or a block border. Other states serve prefix hits. The least
    /// number is the maximum number of running sequences plus 2: with fewer, the first sequence
    /// could wait forever.
    pub states: Option<u32>,
    /// Row counts of the decode programs, ascending. The last one is the maximum number of running
    /// sequences.
    pub decode_rows: Vec<u32>,
    /// Token counts of the prefill programs, ascending.
    pub chunks: Vec<u32>,
    /// Token counts of the prefill programs that return the logits of all positions, ascending.
    /// They are the first of `chunks`; none if no request can ask for logprobs of its prompt.
    pub scored_chunks: Vec<u32>,
    /// Maximum number of drafts in a row. The verify programs have rows of `drafts + 1` tokens.
    pub drafts: u32,
    /// Token budget of a step, counted with padding.
    pub step_tokens: u32,
    /// Maximum number of tokens of a sequence, prompt and answer.
    pub context: u32,
    /// Number of steps of waiting that are worth one level of priority.
    pub ageing: u32,
    /// Maximum number of planned steps that have not completed.
    pub steps_in_flight: usize,
    /// Where drafts are proposed.
    pub draft_place: DraftPlace,
    /// Whether a sequence can be in several steps in flight.
    pub overlap: Overlap,
    /// Whether the bits of a token depend on its form.
    pub forms: Forms,
    /// Secret key of the prefix index.
    pub key: [u8; 16],
}

/// A group of paged states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// Number of blocks, the null block included.
    pub blocks: u32,
    /// Number of keys that a query reads, itself included. `None` is full attention.
    pub window: Option<NonZeroU32>,
}

/// Where drafts are proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftPlace {
    /// The caller proposes them before the step is planned.
    Host,
    /// The run that verifies a draft proposes it. Plans have the id 0 in its place, and all decode
    /// runs have rows of the full width.
    Cards,
}

/// Whether a sequence can be in several steps in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// A sequence is in at most one step in flight. Pipeline stages need this: step `n + 1` starts
    /// before step `n` has sampled.
    Disjoint,
    /// A sequence can be in every step in flight. The cards pass sampled ids to later steps.
    Chained,
}

/// Number of steps of waiting that are worth one level of priority.
const AGEING: u32 = 256;

impl SchedulerConfig {
    /// Returns the config for one pool of cache blocks of a deployment, with a random key.
    #[must_use]
    pub fn of(deployment: &Deployment, model: &ModelConfig) -> Self {
        let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let numbers = |sizes: Vec<usize>| -> Vec<u32> { sizes.into_iter().map(number).collect() };
        let (decode_rows, chunks) = (numbers(deployment.decode_rows()), numbers(deployment.chunks(model)));
        let scored_chunks = numbers(deployment.scored_chunks(model));
        let drafts = number(deployment.drafts);
        let draft_place = if deployment.predicts { DraftPlace::Cards } else { DraftPlace::Host };
        let states = deployment.serving_states(model);
        let group = |CacheSize { window, blocks }: CacheSize| GroupConfig {
            blocks: number(blocks.in_pool().saturating_add(1)),
            window: window.and_then(|window| NonZeroU32::new(number(window))),
        };
        let most = |sizes: &[u32]| sizes.last().copied().unwrap_or(0);
        let mut key = [0; 16];
        for half in key.chunks_mut(8) {
            half.copy_from_slice(&RandomState::new().hash_one(0u8).to_ne_bytes());
        }
        Self {
            block_size: NonZeroU32::new(number(deployment.block_tokens)).unwrap_or(NonZeroU32::MIN),
            groups: deployment.caches(model).into_iter().map(group).collect(),
            states: states.map(|pool| number(pool.in_pool() - 1)),
            step_tokens: most(&decode_rows).saturating_mul(drafts + 1).saturating_add(most(&chunks)),
            decode_rows,
            chunks,
            scored_chunks,
            drafts,
            draft_place,
            context: number(deployment.context),
            ageing: AGEING,
            steps_in_flight: deployment.steps_in_flight(),
            overlap: if deployment.stages == 1 { Overlap::Chained } else { Overlap::Disjoint },
            forms: if states.is_some() { Forms::ByPosition } else { Forms::Same },
            key,
        }
    }

    pub(super) fn problems(&self) -> Diagnostics {
        let mut problems = Diagnostics::new();
        let ascending =
            |list: &[u32]| list.first().is_some_and(|&first| first > 0) && list.is_sorted_by(|a, b| a < b);
        for (name, list) in [("decode_rows", &self.decode_rows), ("chunks", &self.chunks)] {
            if !ascending(list) {
                let wrong = Diagnostic::new(format!("scheduler, {name}"), "illegal program shapes");
                problems.push(wrong.expected("ascending numbers greater than 0").found(format!("{list:?}")));
            }
        }
        if ascending(&self.chunks) && !self.chunks.starts_with(&self.scored_chunks) {
            let wrong = Diagnostic::new("scheduler, scored_chunks", "illegal program shapes");
            let expected = format!("the first of {:?}", self.chunks);
            problems.push(wrong.expected(expected).found(format!("{:?}", self.scored_chunks)));
        }
        if !problems.is_empty() {
            return problems;
        }
        let place = |name: &str| format!("scheduler, {name}");
        let least = self.decode_tokens(self.max_rows()).saturating_add(u64::from(self.chunks[0]));
        if u64::from(self.step_tokens) < least {
            let wrong =
                Diagnostic::new(place("step_tokens"), "a step has no budget for a chunk next to all rows");
            problems.push(wrong.expected(format!("at least {least}")).found(self.step_tokens));
        }
        for (name, value) in [("steps_in_flight", self.steps_in_flight), ("context", self.context as usize)] {
            if value == 0 {
                problems.push(Diagnostic::new(place(name), "too small").expected("at least 1").found(0));
            }
        }
        for (index, group) in self.groups.iter().enumerate() {
            if group.blocks < 2 {
                let wrong = Diagnostic::new(format!("scheduler, group {index}"), "too few blocks");
                problems
                    .push(wrong.expected("at least 2, one of which is the null block").found(group.blocks));
            }
        }
        if let Some(states) = self.states {
            self.state_problems(states, &mut problems);
        }
        problems
    }

    fn state_problems(&self, states: u32, problems: &mut Diagnostics) {
        // Without steps in flight, each running sequence references at most one state. The first
        // sequence may need one more, because it cannot write to a state that others read.
        let least = self.max_rows().saturating_add(2);
        if states < least {
            let wrong = Diagnostic::new("scheduler, states", "too few recurrent states");
            let expected = format!("at least {least}: one per row, one to write, and the null state");
            problems.push(wrong.expected(expected).found(states));
        }
        if self.drafts > 0 {
            let wrong = Diagnostic::new(
                "scheduler, drafts",
                "a refused draft cannot be removed from a recurrent state",
            );
            let wrong = wrong.expected("0, because the model has recurrent layers").found(self.drafts);
            problems.push(wrong.help("start the engine without drafts"));
        }
        for &chunk in self.chunks.iter().filter(|&&chunk| chunk % self.block_size != 0) {
            let wrong = Diagnostic::new("scheduler, chunks", "a chunk ends between two block borders");
            let expected = format!(
                "a multiple of {}, because recurrent states are found at block borders",
                self.block_size
            );
            problems.push(wrong.expected(expected).found(chunk));
        }
    }

    /// Returns the maximum number of running sequences.
    pub(super) fn max_rows(&self) -> u32 {
        self.decode_rows.last().copied().unwrap_or(0)
    }

    /// Returns the number of tokens per row of the verify program.
    pub(super) const fn width(&self) -> u32 {
        self.drafts.saturating_add(1)
    }

    /// Returns the maximum number of known tokens per row. A run that proposes drafts has one.
    pub(super) const fn known_width(&self) -> u32 {
        match self.draft_place {
            DraftPlace::Host => self.width(),
            DraftPlace::Cards => 1,
        }
    }

    /// Returns the smallest program with at least `rows` rows.
    pub(super) fn padded_rows(&self, rows: u32) -> u32 {
        self.decode_rows.iter().copied().find(|&shape| shape >= rows).unwrap_or(rows)
    }

    /// Returns the padded tokens of a decode run of `rows` full rows.
    pub(super) fn decode_tokens(&self, rows: u32) -> u64 {
        if rows == 0 { 0 } else { u64::from(self.padded_rows(rows)) * u64::from(self.width()) }
    }

    /// Returns the largest number of blocks that a sequence of `tokens` positions references at
    /// once in a group.
    pub(super) fn most_blocks(&self, group: GroupConfig, tokens: u32) -> u32 {
        let all = tokens.div_ceil(self.block_size.get());
        let Some(window) = group.window else { return all };
        let largest = self.chunks.last().copied().unwrap_or(0).max(self.width());
        let steps = match self.overlap {
            Overlap::Disjoint => 1,
            Overlap::Chained => u32::try_from(self.steps_in_flight).unwrap_or(u32::MAX),
        };
        // Keys before the first query in flight, and the keys of the steps in flight. Neither is
        // aligned to blocks.
        let span = (window.get() - 1).saturating_add(largest.saturating_mul(steps));
        all.min(span.div_ceil(self.block_size.get()) + 1)
    }
}
