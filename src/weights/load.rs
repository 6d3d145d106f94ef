//! Gives the ranks of a process their slices of a checkpoint.
//!
//! Input → output: a checkpoint and the shards of the ranks here → their bytes on the cards.
//! Several readers each take some pieces of the weights in a row, then others: a piece goes from
//! the file into page-locked memory, or where several ranks hold some of it by way of a buffer that
//! stays in a core's cache, and on to the cards while the next piece is read. Invariants: each byte
//! is read at most once for all ranks together (of a quantised weight once for its integers and
//! once for its scales); besides the shards only the readers' buffers take memory.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::checkpoint::Checkpoint;
use super::slice::PIECE_BYTES;
use super::weight::{Scratch, Weight};
use crate::base::Bytes;
use crate::exec::{Error, Shards, Uploads};
use crate::schedule::plan::Tensor;

/// Readers at most: fewer fill the memory's bandwidth, and each has buffers of its own.
const MOST_READERS: usize = 8;

/// Pieces of a huge page. A reader takes so many in a row for each rank: where two readers touch a
/// page of a rank first at the same time, the system makes and clears one for each and throws one
/// away.
const PIECES_OF_PAGE: usize = (2 << 20) / PIECE_BYTES;

/// Fills the weights of all ranks here from a checkpoint, converted to the program's element type,
/// or quantised row by row, where a row has one scale on all ranks. `progress` is told the bytes of
/// each piece that has reached a card.
///
/// # Errors
/// What the checkpoint does not have or a card refuses.
pub fn fill_from(
    checkpoint: &Checkpoint,
    shards: &Shards<'_>,
    progress: &(dyn Fn(Bytes) + Sync),
) -> Result<(), Error> {
    let mut weights = Vec::new();
    // By weight: the number of its first piece among those of all.
    let mut firsts = Vec::new();
    let mut pieces = 0;
    for parts in shards.weights() {
        let tensors: Vec<&Tensor> = parts.iter().map(|part| part.tensor()).collect();
        let weight = Weight::new(checkpoint, &tensors)?;
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
                // A weight without elements begins where the next one does, and has no piece.
                let at = firsts.partition_point(|first| *first <= piece) - 1;
                let (weight, parts) = &weights[at];
                weight
                    .give(piece - firsts[at], &mut scratch, &mut |part, offset, len_bytes, write| {
                        progress(uploads.write(&parts[part], offset, len_bytes, write)?);
                        Ok(())
                    })
                    // No other piece is begun.
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
