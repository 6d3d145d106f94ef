//! Collectives that ranks match in a rendezvous table in shared memory.
//!
//! Input: calls and arrivals of the ranks of this process, and notifications that a table has
//! changed. Output: complete meetings, launched by the process of the last rank; meetings that
//! another process has completed, ended.
//!
//! Method: a rank writes each call to the table at once and compares it with the calls already
//! there. For a small collective, the process of the last rank copies the data of all ranks and
//! notifies the other processes. For a large collective, every process copies its share, and the
//! last process to finish notifies the rest.
//!
//! Invariants:
//! - If two calls disagree, at least one process sees both and fails the communicator in all
//!   processes.
//! - If the table does not exist yet or has no free slot, the call is written later: once its
//!   stream has reached the call and a slot is free.
//! - The table is read before a missing call fails a meeting.
//! - Waiting ranks learn of failures and dead processes by messages.
//!
//! Not here: transfers between two ranks, which are matched by messages.

use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::hccl::CollectiveCall;
use crate::hccl::group::{Group, Way};
use crate::hccl::key::Key;
use crate::hccl::link::connection::Link;
use crate::hccl::link::wire::{CallRequest, Message, WrittenRequest};
use crate::hccl::meeting::{Arrival, Meeting};
use crate::hccl::perform::WorkShare;
use crate::hccl::rank_location::RankLocation;
use crate::hccl::shared_work::SharedWork;
use crate::hccl::table::{SLOTS, Table};
use crate::machine::Machine;
use crate::memory::place::{PeerBuffer, Place};
use crate::memory::shared_words::SharedWords;
use crate::scheduler::launch::Launch;
use crate::state::State;

/// Total size of all buffers up to which the last rank copies everything. Waking the other
/// processes would take longer.
const ALONE_BYTES: usize = 16 << 20;
/// Total size of all buffers up to which the arriving thread does the work. Waking another thread
/// would take longer.
const AT_ONCE_BYTES: usize = 1 << 20;

impl Group {
    /// Notifies all other processes of the communicator.
    pub(super) fn ring(&self) {
        self.links.iter().for_each(|link| link.ring());
    }

    /// Returns whether the table has a free slot for a collective. Collectives of this process that
    /// have not ended keep their slots.
    fn has_place(&self, number: u64) -> bool {
        self.running.first().is_none_or(|first| number < first + SLOTS)
    }

    /// Returns the index of this process among the processes of the communicator, ordered by first
    /// rank, and their number.
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

impl Meeting {
    fn number(&self) -> Option<u64> {
        match self.key() {
            Key::Collective(number) if self.is_at_table() => Some(number),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        self.calls().flat_map(|call| [&call.send, &call.recv]).flatten().map(|span| span.len_bytes()).sum()
    }

    /// Returns whether the arriving thread should run this meeting itself.
    pub(crate) fn is_done_at_once(&self) -> bool {
        self.way() == Way::Table && self.bytes() <= AT_ONCE_BYTES
    }
}

impl Machine {
    /// Creates the table of a communicator in the process of rank 0, if the communicator uses one.
    pub(crate) fn make_table(&self, group_id: u64) {
        self.update(|state| {
            let Ok(group) = state.hccl.groups.group_mut(group_id) else { return };
            if group.way != Some(Way::Table) || group.table.is_some() || !group.is_here(0) {
                return;
            }
            let world = group.cards.len();
            let made = self.network().take_shared(Table::len_bytes(world));
            let words = made
                .as_ref()
                .ok()
                .and_then(|(_, span)| SharedWords::of(span.clone(), Table::len_bytes(world)));
            if let (Ok((place, _)), Some(words)) = (&made, words) {
                group.table = Some(Arc::new(Table::new(words, world)));
                group.post(|group| Message::Table { group, place: *place });
                state.look_at_tables();
            } else {
                let what = format!("communicator {}: this host has no memory for its table", group.name);
                state.break_group(group_id, &Failure::new(code::HCCL_MEMORY, what));
            }
        });
    }

