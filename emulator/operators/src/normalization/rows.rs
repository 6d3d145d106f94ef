//! Rows of norms, softmax and rotary position embedding.

use crate::Tiles;
use crate::dtype::AclType;
use crate::normalization::kernels as norm;
use crate::normalization::rotary::{self as rotary, Pairing};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::{FLOATING, REAL, SINGLE};
use crate::operator::{CallPlan, Refusal};
use crate::reduction::kernels::{self as reduce, SoftmaxForm};
use crate::view::StridedView;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnRmsNorm",
        parameters: &[
            input(X, FLOATING, 1, 8),
            input(GAMMA, FLOATING, 1, 8),
            output(Y_OUT, FLOATING, 1, 8),
            output(RSTD_OUT, SINGLE, 0, 8),
        ],
        limits: "gamma has the trailing dims of x and its type or FLOAT; yOut has the shape of x; rstdOut has 1 for \
                 the normalised dims, or leaves them out",
        source: "ops-nn norm/rms_norm/docs/aclnnRmsNorm.md",
        plan: |call| rms_norm(call, norm::rms_norm),
    },
    Operator {
        name: "aclnnGemmaRmsNorm",
        parameters: &[
            input(X, FLOATING, 1, 8),
            input(GAMMA, FLOATING, 1, 8),
            output(Y_OUT, FLOATING, 1, 8),
            output(RSTD_OUT, SINGLE, 0, 8),
        ],
        limits: "as aclnnRmsNorm, with a factor of 1 + gamma, which has the type of x",
        source: "CANN 8.1 aclnn API reference, aclnnGemmaRmsNorm",
        plan: |call| {
            call.expect_dtype(GAMMA, call.tensor(X)?.dtype, "the type of x")?;
            rms_norm(call, norm::rms_norm_beside_one)
        },
    },
    Operator {
        name: "aclnnAddRmsNorm",
        parameters: &[
            input(X1, FLOATING, 1, 8),
            input(X2, FLOATING, 1, 8),
            input(GAMMA, FLOATING, 1, 8),
            output(Y_OUT, FLOATING, 1, 8),
            output(RSTD_OUT, SINGLE, 1, 8),
            output(X_OUT, FLOATING, 1, 8),
        ],
        limits: "one element type except rstdOut; x2, yOut and xOut have the shape of x1; rstdOut has 1 for the \
                 normalised dims",
        source: "ops-nn norm/add_rms_norm/docs/aclnnAddRmsNorm.md",
        plan: add_rms_norm,
    },
    Operator {
        name: "aclnnLayerNorm",
        parameters: &[
            input(INPUT, FLOATING, 1, 8),
            input(WEIGHT_OPTIONAL, FLOATING, 1, 8).optional(),
            input(BIAS_OPTIONAL, FLOATING, 1, 8).optional(),
            output(OUT, FLOATING, 1, 8),
            output(MEAN_OUT_OPTIONAL, SINGLE, 1, 8).optional(),
            output(RSTD_OUT_OPTIONAL, SINGLE, 1, 8).optional(),
        ],
        limits: "normalizedShape is the trailing dims of input; weight and bias have this shape, and the type of input \
                 or FLOAT; statistics have 1 for the normalised dims",
        source: "CANN 8.1 aclnn API reference, aclnnLayerNorm",
        plan: layer_norm,
    },
    Operator {
        name: "aclnnFastLayerNorm",
        parameters: &[
            input(INPUT, FLOATING, 1, 8),
            input(WEIGHT_OPTIONAL, FLOATING, 1, 8).optional(),
            input(BIAS_OPTIONAL, FLOATING, 1, 8).optional(),
            output(OUT, FLOATING, 1, 8),
            output(MEAN_OUT_OPTIONAL, SINGLE, 1, 8).optional(),
            output(RSTD_OUT_OPTIONAL, SINGLE, 1, 8).optional(),
        ],
        limits: "as aclnnLayerNorm",
        source: "ops-nn norm/layer_norm_v4/docs/aclnnFastLayerNorm.md",
        plan: layer_norm,
    },
    Operator {
        name: "aclnnLayerNormWithImplMode",
        parameters: &[
            input(INPUT, FLOATING, 1, 8),
            input(WEIGHT_OPTIONAL, FLOATING, 1, 8).optional(),
            input(BIAS_OPTIONAL, FLOATING, 1, 8).optional(),
            output(OUT, FLOATING, 1, 8),
            output(MEAN_OUT_OPTIONAL, SINGLE, 1, 8).optional(),
            output(RSTD_OUT_OPTIONAL, SINGLE, 1, 8).optional(),
        ],
        limits: "as aclnnLayerNorm; implMode 0 to 2 have the same bits",
        source: "CANN 8.1 aclnn API reference, aclnnLayerNormWithImplMode",
        plan: |call| call.int_in(IMPL_MODE, 0..=2).and_then(|_| layer_norm(call)),
    },
    Operator {
        name: "aclnnSoftmax",
        parameters: &[input(SELF, REAL, 0, 8), output(OUT, REAL, 0, 8)],
        limits: "out has the shape of self",
        source: "ops-nn activation/softmax_v2/docs/aclnnSoftmax.md",
        plan: |call| softmax(call, SoftmaxForm::Plain),
    },
    Operator {
        name: "aclnnLogSoftmax",
        parameters: &[input(SELF, REAL, 0, 8), output(OUT, REAL, 0, 8)],
        limits: "out has the shape of self",
        source: "CANN 8.1 aclnn API reference, aclnnLogSoftmax",
        plan: |call| softmax(call, SoftmaxForm::Log),
    },
    Operator {
        name: "aclnnRotaryPositionEmbedding",
        parameters: &[
            input(X, FLOATING, 4, 4),
            input(COS, FLOATING, 4, 4),
            input(SIN, FLOATING, 4, 4),
            output(OUT, FLOATING, 4, 4).contiguous(),
        ],
        limits: "one element type; D even and below 896; B and N below 1000; mode 0 (half): cos and sin 11SD, B1SD or BNSD \
                 for BNSD, 1S1D, BS1D or BSND for BSND, S11D, SB1D or SBND for SBND, and for BNSD with D/2 a multiple of 32 \
                 bytes B*N <= 8*S; mode 1 (interleaved): B*N below 1000, cos and sin 11SD, 1S1D or S11D",
        source: "ops-transformer posembedding/rotary_position_embedding/docs/aclnnRotaryPositionEmbedding.md",
        plan: rotary,
    },
    Operator {
        name: "aclnnApplyRotaryPosEmb",
        parameters: &[
            in_place(QUERY_REF, FLOATING, 4, 4),
            in_place(KEY_REF, FLOATING, 4, 4),
            input(COS, FLOATING, 4, 4),
            input(SIN, FLOATING, 4, 4),
        ],
        limits: "one element type; layout 1: queryRef [B, S, N, 128], keyRef [B, S, M, 128], cos and sin [B, S, 1, 128]; no \
                 empty tensors; (N + M) * 640 elements, of 16 bits for FLOAT16 and 32 bits otherwise, fit the unified \
                 buffer",
        source: "ops-transformer posembedding/apply_rotary_pos_emb/docs/aclnnApplyRotaryPosEmb.md",
        plan: rotary_pair,
    },
    Operator {
        name: "aclnnApplyRotaryPosEmbV2",
        parameters: &[
            in_place(QUERY_REF, FLOATING, 4, 4),
            in_place(KEY_REF, FLOATING, 4, 4),
            input(COS, FLOATING, 4, 4),
            input(SIN, FLOATING, 4, 4),
        ],
        limits: "as aclnnApplyRotaryPosEmb; rotaryMode half",
        source: "ops-transformer posembedding/apply_rotary_pos_emb/docs/aclnnApplyRotaryPosEmbV2.md",
        plan: rotary_pair_of_halves,
    },
];

