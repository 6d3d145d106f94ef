//! Gradients against plain loops.

use super::*;
use crate::dtype::AclType;

fn laid(data: Data, strided: bool) -> Data {
    if strided { data.strided() } else { data }
}

fn held(values: Vec<f64>, dtype: AclType) -> Vec<f64> {
    values.into_iter().map(|value| rounded(value, dtype)).collect()
}

#[test]
fn rms_norm_grad_over_types_dims_and_layouts() {
    let types = [
        (AclType::F32, AclType::F32),
        (AclType::F16, AclType::F16),
        (AclType::BF16, AclType::BF16),
        (AclType::F16, AclType::F32),
        (AclType::BF16, AclType::F32),
    ];
    let shapes: [(&[usize], usize); 6] = [
        (&[3, 50], 1),
        (&[2, 3, 8], 2),
        (&[7, 1, 33], 1),
        (&[0, 4], 1),
        (&[500, 3], 1),
        (&[2, 5, 1, 100], 1),
    ];
    for (x_type, gamma_type) in types {
        for (dims, normed) in shapes {
            for (strided, squeezed) in [(false, false), (true, true)] {
                let kept = dims.len() - normed;
                let (rows, width): (usize, usize) =
                    (dims[..kept].iter().product(), dims[kept..].iter().product());
                let values = |len, seed| held(varied(len, seed), x_type);
                let (dy, x, scale) =
                    (values(rows * width, 1), values(rows * width, 2), held(varied(width, 3), gamma_type));
                let inverse: Vec<f64> =
                    (0..rows).map(|row| rounded(1.0 / (1.5 + row as f64 / 7.0), AclType::F32)).collect();
                let mut stats = dims[..kept].to_vec();
                stats.extend(vec![1; if squeezed { 0 } else { normed }]);
                let mut grad = laid(Data::new(x_type, dims, &dy), strided);
                let mut input = laid(Data::new(x_type, dims, &x), strided);
                let mut rstd = laid(Data::new(AclType::F32, &stats, &inverse), strided);
                let mut gamma = laid(Data::new(gamma_type, &dims[kept..], &scale), strided);
                let mut dx = laid(Data::new(x_type, dims, &vec![7.0; rows * width]), strided);
                let mut dgamma = laid(Data::new(AclType::F32, &dims[kept..], &vec![7.0; width]), strided);
                let tensors = [&mut grad, &mut input, &mut rstd, &mut gamma, &mut dx, &mut dgamma];
                run("aclnnRmsNormGrad", tensors.into_iter().map(Arg::T).collect()).unwrap();
                let (mut dx_wanted, mut dgamma_wanted) = (Vec::new(), vec![0.0; width]);
                for (row, inverse) in inverse.iter().enumerate() {
                    let at = |i: usize| row * width + i;
                    let normal = |i: usize| x[at(i)] * inverse;
                    let mean: f64 =
                        (0..width).map(|i| dy[at(i)] * scale[i] * normal(i)).sum::<f64>() / width as f64;
                    dx_wanted.extend((0..width).map(|i| (dy[at(i)] * scale[i] - normal(i) * mean) * inverse));
                    (0..width).for_each(|i| dgamma_wanted[i] += dy[at(i)] * normal(i));
                }
                let what = format!("{x_type} {gamma_type} {dims:?} {strided}");
                close(&dx.values(), &dx_wanted, 2.0 * precision(x_type), &what);
                close(&dgamma.values(), &dgamma_wanted, 1e-5, &what);
            }
        }
    }
}

