//! Reverse-mode differentiation of programs.
//!
//! Input: a [`Builder`] with a program, cotangents of some values, and the values to differentiate
//! by. Output: the gradients, as values of the same builder.
//!
//! The pass works on whole tensors, before placement. Reductions of gradients between ranks follow
//! from the sharding rules of the added ops. Each op's adjoint is in column `grad` of the op table
//! and uses ops of the same table.
//!
//! Invariant: existing ops keep their order and operands. They may gain results.

pub(super) mod experts;

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::base::{DType, Diagnostic, Id};

use super::build::{Builder, Operand};
use super::graph::{Op, OpId, Program, Role, Value, ValueId};
use super::op::Kind;
use super::tree::{BLOCK_LEVELS, Halved};

/// The adjoint of one op during construction.
pub struct Adjoint<'a, 'b> {
    build: &'a mut Builder,
    again: &'a mut Recomputation<'b>,
    op: OpId,
    cotangents: Vec<Option<Operand>>,
    wanted: Vec<bool>,
    found: Vec<Option<Operand>>,
}

impl std::fmt::Debug for Adjoint<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adjoint").field("op", &self.op).field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

/// A function that adds the cotangents of an op's operands, if they are needed.
pub type GradFn = fn(&Kind, &mut Adjoint<'_, '_>);

/// A range of ops with activation recomputation.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Op numbers. Values that cross the boundary of the range are stored.
    pub ops: Range<usize>,
    /// Returns whether an op is recomputed. The results of the other ops are stored.
    pub is_again: fn(&Kind) -> bool,
}

struct Recomputation<'a> {
    segments: &'a [Segment],
    maker: Vec<Option<OpId>>,
    ops: FxHashMap<OpId, OpId>,
}

impl<'a> Recomputation<'a> {
    fn new(program: &Program, segments: &'a [Segment]) -> Self {
        let mut maker = vec![None; program.values.len()];
        for (id, op) in program.ops.iter() {
            op.results.iter().for_each(|result| maker[result.index()] = Some(id));
        }
        Self { segments, maker, ops: FxHashMap::default() }
    }

    fn value(&mut self, build: &mut Builder, value: ValueId, reader: OpId) -> Operand {
        let Some(maker) = self.maker[value.index()] else { return build.operand(value) };
        let op = self.op(build, maker, reader);
        let at = build.program().ops[maker].results.iter().position(|result| *result == value);
        build.result(op, at.unwrap_or_default())
    }

    fn op(&mut self, build: &mut Builder, op: OpId, reader: OpId) -> OpId {
        let of_both = |segment: &&Segment| [op, reader].iter().all(|op| segment.ops.contains(&op.index()));
        let is_again = |segment: &Segment| (segment.is_again)(&build.program().ops[op].kind);
        if !self.segments.iter().find(of_both).is_some_and(is_again) {
            return op;
        }
        if let Some(known) = self.ops.get(&op) {
            return *known;
        }
        let Op { kind, operands, results } = build.program().ops[op].clone();
        let operands: Vec<Operand> = operands.iter().map(|operand| self.value(build, *operand, op)).collect();
        let name = build.program().values[results[0]].name.clone();
        let result = build.op(kind, &operands);
        if !name.is_empty() {
            build.name(result, format!("{AGAIN}{name}"));
        }
        let copy = OpId::from_index(build.program().ops.len() - 1);
        self.ops.insert(op, copy);
        copy
    }
}

/// Prefix of the names of recomputed values.
pub const AGAIN: &str = "again.";

impl Adjoint<'_, '_> {
    /// Returns operand `index` of the op, recomputed if necessary.
    #[must_use]
    pub fn operand(&mut self, index: usize) -> Operand {
        let operand = self.build.program().ops[self.op].operands[index];
        self.again.value(self.build, operand, self.op)
    }

    /// Returns operand `index` for an op that uses its shape only. This never causes a
    /// recomputation.
    #[must_use]
    pub fn shape_of(&self, index: usize) -> Operand {
        self.build.operand(self.build.program().ops[self.op].operands[index])
    }

