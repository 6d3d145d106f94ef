//! Keys of a `config.json` that no other file of this module reads, and their effect on numbers.
//!
//! Input: the unread keys, and the configuration from the other keys. Output: a problem for each
//! key that asks for numbers this runtime does not compute.
//!
//! Invariants: a row of [`KEYS`] judges a key, or else its name does. A key that may change numbers
//! is never ignored.
//!
//! The names come from published models of other architectures and from their programs (Granite,
//! Cohere, Phi, `StarCoder`, `MiniCPM`, `DeepSeek`, Falcon, MPT, Megatron). Publishers write them
//! under the name of an architecture that they extend with their own code.

use serde_json::Value;

use super::families::{Family, OwnProgram, Windows};
use super::fields::{Fields, ShortJson};
use super::layer::{FeedForwardPart, GroupedAttention, Layer, Mixture, QkNorm, Router, Scores};
use super::model::ModelConfig;
use super::rope::{RopeScaling, RotaryPairing};
use crate::base::Diagnostic;

/// Values of a key that change nothing.
#[derive(Clone, Copy)]
enum Neutral {
    Any,
    Null,
    /// One of these values, as JSON.
    OneOf(&'static [&'static str]),
    /// A list that has this value, as JSON, in every element.
    Every(&'static str),
    /// A number of the configuration, and its name in messages.
    Number(&'static str, fn(&ModelConfig) -> f64),
    /// A flag of the configuration.
    Flag(fn(&ModelConfig) -> bool),
    /// A name of a fact of the configuration. `None`: the configuration does not have the fact, and
    /// any value changes nothing.
    Name(fn(&ModelConfig) -> Option<&'static str>),
    /// At least the number of positions of a sequence.
    Positions,
    /// The length that the rotary embedding is scaled from, if it is scaled from one.
    Original,
}

use Neutral::{Any, Every, Flag, Name, Null, Number, OneOf, Original, Positions};

const NO: Neutral = OneOf(&["false"]);
const YES: Neutral = OneOf(&["true"]);
const ONE: Neutral = OneOf(&["1"]);
const ZERO: Neutral = OneOf(&["0", "false"]);

/// Keys with the same meaning, the values that change nothing, and the message for other values.
type KeyRule = (&'static [&'static str], Neutral, &'static str);

/// Keys of the activation in files of other programs.
const OTHER_ACTIVATIONS: [&str; 5] =
    ["hidden_activation", "activation_function", "activation", "act_fn", "activation_type"];

/// All keys that change numbers in some model, or look as if they do.
const KEYS: &[KeyRule] = &[
    // The feed-forward layer.
    (&["hidden_act"], OneOf(&["\"silu\"", "\"swish\""]), "unsupported activation"),
    (&OTHER_ACTIVATIONS, OneOf(&["\"silu\"", "\"swish\""]), "unsupported activation"),
    (&["swiglu_limit", "swiglu_alpha", "activation_sparsity_pattern"], Null, "unsupported activation"),
    (
        &[
            "num_experts",
            "num_local_experts",
            "n_routed_experts",
            "moe_num_experts",
            "n_shared_experts",
            "num_shared_experts",
            "num_shared_expert",
            "shared_expert_intermediate_size",
            "shared_intermediate_size",
            "first_k_dense_replace",
            "moe_layer_num_skipped",
        ],
        ZERO,
        "not known to files of this family",
    ),
    (
        &["decoder_sparse_step", "moe_layer_freq", "n_group", "topk_group", "routed_scaling_factor"],
        ONE,
        "not known to files of this family",
    ),
    (&["mlp_only_layers"], OneOf(&["[]"]), "not known to files of this family"),
    (&["scoring_func"], Name(scores), "contradicts the router of this architecture"),
    (&["topk_method"], Name(choice), "contradicts the router of this architecture"),
    (
        &["use_routing_bias"],
        Flag(|config| router(config).is_some_and(|router| router.has_choice_bias)),
        "contradicts the router of this architecture",
    ),
    (
        &["group_limited_greedy"],
        Flag(|config| router(config).is_some_and(|router| router.groups.is_some())),
        "contradicts the router of this architecture",
    ),
    (
        &["use_mixed_mlp_moe"],
        Flag(|config| mixture(config).is_some_and(|mixture| mixture.shared.is_some())),
        "contradicts the number of shared experts",
    ),
    (
        &["moe_drop_tokens", "moe_random_routing_dropped_token"],
        NO,
        "dropping tokens of full experts is not supported",
    ),
    // Scales.
    (
        &[
            "final_logit_softcapping",
            "attn_logit_softcapping",
            "logit_softcapping",
            "attn_logit_cap",
            "logits_soft_cap",
        ],
        Null,
        "capped logits are not supported",
    ),
    (
        &[
            "residual_multiplier",
            "residual_scale",
            "embedding_multiplier",
            "embedding_scale",
            "scale_emb",
            "logits_scaling",
            "logit_scale",
            "logits_scale",
            "output_multiplier_scale",
            "embedding_multiplier_scale",
            "lm_head_multiplier",
            "key_multiplier",
            "attention_in_multiplier",
            "attention_out_multiplier",
            "mup_width_multiplier",
            "mup_width_scale",
            "rope_ratio",
        ],
        ONE,
        "a scale of its own is not supported",
    ),
    (
        &["attention_multiplier", "attention_scale", "attn_scale", "softmax_scale"],
        Number("1 / √head_dim", |config| 1.0 / (config.head_dim as f64).sqrt()),
        "another scale of the attention is not supported",
    ),
    (
        &["query_pre_attn_scalar"],
        Number("head_dim", |config| config.head_dim as f64),
        "another scale of the attention is not supported",
    ),
    (&["scale_attn_weights"], YES, "attention without the scale is not supported"),
    (&["scale_attn_by_inverse_layer_idx"], NO, "another scale of the attention is not supported"),
    (
        &["dim_model_base"],
        Number("hidden_size", |config| config.hidden_size as f64),
        "a scale of the logits is not supported",
    ),
    (
        &["scale_depth"],
        Number("√num_hidden_layers", |config| (config.layers as f64).sqrt()),
        "a scale of the residual stream is not supported",
    ),
    (
        &["scale_embedding", "scale_embeddings", "normalize_embedding"],
        NO,
        "a scale of the embedding is not supported",
    ),
    // Positions.
    (
        &["partial_rotary_factor", "rotary_pct", "rotary_percentage", "rotary_emb_fraction"],
        ONE,
        "rotating a part of a head is not supported",
    ),
    (
        &["rotary_dim", "rotary_ndims", "rotary_emb_dim", "qk_rope_head_dim"],
        Number("head_dim", |config| config.head_dim as f64),
        "rotating a part of a head is not supported",
    ),
    (
        &[
            "rope_interleave",
            "rope_interleaved",
            "rotary_interleaved",
            "rotary_emb_interleaved",
            "rope_traditional",
        ],
        Flag(|config| config.rope.pairing == RotaryPairing::Neighbours),
        "contradicts the dims that the architecture rotates together",
    ),
    (
        &["rope_theta", "rotary_emb_base", "rotary_base", "rope_base", "global_rope_theta"],
        Number("the base in use", |config| config.rope.theta),
        "differs from the base of the rotary embedding that the family's files name otherwise",
    ),
    (
        &["original_max_position_embeddings"],
        Original,
        "differs from the length that the rotary embedding is scaled from",
    ),
    (
        &[
            "rope_scaling",
            "rope_parameters",
            "mrope_section",
            "xdrope_section",
            "rope_local_base_freq",
            "local_rope_theta",
            "rotary_emb_scale_base",
            "no_rope_layer_interval",
            "dual_chunk_attention_config",
        ],
        Null,
        "not known to files of this family",
    ),
    (&["no_rope_layers"], Every("1"), "layers without rotation are not supported"),
    (
        &["rotary", "use_rotary", "use_rope", "use_rotary_pos_emb"],
        YES,
        "attention without rotation is not supported",
    ),
    (
        &["position_embedding_type", "pos_emb", "position_embedding"],
        OneOf(&["\"rope\"", "\"rotary\"", "\"rotary_embedding\""]),
        "other embeddings of positions are not supported",
    ),
    (&["alibi", "use_alibi", "attention_alibi"], NO, "biases by distance are not supported"),
    (
        &["use_dynamic_ntk", "use_logn_attn", "use_mrope", "position_embedding_xdrope"],
        NO,
        "not known to files of this family",
    ),
    // Visibility of tokens.
    (&["use_sliding_window", "use_swa"], NO, "attention in a sliding window is not supported"),
    (&["sliding_window"], Positions, "attention in a sliding window is not supported"),
    (
        &[
            "sliding_window_size",
            "sliding_window_pattern",
            "attention_window",
            "attention_window_size",
            "window_size",
            "attention_chunk_size",
            "sparse_attention_config",
        ],
        Null,
        "attention to a part of the tokens is not supported",
    ),
    (&["is_causal", "causal"], YES, "attention to later tokens is not supported"),
    (
        &["use_bidirectional_attention", "bidirectional", "add_cross_attention", "is_encoder_decoder"],
        NO,
        "attention to later tokens is not supported",
    ),
    // The shape of attention.
    (
        &[
            "num_key_value_heads",
            "num_kv_heads",
            "n_head_kv",
            "n_kv_heads",
            "num_query_groups",
            "multi_query_group_num",
        ],
        Number("the number of key heads", |config| config.kv_heads as f64),
        "another number of key heads than the family's files give",
    ),
    (
        &["head_dim", "kv_channels", "attention_head_dim", "qk_head_dim", "v_head_dim", "d_head"],
        Number("the size of a head", |config| config.head_dim as f64),
        "another size of a head than the family's files give",
    ),
    (&["multi_query", "multi_query_attention"], NO, "not known to files of this family"),
    (&["q_lora_rank", "kv_lora_rank", "qk_nope_head_dim"], Null, "latent attention is not supported"),
    (
        &["use_mla"],
        Flag(|config| config.pattern.iter().any(|layer| layer.latent().is_some())),
        "contradicts the attention of this architecture",
    ),
    (&["num_kv_shared_layers", "use_cla"], ZERO, "layers that share a KV cache are not supported"),
    (
        &[
            "attn_output_gate",
            "attention_output_gate",
            "use_gated_attention",
            "use_attention_sinks",
            "attention_sinks",
        ],
        NO,
        "attention with gates or sinks is not supported",
    ),
    (&["clip_qkv"], Null, "clipping of queries, keys and values is not supported"),
    (&["attn_temperature_tuning"], ZERO, "another scale of the attention is not supported"),
    (&["full_attention_interval"], ONE, "not known to files of this family"),
    // The states of this runtime are f32, which is at least as exact.
    (
        &["mamba_ssm_dtype"],
        OneOf(&["\"float32\"", "\"bfloat16\""]),
        "states of another type are not supported",
    ),
    (&["attn_type_list"], Every("1"), "linear attention is not supported"),
    (
        &["index_topk", "index_n_heads", "index_head_dim", "indexer_types"],
        Null,
        "attention to tokens that an indexer chooses is not supported",
    ),
    (
        &[
            "parallel_attn",
            "use_parallel_residual",
            "parallel_residual",
            "use_parallel_block",
            "parallel_block",
        ],
        NO,
        "attention and feed-forward layer side by side are not supported",
    ),
    // Norms and biases.
    (
        &[
            "rms_norm_eps",
            "layer_norm_epsilon",
            "layer_norm_eps",
            "layernorm_epsilon",
            "norm_eps",
            "norm_epsilon",
            "rms_norm_epsilon",
        ],
        Number("the epsilon in use", |config| config.norm_epsilon),
        "differs from the epsilon that the family's files name otherwise",
    ),
    (
        &["qk_norm", "use_qk_norm", "qk_layernorm", "use_qk_layernorm", "qk_layer_norm"],
        Flag(|config| grouped(config).is_some_and(|attention| attention.qk_norm.is_some())),
        "contradicts the architecture's norms of query and key heads",
    ),
    (&["qk_norm_type"], Name(qk_norm_range), "contradicts the architecture's norms of query and key heads"),
    (
        &[
            "layernorm_full_attention_alpha",
            "layernorm_full_attention_beta",
            "layernorm_mlp_alpha",
            "layernorm_mlp_beta",
        ],
        ONE,
        "a scale of the residual stream is not supported",
    ),
    (
        &["norm_type", "layer_norm_type", "layernorm_type", "normalization", "normalization_type"],
        OneOf(&["\"rms_norm\"", "\"rmsnorm\"", "\"RMSNorm\"", "\"rms\""]),
        "other norms are not supported",
    ),
    (
        &[
            "norm_after",
            "post_norm",
            "use_post_norm",
            "sandwich_norm",
            "use_sandwich_norm",
            "apply_residual_connection_post_layernorm",
            "zero_centered_gamma",
            "use_embedding_layernorm",
            "embedding_layernorm",
        ],
        NO,
        "other norms are not supported",
    ),
    (&["pre_norm", "use_pre_norm", "use_rms_norm"], YES, "other norms are not supported"),
    (
        &["attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias"],
        Flag(|config| grouped(config).is_some_and(|attention| attention.qkv_bias)),
        "contradicts the architecture's biases of queries, keys and values",
    ),
    (
        &["attention_out_bias", "attention_output_bias", "o_proj_bias"],
        Flag(|config| grouped(config).is_some_and(|attention| attention.output_bias)),
        "contradicts the architecture's bias of the attention's output",
    ),
    (
        &["mlp_bias", "ffn_bias", "use_bias", "bias", "add_bias_linear", "linear_bias"],
        Flag(|config| config.layer(0).has_mlp_bias()),
        "contradicts the architecture's biases of the feed-forward layer",
    ),
    (
        &["no_bias"],
        Flag(|config| !config.layer(0).has_mlp_bias()),
        "contradicts the architecture's biases of the feed-forward layer",
    ),
    (&["lm_head_bias", "head_bias", "use_lm_head_bias"], NO, "a bias of the logits is not supported"),
    (&["add_classification_head"], NO, "a head for classes is not supported"),
    (&["full_attn_mod"], ONE, "layers with sparse attention are not supported"),
    // Weights of other kinds, and models in addition to the Transformer.
    (
        &["compression_config", "quantization", "quantize_config", "quant_config", "quant_method"],
        Null,
        "quantised weights are not supported",
    ),
    (&["use_cache_quantization"], NO, "a quantised KV cache is not supported"),
    (&["pruned_heads"], OneOf(&["{}", "[]"]), "pruned heads are not supported"),
    (
        &[
            "vision_config",
            "vit_type",
            "vit_path",
            "audio_config",
            "text_config",
            "llm_config",
            "visual",
            "peft_config",
            "lora_config",
        ],
        Null,
        "a model within or beside the model is not supported",
    ),
    // These change nothing.
    (
        &[
            "_attn_implementation",
            "_attn_implementation_autoset",
            "attn_implementation",
            "_flash_attn_2_enabled",
            "use_flash_attn",
            "use_flash_attention",
            "use_flash_attention_2",
            "use_flashattn",
            "flash_attn",
            "use_fused_rms_norm",
            "use_fused_rope",
            "output_attentions",
            "softmax_in_fp32",
            "attention_softmax_in_fp32",
            "scale_attention_softmax_in_fp32",
            "reorder_and_upcast_attn",
            "apply_query_key_layer_scaling",
            // `use_sliding_window` decides about windows. These count only with windows, experts,
            // a shared expert, shared caches, images or linear attention.
            "max_window_layers",
            "num_experts_per_tok",
            "moe_topk",
            "cla_share_factor",
            "vit_add_patchemb_bias",
            "vit_norm_type",
            "vit_used_rms_norm",
            "norm_topk_prob",
            "shared_moe_mode",
            "layernorm_linear_attention_alpha",
            "layernorm_linear_attention_beta",
            // Settings of splits and training.
            "tensor_parallel_degree",
            "tensor_parallel_output",
            "sequence_parallel",
            "use_scaled_init_method",
        ],
        Any,
        "",
    ),
];

/// Words in names of training options.
const TRAINING: [&str; 4] = ["dropout", "pdrop", "loss", "initializer"];

/// Beginnings of words in names of keys that may change numbers.
const NUMERIC: [&str; 26] = [
    "activation",
    "alibi",
    "attention",
    "attn",
    "bias",
    "clip",
    "eps",
    "expert",
    "gate",
    "layernorm",
    "lora",
    "moe",
    "mrope",
    "multiplier",
    "norm",
    "parallel",
    "quant",
    "residual",
    "rmsnorm",
    "rope",
    "rotary",
    "scale",
    "scaling",
    "sink",
    "softcap",
    "window",
];

/// Refuses unread keys that change numbers. `config` is the configuration from the other keys, if
/// they were valid.
pub(super) fn check(fields: &mut Fields<'_>, family: Family, config: Option<&ModelConfig>) {
    refuse_other_programs(fields, family);
    let unread = fields.unread();
    // Models have one activation. If `hidden_act` names it, the programs of these families read no
    // other key.
    let has_activation = unread.contains(&"hidden_act");
    for name in unread {
        let Some(value) = fields.get(name) else { continue };
        if has_activation && OTHER_ACTIVATIONS.contains(&name) {
            continue;
        }
        let row = KEYS.iter().find(|(names, ..)| names.contains(&name));
        let (neutral, message) = match row {
            Some((_, neutral, message)) => (*neutral, *message),
            None if may_change_numbers(name) => (Null, "unknown, and by its name it changes numbers"),
            None => continue,
        };
        if neutral.is(value, family, config) {
            continue;
        }
        let problem = Diagnostic::new(fields.place(name), message)
            .expected(neutral.text(config))
            .found(ShortJson(value));
        fields.report(problem.help(help(name)));
    }
}

fn help(name: &str) -> &'static str {
    match name {
        "use_sliding_window" | "use_swa" => {
            "set it to false if the prompts stay within the window; the result is the same there"
        }
        "sliding_window" => "remove it if the prompts stay within the window; the result is the same there",
        "compression_config" | "quantization" | "quantize_config" | "quant_config" => {
            "describe the weights by quantization_config"
        }
        _ => "remove it if the model computes without it",
    }
}

/// Refuses files that name the publisher's own program, unless it is known to compute the same.
fn refuse_other_programs(fields: &mut Fields<'_>, family: Family) {
    let Some(map) = fields.get("auto_map") else { return };
    let is_same = |program: &Value| match family.table().keys.own_program {
        OwnProgram::Refused => false,
        OwnProgram::Ignored => true,
        OwnProgram::Named(names) => program.as_str().is_some_and(|name| names.contains(&name)),
    };
    let is_other = |(class, program): &(&String, &Value)| class.starts_with("AutoModel") && !is_same(program);
    if let Some((class, program)) = map.as_object().and_then(|map| map.iter().find(is_other)) {
        fields.report(
            Diagnostic::new(fields.place(&format!("auto_map.{class}")), "the model has a program of its own")
                .expected(format!("none, {family} as transformers has it"))
                .found(ShortJson(program))
                .help("remove it if that program computes the same"),
        );
    }
}

/// Returns the first grouped attention. All of a model have the same norms and biases.
fn grouped(config: &ModelConfig) -> Option<&GroupedAttention> {
    config.pattern.iter().find_map(Layer::grouped)
}

/// Returns the mixture of the first layer that has one.
fn mixture(config: &ModelConfig) -> Option<&Mixture> {
    config.pattern.iter().find_map(|layer| match &layer.feed_forward {
        FeedForwardPart::Mixture(mixture) => Some(mixture),
        FeedForwardPart::Dense { .. } => None,
    })
}

/// Returns the router of the layers with a mixture.
fn router(config: &ModelConfig) -> Option<&Router> {
    mixture(config).map(|mixture| &mixture.router)
}

/// Returns the name of the router's scores in files.
fn scores(config: &ModelConfig) -> Option<&'static str> {
    router(config).map(|router| match router.scores {
        Scores::Softmax | Scores::SoftmaxOfChosen => "softmax",
        Scores::Sigmoid => "sigmoid",
    })
}

