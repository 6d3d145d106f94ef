//! Routing with quantisation, maps of tokens and experts, and their gradients.

use super::*;

/// Values with, in every row, another largest magnitude.
fn rows(n: usize, width: usize) -> Vec<f64> {
    (0..n * width).map(|i| ((i * 7 + i / width) % 13) as f64 / 4.0 - 1.5).collect()
}

/// A choice of the sorted list: its token, expert and place among the choices.
fn sorted(chosen: &[i64], choices: usize, range: std::ops::Range<i64>) -> Vec<(usize, i64, usize)> {
    let mut list = Vec::new();
    for expert in range {
        for (place, _) in chosen.iter().enumerate().filter(|(_, found)| **found == expert) {
            list.push((place / choices, expert, place));
        }
    }
    list
}

#[test]
fn copies_are_routed_filtered_and_quantised() {
    let chosen = [2i64, 0, 1, -1, 0, 2, 3, 1];
    let (x, smooth) = (rows(4, 3), [1.0, 2.0, 0.5, 0.5, 1.0, 4.0]);
    for (mode, range) in [(-1, [0, 4]), (0, [1, 3]), (1, [1, 3]), (1, [0, 4])] {
        for by_row in [0, 1] {
            let order = sorted(&chosen, 2, range[0]..range[1]);
            let mut a = Data::new(AclType::BF16, &[4, 3], &x).strided();
            let mut experts = Data::new(AclType::I32, &[4, 2], &chosen.map(|expert| expert as f64));
            let is_narrow = range == [1, 3];
            let out_type = if mode < 0 { AclType::BF16 } else { AclType::I8 };
            let mut out = Data::new(out_type, &[8, 3], &[9.0; 24]).strided();
            let mut places = Data::new(AclType::I32, &[8], &[9.0; 8]);
            let mut scales = Data::new(AclType::F32, &[8], &[9.0; 8]);
            let mut counts = Data::blank(AclType::I64, &[(range[1] - range[0]) as usize]);
            let mut scale = match mode {
                0 => Data::new(AclType::F32, &[1], &[10.0]),
                1 => Data::new(AclType::F32, &[2, 3], &smooth),
                _ => Data::new(AclType::F32, &[4], &[1.0, 2.0, 3.0, 4.0]),
            };
            let mut offset = Data::new(AclType::F32, &[1], &[3.0]);
            let mut call = vec![Arg::T(&mut a), Arg::T(&mut experts)];
            call.push(if mode == 1 && !is_narrow { Arg::Null } else { Arg::T(&mut scale) });
            call.push(if mode == 0 { Arg::T(&mut offset) } else { Arg::Null });
            call.extend([Arg::I(-1), Arg::I(0), Arg::I(4), Arg::I(0), Arg::I(1), Arg::B(true), Arg::I(mode)]);
            call.extend([Arg::Ints(&range), Arg::I(by_row), Arg::T(&mut out), Arg::T(&mut places)]);
            call.extend([Arg::T(&mut counts), Arg::T(&mut scales)]);
            run("aclnnMoeInitRoutingV3", call).unwrap();
            let (mut expected, mut factors) = (vec![9.0; 24], vec![9.0; 8]);
            for (row, &(token, expert, _)) in order.iter().enumerate() {
                let own: Vec<f64> = (0..3)
                    .map(|i| {
                        let factor =
                            if mode == 1 && is_narrow { smooth[(expert - 1) as usize * 3 + i] } else { 1.0 };
                        x[token * 3 + i] * factor
                    })
                    .collect();
                let most = own.iter().fold(0f64, |most, x| most.max(x.abs())) / 127.0;
                for i in 0..3 {
                    expected[row * 3 + i] = match mode {
                        0 => (own[i] * 10.0 + 3.0).round_ties_even(),
                        1 => (own[i] / most).round_ties_even(),
                        _ => own[i],
                    };
                }
                factors[row] = match mode {
                    0 => 9.0,
                    1 => most,
                    _ => (token + 1) as f64,
                };
            }
            let what = format!("mode {mode}, range {range:?}, by row {by_row}");
            assert_eq!(out.values(), expected, "{what}");
            close(&scales.values(), &factors, 1e-6, &what);
            let numbers = (range[0]..range[1])
                .map(|expert| chosen.iter().filter(|found| **found == expert).count() as f64);
            assert_eq!(counts.values(), numbers.collect::<Vec<_>>(), "{what}");
            let mut named = vec![if by_row == 1 { 9.0 } else { -1.0 }; 8];
            for (row, &(_, _, place)) in order.iter().enumerate() {
                if by_row == 1 {
                    named[row] = place as f64;
                } else {
                    named[place] = row as f64;
                }
            }
            assert_eq!(places.values(), named, "{what}");
        }
    }
}

