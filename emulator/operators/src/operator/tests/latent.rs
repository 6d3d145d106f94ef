//! Latent, sparse and linear attention, and their caches.

use super::*;

fn small(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 31 + seed * 17) % 29) as f64 / 32.0 - 0.4375).collect()
}

/// One head of the delta rule, by matrices: `S (a (I - b k kT)) + b v kT`.
fn delta(state: &mut [f64], key: &[f64], value: &[f64], beta: f64, decay: &[f64]) {
    let (width, height) = (key.len(), value.len());
    let old = state.to_vec();
    for i in 0..height {
        for j in 0..width {
            let mut sum = 0.0;
            for (l, decay) in decay.iter().enumerate() {
                let unit = if l == j { 1.0 } else { 0.0 };
                sum += old[i * width + l] * decay * (unit - beta * key[l] * key[j]);
            }
            state[i * width + j] = sum + beta * value[i] * key[j];
        }
    }
}

#[test]
fn states_follow_the_delta_rule_token_by_token() {
    let (tokens, keys, values, width, height) = (4, 1, 2, 3, 2);
    let (q, k, v) = (small(tokens * 3, 1), small(tokens * 3, 2), small(tokens * 4, 3));
    let beta: Vec<f64> = small(tokens * 2, 5).iter().map(|x| x + 0.5).collect();
    let logs: Vec<f64> = small(tokens * 2, 6).iter().map(|x| x - 0.5).collect();
    let channels: Vec<f64> = small(tokens * 6, 7).iter().map(|x| x - 0.5).collect();
    let start = small(5 * 12, 8);
    let d = |dtype, dims: &[usize], values: &[f64]| Data::new(dtype, dims, values).strided();
    for is_chunked in [false, true] {
        let (mut a, mut b, mut c) = (
            d(AclType::BF16, &[tokens, keys, width], &q),
            d(AclType::BF16, &[tokens, keys, width], &k),
            d(AclType::BF16, &[tokens, values, height], &v),
        );
        let (mut strength, mut g, mut gk) = (
            d(AclType::BF16, &[tokens, values], &beta),
            d(AclType::F32, &[tokens, values], &logs),
            d(AclType::F32, &[tokens, values, width], &channels),
        );
        let mut out = Data::blank(AclType::BF16, &[tokens, values, height]);
        // Sequences of 3 and 1 tokens; the first starts from the block of the second token.
        let mut lengths = Data::new(AclType::I32, &[2], &[3.0, 1.0]);
        let slots = [4usize, 2, 0, 1];
        let mut places = Data::new(AclType::I32, &[tokens], &slots.map(|slot| slot as f64));
        let mut accepted = Data::new(AclType::I32, &[2], &[2.0, 1.0]);
        let blocks = if is_chunked { 2 } else { 5 };
        let mut states = d(AclType::BF16, &[blocks, values, height, width], &start[..blocks * 12]);
        let mut last = Data::blank(AclType::BF16, &[2, values, height, width]);
        let mut call =
            vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut c), Arg::T(&mut strength), Arg::T(&mut states)];
        call.push(Arg::T(&mut lengths));
        if is_chunked {
            call.extend([Arg::T(&mut g), Arg::F(0.5), Arg::T(&mut out), Arg::T(&mut last)]);
            run("aclnnChunkGatedDeltaRule", call).unwrap();
        } else {
            call.extend([Arg::T(&mut places), Arg::T(&mut g), Arg::T(&mut gk), Arg::T(&mut accepted)]);
            call.extend([Arg::F(0.5), Arg::T(&mut out)]);
            run("aclnnRecurrentGatedDeltaRule", call).unwrap();
        }
        let mut blocks_now = start[..blocks * 12].to_vec();
        let mut outs = Vec::new();
        for (sequence, range) in [0..3, 3..4].into_iter().enumerate() {
            let from = if is_chunked { sequence } else { slots[range.start + [1, 0][sequence]] };
            let mut state = blocks_now[from * 12..from * 12 + 12].to_vec();
            for token in range {
                for head in 0..values {
                    let at = token * values + head;
                    let own = &mut state[head * 6..head * 6 + 6];
                    let decay: Vec<f64> = (0..width)
                        .map(|i| (logs[at] + if is_chunked { 0.0 } else { channels[at * 3 + i] }).exp())
                        .collect();
                    delta(own, &k[token * 3..token * 3 + 3], &v[at * 2..at * 2 + 2], beta[at], &decay);
                    let row = |i: usize| (0..3).map(|j| own[i * 3 + j] * q[token * 3 + j] * 0.5).sum::<f64>();
                    outs.extend([row(0), row(1)]);
                }
                if !is_chunked {
                    blocks_now[slots[token] * 12..][..12].copy_from_slice(&state);
                }
            }
            if is_chunked {
                blocks_now[sequence * 12..][..12].copy_from_slice(&state);
            }
        }
        let found = if is_chunked { &last } else { &states };
        close(&out.values(), &outs, precision(AclType::BF16), "outputs");
        close(&found.values(), &blocks_now, precision(AclType::BF16), "states");
        if !is_chunked {
            let mut few = Data::blank(AclType::BF16, &[3, values, height, width]);
            let mut call = vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut c), Arg::T(&mut strength)];
            call.extend([Arg::T(&mut few), Arg::T(&mut lengths), Arg::T(&mut places), Arg::Null, Arg::Null]);
            call.extend([Arg::Null, Arg::F(0.5), Arg::T(&mut out)]);
            refused("aclnnRecurrentGatedDeltaRule", call, &["stateRef: expected at least 4 blocks, found 3"]);
        }
        let mut long = Data::new(AclType::I32, &[2], &[3.0, 2.0]);
        let mut call =
            vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut c), Arg::T(&mut strength), Arg::T(&mut states)];
        call.push(Arg::T(&mut long));
        if is_chunked {
            call.extend([Arg::Null, Arg::F(0.5), Arg::T(&mut out), Arg::T(&mut last)]);
            refused(
                "aclnnChunkGatedDeltaRule",
                call,
                &["actualSeqLengths: expected lengths of 1 to 4 with the sum 4"],
            );
        }
    }
}

