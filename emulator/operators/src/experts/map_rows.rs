//! Permutation of tokens by a map of tokens and experts, as Megatron has it.
//!
//! Without padding, each token has the same number of experts, and a map that differs fails the
//! stream. With padding, each expert takes the first tokens of its column, up to its capacity, and
//! then the first ones that are not its own.

use crate::dtype::AclType::{self, Bool, I8};
use crate::lane::Lane;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, ints, output};
use crate::operator::sets::{FLOATING, WHOLE32};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};

const MAPS: &[AclType] = &[I8, Bool];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMoeTokenPermuteWithRoutingMap",
        parameters: &[
            input(TOKENS, FLOATING, 2, 2),
            input(ROUTING_MAP, MAPS, 2, 2),
            input(PROBS_OPTIONAL, FLOATING, 2, 2).optional(),
            output(PERMUTE_TOKENS_OUT, FLOATING, 2, 2),
            output(PERMUTE_PROBS_OUT_OPTIONAL, FLOATING, 1, 1).optional(),
            output(SORTED_INDICES_OUT, WHOLE32, 1, 1),
        ],
        limits: "tokens [N, H], routingMap and probsOptional [N, E]; permuteTokensOut [copies, H] by expert; dropAndPad false: K = numOutTokens / N \
                 experts per token, K up to 512, copies N K, sortedIndicesOut [N K] the row of each choice by token; dropAndPad true: \
                 numOutTokens / E tokens per expert, sortedIndicesOut the token of each row; permuteProbsOutOptional [copies]",
        source: "ops-transformer moe/moe_token_permute_with_routing_map/docs/aclnnMoeTokenPermuteWithRoutingMap.md",
        plan: permute,
    },
    Operator {
        name: "aclnnMoeTokenPermuteWithRoutingMapGrad",
        parameters: &[
            input(PERMUTED_TOKEN_OUTPUT_GRAD, FLOATING, 2, 2),
            input(PERMUTED_PROBS_OUTPUT_GRAD_OPTIONAL, FLOATING, 1, 1).optional(),
            input(SORTED_INDICES, WHOLE32, 1, 1),
            input(ROUTING_MAP_OPTIONAL, MAPS, 2, 2).optional(),
            output(TOKENS_GRAD_OUT, FLOATING, 2, 2),
            output(PROBS_GRAD_OUT_OPTIONAL, FLOATING, 2, 2).optional(),
        ],
        limits: "gradients of aclnnMoeTokenPermuteWithRoutingMap with its sortedIndices; tokensGradOut [tokensNum, H], probsGradOutOptional \
                 [tokensNum, numExperts], with permutedProbsOutputGradOptional and, without dropAndPad, routingMapOptional",
        source: "ops-transformer moe/moe_token_permute_with_routing_map_grad/docs/aclnnMoeTokenPermuteWithRoutingMapGrad.md",
        plan: permute_grad,
    },
    Operator {
        name: "aclnnMoeTokenUnpermuteWithRoutingMap",
        parameters: &[
            input(PERMUTED_TOKENS, FLOATING, 2, 2),
            input(SORTED_INDICES, WHOLE32, 1, 1),
            input(ROUTING_MAP_OPTIONAL, MAPS, 2, 2).optional(),
            input(PROBS_OPTIONAL, FLOATING, 2, 2).optional(),
            ints(RESTORE_SHAPE_OPTIONAL).optional(),
            output(UNPERMUTED_TOKENS, FLOATING, 2, 2),
            output(OUT_INDEX, WHOLE32, 1, 1),
            output(PERMUTE_TOKEN_ID, WHOLE32, 1, 1),
            output(PERMUTE_PROBS, FLOATING, 1, 1).optional(),
        ],
        limits: "permutedTokens and sortedIndices of aclnnMoeTokenPermuteWithRoutingMap; unpermutedTokens [N, H] are the sums of their rows, times \
                 permuteProbs, which are probsOptional [N, E] by row and need routingMapOptional; outIndex the row of each sum, \
                 permuteTokenId its token, by token; without padding -1 is left out",
        source: "ops-transformer moe/moe_token_unpermute_with_routing_map/docs/aclnnMoeTokenUnpermuteWithRoutingMap.md",
        plan: unpermute,
    },
    Operator {
        name: "aclnnMoeTokenUnpermuteWithRoutingMapGrad",
        parameters: &[
            input(UNPERMUTED_TOKENS_GRAD, FLOATING, 2, 2),
            input(OUT_INDEX, WHOLE32, 1, 1),
            input(PERMUTE_TOKEN_ID, WHOLE32, 1, 1),
            input(ROUTING_MAP_OPTIONAL, MAPS, 2, 2).optional(),
            input(PERMUTED_TOKENS_OPTIONAL, FLOATING, 2, 2).optional(),
            input(PROBS_OPTIONAL, FLOATING, 1, 2).optional(),
            ints(RESTORE_SHAPE_OPTIONAL).optional(),
            output(PERMUTED_TOKENS_GRAD_OUT, FLOATING, 2, 2),
            output(PROBS_GRAD_OUT_OPTIONAL, FLOATING, 2, 2).optional(),
        ],
        limits: "gradients of aclnnMoeTokenUnpermuteWithRoutingMap with its outIndex and permuteTokenId; with probsOptional [N, E] also \
                 routingMapOptional, permutedTokensOptional and probsGradOutOptional",
        source: "ops-transformer moe/moe_token_unpermute_with_routing_map_grad/docs/aclnnMoeTokenUnpermuteWithRoutingMapGrad.md",
        plan: unpermute_grad,
    },
];

