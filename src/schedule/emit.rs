//! Emits the steps of one rank in program order. An op becomes calls on the local shards; a
//! movement becomes packing, one collective and unpacking. Buffers have no offsets yet.

mod compressed;
mod cut;
#[cfg(test)]
mod defects;
mod joined;
mod names;
mod ring;
mod stages;
mod windows;

pub use names::{micro_batch, numbered, unnumbered};
pub(super) use stages::emit_stages;
pub use stages::{OpPhase, OpPlace, Staged, StagedStep};

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

use crate::base::{AxisId, Bytes, DType, Id, IdVec, Reduce, Remainder, Shape, defect};
use crate::call::{BufferId, Call, View};
use crate::collective::SMALL_BYTES;
use crate::placement::{Layout, Placed};
use crate::program::models::layer_of;
use crate::program::op::Kind;
use crate::program::{Known, Local, Op, OpId, Role, ValueId, by_pairs};

use super::Ranks;
use super::join::Joins;
use super::overlap::Emitted;
use super::plan::{
    Action, Collective, CollectiveKind, GroupId, Launched, OpNote, Plan, Region, Step, StreamKind, Tap,
    Tensor,
};

pub(super) fn emit(placed: &Placed, joins: &Joins, rank: usize, ranks: Ranks) -> Emitted {
    let program = &placed.program;
    let plan = Plan::empty(program.name.clone(), rank, placed.mesh.cards(), groups(placed, ranks));
    let mut emitter = Emitter { joins: joins.clone(), ..Emitter::new(placed, rank, 0, plan) };
    emitter.given();
    emitter.lay_out(&|_| true);
    let mut ends = Vec::with_capacity(program.ops.len());
    for (id, op) in program.ops.iter() {
        emitter.note(op);
        emitter.op(id, op);
        ends.push(emitter.plan.steps.len());
    }
    emitter.outputs();
    Emitted { plan: emitter.plan, ends, begins: Vec::new(), reserved: Vec::new() }
}

/// Every group that some op exchanges in, the same on all ranks.
fn groups(placed: &Placed, ranks: Ranks) -> IdVec<GroupId, Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut seen: Vec<&[AxisId]> = Vec::new();
    let exchange = |op: &&Op| op.kind.is_collective() && !op.kind.axes().is_empty();
    for op in placed.program.ops.values().iter().filter(exchange) {
        if seen.contains(&op.kind.axes()) {
            continue;
        }
        seen.push(op.kind.axes());
        for rank in ranks.among(placed.mesh.cards()) {
            let group = placed.mesh.group(rank, op.kind.axes());
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
    }
    groups.into_iter().collect()
}

struct SideParts {
    all: View,
    each: Vec<View>,
}

struct Emitter<'a> {
    placed: &'a Placed,
    rank: usize,
    /// Nonzero on later pipeline stages.
    first_rank: usize,
    first_note: usize,
    now: OpId,
    plan: Plan,
    views: Vec<Option<View>>,
    /// Layer of each value, from its name or from the operands of an unnamed value.
    layers: Vec<Option<usize>>,
    /// Part of a shared exchange buffer for each value.
    windows: Vec<Option<View>>,
    shared: FxHashMap<OpId, [SideParts; 2]>,
    /// Buffers of padded values.
    not_zeroed: Vec<View>,
    known: Vec<Known>,
    joins: Joins,
    /// Tensors that follow another in its buffer.
    behind: FxHashMap<ValueId, (BufferId, usize)>,
    is_emitted: FxHashSet<OpId>,
    launched: FxHashMap<OpId, Launched>,
    twice: Vec<(View, View)>,
    angles: Vec<(View, View)>,
    columns: Vec<(View, View)>,
}

