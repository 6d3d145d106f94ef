//! Collectives whose ranks meet at their communicator's table instead of by messages.
//!
//! Input: calls and arrivals of the ranks here, looks at the table when the bell rings. Output: meetings that are complete,
//! launched by the process that came last; meetings that others have done, ended. Method: a call lies on the table as soon as
//! it is made and is compared with those that lie there. Whoever arrives last moves the data of all ranks, if it is little,
//! and rings; of much data it rings for every process to do its share (see `in_place`). Invariants: a process that cannot
//! use the table for a meeting, or sees calls that disagree, says its ranks' calls by messages, and so does then every
//! process that hears of it. The first of them has not arrived at the table, or all see the disagreement there; so a meeting
//! is complete at the table or by messages, in all processes alike. What lies on the table is looked at before anything
//! fails for want of it. Does not: use the table in strict mode, while faults are laid, or for transfers between two ranks.

use std::sync::Arc;

use crate::abi::peer_memory::Place;
use crate::abi::shared_words::SharedWords;
use crate::collective::Call;
use crate::collective::group::Group;
use crate::collective::meeting::{Arrival, Key, Meeting};
use crate::collective::peer::Home;
use crate::collective::table::{SLOTS, Table};
use crate::failure::{Failure, code};
use crate::link::connection::Link;
use crate::link::wire::{Message, Request, Written};
use crate::machine::{Machine, State};

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
}

impl Meeting {
    /// The number of a collective at a table.
    fn number(&self) -> Option<(u64, Arc<Table>)> {
        match self.key() {
            Key::Collective(number) => self.table.as_ref().map(|table| (number, Arc::clone(table))),
            Key::Pair { .. } => None,
        }
    }

    /// Bytes of all buffers.
    fn bytes(&self) -> usize {
        self.calls().flat_map(|call| [&call.send, &call.recv]).flatten().map(|span| span.len_bytes()).sum()
    }

    /// Whether a thread that has something else to do shall run it all the same.
    pub(crate) fn is_done_at_once(&self) -> bool {
        self.table.is_some() && self.bytes() <= AT_ONCE_BYTES
    }

    fn home(&self, position: usize) -> Option<&Arc<Link>> {
        let (_, homes) = self.elsewhere()?;
        homes.get(position).and_then(Home::link)
    }
}

impl Machine {
    /// The first rank's process makes a table for a communicator all of whose processes share memory.
    pub(crate) fn offer_table(&self, group_id: u64) {
        let mut state = self.lock();
        let Ok(group) = state.groups.group_mut(group_id) else { return };
        if group.table.is_some() || !group.is_here(0) || self.strict().is_some() {
            return;
        }
        let world = group.cards.len();
        // Without memory for it the ranks meet by messages.
        let Ok((place, span)) = self.network().take_shared(Table::len_bytes(world)) else { return };
        let Some(words) = SharedWords::of(span, Table::len_bytes(world)) else { return };
        group.table = Some(Arc::new(Table::new(words, world)));
        group.post(|group| Message::Table { group, place });
    }

    /// Something has happened at some table.
    pub(crate) fn look_at_tables(&self) {
        self.update(State::look_at_tables);
    }
}

impl State {
    /// The process of the first rank has made a table.
    pub(crate) fn take_table(&mut self, group: u64, link: &Link, place: Place) {
        let Ok(group) = self.groups.group_mut(group) else { return };
        let (world, is_first) = (group.cards.len(), group.homes.first().and_then(Home::link));
        if !is_first.is_some_and(|first| std::ptr::eq(Arc::as_ptr(first), link)) {
            return;
        }
        // A process that cannot reach it says its calls by messages.
        let words = link.reach(place).ok().and_then(|span| SharedWords::of(span, Table::len_bytes(world)));
        group.table = words.map(|words| Arc::new(Table::new(words, world)));
    }

