//! Pipeline schedules: the tasks of each stage, their times for given durations
//! ([`Pipeline::walk`]), and the [`StageEntry`]s in enqueue order ([`Pipeline::entries`]).
//!
//! Model part `i` belongs to stage `i % stages`; in ZB-V the second chunk runs backwards
//! ([`Pipeline::stage`]).
//!
//! Invariant: no deadlock, although a transfer waits for both ends and a stage does one exchange at
//! a time. Each stage sorts tasks and transfers by their end times in the walk, so all stages
//! follow one order with dependencies first.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Schedule of micro-batches on stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pipeline {
    /// All forward passes, then all backward passes.
    GPipe,
    /// Forward and backward passes in turn, once the pipeline is full (`PipeDream-Flush`).
    #[default]
    OneForwardOneBackward,
    /// 1F1B with several model parts per card (SC21, section 2.2.2), in rounds of `stages`
    /// micro-batches.
    Interleaved {
        /// Parts per card, at least 2.
        chunks: usize,
    },
    /// Zero bubble (ZB-H1): weight gradients are computed after input gradients. Uses as much
    /// memory as 1F1B.
    ZeroBubbleH1,
    /// Zero bubble with two parts per card, the second in reverse stage order (ZB-V, arXiv
    /// 2405.15362). The first stage also computes the loss. Uses as much memory as 1F1B.
    ZeroBubbleV,
}

impl Pipeline {
    /// Counts the parts per card.
    #[must_use]
    pub const fn chunks(self) -> usize {
        match self {
            Self::Interleaved { chunks } => chunks,
            Self::ZeroBubbleV => 2,
            _ => 1,
        }
    }

    /// Returns the stage of a part.
    #[must_use]
    pub const fn stage(self, stages: usize, part: usize) -> usize {
        match self {
            Self::ZeroBubbleV if part >= stages => 2 * stages - 1 - part,
            _ => part % stages,
        }
    }

    /// Returns the part of a task.
    #[must_use]
    pub const fn part(self, stages: usize, rank: usize, task: Task) -> usize {
        match self {
            Self::ZeroBubbleV if task.chunk == 1 => 2 * stages - 1 - rank,
            _ => task.chunk as usize * stages + rank,
        }
    }

    /// Returns whether the schedule supports these numbers.
    #[must_use]
    pub const fn divides(self, stages: usize, micro_batches: usize) -> bool {
        match self {
            Self::Interleaved { .. } => stages > 1 && micro_batches.is_multiple_of(stages),
            _ => true,
        }
    }

    /// Returns the peak number of live activations on a stage. An activation of a chunk and
    /// micro-batch lives from its forward pass to its last gradient.
    #[must_use]
    pub fn peak_alive(self, stages: usize, micro_batches: usize, rank: usize) -> usize {
        match self {
            Self::GPipe => micro_batches,
            Self::OneForwardOneBackward => (stages - rank).min(micro_batches),
            Self::Interleaved { chunks } => {
                (warm_up(stages, micro_batches, chunks, rank) + 1).min(micro_batches * chunks)
            }
            Self::ZeroBubbleH1 => stages.min(micro_batches),
            Self::ZeroBubbleV => {
                // With more micro-batches, each further task that allocates follows one that frees.
                let order = tasks(self, stages, micro_batches.min(2 * stages), rank);
                let alive = order.iter().scan(0_usize, |alive, task| {
                    match task.pass {
                        Pass::Forward => *alive += 1,
                        Pass::Backward | Pass::WeightGrad => *alive -= 1,
                        Pass::InputGrad => {}
                    }
                    Some(*alive)
                });
                alive.max().unwrap_or_default()
            }
        }
    }
}

impl Pipeline {
    /// Returns the tasks of each stage, in order.
    ///
    /// # Panics
    /// The micro-batches are unsupported; see [`Pipeline::divides`].
    #[must_use]
    pub fn tasks(self, stages: usize, micro_batches: usize) -> Vec<Vec<Task>> {
        assert!(self.divides(stages, micro_batches), "{self} over {stages} of {micro_batches}");
        (0..stages).map(|rank| tasks(self, stages, micro_batches, rank)).collect()
    }

