//! Work of a checked call for the cost model.

use std::collections::BTreeMap;

use ascend_tp_machine::launch::{Access, OperandLayout};
use ascend_tp_machine::{Element, Launch, LaunchOperand, Work};

use super::OperatorCall;
use super::argument::{CheckedTensor, TensorRole};
use super::plan::{Attended, CallPlan, JoinedExchange, KeySequence, ViewIndex};
use crate::attention::rows::COMPRESSED;
use crate::dtype::AclType;

/// Returns the work of a checked call for the cost model of `ascend_tp_machine`.
#[must_use]
pub fn work(operator: &'static str, call: &OperatorCall, plan: &CallPlan) -> Work {
    let operands = operands(call, plan);
    match &plan.attended {
        Some(attended) => Work::of_all(&by_length(operator, &operands, attended)),
        None => Work::of(&Launch { operator, operands }),
    }
}

/// Returns one launch per sequence length, with tensors `[sequences, positions, heads, head size]`.
/// The first launch touches the shared tensors.
fn by_length(operator: &'static str, operands: &[LaunchOperand], attended: &Attended) -> Vec<Launch> {
    let ([heads, key_heads], [depth, value_depth]) = (attended.heads, attended.depths);
    let mut counts = BTreeMap::new();
    for sequence in attended.sequences.iter().filter(|sequence| sequence.rows > 0) {
        *counts.entry(*sequence).or_insert(0) += 1;
    }
    let scales = attended.scales.into_iter().flatten();
    let split: Vec<ViewIndex> =
        attended.keys.iter().flatten().copied().chain([attended.query]).chain(scales.clone()).collect();
    let mut shared: Vec<LaunchOperand> = Vec::new();
    for (slot, operand) in operands.iter().enumerate().filter(|(slot, _)| !split.contains(&ViewIndex(*slot)))
    {
        let is_triangle = attended.triangle == Some(ViewIndex(slot));
        let dims = if is_triangle { vec![COMPRESSED; 2] } else { operand.dims.clone() };
        shared.push(LaunchOperand { dims, ..operand.clone() });
    }
    let part = |slot: ViewIndex, dims: [usize; 4], positions: usize| {
        let distinct = dims[0] * positions * dims[2] * dims[3];
        LaunchOperand { dims: dims.to_vec(), distinct, ..operands[slot.0].clone() }
    };
    let mut launches = Vec::with_capacity(counts.len());
    for (&KeySequence { rows, keys, room }, &count) in &counts {
        let [key, value] = attended.keys[0];
        let mut operands = vec![
            part(attended.query, [count, rows, heads, depth], rows),
            part(key, [count, room, key_heads, depth], keys),
            part(value, [count, room, key_heads, value_depth], keys),
        ];
        operands.extend(scales.clone().map(|slot| part(slot, [count, room, key_heads, 1], keys)));
        operands.extend(shared.iter().cloned());
        shared.iter_mut().for_each(|operand| operand.distinct = 0);
        launches.push(Launch { operator, operands });
    }
    launches
}

fn operands(call: &OperatorCall, plan: &CallPlan) -> Vec<LaunchOperand> {
    let mut operands: Vec<LaunchOperand> = call.slots().map(|placed| operand(placed.tensor)).collect();
    if let Some(joined) = &plan.joined {
        of_product(&mut operands, joined.exchange);
    }
    for part in &plan.parts {
        let operand = &mut operands[part.slot.0];
        let places = operand.dims[0] * operand.dims[part.dim];
        operand.distinct = operand.distinct * part.lengths.iter().sum::<usize>() / places.max(1);
    }
    operands
}

/// A fused exchange counts only the product, except for token packing.
fn of_product(operands: &mut Vec<LaunchOperand>, exchange: JoinedExchange) {
    match exchange {
        JoinedExchange::AllReduce(_) => {}
        JoinedExchange::AllGather([part, gathered], _) => {
            operands[part.0] = LaunchOperand { access: Access::Read, ..operands[gathered.0].clone() };
            operands.remove(gathered.0);
        }
        JoinedExchange::ReduceScatter(out, cards) => {
            operands[out.0].dims[0] *= cards;
            operands[out.0].distinct *= cards;
        }
        JoinedExchange::Gathered { .. } | JoinedExchange::Dealt { .. } => {}
    }
}

fn operand(tensor: &CheckedTensor) -> LaunchOperand {
    let distinct =
        tensor.dims.iter().zip(&tensor.strides).filter(|(_, stride)| **stride != 0).map(|(dim, _)| *dim);
    let layout = if tensor.is_contiguous() {
        OperandLayout::Dense
    } else if tensor.is_transposed() {
        OperandLayout::Transposed
    } else {
        OperandLayout::Strided
    };
    let access = match tensor.role {
        TensorRole::Input => Access::Read,
        TensorRole::Output => Access::Write,
        TensorRole::InPlace => Access::Update,
    };
    let distinct = if tensor.is_empty() { 0 } else { distinct.product() };
    LaunchOperand { element: element(tensor.dtype), dims: tensor.dims.clone(), distinct, layout, access }
}

fn element(dtype: AclType) -> Element {
    match dtype {
        AclType::F64 => Element::F64,
        AclType::F32 => Element::F32,
        AclType::F16 => Element::F16,
        AclType::BF16 => Element::Bf16,
        AclType::I64 | AclType::U64 | AclType::C64 => Element::I64,
        AclType::I32 | AclType::U32 => Element::I32,
        AclType::I16 | AclType::U16 => Element::I16,
        AclType::I8 | AclType::U8 | AclType::Bool => Element::I8,
    }
}
