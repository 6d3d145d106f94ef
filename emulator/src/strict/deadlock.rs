//! Deadlocks: cycles of waits, and ranks that never arrive.
//!
//! Each report ends at least one wait with a failure, so the program continues.
//!
//! Invariant: every held stream is at an entry whose condition is not satisfied.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::base::report::{Report, ReportKind};
use crate::base::site::CallSite;
use crate::hccl::matching::RankPlace;
use crate::runtime::signal::SignalAction;
use crate::runtime::stream::{StreamEntry, WaitReason};
use crate::scheduler::turnstile::{Stand, Turnstile, TurnstileThread, TurnstileView};
use crate::scheduler::wait::Wait;
use crate::scheduler::watch;
use crate::state::MachineState;

/// Threads per card in a report.
const NAMED: usize = 4;

pub(crate) fn resolve(state: &mut MachineState, view: &TurnstileView, turnstile: &Turnstile) {
    if !state.hccl.communicators.moving.is_empty() {
        // A running transfer will complete or fail.
        return;
    }
    if let Some(cycle) = (WaitGraph { state, view }).cycle() {
        break_cycle(state, view, &cycle);
    } else if let Some(matching) = state.hccl.matchings.first_without_all_calls() {
        report_absent(state, view, matching);
    } else if let Some(stream) = first_waiting(state) {
        report_waiting(state, view, turnstile, stream);
    } else {
        end_blocked(state, view, turnstile);
    }
}

pub(crate) fn report_not_gathered(state: &mut MachineState, view: &TurnstileView, root: u64) {
    let Some((world, absent)) = state.hccl.communicators.absent_from(root) else { return };
    let mut text = ReportText::default();
    let _ =
        write!(text.what, "a communicator of {world} ranks is being built: {} come", ranks_have_not(&absent));
    for host in &view.hosts {
        if let Stand::Blocked { wait: Wait::Rendezvous { root: of, rank }, site, .. } = &host.stand
            && *of == root
        {
            let cited = text.cite(site.as_ref());
            let _ = write!(text.what, "; rank {rank} waits at {cited}");
        }
    }
    let unused: BTreeSet<&str> =
        view.hosts.iter().filter(|host| is_elsewhere(host)).map(|h| &*h.label).collect();
    for label in unused.into_iter().take(NAMED) {
        let host = view.hosts.iter().find(|host| &*host.label == label);
        let _ = write!(text.what, "; {}", host.map(describe).unwrap_or_default());
    }
    let report = text.report(ReportKind::RankAbsent);
    state.condemn(code::HCCL_TIMEOUT, report, &[]);
}

/// Returns "rank 2 has not" or "ranks [1, 2] have not".
fn ranks_have_not(ranks: &[u32]) -> String {
    match ranks {
        [one] => format!("rank {one} has not"),
        more => format!("ranks {more:?} have not"),
    }
}

fn is_elsewhere(host: &TurnstileThread) -> bool {
    matches!(host.stand, Stand::Away { .. })
}

fn describe(host: &TurnstileThread) -> String {
    let label = &host.label;
    match &host.stand {
        Stand::Blocked { .. } | Stand::Parked { .. } => {
            format!("thread {label} is in {}", host.last_call.unwrap_or("a call"))
        }
        Stand::Idle => format!("thread {label} has nothing to do"),
        Stand::Away { .. } => {
            let doing = watch::look(host.tid).doing.text();
            let after = host.last_call.map(|call| format!(" after {call}")).unwrap_or_default();
            format!("thread {label} {doing}{after}")
        }
    }
}

#[derive(Default)]
struct ReportText {
    what: String,
    sites: Vec<Arc<CallSite>>,
}

impl ReportText {
    fn cite(&mut self, site: Option<&Arc<CallSite>>) -> String {
        let Some(site) = site else { return "a call".into() };
        let place = self.sites.iter().position(|known| known == site).unwrap_or_else(|| {
            self.sites.push(Arc::clone(site));
            self.sites.len() - 1
        });
        format!("[{}]", place + 1)
    }

