//! Model families, one file each: facts about config keys, tensor names and layers.
//!
//! Input: none. Output: a [`FamilyTable`] for each [`Family`].
//!
//! Invariants: a family is data. The reader (`config/reader.rs`) reads every family, and
//! `program::models` builds every description, without asking for the family. Defaults equal the
//! defaults of the transformers classes.
//!
//! Not here: keys that change numbers and that no family reads (`config/keys.rs`).

mod deepseek_v2;
mod deepseek_v3;
mod delta;
mod experts;
mod gemma2;
mod gemma3;
mod glm4;
mod glm4_moe;
mod gpt_oss;
mod hunyuan_v1_dense;
mod hunyuan_v1_moe;
mod latent;
mod llama;
mod minimax_m2;
mod mistral;
mod mixtral;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_5;
mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_next;
mod qwen_v1;
#[cfg(test)]
mod tests;
mod tower;

use std::fmt;
use std::hash::{Hash, Hasher};

pub(crate) use delta::{DeltaInputs, DeltaKeys, DeltaTensors};
pub(crate) use experts::{
    CHOSEN, EXPERTS, ExpertStack, ExpertTensors, GroupKeys, MixtureKeys, MixtureLayers, Renormalised,
    SharedKeys, WidthKeys,
};
pub(crate) use latent::LatentTensors;
pub(crate) use tower::Tower;

use super::layer::{Activation, NormPlaces, NormWeight, QkNorm};
use super::rope::RotaryPairing;

/// A family of architectures that share config keys, tensor names and layers.
#[derive(Clone, Copy)]
pub struct Family(&'static FamilyTable);

impl Family {
    /// All families that can be read.
    pub const ALL: &'static [Self] = &[
        Self(&qwen_v1::TABLE),
        Self(&qwen2::TABLE),
        Self(&qwen3::TABLE),
        Self(&llama::TABLE),
        Self(&mistral::TABLE),
        Self(&phi3::TABLE),
        Self(&glm4::TABLE),
        Self(&olmo2::TABLE),
        Self(&gemma2::TABLE),
        Self(&gemma3::TABLE),
        Self(&hunyuan_v1_dense::TABLE),
        Self(&qwen2_moe::TABLE),
        Self(&qwen3_moe::TABLE),
        Self(&mixtral::TABLE),
        Self(&minimax_m2::TABLE),
        Self(&glm4_moe::TABLE),
        Self(&gpt_oss::TABLE),
        Self(&hunyuan_v1_moe::TABLE),
        Self(&deepseek_v2::TABLE),
        Self(&deepseek_v3::TABLE),
        Self(&qwen3_next::TABLE),
        Self(&qwen3_5::TABLE),
        Self(&qwen3_5_moe::TABLE),
    ];

    /// Returns the family of this `model_type`.
    #[must_use]
    pub fn named(model_type: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|family| family.has_model_type(model_type))
    }

    /// Returns the family of the text tower of the model of images and text with this name in
    /// `architectures`, and facts about it.
    pub(super) fn of_tower(
        families: &[Self],
        is_it: impl Fn(&Tower) -> bool,
    ) -> Option<(Self, &'static Tower)> {
        let towers = |family: Self| family.0.towers.iter().map(move |tower| (family, tower));
        families.iter().copied().flat_map(towers).find(|(_, tower)| is_it(tower))
    }

    /// Returns whether files of the family can have this `model_type`.
    pub(super) fn has_model_type(self, model_type: &str) -> bool {
        model_type == self.model_type() || self.0.other_model_types.contains(&model_type)
    }

    /// Returns the name in the file's `architectures`.
    #[must_use]
    pub const fn architecture(self) -> &'static str {
        self.0.architecture
    }

    /// Returns the name in the file's `model_type`.
    #[must_use]
    pub const fn model_type(self) -> &'static str {
        self.0.model_type
    }

    pub(crate) const fn table(self) -> &'static FamilyTable {
        self.0
    }

    /// Returns the family of a table that is not listed.
    #[cfg(test)]
    pub(crate) const fn of(table: &'static FamilyTable) -> Self {
        Self(table)
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.0.architecture == other.0.architecture
    }
}

impl Eq for Family {}

