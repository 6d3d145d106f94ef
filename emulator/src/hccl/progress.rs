//! Progress of collectives, from the calls of the ranks to the end of their streams' waits.
//!
//! Invariants:
//! - A collective copies its data once, after every rank has arrived.
//! - A failure of a communicator reaches all its ranks.

use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::hccl::communicator::{ChosenTransport, HcclCommunicator};
use crate::hccl::key::Key;
use crate::hccl::matching::{CollectiveArrival, Matching, RankPlace};
use crate::hccl::tcp::wire::WireMessage;
use crate::hccl::{CollectiveCall, CollectiveOperation};
use crate::scheduler::launch::ReadyLaunch;
use crate::state::MachineState;

impl MachineState {
    pub(crate) fn cards_of_matching(&self, matching: &Matching) -> Vec<(u32, u32)> {
        let Ok(communicator) = self.hccl.communicators.communicator(matching.communicator) else {
            return Vec::new();
        };
        matching.ranks().into_iter().map(|rank| (rank, communicator.cards[rank as usize])).collect()
    }

    /// Fails if the communicator has failed, a rank has left it, or the call disagrees with another
    /// rank's call.
    pub(crate) fn join(
        &mut self,
        communicator_id: u64,
        rank: u32,
        call: CollectiveCall,
    ) -> Result<RankPlace, Failure> {
        let key = self.unbroken(communicator_id)?.next_key(rank, &call.kind);
        let id = self.find_or_open(communicator_id, key)?;
        let rank_place = self.place_rank(id, rank, call)?;
        if let Ok(communicator) = self.hccl.communicators.communicator_mut(communicator_id) {
            communicator.advance_key(rank, key, rank_place.position);
        }
        self.lay_call(id, rank_place.position)?;
        Ok(rank_place)
    }

    pub(crate) fn join_from_elsewhere(
        &mut self,
        communicator_id: u64,
        rank: u32,
        key: Key,
        call: CollectiveCall,
    ) -> Result<(), Failure> {
        self.unbroken(communicator_id)?;
        let id = self.find_or_open(communicator_id, key)?;
        self.place_rank(id, rank, call).map(drop)
    }

    fn unbroken(&self, communicator: u64) -> Result<&HcclCommunicator, Failure> {
        let communicator = self.hccl.communicators.communicator(communicator)?;
        communicator.failure.clone().map_or(Ok(communicator), Err)
    }

    /// The first call creates the matching.
    fn find_or_open(&mut self, communicator_id: u64, key: Key) -> Result<u64, Failure> {
        if let Some(id) = self.hccl.matchings.find(communicator_id, key) {
            return Ok(id);
        }
        let id = self.fresh_number();
        let communicator = self.hccl.communicators.communicator_mut(communicator_id)?;
        let world = communicator.cards.len();
        let Some(transport) = communicator.transport else {
            let what = format!("communicator {} is used before its ranks have entered it", communicator.name);
            return Err(Failure::new(code::HCCL_INTERNAL, what));
        };
        let parts = if matches!(key, Key::Collective(_)) { world } else { 2 };
        if let (Key::Collective(number), ChosenTransport::SharedMemory) = (key, transport) {
            communicator.running.insert(number);
        }
        let matching = Matching {
            communicator: communicator_id,
            communicator_name: Arc::clone(&communicator.name),
            world,
            key,
            arrivals: (0..parts).map(|_| None).collect(),
            elsewhere: (!communicator.is_local())
                .then(|| communicator.token.zip(Some(communicator.rank_locations.clone())))
                .flatten(),
            transport,
            since: None,
            is_shared_out: false,
            failure: None,
        };
        self.hccl.matchings.open.insert(id, matching);
        self.hccl.matchings.by_key.insert((communicator_id, key), id);
        Ok(id)
    }

    /// Notifies the other processes if the call agrees.
    fn place_rank(&mut self, id: u64, rank: u32, call: CollectiveCall) -> Result<RankPlace, Failure> {
        let communicator =
            self.hccl.matchings.open(id).map(|matching| matching.communicator).unwrap_or_default();
        let departures = self.hccl.communicators.communicator(communicator)?.departures.clone();
        if !departures.is_empty() {
            // Departed ranks may have called before they left.
            self.read_calls(id)?;
        }
        let Some(matching) = self.hccl.matchings.open.get(&id) else {
            return Err(Failure::new(
                code::HCCL_INTERNAL,
                format!("matching {id} is listed but does not exist"),
            ));
        };
        let (key, in_shared_memory) = (matching.key, matching.in_shared_memory());
        if let Some(gone) = departures.into_iter().find(|gone| matching.missing_calls().contains(gone)) {
            let what = format!("{}: rank {rank} calls {call}, but rank {gone} has left", matching.place());
            let failure = Failure::new(code::REMOTE, what);
            self.abort_matching(id, &failure);
            return Err(failure);
        }
        let disagrees = |other: &&CollectiveArrival| !call.agrees(rank, &other.call, other.rank);
        if let Some(other) = matching.arrivals.iter().flatten().find(disagrees) {
            let failure = matching.disagreement(other.rank, &other.call, rank, &call);
            self.break_communicator(communicator, &failure);
            return Err(failure);
        }
        let position = match (&call.kind, key) {
            (CollectiveOperation::Send { .. }, _) => 0,
            (CollectiveOperation::Recv { .. }, _) => 1,
            _ => rank as usize,
        };
        if !in_shared_memory {
            self.tell_called(communicator, rank, key, &call);
        }
        if let Some(matching) = self.hccl.matchings.open.get_mut(&id) {
            let arrival = CollectiveArrival {
                rank,
                call,
                is_laid: false,
                in_shared_memory: false,
                stream: None,
                reached_elsewhere: false,
            };
            matching.arrivals[position] = Some(arrival);
        }
        Ok(RankPlace { matching: id, position })
    }

