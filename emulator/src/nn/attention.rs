//! Scaled dot-product attention with grouped key/value heads, masks and per-batch lengths.
//!
//! Input: queries `[B, N, Sq, D]`, keys and values `[Nkv, Skv, D]` per batch, lengths, and who may see whom.
//! Output: `softmax(scale * q k^T + mask) v` of the shape of the queries, and optionally the log-sum-exp of each row.
//! Invariants: scores, softmax and the weighted sum are f32, the output is rounded once; the scores of a block of rows
//! are the only scratch, never `Sq x Skv`; a row that sees nothing, or lies past its length, is zeros.

use super::Tiles;
use super::lane::Lane;
use super::raw::{Into, Matrix, MatrixMut, gemm_f32};
use super::view::View;

/// Query rows computed together.
const ROWS: usize = 32;
/// Keys widened to f32 at a time.
const KEYS: usize = 512;

/// Keys, values and lengths of one batch.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// `[Nkv, Skv, D]`.
    pub(crate) key: View,
    /// `[Nkv, Skv, Dv]`.
    pub(crate) value: View,
    /// Valid query rows; the rest of the output is zeros.
    pub(crate) query_len: usize,
    /// Valid keys.
    pub(crate) key_len: usize,
    /// `[Sq, Skv]` of one-byte elements; not zero means masked. May be larger than the lengths.
    pub(crate) mask: Option<View>,
    /// Row `i` sees no key below `i - before`.
    pub(crate) before: i64,
    /// Row `i` sees no key above `i + after`.
    pub(crate) after: i64,
}

/// What [`attention`] computes.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    /// `[B, N, Sq, D]`; N is a multiple of the key/value heads.
    pub(crate) query: View,
    /// One entry per batch.
    pub(crate) batches: Vec<Batch>,
    /// Factor of the scores.
    pub(crate) scale: f32,
    /// `[B, N, Sq, Dv]`.
    pub(crate) out: View,
    /// `[B, N, Sq]` of f32, if wanted: log of the sum of the exponentials; +inf for a row that sees nothing.
    pub(crate) log_sum_exp: Option<View>,
}

/// Computes `job.out`, and `job.log_sum_exp` if it is wanted.
pub(crate) fn attention(tiles: &dyn Tiles, job: &Attention) {
    if job.out.is_empty() {
        return;
    }
    let (heads, rows) = (job.query.dims()[1], job.query.dims()[2]);
    let kv_heads = job.batches[0].key.dims()[0];
    let group = heads / kv_heads;
    // The query heads of one key/value head are consecutive, so their rows form one long matrix.
    let (query, out) = (job.query.split(1, kv_heads, group), job.out.split(1, kv_heads, group));
    let sums = job.log_sum_exp.as_ref().map(|view| view.split(1, kv_heads, group));
    let blocks = (group * rows).div_ceil(ROWS);
    tiles.run(job.batches.len() * kv_heads * blocks, &|tile| {
        let (batch, rest) = (tile / (kv_heads * blocks), tile % (kv_heads * blocks));
        let (head, block) = (rest / blocks, rest % blocks);
        let part = |view: &View| view.at(0, batch).at(0, head);
        let span = block * ROWS..((block + 1) * ROWS).min(group * rows);
        rows_of_one_head(
            &job.batches[batch],
            head,
            job.scale,
            &part(&query),
            span,
            &part(&out),
            sums.as_ref().map(part).as_ref(),
        );
    });
}

