//! `bench`: measures this machine and the workloads on it, each figure next to its limit.
//!
//! Several processes measure together under a launcher or with `--processes`. Only the first one
//! prints.

mod all;
mod options;
mod page;
mod peers;
mod serve;
mod serve_http;
mod text;
mod train;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::measure::{
    Bench, BenchReport, Effort, Limits, MeasuredTable, MeasuringMachine, collectives, compile, exact,
    generation, host, load, operators, parameter_server, plot, scaling,
};
use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::world::ProcessGroup;

pub(super) use options::{BenchOptions, EXAMPLES};

use super::children;
use super::failure::{Failure, Outcome};
use super::processes::{Inputs, agree, join};
use super::{bind, cards, files, interrupt, print_json, print_report};
use options::{Baseline, BenchPart, BenchServeOptions, BenchTrainOptions};

/// Time that a rank waits for the cause after it failed because of another rank.
const GRACE: Duration = Duration::from_secs(1);

pub(super) fn run(options: &BenchOptions) -> Result<Outcome, Failure> {
    if let BenchPart::Beside(beside) = &options.part {
        return Err(children::run_beside(beside));
    }
    if let Some(outcome) = children::start_ranks(options.processes())? {
        return Ok(outcome);
    }
    let group = join()?;
    interrupt::end_at_once(&group);
    let done = run_in(options, &group);
    if let Err(failure) = &done {
        // If the cause arrives, its handler ends this process.
        if !is_consequence(failure) || group.failure_within(GRACE).is_none() {
            failure.for_peers().iter().for_each(|text| group.fail(text));
        }
    }
    done
}

fn is_consequence(failure: &Failure) -> bool {
    let Failure::Run(error) = failure else { return false };
    error.downcast_ref::<crate::measure::Error>().is_some_and(crate::measure::Error::is_consequence)
}

fn run_in(options: &BenchOptions, group: &Arc<ProcessGroup>) -> Result<Outcome, Failure> {
    let wanted = agree(group, Inputs::default(), options.check(group))?;
    bind::apply(&options.bind, group, wanted.max(1))?;
    let cards = cards::open_at_least(options.device, group, wanted)?;
    let effort = if options.quick { Effort::Quick } else { Effort::Full };
    let limits = limits(&cards, effort, group)?;
    let bench =
        Bench { cann: Arc::clone(&cards.cann), group: Arc::clone(group), limits: limits.clone(), effort };
    let output = BenchOutput {
        json: options.json,
        plot: options.plot.clone(),
        page: options.report.clone(),
        cards: cards.description.clone(),
        limits: limits.clone(),
    };
    let tables = match &options.part {
        // This process has been replaced by another program.
        BenchPart::Beside(_) => Vec::new(),
        BenchPart::Limits => vec![limits.table()],
        BenchPart::Collectives(asked) => vec![collectives::run(&bench, &asked.setting(options.quick))?],
        BenchPart::Ops(asked) => {
            let calls = operators::run(&bench, &asked.setting()?)?;
            if asked.products {
                vec![calls, operators::products(&bench, &operators::PRODUCTS)?]
            } else {
                vec![calls]
            }
        }
        BenchPart::Decode(asked) => vec![generation::run(&bench, &asked.setting()?)?.decode],
        BenchPart::Prefill(asked) => vec![generation::run(&bench, &asked.setting()?)?.prefill],
        BenchPart::Scaling => scaling::run(&bench)?,
        BenchPart::All => all::run(&bench)?,
        BenchPart::Peers | BenchPart::Serve(_) if !cards.is_emulated() => {
            let problem = Diagnostic::new("--device", "peers run on the processor of this host");
            return Err(Diagnostics::from(problem.expected("emulator").found(&cards.description)).into());
        }
        BenchPart::Peers => peers::run(&bench, &output)?,
        BenchPart::Serve(BenchServeOptions { http: true }) => serve_http::run(&bench)?,
        BenchPart::Serve(BenchServeOptions { http: false }) => serve::run(&bench)?,
        BenchPart::Train(BenchTrainOptions { baseline: Some(Baseline::Ps) }) => {
            vec![parameter_server::run(&bench)?]
        }
        BenchPart::Train(BenchTrainOptions { baseline: None }) => train::run(&bench, cards.is_emulated())?,
        BenchPart::Exact => vec![exact::run(&bench)?],
        BenchPart::Host(asked) => vec![host::run(&asked.setting()?, effort)?],
        BenchPart::Compile(asked) => vec![compile::run(&asked.settings()?, effort.budget())?],
        BenchPart::Load(asked) => vec![load::run(&bench, &asked.setting()?)?],
    };
    cards.check_reports()?;
    if !group.is_first() {
        return Ok(Outcome::Done);
    }
    output.show(tables)?;
    Ok(Outcome::Done)
}

#[derive(Clone, Debug)]
struct BenchOutput {
    json: bool,
    plot: Option<PathBuf>,
    page: Option<PathBuf>,
    cards: String,
    limits: Limits,
}

impl BenchOutput {
    fn show(&self, tables: Vec<MeasuredTable>) -> Result<(), Failure> {
        if let Some(path) = &self.plot {
            let drawn = tables.iter().find_map(plot::svg);
            let problem = || Diagnostics::from(Diagnostic::new("--plot", "this part has nothing to draw"));
            let svg = drawn.ok_or_else(problem)?;
            files::write("--plot", path, |out| out.write_all(svg.as_bytes()))?;
        }
        let machine = MeasuringMachine::here(&self.cards);
        let report = BenchReport { machine, limits: self.limits.clone(), tables };
        if let Some(path) = &self.page {
            page::write(&report, path)?;
        }
        if self.json { print_json(&report) } else { print_report(&text::render(&report)) }
    }
}

/// Returns the limits of the chip or of this host. The first of several processes measures the host
/// while the other processes wait.
fn limits(cards: &cards::Cards, effort: Effort, group: &ProcessGroup) -> Result<Limits, Failure> {
    let chip = cards.cann.soc_name().filter(|_| !cards.is_emulated()).and_then(|name| Limits::of_chip(&name));
    let mine = match chip {
        Some(limits) => limits,
        None if group.is_first() => Limits::of_host(effort.limits_budget()),
        None => Limits::default(),
    };
    let text = serde_json::to_vec(&mine).map_err(|error| Failure::Run(error.into()))?;
    let all = group.exchange("the limits", text).map_err(|error| Failure::Run(error.into()))?;
    serde_json::from_slice(&all[0]).map_err(|error| Failure::Run(error.into()))
}

impl From<crate::measure::Error> for Failure {
    fn from(error: crate::measure::Error) -> Self {
        use crate::measure::Error;
        match error {
            Error::Refused(problems) | Error::Run(ascend_tp::exec::Error::Refused(problems)) => {
                problems.into()
            }
            Error::Generate(error) => error.into(),
            Error::Train(error) => error.into(),
            error => Self::Run(error.into()),
        }
    }
}
