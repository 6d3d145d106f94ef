//! `explain --train`: what the cards exchange in a step of training, why, and what hides it.
//!
//! Input → output: a configuration, a recipe and a mesh → the programs of a step as `train` compiles them, walked on the
//! planner's clock → a row a collective. A collective is hidden while an operator of its card runs beside it; the rest of it is
//! exposed. It opens no weights and no card.

use std::collections::BTreeMap;
use std::fmt::Write;

use ascend_tp::base::{Diagnostics, Id};
use ascend_tp::collective::{Exchange, exchanges};
use ascend_tp::placement::Placed;
use ascend_tp::program::OpId;
use ascend_tp::schedule::plan::{Action, StreamKind};
use ascend_tp::schedule::{Plan, schedule};
use ascend_tp::train::program::Part;
use ascend_tp::train::{Lowered, lower};
use ascend_tp_planner::simulate::{Issue, Simulator, Span};
use serde::Serialize;

use super::fold::class_of;
use super::report::Collective;
use crate::arguments::ExplainOptions;
use crate::failure::{Failure, Outcome};
use crate::numbers::{counted, decimal_bytes, grouped};
use crate::site::Site;
use crate::table::{Align, Table};
use crate::train::StepOptions;
use crate::values::PrecisionName;
use crate::{model, print, print_json};

/// A step of training.
#[derive(Debug, Serialize)]
struct Report {
    model: String,
    cards: usize,
    mesh: String,
    /// Sequences of a step.
    global_batch: usize,
    /// Sequences of a micro-batch, over all cards.
    sequences: usize,
    /// Micro-batches of a step.
    micro_batches: usize,
    /// The chip whose clock it is.
    chip: &'static str,
    /// The slowest card's step, in microseconds.
    step_us: f64,
    collectives: Vec<Timed>,
}

/// One collective of the program of a micro-batch. Times are of the slowest card.
#[derive(Debug, Serialize)]
struct Timed {
    #[serde(flatten)]
    collective: Collective,
    dtype: &'static str,
    /// Whose program it is of: `only`, `first`, `middle`, `last`; or `update`.
    micro_batch: &'static str,
    /// How often a step has it.
    times: usize,
    /// How long it runs, from the arrival of the last card on.
    us: f64,
    /// The part of that in which an operator of the card runs.
    hidden_us: f64,
    /// The op whose operators run beside it longest.
    beside: Option<String>,
}

/// Runs the command.
pub(super) fn run(options: &ExplainOptions) -> Result<Outcome, Failure> {
    let (name, config) = model::config(&options.model)?;
    let mut problems = Diagnostics::new();
    let dtype = options.dtype.map(PrecisionName::of_training).transpose();
    let dtype = dtype.map_err(|problem| problems.push(problem)).ok().flatten();
    let step = options.step.resolve(options.layout.residual(), options.cards, dtype, &mut problems);
    let Some((recipe, layout)) = problems.into_result(step)? else { return Ok(Outcome::Done) };
    StepOptions::check_is_one_stage("explain --train", &layout).map_err(Diagnostics::from)?;
    let Lowered { parts, .. } = lower(&config, &recipe, &layout)?;
    let micro_batches = layout.micro_batches(&recipe);
    let site = Site::default();
    let cards: Vec<usize> = (0..layout.cards()).collect();
    let mut report = Report {
        model: name,
        cards: cards.len(),
        mesh: layout.mesh(&config)?.to_string(),
        global_batch: recipe.global_batch,
        sequences: layout.batch(),
        micro_batches,
        chip: site.profile.soc.name(),
        step_us: 0.0,
        collectives: Vec::new(),
    };
    let is_scaled = parts.iter().any(|(part, _)| *part == Part::Update);
    for (part, lowered) in &parts {
        let plans = schedule(lowered)?;
        let run = Simulator::new(&site.profile, &site.topology, &plans, &cards).run(Issue::Eager);
        let slowest = (0..plans.len()).max_by(|a, b| run.ranks[*a].duration_us.total_cmp(&run.ranks[*b].duration_us));
        let Some(rank) = slowest else { continue };
        let times =
            Part::of_step(micro_batches, is_scaled, recipe.order()).into_iter().filter(|other| other == part).count();
        report.step_us += run.ranks[rank].duration_us * times as f64;
        report.collectives.extend(collectives(lowered, &plans[rank], &run.ranks[rank].spans, *part, times));
    }
    if options.json {
        print_json(&report)?;
    } else {
        print(&render(&report))?;
    }
    Ok(Outcome::Done)
}

fn collectives(lowered: &Placed, plan: &Plan, spans: &[Option<Span>], part: Part, times: usize) -> Vec<Timed> {
    let mut timed: BTreeMap<OpId, (f64, f64, Option<OpId>)> = BTreeMap::new();
    for at in (0..spans.len()).filter(|at| matches!(plan.steps[*at].action, Action::Exchange(_))) {
        let Some(span) = spans[at] else { continue };
        let (us, hidden_us, by) = beside(plan, spans, span);
        // A sum as a tree is two exchanges.
        let (all, hidden, first) = timed.entry(plan.steps[at].op).or_default();
        (*all, *hidden, *first) = (*all + us, *hidden + hidden_us, first.or(by));
    }
    let row = |exchange: Exchange| {
        // A card that has no part of a tensor takes no part in moving it.
        let (us, hidden_us, beside) = timed.get(&exchange.op).copied().unwrap_or_default();
        let operand = lowered.program.ops[exchange.op].operands[0];
        Timed {
            dtype: lowered.program.values[operand].dtype.name(),
            micro_batch: match part {
                Part::Only => "only",
                Part::First => "first",
                Part::Middle => "middle",
                Part::Join { .. } => "join",
                Part::Last => "last",
                Part::Update => "update",
            },
            times,
            us,
            hidden_us,
            beside: beside.map(|op| format!("{} of {}", plan.notes[op].kind, plan.notes[op].value)),
            collective: exchange.into(),
        }
    };
    exchanges(lowered).into_iter().map(row).collect()
}

