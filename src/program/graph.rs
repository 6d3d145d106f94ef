//! The graph of a program: values and ops by id, in order of execution.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

use crate::base::{DType, IdVec, Packing, Shape, WORD, define_id};

use super::op::Kind;
use super::stored_dims::StoredDims;
use super::tensor_names::TensorNames;

define_id!(
    /// Id of a value; prints as `%17`.
    ValueId,
    "%"
);
define_id!(
    /// Id of an op; prints as `@17`.
    OpId,
    "@"
);

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// An input that each run receives.
    Input,
    /// A weight, set once.
    Param,
    /// A state such as a KV cache, kept between runs and overwritten in place.
    State,
    /// The result of an op.
    Result,
}

#[doc(hidden)]
impl Role {
    /// Returns the keyword of the value's line in the text form; `None` for results.
    #[must_use]
    pub const fn keyword(self) -> Option<&'static str> {
        match self {
            Self::Input => Some("input"),
            Self::Param => Some("param"),
            Self::State => Some("state"),
            Self::Result => None,
        }
    }
}

/// The checkpoint tensor of a param, or a stack of checkpoint tensors. The param uses the elements
/// of each tensor from `element_offset` on, in row-major order.
///
/// The tensors of a stack are counted by the first dims of the param, so a param `[8,2,64,32]` can
/// be a stack of 16 tensors `[64,32]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Tensor name in the checkpoint, or a pattern with braces for a stack; see [`TensorNames`].
    /// `experts.{0..8}.{gate,up}.weight` means 16 tensors. The end of the range is exclusive.
    pub tensor: String,
    /// First element within each checkpoint tensor.
    pub element_offset: usize,
    /// Transformation of the elements.
    pub form: Form,
}

/// The checkpoint tensors of a param of a certain shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorStack {
    /// Names of the tensors.
    pub names: TensorNames,
    /// Number of dims of the param that count the tensors. 0 for one tensor.
    pub dims: usize,
}

impl TensorStack {
    /// Returns the part of the param that one tensor holds. `shape` is the shape of the param.
    #[must_use]
    pub fn part(&self, shape: &Shape) -> Shape {
        Shape::from(&shape[self.dims..])
    }

    /// Returns the ranges of the param that the tensor with this index holds, one per dim.
    #[must_use]
    pub fn ranges(&self, shape: &Shape, index: usize) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = shape.iter().map(|size| 0..*size).collect();
        let mut rest = index;
        for (range, size) in ranges[..self.dims].iter_mut().zip(shape.iter()).rev() {
            *range = rest % size..rest % size + 1;
            rest /= size;
        }
        ranges
    }
}

impl Source {
    /// Returns the checkpoint tensors of a param of shape `shape`.
    ///
    /// # Errors
    /// A sentence that describes the first problem:
    /// - The name is not a valid pattern, or the first dims of the param do not count its names.
    /// - The form has an order of dims, but the source is a stack or a part of a tensor, or the
    ///   order does not fit.
    pub fn stack(&self, shape: &Shape) -> Result<TensorStack, String> {
        let names = TensorNames::parse(&self.tensor)?;
        if let Form::Blocks { block_elems, stride_elems } = self.form
            && (names.count() > 1
                || block_elems == 0
                || stride_elems < block_elems
                || !shape.elems().is_multiple_of(block_elems))
        {
            return Err(format!(
                "{shape} has no blocks of {block_elems} elements, {stride_elems} apart, in one tensor"
            ));
        }
        if let Some(matrix) = self.form.matrix(shape)
            && !matrix.fits(names.count(), self.element_offset)
        {
            return Err(format!("{} has no whole rows of {} elements", matrix.shape, matrix.row_elems));
        }
        if let Some(dims) = self.form.dims() {
            let stored = dims.shape(shape)?;
            if names.count() > 1 || self.element_offset > 0 {
                return Err("an order of dims is for one whole tensor".to_owned());
            }
            let columns = stored.last().copied().unwrap_or(0);
            if matches!(self.form, Form::Mxfp4(_)) && !columns.is_multiple_of(Form::MXFP4_BLOCK) {
                return Err(format!("the rows of {stored} have no whole blocks of {}", Form::MXFP4_BLOCK));
            }
        }
        let sizes = self.form.with_groups_last(shape);
        let mut counts = (0..=sizes.len()).map(|dims| sizes[..dims].iter().product::<usize>());
        let Some(dims) = counts.position(|count| count == names.count()) else {
            return Err(format!("the first dims of {shape} do not count {} tensors", names.count()));
        };
        Ok(TensorStack { names, dims })
    }