#[test]
fn rms_norm_grad_refusals() {
    let says = |x: (AclType, &[usize]),
                rstd: &[usize],
                gamma: (AclType, &[usize]),
                dgamma: (AclType, &[usize]),
                part: &str| {
        let data =
            |(dtype, dims): (AclType, &[usize])| Data::new(dtype, dims, &vec![1.0; dims.iter().product()]);
        let (mut dy, mut x, mut dx) = (data(x), data(x), data(x));
        let (mut rstd, mut gamma, mut dgamma) = (data((AclType::F32, rstd)), data(gamma), data(dgamma));
        let tensors = [&mut dy, &mut x, &mut rstd, &mut gamma, &mut dx, &mut dgamma];
        refused("aclnnRmsNormGrad", tensors.into_iter().map(Arg::T).collect(), &[part]);
    };
    let (half, single) = (AclType::F16, AclType::F32);
    says((half, &[4]), &[1], (half, &[4]), (single, &[4]), "dy: expected 2 to 8 dims, found 1");
    says(
        (half, &[2, 4]),
        &[2],
        (half, &[2]),
        (single, &[2]),
        "gamma: expected the trailing dims of x [2, 4], but not all",
    );
    says((half, &[2, 4]), &[1], (half, &[2, 4]), (single, &[2, 4]), "but not all, found [2, 4]");
    says(
        (half, &[2, 4]),
        &[2],
        (AclType::BF16, &[4]),
        (single, &[4]),
        "gamma: expected FLOAT16 (the type of x, or FLOAT)",
    );
    says(
        (half, &[2, 4]),
        &[2],
        (half, &[4]),
        (half, &[4]),
        "dgammaOut: expected an element type of FLOAT, found FLOAT16",
    );
    says(
        (half, &[2, 3, 4]),
        &[2, 1],
        (half, &[4]),
        (single, &[4]),
        "rstd: expected shape [2, 3], with or without dims of 1",
    );
}

#[test]
fn gradients_of_activations_over_types_and_layouts() {
    let share = |x: f64| 1.0 / (1.0 + (-x).exp());
    let slope = |x: f64| share(x) * (1.0 + x * (1.0 - share(x)));
    for dtype in FLOATS {
        for dims in [&[5][..], &[3, 7], &[2, 3, 700], &[0, 4], &[1100, 1]] {
            for strided in [false, true] {
                let len: usize = dims.iter().product();
                let (dy, x) = (varied(len, 1), varied(len, 2));
                let mut grad = laid(Data::new(dtype, dims, &dy), strided);
                let mut input = laid(Data::new(dtype, dims, &x), strided);
                let mut out = laid(Data::new(dtype, dims, &vec![7.0; len]), strided);
                run("aclnnSiluBackward", vec![Arg::T(&mut grad), Arg::T(&mut input), Arg::T(&mut out)])
                    .unwrap();
                let wanted: Vec<f64> = dy.iter().zip(&x).map(|(dy, &x)| dy * slope(x)).collect();
                close(&out.values(), &wanted, precision(dtype), &format!("silu {dtype} {dims:?} {strided}"));
            }
        }
        for (dims, dim) in [(&[6][..], 0i64), (&[3, 10], 1), (&[4, 3, 5], 0), (&[2, 6, 500], -2)] {
            let axis = if dim < 0 { dims.len() as i64 + dim } else { dim } as usize;
            let (half, inner) = (dims[axis] / 2, dims[axis + 1..].iter().product::<usize>());
            let len: usize = dims.iter().product();
            let (dy, x) = (varied(len / 2, 1), varied(len, 2));
            let mut halved = dims.to_vec();
            halved[axis] = half;
            let (mut grad, mut input) = (Data::new(dtype, &halved, &dy), Data::new(dtype, dims, &x));
            let mut out = Data::blank(dtype, dims);
            run(
                "aclnnSwiGluGrad",
                vec![Arg::T(&mut grad), Arg::T(&mut input), Arg::I(dim), Arg::T(&mut out)],
            )
            .unwrap();
            let wanted: Vec<f64> = (0..len)
                .map(|i| {
                    let (block, place) = (i / (2 * half * inner), i % (2 * half * inner));
                    let pair = place % (half * inner);
                    let (first, grad) = (block * 2 * half * inner + pair, dy[block * half * inner + pair]);
                    let (gate, up) = (x[first], x[first + half * inner]);
                    if place < half * inner { grad * slope(gate) * up } else { grad * gate * share(gate) }
                })
                .collect();
            close(&out.values(), &wanted, precision(dtype), &format!("swiglu {dtype} {dims:?} {dim}"));
        }
    }
}

