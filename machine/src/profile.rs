//! A chip with the coefficients that were fitted for it. Text: TOML, one file a chip in `profiles/`.
//!
//! A chip without measured points has the coefficients of the nearest that has some, and its `origin` says so.

use serde::{Deserialize, Serialize};

use crate::problem::{Problem, Problems};
use crate::soc::Soc;

/// What an operator or a call costs beside what the chip's facts say: fitted on measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// Largest part of the cube units' rate a product reaches.
    pub cube_efficiency: f64,
    /// Part of the vector units' rate an operator reaches.
    pub vector_efficiency: f64,
    /// Part of the memory's rate a kernel reaches.
    pub hbm_efficiency: f64,
    /// What a kernel takes on the card however small it is, in microseconds.
    pub kernel_us: f64,
    /// Part of a link's rate a collective reaches.
    pub link_efficiency: f64,
    /// What a collective takes on the card however small it is, in microseconds.
    pub collective_us: f64,
    /// Host time.
    pub host: Host,
}

/// Time of the calling thread in calls of the C ABI, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// First phase of an operator: checks, tiling, workspace.
    pub plan_us: f64,
    /// Second phase: the launch.
    pub launch_us: f64,
    /// A collective.
    pub collective_us: f64,
    /// An event: record or wait.
    pub event_us: f64,
    /// A copy between host and card, beside the bytes.
    pub copy_us: f64,
    /// Bytes a copy moves in a microsecond.
    pub copy_bytes_per_us: f64,
    /// The replay of a captured graph.
    pub replay_us: f64,
    /// What the card takes to begin the next node of a graph.
    pub replay_node_us: f64,
    /// Any other call.
    pub call_us: f64,
    /// What a waiting thread takes to notice that the card is done.
    pub wake_us: f64,
}

/// A chip with its coefficients.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The chip.
    pub soc: Soc,
    /// Memory soldered on one card, in bytes: that of the chip, unless the profile is for a card with another.
    pub hbm_installed_bytes: u64,
    /// What the coefficients were fitted on, or whose they are.
    pub origin: String,
    /// What was fitted.
    pub coefficients: Coefficients,
}

/// A profile as its text has it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    chip: String,
    hbm_gib: Option<u64>,
    origin: String,
    coefficients: Coefficients,
}

/// Profiles that ship, in the order of [`Soc::ALL`].
const SHIPPED: [&str; 8] = [
    include_str!("../profiles/910b1.toml"),
    include_str!("../profiles/910b2.toml"),
    include_str!("../profiles/910b3.toml"),
    include_str!("../profiles/910b4.toml"),
    include_str!("../profiles/910_9391.toml"),
    include_str!("../profiles/910_9381.toml"),
    include_str!("../profiles/910_9372.toml"),
    include_str!("../profiles/910_9362.toml"),
];

const GIB: u64 = 1 << 30;

impl Profile {
    /// The profile that ships for a chip.
    ///
    /// # Panics
    /// Never: every shipped text is checked by a test.
    #[must_use]
    pub fn of(soc: Soc) -> Self {
        let text = SHIPPED[soc as usize];
        Self::parse(soc.short_name(), text).unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// The profile of a TOML text; `place` names the text in problems.
    ///
    /// # Errors
    /// The first place that is no such TOML, or every value that means nothing.
    pub fn parse(place: &str, text: &str) -> Result<Self, Problems> {
        let text: Text = toml::from_str(text).map_err(|error| Problems::of_toml(place, text, &error))?;
        let mut problems = Vec::new();
        let soc = Soc::find(&text.chip);
        if soc.is_none() {
            let known: Vec<&str> = Soc::ALL.into_iter().map(Soc::name).collect();
            problems.push(Problem::new(
                format!("{place}: chip"),
                "no such chip",
                known.join(", "),
                format!("`{}`", text.chip),
            ));
        }
        let soc = soc.unwrap_or_default();
        let gib = text.hbm_gib.unwrap_or(soc.hbm_installed_bytes() / GIB);
        if !(8..=1024).contains(&gib) {
            problems.push(Problem::new(format!("{place}: hbm_gib"), "no such card", "GiB from 8 to 1024", gib));
        }
        problems.extend(text.coefficients.problems(place));
        Problems::none_or(problems)?;
        Ok(Self { soc, hbm_installed_bytes: gib * GIB, origin: text.origin, coefficients: text.coefficients })
    }

    /// The text that [`Self::parse`] reads.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let text = Text {
            chip: self.soc.name().to_owned(),
            hbm_gib: Some(self.hbm_installed_bytes / GIB),
            origin: self.origin.clone(),
            coefficients: self.coefficients.clone(),
        };
        toml::to_string(&text).unwrap_or_else(|error| panic!("a profile is plain numbers and names: {error}"))
    }

    /// Memory a program can get on one card, in bytes: what the driver leaves.
    #[must_use]
    pub const fn hbm_usable_bytes(&self) -> u64 {
        self.hbm_installed_bytes - (self.soc.hbm_installed_bytes() - self.soc.hbm_usable_bytes())
    }
}