/// A row of permuted tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chosen {
    token: usize,
    expert: usize,
}

/// Returns the tokens of each expert, in the order of the permuted rows.
fn chosen(map: &[i64], experts: usize, capacity: Option<usize>) -> Vec<Chosen> {
    let tokens = map.len().checked_div(experts).unwrap_or(0);
    let of_expert = |expert: usize| {
        let is_own = move |token: &usize| map[token * experts + expert] != 0;
        let own = (0..tokens).filter(is_own);
        let rest = (0..tokens).filter(move |token| !is_own(token)).filter(move |_| capacity.is_some());
        own.chain(rest).take(capacity.unwrap_or(usize::MAX)).map(move |token| Chosen { token, expert })
    };
    (0..experts).flat_map(of_expert).collect()
}

/// Returns the row of each choice, by token and then by expert.
fn rows_by_token(rows: &[Chosen], tokens: usize, choices: usize) -> Result<Vec<i64>, String> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&row| rows[row].token);
    let expected = (0..tokens).flat_map(|token| vec![token; choices]);
    if order.iter().map(|&row| rows[row].token).eq(expected) {
        Ok(order.into_iter().map(|row| row as i64).collect())
    } else {
        Err(format!("routingMap: expected {choices} experts for each token"))
    }
}

fn permute(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(TOKENS, &[PERMUTE_TOKENS_OUT])?;
    call.expect_type_of(PROBS_OPTIONAL, &[PERMUTE_PROBS_OUT_OPTIONAL])?;
    let sizes = call.sizes(&[TOKENS.of("nh"), ROUTING_MAP.of("ne"), PROBS_OPTIONAL.of("ne")])?;
    call.expect_elements(&[TOKENS, ROUTING_MAP])?;
    let [count, width, experts] = sizes.all(['n', 'h', 'e']);
    let asked = call.int_in(NUM_OUT_TOKENS, 0..=i64::MAX)? as usize;
    let is_padded = call.flag(DROP_AND_PAD)?;
    let each = asked / if is_padded { experts } else { count };
    let most = if is_padded { count } else { experts.min(512) };
    call.expect_that(each <= most, NUM_OUT_TOKENS, &format!("at most {most} times the rest"), asked)?;
    let copies = each * if is_padded { experts } else { count };
    call.expect_shape(PERMUTE_TOKENS_OUT, &[copies, width], "the copies by numOutTokens")?;
    call.expect_shape(SORTED_INDICES_OUT, &[copies], "an index per copy")?;
    let (probs, probs_out) =
        (call.slot_if_given(PROBS_OPTIONAL)?, call.slot_if_given(PERMUTE_PROBS_OUT_OPTIONAL)?);
    if probs.is_some() {
        call.expect_shape(PERMUTE_PROBS_OUT_OPTIONAL, &[copies], "a factor per copy")?;
    }
    let [tokens, map] = call.slots_of([TOKENS, ROUTING_MAP])?;
    let [out, sorted] = call.slots_of([PERMUTE_TOKENS_OUT, SORTED_INDICES_OUT])?;
    let plan = CallPlan::new(move |views, _| {
        let rows = chosen(&views.read::<i64>(map), experts, is_padded.then_some(each));
        let indices = if is_padded {
            rows.iter().map(|row| row.token as i64).collect()
        } else {
            rows_by_token(&rows, count, each)?
        };
        let values = views.read::<f64>(tokens);
        let moved = rows.iter().flat_map(|row| &values[row.token * width..(row.token + 1) * width]);
        views.write(out, &moved.copied().collect::<Vec<f64>>());
        views.write(sorted, &indices);
        if let Some(probs) = views.read_given::<f64>(probs) {
            let of = |row: &Chosen| probs[row.token * experts + row.expert];
            views.write_given(probs_out, &rows.iter().map(of).collect::<Vec<f64>>());
        }
        Ok(())
    })?;
    Ok(plan.leaving(probs_out.filter(|_| probs.is_none()).into_iter().collect()))
}