    fn report(self, kind: ReportKind) -> Report {
        Report::new(kind, self.what, self.sites)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WaitNode {
    Stream(u64),
    Host(usize),
}

/// Why one node waits for another.
#[derive(Debug, Clone)]
enum WaitEdge {
    /// The record is enqueued on the other stream.
    Record,
    /// `site` enqueued the record on the other stream.
    Notify { notify: u64, site: Option<Arc<CallSite>> },
    /// `site` enqueued the record on the other stream.
    Signal { event: u64, site: Option<Arc<CallSite>> },
    /// The rank's call is enqueued on the other stream.
    LaterCall { place: String, rank: u32, site: Option<Arc<CallSite>> },
    /// The thread has not made the rank's call.
    NoCall { place: String, rank: u32 },
    /// The thread runs the function.
    Function,
    /// The end of all work on the stream.
    Work,
}

/// One node waits for another.
struct WaitStep {
    from: WaitNode,
    reason: WaitEdge,
    to: WaitNode,
}

struct WaitGraph<'a> {
    state: &'a MachineState,
    view: &'a TurnstileView,
}

impl WaitGraph<'_> {
    fn nodes(&self) -> impl Iterator<Item = WaitNode> {
        let streams = self.state.runtime.streams.iter().filter(|(_, stream)| stream.waits_for.is_some());
        let is_blocked = |(_, host): &(usize, &TurnstileThread)| matches!(host.stand, Stand::Blocked { .. });
        let hosts = self.view.hosts.iter().enumerate().filter(is_blocked);
        streams.map(|(id, _)| WaitNode::Stream(*id)).chain(hosts.map(|(place, _)| WaitNode::Host(place)))
    }

    /// The cycle starts at its first node in the order of [`WaitGraph::nodes`].
    fn cycle(&self) -> Option<Vec<WaitStep>> {
        let mut done = BTreeSet::new();
        self.nodes().find_map(|node| self.search(node, &mut Vec::new(), &mut done))
    }

    fn search(
        &self,
        node: WaitNode,
        path: &mut Vec<WaitStep>,
        done: &mut BTreeSet<WaitNode>,
    ) -> Option<Vec<WaitStep>> {
        if let Some(start) = path.iter().position(|step| step.from == node) {
            return Some(path.split_off(start));
        }
        if done.contains(&node) {
            return None;
        }
        for (reason, to) in self.edges(node) {
            path.push(WaitStep { from: node, reason, to });
            let cycle = self.search(to, path, done);
            if cycle.is_some() {
                return cycle;
            }
            path.pop();
        }
        done.insert(node);
        None
    }

    fn edges(&self, node: WaitNode) -> Vec<(WaitEdge, WaitNode)> {
        match node {
            WaitNode::Stream(stream) => self.edges_of_stream(stream),
            WaitNode::Host(place) => match &self.view.hosts[place].stand {
                Stand::Blocked { wait: Wait::Stream { stream, .. }, .. } => {
                    vec![(WaitEdge::Work, WaitNode::Stream(*stream))]
                }
                Stand::Blocked { wait: Wait::Record(record), .. } => {
                    vec![(WaitEdge::Record, WaitNode::Stream(record.stream))]
                }
                _ => Vec::new(),
            },
        }
    }

    fn edges_of_stream(&self, stream: u64) -> Vec<(WaitEdge, WaitNode)> {
        let Some(waiting) = self.state.runtime.streams.get(&stream) else { return Vec::new() };
        match &waiting.waits_for {
            None => Vec::new(),
            Some(WaitReason::Record(record)) => vec![(WaitEdge::Record, WaitNode::Stream(record.stream))],
            Some(WaitReason::Notify(notify)) => {
                let records = |entry: &StreamEntry| matches!(entry, StreamEntry::NotifyRecord(other) if other == notify);
                let found = self.queued(records).into_iter();
                found
                    .map(|(on, site)| (WaitEdge::Notify { notify: *notify, site }, WaitNode::Stream(on)))
                    .collect()
            }
            Some(WaitReason::Signal(event)) => {
                let records = |entry: &StreamEntry| matches!(entry, StreamEntry::Signal { event: other, act: SignalAction::Set(_) } if other == event);
                let found = self.queued(records).into_iter();
                found
                    .map(|(on, site)| (WaitEdge::Signal { event: *event, site }, WaitNode::Stream(on)))
                    .collect()
            }
            Some(WaitReason::Meet(rank_places)) => {
                rank_places.iter().flat_map(|rank_place| self.edges_of_rank_place(*rank_place)).collect()
            }
            Some(WaitReason::Value(_)) => Vec::new(),
            Some(WaitReason::Function) => {
                let runs = |(_, host): &(usize, &TurnstileThread)| host.function_of == Some(stream);
                let hosts = self.view.hosts.iter().enumerate().filter(runs);
                hosts.map(|(place, _)| (WaitEdge::Function, WaitNode::Host(place))).collect()
            }
        }
    }

