//! AscendCL: reserved addresses, physical memory and their mappings.
//!
//! The checks follow CANN 8.1: reserved parameters must have their one valid value, and addresses
//! and sizes are multiples of the granularity. A mapping has the size of the memory of its handle.

use std::ffi::c_void;

use ascend_tp_sys::{
    aclrtDrvMemHandle, aclrtMemAccessDesc, aclrtMemAccessFlags, aclrtMemAllocationType, aclrtMemAttr,
    aclrtMemGranularityOptions, aclrtMemHandleType, aclrtMemLocationType, aclrtPhysicalMemProp,
};

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::machine::Machine;
use crate::memory::allocation_table::MemoryShare;
use crate::memory::raw::load_array;
use crate::memory::virtual_memory::{GRANULARITY_1G_BYTES, GRANULARITY_BYTES, Physical};

fn reserved(name: &str, value: u64, documented: &str) -> Failure {
    Failure::new(code::INVALID_PARAM, format!("{name} is {value:#x}; it must be {documented}"))
}

impl Machine {
    /// # Safety
    ///
    /// `prop` is NULL or valid for a read.
    unsafe fn physical_property(&self, prop: *const aclrtPhysicalMemProp) -> Result<(u32, usize), Failure> {
        // SAFETY: the caller upholds this contract.
        let prop = unsafe { load_array("prop", prop, 1) }?[0];
        let unsupported = |what: String| Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
        if prop.handleType != aclrtMemHandleType::ACL_MEM_HANDLE_TYPE_NONE {
            return Err(reserved(
                "prop.handleType",
                u64::from(prop.handleType.0),
                "ACL_MEM_HANDLE_TYPE_NONE (0)",
            ));
        }
        if prop.allocationType != aclrtMemAllocationType::ACL_MEM_ALLOCATION_TYPE_PINNED {
            let found = u64::from(prop.allocationType.0);
            return Err(reserved("prop.allocationType", found, "ACL_MEM_ALLOCATION_TYPE_PINNED (0)"));
        }
        if prop.location.type_ != aclrtMemLocationType::ACL_MEM_LOCATION_TYPE_DEVICE {
            let found = prop.location.type_.0;
            return unsupported(format!(
                "prop.location.type {found}: only physical memory of a device (1) is modelled"
            ));
        }
        let card = self.lock().card_of_ordinal(prop.location.id.cast_signed())?;
        let granularity = match prop.memAttr {
            aclrtMemAttr::ACL_HBM_MEM_HUGE
            | aclrtMemAttr::ACL_HBM_MEM_NORMAL
            | aclrtMemAttr::ACL_MEM_NORMAL
            | aclrtMemAttr::ACL_MEM_HUGE
            | aclrtMemAttr::ACL_MEM_P2P_NORMAL
            | aclrtMemAttr::ACL_MEM_P2P_HUGE => GRANULARITY_BYTES,
            aclrtMemAttr::ACL_HBM_MEM_HUGE1G | aclrtMemAttr::ACL_MEM_HUGE1G => GRANULARITY_1G_BYTES,
            other => {
                return unsupported(format!(
                    "prop.memAttr {}: an {} offers physical device memory as ACL_HBM_MEM_HUGE 4, \
                     ACL_HBM_MEM_NORMAL 5, ACL_HBM_MEM_HUGE1G 10 and ACL_MEM_… 12 to 16",
                    other.0,
                    self.config().soc.series()
                ));
            }
        };
        Ok((card, granularity))
    }

    pub(super) unsafe fn aclrtMemGetAllocationGranularity(
        &self,
        prop: *mut aclrtPhysicalMemProp,
        option: aclrtMemGranularityOptions,
        granularity: Out<usize>,
    ) -> Result<(), Failure> {
        if option.0 > 1 {
            return Err(reserved("option", u64::from(option.0), "MINIMUM 0 or RECOMMENDED 1"));
        }
        // SAFETY: the C caller passes NULL or a property.
        let (_, found) = unsafe { self.physical_property(prop) }?;
        granularity.set("granularity", found)
    }

    pub(super) fn aclrtReserveMemAddress(
        &self,
        virtual_ptr: Out<*mut c_void>,
        size: usize,
        alignment: usize,
        expect_ptr: *mut c_void,
        flags: u64,
    ) -> Result<(), Failure> {
        if virtual_ptr.is_null() {
            return Err(Failure::null("virtual_ptr"));
        }
        if alignment != 0 {
            return Err(reserved("alignment", alignment as u64, "0 (reserved)"));
        }
        if !expect_ptr.is_null() {
            return Err(reserved("expectPtr", expect_ptr.addr() as u64, "NULL (reserved in CANN 8.1)"));
        }
        if flags > 1 {
            return Err(reserved("flags", flags, "0 (normal pages) or 1 (huge pages)"));
        }
        let base = self.memory().virtual_memory().reserve(size)?;
        virtual_ptr.set("virtual_ptr", std::ptr::with_exposed_provenance_mut(base))
    }

