//! Lowers sums in tree order. Each device computes the tree nodes that it holds, and each pair of
//! nodes is added in place.

use std::ops::Range;

use crate::base::{DType, Dims, Kernels, Shape};
use crate::call::{Call, View};
use crate::program::op::Kind;
use crate::program::tree::{Halved, Node};

use super::loss::exponentials;
use super::training::{blanked, zeros};
use super::{Emit, arranged, local_index};

/// Returns the local tree. `at` lists the dims of operand 0 that `kind` halves.
fn node(kind: &Kind, emit: &Emit<'_>, at: &[usize]) -> Node {
    let shapes: Vec<&Shape> = emit.operands.iter().map(|operand| &operand.whole).collect();
    let dims: Vec<Halved> = (kind.row().tree)(kind, &shapes).into_iter().map(|(_, dim)| dim).collect();
    let operand = &emit.operands[0];
    let starts: Vec<usize> = at.iter().map(|dim| operand.starts[*dim]).collect();
    let sizes: Vec<usize> = at.iter().map(|dim| operand.view.shape[*dim]).collect();
    Node::of_part(&dims, &starts, &sizes)
}

type PutBlock<'a> = dyn Fn(&mut Emit<'_>, &[Range<usize>], View) + 'a;

struct BlockSum<'a> {
    write: &'a PutBlock<'a>,
    /// Adds to the view, if one call has the same bits as two.
    add: Option<&'a PutBlock<'a>>,
}

fn sum(emit: &mut Emit<'_>, node: &Node, into: View, block: &BlockSum<'_>) {
    let both = match node {
        Node::Block(ranges) => return (block.write)(emit, ranges, into),
        Node::Join(both) => both,
    };
    sum(emit, &both[0], into.clone(), block);
    if let (Node::Block(ranges), Some(add)) = (&both[1], block.add) {
        add(emit, ranges, into);
        return;
    }
    let second = emit.temporary(into.dtype, into.shape.clone());
    sum(emit, &both[1], second.clone(), block);
    emit.calls.push(Call::Add { a: into.clone(), b: second, out: into });
}

/// Writes the sums of a range of sequences.
type PutSums<'a> = dyn Fn(&mut Emit<'_>, &Range<usize>, &[View]) + 'a;

/// Writes sums over the first dim of operand 0 in tree order. `write` puts the sums of a range of
/// that dim into views like the results.
pub(super) fn sums_over_sequences(kind: &Kind, emit: &mut Emit<'_>, results: &[View], write: &PutSums<'_>) {
    let node = node(kind, emit, &[0]);
    joint_sum(emit, &node, results, write);
}

fn joint_sum(emit: &mut Emit<'_>, node: &Node, results: &[View], write: &PutSums<'_>) {
    let both = match node {
        Node::Block(ranges) => return write(emit, &ranges[0], results),
        Node::Join(both) => both,
    };
    joint_sum(emit, &both[0], results, write);
    let second: Vec<View> =
        results.iter().map(|into| emit.temporary(into.dtype, into.shape.clone())).collect();
    joint_sum(emit, &both[1], &second, write);
    let pairs = results.iter().zip(second);
    emit.calls.extend(pairs.map(|(a, b)| Call::Add { a: a.clone(), b, out: a.clone() }));
}

pub(in crate::program) fn matmul(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::TreeMatMul { spec } = kind else { return };
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
    let halved = spec.halved();
    let dims: Vec<usize> = halved.chars().filter_map(|letter| spec.x().find(letter)).collect();
    let node = node(kind, emit, &dims);
    let inner_sizes: Vec<usize> = dims.iter().map(|dim| emit.operands[0].view.shape[*dim]).collect();
    let inner_sizes = if halved == inner[..halved.len()] { inner_sizes } else { Vec::new() };
    let block = |view: &View, first: usize, ranges: &[Range<usize>]| {
        let dims = halved.chars().filter_map(|letter| inner.find(letter));
        dims.zip(ranges)
            .fold(view.clone(), |view, (dim, range)| view.narrow(first + dim, range.start, range.len()))
    };
    emit.write_shaped(out, shape(m, n), |emit, out| {
        let is_f32 = [&x, &w, &out].iter().all(|view| view.dtype == DType::F32);
        let at_once = node.runs(&inner_sizes).filter(|_| batch.is_empty());
        let at_once = at_once.map(|blocks| BlocksPerCall::of(blocks, [m, n, k], is_f32, emit.kernels));
        if let Some((at_once, rows)) = at_once.and_then(|at_once| Some((at_once, at_once.rows([m, n])?))) {
            let (x, w) = (emit.shaped(x, [m, k]), emit.shaped(w, [k, n]));
            for first in (0..m).step_by(rows) {
                let [x, out] = [&x, &out].map(|view| view.narrow(0, first, rows.min(m - first)));
                at_once.products(emit, [x, w.clone()], &out);
            }
            return;
        }
        let factors = |emit: &mut Emit<'_>, ranges: &[Range<usize>]| {
            let (x, w) = (block(&x, batch.len() + rows.len(), ranges), block(&w, batch.len(), ranges));
            let k = count(&w, batch.len(), &inner);
            [emit.shaped(x, shape(m, k)), emit.shaped(w, shape(k, n))]
        };
        let write = |emit: &mut Emit<'_>, ranges: &[Range<usize>], out: View| {
            let [a, b] = factors(emit, ranges);
            if a.dtype == out.dtype {
                emit.calls.push(Call::Matmul { a, b, out });
                return;
            }
            let narrow = emit.temporary(a.dtype, out.shape.clone());
            emit.calls.extend([Call::Matmul { a, b, out: narrow.clone() }, Call::Cast { x: narrow, out }]);
        };
        let add = |emit: &mut Emit<'_>, ranges: &[Range<usize>], into: View| {
            let [a, b] = factors(emit, ranges);
            let [a, b, into] =
                [a, b, into].map(|view| if view.shape.rank() == 2 { view.repeat(0, 1) } else { view });
            emit.calls.push(Call::AddProduct { a, b, into });
        };
        sum(emit, &node, out, &BlockSum { write: &write, add: if is_f32 { Some(&add) } else { None } });
    });
}

