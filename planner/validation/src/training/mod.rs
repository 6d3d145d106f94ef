//! Predicts the training rows of the measured points.
//!
//! Sizes and splits come from the columns and the named model's configuration, uneven stages from
//! `STAGE_LAYERS`. No row has its own coefficient.

pub mod unseen;

use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::train::{Recompute, Zero};
use ascend_tp_machine::{Profile, Soc, Topology};

use ascend_tp_planner::train::coefficients::TrainCoefficients;
use ascend_tp_planner::train::forms::StateBytes;
use ascend_tp_planner::train::job::{Attention, Elementwise, GradientSums, Job, Software, TensorExchange};
use ascend_tp_planner::train::setting::{JobSplit, RankOrder};
use ascend_tp_planner::train::step::predict;

use crate::points::settings::{self, Gap};
use crate::points::{Point, PublishedModel, machine};

/// Chip of the Atlas 900 A2 `PODc` and Atlas 800T A2 rows: 53.9 % MFU and 439 tokens per second of
/// LLaMA2-70B agree at 354 TFLOP/s.
pub const CHIP: Soc = Soc::Ascend910B2;

/// A measured row and its prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct PointRow {
    /// Publication of the row.
    pub source: String,
    /// Name of the trained model.
    pub model: String,
    /// Cards and axes of the row.
    pub split: String,
    /// Unit of both figures.
    pub unit: String,
    /// Figure as it was published.
    pub measured: f64,
    /// Missing setting that a prediction needs.
    pub gap: Option<Gap>,
    /// Prediction, or why it is missing.
    pub outcome: PointOutcome,
}

/// Result of predicting a row.
#[derive(Clone, Debug, PartialEq)]
pub enum PointOutcome {
    /// Value in the row's unit.
    Predicted(f64),
    /// Reason for a missing prediction.
    LeftOut(String),
}

/// Layers of each stage from scripts (`num-layer-list`), by part of the script path
/// (Ascend/MindSpeed-LLM 1.0.RC3; `aeeeeeep/ModelLink` v1.1.0).
const STAGE_LAYERS: [(&str, &[usize]); 4] = [
    ("llama31_70b", &[17, 20, 22, 21]),
    ("qwen15_32b", &[14, 17, 18, 15]),
    ("qwen15_110b", &[7, 8, 9, 10, 11, 11, 12, 12]),
    ("gemma2_27b", &[20, 26]),
];

/// Predicts every row with the shipped coefficients, in file order.
#[must_use]
pub fn validate_rows(text: &str) -> Vec<PointRow> {
    let outcome = |point: &Point| match MeasuredPoint::of(point) {
        Ok(sample) => PointOutcome::Predicted(sample.predict(TrainCoefficients::FITTED)),
        Err(reason) => PointOutcome::LeftOut(reason.to_owned()),
    };
    Point::all(text).iter().map(|point| row(point, outcome(point))).collect()
}

/// Drops the configuration or line after the page.
pub(super) fn page(point: &Point) -> String {
    let source = point.text("source");
    source.split(['#', '+']).next().unwrap_or(source).trim().to_owned()
}

#[derive(Clone, Debug)]
pub(super) struct MeasuredPoint {
    job: Job,
    setting: JobSplit,
    unit: FigureKind,
    pub(super) measured: f64,
}

#[derive(Clone, Copy, Debug)]
enum FigureKind {
    Utilisation,
    TokensPerCard,
    Samples,
    Step,
}

impl MeasuredPoint {
    pub(super) fn of(point: &Point) -> Result<Self, &'static str> {
        let (job, setting) = job(point)?;
        let unit = match point.text("unit") {
            "MFU %" => FigureKind::Utilisation,
            "tokens/s/card" => FigureKind::TokensPerCard,
            "samples/s (whole job)" => FigureKind::Samples,
            "s/step" => FigureKind::Step,
            _ => return Err("unknown unit"),
        };
        let measured =
            point.number("value").filter(|value| *value > 0.0).ok_or("the figure is not a number above 0")?;
        Ok(Self { job, setting, unit, measured })
    }

    pub(super) fn predict(&self, coefficients: TrainCoefficients) -> f64 {
        let job = Job { coefficients, ..self.job.clone() };
        let prediction = predict(&job, &self.setting);
        let rate = prediction.tokens_per_s_and_card;
        match self.unit {
            FigureKind::Utilisation => 100.0 * prediction.mfu,
            FigureKind::TokensPerCard => rate,
            FigureKind::Samples => rate * job.cards as f64 / job.sequence as f64,
            FigureKind::Step => (job.sequence * job.global_batch) as f64 / (rate * job.cards as f64),
        }
    }
}