    pub(super) fn aclrtReleaseMemAddress(&self, virtual_ptr: *mut c_void) -> Result<(), Failure> {
        if virtual_ptr.is_null() {
            return Err(Failure::null("virtual_ptr"));
        }
        self.memory().virtual_memory().release(virtual_ptr.addr())
    }

    pub(super) unsafe fn aclrtMallocPhysical(
        &self,
        handle: Out<aclrtDrvMemHandle>,
        size: usize,
        prop: *const aclrtPhysicalMemProp,
        flags: u64,
    ) -> Result<(), Failure> {
        if handle.is_null() {
            return Err(Failure::null("handle"));
        }
        if flags != 0 {
            return Err(reserved("flags", flags, "0 (reserved)"));
        }
        if size == 0 {
            return Err(Failure::new(code::INVALID_PARAM, "size is 0; allocate at least one byte"));
        }
        self.current_card()?;
        // SAFETY: the C caller passes NULL or a property.
        let (card, granularity) = unsafe { self.physical_property(prop) }?;
        let Some(whole) = size.checked_next_multiple_of(granularity) else {
            return Err(Failure::new(
                code::MEMORY_ALLOCATION,
                format!("size {size} is beyond any card's memory"),
            ));
        };
        let charge = self.memory().charge(card, MemoryShare::Physical, whole as u64)?;
        let physical =
            Physical::new(card, size, granularity, self.memory().store(), charge).map_err(|error| {
                Failure::new(
                    code::MEMORY_ALLOCATION,
                    format!("this host has no memory for {size} bytes: {error}"),
                )
            })?;
        let number = self.update(crate::state::MachineState::fresh_number);
        self.memory().virtual_memory().keep(number, physical);
        handle.set("handle", HandleKind::Physical.encode(number))
    }

    /// Mapped memory is freed when it is unmapped.
    pub(super) fn aclrtFreePhysical(&self, handle: aclrtDrvMemHandle) -> Result<(), Failure> {
        let number = HandleKind::Physical.decode(handle)?;
        self.memory().virtual_memory().free(number)
    }

    pub(super) fn aclrtMapMem(
        &self,
        virtual_ptr: *mut c_void,
        size: usize,
        offset: usize,
        handle: aclrtDrvMemHandle,
        flags: u64,
    ) -> Result<(), Failure> {
        if virtual_ptr.is_null() {
            return Err(Failure::null("virtual_ptr"));
        }
        if offset != 0 {
            return Err(reserved("offset", offset as u64, "0 (reserved)"));
        }
        if flags != 0 {
            return Err(reserved("flags", flags, "0 (reserved)"));
        }
        let number = HandleKind::Physical.decode(handle)?;
        self.memory().virtual_memory().map(virtual_ptr.addr(), size, number)
    }

    pub(super) fn aclrtUnmapMem(&self, virtual_ptr: *mut c_void) -> Result<(), Failure> {
        if virtual_ptr.is_null() {
            return Err(Failure::null("virtual_ptr"));
        }
        self.memory().virtual_memory().unmap(virtual_ptr.addr())
    }

    /// A mapping is always readable and writable by its device; no other access is supported.
    pub(super) unsafe fn aclrtMemSetAccess(
        &self,
        virtual_ptr: *mut c_void,
        size: usize,
        desc: *mut aclrtMemAccessDesc,
        count: usize,
    ) -> Result<(), Failure> {
        if virtual_ptr.is_null() {
            return Err(Failure::null("virtual_ptr"));
        }
        if count == 0 {
            return Err(Failure::new(code::INVALID_PARAM, "count is 0; give at least one description"));
        }
        // SAFETY: the C caller passes NULL or `count` descriptions.
        let descriptions = unsafe { load_array("desc", desc, count) }?;
        let card = self.memory().virtual_memory().mapped_card(virtual_ptr.addr(), size)?;
        for (at, one) in descriptions.iter().enumerate() {
            if one.flags != aclrtMemAccessFlags::ACL_RT_MEM_ACCESS_FLAGS_READWRITE {
                let what = format!("desc[{at}].flags {}: only READWRITE (3) is modelled", one.flags.0);
                return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
            }
            if one.location.type_ != aclrtMemLocationType::ACL_MEM_LOCATION_TYPE_DEVICE {
                let found = one.location.type_.0;
                let what =
                    format!("desc[{at}].location.type {found}: only access from a device (1) is modelled");
                return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
            }
            let from = self.lock().card_of_ordinal(one.location.id.cast_signed())?;
            if from != card && !self.lock().runtime.cards[from as usize].peers.contains(&card) {
                let what = format!(
                    "desc[{at}].location: device {from} would reach memory of device {card}; call \
                     aclrtDeviceEnablePeerAccess({card}) on device {from} first"
                );
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
        }
        Ok(())
    }
}
