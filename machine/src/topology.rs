//! Topologies: the connections between cards.
//!
//! A [`Topology`] is a list of levels, innermost first. Cards in one unit of a level reach each
//! other over its links. In a parsed topology, the number of cards of every level is a multiple of
//! the number one level below. Every rate is positive.

use serde::{Deserialize, Serialize};

use crate::problem::{Problem, Problems};
use crate::soc::Soc;

/// Connection between the parts of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fabric {
    /// A link between every two cards of different parts: a group of `g` cards in a mesh of `n` has
    /// `(g - 1) / (n - 1)` of a card's rate.
    FullMesh,
    /// Every card has its full rate.
    Switch,
    /// The cards share one rate.
    Bus,
}

/// One level of a topology.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Such as `hccs`, `pcie`, `roce`.
    pub name: String,
    /// Connection of the level.
    pub fabric: Fabric,
    /// Cards in one unit.
    pub cards: usize,
    /// Maximum rate of a card, one way (1000 is 1 GB/s); for a bus, of all cards together.
    pub bytes_per_us: f64,
    /// Latency of the first byte.
    pub latency_us: f64,
    /// Rate fraction of large copies.
    #[serde(default = "usual_efficiency")]
    pub efficiency: f64,
    /// Largest part that cores copy directly; 0 if they cannot read the memory of other cards.
    #[serde(default = "usual_direct_bytes")]
    pub direct_bytes: f64,
}

/// Fraction of the HCCS rate that collectives reach on a 910B (`topologies/atlas-a2.toml`).
const fn usual_efficiency() -> f64 {
    0.7
}

/// Within a server. From 2 MiB per card on, measured times belong to another algorithm (A3 dies,
/// HCCL of CANN 8.5).
const fn usual_direct_bytes() -> f64 {
    2_097_152.0
}

/// Levels of connections. The last level spans all cards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Name in tables and options.
    pub name: String,
    /// Levels of links, innermost first.
    pub levels: Vec<Level>,
}

const SERVER: usize = Soc::Ascend910B3.cards_of_a_server();

const PRESETS: [(&str, &str); 4] = [
    ("atlas-a2", include_str!("../topologies/atlas-a2.toml")),
    ("atlas-a2-box16", include_str!("../topologies/atlas-a2-box16.toml")),
    ("atlas-a3", include_str!("../topologies/atlas-a3.toml")),
    ("atlas-pcie", include_str!("../topologies/atlas-pcie.toml")),
];

impl Topology {
    /// Names of the built-in topologies.
    pub const PRESETS: [&str; 4] = {
        let mut names = [""; PRESETS.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = PRESETS[index].0;
            index += 1;
        }
        names
    };

