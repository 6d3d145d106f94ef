//! Faults of the placement that tests inject; see `base::defect`.

use super::KnownLayouts;
use super::choice::OpChoice;
use crate::base::{Id, defect};
use crate::program::Op;

/// The choice with the fault that a test injects.
pub(super) fn inject(mut choice: OpChoice, op: &Op, now: &KnownLayouts) -> OpChoice {
    for (produced, stored) in choice.produced.iter_mut().zip(&mut choice.stored) {
        if !produced.partial.is_empty() {
            defect!(PartialForgotten, {
                produced.partial.clear();
                stored.partial.clear();
            });
        }
        if let Some(dim) =
            produced.dims.iter().position(|axes| !axes.is_empty()).filter(|_| produced.dims.len() > 1)
        {
            let other = (dim + 1) % produced.dims.len();
            defect!(ShardOnOtherDim, {
                produced.dims.swap(dim, other);
                stored.clone_from(produced);
            });
        }
    }
    for (operand, layout) in op.operands.iter().zip(&mut choice.operands) {
        if let Some(found) = now.layouts[operand.index()].as_ref().filter(|found| *found != layout) {
            defect!(OperandAsItLies, layout.clone_from(found));
        }
    }
    choice
}
