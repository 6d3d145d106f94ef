//! What a model would do on cards, before anyone has them.
//!
//! Input → output: a [`Setting`] (model, cards, chip, topology, sizes) → a [`Rehearsal`]: the plans
//! that a session compiles, run by the executor that runs them on cards, on an emulator that keeps
//! a virtual clock and no numbers. From it a [`RehearsalReport`] (bytes, times, shares, tables), a
//! trace for Perfetto, and a page of [`html`]. [`train`] does the same for a step of training.
//!
//! Invariants: nothing about time is computed here, it is read from the clock; bytes are those the
//! card accounts for; the same setting gives the same report, byte for byte. What does not fit is
//! refused before anything runs, with what would. Does not: read weights, sample tokens, or measure
//! this host.

mod error;
pub mod html;
mod memory;
mod report;
mod run;
mod setting;
mod stage;
mod table;
pub mod train;

pub use error::Error;
pub use memory::RehearsalMemory;
pub use report::{PhaseReport, RehearsalReport, StepLimits, TokenTimes};
pub use run::Recorded;
pub use setting::{MOST_CARDS, Setting, Site};
pub use table::{CollectiveRow, OperatorRow};

use std::io;

use serde_json::json;

use ascend_tp::timeline::trace::Trace;

/// A setting, and what its rehearsal saw.
#[derive(Debug)]
pub struct Rehearsal {
    /// What was rehearsed.
    pub setting: Setting,
    /// What was seen.
    pub recorded: Recorded,
}

impl Rehearsal {
    /// Rehearses a setting.
    ///
    /// # Errors
    /// Sizes that mean nothing, all of them; a model that does not fit, with the nearest settings
    /// that do; or what the emulated cards refuse.
    pub fn run(setting: &Setting) -> Result<Self, Error> {
        setting.check()?;
        Ok(Self { setting: setting.clone(), recorded: run::run(setting)? })
    }

    /// Writes what was seen as a trace that Perfetto opens.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_trace(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let Setting { name, site, batch, input, output, .. } = &self.setting;
        let about = json!({
            "model": name, "cards": site.cards, "card": site.profile.soc.name(), "topology": site.topology.name,
            "batch": batch, "input": input, "output": output,
        });
        let Recorded { programs, phases, .. } = &self.recorded;
        let links = |ranks: &[usize]| site.link_name(ranks);
        Trace { about, ranks: site.rank_names(), programs, phases, links: Some(&links) }.write(out)
    }

    /// What a page or a text shows of it.
    #[must_use]
    pub fn report(&self) -> RehearsalReport {
        RehearsalReport::new(&self.setting, &self.recorded)
    }
}
