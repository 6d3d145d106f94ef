//! Families with mixtures of experts: descriptions of small files with the keys of published ones.

use super::{attention, parse, with};
use crate::config::{
    Activation, AttentionPart, ExpertGroups, FeedForwardPart, GroupedAttention, Layer, Mixture, ModelConfig,
    NormPlaces, QkNorm, Rope, RopeScaling, RotaryPairing, Router, Scores, SharedExpert,
};

/// Returns the mixture of a layer, or `None` for a dense one.
pub(super) fn mixture(config: &ModelConfig, layer: usize) -> Option<Mixture> {
    match config.layer(layer).feed_forward {
        FeedForwardPart::Mixture(mixture) => Some(mixture),
        FeedForwardPart::Dense { .. } => None,
    }
}

/// Returns which layers have a mixture.
fn layers_with_mixtures(config: &ModelConfig) -> Vec<bool> {
    (0..config.layers).map(|layer| mixture(config, layer).is_some()).collect()
}

/// Returns the router of a layer with a mixture.
pub(super) fn router(config: &ModelConfig, layer: usize) -> Router {
    mixture(config, layer).unwrap().router
}

/// Asserts that each change gives one problem that starts with the text.
pub(super) fn refused(text: &str, changes: &[(&str, &str)]) {
    for (change, expected) in changes {
        let problems = ModelConfig::from_json(&with(text, change)).unwrap_err();
        let message = problems.to_string();
        assert_eq!(problems.items().len(), 1, "{change}: {message}");
        assert!(message.starts_with(&format!("config.json: {expected}")), "{change}: {message}");
    }
}

/// The router of Qwen3.
pub(super) const SOFTMAX: Router = Router {
    scores: Scores::Softmax,
    has_logit_bias: false,
    has_choice_bias: false,
    groups: None,
    renormalisation: Some(0.0),
    factor: 1.0,
};

const DENSE: FeedForwardPart = FeedForwardPart::Dense { activation: Activation::Silu, has_bias: false };

const QWEN3_MOE: &str = r#"{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 203,
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3, "hidden_act": "silu",
    "rms_norm_eps": 1e-06, "max_position_embeddings": 512, "rope_theta": 1000000.0, "tie_word_embeddings": false,
    "use_cache": true, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0, "initializer_range": 0.02,
    "rope_scaling": null, "attention_bias": false, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "output_router_logits": false, "router_aux_loss_coef": 0.001, "sliding_window": null, "use_sliding_window": false,
    "max_window_layers": 3, "head_dim": 16, "intermediate_size": 112, "moe_intermediate_size": 24, "num_experts": 10,
    "num_experts_per_tok": 3, "norm_topk_prob": true, "torch_dtype": "bfloat16"}"#;

