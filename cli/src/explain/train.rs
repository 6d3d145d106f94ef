//! `explain --train`: shows the collectives of a training step, their reasons, and the operators
//! that hide them.
//!
//! - The programs of `train` are simulated with the planner's clock. No weights or cards are
//!   opened.
//! - A collective is hidden while an operator of the same card runs in parallel. The remaining time
//!   is exposed.
//! - For exposed time, the report names the cause of the late start and the waiting consumer.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use ascend_tp::base::{Diagnostics, Id};
use ascend_tp::collective::exchanges;
use ascend_tp::config::ModelConfig;
use ascend_tp::program::OpId;
use ascend_tp::schedule::plan::{Action, CollectiveKind, Launched, Step, StreamKind};
use ascend_tp::schedule::{Plan, Target};
use ascend_tp::train::program::StepPart;
use ascend_tp::train::stages::PIPELINE;
use ascend_tp::train::{Layout, Recipe, StepProgram, compile, lower, memory};
use ascend_tp_planner::simulate::{Awaited, Limit, SimulatedSpan, exposed, least_us};
use ascend_tp_planner::table::{Align, Table};
use ascend_tp_planner::train::simulated::{self, SimulatedProgram, TrainingSite};
use serde::Serialize;

use super::fold::class_of;
use super::report::CollectiveReport;
use crate::arguments::ExplainOptions;
use crate::cards;
use crate::failure::{Failure, Outcome};
use crate::numbers::{counted, decimal_bytes, grouped};
use crate::train::StepContext;
use crate::values::PlannedPrecision;
use crate::{model, print_json, print_report, terminal};

#[derive(Debug, Serialize)]
struct TrainExplanation {
    model: String,
    cards: usize,
    mesh: String,
    global_batch: usize,
    /// Number of sequences per micro-batch, over all cards.
    sequences: usize,
    micro_batches: usize,
    chip: &'static str,
    /// Step time of the slowest card, in microseconds.
    step_us: f64,
    /// Lower bound for any order of the same operators and exchanges on a card, and its exposed
    /// time. In a pipeline, the bound of the stage with the largest bound.
    least: BestStep,
    /// For each pipeline stage, the fraction of the step without an operator on the slowest card.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    idle: Vec<f64>,
    /// Memory of a card, if every sum has a fixed order.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<TrainMemory>,
    /// Operators of a middle layer on one card, in all micro-batches.
    launches: LaunchCounts,
    collectives: Vec<TimedExchange>,
    exposed: Vec<ExposedWait>,
}

/// Lower bound of a step over all orders, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct BestStep {
    step_us: f64,
    exposed_us: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ExposedWait {
    of: String,
    /// Exposed time per step, in microseconds.
    us: f64,
    behind: String,
    awaited: String,
}

