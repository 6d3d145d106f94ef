//! The tensors of a model's checkpoints, and the number of parameters.
//!
//! Input: a [`ModelConfig`]. Output: names and shapes of all tensors, and [`Parameters`].
//!
//! Invariants: a checkpoint has all listed tensors. Layers for multi-token prediction are not in
//! the list.
//!
//! Not here: reading of checkpoints, and formats of quantised weights.

use super::families::{DeltaInputs, DeltaTensors, ExpertStack, ExpertTensors, Projections, Tensors};
use super::layer::{
    AttentionPart, FeedForwardPart, GatedDelta, GroupedAttention, LatentAttention, Layer, Mixture, QkNorm,
};
use super::model::ModelConfig;

/// A tensor of the checkpoints of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointTensor {
    /// Name in the files.
    pub(crate) name: String,
    /// Sizes of the dims.
    pub(crate) shape: Vec<usize>,
    /// Whether the tensor is a part of a routed expert.
    pub(crate) is_routed: bool,
    pub(crate) kind: TensorKind,
}

/// The use of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorKind {
    /// Weight of a linear layer.
    Linear,
    /// Weight that latent attention multiplies queries and results by.
    Absorbed,
    /// Weight of a product that published quantised checkpoints leave in floats: the head,
    /// routers, and gates with one output or few outputs per head.
    Float,
    /// Weights of all experts, with inputs before outputs.
    Interleaved,
    /// Norms, biases, tables and filters.
    Other,
}

/// Number of parameters of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// All parameters.
    pub total: usize,
    /// Parameters that compute one token: all but the routed experts that are not chosen.
    pub active: usize,
}

