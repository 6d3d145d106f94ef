//! The C ABI: one `extern "C"` function per symbol and slot, and the function table.
//!
//! A symbol is modelled when `Machine` has an inherent method of the same name in this folder.
//! Otherwise the method of the trait [`Unmodelled`] refuses. An operator is modelled by a row in
//! the operator table.
//!
//! Invariants: every call goes through `Machine::call`. Result pointers become [`Out`](out::Out),
//! and no panic unwinds into C.
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
mod acl_memory_batch;
mod acl_options;
mod acl_profile;
mod acl_report;
mod acl_runtime;
mod acl_stream;
mod acl_stream_attribute;
mod acl_value;
mod acl_virtual;
pub(crate) mod aclnn;
mod hccl;
mod hccl_communicator;
mod hccl_memory;
mod library;
mod out;
pub(crate) mod refused;

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;

#[cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "the symbol list names most types of the ABI")
)]
use ascend_tp_sys::*;

use crate::abi::aclnn::CArgument;
use crate::abi::out::FromC;
use crate::base::failure::{Failure, code};
use crate::config::CannVersion;
use crate::emulator::Emulator;
use crate::machine::Machine;
use crate::runtime::{slots, thread};

/// Return type of a modelled or refused function.
trait MethodOutcome {
    type Value;
    const MODELLED: bool;
    fn result(self) -> Result<Self::Value, Failure>;
}

impl<T> MethodOutcome for Result<T, Failure> {
    type Value = T;
    const MODELLED: bool = true;
    fn result(self) -> Self {
        self
    }
}

struct NotModelled<T> {
    name: &'static str,
    value: PhantomData<T>,
}

impl<T> MethodOutcome for NotModelled<T> {
    type Value = T;
    const MODELLED: bool = false;
    fn result(self) -> Result<T, Failure> {
        Err(Failure::not_modelled(self.name, code::FEATURE_NOT_SUPPORTED))
    }
}

trait CReturn: Sized {
    type Value;
    fn success(value: Self::Value) -> Self;
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

/// Plain values cannot carry an error code: a failure returns 0 or NULL and sets the recent error
/// message.
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

/// The machine is missing only if a function pointer outlived its table.
fn call<R: CReturn>(
    machine: Option<&Machine>,
    name: &'static str,
    translate: fn(i32) -> i32,
    call: impl Fn(&Machine) -> Result<R::Value, Failure>,
) -> R {
    let Some(machine) = machine else { return R::failure(translate(code::UNINITIALIZED)) };
    let mut value = None;
    // This closure is compiled per C function, `Machine::call` only once.
    let outcome = machine.call(name, translate, &mut || {
        value = Some(call(machine)?);
        Ok(())
    });
    match (outcome, value) {
        (Ok(()), Some(value)) => R::success(value),
        (Ok(()), None) => R::failure(translate(code::INTERNAL)),
        (Err(code), _) => R::failure(code),
    }
}

/// Shared by all operators.
#[derive(Clone, Copy)]
struct Phases {
    plan: &'static str,
    run: &'static str,
}

impl Phases {
    /// # Safety
    ///
    /// The arguments satisfy the operator's declaration.
    unsafe fn plan(
        self,
        machine: Option<&Machine>,
        arguments: &[(&str, CArgument)],
        workspace_size: *mut u64,
        executor: *mut *mut aclOpExecutor,
    ) -> aclnnStatus {
        call(machine, self.plan, code::to_aclnn, |machine| {
            // SAFETY: the caller upholds the declaration.
            let workspace_size = unsafe { from_c(workspace_size) };
            // SAFETY: as above.
            let executor = unsafe { from_c(executor) };
            // SAFETY: as above.
            unsafe { machine.plan_operator(self.run, arguments, workspace_size, executor) }
        })
    }

