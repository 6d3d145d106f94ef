//! The happens-before relation of all work, updated by hooks in the scheduler.
//!
//! Relation: an entry happens after the calls made before it was enqueued, the earlier entries of
//! its stream, and the records it waited for. It also happens after everything before the calls of
//! ranks from which it received data, but not after the receives of those ranks. The host happens
//! after the work it waited for. Invariant: if the host's threads synchronize correctly, a conflict
//! is found for every seed; they count as one actor.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::Strict;
use super::clock::{ActorClock, CALLS, HOST};
use super::host::HostWatch;
use super::shadow::{Conflict, RemovedStreams, Shadow, Touch};
use crate::base::report::{Report, ReportKind};
use crate::base::site::CallSite;
use crate::hccl::matching::Matching;
use crate::hccl::{CollectiveCall, CollectiveOperation};
use crate::memory::access::{AccessMode, MemoryAccess};
use crate::memory::allocation_table::place;
use crate::memory::raw::Allocation;
use crate::runtime::event::EventRecord;
use crate::runtime::signal::SignalAction;
use crate::runtime::stream::{Queued, StreamEntry};

/// Size of a value for `aclrtValueWait`.
const VALUE_BYTES: usize = 8;

#[derive(Debug)]
pub(crate) struct HappensBefore {
    strict: Arc<Strict>,
    /// Point of the host's next call. Entries enqueued at that point share the clock.
    host: Arc<ActorClock>,
    /// Point of the next entry of each stream.
    streams: BTreeMap<u64, ActorClock>,
    /// For each queued entry: the point of the call that enqueued it, and its accesses.
    pending: BTreeMap<u64, VecDeque<Pending>>,
    under_way: BTreeMap<u64, UnderWay>,
    notifies: BTreeMap<u64, ActorClock>,
    /// Point of the last write to each value that streams can wait for, by address.
    values: BTreeMap<usize, ActorClock>,
    shadow: Shadow,
    gone: RemovedStreams,
    told: BTreeSet<String>,
    /// Number of functions of the program that have begun.
    functions: u64,
}

#[derive(Debug)]
struct Pending {
    host: Arc<ActorClock>,
    accesses: Vec<MemoryAccess>,
    site: Option<Arc<CallSite>>,
    /// The entry runs a function of the program, or a later call may end it.
    is_open: bool,
    watches: Vec<HostWatch>,
    /// Value of `functions` at the call.
    functions: u64,
}

#[derive(Debug)]
struct UnderWay {
    effect: Effect,
    accesses: Vec<MemoryAccess>,
    site: Option<Arc<CallSite>>,
}

#[derive(Debug)]
enum Effect {
    None,
    /// The entry happens after this record.
    Wait(Arc<EventRecord>),
    /// The entry happens after the setter.
    Notify(u64),
    /// The entry happens after the writer at this address.
    Value(usize),
    /// The accesses happen together with those of other ranks. The other ranks happen only after
    /// the work before this entry.
    Meet {
        before: ActorClock,
    },
    /// The entry happens after its function.
    Function,
}

#[derive(Debug, Clone)]
pub(crate) enum Waited {
    Stream(u64),
    Record(Arc<EventRecord>),
}

impl HappensBefore {
    pub(crate) fn new(strict: &Arc<Strict>) -> Self {
        Self {
            strict: Arc::clone(strict),
            host: Arc::default(),
            streams: BTreeMap::new(),
            pending: BTreeMap::new(),
            under_way: BTreeMap::new(),
            notifies: BTreeMap::new(),
            values: BTreeMap::new(),
            shadow: Shadow::default(),
            gone: RemovedStreams::default(),
            told: BTreeSet::new(),
            functions: 0,
        }
    }

    fn host_joins(&mut self, clock: &ActorClock) {
        Arc::make_mut(&mut self.host).join(clock);
    }

