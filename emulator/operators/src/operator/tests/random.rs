//! Random fills and dropout.

use super::*;

fn filled(name: &str, dtype: AclType, before: Vec<Arg<'_>>, seed: i64, offset: i64) -> Vec<f64> {
    let mut out = Data::blank(dtype, &[3, 500]).strided();
    let mut arguments = vec![Arg::T(&mut out)];
    arguments.extend(before);
    arguments.extend([Arg::I(seed), Arg::I(offset)]);
    run(name, arguments).unwrap();
    out.values()
}

#[test]
fn fills_stay_in_their_range_and_follow_seed_and_offset() {
    for dtype in [AclType::F32, AclType::F16, AclType::BF16, AclType::F64] {
        let uniform = |seed, offset| {
            filled("aclnnInplaceUniform", dtype, vec![Arg::F(-2.0), Arg::F(3.0)], seed, offset)
        };
        let values = uniform(5, 8);
        assert!(values.iter().all(|value| (-2.0..3.0).contains(value)), "{dtype}");
        assert!(
            values.iter().any(|value| *value < -1.8) && values.iter().any(|value| *value > 2.8),
            "{dtype}"
        );
        assert_eq!(values, uniform(5, 8), "{dtype}");
        assert!(values != uniform(6, 8) && values != uniform(5, 9), "{dtype}");
        let values = filled("aclnnInplaceNormal", dtype, vec![Arg::F(10.0), Arg::F(2.0)], 5, 8);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        // Six standard errors of a mean of 1500 numbers, plus rounding near 10.
        assert!((mean - 10.0).abs() < 6.0 * 2.0 / 1500f64.sqrt() + 10.0 * precision(dtype), "{dtype} {mean}");
    }
    let values = filled("aclnnInplaceRandom", AclType::I32, vec![Arg::I(-3), Arg::I(4)], 1, 0);
    assert!((-3..4).all(|wanted| values.contains(&f64::from(wanted))));
    assert!(values.iter().all(|value| (-3.0..4.0).contains(value)));
    for (probability, ones) in [(0.0, 0), (1.0, 1500)] {
        let values = filled("aclnnInplaceBernoulli", AclType::F32, vec![real(probability)], 1, 0);
        assert_eq!(values.iter().filter(|value| **value == 1.0).count(), ones);
    }
}

fn chosen(dtype: AclType, is_replaced: bool, draws: usize, seed: i64) -> Vec<f64> {
    const ROWS: usize = 4000;
    let mut weights = Data::new(dtype, &[ROWS, 4], &[1.0, 2.0, 0.0, 5.0].repeat(ROWS)).strided();
    let mut out = Data::blank(AclType::I64, &[ROWS, draws]).strided();
    let numbers = [Arg::I(draws as i64), Arg::B(is_replaced), Arg::I(seed), Arg::I(4)];
    let head = [Arg::T(&mut weights)].into_iter().chain(numbers);
    run("aclnnMultinomial", head.chain([Arg::T(&mut out)]).collect()).unwrap();
    out.values()
}

/// Allows six standard deviations around the expectation.
fn likely(found: usize, of: usize, probability: f64, what: &str) {
    let expected = of as f64 * probability;
    let bound = 6.0 * (expected * (1.0 - probability)).sqrt();
    assert!((found as f64 - expected).abs() <= bound, "{what}: {found} of {of}, expected {expected}");
}

