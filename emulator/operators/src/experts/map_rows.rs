//! Permutation of tokens by a map of tokens and experts, as Megatron has it.
//!
//! Without padding, each token has the same number of experts, and a map that differs fails the
//! stream. With padding, each expert takes the first tokens of its column, up to its capacity, and
//! then the first ones that are not its own.

use std::iter::repeat;

use crate::dtype::AclType::{self, BF16, Bool, F32, I8};
use crate::lane::Lane;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, ints, output};
use crate::operator::sets::{FLOATING, WHOLE32};
use crate::operator::{CallPlan, Refusal};

const MAPS: &[AclType] = &[I8, Bool];
/// Most experts of a token without padding.
const CHOICES: usize = 512;

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
                 numOutTokens / E tokens per expert, sortedIndicesOut the token of each row; numOutTokens up to N E; permuteProbsOutOptional [copies]; probs of the type of tokens, or FLOAT \
                 with BFLOAT16",
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
                 [tokensNum, numExperts], with permutedProbsOutputGradOptional and, without dropAndPad, routingMapOptional; probs of the type \
                 of tokens, or FLOAT with BFLOAT16; without dropAndPad -1 is left out",
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
                 permuteProbs of probsOptional [N, E], of the type of tokens or FLOAT with BFLOAT16; paddedMode false: permuteProbs has K factors \
                 for each token by routingMapOptional, 0 for those it lacks, -1 is left out, outIndex and permuteTokenId stay as they are; \
                 paddedMode true: row i of an expert has the factor of token sortedIndices[i], and products with factors of one type \
                 are rounded, outIndex is the row of each term, permuteTokenId its token, by token; restoreShapeOptional NULL or [N, H]",
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
        limits: "gradients of aclnnMoeTokenUnpermuteWithRoutingMap; dropAndPad false: outIndex is its sortedIndices, permuteTokenId is not read; \
                 dropAndPad true: both are its outputs, restoreShapeOptional NULL or [N, H]; with probsOptional [N, E] also \
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

/// Factors and `other` have the type of the tokens, or FLOAT with BFLOAT16.
fn expect_factors(
    call: &OperatorCall,
    tokens: Name<CheckedTensor>,
    factors: Name<CheckedTensor>,
    other: Name<CheckedTensor>,
) -> Result<(), Refusal> {
    let Some(found) = call.tensor_if_given(factors)? else { return Ok(()) };
    let of = call.tensor(tokens)?.dtype;
    let is_known = found.dtype == of || of == BF16 && found.dtype == F32;
    call.expect_that(is_known, factors, &format!("{of}, or FLOAT with BFLOAT16"), found.dtype)?;
    call.expect_type_of(factors, &[other])
}

fn permute(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(TOKENS, &[PERMUTE_TOKENS_OUT])?;
    expect_factors(call, TOKENS, PROBS_OPTIONAL, PERMUTE_PROBS_OUT_OPTIONAL)?;
    let sizes = call.sizes(&[TOKENS.of("nh"), ROUTING_MAP.of("ne"), PROBS_OPTIONAL.of("ne")])?;
    call.expect_elements(&[TOKENS, ROUTING_MAP])?;
    let [count, width, experts] = sizes.all(['n', 'h', 'e']);
    let all = count.saturating_mul(experts) as i64;
    let asked = call.int_in(NUM_OUT_TOKENS, 0..=all)? as usize;
    let is_padded = call.flag(DROP_AND_PAD)?;
    let each = asked / if is_padded { experts } else { count };
    let most = if is_padded { count } else { CHOICES };
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
    call.expect_type_of(PERMUTED_TOKEN_OUTPUT_GRAD, &[TOKENS_GRAD_OUT])?;
    let probs_grad = PERMUTED_PROBS_OUTPUT_GRAD_OPTIONAL;
    expect_factors(call, PERMUTED_TOKEN_OUTPUT_GRAD, probs_grad, PROBS_GRAD_OUT_OPTIONAL)?;
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
        let sorted = views.read::<i64>(sorted);
        // Row and token of each term.
        let pairs: Vec<[usize; 2]> = if is_padded {
            let tokens = expect_within("sortedIndices", &sorted, count)?;
            tokens.into_iter().enumerate().map(|(row, token)| [row, token]).collect()
        } else {
            let used: Vec<usize> = (0..copies).filter(|&at| sorted[at] != -1).collect();
            let rows: Vec<i64> = used.iter().map(|&at| sorted[at]).collect();
            let rows = expect_within("sortedIndices", &rows, copies)?;
            rows.into_iter().zip(used).map(|(row, at)| [row, at / each]).collect()
        };
        views.write(out, &added(&views.read::<f64>(grad), width, count, pairs.iter().copied()));
        if let Some(probs) = views.read_given::<f64>(probs) {
            let rows = match views.read_given::<i64>(map) {
                Some(map) if !is_padded => chosen(&map, experts, None),
                _ => pairs.iter().map(|&[row, token]| Chosen { token, expert: row / each }).collect(),
            };
            if rows.len() > copies {
                return Err(format!(
                    "routingMapOptional: expected up to {copies} ones, found {}",
                    rows.len()
                ));
            }
            let mut grads = vec![0f64; count * experts];
            rows.iter().zip(probs).for_each(|(row, grad)| grads[row.token * experts + row.expert] = grad);
            views.write_given(probs_out, &grads);
        }
        Ok(())
    })?;
    Ok(plan.leaving(probs_out.filter(|_| probs.is_none()).into_iter().collect()))
}

