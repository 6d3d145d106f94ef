//! Reorders a rank's steps so that operators run during exchanges, and reserves the buffers of the
//! exchanges.
//!
//! The pass simulates the streams with the times of the cost model. While the links are idle, it
//! prefers operators that prepare an exchange, and postpones operators that would wait. An exchange
//! keeps its buffers for its predicted run time, so that it does not wait for the bytes of
//! concurrent operators. Pipeline stages are ordered together.
//!
//! Invariants:
//!
//! - Conflicting steps of a rank keep their order, so results are bitwise the same.
//! - All ranks of a stage have one order of steps, all stages one order of transfers.
//! - The times of a stage's first rank determine the order; its arena grows by a bounded number of
//!   bytes.

mod queue;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ascend_tp_machine::operator::OperatorCost;
use ascend_tp_machine::{Launch, Profile, Work};
use rustc_hash::FxHashMap;

use crate::base::IdVec;
#[cfg(test)]
use crate::base::defect;
use crate::call::BufferId;
use crate::program::models::layer_of;

use super::Ranks;
use super::launch::launch;
use super::memory::{Reserved, arena_bytes};
use super::parts::{CHIP, exchange_us};
use super::plan::{Action, Collective, CollectiveKind, Plan, Region, Step, StreamKind, Tap};
use super::with_exchange::{JoinCandidates, left};
use queue::{Filling, OrderedUnits, StageQueue, UnitCost, UnitKind, live, order};

/// Fraction of a device for steps that run ahead and reserved buffers.
const SPARE_PART: u64 = 32;

/// Quarters of the spare bytes to try. Gaps between buffers can require less.
const SPENT: [u64; 4] = [4, 2, 1, 0];

#[derive(Clone, Debug)]
pub(super) struct Emitted {
    pub(super) plan: Plan,
    /// Steps up to the end of each op; equally long on all ranks of a stage.
    pub(super) ends: Vec<usize>,
    /// Steps before each pass of a pipeline, and before the steps after the last pass.
    pub(super) begins: Vec<usize>,
    pub(super) reserved: Vec<Reserved>,
}

/// Fuses products and exchanges where that is predicted to be faster; `None` if nothing is fused.
///
/// The notes of the given plans then contain the reasons.
pub(super) fn with_products(ranks: &mut [Vec<Emitted>]) -> Option<Vec<Vec<Emitted>>> {
    let find =
        |stage: &Vec<Emitted>| JoinCandidates::of(&stage.iter().map(|rank| &rank.plan).collect::<Vec<_>>());
    let candidates: Vec<JoinCandidates> = ranks.iter().map(find).collect();
    let joined = (!candidates.iter().all(JoinCandidates::is_empty)).then(|| ranks.to_vec());
    for (stage, candidates) in ranks.iter_mut().zip(&candidates) {
        candidates.note(stage.iter_mut().map(|rank| &mut rank.plan));
    }
    let mut joined = joined?;
    for (stage, candidates) in joined.iter_mut().zip(candidates) {
        let gone = candidates.join(stage.iter_mut().map(|rank| &mut rank.plan));
        stage.iter_mut().zip(gone).for_each(|(rank, gone)| rank.leave_out(&gone));
    }
    Some(joined)
}

/// Steps that stay together: one exchange, or the operators of an op between two exchanges. Op
/// number, and number within the op.
type Unit = (usize, usize);

impl Emitted {
    fn leave_out(&mut self, gone: &[usize]) {
        let places = self.ends.iter_mut().chain(&mut self.begins);
        let places =
            places.chain(self.reserved.iter_mut().flat_map(|of| [&mut of.steps.start, &mut of.steps.end]));
        places.for_each(|steps| *steps = left(gone, *steps));
    }

    fn units(&self) -> Vec<Unit> {
        let mut units = Vec::with_capacity(self.plan.steps.len());
        let mut start = 0;
        for (op, end) in self.ends.iter().copied().chain([self.plan.steps.len()]).enumerate() {
            let mut number = 0;
            for step in &self.plan.steps[start..end] {
                let is_exchange = matches!(step.action, Action::Exchange(_));
                units.push((op, number + usize::from(is_exchange)));
                number += 2 * usize::from(is_exchange);
            }
            start = end;
        }
        units
    }
}

