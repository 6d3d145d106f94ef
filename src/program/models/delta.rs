//! Linear attention by the gated delta rule, over states or over the tokens of a run.
//!
//! Input: the normalised input of an attention part. Output: its result.
//!
//! A state has the last inputs of the convolution, and one matrix `[d,e]` of f32 numbers for each
//! value head. Shape letters: i key heads, r value heads per key head, d dims of a key, e dims of a
//! value, n chunks, t tokens of a chunk.
//!
//! Runs of one token use the recurrence. Longer runs are computed in chunks of [`CHUNK`] tokens,
//! counted from the start of the run. The chunks of a prompt are the same in all runs if each run
//! starts at a multiple of [`CHUNK`] tokens. Everything that does not depend on the state is
//! computed for all chunks at once.
//!
//! States are stored as `[i,d,r,e]`, so that a product of one token with the states of a key head
//! is one product of dense matrices. Chunks have the dims of heads before those of tokens, for the
//! same reason.
//!
//! Not here: which state belongs to a sequence.

use crate::base::DType;
use crate::config::GatedDelta;
use crate::config::families::DeltaInputs;
use crate::program::build::{Builder, Operand};
use crate::program::graph::{Form, Source};
use crate::program::op::Kind;

use super::layer_of_weight;
use super::layers::{LayerInputs, Seen, States, refuse, whole};

/// Number of tokens that are computed together.
pub const CHUNK: usize = 64;

/// End of the name of the states with the last inputs of the convolution.
pub(super) const WINDOW: &str = ".window";

/// Name of the results of the rule in their layer, before their norm.
pub(crate) const RULE: &str = "attention.rule";
/// Name of the output of the attention part in its layer.
pub(crate) const OUT: &str = "attention.out";

/// Number added to the sum of squares of a query or key before the root.
const UNIT_EPSILON: f64 = 1e-6;

/// The projections of the input.
struct DeltaProjections {
    /// Queries, keys and values before the convolution, `[b,s,i,2d+r·e]`.
    vectors: Operand,
    /// Gates `[b,s,i,r,e]`.
    gates: Operand,
    /// Write strengths before the sigmoid, `[b,s,i,r]`, f32.
    strengths: Operand,
    /// Step sizes without their bias, `[b,s,i,r]`, f32.
    steps: Operand,
}

/// Operands of the rule, f32: queries and keys of any length `[b,s,i,d]`, values `[b,s,i,r,e]`,
/// logarithms of the decay and write strengths `[b,s,i,r]`.
#[derive(Clone, Copy)]
struct DeltaOperands {
    query: Operand,
    key: Operand,
    value: Operand,
    decay: Operand,
    strength: Operand,
}

