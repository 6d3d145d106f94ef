//! Time of a training step by cause, and the resulting throughput.
//!
//! The terms sum to the step.

use ascend_tp::train::Zero;
use ascend_tp_machine::collective::Exchange;
use ascend_tp_machine::launch::{Access, Element, Launch, LaunchOperand};
use ascend_tp_machine::{OperatorCost, Work};

use super::forms::TrainingTime;
use super::job::Job;
use super::layer::{LayerTimes, ModelTimes, Terms, exchange_us, spread, times};
use super::memory::{JobMemory, fullest, kept_layers, layers_of_parts};
use super::pipeline::{StageTimes, shortest, step};
use super::setting::JobSplit;

/// Times of the stage that ends last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTerms {
    /// Forward and backward passes.
    pub work: Terms,
    /// Time of recomputation in microseconds.
    pub again_us: f64,
    /// Waits for other stages.
    pub bubble_us: f64,
    /// Exposed gradient and parameter exchanges.
    pub sync_us: f64,
    /// Optimizer pass over the card's states.
    pub optimizer_us: f64,
    /// Host time between steps.
    pub host_us: f64,
    /// Time of the simulated programs minus the sum of the other terms. 0 in an estimate.
    pub simulated_us: f64,
}

impl StepTerms {
    /// Returns names and times of an estimate in print order.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, f64); 11] {
        [
            ("products", self.work.products_us),
            ("attention", self.work.attention_us),
            ("passes", self.work.passes_us),
            ("tensor exchange", self.work.tensor_us),
            ("context exchange", self.work.context_us),
            (Terms::EXPERTS, self.work.experts_us),
            ("recompute", self.again_us),
            ("bubble", self.bubble_us),
            ("copies' exchange", self.sync_us),
            ("optimizer", self.optimizer_us),
            ("host", self.host_us),
        ]
    }

    /// Sums all terms of the step.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.named().into_iter().map(|(_, us)| us).sum::<f64>() + self.simulated_us
    }
}

/// Predicted time and memory of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Step time in microseconds.
    pub step_us: f64,
    /// Step time by cause.
    pub terms: StepTerms,
    /// Memory of the fullest card.
    pub memory: JobMemory,
    /// Tokens per second and card.
    pub tokens_per_s_and_card: f64,
    /// Fraction of the 16-bit peak that the model needs.
    pub mfu: f64,
    /// Fraction of the peak that the cards compute, including recomputation.
    pub hfu: f64,
}

impl Prediction {
    /// Returns the prediction with the simulated time of a step, in microseconds.
    #[must_use]
    pub fn with_step(&self, step_us: f64) -> Self {
        let (ratio, terms) = (self.step_us / step_us, self.terms);
        Self {
            step_us,
            terms: StepTerms { simulated_us: step_us - self.step_us + terms.simulated_us, ..terms },
            memory: self.memory,
            tokens_per_s_and_card: self.tokens_per_s_and_card * ratio,
            mfu: self.mfu * ratio,
            hfu: self.hfu * ratio,
        }
    }

    /// Returns the inputs of the published formula. Operations include recomputed layers.
    #[must_use]
    pub fn run(&self, job: &Job, setting: &JobSplit, tokens: f64) -> TrainingTime {
        let flops_per_parameter =
            if setting.recomputes_layers() { TrainingTime::RECOMPUTED } else { TrainingTime::KEPT };
        let parameters = job.decoder.parameters() as f64;
        TrainingTime {
            flops_per_parameter,
            tokens,
            parameters,
            cards: setting.cards() as f64,
            achieved_flops: flops_per_parameter * parameters * self.tokens_per_s_and_card,
        }
    }
}

/// Times of a setting's parts before simulation.
#[derive(Clone, Debug)]
pub struct StepParts {
    /// Times of the model's parts.
    pub model: ModelTimes,
    /// Layers of each part.
    pub layers: Vec<usize>,
    /// Times of each part.
    pub times: Vec<StageTimes>,
    /// Transfer time between stages, in microseconds.
    pub transfer_us: f64,
}

