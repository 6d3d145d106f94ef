//! Values and ops by id, in order of execution.

use std::fmt;

use smallvec::SmallVec;

use crate::base::{DType, IdVec, Shape, define_id};

use super::op::Kind;

define_id!(
    /// A value of a program; prints as `%17`.
    ValueId,
    "%"
);
define_id!(
    /// An op of a program; prints as `@17`.
    OpId,
    "@"
);

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Given anew at each run.
    Input,
    /// A weight: given once.
    Param,
    /// Kept between runs and overwritten in place: a KV cache.
    State,
    /// The result of an op.
    Result,
}

impl Role {
    /// The word that opens the value's line in the text form; none for results.
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

/// Where a param's elements are in a checkpoint: the tensor's elements from `element_offset` on, in
/// row-major order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// The tensor's name in the checkpoint.
    pub tensor: String,
    /// Where its first element is in the whole.
    pub element_offset: usize,
    /// What is made of the elements.
    pub form: Form,
}

/// What a param holds of the elements that a checkpoint has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The numbers, converted to the param's element type.
    Numbers,
    /// Rows of `row_elems` numbers as 8-bit integers: each divided by its row's scale and rounded,
    /// ties to even.
    RowBytes {
        /// Numbers of a row.
        row_elems: usize,
    },
    /// The scales of such rows: their largest magnitude divided by 127.
    RowScales {
        /// Numbers of a row.
        row_elems: usize,
    },
}

impl Form {
    /// How far a row is scaled: to the largest 8-bit integer.
    pub const LARGEST: f32 = 127.0;

    /// The form of a text such as `bytes/64`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, row) = text.split_once('/')?;
        let row_elems = row.parse().ok()?;
        match name {
            "bytes" => Some(Self::RowBytes { row_elems }),
            "scales" => Some(Self::RowScales { row_elems }),
            _ => None,
        }
    }
}

impl fmt::Display for Source {
    /// `from "lm_head.weight"+0`, and ` bytes/64` or ` scales/64` where rows of 64 numbers are
    /// quantised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from \"{}\"+{}", self.tensor, self.element_offset)?;
        match self.form {
            Form::Numbers => Ok(()),
            Form::RowBytes { row_elems } => write!(f, " bytes/{row_elems}"),
            Form::RowScales { row_elems } => write!(f, " scales/{row_elems}"),
        }
    }
}

/// A tensor that a program reads or makes. Shapes are of the whole tensor, on every stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// For people, pins and messages: `layers.0.mlp.down`. Unique among inputs, params and states;
    /// may be empty for results.
    pub name: String,
    /// Sizes of the whole tensor.
    pub shape: Shape,
    /// Type of its elements.
    pub dtype: DType,
    /// Where it comes from.
    pub role: Role,
    /// For params that a checkpoint holds.
    pub source: Option<Source>,
}

/// One op with its operands and its results.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// Which op, with its attributes.
    pub kind: Kind,
    /// Operands in the order of the op's row.
    pub operands: Vec<ValueId>,
    /// The values it makes, in the order of the op's row, at least one; those that nobody wants at
    /// the end may be left out.
    pub results: SmallVec<[ValueId; 2]>,
}

impl Op {
    /// The first value it makes.
    #[must_use]
    pub fn result(&self) -> ValueId {
        self.results[0]
    }
}

/// A program over whole tensors. Ops run in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// A name for messages.
    pub name: String,
    /// Every value, by id.
    pub values: IdVec<ValueId, Value>,
    /// Every op, in order of execution.
    pub ops: IdVec<OpId, Op>,
    /// What a run gives back, by name.
    pub outputs: Vec<(String, ValueId)>,
}

impl Program {
    /// The same values and outputs, which no op makes yet.
    #[must_use]
    pub(crate) fn without_ops(&self) -> Self {
        let Self { name, values, outputs, .. } = self;
        Self { name: name.clone(), values: values.clone(), ops: IdVec::new(), outputs: outputs.clone() }
    }

    /// Ids of the values of one role, in order.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = ValueId> + '_ {
        self.values.iter().filter(move |(_, value)| value.role == role).map(|(id, _)| id)
    }

    /// The value of that name and role.
    #[must_use]
    pub fn find(&self, role: Role, name: &str) -> Option<ValueId> {
        self.with_role(role).find(|id| self.values[*id].name == name)
    }

    /// A value's name, or its id where it has none.
    #[must_use]
    pub fn label(&self, id: ValueId) -> String {
        let name = &self.values[id].name;
        if name.is_empty() { id.to_string() } else { name.clone() }
    }

    /// The shapes of an op's operands.
    #[must_use]
    pub fn operand_shapes(&self, op: &Op) -> Vec<&Shape> {
        op.operands.iter().map(|id| &self.values[*id].shape).collect()
    }
}
