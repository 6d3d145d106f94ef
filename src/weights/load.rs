//! Copies shards of a checkpoint to the devices of the local ranks.
//!
//! Input: a checkpoint and the local shards. Output: the bytes on the devices.
//!
//! Several reader threads each take a few consecutive pieces at a time. A piece needed by one rank
//! is read directly into page-locked memory. A piece needed by several ranks goes through a buffer
//! that fits in the core's cache. Upload and the next read overlap.
//!
//! Invariants:
//! - Each byte is read at most once for all ranks. A quantised weight is read once for its integers
//!   and once for its scales, and a tensor with interleaved matrices once for each matrix.
//! - The only extra memory is the buffers of the readers.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::checkpoint::Checkpoint;
use super::slice::PIECE_BYTES;
use super::weight::{Scratch, Weight};
use crate::base::Bytes;
use crate::exec::{Error, Shards, Uploads};
use crate::schedule::plan::Tensor;

/// Largest number of readers. Fewer readers already saturate the memory bandwidth, and each one
/// needs buffers.
const MOST_READERS: usize = 8;

/// Number of pieces per huge page. A reader takes this many consecutive pieces per rank. Two
/// readers that touch the same new page would make the kernel clear it twice.
const PIECES_OF_PAGE: usize = (2 << 20) / PIECE_BYTES;

/// Fills the weights of all local ranks from a checkpoint. The elements are converted to the type
/// of the program, or quantised with one scale per row. The scale of a row is the same on all
/// ranks. `progress` receives the bytes of each piece that has arrived on a device.
///
/// # Errors
/// The checkpoint lacks a tensor, or a device reports an error.
pub fn fill_from(
    checkpoint: &Checkpoint,
    shards: &Shards<'_>,
    progress: &(dyn Fn(Bytes) + Sync),
) -> Result<(), Error> {
    let _span = tracing::info_span!("load_weights").entered();
    let mut weights = Vec::new();
    // Index of the first piece of each weight.
    let mut firsts = Vec::new();
    let mut pieces = 0;
    for parts in shards.weights() {
        let tensors: Vec<&Tensor> = parts.iter().map(|part| part.tensor()).collect();
        let weight = Weight::of_shards(checkpoint, &tensors)?;
        firsts.push(pieces);
        pieces += weight.pieces();
        weights.push((weight, parts));
    }
    let in_a_row = PIECES_OF_PAGE * weights.iter().map(|(_, parts)| parts.len()).max().unwrap_or(1);
    let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let read = || {
        let (mut scratch, mut uploads) = (Scratch::default(), Uploads::default());
        loop {
            let first = next.fetch_add(in_a_row, Ordering::Relaxed);
            for piece in first..(first + in_a_row).min(pieces) {
                if has_failed.load(Ordering::Relaxed) {
                    return Ok(());
                }
                // An empty weight has no pieces and the same first index as the next weight.
                let at = firsts.partition_point(|first| *first <= piece) - 1;
                let (weight, parts) = &weights[at];
                weight
                    .give(piece - firsts[at], &mut scratch, &mut |part, offset, len_bytes, write| {
                        progress(uploads.write(&parts[part], offset, len_bytes, write)?);
                        Ok(())
                    })
                    .inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
            }
            if first + in_a_row >= pieces {
                progress(uploads.finish()?);
                return Ok(());
            }
        }
    };
    let readers = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_READERS);
    let readers = readers.min(pieces.div_ceil(in_a_row)).max(1);
    thread::scope(|scope| {
        let others = (1..readers)
            .map(|_| thread::Builder::new().name("reader".to_owned()).spawn_scoped(scope, read))
            .collect::<Result<Vec<_>, _>>();
        let own = read();
        let others = others.map_err(Error::fill)?;
        let ended = others
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        std::iter::once(own).chain(ended).collect()
    })
}
