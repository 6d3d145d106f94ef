//! Chooses the layouts of a program in a single pass over its ops.
//!
//! For each op, every mesh axis may shard a letter of the op's rule, pass on a partial sum, or
//! replicate. The candidates are letters on which an operand or the pinned result is already
//! sharded. The choice with the fewest exchanged bytes wins, then the fewest collectives, then the
//! smallest shards. On axes that pins distribute work over, an op is sharded whenever possible.
//! Params and states without a layout take the one that the chosen rule needs.
//!
//! A weight may be cut by outputs or by inputs, over all of those dims or only the outermost. If
//! pins leave the choice open, each cut is tried up to the next pinned value. An embedding is cut
//! by vocabulary. Equal situations, such as equal layers, are tried only once.

mod choice;
#[cfg(test)]
mod defects;
mod operand;
mod situation;

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::base::{AxisId, Bytes, Diagnostic, Diagnostics, Id, Reduce};
use crate::program::op::{Linear, rule_of};
use crate::program::rule::OwnSize;
use crate::program::text::op_text;
use crate::program::{Factor, Op, OpId, Program, Role, Rule, ValueId};

use self::choice::{AxisRole, OpChoice, Score};
use self::situation::Situation;
use super::layout::Layout;
use super::mesh::Mesh;
use super::pins::Pins;
use super::transition::{Cost, cost};

/// The layouts of a logical program.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Layout of each computed result.
    pub produced: Vec<Layout>,
    /// Layout of each value for its users, either pinned or computed.
    pub stored: Vec<Layout>,
    /// Layouts that each op needs for its operands.
    pub operands: Vec<Vec<Layout>>,
    /// Reason for the layout of each param.
    pub reasons: BTreeMap<ValueId, String>,
    /// True for values with a separate copy at each use, in the needed layout. These are params
    /// that are sharded for storage.
    pub gathered_at_use: Vec<bool>,
}

/// Maximum number of ops that the trial of a weight's cut looks ahead.
const LOOK_AHEAD: usize = 32;

/// Chooses the layouts of a logical program on a mesh.
///
/// # Errors
/// Returns all pins that name something unknown, and all ops without a valid layout.
pub fn place(program: &Program, mesh: &Mesh, pins: &Pins) -> Result<Placement, Diagnostics> {
    let mut pass = Propagation::new(program, mesh, pins)?;
    let mut problems = Diagnostics::new();
    let mut operands = Vec::with_capacity(program.ops.len());
    let mut produced: Vec<Option<Layout>> = vec![None; program.values.len()];
    let mut now = pass.given.clone();
    for (id, _) in program.ops.iter() {
        pass.decide_weight(id, &mut now);
        match pass.choose(id, &now) {
            Some(choice) => {
                #[cfg(test)]
                let choice = defects::inject(choice, &program.ops[id], &now);
                for (result, layout) in program.ops[id].results.iter().zip(&choice.produced) {
                    produced[result.index()] = Some(layout.clone());
                }
                pass.accept(id, &choice, &mut now);
                operands.push(choice.operands);
            }
            None => {
                let op = &program.ops[id];
                let rank = |id: &ValueId| program.values[*id].shape.rank();
                problems
                    .push(Diagnostic::new(op_text(program, op), "no layout suits the op and its operands"));
                for result in &op.results {
                    now.layouts[result.index()] = Some(Layout::replicated(rank(result)));
                }
                operands.push(op.operands.iter().map(|id| Layout::replicated(rank(id))).collect());
            }
        }
    }
    let whole = |id: ValueId| Layout::replicated(program.values[id].shape.rank());
    let stored: Vec<Layout> = program
        .values
        .ids()
        .zip(now.layouts)
        .map(|(id, layout)| layout.unwrap_or_else(|| whole(id)))
        .collect();
    let produced =
        produced.into_iter().zip(&stored).map(|(made, stored)| made.unwrap_or_else(|| stored.clone()));
    problems.into_result(Placement {
        produced: produced.collect(),
        stored,
        operands,
        reasons: pass.reasons,
        gathered_at_use: pass.storage_axes.iter().map(|axes| !axes.is_empty()).collect(),
    })
}

#[derive(Clone)]
struct KnownLayouts {
    /// Layout of each value for its users.
    layouts: Vec<Option<Layout>>,
    copies: FxHashMap<ValueId, SmallVec<[Layout; 1]>>,
}

