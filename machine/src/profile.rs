//! A chip with the coefficients that were fitted for it. Text: TOML, one file a chip in `profiles/`.
//!
//! All chips share the coefficients of `profiles/coefficients.toml`, which were fitted on measurements of several: chips
//! differ by facts. A chip's own file may have others in their place; its `origin` says what was measured on it.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::problem::{Problem, Problems};
use crate::soc::Soc;

/// What an operator or a call costs beside what the chip's facts say: fitted on measurements. [`MEANINGS`] has the unit and
/// the plausible range of each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// Part of the cube units' rate that a tile's multiplications reach.
    pub cube_efficiency: f64,
    /// Part of the cache's rate to a core at which a product's tiles are loaded.
    pub load_efficiency: f64,
    /// The same of the weights of grouped products, which few cores share.
    pub grouped_load_efficiency: f64,
    /// Part of the lanes' rate of the vector units that the softmax of fused attention reaches.
    pub softmax_efficiency: f64,
    /// Part of the lanes' rate of the vector units.
    pub vector_efficiency: f64,
    /// Part of the memory's rate at which weights and activations come.
    pub hbm_efficiency: f64,
    /// The same of keys and values of a single head, which lie side by side.
    pub keys_efficiency: f64,
    /// The same of several heads, whose rows alternate.
    pub strided_keys_efficiency: f64,
    /// Part of the cache's rate at which activations come.
    pub l2_efficiency: f64,
    /// Of a product's cube and memory time, the part of the shorter that does not hide behind the longer.
    pub serial: f64,
    /// Least time of a product, in microseconds.
    pub product_us: f64,
    /// Least time of a grouped product, in microseconds.
    pub grouped_us: f64,
    /// Least time of fused attention, in microseconds.
    pub attention_us: f64,
    /// What each wave of attention's tasks adds, in microseconds.
    pub attention_task_us: f64,
    /// Least time of a kernel of the vector units, in microseconds.
    pub kernel_us: f64,
    /// What each vector core that a kernel starts adds to it, in microseconds: cores are set up one after another (Ascend C
    /// best practices, "Setting a Proper Number of Cores").
    pub core_us: f64,
    /// What a vector core takes for a row beside the row's operations, in microseconds.
    pub row_us: f64,
    /// How long exchanges between cards take.
    pub exchange: ExchangeCoefficients,
    /// How long the host takes for a call.
    pub host: HostProfile,
}

/// What an exchange takes beside what the links' rates say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExchangeCoefficients {
    /// What one that cores copy takes however small it is, in microseconds.
    pub direct_us: f64,
    /// What each further card adds to it, in microseconds.
    pub peer_us: f64,
    /// Part of the links' rate that cores reach.
    pub direct_efficiency: f64,
    /// Rate at which a card's own part is copied to where others read it, in bytes a microsecond.
    pub publish_bytes_per_us: f64,
    /// What one that copy engines do takes to set up, in microseconds.
    pub staged_us: f64,
    /// Part of the rate of copies at which values that meet are added up.
    pub reduce_efficiency: f64,
    /// What a copy from one card to another takes however small it is, in microseconds.
    pub copy_us: f64,
    /// What an exchange of different parts for everyone takes, in microseconds.
    pub scatter_us: f64,
    /// What each doubling of the group adds to it, in microseconds.
    pub scatter_doubling_us: f64,
}

/// What a fitted coefficient is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Meaning {
    /// Its path in a profile's text.
    pub name: &'static str,
    /// Its unit; nothing for a part of a whole.
    pub unit: &'static str,
    /// What is expected before anything is measured: figures of the vendor's own models, or the middle of the range.
    pub usual: f64,
    /// Least plausible value.
    pub low: f64,
    /// Largest plausible value.
    pub high: f64,
    /// Which measurements say it.
    pub kind: &'static str,
}

const fn part(name: &'static str, usual: f64, low: f64, kind: &'static str) -> Meaning {
    Meaning { name, unit: "", usual, low, high: 1.0, kind }
}

const fn microseconds(name: &'static str, usual: f64, (low, high): (f64, f64), kind: &'static str) -> Meaning {
    Meaning { name, unit: "us", usual, low, high, kind }
}

