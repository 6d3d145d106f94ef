//! Computes when each step of a plan runs, without running it.
//!
//! - Method: the executor's walk on the emulator's clock. Each call occupies its host thread. A
//!   stream entry starts after the previous entry, its launch and its awaited events. A collective
//!   starts when its last rank arrives.
//! - Invariants: deterministic; steps of one stream never overlap.
//! - Not here: first-run preparation, and contention, except that groups that share a bus run
//!   together.

use ascend_tp_machine::collective::slow_downs;
use ascend_tp_machine::operator::Bound;
use ascend_tp_machine::topology::{Fabric, Spread};
use ascend_tp_machine::{CollectiveCost, Exchange, HostCall, OperatorCost, Profile, Topology, Work};
use rustc_hash::FxHashMap;

use ascend_tp::base::Id;
use ascend_tp::exec::Launching;
use ascend_tp::schedule::launch::{exchange, is_repeatable, launch, launch_reading, product};
use ascend_tp::schedule::plan::{Action, Collective, CollectiveKind, Plan, Region, StreamKind};

/// Microseconds since the run began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedSpan {
    /// Start time in microseconds.
    pub start_us: f64,
    /// End time in microseconds.
    pub end_us: f64,
}

/// Run of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimulatedRank {
    /// Span of each step; `None` for records and waits.
    pub spans: Vec<Option<SimulatedSpan>>,
    /// Time from the first call to the last output on the host.
    pub duration_us: f64,
}

/// Time of one rank by cause. [`Self::kernels_us`] is the sum of the four bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Breakdown {
    /// Time from the first call to the last output on the host.
    pub duration_us: f64,
    /// Time of all operators.
    pub kernels_us: f64,
    /// Operators bound by the cube units.
    pub cube_us: f64,
    /// Operators bound by the vector units.
    pub vector_us: f64,
    /// Operators bound by memory bandwidth.
    pub memory_us: f64,
    /// Operators bound by the minimum kernel time.
    pub launch_us: f64,
    /// Collectives after their last rank arrived, with fused products.
    pub collectives_us: f64,
    /// Collective time without a running operator.
    pub exposed_us: f64,
    /// The card waits for its host or other ranks.
    pub idle_us: f64,
    /// Number of executed operators.
    pub kernels: usize,
    /// Number of executed collectives.
    pub collectives: usize,
}

impl Breakdown {
    /// Returns `self` plus `part / whole` of the difference between `more` and `self`.
    #[must_use]
    pub(super) fn along(&self, more: &Self, [part, whole]: [usize; 2]) -> Self {
        let us = |few: f64, more: f64| few + (more - few) * part as f64 / whole as f64;
        let count = |few: usize, more: usize| few + more.saturating_sub(few) * part / whole;
        Self {
            duration_us: us(self.duration_us, more.duration_us),
            kernels_us: us(self.kernels_us, more.kernels_us),
            cube_us: us(self.cube_us, more.cube_us),
            vector_us: us(self.vector_us, more.vector_us),
            memory_us: us(self.memory_us, more.memory_us),
            launch_us: us(self.launch_us, more.launch_us),
            collectives_us: us(self.collectives_us, more.collectives_us),
            exposed_us: us(self.exposed_us, more.exposed_us),
            idle_us: us(self.idle_us, more.idle_us),
            kernels: count(self.kernels, more.kernels),
            collectives: count(self.collectives, more.collectives),
        }
    }
}

/// One run on all ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedRun {
    /// Run of each rank.
    pub ranks: Vec<SimulatedRank>,
    /// Breakdown of the slowest rank.
    pub breakdown: Breakdown,
}

enum Priced {
    Kernel(OperatorCost, Repeats),
    Exchange { party: usize, exchange: Exchange, bytes: f64, product: Option<ExchangedProduct> },
    Record(usize),
    Wait(usize),
}

struct ExchangedProduct {
    us: f64,
    /// The product follows the collective.
    is_behind: bool,
}

impl ExchangedProduct {
    /// Returns the product's time before and after the collective. In a graph, the product is a
    /// node too.
    fn around_us(&self, node_us: f64) -> [f64; 2] {
        let us = self.us + node_us;
        if self.is_behind { [0.0, us] } else { [us, 0.0] }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeats {
    Yes,
    No,
}

/// Plans of all ranks, with the cost of every step.
pub struct Simulator<'a> {
    profile: &'a Profile,
    topology: &'a Topology,
    plans: &'a [Plan],
    has_transfers: bool,
    steps: Vec<Vec<Priced>>,
    parties: Vec<Party>,
}

/// The ranks of a group, or sender and receiver of a transfer.
struct Party {
    /// Indices of the plans of the ranks.
    plans: Vec<usize>,
    spread: Spread,
    /// Slowdown by a shared bus.
    slow_down: f64,
}

impl std::fmt::Debug for Simulator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulator").field("ranks", &self.plans.len()).finish_non_exhaustive()
    }
}

