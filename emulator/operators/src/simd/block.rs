//! Inner product of packed blocks: a few left lines with one right slab, into f32.
//!
//! - Up to [`LINES`] lines along the contracted dim, and a slab of [`WIDTH`] columns in words. A
//!   word is an f32, or two bf16 neighbours.
//! - The sums of the block stay in registers.
//! - Products are added in the order of [`RUN`], one run per call. The bf16 pair instruction treats
//!   denormals as zero.
//!
//! These blocks reach 77 to 82 % of a core's AVX-512 peak for f32 products of 256 x 4096 x 4096;
//! the gemm crate reached 44 %, and lacks bf16 pairs.
#![expect(unsafe_code, reason = "vector instructions over packed slices")]

use crate::raw::Rows;
use crate::simd::ahead::Ahead;
use crate::simd::isa::Isa;
pub(crate) use crate::simd::transpose::WIDTH;

/// 6 x 4 sums and 4 slab vectors fit the 32 AVX-512 registers.
pub(crate) const LINES: usize = 6;

/// Words per run, which defines the addition order. Words go to [`PARTS`] parts in turn, [`QUAD`]
/// neighbours at a time. Each part is summed from zero, word by word, and the parts are added in
/// order. A part matches a quarter of a 512-bit register read along k, so in-place rows use the
/// same order. A slab of one run takes two thirds of a first-level cache.
pub(crate) const RUN: usize = 128;
pub(crate) const PARTS: usize = 4;
/// Neighbouring words of one part.
pub(crate) const QUAD: usize = 4;
pub(crate) const WORD_BYTES: usize = size_of::<u32>();

/// In order; whole quads are unrolled. Takes a step ahead in each quad.
macro_rules! for_part {
    ($part:expr, $words:expr, $ahead:expr, |$word:ident| $body:expr) => {
        for first in ($part * QUAD..$words).step_by(QUAD * PARTS) {
            $ahead.step();
            if first + QUAD <= $words {
                for at in 0..QUAD {
                    let $word = first + at;
                    $body
                }
            } else {
                for $word in first..$words {
                    $body
                }
            }
        }
    };
}

/// Lines of the left operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lines<'a> {
    /// Words, as in the slab.
    Words(Rows<'a>),
    /// The two bf16 of each word as f32.
    Widened(Rows<'a>),
}

impl Lines<'_> {
    pub(crate) const fn count(&self) -> usize {
        let (Self::Words(rows) | Self::Widened(rows)) = self;
        rows.count()
    }

    pub(crate) const fn words(&self) -> usize {
        match self {
            Self::Words(rows) => rows.bytes() / WORD_BYTES,
            Self::Widened(rows) => rows.bytes() / (2 * WORD_BYTES),
        }
    }

    /// Returns the number of blocks that cover the lines.
    pub(crate) const fn blocks(&self) -> usize {
        match self {
            Self::Words(_) => self.count().div_ceil(LINES),
            // The halves of slab vectors need registers, too.
            Self::Widened(_) => self.count().div_ceil(LINES - 1),
        }
    }

    pub(crate) fn part(&self, first: usize, count: usize) -> Self {
        match self {
            Self::Words(rows) => Self::Words(rows.part(first, count)),
            Self::Widened(rows) => Self::Widened(rows.part(first, count)),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedBlock<'a, T> {
    pub(crate) lines: Lines<'a>,
    /// Slab `[words][WIDTH]`: the first word of each column, then the next.
    pub(crate) slab: &'a [T],
    pub(crate) words: usize,
}

/// Output lines, `stride` apart.
#[derive(Debug)]
pub(crate) struct Sums<'a> {
    pub(crate) values: &'a mut [f32],
    pub(crate) stride: usize,
    pub(crate) lines: usize,
}

/// Computes `sums += lines x slab` in f32.
pub(crate) fn add_singles(
    isa: Isa,
    packed: &PackedBlock<'_, f32>,
    sums: &mut Sums<'_>,
    ahead: &mut Ahead<'_>,
) {
    packed.check(1, sums);
    let Lines::Words(lines) = packed.lines else { panic!("an f32 is not widened") };
    let (a, b, c) = (lines.row(0), packed.slab.as_ptr(), sums.values.as_mut_ptr());
    macro_rules! call {
        ($kernel:path) => {
            // SAFETY: the lengths were checked, and the instruction set is available.
            unsafe {
                by_lines!(sums.lines, $kernel, (a, lines.stride(), b, packed.words, c, sums.stride, ahead))
            }
        };
    }
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx512Bf16 => call!(x86::singles_avx512),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => call!(x86::singles_avx2),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => call!(aarch64::singles_neon),
        _ => call!(singles_portable),
    }
}

