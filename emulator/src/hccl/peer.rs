//! Ranks in other processes: their calls, arrivals and departures take effect as if the ranks were
//! local.
//!
//! Input: messages and ends of links. Output: calls added to meetings, arrivals, failures. In the
//! other direction, actions of local ranks become messages to the processes of their communicator.
//!
//! Invariants:
//! - A rank's messages arrive in the order of its calls.
//! - Messages for a communicator that this process has not entered yet are stored.
//! - The death of a process fails every communicator with ranks there, at once and by name.
//!
//! Not here: data transfer (see `by_links`, `at_table`).

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::base::failure::{Failure, code};
use crate::config::{Sharing, Transport};
use crate::hccl::group::{Group, Way};
use crate::hccl::key::Key;
use crate::hccl::link::connection::Link;
use crate::hccl::link::endpoint::Endpoint;
use crate::hccl::link::host;
use crate::hccl::link::wire::{Address, CallRequest, Message, Reason, Token};
use crate::hccl::link::wire::{Caller, Process};
use crate::hccl::meeting::Meeting;
use crate::hccl::rank_location::RankLocation;
use crate::hccl::{CollectiveCall, Places};
use crate::machine::Machine;
use crate::memory::pages::Store;
use crate::memory::peer::StoreAddress;
use crate::state::State;

impl Group {
    /// Sends a message to the other processes of the communicator.
    pub(crate) fn post(&self, message: impl FnOnce(Token) -> Message) {
        let Some(token) = self.token else { return };
        if self.links.is_empty() {
            return;
        }
        let message = message(token);
        self.links.iter().for_each(|link| link.post(&message));
    }

    fn post_to_meeting(&self, key: Key, message: impl FnOnce(Token) -> Message) {
        let (Key::Pair { from, to, .. }, Some(token)) = (key, self.token) else { return self.post(message) };
        let link = [from, to].into_iter().find_map(|rank| self.rank_locations.get(rank as usize)?.link());
        if let Some(link) = link {
            link.post(&message(token));
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        self.links.is_empty()
    }

    pub(crate) fn is_here(&self, rank: u32) -> bool {
        matches!(self.rank_locations.get(rank as usize), Some(RankLocation::Here))
    }

    fn is_at(&self, rank: u32, link: &Arc<Link>) -> bool {
        let location = self.rank_locations.get(rank as usize).and_then(RankLocation::link);
        location.is_some_and(|location| Arc::ptr_eq(location, link))
    }

    fn ranks_at(&self, link: &Arc<Link>) -> Vec<u32> {
        (0..self.rank_locations.len() as u32).filter(|rank| self.is_at(*rank, link)).collect()
    }
}

impl Message {
    fn group(&self) -> Option<Token> {
        match self {
            Self::Called { group, .. }
            | Self::Reached { group, .. }
            | Self::Broken { group, .. }
            | Self::Left { group, .. }
            | Self::Cut { group, .. }
            | Self::Ready { group, .. }
            | Self::Decided { group }
            | Self::Table { group, .. }
            | Self::Moved { group, .. } => Some(*group),
            Self::Farewell | Self::Want(_) | Self::Data { .. } => None,
        }
    }

    /// Returns whether the message must wait until the communicator's way of transferring data is
    /// decided.
    fn is_of_use(&self) -> bool {
        !matches!(self, Self::Ready { .. } | Self::Decided { .. } | Self::Broken { .. } | Self::Left { .. })
    }
}

impl Machine {
    /// Returns the locations of a call's buffers for other processes. `None` if they cannot reach
    /// them.
    pub(crate) fn places(&self, call: &CollectiveCall) -> Option<Places> {
        let mut places = Places { send: None, recv: None };
        for (span, place) in [(&call.send, &mut places.send), (&call.recv, &mut places.recv)] {
            if let Some(span) = span {
                *place = Some(self.memory().place(span)?);
            }
        }
        Some(places)
    }

