//! The layers of a decoder, by their descriptions.

use std::ops::Range;

use crate::base::{DType, Diagnostic, KvType, Packing, Weights, round};
use crate::config::families::{Projections, Tensors};
use crate::config::{Activation, FeedForwardPart, ModelConfig, NormWeight, Rotary, WeightFormat};
use crate::program::build::{Builder, Operand};
use crate::program::graph::{Form, PackedRows, RowBlocks, Source};
use crate::program::op::Kind;
use crate::program::rule::Einsum;

use super::adapters::{Adapters, factor_tensor};
use super::routers::{LayerSums, RouterInputs};
use super::{
    COPY, CacheGroup, CacheNames, RunShape, StatePool, input, layer_of_weight, masks, rotary_tables,
};

/// Returns the 8-bit integers and the scales of the rows of `x`, which are its last `dims` dims.
/// Products of the same activation share them.
pub(super) fn quantised(build: &mut Builder, x: Operand, dims: usize) -> [Operand; 2] {
    let kind = Kind::Quantise { dims };
    let made = build.program().ops.values().iter().rev().take(OPS_OF_AN_ACTIVATION);
    let known = made.into_iter().find(|op| op.kind == kind && op.operands[0] == x.id());
    if let Some([integers, scales]) = known.map(|op| [op.result(), op.operands[1]]) {
        return [integers, scales].map(|id| build.operand(id));
    }
    let scales = build.op(Kind::RowScale { dims }, &[x]);
    [build.op(kind, &[x, scales]), scales]
}

/// Number of ops that [`quantised`] searches for the products of one activation: three projections,
/// each with a bias and a norm.
const OPS_OF_AN_ACTIVATION: usize = 16;

/// Returns the source of a param that is a whole checkpoint tensor.
pub(super) fn whole(tensor: &str) -> Source {
    Source { tensor: tensor.to_owned(), element_offset: 0, form: Form::Numbers }
}

/// Returns the source of the same rows of a tensor with rows of `width` elements. The rows of
/// `source` have `row_elems` elements.
pub(super) fn same_rows(source: &Source, row_elems: usize, width: usize) -> Source {
    let scaled = |elems: usize| elems / row_elems.max(1) * width;
    let form = match source.form {
        Form::Blocks { block_elems, stride_elems } => {
            Form::Blocks { block_elems: scaled(block_elems), stride_elems: scaled(stride_elems) }
        }
        _ => Form::Numbers,
    };
    Source { tensor: source.tensor.clone(), element_offset: scaled(source.element_offset), form }
}

/// Returns the blocks of rows of a source with blocks.
pub(super) fn row_blocks(form: Form, row_elems: usize) -> Option<RowBlocks> {
    match form {
        Form::Blocks { block_elems, stride_elems } => {
            Some(RowBlocks { rows: block_elems / row_elems, stride: stride_elems / row_elems })
        }
        _ => None,
    }
}

/// KV caches in blocks with one table, and which rows belong to the tokens of a run.
pub(super) struct Caches {
    pub(super) group: CacheGroup,
    pub(super) slots: Operand,
    pub(super) table: Operand,
    pub(super) positions: Operand,
    pub(super) lengths: Operand,
    /// Number of first rows that later tokens do not read.
    pub(super) skipped: usize,
}

/// States of recurrent layers, and the states that a run reads and writes.
pub(super) struct States {
    pub(super) pool: StatePool,
    pub(super) from: Operand,
    pub(super) to: Operand,
    /// The inputs `last_tokens` and `valid`, in runs of several tokens.
    pub(super) tokens: Option<[Operand; 2]>,
}

/// Keys and values that attention reads.
pub(super) enum Seen {
    /// Keys and values of this run and of earlier runs, by groups of layers, and states of
    /// recurrent layers.
    Caches { groups: Vec<Caches>, states: Option<States> },
    /// Keys and values of this run, by masks with their windows.
    Run(Vec<(Option<usize>, Operand)>),
}

