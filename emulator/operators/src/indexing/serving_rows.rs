//! Steps of inference engines: filters of logits, positions of the next step, and rotations by
//! position.

use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, ints, output};
use crate::operator::sets::{FLOATING, INDEX64, INDEXES, WHOLE32};
use crate::operator::{CallPlan, Refusal};
use crate::reduction::order::compare;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnApplyTopKTopP",
        parameters: &[
            input(LOGITS, FLOATING, 2, 2),
            input(P_TENSOR, FLOATING, 1, 1).optional(),
            input(K_TENSOR, WHOLE32, 1, 1).optional(),
            output(OUT, FLOATING, 2, 2),
        ],
        limits: "logits and out [B, V], p and k [B], not both NULL; a logit below the k-th largest becomes -inf; then, from the \
                 smallest on, each logit up to which the softmax sums to at most 1 - p, but never the largest; k from 1 to V; p has \
                 the type of logits",
        source: "ops-nn index/apply_top_k_top_p_with_sorted/docs/aclnnApplyTopKTopP.md",
        plan: filter,
    },
    Operator {
        name: "aclnnAdvanceStep",
        parameters: &[
            in_place(INPUT_TOKENS, INDEX64, 1, 1),
            input(SAMPLED_TOKEN_IDS, INDEX64, 2, 2),
            in_place(INPUT_POSITIONS, INDEX64, 1, 1),
            in_place(SEQ_LENS, INDEX64, 1, 1),
            in_place(SLOT_MAPPING, INDEX64, 1, 1),
            input(BLOCK_TABLES, INDEX64, 2, 2),
        ],
        limits: "vectors [numSeqs], sampledTokenIds [numQueries, 1], blockTables [numSeqs, blocks]; each of the first numQueries \
                 sequences gets its token, grows by one, and the position and slot of its last token",
        source: "CANN 8.1 aclnn API reference, aclnnAdvanceStep",
        plan: advance,
    },
    Operator {
        name: "aclnnRopeWithSinCosCache",
        parameters: &[
            input(POSITIONS, INDEXES, 1, 2),
            input(QUERY_IN, FLOATING, 2, 2),
            input(KEY_IN, FLOATING, 2, 2),
            input(COS_SIN_CACHE, FLOATING, 2, 2),
            ints(MROPE_SECTION).optional(),
            output(QUERY_OUT, FLOATING, 2, 2),
            output(KEY_OUT, FLOATING, 2, 2),
        ],
        limits: "queryIn and keyIn [T, heads headSize], positions [T] or, with mropeSection of 3 numbers, [3, T]; cosSinCache \
                 [positions, R] with R / 2 cosines and R / 2 sines, R even and at most headSize; the first R elements of each \
                 head turn: halves (isNeoxStyle) or neighbours; one element type",
        source: "CANN 8.1 aclnn API reference, aclnnRopeWithSinCosCache",
        plan: rotate,
    },
];

fn filter(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(LOGITS, &[P_TENSOR, OUT])?;
    call.expect_elements(&[LOGITS])?;
    let sizes = call.sizes(&[LOGITS.of("bv"), P_TENSOR.of("b"), K_TENSOR.of("b"), OUT.of("bv")])?;
    let width = sizes.of('v');
    let ([logits, out], p, k) =
        (call.slots_of([LOGITS, OUT])?, call.slot_if_given(P_TENSOR)?, call.slot_if_given(K_TENSOR)?);
    call.expect_that(p.is_some() || k.is_some(), P_TENSOR, "p or k", "NULL for both")?;
    CallPlan::new(move |views, _| {
        let (p, k) = (views.read_given::<f64>(p), views.read_given::<i64>(k));
        let mut rows = views.read::<f64>(logits);
        for (at, row) in rows.chunks_exact_mut(width).enumerate() {
            if let Some(k) = &k {
                let kept = usize::try_from(k[at]).ok().filter(|kept| (1..=width).contains(kept));
                let kept = kept.ok_or_else(|| format!("k: expected 1 to {width}, found {}", k[at]))?;
                let mut sorted = row.to_vec();
                sorted.sort_by(|a, b| compare(*a, *b));
                let least = sorted[width - kept];
                row.iter_mut().filter(|x| **x < least).for_each(|x| *x = f64::NEG_INFINITY);
            }
            if let Some(p) = &p {
                drop_tail(row, p[at]);
            }
        }
        views.write(out, &rows);
        Ok(())
    })
}

/// Removes the least likely logits, up to a probability of `1 - p`.
fn drop_tail(row: &mut [f64], p: f64) {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|&a, &b| compare(row[a], row[b]));
    let Some((&last, rest)) = order.split_last() else { return };
    let most = row[last];
    let total = row.iter().map(|x| (x - most).exp()).sum::<f64>();
    let mut below = 0.0;
    for &at in rest {
        below += (row[at] - most).exp() / total;
        if below > 1.0 - p {
            break;
        }
        row[at] = f64::NEG_INFINITY;
    }
}

