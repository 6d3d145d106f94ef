//! Converts one layout of a value to another: the steps and their cost.
//!
//! Each step is a collective or a local slice. The loop takes local slices first, which make the
//! rest smaller, then `reduce_scatter`, `all_reduce` over all axes that need it, `all_to_all`, and
//! `all_gather` last. Every step resolves at least one axis, so the loop ends.

use crate::base::{AxisId, Reduce, Shape};
use crate::program::Kind;

use super::layout::Layout;
use super::mesh::Mesh;

/// One step and the layout after it.
#[derive(Clone, Debug, PartialEq)]
pub struct TransitionStep {
    /// The lowered op of the step.
    pub kind: Kind,
    /// The layout of the result.
    pub layout: Layout,
}

/// Returns the steps that convert `from` to `to`.
///
/// # Errors
/// Returns a message if no collective can do it: `to` is partial where `from` is sharded, or by
/// another reduction.
pub fn steps(from: &Layout, to: &Layout) -> Result<Vec<TransitionStep>, String> {
    let mut now = from.clone();
    let mut steps = Vec::new();
    while now != *to {
        let kind = next(&now, to)?;
        apply(&mut now, &kind);
        steps.push(TransitionStep { kind, layout: now.clone() });
    }
    Ok(steps)
}

fn next(now: &Layout, to: &Layout) -> Result<Kind, String> {
    let is_whole = |axis: &AxisId| now.dim_of(*axis).is_none() && now.partial_on(*axis).is_none();
    // 1. Slice axes that are replicated now and sharded in `to`.
    for (dim, wanted) in missing(now, to) {
        let axes: Vec<AxisId> = wanted.iter().copied().take_while(is_whole).collect();
        if !axes.is_empty() {
            return Ok(Kind::Slice { axes, dim });
        }
    }
    // 2. Reduce-scatter axes that are partial now and sharded in `to`.
    for (dim, wanted) in missing(now, to) {
        if let Some(reduce) = wanted.first().and_then(|axis| now.partial_on(*axis)) {
            let axes =
                wanted.iter().copied().take_while(|axis| now.partial_on(*axis) == Some(reduce)).collect();
            return Ok(Kind::ReduceScatter { axes, dim, reduce });
        }
    }
    // 3. Reduce axes that are partial only now, all axes of one reduction together.
    let surplus = |(axis, reduce): &&(AxisId, Reduce)| to.partial_on(*axis) != Some(*reduce);
    if let Some((_, reduce)) = now.partial.iter().find(surplus) {
        let axes =
            now.partial.iter().filter(surplus).filter(|(_, r)| r == reduce).map(|(axis, _)| *axis).collect();
        return Ok(Kind::AllReduce { axes, reduce: *reduce });
    }
    // 4. Move the innermost axis of one dim to the dim that needs it next.
    for (dim, wanted) in missing(now, to) {
        let from = now.dims.iter().position(|axes| axes.last() == wanted.first());
        if let Some(from) = from.filter(|from| surplus_axes(now, to, *from).contains(&wanted[0])) {
            return Ok(Kind::AllToAll { axes: vec![wanted[0]], from, to: dim });
        }
    }
    // 5. Gather axes that `to` does not shard this way.
    for dim in 0..now.dims.len() {
        let axes = surplus_axes(now, to, dim);
        if !axes.is_empty() {
            return Ok(Kind::AllGather { axes, dim });
        }
    }
    // 6. Make replicated axes partial.
    let wanted: Vec<AxisId> = to.partial.iter().map(|(axis, _)| *axis).filter(is_whole).collect();
    if !wanted.is_empty() && to.partial.iter().all(|(_, reduce)| *reduce == Reduce::Sum) {
        return Ok(Kind::Leader { axes: wanted });
    }
    Err(format!("no collective turns {now} into {to}"))
}

/// Returns the missing axes of each dim, if its present axes are a prefix of the wanted ones.
fn missing<'a>(now: &'a Layout, to: &'a Layout) -> impl Iterator<Item = (usize, &'a [AxisId])> {
    now.dims.iter().zip(&to.dims).enumerate().filter_map(|(dim, (now, to))| {
        let rest = to.strip_prefix(now.as_slice())?;
        (!rest.is_empty()).then_some((dim, rest))
    })
}

