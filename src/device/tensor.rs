//! Strided views of device memory, for operators.

use std::fmt;
use std::sync::Arc;

use ascend_tp_sys::{HcclDataType, aclDataType, aclFormat, aclTensor, aclTensorList};

use super::buffer::BufferSlice;
use super::card::Device;
use super::error::Result;
use super::handle::AclnnObject;
use crate::base::{DType, Diagnostic, Shape};

/// A strided view of a slice of device memory, which it keeps alive. Clones share the view.
///
/// Element `[i, j, …]` is `offset + i·strides[0] + j·strides[1] + …` elements after the start of
/// the slice, and within it.
///
/// ```
/// # use ascend_tp::emulator::{Config, Emulator};
/// # let emulator = Emulator::new(Config::with_cards(2))?;
/// # let cann = ascend_tp::Cann::new(emulator.table())?;
/// # let device = ascend_tp::device::Device::open(&cann, 0)?;
///
/// use ascend_tp::DType;
/// use ascend_tp::device::{Buffer, Tensor};
///
/// let buffer = Buffer::new(&device, 24)?;
/// let matrix = Tensor::contiguous(&buffer.whole(), DType::F32, [2, 3])?;
/// let transposed = Tensor::with_strides(&buffer.whole(), DType::F32, [3, 2], &[1, 3], 0)?;
/// # drop((matrix, transposed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Tensor(Arc<TensorInner>);

struct TensorInner {
    slice: BufferSlice,
    dtype: DType,
    shape: Shape,
    strides: Vec<usize>,
    offset: usize,
    object: AclnnObject<aclTensor>,
}

impl Tensor {
    /// Creates a dense row-major tensor at the start of `slice`.
    ///
    /// # Errors
    /// The tensor does not fit the slice, or the slice is not aligned to the element.
    pub fn contiguous(slice: &BufferSlice, dtype: DType, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let strides = shape.strides();
        Self::with_strides(slice, dtype, shape, &strides, 0)
    }

    /// Creates a tensor with strides and an offset, in elements. A stride of 0 repeats elements.
    ///
    /// # Errors
    /// An element is outside the slice, the slice is not aligned to the element, or the number of
    /// strides is not the number of dims.
    pub fn with_strides(
        slice: &BufferSlice,
        dtype: DType,
        shape: impl Into<Shape>,
        strides: &[usize],
        offset: usize,
    ) -> Result<Self> {
        let shape = shape.into();
        check_view(slice.start(), slice.len_bytes(), dtype, &shape, strides, offset).map_err(
            |(message, expected, found)| {
                Diagnostic::new(format!("tensor {dtype}{shape} on {slice}"), message)
                    .expected(expected)
                    .found(found)
            },
        )?;
        let device = slice.device();
        let object = create(device, slice, dtype, &shape, strides, offset)?;
        Ok(Self(Arc::new(TensorInner {
            slice: slice.clone(),
            dtype,
            shape,
            strides: strides.to_vec(),
            offset,
            object,
        })))
    }

    /// Returns the card of the tensor.
    #[must_use]
    #[doc(hidden)]
    pub fn device(&self) -> &Arc<Device> {
        self.0.slice.device()
    }

    /// Returns the slice that contains the elements.
    #[must_use]
    pub fn slice(&self) -> &BufferSlice {
        &self.0.slice
    }

    /// Returns the element type.
    #[must_use]
    #[doc(hidden)]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Returns the size of each dim.
    #[must_use]
    #[doc(hidden)]
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// Returns the strides, in elements.
    #[must_use]
    #[doc(hidden)]
    pub fn strides(&self) -> &[usize] {
        &self.0.strides
    }

    /// Returns the first element's position.
    #[must_use]
    #[doc(hidden)]
    pub fn offset(&self) -> usize {
        self.0.offset
    }

    pub(super) fn as_ptr(&self) -> *mut aclTensor {
        self.0.object.as_ptr()
    }
}

impl Drop for TensorInner {
    fn drop(&mut self) {
        let device = self.slice.device();
        let _planning = device.planning();
        // SAFETY: the object was made by `aclCreateTensor` and this is its only owner; executors
        // that captured it hold a clone of the tensor.
        let status = unsafe { (device.table().aclDestroyTensor)(self.object.as_ptr()) };
        device.park("aclDestroyTensor", status);
    }
}

