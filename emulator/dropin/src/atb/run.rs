//! Execution of ATB operations with aclnn operators.
//!
//! The functions for shapes check everything that the execution would refuse. Temporary memory
//! comes from the caller's workspace.

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::ptr;

use ascend_tp_emulator::Table;
use ascend_tp_sys::{
    ACL_SUCCESS, aclDataType, aclFormat, aclOpExecutor, aclScalar, aclTensor, aclnnStatus, aclrtMemcpyKind,
    aclrtStream,
};

use super::{AtbOutcome, AtbTensor, CANN_ERROR, INVALID_TENSOR_DIM, INVALID_WORKSPACE, Pack};

const HALVES: [aclDataType; 2] = [aclDataType::ACL_FLOAT16, aclDataType::ACL_BF16];
const FLOATS: [aclDataType; 3] = [aclDataType::ACL_FLOAT, HALVES[0], HALVES[1]];

#[derive(Clone, Copy)]
struct WorkTensor<'a> {
    address: *mut c_void,
    dtype: aclDataType,
    dims: &'a [i64],
    strides: Option<&'a [i64]>,
}

impl<'a> WorkTensor<'a> {
    fn of(tensor: &AtbTensor, dims: &'a [i64]) -> Self {
        Self { address: tensor.device, dtype: tensor.description.dtype, dims, strides: None }
    }
}

/// Heads to rotate, with the operator's shapes.
pub(super) struct RotaryHeads<'a> {
    pub(super) x: &'a AtbTensor,
    out: &'a AtbTensor,
    cos: &'a AtbTensor,
    sin: &'a AtbTensor,
    dims: [i64; 4],
    turns: [i64; 4],
}

pub(super) fn rotary_shapes(pack: &Pack) -> AtbOutcome<[RotaryHeads<'_>; 2]> {
    let [query, key, cos, sin, _] = pack.inputs.get("input")?;
    let [query_out, key_out] = pack.outputs.get("output")?;
    let turned = |x: &'_ AtbTensor, out: &'_ AtbTensor| {
        let found = [x, out, cos, sin].map(|tensor| (tensor.description.dtype.0, tensor.dims().to_vec()));
        let wrong = || {
            let text = "expected x and its output [tokens, heads * size], cos and sin [tokens, size], all of one type of";
            (INVALID_TENSOR_DIM, format!("{text} floating point; found types and dims {found:?}"))
        };
        let (&[tokens, width], &[rows, depth]) = (x.dims(), cos.dims()) else { return Err(wrong()) };
        let one = &found[0];
        let alike = found[1] == *one && found[2] == found[3] && found[2].0 == one.0;
        if !alike
            || !FLOATS.contains(&x.description.dtype)
            || rows != tokens
            || depth < 2
            || width % depth != 0
        {
            return Err(wrong());
        }
        // A single head has its own layout.
        Ok(match width / depth {
            1 => ([1, 1, tokens, depth], [1, 1, tokens, depth]),
            heads => ([1, tokens, heads, depth], [1, tokens, 1, depth]),
        })
    };
    let (of_query, of_key) = (turned(query, query_out)?, turned(key, key_out)?);
    Ok([
        RotaryHeads { x: query, out: query_out, cos, sin, dims: of_query.0, turns: of_query.1 },
        RotaryHeads { x: key, out: key_out, cos, sin, dims: of_key.0, turns: of_key.1 },
    ])
}

/// Keys or values, one row per token, and the rows of the cache.
pub(super) struct Cached<'a> {
    x: &'a AtbTensor,
    cache: &'a AtbTensor,
    slots: &'a AtbTensor,
    tokens: i64,
    rows: i64,
    line: i64,
}

pub(super) fn cache_shapes(pack: &Pack) -> AtbOutcome<[Cached<'_>; 2]> {
    let [key, value, key_cache, value_cache, slots] = pack.inputs.get("input")?;
    let cached = |x: &'_ AtbTensor, cache: &'_ AtbTensor| {
        let wrong = || {
            let found = [x, cache, slots].map(|tensor| (tensor.description.dtype.0, tensor.dims().to_vec()));
            let text = "expected [tokens, heads, size], a cache [blocks, positions, heads, size] of the same type and \
                        INT32 slots";
            (INVALID_TENSOR_DIM, format!("{text} [tokens]; found types and dims {found:?}"))
        };
        let (&[tokens, heads, depth], &[blocks, places, ref rest @ ..]) = (x.dims(), cache.dims()) else {
            return Err(wrong());
        };
        let types = x.description.dtype == cache.description.dtype
            && slots.description.dtype == aclDataType::ACL_INT32;
        if !types || *rest != [heads, depth] || slots.dims() != [tokens] {
            return Err(wrong());
        }
        Ok((tokens, blocks * places, heads * depth))
    };
    let ((tokens, rows, line), of_values) = (cached(key, key_cache)?, cached(value, value_cache)?);
    Ok([
        Cached { x: key, cache: key_cache, slots, tokens, rows, line },
        Cached {
            x: value,
            cache: value_cache,
            slots,
            tokens: of_values.0,
            rows: of_values.1,
            line: of_values.2,
        },
    ])
}

