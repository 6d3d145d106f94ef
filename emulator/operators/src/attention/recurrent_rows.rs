//! Rows of the gated delta rule, a linear attention with a state per head.
//!
//! Computed in f64 from the stored elements. Lengths and indexes are contents of tensors, so
//! wrong ones fail the stream.

use crate::dtype::AclType::{self, BF16, F32};
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::{SINGLE, WHOLE32};
use crate::operator::sizes::Sizes;
use crate::operator::{CallPlan, Refusal};

const HALF: &[AclType] = &[BF16];
const STATES: &[AclType] = &[BF16, F32];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnRecurrentGatedDeltaRule",
        parameters: &[
            input(QUERY, HALF, 3, 3),
            input(KEY, HALF, 3, 3),
            input(VALUE, HALF, 3, 3),
            input(BETA_TENSOR, HALF, 2, 2),
            in_place(STATE_REF, STATES, 4, 4),
            input(ACTUAL_SEQ_LENGTHS_TENSOR, WHOLE32, 1, 1),
            input(SSM_STATE_INDICES, WHOLE32, 1, 1),
            input(G, SINGLE, 2, 2).optional(),
            input(GK, SINGLE, 3, 3).optional(),
            input(NUM_ACCEPTED_TOKENS, WHOLE32, 1, 1).optional(),
            output(OUT, HALF, 3, 3),
        ],
        limits: "query and key [T, Nk, Dk], value and out [T, Nv, Dv], beta and g [T, Nv], gk [T, Nv, Dk], stateRef [blocks, Nv, Dv, Dk], \
                 ssmStateIndices [T]; Nv up to 256 and a multiple of Nk, Dk and Dv up to 512, lengths 1 to 8 with the sum T, at least T blocks; token i leaves its \
                 state in block ssmStateIndices[i]; a sequence starts from the block of its token numAcceptedTokens - 1, or 0",
        source: "ops-transformer attention/recurrent_gated_delta_rule/docs/aclnnRecurrentGatedDeltaRule.md",
        plan: recurrent,
    },
    Operator {
        name: "aclnnChunkGatedDeltaRule",
        parameters: &[
            input(QUERY, HALF, 3, 3),
            input(KEY, HALF, 3, 3),
            input(VALUE, HALF, 3, 3),
            input(BETA_TENSOR, HALF, 2, 2),
            input(INITIAL_STATE, HALF, 4, 4),
            input(ACTUAL_SEQ_LENGTHS_TENSOR, WHOLE32, 1, 1),
            input(G_OPTIONAL, SINGLE, 2, 2).optional(),
            output(OUT, HALF, 3, 3),
            output(FINAL_STATE, HALF, 4, 4),
        ],
        limits: "as aclnnRecurrentGatedDeltaRule without gk; a state for each sequence, lengths of at least 1; Nv and Nk up to 64, Dk and Dv up to 128",
        source: "ops-transformer attention/chunk_gated_delta_rule/docs/aclnnChunkGatedDeltaRule.md",
        plan: chunked,
    },
];

/// Extents of the heads.
#[derive(Clone, Copy, Debug)]
struct Heads {
    keys: usize,
    values: usize,
    key_size: usize,
    value_size: usize,
}

impl Heads {
    fn of(call: &OperatorCall, sizes: &Sizes, most_heads: usize, most_size: usize) -> Result<Self, Refusal> {
        let [tokens, keys, values, key_size, value_size] = sizes.all(['t', 'm', 'n', 'k', 'v']);
        call.expect_elements(&[QUERY, VALUE])?;
        let fits = values.is_multiple_of(keys) && values <= most_heads;
        call.expect_that(fits, VALUE, &format!("a multiple of {keys} heads, up to {most_heads}"), values)?;
        for (name, size) in [(KEY, key_size), (VALUE, value_size)] {
            call.expect_that(size <= most_size, name, &format!("heads of up to {most_size}"), size)?;
        }
        debug_assert!(tokens > 0);
        Ok(Self { keys, values, key_size, value_size })
    }

    fn state(self) -> usize {
        self.values * self.value_size * self.key_size
    }
}

/// Elements of all tokens.
struct Tokens {
    heads: Heads,
    query: Vec<f64>,
    key: Vec<f64>,
    value: Vec<f64>,
    beta: Vec<f64>,
    /// Logarithms of the decay, by head, and by head and channel.
    decay: Option<Vec<f64>>,
    channel_decay: Option<Vec<f64>>,
    scale: f64,
}

impl Tokens {
    /// Updates the states of all heads for a token, and appends its outputs.
    fn step(&self, token: usize, state: &mut [f64], out: &mut Vec<f64>) {
        let Heads { keys, values, key_size, value_size } = self.heads;
        for head in 0..values {
            let row = token * values + head;
            let at = (token * keys + head / (values / keys)) * key_size;
            let (query, key) = (&self.query[at..at + key_size], &self.key[at..at + key_size]);
            let decay = self.decay.as_ref().map_or(1.0, |decay| decay[row].exp());
            let own = &mut state[head * value_size * key_size..(head + 1) * value_size * key_size];
            for (i, entry) in own.iter_mut().enumerate() {
                let channel = self.channel_decay.as_ref();
                *entry *= decay * channel.map_or(1.0, |decay| decay[row * key_size + i % key_size].exp());
            }
            for (i, line) in own.chunks_exact_mut(key_size).enumerate() {
                let known: f64 = line.iter().zip(key).map(|(s, k)| s * k).sum();
                let change = self.beta[row] * (self.value[row * value_size + i] - known);
                line.iter_mut().zip(key).for_each(|(s, k)| *s += change * k);
                out.push(line.iter().zip(query).map(|(s, q)| s * q * self.scale).sum());
            }
        }
    }
}

