//! Norms, softmax and rotary position embedding.

use super::*;
use crate::dtype::AclType;

#[test]
fn rms_norm_over_types_dims_and_layouts() {
    for (x_type, gamma_type) in [
        (AclType::F32, AclType::F32),
        (AclType::F16, AclType::F16),
        (AclType::BF16, AclType::BF16),
        (AclType::F16, AclType::F32),
        (AclType::BF16, AclType::F32),
    ] {
        for (dims, normed) in
            [(&[3usize, 50][..], 1), (&[2, 3, 8], 2), (&[7], 1), (&[0, 4], 1), (&[2, 1, 33], 1)]
        {
            for strided in [false, true] {
                let kept = dims.len() - normed;
                let len: usize = dims.iter().product();
                let width: usize = dims[kept..].iter().product();
                let (values, scale) = (varied(len, 1), varied(width, 2));
                let mut stats = dims.to_vec();
                stats[kept..].fill(1);
                let rows = len / width;
                let (mut x, mut gamma) =
                    (Data::new(x_type, dims, &values), Data::new(gamma_type, &dims[kept..], &scale));
                let (mut y, mut rstd) =
                    (Data::new(x_type, dims, &vec![0.0; len]), Data::blank(AclType::F32, &stats));
                if strided {
                    (x, gamma, y) = (x.strided(), gamma.strided(), y.strided());
                }
                let arguments =
                    vec![Arg::T(&mut x), Arg::T(&mut gamma), Arg::F(1e-5), Arg::T(&mut y), Arg::T(&mut rstd)];
                run("aclnnRmsNorm", arguments).unwrap();
                for row in 0..rows {
                    let line = &values[row * width..(row + 1) * width];
                    let mean: f64 = line.iter().map(|v| v * v).sum::<f64>() / width as f64;
                    let inverse = 1.0 / (mean + 1e-5).sqrt();
                    close(&rstd.values()[row..row + 1], &[inverse], 1e-5, "rstd");
                    let wanted: Vec<f64> = line.iter().zip(&scale).map(|(v, g)| v * inverse * g).collect();
                    close(&y.values()[row * width..(row + 1) * width], &wanted, precision(x_type), "y");
                }
            }
        }
    }
}

#[test]
fn rms_norm_refusals() {
    let mut x = Data::new(AclType::F16, &[2, 4], &[1.0; 8]);
    let mut gamma = Data::new(AclType::F16, &[4], &[1.0; 4]);
    let (mut y, mut rstd) = (x.clone(), Data::blank(AclType::F32, &[2, 1]));
    let mut short = Data::new(AclType::F16, &[2], &[1.0; 2]);
    let mut brain = Data::new(AclType::BF16, &[4], &[1.0; 4]);
    let mut flat = Data::blank(AclType::F32, &[2]);
    let mut wrong = Data::blank(AclType::F32, &[4]);
    let call = |x: &mut Data, gamma: &mut Data, y: &mut Data, rstd: &mut Data, parts: &[&str]| {
        refused("aclnnRmsNorm", vec![Arg::T(x), Arg::T(gamma), Arg::F(1e-6), Arg::T(y), Arg::T(rstd)], parts);
    };
    call(
        &mut x,
        &mut short,
        &mut y,
        &mut rstd,
        &["gamma: expected the trailing dims of x [2, 4], found [2]"],
    );
    call(
        &mut x,
        &mut brain,
        &mut y,
        &mut rstd,
        &["gamma: expected FLOAT16 (the type of x, or FLOAT), found BFLOAT16"],
    );
    call(&mut x, &mut gamma, &mut y, &mut wrong, &["rstdOut: expected shape [2, 1]"]);
    let without = vec![Arg::T(&mut x), Arg::T(&mut gamma), Arg::F(0.0), Arg::T(&mut y), Arg::T(&mut flat)];
    run("aclnnRmsNorm", without).unwrap();
    assert_eq!((flat.values(), y.values()), (vec![1.0; 2], vec![1.0; 8]), "the normed dims may be left out");
    call(&mut x, &mut gamma, &mut short, &mut rstd, &["yOut: expected shape [2, 4] (of x)"]);
    let mut half = Data::blank(AclType::F16, &[2, 1]);
    call(
        &mut x,
        &mut gamma,
        &mut y,
        &mut half,
        &["rstdOut: expected an element type of FLOAT, found FLOAT16"],
    );
}

