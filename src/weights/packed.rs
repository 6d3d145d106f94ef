//! Weights of 4 and 8 bits, dequantised or repacked while they are read.
//!
//! Input: the stored tensors of a packed matrix, and a rectangle of it. Output: floats, or words of
//! signed 4-bit integers with the scales and offsets of their groups.
//!
//! Invariants: only the words, scales and zero points of the rectangle are read, apart from gaps
//! smaller than a page. With an order of groups, all scales of the rows are read. A number and its
//! zero point are exact in f32, and their product with the scale is rounded once.
//!
//! Not here: which rectangles a rank needs (`weight`). The layouts are described at [`Packing`].

use std::ops::Range;

use rustix::param::page_size;

use super::checkpoint::Checkpoint;
use super::convert;
use super::slice::{Error, Stored, at_least};
use crate::base::{DType, PackedTensor, Packing, WORD};

/// Number that compressed-tensors subtracts from symmetric numbers of 4 bits.
const MIDDLE: u8 = 8;
/// Place within a word of AWQ of each of the word's outputs.
const AWQ_PLACES: [usize; WORD] = [0, 4, 1, 5, 2, 6, 3, 7];
/// Bytes of a word.
const WORD_BYTES: usize = 4;

/// A packed matrix `[outputs, inputs]`.
#[derive(Debug)]
pub(super) struct Packed<'a> {
    packing: Packing,
    inputs: usize,
    numbers: Matrix<'a>,
    scales: Matrix<'a>,
    zeros: Option<Matrix<'a>>,
    /// Group of each input, if the groups are not consecutive inputs.
    order: Option<Vec<usize>>,
}

/// A stored tensor with the number of elements per row.
#[derive(Clone, Copy, Debug)]
struct Matrix<'a> {
    stored: Stored<'a>,
    columns: usize,
}

/// Reusable buffers of the reads.
#[derive(Default)]
pub(super) struct PackedBuffers {
    raw: Vec<u8>,
    numbers: Vec<u8>,
    zeros: Vec<u8>,
    scales: Vec<f32>,
    /// Scales in f32, as bytes.
    wide: Vec<u8>,
    /// The last rectangle that was read.
    pub(super) values: Vec<f32>,
    /// The last words that were read, as bytes.
    pub(super) words: Vec<u8>,
}

/// A number of each group of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupNumber {
    Scale,
    Offset,
}

