//! Linear layers and experts with weights in 4-bit groups that stay packed on the cards.
//!
//! Input: a weight in a packed format, and its product. Output: the product with words, scales and
//! offsets as params, or the reason why the weight becomes floats.
//!
//! Invariants: a shard of the inputs has whole groups. The intermediate size of a feed-forward part
//! is split into groups for this.
//!
//! Not here: how words are read from the formats of files.

use crate::base::{DType, Packing, Unpacked, WORD, Weights, common_divisor};
use crate::config::{Activation, Mixture, WeightFormat};
use crate::program::TensorNames;
use crate::program::build::{Builder, Operand};
use crate::program::graph::{Form, GroupPlace, GroupRows, Op, PackedRows, Program, Source, ValueId};
use crate::program::op::Kind;
use crate::program::rule::{Einsum, PackedDims};

use super::layer_of_weight;
use super::layers::{LayerInputs, LinearWeight, check_multiples, row_blocks};

/// Largest number of inputs per group if a row has one scale and its inputs are sharded.
const GROUP_OF_ROW: usize = 128;

/// Returns the dims of a weight with inputs of these sizes.
///
/// # Errors
/// The reason why the card does not support the weight.
fn card_dims(spec: &Einsum, inputs: &[usize], packing: Packing) -> Result<PackedDims, Unpacked> {
    if !spec.is_linear_layer() {
        return Err(Unpacked::Product);
    }
    let all = inputs.iter().product();
    if let [_] = inputs {
        // The only dim is the intermediate size, without whole groups, or it is never sharded.
        let group = packing.card_group(all, all)?;
        return match spec.summed().contains(GROUPS) && whole_groups(packing, all).is_none() {
            true => Err(Unpacked::PartialGroup),
            false => Ok(PackedDims { sharded: 0, group }),
        };
    }
    let mut refused = Unpacked::Product;
    for sharded in (1..inputs.len()).rev() {
        match packing.card_group(all, inputs[sharded..].iter().product()) {
            Ok(group) => return Ok(PackedDims { sharded, group }),
            Err(reason) => refused = reason,
        }
    }
    Err(refused)
}

/// Returns the inputs per group, if shards of this number of inputs can end at groups.
fn whole_groups(packing: Packing, inputs: usize) -> Option<usize> {
    let group = match packing.stored_group(inputs) {
        group if group >= inputs => common_divisor(inputs, GROUP_OF_ROW),
        group => group,
    };
    let is_whole = inputs.is_multiple_of(group) && packing.card_group(inputs, group) == Ok(group);
    is_whole.then_some(group)
}

/// Inputs per scale of the projections of experts that stay packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProjectionGroups {
    packing: Packing,
    gate_up: usize,
    down: usize,
}

/// Returns the groups of experts with these numbers of inputs of both projections. The operator has
/// groups of one size, and shards of the intermediate size end at groups.
///
/// # Errors
/// The reason why the card does not support the weights.
fn projection_groups(packing: Packing, [hidden, inner]: [usize; 2]) -> Result<ProjectionGroups, Unpacked> {
    let gate_up = packing.card_group(hidden, hidden)?;
    if !hidden.is_multiple_of(gate_up) {
        return Err(Unpacked::PartialGroup);
    }
    match whole_groups(packing, inner) {
        Some(down) => Ok(ProjectionGroups { packing, gate_up, down }),
        None => Err(packing.card_group(inner, inner).err().unwrap_or(Unpacked::PartialGroup)),
    }
}

