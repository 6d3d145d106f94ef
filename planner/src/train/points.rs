//! The training rows of the measured points, and what the planner predicts for each.
//!
//! Input → output: the text of `train_points_measured.csv` → a [`PointRow`] for every row: measured, predicted, or why it is
//! left out. The file has the sizes and the split; what only the scripts say (vocabularies, uneven stages, windows, which
//! kernels) is the table `SCRIPTS`. Invariants: no row has a coefficient of its own. Does not: print.

use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp_machine::{Profile, Soc, Topology};

use super::coefficients::Coefficients;
use super::decoder::{Attention, Decoder, Elementwise, FeedForward, Job, Software, TensorExchange, Window};
use super::forms::{StateBytes, Zero};
use super::setting::{RankOrder, Recompute, Setting};
use super::step::{Prediction, predict};

/// The chip of an Atlas 900 A2 `PODc` and of the Atlas 800T A2 these rows were measured on: its 53.9 % MFU and its 439 tokens
/// a second of LLaMA2-70B agree at 354 TFLOP/s.
pub const CHIP: Soc = Soc::Ascend910B2;

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct PointRow {
    /// Where it was published.
    pub source: String,
    /// The model.
    pub model: String,
    /// How it was split.
    pub split: String,
    /// The unit of the figures.
    pub unit: String,
    /// As published.
    pub measured: f64,
    /// What the planner says, or why it does not.
    pub outcome: Outcome,
}

/// What became of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The prediction, in the row's unit.
    Predicted(f64),
    /// Why there is none.
    LeftOut(String),
}

impl PointRow {
    /// Predicted over measured, less 1.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        match self.outcome {
            Outcome::Predicted(value) => Some(value / self.measured - 1.0),
            Outcome::LeftOut(_) => None,
        }
    }
}

/// What the scripts of a model say beside the file's columns.
struct Script {
    /// Beginning of the model's name.
    model: &'static str,
    vocabulary: usize,
    /// Where it is not the width over the heads.
    head_dim: Option<usize>,
    window: Option<Window>,
    /// `num-layer-list`: layers of each stage.
    stage_layers: &'static [usize],
}

const fn script(model: &'static str, vocabulary: usize) -> Script {
    Script { model, vocabulary, head_dim: None, window: None, stage_layers: &[] }
}

/// From the scripts the rows name (Ascend/MindSpeed-LLM 1.0.RC3 and RC1, mindformers r1.3.0) and the models' configurations.
/// The first row whose name begins a model's name is its.
const SCRIPTS: [Script; 25] = [
    script("Aquila", 100_008),
    script("Baichuan2", 125_696),
    script("Bloom", 250_880),
    script("ChatGLM3", 65_024),
    script("CodeLlama", 32_016),
    script("InternLM", 103_168),
    script("LLaMA3-8B", 128_256),
    Script { stage_layers: &[17, 20, 22, 21], ..script("LLaMA3.1-70B", 128_256) },
    script("Llama3.1", 128_256),
    script("LLaMA", 32_000),
    script("Llama2", 32_000),
    Script { stage_layers: &[14, 17, 18, 15], ..script("Qwen1.5-32B", 152_064) },
    Script { stage_layers: &[7, 8, 9, 10, 11, 11, 12, 12], ..script("Qwen1.5-110B", 152_064) },
    script("Qwen1.5-0.5B", 151_936),
    script("Qwen1.5-1.8B", 151_936),
    script("Qwen1.5-7B", 151_936),
    script("Qwen2-0.5B", 151_936),
    script("Qwen2-1.5B", 151_936),
    script("Qwen", 152_064),
    script("Yi", 64_000),
    // Sees 4096 tokens in every layer.
    Script { window: Some(Window { tokens: 4096, share: 1.0 }), ..script("Mistral", 32_000) },
    Script { head_dim: Some(256), ..script("Gemma-7B", 256_000) },
    // Sees 4096 tokens in every other layer.
    Script { head_dim: Some(256), window: Some(Window { tokens: 4096, share: 0.5 }), ..script("Gemma2-9B", 256_000) },
    Script {
        head_dim: Some(128),
        window: Some(Window { tokens: 4096, share: 0.5 }),
        stage_layers: &[20, 26],
        ..script("Gemma2-27B", 256_000)
    },
    script("MiniCPM", 122_753),
];

/// Feed-forward widths the file leaves out, from the models' configurations.
const WIDTHS: [(&str, usize); 5] = [
    ("Llama2-7B", 11_008),
    ("Llama2-13B", 13_824),
    ("Llama2-70B", 28_672),
    ("CodeLlama-34B", 22_016),
    ("Llama3.1-70B", 28_672),
];

