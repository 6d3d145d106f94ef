//! Gatherings: ranks that hold one root info find each other and become a communicator.
//!
//! Input: callers of this process, and callers of others through the listener. Output: the same roster for all, or one
//! failure that says who disagreed with whom or who is absent. Invariants: the process that made the root info decides;
//! nobody waits beyond its own deadline; when a caller dies the others are told at once.
//! Does not: talk to other processes once there is a roster, apart from linking with them (see `hccl::link`).

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::failure::{Failure, code};
use crate::hccl::link::wire::{Caller, Roster, Token};

/// Between looks whether a process that has yet to connect still lives.
pub(super) const LOOK: Duration = Duration::from_millis(300);

/// All gatherings of the root infos this process made.
#[derive(Debug, Default)]
pub(crate) struct Gatherings {
    pub(super) open: BTreeMap<u64, Gathering>,
    pub(super) roots_issued: u64,
    tickets_issued: u64,
}

/// Ranks that hold the same root info and wait for each other.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) callers: Vec<Option<Caller>>,
    /// The communicator, or why there will be none.
    pub(super) decided: Option<Result<Arc<Roster>, Failure>>,
    /// Ranks of other processes have their answers, those of this process may go on (and perhaps end the process).
    pub(super) is_told: bool,
    /// The latest time a rank of this process came at.
    pub(super) came_last: Option<Instant>,
    /// Ranks of this process that have yet to see the outcome.
    pub(super) inside: usize,
    /// Ranks of other processes that wait for the answer, by ticket.
    pub(super) replies: BTreeMap<u64, TcpStream>,
}

/// What becomes of a caller.
pub(super) enum Admission {
    /// It waits for the others.
    Waits,
    /// It was the last.
    Completes(Roster),
    /// It contradicts another; the others fail with it.
    Contradicts(Failure),
    /// The gathering had ended before.
    Late(Failure),
}

pub(super) fn invalid(what: String) -> Failure {
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
    pub(super) fn wait(&mut self, root: u64, reply: TcpStream) -> u64 {
        self.tickets_issued += 1;
        if let Some(gathering) = self.open.get_mut(&root) {
            gathering.replies.insert(self.tickets_issued, reply);
        }
        self.tickets_issued
    }
}

impl Gathering {
    pub(super) fn of(world: u32) -> Self {
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

    pub(super) fn absent(&self) -> Vec<u32> {
        let absent = (0_u32..).zip(&self.callers).filter(|(_, caller)| caller.is_none());
        absent.map(|(rank, _)| rank).collect()
    }

    pub(super) fn admit(&mut self, caller: &Caller) -> Admission {
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
