//! Collectives whose ranks meet at their communicator's table.
//!
//! Input: calls and arrivals of the ranks here, looks at the table when the bell rings. Output: meetings that are complete,
//! launched by the process that came last; meetings that others have done, ended. Method: a call lies on the table as soon as
//! it is made and is compared with those that lie there. Whoever arrives last moves the data of all ranks, if it is little,
//! and rings; of much data it rings for every process to do its share, and the last to have done that rings again.
//! Invariants: of two calls that disagree one process at least sees both, and fails the communicator in all; a call for which
//! the table has no place yet, or which is made before the table is there, is laid when its stream has reached it and there is
//! one; what lies on the table is looked at before anything fails for want of it; who waits learns of failures and deaths by
//! messages, as everywhere. Does not: serve transfers between two ranks, whose calls go by messages.

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

/// Up to this size of all buffers together the last rank moves everything: less than it takes to wake the others for it.
const ALONE_BYTES: usize = 16 << 20;
/// Up to this size on the thread that arrives: less than it takes to wake another.
const AT_ONCE_BYTES: usize = 1 << 20;

impl Group {
    /// The rings of the bells of all other processes.
    pub(super) fn ring(&self) {
        self.links.iter().for_each(|link| link.ring());
    }

    /// Whether the table has a place for the next collective, once those here that have not ended keep theirs.
    fn has_place(&self, number: u64) -> bool {
        self.running.first().is_none_or(|first| number < first + SLOTS)
    }

    /// Which of the processes, in the order of their first ranks, this one is, and how many there are.
    fn share(&self) -> WorkShare {
        let first_here = self.rank_locations.iter().position(|location| location.link().is_none()).unwrap_or(0);
        let mut before: Vec<u128> =
            self.rank_locations[..first_here].iter().filter_map(RankLocation::link).map(|l| l.peer.id).collect();
        before.sort_unstable();
        before.dedup();
        WorkShare { index: before.len(), count: self.links.len() + 1 }
    }
}

impl Meeting {
    /// The number of a collective at a table.
    fn number(&self) -> Option<u64> {
        match self.key() {
            Key::Collective(number) if self.is_at_table() => Some(number),
            _ => None,
        }
    }

    /// Bytes of all buffers.
    fn bytes(&self) -> usize {
        self.calls().flat_map(|call| [&call.send, &call.recv]).flatten().map(|span| span.len_bytes()).sum()
    }

    /// Whether a thread that has something else to do shall run it all the same.
    pub(crate) fn is_done_at_once(&self) -> bool {
        self.way() == Way::Table && self.bytes() <= AT_ONCE_BYTES
    }
}