    /// The accesses are the actor's current step at the point of `clock`.
    fn touch(
        &mut self,
        actor: u64,
        clock: &ActorClock,
        accesses: &[MemoryAccess],
        site: Option<&Arc<CallSite>>,
    ) {
        let step = clock.of(actor);
        for access in accesses {
            let Some(allocation) = access.span.allocation().filter(|owner| owner.freed().is_none()) else {
                continue;
            };
            let Some(footprint) = access.footprint() else { continue };
            if footprint.is_empty() {
                continue;
            }
            let extent = footprint.extent();
            if access.mode == AccessMode::Write && extent.len() <= VALUE_BYTES {
                self.values.insert(extent.start, clock.clone());
            }
            let touch =
                Touch { footprint, mode: access.mode, what: access.what, site: site.cloned(), actor, step };
            let later = touch.clone();
            if let Some(conflict) = self.shadow.touch(allocation.base(), touch, clock, &self.gone)
                && self.told.insert(pair(allocation, &conflict.earlier, &later))
            {
                self.strict.report(race(allocation, conflict, later));
            }
        }
        if self.shadow.take_is_full() {
            self.prune();
        }
    }

    /// Forgets what happens before all future work.
    fn prune(&mut self) {
        let mut low = (*self.host).clone();
        let reached = |stream: &u64| self.streams.get(stream).cloned().unwrap_or_default();
        let matching = self.under_way.iter().filter(|(_, entry)| matches!(entry.effect, Effect::Meet { .. }));
        for (stream, _) in matching {
            low.meet(&reached(stream));
        }
        // A stream that has not started has no clock, but its entries have an enqueue point.
        for (stream, first) in
            self.pending.iter().filter_map(|(stream, queue)| Some((stream, queue.front()?)))
        {
            let mut next = reached(stream);
            next.join(&first.host);
            low.meet(&next);
        }
        self.shadow.prune(&low, &self.gone);
        let past = self.gone.prune(&low);
        if past.is_empty() {
            return;
        }
        Arc::make_mut(&mut self.host).retain(|actor| !past.contains(&actor));
        for clock in self.streams.values_mut().chain(self.notifies.values_mut()) {
            clock.retain(|actor| !past.contains(&actor));
        }
    }

    /// A report refuses the call.
    pub(crate) fn enqueued(&mut self, stream: u64, queued: &Queued) -> Result<(), Report> {
        for access in &queued.accesses {
            let Some(allocation) = access.span.allocation() else { continue };
            if let (Some(made), Some(freed)) = (allocation.site(), allocation.freed()) {
                let what = format!("{} uses {}, which [2] freed", access.what, describe(allocation));
                let sites = [made, freed].into_iter().chain(&queued.site).cloned().collect();
                return Err(Report::new(ReportKind::UseAfterFree, what, sites));
            }
        }
        let pending = Pending {
            host: Arc::clone(&self.host),
            accesses: queued.accesses.clone(),
            site: queued.site.clone(),
            is_open: is_open(&queued.entry),
            watches: self.watches(&queued.accesses),
            functions: self.functions,
        };
        self.pending.entry(stream).or_default().push_back(pending);
        Ok(())
    }

    /// Watches host memory, unless something queued may order the host's own accesses before.
    fn watches(&self, accesses: &[MemoryAccess]) -> Vec<HostWatch> {
        if !accesses.iter().any(MemoryAccess::is_on_host) {
            return Vec::new();
        }
        let waits_open = |entry: &UnderWay| {
            matches!(entry.effect, Effect::Function | Effect::Notify(_) | Effect::Value(_))
        };
        let mut queued = self.pending.values().flatten();
        if queued.any(|pending| pending.is_open) || self.under_way.values().any(waits_open) {
            return Vec::new();
        }
        let in_use = || {
            let queued = self.pending.values().flatten().flat_map(|pending| &pending.accesses);
            queued.chain(self.under_way.values().flat_map(|entry| &entry.accesses))
        };
        let is_alone = |access: &&MemoryAccess| !in_use().any(|other| other.conflicts(access));
        accesses.iter().filter(is_alone).filter_map(HostWatch::new).collect()
    }

    /// Other accesses than those of the program's own code explain a change from now on.
    fn end_watches(&mut self, accesses: &[MemoryAccess]) {
        for access in accesses.iter().filter(|access| access.is_on_host()) {
            for pending in self.pending.values_mut().flatten() {
                pending.watches.retain(|watch| !watch.access.conflicts(access));
            }
        }
    }