/// A row of permuted tokens, the token it belongs to, and the entry of its factor.
#[derive(Clone, Copy, Debug)]
struct Term {
    row: usize,
    token: usize,
    entry: Option<usize>,
}

/// Returns the entries of the ones of each token, and then none up to its number of choices.
fn entries_by_token(map: &[i64], experts: usize, choices: usize) -> Result<Vec<Option<usize>>, String> {
    let mut entries = Vec::new();
    for (token, row) in map.chunks_exact(experts).enumerate() {
        let own: Vec<usize> = (0..experts).filter(|&expert| row[expert] != 0).collect();
        if own.len() > choices {
            return Err(format!(
                "routingMapOptional: expected up to {choices} experts for token {token}, found {}",
                own.len()
            ));
        }
        let known = own.into_iter().map(|expert| Some(token * experts + expert));
        entries.extend(known.chain(repeat(None)).take(choices));
    }
    Ok(entries)
}

/// Sizes of a call that adds permuted rows, or of its gradient.
#[derive(Clone, Copy, Debug)]
struct Way {
    copies: usize,
    width: usize,
    count: usize,
    /// Experts of the factors.
    experts: Option<usize>,
    is_padded: bool,
    /// Rows of an expert with padding, else choices of a token.
    each: usize,
}

impl Way {
    /// Checks the limits that the call and its gradient share.
    fn of(
        call: &OperatorCall,
        indices: Name<CheckedTensor>,
        sums: Name<CheckedTensor>,
        is_padded: bool,
    ) -> Result<Self, Refusal> {
        call.expect_elements(&[PROBS_OPTIONAL])?;
        let copies = call.tensor(indices)?.len();
        let dims = &call.tensor(sums)?.dims;
        let (count, width) = (dims[0], dims[1]);
        let experts = call.tensor_if_given(PROBS_OPTIONAL)?.map(|probs| probs.dims[probs.rank() - 1]);
        let parts = if is_padded { experts.unwrap_or(1) } else { count.max(1) };
        let divides = copies.is_multiple_of(parts);
        call.expect_that(divides, indices, &format!("a multiple of {parts}"), copies)?;
        let each = copies / parts;
        let most = match experts {
            _ if !is_padded => CHOICES,
            Some(_) => count,
            None => usize::MAX,
        };
        call.expect_that(each <= most, indices, &format!("at most {most} times {parts}"), copies)?;
        if let Some(found) = call.ints_if_given(RESTORE_SHAPE_OPTIONAL)? {
            let is_same = found == [count as i64, width as i64];
            call.expect_that(is_same, RESTORE_SHAPE_OPTIONAL, &format!("{dims:?}"), found)?;
        }
        Ok(Self { copies, width, count, experts, is_padded, each })
    }

