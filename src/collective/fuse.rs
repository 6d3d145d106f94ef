//! Joins neighbouring movements of one value into one: `all_reduce` then slice is a `reduce_scatter`, `all_gather` then slice
//! along another dim an `all_to_all`.
//!
//! Such pairs arise where a pin wants a value whole and its only user wants a shard.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::Id;
use crate::placement::Placed;
use crate::program::{Kind, Op, OpId};

/// The program with joined movements. Values that nothing makes any more stay, unused, so that ids keep.
#[must_use]
pub fn fuse(mut lowered: Placed) -> Placed {
    let program = &lowered.program;
    let mut uses = vec![0_usize; program.values.len()];
    let mut maker: Vec<Option<OpId>> = vec![None; program.values.len()];
    for (id, op) in program.ops.iter() {
        op.operands.iter().for_each(|operand| uses[operand.index()] += 1);
        op.results.iter().for_each(|result| maker[result.index()] = Some(id));
    }
    program.outputs.iter().for_each(|(_, id)| uses[id.index()] += 1);
    // By the second of a pair: the first, and what both are.
    let mut pairs: FxHashMap<OpId, (OpId, Kind)> = FxHashMap::default();
    for (id, op) in program.ops.iter() {
        let Some(first) = op.operands.first().and_then(|operand| maker[operand.index()]) else { continue };
        let is_alone = uses[op.operands[0].index()] == 1;
        if let Some(kind) = joined(&program.ops[first].kind, &op.kind).filter(|_| is_alone) {
            pairs.insert(id, (first, kind));
        }
    }
    if !pairs.is_empty() {
        let firsts: FxHashSet<OpId> = pairs.values().map(|(first, _)| *first).collect();
        let left = program.ops.iter().filter(|(id, _)| !firsts.contains(id));
        let fused = left.map(|(id, op)| match pairs.remove(&id) {
            Some((first, kind)) => Op { kind, operands: program.ops[first].operands.clone(), ..op.clone() },
            None => op.clone(),
        });
        lowered.program.ops = fused.collect();
    }
    lowered
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
