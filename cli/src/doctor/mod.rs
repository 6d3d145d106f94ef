//! `doctor`: checks whether this machine is ready for a first run. Each finding states the observed
//! value, the expected value and a remedy.
//!
//! - Invariants: this process loads nothing of CANN. Each probe of cards is a separate process.
//!   External tools have a time limit of five seconds. Nothing is changed.
//!
//! Files are read below a root directory, so that tests can imitate faulty hosts
//! (`cli/tests/doctor.rs`).

mod driver;
mod host;
mod links;
mod operators;
mod probe;
mod report;
mod system;
mod toolkit;

use std::path::PathBuf;

use clap::Args;

use probe::{CardSource, Probe, here, in_child};
use report::{CheckLine, DoctorReport, ReportGroup, Verdict};
use system::System;
pub(super) use system::{TOOL_LIMIT, run as run_limited};

use super::failure::{Failure, Outcome};
use super::{print_json, print_report};

pub(super) const EXAMPLES: &str = "\
Exit code 0 without findings, 1 with findings.

Examples:
  ascend-tp doctor
  ascend-tp doctor --json > doctor.json
      attach this report to an issue
  ascend-tp doctor --emulator
      check emulated cards, without the checks of NPU hosts
  ascend-tp doctor --rank-table hccl.json";

#[derive(Debug, Args)]
pub(super) struct DoctorOptions {
    /// Check emulated cards
    #[arg(long)]
    emulator: bool,
    /// Rank table to check [default: the file that `RANK_TABLE_FILE` names]
    #[arg(long, value_name = "FILE")]
    rank_table: Option<PathBuf>,
    /// Skip the checks that run on cards
    #[arg(long)]
    no_smoke: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Directory that contains the host's files
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
    /// Run one probe and print its lines
    #[arg(long, value_enum, hide = true)]
    probe: Option<Probe>,
    /// Toolkit that the probe loads
    #[arg(long, value_name = "DIR", hide = true, conflicts_with = "emulator", requires = "probe")]
    toolkit: Option<PathBuf>,
}

pub(super) fn run(options: &DoctorOptions) -> Result<Outcome, Failure> {
    if let Some(probe) = options.probe {
        let behind = options.toolkit.as_deref().map_or(CardSource::Emulator, CardSource::Toolkit);
        print_json(&here(probe, behind)?)?;
        return Ok(Outcome::Done);
    }
    let report = DoctorReport::new(examine(options));
    if options.json {
        print_json(&report)?;
    } else {
        print_report(&report.text())?;
    }
    Ok(if report.findings == 0 { Outcome::Done } else { Outcome::OutsideBound })
}

fn examine(options: &DoctorOptions) -> Vec<CheckLine> {
    let system = System::new(&options.root);
    let has_cards = !options.emulator;
    let mut lines = host::check(&system, has_cards).lines;
    let toolkit = if has_cards {
        lines.extend(driver::check(&system).lines);
        let mut group = ReportGroup::new("toolkit");
        let folder = toolkit::find(&system, &mut group);
        if let Some(folder) = &folder {
            toolkit::check_files(&system, folder, &mut group);
        }
        lines.extend(group.lines);
        if let Some(folder) = &folder {
            lines.extend(in_child(Probe::Toolkit, CardSource::Toolkit(folder)));
        }
        folder
    } else {
        None
    };
    lines.extend(links::check(&system, has_cards, options.rank_table.as_deref()).lines);
    if options.no_smoke {
        return lines;
    }
    let behind = match (&toolkit, has_cards) {
        (Some(folder), _) => CardSource::Toolkit(folder),
        (None, false) => CardSource::Emulator,
        (None, true) => return lines,
    };
    for probe in Probe::OF_CARDS {
        let found = in_child(probe, behind);
        let is_over = probe == Probe::Cards && found.iter().all(|line| line.verdict == Verdict::Finding);
        lines.extend(found);
        if is_over {
            break;
        }
    }
    lines
}
