//! Softmax with masks and biases, gradients of rotations, and halves of gated activations.
//!
//! Computed in f64 and rounded once.

use crate::lane::Lane;
use crate::normalization::rotary::Pairing;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{BOOL, FLOATING, INDEX64};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnScaledMaskedSoftmax",
        parameters: &[input(X, FLOATING, 4, 4), input(MASK, BOOL, 4, 4), output(Y, FLOATING, 4, 4)],
        limits: "x [B, N, S, T] with elements, mask [1 or B, 1 or N, S, T]; y is the softmax of scale x over the last dim, where \
                 masked scores are -10000; fixedTriuMask false",
        source: "CANN 8.1 aclnn API reference, aclnnScaledMaskedSoftmax",
        plan: |call| {
            call.expect_that(!call.flag(FIXED_TRIU_MASK)?, FIXED_TRIU_MASK, "false", true)?;
            call.expect_type_of(X, &[Y])?;
            let (scale, width) = (call.float(SCALE_FLOAT)?, masked(call, X, &[Y])?);
            let [x, mask, y] = call.slots_of([X, MASK, Y])?;
            CallPlan::new(move |views, _| {
                let hidden = spread(views, mask, x);
                let mut scores: Vec<f64> = views.read(x);
                scores
                    .iter_mut()
                    .zip(&hidden)
                    .for_each(|(x, mask)| *x = if *mask == 0.0 { *x * scale } else { MASKED });
                scores.chunks_exact_mut(width).for_each(softmax);
                views.write(y, &scores);
                Ok(())
            })
        },
    },
    Operator {
        name: "aclnnScaledMaskedSoftmaxBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 4, 4),
            input(Y, FLOATING, 4, 4),
            input(MASK, BOOL, 4, 4),
            output(OUT, FLOATING, 4, 4),
        ],
        limits: "as aclnnScaledMaskedSoftmax, with its y; the gradient of masked scores is 0; fixTriuMask false",
        source: "CANN 8.1 aclnn API reference, aclnnScaledMaskedSoftmaxBackward",
        plan: |call| {
            call.expect_that(!call.flag(FIX_TRIU_MASK)?, FIX_TRIU_MASK, "false", true)?;
            call.expect_type_of(GRAD_OUTPUT, &[Y, OUT])?;
            let (scale, width) = (call.float(SCALE_FLOAT)?, masked(call, GRAD_OUTPUT, &[Y, OUT])?);
            let [grad, y, mask, out] = call.slots_of([GRAD_OUTPUT, Y, MASK, OUT])?;
            CallPlan::new(move |views, _| {
                let (hidden, shares) = (spread(views, mask, grad), views.read::<f64>(y));
                let mut grads = views.read::<f64>(grad);
                for (row, shares) in grads.chunks_exact_mut(width).zip(shares.chunks_exact(width)) {
                    let total = row.iter().zip(shares).map(|(grad, share)| grad * share).sum::<f64>();
                    row.iter_mut()
                        .zip(shares)
                        .for_each(|(grad, share)| *grad = scale * share * (*grad - total));
                }
                grads
                    .iter_mut()
                    .zip(&hidden)
                    .filter(|(_, mask)| **mask != 0.0)
                    .for_each(|(grad, _)| *grad = 0.0);
                views.write(out, &grads);
                Ok(())
            })
        },
    },
    Operator {
        name: "aclnnMaskedSoftmaxWithRelPosBias",
        parameters: &[
            input(X, FLOATING, 5, 5),
            input(ATTEN_MASK_OPTIONAL, FLOATING, 3, 5).optional(),
            input(RELATIVE_POS_BIAS, FLOATING, 3, 5),
            output(OUT, FLOATING, 5, 5),
        ],
        limits: "x and out [B, W, N, S1, S2] with elements, attenMaskOptional [W, S1, S2] or [1, W, 1, S1, S2], relativePosBias [N, \
                 S1, S2] or [1, 1, N, S1, S2]; one element type; out is the softmax over S2 of scaleValue x + mask + bias; \
                 innerPrecisionMode 0",
        source: "CANN 8.1 aclnn API reference, aclnnMaskedSoftmaxWithRelPosBias",
        plan: biased_softmax,
    },
    Operator {
        name: "aclnnGeGluV3Backward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 1, 8),
            input(SELF, FLOATING, 1, 8),
            input(GELU, FLOATING, 1, 8),
            output(GRAD_INPUT, FLOATING, 1, 8),
        ],
        limits: "dim of self and gradInput has an even extent, halved in gradOutput and gelu, which is outGelu of aclnnGeGluV3; \
                 approximate is 0 (error function) or 1 (tanh)",
        source: "CANN 8.1 aclnn API reference, aclnnGeGluV3Backward",
        plan: |call| ge_glu_grad(call, call.flag(ACTIVATE_LEFT)?),
    },
    Operator {
        name: "aclnnGeGluBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 1, 8),
            input(SELF, FLOATING, 1, 8),
            input(GELU, FLOATING, 1, 8),
            output(GRAD_INPUT, FLOATING, 1, 8),
        ],
        limits: "as aclnnGeGluV3Backward, whose right half is activated",
        source: "CANN 8.1 aclnn API reference, aclnnGeGluBackward",
        plan: |call| ge_glu_grad(call, false),
    },
    Operator {
        name: "aclnnClippedSwiglu",
        parameters: &[
            input(X, FLOATING, 1, 8),
            input(GROUP_INDEX_OPTIONAL, INDEX64, 1, 1).optional(),
            output(OUT, FLOATING, 1, 8),
        ],
        limits: "dim of x has an even extent, halved in out; the gates are the even elements (interleaved) or the first half, at \
                 most limit, the others within limit; out is gate sigmoid(alpha gate) (other + bias); with groupIndexOptional \
                 only as many rows (products of the dims before dim) as its sum are computed",
        source: "ops-nn activation/clipped_swiglu/docs/aclnnClippedSwiglu.md",
        plan: clipped_swiglu,
    },
    Operator {
        name: "aclnnRotaryPositionEmbeddingGrad",
        parameters: &[
            input(DY, FLOATING, 4, 4),
            input(COS, FLOATING, 4, 4),
            input(SIN, FLOATING, 4, 4),
            input(X_OPTIONAL, FLOATING, 4, 4).optional(),
            output(DX_OUT, FLOATING, 4, 4),
            output(DCOS_OUT, FLOATING, 4, 4).optional(),
            output(DSIN_OUT, FLOATING, 4, 4).optional(),
        ],
        limits: "one element type; cos and sin broadcast to dy; mode 0 (half), 1 (interleaved); dcosOut and dsinOut have the shape \
                 of cos, and are written if xOptional is given",
        source: "ops-transformer posembedding/rotary_position_embedding_grad/docs/aclnnRotaryPositionEmbeddingGrad.md",
        plan: rotary_grad,
    },
];

