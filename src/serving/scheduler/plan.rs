//! Planning: running sequences → the rows and the chunk of one step.
//!
//! Invariants: the budget is never exceeded, and a victim of a preemption has no row in the planned
//! step. Not here: admission.

use smallvec::SmallVec;

use super::config::{DraftPlace, Overlap};
use super::sequence::{SequenceLengths, SequencePhase, SequenceWork};
use super::{Drafter, Flight, FlightRow, Scheduler};
use crate::base::Id as _;
use crate::serving::blocks::BlockId;
use crate::serving::step::{
    Change, Chunk, DecodeRow, DecodeRun, ResultRef, ResultRow, StateStep, StepPlan, StepToken, TableId,
    TokenForm, len,
};

/// The remaining tokens and rows of a step.
#[derive(Debug)]
struct Budget {
    /// Tokens for the chunk, after the padded rows of all running sequences.
    chunk_tokens: u64,
    rows: u32,
    /// False after a sequence lacked a block. Weaker sequences then get no new blocks.
    gives_blocks: bool,
}

/// A step that is being planned.
struct StepDraft {
    budget: Budget,
    chunk: Option<Chunk>,
    rows: Vec<DecodeRow>,
    /// The recurrent states that runs read and leave.
    left: Vec<BlockId>,
    flight: Flight,
    proposed: Vec<u32>,
}

impl Scheduler {
    /// Plans the next step. Returns `None` if the maximum number of steps is in flight, or if no
    /// sequence can compute a token now.
    ///
    /// `drafter` proposes drafts for sequences without steps in flight.
    pub fn plan(&mut self, drafter: &mut Drafter<'_>) -> Option<StepPlan> {
        if self.flights.len() >= self.config.steps_in_flight {
            return None;
        }
        self.admit();
        let mut step = self.empty_step();
        let mut at = 0;
        // Victims are behind `at`, so the order only shrinks there.
        while let Some(ordered) = self.order.get(at) {
            let table = ordered.table;
            match self.running(table).work(&self.config) {
                SequenceWork::DecodeRow => self.add_row(table, &mut step, drafter),
                SequenceWork::Chunk { limit } if step.chunk.is_none() => {
                    self.add_chunk(table, limit, &mut step);
                }
                SequenceWork::Chunk { .. } | SequenceWork::Nothing => {}
            }
            at += 1;
        }
        self.finish(step)
    }

    fn empty_step(&self) -> StepDraft {
        let running = len(&self.order);
        let chunk_tokens = u64::from(self.config.step_tokens) - self.config.decode_tokens(running);
        let rows = match self.config.overlap {
            Overlap::Chained => self.config.max_rows(),
            // Each step in flight has an equal share of the sequences.
            Overlap::Disjoint => {
                running.div_ceil(u32::try_from(self.config.steps_in_flight).unwrap_or(u32::MAX)).max(1)
            }
        };
        StepDraft {
            budget: Budget { chunk_tokens, rows, gives_blocks: true },
            chunk: None,
            rows: Vec::with_capacity(self.order.len()),
            left: Vec::new(),
            flight: Flight {
                number: self.next_step,
                chunk: None,
                rows: Vec::with_capacity(self.order.len()),
            },
            proposed: Vec::new(),
        }
    }

    fn finish(&mut self, step: StepDraft) -> Option<StepPlan> {
        let StepDraft { chunk, rows, left, flight, .. } = step;
        if chunk.is_none() && rows.is_empty() {
            return None;
        }
        left.into_iter().for_each(|state| self.release_state(Some(state)));
        let number = self.next_step;
        self.next_step += 1;
        self.flights.push_back(flight);
        let is_wide =
            self.config.draft_place == DraftPlace::Cards || rows.iter().any(|row| row.token_count() > 1);
        let width = if is_wide { self.config.width() } else { 1 };
        let padded = self.config.padded_rows(len(&rows));
        let decode = (!rows.is_empty()).then_some(DecodeRun { padded, width, rows });
        let changes = std::mem::take(&mut self.changes);
        Some(StepPlan { number, changes, chunk, decode })
    }