    fn edges_of_rank_place(&self, rank_place: RankPlace) -> Vec<(WaitEdge, WaitNode)> {
        let Some(matching) = self.state.hccl.matchings.open(rank_place.matching) else { return Vec::new() };
        let place = matching.place();
        let mut edges = Vec::new();
        for (position, part) in matching.standing().into_iter().enumerate() {
            let rank = part.rank;
            if part.stream.is_some() {
                continue;
            }
            if part.has_called {
                let is_seat =
                    |other: &RankPlace| other.matching == rank_place.matching && other.position == position;
                let is_call = |entry: &StreamEntry| matches!(entry, StreamEntry::Meet(rank_places) if rank_places.iter().any(is_seat));
                edges.extend(self.queued(is_call).into_iter().map(|(on, site)| {
                    (WaitEdge::LaterCall { place: place.clone(), rank, site }, WaitNode::Stream(on))
                }));
            } else if let Ok(card) = self.state.hccl.communicators.card_of(matching.communicator(), rank) {
                let blocked = |(_, host): &(usize, &TurnstileThread)| {
                    matches!(host.stand, Stand::Blocked { .. }) && self.card(host.context) == Some(card)
                };
                let hosts = self.view.hosts.iter().enumerate().filter(blocked);
                edges
                    .extend(hosts.map(|(at, _)| {
                        (WaitEdge::NoCall { place: place.clone(), rank }, WaitNode::Host(at))
                    }));
            }
        }
        edges
    }

    fn queued(&self, is_meant: impl Fn(&StreamEntry) -> bool) -> Vec<(u64, Option<Arc<CallSite>>)> {
        let found = self.state.runtime.streams.iter().filter_map(|(id, stream)| {
            let queued = stream.queued().find(|queued| is_meant(&queued.entry))?;
            Some((*id, queued.site.clone()))
        });
        found.collect()
    }

    fn card(&self, context: Option<u64>) -> Option<u32> {
        self.state.runtime.contexts.get(&context?).map(|context| context.card)
    }

    fn clause(&self, step: &WaitStep, text: &mut ReportText) -> String {
        let WaitStep { from, reason, to } = step;
        let (who, record) = match from {
            WaitNode::Stream(id) => {
                let stream = self.state.runtime.streams.get(id);
                let cited = text.cite(stream.and_then(|stream| stream.site_under_way.as_ref()));
                let record = match stream.and_then(|stream| stream.waits_for.as_ref()) {
                    Some(WaitReason::Record(record)) => Some(Arc::clone(record)),
                    _ => None,
                };
                let card = stream.map(|stream| stream.card).unwrap_or_default();
                (format!("stream {id} of card {card} waits at {cited}"), record)
            }
            WaitNode::Host(place) => {
                let host = &self.view.hosts[*place];
                let Stand::Blocked { wait, site, .. } = &host.stand else { return String::new() };
                let record = match wait {
                    Wait::Record(record) => Some(Arc::clone(record)),
                    _ => None,
                };
                (format!("thread {} waits in {}", host.label, text.cite(site.as_ref())), record)
            }
        };
        let on = match to {
            WaitNode::Stream(id) => format!("stream {id}"),
            WaitNode::Host(place) => format!("thread {}", self.view.hosts[*place].label),
        };
        let why = match reason {
            WaitEdge::Record => match record {
                Some(record) => {
                    let cited = text.cite(record.site.as_ref());
                    format!("for event {}, recorded by {cited} later on {on}", record.event)
                }
                None => format!("for a record on {on}"),
            },
            WaitEdge::Notify { notify, site } => {
                let cited = text.cite(site.as_ref());
                format!("for notify {notify}, recorded by {cited} later on {on}")
            }
            WaitEdge::Signal { event, site } => {
                let cited = text.cite(site.as_ref());
                format!("for event {event}, recorded by {cited} later on {on}")
            }
            WaitEdge::LaterCall { place, rank, site } => {
                let cited = text.cite(site.as_ref());
                format!("in {place}, for rank {rank}, which calls {cited} later on {on}")
            }
            WaitEdge::NoCall { place, rank } => {
                format!("in {place}, for rank {rank}, but {on} has not made the call")
            }
            WaitEdge::Function => format!("for the function {on} runs"),
            WaitEdge::Work => format!("for {on}"),
        };
        format!("{who} {why}")
    }
}

