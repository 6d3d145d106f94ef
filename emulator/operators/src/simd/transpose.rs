//! Transposition of blocks of 16 x 16 words of 32 bits.
#![expect(unsafe_code, reason = "vector instructions, and pairs of 16 bits read as words")]

use crate::raw::Pod;
use crate::simd::isa::Isa;

/// Columns of a slab of a product.
pub(crate) const WIDTH: usize = 64;

pub(crate) const SIDE: usize = 16;

/// `to[j][i] = from[i][j]` in words. Strides count elements of `T`; a word has one or two.
pub(crate) fn transpose<T: Pod>(isa: Isa, from: &[T], from_stride: usize, to: &mut [T], to_stride: usize) {
    let depth = size_of::<u32>() / size_of::<T>();
    let needed = |stride: usize| (SIDE - 1) * stride + SIDE * depth;
    assert!(
        depth * size_of::<T>() == size_of::<u32>()
            && from.len() >= needed(from_stride)
            && to.len() >= needed(to_stride)
    );
    #[cfg(target_arch = "x86_64")]
    if matches!(isa, Isa::Avx512 | Isa::Avx512Bf16) {
        // SAFETY: the lengths were checked, and the instructions are available.
        unsafe { avx512(from.as_ptr(), from_stride, to.as_mut_ptr(), to_stride) };
        return;
    }
    #[cfg(target_arch = "aarch64")]
    if isa == Isa::Neon {
        // SAFETY: the lengths were checked, and the instructions are available.
        unsafe { neon(from.as_ptr(), from_stride, to.as_mut_ptr(), to_stride) };
        return;
    }
    let _ = isa;
    for row in 0..SIDE {
        for column in 0..SIDE {
            let (source, target) = (row * from_stride + column * depth, column * to_stride + row * depth);
            to[target..target + depth].copy_from_slice(&from[source..source + depth]);
        }
    }
}

/// # Safety
///
/// The block is readable at `from` and writable at `to`; AVX-512 is available.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512<T>(from: *const T, from_stride: usize, to: *mut T, to_stride: usize) {
    use std::arch::x86_64::{_mm512_loadu_si512, _mm512_setzero_si512, _mm512_storeu_si512};
    let mut rows = [_mm512_setzero_si512(); SIDE];
    for (row, value) in rows.iter_mut().enumerate() {
        // SAFETY: a row of the block.
        *value = unsafe { _mm512_loadu_si512(from.wrapping_add(row * from_stride).cast()) };
    }
    for (column, value) in x86::words_512(rows).into_iter().enumerate() {
        // SAFETY: a row of the transposed block.
        unsafe { _mm512_storeu_si512(to.wrapping_add(column * to_stride).cast(), value) };
    }
}

