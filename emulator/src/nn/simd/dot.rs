//! Dot products of a few vectors with the rows of a matrix that is read once, straight from the memory of a card.
//!
//! Input: [`Rows`] of f32, f16 or bf16 and the vectors, widened to f32 or kept as bf16. Output: a sum for each row and vector.
//! Invariants: an element is read once for all vectors; a sum has a number of lanes that depends on the number of vectors alone, so
//! it does not depend on how rows are spread over tiles; it is f32 throughout.
//! Pairs of bf16 are multiplied by the instruction for them, which takes denormal numbers for zeros.
#![expect(unsafe_code, reason = "vector instructions over the memory of a card")]

use half::{bf16, f16};

use super::rates::prefetch;
use crate::nn::dtype::DType;
use crate::nn::raw::Rows;
use crate::simd::Isa;

/// The most vectors that share one reading of the rows.
pub(crate) const MOST_VECTORS: usize = 8;
/// Vectors are padded with zeros to a multiple of this many elements.
pub(crate) const PADDING: usize = 32;
/// How far ahead of a row's read its lines are asked for.
const AHEAD_BYTES: usize = 4096;
/// Bytes of the widest step of a kernel.
const STEP_BYTES: usize = 64;

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

/// A kernel for rows, a number of them at once: the address of the first, the bytes to the next, how many there are and their
/// length, the vectors, and where the sums go: those of a vector beside each other, the vectors so many apart.
type Kernel<T> = unsafe fn(*const u8, isize, (usize, usize), &[T], (&mut [f32], usize));

/// Asks for rows that will be read soon.
pub(crate) fn prefetch_rows(rows: &Rows<'_>) {
    for row in 0..rows.count() {
        for line in (0..rows.bytes()).step_by(STEP_BYTES) {
            prefetch(rows.row(row).wrapping_add(line));
        }
    }
}

/// The kernels for a number of vectors.
struct Kernels<T> {
    /// For several rows at once.
    rows: Kernel<T>,
    /// How many those are.
    count: usize,
    /// For one row; it sums in the same order.
    row: Kernel<T>,
}

/// `sums[v * rows + r]`, the dot product of row `r` and vector `v`.
///
/// # Panics
/// If there are no vectors or too many, they are shorter than the rows, or pairs meet something that is not bf16 or an
/// instruction set without them.
pub(crate) fn dots(isa: Isa, element: Element, rows: &Rows<'_>, vectors: Vectors<'_>, sums: &mut [f32]) {
    match vectors {
        Vectors::Singles(values) => run(&singles(isa, element, sums.len() / rows.count()), element, rows, values, sums),
        Vectors::Pairs(values) => {
            assert!(element == Element::Brain && isa == Isa::Avx512Bf16, "pairs of bf16 with {element:?} on {isa}");
            run(&pairs(sums.len() / rows.count()), element, rows, values, sums);
        }
    }
}

fn run<T>(kernels: &Kernels<T>, element: Element, rows: &Rows<'_>, vectors: &[T], sums: &mut [f32]) {
    let count = sums.len() / rows.count();
    let len = rows.bytes() / element.size();
    assert!(
        (1..=MOST_VECTORS).contains(&count) && vectors.len() == count * len.next_multiple_of(PADDING),
        "{} elements for {count} vectors of {len}",
        vectors.len()
    );
    let whole = rows.count() / kernels.count * kernels.count;
    for (kernel, part) in [(kernels.rows, 0..whole), (kernels.row, whole..rows.count())] {
        if !part.is_empty() {
            let (first, sums) = (rows.row(part.start), &mut sums[part.start..]);
            // SAFETY: the kernel was chosen among those of the instruction set in use; `Rows` vouches for `len` elements of
            // each row; `whole` is a multiple of the kernel's rows; the lengths of the vectors were checked above.
            unsafe { kernel(first, rows.stride(), (part.len(), len), vectors, (sums, rows.count())) };
        }
    }
}

