//! Quantised rows and products against integers.

use super::*;
use crate::dtype::AclType;

/// Returns integers from -127 to 127.
fn whole_bytes(rows: usize, columns: usize, seed: usize) -> Vec<f64> {
    (0..rows * columns).map(|i| (((i * 89 + seed * 31) % 255) as f64) - 127.0).collect()
}

#[test]
fn a_row_is_scaled_by_its_own_largest_magnitude() {
    for dtype in [AclType::F16, AclType::BF16] {
        let x = [127.0, -3.0, 0.5, 1.5, -31.75, 0.125, 0.375, 7.0, 0.0, 0.0, 0.0, 0.0];
        let wanted = [127.0, -3.0, 0.0, 2.0, -127.0, 0.0, 2.0, 28.0, 0.0, 0.0, 0.0, 0.0];
        for strided in [false, true] {
            let mut x = Data::new(dtype, &[3, 4], &x);
            if strided {
                x = x.strided();
            }
            let (mut y, mut scale) = (Data::blank(AclType::I8, &[3, 4]), Data::blank(AclType::F32, &[3]));
            run("aclnnDynamicQuant", vec![Arg::T(&mut x), Arg::Null, Arg::T(&mut y), Arg::T(&mut scale)])
                .unwrap();
            assert_eq!(y.values(), wanted, "{dtype} {strided}");
            assert_eq!(scale.values(), [1.0, 0.25, 0.0]);
        }
    }
}

#[test]
fn rows_of_every_leading_dim_have_a_scale() {
    let values: Vec<f64> = (0..2 * 3 * 5).map(|i| f64::from(i) - 7.0).collect();
    let mut x = Data::new(AclType::F16, &[2, 3, 5], &values);
    let (mut y, mut scale) = (Data::blank(AclType::I8, &[2, 3, 5]), Data::blank(AclType::F32, &[2, 3]));
    run("aclnnDynamicQuant", vec![Arg::T(&mut x), Arg::Null, Arg::T(&mut y), Arg::T(&mut scale)]).unwrap();
    for ((row, y), scale) in values.chunks(5).zip(y.values().chunks(5)).zip(scale.values()) {
        let largest = row.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        assert_eq!(scale, f64::from((largest / 127.0) as f32));
        for (x, y) in row.iter().zip(y) {
            // Half a step, plus the f32 rounding of the quotient.
            assert!((x - y * scale).abs() <= 0.5 * scale * (1.0 + 1e-5), "{x} became {y} · {scale}");
        }
    }
    let (mut x, mut y) = (Data::blank(AclType::F16, &[0, 5]), Data::blank(AclType::I8, &[0, 5]));
    let mut scale = Data::blank(AclType::F32, &[0]);
    run("aclnnDynamicQuant", vec![Arg::T(&mut x), Arg::Null, Arg::T(&mut y), Arg::T(&mut scale)]).unwrap();
}

fn product(a: &[f64], b: &[f64], k: usize) -> Vec<i64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| *a as i64 * *b as i64).sum();
    a.chunks(k).flat_map(|a| b.chunks(k).map(move |b| dot(a, b))).collect()
}

