//! Addresses of strict mode: ranges that are used once and accessible only where the program may
//! access them.
//!
//! Memory of a card is an inaccessible address range with its bytes mapped elsewhere. Page-locked
//! host memory is mapped at its own addresses. Red zones and inaccessible pages surround the
//! program's bytes.
//!
//! Invariants: an arena never reuses an address. A first address is an odd multiple of the arena's
//! alignment.
#![expect(unsafe_code, reason = "address ranges are made by system calls")]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::fault::{Fence, is_fenced};
use super::pages::{Backing, PageStore, page_bytes};

/// Size of each red zone: a cache line, and the 32 bytes that kernels may read past the end.
const ZONE_BYTES: usize = 96;

const CHUNK_BYTES: usize = 64 << 30;

/// The first chunk; chunks follow each other while the space is free. The addresses resemble those
/// of a card and are equal in every run, so reports are reproducible.
const FIRST_CHUNK: usize = 0x1200_0000_0000;

const ZONE: u8 = 0xA5;

/// Pattern of fresh memory. NaN as any float type, a small negative number as an integer.
pub(crate) const FRESH: u16 = 0xFFFB;

/// Pattern of freed memory that queued work can still read. Also NaN.
pub(crate) const FREED: u16 = 0xFFFD;

/// Pattern of host memory that a queued copy will write. Also NaN.
pub(crate) const PENDING: u16 = 0xFFF9;

/// Larger allocations than twice this size are filled only at both ends, so that untouched memory
/// costs nothing.
const FILLED_END_BYTES: usize = 128 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressAccess {
    /// The bytes are mapped elsewhere. The program's accesses fault.
    CardOnly,
    HostToo,
}

#[derive(Debug)]
pub(crate) struct Arena {
    chunks: Mutex<Vec<GuardChunk>>,
    /// First addresses are odd multiples of this power of two, which is below the page size.
    alignment: usize,
}

#[derive(Debug)]
struct GuardChunk {
    base: usize,
    bytes: usize,
    used: usize,
}

impl GuardChunk {
    fn new(bytes: usize) -> io::Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(FIRST_CHUNK);
        let wanted = NEXT.fetch_add(bytes.next_multiple_of(CHUNK_BYTES), Ordering::Relaxed);
        let wanted = std::ptr::without_provenance_mut(wanted);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: without MAP_FIXED the address is only a hint, and the mapping replaces nothing.
        let base = unsafe { libc::mmap(wanted, bytes, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.expose_provenance(), bytes, used: 0 })
    }
}

impl Drop for GuardChunk {
    fn drop(&mut self) {
        let base = std::ptr::with_exposed_provenance_mut(self.base);
        // SAFETY: `new` mapped exactly this range. Every `Guarded` keeps the arena alive, so none
        // is left.
        let _ = unsafe { libc::munmap(base, self.bytes) };
    }
}

impl Arena {
    pub(crate) fn new(alignment: usize) -> Self {
        Self { chunks: Mutex::default(), alignment }
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        self.lock().iter().any(|chunk| (chunk.base..chunk.base + chunk.bytes).contains(&address))
    }

