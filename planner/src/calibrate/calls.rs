//! Operators that calibration measures, with the coefficients they are fitted for.
//!
//! Each coefficient has calls that depend on no other undetermined coefficient.

use ascend_tp::base::{DType, Id, Shape};
use ascend_tp::call::{BufferId, Call, View};

use super::SampleKind;

pub(super) struct CalibrationCall {
    pub(super) kind: SampleKind,
    pub(super) call: Call,
    /// Buffers that the benchmark allocates several times: weights, keys and values.
    pub(super) kept: &'static [usize],
}

fn view(buffer: usize, dtype: DType, sizes: &[usize]) -> View {
    View::contiguous(BufferId::from_index(buffer), dtype, Shape::from(sizes))
}

pub(super) fn product(dtype: DType, [m, k, n]: [usize; 3]) -> Call {
    let (a, b) = (view(0, dtype, &[m, k]), view(1, dtype, &[n, k]).permute(&[1, 0]));
    Call::Matmul { a, b, out: view(2, dtype, &[m, n]) }
}

fn batched([products, m, k, n]: [usize; 4]) -> Call {
    let (a, b) = (view(0, DType::BF16, &[products, m, k]), view(1, DType::BF16, &[products, k, n]));
    Call::Matmul { a, b, out: view(2, DType::BF16, &[products, m, n]) }
}

fn quantised([m, k, n]: [usize; 3]) -> Call {
    let (x, w) = (view(0, DType::I8, &[m, k]), view(1, DType::I8, &[n, k]));
    let (scale, tokens) = (view(3, DType::F32, &[n]), view(4, DType::F32, &[m]));
    Call::QuantMatmul { x, w, scale, tokens, bias: None, out: view(2, DType::BF16, &[m, n]) }
}

fn attention([batch, queries, keys]: [usize; 3], [heads, kv_heads]: [usize; 2], width: usize) -> Call {
    let rows = |buffer, tokens, heads| Box::new(view(buffer, DType::BF16, &[batch, tokens, heads, width]));
    Call::FusedAttention {
        q: rows(0, queries, heads),
        k: rows(1, keys, kv_heads),
        v: rows(2, keys, kv_heads),
        mask: Some(Box::new(view(3, DType::Bool, &[batch, 1, queries, keys]))),
        table: None,
        k_scale: None,
        v_scale: None,
        lengths: None,
        out: rows(4, queries, heads),
        heads,
        kv_heads,
        scale: 1.0 / (width as f64).sqrt(),
        block: 0,
        sparse_mode: 0,
        window: 0,
    }
}

pub(super) fn least() -> Call {
    silu(1, 64)
}

fn silu(rows: usize, width: usize) -> Call {
    let of = |buffer| view(buffer, DType::BF16, &[rows, width]);
    Call::Silu { x: of(0), out: of(1) }
}

fn softmax(rows: usize, width: usize) -> Call {
    let of = |buffer| view(buffer, DType::BF16, &[rows, width]);
    Call::Softmax { x: of(0), out: of(1), dim: 1 }
}

fn swiglu(rows: usize, width: usize) -> Call {
    Call::SwiGlu {
        x: view(0, DType::BF16, &[rows, 2 * width]),
        out: view(1, DType::BF16, &[rows, width]),
        dim: 1,
    }
}

fn add(elems: usize) -> Call {
    let of = |buffer| view(buffer, DType::BF16, &[elems]);
    Call::Add { a: of(0), b: of(1), out: of(2) }
}

/// `[m, k, n]`: the smallest; few rows (memory-bound); many rows (bound by the cube units or their
/// loads).
const PRODUCTS: [[usize; 3]; 20] = [
    [16, 16, 16],
    [16, 256, 256],
    [64, 512, 512],
    [1, 4096, 4096],
    [1, 8192, 8192],
    [16, 8192, 8192],
    [64, 4096, 12_288],
    [128, 4096, 4096],
    [256, 4096, 4096],
    [512, 8192, 1024],
    [1024, 4096, 4096],
    [1024, 1024, 8192],
    [2048, 8192, 2048],
    [4096, 4096, 4096],
    [8192, 4096, 2048],
    [16_384, 1024, 64],
    [16_384, 2048, 32],
    [32_768, 512, 128],
    [32_768, 1024, 64],
    [65_536, 512, 64],
];

