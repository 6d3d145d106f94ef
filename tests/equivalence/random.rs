//! Random programs with exact numbers: small multiples of a power of two with tracked bounds, so
//! any summation order gives the same bits.
//!
//! Input: genes, plain numbers that shrink well. Output: [`Drawn`], a program with data. Genes that
//! do not fit are skipped, so every list of genes is a program.

use ascend_tp::base::HostData;
use ascend_tp::base::{DType, Id, Shape};
use ascend_tp::program::grad::gradients;
use ascend_tp::program::interpret::meaning;
use ascend_tp::program::{Builder, HostTensor, Kind, Op, Operand, Program, Role, interpret};
use proptest::prelude::*;

use crate::common::Tensors;
use crate::common::random::Random;

#[derive(Clone, Debug)]
pub(crate) struct Gene {
    op: u8,
    picks: [u16; 5],
}

#[derive(Clone, Debug)]
pub(crate) struct Genome {
    sizes: [usize; 4],
    dtype: u8,
    first: Vec<u8>,
    genes: Vec<Gene>,
}

pub(crate) fn genomes() -> impl Strategy<Value = Genome> {
    let gene = (0..15_u8, any::<[u16; 5]>()).prop_map(|(op, picks)| Gene { op, picks });
    let sizes = [1..=7_usize, 1..=7, 1..=7, 1..=7];
    let first = proptest::collection::vec(0..4_u8, 1..=4);
    (sizes, 0..3_u8, first, proptest::collection::vec(gene, 1..=14))
        .prop_map(|(sizes, dtype, first, genes)| Genome { sizes, dtype, first, genes })
}

#[derive(Clone, Debug)]
enum Fill {
    /// Whole numbers from -bound to bound.
    Floats { bound: i64 },
    /// Indices below this number.
    Indices { below: usize },
    /// Different indices below this number.
    Places { below: usize },
}

#[derive(Clone, Debug)]
struct Leaf {
    name: String,
    shape: Shape,
    dtype: DType,
    is_param: bool,
    fill: Fill,
}

#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) program: Program,
    leaves: Vec<Leaf>,
    pub(crate) pinnable: Vec<(String, Vec<usize>)>,
    pub(crate) weights: Vec<String>,
}

impl Drawn {
    pub(crate) fn params(&self) -> Tensors {
        self.fill(true, 0)
    }

    pub(crate) fn inputs(&self, run: u64) -> Tensors {
        self.fill(false, run)
    }

    fn fill(&self, params: bool, run: u64) -> Tensors {
        let leaves = self.leaves.iter().enumerate().filter(|(_, leaf)| leaf.is_param == params);
        leaves.map(|(index, leaf)| (leaf.name.clone(), leaf.tensor(index as u64 + 1000 * run))).collect()
    }
}

impl Drawn {
    /// Returns whether the first run is exact in any summation order: sums of absolute values fit
    /// the element type.
    pub(crate) fn is_exact(&self) -> bool {
        let given: Tensors = self.params().into_iter().chain(self.inputs(0)).collect();
        let values = interpret(&self.program, |_, value| given[&value.name].clone());
        let absolute = |tensor: &HostTensor| match &tensor.data {
            HostData::Float(data) => {
                HostTensor { data: HostData::Float(data.iter().map(|x| x.abs()).collect()), ..tensor.clone() }
            }
            HostData::Int(_) => tensor.clone(),
        };
        let largest =
            |tensor: &HostTensor| tensor.floats().iter().fold(0.0, |most: f32, x| most.max(x.abs()));
        let holds_all = |op: &Op| {
            let operands: Vec<HostTensor> =
                op.operands.iter().map(|id| absolute(&values[id.index()])).collect();
            let bound = match &op.kind {
                // A difference of two products.
                Kind::Rope => largest(&operands[0]) * (largest(&operands[1]) + largest(&operands[2])),
                kind => {
                    let kind = match kind {
                        Kind::Scale { by } => Kind::Scale { by: by.abs() },
                        kind => kind.clone(),
                    };
                    let op = Op { kind, ..op.clone() };
                    let sums = meaning(&self.program, &op, &operands.iter().collect::<Vec<_>>());
                    sums.iter().map(largest).fold(0.0, f32::max)
                }
            };
            let dtype = self.program.values[op.result()].dtype;
            !dtype.is_float() || holds(dtype, bound as u64, 0)
        };
        self.program.ops.values().iter().all(holds_all)
    }
}

