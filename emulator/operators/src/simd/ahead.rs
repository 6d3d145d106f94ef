//! Work for the next product that a product does meanwhile: it packs the next slab, and requests
//! the memory of the one that follows.
//!
//! Both use parts of the processor that a product leaves idle. Requests are spread evenly, because
//! few can be in flight.

use super::pack::SlabPacking;
use super::rates::{Cache, prefetch};
use crate::raw::Rows;

const LINE_BYTES: usize = 64;

/// The remaining work. [`Ahead::default`] has none.
#[derive(Debug, Default)]
pub(crate) struct Ahead<'a> {
    pub(crate) packing: Option<SlabPacking<'a>>,
    pub(crate) requests: Requests,
}

/// The lines of some rows that are not yet requested.
#[derive(Debug)]
pub(crate) struct Requests {
    row: *const u8,
    stride: isize,
    /// Bytes of a row, and the position in it.
    bytes: usize,
    at: usize,
    rows: usize,
    /// Number of lines to request per step.
    pace: usize,
}

impl Default for Requests {
    fn default() -> Self {
        Self { row: std::ptr::null(), stride: 0, bytes: 0, at: 0, rows: 0, pace: 0 }
    }
}

impl Requests {
    /// Spreads the requests over `steps`.
    pub(crate) fn of(rows: &Rows<'_>, steps: usize) -> Self {
        let lines = rows.count() * rows.bytes().div_ceil(LINE_BYTES);
        Self {
            row: rows.row(0),
            stride: rows.stride(),
            bytes: rows.bytes(),
            at: 0,
            rows: rows.count(),
            pace: lines.div_ceil(steps.max(1)),
        }
    }

    /// Requests all lines that are left.
    pub(crate) fn finish(&mut self) {
        while self.rows > 0 {
            self.step();
        }
    }

    #[inline(always)]
    fn step(&mut self) {
        for _ in 0..self.pace {
            if self.rows == 0 {
                return;
            }
            prefetch(Cache::Second, self.row.wrapping_add(self.at));
            self.at += LINE_BYTES;
            if self.at >= self.bytes {
                self.at = 0;
                self.row = self.row.wrapping_offset(self.stride);
                self.rows -= 1;
            }
        }
    }
}

impl Ahead<'_> {
    #[inline(always)]
    pub(super) fn step(&mut self) {
        self.requests.step();
        if let Some(packing) = &mut self.packing {
            packing.step();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_request_each_line_of_each_row() {
        let memory = [0_u8; 900];
        let rows = Rows::in_slice(&memory, 300, 3, 200);
        for steps in [1, 5, 12, 40] {
            let mut requests = Requests::of(&rows, steps);
            for _ in 0..11 / requests.pace {
                requests.step();
            }
            assert!(requests.rows > 0, "12 lines in {steps} steps");
            requests.step();
            assert_eq!(requests.rows, 0, "12 lines in {steps} steps");
        }
    }
}
