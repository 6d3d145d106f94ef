//! Simulates a step of a pipeline.
//!
//! - Invariants: a stage runs one pass at a time, in schedule order, as soon as its inputs arrive.
//!   For equal stages, idle times equal the published forms.

use ascend_tp::schedule::pipeline::{Pass, Pipeline};

/// Times of a model part for one micro-batch, in any unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTimes {
    /// Forward, with exposed collectives.
    pub forward: f64,
    /// Input gradients, including recomputation.
    pub input_grad: f64,
    /// Gradients of the weights.
    pub weight_grad: f64,
}

impl StageTimes {
    /// Sums the three passes.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.forward + self.input_grad + self.weight_grad
    }
}

/// Times in the unit of [`StageTimes`].
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineTimes {
    /// End of the last stage.
    pub duration: f64,
    /// End of each stage.
    pub end: Vec<f64>,
    /// Working time of each stage.
    pub busy: Vec<f64>,
}

/// Simulates `micro_batches` over `stages`. `times` has one entry per model part in order (stages
/// times chunks); `transfer` is the time between stages.
///
/// # Panics
/// The schedule does not divide the micro-batches, or `times` has another length.
#[must_use]
pub fn simulate(
    schedule: Pipeline,
    stages: usize,
    micro_batches: usize,
    times: &[StageTimes],
    transfer: f64,
) -> PipelineTimes {
    let parts = stages * schedule.chunks();
    assert_eq!(times.len(), parts, "one time for each part of the model");
    let transfer = if stages > 1 { transfer } else { 0.0 };
    let takes = |part: usize, pass| match pass {
        Pass::Forward => times[part].forward,
        Pass::Backward => times[part].input_grad + times[part].weight_grad,
        Pass::InputGrad => times[part].input_grad,
        Pass::WeightGrad => times[part].weight_grad,
    };
    let walked = schedule.walk(stages, micro_batches, takes, transfer);
    let end: Vec<f64> = walked.iter().map(|own| own.last().map_or(0.0, |last| last.end)).collect();
    let works = |rank: usize| {
        walked[rank]
            .iter()
            .map(move |walked| takes(schedule.part(stages, rank, walked.task), walked.task.pass))
    };
    let busy = (0..stages).map(|rank| works(rank).sum()).collect();
    PipelineTimes { duration: end.iter().copied().fold(0.0, f64::max), end, busy }
}

/// Micro-batches per stage above which `step` extrapolates.
const STEADY: usize = 16;
const ROUNDS: usize = 4;

/// Computes a step with any number of micro-batches. Above `STEADY` micro-batches per stage, a full
/// pipeline with equal inner parts is extrapolated from two shorter ones, but never below the work
/// of the busiest stage. The error is less than a thousandth.
///
/// # Panics
/// As [`simulate`].
#[must_use]
pub fn step(
    schedule: Pipeline,
    stages: usize,
    micro_batches: usize,
    times: &[StageTimes],
    transfer: f64,
) -> PipelineTimes {
    if stages == 1 {
        let busy = micro_batches as f64 * times.iter().map(StageTimes::total).sum::<f64>();
        return PipelineTimes { duration: busy, end: vec![busy], busy: vec![busy] };
    }
    // Equal remainders give equal last rounds.
    let whole = STEADY * stages + micro_batches % stages;
    let are_alike =
        times.get(1..times.len() - 1).is_none_or(|inner| inner.windows(2).all(|pair| pair[0] == pair[1]));
    if micro_batches <= whole + stages || schedule.chunks() > 1 || !are_alike {
        return simulate(schedule, stages, micro_batches, times, transfer);
    }
    let before = simulate(schedule, stages, whole - ROUNDS * stages, times, transfer);
    let last = simulate(schedule, stages, whole, times, transfer);
    // A pattern may span several rounds, so the growth is per `ROUNDS`.
    let rounds = ((micro_batches - whole) / stages) as f64 / ROUNDS as f64;
    let more = |before: &[f64], last: &[f64]| -> Vec<f64> {
        before.iter().zip(last).map(|(before, last)| last + rounds * (last - before)).collect()
    };
    let (mut end, busy) = (more(&before.end, &last.end), more(&before.busy, &last.busy));
    let reached = end.iter().copied().fold(0.0, f64::max);
    let missing = (shortest(schedule, stages, micro_batches, times, transfer) - reached).max(0.0);
    end.iter_mut().for_each(|end| *end += missing);
    PipelineTimes { duration: reached + missing, end, busy }
}

