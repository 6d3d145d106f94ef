//! The one pass that places a program.
//!
//! It walks the ops once. For each op it tries, axis by axis of the mesh, to lay the axis on a letter of the op's rule
//! that some operand or the pinned result is already sharded on, to let a partial sum pass, or to keep everything whole;
//! the choice that makes the cards exchange the fewest bytes wins, then the fewest collectives, then the smallest shards.
//! Params and states that nothing has placed yet take the layout that the chosen rule needs.
//!
//! A weight of a product, or an embedding, has a choice of its own: cut by outputs or by inputs. Unless pinned, both are
//! tried by walking on to the next pinned value; an embedding is cut by vocabulary. Alike weights of alike layers are
//! decided once.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::base::{AxisId, Bytes, Diagnostic, Diagnostics, Id};
use crate::program::op::{Linear, rule_of};
use crate::program::text::op_text;
use crate::program::{Factor, Kind, OpId, Program, Reduce, Role, Rule, ValueId};

use super::layout::Layout;
use super::mesh::Mesh;
use super::pins::Pins;
use super::transition::{Cost, cost};

/// Layouts of a logical program.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The layout each value is made in; by value.
    pub produced: Vec<Layout>,
    /// The layout each value is handed to its users in: the pinned one, else as produced; by value.
    pub stored: Vec<Layout>,
    /// The layouts each op needs its operands in; by op.
    pub operands: Vec<Vec<Layout>>,
    /// Why each weight lies as it does, by param.
    pub reasons: BTreeMap<ValueId, String>,
}

/// How many ops a trial of a weight's cut looks ahead at most.
const LOOK_AHEAD: usize = 32;

/// Bytes of a param count this many times over, so that moving one is the last resort.
const PARAM_MOVE_FACTOR: u64 = 1024;

/// Places a logical program on a mesh.
///
/// # Errors
/// Pins that name what does not exist, and ops whose operands cannot be brought into any layout the op takes; all of
/// them.
pub fn place(program: &Program, mesh: &Mesh, pins: &Pins) -> Result<Placement, Diagnostics> {
    let mut pass = Pass::new(program, mesh, pins)?;
    let mut problems = Diagnostics::new();
    let mut operands = Vec::with_capacity(program.ops.len());
    let mut produced: Vec<Option<Layout>> = vec![None; program.values.len()];
    let mut now = pass.given.clone();
    for (id, _) in program.ops.iter() {
        pass.decide_weight(id, &mut now);
        match pass.choose(id, &now) {
            Some(choice) => {
                produced[program.ops[id].result.index()] = Some(choice.produced.clone());
                pass.accept(id, &choice, &mut now);
                operands.push(choice.operands);
            }
            None => {
                let op = &program.ops[id];
                let rank = |id: &ValueId| program.values[*id].shape.rank();
                problems.push(Diagnostic::new(op_text(program, op), "no layout suits the op and its operands"));
                now.layouts[op.result.index()] = Some(Layout::replicated(rank(&op.result)));
                operands.push(op.operands.iter().map(|id| Layout::replicated(rank(id))).collect());
            }
        }
    }
    let whole = |id: ValueId| Layout::replicated(program.values[id].shape.rank());
    let stored: Vec<Layout> =
        program.values.ids().zip(now.layouts).map(|(id, layout)| layout.unwrap_or_else(|| whole(id))).collect();
    let produced = produced.into_iter().zip(&stored).map(|(made, stored)| made.unwrap_or_else(|| stored.clone()));
    problems.into_result(Placement { produced: produced.collect(), stored, operands, reasons: pass.reasons })
}

/// What is known while the ops are walked.
#[derive(Clone)]
struct State {
    /// Layout of each value as its users see it.
    layouts: Vec<Option<Layout>>,
    /// Copies in other layouts that earlier users needed.
    copies: FxHashMap<ValueId, SmallVec<[Layout; 1]>>,
}

/// How one op runs.
struct Choice {
    operands: Vec<Layout>,
    produced: Layout,
    stored: Layout,
    /// What the op itself makes the cards exchange.
    paid: Score,
    /// What its users will have to, because the result is partial.
    due: Cost,
}

impl Choice {
    /// What choices are compared by.
    fn score(&self) -> Score {
        Score { cost: self.paid.cost + self.due, ..self.paid }
    }
}

/// Less is better, field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    cost: Cost,
    /// Elements on the fullest card: of the result, and of params and states placed by this choice.
    local_elems: usize,
}