    /// The entry starts after the host's calls up to the latest in `clock`.
    fn check_watches(&mut self, stream: u64, clock: &ActorClock, pending: &mut Pending) {
        let watches = std::mem::take(&mut pending.watches);
        let number = pending.site.as_ref().map_or(0, |site| site.number);
        // The host may have made its accesses before a later call or in a function.
        if clock.of(CALLS) > number || self.functions != pending.functions {
            return;
        }
        for watch in watches {
            if let Some(report) = watch.finding(stream, pending.site.as_ref()) {
                self.strict.report_once(report);
            }
        }
    }

    /// A task begins, a wait starts to block, or a rank arrives.
    pub(crate) fn started(&mut self, stream: u64, queued: &Queued) {
        let mut pending = self.pending.get_mut(&stream).and_then(VecDeque::pop_front);
        let mut clock = self.streams.remove(&stream).unwrap_or_default();
        clock.join(pending.as_ref().map_or(&self.host, |pending| &pending.host));
        if let Some(pending) = &mut pending {
            self.check_watches(stream, &clock, pending);
            clock.raise(CALLS, pending.site.as_ref().map_or(0, |site| site.number));
        }
        clock.step(stream);
        let (accesses, site) =
            pending.map_or_else(Default::default, |pending| (pending.accesses, pending.site));
        self.end_watches(&accesses);
        let effect = match &queued.entry {
            StreamEntry::Task { .. } | StreamEntry::Limit(_) => Effect::None,
            StreamEntry::Record(record) => {
                record.set_clock(clock.clone());
                Effect::None
            }
            StreamEntry::NotifyRecord(notify) => {
                self.notifies.entry(*notify).or_default().join(&clock);
                Effect::None
            }
            StreamEntry::Signal { event, act: SignalAction::Set(_) } => {
                self.notifies.entry(*event).or_default().join(&clock);
                Effect::None
            }
            StreamEntry::Signal { act: SignalAction::Clear, .. } => Effect::None,
            StreamEntry::Signal { event, act: SignalAction::Await(_) | SignalAction::Take } => {
                Effect::Notify(*event)
            }
            StreamEntry::Wait(record) => Effect::Wait(Arc::clone(record)),
            StreamEntry::NotifyWait(notify) => Effect::Notify(*notify),
            StreamEntry::ValueWait(wait) => Effect::Value(wait.place.address()),
            StreamEntry::Meet(_) => Effect::Meet { before: clock.before_last(stream) },
            StreamEntry::Callback(_) | StreamEntry::HostFunction(_) => {
                self.functions += 1;
                Effect::Function
            }
        };
        if !matches!(effect, Effect::Meet { .. }) {
            self.touch(stream, &clock, &accesses, site.as_ref());
        }
        self.streams.insert(stream, clock);
        self.under_way.insert(stream, UnderWay { effect, accesses, site });
    }

    /// Only the execution revealed these accesses.
    pub(crate) fn touched(&mut self, stream: u64, accesses: &[MemoryAccess]) {
        let Some(site) = self.under_way.get(&stream).map(|entry| entry.site.clone()) else { return };
        let clock = self.streams.get(&stream).cloned().unwrap_or_default();
        self.touch(stream, &clock, accesses, site.as_ref());
    }

    pub(crate) fn ended(&mut self, stream: u64) {
        let Some(entry) = self.under_way.remove(&stream) else { return };
        let mut clock = self.streams.remove(&stream).unwrap_or_default();
        match &entry.effect {
            Effect::None | Effect::Function => {}
            Effect::Wait(record) => {
                if let Some(recorded) = record.clock() {
                    clock.join(&recorded);
                }
            }
            Effect::Notify(notify) => {
                if let Some(set) = self.notifies.get(notify) {
                    clock.join(set);
                }
            }
            Effect::Value(address) => {
                if let Some(written) = self.values.get(address) {
                    clock.join(written);
                }
            }
            Effect::Meet { .. } => self.touch(stream, &clock, &entry.accesses, entry.site.as_ref()),
        }
        self.streams.insert(stream, clock);
    }

    pub(crate) fn discarded(&mut self, stream: u64) {
        let _ = self.pending.get_mut(&stream).and_then(VecDeque::pop_front);
    }

