//! Which step must wait for which: an event wherever one stream touches bytes that the other touched before it.
//!
//! Streams are FIFO, so one wait orders a step after everything the other stream was given before the record. The pass
//! keeps, for each stream, how much of the other it has already waited for, and adds no event that follows from that:
//! what remains is the transitive reduction.

use std::ops::Range;

use smallvec::SmallVec;

use crate::base::Id;

use super::plan::{Action, EventId, Plan, Region, Step, StreamKind};

/// Bytes that a step touched, in the order of the steps.
type Touched = Vec<(usize, Range<u64>)>;

/// What one stream did with one region, as far as the other stream is not ordered after it.
#[derive(Default)]
struct Past {
    reads: Touched,
    writes: Touched,
}

/// The last step among `past` that touched a byte of `range`. What the asking stream has `seen` is forgotten: it is ordered
/// after that, and nobody else asks.
fn last_conflict(past: &mut Touched, seen: Option<usize>, range: &Range<u64>) -> Option<usize> {
    past.drain(..past.partition_point(|(step, _)| Some(*step) <= seen));
    let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
    past.iter().rev().find(|(_, other)| overlaps(other)).map(|(step, _)| *step)
}

/// Inserts the events. Offsets must be assigned: reuse of bytes is ordered like any other conflict.
pub(super) fn insert_events(plan: &mut Plan) {
    let steps = std::mem::take(&mut plan.steps);
    // By stream and region.
    let mut past: [[Past; Region::ALL.len()]; 2] = Default::default();
    // By waiting stream: the last step of the other stream that it is ordered after.
    let mut seen: [Option<usize>; 2] = [None, None];
    // Pairs (step that records behind it, step that waits before it).
    let mut waits: Vec<(usize, usize)> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let (own, other) = match step.stream {
            StreamKind::Compute => (StreamKind::Compute as usize, StreamKind::Communication as usize),
            StreamKind::Communication => (StreamKind::Communication as usize, StreamKind::Compute as usize),
        };
        let reads = step.reads().into_iter().map(|view| (plan.span(view), false));
        let accesses: SmallVec<[_; 6]> =
            reads.chain(step.writes().into_iter().map(|view| (plan.span(view), true))).collect();
        let mut after: Option<usize> = None;
        for ((region, range), is_write) in &accesses {
            let past = &mut past[other][*region as usize];
            after = after.max(last_conflict(&mut past.writes, seen[own], range));
            if *is_write {
                after = after.max(last_conflict(&mut past.reads, seen[own], range));
            }
        }
        if after > seen[own] {
            waits.extend(after.map(|after| (after, index)));
            seen[own] = after;
        }
        for ((region, range), is_write) in accesses {
            let past = &mut past[own][region as usize];
            let touched = if is_write { &mut past.writes } else { &mut past.reads };
            touched.push((index, range));
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