const UNIFIED_BUFFER_BYTES: usize = 192 << 10;

/// Sets the normalised dims to 1.
pub(crate) fn statistic_shape(x: &[usize], normed: usize) -> Vec<usize> {
    let mut shape = x.to_vec();
    let kept = x.len() - normed;
    shape[kept..].fill(1);
    shape
}

/// Returns the number of dims of `gamma`, which match trailing dims of `x`.
pub(crate) fn expect_trailing(
    call: &OperatorCall,
    x: Name<CheckedTensor>,
    name: Name<CheckedTensor>,
) -> Result<usize, Refusal> {
    let (all, some) = (&call.tensor(x)?.dims, &call.tensor(name)?.dims);
    if all.len() < some.len() || all[all.len() - some.len()..] != some[..] {
        return Err(call.refuse(name, format!("expected the trailing dims of {x} {all:?}, found {some:?}")));
    }
    Ok(some.len())
}

type RmsNorm = fn(&dyn Tiles, &StridedView, &StridedView, f32, &StridedView, &StridedView);

fn rms_norm(call: &OperatorCall, kernel: RmsNorm) -> Result<CallPlan, Refusal> {
    let (x, gamma) = (call.tensor(X)?, call.tensor(GAMMA)?);
    let normed = expect_trailing(call, X, GAMMA)?;
    if gamma.dtype != AclType::F32 {
        call.expect_dtype(GAMMA, x.dtype, "the type of x, or FLOAT")?;
    }
    call.expect_dtype(Y_OUT, x.dtype, "the type of x")?;
    call.expect_shape(Y_OUT, &x.dims, "of x")?;
    if call.tensor(RSTD_OUT)?.dims != x.dims[..x.rank() - normed] {
        call.expect_shape(
            RSTD_OUT,
            &statistic_shape(&x.dims, normed),
            "of x with 1 for the normalised dims, or without them",
        )?;
    }
    let epsilon = call.float(EPSILON)? as f32;
    let (x, gamma) = (x.slot, gamma.slot);
    let (y, rstd) = (call.tensor(Y_OUT)?.slot, call.tensor(RSTD_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        kernel(tiles, views.of(x), views.of(gamma), epsilon, views.of(y), views.of(rstd));
        Ok(())
    })
}