/// Largest number of product elements per call that still stay in a cache until they are added.
const MOST_AT_ONCE: usize = 2 << 20;
/// Smallest number of rows for which it is worth reading the right operand again.
const LEAST_ROWS: usize = 128;

/// Number of block products per call. In pairs, a second call computes the second block of each
/// pair and adds it to the first.
#[derive(Clone, Copy)]
struct BlocksPerCall {
    blocks: usize,
    in_pairs: bool,
}

impl BlocksPerCall {
    /// Chooses the calls for products `[m, k] × [k, n]` of each block. Pairs halve the memory
    /// traffic. However, every second block of the right operand is copied for each piece of the
    /// rows, so this operand must be small. Kernel `ordered_sum` adds all blocks without pairs.
    fn of(blocks: usize, [_, n, k]: [usize; 3], is_f32: bool, kernels: Kernels) -> Self {
        let in_pairs = is_f32 && k * n <= MOST_AT_ONCE && !kernels.has("ordered_sum");
        Self { blocks, in_pairs }
    }

    const fn held(self) -> usize {
        if self.in_pairs { self.blocks / 2 } else { self.blocks }
    }

    /// Returns the rows of a result `[m, n]` per call, or `None` if a separate launch per block is
    /// cheaper.
    fn rows(self, [m, n]: [usize; 2]) -> Option<usize> {
        let rows = (MOST_AT_ONCE / (self.held() * n).max(1)).min(m);
        (rows == m || rows >= LEAST_ROWS).then_some(rows.max(1))
    }

    fn products(self, emit: &mut Emit<'_>, [x, w]: [View; 2], out: &View) {
        let (m, n, k) = (x.shape[0], w.shape[1], w.shape[0] / self.blocks);
        let held = self.held();
        let every = self.blocks / held;
        let blocks = |view: &View, dim: usize, first: usize| {
            let mut blocks = view.narrow(dim, first * k, k).repeat(0, held);
            blocks.strides[0] = view.strides[dim] * k * every;
            blocks
        };
        let mut products = if held == 1 { out.repeat(0, 1) } else { emit.temporary(x.dtype, [held, m, n]) };
        emit.calls.push(Call::Matmul { a: blocks(&x, 1, 0), b: blocks(&w, 0, 0), out: products.clone() });
        if self.in_pairs {
            let (a, b, into) = (blocks(&x, 1, 1), blocks(&w, 0, 1), products.clone());
            emit.calls.push(Call::AddProduct { a, b, into });
        }
        if products.dtype != out.dtype {
            let wide = emit.temporary(out.dtype, products.shape.clone());
            emit.calls.push(Call::Cast { x: products, out: wide.clone() });
            products = wide;
        }
        if held > 1 {
            emit.calls.extend(by_pairs(products, 0, out, emit.kernels, |kept| kept));
        }
    }
}

pub(in crate::program) fn sum_along(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::TreeSum { dim, .. } = *kind else { return };
    let (x, out) = (emit.view(0), emit.out());
    if x.elems() == 0 {
        zeros(emit);
        return;
    }
    along(emit, &node(kind, emit, &[dim]), &x, dim, out);
}

fn along(emit: &mut Emit<'_>, node: &Node, x: &View, dim: usize, out: View) {
    match node.even_blocks() {
        Some(blocks) if blocks.len() > 1 => {
            let length = blocks[0][0].len();
            let mut parts = x.clone();
            if length > 1 {
                let mut split = x.repeat(dim, blocks.len());
                split.strides[dim] = x.strides[dim] * length;
                let split = split.narrow(dim + 1, 0, length);
                parts = emit.temporary(x.dtype, x.shape.with(dim, blocks.len()));
                emit.calls.push(Call::ReduceSum { x: split, out: parts.clone(), dim: dim + 1 });
            }
            let calls =
                by_pairs(parts, dim, &out, emit.kernels, |kept| emit.temporary(kept.dtype, kept.shape));
            emit.calls.extend(calls);
        }
        _ => {
            let write = |emit: &mut Emit<'_>, ranges: &[Range<usize>], out: View| {
                let block = x.narrow(dim, ranges[0].start, ranges[0].len());
                emit.calls.push(match block.shape[dim] {
                    1 => Call::Copy { from: without(&block, dim), into: out },
                    _ => Call::ReduceSum { x: block, out, dim },
                });
            };
            sum(emit, node, out, &BlockSum { write: &write, add: None });
        }
    }
}

