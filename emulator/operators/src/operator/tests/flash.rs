//! Training attention against plain loops.

use super::*;
use crate::dtype::AclType;

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
    sparse_mode: i64,
    before: i64,
    after: i64,
    strided: bool,
    kept: f64,
}

struct Values {
    query: Vec<f64>,
    key: Vec<f64>,
    value: Vec<f64>,
    out: Vec<f64>,
    /// Per row, by batch and head.
    max: Vec<f64>,
    sum: Vec<f64>,
    out_grad: Vec<f64>,
    grads: [Vec<f64>; 3],
}

impl Case {
    fn new(dtype: AclType, layout: &'static str, rows: usize, keys: usize) -> Self {
        let (before, after) = (2_147_483_647, 2_147_483_647);
        let (batch, heads, kv_heads, depth, sparse_mode) = (2, 4, 2, 10, 0);
        let (mask, strided) = (None, false);
        Self {
            dtype,
            layout,
            batch,
            heads,
            kv_heads,
            rows,
            keys,
            depth,
            mask,
            sparse_mode,
            before,
            after,
            strided,
            kept: 1.0,
        }
    }

    fn is_kept(&self, [b, n, i, j]: [usize; 4]) -> bool {
        (((b * self.heads + n) * self.rows + i) * self.keys + j) * 7 % 11 > 2
    }

    /// Returns what dropout makes of a weight of 1.
    fn factor(&self, pair: [usize; 4]) -> f64 {
        if self.kept == 1.0 { 1.0 } else { f64::from(u8::from(self.is_kept(pair))) / self.kept }
    }

    /// Returns the bits of all pairs, lowest first.
    fn bits(&self) -> Data {
        let pairs = (0..self.batch * self.heads * self.rows * self.keys)
            .map(|at| u8::from(self.is_kept([0, 0, 0, at])))
            .collect::<Vec<_>>();
        let byte = |bits: &[u8]| bits.iter().rev().fold(0_u8, |byte, bit| byte << 1 | bit);
        let bytes: Vec<f64> = pairs.chunks(8).map(|bits| f64::from(byte(bits))).collect();
        Data::new(AclType::U8, &[bytes.len()], &bytes)
    }

    fn dims(&self, heads: usize, len: usize) -> Vec<usize> {
        match self.layout {
            "BSH" => vec![self.batch, len, heads * self.depth],
            "BSND" => vec![self.batch, len, heads, self.depth],
            _ => vec![self.batch, heads, len, self.depth],
        }
    }

    fn place(&self, heads: usize, len: usize, [b, n, s, d]: [usize; 4]) -> usize {
        match self.layout {
            "BNSD" => ((b * heads + n) * len + s) * self.depth + d,
            _ => ((b * len + s) * heads + n) * self.depth + d,
        }
    }

    const SCALE: f64 = 0.3;

