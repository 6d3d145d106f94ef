//! Admission: waiting sequences → running sequences with a table and a prefix hit.
//!
//! Invariant: the head of the queue is admitted, or no sequence is. Not here: blocks for tokens
//! without a hit. The step that computes such tokens allocates them.

use super::config::SchedulerConfig;
use super::sequence::{Rank, ScheduledSequence, SequenceLengths, SequencePhase, SequenceWork};
use super::{Ordered, Scheduler, SequenceId};
use crate::serving::step::{Change, len};

impl Scheduler {
    /// Admits sequences from the head of the queue.
    pub(super) fn admit(&mut self) {
        while let Some((&rank, head)) = self.waiting.first_key_value() {
            if !self.may_admit(rank, head.id) {
                return;
            }
            let Some(hit) = self.fitting_hit(head) else { return };
            if let Some((_, sequence)) = self.waiting.pop_first() {
                self.start(sequence, hit);
            }
        }
    }

    fn may_admit(&self, rank: Rank, id: SequenceId) -> bool {
        // The first sample computes the prompt for the other samples.
        let waits_for_prompt = |other: &ScheduledSequence| {
            other.id.request == id.request && other.lengths.computed < other.prompt
        };
        let blocks_head = |ordered: &Ordered| {
            let other = self.running(ordered.table);
            let is_stronger_prompt =
                ordered.rank < rank && matches!(other.work(&self.config), SequenceWork::Chunk { .. });
            other.phase == SequencePhase::Leaving
                || is_stronger_prompt
                || (id.sample > 0 && waits_for_prompt(other))
        };
        !self.free_tables.is_empty() && !self.order.iter().any(blocks_head)
    }

    /// Returns the length of the longest prefix hit in blocks, if the sequence fits.
    fn fitting_hit(&self, sequence: &ScheduledSequence) -> Option<usize> {
        let size = self.config.block_size.get();
        // At least one token is computed, because its logits give the next token.
        let limit = if sequence.scores_prompt() { 0 } else { (sequence.lengths.known - 1) / size };
        let hit = self.states.longest_hit(sequence.chain.blocks(), limit as usize);
        let end = u32::try_from(hit).unwrap_or(u32::MAX);
        for (index, group) in self.states.groups.iter().enumerate() {
            let first = group.first_block(end * size, size);
            let hits = &sequence.chain.blocks()[first as usize..hit];
            let idle =
                hits.iter().filter_map(|it| group.pool.find(it)).filter(|&it| group.pool.is_idle(it)).count();
            let new = needed(&self.config, index, sequence, first).saturating_sub(end - first);
            let owed: u32 = self.order.iter().map(|it| self.owed(index, self.running(it.table))).sum();
            if idle + new as usize + owed as usize > group.pool.available() {
                return None;
            }
        }
        Some(hit)
    }

    /// Returns the number of blocks that a running sequence lacks for its known tokens plus one
    /// block.
    fn owed(&self, group: usize, sequence: &ScheduledSequence) -> u32 {
        if sequence.phase != SequencePhase::Running {
            return 0;
        }
        let table = &sequence.tables[group];
        needed(&self.config, group, sequence, table.first()).saturating_sub(len(table.blocks()))
    }

    fn start(&mut self, mut sequence: ScheduledSequence, hit: usize) {
        let Some(table) = self.free_tables.pop() else { return };
        let size = self.config.block_size.get();
        let cached = u32::try_from(hit).unwrap_or(u32::MAX) * size;
        let contents = sequence.chain.blocks();
        self.changes.push(Change::Admit { table, prompt: sequence.prompt, adapter: sequence.adapter });
        sequence.tables = self.config.groups.iter().map(|_| super::BlockTable::default()).collect();
        for ((index, group), blocks) in self.states.groups.iter_mut().enumerate().zip(&mut sequence.tables) {
            let first = group.first_block(cached, size);
            drop(blocks.advance(first));
            for content in &contents[first as usize..hit] {
                if let Some(block) = group.pool.find(content) {
                    group.pool.acquire(block);
                    blocks.push(block);
                }
            }
            if hit > 0 {
                self.changes.push(Change::Extend {
                    table,
                    group: u32::try_from(index).unwrap_or(u32::MAX),
                    dropped: first,
                    appended: blocks.blocks().into(),
                });
            }
        }
        if let (Some(pool), Some(last)) = (&mut self.states.recurrent, hit.checked_sub(1)) {
            sequence.state = pool.find(&contents[last]);
            sequence.state.iter().for_each(|&state| pool.acquire(state));
        }
        let known = sequence.lengths.known;
        sequence.lengths = SequenceLengths { cached, computed: cached, scheduled: cached, known, ahead: 0 };
        sequence.first_hit.get_or_insert(cached);
        sequence.published = cached / size;
        self.hit_tokens += u64::from(cached);
        if !sequence.scores_prompt() {
            self.query_tokens += u64::from(known);
        }
        let at = self.order.partition_point(|ordered| ordered.rank < sequence.rank);
        self.order.insert(at, Ordered { rank: sequence.rank, table });
        self.running[crate::base::Id::index(table)] = Some(sequence);
    }
}

/// Returns the number of blocks that a sequence needs from block `first` for its known tokens, plus
/// one block.
fn needed(config: &SchedulerConfig, group: usize, sequence: &ScheduledSequence, first: u32) -> u32 {
    let size = config.block_size.get();
    let SequenceLengths { known, ahead, .. } = sequence.lengths;
    let end = ((known + ahead).div_ceil(size) + 1).min(sequence.wanted().div_ceil(size));
    end.saturating_sub(first).min(config.most_blocks(config.groups[group], sequence.wanted()))
}
