//! Matrix product of strided, batched views.
//!
//! - Shapes: `a: [.., m, k]`, `b: [.., k, n]`, `out: [.., m, n]`; batch dims broadcast to `out`.
//! - One thread accumulates each element in f32 and rounds once.
//! - Products along k are added in the order of [`RUN`], fused where the instruction set supports
//!   it. Shapes, strides, tiles and threads never change the bits.
//!
//! Few vectors times rows that are contiguous along k, as in decode, read the rows in place
//! ([`crate::simd::dot`]). Other products are packed ([`crate::matmul::panel`]) and multiplied in
//! blocks ([`crate::simd::block`]). Up to [`SOME_ROWS`] left rows, as in batched decode, share each
//! slab of right rows while it is in a cache (`slabs`). bf16 stays bf16 if the CPU multiplies bf16
//! pairs; otherwise it is widened, like f16.

use std::cell::RefCell;
use std::ops::Range;

use crate::Tiles;
use crate::dtype::AclType;
use crate::lane::Lane;
use crate::matmul::panel::{PanelElement, PanelPacking, PanelScratch, add_product, line_stride, sized};
pub(crate) use crate::matmul::precision::OperandRounding;
use crate::simd::block::{LINES, RUN, WIDTH};
use crate::simd::dot::{self, MOST_VECTORS, Vectors};
use crate::simd::isa::{Isa, isa};
use crate::simd::pack::PackSource;
use crate::view::StridedView;

/// Large, because each tile packs its right operand once.
const TILE_ROWS: usize = 68 * LINES;
/// Sums and both packed blocks fit the second-level cache.
const TILE_COLS: usize = 3 * WIDTH;
/// Tiles are halved until about this many exist.
const ENOUGH_TILES: usize = 16;
/// Maximum left rows for the in-place path.
const FEW_ROWS: usize = MOST_VECTORS;
/// Maximum left rows of [`MatmulPath::Slabs`]. Their runs fit the second-level cache.
const SOME_ROWS: usize = 384;
/// Bytes per tile of dot products. Long reads use memory bandwidth better; small operands are split
/// into [`DOT_TILES`].
const DOT_TILE_BYTES: (usize, usize) = (64 << 10, 512 << 10);
/// Within the limits of [`DOT_TILE_BYTES`].
const DOT_TILES: usize = 16;

/// Computes `out = a @ b`, with broadcast batch dims.
pub(crate) fn matmul(
    tiles: &dyn Tiles,
    a: &StridedView,
    b: &StridedView,
    precision: OperandRounding,
    out: &StridedView,
) {
    product(tiles, isa(), &ProductJob { a, b, precision, sum: None, out });
}

/// Factors of the addend and of the product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SumScales {
    pub(crate) beta: f32,
    pub(crate) alpha: f32,
}

impl SumScales {
    /// Scales of the plain sum.
    pub(crate) const ONE: Self = Self { beta: 1.0, alpha: 1.0 };
}

/// Computes `out = beta * c + alpha * (a @ b)`, with `c` broadcast to `out`; rounds once.
pub(crate) fn addmm(
    tiles: &dyn Tiles,
    c: &StridedView,
    a: &StridedView,
    b: &StridedView,
    scales: SumScales,
    precision: OperandRounding,
    out: &StridedView,
) {
    let c = c.broadcast_to(out.dims());
    product(tiles, isa(), &ProductJob { a, b, precision, sum: Some(AddedMatrix { c: &c, scales }), out });
}

#[derive(Clone, Copy)]
struct ProductJob<'a> {
    a: &'a StridedView,
    b: &'a StridedView,
    precision: OperandRounding,
    sum: Option<AddedMatrix<'a>>,
    out: &'a StridedView,
}

#[derive(Clone, Copy)]
struct AddedMatrix<'a> {
    c: &'a StridedView,
    scales: SumScales,
}

impl AddedMatrix<'_> {
    fn apply(&self, c: &StridedView, values: &mut [f32]) {
        let SumScales { beta, alpha } = self.scales;
        // As in BLAS, beta = 0 ignores even NaN in c.
        if beta == 0.0 {
            values.iter_mut().for_each(|value| *value *= alpha);
            return;
        }
        let mut addend = vec![0f32; values.len()];
        f32::load(&c.collapsed(), 0, &mut addend);
        for (value, c) in values.iter_mut().zip(addend) {
            *value = beta * c + alpha * *value;
        }
    }
}

struct BatchProduct {
    a: StridedView,
    /// `[n, k]`: the contracted dim is last.
    b: StridedView,
    c: Option<StridedView>,
    /// The result, `[m, n]`, like `c`.
    out: StridedView,
}