    /// Returns the description of operand `index`.
    #[must_use]
    pub fn value(&self, index: usize) -> &Value {
        &self.build.program().values[self.build.program().ops[self.op].operands[index]]
    }

    /// Returns result `index` of the op, and adds this result if necessary.
    pub fn result(&mut self, index: usize) -> Operand {
        let first = self.build.result(self.op, index);
        let op = self.again.op(self.build, self.op, self.op);
        // Both copies must have the result, because the choice of kernels depends on the results.
        if op == self.op { first } else { self.build.result(op, index) }
    }

    #[must_use]
    fn cotangent(&self, index: usize) -> Option<Operand> {
        self.cotangents.get(index).copied().flatten()
    }

    #[must_use]
    fn wants(&self, index: usize) -> bool {
        self.wanted[index]
    }

    /// Adds an op and returns its first result.
    pub fn op(&mut self, kind: Kind, operands: &[Operand]) -> Operand {
        self.build.op(kind, operands)
    }

    /// Sets the cotangent of operand `index`.
    pub fn give(&mut self, index: usize, cotangent: Operand) {
        self.found[index] = Some(cotangent);
    }

    fn give_if_wanted(&mut self, index: usize, write: impl FnOnce(&mut Self) -> Operand) {
        if self.wants(index) {
            let cotangent = write(self);
            self.give(index, cotangent);
        }
    }

    /// Sums `cotangent` to the shape of operand `index`, which was broadcast.
    fn summed(&mut self, cotangent: Operand, index: usize) -> Operand {
        let like = self.shape_of(index);
        if self.build.value(cotangent).shape == self.value(index).shape {
            return cotangent;
        }
        if self.build.is_in_trees() {
            let (whole, part) = (self.build.value(cotangent).shape.clone(), self.value(index).shape.clone());
            let lead = whole.rank() - part.rank();
            if whole[lead..] != part[..] {
                let problem =
                    Diagnostic::new("reduce_to", "sums over dims of size 1 have no order of their own");
                self.build.problem(problem.expected(&part).found(&whole).help("leave --exact out"));
            }
            return self.summed_in_trees(cotangent, lead);
        }
        self.op(Kind::ReduceTo, &[cotangent, like])
    }
}

impl Adjoint<'_, '_> {
    /// Sums `x` over its first `lead` dims, from the last to the first. Dim 0 is sequences, added
    /// in f32. Each sum is complete before the next one starts, even if several dims are sharded.
    fn summed_in_trees(&mut self, mut x: Operand, lead: usize) -> Operand {
        for dim in (1..lead).rev() {
            x = self.op(Kind::TreeSum { dim, levels: BLOCK_LEVELS }, &[x]);
        }
        if self.build.value(x).dtype != DType::F32 {
            x = self.op(Kind::Widen { to: DType::F32 }, &[x]);
        }
        let levels = Halved::singly(self.build.value(x).shape[0]).levels;
        self.op(Kind::TreeSum { dim: 0, levels }, &[x])
    }
}

/// Adds the gradients of `seeds` by the values in `wanted`. Each seed is a value and its cotangent,
/// such as a loss and its scale. A gradient is `None` if no seed depends on the value.
///
/// The cotangent of a value named `layers.0.mlp` is named `grad.layers.0.mlp`.
///
/// [`Builder::finish`] reports cotangents of a wrong shape and ops without a gradient.
///
/// ```
/// use ascend_tp::DType;
/// use ascend_tp::compiler::{Builder, gradients};
///
/// let mut build = Builder::new("square");
/// let x = build.param("x", [3], DType::F32);
/// let one = build.input("one", [], DType::F32);
/// let loss = build.matmul("i,i->", x, x);
/// let gradient = gradients(&mut build, &[(loss, one)], &[x])[0].expect("the loss depends on x");
/// build.output("gradient", gradient);
/// let program = build.finish()?;
/// # drop(program);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gradients(
    build: &mut Builder,
    seeds: &[(Operand, Operand)],
    wanted: &[Operand],
) -> Vec<Option<Operand>> {
    gradients_with(build, seeds, wanted, &[]).gradients
}