/// The kernels of a module for a number of vectors. One vector takes the rows one by one, in the order of memory, as its
/// prefetchers like it (67 GB/s of 69 on two Zen 5 cores, 59 in fours); several share their loads among rows, as together
/// they leave the first-level cache (of 8 vectors: 28 GB/s, 21 one by one).
macro_rules! by_count {
    ($count:expr, $kernel:path) => {{
        use $kernel as kernel;
        macro_rules! of {
            ($vectors:literal, $chains:literal, $rows:literal) => {
                Kernels { rows: kernel::<$vectors, $chains, $rows>, count: $rows, row: kernel::<$vectors, $chains, 1> }
            };
        }
        match $count {
            1 => of!(1, 4, 1),
            2 => of!(2, 1, 4),
            3 => of!(3, 1, 4),
            4 => of!(4, 1, 4),
            5 => of!(5, 1, 2),
            6 => of!(6, 1, 2),
            7 => of!(7, 1, 2),
            8 => of!(8, 1, 2),
            count => panic!("{count} vectors"),
        }
    }};
}

fn singles(isa: Isa, element: Element, count: usize) -> Kernels<f32> {
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
        (_, Element::Single) => by_count!(count, portable::single),
        (_, Element::Half) => by_count!(count, portable::half),
        (_, Element::Brain) => by_count!(count, portable::brain),
    }
}

fn pairs(count: usize) -> Kernels<u16> {
    #[cfg(target_arch = "x86_64")]
    return by_count!(count, x86::pairs_avx512);
    #[cfg(not(target_arch = "x86_64"))]
    panic!("{count} vectors of pairs, for which this processor has no instruction");
}

