//! Norms with sums, activations and quantisation; masked softmax; gated activations; rotations.

use super::*;

fn normed(row: &[f64], gamma: &[f64], beta: &[f64], epsilon: f64) -> (Vec<f64>, f64, f64) {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    let rstd =
        1.0 / (row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64 + epsilon).sqrt();
    let y = row.iter().zip(gamma.iter().zip(beta)).map(|(x, (g, b))| (x - mean) * rstd * g + b).collect();
    (y, mean, rstd)
}

/// Differences of `loss` by each value.
fn slopes(values: &[f64], loss: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let at = |i: usize, by: f64| {
        let mut moved = values.to_vec();
        moved[i] += by;
        loss(&moved)
    };
    (0..values.len()).map(|i| (at(i, 1e-5) - at(i, -1e-5)) / 2e-5).collect()
}

fn weighed(values: &[f64], weights: &[f64]) -> f64 {
    values.iter().zip(weights).map(|(x, w)| x * w).sum()
}

const EPS: f64 = 1e-3;

#[test]
fn sums_are_normalised() {
    let (x1, x2) = (varied(12, 1), varied(12, 4));
    let (gamma, beta, bias) = (varied(4, 2), varied(4, 3), varied(4, 5));
    let d = |dims: &[usize], values: &[f64]| Data::new(AclType::F32, dims, values).strided();
    let b = |dims: &[usize]| Data::blank(AclType::F32, dims).strided();
    let (mut a, mut c, mut g, mut h, mut i) =
        (d(&[3, 4], &x1), d(&[3, 4], &x2), d(&[4], &gamma), d(&[4], &beta), d(&[4], &bias));
    let (mut y, mut mean, mut rstd, mut sum) = (b(&[3, 4]), b(&[3, 1]), b(&[3, 1]), b(&[3, 4]));
    let mut call = vec![
        Arg::T(&mut a),
        Arg::T(&mut c),
        Arg::T(&mut g),
        Arg::T(&mut h),
        Arg::T(&mut i),
        Arg::F(EPS),
        Arg::B(true),
    ];
    call.extend([Arg::T(&mut y), Arg::T(&mut mean), Arg::T(&mut rstd), Arg::T(&mut sum)]);
    run("aclnnAddLayerNorm", call).unwrap();
    let added: Vec<f64> = (0..12).map(|at| x1[at] + x2[at] + bias[at % 4]).collect();
    let rows: Vec<_> = added.chunks(4).map(|row| normed(row, &gamma, &beta, EPS)).collect();
    close(&sum.values(), &added, 1e-6, "sum");
    close(&y.values(), &rows.iter().flat_map(|row| row.0.clone()).collect::<Vec<_>>(), 1e-5, "y");
    close(&mean.values(), &rows.iter().map(|row| row.1).collect::<Vec<_>>(), 1e-5, "mean");
    close(&rstd.values(), &rows.iter().map(|row| row.2).collect::<Vec<_>>(), 1e-5, "rstd");
    let mut narrow = b(&[3, 2]);
    let mut call = vec![
        Arg::T(&mut a),
        Arg::T(&mut narrow),
        Arg::T(&mut g),
        Arg::T(&mut h),
        Arg::Null,
        Arg::F(EPS),
        Arg::B(false),
    ];
    let (mut m, mut r) = (b(&[3, 1]), b(&[3, 1]));
    call.extend([Arg::T(&mut y), Arg::T(&mut m), Arg::T(&mut r), Arg::Null]);
    refused("aclnnAddLayerNorm", call, &["x2: expected shape [3, 4] (of x1), found [3, 2]"]);
}