/// Inputs about tokens that all layers share.
pub(super) struct TokenInputs {
    pub(super) seen: Seen,
    /// Cosines and sines, with their embeddings.
    pub(super) rotary: Vec<(Rotary, [Operand; 2])>,
    pub(super) logn: Option<Operand>,
}

impl TokenInputs {
    /// Adds the inputs of sequences that attend to their own tokens only.
    pub(super) fn of_run(
        build: &mut Builder,
        config: &ModelConfig,
        [batch, tokens]: [usize; 2],
        dtype: DType,
    ) -> Self {
        let mask = |build: &mut Builder, name| build.input(name, [batch, tokens, tokens], DType::Bool);
        let masks = masks(config).into_iter().map(|each| (each.window, mask(build, each.name))).collect();
        Self::with(build, config, Seen::Run(masks), [batch, tokens], dtype)
    }

    /// Adds the inputs of a run with KV caches.
    pub(super) fn of_caches(build: &mut Builder, config: &ModelConfig, run: RunShape, dtype: DType) -> Self {
        let RunShape { batch, sequence, .. } = run;
        let of_group = |(names, group): (CacheNames, CacheGroup)| Caches {
            group,
            slots: build.input(names.slots, [batch, sequence], DType::I64),
            table: build.input(names.table, [batch, group.table], DType::I32),
            positions: build.input(names.positions, [batch, sequence], DType::I64),
            lengths: build.input(names.lengths, [batch], DType::I64),
            skipped: 0,
        };
        let groups = run.groups().map(of_group).collect();
        // Callers that only list params do not size the states.
        let states = run.states.or_else(|| run.with_layers_of(config).states);
        let states = states.map(|pool| States {
            pool,
            from: build.input(input::STATE_FROM, [batch], DType::I64),
            to: build.input(input::STATE_TO, [batch], DType::I64),
            tokens: (sequence > 1).then(|| {
                let last = build.input(input::LAST_TOKENS, [batch, pool.remembered], DType::I64);
                [last, build.input(input::VALID, [batch, sequence, 1, 1], DType::F32)]
            }),
        });
        Self::with(build, config, Seen::Caches { groups, states }, [batch, sequence], dtype)
    }

    fn with(
        build: &mut Builder,
        config: &ModelConfig,
        seen: Seen,
        [batch, tokens]: [usize; 2],
        dtype: DType,
    ) -> Self {
        let tables = rotary_tables(config).into_iter().map(|table| {
            let shape = [batch, tokens, config.rope_of(table.rotary).rotated_dims(config.head_dim)];
            (table.rotary, [table.cos, table.sin].map(|name| build.input(name, shape, dtype)))
        });
        let rotary = tables.collect();
        let logn = config.logn.is_some().then(|| build.input(input::LOGN, [batch, tokens, 1, 1, 1], dtype));
        Self { seen, rotary, logn }
    }
}

/// Everything that a layer reads in addition to its input.
pub(super) struct LayerInputs<'a> {
    pub(super) config: &'a ModelConfig,
    /// Element type of params, of the residual stream and of norms.
    pub(super) stored: DType,
    /// Element type of products and attention.
    pub(super) dtype: DType,
    pub(super) weights: Weights,
    pub(super) kv: KvType,
    pub(super) adapters: Option<Adapters<'a>>,
    pub(super) tokens: TokenInputs,
    /// Inputs of the sums over routers. `None`: the program has no such sums.
    pub(super) routers: Option<RouterInputs>,
}

/// The program before the head.
pub(super) struct Layers {
    /// The normalised output of the last layer.
    pub(super) x: Operand,
    /// Ops of each layer, by number.
    pub(super) ops: Vec<Range<usize>>,
    pub(super) routers: Option<LayerSums>,
}

#[derive(Clone, Copy)]
enum LayerPart {
    Attention,
    Mlp,
}

