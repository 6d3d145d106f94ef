//! C prototypes of the aclnn operators as plain data.
//!
//! Input: the C function list of `ascend-tp-sys`. Output: [`PROTOTYPES`]. Not here: the operators
//! (see `operator`).

/// The first phase of an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prototype {
    /// Name of the second phase.
    pub(crate) name: &'static str,
    /// Names and kinds of the arguments before the workspace size and the executor.
    pub(crate) arguments: &'static [(&'static str, ArgumentKind)],
}

/// Kind of a C argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    /// Type `aclTensor` or `aclTensorList`.
    Tensors,
    Scalar,
    Scalars,
    Ints,
    Flags,
    /// A number, boolean, text or element type.
    Value,
}

macro_rules! kind {
    (aclTensor) => {
        ArgumentKind::Tensors
    };
    (aclTensorList) => {
        ArgumentKind::Tensors
    };
    (aclScalar) => {
        ArgumentKind::Scalar
    };
    (aclScalarList) => {
        ArgumentKind::Scalars
    };
    (aclIntArray) => {
        ArgumentKind::Ints
    };
    (aclBoolArray) => {
        ArgumentKind::Flags
    };
    ($value:ident) => {
        ArgumentKind::Value
    };
}

macro_rules! prototypes {
    (
        required { $($required:tt)* }
        optional { $($optional:tt)* }
        operators { $( $run:ident, $plan:ident $arguments:tt; )* }
        dropin {
            functions { $($dropin:tt)* }
            operators { $( [$since:literal] $dropin_run:ident, $dropin_plan:ident $dropin_arguments:tt; )* }
        }
    ) => {
        prototypes! { $( $run $arguments; )* $( $dropin_run $dropin_arguments; )* }
    };
    ($( $run:ident($($arg:ident: $(*$pointer:tt)? $of:ident),* $(,)?); )*) => {
        /// The operators, with drop-in libraries last.
        pub(crate) const PROTOTYPES: &[Prototype] = &[ $( Prototype {
            name: stringify!($run),
            arguments: &[ $( (stringify!($arg), kind!($of)) ),* ],
        } ),* ];
    };
}
ascend_tp_sys::for_each_symbol!(prototypes);