    pub(crate) fn stream_removed(&mut self, stream: u64) {
        self.pending.remove(&stream);
        self.under_way.remove(&stream);
        if let Some(clock) = self.streams.remove(&stream) {
            self.host_joins(&clock);
        }
        let step = Arc::make_mut(&mut self.host).step(HOST);
        self.gone.insert(stream, step);
    }

    /// Every rank has arrived and the data was transferred. The entries end after this call.
    pub(crate) fn met(&mut self, matching: &Matching) {
        let Self { streams, under_way, .. } = self;
        let before = |stream: u64| match &under_way.get(&stream)?.effect {
            Effect::Meet { before } => Some(before),
            _ => None,
        };
        let parts = || matching.parts().filter_map(|(rank, call, stream)| Some((rank, call, stream?)));
        for (rank, call, stream) in parts() {
            let clock = streams.entry(stream).or_default();
            for (_, _, sender) in parts().filter(|(from, _, _)| *from != rank && flows(*from, rank, call)) {
                if let Some(before) = before(sender) {
                    clock.join(before);
                }
            }
        }
    }

    pub(crate) fn host_waited(&mut self, waited: &Waited) {
        let clock = match waited {
            Waited::Stream(stream) => self.streams.get(stream).cloned(),
            Waited::Record(record) => record.clock(),
        };
        if let Some(clock) = clock {
            self.host_joins(&clock);
        }
    }

    pub(crate) fn host_saw_idle(&mut self, stream: u64) {
        if let Some(clock) = self.streams.get(&stream).cloned() {
            self.host_joins(&clock);
        }
    }

    pub(crate) fn function_began(&mut self, stream: u64) {
        self.functions += 1;
        if let Some(clock) = self.streams.get(&stream).cloned() {
            self.host_joins(&clock);
        }
    }

    /// The calling thread has run a function of the stream. A blocking function's entry ends after
    /// this call.
    pub(crate) fn function_ended(&mut self, stream: u64) {
        let waits = self.under_way.get(&stream).is_some_and(|entry| matches!(entry.effect, Effect::Function));
        if waits && let Some(clock) = self.streams.get_mut(&stream) {
            clock.join(&self.host);
        }
    }

    pub(crate) fn host_touched(&mut self, accesses: &[MemoryAccess], site: Option<&Arc<CallSite>>) {
        let host = Arc::make_mut(&mut self.host);
        host.step(HOST);
        host.raise(CALLS, site.map_or(0, |site| site.number));
        let clock = host.clone();
        self.end_watches(accesses);
        self.touch(HOST, &clock, accesses, site);
    }

