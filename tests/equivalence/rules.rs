//! Brute-force test of the sharding rules: every op with all operand layouts, on meshes of 2 to 4
//! cards and of 2 × 2.
//!
//! First, `collective::verify` must accept only correct result layouts. Second, `parallelize` must
//! find a correct program for any operand layouts. Partial sums are unequal and nonzero, so that no
//! wrong rule is correct by coincidence.

use std::collections::BTreeMap;
use std::sync::Arc;

use ascend_tp::base::{AxisId, DType, IdVec, Reduce, Shape};
use ascend_tp::collective::verify;
use ascend_tp::device::Cann;
use ascend_tp::placement::{self, Layout, Placed};
use ascend_tp::program::{Builder, HostTensor, Kind, Role, ValueId};
use ascend_tp::{Mesh, Pins, parallelize};

use super::{Data, check};
use crate::common::cases::{cases, first_cases, is_sampled, seed};
use crate::common::random::Random;
use crate::common::{Tensors, cann};

/// Layouts of the operands of one op on one mesh. Ops of two operands have fewer.
const LAYOUTS: usize = 25;

#[derive(Clone, Copy)]
enum Holds {
    /// Whole numbers from -3 to 3 in this type.
    Floats(DType),
    /// Multiples of 1/16 from -3/16 to 3/16 in this type.
    Small(DType),
    /// Multiples of 1/128 from -1 to 1.
    Fractions,
    /// Multiples of 1/128 from 0 to 1.
    Magnitudes,
    /// Integers from -127 to 127, one byte each.
    Bytes,
    /// Indices below this number.
    Indices(usize),
    /// Maximum of operand 0 along its last dim.
    Largest,
    /// A mask that hides only the last position of each row.
    Mask,
    /// A cache of zeros.
    Cache,
    /// A cache of 8-bit zeros.
    ByteCache,
    /// Different places below this number, for up to as many elements in a row.
    Places(usize),
    /// Blocks below this number, i32.
    Blocks(usize),
    /// Words of eight 4-bit integers, i32.
    Words,
}

struct Sample {
    kind: Kind,
    operands: Vec<(Vec<usize>, Holds)>,
}

/// Ops on caches in blocks. The sizes of the pools suit the cards of the tests.
fn samples_of_blocks() -> Vec<Sample> {
    use Holds::{Blocks, ByteCache, Bytes, Cache, Floats, Fractions, Indices, Magnitudes, Places};
    let written = |pools: usize, cache: &[usize], places: usize| {
        let new = [4, 3, cache[2], cache[3]];
        let new = (&new[..], Floats(DType::F32));
        sample(Kind::WriteSlots { pools }, &[(cache, Cache), new, (&[4, 3], Places(places))])
    };
    let read = |pools: usize, window: Option<usize>, skipped: usize, cap: Option<f64>| {
        let kind = Kind::BlockAttention { scale: 0.5, cap, window, skipped, pools };
        let cache = [8, 2, 3, 4];
        let tokens = (&[4_usize, 3][..], Indices(6));
        let queries = (&[4_usize, 3, 3, 2, 4][..], Fractions);
        let table = (&[4_usize, 3][..], Blocks(8 / pools));
        sample(kind, &[queries, (&cache, Fractions), (&cache, Fractions), table, tokens, (&[4], Indices(1))])
    };
    let written_bytes = |pools: usize, cache: &[usize], places: usize| {
        let new = [4, 3, cache[2], cache[3]];
        let operands = [(cache, ByteCache), (&new[..], Bytes), (&[4, 3][..], Places(places))];
        sample(Kind::WriteSlots { pools }, &operands)
    };
    let written_scales = |pools: usize, scales: &[usize], places: usize| {
        let new = [4, 3, scales[1]];
        let operands = [(scales, Cache), (&new[..], Magnitudes), (&[4, 3][..], Places(places))];
        sample(Kind::WriteScales { pools }, &operands)
    };
    // Queries `[b,s,k,g,d]` and blocks of `t` tokens.
    let read_bytes = |pools: usize, q: [usize; 5], t: usize, cap: Option<f64>| {
        let window = (pools > 1).then_some(3);
        let kind = Kind::QuantBlockAttention { scale: 1.0 / 1024.0, cap, window, skipped: 0, pools };
        let [b, s, k, _, d] = q;
        let (cache, scales) = ([8, t, k, d], [8, k, t]);
        let inputs: [(&[usize], Holds); 3] =
            [(&[b, 3], Blocks(8 / pools)), (&[b, s], Indices(3 * t)), (&[b], Indices(1))];
        let caches: [(&[usize], Holds); 4] =
            [(&cache, Bytes), (&scales, Magnitudes), (&cache, Bytes), (&scales, Magnitudes)];
        sample(kind, &[&[(&q[..], Floats(DType::F32))][..], &caches, &inputs].concat())
    };
    vec![
        written_bytes(1, &[8, 2, 3, 2], 16),
        written_bytes(2, &[8, 4, 3, 2], 16),
        written_scales(1, &[8, 3, 2], 16),
        written_scales(2, &[8, 3, 4], 16),
        written_scales(4, &[8, 1, 5], 10),
        read_bytes(1, [4, 3, 3, 2, 4], 2, Some(2.0)),
        read_bytes(4, [4, 3, 3, 2, 4], 2, None),
        read_bytes(2, [4, 1, 3, 2, 4], 2, None),
        written(1, &[8, 2, 3, 2], 16),
        written(2, &[8, 4, 3, 2], 16),
        written(4, &[8, 5, 1, 2], 10),
        read(1, None, 0, Some(2.0)),
        read(1, None, 1, None),
        read(4, Some(3), 0, None),
    ]
}