impl<'a> Emitter<'a> {
    fn new(placed: &'a Placed, rank: usize, first_rank: usize, plan: Plan) -> Self {
        let values = placed.program.values.len();
        Self {
            placed,
            rank,
            first_rank,
            first_note: 0,
            now: OpId::from_index(0),
            plan,
            views: vec![None; values],
            layers: vec![None; values],
            windows: vec![None; values],
            shared: FxHashMap::default(),
            not_zeroed: Vec::new(),
            known: Vec::new(),
            joins: Joins::default(),
            behind: FxHashMap::default(),
            is_emitted: FxHashSet::default(),
            launched: FxHashMap::default(),
            twice: Vec::new(),
            angles: Vec::new(),
            columns: Vec::new(),
        }
    }

    /// Returns the buffer and the offset in elements.
    fn place(&mut self, id: ValueId, region: Region, elems: usize) -> (BufferId, usize) {
        if let Some(place) = self.behind.remove(&id) {
            return place;
        }
        let placed = self.placed;
        let value = |id: ValueId| &placed.program.values[id];
        let local =
            |id: ValueId| placed.layouts[id].local_shape(&placed.mesh, &value(id).shape, self.rank).elems();
        let others = self.joins.beside(id).map_or(&[][..], |values| &values[1..]);
        let all = elems + others.iter().map(|other| local(*other)).sum::<usize>();
        let buffer = self.plan.buffer(region, Bytes::of(all, value(id).dtype.size_bytes()));
        let mut offset = elems;
        for other in others {
            self.behind.insert(*other, (buffer, offset));
            offset += local(*other);
        }
        (buffer, 0)
    }

    fn tensor(&mut self, id: ValueId, region: Region) -> Tensor {
        let value = &self.placed.program.values[id];
        let ranges = self.placed.layouts[id].ranges(&self.placed.mesh, &value.shape, self.rank);
        #[cfg(test)]
        let ranges = self.changed_part(id, region, ranges);
        let local: Shape = ranges.iter().map(std::ops::Range::len).collect();
        let (buffer, offset) = self.place(id, region, local.elems());
        self.views[id.index()] = Some(View { offset, ..View::contiguous(buffer, value.dtype, local) });
        Tensor {
            name: value.name.clone(),
            shape: value.shape.clone(),
            dtype: value.dtype,
            ranges,
            buffer,
            offset,
            source: value.source.clone(),
        }
    }

    fn given(&mut self) {
        let ids = |role| self.placed.program.with_role(role).collect::<Vec<_>>();
        self.plan.params = ids(Role::Param).into_iter().map(|id| self.tensor(id, Region::Weights)).collect();
        self.plan.states = ids(Role::State).into_iter().map(|id| self.tensor(id, Region::States)).collect();
        self.plan.inputs = ids(Role::Input).into_iter().map(|id| self.tensor(id, Region::Inputs)).collect();
    }

    fn note(&mut self, op: &Op) {
        let program = &self.placed.program;
        let mut named = op.result();
        if program.values[named].name.is_empty()
            && let Some(operand) = op.operands.first()
        {
            named = *operand;
        }
        let value = program.label(named);
        let is_unnamed = program.values[op.result()].name.is_empty();
        let layer = layer_of(&value)
            .or_else(|| op.operands.iter().find_map(|id| layer_of(&program.values[*id].name)))
            .or_else(|| op.operands.iter().filter(|_| is_unnamed).find_map(|id| self.layers[id.index()]));
        // A named value outside the layers, such as the last norm, ends the inheritance.
        let inherited = if is_unnamed { layer } else { layer_of(&value) };
        op.results.iter().for_each(|id| self.layers[id.index()] = inherited);
        let launch = self.launched.remove(&OpId::from_index(self.plan.notes.len())).unwrap_or_default();
        self.plan.notes.push(OpNote { kind: op.kind.row().name, value, layer, launch });
    }

    fn view(&self, id: ValueId) -> View {
        // `verify` ensures that operands are computed before use.
        self.views[id.index()]
            .clone()
            .unwrap_or_else(|| View::contiguous(BufferId::from_index(0), DType::Bool, [0].into()))
    }

