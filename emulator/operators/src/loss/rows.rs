//! Rows of cross-entropy losses and gradients. An invalid label fails the stream.
//!
//! By the documentation, the gradient requires label smoothing 0, and z-loss is unsupported.

use crate::loss::kernels::{self as loss, LossReduction, LossTargets};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{FLOATING, INDEX64, INDEXES, LABELS as CLASSES, SINGLE};
use crate::operator::{CallPlan, Refusal};
use crate::reduction::kernels::with_trailing;
use crate::view::StridedView;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnCrossEntropyLoss",
        parameters: &[
            input(INPUT, FLOATING, 2, 2),
            input(TARGET, INDEXES, 1, 1),
            input(WEIGHT_OPTIONAL, SINGLE, 1, 1).optional(),
            output(LOSS_OUT, FLOATING, 1, 1),
            output(LOG_PROB_OUT, FLOATING, 2, 2),
            output(ZLOSS_OUT, FLOATING, 1, 1),
            output(LSE_FOR_ZLOSS_OUT, FLOATING, 1, 1),
        ],
        limits: "input [N, C], C not 0; target [N] in 0..C or ignoreIndex; weightOptional [C]; reductionOptional mean, \
                 sum or none; labelSmoothing and lseSquareScaleForZloss 0, returnZloss false; outputs have the type of \
                 input: lossOut and zlossOut [1], or [N] for none, logProbOut [N, C], lseForZlossOut [N]; the z-loss \
                 outputs are not written",
        source: "ops-nn loss/cross_entropy_loss/docs/aclnnCrossEntropyLoss.md",
        plan: forward,
    },
    Operator {
        name: "aclnnCrossEntropyLossGrad",
        parameters: &[
            input(GRAD_LOSS, FLOATING, 0, 1),
            input(LOG_PROB, FLOATING, 2, 2),
            input(TARGET, INDEX64, 1, 1),
            input(WEIGHT_OPTIONAL, SINGLE, 1, 1).optional(),
            output(OUT, FLOATING, 2, 2),
        ],
        limits: "logProb [N, C], C not 0; gradLoss [N] for none, else of one element; target [N] in 0..C or ignoreIndex; \
                 weightOptional [C]; one element type for gradLoss, logProb and out; labelSmoothing and \
                 lseSquareScaleForZloss 0",
        source: "ops-nn loss/cross_entropy_loss_grad/docs/aclnnCrossEntropyLossGrad.md",
        plan: backward,
    },
    Operator {
        name: "aclnnSoftmaxCrossEntropyWithLogits",
        parameters: &[
            input(FEATURES, FLOATING, 2, 2),
            input(LABELS, FLOATING, 2, 2),
            output(LOSS, FLOATING, 1, 1),
            output(BACKPROP, FLOATING, 2, 2),
        ],
        limits: "features, labels and backprop [N, C], loss [N]; one element type",
        source: "ops-nn activation/softmax_cross_entropy_with_logits/docs/aclnnSoftmaxCrossEntropyWithLogits.md",
        plan: between_distributions,
    },
    Operator {
        name: "aclnnNLLLoss",
        parameters: &[
            input(SELF, FLOATING, 1, 2),
            input(TARGET, CLASSES, 0, 1),
            input(WEIGHT, FLOATING, 1, 1),
            output(OUT, FLOATING, 0, 1),
            output(TOTAL_WEIGHT_OUT, FLOATING, 0, 1),
        ],
        limits: "self [N, C] or [C], target [N] or none; weight [C]; reduction 0 (none), 1 (mean) or 2 (sum); \
                 none leaves totalWeightOut unchanged",
        source: "CANN 8.1 aclnn API reference, aclnnNLLLoss",
        plan: likelihood,
    },
    Operator {
        name: "aclnnNLLLossBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 0, 1),
            input(SELF, FLOATING, 1, 2),
            input(TARGET, CLASSES, 0, 1),
            input(WEIGHT, FLOATING, 1, 1),
            input(TOTAL_WEIGHT, FLOATING, 0, 1),
            output(OUT, FLOATING, 1, 2),
        ],
        limits: "as aclnnNLLLoss; gradOutput has the shape of the forward result, totalWeight one element, out the \
                 shape of self",
        source: "CANN 8.1 aclnn API reference, aclnnNLLLossBackward",
        plan: likelihood_grad,
    },
    Operator {
        name: "aclnnNLLLoss2d",
        parameters: &[
            input(SELF, FLOATING, 4, 4),
            input(TARGET, CLASSES, 3, 3),
            input(WEIGHT, FLOATING, 1, 1),
            output(OUT, FLOATING, 0, 3),
            output(TOTAL_WEIGHT_OUT, FLOATING, 0, 1),
        ],
        limits: "self [N, C, H, W], target [N, H, W]; weight [C]; reduction 0 (none), 1 (mean) or 2 (sum); out as target for none, which leaves \
                 totalWeightOut unchanged; one element type",
        source: "ops-nn loss/nll_loss/docs/aclnnNLLLoss2d.md",
        plan: |call| {
            expect_plane(call, &[WEIGHT, OUT, TOTAL_WEIGHT_OUT], OUT)?;
            likelihood(call)
        },
    },
    Operator {
        name: "aclnnNLLLoss2dBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 0, 3),
            input(SELF, FLOATING, 4, 4),
            input(TARGET, CLASSES, 3, 3),
            input(WEIGHT, FLOATING, 1, 1),
            input(TOTAL_WEIGHT, FLOATING, 0, 1),
            output(OUT, FLOATING, 4, 4),
        ],
        limits: "as aclnnNLLLoss2d; gradOutput has the shape of the forward result, totalWeight one element, out the \
                 shape of self",
        source: "ops-nn loss/nll_loss_grad/docs/aclnnNLLLoss2dBackward.md",
        plan: |call| {
            expect_plane(call, &[GRAD_OUTPUT, WEIGHT, TOTAL_WEIGHT, OUT], GRAD_OUTPUT)?;
            likelihood_grad(call)
        },
    },
];

