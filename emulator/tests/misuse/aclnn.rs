//! Misuse of aclnn: tensors, types, shapes, strides, alignment, workspaces, executors.

use std::ptr::null_mut;

use ascend_tp_sys::{aclDataType, aclFormat};

use super::Case;
use super::bench::{F32, c, contiguous, plan};

const BF16: aclDataType = aclDataType::ACL_BF16;
const I8: aclDataType = aclDataType::ACL_INT8;
const I64: aclDataType = aclDataType::ACL_INT64;

pub(crate) const CASES: &[Case] = &[
    ("an operator without its input", |b| {
        plan!(b, aclnnSiluGetWorkspaceSize(null_mut(), b.tensor(F32, &[4])))
    }),
    ("an operator on a type it does not take", |b| {
        plan!(b, aclnnSiluGetWorkspaceSize(b.tensor(I8, &[4]), b.tensor(I8, &[4])))
    }),
    ("an output of another shape", |b| {
        plan!(b, aclnnSiluGetWorkspaceSize(b.tensor(F32, &[4]), b.tensor(F32, &[5])))
    }),
    ("a tensor of nine dims", |b| {
        plan!(b, aclnnSiluGetWorkspaceSize(b.tensor(F32, &[1; 9]), b.tensor(F32, &[1; 9])))
    }),
    ("a tensor of a negative dim", |b| {
        let made = b.tensor(F32, &[-4]);
        assert!(made.is_null());
        161_002
    }),
    ("a tensor of a format the operator does not take", |b| {
        let odd = b.formatted(F32, &[4], &[1], &[4], b.at(0), aclFormat::ACL_FORMAT_NC1HWC0);
        plan!(b, aclnnSiluGetWorkspaceSize(odd, b.tensor(F32, &[4])))
    }),
    ("a tensor of negative strides", |b| {
        let back = b.tensor_at(F32, &[4], &[-1], &[4], b.at(0));
        plan!(b, aclnnSiluGetWorkspaceSize(back, b.tensor(F32, &[4])))
    }),
    ("an output whose elements overlap", |b| {
        let folded = b.tensor_at(F32, &[4], &[0], &[4], b.at(0));
        plan!(b, aclnnSiluGetWorkspaceSize(b.tensor(F32, &[4]), folded))
    }),
    ("a tensor without memory", |b| {
        let nowhere = b.tensor_at(F32, &[4], &[1], &[4], null_mut());
        plan!(b, aclnnSiluGetWorkspaceSize(nowhere, b.tensor(F32, &[4])))
    }),
    ("an odd dim to be halved", |b| {
        plan!(b, aclnnSwiGluGetWorkspaceSize(b.tensor(F32, &[2, 5]), 1, b.tensor(F32, &[2, 2])))
    }),
    ("a dim that does not exist", |b| {
        plan!(b, aclnnSoftmaxGetWorkspaceSize(b.tensor(F32, &[2, 4]), 2, b.tensor(F32, &[2, 4])))
    }),
    ("shapes that do not broadcast", |b| {
        let (x, y, out) = (b.tensor(F32, &[4]), b.tensor(F32, &[3]), b.tensor(F32, &[4]));
        plan!(b, aclnnAddGetWorkspaceSize(x, y, b.one(), out))
    }),
    ("a sum without its scalar", |b| {
        let (x, y, out) = (b.tensor(F32, &[4]), b.tensor(F32, &[4]), b.tensor(F32, &[4]));
        plan!(b, aclnnAddGetWorkspaceSize(x, y, null_mut(), out))
    }),
    ("a product of unequal inner dims", |b| {
        let (x, y, out) = (b.tensor(F32, &[2, 3]), b.tensor(F32, &[4, 2]), b.tensor(F32, &[2, 2]));
        plan!(b, aclnnMatmulGetWorkspaceSize(x, y, out, 0))
    }),
    ("a product of mixed types", |b| {
        let (x, y, out) =
            (b.tensor(BF16, &[2, 3]), b.tensor(aclDataType::ACL_INT32, &[3, 2]), b.tensor(F32, &[2, 2]));
        plan!(b, aclnnMatmulGetWorkspaceSize(x, y, out, 0))
    }),
    ("a cube mode that does not exist", |b| {
        let (x, y, out) = (b.tensor(F32, &[2, 3]), b.tensor(F32, &[3, 2]), b.tensor(F32, &[2, 2]));
        plan!(b, aclnnMatmulGetWorkspaceSize(x, y, out, 9))
    }),
    ("rows of single precision to be quantised", |b| {
        let (x, bytes, scales) = (b.tensor(F32, &[2, 4]), b.tensor(I8, &[2, 4]), b.tensor(F32, &[2]));
        plan!(b, aclnnDynamicQuantGetWorkspaceSize(x, null_mut(), bytes, scales))
    }),
    ("a quantised product whose weight is the other way round", |b| {
        let (x, weight, scale) = (b.tensor(I8, &[2, 3]), b.tensor(I8, &[4, 3]), b.tensor(F32, &[4]));
        let (tokens, out, none) = (b.tensor(F32, &[2]), b.tensor(BF16, &[2, 4]), null_mut());
        plan!(b, aclnnQuantMatmulV4GetWorkspaceSize(x, weight, scale, none, tokens, none, false, false, out))
    }),
    ("rows looked up by fractions", |b| {
        let (table, index, out) = (b.tensor(F32, &[4, 2]), b.tensor(F32, &[3]), b.tensor(F32, &[3, 2]));
        plan!(b, aclnnEmbeddingGetWorkspaceSize(table, index, out))
    }),
    ("a row that does not exist", |b| {
        let nine = b.cards[0].upload(&9_i64.to_le_bytes());
        let index = b.tensor_at(I64, &[1], &[1], &[1], nine);
        let out = b.tensor_at(F32, &[1, 2], &[2, 1], &[1, 2], b.at(512));
        plan!(b, aclnnEmbeddingGetWorkspaceSize(b.tensor(F32, &[4, 2]), index, out));
        let (bytes, executor) = *b.planned.borrow();
        let workspace = if bytes == 0 { null_mut() } else { b.cards[0].malloc(bytes as usize) };
        c!(b, aclnnEmbedding(workspace, bytes, executor, b.stream()));
        c!(b, aclrtSynchronizeStream(b.stream()))
    }),
    ("a first phase with nowhere to put its executor", |b| {
        let (x, mut bytes) = (b.tensor(F32, &[4]), 0);
        c!(b, aclnnSiluGetWorkspaceSize(x, x, &raw mut bytes, null_mut()))
    }),
    ("a tensor that is destroyed", |b| {
        let x = b.tensor(F32, &[4]);
        c!(b, aclDestroyTensor(x));
        plan!(b, aclnnSiluGetWorkspaceSize(x, b.tensor(F32, &[4])))
    }),
    ("a tensor destroyed twice", |b| {
        let x = b.tensor(F32, &[4]);
        c!(b, aclDestroyTensor(x));
        c!(b, aclDestroyTensor(x))
    }),
    ("a tensor that is a scalar", |b| {
        plan!(b, aclnnSiluGetWorkspaceSize(b.one().cast(), b.tensor(F32, &[4])))
    }),
    ("a run without an executor", |b| c!(b, aclnnSilu(null_mut(), 0, null_mut(), b.stream()))),
    ("an executor run twice", |b| {
        let executor = b.silu();
        c!(b, aclnnSilu(null_mut(), 0, executor, b.stream()));
        c!(b, aclnnSilu(null_mut(), 0, executor, b.stream()))
    }),
    ("an executor of another operator", |b| c!(b, aclnnGelu(null_mut(), 0, b.silu(), b.stream()))),
    ("a run on another context's stream", |b| c!(b, aclnnSilu(null_mut(), 0, b.silu(), b.cards[1].stream))),
    ("a run on a destroyed stream", |b| {
        let executor = b.silu();
        c!(b, aclrtDestroyStream(b.stream()));
        c!(b, aclnnSilu(null_mut(), 0, executor, b.stream()))
    }),
    ("a run on an address that is not aligned", |b| {
        let (x, out) =
            (b.tensor_at(F32, &[4], &[1], &[4], b.at(2)), b.tensor_at(F32, &[4], &[1], &[4], b.at(512)));
        plan!(b, aclnnSiluGetWorkspaceSize(x, out));
        c!(b, aclnnSilu(null_mut(), 0, b.planned.borrow().1, b.stream()))
    }),
    ("a run on host memory", |b| {
        let mut host = [0_f32; 4];
        let x = b.tensor_at(F32, &[4], &[1], &[4], host.as_mut_ptr().cast());
        plan!(b, aclnnSiluGetWorkspaceSize(x, b.tensor(F32, &[4])));
        c!(b, aclnnSilu(null_mut(), 0, b.planned.borrow().1, b.stream()))
    }),
    ("a run on another card's memory", |b| {
        let x = b.tensor_at(F32, &[4], &[1], &[4], b.buffers[1]);
        plan!(b, aclnnSiluGetWorkspaceSize(x, b.tensor(F32, &[4])));
        c!(b, aclnnSilu(null_mut(), 0, b.planned.borrow().1, b.stream()))
    }),
    ("a run beyond its memory", |b| {
        let dims = [300];
        let x = b.tensor_at(F32, &dims, &contiguous(&dims), &dims, b.at(0));
        plan!(b, aclnnSiluGetWorkspaceSize(x, x));
        c!(b, aclnnSilu(null_mut(), 0, b.planned.borrow().1, b.stream()))
    }),
    ("a run on freed memory", |b| {
        let executor = b.silu();
        c!(b, aclrtFree(b.buffers[0]));
        c!(b, aclnnSilu(null_mut(), 0, executor, b.stream()))
    }),
    ("a scalar without a value", |b| {
        assert!(crate::common::call!(b.table, aclCreateScalar(null_mut(), F32)).is_null());
        161_001
    }),
    ("an executor destroyed after its run", |b| {
        let executor = b.silu();
        c!(b, aclnnSilu(null_mut(), 0, executor, b.stream()));
        c!(b, aclDestroyAclOpExecutor(executor))
    }),
    ("a configuration file", |b| c!(b, aclnnInit(c"ascend.json".as_ptr()))),
];
