//! Choice of experts: routers with groups, and ends of sorted experts.

use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{BOOL, FLOATING, SINGLE, WHOLE32};
use crate::operator::{CallPlan, Refusal};
use crate::reduction::order::compare;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMoeGatingTopKSoftmaxV2",
        parameters: &[
            input(X, FLOATING, 2, 3),
            input(FINISHED_OPTIONAL, BOOL, 1, 2).optional(),
            output(Y_OUT, FLOATING, 2, 3),
            output(EXPERT_IDX_OUT, WHOLE32, 2, 3),
            output(SOFTMAX_RESULT_OUT_OPTIONAL, SINGLE, 2, 3).optional(),
        ],
        limits: "as aclnnMoeGatingTopKSoftmax without rows; renorm 1 takes the softmax of the chosen scores alone; \
                 outputSoftmaxResultFlag with renorm 0 stores all shares in softmaxResultOutOptional",
        source: "CANN 8.1 aclnn API reference, aclnnMoeGatingTopKSoftmaxV2",
        plan: softmax_gating,
    },
    Operator {
        name: "aclnnMoeGatingTopK",
        parameters: &[
            input(X, FLOATING, 2, 2),
            input(BIAS_OPTIONAL, FLOATING, 1, 1).optional(),
            output(Y_OUT, FLOATING, 2, 2),
            output(EXPERT_IDX_OUT, WHOLE32, 2, 2),
            output(OUT_OUT, SINGLE, 2, 2).optional(),
        ],
        limits: "x [N, E], biasOptional [E]: shares of softmax (normType 0) or sigmoid (1), plus the bias for the choice; groupCount \
                 divides E; kGroup groups with the largest share (groupSelectMode 0) or sum of two shares (1); k experts of these; \
                 yOut [N, k] is their share, divided by their sum + eps (normType 1 or renorm 1), times routedScalingFactor; outOut \
                 [N, E] has all shares if outFlag",
        source: "ops-transformer moe/moe_gating_top_k/docs/aclnnMoeGatingTopK.md",
        plan: gating,
    },
    Operator {
        name: "aclnnMoeComputeExpertTokens",
        parameters: &[input(SORTED_EXPERTS, WHOLE32, 1, 1), output(OUT, WHOLE32, 1, 1)],
        limits: "sortedExperts ascends; out [numExperts] is the number of its elements up to each expert",
        source: "CANN 8.1 aclnn API reference, aclnnMoeComputeExpertTokens",
        plan: ends,
    },
];

/// The `k` largest of `places`. Of equal scores the lower place comes first.
fn largest(scores: &[f64], mut places: Vec<usize>, k: usize) -> Vec<usize> {
    places.sort_by(|&a, &b| compare(scores[b], scores[a]).then(a.cmp(&b)));
    places.truncate(k);
    places
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shares: Vec<f64> = row.iter().map(|x| (x - most).exp()).collect();
    let total = shares.iter().sum::<f64>();
    shares.into_iter().map(|share| share / total).collect()
}

