//! A card: its context, its memory, and errors from teardowns.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ascend_tp_sys::{ACL_SUCCESS, HcclResult, Table, aclError, aclrtMemAttr, hccl_result_name};

use super::cann::{Cann, call_error, recent_message};
use super::error::{CallError, Error, Result};
use super::handle::Handle;
use super::stream::Queue;
use crate::base::{Bytes, Diagnostic};

/// One card, usable from any thread.
///
/// The card uses its default context, which all threads of the process share. HCCL creates a
/// communicator's streams in that context, and work of one context cannot wait for work of another.
///
/// ```
/// # use ascend_tp::emulator::{Config, Emulator};
/// # let emulator = Emulator::new(Config::with_cards(2))?;
/// # let cann = ascend_tp::Cann::new(emulator.table())?;
///
/// use ascend_tp::device::Device;
///
/// let device = Device::open(&cann, 0)?;
/// let memory = device.memory()?;
/// println!("{} of {} free", memory.free, memory.total);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Device {
    cann: Arc<Cann>,
    ordinal: usize,
    /// Recognises the current device of a thread.
    id: u64,
    context: Handle,
    /// First error of a teardown since the last call.
    parked: Mutex<Option<Error>>,
    /// Error codes that calls have returned. A teardown does not report them again.
    returned: Mutex<Vec<aclError>>,
    /// Streams of this opening. Values from different openings cannot be combined (`same_device`),
    /// so no other streams have to be waited for.
    streams: Mutex<Vec<Weak<Queue>>>,
    /// Guards aclnn's host objects, which have no locks.
    planning: Mutex<()>,
    open: bool,
}

/// Memory of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Allocated by no process.
    pub free: Bytes,
    /// Total memory of the card.
    pub total: Bytes,
}

