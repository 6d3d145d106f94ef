//! Lowers experts to aclnn calls on the shards of one device.
//!
//! A device that has a part of the experts sends the tokens of all other experts to one more
//! expert, which has no weights. The rows of that expert are the last ones. No product writes them,
//! and they are zero.

use std::ops::Range;

use smallvec::smallvec;

use crate::base::{DType, Number, Shape};
use crate::call::{Call, View};
use crate::program::op::Kind;

use super::tree::sums_over_sequences;
use super::{Emit, local_index};

/// `groupType` of [`Call::GroupedMatmul`]: each group has rows of the first operand.
const BY_ROWS: usize = 0;
/// `groupType` of [`Call::GroupedMatmul`]: each group has a part of the summed dim.
const BY_SUMMED: usize = 2;

/// Experts of one device, and the copies of tokens for them.
struct Routed {
    /// Numbers of experts `[n,k]`, i32. The last number stands for experts of other devices.
    experts: View,
    /// Number of experts, including the one for experts of other devices.
    count: usize,
    /// Row of each copy, `[n·k]`, i32.
    places: View,
    /// Rows of each expert of this device, i64.
    groups: View,
    /// Copies of tokens `[n·k,h]`, sorted by expert.
    rows: View,
    /// Gate and up projections `[e,2f,h]`, or `[e,2f,h/8]` in words.
    gate_up: View,
    /// Down projections `[e,h,f]`, or `[e,h,f/8]` in words.
    down: View,
}

