//! Which unit runs next, on one stage or on all stages of a pipeline at once.
//!
//! Input → output: of each stage what its units cost and which stand behind which → its order of them, and when each runs by it. Each
//! stage has a clock, and of all stages that one goes on whose next unit runs first: so whatever another stage sends is known when it is
//! there. Invariants: a transfer takes place as soon as all its stages have come to it, and stands in the orders of all of them where it
//! did, so that all have their transfers in one common order; stages whose programs have such an order come to their ends.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::call::BufferId;

/// Units among which the next is looked for.
const WINDOW: usize = 1024;

/// What a unit is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum UnitKind {
    #[default]
    Operators,
    /// Among cards of a stage.
    Collective,
    /// Operators that exchange too among cards of a stage, in one call: neither operators nor collectives run beside them.
    Both,
    /// Among these stages: from the first to the second, or all.
    Transfer(Vec<usize>),
}

/// What a unit costs a card.
#[derive(Clone, Debug, Default)]
pub(super) struct UnitCost {
    /// How long it runs.
    pub(super) us: f64,
    pub(super) kind: UnitKind,
    /// The pass of a pipeline that it is of, in their order.
    pub(super) pass: usize,
    /// Buffers of the arena that it touches, and their bytes.
    pub(super) touches: Vec<(BufferId, u64)>,
}

impl UnitCost {
    pub(super) fn is_collective(&self) -> bool {
        self.kind == UnitKind::Collective
    }

    /// Whether no operator runs beside it.
    fn computes(&self) -> bool {
        matches!(self.kind, UnitKind::Operators | UnitKind::Both)
    }

    /// Whether no collective runs beside it.
    fn exchanges(&self) -> bool {
        matches!(self.kind, UnitKind::Collective | UnitKind::Both)
    }
}

/// Which operators of later passes run while one waits for an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filling {
    /// Any: cards wait least, and other stages may get later what they wait for.
    Any,
    /// Those that end before an earlier pass can go on.
    Fitting,
    /// None: all run in the order of the program.
    None,
}

/// Units with an order, and when each runs by it, in microseconds.
pub(super) struct Ordered<'a> {
    pub(super) costs: &'a [UnitCost],
    pub(super) order: Vec<usize>,
    pub(super) spans: Vec<(f64, f64)>,
    /// Bytes of the arena that there may be.
    pub(super) most: u64,
}

impl Ordered<'_> {
    /// When all have run.
    pub(super) fn end_us(&self) -> f64 {
        self.spans.iter().map(|(_, end_us)| *end_us).fold(0.0, f64::max)
    }
}

