//! Communicators: their ranks and devices, and the calls each rank has made so far.
//!
//! Invariants:
//! - A communicator contains each device at most once.
//! - A departed rank is remembered, so its peers never wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::hccl::CollectiveOperation;
use crate::hccl::key::Key;
use crate::hccl::rank_location::RankLocation;
use crate::hccl::rank_location::Unclaimed;
use crate::hccl::rendezvous::RendezvousTable;
use crate::hccl::shared_memory::table::SharedTable;
use crate::hccl::tcp::connection::PeerLink;
use crate::hccl::tcp::links::PeerLinks;
use crate::hccl::tcp::pending::PendingTransfers;
use crate::hccl::tcp::wire::CommunicatorToken;
use crate::memory::allocation_table::Charge;

/// The processes of a communicator choose the same transport at its creation, and never change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChosenTransport {
    Process,
    /// Collectives are matched in a shared table (see `shared_memory::matching`), transfers between
    /// two ranks by messages. Data is copied in place.
    SharedMemory,
    /// Data travels as messages over links. Serves several hosts, strict mode, faults injected into
    /// transfers, and processes without shared memory.
    Tcp,
}

/// Rank `r` runs on device `cards[r]`.
#[derive(Debug)]
pub(crate) struct HcclCommunicator {
    pub(crate) name: Arc<str>,
    pub(crate) cards: Vec<u32>,
    /// Name in other processes. `None` if all ranks must be local.
    pub(crate) token: Option<CommunicatorToken>,
    pub(crate) rank_locations: Vec<RankLocation>,
    pub(crate) links: Vec<Arc<PeerLink>>,
    /// Ranks with a destroyed handle or a reset or lost device, in order of departure. If a
    /// departure causes others, the first one is the cause.
    pub(crate) departures: Vec<u32>,
    /// `None` until all processes have reported which memory they reach.
    pub(crate) transport: Option<ChosenTransport>,
    /// Local ranks that have entered. Only the last one reports this process as ready. Otherwise a
    /// remote rank could call, finish and exit before the next local rank looks for it.
    pub(super) entered: BTreeSet<u32>,
    /// Processes by id, and whether each shares memory with all others. `None` is this process.
    pub(super) ready: BTreeMap<Option<u128>, bool>,
    /// Processes that know that all processes are ready, by id; `None` is this process. A rank gets
    /// its handle only when all know. It may then exit at once, and peers must see an exit, not an
    /// unknown communicator.
    pub(super) decided: BTreeSet<Option<u128>>,
    /// Set once the process of rank 0 has created the table.
    pub(crate) table: Option<Arc<SharedTable>>,
    /// Collectives at the table that local ranks have started and not ended.
    pub(crate) running: BTreeSet<u64>,
    /// Returned by every later call.
    pub(crate) failure: Option<Failure>,
    pub(super) parent: Option<u64>,
    pub(super) collectives: Vec<u64>,
    /// Transfers by (sender, receiver), called by each of them.
    pub(super) transfers: BTreeMap<(u32, u32), [u64; 2]>,
    /// Sub-communicators under construction, by the program's id.
    pub(super) children: BTreeMap<u64, SubCommunicator>,
    pub(super) generations: BTreeMap<(u64, Vec<u32>), u64>,
}

