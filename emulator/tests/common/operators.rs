//! aclnn operators on fp32 tensors by address and dims.

use std::ffi::c_void;
use std::ptr::null_mut;

use ascend_tp_sys::{
    HcclComm, HcclDataType, HcclReduceOp, Table, aclDataType, aclFormat, aclOpExecutor, aclScalar, aclTensor,
    aclnnStatus, aclrtStream,
};

use super::{Card, call, hccl_ok, message};

pub(crate) fn tensor(
    table: &Table,
    dtype: aclDataType,
    address: *mut c_void,
    dims: &[i64],
) -> *mut aclTensor {
    let mut strides = vec![1_i64; dims.len()];
    for dim in (1..dims.len()).rev() {
        strides[dim - 1] = strides[dim] * dims[dim];
    }
    let (rank, format) = (dims.len() as u64, aclFormat::ACL_FORMAT_ND);
    let made = call!(
        table,
        aclCreateTensor(
            dims.as_ptr(),
            rank,
            dtype,
            strides.as_ptr(),
            0,
            format,
            dims.as_ptr(),
            rank,
            address
        )
    );
    assert!(!made.is_null(), "{}", message(table));
    made
}

pub(crate) fn scalar(table: &Table, mut value: f32) -> *mut aclScalar {
    let made = call!(table, aclCreateScalar((&raw mut value).cast(), aclDataType::ACL_FLOAT));
    assert!(!made.is_null(), "{}", message(table));
    made
}

pub(crate) struct Planned {
    pub(crate) executor: *mut aclOpExecutor,
    pub(crate) workspace: *mut c_void,
    pub(crate) workspace_bytes: u64,
}

pub(crate) fn plan(
    card: &Card<'_>,
    first: impl FnOnce(*mut u64, *mut *mut aclOpExecutor) -> aclnnStatus,
) -> Planned {
    let (mut bytes, mut executor) = (0_u64, null_mut());
    let status = first(&raw mut bytes, &raw mut executor);
    assert_eq!(status, 0, "{}", message(card.table));
    let workspace = if bytes == 0 { null_mut() } else { card.malloc(bytes as usize) };
    Planned { executor, workspace, workspace_bytes: bytes }
}

fn outcome(table: &Table, status: aclnnStatus) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{status}: {}", message(table))) }
}

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
    let planned = plan(card, |bytes, executor| {
        call!(table, aclnnAddGetWorkspaceSize(x, y, alpha, out, bytes, executor))
    });
    let Planned { executor, workspace, workspace_bytes } = planned;
    outcome(table, call!(table, aclnnAdd(workspace, workspace_bytes, executor, stream)))
}

