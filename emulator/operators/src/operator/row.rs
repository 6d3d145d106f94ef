//! The form of a row: an operator, what its C prototype does not say of its parameters, and its source.
//!
//! Input: rows and prototypes, which are constants. Output: signatures. Invariant: the parameters of a signature are those of the
//! first-phase function without the trailing workspace size and executor, so arguments and parameters pair up by position.

use std::fmt;

use super::argument::{CheckedTensor, Scalar, TensorRole};
use super::names::Name;
use super::{CallPlan, OperatorCall, Refusal};
use crate::dtype::AclType;
use crate::prototypes::{ArgumentKind, Prototype};

/// An aclnn operator.
pub(crate) struct Operator {
    /// Name of the second-phase function.
    pub(crate) name: &'static str,
    /// The tensors that are modelled, and what else is not as the C prototype alone says (see [`Signature::of`]), in its order.
    pub(crate) parameters: &'static [Parameter],
    /// The remaining rules, in words; enforced by `plan`.
    pub(crate) limits: &'static str,
    /// Documentation the row follows: a path in the operator repositories of CANN, or a page of the API reference.
    pub(crate) source: &'static str,
    /// Checks the remaining rules and says how to compute.
    pub(crate) plan: fn(&OperatorCall) -> Result<CallPlan, Refusal>,
}

/// What the C function of an operator takes: its row, or the row in place.
///
/// `aclnnInplaceAdd` is `aclnnAdd` with its first tensor, there called `selfRef`, as the last, `out`, as well.
#[derive(Debug)]
pub struct Signature {
    /// Name of the second-phase function.
    pub(crate) name: &'static str,
    pub(crate) operator: &'static Operator,
    /// All parameters of the operator that writes elsewhere, in the order of the C prototype.
    pub(super) row: Vec<Parameter>,
    /// Whether the first tensor is the output.
    pub(crate) in_place: bool,
}

impl Signature {
    /// The function called `name`, of an operator with this prototype. What its row does not name is required as its C type passes it;
    /// of tensors only NULL is accepted.
    pub(super) fn of(name: &'static str, operator: &'static Operator, prototype: &Prototype) -> Self {
        let parameter = |&(argument, kind): &(&str, ArgumentKind)| {
            let said = operator.parameters.iter().find(|parameter| is_same(parameter.name, argument));
            said.copied().unwrap_or_else(|| Parameter::declared(argument, kind))
        };
        let row = prototype.arguments.iter().map(parameter).collect();
        Self { name, operator, row, in_place: name != operator.name }
    }

    /// The parameters of the C function.
    pub(crate) fn parameters(&self) -> impl ExactSizeIterator<Item = Parameter> {
        let taken = self.row.len() - usize::from(self.in_place);
        let written = move |(i, parameter): (usize, &Parameter)| match parameter.kind {
            ParameterKind::Tensor { need, dtypes, ranks, layout, .. } if self.in_place && i == 0 => Parameter {
                name: "selfRef",
                kind: ParameterKind::Tensor { role: TensorRole::InPlace, need, dtypes, ranks, layout },
            },
            _ => *parameter,
        };
        self.row[..taken].iter().enumerate().map(written)
    }

    /// How this function spells a parameter of the row.
    pub(crate) fn spelling<'a>(&self, parameter: &'a str) -> &'a str {
        let ends = [self.row.first(), self.row.last()];
        let is_target = ends.into_iter().flatten().any(|end| end.name == parameter);
        if self.in_place && is_target { "selfRef" } else { parameter }
    }
}

/// Whether a documented spelling and that of the prototype are one name: `selfRef` and `self_ref` are.
pub(super) fn is_same(documented: &str, declared: &str) -> bool {
    let letters = declared.bytes().filter(|&letter| letter != b'_');
    letters.map(|letter| letter.to_ascii_lowercase()).eq(documented.bytes().map(|letter| letter.to_ascii_lowercase()))
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A parameter of an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    /// Spelling of the documentation.
    pub(crate) name: &'static str,
    /// What may be passed.
    pub(crate) kind: ParameterKind,
}

/// What may be passed for a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ParameterKind {
    Tensor {
        role: TensorRole,
        /// Whether NULL is legal.
        need: Nullability,
        /// Accepted element types.
        dtypes: &'static [AclType],
        /// Fewest and most dims.
        ranks: (usize, usize),
        /// Whether strided tensors are accepted.
        layout: Layout,
    },
    /// A list of tensors, `aclTensorList`.
    Tensors {
        role: TensorRole,
        /// Whether NULL is legal; it counts as an empty list.
        need: Nullability,
        /// Accepted element types.
        dtypes: &'static [AclType],
        /// Fewest and most dims.
        ranks: (usize, usize),
        /// Whether strided tensors are accepted.
        layout: Layout,
    },
    /// An optional tensor, list or array of a feature the emulator does not model: only NULL and empty lists are accepted.
    Unmodelled,
    Scalar(Nullability),
    /// An array of integers, `aclIntArray`.
    Ints(Nullability),
    /// A list of scalars, `aclScalarList`.
    Scalars,
    /// An array of truth values, `aclBoolArray`.
    Flags,
    /// A number, truth value, text or element type passed by value.
    Attribute,
    /// A text that may be NULL.
    OptionalText,
}

/// Whether NULL is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nullability {
    /// NULL is refused with 161001.
    Required,
    /// NULL means "not given".
    Optional,
}

/// Whether strided tensors are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Strided,
    /// Row-major without gaps.
    Contiguous,
    /// Any strides, or matrices in `FRACTAL_NZ`.
    Blocked,
}

