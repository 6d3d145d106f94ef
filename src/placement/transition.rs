//! From one layout of a value to another: the steps and what they cost.
//!
//! Each step is one collective or one local cut. The loop always takes the step that moves least: local cuts first, so
//! that what follows is smaller, then `reduce_scatter`, `all_reduce` over the joint group of all axes that need it,
//! `all_to_all`, and `all_gather` last. Every step names fewer axes that are in the way, so the loop ends.

use crate::base::{AxisId, Reduce, Shape};
use crate::program::Kind;

use super::layout::Layout;
use super::mesh::Mesh;

/// One step and the layout after it.
#[derive(Clone, Debug, PartialEq)]
pub struct TransitionStep {
    /// A lowered op.
    pub kind: Kind,
    /// The layout of its result.
    pub layout: Layout,
}

/// The steps that turn `from` into `to`.
///
/// # Errors
/// A sentence, if `to` is partial where `from` is a shard, or by another reduction: no collective makes that.
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

/// The cheapest step that brings `now` nearer to `to`.
fn next(now: &Layout, to: &Layout) -> Result<Kind, String> {
    let is_whole = |axis: &AxisId| now.dim_of(*axis).is_none() && now.partial_on(*axis).is_none();
    // 1. Cut locally what is whole here and sharded there.
    for (dim, wanted) in missing(now, to) {
        let axes: Vec<AxisId> = wanted.iter().copied().take_while(is_whole).collect();
        if !axes.is_empty() {
            return Ok(Kind::Slice { axes, dim });
        }
    }
    // 2. Reduce and scatter what is partial here and sharded there.
    for (dim, wanted) in missing(now, to) {
        if let Some(reduce) = wanted.first().and_then(|axis| now.partial_on(*axis)) {
            let axes = wanted.iter().copied().take_while(|axis| now.partial_on(*axis) == Some(reduce)).collect();
            return Ok(Kind::ReduceScatter { axes, dim, reduce });
        }
    }
    // 3. Reduce what is partial here and not there, all axes of one reduction at once.
    let surplus = |(axis, reduce): &&(AxisId, Reduce)| to.partial_on(*axis) != Some(*reduce);
    if let Some((_, reduce)) = now.partial.iter().find(surplus) {
        let axes = now.partial.iter().filter(surplus).filter(|(_, r)| r == reduce).map(|(axis, _)| *axis).collect();
        return Ok(Kind::AllReduce { axes, reduce: *reduce });
    }
    // 4. Move the innermost axis of one dim to the dim that misses it next.
    for (dim, wanted) in missing(now, to) {
        let from = now.dims.iter().position(|axes| axes.last() == wanted.first());
        if let Some(from) = from.filter(|from| surplus_axes(now, to, *from).contains(&wanted[0])) {
            return Ok(Kind::AllToAll { axes: vec![wanted[0]], from, to: dim });
        }
    }
    // 5. Gather what is sharded here and not so there.
    for dim in 0..now.dims.len() {
        let axes = surplus_axes(now, to, dim);
        if !axes.is_empty() {
            return Ok(Kind::AllGather { axes, dim });
        }
    }
    // 6. Make a sum of what is whole.
    let wanted: Vec<AxisId> = to.partial.iter().map(|(axis, _)| *axis).filter(is_whole).collect();
    if !wanted.is_empty() && to.partial.iter().all(|(_, reduce)| *reduce == Reduce::Sum) {
        return Ok(Kind::Leader { axes: wanted });
    }
    Err(format!("no collective turns {now} into {to}"))
}

/// For each dim whose present axes are a prefix of the wanted ones, the axes it misses.
fn missing<'a>(now: &'a Layout, to: &'a Layout) -> impl Iterator<Item = (usize, &'a [AxisId])> {
    now.dims.iter().zip(&to.dims).enumerate().filter_map(|(dim, (now, to))| {
        let rest = to.strip_prefix(now.as_slice())?;
        (!rest.is_empty()).then_some((dim, rest))
    })
}

/// The axes of a dim beyond what it has in common with the wanted layout.
fn surplus_axes(now: &Layout, to: &Layout, dim: usize) -> Vec<AxisId> {
    let common = now.dims[dim].iter().zip(&to.dims[dim]).take_while(|(a, b)| a == b).count();
    now.dims[dim][common..].to_vec()
}

/// The layout after a step.
pub(crate) fn apply(layout: &mut Layout, kind: &Kind) {
    let drop_partial = |layout: &mut Layout, axes: &[AxisId]| layout.partial.retain(|(axis, _)| !axes.contains(axis));
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

/// What some steps cost. Ordered: fewer bytes first, then fewer collectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// Bytes of the value times how often the collectives move it: 2 for `all_reduce`, 1 for `all_gather` and
    /// `reduce_scatter`, 1 over the group's size for `all_to_all`. Independent of the size of the group otherwise, so that
    /// using fewer cards never looks cheaper.
    pub moved_bytes: u64,
    /// Number of collectives.
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

/// Elements of the value as a step sees it, sharded on the axes outside its group.
pub(crate) fn seen_elems(layout: &Layout, axes: &[AxisId], mesh: &Mesh, shape: &Shape) -> usize {
    let mut outside = layout.clone();
    for dim in &mut outside.dims {
        dim.retain(|axis| !axes.contains(axis));
    }
    outside.largest_local_elems(mesh, shape)
}

/// What it costs to turn `from` into `to`; `None` if nothing does.
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

/// What one lowered op costs on a value that has layout `before`: one that it exchanges.
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
            // Of `cards` parts each card sends all but its own; the cost counts that too.
            let cards = mesh.joint_size(axes);
            (by.wire_bytes(seen_elems(before, axes, mesh, shape), cards) / (cards - 1) * cards) as u64
        }
        Kind::AllToAll { .. } => bytes / mesh.joint_size(axes) as u64,
        _ => bytes,
    };
    Cost { moved_bytes, collectives: 1 }
}