fn norm_and_turn(row: &[f64], gamma: Option<&[f64]>, cos: &[f64], sin: &[f64]) -> Vec<f64> {
    let rms = (row.iter().map(|x| x.powi(2)).sum::<f64>() / row.len() as f64 + 1e-5).sqrt();
    let y: Vec<f64> = (0..row.len()).map(|i| gamma.map_or(row[i], |gamma| row[i] / rms * gamma[i])).collect();
    let half = row.len() / 2;
    let mut out = vec![0.0; row.len()];
    for i in 0..half {
        out[i] = y[i] * cos[i] - y[half + i] * sin[i];
        out[half + i] = y[half + i] * cos[half + i] + y[i] * sin[half + i];
    }
    out
}

#[test]
fn latent_keys_are_normed_turned_and_cached() {
    let (kv, gamma, cos, sin) =
        (small(2 * 2 * 48, 1), small(32, 2), small(2 * 2 * 16, 3), small(2 * 2 * 16, 4));
    for (mode, index) in [
        ("Norm", [2.0, 0.0, -1.0, 1.0]),
        ("PA_BNSD", [17.0, 3.0, -1.0, 30.0]),
        ("PA_NZ", [17.0, 3.0, -1.0, 30.0]),
    ] {
        let d = |dims: &[usize], values: &[f64]| Data::new(AclType::F16, dims, values).strided();
        let (mut a, mut g) = (d(&[2, 1, 2, 48], &kv), d(&[32], &gamma));
        let (mut c, mut s) = (d(&[2, 1, 2, 16], &cos), d(&[2, 1, 2, 16], &sin));
        let is_norm = mode == "Norm";
        let mut places = Data::new(AclType::I64, if is_norm { &[2, 2] } else { &[4] }, &index);
        let shape = |width| if is_norm { [2, 1, 3, width] } else { [2, 16, 1, width] };
        let rows = if is_norm { 6 } else { 32 };
        let (mut k, mut ckv) = (d(&shape(16), &vec![9.0; rows * 16]), d(&shape(32), &vec![9.0; rows * 32]));
        let (mut k_out, mut ckv_out) =
            (Data::blank(AclType::F16, &[2, 1, 2, 16]), Data::blank(AclType::F16, &[2, 1, 2, 32]));
        let mut call =
            vec![Arg::T(&mut a), Arg::T(&mut g), Arg::T(&mut c), Arg::T(&mut s), Arg::T(&mut places)];
        call.extend([Arg::T(&mut k), Arg::T(&mut ckv), Arg::Null, Arg::Null, Arg::Null, Arg::Null]);
        call.extend([Arg::F(1e-5), Arg::Text(mode), Arg::B(true), Arg::T(&mut k_out), Arg::T(&mut ckv_out)]);
        run("aclnnKvRmsNormRopeCache", call).unwrap();
        let mut expected = [vec![9.0; rows * 16], vec![9.0; rows * 32]];
        let mut plain = [Vec::new(), Vec::new()];
        for token in 0..4 {
            let row = &kv[token * 48..token * 48 + 48];
            let halves: Vec<f64> =
                (0..16).map(|i| row[32 + if i < 8 { 2 * i } else { 2 * (i - 8) + 1 }]).collect();
            let table = token * 16..token * 16 + 16;
            let turned = norm_and_turn(&halves, None, &cos[table.clone()], &sin[table]);
            let flat = vec![1.0; 32];
            let normed = norm_and_turn(&row[..32], Some(&gamma), &flat, &vec![0.0; 32]);
            for ((cache, all), row) in expected.iter_mut().zip(&mut plain).zip([turned, normed]) {
                if index[token] >= 0.0 {
                    let place = index[token] as usize + if is_norm { token / 2 * 3 } else { 0 };
                    for (i, x) in row.iter().enumerate() {
                        let at = if mode == "PA_NZ" {
                            place / 16 * 16 * row.len() + i / 16 * 256 + place % 16 * 16 + i % 16
                        } else {
                            place * row.len() + i
                        };
                        cache[at] = *x;
                    }
                }
                all.extend(row);
            }
        }
        let bound = precision(AclType::F16);
        close(&k.values(), &expected[0], bound, mode);
        close(&ckv.values(), &expected[1], bound, mode);
        close(&k_out.values(), &plain[0], bound, mode);
        close(&ckv_out.values(), &plain[1], bound, mode);
    }
}

