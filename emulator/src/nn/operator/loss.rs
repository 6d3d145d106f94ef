//! Rows of the cross-entropy and its gradient. A label that is no class is found when the operator runs and fails the stream.
//!
//! The pages say of label smoothing that the gradient takes 0 only, and of the z-loss that it is not supported: neither is taken.

use super::call::{OperatorCall, Tensor};
use super::row::{Operator, attribute, input, output, unmodelled};
use super::sets::{FLOATING, INDEX, INDEX64, SINGLE};
use super::{Plan, Refusal};
use crate::nn::loss::{self, Reduction};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnCrossEntropyLoss",
        parameters: &[
            input("input", FLOATING, 2, 2),
            input("target", INDEX, 1, 1),
            input("weightOptional", SINGLE, 1, 1).optional(),
            attribute("reductionOptional"),
            attribute("ignoreIndex"),
            attribute("labelSmoothing"),
            attribute("lseSquareScaleForZloss"),
            attribute("returnZloss"),
            output("lossOut", FLOATING, 1, 1),
            output("logProbOut", FLOATING, 2, 2),
            output("zlossOut", FLOATING, 1, 1),
            output("lseForZlossOut", FLOATING, 1, 1),
        ],
        limits: "input [N, C], C not 0; target [N] in 0..C or ignoreIndex; weightOptional [C]; reductionOptional mean, sum or \
                 none; labelSmoothing and lseSquareScaleForZloss 0, returnZloss false; outputs have the type of input: lossOut \
                 and zlossOut [1], or [N] for none, logProbOut [N, C], lseForZlossOut [N]; those of the z-loss are not written",
        source: "ops-nn loss/cross_entropy_loss/docs/aclnnCrossEntropyLoss.md",
        plan: forward,
    },
    Operator {
        name: "aclnnCrossEntropyLossGrad",
        parameters: &[
            input("gradLoss", FLOATING, 0, 1),
            input("logProb", FLOATING, 2, 2),
            input("target", INDEX64, 1, 1),
            input("weightOptional", SINGLE, 1, 1).optional(),
            unmodelled("gradZlossOptional"),
            unmodelled("lseForZlossOptional"),
            attribute("reductionOptional"),
            attribute("ignoreIndex"),
            attribute("labelSmoothing"),
            attribute("lseSquareScaleForZloss"),
            output("out", FLOATING, 2, 2),
        ],
        limits: "logProb [N, C], C not 0; gradLoss [N] for none, else of one element; target [N] in 0..C or ignoreIndex; \
                 weightOptional [C]; one element type for gradLoss, logProb and out; labelSmoothing and \
                 lseSquareScaleForZloss 0",
        source: "ops-nn loss/cross_entropy_loss_grad/docs/aclnnCrossEntropyLossGrad.md",
        plan: backward,
    },
];

/// Checks what both have in common; gives how losses become the result.
fn shared(call: &OperatorCall<'_>, rows: &Tensor) -> Result<Reduction, Refusal> {
    let (count, classes) = (rows.dims[0], rows.dims[1]);
    if classes == 0 {
        return Err(call.refuse("target", format!("expected classes to choose from, found {:?}", rows.dims)));
    }
    call.expect_shape("target", &[count], "a label a row")?;
    if call.tensor_if_given("weightOptional")?.is_some() {
        call.expect_shape("weightOptional", &[classes], "a weight a class")?;
    }
    for name in ["labelSmoothing", "lseSquareScaleForZloss"] {
        let value = call.float(name)?;
        if value != 0.0 {
            return Err(call.refuse(name, format!("expected 0, found {value}")));
        }
    }
    match call.text("reductionOptional")? {
        "none" => Ok(Reduction::None),
        "sum" => Ok(Reduction::Sum),
        "mean" => Ok(Reduction::Mean),
        other => Err(call.refuse("reductionOptional", format!("expected mean, sum or none, found {other}"))),
    }
}

fn forward(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let scores = call.tensor("input")?;
    let reduction = shared(call, scores)?;
    if call.flag("returnZloss")? {
        return Err(call.refuse("returnZloss", "expected false, found true"));
    }
    let results = if reduction == Reduction::None { scores.dims[0] } else { 1 };
    for (name, shape) in [
        ("lossOut", &[results][..]),
        ("logProbOut", &scores.dims),
        ("zlossOut", &[results]),
        ("lseForZlossOut", &scores.dims[..1]),
    ] {
        call.expect_dtype(name, scores.dtype, "that of input")?;
        call.expect_shape(name, shape, &format!("for input {:?}", scores.dims))?;
    }
    let weight = call.tensor_if_given("weightOptional")?.map(|weight| weight.slot);
    let (scores, target, ignored) = (scores.slot, call.tensor("target")?.slot, call.int("ignoreIndex")?);
    let (loss, log) = (call.tensor("lossOut")?.slot, call.tensor("logProbOut")?.slot);
    Plan::new(move |views, tiles| {
        let labels = (views.of(target), weight.map(|slot| views.of(slot)), ignored);
        loss::cross_entropy(tiles, views.of(scores), labels, reduction, views.of(loss), views.of(log))
            .map_err(|text| format!("target: {text}"))
    })
}

fn backward(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let log = call.tensor("logProb")?;
    let reduction = shared(call, log)?;
    let grad = call.tensor("gradLoss")?;
    for name in ["gradLoss", "out"] {
        call.expect_dtype(name, log.dtype, "that of logProb")?;
    }
    call.expect_shape("out", &log.dims, "of logProb")?;
    if reduction == Reduction::None {
        call.expect_shape("gradLoss", &log.dims[..1], "one a row for reduction none")?;
    } else if grad.len() != 1 {
        return Err(call.refuse("gradLoss", format!("expected one element, found {:?}", grad.dims)));
    }
    let weight = call.tensor_if_given("weightOptional")?.map(|weight| weight.slot);
    let (grad, log, target, ignored) = (grad.slot, log.slot, call.tensor("target")?.slot, call.int("ignoreIndex")?);
    let out = call.tensor("out")?.slot;
    Plan::new(move |views, tiles| {
        let labels = (views.of(target), weight.map(|slot| views.of(slot)), ignored);
        loss::cross_entropy_grad(tiles, views.of(grad), views.of(log), labels, reduction, views.of(out))
            .map_err(|text| format!("target: {text}"))
    })
}
