//! Ring attention update against attention over all keys.

use super::*;

struct Case {
    dtype: AclType,
    layout: &'static str,
    batch: usize,
    heads: usize,
    rows: usize,
    depth: usize,
    strided: bool,
}

/// One statistic per row, by batch, head and row.
struct Share {
    out: Vec<f64>,
    max: Vec<f64>,
    sum: Vec<f64>,
}

impl Case {
    fn new(dtype: AclType, layout: &'static str) -> Self {
        Self {
            dtype,
            layout,
            batch: if layout == "TND" { 1 } else { 2 },
            heads: 3,
            rows: 70,
            depth: 64,
            strided: false,
        }
    }

    fn share(&self, keys: std::ops::Range<usize>) -> Share {
        let (mut share, count) =
            (Share { out: Vec::new(), max: Vec::new(), sum: Vec::new() }, self.batch * self.heads);
        for row in 0..count * self.rows {
            let score = |key: usize| ((row * 31 + key * 17) % 23) as f64 / 3.0 - 4.0;
            let max = keys.clone().map(score).fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = keys.clone().map(|key| (score(key) - max).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let value = |key: usize, d: usize| ((key * 7 + d * 5) % 11) as f64 / 4.0 - 1.0;
            for d in 0..self.depth {
                let all = keys.clone().zip(&weights).map(|(key, weight)| weight * value(key, d)).sum::<f64>();
                share.out.push(all / sum);
            }
            share.max.push(max);
            share.sum.push(sum);
        }
        share
    }

    fn laid(&self, values: &[f64], dtype: AclType, width: usize, is_out: bool) -> Data {
        let (b, n, s) = (self.batch, self.heads, self.rows);
        let at = |index: [usize; 4]| values[((index[0] * n + index[1]) * s + index[2]) * width + index[3]];
        let mut all = Vec::with_capacity(values.len());
        let dims = match (self.layout, is_out) {
            ("SBH" | "BSH", true) => {
                for (row, batch) in (0..s).flat_map(|row| (0..b).map(move |batch| (row, batch))) {
                    all.extend((0..n * width).map(|of| at([batch, of / width, row, of % width])));
                }
                vec![s, b, n * width]
            }
            ("TND", _) => {
                for row in 0..s {
                    all.extend((0..n * width).map(|of| at([0, of / width, row, of % width])));
                }
                vec![s, n, width]
            }
            _ => {
                all.extend_from_slice(values);
                vec![b, n, s, width]
            }
        };
        let data = Data::new(dtype, &dims, &all);
        if self.strided { data.strided() } else { data }
    }

    fn eight(&self, values: &[f64]) -> Data {
        let copies: Vec<f64> = values.iter().flat_map(|value| [*value; 8]).collect();
        self.laid(&copies, AclType::F32, 8, false)
    }

    fn run(&self, both: [&Share; 2]) -> Result<[Data; 3], String> {
        let data = |share: &Share| {
            let out = self.laid(&share.out, self.dtype, self.depth, true);
            [out, self.eight(&share.max), self.eight(&share.sum)]
        };
        let (mut before, mut more) = (data(both[0]), data(both[1]));
        let mut found = data(&Share {
            out: vec![7.0; both[0].out.len()],
            max: vec![7.0; both[0].max.len()],
            sum: vec![7.0; both[0].sum.len()],
        });
        let mut ends = Data::new(AclType::I64, &[3], &[0.0, 30.0, self.rows as f64]);
        let mut arguments: Vec<Arg<'_>> = before.iter_mut().chain(&mut more).map(Arg::T).collect();
        arguments.push(if self.layout == "TND" { Arg::T(&mut ends) } else { Arg::Null });
        arguments.push(Arg::Text(self.layout));
        arguments.extend(found.iter_mut().map(Arg::T));
        run("aclnnRingAttentionUpdate", arguments)?;
        Ok(found)
    }

    #[track_caller]
    fn agrees(&self) {
        let [some, others, all] = [0..5, 5..12, 0..12].map(|keys| self.share(keys));
        let found = self.run([&some, &others]).unwrap();
        let wanted =
            [self.laid(&all.out, self.dtype, self.depth, true), self.eight(&all.max), self.eight(&all.sum)];
        let what = format!("{} {}", self.layout, self.dtype);
        let bounds = [precision(self.dtype), 1e-6, 1e-5];
        for (at, ((found, wanted), bound)) in found.iter().zip(&wanted).zip(bounds).enumerate() {
            close(&found.values(), &wanted.values(), bound, &format!("{what}: {at}"));
        }
    }
}

#[test]
fn attention_to_some_keys_and_to_others_is_attention_to_all() {
    for dtype in FLOATS {
        for layout in ["SBH", "TND"] {
            Case::new(dtype, layout).agrees();
            Case { strided: true, ..Case::new(dtype, layout) }.agrees();
        }
        Case { depth: 10, heads: 1, rows: 3, ..Case::new(dtype, "SBH") }.agrees();
    }
}

#[test]
fn rows_that_saw_nothing_add_nothing() {
    let case = Case::new(AclType::F32, "SBH");
    let seen = case.share(0..4);
    let rows = seen.max.len();
    let blind =
        Share { out: vec![0.0; seen.out.len()], max: vec![f64::from(f32::MIN); rows], sum: vec![0.0; rows] };
    let wanted =
        [case.laid(&seen.out, case.dtype, case.depth, true), case.eight(&seen.max), case.eight(&seen.sum)];
    for both in [[&seen, &blind], [&blind, &seen]] {
        for (found, wanted) in case.run(both).unwrap().iter().zip(&wanted) {
            close(&found.values(), &wanted.values(), 1e-6, "one of both");
        }
    }
    assert!(case.run([&blind, &blind]).unwrap()[0].values().iter().all(|value| value.is_nan()));
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |case: Case, part: &str| {
        let share = case.share(0..2);
        let message = case.run([&share, &share]).expect_err("must be refused");
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    };
    refused(
        Case { layout: "BSH", ..Case::new(AclType::F16, "SBH") },
        "inputLayoutOptional: expected SBH or TND, found BSH",
    );
    refused(Case { depth: 10, ..Case::new(AclType::F16, "TND") }, "D up to 768, a multiple of 64");
    refused(
        Case { rows: 20, ..Case::new(AclType::F16, "TND") },
        "expected numbers that ascend from 0 to T = 20",
    );
    refused(Case { rows: 0, ..Case::new(AclType::F16, "SBH") }, "not empty");
}
