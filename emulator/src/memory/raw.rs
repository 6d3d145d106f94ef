//! Raw memory: allocations of device addresses, and bounds-checked spans of them.
//!
//! Tasks copy to and from spans, so no reference to shared memory ever exists.
//!
//! Invariants: a span keeps its allocation mapped, so freed memory stays readable for queued tasks.
//! Every access is checked against the span.
//!
//! Two unordered tasks on the same bytes race, as on a card.
#![expect(unsafe_code, reason = "device memory is raw memory")]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ascend_tp_emulator_operators::raw::Pod;
use ascend_tp_emulator_operators::simd::streaming::copy_streaming;

use super::fault::{Fence, KnownBuffer};
use super::guard::{AddressAccess, Arena, Damage, FREED, Guarded};
use super::pages::{Backing, PageStore, Range, page_bytes};
use crate::base::site::CallSite;
use crate::memory::location::Location;
use crate::memory::place::{MemoryPlace, PeerBuffer, StoredParts};

/// Pages are committed on first access and never move.
#[derive(Debug)]
pub(crate) struct Allocation {
    address: usize,
    bytes: NonNull<u8>,
    /// Bytes that the program asked for.
    size: usize,
    /// Bytes that calls may use.
    usable: usize,
    location: Location,
    pages: Pages,
    /// Number of leading bytes that uploads have reached; most of these pages are in memory.
    uploaded: AtomicUsize,
    /// Set in strict mode.
    freed: OnceLock<Arc<CallSite>>,
}

#[derive(Debug)]
enum Pages {
    /// Zero pages at the program's addresses.
    Own(Backing),
    /// A part of a range that several allocations share. `parts` locates the range's content for
    /// other processes; this part begins `before` bytes after its start.
    Part { _range: Arc<Range>, parts: Option<Arc<StoredParts>>, before: u64 },
    /// Registered memory, which the program keeps mapped.
    Registered,
    /// Memory of strict mode, between red zones.
    Guarded { pages: Guarded, known: Arc<KnownBuffer>, site: Arc<CallSite> },
}

// SAFETY: this value owns the pages. All access copies bytes.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

/// A card rounds a size up to this number of bytes and adds it once more (AscendCL guide,
/// aclrtMalloc on Atlas A2).
const GRAIN_BYTES: usize = 32;

/// Returns the bytes of a card that an allocation occupies; `None` for an impossible size.
pub(crate) fn occupied_bytes(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(GRAIN_BYTES)?.checked_add(GRAIN_BYTES)
}

impl Allocation {
    /// `size` is more than 0; the memory is page-aligned. Other processes can access it if it is in
    /// a `store`. Calls may use all bytes that a card's allocation occupies.
    pub(crate) fn new(size: usize, location: Location, store: Option<&Arc<PageStore>>) -> io::Result<Self> {
        let occupied = occupied_bytes(size).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut backing = Backing::new(occupied, store)?;
        let bytes = backing.base()?;
        let own = Self::of(bytes.as_ptr().expose_provenance(), bytes, size, location, Pages::Own(backing));
        let usable = if location == Location::Host { size } else { occupied };
        Ok(Self { usable, ..own })
    }

    fn of(address: usize, bytes: NonNull<u8>, size: usize, location: Location, pages: Pages) -> Self {
        let (uploaded, freed) = (AtomicUsize::new(0), OnceLock::new());
        Self { address, bytes, size, usable: size, location, pages, uploaded, freed }
    }

    /// `parts` locates the content for other processes; it begins `before` bytes earlier.
    pub(crate) fn part(
        range: &Arc<Range>,
        offset: usize,
        size: usize,
        location: Location,
        parts: Option<Arc<StoredParts>>,
        before: usize,
    ) -> Self {
        assert!(
            offset <= range.len_bytes() && size <= range.len_bytes() - offset,
            "a part outside its range"
        );
        // SAFETY: `offset` is inside the range.
        let bytes = unsafe { range.base().add(offset) };
        let pages = Pages::Part { _range: Arc::clone(range), parts, before: before as u64 };
        Self::of(bytes.as_ptr().expose_provenance(), bytes, size, location, pages)
    }