impl StepParts {
    /// Builds the parts from the times of the model.
    #[must_use]
    pub fn new(job: &Job, setting: &JobSplit, model: ModelTimes) -> Self {
        let layers = layers_of_parts(job, setting);
        let last = layers.len() - 1;
        let gathered = gathering(job, setting, &model);
        let times = layers.iter().enumerate().map(|(index, count)| {
            let mut sum = StageTimes::default();
            let mut add = |times: f64, part: &LayerTimes| {
                let StageTimes { forward, input_grad, weight_grad } = part.stage();
                sum.forward += times * forward;
                sum.input_grad += times * input_grad;
                sum.weight_grad += times * weight_grad;
            };
            add(*count as f64, &model.layer);
            if index == 0 {
                add(1.0, &model.embedding);
            }
            if index == last {
                add(1.0, &model.head);
            }
            sum.input_grad -= kept_layers(job, index, *count) as f64 * model.layer.again.total_us();
            sum.forward += *count as f64 * gathered.forward_us;
            sum.weight_grad += *count as f64 * gathered.backward_us;
            sum
        });
        let times = times.collect();
        let tokens = (job.sequence * setting.micro_batch) as f64 / setting.cp as f64;
        let stream =
            job.decoder.hidden as f64 / if setting.sequence_parallel { setting.tp as f64 } else { 1.0 };
        let stages = if setting.pp > 1 { 2 } else { 1 };
        let transfer_us =
            exchange_us(job, Exchange::SendRecv, 2.0 * tokens * stream, setting.stage_stride(), stages);
        Self { model, layers, times, transfer_us }
    }

    /// Returns a lower bound of the step.
    #[must_use]
    pub fn shortest_us(&self, job: &Job, setting: &JobSplit) -> f64 {
        let micro_batches = setting.micro_batches(job.global_batch);
        shortest(setting.schedule, setting.pp, micro_batches, &self.times, self.transfer_us)
            + job.coefficients.step_us
    }
}

/// Exposed time per layer and micro-batch to gather parameters and scatter gradients.
#[derive(Clone, Copy, Debug, Default)]
struct ExposedGathering {
    forward_us: f64,
    backward_us: f64,
}

fn gathering(job: &Job, setting: &JobSplit, model: &ModelTimes) -> ExposedGathering {
    if setting.zero < Zero::Gradients || copies(setting) < 2 {
        return ExposedGathering::default();
    }
    // These settings have no pipeline, so layers share the cost of embedding and head.
    let decoder = &job.decoder;
    let tables = decoder.parameters() - decoder.layers * decoder.layer_parameters();
    let parameters =
        decoder.layer_parameters_on(setting.tp) as f64 + tables as f64 / (decoder.layers * setting.tp) as f64;
    let routed = decoder.expert_parameters_on(setting.tp * setting.ep) as f64;
    let copies_us = |exchange, bytes: f64| {
        copies_us(job, setting, exchange, bytes * parameters)
            + experts_us(job, setting, exchange, bytes * routed)
    };
    let gather =
        if setting.zero == Zero::Weights { copies_us(Exchange::AllGather, job.state.parameter) } else { 0.0 };
    let scatter = copies_us(Exchange::ReduceScatter, job.state.gradient);
    let layer = model.layer.stage();
    let busy = if shares_links(job, setting) { model.layer.forward.tensor_us } else { 0.0 };
    let backward = layer.input_grad + layer.weight_grad;
    let exposed = |exchange: f64, window: f64| {
        (exchange - job.coefficients.overlap * (window - busy).max(0.0)).max(0.0)
    };
    ExposedGathering {
        forward_us: exposed(gather, layer.forward),
        backward_us: exposed(gather + scatter, backward),
    }
}

pub(super) const fn copies(setting: &JobSplit) -> usize {
    setting.dp * setting.cp
}

