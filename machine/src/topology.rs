//! How cards are joined.
//!
//! A topology is a row of levels, innermost first: cards in a unit of a level reach each other over that level's links.

use serde::{Deserialize, Serialize};

/// How the cards of a unit are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fabric {
    /// A link of its own between every two cards: a group of `g` among `n` has `(g - 1) / (n - 1)` of a card's rate.
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
    /// What a card sends over this level at most, one way, in bytes a microsecond.
    pub bytes_per_us: f64,
    /// Time of the first byte, in microseconds.
    pub latency_us: f64,
}

/// How cards are joined: levels, innermost first; the last spans all cards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Its name.
    pub name: String,
    /// The levels.
    pub levels: Vec<Level>,
}

impl Topology {
    /// Atlas 800 A2 servers of eight cards in a full HCCS mesh, joined by RoCE: 196 GB/s one way a card inside, 25 GB/s
    /// between servers (`tensor_cast/device.py` of Ascend/msmodeling).
    #[must_use]
    pub fn atlas_a2(servers: usize) -> Self {
        let level = |name: &str, fabric, cards, bytes_per_us, latency_us| Level {
            name: name.to_owned(),
            fabric,
            cards,
            bytes_per_us,
            latency_us,
        };
        let mut levels = vec![level("hccs", Fabric::FullMesh, 8, 196_000.0, 0.5)];
        if servers > 1 {
            levels.push(level("roce", Fabric::Switch, 8 * servers, 25_000.0, 1.5));
        }
        Self { name: format!("atlas-a2 x {servers}"), levels }
    }

    /// All cards.
    #[must_use]
    pub fn cards(&self) -> usize {
        self.levels.last().map_or(0, |level| level.cards)
    }
}
