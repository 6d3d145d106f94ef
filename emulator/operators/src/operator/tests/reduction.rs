//! Reductions, running sums and sorts.

use super::*;
use crate::dtype::AclType;

fn grouped(values: &[f64], shape: &[usize], dims: &[usize]) -> Vec<Vec<f64>> {
    let kept: Vec<usize> = (0..shape.len()).filter(|i| !dims.contains(i)).collect();
    let count: usize = kept.iter().map(|&i| shape[i]).product();
    let mut groups = vec![Vec::new(); count];
    for (at, &value) in values.iter().enumerate() {
        let (mut rest, mut coordinates) = (at, vec![0; shape.len()]);
        for i in (0..shape.len()).rev() {
            coordinates[i] = rest % shape[i];
            rest /= shape[i];
        }
        let group = kept.iter().fold(0, |group, &i| group * shape[i] + coordinates[i]);
        groups[group].push(value);
    }
    groups
}

const CASES: [(&[usize], &[i64], &[usize]); 7] = [
    (&[2, 3, 4], &[1], &[1]),
    (&[2, 3, 4], &[-1, 0], &[0, 2]),
    (&[2, 3, 4], &[], &[0, 1, 2]),
    (&[5], &[0], &[0]),
    (&[], &[], &[]),
    (&[2, 1000], &[1], &[1]),
    (&[0, 3], &[1], &[1]),
];

fn reduced(shape: &[usize], dims: &[usize], keep: bool) -> Vec<usize> {
    (0..shape.len())
        .filter_map(|i| if dims.contains(&i) { keep.then_some(1) } else { Some(shape[i]) })
        .collect()
}

#[test]
fn sums_means_and_maxima_over_any_dims() {
    for (shape, named, dims) in CASES {
        for keep in [false, true] {
            for strided in [false, true] {
                for dtype in [AclType::F32, AclType::F16, AclType::BF16, AclType::I32, AclType::I64] {
                    let len: usize = shape.iter().product();
                    let values = counted(len, 1);
                    let groups = grouped(&values, shape, dims);
                    let mut x = Data::new(dtype, shape, &values);
                    if strided {
                        x = x.strided();
                    }
                    let target = reduced(shape, dims, keep);
                    let what = format!("{shape:?} over {dims:?} {dtype} {keep} {strided}");
                    let mut out = Data::blank(dtype, &target);
                    let arguments =
                        vec![Arg::T(&mut x), Arg::Ints(named), Arg::B(keep), Arg::D(dtype), Arg::T(&mut out)];
                    run("aclnnReduceSum", arguments).unwrap();
                    let sums: Vec<f64> =
                        groups.iter().map(|group| rounded(group.iter().sum(), dtype)).collect();
                    close(&out.values(), &sums, 0.0, &what);
                    if dtype.is_float() {
                        let arguments = vec![
                            Arg::T(&mut x),
                            Arg::Ints(named),
                            Arg::B(keep),
                            Arg::D(dtype),
                            Arg::T(&mut out),
                        ];
                        run("aclnnMean", arguments).unwrap();
                        let means: Vec<f64> = groups
                            .iter()
                            .map(|group| group.iter().sum::<f64>() / group.len() as f64)
                            .collect();
                        close(&out.values(), &means, precision(dtype), &what);
                    }
                    let arguments = vec![Arg::T(&mut x), Arg::Ints(named), Arg::B(keep), Arg::T(&mut out)];
                    run("aclnnAmax", arguments).unwrap();
                    let greatest: Vec<f64> =
                        groups.iter().map(|group| group.iter().copied().fold(f64::MIN, f64::max)).collect();
                    close(&out.values(), &greatest, 0.0, &what);
                }
            }
        }
    }
}

#[test]
fn sums_convert_before_they_add() {
    // Exceeds f16, but not f32.
    let mut x = Data::new(AclType::F16, &[2], &[60_000.0, 60_000.0]);
    let mut wide = Data::blank(AclType::F32, &[]);
    let arguments =
        vec![Arg::T(&mut x), Arg::Ints(&[0]), Arg::B(false), Arg::D(AclType::F32), Arg::T(&mut wide)];
    run("aclnnReduceSum", arguments).unwrap();
    assert_eq!(wide.values(), [120_000.0]);
    let mut ints = Data::blank(AclType::I32, &[]);
    let arguments =
        vec![Arg::T(&mut x), Arg::Ints(&[0]), Arg::B(false), Arg::D(AclType::I32), Arg::T(&mut ints)];
    refused("aclnnReduceSum", arguments, &["dtype: INT32 cannot hold a sum of FLOAT16"]);
    let arguments =
        vec![Arg::T(&mut x), Arg::Ints(&[0, -1]), Arg::B(false), Arg::D(AclType::F32), Arg::T(&mut wide)];
    refused("aclnnReduceSum", arguments, &["dims: names dim 0 twice"]);
}

