//! Compressed gradient sums over data-parallel cards, and the settings that exclude them.
//!
//! Only matrices are compressed, because other weights are small. After the warm-up, the second
//! moments of `AdamW` are frozen. A weight then moves by a sum of first moments, so delayed
//! contributions count in full.
//!
//! The first moment is compressed, as in 1-bit Adam (arXiv 2102.02888). Each card adds its share of
//! the gradient to an equal share of the old moment. A single gradient is mostly noise, which one
//! bit and a mean magnitude represent badly. Compressing gradients instead raises the final loss of
//! the shipped recipe on four cards by 12 %.
//!
//! Before compression, a moment is divided by the root of the second moment. Compression errors are
//! then proportional to the update of a weight, and weights with rare gradients do not move by the
//! mean magnitude. Each step recomputes the root and its inverse, which saves two matrices per
//! weight.
//!
//! No card knows the norm of the whole gradient, so the clipping factor is frozen too. The first
//! moments are also clipped to the norm of the recipe.

use serde::{Deserialize, Serialize};

use crate::base::{Diagnostic, Diagnostics};
use crate::program::compress::Compression;

use super::compile::Layout;
use super::layouts::Zero;
use super::optimizer::Optimizer;
use super::recipe::{Recipe, TrainingPrecision};

/// Settings of compressed gradient sums.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compress {
    /// Compression method: `onebit`, or `topk=` with a share.
    pub by: Compression,
    /// Steps before compression begins, by default three fifths of all.
    pub warmup_steps: Option<usize>,
}

impl Compress {
    /// Returns the number of uncompressed steps out of `steps`, at least one for the second
    /// moments.
    ///
    /// The default is three fifths, because delayed contributions do harm while learning rates are
    /// large. With one bit and the shipped recipe on four cards, the final loss is 2.1 % higher
    /// after a fifth of the steps, 1.15 % after half and 0.9 % after three fifths.
    #[must_use]
    pub fn warmup(&self, steps: usize) -> usize {
        self.warmup_steps.unwrap_or(3 * steps / 5).max(1)
    }
}

pub(super) fn check(recipe: &Recipe, layout: &Layout) -> Result<(), Diagnostics> {
    let Some(Compress { by, .. }) = recipe.compress else { return Ok(()) };
    let mut problems = Diagnostics::new();
    let mut refuse = |is_so: bool, what: &str, expected: &str, found: String, help: &str| {
        if is_so {
            problems.push(Diagnostic::new("--compress", what).expected(expected).found(found).help(help));
        }
    };
    let cards = layout.data * layout.context * layout.grid.depth;
    refuse(
        matches!(recipe.optimizer, Optimizer::Sgd { momentum, .. } if momentum == 0.0),
        "compression needs the mean of many gradients, because a single gradient is mostly noise",
        "a momentum above 0",
        "sgd without momentum".to_owned(),
        "set a momentum in [optimizer], or use adamw",
    );
    refuse(
        matches!(recipe.optimizer, Optimizer::Sgd { weight_decay, .. } if weight_decay > 0.0),
        "cards sum moments, and sgd adds no weight decay after the sum",
        "a weight decay of 0",
        "sgd with weight decay".to_owned(),
        "set weight_decay to 0, or use adamw",
    );
    refuse(
        recipe.exact,
        "the compression error depends on the number of cards, so sums are not exact",
        "a run without --exact",
        "--exact".to_owned(),
        "remove one of the two",
    );
    refuse(
        layout.zero != Zero::None,
        "each card needs the whole weight, and its gather in f32 costs more than compression saves",
        "--zero 0",
        format!("--zero {}", layout.zero as u8),
        "remove one of the two",
    );
    refuse(
        recipe.precision == TrainingPrecision::F16,
        "gradients of a scaled loss may overflow, and the compression error would keep the overflow",
        "--dtype bf16 or f32",
        "f16".to_owned(),
        "bf16 needs no scale",
    );
    if let Compression::TopK { share } = by {
        refuse(
            !by.compresses(cards),
            "each card sends values and positions to all other cards, as much as the whole sum",
            &format!("a share below {}", (cards as f64).recip()),
            share.to_string(),
            "use a smaller share, or onebit, with a constant number of bytes",
        );
    }
    problems.into_result(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_is_what_is_said_or_three_fifths_and_one_step_at_least() {
        let warmup = |warmup_steps, steps| Compress { by: Compression::OneBit, warmup_steps }.warmup(steps);
        assert_eq!([warmup(None, 240), warmup(None, 7), warmup(None, 1)], [144, 4, 1]);
        assert_eq!([warmup(Some(48), 240), warmup(Some(0), 240)], [48, 1]);
    }
}