pub(super) fn copies_us(job: &Job, setting: &JobSplit, exchange: Exchange, bytes: f64) -> f64 {
    if setting.cp == 1 || setting.data_stride() == setting.tp * setting.cp {
        let stride = if setting.cp == 1 { setting.data_stride() } else { setting.tp };
        return exchange_us(job, exchange, bytes, stride, copies(setting));
    }
    // Sequence shards are close, copies distant: two levels.
    let (inner, outer) = (exchange_us(job, exchange, bytes, setting.tp, setting.cp), setting.data_stride());
    inner + exchange_us(job, exchange, bytes / setting.cp as f64, outer, setting.dp)
}

/// Returns the time of an exchange between the copies of routed experts.
fn experts_us(job: &Job, setting: &JobSplit, exchange: Exchange, bytes: f64) -> f64 {
    if setting.ep == 1 {
        return if bytes > 0.0 { copies_us(job, setting, exchange, bytes) } else { 0.0 };
    }
    let stride = setting.data_stride() * setting.ep;
    exchange_us(job, exchange, bytes, stride, setting.dp / setting.ep)
        + exchange_us(job, exchange, bytes, setting.tp, setting.cp)
}

fn shares_links(job: &Job, setting: &JobSplit) -> bool {
    let outermost = |stride, count: usize| {
        if count < 2 { None } else { spread(job, stride, count).levels().next_back() }
    };
    let tensor = outermost(1, setting.tp);
    tensor.is_some() && tensor == outermost(setting.data_stride(), setting.dp)
}

fn sync_us(job: &Job, setting: &JobSplit, parts: &StepParts, rank: usize) -> f64 {
    if copies(setting) < 2 || setting.zero == Zero::Weights {
        return 0.0;
    }
    let own = || parts.layers.iter().zip(&parts.times).skip(rank).step_by(setting.pp);
    let layers: usize = own().map(|(layers, _)| layers).sum();
    let tables = usize::from(rank == 0) + usize::from(rank + 1 == setting.pp && !job.decoder.tied_embeddings);
    let tables = (tables * job.decoder.embedding_parameters()) as f64 / setting.tp as f64;
    let parameters = (layers * job.decoder.layer_parameters_on(setting.tp)) as f64 + tables;
    let routed = (layers * job.decoder.expert_parameters_on(setting.tp * setting.ep)) as f64;
    let sum = |exchange, bytes: f64| {
        copies_us(job, setting, exchange, bytes * parameters)
            + experts_us(job, setting, exchange, bytes * routed)
    };
    let (gradients, gathered) = match setting.zero {
        Zero::None => (sum(Exchange::AllReduce, job.state.gradient), 0.0),
        // Gradients leave with each micro-batch.
        Zero::Gradients | Zero::Weights => (0.0, sum(Exchange::AllGather, job.state.parameter)),
        Zero::Moments => {
            (sum(Exchange::ReduceScatter, job.state.gradient), sum(Exchange::AllGather, job.state.parameter))
        }
    };
    // Each layer is a bucket. Gradients overlap with the last backward pass, parameters with the
    // first forward pass. One bucket of each stays exposed. Shared links are available only outside
    // tensor collectives.
    let busy =
        if shares_links(job, setting) { layers as f64 * parts.model.layer.forward.tensor_us } else { 0.0 };
    let forward: f64 = own().map(|(_, times)| times.forward).sum();
    let backward: f64 = own().map(|(_, times)| times.input_grad + times.weight_grad).sum();
    let exposed = |exchange: f64, window: f64| {
        let bucket = exchange / layers.max(1) as f64;
        bucket + (exchange - bucket - job.coefficients.overlap * (window - busy).max(0.0)).max(0.0)
    };
    exposed(gradients, backward) + exposed(gathered, forward)
}