/// Score of a masked key.
const MASKED: f64 = -10_000.0;

fn softmax(row: &mut [f64]) {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.iter_mut().for_each(|x| *x = (*x - most).exp());
    let total = row.iter().sum::<f64>();
    row.iter_mut().for_each(|x| *x /= total);
}

/// Reads `slot`, broadcast to the shape of `target`.
fn spread(views: &StridedViews<'_>, slot: ViewIndex, target: ViewIndex) -> Vec<f64> {
    let view = views.of(slot).broadcast_to(views.of(target).dims()).collapsed();
    let mut values = vec![0f64; views.of(target).len()];
    f64::load(&view, 0, &mut values);
    values
}

/// Returns the extent of the last dim.
fn masked(
    call: &OperatorCall,
    x: Name<CheckedTensor>,
    alike: &[Name<CheckedTensor>],
) -> Result<usize, Refusal> {
    let dims = &call.tensor(x)?.dims;
    call.expect_elements(&[x])?;
    for &name in alike {
        call.expect_shape(name, dims, &format!("of {x}"))?;
    }
    let found = &call.tensor(MASK)?.dims;
    let fits = found.iter().zip(dims).enumerate().all(|(i, (mask, dim))| mask == dim || i < 2 && *mask == 1);
    call.expect_that(fits, MASK, &format!("{dims:?}, or 1 for its first dims"), found)?;
    Ok(dims[3])
}