#[test]
fn normalised_sums_have_gradients() {
    let (x1, x2, dy) = (varied(12, 1), varied(12, 4), varied(12, 7));
    let (gamma, beta) = (varied(4, 2), varied(4, 3));
    let d = |dims: &[usize], values: &[f64]| Data::new(AclType::F32, dims, values).strided();
    let b = |dims: &[usize]| Data::blank(AclType::F32, dims).strided();
    let (mut a, mut c, mut g, mut h) = (d(&[3, 4], &x1), d(&[3, 4], &x2), d(&[4], &gamma), d(&[4], &beta));
    // The backward pass, with and without a further gradient, and of the weighted sum.
    for alpha in [None, Some(1.5)] {
        let scale = alpha.unwrap_or(1.0);
        let total: Vec<f64> = x1.iter().zip(&x2).map(|(x, g)| scale * x + g).collect();
        let stats: Vec<_> = total.chunks(4).map(|row| normed(row, &gamma, &beta, EPS)).collect();
        let (mut mean, mut rstd) = (
            d(&[3, 1], &stats.iter().map(|row| row.1).collect::<Vec<_>>()),
            d(&[3, 1], &stats.iter().map(|row| row.2).collect::<Vec<_>>()),
        );
        let loss = |values: &[f64]| {
            let rows = values.chunks(4).flat_map(|row| normed(row, &gamma, &beta, EPS).0).collect::<Vec<_>>();
            weighed(&rows, &dy)
        };
        let grad = slopes(&total, loss);
        let (mut dx, mut dgx, mut dgamma, mut dbeta) = (b(&[3, 4]), b(&[3, 4]), b(&[4]), b(&[4]));
        let (mut dy_in, mut extra) = (d(&[3, 4], &dy), d(&[3, 4], &x2));
        let expected: Vec<f64>;
        if alpha.is_some() {
            let mut call = vec![
                Arg::T(&mut dy_in),
                Arg::T(&mut a),
                Arg::T(&mut c),
                Arg::T(&mut g),
                Arg::T(&mut mean),
                Arg::T(&mut rstd),
            ];
            call.extend([
                Arg::F(scale),
                Arg::T(&mut dx),
                Arg::T(&mut dgx),
                Arg::T(&mut dbeta),
                Arg::T(&mut dgamma),
            ]);
            run("aclnnDeepNormGrad", call).unwrap();
            close(&dgx.values(), &grad, 1e-4, "dgx");
            expected = grad.iter().map(|grad| grad * scale).collect();
            let mut out = b(&[3, 4]);
            let mut call = vec![
                Arg::T(&mut a),
                Arg::T(&mut c),
                Arg::T(&mut h),
                Arg::T(&mut g),
                Arg::F(scale),
                Arg::F(EPS),
            ];
            let (mut m, mut r) = (b(&[3, 1]), b(&[3, 1]));
            call.extend([Arg::T(&mut m), Arg::T(&mut r), Arg::T(&mut out)]);
            run("aclnnDeepNorm", call).unwrap();
            close(
                &out.values(),
                &stats.iter().flat_map(|row| row.0.clone()).collect::<Vec<_>>(),
                1e-5,
                "deep norm",
            );
        } else {
            let mut call = vec![
                Arg::T(&mut dy_in),
                Arg::T(&mut a),
                Arg::T(&mut c),
                Arg::T(&mut rstd),
                Arg::T(&mut mean),
                Arg::T(&mut g),
            ];
            call.extend([Arg::T(&mut extra), Arg::T(&mut dx), Arg::T(&mut dgamma), Arg::T(&mut dbeta)]);
            run("aclnnAddLayerNormGrad", call).unwrap();
            expected = grad.iter().zip(&x2).map(|(grad, extra)| grad + extra).collect();
        }
        close(&dx.values(), &expected, 1e-4, "dx");
        let plain: Vec<f64> =
            total.chunks(4).flat_map(|row| normed(row, &[1.0; 4], &[0.0; 4], EPS).0).collect();
        let of = |column: usize, weights: &[f64]| {
            (0..3).map(|row| dy[row * 4 + column] * weights[row * 4 + column]).sum::<f64>()
        };
        close(&dgamma.values(), &(0..4).map(|column| of(column, &plain)).collect::<Vec<_>>(), 1e-4, "dgamma");
        close(
            &dbeta.values(),
            &(0..4).map(|column| of(column, &[1.0; 12])).collect::<Vec<_>>(),
            1e-4,
            "dbeta",
        );
    }
}

fn rms(x1: &[f64], x2: &[f64], gamma: &[f64], dtype: AclType) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let sum: Vec<f64> = x1.iter().zip(x2).map(|(a, b)| rounded(a + b, dtype)).collect();
    let mut rstds = Vec::new();
    let mut norm = Vec::new();
    for row in sum.chunks(gamma.len()) {
        let rstd = 1.0 / (row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64 + EPS).sqrt();
        norm.extend(row.iter().zip(gamma).map(|(x, g)| x * rstd * g));
        rstds.push(rstd);
    }
    (sum, norm, rstds)
}

