//! Llama 2 and 3, and the base of other tables.

use super::{Absent, ActivationKeys, Bias, Caps, DeltaTensors, ExpertTensors, FamilyTable, Intermediate};
use super::{Keys, LatentTensors, Layers, OwnProgram, Projections, RotaryKeys, RotatedPart, StandardRotary};
use super::{Tensors, Windows};
use crate::config::layer::{NormPlaces, NormWeight};
use crate::config::rope::RotaryPairing;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "LlamaForCausalLM",
    model_type: "llama",
    other_model_types: &[],
    towers: &[],
    keys: Keys {
        head_dim: "head_dim",
        absent_head_dim: Absent::Derived,
        kv_heads: Some("num_key_value_heads"),
        // The first files have no such key.
        absent_kv_heads: Absent::Derived,
        is_latent: false,
        heads_fill_hidden: false,
        intermediate: Intermediate::Each,
        norm_epsilon: "rms_norm_eps",
        rotary: RotaryKeys::Standard(ROTARY),
        has_final_positions: false,
        tied: false,
        prediction: None,
        own_program: OwnProgram::Refused,
    },
    layers: Layers {
        qkv_bias: Bias::If("attention_bias"),
        output_bias: Bias::If("attention_bias"),
        mlp_bias: Bias::If("mlp_bias"),
        qk_norm: None,
        qk_norm_key: None,
        has_sinks: false,
        output_gate: None,
        windows: Windows::None,
        delta: None,
        query_scalar: None,
        caps: Caps::None,
        activation: ActivationKeys::Silu,
        norms: NormPlaces::Before,
        norm_weight: NormWeight::Factor,
        scales_embedding: false,
    },
    mixture: None,
    tensors: Tensors {
        layer_prefix: "model.layers.",
        embedding: "model.embed_tokens.weight",
        attention_norm: "input_layernorm.weight",
        attention_norm_after: "post_attention_layernorm.weight",
        qkv: Projections::Each(["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
        query_norm: "self_attn.q_norm.weight",
        key_norm: "self_attn.k_norm.weight",
        latent: LatentTensors::DEEPSEEK,
        delta: DeltaTensors::QWEN3_NEXT,
        sinks: "self_attn.sinks",
        attention_out: "self_attn.o_proj",
        mlp_norm: "post_attention_layernorm.weight",
        mlp_norm_after: "post_feedforward_layernorm.weight",
        gate_up: Projections::Each(["mlp.gate_proj", "mlp.up_proj"]),
        down: "mlp.down_proj",
        experts: ExpertTensors::COMMON,
        final_norm: "model.norm.weight",
        head: "lm_head.weight",
    },
};

/// Whole heads, rotated in halves, with base 10000 in files that name none.
pub(super) const ROTARY: StandardRotary = StandardRotary {
    absent_theta: Some(10_000.0),
    part: RotatedPart::Whole,
    pairing: RotaryPairing::Halves,
    interleave: None,
    local_theta: None,
    needs_scaling: false,
    has_sections: false,
    has_alpha: false,
};
