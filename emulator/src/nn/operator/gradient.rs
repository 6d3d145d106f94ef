//! Rows of the gradients of activations, norms, the softmax and lookups.
//!
//! An operator takes the gradients of what its counterpart gave, and what that took or kept, and gives those of what that took.

use super::call::OperatorCall;
use super::row::{Operator, attribute, input, output};
use super::sets::{FLOATING, INDEX, SINGLE};
use super::{Plan, Refusal};
use crate::nn::dtype::DType;
use crate::nn::elementwise::{blocks_with, map2, rooms};
use crate::nn::index::{self, Frequency};
use crate::nn::lane::Lane;
use crate::nn::{math, norm, reduce};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnRmsNormGrad",
        parameters: &[
            input("dy", FLOATING, 2, 8),
            input("x", FLOATING, 2, 8),
            input("rstd", SINGLE, 1, 8),
            input("gamma", FLOATING, 1, 7),
            output("dxOut", FLOATING, 2, 8),
            output("dgammaOut", SINGLE, 1, 7),
        ],
        limits: "x and dxOut as dy; gamma has the trailing dims of x, not all, and its type or FLOAT; rstd has the other dims, or \
                 those of x with the normed ones as 1, as aclnnRmsNorm gives it; dgammaOut as gamma",
        source: "ops-nn norm/rms_norm_grad/docs/aclnnRmsNormGrad.md",
        plan: rms_norm,
    },
    Operator {
        name: "aclnnSiluBackward",
        parameters: &[
            input("gradOutput", FLOATING, 1, 8),
            input("self", FLOATING, 1, 8),
            output("gradInput", FLOATING, 1, 8),
        ],
        limits: "one shape and one element type",
        source: "ops-nn activation/silu_grad/docs/aclnnSiluBackward.md",
        plan: silu,
    },
    Operator {
        name: "aclnnSwiGluGrad",
        parameters: &[
            input("yGrad", FLOATING, 1, 8).contiguous(),
            input("x", FLOATING, 1, 8).contiguous(),
            attribute("dim"),
            output("out", FLOATING, 1, 8).contiguous(),
        ],
        limits: "one element type; no empty tensors; dim of x of even extent, halved in yGrad; out as x",
        source: "ops-nn activation/swi_glu_grad/docs/aclnnSwiGluGrad.md",
        plan: swiglu,
    },
    Operator {
        name: "aclnnSoftmaxBackward",
        parameters: &[
            input("gradOutput", FLOATING, 0, 8),
            input("output", FLOATING, 0, 8),
            attribute("dim"),
            output("out", FLOATING, 0, 8),
        ],
        limits: "one shape and one element type",
        source: "ops-nn activation/softmax_grad/docs/aclnnSoftmaxBackward.md",
        plan: softmax,
    },
    Operator {
        name: "aclnnEmbeddingDenseBackward",
        parameters: &[
            input("grad", FLOATING, 2, 8),
            input("indices", INDEX, 1, 7),
            attribute("numWeights"),
            attribute("paddingIdx"),
            attribute("scaleGradByFreq"),
            output("out", FLOATING, 2, 2),
        ],
        limits: "grad has the dims of indices and then the columns of out, and its type; out has numWeights rows; indices in \
                 0..numWeights; paddingIdx below numWeights, or negative for none",
        source: "ops-nn index/embedding_dense_grad_v2/docs/aclnnEmbeddingDenseBackward.md (indices of integers)",
        plan: embedding,
    },
];

/// Refuses tensors that have not the shape and the element type of `of`.
pub(super) fn expect_same(call: &OperatorCall<'_>, of: &str, names: &[&str]) -> Result<(), Refusal> {
    let first = call.tensor(of)?;
    for name in names {
        call.expect_dtype(name, first.dtype, &format!("that of {of}"))?;
        call.expect_shape(name, &first.dims, &format!("of {of}"))?;
    }
    Ok(())
}

