//! Lowers each op to aclnn calls on the shards of one device: column `npu` of the op table.
//!
//! Input: local views, and the position of each shard in the whole tensor. Output: calls that a
//! 910B supports for the element type and shape. If it does not support the fused operator, the
//! function composes other calls.
//!
//! Invariant: results have at least one element, because the caller skips ops with empty results.
//! Operands may be empty.

pub(super) mod blocks;
pub(super) mod candidates;
pub(super) mod capped;
pub(super) mod delta;
pub(super) mod experts;
pub(super) mod frozen;
pub(crate) mod joined;
pub(super) mod loss;
mod quantised;
pub(super) mod routers;
pub(super) mod training;
pub(super) mod tree;
pub(super) mod views;

use smallvec::SmallVec;

use crate::base::{Bytes, DType, Dims, KERNEL_BLOCKS, Kernels, Number, Shape};

use self::quantised::QuantisedProduct;
use super::op::Kind;
use super::rule::PackedDims;
use crate::call::{BufferId, Call, View};

/// A shard on one device, and its position in the whole tensor.
#[derive(Clone, Debug)]
pub struct Local {
    /// View of the local elements.
    pub view: View,
    /// Index of the first local element in the whole tensor, per dim.
    pub starts: Dims,
    /// Sizes of the whole tensor.
    pub whole: Shape,
}

/// Collects the calls of one op on one device.
pub struct Emit<'a> {
    /// Operands in the order of the op.
    pub operands: Vec<Local>,
    /// Results of the op. In-place results use the storage of the overwritten operands.
    pub results: SmallVec<[Local; 2]>,
    /// Calls emitted so far.
    pub calls: Vec<Call>,
    /// Allocates a buffer of the given size, live from the first to the last call that uses it.
    pub allocate: &'a mut dyn FnMut(Bytes) -> BufferId,
    /// Kernels that can be launched.
    pub kernels: Kernels,
    /// Reusable results of earlier ops, still valid, the latest last.
    pub known: &'a mut Vec<Known>,
}

/// Derived results of a tensor, which several ops can share.
#[derive(Clone, Debug)]
pub struct Known {
    of: View,
    what: Derived,
    results: [View; 2],
}

