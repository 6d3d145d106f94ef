//! Reads one weight in pieces and passes each piece to the local ranks that need it.
//!
//! Input: a checkpoint and the shards of one weight. Output: pieces, in any order.
//!
//! Invariants: each piece is part of one tensor, or of one block of it. It is read once, and a rank
//! receives its part of a piece in one write. Tensors that no local rank needs, and gaps of a page
//! or more that no local rank needs, are not read. If the tensor has its dims in another order, the
//! pieces can share pages of the file, and numbers that are interleaved with a piece are read with
//! it.
//!
//! Not here: devices and threads.

use std::ops::Range;

use rustix::param::page_size;

use super::checkpoint::Checkpoint;
use super::convert;
use super::convert::Overflow;
use super::mxfp4::Mxfp4;
use super::packed::{GroupNumber, Packed, PackedBuffers};
use super::permuted::{Buffers, Numbers, Permuted};
use super::quantise;
use super::slice::{self, PIECE_BYTES, StoredView, at_least};
use crate::base::{DType, Shape, WORD};
use crate::exec::Error;
use crate::placement::shard::runs::{Runs, elements_before, shared};
use crate::program::models::layer_of_weight;
use crate::program::{Form, GroupRows, PackedMatrix, Source, TensorStack};
use crate::schedule::plan::Tensor;

/// A callback that takes the index of a shard, an offset and a length in bytes, and the writer of
/// these bytes.
pub(super) type Give<'a> = dyn FnMut(usize, usize, usize, &mut Write<'_>) -> Result<(), Error> + 'a;

pub(super) type Write<'a> = dyn FnMut(&mut [u8]) -> Result<(), Error> + 'a;

/// Number of rows and columns of a packed matrix that are read at once, if the outputs of an input
/// are stored together.
const ROWS_AT_ONCE: usize = 256;
const COLUMNS_AT_ONCE: usize = 1024;
/// Number of elements of a packed matrix that are read at once otherwise, in whole rows.
const PACKED_ELEMS: usize = 256 << 10;

pub(super) struct Weight<'a> {
    tensors: Tensors<'a>,
    /// Number of elements in each block. The blocks are split into pieces.
    block_elems: usize,
    shape: &'a Shape,
    dtype: DType,
    form: Form,
    /// Ranges of each rank's shard, one per dim.
    parts: Vec<&'a [Range<usize>]>,
    /// Number of elements that are quantised together.
    unit: usize,
    piece_elems: usize,
    /// Largest number of elements between two runs that are read in one go.
    gap_elems: usize,
}

