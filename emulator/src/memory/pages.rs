//! Address ranges of this process, and the files mapped there.
//!
//! Invariants: only dropping a [`Range`] unmaps it, so its addresses never show foreign memory. New
//! bytes of a [`Store`] are zero, and a store never reuses an offset. Memory in a [`Backing`] never
//! moves.
#![expect(unsafe_code, reason = "mappings are made by system calls")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{MmapMut, MmapOptions};

/// Granularity of all mappings here: the largest page size in common use.
pub(crate) const PAGE_BYTES: usize = 1 << 16;

/// Returns 4 KiB, or 64 KiB on many aarch64 systems.
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// The first access to huge pages costs a tenth. At most two of them are wasted.
const HUGE_FROM_BYTES: usize = 32 << 20;
/// For systems with 4 KiB pages. Elsewhere huge pages exceed most buffers.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

#[derive(Debug)]
pub(crate) struct Range {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a range owns its addresses. All access copies bytes.
unsafe impl Send for Range {}
// SAFETY: as above; mapping over a part of the range is a system call.
unsafe impl Sync for Range {}

#[derive(Debug, Clone, Copy)]
pub(crate) enum PageContent<'a> {
    /// A file from an offset on.
    File(&'a File, u64),
    /// Private zero pages. They use no memory until they are touched.
    Blank,
    /// No content: every access faults.
    Nothing,
}

impl Range {
    /// `alignment` is a power of two, at least a page.
    pub(crate) fn reserve(len: usize, alignment: usize) -> io::Result<Self> {
        let wanted = len.checked_add(alignment).ok_or(io::ErrorKind::OutOfMemory)?;
        let first = map(std::ptr::null_mut(), wanted, PageContent::Nothing)?;
        let head = first.addr().get().next_multiple_of(alignment) - first.addr().get();
        // SAFETY: `head < alignment`, so the result is inside the bytes just mapped.
        let base = unsafe { first.add(head) };
        // SAFETY: `head + len <= wanted`, so the result is inside the mapping or its end.
        let tail = unsafe { base.add(len) };
        unmap(first, head);
        unmap(tail, wanted - head - len);
        Ok(Self { base, len })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len
    }

    /// Atomically maps other content into `len` bytes at `offset` (both multiples of a page).
    pub(crate) fn show(&self, offset: usize, len: usize, what: PageContent<'_>) -> io::Result<()> {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "part {offset}+{len} leaves {} bytes",
            self.len
        );
        // SAFETY: `offset <= self.len`, so the address stays within the range.
        let at = unsafe { self.base.add(offset) };
        map(at.as_ptr(), len, what).map(|_| ())
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        unmap(self.base, self.len);
    }
}

