//! Virtual time: which stream goes on next, and when.
//!
//! Input: entries with the times of their issue, loads, complete collectives, who is blocked until when. Output: streams
//! advanced event by event in the order of time, then card, then stream. Invariants: time never goes back; a stream has at
//! most one event ahead; what ends at a time has ended for everything that happens at that time. Does not: decide when the
//! cards may go on (see `conductor`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use ascend_tp_machine::collective::{LinkLoad, slow_downs};

use super::Timed;
use super::load::{Exchanges, Load, Loads};
use super::timeline::{Lane, Timeline};
use crate::base::failure::Failure;
use crate::hccl::meeting::Meeting;
use crate::scheduler::wait::Wait;

/// A thread inside a call that waits.
#[derive(Debug)]
pub(crate) struct Blocked {
    pub(super) thread: u64,
    pub(super) wait: Wait,
    /// When it goes on even so.
    pub(super) limit_ns: Option<u64>,
    pub(super) over: Option<WaitEnd>,
}

/// The end of a wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitEnd {
    pub(crate) at_ns: u64,
    /// The limit was over before what was waited for had come.
    pub(crate) is_late: bool,
}

impl Blocked {
    pub(crate) fn new(thread: u64, wait: Wait, limit_ns: Option<u64>) -> Self {
        Self { thread, wait, limit_ns, over: None }
    }
}

/// A collective whose data moves.
#[derive(Debug)]
pub(super) struct MovingCollective {
    pub(super) meeting: Box<Meeting>,
    pub(super) load: Arc<Load>,
    pub(super) cards: Vec<u32>,
    pub(super) outcome: Result<(), Failure>,
    pub(super) start_ns: u64,
    pub(super) ends_ns: u64,
    /// What it would still take alone, as of the time it last changed its pace.
    pub(super) left_ns: f64,
    pub(super) since_ns: u64,
    /// How many times as long everything takes, because of links it shares.
    pub(super) pace: f64,
}

/// What comes next.
pub(crate) enum NextEvent {
    /// An event at this time.
    Event(u64),
    /// The limit of a thread's wait.
    LimitOver(u64),
    /// A thread that was let go may call before anything else happens.
    Enough,
    None,
}

/// The time of a machine.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(super) timed: Arc<Timed>,
    pub(super) now_ns: u64,
    /// Events ahead: time, card, stream.
    pub(super) due: BinaryHeap<Reverse<(u64, u32, u64)>>,
    /// By card: when each lane is free.
    pub(super) lanes: Vec<[u64; Lane::COUNT]>,
    under_way: Vec<MovingCollective>,
    /// Complete collectives some card of which still exchanges something else, in the order of their arrival.
    pub(super) queued: Vec<MovingCollective>,
    pub(super) exchanges: Exchanges,
    pub(crate) loads: Loads,
    pub(crate) timeline: Timeline,
    /// Who is blocked, while the cards go on.
    pub(super) blocked: Vec<Blocked>,
    /// Some blocked thread waits for something else than a stream.
    pub(super) has_other_waits: bool,
    /// A stream has come to what a thread waits for.
    pub(super) must_look: bool,
    /// A thread that was let go calls no earlier.
    pub(super) horizon_ns: u64,
    /// Threads whose waits are over and that have not run since.
    pub(super) over: BTreeMap<u64, WaitEnd>,
    /// No limit in a queue is over before.
    pub(super) expiry_ns: u64,
}

impl Schedule {
    pub(crate) fn new(timed: &Arc<Timed>, cards: usize) -> Self {
        Self {
            timed: Arc::clone(timed),
            now_ns: 0,
            due: BinaryHeap::new(),
            lanes: vec![[0; Lane::COUNT]; cards],
            under_way: Vec::new(),
            queued: Vec::new(),
            exchanges: Exchanges::default(),
            loads: Loads::default(),
            timeline: Timeline::default(),
            blocked: Vec::new(),
            has_other_waits: false,
            must_look: false,
            horizon_ns: u64::MAX,
            over: BTreeMap::new(),
            expiry_ns: 0,
        }
    }

    /// The time to which the cards have come.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// How the wait of a thread that was let go has ended.
    pub(crate) fn take_over(&mut self, thread: u64) -> Option<WaitEnd> {
        self.over.remove(&thread)
    }

    /// A stream has come to what a thread waits for.
    pub(crate) fn look(&mut self) {
        self.must_look = true;
    }

    /// Limits in queues have changed.
    pub(crate) fn recheck_limits(&mut self) {
        self.expiry_ns = 0;
    }

    /// Starts the collectives all of whose cards are free.
    pub(super) fn start_exchanges(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        let lane = Lane::Communication as usize;
        let now_ns = self.now_ns;
        let mut place = 0;
        let mut wanted: Vec<u32> = Vec::new();
        while let Some(next) = self.queued.get(place) {
            let is_free = |card: &u32| self.lanes[*card as usize][lane] == 0 && !wanted.contains(card);
            if !next.cards.iter().all(is_free) {
                wanted.extend(&next.cards);
                place += 1;
                continue;
            }
            let mut under = self.queued.remove(place);
            (under.start_ns, under.since_ns) = (now_ns, now_ns);
            under.ends_ns = now_ns + under.load.duration_ns;
            under.cards.iter().for_each(|card| self.lanes[*card as usize][lane] = u64::MAX);
            self.under_way.push(under);
        }
        self.set_paces();
    }

    /// Takes the collective that ends at `ns` from those under way.
    pub(super) fn take_ended(&mut self, ns: u64) -> Option<MovingCollective> {
        let place = self.under_way.iter().position(|under| under.ends_ns <= ns)?;
        let ended = self.under_way.remove(place);
        ended.cards.iter().for_each(|card| self.lanes[*card as usize][Lane::Communication as usize] = 0);
        if self.queued.is_empty() {
            self.set_paces();
        } else {
            self.start_exchanges();
        }
        Some(ended)
    }

    /// What runs together shares its links from now on.
    fn set_paces(&mut self) {
        let is_alone = self.under_way.len() < 2;
        if is_alone && self.under_way.iter().all(|under| under.pace == 1.0) {
            return;
        }
        let links: Vec<&[LinkLoad]> = self.under_way.iter().map(|under| under.load.links.as_slice()).collect();
        let paces = slow_downs(&links);
        for (under, pace) in self.under_way.iter_mut().zip(paces) {
            under.left_ns -= (self.now_ns - under.since_ns) as f64 / under.pace;
            (under.since_ns, under.pace) = (self.now_ns, pace);
            under.ends_ns = self.now_ns + (under.left_ns.max(0.0) * pace).round() as u64;
        }
    }

    pub(super) fn next_end(&self) -> Option<u64> {
        self.under_way.iter().map(|under| under.ends_ns).min()
    }

    /// A wait of a blocked thread is over.
    pub(super) fn let_go(&mut self, place: usize, over: WaitEnd) {
        let blocked = &mut self.blocked[place];
        blocked.over = Some(over);
        // Only who waits for work notices its end after a while.
        let notices = match blocked.wait {
            Wait::Stream { .. } | Wait::Record(_) => self.timed.wake_ns,
            _ => 0,
        };
        self.horizon_ns = self.horizon_ns.min(over.at_ns + notices);
    }
}
