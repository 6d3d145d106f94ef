//! Norm and rotation of keys with a write into caches, and reads of caches by blocks.
//!
//! Computed in f64 from the stored elements, and rounded once. Indexes are contents of tensors, so
//! an index out of range fails the stream; -1 writes nothing.

use crate::dtype::AclType::{self, BF16, F16, I8};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output, text};
use crate::operator::sets::{HALVES, INDEX64, SINGLE, WHOLE32};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};
use crate::quantization::dynamic_rows::saturated;

const CACHED: &[AclType] = &[F16, BF16, I8];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnKvRmsNormRopeCache",
        parameters: &[
            input(KV, HALVES, 4, 4),
            input(GAMMA, HALVES, 1, 1),
            input(COS, HALVES, 4, 4),
            input(SIN, HALVES, 4, 4),
            input(INDEX, INDEX64, 1, 2),
            in_place(K_CACHE_REF, HALVES, 4, 4),
            in_place(CKV_CACHE_REF, HALVES, 4, 4),
            text(CACHE_MODE_OPTIONAL),
            output(K_ROPE_OUT, HALVES, 4, 4).optional(),
            output(C_KV_OUT, HALVES, 4, 4).optional(),
        ],
        limits: "kv [B, 1, S, Dv + Dk], gamma [Dv], cos and sin [B, 1, S or 1, Dk], Dk even; the first Dv elements are normed, the rest turn with \
                 neighbours as pairs and become halves; cacheModeOptional Norm: caches [.., 1, length, D], index [B, S] within length; PA, \
                 PA_BNSD, PA_NZ: caches [blocks, size, 1, D], index [B S] within blocks size, size a multiple of 16, PA_NZ in \
                 columns of 16; -1 writes nothing; isOutputKv stores kRopeOut and cKvOut [B, 1, S, D]; one element type",
        source: "ops-transformer posembedding/kv_rms_norm_rope_cache/docs/aclnnKvRmsNormRopeCache.md",
        plan: latent,
    },
    Operator {
        name: "aclnnQkvRmsNormRopeCache",
        parameters: &[
            input(QKV, HALVES, 2, 2),
            input(Q_GAMMA, HALVES, 1, 1),
            input(K_GAMMA, HALVES, 1, 1),
            input(COS, HALVES, 2, 2),
            input(SIN, HALVES, 2, 2),
            input(INDEX, INDEX64, 1, 1),
            in_place(Q_OUT, HALVES, 2, 2),
            in_place(K_CACHE, CACHED, 4, 4),
            in_place(V_CACHE, CACHED, 4, 4),
            input(K_SCALE_OPTIONAL, SINGLE, 2, 2).optional(),
            input(V_SCALE_OPTIONAL, SINGLE, 2, 2).optional(),
            input(K_OFFSET_OPTIONAL, SINGLE, 2, 2).optional(),
            input(V_OFFSET_OPTIONAL, SINGLE, 2, 2).optional(),
            text(CACHE_MODE_OPTIONAL),
            output(Q_OUT_BEFORE_QUANT, HALVES, 2, 2).optional(),
            output(K_OUT_BEFORE_QUANT, HALVES, 2, 2).optional(),
            output(V_OUT_BEFORE_QUANT, HALVES, 2, 2).optional(),
        ],
        limits: "qkv [B S, (Nq + Nk + Nv) 128] with Nk = Nv, qkvSize [B, S, N, 128], headNums [Nq, Nk, Nv], gammas [128], cos and sin [B S, 128], index \
                 [B S]; q and k are normed and turn in halves; caches [blocks, Nk 128 / w, size, w] with w 16, or 32 for INT8, size a multiple \
                 of w; INT8 divides by a scale [Nk, 128] and adds an offset, to nearest; results before it [B S, N 128]; cacheModeOptional PA_NZ",
        source: "ops-transformer posembedding/qkv_rms_norm_rope_cache/docs/aclnnQkvRmsNormRopeCache.md",
        plan: fused,
    },
    Operator {
        name: "aclnnGatherPaKvCache",
        parameters: &[
            input(KEY_CACHE, CACHED, 4, 4),
            input(VALUE_CACHE, CACHED, 4, 4),
            input(BLOCK_TABLES, WHOLE32, 2, 2),
            input(SEQ_LENS, WHOLE32, 1, 1),
            in_place(KEY_REF, CACHED, 3, 3),
            in_place(VALUE_REF, CACHED, 3, 3),
            input(SEQ_OFFSET_OPTIONAL, WHOLE32, 1, 1).optional(),
        ],
        limits: "caches [blocks, size, N, D], blockTables [batch, columns], keyRef and valueRef [tokens, N, D] of their types; cacheMode Norm; seqLens [batch], or \
                 with isSeqLensCumsum [batch + 1] from 0 on; the first seqOffsetOptional [batch] / size columns of blockTables are skipped",
        source: "ops-transformer attention/gather_pa_kv_cache/docs/aclnnGatherPaKvCache.md",
        plan: gather,
    },
];