/// Every row of the file's text, in its order.
#[must_use]
pub fn validate_rows(text: &str, coefficients: Coefficients) -> Vec<PointRow> {
    let mut lines = text.lines();
    let names: Vec<String> = lines.next().map(fields).unwrap_or_default();
    let points = lines.filter(|line| !line.trim().is_empty()).map(|line| Point { names: &names, values: fields(line) });
    points.map(|point| point.row(coefficients)).collect()
}

/// The fields of a line of comma-separated values; a field in double quotes may have commas.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.trim_end().chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            letter => {
                if let Some(field) = fields.last_mut() {
                    field.push(letter);
                }
            }
        }
    }
    fields
}

struct Point<'a> {
    names: &'a [String],
    values: Vec<String>,
}

impl Point<'_> {
    fn text(&self, name: &str) -> &str {
        let index = self.names.iter().position(|field| field == name);
        index.and_then(|index| self.values.get(index)).map_or("", String::as_str)
    }

    fn count(&self, name: &str) -> Option<usize> {
        self.text(name).parse().ok().filter(|count| *count > 0)
    }

    fn is_yes(&self, name: &str) -> bool {
        matches!(self.text(name), "y" | "True")
    }

    fn row(&self, coefficients: Coefficients) -> PointRow {
        let unit = self.text("unit").to_owned();
        let outcome = match self.left_out() {
            Some(reason) => Outcome::LeftOut(reason.to_owned()),
            None => match self.job(coefficients) {
                Some((job, setting)) => Outcome::Predicted(in_unit(&unit, &predict(&job, &setting))),
                None => Outcome::LeftOut("sizes or split are not given".to_owned()),
            },
        };
        let axes = ["tp", "pp", "dp", "cp", "seq", "mbs", "gbs"]
            .map(|name| format!("{name}={}", if self.text(name).is_empty() { "?" } else { self.text(name) }));
        PointRow {
            source: self.text("source").replace("github ", ""),
            model: self.text("model").to_owned(),
            split: format!("{} cards, {}", self.text("cards"), axes.join(" ")),
            unit,
            measured: self.text("value").parse().unwrap_or(f64::NAN),
            outcome,
        }
    }

    fn left_out(&self) -> Option<&'static str> {
        let (model, note) = (self.text("model"), self.text("note"));
        Some(match () {
            () if note.contains("SUSPECT") => "impossible as printed: needs more than twice the chip's rate",
            () if self.count("tp").is_none() || self.text("script").is_empty() => "no script, so no split",
            () if ["Mixtral", "DeepSeek", "57B"].iter().any(|name| model.contains(name)) => {
                "mixture of experts; the planner trains dense decoders"
            }
            () if note.contains("dynamic length") => "sequences of unknown lengths",
            () if note.contains("same number as RC3") => "the same measurement as the row of RC3",
            () if self.text("unit") == "samples/s (whole job)" => {
                "fine-tuning; the file disagrees with the model on kv heads"
            }
            () => return None,
        })
    }

    fn job(&self, coefficients: Coefficients) -> Option<(Job, Setting)> {
        let model = self.text("model");
        let is_plain = ["Bloom", "GPT3"].iter().any(|name| model.starts_with(name));
        let gpt3 = script("GPT3", 50_304);
        let script = SCRIPTS.iter().find(|script| model.starts_with(script.model));
        let script = script.or_else(|| model.starts_with("GPT3").then_some(&gpt3))?;
        let (hidden, heads) = (self.count("hidden")?, self.count("heads")?);
        let known_width = WIDTHS.iter().find(|(name, _)| model.starts_with(name)).map(|(_, width)| *width);
        let intermediate = self.count("ffn").or(known_width).or_else(|| is_plain.then_some(4 * hidden))?;
        let is_mindformers = self.text("source").contains("mindformers");
        let decoder = Decoder {
            layers: self.count("layers")?,
            hidden,
            heads,
            kv_heads: self.count("kv_groups").unwrap_or(heads),
            head_dim: script.head_dim.unwrap_or(hidden / heads),
            intermediate,
            feed_forward: if is_plain { FeedForward::Plain } else { FeedForward::Gated },
            vocabulary: script.vocabulary,
            tied_embeddings: ["Gemma", "Bloom", "MiniCPM"].iter().any(|name| model.starts_with(name)),
            window: script.window,
        };
        // Scripts of the older model classes have no fused rotation and no fused gated function; Bloom's no fused attention.
        let is_fused = is_mindformers || self.text("script").contains("mcore");
        let overlaps = self.is_yes("mc2");
        let software = Software {
            attention: if model.starts_with("Bloom") { Attention::Stored } else { Attention::Fused },
            elementwise: if is_fused { Elementwise::Fused } else { Elementwise::Separate },
            tensor_exchange: if overlaps { TensorExchange::Overlapped } else { TensorExchange::Exposed },
        };
        let (pp, cards) = (self.count("pp")?, self.count("cards")?);
        let schedule = match self.count("vpp_layers") {
            Some(layers) if pp > 1 => Pipeline::Interleaved { chunks: decoder.layers / pp / layers },
            _ => Pipeline::OneForwardOneBackward,
        };
        // MindSpore's parallel optimizer splits what it updates and the 16-bit gradients as they come; without a pipeline they
        // come once a step.
        let zero = match (self.is_yes("dist_opt"), is_mindformers && pp == 1) {
            (true, true) => Zero::Stage2,
            (true, false) => Zero::Stage1,
            (false, _) => Zero::Stage0,
        };
        let is_f16 = matches!(self.text("precision"), "fp16" | "float16");
        let state = match (is_mindformers, is_f16) {
            (true, _) => StateBytes::ZERO_PAPER,
            (false, true) => StateBytes::MEGATRON_F16,
            (false, false) => StateBytes::MEGATRON,
        };
        let setting = Setting {
            tp: self.count("tp")?,
            sequence_parallel: self.is_yes("sp"),
            cp: self.count("cp")?,
            pp,
            schedule,
            dp: self.count("dp")?,
            zero,
            recompute: if self.is_yes("recompute") { Recompute::Full } else { Recompute::None },
            micro_batch: self.count("mbs")?,
            order: RankOrder::DataInside,
        };
        let job = Job {
            decoder,
            sequence: self.count("seq")?,
            global_batch: self.count("gbs")?,
            cards,
            profile: Profile::of(CHIP),
            coefficients,
            topology: Topology::atlas_a2(cards.div_ceil(8)),
            software,
            state,
            stage_layers: (script.stage_layers.len() == pp && !is_mindformers).then(|| script.stage_layers.to_vec()),
        };
        Some((job, setting))
    }
}

