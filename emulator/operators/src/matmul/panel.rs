//! Packing of strided matrices for the product kernels.
//!
//! - Views are `[outer, k]`, the contracted dim last.
//! - Lines have one outer index along k; slabs have words along k, with [`WIDTH`] outer indices
//!   each.
//! - A word is one f32, or two bf16 neighbours along k. Padding of the last word is zero. Memory is
//!   read along its smaller stride.

use crate::dtype::AclType;
use crate::lane::Lane;
use crate::matmul::precision::OperandRounding;
use crate::raw::{Pod, Rows};
use crate::simd::ahead::Ahead;
use crate::simd::block::{self, Lines, PackedBlock, RUN, Sums, WIDTH, WORD_BYTES};
use crate::simd::isa::Isa;
use crate::simd::pack::{self, PackSource, SlabPacking};
use crate::simd::transpose::{SIDE, transpose};
use crate::view::StridedView;

pub(crate) trait PanelElement: Pod {
    const DEPTH: usize;
    fn read(view: &StridedView, precision: OperandRounding, out: &mut [Self]);
    /// Returns the source of rows of `dtype` for [`SlabPacking`].
    fn source(dtype: AclType, precision: OperandRounding) -> Option<PackSource>;
    fn add(isa: Isa, packed: &PackedBlock<'_, Self>, sums: &mut Sums<'_>, ahead: &mut Ahead<'_>);
}

impl PanelElement for f32 {
    const DEPTH: usize = 1;

    fn read(view: &StridedView, precision: OperandRounding, out: &mut [Self]) {
        Self::load(&view.collapsed(), 0, out);
        if view.dtype() == AclType::F32 {
            precision.apply(out);
        }
    }

    fn source(dtype: AclType, precision: OperandRounding) -> Option<PackSource> {
        match dtype {
            AclType::F32 if precision == OperandRounding::Keep => Some(PackSource::Singles),
            AclType::F16 => Some(PackSource::Halves),
            AclType::BF16 => Some(PackSource::Brains),
            _ => None,
        }
    }

    fn add(isa: Isa, packed: &PackedBlock<'_, Self>, sums: &mut Sums<'_>, ahead: &mut Ahead<'_>) {
        block::add_singles(isa, packed, sums, ahead);
    }
}

impl PanelElement for u16 {
    const DEPTH: usize = 2;

    fn read(view: &StridedView, _: OperandRounding, out: &mut [Self]) {
        assert_eq!(view.dtype(), AclType::BF16, "pairs are of bf16");
        view.collapsed().read(0, out);
    }

    fn source(dtype: AclType, _: OperandRounding) -> Option<PackSource> {
        (dtype == AclType::BF16).then_some(PackSource::Pairs)
    }