fn normed(row: &[f64], gamma: &[f64], epsilon: f64) -> Vec<f64> {
    let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
    row.iter().zip(gamma).map(|(x, gamma)| x / (mean + epsilon).sqrt() * gamma).collect()
}

/// Halves of a row turn with each other.
fn turned(row: &[f64], cos: &[f64], sin: &[f64]) -> Vec<f64> {
    let half = row.len() / 2;
    let other = |i: usize| if i < half { -row[half + i] } else { row[i - half] };
    (0..row.len()).map(|i| row[i] * cos[i] + other(i) * sin[i]).collect()
}

/// Order of a cache's elements.
#[derive(Clone, Copy, Debug)]
enum CacheOrder {
    Rows,
    /// Blocks of `size` rows in columns of `width` elements.
    Columns {
        size: usize,
        width: usize,
    },
}

impl CacheOrder {
    /// Stores the row at a position of the cache.
    fn store(self, cache: &mut [f64], position: usize, row: &[f64]) {
        for (i, x) in row.iter().enumerate() {
            let at = match self {
                Self::Rows => position * row.len() + i,
                Self::Columns { size, width } => {
                    (position / size * (row.len() / width) + i / width) * size * width
                        + position % size * width
                        + i % width
                }
            };
            cache[at] = *x;
        }
    }
}

fn position(index: i64, limit: usize) -> Result<Option<usize>, String> {
    if index == -1 {
        return Ok(None);
    }
    let known = usize::try_from(index).ok().filter(|&known| known < limit);
    known.map(Some).ok_or_else(|| format!("index: expected -1 to {}, found {index}", limit as i64 - 1))
}

