//! Rendezvous of the ranks that hold one root info.
//!
//! All callers get the same roster, or one failure that names the ranks that disagree or are
//! absent.
//!
//! Invariants:
//! - The process that created the root info decides.
//! - No caller waits beyond its own deadline.
//! - If a caller dies, the other callers are notified at once.

mod from_rank_table;
mod rank_table;
pub(crate) mod root_info;
mod waiting;

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::failure::{Failure, code};
use crate::hccl::tcp::wire::{Caller, CommunicatorToken, Roster};

/// Interval between checks of a process that has not connected yet.
pub(in crate::hccl) const LOOK: Duration = Duration::from_millis(300);

/// For all root infos of this process.
#[derive(Debug, Default)]
pub(crate) struct RendezvousTable {
    pub(in crate::hccl) open: BTreeMap<u64, Rendezvous>,
    pub(in crate::hccl) roots_issued: u64,
    tickets_issued: u64,
}

#[derive(Debug)]
pub(in crate::hccl) struct Rendezvous {
    pub(in crate::hccl) callers: Vec<Option<Caller>>,
    /// The roster, or why there can be none.
    pub(in crate::hccl) decided: Option<Result<Arc<Roster>, Failure>>,
    /// Remote ranks have their answers. Only then may local ranks continue and perhaps end the
    /// process.
    pub(in crate::hccl) is_told: bool,
    pub(in crate::hccl) came_last: Option<Instant>,
    /// Local ranks that have not read the outcome yet.
    pub(in crate::hccl) inside: usize,
    /// Connections of waiting remote ranks, by ticket.
    pub(in crate::hccl) replies: BTreeMap<u64, TcpStream>,
}

pub(in crate::hccl) enum RendezvousOutcome {
    Waits,
    Completes(Roster),
    /// The caller contradicts another rank. Every rank fails.
    Contradicts(Failure),
    Late(Failure),
}

pub(in crate::hccl) fn invalid(what: String) -> Failure {
    Failure::new(code::HCCL_PARA, what)
}

impl RendezvousTable {
    pub(crate) fn is_any_open(&self) -> bool {
        self.open.values().any(|rendezvous| rendezvous.decided.is_none())
    }

    /// A lone caller indicates one process per rank.
    pub(crate) fn has_lone_caller(&self) -> bool {
        self.open.values().any(|rendezvous| {
            rendezvous.decided.is_none() && rendezvous.callers.iter().flatten().count() == 1
        })
    }

    pub(crate) fn has_callers_elsewhere(&self) -> bool {
        self.open.values().any(|rendezvous| !rendezvous.replies.is_empty())
    }

    pub(in crate::hccl) fn wait(&mut self, root: u64, reply: TcpStream) -> u64 {
        self.tickets_issued += 1;
        if let Some(rendezvous) = self.open.get_mut(&root) {
            rendezvous.replies.insert(self.tickets_issued, reply);
        }
        self.tickets_issued
    }
}

impl Rendezvous {
    pub(in crate::hccl) fn of(world: u32) -> Self {
        Self {
            callers: (0..world).map(|_| None).collect(),
            decided: None,
            is_told: false,
            came_last: None,
            inside: 0,
            replies: BTreeMap::new(),
        }
    }

    fn contradiction(&self, caller: &Caller) -> Option<String> {
        let present = || self.callers.iter().flatten();
        let is_elsewhere = present().any(|other| other.process.id != caller.process.id);
        let who =
            |caller: &Caller| if is_elsewhere { caller.to_string() } else { format!("rank {}", caller.rank) };
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
            let who = if is_elsewhere {
                format!(": {} and {}", twin.process, caller.process)
            } else {
                String::new()
            };
            return Some(format!("two callers say they are rank {} of {}{who}", caller.rank, caller.world));
        }
        let shares_card =
            |other: &&Caller| other.card == caller.card && other.process.host_id == caller.process.host_id;
        present().find(shares_card).map(|twin| {
            format!(
                "{} and {} are both on card {}; a card can be in a group once",
                who(twin),
                who(caller),
                caller.card
            )
        })
    }

    pub(in crate::hccl) fn absent(&self) -> Vec<u32> {
        let absent = (0_u32..).zip(&self.callers).filter(|(_, caller)| caller.is_none());
        absent.map(|(rank, _)| rank).collect()
    }

    pub(in crate::hccl) fn admit(&mut self, caller: &Caller) -> RendezvousOutcome {
        match &self.decided {
            Some(Err(failure)) => return RendezvousOutcome::Late(failure.clone()),
            Some(Ok(roster)) => {
                let what = format!(
                    "rank {} comes to communicator {}, but its {} ranks have all come already",
                    caller.rank,
                    roster.name,
                    roster.callers.len()
                );
                return RendezvousOutcome::Late(invalid(what));
            }
            None => {}
        }
        if let Some(what) = self.contradiction(caller) {
            return RendezvousOutcome::Contradicts(invalid(what));
        }
        self.callers[caller.rank as usize] = Some(caller.clone());
        let callers: Option<Vec<Caller>> = self.callers.iter().cloned().collect();
        callers.map_or(RendezvousOutcome::Waits, |callers| {
            RendezvousOutcome::Completes(Roster { token: CommunicatorToken(0), name: String::new(), callers })
        })
    }
}
