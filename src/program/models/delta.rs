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
//! starts at a multiple of [`CHUNK`] tokens.
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
struct Projected {
    /// Queries, keys and values before the convolution, `[b,s,i,2d+r·e]`.
    vectors: Operand,
    /// Gates `[b,s,i,r,e]`.
    gates: Operand,
    /// Write strengths before the sigmoid, `[b,s,i,r]`.
    strengths: Operand,
    /// Step sizes without their bias, `[b,s,i,r]`.
    steps: Operand,
}

/// Operands of the rule, f32: queries and keys `[b,s,i,d]`, values `[b,s,i,r,e]`, logarithms of the
/// decay and write strengths `[b,s,i,r]`.
#[derive(Clone, Copy)]
struct Rule {
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
        let GatedDelta { key_heads: i, key_dims: d, value_dims: e, .. } = *delta;
        let r = delta.values_per_key();
        let Projected { vectors, gates, strengths, steps } = self.delta_inputs(build, layer, delta, x);
        let vectors = build.name(vectors, tag("vectors"));
        let [query, key, value] = self.convolved(build, layer, delta, vectors);
        let query = unit(build, query, (d as f64).sqrt().recip());
        let key = unit(build, key, 1.0);
        let value = build.op(Kind::SplitDim { dim: 3, size: e }, &[value]);
        let scalar = |name: &str| self.tensors().layer(layer, name);
        let [rate, bias] = [names.decay, names.step_bias].map(|name| {
            let name = scalar(name);
            build.param_from(&name, [i, r], DType::F32, whole(&name))
        });
        let strength = build.op(Kind::Sigmoid, &[strengths]);
        let strength = self.cast(build, strength, DType::F32);
        let steps = self.cast(build, steps, DType::F32);
        let steps = build.add(steps, bias);
        let steps = build.op(Kind::Softplus, &[steps]);
        let rate = build.op(Kind::Exp, &[rate]);
        let rate = build.op(Kind::Scale { by: -1.0 }, &[rate]);
        let decay = build.mul(steps, rate);
        let rule = Rule { query, key, value, decay, strength };
        let y = self.ruled(build, layer, delta, rule);
        let y = build.name(y, format!("layers.{layer}.{RULE}"));
        let norm = self.tensors().layer(layer, names.norm);
        let norm = build.param_from(&norm, [e], DType::F32, whole(&norm));
        let y = build.rms_norm(y, norm, self.config.norm_epsilon);
        let gates = self.cast(build, gates, DType::F32);
        let y = build.op(Kind::SwiGlu, &[gates, y]);
        let y = self.cast(build, y, self.dtype);
        let y = build.name(y, tag("heads"));
        let out = format!("{}.weight", self.tensors().layer(layer, names.out));
        let y = self.linear(build, "bsire,oire->bso", y, &out, whole(&out), &[h, i, r, e]);
        build.name(y, format!("layers.{layer}.{OUT}"))
    }

    fn delta_inputs(&self, build: &mut Builder, layer: usize, delta: &GatedDelta, x: Operand) -> Projected {
        let h = self.config.hidden_size;
        let GatedDelta { key_heads: i, key_dims: d, value_dims: e, .. } = *delta;
        let r = delta.values_per_key();
        let path = |name: &str| format!("{}.weight", self.tensors().layer(layer, name));
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
                let (strengths, steps) = (part(build, both, 0, r), part(build, both, r, r));
                Projected { vectors, gates, strengths, steps }
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
                    self.linear(build, "bsh,irh->bsir", x, &name, whole(&name), &[i, r, h])
                });
                Projected { vectors, gates, strengths, steps }
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
        let tensor = self.tensors().layer(layer, self.tensors().delta.convolution);
        let sections = [("q", 0, d), ("k", d, d), ("v", 2 * d, values)];
        sections.map(|(name, start, size)| {
            let name = format!("{}.{name}.weight", layer_of_weight(&tensor));
            let source =
                Source { element_offset: start * i * taps, form: Form::Numbers, tensor: tensor.clone() };
            let filter = self.param(build, &name, &[i, size, taps], source);
            let part = build.op(Kind::Narrow { dim: 3, start, size }, &[x]);
            let y = build.op(Kind::CausalConvolution { padded }, &[part, filter]);
            let y = build.op(Kind::Silu, &[y]);
            self.cast(build, y, DType::F32)
        })
    }

    /// Returns the results `[b,s,i,r,e]` of the rule.
    fn ruled(&self, build: &mut Builder, layer: usize, delta: &GatedDelta, mut rule: Rule) -> Operand {
        let GatedDelta { key_heads: i, key_dims: d, value_dims: e, .. } = *delta;
        let Seen::Caches { states, .. } = &self.tokens.seen else {
            return chunks(build, rule, None).0;
        };
        let Some(states) = self.states(build, layer, states.as_ref()) else { return rule.value };
        let shape = [states.pool.count, i, delta.values_per_key(), d, e];
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

/// Returns `x` with heads of the length `scale`.
fn unit(build: &mut Builder, x: Operand, scale: f64) -> Operand {
    let squares = build.mul(x, x);
    let sum = build.op(Kind::ReduceSum { dim: 3 }, &[squares]);
    let root = build.op(Kind::InverseRoot { by: 1.0, epsilon: UNIT_EPSILON }, &[sum]);
    let root = if scale == 1.0 { root } else { build.op(Kind::Scale { by: scale }, &[root]) };
    let root = build.op(Kind::Expand { dims: vec![3] }, &[root, x]);
    build.mul(x, root)
}

fn less(build: &mut Builder, x: Operand, y: Operand) -> Operand {
    let negative = build.op(Kind::Scale { by: -1.0 }, &[y]);
    build.add(x, negative)
}

/// Computes one token: returns the results and the states after it.
fn step(build: &mut Builder, rule: Rule, state: Operand) -> (Operand, Operand) {
    let Rule { query, key, value, decay, strength } = rule;
    let state = decayed(build, state, decay);
    let known = build.matmul("birde,bsid->bsire", state, key);
    let new = less(build, value, known);
    let strength = build.op(Kind::Expand { dims: vec![4] }, &[strength, new]);
    let new = build.mul(new, strength);
    let written = build.matmul("bsid,bsire->birde", key, new);
    let state = build.add(state, written);
    (build.matmul("birde,bsid->bsire", state, query), state)
}

/// Returns the states after the decay whose logarithms are `decay[b,1,i,r]`.
fn decayed(build: &mut Builder, state: Operand, decay: Operand) -> Operand {
    let decay = build.op(Kind::Exp, &[decay]);
    let decay = build.op(Kind::ReduceSum { dim: 1 }, &[decay]);
    let decay = build.op(Kind::Expand { dims: vec![3, 4] }, &[decay, state]);
    build.mul(state, decay)
}

/// Computes all tokens: returns the results and the states after them. `state` is the state before
/// the first token, or `None` for zeros.
fn chunks(build: &mut Builder, rule: Rule, mut state: Option<Operand>) -> (Operand, Operand) {
    let tokens = build.value(rule.key).shape[1];
    let rest = tokens % CHUNK;
    let mut results = Vec::new();
    for (start, size, chunk) in [(0, tokens - rest, CHUNK), (tokens - rest, rest, rest)] {
        if size == 0 {
            continue;
        }
        let mut part = |x: Operand| {
            let x = if size == tokens { x } else { build.op(Kind::Narrow { dim: 1, start, size }, &[x]) };
            build.op(Kind::SplitDim { dim: 1, size: chunk }, &[x])
        };
        let Rule { query, key, value, decay, strength } = rule;
        let [query, key, value, decay, strength] = [query, key, value, decay, strength].map(&mut part);
        let within = Within::new(build, Rule { query, key, value, decay, strength });
        for at in 0..size / chunk {
            let (y, after) = within.chunk(build, at, state);
            results.push(build.op(Kind::MergeDims { dim: 1 }, &[y]));
            state = Some(after);
        }
    }
    // Neighbours are joined first, so that few results are copied often.
    while results.len() > 1 {
        let pairs = results.chunks(2);
        results = pairs
            .map(|pair| match *pair {
                [x, y] => build.op(Kind::Concat { dim: 1 }, &[x, y]),
                _ => pair[0],
            })
            .collect();
    }
    match (results[..].first(), state) {
        (Some(y), Some(state)) => (*y, state),
        _ => (rule.value, rule.value),
    }
}

/// What the tokens of each chunk do to each other, without the state before the chunk. The first
/// dims are `[b,n]`.
///
/// In a chunk, the state is `S`, and `u` are the rows that the tokens write. With `c` the sums of
/// the logarithms of the decay: `u = fresh - read S`, `y = query S + scores u`, and then `S`
/// becomes `decay S + keysᵀ u`.
struct Within {
    /// Rows that the tokens would write to a zero state, `[b,n,t,i,r,e]`.
    fresh: Operand,
    /// Factor of the state in the rows, `[b,n,t,i,r,d]`.
    read: Operand,
    /// Queries times the decay up to them, `[b,n,t,i,r,d]`.
    query: Operand,
    /// Products of queries and earlier keys, times the decay between them, `[b,n,i,r,t,t]`.
    scores: Operand,
    /// Keys times the decay after them, `[b,n,t,i,r,d]`.
    keys: Operand,
    /// Logarithm of the decay of the whole chunk, `[b,n,1,i,r]`.
    decay: Operand,
}

impl Within {
    fn new(build: &mut Builder, rule: Rule) -> Self {
        let Rule { query, key, value, decay, strength } = rule;
        let shape = build.value(value).shape.clone();
        let [t, r] = [2, 4].map(|dim| shape[dim]);
        let dims = build.value(key).shape[4];
        let per_head = |build: &mut Builder, x| build.op(Kind::Repeat { dim: 4, size: r }, &[x]);
        let sums = build.op(Kind::CumSum { dim: 2 }, &[decay]);
        let along = build.op(Kind::Permute { dims: vec![0, 1, 3, 4, 2] }, &[sums]);
        let [to, from] = [5, 4].map(|dim| build.op(Kind::Repeat { dim, size: t }, &[along]));
        let between = less(build, to, from);
        // Above the diagonal the exponents are positive, and could be large.
        let between = build.op(Kind::Lower { below: 0 }, &[between]);
        let between = build.op(Kind::Exp, &[between]);
        let between = build.op(Kind::Lower { below: 0 }, &[between]);

        let products = |build: &mut Builder, x| {
            let products = build.matmul("bntid,bnsid->bnits", x, key);
            let products = build.op(Kind::Repeat { dim: 3, size: r }, &[products]);
            build.mul(products, between)
        };
        let scores = products(build, query);
        let overlap = products(build, key);
        let by_row = build.op(Kind::Permute { dims: vec![0, 1, 3, 4, 2] }, &[strength]);
        let by_row = build.op(Kind::Expand { dims: vec![5] }, &[by_row, overlap]);
        let overlap = build.mul(overlap, by_row);
        let overlap = build.op(Kind::Lower { below: 1 }, &[overlap]);
        let solution = build.op(Kind::UnitLowerInverse, &[overlap]);

        let by_dim = |build: &mut Builder, x| build.op(Kind::Repeat { dim: 5, size: dims }, &[x]);
        let by_value = build.op(Kind::Expand { dims: vec![5] }, &[strength, value]);
        let fresh = build.mul(value, by_value);
        let fresh = build.matmul("bnirts,bnsire->bntire", solution, fresh);
        let key = per_head(build, key);
        let until = build.op(Kind::Exp, &[sums]);
        let factor = build.mul(strength, until);
        let factor = by_dim(build, factor);
        let read = build.mul(key, factor);
        let read = build.matmul("bnirts,bnsird->bntird", solution, read);
        let query = per_head(build, query);
        let until = by_dim(build, until);
        let query = build.mul(query, until);
        let decay = build.op(Kind::Narrow { dim: 2, start: t - 1, size: 1 }, &[sums]);
        let negative = build.op(Kind::Scale { by: -1.0 }, &[sums]);
        let after = build.add(negative, decay);
        let after = build.op(Kind::Exp, &[after]);
        let after = by_dim(build, after);
        let keys = build.mul(key, after);
        Self { fresh, read, query, scores, keys, decay }
    }

    /// Returns the results of chunk `at`, and the states after it.
    fn chunk(&self, build: &mut Builder, at: usize, state: Option<Operand>) -> (Operand, Operand) {
        let Self { fresh, read, query, scores, keys, decay } = *self;
        let [mut new, read, query, scores, keys, decay] =
            [fresh, read, query, scores, keys, decay].map(|x| match build.value(x).shape[1] {
                1 => x,
                _ => build.op(Kind::Narrow { dim: 1, start: at, size: 1 }, &[x]),
            });
        let mut earlier = None;
        if let Some(state) = state {
            let known = build.matmul("bntird,birde->bntire", read, state);
            new = less(build, new, known);
            let decay = build.op(Kind::ReduceSum { dim: 1 }, &[decay]);
            let y = build.matmul("bntird,birde->bntire", query, state);
            earlier = Some((y, decayed(build, state, decay)));
        }
        let y = build.matmul("bnirts,bnsire->bntire", scores, new);
        let written = build.matmul("bntird,bntire->birde", keys, new);
        match earlier {
            Some((earlier, state)) => (build.add(earlier, y), build.add(state, written)),
            None => (y, written),
        }
    }
}