impl Emit<'_> {
    /// Sorts the tokens of operand 0 by expert. Both projections are `projections` and the operand
    /// after it.
    fn routed(&mut self, projections: usize) -> Routed {
        let (x, index) = (self.view(0), self.view(1));
        self.routed_tokens(x, index, projections)
    }

    /// As [`Self::routed`], for tokens `x` `[b,s,h]` with the experts `index` `[b,s,j]`.
    fn routed_tokens(&mut self, x: View, index: View, projections: usize) -> Routed {
        let of = self.operands[projections].clone();
        let [local, width] = [of.view.shape[0], x.shape[2]];
        let (tokens, chosen) = (x.shape[0] * x.shape[1], index.shape[2]);
        let x = self.shaped(x, [tokens, width]);
        let x = self.dense(x);
        let index = self.shaped(index, [tokens, chosen]);
        let (index, elsewhere) = local_index(self, index, &of, 0);
        let is_part = elsewhere.is_some();
        let other = Number::Int(local as i64);
        self.calls.extend(elsewhere.map(|mask| Call::MaskedFill { mask, into: index.clone(), value: other }));
        let count = local + usize::from(is_part);
        let experts = self.temporary(DType::I32, [tokens, chosen]);
        self.calls.push(Call::Cast { x: index, out: experts.clone() });
        let places = self.temporary(DType::I32, [tokens * chosen]);
        let counts = self.temporary(DType::I32, [count]);
        let groups = self.temporary(DType::I64, [local]);
        let rows = self.sorted(&x, &experts, [&places, &counts]);
        self.calls.push(Call::Cast { x: counts.narrow(0, 0, local), out: groups.clone() });
        let [gate_up, down] = [of.view, self.view(projections + 1)];
        // Intermediate sizes of packed weights have two dims.
        let (outputs, inputs) = (gate_up.shape[1..].split_last(), down.shape[2..].iter().product::<usize>());
        let (row, outputs) = outputs.map_or((0, 0), |(row, outer)| (*row, outer.iter().product()));
        let gate_up = self.shaped(gate_up, [local, outputs, row]);
        let down = self.shaped(down, [local, width, inputs]);
        Routed { experts, count, places, groups, rows, gate_up, down }
    }

    /// Returns the weights of experts `[n,k]`, operand 2, in the type of tokens.
    fn weights_of_experts(&mut self) -> View {
        let (weights, dtype) = (self.view(2), self.view(0).dtype);
        let shape = [weights.shape[0] * weights.shape[1], weights.shape[2]];
        let weights = self.shaped(weights, shape);
        if weights.dtype == dtype {
            return self.dense(weights);
        }
        let narrow = self.temporary(dtype, weights.shape.clone());
        self.calls.push(Call::Cast { x: weights, out: narrow.clone() });
        narrow
    }

    /// Returns copies of the rows of `x`, sorted by expert.
    fn sorted(&mut self, x: &View, experts: &View, [places, counts]: [&View; 2]) -> View {
        let rows = self.temporary(x.dtype, [experts.elems(), x.shape[1]]);
        let [x, experts, places, counts] = [x, experts, places, counts].map(|view| Box::new(view.clone()));
        let count = counts.elems();
        let sorted = Box::new(rows.clone());
        self.calls.push(Call::SortByExpert { x, experts, rows: sorted, places, counts, count });
        rows
    }

    /// Returns the products of rows with the weights `w` `[e,inputs,outputs]` of their experts.
    fn of_experts(&mut self, rows: &View, w: View, groups: &View) -> View {
        self.of_biased_experts(rows, w, None, groups)
    }

    /// Returns the products of [`Self::of_experts`], with the biases `[e,outputs]` of the experts.
    fn of_biased_experts(&mut self, rows: &View, w: View, bias: Option<View>, groups: &View) -> View {
        let out = self.temporary(rows.dtype, [rows.shape[0], w.shape[2]]);
        let bias = bias.map(|bias| {
            let bias = self.dense(bias);
            // The operator takes f32 biases for bf16.
            if bias.dtype == DType::BF16 { self.widened(&bias) } else { bias }
        });
        self.calls.push(Call::Zero { into: out.clone() });
        let bias = bias.map(Box::new);
        let [x, w, groups, into] = [rows.clone(), w, groups.clone(), out.clone()].map(Box::new);
        let (scale, tokens, weight_scale, weight_offset) = (None, None, None, None);
        self.calls.push(Call::GroupedMatmul {
            x,
            w,
            bias,
            scale,
            weight_scale,
            weight_offset,
            tokens,
            groups,
            out: into,
            group_type: BY_ROWS,
        });
        out
    }

    /// Writes the products of parts of the summed dim, one for each expert.
    fn sums_of_experts(&mut self, [x, w]: [View; 2], groups: &View, out: View) {
        self.calls.push(Call::Zero { into: out.clone() });
        let [x, w, groups, out] = [x, w, groups.clone(), out].map(Box::new);
        self.calls.push(Call::GroupedMatmul {
            x,
            w,
            bias: None,
            scale: None,
            weight_scale: None,
            weight_offset: None,
            tokens: None,
            groups,
            out,
            group_type: BY_SUMMED,
        });
    }

    /// Returns the gate and up projections `[n,2f]` of sorted rows, and their gated rows `[n,f]`.
    fn gated_rows(&mut self, kind: &Kind, routed: &Routed) -> [View; 2] {
        let (local, inner) = (routed.down.shape[0], routed.down.shape[2]);
        let clipping = clipping_of(kind);
        let bias = clipping.map(|_| self.view(5)).map(|bias| self.shaped(bias, [local, 2 * inner]));
        let hidden = self.of_biased_experts(&routed.rows, transposed(&routed.gate_up), bias, &routed.groups);
        let gated = match clipping {
            Some(clipping) => self.clipped(&hidden, clipping),
            None => {
                let gated = self.temporary(hidden.dtype, [hidden.shape[0], inner]);
                self.calls.push(Call::SwiGlu { x: hidden.clone(), out: gated.clone(), dim: 1 });
                gated
            }
        };
        [hidden, gated]
    }

    /// Returns the biases `[e,h]` of down projections. If experts are sharded within, the shard
    /// with the first rows adds them.
    fn down_bias(&self, kind: &Kind) -> Option<View> {
        let is_first = self.operands[4].starts[2] == 0;
        (clipping_of(kind).is_some() && is_first).then(|| self.view(6))
    }

    /// Returns the gated rows of [`Kind::ClippedExperts`].
    fn clipped(&mut self, hidden: &View, [limit, slope]: [f64; 2]) -> View {
        let inner = hidden.shape[1] / 2;
        let [gate, up] = [0, inner].map(|start| hidden.narrow(1, start, inner));
        let [g, share, u] = [(); 3].map(|()| self.temporary(hidden.dtype, gate.shape.clone()));
        let lowest = Number::Float(-super::largest_finite(hidden.dtype));
        let [low, high] = [-limit, limit].map(Number::Float);
        self.calls.extend([
            Call::Clamp { x: gate, out: g.clone(), low: lowest, high },
            Call::Muls { x: g.clone(), out: share.clone(), by: Number::Float(slope) },
            Call::Sigmoid { x: share.clone(), out: share.clone() },
            Call::Mul { a: g, b: share.clone(), out: share.clone() },
            Call::Clamp { x: up, out: u.clone(), low, high },
            Call::Adds { x: u.clone(), out: u.clone(), by: Number::Float(1.0) },
            Call::Mul { a: u, b: share.clone(), out: share.clone() },
        ]);
        share
    }

    fn sum_of_experts(&mut self, [rows, places, weights]: [View; 3], out: View) {
        let [rows, places, weights, out] = [rows, places, weights, out].map(Box::new);
        self.calls.push(Call::SumOfExperts { rows, places, weights, out });
    }
}

