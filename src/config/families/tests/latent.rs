//! Families with latent attention.

use super::mixtures::{mixture, refused, router};
use super::{parse, with};
use crate::config::{
    Activation, AttentionPart, ExpertGroups, Family, FeedForwardPart, LatentAttention, Layer, Mixture,
    ModelConfig, NormPlaces, Rope, RopeScaling, Rotary, RotaryPairing, Router, Scores, SharedExpert,
};

const DEEPSEEK_V2: &str = r#"{"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
    "vocab_size": 187, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
    "hidden_act": "silu", "rms_norm_eps": 1e-06, "max_position_embeddings": 512, "rope_theta": 10000.0,
    "tie_word_embeddings": false, "use_cache": true, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0,
    "initializer_range": 0.02, "attention_bias": false, "aux_loss_alpha": 0.001, "seq_aux": true,
    "scoring_func": "softmax", "moe_layer_freq": 1, "norm_topk_prob": false, "ep_size": 1, "pretraining_tp": 1,
    "intermediate_size": 92, "moe_intermediate_size": 18, "q_lora_rank": null, "kv_lora_rank": 24,
    "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "n_routed_experts": 12, "n_group": 3,
    "topk_group": 2, "topk_method": "group_limited_greedy", "num_experts_per_tok": 3, "n_shared_experts": 2,
    "first_k_dense_replace": 1, "routed_scaling_factor": 4.0,
    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32,
        "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707}, "torch_dtype": "bfloat16"}"#;

const DEEPSEEK_V3: &str = r#"{"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "vocab_size": 211, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 6,
    "hidden_act": "silu", "rms_norm_eps": 1e-06, "max_position_embeddings": 512, "rope_theta": 10000.0,
    "tie_word_embeddings": false, "use_cache": true, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0,
    "initializer_range": 0.02, "attention_bias": false, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "moe_layer_freq": 1, "norm_topk_prob": true, "ep_size": 1, "intermediate_size": 100, "moe_intermediate_size": 20,
    "q_lora_rank": 28, "kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 12,
    "n_routed_experts": 12, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 4, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1,
    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32,
        "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}, "torch_dtype": "bfloat16"}"#;

const DENSE: FeedForwardPart = FeedForwardPart::Dense { activation: Activation::Silu, has_bias: false };

/// Returns the growth that `YaRN` gives to the scores of a context four times as long.
fn growth(scale: f64) -> f64 {
    0.1 * scale * 4f64.ln() + 1.0
}

fn latent(config: &ModelConfig) -> LatentAttention {
    *config.layer(config.layers - 1).latent().unwrap()
}

/// Returns the pattern of three layers with this attention, of which the first one is dense.
fn pattern(attention: LatentAttention, mixture: Mixture) -> Vec<Layer> {
    let attention = AttentionPart::Latent(attention);
    let dense = Layer { attention, feed_forward: DENSE, norms: NormPlaces::Before };
    let layer = Layer { feed_forward: FeedForwardPart::Mixture(mixture), ..dense };
    vec![dense, layer, layer]
}

/// Asserts the rotary embedding: eight rotated dims, with `YaRN`.
fn assert_rope(config: &ModelConfig, theta: f64, factor: f64) {
    let scaling = RopeScaling::Yarn {
        factor: 4.0,
        original_positions: 16,
        attention_factor: factor,
        beta_fast: 32.0,
        beta_slow: 1.0,
        truncate: true,
    };
    assert_eq!(config.rope.rotated_dims(config.head_dim), 8);
    let part = config.rope.part;
    let expected = Rope { scaling, part, pairing: RotaryPairing::Neighbours, ..Rope::plain(theta) };
    assert_eq!(config.rope, expected);
}

