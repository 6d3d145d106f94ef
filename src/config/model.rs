//! `config.json` of a model.
//!
//! Input → output: its text → [`ModelConfig`]. Invariants: as the module above says; a family's own
//! names (`kv_channels`, `layer_norm_epsilon`, …) end here. It reads no weights: whether the
//! tensors are there and have these sizes is checked when a checkpoint is opened.

use std::fmt;

use serde_json::Value;

use super::fields::{Fields, LARGEST_SIZE, ShortJson, parse_object};
use super::keys;
use super::rope::{Rope, RopeScaling};
use super::rope_fields::{self, AbsentTheta};
use crate::base::{DType, Diagnostic, Diagnostics};

const FILE: &str = "config.json";

/// The architectures this runtime builds programs for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub enum Family {
    /// The original Qwen, with fused attention weights and its own tensor names.
    QwenV1,
    /// Qwen1.5, Qwen2 and Qwen2.5.
    Qwen2,
    /// Qwen3, dense: queries and keys are normed by head.
    Qwen3,
    /// Llama 2 and 3.
    Llama,
}

impl Family {
    /// Every family that can be read.
    pub const ALL: [Self; 4] = [Self::QwenV1, Self::Qwen2, Self::Qwen3, Self::Llama];

    /// The name in the file's `architectures`.
    #[must_use]
    pub const fn architecture(self) -> &'static str {
        match self {
            Self::QwenV1 => "QWenLMHeadModel",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
            Self::Llama => "LlamaForCausalLM",
        }
    }

    /// The name in the file's `model_type`.
    #[must_use]
    pub const fn model_type(self) -> &'static str {
        match self {
            Self::QwenV1 => "qwen",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Llama => "llama",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.architecture())
    }
}

/// A decoder-only Transformer with RMS norms, rotary positions and a `SwiGLU` feed-forward layer.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Whose tensor names and details it follows.
    pub family: Family,
    /// Rows of the embedding; valid token ids are below it.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of decoder layers.
    pub layers: usize,
    /// Query heads of a layer.
    pub heads: usize,
    /// Key and value heads; divides [`Self::heads`].
    pub kv_heads: usize,
    /// Dims of one head; even. `heads * head_dim` need not be [`Self::hidden_size`].
    pub head_dim: usize,
    /// Rows of the gate and of the up weight each: the true width, also where the file writes twice
    /// that.
    pub intermediate_size: usize,
    /// Added to the mean square in every norm.
    pub norm_epsilon: f64,
    /// Rotary embedding of queries and keys.
    pub rope: Rope,
    /// The original Qwen's scaling of queries beyond the trained length.
    pub logn: Option<LogN>,
    /// Positions a sequence may have, prompt and generated tokens together. Where the rotary
    /// scaling extends the written `max_position_embeddings`, this is the extended number.
    pub max_positions: usize,
    /// Whether the head is the embedding's weight.
    pub tied_embeddings: bool,
    /// Whether the query, key and value projections have a bias.
    pub qkv_bias: bool,
    /// Whether the attention's output projection has a bias.
    pub output_bias: bool,
    /// Whether the feed-forward projections have a bias.
    pub mlp_bias: bool,
    /// Whether each query and key head is normed before the rotation.
    pub qk_norm: bool,
    /// Element type the weights were published in.
    pub dtype: DType,
}

/// Scaling of the query at each position by the logarithm of its distance from the start
/// (`use_logn_attn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogN {
    /// Length in positions up to which queries are not scaled; above 1.
    pub trained_length: usize,
}

impl LogN {
    /// What multiplies the query of each position: 1, or the logarithm of `position + 1` to the
    /// base of the trained length where that is larger.
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
    /// The model that the text of a `config.json` describes.
    ///
    /// A text that names no element type means f32; [`Self::from_json_of`] takes that of the
    /// weights instead.
    ///
    /// # Errors
    /// Every problem of the text: no JSON, an unknown architecture, fields that are missing, of a
    /// wrong type, that contradict each other, or that ask for what this runtime does not do
    /// (sliding windows, quantised weights, other activations, scales and norms, and what by its
    /// name may change numbers and is not known).
    pub fn from_json(text: &str) -> Result<Self, Diagnostics> {
        Self::from_json_of(text, || DType::F32)
    }

