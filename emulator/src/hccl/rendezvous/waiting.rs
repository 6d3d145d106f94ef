//! Calls that wait for a rendezvous, and links between the processes of the roster.
//!
//! Invariant: every rank gets the same answer.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use crate::base::failure::{Failure, code};
use crate::hccl::communicator::Communicators;
use crate::hccl::rank_location::RankLocation;
use crate::hccl::rendezvous::{LOOK, Rendezvous, RendezvousOutcome, invalid};
use crate::hccl::tcp::connection::PeerLink;
use crate::hccl::tcp::wire::{
    self, Caller, CommunicatorToken, FormationAnswer, ProcessAddress, Reason, Roster, WireMessage,
};
use crate::machine::Machine;
use crate::runtime::thread;
use crate::scheduler::wait::Wait;
use crate::state::MachineState;

impl Communicators {
    pub(crate) fn is_gathered(&self, root: u64) -> bool {
        self.rendezvous_table.open.get(&root).is_none_or(|rendezvous| rendezvous.is_told)
    }

    pub(crate) fn gathered_at(&self, root: u64) -> Option<Instant> {
        self.rendezvous_table.open.get(&root).and_then(|rendezvous| rendezvous.came_last)
    }

    pub(crate) fn absent_from(&self, root: u64) -> Option<(usize, Vec<u32>)> {
        let rendezvous =
            self.rendezvous_table.open.get(&root).filter(|rendezvous| rendezvous.decided.is_none())?;
        Some((rendezvous.callers.len(), rendezvous.absent()))
    }
}

impl MachineState {
    pub(crate) fn issue_root(&mut self) -> u64 {
        self.hccl.communicators.rendezvous_table.roots_issued += 1;
        self.hccl.communicators.rendezvous_table.roots_issued
    }

    fn admit(&mut self, root: u64, caller: &Caller) -> RendezvousOutcome {
        let rendezvous_table = &mut self.hccl.communicators.rendezvous_table;
        if root == 0 || root > rendezvous_table.roots_issued {
            let what =
                format!("the root info names gathering {root}, which HcclGetRootInfo did not make here");
            return RendezvousOutcome::Late(invalid(what));
        }
        let world = caller.world;
        let admission =
            rendezvous_table.open.entry(root).or_insert_with(|| Rendezvous::of(world)).admit(caller);
        let RendezvousOutcome::Completes(roster) = admission else { return admission };
        let number = self.fresh_number();
        let first = &roster.callers[0].process;
        let name = roster.callers.iter().find_map(|caller| caller.name.clone());
        let is_local = roster.callers.iter().all(|caller| caller.process.id == first.id);
        let fallback = if is_local {
            format!("hccl_world_{number}")
        } else {
            format!("hccl_world_{}_{number}", first.pid)
        };
        // Process ids are random, so the token is unique.
        let token = CommunicatorToken(caller_token(&roster, number));
        RendezvousOutcome::Completes(Roster { token, name: name.unwrap_or(fallback), ..roster })
    }
}

/// Returns a unique value: processes differ by random id, communicators of one process by number.
fn caller_token(roster: &Roster, number: u64) -> u128 {
    let ids = roster.callers.iter().fold(0_u128, |mixed, caller| mixed.rotate_left(7) ^ caller.process.id);
    ids.wrapping_add(u128::from(number))
}

impl Machine {
    /// Waits for all ranks with root info `root` of process `at`. Returns the handle of this rank.
    pub(crate) fn gather(
        &self,
        at: &ProcessAddress,
        root: u64,
        world: u32,
        rank: u32,
        card: u32,
        name: Option<String>,
    ) -> Result<u64, Failure> {
        let deadline = Instant::now() + self.config().connect_timeout;
        let process = self.network().process()?.clone();
        let is_here = process.id == at.id;
        if !is_here && self.timed().is_some() {
            let what = format!(
                "rank {rank} of {world}: the root info was made by {at}, but in timed mode all ranks of a communicator are \
                 threads of one process with one clock; start them as threads, or remove `timed`"
            );
            return Err(Failure::new(code::HCCL_NOT_SUPPORT, what));
        }
        let caller = Caller { rank, world, card, process, name };
        let roster = if is_here {
            self.gather_here(root, &caller, deadline)?
        } else {
            Arc::new(self.network().join(at, root, caller, deadline)?)
        };
        self.enter(&roster, rank, deadline)
    }

