//! Which step must wait for which: an event wherever one stream touches bytes that another touched before it, and around a call that
//! multiplies and exchanges, which takes the cores of the card: operators of another stream run before or behind it.
//!
//! Streams are FIFO, so one wait orders a step after everything the other stream was given before the record, and after what that
//! stream had waited for. The pass keeps, for each stream, how far it is ordered after each other, and adds no event that follows from
//! that: what remains is the transitive reduction.

use std::ops::Range;

use smallvec::SmallVec;

use crate::base::Id;

use super::plan::{Action, EventId, Plan, Region, Step, StreamKind};

const STREAMS: usize = StreamKind::ALL.len();

/// Bytes that a step touched, in the order of the steps.
type TouchedRanges = Vec<(usize, Range<u64>)>;

/// What one stream did with one region, as far as another stream is not ordered after it.
#[derive(Default)]
struct RegionAccesses {
    reads: TouchedRanges,
    writes: TouchedRanges,
}

/// By stream: the last of its steps that something is ordered after.
type LastOrdered = [Option<usize>; STREAMS];

/// The last step among `past` that touched a byte of `range`. What the asking stream has `seen` is forgotten: it is ordered
/// after that, and nobody else asks.
fn last_conflict(past: &mut TouchedRanges, seen: Option<usize>, range: &Range<u64>) -> Option<usize> {
    past.drain(..past.partition_point(|(step, _)| Some(*step) <= seen));
    let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
    past.iter().rev().find(|(_, other)| overlaps(other)).map(|(step, _)| *step)
}

/// Pairs (step that an event is recorded behind, step that waits for it), in the order of those that wait.
fn waits(plan: &Plan) -> Vec<(usize, usize)> {
    let used = plan.streams();
    // By asking stream, then by the stream that did something, and region.
    let mut past: [[[RegionAccesses; Region::ALL.len()]; STREAMS]; STREAMS] = Default::default();
    // By waiting stream.
    let mut seen = [LastOrdered::default(); STREAMS];
    // By step: what its stream had seen when it ran.
    let mut then: Vec<LastOrdered> = Vec::with_capacity(plan.steps.len());
    let mut waits = Vec::new();
    // By stream: the last operator, and the last that exchanges too.
    let [mut computed, mut joined] = [LastOrdered::default(); 2];
    for (index, step) in plan.steps.iter().enumerate() {
        let own = step.stream as usize;
        let exchanges_too = matches!(&step.action, Action::Exchange(exchange) if exchange.product.is_some());
        let computes = exchanges_too || matches!(step.action, Action::Launch(_));
        let others = || used.iter().map(|stream| *stream as usize).filter(|other| *other != own);
        let reads = step.reads().into_iter().map(|view| (plan.span(view), false));
        let accesses: SmallVec<[_; 6]> =
            reads.chain(step.writes().into_iter().map(|view| (plan.span(view), true))).collect();
        let mut after: SmallVec<[(usize, usize); STREAMS]> = SmallVec::new();
        for other in others() {
            let mut last = if exchanges_too { computed[other] } else { joined[other].filter(|_| computes) };
            for ((region, range), is_write) in &accesses {
                let past = &mut past[own][other][*region as usize];
                last = last.max(last_conflict(&mut past.writes, seen[own][other], range));
                if *is_write {
                    last = last.max(last_conflict(&mut past.reads, seen[own][other], range));
                }
            }
            after.extend(last.map(|last| (last, other)));
        }
        // The latest first: it may have waited for the others.
        after.sort_unstable_by(|a, b| b.cmp(a));
        for (last, other) in after {
            if Some(last) > seen[own][other] {
                waits.push((last, index));
                for (own, known) in seen[own].iter_mut().zip(then[last]) {
                    *own = known.max(*own);
                }
            }
        }
        for ((region, range), is_write) in accesses {
            for asking in others() {
                let past = &mut past[asking][own][region as usize];
                let touched = if is_write { &mut past.writes } else { &mut past.reads };
                touched.push((index, range.clone()));
            }
        }
        if computes {
            computed[own] = Some(index);
        }
        if exchanges_too {
            joined[own] = Some(index);
        }
        seen[own][own] = Some(index);
        then.push(seen[own]);
    }
    waits
}

/// Inserts the events. Offsets must be assigned: reuse of bytes is ordered like any other conflict.
pub(super) fn insert_events(plan: &mut Plan) {
    let waits = waits(plan);
    let steps = std::mem::take(&mut plan.steps);
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
