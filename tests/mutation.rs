//! What the checkers are worth: each collective, event and scale of the fixtures' plans is deleted, swapped or changed in
//! turn, and each mutant must be caught.
//!
//! A mutant goes the way a program goes: `collective::verify` and `schedule::verify` before anything runs, and only what
//! both let pass runs on emulated cards, where the logits of every rank are compared with the reference's. So no mutant
//! can hang: plans whose ranks would wait for each other do not pass. The table of kills is printed.
//!
//! Mutants that compute the same are left out by rule, each rule with its proof where it stands: `live` and
//! `waits_for_more` in `plans`.

mod common;
#[path = "mutation/fixture.rs"]
mod fixture;
#[path = "mutation/lowered.rs"]
mod lowered;
#[path = "mutation/plans.rs"]
mod plans;

use std::collections::BTreeMap;
use std::sync::Arc;

use ascend_tp::device::{self, Cann, ErrorKind};
use ascend_tp::exec::Error;
use ascend_tp::placement::{Placed, Residual};
use ascend_tp::schedule::{self, Plan, schedule};
use ascend_tp::{Mesh, Pins, collective, parallelize, program};

use common::{cann, run, start};
use fixture::Fixture;

/// Largest error of a logit in f32.
const BOUND: f32 = 1e-4;

/// A program or plans with one thing wrong.
pub(crate) struct Mutant {
    /// Kind of the mistake.
    pub(crate) class: &'static str,
    /// Where.
    pub(crate) what: String,
    pub(crate) how: How,
}

/// What is wrong: the program of all ranks, or plans.
pub(crate) enum How {
    Lowered(Box<Placed>),
    Plans(Vec<Plan>),
}

/// Who caught a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Checker {
    CollectiveVerify,
    ScheduleVerify,
    Card,
    Logits,
}

/// The plans of a fixture on a mesh, and cards to run them on.
struct Bench<'a> {
    fixture: &'a Fixture,
    cann: Arc<Cann>,
    /// The op of the lowered program that makes the logits.
    logits: usize,
}

impl Bench<'_> {
    /// Who catches a mutant first; `None` if it survives.
    fn judge(&self, how: How) -> Option<Checker> {
        let plans = match how {
            How::Plans(plans) => plans,
            How::Lowered(placed) => {
                if program::verify::verify(&placed.program).is_err() || collective::verify(&placed).is_err() {
                    return Some(Checker::CollectiveVerify);
                }
                match schedule(&placed) {
                    Ok(plans) => plans,
                    Err(_) => return Some(Checker::ScheduleVerify),
                }
            }
        };
        if schedule::verify(&plans).is_err() {
            return Some(Checker::ScheduleVerify);
        }
        match self.error(plans) {
            Err(error) => {
                assert!(!is_timeout(&error), "a mutant hung: {error}");
                Some(Checker::Card)
            }
            Ok(error) => (!(error <= BOUND)).then_some(Checker::Logits),
        }
    }

    /// The largest error of a logit on any rank.
    fn error(&self, plans: Vec<Plan>) -> Result<f32, Error> {
        let mut engine = start(&self.cann, plans, &self.fixture.params)?;
        let run = run(&mut engine, &self.fixture.inputs)?;
        let whole = run.outputs.values().chain(&run.parts[self.logits]);
        let errors =
            whole.flat_map(|found| found.floats().iter().zip(&self.fixture.logits).map(|(a, b)| (a - b).abs()));
        // Not a number is as wrong as can be.
        Ok(errors.fold(0.0, |most: f32, error| if error.is_nan() { f32::INFINITY } else { most.max(error) }))
    }
}

fn is_timeout(error: &Error) -> bool {
    let of = |error: &device::Error| error.kind() == ErrorKind::Timeout;
    match error {
        Error::Device(error) => of(error),
        Error::Ranks(ranks) => ranks.iter().any(|rank| rank.source.downcast_ref::<device::Error>().is_some_and(of)),
        _ => false,
    }
}

/// Kills by class of mistake and by checker, and those that survive.
#[derive(Default)]
struct Kills {
    made: BTreeMap<&'static str, BTreeMap<Option<Checker>, usize>>,
    survivors: Vec<String>,
}

impl Kills {
    fn count(&mut self, class: &'static str, checker: Option<Checker>) {
        *self.made.entry(class).or_default().entry(checker).or_default() += 1;
    }

    fn table(&self) -> String {
        let columns = [Checker::CollectiveVerify, Checker::ScheduleVerify, Checker::Card, Checker::Logits].map(Some);
        let mut text = format!(
            "{:<50} {:>6} {:>10} {:>8} {:>5} {:>6} {:>6}\n",
            "mistake", "made", "collective", "schedule", "card", "logits", "killed"
        );
        let mut total: BTreeMap<Option<Checker>, usize> = BTreeMap::new();
        let mut row = |name: &str, by: &BTreeMap<Option<Checker>, usize>| {
            let made: usize = by.values().sum();
            let [collective, schedule, card, logits] = columns.map(|column| by.get(&column).copied().unwrap_or(0));
            let killed = made - by.get(&None).copied().unwrap_or(0);
            let rate = 100.0 * killed as f64 / made as f64;
            text +=
                &format!("{name:<50} {made:>6} {collective:>10} {schedule:>8} {card:>5} {logits:>6} {rate:>5.1}%\n");
        };
        for (class, by) in &self.made {
            row(class, by);
            by.iter().for_each(|(checker, count)| *total.entry(*checker).or_default() += count);
        }
        row("all", &total);
        text
    }
}