#[test]
fn gradients_of_activations_are_refused_where_shapes_or_types_differ() {
    let data = |dtype, dims: &[usize]| Data::new(dtype, dims, &vec![1.0; dims.iter().product()]);
    let (mut x, mut other, mut flat) =
        (data(AclType::F32, &[2, 4]), data(AclType::F16, &[2, 4]), data(AclType::F32, &[8]));
    let (mut grad, mut out) = (data(AclType::F32, &[2, 2]), data(AclType::F32, &[2, 4]));
    let parts = ["self: expected FLOAT (the type of gradOutput), found FLOAT16"];
    refused("aclnnSiluBackward", vec![Arg::T(&mut x), Arg::T(&mut other), Arg::T(&mut out)], &parts);
    let parts = ["gradInput: expected shape [2, 4] (of gradOutput), found [8]"];
    refused("aclnnSiluBackward", vec![Arg::T(&mut x), Arg::T(&mut out), Arg::T(&mut flat)], &parts);
    let mut call = |grad: &mut Data, x: &mut Data, dim: i64, part: &str| {
        let arguments = vec![Arg::T(grad), Arg::T(x), Arg::I(dim), Arg::T(&mut out)];
        refused("aclnnSwiGluGrad", arguments, &[part]);
    };
    call(&mut grad, &mut x, 0, "yGrad: expected shape [1, 4] (of x with dim halved), found [2, 2]");
    call(&mut grad, &mut x, 2, "dim: expected a dim in -2..2, found 2");
    call(&mut grad, &mut data(AclType::F32, &[2, 5]), 1, "x: expected an even extent of dim 1, found [2, 5]");
    call(&mut grad, &mut data(AclType::F32, &[0, 4]), 1, "x: expected a tensor with elements, found [0, 4]");
    call(&mut grad, &mut other, 1, "yGrad: expected FLOAT16 (the type of x), found FLOAT");
    call(&mut grad.clone().strided(), &mut x, 1, "yGrad: expected a contiguous tensor");
    call(&mut grad, &mut x.clone().strided(), 1, "x: expected a contiguous tensor");
}

#[test]
fn softmax_backward_along_every_dim() {
    let shapes: [(&[usize], i64); 6] =
        [(&[2, 3, 5], 2), (&[2, 3, 5], 0), (&[2, 3, 5], -2), (&[4, 2000], -1), (&[], 0), (&[3, 0], 1)];
    for dtype in FLOATS {
        for (dims, dim) in shapes {
            for strided in [false, true] {
                let len: usize = dims.iter().product();
                let axis = if dim < 0 { dims.len() as i64 + dim } else { dim } as usize;
                let (extent, inner) = if dims.is_empty() {
                    (1, 1)
                } else {
                    (dims[axis], dims[axis + 1..].iter().product::<usize>())
                };
                let shares: Vec<f64> =
                    (0..len).map(|i| ((i * 7) % 5) as f64 / (4.0 * extent as f64)).collect();
                let (dy, y) = (held(varied(len, 4), dtype), held(shares, dtype));
                let mut grad = laid(Data::new(dtype, dims, &dy), strided);
                let mut result = laid(Data::new(dtype, dims, &y), strided);
                let mut out = laid(Data::new(dtype, dims, &vec![7.0; len]), strided);
                let arguments = vec![Arg::T(&mut grad), Arg::T(&mut result), Arg::I(dim), Arg::T(&mut out)];
                run("aclnnSoftmaxBackward", arguments).unwrap();
                let wanted: Vec<f64> = (0..len)
                    .map(|i| {
                        let start = i / (extent * inner) * extent * inner + i % inner;
                        let total: f64 =
                            (0..extent).map(|j| dy[start + j * inner] * y[start + j * inner]).sum();
                        dy[i] * y[i] - total * y[i]
                    })
                    .collect();
                close(&out.values(), &wanted, precision(dtype), &format!("{dtype} {dims:?} {dim} {strided}"));
            }
        }
    }
    let data = |dtype| Data::new(dtype, &[2], &[0.0; 2]);
    let (mut grad, mut result, mut out) = (data(AclType::F32), data(AclType::F32), data(AclType::F16));
    let parts = ["out: expected FLOAT (the type of gradOutput), found FLOAT16"];
    let arguments = vec![Arg::T(&mut grad), Arg::T(&mut result), Arg::I(0), Arg::T(&mut out)];
    refused("aclnnSoftmaxBackward", arguments, &parts);
    let mut out = data(AclType::F32);
    let arguments = vec![Arg::T(&mut grad), Arg::T(&mut result), Arg::I(-2), Arg::T(&mut out)];
    refused("aclnnSoftmaxBackward", arguments, &["dim: expected a dim in -1..1, found -2"]);
}

