//! Form of an operator row.
//!
//! Invariant: a signature has the parameters of the first phase, without workspace size and
//! executor.

use std::fmt;

use super::argument::{CheckedTensor, Scalar, TensorRole};
use super::names::Name;
use super::{CallPlan, OperatorCall, Refusal};
use crate::dtype::AclType;
use crate::prototypes::{ArgumentKind, Prototype};

pub(crate) struct Operator {
    pub(crate) name: &'static str,
    /// Supported tensors, and parameters with rules beyond the C prototype (see [`Signature::of`]),
    /// in its order.
    pub(crate) parameters: &'static [Parameter],
    /// Other rules in words; `plan` enforces them.
    pub(crate) limits: &'static str,
    /// A path in CANN's operator repositories, or an API reference page.
    pub(crate) source: &'static str,
    pub(crate) plan: fn(&OperatorCall) -> Result<CallPlan, Refusal>,
}

/// Parameters of an operator's C function or its in-place form.
///
/// `aclnnInplaceAdd` is `aclnnAdd` with `selfRef` as first tensor and `out`.
#[derive(Debug)]
pub struct Signature {
    pub(crate) name: &'static str,
    pub(crate) operator: &'static Operator,
    /// Parameters of the out-of-place operator.
    pub(crate) row: Vec<Parameter>,
    pub(crate) in_place: bool,
}

impl Signature {
    /// Parameters without a rule are required in their C type, but unlisted tensors must be NULL.
    pub(crate) fn of(name: &'static str, operator: &'static Operator, prototype: &Prototype) -> Self {
        let parameter = |&(argument, kind): &(&str, ArgumentKind)| {
            let said = operator.parameters.iter().find(|parameter| is_same(parameter.name, argument));
            said.copied().unwrap_or_else(|| Parameter::declared(argument, kind))
        };
        let row = prototype.arguments.iter().map(parameter).collect();
        Self { name, operator, row, in_place: name != operator.name }
    }

    pub(crate) fn parameters(&self) -> impl ExactSizeIterator<Item = Parameter> {
        let taken = self.row.len() - usize::from(self.in_place);
        let written = move |(i, parameter): (usize, &Parameter)| match parameter.kind {
            ParameterKind::Tensor { need, dtypes, ranks, layout, .. } if self.in_place && i == 0 => {
                Parameter {
                    name: "selfRef",
                    kind: ParameterKind::Tensor { role: TensorRole::InPlace, need, dtypes, ranks, layout },
                }
            }
            _ => *parameter,
        };
        self.row[..taken].iter().enumerate().map(written)
    }

    /// Returns the spelling in this function.
    pub(crate) fn spelling<'a>(&self, parameter: &'a str) -> &'a str {
        let ends = [self.row.first(), self.row.last()];
        let is_target = ends.into_iter().flatten().any(|end| end.name == parameter);
        if self.in_place && is_target { "selfRef" } else { parameter }
    }
}

/// Documented `selfRef` matches declared `self_ref`.
pub(crate) fn is_same(documented: &str, declared: &str) -> bool {
    let letters = declared.bytes().filter(|&letter| letter != b'_');
    letters
        .map(|letter| letter.to_ascii_lowercase())
        .eq(documented.bytes().map(|letter| letter.to_ascii_lowercase()))
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: ParameterKind,
}

/// Inclusive limits of the number of dims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankLimits {
    pub(crate) least: usize,
    pub(crate) most: usize,
    /// A tensor without dims counts as one of extent 1, as in CANN's host code.
    pub(crate) or_scalar: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ParameterKind {
    Tensor {
        role: TensorRole,
        need: Nullability,
        dtypes: &'static [AclType],
        ranks: RankLimits,
        layout: Layout,
    },
    Tensors {
        role: TensorRole,
        /// NULL may be an empty list.
        need: Nullability,
        dtypes: &'static [AclType],
        ranks: RankLimits,
        layout: Layout,
    },
    /// An unsupported feature: only NULL and empty lists are accepted.
    Unmodelled,
    Scalar(Nullability),
    Ints(Nullability),
    Scalars,
    Flags(Nullability),
    /// Number, boolean, text or element type by value.
    Attribute,
    OptionalText,
}

/// Rule for NULL arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nullability {
    /// NULL is rejected with status 161001.
    Required,
    /// NULL means that the argument is missing.
    Optional,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Strided,
    Contiguous,
    /// Any strides, or `FRACTAL_NZ`.
    Blocked,
}

