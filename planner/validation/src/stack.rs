//! Host time of the software stacks that ran the measured points.
//!
//! Operators and collectives of a step run in sequence. This project's host times are in the
//! profile.

use ascend_tp_machine::fit::FitParameter;
use ascend_tp_machine::{CollectiveCost, OperatorCost, Profile, Topology, Work};

use crate::workload::{DELTA_CHUNKS, DELTA_TOKEN, ParallelAxis, Section, WorkloadStep, WorkloadTask};

/// Way to launch work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StackLaunching {
    /// Each operator, from Python.
    Eager,
    /// Captured graphs between attentions, launched from Python (vLLM's default).
    Pieces,
    /// One captured graph per pass, from Python.
    Captured,
    /// Launches from C++, ahead of the card.
    Native,
}

/// Executor of collectives (`HCCL_OP_EXPANSION_MODE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expansion {
    /// Vector cores read each other's memory: Atlas A3, or on request.
    Cores,
    /// The host prepares copies and signals: default of Atlas A2.
    Host,
}

/// Words in notes; pieces by default.
const WORDS: [(&str, StackLaunching); 8] = [
    ("eager", StackLaunching::Eager),
    ("mode=graph", StackLaunching::Captured),
    ("FULL_DECODE_ONLY", StackLaunching::Captured),
    ("same setup", StackLaunching::Captured),
    ("aclgraph", StackLaunching::Captured),
    ("npugraph_ex", StackLaunching::Captured),
    ("captured", StackLaunching::Captured),
    ("MindIE", StackLaunching::Native),
];

impl Expansion {
    /// On an Atlas A2, nightly runs request cores in their files, and `MindIE` has its own
    /// collectives.
    pub(super) fn of(note: &str, page_asks: bool) -> Self {
        if page_asks || ["MindIE", "mode=graph"].iter().any(|words| note.contains(words)) {
            Self::Cores
        } else {
            Self::Host
        }
    }
}

impl StackLaunching {
    pub(super) fn of(note: &str) -> Self {
        WORDS.iter().find(|(words, _)| note.contains(words)).map_or(Self::Pieces, |(_, launching)| *launching)
    }
}

/// Fitted host times of serving stacks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stack {
    /// Python pass: prepare, replay, sample, read back.
    pub pass_us: f64,
    /// Additional pass time for several processes.
    pub workers_us: f64,
    /// Pass launched from C++.
    pub native_pass_us: f64,
    /// Pass that drafts a token.
    pub draft_us: f64,
    /// Operator launched from Python.
    pub operator_us: f64,
    /// Collective launched from Python.
    pub exchange_us: f64,
    /// Attention between pieces, and a replay.
    pub piece_us: f64,
    /// Prompt kernels of the delta rule, per chunk and head on one core. The kernel of a token
    /// takes half of this time, per head on one vector core.
    pub chunk_us: f64,
    /// Scheduling, block tables, sampling state and detokenising, times √sequences.
    pub batch_us: f64,
}

/// Time of the delta rule for a token, relative to a chunk. Fitted on their own, a chunk takes
/// 33 us and a token 16 us, but only two pages measure each, so either would follow a single page.
const TOKEN: f64 = 0.5;

/// Start values:
///
/// - 2 ms per step in a simulator of the vendor, and as much for several processes.
/// - 16 us per torch operator (`GroundUpScale`, issue 31) and 110 in an eager step of a 32B model
///   (vllm-ascend, issues 1351 and 171): their geometric mean, twice that for a collective through
///   two libraries, twelve times that for a piece.
/// - Delta rule kernels that are three times as fast make a Qwen3.5 prompt 15 % faster (vllm-ascend
///   PR 8872), so they take a fifth, about 30 us per chunk.
pub(super) const PARAMETERS: [FitParameter; 9] = [
    FitParameter { name: "pass_us", start: 2000.0, low: 100.0, high: 20_000.0 },
    FitParameter { name: "workers_us", start: 2000.0, low: 50.0, high: 20_000.0 },
    FitParameter { name: "native_pass_us", start: 1000.0, low: 50.0, high: 20_000.0 },
    FitParameter { name: "draft_us", start: 500.0, low: 50.0, high: 5000.0 },
    FitParameter { name: "operator_us", start: 42.0, low: 8.0, high: 200.0 },
    FitParameter { name: "exchange_us", start: 84.0, low: 8.0, high: 400.0 },
    FitParameter { name: "piece_us", start: 500.0, low: 50.0, high: 3000.0 },
    FitParameter { name: "chunk_us", start: 30.0, low: 2.0, high: 200.0 },
    FitParameter { name: "batch_us", start: 1000.0, low: 20.0, high: 5000.0 },
];