/// Gradients, and the origin of the added ops.
#[derive(Clone, Debug)]
pub struct GradientProgram {
    /// Gradient of each wanted value; see [`gradients`].
    pub gradients: Vec<Option<Operand>>,
    /// The differentiated op to which each added op belongs, in order.
    pub adjoint_of: Vec<OpId>,
}

/// Adds gradients as [`gradients`] does, and recomputes results of `segments`. The numbers are the
/// same, with less memory.
pub fn gradients_with(
    build: &mut Builder,
    seeds: &[(Operand, Operand)],
    wanted: &[Operand],
    segments: &[Segment],
) -> GradientProgram {
    let _span = tracing::debug_span!("gradients", program = build.program().name).entered();
    let mut adjoint_of: Vec<OpId> = Vec::new();
    let mut again = Recomputation::new(build.program(), segments);
    let forward = build.program().ops.len();
    let mut depends = vec![false; build.program().values.len()];
    wanted.iter().for_each(|operand| depends[operand.id().index()] = true);
    for op in build.program().ops.values() {
        let numbers = op.operands.iter().enumerate();
        let mut numbers = numbers.filter(|(at, _)| !op.kind.row().shape_only.contains(at));
        if numbers.any(|(_, operand)| depends[operand.index()]) {
            // Integers, such as chosen experts, are constants.
            let is_float = |result: &ValueId| build.program().values[*result].dtype.is_float();
            op.results.iter().for_each(|result| depends[result.index()] = is_float(result));
        }
    }
    let mut cotangents: Vec<Option<Operand>> = vec![None; depends.len()];
    for (of, cotangent) in seeds {
        let (value, found) = (build.value(*of).clone(), build.value(*cotangent).clone());
        if (&value.shape, value.dtype) != (&found.shape, found.dtype) {
            let problem = Diagnostic::new(format!("the cotangent of {}", value.name), "is of another type");
            let text = |value: &Value| format!("{}{}", value.dtype, value.shape);
            build.problem(problem.expected(text(&value)).found(text(&found)));
            continue;
        }
        add(build, &mut cotangents, of.id(), *cotangent);
    }
    for id in (0..forward).rev().map(OpId::from_index) {
        let op = build.program().ops[id].clone();
        let is_reached =
            op.results.iter().any(|result| cotangents[result.index()].is_some() && depends[result.index()]);
        if !is_reached {
            continue;
        }
        let Some(grad) = op.kind.row().grad else {
            let place = super::text::op_text(build.program(), &op);
            build.problem(Diagnostic::new(place, "has no gradient, but a requested gradient depends on it"));
            continue;
        };
        let mut adjoint = Adjoint {
            op: id,
            cotangents: op.results.iter().map(|result| named(build, &cotangents, *result)).collect(),
            wanted: op.operands.iter().map(|operand| depends[operand.index()]).collect(),
            found: vec![None; op.operands.len()],
            again: &mut again,
            build,
        };
        grad(&op.kind, &mut adjoint);
        let found = adjoint.found;
        for (operand, cotangent) in op.operands.iter().zip(found) {
            if let Some(cotangent) = cotangent.filter(|_| depends[operand.index()]) {
                add(build, &mut cotangents, *operand, cotangent);
            }
        }
        adjoint_of.resize(build.program().ops.len() - forward, id);
    }
    let gradients = wanted.iter().map(|operand| named(build, &cotangents, operand.id())).collect();
    GradientProgram { gradients, adjoint_of }
}

fn add(build: &mut Builder, cotangents: &mut [Option<Operand>], of: ValueId, cotangent: Operand) {
    let sum = match cotangents[of.index()] {
        Some(known) => build.add(known, cotangent),
        None => cotangent,
    };
    cotangents[of.index()] = Some(sum);
}