    /// Reads the text of a `config.json`; `weights` gives the element type if the text names none.
    ///
    /// # Errors
    /// As for [`Self::from_json`].
    pub fn from_json_of(text: &str, weights: impl FnOnce() -> DType) -> Result<Self, Diagnostics> {
        let object = parse_object(FILE, text)?;
        let mut fields = Fields::new(FILE, &object);
        // Without a family the names of the other fields are not known either.
        let config = family(&mut fields).and_then(|family| {
            let config = match family {
                Family::QwenV1 => qwen_v1(&mut fields),
                Family::Qwen2 | Family::Qwen3 | Family::Llama => transformers(&mut fields, family),
            };
            let is_named =
                ["dtype", "torch_dtype"].iter().any(|name| named_dtype_value(&fields, name).is_some());
            let config =
                config.map(|config| if is_named { config } else { Self { dtype: weights(), ..config } });
            keys::check(&mut fields, family, config.as_ref());
            config
        });
        let problems = fields.into_problems();
        match config {
            Some(config) => problems.into_result(config),
            None => Err(problems),
        }
    }

    /// Query heads that share one kv head.
    #[must_use]
    pub const fn heads_per_kv_head(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Rows of the query projection.
    #[must_use]
    pub const fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Rows of the key and of the value projection each.
    #[must_use]
    pub const fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

fn family(fields: &mut Fields<'_>) -> Option<Family> {
    let architecture = architecture(fields);
    let model_type = fields.optional_text("model_type");
    let (name, field, found) = match (architecture, model_type) {
        (Some(name), _) => {
            (name, "architectures", Family::ALL.into_iter().find(|f| f.architecture() == name))
        }
        (None, Some(name)) => (name, "model_type", Family::ALL.into_iter().find(|f| f.model_type() == name)),
        (None, None) => {
            if fields.get("architectures").is_none() && fields.get("model_type").is_none() {
                fields.report(
                    Diagnostic::new(fields.place("architectures"), "missing")
                        .expected(known())
                        .help("name the model's architecture"),
                );
            }
            return None;
        }
    };
    let Some(family) = found else {
        fields.report(
            Diagnostic::new(fields.place(field), "unknown architecture")
                .expected(known())
                .found(format!("`{name}`")),
        );
        return None;
    };
    if let Some(model_type) = model_type
        && model_type != family.model_type()
    {
        fields.report(
            Diagnostic::new(fields.place("model_type"), format!("contradicts the architecture {family}"))
                .expected(format!("`{}`", family.model_type()))
                .found(format!("`{model_type}`")),
        );
    }
    Some(family)
}

fn known() -> String {
    format!("one of {}", Family::ALL.map(Family::architecture).join(", "))
}

/// The one name in `architectures`.
fn architecture<'a>(fields: &mut Fields<'a>) -> Option<&'a str> {
    let value = fields.get("architectures")?;
    let name = match value.as_array().map(Vec::as_slice) {
        Some([name]) => name.as_str(),
        _ => None,
    };
    if name.is_none() {
        fields.wrong_type("architectures", "a list of one name", value);
    }
    name
}

fn transformers(fields: &mut Fields<'_>, family: Family) -> Option<ModelConfig> {
    const QWEN3_HEAD_DIM: usize = 128;
    let vocab_size = fields.size("vocab_size");
    let hidden_size = fields.size("hidden_size");
    let layers = layer_count(fields);
    let heads = fields.size("num_attention_heads");
    let kv_heads = match family {
        // Llama's first files have no such field: every query head has its own key and value.
        Family::Llama if fields.get("num_key_value_heads").is_none() => heads,
        _ => fields.size("num_key_value_heads"),
    };
    let head_dim = match (fields.get("head_dim"), family) {
        (Some(_), _) => fields.optional_size("head_dim"),
        (None, Family::Qwen3) => Some(QWEN3_HEAD_DIM),
        (None, _) => hidden_size.zip(heads).and_then(|(hidden, heads)| divide_heads(fields, hidden, heads)),
    };
    let head_dim = head_dim.and_then(|dim| even_head(fields, "head_dim", dim));
    let intermediate_size = fields.size("intermediate_size");
    let norm_epsilon = fields.positive("rms_norm_eps");
    let written_positions = fields.size("max_position_embeddings");
    let absent_theta = if family == Family::Llama { AbsentTheta::Original } else { AbsentTheta::Problem };
    let rope = rope_fields::read(fields, written_positions, absent_theta);
    let tied_embeddings = fields.optional_flag("tie_word_embeddings").unwrap_or(false);
    // Qwen2 has biases of q, k and v always and no other, Qwen3 none of the feed-forward layer;
    // fields that say otherwise contradict the architecture.
    let attention_bias = family != Family::Qwen2 && fields.optional_flag("attention_bias").unwrap_or(false);
    let mlp_bias = family == Family::Llama && fields.optional_flag("mlp_bias").unwrap_or(false);
    let dtype = dtype(fields);
    let kv_heads = heads.zip(kv_heads).and_then(|(heads, kv_heads)| divides_heads(fields, heads, kv_heads));
    let rope = rope?;
    let max_positions = extended_positions(fields, written_positions?, &rope.scaling);
    Some(ModelConfig {
        family,
        vocab_size: vocab_size?,
        hidden_size: hidden_size?,
        layers: layers?,
        heads: heads?,
        kv_heads: kv_heads?,
        head_dim: head_dim?,
        intermediate_size: intermediate_size?,
        norm_epsilon: norm_epsilon?,
        max_positions: max_positions?,
        rope,
        logn: None,
        tied_embeddings,
        qkv_bias: family == Family::Qwen2 || attention_bias,
        output_bias: attention_bias,
        mlp_bias,
        qk_norm: family == Family::Qwen3,
        dtype: dtype?,
    })
}