#[test]
fn fused_heads_are_normed_turned_and_cached_in_columns() {
    let (qkv, gammas, cos, sin) = (small(2 * 4 * 128, 1), small(256, 2), small(256, 3), small(256, 5));
    let (scale, offset) =
        (small(128, 7).iter().map(|x| x.abs() / 50.0 + 0.01).collect::<Vec<_>>(), small(128, 9));
    let d = |dtype, dims: &[usize], values: &[f64]| Data::new(dtype, dims, values).strided();
    let half = AclType::BF16;
    let (mut a, mut qg, mut kg) =
        (d(half, &[2, 512], &qkv), d(half, &[128], &gammas[..128]), d(half, &[128], &gammas[128..]));
    let (mut c, mut s) = (d(half, &[2, 128], &cos), d(half, &[2, 128], &sin));
    let mut index = Data::new(AclType::I64, &[2], &[33.0, -1.0]);
    let mut q_out = Data::blank(half, &[2, 256]);
    let (mut k, mut v) =
        (d(half, &[3, 8, 16, 16], &[1.0; 6144]), d(AclType::I8, &[2, 4, 32, 32], &[1.0; 8192]));
    let (mut vs, mut vo) = (d(AclType::F32, &[1, 128], &scale), d(AclType::F32, &[1, 128], &offset));
    let mut call = vec![Arg::T(&mut a), Arg::T(&mut qg), Arg::T(&mut kg), Arg::T(&mut c), Arg::T(&mut s)];
    call.extend([Arg::T(&mut index), Arg::T(&mut q_out), Arg::T(&mut k), Arg::T(&mut v), Arg::Null]);
    call.extend([
        Arg::T(&mut vs),
        Arg::Null,
        Arg::T(&mut vo),
        Arg::Ints(&[1, 2, 4, 128]),
        Arg::Ints(&[2, 1, 1]),
    ]);
    call.extend([Arg::F(1e-5), Arg::NoText, Arg::Null, Arg::Null, Arg::Null]);
    run("aclnnQkvRmsNormRopeCache", call).unwrap();
    let head = |token: usize, head: usize| &qkv[token * 512 + head * 128..][..128];
    let turn = |token: usize, at: usize, gamma: &[f64]| {
        let table = token * 128..token * 128 + 128;
        norm_and_turn(head(token, at), Some(gamma), &cos[table.clone()], &sin[table])
    };
    let queries: Vec<f64> =
        [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().flat_map(|(t, h)| turn(t, h, &gammas[..128])).collect();
    close(&q_out.values(), &queries, precision(half), "queries");
    let (mut keys, mut values) = (vec![1.0; 6144], vec![1.0; 8192]);
    let key = turn(0, 2, &gammas[128..]);
    for i in 0..128 {
        keys[2 * 8 * 256 + i / 16 * 256 + 16 + i % 16] = key[i];
        let level =
            (head(0, 3)[i] / f64::from(scale[i] as f32) + f64::from(offset[i] as f32)).round_ties_even();
        values[4 * 1024 + i / 32 * 1024 + 32 + i % 32] = level.clamp(-128.0, 127.0);
    }
    close(&k.values(), &keys, precision(half), "keys");
    assert_eq!(v.values(), values);
}

#[test]
fn blocks_of_a_cache_are_gathered() {
    let (keys, values) = (counted(3 * 2 * 4, 1), counted(3 * 2 * 2, 2));
    let d = |dims: &[usize], values: &[f64]| Data::new(AclType::I8, dims, values).strided();
    for is_sum in [false, true] {
        let (mut k, mut v) = (d(&[3, 2, 2, 2], &keys), d(&[3, 2, 2, 1], &values));
        let mut tables = Data::new(AclType::I32, &[2, 3], &[9.0, 2.0, 0.0, 9.0, 1.0, 9.0]);
        let lens = if is_sum { vec![0.0, 3.0, 5.0] } else { vec![3.0, 2.0] };
        let mut lens = Data::new(AclType::I32, &[lens.len()], &lens);
        // Blocks of 2 tokens: both offsets skip one column.
        let mut offset = Data::new(AclType::I32, &[2], &[2.0, 3.0]);
        let (mut k_out, mut v_out) = (d(&[6, 2, 2], &[7.0; 24]), d(&[6, 2, 1], &[7.0; 12]));
        let mut call = vec![Arg::T(&mut k), Arg::T(&mut v), Arg::T(&mut tables), Arg::T(&mut lens)];
        call.extend([
            Arg::T(&mut k_out),
            Arg::T(&mut v_out),
            Arg::T(&mut offset),
            Arg::Text("Norm"),
            Arg::B(is_sum),
        ]);
        run("aclnnGatherPaKvCache", call).unwrap();
        let tokens = [4usize, 5, 0, 2, 3];
        let expected = |cache: &[f64], width: usize| -> Vec<f64> {
            let rows = tokens.iter().flat_map(|token| cache[token * width..(token + 1) * width].to_vec());
            rows.chain(vec![7.0; width]).collect()
        };
        assert_eq!(k_out.values(), expected(&keys, 4));
        assert_eq!(v_out.values(), expected(&values, 2));
    }
}

/// Two sequences of 2 and 1 queries with 5 and 3 keys, which blocks of 16 hold.
const LENS: [usize; 2] = [5, 3];
const KEYS: usize = 8;
const TOKENS: usize = 3;
const HEADS: usize = 2;
const SEQUENCES: [usize; TOKENS] = [0, 0, 1];
/// How many keys each query sees.
const SEEN: [usize; TOKENS] = [4, 5, 3];

fn of_key(sequence: usize, key: usize) -> usize {
    if sequence == 0 { key } else { LENS[0] + key }
}

fn keys_of(is_paged: bool, width: usize, rows: &[f64]) -> Data {
    if !is_paged {
        return Data::new(AclType::BF16, &[KEYS, 1, width], rows);
    }
    let mut blocks = vec![0.0; 2 * 16 * width];
    for (sequence, len) in LENS.into_iter().enumerate() {
        for key in 0..len {
            let from = of_key(sequence, key) * width;
            let to = ((1 - sequence) * 16 + key) * width;
            blocks[to..to + width].copy_from_slice(&rows[from..from + width]);
        }
    }
    Data::new(AclType::BF16, &[2, 16, 1, width], &blocks)
}

/// Returns the ends of queries, the lengths or ends of keys, and the table of blocks.
fn lengths(is_paged: bool) -> [Data; 3] {
    let keys: &[f64] = if is_paged { &[5.0, 3.0] } else { &[5.0, 8.0] };
    [
        Data::new(AclType::I32, &[2], &[2.0, 3.0]),
        Data::new(AclType::I32, &[2], keys),
        Data::new(AclType::I32, &[2, 1], &[1.0, 0.0]),
    ]
}

#[test]
fn an_indexer_chooses_the_keys_of_the_largest_sums() {
    let (q, k, w) = (small(TOKENS * HEADS * 128, 1), small(KEYS * 128, 2), small(TOKENS * HEADS, 4));
    let half = AclType::BF16;
    for is_paged in [false, true] {
        let (mut a, mut weights) =
            (Data::new(half, &[TOKENS, HEADS, 128], &q), Data::new(AclType::F32, &[TOKENS, HEADS], &w));
        let mut b = keys_of(is_paged, 128, &k);
        let [mut query_ends, mut key_lens, mut table] = lengths(is_paged);
        let (mut out, mut values) =
            (Data::blank(AclType::I32, &[TOKENS, 1, 4]), Data::blank(half, &[TOKENS, 1, 4]));
        let mut empty = Data::blank(half, &[0]);
        let mut call = vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut weights), Arg::T(&mut query_ends)];
        call.push(Arg::T(&mut key_lens));
        call.push(if is_paged { Arg::T(&mut table) } else { Arg::Null });
        call.extend([
            Arg::Text("TND"),
            Arg::Text(if is_paged { "PA_BSND" } else { "TND" }),
            Arg::I(4),
            Arg::I(3),
        ]);
        call.extend([Arg::I(i64::MAX), Arg::I(i64::MAX), Arg::B(!is_paged), Arg::T(&mut out)]);
        call.push(Arg::T(if is_paged { &mut empty } else { &mut values }));
        run("aclnnLightningIndexer", call).unwrap();
        if !is_paged {
            let mut call =
                vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut weights), Arg::T(&mut query_ends)];
            call.extend([Arg::T(&mut key_lens), Arg::T(&mut table), Arg::Text("TND"), Arg::Text("TND")]);
            call.extend([Arg::I(4), Arg::I(3), Arg::I(i64::MAX), Arg::I(i64::MAX), Arg::B(false)]);
            call.extend([Arg::T(&mut out), Arg::T(&mut empty)]);
            let expected = ["blockTableOptional: expected NULL without PA_BSND"];
            refused("aclnnLightningIndexer", call, &expected);
        }
        for token in 0..TOKENS {
            let score = |key: usize| {
                let row = &k[of_key(SEQUENCES[token], key) * 128..][..128];
                let head = |h: usize| {
                    let own = &q[(token * HEADS + h) * 128..][..128];
                    w[token * HEADS + h] * own.iter().zip(row).map(|(a, b)| a * b).sum::<f64>().max(0.0)
                };
                (head(0) + head(1), key)
            };
            let mut scores: Vec<(f64, usize)> = (0..SEEN[token]).map(score).collect();
            scores.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let mut named: Vec<f64> = scores.iter().take(4).map(|(_, key)| *key as f64).collect();
            named.resize(4, -1.0);
            assert_eq!(out.values()[token * 4..token * 4 + 4], named, "paged {is_paged}, token {token}");
            if !is_paged {
                let found = &values.values()[token * 4..token * 4 + SEEN[token].min(4)];
                let expected: Vec<f64> = scores.iter().take(4).map(|(score, _)| *score).collect();
                close(found, &expected, precision(half), "values");
            }
        }
    }
}