    /// Returns the tensors of bytes that a param in MXFP4 is stored in: the numbers, then the
    /// scales. `None` for other forms, and if the param does not fit.
    #[must_use]
    pub fn mxfp4(&self, shape: &Shape) -> Option<[(String, Shape); 2]> {
        let Form::Mxfp4(dims) = self.form else { return None };
        self.stack(shape).ok()?;
        let stored = dims.shape(shape).ok()?;
        let (columns, rows) = stored.split_last()?;
        let blocks = [rows, &[columns / Form::MXFP4_BLOCK]].concat();
        let bytes = [&blocks[..], &[Form::MXFP4_BLOCK / 2]].concat();
        let name = |ending: &str| format!("{}{ending}", self.tensor);
        Some([(name(Form::BLOCKS), bytes.into()), (name(Form::SCALES), blocks.into())])
    }
}

/// The transformation from checkpoint elements to param elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The numbers, converted to the element type of the param.
    Numbers,
    /// Rows of `row_elems` numbers as 8-bit integers. Each number is divided by the row's scale and
    /// rounded, ties to even.
    RowBytes {
        /// Number of elements per row.
        row_elems: usize,
    },
    /// The scale of each row: its largest magnitude divided by 127.
    RowScales {
        /// Number of elements per row.
        row_elems: usize,
    },
    /// The numbers of blocks of consecutive elements that start `stride_elems` apart, such as the
    /// key rows of each head in a tensor with the key and value rows of each head.
    Blocks {
        /// Number of elements per block.
        block_elems: usize,
        /// Number of elements between the starts of two blocks.
        stride_elems: usize,
    },
    /// The numbers of a tensor that has the dims of the param in another order, converted to the
    /// element type of the param.
    Dims(StoredDims),
    /// As [`Self::Dims`], but the numbers are stored in MXFP4. The last stored dim is split into
    /// blocks of 32 numbers with one scale. The numbers and the scales are two tensors of bytes,
    /// named by [`Self::BLOCKS`] and [`Self::SCALES`].
    Mxfp4(StoredDims),
    /// The numbers of rows of a packed matrix. The tensors of the matrix have the name of the
    /// source with other last parts; see [`Packing::tensors`].
    Packed(PackedRows),
    /// Rows of a packed matrix as 8-bit integers, as [`Self::RowBytes`] of the numbers.
    PackedBytes(PackedRows),
    /// The scales of rows of a packed matrix, as [`Self::RowScales`] of the numbers.
    PackedScales(PackedRows),
    /// Rows of a packed matrix as words: eight signed 4-bit integers per i32 along the inputs, the
    /// first one in the lowest bits. The stored numbers minus 8.
    Words(PackedRows),
    /// The scales of groups of inputs of rows of a packed matrix.
    GroupScales(GroupRows),
    /// The offsets of groups of inputs, for weights `(number + offset) · scale` with the numbers of
    /// [`Self::Words`]: 8 minus the zero points.
    GroupOffsets(GroupRows),
    /// Scales or offsets of quantised numbers: floats, integers of 8 or 32 bits, or integers of 64
    /// bits with the bits of an f32 in the lower half. The tensor can have more dims of size 1.
    QuantParams,
}

/// Rows of a packed matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackedRows {
    /// Number of elements per row.
    pub row_elems: usize,
    /// Layout of the matrix.
    pub packing: Packing,
    /// Blocks of rows that the param uses. `None`: consecutive rows.
    pub blocks: Option<RowBlocks>,
}

/// Rows of a packed matrix with one element per group of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupRows {
    /// The rows.
    pub rows: PackedRows,
    /// Number of inputs per element. A divisor of the inputs per stored scale.
    pub group: usize,
    /// Dim of the param that counts the groups.
    pub place: GroupPlace,
}

