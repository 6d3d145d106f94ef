//! The scheduler: arrivals and completions → the next step.
//!
//! - Input: requests ([`Scheduler::submit`]), cancels, and results of steps.
//! - Output: a [`StepPlan`], and the [`Delivery`]s of a completed step.
//! - Invariants: no clock, no IO, no randomness. [`SequenceLengths`] hold for each sequence. The
//!   strongest running sequence always progresses (see below).
//! - Not here: sampling, stop conditions other than the length, and text.
//!
//! # Policy
//! 1. Sequences are served in the order of their rank: first come, first served, where one level of
//!    priority is worth `ageing` steps of waiting. The rank never changes. A request with `n` more
//!    levels can overtake only if it arrives less than `ageing × n` steps later.
//! 2. The head of the queue is admitted if a table is free, and each group has enough blocks. They
//!    must cover the known tokens of the head and of all running sequences, plus one block per
//!    sequence. No request overtakes the head. The head waits while a stronger sequence needs a
//!    chunk, or a preempted one is still in flight.
//! 3. In the order of rank, each running sequence gets a row or the only chunk of the step.
//! 4. A sequence that lacks a block preempts the last sequence in the order. The victim's blocks
//!    become free at once, or when its steps in flight have completed. Until then, or if no
//!    sequence is weaker, the sequence waits. Weaker sequences get no new blocks in that step.
//!
//! # Recurrent states
//! A run writes the state of its sequence in place if nothing else uses that state. It writes to
//! another one after a prefix hit and after a block border. If a run ends at a block border, its
//! step holds a reference to the written state until the prefix index has it. So prefix hits need
//! no copies. The reference to the state that a run leaves is released when the step is planned: no
//! other run of the step writes to it.
//!
//! # Progress
//! The first sequence in the order is served first, is never a victim, and can preempt all other
//! sequences. [`Scheduler::submit`] refuses requests that do not fit alone. So the first sequence
//! computes a token in each step, unless it, a victim or an ended sequence is still in flight. By
//! rule 1, only a bounded number of later requests can become first.
//!
//! A sequence that needs a recurrent state waits until one is available. The first sequence waits
//! at most until the steps in flight have completed. Then each running sequence references at most
//! one state, and the pool has more states than rows.
//!
//! # Forks
//! The samples of a request are sequences with the same prompt. The first sample computes the
//! prompt. The other samples then take the full blocks as a prefix hit, and compute the rest as a
//! chunk. No block is copied.

mod admit;
mod complete;
mod config;
mod plan;
mod request;
mod sequence;

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;

use crate::base::{Diagnostic, Diagnostics, Id as _};
use crate::serving::blocks::{BlockId, BlockPool, Chain, Group, States};
use crate::serving::step::{BlockTable, Change, TableId, len};
use sequence::{Rank, ScheduledSequence, SequencePhase};

pub use config::{DraftPlace, GroupConfig, Overlap, SchedulerConfig};
pub use request::{
    Delivery, Drafter, End, Load, QueuedRequest, RequestId, RowResult, SequenceId, StepResult,
};
pub use sequence::SequenceLengths;

/// The state of all requests.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    states: States,
    waiting: BTreeMap<Rank, ScheduledSequence>,
    /// Running sequences by table. A free table has `None`.
    running: Vec<Option<ScheduledSequence>>,
    /// The running sequences, the strongest first.
    order: Vec<Ordered>,
    free_tables: Vec<TableId>,
    flights: VecDeque<Flight>,
    /// Changes since the last plan.
    changes: Vec<Change>,
    next_step: u64,
    next_request: u64,
    next_arrival: u64,
    preemptions: u64,
    hit_tokens: u64,
    query_tokens: u64,
    verified_drafts: u64,
    accepted_drafts: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ordered {
    rank: Rank,
    table: TableId,
}

/// A planned step that has not completed.
#[derive(Debug)]
struct Flight {
    number: u64,
    chunk: Option<FlightRow>,
    rows: Vec<FlightRow>,
}

/// A row or chunk of a step in flight.
#[derive(Debug)]
struct FlightRow {
    table: TableId,
    /// Number of tokens of the sequence after the row, without drafts.
    end: u32,
    drafts: SmallVec<[u32; 4]>,
    samples: bool,
    /// The recurrent state after the row, if the row ends at a block border. The step holds a
    /// reference to it until it is published.
    save: Option<BlockId>,
}

