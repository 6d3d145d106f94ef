//! Packing with AVX-512.
#![expect(unsafe_code, reason = "vector instructions over the memory of a card")]

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_loadu_si256, _mm256_maskz_loadu_epi16, _mm512_and_si512, _mm512_castps_si512,
    _mm512_cmpge_epu16_mask, _mm512_cmplt_epu16_mask, _mm512_cvtepu16_epi32, _mm512_cvtph_ps,
    _mm512_loadu_si512, _mm512_maskz_loadu_epi16, _mm512_max_epu16, _mm512_min_epu16, _mm512_set1_epi16,
    _mm512_setzero_si512, _mm512_slli_epi32, _mm512_storeu_si512, _mm512_sub_epi16,
};

use std::marker::PhantomData;

use super::source::{PLAIN, PackSource, is_possible};
use crate::raw::{Pod, Rows};
use crate::simd::isa::Isa;
use crate::simd::transpose::x86::words_512;
use crate::simd::transpose::{SIDE, WIDTH};

/// Packs blocks of [`SIDE`] rows and words, one by one.
#[derive(Debug)]
pub(crate) struct SlabPacking<'a> {
    start: *const u8,
    stride: isize,
    count: usize,
    bytes: usize,
    slab: *mut u32,
    /// First row of the next block, and its byte in the row.
    group: usize,
    at: usize,
    step: unsafe fn(&mut SlabPacking<'_>),
    is_plain: bool,
    memory: PhantomData<(Rows<'a>, &'a mut [u32])>,
}

impl<'a> SlabPacking<'a> {
    /// Packs up to [`WIDTH`] rows. The words of a row are padded with zeros to a multiple of
    /// [`SIDE`]; the columns of missing rows are undefined.
    pub(crate) fn new<T: Pod>(isa: Isa, source: PackSource, rows: &Rows<'a>, slab: &'a mut [T]) -> Self {
        let words = rows.bytes().div_ceil(source.word_bytes()).next_multiple_of(SIDE);
        assert!(
            is_possible(isa)
                && rows.count() <= WIDTH
                && rows.bytes().is_multiple_of(2)
                && size_of_val(slab) >= words * WIDTH * size_of::<u32>(),
            "{} rows of {} bytes on {isa} into {} bytes",
            rows.count(),
            rows.bytes(),
            size_of_val(slab)
        );
        Self {
            start: rows.row(0),
            stride: rows.stride(),
            count: rows.count(),
            bytes: rows.bytes(),
            slab: slab.as_mut_ptr().cast(),
            group: 0,
            at: 0,
            step: source.step(),
            is_plain: source == PackSource::Pairs,
            memory: PhantomData,
        }
    }

    #[inline(always)]
    pub(in crate::simd) fn step(&mut self) {
        if self.group < self.count {
            // SAFETY: `Rows` guarantees the bytes of each row; the length of the slab and the
            // instruction set were checked.
            unsafe { (self.step)(self) };
        }
    }

    /// Takes the steps that are left, and returns whether all numbers are bf16 and zero or plain
    /// ([`is_plain`]).
    pub(crate) fn finish(&mut self) -> bool {
        while self.group < self.count {
            self.step();
        }
        self.is_plain
    }

    /// Moves on by a block of `bytes` and returns its words, [`WIDTH`] apart.
    #[inline(always)]
    fn next_target(&mut self, bytes: usize) -> *mut u32 {
        let target = self.slab.wrapping_add(self.at / bytes * SIDE * WIDTH + self.group);
        self.at += bytes;
        if self.at >= self.bytes {
            self.at = 0;
            self.group += SIDE;
        }
        target
    }
}

impl PackSource {
    const fn word_bytes(self) -> usize {
        match self {
            Self::Singles | Self::Pairs => 4,
            Self::Halves | Self::Brains => 2,
        }
    }

    const fn step(self) -> unsafe fn(&mut SlabPacking<'_>) {
        match self {
            Self::Singles => singles,
            Self::Pairs => pairs,
            Self::Halves => halves,
            Self::Brains => brains,
        }
    }
}