impl TrainExplanation {
    /// Adds the exposed time of a run that a step repeats `times` times. `seen` has one card of
    /// each stage.
    fn add_exposed(&mut self, seen: &[Seen<'_>], times: usize) {
        seen.iter().for_each(|seen| seen.add_waits(times, &mut self.exposed));
        self.exposed.sort_by(|a, b| b.us.total_cmp(&a.us));
        let of_stages = seen.iter().map(|seen| (least_us(seen.plan, seen.spans), seen.busy_us()));
        if let Some((step_us, busy_us)) = of_stages.max_by(|(a, _), (b, _)| a.total_cmp(b)) {
            self.least.step_us += step_us * times as f64;
            self.least.exposed_us += (step_us - busy_us) * times as f64;
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct LaunchCounts {
    layer: usize,
    /// Launches, each of one or more ops.
    count: usize,
    /// Launches if no ops shared one.
    alone: usize,
}

impl LaunchCounts {
    fn of(plan: &Plan, layer: usize) -> Self {
        let mut others: BTreeMap<OpId, usize> = BTreeMap::new();
        for note in plan.notes.values() {
            if let Launched::With(first) = note.launch {
                *others.entry(first).or_default() += 1;
            }
        }
        let (mut count, mut alone, mut before) = (0, 0, None);
        for step in plan.steps.iter().filter(|step| matches!(step.action, Action::Launch(_))) {
            let is_of_layer = |op: OpId| op.index() < plan.notes.len() && plan.notes[op].layer == Some(layer);
            if is_of_layer(step.op) {
                count += 1;
                alone +=
                    1 + others.get(&step.op).filter(|_| before != Some(step.op)).copied().unwrap_or_default();
            }
            before = Some(step.op);
        }
        Self { layer, count, alone }
    }

    fn add(&mut self, of: Self, times: usize) {
        self.count += of.count * times;
        self.alone += of.alone * times;
    }
}

impl fmt::Display for LaunchCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, count, alone } = self;
        write!(f, "layer {layer} has {count} launches per card and step, {alone} if no ops shared launches")
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
struct TrainMemory {
    /// Bytes with a fixed order of sums.
    exact: u64,
    /// Bytes of the same run with the usual order of sums.
    usual: u64,
}

impl fmt::Display for TrainMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [exact, usual] = [self.exact, self.usual].map(decimal_bytes);
        write!(f, "{exact} with a fixed order of sums, {usual} without")
    }
}

/// One collective in the program of a micro-batch, or one transfer of a pipeline.
///
/// Times are means over the step, on the slowest card of the stage.
#[derive(Debug, Serialize)]
struct TimedExchange {
    #[serde(flatten)]
    collective: CollectiveReport,
    dtype: &'static str,
    /// Part of the step that contains the collective: `only`, `first`, `middle`, `join`, `last`,
    /// `last, compressed` or `update`; `all` for transfers between stages.
    micro_batch: &'static str,
    times: usize,
    /// Duration after the last card has arrived, in microseconds.
    us: f64,
    /// Part of the duration that operators of the card hide, in microseconds.
    hidden_us: f64,
    /// The op with the longest parallel time.
    beside: Option<String>,
    /// The fused call of a matrix product that contains the collective.
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'static str>,
    /// The reason why the collective is not fused with its matrix product.
    #[serde(skip_serializing_if = "Option::is_none")]
    apart: Option<String>,
}

/// Returns the memory with and without a fixed order of sums, or None if the order is not fixed.
fn price_of_exactness(
    config: &ModelConfig,
    recipe: &Recipe,
    layout: &Layout,
) -> Result<Option<TrainMemory>, Diagnostics> {
    if !recipe.exact {
        return Ok(None);
    }
    let held = |recipe: &Recipe| -> Result<u64, Diagnostics> {
        Ok(memory::wanted(&compile(config, recipe, layout, Target::ANY)?)
            .iter()
            .map(|(_, bytes)| bytes.0)
            .sum())
    };
    Ok(Some(TrainMemory { exact: held(recipe)?, usual: held(&Recipe { exact: false, ..recipe.clone() })? }))
}

pub(super) fn run(options: &ExplainOptions) -> Result<Outcome, Failure> {
    let (name, config) = model::config(options.model.name())?;
    let mut problems = Diagnostics::new();
    let dtype = options.dtype.map(PlannedPrecision::of_training).transpose();
    let dtype = dtype.map_err(|problem| problems.push(problem)).ok().flatten();
    let site = options.site.resolve()?;
    let (cards, residual) = (options.cards, options.layout.residual());
    let experts = options.layout.experts();
    let on = StepContext { cards, residual, experts, model: Some(&config), site: Some(&site) };
    let step = options.step.resolve(on, dtype, &mut problems);
    let Some((recipe, layout)) = problems.into_result(step)? else { return Ok(Outcome::Done) };
    let lowered = lower(&config, &recipe, &layout)?;
    let micro_batches = layout.micro_batches(&recipe);
    let memory = price_of_exactness(&config, &recipe, &layout)?;
    let cards: Vec<usize> = (0..layout.cards()).collect();
    let mut report = TrainExplanation {
        model: name,
        cards: cards.len(),
        mesh: layout.mesh(&config)?.to_string(),
        global_batch: recipe.global_batch,
        sequences: layout.batch(),
        micro_batches,
        chip: site.profile.soc.name(),
        step_us: 0.0,
        least: BestStep::default(),
        idle: Vec::new(),
        memory,
        launches: LaunchCounts { layer: config.layers / 2, ..LaunchCounts::default() },
        collectives: Vec::new(),
        exposed: Vec::new(),
    };
    let kernels = cards::kernels(false)?.kernels();
    let mut busy_us = vec![0.0; layout.stages];
    let on = TrainingSite { profile: &site.profile, topology: &site.topology, kernels };
    for program in simulated::programs(&lowered, &recipe, &layout, on)? {
        report.step_us += program.step_us();
        let SimulatedProgram { program: run, times, plans, run: simulated, slowest } = program;
        let seen: Vec<Seen<'_>> = slowest
            .iter()
            .map(|rank| Seen { plan: &plans[*rank], spans: &simulated.ranks[*rank].spans })
            .collect();
        let launches = seen.iter().map(|seen| LaunchCounts::of(seen.plan, report.launches.layer));
        launches.max_by_key(|of| of.count).into_iter().for_each(|of| report.launches.add(of, times));
        for (busy_us, seen) in busy_us.iter_mut().zip(&seen) {
            *busy_us += seen.busy_us() * times as f64;
        }
        report.collectives.extend(collectives(&run, &seen, times));
        report.add_exposed(&seen, times);
    }
    if layout.stages > 1 {
        report.idle = busy_us.iter().map(|busy_us| 1.0 - busy_us / report.step_us).collect();
    }
    if options.json {
        print_json(&report)?;
    } else {
        print_report(&render(&report))?;
    }
    Ok(Outcome::Done)
}

struct Seen<'a> {
    plan: &'a Plan,
    /// Spans by step of the plan; None for records and waits.
    spans: &'a [Option<SimulatedSpan>],
}