#[test]
fn a_capacity_drops_copies_and_pads_with_zeros() {
    let chosen = [1i64, 0, 1, 1];
    let x = rows(2, 2);
    let mut a = Data::new(AclType::F32, &[2, 2], &x);
    let mut experts = Data::new(AclType::I32, &[2, 2], &chosen.map(|expert| expert as f64));
    let (mut out, mut places) = (Data::blank(AclType::F32, &[3, 2, 2]), Data::blank(AclType::I32, &[4]));
    let (mut counts, mut far) =
        (Data::blank(AclType::I64, &[3]), Data::new(AclType::I32, &[2, 2], &[3.0; 4]));
    for is_far in [false, true] {
        let chosen = if is_far { &mut far } else { &mut experts };
        let mut call = vec![Arg::T(&mut a), Arg::T(chosen), Arg::Null, Arg::Null];
        call.extend([Arg::I(0), Arg::I(2), Arg::I(3), Arg::I(1), Arg::I(1), Arg::B(true), Arg::I(-1)]);
        call.extend([Arg::NoInts, Arg::I(0), Arg::T(&mut out), Arg::T(&mut places), Arg::T(&mut counts)]);
        call.push(Arg::Null);
        if is_far {
            refused("aclnnMoeInitRoutingV3", call, &["expertIdx: expected -1 to 2, found 3"]);
        } else {
            run("aclnnMoeInitRoutingV3", call).unwrap();
        }
    }
    let zero = [0.0, 0.0];
    let expected = [[x[0], x[1]], zero, [x[0], x[1]], [x[2], x[3]], zero, zero].concat();
    assert_eq!(out.values(), expected);
    assert_eq!((places.values(), counts.values()), (vec![2.0, 0.0, 3.0, -1.0], vec![1.0, 3.0, 0.0]));
}

