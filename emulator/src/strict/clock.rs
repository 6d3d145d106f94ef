//! Vector clocks: the steps of each stream and of the host before a point. The count of an unknown
//! actor is 0.

use std::collections::BTreeMap;

/// The host's threads are one actor: the emulator cannot see how they synchronize (joins, locks,
/// channels).
pub(crate) const HOST: u64 = 0;

/// Stands for the calls of the host. Its count is the number of the latest one.
pub(crate) const CALLS: u64 = u64::MAX;

/// Last step of each actor before a point.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ActorClock(BTreeMap<u64, u64>);

impl ActorClock {
    pub(crate) fn of(&self, actor: u64) -> u64 {
        self.0.get(&actor).copied().unwrap_or(0)
    }

    pub(crate) fn step(&mut self, actor: u64) -> u64 {
        let count = self.0.entry(actor).or_default();
        *count += 1;
        *count
    }

    pub(crate) fn raise(&mut self, actor: u64, count: u64) {
        let mine = self.0.entry(actor).or_default();
        *mine = (*mine).max(count);
    }

    /// Returns the point before the actor's last step.
    pub(crate) fn before_last(&self, actor: u64) -> Self {
        let mut before = self.clone();
        if let Some(count) = before.0.get_mut(&actor) {
            *count -= 1;
        }
        before
    }

    pub(crate) fn join(&mut self, other: &Self) {
        for (actor, count) in &other.0 {
            self.raise(*actor, *count);
        }
    }

    pub(crate) fn meet(&mut self, other: &Self) {
        self.0.retain(|actor, count| {
            *count = (*count).min(other.of(*actor));
            *count > 0
        });
    }

    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(u64) -> bool) {
        self.0.retain(|actor, _| is_kept(*actor));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_is_the_greatest_and_meet_the_least_of_both() {
        let (mut a, mut b) = (ActorClock::default(), ActorClock::default());
        assert_eq!((a.step(7), a.step(7), b.step(7), b.step(9)), (1, 2, 1, 1));
        let mut joined = a.clone();
        joined.join(&b);
        assert_eq!((joined.of(7), joined.of(9), joined.of(HOST)), (2, 1, 0));
        assert_eq!((joined.before_last(7).of(7), joined.before_last(7).of(9)), (1, 1));
        a.meet(&b);
        assert_eq!((a.of(7), a.of(9)), (1, 0));
    }
}
