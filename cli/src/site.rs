//! The cards that `rehearse` and `plan` are about: chip, what is known of its speed, how they are
//! joined.
//!
//! Input → output: names and files → a [`Site`], or everything that is wrong with them.

use std::path::{Path, PathBuf};

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::machine::{Problems, Profile, Soc, Topology};
use clap::Args;

/// Which cards, by name or file.
#[derive(Debug, Args)]
pub(super) struct SiteOptions {
    /// The chip: 910b1, 910b2, 910b3, 910b4, or a die of a 910C by its TFLOP/s: 910c-752, 910c-707,
    /// 910c-626, 910c-560 [default: that of --profile, or 910b3]
    #[arg(long, value_name = "CHIP")]
    card: Option<String>,
    /// What the chip costs: a profile in TOML, as `calibrate` writes it [default: what ships for
    /// the chip]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// How the cards are joined: atlas-a2, atlas-a2-box16, atlas-a3, atlas-pcie, or a TOML file
    /// [default: atlas-a2, or atlas-a3 for dies of a 910C]
    #[arg(long, value_name = "NAME|FILE")]
    topology: Option<String>,
}

/// The cards a command plans for.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// The chip, with what is known of its speed.
    pub(super) profile: Profile,
    /// How its cards are joined.
    pub(super) topology: Topology,
}

impl Default for Site {
    /// What is meant when nothing is named.
    fn default() -> Self {
        Self::of(Soc::default())
    }
}

impl Site {
    /// Cards of a chip as it is sold, and what ships of its speed.
    pub(super) fn of(soc: Soc) -> Self {
        Self { profile: Profile::of(soc), topology: own_topology(soc) }
    }
}

impl SiteOptions {
    /// The cards that are named.
    ///
    /// # Errors
    /// Everything that is wrong with the names and files.
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

    /// The profile of a file or of a chip; if both are named they are of one chip.
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
            let problem = Diagnostic::new("--card and --profile", "are of different chips");
            problems.push(problem.expected(soc).found(written.soc).help("leave --card out"));
        }
        problems.into_result(written.unwrap_or_else(|| Profile::of(soc.unwrap_or_default())))
    }
}

/// The chip of a name.
///
/// # Errors
/// There is none.
pub(super) fn chip(name: &str) -> Result<Soc, Diagnostic> {
    let known = || Soc::ALL.map(Soc::short_name).join(", ");
    let problem =
        || Diagnostic::new("--card", "no such chip").expected(format!("one of {}", known())).found(name);
    Soc::find(name).ok_or_else(problem)
}

/// The value, or its problems added to the others.
pub(super) fn keep<T>(found: Result<T, Diagnostics>, problems: &mut Diagnostics) -> Option<T> {
    found.map_err(|found| problems.append(found)).ok()
}

/// The topology a chip is sold in.
pub(super) fn own_topology(soc: Soc) -> Topology {
    let name = if soc.short_name().starts_with("910c") { "atlas-a3" } else { "atlas-a2" };
    Topology::preset(name).unwrap_or_else(|| Topology::atlas_a2(1))
}

/// A topology that ships, or one from a file.
///
/// # Errors
/// It is neither, or everything that is wrong with its figures.
pub(super) fn topology(named: &str) -> Result<Topology, Diagnostics> {
    if let Some(known) = Topology::preset(named) {
        return Ok(known);
    }
    if !Path::new(named).is_file() {
        return Err(Diagnostic::new("--topology", "neither a file nor a topology that ships")
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
    let mut found = Diagnostics::new();
    for problem in problems {
        found.push(
            Diagnostic::new(problem.place, problem.what).expected(problem.expected).found(problem.found),
        );
    }
    found
}