impl fmt::Debug for Tensor {
    /// Formats the tensor as `f32[2,3] on device 0: bytes 0..24 of 64`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} on {}", self.0.dtype, self.0.shape, self.0.slice)
    }
}

#[derive(Clone, Debug)]
pub(super) struct TensorList(Arc<OwnedList>);

#[derive(Debug)]
struct OwnedList {
    device: Arc<Device>,
    _tensors: Vec<Tensor>,
    object: AclnnObject<aclTensorList>,
}

impl TensorList {
    /// A C list destroys its members, so the list gets its own C tensors.
    pub(super) fn new(device: &Arc<Device>, tensors: &[Tensor]) -> Result<Self> {
        let mut members = Members { device, pointers: Vec::with_capacity(tensors.len()) };
        for tensor in tensors {
            let view = &*tensor.0;
            let member = create(device, &view.slice, view.dtype, &view.shape, &view.strides, view.offset)?;
            members.pointers.push(member.as_ptr().cast_const());
        }
        let table = device.enter()?;
        let _planning = device.planning();
        // SAFETY: pointer and length describe one vector of live tensors, which the list takes
        // over.
        let list =
            unsafe { (table.aclCreateTensorList)(members.pointers.as_ptr(), members.pointers.len() as u64) };
        let object = AclnnObject::made(device, "aclCreateTensorList", list)?;
        members.pointers.clear();
        Ok(Self(Arc::new(OwnedList { device: Arc::clone(device), _tensors: tensors.to_vec(), object })))
    }

    pub(super) fn as_ptr(&self) -> *mut aclTensorList {
        self.0.object.as_ptr()
    }
}

impl Drop for OwnedList {
    fn drop(&mut self) {
        let _planning = self.device.planning();
        // SAFETY: the object was made by `aclCreateTensorList` and this is its only owner.
        let status = unsafe { (self.device.table().aclDestroyTensorList)(self.object.as_ptr()) };
        self.device.park("aclDestroyTensorList", status);
    }
}

/// C tensors that no list owns yet, destroyed on failure.
struct Members<'a> {
    device: &'a Arc<Device>,
    pointers: Vec<*const aclTensor>,
}

impl Drop for Members<'_> {
    fn drop(&mut self) {
        for pointer in self.pointers.drain(..) {
            // SAFETY: the tensor was made by `aclCreateTensor`, and this is its only owner.
            let status = unsafe { (self.device.table().aclDestroyTensor)(pointer) };
            self.device.park("aclDestroyTensor", status);
        }
    }
}

fn create(
    device: &Arc<Device>,
    slice: &BufferSlice,
    dtype: DType,
    shape: &Shape,
    strides: &[usize],
    offset: usize,
) -> Result<AclnnObject<aclTensor>> {
    let table = device.enter()?;
    let signed = |values: &[usize]| values.iter().map(|value| *value as i64).collect::<Vec<i64>>();
    let (sizes, strides) = (signed(shape), signed(strides));
    let storage = [(slice.len_bytes() / dtype.size_bytes()) as i64];
    let _planning = device.planning();
    // SAFETY: each pointer and its length describe one live vector, which the call copies. The
    // address points into device memory that the tensor keeps alive. `check_view` ensures that all
    // elements are inside.
    let pointer = unsafe {
        (table.aclCreateTensor)(
            sizes.as_ptr(),
            sizes.len() as u64,
            acl_dtype(dtype),
            strides.as_ptr(),
            offset as i64,
            aclFormat::ACL_FORMAT_ND,
            storage.as_ptr(),
            storage.len() as u64,
            slice.address(),
        )
    };
    AclnnObject::made(device, "aclCreateTensor", pointer)
}