#[test]
fn classes_are_drawn_as_their_weights_say() {
    for dtype in [AclType::F32, AclType::F16, AclType::BF16, AclType::F64] {
        let drawn = chosen(dtype, true, 3, 9);
        assert_eq!(drawn, chosen(dtype, true, 3, 9), "{dtype}");
        assert_ne!(drawn, chosen(dtype, true, 3, 10), "{dtype}");
        for (class, probability) in [(0.0, 0.125), (1.0, 0.25), (2.0, 0.0), (3.0, 0.625)] {
            likely(drawn.iter().filter(|each| **each == class).count(), drawn.len(), probability, "put back");
        }
        let pairs = chosen(dtype, false, 2, 9);
        for (first, second, probability) in [
            (0.0, 1.0, 0.125 * 2.0 / 7.0),
            (0.0, 3.0, 0.125 * 5.0 / 7.0),
            (1.0, 0.0, 0.25 / 6.0),
            (1.0, 3.0, 0.25 * 5.0 / 6.0),
            (3.0, 0.0, 0.625 / 3.0),
            (3.0, 1.0, 0.625 * 2.0 / 3.0),
            (1.0, 1.0, 0.0),
        ] {
            let found = pairs.chunks(2).filter(|pair| pair[0] == first && pair[1] == second).count();
            likely(found, pairs.len() / 2, probability, "without replacement");
        }
    }
    let mut weights = Data::new(AclType::F32, &[2, 3], &[1.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
    let mut out = Data::blank(AclType::I64, &[2, 2]);
    fn call<'a>(weights: &'a mut Data, out: &'a mut Data, draws: i64, replaced: bool) -> Vec<Arg<'a>> {
        vec![Arg::T(weights), Arg::I(draws), Arg::B(replaced), Arg::I(0), Arg::I(0), Arg::T(out)]
    }
    let few = "self: row 0 has 1 weights above 0 for 2 classes";
    refused("aclnnMultinomial", call(&mut weights, &mut out, 2, false), &[few]);
    let mut negative = Data::new(AclType::F32, &[2, 3], &[1.0, 1.0, 0.0, 1.0, -1.0, 0.0]);
    refused("aclnnMultinomial", call(&mut negative, &mut out, 2, true), &["self: row 1 has the weight -1"]);
    refused(
        "aclnnMultinomial",
        call(&mut weights, &mut out, 4, false),
        &["numsamples: expected 1 to 3, found 4"],
    );
    refused("aclnnMultinomial", call(&mut weights, &mut out, 0, true), &["numsamples: expected 1 to"]);
}

#[test]
fn exponential_numbers_have_their_rate_and_bernoulli_numbers_their_probability() {
    for dtype in [AclType::F32, AclType::F16, AclType::BF16] {
        let values = filled("aclnnSimThreadExponential", dtype, vec![Arg::I(1500), Arg::F(0.5)], 5, 8);
        let (mean, largest) =
            (values.iter().sum::<f64>() / 1500.0, values.iter().copied().fold(0.0, f64::max));
        assert!(values.iter().all(|value| *value >= 0.0) && largest > 6.0, "{dtype} {largest}");
        // Six standard errors, with deviation 2, plus rounding.
        assert!((mean - 2.0).abs() < 6.0 * 2.0 / 1500f64.sqrt() + 2.0 * precision(dtype), "{dtype} {mean}");
        let below = values.iter().filter(|value| **value < 2.0 * std::f64::consts::LN_2).count();
        likely(below, 1500, 0.5, "below the median");
    }
    let mut out = Data::blank(AclType::F32, &[3]);
    fn call(out: &mut Data, count: i64, rate: f64) -> Vec<Arg<'_>> {
        vec![Arg::T(out), Arg::I(count), Arg::F(rate), Arg::I(0), Arg::I(0)]
    }
    refused("aclnnSimThreadExponential", call(&mut out, 4, 1.0), &["count: expected 3"]);
    refused("aclnnSimThreadExponential", call(&mut out, 3, 0.0), &["lambda: expected more than 0, found 0"]);
    for dtype in [AclType::F32, AclType::BF16, AclType::I8, AclType::I64, AclType::Bool] {
        let mut x = Data::blank(dtype, &[2, 700]).strided();
        let mut out = Data::blank(dtype, &[2, 700]).strided();
        let call = vec![Arg::T(&mut x), real(0.25), Arg::I(3), Arg::I(4), Arg::T(&mut out)];
        run("aclnnBernoulli", call).unwrap();
        let ones = out.values().into_iter().filter(|value| *value == 1.0).count();
        assert!(out.values().iter().all(|value| *value == 0.0 || *value == 1.0), "{dtype}");
        likely(ones, 1400, 0.25, dtype.name());
        let odd = vec![Arg::T(&mut x), real(0.25), Arg::I(3), Arg::I(2), Arg::T(&mut out)];
        refused("aclnnBernoulli", odd, &["offset: expected a multiple of 4, found 2"]);
        let counted = vec![Arg::T(&mut x), whole(1), Arg::I(3), Arg::I(4), Arg::T(&mut out)];
        refused("aclnnBernoulli", counted, &["prob: expected a floating point number, found INT64"]);
    }
}

#[test]
fn dropout_keeps_what_its_mask_says_and_scales_it() {
    for (probability, low, high) in [(0.0, 1000, 1000), (0.25, 680, 820), (1.0, 0, 0)] {
        let mut mask = Data::blank(AclType::U8, &[128]);
        let shape = [10, 100];
        let head = [Arg::Ints(&shape), Arg::F(probability), Arg::I(3), Arg::I(4)];
        run(
            "aclnnDropoutGenMaskV2",
            head.into_iter().chain([Arg::D(AclType::F32), Arg::T(&mut mask)]).collect(),
        )
        .unwrap();
        let mut again = Data::blank(AclType::U8, &[128]);
        let head = vec![Arg::Ints(&shape), Arg::F(probability), Arg::I(3), Arg::I(4), Arg::T(&mut again)];
        run("aclnnDropoutGenMask", head).unwrap();
        assert_eq!(mask.values(), again.values());
        let mut x = Data::new(AclType::F32, &[10, 100], &[1.5; 1000]).strided();
        let mut out = Data::blank(AclType::F32, &[10, 100]).strided();
        run(
            "aclnnDropoutDoMask",
            vec![Arg::T(&mut x), Arg::T(&mut mask), Arg::F(probability), Arg::T(&mut out)],
        )
        .unwrap();
        let bits = mask.values();
        let mut kept = 0;
        for (i, value) in out.values().into_iter().enumerate() {
            let bit = bits[i / 8] as usize >> (i % 8) & 1;
            kept += bit;
            let wanted = if bit == 1 { 1.5 / (1.0 - probability) } else { 0.0 };
            assert!((value - wanted).abs() < 1e-6, "element {i}: {value}");
        }
        // Six standard deviations of a count of 1000 around 750.
        assert!((low..=high).contains(&kept), "{probability}: {kept}");
    }
}

#[test]
fn what_no_distribution_has_is_refused() {
    let mut out = Data::blank(AclType::F32, &[2]);
    let uniform = vec![Arg::T(&mut out), Arg::F(2.0), Arg::F(1.0), Arg::I(0), Arg::I(0)];
    refused("aclnnInplaceUniform", uniform, &["from: expected at most to 1, found 2"]);
    let normal = vec![Arg::T(&mut out), Arg::F(0.0), Arg::F(-1.0), Arg::I(0), Arg::I(0)];
    refused("aclnnInplaceNormal", normal, &["std: expected at least 0, found -1"]);
    let whole = vec![Arg::T(&mut out), Arg::I(2), Arg::I(2), Arg::I(0), Arg::I(0)];
    refused("aclnnInplaceRandom", whole, &["from: expected less than to 2, found 2"]);
    let mut mask = Data::blank(AclType::U8, &[16]);
    let short = vec![Arg::Ints(&[200]), Arg::F(0.5), Arg::I(0), Arg::I(0), Arg::T(&mut mask)];
    refused("aclnnDropoutGenMask", short, &["out: expected shape [32]"]);
    let sure = vec![Arg::Ints(&[100]), Arg::F(1.5), Arg::I(0), Arg::I(0), Arg::T(&mut mask)];
    refused("aclnnDropoutGenMask", sure, &["prob: expected 0 to 1, found 1.5"]);
}

#[test]
fn numbers_from_tensors_of_seeds_are_those_of_the_seeds() {
    let one = |value: f64| Data::new(AclType::I64, &[1], &[value]);
    for (name, before) in [("Uniform", [Arg::F(-2.0), Arg::F(3.0)]), ("Normal", [Arg::F(1.0), Arg::F(2.0)])] {
        let numbers: Vec<Arg<'_>> =
            before.iter().map(|arg| if let Arg::F(x) = arg { Arg::F(*x) } else { Arg::I(0) }).collect();
        let given = filled(&format!("aclnnInplace{name}"), AclType::F32, before.into_iter().collect(), 5, 12);
        let (mut out, mut seed, mut offset) = (Data::blank(AclType::F32, &[3, 500]), one(5.0), one(8.0));
        let mut call = vec![Arg::T(&mut out)];
        call.extend(numbers);
        call.extend([Arg::T(&mut seed), Arg::T(&mut offset), Arg::I(4)]);
        run(&format!("aclnnInplace{name}Tensor"), call).unwrap();
        assert_eq!(out.values(), given, "{name}");
    }
    let (mut out, mut seed, mut offset) = (Data::blank(AclType::I64, &[2000]), one(1.0), one(0.0));
    let call =
        vec![Arg::T(&mut out), Arg::I(-3), Arg::I(4), Arg::T(&mut seed), Arg::T(&mut offset), Arg::I(0)];
    run("aclnnInplaceRandomTensor", call).unwrap();
    assert!((-3..4).all(|wanted| out.values().contains(&f64::from(wanted))));
    let drawn = |name: &str, seeds: Vec<Arg<'_>>| {
        let mut weights = Data::new(AclType::F32, &[500, 3], &[1.0, 0.0, 4.0].repeat(500));
        let mut out = Data::blank(AclType::I64, &[500, 2]);
        let mut call = vec![Arg::T(&mut weights), Arg::I(2), Arg::B(true)];
        call.extend(seeds);
        call.push(Arg::T(&mut out));
        run(name, call).unwrap();
        out.values()
    };
    let seeds = vec![Arg::T(&mut seed), Arg::T(&mut offset), Arg::I(4)];
    let of_tensors = drawn("aclnnMultinomialTensor", seeds);
    assert_eq!(of_tensors, drawn("aclnnMultinomial", vec![Arg::I(1), Arg::I(4)]));
    let mut mask = Data::blank(AclType::U8, &[32]);
    let mut call = vec![Arg::Ints(&[2, 100]), Arg::F(0.5), Arg::T(&mut seed), Arg::T(&mut offset), Arg::I(4)];
    call.extend([Arg::D(AclType::F32), Arg::T(&mut mask)]);
    run("aclnnDropoutGenMaskV2Tensor", call).unwrap();
    let mut given = Data::blank(AclType::U8, &[32]);
    let call = vec![
        Arg::Ints(&[2, 100]),
        Arg::F(0.5),
        Arg::I(1),
        Arg::I(4),
        Arg::D(AclType::F32),
        Arg::T(&mut given),
    ];
    run("aclnnDropoutGenMaskV2", call).unwrap();
    assert_eq!(mask.values(), given.values());
    let mut two = Data::new(AclType::I64, &[2], &[1.0, 2.0]);
    let call = vec![Arg::T(&mut out), Arg::I(0), Arg::I(4), Arg::T(&mut two), Arg::T(&mut offset), Arg::I(0)];
    refused("aclnnInplaceRandomTensor", call, &["seedTensor: expected shape [1]"]);
}