    fn add(isa: Isa, packed: &PackedBlock<'_, Self>, sums: &mut Sums<'_>, ahead: &mut Ahead<'_>) {
        block::add_pairs(isa, packed, sums, ahead);
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PanelPacking {
    pub(crate) isa: Isa,
    pub(crate) precision: OperandRounding,
}

/// Adds the product of `height` packed lines, `line_stride` elements apart, and packed slabs. Words
/// are multiplied in chunks of [`RUN`].
pub(crate) fn add_product<T: PanelElement>(
    isa: Isa,
    left: &[T],
    line_stride: usize,
    right: &[T],
    height: usize,
    words: usize,
    sums: &mut [f32],
) {
    let stride = sums.len() / height;
    let lines = Rows::in_slice(left, line_stride, height, words * T::DEPTH);
    for (col, slab) in (0..stride).step_by(WIDTH).zip(right.chunks_exact(right.len() / stride * WIDTH)) {
        for run in (0..words).step_by(RUN) {
            let slab = &slab[run * WIDTH * T::DEPTH..];
            let lines = Lines::Words(lines.columns(run * WORD_BYTES, RUN.min(words - run) * WORD_BYTES));
            add_run(isa, &lines, slab, &mut sums[col..], stride, &mut Ahead::default());
        }
    }
}

/// Adds the product of lines and the words of a slab, at most [`RUN`], to sums that are `stride`
/// apart, and works ahead.
pub(crate) fn add_run<T: PanelElement>(
    isa: Isa,
    lines: &Lines<'_>,
    slab: &[T],
    sums: &mut [f32],
    stride: usize,
    ahead: &mut Ahead<'_>,
) {
    let words = lines.words();
    let blocks = lines.blocks();
    // Blocks of similar height: small ones do not hide the latency of an addition.
    let first = |block: usize| block * lines.count() / blocks;
    for block in 0..blocks {
        let (row, count) = (first(block), first(block + 1) - first(block));
        let packed = PackedBlock { lines: lines.part(row, count), slab, words };
        let mut sums = Sums { values: &mut sums[row * stride..], stride, lines: count };
        T::add(isa, &packed, &mut sums, ahead);
    }
}

/// Returns the distance in elements: whole blocks of words.
pub(crate) fn line_stride<T: PanelElement>(k: usize) -> usize {
    k.next_multiple_of(SIDE * T::DEPTH)
}

fn runs_along_k(view: &StridedView) -> bool {
    view.dims()[0] == 1 || view.strides()[1].unsigned_abs() <= view.strides()[0].unsigned_abs()
}

#[derive(Debug, Default)]
pub(crate) struct PanelScratch<T> {
    read: Vec<T>,
    turned: Vec<T>,
}

/// The buffer only grows.
pub(crate) fn sized<T: Pod>(buffer: &mut Vec<T>, len: usize) -> &mut [T] {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
    &mut buffer[..len]
}

impl PanelPacking {
    /// `[outer, k]` becomes lines of `line_stride(k)` elements.
    pub(crate) fn lines<T: PanelElement>(
        self,
        view: &StridedView,
        stage: &mut PanelScratch<T>,
        out: &mut [T],
    ) {
        let (outer, k) = (view.dims()[0], view.dims()[1]);
        let stride = line_stride::<T>(k);
        if runs_along_k(view) {
            self.read_lines(view, out);
            return;
        }
        let PanelScratch { read, turned } = stage;
        let turned = sized(turned, stride * SIDE);
        for (group, out) in (0..outer).step_by(SIDE).zip(out.chunks_mut(SIDE * stride)) {
            let count = SIDE.min(outer - group);
            self.read_columns(&view.slice(0, group, count, 1), read, turned, SIDE);
            // Words of lines are rows of the transposed block; blocks are whole.
            let mut block = [T::default(); SIDE * SIDE * 2];
            for word in (0..stride / T::DEPTH).step_by(SIDE) {
                let width = SIDE * T::DEPTH;
                transpose(self.isa, &turned[word * width..], width, &mut block, width);
                for (line, from) in block.chunks_exact(width).take(count).enumerate() {
                    out[line * stride + word * T::DEPTH..][..width].copy_from_slice(from);
                }
            }
        }
    }

    /// `[outer, k]` becomes slabs of `line_stride(k) * WIDTH` elements. Padding of the last slab is
    /// undefined.
    pub(crate) fn slabs<T: PanelElement>(
        self,
        view: &StridedView,
        stage: &mut PanelScratch<T>,
        out: &mut [T],
    ) {
        let (outer, k) = (view.dims()[0], view.dims()[1]);
        let stride = line_stride::<T>(k);
        let in_place = self.in_place::<T>(view);
        for (first, slab) in (0..outer).step_by(WIDTH).zip(out.chunks_exact_mut(WIDTH * stride)) {
            let count = WIDTH.min(outer - first);
            if let Some(source) = in_place {
                SlabPacking::new(self.isa, source, &view.rows(first, count), slab).finish();
                continue;
            }
            let part = view.slice(0, first, count, 1);
            if !runs_along_k(view) {
                self.read_columns(&part, &mut stage.read, slab, WIDTH);
                continue;
            }
            let lines = sized(&mut stage.read, WIDTH * stride);
            self.read_lines(&part, lines);
            for group in (0..count).step_by(SIDE) {
                for word in (0..stride / T::DEPTH).step_by(SIDE) {
                    transpose(
                        self.isa,
                        &lines[group * stride + word * T::DEPTH..],
                        stride,
                        &mut slab[(word * WIDTH + group) * T::DEPTH..],
                        WIDTH * T::DEPTH,
                    );
                }
            }
        }
    }

    /// Returns the source for [`SlabPacking`], if it can read the rows of a matrix in place.
    pub(crate) fn in_place<T: PanelElement>(self, view: &StridedView) -> Option<PackSource> {
        let is_along_k = view.strides()[1] == 1 && view.dims()[1] > 0;
        T::source(view.dtype(), self.precision).filter(|_| is_along_k && pack::is_possible(self.isa))
    }

    /// Returns the lines of `[outer, k]`, if they are in memory as [`PanelPacking::lines`] packs
    /// them.
    pub(crate) fn lines_in_place<T: PanelElement>(self, view: &StridedView) -> Option<Rows<'_>> {
        let [outer, k] = [view.dims()[0], view.dims()[1]];
        let source = T::source(view.dtype(), self.precision);
        let is_whole =
            matches!(source, Some(PackSource::Singles | PackSource::Pairs)) && k.is_multiple_of(T::DEPTH);
        (is_whole && k > 0 && view.strides()[1] == 1).then(|| view.rows(0, outer))
    }

    fn read_lines<T: PanelElement>(self, view: &StridedView, out: &mut [T]) {
        let (outer, k) = (view.dims()[0], view.dims()[1]);
        let stride = line_stride::<T>(k);
        if stride == k {
            T::read(view, self.precision, &mut out[..outer * k]);
            return;
        }
        for (line, out) in out.chunks_exact_mut(stride).take(outer).enumerate() {
            T::read(&view.slice(0, line, 1, 1), self.precision, &mut out[..k]);
            out[k..].fill(T::default());
        }
    }

    /// Reads `[words][width][DEPTH]`.
    fn read_columns<T: PanelElement>(
        self,
        view: &StridedView,
        stage: &mut Vec<T>,
        out: &mut [T],
        width: usize,
    ) {
        let (count, k) = (view.dims()[0], view.dims()[1]);
        let across = view.permute(&[1, 0]);
        if T::DEPTH == 1 && count == width {
            T::read(&across, self.precision, &mut out[..k * width]);
            return;
        }
        let rows = sized(stage, k * count);
        T::read(&across, self.precision, rows);
        let zeros = [T::default(); WIDTH];
        for (word, out) in out.chunks_exact_mut(width * T::DEPTH).take(k.div_ceil(T::DEPTH)).enumerate() {
            let row = |at: usize| if at < k { &rows[at * count..][..count] } else { &zeros[..count] };
            if T::DEPTH == 1 {
                out[..count].copy_from_slice(row(word));
                continue;
            }
            let pairs = row(2 * word).iter().zip(row(2 * word + 1));
            for (out, (first, second)) in out.chunks_exact_mut(2).zip(pairs) {
                (out[0], out[1]) = (*first, *second);
            }
        }
    }
}
