//! The exported C functions: one for each symbol of the table, which passes the call to this process's machine, and one
//! for each name of `refused`.
//!
//! Input: calls from C. Output: what the machine returns. Invariants: the only symbols this library exports are those of
//! CANN; nothing unwinds into C (the table's functions do not, and nothing here panics). Does not: hold state.
#![expect(unsafe_code, reason = "functions called from C")]

use std::ffi::{c_char, c_void};

#[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "the symbol list names most types of the C ABI"))]
use ascend_tp_sys::*;

use crate::failure::{self, Answer, Why};
use crate::process::{self, Process};
use crate::{answered, refused};

/// An exported function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Export {
    /// The library of CANN that has it.
    pub library: Library,
    /// Its C name.
    pub name: &'static str,
    /// Whether it does what CANN's does; else it says its name and returns "not supported".
    pub modelled: bool,
}

/// Every function this library exports, ordered by library and name.
#[must_use]
pub fn exports() -> Vec<Export> {
    let of_table = ascend_tp_emulator::coverage().into_iter();
    let of_table = of_table.map(|(name, library, modelled)| Export { library, name, modelled });
    let older = OLDER_SPELLINGS.iter().map(|name| Export { library: Library::NnopBase, name, modelled: true });
    let refused = refused::lists()
        .into_iter()
        .flat_map(|(library, names)| names.iter().map(move |name| Export { library, name, modelled: false }));
    let answered = answered::NAMES.iter().map(|name| Export { library: Library::AscendCl, name, modelled: true });
    let mut all: Vec<Export> = of_table.chain(older).chain(answered).chain(refused).collect();
    all.sort_unstable();
    all
}

/// Refuses a call of a function that no table has: as the machine refuses, if there is one. Gives what it returns.
#[cold]
pub(crate) fn refuse<R: Answer>(name: &'static str, library: Library) -> R {
    match process::current(name) {
        Process::Machine(emulator, _) => {
            emulator.refuse(name, failure::status(name, library, Why::NotSupported));
            R::none(name, library, Why::NotSupported)
        }
        Process::Refusing(_) => R::none(name, library, Why::NoMachine),
    }
}

/// What a function returns in a process without a machine.
#[cold]
fn without_machine<R: Answer>(name: &str, library: Library) -> R {
    R::none(name, library, Why::NoMachine)
}

macro_rules! define_exports {
    (
        required { $( [$library:ident] fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty; )* }
        optional { $( [$young_library:ident, $since:literal]
                      fn $young:ident($($young_arg:ident: $young_ty:ty),* $(,)?) -> $young_ret:ty; )* }
        operators { $( $run:ident, $plan:ident($($op_arg:ident: $op_ty:ty),* $(,)?); )* }
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
                // SAFETY: passes on the caller's promise.
                unsafe { function($($young_arg),*) }
            }
        )*
    };
    (@required $library:ident $name:ident ($($arg:ident: $ty:ty),*) -> $ret:ty) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            const NAME: &str = stringify!($name);
            let Process::Machine(_, table) = process::current(NAME) else {
                return without_machine(NAME, define_exports!(@library $library));
            };
            // SAFETY: passes on the caller's promise.
            unsafe { (table.$name)($($arg),*) }
        }
    };
    (@library acl) => { Library::AscendCl };
    (@library hccl) => { Library::Hccl };
    (@library nnopbase) => { Library::NnopBase };
    (@library opapi) => { Library::OpApi };
}

for_each_symbol!(define_exports);

/// Spellings of before CANN 8 that `libnnopbase.so` still exports.
macro_rules! define_older_spellings {
    ($( $old:ident = $new:ident($($arg:ident: $ty:ty),*); )*) => {
        const OLDER_SPELLINGS: &[&str] = &[$( stringify!($old) ),*];
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $old($($arg: $ty),*) -> aclnnStatus {
                let Process::Machine(_, table) = process::current(stringify!($old)) else {
                    return without_machine(stringify!($old), Library::NnopBase);
                };
                // SAFETY: passes on the caller's promise.
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

/// Defines the functions of one list in `refused` and their names. They take no arguments: in the C calling conventions
/// of the supported processors the caller passes and removes them, so a function may leave any number unread.
macro_rules! refuse_names {
    ($library:ident: $( status { $($status:ident)* } )? $( pointer { $($pointer:ident)* } )?
        $( value $value:literal { $($number:ident)* } )* $( nothing { $($nothing:ident)* } )?) => {
        pub(super) const NAMES: (ascend_tp_sys::Library, &[&str]) = (ascend_tp_sys::Library::$library, &[
            $( $( stringify!($status), )* )? $( $( stringify!($pointer), )* )?
            $( $( stringify!($number), )* )* $( $( stringify!($nothing), )* )?
        ]);

        mod functions {
            #![expect(unsafe_code, reason = "functions called from C")]
            use ascend_tp_sys::Library;
            use crate::export::refuse;
            $( $(
                #[unsafe(no_mangle)]
                extern "C" fn $status() -> i32 {
                    refuse(stringify!($status), Library::$library)
                }
            )* )?
            $( $(
                #[unsafe(no_mangle)]
                extern "C" fn $pointer() -> *mut std::ffi::c_void {
                    refuse(stringify!($pointer), Library::$library)
                }
            )* )?
            $( $(
                #[unsafe(no_mangle)]
                extern "C" fn $number() -> i64 {
                    refuse::<()>(stringify!($number), Library::$library);
                    $value
                }
            )* )*
            $( $(
                #[unsafe(no_mangle)]
                extern "C" fn $nothing() {
                    refuse(stringify!($nothing), Library::$library)
                }
            )* )?
        }
    };
}
pub(crate) use refuse_names as refuse_all;
