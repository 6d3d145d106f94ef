//! Compares one and two tensor axes for one layer.
//!
//! The faster residual stream counts. Depths work like copies and are left out.

use ascend_tp::base::Diagnostics;
use ascend_tp::config::ModelConfig;
use ascend_tp::placement::{Grid, Residual};
use ascend_tp::train::Layout;

use super::job::Job;
use super::layer_on::{LayerCost, cost, layout};
use super::setting::JobSplit;
use crate::serve::grid_rows;

/// A layer on a grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerOn {
    /// Cards that share each layer.
    pub cards: usize,
    /// Grid rows; 1 without a grid.
    pub rows: usize,
    /// The faster residual stream.
    pub residual: Residual,
    /// Per layer and micro-batch.
    pub layer_us: f64,
    /// Time with collectives but no operators.
    pub exposed_us: f64,
}

impl LayerOn {
    /// Returns the axes for `--mesh`.
    #[must_use]
    pub fn axes(&self) -> String {
        match self.rows {
            1 => format!("tp={}", self.cards),
            rows => format!("tp_row={rows},tp_col={}", self.cards / rows),
        }
    }
}

/// Lists one axis, then every grid, fastest first. `None` on fewer than four cards, or if cards
/// share a sequence, or for a model with experts.
///
/// # Errors
/// The compiler refuses a layout.
pub fn layers(
    config: &ModelConfig,
    job: &Job,
    setting: &JobSplit,
) -> Result<Option<Vec<LayerOn>>, Diagnostics> {
    let rows: Vec<usize> = grid_rows(setting.tp).collect();
    if rows.is_empty() || setting.cp > 1 || job.decoder.experts.is_some() {
        return Ok(None);
    }
    let line = layer(config, job, setting, 1)?;
    let mut grids =
        rows.into_iter().map(|rows| layer(config, job, setting, rows)).collect::<Result<Vec<_>, _>>()?;
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
