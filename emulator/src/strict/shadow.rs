//! The last accesses to each byte, and conflicts with them.
//!
//! A conflict is a pair of unordered accesses to common bytes, at least one of them a write. An
//! access is removed only if a later access replaces it or all future work happens after it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::clock::{ActorClock, HOST};
use crate::base::site::CallSite;
use crate::memory::access::AccessMode;
use crate::memory::footprint::Footprint;

#[derive(Debug, Clone)]
pub(crate) struct Touch {
    /// Addresses of the program.
    pub(crate) footprint: Footprint,
    pub(crate) mode: AccessMode,
    /// Parameter of the C function.
    pub(crate) what: &'static str,
    pub(crate) site: Option<Arc<CallSite>>,
    /// A stream, or [`HOST`].
    pub(crate) actor: u64,
    pub(crate) step: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Conflict {
    pub(crate) earlier: Touch,
    /// Common addresses of the program.
    pub(crate) bytes: Range<usize>,
}

/// Removed streams, with the host's step after which all their work was done.
#[derive(Debug, Default)]
pub(crate) struct RemovedStreams(BTreeMap<u64, u64>);

impl RemovedStreams {
    /// Work after the host's `step` happens after all work of the stream.
    pub(crate) fn insert(&mut self, stream: u64, step: u64) {
        self.0.insert(stream, step);
    }

    /// Returns the streams whose work is before all future work.
    pub(crate) fn prune(&mut self, low: &ActorClock) -> Vec<u64> {
        let past: Vec<u64> =
            self.0.iter().filter(|(_, step)| low.of(HOST) >= **step).map(|(id, _)| *id).collect();
        self.0.retain(|_, step| low.of(HOST) < *step);
        past
    }

    pub(crate) fn is_before(&self, touch: &Touch, clock: &ActorClock) -> bool {
        clock.of(touch.actor) >= touch.step
            || self.0.get(&touch.actor).is_some_and(|step| clock.of(HOST) >= *step)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Shadow {
    touches: BTreeMap<usize, Vec<Touch>>,
    added: usize,
}

impl Shadow {
    pub(crate) fn touch(
        &mut self,
        base: usize,
        new: Touch,
        clock: &ActorClock,
        gone: &RemovedStreams,
    ) -> Option<Conflict> {
        let touches = self.touches.entry(base).or_default();
        let extent = new.footprint.extent();
        let mut conflict: Option<Conflict> = None;
        touches.retain(|old| {
            let reach = old.footprint.extent();
            if reach.end <= extent.start || extent.end <= reach.start {
                return true;
            }
            if gone.is_before(old, clock) {
                // A write replaces all earlier touches, a read earlier reads of the same actor.
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

    pub(crate) fn remove(&mut self, base: usize, clock: &ActorClock, gone: &RemovedStreams) -> Vec<Touch> {
        let touches = self.touches.remove(&base).unwrap_or_default();
        touches.into_iter().filter(|touch| !gone.is_before(touch, clock)).collect()
    }

    /// Returns true if pruning is worthwhile; resets the counter.
    pub(crate) fn take_is_full(&mut self) -> bool {
        let is_full = self.added >= 256;
        if is_full {
            self.added = 0;
        }
        is_full
    }

    pub(crate) fn prune(&mut self, low: &ActorClock, gone: &RemovedStreams) {
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
        let (mut one, mut two) = (ActorClock::default(), ActorClock::default());
        let step = one.step(1);
        assert!(shadow.touch(0, touch(0..10, AccessMode::Write, 1, step), &one, &gone).is_none());
        let step = two.step(2);
        assert!(shadow.touch(0, touch(10..20, AccessMode::Write, 2, step), &two, &gone).is_none());
        let step = two.step(2);
        let conflict =
            shadow.touch(0, touch(9..12, AccessMode::Read, 2, step), &two, &gone).expect("unordered");
        assert_eq!((conflict.bytes, conflict.earlier.actor), (9..10, 1));
        two.join(&one);
        let step = two.step(2);
        assert!(shadow.touch(0, touch(0..20, AccessMode::Write, 2, step), &two, &gone).is_none());
        assert_eq!(shadow.len(), 1, "the last write stands for all");
    }

    #[test]
    fn a_stream_that_is_gone_is_before_what_follows_its_end() {
        let (mut shadow, mut gone) = (Shadow::default(), RemovedStreams::default());
        let (mut one, mut host, mut two) =
            (ActorClock::default(), ActorClock::default(), ActorClock::default());
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