/// Returns the name of the router's choice in files.
fn choice(config: &ModelConfig) -> Option<&'static str> {
    router(config).map(|router| match (router.has_choice_bias, router.groups) {
        (true, _) => "noaux_tc",
        (false, None) => "greedy",
        (false, Some(_)) => "group_limited_greedy",
    })
}

/// Returns the name in files of the range of the norms of queries and keys.
fn qk_norm_range(config: &ModelConfig) -> Option<&'static str> {
    grouped(config)?.qk_norm.map(|norm| match norm {
        QkNorm::AllHeads => "per_layer",
        QkNorm::PerHead | QkNorm::PerRotatedHead => "per_head",
    })
}

fn may_change_numbers(name: &str) -> bool {
    let mut words = name.split(['_', '.', '-']);
    words.clone().any(|word| NUMERIC.iter().any(|part| word.starts_with(part)))
        && !words.any(|word| TRAINING.contains(&word))
}

/// Returns the length in positions that the frequencies are scaled from.
const fn original_positions(config: &ModelConfig) -> Option<usize> {
    match config.rope.scaling {
        RopeScaling::Default | RopeScaling::Linear { .. } | RopeScaling::NtkAlpha { .. } => None,
        RopeScaling::Llama3 { original_positions, .. } | RopeScaling::Yarn { original_positions, .. } => {
            Some(original_positions)
        }
        RopeScaling::Dynamic { trained_positions: length, .. }
        | RopeScaling::QwenDynamicNtk { trained_length: length } => Some(length),
    }
}

