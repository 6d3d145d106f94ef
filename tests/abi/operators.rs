//! Two-phase operators: planning, running, running again, refusals.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use ascend_tp_sys::{Table, aclDataType, aclFormat, aclOpExecutor, aclTensor};

use super::common::operators::scalar;
use super::common::{Card, call, message, ok};
use super::runtime::leave;

/// Null strides stand for contiguous rows.
fn tensor(table: &Table, dims: &[i64], address: *mut c_void) -> *mut aclTensor {
    let (n, dtype, format) = (dims.len() as u64, aclDataType::ACL_FLOAT, aclFormat::ACL_FORMAT_ND);
    let made =
        call!(table, aclCreateTensor(dims.as_ptr(), n, dtype, null(), 0, format, dims.as_ptr(), n, address));
    assert!(!made.is_null(), "{}", message(table));
    made
}

fn floats(card: &Card<'_>, address: *const c_void, n: usize) -> Vec<f32> {
    let bytes = card.download(address, n * 4);
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn upload(card: &Card<'_>, values: &[f32]) -> *mut c_void {
    card.upload(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
}

fn workspace(card: &Card<'_>, bytes: u64) -> *mut c_void {
    if bytes == 0 { null_mut() } else { card.malloc(bytes as usize) }
}

pub(crate) fn an_operator(table: &Table, _: usize) {
    let card = Card::new(table, 0);
    let (a, b, sum) =
        (upload(&card, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), upload(&card, &[10.0, 20.0, 30.0]), card.malloc(24));
    let (x, y, out) = (tensor(table, &[2, 3], a), tensor(table, &[3], b), tensor(table, &[2, 3], sum));
    let alpha = scalar(table, 2.0);
    let (mut bytes, mut executor): (u64, *mut aclOpExecutor) = (0, null_mut());
    ok(table, call!(table, aclnnAddGetWorkspaceSize(x, y, alpha, out, &raw mut bytes, &raw mut executor)));
    let space = workspace(&card, bytes);
    ok(table, call!(table, aclnnAdd(space, bytes, executor, card.stream)));
    card.synchronize();
    assert_eq!(floats(&card, sum, 6), [21.0, 42.0, 63.0, 24.0, 45.0, 66.0]);
    for tensor in [x, y, out] {
        ok(table, call!(table, aclDestroyTensor(tensor)));
    }
    ok(table, call!(table, aclDestroyScalar(alpha)));
    for address in [a, b, sum, space].into_iter().filter(|address| !address.is_null()) {
        ok(table, call!(table, aclrtFree(address)));
    }
    leave(&card);
}

pub(crate) fn a_repeatable_operator(table: &Table, _: usize) {
    let card = Card::new(table, 0);
    let (first, second) = (upload(&card, &[1.0, 2.0]), upload(&card, &[5.0, 6.0]));
    let target = card.malloc(8);
    let (x, out, factor) = (tensor(table, &[2], first), tensor(table, &[2], target), scalar(table, 3.0));
    let (mut bytes, mut executor): (u64, *mut aclOpExecutor) = (0, null_mut());
    ok(table, call!(table, aclnnMulsGetWorkspaceSize(x, factor, out, &raw mut bytes, &raw mut executor)));
    ok(table, call!(table, aclSetAclOpExecutorRepeatable(executor)));
    let space = workspace(&card, bytes);
    ok(table, call!(table, aclnnMuls(space, bytes, executor, card.stream)));
    card.synchronize();
    assert_eq!(floats(&card, target, 2), [3.0, 6.0]);
    ok(table, call!(table, aclSetInputTensorAddr(executor, 0, x, second)));
    ok(table, call!(table, aclnnMuls(space, bytes, executor, card.stream)));
    card.synchronize();
    assert_eq!(floats(&card, target, 2), [15.0, 18.0]);
    ok(table, call!(table, aclDestroyAclOpExecutor(executor)));
    for tensor in [x, out] {
        ok(table, call!(table, aclDestroyTensor(tensor)));
    }
    ok(table, call!(table, aclDestroyScalar(factor)));
    for address in [first, second, target, space].into_iter().filter(|address| !address.is_null()) {
        ok(table, call!(table, aclrtFree(address)));
    }
    leave(&card);
}

pub(crate) fn refused_operators(table: &Table, _: usize) {
    let card = Card::new(table, 0);
    let address = card.malloc(64);
    let (x, out) = (tensor(table, &[2, 3], address), tensor(table, &[3, 2], address));
    let (mut bytes, mut executor): (u64, *mut aclOpExecutor) = (0, null_mut());
    let no_pointer =
        call!(table, aclnnMulsGetWorkspaceSize(null(), null(), out, &raw mut bytes, &raw mut executor));
    assert_eq!(no_pointer, 161_001, "{}", message(table));
    let factor = scalar(table, 1.0);
    let shapes = call!(table, aclnnMulsGetWorkspaceSize(x, factor, out, &raw mut bytes, &raw mut executor));
    assert_eq!(shapes, 161_002, "{}", message(table));
    for tensor in [x, out] {
        ok(table, call!(table, aclDestroyTensor(tensor)));
    }
    ok(table, call!(table, aclDestroyScalar(factor)));
    ok(table, call!(table, aclrtFree(address)));
    leave(&card);
}