    pub(crate) fn arrive(&mut self, rank_place: RankPlace, stream: u64) {
        let now = self.scheduler.now();
        let Some(matching) = self.hccl.matchings.open.get_mut(&rank_place.matching) else {
            self.settle(stream, Err(Failure::left_by_peer("its communicator was destroyed")));
            return;
        };
        if let Some(failure) = matching.failure.clone() {
            self.settle(stream, Err(failure));
            return;
        }
        let (communicator, key) = (matching.communicator, matching.key);
        let mut rank = None;
        if let Some(arrival) = &mut matching.arrivals[rank_place.position] {
            arrival.stream = Some(stream);
            rank = Some(arrival.rank);
        }
        let since = *matching.since.get_or_insert(now);
        let (in_shared_memory, is_elsewhere) = (matching.in_shared_memory(), matching.elsewhere.is_some());
        self.scheduler.limit(since + self.scheduler.exec_timeout);
        if in_shared_memory {
            self.hccl.matchings.wait_in_table(rank_place.matching);
            self.advance_in_table(rank_place.matching);
            return;
        }
        if let Some(rank) = rank
            && is_elsewhere
        {
            self.tell_reached(communicator, rank, key);
        }
        self.launch_if_complete(rank_place.matching);
    }

    pub(crate) fn arrive_elsewhere(&mut self, communicator: u64, rank: u32, key: Key) {
        let now = self.scheduler.now();
        let Some(id) = self.hccl.matchings.find(communicator, key) else { return };
        let Some(matching) = self.hccl.matchings.open.get_mut(&id) else { return };
        for arrival in matching.arrivals.iter_mut().flatten().filter(|arrival| arrival.rank == rank) {
            arrival.reached_elsewhere = true;
        }
        matching.since.get_or_insert(now);
        if matching.failure.is_none() {
            self.launch_if_complete(id);
        }
    }

    pub(super) fn launch_if_complete(&mut self, id: u64) {
        let Some(matching) = self.hccl.matchings.open.get_mut(&id) else { return };
        if matching.is_complete()
            && matching.moves_here()
            && let Some(matching) = self.hccl.matchings.remove(id)
        {
            self.scheduler.launches.push(ReadyLaunch::Matching(Box::new(matching)));
        }
    }

    pub(crate) fn end_matching(&mut self, matching: &Matching, outcome: &Result<(), Failure>) {
        match outcome {
            Ok(()) => self.tell_moved(matching),
            Err(failure) => self.break_matching(matching.communicator, Some(matching.key), failure),
        }
        self.let_go(matching, outcome);
        if matching.in_shared_memory() {
            // Another collective may wait for the free slot.
            self.read_tables();
        }
    }

    pub(super) fn let_go(&mut self, matching: &Matching, outcome: &Result<(), Failure>) {
        if let (Key::Collective(number), Ok(communicator)) =
            (matching.key, self.hccl.communicators.communicator_mut(matching.communicator))
        {
            communicator.running.remove(&number);
        }
        if let Some(strict) = &mut self.strict {
            strict.order.met(matching);
        }
        for arrival in matching.arrivals.iter().flatten() {
            if let Some(stream) = arrival.stream {
                self.settle(stream, outcome.clone());
            }
        }
    }

    /// The other process has copied the data.
    pub(crate) fn end_moved(&mut self, communicator: u64, key: Key) {
        if let Some(matching) =
            self.hccl.matchings.find(communicator, key).and_then(|id| self.hccl.matchings.remove(id))
        {
            self.let_go(&matching, &Ok(()));
        }
    }

    /// Waiting ranks fail now, other ranks when their streams reach the call.
    pub(crate) fn abort_matching(&mut self, id: u64, failure: &Failure) {
        let Some(matching) = self.hccl.matchings.open.get_mut(&id) else { return };
        if matching.failure.is_some() {
            return;
        }
        matching.failure = Some(failure.clone());
        let waiting: Vec<u64> =
            matching.arrivals.iter_mut().flatten().filter_map(|a| a.stream.take()).collect();
        for stream in waiting {
            self.settle(stream, Err(failure.clone()));
        }
    }

    pub(crate) fn break_communicator(&mut self, communicator: u64, failure: &Failure) {
        self.break_matching(communicator, None, failure);
    }

