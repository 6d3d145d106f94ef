//! `rehearse`: simulates a model on emulated cards with a virtual clock.
//!
//! - Input: a configuration, a chip, a topology and sizes.
//! - Output: a report as [`text`] or JSON, a Perfetto trace (`--trace`), a page (`--html`). All
//!   problems of the arguments are reported together, before compilation.

mod serving;
mod text;
mod train;

use ascend_tp::base::Diagnostics;
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::Launching;
use ascend_tp_planner::rehearse::{self, Error, Rehearsal, Setting, html};

use super::arguments::RehearseOptions;
use super::cards;
use super::failure::{Failure, Outcome};
use super::site::{Site, keep};
use super::values::PlannedPrecision;
use super::{files, model, note, print_json, print_report};

pub(super) fn run(options: &RehearseOptions) -> Result<Outcome, Failure> {
    // Check output files before the work, not after it.
    let mut problems = Diagnostics::new();
    for (option, path) in [("--trace", &options.trace), ("--html", &options.html)] {
        path.iter()
            .filter_map(|path| files::check(option, path).err())
            .for_each(|problem| problems.push(problem));
    }
    if options.train {
        return train::run(options, problems);
    }
    if options.serving.serve {
        return serving::run(options, problems);
    }
    let setting = setting(options, problems)?;
    let rehearsal = Rehearsal::run(&setting)?;
    if let Some(path) = &options.trace {
        files::write("--trace", path, |out| rehearsal.write_trace(out))?;
    }
    if let Some(path) = &options.html {
        files::write("--html", path, |out| out.write_all(html::page(&rehearsal).as_bytes()))?;
    }
    say_written(options);
    let report = rehearsal.report();
    if options.json {
        print_json(&report)?;
    } else {
        print_report(&text::render(&report))?;
    }
    Ok(Outcome::Done)
}

fn say_written(options: &RehearseOptions) {
    for path in [&options.trace, &options.html].into_iter().flatten() {
        note(&format!("wrote {}", path.display()));
    }
}

fn setting(options: &RehearseOptions, mut problems: Diagnostics) -> Result<Setting, Diagnostics> {
    let named = options.model.name();
    let model = keep(model::config(named), &mut problems);
    let Site { profile, topology } = keep(options.site.resolve(), &mut problems).unwrap_or_default();
    let kernels = keep(cards::kernels(true), &mut problems).unwrap_or_default();
    let divided = keep(options.step.serving("rehearse", options.cards, &["pp=", "tp="]), &mut problems);
    // Without a valid model, check the sizes with a substitute model so that all problems are
    // reported at once.
    let any = || {
        Some((
            named.to_owned(),
            ModelConfig { max_positions: usize::MAX, ..ModelConfig::preset("qwen-72b")? },
        ))
    };
    let Some((name, config)) = model.or_else(any) else { return Err(problems) };
    let planned = PlannedPrecision::of(options.dtype, config.clone());
    let own = config.dtype.into();
    let (config, precision) = keep(planned, &mut problems).unwrap_or((config, own));
    let precision = precision.with_kv(options.caches.kv());
    let setting = Setting {
        name,
        site: rehearse::Site { cards: options.cards, servers: options.servers, profile, topology, kernels },
        stages: divided.map_or(1, |(stages, _)| stages),
        batch: options.batch,
        input: options.input,
        output: options.output,
        precision,
        residual: options.layout.residual(),
        experts: options.layout.experts(),
        launching: if options.captured { Launching::Captured } else { Launching::Eager },
        model: config,
    };
    if let Err(found) = setting.check() {
        problems.append(found);
    }
    problems.into_result(setting)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(problems) => problems.into(),
            Error::Compile(error) => error.into(),
            Error::Run(ascend_tp::exec::Error::Refused(problems)) => problems.into(),
            Error::Machine(error) => Self::Input(error.into()),
            error => Self::Run(error.into()),
        }
    }
}