fn named(build: &mut Builder, cotangents: &[Option<Operand>], of: ValueId) -> Option<Operand> {
    let cotangent = cotangents[of.index()]?;
    let name = build.program().values[of].name.clone();
    if !name.is_empty() && build.value(cotangent).name.is_empty() {
        build.name(cotangent, format!("grad.{name}"));
    }
    Some(cotangent)
}

pub(super) fn embed(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    adjoint.give_if_wanted(1, |adjoint| {
        let (ids, table) = (adjoint.operand(0), adjoint.shape_of(1));
        adjoint.op(Kind::EmbedGrad, &[ids, dy, table])
    });
}

pub(super) fn matmul(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (Kind::MatMul { spec } | Kind::TreeMatMul { spec }, Some(dy)) = (kind, adjoint.cotangent(0)) else {
        return;
    };
    adjoint.give_if_wanted(0, |adjoint| {
        let w_operand = adjoint.operand(1);
        adjoint.op(Kind::MatMul { spec: spec.grad_x() }, &[dy, w_operand])
    });
    adjoint.give_if_wanted(1, |adjoint| {
        let x_operand = adjoint.operand(0);
        adjoint.op(Kind::MatMul { spec: spec.grad_w() }, &[dy, x_operand])
    });
}

pub(super) fn add_op(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    adjoint.give_if_wanted(0, |_| dy);
    adjoint.give_if_wanted(1, |adjoint| adjoint.summed(dy, 1));
}

pub(super) fn mul(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let (x, y) = (adjoint.operand(0), adjoint.operand(1));
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::Mul, &[dy, y]));
    adjoint.give_if_wanted(1, |adjoint| {
        let product = adjoint.op(Kind::Mul, &[dy, x]);
        adjoint.summed(product, 1)
    });
}

pub(super) fn subtract(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    adjoint.give_if_wanted(0, |_| dy);
    adjoint.give_if_wanted(1, |adjoint| {
        let negative = adjoint.op(Kind::Scale { by: -1.0 }, &[dy]);
        adjoint.summed(negative, 1)
    });
}

