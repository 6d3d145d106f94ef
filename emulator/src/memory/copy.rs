//! Copies and fills of rows of bytes.
//!
//! Invariant: overlapping ranges are copied as if through a buffer. Not here: permission to copy
//! (see `abi`).

use crate::memory::access::MemoryAccess;
use crate::memory::footprint::{Footprint, PitchedRows};
use crate::memory::raw::RawSpan;
use crate::scheduler::pool::Without;
use crate::scheduler::pool::Workers;

const TILE_BYTES: usize = 1 << 20;

/// Size up to which the calling thread copies. Waking another thread takes about 20 us, and that
/// thread does not have the bytes in its cache. A checkpoint in pieces of 512 KiB loads in 76 ms
/// per GB, or in 103 ms with a quarter of this limit.
const BRIEF_BYTES: usize = 512 << 10;

/// Minimum length of a host-to-card row that bypasses the caches. Such rows are weights and batches
/// that the card reads only after the whole upload. Bypassing keeps the next piece in the cache: a
/// checkpoint takes 98 instead of 130 ms per GB.
const STREAMED_BYTES: usize = 32 << 10;

/// `height` rows of `width` bytes. Row r starts at `r * pitch` of its span.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    pub(crate) into: RawSpan,
    pub(crate) into_pitch: usize,
    pub(crate) from: RawSpan,
    pub(crate) from_pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl Copy {
    pub(crate) fn linear(into: RawSpan, from: RawSpan, bytes: usize) -> Self {
        Self { into, into_pitch: bytes, from, from_pitch: bytes, width: bytes, height: 1 }
    }

    pub(crate) fn is_brief(&self) -> bool {
        self.width.saturating_mul(self.height) <= BRIEF_BYTES
    }

    pub(crate) fn accesses(&self) -> Vec<MemoryAccess> {
        let rows = |pitch: usize| PitchedRows { start: 0, width: self.width, pitch, height: self.height };
        let touched = |pitch: usize| Some(Footprint::rows(rows(pitch)));
        vec![
            MemoryAccess::write("dst", &self.into).within(touched(self.into_pitch)),
            MemoryAccess::read("src", &self.from).within(touched(self.from_pitch)),
        ]
    }

    pub(crate) fn run(&self) {
        for row in 0..self.height {
            self.run_part(row * self.into_pitch, row * self.from_pitch, self.width);
        }
    }

    fn run_part(&self, into_offset: usize, from_offset: usize, len: usize) {
        let is_upload = self.into.card().is_some() && self.from.card().is_none();
        if is_upload && len >= STREAMED_BYTES {
            self.into.upload_from(into_offset, &self.from, from_offset, len);
        } else {
            self.into.copy_from(into_offset, &self.from, from_offset, len);
        }
    }

    /// Copies on a machine without numbers: a card's bytes read as zeros on the host.
    pub(crate) fn run_without_numbers(&self) {
        match (self.into.card(), self.from.card()) {
            (None, None) => self.run(),
            (None, Some(_)) => {
                for row in 0..self.height {
                    self.into.slice(row * self.into_pitch, self.width).fill(0);
                }
            }
            (Some(_), _) => {}
        }
    }

    pub(crate) fn without_numbers(&self) -> Without {
        if self.into.card().is_none() { Without::Same } else { Without::Nothing }
    }

    pub(crate) fn run_on(&self, workers: &Workers) {
        if self.height != 1 || self.into.overlaps(&self.from) {
            self.run();
            return;
        }
        workers.tiles(self.width.div_ceil(TILE_BYTES), &|tile| {
            let offset = tile * TILE_BYTES;
            let len = TILE_BYTES.min(self.width - offset);
            self.run_part(offset, offset, len);
        });
    }
}

pub(crate) fn fill_on(span: &RawSpan, value: u8, workers: &Workers) {
    workers.tiles(span.len_bytes().div_ceil(TILE_BYTES), &|tile| {
        let offset = tile * TILE_BYTES;
        span.slice(offset, TILE_BYTES.min(span.len_bytes() - offset)).fill(value);
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::location::Location;
    use crate::memory::raw::Allocation;
    use crate::scheduler::pool::WorkerPool;

    #[test]
    fn rows_and_overlaps_and_large_copies() {
        let memory = Arc::new(Allocation::new(4 << 20, Location::Card(0), None).expect("mapping"));
        memory.span(0, 6).write(0, &[1_u8, 2, 3, 4, 5, 6]);
        let (into, from) = (memory.span(100, 6), memory.span(0, 5));
        Copy { into: into.clone(), into_pitch: 4, from, from_pitch: 3, width: 2, height: 2 }.run();
        let mut rows = [0_u8; 6];
        into.read(0, &mut rows);
        assert_eq!(rows, [1, 2, 0, 0, 4, 5]);

        let pool = WorkerPool::new(2).expect("threads start");
        let moved = Copy::linear(memory.span(1, 5), memory.span(0, 5), 5);
        moved.run_on(pool.workers());
        let mut bytes = [0_u8; 6];
        memory.span(0, 6).read(0, &mut bytes);
        assert_eq!(bytes, [1, 1, 2, 3, 4, 5]);

        let size = (2 << 20) - 3;
        fill_on(&memory.span(0, size), 7, pool.workers());
        Copy::linear(memory.span(2 << 20, size), memory.span(0, size), size).run_on(pool.workers());
        let mut copied = vec![0_u8; size];
        memory.span(2 << 20, size).read(0, &mut copied);
        assert!(copied.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn uploads_again_and_at_odd_places() {
        let card = Arc::new(Allocation::new(1 << 20, Location::Card(0), None).expect("mapping"));
        let host = Arc::new(Allocation::new(1 << 20, Location::Host, None).expect("mapping"));
        let len = 2 * STREAMED_BYTES + 5;
        for round in 1..4_u8 {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8 ^ round).collect();
            host.span(3, len).write(0, &bytes);
            for offset in [7, 64, len + 64] {
                Copy::linear(card.span(offset, len), host.span(3, len), len).run();
                let mut found = vec![0_u8; len];
                card.span(offset, len).read(0, &mut found);
                assert!(found == bytes, "round {round}, at {offset}");
            }
        }
    }
}
