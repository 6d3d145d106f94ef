//! Elementwise kernels: inputs broadcast to the output.
//!
//! Each element is rounded once. A block is read whole before it is written, so input and output
//! may be the same view.

use crate::Tiles;
use crate::dtype::AclType;
use crate::lane::{BLOCK, Lane, with_lane};
use crate::view::StridedView;

/// A multiple of [`BLOCK`], tens of microseconds of work.
const TILE: usize = 32 * BLOCK;

/// Blocks have at most [`BLOCK`] positions of `0..total`.
pub(crate) fn blocks(tiles: &dyn Tiles, total: usize, body: &(dyn Fn(usize, usize) + Sync)) {
    blocks_with(tiles, total, || (), |(), start, len| body(start, len));
}

/// Works like [`blocks`]; each tile creates its buffers once.
pub(crate) fn blocks_with<B>(
    tiles: &dyn Tiles,
    total: usize,
    buffers: impl Fn() -> B + Sync,
    body: impl Fn(&mut B, usize, usize) + Sync,
) {
    tiles.run(total.div_ceil(TILE), &|tile| {
        let mut buffers = buffers();
        let end = total.min((tile + 1) * TILE);
        for start in (tile * TILE..end).step_by(BLOCK) {
            body(&mut buffers, start, BLOCK.min(end - start));
        }
    });
}

pub(crate) fn buffers<L: Lane, const COUNT: usize>() -> [[L; BLOCK]; COUNT] {
    [[L::default(); BLOCK]; COUNT]
}

/// Computes `out = f(x)`; `f` rewrites a block in place.
pub(crate) fn map1<L: Lane>(
    tiles: &dyn Tiles,
    x: &StridedView,
    out: &StridedView,
    f: impl Fn(&mut [L]) + Sync,
) {
    let (x, total) = (x.broadcast_to(out.dims()).collapsed(), out.len());
    let out = out.collapsed();
    blocks_with(tiles, total, buffers, |[a]: &mut [_; 1], start, len| {
        L::load(&x, start, &mut a[..len]);
        f(&mut a[..len]);
        L::store(&out, start, &a[..len]);
    });
}

/// Computes `out = f(a, b)`; `f` rewrites `a` in place.
pub(crate) fn map2<L: Lane>(
    tiles: &dyn Tiles,
    a: &StridedView,
    b: &StridedView,
    out: &StridedView,
    f: impl Fn(&mut [L], &[L]) + Sync,
) {
    let (a, b) = (a.broadcast_to(out.dims()).collapsed(), b.broadcast_to(out.dims()).collapsed());
    let total = out.len();
    let out = out.collapsed();
    blocks_with(tiles, total, buffers, |[x, y]: &mut [_; 2], start, len| {
        L::load(&a, start, &mut x[..len]);
        L::load(&b, start, &mut y[..len]);
        f(&mut x[..len], &y[..len]);
        L::store(&out, start, &x[..len]);
    });
}

/// Computes `out = f(a, b, c)`; `f` rewrites `a` in place.
pub(crate) fn map3<L: Lane>(
    tiles: &dyn Tiles,
    [a, b, c]: [&StridedView; 3],
    out: &StridedView,
    f: impl Fn(&mut [L], &[L], &[L]) + Sync,
) {
    let [a, b, c] = [a, b, c].map(|view| view.broadcast_to(out.dims()).collapsed());
    let total = out.len();
    let out = out.collapsed();
    blocks_with(tiles, total, buffers, |[x, y, z]: &mut [_; 3], start, len| {
        L::load(&a, start, &mut x[..len]);
        L::load(&b, start, &mut y[..len]);
        L::load(&c, start, &mut z[..len]);
        f(&mut x[..len], &y[..len], &z[..len]);
        L::store(&out, start, &x[..len]);
    });
}