/// A step for rows with `$bytes` bytes per register. `$load` reads a whole register, `$load_some`
/// the given count of 16-bit numbers. `$widen` converts to words.
macro_rules! kernel {
    ($name:ident, $bytes:literal bytes: $load:expr, $load_some:expr, $widen:expr, $are_plain:expr) => {
        /// # Safety
        ///
        /// The rows are readable, the slab holds their padded words, blocks are left, and the
        /// instructions are available.
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        unsafe fn $name(packing: &mut SlabPacking<'_>) {
            let start = packing.start.wrapping_add(packing.at);
            let (last, left) = (packing.count - 1, packing.bytes - packing.at);
            let mut row = start.wrapping_offset(packing.group as isize * packing.stride);
            let mut words = [_mm512_setzero_si512(); SIDE];
            for (place, words) in words.iter_mut().enumerate() {
                let loaded = if left >= $bytes {
                    // SAFETY: a register before the end of the row.
                    unsafe { $load(row) }
                } else {
                    // SAFETY: the rest of the row: no byte behind it is read.
                    unsafe { $load_some(row, left / 2) }
                };
                *words = $widen(loaded);
                if packing.group + place < last {
                    row = row.wrapping_offset(packing.stride);
                }
            }
            packing.is_plain &= $are_plain(&words);
            let target = packing.next_target($bytes);
            for (word, words) in words_512(words).into_iter().enumerate() {
                // SAFETY: within the padded words of the slab.
                unsafe { _mm512_storeu_si512(target.wrapping_add(word * WIDTH).cast(), words) };
            }
        }
    };
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn some_512(at: *const u8, numbers: usize) -> __m512i {
    // SAFETY: the caller guarantees that the numbers are readable; others are masked.
    unsafe { _mm512_maskz_loadu_epi16((1 << numbers) - 1, at.cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn some_256(at: *const u8, numbers: usize) -> __m256i {
    // SAFETY: as in `some_512`.
    unsafe { _mm256_maskz_loadu_epi16((1 << numbers) - 1, at.cast()) }
}

/// Zero or plain, for pairs of bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn are_plain(words: &[__m512i; SIDE]) -> bool {
    let [least, end] = [PLAIN.start, PLAIN.end].map(|bits| _mm512_set1_epi16((bits >> 16) as i16));
    let one = _mm512_set1_epi16(1);
    let (mut lowest, mut highest) = (_mm512_set1_epi16(-1), _mm512_setzero_si512());
    for words in words {
        let size = _mm512_and_si512(*words, _mm512_set1_epi16(i16::MAX));
        highest = _mm512_max_epu16(highest, size);
        // Zero is greatest.
        lowest = _mm512_min_epu16(lowest, _mm512_sub_epi16(size, one));
    }
    let high = _mm512_cmpge_epu16_mask(highest, end);
    let low = _mm512_cmplt_epu16_mask(lowest, _mm512_sub_epi16(least, one));
    high | low == 0
}

kernel!(singles, 64 bytes: |at: *const u8| _mm512_loadu_si512(at.cast()), some_512, |words| words, |_| false);
kernel!(pairs, 64 bytes: |at: *const u8| _mm512_loadu_si512(at.cast()), some_512, |words| words, are_plain);
kernel!(
    halves, 32 bytes: |at: *const u8| _mm256_loadu_si256(at.cast()), some_256,
    |halves| _mm512_castps_si512(_mm512_cvtph_ps(halves)), |_| false
);
kernel!(
    brains, 32 bytes: |at: *const u8| _mm256_loadu_si256(at.cast()), some_256,
    |brains| _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(brains)), |_| false
);

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::simd::pack::is_plain;

    /// Numbers that differ, and are exact in f16 and bf16.
    fn number(row: usize, at: usize) -> f32 {
        ((row * 7 + at * 3) % 251) as f32 / 8.0
    }

    fn slab<T: Pod>(isa: Isa, source: PackSource, values: &[T], [count, len]: [usize; 2]) -> Vec<u32> {
        let words = (len * size_of::<T>()).div_ceil(source.word_bytes());
        let mut slab = vec![u32::MAX; words.next_multiple_of(SIDE) * WIDTH];
        let rows = Rows::in_slice(values, values.len() / count, count, len);
        SlabPacking::new(isa, source, &rows, &mut slab).finish();
        slab
    }

    #[test]
    fn rows_of_any_length_become_columns_of_words() {
        let sets = Isa::ALL.into_iter().filter(|isa| isa.is_available() && is_possible(*isa));
        for (isa, count, len) in sets.flat_map(|isa| {
            [1, 15, 16, 17, WIDTH]
                .into_iter()
                .flat_map(move |count| [1, 2, 15, 16, 17, 31, 32, 33, 100].map(|len| (isa, count, len)))
        }) {
            // Numbers between rows must not be read.
            let rows = |behind: f32| {
                let row = move |row| (0..len).map(move |at| number(row, at)).chain([behind; 3]);
                (0..count).flat_map(row).collect::<Vec<f32>>()
            };
            let singles = rows(f32::NAN);
            let halves: Vec<u16> = singles.iter().map(|value| f16::from_f32(*value).to_bits()).collect();
            let brains: Vec<u16> = singles.iter().map(|value| bf16::from_f32(*value).to_bits()).collect();
            let single = |row, at| if at < len { number(row, at).to_bits() } else { 0 };
            let pair = |row, at| {
                let [first, second] = [2 * at, 2 * at + 1].map(|at| single(row, at) >> 16);
                first | second << 16
            };
            let check = |slab: Vec<u32>, word: &dyn Fn(usize, usize) -> u32, what: PackSource| {
                for (at, words) in slab.chunks_exact(WIDTH).enumerate() {
                    let expected: Vec<u32> = (0..count).map(|row| word(row, at)).collect();
                    assert_eq!(words[..count], expected, "{isa} {what:?} {count} x {len}, word {at}");
                }
            };
            check(slab(isa, PackSource::Singles, &singles, [count, len]), &single, PackSource::Singles);
            check(slab(isa, PackSource::Halves, &halves, [count, len]), &single, PackSource::Halves);
            check(slab(isa, PackSource::Brains, &brains, [count, len]), &single, PackSource::Brains);
            check(slab(isa, PackSource::Pairs, &brains, [count, len]), &pair, PackSource::Pairs);
        }
    }

    #[test]
    fn only_zero_and_numbers_of_ordinary_size_are_plain() {
        let least = 2.0_f32.powi(-56);
        let below = bf16::from_bits(bf16::from_f32(least).to_bits() - 1).to_f32();
        let end = 2.0_f32.powi(56);
        let greatest = bf16::from_bits(bf16::from_f32(end).to_bits() - 1).to_f32();
        let cases = [
            (0.0, true),
            (least, true),
            (greatest, true),
            (below, false),
            (end, false),
            (f32::from_bits(1 << 16), false),
            (f32::INFINITY, false),
            (f32::NAN, false),
        ];
        let sets: Vec<Isa> =
            Isa::ALL.into_iter().filter(|isa| isa.is_available() && is_possible(*isa)).collect();
        for ((value, expected), sign) in cases.into_iter().flat_map(|case| [(case, 1.0), (case, -1.0)]) {
            for at in [0, 1, 30, 38] {
                let mut values = [0.5_f32; 39];
                values[at] = sign * value;
                assert_eq!(is_plain(&values), expected, "{value} at {at}");
                let brains = values.map(|value| bf16::from_f32(value).to_bits());
                let rows = Rows::in_slice(&brains, 13, 3, 13);
                for isa in &sets {
                    let mut slab = [0_u32; SIDE * WIDTH];
                    let found = SlabPacking::new(*isa, PackSource::Pairs, &rows, &mut slab).finish();
                    assert_eq!(found, expected, "{isa}: {value} at {at}");
                }
            }
        }
    }
}
