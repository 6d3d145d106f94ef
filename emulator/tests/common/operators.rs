//! aclnn operators as the tests enqueue them: fp32 tensors by address and dims, both phases in one call.

use std::ffi::c_void;
use std::ptr::null_mut;

use ascend_tp_sys::{Table, aclDataType, aclFormat, aclOpExecutor, aclScalar, aclTensor, aclnnStatus, aclrtStream};

use super::{Card, call, message};

/// A contiguous tensor of device memory.
pub(crate) fn tensor(table: &Table, dtype: aclDataType, address: *mut c_void, dims: &[i64]) -> *mut aclTensor {
    let mut strides = vec![1_i64; dims.len()];
    for dim in (1..dims.len()).rev() {
        strides[dim - 1] = strides[dim] * dims[dim];
    }
    let (rank, format) = (dims.len() as u64, aclFormat::ACL_FORMAT_ND);
    let made = call!(
        table,
        aclCreateTensor(dims.as_ptr(), rank, dtype, strides.as_ptr(), 0, format, dims.as_ptr(), rank, address)
    );
    assert!(!made.is_null(), "{}", message(table));
    made
}

/// An fp32 scalar.
pub(crate) fn scalar(table: &Table, mut value: f32) -> *mut aclScalar {
    let made = call!(table, aclCreateScalar((&raw mut value).cast(), aclDataType::ACL_FLOAT));
    assert!(!made.is_null(), "{}", message(table));
    made
}

/// What a planned operator needs to run.
pub(crate) struct Planned {
    pub(crate) executor: *mut aclOpExecutor,
    pub(crate) workspace: *mut c_void,
    pub(crate) workspace_bytes: u64,
}

/// Runs a first phase and allocates the workspace it asks for.
pub(crate) fn plan(card: &Card<'_>, first: impl FnOnce(*mut u64, *mut *mut aclOpExecutor) -> aclnnStatus) -> Planned {
    let (mut bytes, mut executor) = (0_u64, null_mut());
    let status = first(&raw mut bytes, &raw mut executor);
    assert_eq!(status, 0, "{}", message(card.table));
    let workspace = if bytes == 0 { null_mut() } else { card.malloc(bytes as usize) };
    Planned { executor, workspace, workspace_bytes: bytes }
}

fn outcome(table: &Table, status: aclnnStatus) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{status}: {}", message(table))) }
}

/// out = x + alpha * y, elementwise in fp32, on a stream.
pub(crate) fn add(
    card: &Card<'_>,
    stream: aclrtStream,
    [x, y, out]: [*mut c_void; 3],
    alpha: f32,
    count: i64,
) -> Result<(), String> {
    let table = card.table;
    let of = |address| tensor(table, aclDataType::ACL_FLOAT, address, &[count]);
    let (x, y, out, alpha) = (of(x), of(y), of(out), scalar(table, alpha));
    let planned =
        plan(card, |bytes, executor| call!(table, aclnnAddGetWorkspaceSize(x, y, alpha, out, bytes, executor)));
    let Planned { executor, workspace, workspace_bytes } = planned;
    outcome(table, call!(table, aclnnAdd(workspace, workspace_bytes, executor, stream)))
}

/// out = the rows of an fp32 table that int64 indices name, on the card's stream.
pub(crate) fn embedding(
    card: &Card<'_>,
    (weight, weight_dims): (*mut c_void, &[i64]),
    (index, index_dims): (*mut c_void, &[i64]),
    (out, out_dims): (*mut c_void, &[i64]),
) -> Result<(), String> {
    let table = card.table;
    let weight = tensor(table, aclDataType::ACL_FLOAT, weight, weight_dims);
    let index = tensor(table, aclDataType::ACL_INT64, index, index_dims);
    let out = tensor(table, aclDataType::ACL_FLOAT, out, out_dims);
    let planned =
        plan(card, |bytes, executor| call!(table, aclnnEmbeddingGetWorkspaceSize(weight, index, out, bytes, executor)));
    let Planned { executor, workspace, workspace_bytes } = planned;
    outcome(table, call!(table, aclnnEmbedding(workspace, workspace_bytes, executor, card.stream)))
}
