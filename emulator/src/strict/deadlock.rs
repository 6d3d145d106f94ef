//! What waits for ever: cycles of waits, and ranks that never come.
//!
//! Input: the machine's state and everybody's place, at a moment when nothing can happen any more. Output: one report,
//! and at least one wait ended with its failure, so that the program goes on. Invariant: every stream that is held
//! stands at an entry whose condition is not fulfilled. Does not: decide that nothing can happen (see `conductor`).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::base::report::{Report, ReportKind};
use crate::base::site::Site;
use crate::hccl::meeting::Seat;
use crate::runtime::signal::Act;
use crate::runtime::stream::{Entry, Hold};
use crate::scheduler::turnstile::{Host, Stand, Turnstile, View};
use crate::scheduler::wait::Wait;
use crate::scheduler::watch;
use crate::state::State;

/// Threads of a card that are named in a report.
const NAMED: usize = 4;

/// Reports what waits for ever and ends it.
pub(crate) fn resolve(state: &mut State, view: &View, turnstile: &Turnstile) {
    if !state.hccl.groups.moving.is_empty() {
        // Data moves between processes, and will have moved or have failed.
        return;
    }
    if let Some(cycle) = (Graph { state, view }).cycle() {
        break_cycle(state, view, &cycle);
    } else if let Some(meeting) = state.hccl.meetings.first_without_all_calls() {
        report_absent(state, view, meeting);
    } else if let Some(stream) = first_held(state) {
        report_held(state, view, turnstile, stream);
    } else {
        end_blocked(state, view, turnstile);
    }
}

/// Reports ranks that never come to a communicator that is being built.
pub(crate) fn report_not_gathered(state: &mut State, view: &View, root: u64) {
    let Some((world, absent)) = state.hccl.groups.absent_from(root) else { return };
    let mut text = Text::default();
    let _ = write!(text.what, "a communicator of {world} ranks is being built: {} come", ranks_have_not(&absent));
    for host in &view.hosts {
        if let Stand::Blocked { wait: Wait::Gathering { root: of, rank }, site, .. } = &host.stand
            && *of == root
        {
            let cited = text.cite(site.as_ref());
            let _ = write!(text.what, "; rank {rank} waits at {cited}");
        }
    }
    let unused: BTreeSet<&str> = view.hosts.iter().filter(|host| is_elsewhere(host)).map(|h| &*h.label).collect();
    for label in unused.into_iter().take(NAMED) {
        let host = view.hosts.iter().find(|host| &*host.label == label);
        let _ = write!(text.what, "; {}", host.map(describe).unwrap_or_default());
    }
    let report = text.report(ReportKind::RankAbsent);
    state.condemn(code::HCCL_TIMEOUT, report, &[]);
}

/// "rank 2 has not", "ranks [1, 2] have not"
fn ranks_have_not(ranks: &[u32]) -> String {
    match ranks {
        [one] => format!("rank {one} has not"),
        more => format!("ranks {more:?} have not"),
    }
}

/// Whether a thread of the program is outside the library.
fn is_elsewhere(host: &Host) -> bool {
    matches!(host.stand, Stand::Away { .. })
}