/// Returns a lower bound: the work of the busiest stage, and the path of the first micro-batch
/// there and back.
#[must_use]
pub fn shortest(
    schedule: Pipeline,
    stages: usize,
    micro_batches: usize,
    times: &[StageTimes],
    transfer: f64,
) -> f64 {
    let transfer = if stages > 1 { transfer } else { 0.0 };
    let work = |rank: usize| -> f64 {
        let own = times.iter().enumerate().filter(|(part, _)| schedule.stage(stages, *part) == rank);
        own.map(|(_, times)| times.total()).sum()
    };
    // Earlier stages run forward before a stage's first pass, and backward after its last input
    // gradients; delayed weight gradients fill that time.
    let way = |rank: usize| -> f64 {
        let (before, hops) = (&times[..rank], rank as f64 * transfer);
        let there: f64 = before.iter().map(|part| part.forward).sum();
        let back: f64 = before.iter().map(|part| part.input_grad).sum();
        let weights: f64 = before.iter().map(|part| part.weight_grad).sum();
        let back = match schedule {
            Pipeline::ZeroBubbleH1 => {
                (back + hops - (rank + 1).min(micro_batches) as f64 * times[rank].weight_grad).max(0.0)
            }
            // Remaining weight gradients may take as long.
            Pipeline::ZeroBubbleV => 0.0,
            _ => back + weights + hops,
        };
        there + hops + back
    };
    (0..stages).map(|rank| micro_batches as f64 * work(rank) + way(rank)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn equal(schedule: Pipeline, stages: usize, whole: StageTimes) -> Vec<StageTimes> {
        let part = 1.0 / schedule.chunks() as f64;
        let StageTimes { forward, input_grad, weight_grad } = whole;
        let stage = StageTimes {
            forward: forward * part,
            input_grad: input_grad * part,
            weight_grad: weight_grad * part,
        };
        vec![stage; stages * schedule.chunks()]
    }

    #[test]
    fn equal_stages_idle_as_long_as_the_forms_say() {
        let whole = StageTimes { forward: 12.0, input_grad: 11.0, weight_grad: 9.0 };
        for stages in [1_usize, 2, 3, 4, 7, 8] {
            for rounds in 1..4 {
                let micro_batches = stages * rounds;
                let (p, m) = (stages as f64, micro_batches as f64);
                let full = (p - 1.0) * whole.total();
                let mut forms = vec![(Pipeline::GPipe, full), (Pipeline::OneForwardOneBackward, full)];
                for chunks in 2..6 {
                    if stages > 1 {
                        forms.push((Pipeline::Interleaved { chunks }, full / chunks as f64));
                    }
                }
                // With fewer micro-batches, weight gradients cannot fill all idle time.
                if rounds > 1 {
                    let own = whole.forward + whole.input_grad - whole.weight_grad;
                    forms.push((Pipeline::ZeroBubbleH1, (p - 1.0) * own));
                }
                for (schedule, bubble) in forms {
                    let times = equal(schedule, stages, whole);
                    let timeline = simulate(schedule, stages, micro_batches, &times, 0.0);
                    let work = m * whole.total();
                    let context = format!("{schedule} p={stages} m={micro_batches}");
                    assert!(
                        (timeline.duration - work - bubble).abs() < 1e-9 * work,
                        "{context}: {timeline:?}"
                    );
                    assert!(timeline.busy.iter().all(|busy| (busy - work).abs() < 1e-9 * work), "{context}");
                    let long = micro_batches * 40;
                    let told = step(schedule, stages, long, &times, 0.0).duration;
                    let work = long as f64 * whole.total();
                    assert!((told - work - bubble).abs() < 1e-9 * work || rounds == 1, "{context}: {told}");
                }
            }
        }
    }

    /// Transfers add the path through the pipeline and back. In 1F1B, they add it again for each
    /// exchange of all micro-batches in flight.
    #[test]
    fn transfers_take_as_long_as_the_forms_say() {
        let whole = StageTimes { forward: 12.0, input_grad: 11.0, weight_grad: 9.0 };
        let transfer = 0.25;
        for stages in [2_usize, 3, 4, 7, 8] {
            for rounds in [2_usize, 3, 5] {
                let (p, m) = (stages as f64, rounds as f64);
                let mut forms = vec![
                    (Pipeline::GPipe, 2.0 * (p - 1.0)),
                    (Pipeline::OneForwardOneBackward, 2.0 * (p - 1.0) * m + 2.0 * (p - 2.0)),
                    (Pipeline::ZeroBubbleH1, 4.0 * (p - 1.0)),
                ];
                forms.extend(
                    [2, 3].map(|chunks| (Pipeline::Interleaved { chunks }, 2.0 * (p * chunks as f64 - 1.0))),
                );
                for (schedule, transfers) in forms {
                    let times = equal(schedule, stages, whole);
                    let step =
                        |transfer| simulate(schedule, stages, stages * rounds, &times, transfer).duration;
                    let added = step(transfer) - step(0.0);
                    assert!(
                        (added - transfers * transfer).abs() < 1e-6,
                        "{schedule} p={p} m={rounds} p: {added}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_slowest_stage_sets_the_pace() {
        let mut times = equal(
            Pipeline::OneForwardOneBackward,
            4,
            StageTimes { forward: 1.0, input_grad: 1.0, weight_grad: 1.0 },
        );
        times[3] = StageTimes { forward: 1.5, input_grad: 1.5, weight_grad: 1.5 };
        let step =
            |micro_batches| simulate(Pipeline::OneForwardOneBackward, 4, micro_batches, &times, 0.0).duration;
        assert!((step(65) - step(64) - 4.5).abs() < 1e-9);
        assert!((step(64) - (64.0 * 4.5 + 3.0 * 3.0)).abs() < 1e-9);
    }

    fn schedules() -> impl Strategy<Value = Pipeline> {
        prop_oneof![
            Just(Pipeline::GPipe),
            Just(Pipeline::OneForwardOneBackward),
            (2_usize..4).prop_map(|chunks| Pipeline::Interleaved { chunks }),
            Just(Pipeline::ZeroBubbleH1),
            Just(Pipeline::ZeroBubbleV),
        ]
    }

    proptest! {
        #[test]
        fn a_long_step_is_told_from_shorter_ones(
            schedule in schedules(),
            stages in 2_usize..6,
            rounds in STEADY..3 * STEADY,
            over in 0_usize..6,
            transfer in 0.0..0.2_f64,
            layers in (0.5..1.5_f64, 0.5..1.5_f64, 0.5..1.5_f64),
            embedding in 0.0..0.3_f64,
            head in 0.0..1.5_f64,
        ) {
            let over = if schedule.chunks() > 1 { 0 } else { over % stages };
            let micro_batches = stages * rounds + over;
            let (forward, input_grad, weight_grad) = layers;
            let mut times = vec![StageTimes { forward, input_grad, weight_grad }; stages * schedule.chunks()];
            times[0].forward += embedding;
            let last = times.len() - 1;
            times[last].forward += head;
            times[last].weight_grad += head;
            let simulated = simulate(schedule, stages, micro_batches, &times, transfer);
            let told = step(schedule, stages, micro_batches, &times, transfer);
            let off = told.duration / simulated.duration - 1.0;
            prop_assert!(off.abs() < 1e-3, "{schedule} p={stages} m={micro_batches}: {off}");
        }

        #[test]
        fn no_step_is_shorter_than_its_bound_and_slower_is_never_faster(
            schedule in schedules(),
            stages in 2_usize..6,
            rounds in 1_usize..4,
            transfer in 0.0..2.0_f64,
            times in proptest::collection::vec((0.1..3.0_f64, 0.1..3.0_f64, 0.1..3.0_f64), 24),
            slowed in 0_usize..24,
        ) {
            let micro_batches = stages * rounds;
            let parts = stages * schedule.chunks();
            let mut times: Vec<StageTimes> = times[..parts]
                .iter()
                .map(|&(forward, input_grad, weight_grad)| StageTimes { forward, input_grad, weight_grad })
                .collect();
            let step = simulate(schedule, stages, micro_batches, &times, transfer).duration;
            let bound = shortest(schedule, stages, micro_batches, &times, transfer);
            prop_assert!(step >= bound - 1e-9, "{step} is below {bound}");
            prop_assert!(simulate(schedule, stages, micro_batches, &times, transfer + 0.5).duration >= step - 1e-9);
            times[slowed % parts].forward += 1.0;
            prop_assert!(simulate(schedule, stages, micro_batches, &times, transfer).duration >= step - 1e-9);
        }
    }
}