fn sample(kind: Kind, operands: &[(&[usize], Holds)]) -> Sample {
    let operands = operands.iter().map(|(shape, holds)| (shape.to_vec(), *holds)).collect();
    Sample { kind, operands }
}

/// Routers and experts. Small integers give ties, between elements and between groups.
fn samples_of_experts() -> Vec<Sample> {
    use Holds::{Floats, Fractions, Indices, Magnitudes};
    let f32 = Floats(DType::F32);
    // Sequences, experts and intermediate columns that no mesh of the tests divides evenly.
    let of_rows = |kind| {
        let x = [(&[3, 2, 5][..], Fractions), (&[3, 2, 2], Indices(5))];
        let projections = [(&[5, 2, 3, 5][..], Fractions), (&[5, 5, 3], Fractions)];
        sample(kind, &[&x[..], &projections, &[(&[3, 2, 2, 5], Fractions)]].concat())
    };
    vec![
        sample(Kind::Narrow { dim: 1, start: 1, size: 3 }, &[(&[2, 5, 3], f32)]),
        sample(Kind::Concat { dim: 2 }, &[(&[2, 3, 3], f32), (&[2, 3, 4], f32)]),
        sample(Kind::Sigmoid, &[(&[3, 5], Fractions)]),
        sample(Kind::Softmax, &[(&[2, 3, 5], Fractions)]),
        sample(Kind::Reciprocal { epsilon: 0.25 }, &[(&[3, 5], Magnitudes)]),
        sample(Kind::Choose { chosen: 3, groups: 1, kept: 1, summed: 1 }, &[(&[2, 3, 7], f32)]),
        sample(Kind::Choose { chosen: 3, groups: 4, kept: 2, summed: 1 }, &[(&[2, 3, 8], f32)]),
        sample(Kind::Choose { chosen: 3, groups: 3, kept: 2, summed: 2 }, &[(&[2, 3, 9], f32)]),
        // Each mesh of the tests shares 12 parts evenly.
        sample(Kind::Candidates { count: 2, parts: 12 }, &[(&[2, 3, 36], f32)]),
        sample(Kind::Candidates { count: 5, parts: 12 }, &[(&[3, 60], Fractions)]),
        sample(Kind::Pick, &[(&[2, 3, 7], Fractions), (&[2, 3, 2], Indices(7))]),
        sample(
            Kind::ExpertRows,
            &[
                (&[2, 3, 5], Fractions),
                (&[2, 3, 2], Indices(5)),
                (&[5, 2, 3, 5], Fractions),
                (&[5, 5, 3], Fractions),
            ],
        ),
        of_rows(Kind::ExpertRowsGrad),
        of_rows(Kind::TreeExpertsGrad),
        sample(
            Kind::ClippedExpertsGrad { limit: 0.75, slope: 1.7 },
            &[
                (&[2, 3, 5], Fractions),
                (&[2, 3, 2], Indices(5)),
                (&[2, 3, 2], Fractions),
                (&[5, 2, 3, 5], Fractions),
                (&[5, 5, 3], Fractions),
                (&[5, 2, 3], Fractions),
                (&[5, 5], Fractions),
                (&[2, 3, 5], Fractions),
            ],
        ),
        sample(
            Kind::ClippedExperts { limit: 0.75, slope: 1.7 },
            &[
                (&[2, 3, 5], Fractions),
                (&[2, 3, 2], Indices(5)),
                (&[2, 3, 2], Fractions),
                (&[5, 2, 3, 5], Fractions),
                (&[5, 5, 3], Fractions),
                (&[5, 2, 3], Fractions),
                (&[5, 5], Fractions),
            ],
        ),
        sample(
            Kind::Experts,
            &[
                (&[2, 3, 5], Fractions),
                (&[2, 3, 2], Indices(5)),
                (&[2, 3, 2], Fractions),
                (&[5, 2, 3, 5], Fractions),
                (&[5, 5, 3], Fractions),
            ],
        ),
    ]
}

