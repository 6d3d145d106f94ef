//! Memory estimate of a run, and options that reduce its memory.

use crate::base::{Bytes, Diagnostic};
use crate::config::ModelConfig;
use crate::exec::memory_wanted;
use crate::schedule::launch::largest_workspaces;

use crate::schedule::{Plan, Target};

use super::compile::{Compiled, Layout, compile};
use super::layouts::Zero;
use super::program::Recompute;
use super::recipe::Recipe;

/// Returns the bytes on the fullest card, by use. The operator workspace is an estimate until the
/// operators are prepared.
#[must_use]
pub fn wanted(compiled: &Compiled) -> Vec<(&'static str, Bytes)> {
    let programs: Vec<&[Plan]> = compiled.plans.iter().map(|(_, plans)| plans.as_slice()).collect();
    let ranks = programs.first().map_or(0, |plans| plans.len());
    let of_rank = (0..ranks).map(|rank| {
        let workspace = largest_workspaces(programs.iter().map(|plans| &plans[rank])).iter().sum::<usize>();
        let mut parts = memory_wanted(&programs, rank);
        parts.push(("workspace of operators", Bytes(workspace as u64)));
        parts
    });
    of_rank.max_by_key(|parts| total(parts)).unwrap_or_default()
}

fn total(parts: &[(&'static str, Bytes)]) -> Bytes {
    parts.iter().map(|(_, bytes)| *bytes).sum()
}

/// Returns a diagnostic if a run exceeds `free` bytes of a card. The help lists options that fit.
#[must_use]
pub fn problem(
    config: &ModelConfig,
    recipe: &Recipe,
    layout: &Layout,
    compiled: &Compiled,
    free: Bytes,
) -> Option<Diagnostic> {
    let parts = wanted(compiled);
    let found = total(&parts);
    if found <= free {
        return None;
    }
    let fits = |(options, layout): &(String, Layout)| {
        let bytes = total(&wanted(&compile(config, recipe, layout, Target::ANY).ok()?));
        (bytes <= free).then(|| format!("{options} ({bytes})"))
    };
    let all = alternatives(recipe, layout);
    let ways: Vec<String> = all.iter().filter_map(fits).collect();
    let help = match ways.as_slice() {
        [] => "no recomputation, ZeRO stage or micro-batch makes it fit: use more cards, a shorter seq or a 16-bit \
               --dtype"
            .to_owned(),
        ways => format!("it fits with {}", ways.join(", or ")),
    };
    let parts: Vec<String> = parts.iter().map(|(part, bytes)| format!("{part} {bytes}")).collect();
    let problem = Diagnostic::new("memory of a card", "the run does not fit");
    Some(
        problem
            .expected(format!("at most {free}"))
            .found(format!("{found}: {}", parts.join(", ")))
            .help(help),
    )
}

/// Returns layouts with less memory and their options. Each has one change, and the last has all
/// changes.
fn alternatives(recipe: &Recipe, layout: &Layout) -> Vec<(String, Layout)> {
    let mut layouts = Vec::new();
    let mut least = (Vec::new(), *layout);
    if layout.recompute == Recompute::None {
        layouts.push((
            "--recompute selective".to_owned(),
            Layout { recompute: Recompute::Selective, ..*layout },
        ));
    }
    if layout.recompute != Recompute::Full {
        layouts.push(("--recompute full".to_owned(), Layout { recompute: Recompute::Full, ..*layout }));
        least = (vec!["--recompute full".to_owned()], Layout { recompute: Recompute::Full, ..least.1 });
    }
    if layout.data * layout.context * layout.grid.depth > 1
        && recipe.compress.is_none()
        && layout.zero != Zero::Weights
    {
        let stages = [(1, Zero::Moments), (2, Zero::Gradients), (3, Zero::Weights)];
        let above = stages.into_iter().filter(|(_, zero)| *zero > layout.zero);
        layouts.extend(above.map(|(stage, zero)| (format!("--zero {stage}"), Layout { zero, ..*layout })));
        least.0.push("--zero 3".to_owned());
        least.1.zero = Zero::Weights;
    }
    // Each card along the depth needs at least one sequence.
    let fewest = layout.grid.depth;
    if layout.micro_batch > fewest {
        let half = layout.micro_batch.div_ceil(2).max(fewest);
        layouts.push((format!("--micro-batch {half}"), Layout { micro_batch: half, ..*layout }));
        least.0.push(format!("--micro-batch {fewest}"));
        least.1.micro_batch = fewest;
    }
    if least.0.len() > 1 {
        layouts.push((least.0.join(" "), least.1));
    }
    layouts
}
