//! Generation of a program from a seed.
//!
//! The same seed gives the same program. Every call is legal on an Atlas A2, and strict mode has
//! nothing to report.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::collective::{StormCall, StormCollective};
use crate::element::{Reduction, StormElement};
use crate::probe::{StormProbe, StreamBlocker, Waiting};
use crate::program::{
    BufferPlace, Ending, Setup, StormOperator, StormProgram, StormStep, home_stream, note_comm,
};
use crate::random::{Random, scramble};

/// Main subject of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Data of all kinds of work, up to 16 MiB.
    Bytes,
    /// Smaller data of all kinds of work, in strict mode.
    Strict,
    /// Ends of waits: time limits, aborts, destroyed streams, failures.
    Waits,
    /// A rank that does not call a collective.
    Absent,
    /// A process that leaves, quits or is killed.
    Gone,
}

impl Flavour {
    /// Lists all flavours of programs.
    pub const ALL: [Self; 5] = [Self::Bytes, Self::Strict, Self::Waits, Self::Absent, Self::Gone];

    /// Returns the flavour of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        match scramble(seed ^ 0xf1a4) % 100 {
            0..48 => Self::Bytes,
            48..64 => Self::Strict,
            64..83 => Self::Waits,
            83..90 => Self::Absent,
            _ => Self::Gone,
        }
    }
}

struct Generator {
    random: Random,
    flavour: Flavour,
    setup: Setup,
    world: u32,
    steps: Vec<StormStep>,
    /// Communicators ever created; the next field lists the existing ones.
    comms: BTreeMap<u32, Vec<u32>>,
    live: Vec<u32>,
    /// HCCL does not split sub-communicators further.
    subs: Vec<u32>,
}

#[must_use]
pub(crate) fn program(seed: u64) -> StormProgram {
    let flavour = Flavour::of(seed);
    let mut random = Random::new(seed);
    let setup = setup(&mut random, flavour);
    let world = setup.processes.iter().map(|ranks| ranks.len() as u32).sum();
    let (steps, comms, live, subs) = (Vec::new(), BTreeMap::new(), Vec::new(), Vec::new());
    let mut generator = Generator { random, flavour, setup, world, steps, comms, live, subs };
    generator.steps();
    let ending = generator.ending();
    StormProgram { seed, setup: generator.setup, steps: generator.steps, ending }
}

fn setup(random: &mut Random, flavour: Flavour) -> Setup {
    let is_strict = flavour == Flavour::Strict;
    let needs_two = matches!(flavour, Flavour::Absent | Flavour::Gone);
    let world =
        if needs_two { random.pick(&[2, 3, 4, 8, 8]) } else { random.pick(&[1, 2, 2, 3, 4, 4, 5, 8]) } as u32;
    let count = match random.below(4) {
        _ if flavour == Flavour::Gone => random.within(2, u64::from(world)) as u32,
        0 => 1,
        1 => random.within(1, u64::from(world)) as u32,
        _ => world,
    };
    let mut processes = vec![Vec::new(); count as usize];
    for rank in 0..world {
        // Each process has at least one rank.
        let process = if rank < count { u64::from(rank) } else { random.below(u64::from(count)) };
        processes[process as usize].push(rank);
    }
    let (pools, pool_bytes) = match random.below(10) {
        _ if flavour != Flavour::Bytes => (random.within(1, 2), 256 << 10),
        0..3 => (2, 512 << 10),
        3..6 => (random.within(1, 3), 4 << 20),
        _ if world > 4 => (2, 8 << 20),
        6..9 => (random.within(1, 2), 24 << 20),
        _ => (1, 48 << 20),
    };
    Setup {
        processes,
        by_tcp: random.chance(30),
        strict: is_strict.then(|| random.below(1 << 32)),
        busy: if flavour == Flavour::Strict { 0 } else { random.pick(&[0, 0, 2, 3]) },
        threads: random.pick(&[1, 2, 2, 4]),
        streams: random.within(1, 4) as u8,
        pools: pools as u8,
        pool_bytes,
        exec_limit_s: if flavour == Flavour::Absent { 5 } else { 600 },
    }
}

