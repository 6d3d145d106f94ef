//! Fused attention operators.

use super::*;
use crate::dtype::AclType;

const SCALE: f64 = 0.3;

#[derive(Clone)]
struct Case {
    dtype: AclType,
    layout: &'static str,
    batch: usize,
    heads: usize,
    kv_heads: usize,
    rows: usize,
    keys: usize,
    depth: usize,
    mask: Option<Data>,
    row_lengths: Option<Vec<i64>>,
    key_lengths: Option<Vec<i64>>,
    sparse_mode: i64,
    before: i64,
    after: i64,
    sums: bool,
    listed: bool,
    /// Of each batch, or of all if one.
    bias: Option<Data>,
}

impl Case {
    fn new(dtype: AclType, layout: &'static str, rows: usize, keys: usize) -> Self {
        Self {
            dtype,
            layout,
            batch: 2,
            heads: 4,
            kv_heads: 2,
            rows,
            keys,
            depth: 16,
            mask: None,
            row_lengths: None,
            key_lengths: None,
            sparse_mode: 0,
            before: 2_147_483_647,
            after: 2_147_483_647,
            sums: false,
            listed: false,
            bias: None,
        }
    }

    fn dims(&self, order: &str, batch: usize, heads: usize, len: usize) -> Vec<usize> {
        match order {
            "BSH" => vec![batch, len, heads * self.depth],
            "BSND" => vec![batch, len, heads, self.depth],
            _ => vec![batch, heads, len, self.depth],
        }
    }

    fn place(&self, order: &str, heads: usize, len: usize, [b, n, s, d]: [usize; 4]) -> usize {
        match order {
            "BNSD" => ((b * heads + n) * len + s) * self.depth + d,
            _ => ((b * len + s) * heads + n) * self.depth + d,
        }
    }

    fn run(&self, sees: impl Fn(usize, usize, usize) -> bool) -> Result<[Vec<f64>; 2], String> {
        let (input, output) = self.layout.split_once('_').unwrap_or((self.layout, self.layout));
        let values = |n: usize, seed| {
            varied(n, seed).iter().map(|&v| rounded(v / 2.0, self.dtype)).collect::<Vec<_>>()
        };
        let q = values(self.batch * self.heads * self.rows * self.depth, 1);
        let k = values(self.batch * self.kv_heads * self.keys * self.depth, 2);
        let v = values(self.batch * self.kv_heads * self.keys * self.depth, 3);
        let (out, sums) = self.play("aclnnFusedInferAttentionScoreV2", 0, input, output, [&q, &k, &v])?;
        let (third, _) = self.play("aclnnFusedInferAttentionScoreV3", 3, input, output, [&q, &k, &v])?;
        assert_eq!(out.values(), third.values());

        let (wanted, logs) = self.defined(input, output, [&q, &k, &v], sees);
        if self.sums {
            close(&sums.values(), &logs, 1e-4, "log-sum-exp");
        }
        Ok([out.values(), wanted])
    }

