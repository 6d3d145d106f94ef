//! The C ABI: one Rust `extern "C"` function per symbol and slot, and the table made of them.
//!
//! Input: the symbol list of `ascend_tp_sys`. Output: [`table`]. A symbol is modelled when `Machine` has an inherent
//! method of its name (in this folder's files); the trait [`Unmodelled`] gives every symbol a method that refuses, and
//! an inherent method wins over it. Invariants: every call goes through `Machine::call`; arguments reach the methods
//! unchanged, places for results as [`Out`](out::Out); nothing unwinds into C. Does not: hold state.
#![expect(unsafe_code, reason = "functions called from C")]
#![expect(non_snake_case, clippy::too_many_arguments, reason = "methods are the C functions they model")]

mod acl_context;
mod acl_device;
mod acl_event;
pub(crate) mod acl_exception;
mod acl_graph;
mod acl_host;
mod acl_ipc;
mod acl_ipc_signal;
mod acl_kernel;
mod acl_memory;
mod acl_profile;
mod acl_report;
mod acl_runtime;
mod acl_stream;
mod acl_value;
mod acl_virtual;
pub(crate) mod aclnn;
mod hccl;
mod hccl_communicator;
mod hccl_memory;
mod out;
pub(crate) mod refused;

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;

#[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "the symbol list names most types of the ABI"))]
use ascend_tp_sys::*;

use crate::abi::out::FromC;
use crate::base::failure::{Failure, code};
use crate::config::CannVersion;
use crate::machine::Machine;
use crate::runtime::{slots, thread};

/// What a method of `Machine` gives: a result if the symbol is modelled, else a refusal.
trait Outcome {
    /// What the method gives on success.
    type Value;
    /// Whether the symbol is modelled.
    const MODELLED: bool;
    /// What the call found.
    fn result(self) -> Result<Self::Value, Failure>;
}

impl<T> Outcome for Result<T, Failure> {
    type Value = T;
    const MODELLED: bool = true;
    fn result(self) -> Self {
        self
    }
}

/// What the method of a symbol that is not modelled gives.
struct NotModelled<T> {
    name: &'static str,
    value: PhantomData<T>,
}

impl<T> Outcome for NotModelled<T> {
    type Value = T;
    const MODELLED: bool = false;
    fn result(self) -> Result<T, Failure> {
        Err(Failure::not_modelled(self.name, code::FEATURE_NOT_SUPPORTED))
    }
}

/// How a C function returns what its method found.
trait CReturn: Sized {
    /// What the method gives on success.
    type Value;
    /// The C value of a success.
    fn success(value: Self::Value) -> Self;
    /// The C value of a failure.
    fn failure(code: i32) -> Self;
}

impl CReturn for aclError {
    type Value = ();
    fn success((): ()) -> Self {
        ACL_SUCCESS
    }
    fn failure(code: i32) -> Self {
        code
    }
}

impl CReturn for HcclResult {
    type Value = ();
    fn success((): ()) -> Self {
        Self::HCCL_SUCCESS
    }
    fn failure(code: i32) -> Self {
        Self(code.cast_unsigned())
    }
}

/// Functions that return a value have no code to return on failure: NULL or 0 it is, and the recent message.
macro_rules! plain_returns {
    ($($value:ty)*) => { $(
        impl CReturn for $value {
            type Value = Self;
            fn success(value: Self) -> Self {
                value
            }
            fn failure(_code: i32) -> Self {
                Self::default()
            }
        }
    )* };
}
plain_returns!(u16 u32 u64 usize f32);

impl<T> CReturn for *const T {
    type Value = Self;
    fn success(value: Self) -> Self {
        value
    }
    fn failure(_code: i32) -> Self {
        std::ptr::null()
    }
}

impl<T> CReturn for *mut T {
    type Value = Self;
    fn success(value: Self) -> Self {
        value
    }
    fn failure(_code: i32) -> Self {
        std::ptr::null_mut()
    }
}

fn as_it_is(code: i32) -> i32 {
    code
}

/// Passes a call to the machine in a slot.
fn call<R: CReturn, O: Outcome<Value = R::Value>>(
    slot: usize,
    name: &'static str,
    translate: fn(i32) -> i32,
    call: impl FnOnce(&Machine) -> O,
) -> R {
    // A table keeps its machine alive, so this fails only for a function pointer that outlived its table.
    let Some(machine) = slots::machine(slot) else { return R::failure(translate(code::UNINITIALIZED)) };
    match machine.call(name, translate, |machine| call(machine).result()) {
        Ok(value) => R::success(value),
        Err(code) => R::failure(code),
    }
}

