//! Inputs of a decoder that say which tokens are where: masks and rotary angles.
//!
//! Input: a [`ModelConfig`]. Output: the masks and rotary tables that its programs read.
//!
//! Invariants: the builder of programs and all callers that fill inputs use these lists.

use std::ops::Range;

use crate::base::{DType, HostTensor, Remainder};
use crate::config::{ModelConfig, Rotary};

use super::{CacheBlocks, RunShape, input};
use crate::program::graph::{Program, Role};

/// A mask that programs of a configuration read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskInput {
    /// Name of the input.
    pub name: &'static str,
    /// Number of keys that a token sees, itself included. `None`: all earlier tokens.
    pub window: Option<usize>,
}

impl MaskInput {
    /// Returns whether the mask hides the key at position `key` from the token at position `token`.
    #[must_use]
    pub const fn hides(&self, token: usize, key: usize) -> bool {
        key > token || matches!(self.window, Some(window) if token - key >= window)
    }
}

/// Returns the masks that programs of `config` read: one for layers without a window, and one for
/// layers with it.
#[must_use]
pub fn masks(config: &ModelConfig) -> Vec<MaskInput> {
    let all = MaskInput { name: input::MASK, window: None };
    let window = MaskInput { name: input::WINDOW_MASK, window: config.window() };
    let is_read = |mask: &MaskInput| config.attentions().any(|attention| attention.window == mask.window);
    let mut masks: Vec<MaskInput> = [all, window].into_iter().filter(is_read).collect();
    masks.dedup_by_key(|mask| mask.window);
    masks
}

/// A rotary table that programs of a configuration read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotaryInput {
    /// Name of the input with the cosines.
    pub cos: &'static str,
    /// Name of the input with the sines.
    pub sin: &'static str,
    /// Embedding of the table.
    pub rotary: Rotary,
}

/// Returns the rotary tables that programs of `config` read.
#[must_use]
pub fn rotary_tables(config: &ModelConfig) -> Vec<RotaryInput> {
    let global = RotaryInput { cos: input::COS, sin: input::SIN, rotary: Rotary::Global };
    let local = RotaryInput { cos: input::LOCAL_COS, sin: input::LOCAL_SIN, rotary: Rotary::Local };
    let is_read = |table: &RotaryInput| config.attentions().any(|attention| attention.rotary == table.rotary);
    [global, local].into_iter().filter(is_read).collect()
}

/// Returns the run of a decoder program with one pool; `None` without caches.
#[must_use]
pub fn run_of(program: &Program) -> Option<RunShape> {
    let shape = |name: &str| {
        let id = program.with_role(Role::Input).find(|id| program.values[*id].name == name)?;
        Some(&program.values[id].shape)
    };
    let (ids, table) = (shape(input::IDS)?, shape(input::TABLE)?);
    let cache = &program.values[program.with_role(Role::State).next()?].shape;
    let blocks = CacheBlocks { count: cache[0], rows: cache[1], pools: 1 };
    Some(RunShape { batch: ids[0], sequence: ids[1], table: table[1], blocks })
}

/// Returns the blocks of each sequence of a static batch. Each pool has its null block first, and
/// then the blocks of one sequence after another. Sequences are distributed to the pools in order.
#[must_use]
pub fn sequence_blocks(run: RunShape) -> Vec<Range<usize>> {
    let CacheBlocks { count, pools, .. } = run.blocks;
    let each = (count / pools - 1) / run.batch.div_ceil(pools).max(1);
    let dealt = |pool| Remainder::Balanced.range(run.batch, pools, pool);
    let of_pool = |pool| (0..dealt(pool).len()).map(move |at| 1 + at * each..1 + (at + 1) * each);
    (0..pools).flat_map(of_pool).collect()
}

/// New tokens of one sequence, and the blocks of its cache.
#[derive(Clone, Debug)]
pub struct CacheRow<B> {
    /// Positions of the new tokens. Empty for a row without a sequence.
    pub tokens: Range<usize>,
    /// Blocks of the sequence, in the order of the tokens.
    pub blocks: B,
}

