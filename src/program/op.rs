//! The op table: the definition of each op for all passes.
//!
//! A [`Row`] contains the name of an op, its sharding rule, its linear operands, its result types,
//! its host implementation and its lowering to aclnn calls. Attributes are in [`Kind`].
//! `op/table.rs` defines both together; passes have no lists of ops.

mod table;

use smallvec::{SmallVec, smallvec};

use crate::base::{AxisId, DType, Id, Reduce, Shape};
use crate::call::View;

use super::compress::Compression;
use super::grad::GradFn;
use super::graph::{Op, Value};
use super::interpret as host;
use super::npu::{self, Emit};
use super::rule::{Einsum, Factor, PackedDims, Rule, any_rank, letters};
use super::tree::{BLOCK_LEVELS, Halved};
use crate::base::HostTensor;
pub use table::{Kind, rows};

/// The operands through which an op can pass partial sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linear {
    /// No operand may be a partial sum.
    No,
    /// Any one of these operands alone: the op is linear in each.
    InEach(&'static [usize]),
    /// Every operand together: the op is linear in their tuple.
    Jointly,
    /// Scalars that may be partial sums. A replicated operand is converted to a partial sum with
    /// its value on one rank.
    Parts,
    /// The first operands together, up to the number of in-place results. The op reduces their sum
    /// itself. In-place results stay partial sums, and the other results are complete.
    Joins,
}

/// The first compiler stage at which an op can occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Part of logical programs.
    Logical,
    /// Inserted by the placement pass.
    Placed,
    /// Inserted by the lowering pass.
    Lowered,
}

/// Operands that can be weights. For these params, placement chooses between sharding the outputs
/// and the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightOperands {
    /// The op has no weights.
    None,
    /// Factors of a product, the more likely weight first. The summed dims are inputs.
    Factors(&'static [usize]),
    /// A lookup table. Its rows are outputs.
    Table(usize),
    /// The filter of a convolution: channels, and then one dim of taps. Checkpoints have the shape
    /// `[channels, 1, taps]`.
    Filter(usize),
}

impl WeightOperands {
    /// Returns the operands, the more likely weight first.
    #[must_use]
    pub fn operands(&self) -> &[usize] {
        match self {
            Self::None => &[],
            Self::Factors(operands) => operands,
            Self::Table(operand) | Self::Filter(operand) => std::slice::from_ref(operand),
        }
    }

    /// Returns whether the rule treats a dim of a weight as an input; `None` if the dim is never
    /// sharded.
    #[must_use]
    pub fn is_input(&self, rule: &Rule, operand: usize, dim: usize) -> Option<bool> {
        let Factor::Letter(letter) = rule.operands[operand][dim] else { return None };
        Some(rule.result_dim(0, letter).is_none() != self.is_table())
    }

    /// Returns whether the weight is the filter of a convolution.
    #[must_use]
    pub const fn is_filter(&self) -> bool {
        matches!(self, Self::Filter(_))
    }

    /// Returns whether the weight is a lookup table.
    #[must_use]
    pub const fn is_table(&self) -> bool {
        matches!(self, Self::Table(_))
    }
}

/// The way an op can share a kernel launch with other ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// The op needs a separate launch.
    Never,
    /// Products of one activation with several weights. The weights and the operands after them are
    /// stored contiguously.
    Product,
    /// The quantisation of the same rows.
    RowScale,
    /// The preceding scales, if the device has whole rows.
    Quantise,
    /// The preceding product, if the sum adds a param to it; otherwise the following norm.
    Sum,
    /// The preceding sum, if the norm reads its result.
    Norm,
    /// The two preceding products, as one operand.
    Gated,
    /// Another instance of the op on other heads with the same angles.
    Rotary,
    /// Another instance of the op on the adjacent cache of the layer.
    CacheRows,
}

/// Data that an op exchanges between ranks if its operands are sharded.
#[derive(Clone, Copy, Debug)]
pub struct OperandExchange {
    /// Operands that each rank needs completely, shard after shard.
    pub operands: &'static [usize],
    /// Results to which each rank contributes a summand for every shard.
    pub results: &'static [usize],
    /// The sharded dim of all these tensors.
    pub dim: usize,
}

