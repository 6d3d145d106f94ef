//! Replaces each reshard by the collectives and local cuts that make it.

use smallvec::smallvec;

use crate::base::{Diagnostic, Diagnostics, IdVec};
use crate::placement::{Layout, Placed, transition};
use crate::program::text::op_text;
use crate::program::{Kind, Op, Program, Value};

/// The program without reshards.
///
/// # Errors
/// Every reshard that no sequence of collectives makes.
pub fn lower(resharded: &Placed) -> Result<Placed, Diagnostics> {
    let mut problems = Diagnostics::new();
    let mut out = Placed { program: Program { ops: IdVec::new(), ..resharded.program.clone() }, ..resharded.clone() };
    for (_, op) in resharded.program.ops.iter() {
        if op.kind != Kind::Reshard {
            out.program.ops.push(Op { kind: joined(&op.kind, &resharded.layouts[op.operands[0]]), ..op.clone() });
            continue;
        }
        let mut operand = op.operands[0];
        let steps = match transition::steps(&resharded.layouts[operand], &resharded.layouts[op.result()]) {
            Ok(steps) => steps,
            Err(message) => {
                problems.push(Diagnostic::new(op_text(&resharded.program, op), message));
                continue;
            }
        };
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

/// An op that joins parts of its first operand, with the axes on which that has parts; others as they are.
fn joined(kind: &Kind, operand: &Layout) -> Kind {
    match kind {
        Kind::CompressedSum { by, .. } => {
            Kind::CompressedSum { axes: operand.partial.iter().map(|(axis, _)| *axis).collect(), by: *by }
        }
        other => other.clone(),
    }
}
