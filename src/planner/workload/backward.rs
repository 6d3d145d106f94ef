//! The backward pass of a list of steps.

use ascend_tp_machine::launch::{Access, Layout};
use ascend_tp_machine::{Element, Exchange, Launch, Operand};

use super::{Step, Task};

/// What the backward pass does for the steps of a forward pass, in its order.
///
/// A product becomes two: the gradient of its input, and that of its weight, which is added to a 32-bit sum. Attention
/// becomes its gradient operator, which computes the scores again. Any other operator becomes one pass that reads also the
/// gradient. A gather of tokens becomes the scatter of their gradients and a second gather of what was saved in parts; a
/// reduce-scatter becomes a gather. An all-reduce stands for one of the pair around a block of projections: forward after
/// it, backward before it, so that it stays one (Megatron's `f` and `g`); for an embedding and a loss, whose sums have no
/// such partner, leave the exchange out.
#[must_use]
pub fn backward(steps: &[Step]) -> Vec<Step> {
    steps
        .iter()
        .rev()
        .flat_map(|step| of_task(&step.task).into_iter().map(|task| Step { task, times: step.times }))
        .collect()
}

fn of_task(task: &Task) -> Vec<Task> {
    match task {
        Task::Launch(launch) => of_launch(launch).into_iter().map(Task::Launch).collect(),
        Task::Exchange { exchange, bytes, axis } => {
            let again = |exchange| Task::Exchange { exchange, bytes: *bytes, axis: *axis };
            match exchange {
                Exchange::AllGather => vec![again(Exchange::AllGather), again(Exchange::ReduceScatter)],
                Exchange::ReduceScatter => vec![again(Exchange::AllGather)],
                same => vec![again(*same)],
            }
        }
    }
}

fn of_launch(launch: &Launch) -> Vec<Launch> {
    let read = |operand: &Operand| Operand { access: Access::Read, ..operand.clone() };
    let written = |operand: &Operand| Operand { access: Access::Write, ..operand.clone() };
    let operand = |element, dims: &[usize], access| Operand::dense(element, dims, access);
    match (launch.operator, launch.operands.as_slice()) {
        ("aclnnMatmul", [a, b, out]) => {
            let (Some(&m), Some(&k), Some(&n)) = (a.dims.first(), a.dims.last(), b.dims.last()) else {
                return Vec::new();
            };
            let mut weight = operand(b.element, &[n, k], Access::Read);
            weight.layout = Layout::Dense;
            let mut input = operand(a.element, &[k, m], Access::Read);
            input.layout = Layout::Transposed;
            vec![
                Launch {
                    operator: "aclnnMatmul",
                    operands: vec![read(out), weight, operand(a.element, &[m, k], Access::Write)],
                },
                Launch {
                    operator: "aclnnMatmul",
                    operands: vec![input, read(out), operand(Element::F32, &[k, n], Access::Update)],
                },
            ]
        }
        ("aclnnFusedInferAttentionScoreV2", operands) => {
            let (inputs, outputs): (Vec<_>, Vec<_>) =
                operands.iter().partition(|operand| operand.access == Access::Read);
            let mut all: Vec<Operand> = inputs.iter().take(3).map(|operand| read(operand)).collect();
            all.extend(outputs.iter().map(|operand| read(operand)));
            all.extend(inputs.iter().skip(3).map(|operand| read(operand)));
            all.extend(outputs.iter().map(|operand| read(operand)));
            all.extend(inputs.iter().take(3).map(|operand| written(operand)));
            vec![Launch { operator: "aclnnFlashAttentionScoreGrad", operands: all }]
        }
        // What was written to a cache has no gradient of its own.
        ("aclnnInplaceIndexCopy", _) => Vec::new(),
        (operator, operands) => {
            let gradients = operands.iter().filter(|operand| operand.access != Access::Read).map(read);
            let inputs = operands.iter().filter(|operand| operand.access == Access::Read);
            let operator = match operator {
                "aclnnRmsNorm" | "aclnnAddRmsNorm" => "aclnnRmsNormGrad",
                "aclnnSwiGlu" => "aclnnSwiGluGrad",
                "aclnnGelu" => "aclnnGeluBackward",
                "aclnnRotaryPositionEmbedding" => "aclnnRotaryPositionEmbeddingGrad",
                "aclnnEmbedding" => "aclnnEmbeddingDenseBackward",
                same => same,
            };
            let all = gradients.chain(inputs.clone().map(read)).chain(inputs.map(written)).collect();
            vec![Launch { operator, operands: all }]
        }
    }
}
