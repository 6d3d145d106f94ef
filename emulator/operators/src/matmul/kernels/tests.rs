//! Products against their definition, and bitwise reproducibility.

use proptest::prelude::*;

use crate::Serial;
use crate::matmul::kernels::*;
use crate::raw::tests::span_of;
use crate::simd::block::{PARTS, QUAD};
use crate::simd::pack;
use crate::tests::Threads;

/// Sums are exact in f32 and, below 2048, in f16.
fn pattern(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7 + seed * 13) % 5) as f32 - 2.0).collect()
}

fn naive(a: &[f32], b: &[f32], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let mut out = vec![0f32; m * n];
    for i in 0..m {
        for j in 0..n {
            out[i * n + j] = (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
        }
    }
    out
}

fn sets() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

struct Stored {
    dtype: AclType,
    bytes: Vec<u8>,
    extents: [usize; 2],
    strides: [isize; 2],
}

impl Stored {
    fn new(dtype: AclType, values: &[f32], [rows, cols]: [usize; 2], by_columns: bool, gap: usize) -> Self {
        let strides = if by_columns { [1, (rows + gap) as isize] } else { [(cols + gap) as isize, 1] };
        let len = if by_columns { cols * (rows + gap) } else { rows * (cols + gap) };
        let mut stored =
            Self { dtype, bytes: vec![0xff; len * dtype.size()], extents: [rows, cols], strides };
        if !values.is_empty() {
            f32::store(&stored.view(), 0, values);
        }
        stored
    }

    fn view(&mut self) -> StridedView {
        StridedView::new(span_of(&mut self.bytes), self.dtype, &self.extents, &self.strides, 0).unwrap()
    }

    fn values(&mut self) -> Vec<f32> {
        let mut values = vec![0f32; self.extents[0] * self.extents[1]];
        f32::load(&self.view(), 0, &mut values);
        values
    }
}

fn check([m, n, k]: [usize; 3], dtype: AclType, columns: [bool; 3], gap: usize) {
    let (left, right) = (pattern(m * k, 1), pattern(k * n, 2));
    let mut a = Stored::new(dtype, &left, [m, k], columns[0], gap);
    let mut b = Stored::new(dtype, &right, [k, n], columns[1], gap);
    let mut expected = Stored::new(dtype, &naive(&left, &right, [m, n, k]), [m, n], false, 0);
    for isa in sets() {
        let mut out = Stored::new(dtype, &vec![f32::NAN; m * n], [m, n], columns[2], gap);
        let (a, b, view) = (a.view(), b.view(), out.view());
        product(
            &Serial,
            isa,
            &ProductJob { a: &a, b: &b, precision: OperandRounding::Keep, sum: None, out: &view },
        );
        assert_eq!(
            out.values(),
            expected.values(),
            "{isa} {dtype} {m} x {n} x {k}, by columns: {columns:?}, gap {gap}"
        );
    }
}

#[test]
fn every_instruction_set_agrees_with_the_definition() {
    let shapes = [
        [1, 1, 1],
        [1, 300, 7],
        [2, 5, 129],
        [3, 4, 257],
        [4, 65, 31],
        [5, 1, 64],
        [6, 3, 33],
        [7, 70, 100],
        [8, 9, 515],
        [9, 17, 129],
        [17, 64, 256],
        [70, 130, 33],
        [61, 200, 258],
        [129, 40, 1],
        [130, 260, 261],
        [400, 3, 5],
    ];
    for shape in shapes {
        for dtype in [AclType::F32, AclType::F16, AclType::BF16] {
            for columns in
                [[false, false, false], [false, true, false], [true, false, true], [true, true, false]]
            {
                check(shape, dtype, columns, 0);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_shape_and_layout_agrees_with_the_definition(
        m in 1..80_usize,
        n in 1..150_usize,
        k in 0..300_usize,
        dtype in prop::sample::select(vec![AclType::F32, AclType::F16, AclType::BF16]),
        columns in any::<[bool; 3]>(),
        gap in 0..4_usize,
    ) {
        check([m, n, k], dtype, columns, gap);
    }
}

#[test]
fn few_rows_read_weights_in_place_and_the_rest_is_packed() {
    let path = |isa: Isa, m: usize, dtype: AclType, by_columns: bool, precision: OperandRounding| {
        let (k, n) = (40, 70);
        let mut a = Stored::new(dtype, &vec![1.0; m * k], [m, k], false, 0);
        let mut b = Stored::new(dtype, &vec![1.0; k * n], [k, n], by_columns, 0);
        let mut out = Stored::new(dtype, &vec![1.0; m * n], [m, n], false, 0);
        let (a, b, out) = (a.view(), b.view(), out.view());
        let part = &ProductJob { a: &a, b: &b, precision, sum: None, out: &out }.parts()[0];
        (
            MatmulPath::of::<f32>(isa, part, precision),
            PanelPacking { isa, precision }.in_place::<f32>(&part.b),
        )
    };
    let packed = |source: Option<PackSource>| source.map_or(MatmulPath::Blocks, MatmulPath::Slabs);
    for (dtype, element) in [
        (AclType::F32, dot::RowElement::Single),
        (AclType::F16, dot::RowElement::Half),
        (AclType::BF16, dot::RowElement::Brain),
    ] {
        for isa in sets() {
            let path = |m: usize, by_columns: bool| path(isa, m, dtype, by_columns, OperandRounding::Keep);
            assert_eq!(path(1, true).0, MatmulPath::Dots(element));
            assert_eq!(path(FEW_ROWS, true).0, MatmulPath::Dots(element));
            for m in [FEW_ROWS + 1, SOME_ROWS] {
                let (path, source) = path(m, true);
                assert_eq!(path, packed(source), "{isa}");
                assert_eq!(source.is_some(), pack::is_possible(isa), "{isa}");
            }
            assert_eq!(path(SOME_ROWS + 1, true).0, MatmulPath::Blocks);
            assert_eq!(path(1, false).0, MatmulPath::Blocks);
        }
    }
    for m in [1, FEW_ROWS + 1] {
        let (path, _) = path(isa(), m, AclType::F32, true, OperandRounding::HalfFloat32);
        assert_eq!(path, MatmulPath::Blocks, "operands that are rounded first");
    }
}

/// Inexact sums reveal the order of addition.
fn rounding(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| (((i + seed) * 7919) % 1009) as f32 / 997.0 - 0.5).collect()
}

/// Computes `2 c + a @ b` in f32, with one number for `c`.
fn bits(
    tiles: &dyn Tiles,
    isa: Isa,
    a: &StridedView,
    b: &StridedView,
    precision: OperandRounding,
) -> Vec<u32> {
    let (m, n) = (a.dims()[0], b.dims()[1]);
    let (mut out, mut c) = (vec![f32::NAN; m * n], [0.3_f32]);
    let c = StridedView::new(span_of(&mut c), AclType::F32, &[m, n], &[0, 0], 0).unwrap();
    let view = StridedView::new(span_of(&mut out), AclType::F32, &[m, n], &[n as isize, 1], 0).unwrap();
    let sum = Some(AddedMatrix { c: &c, scales: SumScales { beta: 2.0, alpha: 1.0 } });
    product(tiles, isa, &ProductJob { a, b, precision, sum, out: &view });
    out.into_iter().map(f32::to_bits).collect()
}

const KINDS: [(AclType, OperandRounding); 4] = [
    (AclType::F32, OperandRounding::Keep),
    (AclType::F32, OperandRounding::HalfFloat32),
    (AclType::F16, OperandRounding::Keep),
    (AclType::BF16, OperandRounding::Keep),
];

#[test]
fn a_row_has_the_same_bits_however_many_there_are() {
    const MOST: usize = SOME_ROWS + 17;
    for ((n, k), (dtype, precision)) in [(37, 131), (1, 259), (66, 33), (130, 300)]
        .into_iter()
        .flat_map(|shape| KINDS.map(|kind| (shape, kind)))
    {
        for (isa, columns) in
            sets().flat_map(|isa| [[false, true], [false, false], [true, true]].map(|columns| (isa, columns)))
        {
            let mut a = Stored::new(dtype, &rounding(MOST * k, 1), [MOST, k], columns[0], 3);
            let mut b = Stored::new(dtype, &rounding(k * n, 2), [k, n], columns[1], 3);
            let (a, b) = (a.view(), b.view());
            let all = bits(&Serial, isa, &a, &b, precision);
            for m in (1..=24).chain([40, 64, 96, SOME_ROWS]) {
                let some = bits(&Serial, isa, &a.slice(0, MOST - m, m, 1), &b, precision);
                assert!(
                    some == all[(MOST - m) * n..],
                    "{isa} {dtype} {precision:?} {m} x {n} x {k}, by columns: {columns:?}"
                );
            }
        }
    }
}

#[test]
fn a_column_has_the_same_bits_however_many_there_are() {
    let (k, most) = (259, 70);
    for (isa, (dtype, precision)) in sets().flat_map(|isa| KINDS.map(|kind| (isa, kind))) {
        for (m, by_columns) in [1, 3, 9, 40].into_iter().flat_map(|m| [(m, true), (m, false)]) {
            let mut a = Stored::new(dtype, &rounding(m * k, 1), [m, k], false, 0);
            let mut b = Stored::new(dtype, &rounding(k * most, 2), [k, most], by_columns, 1);
            let (a, b) = (a.view(), b.view());
            let all = bits(&Serial, isa, &a, &b, precision);
            for (first, n) in [(0, 1), (69, 1), (5, 2), (3, 15), (7, 16), (1, 17), (6, 64)] {
                let some = bits(&Serial, isa, &a, &b.slice(1, first, n, 1), precision);
                let same = some
                    .chunks_exact(n)
                    .zip(all.chunks_exact(most))
                    .all(|(some, all)| *some == all[first..first + n]);
                assert!(
                    same,
                    "{isa} {dtype} {precision:?}, columns {first} + {n} of {m} rows, by columns: {by_columns}"
                );
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_threads_or_the_order_of_tiles() {
    for (m, n, k) in [(1, 900, 600), (5, 900, 600), (24, 900, 600), (300, 500, 400), (500, 300, 400)] {
        for (isa, dtype) in
            sets().flat_map(|isa| [AclType::F32, AclType::F16, AclType::BF16].map(|dtype| (isa, dtype)))
        {
            let mut a = Stored::new(dtype, &rounding(m * k, 1), [m, k], false, 0);
            let mut b = Stored::new(dtype, &rounding(k * n, 2), [k, n], true, 0);
            let (a, b) = (a.view(), b.view());
            let alone = bits(&Serial, isa, &a, &b, OperandRounding::Keep);
            for threads in [1, 3] {
                let found = bits(&Threads(threads), isa, &a, &b, OperandRounding::Keep);
                assert!(found == alone, "{isa} {dtype} {m} x {n} x {k} on {threads} threads");
            }
        }
    }
}

/// Computes `2 * 0.3 + a @ b` of `[m, k]` and `[k, n]` matrices in the order of [`RUN`].
fn defined(isa: Isa, is_paired: bool, (a, b): (&[f32], &[f32]), [m, n, k]: [usize; 3]) -> Vec<u32> {
    let depth = if is_paired { 2 } else { 1 };
    let add = |sum: f32, x: f32, y: f32| if isa == Isa::Portable { sum + x * y } else { x.mul_add(y, sum) };
    let element = |row: usize, col: usize| {
        // Products of bf16 are exact in f32: a pair adds the second, then the first.
        let word = |sum: f32, word: usize| {
            let products = (word * depth..k.min((word + 1) * depth)).rev();
            products.fold(sum, |sum, at| add(sum, a[row * k + at], b[at * n + col]))
        };
        let words = k.div_ceil(depth);
        let part = |first: usize, part: usize| {
            let words = (first..words.min(first + RUN)).filter(|at| at / QUAD % PARTS == part);
            words.fold(0.0_f32, word)
        };
        let parts = (0..words).step_by(RUN).flat_map(|first| (0..PARTS).map(move |part| (first, part)));
        2.0_f32 * 0.3 + parts.fold(0.0_f32, |total, (first, at)| total + part(first, at))
    };
    (0..m * n).map(|at| element(at / n, at % n).to_bits()).collect()
}

/// Every set but plain loops fuses; pairs of bf16 are words.
#[test]
fn every_instruction_set_gives_the_bits_of_the_definition_for_any_number_of_rows() {
    const MOST: usize = 70;
    for ([n, k], dtype) in [[67, 301], [3, 515]]
        .into_iter()
        .flat_map(|shape| [AclType::F32, AclType::F16, AclType::BF16].map(|dtype| (shape, dtype)))
    {
        for (isa, by_columns) in sets().flat_map(|isa| [(isa, true), (isa, false)]) {
            let mut a = Stored::new(dtype, &rounding(MOST * k, 1), [MOST, k], false, 0);
            let mut b = Stored::new(dtype, &rounding(k * n, 2), [k, n], by_columns, 1);
            let is_paired = isa == Isa::Avx512Bf16 && dtype == AclType::BF16;
            let expected = defined(isa, is_paired, (&a.values(), &b.values()), [MOST, n, k]);
            let (a, b) = (a.view(), b.view());
            for m in 1..=MOST {
                let found = bits(&Threads(1 + m % 3), isa, &a.slice(0, 0, m, 1), &b, OperandRounding::Keep);
                assert!(
                    found == expected[..m * n],
                    "{isa}, {dtype}, {m} x {n} x {k}, by columns: {by_columns}"
                );
            }
        }
    }
}

/// Too small, too large or infinite for [`pack::is_plain`], next to plain numbers.
#[test]
fn bf16_of_any_size_have_the_same_bits_for_any_number_of_rows() {
    let (most, n, k) = (40, 67, 520);
    let special = [1e-39_f32, -1e-38, 1e-20, 1e38, f32::INFINITY, 0.0, -0.0, 1e-30];
    for (isa, place) in sets().flat_map(|isa| [0, 255, 519].map(|place| (isa, place))) {
        for (value, in_left) in special.into_iter().flat_map(|value| [(value, true), (value, false)]) {
            let (mut left, mut right) = (rounding(most * k, 1), rounding(k * n, 2));
            if in_left {
                left.iter_mut().skip(place).step_by(k).for_each(|number| *number = value);
            } else {
                right[place * n + 40] = value;
            }
            let mut a = Stored::new(AclType::BF16, &left, [most, k], false, 0);
            let mut b = Stored::new(AclType::BF16, &right, [k, n], true, 0);
            let (a, b) = (a.view(), b.view());
            let all = bits(&Serial, isa, &a, &b, OperandRounding::Keep);
            for first in [0, most - 3] {
                let few = bits(&Serial, isa, &a.slice(0, first, 3, 1), &b, OperandRounding::Keep);
                assert!(few == all[first * n..][..3 * n], "{isa}, {value} at {place}, left: {in_left}");
            }
        }
    }
}

#[test]
fn operands_of_two_types_meet_in_f32() {
    let (left, right) = (pattern(3 * 40, 1), pattern(40 * 5, 2));
    let mut a = Stored::new(AclType::F16, &left, [3, 40], false, 0);
    let mut b = Stored::new(AclType::F32, &right, [40, 5], true, 0);
    let mut out = Stored::new(AclType::F32, &[0.0; 15], [3, 5], false, 0);
    matmul(&Serial, &a.view(), &b.view(), OperandRounding::Keep, &out.view());
    assert_eq!(out.values(), naive(&left, &right, [3, 5, 40]));
}

#[test]
fn batches_broadcast_and_outputs_may_be_strided() {
    let (mut a, mut b) = (pattern(2 * 3 * 4, 3), pattern(4 * 5, 4));
    let mut c = vec![9f32; 2 * 5 * 3];
    let va = StridedView::new(span_of(&mut a), AclType::F32, &[2, 3, 4], &[12, 4, 1], 0).unwrap();
    let vb = StridedView::new(span_of(&mut b), AclType::F32, &[1, 4, 5], &[0, 5, 1], 0).unwrap();
    let vc = StridedView::new(span_of(&mut c), AclType::F32, &[2, 3, 5], &[15, 1, 3], 0).unwrap();
    matmul(&Serial, &va, &vb, OperandRounding::Keep, &vc);
    for batch in 0..2 {
        let expected = naive(&a[batch * 12..batch * 12 + 12], &b, [3, 5, 4]);
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
    OperandRounding::HalfFloat32.apply(&mut values);
    assert_eq!(values[..3], [1.0, 1.0 + 1.0 / 1024.0, 1.0 + 1.0 / 1024.0]);
    assert!((values[3] - 1e30).abs() < 1e27 && values[4] == f32::INFINITY);
    OperandRounding::Half.apply(&mut values);
    assert_eq!(values[3], f32::INFINITY, "1e30 is beyond f16");
}

#[test]
fn an_empty_contraction_gives_zeros() {
    let mut c = [5f32; 6];
    let empty =
        |dims: &[usize]| StridedView::new(span_of(&mut [0f32; 0]), AclType::F32, dims, &[1, 1], 0).unwrap();
    let vc = StridedView::new(span_of(&mut c), AclType::F32, &[2, 3], &[3, 1], 0).unwrap();
    matmul(&Serial, &empty(&[2, 0]), &empty(&[0, 3]), OperandRounding::Keep, &vc);
    assert_eq!(c, [0.0; 6]);
}

#[test]
fn an_output_among_its_operands_is_computed_from_whole_tiles() {
    // Columns 0..2 hold a, 2..4 the product: ranges overlap, elements do not.
    let mut memory: Vec<f32> = vec![1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0];
    let mut b = vec![1f32, 1.0, 0.0, 1.0];
    let span = span_of(&mut memory);
    let va = StridedView::new(span, AclType::F32, &[2, 2], &[4, 1], 0).unwrap();
    let vc = StridedView::new(span, AclType::F32, &[2, 2], &[4, 1], 2).unwrap();
    let vb = StridedView::new(span_of(&mut b), AclType::F32, &[2, 2], &[2, 1], 0).unwrap();
    matmul(&Serial, &va, &vb, OperandRounding::Keep, &vc);
    assert_eq!(memory, [1.0, 2.0, 1.0, 3.0, 3.0, 4.0, 3.0, 7.0]);
}

#[test]
fn addmm_scales_both_terms_and_ignores_c_when_beta_is_zero() {
    let (mut c, mut a, mut b, mut out) = ([10f32, f32::NAN], [1f32, 2.0], [3f32, 4.0, 5.0, 6.0], [0f32; 2]);
    let vc = StridedView::new(span_of(&mut c), AclType::F32, &[2], &[1], 0).unwrap();
    let va = StridedView::new(span_of(&mut a), AclType::F32, &[1, 2], &[2, 1], 0).unwrap();
    let vb = StridedView::new(span_of(&mut b), AclType::F32, &[2, 2], &[2, 1], 0).unwrap();
    let vo = StridedView::new(span_of(&mut out), AclType::F32, &[1, 2], &[2, 1], 0).unwrap();
    addmm(&Serial, &vc, &va, &vb, SumScales { beta: 0.0, alpha: 2.0 }, OperandRounding::Keep, &vo);
    assert_eq!(out, [26.0, 32.0]);
    let mut finite = [10f32, 20.0];
    let vc = StridedView::new(span_of(&mut finite), AclType::F32, &[2], &[1], 0).unwrap();
    addmm(&Serial, &vc, &va, &vb, SumScales { beta: 0.5, alpha: 1.0 }, OperandRounding::Keep, &vo);
    assert_eq!(out, [18.0, 26.0]);
}