impl LayerInputs<'_> {
    /// Returns the groups of a mixture if the weights of its experts can stay packed. `tensor` is
    /// the pattern of one projection.
    pub(super) fn packed_groups(
        &self,
        build: &Builder,
        mixture: &Mixture,
        tensor: &str,
    ) -> Option<ProjectionGroups> {
        let first = TensorNames::parse(tensor).ok()?.iter().next()?;
        let packing = self.packing(layer_of_weight(&first))?;
        let is_plain = mixture.activation == Activation::Silu && !mixture.has_bias && !build.is_in_trees();
        let sizes = [self.config.hidden_size, mixture.intermediate_size];
        is_plain.then(|| projection_groups(packing, sizes).ok()).flatten()
    }

    /// Computes experts with weights that stay packed. The sources are the gate and up projections,
    /// and the down projections. The operands are the input, and the chosen experts with their
    /// weights.
    pub(super) fn packed_experts(
        &self,
        build: &mut Builder,
        layer: usize,
        mixture: &Mixture,
        sources: [Source; 2],
        groups: ProjectionGroups,
        operands: [Operand; 3],
    ) -> Operand {
        let (h, f, count) = (self.config.hidden_size, mixture.intermediate_size, mixture.experts);
        let (packing, inner) = (groups.packing, [f / groups.down, groups.down]);
        let [gate_up, down] = sources;
        let projections = [
            (gate_up, "gate_up", h, groups.gate_up, vec![count, 2, inner[0], inner[1], h / WORD]),
            (down, "down", f, groups.down, vec![count, h, inner[0], inner[1] / WORD]),
        ];
        let scales = [vec![count, h / groups.gate_up, 2, inner[0], inner[1]], vec![count, inner[0], h]];
        let (mut words, mut scale, mut offset) = (Vec::new(), Vec::new(), Vec::new());
        for ((source, path, row_elems, group, shape), of_scale) in projections.into_iter().zip(scales) {
            check_multiples(build, &source.tensor, packing, row_elems);
            let name = self.config.layer_tensor(layer, &format!("experts.{path}"));
            let rows = PackedRows { row_elems, packing, blocks: None };
            let of_groups = GroupRows { rows, group, place: GroupPlace::Second };
            let form = |form| Source { form, ..source.clone() };
            words.push(build.param_from(&name, &shape[..], DType::I32, form(Form::Words(rows))));
            let mut param = |suffix: &str, form: Source| {
                build.param_from(&format!("{name}{suffix}"), &of_scale[..], self.dtype, form)
            };
            scale.push(param("_scale", form(Form::GroupScales(of_groups))));
            if packing.has_zeros() {
                offset.push(param("_offset", form(Form::GroupOffsets(of_groups))));
            }
        }
        let kind = if packing.has_zeros() { Kind::OffsetPackedExperts } else { Kind::PackedExperts };
        let y = build.op(kind, &[&operands[..], &words, &scale, &offset].concat());
        build.name(y, format!("layers.{layer}.mlp.experts.out"))
    }

    /// Returns the packing of a layer if the weight can stay packed.
    fn packing(&self, layer: &str) -> Option<Packing> {
        match self.config.formats.of(layer) {
            WeightFormat::Packed(packing)
                if self.weights != Weights::Unpacked && self.dtype != DType::F32 =>
            {
                Some(packing)
            }
            _ => None,
        }
    }

    /// Returns the dims of an intermediate size that the layer `down` sums: groups of inputs and
    /// the inputs of a group, if its weight can stay packed and has whole groups.
    pub(super) fn intermediate(&self, down: &str, size: usize) -> Vec<usize> {
        match self.packing(down).and_then(|packing| whole_groups(packing, size)) {
            Some(group) => vec![size / group, group],
            None => vec![size],
        }
    }

    /// Returns the dims on a card of a weight that stays packed.
    pub(super) fn card_dims(&self, weight: &LinearWeight<'_>) -> Option<(Packing, PackedDims)> {
        let packing = self.packing(&weight.layer)?;
        card_dims(&weight.spec, weight.inputs, packing).ok().map(|dims| (packing, dims))
    }

    /// Multiplies `x` by a weight that stays packed.
    pub(super) fn packed_product(
        &self,
        build: &mut Builder,
        x: Operand,
        weight: &LinearWeight<'_>,
        packing: Packing,
        PackedDims { sharded, group }: PackedDims,
    ) -> Operand {
        let &LinearWeight { ref spec, name, ref layer, ref source, outputs, inputs, row_elems, .. } = weight;
        check_multiples(build, layer, packing, row_elems);
        let rows = PackedRows { row_elems, packing, blocks: row_blocks(source.form, row_elems) };
        let (leading, whole) = inputs.split_at(sharded);
        let whole: usize = whole.iter().product();
        let mut param = |suffix: &str, last: usize, dtype, form| {
            let shape = [outputs, leading, &[last]].concat();
            build.param_from(&format!("{name}{suffix}"), shape, dtype, Source { form, ..source.clone() })
        };
        let of_groups = GroupRows { rows, group, place: GroupPlace::Last };
        let groups = whole.div_ceil(group);
        let words = param("", whole / WORD, DType::I32, Form::Words(rows));
        let scale = param("_scale", groups, self.dtype, Form::GroupScales(of_groups));
        let spec = spec.clone();
        if !packing.has_zeros() {
            return build.op(Kind::PackedMatMul { spec, sharded, group }, &[x, words, scale]);
        }
        let offset = param("_offset", groups, self.dtype, Form::GroupOffsets(of_groups));
        build.op(Kind::OffsetPackedMatMul { spec, sharded, group }, &[x, words, scale, offset])
    }
}