fn shared(call: &OperatorCall, rows: &CheckedTensor) -> Result<LossReduction, Refusal> {
    let (count, classes) = (rows.dims[0], rows.dims[1]);
    if classes == 0 {
        return Err(call.refuse(TARGET, format!("expected at least one class, found {:?}", rows.dims)));
    }
    call.expect_shape(TARGET, &[count], "a label a row")?;
    if call.tensor_if_given(WEIGHT_OPTIONAL)?.is_some() {
        call.expect_shape(WEIGHT_OPTIONAL, &[classes], "a weight a class")?;
    }
    for name in [LABEL_SMOOTHING, LSE_SQUARE_SCALE_FOR_ZLOSS] {
        let value = call.float(name)?;
        if value != 0.0 {
            return Err(call.refuse(name, format!("expected 0, found {value}")));
        }
    }
    match call.text(REDUCTION_OPTIONAL)? {
        "none" => Ok(LossReduction::None),
        "sum" => Ok(LossReduction::Sum),
        "mean" => Ok(LossReduction::Mean),
        other => Err(call.refuse(REDUCTION_OPTIONAL, format!("expected mean, sum or none, found {other}"))),
    }
}

fn forward(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let scores = call.tensor(INPUT)?;
    let reduction = shared(call, scores)?;
    if call.flag(RETURN_ZLOSS)? {
        return Err(call.refuse(RETURN_ZLOSS, "expected false, found true"));
    }
    let results = if reduction == LossReduction::None { scores.dims[0] } else { 1 };
    for (name, shape) in [
        (LOSS_OUT, &[results][..]),
        (LOG_PROB_OUT, &scores.dims),
        (ZLOSS_OUT, &[results]),
        (LSE_FOR_ZLOSS_OUT, &scores.dims[..1]),
    ] {
        call.expect_dtype(name, scores.dtype, "the type of input")?;
        call.expect_shape(name, shape, &format!("for input {:?}", scores.dims))?;
    }
    let weight = call.tensor_if_given(WEIGHT_OPTIONAL)?.map(|weight| weight.slot);
    let (scores, target, ignored) = (scores.slot, call.tensor(TARGET)?.slot, call.int(IGNORE_INDEX)?);
    let (loss, log) = (call.tensor(LOSS_OUT)?.slot, call.tensor(LOG_PROB_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let weights = weight.map(|slot| views.of(slot));
        let targets = LossTargets { classes: views.of(target), weights, ignored };
        loss::cross_entropy(tiles, views.of(scores), targets, reduction, views.of(loss), views.of(log))
            .map_err(|text| format!("target: {text}"))
    })
}

fn backward(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let log = call.tensor(LOG_PROB)?;
    let reduction = shared(call, log)?;
    let grad = call.tensor(GRAD_LOSS)?;
    for name in [GRAD_LOSS, OUT] {
        call.expect_dtype(name, log.dtype, "the type of logProb")?;
    }
    call.expect_shape(OUT, &log.dims, "of logProb")?;
    if reduction == LossReduction::None {
        call.expect_shape(GRAD_LOSS, &log.dims[..1], "one per row for reduction none")?;
    } else if grad.len() != 1 {
        return Err(call.refuse(GRAD_LOSS, format!("expected one element, found {:?}", grad.dims)));
    }
    let weight = call.tensor_if_given(WEIGHT_OPTIONAL)?.map(|weight| weight.slot);
    let (grad, log, target, ignored) =
        (grad.slot, log.slot, call.tensor(TARGET)?.slot, call.int(IGNORE_INDEX)?);
    let out = call.tensor(OUT)?.slot;
    CallPlan::new(move |views, tiles| {
        let weights = weight.map(|slot| views.of(slot));
        let targets = LossTargets { classes: views.of(target), weights, ignored };
        loss::cross_entropy_grad(tiles, views.of(grad), views.of(log), targets, reduction, views.of(out))
            .map_err(|text| format!("target: {text}"))
    })
}

