//! Caches in blocks, as aclnn calls.
//!
//! The fused attention refuses f32, soft caps and some head sizes. In these cases, the rows of each
//! sequence's blocks are collected first, and attention runs over whole caches.
//!
//! It reads caches of 8-bit integers only for one query position (CANN's documentation of the
//! operator: a 910B has no scales in blocks for longer queries). For longer queries, the blocks of
//! each sequence are multiplied by their scales first. Both round keys and values in the same way.

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
        | Kind::QuantBlockAttention { pools, .. }
        | Kind::WriteSlots { pools }
        | Kind::WriteScales { pools }
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
        let positions_operand = self.operands.len() - 2;
        let has_all_tokens = self.operands[positions_operand].whole[1] == s;
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

    /// Returns the blocks in the order of the table, `[b·w,…]`.
    fn selected(&mut self, cache: &View, table: &View) -> View {
        let (blocks, count) = (cache.shape[0], table.elems());
        let each: usize = cache.shape[1..].iter().product();
        let x = self.shaped(cache.clone(), [blocks, each]);
        let index = self.shaped(table.clone(), [count]);
        let out = self.temporary(cache.dtype, [count, each]);
        self.calls.push(Call::IndexSelect { x, index, out: out.clone(), dim: 0 });
        self.shaped(out, cache.shape.with(0, count))
    }

    /// Returns the rows of each sequence's blocks, `[b,t,k,d]`.
    fn collected(&mut self, cache: &View, table: &View) -> View {
        let [block, heads, size] = [1, 2, 3].map(|dim| cache.shape[dim]);
        let (b, width) = (table.shape[0], table.shape[1]);
        let rows = self.selected(cache, table);
        self.shaped(rows, [b, width * block, heads, size])
    }

    /// Returns the blocks of an 8-bit cache in the order of the table, `[b·w,t,k,d]`, multiplied by
    /// their scales `[n,k,t]`.
    fn dequantised(&mut self, cache: &View, scales: &View, table: &View, dtype: DType) -> View {
        let [integers, factors] = [cache, scales].map(|view| self.selected(view, table));
        let numbers = self.temporary(DType::F32, integers.shape.clone());
        let factors = factors.permute(&[0, 2, 1]).repeat(3, 1);
        self.calls.extend([
            Call::Cast { x: integers, out: numbers.clone() },
            Call::Mul { a: numbers.clone(), b: factors, out: numbers.clone() },
        ]);
        if dtype == DType::F32 {
            return numbers;
        }
        let rounded = self.temporary(dtype, numbers.shape.clone());
        self.calls.push(Call::Cast { x: numbers, out: rounded.clone() });
        rounded
    }

    /// Returns a table `[b,w]` of blocks in their order, which all layers share.
    fn ordered(&mut self, table: &View) -> View {
        let what = Derived::Ordered;
        if let Some([ordered, _]) = self.known(table, what) {
            return ordered;
        }
        let numbers = self.numbers(DType::I32, table.elems());
        let ordered = self.shaped(numbers, table.shape.clone());
        self.known.push(Known { of: table.clone(), what, results: [ordered.clone(), ordered.clone()] });
        ordered
    }

    /// Returns the places of scales `[b·s·heads]` in `[n,heads,block]`, of tokens in these slots
    /// `[b·s]`. Layers share them.
    fn scale_places(&mut self, slots: &View, heads: usize, block: usize) -> View {
        let what = Derived::ScalePlaces { heads, block };
        if let Some([places, _]) = self.known(slots, what) {
            return places;
        }
        let tokens = slots.elems();
        // Slot `i·block + r` has the scales `(i·heads + head)·block + r`.
        let [blocks, first] = [(); 2].map(|()| self.temporary(DType::I64, [tokens]));
        let heads_of_block = self.temporary(DType::I64, [heads]);
        let places = self.temporary(DType::I64, [tokens, heads]);
        let number = |count: usize| Number::Int(count as i64);
        self.calls.extend([
            Call::FloorDivides { x: slots.clone(), out: blocks.clone(), by: number(block) },
            Call::Muls { x: blocks.clone(), out: blocks.clone(), by: number((heads - 1) * block) },
            Call::Add { a: slots.clone(), b: blocks, out: first.clone() },
            Call::Arange {
                out: heads_of_block.clone(),
                from: number(0),
                to: number(heads * block),
                by: number(block),
            },
            Call::Add { a: first.repeat(1, 1), b: heads_of_block.repeat(0, 1), out: places.clone() },
        ]);
        let places = self.shaped(places, [tokens * heads]);
        self.known.push(Known { of: slots.clone(), what, results: [places.clone(), places.clone()] });
        places
    }
}

