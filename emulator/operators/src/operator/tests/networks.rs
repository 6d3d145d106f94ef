//! Products of networks against their definitions: groups, exchanges, experts and adapters.

use super::samples::single;
use super::*;

#[test]
fn grouped_products_are_gated_and_quantised() {
    let (x, w) = (counted(5 * 3, 1), counted(2 * 3 * 4, 4));
    let (scales, tokens) = (varied(8, 2), [0.5, 1.0, 0.25, 2.0, 1.0]);
    for name in ["aclnnGroupedMatmulSwigluQuant", "aclnnGroupedMatmulSwigluQuantWeightNZ"] {
        let mut a = Data::new(AclType::I8, &[5, 3], &x).strided();
        let mut b = Data::new(AclType::I8, &[2, 3, 4], &w);
        let (mut ws, mut xs) = (single(&[2, 4], &scales), single(&[5], &tokens));
        let mut groups = Data::new(AclType::I64, &[2], &[2.0, 4.0]);
        let (mut out, mut found) = (Data::new(AclType::I8, &[5, 2], &[7.0; 10]), single(&[5], &[7.0; 5]));
        let mut call =
            vec![("x", Arg::T(&mut a)), ("weight", Arg::T(&mut b)), ("weightScale", Arg::T(&mut ws))];
        call.extend([("xScale", Arg::T(&mut xs)), ("groupList", Arg::T(&mut groups))]);
        call.extend([("output", Arg::T(&mut out)), ("outputScale", Arg::T(&mut found))]);
        run(name, named(name, call)).unwrap();
        for row in 0..5 {
            let group = row / 2;
            if group > 1 {
                assert_eq!(out.values()[8..], [7.0, 7.0]);
                continue;
            }
            let product = |n: usize| {
                let sum: f64 = (0..3).map(|k| x[row * 3 + k] * w[group * 12 + k * 4 + n]).sum();
                sum * tokens[row] * scales[group * 4 + n]
            };
            let value = |i: usize| product(i) / (1.0 + (-product(i)).exp()) * product(2 + i);
            let most = value(0).abs().max(value(1).abs()) / 127.0;
            close(&[found.values()[row]], &[most], 1e-5, name);
            let levels: Vec<f64> =
                (0..2).map(|i| if most > 0.0 { (value(i) / most).round_ties_even() } else { 0.0 }).collect();
            assert_eq!(out.values()[row * 2..row * 2 + 2], levels, "{name}, row {row}");
        }
    }
    let (mut a, mut b, mut c) =
        (single(&[2, 3], &varied(6, 1)), single(&[3, 2], &varied(6, 2)), single(&[2], &varied(2, 3)));
    let mut out = Data::blank(AclType::F32, &[2, 2]);
    let mut call = vec![("x", Arg::List(vec![&mut a])), ("weight", Arg::List(vec![&mut b]))];
    call.extend([("biasOptional", Arg::List(vec![&mut c])), ("out", Arg::List(vec![&mut out]))]);
    run("aclnnGroupedMatmul", named("aclnnGroupedMatmul", call)).unwrap();
    let [a, b, c] = [varied(6, 1), varied(6, 2), varied(2, 3)];
    let product = |i: usize| (0..3).map(|k| a[i / 2 * 3 + k] * b[k * 2 + i % 2]).sum::<f64>() + c[i % 2];
    close(&out.values(), &(0..4).map(product).collect::<Vec<_>>(), 1e-5, "pairs");
}

