//! The exported C functions, as listed in `exports.txt`. Functions declared by `ascend_tp_sys` call
//! the machine of this process; all others refuse.
//!
//! Invariants: only symbols of CANN are exported, and nothing unwinds into C.
#![expect(unsafe_code, reason = "functions called from C")]

use std::ffi::{c_char, c_void};
use std::fmt;

use ascend_tp_emulator::dropin;
#[cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "the symbol list names most types of the C ABI")
)]
use ascend_tp_sys::*;

use crate::failure::{self, MissingSymbolReply, NoAnswer};
use crate::process::{self, Process};

/// An exported function of the drop-in library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Export {
    /// The CANN library that contains the function.
    pub library: Library,
    /// Name of the C function.
    pub name: &'static str,
    /// Coverage of the function by the emulator.
    pub answer: Coverage,
}

/// Coverage of an exported function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coverage {
    /// The function behaves as in CANN.
    Modelled,
    /// The function is refused, as CANN refuses it on the modelled cards.
    Elsewhere,
    /// The function reports its name and returns "not supported".
    Refused,
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Modelled => "modelled",
            Self::Elsewhere => "elsewhere",
            Self::Refused => "refused",
        })
    }
}

/// Returns every exported function by library and name.
#[must_use]
pub fn exports() -> Vec<Export> {
    let declared = ascend_tp_emulator::coverage().into_iter();
    let declared = declared.map(|(name, library, modelled)| {
        let answer = if modelled { Coverage::Modelled } else { Coverage::Refused };
        Export { library, name, answer }
    });
    let lists =
        [(ANSWERED, Coverage::Modelled), (ELSEWHERE, Coverage::Elsewhere), (REFUSED, Coverage::Refused)];
    let others = lists.into_iter().flat_map(|(names, answer)| {
        names.iter().map(move |&(library, name)| Export { library, name, answer })
    });
    let mut all: Vec<Export> = declared.chain(others).collect();
    all.sort_unstable();
    all
}

/// Uses the machine if there is one. Returns the value for the caller.
#[cold]
pub(crate) fn refuse<R: MissingSymbolReply>(name: &'static str, library: Library) -> R {
    match process::current(name) {
        Process::Machine(emulator, _) => {
            emulator.refuse(name, failure::status(name, library, NoAnswer::NotSupported));
            R::none(name, library, NoAnswer::NotSupported)
        }
        Process::Refusing(_) => R::none(name, library, NoAnswer::NoMachine),
    }
}

/// aclnn returns this code on unsupported chips.
const INVALID: i32 = 161_002;

#[cold]
fn refuse_elsewhere(name: &'static str, chip: &str) -> i32 {
    match process::current(name) {
        Process::Machine(emulator, _) => emulator.answer(name, || {
            Err((
                INVALID,
                format!("{name}: CANN runs this operator on {chip} alone, not on the Atlas A2 and A3 modelled here"),
            ))
        }),
        Process::Refusing(_) => failure::status(name, Library::OpApi, NoAnswer::NoMachine),
    }
}

#[cold]
fn without_machine<R: MissingSymbolReply>(name: &str, library: Library) -> R {
    R::none(name, library, NoAnswer::NoMachine)
}

macro_rules! define_exports {
    (
        required { $( [$library:ident] fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty; )* }
        optional { $( [$young_library:ident, $since:literal]
                      fn $young:ident($($young_arg:ident: $young_ty:ty),* $(,)?) -> $young_ret:ty; )* }
        operators { $( $run:ident, $plan:ident($($op_arg:ident: $op_ty:ty),* $(,)?); )* }
        dropin {
            functions { $( [$dropin_library:ident, $dropin_since:literal]
                           fn $dropin:ident($($dropin_arg:ident: $dropin_ty:ty),* $(,)?) -> $dropin_ret:ty; )* }
            operators { $( [$dropin_op_since:literal]
                           $dropin_run:ident, $dropin_plan:ident($($dropin_op_arg:ident: $dropin_op_ty:ty),* $(,)?); )* }
        }
    ) => {
        $( define_exports!(@required $library $name ($($arg: $ty),*) -> $ret); )*
        $( define_exports!(@required opapi $plan
            ($($op_arg: $op_ty,)* workspace_size: *mut u64, executor: *mut *mut aclOpExecutor) -> aclnnStatus); )*
        $( define_exports!(@required opapi $run
            (workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream)
            -> aclnnStatus); )*
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $young($($young_arg: $young_ty),*) -> $young_ret {
                const NAME: &str = stringify!($young);
                const LIBRARY: Library = define_exports!(@library $young_library);
                let Process::Machine(_, table) = process::current(NAME) else { return without_machine(NAME, LIBRARY) };
                let Some(function) = table.$young else { return refuse(NAME, LIBRARY) };
                // SAFETY: the caller upholds this contract.
                unsafe { function($($young_arg),*) }
            }
        )*
        $( define_exports!(@dropin $dropin_library $dropin ($($dropin_arg: $dropin_ty),*) -> $dropin_ret); )*
        $( define_exports!(@dropin opapi $dropin_plan
            ($($dropin_op_arg: $dropin_op_ty,)* workspace_size: *mut u64, executor: *mut *mut aclOpExecutor)
            -> aclnnStatus); )*
        $( define_exports!(@dropin opapi $dropin_run
            (workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream)
            -> aclnnStatus); )*
    };
    (@dropin $library:ident $name:ident ($($arg:ident: $ty:ty),*) -> $ret:ty) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            const NAME: &str = stringify!($name);
            const LIBRARY: Library = define_exports!(@library $library);
            let Process::Machine(emulator, _) = process::current(NAME) else { return without_machine(NAME, LIBRARY) };
            // SAFETY: the caller upholds this contract.
            unsafe { dropin::$name(emulator, $($arg),*) }.unwrap_or_else(|| refuse(NAME, LIBRARY))
        }
    };
    (@required $library:ident $name:ident ($($arg:ident: $ty:ty),*) -> $ret:ty) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            const NAME: &str = stringify!($name);
            let Process::Machine(_, table) = process::current(NAME) else {
                return without_machine(NAME, define_exports!(@library $library));
            };
            // SAFETY: the caller upholds this contract.
            unsafe { (table.$name)($($arg),*) }
        }
    };
    (@library acl) => { Library::AscendCl };
    (@library hccl) => { Library::Hccl };
    (@library nnopbase) => { Library::NnopBase };
    (@library opapi) => { Library::OpApi };
}

