//! KV caches in blocks: groups of caches, and the inputs that say where tokens are stored.
//!
//! Input: the sizes of a run, and the blocks of each sequence. Output: slots, tables, positions and
//! lengths.
//!
//! Invariants: a group has one table for all its layers. The table of a group with a window starts
//! at a multiple of [`PIECE`] tokens, at or before the first key that the run reads. The inputs of
//! a row depend on its own sequence alone. Blocks before the window appear as null blocks.
//!
//! Not here: which blocks belong to a sequence (`serving`), and how many blocks a group has
//! (`compile`).

use std::iter::Skip;
use std::ops::Range;

use super::delta::WINDOW;
use super::input;
use crate::base::{DType, HostTensor, Remainder, common_divisor};
use crate::config::ModelConfig;
use crate::program::graph::{Program, Role, ValueId};
use crate::program::op::Kind;

/// Number of keys that attention sums together. Sums begin at multiples of it, so a table that
/// starts at such a multiple gives the bits of the whole table.
const PIECE: usize = 128;

/// Ending of the names of states with the scales `[blocks, heads, tokens]` of an 8-bit cache.
pub const CACHE_SCALES: &str = ".scales";

/// Sizes of one run.
///
/// ```
/// use ascend_tp::compiler::RunShape;
///
/// // The next token of four sequences, over caches of 1,024 tokens each.
/// let step = RunShape::new(4, 1, 1024);
/// assert_eq!(step.caches.table, 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunShape {
    /// Number of sequences in the run.
    pub batch: usize,
    /// New tokens per sequence. Fewer tokens are padded on the right.
    pub sequence: usize,
    /// Caches of all layers, or of the layers that `windowed` does not have.
    pub caches: CacheGroup,
    /// Caches of the layers with a window, if they have a separate table.
    pub windowed: Option<CacheGroup>,
    /// States of recurrent layers, if the model has any.
    pub states: Option<StatePool>,
}

impl RunShape {
    /// Creates a run over caches that have `length` rows for each of `batch` sequences. All layers
    /// share one table.
    #[must_use]
    pub const fn new(batch: usize, sequence: usize, length: usize) -> Self {
        let blocks = CacheBlocks::of_sequences(batch, length, CacheBlocks::ROWS, 1);
        let caches = CacheGroup { window: None, table: length.div_ceil(blocks.rows), blocks };
        Self { batch, sequence, caches, windowed: None, states: None }
    }

    /// Separates the layers with a window from the other layers of `config`, with caches of the
    /// same size, and adds the states of recurrent layers.
    #[must_use]
    #[doc(hidden)]
    pub fn with_layers_of(mut self, config: &ModelConfig) -> Self {
        self.states = config.remembered_tokens().map(|tokens| StatePool::of_sequences(self.batch, 1, tokens));
        let window = config.window();
        if config.softmax_attentions().all(|attention| attention.window == window) {
            self.caches.window = window;
        } else {
            self.windowed = Some(CacheGroup { window, ..self.caches });
        }
        self
    }

    /// Returns the groups of caches, with the names of their inputs.
    #[doc(hidden)]
    pub fn groups(&self) -> impl Iterator<Item = (CacheNames, CacheGroup)> + use<> {
        let windowed = self.windowed.map(|group| (CacheNames::WINDOWED, group));
        std::iter::once((CacheNames::ALL, self.caches)).chain(windowed)
    }

    /// Returns whether the tables have all rows that a sequence with tokens from `start` reads.
    #[must_use]
    #[doc(hidden)]
    pub fn fits(&self, start: usize) -> bool {
        self.groups().all(|(_, group)| group.rows_read(start, self.sequence) <= group.length())
    }
}

/// Caches of layers that share a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheGroup {
    /// Number of keys that a query reads, itself included, if all layers have this window. `None`:
    /// some layer reads all earlier keys.
    pub window: Option<usize>,
    /// Number of blocks that a sequence can read in one run.
    pub table: usize,
    /// Blocks of the caches. They are the same in all programs of an engine.
    pub blocks: CacheBlocks,
}

