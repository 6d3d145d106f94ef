//! Fits training coefficients on measured rows, and predicts each row with coefficients fitted
//! without its page.

use std::collections::BTreeMap;

use ascend_tp_machine::fit::{FitParameter, fit_smooth, rounded};

use ascend_tp_planner::calibrate::page_weight;
use ascend_tp_planner::train::coefficients::TrainCoefficients;

use super::{MeasuredPoint, PointOutcome, PointRow, page, row};
use crate::points::Point;

/// Fitted parameters. They start at assumptions of published models: two thirds of the peak for
/// products, half of that for attention, half of a collective hidden, 0.1 s per step.
pub const PARAMETERS: [FitParameter; 4] = [
    FitParameter { name: "product_efficiency", start: 0.67, low: 0.3, high: 1.0 },
    FitParameter { name: "attention_efficiency", start: 0.33, low: 0.1, high: 1.0 },
    FitParameter { name: "overlap", start: 0.5, low: 0.05, high: 1.0 },
    FitParameter { name: "step_us", start: 100_000.0, low: 5000.0, high: 2_000_000.0 },
];

/// Held-out predictions and the overall fit.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossValidation {
    /// Rows in text order.
    pub rows: Vec<PointRow>,
    /// Fitted on every page.
    pub fitted: TrainCoefficients,
    /// Fitted without this page.
    pub without: BTreeMap<String, TrainCoefficients>,
}

fn fitted(samples: &[(&MeasuredPoint, f64)], begin: TrainCoefficients) -> TrainCoefficients {
    let ratios = |values: &[f64]| -> Vec<(f64, f64)> {
        let coefficients = TrainCoefficients::from_values(values);
        samples
            .iter()
            .map(|(sample, weight)| (sample.predict(coefficients) / sample.measured, *weight))
            .collect()
    };
    let found = fit_smooth(&PARAMETERS, &begin.values(), ratios);
    TrainCoefficients::from_values(&found.values.into_iter().map(rounded).collect::<Vec<f64>>())
}

/// Predicts every row without its page.
#[must_use]
pub fn unseen(texts: &[&str]) -> CrossValidation {
    let points: Vec<Point> = texts.iter().flat_map(|text| Point::all(text)).collect();
    let measured: Vec<Result<MeasuredPoint, &'static str>> = points.iter().map(MeasuredPoint::of).collect();
    let samples: Vec<(String, &MeasuredPoint)> = points
        .iter()
        .zip(&measured)
        .filter_map(|(point, sample)| Some((page(point), sample.as_ref().ok()?)))
        .collect();
    let mut pages: BTreeMap<&str, usize> = BTreeMap::new();
    for (page, _) in &samples {
        *pages.entry(page).or_default() += 1;
    }
    let known = |left_out: &str| -> Vec<(&MeasuredPoint, f64)> {
        let others = samples.iter().filter(|(page, _)| page != left_out);
        others.map(|(page, sample)| (*sample, page_weight(pages[page.as_str()]))).collect()
    };
    let all =
        fitted(&known(""), TrainCoefficients::from_values(&PARAMETERS.map(|parameter| parameter.start)));
    let without: BTreeMap<String, TrainCoefficients> =
        pages.keys().map(|page| ((*page).to_owned(), fitted(&known(page), all))).collect();
    let rows = points.iter().zip(measured).map(|(point, sample)| {
        let outcome = match sample {
            Ok(sample) => {
                PointOutcome::Predicted(sample.predict(without.get(&page(point)).copied().unwrap_or(all)))
            }
            Err(reason) => PointOutcome::LeftOut(reason.to_owned()),
        };
        row(point, outcome)
    });
    CrossValidation { rows: rows.collect(), fitted: all, without }
}
