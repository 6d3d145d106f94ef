//! A stream of bytes from one process to another through shared memory, with futexes to sleep on.
//!
//! Input: bytes of the process that made the memory. Output: the same bytes in the process that opened it. Layout: one
//! page of words (bytes written, bytes taken, who sleeps), then a ring. Invariants: the memory has no name, so nothing
//! is left behind however a process ends; the positions come from a peer, so every copy is cut to the ring's size;
//! nothing spins, and every sleep ends after a while to look whether the stream was closed.
//! Does not: know frames (see `link::wire`) or notice that a process died (its connection does).
#![expect(unsafe_code, reason = "memory shared with another process is raw memory")]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::thread::futex;

use crate::link::wire::Lane;

/// Bytes on their way at most; a power of two, so that positions may wrap.
const RING_BYTES: usize = 1 << 20;
const HEADER_BYTES: usize = 4096;

/// Longest sleep before a look whether the stream was closed.
const NAP: futex::Timespec = futex::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Words of the header.
#[derive(Debug, Clone, Copy)]
enum Word {
    Written,
    Taken,
    ReaderSleeps,
    WriterSleeps,
}

/// One direction between two processes.
#[derive(Debug)]
pub(crate) struct SharedRing {
    memory: MmapRaw,
    /// Only the maker has it.
    file: Option<OwnedFd>,
    /// One frame at a time.
    writer: Mutex<()>,
    /// This side has given up: a writer fails, a reader takes what is there and ends.
    closed: AtomicBool,
    stall_limit: Duration,
}

impl SharedRing {
    /// New memory that this process sends through; `stall_limit` is how long it waits for a reader that takes nothing.
    ///
    /// # Errors
    /// The system has no memory or file descriptor left.
    pub(crate) fn create(stall_limit: Duration) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("ascend-link", flags)?;
        rustix::fs::ftruncate(&file, (HEADER_BYTES + RING_BYTES) as u64)?;
        // A peer that shrank it would kill this process at its next access.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let memory = MmapOptions::new().len(HEADER_BYTES + RING_BYTES).map_raw(&file)?;
        Ok(Self { memory, file: Some(file), writer: Mutex::default(), closed: AtomicBool::new(false), stall_limit })
    }

    /// Opens another process's memory to receive from it.
    ///
    /// # Errors
    /// This process may not, or it is no such memory.
    pub(crate) fn open(lane: Lane) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(format!("/proc/{}/fd/{}", lane.pid, lane.fd))?;
        let found = file.metadata()?.len();
        if found != (HEADER_BYTES + RING_BYTES) as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the peer's memory has {found} bytes")));
        }
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer's memory may shrink"));
        }
        let memory = MmapOptions::new().len(HEADER_BYTES + RING_BYTES).map_raw(&file)?;
        Ok(Self {
            memory,
            file: None,
            writer: Mutex::default(),
            closed: AtomicBool::new(false),
            stall_limit: Duration::ZERO,
        })
    }

    /// Where a peer finds this memory.
    pub(crate) fn lane(&self) -> Option<Lane> {
        self.file.as_ref().map(|file| Lane { pid: std::process::id(), fd: file.as_raw_fd() })
    }

    /// Sends a header and a payload, one after the other, with nothing between.
    ///
    /// # Errors
    /// This side was closed, or the reader takes nothing for longer than the limit.
    pub(crate) fn send(&self, header: &[u8], payload: &[u8]) -> io::Result<()> {
        let _one_at_a_time = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_all(header)?;
        self.write_all(payload)
    }

    /// Gives up this side.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake(Word::Written);
        self.wake(Word::Taken);
    }

    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.word(Word::Written).load(Ordering::Relaxed);
            let taken = self.wait_for_room(written)?;
            let used = (written.wrapping_sub(taken) as usize).min(RING_BYTES);
            let at = written as usize % RING_BYTES;
            let count = bytes.len().min(RING_BYTES - used).min(RING_BYTES - at);
            let into = self.memory.as_mut_ptr().wrapping_add(HEADER_BYTES + at);
            // SAFETY: `at + count <= RING_BYTES`, so the range is within the mapping, and `bytes` has `count` bytes.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), into, count) };
            self.word(Word::Written).store(written.wrapping_add(count as u32), Ordering::SeqCst);
            if self.word(Word::ReaderSleeps).swap(0, Ordering::SeqCst) != 0 {
                self.wake(Word::Written);
            }
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Sleeps until the ring is not full; gives the bytes taken.
    fn wait_for_room(&self, written: u32) -> io::Result<u32> {
        let since = Instant::now();
        loop {
            let taken = self.word(Word::Taken).load(Ordering::SeqCst);
            if self.closed.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if (written.wrapping_sub(taken) as usize) < RING_BYTES {
                return Ok(taken);
            }
            if since.elapsed() > self.stall_limit {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.sleep(Word::WriterSleeps, Word::Taken, taken);
        }
    }

    /// Says that this side sleeps, and sleeps while `watched` is `value`.
    fn sleep(&self, who: Word, watched: Word, value: u32) {
        self.word(who).store(1, Ordering::SeqCst);
        if self.word(watched).load(Ordering::SeqCst) == value && !self.closed.load(Ordering::SeqCst) {
            // It returns when woken, when the value is another already, or after a while: the caller looks again.
            let _ = futex::wait(self.word(watched), futex::Flags::empty(), value, Some(&NAP));
        }
        self.word(who).store(0, Ordering::SeqCst);
    }

    fn wake(&self, word: Word) {
        // Without a sleeper there is nothing to do, and a failure only costs the sleeper the rest of its nap.
        let _ = futex::wake(self.word(word), futex::Flags::empty(), u32::MAX >> 1);
    }

    #[expect(clippy::cast_ptr_alignment, reason = "a multiple of 64 from the start of a page")]
    fn word(&self, word: Word) -> &AtomicU32 {
        // Each on its own cache line.
        let place = self.memory.as_mut_ptr().wrapping_add(word as usize * 64).cast::<u32>();
        // SAFETY: within the header page of a live mapping, aligned, and only ever accessed as an atomic word.
        unsafe { AtomicU32::from_ptr(place) }
    }
}

