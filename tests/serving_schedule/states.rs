//! A model of recurrent states: prefixes, users and published states.
//!
//! - Input: plans in order, and the void runs of completed steps.
//! - Invariants: a run reads the state that the last run of its sequence wrote, or a published one.
//!   A run writes to no state that another run, a step in flight or the prefix index uses.

use std::collections::{BTreeMap, BTreeSet};

use ascend_tp::serving::{BlockId, Change, StateStep, StepPlan, TableId};

/// The prefix in a state: length in tokens, and hash.
type Prefix = (u32, u64);

/// A run of one sequence: table, positions, and states.
pub(crate) type Run = (TableId, std::ops::Range<u32>, StateStep);

#[derive(Default)]
pub(crate) struct States {
    block_size: u32,
    prefixes: BTreeMap<BlockId, Prefix>,
    /// The last written state of each running sequence.
    current: BTreeMap<TableId, BlockId>,
    /// States at block borders that steps in flight will publish.
    saved: BTreeSet<BlockId>,
    published: BTreeMap<BlockId, Prefix>,
    pub(crate) hits: u64,
    pub(crate) left: u64,
    pub(crate) evicted: u64,
}

/// Returns the runs of a plan with recurrent states, in the order of results.
pub(crate) fn runs(plan: &StepPlan) -> Vec<Run> {
    let length = |tokens: usize| u32::try_from(tokens).unwrap();
    let chunk = plan.chunk.iter();
    let chunk = chunk.map(|it| (it.table, it.start..it.start + length(it.tokens.len()), it.state));
    let rows = plan.decode.iter().flat_map(|run| &run.rows);
    let rows = rows.map(|row| (row.table, row.position..row.position + row.token_count(), row.state));
    chunk.chain(rows).filter_map(|(table, positions, state)| Some((table, positions, state?))).collect()
}

impl States {
    pub(crate) fn new(block_size: u32) -> Self {
        Self { block_size, ..Self::default() }
    }

    /// Checks the runs of the next step, before the first run reads or writes.
    pub(crate) fn plan(&mut self, plan: &StepPlan) {
        for change in &plan.changes {
            if let Change::Release { table } = change {
                self.current.remove(table);
            }
        }
        let runs = runs(plan);
        for (at, (table, positions, StateStep { from, to })) in runs.iter().enumerate() {
            assert_ne!(*to, BlockId::NULL, "{table} writes to the null state");
            if let Some(current) = self.current.get(table) {
                assert_eq!(*from, Some(*current), "{table} does not read what it wrote");
            } else {
                assert_eq!(from.is_none(), positions.start == 0, "{table} starts at {positions:?}");
                assert!(from.is_none_or(|from| self.published.contains_key(&from)), "{table} has no hit");
                self.hits += u64::from(from.is_some());
            }
            let others = || runs.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, run)| run.2);
            assert!(others().all(|other| other.to != *to && other.from != Some(*to)), "{to} is used twice");
            let is_current = |(other, current): (&TableId, &BlockId)| other != table && current == to;
            assert!(!self.current.iter().any(is_current), "{table} writes to {to} of another sequence");
            assert!(!self.saved.contains(to), "{table} writes to {to}, which a step in flight publishes");
            if *from == Some(*to) {
                assert!(!self.published.contains_key(to), "{table} writes to {to}, which the index can find");
            }
            self.left += u64::from(from.is_some_and(|from| from != *to));
        }
        for (table, positions, StateStep { to, .. }) in runs {
            self.evicted += u64::from(self.published.remove(&to).is_some());
            self.current.insert(table, to);
            if positions.end.is_multiple_of(self.block_size) {
                self.saved.insert(to);
            }
        }
    }

    /// Returns the prefix that a run continues.
    pub(crate) fn read(&self, state: Option<StateStep>, start: u32) -> Option<u64> {
        let (length, hash) = self.prefixes[&state?.from?];
        assert_eq!(length, start, "state of another position");
        Some(hash)
    }

    pub(crate) fn write(&mut self, state: Option<StateStep>, length: u32, hash: u64) {
        if let Some(StateStep { to, .. }) = state {
            self.prefixes.insert(to, (length, hash));
        }
    }

    /// Publishes the state of a completed run that ended at a block border.
    pub(crate) fn complete(&mut self, (_, positions, StateStep { to, .. }): Run, is_void: bool) {
        if !positions.end.is_multiple_of(self.block_size) {
            return;
        }
        assert!(self.saved.remove(&to));
        let prefix = self.prefixes[&to];
        assert_eq!(prefix.0, positions.end, "{to} changed before it was published");
        if !is_void && !self.published.values().any(|known| *known == prefix) {
            self.published.insert(to, prefix);
        }
    }
}
