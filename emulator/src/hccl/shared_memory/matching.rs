//! Collectives that ranks match in a rendezvous table in shared memory.
//!
//! A rank writes each call to the table at once and compares it with earlier calls. For a small
//! collective, the process of the last rank copies all data. For a large collective, every process
//! copies its share, and the last one notifies the rest.
//!
//! Invariants:
//! - If two calls disagree, at least one process sees both and fails the communicator in all
//!   processes.
//! - If the table lacks a free slot, the call is written once its stream has reached it and a slot
//!   is free.
//! - The table is read before a missing call fails a matching.
//! - Waiting ranks learn of failures and dead processes by messages.

use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::hccl::CollectiveCall;
use crate::hccl::communicator::{ChosenTransport, HcclCommunicator};
use crate::hccl::key::Key;
use crate::hccl::matching::{CollectiveArrival, Matching};
use crate::hccl::rank_location::RankLocation;
use crate::hccl::shared_memory::table::{SLOTS, SharedTable};
use crate::hccl::shared_memory::work::SharedWork;
use crate::hccl::tcp::connection::PeerLink;
use crate::hccl::tcp::wire::{CallRequest, WireMessage, WrittenRequest};
use crate::hccl::transfer::local::WorkShare;
use crate::machine::Machine;
use crate::memory::place::{MemoryPlace, PeerBuffer};
use crate::memory::shared_words::SharedWords;
use crate::scheduler::launch::ReadyLaunch;
use crate::state::MachineState;

/// Total buffer size up to which the last rank copies everything. Waking other processes would take
/// longer.
const ALONE_BYTES: usize = 16 << 20;
/// Total buffer size up to which the arriving thread does the work. Waking another thread would
/// take longer.
const AT_ONCE_BYTES: usize = 1 << 20;

impl HcclCommunicator {
    /// Notifies all other processes of the communicator.
    pub(in crate::hccl) fn ring(&self) {
        self.links.iter().for_each(|link| link.ring());
    }

    /// Unfinished collectives of this process keep their slots.
    fn has_place(&self, number: u64) -> bool {
        self.running.first().is_none_or(|first| number < first + SLOTS)
    }

    /// Processes of a communicator are ordered by first rank.
    fn share(&self) -> WorkShare {
        let first_here =
            self.rank_locations.iter().position(|location| location.link().is_none()).unwrap_or(0);
        let mut before: Vec<u128> = self.rank_locations[..first_here]
            .iter()
            .filter_map(RankLocation::link)
            .map(|l| l.peer.id)
            .collect();
        before.sort_unstable();
        before.dedup();
        WorkShare { index: before.len(), count: self.links.len() + 1 }
    }
}

impl Matching {
    fn number(&self) -> Option<u64> {
        match self.key() {
            Key::Collective(number) if self.in_shared_memory() => Some(number),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        self.calls().flat_map(|call| [&call.send, &call.recv]).flatten().map(|span| span.len_bytes()).sum()
    }

    /// Returns true if the arriving thread should run this matching.
    pub(crate) fn is_done_at_once(&self) -> bool {
        self.transport() == ChosenTransport::SharedMemory && self.bytes() <= AT_ONCE_BYTES
    }
}

impl Machine {
    /// Only the process of rank 0 creates a table.
    pub(crate) fn make_table(&self, communicator_id: u64) {
        self.update(|state| {
            let Ok(communicator) = state.hccl.communicators.communicator_mut(communicator_id) else { return };
            if communicator.transport != Some(ChosenTransport::SharedMemory)
                || communicator.table.is_some()
                || !communicator.is_here(0)
            {
                return;
            }
            let world = communicator.cards.len();
            let made = self.network().take_shared(SharedTable::len_bytes(world));
            let words = made
                .as_ref()
                .ok()
                .and_then(|(_, span)| SharedWords::of(span.clone(), SharedTable::len_bytes(world)));
            if let (Ok((place, _)), Some(words)) = (&made, words) {
                communicator.table = Some(Arc::new(SharedTable::new(words, world)));
                communicator.post(|communicator| WireMessage::Table { communicator, place: *place });
                state.read_tables();
            } else {
                let what =
                    format!("communicator {}: this host has no memory for its table", communicator.name);
                state.break_communicator(communicator_id, &Failure::new(code::HCCL_MEMORY, what));
            }
        });
    }

