//! Compares gathered keys and values with `--ring`, if cards share a sequence.

use ascend_tp::base::Diagnostics;
use ascend_tp::config::ModelConfig;
use ascend_tp::placement::Residual;
use ascend_tp::train::{Layout, Recompute};
use ascend_tp_machine::Element;

use super::job::Job;
use super::layer_on::{LayerCost, cost, layout};
use super::setting::JobSplit;

/// Costs of both ways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeysOn {
    /// Number of cards per sequence.
    pub cards: usize,
    /// Keys and values gathered before attention.
    pub gathered: LayerCost,
    /// Sent around a ring.
    pub ring: LayerCost,
    /// Gathered bytes per layer from other cards, kept for gradients. 0 if recomputed.
    pub kept_bytes: f64,
    /// Additional mask columns of the ring.
    pub mask_bytes: f64,
}

/// Returns both costs. `None` if each card has whole sequences, or for a model with experts.
///
/// # Errors
/// The compiler refuses a layout.
pub fn keys(config: &ModelConfig, job: &Job, setting: &JobSplit) -> Result<Option<KeysOn>, Diagnostics> {
    if setting.cp == 1 || job.decoder.experts.is_some() {
        return Ok(None);
    }
    let residual = if setting.sequence_parallel { Residual::Seq } else { Residual::Replicate };
    let of = |ring: bool| cost(config, job, &Layout { ring, residual, ..layout(setting) });
    let tokens = (setting.micro_batch * job.sequence) as f64;
    let width = job.decoder.kv_heads.div_ceil(setting.tp) * job.decoder.head_dim;
    let whole = 2.0 * Element::Bf16.bytes(tokens * width as f64);
    let own = (setting.cp as f64).recip();
    let is_kept = setting.recompute == Recompute::None;
    Ok(Some(KeysOn {
        cards: setting.cp,
        gathered: of(false)?,
        ring: of(true)?,
        kept_bytes: if is_kept { whole * (1.0 - own) } else { 0.0 },
        mask_bytes: tokens * job.sequence as f64 * own,
    }))
}