#[derive(Clone, Copy, Default)]
struct OpExchanges {
    times: usize,
    us: f64,
    hidden_us: f64,
    beside: Option<OpId>,
    call: Option<&'static str>,
}

impl Seen<'_> {
    /// Returns the operators of the compute stream, which runs one after the other.
    fn computed(&self) -> impl Iterator<Item = (OpId, SimulatedSpan)> + '_ {
        let steps = self.plan.steps.iter().zip(self.spans);
        let computed = steps.filter(|(step, _)| step.stream == StreamKind::Compute);
        computed.filter_map(|(step, span)| Some((step.op, (*span)?)))
    }

    fn busy_us(&self) -> f64 {
        self.computed().map(|(_, span)| span.end_us - span.start_us).sum()
    }

    /// Returns the collectives or the transfers of the card, by op.
    fn exchanged(&self, is_wanted: impl Fn(&CollectiveKind) -> bool) -> BTreeMap<OpId, OpExchanges> {
        let mut exchanges: BTreeMap<OpId, OpExchanges> = BTreeMap::new();
        let computed: Vec<(OpId, SimulatedSpan)> = self.computed().collect();
        for (step, span) in self.plan.steps.iter().zip(self.spans) {
            let (Action::Exchange(exchange), Some(span)) = (&step.action, span) else { continue };
            if is_wanted(&exchange.kind) {
                let (us, hidden_us, beside) = beside(self.plan, &computed, *span);
                let op = exchanges.entry(step.op).or_default();
                (op.times, op.us, op.hidden_us) = (op.times + 1, op.us + us, op.hidden_us + hidden_us);
                op.beside = op.beside.or(beside);
                op.call = op.call.or(exchange.product.as_ref().map(|call| call.name()));
            }
        }
        exchanges
    }

    fn name(&self, op: OpId) -> String {
        format!("{} of {}", self.plan.notes[op].kind, self.plan.notes[op].value)
    }

    /// Adds the exposed exchanges of `times` runs. Equal exchanges of equal layers are added
    /// together.
    fn add_waits(&self, times: usize, all: &mut Vec<ExposedWait>) {
        let name = |step: usize| {
            let note = &self.plan.notes[self.plan.steps[step].op];
            format!("{} of {}", note.kind, class_of(&note.value))
        };
        for wait in exposed(self.plan, self.spans) {
            let behind = match wait.limit {
                Limit::Links => "the previous exchange".to_owned(),
                Limit::Made(by) => format!("{}, which produces it", name(by)),
                Limit::Memory(by) => format!("{}, which used its memory before", name(by)),
                Limit::Issue => "its launch, or another card".to_owned(),
            };
            let awaited = match wait.awaited {
                Some((by, Awaited::Value)) => format!("{}, which needs it", name(by)),
                Some((by, Awaited::Memory)) => format!("{}, which reuses its memory", name(by)),
                None => "later exchanges, or the end".to_owned(),
            };
            let of = name(wait.step);
            let us = wait.us * times as f64;
            let known = all
                .iter_mut()
                .find(|known| (&known.of, &known.behind, &known.awaited) == (&of, &behind, &awaited));
            match known {
                Some(known) => known.us += us,
                None => all.push(ExposedWait { of, us, behind, awaited }),
            }
        }
    }
}