impl ModelConfig {
    /// Returns the number of parameters. Embedding and head count, and layers for multi-token
    /// prediction do not.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        let elems = |tensor: &CheckpointTensor| tensor.shape.iter().product::<usize>();
        let outer = self.outer_tensors().iter().map(elems).sum();
        let mut parameters = Parameters { total: outer, active: outer };
        for layer in 0..self.layers {
            let tensors = self.layer_tensors(layer);
            let routed: usize = tensors.iter().filter(|tensor| tensor.is_routed).map(elems).sum();
            let total: usize = tensors.iter().map(elems).sum();
            let chosen = match &self.layer(layer).feed_forward {
                FeedForwardPart::Dense { .. } => routed,
                FeedForwardPart::Mixture(mixture) => routed / mixture.experts * mixture.chosen,
            };
            parameters.total += total;
            parameters.active += total - routed + chosen;
        }
        parameters
    }

    /// Returns the tensors that belong to no layer.
    pub(crate) fn outer_tensors(&self) -> Vec<CheckpointTensor> {
        let tensors = &self.family.table().tensors;
        let table = [self.vocab_size, self.hidden_size];
        let mut list = List::default();
        list.tensor(tensors.embedding, &table);
        list.tensor(tensors.final_norm, &[self.hidden_size]);
        if !self.tied_embeddings {
            list.add(tensors.head, &table, TensorKind::Float);
        }
        list.tensors
    }

    /// Returns the tensors of a layer.
    pub(crate) fn layer_tensors(&self, layer: usize) -> Vec<CheckpointTensor> {
        let tensors = &self.family.table().tensors;
        let mut list = List { prefix: self.layer_tensor(layer, ""), ..List::default() };
        let Layer { attention, feed_forward, norms } = self.layer(layer);
        let before = [tensors.attention_norm, tensors.mlp_norm];
        let after = [tensors.attention_norm_after, tensors.mlp_norm_after];
        for (names, exist) in [(before, norms.has_before()), (after, norms.has_after())] {
            for name in names.into_iter().filter(|_| exist) {
                list.tensor(name, &[self.hidden_size]);
            }
        }
        match attention {
            AttentionPart::Grouped(attention) => self.grouped_tensors(&mut list, tensors, attention),
            AttentionPart::Latent(attention) => self.latent_tensors(&mut list, tensors, attention),
            AttentionPart::GatedDelta(delta) => self.delta_tensors(&mut list, &tensors.delta, delta),
        }
        match feed_forward {
            FeedForwardPart::Dense { has_bias, .. } => {
                let (hidden, width) = (self.hidden_size, self.intermediate_size);
                list.projections(&tensors.gate_up, [width, width], hidden);
                list.weight(tensors.down, [hidden, width]);
                if *has_bias {
                    list.biases(&tensors.gate_up, [width, width]);
                    list.bias(tensors.down, &[hidden]);
                }
            }
            FeedForwardPart::Mixture(mixture) => self.mixture_tensors(&mut list, &tensors.experts, mixture),
        }
        list.tensors
    }

    fn grouped_tensors(&self, list: &mut List, tensors: &Tensors, attention: &GroupedAttention) {
        let (hidden, query, kv) = (self.hidden_size, self.query_width(), self.kv_width());
        // The rows of a head are its query, and then its gate.
        let rows = [if attention.has_output_gate { 2 * query } else { query }, kv, kv];
        list.projections(&tensors.qkv, rows, hidden);
        list.weight(tensors.attention_out, [hidden, query]);
        if attention.qkv_bias {
            list.biases(&tensors.qkv, rows);
        }
        if attention.output_bias {
            list.bias(tensors.attention_out, &[hidden]);
        }
        let widths = match attention.qk_norm {
            Some(QkNorm::PerHead | QkNorm::PerRotatedHead) => Some([self.head_dim; 2]),
            Some(QkNorm::AllHeads) => Some([query, kv]),
            None => None,
        };
        if let Some([query, key]) = widths {
            list.tensor(tensors.query_norm, &[query]);
            list.tensor(tensors.key_norm, &[key]);
        }
        if attention.has_sinks {
            list.tensor(tensors.sinks, &[self.heads]);
        }
    }

    fn latent_tensors(&self, list: &mut List, tensors: &Tensors, attention: &LatentAttention) {
        let (hidden, heads, names) = (self.hidden_size, self.heads, &tensors.latent);
        let LatentAttention { width, plain_dims, rotary_dims, value_dims, .. } = *attention;
        let query = heads * (plain_dims + rotary_dims);
        match attention.query_width {
            Some(latent) => {
                list.weight(names.query_down, [latent, hidden]);
                list.tensor(names.query_norm, &[latent]);
                list.weight(names.query_up, [query, latent]);
            }
            None => list.weight(names.query, [query, hidden]),
        }
        list.weight(names.kv_down, [width + rotary_dims, hidden]);
        list.tensor(names.kv_norm, &[width]);
        list.matrix(names.kv_up, [heads * (plain_dims + value_dims), width], TensorKind::Absorbed);
        list.weight(tensors.attention_out, [hidden, heads * value_dims]);
    }

    fn delta_tensors(&self, list: &mut List, tensors: &DeltaTensors, delta: &GatedDelta) {
        let (hidden, channels, heads) = (self.hidden_size, delta.channels(), delta.value_heads);
        let values = heads * delta.value_dims;
        match tensors.inputs {
            DeltaInputs::ByKeyHead { vectors, scalars } => {
                list.weight(vectors, [channels + values, hidden]);
                list.matrix(scalars, [2 * heads, hidden], TensorKind::Float);
            }
            DeltaInputs::Sections { vectors, gates, strengths, steps } => {
                list.weight(vectors, [channels, hidden]);
                list.weight(gates, [values, hidden]);
                list.matrix(strengths, [heads, hidden], TensorKind::Float);
                list.matrix(steps, [heads, hidden], TensorKind::Float);
            }
        }
        list.tensor(tensors.convolution, &[channels, 1, delta.convolution]);
        list.tensor(tensors.decay, &[heads]);
        list.tensor(tensors.step_bias, &[heads]);
        list.tensor(tensors.norm, &[delta.value_dims]);
        list.weight(tensors.out, [hidden, values]);
    }

    fn mixture_tensors(&self, list: &mut List, tensors: &ExpertTensors, mixture: &Mixture) {
        let (hidden, experts, width) = (self.hidden_size, mixture.experts, mixture.intermediate_size);
        list.matrix(tensors.router, [experts, hidden], TensorKind::Float);
        if mixture.router.has_logit_bias {
            list.bias(tensors.router, &[experts]);
        }
        if mixture.router.has_choice_bias {
            list.tensor(tensors.choice_bias, &[experts]);
        }
        let first = list.tensors.len();
        match tensors.stack {
            ExpertStack::Separate => {
                let routed = [tensors.gate, tensors.up, tensors.down];
                let shapes = [[width, hidden], [width, hidden], [hidden, width]];
                for expert in 0..experts {
                    for (name, shape) in routed.into_iter().zip(shapes) {
                        let name = ExpertTensors::of_expert(name, expert);
                        list.weight(&name, shape);
                        if mixture.has_bias {
                            list.bias(&name, &shape[..1]);
                        }
                    }
                }
            }
            ExpertStack::Interleaved => {
                for (name, [inputs, outputs]) in
                    [(tensors.gate, [hidden, 2 * width]), (tensors.down, [width, hidden])]
                {
                    list.add(name, &[experts, inputs, outputs], TensorKind::Interleaved);
                    if mixture.has_bias {
                        list.tensor(&format!("{name}_bias"), &[experts, outputs]);
                    }
                }
            }
        }
        for tensor in &mut list.tensors[first..] {
            tensor.is_routed = true;
        }
        if let Some(shared) = mixture.shared {
            let width = shared.intermediate_size;
            list.weight(tensors.shared_gate, [width, hidden]);
            list.weight(tensors.shared_up, [width, hidden]);
            list.weight(tensors.shared_down, [hidden, width]);
            if shared.has_gate {
                list.matrix(tensors.shared_weight, [1, hidden], TensorKind::Float);
            }
        }
    }
}

