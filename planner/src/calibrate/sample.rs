//! Measured times of kernels and exchanges, and the coefficients that fit them.
//!
//! Rows of a page share a harness, a card and a release, so their errors correlate. A page with n
//! rows counts as n / (1 + 0.05 (n - 1)), the effective size at a correlation of 0.05.

use std::collections::BTreeMap;

use ascend_tp_machine::fit::{FitParameter, fit_from, fit_smooth, rounded};
use ascend_tp_machine::profile::{Coefficients, MEANINGS, Meaning};
use ascend_tp_machine::{CollectiveCost, Exchange, OperatorCost, Profile, Soc, Topology, Work};

/// Kind of a measured task. Each kind has its own coefficients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SampleKind {
    /// Products of dense matrices of floats.
    Products,
    /// Products of dense matrices of 8-bit integers.
    Products8Bit,
    /// Batches of products.
    Batched,
    /// Kernels of the vector cores.
    Vectors,
    /// Kernels of fused attention.
    Attention,
    /// Grouped products of experts.
    Grouped,
    /// Collectives between several cards.
    Collectives,
}

impl SampleKind {
    /// Kinds in declaration order.
    pub const ALL: [Self; 7] = [
        Self::Products,
        Self::Products8Bit,
        Self::Batched,
        Self::Vectors,
        Self::Attention,
        Self::Grouped,
        Self::Collectives,
    ];

    /// Returns the name, which is also the kind of a [`Meaning`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Products => "products",
            Self::Products8Bit => "products_8bit",
            Self::Batched => "batched",
            Self::Vectors => "vectors",
            Self::Attention => "attention",
            Self::Grouped => "grouped",
            Self::Collectives => "collectives",
        }
    }

    /// Lists the coefficients of the kind.
    pub fn meanings(self) -> impl Iterator<Item = &'static Meaning> {
        MEANINGS.iter().filter(move |meaning| meaning.kind == self.name())
    }
}

/// A measured task.
#[derive(Debug, Clone)]
pub enum SampleTask {
    /// Kernels that run in sequence.
    Kernels(Vec<Work>),
    /// A collective.
    Exchange {
        /// Kind of the collective.
        exchange: Exchange,
        /// Bytes as [`Exchange`] counts them.
        bytes: f64,
        /// Topology that connects the cards.
        topology: Topology,
        /// Numbers of the cards in the topology.
        cards: Vec<usize>,
        /// The host prepares copies, instead of cores that read each other's memory.
        by_copies: bool,
    },
}

/// A measured time.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Kind of the task.
    pub kind: SampleKind,
    /// Publication or bench; its samples share errors.
    pub page: String,
    /// Chip that ran the task.
    pub soc: Soc,
    /// The measured task.
    pub task: SampleTask,
    /// Time that the caller's framework adds.
    pub added_us: f64,
    /// Least time between two calls of the caller's framework.
    pub least_us: f64,
    /// Measured time.
    pub measured_us: f64,
    /// Weight relative to a published row that is alone on its page.
    pub weight: f64,
}

/// Weight of a bench in published rows. A bench has about a fifth of their error, and weights are
/// squared.
const BENCH_WEIGHT: f64 = 25.0;

const CORRELATION: f64 = 0.05;

impl Sample {
    /// Creates a sample of a bench, which is a page of its own.
    #[must_use]
    pub fn bench(kind: SampleKind, soc: Soc, task: SampleTask, measured_us: f64) -> Self {
        let page = format!("{task:?}");
        Self { kind, page, soc, task, added_us: 0.0, least_us: 0.0, measured_us, weight: BENCH_WEIGHT }
    }