    fn run(
        self,
        machine: Option<&Machine>,
        workspace: *mut c_void,
        workspace_size: u64,
        executor: *mut aclOpExecutor,
        stream: aclrtStream,
    ) -> aclnnStatus {
        call(machine, self.run, code::to_aclnn, |machine| {
            machine.run_operator(self.run, workspace, workspace_size, executor, stream)
        })
    }
}

/// Returns `None` if the function is not modelled or newer than the machine's CANN version.
fn answering<'a>(emulator: &'a Emulator, since: &str, modelled: bool) -> Option<&'a Machine> {
    let machine = emulator.machine();
    let has_it = since == CannVersion::V8_1.name() || machine.config().cann > CannVersion::V8_1;
    (has_it && modelled).then_some(machine)
}

/// # Safety
///
/// See [`FromC::from_c`].
unsafe fn from_c<C, A: FromC<C>>(value: C) -> A {
    // SAFETY: the caller upholds this contract.
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
        dropin {
            functions { $( [$dropin_library:ident, $dropin_since:literal]
                           fn $dropin:ident($($dropin_arg:ident: $dropin_ty:ty),* $(,)?) -> $dropin_ret:ty; )* }
            operators { $( [$dropin_op_since:literal]
                           $dropin_run:ident, $dropin_plan:ident($($dropin_op_arg:ident: $dropin_op_ty:ty),* $(,)?); )* }
        }
    ) => {
        define_abi! { @declare
            $( fn $name($($arg: $ty),*) -> $ret; )*
            $( fn $young($($young_arg: $young_ty),*) -> $young_ret; )*
            $( fn $dropin($($dropin_arg: $dropin_ty),*) -> $dropin_ret; )*
        }

        /// One function per symbol, which takes the slot as an argument. They are never inlined and
        /// never unwind. Each function per slot is therefore a single jump and costs little compile
        /// time.
        #[expect(unused_unsafe, reason = "a method with only checked argument types is safe")]
        mod any_slot {
            use super::*;
            $( #[inline(never)]
            pub(super) unsafe extern "C" fn $name(slot: usize, $($arg: $ty),*) -> $ret {
                let method = |m: &Machine| define_abi!(@call m.$name($($arg),*)).result();
                call(slots::machine(slot).as_deref(), stringify!($name), define_abi!(@translate $library), method)
            } )*
            $( #[inline(never)]
            pub(super) unsafe extern "C" fn $young(slot: usize, $($young_arg: $young_ty),*) -> $young_ret {
                let method = |m: &Machine| define_abi!(@call m.$young($($young_arg),*)).result();
                call(slots::machine(slot).as_deref(), stringify!($young), define_abi!(@translate $young_library), method)
            } )*
            $( #[inline(never)]
            pub(super) unsafe extern "C" fn $plan(
                slot: usize, $($op_arg: $op_ty,)* workspace_size: *mut u64, executor: *mut *mut aclOpExecutor,
            ) -> aclnnStatus {
                let arguments = [$( (stringify!($op_arg), CArgument::from($op_arg)) ),*];
                let (machine, phases) = (slots::machine(slot), define_abi!(@phases $run, $plan));
                // SAFETY: the caller upholds this contract.
                unsafe { phases.plan(machine.as_deref(), &arguments, workspace_size, executor) }
            }
            #[inline(never)]
            pub(super) unsafe extern "C" fn $run(
                slot: usize, workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor,
                stream: aclrtStream,
            ) -> aclnnStatus {
                let (machine, phases) = (slots::machine(slot), define_abi!(@phases $run, $plan));
                phases.run(machine.as_deref(), workspace, workspace_size, executor, stream)
            } )*
        }

        mod in_slot {
            use super::*;
            $( pub(super) unsafe extern "C" fn $name<const SLOT: usize>($($arg: $ty),*) -> $ret {
                // SAFETY: the caller upholds this contract.
                unsafe { any_slot::$name(SLOT, $($arg),*) }
            } )*
            $( pub(super) unsafe extern "C" fn $young<const SLOT: usize>($($young_arg: $young_ty),*) -> $young_ret {
                // SAFETY: the caller upholds this contract.
                unsafe { any_slot::$young(SLOT, $($young_arg),*) }
            } )*
            $( pub(super) unsafe extern "C" fn $plan<const SLOT: usize>(
                $($op_arg: $op_ty,)* workspace_size: *mut u64, executor: *mut *mut aclOpExecutor,
            ) -> aclnnStatus {
                // SAFETY: the caller upholds this contract.
                unsafe { any_slot::$plan(SLOT, $($op_arg,)* workspace_size, executor) }
            }
            pub(super) unsafe extern "C" fn $run<const SLOT: usize>(
                workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream,
            ) -> aclnnStatus {
                // SAFETY: the caller upholds this contract.
                unsafe { any_slot::$run(SLOT, workspace, workspace_size, executor, stream) }
            } )*
        }

        /// Functions without a field in the table, exported by the drop-in libraries. Each takes
        /// its machine. A function returns `None` if it is not modelled or newer than the machine's
        /// CANN version. Every declared operator has a row.
        #[expect(unused_unsafe, reason = "a method with only checked argument types is safe")]
        pub mod dropin {
            use super::*;
            $(
                #[doc = concat!("`", stringify!($dropin), "` of a machine.\n\n# Safety\nAs its declaration says.")]
                pub unsafe fn $dropin(emulator: &Emulator, $($dropin_arg: $dropin_ty),*) -> Option<$dropin_ret> {
                    let machine = answering(emulator, $dropin_since, is_modelled::$dropin())?;
                    let method = |m: &Machine| define_abi!(@call m.$dropin($($dropin_arg),*)).result();
                    Some(call(Some(machine), stringify!($dropin), define_abi!(@translate $dropin_library), method))
                }
            )*
            $(
                #[doc = concat!("`", stringify!($dropin_plan), "` of a machine.\n\n# Safety\nAs its declaration says.")]
                pub unsafe fn $dropin_plan(
                    emulator: &Emulator, $($dropin_op_arg: $dropin_op_ty,)* workspace_size: *mut u64,
                    executor: *mut *mut aclOpExecutor,
                ) -> Option<aclnnStatus> {
                    let machine = answering(emulator, $dropin_op_since, true)?;
                    let phases = define_abi!(@phases $dropin_run, $dropin_plan);
                    let arguments = [$( (stringify!($dropin_op_arg), CArgument::from($dropin_op_arg)) ),*];
                    // SAFETY: the caller upholds this contract.
                    Some(unsafe { phases.plan(Some(machine), &arguments, workspace_size, executor) })
                }
                #[doc = concat!("`", stringify!($dropin_run), "` of a machine.\n\n# Safety\nAs its declaration says.")]
                pub unsafe fn $dropin_run(
                    emulator: &Emulator, workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor,
                    stream: aclrtStream,
                ) -> Option<aclnnStatus> {
                    let machine = answering(emulator, $dropin_op_since, true)?;
                    let phases = define_abi!(@phases $dropin_run, $dropin_plan);
                    Some(phases.run(Some(machine), workspace, workspace_size, executor, stream))
                }
            )*
        }

        /// Returns (symbol, library, modelled), first the symbols of the table.
        pub(crate) fn coverage() -> Vec<(&'static str, Library, bool)> {
            let modelled = [
                $( is_modelled::$name(), )*
                $( is_modelled::$young(), )*
                $( aclnn::is_modelled(stringify!($run)), aclnn::is_modelled(stringify!($run)), )*
                $( is_modelled::$dropin(), )*
                $( aclnn::is_modelled(stringify!($dropin_run)), aclnn::is_modelled(stringify!($dropin_run)), )*
            ];
            let symbols = Table::SYMBOLS.iter().chain(DROPIN_SYMBOLS);
            symbols.zip(modelled).map(|(&(name, library, _), modelled)| (name, library, modelled)).collect()
        }

        fn table_of_slot<const SLOT: usize>(owner: Owner, cann: CannVersion) -> Table {
            let has_young = cann > CannVersion::V8_1;
            Table {
                owner,
                missing_operators: Vec::new(),
                $( $name: in_slot::$name::<SLOT>, )*
                $( $young: (has_young && is_modelled::$young()).then_some(in_slot::$young::<SLOT>), )*
                $( $plan: in_slot::$plan::<SLOT>, $run: in_slot::$run::<SLOT>, )*
            }
        }
    };
    (@declare $( fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty; )*) => {
        /// Inherent methods of the same name take precedence.
        #[expect(dead_code, reason = "the methods of modelled symbols are never reached")]
        trait Unmodelled {
            $( unsafe fn $name(&self, $($arg: $ty),*) -> NotModelled<<$ret as CReturn>::Value> {
                $( let _ = $arg; )*
                refuse(stringify!($name))
            } )*
        }

        impl Unmodelled for Machine {}

        /// The return type of a symbol's method decides.
        #[expect(unused_unsafe, reason = "a method with only checked argument types is safe")]
        mod is_modelled {
            use super::*;
            $( pub(super) fn $name() -> bool {
                fn of<O: MethodOutcome>(_: impl Fn(&Machine, $($ty),*) -> O) -> bool { O::MODELLED }
                of(|m: &Machine, $($arg: $ty),*| define_abi!(@call m.$name($($arg),*)))
            } )*
        }
    };
    // Only `any_slot` runs this code, with callers that uphold the declarations. Other uses inspect
    // the type.
    (@call $machine:ident.$method:ident($($arg:ident),*)) => {{
        // SAFETY: the C caller upholds the declaration during the call.
        $( let $arg = unsafe { from_c($arg) }; )*
        // SAFETY: as above.
        unsafe { $machine.$method($($arg),*) }
    }};
    (@phases $run:ident, $plan:ident) => { Phases { plan: stringify!($plan), run: stringify!($run) } };
    (@translate acl) => { as_it_is };
    (@translate hccl) => { code::to_hccl };
    (@translate nnopbase) => { code::to_aclnn };
    (@translate opapi) => { code::to_aclnn };
}

