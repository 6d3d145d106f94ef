//! Softmax attention, over caches or over the tokens of a run.
//!
//! Input: the normalised input of an attention part. Output: its result.
//!
//! Not here: the projections of latent attention (`latent`), and which blocks of a cache belong to
//! a sequence.

use crate::base::{DType, KvType};
use crate::config::{AttentionPart, GroupedAttention, QkNorm, Rotary, RotaryPairing};
use crate::program::build::{Builder, Operand};
use crate::program::graph::{Form, Source};
use crate::program::op::Kind;

use super::layers::{Caches, LayerInputs, Projected, Seen, quantised, refuse, same_rows, whole};
use super::{CACHE_SCALES, CacheBlocks, layer_of_weight};

/// How attention scores keys.
pub(super) struct Scoring {
    /// Factor of the scores.
    pub(super) scale: f64,
    /// Bound of the magnitude of scores.
    pub(super) cap: Option<f64>,
    /// Number of keys that a token reads, its own included.
    pub(super) window: Option<usize>,
    /// Score `[k,g]` of each query head that has no value, f32.
    pub(super) sinks: Option<Operand>,
}

/// Part of the projections of an attention that is the gates of its output.
const OUTPUT_GATE: usize = 3;

impl LayerInputs<'_> {
    pub(super) fn attention(&self, build: &mut Builder, layer: usize, x: Operand) -> Operand {
        let unsupported = match &self.config.layer(layer).attention {
            AttentionPart::Grouped(attention) if attention.has_sinks && attention.score_cap.is_some() => {
                "attention with sinks and soft caps"
            }
            AttentionPart::Grouped(attention) => return self.grouped(build, layer, attention, x),
            AttentionPart::Latent(latent) => return self.latent(build, layer, latent, x),
            AttentionPart::GatedDelta(delta) => return self.delta(build, layer, delta, x),
        };
        refuse(build, layer, unsupported, "grouped attention with sinks or with caps");
        x
    }

    fn grouped(
        &self,
        build: &mut Builder,
        layer: usize,
        attention: &GroupedAttention,
        x: Operand,
    ) -> Operand {
        let (config, tensors) = (self.config, self.tensors());
        let (h, k, d) = (config.hidden_size, config.kv_heads, config.head_dim);
        let g = config.heads_per_kv_head();
        let tag = |name: &str| format!("layers.{layer}.attention.{name}");
        let [mut q, mut key, value] = [0, 1, 2].map(|part| self.heads(build, layer, part, x));
        let names = [tensors.query_norm, tensors.key_norm].map(|name| self.config.layer_tensor(layer, name));
        let names = names.each_ref().map(String::as_str);
        match attention.qk_norm {
            Some(QkNorm::PerHead) => [q, key] = self.norms_of_heads(build, [q, key], names),
            Some(QkNorm::AllHeads) => [q, key] = self.norms_of_all_heads(build, [q, key], names),
            Some(QkNorm::PerRotatedHead) | None => {}
        }
        [q, key] = [q, key].map(|x| self.rotated(build, attention.rotary, x));
        if attention.qk_norm == Some(QkNorm::PerRotatedHead) {
            [q, key] = self.norms_of_heads(build, [q, key], names);
        }
        if let Some(logn) = self.tokens.logn {
            q = build.mul(q, logn);
        }
        let scores = Scoring {
            scale: attention.query_scalar.unwrap_or(d as f64).sqrt().recip(),
            cap: attention.score_cap,
            window: attention.window,
            sinks: attention.has_sinks.then(|| self.sinks(build, layer)),
        };
        let Some(mut y) = self.attended(build, layer, &scores, q, &[("keys", key), ("values", value)]) else {
            return x;
        };
        if attention.has_output_gate {
            let gate = self.heads(build, layer, OUTPUT_GATE, x);
            let gate = build.op(Kind::Sigmoid, &[gate]);
            y = build.mul(y, gate);
        }
        let y = build.name(y, tag("heads"));
        let name = self.config.layer_tensor(layer, tensors.attention_out);
        let weight = format!("{name}.weight");
        let mut y = self.linear(build, "bskgd,okgd->bso", y, &weight, whole(&weight), &[h, k, g, d]);
        if attention.output_bias && self.adds_bias(&weight) {
            let bias = format!("{name}.bias");
            let bias = self.param(build, &bias, &[h], whole(&bias));
            y = build.add(y, bias);
        }
        build.name(y, tag("out"))
    }

    /// Projects `x` to queries (part 0, `[b,s,k,g,d]`), keys (1), values (2, both `[b,s,k,d]`) or
    /// gates of the output (3, as queries). With gates, the rows of each query head are its query,
    /// and then its gate.
    fn heads(&self, build: &mut Builder, layer: usize, part: usize, x: Operand) -> Operand {
        let config = self.config;
        let has_gate = config.layer(layer).grouped().is_some_and(|attention| attention.has_output_gate);
        let is_query = part == 0 || part == OUTPUT_GATE;
        let group = is_query.then(|| config.heads_per_kv_head());
        let sizes: Vec<usize> =
            [Some(config.kv_heads), group, Some(config.head_dim)].into_iter().flatten().collect();
        let rows = [config.query_width(), config.kv_width(), config.kv_width()];
        let projection = Projected { of: self.tensors().qkv, names: ["q", "k", "v"], rows };
        let (mut name, mut source) = self.projection(layer, &projection, part % OUTPUT_GATE, "weight");
        if has_gate && is_query {
            let block_elems = config.head_dim * config.hidden_size;
            if part == OUTPUT_GATE {
                name = format!("{}.gate.weight", layer_of_weight(&name));
                source.element_offset += block_elems;
            }
            source.form = Form::Blocks { block_elems, stride_elems: 2 * block_elems };
        }
        let spec = if group.is_some() { "bsi,kgdi->bskgd" } else { "bsi,kdi->bskd" };
        let shape = [&sizes[..], &[config.hidden_size]].concat();
        let adds_bias = self.adds_bias(&source.tensor);
        let bias_rows = same_rows(&source, config.hidden_size, 1);
        let mut y = self.linear(build, spec, x, &name, source, &shape);
        if adds_bias && config.layer(layer).grouped().is_some_and(|attention| attention.qkv_bias) {
            let bias_of = |weight: &str| format!("{}.bias", layer_of_weight(weight));
            let source = Source { tensor: bias_of(&bias_rows.tensor), ..bias_rows };
            let bias = self.param(build, &bias_of(&name), &sizes, source);
            y = build.add(y, bias);
        }
        let name = projection.names.get(part).copied().unwrap_or("gate");
        build.name(y, format!("layers.{layer}.attention.{name}"))
    }

    /// Rotates the last dim of `x` by the positions of its tokens.
    pub(super) fn rotated(&self, build: &mut Builder, rotary: Rotary, x: Operand) -> Operand {
        let angles = self.tokens.rotary.iter().find(|(known, _)| *known == rotary);
        let Some((_, [cos, sin])) = angles else { unreachable!("inputs list the embeddings of all layers") };
        let rotation = match self.config.rope_of(rotary).pairing {
            RotaryPairing::Halves => Kind::Rope,
            RotaryPairing::Neighbours => Kind::RopePairs,
        };
        build.op(rotation, &[x, *cos, *sin])
    }

    /// Adds the param of the sinks of all query heads.
    fn sinks(&self, build: &mut Builder, layer: usize) -> Operand {
        let (k, g) = (self.config.kv_heads, self.config.heads_per_kv_head());
        let name = self.config.layer_tensor(layer, self.tensors().sinks);
        let sinks = build.param_from(&name, [k, g], self.stored_matrix(), whole(&name));
        self.cast(build, sinks, DType::F32)
    }

    /// Multiplies the heads, the result of an attention over caches, by the share of the softmax
    /// that the sink of each head leaves: the sigmoid of the scores' log-sum-exp minus the sink.
    fn with_sinks(&self, build: &mut Builder, y: Operand, sinks: Operand) -> Operand {
        let ops = build.program().ops.iter();
        let Some((id, _)) = ops.rev().find(|(_, op)| op.result() == y.id()) else { return y };
        let sums = build.result(id, 1);
        let negative = build.op(Kind::Scale { by: -1.0 }, &[sinks]);
        let negative = build.op(Kind::Expand { dims: vec![0, 3] }, &[negative, sums]);
        let above = build.add(sums, negative);
        let share = build.op(Kind::Sigmoid, &[above]);
        let share = build.op(Kind::Permute { dims: vec![0, 3, 1, 2] }, &[share]);
        let share = self.cast(build, share, self.dtype);
        let share = build.op(Kind::Expand { dims: vec![4] }, &[share, y]);
        build.mul(y, share)
    }

    /// Returns the attention of queries, after new rows are written to the caches. Keys are the
    /// first rows, and values the last ones.
    pub(super) fn attended(
        &self,
        build: &mut Builder,
        layer: usize,
        scores: &Scoring,
        q: Operand,
        rows: &[(&str, Operand)],
    ) -> Option<Operand> {
        let Scoring { scale, cap, window, sinks } = *scores;
        let (first, last) = (0, rows.len() - 1);
        if self.kv == KvType::Int8 && rows.len() == 1 {
            refuse(build, layer, "8-bit caches of latent attention", "caches of the activations' type");
            return None;
        }
        match &self.tokens.seen {
            Seen::Caches { groups, .. } => {
                // Layers without a separate group read the table of all tokens.
                let group = |window| groups.iter().find(|caches| caches.group.window == window);
                let Some(caches) = group(window).or_else(|| group(None)) else {
                    refuse(build, layer, "another window than its caches", "one size for all windows");
                    return None;
                };
                let y = self.over_caches(build, layer, scores, q, rows, caches);
                Some(sinks.map_or(y, |sinks| self.with_sinks(build, y, sinks)))
            }
            Seen::Run(masks) => {
                let Some((_, mask)) = masks.iter().find(|(known, _)| *known == window) else {
                    let found = "a window of another size than in earlier layers";
                    refuse(build, layer, found, "one size for all windows");
                    return None;
                };
                let kind = match (cap, sinks) {
                    (Some(cap), _) => Kind::CappedAttention { scale, cap },
                    (None, Some(_)) => Kind::SinkAttention { scale },
                    (None, None) => Kind::Attention { scale },
                };
                let operands = [q, rows[first].1, rows[last].1, *mask].into_iter().chain(sinks);
                Some(build.op(kind, &operands.collect::<Vec<Operand>>()))
            }
        }
    }

    /// Writes the new rows to their caches, and returns the attention of queries over them.
    fn over_caches(
        &self,
        build: &mut Builder,
        layer: usize,
        scores: &Scoring,
        q: Operand,
        rows: &[(&str, Operand)],
        caches: &Caches,
    ) -> Operand {
        let Scoring { scale, cap, window, .. } = *scores;
        let Caches { group, slots, table, positions, lengths, skipped } = caches;
        let CacheBlocks { count, rows: tokens, pools } = group.blocks;
        let mut written: Vec<Vec<Operand>> = Vec::with_capacity(rows.len());
        for (name, rows) in rows {
            let [k, d] = [2, 3].map(|dim| build.value(*rows).shape[dim]);
            let (name, shape) = (format!("layers.{layer}.{name}"), [count, tokens, k, d]);
            let write = Kind::WriteSlots { pools };
            written.push(match self.kv {
                KvType::Activations => {
                    let cache = build.state(&name, shape, self.dtype);
                    vec![build.op(write, &[cache, *rows, *slots])]
                }
                KvType::Int8 => {
                    let [integers, scales] = quantised(build, *rows, 1);
                    let cache = build.state(&name, shape, DType::I8);
                    let cache_scales =
                        build.state(&format!("{name}{CACHE_SCALES}"), [count, k, tokens], DType::F32);
                    let write_scales = Kind::WriteScales { pools };
                    let scales = build.op(write_scales, &[cache_scales, scales, *slots]);
                    vec![build.op(write, &[cache, integers, *slots]), scales]
                }
            });
        }
        let skipped = *skipped;
        let kind = match self.kv {
            KvType::Activations => Kind::BlockAttention { scale, cap, window, skipped, pools },
            KvType::Int8 => Kind::QuantBlockAttention { scale, cap, window, skipped, pools },
        };
        // A single cache has both keys and values.
        let (keys, values) = (&written[0], &written[written.len() - 1]);
        build.op(kind, &[&[q][..], keys, values, &[*table, *positions, *lengths]].concat())
    }

    /// Normalises each query head and each key head by itself.
    fn norms_of_heads(&self, build: &mut Builder, heads: [Operand; 2], names: [&str; 2]) -> [Operand; 2] {
        let mut normal = heads;
        for (x, name) in normal.iter_mut().zip(names) {
            let wide = self.cast(build, *x, self.stored);
            let normed = self.norm(build, wide, name);
            *x = self.cast(build, normed, self.dtype);
        }
        normal
    }

    /// Normalises all query heads of a token together, and all key heads. If cards have shards of
    /// the heads, each has a part of the sums of squares, and the parts are added before the roots.
    /// Everything is f32. Both sums come first, so that one exchange adds both.
    fn norms_of_all_heads(&self, build: &mut Builder, heads: [Operand; 2], names: [&str; 2]) -> [Operand; 2] {
        let wide = heads.map(|x| self.cast(build, x, DType::F32));
        let sums = wide.map(|x| {
            let rank = build.value(x).shape.rank();
            let squares = build.mul(x, x);
            (2..rank).rev().fold(squares, |sum, dim| build.op(Kind::ReduceSum { dim }, &[sum]))
        });
        let mut normal = wide;
        for ((x, sum), name) in normal.iter_mut().zip(sums).zip(names) {
            let shape = build.value(*x).shape.clone();
            let by = (shape[2..].iter().product::<usize>() as f64).recip();
            let root = build.op(Kind::InverseRoot { by, epsilon: self.config.norm_epsilon }, &[sum]);
            let root = build.op(Kind::Expand { dims: (2..shape.rank()).collect() }, &[root, *x]);
            let y = build.mul(*x, root);
            let gamma = self.factor_of_norm(build, name, &shape[2..]);
            let gamma = self.cast(build, gamma, DType::F32);
            let y = build.mul(y, gamma);
            *x = self.cast(build, y, self.dtype);
        }
        normal
    }
}