    fn expected(&self, sees: impl Fn(usize, usize, usize) -> bool) -> Values {
        let held = |n: usize, seed| {
            varied(n, seed).iter().map(|&v| rounded(v / 2.0, self.dtype)).collect::<Vec<_>>()
        };
        let (many, few) = (self.batch * self.heads * self.rows, self.batch * self.kv_heads * self.keys);
        let (query, out_grad) = (held(many * self.depth, 1), held(many * self.depth, 4));
        let (key, value) = (held(few * self.depth, 2), held(few * self.depth, 3));
        let (mut out, mut max, mut sum) = (vec![0.0; query.len()], Vec::new(), Vec::new());
        let mut grads = [vec![0.0; query.len()], vec![0.0; key.len()], vec![0.0; key.len()]];
        for b in 0..self.batch {
            for n in 0..self.heads {
                let head = n / (self.heads / self.kv_heads);
                for i in 0..self.rows {
                    let row = |d: usize| self.place(self.heads, self.rows, [b, n, i, d]);
                    let at = |j: usize, d: usize| self.place(self.kv_heads, self.keys, [b, head, j, d]);
                    let depth = 0..self.depth;
                    let seen: Vec<usize> = (0..self.keys).filter(|&j| sees(b, i, j)).collect();
                    let score = |&j: &usize| {
                        Self::SCALE * depth.clone().map(|d| query[row(d)] * key[at(j, d)]).sum::<f64>()
                    };
                    let scores: Vec<f64> = seen.iter().map(score).collect();
                    let top = scores.iter().copied().fold(f64::from(f32::MIN), f64::max);
                    let total: f64 = scores.iter().map(|score| (score - top).exp()).sum();
                    max.push(top);
                    sum.push(total);
                    let shares: Vec<f64> = scores.iter().map(|score| (score - top).exp() / total).collect();
                    for (share, &j) in shares.iter().zip(&seen) {
                        let share = share * self.factor([b, n, i, j]);
                        depth.clone().for_each(|d| out[row(d)] += share * value[at(j, d)]);
                    }
                    let held = |d: usize| rounded(out[row(d)], self.dtype);
                    let whole: f64 = depth.clone().map(|d| held(d) * out_grad[row(d)]).sum();
                    for (share, &j) in shares.iter().zip(&seen) {
                        let grad: f64 = depth.clone().map(|d| out_grad[row(d)] * value[at(j, d)]).sum();
                        let factor = self.factor([b, n, i, j]);
                        let grad = share * (grad * factor - whole) * Self::SCALE;
                        for d in depth.clone() {
                            grads[0][row(d)] += grad * key[at(j, d)];
                            grads[1][at(j, d)] += grad * query[row(d)];
                            grads[2][at(j, d)] += share * factor * out_grad[row(d)];
                        }
                    }
                }
            }
        }
        Values { query, key, value, out, max, sum, out_grad, grads }
    }