fn rms_norm(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    expect_same(call, "dy", &["x", "dxOut"])?;
    let (x, rstd, gamma) = (call.tensor("x")?, call.tensor("rstd")?, call.tensor("gamma")?);
    let kept = x.rank().saturating_sub(gamma.rank());
    if kept == 0 || x.dims[kept..] != gamma.dims[..] {
        let text = format!("expected the trailing dims of x {:?}, but not all, found {:?}", x.dims, gamma.dims);
        return Err(call.refuse("gamma", text));
    }
    if gamma.dtype != DType::F32 {
        call.expect_dtype("gamma", x.dtype, "that of x, or FLOAT")?;
    }
    call.expect_shape("dgammaOut", &gamma.dims, "of gamma")?;
    let kept_dims = &x.dims[..kept];
    let ones = vec![1; gamma.rank()];
    if rstd.dims != kept_dims && rstd.dims != [kept_dims, &ones].concat() {
        let text = format!("expected shape {kept_dims:?}, or that and then {ones:?}, found {:?}", rstd.dims);
        return Err(call.refuse("rstd", text));
    }
    let (dy, x, rstd, gamma) = (call.tensor("dy")?.slot, x.slot, rstd.slot, gamma.slot);
    let (dx, dgamma) = (call.tensor("dxOut")?.slot, call.tensor("dgammaOut")?.slot);
    Plan::new(move |views, tiles| {
        let statistics = (views.of(rstd), views.of(gamma));
        norm::rms_norm_grad(tiles, views.of(dy), views.of(x), statistics, views.of(dx), views.of(dgamma));
        Ok(())
    })
}

fn silu(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    expect_same(call, "gradOutput", &["self", "gradInput"])?;
    let (grad, x, out) = (call.tensor("gradOutput")?.slot, call.tensor("self")?.slot, call.tensor("gradInput")?.slot);
    Plan::new(move |views, tiles| {
        map2::<f32>(tiles, views.of(grad), views.of(x), views.of(out), math::silu_grad);
        Ok(())
    })
}

fn swiglu(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("x")?;
    let dim = call.dim("dim", x.rank())?;
    if x.len() == 0 {
        return Err(call.refuse("x", format!("expected a tensor with elements, found {:?}", x.dims)));
    }
    if !x.dims[dim].is_multiple_of(2) {
        return Err(call.refuse("x", format!("expected an even extent of dim {dim}, found {:?}", x.dims)));
    }
    let half = x.dims[dim] / 2;
    let mut expected = x.dims.clone();
    expected[dim] = half;
    call.expect_dtype("yGrad", x.dtype, "that of x")?;
    call.expect_shape("yGrad", &expected, "of x with dim halved")?;
    expect_same(call, "x", &["out"])?;
    let (grad, x, out) = (call.tensor("yGrad")?.slot, x.slot, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        let halves = |slot| [0, half].map(|start| views.of(slot).slice(dim, start, half, 1).collapsed());
        let ([gate, up], [gate_grad, up_grad], grad) = (halves(x), halves(out), views.of(grad).collapsed());
        blocks_with(tiles, grad.len(), rooms, |[a, b, g]: &mut [_; 3], start, len| {
            let [a, b, g] = [a, b, g].map(|room| &mut room[..len]);
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

fn softmax(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    expect_same(call, "gradOutput", &["output", "out"])?;
    let x = call.tensor("output")?;
    let dim = call.dim("dim", x.rank())?;
    let (rank, row_len) = (x.rank(), x.dims.get(dim).copied().unwrap_or(1));
    let (grad, x, out) = (call.tensor("gradOutput")?.slot, x.slot, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        let rows = |slot| if rank == 0 { views.of(slot).clone() } else { views.of(slot).with_last(dim) };
        reduce::softmax_grad(tiles, &rows(grad), &rows(x), row_len, &rows(out));
        Ok(())
    })
}

fn embedding(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let (grad, indices, out) = (call.tensor("grad")?, call.tensor("indices")?, call.tensor("out")?);
    call.expect_dtype("out", grad.dtype, "that of grad")?;
    let rows = call.int("numWeights")?;
    if i64::try_from(out.dims[0]) != Ok(rows) {
        return Err(call.refuse("out", format!("expected numWeights {rows} rows, found {:?}", out.dims)));
    }
    let expected = [&indices.dims[..], &out.dims[1..]].concat();
    call.expect_shape("grad", &expected, "of indices, and then the columns of out")?;
    let padding = call.int("paddingIdx")?;
    if padding >= rows {
        let text = format!("expected a row below numWeights {rows}, or a negative number for none, found {padding}");
        return Err(call.refuse("paddingIdx", text));
    }
    let padding = usize::try_from(padding).ok();
    let frequency = if call.flag("scaleGradByFreq")? { Frequency::Divides } else { Frequency::Ignored };
    let (grad, indices, out) = (grad.slot, indices.slot, out.slot);
    Plan::new(move |views, tiles| {
        index::embedding_grad(tiles, views.of(grad), views.of(indices), padding, frequency, views.of(out))
            .map_err(|text| format!("indices: {text}"))
    })
}