    /// The table of a communicator, if collectives may meet there.
    pub(crate) fn table_of(&self, group: u64) -> Option<Arc<Table>> {
        let table = self.groups.group(group).ok()?.table.as_ref()?;
        (!self.faults.is_armed()).then(|| Arc::clone(table))
    }

    /// Lays the call of a rank here on its meeting's table, if there is a place for it now.
    pub(crate) fn lay_call(&mut self, id: u64, position: usize) {
        let Some(meeting) = self.meetings.open_mut(id) else { return };
        let Some((number, table)) = meeting.number() else { return };
        let Some(arrival) = &meeting.arrivals[position] else { return };
        if !self.groups.group(meeting.group()).is_ok_and(|group| group.has_place(number)) {
            return;
        }
        let written = Request::of(&arrival.call).write();
        let is_laid = arrival.call.places.is_some() && table.lay(number, arrival.rank, &written.bytes);
        let agrees = |meeting: &Meeting| meeting.agrees_with_table(number, &table, position, &written);
        if !is_laid || !agrees(meeting) {
            self.fall_back(id);
        } else if let Some(arrival) = &mut meeting.arrivals[position] {
            arrival.is_laid = true;
        }
    }

    /// The stream of a rank here has reached its call of a meeting at a table.
    pub(crate) fn arrive_at_table(&mut self, id: u64, position: usize) {
        let is_new = |meeting: &Meeting| meeting.arrivals[position].as_ref().is_some_and(|arrival| !arrival.is_laid);
        if self.meetings.open(id).is_some_and(is_new) {
            self.lay_call(id, position);
        }
        let Some(meeting) = self.meetings.open(id) else { return };
        let Some((number, table)) = meeting.number() else { return };
        if is_new(meeting) || (self.faults.is_armed() && self.meetings.is_nobody_at_table(id)) {
            self.fall_back(id);
            return;
        }
        self.meetings.wait_at_table(id);
        if table.arrive(number, position as u32) {
            self.complete_at_table(id, number, &table);
        }
    }

    /// All ranks have arrived; the last of them is here.
    fn complete_at_table(&mut self, id: u64, number: u64, table: &Table) {
        if let Err(failure) = self.read_calls(id) {
            self.abandon_meeting(id, &failure);
            return;
        }
        let Some(meeting) = self.meetings.open(id) else { return };
        if !meeting.is_agreed() {
            self.fall_back(id);
        } else if meeting.bytes() <= ALONE_BYTES {
            self.launch_if_complete(id);
        } else {
            table.share_out(number);
            if let Ok(group) = self.groups.group(meeting.group()) {
                group.ring();
            }
            self.take_share(id);
        }
    }

    /// This process does its share of a collective all of whose calls it knows, and tells the others by messages.
    fn take_share(&mut self, id: u64) {
        if let Some(meeting) = self.meetings.open_mut(id) {
            meeting.table = None;
        }
        self.launch_if_complete(id);
    }

    /// Ends the meetings that other processes have done, and begins the share of this one where there is much to do.
    pub(crate) fn look_at_tables(&mut self) {
        for id in self.meetings.take_waiting_at_tables() {
            let Some(meeting) = self.meetings.open(id).filter(|meeting| !meeting.has_failed()) else { continue };
            let Some((number, table)) = meeting.number() else { continue };
            if table.is_done(number) {
                if let Some(meeting) = self.meetings.remove(id) {
                    self.let_go(&meeting, &Ok(()));
                }
            } else if table.is_shared_out(number) {
                match self.read_calls(id) {
                    Ok(()) => self.take_share(id),
                    Err(failure) => self.abandon_meeting(id, &failure),
                }
            } else {
                self.meetings.wait_at_table(id);
            }
        }
    }

    /// This process has moved all data of a meeting at a table.
    pub(crate) fn finish_at_table(&self, meeting: &Meeting) {
        let Some((number, table)) = meeting.number() else { return };
        table.set_done(number);
        if let Ok(group) = self.groups.group(meeting.group()) {
            group.ring();
        }
    }

