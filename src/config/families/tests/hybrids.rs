//! Families with the gated delta rule: the fixtures of both layouts, and small files.

use super::mixtures::{mixture, refused, router};
use super::{attention, parse, with};
use crate::base::DType;
use crate::base::FLOATS;
use crate::config::{
    Activation, AttentionPart, FeedForwardPart, GatedDelta, GroupedAttention, Layer, Mixture, ModelConfig,
    NormPlaces, NormWeight, QkNorm, Rope, Router, Scores, SharedExpert,
};
use crate::weights::{Checkpoint, ExpectedTensor};

const QWEN3_NEXT: &str = include_str!("../../../../tests/fixtures/qwen3-next/config.json");
const QWEN3_5: &str = include_str!("../../../../tests/fixtures/qwen3_5-dense/config.json");

/// A file of Qwen3.5 with experts, saved without images.
const QWEN3_5_MOE: &str = r#"{"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text",
    "vocab_size": 151, "hidden_size": 44, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2,
    "head_dim": 24, "hidden_act": "silu", "rms_norm_eps": 1e-06, "max_position_embeddings": 512,
    "tie_word_embeddings": false, "attention_bias": false, "moe_intermediate_size": 18,
    "shared_expert_intermediate_size": 26, "num_experts": 10, "num_experts_per_tok": 3, "output_router_logits": false,
    "router_aux_loss_coef": 0.001, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 12,
    "linear_value_head_dim": 10, "linear_conv_kernel_dim": 4, "attn_output_gate": true, "mamba_ssm_dtype": "float32",
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.25,
        "mrope_section": [1, 1, 1], "mrope_interleaved": true}, "dtype": "bfloat16"}"#;

const GATED: GroupedAttention =
    GroupedAttention { qk_norm: Some(QkNorm::PerHead), has_output_gate: true, ..GroupedAttention::PLAIN };

/// Returns which layers have the gated delta rule.
fn layers_with_delta(config: &ModelConfig) -> Vec<bool> {
    (0..config.layers).map(|layer| config.layer(layer).delta().is_some()).collect()
}

