//! Converts calls of a plan to launches of the cost model. The emulator derives the same values
//! from the C ABI call.
//!
//! Invariant: operands have the order of the C function.

use ascend_tp_machine::launch::{Access, OperandLayout};
use ascend_tp_machine::{Element, Exchange, Launch, LaunchOperand, kernel};

use crate::base::{Argument, DType};
use crate::call::{Call, View};
use crate::schedule::plan::{Collective, CollectiveKind, Plan, StreamKind};

const WORKSPACE_ALIGNMENT_BYTES: usize = 512;

const ATTENTION_WORKSPACE_BYTES: usize = 16 << 20;

/// Returns a call's launch. Attention reads all blocks of each sequence.
#[must_use]
pub fn launch(call: &Call) -> Launch {
    if let Some(launch) = call.kernel_entry().and_then(|entry| kernel::launch(&entry, &numbers(call))) {
        return launch;
    }
    let mut launch = Launch {
        operator: call.name(),
        operands: operands(call).map(|(view, access)| operand(view, access)).collect(),
    };
    if let Call::FusedAttention { table: Some(table), block, kv_heads, mask, k_scale, .. } = call {
        let read = |cache: &mut LaunchOperand, size: usize| {
            cache.dims = vec![table.shape[0], table.shape[1] * block, *kv_heads, size];
            cache.distinct = cache.dims.iter().product();
        };
        for cache in launch.operands.iter_mut().skip(1).take(2) {
            read(cache, cache.dims.last().copied().unwrap_or_default() / (*kv_heads).max(1));
        }
        // Scales follow the table, which follows the optional mask.
        let before = 4 + usize::from(mask.is_some());
        let scales = launch.operands.iter_mut().skip(before).take(if k_scale.is_some() { 2 } else { 0 });
        scales.for_each(|scales| read(scales, 1));
    }
    launch
}

/// Like [`launch`], but attention over blocks reads only `keys` rows of each sequence, at most the
/// rows of the sequence's blocks.
#[must_use]
pub fn launch_reading(call: &Call, keys: usize) -> Launch {
    let mut launch = launch(call);
    if let Call::FusedAttention { table: Some(table), block, .. } = call {
        let room = (table.shape[1] * block).max(1);
        // Keys, values and the mask follow the queries.
        for operand in launch.operands.iter_mut().skip(1).filter(|operand| operand.access == Access::Read) {
            operand.distinct = operand.distinct * keys.min(room) / room;
        }
    }
    launch
}

/// Returns a collective's kind and bytes.
#[must_use]
pub fn exchange(collective: &Collective) -> (Exchange, f64) {
    let (exchange, elems) = match &collective.kind {
        CollectiveKind::AllReduce { .. } => (Exchange::AllReduce, collective.send.elems()),
        CollectiveKind::AllGather { counts } => (Exchange::AllGather, counts.iter().sum()),
        CollectiveKind::ReduceScatter { counts, .. } => (Exchange::ReduceScatter, counts.iter().sum()),
        CollectiveKind::AllToAll { send_counts, .. } => {
            // Assumes that the other ranks have the same pattern.
            let is_shift = send_counts.iter().filter(|count| **count > 0).count() == 1;
            (if is_shift { Exchange::Shift } else { Exchange::AllToAll }, send_counts.iter().sum())
        }
        CollectiveKind::Reduce { .. } => (Exchange::Reduce, collective.send.elems()),
        CollectiveKind::Broadcast { .. } => (Exchange::Broadcast, collective.send.elems()),
        CollectiveKind::Send { .. } => (Exchange::SendRecv, collective.send.elems()),
        CollectiveKind::Receive { .. } => (Exchange::SendRecv, collective.recv.elems()),
    };
    (exchange, (elems * collective.send.dtype.size_bytes()) as f64)
}