fn optimizer_us(job: &Job, setting: &JobSplit, memory: &JobMemory) -> f64 {
    let count = |bytes: f64, each: f64| (bytes / each) as usize;
    let states = count(memory.optimizer, job.state.optimizer).max(1);
    let gradients = count(memory.gradients, job.state.gradient).max(1);
    let operands = [(Element::F32, Access::Read), (Element::Bf16, Access::Write)]
        .into_iter()
        .chain([(Element::F32, Access::Update); 3])
        .map(|(element, access)| LaunchOperand::dense(element, [states], access));
    let passes = [
        Launch { operator: "aclnnApplyAdamWV2", operands: operands.collect() },
        Launch {
            operator: "aclnnInplaceZero",
            operands: vec![LaunchOperand::dense(Element::F32, [gradients], Access::Write)],
        },
        Launch {
            operator: "aclnnReduceSum",
            operands: vec![LaunchOperand::dense(Element::F32, [gradients], Access::Read)],
        },
    ];
    let work: f64 =
        passes.iter().map(|pass| OperatorCost::of(&job.profile, &Work::of(pass)).duration_us).sum();
    // All cards sum the gradient norm before the update.
    work + exchange_us(job, Exchange::AllReduce, 4.0, 1, setting.cards())
}

/// Predicts time and memory of a setting.
#[must_use]
pub fn predict(job: &Job, setting: &JobSplit) -> Prediction {
    predict_parts(job, setting, &StepParts::new(job, setting, times(job, setting)), &fullest(job, setting))
}

/// Predicts from known parts and memory.
#[must_use]
pub fn predict_parts(job: &Job, setting: &JobSplit, parts: &StepParts, memory: &JobMemory) -> Prediction {
    let micro_batches = setting.micro_batches(job.global_batch);
    let timeline = step(setting.schedule, setting.pp, micro_batches, &parts.times, parts.transfer_us);
    let ends = (0..setting.pp).map(|rank| (rank, timeline.end[rank], sync_us(job, setting, parts, rank)));
    let (last, end, sync) =
        ends.max_by(|a, b| (a.1 + a.2).total_cmp(&(b.1 + b.2))).unwrap_or((0, timeline.duration, 0.0));

    let mut work = Terms::default();
    let (mut again_us, mut kept_us, mut gathered_us) = (0.0, 0.0, 0.0);
    let gathered = gathering(job, setting, &parts.model);
    let count = micro_batches as f64;
    let mut add = |times: f64, part: &LayerTimes| {
        work = work.plus(times, &part.forward).plus(times, &part.input_grad).plus(times, &part.weight_grad);
        again_us += times * part.again.total_us();
    };
    for (index, layers) in parts.layers.iter().enumerate().skip(last).step_by(setting.pp) {
        add(count * *layers as f64, &parts.model.layer);
        kept_us += count * kept_layers(job, index, *layers) as f64 * parts.model.layer.again.total_us();
        gathered_us += count * *layers as f64 * (gathered.forward_us + gathered.backward_us);
        if index == 0 {
            add(count, &parts.model.embedding);
        }
        if index + 1 == parts.layers.len() {
            add(count, &parts.model.head);
        }
    }
    let terms = StepTerms {
        work,
        again_us: again_us - kept_us,
        bubble_us: end - timeline.busy[last],
        sync_us: sync + gathered_us,
        optimizer_us: optimizer_us(job, setting, memory),
        host_us: job.coefficients.step_us,
        simulated_us: 0.0,
    };
    let step_us = terms.total_us();
    let tokens = (job.global_batch * job.sequence) as f64;
    let forward = tokens * job.decoder.forward_flops_per_token(job.sequence);
    let embedding = 2.0 * tokens * job.decoder.embedding_parameters() as f64;
    let again = if setting.recomputes_layers() { forward - embedding } else { 0.0 };
    let whole = step_us * setting.cards() as f64 * job.profile.soc.cube_flops_per_us();
    Prediction {
        step_us,
        terms,
        memory: *memory,
        tokens_per_s_and_card: tokens / (step_us * 1e-6) / setting.cards() as f64,
        mfu: 3.0 * forward / whole,
        hfu: (3.0 * forward + again) / whole,
    }
}