/// Only the product: cards add the results in the tests of the emulator.
#[test]
fn products_before_an_exchange_have_an_addend_and_scales() {
    let (x, w, x3) = (counted(2 * 4, 1), counted(4 * 3, 2), varied(6, 3));
    let (scales, bias) = ([0.5, 2.0, 1.0], [3.0, -1.0, 2.0]);
    let options = || {
        vec![
            ("group", Arg::Text("hccl_world_group")),
            ("reduceOp", Arg::Text("sum")),
            ("commTurn", Arg::I(0)),
            ("streamMode", Arg::I(1)),
        ]
    };
    for (name, by_token) in [
        ("aclnnQuantMatmulAllReduce", false),
        ("aclnnQuantMatmulAllReduceV2", true),
        ("aclnnQuantMatmulAllReduceV3", false),
    ] {
        let is_first = name == "aclnnQuantMatmulAllReduce";
        let (mut a, mut b) = (Data::new(AclType::I8, &[2, 4], &x), Data::new(AclType::I8, &[4, 3], &w));
        let mut c = Data::new(AclType::I32, &[3], &bias);
        let (mut addend, mut out) =
            (Data::new(AclType::F16, &[2, 3], &x3), Data::blank(AclType::F16, &[2, 3]));
        let mut tokens = single(&[2], &[0.25, 4.0]);
        let packed: Vec<f64> = scales.iter().map(|scale| f64::from((*scale as f32).to_bits())).collect();
        let mut scale = if by_token { single(&[3], &scales) } else { Data::new(AclType::I64, &[3], &packed) };
        let mut call = options();
        call.extend([("x1", Arg::T(&mut a)), ("x2", Arg::T(&mut b)), ("dequantScale", Arg::T(&mut scale))]);
        call.extend([(if is_first { "bias" } else { "biasOptional" }, Arg::T(&mut c))]);
        call.extend([
            (if is_first { "x3" } else { "x3Optional" }, Arg::T(&mut addend)),
            ("output", Arg::T(&mut out)),
        ]);
        if by_token {
            call.push(("pertokenScaleOptional", Arg::T(&mut tokens)));
        }
        run(name, named(name, call)).unwrap();
        let value = |i: usize| {
            let sum: f64 = (0..4).map(|k| x[i / 3 * 4 + k] * w[k * 3 + i % 3]).sum();
            let token = if by_token { [0.25, 4.0][i / 3] } else { 1.0 };
            (sum + bias[i % 3]) * scales[i % 3] * token + x3[i]
        };
        close(&out.values(), &(0..6).map(value).collect::<Vec<_>>(), precision(AclType::F16), name);
    }
    let (mut a, mut addend) = (Data::new(AclType::BF16, &[2, 4], &x), Data::new(AclType::BF16, &[2, 3], &x3));
    let (mut b, mut out) = (Data::new(AclType::BF16, &[4, 3], &w), Data::blank(AclType::BF16, &[2, 3]));
    let mut call = options();
    call.extend([
        ("x1", Arg::T(&mut a)),
        ("x2", Arg::T(&mut b)),
        ("x3", Arg::T(&mut addend)),
        ("output", Arg::T(&mut out)),
    ]);
    run("aclnnMatmulAllReduceV2", named("aclnnMatmulAllReduceV2", call)).unwrap();
    let sum = |i: usize| (0..4).map(|k| x[i / 3 * 4 + k] * w[k * 3 + i % 3]).sum::<f64>();
    close(
        &out.values(),
        &(0..6).map(|i| sum(i) + x3[i]).collect::<Vec<_>>(),
        precision(AclType::BF16),
        "addend",
    );
    let mut levels = Data::new(AclType::I8, &[4, 3], &w);
    let (mut scale, mut offset) =
        (Data::new(AclType::BF16, &[3], &scales), Data::new(AclType::BF16, &[3], &bias));
    let mut call = options();
    call.extend([
        ("x1", Arg::T(&mut a)),
        ("x2", Arg::T(&mut levels)),
        ("antiquantScale", Arg::T(&mut scale)),
    ]);
    call.extend([("antiquantOffset", Arg::T(&mut offset)), ("output", Arg::T(&mut out))]);
    run("aclnnWeightQuantMatmulAllReduce", named("aclnnWeightQuantMatmulAllReduce", call)).unwrap();
    let value = |i: usize| {
        let n = i % 3;
        (0..4).map(|k| x[i / 3 * 4 + k] * (w[k * 3 + n] + bias[n]) * scales[n]).sum::<f64>()
    };
    close(&out.values(), &(0..6).map(value).collect::<Vec<_>>(), precision(AclType::BF16), "weights");
}