/// Duration by collective, bytes, product time and party.
type ExchangeCosts = FxHashMap<(Exchange, u64, u64, usize), f64>;

type Ends = [f64; StreamKind::ALL.len()];

/// Sorted busy spans of a rank's links. A card runs one collective at a time. The walk may reach a
/// later collective first, so an earlier gap can be filled.
#[derive(Default)]
struct Busy(Vec<SimulatedSpan>);

impl Busy {
    fn free_us(&self, from_us: f64, duration_us: f64) -> f64 {
        let first = self.0.partition_point(|span| span.end_us <= from_us);
        let mut start_us = from_us;
        for span in &self.0[first..] {
            if span.start_us >= start_us + duration_us {
                break;
            }
            start_us = start_us.max(span.end_us);
        }
        start_us
    }

    fn take(&mut self, span: SimulatedSpan) {
        let at = self.0.partition_point(|other| other.start_us <= span.start_us);
        self.0.insert(at, span);
    }
}

#[derive(Default)]
struct GroupMeeting {
    arrived: usize,
    latest_us: f64,
    bytes: f64,
    /// The smaller variant, if ranks differ: some cards may only need a shift.
    exchange: Option<Exchange>,
    /// The shortest fused product.
    product_us: Option<f64>,
    end: Option<SimulatedSpan>,
}

struct Walk {
    next: usize,
    host_us: f64,
    ends_us: Ends,
    marks_us: Vec<f64>,
    met: Vec<usize>,
    /// The collective at `next` already counts this rank.
    waits: bool,
    run: SimulatedRank,
}

impl<'a> Simulator<'a> {
    /// Prices every step. Rank `r` runs on card `cards[r]`. Attention reads `keys` keys per
    /// sequence; `None`: the whole capacity.
    ///
    /// `plans` are those of all ranks, or of the first rank of each pipeline stage. The other ranks
    /// then arrive at every exchange at the same time.
    #[must_use]
    pub fn new(
        profile: &'a Profile,
        topology: &'a Topology,
        plans: &'a [Plan],
        cards: &'a [usize],
        keys: Option<usize>,
    ) -> Self {
        let mut costs: FxHashMap<_, OperatorCost> = FxHashMap::default();
        let mut parties: Vec<Vec<usize>> =
            plans.first().map_or_else(Vec::new, |plan| plan.groups.values().to_vec());
        let groups = parties.len();
        let mut price = |plan: &Plan, action: &Action| match action {
            Action::Launch(call) => {
                let repeats = if is_repeatable(call) { Repeats::Yes } else { Repeats::No };
                let known = keys.filter(|_| plan.host_list(call).is_some());
                let launch = known.map_or_else(|| launch(call), |keys| launch_reading(call, keys));
                let cost = costs.get(&launch).copied().unwrap_or_else(|| {
                    let cost = OperatorCost::of(profile, &Work::of(&launch));
                    costs.insert(launch, cost);
                    cost
                });
                Priced::Kernel(cost, repeats)
            }
            Action::Exchange(collective) => {
                let (exchange, bytes) = exchange(collective);
                let party = transfer(plan, collective).map_or(collective.group.index(), |pair| {
                    let known = parties[groups..].iter().position(|party| *party == pair);
                    known.map_or_else(
                        || {
                            parties.push(pair.to_vec());
                            parties.len() - 1
                        },
                        |at| groups + at,
                    )
                });
                let is_behind = matches!(collective.kind, CollectiveKind::AllGather { .. });
                let us = |launch| OperatorCost::of(profile, &Work::of(&launch)).duration_us;
                let product =
                    product(collective).map(|launch| ExchangedProduct { us: us(launch), is_behind });
                Priced::Exchange { party, exchange, bytes, product }
            }
            Action::Record(event) => Priced::Record(event.index()),
            Action::Wait(event) => Priced::Wait(event.index()),
        };
        let steps = plans
            .iter()
            .map(|plan| plan.steps.iter().map(|step| price(plan, &step.action)).collect())
            .collect();
        let spread = |ranks: &Vec<usize>| {
            Spread::of(topology, &ranks.iter().map(|rank| cards[*rank]).collect::<Vec<usize>>())
        };
        let spreads: Vec<Spread> = parties.iter().map(spread).collect();
        let slow_downs = match plans.first().filter(|plan| plan.world > plans.len()) {
            Some(plan) => {
                spreads.iter().map(|spread| regular_sharing(profile, topology, spread, plan.world)).collect()
            }
            None => shared_buses(profile, topology, &parties, cards),
        };
        let party = |((ranks, spread), slow_down): ((Vec<usize>, Spread), f64)| {
            let plan = |rank: &usize| plans.binary_search_by_key(rank, |plan| plan.rank).ok();
            Party { plans: ranks.iter().filter_map(plan).collect(), spread, slow_down }
        };
        let parties = parties.into_iter().zip(spreads).zip(slow_downs).map(party).collect();
        let has_transfers = plans.iter().any(|plan| plan.streams().contains(&StreamKind::Transfers));
        Self { profile, topology, plans, has_transfers, steps, parties }
    }