#[test]
fn deepseek_v2_chooses_groups_by_their_largest_scores() {
    let config = parse(DEEPSEEK_V2);
    let attention = LatentAttention {
        width: 24,
        query_width: None,
        plain_dims: 12,
        rotary_dims: 8,
        value_dims: 10,
        scale: growth(0.707).powi(2) / 20f64.sqrt(),
        norm_epsilon: 1e-6,
        rotary: Rotary::Global,
    };
    let described = Mixture {
        experts: 12,
        chosen: 3,
        intermediate_size: 18,
        router: Router {
            scores: Scores::Softmax,
            has_logit_bias: false,
            has_choice_bias: false,
            groups: Some(ExpertGroups { count: 3, kept: 2, summed: 1 }),
            renormalisation: None,
            factor: 4.0,
        },
        shared: Some(SharedExpert { intermediate_size: 36, has_gate: false }),
        activation: Activation::Silu,
        has_bias: false,
    };
    assert_eq!(config.pattern, pattern(attention, described));
    assert_rope(&config, 1e4, 1.0);
    assert_eq!((config.heads, config.kv_heads, config.head_dim), (4, 1, 32));
    assert_eq!((config.intermediate_size, config.max_positions), (92, 512));
    let other = |changes: &str| parse(&with(DEEPSEEK_V2, changes));
    // `greedy` is the default of the class, and it ignores groups.
    for greedy in [r#"{"topk_method": "greedy"}"#, r#"{"topk_method": null}"#] {
        assert_eq!(router(&other(greedy), 1).groups, None);
    }
    assert_eq!(
        router(&other(r#"{"topk_method": "greedy", "n_group": null, "topk_group": null}"#), 1).groups,
        None
    );
    assert_eq!(router(&other(r#"{"routed_scaling_factor": 1.0}"#), 1).factor, 1.0);
    assert_eq!(latent(&other(r#"{"q_lora_rank": 16}"#)).query_width, Some(16));
    refused(
        DEEPSEEK_V2,
        &[
            (
                r#"{"norm_topk_prob": true}"#,
                "norm_topk_prob: contradicts the router of this architecture: expected false, found true",
            ),
            (r#"{"scoring_func": "sigmoid"}"#, "scoring_func: contradicts the router"),
            (
                r#"{"topk_method": "noaux_tc"}"#,
                r#"topk_method: contradicts the router of this architecture: expected "greedy" or"#,
            ),
            (r#"{"moe_layer_freq": 2}"#, "moe_layer_freq: not known"),
            (r#"{"rope_interleave": false}"#, "rope_interleave: contradicts the dims"),
        ],
    );
}

#[test]
fn deepseek_v3_chooses_groups_by_biased_scores() {
    let config = parse(DEEPSEEK_V3);
    let attention = LatentAttention {
        width: 20,
        query_width: Some(28),
        plain_dims: 12,
        rotary_dims: 8,
        value_dims: 12,
        scale: growth(1.0).powi(2) / 20f64.sqrt(),
        norm_epsilon: 1e-6,
        rotary: Rotary::Global,
    };
    let described = Mixture {
        experts: 12,
        chosen: 4,
        intermediate_size: 20,
        router: Router {
            scores: Scores::Sigmoid,
            has_logit_bias: false,
            has_choice_bias: true,
            groups: Some(ExpertGroups { count: 4, kept: 2, summed: 2 }),
            renormalisation: Some(1e-20),
            factor: 2.5,
        },
        shared: Some(SharedExpert { intermediate_size: 20, has_gate: false }),
        activation: Activation::Silu,
        has_bias: false,
    };
    assert_eq!(config.pattern, pattern(attention, described));
    assert_rope(&config, 1e4, 1.0);
    assert_eq!((config.heads, config.kv_heads, config.head_dim), (6, 1, 28));
    let other = |changes: &str| parse(&with(DEEPSEEK_V3, changes));
    assert_eq!(router(&other(r#"{"norm_topk_prob": false}"#), 1).renormalisation, None);
    assert_eq!(router(&other(r#"{"n_group": 1, "topk_group": 1}"#), 1).groups, None);
    assert_eq!(
        mixture(&other(r#"{"n_shared_experts": 3}"#), 2).unwrap().shared.unwrap().intermediate_size,
        60
    );
    // The epsilon of the model is not that of the latents.
    assert_eq!(latent(&other(r#"{"rms_norm_eps": 1e-5}"#)).norm_epsilon, 1e-6);
    assert_eq!(latent(&other(r#"{"q_lora_rank": null}"#)).query_width, None);
    // Every number of key heads means the same, and transformers writes these dims.
    assert_eq!(other(r#"{"num_key_value_heads": 1, "head_dim": 8, "qk_head_dim": 20}"#), config);
    assert_eq!(other(r#"{"rope_interleave": true}"#), config);
    assert_eq!(other(r#"{"rope_interleave": false}"#).rope.pairing, RotaryPairing::Halves);
    let published = r#"{"auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config",
        "AutoModel": "modeling_deepseek.DeepseekV3Model",
        "AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"}}"#;
    assert_eq!(other(published), config);
    refused(
        DEEPSEEK_V3,
        &[
            (r#"{"kv_lora_rank": null}"#, "kv_lora_rank: missing"),
            (r#"{"q_lora_rank": 0}"#, "q_lora_rank: wrong value"),
            (r#"{"qk_nope_head_dim": null}"#, "qk_nope_head_dim: missing"),
            (r#"{"qk_rope_head_dim": null}"#, "qk_rope_head_dim: missing"),
            (r#"{"qk_rope_head_dim": 7}"#, "qk_rope_head_dim: the rotated dims of a head cannot be paired"),
            (r#"{"v_head_dim": null}"#, "v_head_dim: missing"),
            (r#"{"head_dim": 12}"#, "head_dim: contradicts the dims of latent attention: expected 8 or 20"),
            (r#"{"attention_bias": true}"#, "attention_bias: contradicts the architecture's biases"),
            (r#"{"rope_interleave": 1}"#, "rope_interleave: wrong value"),
            (r#"{"scoring_func": "softmax"}"#, "scoring_func: contradicts the router"),
            (r#"{"topk_method": "greedy"}"#, "topk_method: contradicts the router"),
            (r#"{"num_nextn_predict_layers": -1}"#, "num_nextn_predict_layers: wrong value"),
            (r#"{"index_topk": 2048}"#, "index_topk: attention to tokens that an indexer chooses"),
            (
                r#"{"auto_map": {"AutoModel": "modeling_deepseek.DeepseekV3Model",
                    "AutoModelForCausalLM": "modeling_other.DeepseekV3ForCausalLM"}}"#,
                "auto_map.AutoModelForCausalLM: the model has a program of its own",
            ),
        ],
    );
    let mut absent: serde_json::Value = serde_json::from_str(DEEPSEEK_V3).unwrap();
    absent.as_object_mut().unwrap().remove("q_lora_rank");
    let message = ModelConfig::from_json(&absent.to_string()).unwrap_err().to_string();
    assert!(message.starts_with("config.json: q_lora_rank: missing"), "{message}");
}

#[test]
fn yarn_scales_the_scores_of_latent_attention() {
    let scaled = |keys: &str| {
        let scaling =
            format!(r#"{{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16{keys}}}"#);
        let config = parse(&with(DEEPSEEK_V3, &format!(r#"{{"rope_scaling": {scaling}}}"#)));
        let RopeScaling::Yarn { attention_factor, .. } = config.rope.scaling else { panic!("{keys}") };
        (attention_factor, latent(&config).scale * 20f64.sqrt())
    };
    let close = |found: (f64, f64), rotary: f64, scores: f64| {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(found.0, rotary) && near(found.1, scores), "{found:?} is not {rotary} and {scores}");
    };
    close(scaled(r#", "mscale": 1.0, "mscale_all_dim": 1.0"#), 1.0, growth(1.0).powi(2));
    // Two numbers that differ scale both.
    close(
        scaled(r#", "mscale": 1.0, "mscale_all_dim": 0.5"#),
        growth(1.0) / growth(0.5),
        growth(0.5).powi(2),
    );
    close(scaled(r#", "mscale": 0.707, "mscale_all_dim": 0"#), growth(1.0), 1.0);
    close(scaled(""), growth(1.0), 1.0);
    let unscaled = parse(&with(DEEPSEEK_V3, r#"{"rope_scaling": null}"#));
    assert_eq!(unscaled.rope.scaling, RopeScaling::Default);
    assert!((latent(&unscaled).scale - 20f64.sqrt().recip()).abs() < 1e-15);
    // The keys scale no scores of grouped attention.
    let grouped = r#"{"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e6, "rope_type": "yarn", "factor": 2.0,
        "original_max_position_embeddings": 256, "mscale": 1.0, "mscale_all_dim": 1.0}}"#;
    assert_eq!(super::attention(&parse(&with(super::MISTRAL, grouped)), 0).query_scalar, None);
}

#[test]
fn kimi_k2_is_deepseek_v3_without_groups() {
    let kimi = with(
        DEEPSEEK_V3,
        r#"{"model_type": "kimi_k2", "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827,
        "rope_theta": 50000.0, "rms_norm_eps": 1e-5, "num_nextn_predict_layers": 0,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 1.0,
            "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}}"#,
    );
    let config = parse(&kimi);
    assert_eq!(Some(config.family), Family::named("kimi_k2"));
    assert_eq!(config.family.model_type(), "deepseek_v3");
    let routed = router(&config, 1);
    assert_eq!((routed.groups, routed.factor, config.rope.theta), (None, 2.827, 5e4));
    refused(&kimi, &[(r#"{"model_type": "deepseek_v2"}"#, "model_type: contradicts the architecture")]);
}

#[test]
fn tensors_of_prediction_layers_are_known() {
    let config = parse(DEEPSEEK_V3);
    assert_eq!(config.prediction_layers, 1);
    assert!(config.is_prediction_tensor("model.layers.3.eh_proj.weight"));
    assert!(config.is_prediction_tensor("model.layers.3.mlp.experts.11.up_proj.weight"));
    for other in [
        "model.layers.2.input_layernorm.weight",
        "model.layers.4.eh_proj.weight",
        "model.layers.30.eh_proj.weight",
        "model.layers.x.eh_proj.weight",
        "model.layers.3",
        "model.norm.weight",
        "layers.3.eh_proj.weight",
    ] {
        assert!(!config.is_prediction_tensor(other), "{other}");
    }
    let none = parse(&with(DEEPSEEK_V3, r#"{"num_nextn_predict_layers": 0}"#));
    assert_eq!(none.prediction_layers, 0);
    assert_eq!(parse(&with(DEEPSEEK_V3, r#"{"num_nextn_predict_layers": null}"#)), none);
    assert!(!none.is_prediction_tensor("model.layers.3.eh_proj.weight"));
}

#[test]
fn names_of_projections_and_norms() {
    let names = |text: &str| -> Vec<(String, Vec<usize>)> {
        let tensors = parse(text).layer_tensors(0).into_iter();
        let named = tensors.filter_map(|tensor| {
            let name = tensor.name.strip_prefix("model.layers.0.self_attn.")?.to_owned();
            Some((name, tensor.shape))
        });
        named.collect()
    };
    let owned = |names: &[(&str, [usize; 2])]| -> Vec<(String, Vec<usize>)> {
        let shape = |shape: &[usize; 2]| shape.iter().copied().filter(|size| *size > 0).collect();
        names.iter().map(|(name, sizes)| ((*name).to_owned(), shape(sizes))).collect()
    };
    let expected = owned(&[
        ("q_a_proj.weight", [28, 48]),
        ("q_a_layernorm.weight", [28, 0]),
        ("q_b_proj.weight", [120, 28]),
        ("kv_a_proj_with_mqa.weight", [28, 48]),
        ("kv_a_layernorm.weight", [20, 0]),
        ("kv_b_proj.weight", [144, 20]),
        ("o_proj.weight", [48, 72]),
    ]);
    assert_eq!(names(DEEPSEEK_V3), expected);
    let expected = owned(&[
        ("q_proj.weight", [80, 48]),
        ("kv_a_proj_with_mqa.weight", [32, 48]),
        ("kv_a_layernorm.weight", [24, 0]),
        ("kv_b_proj.weight", [88, 24]),
        ("o_proj.weight", [48, 40]),
    ]);
    assert_eq!(names(DEEPSEEK_V2), expected);
}

#[test]
fn architectures_with_an_indexer_are_refused_by_name() {
    for (architecture, model_type) in [
        ("DeepseekV32ForCausalLM", "deepseek_v32"),
        ("DeepseekV4ForCausalLM", "deepseek_v4"),
        ("GlmMoeDsaForCausalLM", "glm_moe_dsa"),
    ] {
        for changes in [
            format!(r#"{{"architectures": ["{architecture}"], "model_type": "{model_type}"}}"#),
            format!(r#"{{"architectures": null, "model_type": "{model_type}"}}"#),
        ] {
            let message = ModelConfig::from_json(&with(DEEPSEEK_V3, &changes)).unwrap_err().to_string();
            assert!(message.contains(": unsupported architecture: expected one of QWen"), "{message}");
            assert!(message.ends_with("and this runtime has no indexer"), "{message}");
        }
    }
}
