//! Detection of ranks that compute slower than other ranks of their stage.
//!
//! Time in collectives does not count, because fast ranks wait there for slow ranks. A straggler is
//! slow in three of four recent steps, so occasional host load does not count. Stages have
//! different layers, so ranks are compared only within a stage.

use std::collections::VecDeque;

/// Ratio to the stage median that makes a rank a straggler.
pub const FACTOR: f64 = 1.5;

/// Number of recent steps that count.
pub const WINDOW: usize = 16;

/// Computation times of recent steps.
#[derive(Clone, Debug)]
pub struct Paces {
    stages: usize,
    /// Seconds by rank, for each recent step.
    steps: VecDeque<Vec<f64>>,
}

/// Relative computation time of a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Rank in the run, from 0.
    pub rank: usize,
    /// Ratio to the stage median, reached in three of four steps.
    pub over_median: f64,
}

impl Paces {
    /// Returns empty records for a run with `stages` stages.
    #[must_use]
    pub const fn new(stages: usize) -> Self {
        Self { stages, steps: VecDeque::new() }
    }

    /// Adds the seconds of a step by rank. An untimed step has none and changes nothing.
    pub fn add(&mut self, seconds: Vec<f64>) {
        if seconds.is_empty() {
            return;
        }
        self.steps.push_back(seconds);
        if self.steps.len() > WINDOW {
            self.steps.pop_front();
        }
    }

    /// Returns the slowest rank relative to its stage, if a step was timed and stages have several
    /// ranks.
    #[must_use]
    pub fn slowest(&self) -> Option<Pace> {
        self.paces().max_by(|one, other| one.over_median.total_cmp(&other.over_median))
    }

    /// Returns the stragglers by rank, once [`WINDOW`] steps were timed.
    #[must_use]
    pub fn stragglers(&self) -> Vec<Pace> {
        let is_known = self.steps.len() == WINDOW;
        self.paces().filter(|pace| is_known && pace.over_median >= FACTOR).collect()
    }

    fn paces(&self) -> impl Iterator<Item = Pace> {
        let ranks = self.steps.front().map_or(0, Vec::len);
        let stage = (ranks / self.stages.max(1)).max(1);
        let pace = move |rank: usize| {
            let over_median = |step: &Vec<f64>| {
                let median = at_share(step.chunks(stage).nth(rank / stage)?.to_vec(), 1, 2);
                (median > 0.0).then_some(step.get(rank)? / median)
            };
            let found: Vec<f64> = self.steps.iter().filter_map(over_median).collect();
            (!found.is_empty()).then(|| Pace { rank, over_median: at_share(found, 1, 4) })
        };
        (0..ranks).filter(move |_| stage > 1).filter_map(pace)
    }
}

/// Returns the quantile `part / of`, rounded down: the median of two is the lower one, so one of
/// two ranks can be slow.
fn at_share(mut numbers: Vec<f64>, part: usize, of: usize) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len().saturating_sub(1) * part / of).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(steps: usize, stages: usize, seconds: &[f64]) -> Paces {
        let mut paces = Paces::new(stages);
        (0..steps).for_each(|_| paces.add(seconds.to_vec()));
        paces
    }

    #[test]
    fn a_rank_that_is_slow_for_long_is_named() {
        let seconds = [1.0, 1.1, 1.7, 0.9];
        assert_eq!(after(WINDOW - 1, 1, &seconds).stragglers(), []);
        let found = after(WINDOW, 1, &seconds);
        assert_eq!(found.stragglers(), [Pace { rank: 2, over_median: 1.7 }]);
        assert_eq!(found.slowest().map(|pace| pace.rank), Some(2));
        assert_eq!(after(WINDOW, 1, &[1.0, 1.4]).stragglers(), []);
        assert_eq!(after(WINDOW, 1, &[1.0, 2.0]).stragglers(), [Pace { rank: 1, over_median: 2.0 }]);
    }

    #[test]
    fn some_slow_steps_accuse_nobody() {
        let mut paces = after(WINDOW, 1, &[1.0, 1.0, 1.0]);
        (0..WINDOW / 2).for_each(|_| paces.add(vec![1.0, 90.0, 1.0]));
        paces.add(Vec::new());
        assert_eq!(paces.stragglers(), []);
        (0..WINDOW).for_each(|_| paces.add(vec![1.0, 90.0, 1.0]));
        assert_eq!(paces.stragglers().len(), 1);
    }

    #[test]
    fn stages_are_compared_with_themselves() {
        assert_eq!(after(WINDOW, 2, &[1.0, 1.0, 5.0, 5.0]).stragglers(), []);
        assert_eq!(
            after(WINDOW, 2, &[1.0, 1.0, 5.0, 9.0]).stragglers(),
            [Pace { rank: 3, over_median: 1.8 }]
        );
        assert_eq!(after(WINDOW, 2, &[1.0, 9.0]).slowest(), None);
    }
}
