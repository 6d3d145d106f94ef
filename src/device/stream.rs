//! Streams: work queues of a card.

use std::sync::Arc;
use std::time::Duration;

use ascend_tp_sys::{ACL_STOP_ON_FAILURE, ACL_SUCCESS, aclrtMemcpyKind, aclrtStreamStatus};

use super::buffer::BufferSlice;
use super::card::{Device, same_device};
use super::copy::{HostBuffer, Transfer};
use super::error::Result;
use super::event::Event;
use super::handle::Handle;
use crate::base::Diagnostic;

/// A work queue of one card. Work runs in the order it was enqueued; streams run in parallel.
///
/// After an error, the rest of the queue does not run, and waiting for the stream returns the
/// error.
///
/// ```
/// # use ascend_tp::emulator::{Config, Emulator};
/// # let emulator = Emulator::new(Config::with_cards(2))?;
/// # let cann = ascend_tp::Cann::new(emulator.table())?;
/// # let device = ascend_tp::device::Device::open(&cann, 0)?;
///
/// use ascend_tp::device::{Buffer, Stream};
///
/// let (from, to) = (Buffer::new(&device, 16)?, Buffer::new(&device, 16)?);
/// let stream = Stream::new(&device)?;
/// stream.enqueue_copy(&to.whole(), &from.whole())?;
/// stream.synchronize()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Stream(Arc<Queue>);

/// A stream, which a waiting caller keeps alive.
#[derive(Debug)]
pub(super) struct Queue {
    device: Arc<Device>,
    handle: Handle,
}

impl Queue {
    pub(super) fn synchronize(&self) -> Result<()> {
        let table = self.device.enter()?;
        // SAFETY: the stream is alive and its card is current.
        let code = unsafe { (table.aclrtSynchronizeStream)(self.handle.0) };
        self.device.check("aclrtSynchronizeStream", code)
    }

    /// Returns whether all work succeeded. Parks errors that no call has returned yet.
    pub(super) fn synchronize_teardown(&self) -> bool {
        let Some(table) = self.device.enter_teardown() else { return false };
        // SAFETY: the stream is alive and its card is current.
        let code = unsafe { (table.aclrtSynchronizeStream)(self.handle.0) };
        self.device.park_wait("aclrtSynchronizeStream", code);
        code == ACL_SUCCESS
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // The work may still use resources that are about to be freed.
        self.synchronize_teardown();
        let Some(table) = self.device.enter_teardown() else { return };
        // SAFETY: this is the only owner of the stream, and its work is done.
        let code = unsafe { (table.aclrtDestroyStream)(self.handle.0) };
        self.device.park_wait("aclrtDestroyStream", code);
    }
}

