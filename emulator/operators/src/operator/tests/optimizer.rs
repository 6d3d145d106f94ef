//! Three-tensor operators and fused optimizer steps, against plain loops and each other.

use super::*;
use crate::dtype::AclType;

const TRIPLES: [[&[usize]; 3]; 5] = [
    [&[5], &[5], &[5]],
    [&[2, 3, 4], &[3, 1], &[1]],
    [&[2, 1, 1100], &[2, 3, 1], &[]],
    [&[0, 3], &[1, 3], &[3]],
    [&[], &[], &[]],
];

/// Checks also in place, over shapes, types and layouts.
fn check_triples(
    names: [&str; 2],
    types: &[[AclType; 4]],
    scalar: Option<f64>,
    expected: impl Fn([f64; 3]) -> f64,
) {
    for &[a_type, b_type, c_type, result] in types {
        for dims in TRIPLES {
            for strided in [false, true] {
                let shape =
                    dims.iter().fold(Vec::new(), |shape, dims| call::broadcast(&shape, dims).unwrap());
                let len: usize = shape.iter().product();
                let operand = |i: usize, dtype| {
                    let values: Vec<f64> =
                        varied(dims[i].iter().product(), i).iter().map(|v| v + 0.125).collect();
                    let data = Data::new(dtype, dims[i], &values);
                    (if strided { data.strided() } else { data }, values)
                };
                let ((mut a, x), (mut b, y), (mut c, z)) =
                    (operand(0, a_type), operand(1, b_type), operand(2, c_type));
                let wanted: Vec<f64> = (0..len)
                    .map(|i| {
                        let at =
                            |values: &[f64], place: usize| values[broadcast_index(dims[place], &shape, i)];
                        expected([at(&x, 0), at(&y, 1), at(&z, 2)])
                    })
                    .collect();
                let what = format!("{} {a_type} {b_type} {c_type} {dims:?} {strided}", names[0]);
                let mut out = Data::new(result, &shape, &vec![7.0; len]);
                out = if strided { out.strided() } else { out };
                let mut arguments = vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut c)];
                arguments.extend(scalar.map(real));
                arguments.push(Arg::T(&mut out));
                run(names[0], arguments).unwrap();
                close(&out.values(), &wanted, precision(result), &what);
                if a.dims == shape && a_type == result {
                    let mut arguments = vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut c)];
                    arguments.extend(scalar.map(real));
                    run(names[1], arguments).unwrap();
                    assert_eq!(a.values(), out.values(), "in place: {what}");
                }
            }
        }
    }
}

const ALIKE: [[AclType; 4]; 3] = [[AclType::F32; 4], [AclType::F16; 4], [AclType::BF16; 4]];

#[test]
fn scaled_products_quotients_and_interpolations() {
    let mixed = [
        [AclType::F32, AclType::BF16, AclType::F32, AclType::F32],
        [AclType::F16, AclType::BF16, AclType::F16, AclType::F32],
        [AclType::F64; 4],
    ];
    let types = [&ALIKE[..], &mixed].concat();
    check_triples(["aclnnAddcmul", "aclnnInplaceAddcmul"], &types, Some(-0.25), |[x, y, z]| x - 0.25 * y * z);
    check_triples(["aclnnAddcdiv", "aclnnInplaceAddcdiv"], &types, Some(-0.25), |[x, y, z]| {
        x - 0.25 * (y / z)
    });
    check_triples(["aclnnLerp", "aclnnInplaceLerp"], &ALIKE, None, |[x, y, z]| x + z * (y - x));
    for dtype in FLOATS {
        for strided in [false, true] {
            let (x, y) = (varied(1400, 1), varied(700, 2));
            let (mut a, mut b) = (Data::new(dtype, &[2, 700], &x), Data::new(dtype, &[700], &y));
            let mut out = Data::blank(dtype, &[2, 700]);
            if strided {
                (a, b) = (a.strided(), b.strided());
            }
            let wanted: Vec<f64> = x.iter().enumerate().map(|(i, x)| x + 0.125 * (y[i % 700] - x)).collect();
            run("aclnnLerps", vec![Arg::T(&mut a), Arg::T(&mut b), real(0.125), Arg::T(&mut out)]).unwrap();
            close(&out.values(), &wanted, precision(dtype), "lerps");
            run("aclnnInplaceLerps", vec![Arg::T(&mut a), Arg::T(&mut b), real(0.125)]).unwrap();
            assert_eq!(a.values(), out.values());
        }
    }
}

