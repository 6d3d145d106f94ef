//! Fits coefficients to rows of single operators, and estimates their uncertainty.

use std::collections::BTreeSet;

use ascend_tp_machine::fit::FitParameter;
use ascend_tp_machine::profile::{Coefficients, Meaning};
use ascend_tp_planner::calibrate::{FitSearch, Sample, SampleKind, fit, fit_all};

/// Fitted value and uncertainty of a coefficient.
#[derive(Debug, Clone, PartialEq)]
pub struct Confidence {
    /// Unit and plausible range.
    pub meaning: Meaning,
    /// Fitted on all pages, in the unit of `meaning`.
    pub value: f64,
    /// Extremes of the fits without one page.
    pub range: (f64, f64),
    /// Number of fitted pages.
    pub pages: usize,
}

impl Confidence {
    /// Names that end in `_us` are times; all others are fractions.
    pub(super) fn all(
        kind: &'static str,
        parameters: &[FitParameter],
        fitted: &[f64],
        without: &[Vec<f64>],
    ) -> Vec<Self> {
        let confidence = |(index, parameter): (usize, &FitParameter)| {
            let others = || without.iter().map(|values| values[index]);
            Self {
                meaning: Meaning {
                    name: parameter.name,
                    unit: if parameter.name.ends_with("_us") { "us" } else { "" },
                    usual: parameter.start,
                    low: parameter.low,
                    high: parameter.high,
                    kind,
                },
                value: fitted[index],
                range: (others().fold(f64::INFINITY, f64::min), others().fold(f64::NEG_INFINITY, f64::max)),
                pages: without.len(),
            }
        };
        parameters.iter().enumerate().map(confidence).collect()
    }
}

/// Predictions of a sample with coefficients that were fitted without some rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct HeldOut {
    /// All rows were fitted.
    pub(super) fitted_us: f64,
    /// Without the page of the row.
    pub(super) page_us: f64,
    /// Without all rows of the operator.
    pub(super) operator_us: f64,
}

pub(super) struct Calibration {
    pub(super) confidence: Vec<Confidence>,
    /// In the order of the samples.
    pub(super) held_out: Vec<HeldOut>,
}

/// Fits all samples, and again without each page and each operator. `operators` names the operator
/// of each sample.
pub(super) fn calibrate(base: &Coefficients, samples: &[&Sample], operators: &[&str]) -> Calibration {
    let coefficients = fit_all(base, samples.iter().copied());
    let held_out = |sample: &&Sample| {
        let fitted_us = sample.predict_us(&coefficients);
        HeldOut { fitted_us, page_us: fitted_us, operator_us: fitted_us }
    };
    let mut all = Calibration { confidence: Vec::new(), held_out: samples.iter().map(held_out).collect() };
    let pages: Vec<&str> = samples.iter().map(|sample| sample.page.as_str()).collect();
    for kind in SampleKind::ALL {
        let without_pages =
            without(&coefficients, kind, samples, &pages, |row, us| row.page_us = us, &mut all);
        without(&coefficients, kind, samples, operators, |row, us| row.operator_us = us, &mut all);
        for meaning in kind.meanings() {
            let of = |coefficients: &Coefficients| coefficients.get(meaning.name).unwrap_or(f64::NAN);
            let low = without_pages.iter().map(of).fold(f64::INFINITY, f64::min);
            let high = without_pages.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
            let (value, pages) = (of(&coefficients), without_pages.len());
            all.confidence.push(Confidence { meaning: *meaning, value, range: (low, high), pages });
        }
    }
    all
}

/// Predicts each group of samples with coefficients of the other groups.
fn without(
    coefficients: &Coefficients,
    kind: SampleKind,
    samples: &[&Sample],
    groups: &[&str],
    store: fn(&mut HeldOut, f64),
    all: &mut Calibration,
) -> Vec<Coefficients> {
    let of_kind = || samples.iter().zip(groups).filter(|(sample, _)| sample.kind == kind);
    let names: BTreeSet<&str> = of_kind().map(|(_, group)| *group).collect();
    let without = |name: &str| {
        let rest: Vec<&Sample> =
            of_kind().filter(|(_, group)| **group != name).map(|(sample, _)| *sample).collect();
        // The last page of a kind leaves nothing but the starts.
        let search = if rest.is_empty() { FitSearch::Whole } else { FitSearch::Near };
        fit(coefficients, kind, &rest, search)
    };
    let mut fits = Vec::new();
    for name in names {
        let fitted = without(name);
        for ((sample, group), row) in samples.iter().zip(groups).zip(&mut all.held_out) {
            if sample.kind == kind && *group == name {
                store(row, sample.predict_us(&fitted));
            }
        }
        fits.push(fitted);
    }
    fits
}