/// How long an exchange runs, how long beside operators, and beside whose the longest.
fn beside(plan: &Plan, spans: &[Option<Span>], exchange: Span) -> (f64, f64, Option<OpId>) {
    let mut by_op: BTreeMap<OpId, f64> = BTreeMap::new();
    for (step, span) in plan.steps.iter().zip(spans).filter(|(step, _)| step.stream == StreamKind::Compute) {
        let Some(span) = span else { continue };
        let both_us = span.end_us.min(exchange.end_us) - span.start_us.max(exchange.start_us);
        if both_us > 0.0 {
            *by_op.entry(step.op).or_default() += both_us;
        }
    }
    let longest = by_op.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(op, _)| *op);
    let named = longest.filter(|op| op.index() < plan.notes.len());
    (exchange.end_us - exchange.start_us, by_op.values().sum(), named)
}

/// Alike collectives of alike layers and of all micro-batches.
struct Row<'a> {
    first: &'a Timed,
    times: usize,
    us: f64,
    hidden_us: f64,
    /// By class of the op that runs beside: for how long.
    beside: BTreeMap<String, f64>,
}

fn rows(report: &Report) -> Vec<Row<'_>> {
    let mut places: BTreeMap<_, usize> = BTreeMap::new();
    let mut rows: Vec<Row<'_>> = Vec::new();
    for found in &report.collectives {
        let Collective { op, value, tensors, axes, bytes, reason, .. } = &found.collective;
        let class = (op, class_of(value), tensors, axes, bytes, found.dtype, class_of(reason));
        let place = *places.entry(class).or_insert(rows.len());
        if place == rows.len() {
            rows.push(Row { first: found, times: 0, us: 0.0, hidden_us: 0.0, beside: BTreeMap::new() });
        }
        let (row, times) = (&mut rows[place], found.times as f64);
        row.times += found.times;
        row.us += times * found.us;
        row.hidden_us += times * found.hidden_us;
        if let Some(op) = &found.beside {
            *row.beside.entry(class_of(op)).or_default() += times * found.hidden_us;
        }
    }
    rows
}

fn render(report: &Report) -> String {
    let mut text = String::new();
    let Report { model, mesh, global_batch, sequences, chip, step_us, .. } = report;
    let _ = writeln!(
        text,
        "{model} on {}, {mesh}: {} a step, {} of {}",
        counted(report.cards, "card"),
        counted(*global_batch, "sequence"),
        counted(report.micro_batches, "micro-batch"),
        counted(*sequences, "sequence"),
    );
    let rows = rows(report);
    if rows.is_empty() {
        text.push_str("no collective: one card holds everything\n");
        return text;
    }
    let mut table = Table::new([
        ("a step", Align::Right),
        ("op", Align::Left),
        ("axis", Align::Left),
        ("cards", Align::Right),
        ("bytes each", Align::Right),
        ("type", Align::Left),
        ("of", Align::Left),
        ("us each", Align::Right),
        ("hidden", Align::Left),
        ("why", Align::Left),
    ]);
    for row in &rows {
        let share = if row.us > 0.0 { 100.0 * row.hidden_us / row.us } else { 0.0 };
        let longest = row.beside.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let hidden = match longest.filter(|_| share >= 0.5) {
            Some((op, _)) => format!("{share:.0} % by {op}"),
            None => "exposed".to_owned(),
        };
        let of = &row.first.collective;
        table.row([
            format!("{} x", row.times),
            of.op.to_owned(),
            of.axes.clone(),
            of.group.to_string(),
            grouped(of.bytes),
            row.first.dtype.to_owned(),
            match of.tensors {
                1 => class_of(&of.value),
                tensors => format!("{} and {} more", class_of(&of.value), tensors - 1),
            },
            format!("{:.1}", row.us / row.times.max(1) as f64),
            hidden,
            class_of(&of.reason),
        ]);
    }
    let _ = writeln!(text, "\nCollectives of one step\n{table}");
    let sum = |of: fn(&Row<'_>) -> f64| rows.iter().map(of).sum::<f64>();
    let (all_us, hidden_us) = (sum(|row| row.us), sum(|row| row.hidden_us));
    let bytes: u64 = rows.iter().map(|row| row.times as u64 * row.first.collective.bytes).sum();
    let _ = writeln!(
        text,
        "{} in {} take {all_us:.0} us of a step of {step_us:.0} us on the clock of an {chip}; {hidden_us:.0} us of them are hidden, \
         {:.0} us exposed.",
        decimal_bytes(bytes),
        counted(rows.iter().map(|row| row.times).sum(), "collective"),
        all_us - hidden_us,
    );
    text
}