/// Returns the collectives of a run that a step repeats `times` times, in program order, and then
/// the transfers between stages. `seen` has one card of each stage.
fn collectives(run: &StepProgram<'_>, seen: &[Seen<'_>], times: usize) -> Vec<TimedExchange> {
    let timed: Vec<_> = seen.iter().map(|seen| seen.exchanged(|kind| !kind.is_of_two())).collect();
    let mut reports = Vec::new();
    let mut first_note = 0;
    for (number, (part, staged)) in run.programs.iter().enumerate() {
        let lowered = staged.placed;
        let micro_batches = run.micro_batches.iter().filter(|of| **of == number).count();
        for exchange in exchanges(lowered) {
            let note = OpId::from_index(first_note + exchange.op.index());
            let of_stage = seen.iter().zip(&timed).find_map(|(seen, timed)| Some((seen, timed.get(&note)?)));
            // A card without a shard of a tensor takes no part in its exchange.
            let none = OpExchanges::default();
            let (seen, of) = of_stage.unwrap_or((&seen[0], &none));
            // A sum in a fixed order and a compressed sum consist of several exchanges.
            let of = &OpExchanges { times: of.times.clamp(1, micro_batches), ..*of };
            let operand = lowered.program.ops[exchange.op].operands[0];
            let dtype = lowered.program.values[operand].dtype.name();
            reports.push(seen.timed(of, times, dtype, micro_batch(*part), exchange.into(), seen.apart(note)));
        }
        first_note += lowered.program.ops.len();
    }
    for (stage, own) in seen.iter().enumerate() {
        let sends = own.exchanged(|kind| matches!(kind, CollectiveKind::Send { .. }));
        reports.extend(sends.iter().filter_map(|(op, of)| own.sent(*op, of, times, stage)));
    }
    reports
}

const fn micro_batch(part: StepPart) -> &'static str {
    match part {
        StepPart::Only => "only",
        StepPart::First => "first",
        StepPart::Middle => "middle",
        StepPart::Join { .. } => "join",
        StepPart::Last => "last",
        StepPart::Compressed => "last, compressed",
        StepPart::Update => "update",
    }
}

