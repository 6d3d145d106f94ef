//! Routers, filters of logits, steps of inference engines, and rotations by position.

use super::*;

fn softmaxed(row: &[f64]) -> Vec<f64> {
    let total: f64 = row.iter().map(|x| x.exp()).sum();
    row.iter().map(|x| x.exp() / total).collect()
}

/// The places of the `k` largest, by selection of one after another.
fn picked(scores: &[f64], k: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..scores.len()).collect();
    (0..k)
        .map(|_| {
            let best = (0..left.len())
                .fold(0, |best, i| if scores[left[i]] > scores[left[best]] { i } else { best });
            left.remove(best)
        })
        .collect()
}

#[test]
fn experts_are_chosen_within_groups() {
    let (x, bias) = (varied(3 * 8, 2), varied(8, 5));
    for (norm, select, renorm, with_bias) in
        [(0, 0, 0, false), (1, 1, 0, true), (0, 1, 1, true), (1, 0, 0, false)]
    {
        let mut a = Data::new(AclType::F32, &[3, 8], &x).strided();
        let mut b = Data::new(AclType::F32, &[8], &bias);
        let (mut y, mut experts, mut all) = (
            Data::blank(AclType::F32, &[3, 3]),
            Data::blank(AclType::I32, &[3, 3]),
            Data::blank(AclType::F32, &[3, 8]),
        );
        let mut call = vec![
            Arg::T(&mut a),
            if with_bias { Arg::T(&mut b) } else { Arg::Null },
            Arg::I(3),
            Arg::I(2),
            Arg::I(4),
        ];
        call.extend([Arg::I(select), Arg::I(renorm), Arg::I(norm), Arg::B(true), Arg::F(2.5), Arg::F(1e-20)]);
        call.extend([Arg::T(&mut y), Arg::T(&mut experts), Arg::T(&mut all)]);
        run("aclnnMoeGatingTopK", call).unwrap();
        for (row, x) in x.chunks(8).enumerate() {
            let shares: Vec<f64> =
                if norm == 1 { x.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect() } else { softmaxed(x) };
            let scores: Vec<f64> =
                (0..8).map(|i| shares[i] + if with_bias { bias[i] } else { 0.0 }).collect();
            let groups: Vec<f64> = scores
                .chunks(2)
                .map(|pair| if select == 1 { pair[0] + pair[1] } else { pair[0].max(pair[1]) })
                .collect();
            let open = picked(&groups, 2);
            let masked: Vec<f64> =
                (0..8).map(|i| if open.contains(&(i / 2)) { scores[i] } else { f64::NEG_INFINITY }).collect();
            let chosen = picked(&masked, 3);
            let total: f64 =
                if norm == 1 || renorm == 1 { chosen.iter().map(|&i| shares[i]).sum() } else { 1.0 };
            let expected: Vec<f64> = chosen.iter().map(|&i| shares[i] / total * 2.5).collect();
            let what = format!("norm {norm}, select {select}, row {row}");
            assert_eq!(
                experts.values()[row * 3..row * 3 + 3],
                chosen.iter().map(|&i| i as f64).collect::<Vec<_>>(),
                "{what}"
            );
            close(&y.values()[row * 3..row * 3 + 3], &expected, 1e-5, &what);
            close(&all.values()[row * 8..row * 8 + 8], &shares, 1e-6, &what);
        }
        let mut call =
            vec![Arg::T(&mut a), Arg::Null, Arg::I(3), Arg::I(2), Arg::I(3), Arg::I(select), Arg::I(renorm)];
        call.extend([
            Arg::I(norm),
            Arg::B(false),
            Arg::F(1.0),
            Arg::F(0.0),
            Arg::T(&mut y),
            Arg::T(&mut experts),
            Arg::Null,
        ]);
        refused("aclnnMoeGatingTopK", call, &["groupCount: expected a divisor of 8, found 3"]);
    }
}

