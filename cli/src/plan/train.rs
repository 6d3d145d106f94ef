//! `plan --train`: the best splits of a training job, their cost, and the reasons against other
//! choices. `planner::train` computes all figures; this module computes shares.

use std::fmt::Write;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::config::ModelConfig;
use ascend_tp::program::compress::Compression;
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::{Layout, Recipe, check};
use ascend_tp_machine::{Profile, Topology};
use ascend_tp_planner::decoder::Decoder;
use ascend_tp_planner::error_bar::{ErrorBar, PredictedTime};
use ascend_tp_planner::table::{Align, Table};
use ascend_tp_planner::train::compress::Summed;
use ascend_tp_planner::train::grid::{self, LayerOn};
use ascend_tp_planner::train::job::Job;
use ascend_tp_planner::train::layer::Terms;
use ascend_tp_planner::train::ring::{self, KeysOn};
use ascend_tp_planner::train::search::{
    FILLED, PredictedSplit, Search, SearchVerdict, SplitChoice, slower_by, usable_bytes,
};
use ascend_tp_planner::train::setting::JobSplit;
use ascend_tp_planner::train::simulated::{self, SHORTLIST, TrainingSite};
use serde::Serialize;

use super::options::PlanOptions;
use crate::cards;
use crate::failure::{Failure, Outcome};
use crate::numbers::{counted, grouped, in_billions};
use crate::site::Site;
use crate::train::mesh_words;
use crate::{print_json, print_report, terminal};

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1024.0 * MIB;

pub(super) fn run(
    model: &str,
    config: &ModelConfig,
    cards: usize,
    site: Site,
    options: &PlanOptions,
) -> Result<Outcome, Failure> {
    let training = &options.training;
    if let Some(tokens) = training.tokens.filter(|tokens| !tokens.is_finite() || *tokens <= 0.0) {
        let problem =
            Diagnostic::new("--tokens", "invalid number").expected("a number above 0").found(tokens);
        return Err(Diagnostics::from(problem).into());
    }
    let report = TrainPlanReport::new(&PlanRequest {
        model,
        config,
        cards,
        profile: site.profile,
        topology: site.topology,
        // The command line requires both values.
        sequence: training.seq.unwrap_or(0),
        global_batch: training.global_batch.unwrap_or(0),
        tokens: training.tokens,
        top: options.top,
        why: options.why.as_deref(),
        named: options.name(),
        site: options.site.words(),
    })?;
    if options.json {
        print_json(&report)?;
    } else {
        print_report(&render(&report))?;
    }
    Ok(Outcome::Done)
}

#[derive(Debug)]
struct PlanRequest<'a> {
    model: &'a str,
    config: &'a ModelConfig,
    cards: usize,
    profile: Profile,
    topology: Topology,
    sequence: usize,
    global_batch: usize,
    /// Tokens of the whole run, to predict its duration.
    tokens: Option<f64>,
    top: usize,
    /// Setting to explain, such as `tp=16,pp=2`.
    why: Option<&'a str>,
    /// The model as it was given.
    named: &'a str,
    /// Options of the site.
    site: Vec<String>,
}