    /// Simulates the stages. A stage runs one task at a time, in order, as soon as the inputs have
    /// arrived.
    ///
    /// `takes` returns the duration of a pass of a part, in any unit; `transfer` is the duration of
    /// a transfer to the next part.
    ///
    /// # Panics
    /// As [`Pipeline::tasks`].
    #[must_use]
    pub fn walk(
        self,
        stages: usize,
        micro_batches: usize,
        takes: impl Fn(usize, Pass) -> f64,
        transfer: f64,
    ) -> Vec<Vec<TimedTask>> {
        let orders = self.tasks(stages, micro_batches);
        let parts = stages * self.chunks();
        let hop = |from: usize, to: usize| {
            if self.stage(stages, from) == self.stage(stages, to) { 0.0 } else { transfer }
        };
        // By part and micro-batch. NaN: not done yet.
        let mut forward = vec![f64::NAN; parts * micro_batches];
        let mut backward = forward.clone();
        let mut walked: Vec<Vec<TimedTask>> =
            orders.iter().map(|order| Vec::with_capacity(order.len())).collect();
        let mut left: usize = orders.iter().map(Vec::len).sum();
        while left > 0 {
            let before = left;
            for (rank, order) in orders.iter().enumerate() {
                while let Some(&task) = order.get(walked[rank].len()) {
                    let part = self.part(stages, rank, task);
                    let (place, micro_batch) = (part * micro_batches, task.micro_batch as usize);
                    let ready = match task.pass {
                        Pass::Forward if part == 0 => 0.0,
                        Pass::Forward => forward[place - micro_batches + micro_batch] + hop(part - 1, part),
                        Pass::WeightGrad => 0.0,
                        Pass::Backward | Pass::InputGrad if part + 1 == parts => forward[place + micro_batch],
                        Pass::Backward | Pass::InputGrad => {
                            backward[place + micro_batches + micro_batch] + hop(part + 1, part)
                        }
                    };
                    if ready.is_nan() {
                        break;
                    }
                    let start = walked[rank].last().map_or(0.0, |last| last.end).max(ready);
                    let end = start + takes(part, task.pass);
                    match task.pass {
                        Pass::Forward => forward[place + micro_batch] = end,
                        Pass::Backward | Pass::InputGrad => backward[place + micro_batch] = end,
                        Pass::WeightGrad => {}
                    }
                    walked[rank].push(TimedTask { task, start, end });
                    left -= 1;
                }
            }
            assert!(left < before, "{self} over {stages} of {micro_batches}: every stage waits");
        }
        walked
    }

    /// Returns what each stage enqueues. All stages share the order of transfers, which follows the
    /// simulated times of [`Pipeline::walk`] and is free of deadlocks for any times.
    ///
    /// # Panics
    /// As [`Pipeline::tasks`].
    #[must_use]
    pub fn entries(
        self,
        stages: usize,
        micro_batches: usize,
        takes: impl Fn(usize, Pass) -> f64,
        transfer: f64,
    ) -> Vec<Vec<StageEntry>> {
        // A pass of zero duration would have the same key as its result.
        let walked =
            self.walk(stages, micro_batches, |part, pass| takes(part, pass).max(SHORTEST), transfer.max(0.0));
        let parts = stages * self.chunks();
        let mut all: Vec<Vec<(TransferKey, StageEntry)>> = walked
            .iter()
            .map(|own| {
                own.iter()
                    .map(|walked| ((walked.start, true, usize::MAX), StageEntry::Run(walked.task)))
                    .collect()
            })
            .collect();
        for (rank, own) in walked.iter().enumerate() {
            for TimedTask { task: made_by, end, .. } in own.iter().copied() {
                let part = self.part(stages, rank, made_by);
                let reader = match made_by.pass {
                    Pass::Forward if part + 1 < parts => part + 1,
                    Pass::Backward | Pass::InputGrad if part > 0 => part - 1,
                    _ => continue,
                };
                let to = self.stage(stages, reader);
                if to != rank {
                    let key = (
                        end,
                        made_by.pass != Pass::Forward,
                        part * micro_batches + made_by.micro_batch as usize,
                    );
                    all[rank].push((key, StageEntry::Send { made_by, to }));
                    all[to].push((key, StageEntry::Receive { made_by, from: rank }));
                }
            }
        }
        let sorted = all.into_iter().map(|mut own| {
            own.sort_by(|((at, back, from), _), ((other, other_back, other_from), _)| {
                at.total_cmp(other).then(back.cmp(other_back)).then(from.cmp(other_from))
            });
            own.into_iter().map(|(_, entry)| entry).collect()
        });
        sorted.collect()
    }
}

const SHORTEST: f64 = 1.0;

