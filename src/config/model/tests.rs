//! Valid and refused `config.json` files.

use std::path::{Path, PathBuf};

use super::{Arc, Family, LogN, ModelConfig};
use crate::base::DType;
use crate::config::{AttentionPart, GenerationConfig, GroupedAttention, Layer, NormWeight, QkNorm};
use crate::config::{Rope, RopeScaling};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn fixture(folder: &str) -> ModelConfig {
    let text = std::fs::read_to_string(repository().join(folder).join("config.json")).unwrap();
    ModelConfig::from_json(&text).unwrap_or_else(|problems| panic!("{folder}: {problems}"))
}

/// A valid file of the family, with some fields replaced (or removed, by `null`).
fn edited(base: &str, changes: &str) -> String {
    let mut object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(base).unwrap();
    object.extend(serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(changes).unwrap());
    serde_json::to_string(&object).unwrap()
}

const QWEN2: &str = r#"{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
    "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 176, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 512,
    "sliding_window": 4096, "use_sliding_window": false, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}"#;

const QWEN_V1: &str = r#"{"architectures": ["QWenLMHeadModel"], "model_type": "qwen", "vocab_size": 100,
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "kv_channels": 8, "intermediate_size": 176,
    "layer_norm_epsilon": 1e-6, "rotary_emb_base": 10000, "rotary_pct": 1.0, "seq_length": 256,
    "max_position_embeddings": 512, "use_dynamic_ntk": true, "use_logn_attn": true, "no_bias": true,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16"}"#;

const LLAMA: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 100,
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 176,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "torch_dtype": "float16"}"#;

const QWEN3: &str = r#"{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 100,
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 176, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 512,
    "dtype": "bfloat16"}"#;

fn parse(base: &str, changes: &str) -> ModelConfig {
    ModelConfig::from_json(&edited(base, changes)).unwrap_or_else(|problems| panic!("{problems}"))
}

fn refused(base: &str, changes: &str, expected: &[&str]) {
    let message = ModelConfig::from_json(&edited(base, changes)).unwrap_err().to_string();
    assert_eq!(message.lines().collect::<Vec<_>>(), expected);
}

/// Returns the biases of queries, of the attention's output, and of the feed-forward part.
fn biases(config: &ModelConfig) -> (bool, bool, bool) {
    let grouped = config.layer(0).grouped().unwrap();
    (grouped.qkv_bias, grouped.output_bias, config.layer(0).has_mlp_bias())
}

#[test]
fn the_fixtures_parse() {
    let qwen_v1 = fixture("tests/fixtures/qwen-v1-mha");
    let expected = ModelConfig {
        family: Family::named("qwen").unwrap(),
        vocab_size: 264,
        hidden_size: 64,
        layers: 2,
        prediction_layers: 0,
        heads: 8,
        kv_heads: 8,
        head_dim: 8,
        intermediate_size: 88,
        pattern: vec![Layer {
            attention: AttentionPart::Grouped(GroupedAttention { qkv_bias: true, ..GroupedAttention::PLAIN }),
            ..Layer::PLAIN
        }],
        norm_epsilon: 1e-6,
        norm_weight: NormWeight::Factor,
        rope: Rope::plain(1e6),
        local_rope: None,
        logn: None,
        max_positions: 512,
        scales_embedding: false,
        logit_cap: None,
        tied_embeddings: false,
        dtype: DType::BF16,
        formats: Arc::default(),
        adapters: Arc::default(),
    };
    assert_eq!(qwen_v1, expected);

    let qwen2 = fixture("tests/fixtures/qwen2-gqa");
    let expected = ModelConfig {
        family: Family::named("qwen2").unwrap(),
        vocab_size: 259,
        kv_heads: 2,
        intermediate_size: 176,
        ..expected
    };
    assert_eq!(qwen2, expected);

    let uneven = fixture("tests/fixtures/qwen2-tied-uneven");
    assert!(uneven.tied_embeddings);
    assert_eq!((uneven.heads, uneven.kv_heads, uneven.head_dim, uneven.dtype), (6, 3, 8, DType::F32));

    let qwen3 = fixture("tests/fixtures/qwen3-qknorm");
    let grouped = qwen3.layer(0).grouped().unwrap();
    assert!(grouped.qk_norm == Some(QkNorm::PerHead) && !grouped.qkv_bias);
    assert_eq!((qwen3.query_width(), qwen3.kv_width(), qwen3.hidden_size), (128, 64, 64));

    let llama = fixture("tests/fixtures/llama3-ropescaling");
    assert_eq!(
        (llama.family, llama.dtype, llama.max_positions),
        (Family::named("llama").unwrap(), DType::F16, 512)
    );
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 8.0,
        original_positions: 64,
    };
    assert_eq!(llama.rope, Rope { scaling, ..Rope::plain(500_000.0) });
    assert_eq!(llama.pattern, [Layer::PLAIN]);
}