/// Adds rows of `from` to rows of a matrix of zeros.
fn added(from: &[f64], width: usize, rows: usize, pairs: impl Iterator<Item = [usize; 2]>) -> Vec<f64> {
    let mut sums = vec![0f64; rows * width];
    for [source, target] in pairs {
        let target = &mut sums[target * width..(target + 1) * width];
        target.iter_mut().zip(&from[source * width..]).for_each(|(sum, x)| *sum += x);
    }
    sums
}

fn expect_within(name: &str, values: &[i64], most: usize) -> Result<Vec<usize>, String> {
    let within = |&value: &i64| usize::try_from(value).ok().filter(|&value| value < most);
    let wrong = |value: &i64| format!("{name}: expected 0 to {}, found {value}", most as i64 - 1);
    values.iter().map(|value| within(value).ok_or_else(|| wrong(value))).collect()
}

fn permute_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let grads = [PERMUTED_PROBS_OUTPUT_GRAD_OPTIONAL, TOKENS_GRAD_OUT, PROBS_GRAD_OUT_OPTIONAL];
    call.expect_type_of(PERMUTED_TOKEN_OUTPUT_GRAD, &grads)?;
    let sizes = call.sizes(&[
        PERMUTED_TOKEN_OUTPUT_GRAD.of("rh"),
        PERMUTED_PROBS_OUTPUT_GRAD_OPTIONAL.of("r"),
        SORTED_INDICES.of("r"),
        TOKENS_GRAD_OUT.of("nh"),
        PROBS_GRAD_OUT_OPTIONAL.of("ne"),
        ROUTING_MAP_OPTIONAL.of("ne"),
    ])?;
    let [copies, width, count] = sizes.all(['r', 'h', 'n']);
    call.int_in(TOKENS_NUM, count as i64..=count as i64)?;
    let experts = call.int_in(NUM_EXPERTS, 1..=i64::MAX)? as usize;
    let is_padded = call.flag(DROP_AND_PAD)?;
    let parts = if is_padded { experts } else { count.max(1) };
    call.expect_that(
        copies.is_multiple_of(parts),
        SORTED_INDICES,
        &format!("a multiple of {parts}"),
        copies,
    )?;
    let each = copies / parts;
    let probs = call.slot_if_given(PERMUTED_PROBS_OUTPUT_GRAD_OPTIONAL)?;
    let (map, probs_out) =
        (call.slot_if_given(ROUTING_MAP_OPTIONAL)?, call.slot_if_given(PROBS_GRAD_OUT_OPTIONAL)?);
    if probs.is_some() {
        call.expect_shape(PROBS_GRAD_OUT_OPTIONAL, &[count, experts], "tokensNum and numExperts")?;
        call.expect_that(is_padded || map.is_some(), ROUTING_MAP_OPTIONAL, "a map for the factors", "NULL")?;
    }
    let [grad, sorted, out] = call.slots_of([PERMUTED_TOKEN_OUTPUT_GRAD, SORTED_INDICES, TOKENS_GRAD_OUT])?;
    let plan = CallPlan::new(move |views, _| {
        let limit = if is_padded { count } else { copies };
        let sorted = expect_within("sortedIndices", &views.read::<i64>(sorted), limit)?;
        let grad = views.read::<f64>(grad);
        let pair = |(at, &index): (usize, &usize)| if is_padded { [at, index] } else { [index, at / each] };
        views.write(out, &added(&grad, width, count, sorted.iter().enumerate().map(pair)));
        if let Some(probs) = views.read_given::<f64>(probs) {
            let rows = match views.read_given::<i64>(map) {
                Some(map) if !is_padded => chosen(&map, experts, None),
                _ => sorted
                    .iter()
                    .enumerate()
                    .map(|(at, &token)| Chosen { token, expert: at / each })
                    .collect(),
            };
            if rows.len() != copies {
                return Err(format!("routingMapOptional: expected {copies} ones, found {}", rows.len()));
            }
            let mut grads = vec![0f64; count * experts];
            rows.iter().zip(probs).for_each(|(row, grad)| grads[row.token * experts + row.expert] = grad);
            views.write_given(probs_out, &grads);
        }
        Ok(())
    })?;
    Ok(plan.leaving(probs_out.filter(|_| probs.is_none()).into_iter().collect()))
}

