//! Finds errors before any rank runs. Checks change no state.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ascend_tp_machine::Soc;

use super::error::Error;
use crate::base::{Bytes, Diagnostic, Diagnostics, Kernels};
use crate::call::Call;
use crate::device::{Cann, Communicator, Device, KernelSource};
use crate::schedule::plan::{Plan, Region, Step, Tensor};
use crate::schedule::{Exchanges, Target};
use crate::world::ProcessGroup;

pub(super) fn groups<'a, P: Borrow<Plan> + 'a>(programs: &'a [impl AsRef<[P]>]) -> Vec<&'a Vec<usize>> {
    let mut groups: Vec<&'a Vec<usize>> = Vec::new();
    for plans in programs {
        for ranks in plans.as_ref().first().map(|plan| plan.borrow().groups.values()).unwrap_or_default() {
            if !groups.contains(&ranks) {
                groups.push(ranks);
            }
        }
    }
    groups
}

/// All programs of an engine have the same weights and states at the same places.
pub(super) fn shared_problems(programs: &[Vec<Arc<Plan>>]) -> Diagnostics {
    let mut problems = Diagnostics::new();
    let Some((first, others)) = programs.split_first() else { return problems };
    for plans in others {
        if plans.len() != first.len() {
            problems.push(Diagnostic::new(
                format!("program \"{}\"", plans[0].name),
                "is compiled for another number of ranks",
            ));
            continue;
        }
        for (a, b) in first.iter().zip(plans) {
            let same = |a: &[Tensor], b: &[Tensor], of: (&Plan, &Plan)| {
                a.len() == b.len()
                    && a.iter().zip(b).all(|(x, y)| {
                        (&x.name, &x.ranges, x.dtype) == (&y.name, &y.ranges, y.dtype)
                            && of.0.slot(x) == of.1.slot(y)
                    })
            };
            if !same(&a.params, &b.params, (a, b)) || !same(&a.states, &b.states, (a, b)) {
                problems.push(Diagnostic::new(
                    format!("rank {}", a.rank),
                    format!(
                        "programs \"{}\" and \"{}\" have different layouts of weights or states",
                        a.name, b.name
                    ),
                ));
            }
        }
    }
    problems
}

pub(super) fn weights_problems(held: &[Arc<Plan>], wanted: &[Arc<Plan>]) -> Option<Diagnostic> {
    let same = |a: &Plan, b: &Plan| {
        a.params.len() == b.params.len()
            && a.params.iter().zip(&b.params).all(|(x, y)| {
                (&x.name, &x.ranges, x.dtype) == (&y.name, &y.ranges, y.dtype) && a.slot(x) == b.slot(y)
            })
    };
    let rank = if held.len() == wanted.len() {
        held.iter().zip(wanted).position(|(held, wanted)| !same(held, wanted))?
    } else {
        held.len().min(wanted.len())
    };
    let problem = Diagnostic::new(format!("rank {rank}"), "has another layout of weights than the engine");
    Some(
        problem.help(
            "share weights only between programs with one model, one number of cards and one element type",
        ),
    )
}

/// Operators that the library lacks, with first call and number of calls.
pub(super) fn operator_problems<P: Borrow<Plan>>(
    cann: &Cann,
    programs: &[impl AsRef<[P]>],
) -> Vec<Diagnostic> {
    let lacks = cann.missing_operators();
    let mut missing: BTreeMap<&'static str, (usize, String)> = BTreeMap::new();
    for plan in programs.iter().flat_map(|plans| plans.as_ref()).map(Borrow::borrow) {
        for step in &plan.steps {
            let Some(call) = step.call() else { continue };
            if lacks.contains(&call.name()) {
                let place = || format!("program \"{}\", {}", plan.name, plan.notes[step.op]);
                missing.entry(call.name()).or_insert_with(|| (0, place())).0 += 1;
            }
        }
    }
    let problem = |(name, (calls, place)): (&str, (usize, String))| {
        let problem =
            Diagnostic::new(place, format!("the CANN toolkit lacks an operator that {calls} calls need"));
        problem
            .expected(name)
            .help("install a release that has it; `ascend-tp doctor` lists missing operators")
    };
    missing.into_iter().map(problem).collect()
}

/// Attention takes its lengths from the host, which knows only inputs.
pub(super) fn length_problems<P: Borrow<Plan>>(programs: &[impl AsRef<[P]>]) -> Vec<Diagnostic> {
    let plans = programs.iter().flat_map(|plans| plans.as_ref()).map(Borrow::borrow);
    let unknown = plans.filter_map(|plan| {
        let is_unknown = |call: &Call| call.lengths().is_some() && plan.host_list(call).is_none();
        let step = plan.steps.iter().find(|step| step.call().is_some_and(is_unknown))?;
        let place = format!("program \"{}\", {}", plan.name, plan.notes[step.op]);
        let problem = Diagnostic::new(place, "the lengths of its sequences are not known on the host");
        Some(problem.expected("an input of the program").help("pin the layout of the input `lengths`"))
    });
    unknown.take(1).collect()
}

pub(super) fn kernel_problems<P: Borrow<Plan>>(
    has: Kernels,
    programs: &[impl AsRef<[P]>],
) -> Vec<Diagnostic> {
    let mut missing = BTreeSet::new();
    for plan in programs.iter().flat_map(|plans| plans.as_ref()).map(Borrow::borrow) {
        let calls = plan.steps.iter().filter_map(Step::call);
        missing.extend(
            calls.filter(|call| call.kernel_entry().is_some() && !has.has(call.name())).map(Call::name),
        );
    }
    let problem = |name| {
        let problem = Diagnostic::new("kernels", "the plans launch one that the cards do not have");
        problem.expected(name).help("give the engine the source of kernels that the plans were compiled for")
    };
    missing.into_iter().map(problem).collect()
}

/// Returns the target that these devices support. Fused products with collectives require all
/// devices on one host.
#[must_use]
pub fn target_of(cann: &Cann, group: &ProcessGroup, source: &KernelSource) -> Target {
    let chip = cann.soc_name().and_then(|name| Soc::find(&name));
    let lacks = cann.missing_operators().iter().any(|operator| Exchanges::OPERATORS.contains(operator));
    let peers = group.peers();
    let is_one_host = peers.iter().all(|peer| peer.host_id == peers[0].host_id);
    match chip {
        Some(chip) if !lacks && is_one_host => Target::of(chip, source.kernels()),
        _ => Target::with_kernels(source.kernels()),
    }
}

/// First CANN version that supports collectives in graphs (AscendCL guide 8.5, capture).
const COLLECTIVES_IN_GRAPHS: (u32, u32) = (8, 5);

/// A library without a version is assumed to support captured collectives.
pub(super) fn capture_problem<P: Borrow<Plan>>(
    cann: &Cann,
    programs: &[impl AsRef<[P]>],
) -> Option<Diagnostic> {
    let version = cann.toolkit_version()?;
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let found = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    if found >= COLLECTIVES_IN_GRAPHS || groups(programs).is_empty() {
        return None;
    }
    let problem =
        Diagnostic::new("CANN", "its graphs do not support collectives, which a step on several cards has");
    let (major, minor) = COLLECTIVES_IN_GRAPHS;
    let problem = problem.expected(format!("{major}.{minor} or newer")).found(version);
    Some(problem.help("remove --captured, run on one card, or install a newer toolkit"))
}

/// Returns the size of each region of a rank, in the order of [`Region::ALL`]. Programs of one
/// engine do not run concurrently, so the largest counts.
#[must_use]
pub fn regions_wanted<P: Borrow<Plan>>(
    programs: &[impl AsRef<[P]>],
    rank: usize,
) -> [Bytes; Region::ALL.len()] {
    let of =
        |region| programs.iter().map(move |plans| plans.as_ref()[rank].borrow().region_bytes(region)).max();
    Region::ALL.map(|region| of(region).unwrap_or_default())
}

/// Counts the communicators of a rank.
#[must_use]
pub fn communicators_wanted<P: Borrow<Plan>>(programs: &[impl AsRef<[P]>], rank: usize) -> usize {
    groups(programs).into_iter().filter(|ranks| ranks.contains(&rank)).count()
}

/// Returns the device memory of a rank: each region, and the communicator buffers.
#[must_use]
pub fn memory_wanted<P: Borrow<Plan>>(
    programs: &[impl AsRef<[P]>],
    rank: usize,
) -> Vec<(&'static str, Bytes)> {
    let regions = Region::ALL.map(Region::name).into_iter().zip(regions_wanted(programs, rank));
    let communicators = communicators_wanted(programs, rank);
    let buffers = Bytes(communicators as u64 * Communicator::buffer_bytes().0);
    regions
        .chain((communicators > 0).then_some(("buffers of communicators (HCCL_BUFFSIZE)", buffers)))
        .collect()
}

pub(super) fn memory_problem(
    programs: &[Vec<Arc<Plan>>],
    rank: usize,
    device: &Device,
    has_weights: bool,
) -> Result<Option<Diagnostic>, Error> {
    let mut parts = memory_wanted(programs, rank);
    parts.retain(|(part, _)| !has_weights || *part != Region::Weights.name());
    let wanted = parts.iter().map(|(_, bytes)| *bytes).sum::<Bytes>();
    let memory = device.memory()?;
    let free = memory.free;
    if wanted <= free {
        return Ok(None);
    }
    let parts: Vec<String> = parts.iter().map(|(part, bytes)| format!("{part} {bytes}")).collect();
    Ok(Some(
        Diagnostic::new(
            format!("rank {rank} (card {})", device.ordinal()),
            "the program does not fit the card's memory",
        )
        .expected(format!("at most {free} ({} in all)", memory.total))
        .found(format!("{wanted}: {}", parts.join(", ")))
        .help("use more cards, a shorter context, a smaller batch or a 16-bit element type"),
    ))
}