/// Every coefficient that is fitted. What they mean is said at the fields of [`Coefficients`] and [`ExchangeCoefficients`].
pub const MEANINGS: [Meaning; 26] = [
    part("cube_efficiency", 0.8, 0.4, "products"),
    part("load_efficiency", 0.8, 0.2, "products"),
    part("hbm_efficiency", 0.8, 0.4, "products"),
    part("serial", 0.5, 0.01, "products"),
    microseconds("product_us", 5.0, (1.0, 20.0), "products"),
    part("softmax_efficiency", 0.4, 0.1, "attention"),
    part("keys_efficiency", 0.8, 0.4, "attention"),
    part("strided_keys_efficiency", 0.7, 0.4, "attention"),
    part("l2_efficiency", 0.6, 0.2, "attention"),
    microseconds("attention_task_us", 1.0, (0.1, 10.0), "attention"),
    microseconds("attention_us", 20.0, (5.0, 60.0), "attention"),
    part("grouped_load_efficiency", 0.4, 0.1, "grouped"),
    microseconds("grouped_us", 20.0, (5.0, 60.0), "grouped"),
    part("vector_efficiency", 0.4, 0.05, "vectors"),
    microseconds("kernel_us", 2.0, (1.0, 10.0), "vectors"),
    microseconds("core_us", 0.02, (0.001, 0.2), "vectors"),
    microseconds("row_us", 0.03, (0.001, 1.0), "vectors"),
    microseconds("exchange.direct_us", 3.0, (0.5, 30.0), "collectives"),
    microseconds("exchange.peer_us", 0.5, (0.05, 5.0), "collectives"),
    part("exchange.direct_efficiency", 0.7, 0.3, "collectives"),
    Meaning {
        name: "exchange.publish_bytes_per_us",
        unit: "B/us",
        usual: 2e5,
        low: 4e4,
        high: 1e6,
        kind: "collectives",
    },
    microseconds("exchange.staged_us", 100.0, (20.0, 300.0), "collectives"),
    part("exchange.reduce_efficiency", 0.8, 0.4, "collectives"),
    microseconds("exchange.copy_us", 10.0, (1.0, 50.0), "collectives"),
    microseconds("exchange.scatter_us", 5.0, (0.5, 30.0), "collectives"),
    microseconds("exchange.scatter_doubling_us", 2.0, (0.1, 10.0), "collectives"),
];

/// Time of the calling thread in calls of the C ABI, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostProfile {
    /// First phase of an operator: checks, tiling, workspace.
    pub plan_us: f64,
    /// Second phase: the launch.
    pub launch_us: f64,
    /// To enqueue a collective.
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
    /// The chip the figures are of.
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
struct ProfileText {
    chip: String,
    hbm_gib: Option<u64>,
    origin: String,
    /// Those that are the chip's own; the others are of [`SHARED`].
    #[serde(default)]
    coefficients: toml::Table,
}