/// Products with packed weights. Groups of a shard are whole.
fn samples_of_packed_weights() -> Vec<Sample> {
    use Holds::{Floats, Words};
    let packed = |spec: &str, sharded: usize, x: &[usize], w: &[usize], scale: &[usize], dtype: DType| {
        let kind = Kind::PackedMatMul { spec: spec.parse().unwrap(), sharded, group: 32 };
        sample(kind, &[(x, Floats(dtype)), (w, Words), (scale, Floats(dtype))])
    };
    let with_offsets =
        |spec: &str, sharded: usize, x: &[usize], w: &[usize], scale: &[usize], dtype: DType| {
            let kind = Kind::OffsetPackedMatMul { spec: spec.parse().unwrap(), sharded, group: 32 };
            sample(kind, &[(x, Floats(dtype)), (w, Words), (scale, Floats(dtype)), (scale, Floats(dtype))])
        };
    // Experts `e` with an intermediate size `[f,8]`, and inputs in two groups of 8.
    let experts = |e: usize, f: usize, dtype: DType, offsets: bool| {
        let scales: [(&[usize], Holds); 2] =
            [(&[e, 2, 2, f, 8], Holds::Small(dtype)), (&[e, f, 16], Holds::Small(dtype))];
        let operands: [(&[usize], Holds); 5] = [
            (&[2, 3, 16], Floats(dtype)),
            (&[2, 3, 2], Holds::Indices(e)),
            (&[2, 3, 2], Holds::Fractions),
            (&[e, 2, f, 8, 2], Words),
            (&[e, 16, f, 1], Words),
        ];
        let kind = if offsets { Kind::OffsetPackedExperts } else { Kind::PackedExperts };
        sample(kind, &[&operands[..], &scales, if offsets { &scales } else { &[] }].concat())
    };
    vec![
        experts(5, 3, DType::F16, false),
        experts(3, 5, DType::BF16, true),
        packed("bsi,oi->bso", 0, &[2, 3, 72], &[5, 9], &[5, 3], DType::BF16),
        packed("bskd,okd->bso", 1, &[1, 2, 3, 32], &[5, 3, 4], &[5, 3, 1], DType::F16),
        with_offsets("bsfj,hfj->bsh", 1, &[1, 3, 5, 32], &[3, 5, 4], &[3, 5, 1], DType::BF16),
        with_offsets("bskgd,okgd->bso", 1, &[1, 3, 3, 2, 32], &[2, 3, 8], &[2, 3, 2], DType::F16),
        with_offsets("ai,kdi->akd", 0, &[3, 32], &[2, 3, 4], &[2, 3, 1], DType::BF16),
    ]
}

fn samples_of_attention() -> Vec<Sample> {
    use Holds::{Fractions, Mask};
    vec![
        sample(
            Kind::CappedAttention { scale: 0.5, cap: 2.0 },
            &[
                (&[2, 3, 3, 2, 4], Fractions),
                (&[2, 5, 3, 4], Fractions),
                (&[2, 5, 3, 4], Fractions),
                (&[2, 3, 5], Mask),
            ],
        ),
        sample(
            Kind::SinkAttention { scale: 0.5 },
            &[
                (&[2, 3, 3, 2, 4], Fractions),
                (&[2, 5, 3, 4], Fractions),
                (&[2, 5, 3, 4], Fractions),
                (&[2, 3, 5], Mask),
                (&[3, 2], Fractions),
            ],
        ),
        sample(
            Kind::Attention { scale: 0.5 },
            &[
                (&[2, 3, 3, 2, 4], Fractions),
                (&[2, 5, 3, 4], Fractions),
                (&[2, 5, 3, 4], Fractions),
                (&[2, 3, 5], Mask),
            ],
        ),
    ]
}