/// The dim of a param that counts groups of inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GroupPlace {
    /// The last dim, as in the rows of the matrix.
    #[default]
    Last,
    /// The second dim, after the experts. Grouped products read groups in this order.
    Second,
}

impl GroupRows {
    /// End of the text of a group in the second dim.
    const SECOND: &str = "@1";

    fn parse(text: &str) -> Option<Self> {
        let (group, rows) = text.split_once('/')?;
        let (group, place) = match group.strip_suffix(Self::SECOND) {
            Some(group) => (group, GroupPlace::Second),
            None => (group, GroupPlace::Last),
        };
        let group = group.parse().ok().filter(|group| *group > 0)?;
        Some(Self { rows: PackedRows::parse(rows)?, group, place })
    }
}

impl fmt::Display for GroupRows {
    /// Prints `32/64/gptq:32:1`: the group, and the rows. `32@1/64/gptq:32:1` has the groups in the
    /// second dim.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.place == GroupPlace::Second { Self::SECOND } else { "" };
        write!(f, "{}{place}/{}", self.group, self.rows)
    }
}

/// The elements of a param that is read from a packed matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedMatrix {
    /// Rows and layout of the stored matrix.
    pub rows: PackedRows,
    /// Shape of the param. Scales of rows have another dim of `row_elems`.
    pub shape: Shape,
    /// Number of elements of the shape per row of the matrix.
    pub row_elems: usize,
}

impl PackedMatrix {
    /// Returns whether the last dims of the shape are rows, and its first dims count whole rows of
    /// `tensors` matrices from `element_offset` on.
    fn fits(&self, tensors: usize, element_offset: usize) -> bool {
        let Self { rows, shape, row_elems } = self;
        let has_blocks = rows.blocks.is_none_or(|blocks| {
            tensors == 1
                && blocks.rows > 0
                && blocks.stride >= blocks.rows
                && shape.elems().is_multiple_of(blocks.rows * row_elems.max(&1))
        });
        *row_elems > 0
            && has_blocks
            && self.first_column_dim(shape).is_some()
            && element_offset.is_multiple_of(rows.row_elems)
    }

    /// Returns the first dim of a part of the shape that is in the rows. All dims after it are in
    /// the rows too.
    #[must_use]
    pub fn first_column_dim(&self, part: &Shape) -> Option<usize> {
        (0..=part.rank()).rev().find(|dim| part[*dim..].iter().product::<usize>() == self.row_elems)
    }
}

/// Blocks of consecutive rows at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowBlocks {
    /// Number of rows per block.
    pub rows: usize,
    /// Number of rows between the starts of two blocks.
    pub stride: usize,
}

impl PackedRows {
    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let (row_elems, packing, blocks) = match parts[..] {
            [row_elems, packing] => (row_elems, packing, None),
            [row_elems, packing, rows, stride] => (
                row_elems,
                packing,
                Some(RowBlocks { rows: rows.parse().ok()?, stride: stride.parse().ok()? }),
            ),
            _ => return None,
        };
        Some(Self { row_elems: row_elems.parse().ok()?, packing: Packing::parse(packing)?, blocks })
    }
}

impl fmt::Display for PackedRows {
    /// Prints `64/gptq:32:1`, or `64/fp8:128:128/4/6` with blocks of rows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.row_elems, self.packing)?;
        self.blocks.map_or(Ok(()), |blocks| write!(f, "/{}/{}", blocks.rows, blocks.stride))
    }
}

impl Form {
    /// Largest magnitude of a quantised element.
    pub const LARGEST: f32 = 127.0;
    /// Number of numbers in MXFP4 per scale.
    pub const MXFP4_BLOCK: usize = 32;
    /// End of the name of a tensor of packed numbers.
    pub const BLOCKS: &str = "_blocks";
    /// End of the name of a tensor with the scales of packed numbers.
    pub const SCALES: &str = "_scales";