impl CacheGroup {
    /// Returns the number of cache rows that a sequence can read.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.table * self.blocks.rows
    }

    /// Returns the number of the first block that tokens from `start` read.
    #[must_use]
    pub fn first_block(&self, start: usize) -> usize {
        self.window.map_or(0, |window| (start + 1).saturating_sub(window) / self.blocks.rows)
    }

    /// Returns the number of the block at which the table of a run starts.
    fn origin(&self, start: usize) -> usize {
        let unit = aligned_tokens(self.blocks.rows) / self.blocks.rows;
        self.first_block(start) / unit * unit
    }

    /// Returns the number of rows from the start of the table to the last of `tokens` tokens.
    fn rows_read(&self, start: usize, tokens: usize) -> usize {
        start + tokens - self.origin(start) * self.blocks.rows
    }

    /// Returns the width of a table that suffices for `tokens` tokens at any position, in blocks.
    #[must_use]
    pub const fn widest_table(window: usize, tokens: usize, rows: usize) -> usize {
        // The window of the first token can begin at the last row before a multiple.
        (window - 1 + tokens + aligned_tokens(rows) - 1).div_ceil(rows)
    }
}

/// Returns the smallest number of tokens that is a multiple of [`PIECE`] and of a block.
const fn aligned_tokens(rows: usize) -> usize {
    PIECE / common_divisor(PIECE, rows) * rows
}

/// Recurrent states of a layer. A state describes one sequence after a number of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StatePool {
    /// Number of states of all pools.
    pub count: usize,
    /// Number of pools of equal size, as in [`CacheBlocks`].
    pub pools: usize,
    /// Number of last tokens in a state, for the convolution of the next ones.
    pub remembered: usize,
}

impl StatePool {
    /// The state that belongs to no sequence. Rows without a sequence are written to it.
    #[doc(hidden)]
    pub const NULL: usize = 0;

    /// Returns the states for `batch` sequences, and the reserved states of each pool.
    #[must_use]
    #[doc(hidden)]
    pub const fn of_sequences(batch: usize, pools: usize, remembered: usize) -> Self {
        let own = batch.div_ceil(if pools == 0 { 1 } else { pools });
        Self { count: own.saturating_add(2).saturating_mul(pools), pools, remembered }
    }

    /// Returns the number of states of each pool, reserved ones included.
    #[must_use]
    #[doc(hidden)]
    pub const fn in_pool(&self) -> usize {
        self.count / if self.pools == 0 { 1 } else { self.pools }
    }

    /// Returns the state that is zero: the state of a sequence before its first token.
    #[must_use]
    pub const fn zero(&self) -> usize {
        self.in_pool().saturating_sub(1)
    }
}

/// State that a run reads for a sequence, and state that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRow {
    /// State after the tokens before the run. `None`: the run has the first token.
    pub from: Option<usize>,
    /// State after the tokens of the run.
    pub to: usize,
}

/// Blocks of the KV caches of a layer.
///
/// ```
/// use ascend_tp::compiler::{CacheBlocks, RunShape};
///
/// // Eight blocks for each sequence, and the block of padding.
/// let blocks = RunShape::new(4, 1, 1024).caches.blocks;
/// assert_eq!((blocks.count, blocks.rows), (33, CacheBlocks::ROWS));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheBlocks {
    /// Number of blocks of all pools.
    pub count: usize,
    /// Rows of a block, one per token.
    pub rows: usize,
    /// Number of pools of equal size. Cards that share the sequences among them have one pool each.
    pub pools: usize,
}

impl CacheBlocks {
    /// Rows of a block by default. CANN takes multiples of 16.
    pub const ROWS: usize = 128;
    /// The block that belongs to no sequence. Padding is written to it, and tables end with it.
    #[doc(hidden)]
    pub const NULL: usize = 0;