fn latent(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(KV, &[GAMMA, COS, SIN, K_CACHE_REF, CKV_CACHE_REF, K_ROPE_OUT, C_KV_OUT])?;
    call.expect_elements(&[KV, K_CACHE_REF, CKV_CACHE_REF])?;
    let mode = call.text_if_given(CACHE_MODE_OPTIONAL)?.unwrap_or("Norm");
    let is_paged = ["PA", "PA_BNSD", "PA_NZ"].contains(&mode);
    call.expect_that(is_paged || mode == "Norm", CACHE_MODE_OPTIONAL, "Norm, PA, PA_BNSD or PA_NZ", mode)?;
    let [k_cache, ckv_cache] = if is_paged { ["xl1k", "xl1v"] } else { ["x1lk", "x1lv"] };
    let sizes = call.sizes(&[
        KV.of("b1sd"),
        GAMMA.of("v"),
        COS.of("b1ck"),
        SIN.of("b1ck"),
        K_CACHE_REF.of(k_cache),
        CKV_CACHE_REF.of(ckv_cache),
        K_ROPE_OUT.of("b1sk"),
        C_KV_OUT.of("b1sv"),
    ])?;
    let [batch, len, depth, wide, narrow, tables] = sizes.all(['b', 's', 'd', 'v', 'k', 'c']);
    call.expect_that(wide + narrow == depth && narrow.is_multiple_of(2), KV, "Dv + Dk wide, Dk even", depth)?;
    call.expect_that(tables == len || tables == 1, COS, &format!("{len} or 1 positions"), tables)?;
    let [blocks, size] = sizes.all(['x', 'l']);
    let shape = if is_paged { vec![batch * len] } else { vec![batch, len] };
    call.expect_shape(INDEX, &shape, "a position per token")?;
    call.expect_that(!is_paged || size.is_multiple_of(16), K_CACHE_REF, "blocks of a multiple of 16", size)?;
    call.expect_that(
        is_paged || blocks >= batch,
        K_CACHE_REF,
        &format!("at least {batch} sequences"),
        blocks,
    )?;
    let is_nz = mode == "PA_NZ";
    let divides = wide.is_multiple_of(16) && narrow.is_multiple_of(16);
    call.expect_that(!is_nz || divides, KV, "Dv and Dk that 16 divides for PA_NZ", [wide, narrow])?;
    let order = if is_nz { CacheOrder::Columns { size, width: 16 } } else { CacheOrder::Rows };
    let outs = [call.slot_if_given(K_ROPE_OUT)?, call.slot_if_given(C_KV_OUT)?];
    let is_kept = call.flag(IS_OUTPUT_KV)?;
    if is_kept {
        call.slots_of([K_ROPE_OUT, C_KV_OUT])?;
    }
    let epsilon = call.float(EPSILON)?;
    let [kv, gamma, cos, sin, index] = call.slots_of([KV, GAMMA, COS, SIN, INDEX])?;
    let caches = call.slots_of([K_CACHE_REF, CKV_CACHE_REF])?;
    let plan = CallPlan::new(move |views, _| {
        let [values, gamma, cos, sin] = [kv, gamma, cos, sin].map(|slot| views.read::<f64>(slot));
        let index = views.read::<i64>(index);
        let mut stored = caches.map(|slot| views.read::<f64>(slot));
        let mut results = [Vec::new(), Vec::new()];
        for (token, row) in values.chunks_exact(depth).enumerate() {
            let table = (token / len * tables + if tables == 1 { 0 } else { token % len }) * narrow;
            let (even, odd) = (row[wide..].iter().step_by(2), row[wide + 1..].iter().step_by(2));
            let halves: Vec<f64> = even.chain(odd).copied().collect();
            let rows = [
                turned(&halves, &cos[table..table + narrow], &sin[table..table + narrow]),
                normed(&row[..wide], &gamma, epsilon),
            ];
            let limit = if is_paged { blocks * size } else { size };
            if let Some(place) = position(index[token], limit)? {
                let place = if is_paged { place } else { token / len * size + place };
                stored.iter_mut().zip(&rows).for_each(|(cache, row)| order.store(cache, place, row));
            }
            results.iter_mut().zip(rows).for_each(|(all, row)| all.extend(row));
        }
        caches.iter().zip(&stored).for_each(|(slot, values)| views.write(*slot, values));
        outs.iter()
            .zip(&results)
            .for_each(|(slot, values)| views.write_given(slot.filter(|_| is_kept), values));
        Ok(())
    })?;
    Ok(plan.leaving(outs.into_iter().flatten().filter(|_| !is_kept).collect()))
}

/// A cache with the conversion of elements.
#[derive(Clone, Copy, Debug)]
struct FusedCache {
    slot: ViewIndex,
    order: CacheOrder,
    positions: usize,
    scale: Option<ViewIndex>,
    offset: Option<ViewIndex>,
}

impl FusedCache {
    fn of(
        call: &OperatorCall,
        name: Name<CheckedTensor>,
        [scale, offset]: [Name<CheckedTensor>; 2],
        heads: usize,
    ) -> Result<Self, Refusal> {
        let cache = call.tensor(name)?;
        let width = if cache.dtype == I8 { 32 } else { 16 };
        let (blocks, size) = (cache.dims[0], cache.dims[2]);
        let shape = [blocks, heads * DEPTH / width, size, width];
        call.expect_shape(name, &shape, "blocks in columns")?;
        call.expect_that(
            size.is_multiple_of(width),
            name,
            &format!("blocks of a multiple of {width}"),
            size,
        )?;
        let is_whole = cache.dtype == I8;
        call.expect_that(
            is_whole == call.tensor_if_given(scale)?.is_some(),
            scale,
            "a scale for INT8 alone",
            cache.dtype,
        )?;
        for (name, is_legal) in [(scale, true), (offset, is_whole)] {
            if call.tensor_if_given(name)?.is_some() {
                call.expect_that(is_legal, name, "NULL without INT8", "a tensor")?;
                call.expect_shape(name, &[heads, DEPTH], "[Nk, 128]")?;
            }
        }
        if !is_whole {
            call.expect_type_of(QKV, &[name])?;
        }
        let order = CacheOrder::Columns { size, width };
        let (scale, offset) = (call.slot_if_given(scale)?, call.slot_if_given(offset)?);
        Ok(Self { slot: cache.slot, order, positions: blocks * size, scale, offset })
    }