    /// Parses a form such as `bytes/64` or `dims/0,21,3`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, of) = text.split_once('/')?;
        match name {
            "bytes" => Some(Self::RowBytes { row_elems: of.parse().ok()? }),
            "scales" => Some(Self::RowScales { row_elems: of.parse().ok()? }),
            "blocks" => {
                let (block, stride) = of.split_once('/')?;
                Some(Self::Blocks { block_elems: block.parse().ok()?, stride_elems: stride.parse().ok()? })
            }
            "dims" => Some(Self::Dims(StoredDims::parse(of).ok()?)),
            "mxfp4" => Some(Self::Mxfp4(StoredDims::parse(of).ok()?)),
            "packed" => Some(Self::Packed(PackedRows::parse(of)?)),
            "packedbytes" => Some(Self::PackedBytes(PackedRows::parse(of)?)),
            "packedscales" => Some(Self::PackedScales(PackedRows::parse(of)?)),
            "words" => Some(Self::Words(PackedRows::parse(of)?)),
            "groupscales" => Some(Self::GroupScales(GroupRows::parse(of)?)),
            "groupoffsets" => Some(Self::GroupOffsets(GroupRows::parse(of)?)),
            "quant" if of == "params" => Some(Self::QuantParams),
            _ => None,
        }
    }

    /// Returns the order of dims of a whole tensor, for forms that have one.
    #[must_use]
    pub const fn dims(self) -> Option<StoredDims> {
        match self {
            Self::Dims(dims) | Self::Mxfp4(dims) => Some(dims),
            Self::Numbers
            | Self::Blocks { .. }
            | Self::RowBytes { .. }
            | Self::RowScales { .. }
            | Self::Packed(_)
            | Self::PackedBytes(_)
            | Self::PackedScales(_)
            | Self::Words(_)
            | Self::GroupScales(_)
            | Self::GroupOffsets(_)
            | Self::QuantParams => None,
        }
    }

    /// Returns the number of weights of the model that a param of this shape and type has. Scales,
    /// offsets and integers that are added to products are none.
    #[must_use]
    pub fn parameters(self, shape: &Shape, dtype: DType) -> usize {
        match self {
            Self::RowScales { .. }
            | Self::PackedScales(_)
            | Self::GroupScales(_)
            | Self::GroupOffsets(_)
            | Self::QuantParams => 0,
            Self::Words(_) => shape.elems() * WORD,
            _ if dtype == DType::I32 => 0,
            _ => shape.elems(),
        }
    }

    /// Returns the matrix of a param of this shape that is read from packed rows, or `None` for
    /// other forms.
    #[must_use]
    pub fn matrix(self, shape: &Shape) -> Option<PackedMatrix> {
        let (rows, row_elems) = match self {
            Self::Packed(rows) | Self::PackedBytes(rows) | Self::PackedScales(rows) => (rows, rows.row_elems),
            Self::Words(rows) => (rows, rows.row_elems / WORD),
            Self::GroupScales(GroupRows { rows, group, .. })
            | Self::GroupOffsets(GroupRows { rows, group, .. }) => (rows, rows.row_elems.div_ceil(group)),
            _ => return None,
        };
        let added = matches!(self, Self::PackedScales(_)).then_some(row_elems);
        let shape = self.with_groups_last(shape).into_iter().chain(added).collect();
        Some(PackedMatrix { rows, shape, row_elems })
    }

    /// Returns whether groups of inputs are the second dim of a param.
    #[must_use]
    pub const fn has_groups_second(self) -> bool {
        matches!(
            self,
            Self::GroupScales(GroupRows { place: GroupPlace::Second, .. })
                | Self::GroupOffsets(GroupRows { place: GroupPlace::Second, .. })
        )
    }

    /// Returns one element per dim of a param, in the order of the checkpoint: groups of inputs are
    /// the last dim.
    #[must_use]
    pub fn with_groups_last<T: Clone>(self, dims: &[T]) -> Vec<T> {
        let mut dims = dims.to_vec();
        if self.has_groups_second() && dims.len() > 1 {
            dims[1..].rotate_left(1);
        }
        dims
    }
}

