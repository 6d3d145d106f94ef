//! Searches, bags, norms of rows, medians, loss scales and fake quantisation against definitions.

use super::*;

fn searched(dtype: AclType, right: bool, order: Option<&[f64]>) -> Vec<f64> {
    let mut sorted = Data::new(dtype, &[2, 4], &[1.0, 3.0, 3.0, 7.0, 0.0, 2.0, 4.0, 6.0]).strided();
    let mut x = Data::new(dtype, &[2, 3], &[3.0, 0.0, 8.0, 4.0, 5.0, 0.0]).strided();
    let mut sorter = order.map(|order| Data::new(AclType::I64, &[2, 4], order));
    let mut out = Data::blank(AclType::I32, &[2, 3]).strided();
    let sorter = sorter.as_mut().map_or(Arg::Null, Arg::T);
    let call =
        vec![Arg::T(&mut sorted), Arg::T(&mut x), Arg::B(true), Arg::B(right), sorter, Arg::T(&mut out)];
    run("aclnnSearchSorted", call).unwrap();
    out.values()
}

#[test]
fn positions_in_sorted_sequences() {
    for dtype in [AclType::F32, AclType::F16, AclType::F64, AclType::I8, AclType::U8, AclType::I64] {
        assert_eq!(searched(dtype, false, None), [1.0, 0.0, 4.0, 2.0, 3.0, 0.0], "{dtype}");
        assert_eq!(searched(dtype, true, None), [3.0, 0.0, 4.0, 3.0, 3.0, 1.0], "{dtype}");
    }
    // An order that names the elements as they stand changes nothing.
    let own = [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0];
    assert_eq!(searched(AclType::F32, false, Some(&own)), [1.0, 0.0, 4.0, 2.0, 3.0, 0.0]);
    let mut shuffled = Data::new(AclType::F32, &[4], &[5.0, 1.0, 9.0, 3.0]);
    let mut order = Data::new(AclType::I64, &[4], &[1.0, 3.0, 0.0, 2.0]);
    let mut out = Data::blank(AclType::I64, &[1]);
    fn call<'a>(of: &'a mut Data, value: f64, order: Arg<'a>, out: &'a mut Data) -> Vec<Arg<'a>> {
        vec![Arg::T(of), real(value), Arg::B(false), Arg::B(false), order, Arg::T(out)]
    }
    run("aclnnSearchSorteds", call(&mut shuffled, 4.0, Arg::T(&mut order), &mut out)).unwrap();
    assert_eq!(out.values(), [2.0]);
    let mut wrong = Data::new(AclType::I64, &[4], &[1.0, 4.0, 0.0, 2.0]);
    let parts = ["sorter: expected 0 to 3, found 4"];
    refused("aclnnSearchSorteds", call(&mut shuffled, 4.0, Arg::T(&mut wrong), &mut out), &parts);
    let mut narrow = Data::blank(AclType::I32, &[1]);
    refused(
        "aclnnSearchSorteds",
        call(&mut shuffled, 4.0, Arg::Null, &mut narrow),
        &["out: expected INT64 (by outInt32)"],
    );
}

