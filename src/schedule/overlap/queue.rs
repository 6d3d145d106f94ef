//! Chooses the unit that runs next, on one stage or on all stages of a pipeline.
//!
//! The stage with the earliest next unit advances, so the arrival of data from other stages is
//! known. A transfer runs as soon as all its stages have reached it, so all stages share one order
//! of transfers, which guarantees progress.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::call::BufferId;

const WINDOW: usize = 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum UnitKind {
    #[default]
    Operators,
    Collective,
    /// A fused product and exchange: nothing else runs concurrently.
    Both,
    /// Transfer from the first stage to the second, or a collective of all.
    Transfer(Vec<usize>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct UnitCost {
    pub(super) us: f64,
    pub(super) kind: UnitKind,
    pub(super) pass: usize,
    pub(super) touches: Vec<(BufferId, u64)>,
}

impl UnitCost {
    pub(super) fn is_collective(&self) -> bool {
        self.kind == UnitKind::Collective
    }

    fn computes(&self) -> bool {
        matches!(self.kind, UnitKind::Operators | UnitKind::Both)
    }

    fn exchanges(&self) -> bool {
        matches!(self.kind, UnitKind::Collective | UnitKind::Both)
    }
}

/// Operators of later passes that run while an earlier pass waits for an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filling {
    /// The card waits least, but other stages may get their inputs later.
    Any,
    /// Ends before an earlier pass can continue.
    Fitting,
    /// No operator: program order.
    None,
}

pub(super) struct OrderedUnits<'a> {
    pub(super) costs: &'a [UnitCost],
    pub(super) order: Vec<usize>,
    pub(super) spans: Vec<(f64, f64)>,
    pub(super) most: u64,
}

impl OrderedUnits<'_> {
    pub(super) fn end_us(&self) -> f64 {
        self.spans.iter().map(|(_, end_us)| *end_us).fold(0.0, f64::max)
    }
}

pub(super) fn live<'a>(
    sequence: impl Iterator<Item = &'a UnitCost>,
) -> (Vec<u64>, BTreeMap<BufferId, (usize, usize)>) {
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

pub(super) fn order(mut stages: Vec<StageQueue<'_>>) -> Vec<OrderedUnits<'_>> {
    let mut next: Vec<Option<(f64, usize)>> = stages.iter().map(StageQueue::next).collect();
    loop {
        while let Some(met) = meet(&mut stages) {
            met.into_iter().for_each(|stage| next[stage] = stages[stage].next());
        }
        let known =
            next.iter().enumerate().filter_map(|(stage, next)| next.map(|(us, unit)| (us, stage, unit)));
        let Some((_, stage, unit)) = known.min_by(|(a, ..), (b, ..)| a.total_cmp(b)) else { break };
        stages[stage].take(unit);
        next[stage] = stages[stage].next();
    }
    assert!(stages.iter().all(|stage| stage.first == stage.costs.len()), "stages wait for each other");
    stages.into_iter().map(StageQueue::ordered).collect()
}

/// Runs the earliest transfer that all its stages have reached and have memory for. Returns its
/// stages.
fn meet(stages: &mut [StageQueue<'_>]) -> Option<Vec<usize>> {
    let sides = |among: &[usize]| -> Option<(f64, Vec<usize>)> {
        let units: Vec<usize> =
            among.iter().map(|stage| stages[*stage].awaiting(among)).collect::<Option<_>>()?;
        let start_us =
            |(stage, unit): (&usize, &usize)| stages[*stage].ready_us[*unit].max(stages[*stage].transfers_us);
        Some((among.iter().zip(&units).map(start_us).fold(0.0, f64::max), units))
    };
    let has_room = |(among, (_, units)): &(&[usize], (f64, Vec<usize>))| {
        among.iter().zip(units).all(|(stage, unit)| stages[*stage].has_room(*unit))
    };
    let all = stages
        .iter()
        .flat_map(StageQueue::awaited)
        .filter_map(|among| Some((among, sides(among)?)))
        .filter(has_room);
    let (among, (start_us, units)) = all.min_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b))?;
    let us = among.iter().zip(&units).map(|(stage, unit)| stages[*stage].costs[*unit].us).fold(0.0, f64::max);
    let among = among.to_vec();
    for (stage, unit) in among.iter().zip(units) {
        let stage = &mut stages[*stage];
        stage.transfers.retain(|other| *other != unit);
        stage.transfers_us = start_us + us;
        stage.take_at(unit, start_us, start_us + us);
    }
    Some(among)
}

pub(super) struct StageQueue<'a> {
    costs: &'a [UnitCost],
    filling: Filling,
    behind: Vec<Vec<usize>>,
    unmet: Vec<usize>,
    ready_us: Vec<f64>,
    spans: Vec<(f64, f64)>,
    is_taken: Vec<bool>,
    order: Vec<usize>,
    operators: BTreeSet<usize>,
    collectives: BTreeSet<usize>,
    /// Transfers between the same stages depend on each other.
    transfers: Vec<usize>,
    prepares: Vec<bool>,
    first: usize,
    live: Vec<u64>,
    most: u64,
    is_live: FxHashSet<BufferId>,
    /// Bytes of buffers that each taken unit touched first.
    holds: Vec<u64>,
    /// Sum of `holds` after `first`.
    ahead: u64,
    now_us: f64,
    link_us: f64,
    transfers_us: f64,
}

impl<'a> StageQueue<'a> {
    /// `spare` bytes may be live in addition to the peak of the program order.
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