    pub(crate) fn freed(&mut self, allocation: &Allocation, site: Option<&Arc<CallSite>>) {
        let base = allocation.base();
        let is_of_it =
            |access: &MemoryAccess| access.span.allocation().is_some_and(|owner| owner.base() == base);
        for pending in self.pending.values_mut().flatten() {
            pending.watches.retain(|watch| !is_of_it(&watch.access));
        }
        let mut users: Vec<(u64, AccessMode, &'static str, Option<Arc<CallSite>>)> = Vec::new();
        let queued = self.pending.iter_mut().flat_map(|(stream, queue)| {
            queue.iter_mut().map(move |entry| (*stream, &mut entry.accesses, &entry.site))
        });
        let matching = self
            .under_way
            .iter_mut()
            .filter(|(_, entry)| matches!(entry.effect, Effect::Meet { .. }))
            .map(|(stream, entry)| (*stream, &mut entry.accesses, &entry.site));
        for (stream, accesses, site) in queued.chain(matching) {
            users.extend(
                accesses
                    .iter()
                    .filter(|access| is_of_it(access))
                    .map(|access| (stream, access.mode, access.what, site.clone())),
            );
            accesses.retain(|access| !is_of_it(access));
        }
        let host = Arc::clone(&self.host);
        self.values.retain(|address, _| !(base..base + allocation.size()).contains(address));
        let touched = self.shadow.remove(base, &host, &self.gone);
        users.extend(touched.into_iter().map(|touch| (touch.actor, touch.mode, touch.what, touch.site)));
        users.sort_by_key(|(_, _, _, site)| site.as_ref().map_or(0, |site| site.number));
        let Some((stream, mode, what, user)) = users.first() else { return };
        let verb = if *mode == AccessMode::Write { "write" } else { "read" };
        let more = match users.len() - 1 {
            0 => String::new(),
            others => format!(" ({others} more accesses may be under way)"),
        };
        let what = format!(
            "{} is freed by [2] while [1] may still {verb} it as {what}{more}; synchronize stream {stream} before [2]",
            describe(allocation),
        );
        let sites = user.iter().chain(site).cloned().collect();
        self.strict.report(Report::new(ReportKind::DestroyWhileBusy, what, sites));
    }
}

/// Names the conflict of two calls, so that a loop reports it once.
fn pair(allocation: &Allocation, a: &Touch, b: &Touch) -> String {
    let name = |touch: &Touch| {
        let (call, tag) = touch.site.as_ref().map_or(("", None), |site| (site.call, site.tag.as_deref()));
        format!("{call} {} {} {tag:?}", touch.what, touch.actor)
    };
    let mut names = [name(a), name(b)];
    names.sort();
    format!("{} {names:?}", allocation.base())
}

fn number(touch: &Touch) -> u64 {
    touch.site.as_ref().map_or(0, |site| site.number)
}

fn race(allocation: &Allocation, conflict: Conflict, later: Touch) -> Report {
    let mut pair = [conflict.earlier, later];
    pair.sort_by_key(number);
    let [a, b] = &pair;
    let (first, last) =
        (conflict.bytes.start - allocation.base(), conflict.bytes.end - 1 - allocation.base());
    let verb = |touch: &Touch| if touch.mode == AccessMode::Write { "writes" } else { "reads" };
    let advice = match (a.actor, b.actor) {
        (HOST, stream) => format!("synchronize stream {stream}, with [2] done, before [1]"),
        (stream, HOST) => {
            format!("synchronize stream {stream}, or an event recorded on it after [1], before [2]")
        }
        (one, other) => {
            format!("record an event on stream {one} after [1] and let stream {other} wait for it before [2]")
        }
    };
    let what = format!(
        "bytes {first} to {last} of {}: [1] {} {}, [2] {} {}, and nothing orders them; {advice}",
        describe(allocation),
        verb(a),
        a.what,
        verb(b),
        b.what,
    );
    let sites = pair.iter().filter_map(|touch| touch.site.clone()).collect();
    Report::new(ReportKind::Race, what, sites)
}

/// Returns true for entries that run the program's code or that a later call may end.
fn is_open(entry: &StreamEntry) -> bool {
    match entry {
        StreamEntry::Callback(_)
        | StreamEntry::HostFunction(_)
        | StreamEntry::NotifyWait(_)
        | StreamEntry::ValueWait(_) => true,
        StreamEntry::Signal { act, .. } => matches!(act, SignalAction::Await(_) | SignalAction::Take),
        StreamEntry::Task { .. }
        | StreamEntry::Record(_)
        | StreamEntry::Wait(_)
        | StreamEntry::Meet(_)
        | StreamEntry::NotifyRecord(_)
        | StreamEntry::Limit(_) => false,
    }
}

pub(super) fn describe(allocation: &Allocation) -> String {
    let made = allocation.site().map(|site| format!(" ({}, call {})", site.call, site.number));
    format!(
        "the {}-byte buffer on {}{}",
        allocation.size(),
        place(allocation.location()),
        made.unwrap_or_default()
    )
}

/// If data flows, the result of `to` happens after the work before the call of `from`.
fn flows(from: u32, to: u32, call: &CollectiveCall) -> bool {
    match &call.kind {
        CollectiveOperation::AllReduce { count, .. } => *count > 0,
        CollectiveOperation::Barrier => true,
        CollectiveOperation::Reduce { count, root, .. } => *count > 0 && *root == to,
        CollectiveOperation::ReduceScatter { blocks, .. } => blocks.at(to as usize).1 > 0,
        CollectiveOperation::AllGather { blocks } => blocks.at(from as usize).1 > 0,
        CollectiveOperation::Broadcast { count, root } | CollectiveOperation::Scatter { count, root } => {
            *count > 0 && *root == from
        }
        CollectiveOperation::AllToAll { recv, .. } => recv.at(from as usize).1 > 0,
        CollectiveOperation::Send { .. } => false,
        CollectiveOperation::Recv { count, from: sender } => *count > 0 && *sender == from,
    }
}
