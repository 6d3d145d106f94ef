//! Inputs of a decoder program that change from run to run.
//!
//! Input: the new tokens of each row, and the blocks of its caches. Output: the inputs by name.
//!
//! Invariant: the inputs of a token depend on its own sequence alone: on its position, and on the
//! length of the prompt if rotary frequencies do.

use std::ops::Range;

use smallvec::SmallVec;

use crate::base::DType;
use crate::config::{LengthDependence, ModelConfig};
use crate::exec::{Elements, NamedTensors};
use crate::program::HostTensor;
use crate::program::models::{
    CacheBlocks, CacheInputs, CacheRow, Head, PROPOSING_TOKENS, PredictionPart, RotaryInput, RunShape,
    SequenceBlocks, StateInputs, StateRow, input, rotary_tables, static_rows, static_states,
};

/// New tokens of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct SequenceInput<'a> {
    /// At most the run's sequence length. Empty in a row without a sequence.
    pub ids: &'a [u32],
    /// Position of the first token.
    pub start: usize,
    /// Number of tokens in the prompt.
    pub prompt_length: usize,
}

impl SequenceInput<'_> {
    /// The tokens of a row without a sequence.
    pub const NONE: Self = Self { ids: &[], start: 0, prompt_length: 1 };
}

/// One row of a run: new tokens, and the blocks of the sequence's caches.
#[derive(Clone, Debug)]
pub struct InputRow<'a, B> {
    /// The new tokens.
    pub tokens: SequenceInput<'a>,
    /// Blocks of the sequence in each group of caches.
    pub groups: SmallVec<[SequenceBlocks<B>; 2]>,
    /// States of the sequence in recurrent layers, if the model has such layers.
    pub state: Option<StateRow>,
    /// The adapter that the sequence chose, by its position in the model's set.
    pub adapter: Option<usize>,
}

/// Builds the inputs of a model's programs.
#[derive(Debug)]
pub struct InputBuilder {
    config: ModelConfig,
    dtype: DType,
    rotary: Vec<RotaryRows>,
}

/// Cosines and sines of all positions so far, in bytes. Unused if frequencies depend on a length.
#[derive(Debug)]
struct RotaryRows {
    table: RotaryInput,
    cos: Vec<u8>,
    sin: Vec<u8>,
}

/// Number of positions that are added to a table of rotary rows at once.
const ROTARY_STEP: usize = 1024;

impl InputBuilder {
    /// Creates the builder for programs with activations of `dtype`.
    #[must_use]
    pub fn new(config: &ModelConfig, dtype: DType) -> Self {
        let rows = |table| RotaryRows { table, cos: Vec::new(), sin: Vec::new() };
        let rotary = rotary_tables(config).into_iter().map(rows).collect();
        Self { config: config.clone(), dtype, rotary }
    }

