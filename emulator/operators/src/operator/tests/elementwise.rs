//! Arithmetic, comparisons, selections, copies and fills.

use super::*;
use crate::dtype::AclType;

type Function = fn(f64) -> f64;
type Relation = fn(f64, f64) -> bool;

/// Operands that broadcast, with empty and scalar shapes.
const PAIRS: [(&[usize], &[usize]); 8] = [
    (&[5], &[5]),
    (&[2, 3, 4], &[3, 1]),
    (&[1, 3], &[2, 1]),
    (&[], &[2, 2]),
    (&[3], &[]),
    (&[0, 3], &[1, 3]),
    (&[2, 1, 1100], &[2, 3, 1]),
    (&[], &[]),
];

fn shape_of(a: &[usize], b: &[usize]) -> Vec<usize> {
    call::broadcast(a, b).unwrap()
}

fn check_pairs(
    name: &str,
    types: &[(AclType, AclType, AclType)],
    values: fn(usize, usize) -> Vec<f64>,
    with_alpha: Option<f64>,
    expected: impl Fn(f64, f64) -> f64,
) {
    for &(first, second, result) in types {
        for (a_dims, b_dims) in PAIRS {
            for strided in [false, true] {
                let shape = shape_of(a_dims, b_dims);
                let len: usize = shape.iter().product();
                let (x, y) = (values(a_dims.iter().product(), 1), values(b_dims.iter().product(), 2));
                let (mut a, mut b) = (Data::new(first, a_dims, &x), Data::new(second, b_dims, &y));
                let mut out = Data::new(result, &shape, &vec![0.0; len]);
                if strided {
                    (a, b, out) = (a.strided(), b.strided(), out.strided());
                }
                let mut arguments = vec![Arg::T(&mut a), Arg::T(&mut b)];
                match with_alpha {
                    Some(alpha) if first.is_float() || second.is_float() => arguments.push(real(alpha)),
                    Some(alpha) => arguments.push(whole(alpha as i64)),
                    None => {}
                }
                arguments.push(Arg::T(&mut out));
                run(name, arguments).unwrap();
                let wanted: Vec<f64> = (0..len)
                    .map(|i| {
                        let p = rounded(x[broadcast_index(a_dims, &shape, i)], first);
                        let q = rounded(y[broadcast_index(b_dims, &shape, i)], second);
                        rounded(expected(p, q), result)
                    })
                    .collect();
                let what =
                    format!("{name} {first} {second} -> {result} {a_dims:?} {b_dims:?} strided {strided}");
                close(&out.values(), &wanted, if result.is_float() { precision(result) } else { 0.0 }, &what);
            }
        }
    }
}

const SAME: [(AclType, AclType, AclType); 9] = [
    (AclType::F32, AclType::F32, AclType::F32),
    (AclType::F16, AclType::F16, AclType::F16),
    (AclType::BF16, AclType::BF16, AclType::BF16),
    (AclType::F64, AclType::F64, AclType::F64),
    (AclType::I8, AclType::I8, AclType::I8),
    (AclType::I32, AclType::I32, AclType::I32),
    (AclType::I64, AclType::I64, AclType::I64),
    (AclType::F16, AclType::BF16, AclType::F32),
    (AclType::I32, AclType::F16, AclType::F16),
];

#[test]
fn sums_and_differences_scale_the_second_operand() {
    for alpha in [1.0, 2.0] {
        check_pairs("aclnnAdd", &SAME, counted, Some(alpha), |x, y| x + alpha * y);
        check_pairs("aclnnSub", &SAME, counted, Some(alpha), |x, y| x - alpha * y);
    }
    check_pairs("aclnnAdd", &[(AclType::F32, AclType::F32, AclType::F32)], varied, Some(0.5), |x, y| {
        x + 0.5 * y
    });
}

#[test]
fn products_quotients_and_extremes() {
    check_pairs("aclnnMul", &SAME, counted, None, |x, y| x * y);
    check_pairs("aclnnMaximum", &SAME, counted, None, f64::max);
    check_pairs("aclnnMinimum", &SAME, counted, None, f64::min);
    let floats = [(AclType::F32, AclType::F32, AclType::F32), (AclType::F16, AclType::F16, AclType::F16)];
    check_pairs("aclnnDiv", &floats, varied, None, |x, y| x / y);
    check_pairs("aclnnDiv", &[(AclType::I32, AclType::I64, AclType::F32)], counted, None, |x, y| x / y);
}