/// Operands of attention over blocks, of the sequences of one pool.
struct Attended {
    q: View,
    keys: View,
    values: View,
    /// Scales of 8-bit keys and values.
    scales: Option<[View; 2]>,
    table: View,
    positions: View,
    lengths: View,
    /// The blocks are in the order of the table, and only those.
    is_collected: bool,
}

/// Attributes of attention over blocks.
#[derive(Clone, Copy)]
struct Scoring {
    scale: f64,
    cap: Option<f64>,
    read: Read,
}

pub(in crate::program) fn attention(kind: &Kind, emit: &mut Emit<'_>) {
    let (Kind::BlockAttention { scale, cap, window, skipped, .. }
    | Kind::QuantBlockAttention { scale, cap, window, skipped, .. }) = *kind
    else {
        return;
    };
    let scoring = Scoring { scale, cap, read: Read { window, skipped } };
    let views: Vec<View> = (0..emit.operands.len()).map(|operand| emit.view(operand)).collect();
    let (caches, inputs) = views[1..].split_at(views.len() - INPUTS - 1);
    let (result, sums) = (emit.out(), emit.result(1));
    for Pool { sequences, blocks } in emit.pools(kind, 1, 0) {
        if sequences.is_empty() {
            continue;
        }
        let of_sequences = |view: &View| view.narrow(0, sequences.start, sequences.len());
        let of_pool = |view: &View| view.narrow(0, blocks.start, blocks.len());
        let [table, positions, lengths] = [0, 1, 2].map(|at| of_sequences(&inputs[at]));
        let [keys, values] = [0, caches.len() / 2].map(|at| of_pool(&caches[at]));
        let scales = (caches.len() > 2).then(|| [1, 3].map(|at| of_pool(&caches[at])));
        let q = of_sequences(&views[0]);
        let is_collected = false;
        let of = Attended { q, keys, values, scales, table, positions, lengths, is_collected };
        attend(scoring, of, of_sequences(&result), sums.as_ref().map(of_sequences), emit);
    }
}

/// Number of operands after the caches: table, positions and lengths.
const INPUTS: usize = 3;

