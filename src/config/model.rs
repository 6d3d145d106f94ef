//! `config.json` of a model.
//!
//! Input: the text. Output: [`ModelConfig`].
//!
//! Invariants: see `config/mod.rs`. Key names of families do not leave the reader.
//!
//! Not here: weights. Opening a checkpoint checks whether its tensors exist and have these sizes.

use std::sync::Arc;

use super::adapter_set::AdapterSet;
use super::architecture::{self, Architecture};
use super::families::{Family, PredictionNames, PredictionTensors};
use super::fields::{Fields, parse_object};
use super::formats::{self, Formats};
use super::layer::{FeedForwardPart, GroupedAttention, Layer, Mixture, NormWeight, Rotary, SoftmaxAttention};
use super::rope::Rope;
use super::{keys, reader, tower};
use crate::base::{DType, Diagnostics};

const FILE: &str = "config.json";

/// A decoder-only Transformer with RMS norms, rotary positions and gated feed-forward parts.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Family that gives the tensor names.
    pub family: Family,
    /// Rows of the embedding. Valid token ids are below it.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of decoder layers.
    pub layers: usize,
    /// Number of layers for multi-token prediction that a checkpoint can have. They have the
    /// numbers behind the other layers. Only drafts by prediction read them, and only the first
    /// one.
    pub prediction_layers: usize,
    /// Descriptions of layers: layer `l` has description `l` modulo their number, which is at least
    /// 1.
    pub pattern: Vec<Layer>,
    /// Query heads of a layer.
    pub heads: usize,
    /// Key and value heads of a layer. The number divides [`Self::heads`]. Latent attention has
    /// one: the rows of its cache, which all heads share.
    pub kv_heads: usize,
    /// Dims of a query or key head, as attention reads them. `heads * head_dim` can differ from
    /// [`Self::hidden_size`]. Of latent attention, the width of a row of the cache.
    pub head_dim: usize,
    /// Rows of the gate weight, and of the up weight.
    pub intermediate_size: usize,
    /// Number added to the mean square in every norm.
    pub norm_epsilon: f64,
    /// Meaning of the weights of all norms.
    pub norm_weight: NormWeight,
    /// Rotary embedding of queries and keys.
    pub rope: Rope,
    /// Second rotary embedding, of layers that name it.
    pub local_rope: Option<Rope>,
    /// Scaling of queries beyond the trained length (original Qwen).
    pub logn: Option<LogN>,
    /// Positions of a sequence, prompt and generated tokens together. If rotary scaling extends the
    /// written `max_position_embeddings`, this is the extended number.
    pub max_positions: usize,
    /// Whether embeddings are multiplied by `√hidden_size`.
    pub scales_embedding: bool,
    /// Soft cap of the logits: `cap · tanh(logit / cap)`.
    pub logit_cap: Option<f64>,
    /// Whether the head is the embedding's weight.
    pub tied_embeddings: bool,
    /// Element type of the published weights.
    pub dtype: DType,
    /// Formats of the weights of linear layers.
    pub formats: Arc<Formats>,
    /// Adapters that programs have next to the weights, one of which each sequence can choose.
    pub adapters: Arc<AdapterSet>,
}

/// Scaling of each query by the logarithm of the position (`use_logn_attn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogN {
    /// Length in positions up to which queries are not scaled. Above 1.
    pub trained_length: usize,
}

impl LogN {
    /// Returns the factor of the query at each position: the logarithm of `position + 1` to the
    /// base of the trained length, and at least 1.
    #[must_use]
    pub fn scale(&self, positions: &[usize]) -> Vec<f32> {
        let trained = (self.trained_length as f64).ln();
        positions
            .iter()
            .map(|&position| {
                let length = position + 1;
                if length > self.trained_length { ((length as f64).ln() / trained) as f32 } else { 1.0 }
            })
            .collect()
    }
}

