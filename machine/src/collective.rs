//! What an exchange of bytes in a group of cards costs.
//!
//! Input: a [`Profile`], a [`Topology`], the exchange, its bytes and the cards of the group. Output: its duration from the
//! arrival of the last card on, the way it is done, which level bounds it, and how busy it keeps which [`Link`]s, from which
//! [`slow_downs`] says what exchanges that run together do to each other.
//!
//! Each way of doing it is costed and the fastest is taken, as HCCL does. Invariants: more bytes or a slower link are never
//! faster; an `AllReduce` is never faster than the `ReduceScatter` of the same bytes. A larger group can be faster: in a full
//! mesh each of its cards has more links.
//!
//! | way | sends, with S bytes in a group of g | steps |
//! |---|---|---|
//! | [`Algorithm::OneShot`] | S to every peer | 1 |
//! | [`Algorithm::Mesh`] | S/g to every peer, in each half of the exchange | 1 or 2 |
//! | [`Algorithm::Ring`] | S/g to the next, g - 1 times each half | g - 1 or 2 (g - 1) |
//! | [`Algorithm::HalvingDoubling`] | S/2, S/4 … to partners at doubling distance; groups of 2ⁿ | log₂ g or twice |
//! | [`Algorithm::Hierarchical`] | each level its own best way, on what the levels inside leave | sum |
//!
//! Does not: count reading and adding the bytes on the card itself, which the fixed part and the efficiency cover.

use std::collections::BTreeMap;

use crate::profile::Profile;
use crate::topology::{Fabric, Level, Spread, Topology};

/// What a group exchanges. Bytes are those of the whole: what all cards hold together after an `AllGather` or before a
/// `ReduceScatter`, what each holds for an `AllReduce` or `Broadcast`, what one card gives away in an `AllToAll` or `Scatter`.
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

impl Exchange {
    /// Every exchange.
    pub const ALL: [Self; 9] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Broadcast,
        Self::Reduce,
        Self::Scatter,
        Self::SendRecv,
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
            Self::Barrier => "barrier",
        }
    }

    /// How often every part crosses the group: a reduction to all is a `ReduceScatter` and an `AllGather`, and so on.
    const fn halves(self) -> f64 {
        match self {
            Self::AllReduce | Self::Broadcast | Self::Reduce => 2.0,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Scatter | Self::SendRecv | Self::Barrier => {
                1.0
            }
        }
    }
}

/// How an exchange is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Everything to everyone directly.
    OneShot,
    /// Every two cards directly, each its part.
    Mesh,
    /// Around a ring.
    Ring,
    /// Doubling distances.
    HalvingDoubling,
    /// Inside each unit, then between units.
    Hierarchical,
}

impl Algorithm {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneShot => "one-shot",
            Self::Mesh => "mesh",
            Self::Ring => "ring",
            Self::HalvingDoubling => "halving-doubling",
            Self::Hierarchical => "hierarchical",
        }
    }
}

/// What an exchange costs, in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveCost {
    /// From the arrival of the last card to the end, alone on its links.
    pub duration_us: f64,
    /// The part that does not depend on the bytes.
    pub latency_us: f64,
    /// The part that does.
    pub transfer_us: f64,
    /// How it is done: the fastest way.
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

    /// The same for a group of which only the spread over the levels is known.
    #[must_use]
    pub fn of_spread(profile: &Profile, topology: &Topology, exchange: Exchange, bytes: f64, spread: &Spread) -> Self {
        let ground = Ground { profile, topology, whole: spread };
        let mut best = ground.best_flat(exchange, bytes, spread);
        if let Some(way) = ground.hierarchical(exchange, bytes)
            && way.total_us() < best.total_us()
        {
            best = way;
        }
        let outermost = spread.levels().next_back().unwrap_or(0);
        let busiest = (0..best.busy_us.len()).max_by(|a, b| best.busy_us[*a].total_cmp(&best.busy_us[*b]));
        let level = busiest.filter(|level| best.busy_us[*level] > 0.0).unwrap_or(outermost);
        let latency_us = profile.coefficients.collective_us + best.latency_us;
        Self {
            duration_us: latency_us + best.transfer_us,
            latency_us,
            transfer_us: best.transfer_us,
            algorithm: best.algorithm,
            level,
            busy_us: best.busy_us,
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
                Fabric::FullMesh if self.algorithm == Algorithm::Ring => {
                    let next = cards.iter().cycle().skip(1);
                    for (from, to) in cards.iter().zip(next).filter(|(from, to)| is_here(**from, **to)) {
                        push(Link::Between { level: index, from: *from, to: *to });
                    }
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
        /// Its level.
        level: usize,
        /// The card that sends.
        from: usize,
        /// The card that receives.
        to: usize,
    },
    /// A card's way into a switch.
    Port {
        /// Its level.
        level: usize,
        /// The card.
        card: usize,
    },
    /// What all cards of a unit share.
    Bus {
        /// Its level.
        level: usize,
        /// The unit's number on that level.
        unit: usize,
    },
}

/// How busy an exchange keeps a link while it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkLoad {
    /// The link.
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
struct Way {
    algorithm: Algorithm,
    latency_us: f64,
    transfer_us: f64,
    busy_us: Vec<f64>,
}

impl Way {
    fn total_us(&self) -> f64 {
        self.latency_us + self.transfer_us
    }
}

/// Where an exchange takes place.
struct Ground<'a> {
    profile: &'a Profile,
    topology: &'a Topology,
    /// How the whole group lies.
    whole: &'a Spread,
}