#[test]
fn root_mean_squares_are_cast() {
    for dtype in [AclType::F16, AclType::BF16] {
        let (x1, x2, gamma) = (varied(8, 1), varied(8, 4), varied(4, 2));
        let (sum, norm, rstds) = rms(&x1, &x2, &gamma, dtype);
        let d = |dims: &[usize], values: &[f64]| Data::new(dtype, dims, values).strided();
        let (mut a, mut c, mut g) = (d(&[2, 4], &x1), d(&[2, 4], &x2), d(&[4], &gamma));
        let (mut wide, mut narrow) = (Data::blank(AclType::F32, &[2, 4]), Data::blank(dtype, &[2, 4]));
        let (mut rstd, mut x) = (Data::blank(AclType::F32, &[2, 1]), Data::blank(dtype, &[2, 4]).strided());
        let mut call = vec![
            Arg::T(&mut a),
            Arg::T(&mut c),
            Arg::T(&mut g),
            Arg::F(EPS),
            Arg::T(&mut wide),
            Arg::T(&mut narrow),
        ];
        call.extend([Arg::T(&mut rstd), Arg::T(&mut x)]);
        run("aclnnAddRmsNormCast", call).unwrap();
        close(&narrow.values(), &norm, precision(dtype), "norm");
        assert_eq!((narrow.values(), x.values()), (wide.values(), sum.clone()));
        close(&rstd.values(), &rstds, 1e-6, "rstd");
        // The same in place.
        let (mut first, mut second) = (a.clone(), c.clone());
        let call =
            vec![Arg::T(&mut first), Arg::T(&mut second), Arg::T(&mut g), Arg::F(EPS), Arg::T(&mut rstd)];
        run("aclnnInplaceAddRmsNorm", call).unwrap();
        assert_eq!((first.values(), second.values()), (narrow.values(), sum.clone()));
    }
}

#[test]
fn root_mean_squares_are_quantised_by_given_scales() {
    for dtype in [AclType::F16, AclType::BF16] {
        let (x1, x2, gamma, beta) = (varied(8, 1), varied(8, 4), varied(4, 2), varied(4, 3));
        let (sum, norm, _) = rms(&x1, &x2, &gamma, dtype);
        let d = |dims: &[usize], values: &[f64]| Data::new(dtype, dims, values).strided();
        let (mut a, mut c, mut g, mut h) =
            (d(&[2, 4], &x1), d(&[2, 4], &x2), d(&[4], &gamma), d(&[4], &beta));
        let mut x = Data::blank(dtype, &[2, 4]).strided();
        // Static scales, with and without beta, as factors and divisors.
        let (scales, zeros) = ([8.0, 4.0, 16.0, 2.0], [1.0, 0.0, -3.0, 100.0]);
        let (mut s, mut z) = (Data::new(AclType::F32, &[4], &scales), Data::new(AclType::I32, &[4], &zeros));
        for (divides, with_beta) in [(true, true), (false, false)] {
            let (mut y, mut plain) =
                (Data::blank(AclType::I8, &[2, 4]).strided(), Data::blank(dtype, &[2, 4]));
            let mut call = vec![
                Arg::T(&mut a),
                Arg::T(&mut c),
                Arg::T(&mut g),
                Arg::T(&mut s),
                Arg::Null,
                Arg::T(&mut z),
                Arg::Null,
            ];
            if with_beta {
                call.push(Arg::T(&mut h));
            }
            call.extend([
                Arg::I(-1),
                Arg::F(EPS),
                Arg::B(divides),
                Arg::T(&mut y),
                Arg::Null,
                Arg::T(&mut x),
            ]);
            let name = if with_beta {
                call.push(Arg::T(&mut plain));
                "aclnnAddRmsNormQuantV2"
            } else {
                "aclnnAddRmsNormQuant"
            };
            run(name, call).unwrap();
            let level = |(i, x): (usize, &f64)| {
                let x = x + if with_beta { beta[i % 4] } else { 0.0 };
                let scaled = if divides { x / scales[i % 4] } else { x * scales[i % 4] };
                (scaled + zeros[i % 4]).round_ties_even().clamp(-128.0, 127.0)
            };
            assert_eq!(y.values(), norm.iter().enumerate().map(level).collect::<Vec<_>>(), "{name}");
            if with_beta {
                close(&plain.values(), &norm, precision(dtype), "the norm without beta");
            }
        }
        let (mut scale, mut offset) = (d(&[1], &[8.0]), Data::new(AclType::I8, &[1], &[3.0]));
        let mut y = Data::blank(AclType::I8, &[2, 4]);
        let mut total = d(&[2, 4], &sum);
        let mut call =
            vec![Arg::T(&mut total), Arg::T(&mut g), Arg::T(&mut h), Arg::T(&mut scale), Arg::T(&mut offset)];
        call.extend([Arg::F(EPS), Arg::T(&mut y)]);
        run("aclnnRmsNormQuant", call).unwrap();
        let level =
            |(i, x): (usize, &f64)| ((x + beta[i % 4]) * 8.0 + 3.0).round_ties_even().clamp(-128.0, 127.0);
        assert_eq!(y.values(), norm.iter().enumerate().map(level).collect::<Vec<_>>());
    }
}

