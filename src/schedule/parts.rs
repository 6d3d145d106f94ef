//! Assigns ops to model parts, and distributes layers over the parts by predicted time.
//!
//! Invariants: an op that reads only inputs belongs to no part and runs wherever its result is
//! read. A movement belongs to the part that computes its operand.

use std::collections::BTreeMap;
use std::ops::Range;

use ascend_tp_machine::operator::OperatorCost;
use ascend_tp_machine::{CollectiveCost, Exchange, Profile, Soc, Topology, Work};

use super::Ranks;
use super::emit::{OpPhase, OpPlace, Staged, StagedStep, emit};
use super::join::Joins;
use super::launch::{exchange, launch, product};
use super::pipeline::Pass;
use super::plan::{Action, Collective, Plan};
use crate::base::Id;
use crate::placement::Placed;
use crate::program::{Op, Program, Role, ValueId};

/// Another chip changes the times of all layers by nearly the same factor.
pub(super) const CHIP: Soc = Soc::Ascend910B3;

/// Layers by model part. Ops before the layers belong to the first part, ops after them to the
/// last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Number of parts in the model.
    pub parts: usize,
    /// Part of each layer, ascending.
    pub of_layer: Vec<usize>,
}

impl Cut {
    /// Returns the cut into one part.
    #[must_use]
    pub fn whole(layers: usize) -> Self {
        Self { parts: 1, of_layer: vec![0; layers] }
    }

    fn part(&self, layers: &[Range<usize>], op: usize) -> usize {
        match layers.iter().position(|ops| op < ops.end) {
            Some(layer) if layers[layer].contains(&op) => self.of_layer[layer],
            Some(_) => 0,
            None => self.parts - 1,
        }
    }

    /// Minimises the longest part. `before` and `behind` are the times around the layers. Needs at
    /// least as many layers as parts. On a tie, earlier parts have more layers.
    #[must_use]
    fn balanced(before: f64, layers: &[f64], behind: f64, parts: usize) -> Self {
        let sums: Vec<f64> = std::iter::once(0.0)
            .chain(layers.iter().scan(0.0, |sum, layer| {
                *sum += layer;
                Some(*sum)
            }))
            .collect();
        let count = layers.len();
        let takes = |part: usize, ops: Range<usize>| {
            let ends = if part == 0 { before } else { 0.0 } + if part + 1 == parts { behind } else { 0.0 };
            sums[ops.end] - sums[ops.start] + ends
        };
        // `best[part][end]`: the longest of parts `0..=part` over layers `0..end`, and the first
        // layer of `part`.
        let mut best = vec![vec![(f64::INFINITY, 0); count + 1]; parts];
        for part in 0..parts {
            for end in part + 1..=count {
                for start in if part == 0 { 0..1 } else { part..end } {
                    let so_far = if part == 0 { 0.0 } else { best[part - 1][start].0 };
                    let longest = takes(part, start..end).max(so_far);
                    if longest <= best[part][end].0 {
                        best[part][end] = (longest, start);
                    }
                }
            }
        }
        let mut of_layer = vec![0; count];
        let mut end = count;
        for part in (0..parts).rev() {
            let start = best[part][end].1;
            of_layer[start..end].fill(part);
            end = start;
        }
        Self { parts, of_layer }
    }
}

/// `made` comes from [`PartMarks::of_forward`] with one part per layer. Forward times suffice,
/// because the gradients of an op take about twice its time.
pub(crate) fn cut(lowered: &Placed, made: &PartMarks, layers: usize, parts: usize) -> Cut {
    let mut times = vec![0.0; layers + 2];
    for (place, us) in pass_times(lowered, &made.places(&lowered.program), &|_, _| 0.0) {
        times[place.part] += us;
    }
    Cut::balanced(times[0], &times[1..=layers], times[layers + 1], parts)
}

fn pass_times(
    lowered: &Placed,
    places: &[Option<OpPlace>],
    exchange_us: &dyn Fn(&Collective, &[usize]) -> f64,
) -> BTreeMap<OpPlace, f64> {
    let profile = Profile::of(CHIP);
    let mut times = BTreeMap::new();
    let Plan { steps, groups, .. } = emit(lowered, &Joins::default(), 0, Ranks::First).plan;
    for step in steps {
        let Some(place) = places.get(step.op.index()).copied().flatten() else { continue };
        *times.entry(place).or_insert(0.0) += match &step.action {
            Action::Launch(call) => OperatorCost::of(&profile, &Work::of(&launch(call))).duration_us,
            Action::Exchange(collective) => exchange_us(collective, &groups[collective.group]),
            Action::Record(_) | Action::Wait(_) => 0.0,
        };
    }
    times
}

