//! Caches in blocks, as aclnn calls.
//!
//! The fused attention refuses f32, soft caps and some head sizes. In these cases, the rows of each
//! sequence's blocks are collected first, and attention runs over whole caches.

use crate::base::{DType, Number, Remainder};
use crate::call::{Call, View};
use crate::program::op::Kind;

use super::{Derived, Emit, Known, Local, fused_attention_takes, joined};

/// Side of the mask of the sparse modes 3 and 4 (documentation of the operator).
const TRIANGLE: usize = 2048;

/// `sparseMode`: the mask as given.
const GIVEN: usize = 0;
/// `sparseMode`: each token reads the keys up to its own.
const CAUSAL: usize = 3;
/// `sparseMode`: each token reads a window of keys up to its own.
const BAND: usize = 4;

/// Earlier rows that attention reads.
#[derive(Clone, Copy)]
struct Read {
    window: Option<usize>,
    skipped: usize,
}

/// One pool of a cache with the sequences that own its blocks.
struct Pool {
    sequences: std::ops::Range<usize>,
    blocks: std::ops::Range<usize>,
}

impl Local {
    /// Returns how many pools of this cache the device has, for an op on a cache in blocks.
    pub(crate) fn pools(&self, kind: &Kind) -> usize {
        let (Kind::BlockAttention { pools, .. }
        | Kind::WriteSlots { pools }
        | Kind::ReadStates { pools }
        | Kind::WriteStates { pools }) = kind
        else {
            return 0;
        };
        pools * self.view.shape[0] / self.whole[0].max(1)
    }
}