#[test]
fn root_mean_squares_are_quantised_by_rows() {
    for dtype in [AclType::F16, AclType::BF16] {
        let (x1, x2, gamma, beta) = (varied(8, 1), varied(8, 4), varied(4, 2), varied(4, 3));
        let (_, norm, _) = rms(&x1, &x2, &gamma, dtype);
        let d = |dims: &[usize], values: &[f64]| Data::new(dtype, dims, values).strided();
        let (mut a, mut c, mut g, mut h) =
            (d(&[2, 4], &x1), d(&[2, 4], &x2), d(&[4], &gamma), d(&[4], &beta));
        let mut x = Data::blank(dtype, &[2, 4]).strided();
        // A scale for each row.
        let smooth = [1.0, 0.5, 2.0, 0.25];
        let mut factors = d(&[4], &smooth);
        let (mut y, mut scale) = (Data::blank(AclType::I8, &[2, 4]), Data::blank(AclType::F32, &[2]));
        let (mut second, mut own) = (Data::blank(AclType::I8, &[2, 4]), Data::blank(AclType::F32, &[2]));
        let mut call = vec![
            Arg::T(&mut a),
            Arg::T(&mut c),
            Arg::T(&mut g),
            Arg::Null,
            Arg::T(&mut factors),
            Arg::T(&mut h),
            Arg::F(EPS),
        ];
        call.extend([
            Arg::Flags(vec![true, true]),
            Arg::T(&mut y),
            Arg::T(&mut second),
            Arg::T(&mut x),
            Arg::T(&mut scale),
        ]);
        call.push(Arg::T(&mut own));
        run("aclnnAddRmsNormDynamicQuantV2", call).unwrap();
        for (found, scales, factors) in [(&y, &scale, [1.0; 4]), (&second, &own, smooth)] {
            let smoothed: Vec<f64> =
                norm.iter().enumerate().map(|(i, x)| (x + beta[i % 4]) * factors[i % 4]).collect();
            for (row, values) in smoothed.chunks(4).enumerate() {
                let scale = values.iter().fold(0.0, |most: f64, x| most.max(x.abs())) / 127.0;
                close(&[scales.values()[row]], &[scale], 1e-6, "scale");
                let levels: Vec<f64> = values.iter().map(|x| (x / scale).round_ties_even()).collect();
                assert_eq!(found.values()[row * 4..row * 4 + 4], levels);
            }
        }
        let mut call =
            vec![Arg::T(&mut a), Arg::T(&mut c), Arg::T(&mut g), Arg::Null, Arg::Null, Arg::F(EPS)];
        let mut plain = Data::blank(AclType::F32, &[3]);
        call.extend([Arg::T(&mut y), Arg::Null, Arg::T(&mut x), Arg::T(&mut plain), Arg::Null]);
        refused("aclnnAddRmsNormDynamicQuant", call, &["scale1Out: expected shape [2]"]);
    }
}

#[test]
fn groups_are_normalised_and_activated() {
    let (x, dy, gamma, beta) = (varied(24, 1), varied(24, 6), varied(4, 2), varied(4, 3));
    let scale = 1.5;
    let forward = |x: &[f64], gamma: &[f64], beta: &[f64], scale: f64| -> Vec<f64> {
        let mut out = Vec::new();
        for (group, row) in x.chunks(6).enumerate() {
            let (norm, ..) = normed(row, &[1.0; 6], &[0.0; 6], EPS);
            out.extend(norm.iter().enumerate().map(|(i, x)| {
                let channel = (group % 2) * 2 + i / 3;
                let z = x * gamma[channel] + beta[channel];
                z / (1.0 + (-scale * z).exp())
            }));
        }
        out
    };
    let d = |dims: &[usize], values: &[f64]| Data::new(AclType::F32, dims, values).strided();
    let b = |dims: &[usize]| Data::blank(AclType::F32, dims).strided();
    let (mut a, mut g, mut h) = (d(&[2, 4, 3], &x), d(&[4], &gamma), d(&[4], &beta));
    let (mut y, mut mean, mut rstd) = (b(&[2, 4, 3]), b(&[2, 2]), b(&[2, 2]));
    let mut call = vec![Arg::T(&mut a), Arg::T(&mut g), Arg::T(&mut h), Arg::I(2), Arg::F(EPS)];
    call.extend([Arg::T(&mut y), Arg::T(&mut mean), Arg::T(&mut rstd)]);
    run("aclnnGroupNormSilu", call).unwrap();
    close(&y.values(), &forward(&x, &gamma, &beta, 1.0), 1e-5, "silu");
    let mut call = vec![
        Arg::T(&mut a),
        Arg::T(&mut g),
        Arg::T(&mut h),
        Arg::I(2),
        Arg::Text("NCHW"),
        Arg::F(EPS),
        Arg::B(true),
    ];
    call.extend([Arg::F(scale), Arg::T(&mut y), Arg::T(&mut mean), Arg::T(&mut rstd)]);
    run("aclnnGroupNormSwish", call).unwrap();
    close(&y.values(), &forward(&x, &gamma, &beta, scale), 1e-5, "swish");
    let (mut up, mut dx, mut dgamma, mut dbeta) = (d(&[2, 4, 3], &dy), b(&[2, 4, 3]), b(&[4]), b(&[4]));
    let mut call = vec![
        Arg::T(&mut up),
        Arg::T(&mut mean),
        Arg::T(&mut rstd),
        Arg::T(&mut a),
        Arg::T(&mut g),
        Arg::T(&mut h),
    ];
    call.extend([
        Arg::I(2),
        Arg::NoText,
        Arg::F(scale),
        Arg::B(true),
        Arg::B(true),
        Arg::T(&mut dx),
        Arg::T(&mut dgamma),
    ]);
    call.push(Arg::T(&mut dbeta));
    run("aclnnGroupNormSwishGrad", call).unwrap();
    close(&dx.values(), &slopes(&x, |x| weighed(&forward(x, &gamma, &beta, scale), &dy)), 1e-4, "dx");
    close(
        &dgamma.values(),
        &slopes(&gamma, |gamma| weighed(&forward(&x, gamma, &beta, scale), &dy)),
        1e-4,
        "dgamma",
    );
    close(
        &dbeta.values(),
        &slopes(&beta, |beta| weighed(&forward(&x, &gamma, beta, scale), &dy)),
        1e-4,
        "dbeta",
    );
    let mut call = vec![Arg::T(&mut a), Arg::T(&mut g), Arg::T(&mut h), Arg::I(3), Arg::F(EPS)];
    call.extend([Arg::T(&mut y), Arg::T(&mut mean), Arg::T(&mut rstd)]);
    refused("aclnnGroupNormSilu", call, &["self: expected a multiple of 3 channels"]);
}