impl Leaf {
    fn tensor(&self, seed: u64) -> HostTensor {
        let mut random = Random::new(seed);
        let elems = self.shape.elems();
        match self.fill {
            Fill::Floats { bound } => {
                let mut number = || random.below(2 * bound as u64 + 1) as i64 - bound;
                let data = (0..elems).map(|_| number() as f32).collect();
                HostTensor::float(self.shape.clone(), self.dtype, data)
            }
            Fill::Indices { below } => {
                let data = (0..elems).map(|_| random.below(below as u64) as i64).collect();
                HostTensor::int(self.shape.clone(), self.dtype, data)
            }
            Fill::Places { below } => {
                let places = random.shuffled(below).into_iter().take(elems).map(|place| place as i64);
                HostTensor::int(self.shape.clone(), self.dtype, places.collect())
            }
        }
    }
}

const MAX_ELEMS: usize = 1500;
const MAX_RANK: usize = 5;

/// Returns whether `dtype` represents all multiples of `2^-grain` up to `bound`.
fn holds(dtype: DType, bound: u64, grain: u32) -> bool {
    let digits = match dtype {
        DType::BF16 => 8,
        DType::F16 => 11,
        _ => 24,
    };
    // f16 has no numbers above 65504 and no steps below 2^-24.
    bound.checked_shl(grain).is_some_and(|steps| steps <= 1 << digits) && bound < 1 << 15 && grain < 12
}

#[derive(Clone, Debug)]
struct Known {
    id: Operand,
    shape: Vec<usize>,
    dtype: DType,
    bound: u64,
    /// Values are multiples of `2^-grain`.
    grain: u32,
}

struct Ids {
    id: Operand,
    shape: Vec<usize>,
    below: usize,
}

struct Writer<'a> {
    genome: &'a Genome,
    build: Builder,
    known: Vec<Known>,
    ids: Vec<Ids>,
    leaves: Vec<Leaf>,
    pinnable: Vec<(String, Vec<usize>)>,
    weights: Vec<String>,
    names: usize,
    is_differentiable: bool,
}

impl Genome {
    pub(crate) fn draw(&self) -> Drawn {
        self.written(false).finish()
    }

    pub(crate) fn draw_gradients(&self) -> Option<Drawn> {
        self.written(true).finish_gradients()
    }

    fn written(&self, is_differentiable: bool) -> Writer<'_> {
        let mut writer = Writer {
            genome: self,
            is_differentiable,
            build: Builder::new("random"),
            known: Vec::new(),
            ids: Vec::new(),
            leaves: Vec::new(),
            pinnable: Vec::new(),
            weights: Vec::new(),
            names: 0,
        };
        let shape: Vec<usize> = self.first.iter().map(|size| self.sizes[usize::from(*size)]).collect();
        let dtype = [DType::F32, DType::F16, DType::BF16][usize::from(self.dtype)];
        writer.leaf(&shape, dtype, false, 3);
        for gene in &self.genes {
            writer.write(gene);
        }
        writer
    }
}

