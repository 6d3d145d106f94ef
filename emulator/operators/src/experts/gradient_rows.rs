//! Gradients of routing, combination and choice of experts.
//!
//! Computed in f64 and rounded once.

use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{FLOATING, SINGLE, WHOLE32};
use crate::operator::{CallPlan, Refusal};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMoeInitRoutingV2Grad",
        parameters: &[
            input(GRAD_EXPANDED_X, FLOATING, 2, 3),
            input(EXPANDED_ROW_IDX, WHOLE32, 1, 1),
            output(OUT, FLOATING, 2, 2),
        ],
        limits: "gradExpandedX as expandedXOut of aclnnMoeInitRoutingV2, expandedRowIdx [N topK], out [N, H] of one type; a row of \
                 out is the sum of the rows of its choices; dropPadMode 0: activeNum 0 or the rows of gradExpandedX, later rows count \
                 as 0; 1: -1 counts as 0",
        source: "ops-transformer moe/moe_init_routing_v2_grad/docs/aclnnMoeInitRoutingV2Grad.md",
        plan: routing_grad,
    },
    Operator {
        name: "aclnnMoeFinalizeRoutingV2Grad",
        parameters: &[
            input(GRAD_Y, FLOATING, 2, 2),
            input(EXPANDED_ROW_IDX, WHOLE32, 1, 1),
            input(EXPANDED_X_OPTIONAL, FLOATING, 2, 3).optional(),
            input(SCALES_OPTIONAL, FLOATING, 2, 2).optional(),
            input(EXPERT_IDX_OPTIONAL, WHOLE32, 2, 2).optional(),
            input(BIAS_OPTIONAL, FLOATING, 2, 2).optional(),
            output(GRAD_EXPANDED_X_OUT, FLOATING, 2, 3),
            output(GRAD_SCALES_OUT, FLOATING, 2, 2).optional(),
        ],
        limits: "gradY [R, H], expandedRowIdx [R K] by token, scalesOptional, expertIdxOptional and gradScalesOut [R, K], biasOptional [E, H]; \
                 gradExpandedXOut [R K, H], for dropPadMode 0 and activeNum > 0 [min(R K, activeNum), H], for dropPadMode 1 [expertNum, \
                 expertCapacity, H], where -1 is dropped; rows of no choice are 0; scalesOptional needs expandedXOptional, without it K \
                 is 1; one element type",
        source: "ops-transformer moe/moe_finalize_routing_v2_grad/docs/aclnnMoeFinalizeRoutingV2Grad.md",
        plan: combination_grad,
    },
    Operator {
        name: "aclnnMoeGatingTopKBackward",
        parameters: &[
            input(X_NORM, SINGLE, 2, 2),
            input(GRAD_Y, FLOATING, 2, 2),
            input(EXPERT_IDX, WHOLE32, 2, 2),
            output(GRAD_X, FLOATING, 2, 2),
        ],
        limits: "xNorm and gradX [M, N], N 2 to 2048, gradY and expertIdx [M, K]; gradX has the type of gradY; normType 1 (sigmoid), whose \
                 chosen shares were divided by their sum plus eps and multiplied by routedScalingFactor",
        source: "ops-transformer moe/moe_gating_top_k_backward/docs/aclnnMoeGatingTopKBackward.md",
        plan: choice_grad,
    },
];