impl Hash for Family {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.architecture.hash(state);
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.architecture())
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.architecture())
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FamilyTable {
    /// Name of the family in the list `architectures`.
    pub(crate) architecture: &'static str,
    /// Name of the family in the key `model_type`.
    pub(crate) model_type: &'static str,
    /// Other names in the key `model_type`.
    pub(crate) other_model_types: &'static [&'static str],
    /// Models of images and text whose text tower is of this family.
    pub(crate) towers: &'static [Tower],
    /// Names and defaults of config keys.
    pub(crate) keys: Keys,
    /// Differences between layers of this family and of Llama.
    pub(crate) layers: Layers,
    /// Mixtures of experts. `None`: all layers are dense.
    pub(crate) mixture: Option<MixtureKeys>,
    /// Names of the tensors in checkpoints.
    pub(crate) tensors: Tensors,
}

/// An architecture that is known and not supported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsupported {
    /// Names in `architectures` and `model_type`.
    pub(crate) names: &'static [&'static str],
    /// The reason, for the user.
    pub(crate) reason: &'static str,
}

/// Architectures that extend a supported one.
pub(crate) const UNSUPPORTED: &[Unsupported] = &[
    Unsupported {
        names: &["DeepseekV32ForCausalLM", "deepseek_v32"],
        reason: "DeepSeek-V3.2 attends to the tokens that an indexer chooses, and this runtime has no indexer",
    },
    Unsupported {
        names: &["DeepseekV4ForCausalLM", "deepseek_v4"],
        reason: "DeepSeek-V4 attends to the tokens that an indexer chooses, and this runtime has no indexer",
    },
    Unsupported {
        names: &["GlmMoeDsaForCausalLM", "glm_moe_dsa"],
        reason: "GLM-5 attends to the tokens that an indexer chooses, and this runtime has no indexer",
    },
];

/// Names and defaults of config keys. The defaults count for files without the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    /// Key of the dims of a head.
    pub(crate) head_dim: &'static str,
    /// Dims of a head.
    pub(crate) absent_head_dim: Absent,
    /// Key of the number of key heads. `None`: as many as query heads.
    pub(crate) kv_heads: Option<&'static str>,
    /// Number of key heads.
    pub(crate) absent_kv_heads: Absent,
    /// Whether attention is latent. The dims of a head then follow from `qk_nope_head_dim` and
    /// `qk_rope_head_dim`.
    pub(crate) is_latent: bool,
    /// Whether a file is refused if its heads do not fill the hidden size.
    pub(crate) heads_fill_hidden: bool,
    /// Width of the feed-forward part that `intermediate_size` gives.
    pub(crate) intermediate: Intermediate,
    /// Key of the number that norms add to the mean square.
    pub(crate) norm_epsilon: &'static str,
    /// Positions and rotary embedding.
    pub(crate) rotary: RotaryKeys,
    /// Whether `max_position_embeddings` includes the extension by rotary scaling.
    pub(crate) has_final_positions: bool,
    /// Whether the head is the embedding.
    pub(crate) tied: bool,
    /// Layers for multi-token prediction. `None`: no file has them.
    pub(crate) prediction: Option<PredictionKeys>,
    /// Programs of the publisher that compute the same.
    pub(crate) own_program: OwnProgram,
}

/// Layers for multi-token prediction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PredictionKeys {
    /// Key of their number.
    pub(crate) key: &'static str,
    /// Number of layers of a file without the key.
    pub(crate) absent: usize,
    /// Names of their tensors.
    pub(crate) names: PredictionNames,
}

/// Names of the tensors of layers for multi-token prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PredictionNames {
    /// The layers have the numbers behind the last layer. The tensors around a layer have its
    /// number too.
    Numbers,
    /// All names start with this text, and the layers have the numbers from 0.
    Prefix(&'static str),
}

impl PredictionNames {
    /// Returns the last parts of the names of the tensors around a layer.
    pub(crate) const fn outer(self) -> PredictionTensors {
        match self {
            Self::Numbers => PredictionTensors {
                embedding_norm: "enorm.weight",
                hidden_norm: "hnorm.weight",
                projection: "eh_proj.weight",
                norm: "shared_head.norm.weight",
            },
            Self::Prefix(_) => PredictionTensors {
                embedding_norm: "pre_fc_norm_embedding.weight",
                hidden_norm: "pre_fc_norm_hidden.weight",
                projection: "fc.weight",
                norm: "norm.weight",
            },
        }
    }
}

