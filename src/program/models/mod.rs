//! Decoder-only Transformers as single-card programs. No word of parallelism here: placement
//! derives it.
//!
//! Input → output: a [`ModelConfig`] and the sizes of one run → a [`Program`]. One decoder serves
//! all families; what differs is a row of names. Shape letters: b batch, s sequence, t cache
//! length, h hidden, k key/value heads, g query heads a key head, d head size, f intermediate, v
//! vocabulary.
//!
//! Invariants: inputs, states and params have the same names in every program of a model, so that a
//! prefill and a decode program share weights and caches; the residual stream's values are named
//! `residual.…`, so that pins find them.

mod loss;
mod names;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::base::{DType, Diagnostics, Precision, Shape, Weights};
use crate::config::{Lora, ModelConfig, PEFT_PREFIX};

use super::build::{Builder, Operand};
use super::graph::{Form, Program, Role, Source, ValueId};
use super::op::{Kind, rule_of};
use super::tree::SumOrder;

pub use loss::{Loss, loss};
use names::Names;
pub use names::{IGNORED_TENSORS, embedding_tensor, layer_of};

/// What the program gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Head {
    /// `logits[b,s,v]` of every position.
    AllLogits,
    /// `logits[b,v]` of the position that input `last` names.
    LastLogits,
    /// `token[b]`: the likeliest token of that position; none of the vocabulary where the largest
    /// logit is NaN or infinite.
    LastToken,
}

/// Sizes of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunShape {
    /// Sequences at once.
    pub batch: usize,
    /// New tokens a sequence; shorter prompts are padded on the right.
    pub sequence: usize,
    /// Positions the KV cache holds a sequence.
    pub cache_length: usize,
}

/// Names of the inputs of a decoder.
pub mod input {
    /// `[b,s]` i64: token ids.
    pub const IDS: &str = "ids";
    /// `[b]` i64: the row of the KV cache, which is the position, of each sequence's first token;
    /// the others follow.
    pub const START: &str = "start";
    /// `[b,s,t]` bool: true hides a cache row from a token. Of [`super::prefill`] `[b,s,s]`: a
    /// token from another.
    pub const MASK: &str = "mask";
    /// `[b,s,d]`: rotary cosines by token.
    pub const COS: &str = "cos";
    /// `[b,s,d]`: rotary sines by token.
    pub const SIN: &str = "sin";
    /// `[b,s,1,1,1]`: the original Qwen's factor of long queries; only if the model has it.
    pub const LOGN: &str = "logn";
    /// `[b,s]` i64: the token that follows each; for [`super::loss`].
    pub const LABELS: &str = "labels";
    /// `[b,s]` f32: what each label counts, such as one over the labels of the whole global batch;
    /// 0: nothing.
    pub const LABEL_WEIGHTS: &str = "label_weights";
    /// `[b]` i64: the position within `s` whose next token is wanted; not for
    /// [`super::Head::AllLogits`].
    pub const LAST: &str = "last";
}

/// The program of one forward pass in a precision: an element type, or one with quantised linear
/// layers, whose params are then two: `….weight`, 8-bit integers, and `….weight_scale`, one f32 an
/// output channel.
///
/// # Errors
/// What `verify` finds; a valid configuration gives none.
pub fn decoder(
    config: &ModelConfig,
    run: RunShape,
    precision: impl Into<Precision>,
    head: Head,
) -> Result<Program, Diagnostics> {
    Ok(decoder_of_layers(
        config,
        run,
        AttentionScope::Cache,
        precision.into(),
        head,
        SumOrder::AsTheyCome,
        false,
    )?
    .0)
}

/// As [`decoder`], of tokens with nothing before them: attention sees theirs alone, and is none the
/// dearer for a cache that has room for more. Its mask is `[b,s,s]`.
///
/// # Errors
/// As for [`decoder`].
pub fn prefill(
    config: &ModelConfig,
    run: RunShape,
    precision: impl Into<Precision>,
    head: Head,
) -> Result<Program, Diagnostics> {
    Ok(decoder_of_layers(
        config,
        run,
        AttentionScope::Run,
        precision.into(),
        head,
        SumOrder::AsTheyCome,
        false,
    )?
    .0)
}