fn softmax_gating(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(X)?;
    let width = x.dims[x.rank() - 1];
    let k = call.int_in(K, 1..=width.min(1024) as i64)? as usize;
    call.expect_type_of(X, &[Y_OUT])?;
    let outer = &x.dims[..x.rank() - 1];
    for name in [Y_OUT, EXPERT_IDX_OUT] {
        call.expect_shape(name, &[outer, &[k]].concat(), "of x with k as the last dim")?;
    }
    if call.tensor_if_given(FINISHED_OPTIONAL)?.is_some() {
        call.expect_shape(FINISHED_OPTIONAL, outer, "of x without the last dim")?;
    }
    let is_renormed = call.int_in(RENORM, 0..=1)? == 1;
    let shares_out = call.slot_if_given(SOFTMAX_RESULT_OUT_OPTIONAL)?;
    let is_kept = call.flag(OUTPUT_SOFTMAX_RESULT_FLAG)? && !is_renormed;
    if is_kept {
        call.expect_shape(SOFTMAX_RESULT_OUT_OPTIONAL, &x.dims, "of x")?;
    }
    let ([x, y, chosen], finished) =
        (call.slots_of([X, Y_OUT, EXPERT_IDX_OUT])?, call.slot_if_given(FINISHED_OPTIONAL)?);
    let plan = CallPlan::new(move |views, _| {
        let done = views.read_given::<i64>(finished);
        let (mut ys, mut experts, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for (at, row) in views.read::<f64>(x).chunks_exact(width).enumerate() {
            let places = largest(row, (0..width).collect(), k);
            let shares = softmax(row);
            ys.extend(if is_renormed {
                softmax(&places.iter().map(|&place| row[place]).collect::<Vec<_>>())
            } else {
                places.iter().map(|&place| shares[place]).collect()
            });
            let is_done = done.as_ref().is_some_and(|done| done[at] != 0);
            experts.extend(places.iter().map(|&place| if is_done { width as i64 } else { place as i64 }));
            all.extend(shares);
        }
        views.write(y, &ys);
        views.write(chosen, &experts);
        views.write_given(shares_out.filter(|_| is_kept), &all);
        Ok(())
    })?;
    Ok(plan.leaving(shares_out.filter(|_| !is_kept).into_iter().collect()))
}

fn gating(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(X, &[BIAS_OPTIONAL, Y_OUT])?;
    call.expect_elements(&[X])?;
    let sizes = call.sizes(&[X.of("ne"), BIAS_OPTIONAL.of("e"), Y_OUT.of("nk"), EXPERT_IDX_OUT.of("nk")])?;
    let [width, columns] = sizes.all(['e', 'k']);
    let groups = call.int_in(GROUP_COUNT, 1..=width as i64)? as usize;
    call.expect_that(width.is_multiple_of(groups), GROUP_COUNT, &format!("a divisor of {width}"), groups)?;
    let kept = call.int_in(K_GROUP, 1..=groups as i64)? as usize;
    let size = width / groups;
    let k = call.int_in(K, 1..=(kept * size) as i64)? as usize;
    call.expect_that(columns == k, Y_OUT, &format!("{k} columns as k says"), columns)?;
    let is_pair = call.int_in(GROUP_SELECT_MODE, 0..=1)? == 1;
    call.expect_that(!is_pair || size > 1, GROUP_SELECT_MODE, "0 for groups of one expert", 1)?;
    let is_sigmoid = call.int_in(NORM_TYPE_INT, 0..=1)? == 1;
    let is_divided = is_sigmoid || call.int_in(RENORM, 0..=1)? == 1;
    let (factor, eps) = (call.float(ROUTED_SCALING_FACTOR)?, call.float(EPS)?);
    let shares_out = call.slot_if_given(OUT_OUT)?;
    let is_kept = call.flag(OUT_FLAG)?;
    if is_kept {
        call.expect_shape(OUT_OUT, &call.tensor(X)?.dims, "of x")?;
    }
    let ([x, y, chosen], bias) =
        (call.slots_of([X, Y_OUT, EXPERT_IDX_OUT])?, call.slot_if_given(BIAS_OPTIONAL)?);
    let plan = CallPlan::new(move |views, _| {
        let bias = views.read_given::<f64>(bias);
        let (mut ys, mut experts, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for row in views.read::<f64>(x).chunks_exact(width) {
            let shares = if is_sigmoid {
                row.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect()
            } else {
                softmax(row)
            };
            let shift = |at: usize| bias.as_ref().map_or(0.0, |bias| bias[at]);
            let scores: Vec<f64> = shares.iter().enumerate().map(|(at, share)| share + shift(at)).collect();
            let of_group = |group: &[f64]| {
                let best = largest(group, (0..size).collect(), if is_pair { 2 } else { 1 });
                best.into_iter().map(|at| group[at]).sum::<f64>()
            };
            let of_groups: Vec<f64> = scores.chunks_exact(size).map(of_group).collect();
            let open = largest(&of_groups, (0..groups).collect(), kept);
            let places = open.into_iter().flat_map(|group| group * size..(group + 1) * size).collect();
            let places = largest(&scores, places, k);
            let total = if is_divided { places.iter().map(|&at| shares[at]).sum::<f64>() + eps } else { 1.0 };
            ys.extend(places.iter().map(|&at| shares[at] / total * factor));
            experts.extend(places.iter().map(|&at| at as i64));
            all.extend(shares);
        }
        views.write(y, &ys);
        views.write(chosen, &experts);
        views.write_given(shares_out.filter(|_| is_kept), &all);
        Ok(())
    })?;
    Ok(plan.leaving(shares_out.filter(|_| !is_kept).into_iter().collect()))
}

fn ends(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let count = call.int_in(NUM_EXPERTS, 1..=1 << 20)?;
    call.expect_shape(OUT, &[count as usize], "numExperts elements")?;
    let [sorted, out] = call.slots_of([SORTED_EXPERTS, OUT])?;
    CallPlan::new(move |views, _| {
        let sorted: Vec<i64> = views.read(sorted);
        if !sorted.is_sorted() {
            return Err("sortedExperts: expected numbers that ascend".to_owned());
        }
        let up_to = |expert: i64| sorted.partition_point(|&found| found <= expert) as i64;
        views.write(out, &(0..count).map(up_to).collect::<Vec<_>>());
        Ok(())
    })
}