enum Tensors<'a> {
    /// Tensors in order, each with a block of the weight.
    Stack(Vec<StoredView<'a>>),
    /// One tensor with another order of dims.
    Permuted(Box<Permuted<'a>>),
    /// Packed matrices in order, each with a block of the weight.
    Packed(PackedStack<'a>),
}

struct PackedStack<'a> {
    matrices: Vec<Packed<'a>>,
    matrix: PackedMatrix,
    /// Number of dims of the weight that count the matrices.
    dims: usize,
    /// First dim of the weight that is in the rows of a matrix.
    first_column_dim: usize,
    /// First row of each matrix that the weight has.
    first_row: usize,
    /// Largest number of rows and columns of a rectangle that is read at once.
    steps: [usize; 2],
}

/// Reusable buffers for the pieces of any weight.
#[derive(Default)]
pub(super) struct Scratch {
    buffers: Buffers,
    packed: PackedBuffers,
    /// Elements of a piece, from the first to the last one that a rank needs.
    whole: Vec<u8>,
}

impl<'a> Weight<'a> {
    /// Returns the weight of these shards. At least one shard is required.
    pub(super) fn of_shards(checkpoint: &'a Checkpoint, parts: &[&'a Tensor]) -> Result<Self, Error> {
        let first = *parts.first().ok_or_else(|| Error::fill("a weight without parts"))?;
        let no_source = || format!("weight `{}` has no source in a checkpoint", first.name);
        let source = first.source.as_ref().ok_or_else(|| Error::fill(no_source()))?;
        let parts = parts.iter().map(|part| part.ranges.as_slice()).collect();
        Self::new(checkpoint, source, &first.shape, first.dtype, parts)
    }

    /// Returns the weight of shape `shape` with these shards, one range per dim.
    pub(super) fn new(
        checkpoint: &'a Checkpoint,
        source: &Source,
        shape: &'a Shape,
        dtype: DType,
        parts: Vec<&'a [Range<usize>]>,
    ) -> Result<Self, Error> {
        let refused = |reason: String| slice::Error::Source { tensor: source.tensor.clone(), reason };
        let stack = source.stack(shape).map_err(refused)?;
        if let Some(permuted) = permuted(checkpoint, source, shape, dtype)? {
            let (block_elems, piece_elems) = (permuted.block_elems(), permuted.piece_elems());
            let (tensors, form) = (Tensors::Permuted(Box::new(permuted)), source.form);
            return Ok(Self {
                tensors,
                block_elems,
                shape,
                dtype,
                form,
                parts,
                unit: 1,
                piece_elems,
                gap_elems: 0,
            });
        }
        let is_read = match source.form {
            Form::Packed(_) | Form::GroupScales(_) | Form::GroupOffsets(_) => dtype.is_float(),
            Form::PackedBytes(_) => dtype == DType::I8,
            Form::Words(_) => dtype == DType::I32,
            Form::PackedScales(_) | Form::QuantParams => dtype == DType::F32,
            _ => true,
        };
        if !is_read {
            return Err(
                refused(format!("a param of type {dtype} cannot be read from {}", source.form)).into()
            );
        }
        if let Some(matrix) = source.form.matrix(shape) {
            let elems_of_row =
                if matches!(source.form, Form::PackedScales(_)) { 1 } else { matrix.row_elems };
            let (packed, piece_rows) = PackedStack::new(checkpoint, source, matrix, &stack)?;
            let block_elems = match source.form.has_groups_second() {
                true => shape[1..].iter().product(),
                false => stack.part(shape).elems(),
            };
            // A block of an expert with groups before rows is one piece.
            let piece_elems = match source.form.has_groups_second() {
                true => block_elems.max(1),
                false => piece_rows * elems_of_row,
            };
            return Ok(Self {
                tensors: Tensors::Packed(packed),
                block_elems,
                shape,
                dtype,
                form: source.form,
                parts,
                unit: 1,
                piece_elems,
                gap_elems: 0,
            });
        }
        let part = match source.form {
            Form::Blocks { block_elems, .. } => [block_elems].into(),
            _ => stack.part(shape),
        };
        let block_elems = part.elems();
        // The elements and the type to read for one element of the weight.
        let (unit, from, rows) = match source.form {
            Form::RowBytes { row_elems } => (row_elems.max(1), DType::F32, 1),
            Form::RowScales { row_elems } => (1, DType::F32, row_elems.max(1)),
            _ => (1, dtype, 1),
        };
        if !block_elems.is_multiple_of(unit) {
            return Err(refused(format!("{part} has no whole rows of {unit} elements")).into());
        }
        let stored_shape = match source.form {
            Form::RowScales { row_elems } => part.iter().copied().chain([row_elems]).collect(),
            _ => part,
        };
        let view = |name: &str, offset: usize| match source.form {
            Form::QuantParams => StoredView::of_quant_params(checkpoint.stored(name)?, offset, &stored_shape),
            _ => StoredView::new(checkpoint.stored(name)?, offset, &stored_shape, from),
        };
        let first = source.element_offset;
        let tensors = match source.form {
            Form::Blocks { stride_elems, .. } => {
                let starts = (0..shape.elems() / block_elems).map(|block| first + block * stride_elems);
                starts.map(|start| view(&source.tensor, start)).collect::<Result<Vec<_>, _>>()?
            }
            _ => stack.names.iter().map(|name| view(&name, first)).collect::<Result<Vec<_>, _>>()?,
        };
        let sizes = || tensors.iter().map(StoredView::stored_bytes);
        let widest = sizes().max().unwrap_or(1).max(from.size_bytes());
        let piece_elems = (PIECE_BYTES / (widest * unit * rows)).max(1) * unit;
        let gap_elems = (page_size() - 1) / (sizes().min().unwrap_or(1) * rows);
        let (tensors, form) = (Tensors::Stack(tensors), source.form);
        Ok(Self { tensors, block_elems, shape, dtype, form, parts, unit, piece_elems, gap_elems })
    }

    const fn pieces_of_block(&self) -> usize {
        self.block_elems.div_ceil(self.piece_elems)
    }

    pub(super) fn pieces(&self) -> usize {
        self.shape.elems() / self.block_elems.max(1) * self.pieces_of_block()
    }

    pub(super) fn give(&self, piece: usize, scratch: &mut Scratch, give: &mut Give<'_>) -> Result<(), Error> {
        let (block, piece) = (piece / self.pieces_of_block(), piece % self.pieces_of_block());
        let first = piece * self.piece_elems;
        let last = (first + self.piece_elems).min(self.block_elems);
        // Elements of the weight, counted over all blocks.
        let piece = block * self.block_elems + first..block * self.block_elems + last;
        let size = self.dtype.size_bytes();
        let held: Vec<Holding> = self
            .parts
            .iter()
            .enumerate()
            .filter_map(|(at, part)| Holding::new(at, self.shape, part, &piece))
            .collect();
        let Scratch { buffers, packed: packed_buffers, whole } = scratch;
        if let ([alone], Tensors::Stack(tensors)) = (held.as_slice(), &self.tensors)
            && alone.runs.gap().is_none_or(|gap| gap > self.gap_elems)
            && self.unit == 1
        {
            return give(alone.at, alone.elements.start * size, alone.elements.len() * size, &mut |out| {
                alone.cut().try_for_each(|(run, at)| {
                    let out = &mut out[at * size..(at + run.len()) * size];
                    self.make(&tensors[block], block, run, &mut buffers.raw, out)
                })
            });
        }
        let Some(span) =
            held.iter().map(|held| held.span.clone()).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
        else {
            return Ok(());
        };
        let span = span.start / self.unit * self.unit..span.end.next_multiple_of(self.unit);
        let whole = at_least(whole, span.len() * size);
        match &self.tensors {
            Tensors::Stack(tensors) => {
                for run in self.needed(&held) {
                    let out = &mut whole[(run.start - span.start) * size..(run.end - span.start) * size];
                    self.make(&tensors[block], block, run, &mut buffers.raw, out)?;
                }
            }
            Tensors::Permuted(permuted) => {
                let piece_box = permuted.piece_box(&piece);
                let box_of = |held: &Holding| shared(&piece_box, self.parts[held.at]);
                let boxes: Vec<Vec<Range<usize>>> = held.iter().filter_map(box_of).collect();
                for (at, ranges) in boxes.iter().enumerate() {
                    // Ranks with the same shard share one read.
                    if !boxes[..at].contains(ranges) {
                        permuted.read_box(ranges, span.start, buffers, whole)?;
                    }
                }
            }
            Tensors::Packed(packed) => {
                let of = |held: &Holding| self.parts[held.at];
                for (at, one) in held.iter().enumerate() {
                    // Ranks with the same shard share one read.
                    if !held[..at].iter().any(|earlier| of(earlier) == of(one)) {
                        let piece = first..last;
                        self.read_packed(packed, block, of(one), piece, packed_buffers, span.start, whole)?;
                    }
                }
            }
        }
        let bytes =
            |run: &Range<usize>| &whole[(run.start - span.start) * size..(run.end - span.start) * size];
        for held in &held {
            give(held.at, held.elements.start * size, held.elements.len() * size, &mut |out| {
                for (run, at) in held.cut() {
                    out[at * size..(at + run.len()) * size].copy_from_slice(bytes(&run));
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Reads the elements of a shard in a piece of a packed block. `whole` starts with the element
    /// `start` of the weight.
    #[expect(clippy::too_many_arguments, reason = "the caller has reusable buffers of all weights")]
    fn read_packed(
        &self,
        packed: &PackedStack<'_>,
        block: usize,
        ranges: &[Range<usize>],
        piece: Range<usize>,
        buffers: &mut PackedBuffers,
        start: usize,
        whole: &mut [u8],
    ) -> Result<(), Error> {
        let size = self.dtype.size_bytes();
        let at = |element: usize| (block * self.block_elems + element - start) * size;
        let is_scales = matches!(self.form, Form::PackedScales(_));
        let elems_of_row = if is_scales { 1 } else { packed.matrix.row_elems };
        let rows = piece.start / elems_of_row..piece.end / elems_of_row;
        if is_scales || matches!(self.form, Form::PackedBytes(_)) {
            return packed.read_rows(block, ranges, &rows, is_scales, buffers, |element, bytes| {
                whole[at(element)..at(element) + bytes.len()].copy_from_slice(bytes);
            });
        }
        if matches!(self.form, Form::Words(_)) {
            return packed.read_words(block, ranges, &rows, buffers, |element, bytes| {
                whole[at(element)..at(element) + bytes.len()].copy_from_slice(bytes);
            });
        }
        let give = |element: usize, values: &[f32]| {
            let bytes = at(element)..at(element + values.len());
            write_floats(self.dtype, values, &mut whole[bytes])
        };
        if self.form.has_groups_second() {
            return packed.read_groups_first(block, ranges, self.form, self.dtype, buffers, give);
        }
        packed.read(block, ranges, &rows, self.form, self.dtype, buffers, give)
    }

    /// Returns the ranges of a piece to read, in order. They start and end at multiples of the
    /// unit. Gaps smaller than a page are read as well, because skipping them saves nothing.
    fn needed(&self, held: &[Holding]) -> Vec<Range<usize>> {
        let units =
            |run: Range<usize>| run.start / self.unit * self.unit..run.end.next_multiple_of(self.unit);
        let mut runs: Vec<Range<usize>> =
            held.iter().flat_map(Holding::cut).map(|(run, _)| units(run)).collect();
        runs.sort_by_key(|run| run.start);
        let mut merged: Vec<Range<usize>> = Vec::new();
        for run in runs {
            match merged.last_mut() {
                Some(last) if run.start <= last.end + self.gap_elems => last.end = last.end.max(run.end),
                _ => merged.push(run),
            }
        }
        merged
    }

    /// Computes a range of elements of one block that starts and ends at a multiple of the unit.
    fn make(
        &self,
        view: &StoredView<'_>,
        block: usize,
        elements: Range<usize>,
        raw: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let before = block * self.block_elems;
        let elements = elements.start - before..elements.end - before;
        let (row_elems, numbers) = match self.form {
            Form::RowBytes { row_elems } => (row_elems, elements),
            Form::RowScales { row_elems } => {
                (row_elems, elements.start * row_elems..elements.end * row_elems)
            }
            _ => return Ok(view.read(elements, raw, out)?),
        };
        let mut bytes = vec![0; numbers.len() * 4];
        view.read(numbers, raw, &mut bytes)?;
        let numbers: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        let out_row = out.len() / (numbers.len() / row_elems);
        for (row, out) in numbers.chunks(row_elems).zip(out.chunks_mut(out_row)) {
            match self.form {
                Form::RowScales { .. } => {
                    out.copy_from_slice(&quantise::scale(row).to_le_bytes());
                }
                _ => quantise::integers(row, out),
            }
        }
        Ok(())
    }
}

impl<'a> PackedStack<'a> {
    /// Returns the matrices of a weight, and the number of rows per piece.
    fn new(
        checkpoint: &'a Checkpoint,
        source: &Source,
        matrix: PackedMatrix,
        stack: &TensorStack,
    ) -> Result<(Self, usize), slice::Error> {
        let rows = matrix.rows;
        let of_name =
            |name: String| Packed::new(checkpoint, layer_of_weight(&name), rows.packing, rows.row_elems);
        let matrices = stack.names.iter().map(of_name).collect::<Result<Vec<_>, _>>()?;
        if matches!(source.form, Form::Words(_)) {
            matrices.iter().try_for_each(Packed::check_consecutive)?;
        }
        let (piece_rows, steps) = match rows.packing.is_transposed() {
            true => (ROWS_AT_ONCE, [ROWS_AT_ONCE, COLUMNS_AT_ONCE]),
            false => {
                let count = (PACKED_ELEMS / rows.row_elems.max(1)).max(1).next_multiple_of(WORD);
                (count, [count, rows.row_elems])
            }
        };
        let part = stack.part(&matrix.shape);
        let Some(first_column_dim) = matrix.first_column_dim(&part) else {
            let reason = format!("{part} has no whole rows of {} elements", matrix.row_elems);
            return Err(slice::Error::Source { tensor: source.tensor.clone(), reason });
        };
        let first_row = source.element_offset / rows.row_elems;
        Ok((Self { matrices, matrix, dims: stack.dims, first_column_dim, first_row, steps }, piece_rows))
    }

    /// Reads the elements of a shard in some rows of one matrix: the weights, or a number of each
    /// group. `give` receives contiguous values with the index of the first one among the elements
    /// of the weight in this matrix.
    #[expect(clippy::too_many_arguments, reason = "the caller has reusable buffers of all weights")]
    fn read(
        &self,
        matrix: usize,
        ranges: &[Range<usize>],
        piece: &Range<usize>,
        form: Form,
        to: DType,
        buffers: &mut PackedBuffers,
        mut give: impl FnMut(usize, &[f32]) -> Result<(), Overflow>,
    ) -> Result<(), Error> {
        let of = &self.matrices[matrix];
        self.rectangles(ranges, piece, |rows, stored, columns| {
            match form {
                Form::GroupScales(GroupRows { group, .. }) => {
                    of.read_groups(&stored, &columns, group, GroupNumber::Scale, buffers)?;
                }
                Form::GroupOffsets(GroupRows { group, .. }) => {
                    of.read_groups(&stored, &columns, group, GroupNumber::Offset, buffers)?;
                }
                _ => of.read(&stored, &columns, buffers)?,
            }
            for (row, values) in rows.zip(buffers.values.chunks(columns.len())) {
                give(row * self.matrix.row_elems + columns.start, values)
                    .map_err(|overflow| of.overflow(overflow.value, to))?;
            }
            Ok(())
        })
    }

    /// As [`Self::read`], for the block of an expert: a number of each group, and then of each row
    /// of its matrices.
    fn read_groups_first(
        &self,
        expert: usize,
        ranges: &[Range<usize>],
        form: Form,
        to: DType,
        buffers: &mut PackedBuffers,
        mut give: impl FnMut(usize, &[f32]) -> Result<(), Overflow>,
    ) -> Result<(), Error> {
        let (ranges, dims) = (form.with_groups_last(ranges), self.dims.max(1));
        let counts = &self.matrix.shape[1..dims];
        let of_expert = counts.iter().product::<usize>();
        let rows = self.matrix.shape[dims..].iter().product::<usize>() / self.matrix.row_elems;
        let needed = Runs::of_part(&Shape::from(counts), &ranges[1..dims]);
        let length = needed.length();
        for at in needed.flat_map(|start| start..start + length) {
            let matrix = expert * of_expert + at;
            self.read(matrix, &ranges, &(0..rows), form, to, buffers, |element, values| {
                let (row, first) = (element / self.matrix.row_elems, element % self.matrix.row_elems);
                values.iter().enumerate().try_for_each(|(group, value)| {
                    let column = of_expert * (first + group) + at;
                    give(column * rows + row, std::slice::from_ref(value))
                })
            })?;
        }
        Ok(())
    }

    /// As [`Self::read`], for words. `give` receives their bytes.
    fn read_words(
        &self,
        matrix: usize,
        ranges: &[Range<usize>],
        piece: &Range<usize>,
        buffers: &mut PackedBuffers,
        mut give: impl FnMut(usize, &[u8]),
    ) -> Result<(), Error> {
        self.rectangles(ranges, piece, |rows, stored, words| {
            self.matrices[matrix].read_words(&stored, &words, buffers)?;
            let row_bytes = words.len() * DType::I32.size_bytes();
            for (row, bytes) in rows.zip(buffers.words.chunks(row_bytes)) {
                give(row * self.matrix.row_elems + words.start, bytes);
            }
            Ok(())
        })
    }

    /// Calls `read` for the rectangles of a shard in some rows of the weight, with the rows of the
    /// weight, the rows of the matrix, and the columns of the weight.
    fn rectangles(
        &self,
        ranges: &[Range<usize>],
        piece: &Range<usize>,
        mut read: impl FnMut(Range<usize>, Range<usize>, Range<usize>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (shape, ranges) = (Shape::from(&self.matrix.shape[self.dims..]), &ranges[self.dims..]);
        let dim = self.first_column_dim;
        let of_rows = Runs::of_part(&Shape::from(&shape[..dim]), &ranges[..dim]);
        let of_columns = Runs::of_part(&Shape::from(&shape[dim..]), &ranges[dim..]);
        let length = of_rows.length();
        for start in of_rows {
            let run = start.max(piece.start)..(start + length).min(piece.end);
            for rows in self.split(run) {
                for start in of_columns.clone() {
                    let end = start + of_columns.length();
                    for first in (start..end).step_by(self.steps[1]) {
                        let columns = first..(first + self.steps[1]).min(end);
                        let stored = self.stored_row(rows.start)..self.stored_row(rows.end - 1) + 1;
                        read(rows.clone(), stored, columns)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Quantises the rows of a shard among some rows of one matrix. `give` receives the bytes of
    /// contiguous integers, or of one scale, with the index of the first element as [`Self::read`].
    fn read_rows(
        &self,
        matrix: usize,
        ranges: &[Range<usize>],
        piece: &Range<usize>,
        is_scales: bool,
        buffers: &mut PackedBuffers,
        mut give: impl FnMut(usize, &[u8]),
    ) -> Result<(), Error> {
        let shape = Shape::from(&self.matrix.shape[self.dims..]);
        let (dim, row_elems) = (self.first_column_dim, self.matrix.row_elems);
        let ranges = &ranges[self.dims..];
        let of_rows = Runs::of_part(&Shape::from(&shape[..dim]), &ranges[..dim]);
        let length = of_rows.length();
        let mut integers = vec![0; row_elems];
        for start in of_rows {
            let run = start.max(piece.start)..(start + length).min(piece.end);
            for rows in self.split(run) {
                let stored = self.stored_row(rows.start)..self.stored_row(rows.end - 1) + 1;
                self.matrices[matrix].read(&stored, &(0..row_elems), buffers)?;
                for (row, values) in rows.zip(buffers.values.chunks(row_elems)) {
                    if is_scales {
                        give(row, &quantise::scale(values).to_le_bytes());
                        continue;
                    }
                    quantise::integers(values, &mut integers);
                    let of_columns = Runs::of_part(&Shape::from(&shape[dim..]), &ranges[dim..]);
                    let width = of_columns.length();
                    for column in of_columns {
                        give(row * row_elems + column, &integers[column..column + width]);
                    }
                }
            }
        }
        Ok(())
    }

    /// Splits rows of the weight into ranges that are consecutive in the matrix and read at once.
    fn split(&self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (most, blocks) = (self.steps[0], self.matrix.rows.blocks);
        let mut start = rows.start;
        std::iter::from_fn(move || {
            let block_end = blocks.map_or(rows.end, |blocks| (start / blocks.rows + 1) * blocks.rows);
            let range = start..(start + most).min(block_end).min(rows.end);
            start = range.end;
            (!range.is_empty()).then_some(range)
        })
    }

    /// Returns the row of the matrix that is a row of the weight.
    fn stored_row(&self, row: usize) -> usize {
        self.first_row
            + self
                .matrix
                .rows
                .blocks
                .map_or(row, |blocks| row / blocks.rows * blocks.stride + row % blocks.rows)
    }
}

/// Writes floats in another type.
fn write_floats(to: DType, values: &[f32], out: &mut [u8]) -> Result<(), Overflow> {
    let blocks = values.chunks(convert::BLOCK).zip(out.chunks_mut(convert::BLOCK * to.size_bytes()));
    for (block, (values, out)) in blocks.enumerate() {
        convert::encode(to, values, out)
            .map_err(|at| Overflow { index: block * convert::BLOCK + at, value: values[at] })?;
    }
    Ok(())
}

/// Returns the reader of a source with another order of dims, or of packed numbers.
fn permuted<'a>(
    checkpoint: &'a Checkpoint,
    source: &Source,
    shape: &'a Shape,
    dtype: DType,
) -> Result<Option<Permuted<'a>>, Error> {
    let Some(dims) = source.form.dims() else { return Ok(None) };
    let numbers = match source.mxfp4(shape) {
        Some([(blocks, _), (scales, _)]) => {
            let [blocks, scales] = [checkpoint.stored(&blocks)?, checkpoint.stored(&scales)?];
            Numbers::Mxfp4(Mxfp4::new(blocks, scales, shape.elems(), dtype)?)
        }
        None if dims.is_row_major() => return Ok(None),
        None => Numbers::Plain(StoredView::new(checkpoint.stored(&source.tensor)?, 0, shape, dtype)?),
    };
    Ok(Some(Permuted::new(numbers, shape, &dims.order(), dtype.size_bytes())))
}

struct Holding {
    at: usize,
    runs: Runs,
    elements: Range<usize>,
    /// Range from the first to the last of these elements within the whole weight.
    span: Range<usize>,
}

impl Holding {
    /// Returns `None` if the rank holds nothing of the piece.
    fn new(at: usize, shape: &Shape, part: &[Range<usize>], piece: &Range<usize>) -> Option<Self> {
        let elements = elements_before(shape, part, piece.start)..elements_before(shape, part, piece.end);
        let runs = Runs::of_part(shape, part);
        if elements.is_empty() {
            return None;
        }
        let span = runs.place(elements.start)?..runs.place(elements.end - 1)? + 1;
        Some(Self { at, runs, elements, span })
    }

    /// Returns the contiguous ranges within the piece, each with the number of elements before it.
    fn cut(&self) -> impl Iterator<Item = (Range<usize>, usize)> {
        let length = self.runs.length();
        let mut before = 0;
        self.runs.clone().from(self.elements.start / length).map_while(move |start| {
            let run = start.max(self.span.start)..(start + length).min(self.span.end);
            let at = before;
            before += run.len();
            (!run.is_empty()).then_some((run, at))
        })
    }
}

#[cfg(test)]
mod tests;