#[test]
fn an_empty_sum_is_zero_and_an_empty_maximum_is_refused() {
    let mut x = Data::blank(AclType::F32, &[2, 0]);
    let mut out = Data::blank(AclType::F32, &[2]);
    let arguments =
        vec![Arg::T(&mut x), Arg::Ints(&[1]), Arg::B(false), Arg::D(AclType::F32), Arg::T(&mut out)];
    run("aclnnReduceSum", arguments).unwrap();
    assert_eq!(out.values(), [0.0, 0.0]);
    refused(
        "aclnnAmax",
        vec![Arg::T(&mut x), Arg::Ints(&[1]), Arg::B(false), Arg::T(&mut out)],
        &["self: an empty dim has no maximum"],
    );
}

#[test]
fn maxima_along_a_dim_give_the_first_position() {
    for dtype in [AclType::F32, AclType::F16, AclType::BF16, AclType::I64] {
        for index_type in [AclType::I32, AclType::I64] {
            for (dim, keep) in [(0i64, true), (-1, false)] {
                let values = [3.0, 5.0, 5.0, 5.0, 1.0, 3.0];
                let (dims, first): (&[usize], _) =
                    if dim == 0 { (&[0], vec![5.0, 5.0, 5.0]) } else { (&[1], vec![5.0, 5.0]) };
                let places = if dim == 0 { vec![1.0, 0.0, 0.0] } else { vec![1.0, 0.0] };
                let target = reduced(&[2, 3], dims, keep);
                let mut x = Data::new(dtype, &[2, 3], &values).strided();
                let (mut out, mut indices) = (Data::blank(dtype, &target), Data::blank(index_type, &target));
                let arguments =
                    vec![Arg::T(&mut x), Arg::I(dim), Arg::B(keep), Arg::T(&mut out), Arg::T(&mut indices)];
                run("aclnnMaxDim", arguments).unwrap();
                assert_eq!((out.values(), indices.values()), (first, places.clone()), "{dtype} {dim}");
                run("aclnnArgMax", vec![Arg::T(&mut x), Arg::I(dim), Arg::B(keep), Arg::T(&mut indices)])
                    .unwrap();
                assert_eq!(indices.values(), places);
            }
        }
    }
    let mut x = Data::new(AclType::I32, &[2], &[0.0; 2]);
    let (mut out, mut indices) = (Data::blank(AclType::I32, &[]), Data::blank(AclType::I32, &[]));
    let arguments = vec![Arg::T(&mut x), Arg::I(0), Arg::B(false), Arg::T(&mut out), Arg::T(&mut indices)];
    refused("aclnnMaxDim", arguments, &["self: expected an element type of", "found INT32"]);
    let mut x = Data::new(AclType::F32, &[2], &[f64::NAN, 3.0]);
    run("aclnnArgMax", vec![Arg::T(&mut x), Arg::I(0), Arg::B(false), Arg::T(&mut indices)]).unwrap();
    assert_eq!(indices.values(), [0.0], "NaN is the greatest");
}

