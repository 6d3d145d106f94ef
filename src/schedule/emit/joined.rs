//! Emits launches that several ops share: the joins of `join` for which this rank's shards have the
//! layout that one call needs.

use smallvec::SmallVec;

use super::Emitter;
use crate::base::{DType, Id, Number, Shape, defect};
use crate::call::{Call, View};
use crate::program::npu::joined::{self, Activation};
use crate::program::{Emit, Known, Op, OpId, ValueId};
use crate::schedule::join::{JoinedProduct, LaunchGroup, first_weight};
use crate::schedule::plan::{Launched, Region};

/// Reading a part as separate rows may take a copy, which is shorter than a launch up to this size.
const LARGEST_JOINT_BYTES: usize = 1 << 20;

struct JoinedProducts<'a> {
    members: &'a [JoinedProduct],
    x: View,
    tokens: Option<View>,
    widths: Vec<usize>,
    results: Vec<ValueId>,
}

impl Emitter<'_> {
    /// Returns `false` if the op must be emitted alone.
    pub(super) fn join(&mut self, first: OpId) -> bool {
        if let Some(writes) = self.joins.turned(first)
            && let Ok(rows) = self.turned_rows(first, writes)
        {
            self.turn_rows(first, writes, rows);
            return true;
        }
        let Some(group) = self.joins.at(first).cloned() else { return false };
        let (made, other) = match group {
            LaunchGroup::Products { members, gated } => return self.products(&members, gated),
            LaunchGroup::Quantised([scales, integers]) => (self.quantised(scales, integers), integers),
            LaunchGroup::Norm([sum, norm]) => (self.add_norm(sum, norm), norm),
            // Keys that are rotated by their cache write do not share a launch with the queries.
            LaunchGroup::Rotary([_, other]) if self.is_turned(other) => return false,
            LaunchGroup::Rotary([one, other]) => (self.rotary(one, other), other),
            LaunchGroup::CacheRows([one, other]) => (self.cache_rows(one, other), other),
        };
        match made {
            Ok(()) => self.share(first, other),
            Err(reason) => {
                defect!(JoinedOpMissing, self.is_emitted.insert(other));
                self.say_launched(other, Launched::Apart(reason));
            }
        }
        self.is_emitted.contains(&other)
    }

    fn share(&mut self, first: OpId, other: OpId) {
        let with = self.noted(first);
        self.say_launched(other, Launched::With(with));
        self.is_emitted.insert(other);
    }

    /// The op may have no note yet.
    fn say_launched(&mut self, op: OpId, launched: Launched) {
        let note = self.noted(op);
        if note.index() < self.plan.notes.len() {
            self.plan.notes[note].launch = launched;
        } else {
            self.launched.insert(note, launched);
        }
    }

    pub(super) fn write_calls(&mut self, op: OpId, write: impl FnOnce(&mut Emit<'_>)) {
        let plan = &mut self.plan;
        let mut allocate = |bytes| plan.buffer(Region::Arena, bytes);
        let (operands, results, calls) = (Vec::new(), SmallVec::new(), Vec::new());
        let kernels = self.joins.kernels;
        let known = &mut self.known;
        let mut emit = Emit { operands, results, calls, allocate: &mut allocate, kernels, known };
        write(&mut emit);
        let calls = emit.calls;
        self.launch(op, calls);
    }

    fn products(&mut self, members: &[JoinedProduct], gated: bool) -> bool {
        let program = &self.placed.program;
        let op = |id: OpId| &program.ops[id];
        let kind = &op(members[0].op).kind;
        let x = self.view(op(members[0].op).operands[0]);
        let rows = kind.einsum().map_or(0, |spec| spec.rows().len());
        let (m, inner) =
            (x.shape[..rows].iter().product::<usize>(), x.shape[rows..].iter().product::<usize>());
        let results: Vec<ValueId> = members.iter().map(|of| op(of.bias.unwrap_or(of.op)).result()).collect();
        let weight = first_weight(op(members[0].op));
        let elems = |of: &JoinedProduct| {
            let result = op(of.op).result();
            let shape = &program.values[result].shape;
            self.placed.layouts[result].local_shape(&self.placed.mesh, shape, self.rank).elems()
        };
        let widths: Vec<usize> = members.iter().map(|of| elems(of).checked_div(m).unwrap_or(0)).collect();
        let total: usize = widths.iter().sum();
        if m * total * inner == 0 || results.iter().any(|id| self.windows[id.index()].is_some()) {
            return false;
        }
        let bytes = m * total * program.values[results[0]].dtype.size_bytes();
        let Some(x) = x.reshape([m, inner]) else { return false };
        let tokens = (weight > 1).then(|| self.view(op(members[0].op).operands[1]));
        let joint = JoinedProducts { members, x, tokens, widths, results };
        let refused = joined::refusal(kind, total);
        if refused.is_none() && (gated || m == 1 || bytes <= LARGEST_JOINT_BYTES) {
            return self.as_one(&joint, total);
        }
        let copied = || format!("a joint result of {bytes} bytes would be copied apart");
        let reason = refused.unwrap_or_else(copied);
        for product in &members[1..] {
            self.say_launched(product.op, Launched::Apart(reason.clone()));
        }
        let with_bias = members[0].bias.is_some() && joined::adds_bias(kind);
        if with_bias {
            self.one_by_one(&joint);
        }
        with_bias
    }

    fn as_one(&mut self, joint: &JoinedProducts<'_>, total: usize) -> bool {
        let JoinedProducts { members, x, tokens, widths, results } = joint;
        let placed = self.placed;
        let op = |id: OpId| &placed.program.ops[id];
        let first = op(members[0].op);
        let of = |emitter: &Self, values: Vec<ValueId>| emitter.one_behind_the_other(&values);
        let weights = (first_weight(first)..first.operands.len())
            .map(|at| of(self, members.iter().map(|product| op(product.op).operands[at]).collect()))
            .collect::<Option<Vec<View>>>();
        let Some(mut weights) = weights else { return false };
        // Packed rows have fewer elements than inputs.
        let columns = weights[0].elems() / total;
        weights[0] = match weights[0].reshape([total, columns]) {
            Some(rows) => rows,
            None => return false,
        };
        let biases: Vec<ValueId> = members.iter().filter_map(|of| Some(op(of.bias?).operands[1])).collect();
        let bias = if biases.is_empty() { Some(None) } else { of(self, biases).map(Some) };
        let Some(bias) = bias else { return false };
        let out = self.temporary(placed.program.values[results[0]].dtype, [x.shape[0], total].into());
        let mut at = 0;
        for (result, width) in results.iter().zip(widths) {
            let value = &placed.program.values[*result];
            let local = placed.layouts[*result].local_shape(&placed.mesh, &value.shape, self.rank);
            self.views[result.index()] = out.narrow(1, at, *width).reshape(local);
            at += width;
        }
        #[cfg(test)]
        for pair in results.windows(2) {
            let [one, other] = [pair[0], pair[1]].map(|result| self.views[result.index()].clone());
            if let (Some(one), Some(other)) = (one, other)
                && one.shape == other.shape
            {
                defect!(JoinedWindowsSwapped, {
                    self.views[pair[0].index()] = Some(other);
                    self.views[pair[1].index()] = Some(one);
                });
            }
        }
        let activation = Activation { x: x.clone(), tokens: tokens.clone() };
        self.write_calls(members[0].op, |emit| {
            joined::product(&first.kind, activation, weights, bias, out, emit);
        });
        let others = members.iter().flat_map(|product| [Some(product.op), product.bias]).flatten().skip(1);
        others.for_each(|other| self.share(members[0].op, other));
        true
    }

    fn one_by_one(&mut self, joint: &JoinedProducts<'_>) {
        let placed = self.placed;
        for ((product, result), width) in joint.members.iter().zip(&joint.results).zip(&joint.widths) {
            let op = &placed.program.ops[product.op];
            let out = self.new_view(*result);
            self.views[result.index()] = Some(out.clone());
            let rows = out.reshape([joint.x.shape[0], *width]);
            let weight = self.view(op.operands[first_weight(op)]).reshape([*width, joint.x.shape[1]]);
            let bias =
                product.bias.and_then(|of| self.view(placed.program.ops[of].operands[1]).reshape([*width]));
            if let (Some(out), Some(weight), true) = (rows, weight, *width > 0) {
                let activation = Activation { x: joint.x.clone(), tokens: None };
                self.write_calls(product.op, |emit| {
                    joined::product(&op.kind, activation, vec![weight], bias, out, emit);
                });
            }
            self.is_emitted.insert(product.op);
            product.bias.into_iter().for_each(|bias| self.share(product.op, bias));
        }
    }

    fn one_behind_the_other(&self, values: &[ValueId]) -> Option<View> {
        let flat = |id: &ValueId| {
            let view = self.view(*id);
            view.reshape([view.elems()])
        };
        View::side_by_side(&values.iter().map(flat).collect::<Option<Vec<View>>>()?)
    }

    fn quantised(&mut self, scales: OpId, integers: OpId) -> Result<(), String> {
        let placed = self.placed;
        let of = &placed.program.ops[scales];
        let x = self.view(of.operands[0]);
        if x.elems() == 0 {
            return Err("this card has none of the rows".to_owned());
        }
        if x.dtype == DType::F32 {
            return Err("the operator takes rows of 16 bits".to_owned());
        }
        let results = [of, &placed.program.ops[integers]].map(Op::result);
        let made = results.map(|id| self.new_view(id));
        for (id, view) in results.into_iter().zip(&made) {
            self.views[id.index()] = Some(view.clone());
        }
        self.write_calls(scales, |emit| joined::quantised(&of.kind, x, made, emit));
        Ok(())
    }

    fn add_norm(&mut self, sum: OpId, norm: OpId) -> Result<(), String> {
        let placed = self.placed;
        let (add, of) = (&placed.program.ops[sum], &placed.program.ops[norm]);
        let [a, b, gamma] = [add.operands[0], add.operands[1], of.operands[1]].map(|id| self.view(id));
        if a.elems() == 0 {
            return Err("this card has none of the sum".to_owned());
        }
        let [made, out] = [add.result(), of.result()].map(|id| self.new_view(id));
        let rstd = of.results.get(1).map(|id| self.new_view(*id));
        let results = [(add.result(), made.clone()), (of.result(), out.clone())];
        let all = results.into_iter().chain(of.results.get(1).copied().zip(rstd.clone()));
        all.for_each(|(id, view)| self.views[id.index()] = Some(view));
        self.write_calls(sum, |emit| joined::add_rms_norm(&of.kind, [a, b, gamma, made, out], rstd, emit));
        Ok(())
    }

    fn rotary(&mut self, one: OpId, other: OpId) -> Result<(), String> {
        let placed = self.placed;
        let ops = [one, other].map(|id| &placed.program.ops[id]);
        let [q, k] = ops.map(|op| self.view(op.operands[0]));
        let [cos, sin] = [1, 2].map(|at| self.view(ops[0].operands[at]));
        if ops.iter().any(|op| self.windows[op.result().index()].is_some()) {
            return Err("their results are exchanged".to_owned());
        }
        let refused = match joined::rotary_pair(&q, &k, &cos, &sin) {
            Ok(call) => {
                ops.into_iter()
                    .zip([q, k])
                    .for_each(|(op, view)| self.views[op.result().index()] = Some(view));
                self.known.retain(Known::is_of_input);
                self.launch(one, [call]);
                return Ok(());
            }
            Err(reason) => reason,
        };
        // All heads of a single token are in one row, and so are the results.
        let [1, 1, .., d] = *q.shape.sizes() else { return Err(refused) };
        let row = |view: &View| view.reshape([1, 1, view.elems()]);
        let both = row(&q).zip(row(&k)).filter(|_| q.elems() > 0 && k.elems() > 0);
        let joint = both.and_then(|(q, k)| View::side_by_side(&[q, k]));
        let Some(x) = joint.and_then(|view| view.reshape([1, 1, view.elems() / d, d])) else {
            return Err(refused);
        };
        let out = self.temporary(x.dtype, x.shape.clone());
        let parts = [out.narrow(2, 0, q.elems() / d), out.narrow(2, q.elems() / d, k.elems() / d)];
        for ((op, part), shape) in ops.into_iter().zip(parts).zip([q.shape, k.shape]) {
            self.views[op.result().index()] = part.reshape(shape);
        }
        self.write_calls(one, |emit| joined::alone(&ops[0].kind, vec![x, cos, sin], &[out], emit));
        Ok(())
    }

    fn cache_rows(&mut self, one: OpId, other: OpId) -> Result<(), String> {
        let ops = [one, other].map(|id| &self.placed.program.ops[id]);
        let caches = ops.map(|op| self.view(op.operands[0]));
        let rows = ops.map(|op| self.view(op.operands[1]));
        let [into, rows] = joined::cache_pair(caches.each_ref(), rows.each_ref())?;
        self.check_pool(ops[0])?;
        let places = caches[0].shape[0] * caches[0].shape[1];
        let slots = self.view(ops[0].operands[2]);
        let slots = self.twice(one, slots, places);
        ops.into_iter().zip(caches).for_each(|(op, cache)| self.views[op.result().index()] = Some(cache));
        self.known.retain(Known::is_of_input);
        self.write_calls(one, |emit| {
            joined::alone(&ops[0].kind.in_one_pool(), vec![into.clone(), rows, slots], &[into], emit);
        });
        Ok(())
    }

    /// Writes to several pools of a card cannot share a launch.
    fn check_pool(&self, write: &Op) -> Result<(), String> {
        match self.local(write.operands[0]).pools(&write.kind) {
            1 => Ok(()),
            _ => Err("the places of several pools have different starts".to_owned()),
        }
    }

    fn is_turned(&self, rope: OpId) -> bool {
        self.joins.turned(rope).is_some_and(|writes| self.turned_rows(rope, writes).is_ok())
    }

    fn turned_rows(&self, rope: OpId, writes: [OpId; 2]) -> Result<[View; 5], String> {
        let ops = writes.map(|id| &self.placed.program.ops[id]);
        let [keys, values] =
            [self.placed.program.ops[rope].operands[0], ops[1].operands[1]].map(|id| self.view(id));
        let [key_cache, value_cache] = ops.map(|op| self.view(op.operands[0]));
        self.check_pool(ops[0])?;
        joined::turned_rows([keys, values, key_cache, value_cache, self.view(ops[0].operands[2])])
    }

    fn turn_rows(
        &mut self,
        rope: OpId,
        writes: [OpId; 2],
        [keys, values, key_cache, value_cache, slots]: [View; 5],
    ) {
        let program = &self.placed.program;
        let [cos, sin] = [1, 2].map(|at| self.view(program.ops[rope].operands[at]));
        let [cos, sin] = [cos, sin].map(|view| self.angles(rope, view));
        for write in writes {
            let op = &program.ops[write];
            self.views[op.result().index()] = Some(self.view(op.operands[0]));
            self.share(rope, write);
        }
        self.known.retain(Known::is_of_input);
        let views = [keys, values, cos, sin, slots, key_cache, value_cache].map(Box::new);
        let [keys, values, cos, sin, slots, key_cache, value_cache] = views;
        self.launch(rope, [Call::TurnedRows { keys, values, cos, sin, slots, key_cache, value_cache }]);
    }

    /// Angles of one half of a head in f32, one row per token. Computed once per plan.
    fn angles(&mut self, op: OpId, of: View) -> View {
        if let Some((_, made)) = self.angles.iter().find(|(known, _)| *known == of) {
            return made.clone();
        }
        let half = of.narrow(2, 0, of.shape[2] / 2);
        let made = self.temporary(DType::F32, half.shape.clone());
        self.launch(op, [Call::Cast { x: half, out: made.clone() }]);
        self.angles.push((of, made.clone()));
        made
    }

    /// Places of rows in one cache, then the same places in the cache behind it, once per plan. A
    /// cache has `places` places.
    fn twice(&mut self, op: OpId, of: View, places: usize) -> View {
        if let Some((_, made)) = self.twice.iter().find(|(known, _)| *known == of) {
            return made.clone();
        }
        let len = of.elems();
        let made = self.temporary(of.dtype, Shape::from([2, len]));
        let row = |at: usize| View {
            shape: of.shape.clone(),
            strides: of.shape.strides(),
            ..made.narrow(0, at, 1)
        };
        let shifted = Call::Adds { x: of.clone(), out: row(1), by: Number::Int(places as i64) };
        self.launch(op, [Call::Copy { from: of.clone(), into: row(0) }, shifted]);
        let sizes = Shape::from([2 * of.shape[0], of.shape[1]]);
        let made = View { strides: sizes.strides(), shape: sizes, ..made };
        self.twice.push((of, made.clone()));
        made
    }
}