/// Returns the axes of a dim after the common prefix with `to`.
fn surplus_axes(now: &Layout, to: &Layout, dim: usize) -> Vec<AxisId> {
    let common = now.dims[dim].iter().zip(&to.dims[dim]).take_while(|(a, b)| a == b).count();
    now.dims[dim][common..].to_vec()
}

pub(crate) fn apply(layout: &mut Layout, kind: &Kind) {
    let drop_partial =
        |layout: &mut Layout, axes: &[AxisId]| layout.partial.retain(|(axis, _)| !axes.contains(axis));
    match kind {
        Kind::Slice { axes, dim } => layout.dims[*dim].extend(axes.iter().copied()),
        Kind::ReduceScatter { axes, dim, .. } => {
            drop_partial(layout, axes);
            layout.dims[*dim].extend(axes.iter().copied());
        }
        Kind::AllReduce { axes, .. } => drop_partial(layout, axes),
        Kind::AllGather { axes, dim } => layout.dims[*dim].retain(|axis| !axes.contains(axis)),
        Kind::AllToAll { axes, from, to } => {
            layout.dims[*from].retain(|axis| !axes.contains(axis));
            layout.dims[*to].extend(axes.iter().copied());
        }
        Kind::Leader { axes } => {
            layout.partial.extend(axes.iter().map(|axis| (*axis, Reduce::Sum)));
            layout.partial.sort_unstable();
        }
        Kind::Pad { axes, dim } => {
            layout.dims[*dim].retain(|axis| !axes.contains(axis));
            layout.partial.extend(axes.iter().map(|axis| (*axis, Reduce::Sum)));
            layout.partial.sort_unstable();
        }
        _ => {}
    }
}

/// Communication cost. Compares bytes first, then collectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// Bytes of the value times a weight: 2 for `all_reduce`, 1 for `all_gather` and
    /// `reduce_scatter`, 1/group size for `all_to_all`. Otherwise independent of the group size, so
    /// that using fewer cards never looks cheaper.
    pub moved_bytes: u64,
    /// Number of collectives that run.
    pub collectives: u32,
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            moved_bytes: self.moved_bytes.saturating_add(other.moved_bytes),
            collectives: self.collectives.saturating_add(other.collectives),
        }
    }
}

/// Returns the elements of the value on one rank before it is sharded over `axes`.
pub(crate) fn seen_elems(layout: &Layout, axes: &[AxisId], mesh: &Mesh, shape: &Shape) -> usize {
    let mut outside = layout.clone();
    for dim in &mut outside.dims {
        dim.retain(|axis| !axes.contains(axis));
    }
    outside.largest_local_elems(mesh, shape)
}

/// Returns the cost of converting `from` to `to`, or `None` if it is impossible.
#[must_use]
pub fn cost(from: &Layout, to: &Layout, mesh: &Mesh, shape: &Shape, size_bytes: usize) -> Option<Cost> {
    if from == to {
        return Some(Cost::default());
    }
    let mut total = Cost::default();
    let found = steps(from, to).ok()?;
    for (index, step) in found.iter().enumerate() {
        let before = if index == 0 { from } else { &found[index - 1].layout };
        total = total + step_cost(&step.kind, before, mesh, shape, size_bytes);
    }
    Some(total)
}

/// Returns the cost of one lowered op on an operand of layout `before`.
#[must_use]
pub fn step_cost(kind: &Kind, before: &Layout, mesh: &Mesh, shape: &Shape, size_bytes: usize) -> Cost {
    let axes = kind.axes();
    if !kind.is_collective() || mesh.joint_size(axes) == 1 {
        return Cost::default();
    }
    let bytes = (seen_elems(before, axes, mesh, shape) * size_bytes) as u64;
    let moved_bytes = match kind {
        Kind::AllReduce { .. } => 2 * bytes,
        Kind::CompressedSum { by, .. } => {
            // A rank sends all shares but its own; the cost counts all.
            let cards = mesh.joint_size(axes);
            (by.wire_bytes(seen_elems(before, axes, mesh, shape), cards) / (cards - 1) * cards) as u64
        }
        Kind::AllToAll { .. } => bytes / mesh.joint_size(axes) as u64,
        _ => bytes,
    };
    Cost { moved_bytes, collectives: 1 }
}
