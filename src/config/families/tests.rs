//! Properties of all tables, and a family that only renames.

mod hunyuan;
mod hybrids;
mod latent;
mod mixtures;
mod towers;

use super::{Family, FamilyTable, Keys, Projections, Tensors, llama};
use crate::base::DType;
use crate::config::{
    Activation, FeedForwardPart, GroupedAttention, ModelConfig, NormPlaces, NormWeight, QkNorm, Rope,
    RopeScaling, Rotary, RotaryPairing,
};
use crate::program::models::{Head, RunShape, checkpoint_tensors, decoder};
use crate::program::text;

/// A family that only renames keys and tensors.
static RENAMED: FamilyTable = FamilyTable {
    architecture: "RenamedForCausalLM",
    model_type: "renamed",
    keys: Keys { head_dim: "dims", kv_heads: Some("groups"), norm_epsilon: "epsilon", ..llama::TABLE.keys },
    tensors: Tensors {
        layer_prefix: "net.blocks.",
        embedding: "net.words.weight",
        attention_norm: "norm_1.weight",
        qkv: Projections::Each(["mix.query", "mix.key", "mix.value"]),
        attention_out: "mix.out",
        mlp_norm: "norm_2.weight",
        gate_up: Projections::Each(["ffn.a", "ffn.b"]),
        down: "ffn.c",
        final_norm: "net.norm.weight",
        head: "net.head.weight",
        ..llama::TABLE.tensors
    },
    ..llama::TABLE
};

#[test]
fn a_family_that_only_renames_is_one_table() {
    const LLAMA: &str = r#"{"architectures": ["LlamaForCausalLM"], "vocab_size": 40, "hidden_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8,
        "intermediate_size": 30, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "max_position_embeddings": 64}"#;
    let renamed = [
        ("LlamaFor", "RenamedFor"),
        ("num_key_value_heads", "groups"),
        ("head_dim", "dims"),
        ("rms_norm_eps", "epsilon"),
    ];
    let text_of = renamed.iter().fold(LLAMA.to_owned(), |text, (from, to)| text.replace(from, to));
    let config = ModelConfig::among(&[Family::of(&RENAMED)], &text_of, || DType::F32).unwrap();
    let llama = ModelConfig::from_json(LLAMA).unwrap();
    assert_eq!(ModelConfig { family: llama.family, ..config.clone() }, llama);
    let run = RunShape::new(1, 3, 8);
    let [own, llama] =
        [&config, &llama].map(|config| decoder(config, run, DType::F32, Head::LastToken).unwrap());
    let names: Vec<String> = checkpoint_tensors(&own).into_keys().collect();
    assert!(names.contains(&"net.blocks.1.mix.query.weight".to_owned()), "{names:?}");
    // Apart from names the programs are equal.
    let tensors = renamed_tensors();
    let text_of = |program| text::print(program).lines().skip(1).collect::<Vec<_>>().join("\n");
    let expected = tensors.iter().fold(text_of(&llama), |text, (from, to)| text.replace(from, to));
    assert_eq!(text_of(&own), expected);
}

/// Returns pairs of tensor names: Llama's name and the name in [`RENAMED`].
fn renamed_tensors() -> Vec<(&'static str, &'static str)> {
    let pairs = |tensors: &'static Tensors| {
        let own = [tensors.layer_prefix, tensors.embedding, tensors.attention_norm, tensors.attention_out];
        let rest = [tensors.mlp_norm, tensors.down, tensors.final_norm, tensors.head];
        let names = own.into_iter().chain(rest);
        names.chain(tensors.qkv.names().iter().copied()).chain(tensors.gate_up.names().iter().copied())
    };
    static LLAMA: FamilyTable = llama::TABLE;
    pairs(&LLAMA.tensors).zip(pairs(&RENAMED.tensors)).collect()
}

#[test]
fn a_family_has_one_table_and_one_short_file() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/families");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !["mod.rs", "delta.rs", "experts.rs", "latent.rs", "tower.rs", "tests.rs", "tests"]
            .contains(&name.as_str())
        {
            files += 1;
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            assert!(lines <= 80, "{name} has {lines} lines");
        }
    }
    assert_eq!(files, Family::ALL.len());
}