struct WeightUse {
    param: ValueId,
    /// The op that multiplies the weight or looks it up.
    user: OpId,
    operand: usize,
    /// Dims that form axis 0 and axis 1 of the weight matrix.
    axes: [SmallVec<[usize; 4]>; 2],
}

struct Propagation<'a> {
    program: &'a Program,
    mesh: &'a Mesh,
    pins: &'a Pins,
    rules: Vec<Option<Rule>>,
    kinds: Vec<usize>,
    given: KnownLayouts,
    /// Pinned layout of each result.
    pinned: Vec<Option<Layout>>,
    along: Vec<Option<(usize, Vec<AxisId>)>>,
    /// Dims of each value that some later op needs whole.
    whole: Vec<SmallVec<[bool; 5]>>,
    weight_axes: Vec<AxisId>,
    /// Axes that shard weights along the other axis of their matrix.
    across_axes: Vec<AxisId>,
    dealt_axes: Vec<AxisId>,
    /// Axes on which each value is sharded for storage only. Only params and their casts have some.
    storage_axes: Vec<Vec<AxisId>>,
    decided: FxHashMap<Situation, (Layout, String)>,
    reasons: BTreeMap<ValueId, String>,
}

impl<'a> Propagation<'a> {
    fn new(program: &'a Program, mesh: &'a Mesh, pins: &'a Pins) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        let names: FxHashSet<&str> =
            program.values.values().iter().map(|value| value.name.as_str()).collect();
        for pattern in pins.unused(&names) {
            problems
                .push(Diagnostic::new(format!("pin `{pattern}`"), "no value of the program has this name"));
        }
        let mut layouts = vec![None; program.values.len()];
        let (mut pinned, mut along) = (vec![None; program.values.len()], vec![None; program.values.len()]);
        for (id, value) in program.values.iter() {
            let rank = value.shape.rank();
            let pin = pins.value_pin(&value.name, rank, mesh).unwrap_or_else(|problem| {
                problems.push(problem);
                None
            });
            match value.role {
                Role::Result => {
                    pinned[id.index()] = pin;
                    match pins.along(&value.name, rank, mesh) {
                        Ok(found) => along[id.index()] = found,
                        Err(problem) => problems.push(problem),
                    }
                }
                Role::Input => layouts[id.index()] = Some(pin.unwrap_or_else(|| Layout::replicated(rank))),
                Role::Param | Role::State => layouts[id.index()] = pin,
            }
        }
        for (_, id) in &program.outputs {
            pinned[id.index()] = Some(Layout::replicated(program.values[*id].shape.rank()));
        }
        let rules =
            program.ops.values().iter().map(|op| rule_of(op, &program.operand_shapes(op)).ok()).collect();
        let weight_axes = pins.weight_axes(mesh);
        if weight_axes.is_empty() {
            problems
                .push(Diagnostic::new("pins", format!("weights are to be cut on an axis that {mesh} lacks")));
        }
        let mut pass = Self {
            program,
            mesh,
            pins,
            rules,
            kinds: situation::kinds(program),
            given: KnownLayouts { layouts, copies: FxHashMap::default() },
            pinned,
            along,
            whole: Vec::new(),
            weight_axes,
            across_axes: pins.across_axes(mesh),
            dealt_axes: pins.dealt_axes(mesh),
            storage_axes: vec![Vec::new(); program.values.len()],
            decided: FxHashMap::default(),
            reasons: BTreeMap::new(),
        };
        pass.find_whole_dims();
        pass.find_storage_axes();
        pass.check_weight_pins(&mut problems);
        problems.into_result(pass)
    }

