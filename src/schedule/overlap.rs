//! Operators run while data is exchanged: the order of a rank's steps, and for how long the memory of exchanges is theirs alone.
//!
//! Input → output: the plans of all ranks, without offsets and events → the same steps in another order, and what is reserved of each
//! arena. Streams run in the order of steps, so an operator that waits for an exchange holds up all behind it, and what an exchange
//! waits for holds up the exchange. By the times of the cost model, what prepares an exchange comes ahead while the links are idle, and
//! an operator that would wait stands back for those that would not. An exchange then has its memory for the time in which it runs by
//! those times, so that neither it nor an operator beside it waits for bytes of the other.
//!
//! Invariants: of two steps of a rank that touch the same bytes of a buffer, one of them writing, the first stays the first, so no bit
//! changes; all ranks have one order, so also one order of exchanges; the arena of the first card, by whose times all are ordered, takes
//! a bounded number of bytes more.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ascend_tp_machine::operator::OperatorCost;
use ascend_tp_machine::{Launch, Profile, Work};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::IdVec;
use crate::program::call::BufferId;

use super::launch::launch;
use super::memory::{Reserved, assign};
use super::parts::{CHIP, exchange_us};
use super::plan::{Action, Collective, Plan, Region, Step, Tap};

/// Units among which the next is looked for.
const WINDOW: usize = 1024;

/// One part in so many of a card's bytes may be spent on what runs ahead and on memory that is reserved.
const SPARE_PART: u64 = 32;

/// A plan as it is emitted.
#[derive(Debug)]
pub(super) struct Emitted {
    pub(super) plan: Plan,
    /// By op of the program: the steps up to its end.
    pub(super) ends: Vec<usize>,
}

/// What stays together: operators of an op between its exchanges, or one of these. Of an op, its number.
type Unit = (usize, usize);