/// Rows `span` of `[group, Sq]` against one key/value head.
fn rows_of_one_head(
    batch: &Batch,
    head: usize,
    scale: f32,
    query: &View,
    span: std::ops::Range<usize>,
    out: &View,
    sums: Option<&View>,
) {
    let (rows, depth, width) = (query.dims()[1], query.dims()[2], out.dims()[2]);
    let count = span.len();
    let position = |row: usize| (span.start + row) % rows;
    // The keys row `i` may see, as a half-open range, before the mask.
    let visible = |row: usize| {
        let i = position(row);
        if i >= batch.query_len {
            return 0..0;
        }
        let low = (i as i64).saturating_sub(batch.before).clamp(0, batch.key_len as i64) as usize;
        let high = (i as i64).saturating_add(batch.after).saturating_add(1).clamp(0, batch.key_len as i64) as usize;
        low..high.max(low)
    };
    let first = (0..count).map(&visible).filter(|keys| !keys.is_empty()).map(|keys| keys.start).min();
    let last = (0..count).map(|row| visible(row).end).max().unwrap_or(0);
    let first = first.unwrap_or(last);
    let keys = last - first;

    let mut q = vec![0f32; count * depth];
    f32::load(&query.collapsed(), span.start * depth, &mut q);
    let mut scores = vec![0f32; count * keys];
    let mut panel = vec![0f32; KEYS.min(keys) * depth.max(width)];
    for start in (0..keys).step_by(KEYS) {
        let len = KEYS.min(keys - start);
        let chunk = batch.key.at(0, head).slice(0, first + start, len, 1);
        f32::load(&chunk.collapsed(), 0, &mut panel[..len * depth]);
        gemm_f32(
            &mut MatrixMut::in_slice(&mut scores[start..], (count, len), keys),
            Matrix::in_slice(&q, (count, depth), depth),
            Matrix::in_slice(&panel, (len, depth), depth).transposed(),
            Into::Overwrite,
        );
    }

    let mut inverse = vec![0f32; count];
    let mut masked = vec![0u8; keys];
    for row in 0..count {
        let seen = visible(row);
        if let Some(mask) = &batch.mask
            && !seen.is_empty()
        {
            mask.at(0, position(row)).slice(0, first, keys, 1).read(0, &mut masked);
        }
        let weights = &mut scores[row * keys..(row + 1) * keys];
        let total =
            softmax_weights(weights, &masked, seen.start.max(first) - first..seen.end.max(first) - first, scale);
        inverse[row] = if total.sum > 0.0 { 1.0 / total.sum } else { total.sum };
        if let Some(sums) = sums {
            let value = if total.sum == 0.0 { f32::INFINITY } else { total.max + total.sum.ln() };
            f32::store(&sums.collapsed(), span.start + row, &[value]);
        }
    }

    let mut result = vec![0f32; count * width];
    for start in (0..keys).step_by(KEYS) {
        let len = KEYS.min(keys - start);
        let chunk = batch.value.at(0, head).slice(0, first + start, len, 1);
        f32::load(&chunk.collapsed(), 0, &mut panel[..len * width]);
        gemm_f32(
            &mut MatrixMut::in_slice(&mut result, (count, width), width),
            Matrix::in_slice(&scores[start..], (count, len), keys),
            Matrix::in_slice(&panel, (len, width), width),
            Into::Accumulate,
        );
    }
    for (line, &factor) in result.chunks_mut(width.max(1)).zip(&inverse) {
        for value in line {
            *value *= factor;
        }
    }
    f32::store(&out.collapsed(), span.start * width, &result);
}

/// The largest scaled score of a row and the sum of the exponentials relative to it.
struct Total {
    max: f32,
    sum: f32,
}