#[test]
fn feed_forward_networks_have_experts_or_gates() {
    let (x, w1, w2) = (varied(3 * 4, 1), varied(2 * 4 * 6, 2), varied(2 * 6 * 4, 3));
    let (b1, b2) = (varied(2 * 6, 4), varied(2 * 4, 5));
    let half = |dims: &[usize], values: &[f64]| Data::new(AclType::F16, dims, values).strided();
    let value = |row: usize, column: usize, expert: usize, hidden: &dyn Fn(&[f64]) -> Vec<f64>| {
        let inner = |n: usize| {
            (0..4).map(|k| x[row * 4 + k] * w1[expert * 24 + k * 6 + n]).sum::<f64>() + b1[expert * 6 + n]
        };
        let gated = hidden(&(0..6).map(inner).collect::<Vec<_>>());
        let sum: f64 = gated.iter().enumerate().map(|(n, h)| h * w2[expert * 24 + n * 4 + column]).sum();
        sum + b2[expert * 4 + column]
    };
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let plain = |inner: &[f64]| inner.iter().map(|x| x.max(0.0)).collect::<Vec<f64>>();
    for (name, are_ends) in [("aclnnFFNV2", false), ("aclnnFFNV3", true)] {
        let is_second = name == "aclnnFFNV2";
        let (mut a, mut first, mut second) =
            (half(&[3, 4], &x), half(&[2, 4, 6], &w1), half(&[2, 6, 4], &w2));
        let (mut c1, mut c2) = (half(&[2, 6], &b1), half(&[2, 4], &b2));
        let mut counts = Data::new(AclType::I64, &[2], &[1.0, 3.0]);
        let mut out = Data::blank(AclType::F16, &[3, 4]);
        let mut call =
            vec![("x", Arg::T(&mut a)), ("weight1", Arg::T(&mut first)), ("weight2", Arg::T(&mut second))];
        if is_second {
            call.extend([
                ("expertTokens", Arg::Ints(&[1, 2])),
                ("bias1", Arg::T(&mut c1)),
                ("bias2", Arg::T(&mut c2)),
            ]);
        } else {
            call.push(("expertTokensOptional", Arg::T(&mut counts)));
            call.extend([("bias1Optional", Arg::T(&mut c1)), ("bias2Optional", Arg::T(&mut c2))]);
        }
        call.extend([
            ("activation", Arg::Text("relu")),
            ("tokensIndexFlag", Arg::B(are_ends)),
            ("y", Arg::T(&mut out)),
        ]);
        run(name, named(name, call)).unwrap();
        let expected: Vec<f64> = (0..12).map(|i| value(i / 4, i % 4, usize::from(i > 3), &plain)).collect();
        close(&out.values(), &expected, 4e-3, name);
    }
    let (mut a, mut first, mut second) =
        (half(&[3, 4], &x), half(&[4, 6], &w1[..24]), half(&[3, 4], &w2[..12]));
    let (mut c1, mut c2) = (half(&[6], &b1[..6]), half(&[4], &b2[..4]));
    let mut out = Data::blank(AclType::F16, &[3, 4]);
    for precise in [0, 1] {
        let mut call =
            vec![("x", Arg::T(&mut a)), ("weight1", Arg::T(&mut first)), ("weight2", Arg::T(&mut second))];
        call.extend([
            ("bias1", Arg::T(&mut c1)),
            ("bias2", Arg::T(&mut c2)),
            ("activation", Arg::Text("swiglu")),
            ("innerPrecise", Arg::I(precise)),
        ]);
        call.extend([("tokensIndexFlag", Arg::B(false)), ("y", Arg::T(&mut out))]);
        let call = named("aclnnFFNV2", call);
        if precise == 0 {
            refused("aclnnFFNV2", call, &["activation: expected", "with innerPrecise 1, found \"a gate\""]);
        } else {
            run("aclnnFFNV2", call).unwrap();
        }
    }
    let gated = |inner: &[f64]| (0..3).map(|n| silu(inner[n]) * inner[3 + n]).collect::<Vec<f64>>();
    close(&out.values(), &(0..12).map(|i| value(i / 4, i % 4, 0, &gated)).collect::<Vec<_>>(), 4e-3, "gate");
}

