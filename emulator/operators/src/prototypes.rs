//! C prototypes of the aclnn operators.

/// First phase of an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prototype {
    /// Name of the second phase.
    pub(crate) name: &'static str,
    /// Arguments before the workspace size and the executor.
    pub(crate) arguments: &'static [(&'static str, ArgumentKind)],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
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
        /// Drop-in libraries come last.
        pub(crate) const PROTOTYPES: &[Prototype] = &[ $( Prototype {
            name: stringify!($run),
            arguments: &[ $( (stringify!($arg), kind!($of)) ),* ],
        } ),* ];
    };
}
ascend_tp_sys::for_each_symbol!(prototypes);
