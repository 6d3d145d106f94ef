//! Creation and destruction of communicators and their handles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::hccl::group::{Child, Group, Member, Way, group_gone};
use crate::hccl::link::connection::Link;
use crate::hccl::link::wire::{Message, Token};
use crate::hccl::rank_location::RankLocation;
use crate::memory::allocation_table::Charge;
use crate::state::State;

impl State {
    /// Creates a communicator over `cards`.
    ///
    /// # Errors
    /// A device appears twice, or the environment requests an unsupported determinism.
    pub(crate) fn create_group(&mut self, name: Option<String>, cards: Vec<u32>) -> Result<u64, Failure> {
        check_distinct(&cards)?;
        self.hccl.deterministic.clone()?;
        let id = self.fresh_number();
        let name = name.unwrap_or_else(|| format!("hccl_world_{id}")).into();
        let rank_locations = vec![RankLocation::Here; cards.len()];
        self.insert_group(id, name, cards, rank_locations, None, None);
        Ok(id)
    }

    /// Returns the communicator of a token. The first local rank to ask creates it.
    pub(crate) fn find_or_create_group(
        &mut self,
        token: Token,
        name: &str,
        cards: Vec<u32>,
        rank_locations: Vec<RankLocation>,
    ) -> u64 {
        if let Some(id) = self.hccl.groups.id_of(token) {
            return id;
        }
        let id = self.fresh_number();
        self.insert_group(id, name.into(), cards, rank_locations, Some(token), None);
        self.claim(id, token);
        id
    }

    /// Records that a local rank has entered a new communicator, or has failed to.
    pub(crate) fn enter_group(&mut self, id: u64, rank: u32) {
        let Ok(group) = self.hccl.groups.group_mut(id) else { return };
        let here = group.rank_locations.iter().filter(|location| location.link().is_none()).count();
        if group.entered.insert(rank) && group.entered.len() == here {
            self.say_ready(id);
        }
    }

    fn insert_group(
        &mut self,
        id: u64,
        name: Arc<str>,
        cards: Vec<u32>,
        rank_locations: Vec<RankLocation>,
        token: Option<Token>,
        parent: Option<u64>,
    ) {
        let world = cards.len();
        let mut links: Vec<Arc<Link>> = Vec::new();
        for link in rank_locations.iter().filter_map(RankLocation::link) {
            if !links.iter().any(|known| Arc::ptr_eq(known, link)) {
                links.push(Arc::clone(link));
            }
        }
        if let Some(token) = token {
            self.hccl.groups.by_token.insert(token, id);
        }
        // A sub-communicator inherits the way of its parent. The processes of a new communicator
        // first report which memory they reach.
        let of_parent =
            parent.and_then(|parent| self.hccl.groups.group(parent).ok()).and_then(|parent| parent.way);
        let way = if links.is_empty() { Some(Way::Process) } else { of_parent };
        let of_links = links.iter().map(|link| Some(link.peer.id)).chain([None]);
        let decided = if way.is_some() { of_links.collect() } else { BTreeSet::new() };
        let group = Group {
            name,
            cards,
            token,
            rank_locations,
            decided,
            links,
            departures: Vec::new(),
            way,
            entered: BTreeSet::new(),
            ready: BTreeMap::new(),
            table: None,
            running: BTreeSet::new(),
            failure: None,
            parent,
            collectives: vec![0; world],
            transfers: BTreeMap::new(),
            children: BTreeMap::new(),
            generations: BTreeMap::new(),
        };
        self.hccl.groups.groups.insert(id, group);
    }

    pub(crate) fn create_member(&mut self, group: u64, rank: u32) -> u64 {
        let number = self.fresh_number();
        self.hccl.groups.members.insert(number, Member { group, rank });
        number
    }

    /// Holds device memory for a member until it is destroyed or its device is reset.
    pub(crate) fn keep_buffer(&mut self, member: u64, buffer: Charge) {
        self.hccl.groups.buffers.insert(member, buffer);
    }

    /// Destroys a handle. Peers that wait for this rank, or wait for it later, receive an error.
    pub(crate) fn destroy_member(&mut self, number: u64, why: &str) -> Result<(), Failure> {
        let member = self.hccl.groups.member(number)?;
        self.hccl.groups.members.remove(&number);
        self.hccl.groups.buffers.remove(&number);
        let group = self.hccl.groups.group_mut(member.group)?;
        group.depart(member.rank);
        let all_left = group.departures.len() == group.cards.len();
        self.leave_group(member.group, member.rank, why);
        if all_left {
            self.forget_group(member.group);
        }
        Ok(())
    }

    pub(crate) fn forget_group(&mut self, id: u64) {
        self.look_at_tables();
        // A stream may still wait in a meeting for which all calls were made.
        for meeting in self.hccl.meetings.of_group(id) {
            self.abort_meeting(meeting, &Failure::left_by_peer("its communicator was destroyed"));
        }
        self.hccl.meetings.forget_group(id);
        let token = self.hccl.groups.groups.remove(&id).and_then(|group| group.token);
        if let Some(token) = token {
            self.hccl.groups.by_token.remove(&token);
            self.hccl.groups.board.forget(token);
        }
    }