    fn play<'a>(
        &'a self,
        name: &str,
        more: usize,
        input: &str,
        output: &str,
        [q, k, v]: [&[f64]; 3],
    ) -> Result<(Data, Data), String> {
        let mut query = Data::new(self.dtype, &self.dims(input, self.batch, self.heads, self.rows), q);
        let parts = |all: &[f64]| -> Vec<Data> {
            let count = if self.listed { self.batch } else { 1 };
            let batch = self.batch / count;
            let dims = self.dims(input, batch, self.kv_heads, self.keys);
            let len = all.len() / count;
            (0..count).map(|i| Data::new(self.dtype, &dims, &all[i * len..(i + 1) * len])).collect()
        };
        let (mut key, mut value) = (parts(k), parts(v));
        let mut out = Data::blank(self.dtype, &self.dims(output, self.batch, self.heads, self.rows));
        let mut sums = Data::blank(AclType::F32, &[self.batch, self.heads, self.rows, 1]);
        let (mut mask, mut bias) = (self.mask.clone(), self.bias.clone());
        let lengths = |values: &'a Option<Vec<i64>>| values.as_deref().map_or(Arg::NoInts, Arg::Ints);
        let mut arguments = vec![
            Arg::T(&mut query),
            Arg::List(key.iter_mut().collect()),
            Arg::List(value.iter_mut().collect()),
            bias.as_mut().map_or(Arg::Null, Arg::T),
            mask.as_mut().map_or(Arg::Null, Arg::T),
            lengths(&self.row_lengths),
            lengths(&self.key_lengths),
        ];
        arguments.extend(none(16));
        arguments.push(Arg::NoInts);
        arguments.extend(none(more));
        arguments.extend([
            Arg::I(self.heads as i64),
            Arg::F(SCALE),
            Arg::I(self.before),
            Arg::I(self.after),
            Arg::Text(self.layout),
            Arg::I(if self.kv_heads == self.heads { 0 } else { self.kv_heads as i64 }),
            Arg::I(self.sparse_mode),
            Arg::I(0),
            Arg::I(0),
            Arg::I(0),
            Arg::B(self.sums),
            Arg::I(0),
            Arg::I(0),
            Arg::T(&mut out),
            if self.sums { Arg::T(&mut sums) } else { Arg::Null },
        ]);
        run(name, arguments)?;
        Ok((out, sums))
    }

    fn defined(
        &self,
        input: &str,
        output: &str,
        [q, k, v]: [&[f64]; 3],
        sees: impl Fn(usize, usize, usize) -> bool,
    ) -> (Vec<f64>, Vec<f64>) {
        let mut wanted = vec![0.0; q.len()];
        let mut logs = Vec::new();
        let biases = self.bias.as_ref().map(Data::values);
        let bias = |[b, n, i, j]: [usize; 4]| {
            let (Some(values), Some(data)) = (&biases, &self.bias) else { return 0.0 };
            let [batch, heads, rows, keys] = data.dims[..] else { panic!("four dims") };
            values[((b.min(batch - 1) * heads + n) * rows + i) * keys + j]
        };
        for b in 0..self.batch {
            for n in 0..self.heads {
                let head = n / (self.heads / self.kv_heads);
                for i in 0..self.rows {
                    let at = |s, d| self.place(input, self.kv_heads, self.keys, [b, head, s, d]);
                    let row = |d| q[self.place(input, self.heads, self.rows, [b, n, i, d])];
                    let weights: Vec<f64> = (0..self.keys)
                        .map(|j| {
                            let dot: f64 = (0..self.depth).map(|d| row(d) * k[at(j, d)]).sum();
                            let score = SCALE * dot + bias([b, n, i, j]);
                            if sees(b, i, j) { score.exp() } else { 0.0 }
                        })
                        .collect();
                    let sum: f64 = weights.iter().sum();
                    logs.push(if sum > 0.0 { sum.ln() } else { f64::INFINITY });
                    for d in 0..self.depth {
                        let total: f64 = (0..self.keys).map(|j| weights[j] * v[at(j, d)]).sum();
                        let place = self.place(output, self.heads, self.rows, [b, n, i, d]);
                        wanted[place] = if sum > 0.0 { total / sum } else { 0.0 };
                    }
                }
            }
        }
        (wanted, logs)
    }

    #[track_caller]
    fn agrees(&self, what: &str, sees: impl Fn(usize, usize, usize) -> bool) {
        let [found, wanted] = self.run(sees).unwrap();
        close(&found, &wanted, precision(self.dtype), &format!("{what} {} {}", self.layout, self.dtype));
    }

    #[track_caller]
    fn refused(&self, part: &str) {
        let message = self.run(|_, _, _| true).expect_err("must be refused");
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

fn mask(dims: &[usize], hidden: impl Fn(usize) -> bool) -> Data {
    let len: usize = dims.iter().product();
    let values: Vec<f64> = (0..len).map(|i| f64::from(u8::from(hidden(i)))).collect();
    Data::new(AclType::Bool, dims, &values)
}

/// Returns the compressed mask of the sparse modes 2 to 4.
pub(super) fn triangle() -> Data {
    mask(&[2048, 2048], |i| i % 2048 > i / 2048)
}

#[test]
fn prefill_and_decode_in_every_layout() {
    for dtype in [AclType::F16, AclType::BF16] {
        for layout in ["BSH", "BSND", "BNSD"] {
            for (rows, keys) in [(5, 7), (40, 40), (1, 33), (1, 1)] {
                Case::new(dtype, layout, rows, keys).agrees("plain", |_, _, _| true);
            }
        }
        Case::new(dtype, "BNSD_BSND", 5, 7).agrees("transposed output", |_, _, _| true);
    }
}

#[test]
fn equal_heads_and_lists_of_batches() {
    let mut case = Case::new(AclType::F16, "BNSD", 3, 6);
    case.kv_heads = 4;
    case.agrees("multi-head", |_, _, _| true);
    case.listed = true;
    case.agrees("listed", |_, _, _| true);
    case.rows = 1;
    case.agrees("listed decode", |_, _, _| true);
}

#[test]
fn lengths_cut_rows_and_keys() {
    let mut case = Case::new(AclType::F16, "BSND", 6, 9);
    case.row_lengths = Some(vec![6, 4]);
    case.key_lengths = Some(vec![9, 3]);
    case.sums = true;
    let (rows, keys) = ([6, 4], [9, 3]);
    case.agrees("lengths", |b, i, j| i < rows[b] && j < keys[b]);
    case.key_lengths = Some(vec![5]);
    case.row_lengths = None;
    case.agrees("one length for all", |_, _, j| j < 5);
    case.key_lengths = Some(vec![0, 9]);
    case.agrees("no keys", |b, _, _| b == 1);
    case.rows = 1;
    case.row_lengths = Some(vec![0, 0]);
    case.agrees("row lengths do not count for one position", |b, _, _| b == 1);
}

#[test]
fn masks_of_every_documented_shape() {
    let (rows, keys) = (6, 9);
    let hidden = |i: usize| i % 3 == 1;
    for dims in [vec![6, 9], vec![1, 6, 9], vec![2, 6, 9], vec![2, 1, 6, 9], vec![1, 1, 6, 9]] {
        let mut case = Case::new(AclType::F16, "BNSD", rows, keys);
        let batched = dims.len() > 2 && dims[0] == 2;
        case.mask = Some(mask(&dims, hidden));
        let sees =
            |b: usize, i: usize, j: usize| !hidden((if batched { b } else { 0 } * rows + i) * keys + j);
        case.agrees("mask", sees);
        case.sparse_mode = 1;
        case.agrees("whole mask", sees);
    }
    for dims in [vec![2, 9], vec![2, 1, 9], vec![2, 1, 1, 9]] {
        let mut case = Case::new(AclType::BF16, "BSH", 1, keys);
        case.mask = Some(mask(&dims, hidden));
        case.agrees("decode mask", |b, _, j| !hidden(b * keys + j));
    }
    let mut case = Case::new(AclType::F16, "BNSD", rows, keys);
    case.mask = Some(mask(&[16, 32], |i| i % 2 == 0));
    case.agrees("rounded up", |_, i, j| (i * 32 + j) % 2 == 1);
    case.mask = Some(mask(&[6, 9], |i| i < 9));
    case.agrees("a row that sees nothing is zeros", |_, i, _| i > 0);
}

#[test]
fn a_bias_is_added_to_the_scores_and_may_hide_keys() {
    for (rows, keys, batch) in [(1, 9, 2), (5, 300, 1), (20, 33, 2)] {
        for dtype in [AclType::F16, AclType::BF16] {
            let dims = [batch, 4, rows, keys + 3];
            let hides = |at: usize| at % (keys + 3) % 4 == 3;
            let value = |(at, value): (usize, f64)| if hides(at) { f64::NEG_INFINITY } else { value };
            let values: Vec<f64> =
                varied(dims.iter().product(), 9).into_iter().enumerate().map(value).collect();
            let bias = Some(Data::new(dtype, &dims, &values));
            let case = Case { bias, sums: true, ..Case::new(dtype, "BNSD", rows, keys) };
            case.agrees("bias", |_, _, _| true);
        }
    }
    let short = Some(Data::new(AclType::F16, &[1, 4, 2, 8], &[0.0; 64]));
    Case { bias: short, ..Case::new(AclType::F16, "BNSD", 2, 9) }
        .refused("pseShiftOptional: expected [2 or 1, 4, 2 or more, 9 or more]");
}

#[test]
fn bands_are_cut_out_of_a_mask() {
    let mut case = Case::new(AclType::F16, "BNSD", 8, 8);
    case.mask = Some(mask(&[8, 8], |_| false));
    (case.before, case.after) = (2, 1);
    case.agrees("band", |_, i, j| j + 2 >= i && j <= i + 1);
    case.mask = None;
    case.agrees("without a mask the band does not count", |_, _, _| true);
}

#[test]
fn compressed_sparse_modes() {
    let mut case = Case::new(AclType::F16, "BSND", 6, 9);
    case.mask = Some(triangle());
    case.sparse_mode = 2;
    case.agrees("left up", |_, i, j| j <= i);
    case.sparse_mode = 3;
    case.agrees("right down", |_, i, j| j <= i + 3);
    case.key_lengths = Some(vec![9, 7]);
    case.agrees("right down with lengths", |b, i, j| if b == 0 { j <= i + 3 } else { j < 7 && j <= i + 1 });
    case.key_lengths = None;
    case.sparse_mode = 4;
    (case.before, case.after) = (1, 0);
    case.agrees("band", |_, i, j| j <= i + 3 && j + 1 >= i + 3);
    case.mask = Some(mask(&[2048, 2048], |_| false));
    case.refused("the compressed mask must be 1 above the diagonal");
}

#[test]
fn more_rows_than_keys_leave_rows_that_see_nothing() {
    let mut case = Case::new(AclType::BF16, "BNSD", 9, 4);
    case.mask = Some(triangle());
    case.sparse_mode = 3;
    case.sums = true;
    case.agrees("right down", |_, i, j| j + 5 <= i);
}

#[test]
fn fused_refusals() {
    let case = Case::new(AclType::F16, "BNSD", 6, 9);
    let with = |change: &dyn Fn(&mut Case), part: &str| {
        let mut case = case.clone();
        change(&mut case);
        case.refused(part);
    };
    with(
        &|case| case.dtype = AclType::F32,
        "query: expected an element type of FLOAT16, BFLOAT16, found FLOAT",
    );
    with(&|case| case.depth = 24, "query: expected a head size that is a multiple of 16 up to 512, found 24");
    with(&|case| case.depth = 528, "found 528");
    with(&|case| case.layout = "SBH", "inputLayout: expected BSH, BSND, BNSD");
    with(&|case| (case.rows, case.layout) = (1, "BNSD_BSND"), "inputLayout");
    with(&|case| case.kv_heads = 3, "numKeyValueHeads: expected a divisor of numHeads 4");
    with(&|case| case.sparse_mode = 5, "sparseMode: expected 0 to 4, found 5");
    with(&|case| case.sparse_mode = 3, "attenMaskOptional: sparseMode 3 needs a mask");
    with(&|case| (case.sparse_mode, case.mask) = (2, Some(mask(&[6, 9], |_| false))), "expected 2048 x 2048");
    with(&|case| case.mask = Some(mask(&[6, 8], |_| false)), "expected [6, 9], [2 or 1, 6, 9]");
    with(&|case| case.mask = Some(mask(&[2, 4, 6, 9], |_| false)), "found [2, 4, 6, 9]");
    with(
        &|case| case.key_lengths = Some(vec![10]),
        "actualSeqLengthsKvOptional: expected 0 to 9 for batch 0, found 10",
    );
    with(
        &|case| (case.batch, case.key_lengths) = (3, Some(vec![1, 2])),
        "expected 1 length or one for each of 3 batches",
    );
    with(&|case| case.row_lengths = Some(vec![-1]), "actualSeqLengthsOptional: expected 0 to 6");
    with(&|case| (case.heads, case.kv_heads) = (128, 1), "at least a 64th");
}

fn none<'a>(count: usize) -> impl Iterator<Item = Arg<'a>> {
    (0..count).map(|_| Arg::Null)
}

#[test]
fn prompt_and_incremental_agree_with_the_fused_operator() {
    let case = Case::new(AclType::F16, "BSND", 1, 9);
    let [wanted, _] = case.run(|_, _, _| true).unwrap();
    let values =
        |n: usize, seed| varied(n, seed).iter().map(|&v| rounded(v / 2.0, AclType::F16)).collect::<Vec<_>>();
    let mut query = Data::new(AclType::F16, &[2, 1, 4, 16], &values(128, 1));
    let mut key = Data::new(AclType::F16, &[2, 9, 2, 16], &values(576, 2));
    let mut value = Data::new(AclType::F16, &[2, 9, 2, 16], &values(576, 3));
    let mut out = Data::blank(AclType::F16, &[2, 1, 4, 16]);
    let mut arguments = vec![Arg::T(&mut query), Arg::List(vec![&mut key]), Arg::List(vec![&mut value])];
    arguments.extend(none(2));
    arguments.push(Arg::NoInts);
    arguments.extend(none(9));
    arguments.extend([
        Arg::I(4),
        Arg::F(0.3),
        Arg::Text("BSND"),
        Arg::I(2),
        Arg::I(0),
        Arg::I(0),
        Arg::T(&mut out),
    ]);
    run("aclnnIncreFlashAttentionV4", arguments).unwrap();
    assert_eq!(out.values(), wanted);

    let mut again = Data::blank(AclType::F16, &[2, 1, 4, 16]);
    let mut arguments = vec![Arg::T(&mut query), Arg::T(&mut key), Arg::T(&mut value)];
    arguments.extend(none(2));
    arguments.extend([Arg::NoInts, Arg::NoInts]);
    arguments.extend(none(5));
    arguments.extend([
        Arg::I(4),
        Arg::F(0.3),
        Arg::I(2_147_483_647),
        Arg::I(2_147_483_647),
        Arg::Text("BSND"),
        Arg::I(2),
        Arg::I(0),
        Arg::I(1),
        Arg::T(&mut again),
    ]);
    run("aclnnPromptFlashAttentionV3", arguments).unwrap();
    assert_eq!(again.values(), wanted);
}

#[test]
fn unmodelled_features_are_refused_by_name() {
    let mut query = Data::new(AclType::F16, &[1, 1, 1, 16], &[0.0; 16]);
    let (mut key, mut value, mut scale, mut out) =
        (query.clone(), query.clone(), query.clone(), query.clone());
    let mut arguments = vec![
        Arg::T(&mut query),
        Arg::List(vec![&mut key]),
        Arg::List(vec![&mut value]),
        Arg::Null,
        Arg::Null,
        Arg::NoInts,
        Arg::T(&mut scale),
    ];
    arguments.extend(none(8));
    arguments.extend([
        Arg::I(1),
        Arg::F(1.0),
        Arg::Text("BNSD"),
        Arg::I(1),
        Arg::I(0),
        Arg::I(0),
        Arg::T(&mut out),
    ]);
    let parts = [
        "aclnnIncreFlashAttentionV4: dequantScale1: is given, but the emulator does not model this feature: pass NULL",
    ];
    refused("aclnnIncreFlashAttentionV4", arguments, &parts);
}
