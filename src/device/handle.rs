//! C handles that can move between threads.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use ascend_tp_sys::{aclIntArray, aclScalar};

use super::card::Device;
use super::error::Result;
use crate::base::Number;

/// An opaque handle or a device address, never dereferenced by this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle(pub(super) *mut c_void);

// SAFETY: the pointer is only passed back to the library that made it. AscendCL and HCCL allow the
// use of a handle on any thread if the context of the handle's device is current. `Device::enter`
// ensures this.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`; the runtime locks its objects itself.
unsafe impl Sync for Handle {}

impl Handle {
    pub(super) const NULL: Self = Self(std::ptr::null_mut());
}

/// An owned aclnn object.
#[derive(Debug)]
pub(super) struct AclnnObject<T>(NonNull<T>);

// SAFETY: aclnn objects are plain host memory without thread affinity.
unsafe impl<T> Send for AclnnObject<T> {}
// SAFETY: all calls that read such an object run under `Device::planning`, one at a time.
unsafe impl<T> Sync for AclnnObject<T> {}

impl<T> AclnnObject<T> {
    /// NULL is an error of the C function.
    pub(super) fn made(device: &Device, function: &'static str, pointer: *mut T) -> Result<Self> {
        NonNull::new(pointer).map(Self).ok_or_else(|| device.call_error(function, 0))
    }

    pub(super) const fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

#[derive(Clone, Debug)]
pub(super) struct ScalarHandle(Arc<OwnedScalar>);

#[derive(Debug)]
struct OwnedScalar {
    device: Arc<Device>,
    object: AclnnObject<aclScalar>,
}

impl ScalarHandle {
    pub(super) fn new(device: &Arc<Device>, value: Number) -> Result<Self> {
        let table = device.enter()?;
        let _planning = device.planning();
        let pointer = match value {
            Number::Float(value) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "documented: a float constant has 32 bits"
                )]
                let mut value = value as f32;
                // SAFETY: the value outlives the call, which copies it.
                unsafe {
                    (table.aclCreateScalar)((&raw mut value).cast(), ascend_tp_sys::aclDataType::ACL_FLOAT)
                }
            }
            Number::Int(mut value) => {
                // SAFETY: the value outlives the call, which copies it.
                unsafe {
                    (table.aclCreateScalar)((&raw mut value).cast(), ascend_tp_sys::aclDataType::ACL_INT64)
                }
            }
        };
        let object = AclnnObject::made(device, "aclCreateScalar", pointer)?;
        Ok(Self(Arc::new(OwnedScalar { device: Arc::clone(device), object })))
    }

    pub(super) fn as_ptr(&self) -> *mut aclScalar {
        self.0.object.as_ptr()
    }
}

impl Drop for OwnedScalar {
    fn drop(&mut self) {
        let _planning = self.device.planning();
        // SAFETY: the object was made by `aclCreateScalar` and this is its only owner.
        let status = unsafe { (self.device.table().aclDestroyScalar)(self.object.as_ptr()) };
        self.device.park("aclDestroyScalar", status);
    }
}

#[derive(Clone, Debug)]
pub(super) struct IntArray(Arc<OwnedIntArray>);

#[derive(Debug)]
struct OwnedIntArray {
    device: Arc<Device>,
    object: AclnnObject<aclIntArray>,
}

impl IntArray {
    pub(super) fn new(device: &Arc<Device>, values: &[i64]) -> Result<Self> {
        let table = device.enter()?;
        let _planning = device.planning();
        // SAFETY: pointer and length describe one slice; the call copies it.
        let pointer = unsafe { (table.aclCreateIntArray)(values.as_ptr(), values.len() as u64) };
        let object = AclnnObject::made(device, "aclCreateIntArray", pointer)?;
        Ok(Self(Arc::new(OwnedIntArray { device: Arc::clone(device), object })))
    }

    pub(super) fn as_ptr(&self) -> *mut aclIntArray {
        self.0.object.as_ptr()
    }
}

impl Drop for OwnedIntArray {
    fn drop(&mut self) {
        let _planning = self.device.planning();
        // SAFETY: the object was made by `aclCreateIntArray` and this is its only owner.
        let status = unsafe { (self.device.table().aclDestroyIntArray)(self.object.as_ptr()) };
        self.device.park("aclDestroyIntArray", status);
    }
}
