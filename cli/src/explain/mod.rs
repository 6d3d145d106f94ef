//! `explain`: shows the placement of each weight, the collectives and their reasons, and the memory
//! of each card.
//!
//! Everything comes from the compiled program and its plans. No formula of a model is repeated
//! here, and no weights or cards are opened. [`train`] explains a training step.

mod compile;
mod fold;
mod report;
mod text;
mod train;

use std::path::Path;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::placement::{self, Residual};
use ascend_tp::program;

use super::arguments::ExplainOptions;
use super::failure::{Failure, Outcome};
use super::values::{MOST_PLANNED_CARDS, PlannedPrecision};
use super::{files, model, note, print_json, print_report};
use compile::{ExplainRequest, ExplainedProgram};
use report::ExplainReport;

pub(super) fn run(options: &ExplainOptions) -> Result<Outcome, Failure> {
    if options.train {
        return train::run(options);
    }
    check(options)?;
    let (name, config) = model::config(options.model.name())?;
    let (config, precision) = PlannedPrecision::of(options.dtype, config)?;
    let precision = precision.with_kv(options.caches.kv());
    let request = ExplainRequest::new(&config, precision, options)?;
    let programs = request.compile()?;
    if let Some(folder) = &options.dump {
        dump(&programs.shown, folder)?;
    }
    if options.sequence == 1 && options.layout.residual() == Residual::Seq {
        note(
            "a decode step has one token per sequence, so its residual stream is replicated; use --sequence to explain a prefill",
        );
    }
    let report = ExplainReport::new(&name, &config, &request, &programs);
    if options.json {
        print_json(&report)?;
    } else {
        print_report(&text::render(&report))?;
    }
    Ok(Outcome::Done)
}

/// Refuses what only `--train` takes.
fn check(options: &ExplainOptions) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    if options.cards > MOST_PLANNED_CARDS {
        let problem = Diagnostic::new("--cards", "too many cards without --train");
        problems.push(problem.expected(format!("1 to {MOST_PLANNED_CARDS} cards")).found(options.cards));
    }
    if !options.site.words().is_empty() {
        let problem = Diagnostic::new("explain", "options of the hardware are given without --train");
        problems.push(problem.found(options.site.words().join(" ")).help("add --train"));
    }
    problems.into_result(())
}

/// Writes each stage as a text file: the program, with reshards, with collectives, and the plan of
/// each rank.
fn dump(compiled: &ExplainedProgram, folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| refused(folder, &error))?;
    let split = &compiled.split;
    let mut stages = vec![
        ("program".to_owned(), program::text::print(&compiled.program)),
        ("resharded".to_owned(), placement::print(&split.resharded)),
        ("lowered".to_owned(), placement::print(&split.lowered)),
    ];
    stages.extend(compiled.plans.iter().map(|plan| (format!("plan-rank-{}", plan.rank), plan.to_string())));
    let digits = stages.len().to_string().len().max(2);
    for (index, (stage, text)) in stages.iter().enumerate() {
        let path = folder.join(format!("{:0digits$}-{stage}.txt", index + 1));
        files::write("--dump", &path, |out| out.write_all(text.as_bytes()))?;
    }
    note(&format!("wrote {} files to {}", stages.len(), folder.display()));
    Ok(())
}

fn refused(path: &Path, error: &std::io::Error) -> Failure {
    Diagnostics::from(
        Diagnostic::new(format!("--dump: {}", path.display()), "cannot be written").found(error),
    )
    .into()
}