/// Looks up one row of an fp32 table of two rows and two columns by an int64 index.
pub(crate) fn embedding(
    card: &Card<'_>,
    weight: *mut c_void,
    index: *mut c_void,
    out: *mut c_void,
) -> Result<(), String> {
    let table = card.table;
    let weight = tensor(table, aclDataType::ACL_FLOAT, weight, &[2, 2]);
    let index = tensor(table, aclDataType::ACL_INT64, index, &[1]);
    let out = tensor(table, aclDataType::ACL_FLOAT, out, &[1, 2]);
    let planned = plan(card, |bytes, executor| {
        call!(table, aclnnEmbeddingGetWorkspaceSize(weight, index, out, bytes, executor))
    });
    let Planned { executor, workspace, workspace_bytes } = planned;
    outcome(table, call!(table, aclnnEmbedding(workspace, workspace_bytes, executor, card.stream)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    AllReduce,
    AllGather,
    ReduceScatter,
}

/// Number of ranks, rows of the left side, contracted dim and columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) world: i64,
    pub(crate) rows: i64,
    pub(crate) depth: i64,
    pub(crate) columns: i64,
}

impl Joined {
    pub(crate) const ALL: [Self; 3] = [Self::AllReduce, Self::AllGather, Self::ReduceScatter];

    /// Returns the rows of the left side, of the product, and of the result on one card.
    pub(crate) const fn rows(self, of: Sizes) -> [i64; 3] {
        match self {
            Self::AllReduce => [of.rows, of.rows, of.rows],
            Self::AllGather => [of.rows / of.world, of.rows, of.rows],
            Self::ReduceScatter => [of.rows, of.rows, of.rows / of.world],
        }
    }
}

pub(crate) fn group_name(table: &Table, comm: HcclComm) -> std::ffi::CString {
    let mut name = [0 as std::ffi::c_char; 128];
    hccl_ok(table, call!(table, HcclGetCommName(comm, name.as_mut_ptr())));
    // SAFETY: the function wrote a C string.
    unsafe { std::ffi::CStr::from_ptr(name.as_ptr()) }.to_owned()
}

/// Fuses a product of `x [rows,k]` and weights `w [n,k]`, read transposed, with an exchange; a
/// gather returns all rows of `x`. The error has status and message.
pub(crate) fn joined(
    card: &Card<'_>,
    group: &std::ffi::CStr,
    which: Joined,
    of: Sizes,
    dtype: aclDataType,
    [x, w, out, gathered]: [*mut c_void; 4],
) -> Result<(), String> {
    let table = card.table;
    card.enter();
    let [left, all, result] = which.rows(of);
    let x = tensor(table, dtype, x, &[left, of.depth]);
    let w = transposed(table, dtype, w, [of.depth, of.columns]);
    let out = tensor(table, dtype, out, &[result, of.columns]);
    let gathered = tensor(table, dtype, gathered, &[all, of.depth]);
    let (mut bytes, mut executor) = (0_u64, null_mut());
    let (bytes_out, executor_out) = (&raw mut bytes, &raw mut executor);
    let (group, sum, none) = (group.as_ptr(), c"sum".as_ptr(), std::ptr::null());
    let status = match which {
        Joined::AllReduce => call!(
            table,
            aclnnMatmulAllReduceGetWorkspaceSize(x, w, none, group, sum, 0, 1, out, bytes_out, executor_out)
        ),
        Joined::AllGather => call!(
            table,
            aclnnAllGatherMatmulGetWorkspaceSize(
                x,
                w,
                none,
                group,
                0,
                0,
                1,
                out,
                gathered,
                bytes_out,
                executor_out
            )
        ),
        Joined::ReduceScatter => call!(
            table,
            aclnnMatmulReduceScatterGetWorkspaceSize(
                x,
                w,
                none,
                group,
                sum,
                0,
                1,
                out,
                bytes_out,
                executor_out
            )
        ),
    };
    outcome(table, status)?;
    let workspace = if bytes == 0 { null_mut() } else { card.malloc(bytes as usize) };
    let status = match which {
        Joined::AllReduce => call!(table, aclnnMatmulAllReduce(workspace, bytes, executor, card.stream)),
        Joined::AllGather => call!(table, aclnnAllGatherMatmul(workspace, bytes, executor, card.stream)),
        Joined::ReduceScatter => {
            call!(table, aclnnMatmulReduceScatter(workspace, bytes, executor, card.stream))
        }
    };
    outcome(table, status)
}

/// Runs a separate product and collective; `between` is the buffer between them.
pub(crate) fn apart(
    card: &Card<'_>,
    comm: HcclComm,
    which: Joined,
    of: Sizes,
    dtype: aclDataType,
    [x, w, out, between]: [*mut c_void; 4],
) {
    let table = card.table;
    card.enter();
    let [left, all, result] = which.rows(of);
    let multiply = |x, out| {
        let (x, out) =
            (tensor(table, dtype, x, &[all, of.depth]), tensor(table, dtype, out, &[all, of.columns]));
        let w = transposed(table, dtype, w, [of.depth, of.columns]);
        let first =
            |bytes, executor| call!(table, aclnnMatmulGetWorkspaceSize(x, w, out, 0, bytes, executor));
        let Planned { executor, workspace, workspace_bytes } = plan(card, first);
        let status = call!(table, aclnnMatmul(workspace, workspace_bytes, executor, card.stream));
        assert_eq!(status, 0, "{}", message(table));
    };
    let moved = if dtype == aclDataType::ACL_FLOAT16 {
        HcclDataType::HCCL_DATA_TYPE_FP16
    } else {
        HcclDataType::HCCL_DATA_TYPE_BFP16
    };
    let (sum, count) = (HcclReduceOp::HCCL_REDUCE_SUM, (result * of.columns) as u64);
    hccl_ok(
        table,
        match which {
            Joined::AllReduce => {
                multiply(x, out);
                call!(table, HcclAllReduce(out, out, count, moved, sum, comm, card.stream))
            }
            Joined::AllGather => {
                let part = (left * of.depth) as u64;
                let code = call!(table, HcclAllGather(x, between, part, moved, comm, card.stream));
                multiply(between, out);
                code
            }
            Joined::ReduceScatter => {
                multiply(x, between);
                call!(table, HcclReduceScatter(between, out, count, moved, sum, comm, card.stream))
            }
        },
    );
}

/// Views rows stored as `[n,k]` as `[k,n]`.
fn transposed(table: &Table, dtype: aclDataType, address: *mut c_void, [k, n]: [i64; 2]) -> *mut aclTensor {
    let (dims, strides, stored) = ([k, n], [1, k], [n, k]);
    let format = aclFormat::ACL_FORMAT_ND;
    let made = call!(
        table,
        aclCreateTensor(dims.as_ptr(), 2, dtype, strides.as_ptr(), 0, format, stored.as_ptr(), 2, address)
    );
    assert!(!made.is_null(), "{}", message(table));
    made
}
