//! Operators of public samples against their definitions.

use super::*;

pub(super) fn single(dims: &[usize], values: &[f64]) -> Data {
    Data::new(AclType::F32, dims, values).strided()
}

/// Runs a function with one input and an output of these dims.
fn mapped<'a>(
    name: &str,
    from: &'a str,
    x: &'a mut Data,
    mut call: Vec<(&'a str, Arg<'a>)>,
    to: &'a str,
    dims: &[usize],
) -> Vec<f64> {
    let mut result = Data::blank(x.dtype, dims).strided();
    call.push((from, Arg::T(x)));
    let call = call.into_iter().chain([(to, Arg::T(&mut result))]).collect();
    run(name, named(name, call)).unwrap();
    result.values()
}

#[test]
fn circular_borders_repeat_the_other_end() {
    let x = varied(2 * 3 * 4, 1);
    let (pad, dims, wide) = ([2i64, 1, 1, 3], [2usize, 3, 4], [2usize, 7, 7]);
    let mut a = single(&dims, &x);
    let found =
        mapped("aclnnCircularPad2d", "self", &mut a, vec![("padding", Arg::Ints(&pad))], "out", &wide);
    let source = |at: usize| {
        let (plane, row, column) = (at / 49, at / 7 % 7, at % 7);
        plane * 12 + (row + 3 - 1) % 3 * 4 + (column + 4 - 2) % 4
    };
    assert_eq!(found, (0..98).map(|at| x[source(at)]).collect::<Vec<_>>());
    let grad = varied(98, 3);
    let mut sums = vec![0.0; 24];
    (0..98).for_each(|at| sums[source(at)] += grad[at]);
    let (mut g, mut out) = (single(&wide, &grad), Data::blank(AclType::F32, &dims));
    let call = vec![
        ("gradOutput", Arg::T(&mut g)),
        ("self", Arg::T(&mut a)),
        ("padding", Arg::Ints(&pad)),
        ("gradInput", Arg::T(&mut out)),
    ];
    run("aclnnCircularPad2dBackward", named("aclnnCircularPad2dBackward", call)).unwrap();
    close(&out.values(), &sums, 1e-6, "gradient");
    let (mut g, mut a) = (single(&[1, 2, 7, 7], &grad), single(&[1, 2, 3, 4], &x));
    let mut out = Data::blank(AclType::F32, &[1, 2, 3, 4]);
    let call = vec![
        ("gradOutput", Arg::T(&mut g)),
        ("self", Arg::T(&mut a)),
        ("padding", Arg::Ints(&[2, 1, 1, 3, 0, 0])),
        ("gradInput", Arg::T(&mut out)),
    ];
    run("aclnnCircularPad3dBackward", named("aclnnCircularPad3dBackward", call)).unwrap();
    close(&out.values(), &sums, 1e-6, "three dims");
}

#[test]
fn diagonals_slices_and_two_dims() {
    let x = counted(6, 1);
    let whole = |dims: &[usize]| Data::new(AclType::I32, dims, &x).strided();
    for offset in [-1i64, 0, 2] {
        let side = 6 + offset.unsigned_abs() as usize;
        let found = mapped(
            "aclnnDiagFlat",
            "self",
            &mut whole(&[2, 3]),
            vec![("diagonal", Arg::I(offset))],
            "out",
            &[side, side],
        );
        for (at, found) in found.iter().enumerate() {
            let (row, column) = (at as i64 / side as i64, at as i64 % side as i64);
            let place = if offset < 0 { column } else { row };
            assert_eq!(*found, if column - row == offset { x[place as usize] } else { 0.0 }, "{offset}");
        }
        let same = mapped(
            "aclnnDiag",
            "self",
            &mut whole(&[6]),
            vec![("diagonal", Arg::I(offset))],
            "out",
            &[side, side],
        );
        assert_eq!(same, found);
    }
    let taken = mapped("aclnnDiag", "self", &mut whole(&[2, 3]), vec![("diagonal", Arg::I(1))], "out", &[2]);
    assert_eq!(taken, [x[1], x[5]]);
    let flat =
        mapped("aclnnFlatten", "self", &mut whole(&[1, 2, 3]), vec![("axis", Arg::I(-1))], "out", &[2, 3]);
    assert_eq!(flat, x);
    let matrix = counted(5 * 6, 2);
    let steps = [
        ("starts", Arg::Ints(&[1, -1])),
        ("ends", Arg::Ints(&[99, 6])),
        ("axes", Arg::Ints(&[0, 1])),
        ("steps", Arg::Ints(&[2, 1])),
    ];
    let mut data = Data::new(AclType::I32, &[5, 6], &matrix).strided();
    let found = mapped("aclnnSliceV2", "self", &mut data, Vec::from(steps), "out", &[2, 1]);
    assert_eq!(found, [matrix[11], matrix[23]]);
    let mut value = Data::new(AclType::I32, &[2, 1], &[90.0, 91.0]).strided();
    let call = vec![
        ("varRef", Arg::T(&mut data)),
        ("inputValue", Arg::T(&mut value)),
        ("begin", Arg::Ints(&[1, -1])),
        ("end", Arg::Ints(&[99, 6])),
        ("strides", Arg::Ints(&[2, 1])),
    ];
    run("aclnnStridedSliceAssignV2", named("aclnnStridedSliceAssignV2", call)).unwrap();
    let mut expected = matrix;
    (expected[11], expected[23]) = (90.0, 91.0);
    assert_eq!(data.values(), expected);
}