#[test]
fn bags_of_embeddings_sum_average_or_take_the_maximum() {
    let table = varied(5 * 3, 1);
    let (indices, offsets) = ([2usize, 4, 1, 1, 0, 3], [0.0, 2.0, 2.0, 5.0]);
    let named: Vec<f64> = indices.iter().map(|&index| index as f64).collect();
    for (mode, padding) in [(0, -1), (1, -1), (2, -1), (0, 1), (1, 1), (2, 1)] {
        let mut weight = Data::new(AclType::F32, &[5, 3], &table).strided();
        let mut at = Data::new(AclType::I32, &[6], &named);
        let mut from = Data::new(AclType::I64, &[4], &offsets);
        let (mut out, mut of_bag) =
            (Data::blank(AclType::F32, &[4, 3]).strided(), Data::blank(AclType::I32, &[6]));
        let mut sizes = Data::blank(AclType::I64, &[4]);
        let mut best = Data::blank(AclType::I32, if mode == 2 { &[4, 3] } else { &[4] });
        let mut call = vec![
            Arg::T(&mut weight),
            Arg::T(&mut at),
            Arg::T(&mut from),
            Arg::B(false),
            Arg::I(mode),
            Arg::B(false),
        ];
        call.extend([
            Arg::Null,
            Arg::B(false),
            Arg::I(padding),
            Arg::T(&mut out),
            Arg::T(&mut of_bag),
            Arg::T(&mut sizes),
        ]);
        call.push(Arg::T(&mut best));
        run("aclnnEmbeddingBag", call).unwrap();
        let bags = [&indices[..2], &[], &indices[2..5], &indices[5..]];
        let kept =
            bags.map(|bag| bag.iter().copied().filter(|&index| index as i64 != padding).collect::<Vec<_>>());
        let mut expected = Vec::new();
        for bag in &kept {
            for column in 0..3 {
                let values = bag.iter().map(|row| table[row * 3 + column]);
                expected.push(match mode {
                    0 => values.sum(),
                    1 => values.sum::<f64>() / bag.len().max(1) as f64,
                    _ => values.reduce(f64::max).unwrap_or(0.0),
                });
            }
        }
        close(&out.values(), &expected, 1e-6, &format!("mode {mode}, paddingIdx {padding}"));
        assert_eq!(sizes.values(), kept.each_ref().map(|bag| bag.len() as f64));
        assert_eq!(of_bag.values(), [0.0, 0.0, 2.0, 2.0, 2.0, 3.0]);
        if mode == 2 {
            let rows = best.values();
            for (bag, own) in kept.iter().enumerate().filter(|(_, own)| !own.is_empty()) {
                for column in 0..3 {
                    let row = rows[bag * 3 + column] as usize;
                    assert!(own.contains(&row) && table[row * 3 + column] == expected[bag * 3 + column]);
                }
            }
        }
    }
}

#[test]
fn weighted_bags_and_wrong_bags() {
    let mut weight = Data::new(AclType::F32, &[2, 1], &[1.0, 10.0]);
    let mut at = Data::new(AclType::I64, &[3], &[0.0, 1.0, 1.0]);
    let mut factors = Data::new(AclType::F32, &[3], &[2.0, 3.0, 4.0]);
    let (mut of_bag, mut sizes) = (Data::blank(AclType::I64, &[0]), Data::blank(AclType::I64, &[2]));
    let (mut out, mut best) = (Data::blank(AclType::F32, &[2, 1]), Data::blank(AclType::I64, &[2]));
    let mut bagged = |ends: &[f64], mode: i64| {
        let mut from = Data::new(AclType::I64, &[3], ends);
        let mut call = vec![
            Arg::T(&mut weight),
            Arg::T(&mut at),
            Arg::T(&mut from),
            Arg::B(false),
            Arg::I(mode),
            Arg::B(false),
        ];
        call.extend([Arg::T(&mut factors), Arg::B(true), Arg::I(-1), Arg::T(&mut out), Arg::T(&mut of_bag)]);
        call.extend([Arg::T(&mut sizes), Arg::T(&mut best)]);
        run("aclnnEmbeddingBag", call).map(|()| out.values())
    };
    assert_eq!(bagged(&[0.0, 2.0, 3.0], 0), Ok(vec![32.0, 40.0]));
    assert!(bagged(&[0.0, 2.0, 3.0], 1).unwrap_err().contains("perSampleWeights: is given, but only mode 0"));
    assert!(
        bagged(&[0.0, 2.0, 2.0], 0)
            .unwrap_err()
            .contains("offsets: expected numbers that ascend from 0 to 3")
    );
    assert!(bagged(&[0.0, 3.0, 2.0], 0).unwrap_err().contains("offsets: expected numbers that ascend"));
}