impl fmt::Display for Form {
    /// Prints `bytes/64`, `scales/64`, `dims/0,21,3`, `mxfp4/0,21,3`, `packed/64/awq:32` or
    /// `quant/params`, and nothing for plain numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbers => Ok(()),
            Self::RowBytes { row_elems } => write!(f, "bytes/{row_elems}"),
            Self::RowScales { row_elems } => write!(f, "scales/{row_elems}"),
            Self::Blocks { block_elems, stride_elems } => write!(f, "blocks/{block_elems}/{stride_elems}"),
            Self::Dims(dims) => write!(f, "dims/{dims}"),
            Self::Mxfp4(dims) => write!(f, "mxfp4/{dims}"),
            Self::Packed(rows) => write!(f, "packed/{rows}"),
            Self::PackedBytes(rows) => write!(f, "packedbytes/{rows}"),
            Self::PackedScales(rows) => write!(f, "packedscales/{rows}"),
            Self::Words(rows) => write!(f, "words/{rows}"),
            Self::GroupScales(rows) => write!(f, "groupscales/{rows}"),
            Self::GroupOffsets(rows) => write!(f, "groupoffsets/{rows}"),
            Self::QuantParams => f.write_str("quant/params"),
        }
    }
}

impl fmt::Display for Source {
    /// Prints `from "lm_head.weight"+0`, with the pattern of a stack. Forms other than plain
    /// numbers follow, such as ` bytes/64`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from \"{}\"+{}", self.tensor, self.element_offset)?;
        match self.form {
            Form::Numbers => Ok(()),
            form => write!(f, " {form}"),
        }
    }
}

/// A tensor of a program. Every compiler stage stores the shape of the whole tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Name for messages and pins, such as `layers.0.mlp.down`. Names of inputs, params and states
    /// are unique; results may have none.
    pub name: String,
    /// Sizes of the whole tensor.
    pub shape: Shape,
    /// Type of the elements.
    pub dtype: DType,
    /// Origin of the value.
    pub role: Role,
    /// Checkpoint source, for params that have one.
    pub source: Option<Source>,
}

/// An op with its operands and results.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// The op and its attributes.
    pub kind: Kind,
    /// Operands in the order of the op's row.
    pub operands: Vec<ValueId>,
    /// Results in the order of the op's row, at least one. Unused results at the end may be absent.
    pub results: SmallVec<[ValueId; 2]>,
}

#[doc(hidden)]
impl Op {
    /// Returns the first result.
    #[must_use]
    pub fn result(&self) -> ValueId {
        self.results[0]
    }
}

/// A program over whole tensors. Ops run in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Program name for messages.
    pub name: String,
    /// Values of the program by id.
    pub values: IdVec<ValueId, Value>,
    /// Ops in order of execution.
    pub ops: IdVec<OpId, Op>,
    /// Outputs of a run, with their names.
    pub outputs: Vec<(String, ValueId)>,
}

impl Program {
    #[must_use]
    pub(crate) fn without_ops(&self) -> Self {
        let Self { name, values, outputs, .. } = self;
        Self { name: name.clone(), values: values.clone(), ops: IdVec::new(), outputs: outputs.clone() }
    }

