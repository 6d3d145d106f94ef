//! The cost of an operand in a given layout.

use super::super::layout::Layout;
use super::super::transition::cost;
use super::choice::Score;
use super::{KnownLayouts, Propagation};
use crate::base::Id;
use crate::program::{Role, ValueId};

/// Factor on the bytes of a moved param, which makes it the last resort.
const PARAM_MOVE_FACTOR: u64 = 1024;

impl Propagation<'_> {
    pub(super) fn operand_score(
        &self,
        operand: ValueId,
        layout: &Layout,
        in_place: bool,
        now: &KnownLayouts,
    ) -> Option<Score> {
        let value = &self.program.values[operand];
        let Some(known) = &now.layouts[operand.index()] else {
            return Some(Score {
                local_elems: layout.largest_local_elems(self.mesh, &value.shape),
                ..Score::default()
            });
        };
        if known == layout {
            return Some(Score::default());
        }
        // An in-place op must overwrite the value, not a copy.
        if in_place {
            return None;
        }
        if now.copies.get(&operand).is_some_and(|copies| copies.contains(layout)) {
            return Some(Score::default());
        }
        let mut known = known.clone();
        let stored_on = &self.storage_axes[operand.index()];
        known.dims.iter_mut().for_each(|axes| axes.retain(|axis| !stored_on.contains(axis)));
        let mut cost = cost(&known, layout, self.mesh, &value.shape, value.dtype.size_bytes())?;
        if value.role == Role::Param {
            cost.moved_bytes = cost.moved_bytes.saturating_mul(PARAM_MOVE_FACTOR);
        }
        Some(Score { cost, ..Score::default() })
    }
}