    fn store(&self, views: &StridedViews<'_>, index: &[i64], rows: &[f64]) -> Result<(), String> {
        let [scale, offset] = [self.scale, self.offset].map(|slot| views.read_given::<f64>(slot));
        let mut cache = views.read::<f64>(self.slot);
        for (row, &index) in rows.chunks_exact(rows.len() / index.len().max(1)).zip(index) {
            let Some(place) = position(index, self.positions)? else { continue };
            let level = |(i, x): (usize, &f64)| match &scale {
                Some(scale) => saturated(x / scale[i] + offset.as_ref().map_or(0.0, |offset| offset[i])),
                None => *x,
            };
            self.order.store(&mut cache, place, &row.iter().enumerate().map(level).collect::<Vec<_>>());
        }
        views.write(self.slot, &cache);
        Ok(())
    }
}

/// Elements of a head of `aclnnQkvRmsNormRopeCache`.
const DEPTH: usize = 128;

fn fused(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let mode = call.text_if_given(CACHE_MODE_OPTIONAL)?.unwrap_or("PA_NZ");
    call.expect_that(mode == "PA_NZ", CACHE_MODE_OPTIONAL, "PA_NZ", mode)?;
    let before = [Q_OUT_BEFORE_QUANT, K_OUT_BEFORE_QUANT, V_OUT_BEFORE_QUANT];
    call.expect_type_of(QKV, &[&[Q_GAMMA, K_GAMMA, COS, SIN, Q_OUT], &before[..]].concat())?;
    let counts = call.ints(HEAD_NUMS)?;
    let &[queries, keys, values] = counts else {
        return Err(call.refuse(HEAD_NUMS, format!("expected 3 numbers, found {counts:?}")));
    };
    let fits = queries > 0 && keys > 0 && keys == values && queries.max(keys) <= 1 << 20;
    call.expect_that(fits, HEAD_NUMS, "[Nq, Nk, Nk]", counts)?;
    let heads = [queries, keys, values].map(|count| count as usize);
    let [sequences, len, all, depth] = match call.ints(QKV_SIZE)? {
        &[b, s, n, d] if b > 0 && s > 0 => [b, s, n, d],
        other => return Err(call.refuse(QKV_SIZE, format!("expected [B, S, N, D], found {other:?}"))),
    };
    call.expect_that(
        depth == DEPTH as i64 && all == queries + 2 * keys,
        QKV_SIZE,
        &format!("N {} and D {DEPTH}", queries + 2 * keys),
        [all, depth],
    )?;
    let count = call.tensor(QKV)?.dims[0];
    call.expect_that(sequences.checked_mul(len) == Some(count as i64), QKV, "[B S, N D]", count)?;
    call.expect_shape(QKV, &[count, all as usize * DEPTH], "[B S, N D]")?;
    for (name, shape) in [
        (Q_GAMMA, &[DEPTH][..]),
        (K_GAMMA, &[DEPTH]),
        (COS, &[count, DEPTH]),
        (SIN, &[count, DEPTH]),
        (INDEX, &[count]),
        (Q_OUT, &[count, heads[0] * DEPTH]),
    ] {
        call.expect_shape(name, shape, "by qkvSize and headNums")?;
    }
    let mut plain = [None; 3];
    for ((name, slot), heads) in before.into_iter().zip(&mut plain).zip(heads) {
        if call.tensor_if_given(name)?.is_some() {
            call.expect_shape(name, &[count, heads * DEPTH], "[B S, N D]")?;
            *slot = Some(call.slot(name)?);
        }
    }
    let k_cache = FusedCache::of(call, K_CACHE, [K_SCALE_OPTIONAL, K_OFFSET_OPTIONAL], heads[1])?;
    let v_cache = FusedCache::of(call, V_CACHE, [V_SCALE_OPTIONAL, V_OFFSET_OPTIONAL], heads[2])?;
    let epsilon = call.float(EPSILON)?;
    let [qkv, q_gamma, k_gamma, cos, sin, index, q_out] =
        call.slots_of([QKV, Q_GAMMA, K_GAMMA, COS, SIN, INDEX, Q_OUT])?;
    CallPlan::new(move |views, _| {
        let [all, q_gamma, k_gamma, cos, sin] =
            [qkv, q_gamma, k_gamma, cos, sin].map(|slot| views.read::<f64>(slot));
        let index = views.read::<i64>(index);
        let mut results = [Vec::new(), Vec::new(), Vec::new()];
        for (at, head) in all.chunks_exact(DEPTH).enumerate() {
            let (token, place) = (at / heads.iter().sum::<usize>(), at % heads.iter().sum::<usize>());
            let table = token * DEPTH..(token + 1) * DEPTH;
            let turn =
                |gamma| turned(&normed(head, gamma, epsilon), &cos[table.clone()], &sin[table.clone()]);
            if place < heads[0] {
                results[0].extend(turn(&q_gamma));
            } else if place < heads[0] + heads[1] {
                results[1].extend(turn(&k_gamma));
            } else {
                results[2].extend(head);
            }
        }
        views.write(q_out, &results[0]);
        k_cache.store(views, &index, &results[1])?;
        v_cache.store(views, &index, &results[2])?;
        plain.iter().zip(&results).for_each(|(slot, values)| views.write_given(*slot, values));
        Ok(())
    })
}

