//! What each stage does, one thing after the other, in each schedule.

use std::fmt;

/// The order in which the stages of a pipeline take their micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Schedule {
    /// All forward passes, then all backward passes.
    GPipe,
    /// One forward, one backward, as soon as the pipeline is full (`PipeDream-Flush`).
    OneForwardOneBackward,
    /// The same with several parts of the model on each card (SC21 section 2.2.2): micro-batches in rounds of as many as
    /// there are stages.
    Interleaved {
        /// Parts of the model on each card; at least 2.
        chunks: usize,
    },
    /// The gradients of the weights apart from those of the inputs, and later (zero bubble, ZB-H1): as much memory as 1F1B.
    ZeroBubbleH1,
}

impl Schedule {
    /// Parts of the model on each card.
    #[must_use]
    pub const fn chunks(self) -> usize {
        match self {
            Self::Interleaved { chunks } => chunks,
            _ => 1,
        }
    }

    /// Whether it can run `micro_batches` over `stages`.
    #[must_use]
    pub const fn divides(self, stages: usize, micro_batches: usize) -> bool {
        match self {
            Self::Interleaved { .. } => stages > 1 && micro_batches.is_multiple_of(stages),
            _ => true,
        }
    }

    /// Most activations of a chunk and micro-batch that are alive at once on stage `rank`: from its forward pass until the
    /// last of its gradients.
    #[must_use]
    pub fn peak_alive(self, stages: usize, micro_batches: usize, rank: usize) -> usize {
        match self {
            Self::GPipe => micro_batches,
            Self::OneForwardOneBackward => (stages - rank).min(micro_batches),
            Self::Interleaved { chunks } => {
                (warm_up(stages, micro_batches, chunks, rank) + 1).min(micro_batches * chunks)
            }
            Self::ZeroBubbleH1 => stages.min(micro_batches),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GPipe => f.write_str("gpipe"),
            Self::OneForwardOneBackward => f.write_str("1f1b"),
            Self::Interleaved { chunks } => write!(f, "interleaved:{chunks}"),
            Self::ZeroBubbleH1 => f.write_str("zb-h1"),
        }
    }
}

/// A part of a micro-batch's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Forward,
    /// Both gradients.
    Backward,
    InputGrad,
    WeightGrad,
}

/// One thing a stage does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) part: Part,
    pub(super) chunk: u32,
    pub(super) micro_batch: u32,
}

/// Forward passes of stage `rank` before its first backward pass (`get_pp_rank_microbatches` of Megatron-LM).
fn warm_up(stages: usize, micro_batches: usize, chunks: usize, rank: usize) -> usize {
    let passes = if chunks > 1 { (stages - rank - 1) * 2 + (chunks - 1) * stages } else { stages - rank - 1 };
    passes.min(micro_batches * chunks)
}

/// What stage `rank` does, in order.
pub(super) fn tasks(schedule: Schedule, stages: usize, micro_batches: usize, rank: usize) -> Vec<Task> {
    let chunks = schedule.chunks();
    let total = micro_batches * chunks;
    // The `index`-th pass: rounds of `stages` micro-batches go through one chunk after the other.
    let pass = |part, index: usize| {
        let (chunk, micro_batch) = if chunks == 1 {
            (0, index)
        } else {
            let (round, within) = (index / (stages * chunks), index % (stages * chunks));
            let chunk = within / stages;
            let chunk = if part == Part::Forward { chunk } else { chunks - 1 - chunk };
            (chunk, round * stages + within % stages)
        };
        Task { part, chunk: chunk as u32, micro_batch: micro_batch as u32 }
    };
    let warm_up = match schedule {
        Schedule::GPipe => total,
        _ => warm_up(stages, micro_batches, chunks, rank),
    };
    let mut tasks = Vec::with_capacity(3 * total);
    tasks.extend((0..warm_up).map(|index| pass(Part::Forward, index)));
    for index in 0..total {
        if warm_up + index < total {
            tasks.push(pass(Part::Forward, warm_up + index));
        }
        if schedule == Schedule::ZeroBubbleH1 {
            tasks.push(pass(Part::InputGrad, index));
            if index >= rank {
                tasks.push(pass(Part::WeightGrad, index - rank));
            }
        } else {
            tasks.push(pass(Part::Backward, index));
        }
    }
    if schedule == Schedule::ZeroBubbleH1 {
        tasks.extend((total.saturating_sub(rank)..total).map(|index| pass(Part::WeightGrad, index)));
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEDULES: [Schedule; 5] = [
        Schedule::GPipe,
        Schedule::OneForwardOneBackward,
        Schedule::Interleaved { chunks: 2 },
        Schedule::Interleaved { chunks: 5 },
        Schedule::ZeroBubbleH1,
    ];

    #[test]
    fn every_pass_is_there_once_and_gradients_come_after() {
        for schedule in SCHEDULES {
            for (stages, micro_batches) in [(1, 3), (2, 2), (4, 8), (4, 2), (6, 18)] {
                if !schedule.divides(stages, micro_batches) {
                    continue;
                }
                for rank in 0..stages {
                    let tasks = tasks(schedule, stages, micro_batches, rank);
                    let at = |part, chunk, micro_batch| {
                        tasks.iter().position(|task| *task == Task { part, chunk, micro_batch })
                    };
                    let parts = if schedule == Schedule::ZeroBubbleH1 { 3 } else { 2 };
                    assert_eq!(tasks.len(), parts * micro_batches * schedule.chunks());
                    for chunk in 0..schedule.chunks() as u32 {
                        for micro_batch in 0..micro_batches as u32 {
                            let at = |part| at(part, chunk, micro_batch);
                            let forward = at(Part::Forward);
                            assert!(forward.is_some(), "{schedule} {stages} {micro_batches} {rank}");
                            if parts == 3 {
                                assert!(forward < at(Part::InputGrad) && at(Part::InputGrad) < at(Part::WeightGrad));
                            } else {
                                assert!(forward < at(Part::Backward));
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_peak_is_what_the_order_keeps_alive() {
        for schedule in SCHEDULES {
            for (stages, micro_batches) in [(1, 3), (2, 2), (4, 8), (4, 2), (5, 20), (8, 8), (3, 12)] {
                if !schedule.divides(stages, micro_batches) {
                    continue;
                }
                for rank in 0..stages {
                    let (mut alive, mut peak) = (0_usize, 0);
                    for task in tasks(schedule, stages, micro_batches, rank) {
                        match task.part {
                            Part::Forward => alive += 1,
                            Part::Backward | Part::WeightGrad => alive -= 1,
                            Part::InputGrad => {}
                        }
                        peak = peak.max(alive);
                    }
                    let context = format!("{schedule} p={stages} m={micro_batches} rank {rank}");
                    assert_eq!(schedule.peak_alive(stages, micro_batches, rank), peak, "{context}");
                }
            }
        }
    }

    #[test]
    fn interleaving_keeps_as_much_as_its_form_says() {
        for (stages, chunks) in [(2_usize, 2_usize), (8, 3), (35, 3), (16, 6)] {
            let peak = Schedule::Interleaved { chunks }.peak_alive(stages, 8 * stages, 0) as f64 / chunks as f64;
            let (p, v) = (stages as f64, chunks as f64);
            assert!((peak - p * (1.0 + (p - 1.0) / (p * v))).abs() < 1e-9);
        }
    }
}
