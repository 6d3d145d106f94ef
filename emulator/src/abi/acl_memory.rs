//! AscendCL: memory, copies and fills.
//!
//! The pointers decide the direction of a copy; `kind` is advisory. A pointer that `kind` declares
//! as device memory must be known, so a stale pointer is not read as host memory. Copies with
//! page-locked host memory are asynchronous; with pageable memory the call returns after the copy.

use std::ffi::c_void;
use std::sync::Arc;

use ascend_tp_machine::launch::Access as AccessKind;
use ascend_tp_sys::{
    aclrtCmoType, aclrtMallocAttrType, aclrtMallocConfig, aclrtMemLocation, aclrtMemLocationType,
    aclrtMemMallocPolicy, aclrtMemcpyKind, aclrtPtrAttributes, aclrtStream,
};

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::base::report::ReportKind;
use crate::machine::Machine;
use crate::memory::access::MemoryAccess;
use crate::memory::copy::{Copy, fill_on};
use crate::memory::location::Location;
use crate::memory::pages::page_bytes;
use crate::memory::raw::{RawSpan, load_array};
use crate::memory::store::FreedBy;
use crate::scheduler::pool::StreamTask;
use crate::scheduler::pool::Without;
use crate::timed::VirtualCost;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopySide {
    Host,
    Device,
    /// `ACL_MEMCPY_DEFAULT`: the pointer decides.
    ByPointer,
}

