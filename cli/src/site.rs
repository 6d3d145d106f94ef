//! The cards that `rehearse` and `plan` simulate: chip, speed and topology.

use std::path::{Path, PathBuf};

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::machine::{Problems, Profile, Soc, Topology};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct SiteOptions {
    /// Chip: 910b1, 910b2, 910b3, 910b4, or a die of a 910C by its TFLOP/s: 910c-752, 910c-707,
    /// 910c-626, 910c-560 [default: the chip of --profile, or 910b3]
    #[arg(long, value_name = "CHIP", help_heading = "Hardware")]
    card: Option<String>,
    /// Profile of the chip's speed in TOML, as written by `calibrate` [default: the shipped profile
    /// of the chip]
    #[arg(long, value_name = "FILE", help_heading = "Hardware")]
    profile: Option<PathBuf>,
    /// Topology of the cards: atlas-a2, atlas-a2-box16, atlas-a3, atlas-pcie, or a TOML file
    /// [default: atlas-a2, or atlas-a3 for dies of a 910C]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Hardware")]
    topology: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) profile: Profile,
    pub(super) topology: Topology,
}

impl Default for Site {
    fn default() -> Self {
        Self::of(Soc::default())
    }
}

impl Site {
    /// Returns the site of a chip with the shipped profile and the usual topology.
    pub(super) fn of(soc: Soc) -> Self {
        Self { profile: Profile::of(soc), topology: own_topology(soc) }
    }
}

impl SiteOptions {
    /// Returns the given options, in the form of a command line.
    pub(super) fn words(&self) -> Vec<String> {
        let profile = self.profile.as_ref().map(|path| path.display().to_string());
        let given = [("--card", &self.card), ("--profile", &profile), ("--topology", &self.topology)];
        let given = given.into_iter().filter_map(|(option, value)| Some([option.to_owned(), value.clone()?]));
        given.flatten().collect()
    }

    pub(super) fn resolve(&self) -> Result<Site, Diagnostics> {
        let mut problems = Diagnostics::new();
        let profile = keep(self.profile(), &mut problems);
        let soc = profile.as_ref().map_or_else(Soc::default, |profile| profile.soc);
        let topology = self.topology.as_deref().map_or_else(|| Ok(own_topology(soc)), topology);
        match (profile, keep(topology, &mut problems)) {
            (Some(profile), Some(topology)) => Ok(Site { profile, topology }),
            _ => Err(problems),
        }
    }

    /// Returns the profile of a file or of a chip. If both are given, they must name the same chip.
    fn profile(&self) -> Result<Profile, Diagnostics> {
        let mut problems = Diagnostics::new();
        let soc = self.card.as_deref().and_then(|name| keep(chip(name).map_err(Into::into), &mut problems));
        let written = self.profile.as_deref().and_then(|path| {
            let text = read(path, "--profile");
            let parse = |text: String| Profile::parse(&path.display().to_string(), &text).map_err(located);
            keep(text.and_then(parse), &mut problems)
        });
        if let (Some(soc), Some(written)) = (soc, &written)
            && soc != written.soc
        {
            let problem = Diagnostic::new("--card and --profile", "are for different chips");
            problems.push(problem.expected(soc).found(written.soc).help("leave --card out"));
        }
        problems.into_result(written.unwrap_or_else(|| Profile::of(soc.unwrap_or_default())))
    }
}

pub(super) fn chip(name: &str) -> Result<Soc, Diagnostic> {
    let known = || Soc::ALL.map(Soc::short_name).join(", ");
    let problem =
        || Diagnostic::new("--card", "no such chip").expected(format!("one of {}", known())).found(name);
    Soc::find(name).ok_or_else(problem)
}

/// Returns the value, or None after adding its problems to `problems`.
pub(super) fn keep<T>(found: Result<T, Diagnostics>, problems: &mut Diagnostics) -> Option<T> {
    found.map_err(|found| problems.append(found)).ok()
}

pub(super) fn own_topology(soc: Soc) -> Topology {
    let name = if soc.short_name().starts_with("910c") { "atlas-a3" } else { "atlas-a2" };
    Topology::preset(name).unwrap_or_else(|| Topology::atlas_a2(1))
}

/// Returns a shipped topology, or a topology from a file.
///
/// # Errors
/// `named` is neither, or all problems of the file.
pub(super) fn topology(named: &str) -> Result<Topology, Diagnostics> {
    if let Some(known) = Topology::preset(named) {
        return Ok(known);
    }
    if !Path::new(named).is_file() {
        return Err(Diagnostic::new("--topology", "neither a file nor a shipped topology")
            .expected(format!("a TOML file, or one of {}", Topology::PRESETS.join(", ")))
            .found(named)
            .into());
    }
    Topology::parse(named, &read(named.as_ref(), "--topology")?).map_err(located)
}

fn read(path: &Path, option: &str) -> Result<String, Diagnostics> {
    std::fs::read_to_string(path).map_err(|error| {
        Diagnostic::new(format!("{option}: {}", path.display()), "cannot be read").found(error).into()
    })
}

fn located(Problems(problems): Problems) -> Diagnostics {
    let mut located = Diagnostics::new();
    for problem in problems {
        located.push(
            Diagnostic::new(problem.place, problem.what).expected(problem.expected).found(problem.found),
        );
    }
    located
}
