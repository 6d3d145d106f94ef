//! Meetings: the matched calls of all ranks of one collective, from the first call to the last
//! arrival.
//!
//! Input: calls in the order each rank makes them, and streams that reach them. Output: a complete
//! meeting, launched once, or one failure on every rank.
//!
//! Invariants:
//! - The n-th collective call of each rank on a communicator belongs to the n-th meeting. Sends and
//!   receives are counted per pair of ranks.
//! - Each call is compared at once.
//!
//! Not here: data transfer (see `perform`).

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

/// One collective that is not complete yet.
#[derive(Debug)]
pub(crate) struct Meeting {
    pub(super) group: u64,
    pub(super) group_name: Arc<str>,
    pub(super) world: usize,
    pub(super) key: Key,
    /// Calls by rank. A transfer has the sender first, then the receiver.
    pub(super) arrivals: Vec<Option<Arrival>>,
    /// Token of the communicator and locations of all ranks. `None` if all ranks are local.
    pub(super) elsewhere: Option<(Token, Vec<RankLocation>)>,
    pub(super) way: Way,
    /// Time of the first arrival, or the time when the processes started their shares.
    pub(super) since: Option<Instant>,
    /// This process has started its share of the data.
    pub(super) is_shared_out: bool,
    pub(super) failure: Option<Failure>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RankPlace {
    pub(crate) meeting: u64,
    pub(crate) position: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RankStanding {
    pub(crate) rank: u32,
    pub(crate) has_called: bool,
    pub(crate) stream: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) rank: u32,
    pub(super) call: CollectiveCall,
    /// The call is written to the communicator's table.
    pub(super) is_laid: bool,
    /// The table counts the rank as arrived.
    pub(super) is_at_table: bool,
    /// Stream that has reached the call and waits. `None` for a remote rank.
    pub(super) stream: Option<u64>,
    /// The stream of a remote rank has reached the call.
    pub(super) reached_elsewhere: bool,
}

impl Arrival {
    fn has_reached(&self) -> bool {
        self.stream.is_some() || self.reached_elsewhere
    }
}

/// The meetings that are not complete.
#[derive(Debug, Default)]
pub(crate) struct Meetings {
    pub(super) open: BTreeMap<u64, Meeting>,
    pub(super) by_key: BTreeMap<(u64, Key), u64>,
    /// Meetings in a table for which local streams wait.
    at_tables: Vec<u64>,
}

impl Meetings {
    /// Returns when the longest wait of a collective began.
    pub(crate) fn oldest_wait(&self) -> Option<Instant> {
        self.open
            .values()
            .filter(|meeting| meeting.failure.is_none())
            .filter_map(|meeting| meeting.since)
            .min()
    }

    /// Returns a meeting that is not complete.
    pub(crate) fn open(&self, id: u64) -> Option<&Meeting> {
        self.open.get(&id)
    }

    /// Returns the first meeting that lacks a call and for which a stream waits.
    pub(crate) fn first_without_all_calls(&self) -> Option<u64> {
        let lacks = |meeting: &Meeting| {
            meeting.failure.is_none() && meeting.since.is_some() && !meeting.missing_calls().is_empty()
        };
        self.open.iter().find(|(_, meeting)| lacks(meeting)).map(|(id, _)| *id)
    }

    pub(super) fn open_mut(&mut self, id: u64) -> Option<&mut Meeting> {
        self.open.get_mut(&id)
    }

    pub(super) fn wait_at_table(&mut self, id: u64) {
        if !self.at_tables.contains(&id) {
            self.at_tables.push(id);
        }
    }

    /// Takes the list of meetings in tables for which streams wait. The caller adds the unfinished
    /// meetings again.
    pub(super) fn take_waiting_at_tables(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.at_tables)
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Meeting> {
        let meeting = self.open.remove(&id)?;
        self.by_key.remove(&(meeting.group, meeting.key));
        Some(meeting)
    }

    pub(crate) fn forget_group(&mut self, group: u64) {
        self.open.retain(|_, meeting| meeting.group != group);
        self.by_key.retain(|(of, _), _| *of != group);
    }

    pub(crate) fn is_any_elsewhere(&self) -> bool {
        let waits = |meeting: &Meeting| {
            meeting.elsewhere.is_some() && meeting.failure.is_none() && meeting.since.is_some()
        };
        self.open.values().any(waits)
    }

    pub(crate) fn find(&self, group: u64, key: Key) -> Option<u64> {
        self.by_key.get(&(group, key)).copied()
    }

    pub(crate) fn of_group(&self, group: u64) -> Vec<u64> {
        self.open.iter().filter(|(_, meeting)| meeting.group == group).map(|(id, _)| *id).collect()
    }

    pub(super) fn unfailed_of_group(&self, group: u64) -> Vec<u64> {
        let open =
            self.open.iter().filter(|(_, meeting)| meeting.group == group && meeting.failure.is_none());
        open.map(|(id, _)| *id).collect()
    }
}

impl Meeting {
    pub(crate) fn name(&self) -> &'static str {
        self.arrivals.iter().flatten().next().map_or("collective", |arrival| arrival.call.name)
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = &CollectiveCall> {
        self.arrivals.iter().flatten().map(|arrival| &arrival.call)
    }

