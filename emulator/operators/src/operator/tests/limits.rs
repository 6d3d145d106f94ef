//! Huge dims fail without allocation, legal edge cases pass, and results survive type limits.

use super::*;
use crate::dtype::AclType::{self, BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16};

fn told(dtype: AclType, dims: &[i64]) -> Arg<'static> {
    told_as(dtype, dims, 2)
}

fn told_as(dtype: AclType, dims: &[i64], format: i32) -> Arg<'static> {
    let mut strides = vec![1i64; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(dims[i].max(1));
    }
    let (storage, dims, address) = (dims.to_vec(), dims.to_vec(), 1 << 20);
    let dtype = code_of(dtype);
    Arg::Told(TensorDesc { dtype, format, dims, strides, offset: 0, storage, address, handle: 0 })
}

const HUGE: i64 = 1 << 40;

type Call = (&'static str, Vec<Arg<'static>>, &'static str);

/// An empty text means that the call is accepted.
#[track_caller]
fn decided(calls: Vec<Call>) {
    for (i, (name, arguments, text)) in calls.into_iter().enumerate() {
        match prepared(name, arguments) {
            Ok(_) => assert!(text.is_empty(), "call {i}: {name} is accepted, expected {text:?}"),
            Err(message) => {
                assert!(
                    !text.is_empty() && message.contains(text),
                    "call {i}: {message:?}, expected {text:?}"
                );
            }
        }
    }
}

#[test]
fn planning_takes_no_memory_for_what_dims_say() {
    let (x, plane) = (|| told(F32, &[2, 3]), || told(F32, &[1, 1, 2, 2]));
    decided(vec![
        (
            "aclnnReplicationPad1d",
            vec![x(), Arg::Ints(&[HUGE, 0]), x()],
            "out: expected shape [2, 1099511627779]",
        ),
        ("aclnnReplicationPad1d", vec![x(), Arg::Ints(&[1, i64::MAX]), x()], "overflow"),
        ("aclnnUpsampleNearest2d", vec![plane(), Arg::Ints(&[HUGE, 1]), plane()], "out: expected shape"),
        (
            "aclnnRepeatInterleaveIntWithDim",
            vec![x(), Arg::I(HUGE), Arg::I(1), Arg::I(3 * HUGE), x()],
            "out: expected shape [2, 3298534883328]",
        ),
        (
            "aclnnRepeatInterleaveIntWithDim",
            vec![x(), Arg::I(i64::MAX), Arg::I(1), Arg::I(1), x()],
            "outputSize",
        ),
        ("aclnnFlip", vec![told(I8, &[HUGE]), Arg::Ints(&[0]), told(I8, &[HUGE])], ""),
        ("aclnnRoll", vec![told(I8, &[HUGE]), Arg::Ints(&[1]), Arg::Ints(&[]), told(I8, &[HUGE])], ""),
        ("aclnnRoll", vec![told(I8, &[HUGE]), Arg::Ints(&[1]), Arg::Ints(&[0]), told(I8, &[HUGE])], ""),
        (
            "aclnnSplitTensor",
            vec![told(I8, &[HUGE]), Arg::I(1), Arg::I(0), Arg::Tolds(vec![told(I8, &[HUGE])])],
            "tensors",
        ),
        ("aclnnAdaptiveAvgPool2d", vec![plane(), Arg::Ints(&[HUGE, 1]), plane()], "out: expected shape"),
        (
            "aclnnAdaptiveAvgPool2dBackward",
            vec![told(F32, &[0, HUGE, 1]), told(F32, &[0, 2, 2]), told(F32, &[0, 2, 2])],
            "",
        ),
        (
            "aclnnAvgPool2d",
            vec![
                told_as(F32, &[1, 1, HUGE], 47),
                Arg::Ints(&[1, 100_000]),
                Arg::Ints(&[1, 1]),
                Arg::Ints(&[0, 0]),
                Arg::B(false),
                Arg::B(true),
                Arg::I(0),
                Arg::I(0),
                told_as(F32, &[1, 1, HUGE - 99_999], 47),
            ],
            "",
        ),
        ("aclnnExp", vec![told(F32, &[0, HUGE, HUGE]), x()], "overflow"),
    ]);
}

fn convolution(
    x: &[i64],
    weight: &[i64],
    arrays: [&'static [i64]; 3],
    groups: i64,
    out: &[i64],
) -> Vec<Arg<'static>> {
    let [stride, padding, dilation] = arrays.map(Arg::Ints);
    let more = Arg::Ints(&[0, 0, 0][..x.len() - 2]);
    let [x, weight, out] = [x, weight, out].map(|dims| told(F32, dims));
    vec![x, weight, Arg::Null, stride, padding, dilation, Arg::B(false), more, Arg::I(groups), out, Arg::I(0)]
}

#[test]
fn convolutions_take_what_their_page_allows() {
    let (x, weight, one): (&[i64], &[i64], &[i64]) = (&[1, 2, 5, 5], &[4, 2, 3, 3], &[1, 1]);
    let call = |arrays, out: &[i64]| convolution(x, weight, arrays, 1, out);
    let of_type = |dtype, math| {
        let mut call = call([one, &[0, 0], one], &[1, 4, 3, 3]);
        for (at, dims) in [(0, x), (1, weight), (9, &[1, 4, 3, 3])] {
            call[at] = told(dtype, dims);
        }
        call[10] = Arg::I(math);
        call
    };
    let name = "aclnnConvolution";
    decided(vec![
        (name, call([one, &[0, 0], one], &[1, 4, 3, 3]), ""),
        (name, call([one, &[1, 1, 2, 2], one], &[1, 4, 5, 7]), ""),
        (name, call([one, &[0, 1, 0, 0], one], &[1, 4, 4, 3]), ""),
        (name, convolution(&[1, 2, 5], &[4, 2, 3], [&[1], &[0, 1], &[1]], 1, &[1, 4, 4]), ""),
        (name, convolution(&[1, 2, 5], &[4, 2, 3], [&[1], &[1], &[1]], 1, &[1, 4, 5]), ""),
        (name, call([one, &[0], one], &[1, 4, 3, 3]), "padding: expected 2 or 4 numbers"),
        (name, call([&[1], &[0, 0], one], &[1, 4, 3, 3]), "stride: expected 2 numbers"),
        (name, call([one, &[0, 0], &[1]], &[1, 4, 3, 3]), "dilation: expected 2 numbers"),
        (name, call([one, &[i64::MAX, 0], one], &[1, 4, 1, 3]), "padding: expected numbers of 0 to 255"),
        (name, convolution(x, weight, [one, &[0, 0], one], 65_536, &[1, 4, 3, 3]), "groups: expected"),
        (name, convolution(&[1, 2, 1_000_001, 5], weight, [one, &[0, 0], one], 1, x), "at most 1000000"),
        (name, of_type(F16, 3), ""),
        (name, of_type(BF16, 3), ""),
        (name, of_type(BF16, 2), "cubeMathType: 2"),
        (name, of_type(F32, 4), "cubeMathType: expected"),
    ]);
    let columns = |x: &[i64], kernel: &'static [i64], padding: &'static [i64], out: &[i64]| {
        let (x, out) = (told(F32, x), told(F32, out));
        vec![x, Arg::Ints(kernel), Arg::Ints(&[1, 1]), Arg::Ints(padding), Arg::Ints(&[1, 1]), out]
    };
    let most = &[i32::MAX as i64; 2];
    decided(vec![
        ("aclnnIm2col", columns(&[1, 8, 1 << 32, 1 << 20], most, &[1 << 30; 2], &[1, 4, 1]), "overflow"),
        (
            "aclnnIm2col",
            columns(&[1, 1, 1, 1], &[2, 2], &[i64::MAX; 2], &[1, 4, 4]),
            "padding: expected numbers",
        ),
    ]);
}

#[test]
fn kernels_without_elements_take_no_memory() {
    // Windows of 2^40 elements without channels, a norm of 2^40 channels without samples.
    let mut x = Data::blank(F32, &[1, 0, 1, 1]);
    let mut out = Data::blank(F32, &[1, 0, 4]);
    let (kernel, padding, one) = (Arg::Ints(&[1 << 20; 2]), Arg::Ints(&[1 << 19; 2]), || Arg::Ints(&[1, 1]));
    run("aclnnIm2col", vec![Arg::T(&mut x), kernel, one(), padding, one(), Arg::T(&mut out)]).unwrap();

    let (mut x, mut out) = (Data::blank(F32, &[0, 1 << 40, 5]), Data::blank(F32, &[0, 1 << 40, 5]));
    let [mut mean, mut rstd] = [(); 2].map(|()| Data::blank(F32, &[0, 1]));
    let extents = [0, HUGE, 5, 1].map(Arg::I);
    let mut call = vec![Arg::T(&mut x), Arg::Null, Arg::Null];
    call.extend(extents);
    call.extend([Arg::F(1e-5), Arg::T(&mut out), Arg::T(&mut mean), Arg::T(&mut rstd)]);
    run("aclnnGroupNorm", call).unwrap();

    let mut x = Data::blank(F32, &[1, 0, 1, 1]);
    let mut weight = Data::blank(F32, &[0, 1, 255, 255]);
    let (mut bias, mut out) = (Data::new(F32, &[1], &[2.0]), Data::blank(F32, &[1, 1, 255, 255]));
    let mut call =
        vec![Arg::T(&mut x), Arg::T(&mut weight), Arg::T(&mut bias), one(), Arg::Ints(&[0, 0]), one()];
    call.extend([Arg::B(true), Arg::Ints(&[0, 0]), Arg::I(1), Arg::T(&mut out), Arg::I(0)]);
    run("aclnnConvolution", call).unwrap();
    assert_eq!(out.values(), vec![2.0; 255 * 255]);
}

#[test]
fn dims_are_what_their_format_calls_them() {
    let (nchw, nhwc, hwcn) = (0, 1, 16);
    let upsample = |format, dims: &[i64], out: &[i64]| {
        vec![told_as(F32, dims, format), Arg::Ints(&[8, 8]), told_as(F32, out, format)]
    };
    let name = "aclnnUpsampleNearest2d";
    decided(vec![
        (name, upsample(nhwc, &[1, 4, 4, 3], &[1, 8, 8, 3]), ""),
        (name, upsample(nchw, &[1, 3, 4, 4], &[1, 3, 8, 8]), ""),
        (name, upsample(nhwc, &[1, 3, 4, 4], &[1, 3, 8, 8]), "out: expected shape [1, 8, 8, 4]"),
        (name, upsample(hwcn, &[1, 3, 4, 4], &[1, 3, 8, 8]), "self: expected format"),
    ]);
    let mut call = convolution(&[1, 2, 5, 5], &[4, 2, 3, 3], [&[1, 1], &[0, 0], &[1, 1]], 1, &[1, 4, 3, 3]);
    call[1] = told_as(F32, &[4, 2, 3, 3], hwcn);
    decided(vec![("aclnnConvolution", call, "weight: expected format")]);
    let norm = |x: Arg<'static>, n, c, len| {
        let statistics = || told(F32, &[n, 1]);
        let mut call = vec![x, Arg::Null, Arg::Null];
        call.extend([n, c, len, 1].map(Arg::I));
        call.extend([Arg::F(1e-5), told(F32, &[2, 6]), statistics(), statistics()]);
        call
    };
    decided(vec![
        ("aclnnGroupNorm", norm(told(F32, &[2, 6]), 2, 6, 1), ""),
        ("aclnnGroupNorm", norm(told(F32, &[2, 6]), 3, 4, 1), "self: expected [3, 4, ..]"),
    ]);
    let mut nhwc_values = Data::new(F32, &[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    nhwc_values.format = nhwc;
    let mut out = Data { format: nhwc, ..Data::blank(F32, &[1, 2, 4, 2]) };
    run(name, vec![Arg::T(&mut nhwc_values), Arg::Ints(&[2, 4]), Arg::T(&mut out)]).unwrap();
    let row = [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0];
    assert_eq!(out.values(), [row, row].concat());
}

#[test]
fn a_pool_with_a_mask_gives_its_gradient_where_the_greatest_were() {
    type Case<'a> = (&'a [usize; 2], &'static [i64], &'static [i64], usize);
    let cases: [Case<'_>; 3] =
        [(&[6, 7], &[2, 3], &[2, 2], 0), (&[16, 16], &[1, 1], &[2, 2], 0), (&[5, 5], &[3, 3], &[2, 2], 1)];
    for (plane, kernel, stride, padding) in cases {
        let padding_array: &[i64] = if padding == 0 { &[0, 0] } else { &[1, 1] };
        let extent =
            |dim: usize| (plane[dim] + 2 * padding - kernel[dim] as usize) / stride[dim] as usize + 1;
        let (rows, columns) = (extent(0), extent(1));
        let values = varied(2 * plane[0] * plane[1], 3);
        let mut x = Data::new(F32, &[2, plane[0], plane[1]], &values);
        let (mut out, mut back) = (Data::blank(F32, &[2, rows, columns]), Data::blank(F32, &x.dims));
        let area = (kernel[0] * kernel[1]) as usize;
        let mut mask = Data::blank(I8, &[2, area, 32 * ((rows * columns).div_ceil(16) + 1)]);
        let arrays =
            || vec![Arg::Ints(kernel), Arg::Ints(stride), Arg::Ints(padding_array), Arg::Ints(&[1, 1])];
        let mut call = vec![Arg::T(&mut x)];
        call.extend(arrays());
        call.extend([Arg::B(false), Arg::T(&mut out), Arg::T(&mut mask)]);
        run("aclnnMaxPool2dWithMask", call).unwrap();
        let grads: Vec<f64> = (0..2 * rows * columns).map(|i| i as f64 + 1.0).collect();
        let mut grad = Data::new(F32, &[2, rows, columns], &grads);
        let mut call = vec![Arg::T(&mut grad), Arg::T(&mut x), Arg::T(&mut mask)];
        call.extend(arrays());
        call.extend([Arg::B(false), Arg::T(&mut back)]);
        run("aclnnMaxPool2dWithMaskBackward", call).unwrap();

        let (mut greatest, mut sums) = (Vec::new(), vec![0.0; values.len()]);
        for (window, grad) in grads.iter().enumerate() {
            let (start, at) = (window / (rows * columns) * plane[0] * plane[1], window % (rows * columns));
            let covered = |dim: usize, at: usize| {
                let first = at * stride[dim] as usize;
                (first.max(padding) - padding)..(first + kernel[dim] as usize - padding).min(plane[dim])
            };
            let elements = covered(0, at / columns)
                .flat_map(|row| covered(1, at % columns).map(move |column| start + row * plane[1] + column));
            let best = elements
                .reduce(|best, other| if values[other] > values[best] { other } else { best })
                .unwrap();
            greatest.push(values[best]);
            sums[best] += grad;
        }
        assert_eq!(out.values(), greatest, "{plane:?} {kernel:?}");
        assert_eq!(back.values(), sums, "{plane:?} {kernel:?}");
    }
}

/// Runs an operator of two one-element tensors and scalars.
fn binary(name: &str, operands: [(AclType, f64); 2], scalars: Vec<Arg<'_>>, out: AclType) -> f64 {
    let [mut a, mut b] = operands.map(|(dtype, value)| Data::new(dtype, &[1], &[value]));
    let mut result = Data::blank(out, &[1]);
    let mut call = vec![Arg::T(&mut a), Arg::T(&mut b)];
    call.extend(scalars);
    call.push(Arg::T(&mut result));
    run(name, call).unwrap();
    result.values()[0]
}

#[test]
fn results_are_not_spoiled_by_the_type_they_pass() {
    for ((a, b), expected) in
        [((100.0, 100.0), 0.0), ((100.0, 27.0), 127.0), ((-100.0, 27.0), 0.0), ((-100.0, -100.0), 56.0)]
    {
        assert_eq!(binary("aclnnAddRelu", [(I8, a), (I8, b)], vec![whole(1)], I8), expected, "{a} + {b}");
    }
    assert_eq!(binary("aclnnAdd", [(Bool, 1.0), (Bool, 1.0)], vec![whole(-1)], Bool), 1.0);
    assert_eq!(binary("aclnnAdd", [(Bool, 0.0), (Bool, 1.0)], vec![whole(2)], Bool), 1.0);
    let small = binary("aclnnLogAddExp2", [(F32, 0.0), (F32, -30.0)], vec![], F32);
    assert!((small - 2f64.powi(-30).ln_1p() / 2f64.ln()).abs() <= 1e-16, "{small}");
    for (reduction, out) in [(0, &[1][..]), (1, &[])] {
        let (mut x, mut target) = (Data::new(F32, &[1], &[f64::NAN]), Data::new(F32, &[1], &[1.0]));
        let mut loss = Data::blank(F32, out);
        let call = vec![Arg::T(&mut x), Arg::T(&mut target), Arg::Null, Arg::I(reduction), Arg::T(&mut loss)];
        run("aclnnBinaryCrossEntropy", call).unwrap();
        assert!(loss.values()[0].is_nan());
    }
    let fill = |target: AclType, source: AclType, value: f64| {
        let mut x = Data::new(target, &[3], &[0.0; 3]);
        let (mut mask, mut value) =
            (Data::new(Bool, &[3], &[1.0, 0.0, 1.0]), Data::new(source, &[], &[value]));
        run("aclnnInplaceMaskedFillTensor", vec![Arg::T(&mut x), Arg::T(&mut mask), Arg::T(&mut value)])
            .unwrap();
        x.values()
    };
    assert_eq!(fill(Bool, F32, 0.5), [1.0, 0.0, 1.0]);
    assert_eq!(fill(I32, F32, 3e9), [f64::from(i32::MAX), 0.0, f64::from(i32::MAX)]);
    let mut edge = Data::new(F32, &[1], &[rounded(0.7, F32)]);
    let mut bins = Data::blank(F32, &[10]);
    run("aclnnHistc", vec![Arg::T(&mut edge), Arg::I(10), real(0.0), real(1.0), Arg::T(&mut bins)]).unwrap();
    assert_eq!(bins.values().iter().position(|&count| count == 1.0), Some(7));
}

#[test]
fn ranges_of_whole_numbers_keep_all_digits() {
    let start = (1i64 << 53) + 1;
    let mut out = Data::blank(I64, &[3]);
    run("aclnnRange", vec![whole(start), whole(start + 2), whole(1), Arg::T(&mut out)]).unwrap();
    let bits: Vec<i64> = out.memory.iter().map(|&word| word as i64).collect();
    assert_eq!(bits, [start, start + 1, start + 2]);
    let mut down = Data::blank(I32, &[3]);
    run("aclnnRange", vec![whole(5), whole(0), whole(-2), Arg::T(&mut down)]).unwrap();
    assert_eq!(down.values(), [5.0, 3.0, 1.0]);
    let call = |start, end, step, count| vec![start, end, step, told(F32, &[count])];
    decided(vec![
        ("aclnnRange", call(real(0.0), real(1e30), real(1e-300), 1), "step"),
        ("aclnnRange", call(whole(0), whole(1), whole(-2), 1), "step"),
        ("aclnnRange", call(whole(0), whole(1), whole(0), 1), "step"),
        ("aclnnRange", call(whole(i64::MIN), whole(i64::MAX), whole(1), 1), "step"),
        ("aclnnRange", call(whole(0), whole(HUGE), whole(1), 1), "out: expected [1099511627777]"),
    ]);
    for shift in [i64::MIN, i64::MAX, -1, 7] {
        let (mut x, mut out) = (Data::new(I32, &[3], &[0.0, 1.0, 2.0]), Data::blank(I32, &[3]));
        run("aclnnRoll", vec![Arg::T(&mut x), Arg::Ints(&[shift]), Arg::Ints(&[0]), Arg::T(&mut out)])
            .unwrap();
        let expected: Vec<f64> =
            (0..3).map(|i| (i128::from(i) - i128::from(shift)).rem_euclid(3) as f64).collect();
        assert_eq!(out.values(), expected, "{shift}");
    }
}

#[test]
fn types_are_those_of_the_pages() {
    let gcd = |a, b, out| vec![told(a, &[2]), told(b, &[2]), told(out, &[2])];
    let put = |dtype| vec![told(dtype, &[4]), told(I64, &[2]), told(dtype, &[2]), Arg::B(true)];
    let mut calls: Vec<Call> = vec![
        ("aclnnGcd", gcd(I32, I16, I32), ""),
        ("aclnnGcd", gcd(U8, I8, I16), ""),
        ("aclnnGcd", gcd(I64, I64, I64), ""),
        ("aclnnGcd", gcd(U8, U8, U8), "common type"),
        ("aclnnGcd", gcd(Bool, Bool, Bool), "element type"),
        ("aclnnInplacePut", put(BF16), "selfRef"),
    ];
    calls.extend(
        [F32, F16, F64, I8, I16, I32, I64, U8, Bool].map(|dtype| ("aclnnInplacePut", put(dtype), "")),
    );
    decided(calls);
    let (mut x, mut part) = (Data::blank(F32, &[0, 2]), Data::blank(F32, &[0, 2]));
    run("aclnnSplitTensor", vec![Arg::T(&mut x), Arg::I(3), Arg::I(0), Arg::List(vec![&mut part])]).unwrap();

    let row = |dims: &'static [i64]| move |dtype| told(dtype, dims);
    let (line, plane, pair) = (row(&[4]), row(&[2, 3]), row(&[2, 2]));
    let elu = |grad: Arg<'static>, alpha, is_result, y| {
        let out = if let Arg::Told(desc) = &grad { Arg::Told(desc.clone()) } else { Arg::Null };
        vec![grad, real(alpha), real(1.0), real(1.0), Arg::B(is_result), y, out]
    };
    let loss = |reduction| vec![line(F32), line(F32), Arg::I(reduction), told(F32, &[])];
    let divergence = |reduction| vec![line(F32), line(F32), Arg::I(reduction), Arg::B(false), told(F32, &[])];
    let pad = |dtype: AclType, dims: &[i64], out: &[i64]| {
        vec![told(dtype, dims), Arg::Ints(&[1, 1]), told(dtype, out)]
    };
    let count = |dtype, out| vec![line(dtype), Arg::Null, Arg::I(3), line(out)];
    let norm = |gamma: AclType, statistics: AclType, eps| {
        let mut call = vec![plane(F16), told(gamma, &[3]), Arg::Null];
        call.extend([2, 3, 1, 1].map(Arg::I));
        call.extend([Arg::F(eps), plane(F16), told(statistics, &[2, 1]), told(statistics, &[2, 1])]);
        call
    };
    let gate =
        |dtype| vec![told(dtype, &[2, 4]), Arg::I(1), Arg::I(0), Arg::B(true), pair(dtype), pair(dtype)];
    let rounds = |dtype, out| vec![line(dtype), Arg::I(1), line(out)];
    decided(vec![
        ("aclnnMseLoss", loss(2), ""),
        ("aclnnMseLoss", loss(3), "reduction: expected 0 to 2"),
        ("aclnnKlDiv", divergence(3), ""),
        ("aclnnKlDiv", divergence(4), "reduction: expected 0 to 3"),
        ("aclnnEluBackward", elu(line(F32), -1.0, false, line(F32)), ""),
        ("aclnnEluBackward", elu(line(F32), -1.0, true, line(F32)), "alpha: expected at least 0"),
        ("aclnnEluBackward", elu(line(F32), 1.0, true, line(F16)), "selfOrResult: expected FLOAT"),
        ("aclnnEluBackward", elu(line(F32), 1.0, true, told(F32, &[1])), "selfOrResult: expected shape"),
        ("aclnnGeGluV3", gate(F16), ""),
        ("aclnnGeGluV3", gate(F64), "element type"),
        ("aclnnRoundDecimals", rounds(I32, I32), ""),
        ("aclnnRoundDecimals", rounds(I16, I16), "element type"),
        ("aclnnRoundDecimals", rounds(F16, F32), "out: expected FLOAT16"),
        ("aclnnReflectionPad1d", pad(F32, &[2, 3], &[2, 5]), ""),
        ("aclnnReflectionPad1d", pad(F32, &[1, 1, 2, 3], &[1, 1, 2, 5]), "padding"),
        ("aclnnReflectionPad1d", pad(U16, &[2, 3], &[2, 5]), "element type"),
        ("aclnnGroupNorm", norm(F16, F16, 1e-5), ""),
        ("aclnnGroupNorm", norm(F32, F16, 1e-5), "gamma: expected FLOAT16"),
        ("aclnnGroupNorm", norm(F16, F32, 1e-5), "meanOut: expected FLOAT16"),
        ("aclnnGroupNorm", norm(F16, F16, 0.0), "eps: expected more than 0"),
        ("aclnnBincount", count(I32, I64), ""),
        ("aclnnBincount", count(Bool, I64), "element type"),
        ("aclnnBincount", count(I32, F16), "element type"),
    ]);
}

#[test]
fn inference_reads_the_statistics_that_training_writes() {
    let written = |training| {
        let line = || told(F32, &[3]);
        let mut call = vec![told(F32, &[2, 3]), Arg::Null, Arg::Null, line(), line(), Arg::B(training)];
        call.extend([Arg::F(0.1), Arg::F(1e-5), told(F32, &[2, 3]), line(), line()]);
        let (call, plan, _) = prepared("aclnnBatchNorm", call).unwrap();
        let written = call.slots().filter(|placed| plan.writes(placed.tensor));
        let names: Vec<&str> = written.map(|placed| placed.name).collect();
        names.join(" ")
    };
    assert_eq!(written(true), "runningMean runningVar output saveMean saveInvstd");
    assert_eq!(written(false), "output");
}

#[test]
fn tensors_without_elements_take_neither_memory_nor_time() {
    let empty = |dims: &[i64]| told(F32, dims);
    decided(vec![
        (
            "aclnnUniqueConsecutive",
            vec![
                empty(&[HUGE, 0]),
                Arg::B(false),
                Arg::B(false),
                Arg::I(0),
                empty(&[HUGE, 0]),
                told(I64, &[0]),
                told(I64, &[0]),
            ],
            "expected rows with elements",
        ),
        (
            "aclnnIndex",
            vec![empty(&[2, 3]), Arg::Tolds(vec![told(I64, &[5])]), empty(&[0])],
            "out: expected shape",
        ),
    ]);
    // Too many to iterate over.
    let none = |columns| Data::new(F32, &[1 << 40, 0, columns], &[]);
    let (mut x, mut a, mut solution, mut factor) = (none(3), none(0), none(3), none(0));
    let [upper, transposed, unit] = [true, false, false].map(Arg::B);
    let tensors = [&mut x, &mut a, &mut solution, &mut factor].map(Arg::T);
    let [x, a, solution, factor] = tensors;
    run("aclnnTriangularSolve", vec![x, a, upper, transposed, unit, solution, factor]).unwrap();
}

#[test]
fn scores_that_are_no_number_are_the_greatest_of_their_row() {
    let mut scores = varied(64, 3);
    scores[17] = f64::NAN;
    let mut x = Data::new(F32, &[1, 64], &scores);
    let [mut y, mut chosen, mut rows] = [F32, I32, I32].map(|dtype| Data::blank(dtype, &[1, 64]));
    let arguments =
        vec![Arg::T(&mut x), Arg::Null, Arg::I(64), Arg::T(&mut y), Arg::T(&mut chosen), Arg::T(&mut rows)];
    run("aclnnMoeGatingTopKSoftmax", arguments).unwrap();
    let chosen = chosen.values();
    assert!(chosen[0] == 17.0 || y.values().iter().all(|y| y.is_nan()), "{chosen:?}");
    let mut all = chosen.clone();
    all.sort_by(f64::total_cmp);
    assert!(all.iter().copied().eq((0..64).map(f64::from)), "each expert once: {chosen:?}");
}

#[test]
fn a_bias_is_all_that_is_left_of_a_product_over_nothing() {
    let (mut x, mut weight) = (Data::new(F16, &[2, 0], &[]), Data::new(F16, &[0, 3], &[]));
    let (mut bias, mut out) = (Data::new(F16, &[3], &[1.0, 2.0, 3.0]), Data::blank(F16, &[2, 3]));
    let mut arguments =
        vec![Arg::List(vec![&mut x]), Arg::List(vec![&mut weight]), Arg::List(vec![&mut bias])];
    arguments.extend([Arg::NoList, Arg::NoList, Arg::NoList, Arg::NoList, Arg::NoList, Arg::Null]);
    arguments.extend([Arg::NoList, Arg::NoList, Arg::NoList, Arg::I(0), Arg::I(-1), Arg::I(0), Arg::I(0)]);
    arguments.extend([Arg::List(vec![&mut out]), Arg::NoList, Arg::NoList]);
    run("aclnnGroupedMatmulV4", arguments).unwrap();
    assert_eq!(out.values(), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
}

#[test]
fn gradients_of_norms_pools_and_sequences_take_what_their_host_code_takes() {
    let norm = |mean: AclType, c: i64, group| {
        let (x, line, statistics) =
            (|| told(F16, &[1, c, 1]), || told(F16, &[c]), |dtype| told(dtype, &[1, group]));
        let mut call = vec![x(), x(), statistics(mean), statistics(F16), line()];
        call.extend([
            Arg::I(1),
            Arg::I(c),
            Arg::I(1),
            Arg::I(group),
            Arg::Flags(vec![true; 3]),
            x(),
            line(),
            line(),
        ]);
        call
    };
    let pool = |dims: &[i64], format| {
        let x = || told_as(F32, dims, format);
        let (one, zero) = (|| Arg::Ints(&[1]), Arg::Ints(&[0]));
        vec![x(), one(), one(), zero, Arg::B(false), Arg::B(true), Arg::I(0), Arg::I(0), x()]
    };
    let ctc = |steps: i64, labels: i64, states| {
        let steps_of: &'static [i64] = vec![steps].leak();
        let labels_of: &'static [i64] = vec![labels].leak();
        let (logs, losses) = (|| told(F32, &[4, 1, 3]), || told(F32, &[1]));
        let given =
            [losses(), logs(), told(I64, &[1, 2]), Arg::Ints(steps_of), Arg::Ints(labels_of), losses()];
        given.into_iter().chain([told(F32, &[1, 4, states]), Arg::I(0), Arg::B(false), logs()]).collect()
    };
    decided(vec![
        ("aclnnGroupNormBackward", norm(F16, 4, 2), ""),
        ("aclnnGroupNormBackward", norm(F32, 4, 2), "mean: expected FLOAT16"),
        ("aclnnGroupNormBackward", norm(F16, 8001, 1), "C: expected at most 240000 channels, 8000 a group"),
        ("aclnnAvgPool2d", pool(&[1, 2, 3, 3], 0), ""),
        ("aclnnAvgPool2d", pool(&[1, 2, 3, 3], 2), "self: expected format NCHW (0), found 2"),
        ("aclnnAvgPool2d", pool(&[2, 3, 3], 0), "self: expected format NCL (47), found 0"),
        ("aclnnAvgPool2d", pool(&[1, 0, 3, 3], 0), "self: expected channels"),
        ("aclnnCtcLossBackward", ctc(4, 2, 8), ""),
        ("aclnnCtcLossBackward", ctc(5, 2, 8), "inputLengths: expected 1 lengths of 1 to 4"),
        ("aclnnCtcLossBackward", ctc(4, 0, 8), "targetLengths: expected 1 lengths"),
        ("aclnnCtcLossBackward", ctc(4, 3, 8), "targets: expected [1, 3 or more]"),
        ("aclnnCtcLossBackward", ctc(4, 2, 5), "logAlpha: expected shape [1, 4, 8]"),
    ]);
}

#[test]
fn norms_over_cards_take_no_memory_for_channels_without_elements() {
    let vector = || {
        let Arg::Told(desc) = told(F32, &[HUGE]) else { panic!("told") };
        Arg::Told(TensorDesc { strides: vec![0], storage: vec![1], ..desc })
    };
    let empty = || told(F32, &[0, HUGE]);
    let calls = [
        ("aclnnBatchNormElemt", vec![empty(), vector(), vector(), vector(), vector(), Arg::F(1e-5), empty()]),
        (
            "aclnnBatchNormElemtBackward",
            vec![
                empty(),
                empty(),
                vector(),
                vector(),
                vector(),
                vector(),
                vector(),
                told(F32, &[1]),
                empty(),
            ],
        ),
    ];
    for (name, arguments) in calls {
        let (call, plan, _) = prepared(name, arguments).unwrap();
        let mut one = vec![1u64];
        let views: Vec<StridedView> = call
            .slots()
            .map(|placed| {
                let tensor = placed.tensor;
                StridedView::new(
                    span_of(&mut one),
                    tensor.dtype,
                    &tensor.dims,
                    &tensor.strides,
                    tensor.offset,
                )
                .unwrap()
            })
            .collect();
        (plan.kernel)(&StridedViews::new(&views, &Decided::default()), &Serial).unwrap();
    }
}

#[test]
fn what_pages_and_host_code_forbid_is_refused() {
    use AclType::{BF16, Bool, F16, F32, F64, I32, I64, U16};
    let line = |dtype| told(dtype, &[3]);
    let loss = |out: &[i64]| vec![line(F32), line(F32), Arg::I(1), told(F32, out)];
    let put = |dtype, add| vec![line(dtype), line(I64), line(dtype), Arg::B(add)];
    let most = |dtype, out| vec![line(dtype), whole(1), line(out)];
    let alike = |second: AclType, dims: &[i64]| vec![line(F32), told(second, dims), line(F32)];
    decided(vec![
        ("aclnnMseLoss", loss(&[]), ""),
        ("aclnnMseLoss", loss(&[1]), "out: expected a tensor without dims, found [1]"),
        ("aclnnL1Loss", loss(&[1]), "out: expected a tensor without dims"),
        ("aclnnSoftMarginLoss", loss(&[1, 1]), "out: expected a tensor without dims"),
        ("aclnnInplacePut", put(BF16, false), ""),
        ("aclnnInplacePut", put(BF16, true), "selfRef: BFLOAT16 cannot be added to"),
        ("aclnnInplacePut", put(U16, false), "selfRef: expected an element type"),
        ("aclnnClampMax", most(I32, I32), ""),
        ("aclnnClampMax", most(Bool, I32), "self: expected an element type"),
        ("aclnnMishBackward", alike(F32, &[3]), ""),
        ("aclnnMishBackward", alike(F64, &[3]), "self: expected an element type"),
        ("aclnnMishBackward", alike(F16, &[3]), "self: expected FLOAT (the type of gradOutput)"),
        ("aclnnMishBackward", alike(F32, &[1]), "self: expected shape [3] (of gradOutput), found [1]"),
        ("aclnnSeluBackward", alike(F32, &[1]), "result: expected shape [3]"),
    ]);
}