#[test]
fn add_rms_norm_gives_the_sum_and_its_norm() {
    for dtype in FLOATS {
        let (a, b) = (varied(24, 3), varied(24, 4));
        let (mut x1, mut x2) = (Data::new(dtype, &[2, 12], &a), Data::new(dtype, &[2, 12], &b));
        let mut gamma = Data::new(dtype, &[12], &[1.0; 12]);
        let (mut y, mut sum, mut rstd) =
            (Data::blank(dtype, &[2, 12]), Data::blank(dtype, &[2, 12]), Data::blank(AclType::F32, &[2, 1]));
        let arguments = vec![
            Arg::T(&mut x1),
            Arg::T(&mut x2),
            Arg::T(&mut gamma),
            Arg::F(1e-6),
            Arg::T(&mut y),
            Arg::T(&mut rstd),
            Arg::T(&mut sum),
        ];
        run("aclnnAddRmsNorm", arguments).unwrap();
        let added: Vec<f64> = a.iter().zip(&b).map(|(x, y)| rounded(x + y, dtype)).collect();
        close(&sum.values(), &added, 0.0, "sum");
        for row in 0..2 {
            let line = &added[row * 12..(row + 1) * 12];
            let inverse = 1.0 / (line.iter().map(|v| v * v).sum::<f64>() / 12.0 + 1e-6).sqrt();
            let wanted: Vec<f64> = line.iter().map(|v| v * inverse).collect();
            close(&y.values()[row * 12..(row + 1) * 12], &wanted, precision(dtype), "y");
        }
    }
    let mut x1 = Data::new(AclType::F16, &[1, 2], &[1.0; 2]);
    let mut gamma = Data::new(AclType::F32, &[2], &[1.0; 2]);
    let (mut x2, mut y, mut sum, mut rstd) =
        (x1.clone(), x1.clone(), x1.clone(), Data::blank(AclType::F32, &[1, 1]));
    let arguments = vec![
        Arg::T(&mut x1),
        Arg::T(&mut x2),
        Arg::T(&mut gamma),
        Arg::F(1e-6),
        Arg::T(&mut y),
        Arg::T(&mut rstd),
        Arg::T(&mut sum),
    ];
    refused("aclnnAddRmsNorm", arguments, &["gamma: expected FLOAT16 (the type of x1), found FLOAT"]);
}

#[test]
fn layer_norm_with_and_without_its_options() {
    let values = varied(24, 5);
    let (weight, bias) = (varied(12, 6), varied(12, 7));
    for full in [false, true] {
        let mut x = Data::new(AclType::F32, &[2, 3, 4], &values).strided();
        let (mut w, mut b) =
            (Data::new(AclType::F32, &[3, 4], &weight), Data::new(AclType::F32, &[3, 4], &bias));
        let mut out = Data::blank(AclType::F32, &[2, 3, 4]);
        let (mut mean, mut rstd) =
            (Data::blank(AclType::F32, &[2, 1, 1]), Data::blank(AclType::F32, &[2, 1, 1]));
        let some = |data| if full { Arg::T(data) } else { Arg::Null };
        let arguments = vec![
            Arg::T(&mut x),
            Arg::Ints(&[3, 4]),
            some(&mut w),
            some(&mut b),
            Arg::F(1e-5),
            Arg::T(&mut out),
            some(&mut mean),
            some(&mut rstd),
        ];
        run("aclnnLayerNorm", arguments).unwrap();
        for row in 0..2 {
            let line = &values[row * 12..(row + 1) * 12];
            let centre = line.iter().sum::<f64>() / 12.0;
            let variance = line.iter().map(|v| (v - centre).powi(2)).sum::<f64>() / 12.0;
            let scale = 1.0 / (variance + 1e-5).sqrt();
            let wanted: Vec<f64> = (0..12)
                .map(|i| {
                    let normal = (line[i] - centre) * scale;
                    if full { normal * weight[i] + bias[i] } else { normal }
                })
                .collect();
            close(&out.values()[row * 12..(row + 1) * 12], &wanted, 1e-5, "layer norm");
            if full {
                close(&[mean.values()[row], rstd.values()[row]], &[centre, scale], 1e-5, "statistics");
            }
        }
    }
    let (mut x, mut out) = (Data::new(AclType::F32, &[2, 3], &[0.0; 6]), Data::blank(AclType::F32, &[2, 3]));
    let mut call = |shape: &[i64], part: &str| {
        let arguments = vec![
            Arg::T(&mut x),
            Arg::Ints(shape),
            Arg::Null,
            Arg::Null,
            Arg::F(1e-5),
            Arg::T(&mut out),
            Arg::Null,
            Arg::Null,
        ];
        refused("aclnnLayerNorm", arguments, &[part]);
    };
    call(&[2], "normalizedShape: expected the trailing dims of input [2, 3], found [2]");
    call(&[], "expected the trailing dims");
}