#[cfg(test)]
mod tests {
    use ascend_tp::schedule::pipeline::Pipeline;
    use ascend_tp::train::Recompute;
    use ascend_tp_machine::{Profile, Soc, Topology};

    use super::super::forms::StateBytes;
    use super::super::job::{GradientSums, Software};
    use super::super::setting::RankOrder;
    use super::*;
    use ascend_tp::config::ModelConfig;

    fn job(cards: usize) -> Job {
        let config = ModelConfig::preset("qwen2.5-72b").unwrap();
        let (profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::preset("atlas-a2").unwrap());
        Job::new(&config, 4096, 512, cards, profile, topology)
    }

    const SETTING: JobSplit = JobSplit {
        tp: 8,
        sequence_parallel: true,
        cp: 1,
        pp: 4,
        schedule: Pipeline::Interleaved { chunks: 5 },
        dp: 2,
        ep: 1,
        zero: Zero::Moments,
        recompute: Recompute::None,
        micro_batch: 1,
        order: RankOrder::DataInside,
    };

    fn settings() -> Vec<JobSplit> {
        let single = JobSplit { pp: 1, dp: 8, schedule: Pipeline::OneForwardOneBackward, ..SETTING };
        vec![
            SETTING,
            JobSplit { order: RankOrder::StagesInside, zero: Zero::None, ..SETTING },
            JobSplit { schedule: Pipeline::ZeroBubbleH1, recompute: Recompute::Full, ..SETTING },
            JobSplit { cp: 2, dp: 1, sequence_parallel: false, ..SETTING },
            JobSplit { cp: 2, pp: 2, schedule: Pipeline::GPipe, order: RankOrder::StagesInside, ..SETTING },
            JobSplit { zero: Zero::Gradients, recompute: Recompute::Selective, ..single },
            JobSplit { zero: Zero::Weights, micro_batch: 4, ..single },
            JobSplit { tp: 16, dp: 4, ..single },
        ]
    }

    #[test]
    fn a_slower_link_is_never_faster() {
        for level in 0..2 {
            let fast = job(64);
            let mut slow = job(64);
            slow.topology.levels[level].bytes_per_us /= 3.0;
            slow.topology.levels[level].latency_us *= 3.0;
            for setting in settings() {
                let (fast_us, slow_us) = (predict(&fast, &setting).step_us, predict(&slow, &setting).step_us);
                assert!(slow_us >= fast_us - 1e-6, "{setting}: level {level} makes {fast_us} to {slow_us}");
            }
        }
    }

    #[test]
    fn no_step_is_shorter_than_its_bound_and_the_terms_are_the_step() {
        let job = job(64);
        for setting in settings() {
            assert_eq!(setting.cards(), 64);
            let parts = StepParts::new(&job, &setting, times(&job, &setting));
            let prediction = predict(&job, &setting);
            assert!(prediction.step_us >= parts.shortest_us(&job, &setting) - 1e-6, "{setting}");
            assert!(
                prediction.terms.named().into_iter().all(|(_, us)| us >= -1e-6),
                "{setting}: {prediction:?}"
            );
            let days = prediction.run(&job, &setting, 1e12).days();
            assert!(
                (days / (1e12 / (prediction.tokens_per_s_and_card * 64.0) / 86_400.0) - 1.0).abs() < 1e-12
            );
            let tokens = prediction.tokens_per_s_and_card * prediction.step_us * 1e-6;
            assert!((tokens - 4096.0 * 512.0 / 64.0).abs() < 1e-3, "{setting}");
            assert!(prediction.mfu > 0.1 && prediction.mfu < 0.6, "{setting}: {}", prediction.mfu);
            assert_eq!(prediction.hfu > prediction.mfu, setting.recompute == Recompute::Full);
        }
    }