/// Returns the factors, the sum and the output.
pub(super) fn product_shapes(
    pack: &Pack,
    transpose_x: bool,
    transpose_weight: bool,
) -> AtbOutcome<[&AtbTensor; 4]> {
    let [x, weight, sum] = pack.inputs.get("input")?;
    let [out] = pack.outputs.get("output")?;
    let halves = |tensor: &AtbTensor| HALVES.contains(&tensor.description.dtype) && tensor.dims().len() == 2;
    let sums = |tensor: &AtbTensor| {
        tensor.description.dtype == aclDataType::ACL_FLOAT && tensor.dims() == sum.dims()
    };
    let turned = |tensor: &AtbTensor, transpose: bool| match (tensor.dims(), transpose) {
        (&[rows, columns], false) | (&[columns, rows], true) => [rows, columns],
        _ => [0, 0],
    };
    let ([rows, inner], [found, columns]) = (turned(x, transpose_x), turned(weight, transpose_weight));
    if halves(x)
        && halves(weight)
        && sums(sum)
        && sums(out)
        && inner == found
        && *sum.dims() == [rows, columns]
    {
        return Ok([x, weight, sum, out]);
    }
    let found = [x, weight, sum, out].map(|tensor| (tensor.description.dtype.0, tensor.dims().to_vec()));
    let text = "expected matrices of FLOAT16 or BFLOAT16 that can be multiplied, a sum of FLOAT and an output of the \
                same shape";
    Err((INVALID_TENSOR_DIM, format!("{text}; found types and dims {found:?}")))
}

pub(super) struct OperationRun<'a> {
    pub(super) table: &'a Table,
    pub(super) stream: aclrtStream,
    pub(super) workspace: *mut u8,
    pub(super) left: u64,
    pub(super) made: Vec<*mut aclTensor>,
}

impl Drop for OperationRun<'_> {
    fn drop(&mut self) {
        for &tensor in &self.made {
            // SAFETY: `tensor` created it, and it is destroyed once.
            unsafe { (self.table.aclDestroyTensor)(tensor) };
        }
    }
}