fn between_distributions(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(FEATURES)?;
    for name in [LABELS, LOSS, BACKPROP] {
        call.expect_dtype(name, x.dtype, "the type of features")?;
    }
    for name in [LABELS, BACKPROP] {
        call.expect_shape(name, &x.dims, "of features")?;
    }
    call.expect_shape(LOSS, &x.dims[..1], "a loss a row of features")?;
    let (x, y) = (x.slot, call.tensor(LABELS)?.slot);
    let (loss, grad) = (call.tensor(LOSS)?.slot, call.tensor(BACKPROP)?.slot);
    CallPlan::new(move |views, tiles| {
        loss::between_distributions(tiles, views.of(x), views.of(y), views.of(loss), views.of(grad));
        Ok(())
    })
}

fn likelihood_rows(call: &OperatorCall) -> Result<(usize, LossReduction), Refusal> {
    let x = call.tensor(SELF)?;
    // The class dim is the second or the only one.
    let (classes, count) = match x.dims[..] {
        [rows, classes, ref plane @ ..] => (classes, plane.iter().fold(rows, |count, extent| count * extent)),
        _ => (x.len(), 1),
    };
    let target = call.tensor(TARGET)?;
    if target.len() != count {
        return Err(call.refuse(
            TARGET,
            format!("expected {count} labels for self {:?}, found {:?}", x.dims, target.dims),
        ));
    }
    call.expect_shape(WEIGHT, &[classes], "a weight a class")?;
    match call.int(REDUCTION)? {
        0 => Ok((count, LossReduction::None)),
        1 => Ok((count, LossReduction::Mean)),
        2 => Ok((count, LossReduction::Sum)),
        other => {
            Err(call.refuse(REDUCTION, format!("expected 0 (none), 1 (mean) or 2 (sum), found {other}")))
        }
    }
}

fn expect_plane(
    call: &OperatorCall,
    alike: &[Name<CheckedTensor>],
    results: Name<CheckedTensor>,
) -> Result<(), Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_shape(TARGET, &[x.dims[0], x.dims[2], x.dims[3]], "one label per element of the planes")?;
    alike.iter().try_for_each(|&name| call.expect_dtype(name, x.dtype, "the type of self"))?;
    if call.int(REDUCTION)? == 0 {
        call.expect_shape(results, &call.tensor(TARGET)?.dims, "of target")
    } else {
        Ok(())
    }
}

fn by_label(view: &StridedView) -> StridedView {
    with_trailing(view, if view.rank() > 2 { &[1] } else { &[] })
}

fn expect_results(call: &OperatorCall, name: Name<CheckedTensor>, count: usize) -> Result<(), Refusal> {
    let found = call.tensor(name)?;
    if found.len() == count {
        return Ok(());
    }
    Err(call.refuse(name, format!("expected {count} elements, found {:?}", found.dims)))
}

fn likelihood(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (count, reduction) = likelihood_rows(call)?;
    expect_results(call, OUT, if reduction == LossReduction::None { count } else { 1 })?;
    expect_results(call, TOTAL_WEIGHT_OUT, 1)?;
    let (x, target, weight) = (call.tensor(SELF)?.slot, call.tensor(TARGET)?.slot, call.tensor(WEIGHT)?.slot);
    let (out, total, ignored) =
        (call.tensor(OUT)?.slot, call.tensor(TOTAL_WEIGHT_OUT)?.slot, call.int(IGNORE_INDEX)?);
    CallPlan::new(move |views, _| {
        let targets = LossTargets { classes: views.of(target), weights: Some(views.of(weight)), ignored };
        loss::negative_log_likelihood(
            &by_label(views.of(x)),
            targets,
            reduction,
            views.of(out),
            views.of(total),
        )
        .map_err(|text| format!("target: {text}"))
    })
}

fn likelihood_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (count, reduction) = likelihood_rows(call)?;
    expect_results(call, GRAD_OUTPUT, if reduction == LossReduction::None { count } else { 1 })?;
    expect_results(call, TOTAL_WEIGHT, 1)?;
    call.expect_shape(OUT, &call.tensor(SELF)?.dims, "of self")?;
    let (grad, target, weight) =
        (call.tensor(GRAD_OUTPUT)?.slot, call.tensor(TARGET)?.slot, call.tensor(WEIGHT)?.slot);
    let (out, total, ignored) =
        (call.tensor(OUT)?.slot, call.tensor(TOTAL_WEIGHT)?.slot, call.int(IGNORE_INDEX)?);
    CallPlan::new(move |views, tiles| {
        let targets = LossTargets { classes: views.of(target), weights: Some(views.of(weight)), ignored };
        loss::negative_log_likelihood_grad(
            tiles,
            views.of(grad),
            targets,
            reduction,
            views.of(total),
            &by_label(views.of(out)),
        )
        .map_err(|text| format!("target: {text}"))
    })
}
