//! Finds exposed collectives and a lower bound of the run time.
//!
//! Steps keep their order if they access the same bytes of one buffer and one writes. If the
//! buffers differ, only memory reuse orders them.

use ascend_tp::base::Id;
use ascend_tp::call::View;
use ascend_tp::schedule::plan::{Action, Plan, Step, StreamKind};

use super::SimulatedSpan;

/// Why a collective did not begin earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Limit {
    /// The links were busy.
    Links,
    /// This step produced the input.
    Made(usize),
    /// This step used the memory before.
    Memory(usize),
    /// The launch or another rank was late.
    Issue,
}

/// A collective that operators do not fully hide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exposed {
    /// Step in the plan.
    pub step: usize,
    /// Microseconds without a running operator.
    pub us: f64,
    /// Cause of the start time.
    pub limit: Limit,
    /// The operator that begins when the collective ends, and why. `None` if other reasons delay
    /// operators.
    pub awaited: Option<(usize, Awaited)>,
}

/// Why an operator waits for a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Awaited {
    /// The operator accesses the same buffer.
    Value,
    /// The operator reuses the memory.
    Memory,
}

/// Last step before each event's record, on the same stream.
fn recorded(plan: &Plan) -> Vec<Option<usize>> {
    let mut last: [Option<usize>; StreamKind::ALL.len()] = Default::default();
    let mut recorded = vec![None; plan.events];
    for (at, step) in plan.steps.iter().enumerate() {
        match &step.action {
            Action::Record(event) => recorded[event.index()] = last[step.stream as usize],
            Action::Wait(_) => {}
            Action::Launch(_) | Action::Exchange(_) => last[step.stream as usize] = Some(at),
        }
    }
    recorded
}

/// Steps awaited by events directly before a step.
fn awaited(plan: &Plan, recorded: &[Option<usize>], at: usize) -> impl Iterator<Item = usize> {
    let own = plan.steps[at].stream;
    let before = plan.steps[..at].iter().rev().filter(move |step| step.stream == own);
    let waits = before.map_while(|step| match step.action {
        Action::Wait(event) => Some(recorded[event.index()]),
        _ => None,
    });
    waits.flatten()
}

fn shares_buffer(plan: &Plan, a: &Step, b: &Step) -> bool {
    let overlaps = |x: &View, y: &View| {
        let (x_range, y_range) = (plan.span(x).1, plan.span(y).1);
        x.buffer == y.buffer && x_range.start < y_range.end && y_range.start < x_range.end
    };
    let any = |xs: &[&View], ys: &[&View]| xs.iter().any(|x| ys.iter().any(|y| overlaps(x, y)));
    let (a_writes, b_writes) = (a.writes(), b.writes());
    any(&a_writes, &b.reads()) || any(&a_writes, &b_writes) || any(&a.reads(), &b_writes)
}

/// Lists exposed collectives in plan order; `spans` is indexed by step.
#[must_use]
pub fn exposed(plan: &Plan, spans: &[Option<SimulatedSpan>]) -> Vec<Exposed> {
    let recorded = recorded(plan);
    let of_stream = |is_wanted: fn(&Step) -> bool| -> Vec<(usize, SimulatedSpan)> {
        let steps = plan.steps.iter().zip(spans).enumerate().filter(move |(_, (step, _))| is_wanted(step));
        steps.filter_map(|(at, (_, span))| Some((at, (*span)?))).collect()
    };
    let operators = of_stream(|step| step.stream == StreamKind::Compute);
    let mut last: [Option<f64>; StreamKind::ALL.len()] = Default::default();
    let mut exposed = Vec::new();
    for (step, span) in of_stream(|step| step.stream != StreamKind::Compute) {
        let before_us = last[plan.steps[step].stream as usize].replace(span.end_us);
        let first = operators.partition_point(|(_, other)| other.end_us <= span.start_us);
        let beside = operators[first..].iter().take_while(|(_, other)| other.start_us < span.end_us);
        let hidden: f64 =
            beside.map(|(_, other)| other.end_us.min(span.end_us) - other.start_us.max(span.start_us)).sum();
        let us = span.end_us - span.start_us - hidden;
        if us <= 1e-6 {
            continue;
        }
        let ends_there = |at: &usize| spans[*at].is_some_and(|other| other.end_us >= span.start_us - 1e-6);
        let limit = match awaited(plan, &recorded, step).find(ends_there) {
            _ if before_us.is_some_and(|end_us| end_us >= span.start_us - 1e-6) => Limit::Links,
            Some(by) if shares_buffer(plan, &plan.steps[by], &plan.steps[step]) => Limit::Made(by),
            Some(by) => Limit::Memory(by),
            None => Limit::Issue,
        };
        let next = operators.partition_point(|(_, other)| other.start_us < span.end_us - 1e-6);
        let awaited = operators.get(next).map(|(at, _)| *at).and_then(|at| {
            awaited(plan, &recorded, at).find(|by| *by == step)?;
            let needs = shares_buffer(plan, &plan.steps[step], &plan.steps[at]);
            Some((at, if needs { Awaited::Value } else { Awaited::Memory }))
        });
        exposed.push(Exposed { step, us, limit, awaited });
    }
    exposed
}

