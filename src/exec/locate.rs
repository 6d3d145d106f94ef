//! Where in its plan a rank stopped, found from the events the plan records anyway.
//!
//! Input → output: a plan, how many of its steps were enqueued, which of its events the card has reached, and the text of
//! the failure → the op, with its layer, at which a stream stopped. Works on cards and on the emulator alike: an event
//! that a stream has not reached stays undone when the stream stops, because what follows a failure does not run.
//! Invariant: what is named was enqueued, on the stream that failed, behind the last event that was reached.

use crate::base::Id;
use crate::schedule::plan::{Action, OpNote, Plan, StreamKind};

/// Longest text of a mark (CANN: `aclprofMarkEx` takes at most 127 bytes).
const MARK_BYTES: usize = 127;

/// How far a rank came.
pub(super) struct Progress<'a> {
    pub(super) plan: &'a Plan,
    /// Steps that were enqueued.
    pub(super) issued: usize,
    /// The stream that failed.
    pub(super) stream: StreamKind,
    /// Whether the card has reached an event.
    pub(super) is_done: &'a dyn Fn(usize) -> bool,
    /// C name of a step's operator; empty for a collective.
    pub(super) operator: &'a dyn Fn(usize) -> &'static str,
}

/// `layer 3, all_reduce of layers.3.mlp.out`, or the first and the last op between which the stream stopped. None if the
/// plan has no op there.
pub(super) fn stopped_at(progress: &Progress<'_>, failure: &str) -> Option<String> {
    let Progress { plan, issued, stream, is_done, operator } = progress;
    let own = || plan.steps.iter().take(*issued).enumerate().filter(|(_, step)| step.stream == *stream);
    // Behind a wait that was passed a stream has moved on as well, whoever recorded the event.
    let reached = |action: &Action| matches!(action, Action::Record(event) if is_done(event.index()));
    let last_reached = own().filter(|(_, step)| reached(&step.action)).map(|(index, _)| index).last();
    let first = last_reached.map_or(0, |index| index + 1);
    let next_undone = own()
        .find(|(index, step)| *index >= first && matches!(step.action, Action::Record(_)) && !reached(&step.action))
        .map_or(*issued, |(index, _)| index);
    let works = |action: &Action| matches!(action, Action::Launch(_) | Action::Exchange(_));
    let mut suspects: Vec<usize> = own()
        .filter(|(index, step)| (first..next_undone).contains(index) && works(&step.action))
        .map(|(i, _)| i)
        .collect();
    // The message of the failure often names the operator.
    let named = |index: &usize| !operator(*index).is_empty() && failure.contains(operator(*index));
    if suspects.iter().any(named) {
        suspects.retain(named);
    }
    let note = |index: usize| plan.notes.get(plan.steps[index].op);
    let (first, last) = (note(*suspects.first()?)?, note(*suspects.last()?)?);
    Some(if first == last { first.to_string() } else { format!("between {first} and {last}") })
}

/// By step: the text its stream is marked with before it, where that differs from the last one on the stream.
pub(super) fn mark_texts(plan: &Plan) -> Vec<Option<Box<str>>> {
    let mut last: [Option<&OpNote>; 2] = [None, None];
    let text = |note: &OpNote| {
        let mut text = note.to_string();
        text.truncate(text.floor_char_boundary(MARK_BYTES));
        text.into_boxed_str()
    };
    let mut mark = |index: usize| {
        let step = &plan.steps[index];
        let note = plan.notes.get(step.op)?;
        let is_work = matches!(step.action, Action::Launch(_) | Action::Exchange(_));
        let before = &mut last[step.stream as usize];
        (is_work && *before != Some(note)).then(|| {
            *before = Some(note);
            text(note)
        })
    };
    (0..plan.steps.len()).map(|index| mark(index)).collect()
}
