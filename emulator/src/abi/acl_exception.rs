//! AscendCL: callbacks for failed tasks.
//!
//! The callback runs on a separate thread, once for every failed task. Its argument is valid while
//! the callback runs (AscendCL guide, aclrtSetExceptionInfoCallback).

use std::sync::Arc;

use ascend_tp_sys::{aclrtExceptionInfo, aclrtExceptionInfoCallback};

use crate::base::failure::Failure;
use crate::machine::Machine;
use crate::runtime::exception::{ExceptionCallback, FailedTask};

impl Machine {
    /// Registers the callback; NULL removes it.
    pub(super) unsafe fn aclrtSetExceptionInfoCallback(
        &self,
        callback: aclrtExceptionInfoCallback,
    ) -> Result<(), Failure> {
        let callback = callback.map(|function| -> ExceptionCallback {
            Arc::new(move |mut failed: FailedTask| {
                let info = std::ptr::from_mut(&mut failed).cast::<aclrtExceptionInfo>();
                // SAFETY: the program registered this function; `info` lives until it returns.
                unsafe { function(info) };
            })
        });
        self.update(|state| state.runtime.exceptions.callback = callback);
        Ok(())
    }

    pub(super) unsafe fn aclrtGetTaskIdFromExceptionInfo(
        &self,
        info: *const aclrtExceptionInfo,
    ) -> Result<u32, Failure> {
        // SAFETY: the caller upholds this contract.
        unsafe { failed_task(info) }.map(|failed| failed.task)
    }

    pub(super) unsafe fn aclrtGetStreamIdFromExceptionInfo(
        &self,
        info: *const aclrtExceptionInfo,
    ) -> Result<u32, Failure> {
        // SAFETY: the caller upholds this contract.
        unsafe { failed_task(info) }.map(|failed| failed.stream)
    }

    pub(super) unsafe fn aclrtGetThreadIdFromExceptionInfo(
        &self,
        info: *const aclrtExceptionInfo,
    ) -> Result<u32, Failure> {
        // SAFETY: the caller upholds this contract.
        unsafe { failed_task(info) }.map(|failed| failed.thread)
    }

    pub(super) unsafe fn aclrtGetDeviceIdFromExceptionInfo(
        &self,
        info: *const aclrtExceptionInfo,
    ) -> Result<u32, Failure> {
        // SAFETY: the caller upholds this contract.
        unsafe { failed_task(info) }.map(|failed| failed.card)
    }

    pub(super) unsafe fn aclrtGetErrorCodeFromExceptionInfo(
        &self,
        info: *const aclrtExceptionInfo,
    ) -> Result<u32, Failure> {
        // SAFETY: the caller upholds this contract.
        unsafe { failed_task(info) }.map(|failed| failed.code.cast_unsigned())
    }
}

/// # Safety
/// `info` is NULL or the argument of a callback that is still running.
unsafe fn failed_task(info: *const aclrtExceptionInfo) -> Result<FailedTask, Failure> {
    if info.is_null() {
        return Err(Failure::null("info"));
    }
    // SAFETY: not NULL, so a live `FailedTask` by this function's contract.
    Ok(unsafe { info.cast::<FailedTask>().read() })
}
