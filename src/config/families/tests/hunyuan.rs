//! Hunyuan V1: descriptions of small files with the keys of published ones.

use super::mixtures::{SOFTMAX, mixture, refused};
use super::{parse, with};
use crate::config::{
    Activation, AttentionPart, FeedForwardPart, GroupedAttention, Layer, Mixture, ModelConfig, NormPlaces,
    QkNorm, Rope, RopeScaling, SharedExpert,
};

/// The first file of Hunyuan-A13B, with other sizes and without ids of tokens.
const A13B: &str = r#"{"add_classification_head": false, "anyres_pooling_size": 2,
    "anyres_vit_max_image_size": null, "anyres_vit_two_views": false, "architectures": ["HunYuanMoEV1ForCausalLM"],
    "attention_bias": false, "attention_dropout": 0.1, "attention_head_dim": 8,
    "auto_map": {"AutoConfig": "configuration_hunyuan.HunYuanConfig", "AutoModel": "hunyuan.HunYuanModel",
        "AutoModelForCausalLM": "hunyuan.HunYuanMoEV1ForCausalLM"},
    "bos_token_id": 1, "cla_share_factor": 2, "class_num": 0, "dense_list": [48, 0], "eos_token_id": 2,
    "group_limited_greedy": false, "hidden_act": "silu", "hidden_size": 48, "initializer_range": 0.02,
    "intermediate_size": 24, "kv_lora_rank": null, "mask_init_id": 13, "max_position_embeddings": 512,
    "mlp_bias": false, "model_type": "hunyuan", "moe_drop_tokens": false, "moe_intermediate_size": [24, 24, 24],
    "moe_layer_num_skipped": 0, "moe_random_routing_dropped_token": false, "moe_topk": [3, 3, 3], "n_group": null,
    "norm_topk_prob": true, "norm_type": "rms", "num_attention_heads": 6, "num_experts": 10, "num_hidden_layers": 3,
    "num_key_value_heads": 2, "num_media_embeds": 257, "num_shared_expert": [1, 1, 1], "org_vocab_size": 149,
    "pool_type": "last", "position_embedding_xdrope": false, "pretraining_tp": 1, "q_lora_rank": null,
    "qk_nope_head_dim": null, "qk_rope_head_dim": null, "rms_norm_eps": 1e-05,
    "rope_scaling": {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
        "mscale_all_dim": 1.0, "type": "dynamic"}, "rope_theta": 10000.0, "routed_scaling_factor": 1.0,
    "skip_cls_token": false, "tie_word_embeddings": true, "topk_group": null, "torch_dtype": "bfloat16",
    "use_cache": true, "use_cla": false, "use_mixed_mlp_moe": true, "use_mla": false, "use_qk_norm": true,
    "use_rotary_pos_emb": true, "v_head_dim": null, "vit_add_patchemb_bias": false, "vit_input_resolution": 224,
    "vit_mapping_type": "resampler", "vit_norm_type": "fused", "vit_patch": 1, "vit_path": null,
    "vit_remove_prenorm": false, "vit_token": 64, "vit_type": null, "vit_used_rms_norm": false, "vocab_size": 149,
    "xdrope_section": null}"#;

/// Hunyuan-7B, with other sizes and without ids of tokens.
const DENSE: &str = r#"{"add_classification_head": false, "architectures": ["HunYuanDenseV1ForCausalLM"],
    "attention_bias": false, "attention_dropout": 0.1, "attention_head_dim": 16, "bos_token_id": 1,
    "cla_share_factor": 2, "class_num": 0, "dense_list": [48, 0], "eos_token_id": 2, "head_dim": 16,
    "hidden_act": "silu", "hidden_size": 48, "initializer_range": 0.02, "intermediate_size": 112,
    "max_position_embeddings": 512, "mlp_bias": false, "model_type": "hunyuan_v1_dense", "norm_type": "rms",
    "num_attention_heads": 6, "num_hidden_layers": 2, "num_key_value_heads": 2, "org_vocab_size": 149,
    "pool_type": "last", "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
        "mscale_all_dim": 1.0, "type": "dynamic"}, "rope_theta": 10000.0, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "use_cache": false, "use_cla": false, "use_qk_norm": true,
    "use_rotary_pos_emb": true, "vocab_size": 149}"#;

const ATTENTION: GroupedAttention =
    GroupedAttention { qk_norm: Some(QkNorm::PerRotatedHead), ..GroupedAttention::PLAIN };

fn rope() -> Rope {
    Rope { scaling: RopeScaling::NtkAlpha { alpha: 1000.0 }, ..Rope::plain(1e4) }
}

