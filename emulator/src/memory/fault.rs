//! Signal handler that names the buffer when the program touches memory of a card, and that opens a
//! fence when the program touches the target of a queued copy.
//!
//! For a card's memory it prints one line on standard error; then the previous action of the signal
//! runs. Invariant: the handler takes no lock and does not allocate. Its entries are atomics that
//! are never freed.
#![expect(unsafe_code, reason = "a signal handler and its data")]

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use crate::memory::location::Location;
use crate::memory::pages::PAGE_BYTES;

/// Distance up to which an address counts as near a buffer. Exceeds the guard pages on either side,
/// for any page size.
pub(super) const NEAR_BYTES: usize = 2 * PAGE_BYTES;

const ON_HOST: u64 = u64::MAX;

/// One buffer. `base` is written last and makes the entry valid.
#[derive(Debug, Default)]
pub(crate) struct KnownEntry {
    base: AtomicUsize,
    size: AtomicUsize,
    place: AtomicU64,
    allocated: AtomicU64,
    name: AtomicPtr<u8>,
    name_len: AtomicUsize,
    /// 0 while the buffer is live.
    freed: AtomicU64,
}

#[derive(Debug)]
struct EntryBlock {
    entries: [KnownEntry; 1024],
    next: AtomicPtr<Self>,
}

static BLOCKS: AtomicPtr<EntryBlock> = AtomicPtr::new(std::ptr::null_mut());
static UNUSED: Mutex<Unused> = Mutex::new(Vec::new());

pub(crate) type Unused = Vec<&'static KnownEntry>;

pub(crate) fn unused() -> MutexGuard<'static, Unused> {
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

static INSTALL: Once = Once::new();

static PREVIOUS: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];
const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// A buffer that the handler knows. Dropping it removes the entry.
#[derive(Debug)]
pub(crate) struct KnownBuffer(&'static KnownEntry);

impl KnownBuffer {
    pub(crate) fn new(base: usize, size: usize, location: Location, number: u64, name: &'static str) -> Self {
        INSTALL.call_once(install);
        let entry = entry();
        entry.size.store(size, Ordering::Relaxed);
        let place = match location {
            Location::Card(card) => u64::from(card),
            Location::Host => ON_HOST,
        };
        entry.place.store(place, Ordering::Relaxed);
        entry.allocated.store(number, Ordering::Relaxed);
        entry.name.store(name.as_ptr().cast_mut(), Ordering::Relaxed);
        entry.name_len.store(name.len(), Ordering::Relaxed);
        entry.freed.store(0, Ordering::Relaxed);
        entry.base.store(base, Ordering::Release);
        Self(entry)
    }

    pub(crate) fn free(&self, number: u64) {
        self.0.freed.store(number, Ordering::Relaxed);
    }
}

impl Drop for KnownBuffer {
    fn drop(&mut self) {
        self.0.base.store(0, Ordering::Release);
        unused().push(self.0);
    }
}

fn entry() -> &'static KnownEntry {
    let mut unused = unused();
    if let Some(entry) = unused.pop() {
        return entry;
    }
    let entries = std::array::from_fn(|_| KnownEntry::default());
    let next = AtomicPtr::new(BLOCKS.load(Ordering::Relaxed));
    let block: &mut EntryBlock = Box::leak(Box::new(EntryBlock { entries, next }));
    let pointer = &raw mut *block;
    unused.extend(block.entries.iter());
    // The lock of `UNUSED` is held, so no other thread adds a block.
    BLOCKS.store(pointer, Ordering::Release);
    unused.pop().unwrap_or_else(|| unreachable!("a block has entries"))
}

fn describe(address: usize) -> Option<FaultLine> {
    let mut block = BLOCKS.load(Ordering::Acquire);
    let mut nearest: Option<(usize, &KnownEntry)> = None;
    while !block.is_null() {
        // SAFETY: blocks are never freed.
        let known = unsafe { &*block };
        for entry in &known.entries {
            let base = entry.base.load(Ordering::Acquire);
            if base == 0 {
                continue;
            }
            let end = base.wrapping_add(entry.size.load(Ordering::Relaxed));
            let distance = if address < base { base - address } else { (address + 1).saturating_sub(end) };
            if distance <= NEAR_BYTES && nearest.is_none_or(|(least, _)| distance < least) {
                nearest = Some((distance, entry));
            }
        }
        block = known.next.load(Ordering::Acquire);
    }
    let (_, entry) = nearest?;
    let mut line = FaultLine::default();
    // A signal handler cannot report truncation.
    let _ = entry.write(address, &mut line);
    Some(line)
}