fn without(view: &View, dim: usize) -> View {
    let keep = |at: &usize| *at != dim;
    let dims: Vec<usize> = (0..view.shape.rank()).filter(keep).collect();
    let sizes: Dims = dims.iter().map(|dim| view.shape[*dim]).collect();
    View { shape: sizes.into(), strides: dims.iter().map(|dim| view.strides[*dim]).collect(), ..view.clone() }
}

const MOST_ROWS: usize = 32;

/// Returns a kernel call that adds rows in tree order, if supported. The kernel rounds once, so
/// only f32 has the same bits. For two rows, a plain addition moves as few bytes.
fn ordered_sum(x: &View, dim: usize, out: &View) -> Option<Call> {
    let rows = x.shape[dim];
    let is_outermost = x.shape[..dim].iter().all(|size| *size == 1);
    if !is_outermost
        || x.dtype != DType::F32
        || !(3..=MOST_ROWS).contains(&rows)
        || u32::try_from(x.elems()).is_err()
    {
        return None;
    }
    let dense = |view: &View, shape: Shape| view.reshape(shape).filter(View::is_contiguous);
    let elems = out.elems();
    Some(Call::OrderedSum { x: dense(x, [rows, elems].into())?, out: dense(out, [elems].into())? })
}

/// Returns calls that add the elements of `x` along `dim` in pairs, then pairs of sums, and so on.
/// The last element of an odd count waits for the next round. `dim` must have at least two
/// elements. The kernel `ordered_sum` replaces these calls if it is available and supports `x`.
///
/// `sums` returns the destination of a round from the first element of each pair: the same memory
/// if it is no longer needed, or another buffer.
pub fn by_pairs(
    mut x: View,
    dim: usize,
    out: &View,
    kernels: Kernels,
    mut sums: impl FnMut(View) -> View,
) -> Vec<Call> {
    if let Some(call) = ordered_sum(&x, dim, out).filter(|_| kernels.has("ordered_sum")) {
        return vec![call];
    }
    let mut calls = Vec::new();
    while x.shape[dim] > 1 {
        let (half, rest) = (x.shape[dim] / 2, x.shape[dim] % 2);
        let every_second = |offset: usize, count: usize| {
            let shape = x.shape.with(dim, count);
            let mut view = View { offset: x.offset + offset * x.strides[dim], shape, ..x.clone() };
            view.strides[dim] *= 2;
            view
        };
        let kept = every_second(0, half + rest);
        let sum = if half + rest == 1 { out.repeat(dim, 1) } else { sums(kept.clone()) };
        calls.push(Call::Add {
            a: every_second(0, half),
            b: every_second(1, half),
            out: sum.narrow(dim, 0, half),
        });
        if rest == 1 && sum != kept {
            calls.push(Call::Copy { from: x.narrow(dim, 2 * half, 1), into: sum.narrow(dim, half, 1) });
        }
        x = sum;
    }
    calls
}

pub(in crate::program) fn sum_exp(kind: &Kind, emit: &mut Emit<'_>) {
    let (x, largest, out) = (emit.view(0), emit.view(1), emit.out());
    if x.elems() == 0 {
        zeros(emit);
        return;
    }
    let dim = x.shape.rank() - 1;
    let node = node(kind, emit, &[dim]);
    let powers = emit.temporary(x.dtype, x.shape.clone());
    exponentials(emit, x, &largest, powers.clone());
    along(emit, &node, &powers, dim, out);
}

pub(in crate::program) fn embed_grad(kind: &Kind, emit: &mut Emit<'_>) {
    let (ids, dy, out) = (emit.view(0), emit.view(1), emit.out());
    if ids.elems() == 0 {
        zeros(emit);
        return;
    }
    let node = node(kind, emit, &[0]);
    let of = emit.results[0].clone();
    let (index, elsewhere) = local_index(emit, ids, &of, 0);
    let dy = blanked(emit, dy, elsewhere);
    let width = out.shape[1];
    let write = |emit: &mut Emit<'_>, ranges: &[Range<usize>], into: View| {
        let [index, rows] = [&index, &dy].map(|view| view.narrow(0, ranges[0].start, ranges[0].len()));
        let count = index.elems();
        let (index, rows) = (emit.shaped(index, [count]), emit.shaped(rows, [count, width]));
        emit.calls.extend([Call::Zero { into: into.clone() }, Call::IndexAdd { index, rows, into, dim: 0 }]);
    };
    sum(emit, &node, out, &BlockSum { write: &write, add: None });
}