/// Returns the launch of the product fused with an exchange.
#[must_use]
pub fn product(collective: &Collective) -> Option<Launch> {
    let (a, b, out) = match collective.product.as_deref()? {
        Call::AllGatherMatmul { b, out, .. } => (&collective.recv, b, out),
        Call::MatmulAllReduce { a, b, .. } | Call::MatmulReduceScatter { a, b, .. } => {
            (a, b, &collective.send)
        }
        _ => return None,
    };
    let shaped = |view: &View, rows: usize| view.reshape([rows, view.elems() / rows.max(1)]);
    let (a, out) = (shaped(a, a.elems() / b.shape[0].max(1))?, shaped(out, out.elems() / b.shape[1].max(1))?);
    Some(launch(&Call::Matmul { a, b: b.clone(), out }))
}

/// Returns the workspace of a call.
///
/// Only the vendor library has the exact size. This is the size that the emulator requests: space
/// for dense copies of strided operands, and for intermediate results of attention.
#[must_use]
pub fn workspace_bytes(call: &Call) -> usize {
    let reads_transposed = call.group_name().is_some()
        || matches!(
            call,
            Call::Matmul { .. }
                | Call::Addmm { .. }
                | Call::AddProduct { .. }
                | Call::QuantMatmul { .. }
                | Call::WeightQuantMatmul { .. }
        );
    // Kernels take strided tensors directly.
    if call.kernel_entry().is_some() {
        return 0;
    }
    // Holds the product before it is scattered.
    let product = match call {
        Call::MatmulReduceScatter { a, b, .. } => a.shape[0] * b.shape[1] * a.dtype.size_bytes(),
        _ => 0,
    };
    let copies = operands(call).filter(|(view, _)| match layout(view) {
        OperandLayout::Dense => false,
        OperandLayout::Transposed => !reads_transposed,
        OperandLayout::Strided => true,
    });
    let copied: usize =
        copies.map(|(view, _)| view.len_bytes().next_multiple_of(WORKSPACE_ALIGNMENT_BYTES)).sum();
    let is_attention = matches!(
        call,
        Call::FusedAttention { .. } | Call::FlashAttention { .. } | Call::FlashAttentionGrad { .. }
    );
    copied + product + if is_attention { ATTENTION_WORKSPACE_BYTES } else { 0 }
}

/// Returns the largest workspace for each stream, which all plans share.
pub fn largest_workspaces<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> [usize; StreamKind::ALL.len()] {
    let mut largest = [0; StreamKind::ALL.len()];
    for step in plans.into_iter().flat_map(|plan| &plan.steps) {
        let bytes = step.call().map_or(0, workspace_bytes);
        let known = &mut largest[step.stream as usize];
        *known = bytes.max(*known);
    }
    largest
}

/// Returns whether the library can create a repeatable executor for a call. It cannot if it copies
/// a result to a strided output.
#[must_use]
pub fn is_repeatable(call: &Call) -> bool {
    operands(call).all(|(view, access)| access == Access::Read || layout(view) == OperandLayout::Dense)
}

fn numbers(call: &Call) -> Vec<u64> {
    let number = |argument: Argument<_>| match argument {
        Argument::Int(number) => u64::try_from(number).ok(),
        _ => None,
    };
    call.arguments().into_iter().filter_map(number).collect()
}

/// Outputs of in-place operators also count as read.
fn operands(call: &Call) -> impl Iterator<Item = (&View, Access)> {
    let in_place = ["aclnnInplace", "aclnnApply"].iter().any(|prefix| call.name().starts_with(prefix));
    let tensors = call.arguments().into_iter().flat_map(|argument| match argument {
        Argument::Tensor(operand) => vec![operand],
        Argument::Tensors(operands) => operands,
        _ => Vec::new(),
    });
    tensors.map(move |operand| match operand.access {
        Access::Write if in_place => (operand.view, Access::Update),
        access => (operand.view, access),
    })
}

