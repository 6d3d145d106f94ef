//! C functions for the host objects of the operator library (see `nn::objects`).
//!
//! Dims, strides and values are copied.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;

use ascend_tp_emulator_operators::dtype::AclType;
use ascend_tp_emulator_operators::operator::{Scalar, TensorDesc};
use ascend_tp_sys::{
    aclBoolArray, aclDataType, aclFloatArray, aclFormat, aclIntArray, aclOpExecutor, aclScalar,
    aclScalarList, aclTensor, aclTensorList,
};
use half::{bf16, f16};

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::machine::Machine;
use crate::memory::raw::load_array;
use crate::nn::executor::Counted;
use crate::nn::objects::Object;
use crate::nn::objects::wrong;

struct TensorArguments {
    view_dims: *const i64,
    view_dims_num: u64,
    data_type: aclDataType,
    stride: *const i64,
    offset: i64,
    format: aclFormat,
    storage_dims: *const i64,
    storage_dims_num: u64,
    data: *mut c_void,
}

impl TensorArguments {
    /// # Safety
    /// Each array is NULL or as long as its count.
    unsafe fn read(&self) -> Result<TensorDesc, Failure> {
        // SAFETY: the caller guarantees the length of the array.
        let dims = unsafe { load_array("viewDims", self.view_dims, self.view_dims_num as usize) }?;
        // SAFETY: the caller guarantees the length of the array.
        let storage =
            unsafe { load_array("storageDims", self.storage_dims, self.storage_dims_num as usize) }?;
        if dims.iter().chain(&storage).any(|&dim| dim < 0) {
            let what =
                format!("expected dims of at least 0, found viewDims {dims:?} and storageDims {storage:?}");
            return Err(Failure::new(code::PARAM_INVALID_ACLNN, what));
        }
        let strides = if self.stride.is_null() {
            let mut strides = vec![1i64; dims.len()];
            for i in (1..dims.len()).rev() {
                strides[i - 1] = strides[i].saturating_mul(dims[i].max(1));
            }
            strides
        } else {
            // SAFETY: the caller guarantees one stride per dim.
            unsafe { load_array("stride", self.stride, dims.len()) }?
        };
        Ok(TensorDesc {
            dtype: self.data_type.0,
            format: self.format.0,
            dims,
            strides,
            offset: self.offset,
            storage,
            address: self.data.addr(),
            handle: 0,
        })
    }
}

/// # Safety
///
/// `value` is NULL or points to a value of the type.
unsafe fn read_scalar(value: *mut c_void, data_type: aclDataType) -> Result<Scalar, Failure> {
    if value.is_null() {
        return Err(Failure::new(code::NULL_POINTER_ACLNN, "value: is NULL and must be given"));
    }
    let Some(dtype) = AclType::from_acl(data_type.0).filter(|dtype| *dtype != AclType::C64) else {
        let what = format!("dataType: aclDataType {} is not modelled for scalars", data_type.0);
        return Err(Failure::new(code::PARAM_INVALID_ACLNN, what));
    };
    let whole = |value: i64| Scalar::Int(value, dtype);
    let real = |value: f64| Scalar::Float(value, dtype);
    // Narrow types occupy the low bytes of a little-endian number. SAFETY: not NULL, so a value of
    // this type by this function's contract.
    let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>().cast_const(), dtype.size()) };
    let mut wide = [0u8; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    Ok(match dtype {
        AclType::F32 => real(f64::from(f32::from_bits(bits as u32))),
        AclType::F64 => real(f64::from_bits(bits)),
        AclType::F16 => real(f16::from_bits(bits as u16).to_f64()),
        AclType::BF16 => real(bf16::from_bits(bits as u16).to_f64()),
        AclType::I8 => whole(i64::from(bits as i8)),
        AclType::I16 => whole(i64::from(bits as i16)),
        AclType::I32 => whole(i64::from(bits as i32)),
        AclType::I64 | AclType::U64 | AclType::C64 => whole(bits.cast_signed()),
        AclType::U8 => whole(i64::from(bits as u8)),
        AclType::U16 => whole(i64::from(bits as u16)),
        AclType::U32 => whole(i64::from(bits as u32)),
        AclType::Bool => whole(i64::from(bits as u8 != 0)),
    })
}