    /// Returns a built-in topology.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        let (_, text) = PRESETS.iter().find(|(preset, _)| *preset == name)?;
        Self::parse(name, text).ok()
    }

    /// Parses TOML; `place` names the text in errors.
    ///
    /// # Errors
    /// The first TOML error, or all invalid values.
    pub fn parse(place: &str, text: &str) -> Result<Self, Problems> {
        let topology: Self = toml::from_str(text).map_err(|error| Problems::of_toml(place, text, &error))?;
        topology.check(place)?;
        Ok(topology)
    }

    /// Checks all values.
    ///
    /// # Errors
    /// All invalid values, each with its place below `place`.
    pub fn check(&self, place: &str) -> Result<(), Problems> {
        let mut problems = Vec::new();
        if self.levels.is_empty() {
            problems.push(Problem::new(place, "no level joins any cards", "at least one [[levels]]", "none"));
        }
        let mut below = 1;
        for (index, level) in self.levels.iter().enumerate() {
            let at = |field: &str| format!("{place}: levels[{index}] `{}`: {field}", level.name);
            if level.name.is_empty() {
                problems.push(Problem::new(
                    at("name"),
                    "a level needs a name",
                    "`hccs`, `roce` or the like",
                    "nothing",
                ));
            }
            if level.cards <= below || level.cards % below != 0 {
                let unit = if index == 0 {
                    "a number above 1".into()
                } else {
                    format!("a multiple of {below} above it")
                };
                let what = if index == 0 {
                    "one card needs no links"
                } else {
                    "units of the level below do not fill it"
                };
                problems.push(Problem::new(at("cards"), what, unit, level.cards));
            }
            for (field, value, least, expected) in [
                ("bytes_per_us", level.bytes_per_us, f64::MIN_POSITIVE, "a rate above 0"),
                ("latency_us", level.latency_us, 0.0, "microseconds from 0 on"),
                ("efficiency", level.efficiency, f64::MIN_POSITIVE, "a part above 0, at most 1"),
                ("efficiency", 1.0 - level.efficiency, 0.0, "a part above 0, at most 1"),
                ("direct_bytes", level.direct_bytes, 0.0, "bytes from 0 on"),
            ] {
                if !value.is_finite() || value < least {
                    problems.push(Problem::new(at(field), "means nothing", expected, value));
                }
            }
            below = level.cards.max(1);
        }
        Problems::none_or(problems)
    }

    /// Returns Atlas 800 A2 servers: eight cards in a full HCCS mesh, connected by RoCE
    /// (`topologies/atlas-a2.toml`).
    #[must_use]
    pub fn atlas_a2(servers: usize) -> Self {
        let mut topology =
            Self::preset("atlas-a2").unwrap_or(Self { name: String::new(), levels: Vec::new() });
        topology.levels.truncate(if servers > 1 { 2 } else { 1 });
        if let [_, roce] = topology.levels.as_mut_slice() {
            roce.cards = SERVER * servers;
        }
        topology
    }

    /// Returns [`Topology::atlas_a2`] with enough servers for `cards` cards.
    #[must_use]
    pub fn atlas_a2_of(cards: usize) -> Self {
        Self::atlas_a2(cards.div_ceil(SERVER).max(1))
    }

    /// Returns the number of cards in the topology.
    #[must_use]
    pub fn cards(&self) -> usize {
        self.levels.last().map_or(0, |level| level.cards)
    }

    pub(crate) fn cards_below(&self, level: usize) -> usize {
        if level == 0 { 1 } else { self.levels[level - 1].cards }
    }

    pub(crate) fn level_between(&self, a: usize, b: usize) -> usize {
        let joins = |level: &Level| a / level.cards == b / level.cards;
        self.levels.iter().position(joins).unwrap_or(self.levels.len().saturating_sub(1))
    }
}

/// Spread of a group of cards over the levels. If units contain different numbers of the group's
/// cards, the fullest unit counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spread {
    /// Cards in the group.
    pub cards: usize,
    /// Parts of the fullest unit that contain cards of the group, by level; 1 if the level is
    /// unused.
    pub parts: Vec<usize>,
    /// Most peers of a card, by level.
    pub peers: Vec<usize>,
    /// True if all units of a level contain equally many of the cards.
    pub is_even: bool,
}

impl Spread {
    /// Returns the spread of `cards`, numbers of the topology in any order.
    #[must_use]
    pub fn of(topology: &Topology, cards: &[usize]) -> Self {
        let mut cards = cards.to_vec();
        cards.sort_unstable();
        cards.dedup();
        let mut below: Vec<(usize, usize)> = cards.iter().map(|card| (*card, 1)).collect();
        let mut spread = Self { cards: cards.len(), parts: Vec::new(), peers: Vec::new(), is_even: true };
        for (index, level) in topology.levels.iter().enumerate() {
            let ratio = level.cards / topology.cards_below(index);
            let units = below.chunk_by(|a, b| a.0 / ratio == b.0 / ratio);
            let (mut parts, mut peers, mut joined) = (1, 0, Vec::new());
            for unit in units {
                let held: usize = unit.iter().map(|(_, held)| held).sum();
                let least = unit.iter().map(|(_, held)| *held).min().unwrap_or(held);
                parts = parts.max(unit.len());
                peers = peers.max(held - least);
                joined.push((unit[0].0 / ratio, held));
            }
            spread.is_even &= joined.iter().all(|(_, held)| *held == joined[0].1);
            spread.parts.push(parts);
            spread.peers.push(peers);
            below = joined;
        }
        spread
    }

