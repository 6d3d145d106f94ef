//! Random Transformer blocks. Their results are not exact.

use ascend_tp::base::{DType, Precision, Weights};
use ascend_tp::program::models::{RunShape, cache_inputs};
use ascend_tp::program::{Builder, HostTensor, Kind, Operand, Program};
use proptest::prelude::*;

use crate::common::Tensors;
use crate::common::random::Random;

#[derive(Clone, Debug)]
pub(crate) struct Block {
    precision: Precision,
    batch: usize,
    sequence: usize,
    spare: usize,
    kv_heads: usize,
    group: usize,
    head_size: usize,
    hidden: usize,
    intermediate: usize,
    seed: u64,
}

/// Head size 16 suits the fused attention in 16-bit types.
pub(crate) fn blocks(precision: Precision) -> impl Strategy<Value = Block> {
    let head_size = prop_oneof![Just(16_usize), Just(2), Just(6)];
    let sizes = (
        1..=3_usize,
        1..=5_usize,
        0..=3_usize,
        1..=4_usize,
        1..=3_usize,
        head_size,
        1..=9_usize,
        1..=9_usize,
    );
    (sizes, 0..1000_u64).prop_map(
        move |((batch, sequence, spare, kv_heads, group, head_size, hidden, intermediate), seed)| Block {
            precision,
            batch,
            sequence,
            spare,
            kv_heads,
            group,
            head_size,
            hidden,
            intermediate,
            seed,
        },
    )
}

pub(crate) struct DrawnBlock {
    pub(crate) program: Program,
    pub(crate) params: Tensors,
    pub(crate) inputs: Tensors,
    pub(crate) pinnable: Vec<(String, Vec<usize>)>,
    pub(crate) weights: Vec<String>,
}

struct Writer {
    build: Builder,
    dtype: DType,
    linear: Weights,
    random: Random,
    drawn: (Tensors, Tensors),
    pinnable: Vec<(String, Vec<usize>)>,
    weights: Vec<String>,
}

impl Writer {
    /// Returns numbers from -1 to 1 that f16 and bf16 represent exactly.
    fn floats(&mut self, shape: &[usize]) -> HostTensor {
        let elems = shape.iter().product();
        let data = (0..elems).map(|_| (self.random.below(257) as f32 - 128.0) / 128.0).collect();
        HostTensor::float(shape.to_vec(), self.dtype, data)
    }

    fn param(&mut self, name: &str, shape: &[usize]) -> Operand {
        let tensor = self.floats(shape);
        self.given(name, tensor)
    }

    fn given(&mut self, name: &str, tensor: HostTensor) -> Operand {
        let id = self.build.param(name, tensor.shape.clone(), tensor.dtype);
        self.pinnable.push((name.to_owned(), (0..tensor.shape.rank()).collect()));
        self.drawn.0.insert(name.to_owned(), tensor);
        id
    }

    fn input(&mut self, name: &str, tensor: HostTensor) -> Operand {
        let id = self.build.input(name, tensor.shape.clone(), tensor.dtype);
        self.pinnable.push((name.to_owned(), (0..tensor.shape.rank()).collect()));
        self.drawn.1.insert(name.to_owned(), tensor);
        id
    }

    fn matmul(&mut self, name: &str, spec: &str, x: Operand, shape: &[usize]) -> Operand {
        self.weights.push(name.to_owned());
        if self.linear == Weights::Float {
            let weight = self.param(name, shape);
            return self.build.matmul(spec, x, weight);
        }
        let bytes = (0..shape.iter().product()).map(|_| self.random.below(255) as i64 - 127).collect();
        let weight = self.given(name, HostTensor::int(shape.to_vec(), DType::I8, bytes));
        // The contracted dims are last in every weight here.
        let spec = self.build.einsum(spec);
        let rows = &shape[..spec.scale().len()];
        let scales =
            (0..rows.iter().product()).map(|_| (self.random.below(128) + 1) as f32 / 16384.0).collect();
        let scale =
            self.given(&format!("{name}.scale"), HostTensor::float(rows.to_vec(), DType::F32, scales));
        let dims = spec.summed().len();
        let tokens = self.build.op(Kind::RowScale { dims }, &[x]);
        let q = self.build.op(Kind::Quantise { dims }, &[x, tokens]);
        self.build.op(Kind::QuantMatMul { spec, to: self.dtype }, &[q, tokens, weight, scale])
    }

