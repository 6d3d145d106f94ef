//! Checkpoint tensor names by family. The paths are those of the published checkpoints.

use crate::config::Family;

/// Names of one family. Layer names follow `layer_prefix` and the layer's number.
#[derive(Debug)]
pub(super) struct Names {
    layer_prefix: &'static str,
    pub(super) embedding: &'static str,
    pub(super) attention_norm: &'static str,
    /// One tensor for q, k and v; else three `self_attn.{q,k,v}_proj`.
    pub(super) fused_qkv: Option<&'static str>,
    pub(super) attention_out: &'static str,
    pub(super) mlp_norm: &'static str,
    /// The half that `SiLU` is applied to.
    pub(super) gate: &'static str,
    pub(super) up: &'static str,
    pub(super) down: &'static str,
    pub(super) final_norm: &'static str,
    pub(super) head: &'static str,
}

static LLAMA: Names = Names {
    layer_prefix: "model.layers.",
    embedding: "model.embed_tokens.weight",
    attention_norm: "input_layernorm.weight",
    fused_qkv: None,
    attention_out: "self_attn.o_proj",
    mlp_norm: "post_attention_layernorm.weight",
    gate: "mlp.gate_proj",
    up: "mlp.up_proj",
    down: "mlp.down_proj",
    final_norm: "model.norm.weight",
    head: "lm_head.weight",
};

/// In the original Qwen `w2` is the gate and `w1` the other half.
static QWEN_V1: Names = Names {
    layer_prefix: "transformer.h.",
    embedding: "transformer.wte.weight",
    attention_norm: "ln_1.weight",
    fused_qkv: Some("attn.c_attn"),
    attention_out: "attn.c_proj",
    mlp_norm: "ln_2.weight",
    gate: "mlp.w2",
    up: "mlp.w1",
    down: "mlp.c_proj",
    final_norm: "transformer.ln_f.weight",
    head: "lm_head.weight",
};

impl Names {
    pub(super) const fn of(family: Family) -> &'static Self {
        match family {
            Family::QwenV1 => &QWEN_V1,
            Family::Qwen2 | Family::Qwen3 | Family::Llama => &LLAMA,
        }
    }

    /// Last parts of the names of the linear layers but the head.
    pub(super) fn linear(&self) -> Vec<&'static str> {
        let attention =
            self.fused_qkv.map_or_else(|| vec!["q_proj", "k_proj", "v_proj"], |fused| vec![fused]);
        let all = attention.into_iter().chain([self.attention_out, self.gate, self.up, self.down]);
        let mut last: Vec<&str> = all.map(|name| name.rsplit('.').next().unwrap_or(name)).collect();
        last.dedup();
        last
    }

    pub(super) fn layer(&self, layer: usize, path: &str) -> String {
        format!("{}{layer}.{path}", self.layer_prefix)
    }
}

/// Returns the name of the embedding's tensor.
#[must_use]
pub const fn embedding_tensor(family: Family) -> &'static str {
    Names::of(family).embedding
}

/// Endings of tensors that checkpoints carry and no program needs: buffers that are computed from
/// config.json.
pub const IGNORED_TENSORS: [&str; 3] = ["rotary_emb.inv_freq", "attn.masked_bias", "attn.bias"];

/// The layer that a value, param or state name belongs to, as messages give it.
#[must_use]
pub fn layer_of(name: &str) -> Option<usize> {
    ["model.layers.", "transformer.h.", "layers.", "residual."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .and_then(|rest| rest.split('.').next())
        .and_then(|number| number.parse().ok())
}