impl Scheduler {
    /// Creates a scheduler without requests.
    ///
    /// # Errors
    /// Returns all problems of the config.
    pub fn new(config: SchedulerConfig) -> Result<Self, Diagnostics> {
        config.problems().into_result(())?;
        let group = |group: &GroupConfig| Group {
            pool: BlockPool::new(group.blocks),
            window: group.window.map(std::num::NonZeroU32::get),
        };
        let states = States {
            block_size: config.block_size.get(),
            groups: config.groups.iter().map(group).collect(),
            recurrent: config.states.map(BlockPool::new),
        };
        let rows = config.max_rows() as usize;
        Ok(Self {
            config,
            states,
            waiting: BTreeMap::new(),
            running: (0..rows).map(|_| None).collect(),
            order: Vec::with_capacity(rows),
            free_tables: (0..rows).rev().map(TableId::from_index).collect(),
            flights: VecDeque::new(),
            changes: Vec::new(),
            next_step: 0,
            next_request: 0,
            next_arrival: 0,
            preemptions: 0,
            hit_tokens: 0,
            query_tokens: 0,
            verified_drafts: 0,
            accepted_drafts: 0,
        })
    }

    /// Adds a request to the queue.
    ///
    /// # Errors
    /// The request can never be served: it is empty, longer than the context, or larger than the
    /// cache of a group.
    pub fn submit(&mut self, request: &QueuedRequest) -> Result<RequestId, Diagnostic> {
        self.check(request)?;
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let mut chain = Chain::new(self.config.key, request.salt);
        let age = i64::from(request.priority).saturating_mul(i64::from(self.config.ageing));
        let due = i64::try_from(self.next_step).unwrap_or(i64::MAX).saturating_sub(age);
        for sample in 0..request.samples {
            let known = len(&request.prompt);
            let rank = Rank { due, arrival: self.next_arrival };
            self.next_arrival += 1;
            let mut sequence = ScheduledSequence {
                id: SequenceId { request: id, sample },
                rank,
                prompt: known,
                adapter: request.adapter,
                max_new: request.max_new_tokens,
                wants_prompt_logprobs: request.wants_prompt_logprobs && sample == 0,
                tokens: request.prompt.clone(),
                lengths: SequenceLengths { known, ..SequenceLengths::default() },
                first_hit: None,
                chain,
                published: 0,
                tables: SmallVec::new(),
                state: None,
                phase: SequencePhase::Running,
                in_flight: 0,
                drafts: 0,
                source: None,
            };
            sequence.extend_chain(&self.config, known);
            chain = sequence.chain.clone();
            self.waiting.insert(rank, sequence);
        }
        Ok(id)
    }

    fn check(&self, request: &QueuedRequest) -> Result<(), Diagnostic> {
        let wrong = |message: &str| Diagnostic::new(format!("request {}", self.next_request), message);
        if request.prompt.is_empty() {
            return Err(wrong("the prompt is empty").expected("at least 1 token").found(0));
        }
        if request.samples == 0 {
            return Err(wrong("no samples are requested").expected("at least 1").found(0));
        }
        if request.wants_prompt_logprobs && self.config.scored_chunks.is_empty() {
            return Err(wrong("no program returns the logprobs of a prompt"));
        }
        let length = request.prompt.len() as u64 + u64::from(request.max_new_tokens);
        if length > u64::from(self.config.context) {
            let wrong = wrong("prompt and answer are longer than the context")
                .expected(format!("at most {} tokens", self.config.context));
            return Err(wrong
                .found(length)
                .help("shorten the prompt or pass a smaller maximum of new tokens"));
        }
        let positions = len(&request.prompt) + request.max_new_tokens.max(1) - 1;
        for (index, group) in self.config.groups.iter().enumerate() {
            let (most, capacity) =
                (self.config.most_blocks(*group, positions), self.states.groups[index].pool.capacity());
            if most as usize > capacity {
                let wrong = wrong("prompt and answer do not fit the cache")
                    .expected(format!("at most {capacity} blocks of group {index}"));
                let found = format!("{most} blocks of {} tokens", self.config.block_size);
                return Err(wrong
                    .found(found)
                    .help("shorten the request or start the engine with more cache blocks"));
            }
        }
        Ok(())
    }

