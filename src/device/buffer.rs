//! Device memory as owned buffers and slices.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use ascend_tp_sys::{ACL_SUCCESS, aclrtMemMallocPolicy, aclrtMemcpyKind, c_void};

use super::card::Device;
use super::error::Result;
use super::handle::Handle;
use crate::base::{Bytes, Diagnostic};

/// Memory of one card. Clones share the memory, and the last clone frees it after all work of the
/// device.
///
/// The contents are initially undefined, and any stream can write them. The caller must order the
/// accesses; an error there gives wrong numbers, but never access to freed or foreign memory.
///
/// ```
/// # use ascend_tp::emulator::{Config, Emulator};
/// # let emulator = Emulator::new(Config::with_cards(2))?;
/// # let cann = ascend_tp::Cann::new(emulator.table())?;
/// # let device = ascend_tp::device::Device::open(&cann, 0)?;
///
/// use ascend_tp::device::Buffer;
///
/// let buffer = Buffer::new(&device, 4)?;
/// buffer.write(0, &[1, 2, 3, 4])?;
/// let mut bytes = [0; 2];
/// buffer.read(2, &mut bytes)?;
/// assert_eq!(bytes, [3, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Buffer(Arc<BufferInner>);

/// Memory, with the opening of the card that uses it.
#[derive(Debug)]
struct BufferInner {
    device: Arc<Device>,
    memory: Arc<CardAllocation>,
}

#[derive(Debug)]
struct CardAllocation {
    device: Arc<Device>,
    address: Handle,
    len_bytes: usize,
}

impl Buffer {
    /// Allocates device memory, aligned to at least 64 bytes.
    ///
    /// # Errors
    /// `len_bytes` is 0 or memory runs out. The message then has the requested, free and total
    /// memory.
    pub fn new(device: &Arc<Device>, len_bytes: usize) -> Result<Self> {
        let table = device.enter()?;
        if len_bytes == 0 {
            return Err(Diagnostic::new(format!("device {}", device.ordinal()), "a buffer of no bytes")
                .expected("at least 1 byte")
                .into());
        }
        let mut address = Handle::NULL;
        let policy = aclrtMemMallocPolicy::ACL_MEM_MALLOC_HUGE_FIRST;
        // SAFETY: `address` is valid for a write.
        let code = unsafe { (table.aclrtMalloc)(&raw mut address.0, len_bytes, policy) };
        if code != ACL_SUCCESS {
            let error = device.call_error("aclrtMalloc", code);
            let asked = Bytes(len_bytes as u64);
            return Err(match device.memory() {
                Ok(memory) => error.note(format!("asked {asked}, free {} of {}", memory.free, memory.total)),
                Err(_) => error.note(format!("asked {asked}")),
            });
        }
        let memory = Arc::new(CardAllocation { device: Arc::clone(device), address, len_bytes });
        Ok(Self(Arc::new(BufferInner { device: Arc::clone(device), memory })))
    }

    /// Shares the memory with another opening of the same card.
    ///
    /// # Errors
    /// It is another card.
    #[doc(hidden)]
    pub fn shared_with(&self, device: &Arc<Device>) -> Result<Self> {
        let own = &self.0.device;
        if own.ordinal() != device.ordinal() || !Arc::ptr_eq(own.cann(), device.cann()) {
            return Err(Diagnostic::new("shared memory", "openings of different cards")
                .expected(format!("device {}", own.ordinal()))
                .found(format!("device {}", device.ordinal()))
                .into());
        }
        Ok(Self(Arc::new(BufferInner { device: Arc::clone(device), memory: Arc::clone(&self.0.memory) })))
    }

    /// Returns the card of the memory.
    #[must_use]
    #[doc(hidden)]
    pub fn device(&self) -> &Arc<Device> {
        &self.0.device
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.0.memory.len_bytes
    }

    /// Returns the whole buffer.
    #[must_use]
    pub fn whole(&self) -> BufferSlice {
        BufferSlice { buffer: self.clone(), start: 0, len_bytes: self.len_bytes() }
    }

    /// Returns a slice.
    ///
    /// # Errors
    /// The range is out of bounds.
    pub fn slice(&self, range: Range<usize>) -> Result<BufferSlice> {
        self.whole().slice(range)
    }

