//! Signs of numbers as bits.

use crate::Tiles;
use crate::elementwise::kernels::blocks;
use crate::lane::{BLOCK, Lane};
use crate::view::StridedView;

/// Bit `i % 8` of byte `i / 8` is set if element `i` is at least 0.
///
/// # Shapes
///
/// `x: [n]`, `out`: n / 8 bytes, rounded up.
pub(crate) fn pack_signs(tiles: &dyn Tiles, x: &StridedView, out: &StridedView) {
    let (elems, x, out) = (x.len(), x.collapsed(), out.collapsed());
    blocks(tiles, out.len(), &|first, count| {
        let (mut values, mut bytes) = ([-1f32; 8 * BLOCK], [0u8; BLOCK]);
        let known = (elems - 8 * first).min(8 * count);
        f32::load(&x, 8 * first, &mut values[..known]);
        values[known..].fill(-1.0);
        for (byte, signs) in bytes.iter_mut().zip(values.chunks(8)).take(count) {
            *byte =
                signs.iter().enumerate().fold(0, |byte, (bit, sign)| byte | u8::from(*sign >= 0.0) << bit);
        }
        out.write(first, &bytes[..count]);
    });
}

/// Inverts [`pack_signs`]: bits become 1 or -1.
///
/// # Shapes
///
/// `x: [n]`, `out`: 8 n elements.
pub(crate) fn unpack_signs(tiles: &dyn Tiles, x: &StridedView, out: &StridedView) {
    let (x, out) = (x.collapsed(), out.collapsed());
    blocks(tiles, x.len(), &|first, count| {
        let (mut bytes, mut values) = ([0u8; BLOCK], [0f32; 8 * BLOCK]);
        x.read(first, &mut bytes[..count]);
        for (signs, byte) in values.chunks_mut(8).zip(&bytes[..count]) {
            signs
                .iter_mut()
                .enumerate()
                .for_each(|(bit, sign)| *sign = if byte >> bit & 1 == 1 { 1.0 } else { -1.0 });
        }
        f32::store(&out, 8 * first, &values[..8 * count]);
    });
}
