//! Shifts, series, diagonals, factors of matrices, and gradients of windows and repeats.

use super::*;

#[test]
fn bits_move_left() {
    let (values, bits) = ([1.0, -3.0, 30.0, 7.0], [0.0, 2.0, 1.0, 40.0]);
    for (dtype, width) in [(AclType::I32, 32), (AclType::I64, 64), (AclType::I8, 8)] {
        let mut x = Data::new(dtype, &[2, 2], &values).strided();
        let mut by = Data::new(dtype, &[2, 2], &bits);
        let mut out = Data::blank(dtype, &[2, 2]).strided();
        run("aclnnLeftShift", vec![Arg::T(&mut x), Arg::T(&mut by), Arg::T(&mut out)]).unwrap();
        let expected: Vec<f64> = values
            .iter()
            .zip(bits)
            .map(|(x, bits)| if bits >= f64::from(width) { 0.0 } else { rounded(x * bits.exp2(), dtype) })
            .collect();
        assert_eq!(out.values(), expected, "{dtype}");
        run("aclnnLeftShifts", vec![Arg::T(&mut x), whole(2), Arg::T(&mut out)]).unwrap();
        assert_eq!(out.values(), values.map(|x| rounded(x * 4.0, dtype)), "{dtype}");
    }
    let (mut x, mut wide) = (Data::blank(AclType::I32, &[2]), Data::blank(AclType::I64, &[2]));
    refused(
        "aclnnLeftShifts",
        vec![Arg::T(&mut x), whole(1), Arg::T(&mut wide)],
        &["out: expected INT32 (the type of self)"],
    );
}