/// The caller frees the copy with `delete[]`, as documented, so it is on the C heap.
///
/// # Safety
///
/// `place` and `count` are NULL or valid pointers of the caller.
pub(super) unsafe fn give_array(
    values: &[i64],
    name: &str,
    place: Out<*mut i64>,
    count: Out<u64>,
) -> Result<(), Failure> {
    if place.is_null() || count.is_null() {
        return Err(Failure::new(code::NULL_POINTER_ACLNN, format!("{name}: is NULL and must be given")));
    }
    let bytes = size_of_val(values).max(size_of::<i64>());
    let layout = Layout::from_size_align(bytes, align_of::<i64>())
        .map_err(|error| Failure::new(code::RUNTIME_ACLNN, format!("{name}: {error}")))?;
    // SAFETY: the layout has at least eight bytes.
    let memory = unsafe { System.alloc(layout) };
    if memory.is_null() {
        return Err(Failure::new(code::RUNTIME_ACLNN, format!("{name}: no host memory for {bytes} bytes")));
    }
    #[expect(clippy::cast_ptr_alignment, reason = "allocated with the alignment of i64")]
    let array = memory.cast::<i64>();
    // SAFETY: `array` is new and has at least `values.len()` elements.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), array, values.len()) };
    place.set(name, array)?;
    count.set(name, values.len() as u64)
}

macro_rules! destroyers {
    ($($function:ident($handle:ty), $kind:literal;)*) => {
        impl Machine {
            $( pub(in crate::abi) unsafe fn $function(&self, object: *const $handle) -> Result<(), Failure> {
                self.aclnn().lock().remove("object", object.addr(), $kind)
            } )*
        }
    };
}
destroyers! {
    aclDestroyTensor(aclTensor), "aclTensor";
    aclDestroyTensorList(aclTensorList), "aclTensorList";
    aclDestroyScalar(aclScalar), "aclScalar";
    aclDestroyScalarList(aclScalarList), "aclScalarList";
    aclDestroyIntArray(aclIntArray), "aclIntArray";
    aclDestroyFloatArray(aclFloatArray), "aclFloatArray";
    aclDestroyBoolArray(aclBoolArray), "aclBoolArray";
}

macro_rules! arrays {
    ($($create:ident, $size:ident($element:ty) -> $handle:ty, $variant:ident;)*) => {
        impl Machine {
            $( pub(in crate::abi) unsafe fn $create(&self, value: *const $element, size: u64)
                -> Result<*mut $handle, Failure> {
                // SAFETY: the C caller passes an array of `size` elements.
                let values = unsafe { load_array("value", value, size as usize) }?;
                Ok(self.aclnn().lock().insert(Object::$variant(values)))
            }

            pub(in crate::abi) unsafe fn $size(&self, array: *const $handle, size: Out<u64>) -> Result<(), Failure> {
                let len = match self.aclnn().lock().get(array.addr()) {
                    Some(Object::$variant(values)) => values.len() as u64,
                    other => return Err(wrong("array", array.addr(), stringify!($handle), other)),
                };
                size.set("size", len)
            } )*
        }
    };
}
arrays! {
    aclCreateIntArray, aclGetIntArraySize(i64) -> aclIntArray, Ints;
    aclCreateFloatArray, aclGetFloatArraySize(f32) -> aclFloatArray, Floats;
    aclCreateBoolArray, aclGetBoolArraySize(bool) -> aclBoolArray, Bools;
}