/// Returns the limit and the slope of clipped gates.
const fn clipping_of(kind: &Kind) -> Option<[f64; 2]> {
    match *kind {
        Kind::ClippedExperts { limit, slope } | Kind::ClippedExpertsGrad { limit, slope } => {
            Some([limit, slope])
        }
        _ => None,
    }
}

/// Returns the weights with exchanged last dims.
fn transposed(w: &View) -> View {
    w.permute(&[0, 2, 1])
}

pub(in crate::program) fn experts(kind: &Kind, emit: &mut Emit<'_>) {
    let out = emit.out();
    if emit.view(3).elems() == 0 {
        emit.calls.push(Call::Zero { into: out });
        return;
    }
    let (routed, weights) = (emit.routed(3), emit.weights_of_experts());
    let [_, gated] = emit.gated_rows(kind, &routed);
    let bias = emit.down_bias(kind);
    let results = emit.of_biased_experts(&gated, transposed(&routed.down), bias, &routed.groups);
    let places = routed.places;
    emit.write_shaped(out, [weights.shape[0], results.shape[1]], |emit, out| {
        emit.sum_of_experts([results, places, weights], out);
    });
}

pub(in crate::program) fn quant_experts(_: &Kind, emit: &mut Emit<'_>) {
    let out = emit.out();
    if emit.view(3).elems() == 0 {
        emit.calls.push(Call::Zero { into: out });
        return;
    }
    if emit.view(0).dtype != DType::F32 {
        emit.gated_experts(out, Emit::quantised_product_of_experts);
        return;
    }
    let routed = emit.routed(3);
    let (local, width, inner) = (routed.down.shape[0], routed.down.shape[1], routed.down.shape[2]);
    // The operators on 8-bit integers return 16-bit results.
    let [gate_up_scale, down_scale] = [(5, 2 * inner), (6, width)].map(|(at, rows)| (emit.view(at), rows));
    let numbers = emit.numbers_of_rows(&routed);
    let rows = routed.rows.clone();
    let [of_hidden, of_results] = [gate_up_scale, down_scale].map(|(scale, rows)| {
        let scale = emit.shaped(scale, [local, rows]);
        emit.scales_of_rows(scale, &numbers, routed.count)
    });
    let hidden = emit.integers_of_experts(rows, &routed.gate_up, of_hidden, &routed.groups);
    let gated = emit.temporary(DType::F32, [hidden.shape[0], inner]);
    emit.calls.push(Call::SwiGlu { x: hidden, out: gated.clone(), dim: 1 });
    let results = emit.integers_of_experts(gated, &routed.down, of_results, &routed.groups);
    let weights = emit.view(2);
    let tokens = weights.shape[0] * weights.shape[1];
    let shape = [tokens, weights.shape[2]];
    let weights = emit.shaped(weights, shape);
    let weights = emit.dense(weights);
    let places = routed.places;
    emit.write_shaped(out, [tokens, width], |emit, out| {
        emit.sum_of_experts([results, places, weights], out);
    });
}

pub(in crate::program) fn packed_experts(_: &Kind, emit: &mut Emit<'_>) {
    let out = emit.out();
    if emit.view(3).elems() == 0 {
        emit.calls.push(Call::Zero { into: out });
        return;
    }
    emit.gated_experts(out, Emit::packed_product_of_experts);
}