/// Computes `out = f(values)`, one value of each view; `finish` rewrites blocks.
pub(crate) fn map_all<L: Lane, const N: usize>(
    tiles: &dyn Tiles,
    views: [&StridedView; N],
    out: &StridedView,
    f: impl Fn([L; N]) -> L + Sync,
    finish: impl Fn(&mut [L]) + Sync,
) {
    let views = views.map(|view| view.broadcast_to(out.dims()).collapsed());
    let total = out.len();
    let out = out.collapsed();
    blocks_with(
        tiles,
        total,
        || (buffers::<L, N>(), [L::default(); BLOCK]),
        |(buffers, results), start, len| {
            for (view, buffer) in views.iter().zip(buffers.iter_mut()) {
                L::load(view, start, &mut buffer[..len]);
            }
            for (i, result) in results[..len].iter_mut().enumerate() {
                *result = f(std::array::from_fn(|operand| buffers[operand][i]));
            }
            finish(&mut results[..len]);
            L::store(&out, start, &results[..len]);
        },
    );
}

pub(crate) fn zip<L: Lane>(a: &mut [L], b: &[L], f: impl Fn(L, L) -> L) {
    for (x, &y) in a.iter_mut().zip(b) {
        *x = f(*x, y);
    }
}

pub(crate) fn zip3<L: Lane>(a: &mut [L], b: &[L], c: &[L], f: impl Fn(L, L, L) -> L) {
    for ((x, &y), &z) in a.iter_mut().zip(b).zip(c) {
        *x = f(*x, y, z);
    }
}

pub(crate) fn each<L: Lane>(a: &mut [L], f: impl Fn(L) -> L) {
    for x in a {
        *x = f(*x);
    }
}

/// Computes `out = condition ? a : b`, converted to the type of `out`.
pub(crate) fn select(
    tiles: &dyn Tiles,
    condition: &StridedView,
    a: &StridedView,
    b: &StridedView,
    out: &StridedView,
    common: AclType,
) {
    let cast = |view: &StridedView| view.broadcast_to(out.dims()).collapsed();
    let (condition, a, b) = (cast(condition), cast(a), cast(b));
    let total = out.len();
    let out = out.collapsed();
    with_lane!(common, L => blocks(tiles, total, &|start, len| {
        let (mut x, mut y, mut c) = ([L::default(); BLOCK], [L::default(); BLOCK], [0i64; BLOCK]);
        L::load(&a, start, &mut x[..len]);
        L::load(&b, start, &mut y[..len]);
        i64::load(&condition, start, &mut c[..len]);
        for i in 0..len {
            x[i] = if c[i] != 0 { x[i] } else { y[i] };
        }
        L::store(&out, start, &x[..len]);
    }));
}

/// Computes `out[i] = value` where `mask[i]` is nonzero.
pub(crate) fn masked_fill<L: Lane>(tiles: &dyn Tiles, out: &StridedView, mask: &StridedView, value: L) {
    let mask = mask.broadcast_to(out.dims()).collapsed();
    let total = out.len();
    let out = out.collapsed();
    let block = [value; BLOCK];
    blocks(tiles, total, &|start, len| {
        let mut m = [0i64; BLOCK];
        i64::load(&mask, start, &mut m[..len]);
        let mut at = start;
        for run in m[..len].chunk_by(|a, b| (*a != 0) == (*b != 0)) {
            if run[0] != 0 {
                L::store(&out, at, &block[..run.len()]);
            }
            at += run.len();
        }
    });
}

pub(crate) fn fill<L: Lane>(tiles: &dyn Tiles, out: &StridedView, value: L) {
    let total = out.len();
    let out = out.collapsed();
    let block = [value; BLOCK];
    blocks(tiles, total, &|start, len| L::store(&out, start, &block[..len]));
}

/// Stores a real number in each element of `COMPLEX64`.
pub(crate) fn fill_complex(tiles: &dyn Tiles, out: &StridedView, value: f64) {
    let (parts, last) = (out.parts(), out.rank());
    fill(tiles, &parts.at(last, 0), value as f32);
    fill(tiles, &parts.at(last, 1), 0f32);
}

