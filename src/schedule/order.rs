//! Which step must wait for which: an event wherever one stream touches bytes that the other touched before it.
//!
//! Streams are FIFO, so one wait orders a step after everything the other stream was given before the record. The pass
//! keeps, for each stream, how much of the other it has already waited for, and adds no event that follows from that:
//! what remains is the transitive reduction.

use std::ops::Range;

use crate::base::Id;

use super::plan::{Action, EventId, Plan, Region, Step, StreamKind};

/// A past access to bytes of a region.
struct Access {
    range: Range<u64>,
    step: usize,
    stream: StreamKind,
    is_write: bool,
}

/// Inserts the events. Offsets must be assigned: reuse of bytes is ordered like any other conflict.
pub(super) fn insert_events(plan: &mut Plan) {
    let steps = std::mem::take(&mut plan.steps);
    let mut past: Vec<Vec<Access>> = Region::ALL.iter().map(|_| Vec::new()).collect();
    // By waiting stream: the last step of the other stream that it is ordered after.
    let mut seen: [Option<usize>; 2] = [None, None];
    // Pairs (step that records behind it, step that waits before it).
    let mut waits: Vec<(usize, usize)> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let mut after: Option<usize> = None;
        let reads = step.reads().into_iter().map(|view| (plan.span(view), false));
        let accesses: Vec<_> = reads.chain(step.writes().into_iter().map(|view| (plan.span(view), true))).collect();
        for ((region, range), is_write) in &accesses {
            for access in &past[*region as usize] {
                let overlaps = access.range.start < range.end && range.start < access.range.end;
                if access.stream != step.stream && overlaps && (*is_write || access.is_write) {
                    after = after.max(Some(access.step));
                }
            }
        }
        let seen = &mut seen[step.stream as usize];
        if after > *seen {
            waits.extend(after.map(|after| (after, index)));
            *seen = after;
        }
        for ((region, range), is_write) in accesses {
            let past = &mut past[region as usize];
            if is_write {
                // Whoever comes later conflicts with this write instead.
                past.retain(|access| access.range.start < range.start || access.range.end > range.end);
            }
            past.push(Access { range, step: index, stream: step.stream, is_write });
        }
    }
    let mut records: Vec<(usize, EventId)> =
        waits.iter().enumerate().map(|(event, (after, _))| (*after, EventId::from_index(event))).collect();
    records.sort_unstable();
    let mut records = records.into_iter().peekable();
    let mut waits =
        waits.iter().enumerate().map(|(event, (_, before))| (*before, EventId::from_index(event))).peekable();
    plan.events = waits.len();
    plan.steps = Vec::with_capacity(steps.len() + 2 * plan.events);
    // By old step: how many steps there are now up to and with it.
    let mut moved = Vec::with_capacity(steps.len());
    for (index, step) in steps.into_iter().enumerate() {
        let (stream, op) = (step.stream, step.op);
        while let Some((_, event)) = waits.next_if(|(before, _)| *before == index) {
            plan.steps.push(Step { stream, action: Action::Wait(event), op });
        }
        plan.steps.push(step);
        while let Some((_, event)) = records.next_if(|(after, _)| *after == index) {
            plan.steps.push(Step { stream, action: Action::Record(event), op });
        }
        moved.push(plan.steps.len());
    }
    for tap in &mut plan.taps {
        tap.after_steps = tap.after_steps.checked_sub(1).map_or(0, |last| moved[last]);
    }
}