impl KnownEntry {
    fn write(&self, address: usize, line: &mut FaultLine) -> fmt::Result {
        let base = self.base.load(Ordering::Acquire);
        let (size, place) = (self.size.load(Ordering::Relaxed), self.place.load(Ordering::Relaxed));
        let name = std::ptr::slice_from_raw_parts(
            self.name.load(Ordering::Relaxed),
            self.name_len.load(Ordering::Relaxed),
        );
        // SAFETY: pointer and length are those of a `&'static str`, both set before `base` was.
        let name = unsafe { &*name };
        let name = std::str::from_utf8(name).unwrap_or("an allocation");
        write!(line, "ascend emulator: host access: address {address:#x} is ")?;
        if address < base {
            write!(line, "{} bytes before", base - address)?;
        } else if address - base < size {
            write!(line, "byte {} of", address - base)?;
        } else {
            write!(line, "{} bytes past the end of", address - base - size)?;
        }
        write!(line, " the {size}-byte buffer from {name} (call {}", self.allocated.load(Ordering::Relaxed))?;
        match place {
            ON_HOST => write!(line, ", page-locked host memory)")?,
            card => write!(line, ", card {card})")?,
        }
        let freed = self.freed.load(Ordering::Relaxed);
        if freed > 0 {
            write!(line, ", which call {freed} freed")?;
        } else if place != ON_HOST {
            write!(line, "; the host cannot touch memory of a card: copy it with aclrtMemcpy")?;
        }
        writeln!(line)
    }
}

/// Pages that a queued copy will write.
#[derive(Debug)]
struct FenceEntry {
    /// First page; 0 while the entry is unused. Written last.
    pages: AtomicUsize,
    pages_bytes: AtomicUsize,
    target: AtomicUsize,
    target_bytes: AtomicUsize,
    /// First byte of the target that the program touched, or 0.
    touched: AtomicUsize,
}

/// Later copies than these are not fenced.
static FENCES: [FenceEntry; 256] = [const { FenceEntry::unused() }; 256];
/// Number of fences, so that the common case looks at no entry.
static FENCES_UP: AtomicUsize = AtomicUsize::new(0);
static RAISING: Mutex<()> = Mutex::new(());

impl FenceEntry {
    const fn unused() -> Self {
        let [pages, pages_bytes, target, target_bytes, touched] = [const { AtomicUsize::new(0) }; 5];
        Self { pages, pages_bytes, target, target_bytes, touched }
    }

    fn holds(&self, address: usize) -> bool {
        let pages = self.pages.load(Ordering::Acquire);
        pages != 0 && address.wrapping_sub(pages) < self.pages_bytes.load(Ordering::Relaxed)
    }

    fn protect(&self, access: libc::c_int) -> bool {
        let pages = std::ptr::with_exposed_provenance_mut(self.pages.load(Ordering::Acquire));
        // SAFETY: `Fence::raise` received whole pages of one allocation, which outlives the fence.
        unsafe { libc::mprotect(pages, self.pages_bytes.load(Ordering::Relaxed), access) == 0 }
    }
}

/// Makes pages inaccessible to the program. The first access opens them and is remembered.
#[derive(Debug)]
pub(crate) struct Fence(&'static FenceEntry);

impl Fence {
    /// Both ranges are addresses; `pages` are whole pages that the caller keeps mapped. Returns
    /// `None` if the system refuses.
    pub(super) fn raise(pages: std::ops::Range<usize>, target: std::ops::Range<usize>) -> Option<Self> {
        let _raising = RAISING.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = FENCES.iter().find(|entry| entry.pages.load(Ordering::Acquire) == 0)?;
        entry.pages_bytes.store(pages.len(), Ordering::Relaxed);
        entry.target.store(target.start, Ordering::Relaxed);
        entry.target_bytes.store(target.len(), Ordering::Relaxed);
        entry.touched.store(0, Ordering::Relaxed);
        entry.pages.store(pages.start, Ordering::Release);
        FENCES_UP.fetch_add(1, Ordering::Release);
        let fence = Self(entry);
        entry.protect(libc::PROT_NONE).then_some(fence)
    }

    /// Returns the first byte of the target that the program touched.
    pub(crate) fn touched(&self) -> Option<usize> {
        Some(self.0.touched.load(Ordering::Acquire)).filter(|address| *address != 0)
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        let is_open = self.0.protect(libc::PROT_READ | libc::PROT_WRITE);
        debug_assert!(is_open, "the pages are mapped");
        self.0.pages.store(0, Ordering::Release);
        FENCES_UP.fetch_sub(1, Ordering::Release);
    }
}

/// Returns true if a fence covers the address.
pub(super) fn is_fenced(address: usize) -> bool {
    FENCES_UP.load(Ordering::Acquire) > 0 && FENCES.iter().any(|entry| entry.holds(address))
}

/// Returns true if the address was fenced and can now be accessed.
fn open_fence(address: usize) -> bool {
    if FENCES_UP.load(Ordering::Acquire) == 0 {
        return false;
    }
    let Some(entry) = FENCES.iter().find(|entry| entry.holds(address)) else { return false };
    let offset = address.wrapping_sub(entry.target.load(Ordering::Relaxed));
    if offset < entry.target_bytes.load(Ordering::Relaxed) {
        let _ = entry.touched.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire);
    }
    entry.protect(libc::PROT_READ | libc::PROT_WRITE)
}

