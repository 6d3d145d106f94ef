//! `plan`: finds and explains the best split of some cards. Weights and cards are not opened.

mod options;
mod report;
mod text;
mod train;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::device::Communicator;
use ascend_tp_planner::serve::{Found, ServingRequest};

use super::failure::{Failure, Outcome};
use super::site::keep;
use super::values::PlannedPrecision;
use super::{model, print_json, print_report};
pub(super) use options::{EXAMPLES, PlanOptions};
use report::{Explanation, PlanReport};
pub(super) use train::fits_nowhere;

pub(super) fn run(options: &PlanOptions) -> Result<Outcome, Failure> {
    let mut problems = Diagnostics::new();
    // The command line requires both values.
    let named = options.name();
    let cards = options.cards;
    let model = keep(model::config(named), &mut problems);
    let site = keep(options.site.resolve(), &mut problems);
    if options.top == 0 {
        problems.push(Diagnostic::new("--top", "no splits to show").expected("at least 1").found(0));
    }
    let (Some((name, config)), Some(site)) = (model, site) else { return Err(problems.into()) };
    if options.train {
        problems.into_result(())?;
        return train::run(&name, &config, cards, site, options);
    }
    let serving = &options.serving;
    let planned = PlannedPrecision::of(options.dtype, config);
    let Some((config, precision)) = keep(planned, &mut problems) else { return Err(problems.into()) };
    let precision = precision.with_kv(options.caches.kv());
    let request = ServingRequest {
        config: &config,
        precision,
        profile: &site.profile,
        topology: &site.topology,
        cards,
        batch: serving.batch,
        input_tokens: serving.input,
        output_tokens: serving.output,
        objective: serving.objective.into(),
        max_token_us: serving.max_tpot_ms.map(|limit| limit * 1e3),
        max_first_token_us: serving.max_ttft_ms.map(|limit| limit * 1e3),
        communicator: Communicator::buffer_bytes(),
    };
    keep(request.check(), &mut problems);
    problems.into_result(())?;
    if let Some(wanted) = &options.why {
        let found = survey(&request, wanted)?;
        let explanation = Explanation::new(&request, &found, wanted)?;
        if options.json {
            print_json(&explanation)?;
        } else {
            print_report(&text::explanation(&name, &request, &explanation))?;
        }
        return Ok(Outcome::Done);
    }
    let found = request.search()?;
    let report = PlanReport::new(&request, &found, options.top);
    if options.json {
        print_json(&report)?;
    } else {
        print_report(&text::report(&name, &request, &report))?;
    }
    Ok(Outcome::Done)
}

/// Returns all splits, also of a requested replica size that does not divide the cards.
fn survey(request: &ServingRequest<'_>, wanted: &str) -> Result<Found, Diagnostics> {
    let asked = wanted.split([',', ' ']).find_map(|entry| entry.strip_prefix("tp=")?.parse::<usize>().ok());
    let mut survey = request.survey()?;
    if let Some(cards) =
        asked.filter(|cards| *cards == 0 || !request.cards.is_multiple_of(*cards) || *cards > 64)
    {
        let more = request.explore(cards)?;
        survey.feasible.extend(more.feasible);
        survey.grids.extend(more.grids);
        survey.refused.extend(more.refused);
    }
    Ok(survey)
}
