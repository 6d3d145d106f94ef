//! Whether weights that two axes cut pay: a layer of the programs that `train` runs, on the clock.
//!
//! Input → output: a model, a job and a setting → what one more layer takes a micro-batch on the cards of the setting's `tp`, cut along
//! one axis and along rows and columns. Invariants: each layout is compiled, with one layer and with more, and simulated; both residual
//! streams are tried, and the better one counts. Does not: price a step with it, whose lists are of other software; nor try depths, whose
//! weights and exchanges are those of copies, which the search has.

use ascend_tp::base::{Diagnostics, Kernels};
use ascend_tp::config::ModelConfig;
use ascend_tp::placement::{Grid, Residual};
use ascend_tp::schedule::Exchanges;
use ascend_tp::train::{Layout, Recipe, Recompute as Recomputed, lower, recipe};

use super::decoder::Job;
use super::setting::{JobSplit, Recomputation};
use crate::serve::grid_rows;
use crate::simulate::{Issue, Simulator};

/// Layers of the two programs whose difference is that of layers which are alike.
const LAYERS: [usize; 2] = [1, 3];

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
    let recipe = Recipe {
        seq: job.sequence,
        // Of two micro-batches the first moves no weight.
        global_batch: 2 * setting.micro_batch,
        precision: recipe::Precision::Bf16,
        ..Recipe::default()
    };
    let of = |residual: Residual| {
        let layout = Layout {
            tensor: setting.tp,
            grid: Grid { rows, depth: 1 },
            residual,
            micro_batch: setting.micro_batch,
            recompute: match setting.recompute {
                Recomputation::None => Recomputed::None,
                Recomputation::Selective => Recomputed::Selective,
                Recomputation::Full => Recomputed::Full,
            },
            ..Layout::ONE
        };
        let time = |layers: usize| {
            let config = ModelConfig { layers, ..config.clone() };
            let lowered = lower(&config, &recipe, &layout)?;
            let runs = lowered.runs(&recipe, &layout)?;
            let plans = runs[0].schedule(&recipe, &layout, Kernels::NONE, Exchanges::on(job.profile.soc))?;
            let on: Vec<usize> = (0..setting.tp).collect();
            Ok::<_, Diagnostics>(
                Simulator::new(&job.profile, &job.topology, &plans, &on, None).run(Issue::Eager).breakdown,
            )
        };
        let [few, more] = [time(LAYERS[0])?, time(LAYERS[1])?];
        let each = |few: f64, more: f64| (more - few) / (LAYERS[1] - LAYERS[0]) as f64;
        let (layer_us, exposed_us) = (each(few.duration_us, more.duration_us), each(few.exposed_us, more.exposed_us));
        Ok::<_, Diagnostics>(LayerOn { cards: setting.tp, rows, residual, layer_us, exposed_us })
    };
    let (whole, cut) = (of(Residual::Replicate)?, of(Residual::Seq)?);
    Ok(if whole.layer_us < cut.layer_us { whole } else { cut })
}