    /// From here on a meeting goes by messages: the ranks here say what they said at the table.
    pub(crate) fn fall_back(&mut self, id: u64) {
        let Some(meeting) = self.meetings.open_mut(id) else { return };
        if meeting.table.take().is_none() {
            return;
        }
        let (group, key) = (meeting.group(), meeting.key());
        let mut said: Vec<(u32, Call, bool)> = Vec::new();
        for position in 0..meeting.arrivals.len() {
            let is_elsewhere = meeting.home(position).is_some();
            match &meeting.arrivals[position] {
                // It says so itself.
                Some(_) if is_elsewhere => meeting.arrivals[position] = None,
                Some(arrival) => said.push((arrival.rank, arrival.call.clone(), arrival.stream.is_some())),
                None => {}
            }
        }
        for (rank, call, has_reached) in said {
            self.tell_called(group, rank, key, &call);
            if has_reached {
                self.tell_reached(group, rank, key);
            }
        }
    }

    /// A rank of this process leaves its communicator: what it called and has not laid yet is said by messages.
    pub(crate) fn say_unlaid_calls(&mut self, group: u64, rank: u32) {
        for id in self.meetings.of_group(group) {
            let is_unlaid = |arrival: &Arrival| arrival.rank == rank && !arrival.is_laid;
            if self.meetings.open(id).is_some_and(|meeting| meeting.arrivals.iter().flatten().any(is_unlaid)) {
                self.fall_back(id);
            }
        }
    }

    /// Takes the calls of ranks elsewhere from a meeting's table.
    ///
    /// # Errors
    /// One is none, or its buffers are out of reach.
    pub(crate) fn read_calls(&mut self, id: u64) -> Result<(), Failure> {
        let Some(meeting) = self.meetings.open_mut(id) else { return Ok(()) };
        let Some((number, table)) = meeting.number() else { return Ok(()) };
        for position in 0..meeting.arrivals.len() {
            let Some(link) = meeting.home(position) else { continue };
            let Some(laid) = table.read(number, position as u32) else { continue };
            let call = Request::read(&laid.bytes)?.into_call(|place| link.reach(place))?;
            meeting.seat_elsewhere(position, call, laid.has_reached);
        }
        Ok(())
    }
}

impl Meeting {
    /// Whether the call at a position, `written` so, agrees with the others on the table.
    fn agrees_with_table(&self, number: u64, table: &Table, position: usize, written: &Written) -> bool {
        let Some(own) = &self.arrivals[position] else { return true };
        let wanted = &written.bytes[..written.wanted_bytes];
        let others = (0..self.arrivals.len()).filter(|other| *other != position && self.home(*other).is_some());
        others.filter_map(|other| Some((other, table.read(number, other as u32)?))).all(|(other, laid)| {
            // Their buffers do not matter here.
            let nowhere = |_| Err(Failure::new(code::HCCL_INTERNAL, "not asked for"));
            let asked = || Request::read(&laid.bytes).and_then(|request| request.without_places().into_call(nowhere));
            laid.bytes.starts_with(wanted) && !own.call.is_pairwise()
                || asked().is_ok_and(|call| own.call.agrees(own.rank, &call, other as u32))
        })
    }

    /// Whether all calls are parts of one collective.
    fn is_agreed(&self) -> bool {
        let mut parts = self.parts();
        let Some((first_rank, first, _)) = parts.next() else { return true };
        if !first.is_pairwise() {
            return parts.all(|(rank, call, _)| first.agrees(first_rank, call, rank));
        }
        let all: Vec<(u32, &Call)> = self.parts().map(|(rank, call, _)| (rank, call)).collect();
        let agree = |(rank, call): &(u32, &Call), (other, its): &(u32, &Call)| call.agrees(*rank, its, *other);
        all.iter().enumerate().all(|(index, one)| all[..index].iter().all(|other| agree(one, other)))
    }
}