impl PlanRequest<'_> {
    /// Returns settings by the simulated times of the programs of `train`, or `None` if these are
    /// much work to compile.
    fn simulated(
        &self,
        search: &Search<'_>,
        estimated: &[PredictedSplit],
        count: usize,
    ) -> Result<Option<Vec<PredictedSplit>>, Diagnostics> {
        let kernels = cards::kernels(false)?.kernels();
        let site = TrainingSite { profile: &self.profile, topology: &self.topology, kernels };
        let job = |split: &PredictedSplit| self.job(&split.setting);
        if !simulated::is_little_work(self.config, estimated, count, job) {
            return Ok(None);
        }
        // `train` refuses some splits, such as stages without a micro-batch each.
        let is_trained = |split: &JobSplit| {
            self.job(split).is_some_and(|(recipe, layout)| check(self.config, &recipe, &layout).is_ok())
        };
        let candidates = search.best_of(count.max(SHORTLIST), is_trained);
        Ok(simulated::rank(self.config, &candidates, count, site, job))
    }

    /// Returns the recipe and the layout of `train` with a split, if it has such a layout.
    fn job(&self, split: &JobSplit) -> Option<(Recipe, Layout)> {
        let (seq, global_batch) = (self.sequence, self.global_batch);
        let recipe = Recipe { seq, global_batch, pipeline: split.schedule, ..Recipe::default() };
        Some((Recipe { precision: TrainingPrecision::Bf16, ..recipe }, split.layout()?))
    }

    /// Returns the command that explains the step of our programs with a split. `None` if `train`
    /// has no such split.
    fn command(&self, split: &JobSplit) -> Option<String> {
        let layout = split.layout()?;
        let mut words = vec![
            format!("ascend-tp explain {} --train --dtype bf16 --cards {}", self.named, self.cards),
            mesh_words(&layout),
            format!("--global-batch {} --seq {}", self.global_batch, self.sequence),
            format!("--zero {} --recompute {}", split.zero.stage(), split.recompute),
        ];
        if layout.stages > 1 {
            words.push(format!("--pipeline {}", split.schedule));
        }
        if split.sequence_parallel {
            words.push("--residual seq".to_owned());
        }
        words.extend(self.site.iter().cloned());
        Some(words.join(" "))
    }
}

#[derive(Debug, Serialize)]
struct TrainPlanReport {
    model: String,
    parameters: u64,
    layers: usize,
    has_experts: bool,
    card: &'static str,
    cards: usize,
    topology: String,
    sequence: usize,
    global_batch: usize,
    /// Splits that divide the job; then the splits that fit a card.
    considered: usize,
    fitting: usize,
    /// Memory of a card; then the part for splits.
    offered_gib: f64,
    usable_gib: f64,
    error_bar: ErrorBar,
    ranked_by: RankedBy,
    best: Vec<SettingLine>,
    /// Gradient sums of the best setting, if it has replicas.
    gradients: Vec<GradientSum>,
    /// Two-axis layer of the explained or best setting.
    grid: Option<GridLine>,
    /// KV exchange of the same setting.
    keys: Option<KeysLine>,
    run: Option<WholeRun>,
    losers: Vec<LosingChoice>,
    why: Option<LosingChoice>,
}

/// Source of the times of the best settings. Reasons against other choices compare estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum RankedBy {
    /// The programs of `train` on the clock, as `explain --train` shows them.
    Simulation,
    /// The planner's formulas, because the programs are much work to compile.
    Estimate,
}

impl RankedBy {
    const fn text(self) -> &'static str {
        match self {
            Self::Simulation => "simulated programs of `train`",
            Self::Estimate => "estimates; `explain --train` simulates the programs",
        }
    }
}