    /// Returns terms without padding. `rows` are the rows of the choices by token, -1 for none.
    fn by_token(&self, name: &str, rows: &[i64], entries: &[Option<usize>]) -> Result<Vec<Term>, String> {
        let used: Vec<usize> = (0..self.copies).filter(|&at| rows[at] != -1).collect();
        let found: Vec<i64> = used.iter().map(|&at| rows[at]).collect();
        let found = expect_within(name, &found, self.copies)?;
        let term = |(&at, row): (&usize, usize)| Term {
            row,
            token: at / self.each,
            entry: entries.get(at).copied().flatten(),
        };
        Ok(used.iter().zip(found).map(term).collect())
    }

    /// Returns the term of a row with padding.
    fn padded(&self, row: usize, token: usize) -> Term {
        Term { row, token, entry: self.experts.map(|experts| token * experts + row / self.each) }
    }
}

fn unpermute(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(PERMUTED_TOKENS, &[UNPERMUTED_TOKENS])?;
    expect_factors(call, PERMUTED_TOKENS, PROBS_OPTIONAL, PERMUTE_PROBS)?;
    call.sizes(&[
        PERMUTED_TOKENS.of("rh"),
        SORTED_INDICES.of("r"),
        UNPERMUTED_TOKENS.of("nh"),
        ROUTING_MAP_OPTIONAL.of("ne"),
        PROBS_OPTIONAL.of("ne"),
        OUT_INDEX.of("r"),
        PERMUTE_TOKEN_ID.of("r"),
    ])?;
    let way = Way::of(call, SORTED_INDICES, UNPERMUTED_TOKENS, call.flag(PADDED_MODE)?)?;
    let (probs, map) = (call.slot_if_given(PROBS_OPTIONAL)?, call.slot_if_given(ROUTING_MAP_OPTIONAL)?);
    let probs_out = call.slot_if_given(PERMUTE_PROBS)?;
    if probs.is_some() {
        let is_known = way.is_padded || map.is_some();
        call.expect_that(is_known, ROUTING_MAP_OPTIONAL, "a map for the factors", "NULL")?;
        call.expect_shape(PERMUTE_PROBS, &[way.copies], "a factor per row")?;
    }
    let [tokens, sorted, out] = call.slots_of([PERMUTED_TOKENS, SORTED_INDICES, UNPERMUTED_TOKENS])?;
    let [out_index, ids] = call.slots_of([OUT_INDEX, PERMUTE_TOKEN_ID])?;
    let plan = CallPlan::new(move |views, _| {
        let sorted = views.read::<i64>(sorted);
        let probs = views.read_given::<f64>(probs).zip(probs);
        let factor = |entry: Option<usize>| match &probs {
            Some((probs, _)) => entry.map_or(0.0, |entry| probs[entry]),
            None => 1.0,
        };
        let dtype = views.of(tokens).dtype();
        let is_rounded =
            probs.as_ref().is_some_and(|(_, slot)| way.is_padded && views.of(*slot).dtype() == dtype);
        let (terms, entries) = if way.is_padded {
            let tokens = expect_within("sortedIndices", &sorted, way.count)?;
            let terms = tokens.into_iter().enumerate().map(|(row, token)| way.padded(row, token));
            let mut terms: Vec<Term> = terms.collect();
            let entries = terms.iter().map(|term| term.entry).collect();
            terms.sort_by_key(|term| term.token);
            views.write(out_index, &terms.iter().map(|term| term.row as i64).collect::<Vec<_>>());
            views.write(ids, &terms.iter().map(|term| term.token as i64).collect::<Vec<_>>());
            (terms, entries)
        } else {
            let entries = match (way.experts, views.read_given::<i64>(map)) {
                (Some(experts), Some(map)) => entries_by_token(&map, experts, way.each)?,
                _ => Vec::new(),
            };
            (way.by_token("sortedIndices", &sorted, &entries)?, entries)
        };
        let (values, width) = (views.read::<f64>(tokens), way.width);
        let mut sums = vec![0f64; way.count * width];
        for term in terms {
            let (factor, row) = (factor(term.entry), &values[term.row * width..(term.row + 1) * width]);
            let own = &mut sums[term.token * width..(term.token + 1) * width];
            for (sum, x) in own.iter_mut().zip(row) {
                *sum += if is_rounded { (x * factor).rounded(dtype) } else { x * factor };
            }
        }
        views.write(out, &sums);
        if probs.is_some() {
            views.write_given(probs_out, &entries.into_iter().map(factor).collect::<Vec<_>>());
        }
        Ok(())
    })?;
    let mut unwritten: Vec<_> = probs_out.filter(|_| probs.is_none()).into_iter().collect();
    if !way.is_padded {
        unwritten.extend([out_index, ids]);
    }
    Ok(plan.leaving(unwritten))
}

