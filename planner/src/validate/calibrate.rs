//! Fits coefficients to rows of single operators, and estimates their uncertainty.
//!
//! Rows of a page share a harness, a card and a release, so their errors correlate. A page with n
//! rows counts as n / (1 + 0.05 (n - 1)), the effective size at a correlation of 0.05.

use std::collections::BTreeSet;

use ascend_tp_machine::fit::{FitParameter, fit};
use ascend_tp_machine::profile::{Coefficients, MEANINGS, Meaning};

use super::Class;
use super::operators::MeasuredOperator;
use crate::points::{rounded, weight};

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

pub(super) struct Calibration {
    pub(super) confidence: Vec<Confidence>,
    pub(super) unseen_us: Vec<f64>,
}

const KINDS: [Class; 5] =
    [Class::Products, Class::Vectors, Class::Attention, Class::Grouped, Class::Collectives];

fn fitted(base: &Coefficients, class: Class, samples: &[&MeasuredOperator]) -> Coefficients {
    let meanings: Vec<&Meaning> = MEANINGS.iter().filter(|meaning| meaning.kind == class.name()).collect();
    let parameters: Vec<FitParameter> = meanings
        .iter()
        .map(|m| FitParameter { name: m.name, start: m.usual, low: m.low, high: m.high })
        .collect();
    let weights: Vec<f64> = {
        let rows =
            |sample: &&MeasuredOperator| samples.iter().filter(|other| other.page == sample.page).count();
        samples.iter().map(|sample| sample.weight * weight(rows(sample))).collect()
    };
    let with = |values: &[f64]| {
        let named: Vec<(&str, f64)> =
            meanings.iter().zip(values).map(|(meaning, value)| (meaning.name, *value)).collect();
        base.set(&named)
    };
    let found = fit(&parameters, |values| {
        let coefficients = with(values);
        let ratio = |sample: &&MeasuredOperator| sample.predict_us(&coefficients) / sample.measured_us;
        samples.iter().map(ratio).zip(weights.iter().copied()).collect()
    });
    with(&found.values.into_iter().map(rounded).collect::<Vec<f64>>())
}

pub(crate) fn fit_all(base: &Coefficients, samples: &[MeasuredOperator]) -> Coefficients {
    KINDS.into_iter().fold(base.clone(), |before, class| {
        let of_class: Vec<&MeasuredOperator> =
            samples.iter().filter(|sample| sample.class == class).collect();
        if of_class.is_empty() { before } else { fitted(&before, class, &of_class) }
    })
}

pub(super) fn calibrate(base: &Coefficients, samples: &[MeasuredOperator]) -> Calibration {
    let coefficients = fit_all(base, samples);
    let before = &coefficients;
    let mut confidence = Vec::new();
    let mut unseen_us = vec![0.0; samples.len()];
    for class in KINDS {
        let of_class: Vec<&MeasuredOperator> =
            samples.iter().filter(|sample| sample.class == class).collect();
        let pages: BTreeSet<&str> = of_class.iter().map(|sample| sample.page.as_str()).collect();
        let mut others = Vec::new();
        for page in &pages {
            let rest: Vec<&MeasuredOperator> =
                of_class.iter().copied().filter(|sample| sample.page != *page).collect();
            let without = fitted(before, class, &rest);
            for (sample, us) in samples.iter().zip(&mut unseen_us) {
                if sample.class == class && sample.page == *page {
                    *us = sample.predict_us(&without);
                }
            }
            others.push(without);
        }
        for meaning in MEANINGS.iter().filter(|meaning| meaning.kind == class.name()) {
            let of = |coefficients: &Coefficients| coefficients.get(meaning.name).unwrap_or(f64::NAN);
            let low = others.iter().map(of).fold(f64::INFINITY, f64::min);
            let high = others.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
            let value = of(&coefficients);
            confidence.push(Confidence { meaning: *meaning, value, range: (low, high), pages: pages.len() });
        }
    }
    Calibration { confidence, unseen_us }
}
