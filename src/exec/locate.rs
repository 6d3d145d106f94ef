//! Finds the op at which a rank stopped, from the events that the plan records, on devices and on
//! the emulator. A stopped stream runs no later step, so its later events stay incomplete.
//!
//! Invariant: the reported op was enqueued on the failed stream, after its last completed event.

use crate::base::Id;
use crate::schedule::plan::{Action, OpNote, Plan, StreamKind};

/// `aclprofMarkEx` takes at most 127 bytes.
const MARK_BYTES: usize = 127;

pub(super) struct RankProgress<'a> {
    pub(super) plan: &'a Plan,
    pub(super) issued: usize,
    /// `None` for a graph on several streams, because its events cannot be queried.
    pub(super) stream: Option<StreamKind>,
    pub(super) is_done: &'a dyn Fn(usize) -> bool,
    pub(super) operator: &'a dyn Fn(usize) -> &'static str,
}

/// Such as `layer 3, all_reduce of layers.3.mlp.out`, or a range from the first to the last
/// possible op.
pub(super) fn stopped_at(progress: &RankProgress<'_>, failure: &str) -> Option<String> {
    let RankProgress { plan, issued, stream, is_done, operator } = progress;
    let own = || {
        plan.steps
            .iter()
            .take(*issued)
            .enumerate()
            .filter(|(_, step)| stream.is_none_or(|stream| step.stream == stream))
    };
    // A completed wait also shows progress, whichever stream recorded the event.
    let reached = |action: &Action| matches!(action, Action::Record(event) if is_done(event.index()));
    let last_reached = own().filter(|(_, step)| reached(&step.action)).map(|(index, _)| index).next_back();
    let first = last_reached.map_or(0, |index| index + 1);
    let is_undone =
        |action: &Action| stream.is_some() && matches!(action, Action::Record(_)) && !reached(action);
    let next_undone = own()
        .find(|(index, step)| *index >= first && is_undone(&step.action))
        .map_or(*issued, |(index, _)| index);
    let works = |action: &Action| matches!(action, Action::Launch(_) | Action::Exchange(_));
    let mut suspects: Vec<usize> = own()
        .filter(|(index, step)| (first..next_undone).contains(index) && works(&step.action))
        .map(|(i, _)| i)
        .collect();
    // Error messages often contain the operator name.
    let named = |index: &usize| !operator(*index).is_empty() && failure.contains(operator(*index));
    if suspects.iter().any(named) {
        suspects.retain(named);
    }
    let note = |index: usize| plan.notes.get(plan.steps[index].op);
    let (first, last) = (note(*suspects.first()?)?, note(*suspects.last()?)?);
    Some(if first == last { first.to_string() } else { format!("between {first} and {last}") })
}