/// Broadcasts and converts; equal types keep the exact bits.
pub(crate) fn copy(tiles: &dyn Tiles, src: &StridedView, out: &StridedView) {
    let (total, source) = (out.len(), src.broadcast_to(out.dims()).collapsed());
    let target = out.collapsed();
    let bits = |body: &(dyn Fn(usize, usize) + Sync)| blocks(tiles, total, body);
    if src.dtype() == out.dtype() {
        match out.dtype().size() {
            1 => bits(&|start, len| copy_bits::<u8>(&source, &target, start, len)),
            2 => bits(&|start, len| copy_bits::<u16>(&source, &target, start, len)),
            4 => bits(&|start, len| copy_bits::<u32>(&source, &target, start, len)),
            _ => bits(&|start, len| copy_bits::<u64>(&source, &target, start, len)),
        }
    } else {
        // The store rounds once.
        with_lane!(src.dtype(), L => bits(&|start, len| {
            let mut a = [L::default(); BLOCK];
            L::load(&source, start, &mut a[..len]);
            L::store(&target, start, &a[..len]);
        }));
    }
}

fn copy_bits<T: crate::raw::Pod>(source: &StridedView, target: &StridedView, start: usize, len: usize) {
    let mut buffer = [T::default(); BLOCK];
    source.read(start, &mut buffer[..len]);
    target.write(start, &buffer[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;
    use crate::raw::tests::span_of;

    #[test]
    fn broadcast_addition_of_strided_views() {
        let (mut a, mut b, mut c) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [10f32, 20.0], [0f32; 6]);
        let x = StridedView::new(span_of(&mut a), AclType::F32, &[2, 3], &[1, 2], 0).unwrap();
        let y = StridedView::new(span_of(&mut b), AclType::F32, &[2, 1], &[1, 1], 0).unwrap();
        let out = StridedView::new(span_of(&mut c), AclType::F32, &[2, 3], &[3, 1], 0).unwrap();
        map2::<f32>(&Serial, &x, &y, &out, |p, q| zip(p, q, |p, q| p + q));
        assert_eq!(c, [11.0, 13.0, 15.0, 22.0, 24.0, 26.0]);
    }

    #[test]
    fn copies_keep_the_bits_of_nan() {
        let mut a = [f32::from_bits(0x7fc0_1234), f32::from_bits(0xffa0_0001)];
        let mut b = [0f32; 2];
        let x = StridedView::new(span_of(&mut a), AclType::F32, &[2], &[1], 0).unwrap();
        let y = StridedView::new(span_of(&mut b), AclType::F32, &[2], &[1], 0).unwrap();
        copy(&Serial, &x, &y);
        assert_eq!(b.map(f32::to_bits), [0x7fc0_1234, 0xffa0_0001]);
    }

    #[test]
    fn many_blocks_and_tiles_cover_every_element() {
        let n = 3 * TILE + 17;
        let mut a: Vec<i32> = (0..n as i32).collect();
        let x = StridedView::new(span_of(&mut a), AclType::I32, &[n], &[1], 0).unwrap();
        map1::<i64>(&Serial, &x, &x, |block| each(block, |v| v * 3));
        assert!(a.iter().enumerate().all(|(i, &v)| v == i as i32 * 3));
    }

    #[test]
    fn masks_select_and_fill() {
        let (mut x, mut m) = ([1f32, 2.0, 3.0, 4.0], [1u8, 0]);
        let view = StridedView::new(span_of(&mut x), AclType::F32, &[2, 2], &[2, 1], 0).unwrap();
        let mask = StridedView::new(span_of(&mut m), AclType::Bool, &[2], &[1], 0).unwrap();
        masked_fill(&Serial, &view, &mask, -1f32);
        assert_eq!(x, [-1.0, 2.0, -1.0, 4.0]);
    }
}