fn break_cycle(state: &mut MachineState, view: &TurnstileView, cycle: &[WaitStep]) {
    let mut text = ReportText::default();
    let clauses: Vec<String> = {
        let graph = WaitGraph { state, view };
        cycle.iter().map(|step| graph.clause(step, &mut text)).collect()
    };
    text.what = format!("a cycle of {} waits: {}", cycle.len(), clauses.join("; "));
    let streams: Vec<u64> = cycle
        .iter()
        .filter_map(|step| match step.from {
            WaitNode::Stream(stream) => Some(stream),
            WaitNode::Host(_) => None,
        })
        .collect();
    let failure = state.condemn(code::TASK_TIMEOUT, text.report(ReportKind::Deadlock), &streams);
    for stream in streams {
        release(state, stream, &failure);
    }
}

fn release(state: &mut MachineState, stream: u64, failure: &Failure) {
    match state.runtime.streams.get(&stream).and_then(|stream| stream.waits_for.clone()) {
        Some(WaitReason::Record(record)) => {
            record.release(stream);
            state.settle(stream, Ok(()));
        }
        Some(WaitReason::Notify(notify)) => {
            state.leave_notify(notify, stream);
            state.settle(stream, Ok(()));
        }
        Some(WaitReason::Signal(event)) => {
            state.leave_signal(event, stream);
            state.settle(stream, Ok(()));
        }
        Some(WaitReason::Meet(rank_places)) => {
            for rank_place in rank_places {
                if state.hccl.matchings.open(rank_place.matching).is_some() {
                    state.fail_matching(rank_place.matching, failure);
                } else {
                    // The communicator is gone, so nothing else ends this wait.
                    state.settle(stream, Err(failure.clone()));
                }
            }
        }
        Some(WaitReason::Value(_)) => state.settle(stream, Ok(())),
        // Ends with the function.
        Some(WaitReason::Function) | None => {}
    }
}

/// Fails the collective for the ranks that called.
fn report_absent(state: &mut MachineState, view: &TurnstileView, id: u64) {
    let Some(matching) = state.hccl.matchings.open(id) else { return };
    let (place, communicator, standing) = (matching.place(), matching.communicator(), matching.standing());
    let mut text = ReportText::default();
    let absent: Vec<u32> = standing.iter().filter(|part| !part.has_called).map(|part| part.rank).collect();
    let _ = write!(text.what, "{place}: {} made the call", ranks_have_not(&absent));
    let mut waiting = Vec::new();
    for part in &standing {
        if let Some(stream) = part.stream {
            waiting.push(stream);
            let cited = text
                .cite(state.runtime.streams.get(&stream).and_then(|stream| stream.site_under_way.as_ref()));
            let _ = write!(text.what, "; rank {} waits at {cited}", part.rank);
        } else if part.has_called {
            let _ = write!(text.what, "; the stream of rank {} has not reached its call", part.rank);
        }
    }
    for rank in absent {
        let Ok(card) = state.hccl.communicators.card_of(communicator, rank) else { continue };
        let _ = write!(text.what, "; rank {rank} is on card {card}: {}", who_uses(state, view, card));
    }
    let failure = state.condemn(code::TASK_TIMEOUT, text.report(ReportKind::RankAbsent), &waiting);
    state.fail_matching(id, &failure);
}