/// Returns the reason why a weight in 4-bit groups becomes floats on a card. Returns `None` for
/// other params, and for products of f32, which the cards compute from float weights alone.
#[must_use]
pub fn unpacked(program: &Program, id: ValueId) -> Option<Unpacked> {
    let value = &program.values[id];
    let Some(Source { form: Form::Packed(PackedRows { packing, .. }), .. }) = &value.source else {
        return None;
    };
    if matches!(packing, Packing::Fp8 { .. }) || value.dtype == DType::F32 {
        return None;
    }
    let op = program.ops.values().iter().find(|op| op.operands.contains(&id))?;
    if let Some(first) = op.kind.row().experts {
        let down = &program.values[op.operands[first + 1]].shape;
        return match projection_groups(*packing, [down[1], down[2]]) {
            Err(reason) => Some(reason),
            Ok(_) if matches!(op.kind, Kind::ClippedExperts { .. }) => Some(Unpacked::Experts),
            Ok(_) => Some(Unpacked::Deployment),
        };
    }
    let Some(spec) = op.kind.einsum() else { return Some(Unpacked::Product) };
    let outputs = spec.scale().len();
    match card_dims(spec, &value.shape[outputs..], *packing) {
        Err(reason) => Some(reason),
        Ok(_) => Some(Unpacked::Deployment),
    }
}

/// A dim of a weight that is split into the groups of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupDim {
    /// The weight.
    pub param: ValueId,
    /// Axis of the matrix `[out, in]`: 0 for outputs, 1 for inputs.
    pub axis: usize,
    /// Dim of the param that counts the groups.
    pub dim: usize,
    /// Number of outputs or inputs per group.
    pub group: usize,
}

/// Returns the dims of weights in shards of whole groups of a format. They are the intermediate
/// sizes of layers that sum over groups.
#[must_use]
pub fn group_dims(program: &Program) -> Vec<GroupDim> {
    let of_op = |op: &Op| {
        let (spec, operand) = (op.kind.einsum()?, *op.kind.row().weights.operands().first()?);
        let dim = spec.w().find(GROUPS)?;
        let is_summed = !spec.result().contains(GROUPS);
        let (with_groups, letters) = match is_summed {
            true => (op.operands[0], spec.x()),
            false => (op.result(), spec.result()),
        };
        let group = program.values[with_groups].shape[letters.find(OF_GROUP)?];
        Some(GroupDim { param: op.operands[operand], axis: usize::from(is_summed), dim, group })
    };
    let of_experts = |op: &Op| {
        let first = op.kind.row().experts.unwrap_or_default();
        let params = [first, first + 1].map(|at| op.operands.get(at).copied());
        let [Some(gate_up), Some(down)] = params else { return [None, None] };
        let shape = &program.values[gate_up].shape;
        // Words of packed experts.
        let &[_, _, _, group, _] = shape.sizes() else { return [None, None] };
        let dim = |param, axis| Some(GroupDim { param, axis, dim: 2, group });
        [dim(gate_up, 0), dim(down, 1)]
    };
    let dims = |op: &Op| match op.kind.row().experts {
        Some(_) => of_experts(op),
        None => [of_op(op), None],
    };
    program.ops.values().iter().flat_map(dims).flatten().collect()
}

/// Letter of the groups of an intermediate size.
const GROUPS: char = 'f';
/// Letter of the part of an intermediate size within a group.
const OF_GROUP: char = 'j';
