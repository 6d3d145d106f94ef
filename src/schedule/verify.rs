//! Checks of plans before anything runs:
//! - Every view and tensor is inside its buffer, and every buffer inside its region. Arena buffers
//!   that live at the same time do not overlap.
//! - The ranks together have each element of a tensor, or no element. Each tap shows written data.
//! - Each event is recorded once, before any wait. Events order conflicting accesses of two
//!   streams, and operators against calls that multiply and exchange.
//! - Data is written before it is read.
//! - Calls run on the compute stream, exchanges on other streams, each group on one stream. Counts
//!   fit the tensors.
//! - All ranks of a group run the same collectives in the same order. Each send has a receive with
//!   the same size and op. Ranks do not wait in a circle.
//!
//! This module shares no code with the passes that it checks.

mod memory;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use rayon::prelude::*;
use smallvec::SmallVec;

use crate::base::{DType, Diagnostic, Diagnostics, Id, IdVec, Reduce};
use crate::call::{Call, View};
use crate::program::OpId;

use self::memory::{bytes_of, elements, memory, tensors_are_whole};
use super::plan::{Action, Collective, CollectiveKind, GroupId, Plan, Region, Slot, Step, StreamKind, Tap};

/// Checks the plans of all ranks together.
///
/// # Errors
/// Every problem, rank by rank.
pub fn verify(plans: &[Plan]) -> Result<(), Diagnostics> {
    let of_rank = |(rank, plan): (usize, &Plan)| {
        let mut problems = Diagnostics::new();
        if (plan.rank, plan.world) != (rank, plans.len()) {
            let found = format!("rank {} of {}", plan.rank, plan.world);
            let problem = Diagnostic::new(format!("plan {rank}"), "plans are in rank order");
            problems.push(problem.expected(format!("rank {rank} of {}", plans.len())).found(found));
        }
        if !groups_are_sound(&plan.groups, plan.world) || plan.groups != plans[0].groups {
            problems.push(Diagnostic::new(
                format!("rank {rank}"),
                "groups differ between ranks or are malformed",
            ));
        }
        memory(plan, &mut problems);
        streams(plan, &mut problems);
        counts(plan, &mut problems);
        problems
    };
    let found: Vec<Diagnostics> = plans.par_iter().enumerate().map(of_rank).collect();
    let mut problems = Diagnostics::new();
    found.into_iter().for_each(|of_rank| problems.append(of_rank));
    tensors_are_whole(plans, &mut problems);
    if problems.is_empty() {
        collectives(plans, &mut problems);
    }
    problems.into_result(())
}

fn place(plan: &Plan, index: usize) -> String {
    let step = &plan.steps[index];
    let note = plan.notes.get(step.op).map(|note| format!(" ({note})")).unwrap_or_default();
    format!("rank {} step {index}{note}", plan.rank)
}

fn groups_are_sound(groups: &IdVec<GroupId, Vec<usize>>, world: usize) -> bool {
    let all = groups.values();
    let ascends = |ranks: &Vec<usize>| ranks.windows(2).all(|pair| pair[0] < pair[1]);
    let is_known = |at: usize| all[..at].contains(&all[at]);
    all.iter().enumerate().all(|(at, ranks)| {
        !ranks.is_empty() && ranks.iter().all(|rank| *rank < world) && ascends(ranks) && !is_known(at)
    })
}

const STREAMS: usize = StreamKind::ALL.len();

/// Steps of each stream that have surely happened when a step begins.
type VectorClock = [usize; STREAMS];

