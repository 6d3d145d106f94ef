//! Rehearses a model on cards without the cards.
//!
//! The executor runs the compiled plans on emulated cards, which keep a virtual clock and compute
//! no numbers. [`train`] rehearses a training step, and [`serving`] an engine under a load of
//! requests.
//!
//! Invariants: times come from the emulator's clock, bytes from its accounts. The same setting
//! gives the same report, byte for byte. A setting that does not fit is refused before it runs.

mod error;
mod formats;
pub mod html;
mod memory;
mod report;
mod run;
pub mod serving;
mod setting;
mod stage;
mod table;
pub mod train;

pub use error::Error;
pub use formats::FormatBytes;
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
    /// The sizes are invalid, the model does not fit, or the emulated cards refuse a call. The
    /// error lists all problems and the nearest settings that fit.
    pub fn run(setting: &Setting) -> Result<Self, Error> {
        setting.check()?;
        Ok(Self { setting: setting.clone(), recorded: run::run(setting)? })
    }

    /// Writes a trace for Perfetto.
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
