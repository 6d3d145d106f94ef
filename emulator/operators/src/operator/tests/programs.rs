//! Calls of other people's programs that cards accept.

use super::*;
use crate::dtype::AclType::{BF16, Bool, F16, F32, F64, I8, I64};
use crate::prototypes::PROTOTYPES;

/// Calls an upsampling operator from 3 to 5 elements per dim, or its gradient, with one scale for
/// all dims.
fn resized(prototype: &Prototype, scale: f64) -> Vec<f64> {
    let dims = (1..4).find(|dims| prototype.name.contains(&format!("{dims}d"))).unwrap();
    let is_grad = prototype.name.contains("Backward") || prototype.name.ends_with("Grad");
    let shape = |extent: usize| [vec![1, 2], vec![extent; dims]].concat();
    let (small, large) = (shape(3), shape(5));
    let (from, to) = if is_grad { (&large, &small) } else { (&small, &large) };
    let mut x = Data::new(F32, from, &varied(from.iter().product(), 3));
    let mut out = Data::blank(F32, to);
    let sizes = [&small, &large].map(|dims| dims.iter().map(|&dim| dim as i64).collect::<Vec<_>>());
    let (mut x_given, mut out_given) = (Some(&mut x), Some(&mut out));
    let arguments = prototype.arguments.iter().map(|&(name, kind)| match kind {
        ArgumentKind::Tensors => Arg::T(x_given.take().or_else(|| out_given.take()).unwrap()),
        ArgumentKind::Ints if name.starts_with("input") => Arg::Ints(&sizes[0]),
        ArgumentKind::Ints => Arg::Ints(&sizes[1][2..]),
        _ if name.starts_with("align") => Arg::B(false),
        _ => Arg::F(scale),
    });
    run(prototype.name, arguments.collect()).unwrap();
    out.values()
}

#[test]
fn scales_of_one_with_another_size_mean_that_the_size_is_given() {
    let of_scales = |prototype: &&Prototype| {
        prototype.name.starts_with("aclnnUpsample")
            && prototype.arguments.iter().any(|(name, _)| name.starts_with("scale"))
    };
    let found: Vec<&Prototype> = PROTOTYPES.iter().filter(of_scales).collect();
    assert_eq!(found.len(), 25, "{found:?}");
    for prototype in found {
        assert_eq!(resized(prototype, 1.0), resized(prototype, 0.0), "{}", prototype.name);
    }
    // The result of bilinear interpolation is no crop of the input.
    let bilinear = PROTOTYPES.iter().find(|prototype| prototype.name == "aclnnUpsampleLinear1d").unwrap();
    let line = varied(6, 3);
    let found = resized(bilinear, 1.0);
    assert_eq!((found[0], found[4]), (line[0], line[2]));
}

#[test]
fn a_loss_per_row_leaves_the_total_weight_unchanged() {
    for (reduction, expected) in [(0, 7.0), (1, 2.0), (2, 2.0)] {
        let mut x = Data::new(F32, &[2, 3], &[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]);
        let (mut target, mut weight) = (Data::new(I64, &[2], &[0.0, 2.0]), Data::new(F32, &[3], &[1.0; 3]));
        let mut out = Data::blank(F32, if reduction == 0 { &[2] } else { &[] });
        let mut total = Data::new(F32, &[], &[7.0]);
        let arguments = vec![
            Arg::T(&mut x),
            Arg::T(&mut target),
            Arg::T(&mut weight),
            Arg::I(reduction),
            Arg::I(-100),
            Arg::T(&mut out),
            Arg::T(&mut total),
        ];
        run("aclnnNLLLoss", arguments).unwrap();
        assert_eq!(total.values(), [expected], "reduction {reduction}");
        assert_eq!(out.values()[0], [1.0, 3.5, 7.0][reduction as usize]);
    }
}

#[test]
fn cat_writes_into_another_type_that_can_hold_the_common_one() {
    for (parts, out_type) in [([BF16, BF16], F32), ([F16, F32], BF16), ([I8, I64], F32)] {
        let mut list = parts.map(|dtype| Data::new(dtype, &[2], &[1.0, 2.0]));
        let mut out = Data::blank(out_type, &[4]);
        let [first, second] = &mut list;
        run("aclnnCat", vec![Arg::List(vec![first, second]), Arg::I(0), Arg::T(&mut out)]).unwrap();
        assert_eq!(out.values(), [1.0, 2.0, 1.0, 2.0]);
    }
    let (mut x, mut out) = (Data::new(F32, &[1], &[1.0]), Data::blank(I64, &[1]));
    let arguments = vec![Arg::List(vec![&mut x]), Arg::I(0), Arg::T(&mut out)];
    refused("aclnnCat", arguments, &["out: results of type FLOAT cannot be stored as INT64"]);
}