fn unpermute_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(UNPERMUTED_TOKENS_GRAD, &[PERMUTED_TOKENS_OPTIONAL, PERMUTED_TOKENS_GRAD_OUT])?;
    expect_factors(call, UNPERMUTED_TOKENS_GRAD, PROBS_OPTIONAL, PROBS_GRAD_OUT_OPTIONAL)?;
    call.sizes(&[
        UNPERMUTED_TOKENS_GRAD.of("nh"),
        OUT_INDEX.of("r"),
        PERMUTE_TOKEN_ID.of("r"),
        PERMUTED_TOKENS_GRAD_OUT.of("rh"),
        PERMUTED_TOKENS_OPTIONAL.of("rh"),
        ROUTING_MAP_OPTIONAL.of("ne"),
        PROBS_OPTIONAL.of("ne"),
        PROBS_GRAD_OUT_OPTIONAL.of("ne"),
    ])?;
    let way = Way::of(call, OUT_INDEX, UNPERMUTED_TOKENS_GRAD, call.flag(DROP_AND_PAD)?)?;
    let (probs, probs_out) =
        (call.slot_if_given(PROBS_OPTIONAL)?, call.slot_if_given(PROBS_GRAD_OUT_OPTIONAL)?);
    let needed = match (probs, way.experts) {
        (Some(probs), Some(experts)) => {
            let fits = way.is_padded || way.each <= experts;
            call.expect_that(fits, OUT_INDEX, &format!("at most {experts} rows per token"), way.each)?;
            let [map, tokens, grad] =
                call.slots_of([ROUTING_MAP_OPTIONAL, PERMUTED_TOKENS_OPTIONAL, PROBS_GRAD_OUT_OPTIONAL])?;
            Some((probs, map, tokens, grad, experts))
        }
        _ => None,
    };
    let [grad, rows, ids, out] =
        call.slots_of([UNPERMUTED_TOKENS_GRAD, OUT_INDEX, PERMUTE_TOKEN_ID, PERMUTED_TOKENS_GRAD_OUT])?;
    let plan = CallPlan::new(move |views, _| {
        let given = views.read::<i64>(rows);
        let terms: Vec<Term> = if way.is_padded {
            let ids = expect_within("permuteTokenId", &views.read::<i64>(ids), way.count)?;
            let rows = expect_within("outIndex", &given, way.copies)?;
            rows.into_iter().zip(ids).map(|(row, token)| way.padded(row, token)).collect()
        } else {
            let entries = match needed {
                Some((_, map, _, _, experts)) => {
                    entries_by_token(&views.read::<i64>(map), experts, way.each)?
                }
                None => Vec::new(),
            };
            way.by_token("outIndex", &given, &entries)?
        };
        let (grad, width) = (views.read::<f64>(grad), way.width);
        let of = |at: usize| at * width..(at + 1) * width;
        let mut grads = vec![0f64; way.copies * width];
        if let Some((probs, _, tokens, probs_out, experts)) = needed {
            let (probs, tokens) = (views.read::<f64>(probs), views.read::<f64>(tokens));
            let mut slopes = vec![0f64; way.count * experts];
            for term in terms {
                let up = &grad[of(term.token)];
                let factor = term.entry.map_or(0.0, |entry| probs[entry]);
                grads[of(term.row)].iter_mut().zip(up).for_each(|(grad, up)| *grad = up * factor);
                if let Some(entry) = term.entry {
                    slopes[entry] = up.iter().zip(&tokens[of(term.row)]).map(|(up, x)| up * x).sum();
                }
            }
            views.write(probs_out, &slopes);
        } else {
            terms.iter().for_each(|term| grads[of(term.row)].copy_from_slice(&grad[of(term.token)]));
        }
        views.write(out, &grads);
        Ok(())
    })?;
    Ok(plan.leaving(probs_out.filter(|_| probs.is_none()).into_iter().collect()))
}
