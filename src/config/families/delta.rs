//! Facts about the gated delta rule: config keys and names of tensors.

/// Config keys of layers with the gated delta rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaKeys {
    /// Key of the number of key heads.
    pub(crate) key_heads: &'static str,
    /// Key of the number of value heads.
    pub(crate) value_heads: &'static str,
    /// Key of the dims of a key head.
    pub(crate) key_dims: &'static str,
    /// Key of the dims of a value head.
    pub(crate) value_dims: &'static str,
    /// Key of the number of tokens that the convolution reads.
    pub(crate) convolution: &'static str,
    /// Key of the distance of layers with softmax attention, of a file without `layer_types`.
    pub(crate) interval: &'static str,
    /// Distance of a file without the key.
    pub(crate) absent_interval: usize,
}

impl DeltaKeys {
    /// Keys of Qwen3-Next and Qwen3.5.
    pub(super) const QWEN: Self = Self {
        key_heads: "linear_num_key_heads",
        value_heads: "linear_num_value_heads",
        key_dims: "linear_key_head_dim",
        value_dims: "linear_value_head_dim",
        convolution: "linear_conv_kernel_dim",
        interval: "full_attention_interval",
        absent_interval: 4,
    };
}

/// Names of the tensors of the gated delta rule. Names of projections are without `.weight`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaTensors {
    /// Projections of the input.
    pub(crate) inputs: DeltaInputs,
    /// Weight of the convolution, `[channels, 1, tokens]`: the channels of all queries, of all
    /// keys, and of all values. The last tap multiplies the current token.
    pub(crate) convolution: &'static str,
    /// Logarithm of the decay rate of each value head, f32.
    pub(crate) decay: &'static str,
    /// Bias of the step size of each value head.
    pub(crate) step_bias: &'static str,
    /// Norm of the heads, with one factor for each dim of a value head.
    pub(crate) norm: &'static str,
    /// Projection of the heads to the output.
    pub(crate) out: &'static str,
}

/// Projections of the input of the gated delta rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeltaInputs {
    /// Two tensors with the rows of one key head after another. A key head has the rows of its
    /// query, its key, its values, and the gates of its values. In the second tensor it has the
    /// rows of the write strengths, and of the step sizes.
    ByKeyHead {
        /// Queries, keys, values and gates.
        vectors: &'static str,
        /// Write strengths and step sizes, one number of each per value head.
        scalars: &'static str,
    },
    /// Four tensors. The first one has the rows of all queries, of all keys, and of all values.
    Sections {
        /// Queries, keys and values.
        vectors: &'static str,
        /// Gates.
        gates: &'static str,
        /// Write strengths.
        strengths: &'static str,
        /// Step sizes.
        steps: &'static str,
    },
}

impl DeltaTensors {
    /// Names of Qwen3-Next.
    pub(super) const QWEN3_NEXT: Self = Self {
        inputs: DeltaInputs::ByKeyHead {
            vectors: "linear_attn.in_proj_qkvz",
            scalars: "linear_attn.in_proj_ba",
        },
        convolution: "linear_attn.conv1d.weight",
        decay: "linear_attn.A_log",
        step_bias: "linear_attn.dt_bias",
        norm: "linear_attn.norm.weight",
        out: "linear_attn.out_proj",
    };
    /// Names of Qwen3.5.
    pub(super) const QWEN3_5: Self = Self {
        inputs: DeltaInputs::Sections {
            vectors: "linear_attn.in_proj_qkv",
            gates: "linear_attn.in_proj_z",
            strengths: "linear_attn.in_proj_b",
            steps: "linear_attn.in_proj_a",
        },
        ..Self::QWEN3_NEXT
    };
}