    fn ordered(self) -> OrderedUnits<'a> {
        OrderedUnits { costs: self.costs, order: self.order, spans: self.spans, most: self.most }
    }

    fn awaited(&self) -> impl Iterator<Item = &[usize]> {
        self.transfers.iter().filter_map(|unit| match &self.costs[*unit].kind {
            UnitKind::Transfer(among) => Some(among.as_slice()),
            UnitKind::Operators | UnitKind::Collective | UnitKind::Both => None,
        })
    }

    fn awaiting(&self, among: &[usize]) -> Option<usize> {
        self.transfers
            .iter()
            .copied()
            .zip(self.awaited())
            .find(|(_, other)| *other == among)
            .map(|(unit, _)| unit)
    }

    fn offer(&mut self, unit: usize) {
        match self.costs[unit].kind {
            UnitKind::Operators | UnitKind::Both => _ = self.operators.insert(unit),
            UnitKind::Collective => _ = self.collectives.insert(unit),
            UnitKind::Transfer(_) => self.transfers.push(unit),
        }
    }

    fn with_room(&self, units: &'_ BTreeSet<usize>) -> impl Iterator<Item = usize> {
        let window = units.range(self.first..(self.first + WINDOW).min(self.costs.len())).copied();
        let most_live = window.scan((self.first, 0), |(seen, most), unit| {
            *most = self.live[*seen..=unit].iter().copied().fold(*most, u64::max);
            *seen = unit;
            Some((unit, *most))
        });
        // A unit taken ahead keeps its memory until all units before it are taken.
        let has_room = |unit: usize, most: u64| most + self.ahead + self.new_bytes(unit) <= self.most;
        most_live
            .filter(move |(unit, most)| *unit == self.first || has_room(*unit, *most))
            .map(|(unit, _)| unit)
    }

    fn has_room(&self, unit: usize) -> bool {
        let bytes = self.new_bytes(unit);
        let most_live = || self.live[self.first..=unit].iter().copied().fold(0, u64::max);
        unit == self.first || bytes == 0 || most_live() + self.ahead + bytes <= self.most
    }

    fn next(&self) -> Option<(f64, usize)> {
        let unit = self.choice()?;
        let is_settled = self.costs[unit].is_collective() && self.ready_us[unit] <= self.link_us;
        Some((if is_settled { self.now_us } else { self.free_us(unit).max(self.now_us) }, unit))
    }

    fn free_us(&self, unit: usize) -> f64 {
        let link_us = if self.costs[unit].kind == UnitKind::Both { self.link_us } else { 0.0 };
        self.ready_us[unit].max(link_us)
    }

    fn choice(&self) -> Option<usize> {
        if self.filling == Filling::None {
            let is_next = |unit: &usize| {
                !self.is_taken[*unit] && !matches!(self.costs[*unit].kind, UnitKind::Transfer(_))
            };
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

    /// An earlier pass could continue before this operator's end.
    fn delays(&self, unit: usize) -> bool {
        let UnitCost { us, pass, .. } = self.costs[unit];
        let end_us = self.free_us(unit).max(self.now_us) + us;
        let mut earlier = self.operators.range(..unit).filter(|other| self.costs[**other].pass < pass);
        self.filling == Filling::Fitting && earlier.any(|other| self.ready_us[*other] < end_us)
    }

    fn new_bytes(&self, unit: usize) -> u64 {
        let touches = self.costs[unit].touches.iter();
        touches.filter(|(buffer, _)| !self.is_live.contains(buffer)).map(|(_, bytes)| bytes).sum()
    }

    fn take(&mut self, unit: usize) {
        let (costs, ready_us) = (&self.costs[unit], self.ready_us[unit]);
        let held = [(costs.computes(), &mut self.now_us), (costs.exchanges(), &mut self.link_us)];
        let held: SmallVec<[&mut f64; 2]> =
            held.into_iter().filter_map(|(holds, us)| holds.then_some(us)).collect();
        let start_us = held.iter().map(|us| **us).fold(ready_us, f64::max);
        let end_us = start_us + costs.us;
        held.into_iter().for_each(|us| *us = end_us);
        if costs.is_collective() { &mut self.collectives } else { &mut self.operators }.remove(&unit);
        self.take_at(unit, start_us, end_us);
    }

    fn take_at(&mut self, unit: usize, start_us: f64, end_us: f64) {
        self.spans[unit] = (start_us, end_us);
        self.order.push(unit);
        for behind in std::mem::take(&mut self.behind[unit]) {
            self.ready_us[behind] = self.ready_us[behind].max(end_us);
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

/// True if a collective waits only for this unit and the units after it, and they take no longer
/// than the collective.
fn prepares(costs: &[UnitCost], behind: &[Vec<usize>]) -> Vec<bool> {
    // Time of the collective, and of the units on the way.
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
        leads[unit] =
            next.and_then(|next| leads[*next]).map(|(exchange, before)| (exchange, before + costs[unit].us));
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
        let kinds =
            [UnitKind::Operators, UnitKind::Both, UnitKind::Collective, UnitKind::Operators, UnitKind::Both];
        let costs: Vec<UnitCost> =
            kinds.into_iter().zip([10.0, 5.0, 40.0, 3.0, 7.0]).map(|(kind, us)| cost(us, kind)).collect();
        let behind = vec![vec![1], vec![], vec![], vec![4], vec![]];
        let ordered = order(vec![StageQueue::new(&costs, behind, Filling::Any, 0)]).remove(0);
        let spans = &ordered.spans;
        for both in [1, 4] {
            let (start, end) = spans[both];
            assert!(end > start);
            let others = (0..costs.len()).filter(|other| *other != both).map(|other| spans[other]);
            assert!(others.into_iter().all(|(from, to)| to <= start || end <= from), "{spans:?}");
        }
        assert!(spans[0].1 <= spans[2].1 && spans[3].1 <= spans[2].1, "{spans:?}");
        assert!((ordered.end_us() - 52.0).abs() < 1e-9, "{spans:?}");
    }
}
