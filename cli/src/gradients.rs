//! `verify --train`: compares the gradients of a step on many cards with one card, and with the
//! same step repeated.
//!
//! The exit code says whether all gradients are within the bound and both steps have the same bits.

use std::sync::Arc;

use ascend_tp::base::Diagnostics;
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::Model;
use ascend_tp::train::choices::BatchChoices;
use ascend_tp::train::init::{self, Init};
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::verify::{Deviation, Gradients, gradients};
use ascend_tp::train::{Layout, Recipe};
use ascend_tp::world::ProcessGroup;
use ascend_tp_planner::table::Align;
use serde::Serialize;

use super::arguments::VerifyOptions;
use super::cards::Cards;
use super::failure::{Failure, Outcome};
use super::processes::{self, Inputs};
use super::train::StepContext;
use super::values::PrecisionName;
use super::verify::ChosenExpertsReport;
use super::{cards, interrupt, model, print_json, print_report, terminal};

#[derive(Debug, Serialize)]
struct GradientsReport {
    model: String,
    device: String,
    cards: usize,
    mesh: String,
    dtype: &'static str,
    /// Element type on one card.
    reference: &'static str,
    passed: bool,
    loss: [f64; 2],
    norm: [f64; 2],
    /// In the order of the backward pass.
    gradients: Vec<GradientRow>,
    /// Choices of experts on many cards in 16 bits, compared with one card in f32. All results use
    /// the choices of one card.
    #[serde(skip_serializing_if = "Option::is_none")]
    experts: Option<ChosenExpertsReport>,
    first_outside: Option<String>,
    /// The first value that differs in its bits between two equal steps on many cards.
    other_bits: Option<String>,
}

#[derive(Debug, Serialize)]
struct GradientRow {
    weight: String,
    largest: f32,
    /// Largest deviation, relative to the largest gradient of the weight.
    difference: f64,
    /// Maximum of `difference`.
    bound: f64,
    element: usize,
    expected: f32,
    found: f32,
}

impl GradientRow {
    fn new(deviation: Deviation, bound: f64) -> Self {
        let difference = deviation.relative();
        let Deviation { weight, largest, element, expected, found } = deviation;
        Self { weight, largest, difference, bound, element, expected, found }
    }
}

pub(super) fn run(options: &VerifyOptions, group: &Arc<ProcessGroup>) -> Result<Outcome, Failure> {
    let stop = interrupt::catch(group);
    let cards = cards::open(options.device, group)?;
    cards.require_numbers()?;
    let (recipe, layout, model) =
        processes::agree(group, Inputs::of_model(&options.model), read(options, &cards, group))?;
    let engine = EngineOptions { stop, ..cards.engine_options(group)? };
    let step = |recipe: &Recipe, layout: Layout, engine: &EngineOptions, given: Option<&BatchChoices>| {
        gradients(&cards.cann, &model.config, recipe, layout, engine, given, |shards| {
            // Both factors of an adapter are nonzero, so that both have gradients.
            let inits = shards.parts().map(|part| (part.tensor().name.clone(), Init::Uniform)).collect();
            init::fill_beside(&model.checkpoint, shards, &inits, 0)
        })
    };
    // The first process also runs the step on one card and reports the outcome.
    let (card, alone) = (group.card().unwrap_or(0), Arc::new(ProcessGroup::alone()));
    let on_one = |precision: TrainingPrecision, given: Option<&BatchChoices>| {
        let engine = EngineOptions { group: alone.clone(), cards: vec![card], ..engine.clone() };
        // With a fixed order of sums, a micro-batch is a whole subtree. The last subtree may have
        // fewer sequences.
        let batch = recipe.global_batch;
        let micro_batch = match recipe.exact {
            true => batch.next_power_of_two(),
            // The auxiliary loss has products of means over a micro-batch.
            false if recipe.aux_loss > 0.0 => layout.batch(),
            false => batch,
        };
        let recipe = Recipe { precision, ..recipe.clone() };
        step(&recipe, Layout { micro_batch, ..Layout::ONE }, &engine, given)
    };
    // In 16 bits, all cards are compared with f32, on the choices of f32.
    let is_rounded = !recipe.exact && recipe.precision != TrainingPrecision::F32;
    let precision = if is_rounded { TrainingPrecision::F32 } else { recipe.precision };
    let one = group.is_first().then(|| on_one(precision, None)).transpose()?;
    let own = one.as_ref().and_then(|one| one.choices.clone());
    let given = (is_rounded && model.config.has_mixture())
        .then(|| BatchChoices::of_first(own, &model.config, &recipe, group))
        .transpose()?;
    let given = given.as_ref();
    let rounded = (is_rounded && group.is_first()).then(|| on_one(recipe.precision, given)).transpose()?;
    let (many, again) = (step(&recipe, layout, &engine, given)?, step(&recipe, layout, &engine, given)?);
    cards.check_reports()?;
    let report = one.map(|one| -> Result<GradientsReport, Failure> {
        let deviations = one.deviations(&many);
        let bounds = match &rounded {
            Some(rounded) => Gradients::bounds_of_rounded(&one.deviations(rounded)),
            None => {
                let bound = if recipe.exact { 0.0 } else { Gradients::bound(&model.config) };
                vec![bound; deviations.len()]
            }
        };
        let rows: Vec<GradientRow> = deviations
            .into_iter()
            .zip(bounds)
            .map(|(deviation, bound)| GradientRow::new(deviation, bound))
            .collect();
        let first_outside = rows.iter().find(|row| row.difference > row.bound).map(|row| row.weight.clone());
        let other_bits = many.first_other_bits(&again);
        Ok(GradientsReport {
            model: options.model.display().to_string(),
            device: cards.description.clone(),
            cards: layout.cards(),
            mesh: layout.mesh(&model.config)?.to_string(),
            dtype: recipe.precision.dtype().name(),
            reference: precision.dtype().name(),
            passed: first_outside.is_none() && other_bits.is_none(),
            loss: [one.loss, many.loss],
            norm: [one.norm, many.norm],
            gradients: rows,
            experts: many.choices.as_ref().zip(given).map(|(own, given)| own.compared_with(given).into()),
            first_outside,
            other_bits,
        })
    });
    let report = report.transpose()?;
    let passed = report.as_ref().is_some_and(|report| report.passed);
    let verdicts =
        group.exchange("the outcome", vec![u8::from(passed)]).map_err(|gone| Failure::Run(gone.into()))?;
    if interrupt::is_requested() {
        return Err(Failure::Interrupted);
    }
    if let Some(report) = report {
        if options.json {
            print_json(&report)?;
        } else {
            print_report(&report.to_string())?;
        }
    }
    Ok(if verdicts[0] == [1] { Outcome::Done } else { Outcome::OutsideBound })
}

