//! Matrix product of strided, batched views.
//!
//! Input: `a` of `[.., m, k]`, `b` of `[.., k, n]` whose batch dims broadcast to those of `out`, `[.., m, n]`.
//! Output: `out = a @ b`, accumulated in f32 over the whole of k by one thread and rounded once to the type of `out`.
//! Invariants: tiles split the output only and their sizes depend on shapes only, so the result does not depend on the
//! number of threads; k = 0 gives zeros.

use super::Tiles;
use super::dtype::DType;
use super::elementwise;
use super::lane::Lane;
use super::raw::{Into, Matrix, MatrixMut, gemm_f32};
use super::view::View;

/// Rows of an output tile.
const TILE_ROWS: usize = 128;
/// Most columns of an output tile.
const TILE_COLS: usize = 256;
/// Elements of the right operand that a tile widens to f32 at a time: one megabyte, so that it stays in the cache.
const PANEL: usize = 256 * 1024;

/// What an f32 operand is rounded to before it is multiplied; operands of f16 and bf16 are not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// Not at all.
    Keep,
    /// The cube's 19-bit float: 8 bits of exponent, 10 of fraction.
    HalfFloat32,
    /// f16.
    Half,
}

impl Precision {
    fn apply(self, values: &mut [f32]) {
        match self {
            Self::Keep => {}
            Self::HalfFloat32 => {
                for value in values {
                    let bits = value.to_bits();
                    let rounded = bits.wrapping_add(0xfff + ((bits >> 13) & 1)) & !0x1fff;
                    *value = if value.is_finite() { f32::from_bits(rounded) } else { *value };
                }
            }
            Self::Half => {
                for value in values {
                    *value = value.rounded(DType::F16);
                }
            }
        }
    }
}

/// `out = a @ b`.
///
/// # Shapes
/// `a: [.., m, k]`, `b: [.., k, n]`, `out: [.., m, n]`, at least two dims each; batch dims broadcast to those of `out`.
pub(crate) fn matmul(tiles: &dyn Tiles, a: &View, b: &View, precision: Precision, out: &View) {
    if out.is_empty() {
        return;
    }
    let (m, n, k) = (out.dims()[out.rank() - 2], out.dims()[out.rank() - 1], a.dims()[a.rank() - 1]);
    if k == 0 {
        elementwise::fill(tiles, out, 0f32);
        return;
    }
    let batch_dims = &out.dims()[..out.rank() - 2];
    let whole = |view: &View| {
        let matrix = &view.dims()[view.rank() - 2..];
        view.broadcast_to(&[batch_dims, matrix].concat())
    };
    let (a, b) = (whole(a), whole(b));
    let batches: usize = batch_dims.iter().product();
    let cols = (PANEL / k).next_multiple_of(16).clamp(16, TILE_COLS);
    let (down, across) = (m.div_ceil(TILE_ROWS), n.div_ceil(cols));
    tiles.run(batches * down * across, &|tile| {
        let (batch, rest) = (tile / (down * across), tile % (down * across));
        let (row, col) = (rest / across * TILE_ROWS, rest % across * cols);
        let (height, width) = (TILE_ROWS.min(m - row), cols.min(n - col));
        let lhs = batch_of(&a, batch).slice(0, row, height, 1);
        let rhs = batch_of(&b, batch).slice(1, col, width, 1);
        let dst = batch_of(out, batch).slice(0, row, height, 1).slice(1, col, width, 1);
        multiply_tile(&lhs, &rhs, precision, &dst);
    });
}

/// The last two dims of a view at a position of its leading dims.
fn batch_of(view: &View, mut batch: usize) -> View {
    let mut matrix = view.clone();
    for dim in (0..view.rank() - 2).rev() {
        matrix = matrix.at(dim, batch % view.dims()[dim]);
        batch /= view.dims()[dim];
    }
    matrix
}

/// A matrix in place if it is f32 in aligned memory, else widened into `buffer`.
fn operand<'a>(view: &View, precision: Precision, buffer: &'a mut Vec<f32>) -> Matrix<'a> {
    let (extents, strides) = ((view.dims()[0], view.dims()[1]), (view.strides()[0], view.strides()[1]));
    if view.dtype() == DType::F32
        && precision == Precision::Keep
        && let Some(matrix) = Matrix::in_span(view.span(), view.start_byte(), extents, strides)
    {
        return matrix;
    }
    buffer.resize(view.len(), 0.0);
    // Reading along the smaller stride keeps the runs long.
    let transposed = strides.0.unsigned_abs() < strides.1.unsigned_abs();
    let source = if transposed { view.permute(&[1, 0]) } else { view.clone() };
    f32::load(&source.collapsed(), 0, buffer);
    if view.dtype() == DType::F32 {
        precision.apply(buffer);
    }
    if transposed {
        Matrix::in_slice(buffer, (extents.1, extents.0), extents.0).transposed()
    } else {
        Matrix::in_slice(buffer, extents, extents.1)
    }
}