fn clocks(plan: &Plan, problems: &mut Diagnostics) -> Vec<VectorClock> {
    let mut now = [VectorClock::default(); STREAMS];
    let mut recorded: Vec<Option<VectorClock>> = vec![None; plan.events];
    let mut clocks = Vec::with_capacity(plan.steps.len());
    for (index, step) in plan.steps.iter().enumerate() {
        let stream = step.stream as usize;
        match step.action {
            Action::Wait(event) => match recorded.get(event.index()).copied().flatten() {
                Some(clock) => {
                    now[stream] = std::array::from_fn(|other| now[stream][other].max(clock[other]));
                }
                None => {
                    problems.push(Diagnostic::new(
                        place(plan, index),
                        format!("waits for {event} before its record"),
                    ));
                }
            },
            Action::Record(event) => match recorded.get_mut(event.index()) {
                Some(slot @ None) => *slot = Some(now[stream]),
                _ => {
                    problems.push(Diagnostic::new(
                        place(plan, index),
                        format!("{event} is recorded twice or unknown"),
                    ));
                }
            },
            Action::Launch(_) | Action::Exchange(_) => {}
        }
        clocks.push(now[stream]);
        now[stream][stream] += 1;
    }
    clocks
}

/// Accessed bytes; true for a write.
type Touches = SmallVec<[((Region, Range<u64>), bool); 6]>;

fn streams(plan: &Plan, problems: &mut Diagnostics) {
    let clocks = clocks(plan, problems);
    let mut next = VectorClock::default();
    let numbers: Vec<usize> = plan
        .steps
        .iter()
        .map(|step| {
            next[step.stream as usize] += 1;
            next[step.stream as usize] - 1
        })
        .collect();
    for (index, step) in plan.steps.iter().enumerate() {
        let right = match step.action {
            Action::Launch(_) => step.stream == StreamKind::Compute,
            Action::Exchange(_) => step.stream != StreamKind::Compute,
            Action::Record(_) | Action::Wait(_) => true,
        };
        if !right {
            problems.push(Diagnostic::new(place(plan, index), "is on the wrong stream"));
        }
    }
    let spans = |step: &Step| -> Touches {
        let reads = step.reads().into_iter().map(|view| (bytes_of(plan, view), false));
        reads.chain(step.writes().into_iter().map(|view| (bytes_of(plan, view), true))).collect()
    };
    let all: Vec<_> = plan.steps.iter().map(spans).collect();
    let on = |stream| {
        let touches = |(index, step): &(usize, &Step)| step.stream == stream && !all[*index].is_empty();
        plan.steps.iter().enumerate().filter(touches).map(|(index, _)| index).collect::<Vec<usize>>()
    };
    let steps = StreamKind::ALL.map(on);
    for (one, other) in (0..STREAMS).flat_map(|one| (0..one).map(move |other| (one, other))) {
        unordered(
            plan,
            [one, other].map(|stream| steps[stream].as_slice()),
            &clocks,
            &numbers,
            &all,
            problems,
        );
    }
    written_before_read(plan, problems);
}

fn unordered(
    plan: &Plan,
    [own, others]: [&[usize]; 2],
    clocks: &[VectorClock],
    numbers: &[usize],
    all: &[Touches],
    problems: &mut Diagnostics,
) {
    for step in own.iter().copied() {
        // Clocks only grow along a stream, so unordered steps are adjacent to this step.
        let (before, after) = others.split_at(others.partition_point(|index| *index < step));
        let stream = |index: usize| plan.steps[index].stream as usize;
        let is_before = |other: &&usize| clocks[step][stream(**other)] > numbers[**other];
        let is_after = |other: &&usize| clocks[**other][stream(step)] > numbers[step];
        let before = before.iter().rev().take_while(|other| !is_before(other));
        for other in before.chain(after.iter().take_while(|other| !is_after(other))).copied() {
            let (first, second) = (step.min(other), step.max(other));
            let conflict = all[first].iter().any(|((region, range), writes)| {
                all[second].iter().any(|((other_region, other), other_writes)| {
                    region == other_region
                        && range.start < other.end
                        && other.start < range.end
                        && (*writes || *other_writes)
                })
            });
            let problem = if conflict {
                "touches the same bytes as a step of another stream"
            } else if of_the_cores(&plan.steps[first], &plan.steps[second]) {
                "needs cores that a step of another stream uses"
            } else {
                continue;
            };
            problems.push(
                Diagnostic::new(place(plan, second), problem)
                    .expected("an event between them")
                    .found(format!("none after {}", place(plan, first))),
            );
        }
    }
}