/// The bytes of the arena that are live at each unit of a sequence, and by buffer the places of the first and the last that touch it.
pub(super) fn live<'a>(sequence: impl Iterator<Item = &'a UnitCost>) -> (Vec<u64>, BTreeMap<BufferId, (usize, usize)>) {
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

/// Puts the units of all stages into order.
pub(super) fn order(mut stages: Vec<StageQueue<'_>>) -> Vec<Ordered<'_>> {
    let mut next: Vec<Option<(f64, usize)>> = stages.iter().map(StageQueue::next).collect();
    loop {
        while let Some(met) = meet(&mut stages) {
            met.into_iter().for_each(|stage| next[stage] = stages[stage].next());
        }
        let known = next.iter().enumerate().filter_map(|(stage, next)| next.map(|(us, unit)| (us, stage, unit)));
        let Some((_, stage, unit)) = known.min_by(|(a, ..), (b, ..)| a.total_cmp(b)) else { break };
        stages[stage].take(unit);
        next[stage] = stages[stage].next();
    }
    debug_assert!(stages.iter().all(|stage| stage.first == stage.costs.len()), "stages wait for each other");
    stages.into_iter().map(StageQueue::ordered).collect()
}

/// Lets the transfer take place that can begin first of those to which all their stages have come with room for it; the answer are its
/// stages.
fn meet(stages: &mut [StageQueue<'_>]) -> Option<Vec<usize>> {
    let sides = |among: &[usize]| -> Option<(f64, Vec<usize>)> {
        let units: Vec<usize> = among.iter().map(|stage| stages[*stage].awaiting(among)).collect::<Option<_>>()?;
        let start_us =
            |(stage, unit): (&usize, &usize)| stages[*stage].ready_us[*unit].max(stages[*stage].transfers_us);
        Some((among.iter().zip(&units).map(start_us).fold(0.0, f64::max), units))
    };
    let has_room = |(among, (_, units)): &(&[usize], (f64, Vec<usize>))| {
        among.iter().zip(units).all(|(stage, unit)| stages[*stage].has_room(*unit))
    };
    let all =
        stages.iter().flat_map(StageQueue::awaited).filter_map(|among| Some((among, sides(among)?))).filter(has_room);
    let (among, (start_us, units)) = all.min_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b))?;
    let us = among.iter().zip(&units).map(|(stage, unit)| stages[*stage].costs[*unit].us).fold(0.0, f64::max);
    let among = among.to_vec();
    for (stage, unit) in among.iter().zip(units) {
        let stage = &mut stages[*stage];
        stage.transfers.retain(|other| *other != unit);
        stage.transfers_us = start_us + us;
        stage.take_at(unit, (start_us, start_us + us));
    }
    Some(among)
}

/// Units of a stage that are to be put into order.
pub(super) struct StageQueue<'a> {
    costs: &'a [UnitCost],
    filling: Filling,
    /// By unit: those that have to stand behind it.
    behind: Vec<Vec<usize>>,
    /// By unit: how many it still has to stand behind.
    unmet: Vec<usize>,
    /// By unit: when what it stands behind has ended.
    ready_us: Vec<f64>,
    /// By unit: when it runs.
    spans: Vec<(f64, f64)>,
    is_taken: Vec<bool>,
    /// Those that are taken.
    order: Vec<usize>,
    /// What computes and stands behind nothing, and what exchanges alone.
    operators: BTreeSet<usize>,
    collectives: BTreeSet<usize>,
    /// Transfers that stand behind nothing: those among the same stages stand behind each other.
    transfers: Vec<usize>,
    /// Whether a collective waits for an operator and for what takes less time than that, or is one with it.
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
    /// When what computes and was taken so far has ended.
    now_us: f64,
    /// When what exchanges and was taken so far has ended.
    link_us: f64,
    /// When the transfers taken so far have ended.
    transfers_us: f64,
}

impl<'a> StageQueue<'a> {
    /// Units in the order of the program, and so many bytes that may be live beyond those that are in that order.
    pub(super) fn new(costs: &'a [UnitCost], behind: Vec<Vec<usize>>, filling: Filling, spare: u64) -> Self {
        let count = costs.len();
        let mut unmet = vec![0; count];
        behind.iter().flatten().for_each(|unit| unmet[*unit] += 1);
        let (live, _) = live(costs.iter());
        let most = live.iter().copied().max().unwrap_or(0) + spare;
        let mut queue = Self {
            costs,
            filling,
            prepares: prepares(costs, &behind),
            behind,
            unmet,
            ready_us: vec![0.0; count],
            spans: vec![(0.0, 0.0); count],
            is_taken: vec![false; count],
            order: Vec::with_capacity(count),
            operators: BTreeSet::new(),
            collectives: BTreeSet::new(),
            transfers: Vec::new(),
            first: 0,
            live,
            most,
            is_live: FxHashSet::default(),
            holds: vec![0; count],
            ahead: 0,
            now_us: 0.0,
            link_us: 0.0,
            transfers_us: 0.0,
        };
        for unit in 0..count {
            if queue.unmet[unit] == 0 {
                queue.offer(unit);
            }
        }
        queue
    }