type ViewFault = (&'static str, String, String);

/// Every element lies within the `len_bytes` bytes from byte `start` of an aligned buffer.
fn check_view(
    start: usize,
    len_bytes: usize,
    dtype: DType,
    shape: &Shape,
    strides: &[usize],
    offset: usize,
) -> Result<(), ViewFault> {
    let size_bytes = dtype.size_bytes();
    if !start.is_multiple_of(size_bytes) {
        return Err((
            "the slice is not aligned to the element",
            format!("a multiple of {size_bytes}"),
            start.to_string(),
        ));
    }
    if strides.len() != shape.rank() {
        let expected = format!("{} strides, one for each dim", shape.rank());
        return Err(("strides and dims differ in number", expected, strides.len().to_string()));
    }
    let room = len_bytes / size_bytes;
    // One past the last element, or `None` on overflow.
    let end = if shape.contains(&0) {
        Some(offset)
    } else {
        shape
            .iter()
            .zip(strides)
            .try_fold(offset, |end, (size, stride)| (size - 1).checked_mul(*stride)?.checked_add(end))
            .and_then(|last| last.checked_add(1))
    };
    // C uses signed 64-bit numbers.
    match end.filter(|end| i64::try_from(*end).is_ok()) {
        Some(end) if end <= room => Ok(()),
        end => {
            let found = end.map_or_else(|| "more than 64 bits can hold".to_owned(), |end| format!("{end}"));
            Err(("elements lie outside the slice", format!("at most {room} elements"), found))
        }
    }
}

pub(super) const fn acl_dtype(dtype: DType) -> aclDataType {
    match dtype {
        DType::F32 => aclDataType::ACL_FLOAT,
        DType::F16 => aclDataType::ACL_FLOAT16,
        DType::BF16 => aclDataType::ACL_BF16,
        DType::I32 => aclDataType::ACL_INT32,
        DType::I64 => aclDataType::ACL_INT64,
        DType::I8 => aclDataType::ACL_INT8,
        DType::U8 => aclDataType::ACL_UINT8,
        DType::F8E4M3 => aclDataType::ACL_FLOAT8_E4M3FN,
        DType::Bool => aclDataType::ACL_BOOL,
    }
}

/// A bool is sent as one byte.
pub(super) const fn hccl_dtype(dtype: DType) -> HcclDataType {
    match dtype {
        DType::F32 => HcclDataType::HCCL_DATA_TYPE_FP32,
        DType::F16 => HcclDataType::HCCL_DATA_TYPE_FP16,
        DType::BF16 => HcclDataType::HCCL_DATA_TYPE_BFP16,
        DType::I32 => HcclDataType::HCCL_DATA_TYPE_INT32,
        DType::I64 => HcclDataType::HCCL_DATA_TYPE_INT64,
        DType::I8 => HcclDataType::HCCL_DATA_TYPE_INT8,
        DType::U8 | DType::F8E4M3 | DType::Bool => HcclDataType::HCCL_DATA_TYPE_UINT8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        start: usize,
        len: usize,
        shape: &[usize],
        strides: &[usize],
        offset: usize,
    ) -> Result<(), ViewFault> {
        check_view(start, len, DType::F32, &Shape::from(shape), strides, offset)
    }

    #[test]
    fn a_view_may_fill_its_slice() {
        assert_eq!(check(0, 24, &[2, 3], &[3, 1], 0), Ok(()));
        assert_eq!(check(64, 24, &[3, 2], &[1, 3], 0), Ok(()));
        assert_eq!(check(0, 4, &[5, 7], &[0, 0], 0), Ok(()));
        assert_eq!(check(0, 4, &[], &[], 0), Ok(()));
    }

    #[test]
    fn an_empty_view_needs_no_room() {
        assert_eq!(check(0, 0, &[0, 3], &[3, 1], 0), Ok(()));
        assert!(check(0, 0, &[0], &[1], 1).is_err());
    }

    #[test]
    fn one_element_outside_is_refused() {
        assert!(check(0, 23, &[2, 3], &[3, 1], 0).is_err());
        assert!(check(0, 24, &[2, 3], &[3, 1], 1).is_err());
        assert!(check(0, 24, &[2, 3], &[4, 1], 0).is_err());
    }

    #[test]
    fn numbers_that_overflow_are_refused() {
        assert!(check(0, 24, &[3, 3], &[usize::MAX, 1], 0).is_err());
        assert!(check(0, 24, &[2], &[1], usize::MAX).is_err());
    }

    #[test]
    fn alignment_and_number_of_strides() {
        assert_eq!(check(2, 24, &[2], &[1], 0).unwrap_err().1, "a multiple of 4");
        assert!(check(0, 24, &[2, 3], &[1], 0).is_err());
    }

    #[test]
    fn the_two_numberings_differ() {
        assert_eq!(acl_dtype(DType::F32).0, 0);
        assert_eq!(hccl_dtype(DType::F32).0, 4);
        assert_eq!(acl_dtype(DType::BF16).0, 27);
        assert_eq!(hccl_dtype(DType::BF16).0, 11);
    }
}
