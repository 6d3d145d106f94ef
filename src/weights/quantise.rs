//! Rows of a checkpoint's weight as 8-bit integers with one scale each.
//!
//! Input → output: a rank's part of a quantised weight, or of its scales → the bytes of the part, from a checkpoint of
//! floats. Invariants: a row's scale is that of the whole row, whoever holds a part of it; a row's largest magnitude
//! becomes 127 or -127; a row with an infinite number or NaN is refused. It holds one chunk of rows at a time.

use std::ops::Range;

use super::checkpoint::Checkpoint;
use super::load::PIECE_BYTES;
use super::slice::Runs;
use crate::base::{DType, Shape};
use crate::exec::{FillError, Write};
use crate::program::{Form, Source};
use crate::schedule::plan::Tensor;

/// Gives the 8-bit integers of a weight.
pub(super) fn bytes(
    checkpoint: &Checkpoint,
    param: &Tensor,
    source: &Source,
    row_elems: usize,
    write: &mut Write<'_>,
) -> Result<(), FillError> {
    // The last dims make up a row.
    let sizes = param.shape.sizes();
    let outer = (0..=sizes.len()).find(|dim| sizes[*dim..].iter().product::<usize>() == row_elems);
    let outer = outer.ok_or_else(|| format!("`{}`: rows of {row_elems} numbers in {}", param.name, param.shape))?;
    let (row_shape, row_ranges) = (Shape::from(sizes[outer..].to_vec()), &param.ranges[outer..]);
    let runs: Vec<Range<usize>> = {
        let runs = Runs::new(&row_shape, row_ranges);
        let length = runs.length();
        runs.map(|start| start..start + length).collect()
    };
    let rows = Rows { checkpoint, source, row_elems, count: sizes[..outer].iter().product() };
    let mut offset = 0;
    rows.each(&Shape::from(sizes[..outer].to_vec()), &param.ranges[..outer], &mut |rows| {
        let byte = |x: f32, scale: f32| if scale > 0.0 { (x / scale).round_ties_even() as i8 } else { 0 };
        let mut bytes: Vec<u8> = Vec::with_capacity(rows.len());
        for row in rows.chunks(row_elems.max(1)) {
            let scale = scale(row, source)?;
            let own = runs.iter().flat_map(|run| &row[run.clone()]);
            bytes.extend(own.flat_map(|x| byte(*x, scale).to_le_bytes()));
        }
        write(offset, &bytes)?;
        offset += bytes.len();
        Ok(())
    })
}

/// Gives the scales of a weight's rows.
pub(super) fn scales(
    checkpoint: &Checkpoint,
    param: &Tensor,
    source: &Source,
    row_elems: usize,
    write: &mut Write<'_>,
) -> Result<(), FillError> {
    let rows = Rows { checkpoint, source, row_elems, count: param.shape.elems() };
    let mut offset = 0;
    rows.each(&param.shape, &param.ranges, &mut |rows| {
        let mut bytes = Vec::new();
        for row in rows.chunks(row_elems.max(1)) {
            bytes.extend(scale(row, source)?.to_le_bytes());
        }
        write(offset, &bytes)?;
        offset += bytes.len();
        Ok(())
    })
}

/// What a row is divided by.
fn scale(row: &[f32], source: &Source) -> Result<f32, FillError> {
    match row.iter().find(|x| !x.is_finite()) {
        Some(x) => {
            Err(format!("{}: {x} has no 8-bit form; run the checkpoint with --dtype bf16", source.tensor).into())
        }
        None => Ok(row.iter().fold(0.0, |largest: f32, x| largest.max(x.abs())) / Form::LARGEST),
    }
}

/// The rows of a weight in a checkpoint.
struct Rows<'a> {
    checkpoint: &'a Checkpoint,
    source: &'a Source,
    row_elems: usize,
    count: usize,
}

