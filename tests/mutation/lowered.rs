//! Mutants of a lowered program: errors of a pass, or of an op, on all ranks.

use std::collections::BTreeMap;

use ascend_tp::base::{Id, IdVec, Reduce};
use ascend_tp::placement::{Layout, Placed};
use ascend_tp::program::{Kind, Op, OpId, Program, Role, Value, ValueId};

use super::{Defect, Mutant};

pub(crate) fn mutants(placed: &Placed) -> Vec<Mutant> {
    let mut found = Vec::new();
    for (id, op) in placed.program.ops.iter() {
        let what = ascend_tp::program::text::op_text(&placed.program, op);
        let mut add = |class, detail: String, mutant: Placed| {
            let what = format!("{what}: {detail}");
            found.push(Mutant { class, what, op: id.index(), how: Defect::Lowered(Box::new(mutant)) });
        };
        if op.kind.is_collective() {
            add("collective deleted", "gone".to_owned(), without(placed, id));
        } else if op.kind.is_movement() {
            add("slice deleted", "gone".to_owned(), without(placed, id));
        }
        for kind in other_movements(&op.kind, placed.program.values[op.result()].shape.rank()) {
            add("movement of another kind", format!("{kind:?}"), with_kind(placed, id, kind.clone()));
            add("movement to another layout", format!("{kind:?}"), with_kind_and_layout(placed, id, kind));
        }
        for (class, kind) in other_scales(&op.kind) {
            add(class, format!("{kind:?}"), with_kind(placed, id, kind));
        }
        if op.kind == Kind::Rope {
            add("rope sign", "sin negated".to_owned(), with_negated(placed, id, 2));
            let mut swapped = placed.clone();
            swapped.program.ops[id].operands.swap(1, 2);
            add("rope sign", "cos and sin swapped".to_owned(), swapped);
        }
        if matches!(op.kind, Kind::SwiGlu) {
            let mut swapped = placed.clone();
            swapped.program.ops[id].operands.swap(0, 1);
            add("gate and up swapped", "swapped".to_owned(), swapped);
        }
    }
    found
}

/// Removes a movement; its users read the operands.
pub(crate) fn without(placed: &Placed, id: OpId) -> Placed {
    let gone = placed.program.ops[id].clone();
    let moved = |value: ValueId| gone.results.iter().position(|result| *result == value);
    let seen = |value: ValueId| moved(value).map_or(value, |at| gone.operands[at]);
    let ops = placed.program.ops.iter().filter(|(other, _)| *other != id);
    let ops: IdVec<OpId, Op> = ops
        .map(|(_, op)| Op { operands: op.operands.iter().copied().map(seen).collect(), ..op.clone() })
        .collect();
    let outputs = placed.program.outputs.iter().map(|(name, value)| (name.clone(), seen(*value))).collect();
    Placed { program: Program { ops, outputs, ..placed.program.clone() }, ..placed.clone() }
}

/// Removes one tensor from a movement of several tensors.
pub(crate) fn without_member(placed: &Placed, id: OpId, member: usize) -> Placed {
    let mut mutant = placed.clone();
    let op = &mut mutant.program.ops[id];
    let (operand, result) = (op.operands.remove(member), op.results.remove(member));
    let seen = |value: &mut ValueId| *value = if *value == result { operand } else { *value };
    let others = mutant.program.ops.ids();
    others.into_iter().for_each(|other| mutant.program.ops[other].operands.iter_mut().for_each(seen));
    mutant.program.outputs.iter_mut().for_each(|(_, value)| seen(value));
    mutant
}

pub(crate) fn with_kind(placed: &Placed, id: OpId, kind: Kind) -> Placed {
    let mut mutant = placed.clone();
    mutant.program.ops[id].kind = kind;
    mutant
}

/// Like [`with_kind`], but also changes the result's layout, so that only users can detect the
/// error.
fn with_kind_and_layout(placed: &Placed, id: OpId, kind: Kind) -> Placed {
    let op = &placed.program.ops[id];
    let mut layout = placed.layouts[op.operands[0]].clone();
    after(&mut layout, &kind);
    let mut mutant = placed.clone();
    mutant.layouts[op.result()] = layout;
    mutant.program.ops[id].kind = kind;
    mutant
}