fn routing_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(GRAD_EXPANDED_X, &[OUT])?;
    let is_padded = call.int_in(DROP_PAD_MODE, 0..=1)? == 1;
    let grads = GRAD_EXPANDED_X.of(if is_padded { "ech" } else { "rh" });
    let sizes = call.sizes(&[grads, OUT.of("nh"), EXPANDED_ROW_IDX.of("i")])?;
    let [count, width, all] = sizes.all(['n', 'h', 'i']);
    let choices = call.int_in(TOP_K_INT, 1..=i64::MAX)? as usize;
    call.expect_that(count.checked_mul(choices) == Some(all), EXPANDED_ROW_IDX, "[N topK]", all)?;
    let rows = if is_padded { sizes.of('e') * sizes.of('c') } else { sizes.of('r') };
    let active = call.int_in(ACTIVE_NUM, 0..=i64::MAX)? as usize;
    let expected = if active > 0 { all.min(active) } else { all };
    call.expect_that(
        is_padded || rows == expected,
        GRAD_EXPANDED_X,
        &format!("{expected} rows by activeNum"),
        rows,
    )?;
    let [grads, places, out] = call.slots_of([GRAD_EXPANDED_X, EXPANDED_ROW_IDX, OUT])?;
    CallPlan::new(move |views, _| {
        let (grads, places) = (views.read::<f64>(grads), views.read::<i64>(places));
        let mut sums = vec![0f64; count * width];
        for (at, &place) in places.iter().enumerate() {
            if place < -1 || place >= all.max(rows) as i64 || place == -1 && !is_padded {
                return Err(format!("expandedRowIdx: expected a row of gradExpandedX, found {place}"));
            }
            let Some(row) = usize::try_from(place).ok().filter(|&row| row < rows) else { continue };
            let sum = &mut sums[at / choices * width..][..width];
            sum.iter_mut().zip(&grads[row * width..]).for_each(|(sum, grad)| *sum += grad);
        }
        views.write(out, &sums);
        Ok(())
    })
}

fn combination_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(
        GRAD_Y,
        &[EXPANDED_X_OPTIONAL, SCALES_OPTIONAL, BIAS_OPTIONAL, GRAD_EXPANDED_X_OUT, GRAD_SCALES_OUT],
    )?;
    let sizes = call.sizes(&[
        GRAD_Y.of("nh"),
        SCALES_OPTIONAL.of("nk"),
        EXPERT_IDX_OPTIONAL.of("nk"),
        BIAS_OPTIONAL.of("eh"),
        GRAD_SCALES_OUT.of("nk"),
    ])?;
    let [count, width] = sizes.all(['n', 'h']);
    let has_scales = call.tensor_if_given(SCALES_OPTIONAL)?.is_some();
    let choices = if has_scales { sizes.of('k') } else { 1 };
    let all = count * choices;
    call.expect_shape(EXPANDED_ROW_IDX, &[all], "one row per choice")?;
    let is_padded = call.int_in(DROP_PAD_MODE, 0..=1)? == 1;
    let active = call.int_in(ACTIVE_NUM, 0..=i64::MAX)? as usize;
    let shape = if is_padded {
        let of = |name| call.int_in(name, 1..=1 << 32).map(|size| size as usize);
        vec![of(EXPERT_NUM)?, of(EXPERT_CAPACITY)?, width]
    } else {
        vec![if active > 0 { all.min(active) } else { all }, width]
    };
    call.expect_shape(GRAD_EXPANDED_X_OUT, &shape, "of expandedX")?;
    let rows = shape.iter().rev().skip(1).product::<usize>();
    let (scales, scales_out) = (call.slot_if_given(SCALES_OPTIONAL)?, call.slot_if_given(GRAD_SCALES_OUT)?);
    if has_scales {
        call.expect_shape(EXPANDED_X_OPTIONAL, &shape, "of gradExpandedXOut")?;
        call.slot(GRAD_SCALES_OUT)?;
    }
    let bias = call.slot_if_given(BIAS_OPTIONAL)?;
    let named = if bias.is_some() { Some(call.slot(EXPERT_IDX_OPTIONAL)?) } else { None };
    let (x, [grad, places, out]) = (
        call.slot_if_given(EXPANDED_X_OPTIONAL)?,
        call.slots_of([GRAD_Y, EXPANDED_ROW_IDX, GRAD_EXPANDED_X_OUT])?,
    );
    let plan = CallPlan::new(move |views, _| {
        let (grad, places) = (views.read::<f64>(grad), views.read::<i64>(places));
        let [x, bias] = [x, bias].map(|slot| views.read_given::<f64>(slot));
        let (scales, named) = (views.read_given::<f64>(scales), views.read_given::<i64>(named));
        let (mut grads, mut slopes) = (vec![0f64; rows * width], vec![0f64; all]);
        for (at, &place) in places.iter().enumerate() {
            if place < -1 || place >= all.max(rows) as i64 || place == -1 && !is_padded {
                return Err(format!("expandedRowIdx: expected a row of expandedX, found {place}"));
            }
            let own = &grad[at / choices * width..][..width];
            let row = usize::try_from(place).ok().filter(|&row| row < rows);
            if let Some(row) = row {
                let factor = scales.as_ref().map_or(1.0, |scales| scales[at]);
                let to = &mut grads[row * width..(row + 1) * width];
                to.iter_mut().zip(own).for_each(|(to, grad)| *to = grad * factor);
            }
            let shift =
                match (&named, &bias) {
                    (Some(named), Some(bias)) => {
                        let start = usize::try_from(named[at]).ok().map(|expert| expert * width);
                        let start = start.filter(|start| start + width <= bias.len());
                        Some(start.ok_or_else(|| {
                            format!("expertIdxOptional: no row {} of biasOptional", named[at])
                        })?)
                    }
                    _ => None,
                };
            let value = |i: usize| {
                let copy = x.as_ref().zip(row).map_or(0.0, |(x, row)| x[row * width + i]);
                copy + bias.as_ref().zip(shift).map_or(0.0, |(bias, start)| bias[start + i])
            };
            slopes[at] = own.iter().enumerate().map(|(i, grad)| grad * value(i)).sum();
        }
        views.write(out, &grads);
        views.write_given(scales_out.filter(|_| has_scales), &slopes);
        Ok(())
    })?;
    Ok(plan.leaving(scales_out.filter(|_| !has_scales).into_iter().collect()))
}

