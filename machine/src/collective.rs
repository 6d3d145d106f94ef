//! What an exchange of bytes in a group of cards costs.
//!
//! Input: a [`Profile`], a [`Topology`], the exchange, its bytes and the cards of the group. Output: its duration from the
//! arrival of the last card on, the way it is done, which level bounds it, and how busy it keeps which [`Link`]s, from which
//! [`slow_downs`] says what exchanges that run together do to each other.
//!
//! Invariants: more bytes or a slower link are never faster; an `AllReduce` is never faster than the `ReduceScatter` of the same
//! bytes. A larger group can be faster: in a full mesh each of its cards has more links.
//!
//! Of S bytes in a group of g a card has a part of S/g. Small parts are copied by the cards' cores, which read each other's
//! memory; above a size that the links' level says, copy engines do it, which takes long to set up.
//!
//! | way | takes |
//! |---|---|
//! | [`Algorithm::Direct`] | a fixed time and one for each further card; in each half of the exchange, publishing the part and what the busiest level carries |
//! | [`Algorithm::Staged`] | the time to set up; what the busiest level carries, longer where values are added |
//! | [`Algorithm::Copy`] | from one to another: a fixed time, and the bytes over one link |
//! | [`Algorithm::Scatter`] | parts that differ for everyone, or one to one other: a fixed time and one for each doubling of the group; what the busiest level carries |
//!
//! Levels work side by side. What one carries: parts that everyone gets cross it once for each of its units, and are passed on
//! inside; parts that differ cross it once for every card.

use std::collections::BTreeMap;

use crate::profile::Profile;
use crate::topology::{Fabric, Spread, Topology};

/// What a group exchanges. Bytes are those of the whole: what all cards hold together after an `AllGather` or before a
/// `ReduceScatter`, what each holds for an `AllReduce` or `Broadcast`, what one card gives away in an `AllToAll`, `Scatter` or `Shift`.
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
    /// Everyone gives all to one other, no two to the same.
    Shift,
    /// Nothing but the meeting.
    Barrier,
}

impl Exchange {
    /// Every exchange, in the order of the enum.
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

    /// The name in tables.
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

    /// How often every part crosses the group: a reduction to all is a `ReduceScatter` and an `AllGather`, and so on.
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

/// How an exchange is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Cores read what the others published.
    Direct,
    /// Copy engines, level by level.
    Staged,
    /// Copies of different parts to each.
    Scatter,
    /// One copy from card to card.
    Copy,
}

impl Algorithm {
    /// The name in tables.
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

/// Part of the shorter of a product and the bytes of its exchange that a call which joins them hides: of 803 us of a product
/// (4096 x 3072 x 8192, f16) and 1071 us of its `AllReduce` on 8 cards of an Atlas A2, the call took 1262 (Ascend C guide, best
/// practices of fused communication), so (803 + 1071 - 1262) / 803.
const HIDDEN_OF_SHORTER: f64 = 0.762;

/// What an exchange costs, in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveCost {
    /// From the arrival of the last card to the end, alone on its links.
    pub duration_us: f64,
    /// The part that does not depend on the bytes.
    pub latency_us: f64,
    /// The part that does.
    pub transfer_us: f64,
    /// How it is done.
    pub algorithm: Algorithm,
    /// The level of the topology that bounds it.
    pub level: usize,
    /// By level: how long each of a card's links there is busy.
    pub busy_us: Vec<f64>,
}

impl CollectiveCost {
    /// The cost of one exchange alone on its links. `cards` are numbers of the topology.
    #[must_use]
    pub fn of(profile: &Profile, topology: &Topology, exchange: Exchange, bytes: f64, cards: &[usize]) -> Self {
        Self::of_spread(profile, topology, exchange, bytes, &Spread::of(topology, cards))
    }

    /// The same by copies and signals alone, whatever the size: where no core reads another card's memory.
    #[must_use]
    pub fn by_copies(profile: &Profile, topology: &Topology, exchange: Exchange, bytes: f64, cards: &[usize]) -> Self {
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

    /// The same for a group of which only the spread over the levels is known.
    #[must_use]
    pub fn of_spread(profile: &Profile, topology: &Topology, exchange: Exchange, bytes: f64, spread: &Spread) -> Self {
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

    /// What is left of the exchange behind, or before, a product that is joined with it in one call: rows are exchanged while others
    /// are multiplied, which hides most of the shorter of the two; what an exchange takes without its bytes stays.
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

    /// The links a group's exchange keeps busy. `cards` and the topology are those of the cost. Where only some pairs of a
    /// mesh talk, as with doubling distances, all pairs are given.
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
                Fabric::Switch => cards.iter().for_each(|card| push(Link::Port { level: index, card: *card })),
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

/// Something that carries bytes of one exchange at a time at its whole rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Link {
    /// The link from one card to another in a full mesh.
    Between {
        /// The level of the topology it belongs to.
        level: usize,
        /// The card that sends.
        from: usize,
        /// The card that receives.
        to: usize,
    },
    /// A card's way into a switch.
    Port {
        /// The level of the topology it belongs to.
        level: usize,
        /// The card it leaves.
        card: usize,
    },
    /// What all cards of a unit share.
    Bus {
        /// The level of the topology it belongs to.
        level: usize,
        /// The unit's number on that level.
        unit: usize,
    },
}

/// How busy an exchange keeps a link while it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkLoad {
    /// The link that is busy.
    pub link: Link,
    /// Part of the exchange's duration in which it is busy, at most 1.
    pub busy: f64,
}

/// How many times as long each of several exchanges takes while all of them run: as often as the busiest of its links is
/// wanted, and 1 where nothing is shared.
#[must_use]
pub fn slow_downs(running: &[&[LinkLoad]]) -> Vec<f64> {
    let mut wanted: BTreeMap<Link, f64> = BTreeMap::new();
    for load in running.iter().copied().flatten() {
        *wanted.entry(load.link).or_default() += load.busy;
    }
    let slowest = |loads: &&[LinkLoad]| loads.iter().map(|load| wanted[&load.link]).fold(1.0, f64::max);
    running.iter().map(slowest).collect()
}

/// One way to do an exchange.
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

/// Part of the size up to which cores copy that holds where nothing is added up.
const GATHERED: f64 = 0.5;

/// Where an exchange takes place.
struct CostContext<'a> {
    profile: &'a Profile,
    topology: &'a Topology,
    /// How the group lies.
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
        // However the two are fitted, more bytes are not faster.
        staged.transfer_us += (direct.total_us() - staged.total_us()).max(0.0);
        staged
    }

    fn latency_us(&self) -> f64 {
        self.spread.levels().map(|level| self.topology.levels[level].latency_us).fold(0.0, f64::max)
    }

    /// By level: microseconds in which a card sends there what everyone gets of S bytes, once, at the links' whole rate.
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

    /// Microseconds in which a card sends `bytes` over `links` links of a level, which a mesh has side by side.
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
        let busy_us: Vec<f64> = self.shared_us(bytes).into_iter().map(|us| halves * us / c.direct_efficiency).collect();
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
        // Of the halves, the one in which values meet.
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

    /// From one card to another, over the outermost level between them.
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
            // Which level is between two neighbours differs from card to card.
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