/// The profiler mark of each step, if it differs from the previous mark of the stream.
pub(super) fn mark_texts(plan: &Plan) -> Vec<Option<Box<str>>> {
    let mut last: [Option<&OpNote>; StreamKind::ALL.len()] = Default::default();
    let text = |note: &OpNote| {
        let mut text = note.to_string();
        let end = (0..=MARK_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.into_boxed_str()
    };
    let mark = |index: usize| {
        let step = &plan.steps[index];
        let note = plan.notes.get(step.op)?;
        let is_work = matches!(step.action, Action::Launch(_) | Action::Exchange(_));
        let before = &mut last[step.stream as usize];
        (is_work && *before != Some(note)).then(|| {
            *before = Some(note);
            text(note)
        })
    };
    (0..plan.steps.len()).map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;
    use crate::collective::parallelize;
    use crate::placement::{Mesh, Pins};
    use crate::program::{Builder, Kind};
    use crate::schedule::{Scheduling, schedule};

    fn plan() -> Plan {
        let mut build = Builder::new("lookup");
        let ids = build.input("ids", [3], DType::I64);
        let table = build.param("table", [8, 4], DType::F32);
        let x = build.op(Kind::Embed, &[ids, table]);
        let w = build.param("layers.5.w", [4, 4], DType::F32);
        let y = build.matmul("sh,oh->so", x, w);
        build.name(y, "layers.5.out");
        let z = build.op(Kind::Add, &[y, y]);
        build.output("z", z);
        let program = build.finish().unwrap();
        let pins = Pins::default().replicate("table").split_axis("layers.5.w", 1).value("layers.5.out", &[]);
        let placed = parallelize(&program, &Mesh::new(&[("tp", 2)]).unwrap(), &pins).unwrap();
        schedule(&placed.lowered, Scheduling::default()).unwrap().remove(0)
    }

    fn stopped(
        plan: &Plan,
        stream: StreamKind,
        done: &[usize],
        issued: usize,
        failure: &str,
    ) -> Option<String> {
        let is_done = |event: usize| done.contains(&event);
        let operator = |step: usize| match &plan.steps[step].action {
            Action::Launch(call) if format!("{call:?}").starts_with("Embedding") => "aclnnEmbedding",
            Action::Launch(_) => "aclnnOther",
            _ => "",
        };
        stopped_at(
            &RankProgress { plan, issued, stream: Some(stream), is_done: &is_done, operator: &operator },
            failure,
        )
    }

    /// The event after the last compute step before the collective, and the event after the
    /// collective.
    fn events(plan: &Plan) -> (usize, usize) {
        let recorded = |stream| {
            let own = plan.steps.iter().filter(move |step| step.stream == stream);
            own.filter_map(
                |step| if let Action::Record(event) = step.action { Some(event.index()) } else { None },
            )
            .next_back()
        };
        (recorded(StreamKind::Compute).unwrap(), recorded(StreamKind::Communication).unwrap())
    }

    #[test]
    fn a_collective_is_named_with_its_layer() {
        let plan = plan();
        let (before, _) = events(&plan);
        let all = plan.steps.len();
        let found = stopped(&plan, StreamKind::Communication, &[before], all, "timeout").unwrap();
        assert_eq!(found, "layer 5, all_reduce of layers.5.out");
    }

    #[test]
    fn an_operator_is_named_exactly_where_the_message_has_it() {
        let plan = plan();
        let all = plan.steps.len();
        let found = stopped(&plan, StreamKind::Compute, &[], all, "aclnnEmbedding: index 9").unwrap();
        assert!(found.starts_with("embed of "), "{found}");
        let found = stopped(&plan, StreamKind::Compute, &[], all, "vector core exception").unwrap();
        assert!(found.starts_with("between embed of ") && found.contains("layer 5, matmul of "), "{found}");
    }

    #[test]
    fn what_was_reached_or_never_enqueued_is_not_named() {
        let plan = plan();
        let (before, after) = events(&plan);
        let found =
            stopped(&plan, StreamKind::Compute, &[before, after], plan.steps.len(), "exception").unwrap();
        assert!(
            found.starts_with("between layer 5, add of ") && found.ends_with(" and output of z"),
            "{found}"
        );
        assert_eq!(stopped(&plan, StreamKind::Communication, &[], 0, "exception"), None);
        assert_eq!(
            stopped(&plan, StreamKind::Communication, &[before, after], plan.steps.len(), "exception"),
            None
        );
    }

    #[test]
    fn a_stream_is_marked_when_its_op_changes() {
        let plan = plan();
        let texts = mark_texts(&plan);
        assert_eq!(texts.len(), plan.steps.len());
        let found: Vec<&str> = texts.iter().flatten().map(AsRef::as_ref).collect();
        assert_eq!(found.iter().filter(|text| text.contains("all_reduce")).count(), 1, "{found:?}");
        assert!(
            found.iter().all(|text| text.len() <= MARK_BYTES) && found[0].starts_with("embed"),
            "{found:?}"
        );
    }
}