#[test]
fn reductions_of_onnx() {
    let x: Vec<f64> = varied(2 * 3 * 4, 2).iter().map(|x| x.abs() + 0.25).collect();
    let row = |at: usize| (0..3).map(move |i| at / 4 * 12 + i * 4 + at % 4);
    let sum = |at: usize| row(at).map(|i| x[i]).sum::<f64>();
    let most = |at: usize| row(at).map(|i| x[i]).fold(f64::NEG_INFINITY, f64::max);
    let each = |of: &dyn Fn(usize) -> f64| (0..8).map(of).collect::<Vec<_>>();
    let dims = |name| {
        vec![(name, Arg::Ints(&[1])), (if name == "dim" { "keepDim" } else { "keepDims" }, Arg::B(true))]
    };
    for (name, input, over, noop, out, expected) in [
        ("aclnnMaxV2", "self", "dims", "noopWithEmptyDims", "out", each(&most)),
        ("aclnnMeanV2", "self", "dim", "noopWithEmptyAxes", "out", each(&|at| sum(at) / 3.0)),
        ("aclnnReduceLogSum", "data", "axes", "noopWithEmptyAxes", "reduce", each(&|at| sum(at).ln())),
    ] {
        let mut options = dims(over);
        options.push((noop, Arg::B(false)));
        let found = mapped(name, input, &mut single(&[2, 3, 4], &x), options, out, &[2, 1, 4]);
        close(&found, &expected, 1e-6, name);
        let keep = if over == "dim" { "keepDim" } else { "keepDims" };
        let options = vec![(over, Arg::Ints(&[])), (noop, Arg::B(true)), (keep, Arg::B(false))];
        let same = mapped(name, input, &mut single(&[2, 3, 4], &x), options, out, &[2, 3, 4]);
        let plain: Vec<f64> = if out == "reduce" { x.iter().map(|x| x.ln()).collect() } else { x.clone() };
        close(&same, &plain, 1e-6, name);
    }
    for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
        let options =
            vec![("dim", Arg::I(1)), ("exclusive", Arg::B(exclusive)), ("reverse", Arg::B(reverse))];
        let found = mapped("aclnnCumsumV2", "self", &mut single(&[2, 3, 4], &x), options, "out", &[2, 3, 4]);
        for (at, found) in found.into_iter().enumerate() {
            let (block, place, column) = (at / 12, at / 4 % 3, at % 4);
            let counts = |other: usize| {
                let is_past = if reverse { other > place } else { other < place };
                is_past || !exclusive && other == place
            };
            let total: f64 = (0..3).filter(|i| counts(*i)).map(|i| x[block * 12 + i * 4 + column]).sum();
            close(&[found], &[total], 1e-6, "sums");
        }
    }
    let mut a = single(&[2, 3, 4], &x);
    let call = vec![("input", Arg::T(&mut a)), ("dim", whole(-2))];
    run("aclnnInplaceCumprod", named("aclnnInplaceCumprod", call)).unwrap();
    let product = |at: usize| (0..=at / 4 % 3).map(|i| x[at / 12 * 12 + i * 4 + at % 4]).product();
    close(&a.values(), &(0..24).map(product).collect::<Vec<_>>(), 1e-6, "products");
    for (name, is_mean) in [("aclnnGlobalAveragePool", true), ("aclnnGlobalMaxPool", false)] {
        let found = mapped(name, "self", &mut single(&[1, 2, 3, 4], &x), Vec::new(), "out", &[1, 2, 1, 1]);
        let of = |plane: &[f64]| {
            if is_mean { plane.iter().sum::<f64>() / 12.0 } else { plane.iter().copied().fold(0.0, f64::max) }
        };
        close(&found, &x.chunks(12).map(of).collect::<Vec<_>>(), 1e-6, name);
    }
    for (name, is_max) in [("aclnnMaxN", true), ("aclnnMinN", false)] {
        let (mut a, mut b, mut c) =
            (single(&[2, 3], &x[..6]), single(&[3], &x[6..9]), single(&[1], &[f64::NAN]));
        let mut out = Data::blank(AclType::F32, &[2, 3]);
        let call = vec![("tensors", Arg::List(vec![&mut a, &mut b])), ("out", Arg::T(&mut out))];
        run(name, named(name, call)).unwrap();
        let of = |i: usize| if is_max { x[i].max(x[6 + i % 3]) } else { x[i].min(x[6 + i % 3]) };
        assert_eq!(out.values(), (0..6).map(of).collect::<Vec<_>>(), "{name}");
        let call = vec![("tensors", Arg::List(vec![&mut a, &mut c])), ("out", Arg::T(&mut out))];
        run(name, named(name, call)).unwrap();
        assert!(out.values().iter().all(|x| x.is_nan()), "{name}");
    }
}