fn qwen_v1(fields: &mut Fields<'_>) -> Option<ModelConfig> {
    let vocab_size = fields.size("vocab_size");
    let hidden_size = fields.size("hidden_size");
    let layers = layer_count(fields);
    let heads = fields.size("num_attention_heads");
    let head_dim = fields.size("kv_channels").and_then(|dim| even_head(fields, "kv_channels", dim));
    let intermediate_size = fields.size("intermediate_size").and_then(|written| halved(fields, written));
    let norm_epsilon = fields.positive("layer_norm_epsilon");
    let trained_length = fields.size("seq_length");
    let max_positions = fields.size("max_position_embeddings");
    let theta = fields.positive("rotary_emb_base").and_then(|theta| rope_fields::above_one(fields, theta));
    let dynamic_ntk = fields.flag("use_dynamic_ntk");
    let logn = fields.flag("use_logn_attn");
    let no_bias = fields.optional_flag("no_bias").unwrap_or(true);
    let tied_embeddings = fields.optional_flag("tie_word_embeddings").unwrap_or(false);
    let dtype = dtype(fields);
    if let (Some(hidden), Some(heads), Some(head_dim)) = (hidden_size, heads, head_dim)
        && heads * head_dim != hidden
    {
        fields.report(
            Diagnostic::new(fields.place("kv_channels"), "heads do not fill the hidden size")
                .expected(format!("num_attention_heads × kv_channels = hidden_size = {hidden}"))
                .found(format!("{heads} × {head_dim} = {}", heads * head_dim)),
        );
        return None;
    }
    if logn == Some(true) && trained_length == Some(1) {
        fields.report(
            Diagnostic::new(
                fields.place("seq_length"),
                "no base of the logarithm that use_logn_attn asks for",
            )
            .expected("more than 1")
            .found(1),
        );
    }
    let trained_length = trained_length?;
    let scaling =
        if dynamic_ntk? { RopeScaling::QwenDynamicNtk { trained_length } } else { RopeScaling::Default };
    Some(ModelConfig {
        family: Family::QwenV1,
        vocab_size: vocab_size?,
        hidden_size: hidden_size?,
        layers: layers?,
        heads: heads?,
        kv_heads: heads?,
        head_dim: head_dim?,
        intermediate_size: intermediate_size?,
        norm_epsilon: norm_epsilon?,
        rope: Rope { scaling, ..Rope::plain(theta?) },
        logn: logn?.then_some(LogN { trained_length }),
        max_positions: max_positions?,
        tied_embeddings,
        // `no_bias` is about all projections but this one.
        qkv_bias: true,
        output_bias: !no_bias,
        mlp_bias: !no_bias,
        qk_norm: false,
        dtype: dtype?,
    })
}

/// The number of layers, which `layer_types` must agree with: as many, all with attention to every
/// token.
fn layer_count(fields: &mut Fields<'_>) -> Option<usize> {
    let layers = fields.size("num_hidden_layers");
    let Some(types) = fields.get("layer_types") else { return layers };
    let Some(list) = types.as_array() else {
        fields.wrong_type("layer_types", "a list with one entry a layer", types);
        return layers;
    };
    if let Some(other) = list.iter().find(|value| value.as_str() != Some("full_attention")) {
        fields.report(
            Diagnostic::new(fields.place("layer_types"), "unsupported kind of layer")
                .expected("\"full_attention\" in every layer")
                .found(ShortJson(other)),
        );
    }
    if let Some(layers) = layers.filter(|layers| *layers != list.len()) {
        fields.report(
            Diagnostic::new(fields.place("layer_types"), "contradicts num_hidden_layers")
                .expected(format!("{layers} entries"))
                .found(list.len()),
        );
    }
    layers
}

