//! Events, for ordering streams and measuring time.

use std::sync::Arc;

use ascend_tp_sys::{ACL_EVENT_SYNC, ACL_EVENT_TIME_LINE, aclrtEventRecordedStatus};

use super::card::{Device, same_device};
use super::error::Result;
use super::handle::Handle;

/// An event of one card. Without a record, it counts as done.
///
/// ```
/// # use ascend_tp::emulator::{Config, Emulator};
/// # let emulator = Emulator::new(Config::with_cards(2))?;
/// # let cann = ascend_tp::Cann::new(emulator.table())?;
/// # let device = ascend_tp::device::Device::open(&cann, 0)?;
///
/// use ascend_tp::device::{Event, Stream};
///
/// let (first, second) = (Stream::new(&device)?, Stream::new(&device)?);
/// let event = Event::new(&device)?;
/// first.enqueue_record(&event)?;
/// second.enqueue_wait(&event)?; // Work that follows runs after the work of `first`.
/// second.synchronize()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Event {
    device: Arc<Device>,
    handle: Handle,
}

impl Event {
    /// Creates an event that streams and the host can wait for.
    ///
    /// # Errors
    /// The card has no event left.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        Self::with_flags(device, ACL_EVENT_SYNC)
    }

    /// Creates an event that also stores its time, for [`Self::elapsed_us`].
    ///
    /// # Errors
    /// The card has no event left.
    #[doc(hidden)]
    pub fn with_time(device: &Arc<Device>) -> Result<Self> {
        Self::with_flags(device, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE)
    }

    fn with_flags(device: &Arc<Device>, flags: u32) -> Result<Self> {
        let table = device.enter()?;
        let mut handle = Handle::NULL;
        // Events of the Ex variant can be recorded again without a reset. SAFETY: `handle` is valid
        // for a write.
        let code = unsafe { (table.aclrtCreateEventExWithFlag)(&raw mut handle.0, flags) };
        device.check("aclrtCreateEventExWithFlag", code)?;
        Ok(Self { device: Arc::clone(device), handle })
    }

    /// Returns the card of the event.
    #[must_use]
    #[doc(hidden)]
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) const fn raw(&self) -> ascend_tp_sys::aclrtEvent {
        self.handle.0
    }

    /// Waits for the work before the last record.
    ///
    /// # Errors
    /// Returns the error of that work.
    pub fn synchronize(&self) -> Result<()> {
        let table = self.device.enter()?;
        // SAFETY: the event is alive and its card is current.
        let code = unsafe { (table.aclrtSynchronizeEvent)(self.handle.0) };
        self.device.check("aclrtSynchronizeEvent", code)
    }

    /// Returns whether the work before the last record is done.
    ///
    /// # Errors
    /// Returns the error of that work.
    #[doc(hidden)]
    pub fn is_done(&self) -> Result<bool> {
        let table = self.device.enter()?;
        let mut status = aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_NOT_READY;
        // SAFETY: the event is alive, its card is current, and `status` is valid for a write.
        let code = unsafe { (table.aclrtQueryEventStatus)(self.handle.0, &raw mut status) };
        self.device.check("aclrtQueryEventStatus", code)?;
        Ok(status == aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_COMPLETE)
    }

    /// Returns the time since `start`. Both must be created by [`Self::with_time`],
    /// recorded and done.
    ///
    /// # Errors
    /// The events belong to different cards, store no time, or are not done.
    #[doc(hidden)]
    pub fn elapsed_us(&self, start: &Self) -> Result<f64> {
        same_device("elapsed_us", &self.device, &start.device)?;
        let table = self.device.enter()?;
        let mut elapsed_ms = 0.0_f32;
        // SAFETY: both events are alive, their card is current, and `elapsed_ms` is valid for a
        // write.
        let code =
            unsafe { (table.aclrtEventElapsedTime)(&raw mut elapsed_ms, start.handle.0, self.handle.0) };
        self.device.check("aclrtEventElapsedTime", code)?;
        Ok(f64::from(elapsed_ms) * 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Some(table) = self.device.enter_teardown() else { return };
        // SAFETY: this is the only owner of the event; waiting streams keep the state that they
        // need.
        let code = unsafe { (table.aclrtDestroyEvent)(self.handle.0) };
        self.device.park("aclrtDestroyEvent", code);
    }
}