#[test]
fn softmax_and_its_logarithm_along_every_dim() {
    for dtype in FLOATS {
        for (dims, dim) in
            [(&[2usize, 3, 5][..], 2i64), (&[2, 3, 5], 0), (&[2, 3, 5], -2), (&[4, 2000], -1), (&[], 0)]
        {
            for strided in [false, true] {
                let len: usize = dims.iter().product();
                let values: Vec<f64> = varied(len, 8).iter().map(|&v| rounded(v, dtype)).collect();
                let axis = if dim < 0 { dims.len() as i64 + dim } else { dim } as usize;
                let (extent, inner) = if dims.is_empty() {
                    (1, 1)
                } else {
                    (dims[axis], dims[axis + 1..].iter().product::<usize>())
                };
                for name in ["aclnnSoftmax", "aclnnLogSoftmax"] {
                    let (mut x, mut out) =
                        (Data::new(dtype, dims, &values), Data::new(dtype, dims, &vec![0.0; len]));
                    if strided {
                        (x, out) = (x.strided(), out.strided());
                    }
                    run(name, vec![Arg::T(&mut x), Arg::I(dim), Arg::T(&mut out)]).unwrap();
                    let wanted: Vec<f64> = (0..len)
                        .map(|i| {
                            let start = i / (extent * inner) * extent * inner + i % inner;
                            let sum: f64 = (0..extent).map(|j| values[start + j * inner].exp()).sum();
                            let share = values[i].exp() / sum;
                            if name == "aclnnSoftmax" { share } else { share.ln() }
                        })
                        .collect();
                    close(
                        &out.values(),
                        &wanted,
                        precision(dtype),
                        &format!("{name} {dtype} {dims:?} {dim}"),
                    );
                }
            }
        }
    }
    let (mut x, mut out) = (Data::new(AclType::F32, &[2], &[0.0; 2]), Data::blank(AclType::F32, &[2]));
    refused(
        "aclnnSoftmax",
        vec![Arg::T(&mut x), Arg::I(1), Arg::T(&mut out)],
        &["dim: expected a dim in -1..1, found 1"],
    );
}

fn turned(x: &[f64], cos: f64, sin: f64, i: usize, mode: i64) -> f64 {
    let half = x.len() / 2;
    let partner = match (mode, i) {
        (0, i) if i < half => -x[i + half],
        (0, i) => x[i - half],
        (_, i) if i % 2 == 0 => -x[i + 1],
        (_, i) => x[i - 1],
    };
    x[i] * cos + partner * sin
}

#[test]
fn rotary_in_the_documented_layouts() {
    for dtype in FLOATS {
        for (x_dims, c_dims, mode) in [
            ([2usize, 5, 3, 16], [1usize, 5, 1, 16], 0),
            ([2, 5, 3, 16], [2, 5, 1, 16], 0),
            ([2, 5, 3, 16], [2, 5, 3, 16], 0),
            ([1, 3, 5, 16], [1, 1, 5, 16], 0),
            ([5, 2, 3, 16], [5, 1, 1, 16], 0),
            ([2, 5, 3, 16], [1, 5, 1, 16], 1),
            ([1, 1, 8, 128], [1, 1, 1, 128], 0),
            ([2, 0, 3, 16], [1, 0, 1, 16], 0),
        ] {
            let (xs, len): (Vec<f64>, usize) = (varied(x_dims.iter().product(), 9), x_dims.iter().product());
            let count = c_dims.iter().product();
            let (cs, ss) = (varied(count, 10), varied(count, 11));
            let mut x = Data::new(dtype, &x_dims, &xs).strided();
            let (mut cos, mut sin) =
                (Data::new(dtype, &c_dims, &cs), Data::new(dtype, &c_dims, &ss).strided());
            let mut out = Data::blank(dtype, &x_dims);
            let arguments =
                vec![Arg::T(&mut x), Arg::T(&mut cos), Arg::T(&mut sin), Arg::I(mode), Arg::T(&mut out)];
            run("aclnnRotaryPositionEmbedding", arguments).unwrap();
            let depth = x_dims[3];
            let wanted: Vec<f64> = (0..len)
                .map(|i| {
                    let row = &xs[i / depth * depth..(i / depth + 1) * depth];
                    let place = broadcast_index(&c_dims, &x_dims, i);
                    turned(row, cs[place], ss[place], i % depth, mode)
                })
                .collect();
            close(&out.values(), &wanted, precision(dtype), &format!("{dtype} {x_dims:?} {c_dims:?} {mode}"));
        }
    }
}

