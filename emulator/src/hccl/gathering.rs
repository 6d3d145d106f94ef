//! Gatherings: ranks that hold one root info find each other and become a communicator.
//!
//! Input: callers of this process, and callers of others through the listener. Output: the same roster for all, or one
//! failure that says who disagreed with whom or who is absent. Invariants: the process that made the root info decides;
//! nobody waits beyond its own deadline; when a caller dies the others are told at once.
//! Does not: talk to other processes once there is a roster, apart from linking with them (see `hccl::link`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use crate::base::failure::{Failure, code};
use crate::hccl::group::Groups;
use crate::hccl::link::connection::Link;
use crate::hccl::link::wire::{self, Answer, Caller, Message, Process, Reason, Roster, Token};
use crate::hccl::peer::Home;
use crate::machine::Machine;
use crate::runtime::thread;
use crate::scheduler::wait::Wait;
use crate::state::State;

/// Between looks whether a process that has yet to connect still lives.
const LOOK: Duration = Duration::from_millis(300);

/// All gatherings of the root infos this process made.
#[derive(Debug, Default)]
pub(crate) struct Gatherings {
    open: BTreeMap<u64, Gathering>,
    roots_issued: u64,
    tickets_issued: u64,
}

/// Ranks that hold the same root info and wait for each other.
#[derive(Debug)]
struct Gathering {
    callers: Vec<Option<Caller>>,
    /// The communicator, or why there will be none.
    decided: Option<Result<Arc<Roster>, Failure>>,
    /// Ranks of other processes have their answers, those of this process may go on (and perhaps end the process).
    is_told: bool,
    /// The latest time a rank of this process came at.
    came_last: Option<Instant>,
    /// Ranks of this process that have yet to see the outcome.
    inside: usize,
    /// Ranks of other processes that wait for the answer, by ticket.
    replies: BTreeMap<u64, TcpStream>,
}

/// What becomes of a caller.
enum Admission {
    /// It waits for the others.
    Waits,
    /// It was the last.
    Completes(Roster),
    /// It contradicts another; the others fail with it.
    Contradicts(Failure),
    /// The gathering had ended before.
    Late(Failure),
}

fn invalid(what: String) -> Failure {
    Failure::new(code::HCCL_PARA, what)
}

impl Gatherings {
    /// Whether ranks of this process wait in a gathering.
    pub(crate) fn is_any_open(&self) -> bool {
        self.open.values().any(|gathering| gathering.decided.is_none())
    }

    /// Whether a single rank has come somewhere, as of a program with a process a rank.
    pub(crate) fn has_lone_caller(&self) -> bool {
        self.open
            .values()
            .any(|gathering| gathering.decided.is_none() && gathering.callers.iter().flatten().count() == 1)
    }

    /// Whether ranks of other processes do.
    pub(crate) fn has_callers_elsewhere(&self) -> bool {
        self.open.values().any(|gathering| !gathering.replies.is_empty())
    }

    /// A rank of another process waits for its answer; gives its ticket.
    fn wait(&mut self, root: u64, reply: TcpStream) -> u64 {
        self.tickets_issued += 1;
        if let Some(gathering) = self.open.get_mut(&root) {
            gathering.replies.insert(self.tickets_issued, reply);
        }
        self.tickets_issued
    }
}

impl Gathering {
    fn of(world: u32) -> Self {
        Self {
            callers: (0..world).map(|_| None).collect(),
            decided: None,
            is_told: false,
            came_last: None,
            inside: 0,
            replies: BTreeMap::new(),
        }
    }

    /// Why a caller cannot be part of this, if it cannot.
    fn contradiction(&self, caller: &Caller) -> Option<String> {
        let present = || self.callers.iter().flatten();
        let is_elsewhere = present().any(|other| other.process.id != caller.process.id);
        let who = |caller: &Caller| if is_elsewhere { caller.to_string() } else { format!("rank {}", caller.rank) };
        if let Some(other) = present().find(|other| other.world != caller.world) {
            return Some(format!(
                "ranks disagree about the size: {} says {}, {} says {}",
                who(caller),
                caller.world,
                who(other),
                other.world
            ));
        }
        if let Some(twin) = present().find(|other| other.rank == caller.rank) {
            let who = if is_elsewhere { format!(": {} and {}", twin.process, caller.process) } else { String::new() };
            return Some(format!("two callers say they are rank {} of {}{who}", caller.rank, caller.world));
        }
        let shares_card =
            |other: &&Caller| other.card == caller.card && other.process.host_id == caller.process.host_id;
        present().find(shares_card).map(|twin| {
            format!("{} and {} are both on card {}; a card can be in a group once", who(twin), who(caller), caller.card)
        })
    }