    fn reserve(&self, bytes: usize) -> io::Result<usize> {
        let mut chunks = self.lock();
        if chunks.last().is_none_or(|chunk| chunk.bytes - chunk.used < bytes) {
            chunks.push(GuardChunk::new(bytes.max(CHUNK_BYTES))?);
        }
        let chunk = chunks.last_mut().ok_or(io::ErrorKind::OutOfMemory)?;
        let base = chunk.base + chunk.used;
        chunk.used += bytes;
        Ok(base)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<GuardChunk>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory with red zones. After a drop, its addresses stay inaccessible.
#[derive(Debug)]
pub(crate) struct Guarded {
    arena: Arc<Arena>,
    address: usize,
    size: usize,
    pages: NonNull<u8>,
    pages_bytes: usize,
    offset: usize,
    /// `None` for host memory, which uses the pages of the arena.
    backing: Option<Backing>,
    reach: AddressAccess,
}

// SAFETY: this value owns the pages. All access copies bytes and creates no references.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Relative to the first byte of the allocation.
    pub(crate) first: isize,
    pub(crate) last: isize,
}

impl Guarded {
    /// `size` is more than 0. Memory of a card uses `store`, if given.
    pub(crate) fn new(
        arena: &Arc<Arena>,
        size: usize,
        reach: AddressAccess,
        store: Option<&Arc<PageStore>>,
    ) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let page = page_bytes();
        let step = 2 * arena.alignment;
        let slack = 2 * ZONE_BYTES + step;
        let pages_bytes = size
            .checked_add(slack)
            .and_then(|bytes| bytes.checked_next_multiple_of(page))
            .ok_or_else(too_large)?;
        // Place the bytes as near to the end of the pages as red zone and alignment allow.
        let latest = pages_bytes - ZONE_BYTES - size;
        let offset = (latest - arena.alignment) / step * step + arena.alignment;
        let first_page = arena.reserve(pages_bytes + 2 * page)? + page;
        let mut backing = match reach {
            AddressAccess::CardOnly => Some(Backing::new(pages_bytes, store)?),
            AddressAccess::HostToo => None,
        };
        let pages = match &mut backing {
            Some(backing) => backing.base()?,
            None => {
                let pages = std::ptr::with_exposed_provenance_mut::<u8>(first_page);
                let access = libc::PROT_READ | libc::PROT_WRITE;
                // SAFETY: `reserve` has just reserved these whole pages for this value alone.
                if unsafe { libc::mprotect(pages.cast(), pages_bytes, access) } != 0 {
                    return Err(io::Error::last_os_error());
                }
                NonNull::new(pages).ok_or_else(too_large)?
            }
        };
        let (arena, address) = (Arc::clone(arena), first_page + offset);
        let guarded = Self { arena, address, size, pages, pages_bytes, offset, backing, reach };
        guarded.fill_zones();
        guarded.poison(FRESH);
        Ok(guarded)
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    pub(crate) fn bytes(&self) -> NonNull<u8> {
        self.at(self.offset)
    }

    /// Returns `None` without a store.
    pub(crate) fn place(&self) -> Option<u64> {
        self.backing.as_ref().and_then(Backing::at).map(|at| at + self.offset as u64)
    }

    pub(crate) fn poison(&self, pattern: u16) {
        let mut block = [0_u8; 4096];
        for pair in block.chunks_exact_mut(2) {
            pair.copy_from_slice(&pattern.to_le_bytes());
        }
        let ranges = if self.size > 2 * FILLED_END_BYTES {
            [0..FILLED_END_BYTES, (self.size - FILLED_END_BYTES) & !1..self.size]
        } else {
            [0..self.size, 0..0]
        };
        for range in ranges {
            for start in range.clone().step_by(block.len()) {
                let len = block.len().min(range.end - start);
                let into = self.at(self.offset + start);
                // SAFETY: `start + len` is at most the size, so the target is inside the pages. The
                // block has 4096 bytes.
                unsafe { std::ptr::copy_nonoverlapping(block.as_ptr(), into.as_ptr(), len) };
            }
        }
    }

    /// Keeps the program from `target`, bytes of the allocation, where they have whole pages.
    pub(crate) fn fence(&self, target: std::ops::Range<usize>) -> Option<Fence> {
        let page = page_bytes();
        let (start, end) = (self.offset + target.start, self.offset + target.end);
        // Only red zones share the first and the last page of the allocation.
        let first = if target.start == 0 { start / page * page } else { start.next_multiple_of(page) };
        let last = if target.end == self.size { self.pages_bytes } else { end / page * page };
        if self.reach == AddressAccess::CardOnly || first >= last {
            return None;
        }
        let address = |offset: usize| self.pages.addr().get() + offset;
        Fence::raise(address(first)..address(last), address(start)..address(end))
    }

    /// The red zones of fenced pages are looked at later.
    pub(crate) fn damage(&self) -> Option<Damage> {
        let ends = [self.address, self.address + self.size - 1];
        if ends.into_iter().any(is_fenced) {
            return None;
        }
        let zones = self.zones();
        let mut changed = zones.into_iter().flatten().filter(|at| self.zone_byte(*at) != ZONE);
        let first = changed.next()?;
        let last = changed.next_back().unwrap_or(first);
        let from_start = |at: usize| at.cast_signed() - self.offset.cast_signed();
        Some(Damage { first: from_start(first), last: from_start(last) })
    }

    pub(crate) fn fill_zones(&self) {
        for zone in self.zones() {
            // SAFETY: red zones are inside the pages.
            unsafe { std::ptr::write_bytes(self.at(zone.start).as_ptr(), ZONE, zone.len()) };
        }
    }