/// Whose keys and values attention sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionScope {
    /// Those of earlier runs too.
    Cache,
    /// Those of the run.
    Run,
}

/// As [`decoder`], with the ops of each layer, by number, and sums in `order`. With `copies_table`
/// a head that is the embedding is a param of its own, called [`COPY`] and the embedding's name.
///
/// # Errors
/// As [`decoder`].
pub fn decoder_of_layers(
    config: &ModelConfig,
    run: RunShape,
    sees: AttentionScope,
    precision: Precision,
    head: Head,
    order: SumOrder,
    copies_table: bool,
) -> Result<(Program, Vec<Range<usize>>), Diagnostics> {
    let Precision { activations: dtype, weights } = precision;
    let RunShape { batch: b, sequence: s, cache_length: t } = run;
    let d = config.head_dim;
    let names = Names::of(config.family);
    let mut build = Builder::new(format!("{} b={b} s={s} t={t}", config.family.model_type())).in_order(order);

    let ids = build.input(input::IDS, [b, s], DType::I64);
    let start = build.input(input::START, [b], DType::I64);
    let seen = if sees == AttentionScope::Cache { t } else { s };
    let mask = build.input(input::MASK, [b, s, seen], DType::Bool);
    let cos = build.input(input::COS, [b, s, d], dtype);
    let sin = build.input(input::SIN, [b, s, d], dtype);
    let logn = config.logn.is_some().then(|| build.input(input::LOGN, [b, s, 1, 1, 1], dtype));
    let last = (head != Head::AllLogits).then(|| build.input(input::LAST, [b], DType::I64));
    let caches = Some(Caches { start, length: t, sees });
    let shared = LayerInputs {
        config,
        names,
        batch: b,
        caches,
        stored: dtype,
        dtype,
        weights,
        lora: None,
        mask,
        cos,
        sin,
        logn,
    };

    let Layers { x, table, ops: layers } = shared.layers(&mut build, ids);
    let head_weight = shared.head(&mut build, table, copies_table);
    let logits = match last {
        None => build.matmul("bsh,vh->bsv", x, head_weight),
        Some(last) => {
            let x = build.op(Kind::Take, &[x, last]);
            build.matmul("bh,vh->bv", x, head_weight)
        }
    };
    let logits = build.name(logits, "logits");
    if head == Head::LastToken {
        let largest = build.op(Kind::ReduceMax { dim: 1 }, &[logits]);
        let token = build.op(Kind::IndexOf, &[logits, largest]);
        build.output("token", token);
    } else {
        build.output("logits", logits);
    }
    Ok((build.finish()?, layers))
}

/// The checkpoint tensors that a decoder's params come from, with the shapes they have there: a
/// weight is a matrix `[out, in]`, everything else a vector.
#[must_use]
pub fn checkpoint_tensors(program: &Program) -> BTreeMap<String, Shape> {
    let mut tensors: BTreeMap<String, Shape> = BTreeMap::new();
    for id in program.with_role(Role::Param) {
        let value = &program.values[id];
        let Some(source) = &value.source else { continue };
        if matches!(source.form, Form::RowScales { .. }) {
            continue;
        }
        let inputs = program.ops.values().iter().find_map(|op| {
            let weights = op.kind.row().weights;
            let operand = weights.operands().iter().copied().find(|operand| op.operands[*operand] == id)?;
            let rule = rule_of(op, &program.operand_shapes(op)).ok()?;
            let dims = 0..value.shape.rank();
            // Inputs stand last.
            Some(dims.rev().take_while(|dim| weights.is_input(&rule, operand, *dim) == Some(true)).count())
        });
        let inner: usize =
            inputs.map_or(1, |count| value.shape[value.shape.rank() - count..].iter().product());
        let rows = value.shape.elems() / inner.max(1);
        let shape = if inputs.is_some() { Shape::from([rows, inner]) } else { Shape::from([rows]) };
        match tensors.get_mut(&source.tensor) {
            Some(known) => *known = known.with(0, known[0] + rows),
            None => drop(tensors.insert(source.tensor.clone(), shape)),
        }
    }
    tensors
}

