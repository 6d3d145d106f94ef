//! THE op table: each op once, with all that any pass may ask of it.
//!
//! A [`Row`] gives an op's name, its sharding rule, which operands it is linear in, its result type, its meaning on the
//! host and the aclnn calls that compute it on a card. Attributes live in [`Kind`]. Passes hold no list of ops of their
//! own; a new op is a row here, a function in `interpret`, one in `npu` and, if it has a gradient, one in `grad`. The rows of
//! `training` are those that only training has.

mod training;

use smallvec::{SmallVec, smallvec};

use crate::base::{DType, Shape};

use super::grad::{self, GradFn};
use super::graph::{Op, Value};
use super::interpret::{self as host, HostTensor};
pub use super::kind::Kind;
use super::npu::{self, Emit};
use super::rule::{Reduce, Rule, any_rank};

/// Through which operands a partial sum may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linear {
    /// None.
    No,
    /// Any one of these operands alone: the op is linear in each.
    InEach(&'static [usize]),
    /// All operands together: the op is linear in the tuple of them.
    Jointly,
    /// As [`Linear::Jointly`], of numbers: an operand that is whole is made a sum of which one card has all.
    Parts,
}

/// The first stage at which an op may occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Written by people.
    Logical,
    /// Inserted by placement.
    Placed,
    /// Inserted by lowering.
    Lowered,
}

