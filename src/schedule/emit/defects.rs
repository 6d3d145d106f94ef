//! Faults of the emitter that tests inject.

use std::ops::Range;

use super::Emitter;
use crate::base::{Reduce, defect};
use crate::program::ValueId;
use crate::schedule::plan::{Action, CollectiveKind, Plan, Region, Step, StreamKind};

impl Emitter<'_> {
    pub(super) fn changed_part(
        &self,
        id: ValueId,
        region: Region,
        own: Vec<Range<usize>>,
    ) -> Vec<Range<usize>> {
        let value = &self.placed.program.values[id];
        let of = |rank| self.placed.layouts[id].ranges(&self.placed.mesh, &value.shape, rank);
        let others = of(self.neighbour());
        let is_as_large = own.iter().zip(&others).all(|(own, other)| own.len() == other.len());
        // A state begins as zeros, so only its place in a checkpoint would be wrong.
        let is_seen = region != Region::States
            || (0..self.placed.mesh.cards()).filter(|rank| of(*rank) == own).count() == 1;
        if is_as_large && others != own && is_seen {
            defect!(PartOfNeighbour, return others);
        }
        own
    }

    pub(super) fn change_launches(&mut self, first: usize) {
        for at in first..self.plan.steps.len() {
            if at > first && self.plan.conflicts().contains(&(at - 1, at)) {
                defect!(LaunchesSwapped, self.plan.steps.swap(at - 1, at));
            }
            defect!(LaunchMissing, {
                self.plan.steps.remove(at);
                break;
            });
        }
    }

    /// A tap before its value is made.
    pub(super) fn change_last_tap(&mut self) {
        if let Some((last, before)) = self.plan.steps.split_last()
            && let Some(tap) = self.plan.taps.last_mut().filter(|tap| tap.view.elems() > 0)
        {
            let writes = |step: &Step| step.writes().iter().any(|view| view.buffer == tap.view.buffer);
            let is_made = self.plan.buffers[tap.view.buffer].region == Region::Arena;
            if is_made && writes(last) && !before.iter().any(writes) {
                defect!(TapTooEarly, tap.after_steps -= 1);
            }
        }
    }

    pub(super) fn change_last_exchange(&mut self) {
        let Plan { steps, groups, .. } = &mut self.plan;
        let Some(mut step) = steps.pop() else { return };
        let Action::Exchange(exchange) = &mut step.action else { return };
        let others = groups.ids().filter(|group| *group != exchange.group);
        for other in others.collect::<Vec<_>>() {
            defect!(CollectiveInOtherGroup, exchange.group = other);
        }
        match &mut exchange.kind {
            CollectiveKind::AllGather { counts }
            | CollectiveKind::ReduceScatter { counts, .. }
            | CollectiveKind::AllToAll { send_counts: counts, .. } => {
                defect!(CountsTurned, counts.rotate_left(1));
            }
            _ => {}
        }
        match &mut exchange.kind {
            CollectiveKind::AllReduce { reduce } | CollectiveKind::ReduceScatter { reduce, .. } => {
                defect!(OtherReduction, *reduce = Reduce::Min);
            }
            _ => {}
        }
        defect!(CollectiveOnComputeStream, step.stream = StreamKind::Compute);
        defect!(CollectiveTwice, steps.push(step.clone()));
        defect!(CollectiveMissing, return);
        steps.push(step);
    }

    fn neighbour(&self) -> usize {
        (self.rank + 1) % self.placed.mesh.cards()
    }
}
