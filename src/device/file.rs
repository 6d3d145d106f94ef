//! Maps a file into memory for reading.
//!
//! Input → output: a path → its bytes, read from the disk when they are first touched. Invariants: the map is
//! read-only and private to this process. It parses nothing and keeps no handle besides the map.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;
#[cfg(unix)]
use memmap2::UncheckedAdvice;

/// The bytes of the file at `path`.
///
/// The file must stay as it is while the map lives: bytes that another process changes may be seen changed, and
/// reading beyond a new, earlier end stops the process, as for every program that maps the file.
///
/// # Errors
/// The file cannot be opened or mapped.
pub(crate) fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: the map is read-only and every byte pattern is a valid `u8`, so no content of the file can break a type's
    // rules; that the file is not changed meanwhile is the caller's contract above, the one every reader of checkpoints
    // has.
    unsafe { Mmap::map(&file) }
}

/// Gives the pages of a range back to the system; bytes that are read again are mapped again.
///
/// A checkpoint is read once, slice by slice: without this its whole size would count as the process' memory.
pub(crate) fn release(map: &Mmap, bytes: Range<usize>) {
    #[cfg(unix)]
    if !bytes.is_empty() && bytes.end <= map.len() {
        // SAFETY: the map is of a file and never written, so a page that is dropped comes back with the same bytes. A
        // refusal leaves the pages where they are, which is no error.
        let _refused = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, bytes.start, bytes.len()) };
    }
}
