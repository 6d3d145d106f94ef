//! The part of the Ascend Transformer Boost library (ATB) that `torch_npu` calls for vLLM. ATB is a
//! C++ library: its exports have mangled names, its classes virtual function tables.
//!
//! Operations call aclnn operators on the context's stream. The layouts match ATB's public headers
//! (`atb/types.h`, `svector.h`, `operation.h`, `context.h`, `infer_op_params.h`).
#![expect(unsafe_code, reason = "functions called from C++, objects of C++")]

mod run;

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use ascend_tp_emulator::{Emulator, Table, dropin};
use ascend_tp_sys::{Library, aclDataType, aclFormat, aclrtStream};

use self::run::{OperationRun, cache_shapes, product_shapes, rotary_shapes};
use crate::export;
use crate::process::{self, Process};

const INVALID_PARAM: c_int = 1;
const INTERNAL_ERROR: c_int = 3;
const INVALID_TENSOR_NUM: c_int = 5;
const INVALID_TENSOR_DIM: c_int = 8;
const CANN_ERROR: c_int = 12;
const INVALID_WORKSPACE: c_int = 22;

/// Workspace of the aclnn operators; enough for a product.
const SHARE_OF_OPERATORS: u64 = 16 << 20;

type AtbOutcome<T = ()> = Result<T, (c_int, String)>;

/// `atb::TensorDesc`; only the first `rank` dims are valid.
#[repr(C)]
#[derive(Debug)]
struct TensorDescription {
    dtype: aclDataType,
    format: aclFormat,
    dims: [i64; 8],
    rank: u64,
}

/// `atb::AtbTensor`, with addresses on the card and the host.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct AtbTensor {
    description: TensorDescription,
    device: *mut c_void,
    host: *mut c_void,
    bytes: u64,
}