#[test]
fn gradients_of_biases_points_and_dropout() {
    let grad = varied(5 * 2, 1);
    let (mut g, mut ends) = (single(&[5, 2], &grad), Data::new(AclType::I32, &[3], &[2.0, 2.0, 5.0]));
    let mut out = Data::blank(AclType::F32, &[3, 2]);
    let call =
        vec![("gradY", Arg::T(&mut g)), ("groupIdxOptional", Arg::T(&mut ends)), ("out", Arg::T(&mut out))];
    run("aclnnGroupedBiasAddGrad", named("aclnnGroupedBiasAddGrad", call)).unwrap();
    let sum = |rows: std::ops::Range<usize>, i: usize| rows.map(|row| grad[row * 2 + i]).sum::<f64>();
    let expected = [sum(0..2, 0), sum(0..2, 1), 0.0, 0.0, sum(2..5, 0), sum(2..5, 1)];
    close(&out.values(), &expected, 1e-6, "biases");

    let (points, others) = (varied(6, 2), varied(6, 5));
    let (first, second) = ([2usize, 0, 0], [1usize, 1, 2]);
    let slopes = [varied(3, 7), varied(3, 8)];
    let loss = |a: &[f64], b: &[f64]| {
        let far = |a: &[f64], i: usize, b: &[f64], j: usize| {
            (0..2).map(|d| (a[i * 2 + d] - b[j * 2 + d]).powi(2)).sum::<f64>()
        };
        (0..3)
            .map(|i| slopes[0][i] * far(a, i, b, first[i]) + slopes[1][i] * far(b, i, a, second[i]))
            .sum::<f64>()
    };
    let (mut a, mut b) = (single(&[1, 3, 2], &points), single(&[1, 3, 2], &others));
    let [mut ia, mut ib] =
        [first, second].map(|nearest| Data::new(AclType::I32, &[1, 3], &nearest.map(|i| i as f64)));
    let [mut ga, mut gb] = slopes.each_ref().map(|slopes| single(&[1, 3], slopes));
    let (mut da, mut db) = (Data::blank(AclType::F32, &[1, 3, 2]), Data::blank(AclType::F32, &[1, 3, 2]));
    let mut call = vec![
        ("xyz1", Arg::T(&mut a)),
        ("xyz2", Arg::T(&mut b)),
        ("idx1", Arg::T(&mut ia)),
        ("idx2", Arg::T(&mut ib)),
    ];
    call.extend([("gradDist1", Arg::T(&mut ga)), ("gradDist2", Arg::T(&mut gb))]);
    call.extend([("gradXyz1", Arg::T(&mut da)), ("gradXyz2", Arg::T(&mut db))]);
    run("aclnnChamferDistanceBackward", named("aclnnChamferDistanceBackward", call)).unwrap();
    let difference = |which: usize, i: usize| {
        let at = |step: f64| {
            let (mut a, mut b) = (points.clone(), others.clone());
            [&mut a, &mut b][which][i] += step;
            loss(&a, &b)
        };
        (at(1e-4) - at(-1e-4)) / 2e-4
    };
    close(&da.values(), &(0..6).map(|i| difference(0, i)).collect::<Vec<_>>(), 1e-5, "points");
    close(&db.values(), &(0..6).map(|i| difference(1, i)).collect::<Vec<_>>(), 1e-5, "others");

    let mut bits = Data::new(AclType::U8, &[16], &[&[0b1010_0110u8 as f64][..], &[0.0; 15]].concat());
    let options = vec![("mask", Arg::T(&mut bits)), ("scale", Arg::F(2.0))];
    let x = varied(8, 4);
    let found =
        mapped("aclnnDropoutBackward", "gradOutput", &mut single(&[2, 4], &x), options, "out", &[2, 4]);
    let kept = [1, 2, 5, 7];
    assert_eq!(found, (0..8).map(|i| if kept.contains(&i) { 2.0 * x[i] } else { 0.0 }).collect::<Vec<_>>());

    let places = [3.0, 0.0, 5.0];
    let (mut index, mut x) = (Data::new(AclType::I64, &[1, 1, 3], &places), single(&[1, 1, 3], &[0.0; 3]));
    let up = varied(6, 9);
    let (mut g, mut out) = (single(&[1, 2, 3], &up), Data::blank(AclType::F32, &[1, 1, 3]));
    let mut call =
        vec![("gradOutput", Arg::T(&mut g)), ("self", Arg::T(&mut x)), ("indices", Arg::T(&mut index))];
    call.extend([("outputSize", Arg::Ints(&[2, 3])), ("out", Arg::T(&mut out))]);
    run("aclnnMaxUnpool2dBackward", named("aclnnMaxUnpool2dBackward", call)).unwrap();
    assert_eq!(out.values(), [up[3], up[0], up[5]]);
    let (mut index, mut x) =
        (Data::new(AclType::I64, &[1, 1, 1, 3], &places), single(&[1, 1, 1, 3], &[0.0; 3]));
    let (mut g, mut out) = (single(&[1, 1, 2, 3], &up), Data::blank(AclType::F32, &[1, 1, 1, 3]));
    let mut call =
        vec![("gradOutput", Arg::T(&mut g)), ("self", Arg::T(&mut x)), ("indices", Arg::T(&mut index))];
    call.extend([("outputSize", Arg::Ints(&[1, 2, 3])), ("out", Arg::T(&mut out))]);
    call.extend([("stride", Arg::Ints(&[1, 1, 1])), ("padding", Arg::Ints(&[0, 0, 0]))]);
    run("aclnnMaxUnpool3dBackward", named("aclnnMaxUnpool3dBackward", call)).unwrap();
    assert_eq!(out.values(), [up[3], up[0], up[5]]);
}