impl ModelConfig {
    /// Reads the text of a `config.json`.
    ///
    /// A text that names no element type means f32. [`Self::from_json_of`] takes the type of the
    /// weights instead.
    ///
    /// # Errors
    /// All problems of the text: invalid JSON, an unknown architecture, and fields that are
    /// missing, have a wrong type, contradict each other, or ask for numbers that this runtime does
    /// not compute.
    pub fn from_json(text: &str) -> Result<Self, Diagnostics> {
        Self::from_json_of(text, || DType::F32)
    }

    /// Reads the text of a `config.json`. `weights` returns the element type of a text that names
    /// none.
    ///
    /// # Errors
    /// As for [`Self::from_json`].
    #[doc(hidden)]
    pub fn from_json_of(text: &str, weights: impl FnOnce() -> DType) -> Result<Self, Diagnostics> {
        Self::among(Family::ALL, text, weights)
    }

    /// Reads a text of one of `families`.
    pub(super) fn among(
        families: &[Family],
        text: &str,
        weights: impl FnOnce() -> DType,
    ) -> Result<Self, Diagnostics> {
        let object = parse_object(FILE, text)?;
        let mut fields = Fields::new(FILE, &object);
        // The family gives the names of the other fields.
        let config = architecture::read(&mut fields, families).and_then(|found| match found {
            Architecture::Text(family) => read(&mut fields, family, weights),
            Architecture::Tower(family, tower) => tower::read(&mut fields, family, tower, weights),
        });
        let problems = fields.into_problems();
        match config {
            Some(config) => problems.into_result(config),
            None => Err(problems),
        }
    }

    /// Returns the description of a layer. A layer for multi-token prediction is like the last
    /// layer with softmax attention.
    #[must_use]
    #[doc(hidden)]
    pub fn layer(&self, layer: usize) -> &Layer {
        let described = |layer: usize| &self.pattern[layer % self.pattern.len()];
        let is_softmax = |layer: &usize| described(*layer).softmax().is_some();
        let like = (layer >= self.layers).then(|| (0..self.layers).rev().find(is_softmax)).flatten();
        described(like.unwrap_or(layer))
    }

    /// Returns the name of a layer's tensor. A layer for multi-token prediction has a number behind
    /// the other layers.
    pub(crate) fn layer_tensor(&self, layer: usize, path: &str) -> String {
        match self.prediction_names() {
            Some(PredictionNames::Prefix(prefix)) if layer >= self.layers => {
                format!("{prefix}layers.{}.{path}", layer - self.layers)
            }
            _ => self.family.table().tensors.layer(layer, path),
        }
    }

    fn prediction_names(&self) -> Option<PredictionNames> {
        self.family.table().keys.prediction.map(|keys| keys.names)
    }

    /// Returns the names of the tensors around the first layer for multi-token prediction, if
    /// checkpoints have one.
    pub(crate) fn prediction_tensors(&self) -> Option<PredictionTensors<String>> {
        let names = self.prediction_names().filter(|_| self.prediction_layers > 0)?;
        let name = |path: &str| match names {
            PredictionNames::Numbers => self.layer_tensor(self.layers, path),
            PredictionNames::Prefix(prefix) => format!("{prefix}{path}"),
        };
        let PredictionTensors { embedding_norm, hidden_norm, projection, norm } = names.outer();
        Some(PredictionTensors {
            embedding_norm: name(embedding_norm),
            hidden_norm: name(hidden_norm),
            projection: name(projection),
            norm: name(norm),
        })
    }

    /// Returns the grouped attentions of all layers that have one.
    #[doc(hidden)]
    pub fn attentions(&self) -> impl Iterator<Item = &GroupedAttention> {
        (0..self.layers).filter_map(|layer| self.layer(layer).grouped())
    }

    /// Returns whether any layer has a mixture of experts.
    #[must_use]
    #[doc(hidden)]
    pub fn has_mixture(&self) -> bool {
        self.pattern.iter().any(|layer| matches!(layer.feed_forward, FeedForwardPart::Mixture(_)))
    }