impl ProductJob<'_> {
    fn parts(&self) -> Vec<BatchProduct> {
        let batch_dims = &self.out.dims()[..self.out.rank() - 2];
        let whole =
            |view: &StridedView| view.broadcast_to(&[batch_dims, &view.dims()[view.rank() - 2..]].concat());
        let (a, b) = (whole(self.a), whole(self.b));
        (0..batch_dims.iter().product())
            .map(|batch| BatchProduct {
                a: batch_of(&a, batch),
                b: batch_of(&b, batch).permute(&[1, 0]),
                c: self.sum.map(|sum| batch_of(sum.c, batch)),
                out: batch_of(self.out, batch),
            })
            .collect()
    }

    /// Stores the block of these rows and columns.
    fn finish(&self, part: &BatchProduct, rows: &Range<usize>, cols: &Range<usize>, sums: &mut [f32]) {
        let block =
            |view: &StridedView| view.slice(0, rows.start, rows.len(), 1).slice(1, cols.start, cols.len(), 1);
        if let (Some(sum), Some(c)) = (self.sum, &part.c) {
            sum.apply(&block(c), sums);
        }
        f32::store(&block(&part.out).collapsed(), 0, sums);
    }
}

fn batch_of(view: &StridedView, mut batch: usize) -> StridedView {
    let mut matrix = view.clone();
    for dim in (0..view.rank() - 2).rev() {
        matrix = matrix.at(dim, batch % view.dims()[dim]);
        batch /= view.dims()[dim];
    }
    matrix
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatmulPath {
    /// Reads right rows in place, for a few left rows.
    Dots(dot::RowElement),
    /// Packs right rows one slab at a time, for all left rows.
    Slabs(PackSource),
    Blocks,
}

impl MatmulPath {
    /// Words are of `T`.
    fn of<T: ProductElement>(isa: Isa, part: &BatchProduct, precision: OperandRounding) -> Self {
        let (m, k) = (part.a.dims()[0], part.b.dims()[1]);
        let is_along_k = part.b.strides()[1] == 1 || k == 1;
        let is_as_it_lies = part.b.dtype() != AclType::F32 || precision == OperandRounding::Keep;
        match dot::RowElement::of(part.b.dtype()) {
            Some(element) if m <= FEW_ROWS && is_along_k && is_as_it_lies => Self::Dots(element),
            _ => PanelPacking { isa, precision }
                .in_place::<T>(&part.b)
                .filter(|_| m <= SOME_ROWS)
                .map_or(Self::Blocks, Self::Slabs),
        }
    }
}

fn product_of<T: ProductElement>(tiles: &dyn Tiles, isa: Isa, job: &ProductJob<'_>, parts: &[BatchProduct]) {
    match MatmulPath::of::<T>(isa, &parts[0], job.precision) {
        MatmulPath::Dots(element) => dots::<T>(tiles, isa, job, parts, element),
        MatmulPath::Slabs(source) => slabs::product::<T>(tiles, isa, job, parts, source),
        MatmulPath::Blocks => blocks::<T>(tiles, isa, job, parts),
    }
}

fn product(tiles: &dyn Tiles, isa: Isa, job: &ProductJob<'_>) {
    let out = job.out;
    if out.is_empty() {
        return;
    }
    let (m, n) = (out.dims()[out.rank() - 2], out.dims()[out.rank() - 1]);
    if n == 1 && m > 1 {
        // A matrix times a vector is the vector times the transposed matrix.
        let (a, b, out) = (job.b.exchanged(), job.a.exchanged(), job.out.exchanged());
        let c = job.sum.map(|sum| sum.c.exchanged());
        let sum = job.sum.zip(c.as_ref()).map(|(sum, c)| AddedMatrix { c, ..sum });
        product(tiles, isa, &ProductJob { a: &a, b: &b, out: &out, sum, ..*job });
        return;
    }
    let parts = job.parts();
    let [a, b] = [&parts[0].a, &parts[0].b];
    let has_pairs = isa == Isa::Avx512Bf16 && a.dtype() == AclType::BF16 && b.dtype() == AclType::BF16;
    if has_pairs {
        product_of::<u16>(tiles, isa, job, &parts);
    } else {
        product_of::<f32>(tiles, isa, job, &parts);
    }
}

/// Reused across tiles: fresh memory costs more than a small product.
#[derive(Default)]
struct ProductScratch<T> {
    stage: PanelScratch<T>,
    left: Vec<T>,
    right: Vec<T>,
    sums: Vec<f32>,
    order: slabs::TileOrder,
}

trait ProductElement: PanelElement {
    fn with_scratch<R>(run: impl FnOnce(&mut ProductScratch<Self>) -> R) -> R;
    fn vectors(values: &[Self]) -> Vectors<'_>;
}

macro_rules! kind {
    ($t:ty, $vectors:path) => {
        impl ProductElement for $t {
            fn with_scratch<R>(run: impl FnOnce(&mut ProductScratch<Self>) -> R) -> R {
                thread_local! {
                    static SCRATCH: RefCell<ProductScratch<$t>> = RefCell::default();
                }
                SCRATCH.with_borrow_mut(run)
            }

            fn vectors(values: &[Self]) -> Vectors<'_> {
                $vectors(values)
            }
        }
    };
}
kind!(f32, Vectors::Singles);
kind!(u16, Vectors::Pairs);

