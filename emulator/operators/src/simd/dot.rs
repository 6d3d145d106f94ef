//! Products of a few vectors with matrix rows that are read once, in device memory.
//!
//! Invariants: a sum has the same bits as in [`super::block`], for any number of rows and vectors.
//! The bf16 pair instruction treats denormals as zero.
//!
//! Each register quarter is transposed to hold one word of each row; its sums are one part of a
//! [`RUN`].
#![expect(unsafe_code, reason = "vector instructions over the memory of a card")]

use half::{bf16, f16};

use super::block::{PARTS, QUAD, RUN};
use super::rates::{Cache, prefetch};
use crate::dtype::AclType;
use crate::raw::Rows;
use crate::simd::isa::Isa;

/// Vectors per pass over the rows.
pub(crate) const MOST_VECTORS: usize = 8;
/// Vectors are padded with zeros to a multiple.
pub(crate) const PADDING: usize = 32;
/// Quads of rows per step. Row strides are often powers of two, so rows share one set of a
/// first-level cache. With more quads, lines would be evicted before use.
const QUADS: usize = 2;
/// Fewer rows cost as much.
pub(crate) const ROWS: usize = QUADS * QUAD;
/// Bytes of a row that are prefetched together. Few long pieces arrive sooner than single lines of
/// all rows.
const PIECE_BYTES: usize = 512;
/// Pieces between the read and the prefetch position.
const PIECES_AHEAD: usize = 2;
/// Size of a line and of the widest kernel step.
const LINE_BYTES: usize = 64;
/// One quad of each part.
const STEP_WORDS: usize = QUAD * PARTS;

/// Type of rows that are read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowElement {
    Single,
    Half,
    Brain,
}

impl RowElement {
    pub(crate) const fn of(dtype: AclType) -> Option<Self> {
        match dtype {
            AclType::F32 => Some(Self::Single),
            AclType::F16 => Some(Self::Half),
            AclType::BF16 => Some(Self::Brain),
            _ => None,
        }
    }

    pub(crate) const fn size(self) -> usize {
        match self {
            Self::Single => size_of::<f32>(),
            Self::Half | Self::Brain => size_of::<u16>(),
        }
    }
}