    fn local(&self, id: ValueId) -> Local {
        let whole = self.placed.program.values[id].shape.clone();
        let starts = self.placed.layouts[id].starts(&self.placed.mesh, &whole, self.rank);
        Local { view: self.view(id), starts, whole }
    }

    fn zero_first(&mut self, window: &View) {
        if let Some(at) = self.not_zeroed.iter().position(|all| all.buffer == window.buffer) {
            let into = self.not_zeroed.swap_remove(at);
            defect!(ZeroMissing, return);
            self.launch(self.now, [Call::Zero { into }]);
        }
    }

    fn new_view(&mut self, id: ValueId) -> View {
        if let Some(window) = self.windows[id.index()].clone() {
            self.zero_first(&window);
            return window;
        }
        let value = &self.placed.program.values[id];
        let local = self.placed.layouts[id].local_shape(&self.placed.mesh, &value.shape, self.rank);
        let buffer = self.plan.buffer(Region::Arena, Bytes::of(local.elems(), value.dtype.size_bytes()));
        View::contiguous(buffer, value.dtype, local)
    }

    /// Dense, because a collective writes it.
    fn received(&mut self, id: ValueId) -> View {
        if self.windows[id.index()].as_ref().is_some_and(|window| !window.is_contiguous()) {
            self.windows[id.index()] = None;
        }
        self.new_view(id)
    }

    fn op(&mut self, id: OpId, op: &Op) {
        self.now = id;
        if !self.is_emitted.remove(&id) && !self.join(id) {
            self.alone(id, op);
        }
        // With a fused bias, the product itself has no view.
        let made: SmallVec<[ValueId; 2]> =
            op.results.iter().copied().filter(|result| self.views[result.index()].is_some()).collect();
        made.into_iter().for_each(|result| self.tap(result));
    }

    fn alone(&mut self, id: OpId, op: &Op) {
        match &op.kind {
            Kind::Slice { .. } => self.slice(op),
            Kind::Leader { axes } => self.leader(id, op, axes),
            Kind::Pad { dim, .. } => self.pad(id, op, *dim),
            Kind::AllReduce { axes, reduce } => {
                self.all_reduce(id, op, axes, CollectiveKind::AllReduce { reduce: *reduce });
            }
            Kind::AllGather { axes, dim } => self.all_gather(id, op, axes, *dim),
            Kind::ReduceScatter { axes, dim, reduce } => {
                let reduce = *reduce;
                self.reduce_scatter(id, op, axes, *dim, reduce);
            }
            Kind::AllToAll { axes, from, to } => self.all_to_all(id, op, axes, *from, *to),
            Kind::CompressedSum { axes, by } if self.placed.mesh.joint_size(axes) > 1 => {
                self.compressed_sum(id, op, axes, *by);
            }
            Kind::RingAttention { axes, scale } if self.placed.mesh.joint_size(axes) > 1 => {
                self.ring_attention(id, op, axes, *scale);
            }
            Kind::RingAttentionGrad { axes, scale } if self.placed.mesh.joint_size(axes) > 1 => {
                self.ring_attention_grad(id, op, axes, *scale);
            }
            _ => self.compute(id, op),
        }
    }

    /// Returns the result of an op that only arranges the elements of an operand. States and
    /// params are overwritten later, and a value with a window is written there.
    fn arranged(&self, op: &Op) -> Option<View> {
        let view = op.kind.row().view?;
        let (x, result) = (self.view(op.operands[0]), op.result());
        let is_kept = matches!(self.plan.buffers[x.buffer].region, Region::Arena | Region::Inputs);
        if !is_kept || self.windows[result.index()].is_some() {
            return None;
        }
        let Placed { program, mesh, layouts } = self.placed;
        view(&op.kind, &x, &layouts[result].local_shape(mesh, &program.values[result].shape, self.rank))
    }

