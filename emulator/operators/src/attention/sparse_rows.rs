//! Sparse attention: the choice of keys, and attention over the chosen keys.
//!
//! Computed in f64. Lengths, block tables and indices are contents of tensors, so wrong ones fail
//! the stream.

use std::ops::Range;

use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{FLOATING, HALVES, SINGLE, WHOLE32};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};
use crate::reduction::order::compare;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnLightningIndexer",
        parameters: &[
            input(QUERY, HALVES, 3, 4),
            input(KEY, HALVES, 3, 4),
            input(WEIGHTS, FLOATING, 2, 3),
            input(ACTUAL_SEQ_LENGTHS_QUERY_OPTIONAL, WHOLE32, 1, 1).optional(),
            input(ACTUAL_SEQ_LENGTHS_KEY_OPTIONAL, WHOLE32, 1, 1).optional(),
            input(BLOCK_TABLE_OPTIONAL, WHOLE32, 2, 2).optional(),
            output(SPARSE_INDICES_OUT, WHOLE32, 3, 4),
            output(SPARSE_VALUES_OUT, HALVES, 1, 4).optional(),
        ],
        limits: "layoutQuery BSND or TND, layoutKey the same or PA_BSND (blocks of a multiple of 16 keys up to 1024, and blockTable), up to 64 heads of query, 1 \
                 of key, D 128; weights [.., N] FLOAT or of the type of query; lengths count up to each sequence in TND, else they are \
                 its own; sparseIndicesOut [.., 1, sparseCount]: the keys of the largest sums of weights times positive products, \
                 then -1; sparseCount 1 to 2048 or 3072 to 8192 by 1024; sparseMode 0 or 3; preTokens and nextTokens 2^63 - 1; \
                 returnValues not for PA_BSND, without it sparseValuesOut is NULL or of any shape and stays as it is",
        source: "ops-transformer attention/lightning_indexer/docs/aclnnLightningIndexer.md",
        plan: indexer,
    },
    Operator {
        name: "aclnnSparseFlashAttention",
        parameters: &[
            input(QUERY, HALVES, 3, 4),
            input(KEY, HALVES, 3, 4),
            input(VALUE, HALVES, 3, 4),
            input(SPARSE_INDICES, WHOLE32, 3, 4),
            input(BLOCK_TABLE_OPTIONAL, WHOLE32, 2, 2).optional(),
            input(ACTUAL_SEQ_LENGTHS_QUERY_OPTIONAL, WHOLE32, 1, 1).optional(),
            input(ACTUAL_SEQ_LENGTHS_KV_OPTIONAL_TENSOR, WHOLE32, 1, 1).optional(),
            input(QUERY_ROPE_OPTIONAL, HALVES, 3, 4),
            input(KEY_ROPE_OPTIONAL, HALVES, 3, 4),
            output(ATTENTION_OUT, HALVES, 3, 4),
            output(SOFTMAX_MAX, SINGLE, 1, 4).optional(),
            output(SOFTMAX_SUM, SINGLE, 1, 4).optional(),
        ],
        limits: "layouts and lengths as aclnnLightningIndexer; heads of query a power of 2 up to 128, 1 of key, 512 wide, and 64 in the \
                 rotated parts; sparseIndices [.., 1, n] name blocks of sparseBlockSize keys, a power of 2 up to 128, up to the first \
                 -1; sparseMode 0 or 3, attentionMode 2; statistics [B, 1, S, N] or [1, T, N] with returnSoftmaxLse, which excludes PA_BSND",
        source: "ops-transformer attention/sparse_flash_attention/docs/aclnnSparseFlashAttention.md",
        plan: attention,
    },
];

/// Order of the tokens of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenLayout {
    /// Sequences of one length.
    Padded { len: usize },
    /// One sequence after the other.
    Packed,
    /// Blocks of a table.
    Paged { block: usize },
}

/// Tensors that say which tokens a call reads.
#[derive(Clone, Copy, Debug)]
struct Layouts {
    query: TokenLayout,
    key: TokenLayout,
    batch: usize,
    tokens: usize,
    keys: usize,
    query_lengths: Option<ViewIndex>,
    key_lengths: Option<ViewIndex>,
    table: Option<ViewIndex>,
    is_causal: bool,
}

/// Rows of the queries and of the keys of a sequence.
#[derive(Clone, Debug)]
struct Sequence {
    queries: Range<usize>,
    keys: Vec<usize>,
}