    fn ordered(self) -> Ordered<'a> {
        Ordered { costs: self.costs, order: self.order, spans: self.spans, most: self.most }
    }

    /// The stages of each transfer that stands behind nothing.
    fn awaited(&self) -> impl Iterator<Item = &[usize]> {
        self.transfers.iter().filter_map(|unit| match &self.costs[*unit].kind {
            UnitKind::Transfer(among) => Some(among.as_slice()),
            UnitKind::Operators | UnitKind::Collective | UnitKind::Both => None,
        })
    }

    /// The transfer among these stages that stands behind nothing.
    fn awaiting(&self, among: &[usize]) -> Option<usize> {
        self.transfers.iter().copied().zip(self.awaited()).find(|(_, other)| *other == among).map(|(unit, _)| unit)
    }

    /// A unit stands behind nothing any more.
    fn offer(&mut self, unit: usize) {
        match self.costs[unit].kind {
            UnitKind::Operators | UnitKind::Both => _ = self.operators.insert(unit),
            UnitKind::Collective => _ = self.collectives.insert(unit),
            UnitKind::Transfer(_) => self.transfers.push(unit),
        }
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

    /// Whether there is room for a transfer.
    fn has_room(&self, unit: usize) -> bool {
        let bytes = self.new_bytes(unit);
        let most_live = || self.live[self.first..=unit].iter().copied().fold(0, u64::max);
        unit == self.first || bytes == 0 || most_live() + self.ahead + bytes <= self.most
    }

    /// What runs next of what stands behind nothing and is no transfer, and when; none: all waits for other stages.
    fn next(&self) -> Option<(f64, usize)> {
        let unit = self.choice()?;
        let is_settled = self.costs[unit].is_collective() && self.ready_us[unit] <= self.link_us;
        Some((if is_settled { self.now_us } else { self.free_us(unit).max(self.now_us) }, unit))
    }

    /// When what a unit stands behind has ended, and of one that computes and exchanges the links are free too.
    fn free_us(&self, unit: usize) -> f64 {
        let link_us = if self.costs[unit].kind == UnitKind::Both { self.link_us } else { 0.0 };
        self.ready_us[unit].max(link_us)
    }

    fn choice(&self) -> Option<usize> {
        if self.filling == Filling::None {
            let is_next =
                |unit: &usize| !self.is_taken[*unit] && !matches!(self.costs[*unit].kind, UnitKind::Transfer(_));
            let is_ready = |unit: &usize| self.operators.contains(unit) || self.collectives.contains(unit);
            return (self.first..self.costs.len()).find(is_next).filter(is_ready);
        }
        let is_there = |unit: &usize| self.free_us(*unit) <= self.now_us;
        let link_us = self.link_us.max(self.now_us);
        let collective = || self.with_room(&self.collectives).find(|unit| self.ready_us[*unit] <= link_us);
        if self.link_us <= self.now_us {
            let prepares = |unit: &usize| self.prepares[*unit] && is_there(unit);
            if let Some(unit) = collective().or_else(|| self.with_room(&self.operators).find(prepares)) {
                return Some(unit);
            }
        }
        let operators = || self.with_room(&self.operators).filter(|unit| !self.delays(*unit));
        let soonest = || {
            let units = operators().chain(self.with_room(&self.collectives));
            units.min_by(|a, b| self.free_us(*a).total_cmp(&self.free_us(*b)))
        };
        operators().find(is_there).or_else(collective).or_else(soonest)
    }

    /// Whether an earlier pass could go on before an operator ends, and that is not wanted.
    fn delays(&self, unit: usize) -> bool {
        let UnitCost { us, pass, .. } = self.costs[unit];
        let end_us = self.free_us(unit).max(self.now_us) + us;
        let mut earlier = self.operators.range(..unit).filter(|other| self.costs[**other].pass < pass);
        self.filling == Filling::Fitting && earlier.any(|other| self.ready_us[*other] < end_us)
    }

    /// Bytes that a unit takes of the arena.
    fn new_bytes(&self, unit: usize) -> u64 {
        let touches = self.costs[unit].touches.iter();
        touches.filter(|(buffer, _)| !self.is_live.contains(buffer)).map(|(_, bytes)| bytes).sum()
    }

    /// Takes operators or a collective.
    fn take(&mut self, unit: usize) {
        let (costs, ready_us) = (&self.costs[unit], self.ready_us[unit]);
        let held = [(costs.computes(), &mut self.now_us), (costs.exchanges(), &mut self.link_us)];
        let held: SmallVec<[&mut f64; 2]> = held.into_iter().filter_map(|(holds, us)| holds.then_some(us)).collect();
        let start_us = held.iter().map(|us| **us).fold(ready_us, f64::max);
        let end_us = start_us + costs.us;
        held.into_iter().for_each(|us| *us = end_us);
        if costs.is_collective() { &mut self.collectives } else { &mut self.operators }.remove(&unit);
        self.take_at(unit, (start_us, end_us));
    }

    fn take_at(&mut self, unit: usize, span: (f64, f64)) {
        self.spans[unit] = span;
        self.order.push(unit);
        for behind in std::mem::take(&mut self.behind[unit]) {
            self.ready_us[behind] = self.ready_us[behind].max(span.1);
            self.unmet[behind] -= 1;
            if self.unmet[behind] == 0 {
                self.offer(behind);
            }
        }
        self.is_taken[unit] = true;
        let bytes = self.new_bytes(unit);
        self.is_live.extend(self.costs[unit].touches.iter().map(|(buffer, _)| *buffer));
        self.holds[unit] = bytes;
        self.ahead += bytes;
        while self.is_taken.get(self.first) == Some(&true) {
            self.ahead -= self.holds[self.first];
            self.first += 1;
        }
    }
}

