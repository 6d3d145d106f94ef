//! Ops that only arrange the elements of their operand. On a device, the result is a view of the
//! operand. If the strides or the place of the result do not allow that, one call copies it.

use crate::base::Shape;
use crate::call::{Call, View};
use crate::program::op::Kind;

use super::Emit;

/// Copies the elements in the arrangement of the op.
pub(in crate::program) fn copied(kind: &Kind, emit: &mut Emit<'_>) {
    let (x, out) = (emit.view(0), emit.out());
    let view = |x: &View| kind.row().view.and_then(|view| view(kind, x, &out.shape));
    let from = view(&x).or_else(|| view(&emit.dense(x)));
    let Some(from) = from else { unreachable!("a dense tensor has every arrangement") };
    emit.calls.push(Call::Copy { from, into: out });
}

pub(in crate::program) fn narrow(kind: &Kind, x: &View, _: &Shape) -> Option<View> {
    let Kind::Narrow { dim, start, size } = *kind else { return None };
    Some(x.narrow(dim, start, size))
}

pub(in crate::program) fn permute(kind: &Kind, x: &View, _: &Shape) -> Option<View> {
    let Kind::Permute { dims } = kind else { return None };
    Some(x.permute(dims))
}

pub(in crate::program) fn repeat(kind: &Kind, x: &View, _: &Shape) -> Option<View> {
    let Kind::Repeat { dim, size } = *kind else { return None };
    Some(x.repeat(dim, size))
}

pub(in crate::program) fn expand(kind: &Kind, x: &View, shape: &Shape) -> Option<View> {
    let Kind::Expand { dims } = kind else { return None };
    let mut sorted = dims.clone();
    sorted.sort_unstable();
    Some(sorted.into_iter().fold(x.clone(), |view, dim| view.repeat(dim, shape[dim])))
}

/// Returns the operand with split or merged dims.
pub(in crate::program) fn reshaped(_: &Kind, x: &View, shape: &Shape) -> Option<View> {
    x.reshape(shape.clone())
}

/// A sum over one element is that element.
pub(in crate::program) fn without_one(kind: &Kind, x: &View, _: &Shape) -> Option<View> {
    let (Kind::ReduceSum { dim } | Kind::TreeSum { dim, .. }) = *kind else { return None };
    if x.shape[dim] != 1 {
        return None;
    }
    let kept: Vec<usize> = (0..x.shape.rank()).filter(|other| *other != dim).collect();
    Some(x.permute(&kept))
}
