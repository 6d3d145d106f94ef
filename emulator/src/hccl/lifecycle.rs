//! Creation and destruction of communicators and their handles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::hccl::communicator::{
    ChosenTransport, CommunicatorMember, HcclCommunicator, SubCommunicator, communicator_gone,
};
use crate::hccl::rank_location::RankLocation;
use crate::hccl::tcp::connection::PeerLink;
use crate::hccl::tcp::wire::{CommunicatorToken, WireMessage};
use crate::memory::allocation_table::Charge;
use crate::state::MachineState;

impl MachineState {
    /// Fails if a device appears twice, or if the environment requests an unsupported determinism.
    pub(crate) fn create_communicator(
        &mut self,
        name: Option<String>,
        cards: Vec<u32>,
    ) -> Result<u64, Failure> {
        check_distinct(&cards)?;
        self.hccl.deterministic.clone()?;
        let id = self.fresh_number();
        let name = name.unwrap_or_else(|| format!("hccl_world_{id}")).into();
        let rank_locations = vec![RankLocation::Here; cards.len()];
        self.insert_communicator(id, name, cards, rank_locations, None, None);
        Ok(id)
    }

    /// The first local rank to ask creates the communicator.
    pub(crate) fn find_or_create_communicator(
        &mut self,
        token: CommunicatorToken,
        name: &str,
        cards: Vec<u32>,
        rank_locations: Vec<RankLocation>,
    ) -> u64 {
        if let Some(id) = self.hccl.communicators.id_of(token) {
            return id;
        }
        let id = self.fresh_number();
        self.insert_communicator(id, name.into(), cards, rank_locations, Some(token), None);
        self.claim(id, token);
        id
    }

    pub(crate) fn enter_communicator(&mut self, id: u64, rank: u32) {
        let Ok(communicator) = self.hccl.communicators.communicator_mut(id) else { return };
        let here = communicator.rank_locations.iter().filter(|location| location.link().is_none()).count();
        if communicator.entered.insert(rank) && communicator.entered.len() == here {
            self.say_ready(id);
        }
    }

