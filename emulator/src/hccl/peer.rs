//! Ranks in other processes take effect as if they were local.
//!
//! Invariants:
//! - A rank's messages arrive in the order of its calls.
//! - Messages for a communicator that this process has not entered yet are stored.
//! - The death of a process fails every communicator with ranks there, at once and by name.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::base::failure::{Failure, code};
use crate::config::{Sharing, Transport};
use crate::hccl::communicator::{ChosenTransport, HcclCommunicator};
use crate::hccl::key::Key;
use crate::hccl::matching::Matching;
use crate::hccl::rank_location::RankLocation;
use crate::hccl::tcp::connection::PeerLink;
use crate::hccl::tcp::endpoint::Endpoint;
use crate::hccl::tcp::host;
use crate::hccl::tcp::wire::{Address, CallRequest, CommunicatorToken, Reason, WireMessage};
use crate::hccl::tcp::wire::{Caller, ProcessAddress};
use crate::hccl::{CollectiveCall, Places};
use crate::machine::Machine;
use crate::memory::pages::PageStore;
use crate::memory::peer::StoreAddress;
use crate::state::MachineState;

impl HcclCommunicator {
    /// Sends a message to the other processes of the communicator.
    pub(crate) fn post(&self, message: impl FnOnce(CommunicatorToken) -> WireMessage) {
        let Some(token) = self.token else { return };
        if self.links.is_empty() {
            return;
        }
        let message = message(token);
        self.links.iter().for_each(|link| link.post(&message));
    }

    fn post_to_matching(&self, key: Key, message: impl FnOnce(CommunicatorToken) -> WireMessage) {
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

    fn is_at(&self, rank: u32, link: &Arc<PeerLink>) -> bool {
        let location = self.rank_locations.get(rank as usize).and_then(RankLocation::link);
        location.is_some_and(|location| Arc::ptr_eq(location, link))
    }

    fn ranks_at(&self, link: &Arc<PeerLink>) -> Vec<u32> {
        (0..self.rank_locations.len() as u32).filter(|rank| self.is_at(*rank, link)).collect()
    }
}

impl WireMessage {
    fn communicator(&self) -> Option<CommunicatorToken> {
        match self {
            Self::Called { communicator, .. }
            | Self::Reached { communicator, .. }
            | Self::Broken { communicator, .. }
            | Self::Left { communicator, .. }
            | Self::Cut { communicator, .. }
            | Self::Ready { communicator, .. }
            | Self::Decided { communicator }
            | Self::Table { communicator, .. }
            | Self::Moved { communicator, .. } => Some(*communicator),
            Self::Farewell | Self::Want(_) | Self::Data { .. } => None,
        }
    }

    /// Other messages wait until the communicator's transport is decided.
    fn is_of_use(&self) -> bool {
        !matches!(self, Self::Ready { .. } | Self::Decided { .. } | Self::Broken { .. } | Self::Left { .. })
    }
}

impl Machine {
    /// Returns `None` if other processes cannot reach the buffers.
    pub(crate) fn places(&self, call: &CollectiveCall) -> Option<Places> {
        let mut places = Places { send: None, recv: None };
        for (span, place) in [(&call.send, &mut places.send), (&call.recv, &mut places.recv)] {
            if let Some(span) = span {
                *place = Some(self.memory().place(span)?);
            }
        }
        Some(places)
    }

    /// Returns the time that an idle strict machine waits for other processes. `None` if none can
    /// make it continue.
    pub(crate) fn patience_for_others(&self, state: &MachineState) -> Option<Duration> {
        if !state.hccl.communicators.moving.is_empty() || state.hccl.matchings.is_any_elsewhere() {
            return Some(self.config().exec_timeout);
        }
        let rendezvous_table = &state.hccl.communicators.rendezvous_table;
        // A process that shares memory on the host expects peers. Otherwise, the callers so far
        // show them.
        let is_rendezvous = self.memory().sharing() == Sharing::Host
            || rendezvous_table.has_callers_elsewhere()
            || rendezvous_table.has_lone_caller()
            || host::is_one_of_several();
        let is_building =
            (is_rendezvous && rendezvous_table.is_any_open()) || state.hccl.communicators.any_undecided();
        is_building.then_some(self.config().connect_timeout)
    }