#[test]
fn earlier_quantised_routings_have_the_rows_of_the_plain_ones() {
    let x = rows(3, 4);
    let (chosen, by_choice) = ([1.0, 0.0, 0.0, 1.0, 1.0, 0.0], [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    let d = |dtype, dims: &[usize], values: &[f64]| Data::new(dtype, dims, values).strided();
    let (mut a, mut experts) = (d(AclType::F16, &[3, 4], &x), d(AclType::I32, &[3, 2], &chosen));
    let mut order = d(AclType::I32, &[3, 2], &by_choice);
    let (mut plain, mut levels) = (Data::blank(AclType::F16, &[6, 4]), Data::blank(AclType::I8, &[6, 4]));
    let mut indexes = [0, 1, 2, 3].map(|_| Data::blank(AclType::I32, &[6]));
    let [first, second, third, fourth] = &mut indexes;
    let mut call = vec![Arg::T(&mut a), Arg::T(&mut order), Arg::T(&mut experts), Arg::I(3)];
    call.extend([Arg::T(&mut plain), Arg::T(first), Arg::T(second)]);
    run("aclnnMoeInitRouting", call).unwrap();
    let mut call = vec![Arg::T(&mut a), Arg::T(&mut order), Arg::T(&mut experts), Arg::I(3)];
    call.extend([Arg::F(20.0), Arg::F(-4.0), Arg::T(&mut levels), Arg::T(third), Arg::T(fourth)]);
    run("aclnnMoeInitRoutingQuant", call).unwrap();
    assert_eq!([first.values(), second.values()], [third.values(), fourth.values()]);
    let level = |x: &f64| (x * 20.0 - 4.0).round_ties_even().clamp(-128.0, 127.0);
    assert_eq!(levels.values(), plain.values().iter().map(level).collect::<Vec<_>>());
    for is_dynamic in [false, true] {
        let (mut scale, mut offset) = (d(AclType::F32, &[1], &[20.0]), d(AclType::F32, &[1], &[-4.0]));
        let (mut counts, mut scales) = (Data::blank(AclType::I32, &[2]), Data::blank(AclType::F32, &[6]));
        let mut call = vec![Arg::T(&mut a), Arg::T(&mut experts)];
        call.push(if is_dynamic { Arg::Null } else { Arg::T(&mut scale) });
        call.push(if is_dynamic { Arg::Null } else { Arg::T(&mut offset) });
        call.extend([Arg::I(0), Arg::I(0), Arg::I(2), Arg::I(0), Arg::I(1), Arg::B(false)]);
        call.extend([Arg::I(i64::from(is_dynamic)), Arg::T(&mut levels), Arg::T(&mut indexes[0])]);
        call.extend([Arg::T(&mut counts), Arg::Null, Arg::T(&mut scales)]);
        run("aclnnMoeInitRoutingQuantV2", call).unwrap();
        assert_eq!(counts.values(), [3.0, 6.0]);
        let copies: Vec<usize> =
            sorted(&chosen.map(|expert| expert as i64), 2, 0..2).iter().map(|(token, ..)| *token).collect();
        for (row, token) in copies.into_iter().enumerate() {
            let own = &x[token * 4..token * 4 + 4];
            let most = own.iter().fold(0f64, |most, x| most.max(x.abs())) / 127.0;
            let expected: Vec<f64> = own
                .iter()
                .map(|x| if is_dynamic { (x / most).round_ties_even() } else { level(x) })
                .collect();
            assert_eq!(levels.values()[row * 4..row * 4 + 4], expected, "dynamic {is_dynamic}, row {row}");
        }
    }
}

#[test]
fn tokens_of_ranks_are_grouped_by_expert() {
    let (numbers, x) = ([2.0, 0.0, 1.0, 1.0, 1.0, 1.0], rows(6, 2));
    // Rank 0 has experts 0, 0, 2, rank 1 has 0, 1, 2.
    let order = [0usize, 1, 3, 4, 2, 5];
    let d = |dtype, dims: &[usize], values: &[f64]| Data::new(dtype, dims, values).strided();
    let (mut a, mut per_rank) = (d(AclType::F16, &[6, 2], &x), d(AclType::I64, &[2, 3], &numbers));
    let mut scales = d(AclType::F32, &[6], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let (mut out, mut scales_out) = (Data::blank(AclType::F16, &[6, 2]), Data::blank(AclType::F32, &[6]));
    let (mut places, mut totals) = (Data::blank(AclType::I32, &[6]), Data::blank(AclType::I64, &[3]));
    let mut call = vec![Arg::T(&mut a), Arg::T(&mut per_rank), Arg::T(&mut scales), Arg::I(1), Arg::I(0)];
    call.extend([Arg::T(&mut out), Arg::T(&mut scales_out), Arg::T(&mut places), Arg::T(&mut totals)]);
    run("aclnnMoeReRouting", call).unwrap();
    assert_eq!(out.values(), order.iter().flat_map(|&row| [x[row * 2], x[row * 2 + 1]]).collect::<Vec<_>>());
    let named = order.map(|row| row as f64);
    assert_eq!((scales_out.values(), places.values()), (named.to_vec(), named.to_vec()));
    assert_eq!(totals.values(), [3.0, 1.0, 2.0]);
}

/// A map with two experts for each token, and factors.
const MAP: [f64; 12] = [1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0];

/// Rows of the permuted tokens: token and expert.
fn mapped(capacity: Option<usize>) -> Vec<(usize, usize)> {
    let mut list = Vec::new();
    for expert in 0..3 {
        let mut own: Vec<usize> = (0..4).filter(|token| MAP[token * 3 + expert] == 1.0).collect();
        if let Some(capacity) = capacity {
            own.extend((0..4).filter(|token| MAP[token * 3 + expert] == 0.0));
            own.truncate(capacity);
        }
        list.extend(own.into_iter().map(|token| (token, expert)));
    }
    list
}

#[test]
fn maps_permute_tokens_and_back_with_gradients() {
    let (x, probs, grad, probs_grad) = (rows(4, 2), varied(12, 3), varied(16, 5), varied(8, 6));
    for is_padded in [false, true] {
        let list = mapped(is_padded.then_some(2));
        let copies = list.len();
        let d = |dims: &[usize], values: &[f64]| Data::new(AclType::F32, dims, values).strided();
        let blank = |dims: &[usize]| Data::blank(AclType::F32, dims);
        let index = || Data::blank(AclType::I32, &[copies]);
        let (mut a, mut p) = (d(&[4, 2], &x), d(&[4, 3], &probs));
        let mut map = Data::new(AclType::Bool, &[4, 3], &MAP);
        let (mut out, mut factors, mut sorted) = (blank(&[copies, 2]), blank(&[copies]), index());
        let asked = if is_padded { 6 } else { 8 };
        let mut call =
            vec![Arg::T(&mut a), Arg::T(&mut map), Arg::T(&mut p), Arg::I(asked), Arg::B(is_padded)];
        call.extend([Arg::T(&mut out), Arg::T(&mut factors), Arg::T(&mut sorted)]);
        run("aclnnMoeTokenPermuteWithRoutingMap", call).unwrap();
        let what = format!("padded {is_padded}");
        let expected: Vec<f64> =
            list.iter().flat_map(|&(token, _)| [x[token * 2], x[token * 2 + 1]]).collect();
        assert_eq!(out.values(), expected, "{what}");
        let own: Vec<f64> = list.iter().map(|&(token, expert)| probs[token * 3 + expert]).collect();
        assert_eq!(factors.values(), own, "{what}");

        let (mut tokens_grad, mut dp) = (blank(&[4, 2]), blank(&[4, 3]));
        let (mut g, mut gp) = (d(&[copies, 2], &grad[..copies * 2]), d(&[copies], &probs_grad[..copies]));
        let mut call =
            vec![Arg::T(&mut g), Arg::T(&mut gp), Arg::T(&mut sorted), Arg::T(&mut map), Arg::I(3)];
        call.extend([Arg::I(4), Arg::B(is_padded), Arg::T(&mut tokens_grad), Arg::T(&mut dp)]);
        run("aclnnMoeTokenPermuteWithRoutingMapGrad", call).unwrap();
        let (mut sums, mut slopes) = (vec![0.0; 8], vec![0.0; 12]);
        for (row, &(token, expert)) in list.iter().enumerate() {
            (0..2).for_each(|i| sums[token * 2 + i] += grad[row * 2 + i]);
            slopes[token * 3 + expert] = probs_grad[row];
        }
        close(&tokens_grad.values(), &sums, 1e-6, &what);
        assert_eq!(dp.values(), slopes, "{what}");

        // The way back weighs the rows and adds the rows of a token.
        let (mut back, mut rows_of, mut ids, mut weights) =
            (blank(&[4, 2]), index(), index(), blank(&[copies]));
        let mut call = vec![Arg::T(&mut out), Arg::T(&mut sorted)];
        call.push(if is_padded { Arg::Null } else { Arg::T(&mut map) });
        call.extend([Arg::T(&mut p), Arg::B(is_padded), Arg::Ints(&[4, 2])]);
        call.extend([Arg::T(&mut back), Arg::T(&mut rows_of), Arg::T(&mut ids), Arg::T(&mut weights)]);
        run("aclnnMoeTokenUnpermuteWithRoutingMap", call).unwrap();
        let mut sums = vec![0.0; 8];
        for &(token, expert) in &list {
            (0..2).for_each(|i| sums[token * 2 + i] += x[token * 2 + i] * probs[token * 3 + expert]);
        }
        close(&back.values(), &sums, 1e-5, &what);
        if is_padded {
            assert_eq!(weights.values(), own, "{what}");
        } else {
            let by_token = (0..12).filter(|&at| MAP[at] == 1.0).map(|at| probs[at]);
            assert_eq!(weights.values(), by_token.collect::<Vec<_>>());
            assert_eq!([rows_of.values(), ids.values()], [0; 2].map(|_| index().values()), "unwritten");
            // The gradient reads the indexes twice, and no tokens.
            (rows_of, ids) = (sorted.clone(), sorted.clone());
        }
        let (mut g, mut dx, mut dp) = (d(&[4, 2], &grad[..8]), blank(&[copies, 2]), blank(&[4, 3]));
        let mut call = vec![Arg::T(&mut g), Arg::T(&mut rows_of), Arg::T(&mut ids), Arg::T(&mut map)];
        call.extend([Arg::T(&mut out), Arg::T(&mut p), Arg::B(is_padded), Arg::NoInts]);
        call.extend([Arg::T(&mut dx), Arg::T(&mut dp)]);
        run("aclnnMoeTokenUnpermuteWithRoutingMapGrad", call).unwrap();
        let (mut expected, mut slopes) = (Vec::new(), vec![0.0; 12]);
        for &(token, expert) in &list {
            let at = token * 3 + expert;
            expected.extend((0..2).map(|i| grad[token * 2 + i] * probs[at]));
            slopes[at] = (0..2).map(|i| grad[token * 2 + i] * x[token * 2 + i]).sum();
        }
        close(&dx.values(), &expected, 1e-6, &what);
        close(&dp.values(), &slopes, 1e-5, &what);
    }
    let mut uneven = Data::new(AclType::I8, &[4, 3], &[1.0; 12]);
    let (mut a, mut out) = (Data::new(AclType::F32, &[4, 2], &x), Data::blank(AclType::F32, &[8, 2]));
    let mut sorted = Data::blank(AclType::I32, &[8]);
    let mut call = vec![Arg::T(&mut a), Arg::T(&mut uneven), Arg::Null, Arg::I(8), Arg::B(false)];
    call.extend([Arg::T(&mut out), Arg::Null, Arg::T(&mut sorted)]);
    refused("aclnnMoeTokenPermuteWithRoutingMap", call, &["routingMap: expected 2 experts for each token"]);
}

/// Products are rounded with padding and factors of the type of the tokens alone.
#[test]
fn factors_of_another_type_are_rounded_with_the_sums() {
    let half = AclType::BF16;
    let x: Vec<f64> = (0..16).map(|i| 1.0 + f64::from(i * 11 % 127) / 128.0).collect();
    let probs: Vec<f64> = (0..12).map(|i| f64::from(i * 29 % 61 + 1) / 64.0 + 1.0 / 128.0).collect();
    for (is_padded, factors) in [(false, half), (false, AclType::F32), (true, half), (true, AclType::F32)] {
        let list = mapped(is_padded.then_some(2));
        let copies = list.len();
        let indices: Vec<f64> = if is_padded {
            list.iter().map(|&(token, _)| token as f64).collect()
        } else {
            let mut order: Vec<usize> = (0..copies).collect();
            order.sort_by_key(|&row| list[row].0);
            order.into_iter().map(|row| row as f64).collect()
        };
        let mut rows = Data::new(half, &[copies, 2], &x[..copies * 2]);
        let mut sorted = Data::new(AclType::I32, &[copies], &indices);
        let mut map = Data::new(AclType::I8, &[4, 3], &MAP);
        let mut p = Data::new(factors, &[4, 3], &probs);
        let (mut out, mut weights) = (Data::blank(half, &[4, 2]), Data::blank(factors, &[copies]));
        let (mut rows_of, mut ids) = (sorted.clone(), sorted.clone());
        let (x, probs) = (rows.values(), p.values());
        let mut call = vec![Arg::T(&mut rows), Arg::T(&mut sorted), Arg::T(&mut map), Arg::T(&mut p)];
        call.extend([Arg::B(is_padded), Arg::NoInts, Arg::T(&mut out), Arg::T(&mut rows_of)]);
        call.extend([Arg::T(&mut ids), Arg::T(&mut weights)]);
        run("aclnnMoeTokenUnpermuteWithRoutingMap", call).unwrap();
        let mut sums = vec![0f64; 8];
        for (row, &(token, expert)) in list.iter().enumerate() {
            for i in 0..2 {
                let product = x[row * 2 + i] * probs[token * 3 + expert];
                let is_rounded = is_padded && factors == half;
                sums[token * 2 + i] += if is_rounded { product.rounded(half) } else { product };
            }
        }
        let sums: Vec<f64> = sums.into_iter().map(|sum| sum.rounded(half)).collect();
        assert_eq!(out.values(), sums, "padded {is_padded}, {factors}");
        let (mut g, mut gp) = (Data::new(half, &[copies, 2], &x[..copies * 2]), weights.clone());
        let (mut dx, mut dp) = (Data::blank(half, &[4, 2]), Data::blank(factors, &[4, 3]));
        let mut call = vec![Arg::T(&mut g), Arg::T(&mut gp), Arg::T(&mut sorted), Arg::T(&mut map)];
        call.extend([Arg::I(3), Arg::I(4), Arg::B(is_padded), Arg::T(&mut dx), Arg::T(&mut dp)]);
        run("aclnnMoeTokenPermuteWithRoutingMapGrad", call).unwrap();
        let mut slopes = vec![0.0; 12];
        let grads = weights.values();
        list.iter().zip(grads).for_each(|(&(token, expert), grad)| slopes[token * 3 + expert] = grad);
        assert_eq!(dp.values(), slopes, "padded {is_padded}, {factors}");
    }
}

/// A token with one expert leaves its second choice open.
#[test]
fn open_choices_are_left_out() {
    let d = |dims: &[usize], values: &[f64]| Data::new(AclType::F32, dims, values);
    let (mut rows, mut p) = (d(&[4, 1], &[2.0, 3.0, 5.0, 7.0]), d(&[2, 2], &[0.5, 9.0, 0.25, 4.0]));
    let mut sorted = Data::new(AclType::I32, &[4], &[0.0, -1.0, 1.0, 2.0]);
    let mut map = Data::new(AclType::Bool, &[2, 2], &[1.0, 0.0, 1.0, 1.0]);
    let (mut out, mut weights) = (d(&[2, 1], &[0.0; 2]), d(&[4], &[0.0; 4]));
    let (mut rows_of, mut ids) = (sorted.clone(), sorted.clone());
    let mut call = vec![Arg::T(&mut rows), Arg::T(&mut sorted), Arg::T(&mut map), Arg::T(&mut p)];
    call.extend([Arg::B(false), Arg::NoInts, Arg::T(&mut out), Arg::T(&mut rows_of), Arg::T(&mut ids)]);
    call.push(Arg::T(&mut weights));
    run("aclnnMoeTokenUnpermuteWithRoutingMap", call).unwrap();
    assert_eq!((out.values(), weights.values()), (vec![1.0, 20.75], vec![0.5, 0.0, 0.25, 4.0]));
    let (mut g, mut dx) = (d(&[2, 1], &[10.0, 100.0]), d(&[4, 1], &[0.0; 4]));
    let mut dp = d(&[2, 2], &[8.0; 4]);
    let mut call = vec![Arg::T(&mut g), Arg::T(&mut rows_of), Arg::T(&mut ids), Arg::T(&mut map)];
    call.extend([Arg::T(&mut rows), Arg::T(&mut p), Arg::B(false), Arg::NoInts]);
    call.extend([Arg::T(&mut dx), Arg::T(&mut dp)]);
    run("aclnnMoeTokenUnpermuteWithRoutingMapGrad", call).unwrap();
    assert_eq!((dx.values(), dp.values()), (vec![5.0, 25.0, 400.0, 0.0], vec![20.0, 0.0, 300.0, 500.0]));
    let (mut back, call_map) = (d(&[2, 1], &[0.0; 2]), Arg::Null);
    let mut call = vec![Arg::T(&mut rows), Arg::Null, Arg::T(&mut sorted), call_map, Arg::I(2), Arg::I(2)];
    call.extend([Arg::B(false), Arg::T(&mut back), Arg::Null]);
    run("aclnnMoeTokenPermuteWithRoutingMapGrad", call).unwrap();
    assert_eq!(back.values(), [2.0, 8.0]);
    let mut wrong = Data::new(AclType::BF16, &[2, 2], &[1.0; 4]);
    let mut call = vec![Arg::T(&mut rows), Arg::T(&mut sorted), Arg::T(&mut map), Arg::T(&mut wrong)];
    call.extend([Arg::B(false), Arg::NoInts, Arg::T(&mut out), Arg::T(&mut rows_of), Arg::T(&mut ids)]);
    call.push(Arg::T(&mut weights));
    let expected = ["probsOptional: expected FLOAT, or FLOAT with BFLOAT16, found"];
    refused("aclnnMoeTokenUnpermuteWithRoutingMap", call, &expected);
}

#[test]
fn gradients_of_routing_follow_the_rows() {
    let places = [3i64, 0, 1, 5, 4, 2];
    let d = |dims: &[usize], values: &[f64]| Data::new(AclType::F32, dims, values).strided();
    let mut rows_of = Data::new(AclType::I32, &[6], &places.map(|place| place as f64));
    let grads = varied(12, 3);
    let (mut g, mut out) = (d(&[6, 2], &grads), Data::blank(AclType::F32, &[3, 2]));
    let call = vec![Arg::T(&mut g), Arg::T(&mut rows_of), Arg::I(2), Arg::I(0), Arg::I(0), Arg::T(&mut out)];
    run("aclnnMoeInitRoutingV2Grad", call).unwrap();
    let expected: Vec<f64> = (0..6)
        .map(|i| {
            let (token, column) = (i / 2, i % 2);
            (0..2).map(|k| grads[places[token * 2 + k] as usize * 2 + column]).sum()
        })
        .collect();
    close(&out.values(), &expected, 1e-6, "routing");
    let (dy, x, scales, bias) = (varied(6, 1), varied(12, 2), varied(6, 4), varied(4, 5));
    let chosen = [0usize, 1, 1, 0, 0, 1];
    let (mut a, mut xs, mut s, mut b) =
        (d(&[3, 2], &dy), d(&[6, 2], &x), d(&[3, 2], &scales), d(&[2, 2], &bias));
    let mut named = Data::new(AclType::I32, &[3, 2], &chosen.map(|expert| expert as f64));
    let (mut dx, mut ds) = (Data::blank(AclType::F32, &[6, 2]), Data::blank(AclType::F32, &[3, 2]));
    let mut call = vec![Arg::T(&mut a), Arg::T(&mut rows_of), Arg::T(&mut xs), Arg::T(&mut s)];
    call.extend([Arg::T(&mut named), Arg::T(&mut b), Arg::I(0), Arg::I(0), Arg::I(0), Arg::I(0)]);
    call.extend([Arg::T(&mut dx), Arg::T(&mut ds)]);
    run("aclnnMoeFinalizeRoutingV2Grad", call).unwrap();
    let (mut grads, mut slopes) = (vec![0.0; 12], vec![0.0; 6]);
    for at in 0..6 {
        let row = places[at] as usize;
        for i in 0..2 {
            grads[row * 2 + i] = dy[at / 2 * 2 + i] * scales[at];
            slopes[at] += dy[at / 2 * 2 + i] * (x[row * 2 + i] + bias[chosen[at] * 2 + i]);
        }
    }
    close(&dx.values(), &grads, 1e-6, "rows");
    close(&ds.values(), &slopes, 1e-5, "scales");
}

/// Compares with differences of the forward meaning.
#[test]
fn the_gradient_of_a_sigmoid_router_is_its_slope() {
    let (x, dy, chosen) = (varied(10, 2), varied(4, 3), [1usize, 4, 0, 2]);
    let loss = |x: &[f64]| {
        let share = |i: usize| 1.0 / (1.0 + (-x[i]).exp());
        let mut sum = 0.0;
        for row in 0..2 {
            let own = |k: usize| share(row * 5 + chosen[row * 2 + k]);
            let total = own(0) + own(1) + 0.25;
            sum += (0..2).map(|k| dy[row * 2 + k] * own(k) / total * 2.5).sum::<f64>();
        }
        sum
    };
    let shares: Vec<f64> = x.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
    let (mut s, mut g) =
        (Data::new(AclType::F32, &[2, 5], &shares), Data::new(AclType::F32, &[2, 2], &dy).strided());
    let mut named = Data::new(AclType::I32, &[2, 2], &chosen.map(|expert| expert as f64));
    let mut out = Data::blank(AclType::F32, &[2, 5]);
    let mut call = vec![Arg::T(&mut s), Arg::T(&mut g), Arg::T(&mut named), Arg::I(1), Arg::I(1)];
    call.extend([Arg::F(2.5), Arg::F(0.25), Arg::T(&mut out)]);
    run("aclnnMoeGatingTopKBackward", call).unwrap();
    let slope = |i: usize| {
        let moved = |step: f64| {
            let mut x = x.clone();
            x[i] += step;
            loss(&x)
        };
        (moved(1e-4) - moved(-1e-4)) / 2e-4
    };
    close(&out.values(), &(0..10).map(slope).collect::<Vec<_>>(), 1e-5, "slopes");
}
