//! Random fills and dropout: the range, what seeds and offsets do, and what is refused.

use super::*;

/// A tensor of a type that `name` has filled.
fn filled(name: &str, dtype: DType, before: Vec<Arg<'_>>, seed: i64, offset: i64) -> Vec<f64> {
    let mut out = Data::blank(dtype, &[3, 500]).strided();
    let mut arguments = vec![Arg::T(&mut out)];
    arguments.extend(before);
    arguments.extend([Arg::I(seed), Arg::I(offset)]);
    run(name, arguments).unwrap();
    out.values()
}

#[test]
fn fills_stay_in_their_range_and_follow_seed_and_offset() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        let uniform =
            |seed, offset| filled("aclnnInplaceUniform", dtype, vec![Arg::F(-2.0), Arg::F(3.0)], seed, offset);
        let values = uniform(5, 8);
        assert!(values.iter().all(|value| (-2.0..3.0).contains(value)), "{dtype}");
        assert!(values.iter().any(|value| *value < -1.8) && values.iter().any(|value| *value > 2.8), "{dtype}");
        assert_eq!(values, uniform(5, 8), "{dtype}");
        assert!(values != uniform(6, 8) && values != uniform(5, 9), "{dtype}");
        let values = filled("aclnnInplaceNormal", dtype, vec![Arg::F(10.0), Arg::F(2.0)], 5, 8);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        // Six standard errors of a mean of 1500, and roundings of numbers around 10.
        assert!((mean - 10.0).abs() < 6.0 * 2.0 / 1500f64.sqrt() + 10.0 * precision(dtype), "{dtype} {mean}");
    }
    let values = filled("aclnnInplaceRandom", DType::I32, vec![Arg::I(-3), Arg::I(4)], 1, 0);
    assert!((-3..4).all(|wanted| values.contains(&f64::from(wanted))));
    assert!(values.iter().all(|value| (-3.0..4.0).contains(value)));
    for (probability, ones) in [(0.0, 0), (1.0, 1500)] {
        let values = filled("aclnnInplaceBernoulli", DType::F32, vec![real(probability)], 1, 0);
        assert_eq!(values.iter().filter(|value| **value == 1.0).count(), ones);
    }
}

#[test]
fn dropout_keeps_what_its_mask_says_and_scales_it() {
    for (probability, low, high) in [(0.0, 1000, 1000), (0.25, 680, 820), (1.0, 0, 0)] {
        let mut mask = Data::blank(DType::U8, &[128]);
        let shape = [10, 100];
        let head = [Arg::Ints(&shape), Arg::F(probability), Arg::I(3), Arg::I(4)];
        run("aclnnDropoutGenMaskV2", head.into_iter().chain([Arg::D(DType::F32), Arg::T(&mut mask)]).collect())
            .unwrap();
        let mut again = Data::blank(DType::U8, &[128]);
        let head = vec![Arg::Ints(&shape), Arg::F(probability), Arg::I(3), Arg::I(4), Arg::T(&mut again)];
        run("aclnnDropoutGenMask", head).unwrap();
        assert_eq!(mask.values(), again.values());
        let mut x = Data::new(DType::F32, &[10, 100], &[1.5; 1000]).strided();
        let mut out = Data::blank(DType::F32, &[10, 100]).strided();
        run("aclnnDropoutDoMask", vec![Arg::T(&mut x), Arg::T(&mut mask), Arg::F(probability), Arg::T(&mut out)])
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
    let mut out = Data::blank(DType::F32, &[2]);
    let uniform = vec![Arg::T(&mut out), Arg::F(2.0), Arg::F(1.0), Arg::I(0), Arg::I(0)];
    refused("aclnnInplaceUniform", uniform, &["from: expected at most to 1, found 2"]);
    let normal = vec![Arg::T(&mut out), Arg::F(0.0), Arg::F(-1.0), Arg::I(0), Arg::I(0)];
    refused("aclnnInplaceNormal", normal, &["std: expected at least 0, found -1"]);
    let whole = vec![Arg::T(&mut out), Arg::I(2), Arg::I(2), Arg::I(0), Arg::I(0)];
    refused("aclnnInplaceRandom", whole, &["from: expected less than to 2, found 2"]);
    let mut mask = Data::blank(DType::U8, &[16]);
    let short = vec![Arg::Ints(&[200]), Arg::F(0.5), Arg::I(0), Arg::I(0), Arg::T(&mut mask)];
    refused("aclnnDropoutGenMask", short, &["out: expected shape [32]"]);
    let sure = vec![Arg::Ints(&[100]), Arg::F(1.5), Arg::I(0), Arg::I(0), Arg::T(&mut mask)];
    refused("aclnnDropoutGenMask", sure, &["prob: expected 0 to 1, found 1.5"]);
}
