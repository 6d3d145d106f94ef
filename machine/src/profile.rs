//! Profiles: a chip with its fitted coefficients, as TOML with one file per chip in `profiles/`.
//!
//! All chips share `profiles/coefficients.toml`, fitted to measurements of several chips. A chip's
//! own file can override coefficients; its `origin` names the measurements.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::problem::{Problem, Problems};
use crate::soc::Soc;

/// Fitted cost parameters of operators and calls. [`MEANINGS`] lists units and plausible ranges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// Reached fraction of the cube rate in products of floats.
    pub cube_efficiency: f64,
    /// Reached fraction of the cube rate in products of 8-bit integers.
    pub cube_8bit_efficiency: f64,
    /// Reached fraction of the cube rate in fused attention over a prompt, whose softmax takes
    /// turns with the products.
    pub attention_efficiency: f64,
    /// Fraction of the cache bandwidth per core for weights of grouped products, which few cores
    /// share.
    pub grouped_load_efficiency: f64,
    /// Fraction of the vector rate that the softmax of fused attention reaches.
    pub softmax_efficiency: f64,
    /// Fraction of the vector rate that other operators reach.
    pub vector_efficiency: f64,
    /// Fraction of the HBM bandwidth for the weights of 16-bit products. Weights of 200 to 400 MB
    /// are measured at 1.1 to 1.3 TB/s, below the 1.41 to 1.45 TB/s of copies.
    pub hbm_efficiency: f64,
    /// Fraction of the HBM bandwidth for contiguous tensors: vector kernels, and weights of grouped
    /// and of 8-bit products. Sums over 4 GB determine it. The usual value is that of measured
    /// copies, 1.45 of 1.76 TB/s on a 910B2.
    pub stream_efficiency: f64,
    /// Fraction of the HBM bandwidth for contiguous keys and values (single head).
    pub keys_efficiency: f64,
    /// Fraction of the HBM bandwidth for keys and values of several heads (interleaved rows).
    pub strided_keys_efficiency: f64,
    /// Fraction of the cache bandwidth for activations.
    pub l2_efficiency: f64,
    /// Fraction of the shorter of a product's multiplying and memory times that does not overlap.
    pub serial: f64,
    /// Minimum time of a product of floats.
    pub product_us: f64,
    /// Minimum time of a product of 8-bit integers, with its dequantisation.
    pub product_8bit_us: f64,
    /// Minimum time of a batch of products.
    pub batched_us: f64,
    /// Minimum time of a grouped product.
    pub grouped_us: f64,
    /// Minimum time of fused attention.
    pub attention_us: f64,
    /// Time per wave of attention tasks.
    pub attention_task_us: f64,
    /// Time per wave and query row of an attention task.
    pub attention_row_us: f64,
    /// Minimum time of a vector kernel.
    pub kernel_us: f64,
    /// Time per started vector core; cores start in sequence (Ascend C best practices, "Setting a
    /// Proper Number of Cores").
    pub core_us: f64,
    /// Vector core time per row, besides operations.
    pub row_us: f64,
    /// Coefficients of exchanges between cards.
    pub exchange: ExchangeCoefficients,
    /// Host times of calls.
    pub host: HostProfile,
}

/// Fitted cost parameters of an exchange.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExchangeCoefficients {
    /// Fixed time of an exchange by cores.
    pub direct_us: f64,
    /// Time per further card.
    pub peer_us: f64,
    /// Fraction of the links' rate that cores reach.
    pub direct_efficiency: f64,
    /// Rate at which a card copies its part to published memory.
    pub publish_bytes_per_us: f64,
    /// Setup of an exchange by copy engines.
    pub staged_us: f64,
    /// Fraction of the copy rate when values are added.
    pub reduce_efficiency: f64,
    /// Fixed time of a copy between cards.
    pub copy_us: f64,
    /// Fixed time of an exchange of distinct parts.
    pub scatter_us: f64,
    /// Time per doubling of the group.
    pub scatter_doubling_us: f64,
}

/// Description of a fitted coefficient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Meaning {
    /// Path in a profile's text.
    pub name: &'static str,
    /// Unit; empty for a fraction.
    pub unit: &'static str,
    /// Expected before measurements: from the vendor's models, or the middle of the range.
    pub usual: f64,
    /// Smallest plausible value of the coefficient.
    pub low: f64,
    /// Largest plausible value of the coefficient.
    pub high: f64,
    /// Measurement that determines the coefficient.
    pub kind: &'static str,
}

