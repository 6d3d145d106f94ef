//! Closed forms of training as they were published, and a table that holds each against its published figure.
//!
//! Input → output: sizes of a GPT → bytes, operations, seconds; and [`published`], every figure beside what the form
//! gives. Invariants: nothing here is fitted. Does not: know cards, links or a decoder with shared heads and a gated
//! feed-forward layer; [`super::memory`] and [`super::layer`] derive those from the layer's tensors and agree with these
//! where both apply.
//!
//! Sources: SC21 = Narayanan et al., arXiv 2104.04473; KOR = Korthikanti et al., arXiv 2205.05198; ZERO = Rajbhandari et
//! al., arXiv 1910.02054; DSM = `docs/code-docs/source/memory.rst` of `DeepSpeed`; DO = `dist_optimizer.md` of Megatron-LM.

use ascend_tp::schedule::pipeline::Pipeline;

use super::pipeline::{StageTimes, simulate};

const GIB: f64 = 1_073_741_824.0;

/// Sizes of a GPT: a dense decoder with a feed-forward layer four times as wide as its residual stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpt {
    /// Width of the residual stream.
    pub hidden: f64,
    /// Layers of the model.
    pub layers: f64,
    /// Heads of the attention.
    pub heads: f64,
    /// Tokens of a sequence.
    pub sequence: f64,
    /// Rows of the embedding.
    pub vocabulary: f64,
}

/// What of a layer's activations is kept for the backward pass, and over how many cards it is split; the columns of KOR
/// Table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Everything, on one card.
    Serial,
    /// Everything; tensor parallel.
    Tensor,
    /// Everything; tensor and sequence parallel.
    Sequence,
    /// All but what lies between the scores and the attention's output; tensor parallel.
    TensorSelective,
    /// The same; tensor and sequence parallel.
    SequenceSelective,
    /// The input of each layer.
    Full,
}

impl Gpt {
    /// Parameters (SC21 equation 2).
    #[must_use]
    pub fn parameters(&self) -> f64 {
        let Self { hidden: h, layers: l, sequence: s, vocabulary: v, .. } = *self;
        12.0 * l * h * h * (1.0 + 13.0 / (12.0 * h) + (v + s) / (12.0 * l * h))
    }

    /// Operations of the products of a step of `batch` sequences that recomputes every layer (SC21 equation 3).
    #[must_use]
    pub fn flops_with_full_recompute(&self, batch: f64) -> f64 {
        let Self { hidden: h, layers: l, sequence: s, vocabulary: v, .. } = *self;
        96.0 * batch * s * l * h * h * (1.0 + s / (6.0 * h) + v / (16.0 * l * h))
    }

    /// Operations a step needs: what a utilisation of the model counts (KOR).
    #[must_use]
    pub fn model_flops(&self, batch: f64) -> f64 {
        let Self { hidden: h, layers: l, sequence: s, vocabulary: v, .. } = *self;
        72.0 * batch * l * s * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * h * l))
    }

    /// Operations a step does that recomputes the attention's core: what a utilisation of the hardware counts (KOR).
    #[must_use]
    pub fn flops_with_selective_recompute(&self, batch: f64) -> f64 {
        let Self { hidden: h, layers: l, sequence: s, vocabulary: v, .. } = *self;
        72.0 * batch * l * s * h * h * (1.0 + s / (3.0 * h) + v / (12.0 * h * l))
    }

    /// Bytes a layer keeps for its backward pass on each of `tp` cards, for `batch` sequences (KOR Table 2): elements of
    /// two bytes, dropout masks of one, scores stored.
    #[must_use]
    pub fn activation_bytes(&self, kept: Kept, batch: f64, tp: f64) -> f64 {
        let Self { hidden: h, heads: a, sequence: s, .. } = *self;
        let scores = 5.0 * a * s / h;
        s * batch
            * h
            * match kept {
                Kept::Serial => 34.0 + scores,
                Kept::Tensor => 10.0 + 24.0 / tp + scores / tp,
                Kept::Sequence => 34.0 / tp + scores / tp,
                Kept::TensorSelective => 10.0 + 24.0 / tp,
                Kept::SequenceSelective => 34.0 / tp,
                Kept::Full => 2.0,
            }
    }

    /// Bytes of parameters, gradients and optimizer state of the layers on each card, 18 a parameter (KOR figure 1).
    #[must_use]
    pub fn layer_state_bytes(&self, tp: f64, pp: f64) -> f64 {
        18.0 * 12.0 * self.hidden * self.hidden * self.layers / (tp * pp)
    }
}