    fn add_row(&mut self, table: TableId, step: &mut StepDraft, drafter: &mut Drafter<'_>) {
        if step.budget.rows == 0 {
            return;
        }
        let width = self.config.width();
        let sequence = self.running(table);
        let SequenceLengths { scheduled: start, known, .. } = sequence.lengths;
        let count = known.saturating_sub(start).clamp(1, self.config.known_width());
        let end = start + count;
        step.proposed.clear();
        let limit = (width - count).min(sequence.wanted() - end);
        if limit > 0 && sequence.in_flight == 0 && end == known {
            match self.config.draft_place {
                DraftPlace::Host => drafter(sequence.id, &sequence.tokens, &mut step.proposed),
                DraftPlace::Cards => step.proposed.resize(limit as usize, 0),
            }
            step.proposed.truncate(limit as usize);
            // Drafts take available blocks, but preempt no sequence.
            if !self.has_blocks(table, end + len(&step.proposed), &step.budget) {
                step.proposed.clear();
            }
        }
        let drafts: SmallVec<[u32; 4]> = step.proposed.as_slice().into();
        if !self.grant(table, end + len(&drafts), &mut step.budget) {
            return;
        }
        step.budget.rows -= 1;
        let state = self.next_state(table, step);
        let save = self.save(state, end);
        let result = ResultRef { step: self.next_step, row: ResultRow::Decode(len(&step.rows)) };
        let sequence = self.sequence_mut(table);
        let first = match sequence.tokens.get(start as usize) {
            Some(&id) => StepToken::Id(id),
            None => StepToken::Result(sequence.source.expect("a token without id is in flight")),
        };
        let before = start.checked_sub(1).and_then(|at| sequence.tokens.get(at as usize)).copied();
        let samples = end >= known;
        let further = sequence.tokens.get(start as usize + 1..end as usize).unwrap_or_default();
        let row = DecodeRow {
            table,
            position: start,
            before,
            first,
            known: further.into(),
            drafts: drafts.clone(),
            samples,
            state,
        };
        sequence.lengths.scheduled = end + len(&drafts);
        sequence.lengths.ahead += len(&drafts) + u32::from(samples);
        sequence.lengths.check();
        sequence.drafts = len(&drafts);
        sequence.source = Some(result);
        sequence.in_flight += 1;
        step.rows.push(row);
        step.flight.rows.push(FlightRow { table, end, drafts, samples, save });
    }

    fn add_chunk(&mut self, table: TableId, limit: u32, step: &mut StepDraft) {
        let sequence = self.running(table);
        let SequenceLengths { scheduled: start, known, .. } = sequence.lengths;
        let scores = sequence.scores_prompt();
        let shapes = if scores { &self.config.scored_chunks } else { &self.config.chunks };
        let fits = |shape: &&u32| u64::from(**shape) <= step.budget.chunk_tokens;
        let Some(&largest) = shapes.iter().rev().find(fits) else { return };
        let mut end = limit.min(start.saturating_add(largest));
        // Forks and repeated prompts continue at the last border before the end of the prompt.
        let border = (limit - 1) / self.config.block_size * self.config.block_size.get();
        if self.states.recurrent.is_some() && start < border {
            end = end.min(border);
        }
        let padded = shapes.iter().copied().find(|&shape| shape >= end - start).unwrap_or(largest);
        if !self.grant(table, end, &mut step.budget) {
            return;
        }
        let state = self.next_state(table, step);
        let save = self.save(state, end);
        step.budget.chunk_tokens -= u64::from(padded);
        let result = ResultRef { step: self.next_step, row: ResultRow::Chunk };
        let sequence = self.sequence_mut(table);
        let samples = end == known && sequence.generated() < sequence.max_new;
        let tokens = sequence.tokens[start as usize..end as usize].to_vec();
        let form = if start < sequence.prompt { TokenForm::Prompt } else { TokenForm::Generated };
        sequence.lengths.scheduled = end;
        sequence.lengths.ahead += u32::from(samples);
        sequence.lengths.check();
        sequence.source = Some(result);
        sequence.in_flight += 1;
        step.chunk = Some(Chunk { table, start, tokens, padded, form, samples, scores, state });
        step.flight.chunk = Some(FlightRow { table, end, drafts: SmallVec::new(), samples, save });
    }