impl Emit<'_> {
    /// Writes the result of experts in 16 bits. Operands 5 and 6 are the scales of both
    /// projections. `product` emits the products of rows with the weights `[e,outputs,…]` of their
    /// experts. Its arguments are the rows, the weights, the operand of the scales, and the rows
    /// per expert.
    fn gated_experts(&mut self, out: View, product: impl Fn(&mut Self, View, &View, usize, &View) -> View) {
        let (routed, weights) = (self.routed(3), self.weights_of_experts());
        let hidden = product(self, routed.rows, &routed.gate_up, 5, &routed.groups);
        let gated = self.temporary(hidden.dtype, [hidden.shape[0], hidden.shape[1] / 2]);
        self.calls.push(Call::SwiGlu { x: hidden, out: gated.clone(), dim: 1 });
        let results = product(self, gated, &routed.down, 6, &routed.groups);
        let places = routed.places;
        self.write_shaped(out, [weights.shape[0], results.shape[1]], |emit, out| {
            emit.sum_of_experts([results, places, weights], out);
        });
    }

    /// Returns the products of rows with the words `w` `[e,outputs,inputs/8]` of their experts.
    /// Operand `scale` has the scales of groups and outputs. Offsets are two operands later.
    fn packed_product_of_experts(&mut self, rows: View, w: &View, scale: usize, groups: &View) -> View {
        let [local, outputs] = [w.shape[0], w.shape[1]];
        let offset = (scale + 2 < self.operands.len()).then(|| self.view(scale + 2));
        let scale = self.view(scale);
        let shape = Shape::from([local, scale.shape[1], outputs]);
        let scale = self.shaped(scale, shape.clone());
        let offset = match offset {
            Some(offset) => self.shaped(offset, shape),
            None => {
                // The operator requires offsets. One zero repeats.
                let zero = self.temporary(rows.dtype, [1, 1, 1]);
                self.calls.push(Call::Zero { into: zero.clone() });
                View { shape, strides: smallvec![0; 3], ..zero }
            }
        };
        let w = self.dense(w.clone());
        let out = self.temporary(rows.dtype, [rows.shape[0], outputs]);
        self.calls.push(Call::Zero { into: out.clone() });
        let [x, w, groups, into] = [rows, transposed(&w), groups.clone(), out.clone()].map(Box::new);
        let [weight_scale, weight_offset] = [scale, offset].map(|view| Some(Box::new(view)));
        self.calls.push(Call::GroupedMatmul {
            x,
            w,
            bias: None,
            scale: None,
            weight_scale,
            weight_offset,
            tokens: None,
            groups,
            out: into,
            group_type: BY_ROWS,
        });
        out
    }

    /// Returns the products of 16-bit rows, quantised with a scale each, with the integers `w`
    /// `[e,outputs,inputs]` of their experts. Operand `scale` has the scales of the outputs.
    fn quantised_product_of_experts(&mut self, rows: View, w: &View, scale: usize, groups: &View) -> View {
        let [local, outputs] = [w.shape[0], w.shape[1]];
        let dtype = rows.dtype;
        let scale = self.view(scale);
        let mut scale = self.shaped(scale, [local, outputs]);
        if dtype == DType::BF16 {
            // CANN documents scales in bf16 for results in bf16.
            let narrow = self.temporary(dtype, scale.shape.clone());
            self.calls.push(Call::Cast { x: scale, out: narrow.clone() });
            scale = narrow;
        }
        let tokens = self.temporary(DType::F32, [rows.shape[0]]);
        let integers = self.temporary(DType::I8, rows.shape.clone());
        let out = self.temporary(dtype, [rows.shape[0], outputs]);
        self.calls.extend([
            Call::DynamicQuant { x: rows, out: integers.clone(), scales: tokens.clone() },
            Call::Zero { into: out.clone() },
        ]);
        let [x, w, groups, into] = [integers, transposed(w), groups.clone(), out.clone()].map(Box::new);
        let [scale, tokens] = [scale, tokens].map(|view| Some(Box::new(view)));
        self.calls.push(Call::GroupedMatmul {
            x,
            w,
            bias: None,
            scale,
            weight_scale: None,
            weight_offset: None,
            tokens,
            groups,
            out: into,
            group_type: BY_ROWS,
        });
        out
    }

    /// Returns the number of the expert of each sorted row, i32.
    fn numbers_of_rows(&mut self, routed: &Routed) -> View {
        let copies = routed.places.elems();
        let numbers = self.temporary(DType::I32, [copies]);
        let rows = self.shaped(routed.experts.clone(), [copies]);
        let index = routed.places.clone();
        self.calls.extend([
            Call::Zero { into: numbers.clone() },
            Call::IndexCopy { index, rows, into: numbers.clone(), dim: 0 },
        ]);
        numbers
    }

    /// Returns the scales `[e,outputs]` of the expert of each row. Experts of other devices have
    /// the scale 0.
    fn scales_of_rows(&mut self, scales: View, numbers: &View, count: usize) -> View {
        let [local, outputs] = [scales.shape[0], scales.shape[1]];
        let table = self.temporary(DType::F32, [count, outputs]);
        let of_rows = self.temporary(DType::F32, [numbers.elems(), outputs]);
        self.calls.extend([
            Call::Zero { into: table.clone() },
            Call::Copy { from: scales, into: table.narrow(0, 0, local) },
            Call::IndexSelect { x: table, index: numbers.clone(), out: of_rows.clone(), dim: 0 },
        ]);
        of_rows
    }

    /// Returns the products of f32 rows, quantised with a scale each, with the integers `w`
    /// `[e,outputs,inputs]` of their experts. `scales` has the scales of the outputs of each row.
    /// Products of integers and sums below 2^24 are exact in f32.
    fn integers_of_experts(&mut self, rows: View, w: &View, scales: View, groups: &View) -> View {
        let tokens = self.temporary(DType::F32, [rows.shape[0]]);
        self.row_scales(rows.clone(), tokens.clone());
        let integers = self.temporary(DType::I8, rows.shape.clone());
        self.quantised_rows(rows, tokens.clone(), integers.clone());
        let x = self.widened(&integers);
        let w = self.widened(w);
        let products = self.of_experts(&x, transposed(&w), groups);
        self.calls.extend([
            Call::Mul { a: products.clone(), b: scales, out: products.clone() },
            Call::Mul { a: products.clone(), b: tokens.repeat(1, 1), out: products.clone() },
        ]);
        products
    }
}

