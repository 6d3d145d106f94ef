//! Converts a measured forward step to a workload.
//!
//! A row's batch covers the whole run and is divided by the model copies.

use ascend_tp_machine::{Profile, Topology};

use super::stack::{Expansion, PassCards, StepWork};
use crate::points::{Point, PublishedModel, machine};
use crate::workload::dense;
use crate::workload::{Experts, MixtureDecoder, ParallelSplit, ProductPrecision, Published, Section, Tokens};
use ascend_tp_planner::decoder::Decoder;

pub(super) fn is_forward(point: &Point) -> bool {
    point.text("output_len") == "one forward step"
}

pub(super) enum RowModel {
    Dense(Decoder),
    Mixture(MixtureDecoder),
    Published(&'static Published),
}

#[derive(Clone, Copy, Default)]
pub(super) struct Extras {
    /// Height and width in pixels.
    pub(super) image: Option<(usize, usize)>,
    pub(super) drafts: usize,
}

impl RowModel {
    pub(super) fn of(point: &Point) -> Result<Self, &'static str> {
        let name = point.text("model").rsplit('/').next().unwrap_or_default();
        if let Some(published) = Published::of(name) {
            return Ok(Self::Published(published));
        }
        let model = PublishedModel::of(point)?;
        if model.decoder.window.is_some() {
            return Err("no workload for this architecture");
        }
        match (model.experts, model.chosen, model.expert_width) {
            (0, ..) => Ok(Self::Dense(model.decoder)),
            (count, Some(chosen), Some(width)) if (1..=count).contains(&chosen) => {
                let experts = Experts { count, chosen, width, shared_width: 0 };
                Ok(Self::Mixture(MixtureDecoder { around: model.decoder, experts }))
            }
            _ => Err("no workload for this architecture"),
        }
    }

    /// Computes logits of all new tokens, or of each sequence's last token without a cache.
    pub(super) fn forward(
        &self,
        tokens: Tokens,
        extras: Extras,
        split: ParallelSplit,
        precision: ProductPrecision,
    ) -> Vec<Section> {
        let rows = if tokens.context > 0 { tokens.new_tokens() } else { tokens.batch };
        match self {
            Self::Dense(decoder) => dense::forward(decoder, tokens, rows, split, precision),
            Self::Mixture(mixture) => mixture.forward(tokens, rows, split, precision),
            Self::Published(published) => {
                published.forward(tokens, extras.image, extras.drafts, split, precision)
            }
        }
    }
}

/// Number of copies, given or derived from the cards.
pub(super) fn copies(point: &Point, tensor: usize) -> Result<usize, &'static str> {
    let given = [("dp", ""), ("tp", "dp "), ("tp", "dp")]
        .into_iter()
        .find_map(|(column, key)| point.inside(column, key));
    if let Some(copies) = given {
        return Ok(copies.max(1));
    }
    match point.inside("tp", "world ") {
        Some(cards) if tensor > 0 && cards.is_multiple_of(tensor) => Ok(cards / tensor),
        None if !point.text("tp").contains("dp") => Ok(1),
        _ => Err("the copies of the model are not given"),
    }
}

fn image(point: &Point) -> Option<(usize, usize)> {
    let says =
        |words: &str| ["source", "input_len", "note"].iter().any(|column| point.text(column).contains(words));
    says("1080p").then_some((1080, 1920))
}

pub(super) fn precision(point: &Point) -> Option<ProductPrecision> {
    let text = point.text("dtype");
    match text {
        "bf16" | "fp16" | "fp16/bf16 not stated" | "DISABLED" => Some(ProductPrecision::Bits16),
        "int8" | "w8a8" => Some(ProductPrecision::W8A8),
        "W8A8_STATIC" => Some(ProductPrecision::W8A8Static),
        _ if text.starts_with("W8A8") => Some(ProductPrecision::W8A8),
        _ if text.starts_with("W4A8") => Some(ProductPrecision::W4A8),
        _ => None,
    }
}

