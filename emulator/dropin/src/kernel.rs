//! Functions of `include/ascend_emulator.h`: host functions that replace compiled kernels. A
//! failing kernel returns a number, which its stream stores.
#![expect(unsafe_code, reason = "functions called from C, and functions of C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::slice;

use ascend_tp_emulator::{KernelCall, KernelMemory};
use ascend_tp_sys::{ACL_ERROR_INTERNAL_ERROR, ACL_ERROR_INVALID_PARAM};

use crate::process::{self, Process};

/// Names that no CANN library contains.
pub const OWN: &[&str] = &[
    "ascend_emulator_register_kernel",
    "ascend_emulator_call_blocks",
    "ascend_emulator_call_params",
    "ascend_emulator_call_param",
    "ascend_emulator_call_read",
    "ascend_emulator_call_write",
];

type KernelCallback = unsafe extern "C" fn(call: *const KernelCall<'_>, user: *mut c_void) -> c_int;

struct User(*mut c_void);

// SAFETY: the library only passes the pointer on. The header permits calls on other threads.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

#[unsafe(no_mangle)]
unsafe extern "C" fn ascend_emulator_register_kernel(
    name: *const c_char,
    kernel: Option<KernelCallback>,
    user: *mut c_void,
) -> c_int {
    const NAME: &str = "ascend_emulator_register_kernel";
    let Process::Machine(emulator, _) = process::current(NAME) else { return ACL_ERROR_INTERNAL_ERROR };
    emulator.answer(NAME, || {
        let (Some(kernel), false) = (kernel, name.is_null()) else {
            return Err((ACL_ERROR_INVALID_PARAM, "name or kernel is NULL".to_owned()));
        };
        // SAFETY: not NULL, so the C caller's string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let user = User(user);
        let told = name.clone();
        emulator.register_kernel(name, move |call| {
            let user: &User = &user;
            // SAFETY: the program registered this function for such calls.
            match unsafe { kernel(call, user.0) } {
                0 => Ok(()),
                other => Err(format!("kernel {told} returned {other}")),
            }
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ascend_emulator_call_blocks(call: *const KernelCall<'_>) -> u32 {
    // SAFETY: the C caller passes the argument of a kernel, or NULL.
    unsafe { call.as_ref() }.map_or(0, KernelCall::blocks)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ascend_emulator_call_params(call: *const KernelCall<'_>) -> usize {
    // SAFETY: the C caller passes the argument of a kernel, or NULL.
    unsafe { call.as_ref() }.map_or(0, KernelCall::params)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ascend_emulator_call_param(
    call: *const KernelCall<'_>,
    index: usize,
    into: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the C caller passes the argument of a kernel, or NULL.
    let param = unsafe { call.as_ref() }.and_then(|call| call.bytes(index).ok());
    let Some(param) = param.filter(|param| param.len() == bytes && !into.is_null()) else { return -1 };
    // SAFETY: the C caller passes a buffer of `bytes` bytes.
    unsafe { slice::from_raw_parts_mut(into.cast::<u8>(), bytes) }.copy_from_slice(param);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ascend_emulator_call_read(
    call: *const KernelCall<'_>,
    index: usize,
    offset: usize,
    into: *mut c_void,
    bytes: usize,
) -> c_int {
    if into.is_null() {
        return -1;
    }
    // SAFETY: the C caller passes the argument of a kernel.
    let memory = unsafe { memory(call, index, offset, bytes) };
    // SAFETY: the C caller passes a buffer of `bytes` bytes.
    let into = unsafe { slice::from_raw_parts_mut(into.cast::<u8>(), bytes) };
    status(memory.is_some_and(|memory| memory.read(offset, into).is_ok()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ascend_emulator_call_write(
    call: *const KernelCall<'_>,
    index: usize,
    offset: usize,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    if from.is_null() {
        return -1;
    }
    // SAFETY: the C caller passes the argument of a kernel.
    let memory = unsafe { memory(call, index, offset, bytes) };
    // SAFETY: the C caller passes `bytes` bytes.
    let from = unsafe { slice::from_raw_parts(from.cast::<u8>(), bytes) };
    status(memory.is_some_and(|memory| memory.write(offset, from).is_ok()))
}

/// Returns the memory of a parameter up to the end of the requested range.
///
/// # Safety
///
/// `call` is NULL or the argument of the program's kernel.
unsafe fn memory(
    call: *const KernelCall<'_>,
    index: usize,
    offset: usize,
    bytes: usize,
) -> Option<KernelMemory> {
    // SAFETY: the caller upholds this contract.
    let call = unsafe { call.as_ref() }?;
    call.memory(index, offset.checked_add(bytes)?).ok()
}

fn status(is_done: bool) -> c_int {
    if is_done { 0 } else { -1 }
}