impl std::ops::Add for Score {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { cost: self.cost + other.cost, local_elems: self.local_elems + other.local_elems }
    }
}

/// What one mesh axis does in an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnAxis {
    /// Every operand is whole on it.
    Whole,
    /// It shards the dim of this letter.
    Letter(u8),
    /// It carries a partial sum of this operand through.
    Pass(usize),
    /// It carries partial sums of all operands through.
    PassAll,
}

struct Pass<'a> {
    program: &'a Program,
    mesh: &'a Mesh,
    pins: &'a Pins,
    rules: Vec<Option<Rule>>,
    /// Layouts that pins and roles give before the walk.
    given: State,
    /// Layout that a pin demands of a result.
    pinned: Vec<Option<Layout>>,
    /// For each value, the dims that some later op must have whole.
    whole: Vec<SmallVec<[bool; 5]>>,
    weight_axes: Vec<AxisId>,
    decided: FxHashMap<String, (usize, String)>,
    reasons: BTreeMap<ValueId, String>,
}

impl<'a> Pass<'a> {
    fn new(program: &'a Program, mesh: &'a Mesh, pins: &'a Pins) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        let names: Vec<&str> = program.values.values().iter().map(|value| value.name.as_str()).collect();
        for pattern in pins.unused(&names).filter(|pattern| !pattern.contains('*')) {
            problems.push(Diagnostic::new(format!("pin `{pattern}`"), "no value of the program has this name"));
        }
        let mut layouts = vec![None; program.values.len()];
        let mut pinned = vec![None; program.values.len()];
        for (id, value) in program.values.iter() {
            let rank = value.shape.rank();
            let pin = pins.value_pin(&value.name, rank, mesh).unwrap_or_else(|problem| {
                problems.push(problem);
                None
            });
            match value.role {
                Role::Result => pinned[id.index()] = pin,
                Role::Input => layouts[id.index()] = Some(pin.unwrap_or_else(|| Layout::replicated(rank))),
                Role::Param | Role::State => layouts[id.index()] = pin,
            }
        }
        for (_, id) in &program.outputs {
            pinned[id.index()] = Some(Layout::replicated(program.values[*id].shape.rank()));
        }
        let rules = program.ops.values().iter().map(|op| rule_of(op, &program.operand_shapes(op)).ok()).collect();
        let weight_axes = pins.weight_axes(mesh);
        if weight_axes.is_empty() {
            problems.push(Diagnostic::new("pins", format!("weights are to be cut on an axis that {mesh} lacks")));
        }
        let mut pass = Self {
            program,
            mesh,
            pins,
            rules,
            given: State { layouts, copies: FxHashMap::default() },
            pinned,
            whole: Vec::new(),
            weight_axes,
            decided: FxHashMap::default(),
            reasons: BTreeMap::new(),
        };
        pass.find_whole_dims();
        pass.apply_weight_pins(&mut problems);
        problems.into_result(pass)
    }

    /// Walks back from the ops that need a dim whole.
    fn find_whole_dims(&mut self) {
        let values = self.program.values.values().iter();
        let mut whole: Vec<SmallVec<[bool; 5]>> =
            values.map(|value| SmallVec::from_elem(false, value.shape.rank())).collect();
        for (op, rule) in self.program.ops.values().iter().zip(&self.rules).rev() {
            let Some(rule) = rule else { continue };
            for (operand, factors) in op.operands.iter().zip(&rule.operands) {
                for (dim, factor) in factors.iter().enumerate() {
                    whole[operand.index()][dim] |= match factor {
                        Factor::Whole(_) => true,
                        Factor::One => false,
                        Factor::Letter(letter) => {
                            rule.result_dim(*letter).is_some_and(|dim| whole[op.result.index()][dim])
                        }
                    };
                }
            }
        }
        self.whole = whole;
    }

    /// The weight an op has a choice about: its operand and, for axis 0 and 1 of its matrix, the dims.
    fn weight_of(&self, id: OpId) -> Option<(ValueId, [SmallVec<[usize; 4]>; 2])> {
        let (op, rule) = (&self.program.ops[id], self.rules[id.index()].as_ref()?);
        let weight = |operand: usize| {
            let id = op.operands[operand];
            (self.program.values[id].role == Role::Param).then_some((operand, id))
        };
        let (operand, param) = match op.kind {
            Kind::Embed => weight(1)?,
            Kind::MatMul { .. } => weight(1).or_else(|| weight(0))?,
            _ => return None,
        };
        let mut axes = [SmallVec::new(), SmallVec::new()];
        for (dim, factor) in rule.operands[operand].iter().enumerate() {
            let Factor::Letter(letter) = factor else { continue };
            let is_input = match op.kind {
                Kind::Embed => dim == 1,
                _ => rule.result_dim(*letter).is_none(),
            };
            axes[usize::from(is_input)].push(dim);
        }
        Some((param, axes))
    }