#[test]
fn topk_without_sorting_gives_the_same_elements() {
    let mut x = Data::new(F32, &[4], &[3.0, 9.0, 1.0, 7.0]);
    let (mut out, mut indices) = (Data::blank(F32, &[2]), Data::blank(I64, &[2]));
    let mut arguments = vec![Arg::T(&mut x), Arg::I(2), Arg::I(0), Arg::B(true), Arg::B(false)];
    arguments.extend([Arg::T(&mut out), Arg::T(&mut indices)]);
    run("aclnnTopk", arguments).unwrap();
    assert_eq!((out.values(), indices.values()), (vec![9.0, 7.0], vec![1.0, 3.0]));
}

#[test]
fn a_product_of_16_bits_ignores_hf32() {
    for dtype in [F16, BF16, F32] {
        let (mut x, mut y) = (Data::new(dtype, &[1, 2], &[1.0, 2.0]), Data::new(dtype, &[2, 1], &[3.0, 4.0]));
        let mut out = Data::blank(dtype, &[1, 1]);
        let arguments = vec![Arg::T(&mut x), Arg::T(&mut y), Arg::T(&mut out), Arg::I(3)];
        run("aclnnMatmul", arguments).unwrap();
        assert_eq!(out.values(), [11.0]);
    }
}

#[test]
fn one_bound_of_a_clamp_may_be_null() {
    let clamped = |low: bool, high: bool| {
        let mut x = Data::new(F32, &[4], &[-3.0, 0.0, 2.0, f64::NAN]);
        let (mut least, mut most) = (Data::new(F32, &[], &[-1.0]), Data::new(F32, &[1], &[1.0]));
        let mut out = Data::blank(F32, &[4]);
        let least = if low { Arg::T(&mut least) } else { Arg::Null };
        let most = if high { Arg::T(&mut most) } else { Arg::Null };
        run("aclnnClampTensor", vec![Arg::T(&mut x), least, most, Arg::T(&mut out)]).map(|()| out.values())
    };
    close(&clamped(true, true).unwrap(), &[-1.0, 0.0, 1.0, f64::NAN], 0.0, "both");
    close(&clamped(true, false).unwrap(), &[-1.0, 0.0, 2.0, f64::NAN], 0.0, "low");
    close(&clamped(false, true).unwrap(), &[-3.0, 0.0, 1.0, f64::NAN], 0.0, "high");
    assert!(clamped(false, false).unwrap_err().contains("both NULL"));
}