/// Contiguous, each padded with zeros to a multiple of [`PADDING`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Vectors<'a> {
    Singles(&'a [f32]),
    /// Bits of bf16, for bf16 pairs.
    Pairs(&'a [u16]),
}

/// Arguments: first row, row stride in bytes, row count and length, vectors, sums grouped by
/// vector.
type DotKernel<T> = unsafe fn(*const u8, isize, usize, usize, &[T], &mut [f32]);

/// Ahead of the rows in use: one piece of each row, then the next pieces, then the rows that
/// follow. The target is the second-level cache, because the first would evict data before use.
struct Prefetch {
    first: *const u8,
    stride: isize,
    row_bytes: usize,
    /// Start of the piece in its row, and its lines.
    start: usize,
    lines: usize,
    row: usize,
    line: usize,
}

impl Prefetch {
    #[inline(always)]
    fn of(first: *const u8, stride: isize, row_bytes: usize) -> Self {
        let mut ahead = Self { first, stride, row_bytes, start: 0, lines: 0, row: 0, line: 0 };
        for _ in 0..PIECES_AHEAD {
            ahead.next_piece();
        }
        ahead
    }

    #[inline(always)]
    fn next_piece(&mut self) {
        self.start += PIECE_BYTES;
        if self.start >= self.row_bytes {
            self.start = 0;
            self.first = self.first.wrapping_offset(ROWS as isize * self.stride);
        }
        self.lines = (self.row_bytes - self.start).min(PIECE_BYTES).div_ceil(LINE_BYTES);
    }

    #[inline(always)]
    fn ask(&mut self, lines: usize) {
        for _ in 0..lines {
            let row = self.first.wrapping_offset(self.row as isize * self.stride);
            prefetch(Cache::Second, row.wrapping_add(self.start + self.line * LINE_BYTES));
            self.line += 1;
            if self.line == self.lines {
                (self.line, self.row) = (0, self.row + 1);
            }
            if self.row == ROWS {
                self.row = 0;
                self.next_piece();
            }
        }
    }
}

pub(crate) fn prefetch_rows(rows: &Rows<'_>) {
    for row in 0..rows.count() {
        for line in (0..rows.bytes()).step_by(LINE_BYTES) {
            prefetch(Cache::First, rows.row(row).wrapping_add(line));
        }
    }
}

/// `sums[v * rows + r]` is the dot product of row `r` and vector `v`.
pub(crate) fn dots(isa: Isa, element: RowElement, rows: &Rows<'_>, vectors: Vectors<'_>, sums: &mut [f32]) {
    match vectors {
        Vectors::Singles(values) => {
            run(singles(isa, element, sums.len() / rows.count()), element, rows, values, sums);
        }
        Vectors::Pairs(values) => {
            assert!(
                element == RowElement::Brain && isa == Isa::Avx512Bf16,
                "pairs of bf16 with {element:?} on {isa}"
            );
            run(pairs(sums.len() / rows.count()), element, rows, values, sums);
        }
    }
}

fn run<T>(kernel: DotKernel<T>, element: RowElement, rows: &Rows<'_>, vectors: &[T], sums: &mut [f32]) {
    let count = sums.len() / rows.count();
    let len = rows.bytes() / element.size();
    assert!(
        (1..=MOST_VECTORS).contains(&count) && vectors.len() == count * len.next_multiple_of(PADDING),
        "{} elements for {count} vectors of {len}",
        vectors.len()
    );
    // SAFETY: the instruction set is in use; `Rows` guarantees `len` elements per row; the vector
    // lengths were checked.
    unsafe { kernel(rows.row(0), rows.stride(), rows.count(), len, vectors, sums) };
}

macro_rules! by_count {
    ($count:expr, $kernel:path) => {{
        use $kernel as kernel;
        match $count {
            1 => kernel::<1>,
            2 => kernel::<2>,
            3 => kernel::<3>,
            4 => kernel::<4>,
            5 => kernel::<5>,
            6 => kernel::<6>,
            7 => kernel::<7>,
            8 => kernel::<8>,
            count => panic!("{count} vectors"),
        }
    }};
}

fn singles(isa: Isa, element: RowElement, count: usize) -> DotKernel<f32> {
    match (isa, element) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512 | Isa::Avx512Bf16, RowElement::Single) => by_count!(count, x86::single_avx512),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512 | Isa::Avx512Bf16, RowElement::Half) => by_count!(count, x86::half_avx512),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512 | Isa::Avx512Bf16, RowElement::Brain) => by_count!(count, x86::brain_avx512),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, RowElement::Single) => by_count!(count, x86::single_avx2),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, RowElement::Half) => by_count!(count, x86::half_avx2),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, RowElement::Brain) => by_count!(count, x86::brain_avx2),
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, RowElement::Single) => by_count!(count, aarch64::single_neon),
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, RowElement::Half) => by_count!(count, aarch64::half_neon),
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, RowElement::Brain) => by_count!(count, aarch64::brain_neon),
        (_, RowElement::Single) => by_count!(count, portable::single),
        (_, RowElement::Half) => by_count!(count, portable::half),
        (_, RowElement::Brain) => by_count!(count, portable::brain),
    }
}

fn pairs(count: usize) -> DotKernel<u16> {
    #[cfg(target_arch = "x86_64")]
    return by_count!(count, x86::pairs_avx512);
    #[cfg(not(target_arch = "x86_64"))]
    panic!("{count} vectors of pairs, for which this processor has no instruction");
}

fn store<const VECTORS: usize>(
    totals: &[[[f32; QUAD]; VECTORS]; QUADS],
    first: usize,
    count: usize,
    sums: &mut [f32],
) {
    for (quad, totals) in totals.iter().enumerate() {
        let first = first + quad * QUAD;
        let rows = QUAD.min(count.saturating_sub(first));
        for (total, sums) in
            totals.iter().zip(sums.chunks_exact_mut(count)).take(if rows > 0 { VECTORS } else { 0 })
        {
            sums[first..first + rows].copy_from_slice(&total[..rows]);
        }
    }
}

