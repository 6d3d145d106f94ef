//! Which stage of a pipeline does what: layers shared out by predicted time, and the part of the model that each op is of.
//!
//! Input → output: the loss program on a stage's mesh → [`Cut`], as even as whole layers allow; a program with its forward ops and
//! their adjoints → by value, where it is made. Invariants: an adjoint is of the part that its op is of; what moves a weight is of
//! the weight's part; an op that reads nothing but inputs is of none, and runs wherever it is read.

use std::collections::BTreeMap;
use std::ops::Range;

use ascend_tp_machine::operator::OperatorCost;
use ascend_tp_machine::{Profile, Soc, Work};

use crate::base::Id;
use crate::placement::Placed;
use crate::program::{Kind, Op, OpId, Program, Role, ValueId};
use crate::schedule::launch::launch;
use crate::schedule::plan::Action;
use crate::schedule::{Place, When, steps};

use super::layouts::param_of;

/// The axis of a pipeline's stages.
pub const PIPELINE: &str = "pp";

/// The chip that times are predicted for: which one it is changes them by nearly the same factor in all layers.
const CHIP: Soc = Soc::Ascend910B3;

/// Layers by part of the model. What stands before the layers is of the first part, what stands behind them of the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// How many parts.
    pub parts: usize,
    /// By layer; ascending.
    pub of_layer: Vec<usize>,
}

impl Cut {
    /// A model in one part.
    #[must_use]
    pub fn whole(layers: usize) -> Self {
        Self { parts: 1, of_layer: vec![0; layers] }
    }

    /// The part of a forward op of a program with these ops by layer.
    fn part(&self, layers: &[Range<usize>], op: usize) -> usize {
        match layers.iter().position(|ops| op < ops.end) {
            Some(layer) if layers[layer].contains(&op) => self.of_layer[layer],
            Some(_) => 0,
            None => self.parts - 1,
        }
    }

    /// The cut whose longest part takes least, by the times of what stands before the layers, of each layer, and of what stands behind
    /// them; there are as many layers as parts at least. Among equals the earlier parts have more.
    #[must_use]
    pub fn balanced(before: f64, layers: &[f64], behind: f64, parts: usize) -> Self {
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
        // By part and number of layers up to its end: the longest part so far, and where the last of them begins.
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

/// The cut of a model whose loss, lowered on the mesh of a stage, is this program; `made` as [`Marks::of_loss`] with each layer a
/// part of its own gives it. Gradients take twice as long as what they are of, wherever it is, so forward times decide.
pub(super) fn cut(lowered: &Placed, made: &Marks, layers: usize, parts: usize) -> Cut {
    let profile = Profile::of(CHIP);
    let places = made.places(&lowered.program);
    let mut times = vec![0.0; layers + 2];
    for step in steps(lowered, 0) {
        let place = places.get(step.op.index()).copied().flatten();
        if let (Action::Launch(call), Some(Place { part, .. })) = (&step.action, place) {
            times[part] += OperatorCost::of(&profile, &Work::of(&launch(call))).duration_us;
        }
    }
    Cut::balanced(times[0], &times[1..=layers], times[layers + 1], parts)
}

/// Where the values of a program are made.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    /// By value that an op makes.
    places: Vec<Option<Place>>,
    /// By value: the part it is of, also of params and states.
    parts: Vec<Option<usize>>,
}

impl Marks {
    /// Of forward ops, the first ones of a program.
    pub(super) fn of_loss(program: &Program, layers: &[Range<usize>], forward: usize, cut: &Cut) -> Self {
        let mut marks = Self::default();
        for (id, op) in program.ops.iter().take(forward) {
            marks.grow(program);
            let reads_own = |operand: &ValueId| {
                program.values[*operand].role == Role::Param || marks.parts[operand.index()].is_some()
            };
            if op.operands.iter().any(reads_own) {
                marks.mark(program, op, Place { part: cut.part(layers, id.index()), when: When::Forward });
            }
        }
        marks.grow(program);
        marks
    }

    /// Of no op; params are of these parts, by name.
    pub(super) fn of_params(program: &Program, parts: &BTreeMap<String, usize>) -> Self {
        let mut marks = Self::default();
        marks.grow(program);
        for id in program.with_role(Role::Param) {
            marks.parts[id.index()] = parts.get(&program.values[id].name).copied();
        }
        marks
    }

    fn grow(&mut self, program: &Program) {
        self.places.resize(program.values.len(), None);
        self.parts.resize(program.values.len(), None);
    }