impl Generator {
    fn steps(&mut self) {
        let budget = match self.flavour {
            Flavour::Bytes => self.random.within(4, 40),
            Flavour::Strict => self.random.within(6, 24),
            Flavour::Waits => self.random.within(2, 8),
            Flavour::Absent | Flavour::Gone => self.random.within(1, 6),
        };
        // Usually all ranks first join one communicator.
        if self.random.chance(90) {
            self.join((0..self.world).collect(), None);
        }
        for _ in 0..budget {
            match self.flavour {
                Flavour::Waits if self.random.chance(60) => self.probe(),
                Flavour::Absent if self.random.chance(40) => self.absent(),
                Flavour::Bytes if self.random.chance(3) => self.probe(),
                Flavour::Strict if self.random.chance(8) => self.probe(),
                _ => self.work(),
            }
        }
        if self.flavour == Flavour::Waits {
            self.probe();
        }
        if self.flavour == Flavour::Absent {
            self.absent();
        }
    }

    fn ending(&mut self) -> Ending {
        if self.flavour != Flavour::Gone {
            return Ending::InOrder;
        }
        let process = self.random.below(self.setup.processes.len() as u64) as u32;
        match self.random.below(5) {
            0 => Ending::Leaves { process },
            1 => Ending::Quits { process },
            _ => {
                let queued = self.random.pick(&[1, 50, 1000, 10_000, 10_000]);
                Ending::Dies { process, queued, has_called: self.random.chance(60) }
            }
        }
    }

    fn push(&mut self, step: StormStep) {
        note_comm(&mut self.comms, &step);
        self.steps.push(step);
    }

    fn rank(&mut self) -> u32 {
        self.random.below(u64::from(self.world)) as u32
    }

    fn stream(&mut self) -> u8 {
        self.random.below(u64::from(self.setup.streams)) as u8
    }

    /// Returns a number up to `most`, over all magnitudes.
    fn bytes(&mut self, most: u64) -> u64 {
        let magnitude = self.random.within(3, u64::from(most.max(16).ilog2()));
        self.random.within(1, (2_u64 << magnitude).min(most.max(1)))
    }

    /// Returns an aligned place; most places overlap many others.
    fn place(&mut self, bytes: u64, align: u64) -> BufferPlace {
        let pool = self.random.below(u64::from(self.setup.pools)) as u8;
        let room = self.setup.pool_bytes.saturating_sub(bytes);
        let room = if self.random.chance(30) { room.min(4096) } else { room };
        let offset = self.random.within(0, room) / align * align;
        BufferPlace { pool, offset }
    }

    fn places(&mut self, bytes: [u64; 2], align: u64) -> [BufferPlace; 2] {
        let apart = |a: BufferPlace, b: BufferPlace| {
            a.pool != b.pool || a.offset + bytes[0] <= b.offset || b.offset + bytes[1] <= a.offset
        };
        for _ in 0..16 {
            let (first, second) = (self.place(bytes[0], align), self.place(bytes[1], align));
            if apart(first, second) {
                return [first, second];
            }
        }
        let pool = self.random.below(u64::from(self.setup.pools)) as u8;
        [BufferPlace { pool, offset: 0 }, BufferPlace { pool, offset: bytes[0].next_multiple_of(64) }]
    }

    fn work(&mut self) {
        let (rank, stream) = (self.rank(), self.stream());
        let most = self.setup.pool_bytes / 3;
        let step = match self.random.below(100) {
            0..8 => {
                let bytes = self.bytes(most);
                let (at, value) = (self.place(bytes, 1), self.random.below(256) as u8);
                StormStep::Fill { rank, stream, at, bytes, value }
            }
            8..14 => {
                let bytes = self.bytes(most.min(1 << 20));
                let (at, salt, is_pinned) = (self.place(bytes, 1), self.random.any(), self.random.chance(50));
                StormStep::Load { rank, stream, at, bytes, salt, is_pinned }
            }
            14..22 => {
                let rows = self.random.pick(&[1, 1, 1, 3, 20]);
                let width = self.bytes(most / rows / 2).max(8);
                let sizes = [width * rows, (width + crate::order::ROW_GAP) * rows];
                let [from, to] = self.places(sizes, 1);
                StormStep::Copy { rank, stream, from, to, width, rows }
            }
            22..32 => self.compute(rank, stream),
            32..38 => {
                let bytes = self.bytes(most.min(1 << 20));
                StormStep::Read { rank, at: self.place(bytes, 1), bytes }
            }
            38..42 => StormStep::Wait { rank, stream, way: self.random.below(4) as u8 },
            42..44 => StormStep::Renew { rank, stream },
            44..49 => {
                let bytes = self.bytes(most.min(1 << 20));
                let reader = self.random.chance(50).then(|| self.rank()).filter(|reader| *reader != rank);
                StormStep::Share { rank, at: self.place(bytes, 1), bytes, reader }
            }
            49..55 => return self.change_comms(),
            55..62 => return self.rounds(),
            _ => return self.burst(1..=2),
        };
        self.push(step);
    }

