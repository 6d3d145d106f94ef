//! Completion: results of a step → known tokens, published blocks and states, released blocks.
//!
//! Invariant: a wrong result is refused before anything changes. Not here: stop conditions other
//! than the length.

use super::config::DraftPlace;
use super::sequence::SequencePhase;
use super::{Delivery, End, FlightRow, RowResult, Scheduler, StepResult};
use crate::base::{Diagnostic, Id as _};
use crate::serving::step::{Change, TableId, len};

impl Scheduler {
    /// Receives the results of the oldest step in flight.
    ///
    /// # Errors
    /// The number of the step or of its rows differs, or the tokens of a row are not accepted
    /// drafts and one more token.
    pub fn complete(&mut self, result: &StepResult) -> Result<Vec<Delivery>, Diagnostic> {
        self.check_result(result)?;
        let Some(flight) = self.flights.pop_front() else { return Ok(Vec::new()) };
        let mut deliveries = Vec::with_capacity(flight.rows.len() + 1);
        let rows = flight.chunk.iter().zip(&result.chunk).chain(flight.rows.iter().zip(&result.rows));
        for (row, result) in rows {
            deliveries.extend(self.complete_row(row, result));
        }
        Ok(deliveries)
    }

    fn check_result(&self, result: &StepResult) -> Result<(), Diagnostic> {
        let place = format!("result of step {}", result.number);
        let Some(flight) = self.flights.front() else {
            return Err(Diagnostic::new(place, "no step is in flight"));
        };
        if flight.number != result.number {
            let wrong = Diagnostic::new(place, "another step completes next");
            return Err(wrong.expected(flight.number).found(result.number));
        }
        if flight.rows.len() != result.rows.len() || flight.chunk.is_some() != result.chunk.is_some() {
            let rows = |rows: usize, has_chunk| {
                format!("{rows} rows and {} chunk", if has_chunk { "a" } else { "no" })
            };
            let wrong = Diagnostic::new(place, "rows differ from the plan");
            return Err(wrong
                .expected(rows(flight.rows.len(), flight.chunk.is_some()))
                .found(rows(result.rows.len(), result.chunk.is_some())));
        }
        let rows = flight.chunk.iter().zip(&result.chunk).chain(flight.rows.iter().zip(&result.rows));
        for (row, RowResult { tokens, .. }) in rows {
            let most = if row.samples { row.drafts.len() + 1 } else { 0 };
            let accepted = tokens.len().saturating_sub(1);
            let are_drafts = |accepted: &[u32]| match self.config.draft_place {
                DraftPlace::Host => accepted == &row.drafts[..accepted.len()],
                DraftPlace::Cards => true,
            };
            let is_legal =
                tokens.len() <= most && tokens.is_empty() != row.samples && are_drafts(&tokens[..accepted]);
            if !is_legal && self.running(row.table).phase != SequencePhase::Ended {
                let wrong = Diagnostic::new(format!("{place}, {}", row.table), "illegal tokens of a row");
                let expected =
                    format!("a prefix of the drafts {:?} and one token, at most {most} in all", row.drafts);
                return Err(wrong.expected(expected).found(format!("{tokens:?}")));
            }
        }
        Ok(())
    }

    fn complete_row(&mut self, row: &FlightRow, result: &RowResult) -> Option<Delivery> {
        let sequence = self.sequence_mut(row.table);
        sequence.in_flight -= 1;
        let (is_void, in_flight) = (sequence.phase == SequencePhase::Ended, sequence.in_flight);
        if is_void {
            self.release_state(row.save);
            if in_flight == 0 {
                self.release(row.table);
            }
            return None;
        }
        let drafts = len(&row.drafts);
        let new = len(&result.tokens);
        sequence.tokens.extend_from_slice(&result.tokens);
        sequence.lengths.known += new;
        sequence.lengths.computed = row.end + new.saturating_sub(1);
        sequence.lengths.ahead -= drafts + u32::from(row.samples);
        if drafts > 0 {
            // The sequence has no other step in flight. The states of refused drafts are void.
            sequence.drafts = 0;
            sequence.lengths.scheduled = sequence.lengths.computed;
        }
        sequence.lengths.check();
        let stop = (row.samples && result.stops).then_some(End::Stop);
        let end = stop.or_else(|| sequence.end_by_length());
        if end.is_some() {
            sequence.phase = SequencePhase::Ended;
        }
        let id = sequence.id;
        let phase = sequence.phase;
        self.verified_drafts += u64::from(drafts);
        self.accepted_drafts += u64::from(new.saturating_sub(1));
        self.publish(row);
        match (phase, in_flight) {
            (SequencePhase::Ended, 0) => drop(self.release(row.table)),
            (SequencePhase::Leaving, 0) => self.preempt(row.table),
            _ => self.drop_behind_windows(row.table),
        }
        (new > 0 || end.is_some()).then_some(Delivery { sequence: id, tokens: new, end })
    }

    /// Adds the full blocks of computed tokens, and the state after them, to the prefix index.
    fn publish(&mut self, row: &FlightRow) {
        let Some(sequence) = &mut self.running[row.table.index()] else { return };
        let full = sequence.lengths.computed / self.config.block_size;
        if sequence.published == full && row.save.is_none() {
            return;
        }
        sequence.extend_chain(&self.config, sequence.lengths.computed);
        let contents = sequence.chain.blocks();
        for number in sequence.published..full {
            for (group, table) in self.states.groups.iter_mut().zip(&sequence.tables) {
                if let Some(block) = table.block(number) {
                    group.pool.publish(block, &contents[number as usize]);
                }
            }
        }
        sequence.published = full;
        if let (Some(pool), Some(state)) = (&mut self.states.recurrent, row.save) {
            let number = (row.end / self.config.block_size) as usize - 1;
            pool.publish(state, &contents[number]);
            pool.release(state);
        }
    }

    /// Releases the blocks that no later query reads.
    fn drop_behind_windows(&mut self, table: TableId) {
        let Some(sequence) = &mut self.running[table.index()] else { return };
        let size = self.config.block_size.get();
        for ((index, group), blocks) in self.states.groups.iter_mut().enumerate().zip(&mut sequence.tables) {
            let dropped = group.first_block(sequence.lengths.computed, size).saturating_sub(blocks.first());
            if dropped == 0 {
                continue;
            }
            for block in blocks.advance(dropped) {
                group.pool.release(block);
            }
            let group = u32::try_from(index).unwrap_or(u32::MAX);
            self.changes.push(Change::Extend { table, group, dropped, appended: smallvec::SmallVec::new() });
        }
    }
}