fn multiply_tile(a: &View, b: &View, precision: Precision, out: &View) {
    let (mut wide_a, mut wide_b) = (Vec::new(), Vec::new());
    let (lhs, rhs) = (operand(a, precision, &mut wide_a), operand(b, precision, &mut wide_b));
    let extents = (out.dims()[0], out.dims()[1]);
    if out.dtype() == DType::F32
        && let Some(mut dst) =
            MatrixMut::in_span(out.span(), out.start_byte(), extents, (out.strides()[0], out.strides()[1]))
        && !dst.meets(&lhs)
        && !dst.meets(&rhs)
    {
        gemm_f32(&mut dst, lhs, rhs, Into::Overwrite);
        return;
    }
    let mut product = vec![0f32; out.len()];
    gemm_f32(&mut MatrixMut::in_slice(&mut product, extents, extents.1), lhs, rhs, Into::Overwrite);
    f32::store(&out.collapsed(), 0, &product);
}

/// `out = beta * c + alpha * (a @ b)`, with `c` broadcast to `out`.
pub(crate) fn addmm(
    tiles: &dyn Tiles,
    c: &View,
    a: &View,
    b: &View,
    (beta, alpha): (f32, f32),
    precision: Precision,
    out: &View,
) {
    // The product is kept in f32 so that the sum is rounded once.
    let mut product = vec![0f32; out.len()];
    let (m, n, k) = (out.dims()[0], out.dims()[1], a.dims()[1]);
    let (mut wide_a, mut wide_b) = (Vec::new(), Vec::new());
    if !out.is_empty() && k > 0 {
        let (lhs, rhs) = (operand(a, precision, &mut wide_a), operand(b, precision, &mut wide_b));
        gemm_f32(&mut MatrixMut::in_slice(&mut product, (m, n), n), lhs, rhs, Into::Overwrite);
    }
    let (c, target) = (c.broadcast_to(out.dims()).collapsed(), out.collapsed());
    let product = &product;
    elementwise::blocks(tiles, out.len(), &|start, len| {
        let mut block = vec![0f32; len];
        // With beta = 0 the values of c, even NaN, do not matter: as in BLAS.
        if beta != 0.0 {
            f32::load(&c, start, &mut block);
        }
        for (value, p) in block.iter_mut().zip(&product[start..start + len]) {
            *value = if beta == 0.0 { alpha * p } else { beta * *value + alpha * p };
        }
        f32::store(&target, start, &block);
    });
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::super::Serial;
    use super::super::raw::tests::span_of;
    use super::*;

    /// Small integers: sums are exact in f32 and, kept below 2048, in f16.
    fn pattern(n: usize, seed: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 7 + seed * 13) % 5) as f32 - 2.0).collect()
    }

    fn naive(a: &[f32], b: &[f32], (m, n, k): (usize, usize, usize)) -> Vec<f32> {
        let mut out = vec![0f32; m * n];
        for i in 0..m {
            for j in 0..n {
                out[i * n + j] = (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
            }
        }
        out
    }

    #[test]
    fn agrees_with_the_definition_for_many_shapes_and_types() {
        for &(m, n, k) in &[(1, 1, 1), (1, 300, 7), (5, 1, 64), (3, 17, 129), (130, 260, 33), (129, 40, 1)] {
            let (a, b) = (pattern(m * k, 1), pattern(k * n, 2));
            let expected = naive(&a, &b, (m, n, k));
            for transposed in [false, true] {
                // b is stored as [n, k] when transposed, as weights are.
                let stored: Vec<f32> =
                    if transposed { (0..n * k).map(|i| b[i % k * n + i / k]).collect() } else { b.clone() };
                let strides: [isize; 2] = if transposed { [1, k as isize] } else { [n as isize, 1] };
                let (mut a32, mut b32, mut c32) = (a.clone(), stored.clone(), vec![f32::NAN; m * n]);
                let va = View::new(span_of(&mut a32), DType::F32, &[m, k], &[k as isize, 1], 0).unwrap();
                let vb = View::new(span_of(&mut b32), DType::F32, &[k, n], &strides, 0).unwrap();
                let vc = View::new(span_of(&mut c32), DType::F32, &[m, n], &[n as isize, 1], 0).unwrap();
                matmul(&Serial, &va, &vb, Precision::Keep, &vc);
                assert_eq!(c32, expected, "f32 {m} {n} {k} {transposed}");

                let half = |v: &[f32]| v.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>();
                let (mut a16, mut b16, mut c16) = (half(&a), half(&stored), vec![f16::NAN; m * n]);
                let va = View::new(span_of(&mut a16), DType::F16, &[m, k], &[k as isize, 1], 0).unwrap();
                let vb = View::new(span_of(&mut b16), DType::F16, &[k, n], &strides, 0).unwrap();
                let vc = View::new(span_of(&mut c16), DType::F16, &[m, n], &[n as isize, 1], 0).unwrap();
                matmul(&Serial, &va, &vb, Precision::Keep, &vc);
                assert_eq!(c16, half(&expected), "f16 {m} {n} {k} {transposed}");
            }
        }
    }

    #[test]
    fn batches_broadcast_and_outputs_may_be_strided() {
        let (mut a, mut b) = (pattern(2 * 3 * 4, 3), pattern(4 * 5, 4));
        let mut c = vec![9f32; 2 * 5 * 3];
        let va = View::new(span_of(&mut a), DType::F32, &[2, 3, 4], &[12, 4, 1], 0).unwrap();
        let vb = View::new(span_of(&mut b), DType::F32, &[1, 4, 5], &[0, 5, 1], 0).unwrap();
        // The output is the transpose of a [2, 5, 3] tensor.
        let vc = View::new(span_of(&mut c), DType::F32, &[2, 3, 5], &[15, 1, 3], 0).unwrap();
        matmul(&Serial, &va, &vb, Precision::Keep, &vc);
        for batch in 0..2 {
            let expected = naive(&a[batch * 12..batch * 12 + 12], &b, (3, 5, 4));
            for i in 0..3 {
                for j in 0..5 {
                    assert_eq!(c[batch * 15 + j * 3 + i], expected[i * 5 + j]);
                }
            }
        }
    }

    #[test]
    fn reduced_precision_rounds_the_operands() {
        let mut values =
            [1.0 + 1.0 / 4096.0, 1.0 + 1.0 / 1024.0, 1.0 + 1.0 / 2048.0 + 1.0 / 65536.0, 1e30, f32::INFINITY];
        Precision::HalfFloat32.apply(&mut values);
        assert_eq!(values[..3], [1.0, 1.0 + 1.0 / 1024.0, 1.0 + 1.0 / 1024.0]);
        assert!((values[3] - 1e30).abs() < 1e27 && values[4] == f32::INFINITY);
        Precision::Half.apply(&mut values);
        assert_eq!(values[3], f32::INFINITY, "1e30 is beyond f16");
    }

    #[test]
    fn an_empty_contraction_gives_zeros() {
        let mut c = [5f32; 6];
        let empty = |dims: &[usize]| View::new(span_of(&mut [0f32; 0]), DType::F32, dims, &[1, 1], 0).unwrap();
        let vc = View::new(span_of(&mut c), DType::F32, &[2, 3], &[3, 1], 0).unwrap();
        matmul(&Serial, &empty(&[2, 0]), &empty(&[0, 3]), Precision::Keep, &vc);
        assert_eq!(c, [0.0; 6]);
    }

    #[test]
    fn an_output_among_its_operands_is_computed_from_whole_tiles() {
        // Columns 0..2 hold a, columns 2..4 receive the product: the ranges meet, the elements do not.
        let mut memory: Vec<f32> = vec![1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0];
        let mut b = vec![1f32, 1.0, 0.0, 1.0];
        let span = span_of(&mut memory);
        let va = View::new(span, DType::F32, &[2, 2], &[4, 1], 0).unwrap();
        let vc = View::new(span, DType::F32, &[2, 2], &[4, 1], 2).unwrap();
        let vb = View::new(span_of(&mut b), DType::F32, &[2, 2], &[2, 1], 0).unwrap();
        matmul(&Serial, &va, &vb, Precision::Keep, &vc);
        assert_eq!(memory, [1.0, 2.0, 1.0, 3.0, 3.0, 4.0, 3.0, 7.0]);
    }

    #[test]
    fn addmm_scales_both_terms_and_ignores_c_when_beta_is_zero() {
        let (mut c, mut a, mut b, mut out) = ([10f32, f32::NAN], [1f32, 2.0], [3f32, 4.0, 5.0, 6.0], [0f32; 2]);
        let vc = View::new(span_of(&mut c), DType::F32, &[2], &[1], 0).unwrap();
        let va = View::new(span_of(&mut a), DType::F32, &[1, 2], &[2, 1], 0).unwrap();
        let vb = View::new(span_of(&mut b), DType::F32, &[2, 2], &[2, 1], 0).unwrap();
        let vo = View::new(span_of(&mut out), DType::F32, &[1, 2], &[2, 1], 0).unwrap();
        addmm(&Serial, &vc, &va, &vb, (0.0, 2.0), Precision::Keep, &vo);
        assert_eq!(out, [26.0, 32.0]);
        let mut finite = [10f32, 20.0];
        let vc = View::new(span_of(&mut finite), DType::F32, &[2], &[1], 0).unwrap();
        addmm(&Serial, &vc, &va, &vb, (0.5, 1.0), Precision::Keep, &vo);
        assert_eq!(out, [18.0, 26.0]);
    }
}
