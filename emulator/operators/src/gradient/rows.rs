//! Rows of gradients of activations, norms, softmax and lookups.
//!
//! Operators receive output gradients, and inputs or stored values of the forward operator.

use crate::Tiles;
use crate::dtype::AclType;
use crate::elementwise::kernels::{blocks_with, buffers, map2};
use crate::indexing::kernels::{self as index, Frequency};
use crate::lane::Lane;
use crate::math;
use crate::normalization::kernels as norm;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{FLOATING, INDEXES, SINGLE};
use crate::operator::{CallPlan, Refusal};
use crate::reduction::kernels as reduce;
use crate::view::StridedView;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnRmsNormGrad",
        parameters: &[
            input(DY, FLOATING, 2, 8),
            input(X, FLOATING, 2, 8),
            input(RSTD, SINGLE, 1, 8),
            input(GAMMA, FLOATING, 1, 7),
            output(DX_OUT, FLOATING, 2, 8),
            output(DGAMMA_OUT, SINGLE, 1, 7),
        ],
        limits: "x and dxOut have the shape of dy; gamma has the trailing dims of x (not all) and its type or FLOAT; \
                 rstd from aclnnRmsNorm has the other dims, with or without dims of 1; dgammaOut has the shape of gamma",
        source: "ops-nn norm/rms_norm_grad/docs/aclnnRmsNormGrad.md",
        plan: rms_norm,
    },
    Operator {
        name: "aclnnSiluBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 0, 8),
            input(SELF, FLOATING, 0, 8),
            output(GRAD_INPUT, FLOATING, 0, 8),
        ],
        limits: "one shape and one element type",
        source: "ops-nn activation/silu_grad/docs/aclnnSiluBackward.md",
        plan: silu,
    },
    Operator {
        name: "aclnnSwiGluGrad",
        parameters: &[
            input(Y_GRAD, FLOATING, 1, 8).contiguous(),
            input(X, FLOATING, 1, 8).contiguous(),
            output(OUT, FLOATING, 1, 8).contiguous(),
        ],
        limits: "one element type; no empty tensors; dim of x of even extent, halved in yGrad; out as x",
        source: "ops-nn activation/swi_glu_grad/docs/aclnnSwiGluGrad.md",
        plan: swiglu,
    },
    Operator {
        name: "aclnnSoftmaxBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 0, 8),
            input(OUTPUT, FLOATING, 0, 8),
            output(OUT, FLOATING, 0, 8),
        ],
        limits: "one shape and one element type",
        source: "ops-nn activation/softmax_grad/docs/aclnnSoftmaxBackward.md",
        plan: |call| softmax(call, reduce::softmax_grad),
    },
    Operator {
        name: "aclnnLogSoftmaxBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 0, 8),
            input(OUTPUT, FLOATING, 0, 8),
            output(OUT, FLOATING, 0, 8),
        ],
        limits: "one shape and one element type",
        source: "CANN 8.1 aclnn API reference, aclnnLogSoftmaxBackward",
        plan: |call| softmax(call, reduce::log_softmax_grad),
    },
    Operator {
        name: "aclnnLayerNormBackward",
        parameters: &[
            input(GRAD_OUT, FLOATING, 1, 8),
            input(INPUT, FLOATING, 1, 8),
            input(MEAN, FLOATING, 0, 8),
            input(RSTD, FLOATING, 0, 8),
            input(WEIGHT_OPTIONAL, FLOATING, 1, 8).optional(),
            input(BIAS_OPTIONAL, FLOATING, 1, 8).optional(),
            output(GRAD_INPUT_OUT, FLOATING, 1, 8).optional(),
            output(GRAD_WEIGHT_OUT, FLOATING, 1, 8).optional(),
            output(GRAD_BIAS_OUT, FLOATING, 1, 8).optional(),
        ],
        limits: "input and gradInputOut have the shape of gradOut; normalizedShape has the trailing dims of input, and \
                 is the shape of weight, bias and their gradients; mean and rstd have one element per row; outputMask \
                 selects the outputs",
        source: "CANN 8.1 aclnn API reference, aclnnLayerNormBackward",
        plan: layer_norm,
    },
    Operator {
        name: "aclnnEmbeddingDenseBackward",
        parameters: &[
            input(GRAD, FLOATING, 2, 8),
            input(INDICES, INDEXES, 1, 7),
            output(OUT, FLOATING, 2, 2),
        ],
        limits: "grad has the type of out, and the dims of indices and then the columns of out; out has numWeights \
                 rows; indices in 0..numWeights; paddingIdx below numWeights, or negative for none",
        source: "ops-nn index/embedding_dense_grad_v2/docs/aclnnEmbeddingDenseBackward.md (indices of integers)",
        plan: embedding,
    },
];