/// All mutants of one fixture on one number of cards.
fn mutate(fixture: &Fixture, cards: usize, residual: Residual, kills: &mut Kills) {
    let mesh = Mesh::tensor_parallel(cards, fixture.config.kv_heads, fixture.config.heads_per_kv_head()).unwrap();
    let split = parallelize(&fixture.program, &mesh, &Pins::auto(residual)).unwrap();
    let lowered = split.lowered;
    let plans = schedule(&lowered).unwrap();
    let output = lowered.program.outputs[0].1;
    let logits = lowered.program.ops.values().iter().position(|op| op.result == output).unwrap();
    let bench = Bench { fixture, cann: cann(cards), logits };
    let error = bench.error(plans.clone()).unwrap();
    assert!(
        error <= BOUND,
        "{} on {cards} cards, {residual:?}: logits are off by {error} without a mistake",
        fixture.name
    );
    for Mutant { class, what, how } in lowered::mutants(&lowered).into_iter().chain(plans::mutants(&plans)) {
        let checker = bench.judge(how);
        kills.count(class, checker);
        if checker.is_none() {
            kills.survivors.push(format!("{} on {cards} cards, {residual:?}: {class}: {what}", fixture.name));
        }
    }
}

#[test]
fn debugging() {
    let fixture = Fixture::read("qwen-v1-mha");
    let whole = ascend_tp::program::interpret(&fixture.program, |_, value| {
        use ascend_tp::program::Role;
        match value.role {
            Role::Param => fixture.params[&value.name].clone(),
            Role::Input => fixture.inputs[&value.name].clone(),
            _ => ascend_tp::program::HostTensor::zeros(value.shape.clone(), value.dtype),
        }
    });
    let out = &whole[ascend_tp::base::Id::index(fixture.program.outputs[0].1)];
    let mut errors: Vec<(f32, usize)> = out.floats().iter().zip(&fixture.logits).enumerate().map(|(i, (a, b))| ((a - b).abs(), i)).collect();
    errors.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("interpret {:?}", &errors[..5]);
    for (cards, residual) in [(1, Residual::Replicate), (4, Residual::Replicate), (4, Residual::Seq)] {
        let mesh = Mesh::tensor_parallel(cards, fixture.config.kv_heads, fixture.config.heads_per_kv_head()).unwrap();
        let lowered = parallelize(&fixture.program, &mesh, &Pins::auto(residual)).unwrap().lowered;
        let plans = schedule(&lowered).unwrap();
        let mut engine = start(&cann(cards), plans, &fixture.params).unwrap();
        let run = run(&mut engine, &fixture.inputs).unwrap();
        let out = &run.outputs["logits"];
        let mut errors: Vec<(f32, usize)> = out.floats().iter().zip(&fixture.logits).enumerate().map(|(i, (a, b))| ((a - b).abs(), i)).collect();
        errors.sort_by(|a, b| b.0.total_cmp(&a.0));
        println!("{cards} {:?}", &errors[..5]);
        for (i, op) in lowered.program.ops.iter() {
            let j = ascend_tp::base::Id::index(op.result);
            if j < whole.len() && lowered.layouts[op.result].partial.is_empty() {
                let i = ascend_tp::base::Id::index(i);
                for (rank, part) in run.parts[i].iter().enumerate() {
                    let ranges = lowered.layouts[op.result].ranges(&lowered.mesh, &whole[j].shape, rank);
                    let e = whole[j].block(&ranges).floats().iter().zip(part.floats()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    if e > 1e-4 { println!("  {} rank {rank} {e}", ascend_tp::program::text::op_text(&lowered.program, op)); }
                }
            }
        }
    }
}

#[test]
fn every_mutant_is_caught() {
    let mut kills = Kills::default();
    for name in fixture::NAMES {
        let fixture = Fixture::read(name);
        for residual in [Residual::Replicate, Residual::Seq] {
            mutate(&fixture, 4, residual, &mut kills);
        }
    }
    // Key heads that are replicated on a sub-axis, and sizes that leave some of eight cards nothing.
    for (name, residual) in [("qwen2-gqa", Residual::Replicate), ("qwen2-tied-uneven", Residual::Seq)] {
        mutate(&Fixture::read(name), 8, residual, &mut kills);
    }
    println!("{}", kills.table());
    assert!(kills.survivors.is_empty(), "{} survive:\n{}", kills.survivors.len(), kills.survivors.join("\n"));
}
