//! Direct access to the memory of another process on this host.
//!
//! Most buffers are at one location in the peer's store; explicitly mapped or imported memory
//! consists of listed parts ([`Parts`]).
//!
//! Invariants:
//! - A store never shrinks (an unsealed file is refused), so a span stays readable after the peer
//!   ends. It never reuses an offset, so a list's offset always names the same parts.
//! - A location beyond the store is refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::location::Location;
use super::pages::{HUGE_PAGE_BYTES, PAGE_BYTES, PageContent, Range, may_shrink};
use super::place::FIELDS;
use super::raw::{Allocation, RawSpan};
use crate::memory::place::{MemoryPlace, PeerBuffer};

#[derive(Debug)]
pub(crate) struct PeerMemory {
    pid: u32,
    file: File,
    shown: Mutex<Option<Arc<Range>>>,
    listed: Mutex<BTreeMap<u64, Arc<Range>>>,
    /// A store never shrinks.
    len_bytes: AtomicU64,
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn open(pid: u32, descriptor: u64) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/proc/{pid}/fd/{descriptor}"))
}

impl PeerMemory {
    pub(crate) fn open(lane: StoreAddress) -> io::Result<Self> {
        let file = open(lane.pid, lane.fd as u64)?;
        if may_shrink(&file)? {
            return Err(invalid("the peer's memory may shrink".into()));
        }
        let len_bytes = AtomicU64::new(0);
        Ok(Self { pid: lane.pid, file, shown: Mutex::default(), listed: Mutex::default(), len_bytes })
    }

    /// Fails if the buffer is beyond the peer's memory, or the system has no addresses left.
    pub(crate) fn buffer(&self, buffer: PeerBuffer) -> io::Result<RawSpan> {
        let (list, offset, len_bytes) = match buffer {
            PeerBuffer::Whole(place) => return self.span(place),
            PeerBuffer::Listed { list, offset, len_bytes } => (list, offset as usize, len_bytes as usize),
        };
        let range = self.listed(list)?;
        if offset.checked_add(len_bytes).is_none_or(|end| end > range.len_bytes()) {
            let what = format!(
                "{len_bytes} bytes at {offset} are beyond the {} bytes mapped there",
                range.len_bytes()
            );
            return Err(invalid(what));
        }
        let part = Allocation::part(&range, offset, len_bytes, Location::Host, None, 0);
        Ok(Arc::new(part).span(0, len_bytes))
    }

    /// The parts are mapped next to each other.
    fn listed(&self, list: MemoryPlace) -> io::Result<Arc<Range>> {
        /// More mappings end with their last span.
        const KEPT: usize = 64;
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = listed.get(&list.at) {
            return Ok(Arc::clone(known));
        }
        let mut bytes = vec![0; list.len_bytes as usize];
        self.file.read_exact_at(&mut bytes, list.at)?;
        let numbers =
            bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect::<Vec<u64>>();
        let parts = numbers.as_chunks::<FIELDS>().0;
        let total = parts.iter().map(|[.., len]| *len as usize).sum::<usize>();
        let range = Range::reserve(total.next_multiple_of(PAGE_BYTES), PAGE_BYTES)?;
        let mut before = 0;
        for [descriptor, inode, at, len] in parts {
            let file = open(self.pid, *descriptor)?;
            if file.metadata()?.ino() != *inode || may_shrink(&file)? {
                return Err(invalid(format!(
                    "descriptor {descriptor} is not the memory that its process has listed"
                )));
            }
            range.show(before, *len as usize, PageContent::File(&file, *at))?;
            before += *len as usize;
        }
        if listed.len() >= KEPT {
            listed.clear();
        }
        Ok(Arc::clone(listed.entry(list.at).or_insert(Arc::new(range))))
    }