    pub(crate) fn read_tables(&self) {
        self.update(MachineState::read_tables);
    }
}

impl MachineState {
    pub(crate) fn take_table(&mut self, communicator_id: u64, link: &PeerLink, place: MemoryPlace) {
        let Ok(communicator) = self.hccl.communicators.communicator_mut(communicator_id) else { return };
        let (world, is_first) =
            (communicator.cards.len(), communicator.rank_locations.first().and_then(RankLocation::link));
        if communicator.table.is_some()
            || !is_first.is_some_and(|first| std::ptr::eq(Arc::as_ptr(first), link))
        {
            return;
        }
        let unaligned = || Failure::new(code::HCCL_INTERNAL, "the table is none of this version");
        let words = link.reach(PeerBuffer::Whole(place));
        match words
            .and_then(|span| SharedWords::of(span, SharedTable::len_bytes(world)).ok_or_else(unaligned))
        {
            Ok(words) => {
                communicator.table = Some(Arc::new(SharedTable::new(words, world)));
                self.read_tables();
            }
            Err(failure) => self.break_communicator(communicator_id, &failure),
        }
    }

    fn at_table(&self, id: u64) -> Option<(u64, Arc<SharedTable>)> {
        let matching = self.hccl.matchings.open(id).filter(|matching| !matching.has_failed())?;
        Some((
            matching.number()?,
            self.hccl.communicators.communicator(matching.communicator()).ok()?.table.clone()?,
        ))
    }

    /// Does nothing without a free slot in a table. Fails if the call disagrees with a call there.
    pub(crate) fn lay_call(&mut self, id: u64, position: usize) -> Result<(), Failure> {
        let Some((number, table)) = self.at_table(id) else { return Ok(()) };
        let Some(matching) = self.hccl.matchings.open_mut(id) else { return Ok(()) };
        let Some(arrival) = matching.arrivals[position].as_ref().filter(|arrival| !arrival.is_laid) else {
            return Ok(());
        };
        if !self
            .hccl
            .communicators
            .communicator(matching.communicator())
            .is_ok_and(|communicator| communicator.has_place(number))
        {
            return Ok(());
        }
        let written = CallRequest::of(&arrival.call).write();
        let failure = if table.lay(number, arrival.rank, &written.bytes) {
            matching.disagreement_at_table(number, &table, position, &written)
        } else {
            let what = format!(
                "{}: {} takes {} bytes to write",
                matching.place(),
                arrival.call,
                written.bytes.len()
            );
            Some(Failure::new(code::HCCL_INTERNAL, what))
        };
        if let Some(failure) = failure {
            self.fail_matching(id, &failure);
            return Err(failure);
        }
        if let Some(arrival) = &mut matching.arrivals[position] {
            arrival.is_laid = true;
        }
        Ok(())
    }

    pub(crate) fn advance_in_table(&mut self, id: u64) {
        let Some((number, table)) = self.at_table(id) else { return };
        let Some(matching) = self.hccl.matchings.open(id) else { return };
        let waits = |arrival: &CollectiveArrival| arrival.stream.is_some() && !arrival.in_shared_memory;
        let waiting =
            matching.arrivals.iter().enumerate().filter(|(_, arrival)| arrival.as_ref().is_some_and(waits));
        for position in waiting.map(|(position, _)| position).collect::<Vec<usize>>() {
            if self.lay_call(id, position).is_err() {
                return;
            }
            let Some(matching) = self.hccl.matchings.open_mut(id) else { return };
            let Some(arrival) = matching.arrivals[position].as_mut().filter(|arrival| arrival.is_laid) else {
                continue;
            };
            arrival.in_shared_memory = true;
            if table.arrive(number, arrival.rank) {
                return self.complete_at_table(id, number, &table);
            }
        }
        if table.is_done(number) {
            if let Some(matching) = self.hccl.matchings.remove(id) {
                self.let_go(&matching, &Ok(()));
            }
        } else if table.is_shared_out(number) {
            self.begin_share(id);
        }
    }

    fn complete_at_table(&mut self, id: u64, number: u64, table: &SharedTable) {
        if let Err(failure) = self.read_calls(id) {
            return self.abandon_matching(id, &failure);
        }
        let Some(matching) = self.hccl.matchings.open(id) else { return };
        if let Some(failure) = matching.disagreement_of_all() {
            self.fail_matching(id, &failure);
        } else if matching.bytes() <= ALONE_BYTES {
            self.launch_if_complete(id);
        } else {
            table.share_out(number);
            if let Ok(communicator) = self.hccl.communicators.communicator(matching.communicator()) {
                communicator.ring();
            }
            self.begin_share(id);
        }
    }

