//! Text towers of models of images and text.

use super::mixtures::refused;
use super::{parse, with};
use crate::config::{GenerationConfig, ModelConfig, RopeScaling, WeightFormat};

/// As published, with the keys that differ from the class.
const GEMMA3: &str = r#"{"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
    "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02,
    "mm_tokens_per_image": 256, "model_type": "gemma3", "text_config": {"hidden_size": 2560,
        "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
        "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14,
        "vision_use_head": false}}"#;

const KIMI: &str = r#"{"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25",
    "auto_map": {"AutoConfig": "configuration_kimi_k25.KimiK25Config",
        "AutoModel": "modeling_kimi_k25.KimiK25ForConditionalGeneration",
        "AutoModelForCausalLM": "modeling_kimi_k25.KimiK25ForConditionalGeneration"},
    "bos_token_id": 163584, "eos_token_id": 163585, "ignore_index": -100, "media_placeholder_token_id": 163605,
    "pad_token_id": 163839, "tie_word_embeddings": false, "dtype": "bfloat16", "vision_config": {"vt_hidden_size": 1152},
    "text_config": {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2",
        "auto_map": {"AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"}, "vocab_size": 163840,
        "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 384, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc",
        "scoring_func": "sigmoid", "norm_topk_prob": true, "routed_scaling_factor": 2.827,
        "first_k_dense_replace": 1, "num_nextn_predict_layers": 0, "rms_norm_eps": 1e-6, "rope_theta": 50000.0,
        "rope_scaling": {"type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096,
            "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
        "max_position_embeddings": 131072}}"#;

