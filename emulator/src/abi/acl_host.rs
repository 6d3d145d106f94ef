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
        if size == 0 {
            return Err(Failure::new(code::INVALID_PARAM, "size is 0; register at least one byte"));
        }
        self.current_card()?;
        let bytes = NonNull::new(ptr.cast::<u8>()).ok_or_else(|| Failure::null("ptr"))?;
        // SAFETY: the C caller guarantees `size` bytes at `ptr` until it unregisters them.
        let registered = unsafe { Allocation::registered(bytes, size as usize) };
        self.memory().register(registered)?;
        dev_ptr.set("dev_ptr", ptr)
    }

    pub(super) fn aclrtHostUnregister(&self, ptr: *mut c_void) -> Result<(), Failure> {
        if ptr.is_null() {
            return Err(Failure::null("ptr"));
        }
        self.memory().virtual_memory().unregister(ptr.addr())
    }
}
