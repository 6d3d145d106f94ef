//! Compares predictions with measurements.
//!
//! - Invariants: errors of shipped rows come from coefficients fitted without their page. No row
//!   has its own coefficient. Every row is listed or counted.

pub mod document;
pub mod errors;
mod fit;
pub mod forms;
pub mod forms_text;
mod forward;
mod memory;
mod operators;
mod plot;
mod points;
mod serving;
mod stack;
#[cfg(test)]
mod tests;
mod text;
pub mod training;
pub mod workload;

use std::collections::{BTreeMap, BTreeSet};

use ascend_tp_machine::fit::{fit as fit_ratios, rounded};
use ascend_tp_machine::{Problem, Problems, Profile, Soc};
use ascend_tp_planner::calibrate::{Sample, SampleKind, fit_all, page_weight};
use serde::Serialize;

pub use crate::points::settings::{Gap, GapKind};
use crate::points::{Point, settings};
pub use fit::Confidence;
use operators::MeasuredOperator;
use serving::Serving;
pub use stack::{Expansion, PassCards, Stack, StackLaunching, StepWork};
use training::unseen::{self, CrossValidation, unseen};
use training::{PointOutcome, PointRow};

/// Shipped measurements of inference.
pub const POINTS: &str = include_str!("../points/points_measured.csv");

/// Shipped measurements of operators and collectives.
pub const OPERATORS: [&str; 3] = [
    include_str!("../points/operators_measured.csv"),
    include_str!("../points/operators_measured_2.csv"),
    include_str!("../points/operators_measured_3.csv"),
];

const INFERENCE: [&str; 2] = [POINTS, include_str!("../points/points_measured_2.csv")];

/// Measurements of inference that no coefficient is fitted to. They show the errors of other
/// software than that of [`INFERENCE`].
const INFERENCE_HELD_BACK: &str = include_str!("../points/points_measured_3.csv");

const MEMORY_POINTS: [&str; 2] =
    [include_str!("../points/memory_measured.csv"), include_str!("../points/memory_measured_3.csv")];

/// Shipped measurements of training.
pub const TRAINING: [&str; 3] = [
    include_str!("../points/train_points_measured.csv"),
    include_str!("../points/train_points_measured_2.csv"),
    include_str!("../points/train_points_measured_3.csv"),
];

/// Kind of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Products of dense matrices.
    Products,
    /// Kernels of fused attention.
    Attention,
    /// Grouped products of experts.
    Grouped,
    /// Kernels of the vector cores.
    Vectors,
    /// Collectives between several cards.
    Collectives,
    /// One forward step of a model.
    Steps,
    /// A serving stack in steady state.
    Serving,
    /// Throughput of a training job.
    Training,
    /// Memory of a card, in bytes.
    Memory,
}

impl Class {
    /// Classes in declaration order.
    pub const ALL: [Self; 9] = [
        Self::Products,
        Self::Attention,
        Self::Grouped,
        Self::Vectors,
        Self::Collectives,
        Self::Steps,
        Self::Serving,
        Self::Training,
        Self::Memory,
    ];

    /// Returns the name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Products => "products",
            Self::Attention => "attention",
            Self::Grouped => "grouped",
            Self::Vectors => "vectors",
            Self::Collectives => "collectives",
            Self::Steps => "steps",
            Self::Serving => "serving",
            Self::Training => "training",
            Self::Memory => "memory",
        }
    }

    const fn of(kind: SampleKind) -> Self {
        match kind {
            SampleKind::Products | SampleKind::Products8Bit | SampleKind::Batched => Self::Products,
            SampleKind::Vectors => Self::Vectors,
            SampleKind::Attention => Self::Attention,
            SampleKind::Grouped => Self::Grouped,
            SampleKind::Collectives => Self::Collectives,
        }
    }

    const fn is_single(self) -> bool {
        matches!(self, Self::Products | Self::Attention | Self::Grouped | Self::Vectors | Self::Collectives)
    }
}

