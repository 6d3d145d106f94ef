//! HCCL: memory ranges for zero-copy collectives.
//!
//! HCCL documents these functions for the Atlas A3 only; on an Atlas A2 they return "not supported"
//! (HCCL guide, `HcclCommSetMemoryRange`). The emulator does not model them.

use std::ffi::c_void;

use ascend_tp_sys::{HcclComm, aclrtDrvMemHandle};

use crate::base::failure::{Failure, code};
use crate::machine::Machine;

impl Machine {
    fn without_zero_copy(&self, comm: HcclComm, address: &str, place: *mut c_void) -> Result<(), Failure> {
        self.member(comm)?;
        if place.is_null() {
            return Err(Failure::new(code::HCCL_PTR, format!("argument {address} is NULL")));
        }
        let soc = self.config().soc;
        let why = match soc.series() {
            "Atlas A3" => "which this emulator does not model",
            _ => "which exists on the Atlas A3 alone",
        };
        let what = format!(
            "an {} is an {}; zero-copy memory of communicators, {why}, is not needed: collectives work on any device memory",
            soc.name(),
            soc.series()
        );
        Err(Failure::new(code::HCCL_NOT_SUPPORT, what))
    }

    pub(super) fn HcclCommSetMemoryRange(
        &self,
        comm: HcclComm,
        base_vir_ptr: *mut c_void,
        _size: usize,
        _alignment: usize,
        _flags: u64,
    ) -> Result<(), Failure> {
        self.without_zero_copy(comm, "baseVirPtr", base_vir_ptr)
    }

    pub(super) fn HcclCommUnsetMemoryRange(
        &self,
        comm: HcclComm,
        base_vir_ptr: *mut c_void,
    ) -> Result<(), Failure> {
        self.without_zero_copy(comm, "baseVirPtr", base_vir_ptr)
    }

    pub(super) fn HcclCommActivateCommMemory(
        &self,
        comm: HcclComm,
        vir_ptr: *mut c_void,
        _size: usize,
        _offset: usize,
        _handle: aclrtDrvMemHandle,
        _flags: u64,
    ) -> Result<(), Failure> {
        self.without_zero_copy(comm, "virPtr", vir_ptr)
    }

    pub(super) fn HcclCommDeactivateCommMemory(
        &self,
        comm: HcclComm,
        vir_ptr: *mut c_void,
    ) -> Result<(), Failure> {
        self.without_zero_copy(comm, "virPtr", vir_ptr)
    }
}