#[derive(Debug, Serialize)]
struct SettingLine {
    setting: String,
    /// Command that explains the step of our programs with this split. `None` if `train` has no
    /// such split.
    command: Option<String>,
    step_s: f64,
    tokens_per_s_and_card: f64,
    mfu_percent: f64,
    hfu_percent: f64,
    card_gib: f64,
    /// Seconds of a step by term.
    seconds: Vec<(&'static str, f64)>,
    /// Memory of the fullest card by kind.
    gib: Vec<(&'static str, f64)>,
}

/// Cost of one method of summing gradients, once per step without overlap.
#[derive(Debug, Serialize)]
struct GradientSum {
    how: String,
    sent_gib: f64,
    exchange_s: f64,
    operators_s: f64,
    /// Whether `train` accepts the method.
    taken: bool,
    /// Whether a compressed sum is faster.
    pays: Option<bool>,
}

/// Best two-axis mesh compared with one axis, for a layer and micro-batch of `train`.
#[derive(Debug, Serialize)]
struct GridLine {
    mesh: String,
    layer_ms: f64,
    exposed_ms: f64,
    line: String,
    line_ms: f64,
    line_exposed_ms: f64,
    pays: bool,
}

/// Gathered keys and values compared with ring attention, for a layer and micro-batch of `train`.
#[derive(Debug, Serialize)]
struct KeysLine {
    cards: usize,
    gathered_ms: f64,
    gathered_exposed_ms: f64,
    ring_ms: f64,
    ring_exposed_ms: f64,
    /// Additional activation memory of gathering, per layer.
    kept_mib: f64,
    /// Size of the mask columns, which the ring stores twice.
    mask_mib: f64,
    pays: bool,
}

/// Duration of the run with the best setting.
#[derive(Debug, Serialize)]
struct WholeRun {
    flops_per_parameter: f64,
    tokens: f64,
    parameters: f64,
    cards: f64,
    achieved_tflops: f64,
    days: f64,
}

/// Another choice, and the reason against it.
#[derive(Debug, Serialize)]
struct LosingChoice {
    choice: String,
    best: Option<SettingLine>,
    /// Smallest setting, if none fits.
    smallest: Option<String>,
    reason: String,
}

impl TrainPlanReport {
    fn new(request: &PlanRequest<'_>) -> Result<Self, Diagnostics> {
        Decoder::check(request.config)?;
        let choice = request.why.map(|text| SplitChoice::parse("--why", text)).transpose()?;
        let job = job(request, request.cards);
        let search = Search::new(&job)?;
        if let Some(problem) = fits_nowhere("--cards", &job, &search) {
            return Err(problem.help(nearest(request)).into());
        }
        let count = request.top.max(1);
        let estimated = search.best(count.max(SHORTLIST));
        let ranked = request.simulated(&search, &estimated, count)?;
        let ranked_by = if ranked.is_some() { RankedBy::Simulation } else { RankedBy::Estimate };
        let best = ranked.unwrap_or_else(|| estimated.iter().copied().take(count).collect());
        // A setting fits, so a best setting exists.
        let Some(winner) = best.first().copied() else { return Err(Diagnostics::new()) };
        // Other choices have estimates only.
        let estimate = estimated.iter().find(|split| split.setting == winner.setting);
        let estimate = estimate.copied().unwrap_or(winner);
        let loser =
            |choice: SplitChoice, verdict| LosingChoice::new(request, &job, &estimate, &choice, verdict);
        let why = choice.map(|choice| {
            let verdict = search.why(&choice);
            (choice, verdict)
        });
        let shown = match &why {
            Some((_, SearchVerdict::Fits(found))) => found.setting,
            _ => winner.setting,
        };
        Ok(Self {
            model: request.model.to_owned(),
            parameters: job.decoder.parameters() as u64,
            layers: job.decoder.layers,
            has_experts: job.decoder.experts.is_some(),
            card: job.profile.soc.name(),
            cards: job.cards,
            topology: job.topology.name.clone(),
            sequence: job.sequence,
            global_batch: job.global_batch,
            considered: search.considered(),
            fitting: search.fitting(),
            offered_gib: job.profile.hbm_usable_bytes() as f64 / GIB,
            usable_gib: usable_bytes(&job) / GIB,
            error_bar: ErrorBar::of(PredictedTime::Training, job.profile.soc),
            ranked_by,
            run: request.tokens.map(|tokens| WholeRun::new(&job, &winner, tokens)),
            losers: search
                .losers(&winner.setting)
                .into_iter()
                .map(|(choice, verdict)| loser(choice, verdict))
                .collect(),
            gradients: sums(&job, &winner),
            grid: grid(request.config, &job, &shown)?,
            keys: keys(request.config, &job, &shown)?,
            why: why.map(|(choice, verdict)| loser(choice, verdict)),
            best: best.iter().map(|found| SettingLine::new(request, found)).collect(),
        })
    }
}

/// Returns a problem if the job fits on no split.
pub(crate) fn fits_nowhere(place: &str, job: &Job, search: &Search<'_>) -> Option<Diagnostic> {
    let (setting, memory) = search.smallest()?;
    let sum: Vec<String> =
        memory.kinds().into_iter().map(|(kind, bytes)| format!("{kind} {:.1}", bytes / GIB)).collect();
    let usable = usable_bytes(job) / GIB;
    let problem = Diagnostic::new(place, "the job fits on no split of these cards");
    let problem = problem
        .expected(format!("at most {usable:.1} GiB per card, {:.0} % of the usable memory", 100.0 * FILLED));
    Some(problem.found(format!("{:.1} GiB with {setting} ({} GiB)", memory.total() / GIB, sum.join(" + "))))
}

fn job(request: &PlanRequest<'_>, cards: usize) -> Job {
    let (profile, topology) = (request.profile.clone(), request.topology.clone());
    Job::new(request.config, request.sequence, request.global_batch, cards, profile, topology)
}

/// Top-k share in the report.
const TOP: Compression = Compression::TopK { share: 0.01 };

fn sums(job: &Job, winner: &PredictedSplit) -> Vec<GradientSum> {
    let all = Summed::all(job, &winner.setting, &[Compression::OneBit, TOP]);
    let Some(whole_us) = all.first().map(Summed::total_us) else { return Vec::new() };
    let sum = |summed: &Summed| GradientSum {
        how: summed.by.map_or_else(|| "whole, f32".to_owned(), |by| by.to_string()),
        sent_gib: summed.sent_bytes / GIB,
        exchange_s: summed.exchange_us / 1e6,
        operators_s: summed.operators_us / 1e6,
        taken: summed.is_taken,
        pays: summed.by.map(|_| summed.is_taken && summed.total_us() < whole_us),
    };
    all.iter().map(sum).collect()
}

fn grid(config: &ModelConfig, job: &Job, setting: &JobSplit) -> Result<Option<GridLine>, Diagnostics> {
    let layers = grid::layers(config, job, setting)?;
    let of_both = |layers: Vec<LayerOn>| {
        let [line, best, ..] = layers.as_slice() else { return None };
        Some(GridLine {
            mesh: best.axes(),
            layer_ms: best.layer_us / 1e3,
            exposed_ms: best.exposed_us / 1e3,
            line: line.axes(),
            line_ms: line.layer_us / 1e3,
            line_exposed_ms: line.exposed_us / 1e3,
            pays: best.layer_us < line.layer_us,
        })
    };
    Ok(layers.and_then(of_both))
}

fn keys(config: &ModelConfig, job: &Job, setting: &JobSplit) -> Result<Option<KeysLine>, Diagnostics> {
    let found = ring::keys(config, job, setting)?;
    Ok(found.map(|KeysOn { cards, gathered, ring, kept_bytes, mask_bytes }| KeysLine {
        cards,
        gathered_ms: gathered.layer_us / 1e3,
        gathered_exposed_ms: gathered.exposed_us / 1e3,
        ring_ms: ring.layer_us / 1e3,
        ring_exposed_ms: ring.exposed_us / 1e3,
        kept_mib: kept_bytes / MIB,
        mask_mib: mask_bytes / MIB,
        pays: ring.layer_us < gathered.layer_us,
    }))
}

/// Finds the smallest doubling of the cards that fits.
fn nearest(request: &PlanRequest<'_>) -> String {
    let more = std::iter::successors(Some(request.cards.max(1) * 2), |cards| cards.checked_mul(2));
    for cards in more.take_while(|cards| *cards <= request.topology.cards()) {
        let job = job(request, cards);
        if let Ok(search) = Search::new(&job)
            && let Some(found) = search.best(1).first()
        {
            return format!("it fits on {} cards: {}", grouped(cards as u64), found.setting);
        }
    }
    "no doubling of the cards within the topology fits; use a smaller batch or sequence".to_owned()
}

impl SettingLine {
    fn new(request: &PlanRequest<'_>, found: &PredictedSplit) -> Self {
        let PredictedSplit { setting, prediction } = found;
        let terms = prediction.terms.named().into_iter();
        let terms = terms.filter(|(name, us)| *name != Terms::EXPERTS || *us > 0.0);
        let simulated_us = prediction.terms.simulated_us;
        let simulation = (simulated_us != 0.0).then_some(("simulation", simulated_us));
        Self {
            setting: setting.to_string(),
            command: request.command(setting),
            step_s: prediction.step_us / 1e6,
            tokens_per_s_and_card: prediction.tokens_per_s_and_card,
            mfu_percent: 100.0 * prediction.mfu,
            hfu_percent: 100.0 * prediction.hfu,
            card_gib: prediction.memory.total() / GIB,
            seconds: terms.chain(simulation).map(|(name, us)| (name, us / 1e6)).collect(),
            gib: prediction.memory.kinds().into_iter().map(|(kind, bytes)| (kind, bytes / GIB)).collect(),
        }
    }

    fn percent(&self, term: &str) -> f64 {
        self.seconds
            .iter()
            .filter(|(name, _)| *name == term)
            .map(|(_, seconds)| 100.0 * seconds / self.step_s)
            .sum()
    }
}

impl WholeRun {
    fn new(job: &Job, winner: &PredictedSplit, tokens: f64) -> Self {
        let run = winner.prediction.run(job, &winner.setting, tokens);
        Self {
            flops_per_parameter: run.flops_per_parameter,
            tokens,
            parameters: run.parameters,
            cards: run.cards,
            achieved_tflops: run.achieved_flops / 1e12,
            days: run.days(),
        }
    }
}

impl LosingChoice {
    fn new(
        request: &PlanRequest<'_>,
        job: &Job,
        winner: &PredictedSplit,
        choice: &SplitChoice,
        verdict: SearchVerdict,
    ) -> Self {
        let choice = choice.to_string();
        match verdict {
            SearchVerdict::Fits(found) if *found == *winner => Self {
                choice,
                best: Some(SettingLine::new(request, &found)),
                smallest: None,
                reason: "is the best".to_owned(),
            },
            SearchVerdict::Fits(found) => {
                let slower_s = (found.prediction.step_us - winner.prediction.step_us) / 1e6;
                let terms = slower_by(&winner.prediction, &found.prediction);
                let causes: Vec<String> = terms
                    .iter()
                    .take(2)
                    .filter(|(_, us)| *us / 1e6 > 0.05 * slower_s && *us > 0.0)
                    .map(|(name, us)| format!("{name} +{:.3} s", us / 1e6))
                    .collect();
                let reason = if slower_s < 0.0 {
                    let faster_s = -slower_s;
                    format!(
                        "estimated faster by {faster_s:.3} s; its programs are slower or were not simulated"
                    )
                } else if causes.is_empty() {
                    "equally fast; listed later".to_owned()
                } else {
                    format!("slower by {slower_s:.3} s: {}", causes.join(", "))
                };
                Self { choice, best: Some(SettingLine::new(request, &found)), smallest: None, reason }
            }
            SearchVerdict::TooBig(setting, memory) => {
                let (kind, bytes) =
                    memory.kinds().into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("", 0.0));
                let reason = format!(
                    "does not fit: {:.1} GiB of {:.1}, {kind} alone {:.1}",
                    memory.total() / GIB,
                    usable_bytes(job) / GIB,
                    bytes / GIB
                );
                Self { choice, best: None, smallest: Some(setting.to_string()), reason }
            }
            SearchVerdict::Impossible(reason) => Self { choice, best: None, smallest: None, reason },
        }
    }
}

fn render(report: &TrainPlanReport) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}: {}, {} parameters, trained on {} {} of {}, {} sequences of {} a step",
        report.model,
        counted(report.layers, "layer"),
        in_billions(report.parameters),
        grouped(report.cards as u64),
        report.card,
        report.topology,
        grouped(report.global_batch as u64),
        counted(report.sequence, "token"),
    );
    let _ = writeln!(
        text,
        "{} divide the job; {} fit in {:.1} GiB per card ({:.0} % of {:.1})",
        counted(report.considered, "split"),
        grouped(report.fitting as u64),
        report.usable_gib,
        100.0 * report.usable_gib / report.offered_gib,
        report.offered_gib,
    );
    let _ = writeln!(text, "Times are predictions: {}", report.error_bar);
    let _ = writeln!(
        text,
        "\nBest settings (fastest for each tp, pp{} and schedule; {})\n{}",
        if report.has_experts { ", ep" } else { "" },
        report.ranked_by.text(),
        best(&report.best)
    );
    if let Some(winner) = report.best.first() {
        let _ = writeln!(text, "Step time and memory of the best setting\n{}", account(winner));
        if let Some(command) = &winner.command {
            let _ = writeln!(text, "The step of our programs with this setting: {command}\n");
        }
    }
    if !report.gradients.is_empty() {
        let _ = writeln!(
            text,
            "Gradient sums of the best setting, once per step without overlap (`train --compress` requires --zero 0)\n{}",
            gradients(&report.gradients)
        );
    }
    if let Some(grid) = &report.grid {
        let GridLine { mesh, layer_ms, exposed_ms, line, line_ms, line_exposed_ms, pays } = grid;
        let _ = writeln!(
            text,
            "Sharding weights over two axes is {}: a layer and micro-batch of `train --mesh {mesh}` takes {layer_ms:.2} ms \
             ({exposed_ms:.2} ms exposed); with {line} {line_ms:.2} ms ({line_exposed_ms:.2} ms exposed): {:+.1} %\n",
            if *pays { "faster" } else { "not faster" },
            100.0 * (layer_ms / line_ms - 1.0),
        );
    }
    if let Some(keys) = &report.keys {
        let _ = writeln!(text, "{}\n", keys_text(keys));
    }
    if let Some(run) = &report.run {
        let _ = writeln!(text, "{}\n", days(run, report.best.first()));
    }
    if let Some(why) = &report.why {
        let _ = writeln!(text, "Why not {}: {}", why.choice, why.reason);
        if let Some(line) = &why.best {
            let _ = writeln!(text, "best setting: {}\n{}", line.setting, account(line));
        }
        if let Some(smallest) = &why.smallest {
            let _ = writeln!(text, "smallest setting: {smallest}");
        }
        return text;
    }
    let _ = writeln!(
        text,
        "Other choices (best setting with each other value; use --why to explain one in full)\n{}",
        losers(report)
    );
    text
}