fn samples() -> Vec<Sample> {
    use Holds::{Blocks, Bytes, Floats, Fractions, Indices, Largest, Magnitudes, Mask};
    let f32 = Floats(DType::F32);
    let matmul = |spec: &str, x: &[usize], w: &[usize]| {
        sample(
            Kind::MatMul { spec: spec.parse().unwrap() },
            &[(x, Floats(DType::F32)), (w, Floats(DType::F32))],
        )
    };
    let in_trees = |spec: &str, x: &[usize], w: &[usize]| {
        sample(Kind::TreeMatMul { spec: spec.parse().unwrap() }, &[(x, f32), (w, f32)])
    };
    let quantised = |spec: &str, q: &[usize], t: &[usize], w: &[usize], scale: &[usize], to: DType| {
        let kind = Kind::QuantMatMul { spec: spec.parse().unwrap(), to };
        sample(kind, &[(q, Bytes), (t, Fractions), (w, Bytes), (scale, Fractions)])
    };
    let static_product = |spec: &str, q: &[usize], w: &[usize], scale: &[usize], to: DType| {
        let kind = Kind::StaticMatMul { spec: spec.parse().unwrap(), to };
        sample(kind, &[(q, Bytes), (w, Bytes), (scale, Fractions), (scale, Blocks(1000))])
    };
    vec![
        quantised("bsi,oi->bso", &[2, 3, 5], &[2, 3], &[4, 5], &[4], DType::BF16),
        quantised("bskd,okd->bso", &[1, 2, 3, 2], &[1, 2], &[5, 3, 2], &[5], DType::F16),
        quantised("ai,kdi->akd", &[3, 4], &[3], &[2, 3, 4], &[2, 3], DType::F32),
        static_product("bsi,oi->bso", &[2, 3, 5], &[4, 5], &[4], DType::BF16),
        static_product("bskd,okd->bso", &[1, 2, 3, 2], &[5, 3, 2], &[5], DType::F32),
        sample(Kind::RowScale { dims: 1 }, &[(&[2, 3, 5], Floats(DType::BF16))]),
        sample(Kind::RowScale { dims: 2 }, &[(&[3, 4, 2], f32)]),
        sample(Kind::Quantise { dims: 1 }, &[(&[2, 3, 5], Floats(DType::F16)), (&[2, 3], Magnitudes)]),
        sample(Kind::Quantise { dims: 2 }, &[(&[3, 4, 2], f32), (&[3], Magnitudes)]),
        matmul("bsi,oi->bso", &[2, 3, 5], &[4, 5]),
        matmul("ab,bc->ac", &[5, 3], &[3, 2]),
        matmul("ab,cb->ca", &[1, 7], &[3, 7]),
        matmul("bak,bkc->bac", &[3, 2, 5], &[3, 5, 2]),
        matmul("bskd,okd->bso", &[1, 2, 3, 2], &[5, 3, 2]),
        matmul("a,b->ba", &[3], &[5]),
        in_trees("bskgd,okgd->bso", &[1, 2, 2, 2, 2], &[3, 2, 2, 2]),
        in_trees("bsf,of->bso", &[2, 3, 5], &[2, 5]),
        in_trees("bso,bsf->of", &[4, 2, 3], &[4, 2, 5]),
        sample(Kind::TreeSum { dim: 1, levels: 4 }, &[(&[2, 5, 3], f32)]),
        sample(Kind::TreeSum { dim: 0, levels: 2 }, &[(&[4, 3], Floats(DType::BF16))]),
        sample(Kind::GammaTerms, &[(&[2, 3, 5], Fractions), (&[2, 3, 5], Fractions), (&[2, 3], Fractions)]),
        sample(Kind::Embed, &[(&[2, 3], Indices(5)), (&[5, 3], f32)]),
        sample(Kind::Add, &[(&[3, 5], f32), (&[3, 5], f32)]),
        sample(Kind::Add, &[(&[2, 3, 5], f32), (&[5], f32)]),
        sample(Kind::Add, &[(&[3, 5], Floats(DType::BF16)), (&[3, 1], Floats(DType::BF16))]),
        sample(Kind::Mul, &[(&[3, 5], f32), (&[3, 5], f32)]),
        sample(Kind::Mul, &[(&[3, 5], Floats(DType::F16)), (&[1, 5], Floats(DType::F16))]),
        sample(Kind::Hide, &[(&[3, 5], f32), (&[3, 5], Mask)]),
        sample(Kind::Hide, &[(&[2, 3, 5], Floats(DType::F16)), (&[2, 1, 5], Mask)]),
        sample(Kind::Scale { by: -2.0 }, &[(&[3, 5], f32)]),
        sample(Kind::ReduceSum { dim: 0 }, &[(&[5, 3], f32)]),
        sample(Kind::ReduceSum { dim: 1 }, &[(&[2, 5, 3], f32)]),
        sample(Kind::ReduceMax { dim: 1 }, &[(&[3, 5], f32)]),
        sample(Kind::ReduceMax { dim: 0 }, &[(&[3, 5], f32)]),
        sample(Kind::IndexOf, &[(&[3, 7], f32), (&[3], Largest)]),
        sample(Kind::Cast { to: DType::BF16 }, &[(&[3, 5], f32)]),
        sample(Kind::Permute { dims: vec![2, 0, 1] }, &[(&[2, 3, 5], f32)]),
        sample(Kind::Take, &[(&[3, 5, 2], f32), (&[3], Indices(5))]),
        sample(Kind::Silu, &[(&[3, 5], Fractions)]),
        sample(Kind::SwiGlu, &[(&[3, 5], Fractions), (&[3, 5], Fractions)]),
        sample(Kind::GeluGate, &[(&[3, 5], Fractions), (&[3, 5], Fractions)]),
        sample(Kind::Shift { by: 1.0 }, &[(&[3, 5], f32)]),
        sample(Kind::SoftCap { cap: 2.0 }, &[(&[3, 5], Fractions)]),
        sample(Kind::InverseRoot { by: 0.5, epsilon: 0.25 }, &[(&[3, 5], Magnitudes)]),
        sample(Kind::RmsNorm { epsilon: 0.01 }, &[(&[3, 5], Fractions), (&[5], Fractions)]),
        sample(Kind::Rope, &[(&[2, 3, 3, 4], Fractions), (&[2, 3, 4], Fractions), (&[2, 3, 4], Fractions)]),
        sample(Kind::Rope, &[(&[2, 3, 3, 6], Fractions), (&[2, 3, 4], Fractions), (&[2, 3, 4], Fractions)]),
        sample(
            Kind::RopePairs,
            &[(&[2, 3, 3, 6], Fractions), (&[2, 3, 4], Fractions), (&[2, 3, 4], Fractions)],
        ),
    ]
}