/// Part of a class with a summary of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subclass {
    /// Products of 16-bit floats.
    Products16Bit,
    /// Products of 8-bit integers.
    Products8Bit,
    /// Fused attention over prompts.
    AttentionPrefill,
    /// Fused attention of decode steps.
    AttentionDecode,
    /// Collectives of 1 MB and more.
    Collectives1Mb,
}

impl Subclass {
    /// Parts in declaration order.
    pub const ALL: [Self; 5] = [
        Self::Products16Bit,
        Self::Products8Bit,
        Self::AttentionPrefill,
        Self::AttentionDecode,
        Self::Collectives1Mb,
    ];

    /// Returns the name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Products16Bit => "products_16bit",
            Self::Products8Bit => "products_8bit",
            Self::AttentionPrefill => "attention_prefill",
            Self::AttentionDecode => "attention_decode",
            Self::Collectives1Mb => "collectives_1mb",
        }
    }
}

/// Predictions with coefficients of other sets of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OtherPredictions {
    /// All rows were fitted.
    pub fitted: f64,
    /// All rows of the operator were left out.
    pub without_operator: f64,
}

/// A point and its prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidationRow {
    /// Kind of the measurement.
    pub class: Class,
    /// Part of the class.
    pub part: Option<Subclass>,
    /// Publication of the figure.
    pub source: String,
    /// Name of the model or operator.
    pub model: String,
    /// Split, batch and lengths, as published.
    pub setting: String,
    /// Unit of both figures.
    pub unit: String,
    /// Published figure; may contain several numbers.
    pub measured: String,
    /// Setting that the row lacks for any prediction.
    pub gap: Option<Gap>,
    /// Prediction, or why it is missing.
    pub predicted: Result<f64, String>,
    /// Further predictions of an operator, if coefficients were fitted.
    pub others: Option<OtherPredictions>,
}

impl ValidationRow {
    /// Returns the relative error, predicted / measured - 1.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        self.error_of(*self.predicted.as_ref().ok()?)
    }

    fn error_of(&self, predicted: f64) -> Option<f64> {
        let measured: f64 = self.measured.trim().parse().ok()?;
        Some(predicted / measured - 1.0)
    }

    /// Returns why a prediction is missing, and its origin.
    #[must_use]
    pub fn left_out(&self) -> Option<(MissingFrom, &str)> {
        let why = self.predicted.as_ref().err()?;
        Some(match self.gap {
            Some(Gap { kind: GapKind::Other, why }) => (MissingFrom::Measurement, why),
            Some(Gap { kind: GapKind::Setting, why }) => (MissingFrom::Setting, why),
            None => (MissingFrom::Model, why),
        })
    }
}

/// Error statistics of a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// Number of predicted rows.
    pub rows: usize,
    /// Error of half the rows.
    pub median: f64,
    /// Error of nine in ten rows.
    pub ninetieth: f64,
    /// Largest error of any row.
    pub worst: f64,
}

/// Measured points with their predictions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Validation {
    /// Rows in file order.
    pub rows: Vec<ValidationRow>,
    /// Refitted coefficients; empty with shipped coefficients.
    pub coefficients: Vec<Confidence>,
    /// Chips of the measured operators.
    pub chips: BTreeSet<Soc>,
}

/// Summary of a class, as in JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ValidationSummary {
    /// Rows of the class.
    pub rows: usize,
    /// Rows with complete settings.
    pub complete: usize,
    /// Complete rows with a prediction.
    pub predicted: usize,
    /// Error of half the predictions.
    pub median: Option<f64>,
    /// Error of nine in ten predictions.
    pub p90: Option<f64>,
    /// Largest error of a prediction.
    pub worst: Option<f64>,
    /// Median with the coefficients of all rows, if they were fitted.
    pub fitted_median: Option<f64>,
    /// Median and largest error with all rows of an operator left out, if coefficients were fitted.
    pub operator_left_out: Option<LeftOutErrors>,
    /// Unpredicted rows by reason.
    pub left_out: Vec<UnpredictedRows>,
}

/// Errors of predictions without all rows of their operator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LeftOutErrors {
    /// Error of half the predictions.
    pub median: f64,
    /// Largest error of a prediction.
    pub worst: f64,
}