/// Factors of the permuted rows.
fn factors(
    views: &StridedViews<'_>,
    map: &[i64],
    probs: ViewIndex,
    experts: usize,
    capacity: Option<usize>,
) -> (Vec<Chosen>, Vec<f64>) {
    let (rows, probs) = (chosen(map, experts, capacity), views.read::<f64>(probs));
    let factors = rows.iter().map(|row| probs[row.token * experts + row.expert]).collect();
    (rows, factors)
}

fn unpermute(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(PERMUTED_TOKENS, &[UNPERMUTED_TOKENS])?;
    call.expect_type_of(PROBS_OPTIONAL, &[PERMUTE_PROBS])?;
    let sizes = call.sizes(&[
        PERMUTED_TOKENS.of("rh"),
        SORTED_INDICES.of("r"),
        UNPERMUTED_TOKENS.of("nh"),
        ROUTING_MAP_OPTIONAL.of("ne"),
        PROBS_OPTIONAL.of("ne"),
        OUT_INDEX.of("r"),
        PERMUTE_TOKEN_ID.of("r"),
    ])?;
    let [copies, width, count] = sizes.all(['r', 'h', 'n']);
    let is_padded = call.flag(PADDED_MODE)?;
    let (probs, map) = (call.slot_if_given(PROBS_OPTIONAL)?, call.slot_if_given(ROUTING_MAP_OPTIONAL)?);
    let probs_out = call.slot_if_given(PERMUTE_PROBS)?;
    let parts = match probs {
        _ if !is_padded => count.max(1),
        Some(_) => sizes.of('e').max(1),
        None => 1,
    };
    call.expect_that(
        copies.is_multiple_of(parts),
        SORTED_INDICES,
        &format!("a multiple of {parts}"),
        copies,
    )?;
    let each = copies / parts;
    if probs.is_some() {
        call.expect_that(map.is_some(), ROUTING_MAP_OPTIONAL, "a map for the factors", "NULL")?;
        call.expect_shape(PERMUTE_PROBS, &[copies], "a factor per row")?;
    }
    let experts = if probs.is_some() { sizes.of('e') } else { 0 };
    let [tokens, sorted, out] = call.slots_of([PERMUTED_TOKENS, SORTED_INDICES, UNPERMUTED_TOKENS])?;
    let [out_index, ids] = call.slots_of([OUT_INDEX, PERMUTE_TOKEN_ID])?;
    let plan = CallPlan::new(move |views, _| {
        let given = views.read::<i64>(sorted);
        let used: Vec<i64> = given.iter().copied().filter(|&index| is_padded || index != -1).collect();
        expect_within("sortedIndices", &used, if is_padded { count } else { copies })?;
        let mut values = views.read::<f64>(tokens);
        let dtype = views.of(tokens).dtype();
        if let (Some(probs), Some(map)) = (probs, views.read_given::<i64>(map)) {
            let (_, found) = factors(views, &map, probs, experts, is_padded.then_some(each));
            if found.len() != copies {
                return Err(format!("routingMapOptional: expected {copies} ones, found {}", found.len()));
            }
            let rows = values.chunks_exact_mut(width.max(1)).zip(&found);
            rows.for_each(|(row, factor)| row.iter_mut().for_each(|x| *x = (*x * factor).rounded(dtype)));
            views.write_given(probs_out, &found);
        }
        // Row and token of each term of a sum.
        let mut terms: Vec<(i64, i64)> = if is_padded {
            given.iter().enumerate().map(|(row, &token)| (row as i64, token)).collect()
        } else {
            given.iter().enumerate().map(|(at, &row)| (row, (at / each) as i64)).collect()
        };
        terms.sort_by_key(|&(_, token)| token);
        let pairs =
            terms.iter().filter(|(row, _)| *row >= 0).map(|&(row, token)| [row as usize, token as usize]);
        views.write(out, &added(&values, width, count, pairs));
        views.write(out_index, &terms.iter().map(|(row, _)| *row).collect::<Vec<_>>());
        views.write(ids, &terms.iter().map(|(_, token)| *token).collect::<Vec<_>>());
        Ok(())
    })?;
    Ok(plan.leaving(probs_out.filter(|_| probs.is_none()).into_iter().collect()))
}