impl Emit<'_> {
    /// Returns the pools of this device. Operand `cache` has the blocks, operand `rows` the
    /// sequences.
    fn pools(&self, kind: &Kind, cache: usize, rows: usize) -> Vec<Pool> {
        let blocks = self.view(cache).shape[0];
        let here = self.operands[cache].pools(kind);
        let sequences = self.view(rows).shape[0];
        let pool = |at| Pool {
            sequences: Remainder::Balanced.range(sequences, here, at),
            blocks: Remainder::Balanced.range(blocks, here, at),
        };
        (0..here).map(pool).collect()
    }

    /// Returns the numbers from 0 to below `count`.
    fn numbers(&mut self, dtype: DType, count: usize) -> View {
        let out = self.temporary(dtype, [count]);
        let (from, to, by) = (Number::Int(0), Number::Int(count as i64), Number::Int(1));
        self.calls.push(Call::Arange { out: out.clone(), from, to, by });
        out
    }

    /// Returns a mask that is true where `keys - tokens` is below `earliest` or above 0.
    fn outside(&mut self, keys: View, tokens: View, earliest: i64) -> View {
        let [behind, within] = [(); 2].map(|()| self.temporary(keys.dtype, keys.shape.clone()));
        let mask = self.temporary(DType::Bool, keys.shape.clone());
        let (low, high) = (Number::Int(earliest), Number::Int(0));
        self.calls.extend([
            Call::Sub { a: keys, b: tokens, out: behind.clone() },
            Call::Clamp { x: behind.clone(), out: within.clone(), low, high },
            Call::Ne { a: behind, b: within, out: mask.clone() },
        ]);
        mask
    }

    /// Returns the mask `[b,s,t]` of tokens at `positions[b,s]` over `length` rows: true hides a
    /// row. Layers share the mask.
    fn rows_hidden(&mut self, positions: &View, length: usize, read: Read) -> View {
        let Read { window, skipped } = read;
        let what = Derived::Hidden { length, window, skipped };
        if let Some([mask, _]) = self.known(positions, what) {
            return mask;
        }
        let &[b, s] = positions.shape.sizes() else { unreachable!("positions have two dims, by their rule") };
        let rows = self.numbers(DType::I64, length);
        if skipped > 0 {
            // The row is `length` rows before the first token, and too early for all later ones.
            let number = Number::Int(-(length as i64));
            self.calls.push(Call::Fill { into: rows.narrow(0, 0, skipped), value: number });
        }
        let earliest = window.map_or(-(length as i64), |window| 1 - window as i64);
        let mask = self.outside(rows.repeat(0, s).repeat(0, b), positions.repeat(2, length), earliest);
        self.known.push(Known { of: positions.clone(), what, results: [mask.clone(), mask.clone()] });
        mask
    }

    /// Returns the mask and the sparse mode of fused attention. A single token without a window
    /// reads all rows that its length counts. Large masks would take more memory than the keys.
    fn mask_of(&mut self, positions: &View, length: usize, read: Read) -> (Option<Box<View>>, usize) {
        let window = read.window;
        let &[b, s] = positions.shape.sizes() else { unreachable!("positions have two dims, by their rule") };
        if s == 1 && window.is_none() && read.skipped == 0 {
            return (None, GIVEN);
        }
        // The triangle is aligned with the last token, which a shard of tokens may lack.
        let has_all_tokens = self.operands[4].whole[1] == s;
        if b * s * length > TRIANGLE * TRIANGLE && has_all_tokens && read.skipped == 0 {
            let mode = if window.is_some() { BAND } else { CAUSAL };
            return (Some(Box::new(self.triangle(positions))), mode);
        }
        let mask = self.rows_hidden(positions, length, read);
        (Some(Box::new(self.shaped(mask, [b, 1, s, length]))), GIVEN)
    }

    /// Returns the mask of the sparse modes 3 and 4, which all layers share: row `i` hides the
    /// columns after `i`.
    fn triangle(&mut self, positions: &View) -> View {
        let what = Derived::Triangle;
        if let Some([mask, _]) = self.known(positions, what) {
            return mask;
        }
        let numbers = self.numbers(DType::I32, TRIANGLE);
        let mask = self.outside(numbers.repeat(0, TRIANGLE), numbers.repeat(1, TRIANGLE), -(TRIANGLE as i64));
        self.known.push(Known { of: positions.clone(), what, results: [mask.clone(), mask.clone()] });
        mask
    }

    /// Returns the rows of each sequence's blocks, `[b,t,k,d]`.
    fn collected(&mut self, cache: &View, table: &View) -> View {
        let [blocks, block, heads, size] = [0, 1, 2, 3].map(|dim| cache.shape[dim]);
        let (b, width) = (table.shape[0], table.shape[1]);
        let x = self.shaped(cache.clone(), [blocks, block * heads * size]);
        let index = self.shaped(table.clone(), [b * width]);
        let out = self.temporary(cache.dtype, [b * width, block * heads * size]);
        self.calls.push(Call::IndexSelect { x, index, out: out.clone(), dim: 0 });
        self.shaped(out, [b, width * block, heads, size])
    }
}