/// By unit: whether a collective waits for nothing but it and what runs behind it, and they take no longer than the collective.
fn prepares(costs: &[UnitCost], behind: &[Vec<usize>]) -> Vec<bool> {
    // How long the collective takes that a unit leads to, and how long what leads to it.
    let mut leads: Vec<Option<(f64, f64)>> = vec![None; costs.len()];
    for unit in (0..costs.len()).rev() {
        match costs[unit].kind {
            UnitKind::Operators => {}
            UnitKind::Collective | UnitKind::Both => {
                leads[unit] = Some((costs[unit].us, 0.0));
                continue;
            }
            UnitKind::Transfer(_) => continue,
        }
        let collective = behind[unit].iter().find(|behind| costs[**behind].exchanges());
        let next = collective.or(if behind[unit].len() == 1 { behind[unit].first() } else { None });
        leads[unit] = next.and_then(|next| leads[*next]).map(|(exchange, before)| (exchange, before + costs[unit].us));
    }
    let is_short = |lead: Option<(f64, f64)>| lead.is_some_and(|(exchange, before)| before <= exchange);
    leads.into_iter().map(is_short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_runs_beside_a_call_that_computes_and_exchanges() {
        let cost = |us: f64, kind: UnitKind| UnitCost { us, kind, ..UnitCost::default() };
        let kinds = [UnitKind::Operators, UnitKind::Both, UnitKind::Collective, UnitKind::Operators, UnitKind::Both];
        let costs: Vec<UnitCost> =
            kinds.into_iter().zip([10.0, 5.0, 40.0, 3.0, 7.0]).map(|(kind, us)| cost(us, kind)).collect();
        // The second call waits for the operator before it alone.
        let behind = vec![vec![1], vec![], vec![], vec![4], vec![]];
        let ordered = order(vec![StageQueue::new(&costs, behind, Filling::Any, 0)]).remove(0);
        let spans = &ordered.spans;
        for both in [1, 4] {
            let (start, end) = spans[both];
            assert!(end > start);
            let others = (0..costs.len()).filter(|other| *other != both).map(|other| spans[other]);
            assert!(others.into_iter().all(|(from, to)| to <= start || end <= from), "{spans:?}");
        }
        // The operators run while the collective does, and the calls behind it.
        assert!(spans[0].1 <= spans[2].1 && spans[3].1 <= spans[2].1, "{spans:?}");
        assert!((ordered.end_us() - 52.0).abs() < 1e-9, "{spans:?}");
    }
}
