//! `calibrate`: measured points → a profile.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use ascend_tp::base::Diagnostics;
use ascend_tp_planner::validate::calibrate;

use super::failure::{Failure, Outcome};
use super::site::chip;
use super::{files, print};

#[derive(Debug, Args)]
pub(super) struct CalibrateOptions {
    /// File of measured operators and exchanges, with the columns of `planner/points/operators_measured.csv`
    #[arg(long, value_name = "FILE")]
    points: PathBuf,
    /// The chip the profile is for: 910b1 to 910b4, or a die of a 910C
    #[arg(long, value_name = "CHIP")]
    card: String,
    /// Where the profile is written [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(options: &CalibrateOptions) -> Result<Outcome, Failure> {
    let soc = chip(&options.card).map_err(Diagnostics::from)?;
    let place = options.points.display().to_string();
    let text =
        fs::read_to_string(&options.points).with_context(|| format!("--points {place}")).map_err(Failure::Input)?;
    let profile = calibrate(&place, &text, soc).map_err(|problems| Failure::Input(problems.into()))?;
    match &options.out {
        Some(path) => {
            files::write("--out", path, |out| out.write_all(profile.to_toml().as_bytes()))?;
        }
        None => print(&profile.to_toml())?,
    }
    Ok(Outcome::Done)
}