    pub(crate) fn add_link(&self, link: &Arc<PeerLink>) {
        self.lock().hccl.communicators.links.insert(link);
        self.network().linked.notify_all();
    }

    pub(crate) fn lose_link(&self, link: &Arc<PeerLink>, error: &io::Error) {
        let failure = Failure::new(code::REMOTE, format!("{} {}", link.peer, how_it_ended(link, error)));
        let by_communicator = self.update(|state| state.lose_peer(link, error));
        self.network().pending.lose(link.peer.id, failure, by_communicator);
    }

    pub(crate) fn receive(&self, link: &Arc<PeerLink>, message: WireMessage, payload: &mut [u8]) {
        match message {
            WireMessage::Farewell => link.note_farewell(),
            WireMessage::Want(address) => self.network().pending.want(address),
            WireMessage::Data { address, offset, total, checksum } => {
                let taken = self.take_data(link, &address, offset, total, checksum, payload);
                if let Err(failure) = taken {
                    self.network().pending.fail(address.communicator, address.key, &failure);
                }
            }
            about => {
                self.update(|state| state.receive(link, about));
            }
        }
    }

    fn take_data(
        &self,
        link: &Arc<PeerLink>,
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
        self.network().pending.deliver(address, link.peer.id, offset, total, bytes)
    }
}

/// The text follows the name of the process.
fn how_it_ended(link: &PeerLink, error: &io::Error) -> String {
    if link.has_farewell() {
        return "has ended".into();
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "died: its connection closed without notice".into()
        }
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable => {
            format!("does not answer any more: {error}")
        }
        _ => format!("is lost: {error}"),
    }
}

impl MachineState {
    fn receive(&mut self, link: &Arc<PeerLink>, message: WireMessage) {
        let Some(token) = message.communicator() else { return };
        let id = self.hccl.communicators.id_of(token);
        let is_early =
            |communicator: &HcclCommunicator| communicator.transport.is_none() && message.is_of_use();
        let Some(id) = id.filter(|id| !self.hccl.communicators.communicator(*id).is_ok_and(is_early)) else {
            self.hccl.communicators.unclaimed.entry(token).or_default().push((Arc::clone(link), message));
            return;
        };
        self.read_tables();
        match message {
            WireMessage::Called { rank, key, request, .. } => {
                if let Err(failure) = self
                    .check_home(id, rank, link)
                    .and_then(|()| request.into_call(|place| link.reach(place)))
                    .and_then(|call| self.join_from_elsewhere(id, rank, key, call))
                {
                    self.break_communicator(id, &failure);
                }
            }
            WireMessage::Reached { rank, key, .. } => {
                if self.check_home(id, rank, link).is_ok() {
                    self.arrive_elsewhere(id, rank, key);
                }
            }
            WireMessage::Broken { key, reason, .. } => {
                let failure = reason.into_failure();
                if self
                    .hccl
                    .communicators
                    .communicator(id)
                    .is_ok_and(|communicator| communicator.failure.is_none())
                {
                    // Peers may otherwise take the end of this process as the cause.
                    self.tell_broken(id, key, &failure);
                }
                if let Some(matching) = key.and_then(|key| self.hccl.matchings.find(id, key)) {
                    self.abort_matching(matching, &failure);
                }
                self.break_communicator_here(id, &failure);
                if let Some(key) = key {
                    self.hccl.communicators.pending.fail(token, key, &failure);
                }
            }
            WireMessage::Left { rank, why, .. } => {
                if self.check_home(id, rank, link).is_ok() {
                    self.depart(id, rank, &why);
                }
            }
            WireMessage::Ready { shares_memory, .. } => {
                self.note_ready(id, Some(link.peer.id), shares_memory);
            }
            WireMessage::Decided { .. } => self.note_decided(id, Some(link.peer.id)),
            WireMessage::Table { place, .. } => self.take_table(id, link, place),
            WireMessage::Moved { key, .. } => self.end_moved(id, key),
            WireMessage::Cut { rank, id: cut, ranks, .. } => self.check_cut(id, rank, cut, &ranks),
            WireMessage::Farewell | WireMessage::Want(_) | WireMessage::Data { .. } => {}
        }
    }