#[test]
fn functions_of_one_value_and_gates() {
    // Values of tables.
    let gamma = [
        (1.0, 0.0),
        (0.5, 0.572_364_942_924_700_1),
        (4.5, 2.453_736_570_842_442),
        (-0.5, 1.265_512_123_484_645_4),
        (0.0, f64::INFINITY),
    ];
    let psi = [
        (1.0, -0.577_215_664_901_532_9),
        (0.5, -1.963_510_026_021_423_5),
        (4.5, 1.388_870_926_358_957),
        (-0.5, 0.036_489_973_978_576_52),
        (0.0, f64::NEG_INFINITY),
        (-2.0, f64::NAN),
    ];
    for (name, table) in [("aclnnLgamma", &gamma[..]), ("aclnnDigamma", &psi)] {
        let x: Vec<f64> = table.iter().map(|(x, _)| *x).collect();
        let found = mapped(name, "self", &mut single(&[x.len()], &x), Vec::new(), "out", &[x.len()]);
        close(&found, &table.iter().map(|(_, y)| *y).collect::<Vec<_>>(), 1e-6, name);
    }
    let x = varied(8, 3);
    let mut limit = single(&[1], &[0.5]);
    let options = vec![("threshold", Arg::T(&mut limit))];
    let found = mapped("aclnnFatreluMul", "input", &mut single(&[2, 4], &x), options, "out", &[2, 2]);
    let gate = |i: usize| {
        let at = i / 2 * 4 + i % 2;
        if x[at] > 0.5 { x[at] * x[at + 2] } else { 0.0 }
    };
    close(&found, &(0..4).map(gate).collect::<Vec<_>>(), 1e-6, "gate");
    let mut matrix = single(&[2, 2, 2], &[3.0, 1.0, 1.0, 2.0, 0.0, 1.0, 1.0, 0.0]);
    let logs = mapped("aclnnLogdet", "self", &mut matrix, Vec::new(), "out", &[2]);
    close(&logs, &[5f64.ln(), f64::NAN], 1e-6, "determinants");
}