    /// Returns how long an idle strict machine waits for other processes. `None` if no process can
    /// make it continue.
    pub(crate) fn patience_for_others(&self, state: &State) -> Option<Duration> {
        if !state.hccl.groups.moving.is_empty() || state.hccl.meetings.is_any_elsewhere() {
            return Some(self.config().exec_timeout);
        }
        let gatherings = &state.hccl.groups.gatherings;
        // A process that shares memory on the host expects peers. Otherwise, the callers so far
        // show whether there are any.
        let is_gathering = self.memory().sharing() == Sharing::Host
            || gatherings.has_callers_elsewhere()
            || gatherings.has_lone_caller()
            || host::is_one_of_several();
        let is_building = (is_gathering && gatherings.is_any_open()) || state.hccl.groups.any_undecided();
        is_building.then_some(self.config().connect_timeout)
    }

    pub(crate) fn add_link(&self, link: &Arc<Link>) {
        self.lock().hccl.groups.links.insert(link);
        self.network().linked.notify_all();
    }

    pub(crate) fn lose_link(&self, link: &Arc<Link>, error: &io::Error) {
        let failure = Failure::new(code::REMOTE, format!("{} {}", link.peer, how_it_ended(link, error)));
        let by_group = self.update(|state| state.lose_peer(link, error));
        self.network().board.lose(link.peer.id, failure, by_group);
    }

    pub(crate) fn receive(&self, link: &Arc<Link>, message: Message, payload: &mut [u8]) {
        match message {
            Message::Farewell => link.note_farewell(),
            Message::Want(address) => self.network().board.want(address),
            Message::Data { address, offset, total, checksum } => {
                let taken = self.take_data(link, &address, offset, total, checksum, payload);
                if let Err(failure) = taken {
                    self.network().board.fail(address.group, address.key, &failure);
                }
            }
            about => {
                self.update(|state| state.receive(link, about));
            }
        }
    }

    fn take_data(
        &self,
        link: &Arc<Link>,
        address: &Address,
        offset: u64,
        total: u64,
        checksum: u32,
        bytes: &mut [u8],
    ) -> Result<(), Failure> {
        let found = crc32fast::hash(bytes);
        if found != checksum {
            let (key, from, to) = (address.key, address.from, address.to);
            let what = format!(
                "{key}: the data of rank {from} for rank {to} was changed on its way: its checksum is {found:08x}, it \
                 was sent with {checksum:08x}"
            );
            return Err(Failure::new(code::HCCL_REMOTE, what));
        }
        self.network().board.deliver(address, link.peer.id, offset, total, bytes)
    }
}

/// Describes how a link ended. The text follows the name of the process.
fn how_it_ended(link: &Link, error: &io::Error) -> String {
    if link.has_farewell() {
        return "has ended".into();
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "died: its connection ended without a farewell".into()
        }
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable => {
            format!("does not answer any more: {error}")
        }
        _ => format!("is lost: {error}"),
    }
}

impl State {
    fn receive(&mut self, link: &Arc<Link>, message: Message) {
        let Some(token) = message.group() else { return };
        let id = self.hccl.groups.id_of(token);
        let is_early = |group: &Group| group.way.is_none() && message.is_of_use();
        let Some(id) = id.filter(|id| !self.hccl.groups.group(*id).is_ok_and(is_early)) else {
            self.hccl.groups.unclaimed.entry(token).or_default().push((Arc::clone(link), message));
            return;
        };
        // The peer may have changed shared memory before it sent this message.
        self.look_at_tables();
        match message {
            Message::Called { rank, key, request, .. } => {
                if let Err(failure) = self
                    .check_home(id, rank, link)
                    .and_then(|()| request.into_call(|place| link.reach(place)))
                    .and_then(|call| self.join_from_elsewhere(id, rank, key, call))
                {
                    self.break_group(id, &failure);
                }
            }
            Message::Reached { rank, key, .. } => {
                if self.check_home(id, rank, link).is_ok() {
                    self.arrive_elsewhere(id, rank, key);
                }
            }
            Message::Broken { key, reason, .. } => {
                let failure = reason.into_failure();
                if self.hccl.groups.group(id).is_ok_and(|group| group.failure.is_none()) {
                    // Must precede the end of this process: peers may otherwise notice that end
                    // first and take it as the cause.
                    self.tell_broken(id, key, &failure);
                }
                if let Some(meeting) = key.and_then(|key| self.hccl.meetings.find(id, key)) {
                    self.abort_meeting(meeting, &failure);
                }
                self.break_group_here(id, &failure);
                if let Some(key) = key {
                    self.hccl.groups.board.fail(token, key, &failure);
                }
            }
            Message::Left { rank, why, .. } => {
                if self.check_home(id, rank, link).is_ok() {
                    self.depart(id, rank, &why);
                }
            }
            Message::Ready { shares_memory, .. } => self.note_ready(id, Some(link.peer.id), shares_memory),
            Message::Decided { .. } => self.note_decided(id, Some(link.peer.id)),
            Message::Table { place, .. } => self.take_table(id, link, place),
            Message::Moved { key, .. } => self.end_moved(id, key),
            Message::Cut { rank, id: cut, ranks, .. } => self.check_cut(id, rank, cut, &ranks),
            Message::Farewell | Message::Want(_) | Message::Data { .. } => {}
        }
    }