    fn compute(&mut self, rank: u32, stream: u8) -> StormStep {
        let most = self.setup.pool_bytes / 16;
        let count = self.bytes(most.min(1 << 20)) / 4 + 1;
        let (operator, [first, second]) = match self.random.below(4) {
            0 => (StormOperator::Add { count }, [4 * count, 4 * count]),
            1 => (StormOperator::ReduceAsync { count }, [4 * count, 4 * count]),
            2 => (StormOperator::Cast { count }, [4 * count, 8 * count]),
            _ => {
                let mut dim = || self.random.pick(&[1, 3, 8, 17, 40]);
                let dims = [dim(), dim(), dim()];
                let [m, k, n] = dims;
                // Both inputs are adjacent.
                (StormOperator::Matmul { dims }, [4 * (m * k + k * n) + 8, 4 * m * n])
            }
        };
        let [from, to] = self.places([first, second], 8);
        let other = match operator {
            StormOperator::Matmul { dims: [m, k, _] } => from.plus((4 * m * k).next_multiple_of(8)),
            _ => from,
        };
        StormStep::Compute { rank, stream, operator, from: [from, other], to }
    }

    fn change_comms(&mut self) {
        if self.live.len() > 3 || (!self.live.is_empty() && self.random.chance(30)) {
            let at = self.random.below(self.live.len() as u64) as usize;
            let comm = self.live.swap_remove(at);
            return self.push(StormStep::Part { comm });
        }
        let parent =
            self.random.chance(40).then(|| self.a_comm()).flatten().filter(|comm| !self.subs.contains(comm));
        let among = parent.map_or_else(|| (0..self.world).collect(), |parent| self.comms[&parent].clone());
        let process = self.random.below(self.setup.processes.len() as u64) as usize;
        let of_process = self.setup.processes[process].clone();
        let ranks: Vec<u32> = match self.random.below(4) {
            0 => among,
            1 => among.into_iter().filter(|rank| of_process.contains(rank)).collect(),
            // A sub-communicator keeps the parent's order.
            2 if parent.is_none() => among.into_iter().rev().collect(),
            _ => among.into_iter().filter(|_| self.random.chance(60)).collect(),
        };
        if !ranks.is_empty() {
            self.join(ranks, parent);
        }
    }

    fn a_comm(&mut self) -> Option<u32> {
        if self.live.is_empty() { None } else { Some(self.random.pick(&self.live)) }
    }

    fn join(&mut self, ranks: Vec<u32>, parent: Option<u32>) {
        let comm = self.comms.len() as u32;
        self.live.push(comm);
        if parent.is_some() {
            self.subs.push(comm);
        }
        self.push(StormStep::Join { comm, ranks, parent });
        if self.random.chance(70) {
            for _ in 0..self.random.within(2, 4) {
                self.collective(comm);
            }
        }
    }

    /// Alternates collectives and host waits.
    fn rounds(&mut self) {
        let Some(comm) = self.a_comm() else { return };
        let most = if self.flavour == Flavour::Strict { 12 } else { 4 };
        for _ in 0..self.random.within(2, most) {
            for _ in 0..self.random.within(1, 4) {
                self.collective(comm);
            }
            for rank in self.comms[&comm].clone() {
                let stream = home_stream(comm, rank, self.setup.streams);
                let way = self.random.below(4) as u8;
                self.push(StormStep::Wait { rank, stream, way });
            }
        }
    }

    fn burst(&mut self, many: RangeInclusive<u64>) {
        for _ in 0..self.random.within(*many.start(), *many.end()) {
            if let Some(comm) = self.a_comm() {
                self.collective(comm);
            }
        }
    }