/// Returns the first tokens of sequences with these lengths.
fn starts(lengths: &[i64], tokens: usize, most: i64) -> Result<Vec<usize>, String> {
    let fits = lengths.iter().all(|length| (1..=most).contains(length));
    if !fits || lengths.iter().sum::<i64>() != tokens as i64 {
        return Err(format!(
            "actualSeqLengths: expected lengths of 1 to {most} with the sum {tokens}, found {lengths:?}"
        ));
    }
    Ok(lengths.iter().scan(0, |end, &length| Some(std::mem::replace(end, *end + length as usize))).collect())
}

fn recurrent(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let sizes = call.sizes(&[
        QUERY.of("tmk"),
        KEY.of("tmk"),
        VALUE.of("tnv"),
        BETA_TENSOR.of("tn"),
        STATE_REF.of("bnvk"),
        ACTUAL_SEQ_LENGTHS_TENSOR.of("s"),
        SSM_STATE_INDICES.of("t"),
        G.of("tn"),
        GK.of("tnk"),
        NUM_ACCEPTED_TOKENS.of("s"),
        OUT.of("tnv"),
    ])?;
    let heads = Heads::of(call, &sizes, 256, 512)?;
    let [tokens, blocks] = sizes.all(['t', 'b']);
    call.expect_that(blocks >= tokens, STATE_REF, &format!("at least {tokens} blocks"), blocks)?;
    let [query, key, value, beta, states, out] =
        call.slots_of([QUERY, KEY, VALUE, BETA_TENSOR, STATE_REF, OUT])?;
    let [lengths, places] = call.slots_of([ACTUAL_SEQ_LENGTHS_TENSOR, SSM_STATE_INDICES])?;
    let (g, gk, accepted) =
        (call.slot_if_given(G)?, call.slot_if_given(GK)?, call.slot_if_given(NUM_ACCEPTED_TOKENS)?);
    let scale = call.float(SCALE_VALUE)?;
    CallPlan::new(move |views, _| {
        let [query, key, value, beta] = [query, key, value, beta].map(|slot| views.read(slot));
        let (decay, channel_decay) = (views.read_given(g), views.read_given(gk));
        let all = Tokens { heads, query, key, value, beta, decay, channel_decay, scale };
        let lengths = views.read::<i64>(lengths);
        let firsts = starts(&lengths, tokens, 8)?;
        let block_of = views.read::<i64>(places).into_iter().map(|block| {
            let known = usize::try_from(block).ok().filter(|&known| known < blocks);
            known.ok_or_else(|| format!("ssmStateIndices: expected 0 to {}, found {block}", blocks - 1))
        });
        let block_of = block_of.collect::<Result<Vec<usize>, String>>()?;
        let accepted = views.read_given::<i64>(accepted).unwrap_or_else(|| vec![1; lengths.len()]);
        let (mut states_now, mut outs) = (views.read::<f64>(states), Vec::new());
        for ((first, &length), &taken) in firsts.into_iter().zip(&lengths).zip(&accepted) {
            if !(1..=length).contains(&taken) {
                return Err(format!("numAcceptedTokens: expected 1 to {length}, found {taken}"));
            }
            let size = heads.state();
            let start = block_of[first + taken as usize - 1] * size;
            let mut state = states_now[start..start + size].to_vec();
            for token in first..first + length as usize {
                all.step(token, &mut state, &mut outs);
                states_now[block_of[token] * size..][..size].copy_from_slice(&state);
            }
        }
        views.write(states, &states_now);
        views.write(out, &outs);
        Ok(())
    })
}

fn chunked(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let sizes = call.sizes(&[
        QUERY.of("tmk"),
        KEY.of("tmk"),
        VALUE.of("tnv"),
        BETA_TENSOR.of("tn"),
        INITIAL_STATE.of("snvk"),
        ACTUAL_SEQ_LENGTHS_TENSOR.of("s"),
        G_OPTIONAL.of("tn"),
        OUT.of("tnv"),
        FINAL_STATE.of("snvk"),
    ])?;
    let heads = Heads::of(call, &sizes, 64, 128)?;
    let tokens = sizes.of('t');
    let [query, key, value, beta, initial] =
        call.slots_of([QUERY, KEY, VALUE, BETA_TENSOR, INITIAL_STATE])?;
    let [lengths, out, states] = call.slots_of([ACTUAL_SEQ_LENGTHS_TENSOR, OUT, FINAL_STATE])?;
    let (g, scale) = (call.slot_if_given(G_OPTIONAL)?, call.float(SCALE_VALUE)?);
    CallPlan::new(move |views, _| {
        let [query, key, value, beta] = [query, key, value, beta].map(|slot| views.read(slot));
        let decay = views.read_given(g);
        let all = Tokens { heads, query, key, value, beta, decay, channel_decay: None, scale };
        let lengths = views.read::<i64>(lengths);
        let firsts = starts(&lengths, tokens, tokens as i64)?;
        let (mut state, mut outs) = (views.read::<f64>(initial), Vec::new());
        let own = state.chunks_exact_mut(heads.state());
        for ((first, &length), own) in firsts.into_iter().zip(&lengths).zip(own) {
            (first..first + length as usize).for_each(|token| all.step(token, own, &mut outs));
        }
        views.write(states, &state);
        views.write(out, &outs);
        Ok(())
    })
}