impl Coefficients {
    /// Values that mean nothing.
    fn problems(&self, place: &str) -> Vec<Problem> {
        let host = &self.host;
        let parts = [
            ("cube_efficiency", self.cube_efficiency, 1.0),
            ("vector_efficiency", self.vector_efficiency, 1.0),
            ("hbm_efficiency", self.hbm_efficiency, 2.0),
            ("link_efficiency", self.link_efficiency, 2.0),
        ];
        let times = [
            ("kernel_us", self.kernel_us),
            ("collective_us", self.collective_us),
            ("host.plan_us", host.plan_us),
            ("host.launch_us", host.launch_us),
            ("host.collective_us", host.collective_us),
            ("host.event_us", host.event_us),
            ("host.copy_us", host.copy_us),
            ("host.replay_us", host.replay_us),
            ("host.replay_node_us", host.replay_node_us),
            ("host.call_us", host.call_us),
            ("host.wake_us", host.wake_us),
        ];
        let at = |name: &str| format!("{place}: coefficients.{name}");
        let mut problems: Vec<Problem> = parts
            .into_iter()
            .filter(|(_, value, most)| !(*value > 0.0 && value <= most))
            .map(|(name, value, most)| {
                Problem::new(at(name), "means nothing", format!("a part above 0, at most {most}"), value)
            })
            .collect();
        problems.extend(
            times
                .into_iter()
                .filter(|(_, value)| !(*value >= 0.0 && value.is_finite()))
                .map(|(name, value)| Problem::new(at(name), "means nothing", "microseconds from 0 on", value)),
        );
        if !(host.copy_bytes_per_us > 0.0 && host.copy_bytes_per_us.is_finite()) {
            let place = at("host.copy_bytes_per_us");
            problems.push(Problem::new(place, "means nothing", "a rate above 0", host.copy_bytes_per_us));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_profile_is_that_of_its_chip_and_its_own_text() {
        for soc in Soc::ALL {
            let profile = Profile::of(soc);
            assert_eq!(profile.soc, soc);
            assert_eq!(Profile::parse("again", &profile.to_toml()), Ok(profile));
        }
        assert_eq!(Profile::of(Soc::Ascend910_9362).hbm_installed_bytes, 64 * GIB);
        assert_eq!(Profile::of(Soc::Ascend910B3).hbm_usable_bytes(), Soc::Ascend910B3.hbm_usable_bytes());
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let text = SHIPPED[2]
            .replace("Ascend910B3", "H100")
            .replace("kernel_us = 1.5", "kernel_us = -1")
            .replace("link_efficiency = 0.77", "link_efficiency = 0.0");
        let problems = Profile::parse("mine.toml", &text).unwrap_err().to_string();
        let lines: Vec<&str> = problems.lines().collect();
        assert_eq!(lines.len(), 3, "{problems}");
        assert!(lines[0].starts_with("mine.toml: chip: no such chip: expected Ascend910B1,"), "{problems}");
        assert!(lines[1].contains("link_efficiency: means nothing: expected a part above 0, at most 2, found 0"));
        assert!(lines[2].contains("kernel_us: means nothing: expected microseconds from 0 on, found -1"));
        let problems = Profile::parse("mine.toml", "chip = 'x'\nspeed = 3\n").unwrap_err().to_string();
        assert!(problems.starts_with("mine.toml: line 2: "), "{problems}");
    }
}