impl Known {
    /// Returns whether the tensor is an input or a constant, which no op overwrites.
    #[must_use]
    pub const fn is_of_input(&self) -> bool {
        !matches!(self.what, Derived::Largest(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Derived {
    /// Largest elements over a dim, and their first indices.
    Largest(usize),
    /// The mask of tokens at these positions over the rows of a cache, twice.
    Hidden { length: usize, window: Option<usize>, skipped: usize },
    /// The mask of later tokens for any positions, twice.
    Triangle,
    /// The places of scales `[b·s·heads]` in `[n,heads,block]`, of tokens in these slots, twice.
    ScalePlaces { heads: usize, block: usize },
    /// The table of as many blocks, in their order, twice.
    Ordered,
    /// A vector with one f32 number, given by its bits, twice. It is stored under its own view.
    Constant(u32),
}

impl std::fmt::Debug for Emit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Emit").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl Emit<'_> {
    fn view(&self, operand: usize) -> View {
        self.operands[operand].view.clone()
    }

    fn out(&self) -> View {
        self.results[0].view.clone()
    }

    fn result(&self, index: usize) -> Option<View> {
        self.results.get(index).map(|result| result.view.clone())
    }

    /// Allocates a dense tensor.
    pub fn temporary(&mut self, dtype: DType, shape: impl Into<Shape>) -> View {
        let shape = shape.into();
        View::contiguous((self.allocate)(Bytes::of(shape.elems(), dtype.size_bytes())), dtype, shape)
    }

    /// Returns the view if it is dense, otherwise a dense copy.
    pub fn dense(&mut self, view: View) -> View {
        if view.is_contiguous() {
            return view;
        }
        let copy = self.temporary(view.dtype, view.shape.clone());
        self.calls.push(Call::Copy { from: view, into: copy.clone() });
        copy
    }

    /// Reshapes a view, and copies it only if its strides require this.
    fn shaped(&mut self, view: View, shape: impl Into<Shape>) -> View {
        let shape = shape.into();
        if let Some(view) = view.reshape(shape.clone()) {
            return view;
        }
        let dense = self.dense(view);
        View { strides: shape.strides(), shape, ..dense }
    }

    /// Writes the largest elements of `x` over a dim to `values`, and returns them with their first
    /// indices.
    fn largest(&mut self, x: View, dim: usize, values: View) -> [View; 2] {
        let indices = self.temporary(DType::I64, values.shape.clone());
        self.calls.push(Call::MaxDim { x: x.clone(), values: values.clone(), indices: indices.clone(), dim });
        let results = [values, indices];
        self.known.push(Known { of: x, what: Derived::Largest(dim), results: results.clone() });
        results
    }

    fn known(&self, of: &View, what: Derived) -> Option<[View; 2]> {
        let known = self.known.iter().rev().find(|known| known.what == what && known.of == *of);
        known.map(|known| known.results.clone())
    }

    /// Returns a vector of `size` equal f32 numbers.
    fn constant(&mut self, value: f32, size: usize) -> View {
        let what = Derived::Constant(value.to_bits());
        let is_equal = |known: &&Known| known.what == what && known.of.elems() == size;
        if let Some(known) = self.known.iter().find(is_equal) {
            return known.of.clone();
        }
        let of = self.temporary(DType::F32, [size]);
        self.calls.push(Call::Fill { into: of.clone(), value: Number::Float(value.into()) });
        self.known.push(Known { of: of.clone(), what, results: [of.clone(), of.clone()] });
        of
    }

    /// Calls `write` with a dense tensor of shape `shape`. It is `into` itself if possible,
    /// otherwise a temporary tensor that is then copied to `into`.
    fn write_shaped(&mut self, into: View, shape: impl Into<Shape>, write: impl FnOnce(&mut Self, View)) {
        let shape = shape.into();
        match into.reshape(shape.clone()) {
            Some(view) if view.is_contiguous() => write(self, view),
            _ => {
                let temporary = self.temporary(into.dtype, shape);
                write(self, temporary.clone());
                let strides = into.shape.strides();
                self.calls.push(Call::Copy {
                    from: View { shape: into.shape.clone(), strides, ..temporary },
                    into,
                });
            }
        }
    }
}

/// Emits nothing. `schedule` lowers movement ops, because it knows the groups.
pub(super) fn nothing(_: &Kind, _: &mut Emit<'_>) {}

pub(super) fn embed(_: &Kind, emit: &mut Emit<'_>) {
    let (ids, table, out) = (emit.view(0), emit.view(1), emit.out());
    if table.shape[0] == 0 && emit.operands[1].whole[0] > 0 {
        emit.calls.push(Call::Zero { into: out });
        return;
    }
    // Indices of rows on other devices look up any local row, which is then set to zero. The sum
    // over the devices is the result.
    let of = emit.operands[1].clone();
    let (ids, elsewhere) = local_index(emit, ids, &of, 0);
    let mask = elsewhere.map(|elsewhere| elsewhere.repeat(elsewhere.shape.rank(), 1));
    emit.calls.push(Call::Embedding { table, ids, out: out.clone() });
    emit.calls.extend(mask.map(|mask| Call::MaskedFill { mask, into: out, value: Number::Float(0.0) }));
}

/// Returns local, clamped indices of rows, and a mask of rows on other devices, if any.
fn local_index(emit: &mut Emit<'_>, index: View, of: &Local, dim: usize) -> (View, Option<View>) {
    let rows = of.view.shape[dim];
    if rows == of.whole[dim] {
        return (index, None);
    }
    let start = Number::Int(-(of.starts[dim] as i64));
    let shifted = emit.temporary(index.dtype, index.shape.clone());
    let clamped = emit.temporary(index.dtype, index.shape.clone());
    let elsewhere = emit.temporary(DType::Bool, index.shape.clone());
    let (low, high) = (Number::Int(0), Number::Int(rows as i64 - 1));
    emit.calls.extend([
        Call::Adds { x: index, out: shifted.clone(), by: start },
        Call::Clamp { x: shifted.clone(), out: clamped.clone(), low, high },
        Call::Ne { a: shifted, b: clamped.clone(), out: elsewhere.clone() },
    ]);
    (clamped, Some(elsewhere))
}

/// Permutes a tensor with dims `dims` to the dims in `order`, and drops absent letters.
fn arranged(view: &View, dims: &str, order: &str) -> View {
    view.permute(&order.chars().filter_map(|letter| dims.find(letter)).collect::<Vec<_>>())
}

pub(super) fn matmul(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::MatMul { spec } = kind else { return };
    let (batch, rows, columns, inner) = (spec.batch(), spec.rows(), spec.columns(), spec.summed());
    let x = arranged(&emit.view(0), spec.x(), &format!("{batch}{rows}{inner}"));
    let w = arranged(&emit.view(1), spec.w(), &format!("{batch}{inner}{columns}"));
    let out = arranged(&emit.out(), spec.result(), &format!("{batch}{rows}{columns}"));
    let count =
        |view: &View, from: usize, dims: &str| view.shape[from..from + dims.len()].iter().product::<usize>();
    let (b, m) = (count(&x, 0, &batch), count(&x, batch.len(), &rows));
    let (k, n) = (count(&w, batch.len(), &inner), count(&w, batch.len() + inner.len(), &columns));
    if k == 0 {
        emit.calls.push(Call::Zero { into: out });
        return;
    }
    let shape = |rows: usize, columns: usize| match batch.len() {
        0 => Shape::from([rows, columns]),
        _ => Shape::from([b, rows, columns]),
    };
    // A product with one row and one column is no total: with more rows it must have the same bits.
    let is_total = spec.result().is_empty();
    if is_total
        && x == w
        && x.is_contiguous()
        && x.dtype == DType::F32
        && (LEAST_SQUARES..=u32::MAX as usize).contains(&k)
        && emit.kernels.has("grad_stats")
    {
        let x = emit.shaped(x, [k]);
        squares(emit, x, out);
        return;
    }
    if is_total {
        let [a, b] = [x, w].map(|vector| emit.shaped(vector, [k]));
        emit.write_shaped(out, [], |emit, out| emit.calls.push(Call::Dot { a, b, out }));
        return;
    }
    let a = emit.shaped(x, shape(m, k));
    let w = emit.shaped(w, shape(k, n));
    emit.write_shaped(out, shape(m, n), |emit, out| emit.calls.push(Call::Matmul { a, b: w, out }));
}

pub(super) fn add_matmul(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::AddMatMul { spec } = kind else { return };
    let (sum, out) = (emit.view(0), emit.out());
    if sum != out {
        emit.calls.push(Call::Copy { from: sum, into: out.clone() });
    }
    let (batch, rows, columns, inner) = (spec.batch(), spec.rows(), spec.columns(), spec.summed());
    let result = format!("{batch}{rows}{columns}");
    let x = arranged(&emit.view(1), spec.x(), &format!("{batch}{rows}{inner}"));
    let w = arranged(&emit.view(2), spec.w(), &format!("{batch}{inner}{columns}"));
    let out = arranged(&out, spec.result(), &result);
    let [b, m, n] = [&batch, &rows, &columns].map(|dims| {
        let size = |letter| spec.result().find(letter).map_or(1, |dim| emit.results[0].view.shape[dim]);
        dims.chars().map(size).product::<usize>()
    });
    let k = x.elems() / (b * m);
    let a = emit.shaped(x, [b, m, k]);
    let w = emit.shaped(w, [b, k, n]);
    if let Some(into) = out.reshape([b, m, n]) {
        emit.calls.push(Call::AddProduct { a, b: w, into });
        return;
    }
    let into = emit.shaped(out.clone(), [b, m, n]);
    emit.calls.push(Call::AddProduct { a, b: w, into: into.clone() });
    let from = emit.shaped(into, out.shape.clone());
    emit.calls.push(Call::Copy { from, into: out });
}

/// Smallest number of elements for which the kernel sums squares. aclnnDot reads each element
/// twice, but needs a single launch.
const LEAST_SQUARES: usize = 1 << 20;

const RECORD: usize = 24;

fn squares(emit: &mut Emit<'_>, x: View, out: View) {
    let records = emit.temporary(DType::F32, [KERNEL_BLOCKS as usize * RECORD]);
    emit.calls.push(Call::SquareSums { x, records: records.clone() });
    emit.calls.push(Call::ReduceSum { x: records, out, dim: 0 });
}

fn row_sizes(shape: &Shape, dims: usize) -> [usize; 2] {
    let lead = shape.rank() - dims;
    [&shape[..lead], &shape[lead..]].map(|sizes| sizes.iter().product())
}

pub(super) fn row_scale(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::RowScale { dims } = kind else { return };
    let (x, out) = (emit.view(0), emit.out());
    let [m, k] = row_sizes(&x.shape, *dims);
    if k == 0 {
        // The maximum of no magnitudes is 0.
        emit.calls.push(Call::Fill { into: out, value: Number::Float(0.0) });
        return;
    }
    let x = emit.shaped(x, [m, k]);
    emit.write_shaped(out, [m], |emit, out| {
        if x.dtype != DType::F32 {
            let integers = emit.temporary(DType::I8, [m, k]);
            emit.calls.push(Call::DynamicQuant { x, out: integers, scales: out });
            return;
        }
        // aclnnDynamicQuant supports 16-bit floats only.
        emit.row_scales(x, out);
    });
}

pub(super) fn quantise(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::Quantise { dims } = kind else { return };
    let (x, scales, out) = (emit.view(0), emit.view(1), emit.out());
    let [m, k] = row_sizes(&x.shape, *dims);
    let x = emit.shaped(x, [m, k]);
    let scales = emit.shaped(scales, [m]);
    // With f32 scales, CANN 8.1 documents aclnnQuantize for f32 rows only.
    let wide = match x.dtype {
        DType::F32 => x,
        _ => {
            let wide = emit.temporary(DType::F32, [m, k]);
            emit.calls.push(Call::Cast { x, out: wide.clone() });
            wide
        }
    };
    emit.write_shaped(out, [m, k], |emit, out| emit.quantised_rows(wide, scales, out));
}

pub(super) fn quant_matmul(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::QuantMatMul { spec, .. } = kind else { return };
    let (rows, columns, inner) = (spec.rows(), spec.columns(), spec.summed());
    let q = arranged(&emit.view(0), spec.x(), &format!("{rows}{inner}"));
    let tokens = arranged(&emit.view(1), &spec.row_scale(), &rows);
    let w = arranged(&emit.view(2), spec.w(), &format!("{columns}{inner}"));
    let scale = arranged(&emit.view(3), &spec.scale(), &columns);
    let out = arranged(&emit.out(), spec.result(), &format!("{rows}{columns}"));
    let [m, k] = row_sizes(&q.shape, inner.len());
    let n = scale.elems();
    if k == 0 {
        emit.calls.push(Call::Zero { into: out });
        return;
    }
    let x = emit.shaped(q, [m, k]);
    let tokens = emit.shaped(tokens, [m]);
    let w = emit.shaped(w, [n, k]);
    let w = emit.dense(w);
    let scale = emit.shaped(scale, [n]);
    emit.write_shaped(out, [m, n], |emit, out| {
        emit.quantised_product(QuantisedProduct { x, tokens, w, scale, bias: None, out });
    });
}

pub(super) fn packed_matmul(kind: &Kind, emit: &mut Emit<'_>) {
    let (Some(spec), Some(PackedDims { group, .. })) = (kind.einsum(), kind.packed()) else { return };
    let (x, out) = (emit.view(0), emit.out());
    let [m, k] = row_sizes(&x.shape, spec.summed().len());
    if k == 0 {
        emit.calls.push(Call::Zero { into: out });
        return;
    }
    let n = out.elems() / m;
    let x = emit.shaped(x, [m, k]);
    let params = (1..emit.operands.len()).map(|at| emit.view(at)).collect();
    emit.write_shaped(out, [m, n], |emit, out| emit.packed_product(x, params, group, out));
}

pub(super) fn quantise_static(_: &Kind, emit: &mut Emit<'_>) {
    let (x, scale, offset, out) = (emit.view(0), emit.view(1), emit.view(2), emit.out());
    let shape = x.shape.clone();
    if shape.elems() == 0 {
        return;
    }
    let numbers = emit.temporary(DType::F32, shape.clone());
    if x.dtype != DType::F32 {
        emit.calls.push(Call::Cast { x: x.clone(), out: numbers.clone() });
    }
    let x = if x.dtype == DType::F32 { x } else { numbers.clone() };
    let [factor, one] = [(); 2].map(|()| emit.temporary(DType::F32, [1]));
    emit.calls.extend([
        Call::Reciprocal { x: scale, out: factor.clone() },
        Call::Fill { into: one.clone(), value: Number::Float(1.0) },
        Call::Mul { a: x, b: factor, out: numbers.clone() },
        Call::Add { a: numbers.clone(), b: offset, out: numbers.clone() },
    ]);
    let [m, k] = row_sizes(&shape, 1);
    let x = emit.shaped(numbers, [m, k]);
    // With a scale of 1, the operator rounds and saturates.
    emit.write_shaped(out, [m, k], |emit, out| emit.calls.push(Call::Quantize { x, scales: one, out }));
}

pub(super) fn static_matmul(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::StaticMatMul { spec, .. } = kind else { return };
    let (rows, columns, inner) = (spec.rows(), spec.columns(), spec.summed());
    let q = arranged(&emit.view(0), spec.x(), &format!("{rows}{inner}"));
    let starts = &emit.operands[1].starts;
    let is_first = spec.w().chars().zip(starts).all(|(letter, start)| *start == 0 || !inner.contains(letter));
    let w = arranged(&emit.view(1), spec.w(), &format!("{columns}{inner}"));
    let [scale, bias] = [2, 3].map(|at| arranged(&emit.view(at), &spec.scale(), &columns));
    let out = arranged(&emit.out(), spec.result(), &format!("{rows}{columns}"));
    let [m, k] = row_sizes(&q.shape, inner.len());
    let n = scale.elems();
    if k == 0 {
        emit.calls.push(Call::Zero { into: out });
        return;
    }
    let x = emit.shaped(q, [m, k]);
    let w = emit.shaped(w, [n, k]);
    let w = emit.dense(w);
    let [scale, bias] = [scale, bias].map(|view| emit.shaped(view, [n]));
    let tokens = emit.temporary(DType::F32, [m]);
    emit.calls.push(Call::Fill { into: tokens.clone(), value: Number::Float(1.0) });
    let bias = is_first.then_some(bias);
    emit.write_shaped(out, [m, n], |emit, out| {
        emit.quantised_product(QuantisedProduct { x, tokens, w, scale, bias, out });
    });
}

pub(super) fn add(_: &Kind, emit: &mut Emit<'_>) {
    emit.calls.push(Call::Add { a: emit.view(0), b: emit.view(1), out: emit.out() });
}

pub(super) fn subtract(_: &Kind, emit: &mut Emit<'_>) {
    emit.calls.push(Call::Sub { a: emit.view(0), b: emit.view(1), out: emit.out() });
}

pub(super) fn mul(_: &Kind, emit: &mut Emit<'_>) {
    emit.calls.push(Call::Mul { a: emit.view(0), b: emit.view(1), out: emit.out() });
}

pub(super) fn hide(_: &Kind, emit: &mut Emit<'_>) {
    let (from, mask, into) = (emit.view(0), emit.view(1), emit.out());
    if from != into {
        emit.calls.push(Call::Copy { from, into: into.clone() });
    }
    emit.calls.push(Call::MaskedFill { mask, into, value: Number::Float(0.0) });
}

pub(super) fn scale(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::Scale { by } = kind else { return };
    emit.calls.push(Call::Muls { x: emit.view(0), out: emit.out(), by: Number::Float(*by) });
}

pub(super) fn shift(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::Shift { by } = kind else { return };
    emit.calls.push(Call::Adds { x: emit.view(0), out: emit.out(), by: Number::Float(*by) });
}

pub(super) fn inverse_root(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::InverseRoot { by, epsilon } = kind else { return };
    let out = emit.out();
    emit.calls.extend([
        Call::Muls { x: emit.view(0), out: out.clone(), by: Number::Float(*by) },
        Call::Adds { x: out.clone(), out: out.clone(), by: Number::Float(*epsilon) },
        Call::Rsqrt { x: out.clone(), out },
    ]);
}

pub(super) fn gelu_gate(_: &Kind, emit: &mut Emit<'_>) {
    let (gate, up, out) = (emit.view(0), emit.view(1), emit.out());
    emit.calls.extend([Call::Gelu { x: gate, out: out.clone() }, Call::Mul { a: out.clone(), b: up, out }]);
}

pub(super) fn silu(_: &Kind, emit: &mut Emit<'_>) {
    emit.calls.push(Call::Silu { x: emit.view(0), out: emit.out() });
}

pub(super) fn swiglu(_: &Kind, emit: &mut Emit<'_>) {
    let views = [emit.view(0), emit.view(1), emit.out()];
    // The intermediate size can have several dims. They become one if this needs no copy.
    let rows = |view: &View| {
        let row = [&view.shape[..2], &[view.shape[2..].iter().product()]].concat();
        (view.shape.rank() > 3).then(|| view.reshape(row)).flatten()
    };
    let [gate, up, out] = match views.each_ref().map(rows) {
        [Some(gate), Some(up), Some(out)] => [gate, up, out],
        _ => views,
    };
    let dim = out.shape.rank() - 1;
    let halves = View::side_by_side(&[gate.clone(), up.clone()]).filter(|_| out.is_contiguous());
    if let Some(x) = halves.filter(|_| gate.shape == up.shape) {
        // One row of a wider product is dense and several are not. Both must have the same bits.
        let x = emit.dense(x);
        emit.calls.push(Call::SwiGlu { x, out, dim });
        return;
    }
    emit.calls.push(Call::Silu { x: gate, out: out.clone() });
    emit.calls.push(Call::Mul { a: out.clone(), b: up, out });
}

pub(super) fn rms_norm(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::RmsNorm { epsilon } = kind else { return };
    let x = emit.view(0);
    let last = x.shape.rank() - 1;
    let rstd = match emit.result(1) {
        Some(rstd) => rstd.repeat(last, 1),
        None => emit.temporary(DType::F32, x.shape.with(last, 1)),
    };
    emit.calls.push(Call::RmsNorm { x, gamma: emit.view(1), out: emit.out(), rstd, epsilon: *epsilon });
}

pub(super) fn rope(_: &Kind, emit: &mut Emit<'_>) {
    let (x, out) = (emit.view(0), emit.out());
    let (x, out) = kept_dims(emit, x, out);
    let &[b, s, ref heads @ .., d] = x.shape.sizes() else { return };
    rotary(emit, x.clone(), out, [b, s, heads.iter().product(), d].into());
}

pub(super) fn rope_pairs(_: &Kind, emit: &mut Emit<'_>) {
    let (x, out) = (emit.view(0), emit.out());
    let (x, out) = kept_dims(emit, x, out);
    let &[b, s, ref heads @ .., d] = x.shape.sizes() else { return };
    // The operator rotates halves, so the first dims of all pairs become the first half.
    let halves = |view: &View| {
        let last = view.shape.rank() - 1;
        let mut pairs = view.clone();
        pairs.shape = view.shape.with(last, d / 2).iter().copied().chain([2]).collect();
        pairs.strides = view.strides.clone();
        pairs.strides[last] *= 2;
        pairs.strides.push(view.strides[last]);
        let order: Vec<usize> = (0..last).chain([last + 1, last]).collect();
        pairs.permute(&order)
    };
    let (x, out) = (halves(&x), halves(&out));
    rotary(emit, x, out, [b, s, heads.iter().product(), d].into());
}

/// Copies the dims of heads that are not rotated, and returns the rotated ones of operand and
/// result.
fn kept_dims(emit: &mut Emit<'_>, x: View, out: View) -> (View, View) {
    let (last, rotated) = (x.shape.rank() - 1, emit.view(1).shape[2]);
    let kept = x.shape[last] - rotated;
    if kept == 0 {
        return (x, out);
    }
    emit.calls
        .push(Call::Copy { from: x.narrow(last, rotated, kept), into: out.narrow(last, rotated, kept) });
    (x.narrow(last, 0, rotated), out.narrow(last, 0, rotated))
}

/// Rotates halves of the last dim of `x`, which has the elements of `[b,s,n,d]`.
fn rotary(emit: &mut Emit<'_>, x: View, out: View, shape: Shape) {
    let (cos, sin) = (emit.view(1), emit.view(2));
    let [b, s, d] = [shape[0], shape[1], shape[3]];
    let x = emit.shaped(x, shape.clone());
    let (cos, sin) = (emit.shaped(cos, [b, s, 1, d]), emit.shaped(sin, [b, s, 1, d]));
    emit.write_shaped(out, shape, |emit, out| emit.calls.push(Call::Rotary { x, cos, sin, out }));
}

/// Returns whether aclnnFusedInferAttentionScoreV2 supports the type and head size. It takes f16 or
/// bf16, and multiples of 16 up to 512 (CANN documentation of the operator, A2).
pub(crate) const fn fused_attention_takes(dtype: DType, head_size: usize) -> bool {
    matches!(dtype, DType::F16 | DType::BF16) && head_size.is_multiple_of(16) && head_size <= 512
}

/// Number of copies of each row statistic in results of aclnnFlashAttentionScore: a block of 32
/// bytes.
pub(crate) const COPIES: usize = 8;

fn attention_operands(emit: &mut Emit<'_>) -> [View; 4] {
    let (q, keys, values, mask) = (emit.view(0), emit.view(1), emit.view(2), emit.view(3));
    let &[b, s, k, g, d] = q.shape.sizes() else {
        unreachable!("queries have five dims, as their rule says")
    };
    let (q, mask) = (emit.shaped(q, [b, s, k * g, d]), emit.shaped(mask, [b, 1, s, keys.shape[1]]));
    [q, keys, values, mask].map(|view| emit.dense(view))
}

/// Emits the attention weights `[b,k,g,s,t]` of an attention op.
fn attention_weights(emit: &mut Emit<'_>, scale: f64) -> View {
    let (q, keys, mask) = (emit.view(0), emit.view(1), emit.view(3));
    let q = q.permute(&[0, 2, 3, 1, 4]);
    let keys = keys.permute(&[0, 2, 3, 1]).repeat(2, 1);
    let shape = q.shape.with(4, keys.shape[4]);
    let scores = emit.temporary(q.dtype, shape.clone());
    let weights = emit.temporary(q.dtype, shape);
    let mask = mask.repeat(1, 1).repeat(1, 1);
    emit.calls.extend([
        Call::Matmul { a: q, b: keys, out: scores.clone() },
        Call::Muls { x: scores.clone(), out: scores.clone(), by: Number::Float(scale) },
        Call::MaskedFill { mask, into: scores.clone(), value: Number::Float(f64::NEG_INFINITY) },
        Call::Softmax { x: scores, out: weights.clone(), dim: 4 },
    ]);
    weights
}

pub(super) fn attention(kind: &Kind, emit: &mut Emit<'_>) {
    let (Kind::Attention { scale } | Kind::RingAttention { scale, .. }) = kind else { return };
    let (q, values, out) = (emit.view(0), emit.view(2), emit.out());
    let &[b, s, k, g, d] = q.shape.sizes() else { return };
    let heads = k * g;
    let statistics: Vec<View> = emit.results.iter().skip(1).map(|result| result.view.clone()).collect();
    if !statistics.is_empty() {
        let [q, keys, values, mask] = attention_operands(emit);
        let [max, sum] = [(); 2].map(|()| emit.temporary(DType::F32, [b, heads, s, COPIES]));
        let kept = [max.clone(), sum.clone()];
        emit.write_shaped(out, [b, s, heads, d], |emit, out| {
            let [q, k, v, mask, max, sum, out] = [q, keys, values, mask, max, sum, out].map(Box::new);
            emit.calls.push(Call::FlashAttention { q, k, v, mask, max, sum, out, heads, scale: *scale });
        });
        for (copies, into) in kept.into_iter().zip(statistics) {
            let from = emit.shaped(copies.narrow(3, 0, 1), into.shape.clone());
            emit.calls.push(Call::Copy { from, into });
        }
        return;
    }
    if fused_attention_takes(q.dtype, d) {
        let [q, keys, values, mask] = attention_operands(emit);
        emit.write_shaped(out, [b, s, heads, d], |emit, out| {
            let (mask, kv_heads) = (Some(Box::new(mask)), k);
            let [q, k, v, out] = [q, keys, values, out].map(Box::new);
            let (table, lengths, block, sparse_mode, window, scale) = (None, None, 0, 0, 0, *scale);
            emit.calls.push(Call::FusedAttention {
                q,
                k,
                v,
                mask,
                table,
                k_scale: None,
                v_scale: None,
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
        return;
    }
    let by_head = |view: &View| view.permute(&[0, 2, 3, 1, 4]);
    let weights = attention_weights(emit, *scale);
    let values = values.permute(&[0, 2, 1, 3]).repeat(2, 1);
    emit.write_shaped(by_head(&out), [b, k, g, s, d], |emit, out| {
        emit.calls.push(Call::Matmul { a: weights, b: values, out });
    });
}

pub(super) fn take(_: &Kind, emit: &mut Emit<'_>) {
    let (x, index, out) = (emit.view(0), emit.view(1), emit.out());
    let width = x.shape[2];
    let index = index.repeat(1, 1).repeat(2, width);
    emit.calls.push(Call::Gather { x, index, out: out.repeat(1, 1), dim: 1 });
}

pub(super) fn reduce_sum(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::ReduceSum { dim } = kind else { return };
    let (x, out) = (emit.view(0), emit.out());
    emit.calls.push(if x.shape[*dim] == 0 {
        Call::Zero { into: out }
    } else {
        Call::ReduceSum { x, out, dim: *dim }
    });
}

pub(super) fn reduce_max(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::ReduceMax { dim } = kind else { return };
    let (x, out) = (emit.view(0), emit.out());
    if x.shape[*dim] == 0 {
        emit.calls.push(Call::Fill { into: out, value: Number::Float(f64::NEG_INFINITY) });
        return;
    }
    emit.largest(x, *dim, out);
}

fn largest_finite(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f64::from(half::f16::MAX),
        DType::BF16 => f64::from(half::bf16::MAX),
        _ => f64::from(f32::MAX),
    }
}

pub(super) fn index_of(_: &Kind, emit: &mut Emit<'_>) {
    let (x, wanted, out) = (emit.view(0), emit.view(1), emit.out());
    let dim = x.shape.rank() - 1;
    if x.shape[dim] == 0 {
        emit.calls.push(Call::Fill { into: out, value: Number::Int(i64::MAX) });
        return;
    }
    // Callers search for the largest element, so the local candidate is the index of the local
    // maximum.
    let start = Number::Int(emit.operands[0].starts[dim] as i64);
    let own = emit.temporary(x.dtype, out.shape.clone());
    let [largest, first] = match emit.known(&x, Derived::Largest(dim)) {
        Some(known) => known,
        None => emit.largest(x, dim, own.clone()),
    };
    let elsewhere = emit.temporary(DType::Bool, out.shape.clone());
    let most = largest_finite(own.dtype);
    emit.calls.extend([
        Call::Adds { x: first, out: out.clone(), by: start },
        // An infinite maximum then differs from the wanted value, so no device reports it.
        Call::Clamp { x: largest, out: own.clone(), low: Number::Float(-most), high: Number::Float(most) },
        Call::Ne { a: own, b: wanted, out: elsewhere.clone() },
        Call::MaskedFill { mask: elsewhere, into: out, value: Number::Int(i64::MAX) },
    ]);
}

pub(super) fn cast(_: &Kind, emit: &mut Emit<'_>) {
    emit.calls.push(Call::Cast { x: emit.view(0), out: emit.out() });
}

pub(super) fn concat(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::Concat { dim } = *kind else { return };
    let (x, y, out) = (emit.view(0), emit.view(1), emit.out());
    let [first, second] = [x.shape[dim], y.shape[dim]];
    let parts = [(x, out.narrow(dim, 0, first)), (y, out.narrow(dim, first, second))];
    // A part that was written to its place is not copied.
    let parts = parts.into_iter().filter(|(from, into)| from.elems() > 0 && from != into);
    emit.calls.extend(parts.map(|(from, into)| Call::Copy { from, into }));
}