fn softmaxed(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = row.iter().map(|x| (x - most).exp()).sum();
    row.iter().map(|x| (x - most).exp() / total).collect()
}

#[test]
fn scores_are_masked_and_biased() {
    let (x, dy) = (varied(24, 1), varied(24, 9));
    let mask: Vec<f64> = (0..12).map(|i| f64::from(u8::from(i % 3 == 1))).collect();
    let hidden = |at: usize| mask[at / 12 * 6 + at % 6] != 0.0;
    let forward = |x: &[f64]| -> Vec<f64> {
        let scores: Vec<f64> =
            x.iter().enumerate().map(|(at, x)| if hidden(at) { -10000.0 } else { 0.5 * x }).collect();
        scores.chunks(3).flat_map(softmaxed).collect()
    };
    let d = |dims: &[usize], values: &[f64]| Data::new(AclType::F32, dims, values).strided();
    let b = |dims: &[usize]| Data::blank(AclType::F32, dims).strided();
    let mut m = Data::new(AclType::Bool, &[2, 1, 2, 3], &mask);
    let (mut a, mut y) = (d(&[2, 2, 2, 3], &x), b(&[2, 2, 2, 3]));
    run(
        "aclnnScaledMaskedSoftmax",
        vec![Arg::T(&mut a), Arg::T(&mut m), Arg::F(0.5), Arg::B(false), Arg::T(&mut y)],
    )
    .unwrap();
    close(&y.values(), &forward(&x), 1e-6, "softmax");
    let (mut up, mut dx) = (d(&[2, 2, 2, 3], &dy), b(&[2, 2, 2, 3]));
    let call =
        vec![Arg::T(&mut up), Arg::T(&mut y), Arg::T(&mut m), Arg::F(0.5), Arg::B(false), Arg::T(&mut dx)];
    run("aclnnScaledMaskedSoftmaxBackward", call).unwrap();
    close(&dx.values(), &slopes(&x, |x| weighed(&forward(x), &dy)), 1e-4, "gradient");
    let call = vec![Arg::T(&mut a), Arg::T(&mut m), Arg::F(0.5), Arg::B(true), Arg::T(&mut y)];
    refused("aclnnScaledMaskedSoftmax", call, &["fixedTriuMask: expected false, found true"]);
    // [B, W, N, S1, S2] = [1, 2, 2, 2, 3]
    let (shift, bias) = (varied(12, 3), varied(12, 5));
    let (mut a, mut m, mut r) = (d(&[1, 2, 2, 2, 3], &x), d(&[2, 2, 3], &shift), d(&[1, 1, 2, 2, 3], &bias));
    let mut y = b(&[1, 2, 2, 2, 3]);
    let call = vec![Arg::T(&mut a), Arg::T(&mut m), Arg::T(&mut r), Arg::F(0.5), Arg::I(0), Arg::T(&mut y)];
    run("aclnnMaskedSoftmaxWithRelPosBias", call).unwrap();
    let scores: Vec<f64> =
        (0..24).map(|at| 0.5 * x[at] + shift[at / 12 * 6 + at % 6] + bias[at % 12]).collect();
    close(&y.values(), &scores.chunks(3).flat_map(softmaxed).collect::<Vec<_>>(), 1e-6, "biased");
}