pub(super) fn add_matmul(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (Kind::AddMatMul { spec }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    adjoint.give_if_wanted(0, |_| dy);
    let (x, w) = (adjoint.operand(1), adjoint.operand(2));
    adjoint.give_if_wanted(1, |adjoint| adjoint.op(Kind::MatMul { spec: spec.grad_x() }, &[dy, w]));
    adjoint.give_if_wanted(2, |adjoint| adjoint.op(Kind::MatMul { spec: spec.grad_w() }, &[dy, x]));
}

/// With the unscaled factor `f` of a row, the cotangent of `x` is `scale · f · (dy - x · f² Σ x ·
/// dy)`.
pub(super) fn unit(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (&Kind::Unit { scale, epsilon }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    let x = adjoint.operand(0);
    adjoint.give_if_wanted(0, |adjoint| {
        let dim = adjoint.value(0).shape.rank() - 1;
        let sum_of_products = |adjoint: &mut Adjoint<'_, '_>, y| {
            let products = adjoint.op(Kind::Mul, &[x, y]);
            adjoint.op(Kind::ReduceSum { dim }, &[products])
        };
        let along = |adjoint: &mut Adjoint<'_, '_>, y, factor| {
            let factor = adjoint.op(Kind::Expand { dims: vec![dim] }, &[factor, y]);
            adjoint.op(Kind::Mul, &[y, factor])
        };
        let squares = sum_of_products(adjoint, x);
        let factor = adjoint.op(Kind::InverseRoot { by: 1.0, epsilon }, &[squares]);
        let share = sum_of_products(adjoint, dy);
        let square = adjoint.op(Kind::Mul, &[factor, factor]);
        let share = adjoint.op(Kind::Mul, &[share, square]);
        let share = along(adjoint, x, share);
        let of_x = adjoint.op(Kind::Subtract, &[dy, share]);
        let factor = adjoint.op(Kind::Scale { by: scale }, &[factor]);
        along(adjoint, of_x, factor)
    });
}

pub(super) fn scale(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(kind.clone(), &[dy]));
}

pub(super) fn shift(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    adjoint.give_if_wanted(0, |_| dy);
}

/// The slope is `-by / 2 · y³`.
pub(super) fn inverse_root(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (Kind::InverseRoot { by, .. }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    let y = adjoint.result(0);
    adjoint.give_if_wanted(0, |adjoint| {
        let square = adjoint.op(Kind::Mul, &[y, y]);
        let cube = adjoint.op(Kind::Mul, &[square, y]);
        let slope = adjoint.op(Kind::Scale { by: -by / 2.0 }, &[cube]);
        adjoint.op(Kind::Mul, &[dy, slope])
    });
}

/// The slope is `1 - (y / cap)²`.
pub(super) fn soft_cap(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (Kind::SoftCap { cap }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    let y = adjoint.result(0);
    adjoint.give_if_wanted(0, |adjoint| {
        let square = adjoint.op(Kind::Mul, &[y, y]);
        let less = adjoint.op(Kind::Scale { by: -(cap * cap).recip() }, &[square]);
        let slope = adjoint.op(Kind::Shift { by: 1.0 }, &[less]);
        adjoint.op(Kind::Mul, &[dy, slope])
    });
}

pub(super) fn gelu_gate(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let (gate, up) = (adjoint.operand(0), adjoint.operand(1));
    let [of_gate, of_up] = adjoint.build.several(Kind::GeluGateGrad, &[gate, up, dy]);
    adjoint.give(0, of_gate);
    adjoint.give(1, of_up);
}

pub(super) fn silu(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let x = adjoint.operand(0);
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::SiluGrad, &[x, dy]));
}

pub(super) fn swiglu(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let (gate, up) = (adjoint.operand(0), adjoint.operand(1));
    let [of_gate, of_up] = adjoint.build.several(Kind::SwiGluGrad, &[gate, up, dy]);
    adjoint.give(0, of_gate);
    adjoint.give(1, of_up);
}

pub(super) fn rms_norm(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let (x, gamma, rstd) = (adjoint.operand(0), adjoint.operand(1), adjoint.result(1));
    if adjoint.build.is_in_trees() {
        let of_x = adjoint.op(Kind::RmsNormGrad, &[dy, x, rstd, gamma]);
        adjoint.give(0, of_x);
        adjoint.give_if_wanted(1, |adjoint| {
            let terms = adjoint.op(Kind::GammaTerms, &[dy, x, rstd]);
            let lead = adjoint.build.value(terms).shape.rank() - 1;
            adjoint.summed_in_trees(terms, lead)
        });
        return;
    }
    let [of_x, of_gamma] = adjoint.build.several(Kind::RmsNormGrad, &[dy, x, rstd, gamma]);
    adjoint.give(0, of_x);
    adjoint.give_if_wanted(1, |adjoint| match adjoint.value(1).dtype {
        DType::F32 => of_gamma,
        to => adjoint.op(Kind::Cast { to }, &[of_gamma]),
    });
}

/// The inverse of a rotation uses the negative sine. Both dims of a rotated pair have the same
/// angle.
pub(super) fn rope(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let (cos, sin) = (adjoint.operand(1), adjoint.operand(2));
    adjoint.give_if_wanted(0, |adjoint| {
        let back = adjoint.op(Kind::Scale { by: -1.0 }, &[sin]);
        adjoint.op(kind.clone(), &[dy, cos, back])
    });
}

pub(super) fn attention(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (
        Kind::Attention { scale } | Kind::RingAttention { scale, .. } | Kind::SinkAttention { scale },
        Some(dy),
    ) = (kind, adjoint.cotangent(0))
    else {
        return;
    };
    let [q, keys, values, mask] = [0, 1, 2, 3].map(|index| adjoint.operand(index));
    let [out, max, sum] = [0, 1, 2].map(|index| adjoint.result(index));
    let operands = [q, keys, values, mask, dy, out, max, sum];
    // This op keeps sequences whole, so the order of queries does not depend on the sharding of
    // tokens.
    if adjoint.build.is_in_trees() {
        let kind = Kind::AttentionGradByHead { scale: *scale };
        let by_head = adjoint.build.several(kind, &operands);
        give_heads_in_trees(adjoint, by_head);
        return;
    }
    let kind = match kind {
        Kind::RingAttention { .. } => Kind::RingAttentionGrad { axes: Vec::new(), scale: *scale },
        _ => Kind::AttentionGrad { scale: *scale },
    };
    let found: [Operand; 3] = adjoint.build.several(kind, &operands);
    found.into_iter().enumerate().for_each(|(index, cotangent)| adjoint.give(index, cotangent));
}

/// With the weights `p` of a row, the cotangent of a score is `p · (its value - y) · dy`. The sums
/// of the op include the sinks, so this holds for all keys. A sink has no value, so its cotangent
/// is minus its weight times `Σ y · dy`.
pub(super) fn sink_attention(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    attention(kind, adjoint);
    adjoint.give_if_wanted(4, |adjoint| {
        let out = adjoint.result(0);
        let [dy, out] = [dy, out].map(|x| match adjoint.build.value(x).dtype {
            DType::F32 => x,
            _ => adjoint.op(Kind::Cast { to: DType::F32 }, &[x]),
        });
        let products = adjoint.op(Kind::Mul, &[dy, out]);
        let sums = adjoint.op(Kind::ReduceSum { dim: 4 }, &[products]);
        let sums = adjoint.op(Kind::Permute { dims: vec![0, 2, 3, 1] }, &[sums]);
        let weights = adjoint.result(3);
        let terms = adjoint.op(Kind::Mul, &[weights, sums]);
        let of_sequences = adjoint.op(Kind::ReduceSum { dim: 3 }, &[terms]);
        let sum = adjoint.op(Kind::ReduceSum { dim: 0 }, &[of_sequences]);
        adjoint.op(Kind::Scale { by: -1.0 }, &[sum])
    });
}

/// Gives the cotangents of queries, keys and values. The keys' and values' cotangents are per query
/// head, and are summed in tree order.
fn give_heads_in_trees(adjoint: &mut Adjoint<'_, '_>, [of_q, of_keys, of_values]: [Operand; 3]) {
    adjoint.give(0, of_q);
    for (index, by_head) in [(1, of_keys), (2, of_values)] {
        let sum = adjoint.op(Kind::TreeSum { dim: 3, levels: BLOCK_LEVELS }, &[by_head]);
        adjoint.give(index, sum);
    }
}

pub(super) fn capped_attention(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (Kind::CappedAttention { scale, cap }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    let [q, keys, values, mask] = [0, 1, 2, 3].map(|index| adjoint.operand(index));
    let operands = [q, keys, values, mask, dy];
    if adjoint.build.is_in_trees() {
        let kind = Kind::CappedAttentionGradByHead { scale: *scale, cap: *cap };
        let by_head = adjoint.build.several(kind, &operands);
        give_heads_in_trees(adjoint, by_head);
        return;
    }
    let kind = Kind::CappedAttentionGrad { scale: *scale, cap: *cap };
    let found: [Operand; 3] = adjoint.build.several(kind, &operands);
    found.into_iter().enumerate().for_each(|(index, cotangent)| adjoint.give(index, cotangent));
}

pub(super) fn take(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let (x, index) = (adjoint.shape_of(0), adjoint.operand(1));
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::TakeGrad, &[index, dy, x]));
}

