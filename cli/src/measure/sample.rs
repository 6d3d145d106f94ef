//! How often something is run until its time is known.
//!
//! Input → output: something to run → [`Samples`], the seconds of one run each. Invariants: what
//! runs first is not counted; a sample is so many runs that the clock's own cost is below a
//! thousandth of it.

use std::time::{Duration, Instant};

/// How much time to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Sizes that show most, and a short time each.
    Quick,
    /// All sizes, and as long as it takes for spreads to be small.
    #[default]
    Full,
}

impl Effort {
    /// The time that one figure may take.
    #[must_use]
    pub(crate) const fn budget(self) -> Duration {
        match self {
            Self::Quick => Duration::from_millis(250),
            Self::Full => Duration::from_millis(1500),
        }
    }

    /// The time that all limits may take.
    #[must_use]
    pub(crate) const fn limits_budget(self) -> Duration {
        match self {
            Self::Quick => Duration::from_millis(600),
            Self::Full => Duration::from_secs(5),
        }
    }

    /// Samples of a figure whose runs are counted beforehand.
    #[must_use]
    pub(crate) const fn samples(self) -> usize {
        match self {
            Self::Quick => 9,
            Self::Full => 25,
        }
    }
}

/// Least length of a sample: reading the clock takes some tens of nanoseconds.
const LEAST: Duration = Duration::from_micros(50);

/// Fewest and most samples of a figure.
const SAMPLES: std::ops::RangeInclusive<usize> = 3..=1000;

/// Seconds that one run took, by sample; ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// Samples that were taken elsewhere.
    #[must_use]
    pub(crate) fn new(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        Self(seconds)
    }

    /// Runs `run` for about `budget`, at least three times after a first one that does not count.
    ///
    /// # Errors
    /// The first of `run`.
    pub(crate) fn take<E>(budget: Duration, mut run: impl FnMut() -> Result<(), E>) -> Result<Self, E> {
        run()?;
        let started = Instant::now();
        run()?;
        let once = started.elapsed();
        let runs = (LEAST.as_nanos() / once.as_nanos().max(1) + 1) as u32;
        let (deadline, mut seconds) = (Instant::now() + budget, Vec::new());
        while seconds.len() < *SAMPLES.start()
            || (Instant::now() < deadline && seconds.len() < *SAMPLES.end())
        {
            let started = Instant::now();
            for _ in 0..runs {
                run()?;
            }
            seconds.push(started.elapsed().as_secs_f64() / f64::from(runs));
        }
        Ok(Self::new(seconds))
    }

    /// The same for one of `runs` that were timed as one.
    #[must_use]
    pub(crate) fn each(self, runs: usize) -> Self {
        Self(self.0.into_iter().map(|seconds| seconds / runs as f64).collect())
    }

    /// Half of the samples are at most this.
    #[must_use]
    pub(crate) fn median(&self) -> f64 {
        self.at(0.5)
    }

    #[must_use]
    pub(crate) fn min(&self) -> f64 {
        self.at(0.0)
    }

    #[must_use]
    pub(crate) fn max(&self) -> f64 {
        self.at(1.0)
    }

    #[must_use]
    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }

    /// How far apart the middle half of the samples is, as a part of the median.
    #[must_use]
    pub(crate) fn spread(&self) -> f64 {
        let median = self.median();
        if median > 0.0 { (self.at(0.75) - self.at(0.25)) / median } else { 0.0 }
    }

    fn at(&self, quantile: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * quantile).round() as usize).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_samples() {
        let samples = Samples::new(vec![5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!((samples.median(), samples.min(), samples.mean()), (3.0, 1.0, 3.0));
        assert!((samples.spread() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(Samples::default().median(), 0.0);
    }

    #[test]
    fn the_first_run_does_not_count_and_failures_end_it() {
        let mut runs = 0;
        let taken = Samples::take(Duration::ZERO, || {
            runs += 1;
            Ok::<_, ()>(())
        });
        assert_eq!(taken.map(|samples| samples.0.len()), Ok(3));
        assert!(runs > 5);
        assert_eq!(Samples::take(Duration::ZERO, || Err("no")), Err("no"));
    }
}