impl OperationRun<'_> {
    fn scratch(&mut self, bytes: u64) -> AtbOutcome<*mut c_void> {
        // Operators require aligned memory.
        let bytes = bytes.next_multiple_of(512);
        let place = self.workspace;
        if bytes > self.left || place.is_null() {
            return Err((
                INVALID_WORKSPACE,
                format!("expected {bytes} more bytes of workspace, found {}", self.left),
            ));
        }
        self.left -= bytes;
        self.workspace = place.wrapping_add(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(place.cast())
    }

    fn tensor(&mut self, place: WorkTensor<'_>) -> *mut aclTensor {
        let mut strides = vec![1; place.dims.len()];
        for i in (1..place.dims.len()).rev() {
            strides[i - 1] = strides[i] * place.dims[i];
        }
        let (rank, elements) = (place.dims.len() as u64, place.dims.iter().product::<i64>());
        let strides = place.strides.unwrap_or(&strides);
        // SAFETY: the arrays have the lengths that are passed, and the call copies them.
        let made = unsafe {
            (self.table.aclCreateTensor)(
                place.dims.as_ptr(),
                rank,
                place.dtype,
                strides.as_ptr(),
                0,
                aclFormat::ACL_FORMAT_ND,
                &raw const elements,
                1,
                place.address,
            )
        };
        self.made.push(made);
        made
    }

    fn operator(
        &mut self,
        name: &str,
        plan: impl FnOnce(&Table, *mut u64, *mut *mut aclOpExecutor) -> aclnnStatus,
        run: unsafe extern "C" fn(*mut c_void, u64, *mut aclOpExecutor, aclrtStream) -> aclnnStatus,
    ) -> AtbOutcome {
        let (mut bytes, mut executor) = (0, ptr::null_mut());
        passed(name, plan(self.table, &raw mut bytes, &raw mut executor))?;
        let (workspace, left) = (self.workspace, self.left);
        let place = if bytes == 0 { ptr::null_mut() } else { self.scratch(bytes)? };
        // SAFETY: the executor of the last plan, its workspace, and the caller's stream.
        passed(name, unsafe { run(place, bytes, executor, self.stream) })?;
        // Later operators may reuse the workspace.
        (self.workspace, self.left) = (workspace, left);
        Ok(())
    }

    fn copy_back(&self, to: &AtbTensor, from: *const c_void) -> AtbOutcome {
        let (bytes, kind) = (to.bytes as usize, aclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_DEVICE);
        // SAFETY: memory on the card; the call checks the size.
        let code = unsafe { (self.table.aclrtMemcpyAsync)(to.device, bytes, from, bytes, kind, self.stream) };
        passed("aclrtMemcpyAsync", code)
    }

    pub(super) fn rotary(&mut self, pack: &Pack) -> AtbOutcome {
        for RotaryHeads { x, out, cos, sin, dims, turns } in rotary_shapes(pack)? {
            let (workspace, left) = (self.workspace, self.left);
            let turned = self.scratch(x.bytes)?;
            let made = [
                self.tensor(WorkTensor::of(x, &dims)),
                self.tensor(WorkTensor::of(cos, &turns)),
                self.tensor(WorkTensor::of(sin, &turns)),
                self.tensor(WorkTensor { address: turned, ..WorkTensor::of(x, &dims) }),
            ];
            let plan = |table: &Table, bytes, executor| {
                // SAFETY: tensors of this run, and valid pointers for the results.
                unsafe {
                    (table.aclnnRotaryPositionEmbeddingGetWorkspaceSize)(
                        made[0], made[1], made[2], 0, made[3], bytes, executor,
                    )
                }
            };
            self.operator("aclnnRotaryPositionEmbedding", plan, self.table.aclnnRotaryPositionEmbedding)?;
            self.copy_back(out, turned)?;
            (self.workspace, self.left) = (workspace, left);
        }
        Ok(())
    }

    pub(super) fn reshape_and_cache(&mut self, pack: &Pack) -> AtbOutcome {
        for Cached { x, cache, slots, tokens, rows, line } in cache_shapes(pack)? {
            let into = self.tensor(WorkTensor::of(cache, &[rows, line]));
            let index = self.tensor(WorkTensor::of(slots, &[tokens]));
            let source = self.tensor(WorkTensor::of(x, &[tokens, line]));
            let plan = |table: &Table, bytes, executor| {
                // SAFETY: tensors of this run, and valid pointers for the results.
                unsafe {
                    (table.aclnnInplaceIndexCopyGetWorkspaceSize)(into, 0, index, source, bytes, executor)
                }
            };
            self.operator("aclnnInplaceIndexCopy", plan, self.table.aclnnInplaceIndexCopy)?;
        }
        Ok(())
    }

    /// Returns an f32 view, with swapped dims if it is transposed.
    fn factor(&mut self, x: &AtbTensor, transpose: bool) -> AtbOutcome<*mut aclTensor> {
        let &[rows, columns] = x.dims() else {
            return Err((INVALID_TENSOR_DIM, format!("expected a matrix, found {:?}", x.dims())));
        };
        let dims = [rows, columns];
        let address = self.scratch((rows * columns) as u64 * size_of::<f32>() as u64)?;
        let wide = WorkTensor { address, dtype: aclDataType::ACL_FLOAT, dims: &dims, strides: None };
        let (to, from) = (self.tensor(wide), self.tensor(WorkTensor::of(x, &dims)));
        let plan = |table: &Table, bytes, executor| {
            // SAFETY: tensors of this run, and valid pointers for the results.
            unsafe { (table.aclnnInplaceCopyGetWorkspaceSize)(to, from, bytes, executor) }
        };
        self.operator("aclnnInplaceCopy", plan, self.table.aclnnInplaceCopy)?;
        if !transpose {
            return Ok(to);
        }
        Ok(self.tensor(WorkTensor { dims: &[columns, rows], strides: Some(&[1, columns]), ..wide }))
    }

    pub(super) fn accumulate(
        &mut self,
        pack: &Pack,
        transpose_x: bool,
        transpose_weight: bool,
    ) -> AtbOutcome {
        let [x, weight, sum, out] = product_shapes(pack, transpose_x, transpose_weight)?;
        let (left, right) = (self.factor(x, transpose_x)?, self.factor(weight, transpose_weight)?);
        let added = self.scratch(sum.bytes)?;
        let (start, end) = (
            self.tensor(WorkTensor::of(sum, sum.dims())),
            WorkTensor { address: added, ..WorkTensor::of(sum, sum.dims()) },
        );
        let end = self.tensor(end);
        let mut one = 1f32;
        // SAFETY: a number of the given type, which the call copies.
        let one = unsafe { (self.table.aclCreateScalar)((&raw mut one).cast(), aclDataType::ACL_FLOAT) };
        let factor: *const aclScalar = one;
        let plan = |table: &Table, bytes, executor| {
            // SAFETY: tensors of this run, and valid pointers for the results.
            unsafe {
                (table.aclnnAddmmGetWorkspaceSize)(
                    start, left, right, factor, factor, end, 0, bytes, executor,
                )
            }
        };
        let ran = self.operator("aclnnAddmm", plan, self.table.aclnnAddmm);
        // SAFETY: created above, destroyed once.
        unsafe { (self.table.aclDestroyScalar)(one) };
        ran?;
        self.copy_back(out, added)
    }
}

/// The function of the table has already set the message.
fn passed(name: &str, code: c_int) -> AtbOutcome {
    if code == ACL_SUCCESS { Ok(()) } else { Err((CANN_ERROR, format!("{name} refused it ({code})"))) }
}