/// How many times one micro-batch's activations of the first stage are alive at once, as a multiple of all layers': 1 for
/// 1F1B, more when each card has `chunks` parts of the model (KOR section 4.2.3).
#[must_use]
pub fn interleaving_factor(pp: f64, chunks: f64) -> f64 {
    if chunks > 1.0 { 1.0 + (pp - 1.0) / (pp * chunks) } else { 1.0 }
}

/// Where the optimizer's state lies among the copies of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ZeroStage {
    /// Whole on each.
    Stage0,
    /// The optimizer's state split.
    Stage1,
    /// That and the gradients.
    Stage2,
    /// That and the parameters.
    Stage3,
}

impl ZeroStage {
    /// All stages, from nothing split to all.
    pub const ALL: [Self; 4] = [Self::Stage0, Self::Stage1, Self::Stage2, Self::Stage3];

    /// The number it is published under.
    #[must_use]
    pub const fn number(self) -> usize {
        self as usize
    }
}

/// Bytes of each kind a parameter takes when nothing is split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateBytes {
    /// The parameter itself.
    pub parameter: f64,
    /// Its gradient's bytes.
    pub gradient: f64,
    /// What the optimizer keeps: a copy in 32 bits, and two moments.
    pub optimizer: f64,
}

impl StateBytes {
    /// Parameters and gradients of 16 bits, 12 bytes for Adam (ZERO).
    pub const ZERO_PAPER: Self = Self { parameter: 2.0, gradient: 2.0, optimizer: 12.0 };
    /// Parameters of 16 bits, gradients added up in 32 bits (DO, bf16).
    pub const MEGATRON: Self = Self { parameter: 2.0, gradient: 4.0, optimizer: 12.0 };

    /// Parameters and gradients of 16 bits, with a copy of the gradient in 32 bits for the optimizer (DO, fp16).
    pub const MEGATRON_F16: Self = Self { parameter: 2.0, gradient: 2.0, optimizer: 16.0 };

    /// Bytes a parameter takes on each of `copies` cards.
    #[must_use]
    pub fn per_parameter(&self, zero: ZeroStage, copies: f64) -> f64 {
        let split = |bytes: f64, from: ZeroStage| if zero >= from { bytes / copies } else { bytes };
        split(self.parameter, ZeroStage::Stage3)
            + split(self.gradient, ZeroStage::Stage2)
            + split(self.optimizer, ZeroStage::Stage1)
    }

    /// The same when the parameter in 16 bits and 16 bits of remainder share the bytes of its copy in 32 bits
    /// (`reuse-fp32-param` of `MindSpeed`).
    #[must_use]
    pub fn per_parameter_with_reuse(&self, zero: ZeroStage, copies: f64) -> f64 {
        let saved = if zero >= ZeroStage::Stage1 { self.parameter / copies } else { self.parameter };
        self.per_parameter(zero, copies) - saved
    }
}

/// The time of a training run and what it is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingTime {
    /// Operations for each parameter and token: [`Self::RECOMPUTED`] or [`Self::KEPT`].
    pub flops_per_parameter: f64,
    /// Tokens to train on.
    pub tokens: f64,
    /// Parameters of the model.
    pub parameters: f64,
    /// Cards of the run.
    pub cards: f64,
    /// Operations each card does in a second, counted in the same way.
    pub achieved_flops: f64,
}