#[derive(Debug)]
pub(super) struct SubCommunicator {
    pub(super) communicator: u64,
    pub(super) ranks: Vec<u32>,
    pub(super) joined: Vec<bool>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct CommunicatorMember {
    pub(crate) communicator: u64,
    pub(crate) rank: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Communicators {
    pub(super) communicators: BTreeMap<u64, HcclCommunicator>,
    pub(super) members: BTreeMap<u64, CommunicatorMember>,
    pub(super) buffers: BTreeMap<u64, Charge>,
    pub(super) by_token: BTreeMap<CommunicatorToken, u64>,
    pub(super) links: PeerLinks,
    pub(super) rendezvous_table: RendezvousTable,
    pub(super) unclaimed: Unclaimed,
    /// Collectives over links, with their start time.
    pub(crate) moving: BTreeMap<(CommunicatorToken, Key), Instant>,
    pub(crate) pending: Arc<PendingTransfers>,
}

impl HcclCommunicator {
    /// Returns whether local ranks may get their handles, or why they cannot. Returns `None` while
    /// this is undecided. A failure after all processes are ready is returned by the next call
    /// instead.
    pub(super) fn entered(&self) -> Option<Result<(), Failure>> {
        match &self.failure {
            Some(failure) if self.transport.is_none() => Some(Err(failure.clone())),
            Some(_) => Some(Ok(())),
            None => (self.transport.is_some() && self.decided.len() > self.links.len()).then_some(Ok(())),
        }
    }

    pub(super) fn depart(&mut self, rank: u32) {
        if !self.departures.contains(&rank) {
            self.departures.push(rank);
        }
    }

    pub(crate) fn has_called(&self, rank: u32) -> bool {
        let pairs = |((from, to), [sent, received]): (&(u32, u32), &[u64; 2])| {
            *from == rank && *sent > 0 || *to == rank && *received > 0
        };
        self.collectives.get(rank as usize).is_some_and(|count| *count > 0)
            || self.transfers.iter().any(pairs)
    }

    pub(crate) fn next_key(&self, rank: u32, kind: &CollectiveOperation) -> Key {
        let numbers = |from, to| self.transfers.get(&(from, to)).copied().unwrap_or_default();
        match kind {
            CollectiveOperation::Send { to, .. } => {
                Key::Pair { from: rank, to: *to, number: numbers(rank, *to)[0] }
            }
            CollectiveOperation::Recv { from, .. } => {
                Key::Pair { from: *from, to: rank, number: numbers(*from, rank)[1] }
            }
            _ => Key::Collective(self.collectives[rank as usize]),
        }
    }

    /// `side` is 0 for the sender and 1 for the receiver of a transfer.
    pub(crate) fn advance_key(&mut self, rank: u32, key: Key, side: usize) {
        match key {
            Key::Collective(_) => self.collectives[rank as usize] += 1,
            Key::Pair { from, to, .. } => self.transfers.entry((from, to)).or_default()[side] += 1,
        }
    }
}

impl Communicators {
    pub(crate) fn communicator(&self, id: u64) -> Result<&HcclCommunicator, Failure> {
        self.communicators.get(&id).ok_or_else(|| communicator_gone(id))
    }

    pub(crate) fn communicator_mut(&mut self, id: u64) -> Result<&mut HcclCommunicator, Failure> {
        self.communicators.get_mut(&id).ok_or_else(|| communicator_gone(id))
    }

    /// `name` is a result of `HcclGetCommName`. The error lists the existing names.
    pub(crate) fn of_name(
        &self,
        name: &str,
        card: u32,
    ) -> Result<(CommunicatorMember, &HcclCommunicator), Failure> {
        let of = |member: &&CommunicatorMember| {
            let communicator = self.communicators.get(&member.communicator);
            communicator.is_some_and(|communicator| {
                &*communicator.name == name && communicator.cards.get(member.rank as usize) == Some(&card)
            })
        };
        let Some(member) = self.members.values().find(of) else {
            let known: BTreeSet<&str> =
                self.communicators.values().map(|communicator| &*communicator.name).collect();
            let what =
                format!("no communicator {name:?} of this process is on card {card}; there are {known:?}");
            return Err(Failure::new(code::PARAM_INVALID_ACLNN, what));
        };
        Ok((*member, self.communicator(member.communicator)?))
    }

    pub(crate) fn members_on(&self, card: u32) -> usize {
        let is_there = |member: &&CommunicatorMember| {
            let communicator = self.communicators.get(&member.communicator);
            communicator.and_then(|communicator| communicator.cards.get(member.rank as usize)) == Some(&card)
        };
        self.members.values().filter(is_there).count()
    }

    /// Uses the first communicator that the device joined and that still exists.
    pub(crate) fn first_rank_of_card(&self, card: u32) -> Option<u32> {
        let rank_here = |communicator: &HcclCommunicator| {
            let here = |(rank, on): &(usize, &u32)| **on == card && communicator.is_here(*rank as u32);
            communicator.cards.iter().enumerate().find(here).map(|(rank, _)| rank as u32)
        };
        self.communicators.values().find_map(rank_here)
    }

    pub(crate) fn id_of(&self, token: CommunicatorToken) -> Option<u64> {
        self.by_token.get(&token).copied()
    }

    pub(crate) fn any_in_shared_memory(&self) -> bool {
        self.communicators
            .values()
            .any(|communicator| communicator.transport == Some(ChosenTransport::SharedMemory))
    }

    /// Returns true while some communicator waits for reports of processes.
    pub(crate) fn any_undecided(&self) -> bool {
        self.communicators.values().any(|communicator| communicator.entered().is_none())
    }

    /// Returns true also if the processes will never enter the communicator.
    pub(crate) fn is_entered(&self, communicator: u64) -> bool {
        self.communicators.get(&communicator).is_none_or(|communicator| communicator.entered().is_some())
    }

    pub(crate) fn with_link(&self, link: &Arc<PeerLink>) -> Vec<u64> {
        let has_link =
            |communicator: &HcclCommunicator| communicator.links.iter().any(|of| Arc::ptr_eq(of, link));
        self.communicators
            .iter()
            .filter(|(_, communicator)| has_link(communicator))
            .map(|(id, _)| *id)
            .collect()
    }

    pub(crate) fn card_of(&self, communicator: u64, rank: u32) -> Result<u32, Failure> {
        self.communicator(communicator)?
            .cards
            .get(rank as usize)
            .copied()
            .ok_or_else(|| communicator_gone(communicator))
    }

    pub(crate) fn member_numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.members.keys().copied()
    }

    pub(crate) fn member(&self, number: u64) -> Result<CommunicatorMember, Failure> {
        self.members.get(&number).copied().ok_or_else(|| HandleKind::Communicator.gone(number))
    }
}

pub(super) fn communicator_gone(id: u64) -> Failure {
    Failure::new(code::HCCL_PARA, format!("communicator {id} has been destroyed"))
}