#[test]
fn norms_of_rows_are_bounded() {
    for (dtype, degree) in
        [(AclType::F32, 2.0), (AclType::F16, 1.0), (AclType::BF16, f64::INFINITY), (AclType::F32, 3.0)]
    {
        let values = varied(2 * 3 * 4, 6);
        let norm = |slice: &[f64]| match degree {
            d if d.is_infinite() => slice.iter().fold(0.0, |most: f64, x| most.max(x.abs())),
            d => slice.iter().map(|x| x.abs().powf(d)).sum::<f64>().powf(1.0 / d),
        };
        let (mut x, mut out) =
            (Data::new(dtype, &[2, 3, 4], &values).strided(), Data::blank(dtype, &[2, 3, 4]).strided());
        run("aclnnRenorm", vec![Arg::T(&mut x), real(degree), Arg::I(-2), real(2.5), Arg::T(&mut out)])
            .unwrap();
        let of = |slice: usize| (0..24).filter(move |at| at / 4 % 3 == slice);
        let mut expected = values.clone();
        for slice in 0..3 {
            let length = norm(&of(slice).map(|at| values[at]).collect::<Vec<_>>());
            if length > 2.5 {
                of(slice).for_each(|at| expected[at] *= 2.5 / (length + 1e-7));
            }
        }
        close(&out.values(), &expected, precision(dtype), &format!("{dtype}, p {degree}"));
        let mut table = Data::new(dtype, &[6, 4], &values).strided();
        let mut at = Data::new(AclType::I64, &[2, 2], &[5.0, 0.0, 0.0, 3.0]);
        run("aclnnEmbeddingRenorm", vec![Arg::T(&mut table), Arg::T(&mut at), Arg::F(2.5), Arg::F(degree)])
            .unwrap();
        let mut expected = values.clone();
        for row in [0, 3, 5] {
            let length = norm(&values[row * 4..row * 4 + 4]);
            let factor = if length > 2.5 { 2.5 / (length + 1e-7) } else { 1.0 };
            expected[row * 4..row * 4 + 4].iter_mut().for_each(|x| *x *= factor);
        }
        close(&table.values(), &expected, precision(dtype), &format!("{dtype}, p {degree}"));
        let call = vec![Arg::T(&mut table), Arg::T(&mut at), Arg::F(2.5), Arg::F(0.0)];
        refused("aclnnEmbeddingRenorm", call, &["normType: expected more than 0, found 0"]);
    }
    let mut x = Data::new(AclType::F32, &[1, 4], &[3.0, 4.0, 0.0, 0.0]);
    run("aclnnInplaceRenorm", vec![Arg::T(&mut x), real(2.0), Arg::I(0), real(1.0)]).unwrap();
    close(&x.values(), &[0.6, 0.8, 0.0, 0.0], 1e-6, "in place");
}

#[test]
fn numbers_that_are_none_are_skipped() {
    let nan = f64::NAN;
    let values = [nan, 3.0, 1.0, 2.0, nan, nan, nan, nan, 5.0, 4.0, nan, 9.0];
    for dtype in [AclType::F32, AclType::F16, AclType::BF16] {
        let mut x = Data::new(dtype, &[3, 4], &values).strided();
        let (mut out, mut at) =
            (Data::blank(dtype, &[3]).strided(), Data::blank(AclType::I64, &[3]).strided());
        run(
            "aclnnNanMedianDim",
            vec![Arg::T(&mut x), Arg::I(1), Arg::B(false), Arg::T(&mut out), Arg::T(&mut at)],
        )
        .unwrap();
        close(&out.values(), &[2.0, nan, 5.0], 0.0, "medians");
        assert_eq!((at.values()[0], at.values()[2]), (3.0, 0.0));
        let mut one = Data::blank(dtype, &[]);
        run("aclnnNanMedian", vec![Arg::T(&mut x), Arg::T(&mut one)]).unwrap();
        assert_eq!(one.values(), [3.0]);
        let mut sums = Data::blank(AclType::F32, &[3, 1]).strided();
        let call =
            vec![Arg::T(&mut x), Arg::Ints(&[-1]), Arg::B(true), Arg::D(AclType::F32), Arg::T(&mut sums)];
        run("aclnnReduceNansum", call).unwrap();
        assert_eq!(sums.values(), [6.0, 0.0, 18.0]);
    }
}

