//! Operators by C name, each once, against numbers computed by hand.

use ascend_tp::base::{Argument, DType, Id, Number};
use ascend_tp::call::{BufferId, Call, View};
use ascend_tp::device::Tensor;
use ascend_tp::device::operator::prepare;

use super::{Card, close, read, read_bool, read_f16, read_f32, read_i64};

const F32: DType = DType::F32;

const ONE: Number = Number::Float(1.0);

#[test]
fn products() {
    let card = Card::new();
    let a = card.f32(&[2, 3], &[1., 2., 3., 4., 5., 6.]);
    let b = card.f32(&[3, 2], &[1., 0., 0., 1., 2., 3.]);
    let out = card.empty(F32, &[2, 2]);
    card.run(operator!(aclnnMatmul(&a, &b, &out, 0_i64)));
    assert_eq!(read_f32(&out), [7., 11., 16., 23.]);
    // `b` is transposed by strides.
    let transposed = Tensor::with_strides(a.slice(), F32, [3, 2], &[1, 3], 0).unwrap();
    card.run(operator!(aclnnMatmul(&a, &transposed, &out, 0_i64)));
    assert_eq!(read_f32(&out), [14., 32., 32., 77.]);
    let a = card.f32(&[2, 1, 2], &[1., 2., 3., 4.]);
    let b = card.f32(&[2, 2, 1], &[5., 6., 7., 8.]);
    let out = card.empty(F32, &[2, 1, 1]);
    card.run(operator!(aclnnBatchMatMul(&a, &b, &out, 0_i64)));
    assert_eq!(read_f32(&out), [17., 53.]);
}

#[test]
fn quantised_products() {
    let card = Card::new();
    let half = |values: &[f32]| -> Vec<u8> {
        values.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect()
    };
    let x = card.bytes(DType::F16, &[2, 2], &half(&[127., -63.6, 0.5, 0.125]));
    let (bytes, scales) = (card.empty(DType::I8, &[2, 2]), card.empty(F32, &[2]));
    card.run(operator!(aclnnDynamicQuant(&x, Argument::Absent, &bytes, &scales)));
    assert_eq!(read(&bytes), [127, -64_i8 as u8, 127, 32]);
    assert_eq!(read_f32(&scales), [1., 0.5 / 127.]);
    let w = card.bytes(DType::I8, &[3, 2], &[1, 0, 0, 1, 2, 255]);
    let scale = card.f32(&[3], &[1., 0.5, 2.]);
    let tokens = card.f32(&[2], &[1., 0.25]);
    let out = card.empty(DType::F16, &[2, 3]);
    let none = || Argument::Absent;
    card.run(operator!(aclnnQuantMatmulV4(&bytes, &w, &scale, none(), &tokens, none(), false, true, &out)));
    assert_eq!(read_f16(&out), [127., -32., 636., 31.75, 4., 111.]);
}

#[test]
fn arithmetic_of_two_tensors() {
    let card = Card::new();
    let (a, b) = (card.f32(&[3], &[6., -2., 8.]), card.f32(&[3], &[3., 4., -2.]));
    let out = card.empty(F32, &[3]);
    let sums = [("aclnnAdd", [9., 2., 6.]), ("aclnnSub", [3., -6., 10.])];
    for (name, expected) in sums {
        card.run(prepare(name, [(&a).into(), (&b).into(), ONE.into(), (&out).into()]));
        assert_eq!(read_f32(&out), expected);
    }
    let others = [
        ("aclnnMul", [18., -8., -16.]),
        ("aclnnDiv", [2., -0.5, -4.]),
        ("aclnnMaximum", [6., 4., 8.]),
        ("aclnnMinimum", [3., -2., -2.]),
    ];
    for (name, expected) in others {
        card.run(prepare(name, [(&a).into(), (&b).into(), (&out).into()]));
        assert_eq!(read_f32(&out), expected);
    }
    let (a, b) = (card.i64(&[2], &[1, 2]), card.i64(&[2], &[10, 20]));
    let out = card.empty(DType::I64, &[2]);
    card.run(operator!(aclnnAdd(&a, &b, Number::Int(1), &out)));
    assert_eq!(read_i64(&out), [11, 22]);
}