    /// Finds dims that must be whole, backward from the ops that need them so.
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
                            let results = op.results.iter().enumerate();
                            results
                                .filter_map(|(at, result)| Some((result, rule.result_dim(at, *letter)?)))
                                .any(|(result, dim)| whole[result.index()][dim])
                        }
                    };
                }
            }
        }
        self.whole = whole;
    }

    fn find_storage_axes(&mut self) {
        for id in self.program.with_role(Role::Param) {
            let name = &self.program.values[id].name;
            self.storage_axes[id.index()] = self.pins.storage_axes(name, self.mesh);
        }
        for op in self.program.ops.values() {
            if self.is_copy_of_param(op) {
                self.storage_axes[op.result().index()] = self.storage_axes[op.operands[0].index()].clone();
            }
        }
    }

    fn is_copy_of_param(&self, op: &Op) -> bool {
        op.kind.row().is_copy && self.program.values[op.operands[0]].role == Role::Param
    }

    /// Returns the weight that has its layout decided at an op. The op multiplies the weight, looks
    /// it up, or casts it for such a use.
    fn weight_of(&self, id: OpId) -> Option<WeightUse> {
        let op = &self.program.ops[id];
        if self.is_copy_of_param(op) {
            let behind = self.program.ops.ids().skip(id.index() + 1).take(LOOK_AHEAD);
            let user =
                behind.into_iter().find(|user| self.program.ops[*user].operands.contains(&op.result()))?;
            return self
                .weight_among(user, op.result())
                .map(|weight| WeightUse { param: op.operands[0], ..weight });
        }
        let param = |operand: &ValueId| self.program.values[*operand].role == Role::Param;
        op.operands
            .iter()
            .rev()
            .filter(|operand| param(operand))
            .find_map(|operand| self.weight_among(id, *operand))
    }

    fn weight_among(&self, user: OpId, value: ValueId) -> Option<WeightUse> {
        let (op, rule) = (&self.program.ops[user], self.rules[user.index()].as_ref()?);
        let weights = op.kind.row().weights;
        let operand = weights.operands().iter().copied().find(|operand| op.operands[*operand] == value)?;
        let mut axes = [SmallVec::new(), SmallVec::new()];
        for dim in 0..rule.operands[operand].len() {
            if let Some(is_input) = weights.is_input(rule, operand, dim) {
                axes[usize::from(is_input)].push(dim);
            }
        }
        Some(WeightUse { param: value, user, operand, axes })
    }

    fn check_weight_pins(&mut self, problems: &mut Diagnostics) {
        for id in self.program.ops.ids() {
            let Some(WeightUse { param, user, .. }) = self.weight_of(id) else { continue };
            let name = &self.program.values[param].name;
            let result = self.program.ops[user].result();
            if self.pins.gathers(name) && self.pinned[result.index()].is_none() {
                self.pinned[result.index()] =
                    Some(Layout::replicated(self.program.values[result].shape.rank()));
            }
            if let Some(Some(axis @ 2..)) = self.pins.cut(name) {
                let problem = Diagnostic::new(format!("pin of `{name}`"), "a weight is a matrix [out, in]");
                problems.push(problem.expected("split_axis 0 or 1").found(axis));
            }
        }
    }

    /// Returns the possible cuts of a weight, as `(axis of its matrix, layout)`. One candidate
    /// follows the other operand. For each axis, all dims or only the outermost are sharded. The
    /// latter can leave ranks without elements, but keeps heads together.
    fn cuts(&self, weight: &WeightUse, now: &KnownLayouts) -> SmallVec<[(usize, Layout); 4]> {
        let WeightUse { param, user, ref axes, .. } = *weight;
        let value = &self.program.values[param];
        let allowed: &[usize] = match self.pins.cut(&value.name) {
            Some(None) => return SmallVec::from_iter([(0, Layout::replicated(value.shape.rank()))]),
            Some(Some(0)) => &[0],
            Some(Some(_)) => &[1],
            None if self.program.ops[user].kind.row().weights.is_table() => &[0],
            None => &[0, 1],
        };
        let mut cuts: SmallVec<[(usize, Layout); 4]> = SmallVec::new();
        let across = |layout: Layout, axis: usize| {
            self.cut(param, &self.free(param, &axes[1 - axis]), layout, &self.across_axes)
        };
        if let Some(layout) = self.cut_like_other_operand(weight, now).filter(|_| allowed.contains(&1)) {
            cuts.push((1, across(layout, 1)));
        }
        for axis in allowed.iter().copied().filter(|axis| !axes[*axis].is_empty()) {
            let dims = self.free(param, &axes[axis]);
            let cut = |dims: &[usize]| {
                let whole = Layout::replicated(value.shape.rank());
                across(self.cut(param, dims, whole, &self.weight_axes), axis)
            };
            let (all, outermost) = (cut(&dims), cut(&dims[..1]));
            let used = |layout: &Layout| layout.dims.iter().map(SmallVec::len).sum::<usize>();
            // A layout on fewer axes would look cheaper than it is.
            if outermost != all && used(&outermost) == used(&all) {
                cuts.push((axis, outermost));
            }
            if !cuts.contains(&(axis, all.clone())) {
                cuts.push((axis, all));
            }
        }
        cuts
    }

    /// Shards the weight along the input dims on which the other operand is sharded, if any.
    fn cut_like_other_operand(&self, weight: &WeightUse, now: &KnownLayouts) -> Option<Layout> {
        let WeightUse { param, user, operand: own, ref axes } = *weight;
        let (op, rule, inputs) = (&self.program.ops[user], self.rules[user.index()].as_ref()?, &axes[1]);
        let other = op.operands.iter().position(|operand| *operand != op.operands[own])?;
        let other_layout = now.layouts[op.operands[other].index()].as_ref()?;
        let mut layout = Layout::replicated(self.program.values[param].shape.rank());
        for axis in &self.weight_axes {
            let Some(Factor::Letter(letter)) =
                other_layout.dim_of(*axis).map(|dim| rule.operands[other][dim])
            else {
                continue;
            };
            if let Some(dim) = rule.operand_dim(own, letter).filter(|dim| inputs.contains(dim)) {
                layout = layout.sharded(dim, *axis);
            }
        }
        (!layout.is_replicated()).then_some(layout)
    }

    fn free(&self, param: ValueId, dims: &[usize]) -> SmallVec<[usize; 4]> {
        let free: SmallVec<[usize; 4]> =
            dims.iter().copied().filter(|dim| !self.whole[param.index()][*dim]).collect();
        if free.is_empty() { SmallVec::from_slice(dims) } else { free }
    }

    /// Shards a weight further along `dims` by the axes `by`. Each axis takes the first dim with an
    /// element for every shard. If there is none, only the first axis takes the largest dim, and
    /// some ranks hold nothing. A dim of one element is never sharded: a single key head is
    /// replicated, so that its query heads can be sharded.
    fn cut(&self, param: ValueId, dims: &[usize], mut layout: Layout, by: &[AxisId]) -> Layout {
        let shape = &self.program.values[param].shape;
        for axis in by.iter().filter(|axis| self.mesh.size(**axis) > 1) {
            let size = self.mesh.size(*axis);
            let parts = |dim: usize| self.mesh.joint_size(&layout.dims[dim]) * size;
            let fitting = dims.iter().copied().find(|dim| parts(*dim) <= shape[*dim]);
            let largest = || {
                let dims = dims.iter().copied().filter(|dim| shape[*dim] > 1);
                dims.max_by_key(|dim| (shape[*dim], std::cmp::Reverse(*dim)))
            };
            let is_first = dims.iter().all(|dim| layout.dims[*dim].is_empty());
            if let Some(dim) = fitting.or_else(|| largest().filter(|_| is_first)) {
                layout = layout.sharded(dim, *axis);
            }
        }
        layout
    }

    fn decide_weight(&mut self, id: OpId, now: &mut KnownLayouts) {
        let Some(weight) = self.weight_of(id) else { return };
        let param = weight.param;
        if now.layouts[param.index()].is_some() {
            return;
        }
        let situation = self.situation(id, &weight, now);
        if !self.decided.contains_key(&situation) {
            let Some(decision) = self.try_cuts(id, &weight, now) else { return };
            self.decided.insert(situation.clone(), decision);
        }
        let (layout, reason) = self.decided[&situation].clone();
        now.layouts[param.index()] = Some(layout);
        self.reasons.insert(param, reason);
    }

    fn try_cuts(&self, id: OpId, weight: &WeightUse, now: &KnownLayouts) -> Option<(Layout, String)> {
        const WAYS: [&str; 2] = ["by outputs", "by inputs"];
        let WeightUse { param, user, .. } = *weight;
        let value = &self.program.values[param];
        let mut best: [Option<(Score, Layout)>; 2] = [None, None];
        for (axis, layout) in self.cuts(weight, now) {
            let held = layout.largest_local_elems(self.mesh, &value.shape);
            let mut now = now.clone();
            now.layouts[param.index()] = Some(layout.clone());
            let Some(walked) = self.walk_to_next_pin(id, &mut now) else { continue };
            let score = Score { local_elems: walked.local_elems + held, ..walked };
            if best[axis].as_ref().is_none_or(|(best, _)| score < *best) {
                best[axis] = Some((score, layout));
            }
        }
        let say = |trial: &Option<(Score, Layout)>| match trial {
            None => "is not possible".to_owned(),
            Some((score, _)) => format!(
                "moves {} in {} collective{}",
                Bytes(score.cost.moved_bytes),
                score.cost.collectives,
                if score.cost.collectives == 1 { "" } else { "s" }
            ),
        };
        let axis = match &best {
            [Some((outputs, _)), Some((inputs, _))] => usize::from(inputs < outputs),
            [None, _] => 1,
            [Some(_), None] => 0,
        };
        let reason = if self.pins.cut(&value.name).is_some() {
            "pinned".to_owned()
        } else if self.program.ops[user].kind.row().weights.is_table() {
            "an embedding is cut by vocabulary, so that a tied head is too".to_owned()
        } else {
            format!("{} {}; {} {}", WAYS[axis], say(&best[axis]), WAYS[1 - axis], say(&best[1 - axis]))
        };
        let [outputs, inputs] = best;
        let chosen = if axis == 0 { outputs } else { inputs };
        chosen.map(|(_, layout)| (layout, reason))
    }

    fn walk_to_next_pin(&self, id: OpId, now: &mut KnownLayouts) -> Option<Score> {
        let mut total = Score::default();
        let mut due = Cost::default();
        for id in self.program.ops.ids().skip(id.index()).take(LOOK_AHEAD) {
            if let Some(weight) = self.weight_of(id)
                && now.layouts[weight.param.index()].is_none()
            {
                let param = weight.param;
                let mut best: Option<(Score, Layout)> = None;
                for (_, layout) in self.cuts(&weight, now) {
                    now.layouts[param.index()] = Some(layout.clone());
                    if let Some(choice) = self.choose(id, now)
                        && best.as_ref().is_none_or(|(score, _)| choice.score() < *score)
                    {
                        best = Some((choice.score(), layout));
                    }
                }
                now.layouts[param.index()] = best.map(|(_, layout)| layout);
            }
            let choice = self.choose(id, now)?;
            total = total + choice.paid;
            due = choice.due;
            self.accept(id, &choice, now);
            if self.program.ops[id].results.iter().any(|result| self.pinned[result.index()].is_some()) {
                break;
            }
        }
        Some(Score { cost: total.cost + due, ..total })
    }

    fn accept(&self, id: OpId, choice: &OpChoice, now: &mut KnownLayouts) {
        let op = &self.program.ops[id];
        for (operand, layout) in op.operands.iter().zip(&choice.operands) {
            match &mut now.layouts[operand.index()] {
                free @ None => *free = Some(layout.clone()),
                Some(found) if found != layout && self.storage_axes[operand.index()].is_empty() => {
                    let copies = now.copies.entry(*operand).or_default();
                    if !copies.contains(layout) {
                        copies.push(layout.clone());
                    }
                }
                Some(_) => {}
            }
        }
        for (result, layout) in op.results.iter().zip(&choice.stored) {
            now.layouts[result.index()] = Some(layout.clone());
        }
    }

    fn choose(&self, id: OpId, now: &KnownLayouts) -> Option<OpChoice> {
        let rule = self.rules[id.index()].as_ref()?;
        let candidates: Vec<SmallVec<[AxisRole; 4]>> =
            self.mesh.ids().into_iter().map(|axis| self.candidates(id, rule, axis, now)).collect();
        let mut best: Option<OpChoice> = None;
        let mut digits: SmallVec<[usize; 4]> = SmallVec::from_elem(0, candidates.len());
        loop {
            let combination: SmallVec<[AxisRole; 4]> =
                digits.iter().zip(&candidates).map(|(d, c)| c[*d]).collect();
            if let Some(choice) = self.try_combination(id, rule, &combination, now)
                && best.as_ref().is_none_or(|best| choice.score() < best.score())
            {
                best = Some(choice);
            }
            let Some(next) = digits.iter().zip(&candidates).position(|(d, c)| d + 1 < c.len()) else {
                return best;
            };
            digits[..next].fill(0);
            digits[next] += 1;
        }
    }

    fn candidates(&self, id: OpId, rule: &Rule, axis: AxisId, now: &KnownLayouts) -> SmallVec<[AxisRole; 4]> {
        let op = &self.program.ops[id];
        let mut roles: SmallVec<[AxisRole; 4]> = SmallVec::new();
        if self.mesh.size(axis) == 1 {
            roles.push(AxisRole::Whole);
            return roles;
        }
        let mut add = |candidate| {
            if !roles.contains(&candidate) {
                roles.push(candidate);
            }
        };
        let is_copied = self.is_copy_of_param(op);
        for (operand, factors) in op.operands.iter().zip(&rule.operands) {
            // Params sharded for storage are gathered for every use. Casts run before the gather.
            if !is_copied && self.storage_axes[operand.index()].contains(&axis) {
                continue;
            }
            let seen =
                now.layouts[operand.index()].iter().chain(now.copies.get(operand).into_iter().flatten());
            for layout in seen {
                if let Some(Factor::Letter(letter)) = layout.dim_of(axis).map(|dim| factors[dim]) {
                    add(AxisRole::Letter(letter));
                }
            }
        }
        for (result, factors) in op.results.iter().zip(&rule.results) {
            let pinned = self.pinned[result.index()].as_ref();
            if let Some(Factor::Letter(letter)) =
                pinned.and_then(|layout| layout.dim_of(axis)).map(|dim| factors[dim])
            {
                add(AxisRole::Letter(letter));
            }
            if let Some((dim, axes)) = &self.along[result.index()]
                && let Factor::Letter(letter) = factors[*dim]
                && axes.contains(&axis)
            {
                add(AxisRole::Letter(letter));
            }
        }
        let is_sum = |operand: &ValueId| {
            now.layouts[operand.index()].as_ref().and_then(|layout| layout.partial_on(axis))
                == Some(Reduce::Sum)
        };
        match op.kind.row().linear {
            Linear::No => {}
            // An overwrite of a partial sum becomes a partial sum.
            Linear::Jointly
                if op.kind.row().in_place.iter().any(|operand| is_sum(&op.operands[*operand])) =>
            {
                add(AxisRole::PassAll);
            }
            Linear::Jointly if op.operands.iter().all(is_sum) => add(AxisRole::PassAll),
            Linear::Parts if op.operands.iter().any(is_sum) => {
                // A replicated operand becomes partial for free, and the reduction waits for the
                // last summand.
                add(AxisRole::PassAll);
                return roles;
            }
            Linear::Joins if op.kind.row().in_place.iter().any(|operand| is_sum(&op.operands[*operand])) => {
                add(AxisRole::Join);
            }
            Linear::Jointly | Linear::Parts | Linear::Joins => {}
            Linear::InEach(operands) => {
                for operand in operands.iter().filter(|operand| is_sum(&op.operands[**operand])) {
                    add(AxisRole::Pass(*operand));
                }
            }
        }
        add(AxisRole::Whole);
        self.cut_heads_for_tokens(op, rule, axis, &mut roles);
        roles
    }

    /// Replaces a cut along tokens by a cut along another dim of the queries that is large enough,
    /// such as heads. This applies to axes without distributed work, because ring attention costs a
    /// round per rank there.
    fn cut_heads_for_tokens(&self, op: &Op, rule: &Rule, axis: AxisId, roles: &mut SmallVec<[AxisRole; 4]>) {
        let Some(around) = op.kind.row().around.filter(|_| !self.dealt_axes.contains(&axis)) else { return };
        let Factor::Letter(tokens) = rule.operands[around.operands[0]][around.dim] else { return };
        let Some(place) = roles.iter().position(|on_axis| *on_axis == AxisRole::Letter(tokens)) else {
            return;
        };
        roles.remove(place);
        let queries = &self.program.values[op.operands[0]].shape;
        for (factor, size) in rule.operands[0].iter().zip(queries.sizes()) {
            if let Factor::Letter(letter) = *factor
                && letter != tokens
                && *size >= self.mesh.size(axis)
                && !roles.contains(&AxisRole::Letter(letter))
            {
                roles.push(AxisRole::Letter(letter));
            }
        }
    }

    fn laid(&self, op: &Op, rule: &Rule, on_axis: &[AxisRole]) -> (Vec<Layout>, SmallVec<[Layout; 1]>) {
        let mut operands: Vec<Layout> =
            rule.operands.iter().map(|dims| Layout::replicated(dims.len())).collect();
        let whole = rule.results[..op.results.len()].iter().map(|dims| Layout::replicated(dims.len()));
        let mut produced: SmallVec<[Layout; 1]> = whole.collect();
        for (axis, what) in self.mesh.ids().into_iter().zip(on_axis) {
            let sum = |layout: &mut Layout| layout.partial.push((axis, Reduce::Sum));
            match *what {
                AxisRole::Whole => {}
                AxisRole::Letter(letter) => {
                    for (index, layout) in operands.iter_mut().enumerate() {
                        if let Some(dim) = rule.operand_dim(index, letter) {
                            layout.dims[dim].push(axis);
                        }
                    }
                    for (index, layout) in produced.iter_mut().enumerate() {
                        match rule.result_dim(index, letter) {
                            Some(dim) => layout.dims[dim].push(axis),
                            None => layout.partial.push((axis, rule.reduce)),
                        }
                    }
                }
                AxisRole::Pass(operand) => produced.iter_mut().chain([&mut operands[operand]]).for_each(sum),
                AxisRole::Join => {
                    let count = op.kind.row().in_place.len();
                    let kept = produced.iter_mut().take(count);
                    // The partial sums and their residuals.
                    operands.iter_mut().take(1 + count).chain(kept).for_each(sum);
                }
                AxisRole::PassAll => operands.iter_mut().chain(&mut produced).for_each(sum),
            }
        }
        (operands, produced)
    }

    fn try_combination(
        &self,
        id: OpId,
        rule: &Rule,
        on_axis: &[AxisRole],
        now: &KnownLayouts,
    ) -> Option<OpChoice> {
        let op = &self.program.ops[id];
        let (mut operands, produced) = self.laid(op, rule, on_axis);
        let shards = |own: &OwnSize| -> usize {
            operands[own.operand].dims[own.dim].iter().map(|axis| self.mesh.size(*axis)).product()
        };
        if rule.own_size.iter().any(|own| !rule.pools.is_multiple_of(shards(own))) {
            return None;
        }
        // Partial results must all have the same reduction.
        if produced
            .iter()
            .any(|layout| layout.partial.iter().any(|(_, reduce)| *reduce != layout.partial[0].1))
        {
            return None;
        }
        for index in op.kind.row().shape_only {
            if let Some(found) = &now.layouts[op.operands[*index].index()] {
                operands[*index].clone_from(found);
            }
        }
        let in_place = op.kind.row().in_place;
        let mut paid = Score { repeated: self.repeated(op, rule, on_axis, now), ..Score::default() };
        for (index, (operand, layout)) in op.operands.iter().zip(&operands).enumerate() {
            paid = paid + self.operand_score(*operand, layout, in_place.contains(&index), now)?;
        }
        let mut stored: SmallVec<[Layout; 1]> = SmallVec::new();
        let mut due = Cost::default();
        for (index, (id, produced)) in op.results.iter().zip(&produced).enumerate() {
            let result = &self.program.values[*id];
            let size_bytes = result.dtype.size_bytes();
            let wanted = match &self.pinned[id.index()] {
                Some(pinned) if index < in_place.len() && pinned != produced => return None,
                Some(pinned) => pinned.clone(),
                None => self.along[id.index()].iter().fold(produced.clone(), |layout, (dim, axes)| {
                    axes.iter().fold(layout, |layout, axis| layout.only_along(*dim, *axis))
                }),
            };
            let mut reduced = wanted.clone();
            reduced.partial.clear();
            let made = cost(produced, &wanted, self.mesh, &result.shape, size_bytes)?;
            due = due + cost(&wanted, &reduced, self.mesh, &result.shape, size_bytes)?;
            let local_elems = produced.largest_local_elems(self.mesh, &result.shape);
            paid = paid + Score { cost: made, local_elems, ..Score::default() };
            stored.push(wanted);
        }
        Some(OpChoice { operands, produced, stored, paid, due })
    }

    /// Returns the number of work axes on which an op runs whole although it could run sharded.
    fn repeated(&self, op: &Op, rule: &Rule, on_axis: &[AxisRole], now: &KnownLayouts) -> usize {
        let is_in_parts = |axis: AxisId| {
            op.operands.iter().zip(&rule.operands).any(|(operand, factors)| {
                let dim = now.layouts[operand.index()].as_ref().and_then(|layout| layout.dim_of(axis));
                dim.is_some_and(|dim| matches!(factors[dim], Factor::Letter(_)))
            })
        };
        let whole = |axis: &AxisId| on_axis[axis.index()] == AxisRole::Whole && is_in_parts(*axis);
        self.dealt_axes.iter().filter(|axis| whole(axis)).count()
    }
}