/// Both steps compute, one of them in an exchange that other cards wait for.
fn of_the_cores(one: &Step, other: &Step) -> bool {
    let exchanges_too = |step: &Step| step.call().is_some() && matches!(step.action, Action::Exchange(_));
    one.call().is_some() && other.call().is_some() && (exchanges_too(one) || exchanges_too(other))
}

fn written_before_read(plan: &Plan, problems: &mut Diagnostics) {
    // Written byte ranges of each buffer, in order and disjoint.
    let given = |slot: &Slot| !matches!(slot.region, Region::Arena | Region::Outputs);
    let whole = |slot: &Slot| 0..slot.bytes.0 as usize;
    let mut written: Vec<SmallVec<[Range<usize>; 1]>> = plan
        .buffers
        .values()
        .iter()
        .map(|slot| given(slot).then(|| whole(slot)).into_iter().collect())
        .collect();
    let bytes = |view: &View| {
        let (span, size) = (elements(view), view.dtype.size_bytes());
        span.start * size..span.end * size
    };
    let has = |written: &[Range<usize>], wanted: &Range<usize>| {
        written.iter().any(|range| range.start <= wanted.start && wanted.end <= range.end)
    };
    let mut taps: Vec<&Tap> = plan.taps.iter().filter(|tap| !elements(&tap.view).is_empty()).collect();
    taps.sort_by_key(|tap| tap.after_steps);
    let mut taps = taps.into_iter().peekable();
    let mut shown = |after: usize, written: &[SmallVec<[Range<usize>; 1]>], problems: &mut Diagnostics| {
        while let Some(tap) = taps.next_if(|tap| tap.after_steps <= after) {
            if written.get(tap.view.buffer.index()).is_none_or(|written| !has(written, &bytes(&tap.view))) {
                let problem = Diagnostic::new(
                    format!("rank {}, tap of {}", plan.rank, tap.value),
                    "shows what nothing wrote",
                );
                problems.push(problem.found(format!("{} after {} steps", tap.view, tap.after_steps)));
            }
        }
    };
    for (index, step) in plan.steps.iter().enumerate() {
        shown(index, &written, problems);
        for view in step.reads() {
            if view.elems() > 0 && !has(&written[view.buffer.index()], &bytes(view)) {
                problems
                    .push(Diagnostic::new(place(plan, index), format!("reads {view}, which nothing wrote")));
            }
        }
        for view in step.writes().into_iter().filter(|view| view.elems() > 0) {
            let (known, new) = (&mut written[view.buffer.index()], bytes(view));
            let touched = known.partition_point(|range| range.end < new.start)
                ..known.partition_point(|range| range.start <= new.end);
            let joined = known[touched.clone()]
                .iter()
                .fold(new, |all, range| all.start.min(range.start)..all.end.max(range.end));
            known.drain(touched.clone());
            known.insert(touched.start, joined);
        }
    }
    shown(usize::MAX, &written, problems);
    for tensor in &plan.outputs {
        let elems: usize = tensor.ranges.iter().map(Range::len).product();
        let wanted = 0..elems * tensor.dtype.size_bytes();
        if elems > 0 && !has(&written[tensor.buffer.index()], &wanted) {
            problems.push(Diagnostic::new(
                format!("rank {}", plan.rank),
                format!("output \"{}\" is never written", tensor.name),
            ));
        }
    }
}