impl LayerInputs<'_> {
    pub(super) fn delta(&self, build: &mut Builder, layer: usize, delta: &GatedDelta, x: Operand) -> Operand {
        let tag = |name: &str| format!("layers.{layer}.attention.{name}");
        let (names, h) = (self.tensors().delta, self.config.hidden_size);
        let GatedDelta { key_heads: i, value_dims: e, .. } = *delta;
        let r = delta.values_per_key();
        let DeltaProjections { vectors, gates, strengths, steps } = self.delta_inputs(build, layer, delta, x);
        let vectors = build.name(vectors, tag("vectors"));
        let [query, key, value] = self.convolved(build, layer, delta, vectors);
        let value = build.op(Kind::SplitDim { dim: 3, size: e }, &[value]);
        let scalar = |name: &str| self.config.layer_tensor(layer, name);
        let [rate, bias] = [names.decay, names.step_bias].map(|name| {
            let name = scalar(name);
            build.param_from(&name, [i, r], DType::F32, whole(&name))
        });
        let strength = build.op(Kind::Sigmoid, &[strengths]);
        let steps = build.add(steps, bias);
        let steps = build.op(Kind::Softplus, &[steps]);
        let rate = build.op(Kind::Exp, &[rate]);
        let rate = build.op(Kind::Scale { by: -1.0 }, &[rate]);
        let decay = build.mul(steps, rate);
        let rule = DeltaOperands { query, key, value, decay, strength };
        let y = self.ruled(build, layer, delta, rule);
        let y = build.name(y, format!("layers.{layer}.{RULE}"));
        let norm = self.config.layer_tensor(layer, names.norm);
        let norm = build.param_from(&norm, [e], DType::F32, whole(&norm));
        let y = build.rms_norm(y, norm, self.config.norm_epsilon);
        let gates = self.cast(build, gates, DType::F32);
        let y = build.op(Kind::SwiGlu, &[gates, y]);
        let y = self.cast(build, y, self.dtype);
        let y = build.name(y, tag("heads"));
        let out = format!("{}.weight", self.config.layer_tensor(layer, names.out));
        let y = self.linear(build, "bsire,oire->bso", y, &out, whole(&out), &[h, i, r, e]);
        build.name(y, format!("layers.{layer}.{OUT}"))
    }

    fn delta_inputs(
        &self,
        build: &mut Builder,
        layer: usize,
        delta: &GatedDelta,
        x: Operand,
    ) -> DeltaProjections {
        let h = self.config.hidden_size;
        let GatedDelta { key_heads: i, key_dims: d, value_dims: e, .. } = *delta;
        let r = delta.values_per_key();
        let path = |name: &str| format!("{}.weight", self.config.layer_tensor(layer, name));
        match self.tensors().delta.inputs {
            DeltaInputs::ByKeyHead { vectors, scalars } => {
                let (name, rows) = (path(vectors), 2 * (d + r * e));
                let all = self.linear(build, "bsh,iwh->bsiw", x, &name, whole(&name), &[i, rows, h]);
                let part = |build: &mut Builder, from, start, size| {
                    build.op(Kind::Narrow { dim: 3, start, size }, &[from])
                };
                let vectors = part(build, all, 0, 2 * d + r * e);
                let gates = part(build, all, 2 * d + r * e, r * e);
                let gates = build.op(Kind::SplitDim { dim: 3, size: e }, &[gates]);
                let name = path(scalars);
                let both = self.linear(build, "bsh,iwh->bsiw", x, &name, whole(&name), &[i, 2 * r, h]);
                let both = self.cast(build, both, DType::F32);
                let (strengths, steps) = (part(build, both, 0, r), part(build, both, r, r));
                DeltaProjections { vectors, gates, strengths, steps }
            }
            DeltaInputs::Sections { vectors, gates, strengths, steps } => {
                let tensor = path(vectors);
                let sections = [("q", 0, d), ("k", d, d), ("v", 2 * d, r * e)];
                let [query, key, value] = sections.map(|(name, row, rows)| {
                    let name = format!("{}.{name}.weight", layer_of_weight(&tensor));
                    let source = Source { element_offset: row * i * h, ..whole(&tensor) };
                    self.linear(build, "bsh,iwh->bsiw", x, &name, source, &[i, rows, h])
                });
                let vectors = build.op(Kind::Concat { dim: 3 }, &[query, key]);
                let vectors = build.op(Kind::Concat { dim: 3 }, &[vectors, value]);
                let gates = path(gates);
                let gates = self.linear(build, "bsh,ireh->bsire", x, &gates, whole(&gates), &[i, r, e, h]);
                let [strengths, steps] = [strengths, steps].map(|name| {
                    let name = path(name);
                    let x = self.linear(build, "bsh,irh->bsir", x, &name, whole(&name), &[i, r, h]);
                    self.cast(build, x, DType::F32)
                });
                DeltaProjections { vectors, gates, strengths, steps }
            }
        }
    }

    /// Returns queries, keys and values behind the convolution, f32.
    fn convolved(&self, build: &mut Builder, layer: usize, delta: &GatedDelta, x: Operand) -> [Operand; 3] {
        let GatedDelta { key_heads: i, key_dims: d, value_dims: e, convolution: taps, .. } = *delta;
        let values = delta.values_per_key() * e;
        let tokens = build.value(x).shape[1];
        let (x, padded) = match &self.tokens.seen {
            Seen::Run(_) => (x, taps - 1),
            Seen::Caches { states, .. } => {
                let Some(states) = self.states(build, layer, states.as_ref()) else { return [x; 3] };
                let shape = [states.pool.count, taps - 1, i, 2 * d + values];
                let window = build.state(&format!("layers.{layer}{WINDOW}"), shape, self.dtype);
                let before = states.read(build, window);
                let x = build.op(Kind::Concat { dim: 1 }, &[before, x]);
                let last = match states.tokens {
                    Some([last, _]) => build.op(Kind::SelectTokens, &[x, last]),
                    None => build.op(Kind::Narrow { dim: 1, start: tokens, size: taps - 1 }, &[x]),
                };
                states.write(build, window, last);
                (x, 0)
            }
        };
        let tensor = self.config.layer_tensor(layer, self.tensors().delta.convolution);
        let sections = [("q", 0, d), ("k", d, d), ("v", 2 * d, values)];
        let part =
            |build: &mut Builder, x, (_, start, size)| build.op(Kind::Narrow { dim: 3, start, size }, &[x]);
        let parts = sections.map(|(name, start, size)| {
            let source =
                Source { element_offset: start * i * taps, form: Form::Numbers, tensor: tensor.clone() };
            let path = format!("{}.{name}.weight", layer_of_weight(&tensor));
            let filter = self.param(build, &path, &[i, size, taps], source);
            let x = part(build, x, (name, start, size));
            build.op(Kind::CausalConvolution { padded }, &[x, filter])
        });
        let y = concatenated(build, &parts, 3);
        let y = build.op(Kind::Silu, &[y]);
        let y = self.cast(build, y, DType::F32);
        sections.map(|section| part(build, y, section))
    }

    /// Returns the results `[b,s,i,r,e]` of the rule.
    fn ruled(
        &self,
        build: &mut Builder,
        layer: usize,
        delta: &GatedDelta,
        mut rule: DeltaOperands,
    ) -> Operand {
        let GatedDelta { key_heads: i, key_dims: d, value_dims: e, .. } = *delta;
        let Seen::Caches { states, .. } = &self.tokens.seen else {
            return chunks(build, rule, None).0;
        };
        let Some(states) = self.states(build, layer, states.as_ref()) else { return rule.value };
        let shape = [states.pool.count, i, d, delta.values_per_key(), e];
        let all = build.state(&format!("layers.{layer}.state"), shape, DType::F32);
        let before = states.read(build, all);
        let (y, after) = match states.tokens {
            None => step(build, rule, before),
            Some([_, valid]) => {
                // Padding neither decays a state nor writes to it.
                rule.decay = build.mul(rule.decay, valid);
                rule.strength = build.mul(rule.strength, valid);
                chunks(build, rule, Some(before))
            }
        };
        states.write(build, all, after);
        y
    }

    fn states<'a>(
        &self,
        build: &mut Builder,
        layer: usize,
        states: Option<&'a States>,
    ) -> Option<&'a States> {
        if states.is_none() {
            refuse(build, layer, "a recurrent layer in a run without states", "a run of this model");
        }
        states
    }
}

