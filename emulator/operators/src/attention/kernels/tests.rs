//! Attention against its definition, and bitwise reproducibility.

use half::bf16;

use crate::Serial;
use crate::attention::kernels::*;
use crate::dtype::AclType;
use crate::lane::Lane;
use crate::raw::tests::span_of;
use crate::tests::Threads;
use crate::view::contiguous_strides;

pub(super) fn values(n: usize, seed: u32) -> Vec<f32> {
    (0..n as u32).map(|i| ((i.wrapping_mul(2_654_435_761) ^ seed) % 1000) as f32 / 500.0 - 1.0).collect()
}

fn view<T: crate::raw::Pod>(data: &mut [T], dtype: AclType, dims: &[usize]) -> StridedView {
    StridedView::new(span_of(data), dtype, dims, &contiguous_strides(dims), 0).unwrap()
}

/// Computes attention by definition; query row `i` may use key `j` if `sees(i, j)`.
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
        let dot = |j: usize| {
            (0..depth).map(|d| f64::from(q[i * depth + d]) * f64::from(k[j * depth + d])).sum::<f64>()
        };
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
    let query = view(&mut q32, AclType::F32, &[batches, heads, rows, depth]);
    let (key, value) = (
        view(&mut k32, AclType::F32, &[batches, kv_heads, keys, depth]),
        view(&mut v32, AclType::F32, &[batches, kv_heads, keys, depth]),
    );
    let lengths = [(37usize, 600usize), (30, 555)];
    let job = AttentionCall {
        query,
        batches: (0..batches)
            .map(|b| AttentionBatch {
                key: key.at(0, b),
                value: value.at(0, b),
                blocks: None,
                scales: None,
                query_len: lengths[b].0,
                key_len: lengths[b].1,
                mask: None,
                before: i64::MAX,
                after: lengths[b].1 as i64 - lengths[b].0 as i64,
                bias: None,
                dropout: None,
            })
            .collect(),
        scale: 0.25,
        out: view(&mut out, AclType::F32, &[batches, heads, rows, depth]),
        statistics: SoftmaxStatistics::LogSumExp(view(&mut sums, AclType::F32, &[batches, heads, rows])),
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

/// Number of keys of a range.
const LONG: usize = RANGE * PIECE;

#[test]
fn one_row_over_many_ranges_of_keys_follows_the_definition() {
    let (heads, kv_heads, keys, depth) = (6, 2, 4 * LONG + 77, 32);
    let (q, k, v) =
        (values(heads * depth, 1), values(kv_heads * keys * depth, 2), values(kv_heads * keys * depth, 3));
    let is_hidden = |j: usize| (LONG..2 * LONG).contains(&j) || j % 5 == 3 || j >= keys - 30;
    let (mut q32, mut k32, mut v32) = (q.clone(), k.clone(), v.clone());
    let (mut out, mut sums) = (vec![f32::NAN; q.len()], vec![f32::NAN; heads]);
    let mut mask: Vec<u8> = (0..keys).map(|j| u8::from(is_hidden(j))).collect();
    let job = AttentionCall {
        query: view(&mut q32, AclType::F32, &[1, heads, 1, depth]),
        batches: vec![AttentionBatch {
            key: view(&mut k32, AclType::F32, &[kv_heads, keys, depth]),
            value: view(&mut v32, AclType::F32, &[kv_heads, keys, depth]),
            blocks: None,
            scales: None,
            query_len: 1,
            key_len: keys,
            mask: Some(view(&mut mask, AclType::Bool, &[1, keys])),
            before: i64::MAX,
            after: i64::MAX,
            bias: None,
            dropout: None,
        }],
        scale: 0.125,
        out: view(&mut out, AclType::F32, &[1, heads, 1, depth]),
        statistics: SoftmaxStatistics::LogSumExp(view(&mut sums, AclType::F32, &[1, heads, 1])),
    };
    attention(&Serial, &job);
    for head in 0..heads {
        let kv = head / 3 * keys * depth..(head / 3 + 1) * keys * depth;
        let row = head * depth..(head + 1) * depth;
        let expected = naive(&q[row.clone()], &k[kv.clone()], &v[kv], depth, 0.125, |_, j| !is_hidden(j));
        close(&out[row], &expected, 1e-5);
    }
    assert!(sums.iter().all(|sum| sum.is_finite()));
}

#[test]
fn masks_hide_keys_and_a_fully_masked_row_is_zero() {
    let (rows, keys, depth) = (3, 5, 4);
    let (q, k, v) = (values(rows * depth, 4), values(keys * depth, 5), values(keys * depth, 6));
    let (mut q32, mut k32, mut v32, mut out) =
        (q.clone(), k.clone(), v.clone(), vec![f32::NAN; rows * depth]);
    let mut mask: Vec<u8> = vec![0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1];
    let hidden = mask.clone();
    let job = AttentionCall {
        query: view(&mut q32, AclType::F32, &[1, 1, rows, depth]),
        batches: vec![AttentionBatch {
            key: view(&mut k32, AclType::F32, &[1, keys, depth]),
            value: view(&mut v32, AclType::F32, &[1, keys, depth]),
            blocks: None,
            scales: None,
            query_len: rows,
            key_len: keys,
            mask: Some(view(&mut mask, AclType::Bool, &[rows, keys])),
            before: i64::MAX,
            after: i64::MAX,
            bias: None,
            dropout: None,
        }],
        scale: 1.0,
        out: view(&mut out, AclType::F32, &[1, 1, rows, depth]),
        statistics: SoftmaxStatistics::None,
    };
    attention(&Serial, &job);
    close(&out, &naive(&q, &k, &v, depth, 1.0, |i, j| hidden[i * keys + j] == 0), 1e-6);
    assert_eq!(out[depth..2 * depth], [0.0; 4]);
}

#[test]
fn no_keys_give_zeros() {
    let (mut q, mut out) = (values(8, 7), vec![f32::NAN; 8]);
    let job = AttentionCall {
        query: view(&mut q, AclType::F32, &[1, 1, 2, 4]),
        batches: vec![AttentionBatch {
            key: view(&mut [0f32; 0], AclType::F32, &[1, 0, 4]),
            value: view(&mut [0f32; 0], AclType::F32, &[1, 0, 4]),
            blocks: None,
            scales: None,
            query_len: 2,
            key_len: 0,
            mask: None,
            before: i64::MAX,
            after: i64::MAX,
            bias: None,
            dropout: None,
        }],
        scale: 1.0,
        out: view(&mut out, AclType::F32, &[1, 1, 2, 4]),
        statistics: SoftmaxStatistics::None,
    };
    attention(&Serial, &job);
    assert_eq!(out, [0.0; 8]);
}

#[test]
fn bf16_in_a_token_major_layout() {
    // Memory in `[B, S, N, D]` order, viewed as `[B, N, S, D]`.
    let (rows, heads, depth) = (5, 2, 16);
    let round = |v: Vec<f32>| v.into_iter().map(bf16::from_f32).collect::<Vec<_>>();
    let (mut q, mut k, mut v) = (
        round(values(rows * heads * depth, 8)),
        round(values(rows * heads * depth, 9)),
        round(values(rows * heads * depth, 10)),
    );
    let mut out = vec![bf16::NAN; q.len()];
    let tokens =
        |data: &mut [bf16]| view(data, AclType::BF16, &[1, rows, heads, depth]).permute(&[0, 2, 1, 3]);
    let (vq, vk, vv, vo) = (tokens(&mut q), tokens(&mut k), tokens(&mut v), tokens(&mut out));
    let job = AttentionCall {
        query: vq,
        batches: vec![AttentionBatch {
            key: vk.at(0, 0),
            value: vv.at(0, 0),
            blocks: None,
            scales: None,
            query_len: rows,
            key_len: rows,
            mask: None,
            before: i64::MAX,
            after: 0,
            bias: None,
            dropout: None,
        }],
        scale: 0.25,
        out: vo,
        statistics: SoftmaxStatistics::None,
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

struct Stored {
    dtype: AclType,
    depth: usize,
    heads: [usize; 2],
    query: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    rows: usize,
    keys: usize,
}

type Rows = Vec<Vec<(Vec<u32>, u32)>>;

impl Stored {
    fn new(dtype: AclType, depth: usize, [heads, kv_heads]: [usize; 2], rows: usize, keys: usize) -> Self {
        let store = |n: usize, seed: u32| {
            let mut bytes = vec![0; n * dtype.size()];
            f32::store(&view_of(&mut bytes, dtype, &[n]), 0, &values(n, seed));
            bytes
        };
        Self {
            dtype,
            depth,
            heads: [heads, kv_heads],
            query: store(heads * rows * depth, 1),
            key: store(kv_heads * keys * depth, 2),
            value: store(kv_heads * keys * depth, 3),
            rows,
            keys,
        }
    }

    /// Computes rows `first..first + count` of each head over the keys below `key_len`.
    fn attend(
        &mut self,
        tiles: &dyn Tiles,
        isa: Isa,
        first: usize,
        count: usize,
        key_len: usize,
        change: &dyn Fn(&mut AttentionBatch),
    ) -> Rows {
        let [heads, kv_heads] = self.heads;
        let (mut out, mut sums) = (vec![f32::NAN; heads * count * self.depth], vec![f32::NAN; heads * count]);
        let query = view_of(&mut self.query, self.dtype, &[1, heads, self.rows, self.depth])
            .slice(2, first, count, 1);
        let keys = [kv_heads, self.keys, self.depth];
        let mut batch = AttentionBatch {
            key: view_of(&mut self.key, self.dtype, &keys),
            value: view_of(&mut self.value, self.dtype, &keys),
            blocks: None,
            scales: None,
            query_len: count,
            key_len,
            mask: None,
            before: i64::MAX,
            after: i64::MAX,
            bias: None,
            dropout: None,
        };
        change(&mut batch);
        let job = AttentionCall {
            query,
            batches: vec![batch],
            scale: 0.3,
            out: view(&mut out, AclType::F32, &[1, heads, count, self.depth]),
            statistics: SoftmaxStatistics::LogSumExp(view(&mut sums, AclType::F32, &[1, heads, count])),
        };
        attend(tiles, isa, &job);
        let row = |(values, sum): (&[f32], &f32)| {
            (values.iter().map(|value| value.to_bits()).collect(), sum.to_bits())
        };
        let by_head = out.chunks_exact(count * self.depth).zip(sums.chunks_exact(count));
        by_head.map(|(out, sums)| out.chunks_exact(self.depth).zip(sums).map(row).collect()).collect()
    }
}

fn view_of(bytes: &mut [u8], dtype: AclType, dims: &[usize]) -> StridedView {
    StridedView::new(span_of(bytes), dtype, dims, &contiguous_strides(dims), 0).unwrap()
}

fn sets() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

fn assert_same(some: &Rows, all: &Rows, first: usize, what: &str) {
    for (head, (some, all)) in some.iter().zip(all).enumerate() {
        for (row, some) in some.iter().enumerate() {
            assert!(*some == all[first + row], "{what}: head {head}, row {}", first + row);
        }
    }
}

/// Row `i` sees the prompt and the keys up to `i`.
fn causal(batch: &mut AttentionBatch) {
    batch.after = batch.key_len as i64 - batch.query_len as i64;
}

#[test]
fn a_row_has_the_same_bits_in_a_prompt_in_parts_of_it_and_alone() {
    const ROWS: usize = 257;
    let types = [
        (AclType::F32, 80, 700),
        (AclType::F16, 64, 1101),
        (AclType::BF16, 16, 300),
        (AclType::BF16, 256, 530),
    ];
    for (number, (dtype, depth, keys)) in types.into_iter().enumerate() {
        for isa in sets() {
            let what = format!("{isa} {dtype} {depth}");
            let mut stored = Stored::new(dtype, depth, [3, 1], ROWS, keys);
            let all = stored.attend(&Serial, isa, 0, ROWS, keys, &causal);
            assert_same(&stored.attend(&Threads(3), isa, 0, ROWS, keys, &causal), &all, 0, &what);
            // The types share the counts, so that each remainder of a tile is seen with one or two.
            for count in (1..=22).skip(number % 3).step_by(3).chain([43, 96]) {
                let first = ROWS - count;
                let some = stored.attend(&Serial, isa, first, count, keys, &causal);
                assert_same(&some, &all, first, &format!("{what}, the last {count}"));
            }
            for row in [0, 1, 63, 64, 130, 211, 256] {
                let alone = stored.attend(&Threads(2), isa, row, 1, keys - ROWS + 1 + row, &|_| ());
                assert_same(&alone, &all, row, &format!("{what}, alone"));
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_with_a_window_of_keys_in_a_mask_and_in_a_padded_query() {
    const ROWS: usize = 150;
    const KEYS: usize = 900;
    const WINDOW: usize = 333;
    for isa in sets() {
        let mut stored = Stored::new(AclType::BF16, 64, [4, 2], ROWS, KEYS);
        let window = |batch: &mut AttentionBatch| {
            causal(batch);
            batch.before = WINDOW as i64 - batch.after;
        };
        let all = stored.attend(&Serial, isa, 0, ROWS, KEYS, &window);
        for count in [1, 2, 5, 8, 9, 33] {
            let some = stored.attend(&Serial, isa, ROWS - count, count, KEYS, &window);
            assert_same(&some, &all, ROWS - count, &format!("{isa}, the last {count}"));
        }
        let sees = |i: usize, j: usize| (i + KEYS - ROWS).saturating_sub(WINDOW) <= j && j <= i + KEYS - ROWS;
        let mut mask: Vec<u8> = (0..ROWS * KEYS).map(|at| u8::from(!sees(at / KEYS, at % KEYS))).collect();
        let mask = view(&mut mask, AclType::Bool, &[ROWS, KEYS]);
        for (first, count) in [(0, ROWS), (7, 1), (40, 9), (100, 3)] {
            let masked = |batch: &mut AttentionBatch| batch.mask = Some(mask.slice(0, first, count, 1));
            let some = stored.attend(&Serial, isa, first, count, KEYS, &masked);
            assert_same(&some, &all, first, &format!("{isa}, by a mask, {first} + {count}"));
        }
        // Three rows of the padded query are valid.
        let padded = |batch: &mut AttentionBatch| {
            batch.mask = Some(mask.slice(0, 20, 60, 1));
            batch.query_len = 3;
        };
        let some = stored.attend(&Serial, isa, 20, 60, KEYS, &padded);
        let first = some.into_iter().map(|rows| rows[..3].to_vec()).collect();
        assert_same(&first, &all, 20, &format!("{isa}, padded"));
    }
}

#[test]
fn a_key_that_is_hidden_adds_nothing_even_if_it_is_no_number() {
    const ROWS: usize = 70;
    const KEYS: usize = 300;
    for isa in sets() {
        let mut stored = Stored::new(AclType::F16, 64, [3, 1], ROWS, KEYS);
        let expected = stored.attend(&Serial, isa, 0, ROWS, KEYS, &causal);
        let bad = KEYS - 5;
        for bytes in [&mut stored.key, &mut stored.value] {
            let part = view_of(bytes, AclType::F16, &[KEYS, 64]).slice(0, bad, 5, 1);
            f32::store(&part.collapsed(), 0, &[f32::NAN, f32::INFINITY].repeat(5 * 32));
        }
        for count in [1, 2, 9, ROWS - 5] {
            let first = ROWS - 5 - count;
            // One more row, which sees one of the bad keys.
            let some = stored.attend(&Serial, isa, first, count + 1, KEYS - 4, &causal);
            let seeing =
                some.iter().all(|rows| rows[count].0.iter().all(|bits| f32::from_bits(*bits).is_nan()));
            let rest = some.into_iter().map(|rows| rows[..count].to_vec()).collect();
            assert!(seeing, "{isa}, {count}");
            assert_same(&rest, &expected, first, &format!("{isa}, {count} before NaN or infinity"));
        }
    }
}

mod order;
