//! Facts about mixtures of experts: config keys, routers and names of tensors.

use crate::config::layer::Scores;

/// Config keys of the mixtures of a family, and facts about its router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MixtureKeys {
    /// Key of the number of routed experts. Files can have another name of [`EXPERTS`] instead.
    pub(crate) experts: &'static str,
    /// Key of the number of experts of a token. Files can have another name of [`CHOSEN`] instead.
    pub(crate) chosen: &'static str,
    /// Key of the width of a routed expert.
    pub(crate) width: WidthKeys,
    /// The expert that every token passes.
    pub(crate) shared: SharedKeys,
    /// Layers with a mixture.
    pub(crate) layers: MixtureLayers,
    /// Function from logits to scores.
    pub(crate) scores: Scores,
    /// Whether the router has a bias.
    pub(crate) has_logit_bias: bool,
    /// Whether a bias is added to the scores for the choice alone.
    pub(crate) has_choice_bias: bool,
    /// Groups of experts.
    pub(crate) groups: GroupKeys,
    /// Meaning of `norm_topk_prob`.
    pub(crate) renormalised: Renormalised,
    /// Key of the factor of the weights. `None`: the factor is 1.
    pub(crate) factor: Option<&'static str>,
}

/// Names of the number of routed experts.
pub(crate) const EXPERTS: &[&str] = &["num_experts", "num_local_experts", "n_routed_experts"];

/// Names of the number of experts of a token.
pub(crate) const CHOSEN: &[&str] = &["num_experts_per_tok", "experts_per_token", "moe_topk"];

/// Key of the width of a routed expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WidthKeys {
    /// The key is `intermediate_size`.
    Intermediate,
    /// The key is `intermediate_size`. A file can have the same number under this key too.
    IntermediateAnd(&'static str),
    /// This key.
    Key(&'static str),
}

/// The expert that every token passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedKeys {
    /// No such expert.
    None,
    /// The key is the width. A gate multiplies the result.
    GatedWidth(&'static str),
    /// The key is the width relative to a routed expert.
    Count(&'static str),
    /// As [`Self::Count`]. The width of a file without the key is that of a routed expert.
    CountOrOne(&'static str),
}

/// Layers with a mixture. The other layers are dense, of the width `intermediate_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MixtureLayers {
    /// All layers.
    All,
    /// Every nth layer by `decoder_sparse_step`, except for the layers in `mlp_only_layers`.
    Steps,
    /// All layers from number `first_k_dense_replace` on.
    FromFirst,
}

/// Groups of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupKeys {
    /// No groups.
    None,
    /// `n_group` groups, of which a token uses `topk_group`. The score of a group is the sum of
    /// this number of largest scores.
    Always(usize),
    /// The same, if `topk_method` is `group_limited_greedy`. The default is `greedy`, without
    /// groups.
    ByMethod(usize),
}

/// Renormalisation of the chosen scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Renormalised {
    /// No file has it.
    Never,
    /// Every file has it, with this number added to the sum.
    Always(f64),
    /// Every file has it. A file with one expert per token is refused. Its weight is 1 in some
    /// programs, and the score in other programs.
    AlwaysOfSeveral,
    /// `norm_topk_prob` decides.
    Key {
        /// Value of a file without the key.
        absent: bool,
        /// Number that is added to the sum.
        added: f64,
    },
}

/// Storage of the routed experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertStack {
    /// Each expert has separate weights. `{}` in a name stands for the number of the expert.
    Separate,
    /// One tensor has the weights of all experts, `[experts, inputs, outputs]`. Even outputs of the
    /// first projection are the gate, and odd ones are the up projection. Biases have the suffix
    /// `_bias`.
    Interleaved,
}

/// Names of the tensors of a mixture. Names of projections are without `.weight`, except for
/// interleaved ones, which have no such suffix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertTensors {
    /// Projection to the router's logits, `[experts, hidden]`.
    pub(crate) router: &'static str,
    /// Bias of the choice, `[experts]`, always f32.
    pub(crate) choice_bias: &'static str,
    /// Storage of the routed experts.
    pub(crate) stack: ExpertStack,
    /// Gate projection of a routed expert.
    pub(crate) gate: &'static str,
    /// Up projection of a routed expert.
    pub(crate) up: &'static str,
    /// Down projection of a routed expert.
    pub(crate) down: &'static str,
    /// Gate projection of the shared expert.
    pub(crate) shared_gate: &'static str,
    /// Up projection of the shared expert.
    pub(crate) shared_up: &'static str,
    /// Down projection of the shared expert.
    pub(crate) shared_down: &'static str,
    /// Projection to the gate of the shared expert, `[1, hidden]`.
    pub(crate) shared_weight: &'static str,
}

impl ExpertTensors {
    /// Names of most families.
    pub(super) const COMMON: Self = Self {
        router: "mlp.gate",
        choice_bias: "mlp.gate.e_score_correction_bias",
        stack: ExpertStack::Separate,
        gate: "mlp.experts.{}.gate_proj",
        up: "mlp.experts.{}.up_proj",
        down: "mlp.experts.{}.down_proj",
        shared_gate: "mlp.shared_experts.gate_proj",
        shared_up: "mlp.shared_experts.up_proj",
        shared_down: "mlp.shared_experts.down_proj",
        shared_weight: "mlp.shared_expert_gate",
    };

    /// Returns the name of the tensor of one expert.
    pub(crate) fn of_expert(name: &str, expert: usize) -> String {
        name.replace("{}", &expert.to_string())
    }
}
