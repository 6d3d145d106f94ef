//! Mutation tests of the checkers. Each collective, event and scale in the plans of the fixtures is
//! deleted, swapped or changed, and each mutant must be caught.
//!
//! A mutant first passes `collective::verify` and `schedule::verify`. Mutants that both accept run
//! on emulated cards, and the output of every rank is compared with the reference. No mutant can
//! hang, because `verify` rejects plans that would deadlock. The test prints a table of kills.
//!
//! Two rules in `plans` exclude equivalent mutants: `live` and `reads_only_zeros`.

mod fixture;
mod lowered;
mod plans;
mod strict;
mod train;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ascend_tp::device::{self, Cann, ErrorKind};
use ascend_tp::exec::Error;
use ascend_tp::placement::{Placed, Residual};
use ascend_tp::program::models::Head;
use ascend_tp::program::{Role, ValueId};
use ascend_tp::schedule::{self, Plan, Scheduling, schedule};
use ascend_tp::{Mesh, Pins, collective, parallelize, program};

use crate::common::cases::stride;
use crate::common::{cann, run, start};
use fixture::{BOUND, Case, Fixture, distance};

/// The suite judges every sixth mutant and the first one of each class, a soak all.
const STRIDE: usize = 6;

/// A program or plans with one defect.
pub(crate) struct Mutant {
    pub(crate) class: &'static str,
    pub(crate) what: String,
    /// Op of the lowered program with the defect; 0 for a weight.
    pub(crate) op: usize,
    pub(crate) how: Defect,
}

/// The defective program of all ranks, or the defective plans.
pub(crate) enum Defect {
    Lowered(Box<Placed>),
    Plans(Vec<Plan>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Checker {
    CollectiveVerify,
    ScheduleVerify,
    Card,
    Output,
}

struct Bench<'a> {
    fixture: &'a Fixture,
    cann: Arc<Cann>,
    output: ValueId,
}

impl Bench<'_> {
    /// Returns the first checker that catches a mutant, or `None` if it survives.
    fn judge(&self, how: Defect) -> Option<Checker> {
        let plans = match how {
            Defect::Plans(plans) => plans,
            Defect::Lowered(placed) => {
                if program::verify::verify(&placed.program).is_err() || collective::verify(&placed).is_err() {
                    return Some(Checker::CollectiveVerify);
                }
                match schedule(&placed, Scheduling::default()) {
                    Ok(plans) => plans,
                    Err(_) => return Some(Checker::ScheduleVerify),
                }
            }
        };
        if schedule::verify(&plans).is_err() {
            return Some(Checker::ScheduleVerify);
        }
        match self.is_right(plans) {
            Err(error) => {
                assert!(!is_timeout(&error), "a mutant hung: {error}");
                Some(Checker::Card)
            }
            Ok(is_right) => (!is_right).then_some(Checker::Output),
        }
    }

