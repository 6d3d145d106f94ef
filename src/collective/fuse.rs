//! Fuses adjacent movements of one value: `all_reduce` and slice become `reduce_scatter`;
//! `all_gather` and a slice along another dim become `all_to_all`. Such pairs arise when a pin
//! replicates a value and the only user needs a shard.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::Id;
#[cfg(test)]
use crate::base::defect;
use crate::placement::Placed;
use crate::program::{Kind, Op, OpId};

/// Returns the program with fused movements. Unused values stay, so that ids do not change.
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
    // By second op of a pair: the first op, and the fused kind.
    let mut pairs: FxHashMap<OpId, (OpId, Kind)> = FxHashMap::default();
    for (id, op) in program.ops.iter() {
        let Some(first) = op.operands.first().and_then(|operand| maker[operand.index()]) else { continue };
        let is_alone = uses[op.operands[0].index()] == 1;
        let kind = joined(&program.ops[first].kind, &op.kind);
        #[cfg(test)]
        let (is_alone, kind) = with_defect(is_alone, kind, program.values[op.result()].shape.rank());
        if let Some(kind) = kind.filter(|_| is_alone) {
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

/// Whether a pair is fused, and into what, with the fault that a test injects.
#[cfg(test)]
fn with_defect(is_alone: bool, mut kind: Option<Kind>, rank: usize) -> (bool, Option<Kind>) {
    if !is_alone && kind.is_some() {
        defect!(FusedWhileShared, return (true, kind));
    }
    if let Some(Kind::ReduceScatter { dim, .. } | Kind::AllToAll { to: dim, .. }) = &mut kind {
        defect!(FusedAlongOtherDim, *dim = (*dim + 1) % rank);
    }
    (is_alone, kind)
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
