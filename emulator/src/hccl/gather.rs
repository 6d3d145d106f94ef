//! Rendezvous of ranks: calls that wait for a gathering, and links between the processes of the
//! roster.
//!
//! Input: root infos, and ranks of this and other processes. Output: one handle per rank, or the
//! list of absent ranks. Invariant: every rank gets the same answer. Not here: communication after
//! the roster is complete, except for connecting links (see `hccl::link`).

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use crate::base::failure::{Failure, code};
use crate::hccl::gathering::{Admission, Gathering, LOOK, invalid};
use crate::hccl::group::Groups;
use crate::hccl::link::connection::Link;
use crate::hccl::link::wire::{self, Answer, Caller, Message, Process, Reason, Roster, Token};
use crate::hccl::rank_location::RankLocation;
use crate::machine::Machine;
use crate::runtime::thread;
use crate::scheduler::wait::Wait;
use crate::state::State;

impl Groups {
    /// Returns whether ranks that wait for a communicator to be built may continue.
    pub(crate) fn is_gathered(&self, root: u64) -> bool {
        self.gatherings.open.get(&root).is_none_or(|gathering| gathering.is_told)
    }

    /// Returns when the last rank of this process arrived.
    pub(crate) fn gathered_at(&self, root: u64) -> Option<Instant> {
        self.gatherings.open.get(&root).and_then(|gathering| gathering.came_last)
    }

    /// Returns the size of a communicator under construction and its absent ranks.
    pub(crate) fn absent_from(&self, root: u64) -> Option<(usize, Vec<u32>)> {
        let gathering = self.gatherings.open.get(&root).filter(|gathering| gathering.decided.is_none())?;
        Some((gathering.callers.len(), gathering.absent()))
    }
}

impl State {
    pub(crate) fn issue_root(&mut self) -> u64 {
        self.hccl.groups.gatherings.roots_issued += 1;
        self.hccl.groups.gatherings.roots_issued
    }

    fn admit(&mut self, root: u64, caller: &Caller) -> Admission {
        let gatherings = &mut self.hccl.groups.gatherings;
        if root == 0 || root > gatherings.roots_issued {
            let what =
                format!("the root info names gathering {root}, which HcclGetRootInfo did not make here");
            return Admission::Late(invalid(what));
        }
        let world = caller.world;
        let admission = gatherings.open.entry(root).or_insert_with(|| Gathering::of(world)).admit(caller);
        let Admission::Completes(roster) = admission else { return admission };
        let number = self.fresh_number();
        let first = &roster.callers[0].process;
        let name = roster.callers.iter().find_map(|caller| caller.name.clone());
        let is_local = roster.callers.iter().all(|caller| caller.process.id == first.id);
        let fallback = if is_local {
            format!("hccl_world_{number}")
        } else {
            format!("hccl_world_{}_{number}", first.pid)
        };
        // Process ids are random, so no other process creates the same token.
        let token = Token(caller_token(&roster, number));
        Admission::Completes(Roster { token, name: name.unwrap_or(fallback), ..roster })
    }
}

/// Returns a value unique to the communicator: processes differ by random id, communicators of one
/// process by number.
fn caller_token(roster: &Roster, number: u64) -> u128 {
    let ids = roster.callers.iter().fold(0_u128, |mixed, caller| mixed.rotate_left(7) ^ caller.process.id);
    ids.wrapping_add(u128::from(number))
}