/// For elements of `$size` bytes, `$depth` per word. A row has `$registers` registers per step,
/// which `$load` reads one by one. `$turn` transposes the registers of four rows. `$spread` repeats
/// each word of a vector's quad four times.
macro_rules! kernel {
    (
        $(#[$target:meta])* $name:ident($t:ty, $size:literal bytes, $depth:literal deep, $registers:literal registers):
        $zero:expr, $load:expr, $load_vector:expr, $turn:expr, $spread:expr, $multiply:expr, $numbers:expr
    ) => {
        /// # Safety
        ///
        /// `count` rows of `len` elements are readable, every vector is padded, and the
        /// instructions are available.
        $(#[$target])*
        pub(super) unsafe fn $name<const VECTORS: usize>(
            start: *const u8,
            row_stride: isize,
            count: usize,
            len: usize,
            vectors: &[$t],
            sums: &mut [f32],
        ) {
            const STEP: usize = STEP_WORDS * $depth;
            const ROWS_OF_REGISTER: usize = STEP_WORDS / $registers;
            let stride = len.next_multiple_of(super::PADDING);
            for first in (0..count).step_by(QUADS * QUAD) {
                // Missing rows repeat the last row.
                let row = |at: usize| start.wrapping_offset((first + at).min(count - 1) as isize * row_stride);
                let rows: [[*const u8; QUAD]; QUADS] =
                    std::array::from_fn(|quad| std::array::from_fn(|at| row(quad * QUAD + at)));
                let mut ahead = super::Prefetch::of(rows[0][0], row_stride, len * $size);
                let mut totals = [[[0_f32; QUAD]; VECTORS]; QUADS];
                for run in (0..len).step_by(super::RUN * $depth) {
                    let past = len.min(run + super::RUN * $depth);
                    let mut sums = [[[$zero; $registers]; VECTORS]; QUADS];
                    let mut add = |rows: &[[*const u8; QUAD]; QUADS], offset: usize, at: usize| {
                        for register in 0..$registers {
                            let mut columns = [[$zero; QUAD]; QUADS];
                            for (columns, rows) in columns.iter_mut().zip(rows) {
                                let mut lines = [$zero; QUAD];
                                for (line, row) in lines.iter_mut().zip(rows) {
                                    // SAFETY: a step before the end of the row.
                                    *line = unsafe { $load(row.wrapping_add(offset), register) };
                                }
                                *columns = $turn(lines);
                            }
                            for vector in 0..VECTORS {
                                let words = vectors.as_ptr().wrapping_add(vector * stride + at);
                                // SAFETY: a step before the end of the padded vector.
                                let words = $spread(unsafe { $load_vector(words, register) });
                                for (sums, columns) in sums.iter_mut().zip(&columns) {
                                    let sum = &mut sums[vector][register];
                                    for (word, column) in words.iter().zip(columns) {
                                        *sum = $multiply(*word, *column, *sum);
                                    }
                                }
                            }
                        }
                    };
                    let mut at = run;
                    while at + STEP <= past {
                        // As much as is read.
                        ahead.ask(super::ROWS * STEP * $size / super::LINE_BYTES);
                        add(&rows, at * $size, at);
                        at += STEP;
                    }
                    if at < past {
                        let mut padded = [[[0_u8; super::LINE_BYTES]; QUAD]; QUADS];
                        for (padded, row) in padded.as_flattened_mut().iter_mut().zip(rows.as_flattened()) {
                            // SAFETY: the rest of the row, less than one step.
                            unsafe {
                                std::ptr::copy_nonoverlapping(
                                    row.wrapping_add(at * $size),
                                    padded.as_mut_ptr(),
                                    (past - at) * $size,
                                );
                            }
                        }
                        add(&padded.each_ref().map(|quad| quad.each_ref().map(|row| row.as_ptr())), 0, at);
                    }
                    for (totals, sums) in totals.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
                        for register in sums {
                            let numbers: [f32; ROWS_OF_REGISTER] = $numbers(*register);
                            for part in numbers.chunks_exact(QUAD) {
                                totals.iter_mut().zip(part).for_each(|(total, sum)| *total += sum);
                            }
                        }
                    }
                }
                super::store(&totals, first, count, sums);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m512, __m512bh, _mm_loadu_si128, _mm256_castpd_ps, _mm256_castps_pd, _mm256_castsi256_ps,
        _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
        _mm256_permute_ps, _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm256_unpackhi_pd,
        _mm256_unpackhi_ps, _mm256_unpacklo_pd, _mm256_unpacklo_ps, _mm512_castpd_ps, _mm512_castps_pd,
        _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_dpbf16_ps, _mm512_fmadd_ps,
        _mm512_loadu_ps, _mm512_permute_ps, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_storeu_ps,
        _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
    };

    use super::{QUAD, QUADS, STEP_WORDS};

    /// Transposition, spreading and storing for one register size.
    macro_rules! registers {
        (
            $target:literal, $register:ty, $lanes:literal: $turn:ident, $spread:ident, $numbers:ident,
            $low:ident, $high:ident, $low_two:ident, $high_two:ident, $as_two:ident, $as_one:ident, $permute:ident, $store:ident
        ) => {
            /// First pairs of rows by words, then pairs of pairs by two words.
            #[inline]
            #[target_feature(enable = $target)]
            fn $turn(rows: [$register; QUAD]) -> [$register; QUAD] {
                let [a, b, c, d] = rows;
                let (ab_low, ab_high) = ($as_two($low(a, b)), $as_two($high(a, b)));
                let (cd_low, cd_high) = ($as_two($low(c, d)), $as_two($high(c, d)));
                [
                    $as_one($low_two(ab_low, cd_low)),
                    $as_one($high_two(ab_low, cd_low)),
                    $as_one($low_two(ab_high, cd_high)),
                    $as_one($high_two(ab_high, cd_high)),
                ]
            }

            /// Each word of a quad, four times.
            #[inline]
            #[target_feature(enable = $target)]
            fn $spread(words: $register) -> [$register; QUAD] {
                [
                    $permute::<0x00>(words),
                    $permute::<0x55>(words),
                    $permute::<0xaa>(words),
                    $permute::<0xff>(words),
                ]
            }

            #[inline]
            #[target_feature(enable = $target)]
            fn $numbers(register: $register) -> [f32; $lanes] {
                let mut numbers = [0.0; $lanes];
                // SAFETY: the array holds as many numbers as the register.
                unsafe { $store(numbers.as_mut_ptr(), register) };
                numbers
            }
        };
    }
    registers!(
        "avx512f", __m512, 16: turn_512, spread_512, numbers_512, _mm512_unpacklo_ps, _mm512_unpackhi_ps, _mm512_unpacklo_pd,
        _mm512_unpackhi_pd, _mm512_castps_pd, _mm512_castpd_ps, _mm512_permute_ps, _mm512_storeu_ps
    );
    registers!(
        "avx2", __m256, 8: turn_256, spread_256, numbers_256, _mm256_unpacklo_ps, _mm256_unpackhi_ps, _mm256_unpacklo_pd,
        _mm256_unpackhi_pd, _mm256_castps_pd, _mm256_castpd_ps, _mm256_permute_ps, _mm256_storeu_ps
    );

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn bits(pairs: __m512) -> __m512bh {
        // SAFETY: registers of one size; any bits are bf16.
        unsafe { std::mem::transmute(pairs) }
    }

    kernel!(
        #[target_feature(enable = "avx512f,avx512bf16")]
        pairs_avx512(u16, 2 bytes, 2 deep, 1 registers):
        _mm512_setzero_ps(), |row: *const u8, _| _mm512_loadu_ps(row.cast()), |at: *const u16, _| _mm512_loadu_ps(at.cast()),
        turn_512, spread_512, |word, column, sum| _mm512_dpbf16_ps(sum, bits(word), bits(column)), numbers_512
    );
    kernel!(
        #[target_feature(enable = "avx512f")]
        single_avx512(f32, 4 bytes, 1 deep, 1 registers):
        _mm512_setzero_ps(), |row: *const u8, _| _mm512_loadu_ps(row.cast()), |at: *const f32, _| _mm512_loadu_ps(at),
        turn_512, spread_512, |word, column, sum| _mm512_fmadd_ps(word, column, sum), numbers_512
    );
    kernel!(
        #[target_feature(enable = "avx512f")]
        half_avx512(f32, 2 bytes, 1 deep, 1 registers):
        _mm512_setzero_ps(), |row: *const u8, _| _mm512_cvtph_ps(_mm256_loadu_si256(row.cast())),
        |at: *const f32, _| _mm512_loadu_ps(at), turn_512, spread_512,
        |word, column, sum| _mm512_fmadd_ps(word, column, sum), numbers_512
    );
    kernel!(
        #[target_feature(enable = "avx512f")]
        brain_avx512(f32, 2 bytes, 1 deep, 1 registers):
        _mm512_setzero_ps(),
        |row: *const u8, _| {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(row.cast()))))
        },
        |at: *const f32, _| _mm512_loadu_ps(at), turn_512, spread_512,
        |word, column, sum| _mm512_fmadd_ps(word, column, sum), numbers_512
    );
    kernel!(
        #[target_feature(enable = "avx2,fma")]
        single_avx2(f32, 4 bytes, 1 deep, 2 registers):
        _mm256_setzero_ps(), |row: *const u8, register: usize| _mm256_loadu_ps(row.wrapping_add(32 * register).cast()),
        |at: *const f32, register: usize| _mm256_loadu_ps(at.wrapping_add(8 * register)), turn_256, spread_256,
        |word, column, sum| _mm256_fmadd_ps(word, column, sum), numbers_256
    );
    kernel!(
        #[target_feature(enable = "avx2,fma,f16c")]
        half_avx2(f32, 2 bytes, 1 deep, 2 registers):
        _mm256_setzero_ps(),
        |row: *const u8, register: usize| _mm256_cvtph_ps(_mm_loadu_si128(row.wrapping_add(16 * register).cast())),
        |at: *const f32, register: usize| _mm256_loadu_ps(at.wrapping_add(8 * register)), turn_256, spread_256,
        |word, column, sum| _mm256_fmadd_ps(word, column, sum), numbers_256
    );
    kernel!(
        #[target_feature(enable = "avx2,fma")]
        brain_avx2(f32, 2 bytes, 1 deep, 2 registers):
        _mm256_setzero_ps(),
        |row: *const u8, register: usize| {
            let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(row.wrapping_add(16 * register).cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
        },
        |at: *const f32, register: usize| _mm256_loadu_ps(at.wrapping_add(8 * register)), turn_256, spread_256,
        |word, column, sum| _mm256_fmadd_ps(word, column, sum), numbers_256
    );
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::aarch64::{
        float32x4_t, uint16x4_t, vdupq_laneq_f32, vdupq_n_f32, vfmaq_f32, vld1_u8, vld1q_f32, vld1q_u8,
        vreinterpret_u16_u8, vreinterpretq_f32_u8, vreinterpretq_f32_u32, vshll_n_u16, vst1q_f32,
    };
    use std::arch::asm;

    use super::{QUAD, QUADS, STEP_WORDS};
    use crate::simd::transpose::aarch64::turned;

    #[inline]
    #[target_feature(enable = "neon")]
    fn zero() -> float32x4_t {
        vdupq_n_f32(0.0)
    }

    /// Each word of a quad, four times.
    #[inline]
    #[target_feature(enable = "neon")]
    fn spread(words: float32x4_t) -> [float32x4_t; QUAD] {
        [
            vdupq_laneq_f32::<0>(words),
            vdupq_laneq_f32::<1>(words),
            vdupq_laneq_f32::<2>(words),
            vdupq_laneq_f32::<3>(words),
        ]
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn numbers(register: float32x4_t) -> [f32; QUAD] {
        let mut numbers = [0.0; QUAD];
        // SAFETY: the array holds as many numbers as the register.
        unsafe { vst1q_f32(numbers.as_mut_ptr(), register) };
        numbers
    }

    /// Rust 1.90 has no function for this instruction.
    #[inline]
    #[target_feature(enable = "neon")]
    fn widen(halves: uint16x4_t) -> float32x4_t {
        let wide: float32x4_t;
        // SAFETY: accesses only the named registers.
        unsafe {
            asm!(
                "fcvtl {wide:v}.4s, {halves:v}.4h",
                wide = lateout(vreg) wide,
                halves = in(vreg) halves,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        wide
    }

    kernel!(
        #[target_feature(enable = "neon")]
        single_neon(f32, 4 bytes, 1 deep, 4 registers):
        zero(), |row: *const u8, register: usize| vreinterpretq_f32_u8(vld1q_u8(row.wrapping_add(16 * register))),
        |at: *const f32, register: usize| vld1q_f32(at.wrapping_add(4 * register)), turned, spread,
        |word, column, sum| vfmaq_f32(sum, word, column), numbers
    );
    kernel!(
        #[target_feature(enable = "neon")]
        half_neon(f32, 2 bytes, 1 deep, 4 registers):
        zero(), |row: *const u8, register: usize| widen(vreinterpret_u16_u8(vld1_u8(row.wrapping_add(8 * register)))),
        |at: *const f32, register: usize| vld1q_f32(at.wrapping_add(4 * register)), turned, spread,
        |word, column, sum| vfmaq_f32(sum, word, column), numbers
    );
    kernel!(
        #[target_feature(enable = "neon")]
        brain_neon(f32, 2 bytes, 1 deep, 4 registers):
        zero(),
        |row: *const u8, register: usize| {
            vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(vld1_u8(row.wrapping_add(8 * register)))))
        },
        |at: *const f32, register: usize| vld1q_f32(at.wrapping_add(4 * register)), turned, spread,
        |word, column, sum| vfmaq_f32(sum, word, column), numbers
    );
}

mod portable {
    use super::{QUAD, QUADS, STEP_WORDS, bf16, f16};

    type Quad = [f32; QUAD];

    /// # Safety
    ///
    /// The quad is readable at `row`.
    #[inline(always)]
    unsafe fn quad<T: Copy>(row: *const u8, register: usize, widen: impl Fn(T) -> f32) -> Quad {
        // SAFETY: the caller guarantees that the quad is readable.
        unsafe { row.cast::<[T; QUAD]>().wrapping_add(register).read_unaligned() }.map(widen)
    }

    fn turn(rows: [Quad; QUAD]) -> [Quad; QUAD] {
        std::array::from_fn(|place| rows.map(|row| row[place]))
    }

    fn spread(words: Quad) -> [Quad; QUAD] {
        words.map(|word| [word; QUAD])
    }

    fn multiply(word: Quad, column: Quad, sum: Quad) -> Quad {
        std::array::from_fn(|lane| sum[lane] + word[lane] * column[lane])
    }

    kernel!(
        single(f32, 4 bytes, 1 deep, 4 registers):
        [0_f32; QUAD], |row, register| quad::<f32>(row, register, |value| value),
        |at: *const f32, register| quad::<f32>(at.cast(), register, |value| value), turn, spread, multiply, |sum| sum
    );
    kernel!(
        half(f32, 2 bytes, 1 deep, 4 registers):
        [0_f32; QUAD], |row, register| quad(row, register, |bits| f16::from_bits(bits).to_f32()),
        |at: *const f32, register| quad::<f32>(at.cast(), register, |value| value), turn, spread, multiply, |sum| sum
    );
    kernel!(
        brain(f32, 2 bytes, 1 deep, 4 registers):
        [0_f32; QUAD], |row, register| quad(row, register, |bits| bf16::from_bits(bits).to_f32()),
        |at: *const f32, register| quad::<f32>(at.cast(), register, |value| value), turn, spread, multiply, |sum| sum
    );
}