fn parse(text: &str) -> ModelConfig {
    ModelConfig::from_json(text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Returns a file with other keys. `null` removes a key.
fn with(text: &str, changes: &str) -> String {
    let mut object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap();
    for (key, value) in serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(changes).unwrap() {
        object.insert(key, value);
    }
    serde_json::to_string(&object).unwrap()
}

fn attention(config: &ModelConfig, layer: usize) -> GroupedAttention {
    *config.layer(layer).grouped().unwrap()
}

const MISTRAL: &str = r#"{"architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 176,
    "max_position_embeddings": 512, "model_type": "mistral", "num_attention_heads": 8, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 16,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 100}"#;

#[test]
fn mistral_has_a_window_everywhere_or_nowhere() {
    let window = |text: &str| parse(text).window();
    assert_eq!(window(MISTRAL), Some(16));
    assert_eq!(window(&with(MISTRAL, r#"{"sliding_window": null}"#)), None);
    let mut without: serde_json::Value = serde_json::from_str(MISTRAL).unwrap();
    without.as_object_mut().unwrap().remove("sliding_window");
    assert_eq!(window(&without.to_string()), Some(4096));
    // Later files have a head size of their own, and transformers 5 has other keys for the
    // rotation.
    let config = parse(&with(
        MISTRAL,
        r#"{"head_dim": 16, "sliding_window": null, "rope_theta": null,
        "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}"#,
    ));
    assert_eq!((config.head_dim, config.rope.theta), (16, 1e6));
    let types = r#"{"layer_types": ["sliding_attention", "full_attention"]}"#;
    let message = ModelConfig::from_json(&with(MISTRAL, types)).unwrap_err().to_string();
    assert!(message.contains("layer_types: unsupported kind of layer"), "{message}");
}

const PHI3: &str = r#"{"architectures": ["Phi3ForCausalLM"], "attention_dropout": 0.0, "attention_bias": false,
    "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config", "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"},
    "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 32000, "full_attn_mod": 1, "hidden_act": "silu",
    "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 176, "interpolate_factor": 1,
    "lm_head_bias": false, "max_position_embeddings": 512, "mlp_bias": false, "model_type": "phi3",
    "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "original_max_position_embeddings": 512,
    "pad_token_id": 32000, "partial_rotary_factor": 0.75, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
    "rope_scaling": null, "rope_theta": 10000.0, "sliding_window": 47, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 100}"#;

#[test]
fn phi3_rotates_a_part_of_a_head() {
    let config = parse(PHI3);
    assert_eq!((config.rope.rotated_dims(config.head_dim), config.window()), (12, Some(47)));
    assert!(config.tied_embeddings);
    let newer = r#"{"rope_theta": null, "partial_rotary_factor": null,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.75}}"#;
    assert_eq!(parse(&with(PHI3, newer)), config);
    let refused = |changes: &str| ModelConfig::from_json(&with(PHI3, changes)).unwrap_err().to_string();
    let message =
        refused(r#"{"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}}"#);
    assert!(
        message.contains("unknown scaling of the rotary embedding") && message.contains("`longrope`"),
        "{message}"
    );
    let message = refused(r#"{"partial_rotary_factor": 0.32}"#);
    assert!(message.contains("the rotated dims of a head cannot be paired"), "{message}");
    let message = refused(r#"{"auto_map": {"AutoModelForCausalLM": "modeling_other.Phi3ForCausalLM"}}"#);
    assert!(message.contains("the model has a program of its own"), "{message}");
}

const GLM4: &str = r#"{"architectures": ["Glm4ForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
    "eos_token_id": [7, 8], "head_dim": 16, "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02,
    "intermediate_size": 176, "max_position_embeddings": 512, "model_type": "glm4", "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "pad_token_id": 1, "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "use_cache": true, "vocab_size": 100}"#;

#[test]
fn glm4_has_norms_on_both_sides_and_biases_of_queries_alone() {
    let config = parse(GLM4);
    assert_eq!((config.layer(1).norms, config.rope.pairing), (NormPlaces::Both, RotaryPairing::Neighbours));
    let grouped = attention(&config, 1);
    assert_eq!((grouped.qkv_bias, grouped.output_bias), (true, false));
    assert_eq!(parse(&with(GLM4, r#"{"partial_rotary_factor": null}"#)).rope.part, 0.5);
}

#[test]
fn olmo2_normalises_all_heads_together() {
    let config = parse(
        r#"{"architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "eos_token_id": 99, "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 176,
        "max_position_embeddings": 512, "model_type": "olmo2", "num_attention_heads": 4, "num_hidden_layers": 2,
        "num_key_value_heads": 4, "pad_token_id": 1, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 100}"#,
    );
    assert_eq!(attention(&config, 0).qk_norm, Some(QkNorm::AllHeads));
    assert_eq!(config.layer(0).norms, NormPlaces::After);
}

const GEMMA2: &str = r#"{"architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
    "final_logit_softcapping": 30.0, "head_dim": 16, "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 176,
    "max_position_embeddings": 512, "model_type": "gemma2", "num_attention_heads": 4, "num_hidden_layers": 3,
    "num_key_value_heads": 2, "pad_token_id": 0, "query_pre_attn_scalar": 24, "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0, "sliding_window": 32, "torch_dtype": "float32", "use_cache": true, "vocab_size": 100}"#;

#[test]
fn gemma2_has_caps_and_a_window_in_even_layers() {
    let config = parse(GEMMA2);
    let windows: Vec<Option<usize>> = (0..3).map(|layer| attention(&config, layer).window).collect();
    assert_eq!(windows, [Some(32), None, Some(32)]);
    assert_eq!((config.logit_cap, attention(&config, 1).score_cap), (Some(30.0), Some(50.0)));
    assert_eq!(attention(&config, 0).query_scalar, Some(24.0));
    assert!(config.tied_embeddings && config.scales_embedding);
    assert_eq!(config.norm_weight, NormWeight::OnePlus);
    let dense = FeedForwardPart::Dense { activation: Activation::GeluTanh, has_bias: false };
    assert_eq!(config.layer(2).feed_forward, dense);
    let uncapped =
        parse(&with(GEMMA2, r#"{"attn_logit_softcapping": null, "final_logit_softcapping": null}"#));
    assert_eq!((uncapped.logit_cap, attention(&uncapped, 1).score_cap), (None, None));
    for (changes, words) in [
        (r#"{"hidden_activation": "relu"}"#, "hidden_activation: unsupported activation"),
        (r#"{"attn_logit_softcapping": -1.0}"#, "attn_logit_softcapping: wrong value"),
        (r#"{"use_bidirectional_attention": true}"#, "attention to later tokens is not supported"),
        (r#"{"layer_types": ["full_attention"]}"#, "layer_types: contradicts num_hidden_layers"),
        (r#"{"vision_config": {}}"#, "a model within or beside the model is not supported"),
    ] {
        let message = ModelConfig::from_json(&with(GEMMA2, changes)).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
}

const GEMMA3: &str = r#"{"architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 106],
    "final_logit_softcapping": null, "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 64,
    "initializer_range": 0.02, "intermediate_size": 176, "max_position_embeddings": 512, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 8, "num_key_value_heads": 1, "pad_token_id": 0,
    "query_pre_attn_scalar": 16, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "rope_theta": 1000000, "sliding_window": 32,
    "sliding_window_pattern": 6, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 100}"#;

#[test]
fn gemma3_has_two_rotary_embeddings() {
    let config = parse(GEMMA3);
    let full: Vec<usize> = (0..8).filter(|layer| attention(&config, *layer).window.is_none()).collect();
    assert_eq!((full, config.pattern.len()), (vec![5], 6));
    assert_eq!(attention(&config, 5).rotary, Rotary::Global);
    assert_eq!(attention(&config, 4).rotary, Rotary::Local);
    assert_eq!(config.rope, Rope { scaling: RopeScaling::Linear { factor: 8.0 }, ..Rope::plain(1e6) });
    // The scaling does not concern layers with a window, and the written positions are final.
    assert_eq!(config.local_rope, Some(Rope::plain(1e4)));
    assert_eq!(config.max_positions, 512);
    // transformers 5.
    let newer = r#"{"rope_theta": null, "rope_scaling": null, "rope_local_base_freq": null,
        "sliding_window_pattern": null, "_sliding_window_pattern": 6,
        "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
            "sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
        "rope_parameters": {"full_attention": {"factor": 8.0, "rope_theta": 1000000.0, "rope_type": "linear"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}}"#;
    assert_eq!(parse(&with(GEMMA3, newer)), config);
    let other = r#"{"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "chunked_attention": {}}}"#;
    let message = ModelConfig::from_json(&with(GEMMA3, other)).unwrap_err().to_string();
    assert!(message.contains("rope_parameters.chunked_attention"), "{message}");
}