#[test]
fn other_names_have_the_bits_of_the_first() {
    let x = varied(24, 1);
    let mut results = Vec::new();
    for (name, left) in [("aclnnGeGlu", None), ("aclnnGeGluV3", Some(false))] {
        let mut gelu = Data::blank(AclType::F32, &[3, 4]);
        let mut options =
            vec![("dim", Arg::I(-1)), ("approximate", Arg::I(1)), ("outGelu", Arg::T(&mut gelu))];
        options.extend(left.map(|left| ("activateLeft", Arg::B(left))));
        let out = mapped(name, "self", &mut single(&[3, 8], &x), options, "out", &[3, 4]);
        let (mut g, mut a) = (single(&[3, 4], &varied(12, 2)), single(&[3, 8], &x));
        let mut options = vec![("dim", Arg::I(-1)), ("approximate", Arg::I(1)), ("gelu", Arg::T(&mut gelu))];
        options.push(("gradOutput", Arg::T(&mut g)));
        options.extend(left.map(|left| ("activateLeft", Arg::B(left))));
        let name = format!("{name}Backward");
        let grad = mapped(&name, "self", &mut a, options, "gradInput", &[3, 8]);
        results.push((out, grad));
    }
    assert_eq!(results[0], results[1]);
    let mut norms = Vec::new();
    for (name, silu) in [("aclnnGroupNormSilu", None), ("aclnnGroupNormSiluV2", Some(true))] {
        let (mut mean, mut rstd) = (Data::blank(AclType::F32, &[2, 2]), Data::blank(AclType::F32, &[2, 2]));
        let mut options = vec![("group", Arg::I(2)), ("eps", Arg::F(1e-5)), ("meanOut", Arg::T(&mut mean))];
        options.push(("rstdOut", Arg::T(&mut rstd)));
        options.extend(silu.map(|silu| ("activateSilu", Arg::B(silu))));
        let out = mapped(name, "self", &mut single(&[2, 4, 3], &x), options, "out", &[2, 4, 3]);
        norms.push((out, mean.values(), rstd.values()));
    }
    assert_eq!(norms[0], norms[1]);
    let mut layers = Vec::new();
    for (name, mode) in [("aclnnLayerNorm", None), ("aclnnLayerNormWithImplMode", Some(1))] {
        let mut options = vec![("normalizedShape", Arg::Ints(&[4])), ("eps", Arg::F(1e-5))];
        options.extend(mode.map(|mode| ("implMode", Arg::I(mode))));
        layers.push(mapped(name, "input", &mut single(&[6, 4], &x), options, "out", &[6, 4]));
    }
    assert_eq!(layers[0], layers[1]);
    for is_some in [true, false] {
        let mut factors = Vec::new();
        for (name, mode) in [("aclnnLinalgQr", None), ("aclnnQr", Some(is_some))] {
            let k = if is_some { 3 } else { 4 };
            let mut q = Data::blank(AclType::F32, &[4, k]);
            let mut options = vec![("Q", Arg::T(&mut q))];
            options.push(mode.map_or(("mode", Arg::I(i64::from(!is_some))), |some| ("some", Arg::B(some))));
            let r = mapped(name, "self", &mut single(&[4, 3], &x[..12]), options, "R", &[k, 3]);
            factors.push((q.values(), r));
        }
        assert_eq!(factors[0], factors[1]);
    }
}