fn add_rms_norm(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(X1)?;
    let normed = expect_trailing(call, X1, GAMMA)?;
    for name in [X2, GAMMA, Y_OUT, X_OUT] {
        call.expect_dtype(name, x.dtype, "the type of x1")?;
    }
    for name in [X2, Y_OUT, X_OUT] {
        call.expect_shape(name, &x.dims, "of x1")?;
    }
    call.expect_shape(RSTD_OUT, &statistic_shape(&x.dims, normed), "of x1 with 1 for the normalised dims")?;
    let epsilon = call.float(EPSILON)? as f32;
    let (x, other, gamma) = (x.slot, call.tensor(X2)?.slot, call.tensor(GAMMA)?.slot);
    let (y, rstd, sum) = (call.tensor(Y_OUT)?.slot, call.tensor(RSTD_OUT)?.slot, call.tensor(X_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let residual = Some(norm::AddedResidual { addend: views.of(other), sum: views.of(sum) });
        norm::add_rms_norm(
            tiles,
            views.of(x),
            residual,
            views.of(gamma),
            epsilon,
            views.of(y),
            views.of(rstd),
        );
        Ok(())
    })
}

fn layer_norm(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(INPUT)?;
    let normed: Vec<usize> = call.ints(NORMALIZED_SHAPE)?.iter().map(|&dim| dim.max(0) as usize).collect();
    if normed.is_empty() || normed.len() > x.rank() || x.dims[x.rank() - normed.len()..] != normed[..] {
        let text = format!(
            "expected the trailing dims of input {:?}, found {:?}",
            x.dims,
            call.ints(NORMALIZED_SHAPE)?
        );
        return Err(call.refuse(NORMALIZED_SHAPE, text));
    }
    for name in [WEIGHT_OPTIONAL, BIAS_OPTIONAL] {
        if let Some(tensor) = call.tensor_if_given(name)? {
            call.expect_shape(name, &normed, "normalizedShape")?;
            if tensor.dtype != AclType::F32 {
                call.expect_dtype(name, x.dtype, "the type of input, or FLOAT")?;
            }
        }
    }
    call.expect_dtype(OUT, x.dtype, "the type of input")?;
    call.expect_shape(OUT, &x.dims, "of input")?;
    for name in [MEAN_OUT_OPTIONAL, RSTD_OUT_OPTIONAL] {
        if call.tensor_if_given(name)?.is_some() {
            call.expect_shape(
                name,
                &statistic_shape(&x.dims, normed.len()),
                "of input with 1 for the normalised dims",
            )?;
        }
    }
    let epsilon = call.float(EPS)? as f32;
    let slot_of = |name| call.tensor_if_given(name).map(|tensor| tensor.map(|tensor| tensor.slot));
    let (weight, bias) = (slot_of(WEIGHT_OPTIONAL)?, slot_of(BIAS_OPTIONAL)?);
    let (mean, rstd) = (slot_of(MEAN_OUT_OPTIONAL)?, slot_of(RSTD_OUT_OPTIONAL)?);
    let (x, out, row_len) = (x.slot, call.tensor(OUT)?.slot, normed.iter().product());
    CallPlan::new(move |views, tiles| {
        let given = |slot: Option<crate::operator::ViewIndex>| slot.map(|slot| views.of(slot));
        let [scale, statistics] = [[weight, bias], [mean, rstd]].map(|slots| slots.map(given));
        norm::layer_norm(tiles, views.of(x), row_len, scale, epsilon, views.of(out), statistics);
        Ok(())
    })
}