impl<'a> Packed<'a> {
    /// Returns the packed matrix of a layer with this number of inputs.
    pub(super) fn new(
        checkpoint: &'a Checkpoint,
        layer: &str,
        packing: Packing,
        inputs: usize,
    ) -> Result<Self, Error> {
        // The number of outputs follows from the stored numbers.
        let suffix = packing.tensors([0, inputs])[0].suffix;
        let numbers = checkpoint.stored(&format!("{layer}.{suffix}"))?;
        let per_row = match packing {
            Packing::Rows { .. } | Packing::Gptq { .. } => inputs.div_ceil(WORD),
            Packing::Awq { .. } | Packing::Fp8 { .. } => inputs,
        };
        let per_element = if matches!(packing, Packing::Awq { .. }) { WORD } else { 1 };
        let outputs = numbers.elems / per_row.max(1) * per_element;
        let parts = packing.tensors([outputs, inputs]);
        let find = |part: &PackedTensor| -> Result<Matrix<'a>, Error> {
            let stored = checkpoint.stored(&format!("{layer}.{}", part.suffix))?;
            if !part.dtypes.contains(&stored.dtype) || stored.elems != part.shape.elems() {
                let tensor = stored.name.to_owned();
                let reason = format!(
                    "expected {} of {outputs} outputs and {inputs} inputs, found {} elements of {}",
                    part.shape, stored.elems, stored.dtype
                );
                return Err(Error::Source { tensor, reason });
            }
            Ok(Matrix { stored, columns: part.shape.last().copied().unwrap_or(1) })
        };
        let tensors = parts.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let named = |suffix: &str| parts.iter().position(|part| part.suffix == suffix).map(|at| tensors[at]);
        let order = named("g_idx").or_else(|| named("weight_g_idx"));
        let groups = parts[1].shape.elems() / outputs.max(1);
        let order = order.map(|order| groups_of_inputs(&order.stored, groups)).transpose()?;
        Ok(Self {
            packing,
            inputs,
            numbers: tensors[0],
            scales: tensors[1],
            zeros: named("qzeros").or_else(|| named("weight_zero_point")),
            order,
        })
    }

    /// Returns the number of inputs that have the same scale.
    fn group(&self) -> usize {
        match self.packing {
            Packing::Rows { group, .. } | Packing::Gptq { group, .. } | Packing::Awq { group } => {
                group.size(self.inputs)
            }
            Packing::Fp8 { block } => block[1],
        }
    }

    /// Returns an error if the groups are not consecutive inputs.
    pub(super) fn check_consecutive(&self) -> Result<(), Error> {
        let Some(order) = &self.order else { return Ok(()) };
        let group = self.group();
        match order.iter().enumerate().find(|(input, of)| **of != input / group) {
            None => Ok(()),
            Some((input, of)) => Err(Error::Source {
                tensor: self.numbers.stored.name.to_owned(),
                reason: format!("input {input} has group {of}, but the configuration has no act order"),
            }),
        }
    }

    /// Reads words of eight inputs into `buffers.words`, row by row. The groups are consecutive.
    pub(super) fn read_words(
        &self,
        rows: &Range<usize>,
        words: &Range<usize>,
        buffers: &mut PackedBuffers,
    ) -> Result<(), Error> {
        // Subtracts 8 from each of two numbers of 4 bits, in two's complement.
        const SIGNS: u8 = MIDDLE << 4 | MIDDLE;
        let PackedBuffers { raw, numbers, words: out, .. } = buffers;
        let row_bytes = words.len() * WORD_BYTES;
        out.clear();
        out.resize(rows.len() * row_bytes, 0);
        if matches!(self.packing, Packing::Rows { .. }) {
            return self.numbers.read(rows, words, raw, |at, bytes| {
                let row = out[at * row_bytes..][..row_bytes].iter_mut();
                row.zip(bytes).for_each(|(out, byte)| *out = byte ^ SIGNS);
            });
        }
        self.read_numbers(rows, &(words.start * WORD..words.end * WORD), raw, numbers)?;
        for (out, pair) in out.iter_mut().zip(numbers.as_chunks::<2>().0) {
            *out = (pair[0] | pair[1] << 4) ^ SIGNS;
        }
        Ok(())
    }

    /// Reads a number of each group of `group` inputs into `buffers.values`, row by row. Stored
    /// groups are consecutive and not smaller.
    pub(super) fn read_groups(
        &self,
        rows: &Range<usize>,
        groups: &Range<usize>,
        group: usize,
        number: GroupNumber,
        buffers: &mut PackedBuffers,
    ) -> Result<(), Error> {
        let PackedBuffers { raw, zeros, scales, wide, values, .. } = buffers;
        let stored_of = |of: usize| of * group / self.group();
        let stored = stored_of(groups.start)..stored_of(groups.end - 1) + 1;
        match number {
            GroupNumber::Scale => self.read_scales(rows, &stored, raw, wide, scales)?,
            GroupNumber::Offset => self.read_zeros(rows, &stored, raw, zeros)?,
        }
        let count = stored.len();
        let value = |at: usize| match number {
            GroupNumber::Scale => scales[at],
            GroupNumber::Offset => f32::from(MIDDLE) - f32::from(zeros.get(at).copied().unwrap_or(MIDDLE)),
        };
        values.clear();
        for row in 0..rows.len() {
            values.extend(groups.clone().map(|of| value(row * count + stored_of(of) - stored.start)));
        }
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => {
                let (row, of) = (rows.start + at / groups.len(), stored_of(groups.start + at % groups.len()));
                let stored = &self.scales;
                let index = match self.packing.is_transposed() {
                    true => of * stored.columns + row,
                    false => row * stored.columns + of,
                };
                let tensor = stored.stored.name.to_owned();
                Err(Error::NotFinite { tensor, index, value: values[at] })
            }
        }
    }

    /// Reads a rectangle into `buffers.values`, row by row.
    pub(super) fn read(
        &self,
        rows: &Range<usize>,
        columns: &Range<usize>,
        buffers: &mut PackedBuffers,
    ) -> Result<(), Error> {
        let PackedBuffers { raw, numbers, zeros, scales, wide, values, .. } = buffers;
        let width = columns.len();
        values.clear();
        values.resize(rows.len() * width, 0.0);
        self.read_numbers(rows, columns, raw, numbers)?;
        let groups = match &self.order {
            Some(_) => 0..self.inputs.div_ceil(self.group()),
            None => columns.start / self.group()..columns.end.div_ceil(self.group()),
        };
        self.read_scales(rows, &groups, raw, wide, scales)?;
        self.read_zeros(rows, &groups, raw, zeros)?;
        let group_of = |column: usize| match &self.order {
            Some(order) => order[column] - groups.start,
            None => column / self.group() - groups.start,
        };
        let (count, is_fp8) = (groups.len(), matches!(self.packing, Packing::Fp8 { .. }));
        for row in 0..rows.len() {
            let (numbers, values) = (&numbers[row * width..][..width], &mut values[row * width..][..width]);
            let (scales, zeros) = (&scales[row * count..][..count], zeros.get(row * count..));
            let mut at = 0;
            while at < width {
                let column = columns.start + at;
                let group = group_of(column);
                let length = match &self.order {
                    Some(order) => order[column..columns.end]
                        .iter()
                        .position(|of| *of != order[column])
                        .unwrap_or(columns.end - column),
                    None => (self.group() - column % self.group()).min(width - at),
                };
                let scale = scales[group];
                let pairs = values[at..at + length].iter_mut().zip(&numbers[at..]);
                if is_fp8 {
                    pairs.for_each(|(value, number)| *value = E4M3[usize::from(*number)] * scale);
                } else {
                    let zero = zeros.and_then(|zeros| zeros.get(group)).copied().unwrap_or(MIDDLE);
                    let zero = f32::from(zero);
                    pairs.for_each(|(value, number)| *value = (f32::from(*number) - zero) * scale);
                }
                at += length;
            }
        }
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => {
                let index = (rows.start + at / width) * self.inputs + columns.start + at % width;
                let tensor = self.numbers.stored.name.to_owned();
                Err(Error::NotFinite { tensor, index, value: values[at] })
            }
        }
    }

    /// Returns the error for a weight that does not fit the type `to`.
    pub(super) fn overflow(&self, value: f32, to: DType) -> Error {
        Error::Overflow { tensor: self.numbers.stored.name.to_owned(), value, to }
    }

    /// Reads the numbers of a rectangle, one per byte, row by row.
    fn read_numbers(
        &self,
        rows: &Range<usize>,
        columns: &Range<usize>,
        raw: &mut Vec<u8>,
        numbers: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let width = columns.len();
        let numbers = at_least(numbers, rows.len() * width);
        match self.packing {
            Packing::Fp8 { .. } => self.numbers.read(rows, columns, raw, |at, bytes| {
                numbers[at * width..][..width].copy_from_slice(bytes);
            }),
            Packing::Rows { .. } => {
                let (words, first) = (words(columns), columns.start / WORD * WORD);
                self.numbers.read(rows, &words, raw, |at, bytes| {
                    for (number, column) in numbers[at * width..][..width].iter_mut().zip(columns.clone()) {
                        *number = half_byte(bytes, column - first);
                    }
                })
            }
            Packing::Gptq { .. } => {
                let words = words(columns);
                self.numbers.read(&words, rows, raw, |at, bytes| {
                    let first = (words.start + at) * WORD;
                    let inside = first.max(columns.start)..(first + WORD).min(columns.end);
                    for (row, word) in bytes.as_chunks::<WORD_BYTES>().0.iter().enumerate() {
                        let numbers = &mut numbers[row * width + inside.start - columns.start..];
                        for (number, column) in numbers.iter_mut().zip(inside.clone()) {
                            *number = half_byte(word, column - first);
                        }
                    }
                })
            }
            Packing::Awq { .. } => {
                let (words, first) = (words(rows), rows.start / WORD * WORD);
                self.numbers.read(columns, &words, raw, |at, bytes| {
                    for (row, output) in rows.clone().enumerate() {
                        numbers[row * width + at] = half_byte(bytes, awq_place(output - first));
                    }
                })
            }
        }
    }

    /// Reads the scales of rows and groups, row by row.
    fn read_scales(
        &self,
        rows: &Range<usize>,
        groups: &Range<usize>,
        raw: &mut Vec<u8>,
        wide: &mut Vec<u8>,
        scales: &mut Vec<f32>,
    ) -> Result<(), Error> {
        let count = groups.len();
        scales.clear();
        scales.resize(rows.len() * count, 0.0);
        let dtype = self.scales.stored.dtype;
        let mut decode = |bytes: &[u8], put: &mut dyn FnMut(usize, f32)| {
            let wide = at_least(wide, bytes.len() / dtype.size_bytes() * 4);
            // A conversion to f32 has no overflow.
            if convert::convert(dtype, DType::F32, bytes, wide).is_ok() {
                let floats = wide.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
                floats.enumerate().for_each(|(at, scale)| put(at, scale));
            }
        };
        match self.packing {
            Packing::Rows { .. } => self.scales.read(rows, groups, raw, |row, bytes| {
                decode(bytes, &mut |at, scale| scales[row * count + at] = scale);
            }),
            Packing::Gptq { .. } | Packing::Awq { .. } => {
                self.scales.read(groups, rows, raw, |group, bytes| {
                    decode(bytes, &mut |at, scale| scales[at * count + group] = scale);
                })
            }
            Packing::Fp8 { block: [height, _] } => {
                let blocks = rows.start / height..rows.end.div_ceil(height);
                self.scales.read(&blocks, groups, raw, |at, bytes| {
                    let first = (blocks.start + at) * height;
                    let inside = first.max(rows.start)..(first + height).min(rows.end);
                    decode(bytes, &mut |group, scale| {
                        for row in inside.clone() {
                            scales[(row - rows.start) * count + group] = scale;
                        }
                    });
                })
            }
        }
    }

    /// Reads the zero points of rows and groups, row by row. Without zero points, `zeros` is empty.
    fn read_zeros(
        &self,
        rows: &Range<usize>,
        groups: &Range<usize>,
        raw: &mut Vec<u8>,
        zeros: &mut Vec<u8>,
    ) -> Result<(), Error> {
        zeros.clear();
        let Some(stored) = &self.zeros else { return Ok(()) };
        let count = groups.len();
        zeros.resize(rows.len() * count, 0);
        let words = words(rows);
        match self.packing {
            // Words are along the outputs.
            Packing::Rows { .. } => stored.read(&words, groups, raw, |at, bytes| {
                let first = (words.start + at) * WORD;
                for row in first.max(rows.start)..(first + WORD).min(rows.end) {
                    for (group, word) in bytes.as_chunks::<WORD_BYTES>().0.iter().enumerate() {
                        zeros[(row - rows.start) * count + group] = half_byte(word, row - first);
                    }
                }
            }),
            Packing::Gptq { .. } | Packing::Awq { .. } | Packing::Fp8 { .. } => {
                let first = words.start * WORD;
                let (is_awq, added) = match self.packing {
                    Packing::Gptq { added, .. } => (false, added),
                    _ => (true, 0),
                };
                stored.read(groups, &words, raw, |group, bytes| {
                    for (at, row) in rows.clone().enumerate() {
                        let place = row - first;
                        let place = if is_awq { awq_place(place) } else { place };
                        zeros[at * count + group] = half_byte(bytes, place) + added;
                    }
                })
            }
        }
    }
}

