//! Merge of attention results of several devices, and rotation of latent queries and keys.

use crate::lane::Lane;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, inputs, output};
use crate::operator::sets::{FLOATING, SINGLE};
use crate::operator::{CallPlan, Refusal, ViewIndex};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnAttentionUpdate",
        parameters: &[
            inputs(LSE_LIST, SINGLE, 1, 1),
            inputs(LOCAL_OUT_LIST, FLOATING, 2, 2),
            output(OUT, FLOATING, 2, 2),
            output(LSE_OUT, SINGLE, 1, 1).optional(),
        ],
        limits: "lists of one length from 1 to 16: lse [T] and localOut [T, D] of one element type; out [T, D] is the sum of localOut \
                 times exp(lse - lseOut), lseOut [T] the logarithm of the sum of exp(lse), written if updateType is 1",
        source: "ops-transformer attention/attention_update/docs/aclnnAttentionUpdate.md",
        plan: update,
    },
    Operator {
        name: "aclnnInterleaveRope",
        parameters: &[
            input(X, FLOATING, 4, 4),
            input(COS, FLOATING, 4, 4),
            input(SIN, FLOATING, 4, 4),
            output(OUT, FLOATING, 4, 4),
        ],
        limits: "x and out [B, N, S, 64], cos and sin [B, 1 or N, 1 or S, 64]; the even and then the odd elements of a row turn as \
                 its halves; one element type",
        source: "ops-transformer posembedding/interleave_rope/docs/aclnnInterleaveRope.md",
        plan: interleave,
    },
];

const MOST_PARTS: usize = 16;

fn update(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (lse, parts) = (call.tensors(LSE_LIST)?, call.tensors(LOCAL_OUT_LIST)?);
    call.expect_that(
        (1..=MOST_PARTS).contains(&lse.len()),
        LSE_LIST,
        &format!("1 to {MOST_PARTS} tensors"),
        lse.len(),
    )?;
    call.expect_that(
        parts.len() == lse.len(),
        LOCAL_OUT_LIST,
        &format!("{} tensors as lse has", lse.len()),
        parts.len(),
    )?;
    let out = call.tensor(OUT)?;
    for part in parts {
        let fits = part.dims == out.dims && part.dtype == out.dtype;
        call.expect_that(
            fits,
            LOCAL_OUT_LIST,
            &format!("{} {:?} as out has", out.dtype, out.dims),
            &part.dims,
        )?;
    }
    for sums in lse {
        call.expect_that(sums.dims == out.dims[..1], LSE_LIST, &format!("{:?}", &out.dims[..1]), &sums.dims)?;
    }
    let is_kept = call.int_in(UPDATE_TYPE, 0..=1)? == 1;
    if is_kept {
        call.expect_shape(LSE_OUT, &out.dims[..1], "the rows of out")?;
    }
    let slots = |list: &[CheckedTensor]| list.iter().map(|tensor| tensor.slot).collect::<Vec<ViewIndex>>();
    let (lse, parts, lse_out) = (slots(lse), slots(parts), call.slot_if_given(LSE_OUT)?);
    let (width, out) = (out.dims[1], out.slot);
    let plan = CallPlan::new(move |views, _| {
        let sums: Vec<Vec<f64>> = lse.iter().map(|slot| views.read(*slot)).collect();
        let total = |row: usize| {
            let most = sums.iter().map(|sums| sums[row]).fold(f64::NEG_INFINITY, f64::max);
            most + sums.iter().map(|sums| (sums[row] - most).exp()).sum::<f64>().ln()
        };
        let totals: Vec<f64> = (0..sums[0].len()).map(total).collect();
        let mut merged = vec![0f64; views.of(out).len()];
        for (part, sums) in parts.iter().zip(&sums) {
            for (at, value) in views.read::<f64>(*part).iter().enumerate() {
                let row = at / width;
                merged[at] += value * (sums[row] - totals[row]).exp();
            }
        }
        views.write(out, &merged);
        views.write_given(lse_out.filter(|_| is_kept), &totals);
        Ok(())
    })?;
    Ok(plan.leaving(lse_out.filter(|_| !is_kept).into_iter().collect()))
}

/// Extent of a rotated row.
const ROTATED: usize = 64;

fn interleave(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(X)?;
    call.expect_type_of(X, &[COS, SIN, OUT])?;
    call.expect_that(x.dims[3] == ROTATED, X, &format!("a last dim of {ROTATED}"), &x.dims)?;
    call.expect_shape(OUT, &x.dims, "of x")?;
    let cos = &call.tensor(COS)?.dims;
    let fits = cos
        .iter()
        .zip(&x.dims)
        .enumerate()
        .all(|(i, (own, dim))| own == dim || (i == 1 || i == 2) && *own == 1);
    call.expect_that(fits, COS, &format!("{:?}, or 1 for its middle dims", x.dims), cos)?;
    call.expect_shape(SIN, cos, "of cos")?;
    let [x, cos, sin, out] = call.slots_of([X, COS, SIN, OUT])?;
    CallPlan::new(move |views, _| {
        let spread = |slot: ViewIndex| {
            let mut values = vec![0f64; views.of(x).len()];
            f64::load(&views.of(slot).broadcast_to(views.of(x).dims()).collapsed(), 0, &mut values);
            values
        };
        let (values, cosines, sines) = (views.read::<f64>(x), spread(cos), spread(sin));
        let half = ROTATED / 2;
        let turned = |at: usize| {
            let (row, place) = (at - at % ROTATED, at % ROTATED);
            let gathered =
                |place: usize| values[row + if place < half { 2 * place } else { 2 * (place - half) + 1 }];
            let partner = if place < half { -gathered(place + half) } else { gathered(place - half) };
            gathered(place) * cosines[at] + partner * sines[at]
        };
        views.write(out, &(0..values.len()).map(turned).collect::<Vec<f64>>());
        Ok(())
    })
}