impl Neutral {
    /// Returns whether the value changes nothing. Without a configuration, values that depend on it
    /// are not judged, because other problems are reported then.
    fn is(self, value: &Value, family: Family, config: Option<&ModelConfig>) -> bool {
        match self {
            Any => true,
            Null => false,
            OneOf(texts) => texts.iter().any(|text| same(value, text)),
            Every(text) => value.as_array().is_some_and(|list| list.iter().all(|value| same(value, text))),
            Number(_, of) => config.is_none_or(|config| {
                let wanted = of(config);
                value.as_f64().is_some_and(|number| (number - wanted).abs() <= 1e-6 * wanted.abs())
            }),
            Flag(of) => config.is_none_or(|config| value.as_bool() == Some(of(config))),
            Name(of) => config.and_then(of).is_none_or(|name| value.as_str() == Some(name)),
            Positions if family.table().layers.windows == Windows::ByFlag => true,
            Positions => {
                config.is_none_or(|config| value.as_f64().is_some_and(|n| n >= config.max_positions as f64))
            }
            Original => {
                config.and_then(original_positions).is_none_or(|length| value.as_u64() == Some(length as u64))
            }
        }
    }

    fn text(self, config: Option<&ModelConfig>) -> String {
        let of = |number: fn(&ModelConfig) -> f64| {
            config.map(|config| number(config).to_string()).unwrap_or_default()
        };
        match self {
            Any => "any value".to_owned(),
            Null => "no such key, or null".to_owned(),
            OneOf(texts) => texts.join(" or "),
            Every(text) => format!("a list of nothing but {text}"),
            Number(name, number) => format!("{}, {name}", of(number)),
            Flag(flag) => config.map(|config| flag(config).to_string()).unwrap_or_default(),
            Name(name) => config.and_then(name).map(|name| format!("\"{name}\"")).unwrap_or_default(),
            Positions => {
                format!("at least {}, the positions a sequence may have", of(|c| c.max_positions as f64))
            }
            Original => {
                config.and_then(original_positions).map(|length| length.to_string()).unwrap_or_default()
            }
        }
    }
}

/// Returns whether a value equals the JSON text. `1` and `1.0` are equal.
fn same(value: &Value, text: &str) -> bool {
    let wanted: Value = serde_json::from_str(text).unwrap_or_default();
    *value == wanted || (value.is_number() && value.as_f64() == wanted.as_f64())
}

#[cfg(test)]
mod tests;