struct StageUnits {
    units: Vec<Vec<usize>>,
    behind: Vec<Vec<usize>>,
    costs: Vec<UnitCost>,
    before: u64,
    spare: u64,
}

impl StageUnits {
    fn new(ranks: &[Emitted], inner: usize, returned: Ranks) -> Self {
        let units: Vec<Vec<Unit>> = ranks.iter().map(Emitted::units).collect();
        let mut all: Vec<Unit> = units.iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        let numbers: FxHashMap<Unit, usize> =
            all.iter().enumerate().map(|(number, unit)| (*unit, number)).collect();
        let units: Vec<Vec<usize>> =
            units.into_iter().map(|units| units.into_iter().map(|unit| numbers[&unit]).collect()).collect();
        let mut behind: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
        let mut costs = vec![UnitCost::default(); all.len()];
        for (rank, units) in ranks.iter().zip(&units) {
            mark(rank, units, inner, &mut costs);
            order_pairs(&rank.plan, units, &mut behind);
        }
        // Received in send order.
        let mut last: BTreeMap<&[usize], usize> = BTreeMap::new();
        for (unit, cost) in costs.iter().enumerate() {
            let UnitKind::Transfer(among) = &cost.kind else { continue };
            if let Some(before) = last.insert(among, unit) {
                behind[before].push(unit);
            }
        }
        for of_unit in &mut behind {
            of_unit.sort_unstable();
            of_unit.dedup();
            #[cfg(test)]
            for at in 0..of_unit.len() {
                defect!(ConflictForgotten, {
                    of_unit.remove(at);
                    break;
                });
            }
        }
        let Emitted { plan, reserved, .. } = &ranks[0];
        price(plan, &units[0], &mut costs);
        let before = arena_bytes(plan.clone(), reserved).0;
        let held: u64 = plan
            .buffers
            .values()
            .iter()
            .filter(|slot| slot.region != Region::Arena)
            .map(|slot| slot.bytes.0)
            .sum();
        let kept = plan.params.iter().chain(&plan.states);
        let kept = kept.filter(|tensor| is_of_layer(&tensor.name)).map(|tensor| tensor.buffer);
        let kept: u64 = kept.collect::<BTreeSet<_>>().iter().map(|of| plan.buffers[*of].bytes.0).sum();
        let spare = returned.bytes_of_all(kept + before, held - kept) / SPARE_PART;
        Self { units, behind, costs, before, spare }
    }

    fn queue(&self, filling: Filling, spent: u64) -> StageQueue<'_> {
        StageQueue::new(&self.costs, self.behind.clone(), filling, self.spare * spent / SPENT[0])
    }

    fn fits(&self, first: &Emitted, ordered: &OrderedUnits<'_>, beside: &[OverlapWindow]) -> bool {
        let (plan, reserved) = moved(first.clone(), &self.units[0], ordered, beside);
        arena_bytes(plan, &reserved).0 <= self.before + self.spare
    }
}

struct Overlapped {
    plans: Vec<(Plan, Vec<Reserved>)>,
    end_us: f64,
}

/// Returns the reordered plans of all stages, and their reserved buffers. Of `apart` and `joined`,
/// the faster is kept: other operators may hide an exchange better than the fused product.
pub(super) fn overlap(
    apart: Vec<Vec<Emitted>>,
    joined: Option<Vec<Vec<Emitted>>>,
    returned: Ranks,
) -> Vec<(Plan, Vec<Reserved>)> {
    let is_collective = |step: &Step| step.stream == StreamKind::Communication;
    if !apart.iter().flatten().any(|rank| rank.plan.steps.iter().any(is_collective)) {
        return in_order(apart);
    }
    let apart = overlapped(apart, returned);
    match joined.map(|joined| overlapped(joined, returned)) {
        Some(joined) if joined.end_us < apart.end_us => joined.plans,
        _ => apart.plans,
    }
}

