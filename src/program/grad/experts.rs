//! Adjoints of routers and experts.
//!
//! Input: an op and the cotangent of its result. Output: the cotangents of its operands.

use crate::program::build::Operand;
use crate::program::op::Kind;

use super::Adjoint;

/// The slope is `y · (1 - y)`.
pub(in crate::program) fn sigmoid(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let y = adjoint.result(0);
    adjoint.give_if_wanted(0, |adjoint| {
        let negative = adjoint.op(Kind::Scale { by: -1.0 }, &[y]);
        let other = adjoint.op(Kind::Shift { by: 1.0 }, &[negative]);
        let slope = adjoint.op(Kind::Mul, &[y, other]);
        adjoint.op(Kind::Mul, &[dy, slope])
    });
}

/// The cotangent of `x` is `y · (dy - Σ y · dy)`.
pub(in crate::program) fn softmax(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let y = adjoint.result(0);
    adjoint.give_if_wanted(0, |adjoint| {
        let dim = adjoint.build.value(y).shape.rank() - 1;
        let products = adjoint.op(Kind::Mul, &[y, dy]);
        let sum = adjoint.op(Kind::ReduceSum { dim }, &[products]);
        let less = adjoint.op(Kind::Scale { by: -1.0 }, &[sum]);
        let less = adjoint.op(Kind::Expand { dims: vec![dim] }, &[less, y]);
        let centred = adjoint.build.add(dy, less);
        adjoint.op(Kind::Mul, &[y, centred])
    });
}

/// The slope is the softmax of `x`.
pub(in crate::program) fn log_sum_exp(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    adjoint.give_if_wanted(0, |adjoint| {
        let x = adjoint.operand(0);
        let slope = adjoint.op(Kind::Softmax, &[x]);
        let dim = adjoint.value(0).shape.rank() - 1;
        let dy = adjoint.op(Kind::Expand { dims: vec![dim] }, &[dy, slope]);
        adjoint.op(Kind::Mul, &[slope, dy])
    });
}

/// The slope is `-y²`.
pub(in crate::program) fn reciprocal(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let y = adjoint.result(0);
    adjoint.give_if_wanted(0, |adjoint| {
        let square = adjoint.op(Kind::Mul, &[y, y]);
        let slope = adjoint.op(Kind::Scale { by: -1.0 }, &[square]);
        adjoint.op(Kind::Mul, &[dy, slope])
    });
}

pub(in crate::program) fn pick(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let (x, index) = (adjoint.shape_of(0), adjoint.operand(1));
    adjoint.give_if_wanted(0, |adjoint| adjoint.op(Kind::PickGrad, &[index, dy, x]));
}

/// Adds the gradients `kind` of the first `N` operands of experts but the indices. Frozen
/// projections, which are the last operands, have no cotangents.
fn give_experts<const N: usize>(kind: Kind, dy: Operand, adjoint: &mut Adjoint<'_, '_>) {
    let count = adjoint.wanted.len();
    let mut operands: Vec<Operand> = (0..count).map(|index| adjoint.operand(index)).collect();
    operands.push(dy);
    let is_trained = (3..count).any(|index| adjoint.wants(index));
    let found: Vec<Operand> = match is_trained {
        true => adjoint.build.several::<N>(kind, &operands).to_vec(),
        false => adjoint.build.several::<2>(kind, &operands).to_vec(),
    };
    let differentiated = (0..count).filter(|index| *index != 1);
    found.into_iter().zip(differentiated).for_each(|(cotangent, operand)| adjoint.give(operand, cotangent));
}

pub(in crate::program) fn experts(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    give_experts::<4>(Kind::ExpertsGrad, dy, adjoint);
}

pub(in crate::program) fn clipped_experts(kind: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let (&Kind::ClippedExperts { limit, slope }, Some(dy)) = (kind, adjoint.cotangent(0)) else { return };
    give_experts::<6>(Kind::ClippedExpertsGrad { limit, slope }, dy, adjoint);
}

/// The cotangents of the copies of a token are complete before they are added.
pub(in crate::program) fn expert_rows(_: &Kind, adjoint: &mut Adjoint<'_, '_>) {
    let Some(dy) = adjoint.cotangent(0) else { return };
    let [x, index, gate_up, down] = [0, 1, 2, 3].map(|index| adjoint.operand(index));
    let operands = [x, index, gate_up, down, dy];
    adjoint.give_if_wanted(0, |adjoint| {
        let copies = adjoint.op(Kind::ExpertRowsGrad, &operands);
        let program = adjoint.build.program();
        let name = format!("grad.{}.copies", program.values[program.ops[adjoint.op].result()].name);
        adjoint.build.name(copies, name);
        adjoint.op(Kind::ReduceSum { dim: 2 }, &[copies])
    });
    if adjoint.wants(2) || adjoint.wants(3) {
        let found = adjoint.build.several::<2>(Kind::TreeExpertsGrad, &operands);
        found.into_iter().zip([2, 3]).for_each(|(cotangent, operand)| adjoint.give(operand, cotangent));
    }
}