const fn part(name: &'static str, usual: f64, low: f64, kind: &'static str) -> Meaning {
    Meaning { name, unit: "", usual, low, high: 1.0, kind }
}

const fn microseconds(name: &'static str, usual: f64, low: f64, high: f64, kind: &'static str) -> Meaning {
    Meaning { name, unit: "us", usual, low, high, kind }
}

/// Explained by the fields of [`Coefficients`] and [`ExchangeCoefficients`].
pub const MEANINGS: [Meaning; 31] = [
    part("cube_efficiency", 0.8, 0.4, "products"),
    part("hbm_efficiency", 0.8, 0.4, "products"),
    part("serial", 0.5, 0.01, "products"),
    microseconds("product_us", 5.0, 1.0, 20.0, "products"),
    microseconds("batched_us", 10.0, 1.0, 40.0, "batched"),
    part("cube_8bit_efficiency", 0.67, 0.4, "products_8bit"),
    microseconds("product_8bit_us", 10.0, 1.0, 40.0, "products_8bit"),
    part("keys_efficiency", 0.8, 0.4, "attention"),
    part("strided_keys_efficiency", 0.7, 0.4, "attention"),
    part("attention_efficiency", 0.5, 0.2, "attention"),
    part("l2_efficiency", 0.6, 0.2, "attention"),
    part("softmax_efficiency", 0.4, 0.1, "attention"),
    microseconds("attention_task_us", 1.0, 0.1, 10.0, "attention"),
    microseconds("attention_row_us", 0.03, 0.001, 0.3, "attention"),
    microseconds("attention_us", 20.0, 5.0, 60.0, "attention"),
    part("grouped_load_efficiency", 0.4, 0.1, "grouped"),
    microseconds("grouped_us", 20.0, 5.0, 60.0, "grouped"),
    part("stream_efficiency", 0.82, 0.4, "vectors"),
    part("vector_efficiency", 0.4, 0.05, "vectors"),
    microseconds("kernel_us", 2.0, 1.0, 10.0, "vectors"),
    microseconds("core_us", 0.02, 0.001, 0.2, "vectors"),
    microseconds("row_us", 0.03, 0.001, 1.0, "vectors"),
    microseconds("exchange.direct_us", 3.0, 0.5, 30.0, "collectives"),
    microseconds("exchange.peer_us", 0.5, 0.05, 5.0, "collectives"),
    part("exchange.direct_efficiency", 0.7, 0.3, "collectives"),
    Meaning {
        name: "exchange.publish_bytes_per_us",
        unit: "B/us",
        usual: 2e5,
        low: 4e4,
        high: 1e6,
        kind: "collectives",
    },
    microseconds("exchange.staged_us", 100.0, 20.0, 300.0, "collectives"),
    part("exchange.reduce_efficiency", 0.8, 0.4, "collectives"),
    microseconds("exchange.copy_us", 10.0, 1.0, 50.0, "collectives"),
    microseconds("exchange.scatter_us", 5.0, 0.5, 30.0, "collectives"),
    microseconds("exchange.scatter_doubling_us", 2.0, 0.1, 10.0, "collectives"),
];

/// Time of the calling thread in calls of the C ABI.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostProfile {
    /// Operator's first phase: checks, tiling, workspace.
    pub plan_us: f64,
    /// Operator's second phase: the kernel launch.
    pub launch_us: f64,
    /// Enqueue of a collective call.
    pub collective_us: f64,
    /// Event record or wait.
    pub event_us: f64,
    /// Copy, without the transfer time.
    pub copy_us: f64,
    /// Copy rate in bytes per microsecond.
    pub copy_bytes_per_us: f64,
    /// Replay of a captured graph.
    pub replay_us: f64,
    /// Start of the next graph node.
    pub replay_node_us: f64,
    /// Any other call of the ABI.
    pub call_us: f64,
    /// Delay until a waiting thread notices that the card is done.
    pub wake_us: f64,
}

/// A chip with its coefficients.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The chip that the profile describes.
    pub soc: Soc,
    /// Memory of one card; may differ from the chip's usual size.
    pub hbm_installed_bytes: u64,
    /// Source of the coefficients.
    pub origin: String,
    /// Fitted coefficients of the chip.
    pub coefficients: Coefficients,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileText {
    chip: String,
    hbm_gib: Option<u64>,
    origin: String,
    /// Coefficients that differ from [`SHARED`].
    #[serde(default)]
    coefficients: toml::Table,
}