fn keys_text(keys: &KeysLine) -> String {
    let KeysLine {
        cards,
        gathered_ms,
        gathered_exposed_ms,
        ring_ms,
        ring_exposed_ms,
        kept_mib,
        mask_mib,
        pays,
    } = keys;
    format!(
        "Ring attention is {}: a layer and micro-batch of `train --mesh cp={cards},… --ring` takes {ring_ms:.2} ms \
         ({ring_exposed_ms:.2} ms exposed); with gathered keys and values {gathered_ms:.2} ms \
         ({gathered_exposed_ms:.2} ms exposed): {:+.1} %; the ring stores {kept_mib:.0} MiB less per layer, and \
         {mask_mib:.0} MiB more for the mask",
        if *pays { "faster" } else { "not faster" },
        100.0 * (ring_ms / gathered_ms - 1.0),
    )
}

fn best(lines: &[SettingLine]) -> Table {
    let mut table = terminal::table([
        ("", Align::Right),
        ("step", Align::Right),
        ("tokens/s/card", Align::Right),
        ("MFU", Align::Right),
        ("HFU", Align::Right),
        ("GiB", Align::Right),
        ("exposed", Align::Right),
        ("bubble", Align::Right),
        ("setting", Align::Left),
    ])
    .optional(["HFU", "bubble", "tokens/s/card"]);
    for (index, line) in lines.iter().enumerate() {
        let exposed: f64 = ["tensor exchange", "context exchange", Terms::EXPERTS, "copies' exchange"]
            .into_iter()
            .map(|term| line.percent(term))
            .sum();
        table.row([
            (index + 1).to_string(),
            format!("{:.3} s", line.step_s),
            format!("{:.0}", line.tokens_per_s_and_card),
            format!("{:.1} %", line.mfu_percent),
            format!("{:.1} %", line.hfu_percent),
            format!("{:.1}", line.card_gib),
            format!("{exposed:.1} %"),
            format!("{:.1} %", line.percent("bubble")),
            line.setting.clone(),
        ]);
    }
    table
}