#[test]
fn the_shipped_model_parses() {
    let folder = repository().join("models/kjv-qwen2");
    let config = fixture("models/kjv-qwen2");
    assert_eq!((config.vocab_size, config.layers, config.heads_per_kv_head()), (4096, 8, 2));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let generation = read("generation_config.json");
    let generation =
        GenerationConfig::from_json(Some(&generation), &read("config.json"), config.vocab_size).unwrap();
    assert_eq!(
        generation,
        GenerationConfig { eos_ids: vec![0], bos_id: Some(0), ..GenerationConfig::default() }
    );
}

#[test]
fn a_preset_is_what_its_file_parses_to() {
    let text = r#"{"architectures": ["QWenLMHeadModel"], "model_type": "qwen", "vocab_size": 152064,
        "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "kv_channels": 128,
        "intermediate_size": 49152, "layer_norm_epsilon": 1e-6, "rotary_emb_base": 1000000, "seq_length": 32768,
        "max_position_embeddings": 32768, "use_dynamic_ntk": false, "use_logn_attn": false, "no_bias": true,
        "torch_dtype": "bfloat16"}"#;
    assert_eq!(ModelConfig::from_json(text).unwrap(), ModelConfig::preset("qwen-72b").unwrap());
}

#[test]
fn the_original_qwens_own_fields() {
    let config = parse(QWEN_V1, "{}");
    assert_eq!(config.intermediate_size, 88);
    assert_eq!(config.kv_heads, 8);
    assert_eq!(config.rope.scaling, RopeScaling::QwenDynamicNtk { trained_length: 256 });
    assert_eq!(config.logn, Some(LogN { trained_length: 256 }));
    let config = parse(QWEN_V1, r#"{"use_dynamic_ntk": false, "use_logn_attn": false, "no_bias": false}"#);
    assert_eq!((&config.rope.scaling, config.logn), (&RopeScaling::Default, None));
    assert_eq!(biases(&config), (true, true, true));
}

#[test]
fn dynamic_ntk_and_logn_have_no_default() {
    let help = "missing; add the field as the model's publisher wrote it; there is no safe default";
    refused(
        QWEN_V1,
        r#"{"use_dynamic_ntk": null, "use_logn_attn": null}"#,
        &[&format!("config.json: use_dynamic_ntk: {help}"), &format!("config.json: use_logn_attn: {help}")],
    );
}

#[test]
fn logn_scales_only_beyond_the_trained_length() {
    let scale = LogN { trained_length: 4 }.scale(&[0, 3, 4, 15]);
    assert_eq!(scale, [1.0, 1.0, (5f64.ln() / 4f64.ln()) as f32, 2.0]);
}

#[test]
fn defaults_that_the_first_files_rely_on() {
    let llama = parse(LLAMA, "{}");
    assert_eq!((llama.kv_heads, llama.head_dim, llama.rope), (8, 8, Rope::plain(10_000.0)));
    assert_eq!(parse(LLAMA, r#"{"torch_dtype": null}"#).dtype, DType::F32);
    assert_eq!(parse(QWEN3, r#"{"head_dim": null}"#).head_dim, 128);
    assert_eq!(parse(QWEN2, r#"{"architectures": null}"#).family.model_type(), "qwen2");
    assert_eq!(parse(QWEN2, r#"{"torch_dtype": "torch.float16"}"#).dtype, DType::F16);
}

#[test]
fn biases_follow_the_family() {
    let attention = r#"{"attention_bias": true}"#;
    assert_eq!(biases(&parse(QWEN2, attention)), (true, false, false));
    assert_eq!(biases(&parse(QWEN3, attention)), (true, true, false));
    assert_eq!(biases(&parse(LLAMA, r#"{"attention_bias": true, "mlp_bias": true}"#)), (true, true, true));
    assert_eq!(biases(&parse(LLAMA, "{}")), (false, false, false));
}

#[test]
fn scaling_extends_the_positions() {
    let with = |scaling: &str| parse(QWEN2, &format!(r#"{{"rope_scaling": {scaling}}}"#)).max_positions;
    assert_eq!(with(r#"{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}"#), 2048);
    assert_eq!(with(r#"{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}"#), 512);
    assert_eq!(with(r#"{"type": "linear", "factor": 2.0}"#), 1024);
    assert_eq!(with(r#"{"type": "dynamic", "factor": 2.0}"#), 1024);
    assert_eq!(
        with(
            r#"{"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                "original_max_position_embeddings": 64}"#
        ),
        512
    );
}

#[test]
fn an_absurd_extension_is_refused() {
    refused(
        QWEN2,
        r#"{"rope_scaling": {"type": "linear", "factor": 1e9}}"#,
        &["config.json: max_position_embeddings: too many positions once the rotary scaling extends them: \
           expected at most 268435456, found 512000000000"],
    );
}

#[test]
fn what_is_no_configuration() {
    let message = |text: &str| ModelConfig::from_json(text).unwrap_err().to_string();
    assert!(message("{\"a\": ").starts_with("config.json: not valid JSON: found EOF"));
    assert_eq!(message("[1]"), "config.json: not a JSON object: expected an object of fields, found a list");
    assert!(
        message("{}").starts_with("config.json: architectures: missing: expected one of QWenLMHeadModel")
    );
}

#[test]
fn unknown_architectures_are_refused() {
    let names: Vec<&str> = Family::ALL.iter().map(|family| family.architecture()).collect();
    let known = format!("expected one of {}", names.join(", "));
    assert!(
        known.starts_with("expected one of QWenLMHeadModel, Qwen2ForCausalLM, Qwen3ForCausalLM"),
        "{known}"
    );
    refused(
        QWEN2,
        r#"{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}"#,
        &[&format!("config.json: architectures: unknown architecture: {known}, found `GPT2LMHeadModel`")],
    );
    refused(
        QWEN2,
        r#"{"architectures": null, "model_type": "gpt2"}"#,
        &[&format!("config.json: model_type: unknown architecture: {known}, found `gpt2`")],
    );
    refused(
        QWEN2,
        r#"{"architectures": [], "model_type": null}"#,
        &["config.json: architectures: wrong value: expected a list of one name, found []"],
    );
    refused(
        QWEN2,
        r#"{"model_type": "llama"}"#,
        &[
            "config.json: model_type: contradicts the architecture Qwen2ForCausalLM: expected `qwen2`, found `llama`",
        ],
    );
}

#[test]
fn what_is_not_supported_is_refused() {
    refused(
        QWEN2,
        r#"{"hidden_act": "gelu", "use_sliding_window": true, "quantization_config": {"bits": 4},
            "layer_types": ["full_attention", "sliding_attention"]}"#,
        &[
            "config.json: layer_types: unsupported kind of layer: \
             expected \"full_attention\" in every layer, found \"sliding_attention\"",
            "config.json: quantization_config.quant_method: unknown method of quantised weights: \
             expected compressed-tensors, fp8, awq, gptq or mxfp4, found nothing; \
             use the checkpoint the quantised one was made from",
            "config.json: hidden_act: unsupported activation: expected \"silu\" or \"swish\", found \"gelu\"; \
             remove it if the model computes without it",
            "config.json: use_sliding_window: attention in a sliding window is not supported: \
             expected false, found true; \
             set it to false if the prompts stay within the window; the result is the same there",
        ],
    );
    refused(
        QWEN_V1,
        r#"{"rotary_pct": 0.5, "scale_attn_weights": false}"#,
        &[
            "config.json: rotary_pct: rotating a part of a head is not supported: expected 1, found 0.5; \
             remove it if the model computes without it",
            "config.json: scale_attn_weights: attention without the scale is not supported: \
             expected true, found false; remove it if the model computes without it",
        ],
    );
}

#[test]
fn contradictions_are_refused() {
    refused(
        QWEN2,
        r#"{"num_key_value_heads": 3, "torch_dtype": "float16", "dtype": "float32",
            "layer_types": ["full_attention"]}"#,
        &[
            "config.json: layer_types: contradicts num_hidden_layers: expected 2 entries, found 1",
            "config.json: torch_dtype: contradicts dtype: expected f32, found f16",
            "config.json: num_key_value_heads: does not divide num_attention_heads: expected a divisor of 8, found 3",
        ],
    );
    refused(
        LLAMA,
        r#"{"num_attention_heads": 7}"#,
        &["config.json: num_attention_heads: does not divide hidden_size, and head_dim is absent: \
           expected a divisor of 64, found 7"],
    );
    refused(
        LLAMA,
        r#"{"num_attention_heads": 64}"#,
        &["config.json: num_attention_heads: a head's dims cannot be paired for the rotation: \
           expected an even number of dims a head, found 1"],
    );
    refused(
        QWEN_V1,
        r#"{"intermediate_size": 175, "num_attention_heads": 4}"#,
        &[
            "config.json: intermediate_size: no sum of two equal widths: \
             expected an even number, gate and up together, found 175",
            "config.json: kv_channels: heads do not fill the hidden size: \
             expected num_attention_heads × kv_channels = hidden_size = 64, found 4 × 8 = 32",
        ],
    );
    refused(
        QWEN_V1,
        r#"{"seq_length": 1}"#,
        &["config.json: seq_length: no base of the logarithm that use_logn_attn asks for: \
           expected more than 1, found 1"],
    );
}

#[test]
fn all_missing_and_wrong_fields_come_at_once() {
    let message = ModelConfig::from_json(
        r#"{"architectures": ["Qwen2ForCausalLM"], "vocab_size": 0, "hidden_size": "64", "num_hidden_layers": -1,
            "num_attention_heads": 2.5, "intermediate_size": 1e300, "rms_norm_eps": 0, "tie_word_embeddings": 1,
            "torch_dtype": "int8", "max_position_embeddings": 999999999999}"#,
    )
    .unwrap_err();
    let places: Vec<&str> = message.items().iter().map(|problem| problem.place.as_str()).collect();
    let expected = [
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "rms_norm_eps",
        "max_position_embeddings",
        "rope_theta",
        "tie_word_embeddings",
        "torch_dtype",
    ];
    assert_eq!(places, expected.map(|field| format!("config.json: {field}")));
}
