//! Mixtures of experts: the router, the routed experts, and the expert that every token passes.
//!
//! Input: the normalised input of a feed-forward part. Output: the sum of all experts.
//!
//! Invariants: the router computes in f32. All cards choose the same experts, because the operands
//! of the choice are replicated or sharded by tokens.
//!
//! Not here: which cards have which experts. `placement` decides that.

use crate::base::{DType, Diagnostic, Packing, Weights};
use crate::config::families::ExpertStack;
use crate::config::{Activation, ExpertGroups, Mixture, Scores, SharedExpert, WeightFormat};
use crate::program::TensorNames;
use crate::program::build::{Builder, Operand};
use crate::program::graph::{Form, PackedRows, Source};
use crate::program::op::Kind;

use super::layers::{LayerInputs, check_multiples, narrowing, refuse, whole, widening};
use super::{choice_of, layer_of_weight};

/// Chosen experts of each token `[b,s,j]`, and their weights.
#[derive(Clone, Copy)]
struct RoutedExperts {
    experts: Operand,
    weights: Operand,
}

impl LayerInputs<'_> {
    pub(super) fn mixture(
        &self,
        build: &mut Builder,
        layer: usize,
        mixture: &Mixture,
        x: Operand,
    ) -> Operand {
        let unsupported = match (mixture.activation, mixture.has_bias) {
            (Activation::Clipped { .. }, _) if self.weights == Weights::W8A8 => {
                Some("experts with clipped gates and quantised weights")
            }
            (Activation::Clipped { .. }, true) if build.is_in_trees() => {
                Some("experts with biases, in a fixed order")
            }
            (Activation::Silu, false) | (Activation::Clipped { .. }, true) => None,
            _ => Some("experts with this activation, or with biases"),
        };
        if let Some(found) = unsupported {
            refuse(build, layer, found, "experts with SiLU, or with clipped gates and biases, in floats");
            return x;
        }
        let chosen = self.chosen(build, layer, mixture, x);
        let mut y = self.routed(build, layer, mixture, x, chosen);
        if let Some(shared) = mixture.shared {
            let passed = self.shared(build, layer, shared, x);
            y = build.add(y, passed);
        }
        build.name(y, format!("layers.{layer}.mlp.out"))
    }

    /// Adds a param in f32, converted from its stored type.
    fn wide_param(&self, build: &mut Builder, name: &str, shape: &[usize]) -> Operand {
        let param = build.param_from(name, shape, self.stored, whole(name));
        self.cast(build, param, DType::F32)
    }

    /// Computes the router: the experts of each token, and their weights in f32.
    fn chosen(&self, build: &mut Builder, layer: usize, mixture: &Mixture, x: Operand) -> RoutedExperts {
        let (router, tensors) = (mixture.router, &self.tensors().experts);
        let name = |path: &str| self.config.layer_tensor(layer, path);
        let tag = |name: &str| format!("layers.{layer}.mlp.router.{name}");
        let wide = self.cast(build, x, DType::F32);
        let sizes = [mixture.experts, self.config.hidden_size];
        let weight = self.wide_param(build, &format!("{}.weight", name(tensors.router)), &sizes);
        let mut logits = build.matmul("bsh,eh->bse", wide, weight);
        if router.has_logit_bias {
            let bias = self.wide_param(build, &format!("{}.bias", name(tensors.router)), &sizes[..1]);
            logits = build.add(logits, bias);
        }
        let logits = build.name(logits, tag("logits"));
        let scores = match router.scores {
            Scores::Softmax => {
                let probabilities = build.op(Kind::Softmax, &[logits]);
                build.name(probabilities, tag("probabilities"))
            }
            Scores::Sigmoid => build.op(Kind::Sigmoid, &[logits]),
            Scores::SoftmaxOfChosen => logits,
        };
        let mut preferences = scores;
        if router.has_choice_bias {
            // Published files store this bias in f32 next to 16-bit weights.
            let bias = name(tensors.choice_bias);
            let bias = build.param_from(&bias, &sizes[..1], DType::F32, whole(&bias));
            preferences = build.add(scores, bias);
        }
        let one = ExpertGroups { count: 1, kept: 1, summed: 1 };
        let ExpertGroups { count, kept, summed } = router.groups.unwrap_or(one);
        let kind = Kind::Choose { chosen: mixture.chosen, groups: count, kept, summed };
        let experts = build.op(kind, &[preferences]);
        let experts = build.name(experts, choice_of(layer));
        let mut weights = build.op(Kind::Pick, &[scores, experts]);
        if router.scores == Scores::SoftmaxOfChosen {
            weights = build.op(Kind::Softmax, &[weights]);
        }
        if let Some(epsilon) = router.renormalisation {
            let sum = build.op(Kind::ReduceSum { dim: 2 }, &[weights]);
            let inverse = build.op(Kind::Reciprocal { epsilon }, &[sum]);
            let inverse = build.op(Kind::Expand { dims: vec![2] }, &[inverse, weights]);
            weights = build.mul(weights, inverse);
        }
        if router.factor != 1.0 {
            weights = build.op(Kind::Scale { by: router.factor }, &[weights]);
        }
        RoutedExperts { experts, weights: build.name(weights, tag("weights")) }
    }

    /// Sends each token to its experts, and sums their results.
    fn routed(
        &self,
        build: &mut Builder,
        layer: usize,
        mixture: &Mixture,
        x: Operand,
        RoutedExperts { experts, weights }: RoutedExperts,
    ) -> Operand {
        let (h, f, count) = (self.config.hidden_size, mixture.intermediate_size, mixture.experts);
        let name = |path: &str| self.config.layer_tensor(layer, path);
        let sources = self.sources_of_experts(layer, count);
        let format = self.format_of_experts(build, &sources);
        let [gate_up_source, down_source] = match (sources, format) {
            ([gate_up, down], WeightFormat::Float) if self.weights == Weights::W8A8 => {
                let sources = [(gate_up, h), (down, f)].map(|(source, row_elems)| {
                    let scales = Source { form: Form::RowScales { row_elems }, ..source.clone() };
                    [Source { form: Form::RowBytes { row_elems }, ..source }, scales]
                });
                return self.quantised_experts(build, layer, [count, h, f], sources, [x, experts, weights]);
            }
            ([gate_up, down], WeightFormat::Packed(packing @ Packing::Fp8 { .. }))
                if self.weights == Weights::Fp8AsInt8 =>
            {
                let sources = [(gate_up, h), (down, f)].map(|(source, row_elems)| {
                    let rows = PackedRows { row_elems, packing, blocks: None };
                    let scales = Source { form: Form::PackedScales(rows), ..source.clone() };
                    [Source { form: Form::PackedBytes(rows), ..source }, scales]
                });
                return self.quantised_experts(build, layer, [count, h, f], sources, [x, experts, weights]);
            }
            (sources, WeightFormat::Float | WeightFormat::Mxfp4) => sources,
            (sources, WeightFormat::Packed(packing)) => {
                if let Some(groups) = self.packed_groups(build, mixture, &sources[0].tensor) {
                    let operands = [x, experts, weights];
                    return self.packed_experts(build, layer, mixture, sources, groups, operands);
                }
                let [gate_up, down] = sources;
                [(gate_up, h), (down, f)].map(|(source, row_elems)| {
                    let form = Form::Packed(PackedRows { row_elems, packing, blocks: None });
                    check_multiples(build, &source.tensor, packing, row_elems);
                    Source { form, ..source }
                })
            }
            (sources, WeightFormat::Int8) => {
                let sources = sources.map(|source| {
                    let tensor = format!("{}.weight_scale", layer_of_weight(&source.tensor));
                    let scales = Source { tensor, element_offset: 0, form: Form::QuantParams };
                    [source, scales]
                });
                return self.quantised_experts(build, layer, [count, h, f], sources, [x, experts, weights]);
            }
            (sources, WeightFormat::Int8Static) => {
                let found = format!("experts with weights in {format}");
                refuse(build, layer, &found, "int8 experts with one scale per token");
                sources
            }
        };
        let gate_up = self.stack(build, &name("experts.gate_up"), &[count, 2, f, h], gate_up_source.clone());
        let down = self.stack(build, &name("experts.down"), &[count, h, f], down_source.clone());
        if let Activation::Clipped { limit, slope } = mixture.activation {
            let [gate_up_bias, down_bias] = [
                ("experts.gate_up_bias", &[count, 2, f][..], gate_up_source, "dims/0,21"),
                ("experts.down_bias", &[count, h][..], down_source, "dims/0,1"),
            ]
            .map(|(path, shape, weights, form)| {
                let tensor = format!("{}_bias", weights.tensor);
                self.param(build, &name(path), shape, Source { tensor, ..stored(weights, form) })
            });
            let kind = Kind::ClippedExperts { limit, slope };
            let operands = [x, experts, weights, gate_up, down, gate_up_bias, down_bias];
            let y = build.op(kind, &operands);
            return build.name(y, format!("layers.{layer}.mlp.experts.out"));
        }
        if build.is_in_trees() {
            // Each result is complete on one card, and their weighted sum has a fixed order.
            let rows = build.op(Kind::ExpertRows, &[x, experts, gate_up, down]);
            let rows = build.name(rows, format!("layers.{layer}.mlp.experts.rows"));
            let weights = self.cast(build, weights, self.dtype);
            let weights = build.op(Kind::Expand { dims: vec![3] }, &[weights, rows]);
            let rows = build.mul(rows, weights);
            return build.op(Kind::ReduceSum { dim: 2 }, &[rows]);
        }
        let y = build.op(Kind::Experts, &[x, experts, weights, gate_up, down]);
        build.name(y, format!("layers.{layer}.mlp.experts.out"))
    }

    /// As [`Self::routed`], with weights in 8-bit integers. The sources are the integers and the
    /// scales of each param.
    fn quantised_experts(
        &self,
        build: &mut Builder,
        layer: usize,
        [count, h, f]: [usize; 3],
        sources: [[Source; 2]; 2],
        operands: [Operand; 3],
    ) -> Operand {
        if build.is_in_trees() {
            refuse(build, layer, "experts with weights in int8, in a fixed order", "experts in floats");
        }
        let shapes = [("gate_up", &[count, 2, f, h][..]), ("down", &[count, h, f])];
        let params = shapes.into_iter().zip(sources).map(|((name, shape), [source, scales])| {
            let name = self.config.layer_tensor(layer, &format!("experts.{name}"));
            let weight = build.param_from(&name, shape, DType::I8, source);
            let outputs = &shape[..shape.len() - 1];
            [weight, build.param_from(&format!("{name}_scale"), outputs, DType::F32, scales)]
        });
        let params: Vec<[Operand; 2]> = params.collect();
        let weights = params.iter().map(|[weight, _]| *weight);
        let scales = params.iter().map(|[_, scale]| *scale);
        let operands: Vec<Operand> = operands.into_iter().chain(weights).chain(scales).collect();
        let y = build.op(Kind::QuantExperts, &operands);
        build.name(y, format!("layers.{layer}.mlp.experts.out"))
    }

    /// Returns the sources of gate and up projections `[e,2,f,h]`, and of down projections
    /// `[e,h,f]`, of all experts of a layer.
    fn sources_of_experts(&self, layer: usize, count: usize) -> [Source; 2] {
        let tensors = &self.tensors().experts;
        let name = |path: &str| self.config.layer_tensor(layer, path);
        match tensors.stack {
            ExpertStack::Separate => [&[tensors.gate, tensors.up][..], &[tensors.down]]
                .map(|projections| whole(&format!("{}.weight", name(&stack(projections, count))))),
            // Inputs come before outputs, and the outputs of gate and up projection alternate. In
            // MXFP4, the inputs come last.
            ExpertStack::Interleaved => {
                let [gate_up, down] = [tensors.gate, tensors.down].map(|path| {
                    let name = name(path);
                    (self.config.formats.of(&name), name)
                });
                let source = |(format, name): (WeightFormat, String), floats, mxfp4| match format {
                    WeightFormat::Mxfp4 => stored(whole(&name), mxfp4),
                    _ => stored(whole(&name), floats),
                };
                [source(gate_up, "dims/0,3,21", "mxfp4/0,21,3"), source(down, "dims/0,2,1", "mxfp4/0,1,2")]
            }
        }
    }

    /// Returns the format of the weights of all experts of a layer. Other formats in the stacks are
    /// refused.
    fn format_of_experts(&self, build: &mut Builder, sources: &[Source; 2]) -> WeightFormat {
        let layers = sources.iter().flat_map(|source| {
            let names = TensorNames::parse(&source.tensor);
            names.map(|names| names.iter().collect::<Vec<String>>()).unwrap_or_default()
        });
        let mut formats = layers.map(|name| {
            let layer = layer_of_weight(&name);
            (self.config.formats.of(layer), layer.to_owned())
        });
        let Some((format, _)) = formats.next() else { return WeightFormat::Float };
        if let Some((other, layer)) = formats.find(|(other, _)| *other != format) {
            let message = "the experts of a layer have weights in different formats";
            build.problem(Diagnostic::new(layer, message).expected(format).found(other));
        }
        format
    }

    /// Computes the expert that every token passes.
    fn shared(&self, build: &mut Builder, layer: usize, shared: SharedExpert, x: Operand) -> Operand {
        let (h, f) = (self.config.hidden_size, shared.intermediate_size);
        let tensors = &self.tensors().experts;
        let weight = |path: &str| format!("{}.weight", self.config.layer_tensor(layer, path));
        let inner = self.intermediate(&self.config.layer_tensor(layer, tensors.shared_down), f);
        let [gate, up] = [tensors.shared_gate, tensors.shared_up].map(|path| {
            let name = weight(path);
            let shape = [&inner[..], &[h]].concat();
            self.linear(build, widening(&inner), x, &name, whole(&name), &shape)
        });
        let y = build.op(Kind::SwiGlu, &[gate, up]);
        let y = build.name(y, format!("layers.{layer}.mlp.shared.hidden"));
        let name = weight(tensors.shared_down);
        let shape = [&[h], &inner[..]].concat();
        let y = self.linear(build, narrowing(&inner), y, &name, whole(&name), &shape);
        if !shared.has_gate {
            return y;
        }
        let name = weight(tensors.shared_weight);
        let gate = self.param(build, &name, &[1, h], whole(&name));
        let gate = build.matmul("bsh,oh->bso", x, gate);
        let gate = build.name(gate, format!("layers.{layer}.mlp.shared.gate"));
        let gate = build.op(Kind::Sigmoid, &[gate]);
        build.mul(y, gate)
    }
}

/// Returns the source with another order of the stored dims.
fn stored(source: Source, form: &str) -> Source {
    let Some(form) = Form::parse(form) else { unreachable!("`{form}` is an order of dims") };
    Source { form, ..source }
}

/// Returns the pattern of these projections of all experts, such as `experts.{0..8}.{gate,up}`. In
/// the names of projections, `{}` stands for the number of the expert.
fn stack(projections: &[&str], experts: usize) -> String {
    let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
    let lasts: Vec<String> = projections.iter().map(|name| last(name)).collect();
    let first = projections.first().copied().unwrap_or_default();
    let folder = first.strip_suffix(&lasts[0]).unwrap_or_default();
    let folder = folder.replace("{}", &format!("{{0..{experts}}}"));
    match &lasts[..] {
        [one] => format!("{folder}{one}"),
        several => format!("{folder}{{{}}}", several.join(",")),
    }
}
