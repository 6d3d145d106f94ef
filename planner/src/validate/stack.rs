//! The software that measured points ran under, and what a step takes with it.
//!
//! Input → output: [`Section`]s, a profile, a topology → microseconds. Invariants: a step's exchanges and operators run one
//! after another, as they do on one card. It is not this library's executor, whose host costs are those of the profile.

use ascend_tp_machine::{CollectiveCost, OperatorCost, Profile, Topology, Work};

use super::super::workload::{Axis, Section, Task};

/// How a stack gives a card its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Launching {
    /// Operator by operator from Python.
    Eager,
    /// A captured graph a pass.
    Captured,
}

/// Host time of a Python serving stack (vLLM-Ascend, and the one the forward steps were measured with), in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stack {
    /// A pass of the model: inputs prepared, graph replayed, tokens sampled and read back. A drafted token is a pass.
    pub pass_us: f64,
    /// An operator or exchange that Python launches by itself.
    pub operator_us: f64,
    /// A sequence of the batch in a step: scheduling, block tables, sampling state, detokenising.
    pub sequence_us: f64,
}

impl Stack {
    /// Fitted on the points that ship; `docs/COSTS.md`.
    pub const FITTED: Self = Self { pass_us: 3200.0, operator_us: 54.0, sequence_us: 380.0 };
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

    /// Microseconds of one step with `sequences` sequences.
    #[must_use]
    pub fn step_us(&self, sections: &[Section], sequences: usize, stack: &Stack, launching: Launching) -> f64 {
        let mut passes = 1;
        // Ends of what the host has issued and of what the card has done.
        let (mut host_us, mut card_us) = (0.0_f64, 0.0_f64);
        for section in sections {
            if section.name == "draft" {
                passes += section.repeats;
            }
            let steps: Vec<(f64, usize)> =
                section.steps.iter().map(|step| (self.task_us(&step.task), step.times)).collect();
            for _ in 0..section.repeats {
                for (us, times) in &steps {
                    match launching {
                        Launching::Captured => card_us += us * *times as f64,
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
        card_us + stack.pass_us * passes as f64 + stack.sequence_us * sequences as f64
    }
}