impl LayerInputs<'_> {
    pub(super) fn tensors(&self) -> &'static Tensors {
        &self.config.family.table().tensors
    }

    /// Adds the table of the embedding.
    pub(super) fn table(&self, build: &mut Builder) -> Operand {
        let shape = [self.config.vocab_size, self.config.hidden_size];
        build.param(self.tensors().embedding, shape, self.stored_matrix())
    }

    /// Looks up the embeddings of ids.
    pub(super) fn embedded(&self, build: &mut Builder, ids: Operand, table: Operand) -> Operand {
        let embedded = build.op(Kind::Embed, &[ids, table]);
        let embedded = self.cast(build, embedded, self.stored);
        if !self.config.scales_embedding {
            return embedded;
        }
        // transformers rounds the scale to the element type.
        let by = f64::from(round(self.stored, (self.config.hidden_size as f64).sqrt() as f32));
        build.op(Kind::Scale { by }, &[embedded])
    }

    /// Builds everything from embeddings to the normalised output of the last layer.
    pub(super) fn layers(&self, build: &mut Builder, embedded: Operand) -> Layers {
        let (config, tensors) = (self.config, self.tensors());
        let mut residual = build.name(embedded, "residual.embedding");
        let mut ops = Vec::with_capacity(config.layers);
        let mut routers = None;
        for layer in 0..config.layers {
            let first = build.program().ops.len();
            residual = self.layer(build, layer, residual);
            // The sums are ops of the layer, so a pipeline stage sends one row for each layer.
            routers = self.router_sums(build, layer, routers);
            ops.push(first..build.program().ops.len());
        }
        let x = self.norm(build, residual, tensors.final_norm);
        Layers { x: build.name(x, "final_norm"), ops, routers }
    }

    /// Adds both parts of a layer to the residual stream.
    pub(super) fn layer(&self, build: &mut Builder, layer: usize, residual: Operand) -> Operand {
        let residual = self.part(build, layer, LayerPart::Attention, residual);
        self.part(build, layer, LayerPart::Mlp, residual)
    }

    fn part(&self, build: &mut Builder, layer: usize, part: LayerPart, residual: Operand) -> Operand {
        let (norms, tensors) = (self.config.layer(layer).norms, self.tensors());
        let (name, before, after) = match part {
            LayerPart::Attention => ("attention", tensors.attention_norm, tensors.attention_norm_after),
            LayerPart::Mlp => ("mlp", tensors.mlp_norm, tensors.mlp_norm_after),
        };
        let mut x = residual;
        if norms.has_before() {
            x = self.norm(build, x, &self.config.layer_tensor(layer, before));
            build.name(x, format!("layers.{layer}.{name}.norm"));
        }
        let x = self.cast(build, x, self.dtype);
        let x = match part {
            LayerPart::Attention => self.attention(build, layer, x),
            LayerPart::Mlp => self.mlp(build, layer, x),
        };
        let mut x = self.cast(build, x, self.stored);
        if norms.has_after() {
            x = self.norm(build, x, &self.config.layer_tensor(layer, after));
            // The name pins the norm to the layout of the residual stream.
            build.name(x, format!("residual.{layer}.{name}.norm"));
        }
        let sum = build.add(residual, x);
        build.name(sum, format!("residual.{layer}.{name}"))
    }

    /// Returns the weight of the head in its stored type: the embedding, its copy, or a separate
    /// param.
    pub(super) fn head(&self, build: &mut Builder, table: Operand, copies_table: bool) -> Operand {
        let (config, tensors) = (self.config, self.tensors());
        let shape = [config.vocab_size, config.hidden_size];
        match config.tied_embeddings {
            true if copies_table => {
                let name = format!("{COPY}{}", tensors.embedding);
                build.param_from(&name, shape, self.stored_matrix(), whole(tensors.embedding))
            }
            true => table,
            false => build.param(tensors.head, shape, self.stored_matrix()),
        }
    }

    /// Applies the soft cap of logits, if the model has one.
    pub(super) fn capped(&self, build: &mut Builder, logits: Operand) -> Operand {
        match self.config.logit_cap {
            Some(cap) => build.op(Kind::SoftCap { cap }, &[logits]),
            None => logits,
        }
    }

    pub(super) fn norm(&self, build: &mut Builder, x: Operand, name: &str) -> Operand {
        let width = build.value(x).shape.last().copied().unwrap_or_default();
        let gamma = self.factor_of_norm(build, name, &[width]);
        build.rms_norm(x, gamma, self.config.norm_epsilon)
    }

    pub(super) fn factor_of_norm(&self, build: &mut Builder, name: &str, shape: &[usize]) -> Operand {
        let weight = build.param(name, shape, self.stored);
        match self.config.norm_weight {
            NormWeight::Factor => weight,
            NormWeight::OnePlus => build.op(Kind::Shift { by: 1.0 }, &[weight]),
        }
    }

    pub(super) fn cast(&self, build: &mut Builder, x: Operand, to: DType) -> Operand {
        if build.value(x).dtype == to { x } else { build.op(Kind::Cast { to }, &[x]) }
    }

    /// Returns the element type of matrices and biases. Untrained ones have the type of products.
    pub(super) fn stored_matrix(&self) -> DType {
        if self.adapters.is_some() { self.dtype } else { self.stored }
    }

    /// Adds a param, converted to the type of products.
    pub(super) fn param(&self, build: &mut Builder, name: &str, shape: &[usize], source: Source) -> Operand {
        let param = build.param_from(name, shape, self.stored_matrix(), source);
        self.cast(build, param, self.dtype)
    }

    /// Multiplies `x` by the weight of that name and shape. The summed dims are the last ones of
    /// the weight.
    pub(super) fn linear(
        &self,
        build: &mut Builder,
        spec: &str,
        x: Operand,
        name: &str,
        source: Source,
        shape: &[usize],
    ) -> Operand {
        let weight = LinearWeight::new(build.einsum(spec), name, source, shape);
        let y = self.product(build, x, &weight);
        match self.adapters.filter(|adapters| adapters.is_target(&weight.layer)) {
            Some(adapters) => {
                let update = self.update(build, &adapters, x, &weight);
                build.add(y, update)
            }
            None => y,
        }
    }

    /// Multiplies `x` by the factors of an adapted weight.
    fn update(
        &self,
        build: &mut Builder,
        adapters: &Adapters<'_>,
        x: Operand,
        weight: &LinearWeight<'_>,
    ) -> Operand {
        let LinearWeight { spec, name, layer, source, outputs, inputs, row_elems, .. } = weight;
        let [down_spec, up_spec] = spec.factorised();
        let down = [&[adapters.rank()], *inputs].concat();
        let down =
            self.factor(build, &format!("{layer}.lora_A.weight"), &down, whole(&factor_tensor(layer, "A")));
        let up = [*outputs, &[adapters.rank()]].concat();
        let up_source =
            Source { tensor: factor_tensor(layer, "B"), ..same_rows(source, *row_elems, adapters.rank()) };
        let up = self.factor(build, &format!("{}.lora_B.weight", layer_of_weight(name)), &up, up_source);
        let narrow = adapters.narrow(build, layer, down_spec, [x, down]);
        build.op(Kind::MatMul { spec: up_spec }, &[narrow, up])
    }

    /// Multiplies `x` by a weight, without adapters.
    fn product(&self, build: &mut Builder, x: Operand, weight: &LinearWeight<'_>) -> Operand {
        let &LinearWeight { ref spec, name, ref layer, ref source, outputs, row_elems, .. } = weight;
        let format = self.config.formats.of(layer);
        if self.weights == Weights::W8A8 && format != WeightFormat::Float {
            let problem = Diagnostic::new(layer, "the weight is quantised already");
            build.problem(problem.expected("float weights").found(format));
        }
        let is_integer = format.is_integer() || self.weights == Weights::W8A8;
        if is_integer && matches!(source.form, Form::Blocks { .. }) {
            let problem = Diagnostic::new(layer, "the scales of rows in blocks are not read");
            build.problem(problem.expected("float weights, or consecutive rows").found("8-bit integers"));
        }
        if format.is_integer() {
            return self.integer_product(build, x, weight);
        }
        let [bytes, scales] = match (self.weights, self.fp8_rows(layer, row_elems, source.form)) {
            (Weights::W8A8, _) => [Form::RowBytes { row_elems }, Form::RowScales { row_elems }],
            (Weights::Fp8AsInt8, Some(rows)) => [Form::PackedBytes(rows), Form::PackedScales(rows)],
            (Weights::Float | Weights::Unpacked | Weights::Fp8AsInt8, _) => {
                if let Some((packing, dims)) = self.card_dims(weight) {
                    return self.packed_product(build, x, weight, packing, dims);
                }
                let source = self.as_floats(build, source.clone(), row_elems);
                let matrix = self.param(build, name, weight.shape, source);
                return build.op(Kind::MatMul { spec: spec.clone() }, &[x, matrix]);
            }
        };
        let integers =
            build.param_from(name, weight.shape, DType::I8, Source { form: bytes, ..source.clone() });
        let scales = Source { form: scales, ..source.clone() };
        let scale = build.param_from(&format!("{name}_scale"), outputs, DType::F32, scales);
        let [q, tokens] = quantised(build, x, spec.summed().len());
        build.op(Kind::QuantMatMul { spec: spec.clone(), to: self.dtype }, &[q, tokens, integers, scale])
    }

    /// Returns the rows of a layer that is stored in fp8 blocks.
    fn fp8_rows(&self, layer: &str, row_elems: usize, form: Form) -> Option<PackedRows> {
        match self.config.formats.of(layer) {
            WeightFormat::Packed(packing @ Packing::Fp8 { .. }) => {
                Some(PackedRows { row_elems, packing, blocks: row_blocks(form, row_elems) })
            }
            _ => None,
        }
    }

    /// Returns the source of a weight whose stored format becomes floats. The rows of the weight
    /// have `row_elems` elements. Other formats are refused.
    pub(super) fn as_floats(&self, build: &mut Builder, source: Source, row_elems: usize) -> Source {
        let layer = layer_of_weight(&source.tensor);
        let packing = match self.config.formats.of(layer) {
            WeightFormat::Float => return source,
            WeightFormat::Packed(packing) => packing,
            format => {
                let problem = Diagnostic::new(layer, "no program reads this weight in its format");
                build.problem(problem.expected("floats, 4-bit groups or fp8 blocks").found(format));
                return source;
            }
        };
        let blocks = row_blocks(source.form, row_elems);
        check_multiples(build, layer, packing, row_elems);
        Source { form: Form::Packed(PackedRows { row_elems, packing, blocks }), ..source }
    }

    /// Returns whether the bias of a layer is added to its product. The integers of some formats
    /// have the bias already.
    pub(super) fn adds_bias(&self, weight: &str) -> bool {
        self.config.formats.of(layer_of_weight(weight)) != WeightFormat::Int8Static
    }

    /// Multiplies `x` by a weight that is stored in 8-bit integers.
    fn integer_product(&self, build: &mut Builder, x: Operand, weight: &LinearWeight<'_>) -> Operand {
        let &LinearWeight { ref spec, name, ref layer, ref source, outputs, row_elems, .. } = weight;
        let first_row = source.element_offset / row_elems.max(1);
        let matrix = build.param_from(name, weight.shape, DType::I8, source.clone());
        let part = |suffix: &str, element_offset, form| {
            let name = format!("{}.{suffix}", layer_of_weight(name));
            (name, Source { tensor: format!("{layer}.{suffix}"), element_offset, form })
        };
        let param = |build: &mut Builder, suffix: &str, form, shape: &[usize]| {
            let (name, source) = part(suffix, if shape == [1] { 0 } else { first_row }, form);
            let dtype = if form == Form::Numbers { DType::I32 } else { DType::F32 };
            build.param_from(&name, shape, dtype, source)
        };
        if self.config.formats.of(layer) == WeightFormat::Int8 {
            let scale = param(build, "weight_scale", Form::QuantParams, outputs);
            let [q, tokens] = quantised(build, x, spec.summed().len());
            return build
                .op(Kind::QuantMatMul { spec: spec.clone(), to: self.dtype }, &[q, tokens, matrix, scale]);
        }
        let [scale, offset] =
            ["input_scale", "input_offset"].map(|suffix| param(build, suffix, Form::QuantParams, &[1]));
        let q = build.op(Kind::QuantiseStatic, &[x, scale, offset]);
        let scale = param(build, "deq_scale", Form::QuantParams, outputs);
        let bias = param(build, "quant_bias", Form::Numbers, outputs);
        build.op(Kind::StaticMatMul { spec: spec.clone(), to: self.dtype }, &[q, matrix, scale, bias])
    }

    /// Returns the name and the source of a weight or bias. In a fused tensor, the rows of one
    /// projection follow the rows of the previous one.
    pub(super) fn projection<const N: usize>(
        &self,
        layer: usize,
        projected: &Projected<N>,
        part: usize,
        kind: &str,
    ) -> (String, Source) {
        let fused = match projected.of {
            Projections::Each(names) => {
                let name = format!("{}.{kind}", self.config.layer_tensor(layer, names[part]));
                let source = whole(&name);
                return (name, source);
            }
            Projections::Fused(name) => self.config.layer_tensor(layer, name),
        };
        let row = if kind == "weight" { self.config.hidden_size } else { 1 };
        let element_offset = projected.rows[..part].iter().sum::<usize>() * row;
        let source = Source { tensor: format!("{fused}.{kind}"), element_offset, form: Form::Numbers };
        (format!("{fused}.{}.{kind}", projected.names[part]), source)
    }

    fn mlp(&self, build: &mut Builder, layer: usize, x: Operand) -> Operand {
        let (activation, has_bias) = match &self.config.layer(layer).feed_forward {
            FeedForwardPart::Dense { activation, has_bias } => (*activation, *has_bias),
            FeedForwardPart::Mixture(mixture) => return self.mixture(build, layer, mixture, x),
        };
        let (h, f) = (self.config.hidden_size, self.config.intermediate_size);
        let projection = Projected { of: self.tensors().gate_up, names: ["gate", "up"], rows: [f, f] };
        let down = self.config.layer_tensor(layer, self.tensors().down);
        let inner = self.intermediate(&down, f);
        let biased = |build: &mut Builder, y: Operand, rows: &[usize], (name, source): (String, Source)| {
            if !has_bias {
                return y;
            }
            let bias = self.param(build, &name, rows, source);
            build.add(y, bias)
        };
        let [gate, up] = [0, 1].map(|part| {
            let (name, source) = self.projection(layer, &projection, part, "weight");
            let adds_bias = self.adds_bias(&source.tensor);
            let y = self.linear(build, widening(&inner), x, &name, source, &[&inner[..], &[h]].concat());
            if !adds_bias {
                return y;
            }
            biased(build, y, &inner, self.projection(layer, &projection, part, "bias"))
        });
        let kind = match activation {
            Activation::Silu => Kind::SwiGlu,
            Activation::GeluTanh => Kind::GeluGate,
            Activation::Clipped { .. } => {
                refuse(build, layer, "a clipped gate", "a gate without limits");
                return x;
            }
        };
        let y = build.op(kind, &[gate, up]);
        let y = build.name(y, format!("layers.{layer}.mlp.hidden"));
        let weight = format!("{down}.weight");
        let shape = [&[h], &inner[..]].concat();
        let y = self.linear(build, narrowing(&inner), y, &weight, whole(&weight), &shape);
        let bias = format!("{down}.bias");
        let y =
            if self.adds_bias(&weight) { biased(build, y, &[h], (bias.clone(), whole(&bias))) } else { y };
        build.name(y, format!("layers.{layer}.mlp.out"))
    }
}