    fn compute(&mut self, id: OpId, op: &Op) {
        let row = op.kind.row();
        if let Some(view) = self.arranged(op) {
            self.views[op.result().index()] = Some(view);
            return;
        }
        for (index, result) in op.results.iter().enumerate() {
            let out = match row.in_place.get(index) {
                Some(operand) => {
                    let state = self.view(op.operands[*operand]);
                    #[cfg(test)]
                    if state.elems() > 0 {
                        defect!(StateElsewhere, {
                            self.views[result.index()] = Some(self.new_view(*result));
                            continue;
                        });
                    }
                    state
                }
                None => self.new_view(*result),
            };
            self.views[result.index()] = Some(out);
        }
        let operands = op.operands.iter().map(|id| self.local(*id)).collect();
        let results: SmallVec<[Local; 2]> = op.results.iter().map(|id| self.local(*id)).collect();
        if results.iter().all(|result| result.view.elems() == 0) {
            return;
        }
        self.write_calls(id, |emit| {
            (emit.operands, emit.results) = (operands, results);
            (row.npu)(&op.kind, emit);
        });
        if !row.in_place.is_empty() {
            self.known.retain(Known::is_of_input);
        }
    }

    fn launch(&mut self, op: OpId, calls: impl IntoIterator<Item = Call>) {
        let op = self.noted(op);
        let step = |call| Step { stream: StreamKind::Compute, action: Action::Launch(Box::new(call)), op };
        #[cfg(test)]
        let first = self.plan.steps.len();
        self.plan.steps.extend(calls.into_iter().map(step));
        #[cfg(test)]
        self.change_launches(first);
    }

    fn copy(&mut self, op: OpId, from: View, into: View) {
        if from.elems() > 0 {
            defect!(CopyMissing, return);
            self.launch(op, [Call::Copy { from, into }]);
        }
    }

    fn exchange(&mut self, op: OpId, axes: &[AxisId], kind: CollectiveKind, send: View, recv: View) {
        match kind {
            CollectiveKind::AllReduce { reduce: Reduce::Tree } => {
                self.all_reduce_in_tree(op, axes, send, &recv);
            }
            CollectiveKind::ReduceScatter { reduce: Reduce::Tree, counts } => {
                self.reduce_scatter_in_tree(op, axes, counts, send, &recv);
            }
            kind => self.enqueue(op, axes, kind, send, recv),
        }
    }

    /// Sums in the order of [`tree`](crate::program::tree). Each rank sums one share of all parts,
    /// then the ranks gather the shares; this moves the bytes of a ring. For small sums or two
    /// ranks, every rank gathers and sums all parts itself.
    fn all_reduce_in_tree(&mut self, op: OpId, axes: &[AxisId], send: View, recv: &View) {
        let (cards, elems, dtype) = (self.placed.mesh.joint_size(axes), send.elems(), send.dtype);
        if cards == 2 || (cards * send.len_bytes()) as u64 <= SMALL_BYTES {
            let parts = self.temporary(dtype, [cards, elems].into());
            let kind = CollectiveKind::AllGather { counts: vec![elems; cards] };
            self.enqueue(op, axes, kind, send, parts.clone());
            self.add_by_pairs(op, parts, recv);
            return;
        }
        let share = |at: usize| Remainder::Balanced.range(elems, cards, at).len();
        let counts: Vec<usize> = (0..cards).map(share).collect();
        let own = self.temporary(dtype, [counts[self.position(axes)]].into());
        self.reduce_scatter_in_tree(op, axes, counts.clone(), send, &own);
        self.enqueue(op, axes, CollectiveKind::AllGather { counts }, own, recv.clone());
    }

