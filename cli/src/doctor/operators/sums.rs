//! Checks of kernels that only compressed sums over several cards launch.
//!
//! Names of the kernels come from the plans of the sums. On hosts with two cards, results must
//! equal the results of toolkit calls. The sum plus residuals must equal the interpreter's
//! uncompressed sum. Values are small integers, so comparisons are exact.

use std::collections::BTreeSet;
use std::sync::Arc;

use ascend_tp::base::{DType, Diagnostics, Kernels};
use ascend_tp::compile::compile;
use ascend_tp::device::KernelSource;
use ascend_tp::exec::{self, Engine, EngineOptions, NamedTensors, ProgramId};
use ascend_tp::program::compress::Compression;
use ascend_tp::program::interpret::meaning;
use ascend_tp::program::{Builder, HostTensor, Kind, Program};
use ascend_tp::schedule::{Plan, Target};
use ascend_tp::{Cann, Mesh, Pins};

use super::{ReportGroup, calls};

const CARDS: usize = 2;

/// Large enough for a kernel launch; whole rows, but not whole records.
const ELEMS: usize = (1 << 18) + 1024;

struct CheckedSum {
    command: &'static str,
    by: Compression,
}

const SUMS: [CheckedSum; 2] = [
    CheckedSum { command: "train --compress onebit", by: Compression::OneBit },
    CheckedSum { command: "train --compress topk=0.1", by: Compression::TopK { share: 0.1 } },
];

/// The sum, and the residual that each card keeps.
#[derive(PartialEq)]
struct SumOutcome {
    sum: Vec<f32>,
    kept: [Vec<f32>; CARDS],
}

impl CheckedSum {
    fn program(&self) -> Result<Program, Diagnostics> {
        let mut build = Builder::new("sum");
        let x = build.input("x", [CARDS, ELEMS], DType::F32);
        let kept = build.state("kept", [ELEMS], DType::F32);
        let whole = build.input("whole", [ELEMS], DType::F32);
        let part = build.op(Kind::ReduceSum { dim: 0 }, &[x]);
        let part = build.name(part, "part");
        let kind = Kind::CompressedSum { axes: Vec::new(), by: self.by };
        let [_, sum] = build.several(kind, &[part, kept, whole]);
        build.output("sum", sum);
        build.finish()
    }

    fn plans(&self, kernels: Kernels) -> Result<Vec<Plan>, Diagnostics> {
        let pins = Pins::default()
            .value("x", &[(0, "dp")])
            .partial_value("part", &[], &["dp"])
            .partial_value("kept", &[], &["dp"]);
        let mesh = Mesh::new(&[("dp", CARDS)])
            .map_err(|error| ascend_tp::base::Diagnostic::new("mesh", error.to_string()))?;
        Ok(compile(&self.program()?, &mesh, &pins, Target::with_kernels(kernels))?.plans)
    }

    /// Returns whether sum plus residuals equals the uncompressed sum.
    fn is_whole(&self, had: &SumOutcome) -> Result<bool, Diagnostics> {
        let program = self.program()?;
        let [first, second] = parts();
        let part = first.iter().zip(&second).map(|(a, b)| a + b).collect();
        let operands =
            [part, vec![0.0; ELEMS], whole()].map(|data| HostTensor::float([ELEMS], DType::F32, data));
        let op = program.ops.values().iter().find(|op| matches!(op.kind, Kind::CompressedSum { .. }));
        let all = op.map(|op| meaning(&program, op, &operands.each_ref())).unwrap_or_default();
        let found = had.sum.iter().zip(had.kept[0].iter().zip(&had.kept[1])).map(|(sum, (a, b))| sum + a + b);
        Ok(all.get(1).is_some_and(|all| found.eq(all.floats().iter().copied())))
    }

    fn run(
        &self,
        cann: &Arc<Cann>,
        plans: Vec<Plan>,
        source: &KernelSource,
    ) -> Result<SumOutcome, exec::Error> {
        let options = EngineOptions { kernels: source.clone(), ..EngineOptions::default() };
        let mut engine = Engine::start(cann, vec![plans], &options)?;
        let inputs = NamedTensors::new().with("x", parts().concat()).with("whole", whole());
        let outputs = engine.run(ProgramId(0), &inputs)?;
        let floats = |bytes: &[u8]| HostTensor::from_bytes([ELEMS], DType::F32, bytes).floats().to_vec();
        let mut kept = [(); CARDS].map(|()| Vec::new());
        engine.load(|shards| {
            for part in shards.states().iter().flatten() {
                kept[part.rank()] = floats(&part.read()?);
            }
            Ok(())
        })?;
        let sum = outputs.iter().next().map(|(_, sum)| sum.floats().to_vec()).unwrap_or_default();
        Ok(SumOutcome { sum, kept })
    }
}

/// Returns the input of each card. Few magnitudes occur, each more often than the number of sent
/// elements.
fn parts() -> [Vec<f32>; CARDS] {
    [7919, 6007].map(|factor: usize| {
        (0..ELEMS).map(|at| [1.0, -2.0, 2.0, -1.0, 1.0][at * factor % 4093 % 5]).collect()
    })
}

/// Returns the replicated operand, in multiples of the number of cards.
fn whole() -> Vec<f32> {
    (0..ELEMS).map(|at| (at % 3 % CARDS * CARDS) as f32).collect()
}

/// Returns the names of the kernels, and runs them on hosts with two cards.
pub(super) fn check(
    cann: &Arc<Cann>,
    source: &KernelSource,
    group: &mut ReportGroup,
) -> Result<Vec<&'static str>, Diagnostics> {
    let mut of_several = Vec::new();
    for of in &SUMS {
        let plans = of.plans(source.kernels())?;
        let names: BTreeSet<&'static str> =
            calls(&plans[0]).map(|(_, name)| name).filter(|name| !name.starts_with("aclnn")).collect();
        if names.is_empty() {
            continue;
        }
        let seen = if cann.device_count().unwrap_or_default() < CARDS {
            None
        } else {
            let of_calls = of.run(cann, of.plans(Kernels::NONE)?, &KernelSource::None);
            let both = of.run(cann, plans, source).and_then(|had| Ok((had, of_calls?)));
            Some(match both {
                Ok((had, of_calls)) => Ok((of.is_whole(&had)?, had == of_calls)),
                Err(error) => Err(error),
            })
        };
        for name in &names {
            match &seen {
                None => group.skipped(
                    *name,
                    format!("needs several cards (`{}`), but this host has one card", of.command),
                ),
                Some(Ok((true, true))) => {
                    group.well(*name, format!("equal to the toolkit calls of `{}` on two cards", of.command));
                }
                Some(Ok((is_whole, _))) => {
                    let found =
                        if *is_whole { "different results" } else { "results that lack a part of the sum" };
                    let remedy = "build with ASCEND_TP_KERNELS=off to use toolkit calls instead";
                    group.finding(
                        *name,
                        found,
                        format!("the results of the toolkit calls of `{}` on two cards", of.command),
                        remedy,
                    );
                }
                Some(Err(error)) => {
                    let remedy = "see the card's log (~/ascend/log) for the failed kernel";
                    group.finding(*name, error.to_string(), "a complete run", remedy);
                }
            }
        }
        of_several.extend(names);
    }
    Ok(of_several)
}