#[test]
fn queries_and_keys_turn_in_place_by_the_same_angles() {
    for dtype in FLOATS {
        let (heads, key_heads) = (3, 2);
        let dims = |heads: usize| [2, 5, heads, 128];
        let values = |heads: usize, seed| varied(dims(heads).iter().product(), seed);
        let angles = [10, 11].map(|seed| values(1, seed));
        let [mut cos, mut sin] = [0, 1].map(|at| Data::new(dtype, &dims(1), &angles[at]));
        let (qs, ks) = (values(heads, 8), values(key_heads, 9));
        let (mut q, mut k) = (Data::new(dtype, &dims(heads), &qs), Data::new(dtype, &dims(key_heads), &ks));
        let arguments = vec![Arg::T(&mut q), Arg::T(&mut k), Arg::T(&mut cos), Arg::T(&mut sin), Arg::I(1)];
        run("aclnnApplyRotaryPosEmb", arguments).unwrap();
        for (heads, data, found) in [(heads, &qs, q.values()), (key_heads, &ks, k.values())] {
            let wanted: Vec<f64> = (0..data.len())
                .map(|i| {
                    let row = &data[i / 128 * 128..(i / 128 + 1) * 128];
                    let place = broadcast_index(&dims(1), &dims(heads), i);
                    turned(row, angles[0][place], angles[1][place], i % 128, 0)
                })
                .collect();
            close(&found, &wanted, precision(dtype), &format!("{dtype}, {heads} heads"));
        }
    }
}

#[test]
fn rotary_pair_refusals() {
    let says = |q: [usize; 4], k: [usize; 4], c: [usize; 4], layout: i64, part: &str| {
        let data = |dims: &[usize]| Data::new(AclType::BF16, dims, &vec![0.0; dims.iter().product()]);
        let (mut q, mut k, mut cos, mut sin) = (data(&q), data(&k), data(&c), data(&c));
        let arguments =
            vec![Arg::T(&mut q), Arg::T(&mut k), Arg::T(&mut cos), Arg::T(&mut sin), Arg::I(layout)];
        refused("aclnnApplyRotaryPosEmb", arguments, &[part]);
    };
    let (q, k, c) = ([1, 2, 4, 128], [1, 2, 1, 128], [1, 2, 1, 128]);
    says(q, k, c, 3, "layout: expected 1 (BSND), found 3");
    says(
        [1, 2, 4, 64],
        [1, 2, 1, 64],
        [1, 2, 1, 64],
        1,
        "queryRef: expected a tensor with elements and a last dim of 128",
    );
    says(q, [1, 3, 1, 128], c, 1, "keyRef: expected shape");
    says(q, k, [1, 1, 1, 128], 1, "cos: expected shape");
    says([1, 2, 64, 128], [1, 2, 64, 128], c, 1, "take 329728 bytes of the unified buffer");
}

#[test]
fn rotary_refusals() {
    let says = |x_dims: [usize; 4], c_dims: [usize; 4], mode: i64, parts: &[&str]| {
        let data = |dims: &[usize]| Data::new(AclType::F16, dims, &vec![0.0; dims.iter().product()]);
        let (mut x, mut cos, mut sin, mut out) = (data(&x_dims), data(&c_dims), data(&c_dims), data(&x_dims));
        let arguments =
            vec![Arg::T(&mut x), Arg::T(&mut cos), Arg::T(&mut sin), Arg::I(mode), Arg::T(&mut out)];
        refused("aclnnRotaryPositionEmbedding", arguments, parts);
    };
    says([1, 2, 3, 16], [1, 2, 1, 16], 2, &["mode: expected 0 (half) or 1 (interleaved), found 2"]);
    says([1, 2, 3, 15], [1, 2, 1, 15], 0, &["x: expected an even last dim below 896"]);
    says([1, 1, 1, 896], [1, 1, 1, 896], 0, &["x: expected an even last dim below 896"]);
    says([2, 5, 3, 16], [1, 4, 1, 16], 0, &["cos: [1, 4, 1, 16] fits x [2, 5, 3, 16] in no layout"]);
    says([2, 5, 3, 16], [2, 5, 1, 16], 1, &["in no layout"]);
    // Head-major with more than eight heads per position; D/2 is a multiple of 32 bytes.
    says([1, 20, 2, 64], [1, 1, 2, 64], 0, &["B*N <= 8*S"]);
}