    /// Describes host memory that the program registers.
    ///
    /// # Safety
    ///
    /// `size` bytes at `bytes` are valid for reads and writes until no task uses them any more.
    pub(crate) unsafe fn registered(bytes: NonNull<u8>, size: usize) -> Self {
        Self::of(bytes.as_ptr().expose_provenance(), bytes, size, Location::Host, Pages::Registered)
    }

    /// Strict mode's memory is filled with a pattern, lies between red zones and, on a card, is not
    /// accessible to the host.
    pub(crate) fn guarded(
        arena: &Arc<Arena>,
        size: usize,
        location: Location,
        store: Option<&Arc<PageStore>>,
        site: Arc<CallSite>,
    ) -> io::Result<Self> {
        let reach = if location == Location::Host { AddressAccess::HostToo } else { AddressAccess::CardOnly };
        let pages = Guarded::new(arena, size, reach, store)?;
        let (address, bytes) = (pages.address(), pages.bytes());
        let known = Arc::new(KnownBuffer::new(address, size, location, site.number, site.call));
        Ok(Self::of(address, bytes, size, location, Pages::Guarded { pages, known, site }))
    }

    /// Returns `None` if other processes cannot access the bytes.
    pub(crate) fn place(&self) -> Option<PeerBuffer> {
        let (at, len_bytes) = match &self.pages {
            Pages::Own(backing) => (backing.at()?, self.usable as u64),
            Pages::Guarded { pages, .. } => (pages.place()?, self.size as u64),
            Pages::Part { parts, before, .. } => {
                return Some(parts.as_ref()?.buffer(*before, self.size as u64));
            }
            Pages::Registered => return None,
        };
        Some(PeerBuffer::Whole(MemoryPlace { at, len_bytes }))
    }

    /// Returns `None` outside strict mode.
    pub(crate) fn site(&self) -> Option<&Arc<CallSite>> {
        match &self.pages {
            Pages::Own(_) | Pages::Part { .. } | Pages::Registered => None,
            Pages::Guarded { site, .. } => Some(site),
        }
    }

    /// Returns the writes to the red zones since the last call; `None` outside strict mode.
    pub(crate) fn take_damage(&self) -> Option<Damage> {
        let Pages::Guarded { pages, .. } = &self.pages else { return None };
        let damage = pages.damage()?;
        pages.fill_zones();
        Some(damage)
    }

    /// Callers keep the entry as long as the addresses must be recognised.
    pub(crate) fn known(&self) -> Option<Arc<KnownBuffer>> {
        match &self.pages {
            Pages::Own(_) | Pages::Part { .. } | Pages::Registered => None,
            Pages::Guarded { known, .. } => Some(Arc::clone(known)),
        }
    }

    /// Called only in strict mode.
    pub(crate) fn retire(&self, site: &Arc<CallSite>) {
        let _ = self.freed.set(Arc::clone(site));
    }

    pub(crate) fn freed(&self) -> Option<&Arc<CallSite>> {
        self.freed.get()
    }

    /// Queued work may still use freed memory. Does nothing outside strict mode.
    pub(crate) fn poison_freed(&self) {
        if let Pages::Guarded { pages, .. } = &self.pages {
            pages.poison(FREED);
        }
    }

    /// Keeps the program from page-locked bytes of strict mode, where they have whole pages.
    pub(crate) fn fence(&self, target: std::ops::Range<usize>) -> Option<Fence> {
        match &self.pages {
            Pages::Guarded { pages, .. } => pages.fence(target),
            Pages::Own(_) | Pages::Part { .. } | Pages::Registered => None,
        }
    }

