//! Training attention over packed sequences against the definition, and its gradients.

use super::*;

const HEADS: usize = 4;
const KEY_HEADS: usize = 2;
const DEPTH: usize = 8;
const SCALE: f64 = 0.25;

/// Ends of queries and keys, and which pairs are hidden.
#[derive(Clone, Copy)]
struct Case {
    mode: i64,
    queries: &'static [i64],
    keys: &'static [i64],
}

const CASES: [Case; 4] = [
    Case { mode: 0, queries: &[3, 3, 7], keys: &[4, 6, 9] },
    Case { mode: 1, queries: &[3, 7], keys: &[4, 9] },
    Case { mode: 2, queries: &[3, 7], keys: &[3, 7] },
    Case { mode: 3, queries: &[3, 7], keys: &[5, 12] },
];

fn hidden(case: Case, row: usize, key: usize, lens: [usize; 2]) -> bool {
    match case.mode {
        1 => (row + 2 * key) % 5 == 1,
        2 => key > row,
        3 => key + lens[0] > row + lens[1],
        _ => false,
    }
}

/// Returns the output, the greatest scores and the sums, in f64.
fn attended(case: Case, q: &[f64], k: &[f64], v: &[f64]) -> [Vec<f64>; 3] {
    let tokens = *case.queries.last().unwrap() as usize;
    let [mut out, mut most, mut sums] =
        [tokens * HEADS * DEPTH, tokens * HEADS, tokens * HEADS].map(|len| vec![0.0; len]);
    let starts = |ends: &[i64], i: usize| if i == 0 { 0 } else { ends[i - 1] as usize };
    for i in 0..case.queries.len() {
        let (first, key_first) = (starts(case.queries, i), starts(case.keys, i));
        let lens = [case.queries[i] as usize - first, case.keys[i] as usize - key_first];
        for (row, head) in (0..lens[0]).flat_map(|row| (0..HEADS).map(move |head| (row, head))) {
            let at = (first + row) * HEADS + head;
            let of = |key: usize| ((key_first + key) * KEY_HEADS + head / (HEADS / KEY_HEADS)) * DEPTH;
            let seen: Vec<usize> = (0..lens[1]).filter(|&key| !hidden(case, row, key, lens)).collect();
            let score =
                |key: usize| SCALE * (0..DEPTH).map(|d| q[at * DEPTH + d] * k[of(key) + d]).sum::<f64>();
            let scores: Vec<f64> = seen.iter().map(|&key| score(key)).collect();
            most[at] = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            sums[at] = scores.iter().map(|score| (score - most[at]).exp()).sum();
            for (key, score) in seen.iter().zip(&scores) {
                let share = (score - most[at]).exp() / sums[at];
                (0..DEPTH).for_each(|d| out[at * DEPTH + d] += share * v[of(*key) + d]);
            }
        }
    }
    [out, most, sums]
}

fn mask_of(case: Case) -> Option<Data> {
    match case.mode {
        1 => {
            let values = (0..4 * 5)
                .map(|i| f64::from(u8::from(hidden(case, i / 5, i % 5, [0, 0]))))
                .collect::<Vec<_>>();
            Some(Data::new(AclType::Bool, &[4, 5], &values))
        }
        2 | 3 => {
            let values: Vec<f64> =
                (0..2048 * 2048).map(|i| f64::from(u8::from(i % 2048 > i / 2048))).collect();
            Some(Data::new(AclType::Bool, &[2048, 2048], &values))
        }
        _ => None,
    }
}

struct Packed {
    case: Case,
    tensors: [Data; 3],
    mask: Option<Data>,
    results: [Data; 3],
}

impl Packed {
    fn new(case: Case, dtype: AclType) -> Self {
        let tokens = *case.queries.last().unwrap() as usize;
        let keys = *case.keys.last().unwrap() as usize;
        let d = |dims: &[usize], seed| {
            let values: Vec<f64> = varied(dims.iter().product(), seed).iter().map(|x| x / 2.0).collect();
            Data::new(dtype, dims, &values).strided()
        };
        let tensors =
            [d(&[tokens, HEADS, DEPTH], 1), d(&[keys, KEY_HEADS, DEPTH], 4), d(&[keys, KEY_HEADS, DEPTH], 7)];
        let statistics = || Data::blank(AclType::F32, &[tokens, HEADS, 8]);
        let results = [statistics(), statistics(), Data::blank(dtype, &[tokens, HEADS, DEPTH]).strided()];
        Self { case, tensors, mask: mask_of(case), results }
    }

