//! Sampling of run times. The first run does not count. A sample repeats short runs until the clock
//! costs less than a thousandth.

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Few sizes, for a short time each.
    Quick,
    /// All sizes, until spreads are small.
    #[default]
    Full,
}

impl Effort {
    #[must_use]
    pub(crate) const fn budget(self) -> Duration {
        match self {
            Self::Quick => Duration::from_millis(250),
            Self::Full => Duration::from_millis(1500),
        }
    }

    #[must_use]
    pub(crate) const fn limits_budget(self) -> Duration {
        match self {
            Self::Quick => Duration::from_millis(600),
            Self::Full => Duration::from_secs(5),
        }
    }

    /// Returns the number of samples if the number of runs is fixed.
    #[must_use]
    pub(crate) const fn samples(self) -> usize {
        match self {
            Self::Quick => 9,
            Self::Full => 25,
        }
    }
}

/// Minimum length of a sample. Reading the clock takes tens of nanoseconds.
const LEAST: Duration = Duration::from_micros(50);

const SAMPLES: std::ops::RangeInclusive<usize> = 3..=1000;

/// Seconds of one run, ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    #[must_use]
    pub(crate) fn new(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        Self(seconds)
    }

    /// Runs `run` for about `budget`, at least three times after a warm-up.
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

    /// Divides samples of `runs` runs into samples of one run.
    #[must_use]
    pub(crate) fn each(self, runs: usize) -> Self {
        Self(self.0.into_iter().map(|seconds| seconds / runs as f64).collect())
    }

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

    /// Returns the interquartile range relative to the median.
    #[must_use]
    pub(crate) fn spread(&self) -> f64 {
        let median = self.median();
        if median > 0.0 { (self.at(0.75) - self.at(0.25)) / median } else { 0.0 }
    }

    #[must_use]
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the sample below which this share of the samples is.
    #[must_use]
    pub(crate) fn at(&self, quantile: f64) -> f64 {
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