    /// Waits for all work of the device ([`Device::synchronize`]), then copies `bytes` to byte
    /// `offset`.
    ///
    /// # Errors
    /// The range is out of bounds, or work of the device has failed.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.slice(offset..offset.saturating_add(bytes.len()))?;
        if bytes.is_empty() {
            return Ok(());
        }
        let device = &self.0.device;
        device.synchronize()?;
        // SAFETY: both ranges are `bytes.len()` long and alive during the call, which is
        // synchronous.
        let code = unsafe {
            (device.table().aclrtMemcpy)(
                to.address(),
                bytes.len(),
                bytes.as_ptr().cast(),
                bytes.len(),
                aclrtMemcpyKind::ACL_MEMCPY_HOST_TO_DEVICE,
            )
        };
        device.check("aclrtMemcpy", code)
    }

    /// Waits for all work of the device ([`Device::synchronize`]), then copies from byte `offset`.
    ///
    /// # Errors
    /// The range is out of bounds, or work of the device has failed.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.slice(offset..offset.saturating_add(bytes.len()))?;
        if bytes.is_empty() {
            return Ok(());
        }
        let device = &self.0.device;
        device.synchronize()?;
        // SAFETY: both ranges are `bytes.len()` long and alive during the call, which is
        // synchronous.
        let code = unsafe {
            (device.table().aclrtMemcpy)(
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                from.address(),
                bytes.len(),
                aclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_HOST,
            )
        };
        device.check("aclrtMemcpy", code)
    }
}

impl Drop for BufferInner {
    fn drop(&mut self) {
        // Work in flight may still use the memory.
        self.device.synchronize_teardown();
    }
}

impl Drop for CardAllocation {
    fn drop(&mut self) {
        let Some(table) = self.device.enter_teardown() else { return };
        // SAFETY: the address came from `aclrtMalloc`, this is its only owner, and every former
        // owner has waited for its work.
        let code = unsafe { (table.aclrtFree)(self.address.0) };
        self.device.park("aclrtFree", code);
    }
}

/// A byte range of a [`Buffer`], which it keeps alive.
#[derive(Clone, Debug)]
pub struct BufferSlice {
    buffer: Buffer,
    start: usize,
    len_bytes: usize,
}

impl BufferSlice {
    /// Returns the card of the memory.
    #[must_use]
    #[doc(hidden)]
    pub fn device(&self) -> &Arc<Device> {
        self.buffer.device()
    }

    /// Returns the buffer of the slice.
    #[must_use]
    pub const fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Returns the first byte.
    #[must_use]
    #[doc(hidden)]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// Returns the length in bytes.
    #[must_use]
    #[doc(hidden)]
    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Returns a part of this slice.
    ///
    /// # Errors
    /// The range is out of bounds.
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        if range.start > range.end || range.end > self.len_bytes {
            return Err(Diagnostic::new(self.to_string(), "range out of bounds")
                .expected(format!("a range within 0..{}", self.len_bytes))
                .found(format!("{}..{}", range.start, range.end))
                .into());
        }
        Ok(Self {
            buffer: self.buffer.clone(),
            start: self.start + range.start,
            len_bytes: range.end - range.start,
        })
    }

    /// Returns whether the slices share a byte.
    #[must_use]
    #[doc(hidden)]
    pub fn overlaps(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer.0.memory, &other.buffer.0.memory)
            && self.start < other.start + other.len_bytes
            && other.start < self.start + self.len_bytes
            && self.len_bytes > 0
            && other.len_bytes > 0
    }

    /// Returns the first byte's address, for reports.
    #[must_use]
    #[doc(hidden)]
    pub fn device_address(&self) -> u64 {
        self.address().addr() as u64
    }

    pub(super) fn address(&self) -> *mut c_void {
        self.buffer.0.memory.address.0.wrapping_byte_add(self.start)
    }
}

impl fmt::Display for BufferSlice {
    /// Formats the slice as `device 0: bytes 64..128 of 1024`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "device {}: bytes {}..{} of {}",
            self.device().ordinal(),
            self.start,
            self.start + self.len_bytes,
            self.buffer.len_bytes()
        )
    }
}