#[test]
fn qwen3_next_has_the_rule_in_three_of_four_layers() {
    let config = parse(QWEN3_NEXT);
    let delta = GatedDelta { key_heads: 2, value_heads: 4, key_dims: 12, value_dims: 10, convolution: 4 };
    let feed_forward = FeedForwardPart::Mixture(Mixture {
        experts: 10,
        chosen: 3,
        intermediate_size: 18,
        router: Router {
            scores: Scores::Softmax,
            has_logit_bias: false,
            has_choice_bias: false,
            groups: None,
            renormalisation: Some(0.0),
            factor: 1.0,
        },
        shared: Some(SharedExpert { intermediate_size: 26, has_gate: true }),
        activation: Activation::Silu,
        has_bias: false,
    });
    let layer = |attention| Layer { attention, feed_forward, norms: NormPlaces::Before };
    let linear = layer(AttentionPart::GatedDelta(delta));
    assert_eq!(config.pattern, [linear, linear, linear, layer(AttentionPart::Grouped(GATED))]);
    assert_eq!((config.head_dim, config.kv_heads, config.rope.rotated_dims(20)), (20, 2, 6));
    assert_eq!((config.norm_weight, config.tied_embeddings), (NormWeight::OnePlus, false));
    assert_eq!((config.prediction_layers, config.dtype), (1, DType::BF16));
    // Defaults of the class.
    let other = |changes: &str| parse(&with(QWEN3_NEXT, changes));
    assert_eq!(other(r#"{"norm_topk_prob": null, "full_attention_interval": null}"#), config);
    assert_eq!(router(&other(r#"{"norm_topk_prob": false}"#), 0).renormalisation, None);
    assert_eq!(other(r#"{"head_dim": null, "partial_rotary_factor": null}"#).rope.rotated_dims(256), 64);
    assert!(mixture(&other(r#"{"mlp_only_layers": [1]}"#), 1).is_none());
    assert!(!attention(&other(r#"{"attn_output_gate": false}"#), 3).has_output_gate);
}

#[test]
fn an_interval_or_a_list_names_the_layers_with_softmax() {
    let layers = |text: &str, changes: &str| layers_with_delta(&parse(&with(text, changes)));
    assert_eq!(layers(QWEN3_NEXT, "{}"), [true, true, true, false]);
    assert_eq!(layers(QWEN3_NEXT, r#"{"full_attention_interval": 2}"#), [true, false, true, false]);
    assert_eq!(layers(QWEN3_NEXT, r#"{"full_attention_interval": 1}"#), [false; 4]);
    assert_eq!(layers(QWEN3_NEXT, r#"{"full_attention_interval": 9}"#), [true; 4]);
    let list =
        r#"{"layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"]}"#;
    assert_eq!(layers(QWEN3_NEXT, list), [false, true, true, false]);
    refused(
        QWEN3_NEXT,
        &[
            (
                r#"{"layer_types": ["full_attention", "linear_attention", "sliding_attention", "full_attention"]}"#,
                "layer_types: unsupported kind of layer: expected \"full_attention\" or \"linear_attention\", \
                 found \"sliding_attention\"",
            ),
            (r#"{"layer_types": ["full_attention"]}"#, "layer_types: contradicts num_hidden_layers"),
            (
                r#"{"linear_num_value_heads": 5}"#,
                "linear_num_value_heads: not a multiple of linear_num_key_heads: expected a multiple of 2, found 5",
            ),
            (r#"{"linear_num_key_heads": null}"#, "linear_num_key_heads: missing"),
            (r#"{"linear_key_head_dim": 0}"#, "linear_key_head_dim: wrong value"),
            (r#"{"linear_conv_kernel_dim": "4"}"#, "linear_conv_kernel_dim: wrong value"),
            (r#"{"attn_output_gate": 1}"#, "attn_output_gate: wrong value"),
            (
                r#"{"partial_rotary_factor": 0.25}"#,
                "partial_rotary_factor: the rotated dims of a head cannot",
            ),
            (
                r#"{"mamba_ssm_dtype": "float16"}"#,
                "mamba_ssm_dtype: states of another type are not supported",
            ),
        ],
    );
    for dtype in ["float32", "bfloat16"] {
        parse(&with(QWEN3_NEXT, &format!(r#"{{"mamba_ssm_dtype": "{dtype}"}}"#)));
    }
}

#[test]
fn qwen3_5_is_the_text_tower_of_its_file() {
    let config = parse(QWEN3_5);
    let delta = GatedDelta { key_heads: 3, value_heads: 9, key_dims: 10, value_dims: 14, convolution: 4 };
    assert_eq!(config.layer(4).delta(), Some(&delta));
    assert_eq!((delta.values_per_key(), delta.channels()), (3, 186));
    assert_eq!(layers_with_delta(&config), [true, true, true, false, true]);
    assert_eq!(attention(&config, 3), GATED);
    assert_eq!((config.head_dim, config.kv_heads, config.intermediate_size), (24, 3, 70));
    assert_eq!(config.rope, Rope { part: 0.25, ..Rope::plain(5000.0) });
    assert_eq!((config.norm_weight, config.prediction_layers), (NormWeight::OnePlus, 1));
    // A text-only save has the same keys without the object.
    let whole: serde_json::Value = serde_json::from_str(QWEN3_5).unwrap();
    for model_type in ["qwen3_5_text", "qwen3_5"] {
        let flat = format!(r#"{{"architectures": ["Qwen3_5ForCausalLM"], "model_type": "{model_type}"}}"#);
        assert_eq!(parse(&with(&whole["text_config"].to_string(), &flat)), config);
    }
}

#[test]
fn qwen3_5_with_experts_always_renormalises() {
    let config = parse(QWEN3_5_MOE);
    assert_eq!(config.family.architecture(), "Qwen3_5MoeForCausalLM");
    assert_eq!(router(&config, 3).renormalisation, Some(0.0));
    let shared = SharedExpert { intermediate_size: 26, has_gate: true };
    assert_eq!(mixture(&config, 0).unwrap().shared, Some(shared));
    // No layer is dense, and the file has no width of such layers.
    assert_eq!(config.intermediate_size, 18);
    refused(
        QWEN3_5_MOE,
        &[
            (r#"{"norm_topk_prob": false}"#, "norm_topk_prob: contradicts the router of this architecture"),
            (r#"{"moe_intermediate_size": null}"#, "moe_intermediate_size: missing"),
            (r#"{"mlp_only_layers": [0]}"#, "mlp_only_layers: not known to files of this family"),
        ],
    );
}

#[test]
fn checkpoints_have_exactly_the_listed_tensors() {
    for (folder, text) in [("qwen3-next", QWEN3_NEXT), ("qwen3_5-dense", QWEN3_5)] {
        let config = parse(text);
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder);
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let layers = (0..config.layers).flat_map(|layer| config.layer_tensors(layer));
        let tensors = config.outer_tensors().into_iter().chain(layers).map(|tensor| ExpectedTensor {
            name: tensor.name,
            shape: tensor.shape[..].into(),
            dtypes: FLOATS,
        });
        let tensors: Vec<ExpectedTensor> = tensors.collect();
        let is_prediction = |name: &str| config.is_prediction_tensor(name);
        checkpoint.check(&tensors, &is_prediction).unwrap_or_else(|problems| panic!("{problems}"));
        let elems = tensors.iter().map(|tensor| tensor.shape.elems()).sum::<usize>();
        assert_eq!(elems, config.parameters().total);
        // The gradients have the same names.
        let gradients = Checkpoint::open_file(&folder.join("expected_grads.safetensors")).unwrap();
        gradients.check(&tensors, &|_| false).unwrap_or_else(|problems| panic!("{problems}"));
    }
}

#[test]
fn the_line_of_skipped_tensors_counts_images_and_predictions() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen3_5-dense");
    let (config, checkpoint) = (parse(QWEN3_5), Checkpoint::open(&folder).unwrap());
    let line = checkpoint.skipped(&config, false).unwrap();
    assert!(line.starts_with("4 tensors of images ("), "{line}");
    assert!(line.contains(" and 15 tensors of layers for multi-token prediction ("), "{line}");
    let none = ModelConfig { prediction_layers: 0, ..config };
    assert!(!none.is_prediction_tensor("mtp.fc.weight"));
    assert!(!checkpoint.skipped(&none, false).unwrap().contains("prediction"));
}
