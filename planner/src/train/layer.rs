//! Time of a layer, the embedding and the head for one micro-batch on one card.
//!
//! Only exposed collective time counts.

use ascend_tp::train::Recompute;
use ascend_tp_machine::collective::{CollectiveCost, Exchange};
use ascend_tp_machine::launch::{Access, Element, Launch, LaunchOperand};
use ascend_tp_machine::topology::{Fabric, Spread};
use ascend_tp_machine::{OperatorCost, Work};

use super::job::{Attention, Elementwise, GradientSums, Job, TensorExchange};
use super::pipeline::StageTimes;
use super::setting::JobSplit;
use crate::decoder::FeedForward;

/// Head dims at which products hide the softmax.
const FULL_HEAD: usize = 128;
/// Five backward products (scores and four gradients) per two forward products.
const ATTENTION_BACKWARD: f64 = 2.5;
/// A backward pass also reads the gradient.
const PASSES_BACKWARD: f64 = 2.0;

/// Microseconds of a pass by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    /// Matrix products outside attention.
    pub products_us: f64,
    /// Attention without its projections.
    pub attention_us: f64,
    /// Element-wise passes over tensors.
    pub passes_us: f64,
    /// Exposed collectives of the tensor axis.
    pub tensor_us: f64,
    /// Exposed exchanges of the context axis.
    pub context_us: f64,
    /// Exchanges of tokens between cards that share experts.
    pub experts_us: f64,
}

impl Terms {
    /// Name of [`Self::experts_us`].
    pub const EXPERTS: &str = "experts' exchange";

    /// Sums the six terms.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        let exchanges_us = self.tensor_us + self.context_us + self.experts_us;
        self.products_us + self.attention_us + self.passes_us + exchanges_us
    }

    /// Returns `self` plus `times` times `other`.
    #[must_use]
    pub fn plus(&self, times: f64, other: &Self) -> Self {
        Self {
            products_us: self.products_us + times * other.products_us,
            attention_us: self.attention_us + times * other.attention_us,
            passes_us: self.passes_us + times * other.passes_us,
            tensor_us: self.tensor_us + times * other.tensor_us,
            context_us: self.context_us + times * other.context_us,
            experts_us: self.experts_us + times * other.experts_us,
        }
    }
}

/// Times of one layer, by pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerTimes {
    /// Forward pass of the layer.
    pub forward: Terms,
    /// Gradients of the inputs.
    pub input_grad: Terms,
    /// Gradients of the weights.
    pub weight_grad: Terms,
    /// Recomputation in the backward pass.
    pub again: Terms,
}

impl LayerTimes {
    /// Converts to pipeline times.
    #[must_use]
    pub fn stage(&self) -> StageTimes {
        StageTimes {
            forward: self.forward.total_us(),
            input_grad: self.input_grad.total_us() + self.again.total_us(),
            weight_grad: self.weight_grad.total_us(),
        }
    }

    /// Sums the times of all passes.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.stage().total()
    }
}

/// Times for one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelTimes {
    /// Times of one layer.
    pub layer: LayerTimes,
    /// Times of the embedding.
    pub embedding: LayerTimes,
    /// Last norm, head and loss.
    pub head: LayerTimes,
}

/// Returns how `count` cards with distance `stride` spread over the topology.
#[must_use]
pub fn spread(job: &Job, stride: usize, count: usize) -> Spread {
    let mut within = 1;
    let mut parts = Vec::with_capacity(job.topology.levels.len());
    for level in &job.topology.levels {
        let here = (level.cards / stride).clamp(1, count);
        // The closed form needs filled units and a filled group.
        let is_whole = here == count
            || (level.cards < stride || level.cards.is_multiple_of(stride)) && count.is_multiple_of(here);
        if !is_whole || !here.is_multiple_of(within) {
            let cards: Vec<usize> = (0..count).map(|index| index * stride).collect();
            return Spread::of(&job.topology, &cards);
        }
        parts.push(here / within);
        within = here;
    }
    Spread::regular(&job.topology, &parts)
}

/// Returns the time of an exchange in such a group, with all similar groups active.
#[must_use]
pub fn exchange_us(job: &Job, exchange: Exchange, bytes: f64, stride: usize, count: usize) -> f64 {
    if count < 2 {
        return 0.0;
    }
    let spread = spread(job, stride, count);
    let cost = CollectiveCost::of_spread(&job.profile, &job.topology, exchange, bytes, &spread);
    // Groups of a unit share its bus, but not mesh links or switch ports.
    let bound = &job.topology.levels[cost.level];
    let sharing = match bound.fabric {
        Fabric::Bus => {
            let own: usize = spread.parts[..=cost.level].iter().product();
            (bound.cards.min(job.cards) / own.max(1)).max(1)
        }
        Fabric::FullMesh | Fabric::Switch => 1,
    };
    cost.latency_us + cost.transfer_us * sharing as f64
}

