//! Products of a few vectors with the rows of a matrix that is read once, straight from the memory of a card.
//!
//! Input: [`Rows`] of f32, f16 or bf16 and the vectors, widened to f32 or kept as bf16. Output: a sum for each row and vector.
//! A few rows are read side by side and turned in registers, so that each lane has a row of its own: its sum takes the
//! products one after the other along the row, as those of packed blocks do.
//! Invariants: an element is read once for all vectors; a sum has the bits that [`super::block`] gives it, however many
//! rows and vectors there are. Pairs of bf16 are multiplied by the instruction for them, which takes denormal numbers for
//! zeros.
#![expect(unsafe_code, reason = "vector instructions over the memory of a card")]

use half::{bf16, f16};

use super::block::RUN;
use super::rates::prefetch;
use crate::nn::dtype::DType;
use crate::nn::raw::Rows;
use crate::simd::Isa;

/// The most vectors that share one reading of the rows.
pub(crate) const MOST_VECTORS: usize = 8;
/// Vectors are padded with zeros to a multiple of this many elements.
pub(crate) const PADDING: usize = 32;
/// The most rows that a kernel reads side by side; fewer cost as much.
pub(crate) const LANES: usize = 16;
/// How far ahead of a row's read its lines are asked for. Rows are read side by side, so that together it is some kilobytes.
const AHEAD_BYTES: usize = 512;
/// Bytes that memory gives at once, and of the widest step of a kernel.
const LINE_BYTES: usize = 64;

/// A type that rows of a matrix may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// f32.
    Single,
    /// f16.
    Half,
    /// bf16.
    Brain,
}

impl Element {
    /// As which rows of `dtype` are read in place, if they can be.
    pub(crate) const fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F32 => Some(Self::Single),
            DType::F16 => Some(Self::Half),
            DType::BF16 => Some(Self::Brain),
            _ => None,
        }
    }

    /// Bytes of one.
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::Single => size_of::<f32>(),
            Self::Half | Self::Brain => size_of::<u16>(),
        }
    }
}

/// The vectors that rows are multiplied with, one after the other, each padded with zeros to a multiple of [`PADDING`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Vectors<'a> {
    /// Of f32.
    Singles(&'a [f32]),
    /// The bits of bf16, for an instruction set with products of pairs.
    Pairs(&'a [u16]),
}

/// A kernel for rows: the address of the first, the bytes to the next, how many there are and their length, the vectors, and
/// where the sums go: those of a vector beside each other, the vectors as far apart as there are rows.
type Kernel<T> = unsafe fn(*const u8, isize, (usize, usize), &[T], &mut [f32]);

/// Asks for rows that will be read soon.
pub(crate) fn prefetch_rows(rows: &Rows<'_>) {
    for row in 0..rows.count() {
        for line in (0..rows.bytes()).step_by(LINE_BYTES) {
            prefetch(rows.row(row).wrapping_add(line));
        }
    }
}

/// `sums[v * rows + r]`, the dot product of row `r` and vector `v`.
///
/// # Panics
/// If there are no vectors or too many, they are shorter than the rows, or pairs meet something that is not bf16 or an
/// instruction set without them.
pub(crate) fn dots(isa: Isa, element: Element, rows: &Rows<'_>, vectors: Vectors<'_>, sums: &mut [f32]) {
    match vectors {
        Vectors::Singles(values) => run(singles(isa, element, sums.len() / rows.count()), element, rows, values, sums),
        Vectors::Pairs(values) => {
            assert!(element == Element::Brain && isa == Isa::Avx512Bf16, "pairs of bf16 with {element:?} on {isa}");
            run(pairs(sums.len() / rows.count()), element, rows, values, sums);
        }
    }
}

fn run<T>(kernel: Kernel<T>, element: Element, rows: &Rows<'_>, vectors: &[T], sums: &mut [f32]) {
    let count = sums.len() / rows.count();
    let len = rows.bytes() / element.size();
    assert!(
        (1..=MOST_VECTORS).contains(&count) && vectors.len() == count * len.next_multiple_of(PADDING),
        "{} elements for {count} vectors of {len}",
        vectors.len()
    );
    // SAFETY: the kernel was chosen among those of the instruction set in use; `Rows` vouches for `len` elements of each row;
    // the lengths of the vectors were checked above.
    unsafe { kernel(rows.row(0), rows.stride(), (rows.count(), len), vectors, sums) };
}

/// The kernel for a number of vectors.
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

fn singles(isa: Isa, element: Element, count: usize) -> Kernel<f32> {
    match (isa, element) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512 | Isa::Avx512Bf16, Element::Single) => by_count!(count, x86::single_avx512),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512 | Isa::Avx512Bf16, Element::Half) => by_count!(count, x86::half_avx512),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512 | Isa::Avx512Bf16, Element::Brain) => by_count!(count, x86::brain_avx512),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, Element::Single) => by_count!(count, x86::single_avx2),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, Element::Half) => by_count!(count, x86::half_avx2),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, Element::Brain) => by_count!(count, x86::brain_avx2),
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, Element::Single) => by_count!(count, aarch64::single_neon),
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, Element::Half) => by_count!(count, aarch64::half_neon),
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, Element::Brain) => by_count!(count, aarch64::brain_neon),
        (_, Element::Single) => by_count!(count, portable::single),
        (_, Element::Half) => by_count!(count, portable::half),
        (_, Element::Brain) => by_count!(count, portable::brain),
    }
}