    /// Ends all samples of a request.
    ///
    /// Its blocks are released at once, or when the steps in flight have completed. There are no
    /// further deliveries. An unknown or ended request is not an error.
    pub fn cancel(&mut self, request: RequestId) {
        self.waiting.retain(|_, sequence| sequence.id.request != request);
        let tables: Vec<TableId> = self.order.iter().map(|ordered| ordered.table).collect();
        for table in tables {
            let sequence = self.sequence_mut(table);
            if sequence.id.request != request {
                continue;
            }
            sequence.phase = SequencePhase::Ended;
            if sequence.in_flight == 0 {
                self.release(table);
            }
        }
    }

    /// Empties the caches. Running sequences return to the queue, and steps in flight become void:
    /// they have no results.
    pub fn forget_caches(&mut self) {
        for flight in std::mem::take(&mut self.flights) {
            flight.chunk.iter().chain(&flight.rows).for_each(|row| self.release_state(row.save));
        }
        let tables: Vec<TableId> = self.order.iter().map(|ordered| ordered.table).collect();
        for table in tables {
            let sequence = self.sequence_mut(table);
            sequence.in_flight = 0;
            match sequence.phase {
                SequencePhase::Ended => drop(self.release(table)),
                SequencePhase::Running | SequencePhase::Leaving => self.preempt(table),
            }
        }
        self.states.forget();
    }

    /// Returns whether no request waits or runs and no step is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.order.is_empty() && self.flights.is_empty()
    }

    /// Returns counts of sequences and blocks.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            waiting: self.waiting.len(),
            running: self.order.len(),
            steps_in_flight: self.flights.len(),
            available_blocks: self.states.groups.iter().map(|group| group.pool.available()).collect(),
            available_states: self.states.recurrent.as_ref().map(BlockPool::available),
            preemptions: self.preemptions,
            hit_tokens: self.hit_tokens,
            query_tokens: self.query_tokens,
            verified_drafts: self.verified_drafts,
            accepted_drafts: self.accepted_drafts,
        }
    }

    /// Returns the sequence that holds a table. A table in a plan belongs to the same sequence
    /// until the step has completed.
    #[must_use]
    pub fn sequence(&self, table: TableId) -> Option<SequenceId> {
        self.running.get(table.index())?.as_ref().map(|sequence| sequence.id)
    }

    /// Returns the lengths of the sequence that holds a table.
    #[must_use]
    pub fn lengths(&self, table: TableId) -> Option<SequenceLengths> {
        self.running.get(table.index())?.as_ref().map(|sequence| sequence.lengths)
    }

    /// Returns the tokens that the prefix index had when the sequence was admitted first.
    #[must_use]
    pub fn first_hit(&self, table: TableId) -> u32 {
        let sequence = self.running.get(table.index()).and_then(Option::as_ref);
        sequence.and_then(|sequence| sequence.first_hit).unwrap_or(0)
    }

    /// Returns the block table of a running sequence in one group.
    #[must_use]
    pub fn table(&self, table: TableId, group: usize) -> Option<&BlockTable> {
        self.running.get(table.index())?.as_ref()?.tables.get(group)
    }

    fn running(&self, table: TableId) -> &ScheduledSequence {
        self.running[table.index()].as_ref().expect("a table in the order is taken")
    }

    fn sequence_mut(&mut self, table: TableId) -> &mut ScheduledSequence {
        self.running[table.index()].as_mut().expect("a table in the order is taken")
    }

    /// Removes a running sequence, and releases its blocks, state and table.
    fn release(&mut self, table: TableId) -> Option<ScheduledSequence> {
        let mut sequence = self.running[table.index()].take()?;
        self.order.retain(|ordered| ordered.table != table);
        for (group, blocks) in self.states.groups.iter_mut().zip(&sequence.tables) {
            // The block released first is evicted first: the end of a prefix before its start.
            for &block in blocks.blocks().iter().rev() {
                group.pool.release(block);
            }
        }
        self.release_state(sequence.state.take());
        self.free_tables.push(table);
        self.changes.push(Change::Release { table });
        Some(sequence)
    }

    fn release_state(&mut self, state: Option<BlockId>) {
        if let (Some(pool), Some(state)) = (&mut self.states.recurrent, state) {
            pool.release(state);
        }
    }

    /// Returns a running sequence to the queue. It computes its tokens again later.
    fn preempt(&mut self, table: TableId) {
        let Some(mut sequence) = self.release(table) else { return };
        sequence.reset();
        sequence.extend_chain(&self.config, sequence.lengths.known);
        self.preemptions += 1;
        self.waiting.insert(sequence.rank, sequence);
    }
}

#[cfg(test)]
mod tests;