impl Matrix<'_> {
    /// Reads a rectangle, and passes each row of it with the number of rows before it. Rows with
    /// gaps smaller than a page are read together.
    fn read(
        &self,
        rows: &Range<usize>,
        columns: &Range<usize>,
        raw: &mut Vec<u8>,
        mut give: impl FnMut(usize, &[u8]),
    ) -> Result<(), Error> {
        if rows.is_empty() || columns.is_empty() {
            return Ok(());
        }
        let size = self.stored.dtype.size_bytes();
        let (stride, length) = (self.columns * size, columns.len() * size);
        let at_once = if stride - length < page_size() { rows.len() } else { 1 };
        for first in rows.clone().step_by(at_once) {
            let bytes = at_least(raw, (at_once - 1) * stride + length);
            self.stored.read_bytes(first * stride + columns.start * size, bytes)?;
            for (at, row) in bytes.chunks(stride.max(1)).enumerate().take(at_once) {
                give(first - rows.start + at, &row[..length]);
            }
        }
        Ok(())
    }
}

/// Returns the words of a range of numbers.
const fn words(numbers: &Range<usize>) -> Range<usize> {
    numbers.start / WORD..numbers.end.div_ceil(WORD)
}

/// Returns the number of 4 bits at a place in words, from the lowest bits on.
const fn half_byte(words: &[u8], place: usize) -> u8 {
    let byte = words[place / 2];
    if place.is_multiple_of(2) { byte & 15 } else { byte >> 4 }
}

