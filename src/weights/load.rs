//! Gives each rank its slices of a checkpoint, through a small buffer.

use std::sync::Arc;

use crate::base::Bytes;
use crate::exec::{Fill, Write};
use crate::program::{Form, Source};
use crate::schedule::plan::Tensor;

use super::checkpoint::Checkpoint;
use super::quantise;

/// Host memory that each rank reads a weight through.
pub(super) const STAGING_BYTES: usize = 8 << 20;

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
    let row_elems: usize = param.ranges.iter().skip(1).map(std::ops::Range::len).product();
    let row_bytes = row_elems * param.dtype.size_bytes();
    let rows = param.ranges.first().map_or(0..1, Clone::clone);
    let rows_at_once = (STAGING_BYTES / row_bytes.max(1)).clamp(1, rows.len().max(1));
    let mut staging = vec![0; rows_at_once * row_bytes];
    let mut ranges = param.ranges.clone();
    for start in rows.clone().step_by(rows_at_once) {
        let end = (start + rows_at_once).min(rows.end);
        if let Some(first) = ranges.first_mut() {
            *first = start..end;
        }
        let chunk = &mut staging[..(end - start) * row_bytes];
        checkpoint.read_slice(&source.tensor, source.element_offset, &param.shape, &ranges, param.dtype, chunk)?;
        write((start - rows.start) * row_bytes, chunk)?;
    }
    Ok(())
}