fn unpermute_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(UNPERMUTED_TOKENS_GRAD, &[PERMUTED_TOKENS_OPTIONAL, PERMUTED_TOKENS_GRAD_OUT])?;
    call.expect_type_of(PROBS_OPTIONAL, &[PROBS_GRAD_OUT_OPTIONAL])?;
    let sizes = call.sizes(&[
        UNPERMUTED_TOKENS_GRAD.of("nh"),
        OUT_INDEX.of("r"),
        PERMUTE_TOKEN_ID.of("r"),
        PERMUTED_TOKENS_GRAD_OUT.of("rh"),
        PERMUTED_TOKENS_OPTIONAL.of("rh"),
        ROUTING_MAP_OPTIONAL.of("ne"),
        PROBS_OPTIONAL.of("ne"),
        PROBS_GRAD_OUT_OPTIONAL.of("ne"),
    ])?;
    let [copies, width, count] = sizes.all(['r', 'h', 'n']);
    let is_padded = call.flag(DROP_AND_PAD)?;
    let (probs, probs_out) =
        (call.slot_if_given(PROBS_OPTIONAL)?, call.slot_if_given(PROBS_GRAD_OUT_OPTIONAL)?);
    let mut needed = None;
    if let Some(probs) = probs {
        let experts = sizes.of('e').max(1);
        call.expect_that(
            !is_padded || copies.is_multiple_of(experts),
            OUT_INDEX,
            &format!("a multiple of {experts}"),
            copies,
        )?;
        let [map, tokens, grad] =
            call.slots_of([ROUTING_MAP_OPTIONAL, PERMUTED_TOKENS_OPTIONAL, PROBS_GRAD_OUT_OPTIONAL])?;
        needed = Some((probs, map, tokens, grad, experts));
    }
    let [grad, rows, ids, out] =
        call.slots_of([UNPERMUTED_TOKENS_GRAD, OUT_INDEX, PERMUTE_TOKEN_ID, PERMUTED_TOKENS_GRAD_OUT])?;
    let plan = CallPlan::new(move |views, _| {
        let (given, ids) = (views.read::<i64>(rows), views.read::<i64>(ids));
        let ids = expect_within("permuteTokenId", &ids, count)?;
        let terms: Vec<(i64, usize)> = given.into_iter().zip(ids).filter(|(row, _)| *row != -1).collect();
        let rows: Vec<i64> = terms.iter().map(|(row, _)| *row).collect();
        let rows = expect_within("outIndex", &rows, copies)?;
        let grad = views.read::<f64>(grad);
        let pairs = rows.iter().zip(&terms).map(|(&row, &(_, token))| [token, row]);
        let mut grads = added(&grad, width, copies, pairs);
        if let Some((probs, map, tokens, probs_out, experts)) = needed {
            let (map, tokens) = (views.read::<i64>(map), views.read::<f64>(tokens));
            let (chosen, factors) =
                factors(views, &map, probs, experts, is_padded.then_some(copies / experts));
            if factors.len() != copies {
                return Err(format!("routingMapOptional: expected {copies} ones, found {}", factors.len()));
            }
            let mut slopes = vec![0f64; count * experts];
            for (row, chosen) in chosen.iter().enumerate() {
                let own = row * width..(row + 1) * width;
                let slope = grads[own.clone()].iter().zip(&tokens[own.clone()]).map(|(g, x)| g * x).sum();
                slopes[chosen.token * experts + chosen.expert] = slope;
                grads[own].iter_mut().for_each(|grad| *grad *= factors[row]);
            }
            views.write(probs_out, &slopes);
        }
        views.write(out, &grads);
        Ok(())
    })?;
    Ok(plan.leaving(probs_out.filter(|_| probs.is_none()).into_iter().collect()))
}