/// Updates the layout as a movement of this kind does.
fn after(layout: &mut Layout, kind: &Kind) {
    let axes = kind.axes().to_vec();
    let (leaves, enters) = match kind {
        Kind::AllGather { dim, .. } => (Some(*dim), None),
        Kind::AllToAll { from, to, .. } => (Some(*from), Some(*to)),
        Kind::ReduceScatter { dim, .. } | Kind::Slice { dim, .. } => (None, Some(*dim)),
        _ => (None, None),
    };
    if !matches!(kind, Kind::Slice { .. }) {
        layout.partial.retain(|(axis, _)| !axes.contains(axis));
    }
    if let Some(dim) = leaves {
        layout.dims[dim].retain(|axis| !axes.contains(axis));
    }
    if let Some(dim) = enters {
        layout.dims[dim].extend(axes);
    }
}

/// Returns movements over the same axes with another op, dim or reduction, and the same movement
/// over fewer axes.
fn other_movements(kind: &Kind, rank: usize) -> Vec<Kind> {
    let axes = kind.axes().to_vec();
    let mut all: Vec<Kind> = Vec::new();
    if axes.is_empty() {
        return all;
    }
    for reduce in [Reduce::Sum, Reduce::Max, Reduce::Min] {
        all.push(Kind::AllReduce { axes: axes.clone(), reduce });
        all.extend((0..rank).map(|dim| Kind::ReduceScatter { axes: axes.clone(), dim, reduce }));
    }
    for dim in 0..rank {
        all.push(Kind::AllGather { axes: axes.clone(), dim });
        all.push(Kind::Slice { axes: axes.clone(), dim });
        let to = (0..rank).filter(|to| *to != dim);
        all.extend(to.map(|to| Kind::AllToAll { axes: axes.clone(), from: dim, to }));
    }
    all.retain(|other| other != kind);
    if let Some((_, fewer)) = axes.split_first().filter(|(_, fewer)| !fewer.is_empty()) {
        let axes = fewer.to_vec();
        all.extend(match kind {
            Kind::AllReduce { reduce, .. } => Some(Kind::AllReduce { axes, reduce: *reduce }),
            Kind::AllGather { dim, .. } => Some(Kind::AllGather { axes, dim: *dim }),
            Kind::ReduceScatter { dim, reduce, .. } => {
                Some(Kind::ReduceScatter { axes, dim: *dim, reduce: *reduce })
            }
            Kind::Slice { dim, .. } => Some(Kind::Slice { axes, dim: *dim }),
            _ => None,
        });
    }
    all
}

fn other_scales(kind: &Kind) -> Vec<(&'static str, Kind)> {
    match kind {
        &Kind::BlockAttention { scale, cap, window, skipped, pools } => [2.0, 0.5, -1.0, 0.0, scale]
            .map(|by| Kind::BlockAttention { scale: scale * by, cap, window, skipped, pools })
            .map(|kind| ("attention scale", kind))
            .into(),
        &Kind::QuantBlockAttention { scale, cap, window, skipped, pools } => [2.0, 0.5, -1.0, 0.0, scale]
            .map(|by| Kind::QuantBlockAttention { scale: scale * by, cap, window, skipped, pools })
            .map(|kind| ("attention scale", kind))
            .into(),
        Kind::RmsNorm { epsilon } => {
            vec![("norm epsilon", Kind::RmsNorm { epsilon: epsilon * 1e4 })]
        }
        Kind::Scale { by } => {
            vec![("scale", Kind::Scale { by: by * 2.0 }), ("scale", Kind::Scale { by: -by })]
        }
        _ => Vec::new(),
    }
}

fn with_negated(placed: &Placed, id: OpId, operand: usize) -> Placed {
    let mut mutant = placed.clone();
    let negated = placed.program.ops[id].operands[operand];
    let value = &placed.program.values[negated];
    let result = mutant.program.values.push(Value {
        name: String::new(),
        role: Role::Result,
        source: None,
        ..value.clone()
    });
    mutant.layouts.push(placed.layouts[negated].clone());
    mutant.program.ops[id].operands[operand] = result;
    let op =
        Op { kind: Kind::Scale { by: -1.0 }, operands: vec![negated], results: smallvec::smallvec![result] };
    let before = BTreeMap::from([(id, op)]);
    let ops = mutant
        .program
        .ops
        .iter()
        .flat_map(|(id, op)| before.get(&id).cloned().into_iter().chain([op.clone()]));
    mutant.program.ops = ops.collect();
    mutant
}