fn gradients(sums: &[GradientSum]) -> Table {
    let mut table = terminal::table([
        ("sum", Align::Left),
        ("sent per card", Align::Right),
        ("exchange", Align::Right),
        ("operators", Align::Right),
        ("", Align::Left),
    ]);
    for sum in sums {
        table.row([
            sum.how.clone(),
            format!("{:.3} GiB", sum.sent_gib),
            format!("{:.1} ms", 1e3 * sum.exchange_s),
            format!("{:.1} ms", 1e3 * sum.operators_s),
            match (sum.taken, sum.pays) {
                (false, _) => "refused: sends more than the whole sum",
                (_, Some(true)) => "faster",
                (_, Some(false)) => "not faster",
                (_, None) => "",
            }
            .to_owned(),
        ]);
    }
    table
}

/// Formats seconds by term next to memory by kind.
fn account(line: &SettingLine) -> Table {
    let mut table = terminal::table([
        ("step time", Align::Left),
        ("s", Align::Right),
        ("%", Align::Right),
        ("memory", Align::Left),
        ("GiB", Align::Right),
        ("%", Align::Right),
    ]);
    let rows = line.seconds.len().max(line.gib.len());
    let cells = |of: &[(&'static str, f64)], index: usize, whole: f64| match of.get(index) {
        Some((name, value)) => {
            [(*name).to_owned(), format!("{value:.3}"), format!("{:.1}", 100.0 * value / whole)]
        }
        None => [String::new(), String::new(), String::new()],
    };
    for index in 0..rows {
        let [term, seconds, of_step] = cells(&line.seconds, index, line.step_s);
        let [kind, gib, of_card] = cells(&line.gib, index, line.card_gib);
        table.row([term, seconds, of_step, kind, gib, of_card]);
    }
    table
}

fn days(run: &WholeRun, winner: Option<&SettingLine>) -> String {
    let utilisation = winner.map_or_else(String::new, |line| {
        format!("; MFU {:.1} %, HFU {:.1} %", line.mfu_percent, line.hfu_percent)
    });
    format!(
        "Days of a run = {} · tokens · parameters / (cards · achieved FLOP/s) = {} · {:.3e} · {:.3e} / ({} · {:.1}e12) = \
         {:.1} days ({} operations per parameter and token: 8 with recomputation, 6 without){utilisation}",
        run.flops_per_parameter,
        run.flops_per_parameter,
        run.tokens,
        run.parameters,
        run.cards,
        run.achieved_tflops,
        run.days,
        run.flops_per_parameter,
    )
}

fn losers(report: &TrainPlanReport) -> Table {
    let mut table = terminal::table([
        ("choice", Align::Left),
        ("step", Align::Right),
        ("GiB", Align::Right),
        ("reason", Align::Left),
    ]);
    for loser in &report.losers {
        let (step, gib) = loser.best.as_ref().map_or_else(
            || ("-".to_owned(), "-".to_owned()),
            |line| (format!("{:.3} s", line.step_s), format!("{:.1}", line.card_gib)),
        );
        table.row([loser.choice.clone(), step, gib, loser.reason.clone()]);
    }
    table
}