#[test]
fn gates_and_their_gradients() {
    let (x, dy) = (varied(24, 2), varied(12, 5));
    for (approximate, is_left) in [(0, true), (0, false), (1, true)] {
        let gelu = |x: f64| match approximate {
            0 => 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt())),
            _ => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
        };
        // [2, 4, 3], halved along the middle.
        let forward = |x: &[f64], gated: bool| -> Vec<f64> {
            let mut out = Vec::new();
            for (row, at) in (0..2).flat_map(|row| (0..6).map(move |at| (row, at))) {
                let (a, b) = (x[row * 12 + at], x[row * 12 + 6 + at]);
                let (gate, other) = if is_left { (a, b) } else { (b, a) };
                out.push(if gated { gelu(gate) * other } else { gelu(gate) });
            }
            out
        };
        let mut up = Data::new(AclType::F32, &[2, 2, 3], &dy).strided();
        let mut a = Data::new(AclType::F32, &[2, 4, 3], &x).strided();
        let mut g = Data::new(AclType::F32, &[2, 2, 3], &forward(&x, false));
        let mut dx = Data::blank(AclType::F32, &[2, 4, 3]).strided();
        let mut call = vec![
            Arg::T(&mut up),
            Arg::T(&mut a),
            Arg::T(&mut g),
            Arg::I(1),
            Arg::I(approximate),
            Arg::B(is_left),
        ];
        call.push(Arg::T(&mut dx));
        run("aclnnGeGluV3Backward", call).unwrap();
        close(&dx.values(), &slopes(&x, |x| weighed(&forward(x, true), &dy)), 1e-4, "gradient");
    }
    for interleaved in [false, true] {
        let mut a = Data::new(AclType::F32, &[2, 3, 4], &x).strided();
        let mut out = Data::new(AclType::F32, &[2, 3, 2], &[7.0; 12]);
        let mut counts = Data::new(AclType::I64, &[2], &[1.0, 3.0]);
        let mut call =
            vec![Arg::T(&mut a), Arg::T(&mut counts), Arg::I(-1), Arg::F(1.7), Arg::F(1.25), Arg::F(1.0)];
        call.extend([Arg::B(interleaved), Arg::T(&mut out)]);
        run("aclnnClippedSwiglu", call).unwrap();
        let mut expected = vec![7.0; 12];
        for at in 0..8 {
            let row = &x[at / 2 * 4..at / 2 * 4 + 4];
            let (gate, other) = if interleaved {
                (row[at % 2 * 2], row[at % 2 * 2 + 1])
            } else {
                (row[at % 2], row[2 + at % 2])
            };
            let (gate, other) = (gate.min(1.25), other.clamp(-1.25, 1.25));
            expected[at] = gate / (1.0 + (-1.7 * gate).exp()) * (other + 1.0);
        }
        close(&out.values(), &expected, 1e-5, &format!("interleaved {interleaved}"));
        let mut counts = Data::new(AclType::I64, &[1], &[9.0]);
        let mut call =
            vec![Arg::T(&mut a), Arg::T(&mut counts), Arg::I(-1), Arg::F(1.7), Arg::F(1.25), Arg::F(1.0)];
        call.extend([Arg::B(interleaved), Arg::T(&mut out)]);
        refused("aclnnClippedSwiglu", call, &["groupIndexOptional: expected a sum of 0 to 6 rows, found 9"]);
    }
}