fn read(
    options: &VerifyOptions,
    cards: &Cards,
    group: &ProcessGroup,
) -> Result<(Recipe, Layout, Model), Diagnostics> {
    let mut problems = Diagnostics::new();
    let wanted = processes::cards(options.cards, group, options.step.cards())
        .map_err(|problem| problems.push(problem))
        .ok();
    if group.size() == 1 {
        wanted
            .and_then(|wanted| cards.problem(wanted))
            .into_iter()
            .for_each(|problem| problems.push(problem));
    }
    let model = model::open(&options.model, group, false).map_err(|found| problems.append(found)).ok();
    let (residual, experts) = (options.layout.residual(), options.layout.experts());
    let site = cards.site();
    let config = model.as_ref().map(|model| &model.config);
    let on = wanted.map(|cards| StepContext { cards, residual, experts, model: config, site: site.as_ref() });
    let dtype = options.dtype.map(PrecisionName::of_training).transpose();
    let dtype = dtype.map_err(|problem| problems.push(problem)).ok().flatten();
    let step = on.and_then(|on| options.step.resolve(on, dtype, &mut problems));
    match (step, model) {
        (Some((recipe, layout)), Some(model)) if problems.is_empty() => Ok((recipe, layout, model)),
        _ => Err(problems),
    }
}

impl std::fmt::Display for GradientsReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { model, device, cards, mesh, dtype, reference, loss, norm, .. } = self;
        let count = self.gradients.len();
        let apart = if dtype == reference { String::new() } else { format!(" in {reference}") };
        write!(f, "{model} in {dtype}: {count} gradients on 1 card{apart} against {cards} of {device}, ")?;
        writeln!(f, "{mesh}")?;
        writeln!(f, "loss {:.7} and {:.7}, norm {:.6e} and {:.6e}", loss[0], loss[1], norm[0], norm[1])?;
        let mut table = terminal::table([
            ("gradient of", Align::Left),
            ("largest", Align::Right),
            ("error", Align::Right),
            ("relative error", Align::Right),
            ("bound", Align::Right),
        ]);
        for GradientRow { weight, largest, difference, bound, expected, found, .. } in &self.gradients {
            let error = (f64::from(*found) - f64::from(*expected)).abs();
            table.row([
                weight.clone(),
                format!("{largest:.3e}"),
                format!("{error:.1e}"),
                format!("{difference:.1e}"),
                format!("{bound:.1e}"),
            ]);
        }
        write!(f, "{table}")?;
        let outside = self.first_outside.as_ref();
        match outside.and_then(|weight| self.gradients.iter().find(|row| row.weight == *weight)) {
            Some(GradientRow { weight, element, expected, found, difference, bound, .. }) => writeln!(
                f,
                "first outside its bound {bound:.1e} in backward order: {weight} at element {element}: \
                 expected {expected:.7e}, found {found:.7e}, relative error {difference:.1e}"
            )?,
            None if dtype == reference => {
                let bound = self.gradients.iter().map(|row| row.bound).fold(0.0, f64::max);
                writeln!(f, "all within a relative error of {bound:.1e}")?;
            }
            None => writeln!(f, "all within three times the error of one card in {dtype}")?,
        }
        if let Some(ChosenExpertsReport { choices, differing }) = &self.experts {
            write!(f, "choices of experts: {differing} of {choices} differ from one card; ")?;
            writeln!(f, "all results use its choices")?;
        }
        match &self.other_bits {
            Some(what) => writeln!(f, "the repeated step has different bits, first in {what}")?,
            None => writeln!(f, "the repeated step has the same bits")?,
        }
        writeln!(f, "{}", if self.passed { "passed" } else { "FAILED" })
    }
}