/// The original Qwen writes the widths of gate and up together.
fn halved(fields: &mut Fields<'_>, written: usize) -> Option<usize> {
    if written.is_multiple_of(2) {
        return Some(written / 2);
    }
    fields.report(
        Diagnostic::new(fields.place("intermediate_size"), "no sum of two equal widths")
            .expected("an even number, gate and up together")
            .found(written),
    );
    None
}

fn divide_heads(fields: &mut Fields<'_>, hidden: usize, heads: usize) -> Option<usize> {
    if hidden.is_multiple_of(heads) {
        return Some(hidden / heads);
    }
    fields.report(
        Diagnostic::new(
            fields.place("num_attention_heads"),
            "does not divide hidden_size, and head_dim is absent",
        )
        .expected(format!("a divisor of {hidden}"))
        .found(heads),
    );
    None
}

fn divides_heads(fields: &mut Fields<'_>, heads: usize, kv_heads: usize) -> Option<usize> {
    if heads.is_multiple_of(kv_heads) {
        return Some(kv_heads);
    }
    fields.report(
        Diagnostic::new(fields.place("num_key_value_heads"), "does not divide num_attention_heads")
            .expected(format!("a divisor of {heads}"))
            .found(kv_heads),
    );
    None
}

fn even_head(fields: &mut Fields<'_>, name: &str, head_dim: usize) -> Option<usize> {
    if head_dim.is_multiple_of(2) {
        return Some(head_dim);
    }
    let place =
        if fields.get(name).is_some() { fields.place(name) } else { fields.place("num_attention_heads") };
    fields.report(
        Diagnostic::new(place, "a head's dims cannot be paired for the rotation")
            .expected("an even number of dims a head")
            .found(head_dim),
    );
    None
}

/// The published element type. A file without one means f32, as the programs that write it define.
fn dtype(fields: &mut Fields<'_>) -> Option<DType> {
    let newer = named_dtype(fields, "dtype");
    let older = named_dtype(fields, "torch_dtype");
    if let (Some(newer), Some(older)) = (newer, older)
        && newer != older
    {
        fields.report(
            Diagnostic::new(fields.place("torch_dtype"), "contradicts dtype").expected(newer).found(older),
        );
    }
    if named_dtype_value(fields, "dtype").or(named_dtype_value(fields, "torch_dtype")).is_none() {
        return Some(DType::F32);
    }
    newer.or(older)
}

/// Returns the value of a key for the element type; `auto` names none.
fn named_dtype_value<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| value.as_str() != Some("auto"))
}

fn named_dtype(fields: &mut Fields<'_>, name: &str) -> Option<DType> {
    let value = named_dtype_value(fields, name)?;
    let dtype = value.as_str().and_then(|text| match text.strip_prefix("torch.").unwrap_or(text) {
        "float32" => Some(DType::F32),
        "float16" => Some(DType::F16),
        "bfloat16" => Some(DType::BF16),
        _ => None,
    });
    if dtype.is_none() {
        fields.wrong_type(name, "float32, float16 or bfloat16", value);
    }
    dtype
}

/// The positions that a scaled embedding reaches, by the rule that serving engines share: linear
/// and dynamic scaling stretch the written number, `YaRN` stretches the original one, and for the
/// others the file writes the final number.
fn extended_positions(fields: &mut Fields<'_>, written: usize, scaling: &RopeScaling) -> Option<usize> {
    let stretched = |positions: usize, factor: f64| (positions as f64 * factor) as usize;
    let extended = match *scaling {
        RopeScaling::Default | RopeScaling::Llama3 { .. } | RopeScaling::QwenDynamicNtk { .. } => written,
        RopeScaling::Linear { factor } | RopeScaling::Dynamic { factor, .. } => stretched(written, factor),
        RopeScaling::Yarn { factor, original_positions, .. } => {
            stretched(original_positions, factor).max(written)
        }
    };
    if extended <= LARGEST_SIZE {
        return Some(extended);
    }
    fields.report(
        Diagnostic::new(
            fields.place("max_position_embeddings"),
            "too many positions once the rotary scaling extends them",
        )
        .expected(format!("at most {LARGEST_SIZE}"))
        .found(extended),
    );
    None
}

#[cfg(test)]
mod tests;