#[test]
fn normal_numbers_follow_their_tensors_and_permutations_are_complete() {
    const COUNT: usize = 3000;
    let (means, deviations) = ([-5.0, 20.0], [0.5, 3.0]);
    let mut mean = Data::new(AclType::F32, &[2, 1], &means);
    let mut deviation =
        Data::new(AclType::F32, &[2, COUNT], &[vec![0.5; COUNT], vec![3.0; COUNT]].concat()).strided();
    let mut out = Data::blank(AclType::F32, &[2, COUNT]).strided();
    let call = vec![Arg::T(&mut mean), Arg::T(&mut deviation), Arg::I(7), Arg::I(4), Arg::T(&mut out)];
    run("aclnnNormalTensorTensor", call).unwrap();
    let both = out.values();
    for (row, (mean, deviation)) in both.chunks(COUNT).zip(means.into_iter().zip(deviations)) {
        let found = row.iter().sum::<f64>() / COUNT as f64;
        let spread = (row.iter().map(|x| (x - found).powi(2)).sum::<f64>() / COUNT as f64).sqrt();
        // Six standard errors of the mean and of the deviation.
        let error = 6.0 * deviation / (COUNT as f64).sqrt();
        assert!((found - mean).abs() < error && (spread - deviation).abs() < error, "{found} {spread}");
    }
    let mut one = Data::blank(AclType::F32, &[COUNT]);
    run("aclnnNormalFloatFloat", vec![Arg::F(-5.0), Arg::F(0.5), Arg::I(7), Arg::I(4), Arg::T(&mut one)])
        .unwrap();
    assert_eq!(one.values(), both[..COUNT]);
    let mut flat = Data::new(AclType::F32, &[COUNT], &[0.5; COUNT]);
    run(
        "aclnnNormalFloatTensor",
        vec![Arg::F(-5.0), Arg::T(&mut flat), Arg::I(7), Arg::I(4), Arg::T(&mut one)],
    )
    .unwrap();
    assert_eq!(one.values(), both[..COUNT]);
    let mut level = Data::new(AclType::F32, &[COUNT], &[-5.0; COUNT]);
    let call = vec![Arg::T(&mut level), Arg::F(0.5), Arg::I(7), Arg::I(4), Arg::T(&mut one)];
    run("aclnnNormalTensorFloat", call).unwrap();
    assert_eq!(one.values(), both[..COUNT]);
    let mut below = Data::new(AclType::F32, &[COUNT], &[-0.5; COUNT]);
    let call = vec![Arg::F(0.0), Arg::T(&mut below), Arg::I(7), Arg::I(4), Arg::T(&mut one)];
    refused("aclnnNormalFloatTensor", call, &["std: expected at least 0, found -0.5"]);
    let permuted = |seed: i64| {
        let mut out = Data::blank(AclType::I64, &[50]).strided();
        run("aclnnRandperm", vec![Arg::I(50), Arg::I(seed), Arg::I(0), Arg::T(&mut out)]).unwrap();
        out.values()
    };
    let (first, second) = (permuted(1), permuted(2));
    let mut sorted = first.clone();
    sorted.sort_by(f64::total_cmp);
    assert_eq!(sorted, (0..50).map(f64::from).collect::<Vec<_>>());
    assert!(first != second && first != sorted && first == permuted(1));
    let mut small = Data::blank(AclType::I8, &[200]);
    let call = vec![Arg::I(200), Arg::I(1), Arg::I(0), Arg::T(&mut small)];
    refused("aclnnRandperm", call, &["out: INT8 does not store 199"]);
}