impl FromStr for Pipeline {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "gpipe" => Ok(Self::GPipe),
            "1f1b" => Ok(Self::OneForwardOneBackward),
            "zb-h1" => Ok(Self::ZeroBubbleH1),
            "zb-v" => Ok(Self::ZeroBubbleV),
            _ => {
                let chunks = text.strip_prefix("interleaved=").and_then(|chunks| chunks.parse().ok());
                let problem =
                    || format!("`{text}` is none of gpipe, 1f1b, interleaved=2 (or more), zb-h1 and zb-v");
                chunks
                    .filter(|chunks| *chunks > 1)
                    .map(|chunks| Self::Interleaved { chunks })
                    .ok_or_else(problem)
            }
        }
    }
}

impl TryFrom<String> for Pipeline {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Pipeline> for String {
    fn from(pipeline: Pipeline) -> Self {
        pipeline.to_string()
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GPipe => f.write_str("gpipe"),
            Self::OneForwardOneBackward => f.write_str("1f1b"),
            Self::Interleaved { chunks } => write!(f, "interleaved={chunks}"),
            Self::ZeroBubbleH1 => f.write_str("zb-h1"),
            Self::ZeroBubbleV => f.write_str("zb-v"),
        }
    }
}

/// A micro-batch's pass through a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// The forward pass of a part.
    Forward,
    /// Input and weight gradients together.
    Backward,
    /// Gradients of inputs only. The weight gradients follow later.
    InputGrad,
    /// Weight gradients alone, later.
    WeightGrad,
}

/// A stage's unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The pass that is run.
    pub pass: Pass,
    /// Part within the stage.
    pub chunk: u32,
    /// Index of the micro-batch, from 0.
    pub micro_batch: u32,
}

/// A task with times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedTask {
    /// The task that is run.
    pub task: Task,
    /// Start time of the task.
    pub start: f64,
    /// End time of the task.
    pub end: f64,
}

/// Time, whether it belongs to a backward pass, and source: distinct for all transfers.
type TransferKey = (f64, bool, usize);

/// An enqueued entry. A transfer carries everything that the next part reads from a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageEntry {
    /// A task of this stage.
    Run(Task),
    /// Sends a task's result.
    Send {
        /// Task of the result.
        made_by: Task,
        /// The stage that receives the result.
        to: usize,
    },
    /// Receives another stage's result.
    Receive {
        /// Task, with its own stage's chunk index.
        made_by: Task,
        /// The stage that sends the result.
        from: usize,
    },
}

/// Forward passes before the first backward pass (`get_pp_rank_microbatches` of Megatron-LM).
fn warm_up(stages: usize, micro_batches: usize, chunks: usize, rank: usize) -> usize {
    let passes = if chunks > 1 { (stages - rank - 1) * 2 + (chunks - 1) * stages } else { stages - rank - 1 };
    passes.min(micro_batches * chunks)
}

fn tasks(pipeline: Pipeline, stages: usize, micro_batches: usize, rank: usize) -> Vec<Task> {
    if pipeline == Pipeline::ZeroBubbleV {
        return tasks_in_v(stages, micro_batches, rank);
    }
    let chunks = pipeline.chunks();
    let total = micro_batches * chunks;
    // Rounds of `stages` micro-batches go through one chunk after the other.
    let nth = |pass, index: usize| {
        let (chunk, micro_batch) = if chunks == 1 {
            (0, index)
        } else {
            let (round, within) = (index / (stages * chunks), index % (stages * chunks));
            let chunk = within / stages;
            let chunk = if pass == Pass::Forward { chunk } else { chunks - 1 - chunk };
            (chunk, round * stages + within % stages)
        };
        Task { pass, chunk: chunk as u32, micro_batch: micro_batch as u32 }
    };
    let warm_up = match pipeline {
        Pipeline::GPipe => total,
        _ => warm_up(stages, micro_batches, chunks, rank),
    };
    let mut tasks = Vec::with_capacity(3 * total);
    tasks.extend((0..warm_up).map(|index| nth(Pass::Forward, index)));
    for index in 0..total {
        if warm_up + index < total {
            tasks.push(nth(Pass::Forward, warm_up + index));
        }
        if pipeline == Pipeline::ZeroBubbleH1 {
            tasks.push(nth(Pass::InputGrad, index));
            if index >= rank {
                tasks.push(nth(Pass::WeightGrad, index - rank));
            }
        } else {
            tasks.push(nth(Pass::Backward, index));
        }
    }
    if pipeline == Pipeline::ZeroBubbleH1 {
        tasks.extend((total.saturating_sub(rank)..total).map(|index| nth(Pass::WeightGrad, index)));
    }
    tasks
}