impl Layout {
    /// As the table of operators says it, behind the other properties of a tensor.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Strided => "",
            Self::Contiguous => ", contiguous",
            Self::Blocked => ", or in FRACTAL_NZ",
        }
    }
}

const fn tensor(
    name: Name<CheckedTensor>,
    role: TensorRole,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    let (need, layout, ranks) = (Nullability::Required, Layout::Strided, (low, high));
    Parameter { name: name.text(), kind: ParameterKind::Tensor { role, need, dtypes, ranks, layout } }
}

const fn tensors(
    name: Name<[CheckedTensor]>,
    role: TensorRole,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    let (need, layout, ranks) = (Nullability::Required, Layout::Strided, (low, high));
    Parameter { name: name.text(), kind: ParameterKind::Tensors { role, need, dtypes, ranks, layout } }
}

/// A required input of `low` to `high` dims, any strides.
pub(crate) const fn input(name: Name<CheckedTensor>, dtypes: &'static [AclType], low: usize, high: usize) -> Parameter {
    tensor(name, TensorRole::Input, dtypes, low, high)
}

/// A required output of `low` to `high` dims, any strides.
pub(crate) const fn output(
    name: Name<CheckedTensor>,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    tensor(name, TensorRole::Output, dtypes, low, high)
}

/// A required tensor that is read and written.
pub(crate) const fn in_place(
    name: Name<CheckedTensor>,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    tensor(name, TensorRole::InPlace, dtypes, low, high)
}

/// A required list of inputs.
pub(crate) const fn inputs(
    name: Name<[CheckedTensor]>,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    tensors(name, TensorRole::Input, dtypes, low, high)
}

/// A required list of outputs.
pub(crate) const fn outputs(
    name: Name<[CheckedTensor]>,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    tensors(name, TensorRole::Output, dtypes, low, high)
}

/// A required list of tensors that are read and written.
pub(crate) const fn in_places(
    name: Name<[CheckedTensor]>,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    tensors(name, TensorRole::InPlace, dtypes, low, high)
}

/// A required scalar.
pub(crate) const fn scalar(name: Name<Scalar>) -> Parameter {
    Parameter { name: name.text(), kind: ParameterKind::Scalar(Nullability::Required) }
}

/// A required array of integers.
pub(crate) const fn ints(name: Name<[i64]>) -> Parameter {
    Parameter { name: name.text(), kind: ParameterKind::Ints(Nullability::Required) }
}

/// A parameter that is passed by value.
pub(crate) const fn attribute<K: ?Sized>(name: Name<K>) -> Parameter {
    Parameter { name: name.text(), kind: ParameterKind::Attribute }
}

/// A text that may be NULL.
pub(crate) const fn text(name: Name<str>) -> Parameter {
    Parameter { name: name.text(), kind: ParameterKind::OptionalText }
}

/// A parameter that must be NULL.
pub(crate) const fn unmodelled<K: ?Sized>(name: Name<K>) -> Parameter {
    Parameter { name: name.text(), kind: ParameterKind::Unmodelled }
}

impl Parameter {
    /// A parameter of which a prototype says all.
    pub(super) fn declared(argument: &str, kind: ArgumentKind) -> Self {
        let kind = match kind {
            ArgumentKind::Tensors => ParameterKind::Unmodelled,
            ArgumentKind::Scalar => ParameterKind::Scalar(Nullability::Required),
            ArgumentKind::Scalars => ParameterKind::Scalars,
            ArgumentKind::Ints => ParameterKind::Ints(Nullability::Required),
            ArgumentKind::Flags => ParameterKind::Flags,
            ArgumentKind::Value => ParameterKind::Attribute,
        };
        let mut words = argument.split('_');
        let mut name = words.next().unwrap_or_default().to_owned();
        for word in words {
            let (first, rest) = word.split_at(word.len().min(1));
            name += &first.to_ascii_uppercase();
            name += rest;
        }
        // Signatures are made once and kept.
        Self { name: name.leak(), kind }
    }

    /// The same parameter with NULL as "not given".
    pub(crate) const fn optional(self) -> Self {
        let kind = match self.kind {
            ParameterKind::Tensor { role, dtypes, ranks, layout, .. } => {
                ParameterKind::Tensor { role, need: Nullability::Optional, dtypes, ranks, layout }
            }
            ParameterKind::Tensors { role, dtypes, ranks, layout, .. } => {
                ParameterKind::Tensors { role, need: Nullability::Optional, dtypes, ranks, layout }
            }
            ParameterKind::Scalar(_) => ParameterKind::Scalar(Nullability::Optional),
            ParameterKind::Ints(_) => ParameterKind::Ints(Nullability::Optional),
            other => other,
        };
        Self { name: self.name, kind }
    }

    /// The same parameter without strided tensors.
    pub(crate) const fn contiguous(self) -> Self {
        self.with(Layout::Contiguous)
    }

    /// The same parameter with matrices in `FRACTAL_NZ` too.
    pub(crate) const fn or_blocked(self) -> Self {
        self.with(Layout::Blocked)
    }

    const fn with(self, layout: Layout) -> Self {
        let kind = match self.kind {
            ParameterKind::Tensor { role, need, dtypes, ranks, .. } => {
                ParameterKind::Tensor { role, need, dtypes, ranks, layout }
            }
            ParameterKind::Tensors { role, need, dtypes, ranks, .. } => {
                ParameterKind::Tensors { role, need, dtypes, ranks, layout }
            }
            other => other,
        };
        Self { name: self.name, kind }
    }
}