    pub(crate) fn say_ready(&mut self, id: u64) {
        let strikes = self.faults.strike_transfers();
        let Ok(communicator) = self.hccl.communicators.communicator(id) else { return };
        if communicator.is_local() {
            return;
        }
        let shares_memory = !strikes && communicator.links.iter().all(|link| link.reaches());
        communicator.post(|communicator| WireMessage::Ready { communicator, shares_memory });
        self.note_ready(id, None, shares_memory);
    }

    /// The last process decides the transport. `None` is this process.
    fn note_ready(&mut self, id: u64, process: Option<u128>, shares_memory: bool) {
        let Ok(communicator) = self.hccl.communicators.communicator_mut(id) else { return };
        communicator.ready.insert(process, shares_memory);
        if communicator.transport.is_some() || communicator.ready.len() <= communicator.links.len() {
            return;
        }
        let transport = if communicator.ready.values().all(|shares| *shares) {
            ChosenTransport::SharedMemory
        } else {
            ChosenTransport::Tcp
        };
        communicator.transport = Some(transport);
        let token = communicator.token;
        communicator.post(|communicator| WireMessage::Decided { communicator });
        self.note_decided(id, None);
        if let Some(token) = token {
            self.claim(id, token);
        }
    }

    /// A process knows that all have entered. `None` is this process.
    fn note_decided(&mut self, id: u64, process: Option<u128>) {
        if let Ok(communicator) = self.hccl.communicators.communicator_mut(id) {
            communicator.decided.insert(process);
            self.scheduler.has_progressed = true;
        }
    }

    pub(crate) fn claim(&mut self, communicator: u64, token: CommunicatorToken) {
        for (link, message) in self.hccl.communicators.unclaimed.remove(&token).unwrap_or_default() {
            self.receive(&link, message);
        }
        let ended = self
            .hccl
            .communicators
            .communicator(communicator)
            .map(|communicator| communicator.links.clone())
            .unwrap_or_default();
        for link in ended.into_iter().filter(|link| link.is_closed()) {
            self.lose_in_communicator(communicator, &link, &io::ErrorKind::UnexpectedEof.into());
        }
    }

    fn check_home(&self, communicator: u64, rank: u32, link: &Arc<PeerLink>) -> Result<(), Failure> {
        if self.hccl.communicators.communicator(communicator)?.is_at(rank, link) {
            return Ok(());
        }
        let what = format!("{} speaks for rank {rank}, which is not its own", link.peer);
        Err(Failure::new(code::HCCL_INTERNAL, what))
    }

    /// Removes the ranks of a lost process from all communicators. Returns the failures of those
    /// communicators, by token.
    fn lose_peer(&mut self, link: &Arc<PeerLink>, error: &io::Error) -> BTreeMap<CommunicatorToken, Failure> {
        // The process may have changed shared memory before it ended.
        self.read_tables();
        self.hccl.communicators.links.remove(link);
        for messages in self.hccl.communicators.unclaimed.values_mut() {
            messages.retain(|(from, _)| !Arc::ptr_eq(from, link));
        }
        let communicators = self.hccl.communicators.with_link(link);
        communicators
            .into_iter()
            .filter_map(|communicator| self.lose_in_communicator(communicator, link, error))
            .collect()
    }