/// The receiving end.
#[derive(Debug, Clone)]
pub(crate) struct RingReader(pub(crate) Arc<SharedRing>);

impl Read for RingReader {
    /// Takes what is there, sleeping until something is; 0 when the stream was closed and is empty.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let ring = &self.0;
        loop {
            // In this order: what was written before the close must be seen after it.
            let is_closed = ring.closed.load(Ordering::SeqCst);
            let written = ring.word(Word::Written).load(Ordering::SeqCst);
            let taken = ring.word(Word::Taken).load(Ordering::Relaxed);
            let available = (written.wrapping_sub(taken) as usize).min(RING_BYTES);
            if available == 0 || into.is_empty() {
                if is_closed || into.is_empty() {
                    return Ok(0);
                }
                ring.sleep(Word::ReaderSleeps, Word::Written, written);
                continue;
            }
            let at = taken as usize % RING_BYTES;
            let count = available.min(into.len()).min(RING_BYTES - at);
            let from = ring.memory.as_mut_ptr().wrapping_add(HEADER_BYTES + at);
            // SAFETY: `at + count <= RING_BYTES`, so the range is within the mapping, and `into` has room for `count`.
            unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), into.as_mut_ptr(), count) };
            ring.word(Word::Taken).store(taken.wrapping_add(count as u32), Ordering::SeqCst);
            if ring.word(Word::WriterSleeps).swap(0, Ordering::SeqCst) != 0 {
                ring.wake(Word::Taken);
            }
            return Ok(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn pair() -> (SharedRing, RingReader) {
        let ring = SharedRing::create(LIMIT).expect("memory");
        let reader = SharedRing::open(ring.lane().expect("the maker knows")).expect("own memory");
        (ring, RingReader(Arc::new(reader)))
    }

    #[test]
    fn more_bytes_than_the_ring_holds_arrive_in_order() {
        let (ring, mut reader) = pair();
        let count = 3 * RING_BYTES + 12_345;
        let expected: Vec<u8> = (0..count).map(|index| (index * 31 % 251) as u8).collect();
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                for chunk in expected.chunks(70_001) {
                    ring.send(&chunk[..1], &chunk[1..]).expect("someone reads");
                }
            });
            let mut found = vec![0; count];
            reader.read_exact(&mut found).expect("all of it");
            found
        });
        assert!(found == expected);
    }

    #[test]
    fn a_closed_stream_ends_after_what_was_written() {
        let (ring, mut reader) = pair();
        ring.send(b"ab", b"cde").expect("room");
        reader.0.close();
        let mut found = Vec::new();
        reader.read_to_end(&mut found).expect("an end");
        assert_eq!(found, b"abcde");
        ring.close();
        assert_eq!(ring.send(b"x", b"").expect_err("closed").kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn what_is_not_such_memory_is_refused() {
        let file = rustix::fs::memfd_create("other", MemfdFlags::CLOEXEC).expect("a file");
        let lane = Lane { pid: std::process::id(), fd: file.as_raw_fd() };
        let text = SharedRing::open(lane).expect_err("too short").to_string();
        assert_eq!(text, "the peer's memory has 0 bytes");
    }
}
