//! One forward step of a measured point, as a workload.
//!
//! Input → output: a [`Point`] → the cards and the [`Section`]s of the step. Numbers of sequences are of the whole run and
//! are shared out over its copies of the model.

use ascend_tp_machine::{Profile, Topology};

use super::super::workload::{
    Dense, FeedForward, HeadNorms, Precision, Residual, Split, Tokens, deepseek_v3_1, kimi_k2_5, moon_vit, qwen3_5_27b,
    qwen3_5_35b_a3b,
};
use super::hardware::machine;
use super::points::Point;
use super::stack::{Cards, StepWork};

/// Whether a row is one forward step.
pub(super) fn is_forward(point: &Point) -> bool {
    point.text("output_len") == "one forward step"
}

/// Sizes of the dense models of the points (`config.json` of each).
pub(super) fn dense(model: &str) -> Option<Dense> {
    let of = |hidden, layers, heads, intermediate| Dense {
        hidden,
        layers,
        heads,
        kv_heads: 8,
        head_dim: 128,
        intermediate,
        feed_forward: FeedForward::Gated,
        vocab: 151_936,
        head_norms: HeadNorms::Present,
    };
    let name = model.rsplit('/').next().unwrap_or(model);
    match name.trim_end_matches("-W8A8").trim_end_matches("-QuaRot") {
        "Qwen3-4B" => Some(of(2560, 36, 32, 9728)),
        "Qwen3-8B" => Some(of(4096, 36, 32, 12_288)),
        "Qwen3-32B" => Some(of(5120, 64, 64, 25_600)),
        _ => None,
    }
}

/// Precision of a row.
pub(super) fn precision(point: &Point) -> Option<Precision> {
    let text = point.text("dtype");
    match text {
        "bf16" | "fp16" | "DISABLED" => Some(Precision::Bits16),
        _ if text.starts_with("W8A8") => Some(Precision::W8A8),
        _ if text.starts_with("W4A8") => Some(Precision::W4A8),
        _ => None,
    }
}

/// The step of a row, or what is missing.
pub(super) fn forward(point: &Point) -> Result<StepWork, &'static str> {
    let (soc, topology) = machine(point.text("hardware")).ok_or("unknown machine")?;
    let topology = Topology::preset(topology).ok_or("unknown topology")?;
    let precision = precision(point).ok_or("unknown precision")?;
    let tensor = point.leading("tp").ok_or("the split is not given")?;
    let copies = point.inside("tp", "dp ").unwrap_or(1);
    let expert = point.inside("tp", "ep ").unwrap_or(1);
    let batch = point.leading("batch").ok_or("the batch is not given")?.div_ceil(copies);
    let length = point.leading("input_len").ok_or("the length is not given")?;
    let drafts = point.inside("note", "mtp=").or_else(|| point.inside("note", "MTP ")).unwrap_or(0);
    let is_decode = point.text("metric").contains("decode");
    let query = point.inside("note", "query_len=").unwrap_or(if is_decode { 1 + drafts } else { length });
    let tokens = Tokens { batch, query, context: if is_decode { length } else { 0 } };
    let split = Split { tensor, context: 1, expert, residual: Residual::Replicated };
    let model = point.text("model");
    let sections = if let Some(dense) = dense(model) {
        dense.forward(tokens, if is_decode { tokens.new_tokens() } else { batch }, split, precision)
    } else if model.contains("DeepSeek-V3.1") {
        deepseek_v3_1().forward(tokens, drafts, split, precision)
    } else if model.contains("Kimi-K2.5") {
        let decoder = kimi_k2_5();
        if is_decode {
            decoder.forward(tokens, drafts, split, precision)
        } else {
            // The prompt is an image of 1080 × 1920 pixels for each sequence (the case's `image_height`, `image_width`).
            let (tower, query) = (moon_vit(), moon_vit().tokens(1080, 1920));
            let mut sections = tower.forward(batch, query, decoder.hidden);
            sections.extend(decoder.forward(
                Tokens { query: tokens.query + query, ..tokens },
                drafts,
                split,
                precision,
            ));
            sections
        }
    } else if model.contains("Qwen3.5-27B") {
        qwen3_5_27b().forward(tokens, drafts, split, precision)
    } else if model.contains("Qwen3.5-35B-A3B") {
        qwen3_5_35b_a3b().forward(tokens, drafts, split, precision)
    } else {
        return Err("no workload for this architecture");
    };
    Ok(Cards { profile: Profile::of(soc), topology, tensor, expert }.work(&sections))
}
