//! Card memory of training, by kind and stage.
//!
//! - Invariant: more cards on any axis never need more bytes per card, apart from communicator
//!   buffers.
//! - Not here: fragmentation of the allocator.

use ascend_tp::train::{Recompute, Zero};

use super::job::{Attention, Job};
use super::setting::JobSplit;
use crate::decoder::{Decoder, FeedForward, RoutedExperts};
use crate::fit_memory::COMMUNICATOR_BYTES;

/// Context, operator code and workspaces of the toolkit: a 910B process after its first operators
/// and communicators, minus its tensors (`npu-smi` in vllm-ascend issue 1987: about 1 GiB).
const RUNTIME_BYTES: f64 = 1_073_741_824.0;

/// Bytes of one card by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobMemory {
    /// Bytes of the 16-bit parameters.
    pub parameters: f64,
    /// Gradients of the card's parameters.
    pub gradients: f64,
    /// State of the optimizer.
    pub optimizer: f64,
    /// Activations for backward passes of all micro-batches in flight.
    pub activations: f64,
    /// Temporary memory of a layer (gathered inputs, activation gradients, a recomputed or gathered
    /// layer) or of the head (logits and their gradients), whichever is larger.
    pub working: f64,
    /// Buffers of all communicators.
    pub communicators: f64,
    /// Memory of the toolkit itself.
    pub runtime: f64,
}

