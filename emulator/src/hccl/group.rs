//! Communicators: which cards form a group, how ranks find each other, what each has called so far.
//!
//! Input: root infos, ranks, device lists. Output: one handle per rank of a group. Invariants: a card is in a group
//! once; a handle belongs to one rank; a rank that left is remembered, so its peers never wait for it.
//! Does not: match calls (see `meeting`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::hccl::CollectiveKind;
use crate::hccl::gathering::Gatherings;
use crate::hccl::key::Key;
use crate::hccl::link::board::Board;
use crate::hccl::link::connection::Link;
use crate::hccl::link::wire::Token;
use crate::hccl::links::Links;
use crate::hccl::rank_location::RankLocation;
use crate::hccl::rank_location::Unclaimed;
use crate::hccl::table::Table;
use crate::memory::allocation_table::Charge;

/// How the data of a communicator's collectives travels. All its processes choose the same when it is made, and it stays so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// All ranks are in this process.
    Process,
    /// The ranks' processes reach each other's memory: collectives of all ranks meet at a table there (see `at_table`),
    /// transfers between two by messages, and data is moved in place.
    Table,
    /// By messages over links: between hosts, in strict mode, under faults that strike data on its way, where the
    /// configuration says so, and where the system does not let processes reach each other's memory.
    Links,
}

/// A communicator of `cards.len()` ranks; rank r is on card `cards[r]`.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: Arc<str>,
    pub(crate) cards: Vec<u32>,
    /// What names it in other processes; None when it can have no ranks there.
    pub(crate) token: Option<Token>,
    /// Where each rank is.
    pub(crate) rank_locations: Vec<RankLocation>,
    /// Links to the other processes, each once.
    pub(crate) links: Vec<Arc<Link>>,
    /// Ranks whose handle was destroyed or whose device was reset or lost, in the order in which they left: when others
    /// leave in consequence, the first is the cause.
    pub(crate) departures: Vec<u32>,
    /// How data travels; None until all processes have said what they reach.
    pub(crate) way: Option<Way>,
    /// Ranks here that have entered it. With the last this process says that it is ready, and not before: a rank elsewhere that knows
    /// all to be ready may call, end and be gone before the next one here looks for it.
    pub(super) entered: BTreeSet<u32>,
    /// The processes that have said whether they share memory with all others: this one (None) and others, by id.
    pub(super) ready: BTreeMap<Option<u128>, bool>,
    /// The processes that know all to have said so: this one (None) and others, by id. Only when all do, a rank has its handle: it may
    /// call, end and be gone at once, which the others are to take for its end and not for a communicator that never was.
    pub(super) decided: BTreeSet<Option<u128>>,
    /// Where its ranks meet, once the first rank's process has made it.
    pub(crate) table: Option<Arc<Table>>,
    /// Collectives of ranks here that have begun at the table and not ended, by number.
    pub(crate) running: BTreeSet<u64>,
    /// What broke it; every later call returns this.
    pub(crate) failure: Option<Failure>,
    /// The group it was cut from.
    pub(super) parent: Option<u64>,
    /// Collectives each rank has called.
    pub(super) collectives: Vec<u64>,
    /// Transfers called by (sender, receiver): by the sender, by the receiver.
    pub(super) transfers: BTreeMap<(u32, u32), [u64; 2]>,
    /// Groups cut from this one, by the program's id.
    pub(super) children: BTreeMap<u64, Child>,
    /// How many groups of these ranks were cut under an id before.
    pub(super) generations: BTreeMap<(u64, Vec<u32>), u64>,
}

#[derive(Debug)]
pub(super) struct Child {
    pub(super) group: u64,
    pub(super) ranks: Vec<u32>,
    pub(super) joined: Vec<bool>,
}

/// What a handle stands for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) group: u64,
    pub(crate) rank: u32,
}

/// All communicators of a machine.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(super) groups: BTreeMap<u64, Group>,
    pub(super) members: BTreeMap<u64, Member>,
    /// What each member's buffers take of its card.
    pub(super) buffers: BTreeMap<u64, Charge>,
    pub(super) by_token: BTreeMap<Token, u64>,
    /// Links to other processes, by the process's id.
    pub(super) links: Links,
    pub(super) gatherings: Gatherings,
    pub(super) unclaimed: Unclaimed,
    /// Collectives whose data moves over links, and since when.
    pub(crate) moving: BTreeMap<(Token, Key), Instant>,
    /// Data of collectives with ranks elsewhere.
    pub(crate) board: Arc<Board>,
}

impl Group {
    /// Whether a rank here has its handle, or why it gets none; None as long as that is open. What breaks a communicator once all are
    /// known to be ready is for whoever calls next.
    pub(super) fn entered(&self) -> Option<Result<(), Failure>> {
        match &self.failure {
            Some(failure) if self.way.is_none() => Some(Err(failure.clone())),
            Some(_) => Some(Ok(())),
            None => (self.way.is_some() && self.decided.len() > self.links.len()).then_some(Ok(())),
        }
    }

    /// Notes that a rank has left.
    pub(super) fn depart(&mut self, rank: u32) {
        if !self.departures.contains(&rank) {
            self.departures.push(rank);
        }
    }