/// `place` is NULL or in a mapping of the caller.
fn map(place: *mut u8, len: usize, what: PageContent<'_>) -> io::Result<NonNull<u8>> {
    let fixed = if place.is_null() { 0 } else { libc::MAP_FIXED };
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let (access, flags, file, at) = match what {
        PageContent::File(file, at) => {
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd(), at)
        }
        PageContent::Blank => (libc::PROT_READ | libc::PROT_WRITE, anonymous, -1, 0),
        PageContent::Nothing => (libc::PROT_NONE, anonymous, -1, 0),
    };
    let at = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: with `MAP_FIXED` the caller owns the addresses, without it the system chooses free
    // ones.
    let found = unsafe { libc::mmap(place.cast(), len, access, flags | fixed, file, at) };
    if found == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(found.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

fn unmap(base: NonNull<u8>, len: usize) {
    if len > 0 {
        // SAFETY: the caller owns these addresses and gives them up.
        let code = unsafe { libc::munmap(base.as_ptr().cast(), len) };
        debug_assert_eq!(code, 0, "munmap: {}", io::Error::last_os_error());
    }
}

/// Bytes in an unnamed file, so that several ranges can map them.
#[derive(Debug)]
pub(crate) struct PageStore {
    file: File,
    /// Offsets are never reused; freed parts use no memory.
    next: Mutex<u64>,
}

impl PageStore {
    pub(crate) fn new() -> io::Result<Self> {
        let file = nameless_file()?;
        forbid_shrinking(&file)?;
        Ok(Self { file, next: Mutex::new(0) })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The new bytes are zero.
    pub(crate) fn take(&self, len: usize) -> io::Result<u64> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = next.next_multiple_of(alignment_of(len) as u64);
        let end = at + len.next_multiple_of(PAGE_BYTES) as u64;
        self.file.set_len(end)?;
        *next = end;
        Ok(at)
    }

    /// Ranges that still map the part read zeros.
    pub(crate) fn give(&self, at: u64, len: usize) {
        punch(&self.file, at, len.next_multiple_of(PAGE_BYTES) as u64);
    }
}

fn alignment_of(len: usize) -> usize {
    if len < HUGE_FROM_BYTES { PAGE_BYTES } else { HUGE_PAGE_BYTES }
}

/// Zero bytes at fixed addresses, mapped until the value is dropped.
#[derive(Debug)]
pub(crate) enum Backing {
    /// Private pages of this process.
    Own(MmapMut),
    /// Other processes can map this part of a store.
    Stored { range: Range, store: Arc<PageStore>, at: u64 },
}

impl Backing {
    /// `len` is more than 0; the memory is page-aligned.
    pub(crate) fn new(len: usize, store: Option<&Arc<PageStore>>) -> io::Result<Self> {
        let Some(store) = store else {
            let pages = MmapOptions::new().len(len).no_reserve_swap().map_anon()?;
            #[cfg(target_os = "linux")]
            if len >= HUGE_FROM_BYTES {
                // If the system refuses, only the first access is slower.
                let _refused = pages.advise(memmap2::Advice::HugePage);
            }
            return Ok(Self::Own(pages));
        };
        let len = len.checked_next_multiple_of(PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let range = Range::reserve(len, alignment_of(len))?;
        let at = store.take(len)?;
        // From here on, any failure drops `backing`.
        let backing = Self::Stored { range, store: Arc::clone(store), at };
        if let Self::Stored { range, .. } = &backing {
            range.show(0, len, PageContent::File(store.file(), at))?;
            #[cfg(target_os = "linux")]
            if len >= HUGE_FROM_BYTES {
                advise_huge(range);
            }
        }
        Ok(backing)
    }

    pub(crate) fn base(&mut self) -> io::Result<NonNull<u8>> {
        match self {
            Self::Own(pages) => {
                NonNull::new(pages.as_mut_ptr()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
            }
            Self::Stored { range, .. } => Ok(range.base()),
        }
    }

    /// Returns `None` for private pages.
    pub(crate) fn at(&self) -> Option<u64> {
        match self {
            Self::Own(_) => None,
            Self::Stored { at, .. } => Some(*at),
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Self::Stored { range, store, at } = self {
            store.give(*at, range.len_bytes());
        }
    }
}

/// Many systems grant huge pages only to private memory; small pages then work too.
#[cfg(target_os = "linux")]
fn advise_huge(range: &Range) {
    // SAFETY: the call only advises about a mapping that this process owns.
    let _refused = unsafe { libc::madvise(range.base.as_ptr().cast(), range.len, libc::MADV_HUGEPAGE) };
}

/// The file disappears with its last user.
#[cfg(target_os = "linux")]
pub(crate) fn nameless_file() -> io::Result<File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the name is a C string; the call has no other conditions.
    let descriptor = unsafe {
        libc::memfd_create(c"ascend-emulator".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// A process that shrank the file would kill other processes at their next access.
#[cfg(target_os = "linux")]
fn forbid_shrinking(file: &File) -> io::Result<()> {
    use rustix::fs::SealFlags;
    Ok(rustix::fs::fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::SEAL)?)
}

/// Returns whether a memory file is unsealed.
#[cfg(target_os = "linux")]
pub(crate) fn may_shrink(file: &File) -> io::Result<bool> {
    Ok(!rustix::fs::fcntl_get_seals(file)?.contains(rustix::fs::SealFlags::SHRINK))
}

/// On other systems, processes do not open each other's files.
#[cfg(not(target_os = "linux"))]
fn forbid_shrinking(_file: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn may_shrink(_file: &File) -> io::Result<bool> {
    Ok(true)
}

/// The file disappears with its last user.
#[cfg(not(target_os = "linux"))]
pub(crate) fn nameless_file() -> io::Result<File> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static MADE: AtomicU64 = AtomicU64::new(0);
    let name = format!("ascend-emulator-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

#[cfg(target_os = "linux")]
fn punch(file: &File, at: u64, len: u64) {
    let (Ok(at), Ok(len)) = (libc::off_t::try_from(at), libc::off_t::try_from(len)) else { return };
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the descriptor is open.
    let code = unsafe { libc::fallocate(file.as_raw_fd(), how, at, len) };
    debug_assert_eq!(code, 0, "fallocate: {}", io::Error::last_os_error());
}

/// On other systems, the bytes stay in the file.
#[cfg(not(target_os = "linux"))]
fn punch(_file: &File, _at: u64, _len: u64) {}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn byte(range: &Range, offset: usize) -> u8 {
        assert!(offset < range.len_bytes());
        // SAFETY: inside the range, and the test has mapped content there.
        let at = unsafe { range.base().add(offset) };
        // SAFETY: as above.
        unsafe { at.read_volatile() }
    }

    #[test]
    fn two_ranges_show_the_same_bytes_of_a_store() {
        let store = PageStore::new().expect("a file of memory");
        let at = store.take(PAGE_BYTES).expect("grows");
        let (a, b) = (Range::reserve(PAGE_BYTES, 1 << 21), Range::reserve(2 * PAGE_BYTES, PAGE_BYTES));
        let (a, b) = (a.expect("addresses"), b.expect("addresses"));
        assert_eq!(a.base().addr().get() % (1 << 21), 0);
        a.show(0, PAGE_BYTES, PageContent::File(store.file(), at)).expect("shows");
        b.show(PAGE_BYTES, PAGE_BYTES, PageContent::File(store.file(), at)).expect("shows");
        store.file().write_all_at(&[7], at + 3).expect("writes");
        assert_eq!((byte(&a, 3), byte(&b, PAGE_BYTES + 3)), (7, 7));
        b.show(PAGE_BYTES, PAGE_BYTES, PageContent::Blank).expect("shows");
        assert_eq!((byte(&a, 3), byte(&b, PAGE_BYTES + 3)), (7, 0));
        store.give(at, PAGE_BYTES);
        assert_eq!(byte(&a, 3), 0);
        assert_eq!(store.take(1).expect("grows"), PAGE_BYTES as u64);
    }
}