impl States {
    /// Returns the states of the sequences.
    fn read(&self, build: &mut Builder, states: Operand) -> Operand {
        build.op(Kind::ReadStates { pools: self.pool.pools }, &[states, self.from])
    }

    /// Writes the states of the sequences.
    fn write(&self, build: &mut Builder, states: Operand, new: Operand) {
        build.op(Kind::WriteStates { pools: self.pool.pools }, &[states, new, self.to]);
    }
}

/// Returns `x` with rows of the length `scale`.
fn unit(build: &mut Builder, x: Operand, scale: f64) -> Operand {
    build.op(Kind::Unit { scale, epsilon: UNIT_EPSILON }, &[x])
}

/// Returns queries and keys with the lengths that the rule needs.
fn units(build: &mut Builder, query: Operand, key: Operand) -> [Operand; 2] {
    let dims = build.value(key).shape.last().copied().unwrap_or(1);
    [unit(build, query, (dims as f64).sqrt().recip()), unit(build, key, 1.0)]
}

/// Inserts a dim with `size` copies of `x`.
fn repeat(build: &mut Builder, x: Operand, dim: usize, size: usize) -> Operand {
    build.op(Kind::Repeat { dim, size }, &[x])
}

/// Removes a dim of size 1.
fn without(build: &mut Builder, x: Operand, dim: usize) -> Operand {
    build.op(Kind::ReduceSum { dim }, &[x])
}

fn permuted(build: &mut Builder, x: Operand, dims: &[usize]) -> Operand {
    build.op(Kind::Permute { dims: dims.to_vec() }, &[x])
}