pub(super) fn reduce_sum(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (Kind::ReduceSum { dim } | Kind::TreeSum { dim, .. }, Some(dy)) = (kind, adjoint.cotangent(0)) else {
        return;
    };
    let x = adjoint.shape_of(0);
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::Expand { dims: vec![*dim] }, &[dy, x]));
}

pub(super) fn cast(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    adjoint.give_if_wanted(0, |adjoint| {
        let (to, role) = (adjoint.value(0).dtype, adjoint.value(0).role);
        let from = adjoint.build.value(dy).dtype;
        if from == to {
            return dy;
        }
        // Parameter gradients are accumulated in the type of the parameter. Activations keep the
        // type of their products.
        let is_widened = role == Role::Param && to == DType::F32 && from.is_float();
        adjoint.op(if is_widened { Kind::Widen { to } } else { Kind::Cast { to } }, &[dy])
    });
}

pub(super) fn permute(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (Kind::Permute { dims }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    let mut inverse = vec![0; dims.len()];
    dims.iter().enumerate().for_each(|(to, from)| inverse[*from] = to);
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::Permute { dims: inverse }, &[dy]));
}

pub(super) fn expand(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (Kind::Expand { dims }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    let mut dims = dims.clone();
    dims.sort_unstable();
    adjoint.give_if_wanted(0, |adjoint| {
        dims.iter().rev().fold(dy, |sum, dim| adjoint.op(Kind::ReduceSum { dim: *dim }, &[sum]))
    });
}

pub(super) fn log_probability(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let [x, labels, largest, sum] = [0, 1, 2, 3].map(|index| adjoint.operand(index));
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::LogProbabilityGrad, &[x, labels, largest, sum, dy]));
}