#[test]
fn instances_are_normed_by_channel() {
    let (x, gamma, beta) = (varied(2 * 3 * 4, 1), varied(3, 2), varied(3, 3));
    for format in ["NCHW", "NHWC"] {
        let is_last = format == "NHWC";
        let dims = if is_last { [2, 2, 2, 3] } else { [2, 3, 2, 2] };
        let ones = if is_last { [2, 1, 1, 3] } else { [2, 3, 1, 1] };
        let (mut a, mut g, mut b) = (single(&dims, &x), single(&[3], &gamma), single(&[3], &beta));
        let (mut y, mut mean, mut variance) = (
            Data::blank(AclType::F32, &dims),
            Data::blank(AclType::F32, &ones),
            Data::blank(AclType::F32, &ones),
        );
        let mut call = vec![("x", Arg::T(&mut a)), ("gamma", Arg::T(&mut g)), ("beta", Arg::T(&mut b))];
        call.extend([("dataFormat", Arg::Text(format)), ("eps", Arg::F(1e-3)), ("y", Arg::T(&mut y))]);
        call.extend([("mean", Arg::T(&mut mean)), ("variance", Arg::T(&mut variance))]);
        run("aclnnInstanceNorm", named("aclnnInstanceNorm", call)).unwrap();
        for group in 0..6 {
            let (sample, channel) = (group / 3, group % 3);
            let at = |i: usize| sample * 12 + if is_last { i * 3 + channel } else { channel * 4 + i };
            let average = (0..4).map(|i| x[at(i)]).sum::<f64>() / 4.0;
            let spread = (0..4).map(|i| (x[at(i)] - average).powi(2)).sum::<f64>() / 4.0;
            for i in 0..4 {
                let expected = (x[at(i)] - average) / (spread + 1e-3).sqrt() * gamma[channel] + beta[channel];
                close(&[y.values()[at(i)]], &[expected], 1e-5, format);
            }
            close(&[mean.values()[group], variance.values()[group]], &[average, spread], 1e-5, format);
        }
    }
}

#[test]
fn products_by_equation() {
    let (a, b) = (varied(2 * 3 * 4, 1), varied(2 * 4 * 5, 2));
    let (mut x, mut y) = (single(&[2, 3, 4], &a), single(&[2, 4, 5], &b));
    let mut out = Data::blank(AclType::F32, &[5, 2, 3]);
    let call = vec![
        ("tensors", Arg::List(vec![&mut x, &mut y])),
        ("equation", Arg::Text("bik, bkj -> jbi")),
        ("output", Arg::T(&mut out)),
    ];
    run("aclnnEinsum", named("aclnnEinsum", call)).unwrap();
    let term = |at: usize| {
        let (j, n, i) = (at / 6, at / 3 % 2, at % 3);
        (0..4).map(|k| a[n * 12 + i * 4 + k] * b[n * 20 + k * 5 + j]).sum::<f64>()
    };
    close(&out.values(), &(0..30).map(term).collect::<Vec<_>>(), 1e-5, "product");
    let mut sums = Data::blank(AclType::F32, &[3]);
    let call = vec![
        ("tensors", Arg::List(vec![&mut x])),
        ("equation", Arg::Text("bik->i")),
        ("output", Arg::T(&mut sums)),
    ];
    run("aclnnEinsum", named("aclnnEinsum", call)).unwrap();
    let sum =
        |i: usize| (0..2).flat_map(|n| (0..4).map(move |k| n * 12 + i * 4 + k)).map(|at| a[at]).sum::<f64>();
    close(&sums.values(), &[sum(0), sum(1), sum(2)], 1e-5, "sum");
    let call = vec![
        ("tensors", Arg::List(vec![&mut x])),
        ("equation", Arg::Text("bii->b")),
        ("output", Arg::T(&mut sums)),
    ];
    refused("aclnnEinsum", named("aclnnEinsum", call), &["equation: expected letters"]);
}

