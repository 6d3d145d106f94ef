//! AscendCL: memory shared between processes of one host, by key and by shareable handle.

use std::ffi::{c_char, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use ascend_tp_sys::{aclrtDrvMemHandle, aclrtMemHandleType, aclrtMemSharedHandleType};

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::config::Sharing;
use crate::machine::Machine;
use crate::memory::ipc::{ExportedMemory, IpcName, IpcRecord, KEY_BYTES};
use crate::memory::location::Location;
use crate::memory::pages::{PAGE_BYTES, PageContent, Range};
use crate::memory::place::{FilePart, PeerBuffer};
use crate::memory::raw::{Allocation, load_array, load_text};
use crate::memory::virtual_memory::Physical;

/// Flag 0 restricts the importing processes, flag 1 does not.
fn validates(flags: u64) -> Result<bool, Failure> {
    match flags {
        0 => Ok(true),
        1 => Ok(false),
        _ => {
            let what = format!("flags is {flags:#x}; it must be 0 (default) or 1 (DISABLE_PID_VALIDATION)");
            Err(Failure::new(code::INVALID_PARAM, what))
        }
    }
}

fn no_memory(error: &std::io::Error) -> Failure {
    Failure::new(code::MEMORY_ALLOCATION, format!("this host cannot share the memory: {error}"))
}

impl Machine {
    pub(super) unsafe fn aclrtIpcMemGetExportKey(
        &self,
        dev_ptr: *mut c_void,
        size: usize,
        key: Out<c_char>,
        len: usize,
        flags: u64,
    ) -> Result<(), Failure> {
        if key.is_null() {
            return Err(Failure::null("key"));
        }
        if len != KEY_BYTES {
            return Err(Failure::new(code::INVALID_PARAM, format!("len is {len}; it must be {KEY_BYTES}")));
        }
        let validates = validates(flags)?;
        if size == 0 {
            return Err(Failure::new(code::INVALID_PARAM, "size is 0; share at least one byte"));
        }
        let span = self.device_span(dev_ptr, size)?;
        let (Some(allocation), Some(card)) = (span.allocation(), span.card()) else {
            return Err(Failure::new(code::INTERNAL, "device memory without an allocation"));
        };
        let Some(PeerBuffer::Whole(place)) = self.memory().place(&span) else {
            let what = match self.memory().sharing() {
                Sharing::Host => {
                    "devPtr: only memory of aclrtMalloc is shared by key; share mapped memory by its handle \
                     (aclrtMemExportToShareableHandle)"
                }
                Sharing::Process => {
                    "devPtr: this machine was built with Sharing::Process, so its cards' memory is this process's alone; \
                     build it with Sharing::Host"
                }
            };
            return Err(Failure::new(code::PARAM_INVALID, what));
        };
        let offset = place.at % PAGE_BYTES as u64;
        let file = u64::from(self.memory().store().file().as_raw_fd().cast_unsigned());
        let (at, size, card) = (place.at - offset, size as u64, u64::from(card));
        let shared = ExportedMemory { file, at, offset, size, card, granularity: 0 };
        let record = IpcRecord::new(shared, validates)?;
        let text = record.name().key();
        self.memory().virtual_memory().exports.push((allocation.base(), record));
        // SAFETY: the C caller passes 65 characters.
        unsafe { key.of::<[u8; KEY_BYTES]>() }.set("key", text)
    }

    pub(super) unsafe fn aclrtIpcMemSetImportPid(
        &self,
        key: *const c_char,
        pid: *mut i32,
        num: usize,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes NULL or a C string.
        let name = IpcName::of_key(&unsafe { load_text("key", key) }?)?;
        // SAFETY: the C caller passes NULL or `num` numbers.
        let pids = unsafe { load_array("pid", pid, num) }?;
        let memory = self.memory().virtual_memory();
        let export = memory.exports.iter().find(|(_, record)| record.name() == name);
        let Some((_, record)) = export else {
            return Err(Failure::new(
                code::PARAM_INVALID,
                "key: this process has not exported it, or has closed it",
            ));
        };
        record.admit(&pids)
    }

    pub(super) unsafe fn aclrtIpcMemImportByKey(
        &self,
        dev_ptr: Out<*mut c_void>,
        key: *const c_char,
        flags: u64,
    ) -> Result<(), Failure> {
        if dev_ptr.is_null() {
            return Err(Failure::null("dev_ptr"));
        }
        if flags > 1 {
            let what = format!("flags is {flags:#x}; it must be 0 (default) or 1 (ENABLE_PEER_ACCESS)");
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        let current = self.current_card()?;
        // SAFETY: the C caller passes NULL or a C string.
        let name = IpcName::of_key(&unsafe { load_text("key", key) }?)?;
        let (record, shared, file) = IpcRecord::open(name)?;
        if shared.granularity != 0 {
            let what = "key: it names an event or notify and no memory; import it by aclrtNotifyImportByKey";
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        let card = self.lock().card_of_ordinal(i32::try_from(shared.card).unwrap_or(-1))?;
        let (offset, size) = (shared.offset as usize, shared.size as usize);
        let len = (offset + size).next_multiple_of(PAGE_BYTES);
        let range = Range::reserve(len, PAGE_BYTES).map_err(|error| no_memory(&error))?;
        range.show(0, len, PageContent::File(&file, shared.at)).map_err(|error| no_memory(&error))?;
        record.count_importer(1)?;
        let listed = FilePart { file: &file, at: shared.at, len_bytes: len as u64 };
        let mut memory_of_others = self.memory().virtual_memory();
        let parts = memory_of_others.listed([listed]).map_err(|error| no_memory(&error))?;
        let memory = Allocation::part(&Arc::new(range), offset, size, Location::Card(card), parts, offset);
        let address = memory.base();
        memory_of_others.import(memory, record, file);
        drop(memory_of_others);
        if flags == 1 && card != current {
            self.update(|state| {
                state.runtime.cards[current as usize].peers.insert(card);
            });
        }
        dev_ptr.set("dev_ptr", std::ptr::with_exposed_provenance_mut(address))
    }

    /// The import, if any, is closed before the export.
    pub(super) unsafe fn aclrtIpcMemClose(&self, key: *const c_char) -> Result<(), Failure> {
        // SAFETY: the C caller passes NULL or a C string.
        let name = IpcName::of_key(&unsafe { load_text("key", key) }?)?;
        self.memory().virtual_memory().close(name)
    }

    pub(super) fn aclrtMemExportToShareableHandle(
        &self,
        handle: aclrtDrvMemHandle,
        handle_type: aclrtMemHandleType,
        flags: u64,
        shareable_handle: Out<u64>,
    ) -> Result<(), Failure> {
        if shareable_handle.is_null() {
            return Err(Failure::null("shareable_handle"));
        }
        if handle_type != aclrtMemHandleType::ACL_MEM_HANDLE_TYPE_NONE {
            let what = format!("handleType is {}; it must be ACL_MEM_HANDLE_TYPE_NONE (0)", handle_type.0);
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        let validates = validates(flags)?;
        let number = HandleKind::Physical.decode(handle)?;
        let name = self.memory().virtual_memory().export_physical(number, validates)?;
        shareable_handle.set("shareable_handle", name.handle())
    }

    pub(super) unsafe fn aclrtMemExportToShareableHandleV2(
        &self,
        handle: aclrtDrvMemHandle,
        flags: u64,
        share_type: aclrtMemSharedHandleType,
        shareable_handle: Out<c_void>,
    ) -> Result<(), Failure> {
        require_default(share_type)?;
        let kind = aclrtMemHandleType::ACL_MEM_HANDLE_TYPE_NONE;
        // SAFETY: this share type has a `u64`.
        let place = unsafe { shareable_handle.of::<u64>() };
        self.aclrtMemExportToShareableHandle(handle, kind, flags, place)
    }

    pub(super) unsafe fn aclrtMemSetPidToShareableHandle(
        &self,
        shareable_handle: u64,
        pid: *mut i32,
        pid_num: usize,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes NULL or `pid_num` numbers.
        let pids = unsafe { load_array("pid", pid, pid_num) }?;
        self.memory().virtual_memory().admit_physical(shareable_handle, &pids)
    }

    /// The exporting process itself is refused (AscendCL guide). `device_id` must have access to
    /// the device of the memory.
    pub(super) fn aclrtMemImportFromShareableHandle(
        &self,
        shareable_handle: u64,
        device_id: i32,
        handle: Out<aclrtDrvMemHandle>,
    ) -> Result<(), Failure> {
        if handle.is_null() {
            return Err(Failure::null("handle"));
        }
        let name = IpcName::of_handle(shareable_handle);
        if name.is_own() {
            let what =
                "shareableHandle: this process exported it itself; it is imported by other processes only";
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        let (record, shared, file) = IpcRecord::open(name)?;
        let number = self.update(|state| {
            let card = state.card_of_ordinal(device_id)?;
            let owner = state.card_of_ordinal(i32::try_from(shared.card).unwrap_or(-1))?;
            if card != owner && !state.runtime.cards[card as usize].peers.contains(&owner) {
                let what = format!(
                    "deviceId: the memory is on device {owner}; call aclrtDeviceEnablePeerAccess({owner}) on device \
                     {card} first"
                );
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
            Ok((state.fresh_number(), card))
        })?;
        record.count_importer(1)?;
        let (number, card) = number;
        let (size, granularity) = (shared.size as usize, shared.granularity as usize);
        let physical = Physical::imported(card, size, granularity, file, shared.at);
        self.memory().virtual_memory().keep(number, physical);
        handle.set("handle", HandleKind::Physical.encode(number))
    }

    pub(super) unsafe fn aclrtMemImportFromShareableHandleV2(
        &self,
        shareable_handle: *mut c_void,
        share_type: aclrtMemSharedHandleType,
        flags: u64,
        handle: Out<aclrtDrvMemHandle>,
    ) -> Result<(), Failure> {
        require_default(share_type)?;
        if flags != 0 {
            return Err(Failure::new(
                code::INVALID_PARAM,
                format!("flags is {flags:#x}; it must be 0 (reserved)"),
            ));
        }
        let current = self.current_card()?;
        // SAFETY: this share type has a `u64`.
        let shareable = unsafe { load_array("shareable_handle", shareable_handle.cast::<u64>(), 1) }?[0];
        self.aclrtMemImportFromShareableHandle(shareable, current.cast_signed(), handle)
    }
}

fn require_default(kind: aclrtMemSharedHandleType) -> Result<(), Failure> {
    match kind {
        aclrtMemSharedHandleType::ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT => Ok(()),
        aclrtMemSharedHandleType::ACL_MEM_SHARE_HANDLE_TYPE_FABRIC => {
            let what = "shareType FABRIC (2) shares between servers, which is not modelled (the Atlas A3 alone does); use DEFAULT (1)";
            Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what))
        }
        other => {
            let what = format!("shareType {} is neither DEFAULT 1 nor FABRIC 2", other.0);
            Err(Failure::new(code::INVALID_PARAM, what))
        }
    }
}