#[derive(Debug)]
struct FaultLine {
    text: [u8; 512],
    len: usize,
}

impl Default for FaultLine {
    fn default() -> Self {
        Self { text: [0; 512], len: 0 }
    }
}

impl Write for FaultLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.text[self.len..];
        let len = text.len().min(room.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        if len == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

fn install() {
    for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
        let mut before = default_action();
        // SAFETY: a null action only queries, and `before` is valid for writes.
        if unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut before) } != 0 {
            continue;
        }
        let _ = previous.set(before);
        let mut action = default_action();
        action.sa_sigaction = on_fault as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: `on_fault` has the signature SA_SIGINFO asks for and is safe to call in a
        // handler.
        let _ = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

fn default_action() -> libc::sigaction {
    // SAFETY: the C struct contains numbers and an optional function. Zeros mean the default
    // action.
    unsafe { std::mem::zeroed() }
}

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes a valid record to a handler installed with SA_SIGINFO.
    let record = unsafe { &*info };
    // SAFETY: SIGSEGV and SIGBUS carry an address.
    let address = unsafe { record.si_addr() };
    if open_fence(address.addr()) {
        return;
    }
    if let Some(line) = describe(address.addr()) {
        // SAFETY: `line` is alive and has `len` bytes; write(2) may be called in a handler.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, line.text.as_ptr().cast(), line.len) };
    }
    let place = usize::from(signal == libc::SIGBUS);
    pass_on(PREVIOUS[place].get(), signal, record.si_code, info, context);
}

fn pass_on(
    previous: Option<&libc::sigaction>,
    signal: libc::c_int,
    code: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    match previous {
        Some(action) if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN => {
            let handler: *const () = std::ptr::with_exposed_provenance(action.sa_sigaction);
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: with SA_SIGINFO the field holds a function of three arguments.
                let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    unsafe { std::mem::transmute(handler) };
                call(signal, info, context);
            } else {
                // SAFETY: without SA_SIGINFO the field holds a function of one argument.
                let call: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
                call(signal);
            }
        }
        _ => {
            let action = default_action();
            // SAFETY: the default action, which needs nothing. The faulting instruction runs again
            // after the return.
            let _ = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
            if code <= 0 {
                // Another process sent the signal, so no instruction faults again. SAFETY: no
                // conditions.
                let _ = unsafe { libc::raise(signal) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(address: usize) -> Option<String> {
        describe(address).map(|line| String::from_utf8_lossy(&line.text[..line.len]).into_owned())
    }

    #[test]
    fn a_fault_is_described_by_the_nearest_buffer() {
        // The first pages are never mapped, so the addresses are free.
        let known = KnownBuffer::new(0x2_0040, 100, Location::Card(3), 17, "aclrtMalloc");
        let inside = text(0x2_0040 + 99).expect("inside");
        assert_eq!(
            inside,
            "ascend emulator: host access: address 0x200a3 is byte 99 of the 100-byte buffer from aclrtMalloc (call 17, \
             card 3); the host cannot touch memory of a card: copy it with aclrtMemcpy\n"
        );
        assert!(text(0x2_0040 + 100).expect("behind").contains(" is 0 bytes past the end of the 100-byte"));
        // The last byte of the largest page, which begins after the red zone.
        let last = 0x2_0040 + 100 + 96 + PAGE_BYTES - 1;
        assert!(text(last).expect("near").contains(" is 65631 bytes past the end of the 100-byte"));
        assert!(text(0x2_003f).expect("before").contains(" is 1 bytes before the 100-byte"));
        known.free(30);
        assert!(text(0x2_0040).expect("freed").ends_with("(call 17, card 3), which call 30 freed\n"));
        drop(known);
        assert_eq!(text(0x2_0040), None);
    }

    #[test]
    fn host_memory_is_named_as_such() {
        let _known = KnownBuffer::new(0x5_0040, 8, Location::Host, 4, "aclrtMallocHost");
        let found = text(0x5_0040 + 8).expect("behind");
        assert!(found.ends_with("from aclrtMallocHost (call 4, page-locked host memory)\n"), "{found}");
    }
}
