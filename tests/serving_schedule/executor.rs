//! A model of all ranks: an entry of a cache is the hash of the tokens before it.
//!
//! - Input: the bytes of plans, in order.
//! - Output: sampled tokens.
//! - Invariants: an entry depends on all tokens before it, their forms and the salt. A wrong block,
//!   id, position or state therefore gives other tokens, or fails an assertion.

use std::collections::BTreeMap;

use ascend_tp::base::Id as _;
use ascend_tp::serving::{
    BlockId, DecodeRow, Forms, GroupConfig, ResultRow, RowResult, SchedulerConfig, StepPlan, StepResult,
    StepToken, TableId, Tables, TokenForm,
};

use super::states::States;

/// Number of different tokens. A small one makes equal prefixes and right guesses likely.
const VOCABULARY: u64 = 5;

pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_add(0x2545_f491_4f6c_dd1d);
    x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 32)
}

/// Data of a sequence that the sampler and the embedding need in addition to its tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) salt: u64,
    pub(crate) seed: u64,
    pub(crate) prompt: u32,
}

impl Identity {
    /// Returns the state after one more token.
    pub(crate) fn extend(self, forms: Forms, state: Option<u64>, token: u32, form: TokenForm) -> u64 {
        let form = u64::from(forms == Forms::ByPosition && form == TokenForm::Generated);
        mix(state.unwrap_or(self.salt), u64::from(token) * 2 + form)
    }

    pub(crate) fn sample(self, state: u64) -> u32 {
        u32::try_from(mix(state, self.seed) % VOCABULARY).unwrap()
    }
}

/// An entry of a paged cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    position: u32,
    token: u32,
    form: TokenForm,
    state: u64,
}

pub(crate) struct Executor {
    block_size: u32,
    groups: Vec<GroupConfig>,
    forms: Forms,
    pub(crate) tables: Tables,
    memory: Vec<BTreeMap<(BlockId, u32), Entry>>,
    pub(crate) states: States,
    results: BTreeMap<u64, StepResult>,
    /// Number of references of each block by running tables, in the current step.
    owners: Vec<BTreeMap<BlockId, u32>>,
}

impl Executor {
    pub(crate) fn new(config: &SchedulerConfig) -> Self {
        let rows = *config.decode_rows.last().unwrap() as usize;
        Self {
            block_size: config.block_size.get(),
            groups: config.groups.clone(),
            forms: config.forms,
            tables: Tables::new(config.groups.len(), rows),
            memory: vec![BTreeMap::new(); config.groups.len()],
            states: States::new(config.block_size.get()),
            results: BTreeMap::new(),
            owners: Vec::new(),
        }
    }

    /// Runs one step and returns its results. `identity` describes the sequence of a table.
    pub(crate) fn run(&mut self, plan: &StepPlan, identity: &dyn Fn(TableId) -> Identity) -> StepResult {
        self.tables.apply(plan).unwrap();
        self.count_owners();
        self.states.plan(plan);
        let mut result = StepResult { number: plan.number, ..StepResult::default() };
        if let Some(chunk) = &plan.chunk {
            let identity = identity(chunk.table);
            let (mut state, mut end) = (self.states.read(chunk.state, chunk.start), chunk.start);
            for &token in &chunk.tokens {
                assert_eq!(chunk.form == TokenForm::Prompt, end < identity.prompt, "form of a chunk");
                state = Some(self.compute(chunk.table, end, token, chunk.form, identity, state));
                end += 1;
            }
            let state = state.unwrap();
            self.states.write(chunk.state, end, state);
            let tokens = if chunk.samples {
                [identity.sample(state)].as_slice().into()
            } else {
                [].into_iter().collect()
            };
            result.chunk = Some(RowResult { tokens, stops: false });
        }
        for row in plan.decode.iter().flat_map(|run| &run.rows) {
            result.rows.push(self.run_row(row, identity(row.table)));
        }
        self.results.insert(plan.number, result.clone());
        result
    }