    /// Announces that all local ranks have entered a new communicator, and whether this process
    /// shares memory with all peers.
    pub(crate) fn say_ready(&mut self, id: u64) {
        let strikes = self.faults.strike_transfers();
        let Ok(group) = self.hccl.groups.group(id) else { return };
        if group.is_local() {
            return;
        }
        let shares_memory = !strikes && group.links.iter().all(|link| link.reaches());
        group.post(|group| Message::Ready { group, shares_memory });
        self.note_ready(id, None, shares_memory);
    }

    /// Records that a process has entered a new communicator. `None` is this process. The last one
    /// decides how data travels.
    fn note_ready(&mut self, id: u64, process: Option<u128>, shares_memory: bool) {
        let Ok(group) = self.hccl.groups.group_mut(id) else { return };
        group.ready.insert(process, shares_memory);
        if group.way.is_some() || group.ready.len() <= group.links.len() {
            return;
        }
        let way = if group.ready.values().all(|shares| *shares) { Way::Table } else { Way::Links };
        group.way = Some(way);
        let token = group.token;
        group.post(|group| Message::Decided { group });
        self.note_decided(id, None);
        if let Some(token) = token {
            self.claim(id, token);
        }
    }

    /// Records that a process knows that all have entered a new communicator. `None` is this
    /// process.
    fn note_decided(&mut self, id: u64, process: Option<u128>) {
        if let Ok(group) = self.hccl.groups.group_mut(id) {
            group.decided.insert(process);
            self.scheduler.has_progressed = true;
        }
    }

    /// Handles the messages that arrived before this process entered a communicator.
    pub(crate) fn claim(&mut self, group: u64, token: Token) {
        for (link, message) in self.hccl.groups.unclaimed.remove(&token).unwrap_or_default() {
            self.receive(&link, message);
        }
        let ended = self.hccl.groups.group(group).map(|group| group.links.clone()).unwrap_or_default();
        for link in ended.into_iter().filter(|link| link.is_closed()) {
            self.lose_in_group(group, &link, &io::ErrorKind::UnexpectedEof.into());
        }
    }

    fn check_home(&self, group: u64, rank: u32, link: &Arc<Link>) -> Result<(), Failure> {
        if self.hccl.groups.group(group)?.is_at(rank, link) {
            return Ok(());
        }
        let what = format!("{} speaks for rank {rank}, which is not its own", link.peer);
        Err(Failure::new(code::HCCL_INTERNAL, what))
    }

    /// Removes the ranks of a lost process from all communicators. Returns the failures of those
    /// communicators, by token.
    fn lose_peer(&mut self, link: &Arc<Link>, error: &io::Error) -> BTreeMap<Token, Failure> {
        // The process may have changed shared memory before it ended.
        self.look_at_tables();
        self.hccl.groups.links.remove(link);
        for messages in self.hccl.groups.unclaimed.values_mut() {
            messages.retain(|(from, _)| !Arc::ptr_eq(from, link));
        }
        let groups = self.hccl.groups.with_link(link);
        groups.into_iter().filter_map(|group| self.lose_in_group(group, link, error)).collect()
    }