/// What stands before the name of a param in the name of its copy.
pub const COPY: &str = "copy.";

/// The params of a program that are trained: its adapters, if it has any, else all.
#[must_use]
pub fn trained(program: &Program) -> Vec<ValueId> {
    let is_adapter = |id: &ValueId| {
        program.values[*id].source.as_ref().is_some_and(|source| source.tensor.starts_with(PEFT_PREFIX))
    };
    let adapters: Vec<ValueId> = program.with_role(Role::Param).filter(is_adapter).collect();
    if adapters.is_empty() { program.with_role(Role::Param).collect() } else { adapters }
}

/// The 8-bit integers and the scales of the rows of `x`, which are its last `dims` dims. Products
/// of one activation share them.
fn quantised(build: &mut Builder, x: Operand, dims: usize) -> [Operand; 2] {
    let kind = Kind::Quantise { dims };
    let made = build.program().ops.values().iter().rev().take(OPS_OF_AN_ACTIVATION);
    let known = made.into_iter().find(|op| op.kind == kind && op.operands[0] == x.id());
    if let Some([integers, scales]) = known.map(|op| [op.result(), op.operands[1]]) {
        return [integers, scales].map(|id| build.operand(id));
    }
    let scales = build.op(Kind::RowScale { dims }, &[x]);
    [build.op(kind, &[x, scales]), scales]
}

/// Ops among which the products of one activation are found: three of attention, with a bias and a
/// norm each.
const OPS_OF_AN_ACTIVATION: usize = 16;

/// A checkpoint tensor as it is.
fn whole(tensor: &str) -> Source {
    Source { tensor: tensor.to_owned(), element_offset: 0, form: Form::Numbers }
}

/// Where keys and values of earlier runs lie.
struct Caches {
    start: Operand,
    length: usize,
    sees: AttentionScope,
}

/// What every layer reads.
struct LayerInputs<'a> {
    config: &'a ModelConfig,
    names: &'static Names,
    batch: usize,
    /// None: attention sees the keys and values of this run alone.
    caches: Option<Caches>,
    /// Element type of params, of the residual stream and of norms.
    stored: DType,
    /// Element type of what is between: products and attention.
    dtype: DType,
    weights: Weights,
    /// Beside linear layers: adapters, which alone are trained.
    lora: Option<&'a Lora>,
    mask: Operand,
    cos: Operand,
    sin: Operand,
    logn: Option<Operand>,
}

/// What stands before the head.
struct Layers {
    /// The normed output of the last layer.
    x: Operand,
    table: Operand,
    /// The ops of each layer, by number.
    ops: Vec<Range<usize>>,
}