fn counts(plan: &Plan, problems: &mut Diagnostics) {
    let mut stream_of: BTreeMap<GroupId, StreamKind> = BTreeMap::new();
    for (index, step) in plan.steps.iter().enumerate() {
        let Action::Exchange(exchange) = &step.action else { continue };
        let known = *stream_of.entry(exchange.group).or_insert(step.stream);
        if known != step.stream {
            let problem = Diagnostic::new(place(plan, index), "a communicator is used on two streams");
            problems.push(problem.expected(known.name()).found(step.stream.name()));
        }
        let (send, recv) = (exchange.send.elems(), exchange.recv.elems());
        let Some(ranks) = plan.groups.get(exchange.group) else {
            problems
                .push(Diagnostic::new(place(plan, index), format!("there is no group {}", exchange.group)));
            continue;
        };
        let Some(position) = ranks.iter().position(|rank| *rank == plan.rank) else {
            problems.push(Diagnostic::new(place(plan, index), format!("the rank is not of group {ranks:?}")));
            continue;
        };
        if let CollectiveKind::AllReduce { reduce: Reduce::Tree }
        | CollectiveKind::ReduceScatter { reduce: Reduce::Tree, .. }
        | CollectiveKind::Reduce { reduce: Reduce::Tree, .. } = exchange.kind
        {
            problems.push(Diagnostic::new(place(plan, index), "no collective of a card sums as a tree"));
        }
        let own = |counts: &[usize]| counts.get(position).copied().filter(|_| counts.len() == ranks.len());
        let fits = match &exchange.kind {
            CollectiveKind::AllReduce { .. } => send == recv,
            CollectiveKind::AllGather { counts } => {
                own(counts) == Some(send) && counts.iter().sum::<usize>() == recv
            }
            CollectiveKind::ReduceScatter { counts, .. } => {
                own(counts) == Some(recv) && counts.iter().sum::<usize>() == send
            }
            CollectiveKind::AllToAll { send_counts, recv_counts } => {
                let sums = (send_counts.iter().sum::<usize>(), recv_counts.iter().sum::<usize>());
                own(send_counts).is_some() && own(send_counts) == own(recv_counts) && sums == (send, recv)
            }
            CollectiveKind::Reduce { root, .. } => send == recv && *root < ranks.len(),
            CollectiveKind::Broadcast { root } => exchange.send == exchange.recv && *root < ranks.len(),
            CollectiveKind::Send { to: peer } => {
                send > 0 && recv == 0 && *peer < ranks.len() && *peer != position
            }
            CollectiveKind::Receive { from: peer } => {
                send == 0 && recv > 0 && *peer < ranks.len() && *peer != position
            }
        };
        if let Some(call) = &exchange.product
            && !is_joined(exchange, call, ranks.len())
        {
            problems
                .push(Diagnostic::new(place(plan, index), format!("is not a call of the exchange: {call}")));
        }
        let dense = exchange.send.is_contiguous() && exchange.recv.is_contiguous();
        if !fits || !dense || exchange.send.dtype != exchange.recv.dtype {
            let what = format!("{} from {} to {}", exchange.kind.name(), exchange.send, exchange.recv);
            problems.push(Diagnostic::new(
                place(plan, index),
                format!("counts, density or types do not fit: {what}"),
            ));
        }
    }
}

/// The fused call matches its exchange and is supported by a card.
fn is_joined(exchange: &Collective, call: &Call, cards: usize) -> bool {
    let same = |one: &View, other: &View| {
        let of = |view: &View| (view.buffer, view.offset, view.elems(), view.dtype);
        of(one) == of(other) && one.is_contiguous()
    };
    let equal = |counts: &[usize]| counts.iter().all(|count| *count == counts[0]);
    // Elements of the product of rows `a` and columns `b`.
    let product = |a: &View, b: &View| match (a.shape.sizes(), b.shape.sizes()) {
        ([m, k], [rows, n]) if k == rows => Some(m * n),
        _ => None,
    };
    let Collective { kind, send, recv, .. } = exchange;
    let fits = match (kind, call) {
        (CollectiveKind::AllReduce { reduce: Reduce::Sum }, Call::MatmulAllReduce { a, b, out }) => {
            same(out, recv) && product(a, b) == Some(send.elems())
        }
        (CollectiveKind::AllGather { counts }, Call::AllGatherMatmul { a, b, out, gathered }) => {
            same(a, send)
                && same(gathered, recv)
                && equal(counts)
                && product(gathered, b) == Some(out.elems())
        }
        (
            CollectiveKind::ReduceScatter { reduce: Reduce::Sum, counts },
            Call::MatmulReduceScatter { a, b, out },
        ) => same(out, recv) && equal(counts) && product(a, b) == Some(send.elems()),
        _ => false,
    };
    let views = || call.reads().into_iter().chain(call.writes());
    fits && matches!(cards, 2 | 4 | 8)
        && matches!(send.dtype, DType::F16 | DType::BF16)
        && views().all(|view| view.dtype == send.dtype && view.elems() > 0)
}