#[test]
fn loss_scales_grow_and_back_off() {
    for (scale, tracker, found, expected) in [
        (8.0, 0.0, 0.0, (8.0, 1.0)),
        (8.0, 2.0, 0.0, (16.0, 0.0)),
        (8.0, 2.0, 1.0, (4.0, 0.0)),
        (f64::from(f32::MAX), 2.0, 0.0, (f64::from(f32::MAX), 0.0)),
    ] {
        let mut now = Data::new(AclType::F32, &[1], &[scale]);
        let (mut steps, mut inf) =
            (Data::new(AclType::I32, &[1], &[tracker]), Data::new(AclType::F32, &[], &[found]));
        let (mut next, mut counted) = (Data::blank(AclType::F32, &[1]), Data::blank(AclType::I32, &[1]));
        let mut call =
            vec![Arg::T(&mut now), Arg::T(&mut steps), Arg::T(&mut inf), Arg::F(2.0), Arg::F(0.5), Arg::I(3)];
        call.extend([Arg::T(&mut next), Arg::T(&mut counted)]);
        run("aclnnAmpUpdateScale", call).unwrap();
        assert_eq!((next.values()[0], counted.values()[0]), expected);
    }
}

#[test]
fn fake_quantisation_rounds_and_clamps() {
    let values = [-3.0, -0.26, 0.0, 0.25, 0.75, 1.3, 7.9, 8.5];
    let level = |x: f64, scale: f64, zero: f64| (x / scale).round_ties_even() + zero;
    let mut x = Data::new(AclType::F32, &[2, 2, 2], &values).strided();
    let (mut out, mut mask) =
        (Data::blank(AclType::F32, &[2, 2, 2]).strided(), Data::blank(AclType::Bool, &[2, 2, 2]));
    let (mut scale, mut zero) =
        (Data::new(AclType::F32, &[2], &[0.5, 0.25]), Data::new(AclType::I32, &[2], &[1.0, 3.0]));
    let mut call =
        vec![Arg::T(&mut x), Arg::T(&mut scale), Arg::T(&mut zero), Arg::I(1), Arg::I(0), Arg::I(15)];
    call.extend([Arg::T(&mut out), Arg::T(&mut mask)]);
    run("aclnnFakeQuantPerChannelAffineCachemask", call).unwrap();
    let of = |at: usize| if (at / 2).is_multiple_of(2) { (0.5, 1.0) } else { (0.25, 3.0) };
    let levels: Vec<f64> = values.iter().enumerate().map(|(at, &x)| level(x, of(at).0, of(at).1)).collect();
    let expected: Vec<f64> =
        levels.iter().enumerate().map(|(at, l)| (l.clamp(0.0, 15.0) - of(at).1) * of(at).0).collect();
    assert_eq!(out.values(), expected);
    let kept: Vec<f64> = levels.iter().map(|l| f64::from(u8::from((0.0..=15.0).contains(l)))).collect();
    assert_eq!(mask.values(), kept);
    for enabled in [0.0, 1.0] {
        let (mut scale, mut zero) =
            (Data::new(AclType::F32, &[1], &[0.5]), Data::new(AclType::I32, &[1], &[2.0]));
        let mut call = vec![
            Arg::T(&mut x),
            Arg::T(&mut scale),
            Arg::T(&mut zero),
            Arg::F(enabled),
            Arg::I(0),
            Arg::I(7),
        ];
        call.extend([Arg::T(&mut out), Arg::T(&mut mask)]);
        run("aclnnFakeQuantPerTensorAffineCachemask", call).unwrap();
        let fake = |x: f64| (level(x, 0.5, 2.0).clamp(0.0, 7.0) - 2.0) * 0.5;
        let expected = values.map(|x| if enabled == 1.0 { fake(x) } else { f64::from(x as f32) });
        assert_eq!(out.values(), expected);
    }
    let (mut scale, mut zero) =
        (Data::new(AclType::F32, &[1], &[0.5]), Data::new(AclType::I32, &[1], &[2.0]));
    let mut call =
        vec![Arg::T(&mut x), Arg::T(&mut scale), Arg::T(&mut zero), Arg::F(1.0), Arg::I(9), Arg::I(7)];
    call.extend([Arg::T(&mut out), Arg::T(&mut mask)]);
    refused(
        "aclnnFakeQuantPerTensorAffineCachemask",
        call,
        &["quantMin: expected at most quantMax 7, found 9"],
    );
}

