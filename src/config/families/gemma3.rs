//! Gemma 3: Gemma 2 with normalised heads instead of caps, and another rotary base in
//! layers with a window.

use super::{Caps, FamilyTable, Keys, Layers, RotaryKeys, StandardRotary, Tower, Windows, gemma2, llama};
use crate::config::layer::QkNorm;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Gemma3ForCausalLM",
    model_type: "gemma3_text",
    towers: &[Tower {
        architecture: "Gemma3ForConditionalGeneration",
        model_type: "gemma3",
        // Published files have only the sizes that differ from those of the class.
        absent: r#"{"vocab_size": 262208, "num_attention_heads": 8, "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6}"#,
    }],
    keys: Keys {
        rotary: RotaryKeys::Standard(StandardRotary {
            absent_theta: Some(1e6),
            local_theta: Some(10_000.0),
            ..llama::ROTARY
        }),
        has_final_positions: true,
        ..gemma2::TABLE.keys
    },
    layers: Layers {
        qk_norm: Some(QkNorm::PerHead),
        windows: Windows::AllBut { nth: 6, absent: Some(4096) },
        caps: Caps::Keys { absent_scores: None, absent_logits: None },
        ..gemma2::TABLE.layers
    },
    ..gemma2::TABLE
};