    fn zones(&self) -> [std::ops::Range<usize>; 2] {
        [self.offset - ZONE_BYTES..self.offset, self.offset + self.size..self.pages_bytes]
    }

    fn zone_byte(&self, offset: usize) -> u8 {
        // SAFETY: `zones` returns offsets inside the pages. The read is volatile because the
        // program may write at any time.
        unsafe { self.at(offset).as_ptr().read_volatile() }
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.pages_bytes, "offset {offset} leaves {} bytes of pages", self.pages_bytes);
        // SAFETY: the offset is inside the pages, or one past their end.
        unsafe { self.pages.add(offset) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if self.reach == AddressAccess::CardOnly {
            return;
        }
        debug_assert!(self.arena.contains(self.address), "host memory is the arena's");
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: replaces exactly the pages that this value has opened and that nothing uses any
        // more.
        let _ = unsafe {
            libc::mmap(self.pages.as_ptr().cast(), self.pages_bytes, libc::PROT_NONE, flags, -1, 0)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(guarded: &Guarded, from: usize, count: usize) -> Vec<u8> {
        (from..from + count).map(|at| guarded.zone_byte(at)).collect()
    }

    #[test]
    fn addresses_are_odd_multiples_of_64_and_never_repeat() {
        let arena = Arc::new(Arena::new(64));
        let mut last = 0;
        for size in [1, 63, 64, 65, 4000, 4096, 1 << 20, 7] {
            for reach in [AddressAccess::CardOnly, AddressAccess::HostToo] {
                let guarded = Guarded::new(&arena, size, reach, None).expect("mapping");
                assert_eq!(guarded.address() % 128, 64, "{size}");
                assert!(guarded.address() > last && arena.contains(guarded.address()), "{size}");
                assert_eq!(
                    guarded.address() == guarded.bytes().as_ptr().addr(),
                    reach == AddressAccess::HostToo
                );
                last = guarded.address();
            }
        }
    }

    #[test]
    fn fresh_bytes_are_not_a_number_of_any_float_type() {
        let arena = Arc::new(Arena::new(64));
        let guarded = Guarded::new(&arena, 9, AddressAccess::CardOnly, None).expect("mapping");
        let found = bytes(&guarded, guarded.offset, 9);
        assert_eq!(found, [0xFB, 0xFF, 0xFB, 0xFF, 0xFB, 0xFF, 0xFB, 0xFF, 0xFB]);
        let pattern = |len: usize| found[..len].to_vec();
        assert!(half::f16::from_bits(FRESH).is_nan() && half::bf16::from_bits(FRESH).is_nan());
        assert!(half::f16::from_bits(FREED).is_nan() && half::bf16::from_bits(FREED).is_nan());
        assert!(f32::from_le_bytes(pattern(4).try_into().expect("4 bytes")).is_nan());
        assert!(f64::from_le_bytes(pattern(8).try_into().expect("8 bytes")).is_nan());
    }

    #[test]
    fn writes_beside_the_bytes_are_damage_until_mended() {
        let arena = Arc::new(Arena::new(64));
        let guarded = Guarded::new(&arena, 100, AddressAccess::HostToo, None).expect("mapping");
        assert_eq!(guarded.damage(), None);
        for offset in [guarded.offset + 100, guarded.offset + 103] {
            // SAFETY: inside the pages.
            unsafe { guarded.at(offset).as_ptr().write_volatile(1) };
        }
        assert_eq!(guarded.damage(), Some(Damage { first: 100, last: 103 }));
        guarded.fill_zones();
        assert_eq!(guarded.damage(), None);
        // SAFETY: inside the pages.
        unsafe { guarded.at(guarded.offset - 1).as_ptr().write_volatile(1) };
        assert_eq!(guarded.damage(), Some(Damage { first: -1, last: -1 }));
    }

    #[test]
    fn a_large_allocation_is_filled_at_its_ends_only() {
        let arena = Arc::new(Arena::new(64));
        let size = 60 << 30;
        let guarded = Guarded::new(&arena, size, AddressAccess::CardOnly, None).expect("mapping");
        let last = guarded.offset + size - 2;
        assert_eq!(bytes(&guarded, last, 2), FRESH.to_le_bytes());
        assert_eq!(bytes(&guarded, guarded.offset + size / 2, 2), [0, 0]);
    }
}