#[test]
fn rotations_are_turned_back() {
    let (x, dy, cos, sin) = (varied(24, 1), varied(24, 8), varied(12, 3), varied(12, 6));
    for mode in [0, 1] {
        let partner = |i: usize| match (mode, i % 4) {
            (0, at) if at < 2 => (i + 2, -1.0),
            (0, _) => (i - 2, 1.0),
            (_, at) if at % 2 == 0 => (i + 1, -1.0),
            _ => (i - 1, 1.0),
        };
        // dy [2, 3, 1, 4], tables [1, 3, 1, 4]
        let forward = |x: &[f64], cos: &[f64], sin: &[f64]| -> Vec<f64> {
            (0..24).map(|i| x[i] * cos[i % 12] + partner(i).1 * x[partner(i).0] * sin[i % 12]).collect()
        };
        let d = |dims: &[usize], values: &[f64]| Data::new(AclType::F32, dims, values).strided();
        let (mut up, mut c, mut s, mut a) =
            (d(&[2, 3, 1, 4], &dy), d(&[1, 3, 1, 4], &cos), d(&[1, 3, 1, 4], &sin), d(&[2, 3, 1, 4], &x));
        let (mut dx, mut dc, mut ds) = (
            Data::blank(AclType::F32, &[2, 3, 1, 4]),
            Data::blank(AclType::F32, &[1, 3, 1, 4]),
            Data::blank(AclType::F32, &[1, 3, 1, 4]),
        );
        let mut call = vec![Arg::T(&mut up), Arg::T(&mut c), Arg::T(&mut s), Arg::T(&mut a), Arg::I(mode)];
        call.extend([Arg::T(&mut dx), Arg::T(&mut dc), Arg::T(&mut ds)]);
        run("aclnnRotaryPositionEmbeddingGrad", call).unwrap();
        close(&dx.values(), &slopes(&x, |x| weighed(&forward(x, &cos, &sin), &dy)), 1e-5, "dx");
        close(&dc.values(), &slopes(&cos, |cos| weighed(&forward(&x, cos, &sin), &dy)), 1e-5, "dcos");
        close(&ds.values(), &slopes(&sin, |sin| weighed(&forward(&x, &cos, sin), &dy)), 1e-5, "dsin");
        let mut call = vec![Arg::T(&mut up), Arg::T(&mut c), Arg::T(&mut s), Arg::Null, Arg::I(2)];
        call.extend([Arg::T(&mut dx), Arg::Null, Arg::Null]);
        refused("aclnnRotaryPositionEmbeddingGrad", call, &["mode: expected 0 to 1, found 2"]);
    }
}

fn levels(row: &[f64]) -> (Vec<f64>, f64) {
    let scale = row.iter().fold(0.0, |most: f64, x| most.max(x.abs())) / 127.0;
    (row.iter().map(|x| if scale > 0.0 { (x / scale).round_ties_even() } else { 0.0 }).collect(), scale)
}

#[test]
fn rows_of_experts_are_quantised() {
    let (x, smooth) = (varied(24, 1), varied(12, 4));
    let mut a = Data::new(AclType::F16, &[2, 3, 4], &x).strided();
    let mut s = Data::new(AclType::F16, &[3, 4], &smooth);
    let mut ends = Data::new(AclType::I32, &[3], &[1.0, 1.0, 6.0]);
    let (mut y, mut scale) =
        (Data::blank(AclType::I8, &[2, 3, 4]).strided(), Data::blank(AclType::F32, &[2, 3]).strided());
    let mut call = vec![
        Arg::T(&mut a),
        Arg::T(&mut s),
        Arg::T(&mut ends),
        Arg::I(2),
        Arg::T(&mut y),
        Arg::T(&mut scale),
    ];
    call.push(Arg::Null);
    run("aclnnDynamicQuantV2", call).unwrap();
    for row in 0..6 {
        let expert = if row == 0 { 0 } else { 2 };
        let own: Vec<f64> = (0..4).map(|i| x[row * 4 + i] * smooth[expert * 4 + i]).collect();
        assert_eq!(y.values()[row * 4..row * 4 + 4], levels(&own).0);
        close(&[scale.values()[row]], &[levels(&own).1], 1e-6, "scale");
    }
    let mut offset = Data::blank(AclType::F32, &[2, 3]);
    let mut call = vec![
        Arg::T(&mut a),
        Arg::Null,
        Arg::Null,
        Arg::I(2),
        Arg::T(&mut y),
        Arg::T(&mut scale),
        Arg::T(&mut offset),
    ];
    run("aclnnDynamicQuantV2", call).unwrap();
    let (found, scales, offsets) = (y.values(), scale.values(), offset.values());
    for (i, x) in x.iter().enumerate() {
        // The values of a row reach from about -128 to 127, and return within half a step.
        let back = (found[i] - offsets[i / 4]) * scales[i / 4];
        assert!((back - x).abs() <= 0.51 * scales[i / 4] && found[i].abs() <= 128.0, "{back} {x}");
    }
    assert!(found.chunks(4).all(|row| row.contains(&127.0) && row.contains(&-128.0)));
    let mut wrong = Data::new(AclType::I32, &[3], &[1.0, 0.0, 6.0]);
    call = vec![
        Arg::T(&mut a),
        Arg::T(&mut s),
        Arg::T(&mut wrong),
        Arg::I(2),
        Arg::T(&mut y),
        Arg::T(&mut scale),
        Arg::Null,
    ];
    refused("aclnnDynamicQuantV2", call, &["groupIndexOptional: expected ends that ascend to at most 6"]);
    // Static scales of experts.
    let (mut a, mut y) = (Data::new(AclType::F16, &[6, 4], &x), Data::blank(AclType::I8, &[6, 4]));
    let mut shift = Data::new(AclType::F16, &[1], &[3.0]);
    let call = vec![
        Arg::T(&mut a),
        Arg::T(&mut s),
        Arg::T(&mut ends),
        Arg::T(&mut shift),
        Arg::I(2),
        Arg::T(&mut y),
    ];
    run("aclnnGroupQuant", call).unwrap();
    let expected: Vec<f64> = (0..24)
        .map(|i| {
            (x[i] * smooth[if i < 4 { 0 } else { 8 } + i % 4] + 3.0).round_ties_even().clamp(-128.0, 127.0)
        })
        .collect();
    assert_eq!(y.values(), expected);
}