/// Origin of a missing prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingFrom {
    /// Not the modelled quantity.
    Measurement,
    /// The row lacks a setting.
    Setting,
    /// Complete but not modelled.
    Model,
}

impl MissingFrom {
    /// Returns the table name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measurement => "not a measurement of this",
            Self::Setting => "not given",
            Self::Model => "not modelled",
        }
    }
}

/// Rows without a prediction for one reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct UnpredictedRows {
    /// Origin of the missing prediction.
    pub lacks: MissingFrom,
    /// Description of what is missing.
    pub why: String,
    /// Number of these rows.
    pub rows: usize,
    /// Number of these rows by page.
    pub pages: BTreeMap<String, usize>,
}

/// Summaries by class, as in JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summaries {
    /// Summary by [`Class::name`], such as `products`, and by [`Subclass::name`].
    pub kinds: BTreeMap<&'static str, ValidationSummary>,
}

impl Validation {
    /// Predicts the shipped points.
    #[must_use]
    pub fn shipped() -> Self {
        let mut all = single(&OPERATORS, CoefficientSource::EachPageLeftOut);
        all.extend(Self::times());
        all
    }

    /// Predicts the shipped steps, serving stacks, training jobs and memory, each without its page.
    #[must_use]
    pub fn times() -> Self {
        let mut all = Self::default();
        let (rows, stack, coefficients) = inference_unseen(&INFERENCE);
        all.extend(Self { rows, coefficients, ..Self::default() });
        all.rows.extend(inference(INFERENCE_HELD_BACK, &stack));
        let (rows, coefficients) = training_unseen();
        all.extend(Self { rows, coefficients, ..Self::default() });
        all.rows.extend(MEMORY_POINTS.into_iter().flat_map(memory_rows));
        all
    }

    /// Adds the rows of another validation.
    pub fn extend(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.coefficients.extend(other.coefficients);
        self.chips.extend(other.chips);
    }

    /// Predicts points with shipped coefficients. The columns determine the file format.
    ///
    /// # Errors
    /// The format is unknown.
    pub fn of(place: &str, text: &str) -> Result<Self, Problems> {
        if let Some(line) = points::broken(text) {
            let expected = "fields separated by commas, as many as the heading has";
            return Err(Problems(vec![Problem::new(place, "not comma-separated values", expected, line)]));
        }
        let columns = points::columns(text);
        if let Some(twice) = columns.iter().enumerate().find(|(index, name)| columns[..*index].contains(name))
        {
            let found = format!("{} more than once", twice.1);
            return Err(Problems(vec![Problem::new(
                place,
                "a column is ambiguous",
                "each column once",
                found,
            )]));
        }
        let given = Self::given(text).ok_or_else(|| {
            let expected = FORMS.map(|(column, _)| column).join(", ");
            let found = if text.trim().is_empty() { "an empty file".to_owned() } else { columns.join(", ") };
            Problems(vec![Problem::new(
                place,
                "no column tells the kind of the points",
                format!("one of {expected}"),
                found,
            )])
        })?;
        if given.rows.is_empty() {
            let expected = "a row for each measured point below the heading";
            return Err(Problems(vec![Problem::new(
                place,
                "nothing to predict",
                expected,
                "the heading alone",
            )]));
        }
        Ok(given)
    }

    fn given(text: &str) -> Option<Self> {
        let columns = points::columns(text);
        let (_, read) = FORMS.iter().find(|(column, _)| columns.iter().any(|name| name == column))?;
        Some(read(text))
    }

    /// Returns the errors of a class, if predicted.
    #[must_use]
    pub fn statistics(&self, class: Class) -> Option<Statistics> {
        statistics(self.rows.iter().filter(|row| row.class == class).filter_map(ValidationRow::error))
    }

    /// Summarises the rows of a class.
    #[must_use]
    pub fn summary(&self, class: Class) -> ValidationSummary {
        summary(&self.rows.iter().filter(|row| row.class == class).collect::<Vec<_>>())
    }

    /// Summarises the rows of a part of a class.
    #[must_use]
    pub fn part_summary(&self, part: Subclass) -> ValidationSummary {
        summary(&self.rows.iter().filter(|row| row.part == Some(part)).collect::<Vec<_>>())
    }