    /// Returns the spread of a regular group: `parts[l]` parts in every unit of level `l`. Missing
    /// levels are unused.
    #[must_use]
    pub fn regular(topology: &Topology, parts: &[usize]) -> Self {
        let mut within = 1;
        let mut spread = Self { cards: 1, parts: Vec::new(), peers: Vec::new(), is_even: true };
        for level in 0..topology.levels.len() {
            let here = parts.get(level).copied().unwrap_or(1).max(1);
            spread.parts.push(here);
            spread.peers.push(within * (here - 1));
            within *= here;
        }
        spread.cards = within;
        spread
    }

    /// Returns the used levels, innermost first.
    pub fn levels(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        (0..self.parts.len()).filter(|level| self.peers[*level] > 0)
    }

    pub(crate) fn within_below(&self, level: usize) -> usize {
        self.parts[..level].iter().product()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_shipped_topology_parses_and_says_its_name() {
        for (name, text) in PRESETS {
            let topology = Topology::parse(name, text).unwrap();
            assert_eq!(topology.name, name);
            assert_eq!(Topology::preset(name), Some(topology));
        }
        assert_eq!(Topology::preset("token-ring"), None);
        assert_eq!((Topology::atlas_a2(1).cards(), Topology::atlas_a2(4).cards()), (8, 32));
        assert_eq!(Topology::atlas_a2(4).check("a2"), Ok(()));
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let text = "name = 'x'\n\
                    [[levels]]\nname = 'mesh'\nfabric = 'full_mesh'\ncards = 8\nbytes_per_us = 0.0\nlatency_us = 1.0\n\
                    [[levels]]\nname = 'net'\nfabric = 'switch'\ncards = 12\nbytes_per_us = 1.0\nlatency_us = -1.0\n";
        let problems = Topology::parse("my.toml", text).unwrap_err();
        assert_eq!(
            problems.to_string(),
            "my.toml: levels[0] `mesh`: bytes_per_us: means nothing: expected a rate above 0, found 0\n\
             my.toml: levels[1] `net`: cards: units of the level below do not fill it: expected a multiple of 8 above it, found 12\n\
             my.toml: levels[1] `net`: latency_us: means nothing: expected microseconds from 0 on, found -1"
        );
        let problems = Topology::parse("my.toml", "name = 'x'\nlevels = []\n").unwrap_err();
        assert_eq!(problems.0.len(), 1, "{problems}");
        for (text, line) in
            [("name = 'x'\nspeed = 1\n", 2), ("name = \n", 1), ("name = 'x'\n[[levels]]\ncards = 'a'", 3)]
        {
            let problems = Topology::parse("my.toml", text).unwrap_err().to_string();
            assert!(problems.starts_with(&format!("my.toml: line {line}: ")), "{problems}");
        }
    }

    #[test]
    fn groups_lie_on_the_levels_they_need() {
        let topology = Topology::preset("atlas-a3").unwrap();
        let spread = |cards: &[usize]| Spread::of(&topology, cards);
        assert_eq!(spread(&[0, 1, 2, 3]), Spread::regular(&topology, &[2, 2]));
        assert_eq!(spread(&[0, 16, 32]), Spread::regular(&topology, &[1, 1, 3]));
        let uneven = spread(&[0, 1, 2]);
        assert_eq!(
            (uneven.cards, uneven.is_even, uneven.peers.as_slice()),
            (3, false, [1, 2, 0, 0].as_slice())
        );
    }

    proptest! {
        #[test]
        fn a_regular_group_is_that_of_its_cards(parts in (1_usize..=8, 1_usize..=5), first in 0_usize..3) {
            let topology = Topology::atlas_a2(8);
            let cards: Vec<usize> =
                (0..parts.1).flat_map(|server| (0..parts.0).map(move |card| (first + server) * 8 + card)).collect();
            prop_assert_eq!(Spread::of(&topology, &cards), Spread::regular(&topology, &[parts.0, parts.1]));
        }
    }
}