for_each_symbol!(define_exports);

/// Spellings from before CANN 8 in `libnnopbase.so`.
macro_rules! define_older_spellings {
    ($( $old:ident = $new:ident($($arg:ident: $ty:ty),*); )*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $old($($arg: $ty),*) -> aclnnStatus {
                let Process::Machine(_, table) = process::current(stringify!($old)) else {
                    return without_machine(stringify!($old), Library::NnopBase);
                };
                // SAFETY: the caller upholds this contract.
                unsafe { (table.$new)($($arg),*) }
            }
        )*
    };
}

define_older_spellings! {
    AclSetAclOpExecutorRepeatable = aclSetAclOpExecutorRepeatable(executor: *mut aclOpExecutor);
    AclSetTensorAddr = aclSetTensorAddr(
        executor: *mut aclOpExecutor, index: usize, tensor: *mut aclTensor, addr: *mut c_void);
    AclSetInputTensorAddr = aclSetInputTensorAddr(
        executor: *mut aclOpExecutor, index: usize, tensor: *mut aclTensor, addr: *mut c_void);
    AclSetOutputTensorAddr = aclSetOutputTensorAddr(
        executor: *mut aclOpExecutor, index: usize, tensor: *mut aclTensor, addr: *mut c_void);
    AclSetDynamicTensorAddr = aclSetDynamicTensorAddr(
        executor: *mut aclOpExecutor, ir_index: usize, relative_index: usize, tensors: *mut aclTensorList,
        addr: *mut c_void);
    AclSetDynamicInputTensorAddr = aclSetDynamicInputTensorAddr(
        executor: *mut aclOpExecutor, ir_index: usize, relative_index: usize, tensors: *mut aclTensorList,
        addr: *mut c_void);
    AclSetDynamicOutputTensorAddr = aclSetDynamicOutputTensorAddr(
        executor: *mut aclOpExecutor, ir_index: usize, relative_index: usize, tensors: *mut aclTensorList,
        addr: *mut c_void);
}

/// Defines functions that refuse, by return type. They declare no arguments: the caller passes and
/// removes arguments in the supported calling conventions.
macro_rules! refuse {
    ($library:ident status { $($name:ident)* }) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> i32 {
            refuse(stringify!($name), Library::$library)
        }
    )* };
    (OpApi elsewhere $chip:literal { $($name:ident)* }) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> i32 {
            refuse_elsewhere(stringify!($name), $chip)
        }
    )* };
    ($library:ident pointer { $($name:ident)* }) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> *mut c_void {
            refuse(stringify!($name), Library::$library)
        }
    )* };
    ($library:ident value $value:literal { $($name:ident)* }) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> i64 {
            refuse::<()>(stringify!($name), Library::$library);
            $value
        }
    )* };
    ($library:ident nothing { $($name:ident)* }) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            refuse(stringify!($name), Library::$library)
        }
    )* };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_of_another_chip_are_refused_as_cann_refuses_them() {
        let of = |name: &str| {
            exports().into_iter().filter(|export| export.name == name).map(|export| export.answer).collect()
        };
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            (of("aclnnMaxPool"), of("aclnnStridedSliceGetWorkspaceSize"));
        assert_eq!((here, elsewhere), (vec![Coverage::Modelled], vec![Coverage::Elsewhere]));
        assert_eq!(aclnnStridedSliceGetWorkspaceSize(), INVALID);
        let Process::Machine(_, table) = process::current("a test") else {
            panic!("a process with a machine")
        };
        // SAFETY: no arguments; the text is valid until the next failing call of the thread.
        let text = unsafe { (table.aclGetRecentErrMsg)() };
        // SAFETY: the text is NUL-terminated.
        let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy();
        assert!(text.contains("CANN runs this operator on Ascend 950 alone"), "{text}");
    }
}