    fn gather_here(&self, root: u64, caller: &Caller, deadline: Instant) -> Result<Arc<Roster>, Failure> {
        let now = self.thread_now();
        let mut state = self.lock();
        let deadline =
            if state.scheduler.is_conducted() { now + self.config().connect_timeout } else { deadline };
        match state.admit(root, caller) {
            RendezvousOutcome::Late(failure) => return Err(failure),
            RendezvousOutcome::Contradicts(failure) => {
                self.conclude(state, root, Err(failure.clone()));
                return Err(failure);
            }
            RendezvousOutcome::Waits => state
                .hccl
                .communicators
                .rendezvous_table
                .open
                .entry(root)
                .and_modify(|rendezvous| rendezvous.inside += 1),
            RendezvousOutcome::Completes(roster) => {
                state
                    .hccl
                    .communicators
                    .rendezvous_table
                    .open
                    .entry(root)
                    .and_modify(|rendezvous| rendezvous.inside += 1);
                self.conclude(state, root, Ok(roster));
                state = self.lock();
                state.hccl.communicators.rendezvous_table.open.entry(root)
            }
        };
        if let Some(rendezvous) = state.hccl.communicators.rendezvous_table.open.get_mut(&root) {
            rendezvous.came_last = rendezvous.came_last.max(Some(now));
        }
        loop {
            let is_late = thread::take_late(self.key());
            let now = state.scheduler.now();
            let Some(rendezvous) = state.hccl.communicators.rendezvous_table.open.get_mut(&root) else {
                return Err(Failure::new(code::HCCL_INTERNAL, format!("gathering {root} vanished")));
            };
            if let (Some(outcome), true) = (rendezvous.decided.clone(), rendezvous.is_told) {
                rendezvous.inside -= 1;
                if rendezvous.inside == 0 {
                    state.hccl.communicators.rendezvous_table.open.remove(&root);
                }
                return outcome;
            }
            if (is_late || now >= deadline) && rendezvous.decided.is_none() {
                let failure = self.absence(rendezvous);
                self.conclude(state, root, Err(failure));
                state = self.lock();
                continue;
            }
            state = self.watch(state, Some(deadline), Wait::Rendezvous { root, rank: caller.rank })?;
        }
    }

    fn absence(&self, rendezvous: &Rendezvous) -> Failure {
        let (absent, world) = (rendezvous.absent(), rendezvous.callers.len());
        let seconds = self.config().connect_timeout.as_secs();
        let what =
            format!("after {seconds} s (HCCL_CONNECT_TIMEOUT) ranks {absent:?} of {world} have not come");
        Failure::new(code::HCCL_TIMEOUT, what)
    }