pub(in crate::program) fn expert_rows(_: &Kind, emit: &mut Emit<'_>) {
    let out = emit.out();
    if emit.view(2).elems() == 0 {
        emit.calls.push(Call::Zero { into: out });
        return;
    }
    let routed = emit.routed(2);
    let hidden = emit.of_experts(&routed.rows, transposed(&routed.gate_up), &routed.groups);
    let gated = emit.temporary(hidden.dtype, [hidden.shape[0], routed.down.shape[2]]);
    emit.calls.push(Call::SwiGlu { x: hidden, out: gated.clone(), dim: 1 });
    let results = emit.of_experts(&gated, transposed(&routed.down), &routed.groups);
    let (index, shape) = (routed.places, results.shape.clone());
    emit.write_shaped(out, shape, |emit, out| {
        emit.calls.push(Call::IndexSelect { x: results, index, out, dim: 0 });
    });
}

pub(in crate::program) fn experts_grad(kind: &Kind, emit: &mut Emit<'_>) {
    if emit.view(3).elems() == 0 {
        super::training::zeros(emit);
        return;
    }
    let (routed, weights) = (emit.routed(3), emit.weights_of_experts());
    let (tokens, chosen) = (weights.shape[0], weights.shape[1]);
    let (width, inner) = (routed.down.shape[1], routed.down.shape[2]);
    let dtype = routed.rows.dtype;
    let copies = tokens * chosen;
    let dy = emit.view(emit.operands.len() - 1);
    let dy = emit.shaped(dy, [tokens, width]);
    let dy = emit.dense(dy);
    let ignored = emit.temporary(DType::I32, [routed.count]);
    let dy = emit.sorted(&dy, &routed.experts, [&routed.places, &ignored]);
    let [hidden, gated] = emit.gated_rows(kind, &routed);
    // Cotangents of the gated rows, before the weights.
    let unweighted = emit.of_experts(&dy, routed.down.clone(), &routed.groups);
    let bias = emit.down_bias(kind);
    let of_bias = bias.map(|bias| emit.of_experts(&dy, bias.repeat(2, 1), &routed.groups));
    emit.cotangent_of_weights([&gated, &unweighted], of_bias, &routed.places);
    // The weight of each row.
    let factors = emit.temporary(dtype, [copies]);
    let flat = emit.shaped(weights, [copies]);
    emit.calls.extend([
        Call::Zero { into: factors.clone() },
        Call::IndexCopy { index: routed.places.clone(), rows: flat, into: factors.clone(), dim: 0 },
    ]);
    let factors = factors.repeat(1, 1);
    let of_gated = unweighted;
    emit.calls.push(Call::Mul { a: of_gated.clone(), b: factors.clone(), out: of_gated.clone() });
    let of_hidden = match clipping_of(kind) {
        Some(clipping) => emit.cotangent_of_clipped(&hidden, &of_gated, clipping),
        None => emit.cotangent_of_hidden(&hidden, of_gated),
    };
    let of_rows = emit.of_experts(&of_hidden, routed.gate_up.clone(), &routed.groups);
    let like = emit.temporary(dtype, [tokens, chosen]);
    let ones = emit.filled(&like, 1.0);
    let (out, places) = (emit.out(), routed.places.clone());
    emit.write_shaped(out, [tokens, width], |emit, out| emit.sum_of_experts([of_rows, places, ones], out));
    let local = routed.groups.elems();
    if let Some(out) = emit.result(2) {
        emit.write_shaped(out, [local, 2 * inner, width], |emit, out| {
            emit.sums_of_experts([of_hidden.permute(&[1, 0]), routed.rows.clone()], &routed.groups, out);
        });
    }
    if let Some(out) = emit.result(3) {
        emit.calls.push(Call::Mul { a: dy.clone(), b: factors, out: dy.clone() });
        emit.write_shaped(out, [local, width, inner], |emit, out| {
            emit.sums_of_experts([dy.permute(&[1, 0]), gated], &routed.groups, out);
        });
    }
    emit.cotangents_of_biases([of_hidden, dy], &routed.groups);
}