/// Tries each way to fill waits; the order that ends first is kept.
fn overlapped(ranks: Vec<Vec<Emitted>>, returned: Ranks) -> Overlapped {
    let inner = |stage: &[Emitted]| stage[0].plan.world / ranks.len();
    let stages = ranks.iter().map(|stage| StageUnits::new(stage, inner(stage), returned));
    let stages: Vec<StageUnits> = stages.collect();
    let is_pipeline = stages.len() > 1;
    let ways: &[Filling] = if is_pipeline {
        &[Filling::Any, Filling::Fitting, Filling::None]
    } else {
        &[Filling::Any, Filling::None]
    };
    let last_us = |all: &[(OrderedUnits<'_>, Vec<OverlapWindow>)]| {
        all.iter().map(|(ordered, _)| ordered.end_us()).fold(0.0, f64::max)
    };
    let mut tried = ways.iter().filter_map(|filling| {
        let orders = arranged(&stages, &ranks, *filling, returned)?;
        Some((last_us(&orders), orders))
    });
    // One stage keeps its order only if no other order fits the memory.
    let earliest = if is_pipeline { tried.min_by(|(a, _), (b, _)| a.total_cmp(b)) } else { tried.next() };
    let Some((end_us, orders)) = earliest else {
        return Overlapped { end_us: in_passes_us(&stages), plans: in_order(ranks) };
    };
    let mut plans = Vec::new();
    for ((ranks, stage), (ordered, beside)) in ranks.into_iter().zip(&stages).zip(&orders) {
        let ranks = ranks.into_iter().zip(&stage.units);
        plans.extend(ranks.map(|(rank, units)| moved(rank, units, ordered, beside)));
    }
    Overlapped { plans, end_us }
}

/// Returns whether a weight or a state belongs to a layer. States have a word before the weight.
fn is_of_layer(name: &str) -> bool {
    let mut ends = std::iter::successors(Some(name), |end| end.split_once('.').map(|(_, end)| end));
    ends.any(|end| layer_of(end).is_some())
}

fn in_passes_us(stages: &[StageUnits]) -> f64 {
    let ordered = order(stages.iter().map(|stage| stage.queue(Filling::None, 0)).collect());
    ordered.iter().map(OrderedUnits::end_us).fold(0.0, f64::max)
}

fn arranged<'a>(
    stages: &'a [StageUnits],
    ranks: &[Vec<Emitted>],
    filling: Filling,
    returned: Ranks,
) -> Option<Vec<(OrderedUnits<'a>, Vec<OverlapWindow>)>> {
    let mut tried = vec![0; stages.len()];
    loop {
        let spent = tried.iter().map(|at| SPENT.get(*at).copied()).collect::<Option<Vec<_>>>()?;
        let queues = stages.iter().zip(spent).map(|(stage, spent)| stage.queue(filling, spent)).collect();
        let stage_orders: Vec<(OrderedUnits<'a>, Vec<OverlapWindow>)> = order(queues)
            .into_iter()
            .map(|ordered| {
                let beside = ordered.reserved();
                (ordered, beside)
            })
            .collect();
        let mut fits = true;
        for (at, (ordered, beside)) in stage_orders.iter().enumerate() {
            // A sample does not run, and its arena has other gaps than the arena of the model.
            let is_sample = matches!(returned, Ranks::Sample { .. });
            let of_stage = is_sample || stages[at].fits(&ranks[at][0], ordered, beside);
            tried[at] += usize::from(!of_stage);
            fits &= of_stage;
        }
        if fits {
            return Some(stage_orders);
        }
    }
}

pub(super) fn in_order(ranks: Vec<Vec<Emitted>>) -> Vec<(Plan, Vec<Reserved>)> {
    ranks.into_iter().flatten().map(|rank| (rank.plan, rank.reserved)).collect()
}

fn order_pairs(plan: &Plan, units: &[usize], behind: &mut [Vec<usize>]) {
    for (first, second) in plan.conflicts() {
        let (first, second) = (units[first], units[second]);
        if first != second {
            behind[first].push(second);
        }
    }
}

fn mark(Emitted { plan, begins, .. }: &Emitted, units: &[usize], inner: usize, costs: &mut [UnitCost]) {
    for (at, (step, unit)) in plan.steps.iter().zip(units).enumerate() {
        costs[*unit].pass = begins.partition_point(|begin| *begin <= at);
        let Action::Exchange(exchange) = &step.action else { continue };
        costs[*unit].kind = match step.stream {
            StreamKind::Transfers => {
                UnitKind::Transfer(met(plan, exchange).into_iter().map(|rank| rank / inner).collect())
            }
            _ if exchange.product.is_some() => UnitKind::Both,
            StreamKind::Compute | StreamKind::Communication => UnitKind::Collective,
        };
    }
}

fn price(plan: &Plan, units: &[usize], costs: &mut [UnitCost]) {
    let profile = Profile::of(CHIP);
    let mut known: FxHashMap<Launch, f64> = FxHashMap::default();
    for (step, unit) in plan.steps.iter().zip(units) {
        let cost = &mut costs[*unit];
        cost.us += match &step.action {
            Action::Launch(call) => {
                let launch = launch(call);
                *known
                    .entry(launch)
                    .or_insert_with_key(|launch| OperatorCost::of(&profile, &Work::of(launch)).duration_us)
            }
            Action::Exchange(collective) => exchange_us(&profile, collective, &met(plan, collective)),
            Action::Record(_) | Action::Wait(_) => 0.0,
        };
        for view in step.reads().into_iter().chain(step.writes()) {
            let slot = &plan.buffers[view.buffer];
            if slot.region == Region::Arena && !cost.touches.iter().any(|(known, _)| *known == view.buffer) {
                cost.touches.push((view.buffer, slot.bytes.0));
            }
        }
    }
}

/// Ranks of an exchange; for a transfer, the sender first.
fn met(plan: &Plan, exchange: &Collective) -> Vec<usize> {
    let ranks = &plan.groups[exchange.group];
    match exchange.kind {
        CollectiveKind::Send { to } => vec![plan.rank, ranks[to]],
        CollectiveKind::Receive { from } => vec![ranks[from], plan.rank],
        _ => ranks.clone(),
    }
}

struct OverlapWindow {
    exchange: usize,
    places: Range<usize>,
}

impl OrderedUnits<'_> {
    fn reserved(&self) -> Vec<OverlapWindow> {
        let (mut live, lives) = live(self.order.iter().map(|unit| &self.costs[*unit]));
        let of_kind = |kind: UnitKind| -> Vec<usize> {
            (0..self.order.len()).filter(|place| self.costs[self.order[*place]].kind == kind).collect()
        };
        let (exchanges, operators) = (of_kind(UnitKind::Collective), of_kind(UnitKind::Operators));
        let span = |place: usize| self.spans[self.order[place]];
        let mut windows = Vec::with_capacity(exchanges.len());
        for exchange in exchanges {
            let (start, end) = span(exchange);
            let first = operators.partition_point(|other| span(*other).1 <= start);
            let behind = operators.partition_point(|other| span(*other).0 < end);
            let wanted = operators.get(first).map_or(exchange, |first| exchange.min(*first))
                ..behind.checked_sub(1).map_or(exchange, |last| exchange.max(operators[last])) + 1;
            let touches = &self.costs[self.order[exchange]].touches;
            let sum = |is_wanted: &dyn Fn((usize, usize)) -> bool| -> u64 {
                touches.iter().filter(|(buffer, _)| is_wanted(lives[buffer])).map(|(_, bytes)| bytes).sum()
            };
            let (written, read) = (sum(&|life| life.0 == exchange), sum(&|life| life.1 == exchange));
            let mut places = exchange..exchange + 1;
            while places.start > wanted.start && live[places.start - 1] + written <= self.most {
                places.start -= 1;
                live[places.start] += written;
            }
            while places.end < wanted.end && live[places.end] + read <= self.most {
                live[places.end] += read;
                places.end += 1;
            }
            windows.push(OverlapWindow { exchange, places });
        }
        windows
    }
}

