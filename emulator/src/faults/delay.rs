//! Delays of queue entries on slow or stuck cards.
//!
//! Invariants: a held entry stays the head of its queue, so aborting its stream works as usual.
//! Lifting the fault releases every held entry.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::fault::Fault;

#[derive(Debug, Default)]
pub(crate) struct Delays {
    rules: Vec<DelayRule>,
    /// `aclrtSetOpExecuteTimeOut`, for faults without a limit.
    limit: Option<Duration>,
    delayed: BTreeMap<u64, Delayed>,
}

#[derive(Debug)]
struct DelayRule {
    fault: u64,
    card: u32,
    kind: DelayKind,
    struck: u64,
}

#[derive(Debug, Clone, Copy)]
enum DelayKind {
    Slow(Duration),
    Stuck { at: u64, seen: u64, limit: Option<Duration> },
}

#[derive(Debug, Clone, Copy)]
struct Delayed {
    fault: u64,
    /// End of the delay, or the watchdog's deadline.
    until: Option<Instant>,
    /// The entry then fails instead of starting.
    fails: bool,
    released: bool,
}

impl Delays {
    pub(super) fn begin(&mut self, fault: u64, what: &Fault) {
        let (card, kind) = match what {
            Fault::Slow { card, delay } => (*card, DelayKind::Slow(*delay)),
            Fault::Stuck { at, card, limit } => (*card, DelayKind::Stuck { at: *at, seen: 0, limit: *limit }),
            _ => return,
        };
        self.rules.push(DelayRule { fault, card, kind, struck: 0 });
    }

    pub(crate) fn set_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit;
    }

    /// Returns the streams that continue.
    pub(super) fn end(&mut self, fault: u64) -> Vec<u64> {
        self.rules.retain(|rule| rule.fault != fault);
        let of_fault = self.delayed.iter_mut().filter(|(_, delayed)| delayed.fault == fault);
        let released = of_fault.map(|(id, delayed)| {
            delayed.released = true;
            *id
        });
        released.collect()
    }

    /// Returns true if the entry fails instead of starting.
    pub(super) fn release(&mut self, stream: u64) -> bool {
        let Some(delayed) = self.delayed.get_mut(&stream) else { return false };
        let fails = delayed.fails && delayed.until.is_some();
        if fails {
            self.delayed.remove(&stream);
        } else {
            delayed.released = true;
        }
        fails
    }

    pub(super) fn due(&self, now: Instant) -> Vec<u64> {
        let is_due = |delayed: &Delayed| !delayed.released && delayed.until.is_some_and(|until| until <= now);
        self.delayed.iter().filter(|(_, delayed)| is_due(delayed)).map(|(id, _)| *id).collect()
    }
    pub(super) fn struck(&self, fault: u64) -> u64 {
        self.rules.iter().filter(|rule| rule.fault == fault).map(|rule| rule.struck).sum()
    }

    /// Returns true if the stream's head must wait.
    pub(crate) fn keep(&mut self, stream: u64, card: u32, now: impl Fn() -> Instant) -> bool {
        if self.rules.is_empty() && self.delayed.is_empty() {
            return false;
        }
        if let Some(delayed) = self.delayed.get(&stream) {
            let goes = delayed.released;
            if goes {
                self.delayed.remove(&stream);
            }
            return !goes;
        }
        for rule in self.rules.iter_mut().filter(|rule| rule.card == card) {
            let (wait, fails) = match &mut rule.kind {
                DelayKind::Slow(delay) => (Some(*delay), false),
                DelayKind::Stuck { at, seen, limit } => {
                    *seen += 1;
                    if seen != at {
                        continue;
                    }
                    (limit.or(self.limit), true)
                }
            };
            rule.struck += 1;
            let until = wait.map(|wait| now() + wait);
            self.delayed.insert(stream, Delayed { fault: rule.fault, until, fails, released: false });
            return true;
        }
        false
    }

    pub(crate) fn forget(&mut self, stream: u64) {
        self.delayed.remove(&stream);
    }

    pub(crate) fn is_kept(&self, stream: u64) -> bool {
        self.delayed.get(&stream).is_some_and(|delayed| !delayed.released)
    }

    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.delayed.values().filter(|delayed| !delayed.released).filter_map(|delayed| delayed.until).min()
    }
}