#[test]
fn embedding_dense_backward_sums_rows_that_were_looked_up() {
    let shapes: [(&[usize], usize, usize); 5] =
        [(&[6], 5, 3), (&[2, 3], 5, 7), (&[0], 4, 2), (&[40], 3, 1500), (&[9], 1, 1)];
    for dtype in FLOATS {
        for index_type in [AclType::I32, AclType::I64] {
            for (places, rows, width) in shapes {
                for (padding, scaled, strided) in
                    [(-1i64, false, false), (0, false, true), (-1, true, true), (0, true, false)]
                {
                    let count: usize = places.iter().product();
                    let indices: Vec<f64> = (0..count).map(|i| ((i * i + 1) % rows) as f64).collect();
                    let grads = varied(count * width, 5);
                    let dims = [places, &[width]].concat();
                    let mut grad = laid(Data::new(dtype, &dims, &grads), strided);
                    let mut index = laid(Data::new(index_type, places, &indices), strided);
                    let mut out = laid(Data::new(dtype, &[rows, width], &vec![7.0; rows * width]), strided);
                    let arguments = vec![
                        Arg::T(&mut grad),
                        Arg::T(&mut index),
                        Arg::I(rows as i64),
                        Arg::I(padding),
                        Arg::B(scaled),
                        Arg::T(&mut out),
                    ];
                    run("aclnnEmbeddingDenseBackward", arguments).unwrap();
                    let mut wanted = vec![0.0; rows * width];
                    for (i, &place) in
                        indices.iter().enumerate().filter(|(_, place)| **place as i64 != padding)
                    {
                        let times = indices.iter().filter(|other| **other == place).count();
                        let share = if scaled { 1.0 / times as f64 } else { 1.0 };
                        for column in 0..width {
                            wanted[place as usize * width + column] += grads[i * width + column] * share;
                        }
                    }
                    let what = format!("{dtype} {index_type} {places:?} {rows} {width} {padding} {scaled}");
                    close(&out.values(), &wanted, precision(dtype), &what);
                }
            }
        }
    }
}

#[test]
fn embedding_dense_backward_refusals() {
    let call = |index: f64, grad: &[usize], rows: i64, padding: i64, part: &str| {
        let mut grad = Data::new(AclType::F32, grad, &vec![1.0; grad.iter().product()]);
        let mut index = Data::new(AclType::I64, &[2], &[0.0, index]);
        let mut out = Data::new(AclType::F32, &[4, 3], &[7.0; 12]);
        let arguments = vec![
            Arg::T(&mut grad),
            Arg::T(&mut index),
            Arg::I(rows),
            Arg::I(padding),
            Arg::B(false),
            Arg::T(&mut out),
        ];
        refused("aclnnEmbeddingDenseBackward", arguments, &[part]);
        assert_eq!(out.values(), [7.0; 12], "nothing is written");
    };
    call(4.0, &[2, 3], 4, -1, "indices: index 4 at position 1 is outside 0..4");
    call(-1.0, &[2, 3], 4, -1, "indices: index -1 at position 1 is outside 0..4");
    call(1.0, &[2, 3], 5, -1, "out: expected numWeights 5 rows, found [4, 3]");
    call(
        1.0,
        &[3, 3],
        4,
        -1,
        "grad: expected shape [2, 3] (of indices, and then the columns of out), found [3, 3]",
    );
    call(
        1.0,
        &[2, 3],
        4,
        4,
        "paddingIdx: expected a row below numWeights 4, or a negative number for none, found 4",
    );
}