    fn mark(&mut self, program: &Program, op: &Op, place: Place) {
        for result in &op.results {
            (self.places[result.index()], self.parts[result.index()]) = (Some(place), Some(place.part));
        }
        for operand in op.operands.iter().filter(|operand| program.values[**operand].role == Role::Param) {
            self.parts[operand.index()].get_or_insert(place.part);
        }
    }

    /// Goes on with the adjoints behind `forward` ops: those that some earlier part of the model waits for come first.
    pub(super) fn adjoints(&mut self, program: &Program, forward: usize, adjoint_of: &[OpId]) {
        self.grow(program);
        let ops = || adjoint_of.iter().zip(forward..).map(|(of, at)| (*of, &program.ops[OpId::from_index(at)]));
        // By op that is written: its part.
        let mut own: Vec<Option<usize>> = Vec::with_capacity(adjoint_of.len());
        let is_input = |id: &ValueId| program.values[*id].role == Role::Input;
        let mut is_free: Vec<bool> = program.values.ids().map(|id| is_input(&id)).collect();
        for (of, op) in ops() {
            let part = self.parts[program.ops[of].result().index()];
            let free = op.operands.iter().all(|operand| is_free[operand.index()]);
            op.results.iter().for_each(|result| is_free[result.index()] = free);
            own.push(part.filter(|_| !free));
        }
        // By value: the earliest part that waits for it.
        let mut reaches = vec![usize::MAX; program.values.len()];
        let all: Vec<&Op> = ops().map(|(_, op)| op).collect();
        for (op, part) in all.iter().zip(&own).rev() {
            let Some(part) = *part else { continue };
            let waits = op.results.iter().map(|result| reaches[result.index()]).min().unwrap_or(usize::MAX);
            for operand in &op.operands {
                let reached = &mut reaches[operand.index()];
                *reached = (*reached).min(part).min(waits);
            }
            let when = if waits < part { When::InputGrad } else { When::WeightGrad };
            self.mark(program, op, Place { part, when });
        }
    }

    /// Goes on with ops that stand behind: each is of the part of the first operand that has one, sums of both sides of that of the
    /// last.
    pub(super) fn behind(&mut self, program: &Program, ops: Range<usize>, when: When) {
        self.grow(program);
        let parts: BTreeMap<&str, Option<usize>> = program
            .with_role(Role::Param)
            .map(|id| (program.values[id].name.as_str(), self.parts[id.index()]))
            .collect();
        for id in program.with_role(Role::State) {
            let name = program.values[id].name.as_str();
            self.parts[id.index()] = param_of(name).and_then(|param| parts.get(param).copied().flatten());
        }
        for at in ops {
            let op = &program.ops[OpId::from_index(at)];
            let mut found = op.operands.iter().filter_map(|operand| self.parts[operand.index()]);
            let part = if op.kind == Kind::Total { found.next_back() } else { found.next() };
            if let Some(part) = part {
                self.mark(program, op, Place { part, when });
            }
        }
    }

    /// The part of each weight and state, by name.
    pub(super) fn homes(&self, program: &Program) -> BTreeMap<String, usize> {
        let kept = program.values.iter().filter(|(_, value)| matches!(value.role, Role::Param | Role::State));
        kept.filter_map(|(id, value)| Some((value.name.clone(), self.parts[id.index()]?))).collect()
    }

    /// By op of a program with movements, in which the values have the ids that they had without: where it runs. A movement runs where
    /// what it moves is made.
    pub(super) fn places(&self, program: &Program) -> Vec<Option<Place>> {
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

/// Numbers of a part in [`Marks::apart`]: one for what has no place of its own, and one for each [`When`].
const NUMBERS: usize = 1 + When::Update as usize + 1;

impl Marks {
    /// By op of a program with movements: numbers that differ where ops are of other parts or run at other times.
    pub(super) fn apart(&self, program: &Program) -> Vec<usize> {
        let mut parts = self.parts.clone();
        parts.resize(program.values.len(), None);
        let number = |(op, place): (&Op, Option<Place>)| {
            let part = op.operands.iter().find_map(|operand| parts[operand.index()]);
            for result in &op.results {
                parts[result.index()] = parts[result.index()].or(part);
            }
            match (place, part) {
                (Some(Place { part, when }), _) => 1 + NUMBERS * part + 1 + when as usize,
                // What is moved of a weight has no place of its own.
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

    /// No other cut has a shorter longest part.
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