thread_local! {
    /// Device with the current context of this thread, or 0 if unknown.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Device {
    /// Opens card `ordinal`, counted from 0.
    ///
    /// # Errors
    /// The card does not exist or the library cannot open it.
    pub fn open(cann: &Arc<Cann>, ordinal: usize) -> Result<Arc<Self>> {
        let count = cann.device_count()?;
        let Some(number) = i32::try_from(ordinal).ok().filter(|_| ordinal < count) else {
            return Err(Diagnostic::new(format!("device {ordinal}"), "no such card")
                .expected(format!("an ordinal below {count}"))
                .found(ordinal)
                .help("use fewer cards, or make more visible (ASCEND_RT_VISIBLE_DEVICES)")
                .into());
        };
        let table = cann.table();
        forget_current();
        // SAFETY: the call takes a number.
        let code = unsafe { (table.aclrtSetDevice)(number) };
        if code != ACL_SUCCESS {
            return Err(call_error(table, "aclrtSetDevice", code, Some(ordinal)));
        }
        // From here on, dropping the device resets the card.
        let mut device = Self {
            cann: Arc::clone(cann),
            ordinal,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            context: Handle::NULL,
            parked: Mutex::new(None),
            returned: Mutex::default(),
            streams: Mutex::default(),
            planning: Mutex::new(()),
            open: true,
        };
        let mut context = Handle::NULL;
        // SAFETY: `context` is valid for a write.
        let code = unsafe { (table.aclrtGetCurrentContext)(&raw mut context.0) };
        device.check("aclrtGetCurrentContext", code)?;
        device.context = context;
        CURRENT.set(device.id);
        Ok(Arc::new(device))
    }

    /// Returns the card's number.
    #[must_use]
    #[doc(hidden)]
    pub const fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// Returns the CANN instance of the card.
    #[must_use]
    #[doc(hidden)]
    pub const fn cann(&self) -> &Arc<Cann> {
        &self.cann
    }

    /// Returns the free and total memory.
    ///
    /// # Errors
    /// The library fails.
    pub fn memory(&self) -> Result<Memory> {
        let table = self.enter()?;
        // Cards of the 310 family have DDR; other cards have HBM.
        let ddr = self.cann.soc_name().is_some_and(|name| name.starts_with("Ascend310"));
        let kind = if ddr { aclrtMemAttr::ACL_DDR_MEM } else { aclrtMemAttr::ACL_HBM_MEM };
        let (mut free, mut total) = (0, 0);
        // SAFETY: both numbers are valid for a write.
        let code = unsafe { (table.aclrtGetMemInfo)(kind, &raw mut free, &raw mut total) };
        self.check("aclrtGetMemInfo", code)?;
        Ok(Memory { free: Bytes(free as u64), total: Bytes(total as u64) })
    }

    /// Waits for all work of this opening of the card.
    ///
    /// # Errors
    /// Returns the error of that work.
    pub fn synchronize(&self) -> Result<()> {
        self.enter()?;
        self.queues().iter().try_for_each(|queue| queue.synchronize())
    }

    /// Required before a resource is freed that the work may use.
    pub(super) fn synchronize_teardown(&self) {
        for queue in self.queues() {
            queue.synchronize_teardown();
        }
    }

    pub(super) fn add_queue(&self, queue: &Arc<Queue>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(queue));
    }

    fn queues(&self) -> Vec<Arc<Queue>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }

    /// Closes the card, and returns the first pending teardown error.
    ///
    /// # Errors
    /// That error, or values of this device are still alive; then the card is closed when they are
    /// dropped.
    #[doc(hidden)]
    pub fn close(self: Arc<Self>) -> Result<()> {
        if let Some(error) = self.take_parked() {
            return Err(error);
        }
        let ordinal = self.ordinal;
        match Arc::try_unwrap(self) {
            Ok(mut device) => device.reset(),
            Err(device) => Err(Diagnostic::new(format!("device {ordinal}"), "closed while in use")
                .expected("no live objects of the device")
                .found(format!("{} handles", Arc::strong_count(&device) - 1))
                .help("drop streams, events, buffers, tensors, operators and communicators first")
                .into()),
        }
    }

    /// Returns a parked error, and makes this card's context current on the thread.
    pub(super) fn enter(&self) -> Result<&Table> {
        if let Some(error) = self.take_parked() {
            return Err(error);
        }
        self.bind()?;
        Ok(self.table())
    }

    fn bind(&self) -> Result<()> {
        if CURRENT.get() == self.id {
            return Ok(());
        }
        // SAFETY: the context is alive: it was current after `aclrtSetDevice`, and only `reset`
        // releases it.
        let code = unsafe { (self.table().aclrtSetCurrentContext)(self.context.0) };
        self.check("aclrtSetCurrentContext", code)?;
        CURRENT.set(self.id);
        Ok(())
    }

    /// Parks errors. Returns `None` if the card cannot be reached.
    pub(super) fn enter_teardown(&self) -> Option<&Table> {
        match self.bind() {
            Ok(()) => Some(self.table()),
            Err(error) => {
                self.park_error(error);
                None
            }
        }
    }

    pub(super) fn table(&self) -> &Table {
        self.cann.table()
    }

    pub(super) fn planning(&self) -> MutexGuard<'_, ()> {
        self.planning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn check(&self, function: &'static str, code: aclError) -> Result<()> {
        if code == ACL_SUCCESS {
            return Ok(());
        }
        let mut returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        if !returned.contains(&code) {
            returned.push(code);
        }
        drop(returned);
        Err(self.call_error(function, code))
    }

    pub(super) fn check_hccl(&self, function: &'static str, result: HcclResult) -> Result<()> {
        if result == HcclResult::HCCL_SUCCESS {
            return Ok(());
        }
        Err(Error::Call(Box::new(CallError {
            function,
            code: result.0.into(),
            code_name: hccl_result_name(result),
            message: recent_message(self.table()),
            note: None,
            device: Some(self.ordinal),
            rank: None,
        })))
    }

    pub(super) fn call_error(&self, function: &'static str, code: aclError) -> Error {
        call_error(self.table(), function, code, Some(self.ordinal))
    }

    pub(super) fn park(&self, function: &'static str, code: aclError) {
        if code != ACL_SUCCESS {
            self.park_error(self.call_error(function, code));
        }
    }

    /// Ignores errors that a call has already returned.
    pub(super) fn park_wait(&self, function: &'static str, code: aclError) {
        if !self.returned.lock().unwrap_or_else(PoisonError::into_inner).contains(&code) {
            self.park(function, code);
        }
    }

    pub(super) fn park_error(&self, error: Error) {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn take_parked(&self) -> Option<Error> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn reset(&mut self) -> Result<()> {
        self.open = false;
        let Ok(number) = i32::try_from(self.ordinal) else { return Ok(()) };
        // `aclrtResetDevice` requires a current card.
        if self.context != Handle::NULL {
            self.bind()?;
        }
        forget_current();
        // SAFETY: `open` set this device, and everything made from it is gone.
        let code = unsafe { (self.table().aclrtResetDevice)(number) };
        self.check("aclrtResetDevice", code)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.open {
            // A caller who needs the error calls `close`.
            drop(self.reset());
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("ordinal", &self.ordinal).finish_non_exhaustive()
    }
}

/// Required when a library may have changed the current context of this thread.
pub(super) fn forget_current() {
    CURRENT.set(0);
}

pub(super) fn same_device(what: &str, ours: &Arc<Device>, theirs: &Arc<Device>) -> Result<()> {
    if ours.id == theirs.id {
        return Ok(());
    }
    let name = |device: &Device| format!("device {}", device.ordinal);
    let found = if ours.ordinal == theirs.ordinal {
        format!("another opening of {}", name(theirs))
    } else {
        name(theirs)
    };
    Err(Diagnostic::new(what, "values of different cards")
        .expected(name(ours))
        .found(found)
        .help("use values made from one `Device`; copy between cards with a collective")
        .into())
}
