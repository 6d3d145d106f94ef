//! Meetings: the calls of all ranks that make up one collective, from the first call to the last arrival.
//!
//! Input: calls in the order each rank makes them; streams that reach them. Output: a complete meeting, launched once;
//! or one failure, told to every rank. Invariants: the n-th collective call of each rank on a communicator belongs to
//! the n-th meeting, sends and receives are counted per pair of ranks; calls are compared as soon as they are made.
//! Does not: move data (see `perform`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::base::failure::{Failure, code};
use crate::hccl::group::{Group, Way};
use crate::hccl::link::connection::Link;
use crate::hccl::link::wire::{Message, Token};
use crate::hccl::peer::Home;
use crate::hccl::{Call, Kind};
use crate::runtime::stream::left_by_peer;
use crate::scheduler::launch::Launch;
use crate::state::State;

/// Which meeting of a communicator a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Key {
    /// The n-th collective of all ranks.
    Collective(u64),
    /// The n-th transfer between two ranks.
    Pair { from: u32, to: u32, number: u64 },
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Collective(number) => write!(f, "collective {number}"),
            Self::Pair { from, to, number } => write!(f, "transfer {number} from rank {from} to rank {to}"),
        }
    }
}

/// One collective that is being put together.
#[derive(Debug)]
pub(crate) struct Meeting {
    group: u64,
    group_name: Arc<str>,
    world: usize,
    key: Key,
    /// By rank; for a transfer the sender and then the receiver.
    pub(super) arrivals: Vec<Option<Arrival>>,
    /// Where the ranks of the communicator are, and its name there; None when all are here.
    elsewhere: Option<(Token, Vec<Home>)>,
    /// How its data travels.
    way: Way,
    /// When the first stream arrived, or since when the processes move their shares.
    pub(super) since: Option<Instant>,
    /// This process moves its share of the data, or has.
    pub(super) is_shared_out: bool,
    failure: Option<Failure>,
}

/// A rank's place in a meeting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    pub(crate) meeting: u64,
    pub(crate) position: usize,
}

/// How far a rank is in a meeting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) rank: u32,
    pub(crate) has_called: bool,
    /// The stream that waits at the call.
    pub(crate) stream: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) rank: u32,
    pub(super) call: Call,
    /// The call lies on the communicator's table.
    pub(super) is_laid: bool,
    /// Its rank counts there as one that has reached it.
    pub(super) is_at_table: bool,
    /// The stream that has reached the call and waits; None also for a rank in another process.
    pub(super) stream: Option<u64>,
    /// The rank is in another process, whose stream has reached the call.
    reached_elsewhere: bool,
}

impl Arrival {
    fn has_reached(&self) -> bool {
        self.stream.is_some() || self.reached_elsewhere
    }
}

/// All meetings that are not complete.
#[derive(Debug, Default)]
pub(crate) struct Meetings {
    open: BTreeMap<u64, Meeting>,
    by_key: BTreeMap<(u64, Key), u64>,
    /// Those with streams that wait at a table.
    at_tables: Vec<u64>,
}

impl Meetings {
    /// When the collective that waits longest began to.
    pub(crate) fn oldest_wait(&self) -> Option<Instant> {
        self.open.values().filter(|meeting| meeting.failure.is_none()).filter_map(|meeting| meeting.since).min()
    }

    /// A meeting that is not complete.
    pub(crate) fn open(&self, id: u64) -> Option<&Meeting> {
        self.open.get(&id)
    }

    /// The first meeting at which a stream waits and that lacks a call.
    pub(crate) fn first_without_all_calls(&self) -> Option<u64> {
        let lacks = |meeting: &Meeting| {
            meeting.failure.is_none() && meeting.since.is_some() && !meeting.missing_calls().is_empty()
        };
        self.open.iter().find(|(_, meeting)| lacks(meeting)).map(|(id, _)| *id)
    }

    /// The same, to be changed.
    pub(super) fn open_mut(&mut self, id: u64) -> Option<&mut Meeting> {
        self.open.get_mut(&id)
    }

    /// A stream waits for a meeting at a table.
    pub(super) fn wait_at_table(&mut self, id: u64) {
        if !self.at_tables.contains(&id) {
            self.at_tables.push(id);
        }
    }