macro_rules! lists {
    ($($create:ident, $size:ident($member:ty) -> $handle:ty, $one:ident, $many:ident;)*) => {
        impl Machine {
            $( pub(in crate::abi) unsafe fn $create(&self, value: *const *const $member, size: u64)
                -> Result<*mut $handle, Failure> {
                // SAFETY: the C caller passes an array of `size` handles.
                let members = unsafe { load_array("value", value, size as usize) }?;
                let mut live = self.aclnn().lock();
                for member in &members {
                    match live.get(member.addr()) {
                        Some(Object::$one(_)) => {}
                        other => return Err(wrong("value", member.addr(), stringify!($member), other)),
                    }
                }
                Ok(live.insert(Object::$many(members.iter().map(|member| member.addr()).collect())))
            }

            pub(in crate::abi) unsafe fn $size(&self, list: *const $handle, size: Out<u64>) -> Result<(), Failure> {
                let len = match self.aclnn().lock().get(list.addr()) {
                    Some(Object::$many(members)) => members.len() as u64,
                    other => return Err(wrong("list", list.addr(), stringify!($handle), other)),
                };
                size.set("size", len)
            } )*
        }
    };
}
lists! {
    aclCreateTensorList, aclGetTensorListSize(aclTensor) -> aclTensorList, Tensor, Tensors;
    aclCreateScalarList, aclGetScalarListSize(aclScalar) -> aclScalarList, Scalar, Scalars;
}

#[expect(clippy::too_many_arguments, reason = "the C prototypes define the parameters")]
impl Machine {
    pub(in crate::abi) unsafe fn aclCreateTensor(
        &self,
        view_dims: *const i64,
        view_dims_num: u64,
        data_type: aclDataType,
        stride: *const i64,
        offset: i64,
        format: aclFormat,
        storage_dims: *const i64,
        storage_dims_num: u64,
        data: *mut c_void,
    ) -> Result<*mut aclTensor, Failure> {
        let arguments = TensorArguments {
            view_dims,
            view_dims_num,
            data_type,
            stride,
            offset,
            format,
            storage_dims,
            storage_dims_num,
            data,
        };
        // SAFETY: the C caller passes arrays as long as their counts say.
        let desc = unsafe { arguments.read() }?;
        Ok(self.aclnn().lock().insert(Object::Tensor(Box::new(desc))))
    }

    pub(in crate::abi) unsafe fn aclInitTensor(
        &self,
        tensor: *mut aclTensor,
        view_dims: *const i64,
        view_dims_num: u64,
        data_type: aclDataType,
        stride: *const i64,
        offset: i64,
        format: aclFormat,
        storage_dims: *const i64,
        storage_dims_num: u64,
        data: *mut c_void,
    ) -> Result<(), Failure> {
        let arguments = TensorArguments {
            view_dims,
            view_dims_num,
            data_type,
            stride,
            offset,
            format,
            storage_dims,
            storage_dims_num,
            data,
        };
        // SAFETY: the C caller passes arrays as long as their counts say.
        let desc = unsafe { arguments.read() }?;
        self.change_tensor(tensor, |tensor| *tensor = TensorDesc { handle: tensor.handle, ..desc })
    }
}

impl Machine {
    fn change_tensor(
        &self,
        tensor: *mut aclTensor,
        change: impl FnOnce(&mut TensorDesc),
    ) -> Result<(), Failure> {
        match self.aclnn().lock().get_mut(tensor.addr()) {
            Some(Object::Tensor(desc)) => {
                change(desc);
                Ok(())
            }
            other => Err(wrong("tensor", tensor.addr(), "aclTensor", other.as_deref())),
        }
    }

    fn described(&self, tensor: *const aclTensor) -> Result<TensorDesc, Failure> {
        self.aclnn().lock().tensor("tensor", tensor).cloned()
    }

    pub(in crate::abi) unsafe fn aclCreateScalar(
        &self,
        value: *mut c_void,
        data_type: aclDataType,
    ) -> Result<*mut aclScalar, Failure> {
        // SAFETY: the C caller passes a value of the type.
        let scalar = unsafe { read_scalar(value, data_type) }?;
        Ok(self.aclnn().lock().insert(Object::Scalar(scalar)))
    }

    pub(in crate::abi) unsafe fn aclGetViewShape(
        &self,
        tensor: *const aclTensor,
        view_dims: Out<*mut i64>,
        view_dims_num: Out<u64>,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes valid places.
        unsafe { give_array(&self.described(tensor)?.dims, "viewDims", view_dims, view_dims_num) }
    }