fn softmax(call: &OperatorCall, form: SoftmaxForm) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dim = call.dim(DIM, x.rank())?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    let (slot, out, row_len) = (x.slot, call.tensor(OUT)?.slot, x.dims.get(dim).copied().unwrap_or(1));
    let rank = x.rank();
    CallPlan::new(move |views, tiles| {
        let (x, out) = (views.of(slot), views.of(out));
        if rank == 0 {
            reduce::softmax(tiles, x, 1, out, form);
        } else {
            reduce::softmax(tiles, &x.with_last(dim), row_len, &out.with_last(dim), form);
        }
        Ok(())
    })
}

/// Some reading of the dims as BNSD, BSND or SBND must be legal on the 910B.
fn rotary_layout(x: &[usize], cos: &[usize], pairing: Pairing, dtype: AclType) -> bool {
    let [first, second, third, depth] = [x[0], x[1], x[2], x[3]];
    let is = |shape: [usize; 3]| cos == [shape[0], shape[1], shape[2], depth];
    let small = |batch: usize, heads: usize| match pairing {
        Pairing::Half => batch < 1000 && heads < 1000,
        Pairing::Interleaved => batch * heads < 1000,
    };
    let half = pairing == Pairing::Half;
    // BNSD
    let (batch, heads, tokens) = (first, second, third);
    let aligned = (depth / 2).is_multiple_of((32 / dtype.size()).max(1));
    let fits = !half || !aligned || batch * heads <= 8 * tokens;
    let head_major = is([1, 1, tokens]) || half && (is([batch, 1, tokens]) || is([batch, heads, tokens]));
    // BSND
    let token_major = is([1, second, 1]) || half && (is([first, second, 1]) || is([first, second, third]));
    // SBND
    let time_major = is([first, 1, 1]) || half && (is([first, second, 1]) || is([first, second, third]));
    head_major && fits && small(batch, heads)
        || token_major && small(first, third)
        || time_major && small(second, third)
}