fn who_uses(state: &MachineState, view: &TurnstileView, card: u32) -> String {
    let on_card = |context: Option<u64>| {
        context
            .and_then(|context| state.runtime.contexts.get(&context))
            .is_some_and(|context| context.card == card)
    };
    let alive = view.hosts.iter().filter(|host| on_card(host.context)).map(describe);
    let ended = view.ended.iter().filter(|ended| on_card(ended.context)).map(|ended| {
        let after = ended.last_call.map(|call| format!(" after {call}")).unwrap_or_default();
        format!("thread {} has ended{after}", ended.label)
    });
    let threads: Vec<String> = alive.chain(ended).take(NAMED).collect();
    if threads.is_empty() { "no thread uses it".into() } else { threads.join(", ") }
}

fn first_waiting(state: &MachineState) -> Option<u64> {
    let is_held = |reason: &WaitReason| !matches!(reason, WaitReason::Function);
    state
        .runtime
        .streams
        .iter()
        .find(|(_, stream)| stream.waits_for.as_ref().is_some_and(is_held))
        .map(|(id, _)| *id)
}

/// The stream's event will never happen.
fn report_waiting(state: &mut MachineState, view: &TurnstileView, turnstile: &Turnstile, stream: u64) {
    let mut text = ReportText::default();
    let Some(waiting) = state.runtime.streams.get(&stream) else { return };
    let cited = text.cite(waiting.site_under_way.as_ref());
    let what = match &waiting.waits_for {
        Some(WaitReason::Notify(notify)) => format!("for notify {notify}, which no queued call records"),
        Some(WaitReason::Signal(event)) => format!("for event {event}, which no queued call records"),
        Some(WaitReason::Record(record)) => {
            let cited = text.cite(record.site.as_ref());
            let (event, on) = (record.event, record.stream);
            format!("for event {event}, but its record {cited} on stream {on} is never reached")
        }
        Some(WaitReason::Meet(rank_places)) => {
            let places =
                rank_places.iter().filter_map(|rank_place| state.hccl.matchings.open(rank_place.matching));
            let places: Vec<String> =
                places.map(|matching| format!("{}: {}", matching.place(), matching.absent())).collect();
            format!("in {}", places.join(", "))
        }
        Some(WaitReason::Value(address)) => format!("for a value at {address:#x} that no queued call writes"),
        Some(WaitReason::Function) | None => return end_blocked(state, view, turnstile),
    };
    text.what = format!("stream {stream} of card {} waits at {cited} {what}", waiting.card);
    let failure = state.condemn(code::TASK_TIMEOUT, text.report(ReportKind::Deadlock), &[stream]);
    release(state, stream, &failure);
}

/// Ends calls that wait for something outside the machine's queues.
fn end_blocked(state: &mut MachineState, view: &TurnstileView, turnstile: &Turnstile) {
    let mut text = ReportText::default();
    let mut blocked = Vec::new();
    let mut clauses = Vec::new();
    for host in &view.hosts {
        match &host.stand {
            Stand::Blocked { wait, site, .. } => {
                blocked.push(host.thread);
                let what = match wait {
                    Wait::Callback { .. } => "for a callback that no stream will bring".into(),
                    Wait::Stream { stream, .. } => {
                        format!("for stream {stream}, which waits for a function of the program to return")
                    }
                    Wait::Record(record) => {
                        format!("for event {}, recorded on stream {}", record.event, record.stream)
                    }
                    Wait::Rendezvous { .. } => "for ranks to come".into(),
                    Wait::Entering { .. } => "for other processes to enter a communicator".into(),
                    Wait::Time(_) => "for the cards to reach its time".into(),
                };
                clauses.push(format!("thread {} waits in {} {what}", host.label, text.cite(site.as_ref())));
            }
            Stand::Away { .. } if host.function_of.is_some() => clauses.push(describe(host)),
            _ => {}
        }
    }
    if blocked.is_empty() {
        return;
    }
    text.what = clauses.join("; ");
    let failure = state.condemn(code::TASK_TIMEOUT, text.report(ReportKind::Deadlock), &[]);
    for thread in blocked {
        turnstile.let_go(thread, Some(failure.clone()));
    }
}
