//! Finds the ops of a lowered program that can share a launch, and the params and states that must
//! be contiguous for it: products of one activation, a sum with its norm, rotary embeddings of
//! queries and keys, and the two cache writes of a layer.
//!
//! Invariant: the result depends on the program alone, not on rank, batch or length, so all
//! programs of a model lay out weights and caches alike. `emit::joined` makes the final decision
//! per rank.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::base::{Id, Kernels};
use crate::placement::Placed;
use crate::program::models::input;
use crate::program::op::Join;
use crate::program::{Op, OpId, Program, Role, ValueId};

#[derive(Clone, Copy, Debug)]
pub(super) struct JoinedProduct {
    pub(super) op: OpId,
    pub(super) bias: Option<OpId>,
}

/// `gated`: a single op reads the results of both products as one.
#[derive(Clone, Debug)]
pub(super) enum LaunchGroup {
    Products {
        members: Vec<JoinedProduct>,
        gated: bool,
    },
    /// Scales and integers of an activation.
    Quantised([OpId; 2]),
    Norm([OpId; 2]),
    Rotary([OpId; 2]),
    CacheRows([OpId; 2]),
}

impl LaunchGroup {
    fn ops(&self) -> SmallVec<[OpId; 6]> {
        match self {
            Self::Products { members, .. } => {
                members.iter().flat_map(|product| [Some(product.op), product.bias]).flatten().collect()
            }
            Self::Quantised(pair) | Self::Norm(pair) | Self::Rotary(pair) | Self::CacheRows(pair) => {
                SmallVec::from_slice(pair)
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Joins {
    groups: FxHashMap<OpId, LaunchGroup>,
    beside: FxHashMap<ValueId, Vec<ValueId>>,
    /// Cache writes of keys and values, by the op that rotates the keys.
    turned: FxHashMap<OpId, [OpId; 2]>,
    pub(super) kernels: Kernels,
}

impl Joins {
    pub(super) fn of(placed: &Placed, kernels: Kernels) -> Self {
        let mut search = JoinSearch::new(placed);
        search.products();
        search.quantised();
        search.norms();
        search.rotary();
        search.cache_rows();
        if kernels.has("cache_write") {
            search.turned_rows();
        }
        Self { kernels, ..search.found }
    }

    pub(super) fn of_any_memory(placed: &Placed, kernels: Kernels) -> Self {
        let mut search = JoinSearch::new(placed);
        search.quantised();
        search.norms();
        search.rotary();
        Self { kernels, ..search.found }
    }

    /// Keeps a group if each op satisfies `is_alike` with the first. Ops of other phases or devices
    /// share nothing.
    pub(super) fn among(mut self, is_alike: impl Fn(OpId, OpId) -> bool) -> Self {
        self.groups.retain(|first, group| group.ops().into_iter().all(|op| is_alike(*first, op)));
        self.turned.retain(|first, writes| writes.iter().all(|op| is_alike(*first, *op)));
        self
    }

    /// Adopts the memory layout of `other`. Values that are not contiguous there are launched
    /// separately.
    pub(super) fn on_memory_of(mut self, placed: &Placed, other: &Placed) -> Self {
        let stored = |program: &Program| -> Vec<ValueId> {
            [Role::Param, Role::State].into_iter().flat_map(|role| program.with_role(role)).collect()
        };
        let name = |id: &ValueId| other.program.values[*id].name.as_str();
        let own: FxHashMap<&str, ValueId> = stored(&placed.program)
            .into_iter()
            .map(|id| (placed.program.values[id].name.as_str(), id))
            .collect();
        let here = |values: Vec<ValueId>| {
            values.iter().map(|id| own.get(name(id)).copied()).collect::<Option<Vec<_>>>()
        };
        self.beside.clear();
        for values in Self::of(other, Kernels::NONE).beside.into_values().filter_map(here) {
            self.lie_beside(values);
        }
        self
    }

    pub(super) fn at(&self, op: OpId) -> Option<&LaunchGroup> {
        self.groups.get(&op)
    }

    pub(super) fn turned(&self, rope: OpId) -> Option<[OpId; 2]> {
        self.turned.get(&rope).copied()
    }

    pub(super) fn beside(&self, value: ValueId) -> Option<&[ValueId]> {
        self.beside.get(&value).map(Vec::as_slice)
    }

    fn lie_beside(&mut self, values: Vec<ValueId>) {
        self.beside.insert(values[0], values);
    }
}

/// The operands before it are the activation.
pub(super) fn first_weight(op: &Op) -> usize {
    op.kind.row().weights.operands().first().copied().unwrap_or(op.operands.len())
}

struct JoinSearch<'a> {
    placed: &'a Placed,
    program: &'a Program,
    readers: Vec<SmallVec<[OpId; 3]>>,
    makers: Vec<Option<OpId>>,
    taken: FxHashSet<OpId>,
    found: Joins,
}

impl<'a> JoinSearch<'a> {
    fn new(placed: &'a Placed) -> Self {
        let program = &placed.program;
        let mut readers = vec![SmallVec::new(); program.values.len()];
        let mut makers = vec![None; program.values.len()];
        for (id, op) in program.ops.iter() {
            op.operands.iter().for_each(|operand| readers[operand.index()].push(id));
            op.results.iter().for_each(|result| makers[result.index()] = Some(id));
        }
        Self { placed, program, readers, makers, taken: FxHashSet::default(), found: Joins::default() }
    }

    fn ops(&self, join: Join) -> impl Iterator<Item = (OpId, &'a Op)> + use<'a> {
        let ops = self.program.ops.iter();
        ops.filter(move |(_, op)| op.kind.row().join == join)
    }

    fn is_given(&self, value: ValueId, role: Role) -> bool {
        self.program.values[value].role == role
    }

    fn only_reader(&self, value: ValueId) -> Option<OpId> {
        let is_output = self.program.outputs.iter().any(|(_, id)| *id == value);
        match self.readers[value.index()].as_slice() {
            [reader] if !is_output => Some(*reader),
            _ => None,
        }
    }

    fn is_before(&self, value: ValueId, op: OpId) -> bool {
        self.makers[value.index()].is_none_or(|maker| maker < op)
    }

    /// Follows movements back to the value that they copy, which does not depend on the layouts.
    fn origin(&self, mut value: ValueId) -> ValueId {
        while let Some(maker) = self.makers[value.index()].map(|maker| &self.program.ops[maker]) {
            let at = maker.results.iter().position(|result| *result == value);
            match at.and_then(|at| maker.operands.get(at)).filter(|_| maker.kind.is_movement()) {
                Some(operand) => value = *operand,
                None => break,
            }
        }
        value
    }

    /// Stores the weights of the products of one activation contiguously, even if this program
    /// cannot fuse them: another program of the model may.
    fn products(&mut self) {
        let mut places = FxHashMap::default();
        let mut families: Vec<Vec<OpId>> = Vec::new();
        for (id, op) in self.ops(Join::Product) {
            let weights = &op.operands[first_weight(op)..];
            let is_free = |value: &ValueId| {
                self.is_given(*value, Role::Param) && self.readers[value.index()].as_slice() == [id]
            };
            if !op.kind.einsum().is_some_and(|spec| spec.is_linear_layer()) || !weights.iter().all(is_free) {
                continue;
            }
            let dtypes: SmallVec<[_; 2]> = weights.iter().map(|id| self.program.values[*id].dtype).collect();
            let origin = self.origin(op.operands[0]);
            let key = (origin, op.kind.row().name, dtypes, op.kind.packed().map(|dims| dims.group));
            let place = *places.entry(key).or_insert(families.len());
            if place == families.len() {
                families.push(Vec::new());
            }
            families[place].push(id);
        }
        for family in families.into_iter().filter(|family| family.len() > 1) {
            let ops: Vec<&Op> = family.iter().map(|id| &self.program.ops[*id]).collect();
            for operand in first_weight(ops[0])..ops[0].operands.len() {
                self.found.lie_beside(ops.iter().map(|op| op.operands[operand]).collect());
            }
            if let Some(biases) = ops.iter().map(|op| self.added_row(op)).collect::<Option<Vec<ValueId>>>() {
                self.found.lie_beside(biases);
            }
            let mut left = family;
            while let Some(first) = left.first().map(|id| self.program.ops[*id].operands[0]) {
                let (own, others): (Vec<_>, Vec<_>) =
                    left.into_iter().partition(|id| self.program.ops[*id].operands[0] == first);
                if own.len() > 1 {
                    self.add_products(own);
                }
                left = others;
            }
        }
    }

    /// The param added to each row of a product, past any movements.
    fn added_row(&self, product: &Op) -> Option<ValueId> {
        let mut made = product.result();
        let mut reader = &self.program.ops[self.only_reader(made)?];
        while reader.kind.is_movement() {
            let at = reader.operands.iter().position(|operand| *operand == made)?;
            made = *reader.results.get(at)?;
            reader = &self.program.ops[self.only_reader(made)?];
        }
        let &[sum, bias] = reader.operands.as_slice() else { return None };
        let columns = product.kind.einsum().map(|spec| spec.columns().len())?;
        let (value, result) = (&self.program.values[bias], &self.program.values[made]);
        let fits = reader.kind.row().join == Join::Sum
            && sum == made
            && value.shape.sizes() == &result.shape[result.shape.rank() - columns..]
            && self.is_given(bias, Role::Param)
            && self.readers[bias.index()].len() == 1;
        fits.then_some(bias)
    }

    fn bias(&self, product: &Op) -> Option<OpId> {
        self.added_row(product)?;
        let made = product.result();
        let reader = self.only_reader(made)?;
        let is_next = self.program.ops[reader].operands[0] == made
            && self.program.ops[reader].kind.row().join == Join::Sum;
        (is_next && self.placed.layouts[made].partial.is_empty()).then_some(reader)
    }

    fn add_products(&mut self, members: Vec<OpId>) {
        let product = |op: OpId| JoinedProduct { op, bias: self.bias(&self.program.ops[op]) };
        let mut members: Vec<JoinedProduct> = members.into_iter().map(product).collect();
        if members.iter().any(|product| product.bias.is_none()) {
            members.iter_mut().for_each(|product| product.bias = None);
        }
        let results: Vec<ValueId> = members
            .iter()
            .map(|product| self.program.ops[product.bias.unwrap_or(product.op)].result())
            .collect();
        let reader = self.only_reader(results[0]).map(|reader| &self.program.ops[reader]);
        let gated = reader.is_some_and(|op| op.kind.row().join == Join::Gated && op.operands == results)
            && results.iter().all(|result| self.only_reader(*result).is_some());
        self.taken.extend(members.iter().flat_map(|product| [Some(product.op), product.bias]).flatten());
        self.found.groups.insert(members[0].op, LaunchGroup::Products { members, gated });
    }

    fn quantised(&mut self) {
        for (integers, op) in self.ops(Join::Quantise) {
            let Some(scales) = self.makers[op.operands[1].index()] else { continue };
            let of = &self.program.ops[scales];
            if of.kind.row().join == Join::RowScale && of.operands[0] == op.operands[0] {
                self.found.groups.insert(scales, LaunchGroup::Quantised([scales, integers]));
            }
        }
    }

    fn norms(&mut self) {
        for (norm, op) in self.ops(Join::Norm) {
            let (x, gamma) = (op.operands[0], op.operands[1]);
            let Some(sum) = self.makers[x.index()].filter(|sum| !self.taken.contains(sum)) else { continue };
            let of = &self.program.ops[sum];
            let value = |id: ValueId| &self.program.values[id];
            let fits = of.kind.row().join == Join::Sum
                && of.operands.iter().all(|operand| value(*operand).shape == value(x).shape)
                && value(gamma).dtype == value(x).dtype
                && self.is_given(gamma, Role::Param);
            if fits {
                self.taken.insert(sum);
                self.found.groups.insert(sum, LaunchGroup::Norm([sum, norm]));
            }
        }
    }

    /// Pairs each op of a kind with the next that `fits`. The given operand of the second op must
    /// be available before the first op.
    fn pairs(&self, join: Join, operand: usize, fits: impl Fn(&Op, &Op) -> bool) -> Vec<[OpId; 2]> {
        let mut pairs = Vec::new();
        let mut open: Option<(OpId, &Op)> = None;
        for (id, op) in self.ops(join) {
            match open.take() {
                Some((first, one)) if self.is_before(op.operands[operand], first) && fits(one, op) => {
                    pairs.push([first, id]);
                }
                _ => open = Some((id, op)),
            }
        }
        pairs
    }

    fn rotary(&mut self) {
        // A value without other readers, also of its base, can be overwritten.
        let is_own = |op: &Op| {
            let maker = self.makers[op.operands[0].index()].map(|maker| &self.program.ops[maker].kind);
            let is_made = maker.is_some_and(|kind| {
                let row = kind.row();
                !kind.is_movement() && row.in_place.is_empty() && row.view.is_none()
            });
            is_made && self.only_reader(op.operands[0]).is_some()
        };
        let fits = |one: &Op, op: &Op| one.operands[1..] == op.operands[1..] && is_own(one) && is_own(op);
        let pairs = self.pairs(Join::Rotary, 0, fits);
        self.found.groups.extend(pairs.into_iter().map(|pair| (pair[0], LaunchGroup::Rotary(pair))));
    }

    fn cache_rows(&mut self) {
        let of = |op: &Op| {
            let values = [0, 1].map(|at| &self.program.values[op.operands[at]]);
            let layouts = [0, 1].map(|at| &self.placed.layouts[op.operands[at]]);
            (values.map(|value| (&value.shape, value.dtype, value.role)), layouts, op.operands[2])
        };
        let is_state = |op: &Op| {
            self.is_given(op.operands[0], Role::State) && self.readers[op.operands[0].index()].len() == 1
        };
        let fits = |one: &Op, op: &Op| of(one) == of(op) && is_state(one) && is_state(op);
        for pair in self.pairs(Join::CacheRows, 1, fits) {
            self.found.lie_beside(pair.map(|id| self.program.ops[id].operands[0]).to_vec());
            self.found.groups.insert(pair[0], LaunchGroup::CacheRows(pair));
        }
    }

    /// Cache writes of a layer, if the rotated keys have no other reader. The values must be
    /// available before the rotation.
    fn turned_rows(&mut self) {
        let rotary: Vec<[OpId; 2]> =
            self.groups_of(|group| if let LaunchGroup::Rotary(pair) = group { Some(*pair) } else { None });
        let writes: Vec<[OpId; 2]> =
            self.groups_of(|group| if let LaunchGroup::CacheRows(pair) = group { Some(*pair) } else { None });
        for pair in writes {
            let [keys, values] = pair.map(|id| self.program.ops[id].operands[1]);
            let Some(rope) = self.makers[keys.index()] else { continue };
            let op = &self.program.ops[rope];
            let first = rotary.iter().find(|pair| pair[1] == rope).map_or(rope, |pair| pair[0]);
            // `models` repeats the angles for both halves of a head.
            let head = self.program.values[keys].shape.last();
            let is_angle = |at: usize, names: [&str; 2]| {
                let angle = &self.program.values[op.operands[at]];
                names.contains(&angle.name.as_str()) && angle.shape.last() == head
            };
            let fits = op.kind.row().join == Join::Rotary
                && self.only_reader(keys) == Some(pair[0])
                && self.is_before(values, first)
                && is_angle(1, [input::COS, input::LOCAL_COS])
                && is_angle(2, [input::SIN, input::LOCAL_SIN]);
            if fits {
                self.found.turned.insert(rope, pair);
            }
        }
    }

    fn groups_of(&self, kind: impl Fn(&LaunchGroup) -> Option<[OpId; 2]>) -> Vec<[OpId; 2]> {
        let mut found: Vec<[OpId; 2]> = self.found.groups.values().filter_map(kind).collect();
        found.sort_unstable();
        found
    }
}