fn advance(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let sizes = call.sizes(&[
        INPUT_TOKENS.of("s"),
        SAMPLED_TOKEN_IDS.of("q1"),
        INPUT_POSITIONS.of("s"),
        SEQ_LENS.of("s"),
        SLOT_MAPPING.of("s"),
        BLOCK_TABLES.of("sb"),
    ])?;
    let [sequences, queries, blocks] = sizes.all(['s', 'q', 'b']);
    call.int_in(NUM_SEQS, sequences as i64..=sequences as i64)?;
    call.int_in(NUM_QUERIES, queries as i64..=queries as i64)?;
    call.expect_that(queries <= sequences, NUM_QUERIES, &format!("at most {sequences} (numSeqs)"), queries)?;
    let block = call.int_in(BLOCK_SIZE, 1..=i64::MAX)?;
    let [tokens, sampled, positions, lens, slots, tables] = call.slots_of([
        INPUT_TOKENS,
        SAMPLED_TOKEN_IDS,
        INPUT_POSITIONS,
        SEQ_LENS,
        SLOT_MAPPING,
        BLOCK_TABLES,
    ])?;
    CallPlan::new(move |views, _| {
        let (sampled, tables) = (views.read::<i64>(sampled), views.read::<i64>(tables));
        let [mut next, mut places, mut lengths, mut mapping] =
            [tokens, positions, lens, slots].map(|slot| views.read::<i64>(slot));
        for sequence in 0..queries {
            let place = lengths[sequence];
            let row = usize::try_from(place / block).ok().filter(|&row| place >= 0 && row < blocks);
            let row = row.ok_or_else(|| {
                format!(
                    "seqLens: expected 0 to {} for sequence {sequence}, found {place}",
                    blocks as i64 * block - 1
                )
            })?;
            (next[sequence], places[sequence], lengths[sequence]) = (sampled[sequence], place, place + 1);
            mapping[sequence] = tables[sequence * blocks + row] * block + place % block;
        }
        for (slot, values) in [(tokens, next), (positions, places), (lens, lengths), (slots, mapping)] {
            views.write(slot, &values);
        }
        Ok(())
    })
}

fn rotate(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(QUERY_IN, &[KEY_IN, COS_SIN_CACHE, QUERY_OUT, KEY_OUT])?;
    let sections: Vec<i64> = call.ints_if_given(MROPE_SECTION)?.unwrap_or_default().to_vec();
    let is_plain = sections.iter().all(|&section| section == 0);
    let positions = POSITIONS.of(if is_plain { "t" } else { "3t" });
    let shapes = [
        positions,
        QUERY_IN.of("tq"),
        KEY_IN.of("tk"),
        COS_SIN_CACHE.of("pr"),
        QUERY_OUT.of("tq"),
        KEY_OUT.of("tk"),
    ];
    let [tokens, queries, keys, places, turned] = call.sizes(&shapes)?.all(['t', 'q', 'k', 'p', 'r']);
    let size = call.int_in(HEAD_SIZE, 1..=i64::MAX)? as usize;
    for (name, width) in [(QUERY_IN, queries), (KEY_IN, keys)] {
        call.expect_that(width.is_multiple_of(size), name, &format!("a multiple of headSize {size}"), width)?;
    }
    let half = turned / 2;
    call.expect_that(
        turned.is_multiple_of(2) && turned <= size,
        COS_SIN_CACHE,
        &format!("an even last dim up to {size}"),
        turned,
    )?;
    let fits = is_plain
        || sections.len() == 3
            && sections.iter().all(|&part| part >= 0)
            && sections.iter().sum::<i64>() == half as i64;
    call.expect_that(fits, MROPE_SECTION, &format!("3 numbers with the sum {half}"), &sections)?;
    let is_neox = call.flag(IS_NEOX_STYLE)?;
    // Row of the positions that turns each pair.
    let source: Vec<usize> =
        sections.iter().enumerate().flat_map(|(row, &part)| vec![row; part as usize]).collect();
    let [positions, cache] = call.slots_of([POSITIONS, COS_SIN_CACHE])?;
    let tensors = [call.slots_of([QUERY_IN, QUERY_OUT])?, call.slots_of([KEY_IN, KEY_OUT])?];
    CallPlan::new(move |views, _| {
        let (at, table) = (views.read::<i64>(positions), views.read::<f64>(cache));
        if let Some(wrong) = at.iter().find(|&&place| place < 0 || place >= places as i64) {
            return Err(format!("positions: expected 0 to {}, found {wrong}", places as i64 - 1));
        }
        for [from, into] in tensors {
            let mut values = views.read::<f64>(from);
            let heads = views.of(from).dims()[1] / size;
            for (index, head) in values.chunks_exact_mut(size).enumerate() {
                let token = index / heads;
                for pair in 0..half {
                    let row = at[source.get(pair).map_or(0, |row| row * tokens) + token] as usize * turned;
                    let (cos, sin) = (table[row + pair], table[row + half + pair]);
                    let [first, second] =
                        if is_neox { [pair, half + pair] } else { [2 * pair, 2 * pair + 1] };
                    let (a, b) = (head[first], head[second]);
                    (head[first], head[second]) = (a * cos - b * sin, b * cos + a * sin);
                }
            }
            views.write(into, &values);
        }
        Ok(())
    })
}