/// Returns the product with an intermediate size as its result. The size can be split into groups.
pub(super) const fn widening(inner: &[usize]) -> &'static str {
    if inner.len() == 1 { "bsh,fh->bsf" } else { "bsh,fjh->bsfj" }
}

/// Returns the product that sums an intermediate size. The size can be split into groups.
pub(super) const fn narrowing(inner: &[usize]) -> &'static str {
    if inner.len() == 1 { "bsf,hf->bsh" } else { "bsfj,hfj->bsh" }
}

/// Reports inputs that are not whole words.
pub(super) fn check_multiples(build: &mut Builder, layer: &str, packing: Packing, inputs: usize) {
    let [_, multiple] = packing.multiples();
    if !inputs.is_multiple_of(multiple) {
        let problem = Diagnostic::new(layer, "the inputs are not whole words of 4-bit numbers");
        build.problem(problem.expected(format!("a multiple of {multiple}")).found(inputs));
    }
}

/// The weight of a linear layer, of which the last dims are summed.
pub(super) struct LinearWeight<'a> {
    pub(super) spec: Einsum,
    pub(super) name: &'a str,
    /// Name of the layer's tensor, without its ending.
    pub(super) layer: String,
    pub(super) source: Source,
    pub(super) shape: &'a [usize],
    /// Sizes of the outputs.
    pub(super) outputs: &'a [usize],
    /// Sizes of the summed dims.
    pub(super) inputs: &'a [usize],
    /// Number of elements of the summed dims.
    pub(super) row_elems: usize,
}

