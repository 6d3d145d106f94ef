//! `calibrate`: writes a chip profile, measured on cards.

use std::path::PathBuf;

use clap::Args;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::exec::Clock;
use ascend_tp::machine::{Profile, Soc};
use ascend_tp::world::ProcessGroup;
use ascend_tp_planner::calibrate::{self, CalibrateError};

use super::cards;
use super::failure::{Failure, Outcome};
use super::site::{own_topology, topology};
use super::values::{DeviceKind, positive};
use super::{files, print};

pub(super) const EXAMPLES: &str = "\
Measures matrix products, attention, vector kernels, collectives, launches and
copies on the cards of this host, in about two minutes. The profile is an input
of plan and rehearse (--profile).

Examples:
  ascend-tp calibrate --out mine.toml
  ASCEND_EMULATOR=timed ascend-tp calibrate --device emulator --cards 2";

#[derive(Debug, Args)]
pub(super) struct CalibrateOptions {
    /// Device to measure
    #[arg(long, value_enum, default_value = "auto")]
    device: DeviceKind,
    /// Number of cards [default: all, at most 8]
    #[arg(long, value_name = "N", value_parser = positive)]
    cards: Option<usize>,
    /// Topology of the cards: atlas-a2, atlas-a2-box16, atlas-a3, atlas-pcie, or a TOML file
    /// [default: the usual topology of the chip]
    #[arg(long, value_name = "NAME|FILE")]
    topology: Option<String>,
    /// File to write the profile to [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Maximum number of cards that collectives are measured on.
const MOST_CARDS: usize = 8;

pub(super) fn run(options: &CalibrateOptions) -> Result<Outcome, Failure> {
    let profile = of_cards(options)?;
    match &options.out {
        Some(path) => {
            files::write("--out", path, |out| out.write_all(profile.to_toml().as_bytes()))?;
        }
        None => print(&profile.to_toml())?,
    }
    Ok(Outcome::Done)
}

fn of_cards(options: &CalibrateOptions) -> Result<Profile, Failure> {
    let cards = cards::open(options.device, &ProcessGroup::alone())?;
    let clock = if cards.is_emulated() { cards.clock() } else { Some(Clock::of_host()) };
    let clock = clock.ok_or_else(|| {
        let problem = Diagnostic::new("calibrate", "these cards have no clock").found(&cards.description);
        Diagnostics::from(problem.help("set ASCEND_EMULATOR=timed to emulate cards with a clock"))
    })?;
    let name = cards.cann.soc_name().unwrap_or_default();
    let soc = Soc::find(&name).ok_or_else(|| {
        let known = Soc::ALL.map(Soc::name).join(", ");
        Diagnostics::from(Diagnostic::new("calibrate", "unknown chip").expected(known).found(&name))
    })?;
    let topology = options.topology.as_deref().map_or_else(|| Ok(own_topology(soc)), topology)?;
    let there = cards.cann.device_count().map_err(|error| Failure::Run(error.into()))?;
    let count = options.cards.unwrap_or_else(|| there.min(topology.cards()).min(MOST_CARDS));
    let measured = calibrate::MeasuredCards { cann: &cards.cann, count, topology: &topology, clock: &clock };
    calibrate::calibrate(&measured, &Profile::of(soc)).map_err(|error| match error {
        CalibrateError::Refused(problems) => problems.into(),
        error => Failure::Run(error.into()),
    })
}