impl Seen<'_> {
    fn timed(
        &self,
        of: &OpExchanges,
        runs: usize,
        dtype: &'static str,
        micro_batch: &'static str,
        collective: CollectiveReport,
        apart: Option<String>,
    ) -> TimedExchange {
        let count = of.times as f64;
        TimedExchange {
            collective,
            dtype,
            micro_batch,
            times: runs * of.times,
            us: of.us / count,
            hidden_us: of.hidden_us / count,
            beside: of.beside.map(|op| self.name(op)),
            call: of.call,
            apart,
        }
    }

    fn apart(&self, exchange: OpId) -> Option<String> {
        match &self.plan.notes[exchange].launch {
            Launched::Apart(reason) => Some(reason.clone()),
            _ => None,
        }
    }

    fn sent(&self, op: OpId, of: &OpExchanges, runs: usize, stage: usize) -> Option<TimedExchange> {
        let is_own = |step: &&Step| step.op == op;
        let (to, sent) = self.plan.steps.iter().filter(is_own).find_map(|step| match &step.action {
            Action::Exchange(exchange) => match exchange.kind {
                CollectiveKind::Send { to } => Some((to, &exchange.send)),
                _ => None,
            },
            _ => None,
        })?;
        let note = &self.plan.notes[op];
        let collective = CollectiveReport {
            op: "send",
            layer: note.layer,
            axes: PIPELINE.to_owned(),
            group: 2,
            value: note.value.clone(),
            tensors: 1,
            bytes: (sent.elems() * sent.dtype.size_bytes()) as u64,
            reason: format!("stage {stage} produces it, stage {to} reads it"),
        };
        Some(self.timed(of, runs, sent.dtype.name(), "all", collective, None))
    }
}

/// Returns the duration of an exchange, the time in parallel with operators, and the op with the
/// longest parallel time. `computed` has the spans of the compute stream in its order.
fn beside(
    plan: &Plan,
    computed: &[(OpId, SimulatedSpan)],
    exchange: SimulatedSpan,
) -> (f64, f64, Option<OpId>) {
    let mut by_op: BTreeMap<OpId, f64> = BTreeMap::new();
    let first = computed.partition_point(|(_, span)| span.end_us <= exchange.start_us);
    let parallel = computed[first..].iter().take_while(|(_, span)| span.start_us < exchange.end_us);
    for (op, span) in parallel {
        let both_us = span.end_us.min(exchange.end_us) - span.start_us.max(exchange.start_us);
        *by_op.entry(*op).or_default() += both_us.max(0.0);
    }
    let longest = by_op.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(op, _)| *op);
    let named = longest.filter(|op| op.index() < plan.notes.len());
    (exchange.end_us - exchange.start_us, by_op.values().sum(), named)
}

/// Equal collectives of equal layers and of all micro-batches.
struct CollectivesRow<'a> {
    first: &'a TimedExchange,
    times: usize,
    us: f64,
    hidden_us: f64,
    /// Parallel time of the operators that hide the collective, by class of op.
    beside: BTreeMap<String, f64>,
}

fn rows(report: &TrainExplanation) -> Vec<CollectivesRow<'_>> {
    let mut places: BTreeMap<_, usize> = BTreeMap::new();
    let mut rows: Vec<CollectivesRow<'_>> = Vec::new();
    for timed in &report.collectives {
        let CollectiveReport { op, value, tensors, axes, bytes, reason, .. } = &timed.collective;
        let class = (
            op,
            class_of(value),
            tensors,
            axes,
            bytes,
            timed.dtype,
            class_of(reason),
            timed.call,
            &timed.apart,
        );
        let place = *places.entry(class).or_insert(rows.len());
        if place == rows.len() {
            rows.push(CollectivesRow {
                first: timed,
                times: 0,
                us: 0.0,
                hidden_us: 0.0,
                beside: BTreeMap::new(),
            });
        }
        let (row, times) = (&mut rows[place], timed.times as f64);
        row.times += timed.times;
        row.us += times * timed.us;
        row.hidden_us += times * timed.hidden_us;
        if let Some(op) = &timed.beside {
            *row.beside.entry(class_of(op)).or_default() += times * timed.hidden_us;
        }
    }
    rows
}

