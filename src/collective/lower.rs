//! Replaces each reshard by collectives and local slices.

use std::cmp::Reverse;

use smallvec::smallvec;

#[cfg(test)]
use crate::base::defect;
use crate::base::{AxisId, Diagnostic, Diagnostics, Id};
use crate::placement::transition::TransitionStep;
use crate::placement::{Layout, Mesh, Placed, transition};
use crate::program::op::Linear;
use crate::program::text::op_text;
use crate::program::{Kind, Op, Value};

/// Returns the program without reshards.
///
/// # Errors
/// Returns every reshard that no sequence of collectives can do.
pub fn lower(resharded: &Placed) -> Result<Placed, Diagnostics> {
    let mut problems = Diagnostics::new();
    let mut out = resharded.without_ops();
    for (_, op) in resharded.program.ops.iter() {
        if op.kind != Kind::Reshard {
            out.program.ops.push(Op { kind: exchanging(op, resharded), ..op.clone() });
            continue;
        }
        let mut operand = op.operands[0];
        let from = &resharded.layouts[operand];
        let steps = match transition::steps(from, &resharded.layouts[op.result()]) {
            Ok(steps) => in_order_of_ranks(from, steps, &resharded.mesh),
            Err(message) => {
                problems.push(Diagnostic::new(op_text(&resharded.program, op), message));
                continue;
            }
        };
        #[cfg(test)]
        let steps = with_defect(steps);
        let last = steps.len().saturating_sub(1);
        for (index, step) in steps.into_iter().enumerate() {
            let result = if index == last {
                op.result()
            } else {
                out.layouts.push(step.layout);
                out.program.values.push(Value { ..resharded.program.values[op.result()].clone() })
            };
            out.program.ops.push(Op { kind: step.kind, operands: vec![operand], results: smallvec![result] });
            operand = result;
        }
    }
    problems.into_result(out)
}

/// The steps with the fault that a test injects.
#[cfg(test)]
fn with_defect(mut steps: Vec<TransitionStep>) -> Vec<TransitionStep> {
    for step in &mut steps {
        let rank = step.layout.dims.len();
        match &mut step.kind {
            Kind::AllReduce { axes, .. }
            | Kind::AllGather { axes, .. }
            | Kind::ReduceScatter { axes, .. }
            | Kind::Slice { axes, .. }
                if axes.len() > 1 =>
            {
                defect!(StepOnFewerAxes, axes.pop());
            }
            _ => {}
        }
        match &mut step.kind {
            Kind::AllReduce { reduce, .. } | Kind::ReduceScatter { reduce, .. } => {
                defect!(StepWithOtherReduction, *reduce = crate::base::Reduce::Min);
            }
            _ => {}
        }
        match &mut step.kind {
            Kind::AllGather { dim, .. } | Kind::ReduceScatter { dim, .. } | Kind::Slice { dim, .. }
                if rank > 1 =>
            {
                defect!(StepAlongOtherDim, *dim = (*dim + 1) % rank);
            }
            _ => {}
        }
    }
    if steps.len() > 1 {
        defect!(StepsSwapped, steps.swap(0, 1));
    }
    defect!(StepMissing, steps.pop());
    steps
}

/// Rewrites steps so that the ranks of each group ascend, as communicators require. An `all_reduce`
/// sorts its axes by stride; other collectives over unordered axes become one collective per axis.
fn in_order_of_ranks(from: &Layout, steps: Vec<TransitionStep>, mesh: &Mesh) -> Vec<TransitionStep> {
    let stride = |axis: &AxisId| mesh.axes()[axis.index()].stride;
    let mut now = from.clone();
    let mut ordered = Vec::with_capacity(steps.len());
    for TransitionStep { kind, .. } in steps {
        let ascend = kind.axes().is_sorted_by(|a, b| stride(a) >= stride(b));
        let kinds = match kind {
            Kind::AllReduce { mut axes, reduce } if !ascend => {
                axes.sort_by_key(|axis| Reverse(stride(axis)));
                vec![Kind::AllReduce { axes, reduce }]
            }
            Kind::ReduceScatter { axes, dim, reduce } if !ascend => {
                axes.into_iter().map(|axis| Kind::ReduceScatter { axes: vec![axis], dim, reduce }).collect()
            }
            Kind::AllGather { axes, dim } if !ascend => {
                axes.into_iter().rev().map(|axis| Kind::AllGather { axes: vec![axis], dim }).collect()
            }
            kind => vec![kind],
        };
        for kind in kinds {
            transition::apply(&mut now, &kind);
            ordered.push(TransitionStep { kind, layout: now.clone() });
        }
    }
    ordered
}

/// Sets the axes of an op that computes and exchanges: those on which its first operand is partial,
/// or along which the operand sent around is sharded. Other ops are unchanged.
fn exchanging(op: &Op, placed: &Placed) -> Kind {
    let row = op.kind.row();
    match row.around {
        Some(around) => {
            op.kind.over(placed.layouts[op.operands[around.operands[0]]].dims[around.dim].to_vec())
        }
        None if row.linear == Linear::Joins => {
            op.kind.over(placed.layouts[op.operands[0]].partial.iter().map(|(axis, _)| *axis).collect())
        }
        None => op.kind.clone(),
    }
}