type RuleFn = fn(&Kind, &[&Shape]) -> Result<Rule, String>;
type DTypes = SmallVec<[DType; 2]>;
type DTypeFn = fn(&Kind, &[DType]) -> Result<DTypes, String>;
type NpuFn = fn(&Kind, &mut Emit<'_>);
type ViewFn = fn(&Kind, &View, &Shape) -> Option<View>;
type TreeFn = fn(&Kind, &[&Shape]) -> Vec<(u8, Halved)>;

/// The host implementation of an op on whole tensors. It receives the operands, and for a single
/// result also its shape and type.
#[derive(Clone, Copy, Debug)]
pub enum Host {
    /// An op with one result.
    One(fn(&Kind, &[&HostTensor], &Value) -> HostTensor),
    /// An op with several results. It returns all results of the row, even unused ones.
    Several(fn(&Kind, &[&HostTensor]) -> Vec<HostTensor>),
}

/// The complete definition of one op.
#[derive(Clone, Copy)]
pub struct Row {
    /// Name in text forms.
    pub name: &'static str,
    /// Number of operands, unless variadic.
    pub arity: usize,
    /// True if the op takes one or more operands and returns as many results.
    pub variadic: bool,
    /// Operands used for their shape only. Their layout is free.
    pub shape_only: &'static [usize],
    /// First stage at which the op can occur.
    pub stage: Stage,
    /// True if ranks exchange data.
    pub is_collective: bool,
    /// Data exchanged between ranks during the computation.
    pub around: Option<OperandExchange>,
    /// True if the result replaces the first operand: a copy in another type, or its sum with a
    /// product. If this operand is a param, the result has the layout of the param.
    pub is_copy: bool,
    /// Operands that can be weights.
    pub weights: WeightOperands,
    /// First of two operands with the projections of all experts of a mixture: gate and up
    /// `[e,2,f,h]`, then down `[e,h,f]`.
    pub experts: Option<usize>,
    /// Sharding rule of an instance. Ops of the lowered stage move shards and have none.
    pub rule: RuleFn,
    /// Dims that are summed in tree order, by letter of the rule, outermost first.
    pub tree: TreeFn,
    /// True if each element of a partial sum is nonzero on at most one rank. The order of addition
    /// then has no effect.
    pub leaves_one_part: bool,
    /// True if that holds of the result whenever it holds of the first operand.
    pub keeps_one_part: bool,
    /// Operands that may be partial sums.
    pub linear: Linear,
    /// Function that returns the element types of the results.
    pub dtype: DTypeFn,
    /// The operand that each of the first results overwrites.
    pub in_place: &'static [usize],
    /// Host implementation on whole tensors.
    pub host: Host,
    /// Lowering to calls on the shards of one device.
    pub npu: NpuFn,
    /// For ops that only arrange the elements of their first operand: returns the result of a
    /// shape as a view of the operand, or `None` if the strides do not allow that.
    pub view: Option<ViewFn>,
    /// Operand whose elements become the result, if no other op reads it. It is then written to the
    /// place of the result.
    pub adds_to: Option<usize>,
    /// Dim along which the result is the concatenation of all operands, if it is one.
    pub concatenates: fn(&Kind) -> Option<usize>,
    /// True if the calls write results of any strides without a copy.
    pub writes_strided: bool,
    /// Possible sharing of a launch.
    pub join: Join,
    /// Function that adds the cotangents of the operands, if the op has a gradient.
    pub grad: Option<GradFn>,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row").field("name", &self.name).finish_non_exhaustive()
    }
}

fn sum(text: &str) -> Result<Rule, String> {
    Rule::parse(text, Reduce::Sum)
}

fn tree_sum(text: &str) -> Result<Rule, String> {
    Rule::parse(text, Reduce::Tree)
}

