//! Operators run while data is exchanged: the order of a rank's steps, and for how long the memory of exchanges is theirs alone.
//!
//! Input → output: the plans of all ranks, without offsets and events → the same steps in another order, and what is reserved of each
//! arena. Streams run in the order of steps, so an operator that waits for an exchange holds up all behind it, and what an exchange
//! waits for holds up the exchange. By the times of the cost model, what prepares an exchange comes ahead while the links are idle, and
//! an operator that would wait stands back for those that would not. An exchange then has its memory for the time in which it runs by
//! those times, so that neither it nor an operator beside it waits for bytes of the other. Stages of a pipeline are put into order
//! together, each by its own clock and by when the others send what it reads: so an operator of a later pass runs only where its input has
//! come, and where it would hold up what another stage waits for, it may stand back.
//!
//! Invariants: of two steps of a rank that touch the same bytes of a buffer, one of them writing, the first stays the first, so no bit
//! changes; all ranks of a stage have one order, so also one order of exchanges, and all stages one order of transfers; the arena of a
//! stage's first card, by whose times all of it are ordered, takes a bounded number of bytes more.

mod queue;

use std::collections::BTreeMap;
use std::ops::Range;

use ascend_tp_machine::operator::OperatorCost;
use ascend_tp_machine::{Launch, Profile, Work};
use rustc_hash::FxHashMap;

use crate::base::IdVec;
use crate::call::BufferId;

use super::launch::launch;
use super::memory::{Reserved, arena_bytes};
use super::parts::{CHIP, exchange_us};
use super::plan::{Action, Collective, CollectiveKind, Plan, Region, Step, StreamKind, Tap};
use super::with_exchange::{JoinCandidates, left};
use queue::{Filling, Ordered, StageQueue, UnitCost, UnitKind, live, order};

/// One part in so many of a card's bytes may be spent on what runs ahead and on memory that is reserved.
const SPARE_PART: u64 = 32;

/// Of these bytes so many parts in four are tried: buffers that live at other times may leave gaps between them.
const SPENT: [u64; 4] = [4, 2, 1, 0];

/// A plan as it is emitted.
#[derive(Clone, Debug)]
pub(super) struct Emitted {
    pub(super) plan: Plan,
    /// The steps up to the end of each op that was emitted, as many on all ranks of a stage.
    pub(super) ends: Vec<usize>,
    /// The steps before each pass of a pipeline, and before what stands behind them.
    pub(super) begins: Vec<usize>,
    /// Of what is exchanged with other stages.
    pub(super) reserved: Vec<Reserved>,
}

/// The plans of all stages, by stage and rank, with products and exchanges in one call where that is faster; none if nowhere. Those
/// that are given say of each exchange why it stays apart from the product beside it.
pub(super) fn with_products(ranks: &mut [Vec<Emitted>]) -> Option<Vec<Vec<Emitted>>> {
    let find = |stage: &Vec<Emitted>| JoinCandidates::of(&stage.iter().map(|rank| &rank.plan).collect::<Vec<_>>());
    let found: Vec<JoinCandidates> = ranks.iter().map(find).collect();
    let joined = (!found.iter().all(JoinCandidates::is_empty)).then(|| ranks.to_vec());
    for (stage, found) in ranks.iter_mut().zip(&found) {
        found.note(stage.iter_mut().map(|rank| &mut rank.plan));
    }
    let mut joined = joined?;
    for (stage, found) in joined.iter_mut().zip(found) {
        let gone = found.join(stage.iter_mut().map(|rank| &mut rank.plan));
        stage.iter_mut().zip(gone).for_each(|(rank, gone)| rank.leave_out(&gone));
    }
    Some(joined)
}

/// What stays together: operators of an op between its exchanges, or one of these. The op's number among those emitted, and its own.
type Unit = (usize, usize);

impl Emitted {
    /// Forgets steps that its plan has no more.
    fn leave_out(&mut self, gone: &[usize]) {
        let places = self.ends.iter_mut().chain(&mut self.begins);
        let places = places.chain(self.reserved.iter_mut().flat_map(|of| [&mut of.steps.start, &mut of.steps.end]));
        places.for_each(|steps| *steps = left(gone, *steps));
    }

