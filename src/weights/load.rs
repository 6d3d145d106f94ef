//! Gives each rank its slices of a checkpoint: from the file's pages to the card where the elements lie together, else
//! through a small buffer.

use std::sync::Arc;

use crate::base::Bytes;
use crate::exec::{Fill, Write};
use crate::program::{Form, Source};
use crate::schedule::plan::Tensor;

use super::checkpoint::Checkpoint;
use super::quantise;

/// Bytes of a checkpoint that each rank has in memory at a time. A buffer of this size stays in a core's cache, so that what
/// goes through it crosses the memory as often as what does not.
pub(super) const PIECE_BYTES: usize = 512 << 10;

/// A function that fills every rank's weights from a checkpoint, converted to the program's element type, or
/// quantised row by row. Each rank reads its own slices only, and of a quantised weight the rows that they are parts of,
/// because a row has one scale on all ranks. `progress` is told the bytes of each piece that has reached a card.
#[must_use]
pub fn fill_from(checkpoint: &Arc<Checkpoint>, progress: Arc<dyn Fn(Bytes) + Send + Sync>) -> Arc<Fill> {
    let checkpoint = Arc::clone(checkpoint);
    Arc::new(move |param: &Tensor, write: &mut Write<'_>| {
        let Some(source) = &param.source else {
            return Err(format!("weight `{}` has no source in a checkpoint", param.name).into());
        };
        let mut step = |offset: usize, bytes: &[u8]| {
            write(offset, bytes)?;
            progress(Bytes(bytes.len() as u64));
            Ok(())
        };
        match source.form {
            Form::Numbers => numbers(&checkpoint, param, source, &mut step),
            Form::RowBytes { row_elems } => quantise::bytes(&checkpoint, param, source, row_elems, &mut step),
            Form::RowScales { row_elems } => quantise::scales(&checkpoint, param, source, row_elems, &mut step),
        }
    })
}

/// Gives a weight in its element type.
fn numbers(
    checkpoint: &Checkpoint,
    param: &Tensor,
    source: &Source,
    write: &mut Write<'_>,
) -> Result<(), crate::exec::FillError> {
    let (name, first, shape, dtype) = (&source.tensor, source.element_offset, &param.shape, param.dtype);
    let mut offset = 0;
    let mut next = |piece: &[u8]| {
        write(offset, piece)?;
        offset += piece.len();
        Ok::<(), crate::exec::FillError>(())
    };
    if checkpoint.visit_slice(name, first, shape, &param.ranges, dtype, &mut next)? {
        return Ok(());
    }
    let row_elems: usize = param.ranges.iter().skip(1).map(std::ops::Range::len).product();
    let row_bytes = row_elems * dtype.size_bytes();
    let rows = param.ranges.first().map_or(0..1, Clone::clone);
    let rows_at_once = (PIECE_BYTES / row_bytes.max(1)).clamp(1, rows.len().max(1));
    let mut staging = vec![0; rows_at_once * row_bytes];
    let mut ranges = param.ranges.clone();
    for start in rows.clone().step_by(rows_at_once) {
        let end = (start + rows_at_once).min(rows.end);
        if let Some(first) = ranges.first_mut() {
            *first = start..end;
        }
        let chunk = &mut staging[..(end - start) * row_bytes];
        checkpoint.read_slice(name, first, shape, &ranges, dtype, chunk)?;
        next(chunk)?;
    }
    Ok(())
}