    fn run(&mut self, second: bool, layout: &'static str) -> Result<(), String> {
        let [q, k, v] = &mut self.tensors;
        let mask = self.mask.as_mut().map_or(Arg::Null, Arg::T);
        let mut call =
            vec![Arg::T(q), Arg::T(k), Arg::T(v), Arg::Null, Arg::Null, Arg::Null, mask, Arg::NoInts];
        call.extend([Arg::Ints(self.case.queries), Arg::Ints(self.case.keys)]);
        if second {
            call.extend([Arg::NoInts, Arg::NoInts]);
        }
        call.extend([
            Arg::F(SCALE),
            Arg::F(1.0),
            Arg::I(65536),
            Arg::I(65536),
            Arg::I(HEADS as i64),
            Arg::Text(layout),
        ]);
        call.extend([Arg::I(0), Arg::I(self.case.mode)]);
        if second {
            call.push(Arg::I(1));
        }
        let [max, sum, out] = &mut self.results;
        call.extend([Arg::T(max), Arg::T(sum), Arg::Null, Arg::T(out)]);
        run(if second { "aclnnFlashAttentionVarLenScoreV2" } else { "aclnnFlashAttentionVarLenScore" }, call)
    }
}

fn copies(values: &[f64]) -> Vec<f64> {
    values.iter().flat_map(|value| [*value; 8]).collect()
}

/// Orders values of tokens and heads by sequence, head and token.
fn by_head(case: Case, values: &[f64]) -> Vec<f64> {
    let mut ordered = Vec::new();
    let mut first = 0;
    for &end in case.queries {
        let tokens = first..end as usize;
        ordered.extend(
            (0..HEADS).flat_map(|head| tokens.clone().map(move |token| values[token * HEADS + head])),
        );
        first = end as usize;
    }
    ordered
}

#[test]
fn packed_sequences_attend_to_their_own_keys() {
    for (at, case) in CASES.into_iter().enumerate() {
        for dtype in if at == 0 { &FLOATS[..] } else { &FLOATS[..1] } {
            let mut packed = Packed::new(case, *dtype);
            packed.run(at % 2 == 1, "TND").unwrap();
            let [q, k, v] = packed.tensors.each_ref().map(Data::values);
            let [out, most, sums] = attended(case, &q, &k, &v);
            let what = format!("{dtype}, mode {}", case.mode);
            close(&packed.results[2].values(), &out, precision(*dtype), &what);
            close(&packed.results[0].values(), &copies(&by_head(case, &most)), 1e-5, &what);
            close(&packed.results[1].values(), &copies(&by_head(case, &sums)), 1e-4, &what);
        }
    }
    let mut packed = Packed::new(CASES[0], AclType::F32);
    assert!(packed.run(false, "BSND").unwrap_err().contains("inputLayout: expected TND, found \"BSND\""));
    packed.case.keys = &[4, 9];
    assert!(
        packed.run(false, "TND").unwrap_err().contains("actualSeqKvLenOptional: expected 3 ends, found 2")
    );
    packed.case.keys = &[4, 6, 8];
    assert!(packed.run(false, "TND").unwrap_err().contains("expected ends that ascend to 9"));
    packed.case.keys = &[0, 6, 9];
    assert!(packed.run(false, "TND").unwrap_err().contains("sequence 0 has queries, but no keys"));
}

