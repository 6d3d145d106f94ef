//! List and factor types, and notes. `foreach.jsonl` tests the results.

use super::*;
use crate::dtype::AclType::{self, BF16, F16, F32, F64, I8, I16, I32, I64, U8};

const ALL: [AclType; 9] = [F32, F16, BF16, F64, I8, I16, I32, I64, U8];

/// Prepares a call with `lists` lists of two tensors, and a factor before or after them.
fn call(name: &str, lists: usize, listed: AclType, factor: Option<Arg<'_>>) -> Result<Vec<String>, String> {
    let mut tensors: Vec<Vec<Data>> = (0..=lists)
        .map(|_| vec![Data::new(listed, &[2], &[3.0, 4.0]), Data::new(listed, &[], &[5.0])])
        .collect();
    let mut arguments: Vec<Arg<'_>> =
        tensors.iter_mut().map(|list| Arg::List(list.iter_mut().collect())).collect();
    let place = if name.ends_with("ScalarAndTensor") { 0 } else { lists };
    arguments.splice(place..place, factor);
    prepared(&format!("aclnnForeach{name}"), arguments).map(|(_, plan, _)| plan.notes)
}

fn taken(call: impl Fn(AclType) -> Result<Vec<String>, String>) -> Vec<AclType> {
    ALL.into_iter().filter(|&dtype| call(dtype).is_ok()).collect()
}

fn one(dtype: AclType) -> Scalar {
    if dtype.is_float() { Scalar::Float(1.0, dtype) } else { Scalar::Int(1, dtype) }
}

#[test]
fn lists_have_the_types_that_kernels_are_built_for() {
    let unary = |name: &'static str| move |dtype| call(name, 1, dtype, None);
    let binary = |name: &'static str| move |dtype| call(name, 2, dtype, None);
    assert_eq!(taken(unary("Exp")), [F32, F16, BF16]);
    assert_eq!(taken(unary("Abs")), [F32, F16, BF16]);
    assert_eq!(taken(unary("Neg")), [F32, F16, BF16, I32]);
    assert_eq!(taken(unary("Sign")), [F32, F16, BF16, I8, I32, I64]);
    assert_eq!(taken(binary("DivList")), [F32, F16, BF16]);
    assert_eq!(taken(binary("PowList")), [F32, F16, BF16, I32]);
    let [mut x, mut out] = [(), ()].map(|()| [F32, F16].map(|dtype| Data::new(dtype, &[1], &[1.0])));
    let arguments = vec![Arg::List(x.iter_mut().collect()), Arg::List(out.iter_mut().collect())];
    refused("aclnnForeachExp", arguments, &["out: tensor 1 is FLOAT16, tensor 0 is FLOAT: all must match"]);
}

#[test]
fn a_scalar_that_the_first_phase_converts_has_a_type_of_its_kind() {
    for (name, lists) in [("AddScalarV2", 1), ("PowScalarV2", 1), ("AddListV2", 2), ("AddcmulScalarV2", 3)] {
        let with = |listed| taken(|dtype| call(name, lists, listed, Some(Arg::S(one(dtype)))));
        assert_eq!(with(F32), [F32, F64], "{name}");
        assert_eq!(with(BF16), [F32, F64], "{name}");
        assert_eq!(with(F16), [F16, F64], "{name}");
        assert_eq!(with(I32), [I32, I64], "{name}");
        assert_eq!(call(name, lists, F32, Some(Arg::S(one(F64)))), Ok(Vec::new()), "{name}");
    }
    let message = call("MulScalarV2", 1, F32, Some(whole(2))).unwrap_err();
    assert_eq!(
        message,
        "aclnnForeachMulScalarV2: scalar: expected FLOAT, DOUBLE with tensors of FLOAT, found INT64"
    );
}