    /// Returns the blocks of `rows` rows for `batch` sequences of `length` rows, and the null block
    /// of each pool.
    #[must_use]
    #[doc(hidden)]
    pub const fn of_sequences(batch: usize, length: usize, rows: usize, pools: usize) -> Self {
        let sequences = batch.div_ceil(if pools == 0 { 1 } else { pools });
        // `verify` refuses sizes that saturate.
        let own = sequences.saturating_mul(length.div_ceil(if rows == 0 { 1 } else { rows }));
        Self { count: own.saturating_add(1).saturating_mul(pools), rows, pools }
    }

    /// Returns the blocks of each pool that sequences can use: all but the null block.
    #[must_use]
    #[doc(hidden)]
    pub const fn in_pool(&self) -> usize {
        (self.count / if self.pools == 0 { 1 } else { self.pools }).saturating_sub(1)
    }
}

/// Names of the inputs of one group of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheNames {
    /// Name of the slots.
    pub slots: &'static str,
    /// Name of the table.
    pub table: &'static str,
    /// Name of the positions.
    pub positions: &'static str,
    /// Name of the lengths.
    pub lengths: &'static str,
}

impl CacheNames {
    /// Inputs of [`RunShape::caches`].
    pub const ALL: Self = Self {
        slots: input::SLOTS,
        table: input::TABLE,
        positions: input::POSITIONS,
        lengths: input::LENGTHS,
    };
    /// Inputs of [`RunShape::windowed`].
    const WINDOWED: Self = Self {
        slots: input::WINDOW_SLOTS,
        table: input::WINDOW_TABLE,
        positions: input::WINDOW_POSITIONS,
        lengths: input::WINDOW_LENGTHS,
    };
}

/// Returns the run of a decoder program with one pool; `None` without caches.
#[must_use]
pub fn run_of(program: &Program) -> Option<RunShape> {
    let input = |name: &str| program.with_role(Role::Input).find(|id| program.values[*id].name == name);
    let ids = &program.values[input(input::IDS)?].shape;
    let group = |table: ValueId| {
        let is_reader = |op: &&crate::program::Op| match op.kind {
            Kind::BlockAttention { .. } => op.operands[3] == table,
            Kind::QuantBlockAttention { .. } => op.operands[5] == table,
            _ => false,
        };
        let readers = || program.ops.values().iter().filter(is_reader);
        let window = |op: &crate::program::Op| match op.kind {
            Kind::BlockAttention { window, .. } | Kind::QuantBlockAttention { window, .. } => window,
            _ => None,
        };
        let cache = &program.values[readers().next()?.operands[1]].shape;
        // If some layer reads all keys, so does the group.
        let window = readers().map(window).reduce(|a, b| if a == b { a } else { None })?;
        let blocks = CacheBlocks { count: cache[0], rows: cache[1], pools: 1 };
        Some(CacheGroup { window, table: program.values[table].shape[1], blocks })
    };
    let readers = program.ops.values().iter().filter(|op| matches!(op.kind, Kind::ReadStates { .. }));
    let window = readers.map(|op| &program.values[op.operands[0]]).find(|value| value.name.ends_with(WINDOW));
    let states = window.map(|value| &value.shape);
    let states = states.map(|shape| StatePool { count: shape[0], pools: 1, remembered: shape[1] });
    Some(RunShape {
        batch: ids[0],
        sequence: ids[1],
        caches: group(input(CacheNames::ALL.table)?)?,
        windowed: input(CacheNames::WINDOWED.table).and_then(group),
        states,
    })
}

/// Returns the blocks of each sequence of a static batch. Each pool has its null block first, and
/// then the blocks of one sequence after another. Sequences are distributed to the pools in order.
#[must_use]
pub fn sequence_blocks(batch: usize, blocks: CacheBlocks) -> Vec<Range<usize>> {
    let pools = blocks.pools;
    let each = blocks.in_pool() / batch.div_ceil(pools).max(1);
    let dealt = |pool| Remainder::Balanced.range(batch, pools, pool);
    let of_pool = |pool| (0..dealt(pool).len()).map(move |at| 1 + at * each..1 + (at + 1) * each);
    (0..pools).flat_map(of_pool).collect()
}