/// The buffers include the buffers of the exchange windows.
fn moved(
    rank: Emitted,
    units: &[usize],
    ordered: &OrderedUnits<'_>,
    beside: &[OverlapWindow],
) -> (Plan, Vec<Reserved>) {
    let Emitted { mut plan, reserved, .. } = rank;
    let mut of_unit: Vec<Vec<usize>> = vec![Vec::new(); ordered.order.len()];
    for (step, unit) in units.iter().enumerate() {
        of_unit[*unit].push(step);
    }
    let mut begins = Vec::with_capacity(ordered.order.len() + 1);
    let mut sequence: Vec<usize> = Vec::with_capacity(plan.steps.len());
    for unit in &ordered.order {
        begins.push(sequence.len());
        sequence.append(&mut of_unit[*unit]);
    }
    begins.push(sequence.len());
    #[cfg(test)]
    with_defect(&plan, &mut sequence);
    let mut places = vec![0; sequence.len()];
    for (place, step) in sequence.iter().enumerate() {
        places[*step] = place;
    }
    move_taps(&mut plan, &places);
    let mut steps: Vec<Option<Step>> = std::mem::take(&mut plan.steps).into_iter().map(Some).collect();
    plan.steps = sequence.iter().filter_map(|step| steps[*step].take()).collect();
    let place = |step: usize| places.get(step).copied().unwrap_or(places.len());
    let kept = |Reserved { buffer, steps }: &Reserved| {
        let end = place(steps.end);
        Reserved { buffer: *buffer, steps: place(steps.start).min(end)..end }
    };
    let mut all_reserved: Vec<Reserved> = reserved.iter().map(kept).collect();
    for OverlapWindow { exchange, places } in beside {
        let own = begins[*exchange]..begins[exchange + 1];
        for step in &plan.steps[own.clone()] {
            let Action::Exchange(exchange) = &step.action else { continue };
            let Collective { send, recv, .. } = &**exchange;
            all_reserved.push(Reserved { buffer: recv.buffer, steps: begins[places.start]..own.end });
            all_reserved.push(Reserved { buffer: send.buffer, steps: own.start..begins[places.end] });
        }
    }
    (plan, all_reserved)
}