    /// Handles a change of any table.
    pub(crate) fn look_at_tables(&self) {
        self.update(State::look_at_tables);
    }
}

impl State {
    /// Maps the table that the process of rank 0 has created.
    pub(crate) fn take_table(&mut self, group_id: u64, link: &Link, place: Place) {
        let Ok(group) = self.hccl.groups.group_mut(group_id) else { return };
        let (world, is_first) =
            (group.cards.len(), group.rank_locations.first().and_then(RankLocation::link));
        if group.table.is_some() || !is_first.is_some_and(|first| std::ptr::eq(Arc::as_ptr(first), link)) {
            return;
        }
        let unaligned = || Failure::new(code::HCCL_INTERNAL, "the table is none of this version");
        let words = link.reach(PeerBuffer::Whole(place));
        match words.and_then(|span| SharedWords::of(span, Table::len_bytes(world)).ok_or_else(unaligned)) {
            Ok(words) => {
                group.table = Some(Arc::new(Table::new(words, world)));
                self.look_at_tables();
            }
            Err(failure) => self.break_group(group_id, &failure),
        }
    }

    /// Returns the number of a meeting in its table, and the table.
    fn at_table(&self, id: u64) -> Option<(u64, Arc<Table>)> {
        let meeting = self.hccl.meetings.open(id).filter(|meeting| !meeting.has_failed())?;
        Some((meeting.number()?, self.hccl.groups.group(meeting.group()).ok()?.table.clone()?))
    }

    /// Writes the call of a local rank to the table, if the communicator uses a table that has a
    /// free slot.
    ///
    /// # Errors
    /// The call disagrees with a call in the table.
    pub(crate) fn lay_call(&mut self, id: u64, position: usize) -> Result<(), Failure> {
        let Some((number, table)) = self.at_table(id) else { return Ok(()) };
        let Some(meeting) = self.hccl.meetings.open_mut(id) else { return Ok(()) };
        let Some(arrival) = meeting.arrivals[position].as_ref().filter(|arrival| !arrival.is_laid) else {
            return Ok(());
        };
        if !self.hccl.groups.group(meeting.group()).is_ok_and(|group| group.has_place(number)) {
            return Ok(());
        }
        let written = CallRequest::of(&arrival.call).write();
        let failure = if table.lay(number, arrival.rank, &written.bytes) {
            meeting.disagreement_at_table(number, &table, position, &written)
        } else {
            let what =
                format!("{}: {} takes {} bytes to write", meeting.place(), arrival.call, written.bytes.len());
            Some(Failure::new(code::HCCL_INTERNAL, what))
        };
        if let Some(failure) = failure {
            self.fail_meeting(id, &failure);
            return Err(failure);
        }
        if let Some(arrival) = &mut meeting.arrivals[position] {
            arrival.is_laid = true;
        }
        Ok(())
    }

    /// Advances a meeting in a table for which local streams wait.
    pub(crate) fn advance_at_table(&mut self, id: u64) {
        let Some((number, table)) = self.at_table(id) else { return };
        let Some(meeting) = self.hccl.meetings.open(id) else { return };
        let waits = |arrival: &Arrival| arrival.stream.is_some() && !arrival.is_at_table;
        let waiting =
            meeting.arrivals.iter().enumerate().filter(|(_, arrival)| arrival.as_ref().is_some_and(waits));
        for position in waiting.map(|(position, _)| position).collect::<Vec<usize>>() {
            if self.lay_call(id, position).is_err() {
                return;
            }
            let Some(meeting) = self.hccl.meetings.open_mut(id) else { return };
            let Some(arrival) = meeting.arrivals[position].as_mut().filter(|arrival| arrival.is_laid) else {
                continue;
            };
            arrival.is_at_table = true;
            if table.arrive(number, arrival.rank) {
                return self.complete_at_table(id, number, &table);
            }
        }
        if table.is_done(number) {
            if let Some(meeting) = self.hccl.meetings.remove(id) {
                self.let_go(&meeting, &Ok(()));
            }
        } else if table.is_shared_out(number) {
            self.begin_share(id);
        }
    }

