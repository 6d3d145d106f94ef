//! Hunyuan V1 with mixtures of experts, such as Hunyuan-A13B: a shared expert without a gate.

use super::{ExpertTensors, FamilyTable, GroupKeys, Keys, MixtureKeys, MixtureLayers, OwnProgram};
use super::{Renormalised, SharedKeys, Tensors, WidthKeys, hunyuan_v1_dense};
use crate::config::layer::Scores;

pub(super) const TABLE: FamilyTable = FamilyTable {
    architecture: "HunYuanMoEV1ForCausalLM",
    model_type: "hunyuan_v1_moe",
    // The first files.
    other_model_types: &["hunyuan"],
    keys: Keys { own_program: OwnProgram::Named(PROGRAMS), ..hunyuan_v1_dense::TABLE.keys },
    mixture: Some(MIXTURE),
    tensors: Tensors { experts: EXPERTS, ..hunyuan_v1_dense::TABLE.tensors },
    ..hunyuan_v1_dense::TABLE
};

/// The programs of the first files. They drop tokens of full experts in long runs, although the
/// files have `moe_drop_tokens: false`. transformers and vLLM drop none.
const PROGRAMS: &[&str] = &[
    "hunyuan.HunYuanModel",
    "hunyuan.HunYuanMoEV1ForCausalLM",
    "modeling_hunyuan.HunYuanModel",
    "modeling_hunyuan.HunYuanMoEV1ForCausalLM",
];

const MIXTURE: MixtureKeys = MixtureKeys {
    experts: "num_experts",
    chosen: "moe_topk",
    width: WidthKeys::IntermediateAnd("moe_intermediate_size"),
    shared: SharedKeys::CountOrOne("num_shared_expert"),
    layers: MixtureLayers::All,
    scores: Scores::Softmax,
    has_logit_bias: false,
    has_choice_bias: false,
    groups: GroupKeys::None,
    renormalised: Renormalised::AlwaysOfSeveral,
    factor: None,
};

const EXPERTS: ExpertTensors = ExpertTensors {
    router: "mlp.gate.wg",
    shared_gate: "mlp.shared_mlp.gate_proj",
    shared_up: "mlp.shared_mlp.up_proj",
    shared_down: "mlp.shared_mlp.down_proj",
    ..ExpertTensors::COMMON
};
