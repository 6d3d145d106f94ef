//! Cost of an exchange of bytes in a group of cards.
//!
//! - Invariants: more bytes or a slower link are never faster. An `AllReduce` is never faster than
//!   the `ReduceScatter` of the same bytes. A larger group can be faster, because each card of a
//!   larger full mesh has more links.
//!
//! In a group of g cards, each card owns S/g of S bytes. Cores copy small parts; above a size given
//! by the level of the links, copy engines transfer the parts, with a longer setup.
//!
//! | algorithm | cost |
//! |---|---|
//! | [`Algorithm::Direct`] | a fixed time, a time per further card, and in each half the time to publish the part and of the busiest level |
//! | [`Algorithm::Staged`] | a setup time, plus the busiest level, longer where values are added |
//! | [`Algorithm::Copy`] | one card to another: a fixed time, plus the bytes over one link |
//! | [`Algorithm::Scatter`] | distinct parts: a fixed time, a time per doubling of the group, plus the busiest level |
//!
//! Levels work in parallel. Parts that every card receives cross a level once per unit and are
//! forwarded inside the unit. Distinct parts cross a level once per card.

use std::collections::BTreeMap;

use crate::profile::Profile;
use crate::topology::{Fabric, Spread, Topology};

/// Exchange of data in a group of cards. Sizes refer to the whole data: the result of an
/// `AllGather`, the input of a `ReduceScatter`, the data of each card for an `AllReduce` or
/// `Broadcast`. For `AllToAll`, `Scatter` and `Shift`: the data that one card sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Exchange {
    /// Every card receives the reduction.
    AllReduce,
    /// Every card receives all parts.
    AllGather,
    /// Every card receives one reduced part.
    ReduceScatter,
    /// Every card sends a distinct part to each card.
    AllToAll,
    /// One card sends its data to all cards.
    Broadcast,
    /// One card receives the reduction.
    Reduce,
    /// One card sends a distinct part to each card.
    Scatter,
    /// One card sends its data to another.
    SendRecv,
    /// Every card sends all its data to a different card.
    Shift,
    /// Synchronization of the cards without data.
    Barrier,
}

impl Exchange {
    /// Exchanges in enum order.
    pub const ALL: [Self; 10] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Broadcast,
        Self::Reduce,
        Self::Scatter,
        Self::SendRecv,
        Self::Shift,
        Self::Barrier,
    ];

    /// Returns the table name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Scatter => "scatter",
            Self::SendRecv => "send_recv",
            Self::Shift => "shift",
            Self::Barrier => "barrier",
        }
    }

    /// Passes of every part over the group; an `AllReduce` takes two.
    const fn halves(self) -> f64 {
        match self {
            Self::AllReduce | Self::Broadcast | Self::Reduce => 2.0,
            Self::AllGather
            | Self::ReduceScatter
            | Self::AllToAll
            | Self::Scatter
            | Self::SendRecv
            | Self::Shift
            | Self::Barrier => 1.0,
        }
    }
}

/// Algorithm of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Cores read published data.
    Direct,
    /// Copy engines, level by level.
    Staged,
    /// Copies of distinct parts.
    Scatter,
    /// One copy between cards.
    Copy,
}

impl Algorithm {
    /// Returns the table name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Staged => "staged",
            Self::Scatter => "scatter",
            Self::Copy => "copy",
        }
    }
}

/// Fraction of the shorter of product and exchange that a fused call hides. A product (4096 x 3072
/// x 8192, f16) took 803 us, its `AllReduce` on 8 cards of an Atlas A2 1071 us, the fused call 1262
/// us (Ascend C guide, best practices of fused communication): (803 + 1071 - 1262) / 803.
const HIDDEN_OF_SHORTER: f64 = 0.762;

/// Cost of an exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveCost {
    /// Duration from the last card's arrival, without other traffic.
    pub duration_us: f64,
    /// Independent of the bytes.
    pub latency_us: f64,
    /// Dependent on the bytes.
    pub transfer_us: f64,
    /// Algorithm of the exchange.
    pub algorithm: Algorithm,
    /// Topology level that limits the duration.
    pub level: usize,
    /// Busy time of a card's links, by level.
    pub busy_us: Vec<f64>,
}