/// Computes `sums += lines x slab` of bf16 pairs; needs the pair instruction. Widened lines are
/// multiplied in f32: for plain numbers ([`super::pack::is_plain`]) with the same bits.
pub(crate) fn add_pairs(isa: Isa, packed: &PackedBlock<'_, u16>, sums: &mut Sums<'_>, ahead: &mut Ahead<'_>) {
    packed.check(2, sums);
    assert!(isa == Isa::Avx512Bf16, "pairs of bf16 on {isa}");
    #[cfg(target_arch = "x86_64")]
    {
        let (b, c) = (packed.slab.as_ptr(), sums.values.as_mut_ptr());
        macro_rules! call {
            ($kernel:path, $lines:expr) => {
                // SAFETY: the lengths were checked, and the instruction set is available.
                unsafe {
                    by_lines!(
                        sums.lines,
                        $kernel,
                        ($lines.row(0), $lines.stride(), b, packed.words, c, sums.stride, ahead)
                    )
                }
            };
        }
        match packed.lines {
            Lines::Words(lines) => call!(x86::pairs_avx512, lines),
            Lines::Widened(lines) => call!(x86::widened_avx512, lines),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ahead;
}

macro_rules! by_lines {
    ($lines:expr, $kernel:path, ($($arg:expr),*)) => {{
        use $kernel as kernel;
        match $lines {
            1 => kernel::<1>($($arg),*),
            2 => kernel::<2>($($arg),*),
            3 => kernel::<3>($($arg),*),
            4 => kernel::<4>($($arg),*),
            5 => kernel::<5>($($arg),*),
            _ => kernel::<6>($($arg),*),
        }
    }};
}
use by_lines;

impl<T> PackedBlock<'_, T> {
    /// Asserts that the slices hold all words of `depth` elements, and all sums.
    fn check(&self, depth: usize, sums: &Sums<'_>) {
        let last = sums.lines.wrapping_sub(1);
        assert!(
            last < LINES
                && self.lines.count() == sums.lines
                && self.lines.words() >= self.words
                && self.slab.len() >= self.words * WIDTH * depth
                && sums.values.len() >= last * sums.stride + WIDTH,
            "{} of {} lines of {} words, {} words in a slab of {} elements, {} sums",
            sums.lines,
            self.lines.count(),
            self.lines.words(),
            self.words,
            self.slab.len(),
            sums.values.len()
        );
    }
}

/// Returns the address of byte `at` of a line.
#[inline(always)]
const fn line_at(lines: *const u8, stride: isize, line: usize, at: usize) -> *const u8 {
    lines.wrapping_offset(line as isize * stride).wrapping_add(at)
}

/// Number of columns per step.
const STRIP: usize = 8;

/// # Safety
///
/// The conditions of [`PackedBlock::check`] hold.
unsafe fn singles_portable<const N: usize>(
    a: *const u8,
    a_stride: isize,
    b: *const f32,
    words: usize,
    c: *mut f32,
    c_stride: usize,
    ahead: &mut Ahead<'_>,
) {
    for strip_part in 0..WIDTH / STRIP * PARTS {
        let (strip, part) = (strip_part / PARTS * STRIP, strip_part % PARTS);
        let mut sums = [[0_f32; STRIP]; N];
        for_part!(part, words, ahead, |word| {
            // SAFETY: within the slab; an array is aligned like its elements.
            let right = unsafe { b.wrapping_add(word * WIDTH + strip).cast::<[f32; STRIP]>().read() };
            for (line, sums) in sums.iter_mut().enumerate() {
                // SAFETY: within the line.
                let left = unsafe { line_at(a, a_stride, line, word * 4).cast::<f32>().read_unaligned() };
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum += left * right;
                }
            }
        });
        for (line, sums) in sums.iter().enumerate() {
            let target = c.wrapping_add(line * c_stride + strip).cast::<[f32; STRIP]>();
            // SAFETY: within the line of the sums.
            let mut values = unsafe { target.read() };
            values.iter_mut().zip(sums).for_each(|(value, sum)| *value += sum);
            // SAFETY: as above.
            unsafe { target.write(values) };
        }
    }
}

