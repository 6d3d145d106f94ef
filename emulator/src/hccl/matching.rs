//! Matching: the calls of all ranks of one collective, from the first call to the last arrival.
//!
//! Invariants:
//! - The n-th collective call of each rank on a communicator belongs to the n-th matching. Sends
//!   and receives are counted per pair of ranks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::base::failure::{Failure, code};
use crate::hccl::CollectiveCall;
use crate::hccl::communicator::ChosenTransport;
use crate::hccl::key::Key;
use crate::hccl::rank_location::RankLocation;
use crate::hccl::tcp::connection::PeerLink;
use crate::hccl::tcp::wire::CommunicatorToken;

#[derive(Debug)]
pub(crate) struct Matching {
    pub(super) communicator: u64,
    pub(super) communicator_name: Arc<str>,
    pub(super) world: usize,
    pub(super) key: Key,
    /// Calls by rank; a transfer has the sender first, then the receiver.
    pub(super) arrivals: Vec<Option<CollectiveArrival>>,
    /// Token and rank locations. `None` if all ranks are local.
    pub(super) elsewhere: Option<(CommunicatorToken, Vec<RankLocation>)>,
    pub(super) transport: ChosenTransport,
    /// First arrival, or the start of the processes' shares.
    pub(super) since: Option<Instant>,
    pub(super) is_shared_out: bool,
    pub(super) failure: Option<Failure>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RankPlace {
    pub(crate) matching: u64,
    pub(crate) position: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RankStanding {
    pub(crate) rank: u32,
    pub(crate) has_called: bool,
    pub(crate) stream: Option<u64>,
}

#[derive(Debug)]
pub(super) struct CollectiveArrival {
    pub(super) rank: u32,
    pub(super) call: CollectiveCall,
    pub(super) is_laid: bool,
    pub(super) in_shared_memory: bool,
    /// Waiting stream, if the rank is local.
    pub(super) stream: Option<u64>,
    pub(super) reached_elsewhere: bool,
}

impl CollectiveArrival {
    fn has_reached(&self) -> bool {
        self.stream.is_some() || self.reached_elsewhere
    }
}

#[derive(Debug, Default)]
pub(crate) struct Matchings {
    pub(super) open: BTreeMap<u64, Matching>,
    pub(super) by_key: BTreeMap<(u64, Key), u64>,
    /// Local streams wait for these matchings in tables.
    waiting_in_tables: Vec<u64>,
}

impl Matchings {
    pub(crate) fn oldest_wait(&self) -> Option<Instant> {
        self.open
            .values()
            .filter(|matching| matching.failure.is_none())
            .filter_map(|matching| matching.since)
            .min()
    }

    pub(crate) fn open(&self, id: u64) -> Option<&Matching> {
        self.open.get(&id)
    }

    pub(crate) fn first_without_all_calls(&self) -> Option<u64> {
        let lacks = |matching: &Matching| {
            matching.failure.is_none() && matching.since.is_some() && !matching.missing_calls().is_empty()
        };
        self.open.iter().find(|(_, matching)| lacks(matching)).map(|(id, _)| *id)
    }

    pub(super) fn open_mut(&mut self, id: u64) -> Option<&mut Matching> {
        self.open.get_mut(&id)
    }

    pub(super) fn wait_in_table(&mut self, id: u64) {
        if !self.waiting_in_tables.contains(&id) {
            self.waiting_in_tables.push(id);
        }
    }

    /// The caller adds unfinished matchings again.
    pub(super) fn take_waiting_in_tables(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.waiting_in_tables)
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Matching> {
        let matching = self.open.remove(&id)?;
        self.by_key.remove(&(matching.communicator, matching.key));
        Some(matching)
    }

    pub(crate) fn forget_communicator(&mut self, communicator: u64) {
        self.open.retain(|_, matching| matching.communicator != communicator);
        self.by_key.retain(|(of, _), _| *of != communicator);
    }

    pub(crate) fn is_any_elsewhere(&self) -> bool {
        let waits = |matching: &Matching| {
            matching.elsewhere.is_some() && matching.failure.is_none() && matching.since.is_some()
        };
        self.open.values().any(waits)
    }

    pub(crate) fn find(&self, communicator: u64, key: Key) -> Option<u64> {
        self.by_key.get(&(communicator, key)).copied()
    }

    pub(crate) fn of_communicator(&self, communicator: u64) -> Vec<u64> {
        self.open
            .iter()
            .filter(|(_, matching)| matching.communicator == communicator)
            .map(|(id, _)| *id)
            .collect()
    }

    pub(super) fn unfailed_of_communicator(&self, communicator: u64) -> Vec<u64> {
        let open = self
            .open
            .iter()
            .filter(|(_, matching)| matching.communicator == communicator && matching.failure.is_none());
        open.map(|(id, _)| *id).collect()
    }
}

impl Matching {
    pub(crate) fn name(&self) -> &'static str {
        self.arrivals.iter().flatten().next().map_or("collective", |arrival| arrival.call.name)
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = &CollectiveCall> {
        self.arrivals.iter().flatten().map(|arrival| &arrival.call)
    }

    /// Returns false for a transfer between two ranks.
    pub(crate) fn is_of_all(&self) -> bool {
        matches!(self.key, Key::Collective(_))
    }

    pub(crate) fn communicator(&self) -> u64 {
        self.communicator
    }

    pub(crate) fn standing(&self) -> Vec<RankStanding> {
        let part = |(arrival, rank): (&Option<CollectiveArrival>, u32)| RankStanding {
            rank,
            has_called: arrival.is_some(),
            stream: arrival.as_ref().and_then(|arrival| arrival.stream),
        };
        self.arrivals.iter().zip(self.ranks()).map(part).collect()
    }

    pub(crate) fn communicator_name(&self) -> Arc<str> {
        Arc::clone(&self.communicator_name)
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = (u32, &CollectiveCall, Option<u64>)> {
        self.arrivals.iter().flatten().map(|arrival| (arrival.rank, &arrival.call, arrival.stream))
    }

    pub(crate) fn elsewhere(&self) -> Option<(CommunicatorToken, &[RankLocation])> {
        self.elsewhere.as_ref().map(|(token, rank_locations)| (*token, rank_locations.as_slice()))
    }

    pub(crate) fn transport(&self) -> ChosenTransport {
        self.transport
    }

    /// Returns true if the data transfer waits for other processes.
    pub(crate) fn is_with_others(&self) -> bool {
        self.transport == ChosenTransport::Tcp
    }

    pub(super) fn in_shared_memory(&self) -> bool {
        self.transport == ChosenTransport::SharedMemory && self.is_of_all()
    }

    /// In a transfer through shared memory, the receiver's process copies the data.
    pub(super) fn moves_here(&self) -> bool {
        match (self.key, self.transport) {
            (Key::Pair { to, .. }, ChosenTransport::SharedMemory) => self.location(to as usize).is_none(),
            _ => true,
        }
    }

    pub(super) fn location(&self, rank: usize) -> Option<&Arc<PeerLink>> {
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
        let arrival = CollectiveArrival {
            rank,
            call,
            is_laid: true,
            in_shared_memory: true,
            stream: None,
            reached_elsewhere,
        };
        self.arrivals[position] = Some(arrival);
    }

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn is_complete(&self) -> bool {
        self.arrivals.iter().all(|arrival| arrival.as_ref().is_some_and(CollectiveArrival::has_reached))
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
            return "other processes have not transferred their shares".into();
        }
        let missing = self.missing_calls();
        if !missing.is_empty() {
            return format!("ranks {missing:?} have not made their call");
        }
        let behind = |arrival: &&CollectiveArrival| !arrival.has_reached();
        let behind: Vec<u32> =
            self.arrivals.iter().flatten().filter(behind).map(|arrival| arrival.rank).collect();
        format!("the streams of ranks {behind:?} have not reached their call")
    }

    pub(super) fn disagreement(
        &self,
        rank: u32,
        call: &CollectiveCall,
        other: u32,
        its: &CollectiveCall,
    ) -> Failure {
        let what =
            format!("{}: ranks disagree: rank {rank} called {call}, rank {other} called {its}", self.place());
        Failure::new(code::PARAM_INVALID, what)
    }

    pub(crate) fn placed(&self, failure: &Failure) -> Failure {
        let name = format!("communicator {}", self.communicator_name);
        let message = match failure.message.strip_prefix(&name) {
            Some(rest) if rest.starts_with(", ") => return failure.clone(),
            Some(rest) => format!("{}{rest}", self.place()),
            None => format!("{}: {}", self.place(), failure.message),
        };
        Failure { message, ..failure.clone() }
    }

    pub(crate) fn place(&self) -> String {
        format!("communicator {}, {}", self.communicator_name, self.key)
    }
}
