//! A chip's coefficients, measured on its cards in minutes.
//!
//! Input → output: cards behind the C ABI, how they are joined and a clock → a [`Profile`] that `plan`, `rehearse` and the emulator
//! take. Operators and exchanges are enqueued again and again behind work that keeps the card busy while the host runs ahead, between
//! two events; calls of the host are timed by the clock. What each took is a sample as a measured row is, and is fitted as rows are.
//!
//! Invariants: the same calls on every card, in an order that all ranks share; what no bench says stays as it is in the profile that
//! was given, and the origin says what was measured. Does not: check results, or measure links (a topology's figures are facts here).

mod calls;
mod exchanges;
mod host;
mod kernels;
mod ranks;
#[cfg(test)]
mod tests;

pub use ranks::on_all_ranks;

use std::sync::Arc;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::device::{self, Cann, Device};
use ascend_tp::exec::Clock;
use ascend_tp_machine::{Profile, Topology};

use crate::points::rounded;
use crate::validate::fit_samples;

/// The failure of a calibration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// Found before anything ran.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// A card or its library failed.
    #[error(transparent)]
    Device(#[from] device::Error),
}

/// Cards to measure.
#[derive(Debug)]
pub struct MeasuredCards<'a> {
    /// The CANN library that opens them.
    pub cann: &'a Arc<Cann>,
    /// How many: those with the first ordinals, which are their places in the topology.
    pub count: usize,
    /// How they are joined.
    pub topology: &'a Topology,
    /// The time of a thread.
    pub clock: &'a Clock,
}

/// Measures cards: `base`, which is of their chip, with all that the benches say in the place of its own.
///
/// # Errors
/// No card, more than there are, or more than the topology joins; or a card fails.
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
    profile.coefficients = fit_samples(&profile.coefficients, &samples);
    profile.origin = format!(
        "measured on {} {soc}: {kernels} products, attentions and vector kernels, {} exchanges, calls of the host; grouped products \
         as in: {}",
        cards.count,
        samples.len() - kernels,
        base.origin
    );
    Ok(profile)
}

/// Everything that is wrong with the number of cards.
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

/// The middle of some figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