struct OperatorCosts<'a> {
    job: &'a Job,
    setting: &'a JobSplit,
    tokens: usize,
    /// Slowdown of products in a step, relative to an idle card.
    slowed: f64,
}

fn alone_us(job: &Job, m: usize, n: usize, k: usize) -> f64 {
    let launch = Launch {
        operator: "aclnnMatmul",
        operands: vec![
            LaunchOperand::dense(Element::Bf16, [m, k], Access::Read),
            LaunchOperand::dense(Element::Bf16, [k, n], Access::Read),
            LaunchOperand::dense(Element::Bf16, [m, n], Access::Write),
        ],
    };
    OperatorCost::of(&job.profile, &Work::of(&launch)).duration_us
}

fn slowed(job: &Job) -> f64 {
    const LARGE: usize = 8192;
    let flops = 2.0 * (LARGE * LARGE * LARGE) as f64;
    let in_a_step = flops / (job.profile.soc.cube_flops_per_us() * job.coefficients.product_efficiency);
    in_a_step / alone_us(job, LARGE, LARGE, LARGE)
}

impl OperatorCosts<'_> {
    fn product_us(&self, m: usize, n: usize, k: usize) -> f64 {
        alone_us(self.job, m, n, k) * self.slowed
    }

    /// Forward, input-gradient and weight-gradient times of `[tokens, k] × [k, n]`.
    fn linear(&self, k: usize, n: usize) -> [f64; 3] {
        let (k, n) = (k.max(1), n.max(1));
        [
            self.product_us(self.tokens, n, k),
            self.product_us(self.tokens, k, n),
            self.product_us(k, n, self.tokens),
        ]
    }

    /// Forward, input-gradient and weight-gradient times of products of `rows` rows with `experts`
    /// matrices `[k, n]`.
    fn grouped(&self, experts: usize, rows: usize, k: usize, n: usize) -> [f64; 3] {
        let dense = |dims: &[usize], access| LaunchOperand::dense(Element::Bf16, dims.to_vec(), access);
        let groups = || LaunchOperand::dense(Element::I64, vec![experts], Access::Read);
        let us = |operator, operands| {
            let work = Work::of(&Launch { operator, operands });
            OperatorCost::of(&self.job.profile, &work).duration_us * self.slowed
        };
        let product = |k: usize, n: usize| {
            let weight = dense(&[experts, k, n], Access::Read);
            let operands =
                vec![dense(&[rows, k], Access::Read), weight, groups(), dense(&[rows, n], Access::Write)];
            us("aclnnGroupedMatmulV4", operands)
        };
        let sums = vec![
            dense(&[rows, k], Access::Read),
            dense(&[rows, n], Access::Read),
            groups(),
            LaunchOperand::dense(Element::F32, vec![experts * k, n], Access::Update),
        ];
        [product(k, n), product(n, k), us("aclnnGroupedMatmulAdd", sums)]
    }

    fn pass_us(&self, elements: f64, reads: usize, writes: usize) -> f64 {
        self.touch_us(elements, &[Element::Bf16].repeat(reads), &[Element::Bf16].repeat(writes))
    }

    fn touch_us(&self, elements: f64, read: &[Element], written: &[Element]) -> f64 {
        let elements = (elements as usize).max(1);
        let operands = |types: &[Element], access| -> Vec<LaunchOperand> {
            types.iter().map(|element| LaunchOperand::dense(*element, [elements], access)).collect()
        };
        let operands = [operands(read, Access::Read), operands(written, Access::Write)].concat();
        OperatorCost::of(&self.job.profile, &Work::of(&Launch { operator: "aclnnAdd", operands })).duration_us
    }

    fn sums_us(&self, weights: usize) -> f64 {
        let sum = if self.job.state.gradient > 2.0 { Element::F32 } else { Element::Bf16 };
        match self.job.software.gradient_sums {
            GradientSums::Separate => self.touch_us(weights as f64, &[Element::Bf16, sum], &[sum]),
            GradientSums::Fused | GradientSums::Absent => 0.0,
        }
    }

    fn tensor_us(&self, exchange: Exchange, elements: f64) -> f64 {
        exchange_us(self.job, exchange, 2.0 * elements, 1, self.setting.tp)
    }

    fn exposed_us(&self, exchange_us: f64, product_us: f64) -> f64 {
        let overlaps = self.job.software.tensor_exchange == TensorExchange::Overlapped
            && self.setting.sequence_parallel
            && self.job.profile.soc.fuses_exchanges_of(self.setting.tp);
        let hidden =
            if overlaps { (self.job.coefficients.overlap * exchange_us).min(product_us) } else { 0.0 };
        exchange_us - hidden
    }
}