fn biased_softmax(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(X, &[ATTEN_MASK_OPTIONAL, RELATIVE_POS_BIAS, OUT])?;
    call.expect_elements(&[X])?;
    call.int_in(INNER_PRECISION_MODE, 0..=0)?;
    let &[_, windows, heads, rows, keys] = &call.tensor(X)?.dims[..] else {
        return Err(call.refuse(X, "expected 5 dims"));
    };
    call.expect_shape(OUT, &call.tensor(X)?.dims, "of x")?;
    let expected = |name, short: [usize; 3], long: [usize; 5]| -> Result<(), Refusal> {
        let Some(tensor) = call.tensor_if_given(name)? else { return Ok(()) };
        call.expect_that(
            tensor.dims == short || tensor.dims == long,
            name,
            &format!("{short:?} or {long:?}"),
            &tensor.dims,
        )
    };
    expected(ATTEN_MASK_OPTIONAL, [windows, rows, keys], [1, windows, 1, rows, keys])?;
    expected(RELATIVE_POS_BIAS, [heads, rows, keys], [1, 1, heads, rows, keys])?;
    let scale = call.float(SCALE_VALUE)?;
    let (mask, [x, bias, out]) =
        (call.slot_if_given(ATTEN_MASK_OPTIONAL)?, call.slots_of([X, RELATIVE_POS_BIAS, OUT])?);
    CallPlan::new(move |views, _| {
        let (mut scores, bias, mask) =
            (views.read::<f64>(x), views.read::<f64>(bias), views.read_given::<f64>(mask));
        for (at, row) in scores.chunks_exact_mut(keys).enumerate() {
            let (own, head, window) = (at % rows, at / rows % heads, at / rows / heads % windows);
            for (key, x) in row.iter_mut().enumerate() {
                let shift = mask.as_ref().map_or(0.0, |mask| mask[(window * rows + own) * keys + key]);
                *x = scale * *x + shift + bias[(head * rows + own) * keys + key];
            }
            softmax(row);
        }
        views.write(out, &scores);
        Ok(())
    })
}

/// Returns the products of the dims before `dim`, of half its extent, and of the dims behind.
fn halved(
    call: &OperatorCall,
    x: Name<CheckedTensor>,
    halves: &[Name<CheckedTensor>],
) -> Result<[usize; 3], Refusal> {
    let dims = &call.tensor(x)?.dims;
    let dim = call.dim(DIM, dims.len())?;
    call.expect_that(dims[dim].is_multiple_of(2), x, &format!("an even extent of dim {dim}"), dims)?;
    let mut half = dims.clone();
    half[dim] /= 2;
    for &name in halves {
        call.expect_shape(name, &half, &format!("of {x} with half of dim"))?;
    }
    Ok([dims[..dim].iter().product(), half[dim], dims[dim + 1..].iter().product()])
}

fn ge_glu_grad(call: &OperatorCall, is_left: bool) -> Result<CallPlan, Refusal> {
    call.expect_type_of(SELF, &[GRAD_OUTPUT, GELU, GRAD_INPUT])?;
    let [outer, half, inner] = halved(call, SELF, &[GRAD_OUTPUT, GELU])?;
    call.expect_shape(GRAD_INPUT, &call.tensor(SELF)?.dims, "of self")?;
    let is_tanh = call.int_in(APPROXIMATE_INT, 0..=1)? == 1;
    let [grad, x, gelu, out] = call.slots_of([GRAD_OUTPUT, SELF, GELU, GRAD_INPUT])?;
    CallPlan::new(move |views, _| {
        let [grad, x, gelu] = [grad, x, gelu].map(|slot| views.read::<f64>(slot));
        let (len, mut grads) = (half * inner, vec![0f64; x.len()]);
        for row in 0..outer {
            let (left, right) = (row * 2 * len, (row * 2 + 1) * len);
            let (gate, other) = if is_left { (left, right) } else { (right, left) };
            for i in 0..len {
                let from = grad[row * len + i];
                grads[gate + i] = from * x[other + i] * gelu_slope(x[gate + i], is_tanh);
                grads[other + i] = from * gelu[row * len + i];
            }
        }
        views.write(out, &grads);
        Ok(())
    })
}

fn gelu_slope(x: f64, is_tanh: bool) -> f64 {
    if is_tanh {
        let c = (2.0 / std::f64::consts::PI).sqrt();
        let t = (c * (x + 0.044_715 * x.powi(3))).tanh();
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * c * (1.0 + 3.0 * 0.044_715 * x * x);
    }
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    0.5 * (1.0 + libm::erf(x / std::f64::consts::SQRT_2)) + x * density
}