#[test]
fn the_maximum_of_everything() {
    let mut x = Data::new(AclType::BF16, &[2, 3], &[1.0, -4.0, 7.0, 2.0, 0.0, 6.0]).strided();
    let mut out = Data::blank(AclType::BF16, &[]);
    run("aclnnMax", vec![Arg::T(&mut x), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [7.0]);
    let mut empty = Data::blank(AclType::BF16, &[0]);
    refused("aclnnMax", vec![Arg::T(&mut empty), Arg::T(&mut out)], &["no maximum"]);
}

#[test]
fn running_sums_along_each_dim() {
    for (dim, wanted) in [(1i64, [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]), (0, [1.0, 2.0, 3.0, 5.0, 7.0, 9.0])] {
        for dtype in [AclType::F32, AclType::F16, AclType::I64] {
            let mut x = Data::new(dtype, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).strided();
            let mut out = Data::new(dtype, &[2, 3], &[0.0; 6]).strided();
            run("aclnnCumsum", vec![Arg::T(&mut x), Arg::I(dim), Arg::D(dtype), Arg::T(&mut out)]).unwrap();
            assert_eq!(out.values(), wanted, "{dtype}");
        }
    }
    let (mut x, mut out) = (Data::new(AclType::F32, &[2], &[1.0; 2]), Data::blank(AclType::F16, &[2]));
    let arguments = vec![Arg::T(&mut x), Arg::I(0), Arg::D(AclType::F32), Arg::T(&mut out)];
    refused("aclnnCumsum", arguments, &["out: expected FLOAT (the attribute dtype), found FLOAT16"]);
}

#[test]
fn the_greatest_and_the_smallest_in_order() {
    for dtype in [AclType::F32, AclType::F16, AclType::BF16, AclType::I32] {
        let values = [4.0, 9.0, 1.0, 9.0, 0.0, 9.0, 2.0, 2.0];
        let mut x = Data::new(dtype, &[2, 4], &values).strided();
        let (mut out, mut indices) = (Data::blank(dtype, &[2, 2]), Data::blank(AclType::I64, &[2, 2]));
        let mut top = |largest: bool| {
            let arguments = vec![
                Arg::T(&mut x),
                Arg::I(2),
                Arg::I(-1),
                Arg::B(largest),
                Arg::B(true),
                Arg::T(&mut out),
                Arg::T(&mut indices),
            ];
            run("aclnnTopk", arguments).unwrap();
            (out.values(), indices.values())
        };
        assert_eq!(top(true), (vec![9.0, 9.0, 9.0, 2.0], vec![1.0, 3.0, 1.0, 2.0]));
        assert_eq!(top(false), (vec![1.0, 4.0, 0.0, 2.0], vec![2.0, 0.0, 0.0, 2.0]));
        let (mut out, mut indices) = (Data::blank(dtype, &[2, 4]), Data::blank(AclType::I64, &[2, 4]));
        let arguments = vec![
            Arg::T(&mut x),
            Arg::B(false),
            Arg::I(0),
            Arg::B(true),
            Arg::T(&mut out),
            Arg::T(&mut indices),
        ];
        run("aclnnSort", arguments).unwrap();
        assert_eq!(out.values(), [4.0, 9.0, 2.0, 9.0, 0.0, 9.0, 1.0, 2.0]);
        assert_eq!(indices.values(), [0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0]);
    }
}

#[test]
fn topk_refusals() {
    let mut x = Data::new(AclType::F32, &[4], &[0.0; 4]);
    let (mut out, mut indices) = (Data::blank(AclType::F32, &[5]), Data::blank(AclType::I64, &[5]));
    let mut call = |k: i64, sorted: bool, part: &str| {
        let arguments = vec![
            Arg::T(&mut x),
            Arg::I(k),
            Arg::I(0),
            Arg::B(true),
            Arg::B(sorted),
            Arg::T(&mut out),
            Arg::T(&mut indices),
        ];
        refused("aclnnTopk", arguments, &[part]);
    };
    call(5, true, "k: expected 0 to 4 (extent of dim 0), found 5");
    call(-1, true, "k: expected 0 to 4");
    call(4, true, "valuesOut: expected shape [4]");
}

#[test]
fn what_the_card_takes_beyond_the_pages() {
    let mut x = Data::new(AclType::F32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let mut all = Data::blank(AclType::F32, &[]);
    let arguments = vec![Arg::T(&mut x), Arg::NoInts, Arg::B(false), Arg::D(AclType::F32), Arg::T(&mut all)];
    run("aclnnReduceSum", arguments).unwrap();
    assert_eq!(all.values(), [21.0]);
    let mut one = Data::blank(AclType::F32, &[1]);
    run("aclnnMax", vec![Arg::T(&mut x), Arg::T(&mut one)]).unwrap();
    assert_eq!(one.values(), [6.0]);
    let mut truths = Data::new(AclType::Bool, &[4], &[1.0, 0.0, 1.0, 1.0]);
    let mut counts = Data::blank(AclType::I64, &[4]);
    let arguments = vec![Arg::T(&mut truths), Arg::I(0), Arg::D(AclType::I64), Arg::T(&mut counts)];
    run("aclnnCumsum", arguments).unwrap();
    assert_eq!(counts.values(), [1.0, 1.0, 2.0, 3.0]);
    let mut empty = Data::blank(AclType::F32, &[0, 2]);
    let mut out = Data { strides: vec![0, 0], ..empty.clone() };
    run("aclnnSilu", vec![Arg::T(&mut empty), Arg::T(&mut out)]).unwrap();
}

#[test]
fn every_format_without_padding_is_taken() {
    let mut x = Data::new(AclType::F32, &[1, 1, 2], &[1.0, 4.0]);
    let mut out = Data::blank(AclType::F32, &[1, 1, 2]);
    for format in [0, 1, 2, 16, 27, 30, 47] {
        let described = |data: &Data| Some(TensorDesc { format, ..data.desc() });
        let arguments = vec![CallArgument::Tensor(described(&x)), CallArgument::Tensor(described(&out))];
        let call = check(find("aclnnSqrt").unwrap(), arguments).map_err(|refusal| refusal.message);
        assert!(call.is_ok(), "{format}: {call:?}");
    }
    run("aclnnSqrt", vec![Arg::T(&mut x), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [1.0, 2.0]);
}
