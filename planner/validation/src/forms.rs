//! Published closed forms of training, compared with their published figures.
//!
//! Nothing here is fitted. The planner derives costs from tensors, and agrees where both apply.
//!
//! Sources: SC21 = Narayanan et al., arXiv 2104.04473; KOR = Korthikanti et al., arXiv 2205.05198;
//! ZERO = Rajbhandari et al., arXiv 1910.02054; DSM = `docs/code-docs/source/memory.rst` of
//! `DeepSpeed`; DO = `dist_optimizer.md` of Megatron-LM.

use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::train::Zero;

use crate::points::Point;
use ascend_tp_planner::train::forms::{StateBytes, TrainingTime};
use ascend_tp_planner::train::pipeline::{StageTimes, simulate};

const GIB: f64 = 1_073_741_824.0;

/// A GPT with feed-forward width `4 * hidden`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Gpt {
    /// Width of the residual stream.
    pub hidden: f64,
    /// Number of decoder layers.
    pub layers: f64,
    /// Number of attention heads.
    pub heads: f64,
    /// Sequence length in tokens.
    pub sequence: f64,
    /// Rows of the embedding.
    pub vocabulary: f64,
}

/// Activations kept for the backward pass (columns of KOR Table 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Tensor parallel: all activations.
    Tensor,
    /// Tensor and sequence parallel: all activations.
    Sequence,
    /// Outside the attention core, tensor parallel.
    TensorSelective,
    /// Outside the attention core, tensor and sequence parallel.
    SequenceSelective,
    /// Inputs of layers only.
    Full,
}

impl Gpt {
    /// Counts the parameters (SC21 equation 2).
    #[must_use]
    pub(crate) fn parameters(&self) -> f64 {
        let Self { hidden: h, layers: l, sequence: s, vocabulary: v, .. } = *self;
        12.0 * l * h * h * (1.0 + 13.0 / (12.0 * h) + (v + s) / (12.0 * l * h))
    }

    /// Counts operations of a step for MFU (KOR).
    #[must_use]
    pub(crate) fn model_flops(&self, batch: f64) -> f64 {
        let Self { hidden: h, layers: l, sequence: s, vocabulary: v, .. } = *self;
        72.0 * batch * l * s * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * h * l))
    }

    /// Counts operations of a step for HFU with selective recomputation (KOR).
    #[must_use]
    pub(crate) fn flops_with_selective_recompute(&self, batch: f64) -> f64 {
        let Self { hidden: h, layers: l, sequence: s, vocabulary: v, .. } = *self;
        72.0 * batch * l * s * h * h * (1.0 + s / (3.0 * h) + v / (12.0 * h * l))
    }

    /// Bytes that a layer keeps on each of `tp` cards (KOR Table 2): two-byte elements, one-byte
    /// dropout masks, stored scores.
    #[must_use]
    pub(crate) fn activation_bytes(&self, kept: Kept, batch: f64, tp: f64) -> f64 {
        let Self { hidden: h, heads: a, sequence: s, .. } = *self;
        let scores = 5.0 * a * s / h;
        s * batch
            * h
            * match kept {
                Kept::Tensor => 10.0 + 24.0 / tp + scores / tp,
                Kept::Sequence => 34.0 / tp + scores / tp,
                Kept::TensorSelective => 10.0 + 24.0 / tp,
                Kept::SequenceSelective => 34.0 / tp,
                Kept::Full => 2.0,
            }
    }

    /// Returns the state bytes of a card's layers, 18 per parameter (KOR figure 1).
    #[must_use]
    pub(crate) fn layer_state_bytes(&self, tp: f64, pp: f64) -> f64 {
        18.0 * 12.0 * self.hidden * self.hidden * self.layers / (tp * pp)
    }
}

/// Returns the live activations of the first stage, relative to one micro-batch in all layers (KOR
/// section 4.2.3).
#[must_use]
fn interleaving_factor(pp: f64, chunks: f64) -> f64 {
    if chunks > 1.0 { 1.0 + (pp - 1.0) / (pp * chunks) } else { 1.0 }
}

/// Allowed difference between form and figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Equal in the printed digits.
    Printed,
    /// Absolute; inputs were printed rounded.
    Within(f64),
}

/// A figure and its form.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedFigure {
    /// Closed form and its source.
    pub form: &'static str,
    /// Model or run of the figure.
    pub subject: String,
    /// Figure as it was printed.
    pub published: String,
    /// Result in the same unit.
    pub ours: f64,
    /// Allowed difference between both.
    pub bound: Tolerance,
}

impl PublishedFigure {
    /// Counts the decimals in `published`.
    #[must_use]
    pub fn decimals(&self) -> usize {
        self.published.split_once('.').map_or(0, |(_, digits)| digits.len())
    }

    /// Returns `ours` minus the published value.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.published.parse::<f64>().map_or(f64::NAN, |published| self.ours - published)
    }

    /// Returns whether the form matches.
    #[must_use]
    pub fn holds(&self) -> bool {
        match self.bound {
            Tolerance::Printed => format!("{:.*}", self.decimals(), self.ours) == self.published,
            Tolerance::Within(most) => self.difference().abs() <= most,
        }
    }
}

/// Lists every published figure.
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