/// Returns the place of an output in words of AWQ.
const fn awq_place(output: usize) -> usize {
    output / WORD * WORD + AWQ_PLACES[output % WORD]
}

/// Values of floats with 4 bits of exponent, 3 bits of mantissa and no infinity.
static E4M3: [f32; 256] = {
    let (mut values, mut bits) = ([0.0; 256], 0_u8);
    loop {
        values[bits as usize] = e4m3(bits);
        if bits == u8::MAX {
            break values;
        }
        bits += 1;
    }
};

const fn e4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = ((bits >> 3 & 15) as u32, (bits & 7) as f32);
    let size = match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * f32::from_bits((exponent + 120) << 23),
    };
    if bits & 128 == 0 { size } else { -size }
}

/// Reads the group of each input.
fn groups_of_inputs(stored: &Stored<'_>, groups: usize) -> Result<Vec<usize>, Error> {
    let mut bytes = vec![0; stored.elems * 4];
    stored.read_bytes(0, &mut bytes)?;
    let groups_of = bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes));
    let group = |(input, group): (usize, i32)| {
        usize::try_from(group).ok().filter(|group| *group < groups).ok_or_else(|| Error::Source {
            tensor: stored.name.to_owned(),
            reason: format!("input {input} has group {group}, and there are {groups} groups"),
        })
    };
    groups_of.enumerate().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_e4m3_is_exact() {
        for bits in 0..=255_u8 {
            let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
            let size = match exponent {
                0 => mantissa / 8.0 * 2f64.powi(-6),
                _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
            };
            let expected = if bits & 128 == 0 { size } else { -size };
            let found = f64::from(E4M3[usize::from(bits)]);
            assert!(found == expected || bits & 127 == 127 && found.is_nan(), "{bits}: {found}");
        }
        assert_eq!((E4M3[0x7e], E4M3[0x01]), (448.0, 2f32.powi(-9)));
    }

    #[test]
    fn words_of_awq_have_even_outputs_first() {
        let word = [0x10, 0x32, 0x54, 0x76];
        let outputs: Vec<u8> = (0..8).map(|output| half_byte(&word, awq_place(output))).collect();
        // The number at a place is the place. Places have outputs 0, 2, 4, 6, 1, 3, 5, 7.
        assert_eq!(outputs, [0, 4, 1, 5, 2, 6, 3, 7]);
        assert_eq!((0..8).map(|place| half_byte(&word, place)).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