/// The inputs of a decoder about its caches, row-major.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheInputs {
    /// Elements of [`input::SLOTS`].
    pub slots: Vec<i64>,
    /// Elements of [`input::TABLE`].
    pub table: Vec<i32>,
    /// Elements of [`input::POSITIONS`].
    pub positions: Vec<i64>,
    /// Elements of [`input::LENGTHS`].
    pub lengths: Vec<i64>,
}

impl CacheInputs {
    /// Creates the inputs of a run. Padding on the right of a row takes the positions that follow,
    /// and is written to the null block. Rows without a sequence read and write the null block.
    #[must_use]
    pub fn new<B: Iterator<Item = usize> + Clone>(
        run: RunShape,
        rows: impl Iterator<Item = CacheRow<B>>,
    ) -> Self {
        let RunShape { batch, sequence, table, blocks } = run;
        let mut inputs = Self {
            slots: Vec::with_capacity(batch * sequence),
            table: Vec::with_capacity(batch * table),
            positions: Vec::with_capacity(batch * sequence),
            lengths: Vec::with_capacity(batch),
        };
        for CacheRow { tokens, blocks: own } in rows {
            let start = inputs.table.len();
            inputs.table.extend(own.take(table).map(|block| block as i32));
            inputs.table.resize(start + table, CacheBlocks::NULL as i32);
            let own = &inputs.table[start..];
            let place = |at: usize| {
                let block = own.get(at / blocks.rows).filter(|_| tokens.contains(&at));
                block.map_or(CacheBlocks::NULL, |block| *block as usize) * blocks.rows + at % blocks.rows
            };
            let positions = tokens.start..tokens.start + sequence;
            inputs.slots.extend(positions.clone().map(|at| place(at) as i64));
            inputs.positions.extend(positions.map(|at| at as i64));
            inputs.lengths.push((tokens.start + sequence).min(run.length()) as i64);
        }
        inputs
    }
}

/// Returns the inputs of a decoder about its caches, for a static batch: a sequence has the same
/// blocks in each run. `tokens` are the positions of each sequence's new tokens, at least one.
#[must_use]
pub fn cache_inputs(run: RunShape, tokens: &[Range<usize>]) -> [(&'static str, HostTensor); 4] {
    let RunShape { batch, sequence, table, .. } = run;
    let rows = tokens.iter().zip(sequence_blocks(run)).map(|(tokens, blocks)| {
        // Blocks behind the last token stay unread.
        let blocks = blocks.take(tokens.end.div_ceil(run.blocks.rows));
        CacheRow { tokens: tokens.clone(), blocks }
    });
    let CacheInputs { slots, table: tables, positions, lengths } = CacheInputs::new(run, rows);
    let tables = tables.into_iter().map(i64::from).collect();
    [
        (input::SLOTS, HostTensor::int([batch, sequence], DType::I64, slots)),
        (input::TABLE, HostTensor::int([batch, table], DType::I32, tables)),
        (input::POSITIONS, HostTensor::int([batch, sequence], DType::I64, positions)),
        (input::LENGTHS, HostTensor::int([batch], DType::I64, lengths)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_written_to_the_null_block_of_a_pool() {
        let blocks = CacheBlocks { count: 6, rows: 16, pools: 2 };
        let run = RunShape { batch: 2, sequence: 3, table: 2, blocks };
        let [slots, table, positions, lengths] = cache_inputs(run, &[15..18, 2..4]).map(|(_, tensor)| tensor);
        assert_eq!(slots.ints(), [31, 32, 33, 18, 19, 4]);
        assert_eq!(table.ints(), [1, 2, 1, 0]);
        assert_eq!(positions.ints(), [15, 16, 17, 2, 3, 4]);
        assert_eq!(lengths.ints(), [18, 5]);
    }

    #[test]
    fn a_window_of_three_shows_the_token_and_two_before() {
        let mask = MaskInput { name: "mask", window: Some(3) };
        let shown: Vec<usize> = (0..8).filter(|key| !mask.hides(5, *key)).collect();
        assert_eq!(shown, [3, 4, 5]);
        let all = MaskInput { name: "mask", window: None };
        assert_eq!((0..8).filter(|key| !all.hides(2, *key)).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