    /// Returns whether the meeting includes all ranks of the communicator instead of two.
    pub(crate) fn is_of_all(&self) -> bool {
        matches!(self.key, Key::Collective(_))
    }

    pub(crate) fn group(&self) -> u64 {
        self.group
    }

    pub(crate) fn standing(&self) -> Vec<RankStanding> {
        let part = |(arrival, rank): (&Option<Arrival>, u32)| RankStanding {
            rank,
            has_called: arrival.is_some(),
            stream: arrival.as_ref().and_then(|arrival| arrival.stream),
        };
        self.arrivals.iter().zip(self.ranks()).map(part).collect()
    }

    pub(crate) fn group_name(&self) -> Arc<str> {
        Arc::clone(&self.group_name)
    }

    /// Returns the ranks with their calls and their waiting streams.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u32, &CollectiveCall, Option<u64>)> {
        self.arrivals.iter().flatten().map(|arrival| (arrival.rank, &arrival.call, arrival.stream))
    }

    /// Returns the communicator's token and the locations of all ranks, if some ranks are remote.
    pub(crate) fn elsewhere(&self) -> Option<(Token, &[RankLocation])> {
        self.elsewhere.as_ref().map(|(token, rank_locations)| (*token, rank_locations.as_slice()))
    }

    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Returns whether the data transfer waits for other processes.
    pub(crate) fn is_with_others(&self) -> bool {
        self.way == Way::Links
    }

    pub(super) fn is_at_table(&self) -> bool {
        self.way == Way::Table && self.is_of_all()
    }

    /// Returns whether this process copies the data. For a transfer through shared memory, the
    /// receiver's process does.
    pub(super) fn moves_here(&self) -> bool {
        match (self.key, self.way) {
            (Key::Pair { to, .. }, Way::Table) => self.location(to as usize).is_none(),
            _ => true,
        }
    }

    /// Returns the link to the process of a rank. `None` if the rank is local.
    pub(super) fn location(&self, rank: usize) -> Option<&Arc<Link>> {
        let (_, rank_locations) = self.elsewhere()?;
        rank_locations.get(rank).and_then(RankLocation::link)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(super) fn place_rank_elsewhere(
        &mut self,
        position: usize,
        call: CollectiveCall,
        reached_elsewhere: bool,
    ) {
        let rank = position as u32;
        let arrival =
            Arrival { rank, call, is_laid: true, is_at_table: true, stream: None, reached_elsewhere };
        self.arrivals[position] = Some(arrival);
    }

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn is_complete(&self) -> bool {
        self.arrivals.iter().all(|arrival| arrival.as_ref().is_some_and(Arrival::has_reached))
    }

    pub(crate) fn ranks(&self) -> Vec<u32> {
        match self.key {
            Key::Collective(_) => (0..self.world as u32).collect(),
            Key::Pair { from, to, .. } => vec![from, to],
        }
    }

    pub(super) fn missing_calls(&self) -> Vec<u32> {
        let ranks = self.ranks();
        self.arrivals
            .iter()
            .zip(ranks)
            .filter(|(arrival, _)| arrival.is_none())
            .map(|(_, rank)| rank)
            .collect()
    }

    pub(crate) fn absent(&self) -> String {
        if self.is_shared_out {
            return "other processes have not moved their shares of it".into();
        }
        let missing = self.missing_calls();
        if !missing.is_empty() {
            return format!("ranks {missing:?} have not made their call");
        }
        let behind = |arrival: &&Arrival| !arrival.has_reached();
        let behind: Vec<u32> =
            self.arrivals.iter().flatten().filter(behind).map(|arrival| arrival.rank).collect();
        format!("the streams of ranks {behind:?} have not reached their call")
    }

    /// Returns the failure for two calls that cannot belong to one collective.
    pub(super) fn disagreement(&self, one: (u32, &CollectiveCall), other: (u32, &CollectiveCall)) -> Failure {
        let ((rank, call), (other, its)) = (one, other);
        let what =
            format!("{}: ranks disagree: rank {rank} called {call}, rank {other} called {its}", self.place());
        Failure::new(code::PARAM_INVALID, what)
    }

    /// Adds this meeting as the location to a failure. A failure that already has a location keeps
    /// it.
    pub(crate) fn placed(&self, failure: &Failure) -> Failure {
        let name = format!("communicator {}", self.group_name);
        let message = match failure.message.strip_prefix(&name) {
            Some(rest) if rest.starts_with(", ") => return failure.clone(),
            Some(rest) => format!("{}{rest}", self.place()),
            None => format!("{}: {}", self.place(), failure.message),
        };
        Failure { message, ..failure.clone() }
    }

    /// Returns the location of a failure, for messages.
    pub(crate) fn place(&self) -> String {
        format!("communicator {}, {}", self.group_name, self.key)
    }
}
