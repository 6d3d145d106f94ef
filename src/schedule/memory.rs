//! Lifetimes → offsets. Buffers of the arena share bytes when they are never live together; every other region lays its
//! buffers out one after the other.

use std::ops::Range;

use crate::base::{Bytes, Id, IdVec};
use crate::program::call::BufferId;

use super::plan::{ALIGNMENT_BYTES, Plan, Region, Slot};

/// Steps for which a buffer of the arena keeps its bytes to itself, beyond those that touch it.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    pub(super) buffer: BufferId,
    pub(super) steps: Range<usize>,
}

/// Gives every buffer its offset.
///
/// A buffer of the arena lives from the first step that touches it or for which it is `reserved` to the last. Buffers are placed in the
/// order they come to life, each at the lowest offset that is free throughout its life.
pub(super) fn assign(plan: &mut Plan, reserved: &[Reserved]) {
    let mut lives = lifetimes(plan);
    for Reserved { buffer, steps } in reserved {
        if let Some((first, last)) = &mut lives[*buffer] {
            (*first, *last) = (steps.start.min(*first), steps.end.saturating_sub(1).max(*last));
        }
    }
    let mut ends = [0_u64; Region::ALL.len()];
    let mut placed: Vec<(Range<u64>, usize)> = Vec::new();
    let mut order: Vec<BufferId> = plan.buffers.ids().collect();
    order.sort_by_key(|id| (lives[*id].map_or(usize::MAX, |life| life.0), id.index()));
    for id in order {
        let slot = &mut plan.buffers[id];
        let bytes = slot.bytes.0.next_multiple_of(ALIGNMENT_BYTES);
        if slot.region != Region::Arena {
            continue;
        }
        let Some((first, last)) = lives[id] else {
            // Nothing touches it: an empty part of an uneven split.
            slot.bytes = Bytes(0);
            continue;
        };
        placed.retain(|(_, end)| *end >= first);
        let mut offset = 0;
        for (range, _) in &placed {
            if range.start >= offset + bytes {
                break;
            }
            offset = offset.max(range.end);
        }
        slot.offset = Bytes(offset);
        let at = placed.partition_point(|(range, _)| range.start < offset);
        placed.insert(at, (offset..offset + bytes, last));
    }
    for id in plan.buffers.ids() {
        let Slot { region, offset, bytes } = &mut plan.buffers[id];
        if *region != Region::Arena {
            let end = &mut ends[*region as usize];
            *offset = Bytes(*end);
            *end += bytes.0.next_multiple_of(ALIGNMENT_BYTES);
        }
    }
}

/// First and last step that touches each buffer, or behind which a tap shows it.
pub(super) fn lifetimes(plan: &Plan) -> IdVec<BufferId, Option<(usize, usize)>> {
    let mut lives: IdVec<BufferId, Option<(usize, usize)>> = plan.buffers.ids().map(|_| None).collect();
    for (index, step) in plan.steps.iter().enumerate() {
        for view in step.reads().into_iter().chain(step.writes()) {
            let life = &mut lives[view.buffer];
            *life = Some((life.map_or(index, |(first, _)| first), index));
        }
    }
    // A slice has no step of its own that would keep its operand until it is shown.
    for tap in &plan.taps {
        if let (Some((_, last)), Some(shown)) = (&mut lives[tap.view.buffer], tap.after_steps.checked_sub(1)) {
            *last = shown.max(*last);
        }
    }
    lives
}
