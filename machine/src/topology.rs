//! How cards are joined.
//!
//! Input: TOML, or the name of a topology that ships. Output: a [`Topology`], a row of levels, innermost first: cards in a
//! unit of a level reach each other over that level's links; and the [`Spread`] of a group of cards over those levels.
//! Invariants of a parsed topology: every level's cards are a multiple of those of the level below, every rate is positive.

use serde::{Deserialize, Serialize};

use crate::problem::{Problem, Problems};
use crate::soc::Soc;

/// How the parts of a unit are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fabric {
    /// A link of its own between every two cards of different parts: a group of `g` cards in a mesh of `n` has
    /// `(g - 1) / (n - 1)` of a card's rate.
    FullMesh,
    /// Every card has its whole rate to any other.
    Switch,
    /// All cards share one rate.
    Bus,
}

/// One level of a topology.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Its name in tables: `hccs`, `pcie`, `roce`.
    pub name: String,
    /// How its cards are joined.
    pub fabric: Fabric,
    /// Cards of one unit; a multiple of that of the level below.
    pub cards: usize,
    /// What a card sends over this level at most, one way, in bytes a microsecond (1000 are 1 GB/s); of a bus, what all send.
    pub bytes_per_us: f64,
    /// Time of the first byte, in microseconds.
    pub latency_us: f64,
    /// Part of the rate that copies of many bytes reach.
    #[serde(default = "usual_efficiency")]
    pub efficiency: f64,
    /// Largest part of an exchange, in bytes, that cores copy by themselves; 0 where they cannot read each other's memory.
    #[serde(default = "usual_direct_bytes")]
    pub direct_bytes: f64,
}

/// What collectives over HCCS reach of its rate on a 910B (`topologies/atlas-a2.toml`).
const fn usual_efficiency() -> f64 {
    0.7
}

/// What HCCL's cores copy within a server: from 2 MiB a card on, times are those of another way (A3 dies, HCCL of CANN 8.5).
const fn usual_direct_bytes() -> f64 {
    2_097_152.0
}

/// How cards are joined: levels, innermost first; the last spans all cards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// The name in tables and options.
    pub name: String,
    /// Levels of links, the innermost first.
    pub levels: Vec<Level>,
}

/// Cards of a server of an Atlas A2.
const SERVER: usize = Soc::Ascend910B3.cards_of_a_server();

/// The topologies that ship: name and text.
const PRESETS: [(&str, &str); 4] = [
    ("atlas-a2", include_str!("../topologies/atlas-a2.toml")),
    ("atlas-a2-box16", include_str!("../topologies/atlas-a2-box16.toml")),
    ("atlas-a3", include_str!("../topologies/atlas-a3.toml")),
    ("atlas-pcie", include_str!("../topologies/atlas-pcie.toml")),
];

impl Topology {
    /// Names of the topologies that ship.
    pub const PRESETS: [&str; 4] = {
        let mut names = [""; PRESETS.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = PRESETS[index].0;
            index += 1;
        }
        names
    };

    /// A topology that ships.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        let (_, text) = PRESETS.iter().find(|(preset, _)| *preset == name)?;
        // Every shipped text parses, which a test checks.
        Self::parse(name, text).ok()
    }

    /// The topology of a TOML text; `place` names the text in problems.
    ///
    /// # Errors
    /// The first place that is no such TOML, or everything that is wrong with its figures.
    pub fn parse(place: &str, text: &str) -> Result<Self, Problems> {
        let topology: Self = toml::from_str(text).map_err(|error| Problems::of_toml(place, text, &error))?;
        topology.check(place)?;
        Ok(topology)
    }

    /// Checks the figures.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place below `place`.
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
                let unit =
                    if index == 0 { "a number above 1".into() } else { format!("a multiple of {below} above it") };
                let what =
                    if index == 0 { "one card needs no links" } else { "units of the level below do not fill it" };
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

    /// Atlas 800 A2 servers of eight cards in a full HCCS mesh, joined by RoCE (`topologies/atlas-a2.toml`).
    #[must_use]
    pub fn atlas_a2(servers: usize) -> Self {
        let mut topology = Self::preset("atlas-a2").unwrap_or(Self { name: String::new(), levels: Vec::new() });
        topology.levels.truncate(if servers > 1 { 2 } else { 1 });
        if let [_, roce] = topology.levels.as_mut_slice() {
            roce.cards = SERVER * servers;
        }
        topology
    }

    /// As [`Topology::atlas_a2`], of as many servers as so many cards take, one at least.
    #[must_use]
    pub fn atlas_a2_of(cards: usize) -> Self {
        Self::atlas_a2(cards.div_ceil(SERVER).max(1))
    }

    /// Cards that the levels join.
    #[must_use]
    pub fn cards(&self) -> usize {
        self.levels.last().map_or(0, |level| level.cards)
    }

    /// Cards of one unit of the level below `level`.
    pub(crate) fn cards_below(&self, level: usize) -> usize {
        if level == 0 { 1 } else { self.levels[level - 1].cards }
    }

    /// The innermost level that has both cards in one unit.
    pub(crate) fn level_between(&self, a: usize, b: usize) -> usize {
        let joins = |level: &Level| a / level.cards == b / level.cards;
        self.levels.iter().position(joins).unwrap_or(self.levels.len().saturating_sub(1))
    }
}

/// How a group of cards lies on the levels of a topology: all that the cost of an exchange needs of it. Where units hold
/// different numbers of the group's cards, the fullest counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spread {
    /// Cards of the group.
    pub cards: usize,
    /// By level: of the fullest unit, how many of its parts have cards of the group; 1 where the group does not need the level.
    pub parts: Vec<usize>,
    /// By level: peers a card has there at most.
    pub peers: Vec<usize>,
    /// Whether all units of a level hold the same number of the group's cards.
    pub is_even: bool,
}

impl Spread {
    /// How `cards`, numbers of the topology in any order, lie.
    #[must_use]
    pub fn of(topology: &Topology, cards: &[usize]) -> Self {
        let mut cards = cards.to_vec();
        cards.sort_unstable();
        cards.dedup();
        // By part of the level below: cards of the group in it.
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

    /// How a group lies that is regular: `parts[l]` parts of every unit of level `l`, of each of them as many as the levels
    /// below say. Missing levels are not needed.
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

    /// Levels the group needs, innermost first.
    pub fn levels(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        (0..self.parts.len()).filter(|level| self.peers[*level] > 0)
    }

    /// Cards of the group in a unit of the level below.
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
        assert_eq!((uneven.cards, uneven.is_even, uneven.peers.as_slice()), (3, false, [1, 2, 0, 0].as_slice()));
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
