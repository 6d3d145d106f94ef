//! Mutants of plans: errors of the schedule, or of one rank.

use std::collections::BTreeSet;

use ascend_tp::base::{Id, Number, Reduce};
use ascend_tp::call::{BufferId, Call, View};
use ascend_tp::schedule::Plan;
use ascend_tp::schedule::plan::{Action, Collective, CollectiveKind, Region, Step, StreamKind};

use super::{Defect, Mutant};

/// Returns all mutants, and the number excluded as equivalent by [`live`] or [`reads_only_zeros`].
pub(crate) fn mutants(plans: &[Plan]) -> (Vec<Mutant>, usize) {
    let mut found = Found { plans, mutants: Vec::new(), equivalent: 0 };
    for (rank, plan) in plans.iter().enumerate() {
        found.events(rank);
        found.order(rank);
        found.windows(rank);
        found.numbers(rank);
        found.weights(rank);
        for at in exchanges(plan) {
            found.exchange_on_one_rank(rank, at);
        }
    }
    for nth in 0..exchanges(&plans[0]).len() {
        found.exchange_on_all_ranks(nth);
    }
    (found.mutants, found.equivalent)
}

pub(crate) fn exchanges(plan: &Plan) -> Vec<usize> {
    let steps = plan.steps.iter().enumerate();
    steps.filter(|(_, step)| matches!(step.action, Action::Exchange(_))).map(|(at, _)| at).collect()
}

/// Returns which steps have results that reach an output or another rank. Other results are never
/// read, so mutants of their steps are equivalent. With uneven shards, for example, a rank without
/// heads still computes norms.
fn live(plan: &Plan) -> Vec<bool> {
    let mut read: BTreeSet<BufferId> = plan.outputs.iter().map(|tensor| tensor.buffer).collect();
    let mut live = vec![false; plan.steps.len()];
    for (at, step) in plan.steps.iter().enumerate().rev() {
        live[at] = match &step.action {
            Action::Exchange(_) => true,
            Action::Launch(_) => step.writes().iter().any(|view| read.contains(&view.buffer)),
            Action::Record(_) | Action::Wait(_) => false,
        };
        if live[at] {
            read.extend(step.reads().iter().map(|view| view.buffer));
        }
    }
    live
}

/// Returns whether a step reads only zeros, wherever `view` is in its buffer. The last write must
/// have zeroed the whole buffer, as on a rank with an empty partial sum.
fn reads_only_zeros(plan: &Plan, at: usize, view: &View) -> bool {
    let writes = |step: &Step| step.writes().iter().any(|written| written.buffer == view.buffer);
    let last = plan.steps[..at].iter().rev().find(|step| writes(step));
    let zeroed = last.is_some_and(|step| match step.call() {
        Some(Call::Zero { into }) => into.len_bytes() as u64 == plan.buffers[view.buffer].bytes.0,
        _ => false,
    });
    zeroed && !writes(&plan.steps[at])
}

pub(crate) fn remove(plan: &mut Plan, at: usize) {
    plan.steps.remove(at);
    for tap in plan.taps.iter_mut().filter(|tap| tap.after_steps > at) {
        tap.after_steps -= 1;
    }
}

struct Found<'a> {
    plans: &'a [Plan],
    mutants: Vec<Mutant>,
    equivalent: usize,
}