    fn apply_weight_pins(&mut self, problems: &mut Diagnostics) {
        for id in self.program.ops.ids() {
            let Some((param, axes)) = self.weight_of(id) else { continue };
            let name = &self.program.values[param].name;
            let result = self.program.ops[id].result;
            if self.pins.gathers(name) && self.pinned[result.index()].is_none() {
                self.pinned[result.index()] = Some(Layout::replicated(self.program.values[result].shape.rank()));
            }
            if self.given.layouts[param.index()].is_some() {
                continue;
            }
            let Some(cut) = self.pins.cut(name) else { continue };
            let layout = match cut {
                None => Layout::replicated(self.program.values[param].shape.rank()),
                Some(axis @ 0..=1) => self.cut(param, &axes[axis]),
                Some(axis) => {
                    problems.push(
                        Diagnostic::new(format!("pin of `{name}`"), "a weight is a matrix [out, in]")
                            .expected("split_axis 0 or 1")
                            .found(axis),
                    );
                    continue;
                }
            };
            self.given.layouts[param.index()] = Some(layout);
            self.reasons.insert(param, "pinned".to_owned());
        }
    }

    /// A weight cut along some of its dims by the weight axes. Each axis takes the first dim that still has an element
    /// for every part and that no later op needs whole. If none of the dims has, the first axis takes the largest, so
    /// that some cards hold nothing; further axes keep the weight whole.
    fn cut(&self, param: ValueId, dims: &[usize]) -> Layout {
        let shape = &self.program.values[param].shape;
        let mut layout = Layout::replicated(shape.rank());
        let free: SmallVec<[usize; 4]> = dims.iter().copied().filter(|dim| !self.whole[param.index()][*dim]).collect();
        let dims = if free.is_empty() { dims } else { &free };
        for axis in self.weight_axes.iter().filter(|axis| self.mesh.size(**axis) > 1) {
            let size = self.mesh.size(*axis);
            let parts = |dim: usize| self.mesh.joint_size(&layout.dims[dim]) * size;
            let fitting = dims.iter().copied().find(|dim| parts(*dim) <= shape[*dim]);
            let largest = || dims.iter().copied().max_by_key(|dim| (shape[*dim], std::cmp::Reverse(*dim)));
            let is_first = layout.is_replicated();
            if let Some(dim) = fitting.or_else(|| largest().filter(|_| is_first)) {
                layout = layout.sharded(dim, *axis);
            }
        }
        layout
    }

    /// Cuts the weight of an op that nothing has placed yet.
    fn decide_weight(&mut self, id: OpId, now: &mut State) {
        let Some((param, axes)) = self.weight_of(id) else { return };
        if now.layouts[param.index()].is_some() {
            return;
        }
        let class: String = self.program.values[param].name.chars().filter(|c| !c.is_ascii_digit()).collect();
        let class = format!("{class}{}", self.program.values[param].shape);
        if !self.decided.contains_key(&class) {
            let decision = self.try_cuts(id, param, &axes, now);
            self.decided.insert(class.clone(), decision);
        }
        let (axis, reason) = self.decided[&class].clone();
        now.layouts[param.index()] = Some(self.cut(param, &axes[axis]));
        self.reasons.insert(param, reason);
    }