impl Layouts {
    fn of(
        call: &OperatorCall,
        key_layout: Name<str>,
        key_lengths: Name<CheckedTensor>,
    ) -> Result<Self, Refusal> {
        let (query_text, key_text) =
            (call.text_if_given(LAYOUT_QUERY_OPTIONAL)?.unwrap_or("BSND"), call.text_if_given(key_layout)?);
        let (query, key) = (&call.tensor(QUERY)?.dims, &call.tensor(KEY)?.dims);
        call.expect_elements(&[QUERY, KEY])?;
        let known = |text: &str, dims: &[usize]| match (text, dims) {
            ("BSND", &[batch, len, ..]) if dims.len() == 4 => {
                Some((TokenLayout::Padded { len }, batch * len))
            }
            ("TND", &[tokens, ..]) if dims.len() == 3 => Some((TokenLayout::Packed, tokens)),
            ("PA_BSND", &[blocks, block, ..]) if dims.len() == 4 => {
                Some((TokenLayout::Paged { block }, blocks * block))
            }
            _ => None,
        };
        let (query_layout, tokens) = known(query_text, query)
            .filter(|(layout, _)| !matches!(layout, TokenLayout::Paged { .. }))
            .ok_or_else(|| {
                call.refuse(QUERY, format!("expected BSND or TND, found {query_text}, {query:?}"))
            })?;
        let key_text = key_text.unwrap_or("BSND");
        let (layout, keys) = known(key_text, key).ok_or_else(|| {
            call.refuse(KEY, format!("expected BSND, TND or PA_BSND, found {key_text}, {key:?}"))
        })?;
        let is_paged = matches!(layout, TokenLayout::Paged { .. });
        let is_known = is_paged || key_text == query_text;
        call.expect_that(is_known, key_layout, &format!("{query_text} or PA_BSND"), key_text)?;
        let of_query = call.tensor_if_given(ACTUAL_SEQ_LENGTHS_QUERY_OPTIONAL)?;
        let batch = match (query_layout, of_query) {
            (TokenLayout::Packed, Some(ends)) => ends.len(),
            (TokenLayout::Packed, None) => {
                return Err(call.refuse(ACTUAL_SEQ_LENGTHS_QUERY_OPTIONAL, "is NULL, but TND needs it"));
            }
            _ => query[0],
        };
        for name in [ACTUAL_SEQ_LENGTHS_QUERY_OPTIONAL, key_lengths] {
            if call.tensor_if_given(name)?.is_some() {
                call.expect_shape(name, &[batch], "a number per sequence")?;
            }
        }
        let table = call.tensor_if_given(BLOCK_TABLE_OPTIONAL)?;
        call.expect_that(
            is_paged || table.is_none(),
            BLOCK_TABLE_OPTIONAL,
            "NULL without PA_BSND",
            "a tensor",
        )?;
        match layout {
            TokenLayout::Padded { .. } => {
                call.expect_that(key[0] == batch, KEY, &format!("{batch} sequences"), key[0])?;
            }
            _ if call.tensor_if_given(key_lengths)?.is_none() => {
                return Err(call.refuse(key_lengths, format!("is NULL, but {key_text} needs it")));
            }
            TokenLayout::Packed => {}
            TokenLayout::Paged { block } => {
                let fits = block.is_multiple_of(16) && block <= 1024;
                call.expect_that(fits, KEY, "blocks of a multiple of 16 up to 1024", block)?;
                let rows = table.map_or(0, |table| table.dims[0]);
                call.expect_that(rows == batch, BLOCK_TABLE_OPTIONAL, &format!("{batch} rows"), rows)?;
            }
        }
        let mode = call.int(SPARSE_MODE)?;
        call.expect_that([0, 3].contains(&mode), SPARSE_MODE, "0 or 3", mode)?;
        for name in [PRE_TOKENS, NEXT_TOKENS] {
            call.int_in(name, i64::MAX..=i64::MAX)?;
        }
        Ok(Self {
            query: query_layout,
            key: layout,
            batch,
            tokens,
            keys,
            query_lengths: of_query.map(|lengths| lengths.slot),
            key_lengths: call.slot_if_given(key_lengths)?,
            table: table.map(|table| table.slot),
            is_causal: mode == 3,
        })
    }