/// Returns `sum + x · w`.
fn plus_product(build: &mut Builder, sum: Operand, spec: &str, [x, w]: [Operand; 2]) -> Operand {
    let spec = build.einsum(spec);
    build.op(Kind::AddMatMul { spec }, &[sum, x, w])
}

/// Concatenates neighbours first, so that few results are copied often.
fn concatenated(build: &mut Builder, parts: &[Operand], dim: usize) -> Operand {
    match *parts {
        [only] => only,
        _ => {
            let (first, others) = parts.split_at(parts.len().next_power_of_two() / 2);
            let halves = [first, others].map(|half| concatenated(build, half, dim));
            build.op(Kind::Concat { dim }, &halves)
        }
    }
}

/// Computes one token: returns the results and the states `[b,i,d,r,e]` after it.
fn step(build: &mut Builder, rule: DeltaOperands, state: Operand) -> (Operand, Operand) {
    let DeltaOperands { query, key, value, decay, strength } = rule;
    let [query, key] = units(build, query, key);
    let decay = build.op(Kind::Exp, &[decay]);
    // The dim of the only token takes the place of the dims of keys.
    let decay = permuted(build, decay, &[0, 2, 1, 3]);
    let decay = repeat(build, decay, 4, 1);
    let state = build.mul(state, decay);
    let known = build.matmul("bsid,bidre->bsire", key, state);
    let new = build.op(Kind::Subtract, &[value, known]);
    let strength = repeat(build, strength, 4, 1);
    let new = build.mul(new, strength);
    let state = plus_product(build, state, "bsid,bsire->bidre", [key, new]);
    (build.matmul("bsid,bidre->bsire", query, state), state)
}

/// Computes all tokens: returns the results and the states `[b,i,d,r,e]` after them. `state` is the
/// state before the first token, or `None` for zeros.
fn chunks(build: &mut Builder, rule: DeltaOperands, state: Option<Operand>) -> (Operand, Operand) {
    const EXCHANGED: [usize; 5] = [0, 1, 3, 2, 4];
    let tokens = build.value(rule.key).shape[1];
    let rest = tokens % CHUNK;
    let mut results = Vec::new();
    let mut state = state.map(|state| {
        let by_head = permuted(build, state, &EXCHANGED);
        repeat(build, by_head, 1, 1)
    });
    for (start, size, chunk) in [(0, tokens - rest, CHUNK), (tokens - rest, rest, rest)] {
        if size == 0 {
            continue;
        }
        let mut part = |x: Operand| {
            let x = if size == tokens { x } else { build.op(Kind::Narrow { dim: 1, start, size }, &[x]) };
            build.op(Kind::SplitDim { dim: 1, size: chunk }, &[x])
        };
        let DeltaOperands { query, key, value, decay, strength } = rule;
        let [query, key, value, decay, strength] = [query, key, value, decay, strength].map(&mut part);
        let within = Within::new(build, DeltaOperands { query, key, value, decay, strength });
        let mut of_chunks = Vec::new();
        for at in 0..size / chunk {
            let (y, after) = within.chunk(build, at, state);
            of_chunks.push(y);
            state = Some(after);
        }
        let y = concatenated(build, &of_chunks, 1);
        let y = permuted(build, y, &[0, 1, 4, 2, 3, 5]);
        results.push(build.op(Kind::MergeDims { dim: 1 }, &[y]));
    }
    let Some(state) = state else { return (rule.value, rule.value) };
    let state = without(build, state, 1);
    (concatenated(build, &results, 1), permuted(build, state, &EXCHANGED))
}

/// Effects of the tokens of each chunk on each other, without the state before the chunk.
///
/// In a chunk, the state is `S`, and `u` are the rows that the tokens write. With `c` the sums of
/// the logarithms of the decay: `u = fresh + read S`, `y = query S + scores u`, and then `S`
/// becomes `decay S + keysᵀ u`.
struct Within {
    /// Rows that the tokens would write to a zero state, `[b,n,i,r,t,e]`.
    fresh: Operand,
    /// Factor of the state in the rows, `[b,n,i,r,t,d]`. It removes the value that the state has
    /// for a key.
    read: Operand,
    /// Queries times the decay up to them, `[b,n,i,r,t,d]`.
    query: Operand,
    /// Products of queries and earlier keys, times the decay between them, `[b,n,i,r,t,t]`.
    scores: Operand,
    /// Keys times the decay after them, `[b,n,i,r,t,d]`.
    keys: Operand,
    /// Decay of the whole chunk, `[b,n,i,r,1,1]`.
    decay: Operand,
}