/// New tokens of one sequence, and the blocks of its caches in one group.
#[derive(Clone, Debug)]
pub struct CacheRow<B> {
    /// Positions of the new tokens. Empty for a row without a sequence.
    pub tokens: Range<usize>,
    /// Blocks of the sequence.
    pub blocks: SequenceBlocks<B>,
}

/// Blocks of a sequence in one group of caches.
#[derive(Clone, Debug)]
pub struct SequenceBlocks<B> {
    /// Number of the first block, counted from the start of the sequence.
    pub first: usize,
    /// Blocks in the order of the tokens.
    pub blocks: B,
}

impl<B: Iterator<Item = usize>> SequenceBlocks<B> {
    /// Returns the blocks from the block with this number, at least the first one.
    fn skip_to(self, number: usize) -> Skip<B> {
        self.blocks.skip(number - self.first)
    }
}

/// The inputs of a decoder about one group of caches, row-major.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheInputs {
    /// Elements of [`CacheNames::slots`].
    pub slots: Vec<i64>,
    /// Elements of [`CacheNames::table`].
    pub table: Vec<i32>,
    /// Elements of [`CacheNames::positions`].
    pub positions: Vec<i64>,
    /// Elements of [`CacheNames::lengths`].
    pub lengths: Vec<i64>,
}

impl CacheInputs {
    /// Creates the inputs of a run of `sequence` tokens per row. Padding on the right of a row
    /// takes the positions that follow, and is written to the null block. Rows without a sequence
    /// read and write the null block.
    #[must_use]
    pub fn new<B: Iterator<Item = usize>>(
        group: CacheGroup,
        sequence: usize,
        rows: impl Iterator<Item = CacheRow<B>>,
    ) -> Self {
        let CacheGroup { table, blocks, .. } = group;
        let batch = rows.size_hint().0;
        let mut inputs = Self {
            slots: Vec::with_capacity(batch * sequence),
            table: Vec::with_capacity(batch * table),
            positions: Vec::with_capacity(batch * sequence),
            lengths: Vec::with_capacity(batch),
        };
        for CacheRow { tokens, blocks: own } in rows {
            let (origin, read) = (group.origin(tokens.start), group.first_block(tokens.start));
            let read = read.max(own.first);
            let row = inputs.table.len();
            // No token reads the blocks between the start of the table and the window.
            inputs.table.resize(row + (read - origin).min(table), CacheBlocks::NULL as i32);
            let rest = row + table - inputs.table.len();
            inputs.table.extend(own.skip_to(read).take(rest).map(|block| block as i32));
            inputs.table.resize(row + table, CacheBlocks::NULL as i32);
            let own = &inputs.table[row..];
            let before = origin * blocks.rows;
            let place = |at: usize| {
                let block = own.get((at - before) / blocks.rows).filter(|_| tokens.contains(&at));
                block.map_or(CacheBlocks::NULL, |block| *block as usize) * blocks.rows + at % blocks.rows
            };
            let positions = tokens.start..tokens.start + sequence;
            inputs.slots.extend(positions.clone().map(|at| place(at) as i64));
            inputs.positions.extend(positions.map(|at| (at - before) as i64));
            inputs.lengths.push(group.rows_read(tokens.start, sequence).min(group.length()) as i64);
        }
        inputs
    }
}

/// The inputs of a decoder about recurrent states, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateInputs {
    /// Elements of [`input::STATE_FROM`].
    pub from: Vec<i64>,
    /// Elements of [`input::STATE_TO`].
    pub to: Vec<i64>,
    /// Elements of [`input::LAST_TOKENS`]. Empty for runs of one token.
    pub last_tokens: Vec<i64>,
    /// Elements of [`input::VALID`]. Empty for runs of one token.
    pub valid: Vec<f32>,
}