#[test]
fn sums_are_dequantised() {
    let sums: Vec<f64> = (0..12).map(|i| f64::from(i * 37 % 101 - 50)).collect();
    let (columns, rows) = ([0.5, 0.25, 2.0, 1.0], [1.0, 0.5, 4.0]);
    for (bias_type, code, out_type) in [(AclType::I32, 1, AclType::F16), (AclType::F32, 27, AclType::BF16)] {
        let mut x = Data::new(AclType::I32, &[3, 4], &sums).strided();
        let (mut w, mut a) = (Data::new(AclType::F32, &[4], &columns), Data::new(AclType::F32, &[3], &rows));
        let (mut b, mut out) =
            (Data::new(bias_type, &[4], &[3.0, -1.0, 0.0, 8.0]), Data::blank(out_type, &[3, 4]).strided());
        let call = vec![
            Arg::T(&mut x),
            Arg::T(&mut w),
            Arg::T(&mut a),
            Arg::T(&mut b),
            Arg::I(code),
            Arg::T(&mut out),
        ];
        run("aclnnDequantBias", call).unwrap();
        let bias = [3.0, -1.0, 0.0, 8.0];
        let of = |i: usize| {
            let scale = columns[i % 4] * rows[i / 4];
            if bias_type == AclType::I32 {
                (sums[i] + bias[i % 4]) * scale
            } else {
                sums[i] * scale + bias[i % 4]
            }
        };
        close(&out.values(), &(0..12).map(of).collect::<Vec<_>>(), precision(out_type), "dequantised");
    }
    for clipped in [false, true] {
        let (smooth, weights) = (varied(4, 3), varied(8, 6));
        let mut x = Data::new(AclType::I32, &[3, 4], &sums);
        let (mut w, mut a) =
            (Data::new(AclType::F32, &[2, 4], &weights), Data::new(AclType::F32, &[3], &rows));
        let (mut s, mut counts) =
            (Data::new(AclType::F32, &[2, 2], &smooth), Data::new(AclType::I64, &[2], &[1.0, 1.0]));
        let (mut y, mut scale) =
            (Data::new(AclType::I8, &[3, 2], &[9.0; 6]), Data::new(AclType::F32, &[3], &[9.0; 3]));
        let mut call = vec![
            Arg::T(&mut x),
            Arg::T(&mut w),
            Arg::T(&mut a),
            Arg::Null,
            Arg::T(&mut s),
            Arg::Null,
            Arg::T(&mut counts),
        ];
        call.extend([Arg::B(false), Arg::Text("dynamic")]);
        let name = if clipped {
            call.extend([
                Arg::I(2),
                Arg::Text("rint"),
                Arg::I(-1),
                Arg::I(1),
                Arg::F(7.0),
                Arg::F(1.7),
                Arg::F(1.0),
            ]);
            "aclnnDequantSwigluQuantV2"
        } else {
            "aclnnDequantSwigluQuant"
        };
        call.extend([Arg::T(&mut y), Arg::T(&mut scale)]);
        run(name, call).unwrap();
        let (mut expected, mut scales) = (vec![9.0; 6], vec![9.0; 3]);
        for row in 0..2 {
            let own: Vec<f64> =
                (0..4).map(|i| sums[row * 4 + i] * weights[row * 4 + i] * rows[row]).collect();
            let product = |at: usize| {
                let (gate, other) = if clipped {
                    (own[2 * at].min(7.0), own[2 * at + 1].clamp(-7.0, 7.0))
                } else {
                    (own[2 + at], own[at])
                };
                let alpha = if clipped { 1.7 } else { 1.0 };
                gate / (1.0 + (-alpha * gate).exp())
                    * (other + f64::from(u8::from(clipped)))
                    * smooth[row * 2 + at]
            };
            let (found, scale) = levels(&[product(0), product(1)]);
            expected[row * 2..row * 2 + 2].copy_from_slice(&found);
            scales[row] = scale;
        }
        assert_eq!(y.values(), expected, "{name}");
        close(&scale.values(), &scales, 1e-5, name);
    }
}