impl Stream {
    /// Creates an empty stream.
    ///
    /// # Errors
    /// The card has no stream left.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let table = device.enter()?;
        let mut handle = Handle::NULL;
        // SAFETY: `handle` is valid for a write.
        let code = unsafe { (table.aclrtCreateStream)(&raw mut handle.0) };
        device.check("aclrtCreateStream", code)?;
        let queue = Arc::new(Queue { device: Arc::clone(device), handle });
        device.add_queue(&queue);
        // SAFETY: the stream was just made on this card.
        let code = unsafe { (table.aclrtSetStreamFailureMode)(handle.0, u64::from(ACL_STOP_ON_FAILURE)) };
        device.check("aclrtSetStreamFailureMode", code)?;
        Ok(Self(queue))
    }

    /// Returns the card of the stream.
    #[must_use]
    #[doc(hidden)]
    pub fn device(&self) -> &Arc<Device> {
        &self.0.device
    }

    pub(super) fn raw(&self) -> ascend_tp_sys::aclrtStream {
        self.0.handle.0
    }

    pub(super) const fn queue(&self) -> &Arc<Queue> {
        &self.0
    }

    /// Waits for all enqueued work.
    ///
    /// # Errors
    /// Returns the error of that work.
    pub fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }

    /// Waits at most `limit`, rounded up to milliseconds.
    ///
    /// # Errors
    /// The error of the work, or one of kind [`Timeout`](super::ErrorKind::Timeout).
    #[doc(hidden)]
    pub fn synchronize_within(&self, limit: Duration) -> Result<()> {
        let table = self.device().enter()?;
        let limit_ms = i32::try_from(limit.as_micros().div_ceil(1000).max(1)).unwrap_or(i32::MAX);
        // SAFETY: the stream is alive and its card is current.
        let code = unsafe { (table.aclrtSynchronizeStreamWithTimeout)(self.raw(), limit_ms) };
        self.device().check("aclrtSynchronizeStreamWithTimeout", code)
    }

    /// Returns whether all enqueued work is done.
    ///
    /// # Errors
    /// Returns the error of that work.
    #[doc(hidden)]
    pub fn is_idle(&self) -> Result<bool> {
        let table = self.device().enter()?;
        let mut status = aclrtStreamStatus::ACL_STREAM_STATUS_NOT_READY;
        // SAFETY: the stream is alive, its card is current, and `status` is valid for a write.
        let code = unsafe { (table.aclrtStreamQuery)(self.raw(), &raw mut status) };
        self.device().check("aclrtStreamQuery", code)?;
        Ok(status == aclrtStreamStatus::ACL_STREAM_STATUS_COMPLETE)
    }

    /// Labels later work, for profilers and messages.
    ///
    /// # Errors
    /// The library fails.
    #[doc(hidden)]
    pub fn mark(&self, text: &str) -> Result<()> {
        let table = self.device().enter()?;
        // SAFETY: the pointer and the length describe one text, and the stream is alive.
        let code = unsafe { (table.aclprofMarkEx)(text.as_ptr().cast(), text.len(), self.raw()) };
        self.device().check("aclprofMarkEx", code)
    }

    /// Records `event` after all work enqueued so far, replacing its earlier record.
    ///
    /// # Errors
    /// The event belongs to another card.
    pub fn enqueue_record(&self, event: &Event) -> Result<()> {
        same_device("enqueue_record", self.device(), event.device())?;
        let table = self.device().enter()?;
        // SAFETY: event and stream are alive and of this card.
        let code = unsafe { (table.aclrtRecordEvent)(event.raw(), self.raw()) };
        self.device().check("aclrtRecordEvent", code)
    }

    /// Makes later work wait for the current record of `event`.
    ///
    /// # Errors
    /// The event belongs to another card.
    pub fn enqueue_wait(&self, event: &Event) -> Result<()> {
        same_device("enqueue_wait", self.device(), event.device())?;
        let table = self.device().enter()?;
        // SAFETY: event and stream are alive and of this card.
        let code = unsafe { (table.aclrtStreamWaitEvent)(self.raw(), event.raw()) };
        self.device().check("aclrtStreamWaitEvent", code)
    }

    /// Copies between device memory of this card.
    ///
    /// # Errors
    /// The slices differ in length, overlap, or belong to another card.
    pub fn enqueue_copy(&self, to: &BufferSlice, from: &BufferSlice) -> Result<()> {
        same_device("enqueue_copy", self.device(), to.device())?;
        same_device("enqueue_copy", self.device(), from.device())?;
        same_length("enqueue_copy", to.len_bytes(), from.len_bytes())?;
        if to.overlaps(from) {
            return Err(Diagnostic::new("enqueue_copy", "source and destination overlap")
                .expected("disjoint slices")
                .found(format!("{from} and {to}"))
                .into());
        }
        if to.len_bytes() == 0 {
            return Ok(());
        }
        let table = self.device().enter()?;
        // SAFETY: both ranges lie in live device memory of this card, which is freed only after the
        // stream has finished.
        let code = unsafe {
            (table.aclrtMemcpyAsync)(
                to.address(),
                to.len_bytes(),
                from.address(),
                from.len_bytes(),
                aclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_DEVICE,
                self.raw(),
            )
        };
        self.device().check("aclrtMemcpyAsync", code)
    }

    /// Copies the first bytes of `host` to all of `to`. [`Transfer::wait`] returns the host memory.
    ///
    /// # Errors
    /// The host memory is shorter than `to`, or `to` belongs to another card. The host memory is
    /// then freed.
    #[doc(hidden)]
    pub fn enqueue_upload(&self, to: &BufferSlice, host: HostBuffer) -> Result<Transfer> {
        host.transfer(self, to, aclrtMemcpyKind::ACL_MEMCPY_HOST_TO_DEVICE)
    }

    /// Copies `from` to the first bytes of `host`. [`Transfer::wait`] returns the host memory.
    ///
    /// # Errors
    /// The host memory is shorter than `from`, or `from` belongs to another card. The host memory
    /// is then freed.
    #[doc(hidden)]
    pub fn enqueue_download(&self, host: HostBuffer, from: &BufferSlice) -> Result<Transfer> {
        host.transfer(self, from, aclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_HOST)
    }
}

pub(super) fn same_length(what: &str, expected: usize, found: usize) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Diagnostic::new(what, "lengths differ")
        .expected(format!("{expected} bytes"))
        .found(format!("{found} bytes"))
        .into())
}
