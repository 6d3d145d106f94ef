//! Locations of bytes in the memory that processes of a host share.
//!
//! Invariant: the offset of a list always names the same parts.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::memory::pages::PageStore;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryPlace {
    pub(crate) at: u64,
    pub(crate) len_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PeerBuffer {
    /// The buffer is contiguous in the store.
    Whole(MemoryPlace),
    /// `len_bytes` from `offset` on in the parts of a list.
    Listed { list: MemoryPlace, offset: u64, len_bytes: u64 },
}

impl PeerBuffer {
    pub(crate) fn slice(self, offset: u64, len_bytes: u64) -> Self {
        match self {
            Self::Whole(place) => Self::Whole(MemoryPlace { at: place.at + offset, len_bytes }),
            Self::Listed { list, offset: before, .. } => {
                Self::Listed { list, offset: before + offset, len_bytes }
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct FilePart<'a> {
    pub(crate) file: &'a File,
    pub(crate) at: u64,
    pub(crate) len_bytes: u64,
}

/// Descriptor and inode of the file, offset, length.
pub(super) const FIELDS: usize = 4;

#[derive(Debug)]
pub(crate) struct StoredParts {
    store: Arc<PageStore>,
    list: MemoryPlace,
}

impl StoredParts {
    /// Writes a list for other processes. The caller keeps the files open as long as any process
    /// may read the list.
    pub(crate) fn new<'a>(
        store: &Arc<PageStore>,
        parts: impl IntoIterator<Item = FilePart<'a>>,
    ) -> io::Result<Arc<Self>> {
        let mut bytes = Vec::new();
        for part in parts {
            let file = part.file.as_raw_fd() as u64;
            let fields: [u64; FIELDS] = [file, part.file.metadata()?.ino(), part.at, part.len_bytes];
            bytes.extend(fields.into_iter().flat_map(u64::to_le_bytes));
        }
        let list = MemoryPlace { at: store.take(bytes.len())?, len_bytes: bytes.len() as u64 };
        store.file().write_all_at(&bytes, list.at)?;
        Ok(Arc::new(Self { store: Arc::clone(store), list }))
    }

    pub(crate) fn buffer(&self, offset: u64, len_bytes: u64) -> PeerBuffer {
        PeerBuffer::Listed { list: self.list, offset, len_bytes }
    }
}

impl Drop for StoredParts {
    fn drop(&mut self) {
        self.store.give(self.list.at, self.list.len_bytes as usize);
    }
}