/// Defines the kernel of one type and instruction set: `VECTORS` sums for each of `ROWS` rows, each in `CHAINS` registers.
macro_rules! kernel {
    (
        $(#[$target:meta])* $name:ident($t:ty, $size:literal bytes, $lanes:literal lanes):
        $zero:expr, $load:expr, $vector:expr, $multiply:expr, $add:expr, $sum:expr
    ) => {
        /// # Safety
        /// There are `count` rows, a multiple of `ROWS`, of `len` elements that can be read; every vector is padded; the
        /// processor has the instructions.
        $(#[$target])*
        pub(super) unsafe fn $name<const VECTORS: usize, const CHAINS: usize, const ROWS: usize>(
            start: *const u8,
            row_stride: isize,
            (count, len): (usize, usize),
            vectors: &[$t],
            (sums, sums_stride): (&mut [f32], usize),
        ) {
            let stride = len.next_multiple_of(super::PADDING);
            for group in (0..count).step_by(ROWS) {
                let first = start.wrapping_offset(group as isize * row_stride);
                let mut totals = [[[$zero; CHAINS]; VECTORS]; ROWS];
                let mut at = 0;
                while at + CHAINS * $lanes <= len {
                    for (row, totals) in totals.iter_mut().enumerate() {
                        let row = first.wrapping_offset(row as isize * row_stride);
                        for line in (0..CHAINS * $lanes * $size).step_by(super::STEP_BYTES) {
                            super::prefetch(row.wrapping_add(at * $size + line + super::AHEAD_BYTES));
                        }
                        for chain in 0..CHAINS {
                            let here = at + chain * $lanes;
                            // SAFETY: `here` and the lanes that follow lie before `len`.
                            let weights = unsafe { $load(row.wrapping_add(here * $size)) };
                            for (vector, totals) in totals.iter_mut().enumerate() {
                                // SAFETY: the padded vector is no shorter than the row.
                                let values = unsafe { $vector(vectors.as_ptr().wrapping_add(vector * stride + here)) };
                                totals[chain] = $multiply(weights, values, totals[chain]);
                            }
                        }
                    }
                    at += CHAINS * $lanes;
                }
                while at < len {
                    let bytes = (len - at).min($lanes) * $size;
                    for (row, totals) in totals.iter_mut().enumerate() {
                        let rest = first.wrapping_offset(row as isize * row_stride).wrapping_add(at * $size);
                        let mut padded = [0_u8; super::STEP_BYTES];
                        let step = if bytes == $lanes * $size {
                            rest
                        } else {
                            // SAFETY: what is left of the row, less than a step of it.
                            unsafe { std::ptr::copy_nonoverlapping(rest, padded.as_mut_ptr(), bytes) };
                            padded.as_ptr()
                        };
                        // SAFETY: a whole step of the row, or the copy, which is as long.
                        let weights = unsafe { $load(step) };
                        for (vector, totals) in totals.iter_mut().enumerate() {
                            // SAFETY: the vector is padded to a multiple of the lanes.
                            let values = unsafe { $vector(vectors.as_ptr().wrapping_add(vector * stride + at)) };
                            totals[0] = $multiply(weights, values, totals[0]);
                        }
                    }
                    at += $lanes;
                }
                for (row, totals) in totals.into_iter().enumerate() {
                    for (vector, totals) in totals.into_iter().enumerate() {
                        let total = totals.into_iter().reduce($add).unwrap_or($zero);
                        sums[vector * sums_stride + group + row] = $sum(total);
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m512, __m512bh, __m512i, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_loadu_si128, _mm_movehdup_ps,
        _mm_movehl_ps, _mm256_add_ps, _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_cvtepu16_epi32,
        _mm256_cvtph_ps, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
        _mm256_setzero_ps, _mm256_slli_epi32, _mm512_add_ps, _mm512_castsi512_ps, _mm512_cvtepu16_epi32,
        _mm512_cvtph_ps, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_reduce_add_ps,
        _mm512_setzero_ps, _mm512_slli_epi32,
    };

    /// # Safety
    /// 64 bytes can be read at `at`.
    #[target_feature(enable = "avx512f")]
    unsafe fn pair(at: *const u8) -> __m512bh {
        // SAFETY: what this function asks for.
        let bits = unsafe { _mm512_loadu_si512(at.cast()) };
        // SAFETY: registers of one size; any bits are bf16.
        unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) }
    }

    /// # Safety
    /// 32 bytes can be read at `at`.
    #[target_feature(enable = "avx512f")]
    unsafe fn brain_512(at: *const u8) -> __m512 {
        // SAFETY: what this function asks for.
        let bits = unsafe { _mm256_loadu_si256(at.cast()) };
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)))
    }

    /// # Safety
    /// 32 bytes can be read at `at`.
    #[target_feature(enable = "avx512f")]
    unsafe fn half_512(at: *const u8) -> __m512 {
        // SAFETY: what this function asks for.
        let bits = unsafe { _mm256_loadu_si256(at.cast()) };
        _mm512_cvtph_ps(bits)
    }

    /// # Safety
    /// 16 bytes can be read at `at`.
    #[target_feature(enable = "avx2")]
    unsafe fn brain_256(at: *const u8) -> __m256 {
        // SAFETY: what this function asks for.
        let bits = unsafe { _mm_loadu_si128(at.cast()) };
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits)))
    }

    /// # Safety
    /// 16 bytes can be read at `at`.
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn half_256(at: *const u8) -> __m256 {
        // SAFETY: what this function asks for.
        let bits = unsafe { _mm_loadu_si128(at.cast()) };
        _mm256_cvtph_ps(bits)
    }

    #[target_feature(enable = "avx2")]
    fn sum_256(values: __m256) -> f32 {
        let four = _mm_add_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps::<1>(values));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }

    kernel!(
        #[target_feature(enable = "avx512f,avx512bf16")]
        pairs_avx512(u16, 2 bytes, 32 lanes):
        _mm512_setzero_ps(), pair, |at: *const u16| pair(at.cast()), |w, v, t| _mm512_dpbf16_ps(t, w, v),
        |a, b| _mm512_add_ps(a, b), |t| _mm512_reduce_add_ps(t)
    );
    kernel!(
        #[target_feature(enable = "avx512f")]
        single_avx512(f32, 4 bytes, 16 lanes):
        _mm512_setzero_ps(), |at: *const u8| _mm512_loadu_ps(at.cast()), |at| _mm512_loadu_ps(at),
        |w, v, t| _mm512_fmadd_ps(w, v, t), |a, b| _mm512_add_ps(a, b), |t| _mm512_reduce_add_ps(t)
    );
    kernel!(
        #[target_feature(enable = "avx512f")]
        half_avx512(f32, 2 bytes, 16 lanes):
        _mm512_setzero_ps(), half_512, |at| _mm512_loadu_ps(at),
        |w, v, t| _mm512_fmadd_ps(w, v, t), |a, b| _mm512_add_ps(a, b), |t| _mm512_reduce_add_ps(t)
    );
    kernel!(
        #[target_feature(enable = "avx512f")]
        brain_avx512(f32, 2 bytes, 16 lanes):
        _mm512_setzero_ps(), brain_512, |at| _mm512_loadu_ps(at),
        |w, v, t| _mm512_fmadd_ps(w, v, t), |a, b| _mm512_add_ps(a, b), |t| _mm512_reduce_add_ps(t)
    );
    kernel!(
        #[target_feature(enable = "avx2,fma")]
        single_avx2(f32, 4 bytes, 8 lanes):
        _mm256_setzero_ps(), |at: *const u8| _mm256_loadu_ps(at.cast()), |at| _mm256_loadu_ps(at),
        |w, v, t| _mm256_fmadd_ps(w, v, t), |a, b| _mm256_add_ps(a, b), |t| sum_256(t)
    );
    kernel!(
        #[target_feature(enable = "avx2,fma,f16c")]
        half_avx2(f32, 2 bytes, 8 lanes):
        _mm256_setzero_ps(), half_256, |at| _mm256_loadu_ps(at),
        |w, v, t| _mm256_fmadd_ps(w, v, t), |a, b| _mm256_add_ps(a, b), |t| sum_256(t)
    );
    kernel!(
        #[target_feature(enable = "avx2,fma")]
        brain_avx2(f32, 2 bytes, 8 lanes):
        _mm256_setzero_ps(), brain_256, |at| _mm256_loadu_ps(at),
        |w, v, t| _mm256_fmadd_ps(w, v, t), |a, b| _mm256_add_ps(a, b), |t| sum_256(t)
    );
}