    fn lose_in_group(&mut self, id: u64, link: &Arc<Link>, error: &io::Error) -> Option<(Token, Failure)> {
        let group = self.hccl.groups.group(id).ok()?;
        let token = group.token?;
        let ranks = group.ranks_at(link);
        let present: Vec<u32> =
            ranks.iter().copied().filter(|rank| !group.departures.contains(rank)).collect();
        let how = how_it_ended(link, error);
        let who = match ranks.as_slice() {
            [rank] => format!("rank {rank}"),
            ranks => format!("ranks {ranks:?}"),
        };
        let what = format!("communicator {}: {who} ({}) {how}", group.name, link.peer);
        // If a process ends because of an earlier failure, that failure remains the cause.
        let is_first = group.failure.is_none();
        let failure = group.failure.clone().unwrap_or_else(|| Failure::new(code::REMOTE, what));
        if !present.is_empty() {
            if is_first {
                // Must precede the end of this process: peers may otherwise notice that end first
                // and take it as the cause.
                self.tell_broken(id, None, &failure);
            }
            self.fail_group_here(id, &failure);
        }
        for rank in present {
            self.depart(id, rank, &how);
        }
        Some((token, failure))
    }

    pub(super) fn depart(&mut self, id: u64, rank: u32, why: &str) {
        let Ok(group) = self.hccl.groups.group_mut(id) else { return };
        group.depart(rank);
        let all_left = group.departures.len() == group.cards.len();
        self.leave_group_here(id, rank, why);
        if all_left {
            self.forget_group(id);
        }
    }

    /// Notifies waiting processes that this process has copied all data of a meeting.
    pub(crate) fn tell_moved(&self, meeting: &Meeting) {
        let Ok(group) = self.hccl.groups.group(meeting.group()) else { return };
        match (meeting.way(), meeting.key()) {
            (Way::Table, Key::Collective(number)) => {
                if let Some(table) = &group.table {
                    table.set_done(number);
                    group.ring();
                }
            }
            (Way::Table, key @ Key::Pair { .. }) => {
                group.post_to_meeting(key, |group| Message::Moved { group, key })
            }
            (Way::Process | Way::Links, _) => {}
        }
    }

    /// Sends a local rank's call to the other processes of a meeting.
    pub(crate) fn tell_called(&self, group: u64, rank: u32, key: Key, call: &CollectiveCall) {
        if let Ok(group) = self.hccl.groups.group(group)
            && group.is_here(rank)
        {
            group.post_to_meeting(key, |group| Message::Called {
                group,
                rank,
                key,
                request: CallRequest::of(call),
            });
        }
    }

    /// Notifies the other processes of a meeting that a rank's stream has reached its call.
    pub(crate) fn tell_reached(&self, group: u64, rank: u32, key: Key) {
        if let Ok(group) = self.hccl.groups.group(group) {
            group.post_to_meeting(key, |group| Message::Reached { group, rank, key });
        }
    }

    /// Notifies the other processes that a communicator, and the meeting `key` if given, has failed
    /// here.
    pub(crate) fn tell_broken(&self, group: u64, key: Option<Key>, failure: &Failure) {
        if let Ok(group) = self.hccl.groups.group(group) {
            group.post(|group| Message::Broken { group, key, reason: Reason::from(failure) });
        }
    }
}

impl Endpoint for Machine {
    fn store(&self) -> &Arc<Store> {
        self.memory().store()
    }

    fn lends_memory(&self) -> bool {
        let is_asked =
            self.config().transport != Transport::Tcp && self.memory().sharing() != Sharing::Process;
        is_asked && self.strict().is_none()
    }

    fn patience(&self) -> Duration {
        self.config().exec_timeout
    }

    fn welcome(&self, peer: Process, lane: Option<StoreAddress>, socket: TcpStream) -> io::Result<()> {
        self.network().welcome(peer, lane, socket)
    }

    fn add_link(&self, link: &Arc<Link>) {
        Self::add_link(self, link);
    }

    fn lose_link(&self, link: &Arc<Link>, error: &io::Error) {
        Self::lose_link(self, link, error);
    }

    fn receive(&self, link: &Arc<Link>, message: Message, payload: &mut [u8]) {
        Self::receive(self, link, message, payload);
    }

    fn gather_remote(&self, root: u64, caller: &Caller, reply: TcpStream) -> Option<u64> {
        Self::gather_remote(self, root, caller, reply)
    }

    fn end_waiting(&self, root: u64, ticket: u64, why: Option<Failure>) {
        Self::end_waiting(self, root, ticket, why);
    }

    fn look_at_tables(&self) {
        Self::look_at_tables(self);
    }
}