impl Found<'_> {
    fn add(&mut self, class: &'static str, op: usize, what: String, change: impl FnOnce(&mut Vec<Plan>)) {
        let mut plans = self.plans.to_vec();
        change(&mut plans);
        assert!(plans != self.plans, "{class}: {what} changes nothing");
        self.mutants.push(Mutant { class, what, op, how: Defect::Plans(plans) });
    }

    /// Counts a mutant as equivalent if its step is not live.
    fn is_dead(&mut self, is_live: bool) -> bool {
        self.equivalent += usize::from(!is_live);
        !is_live
    }

    fn place(&self, rank: usize, at: usize) -> String {
        let plan = &self.plans[rank];
        let note = plan.notes.get(plan.steps[at].op).map(ToString::to_string).unwrap_or_default();
        format!("rank {rank} step {at} ({note})")
    }

    fn events(&mut self, rank: usize) {
        let plan = &self.plans[rank];
        let mut records: Vec<usize> = Vec::new();
        let mut waits: Vec<usize> = Vec::new();
        for (at, step) in plan.steps.iter().enumerate() {
            // Neighbours on the same stream, which the event orders.
            let same_stream = |other: &usize| plan.steps[*other].stream == step.stream;
            let (op, place) = (step.op.index(), self.place(rank, at));
            match step.action {
                Action::Record(_) => {
                    records.push(at);
                    self.add("record deleted", op, place.clone(), |plans| remove(&mut plans[rank], at));
                    if let Some(before) = (0..at).rev().find(same_stream) {
                        self.add("record too early", op, place, |plans| {
                            plans[rank].steps[before..=at].rotate_right(1);
                        });
                    }
                }
                Action::Wait(_) => {
                    waits.push(at);
                    self.add("wait deleted", op, place.clone(), |plans| remove(&mut plans[rank], at));
                    if let Some(behind) = (at + 1..plan.steps.len()).find(same_stream) {
                        self.add("wait too late", op, place, |plans| {
                            plans[rank].steps[at..=behind].rotate_left(1);
                        });
                    }
                }
                Action::Launch(_) | Action::Exchange(_) => {}
            }
        }
        for (class, places) in [("records swapped", records), ("waits swapped", waits)] {
            for pair in places.windows(2) {
                let (first, second) = (pair[0], pair[1]);
                let what = format!("{} and step {second}", self.place(rank, first));
                self.add(class, plan.steps[first].op.index(), what, |plans| {
                    swap_actions(&mut plans[rank], first, second);
                });
            }
        }
    }

    fn order(&mut self, rank: usize) {
        let plan = &self.plans[rank];
        for pair in exchanges(plan).windows(2) {
            let (first, second) = (pair[0], pair[1]);
            let (op, what) =
                (plan.steps[first].op.index(), format!("{} and step {second}", self.place(rank, first)));
            self.add("collectives swapped on one rank", op, what.clone(), |plans| {
                swap_actions(&mut plans[rank], first, second);
                let ops = (plans[rank].steps[first].op, plans[rank].steps[second].op);
                (plans[rank].steps[first].op, plans[rank].steps[second].op) = (ops.1, ops.0);
            });
            self.add("collectives swapped with their events", op, what, |plans| {
                swap_blocks(&mut plans[rank], first, second);
            });
        }
    }

    fn exchange_on_one_rank(&mut self, rank: usize, at: usize) {
        let (op, place) = (self.plans[rank].steps[at].op.index(), self.place(rank, at));
        self.add("collective missing on one rank", op, place.clone(), |plans| remove(&mut plans[rank], at));
        self.add("collective twice on one rank", op, place.clone(), |plans| {
            let step = plans[rank].steps[at].clone();
            plans[rank].steps.insert(at, step);
        });
        self.add("collective on the wrong stream", op, place.clone(), |plans| {
            plans[rank].steps[at].stream = StreamKind::Compute;
        });
        let Action::Exchange(exchange) = &self.plans[rank].steps[at].action else { return };
        for kind in other_kinds(exchange) {
            self.add("collective differs on one rank", op, format!("{place}: {kind:?}"), |plans| {
                set_kind(&mut plans[rank], at, kind.clone());
            });
        }
        for group in self.plans[rank].groups.ids().filter(|group| *group != exchange.group) {
            self.add("collective in another group on one rank", op, format!("{place}: {group}"), |plans| {
                if let Action::Exchange(exchange) = &mut plans[rank].steps[at].action {
                    exchange.group = group;
                }
            });
        }
    }

    /// Changes the `nth` exchange of every rank. All ranks run the same collectives in the same
    /// order.
    fn exchange_on_all_ranks(&mut self, nth: usize) {
        let places: Vec<usize> = self.plans.iter().map(|plan| exchanges(plan)[nth]).collect();
        let (op, what) = (self.plans[0].steps[places[0]].op.index(), self.place(0, places[0]));
        let exchange = |rank: usize| match &self.plans[rank].steps[places[rank]].action {
            Action::Exchange(exchange) => Collective::clone(exchange),
            other => panic!("{other:?} is no exchange"),
        };
        let exchanges: Vec<Collective> = (0..self.plans.len()).map(exchange).collect();
        self.add("collective missing on all ranks", op, what.clone(), |plans| {
            plans.iter_mut().zip(&places).for_each(|(plan, at)| remove(plan, *at));
        });
        let copies: Vec<Option<Step>> = self
            .plans
            .iter()
            .zip(&exchanges)
            .zip(&places)
            .map(|((plan, exchange), at)| {
                local_copy(plan, exchange).map(|call| Step {
                    stream: StreamKind::Compute,
                    action: Action::Launch(Box::new(call)),
                    op: plan.steps[*at].op,
                })
            })
            .collect();
        // Each rank keeps its own shard, as if it were alone.
        self.add("collective replaced by a copy on all ranks", op, what.clone(), |plans| {
            for ((plan, at), copy) in plans.iter_mut().zip(&places).zip(copies) {
                match copy {
                    Some(copy) => plan.steps[*at] = copy,
                    None => remove(plan, *at),
                }
            }
        });
        let kinds: Vec<Vec<CollectiveKind>> = exchanges.iter().map(other_kinds).collect();
        for other in 0..kinds.iter().map(Vec::len).min().unwrap_or(0) {
            let class = match kinds[0][other] {
                CollectiveKind::AllReduce { .. } => "all_reduce by another reduction on all ranks",
                CollectiveKind::ReduceScatter { .. } => "reduce_scatter differs on all ranks",
                _ => "collective's counts differ on all ranks",
            };
            self.add(class, op, format!("{what}: {:?}", kinds[0][other]), |plans| {
                for ((plan, at), kinds) in plans.iter_mut().zip(&places).zip(&kinds) {
                    set_kind(plan, *at, kinds[other].clone());
                }
            });
        }
    }

    /// Moves views of buffers by one element.
    fn windows(&mut self, rank: usize) {
        let plan = &self.plans[rank];
        let live = live(plan);
        for (at, step) in plan.steps.iter().enumerate() {
            let views: Vec<View> = step.reads().into_iter().chain(step.writes()).cloned().collect();
            for (nth, view) in views.iter().enumerate().filter(|(nth, view)| !views[..*nth].contains(view)) {
                let elems =
                    usize::try_from(plan.buffers[view.buffer].bytes.0).unwrap() / view.dtype.size_bytes();
                let span = view.span();
                let is_window = view.offset > 0 || span.end < elems;
                // One rank per view is enough, because their steps are alike.
                if !is_window || view.elems() == 0 || (at + nth) % self.plans.len() != rank {
                    continue;
                }
                if self.is_dead(live[at] && !reads_only_zeros(plan, at, view)) {
                    continue;
                }
                let offset = if span.end < elems { view.offset + 1 } else { view.offset - 1 };
                let moved = View { offset, ..view.clone() };
                let what = format!("{}: {view} to {moved}", self.place(rank, at));
                self.add("slice offset shifted", step.op.index(), what, |plans| {
                    let step = &mut plans[rank].steps[at];
                    step.action = with_view(&step.action, view, &moved);
                });
            }
        }
    }

    /// Changes factors, epsilons, masks and index offsets in the calls of one rank.
    fn numbers(&mut self, rank: usize) {
        let plan = &self.plans[rank];
        let live = live(plan);
        for (at, step) in plan.steps.iter().enumerate() {
            let Action::Launch(call) = &step.action else { continue };
            let mut other = call.clone();
            let class = match &mut *other {
                Call::Muls { by: Number::Float(by), .. } => {
                    *by *= 2.0;
                    "scale on one rank"
                }
                Call::RmsNorm { epsilon, .. } => {
                    *epsilon *= 1e4;
                    "norm epsilon on one rank"
                }
                Call::Rotary { cos, sin, .. } => {
                    std::mem::swap(cos, sin);
                    "rotation on one rank"
                }
                Call::Adds { by: Number::Int(by), .. } => {
                    *by += 1;
                    "index offset on one rank"
                }
                Call::MaskedFill { value: Number::Float(value), .. } => {
                    *value = 1.0;
                    "masked value on one rank"
                }
                Call::MaskedFill { value: Number::Int(value), .. } => {
                    *value = 0;
                    "masked index on one rank"
                }
                _ => continue,
            };
            if self.is_dead(live[at]) {
                continue;
            }
            let place = self.place(rank, at);
            self.add(class, step.op.index(), place, |plans| {
                plans[rank].steps[at].action = Action::Launch(other);
            });
        }
    }

    /// Lets a rank load the neighbouring shard of a weight.
    fn weights(&mut self, rank: usize) {
        let plan = &self.plans[rank];
        let live = live(plan);
        for (nth, param) in plan.params.iter().enumerate() {
            let steps = plan.steps.iter().zip(&live);
            let is_read = steps
                .filter(|(_, live)| **live)
                .any(|(step, _)| step.reads().iter().any(|view| view.buffer == param.buffer));
            if param.ranges.iter().any(std::ops::Range::is_empty) {
                continue;
            }
            for (dim, range) in param.ranges.iter().enumerate() {
                // One rank per weight is enough.
                if (nth + dim) % self.plans.len() != rank {
                    continue;
                }
                let by: isize = match (range.start, param.shape[dim] - range.end) {
                    (0, 0) => continue,
                    (0, _) => 1,
                    _ => -1,
                };
                if self.is_dead(is_read) {
                    continue;
                }
                let moved = range.start.wrapping_add_signed(by)..range.end.wrapping_add_signed(by);
                let what =
                    format!("rank {rank} loads {} {moved:?} of dim {dim} instead of {range:?}", param.name);
                self.add("weight part shifted on one rank", 0, what, |plans| {
                    plans[rank].params[nth].ranges[dim] = moved;
                });
            }
        }
    }
}