impl CollectiveCost {
    /// Returns the cost without other traffic. `cards` are card numbers of the topology.
    #[must_use]
    pub fn of(
        profile: &Profile,
        topology: &Topology,
        exchange: Exchange,
        bytes: f64,
        cards: &[usize],
    ) -> Self {
        Self::of_spread(profile, topology, exchange, bytes, &Spread::of(topology, cards))
    }

    /// Returns the cost for cards that cannot read the memory of other cards.
    #[must_use]
    pub fn by_copies(
        profile: &Profile,
        topology: &Topology,
        exchange: Exchange,
        bytes: f64,
        cards: &[usize],
    ) -> Self {
        let spread = &Spread::of(topology, cards);
        let ground = CostContext { profile, topology, spread };
        let way = match exchange {
            Exchange::AllReduce
            | Exchange::AllGather
            | Exchange::ReduceScatter
            | Exchange::Broadcast
            | Exchange::Reduce
                if spread.cards > 1 =>
            {
                ground.staged(exchange, bytes)
            }
            _ => ground.way(exchange, bytes),
        };
        Self::of_way(way, spread)
    }

    /// Returns the cost for a known spread.
    #[must_use]
    pub fn of_spread(
        profile: &Profile,
        topology: &Topology,
        exchange: Exchange,
        bytes: f64,
        spread: &Spread,
    ) -> Self {
        Self::of_way(CostContext { profile, topology, spread }.way(exchange, bytes), spread)
    }

    fn of_way(way: ExchangePath, spread: &Spread) -> Self {
        let outermost = spread.levels().next_back().unwrap_or(0);
        let busiest = (0..way.busy_us.len()).max_by(|a, b| way.busy_us[*a].total_cmp(&way.busy_us[*b]));
        let level = busiest.filter(|level| way.busy_us[*level] > 0.0).unwrap_or(outermost);
        Self {
            duration_us: way.total_us(),
            latency_us: way.latency_us,
            transfer_us: way.transfer_us,
            algorithm: way.algorithm,
            level,
            busy_us: way.busy_us,
        }
    }

    /// Returns the cost that remains visible when a fused call computes a product in parallel. The
    /// fusion hides most of the shorter time, but never the part that is independent of the bytes.
    #[must_use]
    pub fn beside(self, product_us: f64) -> Self {
        let hidden_us = HIDDEN_OF_SHORTER * product_us.min(self.transfer_us);
        let left = if self.transfer_us > 0.0 { 1.0 - hidden_us / self.transfer_us } else { 1.0 };
        Self {
            duration_us: self.duration_us - hidden_us,
            transfer_us: self.transfer_us - hidden_us,
            busy_us: self.busy_us.iter().map(|busy| busy * left).collect(),
            ..self
        }
    }

    /// Returns the occupied links. `cards` and the topology must match the cost. In a mesh all
    /// pairs are returned, even if only some communicate.
    #[must_use]
    pub fn links(&self, topology: &Topology, cards: &[usize]) -> Vec<LinkLoad> {
        let mut cards = cards.to_vec();
        cards.sort_unstable();
        cards.dedup();
        let mut loads = Vec::new();
        for (index, (level, busy_us)) in topology.levels.iter().zip(&self.busy_us).enumerate() {
            let busy = busy_us / self.duration_us;
            if busy <= 0.0 {
                continue;
            }
            let mut push = |link| loads.push(LinkLoad { link, busy });
            let is_here = |a: usize, b: usize| topology.level_between(a, b) == index;
            match level.fabric {
                Fabric::Switch => {
                    cards.iter().for_each(|card| push(Link::Port { level: index, card: *card }));
                }
                Fabric::Bus => {
                    let units = cards.chunk_by(|a, b| a / level.cards == b / level.cards);
                    units.for_each(|unit| push(Link::Bus { level: index, unit: unit[0] / level.cards }));
                }
                Fabric::FullMesh => {
                    for unit in cards.chunk_by(|a, b| a / level.cards == b / level.cards) {
                        let pairs = unit.iter().flat_map(|from| unit.iter().map(move |to| (*from, *to)));
                        for (from, to) in pairs.filter(|(from, to)| from != to && is_here(*from, *to)) {
                            push(Link::Between { level: index, from, to });
                        }
                    }
                }
            }
        }
        loads
    }
}

