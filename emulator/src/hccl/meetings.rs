//! Progress of collectives: ranks call, their streams arrive, data is copied, streams continue.
//!
//! Input: calls and arrivals of local and remote ranks. Output: complete collectives for the thread
//! pool, and released streams.
//!
//! Invariants:
//! - A collective copies its data once, after every rank has arrived.
//! - A failure of a communicator reaches all its ranks.
//!
//! Not here: data transfer (see `perform`, `by_links`, `at_table`).

use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::hccl::group::{Group, Way};
use crate::hccl::key::Key;
use crate::hccl::link::wire::Message;
use crate::hccl::meeting::{Arrival, Meeting, RankPlace};
use crate::hccl::{CollectiveCall, CollectiveKind};
use crate::scheduler::launch::Launch;
use crate::state::State;

impl State {
    /// Returns (rank, device) of every rank in a meeting.
    pub(crate) fn cards_of_meeting(&self, meeting: &Meeting) -> Vec<(u32, u32)> {
        let Ok(group) = self.hccl.groups.group(meeting.group) else { return Vec::new() };
        meeting.ranks().into_iter().map(|rank| (rank, group.cards[rank as usize])).collect()
    }

    /// Adds the next call of a local rank to its meeting.
    ///
    /// # Errors
    /// The communicator has failed, a rank has left it, or the call disagrees with the call of
    /// another rank.
    pub(crate) fn join(
        &mut self,
        group_id: u64,
        rank: u32,
        call: CollectiveCall,
    ) -> Result<RankPlace, Failure> {
        let key = self.unbroken(group_id)?.next_key(rank, &call.kind);
        let id = self.find_or_open(group_id, key)?;
        let rank_place = self.place_rank(id, rank, call)?;
        if let Ok(group) = self.hccl.groups.group_mut(group_id) {
            group.advance_key(rank, key, rank_place.position);
        }
        self.lay_call(id, rank_place.position)?;
        Ok(rank_place)
    }

    /// Adds the call of a remote rank to its meeting.
    ///
    /// # Errors
    /// The same as for [`State::join`].
    pub(crate) fn join_from_elsewhere(
        &mut self,
        group_id: u64,
        rank: u32,
        key: Key,
        call: CollectiveCall,
    ) -> Result<(), Failure> {
        self.unbroken(group_id)?;
        let id = self.find_or_open(group_id, key)?;
        self.place_rank(id, rank, call).map(drop)
    }

    fn unbroken(&self, group: u64) -> Result<&Group, Failure> {
        let group = self.hccl.groups.group(group)?;
        group.failure.clone().map_or(Ok(group), Err)
    }