impl<'a> LinearWeight<'a> {
    fn new(spec: Einsum, name: &'a str, source: Source, shape: &'a [usize]) -> Self {
        let (outputs, inputs) = shape.split_at(spec.scale().len());
        let layer = layer_of_weight(&source.tensor).to_owned();
        Self { spec, name, layer, source, shape, outputs, inputs, row_elems: inputs.iter().product() }
    }
}

/// Projections of the same input.
pub(super) struct Projected<const N: usize> {
    pub(super) of: Projections<N>,
    /// Names of the projections in params of a fused tensor.
    pub(super) names: [&'static str; N],
    /// Rows of each projection.
    pub(super) rows: [usize; N],
}

/// Reports a description that no program is built for.
pub(super) fn refuse(build: &mut Builder, layer: usize, found: &str, supported: &str) {
    let problem = Diagnostic::new(format!("layer {layer}"), "no program is built for this description");
    build.problem(problem.expected(supported).found(found));
}

#[cfg(test)]
mod tests {
    use crate::base::{DType, Precision};
    use crate::config::{AttentionPart, GroupedAttention, Layer, Lora, ModelConfig, PEFT_PREFIX, QkNorm};
    use crate::program::build::Builder;
    use crate::program::graph::{Form, Role};
    use crate::program::models::{Head, RouterLosses, RunShape, decoder, loss};

