//! `rehearse --train`: simulates a training step on emulated cards. The report covers the programs
//! that `train` would run.

use ascend_tp::base::Diagnostics;
use ascend_tp_planner::rehearse::{self, html, train};

use super::text;
use crate::arguments::RehearseOptions;
use crate::cards;
use crate::failure::{Failure, Outcome};
use crate::site::{Site, keep};
use crate::train::StepContext;
use crate::values::PlannedPrecision;
use crate::{files, model, print_json, print_report};

/// Runs the command. `problems` contains earlier problems.
pub(super) fn run(options: &RehearseOptions, problems: Diagnostics) -> Result<Outcome, Failure> {
    let setting = setting(options, problems)?;
    let rehearsal = train::TrainingRehearsal::run(&setting)?;
    let report = rehearsal.report();
    if let Some(path) = &options.trace {
        files::write("--trace", path, |out| rehearsal.write_trace(out))?;
    }
    if let Some(path) = &options.html {
        files::write("--html", path, |out| {
            out.write_all(html::page_of_step(&rehearsal, &report).as_bytes())
        })?;
    }
    super::say_written(options);
    if options.json {
        print_json(&report)?;
    } else {
        print_report(&text::render_step(&report))?;
    }
    Ok(Outcome::Done)
}

fn setting(
    options: &RehearseOptions,
    mut problems: Diagnostics,
) -> Result<train::TrainingSetting, Diagnostics> {
    let model = keep(model::config(options.model.name()), &mut problems);
    let site = keep(options.site.resolve(), &mut problems);
    let dtype = options.dtype.map(PlannedPrecision::of_training).transpose();
    let dtype = dtype.map_err(|problem| problems.push(problem)).ok().flatten();
    let (cards, residual) = (options.cards, options.layout.residual());
    let experts = options.layout.experts();
    let on = StepContext {
        cards,
        residual,
        experts,
        model: model.as_ref().map(|(_, model)| model),
        site: site.as_ref(),
    };
    let step = options.step.resolve(on, dtype, &mut problems);
    let kernels = keep(cards::kernels(true), &mut problems).unwrap_or_default();
    let (Some((name, model)), Some(Site { profile, topology }), Some((recipe, layout))) = (model, site, step)
    else {
        return Err(problems);
    };
    let site = rehearse::Site { cards, servers: options.servers, profile, topology, kernels };
    let setting = train::TrainingSetting { name, model, recipe, layout, site };
    if let Err(found) = setting.check() {
        problems.append(found);
    }
    problems.into_result(setting)
}