/// Returns the times of all parts.
#[must_use]
pub fn times(job: &Job, setting: &JobSplit) -> ModelTimes {
    let tokens = (job.sequence * setting.micro_batch).div_ceil(setting.cp);
    let costs = OperatorCosts { job, setting, tokens, slowed: slowed(job) };
    ModelTimes { layer: layer(&costs), embedding: embedding(&costs), head: head(&costs) }
}

fn layer(costs: &OperatorCosts<'_>) -> LayerTimes {
    let OperatorCosts { job, setting, tokens, .. } = *costs;
    let (decoder, tp) = (&job.decoder, setting.tp);
    // Each card beyond the key heads has a copy of one.
    let (query, kv) = (decoder.query_width().div_ceil(tp), decoder.kv_heads.div_ceil(tp) * decoder.head_dim);
    let wide = decoder.intermediate.div_ceil(tp);
    let hidden = decoder.hidden;
    let up = match decoder.feed_forward {
        FeedForward::Gated => 2 * wide,
        FeedForward::Plain => wide,
    };
    let mixture = mixture(costs);
    let feed_forward = |kind: usize, of: [f64; 3], of_mixture: [[f64; 3]; 2]| -> [f64; 3] {
        [0, 1, 2].map(|pass| decoder.mean(of[pass], |_| of_mixture[kind][pass]))
    };
    let linears = [
        costs.linear(hidden, query + 2 * kv),
        costs.linear(query, hidden),
        feed_forward(0, costs.linear(hidden, up), mixture.products_us),
        feed_forward(1, costs.linear(wide, hidden), mixture.products_us),
    ];
    let sum = |kind: usize| -> f64 { linears.iter().map(|linear| linear[kind]).sum() };

    let count = tokens as f64;
    let stream = count * hidden as f64 / if setting.sequence_parallel { tp as f64 } else { 1.0 };
    let norm_us = costs.pass_us(stream, 1, 1);
    let residual_us = 2.0 * costs.pass_us(stream, 2, 1);
    let rotated = count * (query + kv) as f64;
    let inner = decoder.mean(count * wide as f64, |_| mixture.inner);
    // Fused: rotation and transposing copy. Separate: two products, a sum, a negation, two halves,
    // a copy.
    let rotation =
        costs.pass_us(rotated, 1, 1) * if job.software.elementwise == Elementwise::Fused { 2.0 } else { 7.0 };
    let function = activation_us(costs, inner);
    // Scaling, mask and softmax in 32 bits over all pairs, also masked ones.
    let pairs = count * (decoder.heads.div_ceil(tp) * job.sequence) as f64;
    let scores =
        if job.software.attention == Attention::Stored { 5.0 * costs.pass_us(pairs, 1, 1) } else { 0.0 };
    let routing = decoder.mean(0.0, |_| mixture.passes_us);
    let passes_us = decoder.norms as f64 * norm_us + residual_us + rotation + function + scores + routing;

    let attention_us = attention_us(costs);
    let whole = count * hidden as f64;
    // Column-sharded before, row-sharded after.
    let tensor_us = |kind: usize| -> f64 {
        let product = |index: usize| linears[index][kind];
        if setting.sequence_parallel {
            let gather = costs.tensor_us(Exchange::AllGather, whole);
            let scatter = costs.tensor_us(Exchange::ReduceScatter, whole);
            [(gather, 0), (scatter, 1), (gather, 2), (scatter, 3)]
                .into_iter()
                .map(|(exchange, index)| costs.exposed_us(exchange, product(index)))
                .sum()
        } else {
            2.0 * costs.tensor_us(Exchange::AllReduce, whole)
        }
    };
    let (context_us, context_grad_us) = context_us(costs, query, kv, attention_us);
    let experts_us = decoder.mean(0.0, |_| mixture.exchange_us);
    let forward = Terms {
        products_us: sum(0),
        attention_us,
        passes_us,
        tensor_us: tensor_us(0),
        context_us,
        experts_us,
    };
    let input_grad = Terms {
        products_us: sum(1),
        attention_us: ATTENTION_BACKWARD * attention_us,
        passes_us: PASSES_BACKWARD * passes_us,
        tensor_us: tensor_us(1),
        context_us: context_grad_us,
        experts_us,
    };
    let routed = decoder.expert_parameters_on(tp * setting.ep);
    let sums_us = costs.sums_us(decoder.layer_parameters_on(tp) + routed);
    let weight_grad = Terms { products_us: sum(2), passes_us: sums_us, ..Terms::default() };
    let again = match setting.recompute {
        Recompute::None => Terms::default(),
        Recompute::Selective => {
            Terms { passes_us: decoder.norms as f64 * norm_us + function, ..Terms::default() }
        }
        Recompute::Full | Recompute::Layers(_) => forward,
    };
    LayerTimes { forward, input_grad, weight_grad, again }
}