/// Tasks of a stage in ZB-V.
///
/// The first micro-batches run down to the last stage and back up until the loss is available. Then
/// each stage alternates a forward pass and the gradients of both parts. Weight gradients that no
/// stage waits for are postponed to the end.
fn tasks_in_v(stages: usize, micro_batches: usize, rank: usize) -> Vec<Task> {
    // `2 * stages - 1` micro-batches fill the pipeline. Surplus ones are dropped below.
    let all = micro_batches.max(2 * stages - 1);
    let (behind, first) = (stages - rank, 2 * stages - rank - 1);
    let forward = |chunk: u32| [(Pass::Forward, chunk)];
    let input_grad = |chunk: u32| (Pass::InputGrad, chunk);
    let weight_grad = |chunk: u32| (Pass::WeightGrad, chunk);
    let gradients = |chunk: u32| [input_grad(chunk), weight_grad(chunk)];
    let mut order = [
        forward(0).repeat(2 * behind - 1),
        [forward(1), forward(0)].concat().repeat(rank),
        [&forward(1)[..], &gradients(1)].concat().repeat(behind),
    ]
    .concat();
    for round in 0..all - stages {
        if first + round < all {
            order.extend(forward(0));
        }
        order.extend(gradients(0).into_iter().chain(forward(1)).chain(gradients(1)));
    }
    order.extend([input_grad(0), input_grad(1)].repeat(rank));
    order.extend(gradients(0).repeat(behind));
    order.extend([[weight_grad(1)].repeat(rank), [weight_grad(0)].repeat(rank)].concat());
    let mut done: BTreeMap<(Pass, u32), usize> = BTreeMap::new();
    let numbered = order.into_iter().filter_map(|(pass, chunk)| {
        let count = done.entry((pass, chunk)).or_default();
        *count += 1;
        (*count <= micro_batches).then_some(Task { pass, chunk, micro_batch: (*count - 1) as u32 })
    });
    numbered.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPELINES: [Pipeline; 6] = [
        Pipeline::GPipe,
        Pipeline::OneForwardOneBackward,
        Pipeline::Interleaved { chunks: 2 },
        Pipeline::Interleaved { chunks: 5 },
        Pipeline::ZeroBubbleH1,
        Pipeline::ZeroBubbleV,
    ];

    fn entries(pipeline: Pipeline, stages: usize, micro_batches: usize, seed: usize) -> Vec<Vec<StageEntry>> {
        let takes = |part: usize, pass: Pass| {
            ((part + 1) * (pass as usize + 2) * (2 * seed + 1) * 7 % 11) as f64 * 20.0
        };
        pipeline.entries(stages, micro_batches, takes, 15.0 * seed as f64)
    }

    #[test]
    fn every_pass_is_there_once_and_gradients_come_after() {
        for pipeline in PIPELINES {
            for (stages, micro_batches) in [(1, 3), (2, 2), (4, 8), (4, 2), (6, 18)] {
                if !pipeline.divides(stages, micro_batches) {
                    continue;
                }
                for rank in 0..stages {
                    let tasks = tasks(pipeline, stages, micro_batches, rank);
                    let at = |pass, chunk, micro_batch| {
                        tasks.iter().position(|task| *task == Task { pass, chunk, micro_batch })
                    };
                    let is_split = matches!(pipeline, Pipeline::ZeroBubbleH1 | Pipeline::ZeroBubbleV);
                    let parts = if is_split { 3 } else { 2 };
                    assert_eq!(tasks.len(), parts * micro_batches * pipeline.chunks());
                    for chunk in 0..pipeline.chunks() as u32 {
                        for micro_batch in 0..micro_batches as u32 {
                            let at = |pass| at(pass, chunk, micro_batch);
                            let forward = at(Pass::Forward);
                            assert!(forward.is_some(), "{pipeline} {stages} {micro_batches} {rank}");
                            if parts == 3 {
                                assert!(
                                    forward < at(Pass::InputGrad)
                                        && at(Pass::InputGrad) < at(Pass::WeightGrad)
                                );
                            } else {
                                assert!(forward < at(Pass::Backward));
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_peak_is_what_the_order_keeps_alive() {
        for pipeline in PIPELINES {
            for (stages, micro_batches) in [(1, 3), (2, 2), (4, 8), (4, 2), (5, 20), (8, 8), (3, 12)] {
                if !pipeline.divides(stages, micro_batches) {
                    continue;
                }
                for rank in 0..stages {
                    let (mut alive, mut peak) = (0_usize, 0);
                    for task in tasks(pipeline, stages, micro_batches, rank) {
                        match task.pass {
                            Pass::Forward => alive += 1,
                            Pass::Backward | Pass::WeightGrad => alive -= 1,
                            Pass::InputGrad => {}
                        }
                        peak = peak.max(alive);
                    }
                    let context = format!("{pipeline} p={stages} m={micro_batches} rank {rank}");
                    assert_eq!(pipeline.peak_alive(stages, micro_batches, rank), peak, "{context}");
                }
            }
        }
    }

    /// Each exchange waits for both ends.
    #[test]
    fn transfers_meet_whatever_takes_how_long() {
        for pipeline in PIPELINES {
            for (stages, micro_batches) in [(1, 3), (2, 2), (2, 7), (4, 8), (4, 2), (5, 20), (8, 8), (3, 12)]
            {
                if !pipeline.divides(stages, micro_batches) {
                    continue;
                }
                for seed in 0..4 {
                    let entries = entries(pipeline, stages, micro_batches, seed);
                    let tasks = pipeline.tasks(stages, micro_batches);
                    let mut next = vec![0; stages];
                    loop {
                        let before = next.clone();
                        for rank in 0..stages {
                            match entries[rank].get(next[rank]) {
                                Some(StageEntry::Run(_)) => next[rank] += 1,
                                Some(StageEntry::Send { made_by, to }) => {
                                    let wanted = StageEntry::Receive { made_by: *made_by, from: rank };
                                    if entries[*to].get(next[*to]) == Some(&wanted) {
                                        (next[rank], next[*to]) = (next[rank] + 1, next[*to] + 1);
                                    }
                                }
                                Some(StageEntry::Receive { .. }) | None => {}
                            }
                        }
                        if next == before {
                            break;
                        }
                    }
                    let context = format!("{pipeline} p={stages} m={micro_batches}");
                    for rank in 0..stages {
                        assert_eq!(next[rank], entries[rank].len(), "{context}: stage {rank} waits for ever");
                        let own = |entry: &StageEntry| {
                            if let StageEntry::Run(task) = entry { Some(*task) } else { None }
                        };
                        assert_eq!(
                            entries[rank].iter().filter_map(own).collect::<Vec<_>>(),
                            tasks[rank],
                            "{context}"
                        );
                    }
                    let sent = entries
                        .iter()
                        .flatten()
                        .filter(|entry| matches!(entry, StageEntry::Send { .. }))
                        .count();
                    let parts = stages * pipeline.chunks();
                    let is_crossed =
                        |part: &usize| pipeline.stage(stages, part - 1) != pipeline.stage(stages, *part);
                    let edges = (1..parts).filter(is_crossed).count();
                    assert_eq!(sent, 2 * micro_batches * edges, "{context}");
                }
            }
        }
    }

    #[test]
    fn a_stage_has_what_it_reads() {
        for pipeline in PIPELINES {
            for (stages, micro_batches) in [(2, 6), (4, 8), (3, 12)] {
                let parts = stages * pipeline.chunks();
                for (rank, entries) in entries(pipeline, stages, micro_batches, 1).iter().enumerate() {
                    for (at, entry) in entries.iter().enumerate() {
                        match *entry {
                            StageEntry::Send { made_by, .. } => {
                                assert!(entries[..at].contains(&StageEntry::Run(made_by)));
                            }
                            StageEntry::Receive { .. } => {}
                            StageEntry::Run(task) => {
                                let part = pipeline.part(stages, rank, task);
                                let from = match task.pass {
                                    Pass::Forward if part > 0 => part - 1,
                                    Pass::Backward | Pass::InputGrad if part + 1 < parts => part + 1,
                                    _ => continue,
                                };
                                let made_by = Task { chunk: (from / stages) as u32, ..task };
                                let from = pipeline.stage(stages, from);
                                let wanted = match from == rank {
                                    true => StageEntry::Run(made_by),
                                    false => StageEntry::Receive { made_by, from },
                                };
                                assert!(
                                    entries[..at].contains(&wanted),
                                    "{pipeline}, stage {rank}: {task:?}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_pipeline_is_its_text() {
        for pipeline in PIPELINES {
            assert_eq!(pipeline.to_string().parse(), Ok(pipeline));
        }
        for text in ["", "interleaved", "interleaved=1", "zb"] {
            assert!(text.parse::<Pipeline>().is_err());
        }
    }

    #[test]
    fn interleaving_keeps_as_much_as_its_form_says() {
        for (stages, chunks) in [(2_usize, 2_usize), (8, 3), (35, 3), (16, 6)] {
            let peak =
                Pipeline::Interleaved { chunks }.peak_alive(stages, 8 * stages, 0) as f64 / chunks as f64;
            let (p, v) = (stages as f64, chunks as f64);
            assert!((peak - p * (1.0 + (p - 1.0) / (p * v))).abs() < 1e-9);
        }
    }
}