impl Rows<'_> {
    /// Hands over the rows inside `ranges` of a tensor of rows of shape `shape`, in order, some whole rows at a time.
    fn each(
        &self,
        shape: &Shape,
        ranges: &[Range<usize>],
        visit: &mut dyn FnMut(&[f32]) -> Result<(), FillError>,
    ) -> Result<(), FillError> {
        let at_once = (PIECE_BYTES / (4 * self.row_elems.max(1))).max(1);
        let view = Shape::from([self.count, self.row_elems]);
        let runs = Runs::new(shape, ranges);
        let length = runs.length();
        for run in runs {
            for start in (run..run + length).step_by(at_once) {
                let end = (start + at_once).min(run + length);
                let mut bytes = vec![0; (end - start) * self.row_elems * 4];
                let (tensor, offset) = (&self.source.tensor, self.source.element_offset);
                let rows = [start..end, 0..self.row_elems];
                self.checkpoint.read_slice(tensor, offset, &view, &rows, DType::F32, &mut bytes)?;
                let numbers: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
                visit(&numbers)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use half::bf16;
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

    use super::*;
    use crate::base::Id;
    use crate::schedule::plan::BufferId;
    use crate::weights::fill_from;

    /// Rows of 2 · 3 numbers, of which the last has only zeros; the first is 1000 elements into its tensor.
    const ROWS: usize = 5;
    const ROW: [usize; 2] = [2, 3];
    const OFFSET: usize = 1000;

    fn numbers() -> Vec<f32> {
        let row = |r: usize| (0..6).map(move |i| if r == 4 { 0.0 } else { (i as f32 - 3.5) * (r + 1) as f32 / 8.0 });
        (0..ROWS).flat_map(row).collect()
    }

    fn checkpoint(numbers: &[f32]) -> (tempfile::TempDir, Arc<Checkpoint>) {
        let all = std::iter::repeat_n(&9.0, OFFSET).chain(numbers);
        let bytes: Vec<u8> = all.flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect();
        let view = TensorView::new(Dtype::BF16, vec![bytes.len() / 2], &bytes).unwrap();
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(folder.path().join("model.safetensors"), safetensors::serialize([("w", view)], None).unwrap())
            .unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        (folder, Arc::new(checkpoint))
    }

    /// What a rank is given of a param.
    fn filled(
        numbers: &[f32],
        dtype: DType,
        shape: &[usize],
        ranges: &[Range<usize>],
        form: Form,
    ) -> Result<Vec<u8>, String> {
        let (_folder, checkpoint) = checkpoint(numbers);
        let param = Tensor {
            name: "w".to_owned(),
            shape: shape.into(),
            dtype,
            ranges: ranges.to_vec(),
            buffer: BufferId::from_index(0),
            source: Some(Source { tensor: "w".to_owned(), element_offset: OFFSET, form }),
        };
        let told = Arc::new(Mutex::new(0));
        let sum = Arc::clone(&told);
        let fill = fill_from(&checkpoint, Arc::new(move |piece| *sum.lock().unwrap() += piece.0));
        let mut out = Vec::new();
        fill(&param, &mut |offset, bytes| {
            assert_eq!(offset, out.len(), "pieces follow each other");
            out.extend_from_slice(bytes);
            Ok(())
        })
        .map_err(|error| error.to_string())?;
        assert_eq!(*told.lock().unwrap(), out.len() as u64);
        Ok(out)
    }

    #[test]
    fn each_part_of_a_row_is_scaled_by_the_whole_row() {
        let row_elems = ROW[0] * ROW[1];
        let numbers = numbers();
        let steps: Vec<f32> = numbers.chunks(row_elems).map(|row| row[0].abs() / 127.0).collect();
        for rows in [0..5, 1..3, 4..5, 2..2] {
            let form = Form::RowScales { row_elems };
            let found = filled(&numbers, DType::F32, &[ROWS], std::slice::from_ref(&rows), form).unwrap();
            let expected: Vec<u8> = steps[rows.clone()].iter().flat_map(|step| step.to_le_bytes()).collect();
            assert_eq!(found, expected, "{rows:?}");
            for (first, second) in [(0..2, 0..3), (1..2, 0..3), (0..2, 1..2), (0..1, 2..3)] {
                let ranges = [rows.clone(), first.clone(), second.clone()];
                let form = Form::RowBytes { row_elems };
                let found = filled(&numbers, DType::I8, &[ROWS, ROW[0], ROW[1]], &ranges, form).unwrap();
                let mut expected = Vec::new();
                for (row, i, j) in rows.clone().flat_map(|row| {
                    let second = second.clone();
                    first.clone().flat_map(move |i| second.clone().map(move |j| (row, i, j)))
                }) {
                    // The oracle divides in f64: no quotient here is near a tie.
                    let x = f64::from(numbers[row * row_elems + i * ROW[1] + j]);
                    let byte = if row == 4 { 0.0 } else { (x / f64::from(steps[row])).round() };
                    expected.push(byte as i8 as u8);
                }
                assert_eq!(found, expected, "{ranges:?}");
            }
        }
    }

    #[test]
    fn a_number_without_a_scale_is_refused_by_name() {
        let mut numbers = numbers();
        numbers[8] = f32::INFINITY;
        let form = Form::RowBytes { row_elems: 6 };
        let message = filled(&numbers, DType::I8, &[ROWS, 6], &[0..5, 0..6], form).unwrap_err();
        assert_eq!(message, "w: inf has no 8-bit form; run the checkpoint with --dtype bf16");
        // A rank that holds nothing of the row does not mind.
        assert!(filled(&numbers, DType::I8, &[ROWS, 6], &[2..5, 0..6], form).is_ok());
    }
}