    fn reduce_scatter_in_tree(
        &mut self,
        op: OpId,
        axes: &[AxisId],
        counts: Vec<usize>,
        send: View,
        recv: &View,
    ) {
        let own = counts[self.position(axes)];
        let parts = self.temporary(send.dtype, [counts.len(), own].into());
        let kind = CollectiveKind::AllToAll { recv_counts: vec![own; counts.len()], send_counts: counts };
        self.enqueue(op, axes, kind, send, parts.clone());
        self.add_by_pairs(op, parts, recv);
    }

    /// Adds the rows of `parts` to a dense result of the same size. May overwrite `parts`.
    fn add_by_pairs(&mut self, op: OpId, parts: View, into: &View) {
        if into.elems() > 0 {
            let flat = View { shape: [into.elems()].into(), strides: smallvec![1], ..into.clone() };
            self.launch(op, by_pairs(parts, 0, &flat, self.joins.kernels, |kept| kept));
        }
    }

    fn position(&self, axes: &[AxisId]) -> usize {
        let group = self.placed.mesh.group(self.rank, axes);
        group.iter().position(|rank| *rank == self.rank).unwrap_or_default()
    }

    fn enqueue(&mut self, op: OpId, axes: &[AxisId], kind: CollectiveKind, send: View, recv: View) {
        let ranks: Vec<usize> =
            self.placed.mesh.group(self.rank, axes).into_iter().map(|rank| self.first_rank + rank).collect();
        let group = self.plan.groups.iter().find(|(_, group)| **group == ranks).map(|(id, _)| id);
        // `groups` listed the groups of every collective of the program.
        let Some(group) = group else { return };
        let action = Action::Exchange(Box::new(Collective::alone(kind, group, send, recv)));
        self.plan.steps.push(Step { stream: StreamKind::Communication, action, op: self.noted(op) });
        #[cfg(test)]
        self.change_last_exchange();
    }

    fn noted(&self, op: OpId) -> OpId {
        OpId::from_index(self.first_note + op.index())
    }

    fn dense(&mut self, op: OpId, view: View) -> View {
        if view.is_contiguous() {
            return view;
        }
        // Operators take a view that repeats elements.
        #[cfg(test)]
        if !view.strides.contains(&0) {
            defect!(DenseForgotten, return view);
        }
        let copy = self.temporary(view.dtype, view.shape.clone());
        self.copy(op, view, copy.clone());
        copy
    }

    fn temporary(&mut self, dtype: DType, shape: Shape) -> View {
        View::contiguous(
            self.plan.buffer(Region::Arena, Bytes::of(shape.elems(), dtype.size_bytes())),
            dtype,
            shape,
        )
    }

    /// Start and length of each rank's shard under `layout` along `dim`, for the group of `axes`.
    /// Starts are relative to this rank's range under `around`.
    fn parts(
        &self,
        value: ValueId,
        layout: &Layout,
        around: &Layout,
        axes: &[AxisId],
        dim: usize,
    ) -> Vec<(usize, usize)> {
        let (mesh, shape) = (&self.placed.mesh, &self.placed.program.values[value].shape);
        let start = around.ranges(mesh, shape, self.rank)[dim].start;
        let part = |rank: usize| {
            let range = layout.ranges(mesh, shape, rank)[dim].clone();
            (range.start.saturating_sub(start), range.len())
        };
        mesh.group(self.rank, axes).into_iter().map(part).collect()
    }

    fn slice(&mut self, op: &Op) {
        let Kind::Slice { dim, .. } = op.kind else { return };
        let view = self.shard(&self.view(op.operands[0]), op.operands[0], op.result(), dim);
        self.views[op.result().index()] = Some(view);
    }

    /// Emits no step if the operand is already part of a zeroed buffer.
    fn pad(&mut self, id: OpId, op: &Op, dim: usize) {
        let into = self.new_view(op.result());
        self.views[op.result().index()] = Some(into.clone());
        let (from, part) = (self.view(op.operands[0]), self.shard(&into, op.result(), op.operands[0], dim));
        if from == part {
            return;
        }
        if self.windows[op.result().index()].is_none() && into.elems() > 0 {
            self.launch(id, [Call::Zero { into }]);
        }
        self.copy(id, from, part);
    }