    /// All meetings at tables for which streams wait; the caller puts those back that go on waiting.
    pub(super) fn take_waiting_at_tables(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.at_tables)
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Meeting> {
        let meeting = self.open.remove(&id)?;
        self.by_key.remove(&(meeting.group, meeting.key));
        Some(meeting)
    }

    /// Forgets all meetings of a communicator nobody holds any more.
    pub(crate) fn forget_group(&mut self, group: u64) {
        self.open.retain(|_, meeting| meeting.group != group);
        self.by_key.retain(|(of, _), _| *of != group);
    }

    /// Whether a stream waits at a meeting with ranks in other processes.
    pub(crate) fn is_any_elsewhere(&self) -> bool {
        let waits =
            |meeting: &Meeting| meeting.elsewhere.is_some() && meeting.failure.is_none() && meeting.since.is_some();
        self.open.values().any(waits)
    }

    /// The open meeting of a key.
    pub(crate) fn find(&self, group: u64, key: Key) -> Option<u64> {
        self.by_key.get(&(group, key)).copied()
    }

    pub(crate) fn of_group(&self, group: u64) -> Vec<u64> {
        self.open.iter().filter(|(_, meeting)| meeting.group == group).map(|(id, _)| *id).collect()
    }

    /// Those that may still be complete one day.
    fn unfailed_of_group(&self, group: u64) -> Vec<u64> {
        let open = self.open.iter().filter(|(_, meeting)| meeting.group == group && meeting.failure.is_none());
        open.map(|(id, _)| *id).collect()
    }
}

impl Meeting {
    /// The C function of the collective.
    pub(crate) fn name(&self) -> &'static str {
        self.arrivals.iter().flatten().next().map_or("collective", |arrival| arrival.call.name)
    }

    /// The calls of all ranks, in rank order.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &Call> {
        self.arrivals.iter().flatten().map(|arrival| &arrival.call)
    }

    /// Whether it is of all ranks of the communicator, not of two.
    pub(crate) fn is_of_all(&self) -> bool {
        matches!(self.key, Key::Collective(_))
    }

    /// The communicator.
    pub(crate) fn group(&self) -> u64 {
        self.group
    }

    /// How far each rank is.
    pub(crate) fn standing(&self) -> Vec<Part> {
        let part = |(arrival, rank): (&Option<Arrival>, u32)| Part {
            rank,
            has_called: arrival.is_some(),
            stream: arrival.as_ref().and_then(|arrival| arrival.stream),
        };
        self.arrivals.iter().zip(self.ranks()).map(part).collect()
    }

    /// The communicator's name.
    pub(crate) fn group_name(&self) -> Arc<str> {
        Arc::clone(&self.group_name)
    }

    /// The ranks with their calls and the streams that wait at them.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u32, &Call, Option<u64>)> {
        self.arrivals.iter().flatten().map(|arrival| (arrival.rank, &arrival.call, arrival.stream))
    }

    /// The communicator's token and where its ranks are, when some are in other processes.
    pub(crate) fn elsewhere(&self) -> Option<(Token, &[Home])> {
        self.elsewhere.as_ref().map(|(token, homes)| (*token, homes.as_slice()))
    }

    /// How its data travels.
    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Whether it moves its data together with other processes, and waits for them to.
    pub(crate) fn is_with_others(&self) -> bool {
        self.way == Way::Links
    }

    /// Whether its ranks meet at the communicator's table.
    pub(super) fn is_at_table(&self) -> bool {
        self.way == Way::Table && self.is_of_all()
    }

    /// Whether this process is the one that moves data which it reaches: of two ranks the receiver's.
    fn moves_here(&self) -> bool {
        match (self.key, self.way) {
            (Key::Pair { to, .. }, Way::Table) => self.home(to as usize).is_none(),
            _ => true,
        }
    }

    /// The link to the process of a rank; None when it is this one.
    pub(super) fn home(&self, rank: usize) -> Option<&Arc<Link>> {
        let (_, homes) = self.elsewhere()?;
        homes.get(rank).and_then(Home::link)
    }

    /// Whether it has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// A rank in another process, of a meeting of all ranks, has made its call.
    pub(super) fn seat_elsewhere(&mut self, position: usize, call: Call, reached_elsewhere: bool) {
        let rank = position as u32;
        let arrival = Arrival { rank, call, is_laid: true, is_at_table: true, stream: None, reached_elsewhere };
        self.arrivals[position] = Some(arrival);
    }

    /// Which of the communicator's meetings this is.
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    fn is_complete(&self) -> bool {
        self.arrivals.iter().all(|arrival| arrival.as_ref().is_some_and(Arrival::has_reached))
    }

    /// Ranks this meeting is for, by position.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        match self.key {
            Key::Collective(_) => (0..self.world as u32).collect(),
            Key::Pair { from, to, .. } => vec![from, to],
        }
    }

    fn missing_calls(&self) -> Vec<u32> {
        let ranks = self.ranks();
        self.arrivals.iter().zip(ranks).filter(|(arrival, _)| arrival.is_none()).map(|(_, rank)| rank).collect()
    }

    /// Who keeps the others waiting, for messages.
    pub(crate) fn absent(&self) -> String {
        if self.is_shared_out {
            return "other processes have not moved their shares of it".into();
        }
        let missing = self.missing_calls();
        if !missing.is_empty() {
            return format!("ranks {missing:?} have not made their call");
        }
        let behind = |arrival: &&Arrival| !arrival.has_reached();
        let behind: Vec<u32> = self.arrivals.iter().flatten().filter(behind).map(|arrival| arrival.rank).collect();
        format!("the streams of ranks {behind:?} have not reached their call")
    }

    /// Two ranks have called what cannot be one collective.
    pub(super) fn disagreement(&self, one: (u32, &Call), other: (u32, &Call)) -> Failure {
        let ((rank, call), (other, its)) = (one, other);
        let what = format!("{}: ranks disagree: rank {rank} called {call}, rank {other} called {its}", self.place());
        Failure::new(code::PARAM_INVALID, what)
    }

    /// A failure of the communicator, or of something in this meeting, with this meeting as its place; one that has a
    /// place keeps it.
    pub(crate) fn placed(&self, failure: &Failure) -> Failure {
        let name = format!("communicator {}", self.group_name);
        let message = match failure.message.strip_prefix(&name) {
            Some(rest) if rest.starts_with(", ") => return failure.clone(),
            Some(rest) => format!("{}{rest}", self.place()),
            None => format!("{}: {}", self.place(), failure.message),
        };
        Failure { message, ..failure.clone() }
    }

    /// Where it happens, for messages.
    pub(crate) fn place(&self) -> String {
        format!("communicator {}, {}", self.group_name, self.key)
    }
}