/// A link that serves one exchange at a time at its full rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Link {
    /// Between two cards of a full mesh.
    Between {
        /// Topology level of the link.
        level: usize,
        /// Number of the sending card.
        from: usize,
        /// Number of the receiving card.
        to: usize,
    },
    /// A card's switch port.
    Port {
        /// Topology level of the port.
        level: usize,
        /// Number of the sending card.
        card: usize,
    },
    /// A bus shared by a unit.
    Bus {
        /// Topology level of the bus.
        level: usize,
        /// Unit on that level.
        unit: usize,
    },
}

/// Load during an exchange.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkLoad {
    /// The link that carries the load.
    pub link: Link,
    /// Busy fraction of the exchange's duration.
    pub busy: f64,
}

/// Returns the slowdown factor of each exchange while all run: the load of the busiest link, or 1
/// without shared links.
#[must_use]
pub fn slow_downs(running: &[&[LinkLoad]]) -> Vec<f64> {
    let mut wanted: BTreeMap<Link, f64> = BTreeMap::new();
    for load in running.iter().copied().flatten() {
        *wanted.entry(load.link).or_default() += load.busy;
    }
    let slowest = |loads: &&[LinkLoad]| loads.iter().map(|load| wanted[&load.link]).fold(1.0, f64::max);
    running.iter().map(slowest).collect()
}

struct ExchangePath {
    algorithm: Algorithm,
    latency_us: f64,
    transfer_us: f64,
    busy_us: Vec<f64>,
}

impl ExchangePath {
    fn total_us(&self) -> f64 {
        self.latency_us + self.transfer_us
    }
}

/// Factor for the size limit of direct copies in an `AllGather`.
const GATHERED: f64 = 0.5;

struct CostContext<'a> {
    profile: &'a Profile,
    topology: &'a Topology,
    spread: &'a Spread,
}