    pub(crate) fn span(&self, place: MemoryPlace) -> io::Result<RawSpan> {
        /// Reserved addresses cost nothing until they are touched.
        const AHEAD_BYTES: usize = 1 << 32;
        let end = place.at.checked_add(place.len_bytes).filter(|end| *end <= u64::MAX >> 2);
        let within = |end: &u64| {
            *end <= self.len_bytes.load(Ordering::Relaxed)
                || self.file.metadata().is_ok_and(|found| {
                    self.len_bytes.fetch_max(found.len(), Ordering::Relaxed);
                    *end <= found.len()
                })
        };
        let Some(end) = end.filter(within) else {
            let what = format!("{} bytes at {} are beyond the peer's memory", place.len_bytes, place.at);
            return Err(invalid(what));
        };
        let (at, end) = (place.at as usize, end as usize);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let range = match &*shown {
            Some(range) if end <= range.len_bytes() => Arc::clone(range),
            _ => {
                // Aligned for the peer's huge pages.
                let range = Range::reserve(end.next_multiple_of(AHEAD_BYTES), HUGE_PAGE_BYTES)?;
                range.show(0, range.len_bytes(), PageContent::File(&self.file, 0))?;
                Arc::clone(shown.insert(Arc::new(range)))
            }
        };
        // No card of this process.
        let part = Arc::new(Allocation::part(&range, at, end - at, Location::Host, None, 0));
        Ok(part.span(0, end - at))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::memory::pages::PageStore;
    use crate::memory::pages::nameless_file;
    use crate::memory::place::FilePart;
    use crate::memory::place::StoredParts;

    fn lane(file: &File) -> StoreAddress {
        StoreAddress {
            pid: std::process::id(),
            fd: file.as_raw_fd(),
            bell: MemoryPlace { at: 0, len_bytes: 0 },
        }
    }

    #[test]
    fn a_store_is_read_and_written_in_place() {
        let store = PageStore::new().expect("memory");
        let at = store.take(100).expect("grows");
        let peer = PeerMemory::open(lane(store.file())).expect("own memory");
        let span = peer.span(MemoryPlace { at: at + 8, len_bytes: 4 }).expect("within");
        span.write(1, &[7_u8, 9]);
        let mut bytes = [0; 4];
        store.file().read_exact_at(&mut bytes, at + 8).expect("within");
        assert_eq!((bytes, span.card()), ([0, 7, 9, 0], None));
        let later = store.take(100).expect("grows");
        peer.span(MemoryPlace { at: later, len_bytes: 100 }).expect("the store has grown");
        let text =
            peer.span(MemoryPlace { at: later, len_bytes: 1 << 30 }).expect_err("too long").to_string();
        assert!(text.contains("beyond the peer's memory"), "{text}");
    }

    #[test]
    fn parts_of_several_files_are_one_buffer() {
        let (store, other) = (Arc::new(PageStore::new().expect("memory")), PageStore::new().expect("memory"));
        let (a, b) = (store.take(PAGE_BYTES).expect("grows"), other.take(3 * PAGE_BYTES).expect("grows"));
        let last = b + 2 * PAGE_BYTES as u64;
        let len_bytes = PAGE_BYTES as u64;
        let listed = [
            FilePart { file: other.file(), at: last, len_bytes },
            FilePart { file: store.file(), at: a, len_bytes },
        ];
        let parts = StoredParts::new(&store, listed).expect("grows");
        let peer = PeerMemory::open(lane(store.file())).expect("own memory");
        let span = peer.buffer(parts.buffer(len_bytes - 2, 4)).expect("within");
        span.write(0, &[1_u8, 2, 3, 4]);
        let mut bytes = [[0; 2]; 2];
        other.file().read_exact_at(&mut bytes[0], last + len_bytes - 2).expect("within");
        store.file().read_exact_at(&mut bytes[1], a).expect("within");
        assert_eq!(bytes, [[1, 2], [3, 4]]);
        let text = peer.buffer(parts.buffer(len_bytes, len_bytes + 1)).expect_err("too long").to_string();
        assert!(text.contains("beyond the 131072 bytes"), "{text}");
    }

    #[test]
    fn memory_that_may_shrink_is_refused() {
        let file = nameless_file().expect("a file");
        let text = PeerMemory::open(lane(&file)).expect_err("no store").to_string();
        assert_eq!(text, "the peer's memory may shrink");
    }
}

/// The store is shared as `/proc/PID/fd/FD`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct StoreAddress {
    pub(crate) pid: u32,
    pub(crate) fd: i32,
    pub(crate) bell: MemoryPlace,
}