impl Machine {
    /// Waits until all ranks that hold root info `root` of process `at` have arrived. Returns the
    /// handle number of this rank.
    ///
    /// # Errors
    /// Ranks disagree, are absent at the deadline, or cannot be reached.
    pub(crate) fn gather(
        &self,
        at: &Process,
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
                 threads of one process, which has one clock; start them as threads, or leave `timed` out"
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
            Admission::Late(failure) => return Err(failure),
            Admission::Contradicts(failure) => {
                self.conclude(state, root, Err(failure.clone()));
                return Err(failure);
            }
            Admission::Waits => {
                state.hccl.groups.gatherings.open.entry(root).and_modify(|gathering| gathering.inside += 1)
            }
            Admission::Completes(roster) => {
                state.hccl.groups.gatherings.open.entry(root).and_modify(|gathering| gathering.inside += 1);
                self.conclude(state, root, Ok(roster));
                state = self.lock();
                state.hccl.groups.gatherings.open.entry(root)
            }
        };
        if let Some(gathering) = state.hccl.groups.gatherings.open.get_mut(&root) {
            gathering.came_last = gathering.came_last.max(Some(now));
        }
        loop {
            let is_late = thread::take_late(self.key());
            let now = state.scheduler.now();
            let Some(gathering) = state.hccl.groups.gatherings.open.get_mut(&root) else {
                return Err(Failure::new(code::HCCL_INTERNAL, format!("gathering {root} vanished")));
            };
            if let (Some(outcome), true) = (gathering.decided.clone(), gathering.is_told) {
                gathering.inside -= 1;
                if gathering.inside == 0 {
                    state.hccl.groups.gatherings.open.remove(&root);
                }
                return outcome;
            }
            if (is_late || now >= deadline) && gathering.decided.is_none() {
                let failure = self.absence(gathering);
                self.conclude(state, root, Err(failure));
                state = self.lock();
                continue;
            }
            state = self.watch(state, Some(deadline), Wait::Gathering { root, rank: caller.rank })?;
        }
    }

    fn absence(&self, gathering: &Gathering) -> Failure {
        let (absent, world) = (gathering.absent(), gathering.callers.len());
        let seconds = self.config().connect_timeout.as_secs();
        let what =
            format!("after {seconds} s (HCCL_CONNECT_TIMEOUT) ranks {absent:?} of {world} have not come");
        Failure::new(code::HCCL_TIMEOUT, what)
    }

    /// Ends a gathering. Remote ranks get their answers first; then the ranks of this process wake.
    fn conclude<'a>(&'a self, mut state: MutexGuard<'a, State>, root: u64, outcome: Result<Roster, Failure>) {
        let Some(gathering) = state.hccl.groups.gatherings.open.get_mut(&root) else { return };
        if gathering.decided.is_some() {
            return;
        }
        let outcome = outcome.map(Arc::new);
        gathering.decided = Some(outcome.clone());
        let replies = std::mem::take(&mut gathering.replies);
        if !replies.is_empty() {
            drop(state);
            for reply in replies.into_values() {
                answer(reply, &outcome);
            }
            state = self.lock();
        }
        let Some(gathering) = state.hccl.groups.gatherings.open.get_mut(&root) else { return };
        gathering.is_told = true;
        if gathering.inside == 0 {
            state.hccl.groups.gatherings.open.remove(&root);
        }
        state.scheduler.has_progressed = true;
        self.flush(&mut state);
    }

    /// Admits a rank of another process. Returns `None` if the rank was answered at once, otherwise
    /// the ticket under which it waits.
    pub(crate) fn gather_remote(&self, root: u64, caller: &Caller, reply: TcpStream) -> Option<u64> {
        let mut state = self.lock();
        let admission = if caller.world == 0 || caller.rank >= caller.world {
            Admission::Late(invalid(format!(
                "rank {} of {}: ranks are 0 to nRanks - 1",
                caller.rank, caller.world
            )))
        } else {
            state.admit(root, caller)
        };
        match admission {
            Admission::Late(failure) => {
                drop(state);
                answer(reply, &Err(failure));
                None
            }
            Admission::Contradicts(failure) => {
                state.hccl.groups.gatherings.wait(root, reply);
                self.conclude(state, root, Err(failure));
                None
            }
            Admission::Completes(roster) => {
                state.hccl.groups.gatherings.wait(root, reply);
                self.conclude(state, root, Ok(roster));
                None
            }
            Admission::Waits => Some(state.hccl.groups.gatherings.wait(root, reply)),
        }
    }

    /// Ends the wait of a remote rank, because its process died (`why`) or its deadline has passed.
    pub(crate) fn end_waiting(&self, root: u64, ticket: u64, why: Option<Failure>) {
        let state = self.lock();
        let Some(gathering) = state.hccl.groups.gatherings.open.get(&root) else { return };
        if gathering.replies.contains_key(&ticket) {
            let failure = why.unwrap_or_else(|| self.absence(gathering));
            self.conclude(state, root, Err(failure));
        }
    }

    /// Connects to the processes of a roster and creates the handle of this rank.
    fn enter(&self, roster: &Roster, rank: u32, deadline: Instant) -> Result<u64, Failure> {
        let own = self.network().process()?.id;
        let mut links: BTreeMap<u128, Arc<Link>> = BTreeMap::new();
        for caller in roster.callers.iter().filter(|caller| caller.process.id != own) {
            if links.contains_key(&caller.process.id) {
                continue;
            }
            match self.link(&caller.process, rank, caller.rank, deadline) {
                Ok(link) => links.insert(caller.process.id, link),
                Err(failure) => {
                    let left = Message::Left { group: roster.token, rank, why: failure.message.clone() };
                    links.values().for_each(|link| link.post(&left));
                    // Local ranks that are already this far must not wait for this rank.
                    self.update(|state| {
                        if let Some(group) = state.hccl.groups.id_of(roster.token) {
                            state.enter_group(group, rank);
                            state.depart(group, rank, &failure.message);
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
        let group = self.update(|state| {
            let group = state.find_or_create_group(roster.token, &roster.name, cards, rank_locations);
            state.enter_group(group, rank);
            group
        });
        match self.await_entered(group, rank, deadline) {
            Ok(()) => {
                self.make_table(group);
                Ok(self.update(|state| state.create_member(group, rank)))
            }
            Err(failure) => {
                self.update(|state| {
                    if let Ok(group) = state.hccl.groups.group_mut(group) {
                        group.depart(rank);
                    }
                    state.leave_group(group, rank, &failure.message);
                });
                Err(failure)
            }
        }
    }

    /// Waits until all processes of a communicator have entered it. The way data travels is fixed
    /// from then on.
    fn await_entered(&self, group: u64, rank: u32, deadline: Instant) -> Result<(), Failure> {
        let mut state = self.lock();
        let deadline = if state.scheduler.is_conducted() {
            state.scheduler.now() + self.config().connect_timeout
        } else {
            deadline
        };
        loop {
            let found = state.hccl.groups.group(group)?;
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
            state = self.watch(state, Some(deadline), Wait::Entering { group })?;
        }
    }

    /// Returns the link to a process. The process with the greater id connects.
    fn link(
        &self,
        peer: &Process,
        rank: u32,
        peer_rank: u32,
        deadline: Instant,
    ) -> Result<Arc<Link>, Failure> {
        let own = self.network().process()?.id;
        let mut state = self.lock();
        loop {
            if let Some(link) = state.hccl.groups.links.to(peer.id) {
                return Ok(link);
            }
            if own > peer.id && state.hccl.groups.links.connecting.insert(peer.id) {
                drop(state);
                let outcome = self.network().link_to(peer, &format!("rank {rank}"), deadline);
                let mut state = self.lock();
                state.hccl.groups.links.connecting.remove(&peer.id);
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
        Ok(roster) => Answer::Complete(Roster::clone(roster)),
        Err(failure) => Answer::Refused(Reason::from(failure)),
    };
    // If the rank has died, the peers that connect to it notice.
    let _ = reply.write_all(&wire::frame(&answer, 0));
}

impl Machine {
    /// Tells all peers that the process ends. The process may end inside a call of this thread that
    /// holds the lock forever, so the lock is only tried.
    pub(crate) fn say_farewell(&self) {
        const TRIES: usize = 10_000;
        for _ in 0..TRIES {
            if let Some(state) = self.try_lock() {
                state.hccl.groups.links.say_farewell();
                return;
            }
            std::thread::yield_now();
        }
    }
}
