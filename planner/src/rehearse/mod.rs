//! Rehearses a model on cards without the cards.
//!
//! - Input: a [`Setting`] (model, cards, chip, topology, sizes).
//! - Output: a [`Rehearsal`]. It gives a [`RehearsalReport`], a trace for Perfetto and an [`html`]
//!   page. [`train`] rehearses a training step.
//! - Method: the executor runs the compiled plans, as on cards. The emulator keeps a virtual clock
//!   and does not compute numbers.
//! - Invariants: times come from the emulator's clock, bytes from its accounts. The same setting
//!   gives the same report, byte for byte. A setting that does not fit is refused before it runs,
//!   and the error lists settings that fit.
//! - Not here: weights, sampling, measurements of this host.

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

/// A setting and its recorded run.
#[derive(Debug)]
pub struct Rehearsal {
    /// Setting of the rehearsal.
    pub setting: Setting,
    /// Recorded run of the setting.
    pub recorded: Recorded,
}

impl Rehearsal {
    /// Rehearses a setting.
    ///
    /// # Errors
    /// - The sizes are invalid. The error lists all problems.
    /// - The model does not fit. The error lists the nearest settings that fit.
    /// - The emulated cards refuse a call.
    pub fn run(setting: &Setting) -> Result<Self, Error> {
        setting.check()?;
        Ok(Self { setting: setting.clone(), recorded: run::run(setting)? })
    }

    /// Writes the recorded phases as a trace for Perfetto.
    ///
    /// # Errors
    /// Writing to `out` fails.
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

    /// Returns the report for a page or a text.
    #[must_use]
    pub fn report(&self) -> RehearsalReport {
        RehearsalReport::new(&self.setting, &self.recorded)
    }
}