    /// Summarises the rows of each class and part.
    #[must_use]
    pub fn summaries(&self) -> Summaries {
        let classes = Class::ALL.into_iter().map(|class| (class.name(), self.summary(class)));
        let parts = Subclass::ALL.into_iter().map(|part| (part.name(), self.part_summary(part)));
        Summaries { kinds: classes.chain(parts).collect() }
    }
}

fn statistics(errors: impl Iterator<Item = f64>) -> Option<Statistics> {
    let mut errors: Vec<f64> = errors.map(f64::abs).collect();
    errors.sort_by(f64::total_cmp);
    let at = |part: f64| errors.get(((errors.len() as f64 - 1.0) * part).round() as usize).copied();
    Some(Statistics { rows: errors.len(), median: at(0.5)?, ninetieth: at(0.9)?, worst: at(1.0)? })
}

fn summary(rows: &[&ValidationRow]) -> ValidationSummary {
    let found = statistics(rows.iter().filter_map(|row| row.error()));
    let of_other = |prediction: fn(&OtherPredictions) -> f64| {
        statistics(rows.iter().filter_map(|row| row.error_of(prediction(row.others.as_ref()?))))
    };
    let mut left_out: BTreeMap<(MissingFrom, &str), BTreeMap<String, usize>> = BTreeMap::new();
    for row in rows {
        if let Some(reason) = row.left_out() {
            *left_out.entry(reason).or_default().entry(row.source.clone()).or_default() += 1;
        }
    }
    ValidationSummary {
        rows: rows.len(),
        complete: rows.iter().filter(|row| row.gap.is_none()).count(),
        predicted: found.map_or(0, |found| found.rows),
        median: found.map(|found| found.median),
        p90: found.map(|found| found.ninetieth),
        worst: found.map(|found| found.worst),
        fitted_median: of_other(|others| others.fitted).map(|found| found.median),
        operator_left_out: of_other(|others| others.without_operator)
            .map(|found| LeftOutErrors { median: found.median, worst: found.worst }),
        left_out: left_out
            .into_iter()
            .map(|((lacks, why), pages)| UnpredictedRows {
                lacks,
                why: why.to_owned(),
                rows: pages.values().sum(),
                pages,
            })
            .collect(),
    }
}