/// Writes the attention of one pool, and the log-sum-exps if they are needed.
fn attend(scoring: Scoring, mut of: Attended, out: View, sums: Option<View>, emit: &mut Emit<'_>) {
    let Scoring { scale, cap, read } = scoring;
    let &[_, s, _, _, d] = of.q.shape.sizes() else { return };
    let length = of.table.shape[1] * of.keys.shape[1];
    let is_fused = cap.is_none() && sums.is_none() && fused_attention_takes(of.q.dtype, d);
    if let Some(scales) = of.scales.take_if(|_| !(is_fused && s == 1 && takes_bytes(&of.keys))) {
        let caches = [(&of.keys, &scales[0]), (&of.values, &scales[1])];
        let dtype = of.q.dtype;
        [of.keys, of.values] =
            caches.map(|(cache, scales)| emit.dequantised(cache, scales, &of.table, dtype));
        of.is_collected = true;
    }
    if is_fused {
        fused(scale, read, of, out, emit);
        return;
    }
    let mask = emit.rows_hidden(&of.positions, length, read);
    let caches = [&of.keys, &of.values];
    let [keys, values] = caches.map(|cache| match of.is_collected {
        true => emit.shaped(cache.clone(), [of.table.shape[0], length, cache.shape[2], cache.shape[3]]),
        false => emit.collected(cache, &of.table),
    });
    let kind = match cap {
        Some(cap) => Kind::CappedAttention { scale, cap },
        None => Kind::Attention { scale },
    };
    let Some(sums) = sums else {
        joined::alone(&kind, vec![of.q, keys, values, mask], &[out], emit);
        return;
    };
    let [largest, powers] = [(); 2].map(|()| emit.temporary(DType::F32, sums.shape.clone()));
    let statistics = [out, largest.clone(), powers.clone()];
    joined::alone(&kind, vec![of.q, keys, values, mask], &statistics, emit);
    emit.calls.extend([
        Call::Log { x: powers.clone(), out: powers.clone() },
        Call::Add { a: powers, b: largest, out: sums },
    ]);
}

/// Bytes of a unit that the cube units read of 8-bit rows.
const UNIT_BYTES: usize = 32;

/// Returns whether fused attention supports the head size and the blocks of an 8-bit cache
/// (CANN documentation of the operator, A2). It also needs a single query position.
fn takes_bytes(cache: &View) -> bool {
    [1, 3].iter().all(|dim| cache.shape[*dim].is_multiple_of(UNIT_BYTES))
}

/// Writes fused attention over blocks.
fn fused(scale: f64, read: Read, of: Attended, out: View, emit: &mut Emit<'_>) {
    let &[b, s, k, g, d] = of.q.shape.sizes() else { return };
    let [count, block] = [0, 1].map(|dim| of.keys.shape[dim]);
    let length = of.table.shape[1] * block;
    let (mask, sparse_mode) = emit.mask_of(&of.positions, length, read);
    let table = if of.is_collected { emit.ordered(&of.table) } else { of.table };
    let q = emit.shaped(of.q, [b, s, k * g, d]);
    let [keys, values] = [of.keys, of.values].map(|cache| emit.shaped(cache, [count, block, k * d]));
    let [q, table, lengths] = [q, table, of.lengths].map(|view| emit.dense(view));
    emit.write_shaped(out, [b, s, k * g, d], |emit, out| {
        let (heads, kv_heads) = (k * g, k);
        let (table, lengths) = (Some(Box::new(table)), Some(Box::new(lengths)));
        let window = if sparse_mode == BAND { read.window.unwrap_or(0) } else { 0 };
        let [q, k, v, out] = [q, keys, values, out].map(Box::new);
        let [k_scale, v_scale] = match of.scales {
            Some(scales) => scales.map(|scales| Some(Box::new(scales))),
            None => [None, None],
        };
        emit.calls.push(Call::FusedAttention {
            q,
            k,
            v,
            mask,
            table,
            k_scale,
            v_scale,
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

pub(in crate::program) fn write_scales(kind: &Kind, emit: &mut Emit<'_>) {
    let pools = emit.pools(kind, 0, 1);
    let [rows, slots, scales] = [emit.view(1), emit.view(2), emit.out()];
    for Pool { sequences, blocks } in pools {
        let [rows, slots] = [&rows, &slots].map(|view| view.narrow(0, sequences.start, sequences.len()));
        if rows.elems() == 0 {
            continue;
        }
        let scales = scales.narrow(0, blocks.start, blocks.len());
        let (heads, block, count) = (scales.shape[1], scales.shape[2], scales.elems());
        let Some(into) = scales.reshape([count, 1]) else { unreachable!("scales are dense") };
        let rows = emit.shaped(rows, [slots.elems() * heads, 1]);
        let mut index = emit.shaped(slots.clone(), [slots.elems()]);
        if heads > 1 {
            index = emit.scale_places(&index, heads, block);
        }
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
