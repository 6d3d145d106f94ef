//! The software that measured points ran under, and what a step takes with it.
//!
//! Input → output: [`Section`]s, a profile, a topology → microseconds. Invariants: a step's exchanges and operators run one
//! after another, as they do on one card. It is not this library's executor, whose host costs are those of the profile.

use ascend_tp_machine::fit::Parameter;
use ascend_tp_machine::{CollectiveCost, OperatorCost, Profile, Topology, Work};

use super::super::workload::{DELTA_CHUNKS, DELTA_TOKEN, ParallelAxis, Section, WorkloadStep, WorkloadTask};

/// A way that software around the kernels gives a card its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StackLaunching {
    /// Operator by operator from Python.
    Eager,
    /// From Python, a captured graph from each attention to the next, which is itself issued: what vLLM does where nothing is asked for.
    Pieces,
    /// A captured graph a pass, from Python.
    Captured,
    /// From C++, where the host stays ahead of the card.
    Native,
}

/// Who runs the exchanges of a stack (`HCCL_OP_EXPANSION_MODE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expansion {
    /// Vector cores read each other's memory where parts are small: an Atlas A3's and every stack's that asks for it.
    Cores,
    /// The host lays out each exchange as copies and signals, which the card's scheduler runs one by one: what an Atlas A2 does
    /// unless it is asked for the other.
    Host,
}

/// How each way is known by the words of a row's note; where none is there, in pieces.
const WORDS: [(&str, StackLaunching); 6] = [
    ("eager", StackLaunching::Eager),
    ("mode=graph", StackLaunching::Captured),
    ("FULL_DECODE_ONLY", StackLaunching::Captured),
    ("same setup", StackLaunching::Captured),
    ("aclgraph", StackLaunching::Captured),
    ("MindIE", StackLaunching::Native),
];

impl Expansion {
    /// That of a row on an Atlas A2, whose page may ask for cores: nightly runs do in their files, `MindIE` has exchanges of its own there.
    pub(super) fn of(note: &str, page_asks: bool) -> Self {
        if page_asks || ["MindIE", "mode=graph"].iter().any(|words| note.contains(words)) {
            Self::Cores
        } else {
            Self::Host
        }
    }
}

impl StackLaunching {
    /// The way that a row's note says.
    pub(super) fn of(note: &str) -> Self {
        WORDS.iter().find(|(words, _)| note.contains(words)).map_or(Self::Pieces, |(_, launching)| *launching)
    }
}

/// Host time of the serving stacks that were measured, in microseconds. This library's own is that of the C ABI, in the profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stack {
    /// A pass of the model from Python: inputs prepared, graph replayed, tokens sampled and read back.
    pub pass_us: f64,
    /// What a pass from Python takes more where several cards share it: their processes are told of it, and the slowest is waited for.
    pub workers_us: f64,
    /// A pass from C++.
    pub native_pass_us: f64,
    /// A pass that drafts a token.
    pub draft_us: f64,
    /// An operator that Python launches by itself.
    pub operator_us: f64,
    /// An exchange that it launches.
    pub exchange_us: f64,
    /// An attention that Python issues between two captured pieces, and the replay of a piece.
    pub piece_us: f64,
    /// What the kernels of a prompt's delta rule take for a chunk of a head on one core.
    pub chunk_us: f64,
    /// What its kernel takes for a new token of a head on one vector core.
    pub token_us: f64,
    /// What a batch adds to a step, times the root of its sequences: scheduling, block tables, sampling state, detokenising.
    pub batch_us: f64,
}