fn pairs(count: usize) -> Kernel<u16> {
    #[cfg(target_arch = "x86_64")]
    return by_count!(count, x86::pairs_avx512);
    #[cfg(not(target_arch = "x86_64"))]
    panic!("{count} vectors of pairs, for which this processor has no instruction");
}

/// `$body` for each of the first `$count` columns of at most 32, written out: columns stay in registers where there is room.
macro_rules! for_columns {
    ($count:expr, |$column:ident| $body:expr) => {
        for_columns!(
            @ $count, $column, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        )
    };
    (@ $count:expr, $column:ident, $body:expr, $($at:literal)*) => {
        $(if $at < $count {
            let $column: usize = $at;
            $body;
        })*
    };
}

/// Defines the kernel of one type and instruction set. A step takes `$columns` columns of `$lanes` rows, `$depth` elements of
/// a vector each; `$turned` reads them from their addresses, and `$column` gives one of them.
macro_rules! kernel {
    (
        $(#[$target:meta])* $name:ident($t:ty, $size:literal bytes, $lanes:literal lanes, $columns:literal columns, $depth:literal deep):
        $zero:expr, $turned:expr, $column:expr, $one:expr, $multiply:expr, $add:expr, $lanes_of:expr
    ) => {
        /// # Safety
        /// There are `count` rows of `len` elements that can be read; every vector is padded; the processor has the
        /// instructions.
        $(#[$target])*
        pub(super) unsafe fn $name<const VECTORS: usize>(
            start: *const u8,
            row_stride: isize,
            (count, len): (usize, usize),
            vectors: &[$t],
            sums: &mut [f32],
        ) {
            const STEP: usize = $columns * $depth;
            let stride = len.next_multiple_of(super::PADDING);
            // What follows the end of a row is the row that this lane has next.
            let (end, next) = (len * $size, $lanes * row_stride - (len * $size) as isize);
            let distance = super::AHEAD_BYTES.min(end);
            for group in (0..count).step_by($lanes) {
                // Lanes without a row of their own have the last one again.
                let rows: [*const u8; $lanes] =
                    std::array::from_fn(|lane| start.wrapping_offset((group + lane).min(count - 1) as isize * row_stride));
                let mut totals = [$zero; VECTORS];
                for run in (0..len).step_by(super::RUN * $depth) {
                    let past = len.min(run + super::RUN * $depth);
                    let mut sums = [$zero; VECTORS];
                    let mut add = |columns: &_, column: usize, at: usize| {
                        for (vector, sum) in sums.iter_mut().enumerate() {
                            let element = vectors.as_ptr().wrapping_add(vector * stride + at + column * $depth);
                            // SAFETY: a column before the end of the vector, which is padded.
                            *sum = $multiply(unsafe { $one(element) }, $column(columns, column), *sum);
                        }
                    };
                    let mut at = run;
                    while at + STEP <= past {
                        let here = at * $size;
                        if here.is_multiple_of(super::LINE_BYTES) {
                            let ahead = (here + distance) as isize + if here + distance < end { 0 } else { next };
                            rows.iter().for_each(|row| super::prefetch(row.wrapping_offset(ahead)));
                        }
                        // SAFETY: a step before the end of each row.
                        let columns = unsafe { $turned(&rows, here) };
                        for_columns!($columns, |column| add(&columns, column, at));
                        at += STEP;
                    }
                    if at < past {
                        let mut padded = [[0_u8; super::LINE_BYTES]; $lanes];
                        for (padded, row) in padded.iter_mut().zip(rows) {
                            // SAFETY: what is left of the row, less than a step of it.
                            unsafe {
                                std::ptr::copy_nonoverlapping(
                                    row.wrapping_add(at * $size),
                                    padded.as_mut_ptr(),
                                    (past - at) * $size,
                                );
                            }
                        }
                        // SAFETY: the copies are as long as a step.
                        let columns = unsafe { $turned(&padded.each_ref().map(|row| row.as_ptr()), 0) };
                        (0..(past - at).div_ceil($depth)).for_each(|column| add(&columns, column, at));
                    }
                    totals.iter_mut().zip(sums).for_each(|(total, sum)| *total = $add(*total, sum));
                }
                let rows = $lanes.min(count - group);
                for (total, sums) in totals.into_iter().zip(sums.chunks_exact_mut(count)) {
                    sums[group..group + rows].copy_from_slice(&$lanes_of(total)[..rows]);
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m512, __m512bh, __m512i, _mm_loadu_si128, _mm256_add_ps, _mm256_and_si256, _mm256_castps_si256,
        _mm256_castsi256_ps, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_epi32, _mm256_set1_ps,
        _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm512_add_ps, _mm512_and_si512, _mm512_castsi512_ps,
        _mm512_castsi512_si256, _mm512_cvtph_ps, _mm512_dpbf16_ps, _mm512_extracti64x4_epi64, _mm512_fmadd_ps,
        _mm512_loadu_si512, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
        _mm512_slli_epi32, _mm512_storeu_ps,
    };

    use crate::nn::simd::transpose::x86::{halves_512, words_256, words_512};

    /// The upper half of a word.
    const UPPER: i32 = 0xffff_0000_u32.cast_signed();

    // Loops instead of `map`, which is a function without the instructions.

    /// # Safety
    /// 64 bytes can be read at `offset` from each.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn lines(rows: &[*const u8; 16], offset: usize) -> [__m512i; 16] {
        let mut lines = [_mm512_setzero_si512(); 16];
        for (line, row) in lines.iter_mut().zip(rows) {
            // SAFETY: what this function asks for.
            *line = unsafe { _mm512_loadu_si512(row.wrapping_add(offset).cast()) };
        }
        lines
    }

    /// # Safety
    /// As [`lines`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn words(rows: &[*const u8; 16], offset: usize) -> [__m512i; 16] {
        // SAFETY: what this function asks for.
        words_512(unsafe { lines(rows, offset) })
    }

    /// # Safety
    /// As [`lines`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn halves(rows: &[*const u8; 16], offset: usize) -> [__m512i; 16] {
        // SAFETY: what this function asks for.
        halves_512(unsafe { lines(rows, offset) })
    }

    /// A column of f16.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn half(columns: &[__m512i; 16], column: usize) -> __m512 {
        let both = columns[column % 8 + column / 16 * 8];
        let upper = column / 8 % 2 == 1;
        _mm512_cvtph_ps(if upper { _mm512_extracti64x4_epi64::<1>(both) } else { _mm512_castsi512_si256(both) })
    }

    /// A column of bf16.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn brain(words: &[__m512i; 16], column: usize) -> __m512 {
        let word = words[column / 2];
        _mm512_castsi512_ps(if column.is_multiple_of(2) {
            _mm512_slli_epi32::<16>(word)
        } else {
            _mm512_and_si512(word, _mm512_set1_epi32(UPPER))
        })
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn bits(pairs: __m512i) -> __m512bh {
        // SAFETY: registers of one size; any bits are bf16.
        unsafe { std::mem::transmute(pairs) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn lanes_512(total: __m512) -> [f32; 16] {
        let mut lanes = [0.0; 16];
        // SAFETY: as many lanes.
        unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), total) };
        lanes
    }

    /// # Safety
    /// 32 bytes can be read at `offset` from each.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn words_of_8(rows: &[*const u8; 8], offset: usize) -> [__m256; 8] {
        let mut lines = [_mm256_setzero_ps(); 8];
        for (line, row) in lines.iter_mut().zip(rows) {
            // SAFETY: what this function asks for.
            *line = unsafe { _mm256_loadu_ps(row.wrapping_add(offset).cast()) };
        }
        words_256(lines)
    }

    /// # Safety
    /// 16 bytes can be read at `offset` from each.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn halves_of_8(rows: &[*const u8; 8], offset: usize) -> [__m256; 8] {
        let mut lines = [_mm256_setzero_ps(); 8];
        for (line, row) in lines.iter_mut().zip(rows) {
            // SAFETY: what this function asks for.
            *line = _mm256_cvtph_ps(unsafe { _mm_loadu_si128(row.wrapping_add(offset).cast()) });
        }
        words_256(lines)
    }

    /// A column of bf16.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn brain_of_8(words: &[__m256; 8], column: usize) -> __m256 {
        let word = _mm256_castps_si256(words[column / 2]);
        _mm256_castsi256_ps(if column.is_multiple_of(2) {
            _mm256_slli_epi32::<16>(word)
        } else {
            _mm256_and_si256(word, _mm256_set1_epi32(UPPER))
        })
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn lanes_256(total: __m256) -> [f32; 8] {
        let mut lanes = [0.0; 8];
        // SAFETY: as many lanes.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), total) };
        lanes
    }

    kernel!(
        #[target_feature(enable = "avx512f,avx512bf16")]
        pairs_avx512(u16, 2 bytes, 16 lanes, 16 columns, 2 deep):
        _mm512_setzero_ps(), words, |words: &[__m512i; 16], column: usize| bits(words[column]),
        |at: *const u16| bits(_mm512_set1_epi32(at.cast::<i32>().read_unaligned())),
        |vector, column, sum| _mm512_dpbf16_ps(sum, vector, column), |a, b| _mm512_add_ps(a, b), lanes_512
    );
    kernel!(
        #[target_feature(enable = "avx512f")]
        single_avx512(f32, 4 bytes, 16 lanes, 16 columns, 1 deep):
        _mm512_setzero_ps(), words, |words: &[__m512i; 16], column: usize| _mm512_castsi512_ps(words[column]),
        |at: *const f32| _mm512_set1_ps(at.read()),
        |vector, column, sum| _mm512_fmadd_ps(vector, column, sum), |a, b| _mm512_add_ps(a, b), lanes_512
    );
    kernel!(
        #[target_feature(enable = "avx512f,avx512bw")]
        half_avx512(f32, 2 bytes, 16 lanes, 32 columns, 1 deep):
        _mm512_setzero_ps(), halves, half, |at: *const f32| _mm512_set1_ps(at.read()),
        |vector, column, sum| _mm512_fmadd_ps(vector, column, sum), |a, b| _mm512_add_ps(a, b), lanes_512
    );
    kernel!(
        #[target_feature(enable = "avx512f")]
        brain_avx512(f32, 2 bytes, 16 lanes, 32 columns, 1 deep):
        _mm512_setzero_ps(), words, brain, |at: *const f32| _mm512_set1_ps(at.read()),
        |vector, column, sum| _mm512_fmadd_ps(vector, column, sum), |a, b| _mm512_add_ps(a, b), lanes_512
    );
    kernel!(
        #[target_feature(enable = "avx2,fma")]
        single_avx2(f32, 4 bytes, 8 lanes, 8 columns, 1 deep):
        _mm256_setzero_ps(), words_of_8, |words: &[__m256; 8], column: usize| words[column],
        |at: *const f32| _mm256_set1_ps(at.read()),
        |vector, column, sum| _mm256_fmadd_ps(vector, column, sum), |a, b| _mm256_add_ps(a, b), lanes_256
    );
    kernel!(
        #[target_feature(enable = "avx2,fma,f16c")]
        half_avx2(f32, 2 bytes, 8 lanes, 8 columns, 1 deep):
        _mm256_setzero_ps(), halves_of_8, |words: &[__m256; 8], column: usize| words[column],
        |at: *const f32| _mm256_set1_ps(at.read()),
        |vector, column, sum| _mm256_fmadd_ps(vector, column, sum), |a, b| _mm256_add_ps(a, b), lanes_256
    );
    kernel!(
        #[target_feature(enable = "avx2,fma")]
        brain_avx2(f32, 2 bytes, 8 lanes, 16 columns, 1 deep):
        _mm256_setzero_ps(), words_of_8, brain_of_8, |at: *const f32| _mm256_set1_ps(at.read()),
        |vector, column, sum| _mm256_fmadd_ps(vector, column, sum), |a, b| _mm256_add_ps(a, b), lanes_256
    );
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::aarch64::{
        float32x4_t, uint16x4_t, vaddq_f32, vandq_u32, vdupq_n_f32, vdupq_n_u32, vfmaq_f32, vld1q_dup_f32, vmovn_u32,
        vreinterpretq_f32_u32, vreinterpretq_u32_f32, vshlq_n_u32, vshrn_n_u32, vst1q_f32,
    };
    use std::arch::asm;

    use crate::nn::simd::transpose::aarch64::words_128;

    /// A number of each of eight rows: two registers, as the sums of one would wait for each other.
    type Eight = [float32x4_t; 2];

    #[inline]
    #[target_feature(enable = "neon")]
    fn zeros() -> Eight {
        [vdupq_n_f32(0.0); 2]
    }

    /// The columns of 8 rows of 4 words, each of the first four rows and of the last four.
    ///
    /// # Safety
    /// 16 bytes can be read at `offset` from each.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn words(rows: &[*const u8; 8], offset: usize) -> [[float32x4_t; 4]; 2] {
        // SAFETY: what this function asks for.
        let first = unsafe { words_128(&rows[..4], offset) };
        // SAFETY: as above.
        let last = unsafe { words_128(&rows[4..], offset) };
        [first, last]
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn single(words: &[[float32x4_t; 4]; 2], column: usize) -> Eight {
        [words[0][column], words[1][column]]
    }

    /// A column of f16.
    #[inline]
    #[target_feature(enable = "neon")]
    fn half(words: &[[float32x4_t; 4]; 2], column: usize) -> Eight {
        let mut wide = zeros();
        for (wide, words) in wide.iter_mut().zip(words) {
            let word = vreinterpretq_u32_f32(words[column / 2]);
            *wide = widen(if column.is_multiple_of(2) { vmovn_u32(word) } else { vshrn_n_u32::<16>(word) });
        }
        wide
    }

    /// f16 as f32, by an instruction that every processor has and for which Rust 1.90 has no function.
    #[inline]
    #[target_feature(enable = "neon")]
    fn widen(halves: uint16x4_t) -> float32x4_t {
        let wide: float32x4_t;
        // SAFETY: reads and writes the registers that are named, and nothing else.
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

    /// A column of bf16.
    #[inline]
    #[target_feature(enable = "neon")]
    fn brain(words: &[[float32x4_t; 4]; 2], column: usize) -> Eight {
        let mut wide = zeros();
        for (wide, words) in wide.iter_mut().zip(words) {
            let word = vreinterpretq_u32_f32(words[column / 2]);
            let is_lower = column.is_multiple_of(2);
            let bits = if is_lower { vshlq_n_u32::<16>(word) } else { vandq_u32(word, vdupq_n_u32(0xffff_0000)) };
            *wide = vreinterpretq_f32_u32(bits);
        }
        wide
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn multiply(vector: float32x4_t, column: Eight, sum: Eight) -> Eight {
        [vfmaq_f32(sum[0], vector, column[0]), vfmaq_f32(sum[1], vector, column[1])]
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn add(a: Eight, b: Eight) -> Eight {
        [vaddq_f32(a[0], b[0]), vaddq_f32(a[1], b[1])]
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn lanes(total: Eight) -> [f32; 8] {
        let mut lanes = [0.0; 8];
        for (lanes, total) in lanes.chunks_exact_mut(4).zip(total) {
            // SAFETY: as many lanes.
            unsafe { vst1q_f32(lanes.as_mut_ptr(), total) };
        }
        lanes
    }

    kernel!(
        #[target_feature(enable = "neon")]
        single_neon(f32, 4 bytes, 8 lanes, 4 columns, 1 deep):
        zeros(), words, single, |at: *const f32| vld1q_dup_f32(at), multiply, add, lanes
    );
    kernel!(
        #[target_feature(enable = "neon")]
        half_neon(f32, 2 bytes, 8 lanes, 8 columns, 1 deep):
        zeros(), words, half, |at: *const f32| vld1q_dup_f32(at), multiply, add, lanes
    );
    kernel!(
        #[target_feature(enable = "neon")]
        brain_neon(f32, 2 bytes, 8 lanes, 8 columns, 1 deep):
        zeros(), words, brain, |at: *const f32| vld1q_dup_f32(at), multiply, add, lanes
    );
}

mod portable {
    use super::{bf16, f16};

    /// The columns of 8 rows of 8 elements, widened.
    ///
    /// # Safety
    /// Eight elements can be read at `offset` from each.
    #[inline(always)]
    unsafe fn columns<T: Copy>(rows: &[*const u8; 8], offset: usize, widen: impl Fn(T) -> f32) -> [[f32; 8]; 8] {
        // SAFETY: what this function asks for; the read needs no alignment.
        let eight = |row: &*const u8| unsafe { row.wrapping_add(offset).cast::<[T; 8]>().read_unaligned() };
        let rows = rows.each_ref().map(|row| eight(row).map(&widen));
        std::array::from_fn(|column| rows.map(|row| row[column]))
    }

    fn multiply(vector: f32, column: [f32; 8], sum: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| sum[lane] + vector * column[lane])
    }

    fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }

    kernel!(
        single(f32, 4 bytes, 8 lanes, 8 columns, 1 deep):
        [0_f32; 8], |rows, offset| columns::<f32>(rows, offset, |value| value), |columns: &[[f32; 8]; 8], column: usize| columns[column],
        |at: *const f32| at.read(), multiply, add, |total| total
    );
    kernel!(
        half(f32, 2 bytes, 8 lanes, 8 columns, 1 deep):
        [0_f32; 8], |rows, offset| columns(rows, offset, |bits| f16::from_bits(bits).to_f32()),
        |columns: &[[f32; 8]; 8], column: usize| columns[column], |at: *const f32| at.read(), multiply, add, |total| total
    );
    kernel!(
        brain(f32, 2 bytes, 8 lanes, 8 columns, 1 deep):
        [0_f32; 8], |rows, offset| columns(rows, offset, |bits| bf16::from_bits(bits).to_f32()),
        |columns: &[[f32; 8]; 8], column: usize| columns[column], |at: *const f32| at.read(), multiply, add, |total| total
    );
}