impl TrainingTime {
    /// 2 in the forward pass, the same again for what is computed again, 4 in the backward pass (SC21 section 5.1).
    pub const RECOMPUTED: f64 = 8.0;
    /// The same where activations are kept.
    pub const KEPT: f64 = 6.0;

    /// Days: 8 · tokens · parameters / (cards · achieved FLOP/s) (SC21 equation 4).
    #[must_use]
    pub fn days(&self) -> f64 {
        const SECONDS_A_DAY: f64 = 86_400.0;
        self.flops_per_parameter * self.tokens * self.parameters / (self.cards * self.achieved_flops) / SECONDS_A_DAY
    }
}

/// What of a difference between form and figure is the figure's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// None: equal when rounded to the digits that were printed.
    Printed,
    /// So much, in the figure's unit: inputs were printed rounded.
    Within(f64),
}

/// One published figure beside what the form gives.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedFigure {
    /// The closed form, with its source.
    pub form: &'static str,
    /// The model or run it is a figure of.
    pub subject: String,
    /// The figure as it was printed.
    pub published: String,
    /// What the form gives, in the same unit.
    pub ours: f64,
    /// What difference there may be.
    pub bound: Tolerance,
}

impl PublishedFigure {
    /// Digits after the point of the published figure.
    #[must_use]
    pub fn decimals(&self) -> usize {
        self.published.split_once('.').map_or(0, |(_, digits)| digits.len())
    }

    /// The form's value less the published.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.published.parse::<f64>().map_or(f64::NAN, |published| self.ours - published)
    }

    /// Whether the form gives the figure.
    #[must_use]
    pub fn holds(&self) -> bool {
        match self.bound {
            Tolerance::Printed => format!("{:.*}", self.decimals(), self.ours) == self.published,
            Tolerance::Within(most) => self.difference().abs() <= most,
        }
    }
}

/// Every published figure.
#[must_use]
pub fn published() -> Vec<PublishedFigure> {
    let mut rows = Vec::new();
    memory(&mut rows);
    utilisation(&mut rows);
    table_1(&mut rows);
    states(&mut rows);
    bubbles(&mut rows);
    rows
}