impl Stack {
    /// Fitted on the shipped points; `cargo xtask validate` fits them again.
    pub const FITTED: Self = Self {
        pass_us: 2360.0,
        workers_us: 2636.0,
        native_pass_us: 1003.0,
        draft_us: 512.9,
        operator_us: 44.75,
        exchange_us: 118.4,
        piece_us: 545.5,
        chunk_us: 37.98,
        batch_us: 802.7,
    };

    pub(super) fn of(values: &[f64]) -> Self {
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self {
            pass_us: at(0),
            workers_us: at(1),
            native_pass_us: at(2),
            draft_us: at(3),
            operator_us: at(4),
            exchange_us: at(5),
            piece_us: at(6),
            chunk_us: at(7),
            batch_us: at(8),
        }
    }

    const fn issue_us(&self, launching: StackLaunching, kind: TimedKind) -> f64 {
        match (launching, kind) {
            (StackLaunching::Captured | StackLaunching::Native, _)
            | (StackLaunching::Pieces, TimedKind::Operator) => 0.0,
            (StackLaunching::Pieces, TimedKind::Attention) => self.piece_us,
            (StackLaunching::Eager | StackLaunching::Pieces, TimedKind::Exchange) => self.exchange_us,
            (StackLaunching::Eager, _) => self.operator_us,
        }
    }

    pub(super) const fn values(&self) -> [f64; PARAMETERS.len()] {
        [
            self.pass_us,
            self.workers_us,
            self.native_pass_us,
            self.draft_us,
            self.operator_us,
            self.exchange_us,
            self.piece_us,
            self.chunk_us,
            self.batch_us,
        ]
    }
}

/// Cards of one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct PassCards {
    /// Profile of the chip.
    pub profile: Profile,
    /// Topology that connects the cards.
    pub topology: Topology,
    /// Neighbouring tensor axis cards.
    pub tensor: usize,
    /// Expert axis cards, from card 0.
    pub expert: usize,
    /// Executor of the collectives.
    pub expansion: Expansion,
}

impl PassCards {
    fn on(&self, axis: ParallelAxis) -> Vec<usize> {
        match axis {
            ParallelAxis::Tensor => (0..self.tensor).collect(),
            ParallelAxis::Expert => (0..self.expert).collect(),
            ParallelAxis::Context | ParallelAxis::Data => vec![0],
        }
    }

    fn timed(&self, step: &WorkloadStep) -> TaskCost {
        let (mut us, mut chunks, mut tokens, mut kind) = (0.0, 0.0, 0.0, TimedKind::Operator);
        let soc = self.profile.soc;
        match &step.task {
            WorkloadTask::Launch(launch) if launch.operator == DELTA_CHUNKS => {
                kind = TimedKind::Attention;
                chunks = launch.operands[0].dims[0].div_ceil(soc.cube_cores() as usize) as f64;
            }
            WorkloadTask::Launch(launch) if launch.operator == DELTA_TOKEN => {
                let states: usize = launch.operands[0].dims[..2].iter().product();
                kind = TimedKind::Attention;
                tokens = states.div_ceil(soc.vector_cores() as usize) as f64;
            }
            WorkloadTask::Launch(launch) => {
                if launch.operator.contains("Attention") {
                    kind = TimedKind::Attention;
                }
                us = OperatorCost::of(&self.profile, &Work::of(launch)).duration_us;
            }
            WorkloadTask::Exchange { exchange, bytes, axis } => {
                let cards = self.on(*axis);
                let cost = match self.expansion {
                    Expansion::Cores => {
                        CollectiveCost::of(&self.profile, &self.topology, *exchange, *bytes, &cards)
                    }
                    Expansion::Host => {
                        CollectiveCost::by_copies(&self.profile, &self.topology, *exchange, *bytes, &cards)
                    }
                };
                (us, kind) = (cost.duration_us, TimedKind::Exchange);
            }
        }
        TaskCost { us, chunks, tokens, kind, times: step.times }
    }