/// An argument as a method takes it, whose type says which way that is.
///
/// # Safety
/// As for [`FromC::from_c`].
unsafe fn from_c<C, A: FromC<C>>(value: C) -> A {
    // SAFETY: passes on the caller's promise.
    unsafe { A::from_c(value) }
}

fn refuse<T>(name: &'static str) -> NotModelled<T> {
    NotModelled { name, value: PhantomData }
}

macro_rules! define_abi {
    (
        required { $( [$library:ident] fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty; )* }
        optional { $( [$young_library:ident, $since:literal]
                      fn $young:ident($($young_arg:ident: $young_ty:ty),* $(,)?) -> $young_ret:ty; )* }
        operators { $( $run:ident, $plan:ident($($op_arg:ident: $op_ty:ty),* $(,)?); )* }
    ) => {
        /// The refusal of every symbol; a modelled one has an inherent method of the same name, which wins.
        #[expect(dead_code, reason = "the methods of modelled symbols are never reached")]
        trait Unmodelled {
            $( unsafe fn $name(&self, $($arg: $ty),*) -> NotModelled<<$ret as CReturn>::Value> {
                $( let _ = $arg; )*
                refuse(stringify!($name))
            } )*
            $( unsafe fn $young(&self, $($young_arg: $young_ty),*) -> NotModelled<<$young_ret as CReturn>::Value> {
                $( let _ = $young_arg; )*
                refuse(stringify!($young))
            } )*
            $( unsafe fn $plan(&self, $($op_arg: $op_ty,)* _: *mut u64, _: *mut *mut aclOpExecutor)
                -> NotModelled<()> {
                $( let _ = $op_arg; )*
                refuse(stringify!($plan))
            } )*
        }

        impl Unmodelled for Machine {}

        /// One function per symbol, for any slot; never inlined and never unwinding, so that the functions
        /// per slot stay a jump each and many slots cost little to compile.
        #[expect(unused_unsafe, reason = "a method all of whose arguments are checked types is safe")]
        mod any_slot {
            use super::*;
            $( #[inline(never)]
            pub(super) unsafe extern "C" fn $name(slot: usize, $($arg: $ty),*) -> $ret {
                call(slot, stringify!($name), define_abi!(@translate $library), |m| define_abi!(@call m.$name($($arg),*)))
            } )*
            $( #[inline(never)]
            pub(super) unsafe extern "C" fn $young(slot: usize, $($young_arg: $young_ty),*) -> $young_ret {
                let translate = define_abi!(@translate $young_library);
                call(slot, stringify!($young), translate, |m| define_abi!(@call m.$young($($young_arg),*)))
            } )*
            $( #[inline(never)]
            pub(super) unsafe extern "C" fn $plan(
                slot: usize, $($op_arg: $op_ty,)* workspace_size: *mut u64, executor: *mut *mut aclOpExecutor,
            ) -> aclnnStatus {
                let plan = |m: &Machine| define_abi!(@call m.$plan($($op_arg,)* workspace_size, executor));
                call(slot, stringify!($plan), code::to_aclnn, plan)
            }
            #[inline(never)]
            pub(super) unsafe extern "C" fn $run(
                slot: usize, workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor,
                stream: aclrtStream,
            ) -> aclnnStatus {
                let name = stringify!($run);
                // SAFETY: the C caller gives what the declaration of this function asks for.
                let run = |m: &Machine| unsafe { m.run_operator(name, workspace, workspace_size, executor, stream) };
                call(slot, name, code::to_aclnn, run)
            } )*
        }

        /// The functions C calls: each knows its slot.
        mod in_slot {
            use super::*;
            $( pub(super) unsafe extern "C" fn $name<const SLOT: usize>($($arg: $ty),*) -> $ret {
                // SAFETY: passes on the caller's promise.
                unsafe { any_slot::$name(SLOT, $($arg),*) }
            } )*
            $( pub(super) unsafe extern "C" fn $young<const SLOT: usize>($($young_arg: $young_ty),*) -> $young_ret {
                // SAFETY: passes on the caller's promise.
                unsafe { any_slot::$young(SLOT, $($young_arg),*) }
            } )*
            $( pub(super) unsafe extern "C" fn $plan<const SLOT: usize>(
                $($op_arg: $op_ty,)* workspace_size: *mut u64, executor: *mut *mut aclOpExecutor,
            ) -> aclnnStatus {
                // SAFETY: passes on the caller's promise.
                unsafe { any_slot::$plan(SLOT, $($op_arg,)* workspace_size, executor) }
            }
            pub(super) unsafe extern "C" fn $run<const SLOT: usize>(
                workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream,
            ) -> aclnnStatus {
                // SAFETY: passes on the caller's promise.
                unsafe { any_slot::$run(SLOT, workspace, workspace_size, executor, stream) }
            } )*
        }

        /// Whether a symbol is modelled; decided by the type of what its method gives.
        #[expect(unused_unsafe, reason = "a method all of whose arguments are checked types is safe")]
        mod is_modelled {
            use super::*;
            $( pub(super) fn $name() -> bool {
                fn of<O: Outcome>(_: impl Fn(&Machine, $($ty),*) -> O) -> bool { O::MODELLED }
                of(|m: &Machine, $($arg: $ty),*| define_abi!(@call m.$name($($arg),*)))
            } )*
            $( pub(super) fn $young() -> bool {
                fn of<O: Outcome>(_: impl Fn(&Machine, $($young_ty),*) -> O) -> bool { O::MODELLED }
                of(|m: &Machine, $($young_arg: $young_ty),*| define_abi!(@call m.$young($($young_arg),*)))
            } )*
            $( pub(super) fn $plan() -> bool {
                fn of<O: Outcome>(
                    _: impl Fn(&Machine, $($op_ty,)* *mut u64, *mut *mut aclOpExecutor) -> O,
                ) -> bool { O::MODELLED }
                of(|m: &Machine, $($op_arg: $op_ty,)* size, executor| {
                    define_abi!(@call m.$plan($($op_arg,)* size, executor))
                })
            } )*
        }

        /// Every symbol of the table with its library and whether it is modelled, in the order of the list.
        pub(crate) fn coverage() -> Vec<(&'static str, Library, bool)> {
            let modelled = [
                $( is_modelled::$name(), )*
                $( is_modelled::$young(), )*
                // An operator is planned and run by one method.
                $( is_modelled::$plan(), is_modelled::$plan(), )*
            ];
            Table::SYMBOLS.iter().zip(modelled).map(|(&(name, library, _), modelled)| (name, library, modelled)).collect()
        }

        fn table_of_slot<const SLOT: usize>(owner: Owner, cann: CannVersion) -> Table {
            let has_young = cann > CannVersion::V8_1;
            Table {
                owner,
                $( $name: in_slot::$name::<SLOT>, )*
                $( $young: (has_young && is_modelled::$young()).then_some(in_slot::$young::<SLOT>), )*
                $( $plan: in_slot::$plan::<SLOT>, $run: in_slot::$run::<SLOT>, )*
            }
        }
    };
    // A method with the arguments of its C function. Only `any_slot`, whose callers have given what the declarations ask for,
    // runs one; elsewhere its type is asked for.
    (@call $machine:ident.$method:ident($($arg:ident),*)) => {{
        // SAFETY: the C caller gives what the declaration of this function asks for, until it returns.
        $( let $arg = unsafe { from_c($arg) }; )*
        // SAFETY: as above.
        unsafe { $machine.$method($($arg),*) }
    }};
    (@translate acl) => { as_it_is };
    (@translate hccl) => { code::to_hccl };
    (@translate nnopbase) => { code::to_aclnn };
}