    fn try_cuts(&self, id: OpId, param: ValueId, axes: &[SmallVec<[usize; 4]>; 2], now: &State) -> (usize, String) {
        const WAYS: [&str; 2] = ["by outputs", "by inputs"];
        if self.program.ops[id].kind == Kind::Embed {
            return (0, "an embedding is cut by vocabulary, so that a tied head is too".to_owned());
        }
        let trial = |axis: usize| {
            if axes[axis].is_empty() {
                return None;
            }
            let mut now = now.clone();
            now.layouts[param.index()] = Some(self.cut(param, &axes[axis]));
            let weight = now.layouts[param.index()].as_ref()?;
            let held = weight.largest_local_elems(self.mesh, &self.program.values[param].shape);
            let walked = self.walk_to_next_pin(id, &mut now)?;
            Some(Score { cost: walked.cost, local_elems: walked.local_elems + held })
        };
        let trials = [trial(0), trial(1)];
        let axis = match trials {
            [Some(outputs), Some(inputs)] => usize::from(inputs < outputs),
            [None, Some(_)] => 1,
            _ => 0,
        };
        let say = |trial: Option<Score>| match trial {
            None => "is not possible".to_owned(),
            Some(score) => format!(
                "moves {} in {} collective{}",
                Bytes(score.cost.moved_bytes),
                score.cost.collectives,
                if score.cost.collectives == 1 { "" } else { "s" }
            ),
        };
        (axis, format!("{} {}; {} {}", WAYS[axis], say(trials[axis]), WAYS[1 - axis], say(trials[1 - axis])))
    }

    /// What the ops from `id` on cost up to the next result that is pinned.
    fn walk_to_next_pin(&self, id: OpId, now: &mut State) -> Option<Score> {
        let mut total = Score::default();
        let mut due = Cost::default();
        for id in self.program.ops.ids().skip(id.index()).take(LOOK_AHEAD) {
            if let Some((param, axes)) = self.weight_of(id)
                && now.layouts[param.index()].is_none()
            {
                let cuts = axes.iter().filter(|dims| !dims.is_empty()).map(|dims| self.cut(param, dims));
                let best = cuts.min_by_key(|cut| {
                    now.layouts[param.index()] = Some(cut.clone());
                    self.choose(id, now).map(|choice| choice.score())
                });
                now.layouts[param.index()] = best;
            }
            let choice = self.choose(id, now)?;
            total = total + choice.paid;
            due = choice.due;
            self.accept(id, &choice, now);
            if self.pinned[self.program.ops[id].result.index()].is_some() {
                break;
            }
        }
        Some(Score { cost: total.cost + due, ..total })
    }

    /// Records what a choice places.
    fn accept(&self, id: OpId, choice: &Choice, now: &mut State) {
        let op = &self.program.ops[id];
        for (operand, layout) in op.operands.iter().zip(&choice.operands) {
            match &mut now.layouts[operand.index()] {
                free @ None => *free = Some(layout.clone()),
                Some(found) if found != layout => {
                    let copies = now.copies.entry(*operand).or_default();
                    if !copies.contains(layout) {
                        copies.push(layout.clone());
                    }
                }
                Some(_) => {}
            }
        }
        now.layouts[op.result.index()] = Some(choice.stored.clone());
    }

    /// The best way to run one op.
    fn choose(&self, id: OpId, now: &State) -> Option<Choice> {
        let rule = self.rules[id.index()].as_ref()?;
        let candidates: Vec<SmallVec<[OnAxis; 4]>> =
            self.mesh.ids().into_iter().map(|axis| self.candidates(id, rule, axis, now)).collect();
        let mut best: Option<Choice> = None;
        let mut digits: SmallVec<[usize; 4]> = SmallVec::from_elem(0, candidates.len());
        loop {
            let combination: SmallVec<[OnAxis; 4]> = digits.iter().zip(&candidates).map(|(d, c)| c[*d]).collect();
            if let Some(choice) = self.try_combination(id, rule, &combination, now)
                && best.as_ref().is_none_or(|best| choice.score() < best.score())
            {
                best = Some(choice);
            }
            let Some(next) = digits.iter().zip(&candidates).position(|(d, c)| d + 1 < c.len()) else { return best };
            digits[..next].fill(0);
            digits[next] += 1;
        }
    }