    fn collective(&mut self, comm: u32) {
        let world = self.comms[&comm].len();
        let call = self.call(world);
        let size = call.element.bytes();
        let most = |of: &dyn Fn(usize) -> u64| (0..world).map(of).max().unwrap_or(0) * size;
        let (sends, receives) =
            (most(&|member| call.sends(world, member)), most(&|member| call.receives(world, member)));
        let [send, recv] = if call.in_place {
            [self.place(sends.max(receives), size.max(8)); 2]
        } else {
            self.places([sends, receives], size)
        };
        let is_deep = sends.max(receives) <= 4096 && !call.needs_small() && self.random.chance(5);
        let times = match self.flavour {
            Flavour::Bytes | Flavour::Gone if is_deep => self.random.within(2, 1500) as u32,
            _ => 1,
        };
        self.push(StormStep::Collective { comm, call, send, recv, times });
    }

    fn call(&mut self, world: usize) -> StormCall {
        let reduction = self.random.pick(&[
            Reduction::Sum,
            Reduction::Sum,
            Reduction::Prod,
            Reduction::Max,
            Reduction::Min,
        ]);
        let kind = match self.random.below(20) {
            0..5 => StormCollective::AllReduce(reduction),
            5 => StormCollective::Reduce(reduction),
            6..8 => StormCollective::ReduceScatter(reduction),
            8 => StormCollective::ReduceScatterV(if reduction == Reduction::Prod {
                Reduction::Sum
            } else {
                reduction
            }),
            9..11 => StormCollective::AllGather,
            11 => StormCollective::AllGatherV,
            12 => StormCollective::Broadcast,
            13 => StormCollective::Scatter,
            14 => StormCollective::AllToAll,
            15 => StormCollective::AllToAllV,
            16 => StormCollective::AllToAllVC,
            17 => StormCollective::Barrier,
            18 if world > 1 => StormCollective::SendRecv,
            _ => StormCollective::Batch,
        };
        let element = match kind {
            StormCollective::ReduceScatterV(_) => {
                self.random.pick(&StormElement::REDUCED[..StormElement::REDUCED_UNEVENLY])
            }
            StormCollective::AllReduce(Reduction::Prod)
            | StormCollective::Reduce(Reduction::Prod)
            | StormCollective::ReduceScatter(Reduction::Prod) => self.random.pick(StormElement::MULTIPLIED),
            StormCollective::AllReduce(_)
            | StormCollective::Reduce(_)
            | StormCollective::ReduceScatter(_) => self.random.pick(StormElement::REDUCED),
            _ => self.random.pick(StormElement::MOVED),
        };
        // A third of an allocation, divided by the maximum number of blocks; gaps take some more.
        let most = (self.setup.pool_bytes / 3).min(16 << 20);
        let is_whole = matches!(
            kind,
            StormCollective::AllReduce(_)
                | StormCollective::Reduce(_)
                | StormCollective::Broadcast
                | StormCollective::SendRecv
                | StormCollective::Batch
        );
        let blocks = if is_whole { 1 } else { world as u64 + 1 };
        let room = (most / blocks / element.bytes()).saturating_sub(4).max(1);
        let count = match self.random.below(10) {
            0 => self.random.below(4),
            // The maximum size is frequent.
            1..4 if self.flavour == Flavour::Bytes => room,
            _ => (self.bytes(room * element.bytes()) / element.bytes()).min(room),
        };
        let (root, salt) = (self.random.below(8) as u32, self.random.any());
        let call = StormCall { kind, element, count, root, in_place: false, salt };
        let in_place = call.may_be_in_place() && self.random.chance(30);
        // Products of products are not small, so floats are loaded again.
        StormCall { in_place, ..call }
    }

