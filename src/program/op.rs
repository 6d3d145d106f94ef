//! THE op table: each op once, with all that any pass may ask of it.
//!
//! A [`Row`] gives an op's name, its sharding rule, which operands it is linear in, its result
//! type, its meaning on the host and the aclnn calls that compute it on a card. Attributes live in
//! [`Kind`]. Both come of the op's entry in `op/table.rs`; passes hold no list of ops of their own.

mod table;

use smallvec::{SmallVec, smallvec};

use crate::base::{AxisId, DType, Id, Reduce, Shape};

use super::compress::Compression;
use super::grad::GradFn;
use super::graph::{Op, Value};
use super::interpret as host;
use super::npu::{self, Emit};
use super::rule::{Einsum, Factor, Rule, any_rank, letters};
use super::tree::{BLOCK_LEVELS, Halved};
use crate::base::HostTensor;
pub use table::{Kind, rows};

/// Through which operands a partial sum may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linear {
    /// Through none of them.
    No,
    /// Any one of these operands alone: the op is linear in each.
    InEach(&'static [usize]),
    /// All operands together: the op is linear in the tuple of them.
    Jointly,
    /// As [`Linear::Jointly`], of numbers: an operand that is whole is made a sum of which one card
    /// has all.
    Parts,
    /// All operands together, which the op itself makes whole: of its results those that overwrite
    /// an operand are parts too, the others whole.
    Joins,
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

/// The operands that placement has a choice about where they are params: a matrix is cut by its
/// outputs or its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightOperands {
    /// It has no weights.
    None,
    /// Of a product, the likelier one first. What is summed are its inputs.
    Factors(&'static [usize]),
    /// A table whose rows are looked up: its outputs are its rows.
    Table(usize),
}

impl WeightOperands {
    /// The operands, the likelier one first.
    #[must_use]
    pub fn operands(&self) -> &[usize] {
        match self {
            Self::None => &[],
            Self::Factors(operands) => operands,
            Self::Table(operand) => std::slice::from_ref(operand),
        }
    }

    /// Whether a dim of such an operand is of its inputs, by the rule of the op; `None` for one
    /// that is never cut.
    #[must_use]
    pub fn is_input(&self, rule: &Rule, operand: usize, dim: usize) -> Option<bool> {
        let Factor::Letter(letter) = rule.operands[operand][dim] else { return None };
        Some(rule.result_dim(0, letter).is_none() != self.is_table())
    }

    /// Whether the operand is a table.
    #[must_use]
    pub const fn is_table(&self) -> bool {
        matches!(self, Self::Table(_))
    }
}

/// What launches of an op can be one with, on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Nothing: each is a launch by itself.
    Never,
    /// Products of the same activation by further weights. The weights, and the operands behind
    /// them, are stored one behind the other with theirs.
    Product,
    /// The integers of the same rows, which the scales are for.
    RowScale,
    /// The scales before, if a card has whole rows.
    Quantise,
    /// The product before, if it adds a param to that; else the norm behind it.
    Sum,
    /// The sum before.
    Norm,
    /// The two products before, whose results it takes as one.
    Gated,
    /// The same of other heads by the same angles.
    Rotary,
    /// The same on the other cache of a layer, which lies behind its own.
    CacheRows,
}

/// What of an op that computes goes from card to card, where cards have parts of it.
#[derive(Clone, Copy, Debug)]
pub struct OperandExchange {
    /// Operands of which each card needs all parts, one after the other.
    pub operands: &'static [usize],
    /// Results of which each card makes a summand for all parts.
    pub results: &'static [usize],
    /// The dim along which all of them are cut.
    pub dim: usize,
}