    /// Returns the positions of each sequence, for lengths or ends.
    fn ranges(
        &self,
        name: &str,
        layout: TokenLayout,
        found: Option<Vec<i64>>,
        total: usize,
    ) -> Result<Vec<Range<usize>>, String> {
        let wrong =
            |found: &[i64]| format!("{name}: expected lengths within {total} tokens, found {found:?}");
        match (layout, found) {
            (TokenLayout::Padded { len }, None) => {
                Ok((0..self.batch).map(|at| at * len..(at + 1) * len).collect())
            }
            (TokenLayout::Padded { len }, Some(found)) => {
                let fits = found.iter().all(|&own| 0 <= own && own <= len as i64);
                let range = |(at, &own): (usize, &i64)| at * len..at * len + own as usize;
                fits.then(|| found.iter().enumerate().map(range).collect()).ok_or_else(|| wrong(&found))
            }
            (TokenLayout::Packed, found) => {
                let found = found.unwrap_or_default();
                let fits = found.is_sorted() && found.iter().all(|&end| 0 <= end && end <= total as i64);
                let starts = [0].into_iter().chain(found.iter().copied());
                let ranges = starts.zip(&found).map(|(start, &end)| start as usize..end as usize).collect();
                if fits { Ok(ranges) } else { Err(wrong(&found)) }
            }
            (TokenLayout::Paged { .. }, found) => {
                Ok(found.unwrap_or_default().into_iter().map(|own| 0..own.max(0) as usize).collect())
            }
        }
    }

    fn sequences(&self, views: &StridedViews<'_>) -> Result<Vec<Sequence>, String> {
        let [of_queries, of_keys] =
            [self.query_lengths, self.key_lengths].map(|slot| views.read_given::<i64>(slot));
        let queries = self.ranges("actualSeqLengthsQuery", self.query, of_queries, self.tokens)?;
        let keys = self.ranges("actualSeqLengthsKey", self.key, of_keys, self.keys)?;
        let table = views.read_given::<i64>(self.table).unwrap_or_default();
        let columns = table.len() / self.batch.max(1);
        let row = |sequence: usize, position: usize| match self.key {
            TokenLayout::Paged { block } => {
                let entry = position / block;
                let found = (entry < columns).then(|| table[sequence * columns + entry]);
                let row = found.and_then(|found| usize::try_from(found).ok());
                let row = row.map(|row| row * block + position % block).filter(|&row| row < self.keys);
                row.ok_or_else(|| format!("blockTable: no block for key {position} of sequence {sequence}"))
            }
            _ => Ok(position),
        };
        let sequence = |(at, (queries, keys)): (usize, (Range<usize>, Range<usize>))| {
            let keys = keys.map(|position| row(at, position)).collect::<Result<Vec<_>, String>>()?;
            Ok(Sequence { queries, keys })
        };
        queries.into_iter().zip(keys).enumerate().map(sequence).collect()
    }

    /// Returns how many keys a query of a sequence sees.
    fn seen(&self, sequence: &Sequence, place: usize) -> usize {
        let (rows, keys) = (sequence.queries.len(), sequence.keys.len());
        if self.is_causal { (keys + place + 1).saturating_sub(rows) } else { keys }
    }