    /// Returns the inputs of a run without the ids. Short rows are padded on the right. Padding is
    /// written to the null block.
    pub fn inputs<B: Iterator<Item = usize> + Clone>(
        &mut self,
        run: RunShape,
        head: Head,
        rows: &[InputRow<'_, B>],
    ) -> NamedTensors {
        let RunShape { batch: b, sequence: s, .. } = run;
        let mut tensors = NamedTensors::new();
        for (at, (names, group)) in run.groups().enumerate() {
            let caches = rows.iter().map(|row| CacheRow {
                tokens: row.tokens.start..row.tokens.start + row.tokens.ids.len(),
                blocks: row.groups[at].clone(),
            });
            let CacheInputs { slots, table, positions, lengths } = CacheInputs::new(group, s, caches);
            tensors.set(names.slots, Elements::of_i64([b, s], slots));
            tensors.set(names.table, Elements::of_i32([b, group.table], table));
            tensors.set(names.positions, Elements::of_i64([b, s], positions));
            tensors.set(names.lengths, Elements::of_i64([b], lengths));
        }
        if let Some(pool) = run.states {
            let rows = rows.iter().map(|row| (row.tokens.ids.len(), row.state));
            let StateInputs { from, to, last_tokens, valid } = StateInputs::new(pool, s, rows);
            tensors.set(input::STATE_FROM, Elements::of_i64([b], from));
            tensors.set(input::STATE_TO, Elements::of_i64([b], to));
            if s > 1 {
                tensors.set(input::LAST_TOKENS, Elements::of_i64([b, pool.remembered], last_tokens));
                tensors.set(input::VALID, HostTensor::float([b, s, 1, 1], DType::F32, valid));
            }
        }
        let rank = self.config.adapters.rank();
        if rank > 0 {
            let mut hidden = vec![true; b * rank];
            for (own, row) in hidden.chunks_exact_mut(rank).zip(rows) {
                if let Some(adapter) = row.adapter {
                    own[self.config.adapters.rows(adapter)].fill(false);
                }
            }
            tensors.set(input::ADAPTERS, hidden);
        }
        for rotary in &mut self.rotary {
            let names = rotary.table;
            let starts = rows.iter().map(|row| (row.tokens.start, row.tokens.prompt_length));
            let (cos, sin) = rotary.of(&self.config, self.dtype, s, starts);
            let shape = [b, s, self.config.rope_of(names.rotary).rotated_dims(self.config.head_dim)];
            tensors.set(names.cos, Elements::of_bytes(shape, self.dtype, cos));
            tensors.set(names.sin, Elements::of_bytes(shape, self.dtype, sin));
        }
        if let Some(logn) = &self.config.logn {
            let scales = rows.iter().flat_map(|row| {
                let positions: Vec<usize> = (row.tokens.start..row.tokens.start + s).collect();
                logn.scale(&positions)
            });
            tensors.set(input::LOGN, HostTensor::float([b, s, 1, 1, 1], self.dtype, scales.collect()));
        }
        if !head.is_of_all() {
            let last = rows.iter().map(|row| row.tokens.ids.len().saturating_sub(1) as i64);
            tensors.set(input::LAST, Elements::of_i64([b], last.collect()));
        }
        tensors
    }

    /// Adds the inputs of the layer for multi-token prediction. Rows of a run that proposes drafts
    /// start with the last known token.
    pub fn add_prediction<B: Iterator<Item = usize> + Clone>(
        &mut self,
        tensors: &mut NamedTensors,
        run: RunShape,
        part: PredictionPart,
        rows: &[InputRow<'_, B>],
    ) {
        let (b, s, group) = (run.batch, PROPOSING_TOKENS, run.caches);
        // Tokens of each row, with the first one at most `before` tokens before the row.
        let cached = |before: usize, tokens: usize| {
            let of_row = move |row: &InputRow<'_, B>| {
                let start = row.tokens.start.saturating_sub(before);
                let end = if row.tokens.ids.is_empty() { start } else { start + tokens };
                CacheRow { tokens: start..end, blocks: row.groups[0].clone() }
            };
            CacheInputs::new(group, tokens, rows.iter().map(of_row))
        };
        match part {
            PredictionPart::Fills => {
                let mut from = cached(1, 1).slots;
                // Nothing is before the first token of a sequence.
                let firsts = from.iter_mut().zip(rows).filter(|(_, row)| row.tokens.start == 0);
                firsts.for_each(|(from, _)| *from = CacheBlocks::NULL as i64);
                tensors.set(input::HIDDEN_FROM, Elements::of_i64([b], from));
            }
            PredictionPart::Proposes => {
                let mut from = cached(2, s).slots;
                for (from, row) in from.chunks_exact_mut(s).zip(rows) {
                    // The second token of a sequence has one token before.
                    if row.tokens.start == 1 {
                        from.copy_within(..1, 1);
                        from[0] = CacheBlocks::NULL as i64;
                    }
                }
                tensors.set(input::HIDDEN_FROM, Elements::of_i64([b * s], from));
                let CacheInputs { slots, positions, lengths, .. } = cached(1, s);
                tensors.set(input::DRAFT_SLOTS, Elements::of_i64([b, s], slots));
                tensors.set(input::DRAFT_POSITIONS, Elements::of_i64([b, s], positions));
                tensors.set(input::DRAFT_LENGTHS, Elements::of_i64([b], lengths));
                // Models with a second rotary embedding do not draft.
                if let Some(rotary) = self.rotary.first_mut() {
                    let starts =
                        rows.iter().map(|row| (row.tokens.start.saturating_sub(1), row.tokens.prompt_length));
                    let (cos, sin) = rotary.of(&self.config, self.dtype, s, starts);
                    let shape = [b, s, self.config.rope.rotated_dims(self.config.head_dim)];
                    tensors.set(input::DRAFT_COS, Elements::of_bytes(shape, self.dtype, cos));
                    tensors.set(input::DRAFT_SIN, Elements::of_bytes(shape, self.dtype, sin));
                }
            }
        }
    }
}

impl RotaryRows {
    /// Returns the rows of all tokens, padding included, in the bytes of `dtype`.
    /// `rows` has the position of the first token of each row, and the length of its prompt.
    fn of(
        &mut self,
        config: &ModelConfig,
        dtype: DType,
        tokens: usize,
        rows: impl ExactSizeIterator<Item = (usize, usize)>,
    ) -> (Vec<u8>, Vec<u8>) {
        let rope = config.rope_of(self.table.rotary);
        let bytes = |floats: Vec<f32>| HostTensor::float([floats.len()], dtype, floats).to_bytes();
        let row_bytes = rope.rotated_dims(config.head_dim) * dtype.size_bytes();
        let room = rows.len() * tokens * row_bytes;
        let (mut cos, mut sin) = (Vec::with_capacity(room), Vec::with_capacity(room));
        for (start, prompt_length) in rows {
            let positions = start..start + tokens;
            if rope.length_dependence() == LengthDependence::Fixed {
                let known = self.cos.len() / row_bytes.max(1);
                if known < positions.end {
                    let new: Vec<usize> = (known..positions.end.next_multiple_of(ROTARY_STEP)).collect();
                    let (new_cos, new_sin) = rope.cos_sin(config.head_dim, &new, 0);
                    self.cos.extend(bytes(new_cos));
                    self.sin.extend(bytes(new_sin));
                }
                let range = positions.start * row_bytes..positions.end * row_bytes;
                cos.extend_from_slice(&self.cos[range.clone()]);
                sin.extend_from_slice(&self.sin[range]);
                continue;
            }
            for position in positions {
                let length = match rope.length_dependence() {
                    LengthDependence::Current => prompt_length.max(position + 1),
                    LengthDependence::Prompt | LengthDependence::Fixed => prompt_length,
                };
                let (new_cos, new_sin) = rope.cos_sin(config.head_dim, &[position], length);
                cos.extend(bytes(new_cos));
                sin.extend(bytes(new_sin));
            }
        }
        (cos, sin)
    }
}

/// Returns the ids of all rows. Padding has the id 0.
#[must_use]
pub fn padded_ids<'a>(tokens: usize, rows: impl Iterator<Item = &'a [u32]>) -> Vec<i64> {
    rows.flat_map(|ids| (0..tokens).map(|at| i64::from(ids.get(at).copied().unwrap_or(0)))).collect()
}

/// Returns the inputs of one run of a static batch: sequence `i` has the same blocks in each run.
pub(super) fn inputs(
    config: &ModelConfig,
    run: RunShape,
    dtype: DType,
    head: Head,
    rows: &[SequenceInput<'_>],
) -> NamedTensors {
    let tokens: Vec<Range<usize>> = rows.iter().map(|row| row.start..row.start + row.ids.len()).collect();
    let mut own: Vec<_> = rows
        .iter()
        .map(|tokens| InputRow { tokens: *tokens, groups: SmallVec::new(), state: None, adapter: None })
        .collect();
    let states = run.states.map(|pool| static_states(pool, &tokens)).unwrap_or_default();
    own.iter_mut().zip(states).for_each(|(row, state)| row.state = Some(state));
    for (_, group) in run.groups() {
        for (row, caches) in own.iter_mut().zip(static_rows(group, &tokens)) {
            row.groups.push(caches.blocks);
        }
    }
    let ids = padded_ids(run.sequence, rows.iter().map(|row| row.ids));
    let ids = Elements::of_i64([run.batch, run.sequence], ids);
    InputBuilder::new(config, dtype).inputs(run, head, &own).with(input::IDS, ids)
}