impl State {
    /// (rank, card) of everyone in a meeting.
    pub(crate) fn cards_of_meeting(&self, meeting: &Meeting) -> Vec<(u32, u32)> {
        let Ok(group) = self.hccl.groups.group(meeting.group) else { return Vec::new() };
        meeting.ranks().into_iter().map(|rank| (rank, group.cards[rank as usize])).collect()
    }

    /// Adds the next call of a rank of this process to its meeting.
    ///
    /// # Errors
    /// The communicator has failed, a rank has left it, or the call disagrees with another rank's.
    pub(crate) fn join(&mut self, group_id: u64, rank: u32, call: Call) -> Result<Seat, Failure> {
        let key = self.unbroken(group_id)?.next_key(rank, &call.kind);
        let id = self.find_or_open(group_id, key)?;
        let seat = self.seat(id, rank, call)?;
        if let Ok(group) = self.hccl.groups.group_mut(group_id) {
            group.advance_key(rank, key, seat.position);
        }
        self.lay_call(id, seat.position)?;
        Ok(seat)
    }

    /// Adds a call of which a rank of another process has told.
    ///
    /// # Errors
    /// As [`State::join`].
    pub(crate) fn join_from_elsewhere(
        &mut self,
        group_id: u64,
        rank: u32,
        key: Key,
        call: Call,
    ) -> Result<(), Failure> {
        self.unbroken(group_id)?;
        let id = self.find_or_open(group_id, key)?;
        self.seat(id, rank, call).map(drop)
    }

    fn unbroken(&self, group: u64) -> Result<&Group, Failure> {
        let group = self.hccl.groups.group(group)?;
        group.failure.clone().map_or(Ok(group), Err)
    }