#[test]
fn adapters_are_added_to_a_slice_of_the_columns() {
    let half = |dims: &[usize], values: &[f64]| Data::new(AclType::F16, dims, values).strided();
    let (y, x, wa, wb) =
        (varied(2 * 48, 1), counted(2 * 16, 2), counted(6 * 16 * 16, 3), counted(6 * 32 * 16, 4));
    let (mut base, mut a) = (half(&[2, 48], &y), half(&[2, 16], &x));
    let (mut down, mut up) = (half(&[3, 2, 16, 16], &wa), half(&[3, 2, 32, 16], &wb));
    let mut index = Data::new(AclType::I32, &[2], &[2.0, 0.0]);
    let mut out = Data::blank(AclType::F16, &[2, 48]);
    let mut call = vec![
        ("y", Arg::T(&mut base)),
        ("x", Arg::T(&mut a)),
        ("weightB", Arg::T(&mut up)),
        ("indices", Arg::T(&mut index)),
    ];
    call.extend([
        ("weightAOptional", Arg::T(&mut down)),
        ("layerIdx", Arg::I(1)),
        ("scale", Arg::F(0.015_625)),
    ]);
    call.extend([("yOffset", Arg::I(8)), ("ySliceSize", Arg::I(32)), ("out", Arg::T(&mut out))]);
    run("aclnnAddLora", named("aclnnAddLora", call)).unwrap();
    let mut expected = y;
    for (row, adapter) in [2usize, 0].into_iter().enumerate() {
        let at = adapter * 2 + 1;
        for h in 0..32 {
            for r in 0..16 {
                let inner: f64 = (0..16).map(|i| wa[at * 256 + r * 16 + i] * x[row * 16 + i]).sum();
                expected[row * 48 + 8 + h] += wb[at * 512 + h * 16 + r] * inner / 64.0;
            }
        }
    }
    close(&out.values(), &expected, 4e-3, "adapter");
}

#[test]
fn rotated_matrices_are_quantised_to_four_bits() {
    let (x, p1, p2) = (varied(2 * 3 * 8, 1), varied(9, 2), varied(64, 3));
    let half = |dims: &[usize], values: &[f64]| Data::new(AclType::F16, dims, values).strided();
    let (mut a, mut left, mut right) = (half(&[2, 3, 8], &x), half(&[3, 3], &p1), half(&[8, 8], &p2));
    let (mut out, mut scales) = (Data::blank(AclType::I32, &[2, 3, 1]), Data::blank(AclType::F32, &[2]));
    let mut call =
        vec![("x", Arg::T(&mut a)), ("kroneckerP1", Arg::T(&mut left)), ("kroneckerP2", Arg::T(&mut right))];
    call.extend([("clipRatio", Arg::F(0.5)), ("out", Arg::T(&mut out)), ("quantScale", Arg::T(&mut scales))]);
    run("aclnnFlatQuant", named("aclnnFlatQuant", call)).unwrap();
    for k in 0..2 {
        // All numbers are multiples of 1/16 that FLOAT16 holds.
        let value = |m: usize, n: usize| {
            (0..3)
                .flat_map(|i| (0..8).map(move |j| (i, j)))
                .map(|(i, j)| p1[m * 3 + i] * x[k * 24 + i * 8 + j] * p2[j * 8 + n])
                .sum::<f64>()
        };
        let most = (0..24).map(|at| value(at / 8, at % 8).abs()).fold(0.0, f64::max);
        let scale = most * 0.5 / 7.0;
        close(&[scales.values()[k]], &[scale], 1e-6, "scale");
        for m in 0..3 {
            let word = out.values()[k * 3 + m] as i32;
            for n in 0..8 {
                let level = f64::from(word << (28 - 4 * n) >> 28);
                let exact = (value(m, n) / scale).clamp(-8.0, 7.0);
                assert!((level - exact).abs() <= 0.501, "{k} {m} {n}: {level} for {exact}");
            }
        }
    }
}