#[derive(PartialEq, Debug)]
struct ExchangeSignature {
    group: GroupId,
    op: OpId,
    name: &'static str,
    dtype: DType,
    reduce: Option<Reduce>,
    counts: Vec<usize>,
}

fn collectives(plans: &[Plan], problems: &mut Diagnostics) {
    let of = |plan: &Plan| -> Vec<(usize, ExchangeSignature)> {
        let signature = |(index, step): (usize, &Step)| {
            let Action::Exchange(exchange) = &step.action else { return None };
            let (reduce, counts) = match &exchange.kind {
                CollectiveKind::Send { .. } | CollectiveKind::Receive { .. } => return None,
                CollectiveKind::AllReduce { reduce } => (Some(*reduce), vec![exchange.send.elems()]),
                CollectiveKind::AllGather { counts } => (None, counts.clone()),
                CollectiveKind::ReduceScatter { reduce, counts } => (Some(*reduce), counts.clone()),
                CollectiveKind::AllToAll { .. } => (None, Vec::new()),
                CollectiveKind::Reduce { reduce, root } => {
                    (Some(*reduce), vec![exchange.send.elems(), *root])
                }
                CollectiveKind::Broadcast { root } => (None, vec![exchange.send.elems(), *root]),
            };
            let (group, name, dtype) = (exchange.group, exchange.name(), exchange.send.dtype);
            Some((index, ExchangeSignature { group, op: step.op, name, dtype, reduce, counts }))
        };
        plan.steps.iter().enumerate().filter_map(signature).collect()
    };
    let all: Vec<Vec<(usize, ExchangeSignature)>> = plans.iter().map(of).collect();
    for (group, ranks) in plans.first().map(|plan| &plan.groups).into_iter().flat_map(|groups| groups.iter())
    {
        let of_group =
            |rank: usize| all[rank].iter().filter(move |(_, s)| s.group == group).collect::<Vec<_>>();
        let first = of_group(ranks[0]);
        for rank in &ranks[1..] {
            let other = of_group(*rank);
            if first.len() != other.len() {
                let problem =
                    Diagnostic::new(format!("group {ranks:?}"), "ranks run different numbers of collectives");
                let expected = format!("{} as on rank {}", first.len(), ranks[0]);
                problems.push(problem.expected(expected).found(format!("{} on rank {rank}", other.len())));
            }
            for ((at, a), (other_at, b)) in first.iter().zip(&other) {
                if a != b {
                    problems.push(
                        Diagnostic::new(
                            place(&plans[*rank], *other_at),
                            "the collective differs between ranks",
                        )
                        .expected(format!("{a:?} of {}", place(&plans[ranks[0]], *at)))
                        .found(format!("{b:?}")),
                    );
                }
            }
        }
    }
    blocks_match(plans, problems);
    sends_match(plans, problems);
    let met: Vec<Vec<AwaitedRanks>> = plans.iter().map(meetings).collect();
    if problems.is_empty() {
        all_end(plans, &met, problems);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AwaitedRanks {
    /// Every rank of the group.
    All(GroupId),
    Receiver(GroupId, usize),
    Sender(GroupId, usize),
}

impl fmt::Display for AwaitedRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(group) => write!(f, "{group}"),
            Self::Receiver(group, rank) => write!(f, "a send to rank {rank} of {group}"),
            Self::Sender(group, rank) => write!(f, "a receive from rank {rank} of {group}"),
        }
    }
}

fn meetings(plan: &Plan) -> Vec<AwaitedRanks> {
    let meeting = |step: &Step| {
        let Action::Exchange(exchange) = &step.action else { return None };
        let group = exchange.group;
        let rank = |at: usize| plan.groups[group].get(at).copied().unwrap_or(usize::MAX);
        Some(match exchange.kind {
            CollectiveKind::Send { to } => AwaitedRanks::Receiver(group, rank(to)),
            CollectiveKind::Receive { from } => AwaitedRanks::Sender(group, rank(from)),
            _ => AwaitedRanks::All(group),
        })
    };
    plan.steps.iter().filter_map(meeting).collect()
}