    /// The meeting of a key, which the first call opens.
    fn find_or_open(&mut self, group_id: u64, key: Key) -> Result<u64, Failure> {
        if let Some(id) = self.hccl.meetings.find(group_id, key) {
            return Ok(id);
        }
        let id = self.fresh_number();
        let group = self.hccl.groups.group_mut(group_id)?;
        let world = group.cards.len();
        let Some(way) = group.way else {
            let what = format!("communicator {} is used before its ranks have entered it", group.name);
            return Err(Failure::new(code::HCCL_INTERNAL, what));
        };
        let parts = if matches!(key, Key::Collective(_)) { world } else { 2 };
        if let (Key::Collective(number), Way::Table) = (key, way) {
            group.running.insert(number);
        }
        let meeting = Meeting {
            group: group_id,
            group_name: Arc::clone(&group.name),
            world,
            key,
            arrivals: (0..parts).map(|_| None).collect(),
            elsewhere: (!group.is_local()).then(|| group.token.zip(Some(group.homes.clone()))).flatten(),
            way,
            since: None,
            is_shared_out: false,
            failure: None,
        };
        self.hccl.meetings.open.insert(id, meeting);
        self.hccl.meetings.by_key.insert((group_id, key), id);
        Ok(id)
    }

    /// Gives a rank's call its place in a meeting, if all agree, and tells the other processes.
    fn seat(&mut self, id: u64, rank: u32, call: Call) -> Result<Seat, Failure> {
        let group = self.hccl.meetings.open(id).map(|meeting| meeting.group).unwrap_or_default();
        let departures = self.hccl.groups.group(group)?.departures.clone();
        if !departures.is_empty() {
            // Of those that left, the calls that they made before.
            self.read_calls(id)?;
        }
        let Some(meeting) = self.hccl.meetings.open.get(&id) else {
            return Err(Failure::new(code::HCCL_INTERNAL, format!("meeting {id} is listed but does not exist")));
        };
        let (key, is_at_table) = (meeting.key, meeting.is_at_table());
        if let Some(gone) = departures.into_iter().find(|gone| meeting.missing_calls().contains(gone)) {
            let what = format!("{}: rank {rank} calls {call}, but rank {gone} has left", meeting.place());
            let failure = Failure::new(code::REMOTE, what);
            self.abort_meeting(id, &failure);
            return Err(failure);
        }
        let disagrees = |other: &&Arrival| !call.agrees(rank, &other.call, other.rank);
        if let Some(other) = meeting.arrivals.iter().flatten().find(disagrees) {
            let failure = meeting.disagreement((other.rank, &other.call), (rank, &call));
            self.break_group(group, &failure);
            return Err(failure);
        }
        let position = match (&call.kind, key) {
            (Kind::Send { .. }, _) => 0,
            (Kind::Recv { .. }, _) => 1,
            _ => rank as usize,
        };
        if !is_at_table {
            self.tell_called(group, rank, key, &call);
        }
        if let Some(meeting) = self.hccl.meetings.open.get_mut(&id) {
            let arrival =
                Arrival { rank, call, is_laid: false, is_at_table: false, stream: None, reached_elsewhere: false };
            meeting.arrivals[position] = Some(arrival);
        }
        Ok(Seat { meeting: id, position })
    }

    /// A stream has reached its rank's call.
    pub(crate) fn arrive(&mut self, seat: Seat, stream: u64) {
        let now = self.scheduler.now();
        let Some(meeting) = self.hccl.meetings.open.get_mut(&seat.meeting) else {
            self.settle(stream, Err(left_by_peer("its communicator was destroyed")));
            return;
        };
        if let Some(failure) = meeting.failure.clone() {
            self.settle(stream, Err(failure));
            return;
        }
        let (group, key) = (meeting.group, meeting.key);
        let mut rank = None;
        if let Some(arrival) = &mut meeting.arrivals[seat.position] {
            arrival.stream = Some(stream);
            rank = Some(arrival.rank);
        }
        let since = *meeting.since.get_or_insert(now);
        let (is_at_table, is_elsewhere) = (meeting.is_at_table(), meeting.elsewhere.is_some());
        self.scheduler.limit(since + self.scheduler.exec_timeout);
        if is_at_table {
            self.hccl.meetings.wait_at_table(seat.meeting);
            self.advance_at_table(seat.meeting);
            return;
        }
        if let Some(rank) = rank
            && is_elsewhere
        {
            self.tell_reached(group, rank, key);
        }
        self.launch_if_complete(seat.meeting);
    }