/// `atb::SVector<atb::Tensor>`: the elements are inline, unless `heap` is set.
#[repr(C)]
#[derive(Debug)]
struct TensorVector {
    capacity: usize,
    len: usize,
    inline: [AtbTensor; 65],
    heap: *const AtbTensor,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Pack {
    inputs: TensorVector,
    outputs: TensorVector,
}

impl AtbTensor {
    fn dims(&self) -> &[i64] {
        &self.description.dims[..usize::try_from(self.description.rank).map_or(8, |rank| rank.min(8))]
    }
}

impl TensorVector {
    fn get<const N: usize>(&self, what: &str) -> AtbOutcome<[&AtbTensor; N]> {
        if self.len != N || !self.heap.is_null() {
            return Err((INVALID_TENSOR_NUM, format!("expected {N} {what} tensors, found {}", self.len)));
        }
        Ok(std::array::from_fn(|i| &self.inline[i]))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperationKind {
    /// `q, k, cos, sin, lengths → q, k`: rotates the halves of each head.
    Rotary,
    /// Writes new rows into caches: `key, value, key cache, value cache, slots → the caches`.
    ReshapeAndCache,
    /// `x, weight, sum → sum`: `sum + op(x) op(weight)` in f32.
    Accumulate { transpose_x: bool, transpose_weight: bool },
}

/// An `atb::Operation`; C++ reads the first field.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Operation {
    functions: &'static OperationFunctions,
    kind: OperationKind,
}

/// An `atb::Context` with its stream.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct AtbContext {
    functions: &'static ContextFunctions,
    stream: aclrtStream,
}

/// A `std::string` with text from `malloc`.
#[repr(C)]
struct CppString {
    start: *mut c_char,
    len: usize,
    capacity: usize,
    unused: usize,
}

#[repr(C)]
struct EmptyVector([usize; 3]);

/// Virtual functions of `atb::Operation`; the first two are destructors.
#[repr(C)]
#[derive(Debug)]
struct OperationFunctions {
    destroy: unsafe extern "C" fn(*mut Operation),
    delete: unsafe extern "C" fn(*mut Operation),
    name: unsafe extern "C" fn(*const Operation) -> CppString,
    infer_shape: unsafe extern "C" fn(*const Operation, *const c_void, *mut c_void) -> c_int,
    inputs: unsafe extern "C" fn(*const Operation) -> u32,
    outputs: unsafe extern "C" fn(*const Operation) -> u32,
    setup: unsafe extern "C" fn(*mut Operation, *const Pack, *mut u64, *mut AtbContext) -> c_int,
    execute: unsafe extern "C" fn(*mut Operation, *const Pack, *mut u8, u64, *mut AtbContext) -> c_int,
}

static OPERATION: OperationFunctions = OperationFunctions {
    destroy: operation_destroy,
    delete: operation_delete,
    name: operation_name,
    infer_shape: operation_infer_shape,
    inputs: operation_inputs,
    outputs: operation_outputs,
    setup: operation_setup,
    execute: operation_execute,
};

/// Virtual functions of `atb::Context` in order.
#[repr(C)]
#[derive(Debug)]
struct ContextFunctions {
    destroy: unsafe extern "C" fn(*mut AtbContext),
    delete: unsafe extern "C" fn(*mut AtbContext),
    set_stream: unsafe extern "C" fn(*mut AtbContext, aclrtStream) -> c_int,
    stream: unsafe extern "C" fn(*const AtbContext) -> aclrtStream,
    /// Setter for copying tilings in parallel with the stream.
    set_tiling_copy: extern "C" fn() -> c_int,
    tiling_copy: extern "C" fn() -> c_int,
    set_streams: extern "C" fn() -> c_int,
    streams: extern "C" fn() -> EmptyVector,
    others: [extern "C" fn() -> c_int; 4],
}

static CONTEXT: ContextFunctions = ContextFunctions {
    destroy: context_destroy,
    delete: context_delete,
    set_stream: context_set_stream,
    stream: context_stream,
    set_tiling_copy: context_nothing,
    tiling_copy: context_nothing,
    set_streams: context_not_modelled,
    streams: context_streams,
    others: [context_not_modelled; 4],
};

fn answer(name: &'static str, found: impl FnOnce(&Emulator, &Table) -> AtbOutcome) -> c_int {
    match process::current(name) {
        Process::Machine(emulator, table) => emulator.answer(name, || found(emulator, table)),
        Process::Refusing(_) => INTERNAL_ERROR,
    }
}

fn create(name: &'static str, kind: AtbOutcome<OperationKind>, operation: *mut *mut Operation) -> c_int {
    answer(name, |_, _| {
        let kind = kind?;
        if operation.is_null() {
            return Err((INVALID_PARAM, "argument operation is NULL".to_owned()));
        }
        let made = Box::into_raw(Box::new(Operation { functions: &OPERATION, kind }));
        // SAFETY: not NULL, so a valid pointer of the caller.
        unsafe { *operation = made };
        Ok(())
    })
}

/// `RopeParam` and `ReshapeAndCacheParam`: two 32-bit numbers, then reserved bytes.
#[repr(C)]
pub(crate) struct TwoIntParam {
    first: i32,
    second: i32,
}

#[repr(C)]
pub(crate) struct AtbLinear {
    transpose_a: bool,
    transpose_b: bool,
    has_bias: bool,
    out_data_type: i32,
    accumulate: bool,
}

#[unsafe(export_name = "_ZN3atb15CreateOperationINS_5infer9RopeParamEEEiRKT_PPNS_9OperationE")]
unsafe extern "C" fn create_rotary(param: &TwoIntParam, operation: *mut *mut Operation) -> c_int {
    let kind = match (param.first, param.second) {
        (2, 0) => Ok(OperationKind::Rotary),
        found => Err((
            INVALID_PARAM,
            format!("expected rotaryCoeff 2 and cosFormat 0, found {found:?}: not modelled"),
        )),
    };
    create("atb::CreateOperation<RopeParam>", kind, operation)
}

#[unsafe(export_name = "_ZN3atb15CreateOperationINS_5infer20ReshapeAndCacheParamEEEiRKT_PPNS_9OperationE")]
unsafe extern "C" fn create_reshape_and_cache(param: &TwoIntParam, operation: *mut *mut Operation) -> c_int {
    let kind = match (param.first, param.second) {
        (0, 0) => Ok(OperationKind::ReshapeAndCache),
        found => Err((
            INVALID_PARAM,
            format!("expected compressType 0 and kvCacheCfg 0, found {found:?}: not modelled"),
        )),
    };
    create("atb::CreateOperation<ReshapeAndCacheParam>", kind, operation)
}

#[unsafe(export_name = "_ZN3atb15CreateOperationINS_5infer11LinearParamEEEiRKT_PPNS_9OperationE")]
unsafe extern "C" fn create_linear(param: &AtbLinear, operation: *mut *mut Operation) -> c_int {
    let kind = if param.accumulate && !param.has_bias {
        Ok(OperationKind::Accumulate { transpose_x: param.transpose_a, transpose_weight: param.transpose_b })
    } else {
        Err((INVALID_PARAM, "expected enAccum without hasBias: other products are not modelled".to_owned()))
    };
    create("atb::CreateOperation<LinearParam>", kind, operation)
}

macro_rules! refuse_operations {
    ($($function:ident = $symbol:literal $name:literal;)*) => { $(
        #[unsafe(export_name = $symbol)]
        extern "C" fn $function() -> c_int {
            export::refuse::<()>($name, Library::AscendCl);
            INTERNAL_ERROR
        }
    )* };
}

refuse_operations! {
    create_elewise = "_ZN3atb15CreateOperationINS_5infer12ElewiseParamEEEiRKT_PPNS_9OperationE"
        "atb::CreateOperation<ElewiseParam>";
    create_rms_norm = "_ZN3atb15CreateOperationINS_5infer12RmsNormParamEEEiRKT_PPNS_9OperationE"
        "atb::CreateOperation<RmsNormParam>";
    create_group_topk = "_ZN3atb15CreateOperationINS_5infer14GroupTopkParamEEEiRKT_PPNS_9OperationE"
        "atb::CreateOperation<GroupTopkParam>";
    create_self_attention = "_ZN3atb15CreateOperationINS_5infer18SelfAttentionParamEEEiRKT_PPNS_9OperationE"
        "atb::CreateOperation<SelfAttentionParam>";
    create_paged_attention = "_ZN3atb15CreateOperationINS_5infer19PagedAttentionParamEEEiRKT_PPNS_9OperationE"
        "atb::CreateOperation<PagedAttentionParam>";
}

#[unsafe(export_name = "_ZN3atb16DestroyOperationEPNS_9OperationE")]
unsafe extern "C" fn destroy_operation(operation: *mut Operation) -> c_int {
    // SAFETY: the caller passes ownership of the operation.
    unsafe { operation_delete(operation) };
    0
}

#[unsafe(export_name = "_ZN3atb13CreateContextEPPNS_7ContextE")]
unsafe extern "C" fn create_context(context: *mut *mut AtbContext) -> c_int {
    if context.is_null() {
        return INVALID_PARAM;
    }
    let made = Box::into_raw(Box::new(AtbContext { functions: &CONTEXT, stream: ptr::null_mut() }));
    // SAFETY: not NULL, so a valid pointer of the caller.
    unsafe { *context = made };
    0
}

#[unsafe(export_name = "_ZN3atb14DestroyContextEPNS_7ContextE")]
unsafe extern "C" fn destroy_context(context: *mut AtbContext) -> c_int {
    // SAFETY: the caller passes ownership of the context.
    unsafe { context_delete(context) };
    0
}

#[unsafe(export_name = "_ZN3atb5Utils13GetTensorSizeERKNS_6TensorE")]
unsafe extern "C" fn tensor_size(tensor: &AtbTensor) -> u64 {
    let Process::Machine(emulator, _) = process::current("atb::Utils::GetTensorSize") else { return 0 };
    // SAFETY: the function accepts any number.
    let element = unsafe { dropin::aclDataTypeSize(emulator, tensor.description.dtype) }.unwrap_or(0);
    tensor
        .dims()
        .iter()
        .fold(element as u64, |bytes, &dim| bytes.saturating_mul(u64::try_from(dim).unwrap_or(0)))
}

unsafe extern "C" fn operation_destroy(_: *mut Operation) {}

unsafe extern "C" fn operation_delete(operation: *mut Operation) {
    if !operation.is_null() {
        // SAFETY: `create` made the box, and it is released once.
        drop(unsafe { Box::from_raw(operation) });
    }
}

unsafe extern "C" fn operation_name(operation: *const Operation) -> CppString {
    // SAFETY: C++ calls it with an operation of `create`.
    let name = match unsafe { (*operation).kind } {
        OperationKind::Rotary => c"RopeOperation",
        OperationKind::ReshapeAndCache => c"ReshapeAndCacheOperation",
        OperationKind::Accumulate { .. } => c"LinearOperation",
    };
    let len = name.count_bytes();
    // SAFETY: a C string. C++ frees the copy, because it is not inline in the `std::string`.
    let start = unsafe { libc::strdup(name.as_ptr()) };
    CppString { start, len, capacity: len, unused: 0 }
}

unsafe extern "C" fn operation_infer_shape(_: *const Operation, _: *const c_void, _: *mut c_void) -> c_int {
    export::refuse::<()>("atb::Operation::InferShape", Library::AscendCl);
    INTERNAL_ERROR
}

unsafe extern "C" fn operation_inputs(operation: *const Operation) -> u32 {
    // SAFETY: C++ calls it with an operation of `create`.
    if matches!(unsafe { (*operation).kind }, OperationKind::Accumulate { .. }) { 3 } else { 5 }
}

unsafe extern "C" fn operation_outputs(operation: *const Operation) -> u32 {
    // SAFETY: C++ calls it with an operation of `create`.
    if matches!(unsafe { (*operation).kind }, OperationKind::Accumulate { .. }) { 1 } else { 2 }
}

unsafe extern "C" fn operation_setup(
    operation: *mut Operation,
    pack: *const Pack,
    workspace_size: *mut u64,
    _: *mut AtbContext,
) -> c_int {
    answer("atb::Operation::Setup", |_, _| {
        // SAFETY: C++ calls it with an operation of `create`.
        let kind = unsafe { (*operation).kind };
        // SAFETY: C++ passes a reference to the tensors.
        let pack = unsafe { &*pack };
        // `torch_npu` ignores the result of the execution, so all checks are here.
        let scratch = match kind {
            OperationKind::Rotary => {
                rotary_shapes(pack)?.iter().map(|shape| shape.x.bytes).max().unwrap_or(0)
            }
            OperationKind::ReshapeAndCache => {
                cache_shapes(pack)?;
                0
            }
            OperationKind::Accumulate { transpose_x, transpose_weight } => {
                let [x, weight, sum, _] = product_shapes(pack, transpose_x, transpose_weight)?;
                2 * (x.bytes + weight.bytes) + sum.bytes
            }
        };
        // SAFETY: C++ passes a reference.
        unsafe { *workspace_size = scratch + SHARE_OF_OPERATORS };
        Ok(())
    })
}

unsafe extern "C" fn operation_execute(
    operation: *mut Operation,
    pack: *const Pack,
    workspace: *mut u8,
    workspace_size: u64,
    context: *mut AtbContext,
) -> c_int {
    answer("atb::Operation::Execute", |_, table| {
        // SAFETY: C++ calls it with an operation of `create`.
        let kind = unsafe { (*operation).kind };
        // SAFETY: C++ passes a reference to the tensors.
        let pack = unsafe { &*pack };
        // SAFETY: C++ passes a context of `create_context`.
        let stream = unsafe { (*context).stream };
        let mut run = OperationRun { table, stream, workspace, left: workspace_size, made: Vec::new() };
        match kind {
            OperationKind::Rotary => run.rotary(pack),
            OperationKind::ReshapeAndCache => run.reshape_and_cache(pack),
            OperationKind::Accumulate { transpose_x, transpose_weight } => {
                run.accumulate(pack, transpose_x, transpose_weight)
            }
        }
    })
}

unsafe extern "C" fn context_destroy(_: *mut AtbContext) {}

unsafe extern "C" fn context_delete(context: *mut AtbContext) {
    if !context.is_null() {
        // SAFETY: `create_context` made the box, and it is released once.
        drop(unsafe { Box::from_raw(context) });
    }
}

unsafe extern "C" fn context_set_stream(context: *mut AtbContext, stream: aclrtStream) -> c_int {
    // SAFETY: C++ calls it with a context of `create_context`.
    unsafe { (*context).stream = stream };
    0
}

unsafe extern "C" fn context_stream(context: *const AtbContext) -> aclrtStream {
    // SAFETY: C++ calls it with a context of `create_context`.
    unsafe { (*context).stream }
}

extern "C" fn context_nothing() -> c_int {
    0
}

extern "C" fn context_streams() -> EmptyVector {
    EmptyVector([0; 3])
}

extern "C" fn context_not_modelled() -> c_int {
    export::refuse::<()>("a function of atb::Context", Library::AscendCl);
    INTERNAL_ERROR
}