    fn absent(&self) -> Vec<u32> {
        let absent = (0_u32..).zip(&self.callers).filter(|(_, caller)| caller.is_none());
        absent.map(|(rank, _)| rank).collect()
    }

    fn admit(&mut self, caller: &Caller) -> Admission {
        match &self.decided {
            Some(Err(failure)) => return Admission::Late(failure.clone()),
            Some(Ok(roster)) => {
                let what = format!(
                    "rank {} comes to communicator {}, whose {} ranks have all come already",
                    caller.rank,
                    roster.name,
                    roster.callers.len()
                );
                return Admission::Late(invalid(what));
            }
            None => {}
        }
        if let Some(what) = self.contradiction(caller) {
            return Admission::Contradicts(invalid(what));
        }
        self.callers[caller.rank as usize] = Some(caller.clone());
        let callers: Option<Vec<Caller>> = self.callers.iter().cloned().collect();
        callers.map_or(Admission::Waits, |callers| {
            // Filled in by whoever gives numbers.
            Admission::Completes(Roster { token: Token(0), name: String::new(), callers })
        })
    }
}

impl Groups {
    /// Whether those who wait for a communicator to be built can go on.
    pub(crate) fn is_gathered(&self, root: u64) -> bool {
        self.gatherings.open.get(&root).is_none_or(|gathering| gathering.is_told)
    }

    /// When the last rank of this process came.
    pub(crate) fn gathered_at(&self, root: u64) -> Option<Instant> {
        self.gatherings.open.get(&root).and_then(|gathering| gathering.came_last)
    }

    /// Size of a communicator that is being built, and the ranks that have not come.
    pub(crate) fn absent_from(&self, root: u64) -> Option<(usize, Vec<u32>)> {
        let gathering = self.gatherings.open.get(&root).filter(|gathering| gathering.decided.is_none())?;
        Some((gathering.callers.len(), gathering.absent()))
    }
}

impl State {
    /// A new root info number.
    pub(crate) fn issue_root(&mut self) -> u64 {
        self.hccl.groups.gatherings.roots_issued += 1;
        self.hccl.groups.gatherings.roots_issued
    }

    fn admit(&mut self, root: u64, caller: &Caller) -> Admission {
        let gatherings = &mut self.hccl.groups.gatherings;
        if root == 0 || root > gatherings.roots_issued {
            let what = format!("the root info names gathering {root}, which HcclGetRootInfo did not make here");
            return Admission::Late(invalid(what));
        }
        let world = caller.world;
        let admission = gatherings.open.entry(root).or_insert_with(|| Gathering::of(world)).admit(caller);
        let Admission::Completes(roster) = admission else { return admission };
        let number = self.fresh_number();
        let first = &roster.callers[0].process;
        let name = roster.callers.iter().find_map(|caller| caller.name.clone());
        let is_local = roster.callers.iter().all(|caller| caller.process.id == first.id);
        let fallback =
            if is_local { format!("hccl_world_{number}") } else { format!("hccl_world_{}_{number}", first.pid) };
        // The id of a process is random, so no other process makes the same token.
        let token = Token(caller_token(&roster, number));
        Admission::Completes(Roster { token, name: name.unwrap_or(fallback), ..roster })
    }
}

/// Differs for every communicator: processes differ by their random ids, communicators of one by number.
fn caller_token(roster: &Roster, number: u64) -> u128 {
    let ids = roster.callers.iter().fold(0_u128, |mixed, caller| mixed.rotate_left(7) ^ caller.process.id);
    ids.wrapping_add(u128::from(number))
}