impl Layout {
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
    let (need, layout, ranks) =
        (Nullability::Required, Layout::Strided, RankLimits { least: low, most: high, or_scalar: false });
    Parameter { name: name.text(), kind: ParameterKind::Tensor { role, need, dtypes, ranks, layout } }
}

const fn tensors(
    name: Name<[CheckedTensor]>,
    role: TensorRole,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    let (need, layout, ranks) =
        (Nullability::Required, Layout::Strided, RankLimits { least: low, most: high, or_scalar: false });
    Parameter { name: name.text(), kind: ParameterKind::Tensors { role, need, dtypes, ranks, layout } }
}

/// Declares a required tensor of `low` to `high` dims.
pub(crate) const fn input(
    name: Name<CheckedTensor>,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    tensor(name, TensorRole::Input, dtypes, low, high)
}

/// Declares a required tensor of `low` to `high` dims.
pub(crate) const fn output(
    name: Name<CheckedTensor>,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    tensor(name, TensorRole::Output, dtypes, low, high)
}

/// Declares a required tensor of `low` to `high` dims.
pub(crate) const fn in_place(
    name: Name<CheckedTensor>,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    tensor(name, TensorRole::InPlace, dtypes, low, high)
}

pub(crate) const fn inputs(
    name: Name<[CheckedTensor]>,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    tensors(name, TensorRole::Input, dtypes, low, high)
}

pub(crate) const fn outputs(
    name: Name<[CheckedTensor]>,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    tensors(name, TensorRole::Output, dtypes, low, high)
}

pub(crate) const fn in_places(
    name: Name<[CheckedTensor]>,
    dtypes: &'static [AclType],
    low: usize,
    high: usize,
) -> Parameter {
    tensors(name, TensorRole::InPlace, dtypes, low, high)
}

pub(crate) const fn scalar(name: Name<Scalar>) -> Parameter {
    Parameter { name: name.text(), kind: ParameterKind::Scalar(Nullability::Required) }
}

pub(crate) const fn ints(name: Name<[i64]>) -> Parameter {
    Parameter { name: name.text(), kind: ParameterKind::Ints(Nullability::Required) }
}

/// The array may be NULL.
pub(crate) const fn flags(name: Name<[bool]>) -> Parameter {
    Parameter { name: name.text(), kind: ParameterKind::Flags(Nullability::Optional) }
}

pub(crate) const fn attribute<K: ?Sized>(name: Name<K>) -> Parameter {
    Parameter { name: name.text(), kind: ParameterKind::Attribute }
}

/// The text may be NULL.
pub(crate) const fn text(name: Name<str>) -> Parameter {
    Parameter { name: name.text(), kind: ParameterKind::OptionalText }
}

/// The parameter must be NULL.
pub(crate) const fn unmodelled<K: ?Sized>(name: Name<K>) -> Parameter {
    Parameter { name: name.text(), kind: ParameterKind::Unmodelled }
}

impl Parameter {
    /// Declares a parameter from its prototype alone.
    pub(crate) fn declared(argument: &str, kind: ArgumentKind) -> Self {
        let kind = match kind {
            ArgumentKind::Tensors => ParameterKind::Unmodelled,
            ArgumentKind::Scalar => ParameterKind::Scalar(Nullability::Required),
            ArgumentKind::Scalars => ParameterKind::Scalars,
            ArgumentKind::Ints => ParameterKind::Ints(Nullability::Required),
            ArgumentKind::Flags => ParameterKind::Flags(Nullability::Required),
            ArgumentKind::Value => ParameterKind::Attribute,
        };
        let mut words = argument.split('_');
        let mut name = words.next().unwrap_or_default().to_owned();
        for word in words {
            let (first, rest) = word.split_at(word.len().min(1));
            name += &first.to_ascii_uppercase();
            name += rest;
        }
        // Signatures are built once.
        Self { name: name.leak(), kind }
    }

    /// NULL means a missing argument.
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

    /// A tensor without dims counts as one of extent 1.
    pub(crate) const fn or_scalar(self) -> Self {
        let kind = match self.kind {
            ParameterKind::Tensor { role, need, dtypes, ranks, layout } => {
                let ranks = RankLimits { or_scalar: true, ..ranks };
                ParameterKind::Tensor { role, need, dtypes, ranks, layout }
            }
            other => other,
        };
        Self { name: self.name, kind }
    }

    pub(crate) const fn contiguous(self) -> Self {
        self.with(Layout::Contiguous)
    }

    /// Also accepts the format `FRACTAL_NZ`.
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