impl Sample {
    fn is_state(&self, operand: usize) -> bool {
        matches!(self.operands[operand].1, Holds::Cache | Holds::ByteCache)
    }

    /// Returns the operands that are caches in blocks.
    fn caches(&self) -> &'static [usize] {
        match self.kind {
            Kind::WriteSlots { .. } | Kind::WriteScales { .. } => &[0],
            Kind::BlockAttention { .. } => &[1, 2],
            Kind::QuantBlockAttention { .. } => &[1, 2, 3, 4],
            _ => &[],
        }
    }

    /// Returns the dim of the tokens in the blocks of operand 0, which stays whole.
    fn token_dim(&self) -> usize {
        if matches!(self.kind, Kind::WriteScales { .. }) { 2 } else { 1 }
    }

    fn pools(&self) -> usize {
        match self.kind {
            Kind::WriteSlots { pools }
            | Kind::WriteScales { pools }
            | Kind::BlockAttention { pools, .. }
            | Kind::QuantBlockAttention { pools, .. } => pools,
            _ => 1,
        }
    }

    fn dtype(&self, operand: usize) -> DType {
        match self.operands[operand].1 {
            Holds::Floats(dtype) | Holds::Small(dtype) => dtype,
            Holds::Indices(_) | Holds::Places(_) => DType::I64,
            Holds::Blocks(_) | Holds::Words => DType::I32,
            Holds::Mask => DType::Bool,
            Holds::Bytes | Holds::ByteCache => DType::I8,
            Holds::Fractions | Holds::Magnitudes | Holds::Largest | Holds::Cache => DType::F32,
        }
    }

    fn on_axis(&self, operand: usize, partial: bool) -> Vec<OnAxis> {
        let sharded = (0..self.operands[operand].0.len()).map(OnAxis::Sharded);
        let mut found: Vec<OnAxis> = [OnAxis::Whole].into_iter().chain(sharded).collect();
        if partial && self.dtype(operand).is_float() && !self.is_state(operand) {
            found.extend([OnAxis::Partial(Reduce::Sum), OnAxis::Partial(Reduce::Max)]);
        }
        found
    }

    fn data(&self, operand: usize, seed: u64, shape: &[usize], earlier: &[HostTensor]) -> HostTensor {
        let mut random = Random::new(seed);
        let elems: usize = shape.iter().product();
        match self.operands[operand].1 {
            Holds::Floats(dtype) => {
                HostTensor::float(shape, dtype, (0..elems).map(|_| random.below(7) as f32 - 3.0).collect())
            }
            Holds::Small(dtype) => {
                let data = (0..elems).map(|_| (random.below(7) as f32 - 3.0) / 16.0).collect();
                HostTensor::float(shape, dtype, data)
            }
            Holds::Fractions => {
                let data = (0..elems).map(|_| (random.below(257) as f32 - 128.0) / 128.0).collect();
                HostTensor::float(shape, DType::F32, data)
            }
            Holds::Magnitudes => {
                let data = (0..elems).map(|_| random.below(129) as f32 / 128.0).collect();
                HostTensor::float(shape, DType::F32, data)
            }
            Holds::Indices(below) => HostTensor::int(
                shape,
                DType::I64,
                (0..elems).map(|_| random.below(below as u64) as i64).collect(),
            ),
            Holds::Places(below) => {
                let place = |at: usize| ((at * 3 + 1) % below) as i64;
                HostTensor::int(shape, DType::I64, (0..elems).map(place).collect())
            }
            Holds::Words => HostTensor::int(
                shape,
                DType::I32,
                (0..elems).map(|_| i64::from(random.below(1 << 32) as u32 as i32)).collect(),
            ),
            Holds::Blocks(below) => HostTensor::int(
                shape,
                DType::I32,
                (0..elems).map(|_| random.below(below as u64) as i64).collect(),
            ),
            Holds::Bytes => HostTensor::int(
                shape,
                DType::I8,
                (0..elems).map(|_| random.below(255) as i64 - 127).collect(),
            ),
            Holds::Mask => {
                let t = shape[shape.len() - 1];
                let data = (0..elems).map(|at| i64::from(at % t + 1 < t && random.below(2) == 1)).collect();
                HostTensor::int(shape, DType::Bool, data)
            }
            Holds::Largest => {
                let x = &earlier[0];
                let rows = x.floats().chunks(x.shape[x.shape.rank() - 1]);
                let largest = rows.map(|row| row.iter().copied().fold(f32::MIN, f32::max)).cycle();
                HostTensor::float(shape, DType::F32, largest.take(elems).collect())
            }
            Holds::Cache => HostTensor::zeros(shape, DType::F32),
            Holds::ByteCache => HostTensor::zeros(shape, DType::I8),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum OnAxis {
    Whole,
    Sharded(usize),
    Partial(Reduce),
}

type Combination = Vec<(Vec<OnAxis>, OnAxis)>;

fn layout(rank: usize, on: impl Iterator<Item = (AxisId, OnAxis)>) -> Layout {
    on.fold(Layout::replicated(rank), |layout, (axis, on)| match on {
        OnAxis::Whole => layout,
        OnAxis::Sharded(dim) => layout.sharded(dim, axis),
        OnAxis::Partial(reduce) => layout.with_partial(axis, reduce),
    })
}

/// Builds one program with a copy of the sample for each combination.
///
/// A partial operand is the reduction of an input with one more dim per partial axis.
fn placed(sample: &Sample, mesh: &Mesh, combinations: &[Combination]) -> (Placed, Tensors) {
    let mut build = Builder::new(sample.kind.row().name);
    let mut layouts: BTreeMap<usize, Layout> = BTreeMap::new();
    let mut inputs = Tensors::new();
    let axes = mesh.ids();
    for (number, combination) in combinations.iter().enumerate() {
        let mut operands = Vec::new();
        let mut data: Vec<HostTensor> = Vec::new();
        for (operand, (shape, _)) in sample.operands.iter().enumerate() {
            let on: Vec<(AxisId, OnAxis)> = axes
                .iter()
                .copied()
                .zip(combination)
                .map(|(axis, (operands, _))| (axis, operands[operand]))
                .collect();
            let partial: Vec<(AxisId, Reduce)> = on
                .iter()
                .filter_map(
                    |(axis, on)| if let OnAxis::Partial(reduce) = on { Some((*axis, *reduce)) } else { None },
                )
                .collect();
            let sizes: Vec<usize> =
                partial.iter().map(|(axis, _)| mesh.size(*axis)).chain(shape.iter().copied()).collect();
            let name = format!("{number}.{operand}");
            let seed = (number * 10 + operand) as u64;
            let tensor = sample.data(operand, seed, &sizes, &data);
            let mut id = if sample.is_state(operand) {
                build.state(&name, sizes.clone(), sample.dtype(operand))
            } else {
                inputs.insert(name.clone(), tensor.clone());
                build.input(&name, sizes.clone(), sample.dtype(operand))
            };
            data.push(tensor);
            let whole_on = |skip: usize| {
                // After `skip` reductions, the value is partial on the first axes and sharded in
                // front on the remaining axes.
                let front = partial.len() - skip;
                let mut layout = Layout::replicated(front + shape.len());
                for (axis, on) in &on {
                    match on {
                        OnAxis::Whole => {}
                        OnAxis::Sharded(dim) => layout = layout.sharded(front + dim, *axis),
                        OnAxis::Partial(reduce) => {
                            let at = partial.iter().position(|(found, _)| found == axis).unwrap_or_default();
                            layout = match at.checked_sub(skip) {
                                Some(dim) => layout.sharded(dim, *axis),
                                None => layout.with_partial(*axis, *reduce),
                            };
                        }
                    }
                }
                layout
            };
            layouts.insert(layouts.len(), whole_on(0));
            for (done, (_, reduce)) in partial.iter().enumerate() {
                let kind = if *reduce == Reduce::Sum {
                    Kind::ReduceSum { dim: 0 }
                } else {
                    Kind::ReduceMax { dim: 0 }
                };
                id = build.op(kind, &[id]);
                layouts.insert(layouts.len(), whole_on(done + 1));
            }
            operands.push(id);
        }
        let result = build.op(sample.kind.clone(), &operands);
        build.name(result, format!("{combination:?}"));
        layouts.insert(layouts.len(), Layout::replicated(0));
    }
    let program = build.finish().unwrap_or_else(|problems| panic!("{problems}"));
    let mut all: IdVec<ValueId, Layout> = layouts.into_values().collect();
    let results: Vec<ValueId> = program
        .ops
        .values()
        .iter()
        .filter(|op| op.kind == sample.kind && !program.values[op.result()].name.is_empty())
        .map(|op| op.result())
        .collect();
    for (id, combination) in results.into_iter().zip(combinations) {
        let on = axes.iter().copied().zip(combination).map(|(axis, (_, result))| (axis, *result));
        all[id] = layout(program.values[id].shape.rank(), on);
    }
    (Placed { program, mesh: mesh.clone(), layouts: all }, inputs)
}

fn product<T: Copy>(lists: &[Vec<T>]) -> Vec<Vec<T>> {
    lists.iter().fold(vec![Vec::new()], |found, list| {
        found.iter().flat_map(|head| list.iter().map(move |item| [&head[..], &[*item]].concat())).collect()
    })
}

fn accepted(sample: &Sample, mesh: &Mesh) -> Vec<(Vec<OnAxis>, OnAxis)> {
    let rank = {
        let whole: Combination =
            mesh.ids().iter().map(|_| (vec![OnAxis::Whole; sample.operands.len()], OnAxis::Whole)).collect();
        let (placed, _) = placed(sample, mesh, &[whole]);
        placed.program.values.values().last().map_or(0, |value| value.shape.rank())
    };
    let mut results: Vec<OnAxis> =
        [OnAxis::Whole].into_iter().chain((0..rank).map(OnAxis::Sharded)).collect();
    results.extend([Reduce::Sum, Reduce::Tree, Reduce::Max, Reduce::Min].map(OnAxis::Partial));
    let operands: Vec<Vec<OnAxis>> = (0..sample.operands.len()).map(|at| sample.on_axis(at, true)).collect();
    let mut found = Vec::new();
    for operands in product(&operands) {
        for result in &results {
            let (placed, _) = placed(sample, mesh, &[vec![(operands.clone(), *result)]]);
            if verify(&placed).is_ok() {
                found.push((operands.clone(), *result));
            }
        }
    }
    found
}

fn run(cann: &Arc<Cann>, placed: &Placed, inputs: Tensors) {
    let data = Data { params: Tensors::new(), inputs: vec![inputs] };
    if let Err(problem) = check(cann, placed, &data) {
        panic!("{problem}\n{}", placement::print(placed));
    }
}

#[test]
fn what_verify_accepts_is_what_the_cards_hold() {
    let cann = cann(4);
    // Seven operands or more have too many layouts for a test. The other test draws a few layouts.
    // With six, an op takes as long as ten others.
    let has_few = |at: usize, sample: &Sample| match sample.operands.len() {
        0..5 => true,
        5 => is_sampled(at, 2),
        6 => is_sampled(at, 4),
        _ => false,
    };
    let all = samples()
        .into_iter()
        .chain(samples_of_attention())
        .chain(samples_of_blocks())
        .chain(samples_of_experts())
        .chain(samples_of_packed_weights());
    for (at, sample) in all.enumerate().filter(|(at, sample)| has_few(*at, sample)) {
        for cards in (2..=4).filter(|cards| *cards == 2 || is_sampled(at + cards, 4)) {
            let mesh = Mesh::new(&[("tp", cards)]).unwrap();
            let found = accepted(&sample, &mesh);
            assert!(found.len() > 1, "{}: nothing but whole operands is accepted", sample.kind.row().name);
            let combinations: Vec<Combination> = found.iter().map(|one| vec![one.clone()]).collect();
            let (placed, inputs) = placed(&sample, &mesh, &combinations);
            run(&cann, &placed, inputs);
            if cards == 2 {
                two_axes(&cann, &sample, &found);
            }
        }
    }
}

/// A combination of correct layouts on two axes is correct on both, unless different reductions
/// meet, or pools are split.
fn two_axes(cann: &Arc<Cann>, sample: &Sample, found: &[(Vec<OnAxis>, OnAxis)]) {
    let mesh = Mesh::new(&[("a", 2), ("b", 2)]).unwrap();
    let mut random = Random::new(found.len() as u64);
    let pairs = product(&[(0..found.len()).collect::<Vec<_>>(), (0..found.len()).collect()]);
    let order = random.shuffled(pairs.len());
    let combinations = order.into_iter().take(cases(16)).filter_map(|at| {
        let combination: Combination = pairs[at].iter().map(|one| found[*one].clone()).collect();
        let reductions = |at: usize| {
            let on =
                |(operands, result): &(Vec<OnAxis>, OnAxis)| operands.get(at).copied().unwrap_or(*result);
            let mut kinds: Vec<Reduce> = combination
                .iter()
                .map(on)
                .filter_map(|on| if let OnAxis::Partial(reduce) = on { Some(reduce) } else { None })
                .collect();
            kinds.dedup();
            kinds.len()
        };
        let parts = |at: usize| -> usize {
            let on = combination.iter().map(|(operands, _)| operands.get(at));
            on.filter(|on| *on == Some(&OnAxis::Sharded(0))).map(|_| 2).product()
        };
        let keeps_pools = sample.caches().iter().all(|at| sample.pools().is_multiple_of(parts(*at)));
        let is_right = keeps_pools && (0..=sample.operands.len()).all(|at| reductions(at) <= 1);
        is_right.then_some(combination)
    });
    let combinations: Vec<Combination> = combinations.collect();
    let (placed, inputs) = placed(sample, &mesh, &combinations);
    verify(&placed).unwrap_or_else(|problems| panic!("{problems}"));
    run(cann, &placed, inputs);
}

#[test]
fn parallelize_suits_every_layout_of_the_operands() {
    let cann = cann(4);
    let all = samples()
        .into_iter()
        .chain(samples_of_attention())
        .chain(samples_of_blocks())
        .chain(samples_of_experts())
        .chain(samples_of_packed_weights());
    for (at, sample) in all.enumerate() {
        for cards in (2..=4).filter(|cards| *cards == 3 || is_sampled(at + cards, 3)) {
            let mesh = Mesh::new(&[("tp", cards)]).unwrap();
            let lists: Vec<Vec<OnAxis>> =
                (0..sample.operands.len()).map(|at| sample.on_axis(at, false)).collect();
            // Caches are sharded as the op allows; other operands have any layout.
            let mut all = product(&lists);
            all.retain(|on| {
                let splits = on[0] == OnAxis::Sharded(0) && !sample.pools().is_multiple_of(cards);
                !(sample.is_state(0) && (on[0] == OnAxis::Sharded(sample.token_dim()) || splits))
            });
            let drawn = Random::new(seed()).shuffled(all.len());
            let combinations: Vec<Combination> = first_cases(&drawn, LAYOUTS)
                .iter()
                .map(|at| vec![(all[*at].clone(), OnAxis::Whole)])
                .collect();
            for combinations in combinations.chunks(100) {
                let (placed, inputs) = placed(&sample, &mesh, combinations);
                let mut program = placed.program;
                let mut pins = Pins::default();
                for (id, value) in program.values.iter().filter(|(_, value)| value.role != Role::Result) {
                    let dims: Vec<(usize, &str)> = placed.layouts[id]
                        .dims
                        .iter()
                        .enumerate()
                        .filter(|(_, axes)| !axes.is_empty())
                        .map(|(dim, _)| (dim, "tp"))
                        .collect();
                    pins = pins.value(&value.name, &dims);
                }
                if sample.kind.row().in_place.is_empty() {
                    program.outputs = results(&program)
                        .into_iter()
                        .enumerate()
                        .map(|(at, id)| (at.to_string(), id))
                        .collect();
                }
                let split = parallelize(&program, &mesh, &pins).unwrap_or_else(|problems| {
                    panic!("{mesh}: {problems}\n{}", ascend_tp::program::text::print(&program))
                });
                run(&cann, &split.lowered, inputs);
            }
        }
    }
}

fn results(program: &ascend_tp::program::Program) -> Vec<ValueId> {
    program.ops.values().iter().map(|op| op.result()).collect()
}

#[test]
fn shapes_of_the_samples_divide_on_no_mesh() {
    // Otherwise no test here would cover uneven shards.
    let uneven = |shape: &Shape| shape.iter().any(|size| (2..=4).any(|cards| size % cards != 0));
    assert!(
        samples().iter().all(|sample| sample.operands.iter().any(|(shape, _)| uneven(&shape.clone().into())))
    );
}
