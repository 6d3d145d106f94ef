//! Operators through the table.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use ascend_tp_sys::{
    Table, aclDataType, aclFormat, aclOpExecutor, aclScalar, aclTensor, aclnnStatus, aclrtMemMallocPolicy,
    aclrtMemcpyKind,
};
use half::{bf16, f16};

use crate::{Config, Emulator};

macro_rules! call {
    ($table:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let function = $table.$name;
        // SAFETY: live places and handles of this table, or arguments that the function refuses.
        unsafe { function($($arg),*) }
    }};
}

mod blocked;

fn message(table: &Table) -> String {
    let text = call!(table, aclGetRecentErrMsg());
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the C string stays valid on this thread until the next call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[track_caller]
fn ok(table: &Table, code: i32) {
    assert_eq!(code, 0, "{}", message(table));
}

#[track_caller]
fn refused(table: &Table, found: i32, code: i32, parts: &[&str]) {
    let message = message(table);
    assert_eq!(found, code, "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

fn machine(cards: usize) -> Arc<Table> {
    let table = Emulator::new(Config::with_cards(cards)).unwrap().table();
    ok(&table, call!(table, aclInit(null())));
    ok(&table, call!(table, aclrtSetDevice(0)));
    table
}

fn upload<T: Copy>(table: &Table, values: &[T]) -> *mut c_void {
    let (mut address, bytes) = (null_mut(), size_of_val(values));
    let policy = aclrtMemMallocPolicy::ACL_MEM_MALLOC_HUGE_FIRST;
    ok(table, call!(table, aclrtMalloc(&raw mut address, bytes.max(1), policy)));
    let kind = aclrtMemcpyKind::ACL_MEMCPY_HOST_TO_DEVICE;
    ok(table, call!(table, aclrtMemcpy(address, bytes, values.as_ptr().cast(), bytes, kind)));
    address
}

fn download<T: Copy + Default>(table: &Table, address: *mut c_void, count: usize) -> Vec<T> {
    let mut values = vec![T::default(); count];
    let bytes = size_of_val(&values[..]);
    let kind = aclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_HOST;
    ok(table, call!(table, aclrtMemcpy(values.as_mut_ptr().cast(), bytes, address, bytes, kind)));
    values
}

fn tensor(table: &Table, dtype: aclDataType, dims: &[i64], address: *mut c_void) -> *mut aclTensor {
    strided(table, dtype, dims, null(), dims, address)
}

fn strided(
    table: &Table,
    dtype: aclDataType,
    dims: &[i64],
    strides: *const i64,
    storage: &[i64],
    address: *mut c_void,
) -> *mut aclTensor {
    let (rank, depth, nd) = (dims.len() as u64, storage.len() as u64, aclFormat::ACL_FORMAT_ND);
    let made = call!(
        table,
        aclCreateTensor(dims.as_ptr(), rank, dtype, strides, 0, nd, storage.as_ptr(), depth, address)
    );
    assert!(!made.is_null(), "{}", message(table));
    made
}

const F32: aclDataType = aclDataType::ACL_FLOAT;

struct Sum {
    a: *mut aclTensor,
    b: *mut aclTensor,
    out: *mut aclTensor,
    one: *mut aclScalar,
    out_address: *mut c_void,
}

impl Sum {
    fn new(table: &Table) -> Self {
        let out_address = upload(table, &[0f32; 2]);
        let mut one = 1i64;
        Self {
            a: tensor(table, F32, &[2], upload(table, &[1f32, 2.0])),
            b: tensor(table, F32, &[2], upload(table, &[10f32, 20.0])),
            out: tensor(table, F32, &[2], out_address),
            one: call!(table, aclCreateScalar((&raw mut one).cast(), aclDataType::ACL_INT64)),
            out_address,
        }
    }

    fn plan(&self, table: &Table) -> *mut aclOpExecutor {
        let (mut size, mut executor) = (7, null_mut());
        let code = call!(
            table,
            aclnnAddGetWorkspaceSize(self.a, self.b, self.one, self.out, &raw mut size, &raw mut executor)
        );
        ok(table, code);
        assert_eq!(size, 0, "contiguous sums need no workspace");
        executor
    }
}

#[test]
fn a_sum_runs_on_the_stream_and_its_executor_serves_once() {
    let table = machine(1);
    let sum = Sum::new(&table);
    let executor = sum.plan(&table);
    ok(&table, call!(table, aclnnAdd(null_mut(), 0, executor, null_mut())));
    ok(&table, call!(table, aclrtSynchronizeStream(null_mut())));
    assert_eq!(download::<f32>(&table, sum.out_address, 2), [11.0, 22.0]);
    let again = call!(table, aclnnAdd(null_mut(), 0, executor, null_mut()));
    refused(&table, again, 161_002, &["aclnnAdd: executor", "aclSetAclOpExecutorRepeatable"]);
    refused(
        &table,
        call!(table, aclnnAdd(null_mut(), 0, null_mut(), null_mut())),
        561_103,
        &["executor: is NULL"],
    );
}

#[test]
fn a_repeatable_executor_takes_new_addresses() {
    let table = machine(1);
    let sum = Sum::new(&table);
    let executor = sum.plan(&table);
    ok(&table, call!(table, aclSetAclOpExecutorRepeatable(executor)));
    ok(&table, call!(table, aclnnAdd(null_mut(), 0, executor, null_mut())));
    let (other, target) = (upload(&table, &[100f32, 200.0]), upload(&table, &[0f32; 2]));
    ok(&table, call!(table, aclSetTensorAddr(executor, 1, sum.b, other)));
    ok(&table, call!(table, aclSetOutputTensorAddr(executor, 0, sum.out, target)));
    ok(&table, call!(table, aclnnAdd(null_mut(), 0, executor, null_mut())));
    ok(&table, call!(table, aclSetInputTensorAddr(executor, 0, sum.a, other)));
    ok(&table, call!(table, aclrtSynchronizeStream(null_mut())));
    assert_eq!(download::<f32>(&table, sum.out_address, 2), [11.0, 22.0]);
    assert_eq!(download::<f32>(&table, target, 2), [101.0, 202.0]);
    ok(&table, call!(table, aclnnAdd(null_mut(), 0, executor, null_mut())));
    ok(&table, call!(table, aclrtSynchronizeStream(null_mut())));
    assert_eq!(download::<f32>(&table, target, 2), [200.0, 400.0]);
    let code = call!(table, aclSetInputTensorAddr(executor, 2, sum.a, other));
    refused(&table, code, 161_002, &["no tensor has index 2"]);
    ok(&table, call!(table, aclDestroyAclOpExecutor(executor)));
    let code = call!(table, aclnnAdd(null_mut(), 0, executor, null_mut()));
    refused(&table, code, 161_002, &["expected a live aclOpExecutor"]);
}

#[test]
fn a_repeatable_executor_finds_that_memory_has_gone_or_the_card_is_another() {
    let table = machine(2);
    let sum = Sum::new(&table);
    let executor = sum.plan(&table);
    ok(&table, call!(table, aclSetAclOpExecutorRepeatable(executor)));
    let run = || call!(table, aclnnAdd(null_mut(), 0, executor, null_mut()));
    let unused = upload(&table, &[0f32; 2]);
    for _ in 0..3 {
        ok(&table, run());
    }
    ok(&table, call!(table, aclrtFree(unused)));
    ok(&table, run());
    ok(&table, run());
    ok(&table, call!(table, aclrtSynchronizeStream(null_mut())));
    assert_eq!(download::<f32>(&table, sum.out_address, 2), [11.0, 22.0]);
    ok(&table, call!(table, aclrtSetDevice(1)));
    refused(&table, run(), 361_001, &["expected memory of card 1"]);
    ok(&table, call!(table, aclrtSetDevice(0)));
    ok(&table, run());
    ok(&table, call!(table, aclrtSynchronizeStream(null_mut())));
    ok(&table, call!(table, aclrtFree(sum.out_address)));
    assert_ne!(run(), 0, "the output is gone");
    let text = message(&table);
    assert!(text.contains("tensor 2"), "{text}");
}

#[test]
fn an_executor_belongs_to_its_operator() {
    let table = machine(1);
    let executor = Sum::new(&table).plan(&table);
    let code = call!(table, aclnnMul(null_mut(), 0, executor, null_mut()));
    refused(&table, code, 161_002, &["expected one of aclnnMul, found one of aclnnAdd"]);
}

#[test]
fn strided_tensors_need_a_workspace_and_cannot_be_repeated_into() {
    let table = machine(1);
    let transposed = [1i64, 2];
    let source = tensor(&table, F32, &[2, 2], upload(&table, &[1f32, 2.0, 3.0, 4.0]));
    let address = upload(&table, &[0f32; 4]);
    let target = strided(&table, F32, &[2, 2], transposed.as_ptr(), &[4], address);
    let plan = || {
        let (mut size, mut executor) = (0, null_mut());
        ok(&table, call!(table, aclnnExpGetWorkspaceSize(source, target, &raw mut size, &raw mut executor)));
        (size, executor)
    };
    let (size, executor) = plan();
    assert_eq!(size, 512, "16 bytes, rounded up");
    let code = call!(table, aclSetAclOpExecutorRepeatable(executor));
    refused(&table, code, 161_002, &["strided output"]);
    let code = call!(table, aclnnExp(null_mut(), 0, executor, null_mut()));
    refused(&table, code, 161_002, &["workspace: expected 512 bytes of device memory, found 0 bytes"]);
    let (size, executor) = plan();
    let workspace = upload(&table, &[0u8; 512]);
    ok(&table, call!(table, aclnnExp(workspace, size, executor, null_mut())));
    ok(&table, call!(table, aclrtSynchronizeStream(null_mut())));
    let found = download::<f32>(&table, address, 4);
    let expected = [1f32, 3.0, 2.0, 4.0].map(f32::exp);
    assert!(found.iter().zip(&expected).all(|(x, y)| (x - y).abs() < 1e-4), "{found:?}");
}

#[test]
fn refusals_of_the_first_phase_reach_the_recent_message() {
    let table = machine(1);
    let sum = Sum::new(&table);
    let (mut size, mut executor) = (0u64, null_mut());
    let code = call!(
        table,
        aclnnAddGetWorkspaceSize(null(), sum.b, sum.one, sum.out, &raw mut size, &raw mut executor)
    );
    refused(&table, code, 161_001, &["aclnnAddGetWorkspaceSize", "aclnnAdd: self: is NULL"]);
    let code =
        call!(table, aclnnAddGetWorkspaceSize(sum.a, sum.b, sum.one, sum.out, null_mut(), &raw mut executor));
    refused(&table, code, 161_001, &["workspaceSize: is NULL"]);
    let long = tensor(&table, F32, &[3], upload(&table, &[0f32; 3]));
    let code = call!(
        table,
        aclnnAddGetWorkspaceSize(sum.a, long, sum.one, sum.out, &raw mut size, &raw mut executor)
    );
    refused(&table, code, 161_002, &["other: [3] does not broadcast with [2] of self"]);
    let scalar = sum.one.cast::<aclTensor>();
    let code = call!(
        table,
        aclnnAddGetWorkspaceSize(scalar, sum.b, sum.one, sum.out, &raw mut size, &raw mut executor)
    );
    refused(&table, code, 161_002, &["self_: expected aclTensor", "aclScalar"]);
}

#[test]
fn destroyed_objects_are_recognised() {
    let table = machine(1);
    let sum = Sum::new(&table);
    ok(&table, call!(table, aclDestroyTensor(sum.a)));
    refused(&table, call!(table, aclDestroyTensor(sum.a)), 161_002, &["no live object"]);
    ok(&table, call!(table, aclDestroyTensor(null())));
    refused(
        &table,
        call!(table, aclDestroyScalar(sum.b.cast())),
        161_002,
        &["expected aclScalar", "aclTensor"],
    );
    let members = [sum.b.cast_const(), sum.out.cast_const()];
    let list = call!(table, aclCreateTensorList(members.as_ptr(), 2));
    let mut len = 0;
    ok(&table, call!(table, aclGetTensorListSize(list, &raw mut len)));
    assert_eq!(len, 2);
    ok(&table, call!(table, aclDestroyTensorList(list)));
    refused(&table, call!(table, aclDestroyTensor(sum.b)), 161_002, &["no live object"]);
}

#[test]
fn tensors_may_go_before_the_second_phase_and_memory_may_not() {
    let table = machine(1);
    let sum = Sum::new(&table);
    let executor = sum.plan(&table);
    ok(&table, call!(table, aclDestroyTensor(sum.a)));
    ok(&table, call!(table, aclnnAdd(null_mut(), 0, executor, null_mut())));
    ok(&table, call!(table, aclrtSynchronizeStream(null_mut())));
    assert_eq!(download::<f32>(&table, sum.out_address, 2), [11.0, 22.0]);

    let sum = Sum::new(&table);
    let executor = sum.plan(&table);
    ok(&table, call!(table, aclrtFree(sum.out_address)));
    let code = call!(table, aclnnAdd(null_mut(), 0, executor, null_mut()));
    refused(&table, code, 361_001, &["tensor 2"]);
}

#[test]
fn tensors_that_leave_their_allocation_or_card_are_refused() {
    let table = machine(2);
    let sum = Sum::new(&table);
    let (mut size, mut executor) = (0, null_mut());
    // The description exceeds the two floats of the allocation.
    let long = tensor(&table, F32, &[64], sum.out_address);
    ok(&table, call!(table, aclnnExpGetWorkspaceSize(long, long, &raw mut size, &raw mut executor)));
    refused(&table, call!(table, aclnnExp(null_mut(), 0, executor, null_mut())), 361_001, &["tensor 0"]);

    ok(&table, call!(table, aclrtSetDevice(1)));
    let elsewhere = tensor(&table, F32, &[2], upload(&table, &[0f32; 2]));
    let code = call!(table, aclnnExpGetWorkspaceSize(sum.a, elsewhere, &raw mut size, &raw mut executor));
    ok(&table, code);
    let code = call!(table, aclnnExp(null_mut(), 0, executor, null_mut()));
    refused(
        &table,
        code,
        361_001,
        &["tensor 0: expected memory of card 1, where the stream is, found memory of card 0"],
    );

    let odd = tensor(&table, F32, &[1], upload(&table, &[0f32; 2]).wrapping_byte_add(2));
    ok(&table, call!(table, aclnnExpGetWorkspaceSize(odd, odd, &raw mut size, &raw mut executor)));
    let code = call!(table, aclnnExp(null_mut(), 0, executor, null_mut()));
    refused(&table, code, 161_002, &["a multiple of 4 bytes for FLOAT"]);
}

#[test]
fn what_only_the_data_shows_fails_the_stream_with_its_message() {
    let table = machine(1);
    let weight = tensor(&table, F32, &[3, 2], upload(&table, &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]));
    let ids = tensor(&table, aclDataType::ACL_INT32, &[2], upload(&table, &[2i32, 3]));
    let out = tensor(&table, F32, &[2, 2], upload(&table, &[0f32; 4]));
    let (mut size, mut executor) = (0, null_mut());
    ok(
        &table,
        call!(table, aclnnEmbeddingGetWorkspaceSize(weight, ids, out, &raw mut size, &raw mut executor)),
    );
    ok(&table, call!(table, aclnnEmbedding(null_mut(), 0, executor, null_mut())));
    let code = call!(table, aclrtSynchronizeStream(null_mut()));
    refused(&table, code, 507_015, &["aclnnEmbedding: indices: index 3 at position 1 is outside 0..3"]);
}

#[test]
fn getters_give_back_what_a_tensor_was_made_of() {
    let table = machine(1);
    let (dims, strides, storage) = ([2i64, 3], [1i64, 2], [9i64]);
    let address = upload(&table, &[f16::ZERO; 9]);
    let dtype = aclDataType::ACL_FLOAT16;
    let nd = aclFormat::ACL_FORMAT_ND;
    let made = call!(
        table,
        aclCreateTensor(dims.as_ptr(), 2, dtype, strides.as_ptr(), 3, nd, storage.as_ptr(), 1, address)
    );
    let read = |getter: unsafe extern "C" fn(*const aclTensor, *mut *mut i64, *mut u64) -> aclnnStatus| {
        let (mut values, mut count) = (null_mut(), 0u64);
        // SAFETY: valid pointers and a live tensor.
        ok(&table, unsafe { getter(made, &raw mut values, &raw mut count) });
        // SAFETY: the library returned an array of `count` values.
        unsafe { std::slice::from_raw_parts(values, count as usize) }.to_vec()
    };
    assert_eq!(read(table.aclGetViewShape), dims);
    assert_eq!(read(table.aclGetViewStrides), strides);
    assert_eq!(read(table.aclGetStorageShape), storage);
    let (mut offset, mut format, mut found, mut data) = (0, aclFormat(0), aclDataType(0), null_mut());
    ok(&table, call!(table, aclGetViewOffset(made, &raw mut offset)));
    ok(&table, call!(table, aclGetFormat(made, &raw mut format)));
    ok(&table, call!(table, aclGetDataType(made, &raw mut found)));
    ok(&table, call!(table, aclSetRawTensorAddr(made, address.wrapping_byte_add(64))));
    ok(&table, call!(table, aclGetRawTensorAddr(made, &raw mut data)));
    assert_eq!((offset, format.0, found.0, data), (3, 2, 1, address.wrapping_byte_add(64)));
    let negative = [-1i64];
    let made = call!(
        table,
        aclCreateTensor(negative.as_ptr(), 1, dtype, null(), 0, nd, storage.as_ptr(), 1, address)
    );
    assert!(made.is_null() && message(&table).contains("dims of at least 0"));
}

#[test]
fn arrays_and_scalars_copy_their_values() {
    let table = machine(1);
    let mut values = vec![1i64, 2, 3];
    let array = call!(table, aclCreateIntArray(values.as_ptr(), 3));
    values.clear();
    let mut len = 0;
    ok(&table, call!(table, aclGetIntArraySize(array, &raw mut len)));
    assert_eq!(len, 3);
    ok(&table, call!(table, aclDestroyIntArray(array)));
    refused(
        &table,
        call!(table, aclGetIntArraySize(array, &raw mut len)),
        161_002,
        &["expected aclIntArray"],
    );
    let (floats, flags) = ([1f32, 2.0], [true, false, true]);
    let array = call!(table, aclCreateFloatArray(floats.as_ptr(), 2));
    ok(&table, call!(table, aclGetFloatArraySize(array, &raw mut len)));
    assert_eq!(len, 2);
    let array = call!(table, aclCreateBoolArray(flags.as_ptr(), 3));
    ok(&table, call!(table, aclGetBoolArraySize(array, &raw mut len)));
    assert_eq!(len, 3);
    assert!(call!(table, aclCreateScalar(null_mut(), F32)).is_null());
    assert!(message(&table).contains("value: is NULL"));
}

#[test]
fn scalars_are_read_as_their_type() {
    fn product<T: Copy>(table: &Table, mut factor: T, dtype: aclDataType) -> f32 {
        let (address, target) = (upload(table, &[2f32]), upload(table, &[0f32]));
        let (x, out) = (tensor(table, F32, &[1], address), tensor(table, F32, &[1], target));
        let factor = call!(table, aclCreateScalar((&raw mut factor).cast(), dtype));
        let (mut size, mut executor) = (0, null_mut());
        ok(table, call!(table, aclnnMulsGetWorkspaceSize(x, factor, out, &raw mut size, &raw mut executor)));
        ok(table, call!(table, aclnnMuls(null_mut(), 0, executor, null_mut())));
        ok(table, call!(table, aclrtSynchronizeStream(null_mut())));
        download(table, target, 1)[0]
    }
    let table = machine(1);
    assert_eq!(product(&table, 1.5f32, F32), 3.0);
    assert_eq!(product(&table, -1.5f64, aclDataType::ACL_DOUBLE), -3.0);
    assert_eq!(product(&table, f16::from_f32(0.25), aclDataType::ACL_FLOAT16), 0.5);
    assert_eq!(product(&table, bf16::from_f32(-8.0), aclDataType::ACL_BF16), -16.0);
    assert_eq!(product(&table, -3i8, aclDataType::ACL_INT8), -6.0);
    assert_eq!(product(&table, -3i32, aclDataType::ACL_INT32), -6.0);
    assert_eq!(product(&table, 250u8, aclDataType::ACL_UINT8), 500.0);
    assert_eq!(product(&table, true, aclDataType::ACL_BOOL), 2.0);
}

#[test]
fn members_of_a_list_take_new_addresses() {
    let table = machine(1);
    let members = [
        tensor(&table, F32, &[1], upload(&table, &[1f32])).cast_const(),
        tensor(&table, F32, &[1], upload(&table, &[2f32])).cast_const(),
    ];
    let list = call!(table, aclCreateTensorList(members.as_ptr(), 2));
    let target = upload(&table, &[0f32; 2]);
    let out = tensor(&table, F32, &[2], target);
    let (mut size, mut executor) = (0, null_mut());
    ok(&table, call!(table, aclnnCatGetWorkspaceSize(list, 0, out, &raw mut size, &raw mut executor)));
    ok(&table, call!(table, aclSetAclOpExecutorRepeatable(executor)));
    ok(&table, call!(table, aclSetDynamicInputTensorAddr(executor, 0, 1, list, upload(&table, &[7f32]))));
    ok(&table, call!(table, aclnnCat(null_mut(), 0, executor, null_mut())));
    ok(&table, call!(table, aclrtSynchronizeStream(null_mut())));
    assert_eq!(download::<f32>(&table, target, 2), [1.0, 7.0]);
    let code = call!(table, aclSetDynamicInputTensorAddr(executor, 0, 2, list, target));
    refused(&table, code, 161_002, &["no tensor has index 0, place 2"]);
}

#[test]
fn a_product_on_a_stream_of_its_own_with_a_permuted_copy_after_it() {
    let table = machine(1);
    let mut stream = null_mut();
    ok(&table, call!(table, aclrtCreateStream(&raw mut stream)));
    let half = |values: &[f32]| values.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>();
    let dtype = aclDataType::ACL_FLOAT16;
    let a = tensor(&table, dtype, &[2, 3], upload(&table, &half(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])));
    // A transpose, as in linear layers.
    let transposed = [1i64, 3];
    let weight = upload(&table, &half(&[1.0, 0.0, 1.0, 0.0, 1.0, 0.0]));
    let b = strided(&table, dtype, &[3, 2], transposed.as_ptr(), &[2, 3], weight);
    let product = upload(&table, &half(&[0.0; 4]));
    let c = tensor(&table, dtype, &[2, 2], product);
    let (mut size, mut executor) = (0, null_mut());
    ok(&table, call!(table, aclnnMatmulGetWorkspaceSize(a, b, c, 0, &raw mut size, &raw mut executor)));
    let workspace = upload(&table, &vec![0u8; size as usize]);
    ok(&table, call!(table, aclnnMatmul(workspace, size, executor, stream)));
    let order = [1i64, 0];
    let dims = call!(table, aclCreateIntArray(order.as_ptr(), 2));
    let flipped = upload(&table, &half(&[0.0; 4]));
    let d = tensor(&table, dtype, &[2, 2], flipped);
    ok(&table, call!(table, aclnnPermuteGetWorkspaceSize(c, dims, d, &raw mut size, &raw mut executor)));
    ok(&table, call!(table, aclnnPermute(null_mut(), size, executor, stream)));
    ok(&table, call!(table, aclrtSynchronizeStream(stream)));
    assert_eq!(download::<f16>(&table, product, 4), half(&[4.0, 2.0, 10.0, 5.0])[..]);
    assert_eq!(download::<f16>(&table, flipped, 4), half(&[4.0, 10.0, 2.0, 5.0])[..]);
}

#[test]
fn a_shape_that_the_values_decide_is_the_tensors_once_the_stream_is_synchronized() {
    use crate::abi::dropin;

    let emulator = Emulator::new(Config::with_cards(1)).unwrap();
    let table = emulator.table();
    ok(&table, call!(table, aclInit(null())));
    ok(&table, call!(table, aclrtSetDevice(0)));
    let x = tensor(&table, F32, &[2, 3], upload(&table, &[0f32, 5.0, 0.0, f32::NAN, 0.0, -1.0]));
    let room = upload(&table, &[7i64; 12]);
    let out = tensor(&table, aclDataType::ACL_INT64, &[6, 2], room);
    let dims = || {
        let (mut values, mut count) = (null_mut(), 0u64);
        ok(&table, call!(table, aclGetViewShape(out, &raw mut values, &raw mut count)));
        // SAFETY: the library returned an array of `count` values.
        unsafe { std::slice::from_raw_parts(values, count as usize) }.to_vec()
    };
    let (mut size, mut executor) = (0, null_mut());
    // SAFETY: live tensors of this machine and valid pointers.
    let planned =
        unsafe { dropin::aclnnNonzeroGetWorkspaceSize(&emulator, x, out, &raw mut size, &raw mut executor) };
    assert_eq!((planned, size, dims()), (Some(0), 0, vec![6, 2]));
    // SAFETY: an executor of this operator, which needs no workspace.
    let run = unsafe { dropin::aclnnNonzero(&emulator, null_mut(), 0, executor, null_mut()) };
    assert_eq!(run, Some(0));
    ok(&table, call!(table, aclrtSynchronizeStream(null_mut())));
    assert_eq!(dims(), [3, 2]);
    assert_eq!(download::<i64>(&table, room, 12), [0, 1, 1, 0, 1, 2, 7, 7, 7, 7, 7, 7]);
}