impl CostContext<'_> {
    fn way(&self, exchange: Exchange, bytes: f64) -> ExchangePath {
        match exchange {
            Exchange::SendRecv => return self.copy(bytes),
            Exchange::AllToAll | Exchange::Scatter | Exchange::Shift | Exchange::Barrier => {
                return self.scatter(exchange, bytes);
            }
            _ => {}
        }
        let spread = self.spread;
        let levels = spread.levels().map(|level| self.topology.levels[level].direct_bytes);
        let gathered = if exchange == Exchange::AllGather { GATHERED } else { 1.0 };
        let most = levels.fold(f64::INFINITY, f64::min) * gathered * spread.cards as f64;
        let direct = self.direct(exchange, bytes.min(most));
        if bytes <= most {
            return direct;
        }
        let mut staged = self.staged(exchange, bytes);
        // The separate fits must stay monotone in the bytes.
        staged.transfer_us += (direct.total_us() - staged.total_us()).max(0.0);
        staged
    }

    fn latency_us(&self) -> f64 {
        self.spread.levels().map(|level| self.topology.levels[level].latency_us).fold(0.0, f64::max)
    }

    /// Time by level for a card to send data that every card receives once, at full rate.
    fn shared_us(&self, bytes: f64) -> Vec<f64> {
        let spread = self.spread;
        let level_us = |level: usize| {
            let (parts, peers) = (spread.parts[level], spread.peers[level]);
            if peers == 0 {
                0.0
            } else if spread.is_even {
                let sent = bytes / spread.within_below(level) as f64 * (1.0 - 1.0 / parts as f64);
                self.link_us(level, sent, parts - 1)
            } else {
                self.link_us(level, bytes / spread.cards as f64 * peers as f64, peers)
            }
        };
        (0..spread.parts.len()).map(level_us).collect()
    }

    /// Time for a card to send `bytes` over `links` links of a level. Links of a mesh work in
    /// parallel.
    fn link_us(&self, index: usize, bytes: f64, links: usize) -> f64 {
        let level = &self.topology.levels[index];
        let senders = self.spread.within_below(index) * self.spread.parts[index];
        let times = match level.fabric {
            Fabric::FullMesh => (level.cards - self.topology.cards_below(index)) as f64 / links.max(1) as f64,
            Fabric::Switch => 1.0,
            Fabric::Bus => senders as f64,
        };
        bytes * times / level.bytes_per_us
    }

    fn direct(&self, exchange: Exchange, bytes: f64) -> ExchangePath {
        let c = &self.profile.coefficients.exchange;
        let halves = exchange.halves();
        let busy_us: Vec<f64> =
            self.shared_us(bytes).into_iter().map(|us| halves * us / c.direct_efficiency).collect();
        let peers = self.spread.cards - 1;
        let part = if peers == 0 { 0.0 } else { bytes / self.spread.cards as f64 };
        ExchangePath {
            algorithm: Algorithm::Direct,
            latency_us: c.direct_us + c.peer_us * peers as f64 + halves * self.latency_us(),
            transfer_us: halves * part / c.publish_bytes_per_us + busy_us.iter().copied().fold(0.0, f64::max),
            busy_us,
        }
    }

    fn staged(&self, exchange: Exchange, bytes: f64) -> ExchangePath {
        let c = &self.profile.coefficients.exchange;
        let reduced = match exchange {
            Exchange::AllReduce | Exchange::ReduceScatter | Exchange::Reduce => 1.0,
            _ => 0.0,
        };
        let times = exchange.halves() - reduced + reduced / c.reduce_efficiency;
        let levels = self.shared_us(bytes).into_iter().zip(&self.topology.levels);
        let busy_us: Vec<f64> = levels.map(|(us, level)| times * us / level.efficiency).collect();
        ExchangePath {
            algorithm: Algorithm::Staged,
            latency_us: c.staged_us + exchange.halves() * self.latency_us(),
            transfer_us: busy_us.iter().copied().fold(0.0, f64::max),
            busy_us,
        }
    }

    fn copy(&self, bytes: f64) -> ExchangePath {
        let c = &self.profile.coefficients.exchange;
        let mut busy_us = vec![0.0; self.topology.levels.len()];
        if let Some(level) = self.spread.levels().next_back() {
            busy_us[level] = self.link_us(level, bytes, 1) / c.direct_efficiency;
        }
        ExchangePath {
            algorithm: Algorithm::Copy,
            latency_us: c.copy_us + self.latency_us(),
            transfer_us: busy_us.iter().copied().fold(0.0, f64::max),
            busy_us,
        }
    }

    fn scatter(&self, exchange: Exchange, bytes: f64) -> ExchangePath {
        let (c, spread) = (&self.profile.coefficients.exchange, self.spread);
        let part = if exchange == Exchange::Shift { bytes } else { bytes / spread.cards as f64 };
        let sent = |level: usize| match exchange {
            Exchange::Barrier => (0.0, 1),
            // Varies between neighbours.
            Exchange::Shift => (part * spread.peers[level].min(1) as f64, 1),
            _ => (part * spread.peers[level] as f64, spread.peers[level]),
        };
        let level_us = |(index, level): (usize, &crate::topology::Level)| {
            let (sent, links) = sent(index);
            self.link_us(index, sent, links) / level.efficiency
        };
        let busy_us: Vec<f64> = self.topology.levels.iter().enumerate().map(level_us).collect();
        let alone = if spread.cards > 1 { part / c.publish_bytes_per_us } else { 0.0 };
        let doublings = (spread.cards as f64).log2();
        ExchangePath {
            algorithm: Algorithm::Scatter,
            latency_us: c.scatter_us + c.scatter_doubling_us * doublings + self.latency_us(),
            transfer_us: busy_us.iter().copied().fold(alone, f64::max),
            busy_us,
        }
    }
}

#[cfg(test)]
mod tests;