    /// The stream of a rank in another process has reached its call.
    pub(crate) fn arrive_elsewhere(&mut self, group: u64, rank: u32, key: Key) {
        let now = self.scheduler.now();
        let Some(id) = self.hccl.meetings.find(group, key) else { return };
        let Some(meeting) = self.hccl.meetings.open.get_mut(&id) else { return };
        for arrival in meeting.arrivals.iter_mut().flatten().filter(|arrival| arrival.rank == rank) {
            arrival.reached_elsewhere = true;
        }
        meeting.since.get_or_insert(now);
        if meeting.failure.is_none() {
            self.launch_if_complete(id);
        }
    }

    pub(super) fn launch_if_complete(&mut self, id: u64) {
        let Some(meeting) = self.hccl.meetings.open.get_mut(&id) else { return };
        if meeting.is_complete()
            && meeting.moves_here()
            && let Some(meeting) = self.hccl.meetings.remove(id)
        {
            self.scheduler.launches.push(Launch::Meeting(Box::new(meeting)));
        }
    }

    /// A launched meeting has moved its data.
    pub(crate) fn end_meeting(&mut self, meeting: &Meeting, outcome: &Result<(), Failure>) {
        match outcome {
            Ok(()) => self.tell_moved(meeting),
            Err(failure) => self.break_meeting(meeting.group, Some(meeting.key), failure),
        }
        self.let_go(meeting, outcome);
        if meeting.is_at_table() {
            // Its place is free for another, which may be waiting for one.
            self.look_at_tables();
        }
    }

    /// The streams that wait in a meeting go on.
    pub(super) fn let_go(&mut self, meeting: &Meeting, outcome: &Result<(), Failure>) {
        if let (Key::Collective(number), Ok(group)) = (meeting.key, self.hccl.groups.group_mut(meeting.group)) {
            group.running.remove(&number);
        }
        if let Some(strict) = &mut self.strict {
            strict.order.met(meeting);
        }
        for arrival in meeting.arrivals.iter().flatten() {
            if let Some(stream) = arrival.stream {
                self.settle(stream, outcome.clone());
            }
        }
    }

    /// The data of a transfer between two ranks is where it belongs; the process that moved it says so.
    pub(crate) fn end_moved(&mut self, group: u64, key: Key) {
        if let Some(meeting) = self.hccl.meetings.find(group, key).and_then(|id| self.hccl.meetings.remove(id)) {
            self.let_go(&meeting, &Ok(()));
        }
    }

    /// Fails a meeting for every rank: those that wait now, the others when their streams reach it.
    pub(crate) fn abort_meeting(&mut self, id: u64, failure: &Failure) {
        let Some(meeting) = self.hccl.meetings.open.get_mut(&id) else { return };
        if meeting.failure.is_some() {
            return;
        }
        meeting.failure = Some(failure.clone());
        let waiting: Vec<u64> = meeting.arrivals.iter_mut().flatten().filter_map(|a| a.stream.take()).collect();
        for stream in waiting {
            self.settle(stream, Err(failure.clone()));
        }
    }

    /// Fails a communicator in all its processes.
    pub(crate) fn break_group(&mut self, group: u64, failure: &Failure) {
        self.break_meeting(group, None, failure);
    }

    /// Fails a communicator, and its meeting `key`, in all its processes.
    fn break_meeting(&mut self, group: u64, key: Option<Key>, failure: &Failure) {
        // A failed communicator has been told of, but not that this meeting fails too.
        if key.is_some() || self.hccl.groups.group(group).is_ok_and(|group| group.failure.is_none()) {
            self.tell_broken(group, key, failure);
        }
        self.break_group_here(group, failure);
    }

    /// Fails all meetings of a communicator one of whose processes is gone.
    pub(crate) fn fail_group_here(&mut self, group: u64, failure: &Failure) {
        for id in self.hccl.meetings.unfailed_of_group(group) {
            let placed = self.hccl.meetings.open[&id].placed(failure);
            self.abort_meeting(id, &placed);
        }
        self.break_group_here(group, failure);
    }

