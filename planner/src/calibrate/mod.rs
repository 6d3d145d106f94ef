//! Measures the coefficients of a chip on its cards.
//!
//! Operators and collectives run between two events, behind a long product that lets the host
//! enqueue ahead.
//!
//! - Invariants: all ranks run the same calls in the same order. Unmeasured coefficients keep the
//!   values of the given profile, and `origin` lists what was measured.

mod calls;
mod exchanges;
mod host;
mod kernels;
mod ranks;
mod sample;
#[cfg(test)]
mod tests;

pub use ranks::on_all_ranks;
pub use sample::{FitSearch, Sample, SampleKind, SampleTask, fit, fit_all, page_weight};

use std::sync::Arc;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::device::{self, Cann, Device};
use ascend_tp::exec::Clock;
use ascend_tp_machine::fit::rounded;
use ascend_tp_machine::{Profile, Topology};

/// Why a calibration failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// The request was refused.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// A card or its library failed.
    #[error(transparent)]
    Device(#[from] device::Error),
}

/// The cards to measure.
#[derive(Debug)]
pub struct MeasuredCards<'a> {
    /// The CANN library that opens the cards.
    pub cann: &'a Arc<Cann>,
    /// Cards, counted from ordinal 0. An ordinal is also the index in the topology.
    pub count: usize,
    /// Topology that connects the cards.
    pub topology: &'a Topology,
    /// Clock of the host thread.
    pub clock: &'a Clock,
}

/// Returns `base` with the measured coefficients replaced.
///
/// # Errors
/// There is no card, more cards than exist or than the topology connects, or a card fails.
pub fn calibrate(cards: &MeasuredCards<'_>, base: &Profile) -> Result<Profile, CalibrateError> {
    check(cards)?;
    let soc = base.soc;
    let mut profile = base.clone();
    let device = Device::open(cards.cann, 0)?;
    profile.coefficients.host = host::measure(&device, cards.clock, &base.coefficients.host)?;
    let mut samples = kernels::measure(&device, base)?;
    let kernels = samples.len();
    device.close()?;
    let (exchanges, collective_us) = exchanges::measure(cards, base)?;
    samples.extend(exchanges);
    profile.coefficients.host.collective_us = rounded(collective_us);
    profile.coefficients = fit_all(&profile.coefficients, &samples);
    profile.origin = format!(
        "measured on {} {soc}: {kernels} products, attentions and vector kernels, {} exchanges, calls of the host; grouped products \
         as in: {}",
        cards.count,
        samples.len() - kernels,
        base.origin
    );
    Ok(profile)
}

fn check(cards: &MeasuredCards<'_>) -> Result<(), CalibrateError> {
    let mut problems = Diagnostics::new();
    let known = [("of the toolkit", cards.cann.device_count()?), ("of the topology", cards.topology.cards())];
    for (whose, most) in known {
        if cards.count == 0 || cards.count > most {
            let problem = Diagnostic::new("--cards", format!("are not among those {whose}"));
            problems.push(problem.expected(format!("1 to {most}")).found(cards.count));
        }
    }
    Ok(problems.into_result(())?)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