/// The coefficients of every chip that has none of its own.
const SHARED: &str = include_str!("../profiles/coefficients.toml");

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
        static PARSED: [OnceLock<Profile>; SHIPPED.len()] = [const { OnceLock::new() }; SHIPPED.len()];
        let parse = || {
            let text = SHIPPED[soc as usize];
            Self::parse(soc.short_name(), text).unwrap_or_else(|problems| panic!("{problems}"))
        };
        PARSED[soc as usize].get_or_init(parse).clone()
    }

    /// The profile of a TOML text; `place` names the text in problems.
    ///
    /// # Errors
    /// The first place that is no such TOML, or every value that means nothing.
    pub fn parse(place: &str, text: &str) -> Result<Self, Problems> {
        let text: ProfileText = toml::from_str(text).map_err(|error| Problems::of_toml(place, text, &error))?;
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
        let coefficients = Coefficients::with(place, text.coefficients)?;
        problems.extend(coefficients.problems(place));
        Problems::none_or(problems)?;
        Ok(Self { soc, hbm_installed_bytes: gib * GIB, origin: text.origin, coefficients })
    }

    /// The text that [`Self::parse`] reads.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let text = ProfileText {
            chip: self.soc.name().to_owned(),
            hbm_gib: Some(self.hbm_installed_bytes / GIB),
            origin: self.origin.clone(),
            coefficients: self.coefficients.table(),
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
    /// Those every chip shares, with `own` in their place.
    fn with(place: &str, own: toml::Table) -> Result<Self, Problems> {
        let of = |place: &str, text: &str| -> Result<toml::Table, Problems> {
            toml::from_str(text).map_err(|error| Problems::of_toml(place, text, &error))
        };
        let mut all = of("coefficients.toml", SHARED)?;
        overlay(&mut all, own);
        all.try_into().map_err(|error: toml::de::Error| {
            let expected = "the names and numbers that `plan --validate` lists";
            Problems(vec![Problem::new(format!("{place}: coefficients"), error.message(), expected, "another")])
        })
    }

    fn table(&self) -> toml::Table {
        toml::Table::try_from(self).unwrap_or_else(|error| panic!("coefficients are plain numbers: {error}"))
    }

    /// The value of a coefficient by the path that [`MEANINGS`] has.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<f64> {
        let table = self.table();
        match path.split_once('.') {
            None => table.get(path)?.as_float(),
            Some((outer, inner)) => table.get(outer)?.get(inner)?.as_float(),
        }
    }

    /// The same coefficients with others at these paths.
    ///
    /// # Panics
    /// No coefficient has such a path.
    #[must_use]
    pub fn set(&self, values: &[(&str, f64)]) -> Self {
        let mut table = self.table();
        for (path, value) in values {
            let place = match path.split_once('.') {
                None => table.get_mut(*path),
                Some((outer, inner)) => table.get_mut(outer).and_then(|outer| outer.get_mut(inner)),
            };
            let Some(place) = place else { panic!("no coefficient is called {path}") };
            *place = toml::Value::Float(*value);
        }
        table.try_into().unwrap_or_else(|error| panic!("a number in a number's place: {error}"))
    }

    /// Values that mean nothing.
    fn problems(&self, place: &str) -> Vec<Problem> {
        let host = &self.host;
        let at = |name: &str| format!("{place}: coefficients.{name}");
        let mut problems = Vec::new();
        for Meaning { name, unit, high, .. } in MEANINGS {
            let value = self.get(name).unwrap_or(f64::NAN);
            let (is_wrong, expected) = match unit {
                "" => (!(value > 0.0 && value <= high), format!("a part above 0, at most {high}")),
                "us" => (!(value >= 0.0 && value.is_finite()), "microseconds from 0 on".to_owned()),
                _ => (!(value > 0.0 && value.is_finite()), "a rate above 0".to_owned()),
            };
            if is_wrong {
                problems.push(Problem::new(at(name), "means nothing", expected, value));
            }
        }
        let times = [
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

/// Values of `over` in the place of those of `under`, tables within tables too.
fn overlay(under: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(own)) => overlay(inner, own),
            (_, value) => {
                under.insert(key, value);
            }
        }
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
    fn no_coefficient_that_ships_is_at_the_end_of_its_range() {
        for soc in Soc::ALL {
            for Meaning { name, low, high, .. } in MEANINGS {
                let value = Profile::of(soc).coefficients.get(name).unwrap();
                assert!(value > low * 1.001 && value < high * 0.999, "{soc}: {name} = {value} of {low} to {high}");
            }
        }
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let text = "chip = 'H100'\norigin = 'me'\n[coefficients]\nkernel_us = -1.0\nhbm_efficiency = 0.0\n";
        let problems = Profile::parse("mine.toml", text).unwrap_err().to_string();
        let lines: Vec<&str> = problems.lines().collect();
        assert_eq!(lines.len(), 3, "{problems}");
        assert!(lines[0].starts_with("mine.toml: chip: no such chip: expected Ascend910B1,"), "{problems}");
        assert!(lines[1].contains("hbm_efficiency: means nothing: expected a part above 0, at most 1, found 0"));
        assert!(lines[2].contains("kernel_us: means nothing: expected microseconds from 0 on, found -1"));
        let text = "chip = '910b3'\norigin = 'me'\n[coefficients]\nspeed = 1.0\n";
        let problems = Profile::parse("mine.toml", text).unwrap_err().to_string();
        assert!(problems.starts_with("mine.toml: coefficients: unknown field `speed`"), "{problems}");
        let problems = Profile::parse("mine.toml", "chip = 'x'\nspeed = 3\n").unwrap_err().to_string();
        assert!(problems.starts_with("mine.toml: line 2: "), "{problems}");
    }
}