#[test]
fn gemma3_takes_absent_sizes_from_the_class() {
    let config = parse(GEMMA3);
    assert_eq!(config.family.architecture(), "Gemma3ForCausalLM");
    assert_eq!((config.vocab_size, config.hidden_size, config.layers), (262_208, 2560, 34));
    assert_eq!((config.heads, config.kv_heads, config.head_dim), (8, 4, 256));
    assert_eq!((config.window(), config.max_positions, config.tied_embeddings), (Some(1024), 131_072, true));
    assert_eq!(config.rope.scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(config.local_rope.as_ref().unwrap().scaling, RopeScaling::Default);
    let billions = config.parameters().total as f64 / 1e9;
    assert!((billions - 3.88).abs() < 0.01, "{billions}");
    // The class fills in nothing if the file has no object.
    refused(
        GEMMA3,
        &[(r#"{"text_config": null}"#, "text_config: missing: expected the configuration of the text")],
    );
}

#[test]
fn kimi_k2_5_is_kimi_k2() {
    assert_eq!(parse(KIMI), ModelConfig::preset("kimi-k2").unwrap());
}

#[test]
fn a_model_type_alone_names_the_whole_model() {
    let without = with(GEMMA3, r#"{"architectures": null}"#);
    assert_eq!(parse(&without), parse(GEMMA3));
    let qwen = include_str!("../../../../tests/fixtures/qwen3_5-dense/config.json");
    assert_eq!(parse(&with(qwen, r#"{"architectures": null}"#)), parse(qwen));
}

#[test]
fn keys_of_both_objects_agree() {
    refused(
        KIMI,
        &[
            (
                r#"{"model_type": "kimi_k2"}"#,
                "model_type: contradicts the architecture KimiK25ForConditional",
            ),
            (
                r#"{"quantization_config": {"bits": 4}}"#,
                "text_config.quantization_config.quant_method: unknown method of quantised weights",
            ),
            (
                r#"{"auto_map": {"AutoModel": "modeling_x.X"}}"#,
                "auto_map.AutoModel: the model has a program of its own",
            ),
            (r#"{"audio_config": {"a": 1}}"#, "audio_config: a model within or beside the model"),
            (r#"{"text_config": 7}"#, "text_config: wrong value"),
        ],
    );
    let inner = |changes: &str| {
        let mut whole: serde_json::Value = serde_json::from_str(KIMI).unwrap();
        whole["text_config"] =
            serde_json::from_str(&with(&whole["text_config"].to_string(), changes)).unwrap();
        whole.to_string()
    };
    for (changes, expected) in [
        (
            r#"{"tie_word_embeddings": true}"#,
            "config.json: tie_word_embeddings: differs from text_config.tie_word_embeddings: \
             expected true, found false",
        ),
        (r#"{"dtype": "float16"}"#, "config.json: dtype: differs from text_config.dtype"),
        (
            r#"{"model_type": "deepseek_v32"}"#,
            "config.json: text_config.model_type: contradicts the architecture",
        ),
        (
            r#"{"architectures": ["DeepseekV2ForCausalLM"]}"#,
            "config.json: text_config.architectures: contradicts the architecture DeepseekV3ForCausalLM",
        ),
        (r#"{"hidden_size": null}"#, "config.json: text_config.hidden_size: missing"),
        (
            r#"{"quantization_config": {"bits": 4}}"#,
            "config.json: text_config.quantization_config.quant_method: unknown method of quantised weights",
        ),
    ] {
        let message = ModelConfig::from_json(&inner(changes)).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{changes}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    let tied = inner(r#"{"tie_word_embeddings": null}"#);
    assert!(!parse(&tied).tied_embeddings);
}

/// The lists have the names of the whole model.
#[test]
fn formats_of_a_text_tower_have_the_names_of_the_file() {
    let scheme = r#"{"format": "pack-quantized", "quant_method": "compressed-tensors",
        "ignore": ["re:.*self_attn.*", "re:.*mlp\\.(gate|up|down)_proj.*", "re:vision_tower.*",
            "language_model.model.layers.2.mlp.experts.7.up_proj", "language_model.lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": null,
            "output_activations": null, "weights": {"num_bits": 4, "type": "int", "symmetric": true,
                "strategy": "group", "group_size": 32, "dynamic": false, "actorder": null}}}}"#;
    let int4 = |config: &ModelConfig, layer: &str| config.formats.of(layer) != WeightFormat::Float;
    let outer = with(KIMI, &format!(r#"{{"quantization_config": {scheme}}}"#));
    let mut whole: serde_json::Value = serde_json::from_str(KIMI).unwrap();
    whole["text_config"]["quantization_config"] = serde_json::from_str(scheme).unwrap();
    for text in [outer.clone(), whole.to_string()] {
        let config = parse(&text);
        for (layer, expected) in [
            ("model.layers.1.mlp.experts.7.up_proj", true),
            ("model.layers.2.mlp.experts.7.up_proj", false),
            ("model.layers.2.mlp.experts.8.up_proj", true),
            ("model.layers.0.mlp.up_proj", false),
            ("model.layers.3.self_attn.o_proj", false),
            ("lm_head", false),
        ] {
            assert_eq!(int4(&config, layer), expected, "{layer}");
        }
    }
    // Both objects must say the same.
    whole["quantization_config"] = serde_json::json!({"quant_method": "fp8"});
    let message = ModelConfig::from_json(&whole.to_string()).unwrap_err().to_string();
    let expected = "config.json: quantization_config: differs from text_config.quantization_config";
    assert!(message.starts_with(expected), "{message}");
    // The text model alone has the formats too.
    let alone = ModelConfig::text_alone("config.json", &outer).unwrap();
    assert_eq!(parse(&alone), parse(&outer));
}

#[test]
fn unknown_models_of_images_are_refused() {
    refused(
        GEMMA3,
        &[
            (
                r#"{"architectures": ["PaliGemmaForConditionalGeneration"], "model_type": "paligemma"}"#,
                "architectures: unknown architecture",
            ),
            (
                r#"{"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa"}"#,
                "architectures: unsupported architecture",
            ),
        ],
    );
}

#[test]
fn ids_of_the_text_tower_count_if_the_whole_has_none() {
    let read = |text: &str| GenerationConfig::from_json(None, text, 200_000).unwrap();
    let inner = r#"{"text_config": {"eos_token_id": [7, 8], "bos_token_id": 3}}"#;
    let found = read(inner);
    assert_eq!((found.eos_ids, found.bos_id), (vec![7, 8], Some(3)));
    let found = read(&with(inner, r#"{"eos_token_id": 9}"#));
    assert_eq!((found.eos_ids, found.bos_id), (vec![9], Some(3)));
    let wrong = r#"{"text_config": {"eos_token_id": -1}}"#;
    let message = GenerationConfig::from_json(None, wrong, 200_000).unwrap_err().to_string();
    assert!(message.starts_with("config.json: text_config.eos_token_id:"), "{message}");
}

#[test]
fn a_text_tower_alone_is_the_same_model() {
    let qwen = include_str!("../../../../tests/fixtures/qwen3_5-dense/config.json");
    for text in [GEMMA3, KIMI, qwen] {
        let alone = ModelConfig::text_alone("config.json", text).unwrap();
        assert!(!alone.contains("ForConditionalGeneration\""), "{alone}");
        assert_eq!(parse(&alone), parse(text));
        assert_eq!(ModelConfig::text_alone("config.json", &alone).unwrap(), alone);
    }
}