    fn lose_in_communicator(
        &mut self,
        id: u64,
        link: &Arc<PeerLink>,
        error: &io::Error,
    ) -> Option<(CommunicatorToken, Failure)> {
        let communicator = self.hccl.communicators.communicator(id).ok()?;
        let token = communicator.token?;
        let ranks = communicator.ranks_at(link);
        let present: Vec<u32> =
            ranks.iter().copied().filter(|rank| !communicator.departures.contains(rank)).collect();
        let how = how_it_ended(link, error);
        let who = match ranks.as_slice() {
            [rank] => format!("rank {rank}"),
            ranks => format!("ranks {ranks:?}"),
        };
        let what = format!("communicator {}: {who} ({}) {how}", communicator.name, link.peer);
        // An earlier failure remains the cause.
        let is_first = communicator.failure.is_none();
        let failure = communicator.failure.clone().unwrap_or_else(|| Failure::new(code::REMOTE, what));
        if !present.is_empty() {
            if is_first {
                // Peers may otherwise take the end of this process as the cause.
                self.tell_broken(id, None, &failure);
            }
            self.fail_communicator_here(id, &failure);
        }
        for rank in present {
            self.depart(id, rank, &how);
        }
        Some((token, failure))
    }

    pub(super) fn depart(&mut self, id: u64, rank: u32, why: &str) {
        let Ok(communicator) = self.hccl.communicators.communicator_mut(id) else { return };
        communicator.depart(rank);
        let all_left = communicator.departures.len() == communicator.cards.len();
        self.leave_communicator_here(id, rank, why);
        if all_left {
            self.forget_communicator(id);
        }
    }

    pub(crate) fn tell_moved(&self, matching: &Matching) {
        let Ok(communicator) = self.hccl.communicators.communicator(matching.communicator()) else { return };
        match (matching.transport(), matching.key()) {
            (ChosenTransport::SharedMemory, Key::Collective(number)) => {
                if let Some(table) = &communicator.table {
                    table.set_done(number);
                    communicator.ring();
                }
            }
            (ChosenTransport::SharedMemory, key @ Key::Pair { .. }) => {
                communicator.post_to_matching(key, |communicator| WireMessage::Moved { communicator, key });
            }
            (ChosenTransport::Process | ChosenTransport::Tcp, _) => {}
        }
    }

    pub(crate) fn tell_called(&self, communicator: u64, rank: u32, key: Key, call: &CollectiveCall) {
        if let Ok(communicator) = self.hccl.communicators.communicator(communicator)
            && communicator.is_here(rank)
        {
            communicator.post_to_matching(key, |communicator| WireMessage::Called {
                communicator,
                rank,
                key,
                request: CallRequest::of(call),
            });
        }
    }

    pub(crate) fn tell_reached(&self, communicator: u64, rank: u32, key: Key) {
        if let Ok(communicator) = self.hccl.communicators.communicator(communicator) {
            communicator.post_to_matching(key, |communicator| WireMessage::Reached {
                communicator,
                rank,
                key,
            });
        }
    }

    /// Reports a failure of the communicator, and of the matching `key` if given.
    pub(crate) fn tell_broken(&self, communicator: u64, key: Option<Key>, failure: &Failure) {
        if let Ok(communicator) = self.hccl.communicators.communicator(communicator) {
            communicator.post(|communicator| WireMessage::Broken {
                communicator,
                key,
                reason: Reason::from(failure),
            });
        }
    }
}

impl Endpoint for Machine {
    fn store(&self) -> &Arc<PageStore> {
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

    fn welcome(&self, peer: ProcessAddress, lane: Option<StoreAddress>, socket: TcpStream) -> io::Result<()> {
        self.network().welcome(peer, lane, socket)
    }

    fn add_link(&self, link: &Arc<PeerLink>) {
        Self::add_link(self, link);
    }

    fn lose_link(&self, link: &Arc<PeerLink>, error: &io::Error) {
        Self::lose_link(self, link, error);
    }

    fn receive(&self, link: &Arc<PeerLink>, message: WireMessage, payload: &mut [u8]) {
        Self::receive(self, link, message, payload);
    }

    fn gather_remote(&self, root: u64, caller: &Caller, reply: TcpStream) -> Option<u64> {
        Self::gather_remote(self, root, caller, reply)
    }

    fn end_waiting(&self, root: u64, ticket: u64, why: Option<Failure>) {
        Self::end_waiting(self, root, ticket, why);
    }

    fn read_tables(&self) {
        Self::read_tables(self);
    }
}
