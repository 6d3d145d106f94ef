//! Communicators: which cards form a group, how ranks find each other, what each has called so far.
//!
//! Input: root infos, ranks, device lists. Output: one handle per rank of a group. Invariants: a card is in a group
//! once; a handle belongs to one rank; a rank that left is remembered, so its peers never wait for it.
//! Does not: match calls (see `meeting`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::collective::Kind;
use crate::collective::meeting::Key;
use crate::failure::{Failure, code};
use crate::handle::HandleKind;
use crate::machine::{Machine, State};
use crate::memory::Charge;
use crate::strict::order;
use crate::strict::wait::Wait;

/// A communicator of `cards.len()` ranks; rank r is on card `cards[r]`.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: Arc<str>,
    pub(crate) cards: Vec<u32>,
    /// Ranks whose handle was destroyed or whose device was reset or lost, in the order in which they left: when others
    /// leave in consequence, the first is the cause.
    pub(crate) departures: Vec<u32>,
    /// What broke it; every later call returns this.
    pub(crate) failure: Option<Failure>,
    /// The group it was cut from.
    parent: Option<u64>,
    /// Collectives each rank has called.
    collectives: Vec<u64>,
    /// Transfers called by (sender, receiver): by the sender, by the receiver.
    transfers: BTreeMap<(u32, u32), [u64; 2]>,
    /// Groups cut from this one, by the program's id.
    children: BTreeMap<u64, Child>,
}

#[derive(Debug)]
struct Child {
    group: u64,
    ranks: Vec<u32>,
    joined: Vec<bool>,
}

/// What a handle stands for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) group: u64,
    pub(crate) rank: u32,
}

/// Ranks that hold the same root info and wait for each other.
#[derive(Debug)]
struct Gathering {
    cards: Vec<Option<u32>>,
    /// The group, or why there will be none.
    outcome: Option<Result<u64, Failure>>,
    /// Ranks that have yet to see the outcome.
    inside: usize,
}

/// All communicators of a machine.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<u64, Group>,
    members: BTreeMap<u64, Member>,
    /// What each member's buffers take of its card.
    buffers: BTreeMap<u64, Charge>,
    gatherings: BTreeMap<u64, Gathering>,
    roots_issued: u64,
}

impl Group {
    /// Notes that a rank has left.
    fn depart(&mut self, rank: u32) {
        if !self.departures.contains(&rank) {
            self.departures.push(rank);
        }
    }