    pub(crate) fn leave_groups_on_card(&mut self, card: u32, why: &str) {
        let on_card = |member: &Member| {
            self.hccl
                .groups
                .groups
                .get(&member.group)
                .is_some_and(|group| group.cards[member.rank as usize] == card)
        };
        let on_card = |(number, member): (&u64, &Member)| on_card(member).then_some((*number, *member));
        let members: Vec<(u64, Member)> = self.hccl.groups.members.iter().filter_map(on_card).collect();
        for (number, member) in members {
            self.hccl.groups.buffers.remove(&number);
            if let Ok(group) = self.hccl.groups.group_mut(member.group) {
                group.depart(member.rank);
            }
            self.leave_group(
                member.group,
                member.rank,
                &format!("the stream or context on card {card} {why}"),
            );
        }
    }

    /// Creates the handle of one rank of a sub-communicator of `ranks`, which are ranks of the
    /// parent.
    ///
    /// # Errors
    /// Ranks disagree about the sub-communicator, or the parent is itself a sub-communicator.
    pub(crate) fn create_sub_member(
        &mut self,
        parent: Member,
        ranks: &[u32],
        id: u64,
        sub_rank: u32,
        name: Option<String>,
    ) -> Result<u64, Failure> {
        let invalid = |what: String| Failure::new(code::HCCL_PARA, what);
        let group = self.hccl.groups.group(parent.group)?;
        let world = group.cards.len();
        if group.parent.is_some() {
            let what =
                format!("communicator {} was itself cut from another; HCCL does not nest them", group.name);
            return Err(Failure::new(code::HCCL_NOT_SUPPORT, what));
        }
        if !ranks.is_sorted_by(|a, b| a < b) || ranks.last().is_none_or(|last| *last as usize >= world) {
            let what =
                format!("rank ids {ranks:?} must ascend and be below {world}, the size of the communicator");
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
                let what =
                    format!("sub-communicator {id}: rank {} has created its handle already", parent.rank);
                return Err(invalid(what));
            }
        } else {
            self.cut(parent.group, ranks, id, name)?;
        }
        let group = self.hccl.groups.group_mut(parent.group)?;
        let Some(child) = group.children.get_mut(&id) else { return Err(group_gone(id)) };
        child.joined[sub_rank as usize] = true;
        let child_group = child.group;
        if child.joined.iter().all(|joined| *joined) {
            // The program may now use the id for another sub-communicator.
            group.children.remove(&id);
        }
        group.post(|group| Message::Cut { group, rank: parent.rank, id, ranks: ranks.to_vec() });
        Ok(self.create_member(child_group, sub_rank))
    }

    /// Creates a sub-communicator of `ranks`, before any rank has its handle.
    fn cut(&mut self, parent: u64, ranks: &[u32], id: u64, name: Option<String>) -> Result<(), Failure> {
        let number = self.fresh_number();
        let group = self.hccl.groups.group_mut(parent)?;
        let generation = group.generations.entry((id, ranks.to_vec())).or_default();
        let token = group.token.map(|token| token.of_child(id, ranks, *generation));
        *generation += 1;
        let pick = |rank: &u32| (group.cards[*rank as usize], group.rank_locations[*rank as usize].clone());
        let (cards, rank_locations): (Vec<u32>, Vec<RankLocation>) = ranks.iter().map(pick).unzip();
        let joined = rank_locations.iter().map(|location| location.link().is_some()).collect();
        group.children.insert(id, Child { group: number, ranks: ranks.to_vec(), joined });
        let name = name.unwrap_or_else(|| format!("{}_sub_{id}", group.name)).into();
        self.insert_group(number, name, cards, rank_locations, token, Some(parent));
        if let Some(token) = token {
            self.claim(number, token);
        }
        Ok(())
    }

    /// Checks the sub-communicator that a remote rank has created against the one created here.
    pub(crate) fn check_cut(&mut self, parent: u64, rank: u32, id: u64, ranks: &[u32]) {
        let Ok(group) = self.hccl.groups.group(parent) else { return };
        let Some(child) = group.children.get(&id) else { return };
        if child.ranks == ranks || !child.ranks.contains(&rank) {
            return;
        }
        let what =
            format!("sub-communicator {id}: rank {rank} names ranks {ranks:?}, others {:?}", child.ranks);
        let child = child.group;
        self.break_group(child, &Failure::new(code::HCCL_PARA, what));
    }
}

fn check_distinct(cards: &[u32]) -> Result<(), Failure> {
    for (rank, card) in cards.iter().enumerate() {
        if let Some(twin) = cards[..rank].iter().position(|other| other == card) {
            let what =
                format!("rank {twin} and rank {rank} are both on card {card}; a card can be in a group once");
            return Err(Failure::new(code::HCCL_PARA, what));
        }
    }
    Ok(())
}