/// The 16-bit float of 0.1, 0.0999755859375, times three is a tie, which rounds to even.
#[test]
fn a_scalar_is_rounded_to_16_bits_before_the_kernel_sees_it() {
    let product = |name: &str, factor: Arg<'_>| {
        let (mut x, mut out) = (Data::new(F16, &[1], &[3.0]), Data::blank(F16, &[1]));
        run(name, vec![Arg::List(vec![&mut x]), factor, Arg::List(vec![&mut out])]).unwrap();
        out.values()
    };
    assert_eq!(product("aclnnForeachMulScalarV2", Arg::S(Scalar::Float(0.1, F64))), [1228.0 / 4096.0]);
    assert_eq!(
        product("aclnnForeachMulScalarList", Arg::Scalars(vec![Scalar::Float(0.1, F64)])),
        [1229.0 / 4096.0]
    );
}

#[test]
fn a_scalar_that_is_passed_on_has_the_type_of_a_kernel_and_a_double_is_noted() {
    let each = |types: [AclType; 2]| Some(Arg::Scalars(types.map(one).to_vec()));
    let list = |listed| taken(|dtype| call("MulScalarList", 1, listed, each([dtype, dtype])));
    let power = |listed| taken(|dtype| call("PowScalarAndTensor", 1, listed, Some(Arg::S(one(dtype)))));
    for listed in [F32, F16, BF16] {
        assert_eq!((list(listed), power(listed)), (vec![F32, F64], vec![F32, F64]));
    }
    assert_eq!((list(I32), power(I32)), (vec![I64], vec![I64]));
    assert!(call("MulScalarList", 1, F32, each([F64, I64])).is_ok());
    assert!(call("MulScalarList", 1, F32, each([I64, F64])).is_err());

    let noted = |call: Result<Vec<String>, String>| call.unwrap().join("; ");
    let page = "is DOUBLE, which the documentation forbids; CANN's host code converts it to FLOAT";
    assert_eq!(
        noted(call("MulScalarList", 1, F32, each([F32, F64]))),
        format!("aclnnForeachMulScalarList: scalars: {page}")
    );
    assert_eq!(
        noted(call("PowScalarAndTensor", 1, F32, Some(Arg::S(one(F64))))),
        format!("aclnnForeachPowScalarAndTensor: scalar: {page}")
    );
    assert_eq!(noted(call("MulScalarList", 1, F32, each([F32, F32]))), "");
    assert_eq!(noted(call("LerpScalar", 2, F32, Some(Arg::S(one(F64))))), "", "its page has DOUBLE");
}

#[test]
fn the_order_of_a_norm_is_whole_or_a_float() {
    let norm = |dtype| {
        let (mut x, mut out) = (Data::new(F16, &[2], &[3.0, 4.0]), Data::blank(F16, &[]));
        let arguments = vec![Arg::List(vec![&mut x]), Arg::S(one(dtype)), Arg::List(vec![&mut out])];
        prepared("aclnnForeachNorm", arguments).map(|(_, plan, _)| plan.notes)
    };
    assert_eq!(taken(norm), [F32, F64, I64]);
    assert_eq!((norm(F32), norm(I64), norm(F64).unwrap().len()), (Ok(Vec::new()), Ok(Vec::new()), 1));
}

#[test]
fn a_factor_on_the_card_has_the_type_of_a_kernel() {
    let of = |name: &'static str, lists, listed| {
        taken(move |dtype| call(name, lists, listed, Some(Arg::T(&mut Data::new(dtype, &[1], &[1.0])))))
    };
    for (name, lists) in [("AddScalar", 1), ("AddList", 2), ("AddcmulScalar", 3)] {
        let found = [F32, F16, BF16, I32].map(|listed| of(name, lists, listed));
        assert_eq!(found, [[F32], [F16], [F32], [I32]], "{name}");
    }
    let found = [F32, F16, BF16, I32].map(|listed| of("AddcmulList", 3, listed));
    assert_eq!(found, [[F32], [F16], [BF16], [I32]]);
}
