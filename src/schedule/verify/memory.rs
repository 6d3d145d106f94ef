//! Checks of a plan's memory: the bytes of views, tensors and buffers. Shares no code with
//! `schedule::memory`, which places the buffers.

use std::ops::Range;

use super::place;
use crate::base::{Diagnostic, Diagnostics, Id, IdVec};
use crate::call::{BufferId, View};
use crate::schedule::plan::{Plan, Region, Tap, Tensor};

pub(super) fn elements(view: &View) -> Range<usize> {
    if view.shape.contains(&0) {
        return view.offset..view.offset;
    }
    let steps = view.shape.iter().zip(&view.strides).map(|(size, stride)| (size - 1) * stride);
    view.offset..view.offset + steps.sum::<usize>() + 1
}

pub(super) fn bytes_of(plan: &Plan, view: &View) -> (Region, Range<u64>) {
    let (slot, size) = (&plan.buffers[view.buffer], view.dtype.size_bytes() as u64);
    let elements = elements(view);
    (slot.region, slot.offset.0 + elements.start as u64 * size..slot.offset.0 + elements.end as u64 * size)
}

/// First and last step; taps count as uses.
fn uses(plan: &Plan) -> IdVec<BufferId, Option<[usize; 2]>> {
    let mut uses: IdVec<BufferId, Option<[usize; 2]>> = plan.buffers.ids().map(|_| None).collect();
    let views = plan.steps.iter().enumerate().flat_map(|(at, step)| {
        step.reads().into_iter().chain(step.writes()).map(move |view| (at, view.buffer))
    });
    let is_shown = |tap: &&Tap| {
        tap.after_steps > 0 && plan.buffers.get(tap.view.buffer).is_some() && !elements(&tap.view).is_empty()
    };
    let shown = plan.taps.iter().filter(is_shown).map(|tap| (tap.after_steps - 1, tap.view.buffer));
    for (at, buffer) in views.chain(shown) {
        let [first, last] = uses[buffer].unwrap_or([at; 2]);
        uses[buffer] = Some([first.min(at), last.max(at)]);
    }
    uses
}

/// The ranks together have each element of a weight, state or input, or no element.
pub(super) fn tensors_are_whole(plans: &[Plan], problems: &mut Diagnostics) {
    let Some(first) = plans.first() else { return };
    let kinds: [fn(&Plan) -> &[Tensor]; 3] = [|plan| &plan.params, |plan| &plan.states, |plan| &plan.inputs];
    for of in kinds {
        for (at, tensor) in of(first).iter().enumerate() {
            let Some(parts) = plans.iter().map(|plan| of(plan).get(at)).collect::<Option<Vec<&Tensor>>>()
            else {
                problems.push(Diagnostic::new(format!("tensor \"{}\"", tensor.name), "is not on all ranks"));
                continue;
            };
            let elems = |ranges: &&Vec<Range<usize>>| ranges.iter().map(Range::len).product::<usize>();
            let mut apart: Vec<&Vec<Range<usize>>> = parts.iter().map(|part| &part.ranges).collect();
            apart.retain(|ranges| elems(ranges) > 0);
            apart.sort_by_cached_key(|ranges| {
                ranges.iter().map(|range| (range.start, range.end)).collect::<Vec<_>>()
            });
            apart.dedup();
            let (found, whole) = (apart.iter().map(elems).sum::<usize>(), tensor.shape.elems());
            if found != 0 && found != whole {
                let problem = Diagnostic::new(
                    format!("tensor \"{}\"", tensor.name),
                    "the ranks do not hold the whole tensor",
                );
                problems.push(problem.expected(format!("{whole} elements")).found(found));
            }
        }
    }
}

fn tensors(plan: &Plan, problems: &mut Diagnostics) {
    for tensor in plan.params.iter().chain(&plan.states).chain(&plan.inputs).chain(&plan.outputs) {
        let elems: usize = tensor.ranges.iter().map(Range::len).product();
        let end = ((tensor.offset + elems) * tensor.dtype.size_bytes()) as u64;
        let has = plan.buffers.get(tensor.buffer).map(|slot| slot.bytes.0);
        if elems > 0 && has.is_none_or(|has| has < end) {
            let problem = Diagnostic::new(
                format!("rank {}", plan.rank),
                format!("\"{}\" reaches beyond its buffer", tensor.name),
            );
            problems.push(problem.expected(format!("{end} bytes")).found(has.unwrap_or_default()));
        }
    }
}

pub(super) fn memory(plan: &Plan, problems: &mut Diagnostics) {
    tensors(plan, problems);
    for (index, step) in plan.steps.iter().enumerate() {
        for view in step.reads().into_iter().chain(step.writes()) {
            let Some(slot) = plan.buffers.get(view.buffer) else {
                problems
                    .push(Diagnostic::new(place(plan, index), format!("there is no buffer {}", view.buffer)));
                return;
            };
            let (_, span) = bytes_of(plan, view);
            if span.end > slot.range().end {
                let problem =
                    Diagnostic::new(place(plan, index), format!("{view} reaches beyond its buffer"));
                problems.push(
                    problem.expected(format!("{} bytes", slot.bytes.0)).found(span.end - slot.offset.0),
                );
            }
        }
    }
    let overlap = |region: Region, a: BufferId, b: BufferId| {
        let what = format!("buffers {a} and {b} of the {} overlap while both are live", region.name());
        Diagnostic::new(format!("rank {}", plan.rank), what)
    };
    let taken = || plan.buffers.iter().filter(|(_, slot)| slot.bytes.0 > 0);
    // Buffers outside the arena live as long as the plan. If two overlap, two neighbours overlap.
    let mut kept: Vec<_> = taken().filter(|(_, slot)| slot.region != Region::Arena).collect();
    kept.sort_by_key(|(_, slot)| (slot.region, slot.offset));
    for ((a, slot), (b, next)) in kept.iter().zip(kept.iter().skip(1)) {
        if slot.region == next.region && next.offset.0 < slot.range().end {
            problems.push(overlap(slot.region, *a, *b));
        }
    }
    let uses = uses(plan);
    let mut arena: Vec<_> = taken()
        .filter(|(_, slot)| slot.region == Region::Arena)
        .filter_map(|(id, slot)| uses[id].map(|[first, last]| (first, last, id, slot.range())))
        .collect();
    arena.sort_by_key(|(first, _, id, _)| (*first, id.index()));
    let mut live: Vec<(usize, BufferId, Range<u64>)> = Vec::new();
    for (first, last, id, range) in arena {
        live.retain(|(last, _, _)| *last >= first);
        for (_, other, _) in live.iter().filter(|(_, _, o)| o.start < range.end && range.start < o.end) {
            problems.push(overlap(Region::Arena, *other, id));
        }
        live.push((last, id, range));
    }
}