    /// Fails a communicator in this process: later calls on it are refused, meetings that lack a call can never be
    /// complete.
    pub(crate) fn break_group_here(&mut self, group: u64, failure: &Failure) {
        let Ok(broken) = self.hccl.groups.group_mut(group) else { return };
        broken.failure.get_or_insert_with(|| failure.clone());
        self.scheduler.has_progressed = true;
        for id in self.hccl.meetings.unfailed_of_group(group) {
            self.know_calls(id);
            let meeting = &self.hccl.meetings.open[&id];
            if !meeting.missing_calls().is_empty() {
                let placed = meeting.placed(failure);
                self.abort_meeting(id, &placed);
            }
        }
    }

    /// Fails a meeting one of whose calls will never be reached, and with it the communicator.
    pub(crate) fn abandon_meeting(&mut self, id: u64, failure: &Failure) {
        let Some(meeting) = self.hccl.meetings.open.get(&id) else { return };
        let (group, key, place) = (meeting.group, meeting.key, meeting.place());
        let failure = Failure { message: format!("{place}: {}", failure.message), ..failure.clone() };
        self.abort_meeting(id, &failure);
        self.break_meeting(group, Some(key), &failure);
    }

    /// Fails a meeting and its communicator, in all processes, with a failure that says where.
    pub(crate) fn fail_meeting(&mut self, id: u64, failure: &Failure) {
        let Some((group, key)) = self.hccl.meetings.open.get(&id).map(|meeting| (meeting.group, meeting.key)) else {
            return;
        };
        self.abort_meeting(id, failure);
        self.break_meeting(group, Some(key), failure);
    }

    /// A stream that waits in meetings goes away.
    pub(crate) fn leave_meetings(&mut self, stream: u64, failure: &Failure) {
        let waits = |meeting: &Meeting| meeting.arrivals.iter().flatten().any(|a| a.stream == Some(stream));
        let left: Vec<u64> = self.hccl.meetings.open.iter().filter(|(_, m)| waits(m)).map(|(id, _)| *id).collect();
        for id in left {
            self.abandon_meeting(id, failure);
        }
    }

    /// A rank of this process leaves its communicator: meetings that lack its call fail for the others.
    pub(crate) fn leave_group(&mut self, group: u64, rank: u32, why: &str) {
        if let Ok(group) = self.hccl.groups.group(group) {
            group.post(|group| Message::Left { group, rank, why: why.into() });
        }
        self.leave_group_here(group, rank, why);
    }

    /// A rank has left its communicator: meetings of this process that lack its call fail.
    pub(crate) fn leave_group_here(&mut self, group: u64, rank: u32, why: &str) {
        for id in self.hccl.meetings.unfailed_of_group(group) {
            self.know_calls(id);
            let meeting = &self.hccl.meetings.open[&id];
            if meeting.missing_calls().contains(&rank) {
                let what = format!("{}: rank {rank} has left: {why}", meeting.place());
                self.abort_meeting(id, &Failure::new(code::REMOTE, what));
            }
        }
    }

    /// Takes what lies on a meeting's table, before it fails for want of it; what cannot be read is not there.
    fn know_calls(&mut self, id: u64) {
        let _unreadable = self.read_calls(id);
    }

    /// Fails meetings in which a rank has waited too long.
    pub(crate) fn expire_meetings(&mut self) {
        self.look_at_tables();
        let (now, limit) = (self.scheduler.now(), self.scheduler.exec_timeout);
        let late = |m: &Meeting| m.failure.is_none() && m.since.is_some_and(|since| now >= since + limit);
        let expired: Vec<u64> = self.hccl.meetings.open.iter().filter(|(_, m)| late(m)).map(|(id, _)| *id).collect();
        for id in expired {
            self.know_calls(id);
            let meeting = &self.hccl.meetings.open[&id];
            let what = format!(
                "{}: no data after {} s (HCCL_EXEC_TIMEOUT); {}",
                meeting.place(),
                limit.as_secs(),
                meeting.absent()
            );
            self.abandon_meeting(id, &Failure::new(code::TASK_TIMEOUT, what));
        }
        self.expire_moving();
    }

    /// Fails those whose data has moved over links for too long; false when there are none.
    pub(crate) fn expire_moving(&mut self) -> bool {
        let (now, limit) = (self.scheduler.now(), self.scheduler.exec_timeout);
        let mut is_any_over = false;
        for ((group, key), _) in self.hccl.groups.moving.iter().filter(|(_, since)| now >= **since + limit) {
            self.hccl.groups.board.expire(*group, *key, limit);
            is_any_over = true;
        }
        is_any_over
    }
}