#[test]
fn lists_are_rounded_by_mode() {
    let values = [-2.5, -1.5, -0.4, 0.0, 0.5, 1.5, 2.3, 3.0];
    for (mode, expected) in [
        (1, [-2.0, -2.0, 0.0, 0.0, 0.0, 2.0, 2.0, 3.0]),
        (2, [-3.0, -2.0, -1.0, 0.0, 0.0, 1.0, 2.0, 3.0]),
        (3, [-2.0, -1.0, 0.0, 0.0, 1.0, 2.0, 3.0, 3.0]),
        (4, [-3.0, -2.0, 0.0, 0.0, 1.0, 2.0, 2.0, 3.0]),
        (5, [-2.0, -1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0]),
        (6, [-3.0, -1.0, -1.0, 0.0, 1.0, 1.0, 3.0, 3.0]),
    ] {
        let mut x = Data::new(AclType::F16, &[8], &values).strided();
        let (mut out, mut same) = (Data::blank(AclType::F16, &[8]), Data::blank(AclType::F16, &[8]));
        let mut at = Data::new(AclType::I8, &[1], &[f64::from(mode)]);
        let call = vec![Arg::List(vec![&mut x]), Arg::T(&mut at), Arg::List(vec![&mut out])];
        run("aclnnForeachRoundOffNumber", call).unwrap();
        let call = vec![Arg::List(vec![&mut x]), whole(i64::from(mode)), Arg::List(vec![&mut same])];
        run("aclnnForeachRoundOffNumberV2", call).unwrap();
        assert_eq!((out.values(), same.values()), (expected.to_vec(), expected.to_vec()), "mode {mode}");
    }
}

#[test]
fn rows_are_copied_or_replaced_at_indices() {
    let mut x = Data::new(AclType::F32, &[3, 2], &counted(6, 1)).strided();
    let mut at = Data::new(AclType::I64, &[2], &[2.0, 0.0]);
    let mut rows = Data::new(AclType::F32, &[2, 2], &[10.0, 11.0, 12.0, 13.0]);
    let mut out = Data::blank(AclType::F32, &[3, 2]).strided();
    let before = x.values();
    let call = vec![Arg::T(&mut x), Arg::I(0), Arg::T(&mut at), Arg::T(&mut rows), Arg::T(&mut out)];
    run("aclnnIndexCopy", call).unwrap();
    assert_eq!(out.values(), [12.0, 13.0, before[2], before[3], 10.0, 11.0]);
    assert_eq!(x.values(), before);
    let mut places = Data::new(AclType::I64, &[2, 1], &[2.0, 0.0]);
    run("aclnnScatterNdUpdate", vec![Arg::T(&mut x), Arg::T(&mut places), Arg::T(&mut rows)]).unwrap();
    assert_eq!(x.values(), out.values());
}
