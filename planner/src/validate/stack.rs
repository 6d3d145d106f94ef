//! The software that measured points ran under, and what a step takes with it.
//!
//! Input → output: [`Section`]s, a profile, a topology → microseconds. Invariants: a step's exchanges and operators run one
//! after another, as they do on one card. It is not this library's executor, whose host costs are those of the profile.

use ascend_tp_machine::fit::Parameter;
use ascend_tp_machine::{CollectiveCost, OperatorCost, Profile, Topology, Work};

use super::super::workload::{Axis, Section, Task};

/// A way that software around the kernels gives a card its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Launching {
    /// Operator by operator from Python.
    Eager,
    /// A captured graph a pass, from Python.
    Captured,
    /// From C++, where the host stays ahead of the card.
    Native,
}

/// How each way is known by the words of a row's note; where none is there, eager.
const WORDS: [(&str, Launching); 5] = [
    ("mode=graph", Launching::Captured),
    ("FULL_DECODE_ONLY", Launching::Captured),
    ("same setup", Launching::Captured),
    ("aclgraph", Launching::Captured),
    ("MindIE", Launching::Native),
];

impl Launching {
    /// The way that a row's note says.
    pub(super) fn of(note: &str) -> Self {
        WORDS.iter().find(|(words, _)| note.contains(words)).map_or(Self::Eager, |(_, launching)| *launching)
    }
}

/// Host time of the serving stacks that were measured, in microseconds. This library's own is that of the C ABI, in the profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stack {
    /// A pass of the model from Python: inputs prepared, graph replayed, tokens sampled and read back.
    pub pass_us: f64,
    /// The same from C++.
    pub native_pass_us: f64,
    /// A pass that drafts a token.
    pub draft_us: f64,
    /// An operator or exchange that Python launches by itself.
    pub operator_us: f64,
    /// What a batch adds to a step, times the root of its sequences: scheduling, block tables, sampling state, detokenising.
    pub batch_us: f64,
}

/// What is fitted of the stacks. A simulator of the vendor's counts on 2 ms a step. An operator through torch alone takes 16
/// (`GroundUpScale`, issue 31), one of some thousand in the 110 ms of an eager step of a 32B model 110 (vllm-ascend, issues 1351
/// and 171): the start is their geometric mean.
pub(super) const PARAMETERS: [Parameter; 5] = [
    Parameter { name: "pass_us", start: 2000.0, low: 100.0, high: 20_000.0 },
    Parameter { name: "native_pass_us", start: 1000.0, low: 50.0, high: 20_000.0 },
    Parameter { name: "draft_us", start: 500.0, low: 50.0, high: 5000.0 },
    Parameter { name: "operator_us", start: 42.0, low: 8.0, high: 200.0 },
    Parameter { name: "batch_us", start: 1000.0, low: 20.0, high: 5000.0 },
];

impl Stack {
    /// Fitted on the points that ship; `plan --validate` fits it again.
    pub const FITTED: Self =
        Self { pass_us: 2228.0, native_pass_us: 1071.0, draft_us: 606.1, operator_us: 53.2, batch_us: 1354.0 };

    /// In the order of the parameters.
    pub(super) fn of(values: &[f64]) -> Self {
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self { pass_us: at(0), native_pass_us: at(1), draft_us: at(2), operator_us: at(3), batch_us: at(4) }
    }

    /// The values in the order of the parameters.
    pub(super) const fn values(&self) -> [f64; PARAMETERS.len()] {
        [self.pass_us, self.native_pass_us, self.draft_us, self.operator_us, self.batch_us]
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
}

impl Cards {
    fn on(&self, axis: Axis) -> Vec<usize> {
        match axis {
            Axis::Tensor => (0..self.tensor).collect(),
            Axis::Expert => (0..self.expert).collect(),
            Axis::Context | Axis::Data => vec![0],
        }
    }

    fn task_us(&self, task: &Task) -> f64 {
        match task {
            Task::Launch(launch) => OperatorCost::of(&self.profile, &Work::of(launch)).duration_us,
            Task::Exchange { exchange, bytes, axis } => {
                CollectiveCost::of(&self.profile, &self.topology, *exchange, *bytes, &self.on(*axis)).duration_us
            }
        }
    }

    /// What each task of a step takes on the cards.
    #[must_use]
    pub fn work(&self, sections: &[Section]) -> StepWork {
        let part = |section: &Section| StepPart {
            is_draft: section.name == "draft",
            repeats: section.repeats,
            tasks: section.steps.iter().map(|step| (self.task_us(&step.task), step.times)).collect(),
        };
        StepWork(sections.iter().map(part).collect())
    }
}

/// A section's tasks, each with how often it is done in a row.
#[derive(Debug, Clone, PartialEq)]
struct StepPart {
    is_draft: bool,
    repeats: usize,
    tasks: Vec<(f64, usize)>,
}

/// What the cards do in a step, in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct StepWork(Vec<StepPart>);

impl StepWork {
    /// Microseconds of one step with `sequences` sequences.
    #[must_use]
    pub fn step_us(&self, sequences: usize, stack: &Stack, launching: Launching) -> f64 {
        // Ends of what the host has issued and of what the card has done.
        let (mut host_us, mut card_us) = (0.0_f64, 0.0_f64);
        let mut drafts = 0;
        for part in &self.0 {
            drafts += if part.is_draft { part.repeats } else { 0 };
            for _ in 0..part.repeats {
                for (us, times) in &part.tasks {
                    match launching {
                        Launching::Captured | Launching::Native => card_us += us * *times as f64,
                        Launching::Eager => {
                            for _ in 0..*times {
                                host_us += stack.operator_us;
                                card_us = card_us.max(host_us) + us;
                            }
                        }
                    }
                }
            }
        }
        let pass_us = if launching == Launching::Native { stack.native_pass_us } else { stack.pass_us };
        card_us + pass_us + stack.draft_us * drafts as f64 + stack.batch_us * (sequences as f64).sqrt()
    }
}