/// Sorted rows of some tokens, and their cotangents.
struct RowsAndCotangents {
    routed: Routed,
    /// Gated rows `[n·k,f]`.
    gated: View,
    /// Cotangents of gate and up projections `[n·k,2f]`.
    of_hidden: View,
    /// Cotangents of the results `[n·k,h]`.
    of_results: View,
}

impl Emit<'_> {
    /// Computes the rows of sequences in experts, and their cotangents, from the operands of
    /// [`Kind::ExpertRowsGrad`].
    fn rows_and_cotangents(&mut self, sequences: &Range<usize>) -> RowsAndCotangents {
        let [x, index, dy] =
            [0, 1, 4].map(|operand| self.view(operand).narrow(0, sequences.start, sequences.len()));
        let routed = self.routed_tokens(x, index, 2);
        let (copies, dtype) = (routed.places.elems(), routed.rows.dtype);
        let (width, inner) = (routed.down.shape[1], routed.down.shape[2]);
        let hidden = self.of_experts(&routed.rows, transposed(&routed.gate_up), &routed.groups);
        let gated = self.temporary(dtype, [copies, inner]);
        self.calls.push(Call::SwiGlu { x: hidden.clone(), out: gated.clone(), dim: 1 });
        let rows = self.shaped(dy, [copies, width]);
        let rows = self.dense(rows);
        let of_results = self.temporary(dtype, [copies, width]);
        self.calls.extend([
            Call::Zero { into: of_results.clone() },
            Call::IndexCopy { index: routed.places.clone(), rows, into: of_results.clone(), dim: 0 },
        ]);
        let of_gated = self.of_experts(&of_results, routed.down.clone(), &routed.groups);
        let of_hidden = self.cotangent_of_hidden(&hidden, of_gated);
        RowsAndCotangents { routed, gated, of_hidden, of_results }
    }

    /// Writes sums of [`Self::sums_of_experts`] to a result in f32.
    fn wide_sums_of_experts(&mut self, [x, w]: [View; 2], groups: &View, out: &View) {
        let shape = [groups.elems(), x.shape[0], w.shape[1]];
        self.write_shaped(out.clone(), shape, |emit, out| {
            if x.dtype == out.dtype {
                emit.sums_of_experts([x, w], groups, out);
                return;
            }
            let sums = emit.temporary(x.dtype, shape);
            emit.sums_of_experts([x, w], groups, sums.clone());
            emit.calls.push(Call::Cast { x: sums, out });
        });
    }

    /// Returns the cotangents of gate and up projections `[n,2f]` from the cotangents of gated
    /// rows.
    fn cotangent_of_hidden(&mut self, hidden: &View, of_gated: View) -> View {
        let of_hidden = self.temporary(hidden.dtype, hidden.shape.clone());
        let inner = of_gated.shape[1];
        let [gate, up] = [0, inner].map(|start| hidden.narrow(1, start, inner));
        let [of_gate, of_up] = [0, inner].map(|start| of_hidden.narrow(1, start, inner));
        let of_silu = self.temporary(hidden.dtype, of_gated.shape.clone());
        self.calls.extend([
            Call::Mul { a: of_gated.clone(), b: up, out: of_silu.clone() },
            Call::SiluGrad { x: gate.clone(), dy: of_silu, out: of_gate },
            Call::Silu { x: gate, out: of_up.clone() },
            Call::Mul { a: of_up.clone(), b: of_gated, out: of_up },
        ]);
        of_hidden
    }
}

