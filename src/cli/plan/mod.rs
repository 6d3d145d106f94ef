//! `plan`: which split of some cards is best, and why.
//!
//! Input → output: a configuration, cards and what is wanted → the best splits with reasons, what cannot run with its
//! constraint, or one split in full; as text or JSON. It opens no weights and no card.

mod options;
mod report;
mod text;
mod train;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::planner::fit_memory::COMMUNICATOR_BYTES;
use ascend_tp::planner::serve::{Found, Request};
use ascend_tp::planner::train::{forms, text as train_text};
use ascend_tp::planner::validate::Validation;
use ascend_tp_machine::{Problems, Profile, Soc, Topology};

use super::failure::{Failure, Outcome};
use super::{model, print, print_json};
pub(super) use options::{EXAMPLES, PlanOptions};
use options::{Site, as_file, own_topology};
use report::{Explanation, Report};

/// Runs the command.
pub(super) fn run(options: &PlanOptions) -> Result<Outcome, Failure> {
    if options.validate {
        return validate(options);
    }
    let mut problems = Diagnostics::new();
    // The command line asks for both.
    let (named, cards) = (options.model.as_deref().unwrap_or_default(), options.cards.unwrap_or_default());
    let model = keep(model::config(named), &mut problems);
    let site = keep(site(options), &mut problems);
    if options.top == 0 {
        problems.push(Diagnostic::new("--top", "nothing to show").expected("at least 1").found(0));
    }
    let (Some((name, config)), Some(site)) = (model, site) else { return Err(problems.into()) };
    if options.train {
        problems.into_result(())?;
        return train::run(&name, &config, cards, site, options);
    }
    let serving = &options.serving;
    let request = Request {
        config: &config,
        precision: options.dtype.map_or(config.dtype.into(), |name| name.of(config.dtype)),
        profile: &site.profile,
        topology: &site.topology,
        cards,
        batch: serving.batch,
        input_tokens: serving.input,
        output_tokens: serving.output,
        objective: serving.objective.into(),
        max_token_us: serving.max_tpot_ms.map(|limit| limit * 1e3),
        communicator: COMMUNICATOR_BYTES,
    };
    keep(request.check(), &mut problems);
    problems.into_result(())?;
    if let Some(wanted) = &options.why {
        let found = survey(&request, wanted)?;
        let explanation = Explanation::new(&request, &found, wanted)?;
        if options.json {
            print_json(&explanation)?;
        } else {
            print(&text::explanation(&name, &request, &explanation))?;
        }
        return Ok(Outcome::Done);
    }
    let found = request.search()?;
    let report = Report::new(&request, &found, options.top);
    if options.json {
        print_json(&report)?;
    } else {
        print(&text::report(&name, &request, &report))?;
    }
    Ok(Outcome::Done)
}

/// Runs `plan --validate`.
fn validate(options: &PlanOptions) -> Result<Outcome, Failure> {
    if options.json {
        return Err(Diagnostics::from(
            Diagnostic::new("--json", "the validation is a text")
                .help("leave --json out; docs/COSTS.md has the tables"),
        )
        .into());
    }
    let forms = train_text::forms_table(&forms::published());
    print(&format!("{}\nPublished closed forms of training\n{forms}", Validation::shipped()))?;
    Ok(Outcome::Done)
}

/// All splits, and those of a number of cards a replica that is asked for although it does not divide the cards.
fn survey(request: &Request<'_>, wanted: &str) -> Result<Found, Diagnostics> {
    let asked = wanted.split([',', ' ']).find_map(|entry| entry.strip_prefix("tp=")?.parse::<usize>().ok());
    let mut found = request.survey()?;
    if let Some(cards) = asked.filter(|cards| *cards == 0 || !request.cards.is_multiple_of(*cards) || *cards > 64) {
        let more = request.explore(cards)?;
        found.feasible.extend(more.feasible);
        found.refused.extend(more.refused);
    }
    Ok(found)
}

/// The profile and the topology that are named.
fn site(options: &PlanOptions) -> Result<Site, Diagnostics> {
    let mut problems = Diagnostics::new();
    let profile = keep(profile(options), &mut problems);
    let soc = profile.as_ref().map(|profile| profile.soc).unwrap_or_default();
    let topology = keep(topology(options.topology.as_deref().unwrap_or_else(|| own_topology(soc))), &mut problems);
    match (profile, topology) {
        (Some(profile), Some(topology)) => Ok(Site { profile, topology }),
        _ => Err(problems),
    }
}

/// The profile of a file or of a chip; if both are named they are of one chip.
fn profile(options: &PlanOptions) -> Result<Profile, Diagnostics> {
    let mut problems = Diagnostics::new();
    let named = options.card.as_deref();
    let soc = named.and_then(Soc::find);
    if let (Some(name), None) = (named, soc) {
        let known: Vec<&str> = Soc::ALL.into_iter().map(Soc::short_name).collect();
        let problem = Diagnostic::new("--card", "no such chip");
        problems.push(problem.expected(format!("one of {}", known.join(", "))).found(name));
    }
    let written = options.profile.as_deref().and_then(|path| {
        let place = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Diagnostic::new(format!("--profile: {place}"), "cannot be read").found(error).into());
        keep(text.and_then(|text| Profile::parse(&place, &text).map_err(located)), &mut problems)
    });
    if let (Some(soc), Some(written)) = (soc, &written)
        && soc != written.soc
    {
        let problem = Diagnostic::new("--card and --profile", "are of different chips");
        problems.push(problem.expected(soc).found(written.soc).help("leave --card out"));
    }
    problems.into_result(written.unwrap_or_else(|| Profile::of(soc.unwrap_or_default())))
}

fn topology(named: &str) -> Result<Topology, Diagnostics> {
    if let Some(topology) = Topology::preset(named) {
        return Ok(topology);
    }
    let Some(path) = as_file(named) else {
        return Err(Diagnostic::new("--topology", "neither a file nor a topology that ships")
            .expected(format!("a TOML file, or one of {}", Topology::PRESETS.join(", ")))
            .found(named)
            .into());
    };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Diagnostic::new(named.to_owned(), "cannot be read").found(error))?;
    Topology::parse(named, &text).map_err(located)
}

fn located(Problems(problems): Problems) -> Diagnostics {
    let mut found = Diagnostics::new();
    for problem in problems {
        found.push(Diagnostic::new(problem.place, problem.what).expected(problem.expected).found(problem.found));
    }
    found
}

/// The value, or its problems added to the others.
fn keep<T>(found: Result<T, Diagnostics>, problems: &mut Diagnostics) -> Option<T> {
    found.map_err(|found| problems.append(found)).ok()
}