/// Returns the documented unified buffer size in bytes for these heads.
const fn rotary_pair_bytes(heads: usize, dtype: AclType) -> usize {
    let computed = if matches!(dtype, AclType::F16) { 2 } else { 4 };
    let cast = if matches!(dtype, AclType::BF16) { 128 * 4 * 2 } else { 0 };
    heads * 128 * computed * 5 + 128 * dtype.size() * 4 + cast
}

fn rotary_pair(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (query, key) = (call.tensor(QUERY_REF)?, call.tensor(KEY_REF)?);
    let layout = call.int(LAYOUT)?;
    if layout != 1 {
        return Err(call.refuse(LAYOUT, format!("expected 1 (BSND), found {layout}")));
    }
    for name in [KEY_REF, COS, SIN] {
        call.expect_dtype(name, query.dtype, "the type of queryRef")?;
    }
    let [batch, tokens, heads, depth] = [0, 1, 2, 3].map(|dim| query.dims[dim]);
    if depth != 128 || query.dims.contains(&0) {
        let text = format!("expected a tensor with elements and a last dim of 128, found {:?}", query.dims);
        return Err(call.refuse(QUERY_REF, text));
    }
    let key_heads = key.dims[2];
    call.expect_shape(KEY_REF, &[batch, tokens, key_heads.max(1), depth], "of queryRef but for the heads")?;
    for name in [COS, SIN] {
        call.expect_shape(name, &[batch, tokens, 1, depth], "of queryRef with one head")?;
    }
    let bytes = rotary_pair_bytes(heads + key_heads, query.dtype);
    if bytes > UNIFIED_BUFFER_BYTES {
        let text = format!(
            "{heads} heads and {key_heads} of keyRef take {bytes} bytes of the unified buffer, which has \
             {UNIFIED_BUFFER_BYTES}"
        );
        return Err(call.refuse(QUERY_REF, text));
    }
    let (query, key, cos, sin) = (query.slot, key.slot, call.tensor(COS)?.slot, call.tensor(SIN)?.slot);
    CallPlan::new(move |views, tiles| {
        for x in [query, key] {
            rotary::rotary(tiles, views.of(x), views.of(cos), views.of(sin), Pairing::Half, views.of(x));
        }
        Ok(())
    })
}

fn rotary_pair_of_halves(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let mode = call.text(ROTARY_MODE)?;
    call.expect_that(mode == "half", ROTARY_MODE, "half", mode)?;
    rotary_pair(call)
}

fn rotary(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, cos) = (call.tensor(X)?, call.tensor(COS)?);
    let pairing = match call.int(MODE)? {
        0 => Pairing::Half,
        1 => Pairing::Interleaved,
        other => {
            return Err(call.refuse(MODE, format!("expected 0 (half) or 1 (interleaved), found {other}")));
        }
    };
    for name in [COS, SIN, OUT] {
        call.expect_dtype(name, x.dtype, "the type of x")?;
    }
    call.expect_shape(OUT, &x.dims, "of x")?;
    call.expect_shape(SIN, &cos.dims, "of cos")?;
    let depth = x.dims[3];
    if !depth.is_multiple_of(2) || depth >= 896 {
        return Err(call.refuse(X, format!("expected an even last dim below 896, found {:?}", x.dims)));
    }
    let empty = x.dims.contains(&0);
    if !empty && !rotary_layout(&x.dims, &cos.dims, pairing, x.dtype) {
        let text = format!(
            "{:?} fits x {:?} in no layout: expected [1, S, 1, D] for x as [B, S, N, D], [1, 1, S, D] for [B, N, S, D] with \
             B*N <= 8*S, or [S, 1, 1, D] for [S, B, N, D]",
            cos.dims, x.dims
        );
        return Err(call.refuse(COS, text));
    }
    let (x, cos, sin, out) = (x.slot, cos.slot, call.tensor(SIN)?.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        if !empty {
            rotary::rotary(tiles, views.of(x), views.of(cos), views.of(sin), pairing, views.of(out));
        }
        Ok(())
    })
}
