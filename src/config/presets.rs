//! The published shapes of well-known models, for planning without a checkpoint.
//!
//! Input → output: a name → [`ModelConfig`]. Invariants: each is what the model's own `config.json`
//! parses to. It holds no weights and no tokenizers.

use super::model::{Family, ModelConfig};
use super::rope::Rope;
use crate::base::DType;

impl ModelConfig {
    /// The `config.json` of the checkpoint that ships, of 8 million parameters.
    pub const SHIPPED: &'static str = include_str!("../../models/kjv-qwen2/config.json");

    /// The names that [`Self::preset`] knows.
    pub const PRESETS: [&'static str; 6] =
        ["qwen-72b", "qwen2-72b", "qwen2.5-72b", "llama-3-70b", "qwen3-32b", "qwen2.5-0.5b"];

    /// The published shape of a model, or `None` if the name is not one of [`Self::PRESETS`].
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "qwen-72b" => Some(qwen_72b()),
            "qwen2-72b" | "qwen2.5-72b" => Some(qwen2_72b()),
            "llama-3-70b" => Some(llama_3_70b()),
            "qwen3-32b" => Some(qwen3_32b()),
            "qwen2.5-0.5b" => Some(qwen2_500m()),
            _ => None,
        }
    }
}

/// The original Qwen-72B: every query head has its own key and value; no dynamic NTK and no logn,
/// only a larger base.
const fn qwen_72b() -> ModelConfig {
    ModelConfig {
        family: Family::QwenV1,
        vocab_size: 152_064,
        hidden_size: 8192,
        layers: 80,
        heads: 64,
        kv_heads: 64,
        head_dim: 128,
        intermediate_size: 24_576,
        norm_epsilon: 1e-6,
        rope: Rope::plain(1e6),
        logn: None,
        max_positions: 32_768,
        tied_embeddings: false,
        qkv_bias: true,
        output_bias: false,
        mlp_bias: false,
        qk_norm: false,
        dtype: DType::BF16,
    }
}

/// Qwen2-72B and Qwen2.5-72B, without the optional `YaRN`.
const fn qwen2_72b() -> ModelConfig {
    ModelConfig { family: Family::Qwen2, kv_heads: 8, intermediate_size: 29_568, ..qwen_72b() }
}

const fn llama_3_70b() -> ModelConfig {
    ModelConfig {
        family: Family::Llama,
        vocab_size: 128_256,
        kv_heads: 8,
        intermediate_size: 28_672,
        norm_epsilon: 1e-5,
        rope: Rope::plain(5e5),
        max_positions: 8192,
        qkv_bias: false,
        ..qwen_72b()
    }
}

/// Qwen3-32B: 64 heads of 128 dims on a residual stream of 5120.
const fn qwen3_32b() -> ModelConfig {
    ModelConfig {
        family: Family::Qwen3,
        vocab_size: 151_936,
        hidden_size: 5120,
        layers: 64,
        kv_heads: 8,
        intermediate_size: 25_600,
        max_positions: 40_960,
        qkv_bias: false,
        qk_norm: true,
        ..qwen_72b()
    }
}

/// Qwen2.5-0.5B: 14 heads of 64 dims on two key heads, and one table for both ends.
const fn qwen2_500m() -> ModelConfig {
    ModelConfig {
        family: Family::Qwen2,
        vocab_size: 151_936,
        hidden_size: 896,
        layers: 24,
        heads: 14,
        kv_heads: 2,
        head_dim: 64,
        intermediate_size: 4864,
        tied_embeddings: true,
        ..qwen_72b()
    }
}

#[cfg(test)]
mod tests {
    use super::{Family, ModelConfig};

    /// Elements of all weights.
    fn parameters(config: &ModelConfig) -> usize {
        let hidden = config.hidden_size;
        let attention = hidden * (2 * config.query_width() + 2 * config.kv_width());
        let bias = if config.qkv_bias { config.query_width() + 2 * config.kv_width() } else { 0 };
        let head_norms = if config.qk_norm { 2 * config.head_dim } else { 0 };
        let layer = attention + bias + head_norms + 3 * hidden * config.intermediate_size + 2 * hidden;
        let tables = if config.tied_embeddings { 1 } else { 2 };
        config.layers * layer + tables * config.vocab_size * hidden + hidden
    }

    #[test]
    fn sizes_are_the_published_ones() {
        for (name, billions) in [
            ("qwen-72b", 72.3),
            ("qwen2-72b", 72.7),
            ("qwen2.5-72b", 72.7),
            ("llama-3-70b", 70.6),
            ("qwen3-32b", 32.8),
            ("qwen2.5-0.5b", 0.494),
        ] {
            let config = ModelConfig::preset(name).unwrap();
            let actual = parameters(&config) as f64 / 1e9;
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
        assert_eq!(ModelConfig::preset("qwen-72b").unwrap().family, Family::QwenV1);
    }
}