impl Emitted {
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

/// The plans with their steps in another order, and what is reserved of their arenas.
pub(super) fn overlap(emitted: Vec<Emitted>) -> Vec<(Plan, Vec<Reserved>)> {
    let is_exchange = |step: &Step| matches!(step.action, Action::Exchange(_));
    if !emitted.iter().any(|rank| rank.plan.steps.iter().any(is_exchange)) {
        return in_order(emitted);
    }
    let of_ranks: Vec<Vec<Unit>> = emitted.iter().map(Emitted::units).collect();
    let mut all: Vec<Unit> = of_ranks.iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    let numbers: FxHashMap<Unit, usize> = all.iter().enumerate().map(|(number, unit)| (*unit, number)).collect();
    let of_ranks: Vec<Vec<usize>> =
        of_ranks.into_iter().map(|units| units.into_iter().map(|unit| numbers[&unit]).collect()).collect();
    let mut behind: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    for (rank, units) in emitted.iter().zip(&of_ranks) {
        order_pairs(&rank.plan, units, &mut behind);
    }
    for of_unit in &mut behind {
        of_unit.sort_unstable();
        of_unit.dedup();
    }
    let costs = costs(&emitted[0].plan, &of_ranks[0], all.len());
    let first = &emitted[0].plan;
    let before = arena_bytes(first.clone(), &[]);
    let held: u64 =
        first.buffers.values().iter().filter(|slot| slot.region != Region::Arena).map(|slot| slot.bytes.0).sum();
    let spare = (held + before) / SPARE_PART;
    // Buffers that live at other times may leave gaps between them: then less is spent.
    for spent in [spare, spare / 2, spare / 4, 0] {
        let timed = Queue::new(&costs, behind.clone(), spent).order();
        let reserved = timed.reserved();
        let (plan, of_first) = moved(first.clone(), &of_ranks[0], &timed, &reserved);
        if arena_bytes(plan, &of_first) <= before + spare {
            let ranks = emitted.into_iter().zip(of_ranks);
            return ranks.map(|(rank, units)| moved(rank.plan, &units, &timed, &reserved)).collect();
        }
    }
    in_order(emitted)
}

/// Plans in the order of the program.
fn in_order(emitted: Vec<Emitted>) -> Vec<(Plan, Vec<Reserved>)> {
    emitted.into_iter().map(|rank| (rank.plan, Vec::new())).collect()
}

/// The bytes of a plan's arena.
fn arena_bytes(mut plan: Plan, reserved: &[Reserved]) -> u64 {
    assign(&mut plan, reserved);
    plan.region_bytes(Region::Arena).0
}

/// Bytes of a buffer that units touched.
#[derive(Clone, Default)]
struct Touched {
    reads: Vec<(Range<u64>, usize)>,
    writes: Vec<(Range<u64>, usize)>,
}

/// Adds the units that have to stand behind each, on one rank.
fn order_pairs(plan: &Plan, units: &[usize], behind: &mut [Vec<usize>]) {
    let mut touched: IdVec<BufferId, Touched> = plan.buffers.ids().map(|_| Touched::default()).collect();
    for (step, unit) in plan.steps.iter().zip(units) {
        let reads = step.reads().into_iter().map(|view| (view, false));
        for (view, is_write) in reads.chain(step.writes().into_iter().map(|view| (view, true))) {
            let (_, range) = plan.span(view);
            let past = &mut touched[view.buffer];
            let earlier = past.writes.iter().chain(past.reads.iter().filter(|_| is_write));
            for (_, other) in earlier.filter(|(other, _)| other.start < range.end && range.start < other.end) {
                if other != unit {
                    behind[*other].push(*unit);
                }
            }
            if is_write { &mut past.writes } else { &mut past.reads }.push((range, *unit));
        }
    }
}

/// What a unit costs a card.
#[derive(Clone, Debug, Default)]
struct Cost {
    /// How long it runs.
    us: f64,
    is_exchange: bool,
    /// Buffers of the arena that it touches, and their bytes.
    touches: Vec<(BufferId, u64)>,
}

fn costs(plan: &Plan, units: &[usize], count: usize) -> Vec<Cost> {
    let profile = Profile::of(CHIP);
    let mut known: FxHashMap<Launch, f64> = FxHashMap::default();
    let mut costs = vec![Cost::default(); count];
    for (step, unit) in plan.steps.iter().zip(units) {
        let cost = &mut costs[*unit];
        cost.us += match &step.action {
            Action::Launch(call) => {
                let launch = launch(call);
                *known
                    .entry(launch)
                    .or_insert_with_key(|launch| OperatorCost::of(&profile, &Work::of(launch)).duration_us)
            }
            Action::Exchange(collective) => {
                cost.is_exchange = true;
                exchange_us(&profile, collective, &plan.groups[collective.group])
            }
            Action::Record(_) | Action::Wait(_) => 0.0,
        };
        for view in step.reads().into_iter().chain(step.writes()) {
            let slot = &plan.buffers[view.buffer];
            if slot.region == Region::Arena && !cost.touches.iter().any(|(known, _)| *known == view.buffer) {
                cost.touches.push((view.buffer, slot.bytes.0));
            }
        }
    }
    costs
}

/// The bytes of the arena that are live at each unit of a sequence, and by buffer the places of the first and the last that touch it.
fn live<'a>(sequence: impl Iterator<Item = &'a Cost>) -> (Vec<u64>, BTreeMap<BufferId, (usize, usize)>) {
    let mut lives: BTreeMap<BufferId, (usize, usize)> = BTreeMap::new();
    let mut bytes: FxHashMap<BufferId, u64> = FxHashMap::default();
    let mut count = 0;
    for (at, cost) in sequence.enumerate() {
        for (buffer, of_buffer) in &cost.touches {
            lives.entry(*buffer).or_insert((at, at)).1 = at;
            bytes.insert(*buffer, *of_buffer);
        }
        count = at + 1;
    }
    let (mut more, mut fewer) = (vec![0; count], vec![0; count + 1]);
    for (buffer, (first, last)) in &lives {
        more[*first] += bytes[buffer];
        fewer[last + 1] += bytes[buffer];
    }
    let mut now = 0;
    let live = more.iter().zip(&fewer).map(|(more, fewer)| {
        now = now + more - fewer;
        now
    });
    (live.collect(), lives)
}

/// Units with an order, and when each runs by it, in microseconds.
struct Ordered<'a> {
    costs: &'a [Cost],
    order: Vec<usize>,
    spans: Vec<(f64, f64)>,
    /// Bytes of the arena that there may be.
    most: u64,
}

/// An exchange has its memory while what stands beside it runs.
struct Beside {
    /// Its place in the order.
    exchange: usize,
    /// What it writes is reserved from the first of these places on, what it reads up to the last.
    places: Range<usize>,
}

