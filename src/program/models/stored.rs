//! The checkpoint tensors of a program.
//!
//! Input: a program. Output: names, shapes and element types of all tensors that its params read.
//!
//! Not here: tensors that a checkpoint can have in addition.

use std::collections::BTreeMap;

use crate::base::{Bytes, DType, FLOATS, Packing, Shape};
use crate::config::WeightFormat;
use crate::program::graph::{Form, GroupRows, PackedRows, Program, Role, Source, Value, ValueId};
use crate::program::op::rule_of;

/// A tensor of a checkpoint that a program reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// Sizes in the checkpoint. Further dims of size 1 can follow.
    pub shape: Shape,
    /// Element types that the tensor can have.
    pub dtypes: &'static [DType],
}

const BYTES: &[DType] = &[DType::U8];
const QUANT_PARAMS: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::I8, DType::I32, DType::I64];

/// Returns the checkpoint tensors of a decoder's params, with their shapes in the checkpoint:
/// `[out, in]` for a weight, and a vector for everything else. A source with an order of dims or a
/// packing has the shapes that its [`Form`] describes. A stack is one entry per tensor. A source
/// that is no valid stack, which [`verify`](crate::program::verify::verify) refuses, is an entry
/// with the name of the pattern.
#[must_use]
pub fn stored_tensors(program: &Program) -> BTreeMap<String, StoredTensor> {
    let mut tensors: BTreeMap<String, StoredTensor> = BTreeMap::new();
    let mut packings: BTreeMap<String, Packing> = BTreeMap::new();
    for id in program.with_role(Role::Param) {
        let value = &program.values[id];
        let Some(source) = &value.source else { continue };
        let is_of_other = matches!(
            source.form,
            Form::RowScales { .. } | Form::PackedScales(_) | Form::GroupScales(_) | Form::GroupOffsets(_)
        );
        if is_of_other {
            continue;
        }
        if let Some(parts) = source.mxfp4(&value.shape) {
            tensors.extend(parts.map(|(name, shape)| (name, StoredTensor { shape, dtypes: BYTES })));
            continue;
        }
        let dtypes = match (source.form, value.dtype) {
            (Form::QuantParams, _) => QUANT_PARAMS,
            (Form::Numbers, DType::I8) => &[DType::I8],
            (Form::Numbers, DType::I32) => &[DType::I32],
            _ => FLOATS,
        };
        if let Some(Ok(shape)) = source.form.dims().map(|dims| dims.shape(&value.shape)) {
            tensors.insert(source.tensor.clone(), StoredTensor { shape, dtypes });
            continue;
        }
        let names: Vec<String> = match source.stack(&value.shape) {
            Ok(stack) => stack.names.iter().collect(),
            Err(_) => vec![source.tensor.clone()],
        };
        let inner = inputs(program, id, value, source, names.len());
        let row_elems = source.form.matrix(&value.shape).map(|matrix| matrix.row_elems).or(inner);
        let rows = value.shape.elems() / row_elems.unwrap_or(1).max(1) / names.len();
        let shape = match (inner, value.shape.last()) {
            (_, Some(taps)) if is_filter(program, id) => Shape::from([rows / taps, 1, *taps]),
            (Some(inner), _) => Shape::from([rows, inner]),
            (None, _) => Shape::from([rows]),
        };
        for name in names {
            if let Form::Packed(of) | Form::PackedBytes(of) | Form::Words(of) = source.form {
                packings.insert(name.clone(), of.packing);
            }
            tensors
                .entry(name)
                .and_modify(|known| known.shape = known.shape.with(0, known.shape[0] + shape[0]))
                .or_insert_with(|| StoredTensor { shape: shape.clone(), dtypes });
        }
    }
    for (name, packing) in packings {
        let Some(matrix) = tensors.remove(&name) else { continue };
        let layer = layer_of_weight(&name);
        for part in packing.tensors([matrix.shape[0], matrix.shape[1]]) {
            let stored = StoredTensor { shape: part.shape, dtypes: part.dtypes };
            tensors.insert(format!("{layer}.{}", part.suffix), stored);
        }
    }
    tensors
}

/// Returns the shapes of [`stored_tensors`].
#[must_use]
pub fn checkpoint_tensors(program: &Program) -> BTreeMap<String, Shape> {
    stored_tensors(program).into_iter().map(|(name, tensor)| (name, tensor.shape)).collect()
}