impl StateInputs {
    /// Creates the inputs of a run of `sequence` tokens per row. `rows` has the number of new
    /// tokens of each row and its states, or `None` for a row without a sequence.
    #[must_use]
    pub fn new(
        pool: StatePool,
        sequence: usize,
        rows: impl Iterator<Item = (usize, Option<StateRow>)>,
    ) -> Self {
        let mut inputs = Self::default();
        for (tokens, row) in rows {
            let from = row.and_then(|row| row.from).unwrap_or(pool.zero());
            inputs.from.push(from as i64);
            inputs.to.push(row.map_or(StatePool::NULL, |row| row.to) as i64);
            if sequence > 1 {
                inputs.last_tokens.extend((tokens..tokens + pool.remembered).map(|token| token as i64));
                inputs.valid.extend((0..sequence).map(|token| f32::from(u8::from(token < tokens))));
            }
        }
        inputs
    }
}

/// Returns the states of the sequences of a static batch: each has one state.
pub(crate) fn static_states(pool: StatePool, tokens: &[Range<usize>]) -> Vec<StateRow> {
    let dealt = |at| Remainder::Balanced.range(tokens.len(), pool.pools, at);
    let to = (0..pool.pools).flat_map(|at| (0..dealt(at).len()).map(|row| row + 1));
    tokens
        .iter()
        .zip(to)
        .map(|(tokens, to)| StateRow { from: (tokens.start > 0).then_some(to), to })
        .collect()
}

/// Returns the rows of a static batch in one group: a sequence has the same blocks in each run. If
/// the group has a window, the blocks of a sequence are a ring. `tokens` are the positions of each
/// sequence's new tokens.
pub(crate) fn static_rows(
    group: CacheGroup,
    tokens: &[Range<usize>],
) -> Vec<CacheRow<impl Iterator<Item = usize> + Clone + use<>>> {
    let rows = tokens.iter().zip(sequence_blocks(tokens.len(), group.blocks));
    let row = |(tokens, own): (&Range<usize>, Range<usize>)| {
        // Blocks behind the last token stay unread.
        let end = tokens.end.div_ceil(group.blocks.rows);
        let end = if group.window.is_some() { end } else { end.min(own.len()) };
        let blocks = SequenceBlocks { first: 0, blocks: own.cycle().take(end) };
        CacheRow { tokens: tokens.clone(), blocks }
    };
    rows.map(row).collect()
}