    /// Returns the layers that have a mixture of experts, with their numbers.
    #[doc(hidden)]
    pub fn mixtures(&self) -> impl Iterator<Item = (usize, &Mixture)> {
        (0..self.layers).filter_map(|layer| match &self.layer(layer).feed_forward {
            FeedForwardPart::Mixture(mixture) => Some((layer, mixture)),
            FeedForwardPart::Dense { .. } => None,
        })
    }

    /// Returns whether the tensor belongs to a layer for multi-token prediction. A checkpoint can
    /// have such tensors. Only programs with drafts by prediction read them.
    #[must_use]
    #[doc(hidden)]
    pub fn is_prediction_tensor(&self, name: &str) -> bool {
        let table = self.family.table();
        if let Some(PredictionNames::Prefix(prefix)) = self.prediction_names() {
            return self.prediction_layers > 0 && name.starts_with(prefix);
        }
        let number = name.strip_prefix(table.tensors.layer_prefix);
        let number = number.and_then(|rest| rest.split_once('.')).and_then(|(number, _)| number.parse().ok());
        let predicted = self.layers..self.layers + self.prediction_layers;
        number.is_some_and(|number: usize| predicted.contains(&number))
    }

    /// Returns whether programs with drafts by prediction read the tensor. They read the first
    /// layer for multi-token prediction, but not its copies of the embedding and the head.
    pub(crate) fn drafts_by(&self, name: &str) -> bool {
        const COPIES: [&str; 2] = ["embed_tokens.weight", "shared_head.head.weight"];
        let Some(PredictionTensors { embedding_norm, hidden_norm, projection, norm }) =
            self.prediction_tensors()
        else {
            return false;
        };
        if [embedding_norm, hidden_norm, projection, norm].iter().any(|outer| outer == name) {
            return true;
        }
        let of_layer = name.strip_prefix(&self.layer_tensor(self.layers, ""));
        of_layer.is_some_and(|path| !COPIES.contains(&path))
    }

    /// Returns the softmax attentions of all layers that have one, grouped or latent.
    #[doc(hidden)]
    pub fn softmax_attentions(&self) -> impl Iterator<Item = SoftmaxAttention> {
        (0..self.layers).filter_map(|layer| self.layer(layer).softmax())
    }

    /// Returns the number of last tokens that the states of recurrent layers remember, if the model
    /// has such layers.
    #[must_use]
    #[doc(hidden)]
    pub fn remembered_tokens(&self) -> Option<usize> {
        (0..self.layers).find_map(|layer| self.layer(layer).delta()).map(|delta| delta.convolution - 1)
    }

    /// Returns the window of the layers that have one. All windows of a model are equal.
    #[must_use]
    #[doc(hidden)]
    pub fn window(&self) -> Option<usize> {
        self.attentions().find_map(|attention| attention.window)
    }

    /// Returns the rotary embedding of a layer.
    #[must_use]
    #[doc(hidden)]
    pub fn rope_of(&self, rotary: Rotary) -> &Rope {
        match (rotary, &self.local_rope) {
            (Rotary::Local, Some(local)) => local,
            _ => &self.rope,
        }
    }

    /// Returns the number of query heads that share one key head.
    #[must_use]
    #[doc(hidden)]
    pub const fn heads_per_kv_head(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Returns the rows of the query projection.
    #[must_use]
    #[doc(hidden)]
    pub const fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Returns the rows of the key projection, and of the value projection.
    #[must_use]
    #[doc(hidden)]
    pub const fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// Reads the fields of a text model. `weights` returns the element type of fields that name none.
pub(super) fn read(
    fields: &mut Fields<'_>,
    family: Family,
    weights: impl FnOnce() -> DType,
) -> Option<ModelConfig> {
    let config = reader::read(fields, family);
    let config = config.map(|config| match reader::names_dtype(fields) {
        true => config,
        false => ModelConfig { dtype: weights(), ..config },
    });
    let formats = Arc::new(formats::read(fields));
    let config = config.map(|config| ModelConfig { formats, ..config });
    keys::check(fields, family, config.as_ref());
    config
}

#[cfg(test)]
mod tests;