    fn named(&mut self, name: &str, rank: usize, value: Operand) -> Operand {
        self.pinnable.push((name.to_owned(), (0..rank).collect()));
        self.build.name(value, name)
    }
}

impl Block {
    pub(crate) fn draw(&self) -> DrawnBlock {
        let Self {
            batch: b,
            sequence: s,
            kv_heads: k,
            group: g,
            head_size: d,
            hidden: h,
            intermediate: f,
            ..
        } = *self;
        let run = RunShape::new(b, s, s + self.spare);
        let blocks = run.caches.blocks;
        let places: [_; 4] = cache_inputs(run, &vec![0..s; b]).try_into().unwrap();
        let mut w = Writer {
            build: Builder::new("block"),
            dtype: self.precision.activations,
            linear: self.precision.weights,
            random: Random::new(self.seed),
            drawn: Default::default(),
            pinnable: Vec::new(),
            weights: Vec::new(),
        };
        let x = w.floats(&[b, s, h]);
        let x = w.input("x", x);
        // Causal attention in cache order.
        let [slots, table, positions, lengths] = places.map(|(name, tensor)| w.input(name, tensor));
        let angles = w.floats(&[b, s, d]);
        let cos = w.input("cos", angles);
        let angles = w.floats(&[b, s, d]);
        let sin = w.input("sin", angles);

        let gamma = w.param("norm1", &[h]);
        let y = w.build.rms_norm(x, gamma, 1e-2);
        let y = w.named("normed", 3, y);
        let q = w.matmul("q", "bsi,kgdi->bskgd", y, &[k, g, d, h]);
        let q = w.build.op(Kind::Rope, &[q, cos, sin]);
        let q = w.named("queries", 5, q);
        let cached = |w: &mut Writer, name: &str, rotate: bool| {
            let mut y = w.matmul(name, "bsi,kdi->bskd", y, &[k, d, h]);
            if rotate {
                y = w.build.op(Kind::Rope, &[y, cos, sin]);
            }
            let cache = w.build.state(&format!("{name}.cache"), [blocks.count, blocks.rows, k, d], w.dtype);
            w.build.op(Kind::WriteSlots { pools: 1 }, &[cache, y, slots])
        };
        let (keys, values) = (cached(&mut w, "k", true), cached(&mut w, "v", false));
        let scale = (d as f64).sqrt().recip();
        let kind = Kind::BlockAttention { scale, cap: None, window: None, skipped: 0, pools: 1 };
        let y = w.build.op(kind, &[q, keys, values, table, positions, lengths]);
        let y = w.named("heads", 5, y);
        let y = w.matmul("o", "bskgd,okgd->bso", y, &[h, k, g, d]);
        let sum = w.build.add(x, y);
        let sum = w.named("residual", 3, sum);
        let gamma = w.param("norm2", &[h]);
        let y = w.build.rms_norm(sum, gamma, 1e-2);
        let gate = w.matmul("gate", "bsi,fi->bsf", y, &[f, h]);
        let up = w.matmul("up", "bsi,fi->bsf", y, &[f, h]);
        let hidden = w.build.op(Kind::SwiGlu, &[gate, up]);
        let hidden = w.named("hidden", 3, hidden);
        let y = w.matmul("down", "bsf,of->bso", hidden, &[h, f]);
        let y = w.build.op(Kind::Silu, &[y]);
        let y = w.build.add(sum, y);
        w.build.output("y", y);
        let program = w.build.finish().unwrap_or_else(|problems| panic!("{problems}"));
        let (params, inputs) = w.drawn;
        DrawnBlock { program, params, inputs, pinnable: w.pinnable, weights: w.weights }
    }
}