    fn attributes(&self) -> Vec<Arg<'static>> {
        vec![
            Arg::F(Self::SCALE),
            Arg::F(self.kept),
            Arg::I(self.before),
            Arg::I(self.after),
            Arg::I(self.heads as i64),
            Arg::Text(self.layout),
            Arg::I(0),
            Arg::I(self.sparse_mode),
        ]
    }

    fn run(&self, wanted: &Values) -> Result<Values, String> {
        let laid = |data: Data| if self.strided { data.strided() } else { data };
        let data = |heads, len, values: &[f64]| laid(Data::new(self.dtype, &self.dims(heads, len), values));
        let queries = |values: &[f64]| data(self.heads, self.rows, values);
        let keys = |values: &[f64]| data(self.kv_heads, self.keys, values);
        let statistics = [self.batch, self.heads, self.rows, 8];
        let eight = |values: &[f64]| {
            laid(Data::new(
                AclType::F32,
                &statistics,
                &values.iter().flat_map(|&value| [value; 8]).collect::<Vec<_>>(),
            ))
        };
        let (mut q, mut k, mut v) = (queries(&wanted.query), keys(&wanted.key), keys(&wanted.value));
        let [mut max, mut sum] = [(); 2].map(|()| laid(Data::blank(AclType::F32, &statistics)));
        let (mut out, mut unused) = (queries(&vec![7.0; wanted.query.len()]), Data::blank(self.dtype, &[0]));
        let mut mask = self.mask.clone().map(laid);
        let mut bits = (self.kept < 1.0).then(|| self.bits());
        let mut arguments = vec![Arg::T(&mut q), Arg::T(&mut k), Arg::T(&mut v), Arg::Null];
        arguments.extend([bits.as_mut().map_or(Arg::Null, Arg::T), Arg::Null]);
        arguments.extend([mask.as_mut().map_or(Arg::Null, Arg::T), Arg::NoInts]);
        arguments.extend(self.attributes());
        arguments.extend([Arg::T(&mut max), Arg::T(&mut sum), Arg::T(&mut unused), Arg::T(&mut out)]);
        run("aclnnFlashAttentionScore", arguments)?;
        let one = |found: &Data| {
            let found = found.values();
            assert!(
                found.chunks(8).all(|copies| copies.iter().all(|value| value == &copies[0])),
                "eight copies"
            );
            found.into_iter().step_by(8).collect::<Vec<_>>()
        };
        let (max, sum, given) = (one(&max), one(&sum), out.values());

        let (mut greatest, mut sums, mut dy) =
            (eight(&wanted.max), eight(&wanted.sum), queries(&wanted.out_grad));
        out = queries(&wanted.out);
        let mut dq = queries(&vec![7.0; wanted.query.len()]);
        let (mut dk, mut dv) = (keys(&vec![7.0; wanted.key.len()]), keys(&vec![7.0; wanted.key.len()]));
        let mut arguments = vec![Arg::T(&mut q), Arg::T(&mut k), Arg::T(&mut v), Arg::T(&mut dy)];
        arguments.extend([Arg::Null, bits.as_mut().map_or(Arg::Null, Arg::T), Arg::Null]);
        arguments.push(mask.as_mut().map_or(Arg::Null, Arg::T));
        arguments.extend([
            Arg::T(&mut greatest),
            Arg::T(&mut sums),
            Arg::Null,
            Arg::T(&mut out),
            Arg::NoInts,
        ]);
        arguments.extend(self.attributes());
        arguments.extend([Arg::T(&mut dq), Arg::T(&mut dk), Arg::T(&mut dv), Arg::Null]);
        run("aclnnFlashAttentionScoreGrad", arguments)?;
        let grads = [dq.values(), dk.values(), dv.values()];
        let Values { query, key, value, out_grad, .. } = self.expected(|_, _, _| false);
        Ok(Values { query, key, value, out: given, max, sum, out_grad, grads })
    }

    #[track_caller]
    fn agrees(&self, what: &str, sees: impl Fn(usize, usize, usize) -> bool) {
        let wanted = self.expected(sees);
        let found = self.run(&wanted).unwrap();
        let what = format!("{what} {} {}", self.layout, self.dtype);
        close(&found.out, &wanted.out, precision(self.dtype), &format!("{what}: out"));
        close(&found.max, &wanted.max, 1e-5, &format!("{what}: greatest scores"));
        close(&found.sum, &wanted.sum, 1e-5, &format!("{what}: sums"));
        for (i, (found, wanted)) in found.grads.iter().zip(&wanted.grads).enumerate() {
            close(found, wanted, precision(self.dtype), &format!("{what}: gradient {i}"));
        }
    }

    #[track_caller]
    fn refused(&self, part: &str) {
        let message = self.run(&self.expected(|_, _, _| false)).err().expect("must be refused");
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

fn mask(dims: &[usize], hidden: impl Fn(usize) -> bool) -> Option<Data> {
    let len: usize = dims.iter().product();
    let values: Vec<f64> = (0..len).map(|i| f64::from(u8::from(hidden(i)))).collect();
    Some(Data::new(AclType::Bool, dims, &values))
}

#[test]
fn both_directions_in_every_layout_and_type() {
    for dtype in FLOATS {
        for layout in ["BSH", "BSND", "BNSD"] {
            for (rows, keys) in [(5, 7), (40, 40), (1, 33), (70, 3)] {
                Case::new(dtype, layout, rows, keys).agrees("plain", |_, _, _| true);
            }
            let case = Case { kv_heads: 4, batch: 1, depth: 64, ..Case::new(dtype, layout, 9, 17) };
            case.agrees("heads of their own", |_, _, _| true);
            Case { kv_heads: 1, depth: 80, ..case }.agrees("one head for all", |_, _, _| true);
        }
    }
    Case { batch: 1, heads: 2, kv_heads: 1, ..Case::new(AclType::F32, "BSND", 130, 1100) }
        .agrees("long", |_, _, _| true);
}

#[test]
fn dropped_weights_are_zero_and_the_others_divided_by_the_kept_share() {
    for (rows, keys) in [(6, 9), (5, 300)] {
        let case = Case { kept: 0.75, ..Case::new(AclType::F32, "BNSD", rows, keys) };
        case.agrees("dropout", |_, _, _| true);
        let mask = mask(&[rows, keys], |at| at % keys > at / keys + keys - rows);
        Case { mask, ..case }.agrees("dropout under a mask", |_, i, j| j <= i + keys - rows);
    }
    Case { kept: 1.5, ..Case::new(AclType::F32, "BNSD", 2, 2) }
        .refused("keepProb: expected more than 0 and at most 1, found 1.5");
}

#[test]
fn every_tensor_may_be_a_view() {
    for layout in ["BSH", "BSND", "BNSD"] {
        for dtype in FLOATS {
            let case = Case { strided: true, ..Case::new(dtype, layout, 9, 40) };
            case.agrees("strided", |_, _, _| true);
            Case { mask: mask(&[9, 40], |i| i % 3 == 1), ..case }
                .agrees("strided, masked", |_, i, j| (i * 40 + j) % 3 != 1);
        }
    }
}

#[test]
fn a_prefix_without_numbers_is_none() {
    let data = |dims: &[usize]| Data::new(AclType::F32, dims, &vec![1.0; dims.iter().product()]);
    let call = |prefix: &[i64]| {
        let [mut q, mut k, mut v, mut out] = [(); 4].map(|()| data(&[1, 1, 3, 16]));
        let [mut max, mut sum] = [(); 2].map(|()| data(&[1, 1, 3, 8]));
        let mut arguments = vec![Arg::T(&mut q), Arg::T(&mut k), Arg::T(&mut v)];
        arguments.extend([
            Arg::Null,
            Arg::Null,
            Arg::Null,
            Arg::Null,
            Arg::Ints(prefix),
            Arg::F(1.0),
            Arg::F(1.0),
        ]);
        arguments.extend([Arg::I(0), Arg::I(0), Arg::I(1), Arg::Text("BNSD"), Arg::I(0), Arg::I(0)]);
        arguments.extend([Arg::T(&mut max), Arg::T(&mut sum), Arg::Null, Arg::T(&mut out)]);
        run("aclnnFlashAttentionScore", arguments)
    };
    call(&[]).unwrap();
    assert!(
        call(&[1]).unwrap_err().contains("prefixOptional: is given, but the emulator does not model this")
    );
}

#[test]
fn masks_of_every_shape_and_their_modes() {
    let (rows, keys) = (6, 9);
    for dims in [vec![6, 9], vec![1, 1, 6, 9], vec![2, 1, 6, 9]] {
        let hidden = |i: usize| i % 3 == 1;
        let batched = dims[0] == 2;
        let sees =
            |b: usize, i: usize, j: usize| !hidden((if batched { b } else { 0 } * rows + i) * keys + j);
        for sparse_mode in [0, 1] {
            let case = Case {
                mask: mask(&dims, hidden),
                sparse_mode,
                ..Case::new(AclType::F16, "BSND", rows, keys)
            };
            case.agrees("mask", sees);
        }
    }
    let mut case = Case::new(AclType::F32, "BNSD", 40, 600);
    case.mask = mask(&[40, 600], |i| i % 600 > i / 600 + 250);
    case.agrees("causal", |_, i, j| j <= i + 250);
    (case.before, case.after) = (i64::MAX, 250);
    case.agrees("causal with a band that says so too", |_, i, j| j <= i + 250);
    case.mask = mask(&[40, 600], |i| i / 600 == 7 || i % 600 == 5);
    (case.before, case.after) = (600, 600);
    case.agrees("a row that sees nothing and a key that none sees", |_, i, j| i != 7 && j != 5);
}

#[test]
fn compressed_masks_are_causal_from_either_corner() {
    let triangle = mask(&[2048, 2048], |i| i % 2048 > i / 2048);
    for (rows, keys) in [(6, 9), (9, 6), (80, 300)] {
        let case = Case { mask: triangle.clone(), batch: 1, ..Case::new(AclType::F32, "BSND", rows, keys) };
        Case { sparse_mode: 2, ..case.clone() }.agrees("left up", |_, i, j| j <= i);
        Case { sparse_mode: 3, ..case }.agrees("right down", |_, i, j| j + rows <= i + keys);
    }
}

#[test]
fn what_is_not_modelled_or_legal_is_refused() {
    let case = || Case::new(AclType::F16, "BSND", 6, 9);
    Case { sparse_mode: 4, ..case() }.refused("sparseMode: expected 0 to 3, found 4");
    Case { sparse_mode: 2, ..case() }.refused("attenMaskOptional: sparseMode 2 needs a mask, found NULL");
    let full = mask(&[6, 9], |_| false);
    Case { sparse_mode: 3, mask: full.clone(), ..case() }
        .refused("expected shape [2048, 2048] (for sparseMode 3)");
    let wrong = mask(&[2048, 2048], |i| i % 2048 < i / 2048);
    Case { sparse_mode: 3, mask: wrong, ..case() }
        .refused("the compressed mask must be 1 above the diagonal");
    Case { mask: mask(&[9, 6], |_| false), ..case() }
        .refused("expected [6, 9] or [2 or 1, 1] followed by it, found [9, 6]");
    let band = Case { mask: full, after: 2, ..case() };
    band.refused(
        "attenMaskOptional: batch 0, row 0 shows key 3, which preTokens 2147483647 and nextTokens 2 hide",
    );
    Case { layout: "SBH", ..case() }.refused("inputLayout: expected BSH, BSND or BNSD, found SBH");
    Case { heads: 3, ..case() }.refused("key: expected a number of heads that divides 3, found 2");
    Case { depth: 513, ..case() }.refused("query: expected D of 1 to 512, found 513");
    Case { rows: 0, ..case() }.refused("query: expected S of 1 to 1048576, found 0");
}

#[test]
fn tensors_that_do_not_fit_are_refused() {
    let call = |change: &dyn Fn(&mut [Data; 6]), keep: f64, part: &str| {
        let data = |dtype, dims: &[usize]| Data::new(dtype, dims, &vec![0.0; dims.iter().product()]);
        let half = AclType::F16;
        let mut tensors = [
            data(half, &[1, 3, 2, 16]),
            data(half, &[1, 5, 2, 16]),
            data(half, &[1, 5, 2, 16]),
            data(AclType::F32, &[1, 2, 3, 8]),
            data(AclType::F32, &[1, 2, 3, 8]),
            data(half, &[1, 3, 2, 16]),
        ];
        change(&mut tensors);
        let [q, k, v, max, sum, out] = tensors.each_mut();
        let mut arguments = vec![Arg::T(q), Arg::T(k), Arg::T(v)];
        arguments.extend([
            Arg::Null,
            Arg::Null,
            Arg::Null,
            Arg::Null,
            Arg::NoInts,
            Arg::F(1.0),
            Arg::F(keep),
        ]);
        arguments.extend([Arg::I(0), Arg::I(0), Arg::I(2), Arg::Text("BSND"), Arg::I(0), Arg::I(0)]);
        arguments.extend([Arg::T(max), Arg::T(sum), Arg::Null, Arg::T(out)]);
        refused("aclnnFlashAttentionScore", arguments, &[part]);
    };
    let blank = Data::blank;
    call(&|_| (), 0.9, "dropMaskOptional: keepProb 0.9 needs a mask, found NULL");
    call(
        &|all| all[2] = blank(AclType::BF16, &[1, 5, 2, 16]),
        1.0,
        "value: expected FLOAT16 (the type of query), found BFLOAT16",
    );
    call(
        &|all| all[2] = blank(AclType::F16, &[1, 4, 2, 16]),
        1.0,
        "value: expected shape [1, 5, 2, 16] (of key)",
    );
    call(
        &|all| all[3] = blank(AclType::F32, &[1, 2, 3, 1]),
        1.0,
        "softmaxMaxOut: expected shape [1, 2, 3, 8]",
    );
    call(
        &|all| all[5] = blank(AclType::F16, &[1, 2, 3, 16]),
        1.0,
        "attentionOutOut: expected shape [1, 3, 2, 16] (of query)",
    );
    let other = || blank(AclType::F16, &[1, 5, 2, 8]);
    call(
        &|all| (all[1], all[2]) = (other(), other()),
        1.0,
        "key: expected batch 1 and head size 16 as query",
    );
}