    /// Prices every task of a step on these cards.
    #[must_use]
    pub fn work(&self, sections: &[Section]) -> StepWork {
        let part = |section: &Section| StackPart {
            is_draft: section.name == "draft",
            repeats: section.repeats,
            tasks: section.steps.iter().map(|step| self.timed(step)).collect(),
        };
        StepWork { parts: sections.iter().map(part).collect(), cards: self.tensor }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimedKind {
    Operator,
    Exchange,
    /// Attention or delta rule, which ends a captured piece.
    Attention,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct TaskCost {
    us: f64,
    /// Delta rule chunks on the busiest core.
    chunks: f64,
    /// States of new tokens on the busiest vector core.
    tokens: f64,
    kind: TimedKind,
    times: usize,
}

#[derive(Debug, Clone, PartialEq)]
struct StackPart {
    is_draft: bool,
    repeats: usize,
    tasks: Vec<TaskCost>,
}

/// Consecutive tasks that the host launches ahead. If the host is free at `h` and the card at `c`,
/// the host ends at `h + host_us`, and the card at the later of `c + card_us` and `h + late_us`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct IssuedWork {
    host_us: f64,
    /// Time on a card that never waits for the host.
    card_us: f64,
    /// Longest path from the start of the host to the end of the card.
    late_us: f64,
}

impl IssuedWork {
    const NONE: Self = Self { host_us: 0.0, card_us: 0.0, late_us: f64::NEG_INFINITY };

    const fn task(host_us: f64, card_us: f64) -> Self {
        Self { host_us, card_us, late_us: host_us + card_us }
    }

    fn then(self, next: Self) -> Self {
        Self {
            host_us: self.host_us + next.host_us,
            card_us: self.card_us + next.card_us,
            late_us: (self.late_us + next.card_us).max(self.host_us + next.late_us),
        }
    }

    /// Path lengths grow linearly, so the first or the last repetition waits longest.
    fn repeated(self, times: usize) -> Self {
        let Some(others) = times.checked_sub(1) else { return Self::NONE };
        let (times, others) = (times as f64, others as f64);
        Self {
            host_us: times * self.host_us,
            card_us: times * self.card_us,
            late_us: self.late_us + others * self.host_us.max(self.card_us),
        }
    }

    fn end_us(self) -> f64 {
        self.card_us.max(self.late_us)
    }
}

/// Priced tasks of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepWork {
    parts: Vec<StackPart>,
    cards: usize,
}

impl StepWork {
    /// Returns the time of a step, including the software around the model.
    #[must_use]
    pub fn step_us(&self, sequences: usize, stack: &Stack, launching: StackLaunching) -> f64 {
        let pass_us = match launching {
            StackLaunching::Native => stack.native_pass_us,
            _ if self.cards > 1 => stack.pass_us + stack.workers_us,
            _ => stack.pass_us,
        };
        self.forward_us(stack, launching) + pass_us + stack.batch_us * (sequences as f64).sqrt()
    }

    /// Returns the time of a step in a loop without a server, which schedules no requests.
    #[must_use]
    pub fn offline_us(&self, stack: &Stack, launching: StackLaunching) -> f64 {
        self.forward_us(stack, launching) + stack.native_pass_us
    }

    /// Returns the time per layer, with embedding and head distributed over the layers.
    #[must_use]
    pub fn layer_us(&self, stack: &Stack, launching: StackLaunching) -> f64 {
        let is_layer = |part: &&StackPart| part.tasks.iter().any(|task| task.kind == TimedKind::Attention);
        let layers: usize = self.parts.iter().filter(is_layer).map(|part| part.repeats).sum();
        self.forward_us(stack, launching) / layers.max(1) as f64
    }

    /// Returns the time of the model with its drafts.
    #[must_use]
    pub fn forward_us(&self, stack: &Stack, launching: StackLaunching) -> f64 {
        let mut all = IssuedWork::NONE;
        let mut drafts = 0;
        for part in &self.parts {
            drafts += if part.is_draft { part.repeats } else { 0 };
            let task = |task: &TaskCost| {
                let us = task.us + stack.chunk_us * task.chunks + TOKEN * stack.chunk_us * task.tokens;
                IssuedWork::task(stack.issue_us(launching, task.kind), us).repeated(task.times)
            };
            let once = part.tasks.iter().map(task).fold(IssuedWork::NONE, IssuedWork::then);
            all = all.then(once.repeated(part.repeats));
        }
        all.end_us() + stack.draft_us * drafts as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walked(tasks: &[(f64, f64, usize)], repeats: usize) -> f64 {
        let (mut host_us, mut card_us) = (0.0_f64, 0.0_f64);
        for _ in 0..repeats {
            for &(issue_us, us, times) in tasks {
                for _ in 0..times {
                    host_us += issue_us;
                    card_us = card_us.max(host_us) + us;
                }
            }
        }
        card_us
    }

    #[test]
    fn tasks_together_end_when_they_do_one_by_one() {
        let composed = |tasks: &[(f64, f64, usize)], repeats| {
            let each = tasks.iter().map(|&(host, card, times)| IssuedWork::task(host, card).repeated(times));
            each.fold(IssuedWork::NONE, IssuedWork::then).repeated(repeats).end_us()
        };
        // Integers make the results exact.
        let all: [&[(f64, f64, usize)]; 6] = [
            &[],
            &[(3.0, 5.0, 4)],
            &[(5.0, 3.0, 4)],
            &[(1.0, 100.0, 1), (90.0, 2.0, 3)],
            &[(90.0, 2.0, 3), (1.0, 100.0, 1), (0.0, 7.0, 0), (4.0, 0.0, 2)],
            &[(0.0, 9.0, 2), (531.0, 60.0, 1), (0.0, 400.0, 3), (120.0, 1.0, 1)],
        ];
        for tasks in all {
            for repeats in [0, 1, 2, 7] {
                assert_eq!(composed(tasks, repeats), walked(tasks, repeats), "{tasks:?} {repeats} times");
            }
        }
    }
}