    fn leader(&mut self, id: OpId, op: &Op, axes: &[AxisId]) {
        let first = self.placed.mesh.group(self.rank, axes).first() == Some(&self.rank);
        defect!(LeaderEverywhere, let first = true);
        let (from, into) = (self.view(op.operands[0]), self.new_view(op.result()));
        self.views[op.result().index()] = Some(into.clone());
        if first {
            self.copy(id, from, into);
        } else if into.elems() > 0 {
            self.launch(id, [Call::Zero { into }]);
        }
    }

    fn all_reduce(&mut self, id: OpId, op: &Op, axes: &[AxisId], kind: CollectiveKind) {
        let Some([operands, results]) = self.shared.remove(&id) else {
            let send = self.view(op.operands[0]);
            let send = self.dense(id, send);
            let recv = self.received(op.result());
            self.views[op.result().index()] = Some(recv.clone());
            if recv.elems() > 0 {
                self.exchange(id, axes, kind, send, recv);
            }
            return;
        };
        for (operand, window) in op.operands.iter().zip(operands.each) {
            let made = self.view(*operand);
            if made != window {
                self.zero_first(&window);
                self.copy(id, made, window);
            }
        }
        for (result, window) in op.results.iter().zip(results.each) {
            self.views[result.index()] = Some(window);
        }
        if results.all.elems() > 0 {
            self.exchange(id, axes, kind, operands.all, results.all);
        }
    }

    fn all_gather(&mut self, id: OpId, op: &Op, axes: &[AxisId], dim: usize) {
        let (operand, layouts) = (op.operands[0], &self.placed.layouts);
        let parts = self.parts(operand, &layouts[operand], &layouts[op.result()], axes, dim);
        let send = self.view(operand);
        let send = self.dense(id, send);
        let recv = self.received(op.result());
        self.views[op.result().index()] = Some(recv.clone());
        if recv.elems() == 0 {
            return;
        }
        let row = recv.elems() / recv.shape[dim].max(1);
        let counts: Vec<usize> = parts.iter().map(|(_, len)| len * row).collect();
        let kind = CollectiveKind::AllGather { counts };
        // Concatenated blocks are the result if all outer dims have size 1.
        if recv.shape[..dim].iter().all(|size| *size == 1) {
            self.exchange(id, axes, kind, send, recv);
            return;
        }
        let staged = self.temporary(recv.dtype, [recv.elems()].into());
        self.exchange(id, axes, kind, send, staged.clone());
        self.blocks(&staged, &recv, dim, &parts, |emitter, block, window| emitter.copy(id, block, window));
    }

    /// Calls `each` for each part of `whole` along `dim`, with its block of the flat buffer
    /// `staged` and its window on `whole`.
    fn blocks(
        &mut self,
        staged: &View,
        whole: &View,
        dim: usize,
        parts: &[(usize, usize)],
        mut each: impl FnMut(&mut Self, View, View),
    ) {
        let mut offset = staged.offset;
        #[cfg(test)]
        let turned: Vec<(usize, usize)> = parts.iter().rev().copied().collect();
        defect!(WindowsTurned, let parts = turned.as_slice());
        for (start, len) in parts {
            let window = whole.narrow(dim, *start, *len);
            let strides = window.shape.strides();
            let block = View { offset, shape: window.shape.clone(), strides, ..staged.clone() };
            offset += window.elems();
            each(self, block, window);
        }
    }