fn dots<T: ProductElement>(
    tiles: &dyn Tiles,
    isa: Isa,
    job: &ProductJob<'_>,
    parts: &[BatchProduct],
    element: dot::RowElement,
) {
    let (m, n, k) = (parts[0].a.dims()[0], parts[0].b.dims()[0], parts[0].b.dims()[1]);
    let stride = k.next_multiple_of(dot::PADDING);
    let mut vectors = vec![T::default(); parts.len() * m * stride];
    for (part, vectors) in parts.iter().zip(vectors.chunks_exact_mut((m * stride).max(1))) {
        for (row, vector) in vectors.chunks_exact_mut(stride).enumerate() {
            T::read(&part.a.slice(0, row, 1, 1), job.precision, &mut vector[..k]);
        }
    }
    let row_bytes = (k * element.size()).max(1);
    let tile_bytes = (parts.len() * n * row_bytes / DOT_TILES).clamp(DOT_TILE_BYTES.0, DOT_TILE_BYTES.1);
    // A row may be longer than a tile.
    let height = (tile_bytes / row_bytes).max(1).next_multiple_of(dot::ROWS).min(n);
    let down = n.div_ceil(height);
    tiles.run(parts.len() * down, &|tile| {
        let (part, first) = (tile / down, tile % down * height);
        let count = height.min(n - first);
        let vectors = &vectors[part * m * stride..][..m * stride];
        let part = &parts[part];
        T::with_scratch(|scratch| {
            let sums = sized(&mut scratch.sums, m * count);
            if k == 0 {
                sums.fill(0.0);
            } else {
                dot::dots(isa, element, &part.b.rows(first, count), T::vectors(vectors), sums);
            }
            job.finish(part, &(0..m), &(first..first + count), sums);
        });
    });
}

fn tile_extents(batches: usize, m: usize, n: usize) -> (usize, usize) {
    // Tiles of similar height finish together.
    let mut rows = m.div_ceil(m.div_ceil(TILE_ROWS)).next_multiple_of(LINES);
    let mut cols = n.next_multiple_of(WIDTH).min(TILE_COLS);
    while batches * m.div_ceil(rows) * n.div_ceil(cols) < ENOUGH_TILES {
        if cols > WIDTH && (cols >= rows || rows <= 8 * LINES) {
            cols = (cols / 2).next_multiple_of(WIDTH);
        } else if rows > 8 * LINES {
            rows = (rows / 2).next_multiple_of(LINES);
        } else {
            break;
        }
    }
    (rows, cols)
}

fn blocks<T: ProductElement>(tiles: &dyn Tiles, isa: Isa, job: &ProductJob<'_>, parts: &[BatchProduct]) {
    let (m, n) = (parts[0].a.dims()[0], parts[0].b.dims()[0]);
    let (rows, cols) = tile_extents(parts.len(), m, n);
    let (down, across) = (m.div_ceil(rows), n.div_ceil(cols));
    tiles.run(parts.len() * down * across, &|tile| {
        let (part, rest) = (&parts[tile / (down * across)], tile % (down * across));
        // Consecutive tiles share columns, usually of the weights.
        let (row, col) = (rest % down * rows, rest / down * cols);
        let (height, width) = (rows.min(m - row), cols.min(n - col));
        T::with_scratch(|scratch| {
            let a = part.a.slice(0, row, height, 1);
            let b = part.b.slice(0, col, width, 1);
            multiply_tile(isa, job.precision, &a, &b, scratch);
            let stride = width.next_multiple_of(WIDTH);
            for line in 1..if stride == width { 0 } else { height } {
                scratch.sums.copy_within(line * stride..line * stride + width, line * width);
            }
            let sums = &mut scratch.sums[..height * width];
            job.finish(part, &(row..row + height), &(col..col + width), sums);
        });
    });
}

/// Computes `[height, k] x [width, k]`, with rows padded to whole slabs.
fn multiply_tile<T: ProductElement>(
    isa: Isa,
    precision: OperandRounding,
    a: &StridedView,
    b: &StridedView,
    scratch: &mut ProductScratch<T>,
) {
    let (height, width, k) = (a.dims()[0], b.dims()[0], a.dims()[1]);
    let ProductScratch { stage, left, right, sums, .. } = scratch;
    let padded = width.next_multiple_of(WIDTH);
    let sums = sized(sums, height * padded);
    sums.fill(0.0);
    let packing = PanelPacking { isa, precision };
    let most = RUN * T::DEPTH;
    for start in (0..k).step_by(most) {
        let depth = most.min(k - start);
        let stride = line_stride::<T>(depth);
        let (left, right) = (sized(left, height * stride), sized(right, padded * stride));
        packing.lines(&a.slice(1, start, depth, 1), stage, left);
        packing.slabs(&b.slice(1, start, depth, 1), stage, right);
        add_product(isa, left, stride, right, height, depth.div_ceil(T::DEPTH), sums);
    }
}

mod slabs;
#[cfg(test)]
mod tests;