fn sides(kind: aclrtMemcpyKind) -> Result<(CopySide, CopySide), Failure> {
    Ok(match kind {
        aclrtMemcpyKind::ACL_MEMCPY_HOST_TO_HOST => (CopySide::Host, CopySide::Host),
        aclrtMemcpyKind::ACL_MEMCPY_HOST_TO_DEVICE => (CopySide::Device, CopySide::Host),
        aclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_HOST => (CopySide::Host, CopySide::Device),
        aclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_DEVICE => (CopySide::Device, CopySide::Device),
        aclrtMemcpyKind::ACL_MEMCPY_DEFAULT => (CopySide::ByPointer, CopySide::ByPointer),
        other => {
            let what = format!("kind {} is none of H2H 0, H2D 1, D2H 2, D2D 3, DEFAULT 4", other.0);
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyTiming {
    Now,
    OnStream(aclrtStream),
}

/// Rows of a 2-D copy, by the names of the C function.
#[derive(Debug, Clone, Copy)]
struct CopiedRows {
    dst: *mut c_void,
    dpitch: usize,
    src: *const c_void,
    spitch: usize,
    width: usize,
    height: usize,
}

impl Machine {
    pub(super) fn aclrtMalloc(
        &self,
        dev_ptr: Out<*mut c_void>,
        size: usize,
        policy: aclrtMemMallocPolicy,
    ) -> Result<(), Failure> {
        if dev_ptr.is_null() {
            return Err(Failure::null("dev_ptr"));
        }
        if policy.0 & !0x1100 > 7 {
            let what = format!("policy {:#x} is no aclrtMemMallocPolicy", policy.0);
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        let card = self.current_card()?;
        self.refuse_allocation_in_capture()?;
        let allocation = self.memory().allocate(size, Location::Card(card), self.here())?;
        dev_ptr.set("dev_ptr", std::ptr::with_exposed_provenance_mut(allocation.base()))
    }

    pub(super) fn aclrtMallocAlign32(
        &self,
        dev_ptr: Out<*mut c_void>,
        size: usize,
        policy: aclrtMemMallocPolicy,
    ) -> Result<(), Failure> {
        self.aclrtMalloc(dev_ptr, size, policy)
    }

    pub(super) fn aclrtMallocCached(
        &self,
        dev_ptr: Out<*mut c_void>,
        size: usize,
        policy: aclrtMemMallocPolicy,
    ) -> Result<(), Failure> {
        self.aclrtMalloc(dev_ptr, size, policy)
    }

    /// The known attributes (module id) have no visible effect.
    pub(super) fn aclrtMallocWithCfg(
        &self,
        dev_ptr: Out<*mut c_void>,
        size: usize,
        policy: aclrtMemMallocPolicy,
        cfg: *mut aclrtMallocConfig,
    ) -> Result<(), Failure> {
        if !cfg.is_null() {
            let what = "a malloc configuration is not modelled; pass NULL";
            return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
        }
        self.aclrtMalloc(dev_ptr, size, policy)
    }

    pub(super) fn aclrtFree(&self, dev_ptr: *mut c_void) -> Result<(), Failure> {
        if dev_ptr.is_null() {
            return Err(Failure::null("dev_ptr"));
        }
        self.free(dev_ptr.addr(), FreedBy::Device)
    }

    pub(super) fn aclrtMallocHost(&self, host_ptr: Out<*mut c_void>, size: usize) -> Result<(), Failure> {
        if host_ptr.is_null() {
            return Err(Failure::null("host_ptr"));
        }
        self.lock().require_initialized()?;
        let allocation = self.memory().allocate(size, Location::Host, self.here())?;
        host_ptr.set("host_ptr", std::ptr::with_exposed_provenance_mut(allocation.base()))
    }

    /// The known attributes (module, device, virtual address) have no visible effect.
    pub(super) unsafe fn aclrtMallocHostWithCfg(
        &self,
        ptr: Out<*mut c_void>,
        size: u64,
        cfg: *mut aclrtMallocConfig,
    ) -> Result<(), Failure> {
        if !cfg.is_null() {
            // SAFETY: not NULL, so a configuration of the C caller.
            let given = unsafe { cfg.read() };
            // SAFETY: the configuration has `numAttrs` attributes.
            let attributes = unsafe { load_array("cfg->attrs", given.attrs, given.numAttrs) }?;
            let known =
                aclrtMallocAttrType::ACL_RT_MEM_ATTR_RSV.0..=aclrtMallocAttrType::ACL_RT_MEM_ATTR_VA_FLAG.0;
            if let Some(other) = attributes.iter().find(|attribute| !known.contains(&attribute.attr.0)) {
                let what = format!("cfg: attribute {} is none of 0 to 3", other.attr.0);
                return Err(Failure::new(code::INVALID_PARAM, what));
            }
        }
        self.aclrtMallocHost(ptr, size as usize)
    }

    pub(super) fn aclrtFreeHost(&self, host_ptr: *mut c_void) -> Result<(), Failure> {
        if host_ptr.is_null() {
            return Err(Failure::null("host_ptr"));
        }
        self.free(host_ptr.addr(), FreedBy::Host)
    }

    fn free(&self, address: usize, by: FreedBy) -> Result<(), Failure> {
        let site = self.here();
        let freed = self.memory().free(address, by, site.as_ref())?;
        self.check_freed(freed.as_deref(), site.as_ref());
        Ok(())
    }

    pub(super) fn aclrtPointerGetAttributes(
        &self,
        ptr: *const c_void,
        attributes: Out<aclrtPtrAttributes>,
    ) -> Result<(), Failure> {
        if ptr.is_null() {
            return Err(Failure::null("ptr"));
        }
        let location = match self.memory().find(ptr.addr(), 0)? {
            Some(span) => match span.card() {
                Some(card) => {
                    aclrtMemLocation { id: card, type_: aclrtMemLocationType::ACL_MEM_LOCATION_TYPE_DEVICE }
                }
                None => aclrtMemLocation { id: 0, type_: aclrtMemLocationType::ACL_MEM_LOCATION_TYPE_HOST },
            },
            None => {
                aclrtMemLocation { id: 0, type_: aclrtMemLocationType::ACL_MEM_LOCATION_TYPE_UNREGISTERED }
            }
        };
        let page_size = page_bytes() as u32;
        let answer = aclrtPtrAttributes { location, pageSize: page_size, rsv: Default::default() };
        attributes.set("attributes", answer)
    }

    pub(super) unsafe fn aclrtMemcpy(
        &self,
        dst: *mut c_void,
        dest_max: usize,
        src: *const c_void,
        count: usize,
        kind: aclrtMemcpyKind,
    ) -> Result<(), Failure> {
        // SAFETY: the caller upholds this contract.
        unsafe { self.copy_linear(dst, dest_max, src, count, kind, CopyTiming::Now) }
    }

    pub(super) unsafe fn aclrtMemcpyAsync(
        &self,
        dst: *mut c_void,
        dest_max: usize,
        src: *const c_void,
        count: usize,
        kind: aclrtMemcpyKind,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        // SAFETY: the caller upholds this contract.
        unsafe { self.copy_linear(dst, dest_max, src, count, kind, CopyTiming::OnStream(stream)) }
    }

    /// As `aclrtMemcpyAsync`, which takes pageable memory too.
    pub(super) unsafe fn aclrtMemcpyAsyncWithCondition(
        &self,
        dst: *mut c_void,
        dest_max: usize,
        src: *const c_void,
        count: usize,
        kind: aclrtMemcpyKind,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        // SAFETY: the caller upholds this contract.
        unsafe { self.copy_linear(dst, dest_max, src, count, kind, CopyTiming::OnStream(stream)) }
    }

    /// A prefetch into the cache changes no byte.
    pub(super) fn aclrtCmoAsync(
        &self,
        src: *mut c_void,
        size: usize,
        cmo_type: aclrtCmoType,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        if cmo_type != aclrtCmoType::ACL_RT_CMO_TYPE_PREFETCH {
            let what = format!("cmo_type {}: only ACL_RT_CMO_TYPE_PREFETCH (0) is supported", cmo_type.0);
            return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
        }
        let card = self.stream_card(stream)?;
        let owner = self.memory().device_span(src.addr(), size)?.card();
        if owner == Some(card) {
            return Ok(());
        }
        let what = format!("src: expected memory of card {card}, found {owner:?}");
        Err(Failure::new(code::PARAM_INVALID, what))
    }

    unsafe fn copy_linear(
        &self,
        dst: *mut c_void,
        dest_max: usize,
        src: *const c_void,
        count: usize,
        kind: aclrtMemcpyKind,
        order: CopyTiming,
    ) -> Result<(), Failure> {
        if count > dest_max {
            let what = format!("count is {count} bytes, more than destMax, {dest_max}");
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        let (to, from) = sides(kind)?;
        // SAFETY: the C caller guarantees `count` bytes at both addresses.
        let into = unsafe { self.side(dst, count, to, "dst") }?;
        // SAFETY: as above.
        let from = unsafe { self.side(src.cast_mut(), count, from, "src") }?;
        self.start_copy(Copy::linear(into, from, count), order)
    }

    pub(super) unsafe fn aclrtMemcpy2d(
        &self,
        dst: *mut c_void,
        dpitch: usize,
        src: *const c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: aclrtMemcpyKind,
    ) -> Result<(), Failure> {
        let rows = CopiedRows { dst, dpitch, src, spitch, width, height };
        // SAFETY: the caller upholds this contract.
        unsafe { self.copy_rows(&rows, kind, CopyTiming::Now) }
    }

    pub(super) unsafe fn aclrtMemcpy2dAsync(
        &self,
        dst: *mut c_void,
        dpitch: usize,
        src: *const c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: aclrtMemcpyKind,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let rows = CopiedRows { dst, dpitch, src, spitch, width, height };
        // SAFETY: the caller upholds this contract.
        unsafe { self.copy_rows(&rows, kind, CopyTiming::OnStream(stream)) }
    }

    unsafe fn copy_rows(
        &self,
        rows: &CopiedRows,
        kind: aclrtMemcpyKind,
        order: CopyTiming,
    ) -> Result<(), Failure> {
        let CopiedRows { dst, dpitch, src, spitch, width, height } = *rows;
        if width == 0 || height == 0 || width > dpitch || width > spitch {
            let what = format!(
                "width {width} and height {height} must be more than 0, and width at most dpitch {dpitch} and spitch {spitch}"
            );
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        let (to, from) = sides(kind)?;
        if !matches!(
            (to, from),
            (CopySide::Device, CopySide::Host)
                | (CopySide::Host, CopySide::Device)
                | (CopySide::Device, CopySide::Device)
        ) {
            let what =
                "2-D copies go from host to device, device to host or device to device (kind 1, 2 or 3)";
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        let extent =
            |pitch: usize| (height - 1).checked_mul(pitch).and_then(|bytes| bytes.checked_add(width));
        let (Some(into_bytes), Some(from_bytes)) = (extent(dpitch), extent(spitch)) else {
            return Err(Failure::new(code::PARAM_INVALID, "pitch times height overflows"));
        };
        // SAFETY: the C caller guarantees the rows at both addresses.
        let into = unsafe { self.side(dst, into_bytes, to, "dst") }?;
        // SAFETY: as above.
        let from = unsafe { self.side(src.cast_mut(), from_bytes, from, "src") }?;
        self.start_copy(Copy { into, into_pitch: dpitch, from, from_pitch: spitch, width, height }, order)
    }

    /// # Safety
    ///
    /// If `address` is not memory of this machine, the C caller guarantees `bytes` bytes there.
    pub(super) unsafe fn side(
        &self,
        address: *mut c_void,
        bytes: usize,
        side: CopySide,
        argument: &str,
    ) -> Result<RawSpan, Failure> {
        if address.is_null() {
            return Err(Failure::null(argument));
        }
        let named =
            |failure: Failure| Failure { message: format!("{argument}: {}", failure.message), ..failure };
        match self.memory().find(address.addr(), bytes).map_err(named)? {
            Some(span) => Ok(span),
            None if side == CopySide::Device => Err(named(
                self.memory()
                    .device_span(address.addr(), bytes)
                    .err()
                    .unwrap_or_else(|| Failure::null(argument)),
            )),
            // SAFETY: the caller guarantees the bytes.
            None => Ok(unsafe { RawSpan::pageable(address.cast(), bytes) }),
        }
    }

    pub(super) fn start_copy(&self, copy: Copy, order: CopyTiming) -> Result<(), Failure> {
        self.check_peers(&copy)?;
        match order {
            CopyTiming::Now => {
                self.current_card()?;
                self.refuse_unsafe_in_capture()?;
                self.host_touches(|| copy.accesses());
                self.spend_on("aclrtMemcpy", &VirtualCost::Copy(&copy));
                if self.has_numbers() {
                    copy.run();
                } else {
                    copy.run_without_numbers();
                }
                self.host_wrote();
                Ok(())
            }
            CopyTiming::OnStream(stream) => {
                if copy.into.card().is_none() && copy.from.card().is_none() {
                    let what = "an asynchronous copy from host to host is not offered; use aclrtMemcpy";
                    return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
                }
                let waits = copy.into.is_pageable() || copy.from.is_pageable();
                if waits {
                    self.refuse_blocking_copy(self.stream(stream)?)?;
                }
                let accesses = self.watched(|| copy.accesses());
                let (cost, without) = (copy.clone(), copy.without_numbers());
                let has_numbers = self.has_numbers();
                let task: StreamTask = Arc::new(move |workers| {
                    if has_numbers {
                        copy.run_on(workers);
                    } else {
                        copy.run_without_numbers();
                    }
                    Ok(())
                });
                let entry = self.work("aclrtMemcpyAsync", &VirtualCost::Copy(&cost), without, task);
                let id = self.enqueue(stream, entry, accesses)?;
                if waits { self.synchronize_stream(id, None) } else { Ok(()) }
            }
        }
    }

    /// Peer access may be enabled in either direction.
    fn check_peers(&self, copy: &Copy) -> Result<(), Failure> {
        let (Some(into), Some(from)) = (copy.into.card(), copy.from.card()) else { return Ok(()) };
        if into == from {
            return Ok(());
        }
        let state = self.lock();
        let enabled = |a: u32, b: u32| state.runtime.cards[a as usize].peers.contains(&b);
        if enabled(into, from) || enabled(from, into) {
            return Ok(());
        }
        let what = format!(
            "src is on card {from}, dst on card {into}, and peer access between them is not enabled; call \
             aclrtDeviceEnablePeerAccess first"
        );
        Err(Failure::new(code::PARAM_INVALID, what).found(ReportKind::WrongContext, Vec::new()))
    }

    pub(super) unsafe fn aclrtMemset(
        &self,
        dev_ptr: *mut c_void,
        max_count: usize,
        value: i32,
        count: usize,
    ) -> Result<(), Failure> {
        self.current_card()?;
        self.refuse_unsafe_in_capture()?;
        // SAFETY: the caller upholds this contract.
        let span = unsafe { self.fill_span(dev_ptr, max_count, count) }?;
        self.host_touches(|| vec![MemoryAccess::write("dev_ptr", &span)]);
        // Only the low byte of `value` counts, as in memset.
        if span.card().is_some() {
            self.spend_on("aclrtMemset", &VirtualCost::Pass(count, &[AccessKind::Write]));
        }
        if self.has_numbers() || span.card().is_none() {
            span.fill(value as u8);
        }
        self.host_wrote();
        Ok(())
    }

    /// Streams may wait for a value that the calling thread has written.
    fn host_wrote(&self) {
        self.update(|_| ());
    }

    pub(super) unsafe fn aclrtMemsetAsync(
        &self,
        dev_ptr: *mut c_void,
        max_count: usize,
        value: i32,
        count: usize,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        // SAFETY: the caller upholds this contract.
        let span = unsafe { self.fill_span(dev_ptr, max_count, count) }?;
        let waits = span.is_pageable();
        if waits {
            self.refuse_blocking_copy(self.stream(stream)?)?;
        }
        let accesses = self.watched(|| vec![MemoryAccess::write("dev_ptr", &span)]);
        let without = if span.card().is_none() { Without::Same } else { Without::Nothing };
        let task: StreamTask = Arc::new(move |workers| {
            fill_on(&span, value as u8, workers);
            Ok(())
        });
        let entry =
            self.work("aclrtMemsetAsync", &VirtualCost::Pass(count, &[AccessKind::Write]), without, task);
        let id = self.enqueue(stream, entry, accesses)?;
        if waits { self.synchronize_stream(id, None) } else { Ok(()) }
    }

    unsafe fn fill_span(
        &self,
        dev_ptr: *mut c_void,
        max_count: usize,
        count: usize,
    ) -> Result<RawSpan, Failure> {
        if count > max_count {
            let what = format!("count is {count} bytes, more than maxCount, {max_count}");
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        // SAFETY: the caller upholds this contract.
        unsafe { self.side(dev_ptr, count, CopySide::ByPointer, "dev_ptr") }
    }
}