/// # Safety
///
/// The block is readable at `from` and writable at `to`; NEON is available.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn neon<T>(from: *const T, from_stride: usize, to: *mut T, to_stride: usize) {
    use std::arch::aarch64::{vdupq_n_f32, vld1q_u8, vreinterpretq_f32_u8, vreinterpretq_u8_f32, vst1q_u8};
    let depth = size_of::<f32>() / size_of::<T>();
    for (row, column) in
        (0..SIDE).step_by(4).flat_map(|row| (0..SIDE).step_by(4).map(move |column| (row, column)))
    {
        let mut rows = [vdupq_n_f32(0.0); 4];
        for (line, value) in rows.iter_mut().enumerate() {
            let source = from.wrapping_add((row + line) * from_stride + column * depth).cast();
            // SAFETY: four words of a row of the block.
            *value = vreinterpretq_f32_u8(unsafe { vld1q_u8(source) });
        }
        for (line, value) in aarch64::turned(rows).into_iter().enumerate() {
            let target = to.wrapping_add((column + line) * to_stride + row * depth).cast();
            let bytes = vreinterpretq_u8_f32(value);
            // SAFETY: four words of a row of the transposed block.
            unsafe { vst1q_u8(target, bytes) };
        }
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) mod aarch64 {
    use std::arch::aarch64::{
        float32x4_t, vreinterpretq_f32_f64, vreinterpretq_f64_f32, vtrn1q_f32, vtrn1q_f64, vtrn2q_f32,
        vtrn2q_f64,
    };

    #[inline]
    #[target_feature(enable = "neon")]
    pub(in crate::simd) fn turned(rows: [float32x4_t; 4]) -> [float32x4_t; 4] {
        let [a, b, c, d] = rows;
        let (even_ab, odd_ab) =
            (vreinterpretq_f64_f32(vtrn1q_f32(a, b)), vreinterpretq_f64_f32(vtrn2q_f32(a, b)));
        let (even_cd, odd_cd) =
            (vreinterpretq_f64_f32(vtrn1q_f32(c, d)), vreinterpretq_f64_f32(vtrn2q_f32(c, d)));
        [
            vreinterpretq_f32_f64(vtrn1q_f64(even_ab, even_cd)),
            vreinterpretq_f32_f64(vtrn1q_f64(odd_ab, odd_cd)),
            vreinterpretq_f32_f64(vtrn2q_f64(even_ab, even_cd)),
            vreinterpretq_f32_f64(vtrn2q_f64(odd_ab, odd_cd)),
        ]
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use std::arch::x86_64::{
        __m512i, _mm512_shuffle_i32x4, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
        _mm512_unpacklo_epi64,
    };

    /// First pairs of rows by words, then pairs of pairs by two words, then register quarters.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in crate::simd) fn words_512(rows: [__m512i; 16]) -> [__m512i; 16] {
        let mut twos = rows;
        for i in 0..8 {
            twos[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
            twos[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
        }
        let mut fours = twos;
        for i in 0..4 {
            fours[4 * i] = _mm512_unpacklo_epi64(twos[4 * i], twos[4 * i + 2]);
            fours[4 * i + 1] = _mm512_unpackhi_epi64(twos[4 * i], twos[4 * i + 2]);
            fours[4 * i + 2] = _mm512_unpacklo_epi64(twos[4 * i + 1], twos[4 * i + 3]);
            fours[4 * i + 3] = _mm512_unpackhi_epi64(twos[4 * i + 1], twos[4 * i + 3]);
        }
        let mut columns = fours;
        for i in 0..4 {
            let (a, b, c, d) = (fours[i], fours[4 + i], fours[8 + i], fours[12 + i]);
            let (ab_even, ab_odd) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
            let (cd_even, cd_odd) = (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
            columns[i] = _mm512_shuffle_i32x4::<0x88>(ab_even, cd_even);
            columns[4 + i] = _mm512_shuffle_i32x4::<0x88>(ab_odd, cd_odd);
            columns[8 + i] = _mm512_shuffle_i32x4::<0xdd>(ab_even, cd_even);
            columns[12 + i] = _mm512_shuffle_i32x4::<0xdd>(ab_odd, cd_odd);
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_change_places_for_every_instruction_set() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let from: Vec<u32> = (0..SIDE as u32 * 20).collect();
            let mut to = vec![0; SIDE * 17];
            transpose(isa, &from, 20, &mut to, 17);
            for (row, column) in (0..SIDE * SIDE).map(|at| (at / SIDE, at % SIDE)) {
                assert_eq!(to[column * 17 + row], from[row * 20 + column], "{isa} {row} {column}");
            }
            let pairs: Vec<u16> = (0..2 * (SIDE * SIDE) as u16).collect();
            let mut to = vec![0; 2 * SIDE * SIDE];
            transpose(isa, &pairs, 2 * SIDE, &mut to, 2 * SIDE);
            assert_eq!(to[2 * (3 * SIDE + 5)..][..2], pairs[2 * (5 * SIDE + 3)..][..2], "{isa}");
        }
    }
}