/// What is fitted of the stacks. A simulator of the vendor's counts on 2 ms a step, and as much is taken for the processes of several
/// cards. An operator through torch alone takes 16 (`GroundUpScale`, issue 31), one of some thousand in the 110 ms of an eager step of
/// a 32B model 110 (vllm-ascend, issues 1351 and 171): the start is their geometric mean, twice that for an exchange, which passes two
/// libraries, and a dozen times that for a piece, which is what stands between two attentions. Kernels of the delta rule that are three
/// times as fast make a prompt of Qwen3.5 15 % faster (vllm-ascend PR 8872): they take a fifth of it, some 30 us a chunk. A token's
/// seven passes over a state of 128 by 128 take a core's lanes 1 us at their full rate; the start is ten times that.
pub(super) const PARAMETERS: [Parameter; 10] = [
    Parameter { name: "pass_us", start: 2000.0, low: 100.0, high: 20_000.0 },
    Parameter { name: "workers_us", start: 2000.0, low: 50.0, high: 20_000.0 },
    Parameter { name: "native_pass_us", start: 1000.0, low: 50.0, high: 20_000.0 },
    Parameter { name: "draft_us", start: 500.0, low: 50.0, high: 5000.0 },
    Parameter { name: "operator_us", start: 42.0, low: 8.0, high: 200.0 },
    Parameter { name: "exchange_us", start: 84.0, low: 8.0, high: 400.0 },
    Parameter { name: "piece_us", start: 500.0, low: 50.0, high: 3000.0 },
    Parameter { name: "chunk_us", start: 30.0, low: 2.0, high: 200.0 },
    Parameter { name: "token_us", start: 10.0, low: 0.5, high: 100.0 },
    Parameter { name: "batch_us", start: 1000.0, low: 20.0, high: 5000.0 },
];

impl Stack {
    /// Fitted on the points that ship; `plan --validate` fits it again.
    pub const FITTED: Self = Self {
        pass_us: 2493.0,
        workers_us: 2867.0,
        native_pass_us: 976.2,
        draft_us: 656.6,
        operator_us: 43.44,
        exchange_us: 120.1,
        piece_us: 531.7,
        chunk_us: 39.77,
        token_us: 17.95,
        batch_us: 960.4,
    };

    /// In the order of the parameters.
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
            token_us: at(8),
            batch_us: at(9),
        }
    }

    /// Host time of a task.
    const fn issue_us(&self, launching: StackLaunching, kind: TimedKind) -> f64 {
        match (launching, kind) {
            (StackLaunching::Captured | StackLaunching::Native, _) | (StackLaunching::Pieces, TimedKind::Operator) => {
                0.0
            }
            (StackLaunching::Pieces, TimedKind::Attention) => self.piece_us,
            (StackLaunching::Eager | StackLaunching::Pieces, TimedKind::Exchange) => self.exchange_us,
            (StackLaunching::Eager, _) => self.operator_us,
        }
    }

    /// The values in the order of the parameters.
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
            self.token_us,
            self.batch_us,
        ]
    }
}

/// The cards of one pass: how many each axis has, and where they stand.
#[derive(Debug, Clone, PartialEq)]
pub struct Cards {
    /// What a card can do.
    pub profile: Profile,
    /// How cards are joined.
    pub topology: Topology,
    /// Cards of the tensor axis, which are neighbours.
    pub tensor: usize,
    /// Cards of the expert axis, from the first on.
    pub expert: usize,
    /// Who runs exchanges.
    pub expansion: Expansion,
}

impl Cards {
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
                    Expansion::Cores => CollectiveCost::of(&self.profile, &self.topology, *exchange, *bytes, &cards),
                    Expansion::Host => {
                        CollectiveCost::by_copies(&self.profile, &self.topology, *exchange, *bytes, &cards)
                    }
                };
                (us, kind) = (cost.duration_us, TimedKind::Exchange);
            }
        }
        TaskCost { us, chunks, tokens, kind, times: step.times }
    }

    /// What each task of a step takes on the cards.
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

/// What a stack distinguishes of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimedKind {
    Operator,
    Exchange,
    /// Attention, or the delta rule in its place: where captured pieces end.
    Attention,
}