pub(super) fn row(point: &Point, outcome: PointOutcome) -> PointRow {
    let axes = ["tp", "pp", "dp", "cp", "seq", "mbs", "gbs"]
        .map(|name| format!("{name}={}", if point.text(name).is_empty() { "?" } else { point.text(name) }));
    PointRow {
        source: point.text("source").replace("github ", ""),
        model: point.text("model").to_owned(),
        split: format!("{} cards, {}", point.text("cards"), axes.join(" ")),
        unit: point.text("unit").to_owned(),
        measured: point.number("value").unwrap_or(f64::NAN),
        gap: settings::training(point).err(),
        outcome,
    }
}

fn count(point: &Point, name: &str) -> Option<usize> {
    point.text(name).parse().ok().filter(|count| *count > 0)
}

fn is_yes(point: &Point, name: &str) -> bool {
    matches!(point.text(name), "y" | "True" | "true" | "full")
}

const MIXTURE: &str = "mixture of experts; the planner trains dense decoders";

/// A missing `dp` or `cp` follows from the number of cards.
fn axes(point: &Point) -> Result<[usize; 4], &'static str> {
    const SPLIT: &str = "the split is not given";
    let needed = |name| count(point, name).ok_or(SPLIT);
    let (tp, pp, cards) = (needed("tp")?, needed("pp")?, needed("cards")?);
    let rest = |others: usize| {
        cards
            .is_multiple_of(others)
            .then_some(cards / others)
            .ok_or("the product of the axes is not the number of cards")
    };
    let (dp, cp) = match (count(point, "dp"), count(point, "cp")) {
        (Some(dp), Some(cp)) => (dp, cp),
        (Some(dp), None) => (dp, rest(tp * pp * dp)?),
        (None, Some(cp)) => (rest(tp * pp * cp)?, cp),
        (None, None) => return Err(SPLIT),
    };
    if tp * pp * dp * cp == cards {
        Ok([tp, pp, dp, cp])
    } else {
        Err("the product of the axes is not the number of cards")
    }
}

/// A 910B without subtype counts as [`CHIP`].
fn cluster(point: &Point, cards: usize) -> Result<(Soc, Topology), &'static str> {
    let hardware = point.text("hardware");
    let (soc, name) = machine(hardware).ok_or("the machine has no cost model")?;
    if name == "atlas-a2" {
        let is_named = soc != Soc::Ascend910B3 || hardware.contains("910B3");
        return Ok((if is_named { soc } else { CHIP }, Topology::atlas_a2_of(cards)));
    }
    let topology = Topology::preset(name).ok_or("unknown topology")?;
    if cards > topology.cards() { Err("more cards than the topology has") } else { Ok((soc, topology)) }
}

fn is_mindformers(point: &Point) -> bool {
    point.text("source").contains("mindformers")
}

fn software(point: &Point, model: &PublishedModel, pp: usize) -> Software {
    let (script, is_mindformers) = (point.text("script"), is_mindformers(point));
    // Older model classes have no fused rotation and gated function. Bloom adds positions to scores
    // and has no fused attention.
    let is_fused = is_mindformers || script.contains("mcore");
    let overlaps = is_yes(point, "mc2");
    Software {
        attention: if script.contains("/bloom/") { Attention::Stored } else { Attention::Fused },
        elementwise: if is_fused { Elementwise::Fused } else { Elementwise::Separate },
        activation: if is_fused && !model.is_gelu { Elementwise::Fused } else { Elementwise::Separate },
        tensor_exchange: if overlaps { TensorExchange::Overlapped } else { TensorExchange::Exposed },
        // Scripts disable fused sums (`no-gradient-accumulation-fusion`). MindSpore graphs
        // accumulate only over the micro-batches of a pipeline.
        gradient_sums: if is_mindformers && pp == 1 { GradientSums::Absent } else { GradientSums::Separate },
    }
}

/// `MindSpore`'s parallel optimizer also shards each new 16-bit gradient; without a pipeline, that
/// is once per step.
fn zero(point: &Point, pp: usize) -> Zero {
    match point.text("dist_opt") {
        "zero2" => Zero::Gradients,
        _ if !is_yes(point, "dist_opt") => Zero::None,
        _ if is_mindformers(point) && pp == 1 => Zero::Gradients,
        _ => Zero::Moments,
    }
}