impl JobMemory {
    /// Returns each kind with its bytes.
    #[must_use]
    pub const fn kinds(&self) -> [(&'static str, f64); 7] {
        [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer", self.optimizer),
            ("activations", self.activations),
            ("working", self.working),
            ("communicators", self.communicators),
            ("runtime", self.runtime),
        ]
    }

    /// Sums the bytes of all kinds.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.kinds().into_iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Returns the layers of each part, as even as possible. Remaining layers go to the middle: the
/// first stage keeps the most activations and the last has the head.
#[must_use]
pub fn layers_of_parts(job: &Job, setting: &JobSplit) -> Vec<usize> {
    let parts = setting.pp * setting.schedule.chunks();
    if let Some(layers) = &job.stage_layers
        && layers.len() == parts
    {
        return layers.clone();
    }
    let (each, over) = (job.decoder.layers / parts, job.decoder.layers % parts);
    let mut layers = vec![each; parts];
    let first = (parts - over) / 2;
    for part in &mut layers[first..first + over] {
        *part += 1;
    }
    layers
}

/// Bytes per token that one layer keeps for the backward pass on each card. Elements have two
/// bytes.
///
/// | tensor | elements | sharded over tp |
/// |---|---|---|
/// | inputs of the two norms | 2 h | with sequence parallelism |
/// | outputs of the two norms | 2 h | with sequence parallelism |
/// | queries, keys, values | q + 2 kv | yes |
/// | output of the attention | q | yes |
/// | maximum score and sum of exponentials (8 f32 each per head and token: `aclnnFlashAttentionScore`) | 32 heads | yes |
/// | stored scores: softmax and its input, 2 f16 per token pair, masked or not | 2 heads × s | yes |
/// | gate, up and their product (plain: two) | 3 f | yes |
/// | of a mixture: inputs of all cards that share its experts | ep h | no |
/// | f32 input of the router, its logits and its probabilities | 2 h + 4 experts | no |
///
/// The backward pass computes the rows of experts again.
fn activation_bytes_per_token(job: &Job, setting: &JobSplit) -> f64 {
    let Decoder { hidden, heads, intermediate, feed_forward, .. } = job.decoder;
    let tp = setting.tp as f64;
    let stream = hidden as f64 / if setting.sequence_parallel { tp } else { 1.0 };
    // Each card beyond the key heads has a copy of one.
    let key_heads = job.decoder.kv_heads.div_ceil(setting.tp) * setting.tp;
    let (query, kv) = (job.decoder.query_width() as f64, (key_heads * job.decoder.head_dim) as f64);
    let statistics = match job.software.attention {
        Attention::Fused => 32.0 * heads as f64,
        Attention::Stored => 2.0 * (heads * job.sequence) as f64,
    };
    let attention = (query + 2.0 * kv + query + statistics) / tp;
    let wide = |count: f64, of_router: f64| {
        let of = |width: usize| count * width as f64 / tp;
        let gathered = (setting.ep * hidden) as f64;
        let router = |of: &RoutedExperts| of_router * (2 * hidden + 4 * of.count) as f64;
        job.decoder.mean(of(intermediate), |experts| of(experts.shared) + gathered + router(experts))
    };
    let kept = match feed_forward {
        FeedForward::Gated => 3.0,
        FeedForward::Plain => 2.0,
    };
    2.0 * match setting.recompute {
        Recompute::None => 4.0 * stream + attention + wide(kept, 1.0),
        Recompute::Selective => 2.0 * stream + attention + wide(kept - 1.0, 0.0),
        Recompute::Full | Recompute::Layers(_) => stream,
    }
}

/// Returns the memory of one card of each stage.
#[must_use]
pub fn stages(job: &Job, setting: &JobSplit) -> Vec<JobMemory> {
    let decoder = &job.decoder;
    let layers = layers_of_parts(job, setting);
    let (tp, copies) = (setting.tp as f64, (setting.dp * setting.cp) as f64);
    let tokens = (job.sequence * setting.micro_batch) as f64 / setting.cp as f64;
    let micro_batches = setting.micro_batches(job.global_batch);
    let a_layer = tokens * activation_bytes_per_token(job, setting);
    let whole_layer =
        tokens * activation_bytes_per_token(job, &JobSplit { recompute: Recompute::None, ..*setting });
    let (hidden, weights) = (decoder.hidden as f64, decoder.feed_forward.weights() as f64);
    let block = |width: usize| 2.0 * hidden + weights * width as f64 / tp;
    // Experts have rows for all copies of tokens, also for those of experts on other cards.
    let rows =
        |of: &RoutedExperts| (setting.ep * of.chosen) as f64 * (hidden + weights * of.intermediate as f64);
    let of_mixture = decoder.experts.map_or(0.0, |of| block(of.shared) + rows(&of));
    let has_dense = decoder.experts.is_none_or(|of| of.layers < decoder.layers);
    let of_dense = if has_dense { block(decoder.intermediate) } else { 0.0 };
    let mut working = 2.0 * tokens * of_dense.max(of_mixture);
    if setting.recomputes_layers() {
        working += whole_layer;
    }
    if setting.zero == Zero::Weights {
        let routed = decoder.expert_parameters_on(setting.tp * setting.ep);
        let layer = (decoder.layer_parameters_on(setting.tp) + routed) as f64;
        working += 2.0 * (job.state.parameter + job.state.gradient) * layer;
    }
    let communicators = COMMUNICATOR_BYTES.0 as f64 * communicators(setting) as f64;
    // Cards that share experts have no copies of each other's experts.
    let split = |[common, routed]: [f64; 2], each: f64, from: Zero| {
        let of_experts = copies / setting.ep as f64;
        let [common, routed] = [common, routed].map(|parameters| parameters * each);
        if setting.zero >= from { common / copies + routed / of_experts } else { common + routed }
    };
    (0..setting.pp)
        .map(|rank| {
            let own = || layers.iter().skip(rank).step_by(setting.pp);
            let largest = own().copied().max().unwrap_or(0) as f64;
            let parts = layers.iter().enumerate().skip(rank).step_by(setting.pp);
            let kept = parts.map(|(part, layers)| kept_layers(job, part, *layers)).max().unwrap_or(0) as f64;
            let is_last = rank + 1 == setting.pp;
            let tables = match (rank == 0, is_last) {
                (true, true) if decoder.tied_embeddings => 1,
                (true, true) => 2,
                (true, false) | (false, true) => 1,
                (false, false) => 0,
            };
            let layers = own().sum::<usize>();
            let common = (layers * decoder.layer_parameters_on(setting.tp)) as f64
                + (tables * decoder.embedding_parameters()) as f64 / tp;
            let routed = (layers * decoder.expert_parameters_on(setting.tp * setting.ep)) as f64;
            let parameters = [common, routed];
            let alive = setting.schedule.peak_alive(setting.pp, micro_batches, rank) as f64;
            let logits = if is_last { 10.0 * tokens * decoder.vocabulary as f64 / tp } else { 0.0 };
            JobMemory {
                parameters: split(parameters, job.state.parameter, Zero::Weights),
                gradients: split(parameters, job.state.gradient, Zero::Gradients),
                optimizer: split(parameters, job.state.optimizer, Zero::Moments),
                activations: alive * (largest * a_layer + kept * (whole_layer - a_layer)),
                working: working.max(logits),
                communicators,
                runtime: RUNTIME_BYTES,
            }
        })
        .collect()
}

pub(super) fn kept_layers(job: &Job, part: usize, layers: usize) -> usize {
    let again = job.recomputed.as_ref().and_then(|layers| layers.get(part)).copied().unwrap_or(layers);
    layers.saturating_sub(again)
}

/// Returns the memory of the fullest stage.
#[must_use]
pub fn fullest(job: &Job, setting: &JobSplit) -> JobMemory {
    let largest = stages(job, setting).into_iter().max_by(|a, b| a.total().total_cmp(&b.total()));
    largest.unwrap_or_default()
}

/// One per axis with several cards, one for all copies and sequence shards if both exist, and one
/// for all cards.
fn communicators(setting: &JobSplit) -> usize {
    let axes = [setting.tp, setting.cp, setting.pp, setting.dp, setting.ep];
    let several = axes.into_iter().filter(|cards| *cards > 1).count();
    let both = usize::from(setting.cp > 1 && setting.dp > 1);
    several + both + usize::from(several > 1)
}

#[cfg(test)]
mod tests {
    use ascend_tp::config::ModelConfig;
    use ascend_tp::schedule::pipeline::Pipeline;
    use ascend_tp_machine::{Profile, Soc, Topology};

    use super::super::coefficients::TrainCoefficients;
    use super::super::forms::StateBytes;
    use super::super::job::{Elementwise, GradientSums, Software, TensorExchange};
    use super::super::setting::{RECOMPUTES, RankOrder};
    use super::*;

    fn job() -> Job {
        Job {
            decoder: Decoder {
                layers: 96,
                hidden: 12_288,
                heads: 96,
                kv_heads: 96,
                head_dim: 128,
                intermediate: 49_152,
                feed_forward: FeedForward::Plain,
                norms: 2,
                has_head_norms: false,
                vocabulary: 51_200,
                tied_embeddings: true,
                window: None,
                experts: None,
            },
            sequence: 2048,
            global_batch: 64,
            cards: 64,
            profile: Profile::of(Soc::Ascend910B2),
            coefficients: TrainCoefficients::FITTED,
            topology: Topology::atlas_a2(8),
            software: Software {
                attention: Attention::Stored,
                elementwise: Elementwise::Separate,
                activation: Elementwise::Separate,
                tensor_exchange: TensorExchange::Exposed,
                gradient_sums: GradientSums::Separate,
            },
            state: StateBytes::MEGATRON,
            stage_layers: None,
            recomputed: None,
        }
    }

    const SETTING: JobSplit = JobSplit {
        tp: 8,
        sequence_parallel: true,
        cp: 1,
        pp: 8,
        schedule: Pipeline::Interleaved { chunks: 3 },
        dp: 1,
        ep: 1,
        zero: Zero::None,
        recompute: Recompute::None,
        micro_batch: 1,
        order: RankOrder::DataInside,
    };

    #[test]
    fn the_first_stage_keeps_what_its_schedule_has_in_flight() {
        let job = job();
        let stages = stages(&job, &SETTING);
        let a_layer = 2048.0 * activation_bytes_per_token(&job, &SETTING);
        // 3 chunks on each of 8 stages (KOR section 4.2.3).
        let expected = a_layer * 96.0 * (1.0 + 7.0 / 24.0);
        assert!((stages[0].activations / expected - 1.0).abs() < 1e-12);
        assert!(stages.windows(2).all(|pair| pair[0].activations > pair[1].activations));
        let state: f64 =
            stages.iter().map(|stage| stage.parameters + stage.gradients + stage.optimizer).sum();
        // The last stage copies the tied embedding for its head.
        let parameters = (job.decoder.parameters() + job.decoder.embedding_parameters()) as f64 / 8.0;
        assert!((state / (18.0 * parameters) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_card_holds_the_experts_of_its_shard() {
        let config = ModelConfig::preset("qwen3-30b-a3b").unwrap();
        let (profile, topology) = (Profile::of(Soc::Ascend910B2), Topology::atlas_a2(8));
        let job = Job::new(&config, 4096, 64, 64, profile, topology);
        let split = JobSplit {
            tp: 4,
            pp: 1,
            dp: 16,
            schedule: Pipeline::OneForwardOneBackward,
            recompute: Recompute::Full,
            ..SETTING
        };
        let memory = |ep, zero| fullest(&job, &JobSplit { ep, zero, ..split });
        // 128 experts of three matrices 768 · 2048 in 48 layers, of 2, 4 and 12 bytes.
        let experts = 48.0 * 128.0 * 3.0 * 768.0 * 2048.0;
        let of = |memory: JobMemory| [memory.parameters, memory.gradients, memory.optimizer];
        let [few, many] = [8, 16].map(|ep| of(memory(ep, Zero::None)));
        let state = [job.state.parameter, job.state.gradient, job.state.optimizer];
        for (kind, each) in state.into_iter().enumerate() {
            let fewer = experts * each * (0.25 / 8.0 - 0.25 / 16.0);
            assert!((few[kind] - many[kind] - fewer).abs() < 1.0, "{kind}: {few:?} {many:?}");
        }
        // ZeRO shards the state of an expert over its copies, so both axes hold as much.
        let [few, many] = [8, 16].map(|ep| memory(ep, Zero::Moments).optimizer);
        assert!((few / many - 1.0).abs() < 1e-9, "{few} {many}");
        let all = job.decoder.parameters() as f64 / 1e9;
        assert!((all / (config.parameters().total as f64 / 1e9) - 1.0).abs() < 1e-3, "{all}");
    }

    #[test]
    fn what_is_left_over_goes_to_the_stages_in_the_middle() {
        let mut job = job();
        let layers = |job: &Job, pp| {
            layers_of_parts(job, &JobSplit { pp, schedule: Pipeline::OneForwardOneBackward, ..SETTING })
        };
        job.decoder.layers = 10;
        assert_eq!(layers(&job, 4), [2, 3, 3, 2]);
        assert_eq!(layers(&job, 5), [2; 5]);
        assert_eq!(layers(&job, 8), [1, 1, 1, 2, 2, 1, 1, 1]);
        job.stage_layers = Some(vec![4, 1, 3, 2]);
        assert_eq!(layers(&job, 4), [4, 1, 3, 2]);
    }

    #[test]
    fn more_cards_never_need_more_bytes_a_card() {
        let job = Job { global_batch: 768, ..job() };
        let bytes = |setting: &JobSplit| {
            let memory = fullest(&job, setting);
            memory.total() - memory.communicators
        };
        let schedules =
            [Pipeline::OneForwardOneBackward, Pipeline::ZeroBubbleH1, Pipeline::Interleaved { chunks: 2 }];
        for schedule in schedules {
            for recompute in RECOMPUTES {
                for zero in Zero::ALL {
                    let base = JobSplit { tp: 2, pp: 2, dp: 2, schedule, recompute, zero, ..SETTING };
                    let more = [
                        JobSplit { tp: 4, ..base },
                        JobSplit { cp: 2, ..base },
                        JobSplit { pp: 4, ..base },
                        JobSplit { dp: 4, ..base },
                    ];
                    for setting in more {
                        assert!(bytes(&setting) <= bytes(&base) * (1.0 + 1e-12), "{base} to {setting}");
                    }
                }
            }
        }
    }
}
