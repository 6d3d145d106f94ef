//! Whether keys and values that go from card to card pay, where several cards share a sequence.
//!
//! Input → output: a model, a job and a setting → a layer and micro-batch of the programs that `train` runs, with keys and values
//! gathered before attention and with `--ring`. Does not: price a step with it; the lists that are searched have other software's ring.

use ascend_tp::base::Diagnostics;
use ascend_tp::config::ModelConfig;
use ascend_tp::placement::Residual;
use ascend_tp::train::{Layout, Recompute};
use ascend_tp_machine::Element;

use super::job::Job;
use super::layer_on::{LayerCost, cost, layout};
use super::setting::JobSplit;

/// Both ways for keys and values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeysOn {
    /// Cards that share each sequence.
    pub cards: usize,
    /// Gathered before attention, and kept for gradients.
    pub gathered: LayerCost,
    /// From card to card.
    pub ring: LayerCost,
    /// What the gathered ones of a layer are more than a card's own; kept for gradients, unless they are gathered again.
    pub kept_bytes: f64,
    /// The columns of the mask, which the ring has once more.
    pub mask_bytes: f64,
}

/// What both take; `None` where a card has all of a sequence.
///
/// # Errors
/// What the compiler refuses.
pub fn keys(config: &ModelConfig, job: &Job, setting: &JobSplit) -> Result<Option<KeysOn>, Diagnostics> {
    if setting.cp == 1 {
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