    fn insert_communicator(
        &mut self,
        id: u64,
        name: Arc<str>,
        cards: Vec<u32>,
        rank_locations: Vec<RankLocation>,
        token: Option<CommunicatorToken>,
        parent: Option<u64>,
    ) {
        let world = cards.len();
        let mut links: Vec<Arc<PeerLink>> = Vec::new();
        for link in rank_locations.iter().filter_map(RankLocation::link) {
            if !links.iter().any(|known| Arc::ptr_eq(known, link)) {
                links.push(Arc::clone(link));
            }
        }
        if let Some(token) = token {
            self.hccl.communicators.by_token.insert(token, id);
        }
        // A sub-communicator inherits the transport of its parent. The processes of a new
        // communicator first report which memory they reach.
        let of_parent = parent
            .and_then(|parent| self.hccl.communicators.communicator(parent).ok())
            .and_then(|parent| parent.transport);
        let transport = if links.is_empty() { Some(ChosenTransport::Process) } else { of_parent };
        let of_links = links.iter().map(|link| Some(link.peer.id)).chain([None]);
        let decided = if transport.is_some() { of_links.collect() } else { BTreeSet::new() };
        let communicator = HcclCommunicator {
            name,
            cards,
            token,
            rank_locations,
            decided,
            links,
            departures: Vec::new(),
            transport,
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
        self.hccl.communicators.communicators.insert(id, communicator);
    }

    pub(crate) fn create_member(&mut self, communicator: u64, rank: u32) -> u64 {
        let number = self.fresh_number();
        self.hccl.communicators.members.insert(number, CommunicatorMember { communicator, rank });
        number
    }

    /// Holds device memory until the member is destroyed or its device is reset.
    pub(crate) fn keep_buffer(&mut self, member: u64, buffer: Charge) {
        self.hccl.communicators.buffers.insert(member, buffer);
    }

    /// Ranks that wait for this rank receive an error, now and later.
    pub(crate) fn destroy_member(&mut self, number: u64, why: &str) -> Result<(), Failure> {
        let member = self.hccl.communicators.member(number)?;
        self.hccl.communicators.members.remove(&number);
        self.hccl.communicators.buffers.remove(&number);
        let communicator = self.hccl.communicators.communicator_mut(member.communicator)?;
        communicator.depart(member.rank);
        let all_left = communicator.departures.len() == communicator.cards.len();
        self.leave_communicator(member.communicator, member.rank, why);
        if all_left {
            self.forget_communicator(member.communicator);
        }
        Ok(())
    }

    pub(crate) fn forget_communicator(&mut self, id: u64) {
        self.read_tables();
        // A stream may still wait although all calls were made.
        for matching in self.hccl.matchings.of_communicator(id) {
            self.abort_matching(matching, &Failure::left_by_peer("its communicator was destroyed"));
        }
        self.hccl.matchings.forget_communicator(id);
        let token =
            self.hccl.communicators.communicators.remove(&id).and_then(|communicator| communicator.token);
        if let Some(token) = token {
            self.hccl.communicators.by_token.remove(&token);
            self.hccl.communicators.pending.forget(token);
        }
    }

    pub(crate) fn leave_communicators_on_card(&mut self, card: u32, why: &str) {
        let on_card = |member: &CommunicatorMember| {
            self.hccl
                .communicators
                .communicators
                .get(&member.communicator)
                .is_some_and(|communicator| communicator.cards[member.rank as usize] == card)
        };
        let on_card =
            |(number, member): (&u64, &CommunicatorMember)| on_card(member).then_some((*number, *member));
        let members: Vec<(u64, CommunicatorMember)> =
            self.hccl.communicators.members.iter().filter_map(on_card).collect();
        for (number, member) in members {
            self.hccl.communicators.buffers.remove(&number);
            if let Ok(communicator) = self.hccl.communicators.communicator_mut(member.communicator) {
                communicator.depart(member.rank);
            }
            self.leave_communicator(
                member.communicator,
                member.rank,
                &format!("the stream or context on card {card} {why}"),
            );
        }
    }

    /// `ranks` are ranks of the parent, which must not be a sub-communicator.
    pub(crate) fn create_sub_member(
        &mut self,
        parent: CommunicatorMember,
        ranks: &[u32],
        id: u64,
        sub_rank: u32,
        name: Option<String>,
    ) -> Result<u64, Failure> {
        let invalid = |what: String| Failure::new(code::HCCL_PARA, what);
        let communicator = self.hccl.communicators.communicator(parent.communicator)?;
        let world = communicator.cards.len();
        if communicator.parent.is_some() {
            let what = format!(
                "communicator {} was itself cut from another; HCCL does not nest them",
                communicator.name
            );
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
        if let Some(child) = communicator.children.get(&id) {
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
            self.cut(parent.communicator, ranks, id, name)?;
        }
        let communicator = self.hccl.communicators.communicator_mut(parent.communicator)?;
        let Some(child) = communicator.children.get_mut(&id) else { return Err(communicator_gone(id)) };
        child.joined[sub_rank as usize] = true;
        let child_communicator = child.communicator;
        if child.joined.iter().all(|joined| *joined) {
            // The program may reuse the id.
            communicator.children.remove(&id);
        }
        communicator.post(|communicator| WireMessage::Cut {
            communicator,
            rank: parent.rank,
            id,
            ranks: ranks.to_vec(),
        });
        Ok(self.create_member(child_communicator, sub_rank))
    }

    fn cut(&mut self, parent: u64, ranks: &[u32], id: u64, name: Option<String>) -> Result<(), Failure> {
        let number = self.fresh_number();
        let communicator = self.hccl.communicators.communicator_mut(parent)?;
        let generation = communicator.generations.entry((id, ranks.to_vec())).or_default();
        let token = communicator.token.map(|token| token.of_child(id, ranks, *generation));
        *generation += 1;
        let pick = |rank: &u32| {
            (communicator.cards[*rank as usize], communicator.rank_locations[*rank as usize].clone())
        };
        let (cards, rank_locations): (Vec<u32>, Vec<RankLocation>) = ranks.iter().map(pick).unzip();
        let joined = rank_locations.iter().map(|location| location.link().is_some()).collect();
        communicator
            .children
            .insert(id, SubCommunicator { communicator: number, ranks: ranks.to_vec(), joined });
        let name = name.unwrap_or_else(|| format!("{}_sub_{id}", communicator.name)).into();
        self.insert_communicator(number, name, cards, rank_locations, token, Some(parent));
        if let Some(token) = token {
            self.claim(number, token);
        }
        Ok(())
    }

    pub(crate) fn check_cut(&mut self, parent: u64, rank: u32, id: u64, ranks: &[u32]) {
        let Ok(communicator) = self.hccl.communicators.communicator(parent) else { return };
        let Some(child) = communicator.children.get(&id) else { return };
        if child.ranks == ranks || !child.ranks.contains(&rank) {
            return;
        }
        let what =
            format!("sub-communicator {id}: rank {rank} names ranks {ranks:?}, others {:?}", child.ranks);
        let child = child.communicator;
        self.break_communicator(child, &Failure::new(code::HCCL_PARA, what));
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