/// Costs of a mixture of experts for one micro-batch on one card.
#[derive(Clone, Copy, Debug, Default)]
struct MixtureTimes {
    /// Forward, input-gradient and weight-gradient times: products before the gated function, then
    /// after it.
    products_us: [[f64; 3]; 2],
    /// Elements of the gated function.
    inner: f64,
    /// Passes of the router, and copies of rows to experts and back.
    passes_us: f64,
    /// Gathering of tokens and scattering of results between cards that share experts.
    exchange_us: f64,
}

/// Returns the costs of a mixture. Each card of the tensor axis has some of the experts, and each
/// expert has as many rows.
fn mixture(costs: &OperatorCosts<'_>) -> MixtureTimes {
    let OperatorCosts { job, setting, tokens, .. } = *costs;
    let Some(experts) = job.decoder.experts else { return MixtureTimes::default() };
    let (hidden, weights) = (job.decoder.hidden, job.decoder.feed_forward.weights());
    let (width, shared) = (experts.intermediate, experts.shared.div_ceil(setting.tp));
    let held = experts.count.div_ceil(setting.tp * setting.ep);
    let rows = (tokens * experts.chosen).div_ceil(setting.tp);
    let routed = |k: usize, n: usize| costs.grouped(held, rows, k, n);
    let shared_us = |k: usize, n: usize| if shared > 0 { costs.linear(k, n) } else { [0.0; 3] };
    let router = costs.linear(hidden, experts.count);
    let sum = |parts: &[[f64; 3]]| [0, 1, 2].map(|pass| parts.iter().map(|part| part[pass]).sum::<f64>());
    let up = [routed(hidden, (weights - 1) * width), shared_us(hidden, (weights - 1) * shared), router];
    let down = [routed(width, hidden), shared_us(shared, hidden)];
    let scores = (tokens * experts.count) as f64;
    let copies = (rows * hidden) as f64;
    // Scores, choice, weights, and the copies of rows in both directions.
    let passes_us = 4.0 * costs.touch_us(scores, &[Element::F32], &[Element::F32])
        + costs.touch_us((tokens * hidden) as f64, &[Element::Bf16], &[Element::F32])
        + 2.0 * costs.pass_us(copies, 1, 1);
    let bytes = 2.0 * (setting.ep * tokens * hidden) as f64;
    let exchange = |kind| exchange_us(job, kind, bytes, setting.data_stride(), setting.ep);
    MixtureTimes {
        products_us: [sum(&up), sum(&down)],
        inner: (rows * width + tokens * shared) as f64,
        passes_us,
        exchange_us: exchange(Exchange::AllGather) + exchange(Exchange::ReduceScatter),
    }
}

/// Exposed ring time of keys and values, forward and backward. Attention runs meanwhile.
fn context_us(costs: &OperatorCosts<'_>, query: usize, kv: usize, attention_us: f64) -> (f64, f64) {
    let OperatorCosts { job, setting, tokens, .. } = *costs;
    let count = tokens as f64;
    let keys = 2.0 * count * 2.0 * kv as f64 * setting.cp as f64;
    let ring_us = exchange_us(job, Exchange::AllGather, keys, setting.tp, setting.cp);
    let exposed = |ring: f64, attention: f64| (ring - job.coefficients.overlap * attention).max(0.0);
    // Rounds accumulate outputs, or gradients of queries, keys and values, in 32 bits.
    let rounds = (setting.cp - 1) as f64;
    let joined =
        |elements: f64| rounds * costs.touch_us(elements, &[Element::Bf16, Element::F32], &[Element::F32]);
    (
        exposed(ring_us, attention_us) + joined(count * query as f64),
        exposed(2.0 * ring_us, ATTENTION_BACKWARD * attention_us) + joined(count * (query + 2 * kv) as f64),
    )
}