fn swap_actions(plan: &mut Plan, first: usize, second: usize) {
    let action = plan.steps[first].action.clone();
    plan.steps[first].action = std::mem::replace(&mut plan.steps[second].action, action);
}

/// Swaps two exchanges on the communication stream, with the waits before and the records after
/// each.
fn swap_blocks(plan: &mut Plan, first: usize, second: usize) {
    let places: Vec<usize> =
        (0..plan.steps.len()).filter(|at| plan.steps[*at].stream == StreamKind::Communication).collect();
    let at = |step: usize| places.iter().position(|place| *place == step).unwrap();
    let is = |plan: &Plan, at: usize, record: bool| match plan.steps[places[at]].action {
        Action::Record(_) => record,
        Action::Wait(_) => !record,
        Action::Launch(_) | Action::Exchange(_) => false,
    };
    let (mut start, mut end) = (at(first), at(second) + 1);
    while start > 0 && is(plan, start - 1, false) {
        start -= 1;
    }
    while end < places.len() && is(plan, end, true) {
        end += 1;
    }
    let mut middle = at(first) + 1;
    while is(plan, middle, true) {
        middle += 1;
    }
    let steps: Vec<Step> = places[start..end].iter().map(|place| plan.steps[*place].clone()).collect();
    let (before, behind) = steps.split_at(middle - start);
    for (place, step) in places[start..end].iter().zip(behind.iter().chain(before)) {
        plan.steps[*place] = step.clone();
    }
}