/// Tensors around a layer for multi-token prediction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PredictionTensors<T = &'static str> {
    /// Norm of the next token's embedding.
    pub(crate) embedding_norm: T,
    /// Norm of the output of the last layer.
    pub(crate) hidden_norm: T,
    /// Projection of both to the input of the layer, the embedding first.
    pub(crate) projection: T,
    /// Norm before the head.
    pub(crate) norm: T,
}

/// Meaning of a file without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// The file is refused.
    Problem,
    /// The value follows from other keys: as many key heads as query heads, or `hidden_size /
    /// num_attention_heads`.
    Derived,
    /// Value if the key is absent.
    Is(usize),
}

/// The width that `intermediate_size` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intermediate {
    /// Width of the gate, and of the up projection.
    Each,
    /// Sum of both widths.
    Both,
    /// No layer is dense, and files do not have the key. The width is that of a routed expert.
    OfExperts,
}

/// Keys of positions and of the rotary embedding.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RotaryKeys {
    /// The key names that transformers uses.
    Standard(StandardRotary),
    /// Keys of the original Qwen: `rotary_emb_base`, `seq_length`, `use_dynamic_ntk` and
    /// `use_logn_attn`.
    QwenV1,
}

impl RotaryKeys {
    /// Returns the key of the rotated part of a head.
    pub(crate) const fn part_key(&self) -> &'static str {
        match self {
            Self::Standard(StandardRotary { part: RotatedPart::Dims(key), .. }) => key,
            _ => "partial_rotary_factor",
        }
    }
}

/// Facts about the rotary embedding of files with the key names that transformers uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardRotary {
    /// Base of a file that names none. `None`: the file is refused.
    pub(crate) absent_theta: Option<f64>,
    /// Rotated part of a head.
    pub(crate) part: RotatedPart,
    /// Dims that are rotated together.
    pub(crate) pairing: RotaryPairing,
    /// Key that decides whether these dims are neighbours or halves. `None`: no file has the key.
    pub(crate) interleave: Option<&'static str>,
    /// Base of layers with a window, of a file without `rope_local_base_freq`. `None`: one base for
    /// all layers.
    pub(crate) local_theta: Option<f64>,
    /// Whether a file that names no scaling is refused.
    pub(crate) needs_scaling: bool,
    /// Whether files divide the rotated dims into sections for time, height and width. The
    /// positions of a text token are equal in all sections.
    pub(crate) has_sections: bool,
    /// Whether the scaling `dynamic` can have the key `alpha`. The base then grows at any length.
    pub(crate) has_alpha: bool,
}

/// Rotated part of a head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RotatedPart {
    /// The whole head.
    Whole,
    /// The key `partial_rotary_factor`, with this part of a file without the key.
    Factor(f64),
    /// This key is the number of rotated dims. A file can have `partial_rotary_factor` instead.
    Dims(&'static str),
}

/// Programs that files name in `auto_map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnProgram {
    /// A file that names a program is refused.
    Refused,
    /// All published files name a program that computes the same.
    Ignored,
    /// These classes compute the same.
    Named(&'static [&'static str]),
}

/// Differences between layers of a family and of Llama.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layers {
    /// Biases of queries, keys and values.
    pub(crate) qkv_bias: Bias,
    /// Bias of the attention's output.
    pub(crate) output_bias: Bias,
    /// Biases of the feed-forward part.
    pub(crate) mlp_bias: Bias,
    /// Norm of queries and keys.
    pub(crate) qk_norm: Option<QkNorm>,
    /// Key that decides whether the norm exists. The default is no norm. `None`: every file has the
    /// norm.
    pub(crate) qk_norm_key: Option<&'static str>,
    /// Whether each head has a sink.
    pub(crate) has_sinks: bool,
    /// Key that decides whether a gate multiplies the heads before the output projection. The
    /// default is a gate. `None`: no file has one.
    pub(crate) output_gate: Option<&'static str>,
    /// Layers with a window.
    pub(crate) windows: Windows,
    /// Layers with the gated delta rule. `None`: no file has them.
    pub(crate) delta: Option<DeltaKeys>,
    /// Value of `query_pre_attn_scalar` of a file without the key. `None`: the family does not have
    /// the key.
    pub(crate) query_scalar: Option<f64>,
    /// Soft caps of scores and logits.
    pub(crate) caps: Caps,
    /// Key of the activation.
    pub(crate) activation: ActivationKeys,
    /// Positions of the norms in a layer.
    pub(crate) norms: NormPlaces,
    /// Meaning of norm weights.
    pub(crate) norm_weight: NormWeight,
    /// Whether embeddings are multiplied by the root of the hidden size.
    pub(crate) scales_embedding: bool,
}

