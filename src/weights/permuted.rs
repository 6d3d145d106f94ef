//! Reads a weight whose dims have another order in the checkpoint.
//!
//! Input: a stored tensor, the order of its dims, and a box of the weight: one range per dim.
//! Output: the elements of the box, at their places in the weight.
//!
//! Invariants: reads stay within the rows of the box, apart from gaps smaller than a page. A read
//! has at most the bytes of a piece, or one row.
//!
//! Not here: the boxes that ranks need.

use std::ops::Range;

use rustix::param::page_size;

use super::mxfp4::{self, Mxfp4};
use super::slice::{Error, PIECE_BYTES, StoredView, at_least};
use crate::base::{Dims, Shape};

/// Number of bytes per piece of the weight. The rows of a piece are short pieces of many stored
/// rows, so larger pieces need fewer reads.
const BOX_BYTES: usize = 4 << 20;

/// The stored numbers, in the order of the checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbers<'a> {
    Plain(StoredView<'a>),
    Mxfp4(Mxfp4<'a>),
}

impl Numbers<'_> {
    /// Returns the number of elements that are read together.
    const fn unit(&self) -> usize {
        match self {
            Self::Plain(_) => 1,
            Self::Mxfp4(_) => mxfp4::BLOCK,
        }
    }

    /// Returns the largest number of elements that is not worth a separate read.
    fn gap_elems(&self) -> usize {
        match self {
            Self::Plain(view) => (page_size() - 1) / view.stored_bytes(),
            Self::Mxfp4(_) => (page_size() - 1) * 2,
        }
    }

    /// Reads a range of elements that starts and ends at a unit.
    fn read(&self, elements: Range<usize>, raw: &mut Vec<u8>, out: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::Plain(view) => view.read(elements, raw, out),
            Self::Mxfp4(numbers) => numbers.read(elements, raw, out),
        }
    }
}

/// A dim of the stored tensor.
#[derive(Clone, Copy, Debug)]
struct Dim {
    /// The same dim of the weight. `None` for a dim of size 1 that only the stored tensor has.
    of_weight: Option<usize>,
    stored_stride: usize,
    weight_stride: usize,
}

/// A weight in another order than its tensor.
#[derive(Debug)]
pub(super) struct Permuted<'a> {
    numbers: Numbers<'a>,
    shape: &'a Shape,
    /// All dims of the stored tensor but the last two.
    outer: Vec<Dim>,
    row: Dim,
    column: Dim,
    /// Size of an element in bytes, after it is read.
    size: usize,
    /// The dim of the weight that is split into pieces. Pieces have inner dims in full.
    piece_dim: usize,
}

impl<'a> Permuted<'a> {
    /// Returns a weight of shape `shape`. `order` has the dims of the weight in the order of the
    /// stored tensor.
    pub(super) fn new(numbers: Numbers<'a>, shape: &'a Shape, order: &[usize], size: usize) -> Self {
        let stored: Shape = order.iter().map(|dim| shape[*dim]).collect();
        let (stored_strides, weight_strides) = (stored.strides(), shape.strides());
        let dim = |(at, dim): (usize, &usize)| Dim {
            of_weight: Some(*dim),
            stored_stride: stored_strides[at],
            weight_stride: weight_strides[*dim],
        };
        let alone = Dim { of_weight: None, stored_stride: 0, weight_stride: 0 };
        let mut outer = vec![alone, alone];
        outer.extend(order.iter().enumerate().map(dim));
        let column = outer.pop().unwrap_or(alone);
        let row = outer.pop().unwrap_or(alone);
        let most = BOX_BYTES / size.max(1);
        let fits = |dim: &usize| shape[*dim..].iter().product::<usize>() <= most;
        let inner = (1..shape.rank()).rev().take_while(fits).count();
        let piece_dim = shape.rank().saturating_sub(inner + 1);
        Self { numbers, shape, outer, row, column, size, piece_dim }
    }

    /// Returns the number of elements of a block. Each block is split into pieces on its own, so
    /// that each piece is a box.
    pub(super) fn block_elems(&self) -> usize {
        self.shape[self.piece_dim..].iter().product()
    }

    /// Returns the number of elements of a piece.
    pub(super) fn piece_elems(&self) -> usize {
        let row = self.row_elems().max(1);
        (BOX_BYTES / self.size.max(1) / row).max(1) * row
    }

    fn row_elems(&self) -> usize {
        self.shape.iter().skip(self.piece_dim + 1).product()
    }

    /// Returns the ranges of a piece, one per dim of the weight.
    pub(super) fn piece_box(&self, piece: &Range<usize>) -> Vec<Range<usize>> {
        let strides = self.shape.strides();
        let range = |dim: usize| {
            let first = piece.start / strides[dim] % self.shape[dim];
            match dim.cmp(&self.piece_dim) {
                std::cmp::Ordering::Less => first..first + 1,
                std::cmp::Ordering::Equal => first..first + piece.len() / strides[dim],
                std::cmp::Ordering::Greater => 0..self.shape[dim],
            }
        };
        (0..self.shape.rank()).map(range).collect()
    }