#[test]
fn gradients_of_packed_sequences_are_differences() {
    for (at, case) in CASES.into_iter().enumerate() {
        let mut packed = Packed::new(case, AclType::F32);
        packed.run(false, "TND").unwrap();
        let values = packed.tensors.each_ref().map(Data::values);
        let up = varied(values[0].len(), 11);
        let mut grads =
            packed.tensors.each_ref().map(|tensor| Data::blank(AclType::F32, &tensor.dims).strided());
        let mut dy = Data::new(AclType::F32, &packed.tensors[0].dims, &up);
        let [q, k, v] = &mut packed.tensors;
        let mask = packed.mask.as_mut().map_or(Arg::Null, Arg::T);
        let [max, sum, out] = &mut packed.results;
        let mut call =
            vec![Arg::T(q), Arg::T(k), Arg::T(v), Arg::T(&mut dy), Arg::Null, Arg::Null, Arg::Null, mask];
        call.extend([Arg::T(max), Arg::T(sum), Arg::Null, Arg::T(out), Arg::NoInts]);
        call.extend([Arg::Ints(case.queries), Arg::Ints(case.keys)]);
        let second = at % 2 == 0;
        if second {
            call.extend([Arg::NoInts, Arg::NoInts]);
        }
        call.extend([
            Arg::F(SCALE),
            Arg::F(1.0),
            Arg::I(65536),
            Arg::I(65536),
            Arg::I(HEADS as i64),
            Arg::Text("TND"),
        ]);
        call.extend([Arg::I(0), Arg::I(case.mode)]);
        if second {
            call.push(Arg::I(1));
        }
        let [dq, dk, dv] = &mut grads;
        call.extend([Arg::T(dq), Arg::T(dk), Arg::T(dv), Arg::Null]);
        run(
            if second {
                "aclnnFlashAttentionUnpaddingScoreGradV2"
            } else {
                "aclnnFlashAttentionUnpaddingScoreGrad"
            },
            call,
        )
        .unwrap();
        let loss = |values: &[Vec<f64>; 3]| {
            let [out, ..] = attended(case, &values[0], &values[1], &values[2]);
            out.iter().zip(&up).map(|(out, up)| out * up).sum::<f64>()
        };
        for (which, grad) in grads.iter().enumerate() {
            // Every seventh element.
            let found: Vec<f64> = grad.values().into_iter().step_by(7).collect();
            let slope = |i: usize| {
                let at = |by: f64| {
                    let mut moved = values.clone();
                    moved[which][i] += by;
                    loss(&moved)
                };
                (at(1e-5) - at(-1e-5)) / 2e-5
            };
            let expected: Vec<f64> = (0..values[which].len()).step_by(7).map(slope).collect();
            close(&found, &expected, 1e-4, &format!("mode {}, tensor {which}", case.mode));
        }
    }
}

/// The text of a layout stores the statistics by token, for the gradient as well.
#[test]
fn statistics_are_stored_by_head_or_by_token() {
    let case = CASES[0];
    let mut found = Vec::new();
    for layout in ["", "same_as_input"] {
        let mut packed = Packed::new(case, AclType::F32);
        let values = packed.tensors.each_ref().map(Data::values);
        let up = varied(values[0].len(), 11);
        let mut dy = Data::new(AclType::F32, &packed.tensors[0].dims, &up);
        let mut grads = packed.tensors.each_ref().map(|tensor| Data::blank(AclType::F32, &tensor.dims));
        let [q, k, v] = &mut packed.tensors;
        let [max, sum, out] = &mut packed.results;
        let shared = || {
            vec![
                ("actualSeqQLenOptional", Arg::Ints(case.queries)),
                ("actualSeqKvLenOptional", Arg::Ints(case.keys)),
                ("scaleValue", Arg::F(SCALE)),
                ("keepProb", Arg::F(1.0)),
                ("preTokens", Arg::I(65536)),
                ("nextTokens", Arg::I(65536)),
                ("headNum", Arg::I(HEADS as i64)),
                ("inputLayout", Arg::Text("TND")),
            ]
        };
        let mut call = shared();
        call.extend([("query", Arg::T(q)), ("key", Arg::T(k)), ("value", Arg::T(v))]);
        call.extend([("softmaxMaxOut", Arg::T(max)), ("softmaxSumOut", Arg::T(sum))]);
        call.extend([("attentionOutOut", Arg::T(out)), ("softmaxOutLayout", Arg::Text(layout))]);
        let name = "aclnnFlashAttentionVarLenScoreV4";
        run(name, named(name, call)).unwrap();
        let [_, most, sums] = attended(case, &values[0], &values[1], &values[2]);
        let order =
            |values: &[f64]| copies(&if layout.is_empty() { by_head(case, values) } else { values.to_vec() });
        close(&packed.results[0].values(), &order(&most), 1e-5, layout);
        close(&packed.results[1].values(), &order(&sums), 1e-4, layout);
        let ([q, k, v], [max, sum, out]) = (&mut packed.tensors, &mut packed.results);
        let [dq, dk, dv] = &mut grads;
        let mut call = shared();
        call.extend([
            ("query", Arg::T(q)),
            ("keyIn", Arg::T(k)),
            ("value", Arg::T(v)),
            ("dy", Arg::T(&mut dy)),
        ]);
        call.extend([("softmaxMaxOptional", Arg::T(max)), ("softmaxSumOptional", Arg::T(sum))]);
        call.extend([("attentionInOptional", Arg::T(out)), ("softmaxInLayout", Arg::Text(layout))]);
        call.extend([("dqOut", Arg::T(dq)), ("dkOut", Arg::T(dk)), ("dvOut", Arg::T(dv))]);
        let name = "aclnnFlashAttentionUnpaddingScoreGradV4";
        run(name, named(name, call)).unwrap();
        found.push(grads.each_ref().map(Data::values));
    }
    assert_eq!(found[0], found[1]);
}