#[test]
fn shares_of_chosen_experts_can_be_those_of_the_choice() {
    let x = varied(2 * 6, 3);
    for renorm in [0, 1] {
        let mut a = Data::new(AclType::BF16, &[2, 6], &x).strided();
        let mut finished = Data::new(AclType::Bool, &[2], &[0.0, 1.0]);
        let (mut y, mut experts, mut all) = (
            Data::blank(AclType::BF16, &[2, 2]),
            Data::blank(AclType::I32, &[2, 2]),
            Data::new(AclType::F32, &[2, 6], &[9.0; 12]),
        );
        let mut call = vec![
            Arg::T(&mut a),
            Arg::T(&mut finished),
            Arg::I(2),
            Arg::I(renorm),
            Arg::B(true),
            Arg::T(&mut y),
        ];
        call.extend([Arg::T(&mut experts), Arg::T(&mut all)]);
        run("aclnnMoeGatingTopKSoftmaxV2", call).unwrap();
        for (row, x) in x.chunks(6).enumerate() {
            let chosen = picked(x, 2);
            let shares = softmaxed(x);
            let few = softmaxed(&chosen.iter().map(|&i| x[i]).collect::<Vec<_>>());
            let expected = if renorm == 1 { few } else { chosen.iter().map(|&i| shares[i]).collect() };
            close(&y.values()[row * 2..row * 2 + 2], &expected, precision(AclType::BF16), "shares");
            let named: Vec<f64> = chosen.iter().map(|&i| if row == 1 { 6.0 } else { i as f64 }).collect();
            assert_eq!(experts.values()[row * 2..row * 2 + 2], named);
            close(
                &all.values()[row * 6..row * 6 + 6],
                &if renorm == 1 { vec![9.0; 6] } else { shares },
                1e-6,
                "all",
            );
        }
    }
    let mut sorted = Data::new(AclType::I32, &[6], &[0.0, 0.0, 2.0, 2.0, 2.0, 3.0]);
    let mut ends = Data::blank(AclType::I32, &[5]);
    run("aclnnMoeComputeExpertTokens", vec![Arg::T(&mut sorted), Arg::I(5), Arg::T(&mut ends)]).unwrap();
    assert_eq!(ends.values(), [2.0, 2.0, 5.0, 6.0, 6.0]);
    let mut mixed = Data::new(AclType::I32, &[2], &[1.0, 0.0]);
    refused(
        "aclnnMoeComputeExpertTokens",
        vec![Arg::T(&mut mixed), Arg::I(5), Arg::T(&mut ends)],
        &["numbers that ascend"],
    );
}

#[test]
fn unlikely_logits_are_removed() {
    let logits = [1.0, 3.0, -2.0, 0.5, 2.0, 2.5, 2.0, 2.0, 0.0, -1.0];
    let (p, k) = ([0.7, 0.9], [4.0, 2.0]);
    for (with_p, with_k) in [(true, true), (true, false), (false, true)] {
        let mut x = Data::new(AclType::F32, &[2, 5], &logits).strided();
        let (mut a, mut b) = (Data::new(AclType::F32, &[2], &p), Data::new(AclType::I32, &[2], &k));
        let mut out = Data::blank(AclType::F32, &[2, 5]).strided();
        let mut call = vec![Arg::T(&mut x)];
        call.push(if with_p { Arg::T(&mut a) } else { Arg::Null });
        call.push(if with_k { Arg::T(&mut b) } else { Arg::Null });
        call.push(Arg::T(&mut out));
        run("aclnnApplyTopKTopP", call).unwrap();
        for (row, values) in logits.chunks(5).enumerate() {
            let mut kept = values.to_vec();
            if with_k {
                // As many larger logits as k - 1 at most.
                let larger = |x: f64| values.iter().filter(|other| **other > x).count();
                kept.iter_mut().for_each(|x| {
                    if larger(*x) >= k[row] as usize {
                        *x = f64::NEG_INFINITY;
                    }
                });
            }
            if with_p {
                let mut order: Vec<usize> = (0..5).collect();
                order.sort_by(|&i, &j| kept[i].total_cmp(&kept[j]).then(i.cmp(&j)));
                let shares = softmaxed(&kept);
                let below = |at: usize| order[..=at].iter().map(|&i| shares[i]).sum::<f64>();
                let drop: Vec<usize> =
                    (0..4).filter(|&at| below(at) <= 1.0 - p[row]).map(|at| order[at]).collect();
                drop.into_iter().for_each(|i| kept[i] = f64::NEG_INFINITY);
            }
            assert_eq!(out.values()[row * 5..row * 5 + 5], kept, "p {with_p}, k {with_k}");
        }
    }
    let (mut x, mut out) = (Data::new(AclType::F32, &[2, 5], &logits), Data::blank(AclType::F32, &[2, 5]));
    let mut many = Data::new(AclType::I32, &[2], &[4.0, 6.0]);
    refused(
        "aclnnApplyTopKTopP",
        vec![Arg::T(&mut x), Arg::Null, Arg::T(&mut many), Arg::T(&mut out)],
        &["k: expected 1 to 5, found 6"],
    );
    refused(
        "aclnnApplyTopKTopP",
        vec![Arg::T(&mut x), Arg::Null, Arg::Null, Arg::T(&mut out)],
        &["p: expected p or k"],
    );
}