    /// Returns whether a sequence can write its recurrent state in place, or to a new one.
    fn has_state(&self, table: TableId) -> bool {
        self.states.recurrent.as_ref().is_none_or(|pool| {
            let is_private = self.running(table).state.is_some_and(|state| pool.is_private(state));
            is_private || pool.available() > 0
        })
    }

    /// Returns the recurrent states of the next run of a sequence. [`Self::grant`] made sure that
    /// there is one to write to.
    fn next_state(&mut self, table: TableId, step: &mut StepDraft) -> Option<StateStep> {
        let pool = self.states.recurrent.as_mut()?;
        let current = &mut self.running[table.index()].as_mut()?.state;
        let from = *current;
        let to = from.filter(|&state| pool.is_private(state)).unwrap_or_else(|| {
            step.left.extend(from);
            pool.allocate().expect("a granted state is available")
        });
        *current = Some(to);
        Some(StateStep { from, to })
    }

    /// Keeps the state of a run that ends at a block border.
    fn save(&mut self, state: Option<StateStep>, end: u32) -> Option<BlockId> {
        let StateStep { to, .. } = state.filter(|_| end % self.config.block_size == 0)?;
        self.states.recurrent.as_mut()?.acquire(to);
        Some(to)
    }

    /// Returns the number of blocks that the table of a group lacks for `end` tokens.
    fn lacking(&self, table: TableId, group: usize, end: u32) -> u32 {
        let held = self.running(table).tables[group].end();
        end.div_ceil(self.config.block_size.get()).saturating_sub(held)
    }

    fn has_blocks(&self, table: TableId, end: u32, budget: &Budget) -> bool {
        self.states.groups.iter().enumerate().all(|(index, group)| {
            let lacking = self.lacking(table, index, end) as usize;
            lacking == 0 || (budget.gives_blocks && lacking <= group.pool.available())
        })
    }

    /// Extends the tables of a sequence to `end` tokens. Preempts weaker sequences if blocks are
    /// lacking. Returns false if the sequence has to wait for blocks or for a recurrent state.
    fn grant(&mut self, table: TableId, end: u32, budget: &mut Budget) -> bool {
        if !self.has_state(table) {
            return false;
        }
        while !self.has_blocks(table, end, budget) {
            if !budget.gives_blocks || !self.preempt_behind(table) {
                budget.gives_blocks = false;
                return false;
            }
        }
        for index in 0..self.states.groups.len() {
            let lacking = self.lacking(table, index, end);
            if lacking == 0 {
                continue;
            }
            let pool = &mut self.states.groups[index].pool;
            let appended: SmallVec<_> = (0..lacking).map_while(|_| pool.allocate()).collect();
            for &block in &appended {
                self.sequence_mut(table).tables[index].push(block);
            }
            let group = u32::try_from(index).unwrap_or(u32::MAX);
            self.changes.push(Change::Extend { table, group, dropped: 0, appended });
        }
        true
    }

    /// Preempts the weakest sequence behind `table`. Returns false if no block became free: no
    /// sequence is weaker, or blocks become free only when steps in flight have completed.
    fn preempt_behind(&mut self, table: TableId) -> bool {
        let is_released_later = |phase: SequencePhase| phase != SequencePhase::Running;
        if self.order.iter().any(|ordered| is_released_later(self.running(ordered.table).phase)) {
            return false;
        }
        let Some(weakest) = self.order.last().map(|ordered| ordered.table) else { return false };
        if weakest == table {
            return false;
        }
        if self.running(weakest).in_flight > 0 {
            self.sequence_mut(weakest).phase = SequencePhase::Leaving;
            return false;
        }
        self.preempt(weakest);
        true
    }
}