    fn reduce_scatter(&mut self, id: OpId, op: &Op, axes: &[AxisId], dim: usize, reduce: Reduce) {
        let (operand, layouts) = (op.operands[0], &self.placed.layouts);
        let parts = self.parts(operand, &layouts[op.result()], &layouts[operand], axes, dim);
        let whole = self.view(operand);
        let recv = self.received(op.result());
        self.views[op.result().index()] = Some(recv.clone());
        if whole.elems() == 0 {
            return;
        }
        let row = whole.elems() / whole.shape[dim].max(1);
        let counts = parts.iter().map(|(_, len)| len * row).collect();
        let send = if whole.shape[..dim].iter().all(|size| *size == 1) {
            self.dense(id, whole)
        } else {
            let staged = self.temporary(whole.dtype, [whole.elems()].into());
            self.blocks(&staged, &whole, dim, &parts, |emitter, block, window| {
                emitter.copy(id, window, block);
            });
            staged
        };
        self.exchange(id, axes, CollectiveKind::ReduceScatter { reduce, counts }, send, recv);
    }

    fn all_to_all(&mut self, id: OpId, op: &Op, axes: &[AxisId], from: usize, to: usize) {
        let (operand, layouts) = (op.operands[0], &self.placed.layouts);
        // Sends the parts of `to` of this rank's rows, and receives this rank's part from all rows
        // of `from`.
        let outgoing = self.parts(operand, &layouts[op.result()], &layouts[operand], axes, to);
        let incoming = self.parts(operand, &layouts[operand], &layouts[op.result()], axes, from);
        let whole = self.view(operand);
        let recv = self.received(op.result());
        self.views[op.result().index()] = Some(recv.clone());
        let elems = |view: &View, dim: usize, len: usize| {
            view.shape.iter().enumerate().filter(|(d, _)| *d != dim).map(|(_, size)| size).product::<usize>()
                * len
        };
        let send_counts: Vec<usize> = outgoing.iter().map(|(_, len)| elems(&whole, to, *len)).collect();
        let recv_counts: Vec<usize> = incoming.iter().map(|(_, len)| elems(&recv, from, *len)).collect();
        let packed = self.temporary(whole.dtype, [whole.elems()].into());
        let staged = self.temporary(recv.dtype, [recv.elems()].into());
        self.blocks(&packed, &whole, to, &outgoing, |emitter, block, window| emitter.copy(id, window, block));
        let kind = CollectiveKind::AllToAll { send_counts, recv_counts };
        self.exchange(id, axes, kind, packed, staged.clone());
        self.blocks(&staged, &recv, from, &incoming, |emitter, block, window| {
            emitter.copy(id, block, window);
        });
    }

    fn tap(&mut self, id: ValueId) {
        let value = &self.placed.program.values[id];
        let layout = &self.placed.layouts[id];
        let mesh = &self.placed.mesh;
        let unnamed = mesh
            .ids()
            .into_iter()
            .filter(|axis| layout.dim_of(*axis).is_none() && layout.partial_on(*axis).is_none());
        let is_first_replica = unnamed.into_iter().all(|axis| mesh.coordinate(self.rank, axis) == 0);
        self.plan.taps.push(Tap {
            value: id,
            view: self.view(id),
            ranges: layout.ranges(&self.placed.mesh, &value.shape, self.rank),
            partial: layout.partial.first().map(|(_, reduce)| *reduce),
            is_first_replica,
            after_steps: self.plan.steps.len(),
        });
        #[cfg(test)]
        self.change_last_tap();
    }

    fn outputs(&mut self) {
        for (name, id) in &self.placed.program.outputs {
            let from = self.view(*id);
            let tensor = Tensor { name: name.clone(), source: None, ..self.tensor(*id, Region::Outputs) };
            let into = self.view(*id);
            let op = OpId::from_index(self.plan.notes.len());
            defect!(OutputMissing, let from = View { shape: [0].into(), strides: smallvec![1], ..from });
            self.copy(op, from, into);
            self.plan.outputs.push(tensor);
            self.plan.notes.push(OpNote {
                kind: "output",
                value: name.clone(),
                layer: None,
                launch: Launched::Alone,
            });
        }
    }
}
