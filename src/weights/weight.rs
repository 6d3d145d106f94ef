//! Reads one weight in pieces and passes each piece to the local ranks that need it.
//!
//! Input: a checkpoint and the shards of one weight. Output: pieces, in any order.
//!
//! Invariants: each piece is read once, and a rank receives its part of a piece in one write. Gaps
//! of a page or more that no local rank needs are not read.
//!
//! Not here: devices and threads.

use std::ops::Range;

use rustix::param::page_size;

use super::checkpoint::Checkpoint;
use super::quantise;
use super::slice::{PIECE_BYTES, StoredView, at_least};
use crate::base::{DType, Shape};
use crate::exec::Error;
use crate::placement::shard::runs::{Runs, elements_before};
use crate::program::Form;
use crate::schedule::plan::Tensor;

/// A callback that takes the index of a shard, an offset and a length in bytes, and the writer of
/// these bytes.
pub(super) type Give<'a> = dyn FnMut(usize, usize, usize, &mut Write<'_>) -> Result<(), Error> + 'a;

pub(super) type Write<'a> = dyn FnMut(&mut [u8]) -> Result<(), Error> + 'a;

pub(super) struct Weight<'a> {
    view: StoredView<'a>,
    shape: &'a Shape,
    dtype: DType,
    form: Form,
    /// Ranges of each rank's shard, one per dim.
    parts: Vec<&'a [Range<usize>]>,
    /// Number of elements that are quantised together.
    unit: usize,
    piece_elems: usize,
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
    pub(super) fn new(checkpoint: &'a Checkpoint, parts: &[&'a Tensor]) -> Result<Self, Error> {
        let first = *parts.first().ok_or_else(|| Error::fill("a weight without parts"))?;
        let (shape, dtype) = (&first.shape, first.dtype);
        let no_source = || format!("weight `{}` has no source in a checkpoint", first.name);
        let source = first.source.as_ref().ok_or_else(|| Error::fill(no_source()))?;
        let stored = checkpoint.stored(&source.tensor)?;
        // The elements and the type to read for one element of the weight.
        let (unit, from, rows) = match source.form {
            Form::Numbers => (1, dtype, 1),
            Form::RowBytes { row_elems } => (row_elems, DType::F32, 1),
            Form::RowScales { row_elems } => (1, DType::F32, row_elems),
        };
        let widest = stored.dtype.size_bytes().max(from.size_bytes());
        let view = StoredView::new(stored, source.element_offset, shape, from)?;
        let unit = unit.max(1);
        let piece_elems = (PIECE_BYTES / (widest * unit * rows.max(1))).max(1) * unit;
        let parts = parts.iter().map(|part| part.ranges.as_slice()).collect();
        Ok(Self { view, shape, dtype, form: source.form, parts, unit, piece_elems })
    }

    pub(super) fn pieces(&self) -> usize {
        self.shape.elems().div_ceil(self.piece_elems)
    }

    pub(super) fn give(&self, piece: usize, scratch: &mut Scratch, give: &mut Give<'_>) -> Result<(), Error> {
        let start = piece * self.piece_elems;
        let piece = start..(start + self.piece_elems).min(self.shape.elems());
        let size = self.dtype.size_bytes();
        let held: Vec<Holding> = self
            .parts
            .iter()
            .enumerate()
            .filter_map(|(at, part)| Holding::new(at, self.shape, part, &piece))
            .collect();
        let Some(span) =
            held.iter().map(|held| held.span.clone()).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
        else {
            return Ok(());
        };
        let Scratch { raw, whole } = scratch;
        if let [alone] = held.as_slice()
            && alone.runs.gap().is_none_or(|gap| gap * size >= page_size())
            && self.unit == 1
        {
            // Gaps smaller than a page are read as well, because skipping them saves nothing.
            return give(alone.at, alone.elements.start * size, alone.elements.len() * size, &mut |out| {
                alone.cut().try_for_each(|(run, at)| {
                    self.make(run.clone(), raw, &mut out[at * size..(at + run.len()) * size])
                })
            });
        }
        let span = span.start / self.unit * self.unit..span.end.next_multiple_of(self.unit);
        let whole = at_least(whole, span.len() * size);
        self.make(span.clone(), raw, whole)?;
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

    /// Computes a range of elements that starts and ends at a multiple of the unit.
    fn make(&self, elements: Range<usize>, raw: &mut Vec<u8>, out: &mut [u8]) -> Result<(), Error> {
        let (row_elems, numbers) = match self.form {
            Form::Numbers => return Ok(self.view.read(elements, raw, out)?),
            Form::RowBytes { row_elems } => (row_elems, elements),
            Form::RowScales { row_elems } => {
                (row_elems, elements.start * row_elems..elements.end * row_elems)
            }
        };
        let mut bytes = vec![0; numbers.len() * 4];
        self.view.read(numbers, raw, &mut bytes)?;
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
mod tests {
    use half::bf16;
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

    use super::*;
    use crate::base::Id;
    use crate::call::BufferId;
    use crate::program::Source;

    /// Rows of 2 · 3 numbers. The last row is zero. The first row starts at element 1000 of the
    /// tensor.
    const ROWS: usize = 5;
    const ROW: [usize; 2] = [2, 3];
    const OFFSET: usize = 1000;

    fn numbers() -> Vec<f32> {
        let row = |r: usize| {
            (0..6).map(move |i| if r == 4 { 0.0 } else { (i as f32 - 3.5) * (r + 1) as f32 / 8.0 })
        };
        (0..ROWS).flat_map(row).collect()
    }

    fn checkpoint(numbers: &[f32]) -> Checkpoint {
        let all = std::iter::repeat_n(&9.0, OFFSET).chain(numbers);
        let bytes: Vec<u8> = all.flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect();
        let view = TensorView::new(Dtype::BF16, vec![bytes.len() / 2], &bytes).unwrap();
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(
            folder.path().join("model.safetensors"),
            safetensors::serialize([("w", view)], None).unwrap(),
        )
        .unwrap();
        Checkpoint::open(folder.path()).unwrap()
    }

    /// Returns the bytes that ranks with these shards receive. The pieces are read in reverse
    /// order.
    fn given(
        checkpoint: &Checkpoint,
        dtype: DType,
        shape: &[usize],
        parts: &[Vec<Range<usize>>],
        element_offset: usize,
        form: Form,
    ) -> Result<Vec<Vec<u8>>, String> {
        let tensor = |ranges: &Vec<Range<usize>>| Tensor {
            name: "w".to_owned(),
            shape: shape.into(),
            dtype,
            ranges: ranges.clone(),
            buffer: BufferId::from_index(0),
            offset: 0,
            source: Some(Source { tensor: "w".to_owned(), element_offset, form }),
        };
        let tensors: Vec<Tensor> = parts.iter().map(tensor).collect();
        let bytes = |ranges: &Vec<Range<usize>>| {
            ranges.iter().map(Range::len).product::<usize>() * dtype.size_bytes()
        };
        let mut found: Vec<Vec<u8>> = parts.iter().map(|ranges| vec![0; bytes(ranges)]).collect();
        let mut counts = vec![0; parts.len()];
        let (mut scratch, references) = (Scratch::default(), tensors.iter().collect::<Vec<_>>());
        let weight = Weight::new(checkpoint, &references).map_err(|error| error.to_string())?;
        for piece in (0..weight.pieces()).rev() {
            let mut give = |at: usize, offset: usize, len_bytes: usize, write: &mut Write<'_>| {
                counts[at] += len_bytes;
                write(&mut found[at][offset..offset + len_bytes])
            };
            weight.give(piece, &mut scratch, &mut give).map_err(|error| error.to_string())?;
        }
        assert_eq!(counts, found.iter().map(Vec::len).collect::<Vec<_>>(), "each byte once");
        Ok(found)
    }

    #[test]
    fn each_rank_gets_its_slice_of_every_piece() {
        const SHAPE: [usize; 3] = [37, 9, 4000];
        let elems: usize = SHAPE.iter().product();
        let bytes: Vec<u8> = (0..elems).flat_map(|at| (at as u32).to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, vec![elems], &bytes).unwrap();
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(
            folder.path().join("model.safetensors"),
            safetensors::serialize([("w", view)], None).unwrap(),
        )
        .unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let alone = |dim: usize, range: Range<usize>| -> Vec<Range<usize>> {
            (0..3).map(|other| if other == dim { range.clone() } else { 0..SHAPE[other] }).collect()
        };
        let cut = |dim: usize, ranges: [Range<usize>; 3]| ranges.map(|range| alone(dim, range)).to_vec();
        let cuts = [
            cut(0, [0..13, 13..30, 30..37]),
            cut(0, [0..37, 20..20, 0..37]),
            cut(1, [0..4, 4..8, 8..9]),
            cut(2, [0..1333, 1333..2666, 2666..4000]),
            vec![alone(2, 30..3900)],
            vec![alone(2, 100..300)],
            vec![alone(1, 3..4)],
            vec![vec![5..6, 2..7, 10..3000], vec![36..37, 8..9, 3999..4000]],
        ];
        for parts in cuts {
            for to in [DType::F32, DType::BF16] {
                let found = given(&checkpoint, to, &SHAPE, &parts, 0, Form::Numbers).unwrap();
                for (part, found) in parts.iter().zip(&found) {
                    let mut expected = vec![0; found.len()];
                    checkpoint.read_slice("w", 0, &SHAPE.into(), part, to, &mut expected).unwrap();
                    assert!(*found == expected, "{part:?} as {to}");
                }
            }
        }
    }

    #[test]
    fn each_part_of_a_row_is_scaled_by_the_whole_row() {
        let row_elems = ROW[0] * ROW[1];
        let numbers = numbers();
        let checkpoint = checkpoint(&numbers);
        let steps: Vec<f32> = numbers.chunks(row_elems).map(|row| row[0].abs() / 127.0).collect();
        for rows in [0..5, 1..3, 4..5, 2..2] {
            let form = Form::RowScales { row_elems };
            let found = given(&checkpoint, DType::F32, &[ROWS], &[vec![rows.clone()]], OFFSET, form).unwrap();
            let expected: Vec<u8> = steps[rows.clone()].iter().flat_map(|step| step.to_le_bytes()).collect();
            assert_eq!(found, [expected], "{rows:?}");
            for (first, second) in [(0..2, 0..3), (1..2, 0..3), (0..2, 1..2), (0..1, 2..3)] {
                let ranges = [rows.clone(), first.clone(), second.clone()];
                let form = Form::RowBytes { row_elems };
                let found =
                    given(&checkpoint, DType::I8, &[ROWS, ROW[0], ROW[1]], &[ranges.to_vec()], OFFSET, form)
                        .unwrap();
                let mut expected = Vec::new();
                for (row, i, j) in rows.clone().flat_map(|row| {
                    let second = second.clone();
                    first.clone().flat_map(move |i| second.clone().map(move |j| (row, i, j)))
                }) {
                    // The reference divides in f64. No quotient in this test is near a tie.
                    let x = f64::from(numbers[row * row_elems + i * ROW[1] + j]);
                    let byte = if row == 4 { 0.0 } else { (x / f64::from(steps[row])).round() };
                    expected.push(byte as i8 as u8);
                }
                assert_eq!(found, [expected], "{ranges:?}");
            }
        }
    }

    #[test]
    fn a_number_that_is_not_finite_is_refused_by_name() {
        let mut numbers = numbers();
        numbers[8] = f32::INFINITY;
        let form = Form::RowBytes { row_elems: 6 };
        let checkpoint = checkpoint(&numbers);
        let of =
            |rows: Range<usize>| given(&checkpoint, DType::I8, &[ROWS, 6], &[vec![rows, 0..6]], OFFSET, form);
        let message = of(0..5).unwrap_err();
        assert!(
            message.starts_with("loading weights: w: element 1008 is inf: expected finite numbers"),
            "{message}"
        );
        assert!(of(2..5).is_ok());
    }
}