    /// What an axis may do in an op, given where the operands are sharded now.
    fn candidates(&self, id: OpId, rule: &Rule, axis: AxisId, now: &State) -> SmallVec<[OnAxis; 4]> {
        let op = &self.program.ops[id];
        let mut found: SmallVec<[OnAxis; 4]> = SmallVec::new();
        if self.mesh.size(axis) == 1 {
            found.push(OnAxis::Whole);
            return found;
        }
        let mut add = |candidate| {
            if !found.contains(&candidate) {
                found.push(candidate);
            }
        };
        for (operand, factors) in op.operands.iter().zip(&rule.operands) {
            let seen = now.layouts[operand.index()].iter().chain(now.copies.get(operand).into_iter().flatten());
            for layout in seen {
                if let Some(Factor::Letter(letter)) = layout.dim_of(axis).map(|dim| factors[dim]) {
                    add(OnAxis::Letter(letter));
                }
            }
        }
        let pinned = self.pinned[op.result.index()].as_ref();
        if let Some(Factor::Letter(letter)) = pinned.and_then(|layout| layout.dim_of(axis)).map(|dim| rule.result[dim])
        {
            add(OnAxis::Letter(letter));
        }
        let is_sum = |operand: &ValueId| {
            now.layouts[operand.index()].as_ref().and_then(|layout| layout.partial_on(axis)) == Some(Reduce::Sum)
        };
        match op.kind.row().linear {
            Linear::No => {}
            Linear::Jointly if op.operands.iter().all(is_sum) => add(OnAxis::PassAll),
            Linear::Jointly => {}
            Linear::InEach(operands) => {
                for operand in operands.iter().filter(|operand| is_sum(&op.operands[**operand])) {
                    add(OnAxis::Pass(*operand));
                }
            }
        }
        add(OnAxis::Whole);
        found
    }

    fn try_combination(&self, id: OpId, rule: &Rule, on_axis: &[OnAxis], now: &State) -> Option<Choice> {
        let op = &self.program.ops[id];
        let mut operands: Vec<Layout> = rule.operands.iter().map(|dims| Layout::replicated(dims.len())).collect();
        let mut produced = Layout::replicated(rule.result.len());
        for (axis, what) in self.mesh.ids().into_iter().zip(on_axis) {
            match *what {
                OnAxis::Whole => {}
                OnAxis::Letter(letter) => {
                    for (index, layout) in operands.iter_mut().enumerate() {
                        if let Some(dim) = rule.operand_dim(index, letter) {
                            layout.dims[dim].push(axis);
                        }
                    }
                    match rule.result_dim(letter) {
                        Some(dim) => produced.dims[dim].push(axis),
                        None => produced.partial.push((axis, rule.reduce)),
                    }
                }
                OnAxis::Pass(operand) => {
                    operands[operand].partial.push((axis, Reduce::Sum));
                    produced.partial.push((axis, Reduce::Sum));
                }
                OnAxis::PassAll => {
                    operands.iter_mut().for_each(|layout| layout.partial.push((axis, Reduce::Sum)));
                    produced.partial.push((axis, Reduce::Sum));
                }
            }
        }
        // Parts of a sum pass only where nothing but sums is reduced.
        if produced.partial.iter().any(|(_, reduce)| *reduce != produced.partial[0].1) {
            return None;
        }
        let mut paid = Score::default();
        for (index, (operand, layout)) in op.operands.iter().zip(&operands).enumerate() {
            paid = paid + self.operand_score(*operand, layout, op.kind.row().in_place == Some(index), now)?;
        }
        let result = &self.program.values[op.result];
        let size_bytes = result.dtype.size_bytes();
        let stored = match &self.pinned[op.result.index()] {
            Some(pinned) if op.kind.row().in_place.is_some() && *pinned != produced => return None,
            Some(pinned) => pinned.clone(),
            None => produced.clone(),
        };
        let mut reduced = stored.clone();
        reduced.partial.clear();
        let made = cost(&produced, &stored, self.mesh, &result.shape, size_bytes)?;
        let due = cost(&stored, &reduced, self.mesh, &result.shape, size_bytes)?;
        let local_elems = produced.largest_local_elems(self.mesh, &result.shape);
        paid = paid + Score { cost: made, local_elems };
        Some(Choice { operands, produced, stored, paid, due })
    }

    /// What it takes to have an operand in a layout; `None` if it cannot be had.
    fn operand_score(&self, operand: ValueId, layout: &Layout, in_place: bool, now: &State) -> Option<Score> {
        let value = &self.program.values[operand];
        let Some(found) = &now.layouts[operand.index()] else {
            return Some(Score {
                local_elems: layout.largest_local_elems(self.mesh, &value.shape),
                ..Score::default()
            });
        };
        if found == layout || now.copies.get(&operand).is_some_and(|copies| copies.contains(layout)) {
            return Some(Score::default());
        }
        if in_place {
            return None;
        }
        let mut cost = cost(found, layout, self.mesh, &value.shape, value.dtype.size_bytes())?;
        if value.role == Role::Param {
            cost.moved_bytes = cost.moved_bytes.saturating_mul(PARAM_MOVE_FACTOR);
        }
        Some(Score { cost, local_elems: 0 })
    }
}