mod portable {
    use super::{bf16, f16};

    /// # Safety
    /// Eight elements can be read at `at`.
    #[inline(always)]
    unsafe fn eight<T: Copy>(at: *const T) -> [T; 8] {
        // SAFETY: what this function asks for; the read needs no alignment.
        unsafe { at.cast::<[T; 8]>().read_unaligned() }
    }

    fn multiply(weights: [f32; 8], values: [f32; 8], mut totals: [f32; 8]) -> [f32; 8] {
        for ((total, weight), value) in totals.iter_mut().zip(weights).zip(values) {
            *total += weight * value;
        }
        totals
    }

    fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }

    kernel!(
        single(f32, 4 bytes, 8 lanes):
        [0_f32; 8], |at: *const u8| eight::<f32>(at.cast()), eight::<f32>, multiply, add, |t: [f32; 8]| t.iter().sum()
    );
    kernel!(
        half(f32, 2 bytes, 8 lanes):
        [0_f32; 8], |at: *const u8| eight::<u16>(at.cast()).map(|bits| f16::from_bits(bits).to_f32()), eight::<f32>, multiply,
        add, |t: [f32; 8]| t.iter().sum()
    );
    kernel!(
        brain(f32, 2 bytes, 8 lanes):
        [0_f32; 8], |at: *const u8| eight::<u16>(at.cast()).map(|bits| bf16::from_bits(bits).to_f32()), eight::<f32>, multiply,
        add, |t: [f32; 8]| t.iter().sum()
    );
}