pub(super) fn total(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    adjoint.give(0, dy);
    adjoint.give(1, dy);
}

pub(super) fn narrow(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (&Kind::Narrow { dim, start, .. }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    let x = adjoint.shape_of(0);
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::NarrowGrad { dim, start }, &[dy, x]));
}

pub(super) fn concat(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (&Kind::Concat { dim }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    let [first, second] = [0, 1].map(|index| adjoint.value(index).shape[dim]);
    for (index, start, size) in [(0, 0, first), (1, first, second)] {
        adjoint.give_if_wanted(index, |adjoint| adjoint.op(Kind::Narrow { dim, start, size }, &[dy]));
    }
}

pub(super) fn exp(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let y = adjoint.result(0);
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::Mul, &[dy, y]));
}

/// The slope is `sigmoid(x)`.
pub(super) fn softplus(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let x = adjoint.operand(0);
    adjoint.give_if_wanted(0, |adjoint| {
        let slope = adjoint.op(Kind::Sigmoid, &[x]);
        adjoint.op(Kind::Mul, &[dy, slope])
    });
}

pub(super) fn repeat(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (&Kind::Repeat { dim, .. }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::ReduceSum { dim }, &[dy]));
}

pub(super) fn split_dim(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (&Kind::SplitDim { dim, .. }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::MergeDims { dim }, &[dy]));
}

pub(super) fn merge_dims(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (&Kind::MergeDims { dim }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    let size = adjoint.value(0).shape[dim + 1];
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::SplitDim { dim, size }, &[dy]));
}

pub(super) fn cum_sum(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (&Kind::CumSum { dim }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::CumSumGrad { dim }, &[dy]));
}

pub(super) fn lower(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (&Kind::Lower { below }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::Lower { below }, &[dy]));
}

/// The cotangent of `x` is `-yᵀ dy yᵀ` below the diagonal.
pub(super) fn unit_lower_inverse(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let y = adjoint.result(0);
    adjoint.give_if_wanted(0, |adjoint| {
        let lead: String = ('a'..).take(adjoint.build.value(y).shape.rank() - 2).collect();
        let product = adjoint.build.matmul(&format!("{lead}wx,{lead}wy->{lead}xy"), y, dy);
        let product = adjoint.build.matmul(&format!("{lead}xy,{lead}zy->{lead}xz"), product, y);
        let below = adjoint.op(Kind::Lower { below: 1 }, &[product]);
        adjoint.op(Kind::Scale { by: -1.0 }, &[below])
    });
}

pub(super) fn convolution(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (&Kind::CausalConvolution { padded }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    let operands = [adjoint.operand(0), adjoint.operand(1), dy];
    let [dx, dfilter] = adjoint.build.several(Kind::CausalConvolutionGrad { padded }, &operands);
    adjoint.give(0, dx);
    adjoint.give(1, dfilter);
}