pub(crate) fn expect_same(
    call: &OperatorCall,
    of: Name<CheckedTensor>,
    names: &[Name<CheckedTensor>],
) -> Result<(), Refusal> {
    let first = call.tensor(of)?;
    for &name in names {
        call.expect_dtype(name, first.dtype, &format!("the type of {of}"))?;
        call.expect_shape(name, &first.dims, &format!("of {of}"))?;
    }
    Ok(())
}

fn rms_norm(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    expect_same(call, DY, &[X, DX_OUT])?;
    let (x, rstd, gamma) = (call.tensor(X)?, call.tensor(RSTD)?, call.tensor(GAMMA)?);
    let kept = x.rank().saturating_sub(gamma.rank());
    if kept == 0 || x.dims[kept..] != gamma.dims[..] {
        let text =
            format!("expected the trailing dims of x {:?}, but not all, found {:?}", x.dims, gamma.dims);
        return Err(call.refuse(GAMMA, text));
    }
    if gamma.dtype != AclType::F32 {
        call.expect_dtype(GAMMA, x.dtype, "the type of x, or FLOAT")?;
    }
    call.expect_shape(DGAMMA_OUT, &gamma.dims, "of gamma")?;
    let kept_dims = &x.dims[..kept];
    // Dims of extent 1 make no difference to CANN's host code.
    let squeezed = |dims: &[usize]| dims.iter().copied().filter(|&dim| dim != 1).collect::<Vec<_>>();
    if squeezed(&rstd.dims) != squeezed(kept_dims) {
        let text = format!("expected shape {kept_dims:?}, with or without dims of 1, found {:?}", rstd.dims);
        return Err(call.refuse(RSTD, text));
    }
    let (dy, x, rstd, gamma) = (call.tensor(DY)?.slot, x.slot, rstd.slot, gamma.slot);
    let (dx, dgamma) = (call.tensor(DX_OUT)?.slot, call.tensor(DGAMMA_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let [dy, x, rstd, gamma, dx, dgamma] = [dy, x, rstd, gamma, dx, dgamma].map(|slot| views.of(slot));
        norm::rms_norm_grad(tiles, dy, x, rstd, gamma, dx, dgamma);
        Ok(())
    })
}

fn silu(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    expect_same(call, GRAD_OUTPUT, &[SELF, GRAD_INPUT])?;
    let (grad, x, out) =
        (call.tensor(GRAD_OUTPUT)?.slot, call.tensor(SELF)?.slot, call.tensor(GRAD_INPUT)?.slot);
    CallPlan::new(move |views, tiles| {
        map2::<f32>(tiles, views.of(grad), views.of(x), views.of(out), math::silu_grad);
        Ok(())
    })
}

fn swiglu(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(X)?;
    let dim = call.dim(DIM, x.rank())?;
    if x.is_empty() {
        return Err(call.refuse(X, format!("expected a tensor with elements, found {:?}", x.dims)));
    }
    if !x.dims[dim].is_multiple_of(2) {
        return Err(call.refuse(X, format!("expected an even extent of dim {dim}, found {:?}", x.dims)));
    }
    let half = x.dims[dim] / 2;
    let mut expected = x.dims.clone();
    expected[dim] = half;
    call.expect_dtype(Y_GRAD, x.dtype, "the type of x")?;
    call.expect_shape(Y_GRAD, &expected, "of x with dim halved")?;
    expect_same(call, X, &[OUT])?;
    let (grad, x, out) = (call.tensor(Y_GRAD)?.slot, x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let halves = |slot| [0, half].map(|start| views.of(slot).slice(dim, start, half, 1).collapsed());
        let ([gate, up], [gate_grad, up_grad], grad) = (halves(x), halves(out), views.of(grad).collapsed());
        blocks_with(tiles, grad.len(), buffers, |[a, b, g]: &mut [_; 3], start, len| {
            let [a, b, g] = [a, b, g].map(|buffer| &mut buffer[..len]);
            f32::load(&gate, start, a);
            f32::load(&up, start, b);
            f32::load(&grad, start, g);
            math::swiglu_grad(a, b, g);
            f32::store(&gate_grad, start, a);
            f32::store(&up_grad, start, b);
        });
        Ok(())
    })
}

/// Gradients, results, row length, output.
type OverRows = fn(&dyn Tiles, &StridedView, &StridedView, usize, &StridedView);