/// Returns other reductions, and counts rotated by one rank if they differ.
fn other_kinds(exchange: &Collective) -> Vec<CollectiveKind> {
    let turned = |counts: &[usize]| {
        let mut counts = counts.to_vec();
        counts.rotate_left(1);
        counts
    };
    let reductions =
        |own: Reduce| [Reduce::Sum, Reduce::Max, Reduce::Min].into_iter().filter(move |r| *r != own);
    let mut kinds: Vec<CollectiveKind> = match &exchange.kind {
        CollectiveKind::AllReduce { reduce } => {
            reductions(*reduce).map(|reduce| CollectiveKind::AllReduce { reduce }).collect()
        }
        CollectiveKind::ReduceScatter { reduce, counts } => reductions(*reduce)
            .map(|reduce| CollectiveKind::ReduceScatter { reduce, counts: counts.clone() })
            .chain([CollectiveKind::ReduceScatter { reduce: *reduce, counts: turned(counts) }])
            .collect(),
        CollectiveKind::AllGather { counts } => vec![CollectiveKind::AllGather { counts: turned(counts) }],
        CollectiveKind::AllToAll { send_counts, recv_counts } => vec![
            CollectiveKind::AllToAll { send_counts: turned(send_counts), recv_counts: recv_counts.clone() },
            CollectiveKind::AllToAll { send_counts: send_counts.clone(), recv_counts: turned(recv_counts) },
        ],
        CollectiveKind::Reduce { reduce, root } => {
            reductions(*reduce).map(|reduce| CollectiveKind::Reduce { reduce, root: *root }).collect()
        }
        CollectiveKind::Broadcast { .. } | CollectiveKind::Send { .. } | CollectiveKind::Receive { .. } => {
            Vec::new()
        }
    };
    kinds.retain(|kind| *kind != exchange.kind);
    kinds
}