    /// Returns the dims of a result with `rest` after the dims of tokens.
    fn with(&self, call: &OperatorCall, rest: &[usize]) -> Result<Vec<usize>, Refusal> {
        let dims = &call.tensor(QUERY)?.dims;
        Ok([&dims[..dims.len() - 2], rest].concat())
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn indexer(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(QUERY, &[KEY, SPARSE_VALUES_OUT])?;
    let layouts = Layouts::of(call, LAYOUT_KEY_OPTIONAL, ACTUAL_SEQ_LENGTHS_KEY_OPTIONAL)?;
    let (query, key) = (call.tensor(QUERY)?, call.tensor(KEY)?);
    let (heads, depth) = (query.dims[query.rank() - 2], query.dims[query.rank() - 1]);
    call.expect_that(heads <= 64 && depth == 128, QUERY, "up to 64 heads of 128", &query.dims)?;
    call.expect_that(key.dims[key.rank() - 2..] == [1, 128], KEY, "one head of 128", &key.dims)?;
    let weights = call.tensor(WEIGHTS)?;
    let is_known = weights.dtype == crate::dtype::AclType::F32 || weights.dtype == query.dtype;
    call.expect_that(is_known, WEIGHTS, "FLOAT or the type of query", weights.dtype)?;
    call.expect_shape(WEIGHTS, &layouts.with(call, &[heads])?, "query without D")?;
    let count = call.int(SPARSE_COUNT)?;
    let fits = (1..=2048).contains(&count) || (3072..=8192).contains(&count) && count % 1024 == 0;
    call.expect_that(fits, SPARSE_COUNT, "1 to 2048, or 3072 to 8192 by 1024", count)?;
    let count = count as usize;
    let shape = layouts.with(call, &[1, count])?;
    call.expect_shape(SPARSE_INDICES_OUT, &shape, "a row of sparseCount per token")?;
    let values_out = call.slot_if_given(SPARSE_VALUES_OUT)?;
    let is_kept = call.flag(RETURN_VALUES)?;
    if is_kept {
        let is_paged = matches!(layouts.key, TokenLayout::Paged { .. });
        call.expect_that(!is_paged, RETURN_VALUES, "false for PA_BSND", true)?;
        call.expect_shape(SPARSE_VALUES_OUT, &shape, "of sparseIndicesOut")?;
    }
    let [query, key, weights, out] = call.slots_of([QUERY, KEY, WEIGHTS, SPARSE_INDICES_OUT])?;
    let plan = CallPlan::new(move |views, _| {
        let [query, key, weights] = [query, key, weights].map(|slot| views.read::<f64>(slot));
        let mut chosen = vec![-1i64; layouts.tokens * count];
        let mut values = vec![f64::NEG_INFINITY; layouts.tokens * count];
        for sequence in layouts.sequences(views)? {
            for (place, token) in sequence.queries.clone().enumerate() {
                let score = |&row: &usize| {
                    let own = &key[row * depth..(row + 1) * depth];
                    let head = |head: usize| {
                        let at = token * heads + head;
                        weights[at] * dot(&query[at * depth..(at + 1) * depth], own).max(0.0)
                    };
                    (0..heads).map(head).sum::<f64>()
                };
                let scores: Vec<f64> =
                    sequence.keys[..layouts.seen(&sequence, place)].iter().map(score).collect();
                let mut order: Vec<usize> = (0..scores.len()).collect();
                order.sort_by(|&a, &b| compare(scores[b], scores[a]));
                for (at, key) in order.into_iter().take(count).enumerate() {
                    chosen[token * count + at] = key as i64;
                    values[token * count + at] = scores[key];
                }
            }
        }
        views.write(out, &chosen);
        views.write_given(values_out.filter(|_| is_kept), &values);
        Ok(())
    })?;
    Ok(plan.leaving(values_out.filter(|_| !is_kept).into_iter().collect()))
}

/// Returns the slots of the statistics, if they are asked for.
fn statistics_of(call: &OperatorCall, layouts: &Layouts) -> Result<Vec<ViewIndex>, Refusal> {
    if !call.flag(RETURN_SOFTMAX_LSE)? {
        return Ok(Vec::new());
    }
    let is_paged = matches!(layouts.key, TokenLayout::Paged { .. });
    call.expect_that(!is_paged, RETURN_SOFTMAX_LSE, "false for PA_BSND", true)?;
    let query = call.tensor(QUERY)?;
    let heads = query.dims[query.rank() - 2];
    let shape = match query.dims[..] {
        [batch, len, ..] if query.rank() == 4 => vec![batch, 1, len, heads],
        _ => vec![1, layouts.tokens, heads],
    };
    for name in [SOFTMAX_MAX, SOFTMAX_SUM] {
        call.expect_shape(name, &shape, "a number per token and head")?;
    }
    Ok(vec![call.slot(SOFTMAX_MAX)?, call.slot(SOFTMAX_SUM)?])
}

fn attention(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    const WIDE: usize = 512;
    const TURNED: usize = 64;
    let same = [KEY, VALUE, QUERY_ROPE_OPTIONAL, KEY_ROPE_OPTIONAL, ATTENTION_OUT];
    call.expect_type_of(QUERY, &same)?;
    let layouts = Layouts::of(call, LAYOUT_KV_OPTIONAL, ACTUAL_SEQ_LENGTHS_KV_OPTIONAL_TENSOR)?;
    let (query, key) = (call.tensor(QUERY)?, call.tensor(KEY)?);
    let heads = query.dims[query.rank() - 2];
    let fits = heads.is_power_of_two() && heads <= 128 && query.dims[query.rank() - 1] == WIDE;
    call.expect_that(fits, QUERY, "a power of 2 up to 128 heads of 512", &query.dims)?;
    call.expect_that(key.dims[key.rank() - 2..] == [1, WIDE], KEY, "one head of 512", &key.dims)?;
    call.expect_shape(VALUE, &key.dims, "of key")?;
    call.expect_shape(QUERY_ROPE_OPTIONAL, &layouts.with(call, &[heads, TURNED])?, "query with 64")?;
    let turned = [&key.dims[..key.rank() - 1], &[TURNED]].concat();
    call.expect_shape(KEY_ROPE_OPTIONAL, &turned, "key with 64")?;
    call.expect_shape(ATTENTION_OUT, &query.dims, "of query")?;
    let indices = call.tensor(SPARSE_INDICES)?;
    let columns = indices.dims[indices.rank() - 1];
    call.expect_shape(SPARSE_INDICES, &layouts.with(call, &[1, columns])?, "a row per token")?;
    call.int_in(ATTENTION_MODE, 2..=2)?;
    let size = call.int_in(SPARSE_BLOCK_SIZE, 1..=128)? as usize;
    let divides = match layouts.key {
        TokenLayout::Paged { block } => block.is_multiple_of(size),
        _ => true,
    };
    call.expect_that(
        size.is_power_of_two() && divides,
        SPARSE_BLOCK_SIZE,
        "a power of 2 that divides blocks",
        size,
    )?;
    let kept = statistics_of(call, &layouts)?;
    let unused = [call.slot_if_given(SOFTMAX_MAX)?, call.slot_if_given(SOFTMAX_SUM)?];
    let is_kept = !kept.is_empty();
    let scale = call.float(SCALE_VALUE)?;
    let [query, key, value, indices, out] =
        call.slots_of([QUERY, KEY, VALUE, SPARSE_INDICES, ATTENTION_OUT])?;
    let [query_turned, key_turned] = call.slots_of([QUERY_ROPE_OPTIONAL, KEY_ROPE_OPTIONAL])?;
    let plan = CallPlan::new(move |views, _| {
        let [query, key, value, query_turned, key_turned] =
            [query, key, value, query_turned, key_turned].map(|slot| views.read::<f64>(slot));
        let indices = views.read::<i64>(indices);
        let mut outs = vec![0f64; query.len()];
        let mut statistics =
            [vec![f64::from(f32::MIN); layouts.tokens * heads], vec![0f64; layouts.tokens * heads]];
        for sequence in layouts.sequences(views)? {
            for (place, token) in sequence.queries.clone().enumerate() {
                let seen = &sequence.keys[..layouts.seen(&sequence, place)];
                let named = indices[token * columns..(token + 1) * columns].iter().take_while(|&&at| at >= 0);
                let rows: Vec<usize> = named
                    .flat_map(|&at| {
                        (at as usize * size..(at as usize + 1) * size).filter_map(|at| seen.get(at))
                    })
                    .copied()
                    .collect();
                for at in token * heads..(token + 1) * heads {
                    let part = |row: &usize| {
                        let wide =
                            dot(&query[at * WIDE..(at + 1) * WIDE], &key[row * WIDE..(row + 1) * WIDE]);
                        let own = &query_turned[at * TURNED..(at + 1) * TURNED];
                        (wide + dot(own, &key_turned[row * TURNED..(row + 1) * TURNED])) * scale
                    };
                    let scores: Vec<f64> = rows.iter().map(part).collect();
                    let Some(most) = scores.iter().copied().reduce(f64::max) else { continue };
                    let shares: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                    let total = shares.iter().sum::<f64>();
                    let to = &mut outs[at * WIDE..(at + 1) * WIDE];
                    for (row, share) in rows.iter().zip(&shares) {
                        let own = &value[row * WIDE..(row + 1) * WIDE];
                        to.iter_mut().zip(own).for_each(|(to, value)| *to += share / total * value);
                    }
                    (statistics[0][at], statistics[1][at]) = (most, total);
                }
            }
        }
        views.write(out, &outs);
        kept.iter().zip(&statistics).for_each(|(slot, values)| views.write(*slot, values));
        Ok(())
    })?;
    Ok(plan.leaving(unused.into_iter().flatten().filter(|_| !is_kept).collect()))
}