ascend_tp_sys::for_each_symbol!(define_abi);

/// Excludes functions newer than `cann`. `owner` keeps the machine alive.
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
    use crate::config::Config;

    #[test]
    fn what_is_modelled_follows_from_the_methods_there_are() {
        let coverage = coverage();
        let modelled = |name: &str| {
            let row = coverage.iter().find(|(symbol, ..)| *symbol == name);
            row.unwrap_or_else(|| panic!("{name} is not declared")).2
        };
        assert_eq!(coverage.len(), Table::SYMBOLS.len() + DROPIN_SYMBOLS.len());
        for name in
            ["aclrtMalloc", "aclrtCreateNotify", "HcclAlltoAllVC", "aclnnAdd", "aclnnMmGetWorkspaceSize"]
        {
            assert!(modelled(name), "{name} has a method");
        }
    }

    #[test]
    fn a_symbol_without_a_method_of_its_own_is_not_modelled() {
        fn of<O: MethodOutcome>(_: impl Fn(&Machine, aclrtStream) -> O) -> bool {
            O::MODELLED
        }
        assert!(of(|machine: &Machine, stream| machine.aclrtSynchronizeStream(stream)));
        // SAFETY: never called; only the type is inspected.
        assert!(!of(|machine: &Machine, stream| unsafe {
            Unmodelled::aclrtSynchronizeStream(machine, stream)
        }));
    }

    #[test]
    fn what_no_table_has_is_answered_by_the_machine_that_is_named_if_its_cann_has_it() {
        let with = |cann| {
            let mut config = Config::with_cards(1);
            config.cann = cann;
            Emulator::new(config).unwrap()
        };
        let (old, new) = (with(CannVersion::V8_1), with(CannVersion::V9_0));
        // SAFETY: no conditions.
        let size = |emulator| unsafe { dropin::aclDataTypeSize(emulator, aclDataType::ACL_BF16) };
        assert_eq!((size(&old), size(&new)), (Some(2), Some(2)));
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both pointers refer to live variables.
        let mut range = |emulator| unsafe {
            dropin::aclrtDeviceGetStreamPriorityRange(emulator, &raw mut least, &raw mut greatest)
        };
        assert!(range(&old).is_none(), "younger than its CANN");
        assert!(range(&new).is_some());
        // SAFETY: the function refuses NULL.
        let refused = unsafe {
            dropin::aclrtRandomNumAsync(&new, std::ptr::null(), std::ptr::null_mut(), std::ptr::null_mut())
        };
        assert!(refused.is_none(), "not modelled");
    }
}
