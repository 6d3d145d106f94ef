//! Published shapes of well-known models, for planning without a checkpoint.
//!
//! Input: a name. Output: [`ModelConfig`].
//!
//! Invariants: a preset equals the configuration that the model's own `config.json` parses to. The
//! texts below have the keys of the published files that the reader reads.
//!
//! Not here: weights and tokenizers.

use super::layer::{FeedForwardPart, Layer};
use super::model::ModelConfig;

impl ModelConfig {
    /// The `config.json` of the shipped checkpoint, which has 8 million parameters.
    #[doc(hidden)]
    pub const SHIPPED: &'static str = include_str!("../../models/kjv-qwen2/config.json");

    /// Returns the names that [`Self::preset`] knows.
    #[doc(hidden)]
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().flat_map(|(names, _)| names.iter().copied())
    }

    /// Returns the names of presets whose layers all have grouped attention and a dense
    /// feed-forward part. Training is planned for these.
    #[doc(hidden)]
    pub fn dense_presets() -> impl Iterator<Item = &'static str> {
        let is_dense = |layer: &Layer| {
            layer.grouped().is_some() && matches!(layer.feed_forward, FeedForwardPart::Dense { .. })
        };
        let has_dense_layers =
            move |name: &&str| Self::preset(name).is_some_and(|config| config.pattern.iter().all(is_dense));
        Self::presets().filter(has_dense_layers)
    }

    /// Returns the published shape of a model, or `None` if the name is unknown. The last words of
    /// a name can be left out if only one preset begins so.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        let begins = |known: &&str| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
        let whole = Self::presets().find(|known| *known == name);
        let name = whole.or_else(|| {
            let mut short = Self::presets().filter(begins);
            short.next().filter(|_| short.next().is_none())
        })?;
        let (_, text) = PRESETS.iter().find(|(names, _)| names.contains(&name))?;
        Self::from_json(text).ok()
    }
}

/// Names and files. Qwen2 and Qwen2.5 are without the optional `YaRN`.
const PRESETS: &[(&[&str], &str)] = &[
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
    (
        &["hunyuan-7b"],
        r#"{"architectures": ["HunYuanDenseV1ForCausalLM"], "vocab_size": 128167, "hidden_size": 4096,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 14336, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
        "max_position_embeddings": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["qwen3-30b-a3b"],
        r#"{"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144,
        "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "max_position_embeddings": 40960, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["qwen3-235b-a22b"],
        r#"{"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 94,
        "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 12288,
        "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "max_position_embeddings": 40960, "torch_dtype": "bfloat16"}"#,
    ),
    // Mixtral-8x7B-v0.1.
    (
        &["mixtral-8x7b"],
        r#"{"architectures": ["MixtralForCausalLM"], "vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "num_local_experts": 8,
        "num_experts_per_tok": 2, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "max_position_embeddings": 32768,
        "sliding_window": null, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["minimax-m2"],
        r#"{"architectures": ["MiniMaxM2ForCausalLM"], "vocab_size": 200064, "hidden_size": 3072, "num_hidden_layers": 62,
        "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "rotary_dim": 64,
        "intermediate_size": 1536, "num_local_experts": 256, "num_experts_per_tok": 8, "scoring_func": "sigmoid",
        "use_routing_bias": true, "use_qk_norm": true, "qk_norm_type": "per_layer", "rms_norm_eps": 1e-6,
        "rope_theta": 5000000, "max_position_embeddings": 196608, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["hunyuan-a13b"],
        r#"{"architectures": ["HunYuanMoEV1ForCausalLM"], "vocab_size": 128167, "hidden_size": 4096,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "attention_head_dim": 128,
        "intermediate_size": 3072, "moe_intermediate_size": 3072, "num_experts": 64, "moe_topk": 8,
        "num_shared_expert": 1, "use_mixed_mlp_moe": true, "use_qk_norm": true, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
        "max_position_embeddings": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["glm-4.5-air"],
        r#"{"architectures": ["Glm4MoeForCausalLM"], "vocab_size": 151552, "hidden_size": 4096, "num_hidden_layers": 46,
        "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "partial_rotary_factor": 0.5,
        "attention_bias": true, "use_qk_norm": false, "intermediate_size": 10944, "moe_intermediate_size": 1408,
        "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1,
        "norm_topk_prob": true, "routed_scaling_factor": 1.0, "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-5, "rope_theta": 1000000,
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["gpt-oss-20b"],
        r#"{"architectures": ["GptOssForCausalLM"], "vocab_size": 201088, "hidden_size": 2880, "num_hidden_layers": 24,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "attention_bias": true,
        "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4, "swiglu_limit": 7.0,
        "sliding_window": 128, "rms_norm_eps": 1e-5, "rope_theta": 150000,
        "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096,
            "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false},
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["deepseek-v2-lite"],
        r#"{"architectures": ["DeepseekV2ForCausalLM"], "vocab_size": 102400, "hidden_size": 2048, "num_hidden_layers": 27,
        "num_attention_heads": 16, "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 10944, "moe_intermediate_size": 1408,
        "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "n_group": 1, "topk_group": 1,
        "topk_method": "greedy", "norm_topk_prob": false, "routed_scaling_factor": 1.0, "first_k_dense_replace": 1,
        "rms_norm_eps": 1e-6, "rope_theta": 10000,
        "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
            "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707},
        "max_position_embeddings": 163840, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["deepseek-v3"],
        r#"{"architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 129280, "hidden_size": 7168, "num_hidden_layers": 61,
        "num_attention_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
        "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": true, "routed_scaling_factor": 2.5,
        "first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-6, "rope_theta": 10000,
        "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
            "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
        "max_position_embeddings": 163840, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["kimi-k2"],
        r#"{"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "vocab_size": 163840,
        "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 384, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc",
        "scoring_func": "sigmoid", "norm_topk_prob": true, "routed_scaling_factor": 2.827,
        "first_k_dense_replace": 1, "num_nextn_predict_layers": 0, "rms_norm_eps": 1e-6, "rope_theta": 50000.0,
        "rope_scaling": {"type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096,
            "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}"#,
    ),
    (
        &["qwen3-next-80b-a3b"],
        r#"{"architectures": ["Qwen3NextForCausalLM"], "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts": 512,
        "num_experts_per_tok": 10, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-6,
        "rope_theta": 10000000, "partial_rotary_factor": 0.25, "max_position_embeddings": 262144,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16"}"#,
    ),
    // The text tower, as the next ones.
    (
        &["qwen3.5-35b-a3b"],
        r#"{"architectures": ["Qwen3_5MoeForConditionalGeneration"], "tie_word_embeddings": false, "text_config": {
        "vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8,
        "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
        "attn_output_gate": true, "mtp_num_hidden_layers": 1, "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10], "mrope_interleaved": true},
        "max_position_embeddings": 262144, "dtype": "bfloat16"}}"#,
    ),
    (
        &["qwen3.5-27b"],
        r#"{"architectures": ["Qwen3_5ForConditionalGeneration"], "tie_word_embeddings": false, "text_config": {
        "vocab_size": 248320, "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 24,
        "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 17408, "full_attention_interval": 4,
        "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "attn_output_gate": true,
        "mtp_num_hidden_layers": 1, "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10], "mrope_interleaved": true},
        "max_position_embeddings": 262144, "dtype": "bfloat16"}}"#,
    ),
    (
        &["qwen3.5-9b"],
        r#"{"architectures": ["Qwen3_5ForConditionalGeneration"], "tie_word_embeddings": false, "text_config": {
        "vocab_size": 248320, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 12288, "full_attention_interval": 4,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "attn_output_gate": true,
        "mtp_num_hidden_layers": 1, "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10], "mrope_interleaved": true},
        "max_position_embeddings": 262144, "dtype": "bfloat16"}}"#,
    ),
];