    fn probe(&mut self) {
        let rank = self.rank();
        let is_strict = self.setup.strict.is_some();
        let held = self.random.pick(&[StreamBlocker::Notify, StreamBlocker::Event, StreamBlocker::Value]);
        let limited = self.random.pick(&[StreamBlocker::Notify, StreamBlocker::Event]);
        let work_ms = self.random.pick(&[0, 0, 300, 1500]);
        let waiting = self.random.pick(&Waiting::ALL);
        if !is_strict && self.world > 1 && self.random.chance(18) {
            return self.push(StormStep::Stall { ranks: vec![rank, (rank + 1) % self.world] });
        }
        // A strict machine runs ranks of other processes before a time limit ends.
        let kinds = match (is_strict, self.setup.processes.len()) {
            (true, 1) => 3,
            (true, _) => 2,
            (false, _) => 8,
        };
        let probe = match self.random.below(kinds) {
            0 => StormProbe::Unrecorded,
            1 => StormProbe::Abort { held },
            2 => StormProbe::ContinueAfterFailure,
            3 => StormProbe::StopAfterFailure,
            4 => StormProbe::ForcedDestroy,
            _ => StormProbe::Limit { held: limited, work_ms, waiting },
        };
        self.push(StormStep::Probe { rank, probe });
    }

    fn absent(&mut self) {
        let last = self.rank();
        let mut ranks: Vec<u32> =
            (0..self.world).filter(|rank| *rank != last && self.random.chance(70)).collect();
        if ranks.is_empty() {
            ranks.push((last + 1) % self.world);
        }
        ranks.push(last);
        let (work_ms, waiting) = (self.random.pick(&[0, 0, 500, 1500]), self.random.pick(&Waiting::ALL));
        self.push(StormStep::Absent { ranks, work_ms, waiting });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{StormOrder, touches};

    #[test]
    fn a_seed_names_a_program() {
        for seed in 0..200 {
            assert_eq!(program(seed), program(seed));
        }
        assert_ne!(program(1), program(2));
    }

    #[test]
    fn every_flavour_and_every_kind_of_step_occurs() {
        let programs: Vec<StormProgram> = (0..600).map(program).collect();
        for flavour in Flavour::ALL {
            assert!((0..600).any(|seed| Flavour::of(seed) == flavour), "{flavour:?}");
        }
        let text = format!("{programs:?}");
        let names = [
            "Fill",
            "Load",
            "Copy",
            "Compute",
            "Read",
            "Wait",
            "Renew",
            "Join",
            "Part",
            "Collective",
            "Share",
            "Probe",
            "Absent",
            "Stall",
            "AllReduce",
            "Reduce(",
            "ReduceScatter(",
            "ReduceScatterV",
            "AllGather",
            "AllGatherV",
            "Broadcast",
            "Scatter",
            "AllToAll",
            "AllToAllV",
            "AllToAllVC",
            "Barrier",
            "SendRecv",
            "Batch",
            "Unrecorded",
            "Abort",
            "ForcedDestroy",
            "ContinueAfterFailure",
            "StopAfterFailure",
            "Limit",
            "Leaves",
            "Quits",
            "Dies",
            "Matmul",
            "Cast",
            "Add",
            "ReduceAsync",
        ];
        for name in names {
            assert!(text.contains(name), "{name}");
        }
    }

    #[test]
    fn all_bytes_lie_within_the_allocations() {
        for seed in 0..1000 {
            let program = program(seed);
            let mut comms = BTreeMap::new();
            for step in &program.steps {
                note_comm(&mut comms, step);
                for rank in step.ranks(&comms) {
                    assert!(rank < program.world());
                    for touch in touches(&program, &comms, step, rank).1 {
                        assert!(touch.at.pool < program.setup.pools);
                        let end = touch.at.offset + touch.bytes;
                        assert!(end <= program.setup.pool_bytes, "seed {seed}: {end} in {step:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_step_reads_and_writes_does_not_overlap_unless_it_may() {
        for seed in 0..1000 {
            let program = program(seed);
            let mut comms = BTreeMap::new();
            for step in &program.steps {
                note_comm(&mut comms, step);
                let may = matches!(step, StormStep::Collective { call, .. } if call.in_place);
                for rank in step.ranks(&comms) {
                    let (_, touches) = touches(&program, &comms, step, rank);
                    for (at, one) in touches.iter().enumerate() {
                        let mut order = StormOrder::new(2);
                        order.enqueue(0, &[*one]);
                        let overlaps = touches[at + 1..]
                            .iter()
                            .any(|other| !order.needed(Some(1), &[*other]).is_empty());
                        assert!(may || !overlaps, "seed {seed}: {step:?}");
                    }
                }
            }
        }
    }
}