    pub(in crate::abi) unsafe fn aclGetStorageShape(
        &self,
        tensor: *const aclTensor,
        storage_dims: Out<*mut i64>,
        storage_dims_num: Out<u64>,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes valid places.
        unsafe { give_array(&self.described(tensor)?.storage, "storageDims", storage_dims, storage_dims_num) }
    }

    pub(in crate::abi) unsafe fn aclGetViewStrides(
        &self,
        tensor: *const aclTensor,
        strides_value: Out<*mut i64>,
        strides_num: Out<u64>,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes valid places.
        unsafe { give_array(&self.described(tensor)?.strides, "stridesValue", strides_value, strides_num) }
    }

    pub(in crate::abi) fn aclGetViewOffset(
        &self,
        tensor: *const aclTensor,
        offset: Out<i64>,
    ) -> Result<(), Failure> {
        offset.set("offset", self.described(tensor)?.offset)
    }

    pub(in crate::abi) fn aclGetFormat(
        &self,
        tensor: *const aclTensor,
        format: Out<aclFormat>,
    ) -> Result<(), Failure> {
        format.set("format", aclFormat(self.described(tensor)?.format))
    }

    pub(in crate::abi) fn aclGetDataType(
        &self,
        tensor: *const aclTensor,
        data_type: Out<aclDataType>,
    ) -> Result<(), Failure> {
        data_type.set("dataType", aclDataType(self.described(tensor)?.dtype))
    }

    pub(in crate::abi) fn aclGetRawTensorAddr(
        &self,
        tensor: *const aclTensor,
        addr: Out<*mut c_void>,
    ) -> Result<(), Failure> {
        let address = std::ptr::without_provenance_mut(self.described(tensor)?.address);
        addr.set("addr", address)
    }

    pub(in crate::abi) fn aclSetRawTensorAddr(
        &self,
        tensor: *mut aclTensor,
        addr: *mut c_void,
    ) -> Result<(), Failure> {
        self.change_tensor(tensor, |desc| desc.address = addr.addr())
    }

    pub(in crate::abi) fn aclSetAclOpExecutorRepeatable(
        &self,
        executor: *mut aclOpExecutor,
    ) -> Result<(), Failure> {
        self.aclnn().lock().executor(executor)?.make_repeatable()
    }

    pub(in crate::abi) fn aclDestroyAclOpExecutor(
        &self,
        executor: *mut aclOpExecutor,
    ) -> Result<(), Failure> {
        let mut live = self.aclnn().lock();
        live.executor(executor)?;
        live.remove("executor", executor.addr(), "aclOpExecutor")
    }
}

macro_rules! address_updates {
    ($($single:ident, $dynamic:ident => $counted:expr;)*) => {
        impl Machine {
            $( pub(in crate::abi) unsafe fn $single(
                &self, executor: *mut aclOpExecutor, index: usize, tensor: *mut aclTensor, addr: *mut c_void,
            ) -> Result<(), Failure> {
                let mut live = self.aclnn().lock();
                live.tensor("tensor", tensor)?;
                live.executor(executor)?.set_address($counted, index, 0, addr.addr())
            }

            pub(in crate::abi) unsafe fn $dynamic(
                &self, executor: *mut aclOpExecutor, ir_index: usize, relative_index: usize, tensors: *mut aclTensorList,
                addr: *mut c_void,
            ) -> Result<(), Failure> {
                let mut live = self.aclnn().lock();
                live.tensors("tensors", tensors)?;
                live.executor(executor)?.set_address($counted, ir_index, relative_index, addr.addr())
            } )*
        }
    };
}
address_updates! {
    aclSetTensorAddr, aclSetDynamicTensorAddr => Counted::All;
    aclSetInputTensorAddr, aclSetDynamicInputTensorAddr => Counted::Inputs;
    aclSetOutputTensorAddr, aclSetDynamicOutputTensorAddr => Counted::Outputs;
}