const SHARED: &str = include_str!("../profiles/coefficients.toml");

/// Same order as [`Soc::ALL`].
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
    /// Returns the built-in profile of a chip.
    ///
    /// # Panics
    /// Never: a test checks every built-in text.
    #[must_use]
    pub fn of(soc: Soc) -> Self {
        static PARSED: [OnceLock<Profile>; SHIPPED.len()] = [const { OnceLock::new() }; SHIPPED.len()];
        let parse = || {
            let text = SHIPPED[soc as usize];
            Self::parse(soc.short_name(), text).unwrap_or_else(|problems| panic!("{problems}"))
        };
        PARSED[soc as usize].get_or_init(parse).clone()
    }

    /// Parses TOML; `place` names the text in errors.
    ///
    /// # Errors
    /// The first TOML error, or all invalid values.
    pub fn parse(place: &str, text: &str) -> Result<Self, Problems> {
        let text: ProfileText =
            toml::from_str(text).map_err(|error| Problems::of_toml(place, text, &error))?;
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
            problems.push(Problem::new(
                format!("{place}: hbm_gib"),
                "no such card",
                "GiB from 8 to 1024",
                gib,
            ));
        }
        let coefficients = Coefficients::with(place, text.coefficients)?;
        problems.extend(coefficients.problems(place));
        Problems::none_or(problems)?;
        Ok(Self { soc, hbm_installed_bytes: gib * GIB, origin: text.origin, coefficients })
    }

    /// Returns TOML for [`Self::parse`].
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

    /// Returns the memory of one card without the driver's share.
    #[must_use]
    pub const fn hbm_usable_bytes(&self) -> u64 {
        self.hbm_installed_bytes - (self.soc.hbm_installed_bytes() - self.soc.hbm_usable_bytes())
    }
}

impl Coefficients {
    fn with(place: &str, own: toml::Table) -> Result<Self, Problems> {
        let of = |place: &str, text: &str| -> Result<toml::Table, Problems> {
            toml::from_str(text).map_err(|error| Problems::of_toml(place, text, &error))
        };
        let mut all = of("coefficients.toml", SHARED)?;
        overlay(&mut all, own);
        all.try_into().map_err(|error: toml::de::Error| {
            let expected = "the names and numbers of machine/profiles/coefficients.toml";
            Problems(vec![Problem::new(
                format!("{place}: coefficients"),
                error.message(),
                expected,
                "another",
            )])
        })
    }

    fn table(&self) -> toml::Table {
        toml::Table::try_from(self).unwrap_or_else(|error| panic!("coefficients are plain numbers: {error}"))
    }

    /// Returns a coefficient by its path in [`MEANINGS`].
    #[must_use]
    pub fn get(&self, path: &str) -> Option<f64> {
        let table = self.table();
        match path.split_once('.') {
            None => table.get(path)?.as_float(),
            Some((outer, inner)) => table.get(outer)?.get(inner)?.as_float(),
        }
    }

    /// Returns a copy with other values at these paths.
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
            times.into_iter().filter(|(_, value)| !(*value >= 0.0 && value.is_finite())).map(
                |(name, value)| Problem::new(at(name), "means nothing", "microseconds from 0 on", value),
            ),
        );
        if !(host.copy_bytes_per_us > 0.0 && host.copy_bytes_per_us.is_finite()) {
            let place = at("host.copy_bytes_per_us");
            problems.push(Problem::new(place, "means nothing", "a rate above 0", host.copy_bytes_per_us));
        }
        problems
    }
}

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
                assert!(
                    value > low * 1.001 && value < high * 0.999,
                    "{soc}: {name} = {value} of {low} to {high}"
                );
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
        assert!(
            lines[1].contains("hbm_efficiency: means nothing: expected a part above 0, at most 1, found 0")
        );
        assert!(lines[2].contains("kernel_us: means nothing: expected microseconds from 0 on, found -1"));
        let text = "chip = '910b3'\norigin = 'me'\n[coefficients]\nspeed = 1.0\n";
        let problems = Profile::parse("mine.toml", text).unwrap_err().to_string();
        assert!(problems.starts_with("mine.toml: coefficients: unknown field `speed`"), "{problems}");
        let problems = Profile::parse("mine.toml", "chip = 'x'\nspeed = 3\n").unwrap_err().to_string();
        assert!(problems.starts_with("mine.toml: line 2: "), "{problems}");
    }
}
