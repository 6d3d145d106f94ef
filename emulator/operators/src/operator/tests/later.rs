//! Later forms of operators have the bits of the first ones.

use super::*;

/// Forms of padded and of packed attention, and of their gradients.
const FORMS: [([&str; 2], [usize; 3]); 4] = [
    (["aclnnFlashAttentionScore", "aclnnFlashAttentionScoreGrad"], [1, 4, 2]),
    (["aclnnFlashAttentionScoreV3", "aclnnFlashAttentionScoreGradV3"], [1, 4, 2]),
    (["aclnnFlashAttentionVarLenScoreV3", "aclnnFlashAttentionUnpaddingScoreGradV3"], [4, 2, 0]),
    (["aclnnFlashAttentionVarLenScoreV4", "aclnnFlashAttentionUnpaddingScoreGradV4"], [4, 2, 0]),
];

fn attention(names: [&str; 2], is_packed: bool, further: &[&'static str]) -> [Vec<f64>; 4] {
    let dims: &[usize] = if is_packed { &[4, 2, 16] } else { &[1, 4, 2, 16] };
    let statistics: &[usize] = if is_packed { &[4, 2, 8] } else { &[1, 2, 4, 8] };
    let d = |seed| Data::new(AclType::F16, dims, &varied(128, seed));
    let (mut q, mut k, mut v, mut up) = (d(1), d(2), d(3), d(4));
    let (mut max, mut sum, mut out) =
        (Data::blank(AclType::F32, statistics), Data::blank(AclType::F32, statistics), d(0));
    let shared = || {
        let mut shared = vec![
            ("scaleValue", Arg::F(0.25)),
            ("keepProb", Arg::F(1.0)),
            ("preTokens", Arg::I(65536)),
            ("nextTokens", Arg::I(65536)),
            ("headNum", Arg::I(2)),
            ("inputLayout", Arg::Text(if is_packed { "TND" } else { "BSND" })),
        ];
        if is_packed {
            shared.push(("actualSeqQLenOptional", Arg::Ints(&[4])));
            shared.push(("actualSeqKvLenOptional", Arg::Ints(&[4])));
        }
        shared
    };
    let mut call = shared();
    call.extend([("query", Arg::T(&mut q)), ("key", Arg::T(&mut k)), ("value", Arg::T(&mut v))]);
    call.extend([("softmaxMaxOut", Arg::T(&mut max)), ("softmaxSumOut", Arg::T(&mut sum))]);
    call.push(("attentionOutOut", Arg::T(&mut out)));
    run(names[0], named(names[0], call)).unwrap();
    let mut grads = [d(0), d(0), d(0)];
    let mut empty = Data::blank(AclType::F32, &[0]);
    let [dq, dk, dv] = &mut grads;
    let mut call = shared();
    call.extend([("query", Arg::T(&mut q)), ("keyIn", Arg::T(&mut k)), ("value", Arg::T(&mut v))]);
    call.extend([("dy", Arg::T(&mut up)), ("softmaxMaxOptional", Arg::T(&mut max))]);
    call.extend([("softmaxSumOptional", Arg::T(&mut sum)), ("attentionInOptional", Arg::T(&mut out))]);
    call.extend([("dqOut", Arg::T(dq)), ("dkOut", Arg::T(dk)), ("dvOut", Arg::T(dv))]);
    if let [only] = further {
        call.push((only, Arg::T(&mut empty)));
    }
    run(names[1], named(names[1], call)).unwrap();
    [out.values(), grads[0].values(), grads[1].values(), grads[2].values()]
}

#[test]
fn later_forms_of_attention_add_what_must_be_null() {
    let plain = attention(FORMS[0].0, false, &[]);
    for (names, dims) in FORMS {
        let is_packed = dims[2] == 0;
        assert_eq!(attention(names, is_packed, &[]), plain, "{names:?}");
    }
    let fifth = ["aclnnFlashAttentionVarLenScoreV5", "aclnnFlashAttentionUnpaddingScoreGradV5"];
    assert_eq!(attention(fifth, true, &["dsinkOut"]), plain);
    let mut sink = Data::new(AclType::F32, &[2], &[0.0; 2]);
    let name = "aclnnFlashAttentionScoreV3";
    let (mut q, mut max, mut sum) = (
        Data::blank(AclType::F16, &[1, 4, 2, 16]),
        Data::blank(AclType::F32, &[1, 2, 4, 8]),
        Data::blank(AclType::F32, &[1, 2, 4, 8]),
    );
    let (mut k, mut v, mut out) = (q.clone(), q.clone(), q.clone());
    let mut call = vec![("query", Arg::T(&mut q)), ("key", Arg::T(&mut k)), ("value", Arg::T(&mut v))];
    call.extend([("sinkOptional", Arg::T(&mut sink)), ("softmaxMaxOut", Arg::T(&mut max))]);
    call.extend([("softmaxSumOut", Arg::T(&mut sum)), ("attentionOutOut", Arg::T(&mut out))]);
    refused(name, named(name, call), &["sinkOptional: is given, but the emulator does not model"]);
}

const TOKENS: usize = 5;
const DEPTH: usize = 4;
/// Words of each of two shards.
const WORDS: usize = 128;
const TARGETS: [i64; TOKENS] = [130, 0, 127, 255, 128];

/// Losses over the whole vocabulary.
fn losses(x: &[f64], w: &[f64]) -> Vec<f64> {
    let logit = |t: usize, v: usize| (0..DEPTH).map(|i| x[t * DEPTH + i] * w[v * DEPTH + i]).sum::<f64>();
    let loss = |t: usize| {
        (0..2 * WORDS).map(|v| logit(t, v).exp()).sum::<f64>().ln() - logit(t, TARGETS[t] as usize)
    };
    (0..TOKENS).map(loss).collect()
}

fn half(dims: &[usize], values: &[f64]) -> Data {
    Data::new(AclType::F16, dims, values).strided()
}

fn line(values: &[f64]) -> Data {
    Data::new(AclType::F32, &[TOKENS], values)
}

/// Results of a card for a shard of the vocabulary.
struct Shard {
    most: Vec<f64>,
    sum: Vec<f64>,
    predicted: Vec<f64>,
    logits: Vec<f64>,
    mask: Data,
    masked: Data,
    weight: Data,
}

fn shard(index: usize, x: &[f64], w: &[f64]) -> Shard {
    let mut a = half(&[TOKENS, DEPTH], x);
    let mut weight = half(&[WORDS, DEPTH], &w[index * WORDS * DEPTH..][..WORDS * DEPTH]);
    let mut target = Data::new(AclType::I64, &[TOKENS], &TARGETS.map(|target| target as f64));
    let [mut most, mut sum, mut predicted] = [0; 3].map(|_| line(&[0.0; TOKENS]));
    let (mut mask, mut masked) = (Data::blank(AclType::U8, &[1]), Data::blank(AclType::I64, &[TOKENS]));
    let mut logits = Data::blank(AclType::F16, &[TOKENS, WORDS]);
    let (first, name) = ((index * WORDS) as i64, "aclnnFusedLinearOnlineMaxSum");
    let mut call =
        vec![("input", Arg::T(&mut a)), ("weight", Arg::T(&mut weight)), ("target", Arg::T(&mut target))];
    call.push(("vocabStartIndex", Arg::I(first)));
    call.push(("vocabEndIndex", Arg::I(first + WORDS as i64)));
    call.extend([("logitsMaxLocalOut", Arg::T(&mut most)), ("sumExpLogitsLocalOut", Arg::T(&mut sum))]);
    call.push(("predictedLogitsLocalOut", Arg::T(&mut predicted)));
    call.extend([("targetMaskOut", Arg::T(&mut mask)), ("maskedTargetOut", Arg::T(&mut masked))]);
    call.push(("vocabParallelLogitsOutOptional", Arg::T(&mut logits)));
    run(name, named(name, call)).unwrap();
    let is_here = |t: usize| TARGETS[t] as usize / WORDS == index;
    // The bits past the tokens are bits of target 0, which the first card has.
    let is_marked = |t: usize| if t < TOKENS { !is_here(t) } else { index != 0 };
    let bits: u32 = (0..8).map(|t| u32::from(is_marked(t)) << t).sum();
    assert_eq!(mask.values(), [f64::from(bits)]);
    Shard {
        most: most.values(),
        sum: sum.values(),
        predicted: predicted.values(),
        logits: logits.values(),
        mask,
        masked,
        weight,
    }
}

#[test]
fn losses_of_sharded_vocabularies_are_those_of_the_whole() {
    let (x, w, up) = (varied(TOKENS * DEPTH, 1), varied(2 * WORDS * DEPTH, 2), varied(TOKENS, 3));
    let mut shards = [0, 1].map(|index| shard(index, &x, &w));
    // The cards exchange the largest logit, the sums and the logits of the targets.
    let most: Vec<f64> = (0..TOKENS).map(|t| shards[0].most[t].max(shards[1].most[t])).collect();
    let sum: Vec<f64> = (0..TOKENS)
        .map(|t| shards.iter().map(|shard| shard.sum[t] * (shard.most[t] - most[t]).exp()).sum())
        .collect();
    let of_target = |t: usize| {
        let own = &shards[TARGETS[t] as usize / WORDS];
        own.predicted[t] + own.most[t] - most[t]
    };
    let predicted: Vec<f64> = (0..TOKENS).map(of_target).collect();
    for (index, shard) in shards.iter_mut().enumerate() {
        let (mut m, mut s, mut p) = (line(&most), line(&sum), line(&predicted));
        let mut all = Data::new(AclType::F32, &[TOKENS, WORDS], &shard.logits);
        let (mut out, mut shares) = (line(&[0.0; TOKENS]), Data::blank(AclType::F32, &[TOKENS, WORDS]));
        let name = "aclnnFusedCrossEntropyLossWithMaxSum";
        let mut call = vec![("logitsMax", Arg::T(&mut m)), ("sumExpLogits", Arg::T(&mut s))];
        call.extend([("labelSmoothing", Arg::F(0.0)), ("predictedLogits", Arg::T(&mut p))]);
        call.push(("vocabParallelLogitsOptional", Arg::T(&mut all)));
        call.extend([("lossOut", Arg::T(&mut out)), ("softMaxOutOptional", Arg::T(&mut shares))]);
        run(name, named(name, call)).unwrap();
        close(&out.values(), &losses(&x, &w), 2e-3, "losses");
        let slope = |i: usize| {
            let at = |step: f64| {
                let mut moved = w.clone();
                moved[index * WORDS * DEPTH + i] += step;
                losses(&x, &moved).iter().zip(&up).map(|(loss, up)| loss * up).sum::<f64>()
            };
            (at(1e-4) - at(-1e-4)) / 2e-4
        };
        // Every eleventh element.
        let slopes: Vec<f64> = (0..WORDS * DEPTH).step_by(11).map(slope).collect();
        let mut mask = vec![0.0; TOKENS];
        mask[0] = shard.mask.values()[0];
        let mut mask = Data::new(AclType::U8, &[TOKENS], &mask);
        for with_shares in [true, false] {
            let (mut g, mut a) = (line(&up), half(&[TOKENS, DEPTH], &x));
            let (mut dx, mut dw) =
                (Data::blank(AclType::F16, &[TOKENS, DEPTH]), Data::blank(AclType::F16, &[WORDS, DEPTH]));
            let name = "aclnnFusedLinearCrossEntropyLossGrad";
            let mut call = vec![("grad", Arg::T(&mut g)), ("input", Arg::T(&mut a))];
            call.extend([("weight", Arg::T(&mut shard.weight)), ("targetMask", Arg::T(&mut mask))]);
            call.extend([("maskedTarget", Arg::T(&mut shard.masked)), ("labelSmoothing", Arg::F(0.0))]);
            if with_shares {
                call.push(("softmaxOptional", Arg::T(&mut shares)));
            } else {
                call.push(("logitsMaxOptional", Arg::T(&mut m)));
                call.push(("sumExpLogitsOptional", Arg::T(&mut s)));
            }
            call.extend([("inputGradOut", Arg::T(&mut dx)), ("weightGradOut", Arg::T(&mut dw))]);
            run(name, named(name, call)).unwrap();
            let found: Vec<f64> = dw.values().into_iter().step_by(11).collect();
            close(&found, &slopes, 4e-3, "weights");
        }
    }
}
