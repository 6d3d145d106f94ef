//! Meetings: the calls of all ranks that make up one collective, from the first call to the last arrival.
//!
//! Input: calls in the order each rank makes them; streams that reach them. Output: a complete meeting, launched once;
//! or one failure, told to every rank. Invariants: the n-th collective call of each rank on a communicator belongs to
//! the n-th meeting, sends and receives are counted per pair of ranks; calls are compared as soon as they are made.
//! Does not: move data (see `perform`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::base::failure::{Failure, code};
use crate::hccl::CollectiveCall;
use crate::hccl::group::Way;
use crate::hccl::key::Key;
use crate::hccl::link::connection::Link;
use crate::hccl::link::wire::Token;
use crate::hccl::rank_location::RankLocation;

/// One collective that is being put together.
#[derive(Debug)]
pub(crate) struct Meeting {
    pub(super) group: u64,
    pub(super) group_name: Arc<str>,
    pub(super) world: usize,
    pub(super) key: Key,
    /// By rank; for a transfer the sender and then the receiver.
    pub(super) arrivals: Vec<Option<Arrival>>,
    /// Where the ranks of the communicator are, and its name there; None when all are here.
    pub(super) elsewhere: Option<(Token, Vec<RankLocation>)>,
    /// How its data travels.
    pub(super) way: Way,
    /// When the first stream arrived, or since when the processes move their shares.
    pub(super) since: Option<Instant>,
    /// This process moves its share of the data, or has.
    pub(super) is_shared_out: bool,
    pub(super) failure: Option<Failure>,
}

/// A rank's place in a meeting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RankPlace {
    pub(crate) meeting: u64,
    pub(crate) position: usize,
}

/// How far a rank is in a meeting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RankStanding {
    pub(crate) rank: u32,
    pub(crate) has_called: bool,
    /// The stream that waits at the call.
    pub(crate) stream: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) rank: u32,
    pub(super) call: CollectiveCall,
    /// The call lies on the communicator's table.
    pub(super) is_laid: bool,
    /// Its rank counts there as one that has reached it.
    pub(super) is_at_table: bool,
    /// The stream that has reached the call and waits; None also for a rank in another process.
    pub(super) stream: Option<u64>,
    /// The rank is in another process, whose stream has reached the call.
    pub(super) reached_elsewhere: bool,
}

impl Arrival {
    fn has_reached(&self) -> bool {
        self.stream.is_some() || self.reached_elsewhere
    }
}

/// All meetings that are not complete.
#[derive(Debug, Default)]
pub(crate) struct Meetings {
    pub(super) open: BTreeMap<u64, Meeting>,
    pub(super) by_key: BTreeMap<(u64, Key), u64>,
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
    pub(super) fn unfailed_of_group(&self, group: u64) -> Vec<u64> {
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
    pub(crate) fn calls(&self) -> impl Iterator<Item = &CollectiveCall> {
        self.arrivals.iter().flatten().map(|arrival| &arrival.call)
    }

    /// Whether it is of all ranks of the communicator, not of two.
    pub(crate) fn is_of_all(&self) -> bool {
        matches!(self.key, Key::Collective(_))
    }

    pub(crate) fn group(&self) -> u64 {
        self.group
    }

    /// How far each rank is.
    pub(crate) fn standing(&self) -> Vec<RankStanding> {
        let part = |(arrival, rank): (&Option<Arrival>, u32)| RankStanding {
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
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u32, &CollectiveCall, Option<u64>)> {
        self.arrivals.iter().flatten().map(|arrival| (arrival.rank, &arrival.call, arrival.stream))
    }

    /// The communicator's token and where its ranks are, when some are in other processes.
    pub(crate) fn elsewhere(&self) -> Option<(Token, &[RankLocation])> {
        self.elsewhere.as_ref().map(|(token, rank_locations)| (*token, rank_locations.as_slice()))
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
    pub(super) fn moves_here(&self) -> bool {
        match (self.key, self.way) {
            (Key::Pair { to, .. }, Way::Table) => self.location(to as usize).is_none(),
            _ => true,
        }
    }

    /// The link to the process of a rank; None when it is this one.
    pub(super) fn location(&self, rank: usize) -> Option<&Arc<Link>> {
        let (_, rank_locations) = self.elsewhere()?;
        rank_locations.get(rank).and_then(RankLocation::link)
    }

    /// Whether it has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// A rank in another process, of a meeting of all ranks, has made its call.
    pub(super) fn place_rank_elsewhere(&mut self, position: usize, call: CollectiveCall, reached_elsewhere: bool) {
        let rank = position as u32;
        let arrival = Arrival { rank, call, is_laid: true, is_at_table: true, stream: None, reached_elsewhere };
        self.arrivals[position] = Some(arrival);
    }

    /// Which of the communicator's meetings this is.
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn is_complete(&self) -> bool {
        self.arrivals.iter().all(|arrival| arrival.as_ref().is_some_and(Arrival::has_reached))
    }

    /// Ranks this meeting is for, by position.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        match self.key {
            Key::Collective(_) => (0..self.world as u32).collect(),
            Key::Pair { from, to, .. } => vec![from, to],
        }
    }

    pub(super) fn missing_calls(&self) -> Vec<u32> {
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
    pub(super) fn disagreement(&self, one: (u32, &CollectiveCall), other: (u32, &CollectiveCall)) -> Failure {
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