#[test]
fn steps_advance_sequences() {
    let v = |values: &[f64]| Data::new(AclType::I64, &[values.len()], values);
    let (mut tokens, mut places, mut lens, mut slots) =
        (v(&[1.0, 2.0, 3.0]), v(&[0.0; 3]), v(&[5.0, 8.0, 3.0]), v(&[0.0; 3]));
    let mut sampled = Data::new(AclType::I64, &[2, 1], &[70.0, 80.0]);
    let mut tables = Data::new(AclType::I64, &[3, 3], &[4.0, 9.0, 1.0, 2.0, 3.0, 7.0, 5.0, 6.0, 8.0]);
    let mut call = vec![
        Arg::T(&mut tokens),
        Arg::T(&mut sampled),
        Arg::T(&mut places),
        Arg::T(&mut lens),
        Arg::T(&mut slots),
    ];
    call.extend([Arg::T(&mut tables), Arg::I(3), Arg::I(2), Arg::I(4)]);
    run("aclnnAdvanceStep", call).unwrap();
    assert_eq!(tokens.values(), [70.0, 80.0, 3.0]);
    assert_eq!((places.values(), lens.values()), (vec![5.0, 8.0, 0.0], vec![6.0, 9.0, 3.0]));
    // Position 5 is place 1 of block 1, position 8 place 0 of block 2.
    assert_eq!(slots.values(), [9.0 * 4.0 + 1.0, 7.0 * 4.0, 0.0]);
    let mut call = vec![
        Arg::T(&mut tokens),
        Arg::T(&mut sampled),
        Arg::T(&mut places),
        Arg::T(&mut lens),
        Arg::T(&mut slots),
    ];
    call.extend([Arg::T(&mut tables), Arg::I(3), Arg::I(2), Arg::I(2)]);
    refused("aclnnAdvanceStep", call, &["seqLens: expected 0 to 5 for sequence 0, found 6"]);
}

#[test]
fn heads_turn_by_their_positions() {
    let (query, key, table) = (varied(2 * 12, 1), varied(2 * 6, 4), varied(5 * 4, 7));
    for (neox, sections) in
        [(true, &[][..]), (false, &[0, 0, 0][..]), (true, &[1, 0, 1][..]), (false, &[0, 2, 0][..])]
    {
        let is_plain = sections.iter().all(|&part| part == 0);
        let at = if is_plain { vec![3.0, 1.0] } else { vec![3.0, 1.0, 0.0, 2.0, 4.0, 1.0] };
        let mut places = Data::new(AclType::I64, if is_plain { &[2] } else { &[3, 2] }, &at);
        let (mut q, mut k) =
            (Data::new(AclType::F32, &[2, 12], &query).strided(), Data::new(AclType::F32, &[2, 6], &key));
        let mut cache = Data::new(AclType::F32, &[5, 4], &table);
        let (mut q_out, mut k_out) =
            (Data::blank(AclType::F32, &[2, 12]), Data::blank(AclType::F32, &[2, 6]).strided());
        let mut call = vec![
            Arg::T(&mut places),
            Arg::T(&mut q),
            Arg::T(&mut k),
            Arg::T(&mut cache),
            Arg::Ints(sections),
        ];
        call.extend([Arg::I(6), Arg::B(neox), Arg::T(&mut q_out), Arg::T(&mut k_out)]);
        run("aclnnRopeWithSinCosCache", call).unwrap();
        let row_of = |pair: usize| match sections {
            [first, ..] if is_plain || (pair as i64) < *first => 0,
            [first, second, _] => {
                if (pair as i64) < first + second {
                    1
                } else {
                    2
                }
            }
            _ => 0,
        };
        let turned = |values: &[f64], heads: usize| -> Vec<f64> {
            let mut out = values.to_vec();
            for (token, head, pair) in
                (0..2).flat_map(|t| (0..heads).flat_map(move |h| (0..2).map(move |p| (t, h, p))))
            {
                let place = at[row_of(pair) * 2 + token] as usize;
                let (cos, sin) = (table[place * 4 + pair], table[place * 4 + 2 + pair]);
                let base = (token * heads + head) * 6;
                let (i, j) = if neox {
                    (base + pair, base + 2 + pair)
                } else {
                    (base + 2 * pair, base + 2 * pair + 1)
                };
                out[i] = values[i] * cos - values[j] * sin;
                out[j] = values[j] * cos + values[i] * sin;
            }
            out
        };
        close(&q_out.values(), &turned(&query, 2), 1e-5, "query");
        close(&k_out.values(), &turned(&key, 1), 1e-5, "key");
        let mut far = Data::new(AclType::I64, &[2], &[5.0, 0.0]);
        let mut call =
            vec![Arg::T(&mut far), Arg::T(&mut q), Arg::T(&mut k), Arg::T(&mut cache), Arg::NoInts];
        call.extend([Arg::I(6), Arg::B(neox), Arg::T(&mut q_out), Arg::T(&mut k_out)]);
        refused("aclnnRopeWithSinCosCache", call, &["positions: expected 0 to 4, found 5"]);
    }
}