fn activation_us(costs: &OperatorCosts<'_>, inner: f64) -> f64 {
    match (costs.job.software.activation, costs.job.decoder.feed_forward) {
        (Elementwise::Fused, FeedForward::Gated) => costs.pass_us(inner, 2, 1),
        (Elementwise::Fused, FeedForward::Plain) => costs.pass_us(inner, 1, 1),
        // Two copies of halves, the function, the product.
        (Elementwise::Separate, FeedForward::Gated) => {
            3.0 * costs.pass_us(inner, 1, 1) + costs.pass_us(inner, 2, 1)
        }
        (Elementwise::Separate, FeedForward::Plain) => 3.0 * costs.pass_us(inner, 1, 1),
    }
}

fn attention_us(costs: &OperatorCosts<'_>) -> f64 {
    let OperatorCosts { job, setting, tokens, .. } = *costs;
    let decoder = &job.decoder;
    let heads = decoder.heads.div_ceil(setting.tp) * decoder.head_dim.max(FULL_HEAD);
    let seen = if job.software.attention == Attention::Stored {
        job.sequence as f64
    } else {
        decoder.visible(job.sequence)
    };
    let flops = 4.0 * tokens as f64 * seen * heads as f64;
    flops / (job.profile.soc.cube_flops_per_us() * job.coefficients.attention_efficiency)
}

fn embedding(costs: &OperatorCosts<'_>) -> LayerTimes {
    let whole = costs.tokens as f64 * costs.job.decoder.hidden as f64;
    let passes_us = costs.pass_us(whole, 1, 1);
    let (forward, backward) = if costs.setting.sequence_parallel {
        (costs.tensor_us(Exchange::ReduceScatter, whole), costs.tensor_us(Exchange::AllGather, whole))
    } else {
        (costs.tensor_us(Exchange::AllReduce, whole), 0.0)
    };
    let sums_us = costs.sums_us(costs.job.decoder.embedding_parameters().div_ceil(costs.setting.tp));
    let weight_grad =
        Terms { passes_us: PASSES_BACKWARD * passes_us + sums_us, tensor_us: backward, ..Terms::default() };
    LayerTimes {
        forward: Terms { passes_us, tensor_us: forward, ..Terms::default() },
        weight_grad,
        ..LayerTimes::default()
    }
}

fn head(costs: &OperatorCosts<'_>) -> LayerTimes {
    /// Maximum, target logit and sum of exponentials.
    const REDUCTIONS: f64 = 3.0;
    let decoder = &costs.job.decoder;
    let rows = decoder.vocabulary.div_ceil(costs.setting.tp);
    let [forward, input, weight] = costs.linear(decoder.hidden, rows);
    let whole = costs.tokens as f64 * decoder.hidden as f64;
    let (gather, scatter) = if costs.setting.sequence_parallel {
        (costs.tensor_us(Exchange::AllGather, whole), costs.tensor_us(Exchange::ReduceScatter, whole))
    } else {
        (0.0, costs.tensor_us(Exchange::AllReduce, whole))
    };
    let reductions = REDUCTIONS * costs.tensor_us(Exchange::AllReduce, 2.0 * costs.tokens as f64);
    let (loss_us, loss_grad_us) = loss_us(costs, costs.tokens as f64 * rows as f64);
    // A tied head's gradient is added to the embedding's.
    let sums_us = costs.sums_us(decoder.hidden * rows);
    LayerTimes {
        forward: Terms {
            products_us: forward,
            passes_us: loss_us,
            tensor_us: gather + reductions,
            ..Terms::default()
        },
        input_grad: Terms {
            products_us: input,
            passes_us: loss_grad_us,
            tensor_us: scatter,
            ..Terms::default()
        },
        weight_grad: Terms { products_us: weight, passes_us: sums_us, ..Terms::default() },
        again: Terms::default(),
    }
}

/// Loss and gradient of a sharded vocabulary, with separate 32-bit operators.
fn loss_us(costs: &OperatorCosts<'_>, logits: f64) -> (f64, f64) {
    const HALF: &[Element] = &[Element::Bf16];
    const FULL: &[Element] = &[Element::F32];
    let sum = |passes: &[(&[Element], &[Element])]| -> f64 {
        passes.iter().map(|(read, written)| costs.touch_us(logits, read, written)).sum()
    };
    // Conversion, maximum, difference, exponential, sum, quotient.
    let forward = sum(&[(HALF, FULL), (FULL, &[]), (FULL, FULL), (FULL, FULL), (FULL, &[]), (FULL, FULL)]);
    // Subtract targets, multiply by the loss gradient, convert to 16 bits.
    (forward, sum(&[(FULL, FULL), (FULL, FULL), (FULL, HALF)]))
}