    /// Simulates one run of all plans.
    #[must_use]
    pub fn run(&self, launching: Launching) -> SimulatedRun {
        let mut walks: Vec<Walk> = self.plans.iter().map(|plan| self.start(plan, launching)).collect();
        let groups = self.parties.len();
        let mut meetings: Vec<Vec<GroupMeeting>> = (0..groups).map(|_| Vec::new()).collect();
        let mut costs = ExchangeCosts::default();
        let mut busy: Vec<Busy> = self.plans.iter().map(|_| Busy::default()).collect();
        loop {
            let mut moved = false;
            for (rank, walk) in walks.iter_mut().enumerate() {
                while walk.next < self.steps[rank].len()
                    && self.step(rank, walk, launching, &mut meetings, &mut busy, &mut costs)
                {
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        let ranks: Vec<SimulatedRank> =
            walks.into_iter().zip(self.plans).map(|(walk, plan)| self.finish(walk, plan)).collect();
        let slowest = (0..ranks.len()).max_by(|a, b| ranks[*a].duration_us.total_cmp(&ranks[*b].duration_us));
        let breakdown = slowest.map(|rank| self.breakdown(rank, &ranks[rank])).unwrap_or_default();
        SimulatedRun { ranks, breakdown }
    }

    fn launch_us(&self, priced: &Priced) -> f64 {
        match priced {
            Priced::Kernel(_, Repeats::Yes) => self.host_us("aclnnMatmul", 0),
            Priced::Kernel(_, Repeats::No) => {
                self.host_us("aclnnMatmulGetWorkspaceSize", 0) + self.host_us("aclnnMatmul", 0)
            }
            Priced::Exchange { product: None, .. } => self.host_us("HcclAllReduce", 0),
            Priced::Exchange { product: Some(_), .. } => self.host_us("aclnnMatmulAllReduce", 0),
            Priced::Record(_) => self.host_us("aclrtRecordEvent", 0),
            Priced::Wait(_) => self.host_us("aclrtStreamWaitEvent", 0),
        }
    }

    fn host_us(&self, function: &str, bytes: u64) -> f64 {
        self.profile.host_us(HostCall::of(function), bytes as f64)
    }

    fn copy(&self, host_us: f64, ends_us: Ends, bytes: u64) -> f64 {
        let noticed = self.wait(host_us, "aclrtSynchronizeDevice", ends_us.into_iter().fold(0.0, f64::max));
        noticed + self.host_us("aclrtMemcpy", bytes)
    }

    fn wait(&self, host_us: f64, function: &str, end_us: f64) -> f64 {
        (host_us + self.host_us(function, 0)).max(end_us) + self.profile.coefficients.host.wake_us
    }

    fn start(&self, plan: &Plan, launching: Launching) -> Walk {
        let inputs = plan.region_bytes(Region::Inputs).0;
        let mut host_us = if inputs > 0 { self.copy(0.0, Ends::default(), inputs) } else { 0.0 };
        if launching == Launching::Captured {
            host_us += self.host_us("aclmdlRIExecuteAsync", 0);
        }
        Walk {
            next: 0,
            host_us,
            ends_us: Ends::default(),
            marks_us: vec![0.0; plan.events],
            met: vec![0; self.parties.len()],
            waits: false,
            run: SimulatedRank { spans: Vec::with_capacity(plan.steps.len()), duration_us: 0.0 },
        }
    }

    /// Returns false if the step waits for other ranks.
    fn step(
        &self,
        rank: usize,
        walk: &mut Walk,
        launching: Launching,
        meetings: &mut [Vec<GroupMeeting>],
        busy: &mut [Busy],
        costs: &mut ExchangeCosts,
    ) -> bool {
        let priced = &self.steps[rank][walk.next];
        let stream = self.plans[rank].steps[walk.next].stream as usize;
        if launching == Launching::Eager && !walk.waits {
            walk.host_us += self.launch_us(priced);
        }
        let ready_us = walk.ends_us[stream].max(walk.host_us);
        let node_us = match launching {
            Launching::Eager => 0.0,
            Launching::Captured => self.profile.coefficients.host.replay_node_us,
        };
        let span = match priced {
            Priced::Kernel(cost, _) => {
                Some(SimulatedSpan { start_us: ready_us, end_us: ready_us + cost.duration_us + node_us })
            }
            Priced::Record(event) => {
                walk.marks_us[*event] = ready_us;
                walk.ends_us[stream] = ready_us;
                None
            }
            Priced::Wait(event) => {
                walk.ends_us[stream] = ready_us.max(walk.marks_us[*event]);
                None
            }
            Priced::Exchange { party, exchange, bytes, product } => {
                let (group, turn) = (*party, walk.met[*party]);
                if meetings[group].len() <= turn {
                    meetings[group].resize_with(turn + 1, GroupMeeting::default);
                }
                let meeting = &mut meetings[group][turn];
                let party = &self.parties[group];
                let [before_us, behind_us] =
                    product.as_ref().map_or([0.0; 2], |product| product.around_us(node_us));
                if !walk.waits {
                    walk.waits = true;
                    meeting.arrived += 1;
                    meeting.latest_us = meeting.latest_us.max(ready_us + before_us);
                    meeting.bytes = meeting.bytes.max(*bytes);
                    let exchange = meeting.exchange.map_or(*exchange, |known| known.min(*exchange));
                    meeting.exchange = Some(exchange);
                    let product_us = product.as_ref().map(|product| product.us);
                    meeting.product_us =
                        product_us.map(|us| meeting.product_us.map_or(us, |known| known.min(us)));
                    if meeting.arrived == party.plans.len() {
                        let (bytes, product_us) = (meeting.bytes, meeting.product_us.unwrap_or(0.0));
                        let cost = costs.entry((exchange, bytes.to_bits(), product_us.to_bits(), group));
                        let duration_us =
                            *cost.or_insert_with(|| self.exchange_us(exchange, bytes, product_us, party));
                        let span = self.when_free(meeting.latest_us, duration_us, &party.plans, busy);
                        meeting.end = Some(span);
                    }
                }
                let Some(span) = meeting.end else { return false };
                walk.waits = false;
                walk.met[group] += 1;
                Some(SimulatedSpan { start_us: span.start_us - before_us, end_us: span.end_us + behind_us })
            }
        };
        if let Some(span) = span {
            walk.ends_us[stream] = span.end_us;
        }
        walk.run.spans.push(span);
        walk.next += 1;
        true
    }

    fn when_free(&self, from_us: f64, duration_us: f64, plans: &[usize], busy: &mut [Busy]) -> SimulatedSpan {
        let mut start_us = from_us;
        // Collectives of a single stream are in order already.
        if self.has_transfers {
            loop {
                let next_us = plans
                    .iter()
                    .map(|plan| busy[*plan].free_us(start_us, duration_us))
                    .fold(start_us, f64::max);
                if next_us <= start_us {
                    break;
                }
                start_us = next_us;
            }
        }
        let span = SimulatedSpan { start_us, end_us: start_us + duration_us };
        if self.has_transfers {
            plans.iter().for_each(|plan| busy[*plan].take(span));
        }
        span
    }

    fn exchange_us(&self, exchange: Exchange, bytes: f64, product_us: f64, party: &Party) -> f64 {
        let cost = CollectiveCost::of_spread(self.profile, self.topology, exchange, bytes, &party.spread);
        let cost = cost.beside(product_us);
        cost.latency_us + cost.transfer_us * party.slow_down
    }

    fn finish(&self, mut walk: Walk, plan: &Plan) -> SimulatedRank {
        for stream in plan.streams() {
            let end_us = walk.ends_us[*stream as usize];
            walk.host_us = self.wait(walk.host_us, "aclrtSynchronizeStream", end_us);
        }
        for output in &plan.outputs {
            walk.host_us = self.copy(walk.host_us, walk.ends_us, plan.buffers[output.buffer].bytes.0);
        }
        walk.run.duration_us = walk.host_us;
        walk.run
    }

    fn breakdown(&self, rank: usize, run: &SimulatedRank) -> Breakdown {
        let mut breakdown = Breakdown { duration_us: run.duration_us, ..Breakdown::default() };
        let (mut operators, mut exchanges) = (Vec::new(), Vec::<SimulatedSpan>::new());
        for ((priced, step), span) in self.steps[rank].iter().zip(&self.plans[rank].steps).zip(&run.spans) {
            let Some(span) = span else { continue };
            let length_us = span.end_us - span.start_us;
            if step.stream == StreamKind::Compute {
                operators.push(*span);
            } else {
                exchanges.push(*span);
            }
            if let Priced::Kernel(cost, _) = priced {
                breakdown.kernels += 1;
                breakdown.kernels_us += length_us;
                *match cost.bound {
                    Bound::Cube => &mut breakdown.cube_us,
                    Bound::Vector => &mut breakdown.vector_us,
                    Bound::Memory => &mut breakdown.memory_us,
                    Bound::Launch => &mut breakdown.launch_us,
                } += length_us;
            } else {
                breakdown.collectives += 1;
                breakdown.collectives_us += length_us;
            }
        }
        exchanges.sort_by(|a, b| a.start_us.total_cmp(&b.start_us));
        breakdown.exposed_us = breakdown.collectives_us - overlap_us(&operators, &exchanges);
        breakdown.idle_us = (run.duration_us - breakdown.kernels_us - breakdown.exposed_us).max(0.0);
        breakdown
    }
}

fn overlap_us(a: &[SimulatedSpan], b: &[SimulatedSpan]) -> f64 {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut both_us = 0.0;
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        both_us += (x.end_us.min(y.end_us) - x.start_us.max(y.start_us)).max(0.0);
        if x.end_us < y.end_us {
            a.next();
        } else {
            b.next();
        }
    }
    both_us
}

fn transfer(plan: &Plan, collective: &Collective) -> Option<[usize; 2]> {
    let ranks = &plan.groups[collective.group];
    match collective.kind {
        CollectiveKind::Send { to } => Some([plan.rank, ranks[to]]),
        CollectiveKind::Receive { from } => Some([ranks[from], plan.rank]),
        _ => None,
    }
}

/// Slowdown of a group when the groups of all `world` cards communicate at once. The cards are
/// consecutive, and their groups regular.
fn regular_sharing(profile: &Profile, topology: &Topology, spread: &Spread, world: usize) -> f64 {
    // So many bytes that only links matter.
    let cost = CollectiveCost::of_spread(profile, topology, Exchange::AllReduce, 1e15, spread);
    let bound = &topology.levels[cost.level];
    match bound.fabric {
        Fabric::Bus => {
            let own: usize = spread.parts[..=cost.level].iter().product();
            (bound.cards.min(world) / own.max(1)).max(1) as f64
        }
        Fabric::FullMesh | Fabric::Switch => 1.0,
    }
}

/// Slowdown of each party when all disjoint parties of the same size communicate at once. Only
/// buses are shared, not mesh links and switch ports.
fn shared_buses(profile: &Profile, topology: &Topology, groups: &[Vec<usize>], cards: &[usize]) -> Vec<f64> {
    let loads: Vec<_> = groups
        .iter()
        .map(|ranks| {
            let cards: Vec<usize> = ranks.iter().map(|rank| cards[*rank]).collect();
            // So many bytes that only links matter.
            CollectiveCost::of(profile, topology, Exchange::AllReduce, 1e15, &cards).links(topology, &cards)
        })
        .collect();
    let alike = |a: &[usize], b: &[usize]| a.len() == b.len() && !a.iter().any(|rank| b.contains(rank));
    (0..groups.len())
        .map(|at| {
            let others = (0..groups.len()).filter(|other| alike(&groups[at], &groups[*other]));
            let running: Vec<_> =
                std::iter::once(at).chain(others).map(|group| loads[group].as_slice()).collect();
            slow_downs(&running).first().copied().unwrap_or(1.0)
        })
        .collect()
}

mod exposed;

pub use exposed::{Awaited, Exposed, Limit, exposed, least_us};

#[cfg(test)]
mod tests;