    /// Handles the arrival of the last rank, which belongs to this process.
    fn complete_at_table(&mut self, id: u64, number: u64, table: &Table) {
        if let Err(failure) = self.read_calls(id) {
            return self.abandon_meeting(id, &failure);
        }
        let Some(meeting) = self.hccl.meetings.open(id) else { return };
        if let Some(failure) = meeting.disagreement_of_all() {
            self.fail_meeting(id, &failure);
        } else if meeting.bytes() <= ALONE_BYTES {
            self.launch_if_complete(id);
        } else {
            table.share_out(number);
            if let Ok(group) = self.hccl.groups.group(meeting.group()) {
                group.ring();
            }
            self.begin_share(id);
        }
    }

    fn begin_share(&mut self, id: u64) {
        if self.hccl.meetings.open(id).is_none_or(|meeting| meeting.is_shared_out) {
            return;
        }
        if let Err(failure) = self.read_calls(id) {
            return self.abandon_meeting(id, &failure);
        }
        let now = self.scheduler.now();
        let Some(meeting) = self.hccl.meetings.open_mut(id) else { return };
        let Ok(group) = self.hccl.groups.group(meeting.group()) else { return };
        meeting.is_shared_out = true;
        // Restart the timeout: copying much data takes time, and the timeout is for ranks that make
        // no progress.
        meeting.since = Some(now);
        let (name, calls, share) = (meeting.name(), meeting.calls().cloned().collect(), group.share());
        self.scheduler.launches.push(Launch::Share(Box::new(SharedWork { meeting: id, name, calls, share })));
        self.scheduler.limit(now + self.scheduler.exec_timeout);
    }

    pub(crate) fn end_share(&mut self, work: &SharedWork, outcome: &Result<(), Failure>) {
        let Some((number, table)) = self.at_table(work.meeting) else { return };
        if let Err(failure) = outcome {
            return self.abandon_meeting(work.meeting, failure);
        }
        if table.end_share(number, work.share.count) {
            table.set_done(number);
            let group = self.hccl.meetings.open(work.meeting).map(Meeting::group);
            if let Some(Ok(group)) = group.map(|group| self.hccl.groups.group(group)) {
                group.ring();
            }
        }
        self.look_at_tables();
    }

    /// Ends meetings that other processes have completed, starts shares, and writes calls for which
    /// a slot is free now.
    pub(crate) fn look_at_tables(&mut self) {
        loop {
            let mut has_ended = false;
            for id in self.hccl.meetings.take_waiting_at_tables() {
                self.advance_at_table(id);
                if self.hccl.meetings.open(id).is_some_and(|meeting| !meeting.has_failed()) {
                    self.hccl.meetings.wait_at_table(id);
                } else {
                    // The slot of the ended meeting is free now.
                    has_ended = true;
                }
            }
            if !has_ended {
                return;
            }
        }
    }

    /// Reads the calls of remote ranks from the table into a meeting.
    ///
    /// # Errors
    /// A call is malformed, or its buffers are not reachable.
    pub(crate) fn read_calls(&mut self, id: u64) -> Result<(), Failure> {
        let Some((number, table)) = self.at_table(id) else { return Ok(()) };
        let Some(meeting) = self.hccl.meetings.open_mut(id) else { return Ok(()) };
        for position in 0..meeting.arrivals.len() {
            let Some(link) = meeting.location(position) else { continue };
            let Some(laid) = table.read(number, position as u32) else { continue };
            let call = CallRequest::read(&laid.bytes)?.into_call(|buffer| link.reach(buffer))?;
            meeting.place_rank_elsewhere(position, call, laid.has_reached);
        }
        Ok(())
    }
}

impl Meeting {
    /// Compares the call at a position, serialized as `written`, with the other calls in the table.
    /// Returns the disagreement, if any.
    fn disagreement_at_table(
        &self,
        number: u64,
        table: &Table,
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
                // The comparison does not need the buffers.
                let nowhere = |_| Err(Failure::new(code::HCCL_INTERNAL, "not asked for"));
                let asked = CallRequest::read(&laid.bytes)
                    .and_then(|request| request.without_places().into_call(nowhere));
                match asked {
                    Ok(call) if own.call.agrees(own.rank, &call, other) => None,
                    Ok(call) => Some(self.disagreement((other, &call), (own.rank, &own.call))),
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
        disagreeing.next().map(|(one, other)| self.disagreement(*other, *one))
    }
}