fn in_unit(unit: &str, prediction: &Prediction) -> f64 {
    if unit == "MFU %" { 100.0 * prediction.mfu } else { prediction.tokens_per_s_and_card }
}

/// Median and 90th percentile of the sizes of the predicted rows' errors, and how many there are.
#[must_use]
pub fn errors(rows: &[PointRow]) -> (f64, f64, usize) {
    let mut sizes: Vec<f64> = rows.iter().filter_map(PointRow::error).map(f64::abs).collect();
    sizes.sort_by(f64::total_cmp);
    let at = |part: f64| sizes.get(((sizes.len() as f64 - 1.0) * part).round() as usize).copied().unwrap_or(f64::NAN);
    (at(0.5), at(0.9), sizes.len())
}

#[cfg(test)]
mod tests {
    use super::super::memory::fullest;
    use super::*;

    const POINTS: &str = include_str!("../../points/train_points_measured.csv");

    #[test]
    fn every_row_is_predicted_or_says_why_not() {
        let rows = validate_rows(POINTS, Coefficients::FITTED);
        assert_eq!(rows.len(), POINTS.lines().count() - 1);
        let left_out = rows.iter().filter(|row| matches!(row.outcome, Outcome::LeftOut(_))).count();
        assert_eq!((rows.len(), left_out), (74, 18));
        let is_given = |row: &PointRow| row.measured.is_finite() && row.measured > 0.0;
        assert!(rows.iter().all(is_given), "{rows:#?}");
        assert!(!rows.iter().any(|row| row.outcome == Outcome::LeftOut("sizes or split are not given".to_owned())));
    }

    #[test]
    fn half_of_the_rows_are_within_15_percent() {
        let (median, worst_tenth, count) = errors(&validate_rows(POINTS, Coefficients::FITTED));
        assert_eq!(count, 56);
        assert!(median <= 0.15, "median {median}");
        assert!(worst_tenth <= 0.25, "90th percentile {worst_tenth}");
    }

    #[test]
    fn what_was_trained_fits() {
        let mut too_big = Vec::new();
        let mut lines = POINTS.lines();
        let names = fields(lines.next().unwrap());
        for line in lines {
            let point = Point { names: &names, values: fields(line) };
            if point.left_out().is_some() {
                continue;
            }
            let (job, setting) = point.job(Coefficients::FITTED).unwrap();
            let bytes = fullest(&job, &setting).total();
            let offered = CHIP.hbm_usable_bytes() as f64;
            if bytes > offered {
                too_big.push(format!("{}: {setting}: {:.1} GiB", point.text("model"), bytes / 1_073_741_824.0));
            }
        }
        assert!(too_big.is_empty(), "{too_big:#?}");
    }

    #[test]
    fn a_quoted_field_may_have_commas() {
        assert_eq!(fields("a,\"[8, 8]\",,c"), ["a", "[8, 8]", "", "c"]);
    }
}