/// A collective completes when all ranks of the group have reached it, a transfer when both ranks
/// have. A rank that cannot finish is a problem.
fn all_end(plans: &[Plan], met: &[Vec<AwaitedRanks>], problems: &mut Diagnostics) {
    let Some(first) = plans.first() else { return };
    let mut next = vec![0; plans.len()];
    let mut moved = true;
    while moved {
        moved = false;
        for rank in 0..plans.len() {
            let is_at = |other: usize, meeting| met[other].get(next[other]) == Some(&meeting);
            let pair;
            let ranks: &[usize] = match met[rank].get(next[rank]).copied() {
                Some(AwaitedRanks::All(group))
                    if first.groups[group].iter().all(|other| is_at(*other, AwaitedRanks::All(group))) =>
                {
                    &first.groups[group]
                }
                Some(AwaitedRanks::Receiver(group, to))
                    if to < met.len() && is_at(to, AwaitedRanks::Sender(group, rank)) =>
                {
                    pair = [rank, to];
                    &pair
                }
                _ => continue,
            };
            ranks.iter().for_each(|rank| next[*rank] += 1);
            moved = true;
        }
    }
    for (rank, at) in next.iter().enumerate() {
        if let Some(meeting) = met[rank].get(*at) {
            let problem =
                Diagnostic::new(format!("rank {rank}, collective {at}"), "waits for ranks that wait for it");
            problems.push(problem.expected("one order of groups on all ranks").found(meeting));
        }
    }
}

/// Sends between two ranks match the receives in op, type and size, in order.
fn sends_match(plans: &[Plan], problems: &mut Diagnostics) {
    type Sides = [Vec<(OpId, DType, usize)>; 2];
    let mut pairs: BTreeMap<(GroupId, usize, usize), Sides> = BTreeMap::new();
    for plan in plans {
        for step in &plan.steps {
            let Action::Exchange(exchange) = &step.action else { continue };
            let rank = |at: usize| plan.groups[exchange.group].get(at).copied().unwrap_or(usize::MAX);
            let (from, to, side, view) = match exchange.kind {
                CollectiveKind::Send { to } => (plan.rank, rank(to), 0, &exchange.send),
                CollectiveKind::Receive { from } => (rank(from), plan.rank, 1, &exchange.recv),
                _ => continue,
            };
            pairs.entry((exchange.group, from, to)).or_default()[side].push((
                step.op,
                view.dtype,
                view.elems(),
            ));
        }
    }
    for ((group, from, to), [sent, received]) in pairs {
        if sent == received {
            continue;
        }
        let at = sent.iter().zip(&received).take_while(|(sent, received)| sent == received).count();
        let what = |side: &[(OpId, DType, usize)]| match side.get(at) {
            Some((op, dtype, elems)) => {
                let note = plans
                    .get(from)
                    .and_then(|plan| plan.notes.get(*op))
                    .map_or_else(String::new, ToString::to_string);
                format!("{elems} {dtype} of {op} {note}")
            }
            None => "nothing more".to_owned(),
        };
        let place = format!("{group}, transfer {at} from rank {from} to rank {to}");
        let problem = Diagnostic::new(place, "sends and receives do not match");
        problems.push(problem.expected(what(&received)).found(what(&sent)));
    }
}