#[test]
fn elements_are_scaled_and_measured() {
    let x = [-4.0, -3.0, -1.5, 0.0, 2.0, 3.0];
    let grad = [1.0, 2.0, 4.0, -2.0, 3.0, 5.0];
    let d = |values: &[f64]| Data::new(AclType::F32, &[2, 3], values).strided();
    let (mut a, mut g, mut out) = (d(&x), d(&grad), d(&[0.0; 6]));
    run("aclnnHardswishBackwardV2", vec![Arg::T(&mut g), Arg::T(&mut a), Arg::T(&mut out)]).unwrap();
    close(&out.values(), &[0.0, 0.0, 0.0, -1.0, 3.5, 5.0], 1e-6, "slopes");
    let mut mask = Data::new(AclType::U8, &[2, 3], &[1.0, 0.0, 1.0, 1.0, 0.0, 2.0]);
    run("aclnnMaskedScale", vec![Arg::T(&mut a), Arg::T(&mut mask), Arg::F(1.5), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [-6.0, 0.0, -2.25, 0.0, 0.0, 9.0]);
    for dtype in [AclType::F32, AclType::I32] {
        let mut a = Data::new(dtype, &[6], &x.map(f64::trunc));
        let mut angles = Data::blank(AclType::F32, &[6]);
        run("aclnnAngleV2", vec![Arg::T(&mut a), Arg::T(&mut angles)]).unwrap();
        let expected = x.map(|x| if x.trunc() < 0.0 { std::f64::consts::PI } else { 0.0 });
        close(&angles.values(), &expected, 1e-6, "angles");
    }
    let mut powers = Data::blank(AclType::F32, &[5]);
    run("aclnnLogSpace", vec![real(-1.0), real(3.0), Arg::I(5), Arg::F(2.0), Arg::T(&mut powers)]).unwrap();
    close(&powers.values(), &[0.5, 1.0, 2.0, 4.0, 8.0], 1e-6, "powers");
    let call = vec![real(-1.0), real(3.0), Arg::I(4), Arg::F(2.0), Arg::T(&mut powers)];
    refused("aclnnLogSpace", call, &["result: expected shape [4] (steps elements)"]);
}

#[test]
fn diagonals_are_filled() {
    for (dims, wrap, places) in [
        (&[3, 4][..], false, &[0, 5, 10][..]),
        (&[7, 2], false, &[0, 3]),
        (&[7, 2], true, &[0, 3, 6, 9, 12]),
        (&[2, 2, 2], true, &[0, 7]),
    ] {
        let count: usize = dims.iter().product();
        for dtype in [AclType::F32, AclType::I32] {
            let mut x = Data::new(dtype, dims, &counted(count, 2)).strided();
            let mut expected = x.values();
            run("aclnnInplaceFillDiagonal", vec![Arg::T(&mut x), whole(9), Arg::B(wrap)]).unwrap();
            places.iter().for_each(|&place| expected[place] = 9.0);
            assert_eq!(x.values(), expected, "{dims:?}, wrap {wrap}");
        }
    }
    let mut x = Data::blank(AclType::F32, &[2, 3, 2]);
    refused(
        "aclnnInplaceFillDiagonal",
        vec![Arg::T(&mut x), whole(9), Arg::B(true)],
        &["selfRef: expected dims of one extent"],
    );
}

#[test]
fn windows_and_repeats_return_their_sums() {
    // [2, 7, 3] with windows of 3 along the middle, 2 apart.
    let grad = varied(2 * 3 * 3 * 3, 4);
    let mut g = Data::new(AclType::F32, &[2, 3, 3, 3], &grad).strided();
    let mut out = Data::blank(AclType::F32, &[2, 7, 3]).strided();
    let call = vec![Arg::T(&mut g), Arg::Ints(&[2, 7, 3]), Arg::I(1), Arg::I(3), Arg::I(2), Arg::T(&mut out)];
    run("aclnnUnfoldGrad", call).unwrap();
    let mut expected = vec![0.0; 42];
    for (a, window, c, at) in (0..54).map(|i| (i / 27, i / 9 % 3, i / 3 % 3, i % 3)) {
        expected[(a * 7 + window * 2 + at) * 3 + c] += grad[((a * 3 + window) * 3 + c) * 3 + at];
    }
    close(&out.values(), &expected, 1e-6, "windows");
    let call =
        vec![Arg::T(&mut g), Arg::Ints(&[2, 7, 3]), Arg::I(-1), Arg::I(3), Arg::I(2), Arg::T(&mut out)];
    refused("aclnnUnfoldGrad", call, &["dim: expected 0 to 2, found -1"]);
    let (mut one, mut number) = (Data::new(AclType::F32, &[1], &[2.5]), Data::blank(AclType::F32, &[]));
    let call = vec![Arg::T(&mut one), Arg::Ints(&[]), Arg::I(0), Arg::I(1), Arg::I(3), Arg::T(&mut number)];
    run("aclnnUnfoldGrad", call).unwrap();
    assert_eq!(number.values(), [2.5]);
    for (repeats, counts) in [(&[2.0][..], [2, 2, 2]), (&[1.0, 0.0, 4.0], [1, 0, 4])] {
        let total: usize = counts.iter().sum();
        let grad = varied(2 * total * 2, 3);
        let mut g = Data::new(AclType::F32, &[2, total, 2], &grad).strided();
        let mut r = Data::new(AclType::I64, &[repeats.len()], repeats);
        let mut out = Data::blank(AclType::F32, &[2, 3, 2]).strided();
        run("aclnnRepeatInterleaveGrad", vec![Arg::T(&mut g), Arg::T(&mut r), Arg::I(1), Arg::T(&mut out)])
            .unwrap();
        let mut expected = Vec::new();
        for (a, index, c) in (0..12).map(|i| (i / 6, i / 2 % 3, i % 2)) {
            let first: usize = counts[..index].iter().sum();
            expected.push((first..first + counts[index]).map(|at| grad[(a * total + at) * 2 + c]).sum());
        }
        close(&out.values(), &expected, 1e-6, "repeats");
        let mut wrong = Data::new(AclType::I64, &[3], &[1.0, 1.0, 9.0]);
        let call = vec![Arg::T(&mut g), Arg::T(&mut wrong), Arg::I(1), Arg::T(&mut out)];
        refused("aclnnRepeatInterleaveGrad", call, &[&format!("with the sum {total}")]);
    }
}

#[test]
fn positive_matrices_have_roots() {
    let root = [2.0, 0.0, 0.0, 1.0, 3.0, 0.0, -1.0, 0.5, 1.5];
    let product = |a: &[f64], i: usize, j: usize| (0..3).map(|k| a[i * 3 + k] * a[j * 3 + k]).sum::<f64>();
    let matrix: Vec<f64> = (0..9).map(|at| product(&root, at / 3, at % 3)).collect();
    for upper in [false, true] {
        let mut x = Data::new(AclType::F32, &[1, 3, 3], &matrix).strided();
        let mut out = Data::blank(AclType::F32, &[1, 3, 3]).strided();
        run("aclnnLinalgCholesky", vec![Arg::T(&mut x), Arg::B(upper), Arg::T(&mut out)]).unwrap();
        let expected: Vec<f64> =
            (0..9).map(|at| if upper { root[at % 3 * 3 + at / 3] } else { root[at] }).collect();
        close(&out.values(), &expected, 1e-5, &format!("upper {upper}"));
    }
    let mut x = Data::new(AclType::F32, &[2, 2], &[1.0, 2.0, 2.0, 1.0]);
    let mut out = Data::blank(AclType::F32, &[2, 2]);
    refused(
        "aclnnLinalgCholesky",
        vec![Arg::T(&mut x), Arg::B(false), Arg::T(&mut out)],
        &["matrix 0 is not positive definite"],
    );
}

#[test]
fn later_forms_have_the_bits_of_earlier_ones() {
    let d = |values: &[f64], dims: &[usize]| Data::new(AclType::F32, dims, values);
    let (mut x, mut at, mut rows) =
        (d(&varied(6, 1), &[3, 2]), Data::new(AclType::I64, &[2], &[2.0, 2.0]), d(&varied(4, 5), &[2, 2]));
    let mut results = Vec::new();
    for mode in [None, Some(0), Some(1)] {
        let mut out = Data::blank(AclType::F32, &[3, 2]);
        let mut call = vec![Arg::T(&mut x), Arg::I(0), Arg::T(&mut at), Arg::T(&mut rows), real(2.0)];
        call.extend(mode.map(Arg::I));
        call.push(Arg::T(&mut out));
        run(if mode.is_some() { "aclnnIndexAddV2" } else { "aclnnIndexAdd" }, call).unwrap();
        results.push(out.values());
    }
    assert!(results[0] == results[1] && results[0] == results[2]);
    let (mut a, mut weight) = (d(&varied(12, 1), &[3, 4]), d(&varied(4, 2), &[4]));
    let mut norms = Vec::new();
    for name in ["aclnnLayerNorm", "aclnnFastLayerNorm"] {
        let (mut out, mut mean, mut rstd) = (
            Data::blank(AclType::F32, &[3, 4]),
            Data::blank(AclType::F32, &[3, 1]),
            Data::blank(AclType::F32, &[3, 1]),
        );
        let mut call = vec![Arg::T(&mut a), Arg::Ints(&[4]), Arg::T(&mut weight), Arg::Null, Arg::F(1e-5)];
        call.extend([Arg::T(&mut out), Arg::T(&mut mean), Arg::T(&mut rstd)]);
        run(name, call).unwrap();
        norms.push([out.values(), mean.values(), rstd.values()]);
    }
    assert_eq!(norms[0], norms[1]);
    let mut turned = Vec::new();
    for mode in [None, Some("half"), Some("interleave")] {
        let (mut q, mut k) = (d(&varied(256, 1), &[1, 1, 2, 128]), d(&varied(128, 2), &[1, 1, 1, 128]));
        let (mut cos, mut sin) = (d(&varied(128, 3), &[1, 1, 1, 128]), d(&varied(128, 4), &[1, 1, 1, 128]));
        let mut call = vec![Arg::T(&mut q), Arg::T(&mut k), Arg::T(&mut cos), Arg::T(&mut sin), Arg::I(1)];
        call.extend(mode.map(Arg::Text));
        if mode == Some("interleave") {
            refused("aclnnApplyRotaryPosEmbV2", call, &["rotaryMode: expected half, found \"interleave\""]);
            continue;
        }
        run(if mode.is_some() { "aclnnApplyRotaryPosEmbV2" } else { "aclnnApplyRotaryPosEmb" }, call)
            .unwrap();
        turned.push([q.values(), k.values()]);
    }
    assert_eq!(turned[0], turned[1]);
    let (mut scale, mut offset) = (d(&[0.3, 1.7], &[2]), d(&[3.0, -5.0], &[2]));
    let (mut first, mut second) = (Data::blank(AclType::U64, &[2]), Data::blank(AclType::U64, &[2]));
    run("aclnnTransQuantParamV2", vec![Arg::T(&mut scale), Arg::T(&mut offset), Arg::T(&mut first)]).unwrap();
    run(
        "aclnnTransQuantParamV3",
        vec![Arg::T(&mut scale), Arg::T(&mut offset), Arg::I(0), Arg::T(&mut second)],
    )
    .unwrap();
    assert_eq!(first.memory, second.memory);
    let call = vec![Arg::T(&mut scale), Arg::T(&mut offset), Arg::I(1), Arg::T(&mut second)];
    refused("aclnnTransQuantParamV3", call, &["roundMode: expected 0, found 1"]);
}

#[test]
fn divergences_have_gradients_for_targets() {
    let (x, up) = (varied(6, 1), varied(6, 4));
    for (is_log, reduction, divisor) in [(false, 0, 1.0), (true, 1, 6.0), (false, 2, 1.0), (true, 3, 2.0)] {
        let targets: Vec<f64> = varied(6, 7).iter().map(|t| if is_log { *t } else { t.abs() }).collect();
        let loss = |x: f64, t: f64| if is_log { t.exp() * (t - x) } else { t * (t.ln() - x) };
        let (mut a, mut t) =
            (Data::new(AclType::F32, &[2, 3], &x).strided(), Data::new(AclType::F32, &[2, 3], &targets));
        let mut grad = if reduction == 0 {
            Data::new(AclType::F32, &[2, 3], &up)
        } else {
            Data::new(AclType::F32, &[], &up[..1])
        };
        let mut out = Data::blank(AclType::F32, &[2, 3]).strided();
        let mut call =
            vec![Arg::T(&mut grad), Arg::T(&mut a), Arg::T(&mut t), Arg::I(reduction), Arg::B(is_log)];
        call.push(Arg::T(&mut out));
        run("aclnnKlDivTargetBackward", call).unwrap();
        let slope = |i: usize| {
            let (t, h) = (targets[i], 1e-6);
            // A target of 0 has no gradient.
            let by =
                if t == 0.0 && !is_log { 0.0 } else { (loss(x[i], t + h) - loss(x[i], t - h)) / (2.0 * h) };
            by * up[if reduction == 0 { i } else { 0 }] / divisor
        };
        close(
            &out.values(),
            &(0..6).map(slope).collect::<Vec<_>>(),
            1e-4,
            &format!("log {is_log}, reduction {reduction}"),
        );
        let mut call = vec![Arg::T(&mut grad), Arg::T(&mut a), Arg::T(&mut t), Arg::I(4), Arg::B(is_log)];
        call.push(Arg::T(&mut out));
        refused("aclnnKlDivTargetBackward", call, &["reduction: expected 0 to 3, found 4"]);
    }
}