/// Identifying column, and reader.
type FileForm = (&'static str, fn(&str) -> Validation);

const FORMS: [FileForm; 4] = [
    ("operator", |text| single(&[text], CoefficientSource::Shipped)),
    ("output_len", |text| Validation { rows: inference(text, &Stack::FITTED), ..Validation::default() }),
    ("gbs", |text| Validation { rows: training_rows(text), ..Validation::default() }),
    ("setting", |text| Validation { rows: memory_rows(text), ..Validation::default() }),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum CoefficientSource {
    Shipped,
    /// Coefficients fitted without the row's page.
    EachPageLeftOut,
}

fn single(texts: &[&str], by: CoefficientSource) -> Validation {
    let shipped = Profile::of(Soc::default()).coefficients;
    let points: Vec<Point> = texts.iter().flat_map(|text| Point::all(text)).collect();
    let measured: Vec<Result<MeasuredOperator, &'static str>> =
        points.iter().map(MeasuredOperator::of).collect();
    let operators: Vec<&Point> =
        points.iter().zip(&measured).filter(|(_, read)| read.is_ok()).map(|(point, _)| point).collect();
    let samples: Vec<&Sample> = measured.iter().flatten().map(|read| &read.sample).collect();
    let (held_out, coefficients) = match by {
        CoefficientSource::Shipped => (Vec::new(), Vec::new()),
        CoefficientSource::EachPageLeftOut => {
            let names: Vec<&str> = operators.iter().map(|point| point.text("operator")).collect();
            let calibration = fit::calibrate(&shipped, &samples, &names);
            (calibration.held_out, calibration.confidence)
        }
    };
    let mut held_out = held_out.into_iter();
    let row = |(point, read): (&Point, &Result<MeasuredOperator, &'static str>)| {
        let known = read.as_ref().ok();
        let held_out = known.and_then(|_| held_out.next());
        let predicted = match (read, held_out) {
            (Ok(known), Some(held_out)) => Ok(known.figure(held_out.page_us)),
            (Ok(known), None) => Ok(known.figure(known.sample.predict_us(&shipped))),
            (Err(why), _) => Err((*why).to_owned()),
        };
        ValidationRow {
            class: known.map_or_else(|| operators::class(point), |known| Class::of(known.sample.kind)),
            part: known.map_or_else(|| operators::part_of_text(point), |known| known.part),
            source: point.text("source").to_owned(),
            model: point.text("operator").to_owned(),
            setting: format!(
                "{}, {}, {} ranks, {}",
                point.text("dtype"),
                point.text("shape"),
                point.text("ranks"),
                point.text("metric")
            ),
            unit: point.text("unit").to_owned(),
            measured: point.text("value").to_owned(),
            gap: settings::operator(point).err(),
            predicted,
            others: known.zip(held_out).map(|(known, held_out)| OtherPredictions {
                fitted: known.figure(held_out.fitted_us),
                without_operator: known.figure(held_out.operator_us),
            }),
        }
    };
    let rows = points.iter().zip(&measured).map(row).collect();
    Validation { rows, coefficients, chips: samples.iter().map(|sample| sample.soc).collect() }
}

fn memory_rows(text: &str) -> Vec<ValidationRow> {
    let row = |point: &Point| ValidationRow {
        class: Class::Memory,
        part: None,
        source: point.text("source").to_owned(),
        model: point.text("model").to_owned(),
        setting: format!("tp {}, {}: {}", point.text("tp"), point.text("setting"), point.text("metric")),
        unit: point.text("unit").to_owned(),
        measured: point.text("value").to_owned(),
        gap: settings::memory(point).err(),
        predicted: memory::predict(point).map_err(str::to_owned),
        others: None,
    };
    Point::all(text).iter().map(row).collect()
}

fn trained(row: PointRow) -> ValidationRow {
    ValidationRow {
        class: Class::Training,
        part: None,
        source: row.source,
        model: row.model,
        setting: row.split,
        unit: row.unit,
        measured: row.measured.to_string(),
        gap: row.gap,
        predicted: match row.outcome {
            PointOutcome::Predicted(value) => Ok(value),
            PointOutcome::LeftOut(why) => Err(why),
        },
        others: None,
    }
}

fn training_rows(text: &str) -> Vec<ValidationRow> {
    training::validate_rows(text).into_iter().map(trained).collect()
}

/// Predicts without each page, and fits all rows.
fn training_unseen() -> (Vec<ValidationRow>, Vec<Confidence>) {
    let CrossValidation { rows, fitted, without } = unseen(&TRAINING);
    let values: Vec<Vec<f64>> = without.values().map(|other| other.values().to_vec()).collect();
    let confidence = Confidence::all("training", &unseen::PARAMETERS, &fitted.values(), &values);
    (rows.into_iter().map(trained).collect(), confidence)
}

enum MeasuredRun {
    Step(StepWork),
    Serving(Serving),
}

impl MeasuredRun {
    /// Notes on collectives apply to the whole page.
    fn all(points: &[Point]) -> Vec<Result<Self, &'static str>> {
        let asks = |point: &&Point| point.text("note").contains("AIV");
        let on_cores: BTreeSet<&str> = points.iter().filter(asks).map(|point| point.text("source")).collect();
        let run = |point: &Point| {
            settings::inference(point).map_err(|gap| gap.why)?;
            if forward::is_forward(point) {
                forward::forward(point).map(Self::Step)
            } else {
                let expansion = Expansion::of(point.text("note"), on_cores.contains(point.text("source")));
                Serving::of(point, expansion).map(Self::Serving)
            }
        };
        points.iter().map(run).collect()
    }

    fn predict(&self, stack: &Stack) -> f64 {
        match self {
            Self::Step(work) => work.forward_us(stack, StackLaunching::Captured) / 1e3,
            Self::Serving(serving) => serving.predict(stack),
        }
    }
}

fn fit_stack(rows: &[(&MeasuredRun, f64, f64)]) -> Stack {
    let found = fit_ratios(&stack::PARAMETERS, |values| {
        let stack = Stack::of(values);
        rows.iter().map(|(run, measured, weight)| (run.predict(&stack) / measured, *weight)).collect()
    });
    Stack::of(&found.values.into_iter().map(rounded).collect::<Vec<f64>>())
}

/// Predicts rows of an inference file with a stack.
#[must_use]
pub fn inference(points: &str, stack: &Stack) -> Vec<ValidationRow> {
    let points = Point::all(points);
    let runs = MeasuredRun::all(&points).into_iter().map(|run| run.map(|run| run.predict(stack)));
    points.iter().zip(runs).map(|(point, predicted)| row(point, predicted)).collect()
}

fn inference_unseen(texts: &[&str]) -> (Vec<ValidationRow>, Stack, Vec<Confidence>) {
    let points: Vec<Point> = texts.iter().flat_map(|text| Point::all(text)).collect();
    let runs: Vec<Result<MeasuredRun, &'static str>> = MeasuredRun::all(&points);
    let page = |point: &Point| point.text("source").to_owned();
    let known = |left_out: &str| -> Vec<(&MeasuredRun, f64, f64)> {
        let rows = points.iter().zip(&runs).filter(|(point, _)| page(point) != left_out);
        let rows: Vec<(String, &MeasuredRun, f64)> = rows
            .filter_map(|(point, run)| Some((page(point), run.as_ref().ok()?, point.number("value")?)))
            .collect();
        let of_page = |name: &str| rows.iter().filter(|(page, _, _)| page == name).count();
        rows.iter().map(|(page, run, value)| (*run, *value, page_weight(of_page(page)))).collect()
    };
    let mut stacks: BTreeMap<String, Stack> = BTreeMap::new();
    for (point, run) in points.iter().zip(&runs) {
        if run.is_ok() {
            stacks.entry(page(point)).or_insert_with_key(|page| fit_stack(&known(page)));
        }
    }
    let rows = points.iter().zip(&runs).map(|(point, run)| {
        let stack = stacks.get(&page(point)).copied().unwrap_or(Stack::FITTED);
        row(point, run.as_ref().map(|run| run.predict(&stack)).map_err(|why| *why))
    });
    let fitted = fit_stack(&known(""));
    let values: Vec<Vec<f64>> = stacks.values().map(|stack| stack.values().to_vec()).collect();
    let confidence = Confidence::all("serving", &stack::PARAMETERS, &fitted.values(), &values);
    (rows.collect(), fitted, confidence)
}

fn row(point: &Point, predicted: Result<f64, &'static str>) -> ValidationRow {
    ValidationRow {
        class: if forward::is_forward(point) { Class::Steps } else { Class::Serving },
        part: None,
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
        gap: settings::inference(point).err(),
        predicted: predicted.map_err(str::to_owned),
        others: None,
    }
}

/// Fits a chip's coefficients to measured operators and collectives. Other classes keep the shipped
/// values. `place` names the text in errors.
///
/// # Errors
/// No row can be predicted.
pub fn calibrate(place: &str, points: &str, soc: Soc) -> Result<Profile, Problems> {
    let measured: Vec<Result<MeasuredOperator, &'static str>> =
        Point::all(points).iter().map(MeasuredOperator::of).collect();
    let samples: Vec<MeasuredOperator> = measured.iter().flatten().cloned().collect();
    if samples.is_empty() {
        let expected =
            "rows of operators or exchanges with their sizes, in the columns of operators_measured.csv";
        let why = measured.iter().find_map(|row| row.as_ref().err()).copied();
        let found = format!("{} rows, {}", measured.len(), why.unwrap_or("and nothing else"));
        return Err(Problems(vec![Problem::new(place, format!("nothing to fit {soc} on"), expected, found)]));
    }
    let mut profile = Profile::of(soc);
    profile.coefficients = fit_all(&profile.coefficients, samples.iter().map(|sample| &sample.sample));
    profile.origin = format!("fitted on {} rows of {place}", samples.len());
    Ok(profile)
}