    #[test]
    fn gradients_are_added_up_by_a_pass_unless_the_product_does() {
        let weights_us = |gradient_sums, state| {
            let software = Software { gradient_sums, ..Software::FUSED };
            let model = times(&Job { software, state, ..job(64) }, &SETTING);
            [model.layer, model.embedding, model.head].map(|part| part.weight_grad.passes_us)
        };
        let fused = weights_us(GradientSums::Fused, StateBytes::MEGATRON);
        assert_eq!(fused, weights_us(GradientSums::Absent, StateBytes::MEGATRON));
        let (narrow, wide) = (
            weights_us(GradientSums::Separate, StateBytes::ZERO_PAPER),
            weights_us(GradientSums::Separate, StateBytes::MEGATRON),
        );
        for part in 0..3 {
            let ratio = (wide[part] - fused[part]) / (narrow[part] - fused[part]);
            assert!(ratio > 1.5 && ratio < 1.7, "{part}: {fused:?} {narrow:?} {wide:?}");
        }
    }

    #[test]
    fn what_comes_round_a_ring_is_added_to_what_there_is() {
        let context_us = |cp: usize| {
            // With such fast links, attention on long sequences hides the ring.
            let mut job = Job { sequence: 65_536, ..job(64) };
            job.topology.levels.iter_mut().for_each(|level| level.bytes_per_us *= 1e6);
            let setting =
                JobSplit { cp, dp: 8 / cp, pp: 1, schedule: Pipeline::OneForwardOneBackward, ..SETTING };
            let layer = times(&job, &setting).layer;
            (layer.forward.context_us, layer.input_grad.context_us)
        };
        assert_eq!(context_us(1), (0.0, 0.0));
        let (two, four) = (context_us(2), context_us(4));
        assert!(two.0 > 0.0 && two.1 > two.0, "{two:?}");
        assert!(four.0 > 1.3 * two.0 && four.0 < 1.7 * two.0, "{two:?} {four:?}");
    }

    #[test]
    fn a_card_alone_exchanges_nothing() {
        let mut job = job(1);
        job.decoder.layers = 2;
        let setting = JobSplit {
            tp: 1,
            sequence_parallel: false,
            pp: 1,
            dp: 1,
            schedule: Pipeline::OneForwardOneBackward,
            zero: Zero::None,
            ..SETTING
        };
        let StepTerms { work, again_us, bubble_us, sync_us, .. } = predict(&job, &setting).terms;
        let idle = work.tensor_us + work.context_us + again_us + sync_us + bubble_us.max(0.0);
        assert!(idle < 1e-3, "{idle}");
    }

    #[test]
    fn parameters_cross_the_copies_as_often_as_the_stage_says() {
        // Slow links make the exchanges dominate.
        let mut job = job(64);
        job.coefficients.overlap = 0.0;
        let copies = |zero, micro_batch| {
            let setting = JobSplit {
                pp: 1,
                dp: 8,
                schedule: Pipeline::OneForwardOneBackward,
                zero,
                micro_batch,
                ..SETTING
            };
            predict(&job, &setting).terms.sync_us
        };
        let parameters = job.decoder.parameters() as f64 / 8.0;
        let over = |exchange, bytes: f64| exchange_us(&job, exchange, bytes * parameters, 8, 8);
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-3;
        assert!(near(copies(Zero::None, 1), over(Exchange::AllReduce, 4.0)));
        let stage_1 = over(Exchange::ReduceScatter, 4.0) + over(Exchange::AllGather, 2.0);
        assert!(near(copies(Zero::Moments, 1), stage_1));
        assert!(copies(Zero::Gradients, 1) > 30.0 * copies(Zero::Moments, 1));
        let per_batch = over(Exchange::ReduceScatter, 4.0) + 2.0 * over(Exchange::AllGather, 2.0);
        let ratio = copies(Zero::Weights, 1) / (64.0 * per_batch);
        assert!((0.99..1.05).contains(&ratio), "{ratio}");
    }
}