#[cfg(test)]
mod tests {
    use super::ModelConfig;
    use crate::base::DType;
    use crate::config::Family;
    use crate::program::Role;
    use crate::program::models::{Head, RunShape, decoder};

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
            ("hunyuan-7b", 7.50),
            ("qwen3.5-35b-a3b", 34.7),
            ("qwen3.5-27b", 26.9),
            ("qwen3.5-9b", 8.95),
        ] {
            let config = ModelConfig::preset(name).unwrap();
            let actual = config.parameters().total as f64 / 1e9;
            assert!((actual - billions).abs() < 0.06, "{name}: {actual} is not {billions}");
        }
    }

    #[test]
    fn total_and_active_parameters_are_the_published_ones() {
        for (name, total, active) in [
            ("qwen3-30b-a3b", 30.5, 3.35),
            ("qwen3-235b-a22b", 235.1, 22.2),
            ("mixtral-8x7b", 46.7, 12.9),
            ("minimax-m2", 228.7, 11.0),
            ("hunyuan-a13b", 80.4, 12.75),
            ("glm-4.5-air", 106.9, 13.4),
            ("gpt-oss-20b", 20.9, 4.19),
            ("deepseek-v2-lite", 15.7, 2.66),
            ("deepseek-v3", 671.0, 37.6),
            ("kimi-k2", 1026.0, 32.9),
            ("qwen3-next-80b-a3b", 79.7, 3.87),
        ] {
            let parameters = ModelConfig::preset(name).unwrap().parameters();
            for (found, billions) in [(parameters.total, total), (parameters.active, active)] {
                let found = found as f64 / 1e9;
                assert!((found - billions).abs() <= 0.005 * billions, "{name}: {found} is not {billions}");
            }
        }
    }

    #[test]
    fn params_of_mixtures_are_the_listed_tensors() {
        let dense: Vec<&str> = ModelConfig::dense_presets().collect();
        for name in ModelConfig::presets().filter(|name| !dense.contains(name)) {
            let config = ModelConfig { layers: 4, ..ModelConfig::preset(name).unwrap() };
            let program = decoder(&config, RunShape::new(1, 2, 4), DType::BF16, Head::AllLogits).unwrap();
            let elems = |id| program.values[id].shape.elems();
            let params: usize = program.with_role(Role::Param).map(elems).sum();
            assert_eq!(params, config.parameters().total, "{name}");
        }
    }

    #[test]
    fn every_listed_name_is_known() {
        for name in ModelConfig::presets() {
            assert!(ModelConfig::preset(name).is_some(), "{name}");
        }
        assert_eq!(ModelConfig::presets().count(), 27);
        assert_eq!(ModelConfig::dense_presets().count(), 13);
        assert_eq!(ModelConfig::preset("qwen-72B"), None);
        let of = |name| ModelConfig::preset(name);
        assert!(of("qwen3-next-80b").is_some() && of("qwen3-next-80b") == of("qwen3-next-80b-a3b"));
        // Several presets begin with the first of these, and no word ends after the second.
        assert_eq!([of("qwen3.5"), of("qwen3-next-8")], [None, None]);
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
