//! Registered kernels, host callbacks, data buffers and task numbers.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

use crate::common::{Card, H2D, call, machine, message, ok, refused};
use ascend_tp_emulator::{Emulator, KernelCall};
use ascend_tp_sys::{
    ACL_ERROR_INVALID_FILE, ACL_ERROR_INVALID_PARAM, ACL_ERROR_KERNEL_NOT_FOUND,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_ERROR_RT_PARAM_INVALID, Table, aclrtArgsHandle, aclrtBinHandle,
    aclrtFuncHandle,
};

/// y[i] = factor * x[i] over `count` floats; parameters x, y, and {factor, count}.
fn scale(call: &KernelCall<'_>) -> Result<(), String> {
    let tiling = call.bytes(2)?;
    let (factor, count) = tiling.split_at(4);
    let factor = f32::from_le_bytes(factor.try_into().map_err(|_| "no factor")?);
    let count = u32::from_le_bytes(count.try_into().map_err(|_| "no count")?) as usize;
    let (x, y) = (call.memory(0, 4 * count)?, call.memory(1, 4 * count)?);
    for at in 0..count {
        let mut value = [0; 4];
        x.read(4 * at, &mut value)?;
        y.write(4 * at, &(factor * f32::from_le_bytes(value)).to_le_bytes())?;
    }
    Ok(())
}

/// y = number of cores.
fn cores(call: &KernelCall<'_>) -> Result<(), String> {
    call.memory(0, 4)?.write(0, &call.blocks().to_le_bytes())
}

fn load(table: &Table) -> aclrtBinHandle {
    let path =
        CString::new(std::env::current_exe().expect("this test").display().to_string()).expect("no NUL");
    let mut binary = null_mut();
    ok(table, call!(table, aclrtBinaryLoadFromFile(path.as_ptr(), null_mut(), &raw mut binary)));
    binary
}

fn function(table: &Table, binary: aclrtBinHandle, name: &std::ffi::CStr) -> aclrtFuncHandle {
    let mut function = null_mut();
    ok(table, call!(table, aclrtBinaryGetFunction(binary, name.as_ptr(), &raw mut function)));
    function
}

fn with_kernels(cards: usize) -> (Emulator, std::sync::Arc<Table>) {
    let (emulator, table) = machine(cards);
    emulator.register_kernel("scale", scale);
    emulator.register_kernel("cores", cores);
    (emulator, table)
}

fn append(table: &Table, list: aclrtArgsHandle, mut address: *mut c_void) {
    ok(table, call!(table, aclrtKernelArgsAppend(list, (&raw mut address).cast(), 8, &mut null_mut())));
}

#[test]
fn a_kernel_runs_with_the_arguments_of_its_launch() {
    let (_emulator, table) = with_kernels(1);
    let card = Card::new(&table, 0);
    let scale = function(&table, load(&table), c"scale");
    let x = card.upload(&[1.5_f32.to_le_bytes(), 2.0_f32.to_le_bytes()].concat());
    let y = card.malloc(8);
    let (mut list, mut place, mut room) = (null_mut(), null_mut(), null_mut());
    ok(&table, call!(table, aclrtKernelArgsInit(scale, &raw mut list)));
    append(&table, list, x);
    append(&table, list, y);
    ok(&table, call!(table, aclrtKernelArgsAppendPlaceHolder(list, &raw mut place)));
    ok(&table, call!(table, aclrtKernelArgsGetPlaceHolderBuffer(list, place, 8, &raw mut room)));
    let tiling = [4.0_f32.to_le_bytes(), 2_u32.to_le_bytes()].concat();
    // SAFETY: the buffer has 8 bytes, written only by this thread.
    unsafe { room.cast::<[u8; 8]>().write_unaligned(tiling.try_into().expect("8 bytes")) };
    let launch =
        || call!(table, aclrtLaunchKernelWithConfig(scale, 1, card.stream, null_mut(), list, null_mut()));
    let text = refused(&table, launch(), ACL_ERROR_RT_PARAM_INVALID);
    assert!(text.contains("is not finalized; call aclrtKernelArgsFinalize first"), "{text}");
    ok(&table, call!(table, aclrtKernelArgsFinalize(list)));
    ok(&table, launch());
    card.synchronize();
    assert_eq!(card.download(y, 8), [6.0_f32.to_le_bytes(), 8.0_f32.to_le_bytes()].concat());
}