    fn refused(layer: Layer) -> String {
        let preset = ModelConfig::preset("qwen2.5-0.5b").unwrap();
        let config = ModelConfig { layers: 2, pattern: vec![Layer::PLAIN, layer], ..preset };
        let run = RunShape::new(1, 2, 4);
        decoder(&config, run, DType::F32, Head::AllLogits).unwrap_err().to_string()
    }

    #[test]
    fn descriptions_without_a_program_are_refused_by_name() {
        let attention = GroupedAttention { has_sinks: true, score_cap: Some(1.0), ..GroupedAttention::PLAIN };
        let message = refused(Layer { attention: AttentionPart::Grouped(attention), ..Layer::PLAIN });
        assert!(message.starts_with("layer 1: no program is built for this description"), "{message}");
        assert!(message.ends_with("found attention with sinks and soft caps"), "{message}");
    }

    #[test]
    fn rows_of_a_query_and_of_its_gate_alternate_in_all_tensors() {
        let attention = GroupedAttention { has_output_gate: true, qkv_bias: true, ..GroupedAttention::PLAIN };
        let layer = Layer { attention: AttentionPart::Grouped(attention), ..Layer::PLAIN };
        let preset = ModelConfig::preset("qwen2.5-0.5b").unwrap();
        let config = ModelConfig { layers: 1, pattern: vec![layer], ..preset };
        let lora = Lora { rank: 4, alpha: 8.0, targets: vec!["q_proj".to_owned()] };
        let mut build = Builder::new("adapters");
        let loss = loss(&mut build, &config, [1, 2], DType::F32, Some(&lora), false, RouterLosses::default());
        build.output("loss", loss.loss);
        let program = build.finish().unwrap();
        let tensors = crate::program::models::checkpoint_tensors(&program);
        let query = "model.layers.0.self_attn.q_proj";
        let rows = 2 * config.query_width();
        assert_eq!(tensors[&format!("{query}.weight")].sizes(), [rows, config.hidden_size]);
        assert_eq!(tensors[&format!("{query}.bias")].sizes(), [rows]);
        assert_eq!(tensors[&format!("{PEFT_PREFIX}{query}.lora_B.weight")].sizes(), [rows, 4]);
        let form = |name: String| {
            let param = program.find(Role::Param, &name).unwrap();
            let source = program.values[param].source.as_ref().unwrap();
            (source.element_offset, source.form)
        };
        let blocks = |width: usize| Form::Blocks { block_elems: 64 * width, stride_elems: 128 * width };
        assert_eq!(form(format!("{query}.lora_B.weight")), (0, blocks(4)));
        assert_eq!(form(format!("{query}.gate.lora_B.weight")), (64 * 4, blocks(4)));
        assert_eq!(form(format!("{query}.gate.bias")), (64, blocks(1)));
        // Scales of rows have no blocks.
        let run = RunShape::new(1, 2, 4);
        let precision = Precision::w8a8(DType::BF16);
        let message = decoder(&config, run, precision, Head::AllLogits).unwrap_err().to_string();
        assert!(message.contains("q_proj: the scales of rows in blocks are not read"), "{message}");
    }

