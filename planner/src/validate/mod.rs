//! Predicted against measured, for every point that ships.
//!
//! Input → output: texts of `planner/points/` → a [`Row`] a point: its prediction, or why it has none; and by [`Class`] the
//! median and 90th percentile of the errors. [`calibrate`] turns the question round and fits a profile to points.
//! Invariants: pure; no row has a coefficient of its own, and every row is listed. It does not measure.

mod forward;
mod points;
mod serving;
mod stack;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use ascend_tp_machine::fit::{Parameter, fit};
use ascend_tp_machine::{Problem, Problems, Profile, Soc};

use super::train;
use points::Point;
pub use stack::{Cards, Launching, Stack};

/// Measured inference; ships.
pub const POINTS: &str = include_str!("../../points/points_measured.csv");

/// Measured training; ships.
pub const TRAINING_POINTS: &str = include_str!("../../points/train_points_measured.csv");

/// What kind of measurement a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// One forward step.
    Forward,
    /// A serving stack in a steady state.
    Serving,
    /// Training.
    Training,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Serving, Self::Training];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward step",
            Self::Serving => "serving",
            Self::Training => "training",
        }
    }
}

/// One measured point.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its kind.
    pub class: Class,
    /// Where it was published.
    pub source: String,
    /// The model.
    pub model: String,
    /// Split, batch and lengths, as published.
    pub setting: String,
    /// The unit of the figures.
    pub unit: String,
    /// As published; several figures stand as text.
    pub measured: String,
    /// In the same unit, or why there is none.
    pub predicted: Result<f64, String>,
}

impl Row {
    /// Predicted over measured, less 1.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let measured: f64 = self.measured.trim().parse().ok()?;
        self.predicted.as_ref().ok().map(|predicted| predicted / measured - 1.0)
    }
}

/// Errors of a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// Rows with a prediction.
    pub rows: usize,
    /// Half of them are within this.
    pub median: f64,
    /// Nine of ten are within this.
    pub ninetieth: f64,
    /// All are within this.
    pub worst: f64,
}

/// All rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Validation {
    /// In the order of the files.
    pub rows: Vec<Row>,
}

impl Validation {
    /// Predictions for the points that ship.
    #[must_use]
    pub fn shipped() -> Self {
        let mut rows = inference(POINTS, &Stack::FITTED);
        rows.extend(training());
        Self { rows }
    }

    /// Errors of the rows of a class; `None` where no row has a prediction.
    #[must_use]
    pub fn statistics(&self, class: Class) -> Option<Statistics> {
        let of_class = self.rows.iter().filter(|row| row.class == class);
        let mut errors: Vec<f64> = of_class.filter_map(Row::error).map(f64::abs).collect();
        errors.sort_by(f64::total_cmp);
        let at = |part: f64| errors.get(((errors.len() as f64 - 1.0) * part).round() as usize).copied();
        Some(Statistics { rows: errors.len(), median: at(0.5)?, ninetieth: at(0.9)?, worst: at(1.0)? })
    }
}

fn training() -> Vec<Row> {
    train::validate_rows(TRAINING_POINTS, train::coefficients::Coefficients::FITTED)
        .into_iter()
        .map(|row| Row {
            class: Class::Training,
            source: row.source,
            model: row.model,
            setting: row.split,
            unit: row.unit,
            measured: row.measured.to_string(),
            predicted: match row.outcome {
                train::points::Outcome::Predicted(value) => Ok(value),
                train::points::Outcome::LeftOut(why) => Err(why),
            },
        })
        .collect()
}

/// Rows of a file of inference points.
#[must_use]
pub fn inference(points: &str, stack: &Stack) -> Vec<Row> {
    Point::all(points).iter().map(|point| row(point, stack)).collect()
}

fn row(point: &Point, stack: &Stack) -> Row {
    let is_forward = forward::is_forward(point);
    let predicted = if is_forward {
        forward::forward(point).map(|step| {
            // Its batch is one of tokens, without a stack's sequences.
            step.cards.step_us(&step.sections, 0, stack, Launching::Captured) / 1e3
        })
    } else {
        serving::Serving::of(point).and_then(|run| run.predict(point, stack))
    };
    Row {
        class: if is_forward { Class::Forward } else { Class::Serving },
        source: point.text("source").to_owned(),
        model: point.text("model").to_owned(),
        setting: format!(
            "tp {}, batch {}, {} + {}: {}",
            point.text("tp"),
            point.text("batch"),
            point.text("input_len"),
            point.text("output_len"),
            point.text("metric")
        ),
        unit: point.text("unit").to_owned(),
        measured: point.text("value").to_owned(),
        predicted: predicted.map_err(str::to_owned),
    }
}