/// `all_to_all` counts match between sender and receiver.
fn blocks_match(plans: &[Plan], problems: &mut Diagnostics) {
    let blocks = |plan: &Plan| -> Vec<(GroupId, Vec<usize>, Vec<usize>)> {
        let block = |step: &Step| match &step.action {
            Action::Exchange(exchange) => match &exchange.kind {
                CollectiveKind::AllToAll { send_counts, recv_counts } => {
                    Some((exchange.group, send_counts.clone(), recv_counts.clone()))
                }
                _ => None,
            },
            _ => None,
        };
        plan.steps.iter().filter_map(block).collect()
    };
    let all: Vec<_> = plans.iter().map(blocks).collect();
    for (group, ranks) in plans.first().map(|plan| &plan.groups).into_iter().flat_map(|groups| groups.iter())
    {
        let of =
            |rank: usize| all[rank].iter().filter(move |(found, _, _)| *found == group).collect::<Vec<_>>();
        for (from, sender) in ranks.iter().enumerate() {
            for (to, receiver) in ranks.iter().enumerate() {
                for (nth, ((_, sent, _), (_, _, got))) in
                    of(*sender).into_iter().zip(of(*receiver)).enumerate()
                {
                    if sent[to] != got[from] {
                        let problem = Diagnostic::new(
                            format!("group {ranks:?}, all_to_all {nth}"),
                            format!("rank {sender} sends rank {receiver} another count than expected"),
                        );
                        problems.push(problem.expected(got[from]).found(sent[to]));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;
    use crate::collective::parallelize;
    use crate::placement::{Mesh, Pins};
    use crate::program::{Builder, Kind};
    use crate::schedule::{Scheduling, schedule};

    fn plans() -> Vec<Plan> {
        let mut build = Builder::new("sums");
        let x = build.input("x", [4, 3], DType::F32);
        let y = build.input("y", [4, 3], DType::F32);
        let of_pairs = build.op(Kind::ReduceSum { dim: 0 }, &[x]);
        let of_all = build.op(Kind::ReduceSum { dim: 0 }, &[y]);
        build.output("pairs", of_pairs);
        build.output("all", of_all);
        let mesh = Mesh::new(&[("a", 2), ("b", 2)]).unwrap();
        let pins = Pins::default().value("x", &[(0, "b")]).value("y", &[(0, "a"), (0, "b")]);
        schedule(&parallelize(&build.finish().unwrap(), &mesh, &pins).unwrap().lowered, Scheduling::default())
            .unwrap()
    }

    #[test]
    fn groups_in_another_order_on_one_rank_are_a_circle() {
        let plans = plans();
        let mut order: Vec<Vec<AwaitedRanks>> = plans.iter().map(meetings).collect();
        assert!(order.iter().all(|groups| groups.len() == 2 && groups[0] != groups[1]));
        let mut problems = Diagnostics::new();
        all_end(&plans, &order, &mut problems);
        assert!(problems.is_empty());
        order[1].reverse();
        all_end(&plans, &order, &mut problems);
        let found = problems.to_string();
        assert!(found.contains("rank 0, collective 0: waits for ranks that wait for it"), "{found}");
    }

    #[test]
    fn two_ranks_that_both_send_first_wait_for_each_other() {
        let plans = plans();
        let group = plans[0].groups.ids().find(|group| plans[0].groups[*group] == [0, 1]).unwrap();
        let [with_0, with_1] =
            [0, 1].map(|other| [AwaitedRanks::Receiver(group, other), AwaitedRanks::Sender(group, other)]);
        let said = |first: Vec<AwaitedRanks>, second: Vec<AwaitedRanks>| {
            let mut problems = Diagnostics::new();
            all_end(&plans, &[first, second, vec![], vec![]], &mut problems);
            problems.to_string()
        };
        assert_eq!(said(with_1.to_vec(), vec![with_0[1], with_0[0]]), "");
        let found = said(with_1.to_vec(), with_0.to_vec());
        assert!(found.contains("rank 1, collective 0") && found.contains("a send to rank 0 of"), "{found}");
        let found = said(vec![with_1[0], AwaitedRanks::All(group)], vec![with_0[1], with_0[0]]);
        assert!(found.contains("rank 0, collective 1"), "{found}");
    }

    #[test]
    fn all_problems_of_all_ranks_are_reported_at_once() {
        let mut plans = plans();
        for plan in &mut plans[1..3] {
            plan.steps.retain(|step| !matches!(step.action, Action::Record(_)));
        }
        let found = verify(&plans).unwrap_err().to_string();
        assert!(found.contains("rank 1 step") && found.contains("rank 2 step"), "{found}");
        assert!(found.contains("before its record"), "{found}");
    }
}
