//! Gemma 3, text only: Gemma 2 with normalised heads instead of caps, and another rotary base in
//! layers with a window.

use super::{Caps, FamilyTable, Keys, Layers, RotaryKeys, StandardRotary, Windows, gemma2, llama};
use crate::config::layer::QkNorm;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Gemma3ForCausalLM",
    model_type: "gemma3_text",
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
