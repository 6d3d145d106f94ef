//! Qwen1.5 and Qwen2 with mixtures of experts: a shared expert with a gate.

use super::{ExpertTensors, FamilyTable, MixtureKeys, SharedKeys, Tensors, qwen2, qwen3_moe};

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "Qwen2MoeForCausalLM",
    model_type: "qwen2_moe",
    mixture: Some(MIXTURE),
    tensors: Tensors {
        experts: ExpertTensors {
            shared_gate: "mlp.shared_expert.gate_proj",
            shared_up: "mlp.shared_expert.up_proj",
            shared_down: "mlp.shared_expert.down_proj",
            ..ExpertTensors::COMMON
        },
        ..qwen2::TABLE.tensors
    },
    ..qwen2::TABLE
};

/// The mixture of Qwen3, and a shared expert with a gate.
pub(super) const MIXTURE: MixtureKeys =
    MixtureKeys { shared: SharedKeys::GatedWidth("shared_expert_intermediate_size"), ..qwen3_moe::MIXTURE };