fn softmax(call: &OperatorCall, kernel: OverRows) -> Result<CallPlan, Refusal> {
    expect_same(call, GRAD_OUTPUT, &[OUTPUT, OUT])?;
    let x = call.tensor(OUTPUT)?;
    let dim = call.dim(DIM, x.rank())?;
    let (rank, row_len) = (x.rank(), x.dims.get(dim).copied().unwrap_or(1));
    let (grad, x, out) = (call.tensor(GRAD_OUTPUT)?.slot, x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let rows = |slot| if rank == 0 { views.of(slot).clone() } else { views.of(slot).with_last(dim) };
        kernel(tiles, &rows(grad), &rows(x), row_len, &rows(out));
        Ok(())
    })
}

fn layer_norm(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    expect_same(call, GRAD_OUT, &[INPUT])?;
    let x = call.tensor(INPUT)?;
    let normed: Vec<usize> = call.ints(NORMALIZED_SHAPE)?.iter().map(|&dim| dim.max(0) as usize).collect();
    if normed.is_empty() || normed.len() > x.rank() || x.dims[x.rank() - normed.len()..] != normed[..] {
        let text = format!("expected the trailing dims of input {:?}, found {normed:?}", x.dims);
        return Err(call.refuse(NORMALIZED_SHAPE, text));
    }
    let row_len: usize = normed.iter().product();
    let count: usize = x.dims[..x.rank() - normed.len()].iter().product();
    for name in [MEAN, RSTD] {
        if call.tensor(name)?.len() != count {
            return Err(
                call.refuse(name, format!("expected {count} elements, found {:?}", call.tensor(name)?.dims))
            );
        }
    }
    let &[needs_input, needs_weight, needs_bias] = call.flags(OUTPUT_MASK)? else {
        return Err(
            call.refuse(OUTPUT_MASK, format!("expected 3 values, found {}", call.flags(OUTPUT_MASK)?.len()))
        );
    };
    let shapes = [(GRAD_INPUT_OUT, &x.dims), (GRAD_WEIGHT_OUT, &normed), (GRAD_BIAS_OUT, &normed)];
    let mut outputs = [None; 3];
    for ((slot, is_needed), (name, shape)) in
        outputs.iter_mut().zip([needs_input, needs_weight, needs_bias]).zip(shapes)
    {
        if !is_needed {
            continue;
        }
        let Some(out) = call.tensor_if_given(name)? else {
            return Err(call.refuse(name, "is NULL, but outputMask asks for it"));
        };
        call.expect_shape(name, shape, "of input, or normalizedShape")?;
        *slot = Some(out.slot);
    }
    if let Some(weight) = call.tensor_if_given(WEIGHT_OPTIONAL)?
        && weight.dims != normed
    {
        return Err(call.refuse(
            WEIGHT_OPTIONAL,
            format!("expected normalizedShape {normed:?}, found {:?}", weight.dims),
        ));
    }
    let weight = call.tensor_if_given(WEIGHT_OPTIONAL)?.map(|weight| weight.slot);
    let (dy, x) = (call.tensor(GRAD_OUT)?.slot, x.slot);
    let (mean, rstd) = (call.tensor(MEAN)?.slot, call.tensor(RSTD)?.slot);
    CallPlan::new(move |views, tiles| {
        let [dy, x, mean, rstd] = [dy, x, mean, rstd].map(|slot| views.of(slot));
        let weight = weight.map(|slot| views.of(slot));
        let outputs = outputs.map(|slot| slot.map(|slot| views.of(slot)));
        norm::layer_norm_grad(tiles, dy, x, row_len, [mean, rstd], weight, outputs);
        Ok(())
    })
}

fn embedding(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (grad, indices, out) = (call.tensor(GRAD)?, call.tensor(INDICES)?, call.tensor(OUT)?);
    call.expect_dtype(OUT, grad.dtype, "the type of grad")?;
    let rows = call.int(NUM_WEIGHTS)?;
    if i64::try_from(out.dims[0]) != Ok(rows) {
        return Err(call.refuse(OUT, format!("expected numWeights {rows} rows, found {:?}", out.dims)));
    }
    let expected = [&indices.dims[..], &out.dims[1..]].concat();
    call.expect_shape(GRAD, &expected, "of indices, and then the columns of out")?;
    let padding = call.int(PADDING_IDX)?;
    if padding >= rows {
        let text =
            format!("expected a row below numWeights {rows}, or a negative number for none, found {padding}");
        return Err(call.refuse(PADDING_IDX, text));
    }
    let padding = usize::try_from(padding).ok();
    let frequency = if call.flag(SCALE_GRAD_BY_FREQ)? { Frequency::Divides } else { Frequency::Ignored };
    let (grad, indices, out) = (grad.slot, indices.slot, out.slot);
    CallPlan::new(move |views, tiles| {
        index::embedding_grad(tiles, views.of(grad), views.of(indices), padding, frequency, views.of(out))
            .map_err(|text| format!("indices: {text}"))
    })
}