/// Four models in KOR: figure 1 (GiB), figure 7 (percent of tensor-parallel activations), table 5
/// (seconds per step with sequence parallelism and selective recomputation, MFU, HFU).
const KORTHIKANTI: &str = include_str!("../points/korthikanti.csv");

/// Table 1 of SC21: TFLOP/s per card, percent of peak, total PFLOP/s.
const NARAYANAN: &str = include_str!("../points/narayanan.csv");

const ZERO: &str = include_str!("../points/zero.csv");

/// NaN matches no form.
fn number(point: &Point, column: &str) -> f64 {
    point.number(column).unwrap_or(f64::NAN)
}

fn gpt(point: &Point) -> Gpt {
    let [hidden, layers, heads] = ["hidden", "layers", "heads"].map(|column| number(point, column));
    Gpt { hidden, layers, heads, sequence: 2048.0, vocabulary: 51_200.0 }
}

const KORTHIKANTI_TP: f64 = 8.0;
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
        let percent =
            |flops: f64| 100.0 * flops / (number(&point, "step_s") * number(&point, "cards") * A100_FLOPS);
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
        rows.push(row(
            "parameters, billions (SC21 tab. 1)",
            subject.clone(),
            billions,
            parameters,
            Tolerance::Printed,
        ));
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
    rows.push(row(
        "state, GiB (DSM)",
        "T5-3B over 8, stage 2, 4P + 16P/n",
        "15.93",
        documented,
        Tolerance::Printed,
    ));
    let stage_3 = (4.0 * largest_layer + 18.0 * t5 / cards) / GIB;
    rows.push(row(
        "state, GiB (DSM)",
        "T5-3B over 8, stage 3, 4 largest + 18P/n",
        "6.09",
        stage_3,
        Tolerance::Printed,
    ));
}

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
            let stage =
                StageTimes { forward: 1.0 / chunks, input_grad: 1.0 / chunks, weight_grad: 1.0 / chunks };
            let timeline =
                simulate(schedule, stages, micro_batches, &vec![stage; stages * schedule.chunks()], 0.0);
            let ours = (timeline.duration - 3.0 * m) / (3.0 * m);
            let subject = format!("{schedule}, p={stages} m={micro_batches}, F=I=W");
            rows.push(row(
                "bubble / work (SC21, ZB)",
                subject,
                &format!("{form:.4}"),
                ours,
                Tolerance::Printed,
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use ascend_tp::train::Recompute;
    use ascend_tp_machine::{Profile, Soc, Topology};
    use ascend_tp_planner::decoder::{Decoder, FeedForward};
    use ascend_tp_planner::train::coefficients::TrainCoefficients;
    use ascend_tp_planner::train::job::{
        Attention, Elementwise, GradientSums, Job, Software, TensorExchange,
    };
    use ascend_tp_planner::train::memory::stages;
    use ascend_tp_planner::train::setting::{JobSplit, RankOrder};

    use super::*;

    #[test]
    fn every_published_figure_is_what_its_form_gives() {
        let rows = published();
        let wrong: Vec<_> = rows.iter().filter(|row| !row.holds()).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let count = |form: &str| rows.iter().filter(|row| row.form.starts_with(form)).count();
        let counts =
            ["memory", "activations", "MFU", "HFU", "days", "parameters", "state", "bubble"].map(count);
        assert_eq!(counts, [12, 16, 4, 4, 2, 10, 6, 15]);
    }

    #[test]
    fn a_figure_that_is_off_by_its_last_digit_is_found() {
        let figure = |published: &str, bound| row("x", "y", published, 1.2349, bound).holds();
        assert!(figure("1.23", Tolerance::Printed) && !figure("1.24", Tolerance::Printed));
        assert!(figure("1.30", Tolerance::Within(0.07)) && !figure("1.30", Tolerance::Within(0.06)));
    }

    /// KOR includes dropout: two one-byte masks on the stream and one on the scores.
    #[test]
    fn a_gpt_keeps_what_the_published_form_says_less_its_masks() {
        let gpt = Gpt { hidden: 12_288.0, layers: 96.0, heads: 96.0, sequence: 2048.0, vocabulary: 51_200.0 };
        let job = Job {
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
        };
        let ours = |tp, recompute| {
            let setting = JobSplit {
                tp,
                sequence_parallel: tp > 1,
                cp: 1,
                pp: 1,
                schedule: Pipeline::OneForwardOneBackward,
                dp: 1,
                ep: 1,
                zero: Zero::None,
                recompute,
                micro_batch: 1,
                order: RankOrder::DataInside,
            };
            stages(&job, &setting)[0].activations / 96.0
        };
        let masks = |tp: f64| 2048.0 * (2.0 * 12_288.0 + 96.0 * 2048.0) / tp;
        for (tp, recompute, kept, masks) in [
            (8, Recompute::None, Kept::Sequence, masks(8.0)),
            (1, Recompute::None, Kept::Sequence, masks(1.0)),
            (1, Recompute::Full, Kept::Full, 0.0),
        ] {
            let published = gpt.activation_bytes(kept, 1.0, tp as f64) - masks;
            let ours = ours(tp, recompute);
            assert!((ours - published).abs() < 1.0, "{tp}: {ours}, published {published}");
        }
    }
}
