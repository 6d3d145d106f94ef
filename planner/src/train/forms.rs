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
use ascend_tp::train::Zero;

use super::pipeline::{StageTimes, simulate};
use crate::points::Point;

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
    pub fn per_parameter(&self, zero: Zero, copies: f64) -> f64 {
        let split = |bytes: f64, from: Zero| if zero >= from { bytes / copies } else { bytes };
        split(self.parameter, Zero::Weights)
            + split(self.gradient, Zero::Gradients)
            + split(self.optimizer, Zero::Moments)
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

/// The four models of KOR, each with its parallelism and the figures about it: GiB of figure 1; percent of tensor parallel's
/// activations of figure 7; of table 5, seconds a step with sequence parallel and selective recompute, MFU and HFU in percent. Ships.
const KORTHIKANTI: &str = include_str!("../../points/korthikanti.csv");

/// Table 1 of SC21: TFLOP/s of a card, percent of its peak, PFLOP/s of all. Ships.
const NARAYANAN: &str = include_str!("../../points/narayanan.csv");

/// Figure 1 of ZERO, by stage. Ships.
const ZERO: &str = include_str!("../../points/zero.csv");

/// A number of a row; of a field that is none, one that no form gives.
fn number(point: &Point, column: &str) -> f64 {
    point.number(column).unwrap_or(f64::NAN)
}

/// The model of a row of KOR or SC21, which all have the same sequences and tables.
fn gpt(point: &Point) -> Gpt {
    let [hidden, layers, heads] = ["hidden", "layers", "heads"].map(|column| number(point, column));
    Gpt { hidden, layers, heads, sequence: 2048.0, vocabulary: 51_200.0 }
}

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
    for point in Point::all(KORTHIKANTI) {
        let (name, model, pp) = (point.text("name"), gpt(&point), number(&point, "pp"));
        let [chunks, micro_batch] = ["chunks", "micro_batch"].map(|column| number(&point, column));
        let alive = model.layers * interleaving_factor(pp, chunks);
        let gib = |kept| model.activation_bytes(kept, micro_batch, KORTHIKANTI_TP) * alive / GIB;
        let ours = [
            ("state_gib", "weights and optimizer", model.layer_state_bytes(KORTHIKANTI_TP, pp) / GIB),
            ("tensor_gib", "activations, tensor parallel", gib(Kept::Tensor)),
            ("both_gib", "activations, sequence parallel and selective", gib(Kept::SequenceSelective)),
        ];
        for (column, what, ours) in ours {
            let (subject, printed) = (format!("{name}: {what}"), point.text(column));
            rows.push(row("memory, GiB (KOR fig. 1)", subject, printed, ours, Tolerance::Printed));
        }
        let kinds = [
            ("sequence_percent", "sequence parallel", Kept::Sequence),
            ("selective_percent", "selective", Kept::TensorSelective),
            ("both_percent", "sequence parallel and selective", Kept::SequenceSelective),
            ("full_percent", "full recompute", Kept::Full),
        ];
        for (column, what, kept) in kinds {
            let (subject, printed) = (format!("{name}: {what}"), point.text(column));
            let ours = 100.0 * gib(kept) / gib(Kept::Tensor);
            rows.push(row("activations, % (KOR fig. 7)", subject, printed, ours, Tolerance::Within(0.15)));
        }
    }
}

fn utilisation(rows: &mut Vec<PublishedFigure>) {
    for point in Point::all(KORTHIKANTI) {
        let (model, batch) = (gpt(&point), number(&point, "batch"));
        let percent = |flops: f64| 100.0 * flops / (number(&point, "step_s") * number(&point, "cards") * A100_FLOPS);
        let ours = [
            ("MFU, % (KOR tab. 5)", "mfu", percent(model.model_flops(batch))),
            ("HFU, % (KOR tab. 5)", "hfu", percent(model.flops_with_selective_recompute(batch))),
        ];
        for (form, column, ours) in ours {
            rows.push(row(form, point.text("name"), point.text(column), ours, Tolerance::Within(0.2)));
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

fn table_1(rows: &mut Vec<PublishedFigure>) {
    for point in Point::all(NARAYANAN) {
        let [tp, pp, cards, tflops] = ["tp", "pp", "cards", "tflops"].map(|column| number(&point, column));
        let billions = point.text("billions");
        let subject = format!("{billions}B, tp={tp} pp={pp} dp={}", cards / (tp * pp));
        let parameters = gpt(&point).parameters() / 1e9;
        rows.push(row("parameters, billions (SC21 tab. 1)", subject.clone(), billions, parameters, Tolerance::Printed));
        let (printed, of_peak) = (point.text("peak_percent"), 100.0 * tflops * 1e12 / A100_FLOPS);
        rows.push(row("of peak, % (SC21 tab. 1)", subject.clone(), printed, of_peak, Tolerance::Printed));
        let bound = Tolerance::Within(0.003 * tflops * cards / 1e3 + 0.05);
        let all = tflops * cards / 1e3;
        rows.push(row("all cards, PFLOP/s (SC21 tab. 1)", subject, point.text("pflops"), all, bound));
    }
}

fn states(rows: &mut Vec<PublishedFigure>) {
    let gb = |zero| 7.5e9 * StateBytes::ZERO_PAPER.per_parameter(zero, 64.0) / 1e9;
    for point in Point::all(ZERO) {
        let Some(zero) = point.text("stage").parse().ok().and_then(Zero::of_stage) else { continue };
        let subject = format!("7.5B over 64, stage {}", point.text("stage"));
        rows.push(row("state, GB (ZERO fig. 1)", subject, point.text("gb"), gb(zero), Tolerance::Printed));
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
    fn state_bytes_are_those_of_the_distributed_optimizer() {
        let bytes = StateBytes::MEGATRON;
        for (zero, expected) in Zero::ALL.into_iter().zip([18.0, 7.5, 4.0, 2.25]) {
            assert!((bytes.per_parameter(zero, 8.0) - expected).abs() < 1e-12, "{zero:?}");
        }
        assert!((StateBytes::MEGATRON_F16.per_parameter(Zero::Moments, 8.0) - 6.0).abs() < 1e-12);
    }
}