impl Writer<'_> {
    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn given(&mut self, shape: &[usize], dtype: DType, is_param: bool, fill: Fill) -> Operand {
        let name = self.name(if is_param { "w" } else { "in" });
        let id = if is_param {
            self.build.param(&name, shape.to_vec(), dtype)
        } else {
            self.build.input(&name, shape.to_vec(), dtype)
        };
        self.pinnable.push((name.clone(), (0..shape.len()).collect()));
        self.leaves.push(Leaf { name, shape: shape.into(), dtype, is_param, fill });
        id
    }

    fn leaf(&mut self, shape: &[usize], dtype: DType, is_param: bool, bound: u64) -> Known {
        let id = self.given(shape, dtype, is_param, Fill::Floats { bound: bound as i64 });
        let known = Known { id, shape: shape.to_vec(), dtype, bound, grain: 0 };
        if !is_param {
            self.known.push(known.clone());
        }
        known
    }

    fn result(&mut self, kind: Kind, operands: &[Operand], like: Known) {
        let id = self.build.op(kind, operands);
        let name = self.name("v");
        self.build.name(id, name.clone());
        self.pinnable.push((name, (0..like.shape.len()).collect()));
        self.known.push(Known { id, ..like });
    }

    fn size(&self, pick: u16) -> usize {
        self.genome.sizes[usize::from(pick) % 4]
    }

    fn write(&mut self, gene: &Gene) {
        let [pick, a, b, c, d] = gene.picks;
        let x = self.known[usize::from(pick) % self.known.len()].clone();
        match gene.op {
            0 | 1 => self.matmul(&x, a, b, c, d),
            2 => self.binary(&x, &Kind::Add, a, b),
            3 => self.binary(&x, &Kind::Mul, a, b),
            4 => self.scale(&x, a),
            5 => self.reduce(&x, usize::from(a), true),
            6 if self.is_differentiable => self.rope(&x),
            6 => self.reduce(&x, usize::from(a), false),
            7 => self.index_of(&x),
            8 => self.permute(&x, a),
            9 => self.take(&x),
            10 => self.cast(&x, a),
            11 if self.is_differentiable => self.expand(&x, a, b),
            11 => self.cache_write(&x, a),
            12 => self.embed(x.dtype, a, b, c),
            13 => {
                let shape: Vec<usize> = [a, b, c].iter().map(|pick| self.size(*pick)).collect();
                self.leaf(&shape[..1 + usize::from(d) % 3], x.dtype, false, 3);
            }
            _ if self.is_differentiable => self.binary(&x, &Kind::Total, 0, 0),
            _ => self.binary(&x, &Kind::Add, 0, 0),
        }
    }

    /// Contracts or keeps each dim of `x`; the other operand is a new weight, a new input, or `x`.
    fn matmul(&mut self, x: &Known, roles: u16, order: u16, new: u16, other: u16) {
        let mut letters = (b'a'..=b'z').map(char::from);
        let x_letters: Vec<char> = letters.by_ref().take(x.shape.len()).collect();
        let (mut w_letters, mut w_shape, mut out): (Vec<char>, Vec<usize>, Vec<char>) = Default::default();
        let mut summed = 1;
        for (dim, letter) in x_letters.iter().enumerate() {
            let role = roles >> (2 * dim) & 3;
            if role != 3 {
                w_letters.push(*letter);
                w_shape.push(x.shape[dim]);
            }
            if role == 0 || role == 1 {
                summed *= x.shape[dim];
            } else {
                out.push(*letter);
            }
            if role == 3 && other % 4 == 3 {
                let letter = letters.next().unwrap_or('z');
                w_letters.push(letter);
                w_shape.push(x.shape[dim]);
                out.push(letter);
            }
        }
        let w = if other % 4 == 3 {
            x.clone()
        } else {
            for pick in [new, new >> 4].iter().take(usize::from(new >> 8) % 3) {
                let letter = letters.next().unwrap_or('z');
                w_letters.push(letter);
                w_shape.push(self.size(*pick));
                out.push(letter);
            }
            let shuffle = Random::new(u64::from(order)).shuffled(w_letters.len());
            w_letters = shuffle.iter().map(|at| w_letters[*at]).collect();
            w_shape = shuffle.iter().map(|at| w_shape[*at]).collect();
            Known { shape: w_shape.clone(), bound: 2, grain: 0, ..x.clone() }
        };
        let out: Vec<char> =
            Random::new(u64::from(order) + 1).shuffled(out.len()).into_iter().map(|at| out[at]).collect();
        let size = |letter: &char| {
            let in_w = || w_letters.iter().position(|l| l == letter).map_or(1, |dim| w_shape[dim]);
            x_letters.iter().position(|l| l == letter).map_or_else(in_w, |dim| x.shape[dim])
        };
        let shape: Vec<usize> = out.iter().map(size).collect();
        let (bound, grain) = (summed as u64 * x.bound * w.bound, x.grain + w.grain);
        let fits = holds(x.dtype, bound, grain) && shape.iter().product::<usize>() <= MAX_ELEMS;
        if !fits || shape.len() > MAX_RANK || shape.is_empty() || w_shape.is_empty() {
            return;
        }
        let text = |letters: &[char]| letters.iter().collect::<String>();
        let spec = format!("{},{}->{}", text(&x_letters), text(&w_letters), text(&out)).parse().unwrap();
        let w = match other % 4 {
            3 => x.id,
            2 => self.leaf(&w.shape, x.dtype, false, 2).id,
            _ => {
                let w = self.leaf(&w.shape, x.dtype, true, 2).id;
                self.weights.extend(self.leaves.last().map(|leaf| leaf.name.clone()));
                w
            }
        };
        self.result(Kind::MatMul { spec }, &[x.id, w], Known { shape, bound, grain, ..x.clone() });
    }

    fn binary(&mut self, x: &Known, kind: &Kind, which: u16, dims: u16) {
        let alike = |y: &&Known| y.shape == x.shape && y.dtype == x.dtype;
        let earlier: Vec<Known> = self.known.iter().filter(alike).cloned().collect();
        let new = which % 2 == 1;
        let (y_bound, y_grain) = if new {
            (2, 0)
        } else {
            let y = &earlier[usize::from(which / 2) % earlier.len()];
            (y.bound, y.grain)
        };
        let (bound, grain) = match kind {
            Kind::Add | Kind::Total => (x.bound + y_bound, x.grain.max(y_grain)),
            _ => (x.bound * y_bound, x.grain + y_grain),
        };
        if !holds(x.dtype, bound, grain) {
            return;
        }
        let y = if new {
            let skipped = usize::from(dims) % x.shape.len();
            let sizes = x
                .shape
                .iter()
                .enumerate()
                .map(|(dim, size)| if dims >> (4 + dim) & 1 == 1 { 1 } else { *size });
            let shape: Vec<usize> = sizes.skip(skipped).collect();
            self.leaf(&shape, x.dtype, dims >> 12 & 1 == 0, 2).id
        } else {
            earlier[usize::from(which / 2) % earlier.len()].id
        };
        self.result(kind.clone(), &[x.id, y], Known { bound, grain, ..x.clone() });
    }

    fn scale(&mut self, x: &Known, by: u16) {
        let (by, bound, grain) = match by % if self.is_differentiable { 2 } else { 4 } {
            0 => (-1.0, x.bound, x.grain),
            1 => (3.0, 3 * x.bound, x.grain),
            2 => (0.5, x.bound, x.grain + 1),
            _ => (-0.25, x.bound, x.grain + 2),
        };
        if holds(x.dtype, bound, grain) {
            self.result(Kind::Scale { by }, &[x.id], Known { bound, grain, ..x.clone() });
        }
    }

    fn reduce(&mut self, x: &Known, dim: usize, sum: bool) {
        if x.shape.len() < 2 {
            return;
        }
        let dim = dim % x.shape.len();
        let bound = if sum { x.bound * x.shape[dim] as u64 } else { x.bound };
        if holds(x.dtype, bound, x.grain) {
            let kind = if sum { Kind::ReduceSum { dim } } else { Kind::ReduceMax { dim } };
            let mut shape = x.shape.clone();
            shape.remove(dim);
            self.result(kind, &[x.id], Known { shape, bound, ..x.clone() });
        }
    }

    fn rope(&mut self, x: &Known) {
        let &[b, s, _, d] = x.shape.as_slice() else { return };
        let bound = 2 * x.bound;
        if d % 2 == 0 && holds(x.dtype, bound, x.grain) {
            let [cos, sin] = [(); 2].map(|()| self.leaf(&[b, s, d], x.dtype, false, 1).id);
            self.result(Kind::Rope, &[x.id, cos, sin], Known { bound, ..x.clone() });
        }
    }

    fn expand(&mut self, x: &Known, at: u16, size: u16) {
        let mut shape = x.shape.clone();
        let dim = usize::from(at) % (shape.len() + 1);
        shape.insert(dim, self.size(size));
        if shape.len() <= MAX_RANK && shape.iter().product::<usize>() <= MAX_ELEMS {
            let like = self.leaf(&shape, x.dtype, false, 1).id;
            self.result(Kind::Expand { dims: vec![dim] }, &[x.id, like], Known { shape, ..x.clone() });
        }
    }

    fn index_of(&mut self, x: &Known) {
        let Some((last, shape)) = x.shape.split_last().filter(|(_, shape)| !shape.is_empty()) else { return };
        let largest = self.build.op(Kind::ReduceMax { dim: shape.len() }, &[x.id]);
        let index = self.build.op(Kind::IndexOf, &[x.id, largest]);
        let name = self.name("v");
        self.build.name(index, name.clone());
        self.pinnable.push((name, (0..shape.len()).collect()));
        self.ids.push(Ids { id: index, shape: shape.to_vec(), below: *last });
    }

    fn permute(&mut self, x: &Known, order: u16) {
        let dims = Random::new(u64::from(order)).shuffled(x.shape.len());
        let shape = dims.iter().map(|dim| x.shape[*dim]).collect();
        self.result(Kind::Permute { dims }, &[x.id], Known { shape, ..x.clone() });
    }

    fn take(&mut self, x: &Known) {
        let &[b, s, h] = x.shape.as_slice() else { return };
        let index = self.given(&[b], DType::I64, false, Fill::Indices { below: s });
        self.result(Kind::Take, &[x.id, index], Known { shape: vec![b, h], ..x.clone() });
    }

    fn cast(&mut self, x: &Known, to: u16) {
        let dtype = [DType::F32, DType::F16, DType::BF16][usize::from(to) % 3];
        if holds(dtype, x.bound, x.grain) {
            self.result(Kind::Cast { to: dtype }, &[x.id], Known { dtype, ..x.clone() });
        }
    }

    /// Writes the rows of `x` to places of a cache with one pool. Its other rows stay zero.
    fn cache_write(&mut self, x: &Known, longer: u16) {
        let &[b, s, k, d] = x.shape.as_slice() else { return };
        let rows = s + usize::from(longer) % 4;
        let name = self.name("cache");
        let cache = self.build.state(&name, [b, rows, k, d], x.dtype);
        // Blocks and rows stay whole, because the op refuses a cache that is sharded along them.
        self.pinnable.push((name, vec![2, 3]));
        let slots = self.given(&[b, s], DType::I64, false, Fill::Places { below: b * rows });
        let written = self.build.op(Kind::WriteSlots { pools: 1 }, &[cache, x.id, slots]);
        // Users read a copy, so that a pin of an output does not pin the cache.
        let shape = vec![b, rows, k, d];
        self.result(Kind::Scale { by: 1.0 }, &[written], Known { shape, ..x.clone() });
    }

    fn embed(&mut self, dtype: DType, which: u16, a: u16, b: u16) {
        let width = self.size(b);
        let (ids, shape, rows) = if let Some(found) = self.ids.last().filter(|_| which.is_multiple_of(2)) {
            (found.id, found.shape.clone(), found.below)
        } else {
            let (shape, rows) = (vec![self.size(a)], self.size(a >> 4));
            (self.given(&shape, DType::I64, false, Fill::Indices { below: rows }), shape, rows)
        };
        let table = self.leaf(&[rows, width], dtype, true, 3).id;
        self.weights.extend(self.leaves.last().map(|leaf| leaf.name.clone()));
        let shape = [&shape[..], &[width]].concat();
        if shape.len() <= MAX_RANK && shape.iter().product::<usize>() <= MAX_ELEMS {
            self.result(Kind::Embed, &[ids, table], Known { id: table, shape, dtype, bound: 3, grain: 0 });
        }
    }

    fn finish(mut self) -> Drawn {
        // The last values are outputs; taps show all other values.
        let floats = self.known.iter().rev().take(2).map(|known| known.id);
        let outputs: Vec<Operand> = floats.chain(self.ids.iter().map(|ids| ids.id)).collect();
        for (index, id) in outputs.into_iter().enumerate() {
            self.build.output(&format!("out{index}"), id);
        }
        let program = self.build.finish().unwrap_or_else(|problems| panic!("{problems}"));
        Drawn { program, leaves: self.leaves, pinnable: self.pinnable, weights: self.weights }
    }

    fn finish_gradients(mut self) -> Option<Drawn> {
        let role = |build: &Builder, id: Operand| build.program().values[id.id()].role;
        let made = self.known.iter().rev().filter(|known| role(&self.build, known.id) == Role::Result);
        let last: Vec<Known> = made.take(2).cloned().collect();
        let program = self.build.program();
        let given = [Role::Param, Role::Input].into_iter().flat_map(|role| program.with_role(role));
        let wanted: Vec<Operand> = given
            .filter(|id| program.values[*id].dtype.is_float())
            .map(|id| self.build.operand(id))
            .collect();
        let seeds: Vec<(Operand, Operand)> =
            last.into_iter().map(|y| (y.id, self.leaf(&y.shape, y.dtype, false, 1).id)).collect();
        let found = gradients(&mut self.build, &seeds, &wanted);
        let mut count = 0;
        for gradient in found.into_iter().flatten() {
            if role(&self.build, gradient) != Role::Result {
                continue;
            }
            let value = self.build.program().values[gradient.id()].clone();
            if !value.name.is_empty() {
                self.pinnable.push((value.name, (0..value.shape.rank()).collect()));
            }
            self.build.output(&format!("gradient{count}"), gradient);
            count += 1;
        }
        let program =
            (count > 0).then(|| self.build.finish().unwrap_or_else(|problems| panic!("{problems}")))?;
        Some(Drawn { program, leaves: self.leaves, pinnable: self.pinnable, weights: self.weights })
    }
}