/// What a task takes on a card.
#[derive(Debug, Clone, Copy, PartialEq)]
struct TaskCost {
    us: f64,
    /// Chunks of a delta rule on the busiest core, which are a stack's own.
    chunks: f64,
    /// New tokens' states of it on the busiest vector core.
    tokens: f64,
    kind: TimedKind,
    /// How often it is done in a row.
    times: usize,
}

#[derive(Debug, Clone, PartialEq)]
struct StackPart {
    is_draft: bool,
    repeats: usize,
    tasks: Vec<TaskCost>,
}

/// Tasks one after another, each of which the host issues before the card does it: of a host that is done at `h` and a card that is
/// done at `c`, the host is done with them at `h + host_us` and the card at the later of `c + card_us` and `h + late_us`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct IssuedWork {
    /// What the host takes to issue them.
    host_us: f64,
    /// What the card takes for them where it need not wait for the host.
    card_us: f64,
    /// The longest way from the host's begin to the card's end, over each task that the card may have waited for.
    late_us: f64,
}

impl IssuedWork {
    const NONE: Self = Self { host_us: 0.0, card_us: 0.0, late_us: f64::NEG_INFINITY };

    /// A task that takes the host and the card so long.
    const fn task(host_us: f64, card_us: f64) -> Self {
        Self { host_us, card_us, late_us: host_us + card_us }
    }

    /// These, then `next`.
    fn then(self, next: Self) -> Self {
        Self {
            host_us: self.host_us + next.host_us,
            card_us: self.card_us + next.card_us,
            late_us: (self.late_us + next.card_us).max(self.host_us + next.late_us),
        }
    }

    /// These `times` times. The way that waits in the first or in the last time is the longest: between the two it grows evenly.
    fn repeated(self, times: usize) -> Self {
        let Some(others) = times.checked_sub(1) else { return Self::NONE };
        let (times, others) = (times as f64, others as f64);
        Self {
            host_us: times * self.host_us,
            card_us: times * self.card_us,
            late_us: self.late_us + others * self.host_us.max(self.card_us),
        }
    }

    /// When the card is done that begins with the host.
    fn end_us(self) -> f64 {
        self.card_us.max(self.late_us)
    }
}

/// What the cards do in a step, in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct StepWork {
    parts: Vec<StackPart>,
    /// Cards that share it.
    cards: usize,
}

impl StepWork {
    /// Microseconds of one step with `sequences` sequences: the model's and what the software around it takes.
    #[must_use]
    pub fn step_us(&self, sequences: usize, stack: &Stack, launching: StackLaunching) -> f64 {
        let pass_us = match launching {
            StackLaunching::Native => stack.native_pass_us,
            _ if self.cards > 1 => stack.pass_us + stack.workers_us,
            _ => stack.pass_us,
        };
        self.forward_us(stack, launching) + pass_us + stack.batch_us * (sequences as f64).sqrt()
    }

    /// Microseconds of one of its layers, embedding and head shared out over them.
    #[must_use]
    pub fn layer_us(&self, stack: &Stack, launching: StackLaunching) -> f64 {
        let is_layer = |part: &&StackPart| part.tasks.iter().any(|task| task.kind == TimedKind::Attention);
        let layers: usize = self.parts.iter().filter(is_layer).map(|part| part.repeats).sum();
        self.forward_us(stack, launching) / layers.max(1) as f64
    }

    /// Microseconds of the model alone, its drafts among them.
    #[must_use]
    pub fn forward_us(&self, stack: &Stack, launching: StackLaunching) -> f64 {
        let mut all = IssuedWork::NONE;
        let mut drafts = 0;
        for part in &self.parts {
            drafts += if part.is_draft { part.repeats } else { 0 };
            let task = |task: &TaskCost| {
                let us = task.us + stack.chunk_us * task.chunks + stack.token_us * task.tokens;
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

    /// When a card is done that does tasks of (host, card, times), `repeats` times all of them, one by one.
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
        // Whole numbers, so that both have the same bits: hosts that are ahead, behind, and each for a part of the tasks.
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