    /// Remote ranks get their answers before local ranks wake.
    fn conclude<'a>(
        &'a self,
        mut state: MutexGuard<'a, MachineState>,
        root: u64,
        outcome: Result<Roster, Failure>,
    ) {
        let Some(rendezvous) = state.hccl.communicators.rendezvous_table.open.get_mut(&root) else { return };
        if rendezvous.decided.is_some() {
            return;
        }
        let outcome = outcome.map(Arc::new);
        rendezvous.decided = Some(outcome.clone());
        let replies = std::mem::take(&mut rendezvous.replies);
        if !replies.is_empty() {
            drop(state);
            for reply in replies.into_values() {
                answer(reply, &outcome);
            }
            state = self.lock();
        }
        let Some(rendezvous) = state.hccl.communicators.rendezvous_table.open.get_mut(&root) else { return };
        rendezvous.is_told = true;
        if rendezvous.inside == 0 {
            state.hccl.communicators.rendezvous_table.open.remove(&root);
        }
        state.scheduler.has_progressed = true;
        self.flush(&mut state);
    }

    pub(crate) fn gather_remote(&self, root: u64, caller: &Caller, reply: TcpStream) -> Option<u64> {
        let mut state = self.lock();
        let admission = if caller.world == 0 || caller.rank >= caller.world {
            RendezvousOutcome::Late(invalid(format!(
                "rank {} of {}: ranks are 0 to nRanks - 1",
                caller.rank, caller.world
            )))
        } else {
            state.admit(root, caller)
        };
        match admission {
            RendezvousOutcome::Late(failure) => {
                drop(state);
                answer(reply, &Err(failure));
                None
            }
            RendezvousOutcome::Contradicts(failure) => {
                state.hccl.communicators.rendezvous_table.wait(root, reply);
                self.conclude(state, root, Err(failure));
                None
            }
            RendezvousOutcome::Completes(roster) => {
                state.hccl.communicators.rendezvous_table.wait(root, reply);
                self.conclude(state, root, Ok(roster));
                None
            }
            RendezvousOutcome::Waits => Some(state.hccl.communicators.rendezvous_table.wait(root, reply)),
        }
    }

    /// The process died (`why`), or the deadline has passed.
    pub(crate) fn end_waiting(&self, root: u64, ticket: u64, why: Option<Failure>) {
        let state = self.lock();
        let Some(rendezvous) = state.hccl.communicators.rendezvous_table.open.get(&root) else { return };
        if rendezvous.replies.contains_key(&ticket) {
            let failure = why.unwrap_or_else(|| self.absence(rendezvous));
            self.conclude(state, root, Err(failure));
        }
    }

    fn enter(&self, roster: &Roster, rank: u32, deadline: Instant) -> Result<u64, Failure> {
        let own = self.network().process()?.id;
        let mut links: BTreeMap<u128, Arc<PeerLink>> = BTreeMap::new();
        for caller in roster.callers.iter().filter(|caller| caller.process.id != own) {
            if links.contains_key(&caller.process.id) {
                continue;
            }
            match self.link(&caller.process, rank, caller.rank, deadline) {
                Ok(link) => links.insert(caller.process.id, link),
                Err(failure) => {
                    let left =
                        WireMessage::Left { communicator: roster.token, rank, why: failure.message.clone() };
                    links.values().for_each(|link| link.post(&left));
                    // Local ranks must not wait for this rank.
                    self.update(|state| {
                        if let Some(communicator) = state.hccl.communicators.id_of(roster.token) {
                            state.enter_communicator(communicator, rank);
                            state.depart(communicator, rank, &failure.message);
                        }
                    });
                    return Err(failure);
                }
            };
        }
        let rank_locations = roster.callers.iter().map(|caller| links.get(&caller.process.id).cloned());
        let rank_locations: Vec<RankLocation> =
            rank_locations.map(|link| link.map_or(RankLocation::Here, RankLocation::There)).collect();
        let cards = roster.callers.iter().map(|caller| caller.card).collect();
        let communicator = self.update(|state| {
            let communicator =
                state.find_or_create_communicator(roster.token, &roster.name, cards, rank_locations);
            state.enter_communicator(communicator, rank);
            communicator
        });
        match self.await_entered(communicator, rank, deadline) {
            Ok(()) => {
                self.make_table(communicator);
                Ok(self.update(|state| state.create_member(communicator, rank)))
            }
            Err(failure) => {
                self.update(|state| {
                    if let Ok(communicator) = state.hccl.communicators.communicator_mut(communicator) {
                        communicator.depart(rank);
                    }
                    state.leave_communicator(communicator, rank, &failure.message);
                });
                Err(failure)
            }
        }
    }

    /// The transport is fixed afterwards.
    fn await_entered(&self, communicator: u64, rank: u32, deadline: Instant) -> Result<(), Failure> {
        let mut state = self.lock();
        let deadline = if state.scheduler.is_conducted() {
            state.scheduler.now() + self.config().connect_timeout
        } else {
            deadline
        };
        loop {
            let found = state.hccl.communicators.communicator(communicator)?;
            if let Some(outcome) = found.entered() {
                return outcome;
            }
            if state.scheduler.now() >= deadline {
                let away = found.rank_locations.iter().enumerate().filter(|(_, location)| {
                    location.link().is_some_and(|link| !found.ready.contains_key(&Some(link.peer.id)))
                });
                let here = found.rank_locations.iter().enumerate().filter(|(rank, location)| {
                    location.link().is_none() && !found.entered.contains(&(*rank as u32))
                });
                let away: Vec<usize> = away.chain(here).map(|(rank, _)| rank).collect();
                let what = format!(
                    "rank {rank}: ranks {away:?}, or others of their processes, came but have not entered the communicator"
                );
                return Err(Failure::new(code::HCCL_TIMEOUT, what));
            }
            state = self.watch(state, Some(deadline), Wait::Entering { communicator })?;
        }
    }

    /// The process with the greater id connects.
    fn link(
        &self,
        peer: &ProcessAddress,
        rank: u32,
        peer_rank: u32,
        deadline: Instant,
    ) -> Result<Arc<PeerLink>, Failure> {
        let own = self.network().process()?.id;
        let mut state = self.lock();
        loop {
            if let Some(link) = state.hccl.communicators.links.to(peer.id) {
                return Ok(link);
            }
            if own > peer.id && state.hccl.communicators.links.connecting.insert(peer.id) {
                drop(state);
                let outcome = self.network().link_to(peer, &format!("rank {rank}"), deadline);
                let mut state = self.lock();
                state.hccl.communicators.links.connecting.remove(&peer.id);
                self.network().linked.notify_all();
                return outcome;
            }
            let now = Instant::now();
            if now >= deadline || !self.network().is_reachable(peer) {
                let what = format!(
                    "rank {rank}: rank {peer_rank} ({peer}) came but has not connected, or died since"
                );
                return Err(Failure::new(code::HCCL_TIMEOUT, what));
            }
            state = self.network().await_link(state, LOOK.min(deadline - now));
        }
    }
}

fn answer(mut reply: TcpStream, outcome: &Result<Arc<Roster>, Failure>) {
    let answer = match outcome {
        Ok(roster) => FormationAnswer::Complete(Roster::clone(roster)),
        Err(failure) => FormationAnswer::Refused(Reason::from(failure)),
    };
    let _ = reply.write_all(&wire::frame(&answer, 0));
}

impl Machine {
    /// Tells all peers that the process ends. The process may end inside a call of this thread that
    /// holds the lock, so the lock is only tried.
    pub(crate) fn say_farewell(&self) {
        const TRIES: usize = 10_000;
        for _ in 0..TRIES {
            if let Some(state) = self.try_lock() {
                state.hccl.communicators.links.say_farewell();
                return;
            }
            std::thread::yield_now();
        }
    }
}
