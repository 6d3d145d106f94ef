//! AscendCL: registered host memory of the program.
//!
//! It is page-locked. Its copies are asynchronous and bounds-checked. Its device address equals its
//! host address. Operators do not accept registered memory.

use std::ffi::c_void;
use std::ptr::NonNull;

use ascend_tp_sys::aclrtHostRegisterType;

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::machine::Machine;
use crate::memory::raw::Allocation;

/// `ACL_HOST_REG_MAPPED` and `ACL_HOST_REG_PINNED`; the other flags are for other chips.
const REGISTER_FLAGS: u32 = 0x1000_0002;

impl Machine {
    pub(super) unsafe fn aclrtHostRegister(
        &self,
        ptr: *mut c_void,
        size: u64,
        type_: aclrtHostRegisterType,
        dev_ptr: Out<*mut c_void>,
    ) -> Result<(), Failure> {
        if dev_ptr.is_null() {
            return Err(Failure::null("dev_ptr"));
        }
        if type_ != aclrtHostRegisterType::ACL_HOST_REGISTER_MAPPED {
            let what = format!("type {}: only ACL_HOST_REGISTER_MAPPED (0) is modelled", type_.0);
            return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
        }
        // SAFETY: the caller upholds this contract.
        unsafe { self.register_host(ptr, size) }?;
        dev_ptr.set("dev_ptr", ptr)
    }

    pub(super) unsafe fn aclrtHostRegisterV2(
        &self,
        ptr: *mut c_void,
        size: u64,
        flag: u32,
    ) -> Result<(), Failure> {
        if flag == 0 || flag & !REGISTER_FLAGS != 0 {
            let what = format!(
                "flag {flag:#x}: expected ACL_HOST_REG_MAPPED 0x2, ACL_HOST_REG_PINNED 0x10000000 or their sum"
            );
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        // SAFETY: the caller upholds this contract.
        unsafe { self.register_host(ptr, size) }
    }

    /// # Safety
    ///
    /// `size` bytes at `ptr` are valid until they are unregistered.
    unsafe fn register_host(&self, ptr: *mut c_void, size: u64) -> Result<(), Failure> {
        if size == 0 {
            return Err(Failure::new(code::INVALID_PARAM, "size is 0; register at least one byte"));
        }
        self.current_card()?;
        let bytes = NonNull::new(ptr.cast::<u8>()).ok_or_else(|| Failure::null("ptr"))?;
        // SAFETY: the C caller guarantees `size` bytes at `ptr` until it unregisters them.
        let registered = unsafe { Allocation::registered(bytes, size as usize) };
        self.memory().register(registered)
    }

    pub(super) fn aclrtHostGetDevicePointer(
        &self,
        p_host: *mut c_void,
        p_device: Out<*mut c_void>,
        flag: u32,
    ) -> Result<(), Failure> {
        if p_host.is_null() {
            return Err(Failure::null("p_host"));
        }
        if flag != 0 {
            return Err(Failure::new(code::INVALID_PARAM, format!("flag: expected 0, found {flag}")));
        }
        match self.memory().find(p_host.addr(), 1)? {
            Some(span) if span.card().is_none() => p_device.set("p_device", p_host),
            _ => {
                let what = format!(
                    "p_host: {:#x} is not registered host memory; call aclrtHostRegisterV2 first",
                    p_host.addr()
                );
                Err(Failure::new(code::PARAM_INVALID, what))
            }
        }
    }

    pub(super) fn aclrtHostUnregister(&self, ptr: *mut c_void) -> Result<(), Failure> {
        if ptr.is_null() {
            return Err(Failure::null("ptr"));
        }
        self.memory().virtual_memory().unregister(ptr.addr())
    }
}
