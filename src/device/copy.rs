//! Page-locked host memory, and asynchronous copies.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use ascend_tp_sys::{ACL_SUCCESS, aclrtMemcpyKind};

use super::buffer::BufferSlice;
use super::card::{Device, same_device};
use super::error::Result;
use super::event::Event;
use super::handle::Handle;
use super::stream::{Queue, Stream};
use crate::base::{Bytes, Diagnostic};

/// Page-locked host memory, accessible as `[u8]` and initially zero.
///
/// Copies run asynchronously, from and to any card: `aclrtMallocHost` takes no card. During a copy,
/// the [`Transfer`] owns the memory.
pub struct HostBuffer {
    /// The current card at the allocation.
    device: Arc<Device>,
    bytes: NonNull<u8>,
    len_bytes: usize,
    /// The event after the copy, for each card.
    copied: Vec<Event>,
    queue: Option<Arc<Queue>>,
}

// SAFETY: the memory has no thread affinity, and this is its only owner.
unsafe impl Send for HostBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// Allocates page-locked memory. The card is only used for the call.
    ///
    /// # Errors
    /// `len_bytes` is 0 or memory runs out.
    pub fn new(device: &Arc<Device>, len_bytes: usize) -> Result<Self> {
        let table = device.enter()?;
        if len_bytes == 0 {
            return Err(Diagnostic::new("page-locked memory", "a buffer of no bytes")
                .expected("at least 1 byte")
                .into());
        }
        let mut address = Handle::NULL;
        // SAFETY: `address` is valid for a write.
        let code = unsafe { (table.aclrtMallocHost)(&raw mut address.0, len_bytes) };
        if code != ACL_SUCCESS {
            let error = device.call_error("aclrtMallocHost", code);
            return Err(error.note(format!("asked {}", Bytes(len_bytes as u64))));
        }
        let Some(bytes) = NonNull::new(address.0.cast::<u8>()) else {
            return Err(device.call_error("aclrtMallocHost", code));
        };
        // SAFETY: the library returned `len_bytes` of writable memory at this address.
        unsafe { bytes.write_bytes(0, len_bytes) };
        Ok(Self { device: Arc::clone(device), bytes, len_bytes, copied: Vec::new(), queue: None })
    }

    fn event_of(&mut self, device: &Arc<Device>) -> Result<usize> {
        if let Some(at) = self.copied.iter().position(|event| Arc::ptr_eq(event.device(), device)) {
            return Ok(at);
        }
        self.copied.push(Event::new(device)?);
        Ok(self.copied.len() - 1)
    }

    /// Copies between the first bytes of this memory and all of `card`.
    pub(super) fn transfer(
        mut self,
        stream: &Stream,
        card: &BufferSlice,
        kind: aclrtMemcpyKind,
    ) -> Result<Transfer> {
        let to_card = kind == aclrtMemcpyKind::ACL_MEMCPY_HOST_TO_DEVICE;
        let what = if to_card { "enqueue_upload" } else { "enqueue_download" };
        same_device(what, stream.device(), card.device())?;
        let count = card.len_bytes();
        if self.len_bytes < count {
            return Err(Diagnostic::new(what, "the host memory is too short")
                .expected(format!("at least {count} bytes"))
                .found(format!("{} bytes", self.len_bytes))
                .into());
        }
        let copied = self.event_of(stream.device())?;
        // The transfer owns the memory: a failure below waits before it frees.
        self.queue = Some(Arc::clone(stream.queue()));
        let transfer = Transfer { host: ManuallyDrop::new(self), copied };
        let host = &*transfer.host;
        if count > 0 {
            let table = stream.device().enter()?;
            let address = host.bytes.as_ptr().cast();
            let (to, from) = if to_card { (card.address(), address) } else { (address, card.address()) };
            // SAFETY: both ranges are at least `count` long. The device memory is freed only after
            // the card's work is done. The host memory is not read, written or freed by the host
            // until the event recorded below is done.
            let code = unsafe { (table.aclrtMemcpyAsync)(to, count, from, count, kind, stream.raw()) };
            stream.device().check("aclrtMemcpyAsync", code)?;
        }
        stream.enqueue_record(transfer.copied())?;
        Ok(transfer)
    }
}

impl Deref for HostBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len_bytes` of initialised memory that only this value refers to. No copy is
        // running, because a transfer would own the value.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr(), self.len_bytes) }
    }
}

impl DerefMut for HostBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the value is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len_bytes) }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        let Some(table) = self.device.enter_teardown() else { return };
        // SAFETY: the address came from `aclrtMallocHost`, this is its only owner, and no copy is
        // running.
        let code = unsafe { (table.aclrtFreeHost)(self.bytes.as_ptr().cast()) };
        self.device.park("aclrtFreeHost", code);
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer").field("len_bytes", &self.len_bytes).finish_non_exhaustive()
    }
}

/// A running copy, which owns the page-locked memory.
///
/// Dropping it waits for the copy. If the copy fails, the memory is leaked, because the card might
/// still access it.
#[must_use = "the host memory comes back from `wait`"]
#[derive(Debug)]
pub struct Transfer {
    host: ManuallyDrop<HostBuffer>,
    copied: usize,
}

impl Transfer {
    fn copied(&self) -> &Event {
        &self.host.copied[self.copied]
    }

    /// Waits and returns the host memory.
    ///
    /// # Errors
    /// The copy, or earlier work on its stream, has failed.
    pub fn wait(self) -> Result<HostBuffer> {
        self.copied().synchronize()?;
        let mut this = ManuallyDrop::new(self);
        this.host.queue = None;
        // SAFETY: `this` is never dropped and not used again, so the value is taken once.
        Ok(unsafe { ManuallyDrop::take(&mut this.host) })
    }

    /// Returns whether the copy is done.
    ///
    /// # Errors
    /// The copy, or earlier work on its stream, has failed.
    pub fn is_done(&self) -> Result<bool> {
        self.copied().is_done()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // Waits for the whole stream, because recording the event may have failed.
        if self.host.queue.as_ref().is_none_or(|queue| queue.synchronize_teardown()) {
            // SAFETY: the value is taken once, as this is its owner's drop, and no copy is running.
            drop(unsafe { ManuallyDrop::take(&mut self.host) });
        }
    }
}