/// Returns the rule of an op on a cache in blocks. In `text`, `b` is the sequences and `~b` the
/// blocks. The tables of a pool's sequences count blocks within the pool, so only whole pools can
/// be sharded.
fn over_pools(text: &str, pools: usize, shapes: &[&Shape]) -> Result<Rule, String> {
    let rule = sum(&if pools == 1 { text.replace('b', "B") } else { text.to_owned() })?;
    let cache = rule.own_size.first().and_then(|own| shapes.get(own.operand)?.get(own.dim));
    let blocks = cache.copied().unwrap_or_default();
    if pools == 0 || !blocks.is_multiple_of(pools) {
        return Err(format!("{blocks} blocks cannot be dealt to {pools} equal pools"));
    }
    Ok(Rule { pools, ..rule })
}

/// Returns the rule of an elementwise op. Operands are aligned at the last dim, and dims of size 1
/// broadcast.
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
    let operands = shapes.iter().map(operand).collect::<Result<_, _>>()?;
    Ok(Rule::of(operands, smallvec![letters(whole.rank()).collect()], Reduce::Sum))
}

fn reduce_dim(rank: usize, dim: usize, reduce: Reduce) -> Result<Rule, String> {
    if dim >= rank {
        return Err(format!("dim {dim} of a tensor of {rank} dims"));
    }
    let kept = letters(rank).enumerate().filter(|(index, _)| *index != dim).map(|(_, letter)| letter);
    Ok(Rule::of(smallvec![letters(rank).collect()], smallvec![kept.collect()], reduce))
}

/// Returns the rule of a rotary embedding. `cos` and `sin` have as many elements a token as dims of
/// a head are rotated.
fn rotary_rule(shapes: &[&Shape]) -> Result<Rule, String> {
    let Some(heads) = shapes[0].rank().checked_sub(3) else {
        return Err(format!(
            "x has {} dims, expected batch, sequence, heads and head size",
            shapes[0].rank()
        ));
    };
    let heads = &any_rank(heads + 2)[2..];
    match (shapes[0].last(), shapes[1].last()) {
        (Some(whole), Some(rotated)) if rotated > whole || !rotated.is_multiple_of(2) => {
            Err(format!("{rotated} dims of a head of {whole} cannot be rotated in pairs"))
        }
        (Some(whole), Some(rotated)) if rotated < whole => sum(&format!("ab{heads}Z,abY,abY->ab{heads}Z")),
        _ => sum(&format!("ab{heads}Z,abZ,abZ->ab{heads}Z")),
    }
}

fn row_letters(rank: usize, dims: usize) -> Result<[SmallVec<[Factor; 6]>; 2], String> {
    match rank.checked_sub(dims).filter(|_| dims > 0) {
        Some(lead) => Ok([letters(rank).collect(), letters(lead).collect()]),
        None => Err(format!("rows of {dims} dims in a tensor of {rank} dims")),
    }
}

fn reduce_rows(rank: usize, dims: usize, reduce: Reduce) -> Result<Rule, String> {
    let [whole, lead] = row_letters(rank, dims)?;
    Ok(Rule::of(smallvec![whole], smallvec![lead], reduce))
}