    /// The unit of each step. Outputs are behind all ops.
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

/// The units of ranks that do the same: of all, or of a stage of a pipeline.
struct StageUnits {
    /// By rank and step: its unit.
    units: Vec<Vec<usize>>,
    /// By unit: those that have to stand behind it.
    behind: Vec<Vec<usize>>,
    /// By unit: on the first rank.
    costs: Vec<UnitCost>,
    /// Bytes of the first rank's arena in the order of the program.
    before: u64,
    /// As many more it may have.
    spare: u64,
}

impl StageUnits {
    fn new(ranks: &[Emitted]) -> Self {
        let units: Vec<Vec<Unit>> = ranks.iter().map(Emitted::units).collect();
        let mut all: Vec<Unit> = units.iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        let numbers: FxHashMap<Unit, usize> = all.iter().enumerate().map(|(number, unit)| (*unit, number)).collect();
        let units: Vec<Vec<usize>> =
            units.into_iter().map(|units| units.into_iter().map(|unit| numbers[&unit]).collect()).collect();
        let mut behind: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
        let mut costs = vec![UnitCost::default(); all.len()];
        for (rank, units) in ranks.iter().zip(&units) {
            mark(rank, units, ranks.len(), &mut costs);
            order_pairs(&rank.plan, units, &mut behind);
        }
        // Of the same stages, what is sent first is received first.
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
        }
        let Emitted { plan, reserved, .. } = &ranks[0];
        price(plan, &units[0], &mut costs);
        let before = arena_bytes(plan.clone(), reserved).0;
        let held: u64 =
            plan.buffers.values().iter().filter(|slot| slot.region != Region::Arena).map(|slot| slot.bytes.0).sum();
        Self { units, behind, costs, before, spare: (held + before) / SPARE_PART }
    }

    fn queue(&self, filling: Filling, spent: u64) -> StageQueue<'_> {
        StageQueue::new(&self.costs, self.behind.clone(), filling, self.spare * spent / SPENT[0])
    }

    /// Whether the arena of the first rank is no larger than it may be.
    fn fits(&self, first: &Emitted, ordered: &Ordered<'_>, beside: &[OverlapWindow]) -> bool {
        let (plan, reserved) = moved(first.clone(), &self.units[0], ordered, beside);
        arena_bytes(plan, &reserved).0 <= self.before + self.spare
    }
}

/// Plans with their steps in another order, what is reserved of their arenas, and when all of them have ended, in microseconds.
struct Overlapped {
    plans: Vec<(Plan, Vec<Reserved>)>,
    end_us: f64,
}

/// The plans of all stages, one behind the other, with their steps in another order, and what is reserved of their arenas. Products and
/// exchanges are one call in `joined`, if any are, which counts if all stages have ended sooner by it: other operators may hide an
/// exchange better than the product beside it does.
pub(super) fn overlap(apart: Vec<Vec<Emitted>>, joined: Option<Vec<Vec<Emitted>>>) -> Vec<(Plan, Vec<Reserved>)> {
    let is_collective = |step: &Step| step.stream == StreamKind::Communication;
    if !apart.iter().flatten().any(|rank| rank.plan.steps.iter().any(is_collective)) {
        return in_order(apart);
    }
    let apart = overlapped(apart);
    match joined.map(overlapped) {
        Some(joined) if joined.end_us < apart.end_us => joined.plans,
        _ => apart.plans,
    }
}