fn choice_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(GRAD_Y, &[GRAD_X])?;
    let sizes = call.sizes(&[X_NORM.of("mn"), GRAD_Y.of("mk"), EXPERT_IDX.of("mk"), GRAD_X.of("mn")])?;
    let [width, choices] = sizes.all(['n', 'k']);
    call.expect_that((2..=2048).contains(&width), X_NORM, "2 to 2048 experts", width)?;
    call.expect_that((1..=width).contains(&choices), GRAD_Y, &format!("1 to {width} choices"), choices)?;
    call.int_in(NORM_TYPE_INT, 1..=1)?;
    call.int_in(RENORM, 0..=1)?;
    let (factor, eps) = (call.float(ROUTED_SCALING_FACTOR)?, call.float(EPS)?);
    let [shares, grad, chosen, out] = call.slots_of([X_NORM, GRAD_Y, EXPERT_IDX, GRAD_X])?;
    CallPlan::new(move |views, _| {
        let (shares, grad) = (views.read::<f64>(shares), views.read::<f64>(grad));
        let chosen = views.read::<i64>(chosen);
        if let Some(wrong) = chosen.iter().find(|expert| !(0..width as i64).contains(expert)) {
            return Err(format!("expertIdx: expected 0 to {}, found {wrong}", width - 1));
        }
        let mut grads = vec![0f64; shares.len()];
        for (row, own) in chosen.chunks_exact(choices).enumerate() {
            let share = |place: usize| shares[row * width + own[place] as usize];
            let slope = |place: usize| grad[row * choices + place] * factor;
            let total = (0..choices).map(share).sum::<f64>() + eps;
            let mean = (0..choices).map(|place| share(place) / total * slope(place)).sum::<f64>();
            for (place, &expert) in own.iter().enumerate() {
                let x = share(place);
                grads[row * width + expert as usize] += (slope(place) - mean) / total * x * (1.0 - x);
            }
        }
        views.write(out, &grads);
        Ok(())
    })
}