#[test]
fn tensors_without_dims_count_as_one_element() {
    let single = |value: f64| Data::new(F32, &[], &[value]);
    let (mut x, mut other, mut index) = (single(3.0), single(4.0), Data::new(I64, &[], &[0.0]));
    let (mut out, mut places) = (single(7.0), Data::blank(I64, &[]));
    run("aclnnSiluBackward", vec![Arg::T(&mut other), Arg::T(&mut x), Arg::T(&mut out)]).unwrap();
    assert!((out.values()[0] - 4.0 * 1.088_104).abs() < 1e-4, "{:?}", out.values());
    let arguments = vec![Arg::T(&mut x), Arg::I(0), Arg::T(&mut index), Arg::T(&mut out)];
    run("aclnnIndexSelect", arguments).unwrap();
    assert_eq!(out.values(), [3.0]);
    let mut arguments = vec![Arg::T(&mut x), Arg::I(0), Arg::T(&mut index), Arg::T(&mut other)];
    arguments.extend([real(1.0), Arg::T(&mut out)]);
    run("aclnnIndexAdd", arguments).unwrap();
    assert_eq!(out.values(), [7.0]);
    let mut arguments = vec![Arg::T(&mut x), Arg::I(-1), Arg::T(&mut index), Arg::T(&mut other)];
    arguments.push(Arg::T(&mut out));
    run("aclnnScatterAdd", arguments).unwrap();
    assert_eq!(out.values(), [7.0]);
    for name in ["aclnnMaxDim", "aclnnMinDim"] {
        for keep in [false, true] {
            let mut arguments = vec![Arg::T(&mut x), Arg::I(0), Arg::B(keep)];
            arguments.extend([Arg::T(&mut out), Arg::T(&mut places)]);
            run(name, arguments).unwrap();
            assert_eq!((out.values(), places.values()), (vec![3.0], vec![0.0]), "{name}");
        }
    }
    let mut arguments = vec![Arg::T(&mut x), Arg::I(1), Arg::I(0), Arg::B(true), Arg::B(true)];
    arguments.extend([Arg::T(&mut out), Arg::T(&mut places)]);
    run("aclnnTopk", arguments).unwrap();
    assert_eq!((out.values(), places.values()), (vec![3.0], vec![0.0]));
    let mut negative = single(-2.0);
    run("aclnnPrelu", vec![Arg::T(&mut negative), Arg::T(&mut other), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [-8.0]);
}

#[test]
fn a_result_without_dims_may_have_one_element() {
    let mut x = Data::new(F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let (mut low, mut high) = (Data::blank(F32, &[1]), Data::blank(F32, &[1]));
    let arguments = vec![Arg::T(&mut x), Arg::NoInts, Arg::B(false), Arg::D(F32), Arg::T(&mut low)];
    run("aclnnReduceSum", arguments).unwrap();
    assert_eq!(low.values(), [10.0]);
    run("aclnnAminmaxAll", vec![Arg::T(&mut x), Arg::T(&mut low), Arg::T(&mut high)]).unwrap();
    assert_eq!((low.values(), high.values()), (vec![1.0], vec![4.0]));
    let mut wrong = Data::blank(F32, &[1, 1]);
    let arguments = vec![Arg::T(&mut x), Arg::NoInts, Arg::B(false), Arg::D(F32), Arg::T(&mut wrong)];
    refused("aclnnReduceSum", arguments, &["out: expected shape []"]);
}

#[test]
fn softmax_of_doubles_keeps_their_precision() {
    let values: [f64; 3] = [1.0, 1.0 + 1e-12, -3.0];
    let sum: f64 = values.iter().map(|value| value.exp()).sum();
    for name in ["aclnnSoftmax", "aclnnLogSoftmax"] {
        let (mut x, mut out) = (Data::new(F64, &[1, 3], &values), Data::blank(F64, &[1, 3]));
        run(name, vec![Arg::T(&mut x), Arg::I(-1), Arg::T(&mut out)]).unwrap();
        let share = |value: f64| if name == "aclnnSoftmax" { value.exp() / sum } else { value - sum.ln() };
        close(&out.values(), &values.map(share), 1e-15, name);
    }
}

#[test]
fn other_types_and_layouts_that_cards_accept() {
    let (mut x, mut out) = (Data::new(F32, &[2], &[-0.0, 1.0]), Data::blank(F32, &[2]));
    run("aclnnSignbit", vec![Arg::T(&mut x), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [1.0, 0.0]);
    let mut truth = Data::blank(Bool, &[2]);
    run("aclnnSignbit", vec![Arg::T(&mut x), Arg::T(&mut truth)]).unwrap();
    assert_eq!(truth.values(), [1.0, 0.0]);

    let mut strided = Data::new(F32, &[1, 4], &[0.0, 2.0, 5.0, 3.0]).strided();
    let mut halves = Data::blank(F32, &[1, 2]);
    run("aclnnSwiGlu", vec![Arg::T(&mut strided), Arg::I(1), Arg::T(&mut halves)]).unwrap();
    close(&halves.values(), &[0.0, 3.0 * 2.0 / (1.0 + (-2f64).exp())], 1e-6, "swiglu");

    let (mut x, mut smooth) = (Data::new(F16, &[1, 2], &[1.0, 4.0]), Data::new(F16, &[2], &[2.0, 0.25]));
    let (mut y, mut scale) = (Data::blank(I8, &[1, 2]), Data::blank(F32, &[1]));
    let arguments = vec![Arg::T(&mut x), Arg::T(&mut smooth), Arg::T(&mut y), Arg::T(&mut scale)];
    run("aclnnDynamicQuant", arguments).unwrap();
    assert_eq!(y.values(), [127.0, 64.0]);
}

#[test]
fn fractal_weights_may_have_flat_storage() {
    let weight = |storage: Vec<i64>| TensorDesc {
        dtype: code_of(F16),
        format: 29,
        dims: vec![32, 32],
        strides: vec![32, 1],
        offset: 0,
        storage,
        address: 64,
        handle: 0,
    };
    let planned = |storage| {
        let (mut x, mut out) = (Data::new(F16, &[1, 32], &[0.0; 32]), Data::blank(F16, &[1, 32]));
        let arguments = vec![Arg::T(&mut x), Arg::Told(weight(storage)), Arg::T(&mut out), Arg::I(0)];
        let signature = find("aclnnMm").unwrap();
        let arguments = arguments.into_iter().map(|argument| match argument {
            Arg::T(data) => CallArgument::Tensor(Some(data.desc())),
            Arg::Told(desc) => CallArgument::Tensor(Some(desc)),
            Arg::I(value) => CallArgument::Int(value),
            _ => panic!("not passed here"),
        });
        check(signature, arguments.collect()).map_err(|refusal| refusal.message)
    };
    assert!(planned(vec![2, 2, 16, 16]).is_ok() && planned(vec![1024]).is_ok());
    let Err(message) = planned(vec![1023]) else { panic!("too few elements") };
    assert!(
        message.contains("expected a storage of [2, 2, 16, 16] for FRACTAL_NZ, found [1023]"),
        "{message}"
    );
}