/// Of the ways to fill the waits of a pipeline's passes the one counts by which all stages have ended first.
fn overlapped(ranks: Vec<Vec<Emitted>>) -> Overlapped {
    let stages: Vec<StageUnits> = ranks.iter().map(|ranks| StageUnits::new(ranks)).collect();
    let ways: &[Filling] = if stages.len() == 1 { &[Filling::Any] } else { &[Filling::Any, Filling::Fitting] };
    let found = ways.iter().filter_map(|filling| arranged(&stages, &ranks, *filling));
    let last_us = |all: &[(Ordered<'_>, Vec<OverlapWindow>)]| all.iter().map(|(of, _)| of.end_us()).fold(0.0, f64::max);
    let found = found.map(|found| (last_us(&found), found)).min_by(|(a, _), (b, _)| a.total_cmp(b));
    let in_passes_us = in_passes_us(&stages);
    let Some((end_us, found)) = found.filter(|(end_us, _)| stages.len() == 1 || *end_us < in_passes_us) else {
        return Overlapped { plans: in_order(ranks), end_us: in_passes_us };
    };
    let mut plans = Vec::new();
    for ((ranks, stage), (ordered, beside)) in ranks.into_iter().zip(&stages).zip(&found) {
        let ranks = ranks.into_iter().zip(&stage.units);
        plans.extend(ranks.map(|(rank, units)| moved(rank, units, ordered, beside)));
    }
    Overlapped { plans, end_us }
}

/// When all stages have ended in the order of their passes, in microseconds.
fn in_passes_us(stages: &[StageUnits]) -> f64 {
    let ordered = order(stages.iter().map(|stage| stage.queue(Filling::None, 0)).collect());
    ordered.iter().map(Ordered::end_us).fold(0.0, f64::max)
}

/// The orders of all stages and what runs beside their exchanges, if their arenas are no larger than they may be.
fn arranged<'a>(
    stages: &'a [StageUnits],
    ranks: &[Vec<Emitted>],
    filling: Filling,
) -> Option<Vec<(Ordered<'a>, Vec<OverlapWindow>)>> {
    // By stage: how much is spent, as a place in the list of what is tried.
    let mut tried = vec![0; stages.len()];
    loop {
        let spent = tried.iter().map(|at| SPENT.get(*at).copied()).collect::<Option<Vec<_>>>()?;
        let queues = stages.iter().zip(spent).map(|(stage, spent)| stage.queue(filling, spent)).collect();
        let found: Vec<(Ordered<'a>, Vec<OverlapWindow>)> = order(queues)
            .into_iter()
            .map(|ordered| {
                let beside = ordered.reserved();
                (ordered, beside)
            })
            .collect();
        let mut fits = true;
        for (at, (ordered, beside)) in found.iter().enumerate() {
            let of_stage = stages[at].fits(&ranks[at][0], ordered, beside);
            tried[at] += usize::from(!of_stage);
            fits &= of_stage;
        }
        if fits {
            return Some(found);
        }
    }
}

/// Plans in the order of the program.
pub(super) fn in_order(ranks: Vec<Vec<Emitted>>) -> Vec<(Plan, Vec<Reserved>)> {
    ranks.into_iter().flatten().map(|rank| (rank.plan, rank.reserved)).collect()
}

/// Adds the units that have to stand behind each, on one rank.
fn order_pairs(plan: &Plan, units: &[usize], behind: &mut [Vec<usize>]) {
    for (first, second) in plan.conflicts() {
        let (first, second) = (units[first], units[second]);
        if first != second {
            behind[first].push(second);
        }
    }
}

/// Says what each unit of a rank is; a stage has so many `ranks`.
fn mark(Emitted { plan, begins, .. }: &Emitted, units: &[usize], ranks: usize, costs: &mut [UnitCost]) {
    for (at, (step, unit)) in plan.steps.iter().zip(units).enumerate() {
        costs[*unit].pass = begins.partition_point(|begin| *begin <= at);
        let Action::Exchange(exchange) = &step.action else { continue };
        costs[*unit].kind = match step.stream {
            StreamKind::Transfers => {
                UnitKind::Transfer(met(plan, exchange).into_iter().map(|rank| rank / ranks).collect())
            }
            _ if exchange.product.is_some() => UnitKind::Both,
            StreamKind::Compute | StreamKind::Communication => UnitKind::Collective,
        };
    }
}

/// Adds how long each unit runs on a rank and what it touches.
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

/// The ranks that take part in an exchange; of a transfer first the one that sends.
fn met(plan: &Plan, exchange: &Collective) -> Vec<usize> {
    let ranks = &plan.groups[exchange.group];
    match exchange.kind {
        CollectiveKind::Send { to } => vec![plan.rank, ranks[to]],
        CollectiveKind::Receive { from } => vec![ranks[from], plan.rank],
        _ => ranks.clone(),
    }
}

/// An exchange has its memory while what stands beside it runs.
struct OverlapWindow {
    /// Its place in the order.
    exchange: usize,
    /// What it writes is reserved from the first of these places on, what it reads up to the last.
    places: Range<usize>,
}

impl Ordered<'_> {
    /// Of exchanges: what runs beside them, as far as there is memory for it.
    fn reserved(&self) -> Vec<OverlapWindow> {
        let (mut live, lives) = live(self.order.iter().map(|unit| &self.costs[*unit]));
        let of_kind = |kind: UnitKind| -> Vec<usize> {
            (0..self.order.len()).filter(|place| self.costs[self.order[*place]].kind == kind).collect()
        };
        let (exchanges, operators) = (of_kind(UnitKind::Collective), of_kind(UnitKind::Operators));
        let span = |place: usize| self.spans[self.order[place]];
        let mut found = Vec::with_capacity(exchanges.len());
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
            found.push(OverlapWindow { exchange, places });
        }
        found
    }
}