/// Large 16-bit products wait for their loads; the cube units bound those of 32 bits.
const WIDE: [[usize; 3]; 2] = [[2048, 2048, 2048], [4096, 4096, 2048]];

const QUANTISED: [[usize; 3]; 7] = [
    [16, 256, 256],
    [1, 4096, 4096],
    [16, 8192, 8192],
    [256, 4096, 4096],
    [1024, 4096, 4096],
    [4096, 4096, 4096],
    [16_384, 1024, 64],
];

/// `[products, m, k, n]`.
const BATCHED: [[usize; 4]; 3] = [[16, 16, 128, 128], [16, 128, 512, 128], [128, 16, 128, 512]];

/// Sizes of each call: `[batch, queries, keys]`, `[heads, kv_heads]`, head dim. Narrow heads are
/// bound by the softmax, wide heads by the products.
const ATTENTION: [([usize; 3], [usize; 2], usize); 23] = [
    ([1, 1, 128], [8, 1], 128),
    ([4, 1, 256], [8, 1], 128),
    ([16, 1, 8192], [8, 1], 128),
    ([64, 1, 4096], [8, 1], 128),
    ([8, 1, 32_768], [8, 1], 128),
    ([8, 1, 1024], [32, 8], 128),
    ([16, 1, 4096], [32, 8], 128),
    ([4, 1, 16_384], [32, 8], 128),
    ([32, 1, 8192], [16, 2], 128),
    ([256, 1, 16], [32, 8], 128),
    ([256, 1, 64], [32, 8], 128),
    ([128, 1, 128], [32, 8], 128),
    ([512, 1, 16], [16, 2], 128),
    ([1, 32, 32], [1, 1], 128),
    ([1, 128, 128], [8, 8], 128),
    ([1, 1024, 1024], [8, 8], 128),
    ([1, 2048, 2048], [8, 8], 128),
    ([1, 4096, 4096], [8, 2], 128),
    ([4, 1024, 1024], [16, 2], 128),
    ([1, 2048, 2048], [8, 8], 64),
    ([1, 4096, 4096], [8, 2], 64),
    ([1, 2048, 2048], [8, 8], 256),
    ([1, 4096, 4096], [8, 2], 256),
];

const ROWS: [[usize; 2]; 8] =
    [[1, 64], [4, 128], [16, 64], [40, 64], [400, 128], [4000, 128], [40_000, 128], [4096, 4096]];

const PIECES: [usize; 7] = [64, 4 * 2048, 16 * 2048, 40 * 2048, 400 * 2048, 1 << 23, 1 << 25];

/// Far more elements than a cache holds.
const STREAMED: usize = 1 << 27;

const CACHED: [usize; 4] = [1 << 21, 1 << 22, 1 << 23, 3 << 22];

pub(super) fn all() -> Vec<CalibrationCall> {
    let of = |kind, kept: &'static [usize], call| CalibrationCall { kind, call, kept };
    let products =
        PRODUCTS.into_iter().map(|sizes| of(SampleKind::Products, &[1], product(DType::BF16, sizes)));
    let wide = WIDE.into_iter().map(|sizes| of(SampleKind::Products, &[1], product(DType::F32, sizes)));
    let quantised = QUANTISED.into_iter().map(|sizes| of(SampleKind::Products8Bit, &[1], quantised(sizes)));
    let batched = BATCHED.into_iter().map(|sizes| of(SampleKind::Batched, &[1], batched(sizes)));
    let rows = ROWS.into_iter().flat_map(|[rows, width]| [softmax(rows, width), swiglu(rows, width)]);
    let pieces = PIECES.into_iter().map(|elems| silu(1, elems));
    let vectors = rows.chain(pieces).chain([add(STREAMED)]).map(|call| of(SampleKind::Vectors, &[], call));
    let attention = ATTENTION
        .into_iter()
        .map(|(sizes, heads, width)| of(SampleKind::Attention, &[1, 2], attention(sizes, heads, width)));
    // Cache bandwidth is fitted after the vector coefficients.
    let cached = CACHED.into_iter().map(|elems| of(SampleKind::Attention, &[], add(elems)));
    products
        .chain(wide)
        .chain(quantised)
        .chain(batched)
        .chain(vectors)
        .chain(attention)
        .chain(cached)
        .collect()
}