/// Turns the scores of a row into weights that are not yet divided by their sum; unseen keys get weight 0.
fn softmax_weights(scores: &mut [f32], masked: &[u8], seen: std::ops::Range<usize>, scale: f32) -> Total {
    let mut max = f32::NEG_INFINITY;
    for (score, &hidden) in scores[seen.clone()].iter_mut().zip(&masked[seen.clone()]) {
        *score *= scale;
        if hidden == 0 {
            max = max.max(*score);
        }
    }
    let mut sum = 0.0;
    for (j, score) in scores.iter_mut().enumerate() {
        *score = if seen.contains(&j) && masked[j] == 0 { (*score - max).exp() } else { 0.0 };
        sum += *score;
    }
    Total { max, sum }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::super::Serial;
    use super::super::dtype::DType;
    use super::super::raw::tests::span_of;
    use super::super::view::contiguous_strides;
    use super::*;

    fn values(n: usize, seed: u32) -> Vec<f32> {
        (0..n as u32).map(|i| ((i.wrapping_mul(2_654_435_761) ^ seed) % 1000) as f32 / 500.0 - 1.0).collect()
    }

    fn view<T: super::super::raw::Pod>(data: &mut [T], dtype: DType, dims: &[usize]) -> View {
        View::new(span_of(data), dtype, dims, &contiguous_strides(dims), 0).unwrap()
    }

    /// `sees(i, j)` says whether query row `i` may use key `j`.
    fn naive(
        q: &[f32],
        k: &[f32],
        v: &[f32],
        depth: usize,
        scale: f32,
        sees: impl Fn(usize, usize) -> bool,
    ) -> Vec<f32> {
        let (rows, keys) = (q.len() / depth, k.len() / depth);
        let mut out = vec![0f32; q.len()];
        for i in 0..rows {
            let dot =
                |j: usize| (0..depth).map(|d| f64::from(q[i * depth + d]) * f64::from(k[j * depth + d])).sum::<f64>();
            let weights: Vec<f64> =
                (0..keys).map(|j| if sees(i, j) { (f64::from(scale) * dot(j)).exp() } else { 0.0 }).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..depth {
                let total: f64 = (0..keys).map(|j| weights[j] * f64::from(v[j * depth + d])).sum();
                out[i * depth + d] = if sum > 0.0 { (total / sum) as f32 } else { 0.0 };
            }
        }
        out
    }

    fn close(a: &[f32], b: &[f32], bound: f32) {
        assert_eq!(a.len(), b.len());
        for (i, (x, y)) in a.iter().zip(b).enumerate() {
            assert!((x - y).abs() <= bound, "element {i}: {x} and {y}");
        }
    }

    #[test]
    fn grouped_heads_causal_and_lengths_follow_the_definition() {
        let (batches, heads, kv_heads, rows, keys, depth) = (2, 6, 2, 37, 600, 16);
        let (q, k, v) = (
            values(batches * heads * rows * depth, 1),
            values(batches * kv_heads * keys * depth, 2),
            values(batches * kv_heads * keys * depth, 3),
        );
        let (mut q32, mut k32, mut v32) = (q.clone(), k.clone(), v.clone());
        let mut out = vec![f32::NAN; q.len()];
        let mut sums = vec![0f32; batches * heads * rows];
        let query = view(&mut q32, DType::F32, &[batches, heads, rows, depth]);
        let (key, value) = (
            view(&mut k32, DType::F32, &[batches, kv_heads, keys, depth]),
            view(&mut v32, DType::F32, &[batches, kv_heads, keys, depth]),
        );
        let lengths = [(37usize, 600usize), (30, 555)];
        let job = Attention {
            query,
            batches: (0..batches)
                .map(|b| Batch {
                    key: key.at(0, b),
                    value: value.at(0, b),
                    query_len: lengths[b].0,
                    key_len: lengths[b].1,
                    mask: None,
                    before: i64::MAX,
                    after: lengths[b].1 as i64 - lengths[b].0 as i64,
                })
                .collect(),
            scale: 0.25,
            out: view(&mut out, DType::F32, &[batches, heads, rows, depth]),
            log_sum_exp: Some(view(&mut sums, DType::F32, &[batches, heads, rows])),
        };
        attention(&Serial, &job);
        for (b, (query_len, key_len)) in lengths.into_iter().enumerate() {
            for n in 0..heads {
                let at = (b * heads + n) * rows * depth;
                let kv = (b * kv_heads + n / 3) * keys * depth;
                let expected = naive(
                    &q[at..at + rows * depth],
                    &k[kv..kv + keys * depth],
                    &v[kv..kv + keys * depth],
                    depth,
                    0.25,
                    |i, j| i < query_len && j < key_len && j <= i + key_len - query_len,
                );
                close(&out[at..at + rows * depth], &expected, 1e-5);
            }
        }
        assert!(sums[..heads * rows].iter().all(|s| s.is_finite()));
        assert_eq!(sums[heads * rows + 30], f32::INFINITY, "a row past its length");
    }

    #[test]
    fn masks_hide_keys_and_a_fully_masked_row_is_zero() {
        let (rows, keys, depth) = (3, 5, 4);
        let (q, k, v) = (values(rows * depth, 4), values(keys * depth, 5), values(keys * depth, 6));
        let (mut q32, mut k32, mut v32, mut out) = (q.clone(), k.clone(), v.clone(), vec![f32::NAN; rows * depth]);
        let mut mask: Vec<u8> = vec![0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1];
        let hidden = mask.clone();
        let job = Attention {
            query: view(&mut q32, DType::F32, &[1, 1, rows, depth]),
            batches: vec![Batch {
                key: view(&mut k32, DType::F32, &[1, keys, depth]),
                value: view(&mut v32, DType::F32, &[1, keys, depth]),
                query_len: rows,
                key_len: keys,
                mask: Some(view(&mut mask, DType::Bool, &[rows, keys])),
                before: i64::MAX,
                after: i64::MAX,
            }],
            scale: 1.0,
            out: view(&mut out, DType::F32, &[1, 1, rows, depth]),
            log_sum_exp: None,
        };
        attention(&Serial, &job);
        close(&out, &naive(&q, &k, &v, depth, 1.0, |i, j| hidden[i * keys + j] == 0), 1e-6);
        assert_eq!(out[depth..2 * depth], [0.0; 4]);
    }

    #[test]
    fn no_keys_give_zeros() {
        let (mut q, mut out) = (values(8, 7), vec![f32::NAN; 8]);
        let job = Attention {
            query: view(&mut q, DType::F32, &[1, 1, 2, 4]),
            batches: vec![Batch {
                key: view(&mut [0f32; 0], DType::F32, &[1, 0, 4]),
                value: view(&mut [0f32; 0], DType::F32, &[1, 0, 4]),
                query_len: 2,
                key_len: 0,
                mask: None,
                before: i64::MAX,
                after: i64::MAX,
            }],
            scale: 1.0,
            out: view(&mut out, DType::F32, &[1, 1, 2, 4]),
            log_sum_exp: None,
        };
        attention(&Serial, &job);
        assert_eq!(out, [0.0; 8]);
    }

    #[test]
    fn bf16_in_a_token_major_layout() {
        // [B, S, N, D] memory seen as [B, N, S, D].
        let (rows, heads, depth) = (5, 2, 16);
        let round = |v: Vec<f32>| v.into_iter().map(bf16::from_f32).collect::<Vec<_>>();
        let (mut q, mut k, mut v) = (
            round(values(rows * heads * depth, 8)),
            round(values(rows * heads * depth, 9)),
            round(values(rows * heads * depth, 10)),
        );
        let mut out = vec![bf16::NAN; q.len()];
        let tokens = |data: &mut [bf16]| view(data, DType::BF16, &[1, rows, heads, depth]).permute(&[0, 2, 1, 3]);
        let (vq, vk, vv, vo) = (tokens(&mut q), tokens(&mut k), tokens(&mut v), tokens(&mut out));
        let job = Attention {
            query: vq,
            batches: vec![Batch {
                key: vk.at(0, 0),
                value: vv.at(0, 0),
                query_len: rows,
                key_len: rows,
                mask: None,
                before: i64::MAX,
                after: 0,
            }],
            scale: 0.25,
            out: vo,
            log_sum_exp: None,
        };
        attention(&Serial, &job);
        for head in 0..heads {
            let pick = |data: &[bf16]| -> Vec<f32> {
                (0..rows * depth).map(|i| data[(i / depth * heads + head) * depth + i % depth].to_f32()).collect()
            };
            let expected = naive(&pick(&q), &pick(&k), &pick(&v), depth, 0.25, |i, j| j <= i);
            close(&pick(&out), &expected, 0.01);
        }
    }
}