#[test]
fn depthwise_convolutions_are_ordinary_ones_in_groups() {
    let (a, weight) = (varied(2 * 3 * 4, 1), varied(4 * 3 * 2, 5));
    let mut results = Vec::new();
    for name in ["aclnnConvolution", "aclnnConvDepthwise2d"] {
        let (mut x, mut w) = (single(&[1, 2, 3, 4], &a), single(&[4, 1, 3, 2], &weight));
        let mut bias = single(&[4], &varied(4, 3));
        let mut out = Data::blank(AclType::F32, &[1, 4, 2, 3]);
        let mut call = vec![("weight", Arg::T(&mut w)), ("bias", Arg::T(&mut bias))];
        call.extend([
            ("stride", Arg::Ints(&[2, 1])),
            ("padding", Arg::Ints(&[1, 0])),
            ("dilation", Arg::Ints(&[1, 1])),
        ]);
        if name == "aclnnConvolution" {
            call.extend([("input", Arg::T(&mut x)), ("output", Arg::T(&mut out)), ("groups", Arg::I(2))]);
            call.extend([("transposed", Arg::B(false)), ("outputPadding", Arg::Ints(&[0, 0]))]);
        } else {
            call.extend([
                ("self", Arg::T(&mut x)),
                ("out", Arg::T(&mut out)),
                ("kernelSize", Arg::Ints(&[3, 2])),
            ]);
        }
        run(name, named(name, call)).unwrap();
        results.push(out.values());
    }
    close(&results[1], &results[0], 1e-5, "depthwise");
}

#[test]
fn convolutions_over_time_and_their_gradients() {
    let (x, w, bias, up) = (varied(4 * 2 * 3, 1), varied(2 * 3 * 2, 2), varied(2, 3), varied(5 * 2 * 2, 4));
    let forward = |x: &[f64], w: &[f64], bias: &[f64]| {
        let value = |at: usize| {
            let (time, sample, output) = (at / 4, at / 2 % 2, at % 2);
            let mut sum = bias[output];
            for step in 0..2 {
                let Some(from) = (time + step).checked_sub(1).filter(|from| *from < 4) else { continue };
                sum += (0..3)
                    .map(|c| x[(from * 2 + sample) * 3 + c] * w[(step * 3 + c) * 2 + output])
                    .sum::<f64>();
            }
            sum
        };
        (0..20).map(value).collect::<Vec<f64>>()
    };
    let (mut xs, mut ws, mut bs) = (single(&[4, 2, 3], &x), single(&[2, 3, 2], &w), single(&[2], &bias));
    let mut out = Data::blank(AclType::F32, &[5, 2, 2]);
    let mut call = vec![("self", Arg::T(&mut xs)), ("weight", Arg::T(&mut ws)), ("bias", Arg::T(&mut bs))];
    call.extend([("pad", Arg::I(1)), ("output", Arg::T(&mut out))]);
    run("aclnnConvTbc", named("aclnnConvTbc", call)).unwrap();
    close(&out.values(), &forward(&x, &w, &bias), 1e-5, "time-major");
    let mut g = single(&[5, 2, 2], &up);
    let mut grads = [
        Data::blank(AclType::F32, &[4, 2, 3]),
        Data::blank(AclType::F32, &[2, 3, 2]),
        Data::blank(AclType::F32, &[2]),
    ];
    let [dx, dw, db] = &mut grads;
    let mut call = vec![
        ("self", Arg::T(&mut g)),
        ("input", Arg::T(&mut xs)),
        ("weight", Arg::T(&mut ws)),
        ("bias", Arg::T(&mut bs)),
    ];
    call.extend([
        ("pad", Arg::I(1)),
        ("gradInput", Arg::T(dx)),
        ("gradWeight", Arg::T(dw)),
        ("gradBias", Arg::T(db)),
    ]);
    run("aclnnConvTbcBackward", named("aclnnConvTbcBackward", call)).unwrap();
    let values = [x, w, bias];
    for (which, grad) in grads.iter().enumerate() {
        let slope = |i: usize| {
            let at = |step: f64| {
                let mut moved = values.clone();
                moved[which][i] += step;
                forward(&moved[0], &moved[1], &moved[2]).iter().zip(&up).map(|(y, up)| y * up).sum::<f64>()
            };
            (at(0.5) - at(-0.5)) / 1.0
        };
        close(&grad.values(), &(0..values[which].len()).map(slope).collect::<Vec<_>>(), 1e-5, "gradient");
    }
}