#[test]
fn hunyuan_normalises_rotated_heads() {
    let config = parse(DENSE);
    let layer = Layer { attention: AttentionPart::Grouped(ATTENTION), ..Layer::PLAIN };
    assert_eq!(config.pattern, [layer]);
    assert_eq!((config.rope.clone(), config.max_positions), (rope(), 512));
    assert_eq!((config.head_dim, config.kv_heads), (16, 2));
    assert!(
        config.tied_embeddings && !parse(&with(DENSE, r#"{"tie_word_embeddings": null}"#)).tied_embeddings
    );
    let biased = super::attention(&parse(&with(DENSE, r#"{"attention_bias": true}"#)), 0);
    assert_eq!(biased, GroupedAttention { qkv_bias: true, output_bias: true, ..ATTENTION });
    assert_eq!(parse(&with(DENSE, r#"{"head_dim": null, "attention_head_dim": 8}"#)).head_dim, 8);
    let names: Vec<String> = config.layer_tensors(1).into_iter().map(|tensor| tensor.name).collect();
    for name in ["query_layernorm", "key_layernorm"] {
        assert!(names.contains(&format!("model.layers.1.self_attn.{name}.weight")), "{names:?}");
    }
    refused(
        DENSE,
        &[
            (r#"{"use_qk_norm": false}"#, "use_qk_norm: contradicts the architecture's norms"),
            (r#"{"mlp_bias": true}"#, "mlp_bias: contradicts the architecture's biases of the feed-forward"),
            (r#"{"attention_head_dim": 8}"#, "attention_head_dim: another size of a head"),
            (r#"{"use_cla": true}"#, "use_cla: layers that share a KV cache are not supported"),
            (r#"{"use_mixed_mlp_moe": true}"#, "use_mixed_mlp_moe: contradicts the number of shared experts"),
            (r#"{"num_experts": 8}"#, "num_experts: not known to files of this family"),
            (r#"{"norm_type": "fused"}"#, "norm_type: other norms are not supported"),
            (r#"{"add_classification_head": true}"#, "add_classification_head: a head for classes"),
            (r#"{"model_type": "hunyuan"}"#, "model_type: contradicts the architecture"),
        ],
    );
}

#[test]
fn alpha_of_the_rotary_embedding_is_read() {
    let other = |changes: &str| parse(&with(DENSE, changes)).rope;
    // transformers 5.
    let newer = r#"{"rope_theta": null, "rope_scaling": null,
        "rope_parameters": {"rope_type": "dynamic", "alpha": 1000, "rope_theta": 10000.0}}"#;
    assert_eq!(other(newer), rope());
    let without = r#"{"rope_scaling": {"type": "dynamic", "alpha": null, "factor": 2.0}}"#;
    let dynamic = RopeScaling::Dynamic { factor: 2.0, trained_positions: 512 };
    assert_eq!(other(without), Rope { scaling: dynamic, ..Rope::plain(1e4) });
    assert_eq!(other(r#"{"rope_scaling": null}"#), Rope::plain(1e4));
    refused(
        DENSE,
        &[
            (
                r#"{"rope_scaling": {"type": "dynamic", "alpha": 0.5}}"#,
                "rope_scaling.alpha: shortens the context: expected at least 1, found 0.5",
            ),
            (
                r#"{"rope_scaling": {"type": "dynamic", "alpha": 1000, "factor": 2}}"#,
                "rope_scaling.factor: extends the context in addition to alpha: expected 1, found 2",
            ),
            (
                r#"{"rope_scaling": {"type": "dynamic", "alpha": 1000, "xdrope_section": [1]}}"#,
                "rope_scaling.xdrope_section: a key that this rotary embedding does not use",
            ),
            (
                r#"{"rope_scaling": {"type": "linear", "alpha": 1000, "factor": 2}}"#,
                "rope_scaling.alpha: a key that this rotary embedding does not use",
            ),
        ],
    );
    // Other families have no such key.
    let llama = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "use_qk_norm": null}"#;
    refused(
        &with(DENSE, llama),
        &[(
            r#"{"rope_scaling": {"type": "dynamic", "alpha": 1000, "factor": 2}}"#,
            "rope_scaling.alpha: a key that this rotary embedding does not use",
        )],
    );
}

#[test]
fn hunyuan_moe_has_a_shared_expert_without_a_gate() {
    let config = parse(A13B);
    let described = Mixture {
        experts: 10,
        chosen: 3,
        intermediate_size: 24,
        router: SOFTMAX,
        shared: Some(SharedExpert { intermediate_size: 24, has_gate: false }),
        activation: Activation::Silu,
        has_bias: false,
    };
    let layer = Layer {
        attention: AttentionPart::Grouped(ATTENTION),
        feed_forward: FeedForwardPart::Mixture(described),
        norms: NormPlaces::Before,
    };
    assert_eq!(config.pattern, [layer]);
    assert_eq!((config.rope.clone(), config.head_dim, config.tied_embeddings), (rope(), 8, true));
    // Numbers instead of lists, and the names of transformers.
    let numbers = r#"{"moe_topk": 3, "num_experts": [10, 10, 10], "num_shared_expert": 1,
        "moe_intermediate_size": 24, "model_type": "hunyuan_v1_moe", "auto_map": null}"#;
    assert_eq!(parse(&with(A13B, numbers)), config);
    let absent = r#"{"moe_topk": null, "num_experts_per_tok": 3, "num_shared_expert": null,
        "moe_intermediate_size": null, "use_mixed_mlp_moe": null}"#;
    assert_eq!(parse(&with(A13B, absent)), config);
    let shared = |changes: &str| mixture(&parse(&with(A13B, changes)), 1).unwrap().shared;
    assert_eq!(shared(r#"{"num_shared_expert": [2, 2, 2]}"#).unwrap().intermediate_size, 48);
    assert_eq!(shared(r#"{"num_shared_expert": [0, 0, 0], "use_mixed_mlp_moe": false}"#), None);
}

#[test]
fn keys_that_change_the_numbers_of_hunyuan_moe_are_refused_by_name() {
    refused(
        A13B,
        &[
            (
                r#"{"moe_topk": [3, 3, 2]}"#,
                "moe_topk: layer 2 differs from layer 0: expected 3, found 2; mixtures that differ",
            ),
            (
                r#"{"moe_topk": [3, 3]}"#,
                "moe_topk: contradicts num_hidden_layers: expected 3 entries, found 2",
            ),
            (
                r#"{"moe_topk": 1}"#,
                "moe_topk: one expert per token is not supported: expected 2 or more, found 1",
            ),
            (r#"{"moe_topk": [0, 0, 0]}"#, "moe_topk: wrong value: expected an integer"),
            (r#"{"moe_topk": null}"#, "moe_topk: missing"),
            (
                r#"{"num_experts_per_tok": 2}"#,
                "num_experts_per_tok: differs from moe_topk: expected 3, found 2",
            ),
            (
                r#"{"num_experts": [10, 8, 10]}"#,
                "num_experts: layer 1 differs from layer 0: expected 10, found 8",
            ),
            (r#"{"num_shared_expert": [1, 2, 1]}"#, "num_shared_expert: layer 1 differs from layer 0"),
            (
                r#"{"moe_intermediate_size": 20}"#,
                "moe_intermediate_size: differs from intermediate_size: expected 24, found 20",
            ),
            (r#"{"moe_intermediate_size": [24, 24, 20]}"#, "moe_intermediate_size: layer 2 differs"),
            (
                r#"{"use_mixed_mlp_moe": false}"#,
                "use_mixed_mlp_moe: contradicts the number of shared experts: expected true, found false",
            ),
            (r#"{"moe_drop_tokens": true}"#, "moe_drop_tokens: dropping tokens of full experts"),
            (r#"{"moe_random_routing_dropped_token": true}"#, "moe_random_routing_dropped_token: dropping"),
            (r#"{"moe_layer_num_skipped": 1}"#, "moe_layer_num_skipped: not known to files"),
            (r#"{"norm_topk_prob": false}"#, "norm_topk_prob: contradicts the router"),
            (r#"{"routed_scaling_factor": 2.5}"#, "routed_scaling_factor: not known"),
            (r#"{"group_limited_greedy": true}"#, "group_limited_greedy: contradicts the router"),
            (r#"{"use_cla": true}"#, "use_cla: layers that share a KV cache are not supported"),
            (r#"{"use_mla": true}"#, "use_mla: contradicts the attention of this architecture"),
            (r#"{"use_qk_norm": false}"#, "use_qk_norm: contradicts the architecture's norms"),
            (r#"{"use_rotary_pos_emb": false}"#, "use_rotary_pos_emb: attention without rotation"),
            (r#"{"position_embedding_xdrope": true}"#, "position_embedding_xdrope: not known"),
            (r#"{"vit_type": "resnet"}"#, "vit_type: a model within or beside the model"),
            (
                r#"{"auto_map": {"AutoModelForCausalLM": "modeling_other.HunYuanMoEV1ForCausalLM"}}"#,
                "auto_map.AutoModelForCausalLM: the model has a program of its own",
            ),
        ],
    );
}

#[test]
fn names_of_the_router_and_of_the_experts_of_hunyuan() {
    let tensors = parse(A13B).layer_tensors(2).into_iter();
    let names: Vec<(String, Vec<usize>)> = tensors
        .filter_map(|tensor| {
            Some((tensor.name.strip_prefix("model.layers.2.mlp.")?.to_owned(), tensor.shape))
        })
        .collect();
    let block = |path: &str| {
        let shapes = [("gate_proj", [24, 48]), ("up_proj", [24, 48]), ("down_proj", [48, 24])];
        shapes.map(|(name, shape)| (format!("{path}.{name}.weight"), shape.to_vec()))
    };
    let mut expected = vec![("gate.wg.weight".to_owned(), vec![10, 48])];
    expected.extend((0..10).flat_map(|expert| block(&format!("experts.{expert}"))));
    expected.extend(block("shared_mlp"));
    assert_eq!(names, expected);
}

/// The order of norm and rotation is a fact of the description, and no key of files.
#[test]
fn a_preset_has_the_facts_of_its_published_file() {
    let config = ModelConfig::preset("hunyuan-a13b").unwrap();
    assert_eq!((config.layers, config.pattern.len(), config.head_dim), (32, 1, 128));
    assert_eq!(config.rope, rope());
    assert_eq!(super::attention(&config, 31), ATTENTION);
}