    pub(crate) fn base(&self) -> usize {
        self.address
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Strict mode bounds calls by the size that was asked for, other modes as the card does.
    pub(crate) fn usable(&self) -> usize {
        self.usable
    }

    pub(crate) fn location(&self) -> Location {
        self.location
    }

    /// The caller has checked both against [`Allocation::usable`].
    pub(crate) fn span(self: &Arc<Self>, offset: usize, len: usize) -> RawSpan {
        assert!(
            offset <= self.usable && len <= self.usable - offset,
            "span {offset}+{len} leaves {} bytes",
            self.usable
        );
        // SAFETY: `offset <= usable`, and the mapping has at least `usable` bytes.
        let base = unsafe { self.bytes.as_ptr().add(offset) };
        RawSpan { base, len, owner: Some(Arc::clone(self)) }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct RawSpan {
    base: *mut u8,
    len: usize,
    /// `None` for pageable host memory, which the C caller keeps alive until the task has run.
    owner: Option<Arc<Allocation>>,
}

// SAFETY: all access copies bytes. The program orders its tasks, as on a card.
unsafe impl Send for RawSpan {}
// SAFETY: as above.
unsafe impl Sync for RawSpan {}

impl RawSpan {
    /// Describes pageable host memory.
    ///
    /// # Safety
    ///
    /// `address..address + len` is valid for the accesses of the task until it has run.
    pub(crate) unsafe fn pageable(address: *mut u8, len: usize) -> Self {
        Self { base: address, len, owner: None }
    }

    /// Returns `None` for host memory.
    pub(crate) fn card(&self) -> Option<u32> {
        match self.owner.as_deref().map(Allocation::location) {
            Some(Location::Card(card)) => Some(card),
            _ => None,
        }
    }

    /// The emulator cannot check memory of the program's own allocator.
    pub(crate) fn is_pageable(&self) -> bool {
        self.owner.is_none()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len
    }

    /// The program may use another address.
    pub(crate) fn bytes(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn address(&self) -> usize {
        match &self.owner {
            Some(owner) => owner.address + (self.base.addr() - owner.bytes.addr().get()),
            None => self.base.addr(),
        }
    }

    /// Returns `None` for pageable host memory.
    pub(crate) fn allocation(&self) -> Option<&Arc<Allocation>> {
        self.owner.as_ref()
    }

    pub(crate) fn slice(&self, offset_bytes: usize, len_bytes: usize) -> Self {
        Self { base: self.at(offset_bytes, len_bytes), len: len_bytes, owner: self.owner.clone() }
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (self.base.addr(), other.base.addr());
        self.len > 0 && other.len > 0 && a < b + other.len && b < a + self.len
    }

    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.base == other.base && self.len == other.len
    }

    /// `offset_bytes` needs no alignment.
    pub(crate) fn read<T: Pod>(&self, offset_bytes: usize, into: &mut [T]) {
        let bytes = size_of_val(into);
        let from = self.at(offset_bytes, bytes);
        // SAFETY: `at` checked the source. Any bytes are valid for the `Pod` type of `into`.
        unsafe { std::ptr::copy(from.cast_const(), into.as_mut_ptr().cast::<u8>(), bytes) };
    }

    /// Reads one byte of every page that will be written. After a read, the system maps a shared
    /// page with its neighbours; after a write, alone, with 16 times the page faults.
    pub(crate) fn touch(&self, offset_bytes: usize, len_bytes: usize) {
        for offset in (offset_bytes..offset_bytes + len_bytes).step_by(page_bytes()) {
            let mut byte = [0_u8];
            self.read(offset, &mut byte);
            std::hint::black_box(byte);
        }
    }

    /// `offset_bytes` needs no alignment.
    pub(crate) fn write<T: Pod>(&self, offset_bytes: usize, from: &[T]) {
        let bytes = size_of_val(from);
        let into = self.at(offset_bytes, bytes);
        // SAFETY: `at` checked the destination; `from` is a live slice.
        unsafe { std::ptr::copy(from.as_ptr().cast::<u8>(), into, bytes) };
    }

    /// The ranges may overlap.
    pub(crate) fn copy_from(
        &self,
        offset_bytes: usize,
        source: &Self,
        source_offset_bytes: usize,
        len_bytes: usize,
    ) {
        let into = self.at(offset_bytes, len_bytes);
        let from = source.at(source_offset_bytes, len_bytes);
        // SAFETY: both ranges were checked by `at`; `copy` permits overlap.
        unsafe { std::ptr::copy(from.cast_const(), into, len_bytes) };
    }

    /// Bypasses the caches, because the bytes are not read soon. The first upload to a page uses
    /// the caches: the system clears the page on the first write, so it is already cached.
    ///
    /// # Panics
    ///
    /// The ranges overlap or exceed their spans.
    pub(crate) fn upload_from(
        &self,
        offset_bytes: usize,
        source: &Self,
        source_offset_bytes: usize,
        len_bytes: usize,
    ) {
        let Some(owner) = &self.owner else {
            return self.copy_from(offset_bytes, source, source_offset_bytes, len_bytes);
        };
        let into = self.at(offset_bytes, len_bytes);
        let from = source.at(source_offset_bytes, len_bytes);
        let end = into.addr() - owner.bytes.addr().get() + len_bytes;
        if owner.uploaded.fetch_max(end, Ordering::Relaxed) < end {
            return self.copy_from(offset_bytes, source, source_offset_bytes, len_bytes);
        }
        assert!(into.addr().abs_diff(from.addr()) >= len_bytes, "overlapping ranges of {len_bytes} bytes");
        // SAFETY: `at` checked both ranges, and they do not overlap.
        unsafe { copy_streaming(from.cast_const(), into, len_bytes) };
    }

    pub(crate) fn fill(&self, value: u8) {
        // SAFETY: the span is valid for writes over its whole length.
        unsafe { std::ptr::write_bytes(self.base, value, self.len) };
    }

    pub(super) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "access {offset}+{len} leaves a span of {} bytes",
            self.len
        );
        // SAFETY: `offset <= self.len`.
        unsafe { self.base.add(offset) }
    }
}

/// # Safety
///
/// `place` is NULL or a C string, as the C declaration requires.
pub(crate) unsafe fn load_text(
    argument: &str,
    place: *const std::ffi::c_char,
) -> Result<String, crate::base::failure::Failure> {
    if place.is_null() {
        return Err(crate::base::failure::Failure::null(argument));
    }
    // SAFETY: not NULL, so a C string by this function's contract.
    let text = unsafe { std::ffi::CStr::from_ptr(place) };
    Ok(text.to_string_lossy().into_owned())
}

/// # Safety
///
/// `place` is NULL or valid for reading `count` values, as the C declaration requires.
pub(crate) unsafe fn load_array<T: Copy>(
    argument: &str,
    place: *const T,
    count: usize,
) -> Result<Vec<T>, crate::base::failure::Failure> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if place.is_null() {
        return Err(crate::base::failure::Failure::null(argument));
    }
    // SAFETY: not NULL, so valid for `count` reads by this function's contract.
    let values = unsafe { std::slice::from_raw_parts(place, count) };
    Ok(values.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(size: usize) -> Arc<Allocation> {
        Arc::new(Allocation::new(size, Location::Card(2), None).expect("mapping"))
    }

    #[test]
    fn spans_read_and_write_typed_elements_at_any_offset() {
        let span = allocation(64).span(1, 40);
        span.write(3, &[1.5_f32, -2.0]);
        let mut back = [0.0_f32; 2];
        span.read(3, &mut back);
        assert_eq!(back, [1.5, -2.0]);
        assert_eq!((span.card(), span.len_bytes()), (Some(2), 40));
    }

    #[test]
    fn a_60_gib_allocation_costs_nothing_until_touched() {
        let big = allocation(60 << 30);
        let span = big.span((60 << 30) - 8, 8);
        span.write(0, &[7_u64]);
        let mut back = [0_u64];
        span.read(0, &mut back);
        assert_eq!(back, [7]);
        assert_eq!(big.base() % 64, 0);
    }

    #[test]
    fn overlap_and_fill() {
        let memory = allocation(100);
        let (a, b, c) = (memory.span(0, 50), memory.span(49, 10), memory.span(50, 10));
        assert!(a.overlaps(&b) && !a.overlaps(&c) && !memory.span(0, 0).overlaps(&a));
        b.fill(9);
        c.copy_from(0, &b, 1, 2);
        let mut byte = [0_u8];
        c.read(1, &mut byte);
        assert_eq!(byte, [9]);
    }

    #[test]
    #[should_panic(expected = "leaves a span of 8 bytes")]
    fn access_outside_is_refused() {
        allocation(64).span(0, 8).write(5, &[0_u32]);
    }
}