impl Machine {
    /// Waits until all ranks that hold root info `root` of `at` have come, and returns this rank's handle number.
    ///
    /// # Errors
    /// Ranks disagree, some did not come in time, or cannot be reached.
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
        let deadline = if state.scheduler.is_conducted() { now + self.config().connect_timeout } else { deadline };
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
        let what = format!("after {seconds} s (HCCL_CONNECT_TIMEOUT) ranks {absent:?} of {world} have not come");
        Failure::new(code::HCCL_TIMEOUT, what)
    }

    /// Ends a gathering: ranks of others get their answers, then ranks of this process wake.
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

    /// A rank of another process comes. None when it has its answer already, else the ticket under which it waits.
    pub(crate) fn gather_remote(&self, root: u64, caller: &Caller, reply: TcpStream) -> Option<u64> {
        let mut state = self.lock();
        let admission = if caller.world == 0 || caller.rank >= caller.world {
            Admission::Late(invalid(format!("rank {} of {}: ranks are 0 to nRanks - 1", caller.rank, caller.world)))
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

    /// A rank of another process waits no longer: it died (`why`), or its time is over.
    pub(crate) fn end_waiting(&self, root: u64, ticket: u64, why: Option<Failure>) {
        let state = self.lock();
        let Some(gathering) = state.hccl.groups.gatherings.open.get(&root) else { return };
        if gathering.replies.contains_key(&ticket) {
            let failure = why.unwrap_or_else(|| self.absence(gathering));
            self.conclude(state, root, Err(failure));
        }
    }

    /// Links with the processes of a roster and makes this rank's handle.
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
                    return Err(failure);
                }
            };
        }
        let homes = roster.callers.iter().map(|caller| links.get(&caller.process.id).cloned());
        let homes: Vec<Home> = homes.map(|link| link.map_or(Home::Here, Home::There)).collect();
        let cards = roster.callers.iter().map(|caller| caller.card).collect();
        let group = self.update(|state| {
            let group = state.find_or_create_group(roster.token, &roster.name, cards, homes);
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

    /// Waits until all processes of a communicator have entered it, which is when they know how its data travels.
    fn await_entered(&self, group: u64, rank: u32, deadline: Instant) -> Result<(), Failure> {
        let mut state = self.lock();
        let deadline = if state.scheduler.is_conducted() {
            state.scheduler.now() + self.config().connect_timeout
        } else {
            deadline
        };
        loop {
            let found = state.hccl.groups.group(group)?;
            if let Some(failure) = &found.failure {
                return Err(failure.clone());
            }
            if found.way.is_some() {
                return Ok(());
            }
            if state.scheduler.now() >= deadline {
                let away =
                    found.homes.iter().enumerate().filter(|(_, home)| {
                        home.link().is_some_and(|link| !found.ready.contains_key(&Some(link.peer.id)))
                    });
                let away: Vec<usize> = away.map(|(rank, _)| rank).collect();
                let what =
                    format!("rank {rank}: the processes of ranks {away:?} came but have not entered the communicator");
                return Err(Failure::new(code::HCCL_TIMEOUT, what));
            }
            state = self.watch(state, Some(deadline), Wait::Entering { group })?;
        }
    }

    /// The link to a process; the one of the two with the greater id connects.
    fn link(&self, peer: &Process, rank: u32, peer_rank: u32, deadline: Instant) -> Result<Arc<Link>, Failure> {
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
                let what = format!("rank {rank}: rank {peer_rank} ({peer}) came but has not connected, or died since");
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
    // A rank that died meanwhile is noticed by those that link with it.
    let _ = reply.write_all(&wire::frame(&answer, 0));
}

/// Links of this process.
#[derive(Debug, Default)]
pub(crate) struct Links {
    by_peer: BTreeMap<u128, Arc<Link>>,
    connecting: BTreeSet<u128>,
}

impl Links {
    /// The live link to a process.
    pub(crate) fn to(&self, peer: u128) -> Option<Arc<Link>> {
        self.by_peer.get(&peer).filter(|link| !link.is_closed()).cloned()
    }

    /// Notes a new link.
    pub(crate) fn insert(&mut self, link: &Arc<Link>) {
        self.by_peer.insert(link.peer.id, Arc::clone(link));
    }

    /// Forgets a link that has ended.
    pub(crate) fn remove(&mut self, link: &Arc<Link>) {
        if self.by_peer.get(&link.peer.id).is_some_and(|known| Arc::ptr_eq(known, link)) {
            self.by_peer.remove(&link.peer.id);
        }
    }
}

impl Links {
    /// The peers learn that this process's end is no death, and before that what it has told them of other ends: whoever hears of
    /// this one alone would name it as what went wrong.
    fn say_farewell(&self) {
        /// Peers that take nothing are not waited for.
        const LIMIT: Duration = Duration::from_secs(1);
        let deadline = Instant::now() + LIMIT;
        self.by_peer.values().for_each(|link| link.post(&Message::Farewell));
        self.by_peer.values().for_each(|link| link.flush(deadline));
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.say_farewell();
        self.by_peer.values().for_each(|link| link.close());
    }
}

impl Machine {
    /// The process ends, perhaps in the middle of a call of this very thread, whose lock nobody gives back then.
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