pub(super) fn exchange_us(profile: &Profile, collective: &Collective, ranks: &[usize]) -> f64 {
    let topology = Topology::atlas_a2_of(ranks.iter().max().map_or(1, |last| last + 1));
    let (exchange, bytes) = exchange(collective);
    let alone = CollectiveCost::of(profile, &topology, exchange, bytes, ranks);
    let Some(product) = product(collective) else { return alone.duration_us };
    let product_us = OperatorCost::of(profile, &Work::of(&product)).duration_us;
    product_us + alone.beside(product_us).duration_us
}

#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    passes_us: BTreeMap<OpPlace, f64>,
    pub(super) transfer_us: f64,
}

impl Times {
    pub(super) fn pass_us(&self, part: usize, pass: Pass) -> f64 {
        let of = |when| self.passes_us.get(&OpPlace { part, when }).copied().unwrap_or_default();
        match pass {
            Pass::Forward => of(OpPhase::Forward),
            Pass::InputGrad => of(OpPhase::InputGrad),
            Pass::WeightGrad => of(OpPhase::WeightGrad),
            Pass::Backward => of(OpPhase::InputGrad) + of(OpPhase::WeightGrad),
        }
    }
}

pub(super) fn times(step: &StagedStep<'_>) -> Times {
    let Some(Staged { placed, places, .. }) = step.programs.first() else { return Times::default() };
    let mut sent_bytes = 0.0;
    let mut is_sent = vec![false; placed.program.values.len()];
    let part_of =
        |at: usize| places.get(at).copied().flatten().filter(|place| place.when == OpPhase::Forward);
    let mut made: Vec<Option<usize>> = vec![None; placed.program.values.len()];
    for (id, op) in placed.program.ops.iter() {
        let Some(OpPlace { part, .. }) = part_of(id.index()) else { continue };
        op.results.iter().for_each(|result| made[result.index()] = Some(part));
        for operand in op.operands.iter().filter(|operand| part == 1 && made[operand.index()] == Some(0)) {
            if !std::mem::replace(&mut is_sent[operand.index()], true) {
                let value = &placed.program.values[*operand];
                let local = placed.layouts[*operand].local_shape(&placed.mesh, &value.shape, 0);
                sent_bytes += (local.elems() * value.dtype.size_bytes()) as f64;
            }
        }
    }
    let (profile, inner) = (Profile::of(CHIP), placed.mesh.cards());
    // Stages occupy consecutive cards, on servers of eight.
    let topology = Topology::atlas_a2_of(2 * inner);
    let cost = |exchange, bytes, cards: &[usize]| {
        CollectiveCost::of(&profile, &topology, exchange, bytes, cards).duration_us
    };
    let passes_us = pass_times(placed, places, &|collective, ranks| exchange_us(&profile, collective, ranks));
    Times { passes_us, transfer_us: cost(Exchange::SendRecv, sent_bytes, &[0, inner]) }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PartMarks {
    pub(crate) places: Vec<Option<OpPlace>>,
    pub(crate) parts: Vec<Option<usize>>,
}

impl PartMarks {
    pub(crate) fn of_forward(program: &Program, layers: &[Range<usize>], forward: usize, cut: &Cut) -> Self {
        let mut marks = Self::default();
        for (id, op) in program.ops.iter().take(forward) {
            marks.grow(program);
            let reads_own = |operand: &ValueId| {
                program.values[*operand].role == Role::Param || marks.parts[operand.index()].is_some()
            };
            if op.operands.iter().any(reads_own) {
                marks.mark(
                    program,
                    op,
                    OpPlace { part: cut.part(layers, id.index()), when: OpPhase::Forward },
                );
            }
        }
        marks.grow(program);
        marks
    }

    pub(crate) fn grow(&mut self, program: &Program) {
        self.places.resize(program.values.len(), None);
        self.parts.resize(program.values.len(), None);
    }

    pub(crate) fn mark(&mut self, program: &Program, op: &Op, place: OpPlace) {
        for result in &op.results {
            (self.places[result.index()], self.parts[result.index()]) = (Some(place), Some(place.part));
        }
        let is_kept =
            |operand: &&ValueId| matches!(program.values[**operand].role, Role::Param | Role::State);
        for operand in op.operands.iter().filter(is_kept) {
            self.parts[operand.index()].get_or_insert(place.part);
        }
    }

    pub(crate) fn homes(&self, program: &Program) -> BTreeMap<String, usize> {
        let kept = program.values.iter().filter(|(_, value)| matches!(value.role, Role::Param | Role::State));
        kept.filter_map(|(id, value)| Some((value.name.clone(), (*self.parts.get(id.index())?)?))).collect()
    }

    pub(crate) fn places(&self, program: &Program) -> Vec<Option<OpPlace>> {
        let mut made = self.places.clone();
        made.resize(program.values.len(), None);
        let place = |op: &Op| {
            let own = op.results.iter().find_map(|result| made[result.index()]);
            let moved = || op.operands.iter().filter_map(|operand| made[operand.index()]).max();
            let place = if op.kind.is_movement() { own.or_else(moved) } else { own };
            op.results.iter().for_each(|result| made[result.index()] = place);
            place
        };
        program.ops.values().iter().map(place).collect()
    }
}

/// Codes per part in [`PartMarks::apart`]: no place, and each [`OpPhase`].
const NUMBERS: usize = 1 + OpPhase::Update as usize + 1;

impl PartMarks {
    /// Numbers that differ between ops of different parts or phases.
    pub(crate) fn apart(&self, program: &Program) -> Vec<usize> {
        let mut parts = self.parts.clone();
        parts.resize(program.values.len(), None);
        let number = |(op, place): (&Op, Option<OpPlace>)| {
            let part = op.operands.iter().find_map(|operand| parts[operand.index()]);
            for result in &op.results {
                parts[result.index()] = parts[result.index()].or(part);
            }
            match (place, part) {
                (Some(OpPlace { part, when }), _) => 1 + NUMBERS * part + 1 + when as usize,
                // Movements of a weight have a part but no place.
                (None, Some(part)) => 1 + NUMBERS * part,
                (None, None) => 0,
            }
        };
        program.ops.values().iter().zip(self.places(program)).map(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(before: f64, layers: &[f64], behind: f64, parts: usize) -> Vec<usize> {
        Cut::balanced(before, layers, behind, parts).of_layer
    }

    #[test]
    fn layers_are_shared_out_by_time_with_what_stands_at_the_ends() {
        assert_eq!(cut(0.0, &[1.0; 4], 0.0, 2), [0, 0, 1, 1]);
        assert_eq!(cut(0.0, &[1.0; 6], 2.0, 2), [0, 0, 0, 0, 1, 1]);
        assert_eq!(cut(2.0, &[1.0; 6], 0.0, 2), [0, 0, 1, 1, 1, 1]);
        assert_eq!(cut(0.0, &[1.0; 3], 0.0, 2).iter().filter(|part| **part == 0).count(), 2);
        assert_eq!(cut(9.0, &[1.0; 3], 9.0, 3), [0, 1, 2], "every part has a layer");
        assert_eq!(cut(0.1, &[1.0; 7], 0.4, 1), [0; 7]);
    }

    #[test]
    fn no_cut_is_more_even() {
        let layers = [3.0, 1.0, 2.0, 2.0, 5.0, 1.0, 1.0];
        let (before, behind) = (1.5, 2.5);
        for parts in 1..=4 {
            let longest = |of_layer: &[usize]| {
                let mut times = vec![0.0; parts];
                of_layer.iter().zip(layers).for_each(|(part, layer)| times[*part] += layer);
                times[0] += before;
                times[parts - 1] += behind;
                times.into_iter().fold(0.0, f64::max)
            };
            let mut least = f64::INFINITY;
            for choice in 0..1_u32 << (layers.len() - 1) {
                let cuts: Vec<usize> =
                    (0..layers.len()).map(|at| (choice & ((1 << at) - 1)).count_ones() as usize).collect();
                if cuts.last() == Some(&(parts - 1)) {
                    least = least.min(longest(&cuts));
                }
            }
            let found = Cut::balanced(before, &layers, behind, parts);
            assert_eq!(longest(&found.of_layer), least, "{parts} parts: {found:?}");
        }
    }
}