    /// Reads the elements inside `ranges`, one range per dim of the weight. `whole` has the
    /// elements of the weight from `origin` on, and receives the elements at their places.
    pub(super) fn read_box(
        &self,
        ranges: &[Range<usize>],
        origin: usize,
        buffers: &mut Buffers,
        whole: &mut [u8],
    ) -> Result<(), Error> {
        let range = |dim: &Dim| dim.of_weight.map_or(0..1, |dim| ranges[dim].clone());
        let outer: Vec<Range<usize>> = self.outer.iter().map(range).collect();
        let (rows, columns) = (range(&self.row), range(&self.column));
        if outer.iter().chain([&rows, &columns]).any(Range::is_empty) {
            return Ok(());
        }
        let row_stride = self.row.stored_stride;
        let is_dense = row_stride - row_stride.min(columns.len()) <= self.numbers.gap_elems();
        let at_once = if is_dense { (PIECE_BYTES / self.size / row_stride.max(1)).max(1) } else { 1 };
        let mut index: Dims = outer.iter().map(|range| range.start).collect();
        loop {
            let place = |stride: fn(&Dim) -> usize| -> usize {
                index.iter().zip(&self.outer).map(|(index, dim)| index * stride(dim)).sum()
            };
            let (stored, weight) = (place(|dim| dim.stored_stride), place(|dim| dim.weight_stride));
            for first in rows.clone().step_by(at_once) {
                let rows = first..(first + at_once).min(rows.end);
                let plane = Plane { rows, columns: columns.clone(), stored, weight };
                self.read_plane(&plane, origin, buffers, whole)?;
            }
            let mut dims = index.iter_mut().zip(&outer).rev();
            // The last index that can grow. All later ones start again.
            let grown = dims.find_map(|(index, range)| {
                *index += 1;
                (*index < range.end).then_some(()).or_else(|| {
                    *index = range.start;
                    None
                })
            });
            if grown.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads rows that are close together in one go.
    fn read_plane(
        &self,
        plane: &Plane,
        origin: usize,
        buffers: &mut Buffers,
        whole: &mut [u8],
    ) -> Result<(), Error> {
        let Plane { rows, columns, stored, weight } = plane;
        let (row, column) = (self.row, self.column);
        let place = |row_index: usize, column_index: usize| {
            stored + row_index * row.stored_stride + column_index * column.stored_stride
        };
        let unit = self.numbers.unit();
        let first = place(rows.start, columns.start) / unit * unit;
        let last = (place(rows.end - 1, columns.end - 1) + 1).next_multiple_of(unit);
        let read = at_least(&mut buffers.read, (last - first) * self.size);
        self.numbers.read(first..last, &mut buffers.raw, read)?;
        // The longer one of rows and columns is the inner loop.
        let by_rows = rows.len() > columns.len();
        let (outer, inner) = if by_rows { (columns, rows) } else { (rows, columns) };
        let (along, across) = if by_rows { (row, column) } else { (column, row) };
        for index in outer.clone() {
            let place = |stride: fn(&Dim) -> usize| index * stride(&across) + inner.start * stride(&along);
            let line = Line {
                from: stored + place(|dim| dim.stored_stride) - first,
                from_stride: along.stored_stride,
                to: weight + place(|dim| dim.weight_stride) - origin,
                to_stride: along.weight_stride,
                count: inner.len(),
            };
            match self.size {
                1 => line.scatter::<1>(read, whole),
                2 => line.scatter::<2>(read, whole),
                4 => line.scatter::<4>(read, whole),
                _ => line.scatter::<8>(read, whole),
            }
        }
        Ok(())
    }
}

/// Reusable buffers of the reads.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) raw: Vec<u8>,
    /// Elements in the order of the checkpoint.
    read: Vec<u8>,
}

/// Rows and columns of the last two stored dims.
struct Plane {
    rows: Range<usize>,
    columns: Range<usize>,
    /// First element of the plane within the stored tensor.
    stored: usize,
    /// First element of the plane within the weight.
    weight: usize,
}

/// Stored elements at equal distances, and their places.
struct Line {
    from: usize,
    from_stride: usize,
    to: usize,
    to_stride: usize,
    count: usize,
}

impl Line {
    fn scatter<const SIZE: usize>(&self, read: &[u8], whole: &mut [u8]) {
        let read = &read.as_chunks::<SIZE>().0[self.from..];
        let whole = &mut whole.as_chunks_mut::<SIZE>().0[self.to..];
        if self.from_stride == 1 && self.to_stride == 1 {
            whole[..self.count].copy_from_slice(&read[..self.count]);
            return;
        }
        let places = whole.iter_mut().step_by(self.to_stride.max(1));
        for (to, from) in places.zip(read.iter().step_by(self.from_stride.max(1))).take(self.count) {
            *to = *from;
        }
    }
}

#[cfg(test)]
mod tests;
