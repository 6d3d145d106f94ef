//! Joins neighbouring movements of one value into one: `all_reduce` then slice is a `reduce_scatter`, `all_gather` then slice
//! along another dim an `all_to_all`.
//!
//! Such pairs arise where a pin wants a value whole and its only user wants a shard.

use crate::base::{Id, IdVec};
use crate::placement::Placed;
use crate::program::{Kind, Op, OpId, Program};

/// The program with joined movements. Values that nothing makes any more stay, unused, so that ids keep.
#[must_use]
pub fn fuse(lowered: &Placed) -> Placed {
    let program = &lowered.program;
    let mut uses = vec![0_usize; program.values.len()];
    let mut maker: Vec<Option<OpId>> = vec![None; program.values.len()];
    for (id, op) in program.ops.iter() {
        op.operands.iter().for_each(|operand| uses[operand.index()] += 1);
        op.results.iter().for_each(|result| maker[result.index()] = Some(id));
    }
    program.outputs.iter().for_each(|(_, id)| uses[id.index()] += 1);
    let mut ops: Vec<Option<Op>> = program.ops.values().iter().cloned().map(Some).collect();
    for (id, op) in program.ops.iter() {
        let Some(first) = op.operands.first().and_then(|operand| maker[operand.index()]) else { continue };
        if uses[op.operands[0].index()] != 1 {
            continue;
        }
        if let Some(kind) = ops[first.index()].as_ref().and_then(|first| joined(&first.kind, &op.kind)) {
            let operands = program.ops[first].operands.clone();
            ops[first.index()] = None;
            ops[id.index()] = Some(Op { kind, operands, results: op.results.clone() });
        }
    }
    let ops: IdVec<OpId, Op> = ops.into_iter().flatten().collect();
    Placed { program: Program { ops, ..program.clone() }, ..lowered.clone() }
}

fn joined(first: &Kind, second: &Kind) -> Option<Kind> {
    let Kind::Slice { axes, dim } = second else { return None };
    match first {
        Kind::AllReduce { axes: reduced, reduce } if reduced == axes => {
            Some(Kind::ReduceScatter { axes: axes.clone(), dim: *dim, reduce: *reduce })
        }
        Kind::AllGather { axes: gathered, dim: from } if gathered == axes && from != dim => {
            Some(Kind::AllToAll { axes: axes.clone(), from: *from, to: *dim })
        }
        _ => None,
    }
}