pub(in crate::program) fn attention(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::BlockAttention { scale, cap, window, skipped, .. } = *kind else { return };
    let read = Read { window, skipped };
    let pools = emit.pools(kind, 1, 0);
    let views = [0, 1, 2, 3, 4, 5].map(|operand| emit.view(operand));
    let (result, sums) = (emit.out(), emit.result(1));
    for Pool { sequences, blocks } in pools {
        if sequences.is_empty() {
            continue;
        }
        let [q, keys, values, table, positions, lengths] = views.each_ref();
        let of_sequences = |view: &View| view.narrow(0, sequences.start, sequences.len());
        let [keys, values] = [keys, values].map(|view| view.narrow(0, blocks.start, blocks.len()));
        let [q, table, positions, lengths] = [q, table, positions, lengths].map(of_sequences);
        let out = of_sequences(&result);
        let &[b, s, k, g, d] = q.shape.sizes() else { return };
        let length = table.shape[1] * keys.shape[1];
        if cap.is_none() && sums.is_none() && fused_attention_takes(q.dtype, d) {
            let (mask, sparse_mode) = emit.mask_of(&positions, length, read);
            let q = emit.shaped(q, [b, s, k * g, d]);
            let rows = [keys.shape[0], keys.shape[1], k * d];
            let (keys, values) = (emit.shaped(keys, rows), emit.shaped(values, rows));
            let [q, table, lengths] = [q, table, lengths].map(|view| emit.dense(view));
            emit.write_shaped(out, [b, s, k * g, d], |emit, out| {
                let (heads, kv_heads, block) = (k * g, k, rows[1]);
                let (table, lengths) = (Some(Box::new(table)), Some(Box::new(lengths)));
                let window = if sparse_mode == BAND { window.unwrap_or(0) } else { 0 };
                let [q, k, v, out] = [q, keys, values, out].map(Box::new);
                emit.calls.push(Call::FusedAttention {
                    q,
                    k,
                    v,
                    mask,
                    table,
                    lengths,
                    out,
                    heads,
                    kv_heads,
                    scale,
                    block,
                    sparse_mode,
                    window,
                });
            });
            continue;
        }
        let mask = emit.rows_hidden(&positions, length, read);
        let [keys, values] = [keys, values].map(|cache| emit.collected(&cache, &table));
        let kind = match cap {
            Some(cap) => Kind::CappedAttention { scale, cap },
            None => Kind::Attention { scale },
        };
        let Some(sums) = sums.as_ref().map(of_sequences) else {
            joined::alone(&kind, vec![q, keys, values, mask], &[out], emit);
            continue;
        };
        let [largest, powers] = [(); 2].map(|()| emit.temporary(DType::F32, sums.shape.clone()));
        let statistics = [out, largest.clone(), powers.clone()];
        joined::alone(&kind, vec![q, keys, values, mask], &statistics, emit);
        emit.calls.extend([
            Call::Log { x: powers.clone(), out: powers.clone() },
            Call::Add { a: powers, b: largest, out: sums },
        ]);
    }
}

pub(in crate::program) fn write_slots(kind: &Kind, emit: &mut Emit<'_>) {
    let pools = emit.pools(kind, 0, 1);
    let [rows, slots, cache] = [emit.view(1), emit.view(2), emit.out()];
    for Pool { sequences, blocks } in pools {
        let [rows, slots] = [&rows, &slots].map(|view| view.narrow(0, sequences.start, sequences.len()));
        if rows.elems() == 0 {
            continue;
        }
        let cache = cache.narrow(0, blocks.start, blocks.len());
        let width = cache.shape[2] * cache.shape[3];
        let (places, tokens) = (cache.shape[0] * cache.shape[1], slots.elems());
        let Some(into) = cache.reshape([places, width]) else { unreachable!("a cache is dense") };
        let rows = emit.shaped(rows, [tokens, width]);
        let index = emit.shaped(slots, [tokens]);
        emit.calls.push(Call::IndexCopy { index, rows, into, dim: 0 });
    }
}

pub(in crate::program) fn read_states(kind: &Kind, emit: &mut Emit<'_>) {
    let pools = emit.pools(kind, 0, 1);
    let [states, index, out] = [emit.view(0), emit.view(1), emit.out()];
    let width: usize = states.shape[1..].iter().product();
    for Pool { sequences, blocks } in pools {
        let rows = sequences.len();
        let [index, out] = [&index, &out].map(|view| view.narrow(0, sequences.start, rows));
        if out.elems() == 0 {
            continue;
        }
        let x = emit.shaped(states.narrow(0, blocks.start, blocks.len()), [blocks.len(), width]);
        emit.write_shaped(out, [rows, width], |emit, out| {
            emit.calls.push(Call::IndexSelect { x, index, out, dim: 0 });
        });
    }
}

pub(in crate::program) fn write_states(kind: &Kind, emit: &mut Emit<'_>) {
    let pools = emit.pools(kind, 0, 1);
    let [new, index, states] = [emit.view(1), emit.view(2), emit.out()];
    let width: usize = states.shape[1..].iter().product();
    for Pool { sequences, blocks } in pools {
        let rows = sequences.len();
        let [new, index] = [&new, &index].map(|view| view.narrow(0, sequences.start, rows));
        if new.elems() == 0 {
            continue;
        }
        let states = states.narrow(0, blocks.start, blocks.len());
        let Some(into) = states.reshape([blocks.len(), width]) else { unreachable!("states are dense") };
        let rows = emit.shaped(new, [rows, width]);
        emit.calls.push(Call::IndexCopy { index, rows, into, dim: 0 });
    }
}