/// A weight that is not stored in floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantisedWeight {
    /// Format in the checkpoint. Integers with stored input scales count as [`WeightFormat::Int8`].
    pub format: WeightFormat,
    /// Bytes of the numbers, scales and zero points in the checkpoint. Scales count 16 bits, and 32
    /// bits for blocks. 0 for a separate param with scales or offsets of packed numbers.
    pub stored: Bytes,
}

/// Returns the format and the stored bytes of a param, if it is a weight in less than 16 bits.
#[must_use]
pub fn quantised_weight(value: &Value) -> Option<QuantisedWeight> {
    quantised_source(value.source.as_ref()?, &value.shape, value.dtype)
}

/// Returns the same for the source, the whole shape and the type of a param.
#[must_use]
pub fn quantised_source(source: &Source, shape: &Shape, dtype: DType) -> Option<QuantisedWeight> {
    let elems = shape.elems();
    let of = |format, bytes: usize| QuantisedWeight { format, stored: Bytes(bytes as u64) };
    match source.form {
        Form::Packed(PackedRows { row_elems, packing, .. })
        | Form::PackedBytes(PackedRows { row_elems, packing, .. })
        | Form::Words(PackedRows { row_elems, packing, .. }) => {
            let tensors = source.stack(shape).ok()?.names.count();
            let rows = elems / source.form.matrix(shape)?.row_elems / tensors;
            let scale = if matches!(packing, Packing::Fp8 { .. }) { DType::F32 } else { DType::BF16 };
            let bytes = packing.tensors([rows, row_elems]).into_iter().map(|part| {
                let dtype = if part.dtypes == FLOATS { scale } else { part.dtypes[0] };
                part.shape.elems() * dtype.size_bytes()
            });
            Some(of(WeightFormat::Packed(packing), tensors * bytes.sum::<usize>()))
        }
        // Counted with the words.
        Form::GroupScales(GroupRows { rows, .. }) | Form::GroupOffsets(GroupRows { rows, .. }) => {
            Some(of(WeightFormat::Packed(rows.packing), 0))
        }
        Form::Mxfp4(_) => {
            let bytes = source.mxfp4(shape)?.map(|(_, shape)| shape.elems());
            Some(of(WeightFormat::Mxfp4, bytes.into_iter().sum()))
        }
        Form::Numbers if dtype == DType::I8 => Some(of(WeightFormat::Int8, elems)),
        _ => None,
    }
}

/// Returns the layer of a tensor with a weight.
#[must_use]
pub(crate) fn layer_of_weight(tensor: &str) -> &str {
    tensor.strip_suffix(".weight").unwrap_or(tensor)
}

/// Returns the param and its copies in other types.
fn copies(program: &Program, id: ValueId) -> Vec<ValueId> {
    let copies = program.ops.values().iter().filter(|op| op.kind.row().is_copy && op.operands[0] == id);
    copies.map(|op| op.result()).chain([id]).collect()
}

/// Returns whether a param is the filter of a convolution.
fn is_filter(program: &Program, id: ValueId) -> bool {
    let copies = copies(program, id);
    program.ops.values().iter().any(|op| {
        let weights = op.kind.row().weights;
        weights.is_filter() && weights.operands().iter().any(|at| copies.contains(&op.operands[*at]))
    })
}

/// Returns the number of inputs of a matrix, or `None` for a vector.
fn inputs(program: &Program, id: ValueId, value: &Value, source: &Source, tensors: usize) -> Option<usize> {
    if let Form::Packed(rows) | Form::PackedBytes(rows) | Form::Words(rows) = source.form {
        return Some(rows.row_elems);
    }
    let copies = copies(program, id);
    let dims = program.ops.values().iter().find_map(|op| {
        let weights = op.kind.row().weights;
        let is_param = |operand: &usize| copies.contains(&op.operands[*operand]);
        let operand = weights.operands().iter().copied().find(is_param)?;
        let rule = rule_of(op, &program.operand_shapes(op)).ok()?;
        let dims = 0..value.shape.rank();
        // Inputs are the last dims.
        Some(dims.rev().take_while(|dim| weights.is_input(&rule, operand, *dim) == Some(true)).count())
    })?;
    // Tensors of a stack, and tensors with blocks of rows, are matrices. Their inputs are the last
    // dim of the param.
    let is_matrix = tensors > 1 || matches!(source.form, Form::Blocks { .. });
    let dims = if is_matrix { 1 } else { dims };
    Some(value.shape[value.shape.rank() - dims..].iter().product())
}
