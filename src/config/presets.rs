//! Published shapes of well-known models, for planning without a checkpoint.
//!
//! Input: a name. Output: [`ModelConfig`].
//!
//! Invariants: a preset equals the configuration that the model's own `config.json` parses to. The
//! texts below have the keys of the published files that the reader reads.
//!
//! Not here: weights and tokenizers.

use super::model::ModelConfig;

impl ModelConfig {
    /// The `config.json` of the shipped checkpoint, which has 8 million parameters.
    #[doc(hidden)]
    pub const SHIPPED: &'static str = include_str!("../../models/kjv-qwen2/config.json");

    /// The names that [`Self::preset`] knows.
    #[doc(hidden)]
    pub const PRESETS: [&'static str; 12] = [
        "qwen-72b",
        "qwen2-72b",
        "qwen2.5-72b",
        "llama-3-70b",
        "qwen3-32b",
        "qwen2.5-0.5b",
        "mistral-7b",
        "phi-3-mini",
        "glm-4-32b",
        "olmo-2-13b",
        "gemma-2-27b",
        "gemma-3-1b",
    ];

    /// Returns the published shape of a model, or `None` if the name is not one of
    /// [`Self::PRESETS`].
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        let (_, text) = TEXTS.iter().find(|(names, _)| names.contains(&name))?;
        Self::from_json(text).ok()
    }
}

/// Names and files. Qwen2 and Qwen2.5 are without the optional `YaRN`.
const TEXTS: &[(&[&str], &str)] = &[
    (
        &["qwen-72b"],
        r#"{"architectures": ["QWenLMHeadModel"], "vocab_size": 152064, "hidden_size": 8192, "num_hidden_layers": 80,
        "num_attention_heads": 64, "kv_channels": 128, "intermediate_size": 49152, "layer_norm_epsilon": 1e-6,
        "rotary_emb_base": 1000000, "seq_length": 32768, "max_position_embeddings": 32768, "use_dynamic_ntk": false,
        "use_logn_attn": false, "no_bias": true, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["qwen2-72b", "qwen2.5-72b"],
        r#"{"architectures": ["Qwen2ForCausalLM"], "vocab_size": 152064, "hidden_size": 8192, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 29568, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "max_position_embeddings": 32768, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["llama-3-70b"],
        r#"{"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 8192, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["qwen3-32b"],
        r#"{"architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936, "hidden_size": 5120, "num_hidden_layers": 64,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 25600,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000, "max_position_embeddings": 40960, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["qwen2.5-0.5b"],
        r#"{"architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936, "hidden_size": 896, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "max_position_embeddings": 32768, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16"}"#,
    ),
    // Mistral-7B-v0.1.
    (
        &["mistral-7b"],
        r#"{"architectures": ["MistralForCausalLM"], "vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 32768, "sliding_window": 4096,
        "torch_dtype": "bfloat16"}"#,
    ),
    // Phi-3-mini-4k-instruct.
    (
        &["phi-3-mini"],
        r#"{"architectures": ["Phi3ForCausalLM"], "vocab_size": 32064, "hidden_size": 3072, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 8192, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 4096, "sliding_window": 2047, "torch_dtype": "bfloat16"}"#,
    ),
    // GLM-4-32B-0414.
    (
        &["glm-4-32b"],
        r#"{"architectures": ["Glm4ForCausalLM"], "vocab_size": 151552, "hidden_size": 6144, "num_hidden_layers": 61,
        "num_attention_heads": 48, "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 23040,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 32768, "attention_bias": false,
        "partial_rotary_factor": 0.5, "torch_dtype": "bfloat16"}"#,
    ),
    // OLMo-2-1124-13B.
    (
        &["olmo-2-13b"],
        r#"{"architectures": ["Olmo2ForCausalLM"], "vocab_size": 100352, "hidden_size": 5120, "num_hidden_layers": 40,
        "num_attention_heads": 40, "num_key_value_heads": 40, "intermediate_size": 13824, "rms_norm_eps": 1e-6,
        "rope_theta": 500000, "max_position_embeddings": 4096, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["gemma-2-27b"],
        r#"{"architectures": ["Gemma2ForCausalLM"], "vocab_size": 256000, "hidden_size": 4608, "num_hidden_layers": 46,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "intermediate_size": 36864,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 8192, "sliding_window": 4096,
        "query_pre_attn_scalar": 144, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["gemma-3-1b"],
        r#"{"architectures": ["Gemma3ForCausalLM"], "vocab_size": 262144, "hidden_size": 1152, "num_hidden_layers": 26,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 6912,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000, "rope_local_base_freq": 10000, "sliding_window": 512,
        "sliding_window_pattern": 6, "max_position_embeddings": 32768, "query_pre_attn_scalar": 256,
        "torch_dtype": "bfloat16"}"#,
    ),
];

#[cfg(test)]
mod tests {
    use super::ModelConfig;
    use crate::config::Family;

    #[test]
    fn sizes_are_the_published_ones() {
        for (name, billions) in [
            ("qwen-72b", 72.3),
            ("qwen2-72b", 72.7),
            ("qwen2.5-72b", 72.7),
            ("llama-3-70b", 70.6),
            ("qwen3-32b", 32.8),
            ("qwen2.5-0.5b", 0.494),
            ("mistral-7b", 7.24),
            ("phi-3-mini", 3.82),
            ("glm-4-32b", 32.6),
            ("olmo-2-13b", 13.7),
            ("gemma-2-27b", 27.2),
            ("gemma-3-1b", 1.0),
        ] {
            let config = ModelConfig::preset(name).unwrap();
            let actual = config.parameters().total as f64 / 1e9;
            assert!((actual - billions).abs() < 0.06, "{name}: {actual} is not {billions}");
        }
    }

    #[test]
    fn every_listed_name_is_known() {
        for name in ModelConfig::PRESETS {
            assert!(ModelConfig::preset(name).is_some(), "{name}");
        }
        assert_eq!(ModelConfig::preset("qwen-72B"), None);
    }

    #[test]
    fn bytes_per_token_of_the_kv_cache() {
        let per_token = |name: &str| {
            let config = ModelConfig::preset(name).unwrap();
            2 * config.layers * config.kv_width() * config.dtype.size_bytes()
        };
        assert_eq!(per_token("qwen-72b"), 2_621_440);
        assert_eq!(per_token("qwen2-72b"), 327_680);
        assert_eq!(per_token("llama-3-70b"), 327_680);
        assert_eq!(ModelConfig::preset("qwen-72b").unwrap().family, Family::named("qwen").unwrap());
    }
}