type RuleFn = fn(&Kind, &[&Shape]) -> Result<Rule, String>;
type DTypes = SmallVec<[DType; 2]>;
type DTypeFn = fn(&Kind, &[DType]) -> Result<DTypes, String>;
type NpuFn = fn(&Kind, &mut Emit<'_>);
type TreeFn = fn(&Kind, &[&Shape]) -> Vec<(u8, Halved)>;

/// The meaning of an op on whole tensors: from its operands, and from shapes and types of its
/// results.
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
    /// Whether ranks exchange data.
    pub is_collective: bool,
    /// What goes from card to card while it computes.
    pub around: Option<OperandExchange>,
    /// Whether its result is its operand in another type. A param's copy lies as the param does.
    pub is_copy: bool,
    /// Which of its operands may be weights.
    pub weights: WeightOperands,
    /// Sharding rule of one instance. Ops of the lowered stage move shards and have none.
    pub rule: RuleFn,
    /// The dims that it sums as a tree, by letter of its rule, the outermost first.
    pub tree: TreeFn,
    /// Whether of a sum that cards are left with one of them has the number and the others zeros,
    /// so that it has one order.
    pub leaves_one_part: bool,
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
    /// What it can share a launch with.
    pub join: Join,
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

/// As [`sum`], in the order of a tree.
fn tree_sum(text: &str) -> Result<Rule, String> {
    Rule::parse(text, Reduce::Tree)
}

/// Rule of an elementwise op: operands are aligned at the last dim, dims of size 1 broadcast.
fn elementwise(_: &Kind, shapes: &[&Shape]) -> Result<Rule, String> {
    let whole = shapes[0];
    let operand = |shape: &&Shape| {
        let Some(skipped) = whole.rank().checked_sub(shape.rank()) else {
            return Err(format!("operand of shape {shape} has more dims than {whole}"));
        };
        let dims = letters(whole.rank()).zip(whole.iter()).skip(skipped).zip(shape.iter());
        Ok(dims
            .map(|((letter, whole), size)| if *size == 1 && *whole != 1 { Factor::One } else { letter })
            .collect())
    };
    Ok(Rule {
        operands: shapes.iter().map(operand).collect::<Result<_, _>>()?,
        results: smallvec![letters(whole.rank()).collect()],
        reduce: Reduce::Sum,
    })
}

fn reduce_dim(rank: usize, dim: usize, reduce: Reduce) -> Result<Rule, String> {
    if dim >= rank {
        return Err(format!("dim {dim} of a tensor of {rank} dims"));
    }
    let kept = letters(rank).enumerate().filter(|(index, _)| *index != dim).map(|(_, letter)| letter);
    Ok(Rule { operands: smallvec![letters(rank).collect()], results: smallvec![kept.collect()], reduce })
}

/// The letters of a tensor of `rank` dims, and those of its rows: all but the last `dims`.
fn row_letters(rank: usize, dims: usize) -> Result<[SmallVec<[Factor; 6]>; 2], String> {
    match rank.checked_sub(dims).filter(|_| dims > 0) {
        Some(lead) => Ok([letters(rank).collect(), letters(lead).collect()]),
        None => Err(format!("rows of {dims} dims in a tensor of {rank} dims")),
    }
}

/// The rule of an op that reduces the last `dims` dims.
fn reduce_rows(rank: usize, dims: usize, reduce: Reduce) -> Result<Rule, String> {
    let [whole, lead] = row_letters(rank, dims)?;
    Ok(Rule { operands: smallvec![whole], results: smallvec![lead], reduce })
}

/// The rule of an elementwise op whose second operand has one element for each row of the last
/// `dims` dims.
fn scaled_rows(rank: usize, dims: usize) -> Result<Rule, String> {
    let [whole, lead] = row_letters(rank, dims)?;
    Ok(Rule { operands: smallvec![whole.clone(), lead], results: smallvec![whole], reduce: Reduce::Sum })
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
    if dtypes[0].is_float() {
        all_equal(kind, dtypes)
    } else {
        Err(format!("{} is no floating-point type", dtypes[0]))
    }
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

/// The rule of an op whose first operand has a last dim `z` over which it works.
fn over_last(shape: &Shape, text: impl Fn(&str) -> String) -> Result<Rule, String> {
    match shape.rank().checked_sub(1) {
        Some(lead) => sum(&text(&any_rank(lead))),
        None => Err("a scalar has no last dim".to_owned()),
    }
}

/// As [`elementwise`], with `results` results of the first operand's shape.
fn elementwise_results(kind: &Kind, shapes: &[&Shape], results: usize) -> Result<Rule, String> {
    let mut rule = elementwise(kind, shapes)?;
    rule.results = smallvec![rule.results[0].clone(); results];
    Ok(rule)
}

/// As [`elementwise_results`], of operands of one shape.
fn of_one_shape(kind: &Kind, shapes: &[&Shape], results: usize) -> Result<Rule, String> {
    match shapes.iter().find(|shape| **shape != shapes[0]) {
        Some(other) => Err(format!("shapes differ, {} and {other}", shapes[0])),
        None => elementwise_results(kind, shapes, results),
    }
}

/// As [`of_one_shape`], of so many operands and numbers behind them.
fn with_numbers(kind: &Kind, shapes: &[&Shape], tensors: usize, results: usize) -> Result<Rule, String> {
    if let Some(number) = shapes[tensors..].iter().find(|shape| shape.rank() > 0) {
        return Err(format!("operands after {} must be scalars, found shape {number}", tensors - 1));
    }
    of_one_shape(kind, &shapes[..tensors], results)?;
    elementwise_results(kind, shapes, results)
}

/// A rule of attention whose keys and mask are of the queries' own tokens.
fn of_own_tokens(rule: &str, shapes: &[&Shape]) -> Result<Rule, String> {
    match (shapes[0].get(1), shapes[3].get(2)) {
        (Some(queries), Some(keys)) if queries != keys => {
            Err(format!("the mask {} is of {keys} keys, and there are {queries} tokens", shapes[3]))
        }
        _ => sum(rule),
    }
}

/// `count` results of f32, of operands of that type.
fn singles(_: &Kind, dtypes: &[DType], count: usize) -> Result<DTypes, String> {
    match dtypes.iter().find(|dtype| **dtype != DType::F32) {
        Some(other) => Err(format!("takes f32, found {other}")),
        None => Ok(smallvec![DType::F32; count]),
    }
}

/// The element type of all operands, `count` times.
fn equal_floats(kind: &Kind, dtypes: &[DType], count: usize) -> Result<DTypes, String> {
    Ok(smallvec![all_float(kind, dtypes)?[0]; count])
}

/// Operand `index` is i64, the others are of one float type.
fn with_label(kind: &Kind, dtypes: &[DType]) -> Result<DTypes, String> {
    if dtypes[1] != DType::I64 {
        return Err(format!("the label is {}, expected i64", dtypes[1]));
    }
    all_float(kind, &[&dtypes[..1], &dtypes[2..]].concat())
}

const BASE: Row = Row {
    name: "",
    arity: 1,
    variadic: false,
    shape_only: &[],
    stage: Stage::Logical,
    is_collective: false,
    around: None,
    is_copy: false,
    weights: WeightOperands::None,
    rule: elementwise,
    tree: |_, _| Vec::new(),
    leaves_one_part: false,
    linear: Linear::No,
    dtype: all_float,
    in_place: &[],
    host: Host::Several(host::identity),
    npu: npu::nothing,
    join: Join::Never,
    grad: None,
};

/// An attribute of an op, in texts.
trait Attribute: Sized {
    fn text(&self, axis_names: &[String]) -> String;

    /// The inverse of [`text`](Self::text); an error is a sentence.
    fn parse(key: &'static str, text: &str, axis_names: &[String]) -> Result<Self, String>;

    /// The mesh axes it names.
    fn axes(&self) -> &[AxisId] {
        &[]
    }
}

fn no_value(key: &'static str, text: &str) -> String {
    format!("`{text}` is no value of `{key}`")
}

/// An attribute of one value: its type, its text, and the inverse.
macro_rules! attributes {
    ($($type:ty: $text:expr, $parse:expr;)*) => { $(
        impl Attribute for $type {
            fn text(&self, _: &[String]) -> String {
                ($text)(self)
            }

            fn parse(key: &'static str, text: &str, _: &[String]) -> Result<Self, String> {
                ($parse)(key, text)
            }
        }
    )* };
}
attributes! {
    usize: Self::to_string, |key, text: &str| text.parse().map_err(|_| no_value(key, text));
    f64: |x| format!("{x:?}"), |key, text: &str| text.parse().map_err(|_| no_value(key, text));
    DType: Self::to_string, |_, text: &str| text.parse().map_err(|error| format!("{error}"));
    Reduce: Self::to_string, |_, text: &str| Self::named(text).ok_or_else(|| format!("`{text}` is no reduction"));
    Einsum: Self::to_string, |_, text: &str| text.parse();
    Compression: Self::to_string, |_, text: &str| text.parse();
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join("*")
}

impl Attribute for Vec<usize> {
    fn text(&self, _: &[String]) -> String {
        joined(self.iter().map(ToString::to_string))
    }

    fn parse(key: &'static str, text: &str, axis_names: &[String]) -> Result<Self, String> {
        text.split('*').map(|dim| Attribute::parse(key, dim, axis_names)).collect()
    }
}

impl Attribute for Vec<AxisId> {
    fn text(&self, axis_names: &[String]) -> String {
        joined(self.iter().map(|axis| axis_names[axis.index()].clone()))
    }

    fn parse(_: &'static str, text: &str, axis_names: &[String]) -> Result<Self, String> {
        let axis = |axis: &str| {
            let index = axis_names.iter().position(|known| known == axis);
            index.map(AxisId::from_index).ok_or_else(|| format!("the mesh has no axis `{axis}`"))
        };
        // None: of an op that lowering has not given any.
        if text.is_empty() { Ok(Self::new()) } else { text.split('*').map(axis).collect() }
    }

    fn axes(&self) -> &[AxisId] {
        self
    }
}

/// Defines the ops: documentation, variant and attributes, name, and what its row has other than
/// [`BASE`].
macro_rules! ops {
    ($(
        $(#[$doc:meta])*
        $name:ident $({ $( $(#[$about:meta])* $attribute:ident: $type:ty, )* })? = $text:literal { $($column:tt)* }
    )*) => {
        /// Which op, with its attributes.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Kind { $( $(#[$doc])* $name $({ $( $(#[$about])* $attribute: $type, )* })?, )* }

        /// The number of an op's row.
        enum Number { $( $name, )* }

        static ROWS: &[Row] = &[$( Row { name: $text, $($column)* ..BASE }, )*];

        /// Every row, for tests and tables.
        #[must_use]
        pub const fn rows() -> &'static [Row] {
            ROWS
        }

        impl Kind {
            /// The op's row.
            #[must_use]
            pub const fn row(&self) -> &'static Row {
                match self { $( Self::$name { .. } => &ROWS[Number::$name as usize], )* }
            }

            /// The mesh axes a lowered op works over; none for the others.
            #[must_use]
            pub fn axes(&self) -> &[AxisId] {
                let all: &[&[AxisId]] = match self {
                    $( Self::$name { $($($attribute,)*)? } => &[$($(Attribute::axes($attribute),)*)?], )*
                };
                all.iter().find(|axes| !axes.is_empty()).copied().unwrap_or_default()
            }

            /// The attributes as texts, in the order they print.
            #[must_use]
            pub fn attributes(&self, axis_names: &[String]) -> Vec<(&'static str, String)> {
                match self {
                    $( Self::$name { $($($attribute,)*)? } => {
                        vec![$($((stringify!($attribute), $attribute.text(axis_names)),)*)?]
                    } )*
                }
            }

            /// The op of that name and attributes; the inverse of [`Kind::attributes`].
            ///
            /// # Errors
            /// A sentence naming an unknown op, or an attribute that is missing or no value of its
            /// type.
            pub fn from_attributes(
                name: &str,
                attribute: &dyn Fn(&'static str) -> Result<String, String>,
                axis_names: &[String],
            ) -> Result<Self, String> {
                Ok(match name {
                    $( $text => Self::$name { $($(
                        $attribute: Attribute::parse(
                            stringify!($attribute), &attribute(stringify!($attribute))?, axis_names,
                        )?,
                    )*)? }, )*
                    other => return Err(format!("`{other}` is no op")),
                })
            }
        }
    };
}
use ops;

impl Kind {
    /// Whether ranks exchange data.
    #[must_use]
    pub const fn is_collective(&self) -> bool {
        self.row().is_collective
    }

    /// The op's name as the table spells it, if it is one.
    #[must_use]
    pub fn name_of(name: &str) -> Option<&'static str> {
        rows().iter().find(|row| row.name == name).map(|row| row.name)
    }

    /// The op whose sums over dims that may be cut are trees; itself, if it has none or several ops
    /// make it.
    #[must_use]
    pub fn in_tree(self) -> Self {
        match self {
            Self::MatMul { spec } => Self::TreeMatMul { spec },
            Self::ReduceSum { dim } => Self::TreeSum { dim, levels: BLOCK_LEVELS },
            Self::SumExp => Self::TreeSumExp,
            Self::EmbedGrad => Self::TreeEmbedGrad,
            other => other,
        }
    }

    /// Attention whose keys and values go from card to card; itself, if it is none.
    #[must_use]
    pub fn around(self) -> Self {
        match self {
            Self::Attention { scale } => Self::RingAttention { axes: Vec::new(), scale },
            other => other,
        }
    }

    /// The op over these axes, if it is one that computes and exchanges.
    #[must_use]
    pub fn over(&self, axes: Vec<AxisId>) -> Self {
        match *self {
            Self::CompressedSum { by, .. } => Self::CompressedSum { axes, by },
            Self::RingAttention { scale, .. } => Self::RingAttention { axes, scale },
            Self::RingAttentionGrad { scale, .. } => Self::RingAttentionGrad { axes, scale },
            ref other => other.clone(),
        }
    }

    /// The dims of a product.
    #[must_use]
    pub const fn einsum(&self) -> Option<&Einsum> {
        match self {
            Self::MatMul { spec } | Self::QuantMatMul { spec, .. } => Some(spec),
            _ => None,
        }
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
    let shapes: SmallVec<[&Shape; 6]> = operands.iter().map(|value| &value.shape).collect();
    let dtypes: SmallVec<[DType; 6]> = operands.iter().map(|value| value.dtype).collect();
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