#[test]
fn operators_of_three_tensors_are_refused_by_name() {
    let data = |dtype, dims: &[usize]| Data::new(dtype, dims, &vec![1.0; dims.iter().product()]);
    let (mut a, mut wide, mut odd) =
        (data(AclType::F16, &[2]), data(AclType::F16, &[3, 2]), data(AclType::F16, &[3]));
    let mut brain = data(AclType::BF16, &[2]);
    let arguments = vec![Arg::T(&mut a), Arg::T(&mut wide), Arg::T(&mut brain), real(1.0)];
    let parts = ["selfRef: expected shape [3, 2] (to which self, tensor1, tensor2 broadcast), found [2]"];
    refused("aclnnInplaceAddcmul", arguments, &parts);
    let arguments = vec![Arg::T(&mut a), Arg::T(&mut wide), Arg::T(&mut odd), real(1.0)];
    refused(
        "aclnnInplaceAddcdiv",
        arguments,
        &["tensor2: [3] does not broadcast with [3, 2] of those before it"],
    );
    let (mut b, mut ints) = (a.clone(), data(AclType::I32, &[2]));
    let arguments = vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut ints), real(1.0)];
    refused(
        "aclnnInplaceAddcdiv",
        arguments,
        &["tensor2: expected an element type of FLOAT, FLOAT16, BFLOAT16, DOUBLE"],
    );
    let arguments = vec![Arg::T(&mut a), Arg::T(&mut b), Arg::NoScalar];
    refused("aclnnInplaceLerps", arguments, &["weight: is NULL"]);
    let arguments = vec![Arg::T(&mut a), Arg::T(&mut brain), real(0.5)];
    refused("aclnnInplaceLerps", arguments, &["end: expected FLOAT16 (the type of self), found BFLOAT16"]);
    let arguments = vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut brain)];
    refused("aclnnInplaceLerp", arguments, &["weight: expected FLOAT16 (the type of self), found BFLOAT16"]);
}

/// Scalars as C passes them, widened.
const RATES: [f64; 5] = [1e-2f32 as f64, 0.9f32 as f64, 0.99f32 as f64, 0.1f32 as f64, 1e-6f32 as f64];

struct State {
    tensors: [Data; 4],
    amsgrad: bool,
    maximize: bool,
}

impl State {
    fn new(dtype: AclType, dims: &[usize], strided: bool) -> Self {
        let len: usize = dims.iter().product();
        let positive =
            |seed| varied(len, seed).iter().map(|value| value * value / 8.0 + 0.25).collect::<Vec<_>>();
        let tensors = [varied(len, 1), varied(len, 2), positive(3), positive(4)].map(|values| {
            let data = Data::new(dtype, dims, &values);
            if strided { data.strided() } else { data }
        });
        Self { tensors, amsgrad: false, maximize: false }
    }

    fn step(&mut self, grad: &mut Data, step_type: AclType, made: f64) -> Result<(), String> {
        let [parameters, first, second, greatest] = &mut self.tensors;
        let mut step = Data::new(step_type, &[1], &[made]);
        let mut arguments = vec![
            Arg::T(parameters),
            Arg::T(first),
            Arg::T(second),
            if self.amsgrad { Arg::T(greatest) } else { Arg::Null },
            Arg::T(grad),
            Arg::T(&mut step),
        ];
        arguments.extend(RATES.map(Arg::F));
        arguments.extend([Arg::B(self.amsgrad), Arg::B(self.maximize)]);
        run("aclnnApplyAdamWV2", arguments)
    }

    /// Computes in the order of torch.optim.AdamW.
    fn expected(&self, grads: &[f64], t: i32) -> [Vec<f64>; 4] {
        let [lr, beta1, beta2, decay, eps] = RATES;
        let mut state = self.tensors.each_ref().map(Data::values);
        for (i, grad) in grads.iter().enumerate() {
            let grad = if self.maximize { -grad } else { *grad };
            let [p, m, v, top] = state.each_mut().map(|values| &mut values[i]);
            *p *= 1.0 - lr * decay;
            *m += (1.0 - beta1) * (grad - *m);
            *v = beta2 * *v + (1.0 - beta2) * grad * grad;
            if self.amsgrad {
                *top = top.max(*v);
            }
            let spread = if self.amsgrad { *top } else { *v }.sqrt() / (1.0 - beta2.powi(t)).sqrt() + eps;
            *p -= lr / (1.0 - beta1.powi(t)) * *m / spread;
        }
        state
    }
}

#[test]
fn adam_w_follows_its_definition_over_types_layouts_and_options() {
    for dtype in FLOATS {
        for (dims, strided) in
            [(&[7][..], false), (&[3, 700], true), (&[2, 1, 33_000], false), (&[0, 4], false)]
        {
            for (amsgrad, maximize, step_type, made) in [
                (false, false, AclType::I64, 0),
                (true, false, AclType::F32, 1),
                (false, true, AclType::F32, 9),
                (true, true, AclType::I64, 999),
            ] {
                let mut state = State { amsgrad, maximize, ..State::new(dtype, dims, strided) };
                let grads = varied(dims.iter().product(), 5);
                let mut grad = Data::new(dtype, dims, &grads);
                grad = if strided { grad.strided() } else { grad };
                let wanted = state.expected(&grads, made + 1);
                state.step(&mut grad, step_type, f64::from(made)).unwrap();
                for (i, (found, wanted)) in state.tensors.iter().zip(wanted).enumerate() {
                    close(
                        &found.values(),
                        &wanted,
                        precision(dtype),
                        &format!("{dtype} {dims:?} {amsgrad} tensor {i}"),
                    );
                }
            }
        }
    }
}