    /// Returns the ids of the values of one role, in order.
    #[doc(hidden)]
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = ValueId> + '_ {
        self.values.iter().filter(move |(_, value)| value.role == role).map(|(id, _)| id)
    }

    /// Returns the value with this name and role.
    #[must_use]
    #[doc(hidden)]
    pub fn find(&self, role: Role, name: &str) -> Option<ValueId> {
        self.with_role(role).find(|id| self.values[*id].name == name)
    }

    /// Returns the name of a value, or its id if it has no name.
    #[must_use]
    #[doc(hidden)]
    pub fn label(&self, id: ValueId) -> String {
        let name = &self.values[id].name;
        if name.is_empty() { id.to_string() } else { name.clone() }
    }

    /// Returns the shapes of an op's operands.
    #[must_use]
    #[doc(hidden)]
    pub fn operand_shapes(&self, op: &Op) -> Vec<&Shape> {
        op.operands.iter().map(|id| &self.values[*id].shape).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dims_count_the_tensors_of_a_stack() {
        let stack = |tensor: &str, shape: &[usize]| {
            let source = Source { tensor: tensor.to_owned(), element_offset: 0, form: Form::Numbers };
            let shape = Shape::from(shape);
            source.stack(&shape).map(|stack| (stack.names.count(), stack.part(&shape).to_vec()))
        };
        assert_eq!(stack("w", &[4, 3]), Ok((1, vec![4, 3])));
        assert_eq!(stack("w", &[]), Ok((1, vec![])));
        assert_eq!(stack("e.{0..4}.w", &[4, 3]), Ok((4, vec![3])));
        assert_eq!(stack("e.{0..4}.{a,b}.w", &[4, 2, 5, 3]), Ok((8, vec![5, 3])));
        assert_eq!(stack("e.{0..1}.w", &[1, 5, 3]), Ok((1, vec![1, 5, 3])));
        assert_eq!(
            stack("e.{0..4}.w", &[2, 3]),
            Err("the first dims of [2,3] do not count 4 tensors".to_owned())
        );
        assert!(stack("e.{0..4.w", &[4]).unwrap_err().contains("without its partner"));
    }

    #[test]
    fn groups_of_experts_can_be_the_second_dim() {
        let stack = |form: &str, shape: &[usize]| {
            let form = Form::parse(form).unwrap();
            assert_eq!(Form::parse(&form.to_string()), Some(form));
            let tensor = "e.{0..4}.{a,b}.w".to_owned();
            Source { tensor, element_offset: 0, form }.stack(&shape.into()).map(|stack| stack.dims)
        };
        assert_eq!(stack("groupscales/32/64/rows:32", &[4, 2, 5, 3, 2]), Ok(2));
        assert_eq!(stack("groupscales/32@1/64/rows:32", &[4, 2, 2, 5, 3]), Ok(2));
        assert_eq!(stack("groupoffsets/16@1/64/rows:32", &[4, 4, 2, 5, 3]), Ok(2));
        assert!(stack("groupoffsets/16@1/64/rows:32", &[4, 2, 2, 5, 3]).is_err());
    }

    #[test]
    fn an_order_of_dims_is_for_one_whole_tensor() {
        let source = |tensor: &str, element_offset, form: &str| Source {
            tensor: tensor.to_owned(),
            element_offset,
            form: Form::parse(form).unwrap(),
        };
        let shape = Shape::from([3, 2, 5, 64]);
        let refused = |source: Source| source.stack(&shape).unwrap_err();
        for form in ["dims/0,3,21", "mxfp4/0,21,3"] {
            assert_eq!(source("w", 0, form).stack(&shape).unwrap().dims, 0);
            assert_eq!(source("w", 0, form).form.to_string(), form);
            for whole in [refused(source("w.{0..3}", 0, form)), refused(source("w", 1, form))] {
                assert_eq!(whole, "an order of dims is for one whole tensor");
            }
        }
        assert_eq!(refused(source("w", 0, "dims/0,1")), "`0,1` is an order of 2 dims, and [3,2,5,64] has 4");
        assert_eq!(
            refused(source("w", 0, "mxfp4/0,3,21")),
            "the rows of [3,64,10] have no whole blocks of 32"
        );
        let packed = source("w", 0, "mxfp4/0,21,3").mxfp4(&shape).unwrap();
        let expected: [(String, Shape); 2] =
            [("w_blocks".into(), [3, 10, 2, 16].into()), ("w_scales".into(), [3, 10, 2].into())];
        assert_eq!(packed, expected);
        assert_eq!(source("w", 0, "dims/0,21,3").mxfp4(&shape), None);
        for text in ["", "dims", "dims/", "dims/0,2", "mxfp4/a", "mxfp8/0", "bytes/x"] {
            assert_eq!(Form::parse(text), None, "{text}");
        }
    }

    #[test]
    fn each_tensor_of_a_stack_is_a_part_of_the_param() {
        let shape = Shape::from([3, 2, 5, 4]);
        let source = Source { tensor: "e.{0..3}.{a,b}.w".into(), element_offset: 0, form: Form::Numbers };
        let stack = source.stack(&shape).unwrap();
        assert_eq!(stack.ranges(&shape, 0), [0..1, 0..1, 0..5, 0..4]);
        assert_eq!(stack.ranges(&shape, 3), [1..2, 1..2, 0..5, 0..4]);
        assert_eq!(stack.ranges(&shape, 5), [2..3, 1..2, 0..5, 0..4]);
        let one = Source { tensor: "w".into(), ..source }.stack(&shape).unwrap();
        assert_eq!(one.ranges(&shape, 0), [0..3, 0..2, 0..5, 0..4]);
    }
}