pub(super) fn forward(point: &Point) -> Result<StepWork, &'static str> {
    let (soc, topology) = machine(point.text("hardware")).ok_or("the machine has no cost model")?;
    let topology = Topology::preset(topology).ok_or("unknown topology")?;
    let precision = precision(point).ok_or("unknown precision")?;
    let tensor = point.leading("tp").ok_or("the split is not given")?;
    let copies = copies(point, tensor)?;
    let expert = point.inside("tp", "ep ").unwrap_or(1);
    let batch = point.leading("batch").ok_or("the batch is not given")?.div_ceil(copies);
    let length = point.leading("input_len").ok_or("the length is not given")?;
    let drafts = point.inside("note", "mtp=").or_else(|| point.inside("note", "MTP ")).unwrap_or(0);
    let is_decode = point.text("metric").contains("decode");
    let query = point.inside("note", "query_len=").unwrap_or(if is_decode { 1 + drafts } else { length });
    let tokens = Tokens { batch, query, context: if is_decode { length } else { 0 } };
    let split = ParallelSplit { expert, ..ParallelSplit::tensor(tensor) };
    let extras = Extras { image: image(point).filter(|_| !is_decode), drafts };
    let sections = RowModel::of(point)?.forward(tokens, extras, split, precision);
    let expansion = Expansion::Cores;
    Ok(PassCards { profile: Profile::of(soc), topology, tensor, expert, expansion }.work(&sections))
}

#[cfg(test)]
mod tests {
    use ascend_tp_machine::Work;

    use super::*;
    use crate::workload::WorkloadTask;

    fn point(model: &str, tp: &str, input: &str, metric: &str, source: &str) -> Point {
        let text = format!(
            "source,hardware,model,dtype,tp,batch,input_len,output_len,metric,value,unit,note\n\
             {source},ATLAS_800_A3_560T,{model},bf16,\"{tp}\",8,{input},one forward step,{metric},1,ms,\n"
        );
        Point::all(&text)[0].clone()
    }

    #[test]
    fn copies_that_are_not_given_are_what_the_cards_leave() {
        let copies = |tp: &str| copies(&point("Qwen3-8B", tp, "64", "forward time (prefill)", ""), 2);
        assert_eq!(copies("2 (world 8, dp None, ep 1)"), Ok(4));
        assert_eq!(
            (copies("2 (world 8, dp 2, ep 1)"), copies("2 (dp4)"), copies("2")),
            (Ok(2), Ok(4), Ok(1))
        );
        assert!(copies("2 (dp None)").is_err() && copies("2 (world 7, dp None)").is_err());
    }

    #[test]
    fn a_prompt_has_an_image_only_where_its_row_says_so() {
        let us = |source: &str| {
            let row = point(
                "moonshotai/Kimi-K2.5",
                "4 (world 16, dp 4, ep 16)",
                "30",
                "forward time (prefill)",
                source,
            );
            forward(&row).unwrap().step_us(0, &crate::Stack::FITTED, crate::StackLaunching::Captured)
        };
        assert!(us("kimi-k2.5-1080p-prefill.json") > 5.0 * us("kimi-k2.5-prefill.json"));
    }

    #[test]
    fn a_mixture_is_not_priced_as_a_dense_model() {
        let of = |model: &str| RowModel::of(&point(model, "2", "64", "forward time (prefill)", ""));
        assert!(of("MiniCPM-8x2B").is_err());
        assert!(matches!(of("meta/Llama-3-8B"), Ok(RowModel::Dense(dense)) if dense.vocabulary == 128_256));
        let Ok(RowModel::Mixture(mixture)) = of("Qwen/Qwen3-30B-A3B") else { panic!("a mixture") };
        assert_eq!(mixture.experts, Experts { count: 128, chosen: 8, width: 768, shared_width: 0 });
        // All attention weights, 8 experts per layer, and the head.
        let pass = mixture.forward(
            Tokens { batch: 1, query: 1, context: 63 },
            1,
            ParallelSplit::tensor(1),
            ProductPrecision::Bits16,
        );
        let flops: f64 = pass
            .iter()
            .flat_map(|section| section.steps.iter().map(move |step| (section.repeats, step)))
            .filter_map(|(repeats, step)| match &step.task {
                WorkloadTask::Launch(launch) => Some(repeats as f64 * Work::of(launch).flops()),
                WorkloadTask::Exchange { .. } => None,
            })
            .sum();
        let (attention, experts) = (2048 * 128 * (2 * 32 + 2 * 4), 8 * 3 * 2048 * 768 + 2048 * 128_usize);
        let seen = 2 * 32 * 128 * 64;
        let expected = 2 * (48 * (attention + experts + seen) + 2048 * 151_936);
        assert!((flops / expected as f64 - 1.0).abs() < 1e-9, "{flops} {expected}");
    }
}