/// What is fitted, in the order of their weight: as many as there are points.
const PARAMETERS: [Parameter; 4] = [
    // ATB counts on 0.8 of the peak for large products (`tiling_args.h`); what tiles lose is counted by itself.
    Parameter { name: "cube_efficiency", start: 0.7, low: 0.4, high: 0.85 },
    // Of 32 bytes a cycle and core; a copy reaches 1.05 of that, the installed memory 1.8 on the smallest chip.
    Parameter { name: "hbm_efficiency", start: 0.8, low: 0.5, high: 1.3 },
    Parameter { name: "vector_efficiency", start: 0.4, low: 0.1, high: 1.0 },
    // A kernel without work takes 1.5 to 10 microseconds.
    Parameter { name: "kernel_us", start: 2.0, low: 1.5, high: 10.0 },
];

/// The profile of a chip with the coefficients that fit the forward steps measured on it best. `place` names the text in
/// problems.
///
/// # Errors
/// The text has no forward step of this chip.
pub fn calibrate(place: &str, points: &str, soc: Soc) -> Result<Profile, Problems> {
    let (mut steps, mut others) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for point in Point::all(points).iter().filter(|point| forward::is_forward(point)) {
        let (Ok(step), Some(measured_ms)) = (forward::forward(point), point.number("value")) else { continue };
        if step.cards.profile.soc == soc {
            steps.push((step, measured_ms));
        } else {
            *others.entry(step.cards.profile.soc.name()).or_default() += 1;
        }
    }
    if steps.is_empty() {
        let expected = "rows whose output_len is `one forward step`, of a known model on this chip";
        let found: Vec<String> = others.iter().map(|(soc, rows)| format!("{rows} on {soc}")).collect();
        let found =
            if found.is_empty() { "none".to_owned() } else { format!("{}, and none on {soc}", found.join(", ")) };
        let problem = Problem::new(place, format!("nothing to fit {soc} on"), expected, found);
        return Err(Problems(vec![problem]));
    }
    let parameters = &PARAMETERS[..steps.len().min(PARAMETERS.len())];
    let start = Profile::of(soc);
    let with = |values: &[f64]| {
        let mut profile = start.clone();
        let c = &mut profile.coefficients;
        let slots = [&mut c.cube_efficiency, &mut c.hbm_efficiency, &mut c.vector_efficiency, &mut c.kernel_us];
        for (slot, value) in slots.into_iter().zip(values) {
            *slot = *value;
        }
        profile
    };
    let found = fit(parameters, |values| {
        let profile = with(values);
        let ratio = |(step, measured_ms): &(forward::Forward, f64)| {
            let cards = Cards { profile: profile.clone(), ..step.cards.clone() };
            cards.step_us(&step.sections, 0, &Stack::FITTED, Launching::Captured) / 1e3 / measured_ms
        };
        steps.iter().map(ratio).collect()
    });
    let mut profile = with(&found.values);
    profile.origin = format!("fitted on {} forward steps of {place}", steps.len());
    Ok(profile)
}

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for class in Class::ALL {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.class == class).collect();
            if rows.is_empty() {
                continue;
            }
            writeln!(f, "{}", class.name())?;
            writeln!(f, "  {:>10}  {:>10}  {:>7}  unit, model, setting", "measured", "predicted", "error")?;
            for row in rows {
                let what = format!("{}, {}, {}", row.unit, row.model, row.setting);
                match (&row.predicted, row.error()) {
                    (Ok(predicted), Some(error)) => {
                        let measured = predicted / (1.0 + error);
                        writeln!(f, "  {measured:>10.2}  {predicted:>10.2}  {:>+6.1}%  {what}", 100.0 * error)?;
                    }
                    (Ok(predicted), None) => {
                        writeln!(f, "  {:>10}  {predicted:>10.2}  {:>7}  {what}", row.measured, "")?;
                    }
                    (Err(why), _) => {
                        writeln!(f, "  {:>10}  {:>10}  {:>7}  {what}; left out: {why}", row.measured, "-", "")?;
                    }
                }
            }
            writeln!(f)?;
        }
        for class in Class::ALL {
            if let Some(Statistics { rows, median, ninetieth, worst }) = self.statistics(class) {
                writeln!(
                    f,
                    "{}: {rows} rows, median error {:.1} %, 90th percentile {:.1} %, worst {:.1} %",
                    class.name(),
                    100.0 * median,
                    100.0 * ninetieth,
                    100.0 * worst
                )?;
            }
        }
        Ok(())
    }
}
