//! Whether weights that two axes cut pay: a layer of the programs that `train` runs, on the clock.
//!
//! Input → output: a model, a job and a setting → what one more layer takes a micro-batch on the cards of the setting's `tp`, cut along
//! one axis and along rows and columns. Invariant: both residual streams are tried, and the better one counts. Does not: price a step with
//! it, whose lists are of other software; nor try depths, whose weights and exchanges are those of copies, which the search has.

use ascend_tp::base::Diagnostics;
use ascend_tp::config::ModelConfig;
use ascend_tp::placement::{Grid, Residual};
use ascend_tp::train::Layout;

use super::job::Job;
use super::layer_on::{LayerCost, cost, layout};
use super::setting::JobSplit;
use crate::serve::grid_rows;

/// What a layer takes on so many cards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerOn {
    /// Cards that share each layer.
    pub cards: usize,
    /// Of them, rows; 1: one axis.
    pub rows: usize,
    /// The better residual stream.
    pub residual: Residual,
    /// A layer and micro-batch, in microseconds.
    pub layer_us: f64,
    /// The part of it in which exchanges run and no operator.
    pub exposed_us: f64,
}

impl LayerOn {
    /// The axes of `--mesh`.
    #[must_use]
    pub fn axes(&self) -> String {
        match self.rows {
            1 => format!("tp={}", self.cards),
            rows => format!("tp_row={rows},tp_col={}", self.cards / rows),
        }
    }
}

/// One axis first, then every grid, the fastest first; `None` where the setting has no grid: on fewer than four cards, or where
/// several cards share a sequence.
///
/// # Errors
/// What the compiler refuses.
pub fn layers(config: &ModelConfig, job: &Job, setting: &JobSplit) -> Result<Option<Vec<LayerOn>>, Diagnostics> {
    let rows: Vec<usize> = grid_rows(setting.tp).collect();
    if rows.is_empty() || setting.cp > 1 {
        return Ok(None);
    }
    let line = layer(config, job, setting, 1)?;
    let mut grids = rows.into_iter().map(|rows| layer(config, job, setting, rows)).collect::<Result<Vec<_>, _>>()?;
    grids.sort_by(|a, b| a.layer_us.total_cmp(&b.layer_us));
    Ok(Some([vec![line], grids].concat()))
}

fn layer(config: &ModelConfig, job: &Job, setting: &JobSplit, rows: usize) -> Result<LayerOn, Diagnostics> {
    let of = |residual: Residual| {
        let layout = Layout { grid: Grid { rows, depth: 1 }, residual, ..layout(setting) };
        let LayerCost { layer_us, exposed_us, .. } = cost(config, job, &layout)?;
        Ok::<_, Diagnostics>(LayerOn { cards: setting.tp, rows, residual, layer_us, exposed_us })
    };
    let (whole, cut) = (of(Residual::Replicate)?, of(Residual::Seq)?);
    Ok(if whole.layer_us < cut.layer_us { whole } else { cut })
}