fn render(report: &TrainExplanation) -> String {
    let mut text = String::new();
    let TrainExplanation { model, mesh, global_batch, sequences, chip, step_us, .. } = report;
    let _ = writeln!(
        text,
        "{model} on {}, {mesh}: {} per step, {} of {}",
        counted(report.cards, "card"),
        counted(*global_batch, "sequence"),
        counted(report.micro_batches, "micro-batch"),
        counted(*sequences, "sequence"),
    );
    text.extend(report.memory.map(|memory| format!("a card holds {memory}\n")));
    let _ = writeln!(text, "{}", report.launches);
    let rows = rows(report);
    if rows.is_empty() {
        text.push_str("no collective: one card holds everything\n");
        return text;
    }
    let _ = writeln!(text, "\nCollectives of one step\n{}", table(&rows));
    let sum = |of: fn(&CollectivesRow<'_>) -> f64| rows.iter().map(of).sum::<f64>();
    let (all_us, hidden_us) = (sum(|row| row.us), sum(|row| row.hidden_us));
    let bytes: u64 = rows.iter().map(|row| row.times as u64 * row.first.collective.bytes).sum();
    let _ = writeln!(
        text,
        "{} in {} take {all_us:.0} us of a step of {step_us:.0} us on the clock of an {chip}; {hidden_us:.0} us are hidden, \
         {:.0} us exposed.",
        decimal_bytes(bytes),
        counted(rows.iter().map(|row| row.times).sum(), "collective"),
        all_us - hidden_us,
    );
    let BestStep { step_us: least_us, exposed_us } = report.least;
    let of_stages = if report.idle.is_empty() { "" } else { ", if no stage waits for another" };
    let _ = writeln!(
        text,
        "Lower bound over all orders of these operators and collectives: {least_us:.0} us, with {exposed_us:.0} us exposed{of_stages}."
    );
    text.push_str(&waits(report));
    text.push_str(&apart(&rows));
    if !report.idle.is_empty() {
        let idle: Vec<String> = report.idle.iter().map(|idle| format!("{:.1} %", 100.0 * idle)).collect();
        let _ = writeln!(text, "Idle time by stage: {} of the step.", idle.join(", "));
    }
    text
}

fn table(rows: &[CollectivesRow<'_>]) -> Table {
    let mut table = terminal::table([
        ("count", Align::Right),
        ("op", Align::Left),
        ("axis", Align::Left),
        ("cards", Align::Right),
        ("bytes each", Align::Right),
        ("type", Align::Left),
        ("of", Align::Left),
        ("us each", Align::Right),
        ("hidden", Align::Left),
        ("reason", Align::Left),
    ])
    .optional(["type", "cards", "axis"]);
    for row in rows {
        let share = if row.us > 0.0 { 100.0 * row.hidden_us / row.us } else { 0.0 };
        let longest = row.beside.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let hidden = match (row.first.call, longest.filter(|_| share >= 0.5)) {
            (Some(call), _) => format!("in {call}"),
            (None, Some((op, _))) => format!("{share:.0} % by {op}"),
            (None, None) => "exposed".to_owned(),
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
    table
}

/// Returns the table of exchanges that are not fused with their matrix product, with the reasons.
fn apart(rows: &[CollectivesRow<'_>]) -> String {
    let mut table =
        terminal::table([("count", Align::Right), ("collective", Align::Left), ("reason", Align::Left)]);
    for row in rows {
        let Some(reason) = &row.first.apart else { continue };
        let CollectiveReport { op, value, .. } = &row.first.collective;
        table.row([format!("{} x", row.times), format!("{op} of {}", class_of(value)), reason.clone()]);
    }
    if table.is_empty() {
        String::new()
    } else {
        format!("\nCollectives not fused with a matrix product\n{table}\n")
    }
}

/// Maximum number of kinds of exposed exchanges in the report.
const WAITS_SHOWN: usize = 8;

fn waits(report: &TrainExplanation) -> String {
    let mut table = terminal::table([
        ("us/step", Align::Right),
        ("exposed", Align::Left),
        ("starts after", Align::Left),
        ("needed by", Align::Left),
    ]);
    let shown = report.exposed.iter().filter(|waited| waited.us >= 0.5).take(WAITS_SHOWN);
    for ExposedWait { of, us, behind, awaited } in shown {
        table.row([format!("{us:.0}"), of.clone(), behind.clone(), awaited.clone()]);
    }
    if table.is_empty() {
        String::new()
    } else {
        format!("\nExposed communication, longest first\n{table}\n")
    }
}
