//! What the C prototypes say of the aclnn operators, as plain data for those that do not see the C ABI.
//!
//! Input: the list of C functions of `ascend-tp-sys`. Output: constants. Does not: know an operator (see `nn`).

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
        /// Names of the second-phase functions of all operators.
        pub(crate) const OPERATORS: &[&str] = &[ $( stringify!($run), )* $( stringify!($dropin_run), )* ];
    };
}
ascend_tp_sys::for_each_symbol!(prototypes);
