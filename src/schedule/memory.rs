//! Assigns buffer offsets. Arena buffers that are never live at the same time may share bytes. The
//! buffers of every other region are contiguous.

use std::ops::Range;

#[cfg(test)]
use crate::base::defect;
use crate::base::{Bytes, Id, IdVec};
use crate::call::BufferId;

use super::plan::{ALIGNMENT_BYTES, Plan, Region, Slot};

/// Steps during which an arena buffer must also keep its bytes.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    pub(super) buffer: BufferId,
    pub(super) steps: Range<usize>,
}

const LARGE_PART: u64 = 128;

struct LiveBuffer {
    id: BufferId,
    life: (usize, usize),
    bytes: u64,
}

pub(super) fn arena_bytes(mut plan: Plan, reserved: &[Reserved]) -> Bytes {
    let lives = lifetimes(&plan);
    lay_out(&mut plan, lives, reserved);
    plan.region_bytes(Region::Arena)
}

/// Assigns an offset to every buffer.
///
/// An arena buffer lives from the first to the last step that touches or reserves it. Buffers are
/// placed in the order of their first step, each at the lowest offset that is free for its whole
/// life. If reserved lifetimes cross, large buffers are also tried first, and the smaller arena is
/// kept.
pub(super) fn assign(plan: &mut Plan, reserved: &[Reserved]) {
    let lives = lifetimes(plan);
    #[cfg(test)]
    let lives = with_defect(plan, lives);
    lay_out(plan, lives, reserved);
    #[cfg(test)]
    for id in plan.buffers.ids() {
        let slot = &mut plan.buffers[id];
        defect!(OffsetLower, slot.offset.0 = slot.offset.0.saturating_sub(ALIGNMENT_BYTES));
        defect!(BufferShorter, slot.bytes.0 -= slot.bytes.0.min(1));
    }
}

#[cfg(test)]
fn with_defect(plan: &Plan, mut lives: Lives) -> Lives {
    for id in plan.buffers.ids().filter(|id| plan.buffers[*id].region == Region::Arena) {
        let Some((first, last)) = &mut lives[id] else { continue };
        defect!(LifeEndsEarly, *last = last.saturating_sub(1).max(*first));
        defect!(LifeBeginsLate, *first = (*first + 1).min(*last));
    }
    lives
}

/// First and last step; `None` for unused buffers.
type Lives = IdVec<BufferId, Option<(usize, usize)>>;

fn lay_out(plan: &mut Plan, mut lives: Lives, reserved: &[Reserved]) {
    for Reserved { buffer, steps } in reserved {
        if let Some((first, last)) = &mut lives[*buffer] {
            (*first, *last) = (steps.start.min(*first), steps.end.saturating_sub(1).max(*last));
        }
    }
    let mut arena = Vec::new();
    for (id, slot) in plan.buffers.iter().filter(|(_, slot)| slot.region == Region::Arena) {
        let bytes = slot.bytes.0.next_multiple_of(ALIGNMENT_BYTES);
        arena.extend(lives[id].map(|life| LiveBuffer { id, life, bytes }));
    }
    arena.sort_by_key(|lived| (lived.life.0, lived.id.index()));
    let (mut offsets, mut end) = placed(&arena, u64::MAX);
    if !reserved.is_empty() {
        let other = placed(&arena, end / LARGE_PART);
        if other.1 < end {
            (offsets, end) = other;
        }
    }
    let mut ends = [0_u64; Region::ALL.len()];
    ends[Region::Arena as usize] = end;
    for (LiveBuffer { id, .. }, offset) in arena.iter().zip(offsets) {
        plan.buffers[*id].offset = Bytes(offset);
    }
    for id in plan.buffers.ids() {
        let Slot { region, offset, bytes } = &mut plan.buffers[id];
        if *region == Region::Arena && lives[id].is_none() {
            // An empty shard of an uneven split.
            *bytes = Bytes(0);
        }
        if *region != Region::Arena {
            let end = &mut ends[*region as usize];
            *offset = Bytes(*end);
            *end += bytes.0.next_multiple_of(ALIGNMENT_BYTES);
        }
    }
}

