//! What an exchange of bytes in a group of cards costs.
//!
//! Input: a [`Profile`], a [`Topology`], the exchange, its bytes and the cards of the group. Output: its duration from the
//! arrival of the last card on, and which links bound it.

use crate::profile::Profile;
use crate::topology::{Fabric, Topology};

/// What a group exchanges. Bytes are those of the whole: what all cards hold together after an `AllGather` or before a
/// `ReduceScatter`, what each holds for an `AllReduce` or `Broadcast`, what one card gives away in an `AllToAll`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Exchange {
    /// Everyone gets the reduction.
    AllReduce,
    /// Everyone gets all parts.
    AllGather,
    /// Everyone gets its part of the reduction.
    ReduceScatter,
    /// Everyone gives each a part.
    AllToAll,
    /// One gives all.
    Broadcast,
    /// One gets the reduction.
    Reduce,
    /// One gives each a part.
    Scatter,
    /// From one to another.
    SendRecv,
    /// Nothing but the meeting.
    Barrier,
}

/// How an exchange is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Every two cards directly.
    Mesh,
    /// Around a ring.
    Ring,
    /// Doubling distances.
    HalvingDoubling,
    /// Inside each unit, then between units.
    Hierarchical,
}

/// What an exchange costs, in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveCost {
    /// From the arrival of the last card to the end.
    pub duration_us: f64,
    /// The part that does not depend on the bytes.
    pub latency_us: f64,
    /// The part that does.
    pub transfer_us: f64,
    /// How it is done: the fastest way.
    pub algorithm: Algorithm,
    /// The level of the topology that bounds it.
    pub level: usize,
}

impl CollectiveCost {
    /// The cost of one exchange alone on its links. `cards` are numbers of the topology.
    #[must_use]
    pub fn of(profile: &Profile, topology: &Topology, exchange: Exchange, bytes: f64, cards: &[usize]) -> Self {
        let group = cards.len() as f64;
        let spans =
            |level: &crate::topology::Level| cards.iter().all(|card| card / level.cards == cards[0] / level.cards);
        let level = topology.levels.iter().position(spans).unwrap_or(topology.levels.len().saturating_sub(1));
        let at = &topology.levels[level];
        let share = match at.fabric {
            Fabric::FullMesh => (group - 1.0) / (at.cards as f64 - 1.0),
            Fabric::Switch => 1.0,
            Fabric::Bus => 1.0 / group,
        };
        let turns = match exchange {
            Exchange::AllReduce => 2.0 * (group - 1.0) / group,
            Exchange::Barrier => 0.0,
            _ => (group - 1.0) / group,
        };
        let rate = at.bytes_per_us * share * profile.coefficients.link_efficiency;
        let transfer_us = if cards.len() > 1 { turns * bytes / rate } else { 0.0 };
        let latency_us = profile.coefficients.collective_us + at.latency_us;
        Self { duration_us: latency_us + transfer_us, latency_us, transfer_us, algorithm: Algorithm::Mesh, level }
    }
}