impl Machine {
    /// The first rank's process makes the table of a communicator whose ranks are to meet at one.
    pub(crate) fn make_table(&self, group_id: u64) {
        self.update(|state| {
            let Ok(group) = state.hccl.groups.group_mut(group_id) else { return };
            if group.way != Some(Way::Table) || group.table.is_some() || !group.is_here(0) {
                return;
            }
            let world = group.cards.len();
            let made = self.network().take_shared(Table::len_bytes(world));
            let words = made.as_ref().ok().and_then(|(_, span)| SharedWords::of(span.clone(), Table::len_bytes(world)));
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

    /// Something has happened at some table.
    pub(crate) fn look_at_tables(&self) {
        self.update(State::look_at_tables);
    }
}

impl State {
    /// The process of the first rank has made a table.
    pub(crate) fn take_table(&mut self, group_id: u64, link: &Link, place: Place) {
        let Ok(group) = self.hccl.groups.group_mut(group_id) else { return };
        let (world, is_first) = (group.cards.len(), group.rank_locations.first().and_then(RankLocation::link));
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

    /// The table of a meeting, and the meeting's number there.
    fn at_table(&self, id: u64) -> Option<(u64, Arc<Table>)> {
        let meeting = self.hccl.meetings.open(id).filter(|meeting| !meeting.has_failed())?;
        Some((meeting.number()?, self.hccl.groups.group(meeting.group()).ok()?.table.clone()?))
    }

    /// Lays the call of a rank here on its communicator's table, if it meets there and there is a place for it now.
    ///
    /// # Errors
    /// It disagrees with a call that lies there.
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
            let what = format!("{}: {} takes {} bytes to write", meeting.place(), arrival.call, written.bytes.len());
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

    /// Does what can be done now for a meeting at a table at which streams wait.
    pub(crate) fn advance_at_table(&mut self, id: u64) {
        let Some((number, table)) = self.at_table(id) else { return };
        let Some(meeting) = self.hccl.meetings.open(id) else { return };
        let waits = |arrival: &Arrival| arrival.stream.is_some() && !arrival.is_at_table;
        let waiting = meeting.arrivals.iter().enumerate().filter(|(_, arrival)| arrival.as_ref().is_some_and(waits));
        for position in waiting.map(|(position, _)| position).collect::<Vec<usize>>() {
            if self.lay_call(id, position).is_err() {
                return;
            }
            let Some(meeting) = self.hccl.meetings.open_mut(id) else { return };
            let Some(arrival) = meeting.arrivals[position].as_mut().filter(|arrival| arrival.is_laid) else { continue };
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

    /// All ranks have arrived; the last of them is here.
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

    /// This process does its share of a collective, once.
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
        // Moving much takes time, and the limit is for those that do nothing.
        meeting.since = Some(now);
        let (name, calls, share) = (meeting.name(), meeting.calls().cloned().collect(), group.share());
        self.scheduler.launches.push(Launch::Share(Box::new(SharedWork { meeting: id, name, calls, share })));
        self.scheduler.limit(now + self.scheduler.exec_timeout);
    }

    /// This process has done its share.
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

    /// Ends the meetings that other processes have done, begins the shares of those with much to do, and lays calls for which
    /// there is a place now.
    pub(crate) fn look_at_tables(&mut self) {
        loop {
            let mut has_ended = false;
            for id in self.hccl.meetings.take_waiting_at_tables() {
                self.advance_at_table(id);
                if self.hccl.meetings.open(id).is_some_and(|meeting| !meeting.has_failed()) {
                    self.hccl.meetings.wait_at_table(id);
                } else {
                    // Its place is free for another.
                    has_ended = true;
                }
            }
            if !has_ended {
                return;
            }
        }
    }

    /// Takes the calls of ranks elsewhere from a meeting's table.
    ///
    /// # Errors
    /// One is none, or its buffers are out of reach.
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
    /// What is wrong between the call at a position, `written` so, and the others on the table.
    fn disagreement_at_table(
        &self,
        number: u64,
        table: &Table,
        position: usize,
        written: &WrittenRequest,
    ) -> Option<Failure> {
        let own = self.arrivals[position].as_ref()?;
        let wanted = &written.bytes[..written.wanted_bytes];
        let others = (0..self.arrivals.len()).filter(|other| *other != position && self.location(*other).is_some());
        others.filter_map(|other| Some((other as u32, table.read(number, other as u32)?))).find_map(|(other, laid)| {
            if laid.bytes.starts_with(wanted) && !own.call.is_pairwise() {
                return None;
            }
            // Its buffers do not matter here.
            let nowhere = |_| Err(Failure::new(code::HCCL_INTERNAL, "not asked for"));
            let asked = CallRequest::read(&laid.bytes).and_then(|request| request.without_places().into_call(nowhere));
            match asked {
                Ok(call) if own.call.agrees(own.rank, &call, other) => None,
                Ok(call) => Some(self.disagreement((other, &call), (own.rank, &own.call))),
                Err(failure) => Some(failure),
            }
        })
    }

    /// What is wrong between any two calls.
    fn disagreement_of_all(&self) -> Option<Failure> {
        let all: Vec<(u32, &CollectiveCall)> = self.parts().map(|(rank, call, _)| (rank, call)).collect();
        let is_pairwise = all.first().is_some_and(|(_, call)| call.is_pairwise());
        // What is agreed by each with the first is agreed by all, unless each two have something of their own.
        let others = |index: usize| if is_pairwise { &all[..index] } else { &all[..index.min(1)] };
        let pairs = all.iter().enumerate().flat_map(|(index, one)| others(index).iter().map(move |other| (one, other)));
        let mut disagreeing = pairs.filter(|((rank, call), (other, its))| !call.agrees(*rank, its, *other));
        disagreeing.next().map(|(one, other)| self.disagreement(*other, *one))
    }
}