    fn break_matching(&mut self, communicator: u64, key: Option<Key>, failure: &Failure) {
        // Peers know of an earlier failure of the communicator, but not of this one.
        if key.is_some()
            || self
                .hccl
                .communicators
                .communicator(communicator)
                .is_ok_and(|communicator| communicator.failure.is_none())
        {
            self.tell_broken(communicator, key, failure);
        }
        self.break_communicator_here(communicator, failure);
    }

    pub(crate) fn fail_communicator_here(&mut self, communicator: u64, failure: &Failure) {
        for id in self.hccl.matchings.unfailed_of_communicator(communicator) {
            let placed = self.hccl.matchings.open[&id].placed(failure);
            self.abort_matching(id, &placed);
        }
        self.break_communicator_here(communicator, failure);
    }

    /// Later calls return the failure. Matchings that lack a call fail now.
    pub(crate) fn break_communicator_here(&mut self, communicator: u64, failure: &Failure) {
        let Ok(broken) = self.hccl.communicators.communicator_mut(communicator) else { return };
        broken.failure.get_or_insert_with(|| failure.clone());
        self.scheduler.has_progressed = true;
        for id in self.hccl.matchings.unfailed_of_communicator(communicator) {
            self.know_calls(id);
            let matching = &self.hccl.matchings.open[&id];
            if !matching.missing_calls().is_empty() {
                let placed = matching.placed(failure);
                self.abort_matching(id, &placed);
            }
        }
    }

    /// No stream will ever reach a call of this matching, so the communicator fails too.
    pub(crate) fn abandon_matching(&mut self, id: u64, failure: &Failure) {
        let Some(matching) = self.hccl.matchings.open.get(&id) else { return };
        let (communicator, key, failure) = (matching.communicator, matching.key, matching.placed(failure));
        self.abort_matching(id, &failure);
        self.break_matching(communicator, Some(key), &failure);
    }

    /// Fails also the communicator in all processes. `failure` already names its location.
    pub(crate) fn fail_matching(&mut self, id: u64, failure: &Failure) {
        let Some((communicator, key)) =
            self.hccl.matchings.open.get(&id).map(|matching| (matching.communicator, matching.key))
        else {
            return;
        };
        self.abort_matching(id, failure);
        self.break_matching(communicator, Some(key), failure);
    }

    pub(crate) fn leave_matchings(&mut self, stream: u64, failure: &Failure) {
        let waits =
            |matching: &Matching| matching.arrivals.iter().flatten().any(|a| a.stream == Some(stream));
        let left: Vec<u64> =
            self.hccl.matchings.open.iter().filter(|(_, m)| waits(m)).map(|(id, _)| *id).collect();
        for id in left {
            self.abandon_matching(id, failure);
        }
    }

    pub(crate) fn leave_communicator(&mut self, communicator: u64, rank: u32, why: &str) {
        if let Ok(communicator) = self.hccl.communicators.communicator(communicator) {
            communicator.post(|communicator| WireMessage::Left { communicator, rank, why: why.into() });
        }
        self.leave_communicator_here(communicator, rank, why);
    }

    pub(crate) fn leave_communicator_here(&mut self, communicator: u64, rank: u32, why: &str) {
        for id in self.hccl.matchings.unfailed_of_communicator(communicator) {
            self.know_calls(id);
            let matching = &self.hccl.matchings.open[&id];
            if matching.missing_calls().contains(&rank) {
                let what = format!("{}: rank {rank} has left: {why}", matching.place());
                self.abort_matching(id, &Failure::new(code::REMOTE, what));
            }
        }
    }

    /// A missing call may be in the table. An unreadable call remains missing.
    fn know_calls(&mut self, id: u64) {
        let _unreadable = self.read_calls(id);
    }

    pub(crate) fn expire_matchings(&mut self) {
        self.read_tables();
        let (now, limit) = (self.scheduler.now(), self.scheduler.exec_timeout);
        let late = |m: &Matching| m.failure.is_none() && m.since.is_some_and(|since| now >= since + limit);
        let expired: Vec<u64> =
            self.hccl.matchings.open.iter().filter(|(_, m)| late(m)).map(|(id, _)| *id).collect();
        for id in expired {
            self.know_calls(id);
            let matching = &self.hccl.matchings.open[&id];
            let what =
                format!("no data after {} s (HCCL_EXEC_TIMEOUT); {}", limit.as_secs(), matching.absent());
            self.abandon_matching(id, &Failure::new(code::TASK_TIMEOUT, what));
        }
        self.expire_moving();
    }

    pub(crate) fn expire_moving(&mut self) -> bool {
        let (now, limit) = (self.scheduler.now(), self.scheduler.exec_timeout);
        let mut is_any_over = false;
        for ((communicator, key), _) in
            self.hccl.communicators.moving.iter().filter(|(_, since)| now >= **since + limit)
        {
            self.hccl.communicators.pending.expire(*communicator, *key, limit);
            is_any_over = true;
        }
        is_any_over
    }
}