fn set_kind(plan: &mut Plan, at: usize, kind: CollectiveKind) {
    if let Action::Exchange(exchange) = &mut plan.steps[at].action {
        exchange.kind = kind;
    }
}

/// Returns the copy that a single rank would make; `None` if there is nothing to copy.
pub(crate) fn local_copy(plan: &Plan, exchange: &Collective) -> Option<Call> {
    let at = plan.groups[exchange.group].iter().position(|rank| *rank == plan.rank)?;
    let flat = |view: &View, offset: usize, len: usize| View {
        offset: view.offset + offset,
        ..View::contiguous(view.buffer, view.dtype, [len].into())
    };
    let (send, recv) = (&exchange.send, &exchange.recv);
    let before = |counts: &[usize]| counts[..at].iter().sum::<usize>();
    let (from, into) = match &exchange.kind {
        CollectiveKind::AllReduce { .. } => (flat(send, 0, send.elems()), flat(recv, 0, recv.elems())),
        CollectiveKind::AllGather { counts } => {
            (flat(send, 0, counts[at]), flat(recv, before(counts), counts[at]))
        }
        CollectiveKind::ReduceScatter { counts, .. } => {
            (flat(send, before(counts), counts[at]), flat(recv, 0, counts[at]))
        }
        CollectiveKind::AllToAll { send_counts, recv_counts } => (
            flat(send, before(send_counts), send_counts[at]),
            flat(recv, before(recv_counts), recv_counts[at]),
        ),
        // A server reduces its own shard only. A broadcast result is already in place.
        CollectiveKind::Reduce { .. } => (flat(send, 0, send.elems()), flat(recv, 0, recv.elems())),
        CollectiveKind::Broadcast { .. } | CollectiveKind::Send { .. } | CollectiveKind::Receive { .. } => {
            return None;
        }
    };
    (from.elems() > 0 && plan.buffers[into.buffer].region != Region::Weights)
        .then_some(Call::Copy { from, into })
}

fn with_view(action: &Action, view: &View, moved: &View) -> Action {
    match action {
        Action::Launch(call) => {
            let marks = ["<->", "->", "="];
            let replaced = |token: &str| {
                let mark = marks.iter().find(|mark| token.contains(**mark))?;
                let (name, value) = token.split_once(mark)?;
                (value == view.to_string()).then(|| format!("{name}{mark}{moved}"))
            };
            let text = call.to_string();
            let tokens = text.split(' ').map(|token| replaced(token).unwrap_or_else(|| token.to_owned()));
            Action::Launch(Box::new(Call::parse(&tokens.collect::<Vec<_>>().join(" ")).unwrap()))
        }
        Action::Exchange(exchange) => {
            let other = |of: &View| if of == view { moved.clone() } else { of.clone() };
            let mut changed = exchange.clone();
            (changed.send, changed.recv) = (other(&exchange.send), other(&exchange.recv));
            Action::Exchange(changed)
        }
        event => event.clone(),
    }
}