/// Returns the rule of an elementwise op with one scale per row of the last `dims` dims.
fn scaled_rows(rank: usize, dims: usize) -> Result<Rule, String> {
    let [whole, lead] = row_letters(rank, dims)?;
    Ok(Rule::of(smallvec![whole.clone(), lead], smallvec![whole], Reduce::Sum))
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

/// Checks that operand `index` is i64 and all other operands have one float type.
fn floats_with_index(dtypes: &[DType], index: usize) -> Result<DTypes, String> {
    if dtypes[index] != DType::I64 {
        return Err(format!("operand {index} is {}, expected i64", dtypes[index]));
    }
    let floats: Vec<DType> =
        dtypes.iter().enumerate().filter(|(operand, _)| *operand != index).map(|(_, dtype)| *dtype).collect();
    all_float(&Kind::Add, &floats)
}

/// Returns the rule of an op over dim `z`, the last dim of the first operand.
fn over_last(shape: &Shape, text: impl Fn(&str) -> String) -> Result<Rule, String> {
    match shape.rank().checked_sub(1) {
        Some(lead) => sum(&text(&any_rank(lead))),
        None => Err("a scalar has no last dim".to_owned()),
    }
}

/// Returns an elementwise rule with `results` results of the first operand's shape.
fn elementwise_results(kind: &Kind, shapes: &[&Shape], results: usize) -> Result<Rule, String> {
    let mut rule = elementwise(kind, shapes)?;
    rule.results = smallvec![rule.results[0].clone(); results];
    Ok(rule)
}

/// Returns the rule of [`elementwise_results`] for operands of one shape.
fn of_one_shape(kind: &Kind, shapes: &[&Shape], results: usize) -> Result<Rule, String> {
    match shapes.iter().find(|shape| **shape != shapes[0]) {
        Some(other) => Err(format!("shapes differ, {} and {other}", shapes[0])),
        None => elementwise_results(kind, shapes, results),
    }
}

/// Returns the rule of [`of_one_shape`] for `tensors` operands followed by scalars.
fn with_numbers(kind: &Kind, shapes: &[&Shape], tensors: usize, results: usize) -> Result<Rule, String> {
    if let Some(number) = shapes[tensors..].iter().find(|shape| shape.rank() > 0) {
        return Err(format!("operands after {} must be scalars, found shape {number}", tensors - 1));
    }
    of_one_shape(kind, &shapes[..tensors], results)?;
    elementwise_results(kind, shapes, results)
}

/// Returns an attention rule for queries, keys and mask of the same tokens.
fn of_own_tokens(rule: &str, shapes: &[&Shape]) -> Result<Rule, String> {
    match (shapes[0].get(1), shapes[3].get(2)) {
        (Some(queries), Some(keys)) if queries != keys => {
            Err(format!("the mask {} is of {keys} keys, and there are {queries} tokens", shapes[3]))
        }
        _ => sum(rule),
    }
}

/// Returns `count` f32 types. All operands must be f32.
fn singles(_: &Kind, dtypes: &[DType], count: usize) -> Result<DTypes, String> {
    match dtypes.iter().find(|dtype| **dtype != DType::F32) {
        Some(other) => Err(format!("takes f32, found {other}")),
        None => Ok(smallvec![DType::F32; count]),
    }
}

fn equal_floats(kind: &Kind, dtypes: &[DType], count: usize) -> Result<DTypes, String> {
    Ok(smallvec![all_float(kind, dtypes)?[0]; count])
}

/// Checks that operand 1 is i64 and that all other operands have one float type.
fn with_label(kind: &Kind, dtypes: &[DType]) -> Result<DTypes, String> {
    if dtypes[1] != DType::I64 {
        return Err(format!("the label is {}, expected i64", dtypes[1]));
    }
    all_float(kind, &[&dtypes[..1], &dtypes[2..]].concat())
}

/// Returns the letters of a tensor of any rank, with another letter for one dim.
fn letters_with(rank: usize, dim: usize, letter: u8) -> String {
    let letters = any_rank(rank);
    letters
        .bytes()
        .enumerate()
        .map(|(at, known)| char::from(if at == dim { letter } else { known }))
        .collect()
}

/// Returns the rule of an op on each matrix of the last two dims.
fn of_matrices(shape: &Shape) -> Result<Rule, String> {
    match shape.rank().checked_sub(2) {
        Some(lead) => sum(&format!("{0}YZ->{0}YZ", any_rank(lead))),
        None => Err(format!("{shape} has no matrices")),
    }
}

/// Returns the letters of all dims but the first, without the letters `a` and `b`.
fn after_first(shape: &Shape) -> Result<String, String> {
    match shape.rank().checked_sub(1) {
        Some(rest) => Ok(any_rank(rest + 2)[2..].to_owned()),
        None => Err("a scalar has no states".to_owned()),
    }
}

/// Returns the letters of the channels of a convolution, and the tokens of its result.
fn filtered(padded: usize, shapes: &[&Shape]) -> Result<(String, usize), String> {
    let (x, taps) = (shapes[0], shapes[1].last().copied().unwrap_or_default());
    match (x.rank().checked_sub(2), x.get(1).and_then(|tokens| (tokens + padded + 1).checked_sub(taps))) {
        (Some(channels), Some(tokens)) => Ok((any_rank(channels + 2)[2..].to_owned(), tokens)),
        _ => Err(format!("{taps} taps do not fit {padded} zeros and x of shape {x}")),
    }
}

/// Returns the rule of a product with a packed weight.
fn packed(kind: &Kind, shapes: &[&Shape]) -> Result<Rule, String> {
    match (kind.einsum(), kind.packed()) {
        (Some(spec), Some(dims)) => spec.packed_rule(dims, shapes),
        _ => Err("not a product with a packed weight".to_owned()),
    }
}

/// Checks that the second dim of the first projection of experts is the gate and the up projection.
fn gate_and_up(shape: &Shape) -> Result<(), String> {
    match shape.get(1) {
        Some(2) => Ok(()),
        _ => Err(format!("gate_up has shape {shape}, expected [e, 2, f, h]")),
    }
}

/// Returns the element type of experts: x, indices, f32 weights, and both projections.
fn of_experts(kind: &Kind, dtypes: &[DType]) -> Result<DType, String> {
    match *dtypes {
        [x, DType::I64, DType::F32, gate_up, down] => Ok(all_float(kind, &[x, gate_up, down])?[0]),
        _ => Err(format!("takes x, i64, f32, gate_up and down, found {dtypes:?}")),
    }
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
    experts: None,
    rule: elementwise,
    tree: |_, _| Vec::new(),
    leaves_one_part: false,
    keeps_one_part: false,
    linear: Linear::No,
    dtype: all_float,
    in_place: &[],
    host: Host::Several(host::identity),
    npu: npu::nothing,
    view: None,
    adds_to: None,
    concatenates: |_| None,
    writes_strided: false,
    join: Join::Never,
    grad: None,
};

trait Attribute: Sized {
    fn text(&self, axis_names: &[String]) -> String;

    /// Parses the output of [`text`](Self::text). An error is a sentence.
    fn parse(key: &'static str, text: &str, axis_names: &[String]) -> Result<Self, String>;

    fn axes(&self) -> &[AxisId] {
        &[]
    }
}

fn no_value(key: &'static str, text: &str) -> String {
    format!("`{text}` is no value of `{key}`")
}

/// Implements [`Attribute`] for types with a single value, from a print and a parse function.
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

/// Text of an attribute without a value.
const NONE: &str = "none";

impl<T: Attribute> Attribute for Option<T> {
    fn text(&self, axis_names: &[String]) -> String {
        self.as_ref().map_or_else(|| NONE.to_owned(), |value| value.text(axis_names))
    }

    fn parse(key: &'static str, text: &str, axis_names: &[String]) -> Result<Self, String> {
        (text != NONE).then(|| T::parse(key, text, axis_names)).transpose()
    }
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
        if text.is_empty() { Ok(Self::new()) } else { text.split('*').map(axis).collect() }
    }

    fn axes(&self) -> &[AxisId] {
        self
    }
}

/// Defines all ops: documentation, variant, attributes, name, and the differences of the row from
/// [`BASE`].
macro_rules! ops {
    ($(
        $(#[$doc:meta])*
        $name:ident $({ $( $(#[$about:meta])* $attribute:ident: $type:ty, )* })? = $text:literal { $($column:tt)* }
    )*) => {
        /// An op with its attributes.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Kind { $( $(#[$doc])* $name $({ $( $(#[$about])* $attribute: $type, )* })?, )* }

        enum Number { $( $name, )* }

        static ROWS: &[Row] = &[$( Row { name: $text, $($column)* ..BASE }, )*];

        /// Returns every row, for tests and tables.
        #[must_use]
        pub const fn rows() -> &'static [Row] {
            ROWS
        }

        impl Kind {
            /// Returns the row of the op.
            #[must_use]
            pub const fn row(&self) -> &'static Row {
                match self { $( Self::$name { .. } => &ROWS[Number::$name as usize], )* }
            }

            /// Returns the mesh axes of a lowered op; empty for other ops.
            #[must_use]
            pub fn axes(&self) -> &[AxisId] {
                let all: &[&[AxisId]] = match self {
                    $( Self::$name { $($($attribute,)*)? } => &[$($(Attribute::axes($attribute),)*)?], )*
                };
                all.iter().find(|axes| !axes.is_empty()).copied().unwrap_or_default()
            }

            /// Returns the attributes as texts, in print order.
            #[must_use]
            pub fn attributes(&self, axis_names: &[String]) -> Vec<(&'static str, String)> {
                match self {
                    $( Self::$name { $($($attribute,)*)? } => {
                        vec![$($((stringify!($attribute), $attribute.text(axis_names)),)*)?]
                    } )*
                }
            }

            /// Returns the op with this name and these attributes. This is the inverse of
            /// [`Kind::attributes`].
            ///
            /// # Errors
            /// A sentence about an unknown op, or a missing or invalid attribute.
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

#[doc(hidden)]
impl Kind {
    /// Returns whether ranks exchange data.
    #[must_use]
    pub const fn is_collective(&self) -> bool {
        self.row().is_collective
    }

    /// Returns the static spelling of an op name, or `None` if no op has this name.
    #[must_use]
    pub fn name_of(name: &str) -> Option<&'static str> {
        rows().iter().find(|row| row.name == name).map(|row| row.name)
    }

    /// Returns the variant of the op that sums in tree order. Returns the op itself if it has no
    /// variant, or if several ops replace it.
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

    /// Returns ring attention for attention, and other ops unchanged.
    #[must_use]
    pub fn around(self) -> Self {
        let Self::Attention { scale } = self else { return self };
        Self::RingAttention { axes: Vec::new(), scale }
    }

    /// Returns the op for a cache that is one pool. Ops without pools are unchanged.
    #[must_use]
    pub fn in_one_pool(&self) -> Self {
        let mut kind = self.clone();
        if let Self::WriteSlots { pools }
        | Self::WriteScales { pools }
        | Self::ReadStates { pools }
        | Self::WriteStates { pools }
        | Self::BlockAttention { pools, .. }
        | Self::QuantBlockAttention { pools, .. } = &mut kind
        {
            *pools = 1;
        }
        kind
    }

    /// Sets the axes of an op that computes and communicates. Other ops are unchanged.
    #[must_use]
    pub fn over(&self, axes: Vec<AxisId>) -> Self {
        match *self {
            Self::CompressedSum { by, .. } => Self::CompressedSum { axes, by },
            Self::RingAttention { scale, .. } => Self::RingAttention { axes, scale },
            Self::RingAttentionGrad { scale, .. } => Self::RingAttentionGrad { axes, scale },
            ref other => other.clone(),
        }
    }

    /// Returns the einsum of a product.
    #[must_use]
    pub const fn einsum(&self) -> Option<&Einsum> {
        match self {
            Self::MatMul { spec }
            | Self::QuantMatMul { spec, .. }
            | Self::StaticMatMul { spec, .. }
            | Self::PackedMatMul { spec, .. }
            | Self::OffsetPackedMatMul { spec, .. } => Some(spec),
            _ => None,
        }
    }

    /// Returns the dims of a packed weight.
    #[must_use]
    pub const fn packed(&self) -> Option<PackedDims> {
        match self {
            Self::PackedMatMul { sharded, group, .. } | Self::OffsetPackedMatMul { sharded, group, .. } => {
                Some(PackedDims { sharded: *sharded, group: *group })
            }
            _ => None,
        }
    }

    /// Returns whether the op only moves shards. On whole tensors, such an op is the identity.
    #[must_use]
    pub fn is_movement(&self) -> bool {
        self.row().stage > Stage::Logical
    }
}

/// Returns the types of all possible results of an op.
///
/// # Errors
/// A sentence about operands that do not fit.
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

/// Returns the sharding rule of an op in a program.
///
/// # Errors
/// The op does not fit its operands.
pub fn rule_of(op: &Op, shapes: &[&Shape]) -> Result<Rule, String> {
    (op.kind.row().rule)(&op.kind, shapes)
}