#[test]
fn bernoulli_numbers_follow_their_tensor_and_leaks_their_range() {
    let mut out = Data::blank(AclType::F16, &[3, 2000]).strided();
    let mut ones = Data::new(AclType::F32, &[3, 1], &[0.0, 0.25, 1.0]);
    run("aclnnInplaceBernoulliTensor", vec![Arg::T(&mut out), Arg::T(&mut ones), Arg::I(3), Arg::I(4)])
        .unwrap();
    for (row, probability) in out.values().chunks(2000).zip([0.0, 0.25, 1.0]) {
        likely(row.iter().filter(|x| **x == 1.0).count(), 2000, probability, "ones");
        assert!(row.iter().all(|x| [0.0, 1.0].contains(x)));
    }
    let mut wrong = Data::new(AclType::F32, &[3, 1], &[0.0, 1.25, 1.0]);
    let call = vec![Arg::T(&mut out), Arg::T(&mut wrong), Arg::I(3), Arg::I(4)];
    refused("aclnnInplaceBernoulliTensor", call, &["prob: expected 0 to 1, found 1.25"]);
    let values = varied(400, 2);
    let leaked = |training: bool, in_place: bool| {
        let (mut x, mut noise) =
            (Data::new(AclType::F32, &[400], &values), Data::new(AclType::F32, &[400], &[9.0; 400]));
        let mut out = Data::blank(AclType::F32, &[400]);
        let mut call = vec![
            Arg::T(&mut x),
            Arg::T(&mut noise),
            real(0.125),
            real(0.25),
            Arg::B(training),
            Arg::I(5),
            Arg::I(4),
        ];
        if in_place {
            run("aclnnInplaceRReluWithNoise", call).unwrap();
            return (x.values(), noise.values());
        }
        call.push(Arg::T(&mut out));
        run("aclnnRReluWithNoise", call).unwrap();
        (out.values(), noise.values())
    };
    let (found, noise) = leaked(true, false);
    for ((x, y), factor) in values.iter().zip(&found).zip(&noise) {
        assert!(if *x > 0.0 { *factor == 1.0 } else { (0.125..=0.25).contains(factor) }, "{x} {factor}");
        assert!((y - x * factor).abs() < 1e-6, "{x} {y} {factor}");
    }
    assert!(noise.iter().any(|x| (0.126..0.2).contains(x)) && noise.iter().any(|x| (0.2..0.249).contains(x)));
    assert_eq!((found, noise), leaked(true, true));
    let (found, noise) = leaked(false, false);
    assert!(noise.iter().all(|x| *x == 9.0));
    assert!(values.iter().zip(&found).all(|(x, y)| *y == if *x > 0.0 { *x } else { x * 0.1875 }));
}
