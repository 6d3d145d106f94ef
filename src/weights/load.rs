//! Gives each rank its slices of a checkpoint, through a small buffer.

use std::sync::Arc;

use crate::base::Bytes;
use crate::exec::{Fill, Write};
use crate::schedule::plan::Tensor;

use super::checkpoint::Checkpoint;

/// Host memory that each rank reads a weight through.
const STAGING_BYTES: usize = 8 << 20;

/// A function that fills every rank's weights from a checkpoint, converted to the program's element type. Each rank
/// reads its own slices only. `progress` is told the bytes of each piece that has reached a card.
#[must_use]
pub fn fill_from(checkpoint: &Arc<Checkpoint>, progress: Arc<dyn Fn(Bytes) + Send + Sync>) -> Arc<Fill> {
    let checkpoint = Arc::clone(checkpoint);
    Arc::new(move |param: &Tensor, write: &mut Write<'_>| {
        let Some(source) = &param.source else {
            return Err(format!("weight `{}` has no source in a checkpoint", param.name).into());
        };
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
            let (tensor, offset) = (&source.tensor, source.element_offset);
            checkpoint.read_slice(tensor, offset, &param.shape, &ranges, param.dtype, chunk)?;
            write((start - rows.start) * row_bytes, chunk)?;
            progress(Bytes(chunk.len() as u64));
        }
        Ok(())
    })
}