type RuleFn = fn(&Kind, &[&Shape]) -> Result<Rule, String>;
type DTypes = SmallVec<[DType; 2]>;
type DTypeFn = fn(&Kind, &[DType]) -> Result<DTypes, String>;
type NpuFn = fn(&Kind, &mut Emit<'_>);

/// The meaning of an op on whole tensors: from its operands, and from shapes and types of its results.
#[derive(Clone, Copy, Debug)]
pub enum Host {
    /// Of an op with one result.
    One(fn(&Kind, &[&HostTensor], &Value) -> HostTensor),
    /// Of an op with several: all that its row has, whoever wants them.
    Several(fn(&Kind, &[&HostTensor]) -> Vec<HostTensor>),
}

/// All that is known of one op.
#[derive(Clone, Copy)]
pub struct Row {
    /// The name in texts.
    pub name: &'static str,
    /// Number of operands.
    pub arity: usize,
    /// Whether it takes any number of operands from one on, and has as many results.
    pub variadic: bool,
    /// Operands of which it takes the shape alone: they lie as they lie, and no card reads them.
    pub shape_only: &'static [usize],
    /// First stage at which it may occur.
    pub stage: Stage,
    /// Sharding rule of one instance. Ops of the lowered stage move shards and have none.
    pub rule: RuleFn,
    /// Where a partial sum may pass.
    pub linear: Linear,
    /// Element types of the results.
    pub dtype: DTypeFn,
    /// For each of the first results, the operand whose storage it overwrites.
    pub in_place: &'static [usize],
    /// The meaning, on whole tensors.
    pub host: Host,
    /// The calls that compute it on one card's shards.
    pub npu: NpuFn,
    /// The ops that compute its operands' cotangents, if it has any.
    pub grad: Option<GradFn>,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Sum is the reduction of every op but the few that say otherwise.
fn sum(text: &str) -> Result<Rule, String> {
    Rule::parse(text, Reduce::Sum)
}

/// Rule of an elementwise op: operands are aligned at the last dim, dims of size 1 broadcast.
fn elementwise(_: &Kind, shapes: &[&Shape]) -> Result<Rule, String> {
    let rank = shapes[0].rank();
    let result = any_rank(rank);
    let mut operands = Vec::with_capacity(shapes.len());
    for shape in shapes {
        let Some(skipped) = rank.checked_sub(shape.rank()) else {
            return Err(format!("operand of shape {shape} has more dims than {}", shapes[0]));
        };
        let dims: String = result[skipped..]
            .chars()
            .zip(shape.iter().zip(&shapes[0][skipped..]))
            .map(|(letter, (size, whole))| if *size == 1 && *whole != 1 { '1' } else { letter })
            .collect();
        operands.push(dims);
    }
    sum(&format!("{}->{result}", operands.join(",")))
}

fn reduce_dim(rank: usize, dim: usize, reduce: Reduce) -> Result<Rule, String> {
    let operand = any_rank(rank);
    if dim >= rank {
        return Err(format!("dim {dim} of a tensor of {rank} dims"));
    }
    let result: String = operand.chars().enumerate().filter(|(index, _)| *index != dim).map(|(_, c)| c).collect();
    Rule::parse(&format!("{operand}->{result}"), reduce)
}

fn first(_: &Kind, dtypes: &[DType]) -> Result<DTypes, String> {
    Ok(smallvec![dtypes[0]])
}

fn all_equal(_: &Kind, dtypes: &[DType]) -> Result<DTypes, String> {
    match dtypes.iter().find(|dtype| **dtype != dtypes[0]) {
        Some(other) => Err(format!("element types differ, {} and {other}", dtypes[0])),
        None => Ok(smallvec![dtypes[0]]),
    }
}

fn all_float(kind: &Kind, dtypes: &[DType]) -> Result<DTypes, String> {
    if dtypes[0].is_float() { all_equal(kind, dtypes) } else { Err(format!("{} is no floating-point type", dtypes[0])) }
}

/// The element types at `at` are all one float type; index operands hold i64.
fn floats_with_index(dtypes: &[DType], index: usize) -> Result<DTypes, String> {
    if dtypes[index] != DType::I64 {
        return Err(format!("operand {index} is {}, expected i64", dtypes[index]));
    }
    let floats: Vec<DType> =
        dtypes.iter().enumerate().filter(|(operand, _)| *operand != index).map(|(_, dtype)| *dtype).collect();
    all_float(&Kind::Add, &floats)
}

const BASE: Row = Row {
    name: "",
    arity: 1,
    variadic: false,
    shape_only: &[],
    stage: Stage::Logical,
    rule: elementwise,
    linear: Linear::No,
    dtype: all_float,
    in_place: &[],
    host: Host::Several(host::identity),
    npu: npu::nothing,
    grad: None,
};

static EMBED: Row = Row {
    name: "embed",
    arity: 2,
    rule: |_, shapes| {
        let ids = any_rank(shapes[0].rank());
        sum(&format!("{ids},yz->{ids}z"))
    },
    linear: Linear::InEach(&[1]),
    dtype: |_, dtypes| floats_with_index(dtypes, 0),
    host: Host::One(host::embed),
    npu: npu::embed,
    grad: Some(grad::embed),
    ..BASE
};
static MATMUL: Row = Row {
    name: "matmul",
    arity: 2,
    rule: |kind, _| match kind {
        Kind::MatMul { spec } => Rule::einsum(spec),
        _ => Err("not a matmul".to_owned()),
    },
    linear: Linear::InEach(&[0, 1]),
    host: Host::One(host::matmul),
    npu: npu::matmul,
    grad: Some(grad::matmul),
    ..BASE
};
static ADD: Row = Row {
    name: "add",
    arity: 2,
    linear: Linear::Jointly,
    dtype: all_equal,
    host: Host::One(host::add),
    npu: npu::add,
    grad: Some(grad::add_op),
    ..BASE
};
static QUANT_MATMUL: Row = Row {
    name: "quant_matmul",
    arity: 3,
    rule: |kind, _| match kind {
        Kind::QuantMatMul { spec } => Rule::scaled_einsum(spec),
        _ => Err("not a quant_matmul".to_owned()),
    },
    dtype: |_, dtypes| match dtypes {
        [x @ (DType::F16 | DType::BF16), DType::I8, DType::F32] => Ok(smallvec![*x]),
        [x, w, scale] => Err(format!("takes f16 or bf16, i8 and f32, found {x}, {w} and {scale}")),
        _ => Err("takes 3 operands".to_owned()),
    },
    host: Host::One(host::quant_matmul),
    npu: npu::quant_matmul,
    ..BASE
};
static MUL: Row = Row {
    name: "mul",
    arity: 2,
    linear: Linear::InEach(&[0, 1]),
    dtype: all_equal,
    host: Host::One(host::mul),
    npu: npu::mul,
    grad: Some(grad::mul),
    ..BASE
};
static SCALE: Row = Row {
    name: "scale",
    linear: Linear::InEach(&[0]),
    host: Host::One(host::scale),
    npu: npu::scale,
    grad: Some(grad::scale),
    ..BASE
};
static SILU: Row = Row { name: "silu", host: Host::One(host::silu), npu: npu::silu, grad: Some(grad::silu), ..BASE };
static SWIGLU: Row =
    Row { name: "swiglu", arity: 2, host: Host::One(host::swiglu), npu: npu::swiglu, grad: Some(grad::swiglu), ..BASE };
static RMS_NORM: Row = Row {
    name: "rms_norm",
    arity: 2,
    rule: |_, shapes| match shapes[0].rank().checked_sub(1) {
        Some(lead) => sum(&format!("{0}Z,Z->{0}Z,{0}", any_rank(lead))),
        None => Err("a scalar has no last dim".to_owned()),
    },
    dtype: |kind, dtypes| all_float(kind, dtypes).map(|found| smallvec![found[0], DType::F32]),
    host: Host::Several(host::rms_norm),
    npu: npu::rms_norm,
    grad: Some(grad::rms_norm),
    ..BASE
};
static ROPE: Row = Row {
    name: "rope",
    arity: 3,
    rule: |_, shapes| match shapes[0].rank().checked_sub(3) {
        Some(heads) => {
            let heads = &any_rank(heads + 2)[2..];
            sum(&format!("ab{heads}Z,abZ,abZ->ab{heads}Z"))
        }
        None => Err(format!("x has {} dims, expected batch, sequence, heads and head size", shapes[0].rank())),
    },
    linear: Linear::InEach(&[0]),
    host: Host::One(host::rope),
    npu: npu::rope,
    grad: Some(grad::rope),
    ..BASE
};
static ATTENTION: Row = Row {
    name: "attention",
    arity: 4,
    rule: |_, _| sum("bskgD,bTkD,bTkD,bsT->bskgD,bkgs,bkgs"),
    dtype: |kind, dtypes| {
        if dtypes[3] != DType::Bool {
            return Err(format!("the mask is {}, expected bool", dtypes[3]));
        }
        all_float(kind, &dtypes[..3]).map(|found| smallvec![found[0], DType::F32, DType::F32])
    },
    host: Host::Several(host::attention),
    npu: npu::attention,
    grad: Some(grad::attention),
    ..BASE
};
static CACHE_WRITE: Row = Row {
    name: "cache_write",
    arity: 3,
    rule: |_, _| sum("bTkd,bSkd,bS->bTkd"),
    dtype: |_, dtypes| floats_with_index(dtypes, 2),
    in_place: &[0],
    host: Host::One(host::cache_write),
    npu: npu::cache_write,
    ..BASE
};
static TAKE: Row = Row {
    name: "take",
    arity: 2,
    rule: |_, _| sum("bSh,b->bh"),
    linear: Linear::InEach(&[0]),
    dtype: |_, dtypes| floats_with_index(dtypes, 1),
    host: Host::One(host::take),
    npu: npu::take,
    grad: Some(grad::take),
    ..BASE
};
static REDUCE_SUM: Row = Row {
    name: "reduce_sum",
    rule: |kind, shapes| match kind {
        Kind::ReduceSum { dim } => reduce_dim(shapes[0].rank(), *dim, Reduce::Sum),
        _ => Err("not a reduce_sum".to_owned()),
    },
    linear: Linear::InEach(&[0]),
    host: Host::One(host::reduce_sum),
    npu: npu::reduce_sum,
    grad: Some(grad::reduce_sum),
    ..BASE
};
static REDUCE_MAX: Row = Row {
    name: "reduce_max",
    rule: |kind, shapes| match kind {
        Kind::ReduceMax { dim } => reduce_dim(shapes[0].rank(), *dim, Reduce::Max),
        _ => Err("not a reduce_max".to_owned()),
    },
    host: Host::One(host::reduce_max),
    npu: npu::reduce_max,
    ..BASE
};
static INDEX_OF: Row = Row {
    name: "index_of",
    arity: 2,
    rule: |_, shapes| match shapes[0].rank().checked_sub(1) {
        Some(lead) => Rule::parse(&format!("{0}z,{0}->{0}", any_rank(lead)), Reduce::Min),
        None => Err("a scalar has no last dim".to_owned()),
    },
    dtype: |kind, dtypes| all_float(kind, dtypes).map(|_| smallvec![DType::I64]),
    host: Host::One(host::index_of),
    npu: npu::index_of,
    ..BASE
};
static CAST: Row = Row {
    name: "cast",
    dtype: |kind, _| match kind {
        Kind::Cast { to } => Ok(smallvec![*to]),
        _ => Err("not a cast".to_owned()),
    },
    host: Host::One(host::cast),
    npu: npu::cast,
    grad: Some(grad::cast),
    ..BASE
};
static WIDEN: Row = Row {
    name: "widen",
    linear: Linear::InEach(&[0]),
    dtype: |kind, dtypes| match (kind, dtypes[0]) {
        (Kind::Widen { to: DType::F32 }, DType::F16 | DType::BF16) => Ok(smallvec![DType::F32]),
        (Kind::Widen { to }, from) => Err(format!("{to} does not hold every number of {from}")),
        _ => Err("not a widen".to_owned()),
    },
    host: Host::One(host::cast),
    npu: npu::cast,
    ..BASE
};
static PERMUTE: Row = Row {
    name: "permute",
    rule: |kind, shapes| {
        let Kind::Permute { dims } = kind else { return Err("not a permute".to_owned()) };
        let operand = any_rank(shapes[0].rank());
        let mut seen = dims.clone();
        seen.sort_unstable();
        if !seen.iter().copied().eq(0..shapes[0].rank()) {
            return Err(format!("{dims:?} is no permutation of {} dims", shapes[0].rank()));
        }
        let result: String = dims.iter().map(|dim| char::from(operand.as_bytes()[*dim])).collect();
        sum(&format!("{operand}->{result}"))
    },
    linear: Linear::InEach(&[0]),
    dtype: first,
    host: Host::One(host::permute),
    npu: npu::permute,
    grad: Some(grad::permute),
    ..BASE
};

/// A row of an op that moves shards and leaves the whole value as it is.
const fn movement(name: &'static str, stage: Stage) -> Row {
    Row { name, stage, dtype: all_equal, ..BASE }
}
static RESHARD: Row = movement("reshard", Stage::Placed);
static ALL_REDUCE: Row = Row { variadic: true, ..movement("all_reduce", Stage::Lowered) };
static ALL_GATHER: Row = movement("all_gather", Stage::Lowered);
static REDUCE_SCATTER: Row = movement("reduce_scatter", Stage::Lowered);
static ALL_TO_ALL: Row = movement("all_to_all", Stage::Lowered);
static SLICE: Row = movement("slice", Stage::Lowered);
static LEADER: Row = movement("leader", Stage::Lowered);
static PAD: Row = movement("pad", Stage::Lowered);

/// Every row.
static ROWS: [&Row; 42] = [
    &EMBED,
    &MATMUL,
    &QUANT_MATMUL,
    &ADD,
    &MUL,
    &SCALE,
    &SILU,
    &SWIGLU,
    &RMS_NORM,
    &ROPE,
    &ATTENTION,
    &CACHE_WRITE,
    &TAKE,
    &REDUCE_SUM,
    &REDUCE_MAX,
    &INDEX_OF,
    &CAST,
    &WIDEN,
    &PERMUTE,
    &training::EXPAND,
    &training::REDUCE_TO,
    &training::SILU_GRAD,
    &training::SWIGLU_GRAD,
    &training::RMS_NORM_GRAD,
    &training::ATTENTION_GRAD,
    &training::EMBED_GRAD,
    &training::TAKE_GRAD,
    &training::SUM_EXP,
    &training::LOG_PROBABILITY,
    &training::LOG_PROBABILITY_GRAD,
    &training::TOTAL,
    &training::CLIP_FACTOR,
    &training::ADAMW,
    &training::ASSIGN,
    &RESHARD,
    &ALL_REDUCE,
    &ALL_GATHER,
    &REDUCE_SCATTER,
    &ALL_TO_ALL,
    &SLICE,
    &LEADER,
    &PAD,
];

/// Every row, for tests and tables.
#[must_use]
pub fn rows() -> &'static [&'static Row] {
    &ROWS
}

impl Kind {
    /// The op's row.
    #[must_use]
    pub const fn row(&self) -> &'static Row {
        match self {
            Self::Embed => &EMBED,
            Self::MatMul { .. } => &MATMUL,
            Self::QuantMatMul { .. } => &QUANT_MATMUL,
            Self::Add => &ADD,
            Self::Mul => &MUL,
            Self::Scale { .. } => &SCALE,
            Self::Silu => &SILU,
            Self::SwiGlu => &SWIGLU,
            Self::RmsNorm { .. } => &RMS_NORM,
            Self::Rope => &ROPE,
            Self::Attention { .. } => &ATTENTION,
            Self::CacheWrite => &CACHE_WRITE,
            Self::Take => &TAKE,
            Self::ReduceSum { .. } => &REDUCE_SUM,
            Self::ReduceMax { .. } => &REDUCE_MAX,
            Self::IndexOf => &INDEX_OF,
            Self::Cast { .. } => &CAST,
            Self::Widen { .. } => &WIDEN,
            Self::Permute { .. } => &PERMUTE,
            Self::Expand { .. } => &training::EXPAND,
            Self::ReduceTo => &training::REDUCE_TO,
            Self::SiluGrad => &training::SILU_GRAD,
            Self::SwiGluGrad => &training::SWIGLU_GRAD,
            Self::RmsNormGrad => &training::RMS_NORM_GRAD,
            Self::AttentionGrad { .. } => &training::ATTENTION_GRAD,
            Self::EmbedGrad => &training::EMBED_GRAD,
            Self::TakeGrad => &training::TAKE_GRAD,
            Self::SumExp => &training::SUM_EXP,
            Self::LogProbability => &training::LOG_PROBABILITY,
            Self::LogProbabilityGrad => &training::LOG_PROBABILITY_GRAD,
            Self::Total => &training::TOTAL,
            Self::ClipFactor { .. } => &training::CLIP_FACTOR,
            Self::AdamW { .. } => &training::ADAMW,
            Self::Assign => &training::ASSIGN,
            Self::Reshard => &RESHARD,
            Self::AllReduce { .. } => &ALL_REDUCE,
            Self::AllGather { .. } => &ALL_GATHER,
            Self::ReduceScatter { .. } => &REDUCE_SCATTER,
            Self::AllToAll { .. } => &ALL_TO_ALL,
            Self::Slice { .. } => &SLICE,
            Self::Leader { .. } => &LEADER,
            Self::Pad { .. } => &PAD,
        }
    }

    /// The op's name as the table spells it, if it is one.
    #[must_use]
    pub fn name_of(name: &str) -> Option<&'static str> {
        ROWS.iter().find(|row| row.name == name).map(|row| row.name)
    }

    /// Whether the op only moves shards of one value: its meaning on the whole is the identity.
    #[must_use]
    pub fn is_movement(&self) -> bool {
        self.row().stage > Stage::Logical
    }
}

/// The types of all results an op can have.
///
/// # Errors
/// A sentence that says which operands do not fit.
pub fn result_types(kind: &Kind, operands: &[&Value]) -> Result<SmallVec<[(Shape, DType); 2]>, String> {
    let row = kind.row();
    let fits = if row.variadic { !operands.is_empty() } else { operands.len() == row.arity };
    if !fits {
        return Err(format!("takes {} operands, found {}", row.arity, operands.len()));
    }
    let shapes: Vec<&Shape> = operands.iter().map(|value| &value.shape).collect();
    let dtypes: Vec<DType> = operands.iter().map(|value| value.dtype).collect();
    let dtypes = (row.dtype)(kind, &dtypes)?;
    if kind.is_movement() {
        return Ok(shapes.into_iter().cloned().zip(std::iter::repeat(dtypes[0])).collect());
    }
    Ok((row.rule)(kind, &shapes)?.result_shapes(&shapes)?.into_iter().zip(dtypes).collect())
}

/// The sharding rule of an op of a program.
///
/// # Errors
/// As the row's rule: the op does not fit its operands.
pub fn rule_of(op: &Op, shapes: &[&Shape]) -> Result<Rule, String> {
    (op.kind.row().rule)(&op.kind, shapes)
}