#[test]
fn products_are_exact_integers_times_both_scales() {
    for (m, n, k) in [(1, 1, 1), (3, 5, 7), (70, 130, 33), (2, 3, 4096)] {
        let (a, b) = (whole_bytes(m, k, 1), whole_bytes(n, k, 2));
        let sums = product(&a, &b, k);
        let columns: Vec<f64> = (0..n).map(|j| [0.5, 2.0, 0.25][j % 3]).collect();
        let tokens: Vec<f64> = (0..m).map(|i| [1.0, 0.125][i % 2]).collect();
        for (out_type, scale_type) in
            [(AclType::BF16, AclType::F32), (AclType::BF16, AclType::BF16), (AclType::F16, AclType::F32)]
        {
            let expected = |i: usize, j: usize| {
                rounded(f64::from(sums[i * n + j] as f32) * columns[j] * tokens[i], out_type)
            };
            let wanted: Vec<f64> = (0..m * n).map(|at| expected(at / n, at % n)).collect();
            for (swap_a, swap_b) in [(false, true), (false, false), (true, true)] {
                let transpose = |values: &[f64], rows: usize, columns: usize| -> Vec<f64> {
                    (0..rows * columns).map(|at| values[at % rows * columns + at / rows]).collect()
                };
                let mut x1 = match swap_a {
                    true => Data::new(AclType::I8, &[k, m], &transpose(&a, m, k)),
                    false => Data::new(AclType::I8, &[m, k], &a),
                };
                let mut x2 = match swap_b {
                    true => Data::new(AclType::I8, &[n, k], &b),
                    false => Data::new(AclType::I8, &[k, n], &transpose(&b, n, k)),
                };
                let mut scale = Data::new(scale_type, &[n], &columns);
                let mut token = Data::new(AclType::F32, &[m], &tokens);
                let mut out = Data::blank(out_type, &[m, n]);
                let arguments = vec![
                    Arg::T(&mut x1),
                    Arg::T(&mut x2),
                    Arg::T(&mut scale),
                    Arg::Null,
                    Arg::T(&mut token),
                    Arg::Null,
                    Arg::B(swap_a),
                    Arg::B(swap_b),
                    Arg::T(&mut out),
                ];
                run("aclnnQuantMatmulV4", arguments).unwrap();
                assert_eq!(out.values(), wanted, "{m} {n} {k} {out_type} {scale_type} {swap_a} {swap_b}");
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_however_many_there_are() {
    let (most, n, k) = (257, 67, 131);
    let (a, b) = (whole_bytes(most, k, 1), whole_bytes(n, k, 2));
    let columns: Vec<f64> = (0..n).map(|j| 0.01 + 0.003 * j as f64).collect();
    let tokens: Vec<f64> = (0..most).map(|i| 0.02 + 0.007 * i as f64).collect();
    let last = |m: usize| {
        let mut x1 = Data::new(AclType::I8, &[m, k], &a[(most - m) * k..]);
        let mut x2 = Data::new(AclType::I8, &[n, k], &b);
        let mut scale = Data::new(AclType::F32, &[n], &columns);
        let mut token = Data::new(AclType::F32, &[m], &tokens[most - m..]);
        let mut out = Data::blank(AclType::F16, &[m, n]);
        let (scales, flags) =
            ([Arg::T(&mut scale), Arg::Null, Arg::T(&mut token), Arg::Null], [false, true].map(Arg::B));
        let operands = [Arg::T(&mut x1), Arg::T(&mut x2)];
        let arguments = operands.into_iter().chain(scales).chain(flags).chain([Arg::T(&mut out)]).collect();
        run("aclnnQuantMatmulV4", arguments).unwrap();
        out.values()
    };
    let all = last(most);
    for m in (1..=64).chain([96]) {
        assert!(last(m) == all[(most - m) * n..], "{m} rows");
    }
}

#[test]
fn one_scale_serves_all_columns_and_rows_need_none() {
    let (mut x1, mut x2) =
        (Data::new(AclType::I8, &[2, 2], &[1.0, 2.0, 3.0, 4.0]), Data::new(AclType::I8, &[3, 2], &[1.0; 6]));
    let (mut scale, mut out) = (Data::new(AclType::F32, &[1], &[0.5]), Data::blank(AclType::BF16, &[2, 3]));
    let arguments = vec![
        Arg::T(&mut x1),
        Arg::T(&mut x2),
        Arg::T(&mut scale),
        Arg::Null,
        Arg::Null,
        Arg::Null,
        Arg::B(false),
        Arg::B(true),
        Arg::T(&mut out),
    ];
    run("aclnnQuantMatmulV4", arguments).unwrap();
    assert_eq!(out.values(), [1.5, 1.5, 1.5, 3.5, 3.5, 3.5]);
}

struct Product {
    x1: Data,
    x2: Data,
    scale: Data,
    tokens: Option<Data>,
    out: Data,
}

#[test]
fn products_refuse_what_the_page_excludes() {
    let zeros = |dtype, dims: &[usize]| Data::new(dtype, dims, &vec![0.0; dims.iter().product()]);
    let right = || Product {
        x1: zeros(AclType::I8, &[2, 3]),
        x2: zeros(AclType::I8, &[4, 3]),
        scale: zeros(AclType::F32, &[4]),
        tokens: Some(zeros(AclType::F32, &[2])),
        out: zeros(AclType::F16, &[2, 4]),
    };
    let call = |change: &dyn Fn(&mut Product)| {
        let mut product = right();
        change(&mut product);
        let Product { mut x1, mut x2, mut scale, mut tokens, mut out } = product;
        let tokens = tokens.as_mut().map_or(Arg::Null, Arg::T);
        let arguments = vec![
            Arg::T(&mut x1),
            Arg::T(&mut x2),
            Arg::T(&mut scale),
            Arg::Null,
            tokens,
            Arg::Null,
            Arg::B(false),
            Arg::B(true),
            Arg::T(&mut out),
        ];
        run("aclnnQuantMatmulV4", arguments)
    };
    assert_eq!(call(&|_| ()), Ok(()));
    let says = |change: &dyn Fn(&mut Product), part: &str| {
        let message = call(change).expect_err("must be refused");
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    };
    says(
        &|p| p.x2 = zeros(AclType::I8, &[4, 2]),
        "x2: expected a contracted dim of 3 as in x1, found 2 in [4, 2]",
    );
    says(&|p| p.x1 = zeros(AclType::F16, &[2, 3]), "x1: expected an element type of INT8, found FLOAT16");
    says(
        &|p| p.out = zeros(AclType::F32, &[2, 4]),
        "out: expected an element type of FLOAT16, BFLOAT16, INT8, found FLOAT",
    );
    says(&|p| p.out = zeros(AclType::F16, &[4, 2]), "out: expected shape [2, 4] (of x1 @ x2), found [4, 2]");
    says(
        &|p| p.scale = zeros(AclType::F32, &[3]),
        "scale: expected shape [4] (one per column, or one in all), found [3]",
    );
    says(
        &|p| p.scale = zeros(AclType::BF16, &[4]),
        "scale: BFLOAT16 does not go with FLOAT16 out and a scale a row",
    );
    says(
        &|p| p.tokens = Some(zeros(AclType::F32, &[4])),
        "pertokenScaleOptional: expected shape [2] (one per row)",
    );
    says(&|p| p.tokens = None, "scale: FLOAT does not go with FLOAT16 out without a scale a row");
    says(&|p| p.x1 = zeros(AclType::I8, &[2, 3]).strided(), "x1: expected a contiguous matrix");
    says(
        &|p| (p.x1, p.x2) = (zeros(AclType::I8, &[2, 0]), zeros(AclType::I8, &[4, 0])),
        "x1: has no elements",
    );
    let long = |rows| zeros(AclType::I8, &[rows, 65_536]);
    says(
        &|p| (p.x1, p.x2) = (long(2), long(4)),
        "x1: expected a last dim of at most 65535, found [2, 65536]",
    );
}

#[test]
fn rows_refuse_what_the_page_excludes() {
    let zeros = |dtype, dims: &[usize]| Data::new(dtype, dims, &vec![0.0; dims.iter().product()]);
    let says = |mut x: Data, mut y: Data, mut scale: Data, part: &str| {
        refused(
            "aclnnDynamicQuant",
            vec![Arg::T(&mut x), Arg::Null, Arg::T(&mut y), Arg::T(&mut scale)],
            &[part],
        );
    };
    use AclType::{BF16, F32, I8};
    let (x, y, scale) = (|| zeros(BF16, &[2, 3]), || zeros(I8, &[2, 3]), || zeros(F32, &[2]));
    says(zeros(F32, &[2, 3]), y(), scale(), "x: expected an element type of FLOAT16, BFLOAT16, found FLOAT");
    says(zeros(BF16, &[3]), zeros(I8, &[3]), scale(), "x: expected 2 to 8 dims, found 1");
    says(x(), zeros(I8, &[3, 2]), scale(), "yOut: expected shape [2, 3] (of x), found [3, 2]");
    says(x(), y().strided(), scale(), "yOut: expected a contiguous tensor");
    says(
        x(),
        y(),
        zeros(F32, &[2, 1]),
        "scaleOut: expected shape [2] (of x without the last dim), found [2, 1]",
    );
    let (mut x, mut y, mut scale, mut smooth) = (x(), y(), scale(), zeros(BF16, &[2]));
    let arguments = vec![Arg::T(&mut x), Arg::T(&mut smooth), Arg::T(&mut y), Arg::T(&mut scale)];
    refused(
        "aclnnDynamicQuant",
        arguments,
        &["smoothScalesOptional: expected shape [3] (the last dim of x), found [2]"],
    );
}
