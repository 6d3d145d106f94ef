//! Virtual time: the order of streams and collectives.
//!
//! Invariants: streams advance event by event in the order of time, card, stream. A stream has at
//! most one pending event. Work that ends at a time has ended for every event at that time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use ascend_tp_machine::collective::{LinkLoad, slow_downs};

use super::TimedMode;
use super::load::{ExchangeLoads, Loads, TimedLoad};
use super::timeline::{Lane, Timeline};
use crate::base::failure::Failure;
use crate::hccl::matching::Matching;
use crate::scheduler::wait::Wait;

#[derive(Debug)]
pub(crate) struct Blocked {
    pub(super) thread: u64,
    pub(super) wait: Wait,
    pub(super) limit_ns: Option<u64>,
    pub(super) over: Option<WaitEnd>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitEnd {
    pub(crate) at_ns: u64,
    pub(crate) is_late: bool,
}

impl Blocked {
    pub(crate) fn new(thread: u64, wait: Wait, limit_ns: Option<u64>) -> Self {
        Self { thread, wait, limit_ns, over: None }
    }
}

#[derive(Debug)]
pub(super) struct MovingCollective {
    pub(super) matching: Box<Matching>,
    pub(super) load: Arc<TimedLoad>,
    pub(super) cards: Vec<u32>,
    pub(super) outcome: Result<(), Failure>,
    pub(super) start_ns: u64,
    pub(super) ends_ns: u64,
    /// Remaining duration without sharing, as of the last change of `pace`.
    pub(super) left_ns: f64,
    pub(super) since_ns: u64,
    /// Slowdown by shared links.
    pub(super) pace: f64,
}

pub(crate) enum NextEvent {
    Event(u64),
    LimitOver(u64),
    /// A released thread may call before any other event.
    Enough,
    None,
}

#[derive(Debug)]
pub(crate) struct VirtualSchedule {
    pub(super) timed: Arc<TimedMode>,
    pub(super) now_ns: u64,
    /// Pending events as (time, card, stream).
    pub(super) due: BinaryHeap<Reverse<(u64, u32, u64)>>,
    /// When each lane is free, by card.
    pub(super) lanes: Vec<[u64; Lane::COUNT]>,
    under_way: Vec<MovingCollective>,
    /// Collectives that wait for a busy card, in order of arrival.
    pub(super) queued: Vec<MovingCollective>,
    pub(super) exchanges: ExchangeLoads,
    pub(crate) loads: Loads,
    pub(crate) timeline: Timeline,
    pub(super) blocked: Vec<Blocked>,
    /// A blocked thread waits for something other than a stream.
    pub(super) has_other_waits: bool,
    /// A stream has reached a point that a thread waits for.
    pub(super) must_look: bool,
    /// Earliest next call of a released thread.
    pub(super) horizon_ns: u64,
    /// Completed waits of threads that have not continued.
    pub(super) over: BTreeMap<u64, WaitEnd>,
    /// Earliest end of a limit in a queue.
    pub(super) expiry_ns: u64,
}

impl VirtualSchedule {
    pub(crate) fn new(timed: &Arc<TimedMode>, cards: usize) -> Self {
        Self {
            timed: Arc::clone(timed),
            now_ns: 0,
            due: BinaryHeap::new(),
            lanes: vec![[0; Lane::COUNT]; cards],
            under_way: Vec::new(),
            queued: Vec::new(),
            exchanges: ExchangeLoads::default(),
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

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(crate) fn take_over(&mut self, thread: u64) -> Option<WaitEnd> {
        self.over.remove(&thread)
    }

    pub(crate) fn look(&mut self) {
        self.must_look = true;
    }

    pub(crate) fn recheck_limits(&mut self) {
        self.expiry_ns = 0;
    }

    /// Requires that the cards of a collective are free.
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

    /// Collectives slow down when they share links.
    fn set_paces(&mut self) {
        let is_alone = self.under_way.len() < 2;
        if is_alone && self.under_way.iter().all(|under| under.pace == 1.0) {
            return;
        }
        let links: Vec<&[LinkLoad]> =
            self.under_way.iter().map(|under| under.load.links.as_slice()).collect();
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

    pub(super) fn let_go(&mut self, place: usize, over: WaitEnd) {
        let blocked = &mut self.blocked[place];
        blocked.over = Some(over);
        // Threads notice the end of work after a delay.
        let notices = match blocked.wait {
            Wait::Stream { .. } | Wait::Record(_) => self.timed.wake_ns,
            _ => 0,
        };
        self.horizon_ns = self.horizon_ns.min(over.at_ns + notices);
    }
}
