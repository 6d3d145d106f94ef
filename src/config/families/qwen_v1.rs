//! The original Qwen, with fused attention weights and its own tensor names.

use super::{Absent, Bias, FamilyTable, Intermediate, Keys, Layers, OwnProgram, Projections, RotaryKeys};
use super::{Tensors, Windows, llama};

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "QWenLMHeadModel",
    model_type: "qwen",
    keys: Keys {
        head_dim: "kv_channels",
        absent_head_dim: Absent::Problem,
        kv_heads: None,
        heads_fill_hidden: true,
        intermediate: Intermediate::Both,
        norm_epsilon: "layer_norm_epsilon",
        rotary: RotaryKeys::QwenV1,
        own_program: OwnProgram::Ignored,
        ..llama::TABLE.keys
    },
    layers: Layers {
        // `no_bias` concerns all projections but these.
        qkv_bias: Bias::Always,
        output_bias: Bias::Unless("no_bias"),
        mlp_bias: Bias::Unless("no_bias"),
        windows: Windows::ByFlag,
        ..llama::TABLE.layers
    },
    tensors: Tensors {
        layer_prefix: "transformer.h.",
        embedding: "transformer.wte.weight",
        attention_norm: "ln_1.weight",
        qkv: Projections::Fused("attn.c_attn"),
        attention_out: "attn.c_proj",
        mlp_norm: "ln_2.weight",
        // `w2` is the gate.
        gate_up: Projections::Each(["mlp.w2", "mlp.w1"]),
        down: "mlp.c_proj",
        final_norm: "transformer.ln_f.weight",
        ..llama::TABLE.tensors
    },
    ..llama::TABLE
};