/// The second forms have the bits of the first ones.
#[test]
fn the_second_forms_only_add_start_indexes() {
    let d = |seed| Data::new(AclType::F16, &[1, 4, 2, 16], &varied(128, seed));
    let (mut q, mut k, mut v, mut up) = (d(1), d(2), d(3), d(4));
    let mut both = Vec::new();
    for second in [false, true] {
        let start = || if second { vec![Arg::NoInts, Arg::NoInts] } else { Vec::new() };
        let kind = || if second { vec![Arg::I(1)] } else { Vec::new() };
        let statistics = || Data::blank(AclType::F32, &[1, 2, 4, 8]);
        let (mut max, mut sum, mut out) =
            (statistics(), statistics(), Data::blank(AclType::F16, &[1, 4, 2, 16]));
        let mut call = vec![
            Arg::T(&mut q),
            Arg::T(&mut k),
            Arg::T(&mut v),
            Arg::Null,
            Arg::Null,
            Arg::Null,
            Arg::Null,
            Arg::NoInts,
        ];
        call.extend(start());
        let shared = || {
            [
                Arg::F(0.25),
                Arg::F(1.0),
                Arg::I(65536),
                Arg::I(65536),
                Arg::I(2),
                Arg::Text("BSND"),
                Arg::I(0),
                Arg::I(0),
            ]
        };
        call.extend(shared());
        call.extend(kind());
        call.extend([Arg::T(&mut max), Arg::T(&mut sum), Arg::Null, Arg::T(&mut out)]);
        run(if second { "aclnnFlashAttentionScoreV2" } else { "aclnnFlashAttentionScore" }, call).unwrap();
        let mut grads = [d(0), d(0), d(0)];
        let mut call = vec![
            Arg::T(&mut q),
            Arg::T(&mut k),
            Arg::T(&mut v),
            Arg::T(&mut up),
            Arg::Null,
            Arg::Null,
            Arg::Null,
            Arg::Null,
        ];
        call.extend([Arg::T(&mut max), Arg::T(&mut sum), Arg::Null, Arg::T(&mut out), Arg::NoInts]);
        call.extend(start());
        call.extend(shared());
        call.extend(kind());
        let [dq, dk, dv] = &mut grads;
        call.extend([Arg::T(dq), Arg::T(dk), Arg::T(dv), Arg::Null]);
        run(if second { "aclnnFlashAttentionScoreGradV2" } else { "aclnnFlashAttentionScoreGrad" }, call)
            .unwrap();
        both.push([out.values(), grads[0].values(), grads[1].values(), grads[2].values()]);
    }
    assert_eq!(both[0], both[1]);
}