#[test]
fn a_fused_step_has_the_bits_of_the_operators_it_is_made_of() {
    let dims = [3, 1000];
    let (mut state, plain) = (State::new(AclType::F32, &dims, false), State::new(AclType::F32, &dims, false));
    let [mut p, mut m, mut v, _] = plain.tensors;
    let mut grad =
        Data::new(AclType::F32, &dims, &varied(3000, 6).iter().map(|value| value / 3.0).collect::<Vec<_>>());
    for t in 1..4i32 {
        state.step(&mut grad, AclType::I64, f64::from(t - 1)).unwrap();
        let [lr, beta1, beta2, decay, eps] = RATES;
        let mut again = grad.clone();
        run("aclnnInplaceMuls", vec![Arg::T(&mut p), real(1.0 - lr * decay)]).unwrap();
        run("aclnnInplaceLerps", vec![Arg::T(&mut m), Arg::T(&mut grad), real(1.0 - beta1)]).unwrap();
        run("aclnnInplaceMuls", vec![Arg::T(&mut v), real(beta2)]).unwrap();
        let arguments = vec![Arg::T(&mut v), Arg::T(&mut grad), Arg::T(&mut again), real(1.0 - beta2)];
        run("aclnnInplaceAddcmul", arguments).unwrap();
        let mut spread = Data::blank(AclType::F32, &dims);
        run("aclnnSqrt", vec![Arg::T(&mut v), Arg::T(&mut spread)]).unwrap();
        run("aclnnInplaceDivs", vec![Arg::T(&mut spread), real((1.0 - beta2.powf(f64::from(t))).sqrt())])
            .unwrap();
        run("aclnnInplaceAdds", vec![Arg::T(&mut spread), real(eps), whole(1)]).unwrap();
        let rate = -lr / (1.0 - beta1.powf(f64::from(t)));
        let arguments = vec![Arg::T(&mut p), Arg::T(&mut m), Arg::T(&mut spread), real(rate)];
        run("aclnnInplaceAddcdiv", arguments).unwrap();
        for (found, wanted) in state.tensors.iter().zip([&p, &m, &v]) {
            assert!(found.values() == wanted.values(), "step {t}");
        }
    }
}

#[test]
fn adam_w_refusals() {
    let mut grad = Data::new(AclType::F32, &[4], &[1.0; 4]);
    let says = |result: Result<(), String>, part: &str| {
        let message = result.expect_err("must be refused");
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    };
    let state = || State::new(AclType::F32, &[4], false);
    says(
        state().step(&mut grad, AclType::F32, -1.0),
        "step: expected the number of earlier updates, at least 0, found -1",
    );
    says(state().step(&mut grad, AclType::F32, f64::NAN), "found NaN");
    says(
        state().step(&mut grad, AclType::I32, 0.0),
        "step: expected an element type of FLOAT, INT64, found INT32",
    );
    let mut half = Data::new(AclType::F16, &[4], &[1.0; 4]);
    says(
        state().step(&mut half, AclType::I64, 0.0),
        "grad: expected FLOAT (the type of varRef), found FLOAT16",
    );
    let mut flat = Data::new(AclType::F32, &[2, 2], &[1.0; 4]);
    says(state().step(&mut flat, AclType::I64, 0.0), "grad: expected shape [4] (of varRef), found [2, 2]");
    let State { tensors: [mut p, mut m, mut v, _], .. } = state();
    let mut step = Data::new(AclType::I64, &[1], &[0.0]);
    let mut arguments =
        vec![Arg::T(&mut p), Arg::T(&mut m), Arg::T(&mut v), Arg::Null, Arg::T(&mut grad), Arg::T(&mut step)];
    arguments.extend(RATES.map(Arg::F));
    arguments.extend([Arg::B(true), Arg::B(false)]);
    refused(
        "aclnnApplyAdamWV2",
        arguments,
        &["maxGradNormOptionalRef: is NULL and must be given if amsgrad is true"],
    );
    let mut steps = Data::new(AclType::I64, &[2], &[0.0; 2]);
    let mut arguments = vec![
        Arg::T(&mut p),
        Arg::T(&mut m),
        Arg::T(&mut v),
        Arg::Null,
        Arg::T(&mut grad),
        Arg::T(&mut steps),
    ];
    arguments.extend(RATES.map(Arg::F));
    arguments.extend([Arg::B(false), Arg::B(false)]);
    refused("aclnnApplyAdamWV2", arguments, &["step: expected one element, found [2]"]);
}
