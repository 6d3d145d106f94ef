//! `verify --train`: compares the gradients of a step on many cards with one card, and with the
//! same step repeated.
//!
//! The exit code says whether all gradients are within the bound and both steps have the same bits.

use std::sync::Arc;

use ascend_tp::base::Diagnostics;
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::Model;
use ascend_tp::train::init::{self, Init};
use ascend_tp::train::verify::{Deviation, Gradients, gradients};
use ascend_tp::train::{self, Layout, Recipe};
use ascend_tp::world::ProcessGroup;
use ascend_tp_planner::table::Align;
use serde::Serialize;

use super::arguments::VerifyOptions;
use super::cards::Cards;
use super::failure::{Failure, Outcome};
use super::processes::{self, Inputs};
use super::train::StepContext;
use super::{cards, interrupt, model, print_json, print_report, terminal};

#[derive(Debug, Serialize)]
struct GradientsReport {
    model: String,
    device: String,
    cards: usize,
    mesh: String,
    dtype: &'static str,
    passed: bool,
    /// Maximum deviation of a gradient, relative to the largest gradient of the same weight.
    bound: f64,
    loss: [f64; 2],
    norm: [f64; 2],
    /// In the order of the backward pass.
    gradients: Vec<GradientRow>,
    first_outside: Option<String>,
    /// The first value that differs in its bits between two equal steps on many cards.
    other_bits: Option<String>,
}

#[derive(Debug, Serialize)]
struct GradientRow {
    weight: String,
    largest: f32,
    difference: f64,
    element: usize,
    expected: f32,
    found: f32,
}

impl From<Deviation> for GradientRow {
    fn from(deviation: Deviation) -> Self {
        let difference = deviation.relative();
        let Deviation { weight, largest, element, expected, found } = deviation;
        Self { weight, largest, difference, element, expected, found }
    }
}

pub(super) fn run(options: &VerifyOptions, group: &Arc<ProcessGroup>) -> Result<Outcome, Failure> {
    let stop = interrupt::catch(group);
    let cards = cards::open(options.device, group)?;
    cards.require_numbers()?;
    let (recipe, layout, model) =
        processes::agree(group, Inputs::of_model(&options.model), read(options, &cards, group))?;
    let engine = EngineOptions { stop, ..cards.engine_options(group)? };
    let step = |layout: Layout, engine: &EngineOptions| -> Result<Gradients, train::Error> {
        gradients(&cards.cann, &model.config, &recipe, layout, engine, |shards| {
            // Both factors of an adapter are nonzero, so that both have gradients.
            let inits = shards.parts().map(|part| (part.tensor().name.clone(), Init::Uniform)).collect();
            init::fill_beside(&model.checkpoint, shards, &inits, 0)
        })
    };
    // The first process also runs the step on one card and reports the outcome.
    let (card, alone) = (group.card().unwrap_or(0), Arc::new(ProcessGroup::alone()));
    let on_one = || {
        let engine = EngineOptions { group: alone, cards: vec![card], ..engine.clone() };
        // With a fixed order of sums, a micro-batch is a whole subtree. The last subtree may have
        // fewer sequences.
        let batch = recipe.global_batch;
        let micro_batch = match recipe.exact {
            true => batch.next_power_of_two(),
            // The auxiliary loss has products of means over a micro-batch.
            false if recipe.aux_loss > 0.0 => layout.batch(),
            false => batch,
        };
        step(Layout { micro_batch, ..Layout::ONE }, &engine)
    };
    let one = group.is_first().then(on_one).transpose()?;
    let (many, again) = (step(layout, &engine)?, step(layout, &engine)?);
    cards.check_reports()?;
    let report = one.map(|one| -> Result<GradientsReport, Failure> {
        let bound = if recipe.exact { 0.0 } else { Gradients::bound(&model.config, recipe.precision) };
        let rows: Vec<GradientRow> = one.deviations(&many).into_iter().map(GradientRow::from).collect();
        let first_outside = rows.iter().find(|row| row.difference > bound).map(|row| row.weight.clone());
        let other_bits = many.first_other_bits(&again);
        Ok(GradientsReport {
            model: options.model.display().to_string(),
            device: cards.description.clone(),
            cards: layout.cards(),
            mesh: layout.mesh(&model.config)?.to_string(),
            dtype: recipe.precision.dtype().name(),
            passed: first_outside.is_none() && other_bits.is_none(),
            bound,
            loss: [one.loss, many.loss],
            norm: [one.norm, many.norm],
            gradients: rows,
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
    let step = on.and_then(|on| options.step.resolve(on, None, &mut problems));
    match (step, model) {
        (Some((recipe, layout)), Some(model)) if problems.is_empty() => Ok((recipe, layout, model)),
        _ => Err(problems),
    }
}

impl std::fmt::Display for GradientsReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { model, device, cards, mesh, dtype, bound, loss, norm, .. } = self;
        let count = self.gradients.len();
        writeln!(f, "{model} in {dtype}: {count} gradients on 1 card against {cards} of {device}, {mesh}")?;
        writeln!(f, "loss {:.7} and {:.7}, norm {:.6e} and {:.6e}", loss[0], loss[1], norm[0], norm[1])?;
        let mut table = terminal::table([
            ("gradient of", Align::Left),
            ("largest", Align::Right),
            ("error", Align::Right),
            ("relative error", Align::Right),
        ]);
        for GradientRow { weight, largest, difference, expected, found, .. } in &self.gradients {
            let error = (f64::from(*found) - f64::from(*expected)).abs();
            table.row([
                weight.clone(),
                format!("{largest:.3e}"),
                format!("{error:.1e}"),
                format!("{difference:.1e}"),
            ]);
        }
        write!(f, "{table}")?;
        let outside = self.first_outside.as_ref();
        match outside.and_then(|weight| self.gradients.iter().find(|row| row.weight == *weight)) {
            Some(GradientRow { weight, element, expected, found, difference, .. }) => writeln!(
                f,
                "first outside the bound {bound:.1e} in backward order: {weight} at element {element}: \
                 expected {expected:.7e}, found {found:.7e}, relative error {difference:.1e}"
            )?,
            None => writeln!(f, "all within a relative error of {bound:.1e}")?,
        }
        match &self.other_bits {
            Some(what) => writeln!(f, "the repeated step has different bits, first in {what}")?,
            None => writeln!(f, "the repeated step has the same bits")?,
        }
        writeln!(f, "{}", if self.passed { "passed" } else { "FAILED" })
    }
}