#[test]
fn attention_of_several_devices_is_merged() {
    let (sums, parts) =
        ([varied(4, 1), varied(4, 5), varied(4, 8)], [varied(12, 2), varied(12, 3), varied(12, 7)]);
    for dtype in [AclType::F32, AclType::BF16] {
        for kind in [0, 1] {
            let mut lse = sums.each_ref().map(|sums| Data::new(AclType::F32, &[4], sums));
            let mut local = parts.each_ref().map(|part| Data::new(dtype, &[4, 3], part).strided());
            let (mut out, mut total) =
                (Data::blank(dtype, &[4, 3]).strided(), Data::new(AclType::F32, &[4], &[9.0; 4]));
            let mut call = vec![
                Arg::List(lse.iter_mut().collect()),
                Arg::List(local.iter_mut().collect()),
                Arg::I(kind),
            ];
            call.extend([Arg::T(&mut out), Arg::T(&mut total)]);
            run("aclnnAttentionUpdate", call).unwrap();
            let whole: Vec<f64> =
                (0..4).map(|row| sums.iter().map(|sums| sums[row].exp()).sum::<f64>()).collect();
            let merged =
                |at: usize| (0..3).map(|i| parts[i][at] * sums[i][at / 3].exp() / whole[at / 3]).sum::<f64>();
            close(&out.values(), &(0..12).map(merged).collect::<Vec<_>>(), precision(dtype), "merged");
            let logs = if kind == 1 { whole.iter().map(|sum| sum.ln()).collect() } else { vec![9.0; 4] };
            close(&total.values(), &logs, 1e-6, "logarithms");
        }
    }
    let (mut lse, mut part) = (Data::blank(AclType::F32, &[4]), Data::blank(AclType::F32, &[4, 3]));
    let mut out = Data::blank(AclType::F32, &[4, 3]);
    let call =
        vec![Arg::List(vec![&mut lse]), Arg::List(vec![&mut part]), Arg::I(2), Arg::T(&mut out), Arg::Null];
    refused("aclnnAttentionUpdate", call, &["updateType: expected 0 to 1, found 2"]);
}

#[test]
fn interleaved_rows_turn_as_halves() {
    let (x, cos, sin) = (varied(2 * 2 * 64, 1), varied(2 * 64, 4), varied(2 * 64, 6));
    let d = |dims: &[usize], values: &[f64]| Data::new(AclType::F32, dims, values).strided();
    let (mut a, mut c, mut s) = (d(&[1, 2, 2, 64], &x), d(&[1, 1, 2, 64], &cos), d(&[1, 1, 2, 64], &sin));
    let mut out = Data::blank(AclType::F32, &[1, 2, 2, 64]).strided();
    run("aclnnInterleaveRope", vec![Arg::T(&mut a), Arg::T(&mut c), Arg::T(&mut s), Arg::T(&mut out)])
        .unwrap();
    let mut expected = Vec::new();
    for (row, values) in x.chunks(64).enumerate() {
        let table = row % 2 * 64;
        let even = |i: usize| values[2 * i];
        let odd = |i: usize| values[2 * i + 1];
        expected.extend((0..32).map(|i| even(i) * cos[table + i] - odd(i) * sin[table + i]));
        expected.extend((0..32).map(|i| odd(i) * cos[table + 32 + i] + even(i) * sin[table + 32 + i]));
    }
    close(&out.values(), &expected, 1e-5, "interleaved");
    let (mut short, mut to) = (d(&[1, 1, 1, 32], &x[..32]), Data::blank(AclType::F32, &[1, 1, 1, 32]));
    let call = vec![Arg::T(&mut short), Arg::T(&mut c), Arg::T(&mut s), Arg::T(&mut to)];
    refused("aclnnInterleaveRope", call, &["x: expected a last dim of 64"]);
}