    /// The meeting a rank's next call of this kind belongs to.
    pub(crate) fn next_key(&self, rank: u32, kind: &Kind) -> Key {
        let numbers = |from, to| self.transfers.get(&(from, to)).copied().unwrap_or_default();
        match kind {
            Kind::Send { to, .. } => Key::Pair { from: rank, to: *to, number: numbers(rank, *to)[0] },
            Kind::Recv { from, .. } => Key::Pair { from: *from, to: rank, number: numbers(*from, rank)[1] },
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

    /// Rank of a card in the first communicator it joined that still exists.
    pub(crate) fn first_rank_of_card(&self, card: u32) -> Option<u32> {
        self.groups.values().find_map(|group| group.cards.iter().position(|on| *on == card)).map(|rank| rank as u32)
    }

    /// Whether those who wait for a communicator to be built can go on.
    pub(crate) fn is_gathered(&self, root: u64) -> bool {
        self.gatherings.get(&root).is_none_or(|gathering| gathering.outcome.is_some())
    }

    /// Size of a communicator that is being built, and the ranks that have not come.
    pub(crate) fn absent_from(&self, root: u64) -> Option<(usize, Vec<u32>)> {
        let gathering = self.gatherings.get(&root).filter(|gathering| gathering.outcome.is_none())?;
        let absent = (0_u32..).zip(&gathering.cards).filter(|(_, card)| card.is_none()).map(|(rank, _)| rank);
        Some((gathering.cards.len(), absent.collect()))
    }

    /// The card of a rank.
    pub(crate) fn card_of(&self, group: u64, rank: u32) -> Result<u32, Failure> {
        self.group(group)?.cards.get(rank as usize).copied().ok_or_else(|| group_gone(group))
    }

    /// What a handle's number stands for.
    pub(crate) fn member(&self, number: u64) -> Result<Member, Failure> {
        self.members.get(&number).copied().ok_or_else(|| HandleKind::Communicator.gone(number))
    }
}

fn group_gone(id: u64) -> Failure {
    Failure::new(code::HCCL_PARA, format!("communicator {id} has been destroyed"))
}

impl State {
    /// A new root info number.
    pub(crate) fn issue_root(&mut self) -> u64 {
        self.groups.roots_issued += 1;
        self.groups.roots_issued
    }

    /// A new group over `cards`.
    ///
    /// # Errors
    /// A card appears twice, or the environment asks for a determinism there is not.
    pub(crate) fn create_group(&mut self, name: Option<String>, cards: Vec<u32>) -> Result<u64, Failure> {
        check_distinct(&cards)?;
        self.deterministic.clone()?;
        let id = self.fresh_number();
        let name = name.unwrap_or_else(|| format!("hccl_world_{id}")).into();
        self.insert_group(id, name, cards, None);
        Ok(id)
    }

    fn insert_group(&mut self, id: u64, name: Arc<str>, cards: Vec<u32>, parent: Option<u64>) {
        let world = cards.len();
        let group = Group {
            name,
            cards,
            departures: Vec::new(),
            failure: None,
            parent,
            collectives: vec![0; world],
            transfers: BTreeMap::new(),
            children: BTreeMap::new(),
        };
        self.groups.groups.insert(id, group);
    }

    /// The handle of one rank of a group.
    pub(crate) fn create_member(&mut self, group: u64, rank: u32) -> u64 {
        let number = self.fresh_number();
        self.groups.members.insert(number, Member { group, rank });
        number
    }

    /// The member holds this memory of its card until it is destroyed or its device reset.
    pub(crate) fn keep_buffer(&mut self, member: u64, buffer: Charge) {
        self.groups.buffers.insert(member, buffer);
    }

    /// Destroys a handle; peers that wait for this rank, or later call, are told it left.
    pub(crate) fn destroy_member(&mut self, number: u64, why: &str) -> Result<(), Failure> {
        let member = self.groups.member(number)?;
        self.groups.members.remove(&number);
        self.groups.buffers.remove(&number);
        let group = self.groups.group_mut(member.group)?;
        group.depart(member.rank);
        let all_left = group.departures.len() == group.cards.len();
        self.leave_group(member.group, member.rank, why);
        if all_left {
            self.meetings.forget_group(member.group);
            self.groups.groups.remove(&member.group);
        }
        Ok(())
    }

    /// The ranks on a card leave all their groups.
    pub(crate) fn leave_groups_on_card(&mut self, card: u32, why: &str) {
        let on_card = |member: &Member| {
            self.groups.groups.get(&member.group).is_some_and(|group| group.cards[member.rank as usize] == card)
        };
        let on_card = |(number, member): (&u64, &Member)| on_card(member).then_some((*number, *member));
        let members: Vec<(u64, Member)> = self.groups.members.iter().filter_map(on_card).collect();
        for (number, member) in members {
            self.groups.buffers.remove(&number);
            if let Ok(group) = self.groups.group_mut(member.group) {
                group.depart(member.rank);
            }
            self.leave_group(member.group, member.rank, &format!("the stream or context on card {card} {why}"));
        }
    }

    /// One rank's part in cutting a group of `ranks` (of the parent) out of a parent.
    ///
    /// # Errors
    /// Ranks disagree about the group, or the parent is itself cut from another.
    pub(crate) fn create_sub_member(
        &mut self,
        parent: Member,
        ranks: &[u32],
        id: u64,
        sub_rank: u32,
        name: Option<String>,
    ) -> Result<u64, Failure> {
        let invalid = |what: String| Failure::new(code::HCCL_PARA, what);
        let group = self.groups.group(parent.group)?;
        let world = group.cards.len();
        if group.parent.is_some() {
            let what = format!("communicator {} was itself cut from another; HCCL does not nest them", group.name);
            return Err(Failure::new(code::HCCL_NOT_SUPPORT, what));
        }
        if !ranks.is_sorted_by(|a, b| a < b) || ranks.last().is_none_or(|last| *last as usize >= world) {
            let what = format!("rank ids {ranks:?} must ascend and be below {world}, the size of the communicator");
            return Err(invalid(what));
        }
        if ranks.get(sub_rank as usize) != Some(&parent.rank) {
            let what = format!("rank {} calls as rank {sub_rank} of the group {ranks:?}", parent.rank);
            return Err(invalid(what));
        }
        if let Some(child) = group.children.get(&id) {
            if child.ranks != ranks {
                let what = format!(
                    "sub-communicator {id}: rank {} names ranks {ranks:?}, others {:?}",
                    parent.rank, child.ranks
                );
                return Err(invalid(what));
            }
            if child.joined[sub_rank as usize] {
                let what = format!("sub-communicator {id}: rank {} has created its handle already", parent.rank);
                return Err(invalid(what));
            }
        } else {
            let cards = ranks.iter().map(|rank| group.cards[*rank as usize]).collect();
            let name = name.unwrap_or_else(|| format!("{}_sub_{id}", group.name)).into();
            let child = self.fresh_number();
            self.insert_group(child, name, cards, Some(parent.group));
            let child = Child { group: child, ranks: ranks.to_vec(), joined: vec![false; ranks.len()] };
            self.groups.group_mut(parent.group)?.children.insert(id, child);
        }
        let group = self.groups.group_mut(parent.group)?;
        let Some(child) = group.children.get_mut(&id) else { return Err(group_gone(id)) };
        child.joined[sub_rank as usize] = true;
        let child_group = child.group;
        if child.joined.iter().all(|joined| *joined) {
            // The id may now name another group.
            group.children.remove(&id);
        }
        Ok(self.create_member(child_group, sub_rank))
    }
}

impl Machine {
    /// Waits until all ranks that hold root info `root` have come, and returns this rank's handle number.
    ///
    /// # Errors
    /// Ranks disagree, or some did not come in time.
    pub(crate) fn gather(
        &self,
        root: u64,
        world: u32,
        rank: u32,
        card: u32,
        name: Option<String>,
    ) -> Result<u64, Failure> {
        let invalid = |what: String| Failure::new(code::HCCL_PARA, what);
        let mut state = self.lock();
        let deadline = state.now() + self.config().connect_timeout;
        if root == 0 || root > state.groups.roots_issued {
            return Err(invalid("the root info was not made by HcclGetRootInfo of this machine".into()));
        }
        let empty = || Gathering { cards: vec![None; world as usize], outcome: None, inside: 0 };
        let gathering = state.groups.gatherings.entry(root).or_insert_with(empty);
        if let Some(Err(failure)) = &gathering.outcome {
            return Err(failure.clone());
        }
        let refused = if gathering.cards.len() != world as usize {
            let others = gathering.cards.len();
            Some(format!("ranks disagree about the size: rank {rank} says {world}, the others say {others}"))
        } else if gathering.cards[rank as usize].is_some() {
            Some(format!("two callers say they are rank {rank} of {world}"))
        } else {
            let twin = gathering.cards.iter().position(|other| *other == Some(card));
            twin.map(|twin| {
                format!("rank {twin} and rank {rank} are both on card {card}; a card can be in a group once")
            })
        };
        if let Some(what) = refused {
            let failure = invalid(what);
            if gathering.inside > 0 {
                gathering.outcome = Some(Err(failure.clone()));
                state.signal = true;
                self.flush(&mut state);
            } else {
                state.groups.gatherings.remove(&root);
            }
            return Err(failure);
        }
        gathering.cards[rank as usize] = Some(card);
        gathering.inside += 1;
        let cards: Option<Vec<u32>> = gathering.cards.iter().copied().collect();
        if let Some(cards) = cards {
            let group = state.create_group(name, cards);
            if let Some(gathering) = state.groups.gatherings.get_mut(&root) {
                gathering.outcome = Some(group);
            }
            state.signal = true;
        }
        loop {
            let now = state.now();
            let Some(gathering) = state.groups.gatherings.get_mut(&root) else {
                return Err(Failure::new(code::HCCL_INTERNAL, format!("gathering {root} vanished")));
            };
            if let Some(outcome) = gathering.outcome.clone() {
                gathering.inside -= 1;
                if gathering.inside == 0 {
                    state.groups.gatherings.remove(&root);
                }
                if let (Ok(group), true) = (&outcome, state.order.is_some()) {
                    order::host_met(&mut state, *group);
                }
                let number = outcome.map(|group| state.create_member(group, rank));
                self.flush(&mut state);
                return number;
            }
            if now >= deadline {
                let absent: Vec<usize> = gathering
                    .cards
                    .iter()
                    .enumerate()
                    .filter(|(_, card)| card.is_none())
                    .map(|(rank, _)| rank)
                    .collect();
                let seconds = self.config().connect_timeout.as_secs();
                let what =
                    format!("after {seconds} s (HCCL_CONNECT_TIMEOUT) ranks {absent:?} of {world} have not come");
                gathering.outcome = Some(Err(Failure::new(code::HCCL_TIMEOUT, what)));
                state.signal = true;
                continue;
            }
            state = self.watch(state, Some(deadline), Wait::Gathering { root, rank })?;
        }
    }
}

fn check_distinct(cards: &[u32]) -> Result<(), Failure> {
    for (rank, card) in cards.iter().enumerate() {
        if let Some(twin) = cards[..rank].iter().position(|other| other == card) {
            let what = format!("rank {twin} and rank {rank} are both on card {card}; a card can be in a group once");
            return Err(Failure::new(code::HCCL_PARA, what));
        }
    }
    Ok(())
}