#[test]
fn arithmetic_with_a_number() {
    let card = Card::new();
    let x = card.f32(&[4], &[-2., -0.5, 0.5, 2.]);
    let out = card.empty(F32, &[4]);
    card.run(operator!(aclnnAdds(&x, Number::Float(1.0), ONE, &out)));
    assert_eq!(read_f32(&out), [-1., 0.5, 1.5, 3.]);
    card.run(operator!(aclnnMuls(&x, Number::Float(-2.0), &out)));
    assert_eq!(read_f32(&out), [4., 1., -1., -4.]);
    card.run(operator!(aclnnClamp(&x, Number::Float(-1.0), Number::Float(0.75), &out)));
    assert_eq!(read_f32(&out), [-1., -0.5, 0.5, 0.75]);
    let x = card.i64(&[3], &[1, 2, 3]);
    let out = card.empty(DType::I64, &[3]);
    card.run(operator!(aclnnAdds(&x, Number::Int(-2), Number::Int(1), &out)));
    assert_eq!(read_i64(&out), [-1, 0, 1]);
    card.run(operator!(aclnnClamp(&x, Number::Int(2), Number::Int(2), &out)));
    assert_eq!(read_i64(&out), [2, 2, 2]);
    // A 32-bit operand accepts a 64-bit constant.
    let bytes: Vec<u8> = [5_i32, -7].iter().flat_map(|value| value.to_le_bytes()).collect();
    let x = card.bytes(DType::I32, &[2], &bytes);
    let out = card.empty(DType::I32, &[2]);
    card.run(operator!(aclnnAdds(&x, Number::Int(-5), Number::Int(1), &out)));
    assert_eq!(read(&out), [0_i32, -12].iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
}

#[test]
fn functions_of_one_tensor() {
    let card = Card::new();
    let values = [0.25_f32, 1.0, 4.0];
    let x = card.f32(&[3], &values);
    let out = card.empty(F32, &[3]);
    type Meaning = fn(f32) -> f32;
    let cases: [(&str, Meaning); 9] = [
        ("aclnnNeg", |x| -x),
        ("aclnnExp", f32::exp),
        ("aclnnLog", f32::ln),
        ("aclnnSqrt", f32::sqrt),
        ("aclnnRsqrt", |x| 1.0 / x.sqrt()),
        ("aclnnReciprocal", |x| 1.0 / x),
        ("aclnnTanh", f32::tanh),
        ("aclnnSigmoid", |x| 1.0 / (1.0 + (-x).exp())),
        ("aclnnSilu", |x| x / (1.0 + (-x).exp())),
    ];
    for (name, expected) in cases {
        card.run(prepare(name, [(&x).into(), (&out).into()]));
        close(&read_f32(&out), &values.map(expected), 1e-5);
    }
}

#[test]
fn gated_activation() {
    let card = Card::new();
    let x = card.f32(&[1, 4], &[1., -1., 10., 20.]);
    let out = card.empty(F32, &[1, 2]);
    card.run(operator!(aclnnSwiGlu(&x, 1_i64, &out)));
    let silu = |x: f32| x / (1.0 + (-x).exp());
    close(&read_f32(&out), &[silu(1.0) * 10.0, silu(-1.0) * 20.0], 1e-5);
}

#[test]
fn norms() {
    let card = Card::new();
    let x = card.f32(&[2, 2], &[3., 4., 6., 8.]);
    let gamma = card.f32(&[2], &[1., 2.]);
    let (out, rstd) = (card.empty(F32, &[2, 2]), card.empty(F32, &[2, 1]));
    card.run(operator!(aclnnRmsNorm(&x, &gamma, 0.0, &out, &rstd)));
    let scale = 1.0 / 12.5_f32.sqrt();
    close(&read_f32(&rstd), &[scale, scale / 2.0], 1e-6);
    close(&read_f32(&out), &[3. * scale, 8. * scale, 3. * scale, 8. * scale], 1e-5);
    let zeros = card.f32(&[2, 2], &[1., 1., 2., 2.]);
    let less = card.f32(&[2, 2], &[2., 3., 4., 6.]);
    let sum = card.empty(F32, &[2, 2]);
    card.run(operator!(aclnnAddRmsNorm(&zeros, &less, &gamma, 0.0, &out, &rstd, &sum)));
    assert_eq!(read_f32(&sum), [3., 4., 6., 8.]);
    close(&read_f32(&out), &[3. * scale, 8. * scale, 3. * scale, 8. * scale], 1e-5);
}

#[test]
fn softmax_over_a_dim() {
    let card = Card::new();
    let x = card.f32(&[2, 2], &[0., 0., 0., 3_f32.ln()]);
    let out = card.empty(F32, &[2, 2]);
    card.run(operator!(aclnnSoftmax(&x, 1_i64, &out)));
    close(&read_f32(&out), &[0.5, 0.5, 0.25, 0.75], 1e-6);
    card.run(operator!(aclnnSoftmax(&x, 0_i64, &out)));
    close(&read_f32(&out), &[0.5, 0.25, 0.5, 0.75], 1e-6);
}

#[test]
fn rotary_turns_the_halves() {
    let card = Card::new();
    let x = card.f32(&[1, 1, 1, 4], &[1., 2., 3., 4.]);
    let cos = card.f32(&[1, 1, 1, 4], &[0., 1., 0., 1.]);
    let sin = card.f32(&[1, 1, 1, 4], &[1., 0., 1., 0.]);
    let out = card.empty(F32, &[1, 1, 1, 4]);
    card.run(operator!(aclnnRotaryPositionEmbedding(&x, &cos, &sin, 0_i64, &out)));
    assert_eq!(read_f32(&out), [-3., 2., 1., 4.]);
}

#[test]
fn attention_under_a_mask() {
    let card = Card::new();
    // Two query heads share one key head; the sign of the keys marks the position.
    let d = 16;
    let unit = |sign: f32| (0..d).map(move |index| if index == 0 { sign } else { 0.0 });
    let q = card.f16(&[1, 1, 2, d], &unit(1.0).chain(unit(-1.0)).collect::<Vec<_>>());
    let k = card.f16(&[1, 2, 1, d], &unit(1.0).chain(unit(-1.0)).collect::<Vec<_>>());
    let v = card.f16(&[1, 2, 1, d], &[vec![1.0; d], vec![3.0; d]].concat());
    let out = card.empty(DType::F16, &[1, 1, 2, d]);
    let attention = |mask: &Tensor| {
        let tensors = [&q, &k, &v, &out, mask];
        let view = |index: usize| {
            let tensor = tensors[index];
            View::contiguous(BufferId::from_index(index), tensor.dtype(), tensor.shape().clone())
        };
        let [q, k, v, out, mask] = [0, 1, 2, 3, 4].map(view);
        let ([q, k, v, out], mask) = ([q, k, v, out].map(Box::new), Some(Box::new(mask)));
        let (heads, kv_heads, scale) = (2, 1, 0.5);
        let (table, lengths, block, sparse_mode, window) = (None, None, 0, 0, 0);
        let call = Call::FusedAttention {
            q,
            k,
            v,
            mask,
            table,
            k_scale: None,
            v_scale: None,
            lengths,
            out,
            heads,
            kv_heads,
            scale,
            block,
            sparse_mode,
            window,
        };
        ascend_tp::exec::prepare(&call, &|view| Ok(tensors[view.buffer.index()].clone()), None)
    };
    card.run(attention(&card.bool(&[1, 1, 1, 2], &[false, false])));
    let first = 1.0 / (1.0 + (-1.0_f32).exp());
    let expected = [1.0 * first + 3.0 * (1.0 - first), 1.0 * (1.0 - first) + 3.0 * first];
    close(&read_f16(&out), &[[expected[0]; 16], [expected[1]; 16]].concat(), 4e-3);
    let mask = card.bool(&[1, 1, 1, 2], &[true, false]);
    card.run(attention(&mask));
    close(&read_f16(&out), &[3.0; 32], 4e-3);
}

#[test]
fn lookups() {
    let card = Card::new();
    let table = card.f32(&[3, 2], &[0., 1., 10., 11., 20., 21.]);
    let ids = card.i64(&[2], &[2, 0]);
    let out = card.empty(F32, &[2, 2]);
    card.run(operator!(aclnnEmbedding(&table, &ids, &out)));
    assert_eq!(read_f32(&out), [20., 21., 0., 1.]);
    card.run(operator!(aclnnIndexSelect(&table, 0_i64, &ids, &out)));
    assert_eq!(read_f32(&out), [20., 21., 0., 1.]);
    let index = card.i64(&[3, 1], &[1, 0, 1]);
    let out = card.empty(F32, &[3, 1]);
    card.run(operator!(aclnnGather(&table, 1_i64, &index, &out)));
    assert_eq!(read_f32(&out), [1., 10., 21.]);
    let rows = card.f32(&[2, 2], &[-1., -2., -3., -4.]);
    card.run(operator!(aclnnInplaceIndexCopy(&table, 0_i64, &ids, &rows)));
    assert_eq!(read_f32(&table), [-3., -4., 10., 11., -1., -2.]);
}

#[test]
fn copies_and_fills() {
    let card = Card::new();
    let x = card.f32(&[2, 2], &[1., 2., 3., 4.]);
    let transposed = Tensor::with_strides(x.slice(), F32, [2, 2], &[1, 2], 0).unwrap();
    let out = card.empty(F32, &[2, 2]);
    card.run(operator!(aclnnInplaceCopy(&out, &transposed)));
    assert_eq!(read_f32(&out), [1., 3., 2., 4.]);
    let whole = card.empty(DType::I64, &[2, 2]);
    card.run(operator!(aclnnCast(&x, DType::I64, &whole)));
    assert_eq!(read_i64(&whole), [1, 2, 3, 4]);
    let mask = card.bool(&[2, 2], &[true, false, false, true]);
    card.run(operator!(aclnnInplaceMaskedFillScalar(&x, &mask, Number::Float(9.0))));
    assert_eq!(read_f32(&x), [9., 2., 3., 9.]);
    card.run(operator!(aclnnInplaceFillScalar(&x, Number::Float(0.5))));
    assert_eq!(read_f32(&x), [0.5; 4]);
    card.run(operator!(aclnnInplaceZero(&x)));
    assert_eq!(read_f32(&x), [0.0; 4]);
}

#[test]
fn comparisons_and_selection() {
    let card = Card::new();
    let (a, b) = (card.f32(&[3], &[1., 2., 3.]), card.f32(&[3], &[1., 5., 2.]));
    let out = card.empty(DType::Bool, &[3]);
    card.run(operator!(aclnnEqTensor(&a, &b, &out)));
    assert_eq!(read_bool(&out), [true, false, false]);
    card.run(operator!(aclnnNeTensor(&a, &b, &out)));
    assert_eq!(read_bool(&out), [false, true, true]);
    card.run(operator!(aclnnLtScalar(&a, Number::Float(2.0), &out)));
    assert_eq!(read_bool(&out), [true, false, false]);
    card.run(operator!(aclnnGtScalar(&a, Number::Float(2.0), &out)));
    assert_eq!(read_bool(&out), [false, false, true]);
    let (p, q) = (card.bool(&[3], &[true, true, false]), card.bool(&[3], &[true, false, false]));
    card.run(operator!(aclnnLogicalAnd(&p, &q, &out)));
    assert_eq!(read_bool(&out), [true, false, false]);
    card.run(operator!(aclnnLogicalNot(&p, &out)));
    assert_eq!(read_bool(&out), [false, false, true]);
    let chosen = card.empty(F32, &[3]);
    card.run(operator!(aclnnSWhere(&p, &a, &b, &chosen)));
    assert_eq!(read_f32(&chosen), [1., 2., 2.]);
}

#[test]
fn reductions() {
    let card = Card::new();
    let x = card.f32(&[2, 3], &[1., 5., 5., 7., 2., 3.]);
    for (shape, keep) in [(&[2, 1][..], true), (&[2], false)] {
        let (values, indices) = (card.empty(F32, shape), card.empty(DType::I64, shape));
        card.run(operator!(aclnnMaxDim(&x, 1_i64, keep, &values, &indices)));
        assert_eq!((read_f32(&values), read_i64(&indices)), (vec![5., 7.], vec![1, 0]));
        card.run(operator!(aclnnArgMax(&x, 1_i64, keep, &indices)));
        assert_eq!(read_i64(&indices), [1, 0]);
        card.run(operator!(aclnnReduceSum(&x, Argument::Ints(vec![1]), keep, F32, &values)));
        assert_eq!(read_f32(&values), [11., 12.]);
        card.run(operator!(aclnnMean(&x, Argument::Ints(vec![1]), keep, F32, &values)));
        close(&read_f32(&values), &[11. / 3., 4.], 1e-6);
    }
    let (values, indices) = (card.empty(F32, &[2, 2]), card.empty(DType::I64, &[2, 2]));
    card.run(operator!(aclnnTopk(&x, 2_i64, 1_i64, true, true, &values, &indices)));
    assert_eq!(read_f32(&values), [5., 5., 7., 3.]);
    assert_eq!(read_i64(&indices), [1, 2, 0, 2]);
}

#[test]
fn shapes() {
    let card = Card::new();
    let x = card.f32(&[2, 3], &[0., 1., 2., 3., 4., 5.]);
    let out = card.empty(F32, &[3, 2]);
    card.run(operator!(aclnnPermute(&x, Argument::Ints(vec![1, 0]), &out)));
    assert_eq!(read_f32(&out), [0., 3., 1., 4., 2., 5.]);
    let y = card.f32(&[2, 1], &[8., 9.]);
    let out = card.empty(F32, &[2, 4]);
    card.run(operator!(aclnnCat(Argument::Tensors(vec![x, y]), 1_i64, &out)));
    assert_eq!(read_f32(&out), [0., 1., 2., 8., 3., 4., 5., 9.]);
}

#[test]
fn a_prepared_operator_runs_on_what_the_memory_holds_then() {
    let card = Card::new();
    let x = card.f32(&[2], &[1., 2.]);
    let out = card.empty(F32, &[2]);
    let mut double = operator!(aclnnMuls(&x, Number::Float(2.0), &out)).unwrap();
    assert_eq!(double.name(), "aclnnMuls");
    for value in 0..5 {
        let value = value as f32;
        x.slice().buffer().write(0, &[value.to_le_bytes(), (-value).to_le_bytes()].concat()).unwrap();
        double.enqueue(&card.stream, None).unwrap();
        assert_eq!(read_f32(&out), [2.0 * value, -2.0 * value]);
    }
}

#[test]
fn a_prepared_operator_keeps_its_operands() {
    let card = Card::new();
    let x = card.f32(&[1], &[3.0]);
    let out = card.empty(F32, &[1]);
    let mut negate = operator!(aclnnNeg(&x, &out)).unwrap();
    drop(x);
    negate.enqueue(&card.stream, None).unwrap();
    assert_eq!(read_f32(&out), [-3.0]);
}

#[test]
fn arguments_of_another_prototype_are_refused() {
    let card = Card::new();
    let x = card.f32(&[2], &[1., 2.]);
    let refused =
        |name: &str, arguments: Vec<Argument<Tensor>>| prepare(name, arguments).unwrap_err().to_string();
    let text = refused("aclnnSoft", vec![(&x).into()]);
    assert!(text.contains("aclnnSoft: not an operator of this project"), "{text}");
    let text = refused("aclnnSoftmax", vec![(&x).into(), (&x).into()]);
    assert!(text.contains("expected 3, found 2"), "{text}");
    let text = refused("aclnnSoftmax", vec![(&x).into(), 0.5.into(), (&x).into()]);
    assert!(text.contains("argument `dim`: expected i64, found Float(0.5)"), "{text}");
    let text = refused("aclnnMatmul", vec![(&x).into(), (&x).into(), (&x).into(), 300_i64.into()]);
    assert!(text.contains("arguments do not match the prototype"), "{text}");
}