fn clipped_swiglu(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(X, &[OUT])?;
    let [outer, half, inner] = halved(call, X, &[OUT])?;
    let [alpha, limit, bias] = [ALPHA_FLOAT, LIMIT, BIAS_FLOAT].map(|name| call.float(name));
    let (alpha, limit, bias, is_interleaved) = (alpha?, limit?, bias?, call.flag(INTERLEAVED)?);
    let ([x, out], groups) = (call.slots_of([X, OUT])?, call.slot_if_given(GROUP_INDEX_OPTIONAL)?);
    CallPlan::new(move |views, _| {
        let counted = views.read_given::<i64>(groups).map(|counts| counts.iter().sum::<i64>());
        let rows = counted.map_or(Ok(outer), |count| {
            usize::try_from(count).ok().filter(|&count| count <= outer).ok_or_else(|| {
                format!("groupIndexOptional: expected a sum of 0 to {outer} rows, found {count}")
            })
        })?;
        let x = views.read::<f64>(x);
        // Rows behind the groups keep their contents.
        let mut results = views.read::<f64>(out);
        for (row, at, behind) in grid([rows, half, inner]) {
            let place = |index: usize| (row * 2 * half + index) * inner + behind;
            let [gate, other] = if is_interleaved { [2 * at, 2 * at + 1] } else { [at, half + at] };
            let (gate, other) = (x[place(gate)].min(limit), x[place(other)].clamp(-limit, limit));
            let swish = gate / (1.0 + (-alpha * gate).exp());
            results[(row * half + at) * inner + behind] = swish * (other + bias);
        }
        views.write(out, &results);
        Ok(())
    })
}

fn grid([first, second, third]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..first).flat_map(move |a| (0..second).flat_map(move |b| (0..third).map(move |c| (a, b, c))))
}

fn rotary_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (dy, cos) = (call.tensor(DY)?, call.tensor(COS)?);
    call.expect_type_of(DY, &[COS, SIN, X_OPTIONAL, DX_OUT, DCOS_OUT, DSIN_OUT])?;
    let fits =
        cos.dims.iter().zip(&dy.dims).all(|(own, dim)| own == dim || *own == 1) && cos.dims[3] == dy.dims[3];
    call.expect_that(fits, COS, &format!("dims that broadcast to {:?}", dy.dims), &cos.dims)?;
    call.expect_that(dy.dims[3].is_multiple_of(2), DY, "an even last dim", &dy.dims)?;
    call.expect_shape(SIN, &cos.dims, "of cos")?;
    call.expect_shape(DX_OUT, &dy.dims, "of dy")?;
    let pairing = if call.int_in(MODE, 0..=1)? == 0 { Pairing::Half } else { Pairing::Interleaved };
    let x = call.slot_if_given(X_OPTIONAL)?;
    let sums = [call.slot_if_given(DCOS_OUT)?, call.slot_if_given(DSIN_OUT)?];
    if x.is_some() {
        call.expect_shape(X_OPTIONAL, &dy.dims, "of dy")?;
        for name in [DCOS_OUT, DSIN_OUT] {
            call.expect_shape(name, &cos.dims, "of cos")?;
        }
    }
    let (depth, table) = (dy.dims[3], cos.dims.clone());
    let [dy, cos, sin, dx] = call.slots_of([DY, COS, SIN, DX_OUT])?;
    let plan = CallPlan::new(move |views, _| {
        let [cosines, sines] = [cos, sin].map(|slot| spread(views, slot, dy));
        let (grads, x) = (views.read::<f64>(dy), views.read_given::<f64>(x));
        let dims = views.of(dy).dims().to_vec();
        let mut turned = vec![0f64; grads.len()];
        let mut into = [(); 2].map(|()| vec![0f64; table.iter().product()]);
        for first in (0..grads.len()).filter(|at| is_first(pairing, at % depth, depth)) {
            let second = first + if pairing == Pairing::Half { depth / 2 } else { 1 };
            turned[first] = grads[first] * cosines[first] + grads[second] * sines[second];
            turned[second] = grads[second] * cosines[second] - grads[first] * sines[first];
            let Some(x) = &x else { continue };
            for (at, partner) in [(first, -x[second]), (second, x[first])] {
                let place = broadcast_place(at, &dims, &table);
                into[0][place] += grads[at] * x[at];
                into[1][place] += grads[at] * partner;
            }
        }
        views.write(dx, &turned);
        if x.is_some() {
            sums.iter().zip(&into).for_each(|(slot, sums)| views.write_given(*slot, sums));
        }
        Ok(())
    })?;
    Ok(if x.is_none() { plan.leaving(sums.into_iter().flatten().collect()) } else { plan })
}

const fn is_first(pairing: Pairing, at: usize, depth: usize) -> bool {
    match pairing {
        Pairing::Half => at < depth / 2,
        Pairing::Interleaved => at.is_multiple_of(2),
    }
}

/// Position within a table that broadcasts to `dims`.
fn broadcast_place(mut at: usize, dims: &[usize], table: &[usize]) -> usize {
    let (mut place, mut step) = (0, 1);
    for (&dim, &own) in dims.iter().zip(table).rev() {
        if own > 1 {
            place += at % dim * step;
        }
        at /= dim;
        step *= own;
    }
    place
}