fn operand(view: &View, access: Access) -> LaunchOperand {
    let apart =
        view.shape.iter().zip(&view.strides).filter(|(_, stride)| **stride != 0).map(|(size, _)| *size);
    let distinct = if view.elems() == 0 { 0 } else { apart.product() };
    LaunchOperand {
        element: element(view.dtype),
        dims: view.shape.sizes().to_vec(),
        distinct,
        layout: layout(view),
        access,
    }
}

fn layout(view: &View) -> OperandLayout {
    let rank = view.shape.rank();
    let swapped = || {
        let mut dims: Vec<usize> = (0..rank).collect();
        dims.swap(rank - 2, rank - 1);
        view.permute(&dims)
    };
    if view.elems() == 0 || view.is_contiguous() {
        OperandLayout::Dense
    } else if rank >= 2 && swapped().is_contiguous() {
        OperandLayout::Transposed
    } else {
        OperandLayout::Strided
    }
}

const fn element(dtype: DType) -> Element {
    match dtype {
        DType::F32 => Element::F32,
        DType::F16 => Element::F16,
        DType::BF16 => Element::Bf16,
        DType::I32 => Element::I32,
        DType::I64 => Element::I64,
        DType::I8 | DType::U8 | DType::F8E4M3 | DType::Bool => Element::I8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Id, Shape};
    use crate::call::BufferId;

    fn view(index: usize, sizes: &[usize]) -> View {
        View::contiguous(BufferId::from_index(index), DType::BF16, Shape::new(sizes.to_vec()))
    }

    #[test]
    fn operands_stand_as_in_the_c_function() {
        let (a, b, out) = (view(0, &[4, 8]), view(1, &[16, 8]).permute(&[1, 0]), view(2, &[4, 16]));
        let call = Call::Matmul { a, b, out };
        let found = launch(&call);
        let of = |operand: &LaunchOperand| (operand.dims.clone(), operand.layout, operand.access);
        assert_eq!(found.operator, "aclnnMatmul");
        assert_eq!(
            found.operands.iter().map(of).collect::<Vec<_>>(),
            [
                (vec![4, 8], OperandLayout::Dense, Access::Read),
                (vec![8, 16], OperandLayout::Transposed, Access::Read),
                (vec![4, 16], OperandLayout::Dense, Access::Write)
            ]
        );
        assert_eq!((workspace_bytes(&call), is_repeatable(&call)), (0, true));

        let [index, rows, into] = [view(0, &[3]), view(1, &[3, 2]), view(2, &[9, 2])];
        let call = Call::IndexCopy { index, rows, into, dim: 0 };
        let found = launch(&call);
        let dims: Vec<_> =
            found.operands.iter().map(|operand| (operand.dims.clone(), operand.access)).collect();
        assert_eq!(dims, [(vec![9, 2], Access::Update), (vec![3], Access::Read), (vec![3, 2], Access::Read)]);
    }

    #[test]
    fn attention_over_blocks_reads_as_many_rows_as_it_is_told() {
        let [q, k, v, mask, table, lengths, out] =
            [&[2, 1, 4, 16][..], &[50, 9, 32], &[50, 9, 32], &[2, 1, 1, 27], &[2, 3], &[2], &[2, 1, 4, 16]]
                .map(|sizes| Box::new(view(0, sizes)));
        let (mask, table, lengths) = (Some(mask), Some(table), Some(lengths));
        let (heads, kv_heads, scale, block, sparse_mode, window) = (4, 2, 1.0, 9, 0, 0);
        let call = Call::FusedAttention {
            q,
            k,
            v,
            mask,
            table,
            k_scale: None,
            v_scale: None,
            lengths,
            out,
            heads,
            kv_heads,
            scale,
            block,
            sparse_mode,
            window,
        };
        let distinct =
            |launch: Launch| launch.operands.iter().map(|operand| operand.distinct).collect::<Vec<_>>();
        assert_eq!(distinct(launch(&call)), [128, 1728, 1728, 54, 6, 128]);
        assert_eq!(distinct(launch_reading(&call, 9)), [128, 576, 576, 18, 2, 128]);
        assert_eq!(launch_reading(&call, 28), launch(&call));
    }

    #[test]
    fn every_kernel_is_costed_by_a_row_of_its_own() {
        let wide = |sizes: &[usize]| View { dtype: DType::F32, ..view(0, sizes) };
        let whole = |sizes: &[usize]| View { dtype: DType::I32, ..view(0, sizes) };
        let bytes = |sizes: &[usize]| View { dtype: DType::U8, ..view(0, sizes) };
        let new = || Box::new(view(0, &[6, 2, 16]));
        let [angles, cache] = [wide(&[6, 8]), view(0, &[3, 9, 2, 16])].map(Box::new);
        let calls = [
            Call::TurnedRows {
                keys: new(),
                values: new(),
                cos: angles.clone(),
                sin: angles,
                slots: Box::new(View { dtype: DType::I64, ..view(0, &[6, 1]) }),
                key_cache: cache.clone(),
                value_cache: cache,
            },
            Call::SquareSums { x: wide(&[100]), records: wide(&[40, 24]) },
            Call::OrderedSum { x: wide(&[4, 8]), out: wide(&[8]) },
            Call::SignsSaid {
                x: Box::new(wide(&[100])),
                whole: Box::new(wide(&[100])),
                kept: Box::new(wide(&[100])),
                records: Box::new(bytes(&[2, 1056])),
                share: 1,
                own: 0,
                parts: 2,
            },
            Call::SignsAdded { records: bytes(&[2, 1, 1056]), out: wide(&[100]) },
            Call::MagnitudesCounted {
                x: Box::new(wide(&[100])),
                kept: Box::new(wide(&[100])),
                before: Box::new(whole(&[41, 8])),
                after: Box::new(whole(&[41, 8])),
                most: 3,
                last: 0,
            },
            Call::MagnitudesChosen {
                x: Box::new(wide(&[100])),
                kept: Box::new(wide(&[100])),
                round: Box::new(whole(&[41, 8])),
                values: Box::new(wide(&[288])),
                places: Box::new(whole(&[288])),
            },
            Call::VocabularyStatistics {
                x: wide(&[4, 8]),
                labels: wide(&[4]),
                records: wide(&[4, 8]),
                first: 3,
            },
            Call::VocabularyGradient {
                x: wide(&[4, 8]),
                labels: wide(&[4]),
                scales: wide(&[4, 8]),
                first: 0,
            },
        ];
        for kernel in crate::base::Kernels::ALL.names() {
            let mut of_kernel = calls.iter().filter(|call| call.name().starts_with(kernel)).peekable();
            assert!(of_kernel.peek().is_some(), "{kernel} has no call here");
            for call in of_kernel {
                let entry = call.kernel_entry().unwrap();
                let found = kernel::launch(&entry, &numbers(call));
                assert!(found.as_ref().is_some_and(|launch| !launch.operands.is_empty()), "{}", call.name());
                // Four bytes without types.
                let value = |argument: Argument<_>| match argument {
                    Argument::Int(number) => Some(number as u64),
                    Argument::Float(number) => Some(u64::from((number as f32).to_bits())),
                    _ => None,
                };
                let values: Vec<u64> = call.arguments().into_iter().filter_map(value).collect();
                assert_eq!(kernel::launch(&entry, &values), found, "{}", call.name());
            }
        }
    }

    #[test]
    fn strided_operands_need_a_workspace_and_strided_results_a_plan_a_run() {
        let wide = view(0, &[4, 600]).narrow(1, 0, 300);
        let call = Call::Copy { from: view(1, &[4, 300]), into: wide.clone() };
        assert_eq!((workspace_bytes(&call), is_repeatable(&call)), (2560, false));
        let call = Call::Silu { x: wide, out: view(1, &[4, 300]) };
        assert_eq!((workspace_bytes(&call), is_repeatable(&call)), (2560, true));
        let repeated = view(2, &[300]).repeat(0, 4);
        assert_eq!(operand(&repeated, Access::Read).distinct, 300);
    }
}
