//! Names of the tensors of latent attention.

/// Names of the tensors of latent attention. Names of projections are without `.weight`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatentTensors {
    /// Projection of the input to queries, of a model without a latent of queries.
    pub(crate) query: &'static str,
    /// Projection of the input to the latent of queries.
    pub(crate) query_down: &'static str,
    /// Norm of the latent of queries.
    pub(crate) query_norm: &'static str,
    /// Projection of the latent to queries.
    pub(crate) query_up: &'static str,
    /// Projection of the input to the latent of keys and values, and then to the rotated dims of
    /// the key.
    pub(crate) kv_down: &'static str,
    /// Norm of the latent of keys and values.
    pub(crate) kv_norm: &'static str,
    /// Projection of the latent to keys and values. The rows of a head are the dims of its key that
    /// are not rotated, and then the dims of its value.
    pub(crate) kv_up: &'static str,
}

impl LatentTensors {
    /// Names of `DeepSeek` V2 and of later models.
    pub(super) const DEEPSEEK: Self = Self {
        query: "self_attn.q_proj",
        query_down: "self_attn.q_a_proj",
        query_norm: "self_attn.q_a_layernorm.weight",
        query_up: "self_attn.q_b_proj",
        kv_down: "self_attn.kv_a_proj_with_mqa",
        kv_norm: "self_attn.kv_a_layernorm.weight",
        kv_up: "self_attn.kv_b_proj",
    };
}