impl Emit<'_> {
    /// As [`Self::cotangent_of_hidden`], for clipped gates. `g` is the clipped gate, `u` the
    /// clipped up projection plus 1, and `p = sigmoid(slope · g)`. The derivatives of `u · g · p`
    /// are `u · (p + slope · g · p · (1 - p))` by the gate, and `g · p` by the up projection.
    fn cotangent_of_clipped(&mut self, hidden: &View, of_gated: &View, [limit, slope]: [f64; 2]) -> View {
        let (shape, dtype) = (of_gated.shape.clone(), hidden.dtype);
        let of_hidden = self.temporary(dtype, hidden.shape.clone());
        let parts = |whole: &View| [0, shape[1]].map(|start| whole.narrow(1, start, shape[1]));
        let ([gate, up], [of_gate, of_up]) = (parts(hidden), parts(&of_hidden));
        let [g, u, p, product] = [(); 4].map(|()| self.temporary(dtype, shape.clone()));
        let [is_gate_clipped, is_up_clipped] = [(); 2].map(|()| self.temporary(DType::Bool, shape.clone()));
        let lowest = Number::Float(-super::largest_finite(dtype));
        let [low, high] = [-limit, limit].map(Number::Float);
        self.calls.extend([
            Call::Clamp { x: gate.clone(), out: g.clone(), low: lowest, high },
            Call::Ne { a: gate, b: g.clone(), out: is_gate_clipped.clone() },
            Call::Clamp { x: up.clone(), out: u.clone(), low, high },
            Call::Ne { a: up, b: u.clone(), out: is_up_clipped.clone() },
            Call::Adds { x: u.clone(), out: u.clone(), by: Number::Float(1.0) },
            Call::Muls { x: g.clone(), out: p.clone(), by: Number::Float(slope) },
            Call::Sigmoid { x: p.clone(), out: p.clone() },
            Call::Mul { a: g.clone(), b: p.clone(), out: product.clone() },
        ]);
        let shown = super::training::blanked(self, of_gated.clone(), Some(is_up_clipped));
        self.calls.extend([
            Call::Mul { a: shown, b: product.clone(), out: of_up },
            Call::Muls { x: product.clone(), out: product.clone(), by: Number::Float(slope) },
            Call::Muls { x: p.clone(), out: g.clone(), by: Number::Float(-1.0) },
            Call::Adds { x: g.clone(), out: g.clone(), by: Number::Float(1.0) },
            Call::Mul { a: product.clone(), b: g, out: product.clone() },
            Call::Add { a: product.clone(), b: p, out: product.clone() },
            Call::Mul { a: product.clone(), b: u, out: product.clone() },
        ]);
        let shown = super::training::blanked(self, of_gated.clone(), Some(is_gate_clipped));
        self.calls.push(Call::Mul { a: shown, b: product, out: of_gate });
        of_hidden
    }

    /// Writes the cotangents of the biases: sums of the rows of each expert. Each shard within an
    /// expert has the whole sum for the down projection, and the first shard gives it.
    fn cotangents_of_biases(&mut self, rows: [View; 2], groups: &View) {
        let is_first = self.operands[4].starts[2] == 0;
        for ((result, rows), is_given) in [4, 5].into_iter().zip(rows).zip([true, is_first]) {
            let Some(out) = self.result(result) else { continue };
            if !is_given {
                self.calls.push(Call::Zero { into: out });
                continue;
            }
            let like = self.temporary(rows.dtype, [rows.shape[0], 1]);
            let ones = self.filled(&like, 1.0);
            self.write_shaped(out, [groups.elems(), rows.shape[1], 1], |emit, out| {
                emit.sums_of_experts([rows.permute(&[1, 0]), ones], groups, out);
            });
        }
    }
}