struct StepGraph {
    /// Duration of each step; 0 for records and waits.
    us: Vec<f64>,
    is_exchange: Vec<bool>,
    before: Vec<Vec<usize>>,
    behind: Vec<Vec<usize>>,
}

impl StepGraph {
    fn new(plan: &Plan, spans: &[Option<SimulatedSpan>]) -> Self {
        let count = plan.steps.len();
        let (mut before, mut behind) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (first, second) in plan.conflicts() {
            before[second].push(first);
            behind[first].push(second);
        }
        Self {
            us: spans.iter().map(|span| span.map_or(0.0, |span| span.end_us - span.start_us)).collect(),
            is_exchange: plan.steps.iter().map(|step| matches!(step.action, Action::Exchange(_))).collect(),
            before,
            behind,
        }
    }

    /// Longest chain from each step along `next`. `order` lists each step after its `next` steps.
    fn chains(&self, order: impl Iterator<Item = usize>, next: &[Vec<usize>]) -> Vec<f64> {
        let mut chains = vec![0.0; self.us.len()];
        for at in order {
            chains[at] = self.us[at] + next[at].iter().map(|next| chains[*next]).fold(0.0, f64::max);
        }
        chains
    }

    /// Total time of operators and of collectives reachable by `next`.
    fn reached(&self, from: usize, next: &[Vec<usize>], seen: &mut [usize]) -> (f64, f64) {
        let (mut operators, mut exchanges) = (0.0, 0.0);
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            for next in &next[at] {
                if std::mem::replace(&mut seen[*next], from) != from {
                    *if self.is_exchange[*next] { &mut exchanges } else { &mut operators } += self.us[*next];
                    open.push(*next);
                }
            }
        }
        (operators, exchanges)
    }
}

/// Number of steps that [`least_us`] visits. The time of long plans is bounded by fewer
/// collectives.
const MOST_VISITS: usize = 20_000_000;

/// Returns a lower bound for any order, with one operator and one collective at a time: around each
/// collective, the maximum of dependent operators, dependent collectives and the longest chain.
#[must_use]
pub fn least_us(plan: &Plan, spans: &[Option<SimulatedSpan>]) -> f64 {
    let graph = StepGraph::new(plan, spans);
    let count = graph.us.len();
    let heads = graph.chains(0..count, &graph.before);
    let tails = graph.chains((0..count).rev(), &graph.behind);
    let sum = |is_exchange: bool| -> f64 {
        graph.us.iter().zip(&graph.is_exchange).filter(|(_, is)| **is == is_exchange).map(|(us, _)| us).sum()
    };
    let mut least = sum(false).max(sum(true));
    let mut seen = [vec![usize::MAX; count], vec![usize::MAX; count]];
    let exchanges: Vec<usize> = (0..count).filter(|at| graph.is_exchange[*at]).collect();
    let every = (exchanges.len() * count).div_ceil(MOST_VISITS).max(1);
    for at in exchanges.into_iter().step_by(every) {
        let (operators, exchanges) = graph.reached(at, &graph.before, &mut seen[0]);
        let head = operators.max(exchanges).max(heads[at] - graph.us[at]);
        let (operators, exchanges) = graph.reached(at, &graph.behind, &mut seen[1]);
        let tail = operators.max(exchanges).max(tails[at] - graph.us[at]);
        least = least.max(head + graph.us[at] + tail);
    }
    least
}