    /// Returns whether the output is right on all ranks, in all runs.
    fn is_right(&self, plans: Vec<Plan>) -> Result<bool, Error> {
        let mut engine = start(&self.cann, plans, &self.fixture.params)?;
        for Case { inputs, output } in &self.fixture.cases {
            let run = run(&mut engine, inputs)?;
            let mut found = run.outputs.values().chain(&run.parts[&self.output]);
            if !found.all(|found| distance(found, output) <= BOUND) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn is_timeout(error: &Error) -> bool {
    let of = |error: &device::Error| error.kind() == ErrorKind::Timeout;
    match error {
        Error::Device(error) => of(error),
        Error::Ranks(ranks) => {
            ranks.iter().any(|rank| rank.source.downcast_ref::<device::Error>().is_some_and(of))
        }
        _ => false,
    }
}

/// Kills by class and checker, and survivors.
#[derive(Default)]
struct Kills {
    made: BTreeMap<&'static str, BTreeMap<Option<Checker>, usize>>,
    /// All classes. A sample was judged.
    classes: BTreeSet<&'static str>,
    /// Number of mutants that a rule excluded.
    equivalent: usize,
    survivors: Vec<String>,
}

impl Kills {
    fn count(&mut self, class: &'static str, checker: Option<Checker>) {
        *self.made.entry(class).or_default().entry(checker).or_default() += 1;
    }

    fn table(&self) -> String {
        let columns =
            [Checker::CollectiveVerify, Checker::ScheduleVerify, Checker::Card, Checker::Output].map(Some);
        let mut text = format!(
            "{:<50} {:>6} {:>10} {:>8} {:>5} {:>6} {:>6}\n",
            "mistake", "made", "collective", "schedule", "card", "output", "killed"
        );
        let mut total: BTreeMap<Option<Checker>, usize> = BTreeMap::new();
        let mut row = |name: &str, by: &BTreeMap<Option<Checker>, usize>| {
            let made: usize = by.values().sum();
            let [collective, schedule, card, output] =
                columns.map(|column| by.get(&column).copied().unwrap_or(0));
            let killed = made - by.get(&None).copied().unwrap_or(0);
            let rate = 100.0 * killed as f64 / made as f64;
            text += &format!(
                "{name:<50} {made:>6} {collective:>10} {schedule:>8} {card:>5} {output:>6} {rate:>5.1}%\n"
            );
        };
        for (class, by) in &self.made {
            row(class, by);
            by.iter().for_each(|(checker, count)| *total.entry(*checker).or_default() += count);
        }
        row("all", &total);
        text += &format!(
            "left out as equivalent, where nobody reads the result or it is zero anyway: {}\n",
            self.equivalent
        );
        text
    }
}

/// Judges all mutants of one fixture on some cards, starting at the op that computes `from`.
fn mutate(fixture: &Fixture, cards: usize, residual: Residual, from: &str, kills: &mut Kills) {
    let mesh =
        Mesh::tensor_parallel(cards, fixture.config.kv_heads, fixture.config.heads_per_kv_head()).unwrap();
    let lowered = parallelize(&fixture.program, &mesh, &Pins::auto(residual)).unwrap().lowered;
    let plans = schedule(&lowered, Scheduling::default()).unwrap();
    let making = |value: ValueId| {
        lowered.program.ops.values().iter().position(|op| op.results.contains(&value)).unwrap()
    };
    let first = lowered.program.find(Role::Result, from).map(making).unwrap();
    let bench = Bench { fixture, cann: cann(cards), output: lowered.program.outputs[0].1 };
    assert!(
        bench.is_right(plans.clone()).unwrap(),
        "{} on {cards} cards, {residual:?}, is wrong as it is",
        fixture.name
    );
    let (of_plans, equivalent) = plans::mutants(&plans);
    kills.equivalent += equivalent;
    let mutants = lowered::mutants(&lowered).into_iter().chain(of_plans);
    let mutants: Vec<Mutant> = mutants.filter(|mutant| mutant.op >= first).collect();
    kills.classes.extend(mutants.iter().map(|mutant| mutant.class));
    // Fixtures start at different mutants. The first mutant of each class is judged, because some
    // classes have few.
    let stride = stride(STRIDE);
    let start = (fixture.name.len() + cards) % stride;
    for (number, Mutant { class, what, how, .. }) in mutants.into_iter().enumerate() {
        if number % stride != start && kills.made.contains_key(class) {
            continue;
        }
        let checker = bench.judge(how);
        kills.count(class, checker);
        if checker.is_none() {
            kills.survivors.push(format!("{} on {cards} cards, {residual:?}: {class}: {what}", fixture.name));
        }
    }
}

#[test]
fn every_mutant_is_caught() {
    let mut kills = Kills::default();
    for (name, residual) in
        fixture::NAMES.into_iter().zip([Residual::Replicate, Residual::Seq].into_iter().cycle())
    {
        mutate(&Fixture::read(name, Head::AllLogits, 4), 4, residual, "residual.embedding", &mut kills);
        // Only the choice of the token; `AllLogits` covers earlier ops better.
        mutate(&Fixture::read(name, Head::LastToken, 4), 4, Residual::Replicate, "logits", &mut kills);
    }
    // Key heads replicated on a sub-axis, and sizes that leave some of eight cards empty.
    for (name, residual) in [("qwen2-gqa", Residual::Replicate), ("qwen2-tied-uneven", Residual::Seq)] {
        mutate(&Fixture::read(name, Head::AllLogits, 8), 8, residual, "residual.embedding", &mut kills);
    }
    println!("{}", kills.table());
    let missing: Vec<&str> =
        kills.classes.into_iter().filter(|class| !kills.made.contains_key(class)).collect();
    assert!(missing.is_empty(), "no mutant of {missing:?} was judged");
    assert!(kills.survivors.is_empty(), "{} survive:\n{}", kills.survivors.len(), kills.survivors.join("\n"));
}