#[test]
fn sparse_attention_reads_the_blocks_that_are_named() {
    let half = AclType::BF16;
    let (wide, turned) = (small(TOKENS * HEADS * 512, 5), small(TOKENS * HEADS * 64, 6));
    let (kv, kr) = (small(KEYS * 512, 7), small(KEYS * 64, 8));
    for is_paged in [false, true] {
        let (mut a, mut ar) =
            (Data::new(half, &[TOKENS, HEADS, 512], &wide), Data::new(half, &[TOKENS, HEADS, 64], &turned));
        let (mut b, mut v, mut br) =
            (keys_of(is_paged, 512, &kv), keys_of(is_paged, 512, &kv), keys_of(is_paged, 64, &kr));
        let [mut query_ends, mut key_lens, mut table] = lengths(is_paged);
        // Blocks of two keys.
        let mut named = Data::new(AclType::I32, &[TOKENS, 1, 2], &[1.0, 0.0, 2.0, -1.0, 0.0, 1.0]);
        let blocks = [&[1usize, 0][..], &[2], &[0, 1]];
        let mut result = Data::blank(half, &[TOKENS, HEADS, 512]);
        let (mut most, mut total) =
            (Data::blank(AclType::F32, &[1, TOKENS, HEADS]), Data::blank(AclType::F32, &[1, TOKENS, HEADS]));
        let mut call = vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut v), Arg::T(&mut named)];
        call.push(if is_paged { Arg::T(&mut table) } else { Arg::Null });
        call.extend([Arg::T(&mut query_ends), Arg::T(&mut key_lens), Arg::T(&mut ar), Arg::T(&mut br)]);
        call.extend([Arg::F(0.1), Arg::I(2), Arg::Text("TND")]);
        call.extend([Arg::Text(if is_paged { "PA_BSND" } else { "TND" }), Arg::I(3)]);
        call.extend([Arg::I(i64::MAX), Arg::I(i64::MAX), Arg::I(2), Arg::B(!is_paged), Arg::T(&mut result)]);
        call.extend([Arg::T(&mut most), Arg::T(&mut total)]);
        run("aclnnSparseFlashAttention", call).unwrap();
        for (token, blocks) in blocks.into_iter().enumerate() {
            let chosen: Vec<usize> = blocks
                .iter()
                .flat_map(|block| [block * 2, block * 2 + 1])
                .filter(|key| *key < SEEN[token])
                .map(|key| of_key(SEQUENCES[token], key))
                .collect();
            for at in token * HEADS..token * HEADS + HEADS {
                let part = |a: &[f64], b: &[f64], width: usize, key: usize| -> f64 {
                    (0..width).map(|i| a[at * width + i] * b[key * width + i]).sum()
                };
                let raw: Vec<f64> = chosen
                    .iter()
                    .map(|&key| ((part(&wide, &kv, 512, key) + part(&turned, &kr, 64, key)) * 0.1).exp())
                    .collect();
                let sum: f64 = raw.iter().sum();
                let expected: Vec<f64> = (0..512)
                    .map(|i| chosen.iter().zip(&raw).map(|(key, e)| kv[key * 512 + i] * e / sum).sum())
                    .collect();
                close(&result.values()[at * 512..at * 512 + 512], &expected, precision(half), "attention");
                if !is_paged {
                    close(&[most.values()[at].exp() * total.values()[at]], &[sum], 1e-5, "statistics");
                }
            }
        }
    }
}