/// The four models of KOR: sizes, parallelism, and the figures about them.
struct Korthikanti {
    name: &'static str,
    model: Gpt,
    pp: f64,
    chunks: f64,
    cards: f64,
    micro_batch: f64,
    batch: f64,
    /// GiB of figure 1: parameters and optimizer, activations of tensor parallel, of sequence parallel and selective.
    memory: [&'static str; 3],
    /// Percent of tensor parallel's activations in figure 7: sequence, selective, both, full.
    percent: [&'static str; 4],
    /// Table 5: seconds a step with sequence parallel and selective recompute, MFU and HFU in percent.
    step_s: f64,
    mfu: &'static str,
    hfu: &'static str,
}

const fn gpt(heads: f64, hidden: f64, layers: f64) -> Gpt {
    Gpt { hidden, layers, heads, sequence: 2048.0, vocabulary: 51_200.0 }
}

const KORTHIKANTI: [Korthikanti; 4] = [
    Korthikanti {
        name: "22B",
        model: gpt(64.0, 6144.0, 48.0),
        pp: 1.0,
        chunks: 1.0,
        cards: 8.0,
        micro_batch: 4.0,
        batch: 4.0,
        memory: ["45.5625", "59.25", "9.5625"],
        percent: ["66.84", "49.42", "16.18", "7.64"],
        step_s: 1.10,
        mfu: "41.5",
        hfu: "43.7",
    },
    Korthikanti {
        name: "175B",
        model: gpt(96.0, 12_288.0, 96.0),
        pp: 8.0,
        chunks: 3.0,
        cards: 64.0,
        micro_batch: 1.0,
        batch: 64.0,
        memory: ["45.5625", "66.84375", "12.3515625"],
        percent: ["62.04", "56.53", "18.49", "8.71"],
        step_s: 13.75,
        mfu: "51.4",
        hfu: "52.8",
    },
    Korthikanti {
        name: "530B",
        model: gpt(128.0, 20_480.0, 105.0),
        pp: 35.0,
        chunks: 3.0,
        cards: 280.0,
        micro_batch: 1.0,
        batch: 280.0,
        memory: ["31.640625", "114.0234375", "23.076171875"],
        percent: ["58.31", "62.04", "20.27", "9.42"],
        step_s: 37.83,
        mfu: "56.0",
        hfu: "57.0",
    },
    Korthikanti {
        name: "1T",
        model: gpt(160.0, 25_600.0, 128.0),
        pp: 64.0,
        chunks: 1.0,
        cards: 512.0,
        micro_batch: 1.0,
        batch: 512.0,
        memory: ["32.958984375", "131.25", "26.5625"],
        percent: ["58.31", "62.04", "20.27", "9.42"],
        step_s: 71.49,
        mfu: "56.3",
        hfu: "57.0",
    },
];

/// Cards a layer is split over in all of KOR's settings.
const KORTHIKANTI_TP: f64 = 8.0;
/// Operations a second of an A100 at 16 bits.
const A100_FLOPS: f64 = 312e12;

fn row(
    form: &'static str,
    subject: impl Into<String>,
    published: &str,
    ours: f64,
    bound: Tolerance,
) -> PublishedFigure {
    PublishedFigure { form, subject: subject.into(), published: published.to_owned(), ours, bound }
}

fn memory(rows: &mut Vec<PublishedFigure>) {
    for published in &KORTHIKANTI {
        let Korthikanti { name, model, pp, chunks, micro_batch, .. } = *published;
        let alive = model.layers * interleaving_factor(pp, chunks);
        let gib = |kept| model.activation_bytes(kept, micro_batch, KORTHIKANTI_TP) * alive / GIB;
        let ours = [
            ("weights and optimizer", model.layer_state_bytes(KORTHIKANTI_TP, pp) / GIB),
            ("activations, tensor parallel", gib(Kept::Tensor)),
            ("activations, sequence parallel and selective", gib(Kept::SequenceSelective)),
        ];
        for ((what, ours), printed) in ours.into_iter().zip(published.memory) {
            rows.push(row("memory, GiB (KOR fig. 1)", format!("{name}: {what}"), printed, ours, Tolerance::Printed));
        }
        let kinds = [
            ("sequence parallel", Kept::Sequence),
            ("selective", Kept::TensorSelective),
            ("sequence parallel and selective", Kept::SequenceSelective),
            ("full recompute", Kept::Full),
        ];
        for ((what, kept), printed) in kinds.into_iter().zip(published.percent) {
            let ours = 100.0 * gib(kept) / gib(Kept::Tensor);
            let subject = format!("{name}: {what}");
            rows.push(row("activations, % (KOR fig. 7)", subject, printed, ours, Tolerance::Within(0.15)));
        }
    }
}

fn utilisation(rows: &mut Vec<PublishedFigure>) {
    for &Korthikanti { name, model, cards, batch, step_s, mfu, hfu, .. } in &KORTHIKANTI {
        let percent = |flops: f64| 100.0 * flops / (step_s * cards * A100_FLOPS);
        let ours = [
            ("MFU, % (KOR tab. 5)", mfu, percent(model.model_flops(batch))),
            ("HFU, % (KOR tab. 5)", hfu, percent(model.flops_with_selective_recompute(batch))),
        ];
        for (form, printed, ours) in ours {
            rows.push(row(form, name, printed, ours, Tolerance::Within(0.2)));
        }
    }
    for (subject, printed, parameters, tokens, cards, flops) in [
        ("175B, 300 B tokens, 1,024 A100 at 140 TFLOP/s", "34", 175e9, 300e9, 1024.0, 140e12),
        ("1T, 450 B tokens, 3,072 A100 at 163 TFLOP/s", "84", 1e12, 450e9, 3072.0, 163e12),
    ] {
        let flops_per_parameter = TrainingTime::RECOMPUTED;
        let run = TrainingTime { flops_per_parameter, tokens, parameters, cards, achieved_flops: flops };
        rows.push(row("days (SC21 eq. 4)", subject, printed, run.days(), Tolerance::Within(1.0)));
    }
}

/// SC21 Table 1: parameters in billions, heads, width, layers, tp, pp, cards, TFLOP/s a card, percent of peak, PFLOP/s.
type Table1Row = (&'static str, [f64; 7], &'static str, &'static str);

const TABLE_1: [Table1Row; 10] = [
    ("1.7", [24.0, 2304.0, 24.0, 1.0, 1.0, 32.0, 137.0], "44", "4.4"),
    ("3.6", [32.0, 3072.0, 30.0, 2.0, 1.0, 64.0, 138.0], "44", "8.8"),
    ("7.5", [32.0, 4096.0, 36.0, 4.0, 1.0, 128.0, 142.0], "46", "18.2"),
    ("18.4", [48.0, 6144.0, 40.0, 8.0, 1.0, 256.0, 135.0], "43", "34.6"),
    ("39.1", [64.0, 8192.0, 48.0, 8.0, 2.0, 512.0, 138.0], "44", "70.8"),
    ("76.1", [80.0, 10_240.0, 60.0, 8.0, 4.0, 1024.0, 140.0], "45", "143.8"),
    ("145.6", [96.0, 12_288.0, 80.0, 8.0, 8.0, 1536.0, 148.0], "47", "227.1"),
    ("310.1", [128.0, 16_384.0, 96.0, 8.0, 16.0, 1920.0, 155.0], "50", "297.4"),
    ("529.6", [128.0, 20_480.0, 105.0, 8.0, 35.0, 2520.0, 163.0], "52", "410.2"),
    ("1008.0", [160.0, 25_600.0, 128.0, 8.0, 64.0, 3072.0, 163.0], "52", "502.0"),
];

fn table_1(rows: &mut Vec<PublishedFigure>) {
    for (billions, [heads, hidden, layers, tp, pp, cards, tflops], percent, pflops) in TABLE_1 {
        let subject = format!("{billions}B, tp={tp} pp={pp} dp={}", cards / (tp * pp));
        let parameters = gpt(heads, hidden, layers).parameters() / 1e9;
        rows.push(row("parameters, billions (SC21 tab. 1)", subject.clone(), billions, parameters, Tolerance::Printed));
        let of_peak = 100.0 * tflops * 1e12 / A100_FLOPS;
        rows.push(row("of peak, % (SC21 tab. 1)", subject.clone(), percent, of_peak, Tolerance::Printed));
        let bound = Tolerance::Within(0.003 * tflops * cards / 1e3 + 0.05);
        rows.push(row("all cards, PFLOP/s (SC21 tab. 1)", subject, pflops, tflops * cards / 1e3, bound));
    }
}

fn states(rows: &mut Vec<PublishedFigure>) {
    let gb = |zero| 7.5e9 * StateBytes::ZERO_PAPER.per_parameter(zero, 64.0) / 1e9;
    for (zero, printed) in ZeroStage::ALL.into_iter().zip(["120", "31.4", "16.6", "1.9"]) {
        let subject = format!("7.5B over 64, stage {}", zero.number());
        rows.push(row("state, GB (ZERO fig. 1)", subject, printed, gb(zero), Tolerance::Printed));
    }
    let (t5, cards, largest_layer) = (2851e6, 8.0, 32e6);
    let documented = (4.0 + 16.0 / cards) * t5 / GIB;
    rows.push(row("state, GiB (DSM)", "T5-3B over 8, stage 2, 4P + 16P/n", "15.93", documented, Tolerance::Printed));
    let stage_3 = (4.0 * largest_layer + 18.0 * t5 / cards) / GIB;
    rows.push(row("state, GiB (DSM)", "T5-3B over 8, stage 3, 4 largest + 18P/n", "6.09", stage_3, Tolerance::Printed));
}

/// Idle time of a step as a part of its work, from the simulated schedule, against the published form.
fn bubbles(rows: &mut Vec<PublishedFigure>) {
    for (stages, micro_batches) in [(4_usize, 8_usize), (8, 32), (8, 8)] {
        let (p, m) = (stages as f64, micro_batches as f64);
        let forms = [
            (Pipeline::GPipe, (p - 1.0) / m),
            (Pipeline::OneForwardOneBackward, (p - 1.0) / m),
            (Pipeline::Interleaved { chunks: 2 }, (p - 1.0) / (2.0 * m)),
            (Pipeline::Interleaved { chunks: 4 }, (p - 1.0) / (4.0 * m)),
            (Pipeline::ZeroBubbleH1, (p - 1.0) / (3.0 * m)),
        ];
        for (schedule, form) in forms {
            let chunks = schedule.chunks() as f64;
            let stage = StageTimes { forward: 1.0 / chunks, input_grad: 1.0 / chunks, weight_grad: 1.0 / chunks };
            let timeline = simulate(schedule, stages, micro_batches, &vec![stage; stages * schedule.chunks()], 0.0);
            let ours = (timeline.duration - 3.0 * m) / (3.0 * m);
            let subject = format!("{schedule}, p={stages} m={micro_batches}, F=I=W");
            rows.push(row("bubble / work (SC21, ZB)", subject, &format!("{form:.4}"), ours, Tolerance::Printed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_figure_is_what_its_form_gives() {
        let rows = published();
        let wrong: Vec<_> = rows.iter().filter(|row| !row.holds()).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let count = |form: &str| rows.iter().filter(|row| row.form.starts_with(form)).count();
        let counts = ["memory", "activations", "MFU", "HFU", "days", "parameters", "state", "bubble"].map(count);
        assert_eq!(counts, [12, 16, 4, 4, 2, 10, 6, 15]);
    }

    #[test]
    fn a_figure_that_is_off_by_its_last_digit_is_found() {
        let figure = |published: &str, bound| row("x", "y", published, 1.2349, bound).holds();
        assert!(figure("1.23", Tolerance::Printed) && !figure("1.24", Tolerance::Printed));
        assert!(figure("1.30", Tolerance::Within(0.07)) && !figure("1.30", Tolerance::Within(0.06)));
    }

    #[test]
    fn flops_of_full_recompute_are_four_thirds_of_the_layers() {
        // The head is not recomputed, so the ratio is below 4/3 by a third of the head's share.
        let model = gpt(96.0, 12_288.0, 96.0);
        let head = 6.0 * 64.0 * 2048.0 * 12_288.0 * 51_200.0;
        let layers = model.model_flops(64.0) - head;
        let expected = layers * 4.0 / 3.0 + head;
        assert!((model.flops_with_full_recompute(64.0) / expected - 1.0).abs() < 1e-12);
    }

    #[test]
    fn state_bytes_are_those_of_the_distributed_optimizer() {
        let bytes = StateBytes::MEGATRON;
        for (zero, expected) in ZeroStage::ALL.into_iter().zip([18.0, 7.5, 4.0, 2.25]) {
            assert!((bytes.per_parameter(zero, 8.0) - expected).abs() < 1e-12, "{zero:?}");
        }
        assert!((StateBytes::MEGATRON_F16.per_parameter(ZeroStage::Stage1, 8.0) - 6.0).abs() < 1e-12);
        assert!((bytes.per_parameter_with_reuse(ZeroStage::Stage0, 8.0) - 16.0).abs() < 1e-12);
        assert!((bytes.per_parameter_with_reuse(ZeroStage::Stage1, 8.0) - 7.25).abs() < 1e-12);
    }
}
