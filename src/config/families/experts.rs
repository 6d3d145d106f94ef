//! Facts about mixtures of experts: config keys, routers and names of tensors.

use crate::config::layer::Scores;

/// Config keys of the mixtures of a family, and facts about its router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MixtureKeys {
    /// Key of the number of routed experts. Files can have another name of [`EXPERTS`] instead.
    pub(crate) experts: &'static str,
    /// Key of the number of experts of a token. Files can have another name of [`CHOSEN`] instead.
    pub(crate) chosen: &'static str,
    /// Key of the width of a routed expert. `None`: `intermediate_size`.
    pub(crate) width: Option<&'static str>,
    /// The expert that every token passes.
    pub(crate) shared: SharedKeys,
    /// Layers with a mixture.
    pub(crate) layers: MixtureLayers,
    /// Function from logits to scores.
    pub(crate) scores: Scores,
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
pub(crate) const CHOSEN: &[&str] = &["num_experts_per_tok", "experts_per_token"];

/// The expert that every token passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedKeys {
    /// No such expert.
    None,
    /// The key is the width. A gate multiplies the result.
    GatedWidth(&'static str),
    /// The key is the width relative to a routed expert.
    Count(&'static str),
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
}

/// Renormalisation of the chosen scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Renormalised {
    /// Every file has it, with this number added to the sum.
    Always(f64),
    /// `norm_topk_prob` decides.
    Key {
        /// Value of a file without the key.
        absent: bool,
        /// Number that is added to the sum.
        added: f64,
    },
}

/// Names of the tensors of a mixture. `{}` stands for the number of an expert. Names of projections
/// are without `.weight`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertTensors {
    /// Projection to the router's logits, `[experts, hidden]`.
    pub(crate) router: &'static str,
    /// Bias of the choice, `[experts]`, always f32.
    pub(crate) choice_bias: &'static str,
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
    /// Returns the name of the tensor of one expert.
    pub(crate) fn of_expert(name: &str, expert: usize) -> String {
        name.replace("{}", &expert.to_string())
    }
}