impl Within {
    /// The operands have the dims `[b,n,t,…]`.
    fn new(build: &mut Builder, rule: DeltaOperands) -> Self {
        let DeltaOperands { query, key, value, decay, strength } = rule;
        let [t, r] = [2, 4].map(|dim| build.value(value).shape[dim]);
        let [query, key] = [query, key].map(|x| permuted(build, x, &[0, 1, 3, 2, 4]));
        let [query, key] = units(build, query, key);
        let value = permuted(build, value, &[0, 1, 3, 4, 2, 5]);
        let [decay, strength] = [decay, strength].map(|x| permuted(build, x, &[0, 1, 3, 4, 2]));
        let sums = build.op(Kind::CumSum { dim: 4 }, &[decay]);
        let [to, from] = [(5, t), (4, 1)].map(|(dim, size)| repeat(build, sums, dim, size));
        let between = build.op(Kind::Subtract, &[to, from]);
        // Above the diagonal the exponents are positive, and could be large.
        let between = build.op(Kind::Lower { below: 0 }, &[between]);
        let between = build.op(Kind::Exp, &[between]);
        let between = build.op(Kind::Lower { below: 0 }, &[between]);
        let [scores, overlap] = [query, key].map(|x| {
            let products = build.matmul("bnitd,bnisd->bnits", x, key);
            let products = repeat(build, products, 3, 1);
            build.mul(between, products)
        });
        let by_row = |build: &mut Builder, x, factor| {
            let factor = repeat(build, factor, 5, 1);
            build.mul(x, factor)
        };
        let overlap = by_row(build, overlap, strength);
        let solution = build.op(Kind::UnitLowerInverse, &[overlap]);
        let fresh = by_row(build, value, strength);
        let fresh = build.matmul("bnirts,bnirse->bnirte", solution, fresh);
        let [query, key] = [query, key].map(|x| repeat(build, x, 3, r));
        let until = build.op(Kind::Exp, &[sums]);
        let factor = build.mul(strength, until);
        let factor = build.op(Kind::Scale { by: -1.0 }, &[factor]);
        let read = by_row(build, key, factor);
        let read = build.matmul("bnirts,bnirsd->bnirtd", solution, read);
        let query = by_row(build, query, until);
        let last = build.op(Kind::Narrow { dim: 4, start: t - 1, size: 1 }, &[sums]);
        let last = without(build, last, 4);
        let after = repeat(build, last, 4, t);
        let after = build.op(Kind::Subtract, &[after, sums]);
        let after = build.op(Kind::Exp, &[after]);
        let keys = by_row(build, key, after);
        let decay = build.op(Kind::Exp, &[last]);
        let decay = repeat(build, decay, 4, 1);
        let decay = repeat(build, decay, 4, 1);
        Self { fresh, read, query, scores, keys, decay }
    }

    /// Returns the results `[b,1,i,r,t,e]` of chunk `at`, and the states `[b,1,i,r,d,e]` after it.
    fn chunk(&self, build: &mut Builder, at: usize, state: Option<Operand>) -> (Operand, Operand) {
        const READ: &str = "bnirtd,bnirde->bnirte";
        const WITHIN: &str = "bnirts,bnirse->bnirte";
        const WRITE: &str = "bnirtd,bnirte->bnirde";
        let Self { fresh, read, query, scores, keys, decay } = *self;
        let [fresh, read, query, scores, keys, decay] =
            [fresh, read, query, scores, keys, decay].map(|x| match build.value(x).shape[1] {
                1 => x,
                _ => build.op(Kind::Narrow { dim: 1, start: at, size: 1 }, &[x]),
            });
        let Some(state) = state else {
            return (build.matmul(WITHIN, scores, fresh), build.matmul(WRITE, keys, fresh));
        };
        let new = plus_product(build, fresh, READ, [read, state]);
        let earlier = build.matmul(READ, query, state);
        let y = plus_product(build, earlier, WITHIN, [scores, new]);
        let state = build.mul(state, decay);
        (y, plus_product(build, state, WRITE, [keys, new]))
    }
}