fn job(point: &Point) -> Result<(Job, JobSplit), &'static str> {
    settings::training(point).map_err(|gap| gap.why)?;
    let says = |words: &str| {
        ["model", "note", "script"].iter().any(|column| point.text(column).to_lowercase().contains(words))
    };
    if says("lora") {
        return Err("only adapters are trained; the planner trains every parameter");
    }
    if count(point, "ep").is_some_and(|cards| cards > 1) {
        return Err(MIXTURE);
    }
    let [tp, pp, dp, cp] = axes(point)?;
    let model = PublishedModel::of(point)?;
    if model.experts > 0 {
        return Err(MIXTURE);
    }
    let decoder = model.decoder;
    let script = point.text("script");
    let needed = |name| count(point, name).ok_or("sequence, micro-batch or batch is not given");
    let is_f16 = matches!(point.text("precision"), "fp16" | "float16");
    let state = match (is_mindformers(point), is_f16) {
        (true, _) => StateBytes::ZERO_PAPER,
        (false, true) => StateBytes::MEGATRON_F16,
        (false, false) => StateBytes::MEGATRON,
    };
    // The column has `y`, or the recomputed layers of each stage.
    let recomputed: Option<Vec<usize>> =
        point.text("recompute").split(' ').map(|layers| layers.parse().ok()).collect();
    let recomputes = recomputed.is_some() || is_yes(point, "recompute");
    let setting = JobSplit {
        tp,
        sequence_parallel: is_yes(point, "sp"),
        cp,
        pp,
        schedule: match count(point, "vpp_layers") {
            Some(layers) if pp > 1 => Pipeline::Interleaved { chunks: decoder.layers / pp / layers },
            _ => Pipeline::OneForwardOneBackward,
        },
        dp,
        ep: 1,
        zero: zero(point, pp),
        recompute: if recomputes { Recompute::Full } else { Recompute::None },
        micro_batch: needed("mbs")?,
        order: RankOrder::DataInside,
    };
    let stage_layers = STAGE_LAYERS.iter().find(|(part, layers)| script.contains(part) && layers.len() == pp);
    let cards = setting.cards();
    let (soc, topology) = cluster(point, cards)?;
    let job = Job {
        decoder,
        sequence: needed("seq")?,
        global_batch: needed("gbs")?,
        cards,
        profile: Profile::of(soc),
        coefficients: TrainCoefficients::FITTED,
        topology,
        software: software(point, &model, pp),
        state,
        stage_layers: stage_layers.map(|(_, layers)| layers.to_vec()),
        recomputed,
    };
    if job.global_batch < setting.dp * setting.micro_batch {
        return Err("the batch is smaller than one micro-batch of each copy");
    }
    Ok((job, setting))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascend_tp_planner::decoder::Decoder;
    use ascend_tp_planner::train::memory::fullest;

    const POINTS: &str = include_str!("../../points/train_points_measured.csv");

    fn outcome(changes: &[(&str, &str)]) -> PointOutcome {
        let heading = POINTS.lines().next().unwrap();
        let mut fields: Vec<&str> =
            "page,910B,LLaMA3-70B,8,8,1,1,1,,4096,1,8,400,tokens/s/card,,bf16,y,y,,,,80,8192,28672,64,8,mcore/a.sh,"
                .split(',')
                .collect();
        for (column, value) in changes {
            fields[heading.split(',').position(|name| name == *column).unwrap()] = value;
        }
        validate_rows(&format!("{heading}\n{}\n", fields.join(","))).remove(0).outcome
    }

    fn rate(changes: &[(&str, &str)]) -> f64 {
        let PointOutcome::Predicted(rate) = outcome(changes) else { panic!("{:?}", outcome(changes)) };
        rate
    }

    #[test]
    fn a_stage_computes_as_many_layers_again_as_its_row_says() {
        let rate = |recompute: &str| rate(&[("recompute", recompute), ("tp", "1"), ("pp", "8"), ("sp", "")]);
        let (none, all) = (rate(""), rate("y"));
        assert!((rate("10 10 10 10 10 10 10 10") / all - 1.0).abs() < 1e-12);
        assert!((rate("0 0 0 0 0 0 0 0") / none - 1.0).abs() < 1e-12);
        let first = rate("10 0 0 0 0 0 0 0");
        assert!(all < first && first < none, "{all} {first} {none}");
    }

    #[test]
    fn a_row_is_what_its_columns_say_and_not_a_part_of_a_name() {
        assert!(rate(&[]) < 0.995 * rate(&[("model", "LLaMA-2-70B")]));
        let left_out = |changes: &[(&str, &str)], why: &str| {
            let found = outcome(changes);
            assert!(matches!(&found, PointOutcome::LeftOut(reason) if reason.contains(why)), "{found:?}");
        };
        left_out(&[("model", "LLaMA4-70B")], "sizes of the model");
        let minicpm = [
            ("model", "MiniCPM-8x2B"),
            ("layers", "40"),
            ("hidden", "2304"),
            ("ffn", "5760"),
            ("heads", "36"),
        ];
        left_out(&[minicpm.as_slice(), &[("kv_groups", "36")]].concat(), "mixture");
        left_out(&[("ep", "8")], "mixture");
        left_out(&[("model", "LLaMA3-70B LoRA")], "adapters");
        left_out(&[("note", "LoRA rank 16")], "adapters");
        left_out(&[("dp", ""), ("cp", "")], "split");
        left_out(&[("dp", "2")], "product of the axes");
        left_out(&[("hardware", "a chip of another maker")], "machine");
    }

    #[test]
    fn a_row_is_of_the_chip_it_names() {
        let of = |hardware: &'static str| rate(&[("hardware", hardware)]);
        assert!(of("910B3") < of("Atlas 900 A2 PODc") && of("910B2") == of("Atlas 900 A2 PODc"));
        assert!((of("Atlas 900 A3 SuperPoD") / of("910B2") - 1.0).abs() > 0.01);
    }

    #[test]
    fn copies_that_are_not_given_are_what_the_cards_leave() {
        let two = [("cards", "16"), ("gbs", "16")];
        assert_eq!(
            outcome(&[&two[..], &[("dp", "")]].concat()),
            outcome(&[&two[..], &[("dp", "2")]].concat())
        );
    }

    #[test]
    fn sixteen_cards_of_an_a2_have_no_fused_exchange() {
        let of = |tp: &'static str, mc2: &'static str| {
            rate(&[
                ("cards", "16"),
                ("tp", tp),
                ("dp", if tp == "16" { "1" } else { "2" }),
                ("mc2", mc2),
                ("gbs", "16"),
            ])
        };
        assert!(of("8", "y") > of("8", ""));
        assert_eq!(of("16", "y"), of("16", ""));
    }

    #[test]
    fn a_card_beyond_the_key_heads_holds_a_whole_one() {
        let (job, setting) = job(&Point::all(POINTS)[0]).unwrap();
        let decoder = Decoder { heads: 32, kv_heads: 4, ..job.decoder };
        let rest = 2 * decoder.query_width() / 8 + 3 * decoder.intermediate / 8;
        assert_eq!(decoder.layer_parameters_on(setting.tp), decoder.hidden * (rest + 2 * decoder.head_dim));
        assert_eq!(decoder.layer_parameters_on(4) * 4, decoder.layer_parameters());
    }

    #[test]
    fn every_row_is_predicted_or_says_why_not() {
        let rows = validate_rows(POINTS);
        assert_eq!(rows.len(), POINTS.lines().count() - 1);
        let left_out = rows.iter().filter(|row| matches!(row.outcome, PointOutcome::LeftOut(_))).count();
        assert_eq!((rows.len(), left_out), (74, 18));
        let is_given = |row: &PointRow| row.measured.is_finite() && row.measured > 0.0;
        assert!(rows.iter().all(is_given), "{rows:#?}");
    }

    #[test]
    fn rows_of_a_page_are_those_of_its_file() {
        let page = |source: &str| page(&Point::all(&format!("source\n{source}\n"))[0]);
        assert_eq!(page("a@1:b/README.md#L12"), page("a@1:b/README.md#L606"));
        assert_eq!(page("a@1:card.md + configs/x.yaml"), "a@1:card.md");
        assert_ne!(page("a@1:card.md"), page("a@2:card.md"));
    }

    #[test]
    fn what_was_trained_fits() {
        let mut too_big = Vec::new();
        for point in Point::all(POINTS) {
            let Ok((job, setting)) = job(&point) else { continue };
            let bytes = fullest(&job, &setting).total();
            let offered = CHIP.hbm_usable_bytes() as f64;
            if bytes > offered {
                too_big.push(format!(
                    "{}: {setting}: {:.1} GiB",
                    point.text("model"),
                    bytes / 1_073_741_824.0
                ));
            }
        }
        assert!(too_big.is_empty(), "{too_big:#?}");
    }
}