fn placed(arena: &[LiveBuffer], large: u64) -> (Vec<u64>, u64) {
    let mut offsets = vec![0; arena.len()];
    let mut first: Vec<usize> = (0..arena.len()).filter(|buffer| arena[*buffer].bytes >= large).collect();
    first.sort_by_key(|buffer| (std::cmp::Reverse(arena[*buffer].bytes), *buffer));
    let mut pinned: Vec<PlacedBuffer> = Vec::new();
    for buffer in first {
        let lived = &arena[buffer];
        let conflicts = pinned.iter().filter(|other| lived.conflicts_with(other.life));
        offsets[buffer] = lowest(lived, conflicts.map(|other| &other.range));
        insert(&mut pinned, lived, offsets[buffer]);
    }
    pinned.sort_by_key(|buffer| buffer.life.0);
    let mut upcoming = pinned.as_slice();
    let mut live: Vec<PlacedBuffer> = Vec::new();
    for (buffer, lived) in arena.iter().enumerate().filter(|(_, lived)| lived.bytes < large) {
        let (start, end) = lived.life;
        let begun = upcoming.partition_point(|other| other.life.0 <= start);
        live.extend(upcoming[..begun].iter().cloned());
        upcoming = &upcoming[begun..];
        live.retain(|other| other.life.1 >= start);
        if begun > 0 {
            live.sort_by_key(|other| other.range.start);
        }
        let mut later: Vec<&Range<u64>> =
            upcoming.iter().take_while(|other| other.life.0 <= end).map(|other| &other.range).collect();
        later.sort_unstable_by_key(|range| range.start);
        offsets[buffer] = lowest(lived, merge(live.iter().map(|other| &other.range), later));
        insert(&mut live, lived, offsets[buffer]);
    }
    let end = arena.iter().zip(&offsets).map(|(lived, offset)| offset + lived.bytes).max().unwrap_or(0);
    (offsets, end)
}

#[derive(Clone)]
struct PlacedBuffer {
    range: Range<u64>,
    life: (usize, usize),
}

impl LiveBuffer {
    const fn conflicts_with(&self, life: (usize, usize)) -> bool {
        life.0 <= self.life.1 && self.life.0 <= life.1
    }
}

/// Returns the lowest offset that is free. The conflicts are in ascending order.
fn lowest<'a>(lived: &LiveBuffer, conflicts: impl Iterator<Item = &'a Range<u64>>) -> u64 {
    let mut lowest = 0;
    for range in conflicts {
        if range.start >= lowest + lived.bytes {
            break;
        }
        lowest = lowest.max(range.end);
    }
    lowest
}

/// Merges two ascending sequences.
fn merge<'a>(
    a: impl Iterator<Item = &'a Range<u64>>,
    b: Vec<&'a Range<u64>>,
) -> impl Iterator<Item = &'a Range<u64>> {
    let (mut a, mut b) = (a.peekable(), b.into_iter().peekable());
    std::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(of_a), Some(of_b)) if of_b.start < of_a.start => b.next(),
        (Some(_), _) => a.next(),
        (None, _) => b.next(),
    })
}

/// Keeps the order of the offsets.
fn insert(placed: &mut Vec<PlacedBuffer>, lived: &LiveBuffer, offset: u64) {
    let at = placed.partition_point(|other| other.range.start < offset);
    placed.insert(at, PlacedBuffer { range: offset..offset + lived.bytes, life: lived.life });
}

fn lifetimes(plan: &Plan) -> Lives {
    let mut lives: Lives = plan.buffers.ids().map(|_| None).collect();
    for (index, step) in plan.steps.iter().enumerate() {
        for view in step.reads().into_iter().chain(step.writes()) {
            let life = &mut lives[view.buffer];
            *life = Some((life.map_or(index, |(first, _)| first), index));
        }
    }
    #[cfg(test)]
    for life in plan.buffers.ids() {
        if let Some((first, last)) = &mut lives[life] {
            defect!(always LivesEndEarly, *last = last.saturating_sub(1).max(*first));
        }
    }
    // A slice has no step that keeps its operand alive until the tap.
    for tap in &plan.taps {
        if let (Some((_, last)), Some(shown)) = (&mut lives[tap.view.buffer], tap.after_steps.checked_sub(1))
        {
            *last = shown.max(*last);
        }
    }
    lives
}