ascend_tp_sys::for_each_symbol!(define_abi);

/// The table of the machine in `slot`, which `owner` keeps alive, without what is younger than its CANN.
pub(crate) fn table(slot: usize, owner: Owner, cann: CannVersion) -> Table {
    macro_rules! tables {
        ($($slot:literal)*) => { [$( table_of_slot::<$slot> ),*] };
    }
    const TABLES: [fn(Owner, CannVersion) -> Table; thread::SLOTS] =
        tables![0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31];
    TABLES[slot](owner, cann)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_modelled_follows_from_the_methods_there_are() {
        let coverage = coverage();
        let modelled = |name: &str| {
            let row = coverage.iter().find(|(symbol, ..)| *symbol == name);
            row.unwrap_or_else(|| panic!("{name} is not in the table")).2
        };
        assert_eq!(coverage.len(), Table::SYMBOLS.len());
        for name in ["aclrtMalloc", "aclrtCreateNotify", "HcclAlltoAllVC", "aclnnAdd", "aclnnAddGetWorkspaceSize"] {
            assert!(modelled(name), "{name} has a method");
        }
    }

    #[test]
    fn a_symbol_without_a_method_of_its_own_is_not_modelled() {
        fn of<O: Outcome>(_: impl Fn(&Machine, aclrtStream) -> O) -> bool {
            O::MODELLED
        }
        assert!(of(|machine: &Machine, stream| machine.aclrtSynchronizeStream(stream)));
        // SAFETY: never called; only its type is asked for.
        assert!(!of(|machine: &Machine, stream| unsafe { Unmodelled::aclrtSynchronizeStream(machine, stream) }));
    }
}