#[test]
fn nan_wins_maximum_and_minimum() {
    for name in ["aclnnMaximum", "aclnnMinimum"] {
        let mut a = Data::new(AclType::F32, &[3], &[f64::NAN, 1.0, f64::NAN]);
        let mut b = Data::new(AclType::F32, &[3], &[1.0, f64::NAN, f64::NAN]);
        let mut out = Data::blank(AclType::F32, &[3]);
        run(name, vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut out)]).unwrap();
        assert!(out.values().iter().all(|value| value.is_nan()), "{name}");
    }
}

#[test]
fn integers_wrap() {
    let mut a = Data::new(AclType::I8, &[1], &[127.0]);
    let mut b = Data::new(AclType::I8, &[1], &[2.0]);
    let mut out = Data::blank(AclType::I8, &[1]);
    run("aclnnAdd", vec![Arg::T(&mut a), Arg::T(&mut b), whole(1), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [-127.0]);
}

#[test]
fn in_place_forms_change_their_first_operand() {
    let mut x = Data::new(AclType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]).strided();
    let mut y = Data::new(AclType::F32, &[2], &[10.0, 20.0]);
    run("aclnnInplaceAdd", vec![Arg::T(&mut x), Arg::T(&mut y), whole(1)]).unwrap();
    assert_eq!(x.values(), [11.0, 22.0, 13.0, 24.0]);
    run("aclnnInplaceMul", vec![Arg::T(&mut x), Arg::T(&mut y)]).unwrap();
    assert_eq!(x.values(), [110.0, 440.0, 130.0, 480.0]);
    run("aclnnInplaceAdds", vec![Arg::T(&mut x), whole(5), whole(2)]).unwrap();
    run("aclnnInplaceMuls", vec![Arg::T(&mut x), real(0.5)]).unwrap();
    assert_eq!(x.values(), [60.0, 225.0, 70.0, 245.0]);
    run("aclnnInplaceSub", vec![Arg::T(&mut x), Arg::T(&mut y), whole(2)]).unwrap();
    run("aclnnInplaceSubs", vec![Arg::T(&mut x), whole(4), real(2.5)]).unwrap();
    assert_eq!(x.values(), [30.0, 175.0, 40.0, 195.0]);
    run("aclnnInplaceDiv", vec![Arg::T(&mut x), Arg::T(&mut y)]).unwrap();
    run("aclnnInplaceDivs", vec![Arg::T(&mut x), real(0.25)]).unwrap();
    assert_eq!(x.values(), [12.0, 35.0, 16.0, 39.0]);
    let parts = ["selfRef: expected shape [2, 2] (to which self and other broadcast), found [2]"];
    for name in ["aclnnInplaceAdd", "aclnnInplaceSub"] {
        refused(name, vec![Arg::T(&mut y), Arg::T(&mut x), whole(1)], &parts);
    }
    let mut ints = Data::new(AclType::I32, &[2], &[4.0, 6.0]);
    let parts = ["selfRef: results of type FLOAT cannot be stored as INT32"];
    refused("aclnnInplaceDivs", vec![Arg::T(&mut ints), whole(2)], &parts);
}