#[cfg(test)]
fn with_defect(plan: &Plan, sequence: &mut [usize]) {
    let is_exchange = |place: &usize| matches!(plan.steps[sequence[*place]].action, Action::Exchange(_));
    let places: Vec<usize> = (0..sequence.len()).filter(is_exchange).collect();
    for pair in places.windows(2) {
        defect!(ExchangesSwappedOnOneRank, sequence.swap(pair[0], pair[1]));
    }
}

/// Moves each tap to the last step that writes its value. `places` holds the new position of each
/// step.
fn move_taps(plan: &mut Plan, places: &[usize]) {
    let mut writes: IdVec<BufferId, Vec<(Range<u64>, usize)>> =
        plan.buffers.ids().map(|_| Vec::new()).collect();
    for (index, step) in plan.steps.iter().enumerate() {
        for view in step.writes() {
            writes[view.buffer].push((plan.span(view).1, index));
        }
    }
    let shown = |tap: &Tap| {
        let range = plan.span(&tap.view).1;
        let wrote = |(other, at): &&(Range<u64>, usize)| {
            *at < tap.after_steps && other.start < range.end && range.start < other.end
        };
        writes[tap.view.buffer].iter().filter(wrote).map(|(_, at)| places[*at] + 1).max().unwrap_or(0)
    };
    let shown: Vec<usize> = plan.taps.iter().map(shown).collect();
    for (tap, after_steps) in plan.taps.iter_mut().zip(shown) {
        tap.after_steps = after_steps;
    }
    plan.taps.sort_by_key(|tap| tap.after_steps);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{DType, Kernels};
    use crate::call::Call;
    use crate::collective::parallelize;
    use crate::placement::{Mesh, Pins, Placed};
    use crate::program::op::Kind;
    use crate::program::{Builder, ValueId};
    use crate::schedule::emit::emit;
    use crate::schedule::join::Joins;

    fn chain() -> Placed {
        let mut build = Builder::new("chain");
        let mut x = build.input("x", [4096, 1024], DType::BF16);
        let state = build.state("state", [4096, 1024], DType::BF16);
        for layer in 0..6 {
            let weight = build.param(&format!("weight{layer}"), [1024, 1024], DType::F32);
            let narrow = build.op(Kind::Cast { to: DType::BF16 }, &[weight]);
            x = build.matmul("bi,io->bo", x, narrow);
            if layer == 2 {
                x = build.add(x, state);
                build.op(Kind::Assign, &[state, x]);
            }
        }
        build.output("x", x);
        let mesh = Mesh::new(&[("dp", 8)]).unwrap();
        let cut: &[(usize, &str)] = &[(0, "dp")];
        let pins =
            Pins::default().value("weight*", cut).value("state", cut).value("x", cut).stored_on(&["dp"]);
        parallelize(&build.finish().unwrap(), &mesh, &pins).unwrap().lowered
    }

    fn emitted(placed: &Placed) -> Vec<Emitted> {
        let joins = Joins::of_any_memory(placed, Kernels::NONE);
        (0..placed.mesh.cards()).map(|rank| emit(placed, &joins, rank, Ranks::All)).collect()
    }

    fn exchanges_before_products(plan: &Plan) -> Vec<usize> {
        let mut exchanges = 0;
        let mut found = Vec::new();
        for step in &plan.steps {
            match &step.action {
                Action::Exchange(_) => exchanges += 1,
                Action::Launch(call) if matches!(**call, Call::Matmul { .. }) => found.push(exchanges),
                _ => {}
            }
        }
        found
    }

    #[test]
    fn a_stored_weight_is_gathered_while_the_product_before_it_runs() {
        let placed = chain();
        let before = exchanges_before_products(&emitted(&placed)[0].plan);
        assert_eq!(before, [1, 2, 3, 4, 5, 6]);
        let plans = overlap(vec![emitted(&placed)], None, Ranks::All);
        let after = exchanges_before_products(&plans[0].0);
        assert!(after.iter().zip(&before).take(5).all(|(after, before)| after > before), "{after:?}");
        let (plan, reserved) = &plans[0];
        let gathers =
            plan.steps.iter().enumerate().filter(|(_, step)| matches!(step.action, Action::Exchange(_)));
        let is_kept = |(at, step): &(usize, &Step)| {
            let reads = step.reads();
            reserved.iter().any(|of| of.buffer == reads[0].buffer && of.steps.end > at + 1)
        };
        assert!(gathers.filter(is_kept).count() >= 6, "{reserved:?}");
    }

    #[test]
    fn steps_that_touch_the_same_bytes_keep_their_order() {
        let placed = chain();
        let plans = overlap(vec![emitted(&placed)], None, Ranks::All);
        for (before, (after, _)) in emitted(&placed).into_iter().zip(plans) {
            assert_eq!(before.plan.steps.len(), after.steps.len());
            let place = |step: &Step| after.steps.iter().position(|other| other == step).unwrap();
            let places: Vec<usize> = before.plan.steps.iter().map(place).collect();
            assert!(!places.is_sorted(), "nothing was moved");
            for (at, step) in before.plan.steps.iter().enumerate() {
                for (earlier, other) in before.plan.steps[..at].iter().enumerate() {
                    let touches = |writes: &Step, all: &Step| {
                        let all = all.reads().into_iter().chain(all.writes()).map(|view| view.buffer);
                        let written: Vec<BufferId> =
                            writes.writes().into_iter().map(|view| view.buffer).collect();
                        all.into_iter().any(|buffer| written.contains(&buffer))
                    };
                    if touches(step, other) || touches(other, step) {
                        assert!(places[earlier] < places[at], "{other:?} was before {step:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn taps_stand_behind_what_they_show() {
        let placed = chain();
        let maker = |plan: &Plan, value: ValueId| -> Option<Step> {
            let tap = plan.taps.iter().find(|tap| tap.value == value)?;
            let steps = plan.steps[..tap.after_steps].iter().rev();
            steps
                .into_iter()
                .find(|step| step.writes().iter().any(|view| view.buffer == tap.view.buffer))
                .cloned()
        };
        let plans = overlap(vec![emitted(&placed)], None, Ranks::All);
        for (before, (after, _)) in emitted(&placed).into_iter().zip(plans) {
            for tap in &before.plan.taps {
                assert_eq!(maker(&before.plan, tap.value), maker(&after, tap.value), "{:?}", tap.value);
            }
        }
    }
}