/// Presence of a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bias {
    /// No file has the bias.
    Never,
    /// Every file has the bias.
    Always,
    /// The key decides. The default is no bias.
    If(&'static str),
    /// The key decides with the opposite meaning. The default is no bias.
    Unless(&'static str),
}

/// Layers with a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    /// No layer. A file with a window below the positions is refused.
    None,
    /// No layer, unless `use_sliding_window` is true, and such a file is refused.
    ByFlag,
    /// All layers, if `sliding_window` is a number.
    Every {
        /// Window of a file without the key.
        absent: Option<usize>,
    },
    /// All layers but every nth, or the layers that `layer_types` lists.
    AllBut {
        /// Distance of layers without a window, of a file without `sliding_window_pattern`.
        nth: usize,
        /// Window of a file without the key.
        absent: Option<usize>,
    },
}

/// Key of the activation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ActivationKeys {
    /// The key is `hidden_act`, and the activation of every file is `SiLU`.
    Silu,
    /// The key is `hidden_activation`. A file without it has this activation.
    Hidden(Activation),
    /// Clipped gates with the limit `swiglu_limit` and the slope `swiglu_alpha`.
    Clipped,
}

/// Soft caps of scores and logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Caps {
    /// The family does not have the keys.
    None,
    /// The caps are read from the keys `attn_logit_softcapping` and `final_logit_softcapping`.
    Keys {
        /// Cap of scores of a file without the key.
        absent_scores: Option<f64>,
        /// Cap of logits of a file without the key.
        absent_logits: Option<f64>,
    },
}

/// Names of tensors. Layer names follow `layer_prefix` and the number of the layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensors {
    /// Text before the number of a layer.
    pub(crate) layer_prefix: &'static str,
    /// Table of the token embedding.
    pub(crate) embedding: &'static str,
    /// Norm of the attention's input.
    pub(crate) attention_norm: &'static str,
    /// Norm of the attention's output.
    pub(crate) attention_norm_after: &'static str,
    /// Query, key and value projections.
    pub(crate) qkv: Projections<3>,
    /// Norm of the query heads.
    pub(crate) query_norm: &'static str,
    /// Norm of the key heads.
    pub(crate) key_norm: &'static str,
    /// Latent attention.
    pub(crate) latent: LatentTensors,
    /// Gated delta rule.
    pub(crate) delta: DeltaTensors,
    /// Sinks of the heads.
    pub(crate) sinks: &'static str,
    /// Output projection of the attention.
    pub(crate) attention_out: &'static str,
    /// Norm of the feed-forward part's input.
    pub(crate) mlp_norm: &'static str,
    /// Norm of the feed-forward part's output.
    pub(crate) mlp_norm_after: &'static str,
    /// Gate and up projection.
    pub(crate) gate_up: Projections<2>,
    /// Down projection of the feed-forward part.
    pub(crate) down: &'static str,
    /// Router and experts of a mixture.
    pub(crate) experts: ExpertTensors,
    /// Norm before the head.
    pub(crate) final_norm: &'static str,
    /// Output projection to the vocabulary.
    pub(crate) head: &'static str,
}

/// Tensors of projections of the same input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Projections<const N: usize> {
    /// Each part has a separate tensor.
    Each([&'static str; N]),
    /// One tensor with the rows of all parts, one projection after another.
    Fused(&'static str),
}

#[cfg(test)]
impl<const N: usize> Projections<N> {
    const fn names(&self) -> &[&'static str] {
        match self {
            Self::Each(names) => names,
            Self::Fused(name) => std::slice::from_ref(name),
        }
    }
}

impl Tensors {
    /// Returns the name of a layer's tensor.
    pub(crate) fn layer(&self, layer: usize, path: &str) -> String {
        format!("{}{layer}.{path}", self.layer_prefix)
    }
}