impl Ordered<'_> {
    /// Of exchanges: what runs beside them, as far as there is memory for it.
    fn reserved(&self) -> Vec<Beside> {
        let (mut live, lives) = live(self.order.iter().map(|unit| &self.costs[*unit]));
        let is_exchange = |place: &usize| self.costs[self.order[*place]].is_exchange;
        let (exchanges, operators): (Vec<usize>, Vec<usize>) = (0..self.order.len()).partition(is_exchange);
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
            found.push(Beside { exchange, places });
        }
        found
    }
}

/// A rank's steps in the order of their units.
fn moved(mut plan: Plan, units: &[usize], ordered: &Ordered<'_>, reserved: &[Beside]) -> (Plan, Vec<Reserved>) {
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
    let mut found = Vec::new();
    for Beside { exchange, places } in reserved {
        let own = begins[*exchange]..begins[exchange + 1];
        for step in &plan.steps[own.clone()] {
            let Action::Exchange(Collective { send, recv, .. }) = &step.action else { continue };
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

/// Units that are to be put into order.
struct Queue<'a> {
    costs: &'a [Cost],
    /// By unit: those that have to stand behind it.
    behind: Vec<Vec<usize>>,
    /// By unit: how many it still has to stand behind.
    unmet: Vec<usize>,
    /// By unit: when what it stands behind has ended.
    ready_us: Vec<f64>,
    /// By unit: when it runs.
    spans: Vec<(f64, f64)>,
    is_taken: Vec<bool>,
    /// Operators and exchanges that stand behind nothing.
    operators: BTreeSet<usize>,
    exchanges: BTreeSet<usize>,
    /// Of operators alone: whether an exchange waits for it and for what takes less time than that.
    prepares: Vec<bool>,
    /// The first unit that is not taken.
    first: usize,
    /// By unit: bytes of the arena that are live where all run in the order of the program.
    live: Vec<u64>,
    /// As many there may be.
    most: u64,
    /// Buffers that a unit which is taken touches.
    is_live: FxHashSet<BufferId>,
    /// By unit that is taken: the bytes of buffers that it was the first to touch.
    holds: Vec<u64>,
    /// Of those taken ahead of the first that is not: the sum of that.
    ahead: u64,
    /// When the operators taken so far have ended.
    now_us: f64,
    /// When the exchanges taken so far have ended.
    link_us: f64,
}

impl<'a> Queue<'a> {
    fn new(costs: &'a [Cost], behind: Vec<Vec<usize>>, spare: u64) -> Self {
        let count = costs.len();
        let mut unmet = vec![0; count];
        behind.iter().flatten().for_each(|unit| unmet[*unit] += 1);
        let is_ready = |unit: &usize| unmet[*unit] == 0;
        let (exchanges, operators) = (0..count).filter(is_ready).partition(|unit| costs[*unit].is_exchange);
        let (live, _) = live(costs.iter());
        let most = live.iter().copied().max().unwrap_or(0) + spare;
        Self {
            costs,
            prepares: prepares(costs, &behind),
            behind,
            unmet,
            ready_us: vec![0.0; count],
            spans: vec![(0.0, 0.0); count],
            is_taken: vec![false; count],
            operators,
            exchanges,
            first: 0,
            live,
            most,
            is_live: FxHashSet::default(),
            ahead: 0,
            holds: vec![0; count],
            now_us: 0.0,
            link_us: 0.0,
        }
    }

    fn order(mut self) -> Ordered<'a> {
        let mut order = Vec::with_capacity(self.costs.len());
        while self.first < self.costs.len() {
            let unit = self.next();
            self.take(unit);
            order.push(unit);
        }
        Ordered { costs: self.costs, order, spans: self.spans, most: self.most }
    }

    /// Those of some units that there is room for, in the order of the program.
    fn with_room(&self, units: &'_ BTreeSet<usize>) -> impl Iterator<Item = usize> {
        let window = units.range(self.first..(self.first + WINDOW).min(self.costs.len())).copied();
        let most_live = window.scan((self.first, 0), |(seen, most), unit| {
            *most = self.live[*seen..=unit].iter().copied().fold(*most, u64::max);
            *seen = unit;
            Some((unit, *most))
        });
        // What is taken ahead is held until all before it are taken.
        let has_room = |unit: usize, most: u64| most + self.ahead + self.new_bytes(unit) <= self.most;
        most_live.filter(move |(unit, most)| *unit == self.first || has_room(*unit, *most)).map(|(unit, _)| unit)
    }

    /// What runs next.
    fn next(&self) -> usize {
        let is_there = |unit: &usize| self.ready_us[*unit] <= self.now_us;
        let exchange = || self.with_room(&self.exchanges).next();
        if self.link_us <= self.now_us {
            let prepares = |unit: &usize| self.prepares[*unit] && is_there(unit);
            if let Some(unit) = exchange().or_else(|| self.with_room(&self.operators).find(prepares)) {
                return unit;
            }
        }
        let soonest = || {
            let units = self.with_room(&self.operators);
            units.min_by(|a, b| self.ready_us[*a].total_cmp(&self.ready_us[*b]))
        };
        let found = self.with_room(&self.operators).find(is_there).or_else(exchange).or_else(soonest);
        // All before it are taken, so it is one of these.
        found.unwrap_or(self.first)
    }

    /// Bytes that a unit takes of the arena.
    fn new_bytes(&self, unit: usize) -> u64 {
        let touches = self.costs[unit].touches.iter();
        touches.filter(|(buffer, _)| !self.is_live.contains(buffer)).map(|(_, bytes)| bytes).sum()
    }

    fn take(&mut self, unit: usize) {
        let Cost { us, is_exchange, ref touches } = self.costs[unit];
        let stream_us = if is_exchange { &mut self.link_us } else { &mut self.now_us };
        let start_us = self.ready_us[unit].max(*stream_us);
        *stream_us = start_us + us;
        self.spans[unit] = (start_us, start_us + us);
        if is_exchange { &mut self.exchanges } else { &mut self.operators }.remove(&unit);
        for behind in std::mem::take(&mut self.behind[unit]) {
            self.ready_us[behind] = self.ready_us[behind].max(start_us + us);
            self.unmet[behind] -= 1;
            if self.unmet[behind] == 0 {
                if self.costs[behind].is_exchange { &mut self.exchanges } else { &mut self.operators }.insert(behind);
            }
        }
        self.is_taken[unit] = true;
        let bytes = self.new_bytes(unit);
        self.is_live.extend(touches.iter().map(|(buffer, _)| *buffer));
        self.holds[unit] = bytes;
        self.ahead += bytes;
        while self.is_taken.get(self.first) == Some(&true) {
            self.ahead -= self.holds[self.first];
            self.first += 1;
        }
    }
}

/// By operator: whether an exchange waits for nothing but it and what runs behind it, and they take no longer than the exchange.
fn prepares(costs: &[Cost], behind: &[Vec<usize>]) -> Vec<bool> {
    // How long the exchange takes that a unit leads to, and how long what leads to it.
    let mut leads: Vec<Option<(f64, f64)>> = vec![None; costs.len()];
    for unit in (0..costs.len()).rev() {
        if costs[unit].is_exchange {
            leads[unit] = Some((costs[unit].us, 0.0));
            continue;
        }
        let exchange = behind[unit].iter().find(|behind| costs[**behind].is_exchange);
        let next = exchange.or(if behind[unit].len() == 1 { behind[unit].first() } else { None });
        leads[unit] = next.and_then(|next| leads[*next]).map(|(exchange, before)| (exchange, before + costs[unit].us));
    }
    let is_short = |lead: Option<(f64, f64)>| lead.is_some_and(|(exchange, before)| before <= exchange);
    leads.into_iter().map(is_short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{DType, Kernels};
    use crate::collective::parallelize;
    use crate::placement::{Mesh, Pins, Placed};
    use crate::program::op::Kind;
    use crate::program::{Builder, ValueId};
    use crate::schedule::emit::emit;
    use crate::schedule::join::Joins;
    use crate::schedule::plan::Call;

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
                Action::Launch(Call::Matmul { .. }) => found.push(exchanges),
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
        let plans = overlap(emitted(&placed));
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
        for (before, (after, _)) in emitted(&placed).into_iter().zip(overlap(emitted(&placed))) {
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
        for (before, (after, _)) in emitted(&placed).into_iter().zip(overlap(emitted(&placed))) {
            for tap in &before.plan.taps {
                assert_eq!(maker(&before.plan, tap.value), maker(&after, tap.value), "{:?}", tap.value);
            }
        }
    }
}