/// Returns the inputs of a decoder about its caches and states, for a static batch. `tokens` are
/// the positions of each sequence's new tokens, at least one.
#[must_use]
pub fn cache_inputs(run: RunShape, tokens: &[Range<usize>]) -> Vec<(&'static str, HostTensor)> {
    let RunShape { batch, sequence, .. } = run;
    let of_group = |(names, group): (CacheNames, CacheGroup)| {
        let rows = static_rows(group, tokens).into_iter();
        let CacheInputs { slots, table, positions, lengths } = CacheInputs::new(group, sequence, rows);
        let table = table.into_iter().map(i64::from).collect();
        [
            (names.slots, HostTensor::int([batch, sequence], DType::I64, slots)),
            (names.table, HostTensor::int([batch, group.table], DType::I32, table)),
            (names.positions, HostTensor::int([batch, sequence], DType::I64, positions)),
            (names.lengths, HostTensor::int([batch], DType::I64, lengths)),
        ]
    };
    let states = run.states.into_iter().flat_map(|pool| {
        let rows = static_states(pool, tokens).into_iter().zip(tokens);
        let rows = rows.map(|(row, tokens)| (tokens.len(), Some(row)));
        let inputs = StateInputs::new(pool, sequence, rows);
        let last = (sequence > 1).then(|| {
            let last = HostTensor::int([batch, pool.remembered], DType::I64, inputs.last_tokens);
            let valid = HostTensor::float([batch, sequence, 1, 1], DType::F32, inputs.valid);
            [(input::LAST_TOKENS, last), (input::VALID, valid)]
        });
        let of_states = [(input::STATE_FROM, inputs.from), (input::STATE_TO, inputs.to)];
        let of_states = of_states.map(|(name, data)| (name, HostTensor::int([batch], DType::I64, data)));
        of_states.into_iter().chain(last.into_iter().flatten())
    });
    run.groups().flat_map(of_group).chain(states).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(run: RunShape, tokens: &[Range<usize>]) -> Vec<Vec<i64>> {
        cache_inputs(run, tokens).into_iter().map(|(_, tensor)| tensor.ints().to_vec()).collect()
    }

    #[test]
    fn padding_is_written_to_the_null_block_of_a_pool() {
        let blocks = CacheBlocks { count: 6, rows: 16, pools: 2 };
        let caches = CacheGroup { window: None, table: 2, blocks };
        let run = RunShape { batch: 2, sequence: 3, caches, windowed: None, states: None };
        let found = ints(run, &[15..18, 2..4]);
        let expected: [&[i64]; 4] =
            [&[31, 32, 33, 18, 19, 4], &[1, 2, 1, 0], &[15, 16, 17, 2, 3, 4], &[18, 5]];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_table_of_a_window_starts_before_the_first_key_that_is_read() {
        let rows = 16;
        for window in [1, 5, 16, 17, 100, 128, 129] {
            for sequence in [1, 3, 40] {
                let table = CacheGroup::widest_table(window, sequence, rows);
                let blocks = CacheBlocks { count: table + 2, rows, pools: 1 };
                let group = CacheGroup { window: Some(window), table, blocks };
                for start in 0..600 {
                    let row = CacheRow {
                        tokens: start..start + sequence,
                        blocks: SequenceBlocks { first: 0, blocks: 100..200 },
                    };
                    let inputs = CacheInputs::new(group, sequence, std::iter::once(row));
                    let before = start as i64 - inputs.positions[0];
                    assert!(before >= 0 && before % 128 == 0, "sums begin at multiples of 128");
                    assert!(inputs.lengths[0] <= group.length() as i64);
                    assert_eq!(inputs.lengths[0], inputs.positions[sequence - 1] + 1);
                    let first = (start + 1).saturating_sub(window);
                    for at in before..(start + sequence) as i64 {
                        let (block, row) = ((at - before) / rows as i64, at % rows as i64);
                        let found = i64::from(inputs.table[block as usize]);
                        let is_read = at / rows as i64 >= (first / rows) as i64;
                        assert_eq!(found, if is_read { 100 + at / rows as i64 } else { 0 });
                        if let Some(token) = usize::try_from(at).unwrap().checked_sub(start) {
                            assert_eq!(inputs.slots[token], found * rows as i64 + row);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_table_needs_no_more_blocks_than_the_widest_one() {
        for rows in [16, 48, 128, 144] {
            for (window, tokens) in [(1, 1), (8, 1), (8, 33), (128, 1), (129, 2), (300, 64)] {
                let blocks = CacheBlocks { count: 9, rows, pools: 1 };
                let table = CacheGroup::widest_table(window, tokens, rows);
                let group = CacheGroup { window: Some(window), table, blocks };
                let read = (0..4000).map(|start| group.rows_read(start, tokens)).max().unwrap();
                assert_eq!(read.div_ceil(rows), table, "blocks of {rows}, {window}, {tokens}");
            }
        }
    }

    #[test]
    fn blocks_of_a_static_batch_are_a_ring_behind_a_window() {
        let blocks = CacheBlocks { count: 7, rows: 128, pools: 1 };
        let caches = CacheGroup { window: None, table: 8, blocks: CacheBlocks { count: 17, ..blocks } };
        let windowed = Some(CacheGroup { window: Some(100), table: 2, blocks });
        let run = RunShape { batch: 2, sequence: 1, caches, windowed, states: None };
        let found = ints(run, &[0..1, 800..801]);
        let tables: [&[i64]; 2] = [&[1, 0, 0, 0, 0, 0, 0, 0, 9, 10, 11, 12, 13, 14, 15, 0], &[1, 0, 6, 4]];
        assert_eq!([&found[1], &found[5]], tables);
        // Position 800 is row 32 of block 6, which is the first of the ring again.
        assert_eq!(
            (&found[4], &found[6], &found[7]),
            (&vec![128, 4 * 128 + 32], &vec![0, 160], &vec![1, 161])
        );
    }
}