#[test]
fn qwen3_moe_has_a_renormalised_softmax() {
    let config = parse(QWEN3_MOE);
    let described = Mixture {
        experts: 10,
        chosen: 3,
        intermediate_size: 24,
        router: SOFTMAX,
        shared: None,
        activation: Activation::Silu,
        has_bias: false,
    };
    let attention = GroupedAttention { qk_norm: Some(QkNorm::PerHead), ..GroupedAttention::PLAIN };
    let layer = Layer {
        attention: AttentionPart::Grouped(attention),
        feed_forward: FeedForwardPart::Mixture(described),
        norms: NormPlaces::Before,
    };
    assert_eq!(config.pattern, [layer]);
    assert_eq!((config.head_dim, config.kv_heads, config.intermediate_size), (16, 3, 112));
    // The class of transformers does not renormalise by default, and heads fill the hidden size.
    for absent in [r#"{"norm_topk_prob": null}"#, r#"{"norm_topk_prob": false}"#] {
        assert_eq!(router(&parse(&with(QWEN3_MOE, absent)), 0), Router { renormalisation: None, ..SOFTMAX });
    }
    assert_eq!(parse(&with(QWEN3_MOE, r#"{"head_dim": null}"#)).head_dim, 8);
    assert_eq!(mixture(&parse(&with(QWEN3_MOE, r#"{"num_experts_per_tok": 2}"#)), 0).unwrap().chosen, 2);
    // The other name of the number of experts.
    let renamed = r#"{"num_experts": null, "num_local_experts": 10}"#;
    assert_eq!(parse(&with(QWEN3_MOE, renamed)), config);
    assert_eq!(parse(&with(QWEN3_MOE, r#"{"num_local_experts": 10}"#)), config);
}

#[test]
fn steps_and_lists_name_the_dense_layers_of_qwen() {
    let layers = |changes: &str| {
        let config = parse(&with(QWEN3_MOE, changes));
        (layers_with_mixtures(&config), config.pattern.len())
    };
    assert_eq!(layers(r#"{"decoder_sparse_step": 2}"#), (vec![false, true, false], 2));
    assert_eq!(layers(r#"{"mlp_only_layers": [0]}"#), (vec![false, true, true], 3));
    assert_eq!(layers(r#"{"mlp_only_layers": [1]}"#), (vec![true, false, true], 2));
    assert_eq!(layers(r#"{"mlp_only_layers": [0, 1, 2]}"#), (vec![false; 3], 1));
    assert_eq!(layers(r#"{"mlp_only_layers": [1], "decoder_sparse_step": 2}"#), (vec![false; 3], 1));
    assert_eq!(layers(r#"{"mlp_only_layers": null, "decoder_sparse_step": null}"#), (vec![true; 3], 1));
    assert_eq!(layers(r#"{"decoder_sparse_step": 4}"#), (vec![false; 3], 1));
    let config = parse(&with(QWEN3_MOE, r#"{"mlp_only_layers": [2]}"#));
    assert_eq!(config.layer(2).feed_forward, DENSE);
    assert_eq!(attention(&config, 2), attention(&config, 0));
}

#[test]
fn wrong_keys_of_a_mixture_are_refused_by_name() {
    refused(
        QWEN3_MOE,
        &[
            (r#"{"num_experts": null}"#, "num_experts: missing"),
            (r#"{"num_experts": 0}"#, "num_experts: wrong value"),
            (
                r#"{"num_local_experts": 12}"#,
                "num_local_experts: differs from num_experts: expected 10, found 12",
            ),
            (
                r#"{"num_experts_per_tok": 11}"#,
                "num_experts_per_tok: more experts than a token can choose from: expected at most 10, found 11",
            ),
            (r#"{"num_experts_per_tok": null}"#, "num_experts_per_tok: missing"),
            (r#"{"moe_intermediate_size": null}"#, "moe_intermediate_size: missing"),
            (r#"{"norm_topk_prob": 1}"#, "norm_topk_prob: wrong value"),
            (r#"{"decoder_sparse_step": 0}"#, "decoder_sparse_step: wrong value"),
            (r#"{"mlp_only_layers": [3]}"#, "mlp_only_layers: wrong value: expected a list of numbers"),
            (r#"{"mlp_only_layers": 1}"#, "mlp_only_layers: wrong value"),
            (
                r#"{"num_hidden_layers": 70000, "mlp_only_layers": [0]}"#,
                "num_hidden_layers: too many layers of different kinds: expected at most 65536, found 70000",
            ),
            (
                r#"{"scoring_func": "sigmoid"}"#,
                r#"scoring_func: contradicts the router of this architecture: expected "softmax", found "sigmoid""#,
            ),
            (
                r#"{"topk_method": "noaux_tc"}"#,
                r#"topk_method: contradicts the router of this architecture: expected "greedy", found "noaux_tc""#,
            ),
            (r#"{"n_group": 2}"#, "n_group: not known to files of this family: expected 1, found 2"),
            (r#"{"routed_scaling_factor": 2.5}"#, "routed_scaling_factor: not known"),
            (r#"{"n_shared_experts": 1}"#, "n_shared_experts: not known"),
            (r#"{"shared_expert_intermediate_size": 8}"#, "shared_expert_intermediate_size: not known"),
            (r#"{"first_k_dense_replace": 1}"#, "first_k_dense_replace: not known"),
            (r#"{"moe_layer_freq": 2}"#, "moe_layer_freq: not known"),
            (r#"{"use_routing_bias": true}"#, "use_routing_bias: contradicts the router"),
            (r#"{"use_qk_norm": false}"#, "use_qk_norm: contradicts the architecture's norms"),
            (r#"{"use_sliding_window": true}"#, "use_sliding_window: attention in a sliding window"),
            (r#"{"swiglu_limit": 7.0}"#, "swiglu_limit: unsupported activation"),
        ],
    );
    // Values that say what the architecture computes.
    let same = r#"{"scoring_func": "softmax", "topk_method": "greedy", "n_group": 1, "topk_group": 1,
        "routed_scaling_factor": 1.0, "n_shared_experts": 0, "moe_layer_freq": 1, "use_routing_bias": false,
        "use_qk_norm": true, "shared_expert_intermediate_size": 0}"#;
    assert_eq!(parse(&with(QWEN3_MOE, same)), parse(QWEN3_MOE));
}

const QWEN2_MOE: &str = r#"{"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "vocab_size": 229,
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "hidden_act": "silu",
    "rms_norm_eps": 1e-06, "max_position_embeddings": 512, "rope_theta": 1000000.0, "tie_word_embeddings": false,
    "use_cache": true, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0, "initializer_range": 0.02,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "output_router_logits": false, "router_aux_loss_coef": 0.001,
    "sliding_window": 32768, "use_sliding_window": false, "max_window_layers": 3, "intermediate_size": 80,
    "moe_intermediate_size": 20, "shared_expert_intermediate_size": 52, "num_experts": 12, "num_experts_per_tok": 4,
    "norm_topk_prob": false, "torch_dtype": "bfloat16"}"#;

#[test]
fn qwen2_moe_has_a_shared_expert_with_a_gate() {
    let config = parse(QWEN2_MOE);
    let described = Mixture {
        experts: 12,
        chosen: 4,
        intermediate_size: 20,
        router: Router { renormalisation: None, ..SOFTMAX },
        shared: Some(SharedExpert { intermediate_size: 52, has_gate: true }),
        activation: Activation::Silu,
        has_bias: false,
    };
    assert_eq!(mixture(&config, 2), Some(described));
    assert_eq!(config.pattern.len(), 1);
    assert_eq!(attention(&config, 0), GroupedAttention { qkv_bias: true, ..GroupedAttention::PLAIN });
    assert_eq!((config.head_dim, config.intermediate_size), (12, 80));
    assert_eq!(router(&parse(&with(QWEN2_MOE, r#"{"norm_topk_prob": true}"#)), 0), SOFTMAX);
    let without = parse(&with(QWEN2_MOE, r#"{"shared_expert_intermediate_size": 0}"#));
    assert_eq!(mixture(&without, 0).unwrap().shared, None);
    assert_eq!(parse(&with(QWEN2_MOE, r#"{"qkv_bias": true}"#)), config);
    refused(QWEN2_MOE, &[(r#"{"qkv_bias": false}"#, "qkv_bias: contradicts the architecture's biases")]);
    let mut absent: serde_json::Value = serde_json::from_str(QWEN2_MOE).unwrap();
    absent.as_object_mut().unwrap().remove("shared_expert_intermediate_size");
    let message = ModelConfig::from_json(&absent.to_string()).unwrap_err().to_string();
    assert!(message.starts_with("config.json: shared_expert_intermediate_size: missing"), "{message}");
}

const MIXTRAL: &str = r#"{"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 149,
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
    "rms_norm_eps": 1e-05, "max_position_embeddings": 512, "rope_theta": 1000000.0, "tie_word_embeddings": false,
    "use_cache": true, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0, "initializer_range": 0.02,
    "output_router_logits": false, "router_aux_loss_coef": 0.02, "sliding_window": null, "intermediate_size": 28,
    "num_local_experts": 8, "num_experts_per_tok": 2, "torch_dtype": "float32"}"#;

#[test]
fn mixtral_always_renormalises() {
    let config = parse(MIXTRAL);
    let described = Mixture {
        experts: 8,
        chosen: 2,
        intermediate_size: 28,
        router: SOFTMAX,
        shared: None,
        activation: Activation::Silu,
        has_bias: false,
    };
    let layer = Layer { feed_forward: FeedForwardPart::Mixture(described), ..Layer::PLAIN };
    assert_eq!(config.pattern, [layer]);
    assert_eq!(config.rope, Rope::plain(1e6));
    assert_eq!(parse(&with(MIXTRAL, r#"{"norm_topk_prob": true, "router_jitter_noise": 0.0}"#)), config);
    assert_eq!(parse(&with(MIXTRAL, r#"{"rope_theta": 2e4}"#)).rope.theta, 2e4);
    assert_eq!(parse(&with(MIXTRAL, r#"{"rope_theta": null}"#)).rope.theta, 1e6);
    assert_eq!(parse(&with(MIXTRAL, r#"{"sliding_window": 16}"#)).window(), Some(16));
    refused(
        MIXTRAL,
        &[
            (r#"{"norm_topk_prob": false}"#, "norm_topk_prob: contradicts the router of this architecture"),
            (r#"{"moe_intermediate_size": 8}"#, "moe_intermediate_size: unknown"),
            (r#"{"decoder_sparse_step": 2}"#, "decoder_sparse_step: not known"),
            (r#"{"mlp_only_layers": [1]}"#, "mlp_only_layers: not known"),
            (r#"{"intermediate_size": null}"#, "intermediate_size: missing"),
        ],
    );
}

const MINIMAX_M2: &str = r#"{"architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "vocab_size": 193,
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
    "rms_norm_eps": 1e-06, "max_position_embeddings": 512, "rope_theta": 5000000.0, "tie_word_embeddings": false,
    "use_cache": true, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0, "initializer_range": 0.02,
    "scoring_func": "sigmoid", "use_routing_bias": true, "use_qk_norm": true, "qk_norm_type": "per_layer",
    "output_router_logits": false, "head_dim": 12, "rotary_dim": 6, "intermediate_size": 22, "num_local_experts": 10,
    "num_experts_per_tok": 3, "torch_dtype": "bfloat16"}"#;

#[test]
fn minimax_m2_rotates_a_number_of_dims() {
    let config = parse(MINIMAX_M2);
    let described = Mixture {
        experts: 10,
        chosen: 3,
        intermediate_size: 22,
        router: Router { scores: Scores::Sigmoid, has_choice_bias: true, ..SOFTMAX },
        shared: None,
        activation: Activation::Silu,
        has_bias: false,
    };
    let attention = GroupedAttention { qk_norm: Some(QkNorm::AllHeads), ..GroupedAttention::PLAIN };
    let layer = Layer {
        attention: AttentionPart::Grouped(attention),
        feed_forward: FeedForwardPart::Mixture(described),
        norms: NormPlaces::Before,
    };
    assert_eq!(config.pattern, [layer]);
    assert_eq!(config.rope, Rope { part: 0.5, ..Rope::plain(5e6) });
    assert_eq!(config.rope.rotated_dims(config.head_dim), 6);
    assert_eq!(parse(&with(MINIMAX_M2, r#"{"rotary_dim": 12}"#)).rope, Rope::plain(5e6));
    let four = parse(&with(MINIMAX_M2, r#"{"rotary_dim": 4}"#));
    assert_eq!(four.rope.rotated_dims(four.head_dim), 4);
    // transformers 5 writes the part in addition.
    let newer = r#"{"rope_theta": null, "partial_rotary_factor": 0.5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000000, "partial_rotary_factor": 0.5}}"#;
    assert_eq!(parse(&with(MINIMAX_M2, newer)), config);
    assert_eq!(parse(&with(MINIMAX_M2, r#"{"rotary_dim": null, "partial_rotary_factor": 0.5}"#)), config);
    // Other keys of the published file.
    let published = r#"{"attn_type_list": [1, 1, 1], "mtp_transformer_layers": 1, "num_mtp_modules": 3,
        "shared_intermediate_size": 0, "use_mtp": true, "shared_moe_mode": "sigmoid", "layernorm_mlp_beta": 1.0,
        "layernorm_full_attention_beta": 1.0, "layernorm_linear_attention_beta": 1.0, "router_jitter_noise": 0.0,
        "auto_map": {"AutoConfig": "configuration_minimax_m2.MiniMaxM2Config",
            "AutoModelForCausalLM": "modeling_minimax_m2.MiniMaxM2ForCausalLM"}}"#;
    assert_eq!(parse(&with(MINIMAX_M2, published)), config);
    refused(
        MINIMAX_M2,
        &[
            (r#"{"rotary_dim": null}"#, "rotary_dim: missing"),
            (r#"{"rotary_dim": 5}"#, "rotary_dim: the rotated dims of a head cannot be paired"),
            (r#"{"rotary_dim": 14}"#, "rotary_dim: more rotated dims than a head has"),
            (
                r#"{"partial_rotary_factor": 1.0}"#,
                "partial_rotary_factor: differs from rotary_dim: expected 0.5, found 1",
            ),
            (r#"{"use_routing_bias": false}"#, "use_routing_bias: contradicts the router"),
            (r#"{"scoring_func": "softmax"}"#, "scoring_func: contradicts the router"),
            (r#"{"use_qk_norm": false}"#, "use_qk_norm: contradicts the architecture's norms"),
            (r#"{"qk_norm_type": "per_head"}"#, "qk_norm_type: contradicts the architecture's norms"),
            (r#"{"attn_type_list": [1, 0, 1]}"#, "attn_type_list: linear attention is not supported"),
            (r#"{"shared_intermediate_size": 64}"#, "shared_intermediate_size: not known"),
            (r#"{"layernorm_mlp_beta": 2.0}"#, "layernorm_mlp_beta: a scale of the residual stream"),
            (r#"{"norm_topk_prob": false}"#, "norm_topk_prob: contradicts the router"),
            (
                r#"{"auto_map": {"AutoModelForCausalLM": "modeling_other.MiniMaxM2ForCausalLM"}}"#,
                "auto_map.AutoModelForCausalLM: the model has a program of its own",
            ),
        ],
    );
}

const GLM4_MOE: &str = r#"{"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "vocab_size": 239,
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
    "rms_norm_eps": 1e-05, "max_position_embeddings": 512, "rope_theta": 1000000.0, "tie_word_embeddings": false,
    "use_cache": true, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0, "initializer_range": 0.02,
    "rope_scaling": null, "attention_bias": true, "partial_rotary_factor": 0.5, "norm_topk_prob": true, "head_dim": 16,
    "intermediate_size": 84, "moe_intermediate_size": 22, "n_routed_experts": 10, "num_experts_per_tok": 3, "n_group": 1,
    "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5,
    "use_qk_norm": true, "num_nextn_predict_layers": 0, "torch_dtype": "bfloat16"}"#;

#[test]
fn glm4_moe_has_a_dense_layer_first() {
    let config = parse(GLM4_MOE);
    let described = Mixture {
        experts: 10,
        chosen: 3,
        intermediate_size: 22,
        router: Router {
            scores: Scores::Sigmoid,
            has_logit_bias: false,
            has_choice_bias: true,
            groups: None,
            renormalisation: Some(1e-20),
            factor: 1.5,
        },
        shared: Some(SharedExpert { intermediate_size: 22, has_gate: false }),
        activation: Activation::Silu,
        has_bias: false,
    };
    let attention =
        GroupedAttention { qkv_bias: true, qk_norm: Some(QkNorm::PerHead), ..GroupedAttention::PLAIN };
    let dense = Layer {
        attention: AttentionPart::Grouped(attention),
        feed_forward: DENSE,
        norms: NormPlaces::Before,
    };
    let layer = Layer { feed_forward: FeedForwardPart::Mixture(described), ..dense };
    assert_eq!(config.pattern, [dense, layer, layer]);
    assert_eq!(config.intermediate_size, 84);
    assert_eq!(config.rope, Rope { part: 0.5, ..Rope::plain(1e6) });
    assert_eq!(config.rope.pairing, RotaryPairing::Halves);
    let other = |changes: &str| parse(&with(GLM4_MOE, changes));
    // The small model has no norms of heads.
    for without in [r#"{"use_qk_norm": false}"#, r#"{"use_qk_norm": null}"#] {
        assert_eq!(super::attention(&other(without), 1).qk_norm, None);
    }
    assert_eq!(other(r#"{"norm_topk_prob": null}"#), config);
    assert_eq!(other(r#"{"num_nextn_predict_layers": 1}"#).prediction_layers, 1);
    assert_eq!(router(&other(r#"{"norm_topk_prob": false}"#), 1).renormalisation, None);
    assert_eq!(
        other(r#"{"scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1}"#),
        config
    );
    assert_eq!(layers_with_mixtures(&other(r#"{"first_k_dense_replace": 0}"#)), [true; 3]);
    assert_eq!(layers_with_mixtures(&other(r#"{"first_k_dense_replace": 2}"#)), [false, false, true]);
    assert_eq!(layers_with_mixtures(&other(r#"{"first_k_dense_replace": 9}"#)), [false; 3]);
    let shared = |changes: &str| mixture(&other(changes), 1).unwrap().shared;
    assert_eq!(shared(r#"{"n_shared_experts": 2}"#).unwrap().intermediate_size, 44);
    assert_eq!(shared(r#"{"n_shared_experts": null}"#), None);
    assert_eq!(other(r#"{"partial_rotary_factor": 1.0}"#).rope, Rope::plain(1e6));
}

#[test]
fn groups_of_experts_are_checked() {
    let groups = |changes: &str| router(&parse(&with(GLM4_MOE, changes)), 2).groups;
    assert_eq!(
        groups(r#"{"n_group": 5, "topk_group": 2}"#),
        Some(ExpertGroups { count: 5, kept: 2, summed: 2 })
    );
    // Groups that a token uses all of are no groups.
    assert_eq!(groups(r#"{"n_group": 5, "topk_group": 5}"#), None);
    refused(
        GLM4_MOE,
        &[
            (r#"{"n_group": null}"#, "n_group: missing"),
            (
                r#"{"n_group": 3}"#,
                "n_group: does not divide the experts into groups: expected a divisor of 10",
            ),
            (r#"{"n_group": 10, "topk_group": 2}"#, "n_group: does not divide the experts into groups"),
            (r#"{"topk_group": 2}"#, "topk_group: more groups than n_group: expected at most 1, found 2"),
            (
                r#"{"n_group": 5, "topk_group": 1}"#,
                "num_experts_per_tok: more experts than a token can choose from: expected at most 2, found 3",
            ),
            (r#"{"routed_scaling_factor": null}"#, "routed_scaling_factor: missing"),
            (r#"{"first_k_dense_replace": null}"#, "first_k_dense_replace: missing"),
            (r#"{"scoring_func": "softmax"}"#, "scoring_func: contradicts the router"),
            (r#"{"topk_method": "greedy"}"#, "topk_method: contradicts the router"),
            (r#"{"moe_layer_freq": 2}"#, "moe_layer_freq: not known"),
            (r#"{"index_topk": 2048}"#, "index_topk: attention to tokens that an indexer chooses"),
        ],
    );
}

const GPT_OSS: &str = r#"{"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": 173,
    "hidden_size": 40, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
    "rms_norm_eps": 1e-05, "max_position_embeddings": 512, "rope_theta": 2000.0, "tie_word_embeddings": false,
    "use_cache": true, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0, "initializer_range": 0.02,
    "attention_bias": true, "output_router_logits": false, "router_aux_loss_coef": 0.9, "initial_context_length": 16,
    "experts_per_token": 2, "head_dim": 12, "intermediate_size": 20, "num_local_experts": 6, "num_experts_per_tok": 2,
    "sliding_window": 8, "swiglu_limit": 2.0,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "beta_fast": 8.0,
        "beta_slow": 1, "truncate": false, "rope_type": "yarn"}, "torch_dtype": "bfloat16"}"#;

#[test]
fn gpt_oss_has_sinks_windows_and_clipped_gates() {
    let config = parse(GPT_OSS);
    let described = Mixture {
        experts: 6,
        chosen: 2,
        intermediate_size: 20,
        router: Router {
            scores: Scores::SoftmaxOfChosen,
            has_logit_bias: true,
            has_choice_bias: false,
            groups: None,
            renormalisation: None,
            factor: 1.0,
        },
        shared: None,
        activation: Activation::Clipped { limit: 2.0, slope: 1.702 },
        has_bias: true,
    };
    let full =
        GroupedAttention { qkv_bias: true, output_bias: true, has_sinks: true, ..GroupedAttention::PLAIN };
    let layer = |attention| Layer {
        attention: AttentionPart::Grouped(attention),
        feed_forward: FeedForwardPart::Mixture(described),
        norms: NormPlaces::Before,
    };
    let windowed = GroupedAttention { window: Some(8), ..full };
    assert_eq!(config.pattern, [layer(windowed), layer(full)]);
    let scaling = RopeScaling::Yarn {
        factor: 4.0,
        original_positions: 128,
        attention_factor: 0.1 * 4f64.ln() + 1.0,
        beta_fast: 8.0,
        beta_slow: 1.0,
        truncate: false,
    };
    assert_eq!(config.rope, Rope { scaling, ..Rope::plain(2000.0) });
    assert_eq!((config.head_dim, config.max_positions), (12, 512));
    let other = |changes: &str| parse(&with(GPT_OSS, changes));
    // The default of the class has windows in the same layers.
    assert_eq!(other(r#"{"layer_types": null}"#), config);
    let swapped =
        r#"{"layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]}"#;
    assert_eq!(other(swapped).pattern, [layer(full), layer(windowed)]);
    assert_eq!(other(r#"{"sliding_window": null}"#).window(), None);
    assert_eq!(other(r#"{"experts_per_token": null, "swiglu_alpha": 1.702}"#), config);
    let clipped = |changes: &str| mixture(&other(changes), 0).unwrap().activation;
    assert_eq!(clipped(r#"{"swiglu_limit": 7.0}"#), Activation::Clipped { limit: 7.0, slope: 1.702 });
    assert_eq!(clipped(r#"{"swiglu_alpha": 1.5}"#), Activation::Clipped { limit: 2.0, slope: 1.5 });
    let rounded = with(GPT_OSS, "{}").replace(r#""truncate":false"#, r#""truncate":true"#);
    assert_ne!(parse(&rounded).rope, config.rope);
    let unscaled =
        r#"{"rope_scaling": null, "rope_parameters": {"rope_type": "default", "rope_theta": 2000.0}}"#;
    assert_eq!(other(unscaled).rope, Rope::plain(2000.0));
    refused(
        GPT_OSS,
        &[
            (r#"{"swiglu_limit": null}"#, "swiglu_limit: missing"),
            (r#"{"swiglu_alpha": 0}"#, "swiglu_alpha: wrong value"),
            (r#"{"attention_bias": false}"#, "attention_bias: contradicts the architecture's biases"),
            (r#"{"mlp_bias": false}"#, "mlp_bias: contradicts the architecture's biases"),
            (
                r#"{"experts_per_token": 3}"#,
                "experts_per_token: differs from num_experts_per_tok: expected 2, found 3",
            ),
            (r#"{"rope_scaling": null}"#, "rope_scaling: missing: expected the scaling"),
            (r#"{"norm_topk_prob": true}"#, "norm_topk_prob: contradicts the router"),
            (r#"{"hidden_act": "gelu"}"#, "hidden_act: unsupported activation"),
            (
                r#"{"quantization_config": {"quant_method": "mxfp8"}}"#,
                "quantization_config.quant_method: unknown method",
            ),
        ],
    );
}

#[test]
fn experts_of_gpt_oss_are_in_one_tensor() {
    let tensors = parse(GPT_OSS).layer_tensors(0).into_iter();
    let of_mixture = tensors.filter(|tensor| tensor.name.contains("mlp") || tensor.name.contains("sinks"));
    let found: Vec<(String, Vec<usize>)> = of_mixture.map(|tensor| (tensor.name, tensor.shape)).collect();
    let expected = [
        ("self_attn.sinks", vec![6]),
        ("mlp.router.weight", vec![6, 40]),
        ("mlp.router.bias", vec![6]),
        ("mlp.experts.gate_up_proj", vec![6, 40, 40]),
        ("mlp.experts.gate_up_proj_bias", vec![6, 40]),
        ("mlp.experts.down_proj", vec![6, 20, 40]),
        ("mlp.experts.down_proj_bias", vec![6, 40]),
    ];
    assert_eq!(found, expected.map(|(name, shape)| (format!("model.layers.0.{name}"), shape)));
}

#[test]
fn a_model_without_mixtures_ignores_no_key_of_experts() {
    let dense = with(
        QWEN3_MOE,
        r#"{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_experts": null,
            "moe_intermediate_size": null}"#,
    );
    assert_eq!(parse(&dense).pattern.len(), 1);
    refused(
        &dense,
        &[
            (r#"{"num_experts": 10}"#, "num_experts: not known to files of this family: expected 0"),
            (r#"{"decoder_sparse_step": 2}"#, "decoder_sparse_step: not known"),
            (r#"{"moe_intermediate_size": 24}"#, "moe_intermediate_size: unknown"),
        ],
    );
}

#[test]
fn names_of_routers_and_experts() {
    let names = |text: &str| -> Vec<String> {
        let tensors = parse(text).layer_tensors(1).into_iter();
        let names = tensors.map(|tensor| tensor.name.strip_prefix("model.layers.1.").unwrap().to_owned());
        let is_attention = |name: &str| name.starts_with("self_attn") || name.contains("layernorm");
        names.filter(|name| !is_attention(name)).collect()
    };
    let experts = |count: usize, stack: &str, projections: [&str; 3]| -> Vec<String> {
        let of = |expert| projections.map(|name| format!("{stack}.{expert}.{name}.weight"));
        (0..count).flat_map(of).collect()
    };
    const PROJECTIONS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];
    for (text, router, experts, shared) in [
        (QWEN3_MOE, &["mlp.gate.weight"][..], experts(10, "mlp.experts", PROJECTIONS), &[][..]),
        (
            QWEN2_MOE,
            &["mlp.gate.weight"],
            experts(12, "mlp.experts", PROJECTIONS),
            &[
                "mlp.shared_expert.gate_proj.weight",
                "mlp.shared_expert.up_proj.weight",
                "mlp.shared_expert.down_proj.weight",
                "mlp.shared_expert_gate.weight",
            ],
        ),
        (
            MIXTRAL,
            &["block_sparse_moe.gate.weight"],
            experts(8, "block_sparse_moe.experts", ["w1", "w3", "w2"]),
            &[],
        ),
        (
            MINIMAX_M2,
            &["block_sparse_moe.gate.weight", "block_sparse_moe.e_score_correction_bias"],
            experts(10, "block_sparse_moe.experts", ["w1", "w3", "w2"]),
            &[],
        ),
        (
            GLM4_MOE,
            &["mlp.gate.weight", "mlp.gate.e_score_correction_bias"],
            experts(10, "mlp.experts", PROJECTIONS),
            &[
                "mlp.shared_experts.gate_proj.weight",
                "mlp.shared_experts.up_proj.weight",
                "mlp.shared_experts.down_proj.weight",
            ],
        ),
    ] {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected: Vec<String> = owned(router).into_iter().chain(experts).chain(owned(shared)).collect();
        assert_eq!(names(text), expected);
    }
}