    /// Predicts the time of the task.
    #[must_use]
    pub fn predict_us(&self, coefficients: &Coefficients) -> f64 {
        let profile = Profile {
            coefficients: coefficients.clone(),
            origin: String::new(),
            soc: self.soc,
            hbm_installed_bytes: 0,
        };
        let us: f64 = match &self.task {
            SampleTask::Kernels(works) => {
                works.iter().map(|work| OperatorCost::of(&profile, work).duration_us).sum()
            }
            SampleTask::Exchange { exchange, bytes, topology, cards, by_copies } => {
                let cost = if *by_copies { CollectiveCost::by_copies } else { CollectiveCost::of };
                cost(&profile, topology, *exchange, *bytes, cards).duration_us
            }
        };
        (us + self.added_us).max(self.least_us)
    }
}

/// Returns the weight of one of `rows` rows of a page.
#[must_use]
pub fn page_weight(rows: usize) -> f64 {
    1.0 / (1.0 + CORRELATION * (rows as f64 - 1.0))
}

/// Search of a fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FitSearch {
    /// From the usual values and from the present ones.
    Whole,
    /// From the present values, for samples that change little.
    Near,
}

/// Returns `base` with the coefficients of `kind` fitted to samples of that kind.
#[must_use]
pub fn fit(base: &Coefficients, kind: SampleKind, samples: &[&Sample], search: FitSearch) -> Coefficients {
    let parameters = parameters(kind);
    let weights = weights(samples);
    let with = |values: &[f64]| set(base, &parameters, values);
    let ratios = |values: &[f64]| -> Vec<(f64, f64)> {
        let coefficients = with(values);
        let ratio = |sample: &&Sample| sample.predict_us(&coefficients) / sample.measured_us;
        samples.iter().map(ratio).zip(weights.iter().copied()).collect()
    };
    let usual: Vec<f64> = parameters.iter().map(|parameter| parameter.start).collect();
    let present: Vec<f64> =
        parameters.iter().map(|parameter| base.get(parameter.name).unwrap_or(parameter.start)).collect();
    let found = match search {
        FitSearch::Whole => fit_from(&parameters, &[&usual, &present], ratios),
        FitSearch::Near => fit_smooth(&parameters, &present, ratios),
    };
    with(&found.values.into_iter().map(rounded).collect::<Vec<f64>>())
}

fn parameters(kind: SampleKind) -> Vec<FitParameter> {
    kind.meanings().map(|m| FitParameter { name: m.name, start: m.usual, low: m.low, high: m.high }).collect()
}

fn weights(samples: &[&Sample]) -> Vec<f64> {
    let mut pages: BTreeMap<&str, usize> = BTreeMap::new();
    for sample in samples {
        *pages.entry(&sample.page).or_default() += 1;
    }
    samples.iter().map(|sample| sample.weight * page_weight(pages[sample.page.as_str()])).collect()
}

fn set(base: &Coefficients, parameters: &[FitParameter], values: &[f64]) -> Coefficients {
    let named: Vec<(&str, f64)> =
        parameters.iter().zip(values).map(|(parameter, value)| (parameter.name, *value)).collect();
    base.set(&named)
}

/// Kinds in the order of their fits. Quantised layers and experts contain vector kernels. Vector
/// kernels read from the cache, and attention determines its bandwidth. A bench of that bandwidth
/// is a vector kernel. So vector kernels are fitted before and after attention.
const ORDER: [SampleKind; 8] = [
    SampleKind::Products,
    SampleKind::Batched,
    SampleKind::Vectors,
    SampleKind::Attention,
    SampleKind::Vectors,
    SampleKind::Products8Bit,
    SampleKind::Grouped,
    SampleKind::Collectives,
];

/// Returns `base` with the coefficients of every measured kind fitted.
#[must_use]
pub fn fit_all<'a>(base: &Coefficients, samples: impl IntoIterator<Item = &'a Sample>) -> Coefficients {
    let samples: Vec<&Sample> = samples.into_iter().collect();
    ORDER.into_iter().fold(base.clone(), |before, kind| {
        let of_kind: Vec<&Sample> = samples.iter().copied().filter(|sample| sample.kind == kind).collect();
        if of_kind.is_empty() { before } else { fit(&before, kind, &of_kind, FitSearch::Whole) }
    })
}