    #[test]
    fn two_windows_of_different_sizes_are_for_caches_only() {
        let window = |window| {
            let attention = GroupedAttention { window: Some(window), ..GroupedAttention::PLAIN };
            Layer { attention: AttentionPart::Grouped(attention), ..Layer::PLAIN }
        };
        let preset = ModelConfig::preset("qwen2.5-0.5b").unwrap();
        let config = ModelConfig { layers: 2, pattern: vec![window(4), window(8)], ..preset };
        decoder(&config, RunShape::new(1, 2, 4), DType::F32, Head::AllLogits).unwrap();
        let mut build = Builder::new("two windows");
        loss(&mut build, &config, [1, 2], DType::F32, None, false, RouterLosses::default());
        let message = build.finish().unwrap_err().to_string();
        assert!(message.contains("one size for all windows"), "{message}");
    }

    #[test]
    fn a_norm_over_all_heads_has_one_weight_for_each_dim_of_each_head() {
        let attention = GroupedAttention { qk_norm: Some(QkNorm::AllHeads), ..GroupedAttention::PLAIN };
        let layer = Layer { attention: AttentionPart::Grouped(attention), ..Layer::PLAIN };
        let config =
            ModelConfig { layers: 1, pattern: vec![layer], ..ModelConfig::preset("qwen2.5-0.5b").unwrap() };
        let run = RunShape::new(1, 2, 4);
        let program = decoder(&config, run, DType::BF16, Head::AllLogits).unwrap();
        let tensors = crate::program::models::checkpoint_tensors(&program);
        assert_eq!(tensors["model.layers.0.self_attn.q_norm.weight"].sizes(), [14 * 64]);
        assert_eq!(tensors["model.layers.0.self_attn.k_norm.weight"].sizes(), [2 * 64]);
    }
}