fn gather(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let mode = call.text(CACHE_MODE)?;
    call.expect_that(mode == "Norm", CACHE_MODE, "Norm", mode)?;
    call.expect_type_of(KEY_CACHE, &[KEY_REF])?;
    call.expect_type_of(VALUE_CACHE, &[VALUE_REF])?;
    let sizes = call.sizes(&[
        KEY_CACHE.of("xlnk"),
        VALUE_CACHE.of("xlnv"),
        BLOCK_TABLES.of("bc"),
        KEY_REF.of("tnk"),
        VALUE_REF.of("tnv"),
        SEQ_OFFSET_OPTIONAL.of("b"),
    ])?;
    let [blocks, size, batch, columns, tokens] = sizes.all(['x', 'l', 'b', 'c', 't']);
    let is_sum = call.flag(IS_SEQ_LENS_CUMSUM)?;
    call.expect_shape(SEQ_LENS, &[batch + usize::from(is_sum)], "by isSeqLensCumsum")?;
    call.expect_elements(&[KEY_CACHE, VALUE_CACHE])?;
    let pairs = [call.slots_of([KEY_CACHE, KEY_REF])?, call.slots_of([VALUE_CACHE, VALUE_REF])?];
    let [tables, lens] = call.slots_of([BLOCK_TABLES, SEQ_LENS])?;
    let offsets = call.slot_if_given(SEQ_OFFSET_OPTIONAL)?;
    CallPlan::new(move |views, _| {
        let (tables, lens) = (views.read::<i64>(tables), views.read::<i64>(lens));
        let offsets = views.read_given::<i64>(offsets).unwrap_or_else(|| vec![0; batch]);
        let lengths: Vec<i64> =
            if is_sum { lens.windows(2).map(|pair| pair[1] - pair[0]).collect() } else { lens.clone() };
        let is_legal = lengths.iter().all(|&own| own >= 0) && (!is_sum || lens[0] == 0);
        if !is_legal || lengths.iter().sum::<i64>() > tokens as i64 {
            return Err(format!("seqLens: expected lengths of at most {tokens} tokens, found {lens:?}"));
        }
        let mut rows = Vec::new();
        for (sequence, &length) in lengths.iter().enumerate() {
            for place in 0..length as usize {
                let column = usize::try_from(offsets[sequence]).ok().map(|first| first / size + place / size);
                let block =
                    column.filter(|&column| column < columns).map(|at| tables[sequence * columns + at]);
                let block =
                    block.and_then(|block| usize::try_from(block).ok()).filter(|&block| block < blocks);
                let block = block.ok_or_else(|| {
                    format!("blockTables: no block for token {place} of sequence {sequence}")
                })?;
                rows.push(block * size + place % size);
            }
        }
        for [cache, out] in pairs {
            let (from, mut to) = (views.read::<f64>(cache), views.read::<f64>(out));
            let width = from.len() / (blocks * size);
            for (row, own) in rows.iter().zip(to.chunks_exact_mut(width.max(1))) {
                own.copy_from_slice(&from[row * width..(row + 1) * width]);
            }
            views.write(out, &to);
        }
        Ok(())
    })
}
