//! Qwen3.5 and Qwen3.6, dense: Qwen3-Next without a mixture, and with separate projections.

use super::{Absent, DeltaTensors, FamilyTable, Keys, PredictionKeys, RotaryKeys, RotatedPart};
use super::{StandardRotary, Tensors, Tower, llama, qwen3, qwen3_next};

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Qwen3_5ForCausalLM",
    model_type: "qwen3_5_text",
    other_model_types: &["qwen3_5"],
    towers: &[Tower { architecture: "Qwen3_5ForConditionalGeneration", model_type: "qwen3_5", absent: "{}" }],
    keys: Keys {
        absent_kv_heads: Absent::Is(4),
        // The sections of positions in time, height and width are equal in a text.
        rotary: RotaryKeys::Standard(StandardRotary {
            part: RotatedPart::Factor(0.25),
            has_sections: true,
            ..llama::ROTARY
        }),
        prediction: Some(PredictionKeys { key: "mtp_num_hidden_layers", ..qwen3_next::PREDICTION }),
        ..qwen3_next::TABLE.keys
    },
    layers: qwen3_next::TABLE.layers,
    tensors: Tensors { delta: DeltaTensors::QWEN3_5, ..qwen3::TABLE.tensors },
    ..qwen3::TABLE
};