/// Tensors whose names start alike.
#[derive(Default)]
struct List {
    prefix: String,
    tensors: Vec<CheckpointTensor>,
}

impl List {
    fn add(&mut self, path: &str, shape: &[usize], kind: TensorKind) {
        let name = format!("{}{path}", self.prefix);
        self.tensors.push(CheckpointTensor { name, shape: shape.to_vec(), is_routed: false, kind });
    }

    fn tensor(&mut self, path: &str, shape: &[usize]) {
        self.add(path, shape, TensorKind::Other);
    }

    /// Adds a weight: outputs, then inputs.
    fn matrix(&mut self, path: &str, shape: [usize; 2], kind: TensorKind) {
        self.add(&format!("{path}.weight"), &shape, kind);
    }

    /// Adds the weight of a linear layer.
    fn weight(&mut self, path: &str, shape: [usize; 2]) {
        self.matrix(path, shape, TensorKind::Linear);
    }

    fn bias(&mut self, path: &str, shape: &[usize]) {
        self.tensor(&format!("{path}.bias"), shape);
    }

    fn projections<const N: usize>(&mut self, of: &Projections<N>, rows: [usize; N], inputs: usize) {
        for (path, rows) in rows_of(of, rows) {
            self.weight(path, [rows, inputs]);
        }
    }

    fn biases<const N: usize>(&mut self, of: &Projections<N>, rows: [usize; N]) {
        for (path, rows) in rows_of(of, rows) {
            self.bias(path, &[rows]);
        }
    }
}

/// Returns the tensors of projections, with their rows.
fn rows_of<const N: usize>(of: &Projections<N>, rows: [usize; N]) -> Vec<(&'static str, usize)> {
    match of {
        Projections::Each(names) => names.iter().copied().zip(rows).collect(),
        Projections::Fused(name) => vec![(name, rows.iter().sum())],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{CheckpointTensor, Parameters};
    use crate::base::DType;
    use crate::config::ModelConfig;
    use crate::program::models::{Head, RunShape, checkpoint_tensors, decoder};

    /// Returns all tensors of a model.
    fn tensors(config: &ModelConfig) -> Vec<CheckpointTensor> {
        let layers = (0..config.layers).flat_map(|layer| config.layer_tensors(layer));
        config.outer_tensors().into_iter().chain(layers).collect()
    }

    #[test]
    fn the_tensors_are_those_that_programs_read() {
        for preset in ModelConfig::dense_presets() {
            let config = ModelConfig { layers: 2, ..ModelConfig::preset(preset).unwrap() };
            let program = decoder(&config, RunShape::new(1, 1, 16), DType::BF16, Head::AllLogits).unwrap();
            let read: BTreeMap<String, Vec<usize>> = checkpoint_tensors(&program)
                .into_iter()
                .map(|(name, shape)| (name, shape.sizes().to_vec()))
                .collect();
            let listed: BTreeMap<String, Vec<usize>> =
                tensors(&config).into_iter().map(|tensor| (tensor.name, tensor.shape)).collect();
            assert_eq!(listed, read, "{preset}");
        }
    }

    #[test]
    fn a_dense_model_computes_each_token_with_all_parameters() {
        let Parameters { total, active } = ModelConfig::preset("qwen2.5-0.5b").unwrap().parameters();
        assert_eq!(total, 494_032_768);
        assert_eq!(active, total);
    }
}
