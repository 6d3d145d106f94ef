//! Reads one weight in pieces and passes each piece to the local ranks that need it.
//!
//! Input: a checkpoint and the shards of one weight. Output: pieces, in any order.
//!
//! Invariants: each piece is part of one tensor. It is read once, and a rank receives its part of a
//! piece in one write. Tensors that no local rank needs, and gaps of a page or more that no local
//! rank needs, are not read.
//!
//! Not here: devices and threads.

use std::ops::Range;

use rustix::param::page_size;

use super::checkpoint::Checkpoint;
use super::quantise;
use super::slice::{self, PIECE_BYTES, StoredView, at_least};
use crate::base::{DType, Shape};
use crate::exec::Error;
use crate::placement::shard::runs::{Runs, elements_before};
use crate::program::{Form, Source};
use crate::schedule::plan::Tensor;

/// A callback that takes the index of a shard, an offset and a length in bytes, and the writer of
/// these bytes.
pub(super) type Give<'a> = dyn FnMut(usize, usize, usize, &mut Write<'_>) -> Result<(), Error> + 'a;

pub(super) type Write<'a> = dyn FnMut(&mut [u8]) -> Result<(), Error> + 'a;

pub(super) struct Weight<'a> {
    /// Tensors of the stack, in order.
    tensors: Vec<StoredView<'a>>,
    /// Number of elements of the weight in each tensor.
    tensor_elems: usize,
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

/// Reusable buffers for the pieces of any weight.
#[derive(Default)]
pub(super) struct Scratch {
    raw: Vec<u8>,
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
        let part = stack.part(shape);
        let tensor_elems = part.elems();
        // The elements and the type to read for one element of the weight.
        let (unit, from, rows) = match source.form {
            Form::Numbers => (1, dtype, 1),
            Form::RowBytes { row_elems } => (row_elems.max(1), DType::F32, 1),
            Form::RowScales { row_elems } => (1, DType::F32, row_elems.max(1)),
        };
        if !tensor_elems.is_multiple_of(unit) {
            return Err(refused(format!("{part} has no whole rows of {unit} elements")).into());
        }
        let stored_shape = match source.form {
            Form::RowScales { row_elems } => part.iter().copied().chain([row_elems]).collect(),
            Form::Numbers | Form::RowBytes { .. } => part,
        };
        let view = |name: String| {
            StoredView::new(checkpoint.stored(&name)?, source.element_offset, &stored_shape, from)
        };
        let tensors = stack.names.iter().map(view).collect::<Result<Vec<_>, _>>()?;
        let sizes = || tensors.iter().map(StoredView::stored_bytes);
        let widest = sizes().max().unwrap_or(1).max(from.size_bytes());
        let piece_elems = (PIECE_BYTES / (widest * unit * rows)).max(1) * unit;
        let gap_elems = (page_size() - 1) / (sizes().min().unwrap_or(1) * rows);
        Ok(Self {
            tensors,
            tensor_elems,
            shape,
            dtype,
            form: source.form,
            parts,
            unit,
            piece_elems,
            gap_elems,
        })
    }

    const fn pieces_of_tensor(&self) -> usize {
        self.tensor_elems.div_ceil(self.piece_elems)
    }

    pub(super) fn pieces(&self) -> usize {
        self.tensors.len() * self.pieces_of_tensor()
    }

    pub(super) fn give(&self, piece: usize, scratch: &mut Scratch, give: &mut Give<'_>) -> Result<(), Error> {
        let (tensor, piece) = (piece / self.pieces_of_tensor(), piece % self.pieces_of_tensor());
        let first = piece * self.piece_elems;
        let last = (first + self.piece_elems).min(self.tensor_elems);
        // Elements of the weight, counted over all tensors.
        let piece = tensor * self.tensor_elems + first..tensor * self.tensor_elems + last;
        let size = self.dtype.size_bytes();
        let held: Vec<Holding> = self
            .parts
            .iter()
            .enumerate()
            .filter_map(|(at, part)| Holding::new(at, self.shape, part, &piece))
            .collect();
        let Scratch { raw, whole } = scratch;
        if let [alone] = held.as_slice()
            && alone.runs.gap().is_none_or(|gap| gap > self.gap_elems)
            && self.unit == 1
        {
            return give(alone.at, alone.elements.start * size, alone.elements.len() * size, &mut |out| {
                alone.cut().try_for_each(|(run, at)| {
                    self.make(run.clone(), raw, &mut out[at * size..(at + run.len()) * size])
                })
            });
        }
        let needed = self.needed(&held);
        let (Some(first), Some(last)) = (needed.first(), needed.last()) else { return Ok(()) };
        let span = first.start..last.end;
        let whole = at_least(whole, span.len() * size);
        for run in needed {
            let to = (run.start - span.start) * size..(run.end - span.start) * size;
            self.make(run, raw, &mut whole[to])?;
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

    /// Computes a range of elements of one tensor that starts and ends at a multiple of the unit.
    fn make(&self, elements: Range<usize>, raw: &mut Vec<u8>, out: &mut [u8]) -> Result<(), Error> {
        let tensor = elements.start / self.tensor_elems;
        let view = &self.tensors[tensor];
        let before = tensor * self.tensor_elems;
        let elements = elements.start - before..elements.end - before;
        let (row_elems, numbers) = match self.form {
            Form::Numbers => return Ok(view.read(elements, raw, out)?),
            Form::RowBytes { row_elems } => (row_elems, elements),
            Form::RowScales { row_elems } => {
                (row_elems, elements.start * row_elems..elements.end * row_elems)
            }
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
                Form::RowBytes { .. } | Form::Numbers => quantise::integers(row, out),
            }
        }
        Ok(())
    }
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