    fn begin_share(&mut self, id: u64) {
        if self.hccl.matchings.open(id).is_none_or(|matching| matching.is_shared_out) {
            return;
        }
        if let Err(failure) = self.read_calls(id) {
            return self.abandon_matching(id, &failure);
        }
        let now = self.scheduler.now();
        let Some(matching) = self.hccl.matchings.open_mut(id) else { return };
        let Ok(communicator) = self.hccl.communicators.communicator(matching.communicator()) else { return };
        matching.is_shared_out = true;
        // Restart the timeout, which is for ranks that make no progress.
        matching.since = Some(now);
        let (name, calls, share) =
            (matching.name(), matching.calls().cloned().collect(), communicator.share());
        self.scheduler.launches.push(ReadyLaunch::Share(Box::new(SharedWork {
            matching: id,
            name,
            calls,
            share,
        })));
        self.scheduler.limit(now + self.scheduler.exec_timeout);
    }

    pub(crate) fn end_share(&mut self, work: &SharedWork, outcome: &Result<(), Failure>) {
        let Some((number, table)) = self.at_table(work.matching) else { return };
        if let Err(failure) = outcome {
            return self.abandon_matching(work.matching, failure);
        }
        if table.end_share(number, work.share.count) {
            table.set_done(number);
            let communicator = self.hccl.matchings.open(work.matching).map(Matching::communicator);
            if let Some(Ok(communicator)) =
                communicator.map(|communicator| self.hccl.communicators.communicator(communicator))
            {
                communicator.ring();
            }
        }
        self.read_tables();
    }

    /// Ends completed matchings, starts shares, and writes calls for which a slot is free now.
    pub(crate) fn read_tables(&mut self) {
        loop {
            let mut has_ended = false;
            for id in self.hccl.matchings.take_waiting_in_tables() {
                self.advance_in_table(id);
                if self.hccl.matchings.open(id).is_some_and(|matching| !matching.has_failed()) {
                    self.hccl.matchings.wait_in_table(id);
                } else {
                    has_ended = true;
                }
            }
            if !has_ended {
                return;
            }
        }
    }

    /// Reads calls of remote ranks. Fails if a call is malformed or its buffers are not reachable.
    pub(crate) fn read_calls(&mut self, id: u64) -> Result<(), Failure> {
        let Some((number, table)) = self.at_table(id) else { return Ok(()) };
        let Some(matching) = self.hccl.matchings.open_mut(id) else { return Ok(()) };
        for position in 0..matching.arrivals.len() {
            let Some(link) = matching.location(position) else { continue };
            let Some(laid) = table.read(number, position as u32) else { continue };
            let call = CallRequest::read(&laid.bytes)?.into_call(|buffer| link.reach(buffer))?;
            matching.place_rank_elsewhere(position, call, laid.has_reached);
        }
        Ok(())
    }
}

impl Matching {
    fn disagreement_at_table(
        &self,
        number: u64,
        table: &SharedTable,
        position: usize,
        written: &WrittenRequest,
    ) -> Option<Failure> {
        let own = self.arrivals[position].as_ref()?;
        let wanted = &written.bytes[..written.wanted_bytes];
        let others =
            (0..self.arrivals.len()).filter(|other| *other != position && self.location(*other).is_some());
        others.filter_map(|other| Some((other as u32, table.read(number, other as u32)?))).find_map(
            |(other, laid)| {
                if laid.bytes.starts_with(wanted) && !own.call.is_pairwise() {
                    return None;
                }
                // No buffers are needed for comparison.
                let nowhere = |_| Err(Failure::new(code::HCCL_INTERNAL, "not asked for"));
                let asked = CallRequest::read(&laid.bytes)
                    .and_then(|request| request.without_places().into_call(nowhere));
                match asked {
                    Ok(call) if own.call.agrees(own.rank, &call, other) => None,
                    Ok(call) => Some(self.disagreement(other, &call, own.rank, &own.call)),
                    Err(failure) => Some(failure),
                }
            },
        )
    }

    fn disagreement_of_all(&self) -> Option<Failure> {
        let all: Vec<(u32, &CollectiveCall)> = self.parts().map(|(rank, call, _)| (rank, call)).collect();
        let is_pairwise = all.first().is_some_and(|(_, call)| call.is_pairwise());
        // Agreement with the first call is enough, unless each pair of ranks has its own sizes.
        let others = |index: usize| if is_pairwise { &all[..index] } else { &all[..index.min(1)] };
        let pairs = all
            .iter()
            .enumerate()
            .flat_map(|(index, one)| others(index).iter().map(move |other| (one, other)));
        let mut disagreeing = pairs.filter(|((rank, call), (other, its))| !call.agrees(*rank, its, *other));
        disagreeing.next().map(|((rank, call), (other, its))| self.disagreement(*other, its, *rank, call))
    }
}
