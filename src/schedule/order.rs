//! Inserts the events between streams.
//!
//! A step waits for an event if another stream touched the same bytes before. A fused product and
//! exchange uses the cores of the device, so operators of other streams run entirely before or
//! after it.
//!
//! Streams are FIFO: one wait orders a step after all earlier steps of the other stream, and after
//! everything that stream had waited for. No event is added that already follows.

use std::ops::Range;

use smallvec::SmallVec;

use crate::base::Id;
#[cfg(test)]
use crate::base::defect;

use super::plan::{Action, EventId, Plan, Region, Step, StreamKind};

const STREAMS: usize = StreamKind::ALL.len();

type TouchedRanges = Vec<(usize, Range<u64>)>;

#[derive(Default)]
struct RegionAccesses {
    reads: TouchedRanges,
    writes: TouchedRanges,
}

type LastOrdered = [Option<usize>; STREAMS];

/// The last step in `past` that touched a byte of `range`. Drops the steps up to `seen`: the
/// waiting stream is already ordered after them.
fn last_conflict(past: &mut TouchedRanges, seen: Option<usize>, range: &Range<u64>) -> Option<usize> {
    past.drain(..past.partition_point(|(step, _)| Some(*step) <= seen));
    let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
    past.iter().rev().find(|(_, other)| overlaps(other)).map(|(step, _)| *step)
}

/// `(step to record after, step that waits)`, by waiting step.
fn waits(plan: &Plan) -> Vec<(usize, usize)> {
    let used = plan.streams();
    let mut past: [[[RegionAccesses; Region::ALL.len()]; STREAMS]; STREAMS] = Default::default();
    let mut seen = [LastOrdered::default(); STREAMS];
    let mut then: Vec<LastOrdered> = Vec::with_capacity(plan.steps.len());
    let mut waits = Vec::new();
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
            #[cfg(test)]
            if last.is_some() {
                defect!(CoresForgotten, last = None);
            }
            for ((region, range), is_write) in &accesses {
                let past = &mut past[own][other][*region as usize];
                last = last.max(last_conflict(&mut past.writes, seen[own][other], range));
                if *is_write {
                    last = last.max(last_conflict(&mut past.reads, seen[own][other], range));
                }
            }
            after.extend(last.map(|last| (last, other)));
        }
        // Later steps may already imply earlier ones.
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
            #[cfg(test)]
            if is_write {
                defect!(WriteForgotten, continue);
            }
            #[cfg(test)]
            if !is_write {
                defect!(ReadForgotten, continue);
            }
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

#[cfg(test)]
fn with_defect(mut waits: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    for at in 0..waits.len() {
        defect!(RecordTooEarly, waits[at].0 = waits[at].0.saturating_sub(1));
        defect!(WaitTooLate, waits[at].1 += 1);
        defect!(EventMissing, {
            waits.remove(at);
            break;
        });
    }
    waits.sort_by_key(|(_, before)| *before);
    waits
}

/// Offsets must be assigned before, because reuse of bytes is a conflict too.
pub(super) fn insert_events(plan: &mut Plan) {
    let waits = waits(plan);
    #[cfg(test)]
    let waits = with_defect(waits);
    let steps = std::mem::take(&mut plan.steps);
    let mut records: Vec<(usize, EventId)> =
        waits.iter().enumerate().map(|(event, (after, _))| (*after, EventId::from_index(event))).collect();
    records.sort_unstable();
    let mut records = records.into_iter().peekable();
    let mut waits =
        waits.iter().enumerate().map(|(event, (_, before))| (*before, EventId::from_index(event))).peekable();
    plan.events = waits.len();
    plan.steps = Vec::with_capacity(steps.len() + 2 * plan.events);
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