impl Ground<'_> {
    fn level(&self, index: usize) -> &Level {
        &self.topology.levels[index]
    }

    /// Microseconds in which a card sends `bytes` over one of its links of a level while `senders` cards of each unit do.
    fn link_us(&self, index: usize, bytes: f64, senders: usize) -> f64 {
        let level = self.level(index);
        let links = match level.fabric {
            Fabric::FullMesh => level.cards - self.topology.cards_below(index),
            Fabric::Switch => 1,
            Fabric::Bus => senders,
        };
        bytes * links as f64 / (level.bytes_per_us * self.profile.coefficients.link_efficiency)
    }

    /// Cards of the whole group in a unit of a level.
    fn senders(&self, index: usize) -> usize {
        self.whole.within_below(index) * self.whole.parts[index]
    }

    /// The fastest way that makes no use of the levels' difference.
    fn best_flat(&self, exchange: Exchange, bytes: f64, spread: &Spread) -> Way {
        let mut best = self.direct(exchange, bytes, spread);
        let others = [
            self.one_shot(exchange, bytes, spread),
            self.ring(exchange, bytes, spread),
            self.halving(exchange, bytes, spread),
        ];
        for way in others.into_iter().flatten() {
            if way.total_us() < best.total_us() {
                best = way;
            }
        }
        best
    }

    /// `steps` times `bytes` to each of the peers; a card serves one level after the other.
    fn to_peers(&self, algorithm: Algorithm, steps: f64, bytes: f64, peers: impl Fn(usize) -> usize) -> Way {
        let mut way =
            Way { algorithm, latency_us: 0.0, transfer_us: 0.0, busy_us: vec![0.0; self.topology.levels.len()] };
        for index in 0..self.topology.levels.len() {
            let peers = peers(index);
            if peers == 0 {
                continue;
            }
            let at_once = if self.level(index).fabric == Fabric::FullMesh { 1 } else { peers };
            let busy_us = steps * self.link_us(index, bytes * at_once as f64, self.senders(index));
            way.busy_us[index] = busy_us;
            way.transfer_us += busy_us;
            way.latency_us = way.latency_us.max(steps * self.level(index).latency_us);
        }
        way
    }

    fn direct(&self, exchange: Exchange, bytes: f64, spread: &Spread) -> Way {
        let outermost = spread.levels().next_back();
        match exchange {
            Exchange::SendRecv => {
                self.to_peers(Algorithm::OneShot, 1.0, bytes, |level| usize::from(outermost == Some(level)))
            }
            Exchange::Barrier => self.to_peers(Algorithm::OneShot, 1.0, 0.0, |level| spread.peers[level]),
            _ => {
                let part = bytes / spread.cards as f64;
                self.to_peers(Algorithm::Mesh, exchange.halves(), part, |level| spread.peers[level])
            }
        }
    }

    fn one_shot(&self, exchange: Exchange, bytes: f64, spread: &Spread) -> Option<Way> {
        let whole = matches!(exchange, Exchange::AllReduce | Exchange::Broadcast | Exchange::Reduce);
        whole.then(|| self.to_peers(Algorithm::OneShot, 1.0, bytes, |level| spread.peers[level]))
    }

    /// Around the cards in their order: the slowest link between two neighbours sets the pace.
    fn ring(&self, exchange: Exchange, bytes: f64, spread: &Spread) -> Option<Way> {
        if spread.cards < 3
            || matches!(exchange, Exchange::AllToAll | Exchange::Scatter | Exchange::SendRecv | Exchange::Barrier)
        {
            return None;
        }
        let steps = exchange.halves() * (spread.cards - 1) as f64;
        let mut way = Way {
            algorithm: Algorithm::Ring,
            latency_us: 0.0,
            transfer_us: 0.0,
            busy_us: vec![0.0; spread.parts.len()],
        };
        let innermost = spread.levels().next();
        for index in spread.levels() {
            let crossing = if innermost == Some(index) { self.senders(index) } else { spread.parts[index] };
            let busy_us = steps * self.link_us(index, bytes / spread.cards as f64, crossing);
            let latency_us = steps * self.level(index).latency_us;
            way.busy_us[index] = busy_us;
            if busy_us + latency_us > way.total_us() {
                (way.transfer_us, way.latency_us) = (busy_us, latency_us);
            }
        }
        Some(way)
    }

    /// The largest part goes to the nearest partner; one partner at a time, so one link of a mesh.
    fn halving(&self, exchange: Exchange, bytes: f64, spread: &Spread) -> Option<Way> {
        let does = matches!(exchange, Exchange::AllReduce | Exchange::AllGather | Exchange::ReduceScatter);
        let fits = spread.is_even && spread.parts.iter().all(|parts| parts.is_power_of_two());
        if !does || !fits {
            return None;
        }
        let mut way = Way {
            algorithm: Algorithm::HalvingDoubling,
            latency_us: 0.0,
            transfer_us: 0.0,
            busy_us: vec![0.0; spread.parts.len()],
        };
        for index in spread.levels() {
            let parts = spread.parts[index];
            let sent = bytes / spread.within_below(index) as f64 * (1.0 - 1.0 / parts as f64);
            let busy_us = exchange.halves() * self.link_us(index, sent, self.senders(index));
            way.busy_us[index] = busy_us;
            way.transfer_us += busy_us;
            way.latency_us += exchange.halves() * f64::from(parts.ilog2()) * self.level(index).latency_us;
        }
        Some(way)
    }

    /// Level by level: inside each unit everyone reduces or gathers a part, and the outermost level moves only that.
    fn hierarchical(&self, exchange: Exchange, bytes: f64) -> Option<Way> {
        let levels: Vec<usize> = self.whole.levels().collect();
        let (&outermost, inner) = levels.split_last()?;
        if inner.is_empty() || !self.whole.is_even {
            return None;
        }
        let mut sum = Way {
            algorithm: Algorithm::Hierarchical,
            latency_us: 0.0,
            transfer_us: 0.0,
            busy_us: vec![0.0; self.whole.parts.len()],
        };
        let mut add = |exchange, level: usize, bytes: f64| {
            let mut spread = Spread {
                cards: self.whole.parts[level],
                parts: vec![1; self.whole.parts.len()],
                peers: vec![0; self.whole.parts.len()],
                is_even: true,
            };
            spread.parts[level] = spread.cards;
            spread.peers[level] = spread.cards - 1;
            let way = self.best_flat(exchange, bytes, &spread);
            sum.latency_us += way.latency_us;
            sum.transfer_us += way.transfer_us;
            sum.busy_us[level] += way.busy_us[level];
        };
        let part = |level: usize| bytes / self.whole.within_below(level) as f64;
        match exchange {
            Exchange::AllReduce => {
                for level in inner {
                    add(Exchange::ReduceScatter, *level, part(*level));
                    add(Exchange::AllGather, *level, part(*level));
                }
                add(Exchange::AllReduce, outermost, part(outermost));
            }
            Exchange::ReduceScatter | Exchange::AllGather => {
                levels.iter().for_each(|level| add(exchange, *level, part(*level)));
            }
            Exchange::Broadcast | Exchange::Reduce => levels.iter().for_each(|level| add(exchange, *level, bytes)),
            Exchange::AllToAll | Exchange::Scatter | Exchange::SendRecv | Exchange::Barrier => return None,
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests;