/// For strips of `$vectors` registers of `$lanes` columns.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! kernel {
    (
        $(#[$target:meta])* $name:ident($t:ty, $depth:literal deep, $vectors:literal x $lanes:literal):
        $zero:ident, $one:expr, $right:expr, $multiply:expr, $load:ident, $add:ident, $store:ident
    ) => {
        /// # Safety
        ///
        /// The conditions of [`super::PackedBlock::check`] hold, and the instructions are
        /// available.
        $(#[$target])*
        pub(super) unsafe fn $name<const N: usize>(
            a: *const u8,
            a_stride: isize,
            b: *const $t,
            words: usize,
            c: *mut f32,
            c_stride: usize,
            ahead: &mut Ahead<'_>,
        ) {
            for strip_part in 0..super::WIDTH / ($vectors * $lanes) * PARTS {
                let (strip, part) = (strip_part / PARTS * ($vectors * $lanes), strip_part % PARTS);
                let mut sums = [[$zero(); $vectors]; N];
                for_part!(part, words, ahead, |word| {
                    let mut right = [$right(b.wrapping_add((word * super::WIDTH + strip) * $depth)); $vectors];
                    for (vector, right) in right.iter_mut().enumerate().skip(1) {
                        *right = $right(b.wrapping_add((word * super::WIDTH + strip + vector * $lanes) * $depth));
                    }
                    for (line, sums) in sums.iter_mut().enumerate() {
                        let left = $one(super::line_at(a, a_stride, line, word * 4));
                        for (sum, right) in sums.iter_mut().zip(right) {
                            *sum = $multiply(left, right, *sum);
                        }
                    }
                });
                for (line, sums) in sums.into_iter().enumerate() {
                    for (vector, sum) in sums.into_iter().enumerate() {
                        let target = c.wrapping_add(line * c_stride + strip + vector * $lanes);
                        // SAFETY: within the line of the sums.
                        let value = unsafe { $load(target) };
                        // SAFETY: as above.
                        unsafe { $store(target, $add(value, sum)) };
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Ahead, PARTS, QUAD};
    use std::arch::x86_64::{
        __m512bh, __m512i, _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps,
        _mm256_setzero_ps, _mm256_storeu_ps, _mm512_add_ps, _mm512_and_si512, _mm512_castsi512_ps,
        _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_set1_epi32,
        _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_storeu_ps,
    };

    kernel!(
        #[target_feature(enable = "avx512f,avx512bf16")]
        pairs_avx512(u16, 2 deep, 4 x 16):
        _mm512_setzero_ps,
        // SAFETY: a pair within the line.
        |at: *const u8| bits(_mm512_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() })),
        // SAFETY: within the slab.
        |at: *const u16| bits(unsafe { _mm512_loadu_si512(at.cast()) }),
        |left, right, sum| _mm512_dpbf16_ps(sum, left, right), _mm512_loadu_ps, _mm512_add_ps, _mm512_storeu_ps
    );
    kernel!(
        #[target_feature(enable = "avx512f")]
        singles_avx512(f32, 1 deep, 4 x 16):
        _mm512_setzero_ps,
        // SAFETY: within the line.
        |at: *const u8| _mm512_set1_ps(unsafe { at.cast::<f32>().read_unaligned() }),
        // SAFETY: within the slab.
        |at: *const f32| unsafe { _mm512_loadu_ps(at) },
        |left, right, sum| _mm512_fmadd_ps(left, right, sum), _mm512_loadu_ps, _mm512_add_ps, _mm512_storeu_ps
    );
    kernel!(
        #[target_feature(enable = "avx2,fma")]
        singles_avx2(f32, 1 deep, 2 x 8):
        _mm256_setzero_ps,
        // SAFETY: within the line.
        |at: *const u8| _mm256_set1_ps(unsafe { at.cast::<f32>().read_unaligned() }),
        // SAFETY: within the slab.
        |at: *const f32| unsafe { _mm256_loadu_ps(at) },
        |left, right, sum| _mm256_fmadd_ps(left, right, sum), _mm256_loadu_ps, _mm256_add_ps, _mm256_storeu_ps
    );

    const REGISTERS: usize = super::WIDTH / 16;

    /// Multiplies pairs as the pair instruction does: first the second products, then the first.
    ///
    /// # Safety
    ///
    /// The conditions of [`super::PackedBlock::check`] hold, the lines are widened, and the
    /// instructions are available.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn widened_avx512<const N: usize>(
        a: *const u8,
        a_stride: isize,
        b: *const u16,
        words: usize,
        c: *mut f32,
        c_stride: usize,
        ahead: &mut Ahead<'_>,
    ) {
        let upper = _mm512_set1_epi32(!0xffff);
        for part in 0..PARTS {
            let mut sums = [[_mm512_setzero_ps(); REGISTERS]; N];
            for_part!(part, words, ahead, |word| {
                let mut pairs = [upper; REGISTERS];
                for (at, pairs) in pairs.iter_mut().enumerate() {
                    let slab = b.wrapping_add((word * super::WIDTH + at * 16) * 2);
                    // SAFETY: within the slab.
                    *pairs = unsafe { _mm512_loadu_si512(slab.cast()) };
                }
                let second = pairs.map(|pairs| _mm512_castsi512_ps(_mm512_and_si512(pairs, upper)));
                let first = pairs.map(|pairs| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)));
                for (place, right) in [(1, second), (0, first)] {
                    for (line, sums) in sums.iter_mut().enumerate() {
                        let left = super::line_at(a, a_stride, line, (2 * word + place) * super::WORD_BYTES);
                        // SAFETY: within the line.
                        let left = _mm512_set1_ps(unsafe { left.cast::<f32>().read_unaligned() });
                        for (sum, right) in sums.iter_mut().zip(right) {
                            *sum = _mm512_fmadd_ps(left, right, *sum);
                        }
                    }
                }
            });
            for (line, sums) in sums.into_iter().enumerate() {
                for (at, sum) in sums.into_iter().enumerate() {
                    let target = c.wrapping_add(line * c_stride + at * 16);
                    // SAFETY: within the line of the sums.
                    let value = unsafe { _mm512_loadu_ps(target) };
                    let sum = _mm512_add_ps(value, sum);
                    // SAFETY: as above.
                    unsafe { _mm512_storeu_ps(target, sum) };
                }
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    fn bits(pairs: __m512i) -> __m512bh {
        // SAFETY: registers of one size; any bits are bf16.
        unsafe { std::mem::transmute(pairs) }
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use super::{Ahead, PARTS, QUAD};
    use std::arch::aarch64::{float32x4_t, vaddq_f32, vdupq_n_f32, vfmaq_f32, vld1q_f32, vst1q_f32};

    #[target_feature(enable = "neon")]
    fn zeros() -> float32x4_t {
        vdupq_n_f32(0.0)
    }

    kernel!(
        #[target_feature(enable = "neon")]
        singles_neon(f32, 1 deep, 4 x 4):
        zeros,
        // SAFETY: within the line.
        |at: *const u8| vdupq_n_f32(unsafe { at.cast::<f32>().read_unaligned() }),
        // SAFETY: within the slab.
        |at: *const f32| unsafe { vld1q_f32(at) },
        |left, right, sum| vfmaq_f32(sum, left, right), vld1q_f32, vaddq_f32, vst1q_f32
    );
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn widened_lines_give_the_bits_of_pairs() {
        if !Isa::Avx512Bf16.is_available() {
            return;
        }
        let numbers = |len: usize, seed: usize| -> Vec<f32> {
            let number = |at: usize| (((at + seed) * 7919) % 1009) as f32 / 997.0 - 0.5;
            (0..len).map(|at| bf16::from_f32(if at % 13 == 0 { 0.0 } else { number(at) }).to_f32()).collect()
        };
        let bits =
            |values: &[f32]| values.iter().map(|value| (value.to_bits() >> 16) as u16).collect::<Vec<_>>();
        for (lines, words) in (1..LINES).flat_map(|lines| [1, 4, 7, 64, 126, RUN].map(|words| (lines, words)))
        {
            let (left, slab) = (numbers(lines * 2 * words, 1), bits(&numbers(words * WIDTH * 2, 2)));
            let pairs = bits(&left);
            let sums = |lines_of: Lines<'_>| {
                let mut values = vec![0.25; lines * WIDTH];
                let packed = PackedBlock { lines: lines_of, slab: &slab, words };
                let mut sums = Sums { values: &mut values, stride: WIDTH, lines };
                add_pairs(Isa::Avx512Bf16, &packed, &mut sums, &mut Ahead::default());
                values.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
            };
            let expected = sums(Lines::Words(Rows::in_slice(&pairs, 2 * words, lines, 2 * words)));
            let found = sums(Lines::Widened(Rows::in_slice(&left, 2 * words, lines, 2 * words)));
            assert!(found == expected, "{lines} lines of {words} words");
        }
    }
}
