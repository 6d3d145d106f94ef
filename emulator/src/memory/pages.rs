//! Pages: address ranges of this process and the files whose bytes appear in them.
//!
//! Input: lengths, files, offsets. Output: a [`Range`] of addresses that shows bytes of a file, blank pages or nothing, a
//! [`Store`] of bytes that several ranges, of this process or of others, can show at once, and a [`Backing`] for memory that
//! stays where it is made. Invariants: a range is unmapped when it is dropped and not before, so an address in it never shows
//! foreign memory; bytes of a store are zero when they are taken, and no offset is given out twice. Does not: know cards,
//! allocations or who may see what (see `store`, `virtual_memory`, `ipc`).
#![expect(unsafe_code, reason = "mappings are made by system calls")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{MmapMut, MmapOptions};

/// Every mapping here is a multiple of this: the largest page size in common use.
pub(crate) const PAGE_BYTES: usize = 1 << 16;

/// Bytes of a page of this system: 4 KiB, on many aarch64 systems 64 KiB.
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// From this size on memory is asked for in huge pages: touching it first costs a tenth, and what it may take beyond what is
/// touched, up to two of them, is little beside it.
const HUGE_FROM_BYTES: usize = 32 << 20;
/// What huge pages begin at multiples of where pages are of 4 KiB; those of larger pages are larger than most buffers.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Addresses of this process, all of one mapping call at first.
#[derive(Debug)]
pub(crate) struct Range {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a range owns its addresses; what is read and written through them goes through spans that copy bytes.
unsafe impl Send for Range {}
// SAFETY: as above; mapping over a part of the range is a system call.
unsafe impl Sync for Range {}

/// What a part of a range shall show.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PageContent<'a> {
    /// Bytes of a file from an offset on, for reading and writing.
    File(&'a File, u64),
    /// Zero pages of its own, for reading and writing; they cost nothing until they are touched.
    Blank,
    /// Nothing: an access faults.
    Nothing,
}

impl Range {
    /// `len` bytes at a multiple of `alignment` (a power of two, at least a page); they show nothing.
    ///
    /// # Errors
    /// The operating system has no such range left.
    pub(crate) fn reserve(len: usize, alignment: usize) -> io::Result<Self> {
        let wanted = len.checked_add(alignment).ok_or(io::ErrorKind::OutOfMemory)?;
        let first = map(std::ptr::null_mut(), wanted, PageContent::Nothing)?;
        let head = first.addr().get().next_multiple_of(alignment) - first.addr().get();
        // SAFETY: `head < alignment`, so the result is within the `len + alignment` bytes just mapped.
        let base = unsafe { first.add(head) };
        // SAFETY: `head + len <= wanted`, so this is at most the end of what was mapped.
        let tail = unsafe { base.add(len) };
        unmap(first, head);
        unmap(tail, wanted - head - len);
        Ok(Self { base, len })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.len
    }