    /// Returns the meeting of a key. The first call creates it.
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
            elsewhere: (!group.is_local())
                .then(|| group.token.zip(Some(group.rank_locations.clone())))
                .flatten(),
            way,
            since: None,
            is_shared_out: false,
            failure: None,
        };
        self.hccl.meetings.open.insert(id, meeting);
        self.hccl.meetings.by_key.insert((group_id, key), id);
        Ok(id)
    }

    /// Adds a rank's call to a meeting if it agrees with the calls there, and notifies the other
    /// processes.
    fn place_rank(&mut self, id: u64, rank: u32, call: CollectiveCall) -> Result<RankPlace, Failure> {
        let group = self.hccl.meetings.open(id).map(|meeting| meeting.group).unwrap_or_default();
        let departures = self.hccl.groups.group(group)?.departures.clone();
        if !departures.is_empty() {
            // Departed ranks may have made their calls before they left.
            self.read_calls(id)?;
        }
        let Some(meeting) = self.hccl.meetings.open.get(&id) else {
            return Err(Failure::new(
                code::HCCL_INTERNAL,
                format!("meeting {id} is listed but does not exist"),
            ));
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
            (CollectiveKind::Send { .. }, _) => 0,
            (CollectiveKind::Recv { .. }, _) => 1,
            _ => rank as usize,
        };
        if !is_at_table {
            self.tell_called(group, rank, key, &call);
        }
        if let Some(meeting) = self.hccl.meetings.open.get_mut(&id) {
            let arrival = Arrival {
                rank,
                call,
                is_laid: false,
                is_at_table: false,
                stream: None,
                reached_elsewhere: false,
            };
            meeting.arrivals[position] = Some(arrival);
        }
        Ok(RankPlace { meeting: id, position })
    }

    /// Records that a local stream has reached its rank's call.
    pub(crate) fn arrive(&mut self, rank_place: RankPlace, stream: u64) {
        let now = self.scheduler.now();
        let Some(meeting) = self.hccl.meetings.open.get_mut(&rank_place.meeting) else {
            self.settle(stream, Err(Failure::left_by_peer("its communicator was destroyed")));
            return;
        };
        if let Some(failure) = meeting.failure.clone() {
            self.settle(stream, Err(failure));
            return;
        }
        let (group, key) = (meeting.group, meeting.key);
        let mut rank = None;
        if let Some(arrival) = &mut meeting.arrivals[rank_place.position] {
            arrival.stream = Some(stream);
            rank = Some(arrival.rank);
        }
        let since = *meeting.since.get_or_insert(now);
        let (is_at_table, is_elsewhere) = (meeting.is_at_table(), meeting.elsewhere.is_some());
        self.scheduler.limit(since + self.scheduler.exec_timeout);
        if is_at_table {
            self.hccl.meetings.wait_at_table(rank_place.meeting);
            self.advance_at_table(rank_place.meeting);
            return;
        }
        if let Some(rank) = rank
            && is_elsewhere
        {
            self.tell_reached(group, rank, key);
        }
        self.launch_if_complete(rank_place.meeting);
    }

    /// Records that the stream of a remote rank has reached its call.
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

    pub(crate) fn end_meeting(&mut self, meeting: &Meeting, outcome: &Result<(), Failure>) {
        match outcome {
            Ok(()) => self.tell_moved(meeting),
            Err(failure) => self.break_meeting(meeting.group, Some(meeting.key), failure),
        }
        self.let_go(meeting, outcome);
        if meeting.is_at_table() {
            // The slot is free now. Another collective may wait for it.
            self.look_at_tables();
        }
    }

    /// Releases the streams that wait in a meeting.
    pub(super) fn let_go(&mut self, meeting: &Meeting, outcome: &Result<(), Failure>) {
        if let (Key::Collective(number), Ok(group)) = (meeting.key, self.hccl.groups.group_mut(meeting.group))
        {
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

    /// Ends a transfer between two ranks after the other process has copied the data.
    pub(crate) fn end_moved(&mut self, group: u64, key: Key) {
        if let Some(meeting) =
            self.hccl.meetings.find(group, key).and_then(|id| self.hccl.meetings.remove(id))
        {
            self.let_go(&meeting, &Ok(()));
        }
    }

    /// Fails a meeting for every rank: waiting ranks now, other ranks when their streams reach the
    /// call.
    pub(crate) fn abort_meeting(&mut self, id: u64, failure: &Failure) {
        let Some(meeting) = self.hccl.meetings.open.get_mut(&id) else { return };
        if meeting.failure.is_some() {
            return;
        }
        meeting.failure = Some(failure.clone());
        let waiting: Vec<u64> =
            meeting.arrivals.iter_mut().flatten().filter_map(|a| a.stream.take()).collect();
        for stream in waiting {
            self.settle(stream, Err(failure.clone()));
        }
    }

    pub(crate) fn break_group(&mut self, group: u64, failure: &Failure) {
        self.break_meeting(group, None, failure);
    }

    fn break_meeting(&mut self, group: u64, key: Option<Key>, failure: &Failure) {
        // Peers already know of an earlier failure of the communicator, but not that this meeting
        // fails too.
        if key.is_some() || self.hccl.groups.group(group).is_ok_and(|group| group.failure.is_none()) {
            self.tell_broken(group, key, failure);
        }
        self.break_group_here(group, failure);
    }

    /// Fails all meetings of a communicator that has lost a process.
    pub(crate) fn fail_group_here(&mut self, group: u64, failure: &Failure) {
        for id in self.hccl.meetings.unfailed_of_group(group) {
            let placed = self.hccl.meetings.open[&id].placed(failure);
            self.abort_meeting(id, &placed);
        }
        self.break_group_here(group, failure);
    }

    /// Fails a communicator in this process. Later calls return the failure, and meetings that lack
    /// a call fail because they can never be complete.
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

    /// Fails a meeting with a call that no stream will ever reach, and its communicator.
    pub(crate) fn abandon_meeting(&mut self, id: u64, failure: &Failure) {
        let Some(meeting) = self.hccl.meetings.open.get(&id) else { return };
        let (group, key, failure) = (meeting.group, meeting.key, meeting.placed(failure));
        self.abort_meeting(id, &failure);
        self.break_meeting(group, Some(key), &failure);
    }

    /// Fails a meeting and its communicator in all processes. `failure` already names its location.
    pub(crate) fn fail_meeting(&mut self, id: u64, failure: &Failure) {
        let Some((group, key)) = self.hccl.meetings.open.get(&id).map(|meeting| (meeting.group, meeting.key))
        else {
            return;
        };
        self.abort_meeting(id, failure);
        self.break_meeting(group, Some(key), failure);
    }

    /// Fails the meetings that a removed stream waits for.
    pub(crate) fn leave_meetings(&mut self, stream: u64, failure: &Failure) {
        let waits = |meeting: &Meeting| meeting.arrivals.iter().flatten().any(|a| a.stream == Some(stream));
        let left: Vec<u64> =
            self.hccl.meetings.open.iter().filter(|(_, m)| waits(m)).map(|(id, _)| *id).collect();
        for id in left {
            self.abandon_meeting(id, failure);
        }
    }

    /// Removes a local rank from its communicator. Meetings that lack its call fail for the other
    /// ranks.
    pub(crate) fn leave_group(&mut self, group: u64, rank: u32, why: &str) {
        if let Ok(group) = self.hccl.groups.group(group) {
            group.post(|group| Message::Left { group, rank, why: why.into() });
        }
        self.leave_group_here(group, rank, why);
    }

    /// Fails the local meetings that lack the call of a departed rank.
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

    /// Reads a meeting's calls from its table before a missing call fails the meeting. An
    /// unreadable call counts as missing.
    fn know_calls(&mut self, id: u64) {
        let _unreadable = self.read_calls(id);
    }

    pub(crate) fn expire_meetings(&mut self) {
        self.look_at_tables();
        let (now, limit) = (self.scheduler.now(), self.scheduler.exec_timeout);
        let late = |m: &Meeting| m.failure.is_none() && m.since.is_some_and(|since| now >= since + limit);
        let expired: Vec<u64> =
            self.hccl.meetings.open.iter().filter(|(_, m)| late(m)).map(|(id, _)| *id).collect();
        for id in expired {
            self.know_calls(id);
            let meeting = &self.hccl.meetings.open[&id];
            let what =
                format!("no data after {} s (HCCL_EXEC_TIMEOUT); {}", limit.as_secs(), meeting.absent());
            self.abandon_meeting(id, &Failure::new(code::TASK_TIMEOUT, what));
        }
        self.expire_moving();
    }

    /// Fails transfers over links that take too long. Returns whether there were any.
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
