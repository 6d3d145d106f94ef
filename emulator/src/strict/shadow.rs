//! Who touched which bytes last, and whether a new access is ordered after them.
//!
//! Input: accesses as they happen, each with the clock of its point. Output: conflicts: two accesses to common bytes, one of
//! them a write, of which neither is before the other. Invariant: an access is forgotten only when a later one stands for
//! it, or when everything that can still come is after it. Does not: say who is right (see `order`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::clock::{Clock, HOST};
use crate::base::site::Site;
use crate::memory::footprint::Footprint;
use crate::runtime::stream::AccessMode;

/// An access that has happened.
#[derive(Debug, Clone)]
pub(crate) struct Touch {
    /// Its bytes, by the program's addresses.
    pub(crate) footprint: Footprint,
    pub(crate) mode: AccessMode,
    /// The parameter of the C function.
    pub(crate) what: &'static str,
    pub(crate) site: Option<Arc<Site>>,
    /// A stream, or [`HOST`].
    pub(crate) actor: u64,
    /// The actor's step.
    pub(crate) step: u64,
}

/// Two accesses that nothing orders.
#[derive(Debug, Clone)]
pub(crate) struct Conflict {
    pub(crate) earlier: Touch,
    /// Bytes both touch, by the program's addresses.
    pub(crate) bytes: Range<usize>,
}

/// Streams that are gone: the host's step by which all their work was known to be done.
#[derive(Debug, Default)]
pub(crate) struct RemovedStreams(BTreeMap<u64, u64>);

impl RemovedStreams {
    /// A stream goes; whoever comes after the host's `step` comes after its work.
    pub(crate) fn insert(&mut self, stream: u64, step: u64) {
        self.0.insert(stream, step);
    }

    /// Forgets streams whose work is before everything that can still come; gives those.
    pub(crate) fn prune(&mut self, low: &Clock) -> Vec<u64> {
        let past: Vec<u64> = self.0.iter().filter(|(_, step)| low.of(HOST) >= **step).map(|(id, _)| *id).collect();
        self.0.retain(|_, step| low.of(HOST) < *step);
        past
    }

    /// Whether a touch is before the point of `clock`.
    pub(crate) fn is_before(&self, touch: &Touch, clock: &Clock) -> bool {
        clock.of(touch.actor) >= touch.step || self.0.get(&touch.actor).is_some_and(|step| clock.of(HOST) >= *step)
    }
}

/// The touches of every allocation, by its first address.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    touches: BTreeMap<usize, Vec<Touch>>,
    added: usize,
}

impl Shadow {
    /// A touch of the allocation at `base` happens at the point of `clock`; gives the first touch it conflicts with.
    pub(crate) fn touch(&mut self, base: usize, new: Touch, clock: &Clock, gone: &RemovedStreams) -> Option<Conflict> {
        let touches = self.touches.entry(base).or_default();
        let extent = new.footprint.extent();
        let mut conflict: Option<Conflict> = None;
        touches.retain(|old| {
            let reach = old.footprint.extent();
            if reach.end <= extent.start || extent.end <= reach.start {
                return true;
            }
            if gone.is_before(old, clock) {
                // A write stands for all before it, a read for the same actor's earlier reads.
                let stands_for =
                    new.mode == AccessMode::Write || (old.mode == AccessMode::Read && old.actor == new.actor);
                return !(stands_for && new.footprint.covers(&old.footprint));
            }
            if (old.mode == AccessMode::Write || new.mode == AccessMode::Write)
                && conflict.is_none()
                && let Some(bytes) = old.footprint.meets(&new.footprint)
            {
                conflict = Some(Conflict { earlier: old.clone(), bytes });
            }
            true
        });
        touches.push(new);
        self.added += 1;
        conflict
    }

    /// Forgets an allocation; gives the touches that are not before the point of `clock`.
    pub(crate) fn remove(&mut self, base: usize, clock: &Clock, gone: &RemovedStreams) -> Vec<Touch> {
        let touches = self.touches.remove(&base).unwrap_or_default();
        touches.into_iter().filter(|touch| !gone.is_before(touch, clock)).collect()
    }

    /// Whether so much was added that it is worth looking what can be forgotten; counts anew.
    pub(crate) fn take_is_full(&mut self) -> bool {
        let is_full = self.added >= 256;
        if is_full {
            self.added = 0;
        }
        is_full
    }

    /// Forgets what is before everything that can still come.
    pub(crate) fn prune(&mut self, low: &Clock, gone: &RemovedStreams) {
        for touches in self.touches.values_mut() {
            touches.retain(|touch| !gone.is_before(touch, low));
        }
        self.touches.retain(|_, touches| !touches.is_empty());
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.touches.values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(bytes: Range<usize>, mode: AccessMode, actor: u64, step: u64) -> Touch {
        Touch { footprint: Footprint::line(bytes), mode, what: "x", site: None, actor, step }
    }

    #[test]
    fn unordered_touches_conflict_when_one_writes_and_bytes_are_common() {
        let (mut shadow, gone) = (Shadow::default(), RemovedStreams::default());
        let (mut one, mut two) = (Clock::default(), Clock::default());
        let step = one.step(1);
        assert!(shadow.touch(0, touch(0..10, AccessMode::Write, 1, step), &one, &gone).is_none());
        let step = two.step(2);
        assert!(shadow.touch(0, touch(10..20, AccessMode::Write, 2, step), &two, &gone).is_none());
        let step = two.step(2);
        let conflict = shadow.touch(0, touch(9..12, AccessMode::Read, 2, step), &two, &gone).expect("unordered");
        assert_eq!((conflict.bytes, conflict.earlier.actor), (9..10, 1));
        two.join(&one);
        let step = two.step(2);
        assert!(shadow.touch(0, touch(0..20, AccessMode::Write, 2, step), &two, &gone).is_none());
        assert_eq!(shadow.len(), 1, "the last write stands for all");
    }

    #[test]
    fn a_stream_that_is_gone_is_before_what_follows_its_end() {
        let (mut shadow, mut gone) = (Shadow::default(), RemovedStreams::default());
        let (mut one, mut host, mut two) = (Clock::default(), Clock::default(), Clock::default());
        let step = one.step(1);
        shadow.touch(0, touch(0..10, AccessMode::Write, 1, step), &one, &gone);
        gone.insert(1, host.step(HOST));
        let step = two.step(2);
        assert!(shadow.touch(0, touch(0..4, AccessMode::Read, 2, step), &two, &gone).is_some());
        two.join(&host);
        let step = two.step(2);
        assert!(shadow.touch(0, touch(4..8, AccessMode::Read, 2, step), &two, &gone).is_none());
        shadow.prune(&host, &gone);
        assert_eq!(shadow.len(), 2, "only the stream's own touches are past");
        assert_eq!(gone.prune(&host), [1]);
    }
}