    /// Lets `len` bytes at `offset` (both multiples of a page) show something else, in one step.
    ///
    /// # Errors
    /// The operating system refuses.
    ///
    /// # Panics
    /// When the part leaves the range.
    pub(crate) fn show(&self, offset: usize, len: usize, what: PageContent<'_>) -> io::Result<()> {
        assert!(offset <= self.len && len <= self.len - offset, "part {offset}+{len} leaves {} bytes", self.len);
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

/// Maps `len` bytes; over whatever is at `place`, which the caller owns, or anywhere when it is NULL.
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
    // SAFETY: with `MAP_FIXED` the caller owns the addresses, without it the system picks free ones.
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

/// Bytes that live in a file without a name, so that several ranges can show them.
#[derive(Debug)]
pub(crate) struct Store {
    file: File,
    /// Where the next part begins. Offsets are never used twice; what is given back takes no memory.
    next: Mutex<u64>,
}

impl Store {
    /// An empty store.
    ///
    /// # Errors
    /// The operating system has no file for it.
    pub(crate) fn new() -> io::Result<Self> {
        let file = nameless_file()?;
        forbid_shrinking(&file)?;
        Ok(Self { file, next: Mutex::new(0) })
    }

    /// The file, for showing.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Offset of `len` new zero bytes.
    ///
    /// # Errors
    /// The file cannot grow.
    pub(crate) fn take(&self, len: usize) -> io::Result<u64> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = next.next_multiple_of(alignment_of(len) as u64);
        let end = at + len.next_multiple_of(PAGE_BYTES) as u64;
        self.file.set_len(end)?;
        *next = end;
        Ok(at)
    }

    /// Gives the memory of a part back; ranges that still show it read zeros.
    pub(crate) fn give(&self, at: u64, len: usize) {
        punch(&self.file, at, len.next_multiple_of(PAGE_BYTES) as u64);
    }
}

/// What memory of this size begins at a multiple of.
fn alignment_of(len: usize) -> usize {
    if len < HUGE_FROM_BYTES { PAGE_BYTES } else { HUGE_PAGE_BYTES }
}

/// Zero bytes at addresses of their own, where they stay until this is dropped.
#[derive(Debug)]
pub(crate) enum Backing {
    /// Pages of this process.
    Own(MmapMut),
    /// A part of a store, which other processes can show too.
    Stored { range: Range, store: Arc<Store>, at: u64 },
}

impl Backing {
    /// `len` bytes (more than 0), page-aligned; in `store`, or of this process alone.
    ///
    /// # Errors
    /// The operating system has no memory or no addresses for it.
    pub(crate) fn new(len: usize, store: Option<&Arc<Store>>) -> io::Result<Self> {
        let Some(store) = store else {
            let pages = MmapOptions::new().len(len).no_reserve_swap().map_anon()?;
            #[cfg(target_os = "linux")]
            if len >= HUGE_FROM_BYTES {
                // Where the system refuses, small pages serve as well, and only take longer to be touched first.
                let _refused = pages.advise(memmap2::Advice::HugePage);
            }
            return Ok(Self::Own(pages));
        };
        let len = len.checked_next_multiple_of(PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let range = Range::reserve(len, alignment_of(len))?;
        let at = store.take(len)?;
        // From here on, whatever fails gives the bytes back.
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

    /// Where its first byte is mapped.
    pub(crate) fn base(&mut self) -> io::Result<NonNull<u8>> {
        match self {
            Self::Own(pages) => NonNull::new(pages.as_mut_ptr()).ok_or_else(|| io::ErrorKind::OutOfMemory.into()),
            Self::Stored { range, .. } => Ok(range.base()),
        }
    }

    /// Where the first byte is in its store; None for pages of this process alone.
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

/// Asks for huge pages; many systems grant them to memory of one process only, and then small pages serve.
#[cfg(target_os = "linux")]
fn advise_huge(range: &Range) {
    // SAFETY: advice about a mapping that this process owns.
    let _refused = unsafe { libc::madvise(range.base.as_ptr().cast(), range.len, libc::MADV_HUGEPAGE) };
}

/// A file of memory without a name, gone with its last user.
///
/// # Errors
/// The operating system has none left.
#[cfg(target_os = "linux")]
pub(crate) fn nameless_file() -> io::Result<File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the name is a C string; the call has no other conditions.
    let descriptor =
        unsafe { libc::memfd_create(c"ascend-emulator".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// A process that shrank it would kill others that show it at their next access.
#[cfg(target_os = "linux")]
fn forbid_shrinking(file: &File) -> io::Result<()> {
    use rustix::fs::SealFlags;
    Ok(rustix::fs::fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::SEAL)?)
}

/// Whether a file of memory may become shorter.
///
/// # Errors
/// It is no file of memory.
#[cfg(target_os = "linux")]
pub(crate) fn may_shrink(file: &File) -> io::Result<bool> {
    Ok(!rustix::fs::fcntl_get_seals(file)?.contains(rustix::fs::SealFlags::SHRINK))
}

/// Elsewhere files have no seals, and processes do not open each other's.
#[cfg(not(target_os = "linux"))]
fn forbid_shrinking(_file: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn may_shrink(_file: &File) -> io::Result<bool> {
    Ok(true)
}

/// A file without a name, gone with its last user.
///
/// # Errors
/// The folder for temporary files cannot be written.
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
    // SAFETY: the descriptor is open; punching a hole in a file has no other conditions.
    let code = unsafe { libc::fallocate(file.as_raw_fd(), how, at, len) };
    debug_assert_eq!(code, 0, "fallocate: {}", io::Error::last_os_error());
}

/// Elsewhere the bytes stay in the file until it goes.
#[cfg(not(target_os = "linux"))]
fn punch(_file: &File, _at: u64, _len: u64) {}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn byte(range: &Range, offset: usize) -> u8 {
        assert!(offset < range.len_bytes());
        // SAFETY: within the range, and the test shows something there.
        let at = unsafe { range.base().add(offset) };
        // SAFETY: as above.
        unsafe { at.read_volatile() }
    }

    #[test]
    fn two_ranges_show_the_same_bytes_of_a_store() {
        let store = Store::new().expect("a file of memory");
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