pub(in crate::program) fn expert_rows_grad(_: &Kind, emit: &mut Emit<'_>) {
    let out = emit.out();
    if emit.view(2).elems() == 0 {
        emit.calls.push(Call::Zero { into: out });
        return;
    }
    let sequences = 0..out.shape[0];
    let RowsAndCotangents { routed, of_hidden, .. } = emit.rows_and_cotangents(&sequences);
    let x = emit.of_experts(&of_hidden, routed.gate_up, &routed.groups);
    let (index, shape) = (routed.places, x.shape.clone());
    emit.write_shaped(out, shape, |emit, out| {
        emit.calls.push(Call::IndexSelect { x, index, out, dim: 0 });
    });
}

pub(in crate::program) fn tree_experts_grad(kind: &Kind, emit: &mut Emit<'_>) {
    if emit.view(2).elems() == 0 || emit.view(0).elems() == 0 {
        super::training::zeros(emit);
        return;
    }
    let results: Vec<View> = (0..2).filter_map(|result| emit.result(result)).collect();
    sums_over_sequences(kind, emit, &results, &|emit, sequences, results| {
        let found = emit.rows_and_cotangents(sequences);
        let groups = &found.routed.groups;
        let factors = [[found.of_hidden, found.routed.rows.clone()], [found.of_results, found.gated]];
        for ([rows, columns], out) in factors.into_iter().zip(results) {
            emit.wide_sums_of_experts([rows.permute(&[1, 0]), columns], groups, out);
        }
    });
}

impl Emit<'_> {
    /// Writes the cotangents of weights: the products of gated rows and their cotangents, summed,
    /// and the products `[n,1]` of the biases.
    fn cotangent_of_weights(
        &mut self,
        [gated, cotangents]: [&View; 2],
        of_bias: Option<View>,
        places: &View,
    ) {
        let Some(out) = self.result(1) else { return };
        let copies = gated.shape[0];
        let [wide_gated, wide] = [gated, cotangents].map(|view| self.widened(view));
        let products = self.temporary(DType::F32, gated.shape.clone());
        let sums = self.temporary(DType::F32, [copies]);
        self.calls.extend([
            Call::Mul { a: wide_gated, b: wide, out: products.clone() },
            Call::ReduceSum { x: products, out: sums.clone(), dim: 1 },
        ]);
        if let Some(of_bias) = of_bias {
            let wide = self.widened(&of_bias);
            let b = self.shaped(wide, [copies]);
            self.calls.push(Call::Add { a: sums.clone(), b, out: sums.clone() });
        }
        let index = places.clone();
        self.write_shaped(out, [copies], |emit, out| {
            emit.calls.push(Call::IndexSelect { x: sums, index, out, dim: 0 });
        });
    }

    fn widened(&mut self, view: &View) -> View {
        if view.dtype == DType::F32 {
            return view.clone();
        }
        let wide = self.temporary(DType::F32, view.shape.clone());
        self.calls.push(Call::Cast { x: view.clone(), out: wide.clone() });
        wide
    }
}