    fn run_row(&mut self, row: &DecodeRow, identity: Identity) -> RowResult {
        assert!(row.position >= identity.prompt, "a prompt token in a row");
        let first = match row.first {
            StepToken::Id(id) => id,
            StepToken::Result(source) => {
                let results = &self.results[&source.step];
                let found = match source.row {
                    ResultRow::Chunk => results.chunk.as_ref().unwrap(),
                    ResultRow::Decode(row) => &results.rows[row as usize],
                };
                *found.tokens.last().unwrap()
            }
        };
        let known = std::iter::once(&first).chain(&row.known);
        let (mut tokens, mut position) = (RowResult::default().tokens, row.position);
        let mut state = self.states.read(row.state, position);
        for &token in known {
            state = Some(self.compute(row.table, position, token, TokenForm::Generated, identity, state));
            position += 1;
        }
        let mut state = state.unwrap();
        self.states.write(row.state, position, state);
        if !row.samples {
            return RowResult::default();
        }
        tokens.push(identity.sample(state));
        let mut is_accepted = true;
        for &draft in &row.drafts {
            is_accepted &= *tokens.last().unwrap() == draft;
            state = self.compute_draft(row.table, position, draft, identity, state);
            if is_accepted {
                tokens.push(identity.sample(state));
            }
            position += 1;
        }
        RowResult { tokens, stops: false }
    }

    fn count_owners(&mut self) {
        let rows = (0..256).map(TableId::from_index);
        self.owners = vec![BTreeMap::new(); self.groups.len()];
        for table in rows {
            for (group, owners) in self.owners.iter_mut().enumerate() {
                for &block in self.tables.get(table, group).map_or(&[][..], |it| it.blocks()) {
                    assert_ne!(block, BlockId::NULL, "a table has the null block");
                    *owners.entry(block).or_default() += 1;
                }
            }
        }
    }

    /// Computes a token from the entries that its query reads. `before` is the expected state
    /// before it, if a recurrent state or the previous token gives one.
    fn compute(
        &mut self,
        table: TableId,
        position: u32,
        token: u32,
        form: TokenForm,
        identity: Identity,
        mut before: Option<u64>,
    ) -> u64 {
        for group in 0..self.groups.len() {
            let start =
                self.groups[group].window.map_or(0, |window| (position + 1).saturating_sub(window.get()));
            let mut last: Option<Entry> = None;
            for read in start..position {
                let entry = self.memory[group][&self.place(table, group, read)];
                assert_eq!(entry.position, read, "{table} reads a foreign entry");
                let chains = last.is_none() && read > 0
                    || identity.extend(self.forms, last.map(|it| it.state), entry.token, entry.form)
                        == entry.state;
                assert!(chains, "{table} reads an entry of other tokens");
                last = Some(entry);
            }
            if let Some(last) = last {
                assert!(before.is_none_or(|before| before == last.state), "{table}: states of other tokens");
                before = Some(last.state);
            }
        }
        self.write(table, position, token, form, identity, before)
    }

    fn compute_draft(
        &mut self,
        table: TableId,
        position: u32,
        token: u32,
        identity: Identity,
        before: u64,
    ) -> u64 {
        self.write(table, position, token, TokenForm::Generated, identity, Some(before))
    }

    fn write(
        &mut self,
        table: TableId,
        position: u32,
        token: u32,
        form: TokenForm,
        identity: Identity,
        before: Option<u64>,
    ) -> u64 {
        let state = identity.extend(self.forms, before, token, form);
        for group in 0..self.groups.len() {
            let place = self.place(table, group, position);
            assert_eq!(self.owners[group][&place.0], 1, "{table} writes {}, which others read", place.0);
            self.memory[group].insert(place, Entry { position, token, form, state });
        }
        state
    }

    fn place(&self, table: TableId, group: usize, position: u32) -> (BlockId, u32) {
        let blocks = self.tables.get(table, group).unwrap();
        let block = blocks.block(position / self.block_size);
        (
            block.unwrap_or_else(|| panic!("{table} lacks position {position} in group {group}: {blocks:?}")),
            position % self.block_size,
        )
    }
}