#[test]
fn scalars_widen_a_tensor_only_to_a_higher_category() {
    let mut x = Data::new(AclType::F16, &[3], &[1.0, 2.0, -3.0]);
    let mut out = Data::blank(AclType::F16, &[3]);
    run("aclnnMuls", vec![Arg::T(&mut x), real(0.5), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [0.5, 1.0, -1.5]);
    run("aclnnAdds", vec![Arg::T(&mut x), real(1.0), real(3.0), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [4.0, 5.0, 0.0]);
    run("aclnnSubs", vec![Arg::T(&mut x), real(1.0), real(3.0), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [-2.0, -1.0, -6.0]);
    run("aclnnDivs", vec![Arg::T(&mut x), whole(4), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [0.25, 0.5, -0.75]);
    let mut ints = Data::new(AclType::I32, &[3], &[1.0, 2.0, -3.0]);
    let mut wide = Data::blank(AclType::F32, &[3]);
    run("aclnnMuls", vec![Arg::T(&mut ints), real(0.5), Arg::T(&mut wide)]).unwrap();
    assert_eq!(wide.values(), [0.5, 1.0, -1.5]);
    let mut narrow = Data::blank(AclType::I32, &[3]);
    let parts = ["aclnnMuls: out: results of type FLOAT cannot be stored as INT32"];
    refused("aclnnMuls", vec![Arg::T(&mut ints), real(0.5), Arg::T(&mut narrow)], &parts);
    let parts = ["alpha: a factor of type FLOAT cannot scale operands of type INT32"];
    refused("aclnnAdds", vec![Arg::T(&mut ints), whole(1), real(0.5), Arg::T(&mut narrow)], &parts);
}

#[test]
fn functions_of_one_value_follow_their_definitions() {
    let functions: [(&str, Function); 9] = [
        ("aclnnExp", f64::exp),
        ("aclnnLog", f64::ln),
        ("aclnnSqrt", f64::sqrt),
        ("aclnnRsqrt", |x| 1.0 / x.sqrt()),
        ("aclnnReciprocal", |x| 1.0 / x),
        ("aclnnTanh", f64::tanh),
        ("aclnnSigmoid", |x| 1.0 / (1.0 + (-x).exp())),
        ("aclnnSilu", |x| x / (1.0 + (-x).exp())),
        ("aclnnNeg", |x| -x),
    ];
    for (name, function) in functions {
        for dtype in FLOATS {
            for dims in [&[7usize, 5][..], &[], &[0, 2], &[2, 1500]] {
                for strided in [false, true] {
                    let len: usize = dims.iter().product();
                    let values = varied(len, 3);
                    let (mut x, mut out) =
                        (Data::new(dtype, dims, &values), Data::new(dtype, dims, &vec![0.0; len]));
                    if strided {
                        (x, out) = (x.strided(), out.strided());
                    }
                    run(name, vec![Arg::T(&mut x), Arg::T(&mut out)]).unwrap();
                    let wanted: Vec<f64> = values.iter().map(|&v| function(rounded(v, dtype))).collect();
                    close(
                        &out.values(),
                        &wanted,
                        precision(dtype),
                        &format!("{name} {dtype} {dims:?} {strided}"),
                    );
                }
            }
        }
    }
}

#[test]
fn functions_of_integers_give_floats() {
    let functions: [(&str, Function); 6] = [
        ("aclnnExp", f64::exp),
        ("aclnnLog", f64::ln),
        ("aclnnSqrt", f64::sqrt),
        ("aclnnRsqrt", |x| 1.0 / x.sqrt()),
        ("aclnnReciprocal", |x| 1.0 / x),
        ("aclnnTanh", f64::tanh),
    ];
    let integers = [AclType::I8, AclType::I16, AclType::I32, AclType::I64, AclType::U8, AclType::Bool];
    for (name, function) in functions {
        for dtype in integers {
            let values = if dtype == AclType::Bool { [0.0, 1.0, 1.0] } else { [0.0, 3.0, 100.0] };
            let values = if name == "aclnnExp" { values.map(|value: f64| value.min(9.0)) } else { values };
            let (mut x, mut out) =
                (Data::new(dtype, &[3], &values).strided(), Data::blank(AclType::F32, &[3]));
            if name == "aclnnExp" && ![AclType::I64, AclType::Bool].contains(&dtype) {
                refused(name, vec![Arg::T(&mut x), Arg::T(&mut out)], &["expected an element type of FLOAT"]);
                continue;
            }
            run(name, vec![Arg::T(&mut x), Arg::T(&mut out)]).unwrap();
            close(&out.values(), &values.map(function), precision(AclType::F32), &format!("{name} {dtype}"));
            let mut half = Data::blank(AclType::F16, &[3]);
            refused(name, vec![Arg::T(&mut x), Arg::T(&mut half)], &["expected FLOAT (of integers)"]);
        }
    }
}

#[test]
fn gelu_is_close_to_the_exact_one() {
    // Phi(1) and Phi(-0.5) to seven digits.
    let mut x = Data::new(AclType::F32, &[3], &[1.0, -0.5, 0.0]);
    let mut out = Data::blank(AclType::F32, &[3]);
    run("aclnnGelu", vec![Arg::T(&mut x), Arg::T(&mut out)]).unwrap();
    close(&out.values(), &[0.841_344_7, -0.154_268_8, 0.0], 4e-4, "gelu");
}

#[test]
fn silu_and_sigmoid_survive_the_ends_of_the_range() {
    let mut x = Data::new(AclType::F32, &[4], &[-200.0, 200.0, f64::NEG_INFINITY, f64::INFINITY]);
    let mut out = Data::blank(AclType::F32, &[4]);
    run("aclnnSigmoid", vec![Arg::T(&mut x), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [0.0, 1.0, 0.0, 1.0]);
}

#[test]
fn neg_takes_integers_and_pow_takes_exponents() {
    let mut x = Data::new(AclType::I32, &[2], &[3.0, -4.0]);
    let mut out = Data::blank(AclType::I32, &[2]);
    run("aclnnNeg", vec![Arg::T(&mut x), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [-3.0, 4.0]);
    let mut x = Data::new(AclType::F32, &[3], &[2.0, 3.0, 0.25]);
    let mut out = Data::blank(AclType::F32, &[3]);
    for (exponent, expected) in [(2.0, [4.0, 9.0, 0.0625]), (-0.5, [0.5f64.sqrt(), 1.0 / 3f64.sqrt(), 2.0])] {
        run("aclnnPowTensorScalar", vec![Arg::T(&mut x), real(exponent), Arg::T(&mut out)]).unwrap();
        close(&out.values(), &expected, 1e-6, "pow");
    }
}

#[test]
fn clamp_keeps_nan_and_needs_a_bound() {
    let mut x = Data::new(AclType::F32, &[4], &[-3.0, 0.5, 9.0, f64::NAN]);
    let mut out = Data::blank(AclType::F32, &[4]);
    run("aclnnClamp", vec![Arg::T(&mut x), real(-1.0), real(2.0), Arg::T(&mut out)]).unwrap();
    close(&out.values(), &[-1.0, 0.5, 2.0, f64::NAN], 0.0, "clamp");
    run("aclnnClamp", vec![Arg::T(&mut x), Arg::NoScalar, real(2.0), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values()[..3], [-3.0, 0.5, 2.0]);
    run("aclnnClampMin", vec![Arg::T(&mut x), real(1.0), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values()[..3], [1.0, 1.0, 9.0]);
    refused(
        "aclnnClamp",
        vec![Arg::T(&mut x), Arg::NoScalar, Arg::NoScalar, Arg::T(&mut out)],
        &["both NULL"],
    );
    let mut ints = Data::new(AclType::I32, &[3], &[1.0, 5.0, 9.0]);
    let mut out = Data::blank(AclType::I32, &[3]);
    run("aclnnClamp", vec![Arg::T(&mut ints), whole(2), whole(7), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [2.0, 5.0, 7.0]);
    let parts = ["clipValueMin: a bound of type FLOAT for a tensor of INT32"];
    refused("aclnnClampMin", vec![Arg::T(&mut ints), real(0.5), Arg::T(&mut out)], &parts);
}

#[test]
fn swiglu_gates_the_second_half_with_the_first() {
    for dtype in FLOATS {
        for (dim, shape) in [(1i64, [3usize, 8]), (-2, [6, 4])] {
            let values = varied(shape[0] * shape[1], 4);
            let axis = if dim < 0 { 0 } else { 1 };
            let mut half = shape;
            half[axis] /= 2;
            let mut x = Data::new(dtype, &shape, &values);
            let mut out = Data::blank(dtype, &half);
            run("aclnnSwiGlu", vec![Arg::T(&mut x), Arg::I(dim), Arg::T(&mut out)]).unwrap();
            let at = |i: usize, j: usize| rounded(values[i * shape[1] + j], dtype);
            let wanted: Vec<f64> = (0..half[0] * half[1])
                .map(|p| {
                    let (i, j) = (p / half[1], p % half[1]);
                    let (gate, up) = if axis == 1 {
                        (at(i, j), at(i, j + half[1]))
                    } else {
                        (at(i, j), at(i + half[0], j))
                    };
                    gate / (1.0 + (-gate).exp()) * up
                })
                .collect();
            close(&out.values(), &wanted, precision(dtype), "swiglu");
        }
    }
    let mut odd = Data::new(AclType::F32, &[3], &[0.0; 3]);
    let mut out = Data::blank(AclType::F32, &[1]);
    refused(
        "aclnnSwiGlu",
        vec![Arg::T(&mut odd), Arg::I(0), Arg::T(&mut out)],
        &["expected an even extent of dim 0"],
    );
}

#[test]
fn comparisons_of_tensors_and_scalars() {
    let relations: [(&str, Relation); 5] = [
        ("aclnnEqTensor", |x, y| x == y),
        ("aclnnNeTensor", |x, y| x != y),
        ("aclnnLtTensor", |x, y| x < y),
        ("aclnnLogicalAnd", |x, y| x != 0.0 && y != 0.0),
        ("aclnnLogicalOr", |x, y| x != 0.0 || y != 0.0),
    ];
    for (name, relation) in relations {
        let types = [AclType::F32, AclType::F16, AclType::BF16, AclType::I32, AclType::I64, AclType::U8];
        let triples: Vec<_> = types.iter().map(|&dtype| (dtype, dtype, AclType::Bool)).collect();
        check_pairs(name, &triples, counted, None, |x, y| f64::from(u8::from(relation(x, y))));
    }
    let relations: [(&str, Relation); 6] = [
        ("aclnnEqScalar", |x, y| x == y),
        ("aclnnNeScalar", |x, y| x != y),
        ("aclnnGtScalar", |x, y| x > y),
        ("aclnnLtScalar", |x, y| x < y),
        ("aclnnGeScalar", |x, y| x >= y),
        ("aclnnLeScalar", |x, y| x <= y),
    ];
    for (name, relation) in relations {
        for dtype in [AclType::F32, AclType::F16, AclType::I64] {
            let values = counted(10, 5);
            let mut x = Data::new(dtype, &[10], &values).strided();
            let mut out = Data::blank(AclType::Bool, &[10]);
            run(name, vec![Arg::T(&mut x), whole(3), Arg::T(&mut out)]).unwrap();
            let wanted: Vec<f64> = values.iter().map(|&v| f64::from(u8::from(relation(v, 3.0)))).collect();
            close(&out.values(), &wanted, 0.0, name);
        }
    }
    let mut x = Data::new(AclType::F32, &[2], &[f64::NAN, 1.0]);
    let mut out = Data::blank(AclType::Bool, &[2]);
    run("aclnnLogicalNot", vec![Arg::T(&mut x), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [0.0, 0.0]);
    run("aclnnNeScalar", vec![Arg::T(&mut x), real(1.0), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [1.0, 0.0], "NaN differs from everything");
}

#[test]
fn what_is_finite_is_told_from_what_is_not() {
    for dtype in [AclType::F32, AclType::F16, AclType::BF16, AclType::F64] {
        let values = [1.0, f64::NAN, f64::INFINITY, 65504.0, f64::NEG_INFINITY, -0.0];
        for strided in [false, true] {
            let (x, out) = (Data::new(dtype, &[2, 3], &values), Data::new(AclType::Bool, &[2, 3], &[1.0; 6]));
            let (mut x, mut out) = if strided { (x.strided(), out.strided()) } else { (x, out) };
            run("aclnnIsFinite", vec![Arg::T(&mut x), Arg::T(&mut out)]).unwrap();
            assert_eq!(out.values(), [1.0, 0.0, 0.0, 1.0, 0.0, 1.0], "{dtype}");
        }
    }
    let mut ints = Data::new(AclType::I8, &[3], &[-128.0, 0.0, 127.0]);
    let (mut out, mut flat) = (Data::blank(AclType::Bool, &[3]), Data::blank(AclType::Bool, &[1, 3]));
    run("aclnnIsFinite", vec![Arg::T(&mut ints), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [1.0; 3]);
    let parts = ["out: expected shape [3] (of self), found [1, 3]"];
    refused("aclnnIsFinite", vec![Arg::T(&mut ints), Arg::T(&mut flat)], &parts);
}

#[test]
fn a_scalar_is_compared_as_the_tensor_would_hold_it() {
    let mut x = Data::new(AclType::F16, &[1], &[0.1]);
    let mut out = Data::blank(AclType::Bool, &[1]);
    run("aclnnEqScalar", vec![Arg::T(&mut x), real(0.1), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [1.0]);
}

#[test]
fn selection_broadcasts_all_three() {
    let mut condition = Data::new(AclType::Bool, &[2, 1], &[1.0, 0.0]);
    let mut a = Data::new(AclType::F16, &[3], &[1.0, 2.0, 3.0]);
    let mut b = Data::new(AclType::F16, &[1, 1], &[-1.0]);
    let mut out = Data::blank(AclType::F16, &[2, 3]);
    let arguments = vec![Arg::T(&mut condition), Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut out)];
    run("aclnnSWhere", arguments).unwrap();
    assert_eq!(out.values(), [1.0, 2.0, 3.0, -1.0, -1.0, -1.0]);
    let mut wide = Data::blank(AclType::F32, &[2, 3]);
    let arguments = vec![Arg::T(&mut condition), Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut wide)];
    refused(
        "aclnnSWhere",
        arguments,
        &["out: expected FLOAT16 (the common type of self and other), found FLOAT"],
    );
    let mut floats = a.clone();
    let arguments = vec![Arg::T(&mut floats), Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut out)];
    refused("aclnnSWhere", arguments, &["condition: expected an element type of BOOL, UINT8"]);
}

#[test]
fn masked_fill_touches_masked_elements_only() {
    let mut x = Data::new(AclType::BF16, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).strided();
    let mut mask = Data::new(AclType::Bool, &[1, 3], &[0.0, 1.0, 0.0]);
    run("aclnnInplaceMaskedFillScalar", vec![Arg::T(&mut x), Arg::T(&mut mask), real(f64::NEG_INFINITY)])
        .unwrap();
    assert_eq!(x.values(), [1.0, f64::NEG_INFINITY, 3.0, 4.0, f64::NEG_INFINITY, 6.0]);
    let mut tall = Data::new(AclType::Bool, &[4, 2, 3], &[0.0; 24]);
    let arguments = vec![Arg::T(&mut x), Arg::T(&mut tall), real(0.0)];
    refused("aclnnInplaceMaskedFillScalar", arguments, &["selfRef: expected shape [4, 2, 3]"]);
    let mut ints = Data::new(AclType::I32, &[3], &[1.0; 3]);
    let arguments = vec![Arg::T(&mut ints), Arg::T(&mut mask), real(0.5)];
    refused("aclnnInplaceMaskedFillScalar", arguments, &["selfRef: expected shape [1, 3]"]);
    let mut flat = Data::new(AclType::Bool, &[3], &[0.0; 3]);
    let arguments = vec![Arg::T(&mut ints), Arg::T(&mut flat), real(0.5)];
    refused(
        "aclnnInplaceMaskedFillScalar",
        arguments,
        &["value: a value of type FLOAT cannot be stored as INT32"],
    );
}

#[test]
fn cast_converts_every_pair_of_types() {
    for from in AclType::ALL {
        for to in AclType::ALL {
            let values = if from == AclType::Bool || to == AclType::Bool {
                vec![0.0, 1.0, 1.0]
            } else {
                vec![0.0, 3.0, 100.0]
            };
            let mut x = Data::new(from, &[3], &values).strided();
            let mut out = Data::blank(to, &[3]);
            run("aclnnCast", vec![Arg::T(&mut x), Arg::D(to), Arg::T(&mut out)]).unwrap();
            assert_eq!(out.values(), values, "{from} to {to}");
        }
    }
    let mut x = Data::new(AclType::F32, &[3], &[f64::NAN, -1.75, 1e10]);
    let mut out = Data::blank(AclType::I32, &[3]);
    run("aclnnCast", vec![Arg::T(&mut x), Arg::D(AclType::I32), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [0.0, -1.0, f64::from(i32::MAX)]);
    let parts = ["out: expected INT64 (the attribute dtype), found INT32"];
    refused("aclnnCast", vec![Arg::T(&mut x), Arg::D(AclType::I64), Arg::T(&mut out)], &parts);
}

#[test]
fn a_cast_of_large_integers_rounds_once() {
    // f32 cannot hold 2^24 + 1.
    let mut x = Data::new(AclType::I64, &[1], &[16_777_217.0]);
    let mut out = Data::blank(AclType::F32, &[1]);
    run("aclnnCast", vec![Arg::T(&mut x), Arg::D(AclType::F32), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [16_777_216.0]);
}

#[test]
fn copies_broadcast_and_convert_between_strided_tensors() {
    let mut src = Data::new(AclType::F32, &[3], &[1.0, 2.0, 3.0]).strided();
    let mut target = Data::new(AclType::F16, &[2, 3], &[0.0; 6]).strided();
    run("aclnnInplaceCopy", vec![Arg::T(&mut target), Arg::T(&mut src)]).unwrap();
    assert_eq!(target.values(), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    let parts = ["src: [2, 3] does not broadcast to [3] of selfRef"];
    refused("aclnnInplaceCopy", vec![Arg::T(&mut src), Arg::T(&mut target)], &parts);
}

#[test]
fn fills_reach_every_element_and_nothing_else() {
    for dtype in AclType::ALL {
        let mut x = Data::new(dtype, &[2, 2], &[1.0; 4]).strided();
        let before = x.memory.len();
        run("aclnnInplaceZero", vec![Arg::T(&mut x)]).unwrap();
        assert_eq!(x.values(), [0.0; 4], "{dtype}");
        run("aclnnInplaceOne", vec![Arg::T(&mut x)]).unwrap();
        assert_eq!(x.values(), [1.0; 4], "{dtype}");
        assert_eq!(x.memory.len(), before);
    }
    let mut x = Data::new(AclType::F16, &[3], &[0.0; 3]).strided();
    let gap = x.memory[0].to_le_bytes()[0];
    run("aclnnInplaceFillScalar", vec![Arg::T(&mut x), real(1.5)]).unwrap();
    assert_eq!(
        (x.values(), x.memory[0].to_le_bytes()[0]),
        (vec![1.5; 3], gap),
        "the gap before the view stays"
    );
    let mut ints = Data::new(AclType::I32, &[1], &[0.0]);
    run("aclnnInplaceFillScalar", vec![Arg::T(&mut ints), real(1.5)]).unwrap();
    assert_eq!(ints.values(), [1.0], "cut towards zero");
    let mut truth = Data::new(AclType::Bool, &[1], &[0.0]);
    run("aclnnInplaceFillScalar", vec![Arg::T(&mut truth), real(0.5)]).unwrap();
    assert_eq!(truth.values(), [1.0], "what is not zero is true");
}

#[test]
fn empty_tensors_are_legal_everywhere_here() {
    let empty = |dtype| Data::blank(dtype, &[2, 0]);
    let (mut x, mut y, mut out) = (empty(AclType::F32), empty(AclType::F32), empty(AclType::F32));
    run("aclnnAdd", vec![Arg::T(&mut x), Arg::T(&mut y), whole(1), Arg::T(&mut out)]).unwrap();
    run("aclnnSilu", vec![Arg::T(&mut x), Arg::T(&mut out)]).unwrap();
    run("aclnnInplaceZero", vec![Arg::T(&mut x)]).unwrap();
    run("aclnnInplaceCopy", vec![Arg::T(&mut x), Arg::T(&mut y)]).unwrap();
    let mut flags = empty(AclType::Bool);
    run("aclnnEqTensor", vec![Arg::T(&mut x), Arg::T(&mut y), Arg::T(&mut flags)]).unwrap();
    run("aclnnCast", vec![Arg::T(&mut x), Arg::D(AclType::F16), Arg::T(&mut empty(AclType::F16))]).unwrap();
}