#[test]
fn arguments_in_device_memory_are_read_when_the_stream_gets_there() {
    let (_emulator, table) = with_kernels(2);
    let card = Card::new(&table, 0);
    let cores = function(&table, load(&table), c"cores");
    let y = card.malloc(4);
    let args = card.upload(&(y.expose_provenance() as u64).to_le_bytes());
    ok(&table, call!(table, aclrtLaunchKernel(cores, 20, args, 8, card.stream)));
    card.synchronize();
    assert_eq!(card.download(y, 4), 20_u32.to_le_bytes());
    let code = call!(table, aclrtLaunchKernel(cores, 0, args, 8, card.stream));
    assert!(refused(&table, code, ACL_ERROR_INVALID_PARAM).contains("at least one core"));
    let code = call!(table, aclrtLaunchKernel(cores, 1, args, 7, card.stream));
    assert!(refused(&table, code, ACL_ERROR_INVALID_PARAM).contains("args_size is 7"));
    let other = Card::new(&table, 1);
    other.enter();
    let code = call!(table, aclrtLaunchKernel(cores, 1, args, 8, other.stream));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("loaded on card 0"));
    card.enter();
    let zero = 0_u64.to_le_bytes();
    ok(&table, call!(table, aclrtMemcpy(args, 8, zero.as_ptr().cast(), 8, H2D)));
    ok(&table, call!(table, aclrtLaunchKernel(cores, 1, args, 8, card.stream)));
    let (code, text) = card.outcome();
    assert!(code != 0 && text.contains("kernel \"cores\": parameter 0:"), "{text}");
}

#[test]
fn what_is_no_kernel_here_is_refused_by_name() {
    let (_emulator, table) = with_kernels(1);
    let _card = Card::new(&table, 0);
    let mut handle = null_mut();
    let code = call!(table, aclrtBinaryLoadFromFile(c"kernel.o".as_ptr(), null_mut(), &raw mut handle));
    assert!(refused(&table, code, ACL_ERROR_INVALID_PARAM).contains("must be absolute"));
    let code = call!(table, aclrtBinaryLoadFromFile(c"/no/kernel.o".as_ptr(), null_mut(), &raw mut handle));
    assert!(refused(&table, code, ACL_ERROR_INVALID_FILE).contains("names no file"));
    let binary = load(&table);
    let code = call!(table, aclrtBinaryGetFunction(binary, c"top_k".as_ptr(), &raw mut handle));
    let text = refused(&table, code, ACL_ERROR_KERNEL_NOT_FOUND);
    assert!(
        text.contains("\"top_k\"") && text.contains("register_kernel") && text.contains("scale"),
        "{text}"
    );
    let scale = function(&table, binary, c"scale");
    ok(&table, call!(table, aclrtBinaryUnLoad(binary)));
    let code = call!(table, aclrtKernelArgsInit(scale, &raw mut handle));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("does not exist"));
}

#[test]
fn data_buffers_describe_what_they_were_given() {
    let (_emulator, table) = machine(1);
    let mut data = [0_u8; 4];
    let address = data.as_mut_ptr().cast::<c_void>();
    let buffer = call!(table, aclCreateDataBuffer(address, 4));
    assert_eq!(
        (call!(table, aclGetDataBufferAddr(buffer)), call!(table, aclGetDataBufferSizeV2(buffer))),
        (address, 4)
    );
    ok(&table, call!(table, aclUpdateDataBuffer(buffer, null_mut(), 0)));
    assert!(call!(table, aclGetDataBufferAddr(buffer)).is_null());
    ok(&table, call!(table, aclDestroyDataBuffer(buffer)));
    assert!(call!(table, aclGetDataBufferAddr(buffer)).is_null());
    assert!(message(&table).contains("does not exist"));
    assert!(
        refused(&table, call!(table, aclDestroyDataBuffer(null())), ACL_ERROR_INVALID_PARAM).contains("NULL")
    );
}

#[test]
fn threads_know_their_last_task_and_host_function_threads_are_not_of_this_card() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let mut task = 9;
    ok(&table, call!(table, aclrtGetThreadLastTaskId(&raw mut task)));
    assert_eq!(task, 0);
    let device = card.malloc(4);
    for expected in 1..=3 {
        ok(&table, call!(table, aclrtMemsetAsync(device, 4, 0, 4, card.stream)));
        ok(&table, call!(table, aclrtMemsetAsync(device, 4, 0, 4, null_mut())));
        ok(&table, call!(table, aclrtGetThreadLastTaskId(&raw mut task)));
        assert_eq!(task, expected, "default streams do not count");
    }
    let subscribe = || call!(table, aclrtSubscribeHostFunc(1, card.stream));
    let process = || call!(table, aclrtProcessHostFunc(1));
    let unsubscribe = || call!(table, aclrtUnSubscribeHostFunc(1, card.stream));
    for call in [&subscribe as &dyn Fn() -> i32, &process, &unsubscribe] {
        let text = refused(&table, call(), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
        assert!(text.contains("is not offered by the Atlas A2"), "{text}");
    }
}