    /// Whether a rank has called a collective or a transfer.
    pub(crate) fn has_called(&self, rank: u32) -> bool {
        let pairs = |((from, to), [sent, received]): (&(u32, u32), &[u64; 2])| {
            *from == rank && *sent > 0 || *to == rank && *received > 0
        };
        self.collectives.get(rank as usize).is_some_and(|count| *count > 0) || self.transfers.iter().any(pairs)
    }

    /// The meeting a rank's next call of this kind belongs to.
    pub(crate) fn next_key(&self, rank: u32, kind: &CollectiveKind) -> Key {
        let numbers = |from, to| self.transfers.get(&(from, to)).copied().unwrap_or_default();
        match kind {
            CollectiveKind::Send { to, .. } => Key::Pair { from: rank, to: *to, number: numbers(rank, *to)[0] },
            CollectiveKind::Recv { from, .. } => Key::Pair { from: *from, to: rank, number: numbers(*from, rank)[1] },
            _ => Key::Collective(self.collectives[rank as usize]),
        }
    }

    /// A rank has made its call of `key`; `side` is 0 for the sender, 1 for the receiver of a transfer.
    pub(crate) fn advance_key(&mut self, rank: u32, key: Key, side: usize) {
        match key {
            Key::Collective(_) => self.collectives[rank as usize] += 1,
            Key::Pair { from, to, .. } => self.transfers.entry((from, to)).or_default()[side] += 1,
        }
    }
}

impl Groups {
    pub(crate) fn group(&self, id: u64) -> Result<&Group, Failure> {
        self.groups.get(&id).ok_or_else(|| group_gone(id))
    }

    pub(crate) fn group_mut(&mut self, id: u64) -> Result<&mut Group, Failure> {
        self.groups.get_mut(&id).ok_or_else(|| group_gone(id))
    }

    /// The rank of a card in the communicator of a name, which `HcclGetCommName` gives; an error names those that there are.
    pub(crate) fn of_name(&self, name: &str, card: u32) -> Result<(Member, &Group), Failure> {
        let of = |member: &&Member| {
            let group = self.groups.get(&member.group);
            group.is_some_and(|group| &*group.name == name && group.cards.get(member.rank as usize) == Some(&card))
        };
        let Some(member) = self.members.values().find(of) else {
            let known: BTreeSet<&str> = self.groups.values().map(|group| &*group.name).collect();
            let what = format!("no communicator {name:?} of this process is on card {card}; there are {known:?}");
            return Err(Failure::new(code::PARAM_INVALID_ACLNN, what));
        };
        Ok((*member, self.group(member.group)?))
    }

    /// How many communicators this process has on a card.
    pub(crate) fn members_on(&self, card: u32) -> usize {
        let is_there = |member: &&Member| {
            let group = self.groups.get(&member.group);
            group.and_then(|group| group.cards.get(member.rank as usize)) == Some(&card)
        };
        self.members.values().filter(is_there).count()
    }

    /// Rank of a card in the first communicator it joined that still exists.
    pub(crate) fn first_rank_of_card(&self, card: u32) -> Option<u32> {
        let rank_here = |group: &Group| {
            let here = |(rank, on): &(usize, &u32)| **on == card && group.is_here(*rank as u32);
            group.cards.iter().enumerate().find(here).map(|(rank, _)| rank as u32)
        };
        self.groups.values().find_map(rank_here)
    }

    /// The communicator a token names.
    pub(crate) fn id_of(&self, token: Token) -> Option<u64> {
        self.by_token.get(&token).copied()
    }

    /// Whether data of some communicator travels by its table.
    pub(crate) fn any_at_table(&self) -> bool {
        self.groups.values().any(|group| group.way == Some(Way::Table))
    }

    /// Whether some communicator waits for what its other processes reach.
    pub(crate) fn any_undecided(&self) -> bool {
        self.groups.values().any(|group| group.entered().is_none())
    }

    /// Whether all processes have entered a communicator, or will not.
    pub(crate) fn is_entered(&self, group: u64) -> bool {
        self.groups.get(&group).is_none_or(|group| group.entered().is_some())
    }

    /// The communicators with ranks at the other end of a link.
    pub(crate) fn with_link(&self, link: &Arc<Link>) -> Vec<u64> {
        let has_link = |group: &Group| group.links.iter().any(|of| Arc::ptr_eq(of, link));
        self.groups.iter().filter(|(_, group)| has_link(group)).map(|(id, _)| *id).collect()
    }

    /// The card of a rank.
    pub(crate) fn card_of(&self, group: u64, rank: u32) -> Result<u32, Failure> {
        self.group(group)?.cards.get(rank as usize).copied().ok_or_else(|| group_gone(group))
    }

    /// The numbers of all handles.
    pub(crate) fn member_numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.members.keys().copied()
    }

    /// What a handle's number stands for.
    pub(crate) fn member(&self, number: u64) -> Result<Member, Failure> {
        self.members.get(&number).copied().ok_or_else(|| HandleKind::Communicator.gone(number))
    }
}

pub(super) fn group_gone(id: u64) -> Failure {
    Failure::new(code::HCCL_PARA, format!("communicator {id} has been destroyed"))
}