/// What a thread does, for a report.
fn describe(host: &Host) -> String {
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

/// A report that is being written.
#[derive(Default)]
struct Text {
    what: String,
    sites: Vec<Arc<Site>>,
}

impl Text {
    /// The mark under which the report lists a call.
    fn cite(&mut self, site: Option<&Arc<Site>>) -> String {
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

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Stream(u64),
    /// A thread, by its place among the hosts of the view.
    Host(usize),
}

/// Why a node waits for another.
#[derive(Debug, Clone)]
enum Reason {
    /// For a record that is enqueued on the other stream.
    Record,
    /// For a notify whose record is enqueued on the other stream by this call.
    Notify { notify: u64, site: Option<Arc<Site>> },
    /// The same for an event that is a word.
    Signal { event: u64, site: Option<Arc<Site>> },
    /// For a rank whose call, this one, is enqueued on the other stream.
    LaterCall { place: String, rank: u32, site: Option<Arc<Site>> },
    /// For a rank whose call the thread has not made.
    NoCall { place: String, rank: u32 },
    /// For a function the thread runs.
    Function,
    /// For the end of what is on the stream.
    Work,
}

/// Who waits for whom.
struct Graph<'a> {
    state: &'a State,
    view: &'a View,
}

impl Graph<'_> {
    fn nodes(&self) -> impl Iterator<Item = Node> {
        let streams = self.state.runtime.streams.iter().filter(|(_, stream)| stream.hold.is_some());
        let is_blocked = |(_, host): &(usize, &Host)| matches!(host.stand, Stand::Blocked { .. });
        let hosts = self.view.hosts.iter().enumerate().filter(is_blocked);
        streams.map(|(id, _)| Node::Stream(*id)).chain(hosts.map(|(place, _)| Node::Host(place)))
    }

    /// A cycle, from its first node in the order of [`Graph::nodes`].
    fn cycle(&self) -> Option<Vec<(Node, Reason, Node)>> {
        let mut done = BTreeSet::new();
        self.nodes().find_map(|node| self.search(node, &mut Vec::new(), &mut done))
    }

    /// Depth first; `path` leads to `node`.
    fn search(
        &self,
        node: Node,
        path: &mut Vec<(Node, Reason, Node)>,
        done: &mut BTreeSet<Node>,
    ) -> Option<Vec<(Node, Reason, Node)>> {
        if let Some(start) = path.iter().position(|(from, _, _)| *from == node) {
            return Some(path.split_off(start));
        }
        if done.contains(&node) {
            return None;
        }
        for (reason, next) in self.edges(node) {
            path.push((node, reason, next));
            let cycle = self.search(next, path, done);
            if cycle.is_some() {
                return cycle;
            }
            path.pop();
        }
        done.insert(node);
        None
    }

    fn edges(&self, node: Node) -> Vec<(Reason, Node)> {
        match node {
            Node::Stream(stream) => self.edges_of_stream(stream),
            Node::Host(place) => match &self.view.hosts[place].stand {
                Stand::Blocked { wait: Wait::Stream { stream, .. }, .. } => {
                    vec![(Reason::Work, Node::Stream(*stream))]
                }
                Stand::Blocked { wait: Wait::Record(record), .. } => {
                    vec![(Reason::Record, Node::Stream(record.stream))]
                }
                _ => Vec::new(),
            },
        }
    }

    fn edges_of_stream(&self, stream: u64) -> Vec<(Reason, Node)> {
        let Some(held) = self.state.runtime.streams.get(&stream) else { return Vec::new() };
        match &held.hold {
            None => Vec::new(),
            Some(Hold::Record(record)) => vec![(Reason::Record, Node::Stream(record.stream))],
            Some(Hold::Notify(notify)) => {
                let records = |entry: &Entry| matches!(entry, Entry::NotifyRecord(other) if other == notify);
                let found = self.queued(records).into_iter();
                found.map(|(on, site)| (Reason::Notify { notify: *notify, site }, Node::Stream(on))).collect()
            }
            Some(Hold::Signal(event)) => {
                let records =
                    |entry: &Entry| matches!(entry, Entry::Signal { event: other, act: Act::Set(_) } if other == event);
                let found = self.queued(records).into_iter();
                found.map(|(on, site)| (Reason::Signal { event: *event, site }, Node::Stream(on))).collect()
            }
            Some(Hold::Meet(seats)) => seats.iter().flat_map(|seat| self.edges_of_seat(*seat)).collect(),
            // Any work may write it.
            Some(Hold::Value(_)) => Vec::new(),
            Some(Hold::Function) => {
                let runs = |(_, host): &(usize, &Host)| host.function_of == Some(stream);
                let hosts = self.view.hosts.iter().enumerate().filter(runs);
                hosts.map(|(place, _)| (Reason::Function, Node::Host(place))).collect()
            }
        }
    }

    fn edges_of_seat(&self, seat: Seat) -> Vec<(Reason, Node)> {
        let Some(meeting) = self.state.hccl.meetings.open(seat.meeting) else { return Vec::new() };
        let place = meeting.place();
        let mut edges = Vec::new();
        for (position, part) in meeting.standing().into_iter().enumerate() {
            let rank = part.rank;
            if part.stream.is_some() {
                continue;
            }
            if part.has_called {
                let is_seat = |other: &Seat| other.meeting == seat.meeting && other.position == position;
                let is_call = |entry: &Entry| matches!(entry, Entry::Meet(seats) if seats.iter().any(is_seat));
                edges.extend(
                    self.queued(is_call)
                        .into_iter()
                        .map(|(on, site)| (Reason::LaterCall { place: place.clone(), rank, site }, Node::Stream(on))),
                );
            } else if let Ok(card) = self.state.hccl.groups.card_of(meeting.group(), rank) {
                let blocked = |(_, host): &(usize, &Host)| {
                    matches!(host.stand, Stand::Blocked { .. }) && self.card(host.context) == Some(card)
                };
                let hosts = self.view.hosts.iter().enumerate().filter(blocked);
                edges.extend(hosts.map(|(at, _)| (Reason::NoCall { place: place.clone(), rank }, Node::Host(at))));
            }
        }
        edges
    }

    /// Streams with a queued entry of this kind, and the call that enqueued it.
    fn queued(&self, is_meant: impl Fn(&Entry) -> bool) -> Vec<(u64, Option<Arc<Site>>)> {
        let found = self.state.runtime.streams.iter().filter_map(|(id, stream)| {
            let queued = stream.queued().find(|queued| is_meant(&queued.entry))?;
            Some((*id, queued.site.clone()))
        });
        found.collect()
    }

    fn card(&self, context: Option<u64>) -> Option<u32> {
        self.state.runtime.contexts.get(&context?).map(|context| context.card)
    }

    /// One wait of a cycle in words.
    fn clause(&self, (from, reason, to): &(Node, Reason, Node), text: &mut Text) -> String {
        let (who, record) = match from {
            Node::Stream(id) => {
                let stream = self.state.runtime.streams.get(id);
                let cited = text.cite(stream.and_then(|stream| stream.site_under_way.as_ref()));
                let record = match stream.and_then(|stream| stream.hold.as_ref()) {
                    Some(Hold::Record(record)) => Some(Arc::clone(record)),
                    _ => None,
                };
                let card = stream.map(|stream| stream.card).unwrap_or_default();
                (format!("stream {id} of card {card} holds at {cited}"), record)
            }
            Node::Host(place) => {
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
            Node::Stream(id) => format!("stream {id}"),
            Node::Host(place) => format!("thread {}", self.view.hosts[*place].label),
        };
        let why = match reason {
            Reason::Record => match record {
                Some(record) => {
                    let cited = text.cite(record.site.as_ref());
                    format!("for event {}, whose record {cited} comes later on {on}", record.event)
                }
                None => format!("for a record on {on}"),
            },
            Reason::Notify { notify, site } => {
                let cited = text.cite(site.as_ref());
                format!("for notify {notify}, whose record {cited} comes later on {on}")
            }
            Reason::Signal { event, site } => {
                let cited = text.cite(site.as_ref());
                format!("for event {event}, whose record {cited} comes later on {on}")
            }
            Reason::LaterCall { place, rank, site } => {
                let cited = text.cite(site.as_ref());
                format!("in {place}, for rank {rank}, whose call {cited} comes later on {on}")
            }
            Reason::NoCall { place, rank } => format!("in {place}, for rank {rank}, whose call {on} has not made"),
            Reason::Function => format!("for the function {on} runs"),
            Reason::Work => format!("for {on}"),
        };
        format!("{who} {why}")
    }
}

/// Reports a cycle and fails every stream in it.
fn break_cycle(state: &mut State, view: &View, cycle: &[(Node, Reason, Node)]) {
    let mut text = Text::default();
    let clauses: Vec<String> = {
        let graph = Graph { state, view };
        cycle.iter().map(|wait| graph.clause(wait, &mut text)).collect()
    };
    text.what = format!("a cycle of {} waits: {}", cycle.len(), clauses.join("; "));
    let streams: Vec<u64> = cycle
        .iter()
        .filter_map(|(node, _, _)| match node {
            Node::Stream(stream) => Some(*stream),
            Node::Host(_) => None,
        })
        .collect();
    let failure = state.condemn(code::TASK_TIMEOUT, text.report(ReportKind::Deadlock), &streams);
    for stream in streams {
        release(state, stream, &failure);
    }
}

/// Ends what a condemned stream waits for.
fn release(state: &mut State, stream: u64, failure: &Failure) {
    match state.runtime.streams.get(&stream).and_then(|stream| stream.hold.clone()) {
        Some(Hold::Record(record)) => {
            record.release(stream);
            state.settle(stream, Ok(()));
        }
        Some(Hold::Notify(notify)) => {
            state.leave_notify(notify, stream);
            state.settle(stream, Ok(()));
        }
        Some(Hold::Signal(event)) => {
            state.leave_signal(event, stream);
            state.settle(stream, Ok(()));
        }
        Some(Hold::Meet(seats)) => {
            for seat in seats {
                if state.hccl.meetings.open(seat.meeting).is_some() {
                    state.fail_meeting(seat.meeting, failure);
                } else {
                    // Its communicator is gone: nobody else will end this wait.
                    state.settle(stream, Err(failure.clone()));
                }
            }
        }
        Some(Hold::Value(_)) => state.settle(stream, Ok(())),
        // It ends when the function returns.
        Some(Hold::Function) | None => {}
    }
}

/// Reports ranks that never make their call, and fails the collective for the others.
fn report_absent(state: &mut State, view: &View, id: u64) {
    let Some(meeting) = state.hccl.meetings.open(id) else { return };
    let (place, group, standing) = (meeting.place(), meeting.group(), meeting.standing());
    let mut text = Text::default();
    let absent: Vec<u32> = standing.iter().filter(|part| !part.has_called).map(|part| part.rank).collect();
    let _ = write!(text.what, "{place}: {} made the call", ranks_have_not(&absent));
    let mut waiting = Vec::new();
    for part in &standing {
        if let Some(stream) = part.stream {
            waiting.push(stream);
            let cited = text.cite(state.runtime.streams.get(&stream).and_then(|stream| stream.site_under_way.as_ref()));
            let _ = write!(text.what, "; rank {} waits at {cited}", part.rank);
        } else if part.has_called {
            let _ = write!(text.what, "; the stream of rank {} has not reached its call", part.rank);
        }
    }
    for rank in absent {
        let Ok(card) = state.hccl.groups.card_of(group, rank) else { continue };
        let _ = write!(text.what, "; rank {rank} is on card {card}: {}", who_uses(state, view, card));
    }
    let failure = state.condemn(code::TASK_TIMEOUT, text.report(ReportKind::RankAbsent), &waiting);
    state.fail_meeting(id, &failure);
}

/// The threads that worked on a card last, and what they do.
fn who_uses(state: &State, view: &View, card: u32) -> String {
    let on_card = |context: Option<u64>| {
        context.and_then(|context| state.runtime.contexts.get(&context)).is_some_and(|context| context.card == card)
    };
    let alive = view.hosts.iter().filter(|host| on_card(host.context)).map(describe);
    let ended = view.ended.iter().filter(|ended| on_card(ended.context)).map(|ended| {
        let after = ended.last_call.map(|call| format!(" after {call}")).unwrap_or_default();
        format!("thread {} has ended{after}", ended.label)
    });
    let threads: Vec<String> = alive.chain(ended).take(NAMED).collect();
    if threads.is_empty() { "no thread uses it".into() } else { threads.join(", ") }
}

fn first_held(state: &State) -> Option<u64> {
    let is_held = |hold: &Hold| !matches!(hold, Hold::Function);
    state.runtime.streams.iter().find(|(_, stream)| stream.hold.as_ref().is_some_and(is_held)).map(|(id, _)| *id)
}

/// Reports a stream that waits for something nobody will do.
fn report_held(state: &mut State, view: &View, turnstile: &Turnstile, stream: u64) {
    let mut text = Text::default();
    let Some(held) = state.runtime.streams.get(&stream) else { return };
    let cited = text.cite(held.site_under_way.as_ref());
    let what = match &held.hold {
        Some(Hold::Notify(notify)) => format!("for notify {notify}, which no queued call records"),
        Some(Hold::Signal(event)) => format!("for event {event}, which no queued call records"),
        Some(Hold::Record(record)) => {
            let cited = text.cite(record.site.as_ref());
            let (event, on) = (record.event, record.stream);
            format!("for event {event}, whose record {cited} on stream {on} is never reached")
        }
        Some(Hold::Meet(seats)) => {
            let places = seats.iter().filter_map(|seat| state.hccl.meetings.open(seat.meeting));
            let places: Vec<String> =
                places.map(|meeting| format!("{}: {}", meeting.place(), meeting.absent())).collect();
            format!("in {}", places.join(", "))
        }
        Some(Hold::Value(address)) => format!("for a value at {address:#x} that no queued call writes"),
        Some(Hold::Function) | None => return end_blocked(state, view, turnstile),
    };
    text.what = format!("stream {stream} of card {} holds at {cited} {what}", held.card);
    let failure = state.condemn(code::TASK_TIMEOUT, text.report(ReportKind::Deadlock), &[stream]);
    release(state, stream, &failure);
}

/// Reports calls that wait for something outside the machine's queues, and ends them.
fn end_blocked(state: &mut State, view: &View, turnstile: &Turnstile) {
    let mut text = Text::default();
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
                    Wait::Gathering { .. } => "for ranks to come".into(),
                    Wait::Entering { .. } => "for other processes to enter a communicator".into(),
                    Wait::Time(_) => "for the cards to come to its time".into(),
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
