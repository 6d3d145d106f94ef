//! Memory of another process on this host, reached in place.
//!
//! Input: the store of a peer (see `pages::Store`), as a file of the peer's, and places in it. Output: spans that read and
//! write the peer's own bytes. Invariants: a store never shrinks (it is sealed, and refused if it is not) and never gives
//! out an offset twice, so a span stays readable whatever the peer does, even after its end; a place beyond the store is
//! refused. Does not: order accesses; a collective's ranks have all reached it before any of their memory is touched.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::pages::{PAGE_BYTES, Range, Show, may_shrink};
use super::raw::{Allocation, Location, RawSpan};
use crate::link::wire::Lane;

/// Bytes in a process's store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) at: u64,
    pub(crate) len_bytes: u64,
}

/// A peer's store.
#[derive(Debug)]
pub(crate) struct PeerMemory {
    file: File,
    /// The store from its start, as far as it was needed.
    shown: Mutex<Option<Arc<Range>>>,
    /// How long the store was when that was last asked; it never shrinks.
    len_bytes: AtomicU64,
}

impl PeerMemory {
    /// Opens a peer's store.
    ///
    /// # Errors
    /// This process may not, or it is no store.
    pub(crate) fn open(lane: Lane) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(format!("/proc/{}/fd/{}", lane.pid, lane.fd))?;
        if may_shrink(&file)? {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer's memory may shrink"));
        }
        Ok(Self { file, shown: Mutex::default(), len_bytes: AtomicU64::new(0) })
    }

    /// The bytes at a place.
    ///
    /// # Errors
    /// The place is beyond the store, or the system has no addresses for it.
    pub(crate) fn span(&self, place: Place) -> io::Result<RawSpan> {
        /// Addresses taken at once; they cost nothing until they are touched.
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
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        let (at, end) = (place.at as usize, end as usize);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let range = match &*shown {
            Some(range) if end <= range.len_bytes() => Arc::clone(range),
            _ => {
                let range = Range::reserve(end.next_multiple_of(AHEAD_BYTES), PAGE_BYTES)?;
                range.show(0, range.len_bytes(), Show::File(&self.file, 0))?;
                Arc::clone(shown.insert(Arc::new(range)))
            }
        };
        // It is of no card of this process.
        let part = Arc::new(Allocation::part(&range, at, end - at, Location::Host));
        Ok(part.span(0, end - at))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::abi::pages::{Store, nameless_file};

    fn lane(file: &File) -> Lane {
        Lane { pid: std::process::id(), fd: file.as_raw_fd(), bell: Place { at: 0, len_bytes: 0 } }
    }

    #[test]
    fn a_store_is_read_and_written_in_place() {
        let store = Store::new().expect("memory");
        let at = store.take(100).expect("grows");
        let peer = PeerMemory::open(lane(store.file())).expect("own memory");
        let span = peer.span(Place { at: at + 8, len_bytes: 4 }).expect("within");
        span.write(1, &[7_u8, 9]);
        let mut bytes = [0; 4];
        store.file().read_exact_at(&mut bytes, at + 8).expect("within");
        assert_eq!((bytes, span.card()), ([0, 7, 9, 0], None));
        let later = store.take(100).expect("grows");
        peer.span(Place { at: later, len_bytes: 100 }).expect("the store has grown");
        let text = peer.span(Place { at: later, len_bytes: 1 << 30 }).expect_err("too long").to_string();
        assert!(text.contains("beyond the peer's memory"), "{text}");
    }

    #[test]
    fn memory_that_may_shrink_is_refused() {
        let file = nameless_file().expect("a file");
        let text = PeerMemory::open(lane(&file)).expect_err("no store").to_string();
        assert_eq!(text, "the peer's memory may shrink");
    }
}