/// A rank's steps in the order of their units, and what is reserved, also for what runs `beside` exchanges.
fn moved(rank: Emitted, units: &[usize], ordered: &Ordered<'_>, beside: &[OverlapWindow]) -> (Plan, Vec<Reserved>) {
    let Emitted { mut plan, reserved, .. } = rank;
    let mut of_unit: Vec<Vec<usize>> = vec![Vec::new(); ordered.order.len()];
    for (step, unit) in units.iter().enumerate() {
        of_unit[*unit].push(step);
    }
    // By place: the steps before it.
    let mut begins = Vec::with_capacity(ordered.order.len() + 1);
    let mut sequence: Vec<usize> = Vec::with_capacity(plan.steps.len());
    for unit in &ordered.order {
        begins.push(sequence.len());
        sequence.append(&mut of_unit[*unit]);
    }
    begins.push(sequence.len());
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
    let mut found: Vec<Reserved> = reserved.iter().map(kept).collect();
    for OverlapWindow { exchange, places } in beside {
        let own = begins[*exchange]..begins[exchange + 1];
        for step in &plan.steps[own.clone()] {
            let Action::Exchange(exchange) = &step.action else { continue };
            let Collective { send, recv, .. } = &**exchange;
            found.push(Reserved { buffer: recv.buffer, steps: begins[places.start]..own.end });
            found.push(Reserved { buffer: send.buffer, steps: own.start..begins[places.end] });
        }
    }
    (plan, found)
}

/// A value is there behind the last step that wrote what the tap shows; taps stand in the order of the steps. `places`: by step, its new
/// place.
fn move_taps(plan: &mut Plan, places: &[usize]) {
    let mut writes: IdVec<BufferId, Vec<(Range<u64>, usize)>> = plan.buffers.ids().map(|_| Vec::new()).collect();
    for (at, step) in plan.steps.iter().enumerate() {
        for view in step.writes() {
            writes[view.buffer].push((plan.span(view).1, at));
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

    /// Products in a chain whose weights are stored cut and cast for use; in between a state is read, and then overwritten.
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
        let pins = Pins::default().value("weight*", cut).value("state", cut).value("x", cut).stored_on(&["dp"]);
        parallelize(&build.finish().unwrap(), &mesh, &pins).unwrap().lowered
    }

    fn emitted(placed: &Placed) -> Vec<Emitted> {
        let joins = Joins::of_any_memory(placed, Kernels::NONE);
        (0..placed.mesh.cards()).map(|rank| emit(placed, &joins, rank)).collect()
    }

    /// Before each product: how many exchanges.
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
        let plans = overlap(vec![emitted(&placed)], None);
        let after = exchanges_before_products(&plans[0].0);
        assert!(after.iter().zip(&before).take(5).all(|(after, before)| after > before), "{after:?}");
        // What each gather reads is kept for it while steps behind it run.
        let (plan, reserved) = &plans[0];
        let gathers = plan.steps.iter().enumerate().filter(|(_, step)| matches!(step.action, Action::Exchange(_)));
        let is_kept = |(at, step): &(usize, &Step)| {
            let reads = step.reads();
            reserved.iter().any(|of| of.buffer == reads[0].buffer && of.steps.end > at + 1)
        };
        assert!(gathers.filter(is_kept).count() >= 6, "{reserved:?}");
    }

    /// Of steps that touch the same bytes, one of them writing, the first stays the first, on every rank; and no step is lost.
    #[test]
    fn steps_that_touch_the_same_bytes_keep_their_order() {
        let placed = chain();
        for (before, (after, _)) in emitted(&placed).into_iter().zip(overlap(vec![emitted(&placed)], None)) {
            assert_eq!(before.plan.steps.len(), after.steps.len());
            let place = |step: &Step| after.steps.iter().position(|other| other == step).unwrap();
            let places: Vec<usize> = before.plan.steps.iter().map(place).collect();
            assert!(!places.is_sorted(), "nothing was moved");
            for (at, step) in before.plan.steps.iter().enumerate() {
                for (earlier, other) in before.plan.steps[..at].iter().enumerate() {
                    let touches = |writes: &Step, all: &Step| {
                        let all = all.reads().into_iter().chain(all.writes()).map(|view| view.buffer);
                        let written: Vec<BufferId> = writes.writes().into_iter().map(|view| view.buffer).collect();
                        all.into_iter().any(|buffer| written.contains(&buffer))
                    };
                    if touches(step, other) || touches(other, step) {
                        assert!(places[earlier] < places[at], "{other:?} was before {step:?}");
                    }
                }
            }
        }
    }

    /// A tap shows a value behind the step that made it, as before.
    #[test]
    fn taps_stand_behind_what_they_show() {
        let placed = chain();
        let maker = |plan: &Plan, value: ValueId| -> Option<Step> {
            let tap = plan.taps.iter().find(|tap| tap.value == value)?;
            let steps = plan.steps[..tap.after_steps].iter().rev();
            steps.into_iter().find(|step| step.writes().iter().any(|view| view.buffer == tap.view.buffer)).cloned()
        };
        for (before, (after, _)) in emitted(&placed).into_iter().zip(overlap(vec![emitted(&placed)], None)) {
            for tap in &before.plan.taps {
                assert_eq!(maker(&before.plan, tap.value), maker(&after, tap.value), "{:?}", tap.value);
            }
        }
    }
}