impl LayerInputs<'_> {
    /// From ids to the normed output of the last layer.
    fn layers(&self, build: &mut Builder, ids: Operand) -> Layers {
        let Self { config, names, stored, .. } = *self;
        let table =
            build.param(names.embedding, [config.vocab_size, config.hidden_size], self.stored_matrix());
        let embedded = build.op(Kind::Embed, &[ids, table]);
        let embedded = self.cast(build, embedded, stored);
        let mut residual = build.name(embedded, "residual.embedding");
        let mut ops = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            let first = build.program().ops.len();
            let x = self.norm(build, residual, &names.layer(layer, names.attention_norm));
            let x = build.name(x, format!("layers.{layer}.attention.norm"));
            let x = self.cast(build, x, self.dtype);
            let x = self.attention(build, layer, x);
            let x = self.cast(build, x, stored);
            let sum = build.add(residual, x);
            residual = build.name(sum, format!("residual.{layer}.attention"));
            let x = self.norm(build, residual, &names.layer(layer, names.mlp_norm));
            let x = build.name(x, format!("layers.{layer}.mlp.norm"));
            let x = self.cast(build, x, self.dtype);
            let x = self.mlp(build, layer, x);
            let x = self.cast(build, x, stored);
            let sum = build.add(residual, x);
            residual = build.name(sum, format!("residual.{layer}.mlp"));
            ops.push(first..build.program().ops.len());
        }
        let x = self.norm(build, residual, names.final_norm);
        Layers { x: build.name(x, "final_norm"), table, ops }
    }

    /// The weight of the head, as it is stored: the embedding, a copy of it, or one of its own.
    fn head(&self, build: &mut Builder, table: Operand, copies_table: bool) -> Operand {
        let Self { config, names, .. } = *self;
        let shape = [config.vocab_size, config.hidden_size];
        match config.tied_embeddings {
            true if copies_table => {
                let name = format!("{COPY}{}", names.embedding);
                build.param_from(&name, shape, self.stored_matrix(), whole(names.embedding))
            }
            true => table,
            false => build.param(names.head, shape, self.stored_matrix()),
        }
    }

    fn norm(&self, build: &mut Builder, x: Operand, name: &str) -> Operand {
        let width = build.value(x).shape.last().copied().unwrap_or_default();
        let gamma = build.param(name, [width], self.stored);
        build.rms_norm(x, gamma, self.config.norm_epsilon)
    }

    fn cast(&self, build: &mut Builder, x: Operand, to: DType) -> Operand {
        if build.value(x).dtype == to { x } else { build.op(Kind::Cast { to }, &[x]) }
    }

    /// Element type of matrices and biases: those that are not trained are as products take them.
    fn stored_matrix(&self) -> DType {
        if self.lora.is_some() { self.dtype } else { self.stored }
    }

    /// A param as products take it.
    fn param(&self, build: &mut Builder, name: &str, shape: &[usize], source: Source) -> Operand {
        let param = build.param_from(name, shape, self.stored_matrix(), source);
        self.cast(build, param, self.dtype)
    }

    fn attention(&self, build: &mut Builder, layer: usize, x: Operand) -> Operand {
        let config = self.config;
        let (h, k, d) = (config.hidden_size, config.kv_heads, config.head_dim);
        let g = config.heads_per_kv_head();
        let tag = |name: &str| format!("layers.{layer}.attention.{name}");

        let mut heads = |part: usize, which: &str, group: Option<usize>| {
            let sizes: Vec<usize> = [Some(k), group, Some(d)].into_iter().flatten().collect();
            let (name, source) = self.projection(layer, part, "weight");
            let spec = if group.is_some() { "bsi,kgdi->bskgd" } else { "bsi,kdi->bskd" };
            let mut y = self.linear(build, spec, x, &name, source, &[&sizes[..], &[h]].concat());
            if config.qkv_bias {
                let (name, source) = self.projection(layer, part, "bias");
                let bias = self.param(build, &name, &sizes, source);
                y = build.add(y, bias);
            }
            build.name(y, tag(which))
        };
        let mut q = heads(0, "q", Some(g));
        let mut key = heads(1, "k", None);
        let value = heads(2, "v", None);
        if config.qk_norm {
            for (x, name) in [(&mut q, "self_attn.q_norm.weight"), (&mut key, "self_attn.k_norm.weight")] {
                let wide = self.cast(build, *x, self.stored);
                let normed = self.norm(build, wide, &self.names.layer(layer, name));
                *x = self.cast(build, normed, self.dtype);
            }
        }
        q = build.op(Kind::Rope, &[q, self.cos, self.sin]);
        key = build.op(Kind::Rope, &[key, self.cos, self.sin]);
        if let Some(logn) = self.logn {
            q = build.mul(q, logn);
        }
        let (mut keys, mut values) = (key, value);
        if let Some(Caches { start, length, sees }) = self.caches {
            let cache = [self.batch, length, k, d];
            let state = build.state(&format!("layers.{layer}.keys"), cache, self.dtype);
            let all_keys = build.op(Kind::CacheWrite, &[state, key, start]);
            let state = build.state(&format!("layers.{layer}.values"), cache, self.dtype);
            let all_values = build.op(Kind::CacheWrite, &[state, value, start]);
            if sees == AttentionScope::Cache {
                (keys, values) = (all_keys, all_values);
            }
        }
        let scale = (d as f64).sqrt().recip();
        let y = build.op(Kind::Attention { scale }, &[q, keys, values, self.mask]);
        let y = build.name(y, tag("heads"));
        let name = self.names.layer(layer, self.names.attention_out);
        let weight = format!("{name}.weight");
        let mut y = self.linear(build, "bskgd,okgd->bso", y, &weight, whole(&weight), &[h, k, g, d]);
        if config.output_bias {
            let bias = format!("{name}.bias");
            let bias = self.param(build, &bias, &[h], whole(&bias));
            y = build.add(y, bias);
        }
        build.name(y, tag("out"))
    }

    /// `x` times the weight of that name and shape, whose summed dims stand last.
    fn linear(
        &self,
        build: &mut Builder,
        spec: &str,
        x: Operand,
        name: &str,
        source: Source,
        shape: &[usize],
    ) -> Operand {
        let spec = build.einsum(spec);
        let outputs = spec.scale().len();
        if self.weights == Weights::Float {
            let layer = source.tensor.strip_suffix(".weight").unwrap_or(&source.tensor).to_owned();
            let row = source.element_offset / shape[outputs..].iter().product::<usize>().max(1);
            let weight = self.param(build, name, shape, source);
            let [down_spec, up_spec] = spec.factorised('r');
            let y = build.op(Kind::MatMul { spec }, &[x, weight]);
            let Some(lora) = self.lora.filter(|lora| lora.is_target(&layer)) else { return y };
            let name = name.strip_suffix(".weight").unwrap_or(name);
            let down =
                self.factor(build, &layer, &layer, "A", &[&[lora.rank], &shape[outputs..]].concat(), 0);
            let up = self.factor(
                build,
                name,
                &layer,
                "B",
                &[&shape[..outputs], &[lora.rank]].concat(),
                row * lora.rank,
            );
            let narrow = build.op(Kind::MatMul { spec: down_spec }, &[x, down]);
            let narrow = build.op(Kind::Scale { by: lora.scale() }, &[narrow]);
            let update = build.op(Kind::MatMul { spec: up_spec }, &[narrow, up]);
            return build.add(y, update);
        }
        let row_elems = shape[outputs..].iter().product();
        let rows = Source { form: Form::RowBytes { row_elems }, ..source.clone() };
        let weight = build.param_from(name, shape, DType::I8, rows);
        let scales = Source { form: Form::RowScales { row_elems }, ..source };
        let scale = build.param_from(&format!("{name}_scale"), &shape[..outputs], DType::F32, scales);
        let [q, tokens] = quantised(build, x, spec.summed().len());
        build.op(Kind::QuantMatMul { spec, to: self.dtype }, &[q, tokens, weight, scale])
    }

    /// A factor of the adapter of `layer`, as products take it. What is one tensor there has one
    /// `A`.
    fn factor(
        &self,
        build: &mut Builder,
        name: &str,
        layer: &str,
        letter: &str,
        shape: &[usize],
        element_offset: usize,
    ) -> Operand {
        let name = format!("{name}.lora_{letter}.weight");
        let known =
            build.program().with_role(Role::Param).find(|id| build.program().values[*id].name == name);
        let param = match known {
            Some(id) => build.operand(id),
            None => {
                let tensor = format!("{PEFT_PREFIX}{layer}.lora_{letter}.weight");
                build.param_from(
                    &name,
                    shape,
                    self.stored,
                    Source { tensor, element_offset, form: Form::Numbers },
                )
            }
        };
        self.cast(build, param, self.dtype)
    }

    /// Name and source of the weight or bias of q (part 0), k (1) or v (2); the original Qwen keeps
    /// the three in one tensor, block after block.
    fn projection(&self, layer: usize, part: usize, kind: &str) -> (String, Source) {
        let letter = ["q", "k", "v"][part];
        let Some(fused) = self.names.fused_qkv else {
            let name = self.names.layer(layer, &format!("self_attn.{letter}_proj.{kind}"));
            let source = whole(&name);
            return (name, source);
        };
        let base = self.names.layer(layer, fused);
        let row = if kind == "weight" { self.config.hidden_size } else { 1 };
        let rows_before =
            [0, self.config.query_width(), self.config.query_width() + self.config.kv_width()][part];
        let element_offset = rows_before * row;
        let source = Source { tensor: format!("{base}.{kind}"), element_offset, form: Form::Numbers };
        (format!("{base}.{letter}.{kind}"), source)
    }

    fn mlp(&self, build: &mut Builder, layer: usize, x: Operand) -> Operand {
        let (h, f) = (self.config.hidden_size, self.config.intermediate_size);
        let linear = |build: &mut Builder, path: &str, spec: &str, x: Operand, sizes: [usize; 2]| {
            let name = self.names.layer(layer, path);
            let weight = format!("{name}.weight");
            let y = self.linear(build, spec, x, &weight, whole(&weight), &sizes);
            if !self.config.mlp_bias {
                return y;
            }
            let bias = format!("{name}.bias");
            let bias = self.param(build, &bias, &sizes[..1], whole(&bias));
            build.add(y, bias)
        };
        let gate = linear(build, self.names.gate, "bsh,fh->bsf", x, [f, h]);
        let up = linear(build, self.names.up, "bsh,fh->bsf", x, [f, h]);
        let y = build.op(Kind::SwiGlu, &[gate, up]);
        let y = build.name(y, format!("layers.{layer}.mlp.hidden"));
        let y = linear(build, self.names.down, "bsf,hf->bsh", y, [h, f]);
        build.name(y, format!("layers.{layer}.mlp.out"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{text, verify::verify};

    #[test]
    fn every_family_builds_verifies_and_survives_its_text() {
        for preset in ModelConfig::PRESETS {
            let mut config = ModelConfig::preset(preset).unwrap();
            config.layers = 2;
            let run = RunShape { batch: 2, sequence: 3, cache_length: 16 };
            for precision in [DType::BF16.into(), Precision::w8a8(DType::BF16)] {
                for head in [Head::AllLogits, Head::LastLogits, Head::LastToken] {
                    let program = decoder(&config, run, precision, head).unwrap();
                    verify(&program).unwrap();
                    assert_eq!(text::parse(&text::print(&program)).unwrap(), program, "{preset}");
                }
            }
        }
    }

    /// Bytes of a program's params.
    fn param_bytes(program: &Program) -> usize {
        let bytes = |id| program.values[id].shape.elems() * program.values[id].dtype.size_bytes();
        program.with_role(Role::Param).map(bytes).sum()
    }

    #[test]
    fn quantised_layers_hold_a_byte_a_weight_and_a_scale_a_row() {
        for preset in ModelConfig::PRESETS {
            let mut config = ModelConfig::preset(preset).unwrap();
            let run = RunShape { batch: 1, sequence: 1, cache_length: 16 };
            let mut build = |layers, precision: Precision| {
                config.layers = layers;
                decoder(&config, run, precision, Head::AllLogits).unwrap()
            };
            let (float, quantised) = (build(1, DType::BF16.into()), build(1, Precision::w8a8(DType::BF16)));
            // The same tensors of the same checkpoint.
            assert_eq!(checkpoint_tensors(&float), checkpoint_tensors(&quantised), "{preset}");
            let (mut weights, mut rows) = (0, 0);
            for (name, shape) in checkpoint_tensors(&float) {
                if name.contains(".0.") && shape.rank() == 2 {
                    (weights, rows) = (weights + shape.elems(), rows + shape[0]);
                }
            }
            assert_eq!(param_bytes(&float) - param_bytes(&quantised), weights - 4 * rows, "{preset}");
        }
    }
}
