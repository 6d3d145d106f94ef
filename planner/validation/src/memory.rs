//! Predicts card memory as servers report it: weights, KV cache and total.
//!
//! Servers print 2³⁰ bytes as GB. Rows with graphs and library memory are left out.

use ascend_tp_machine::Soc;

use super::forward::precision;
use crate::points::{Point, PublishedModel, machine, settings};
use crate::workload::ProductPrecision;
use ascend_tp_planner::decoder::Decoder;
use ascend_tp_planner::fit_memory::COMMUNICATOR_BYTES;

const GIB: f64 = (1_u64 << 30) as f64;

/// Memory of a server process without tensors and communicator buffers (0.13 GiB in vllm-ascend PR
/// 8289).
const CONTEXT_BYTES: f64 = 0.13 * GIB;

/// Defaults of vLLM (`max_num_batched_tokens`, `max_num_seqs`).
const TOKENS: f64 = 2048.0;
const SEQUENCES: f64 = 256.0;

pub(super) fn predict(point: &Point) -> Result<f64, &'static str> {
    settings::memory(point).map_err(|gap| gap.why)?;
    let unit = match point.text("unit") {
        "GiB" | "GB" => GIB,
        "MiB" | "MB" => (1_u64 << 20) as f64,
        "B" | "bytes" | "tokens" => 1.0,
        _ => return Err("unknown unit"),
    };
    let bytes = match point.text("metric") {
        "weights loaded" | "weights loaded per worker" | "weights" => weight_bytes(point)?,
        "total HBM" | "free HBM at start" => offered(point)?.hbm_usable_bytes() as f64,
        metric if metric.starts_with("requested (util ") => {
            let part = number_behind(metric, "util ").ok_or("the requested part of the card is not given")?;
            part * offered(point)?.hbm_usable_bytes() as f64
        }
        "peak activation" | "peak activation memory" => activation_bytes(point)?,
        "KV cache" | "available KV cache memory" => cache_bytes(point)?,
        "KV cache size" => {
            let tensor = tensor(point)?;
            let model = PublishedModel::of(point)?;
            let kv_heads = model.decoder.kv_heads;
            let heads = kv_heads.div_ceil(tensor) as f64 / kv_heads as f64;
            let bytes = match number_behind(point.text("setting"), "KV ") {
                Some(gib) => gib * GIB,
                None => cache_bytes(point)?,
            };
            bytes / (model.cache_bytes_per_token() as f64 * heads)
        }
        metric if metric.contains("in use") || metric.contains("peak") => {
            return Err("a training run; `plan --train` counts its bytes");
        }
        _ => return Err("memory of a server's graphs and libraries is not in the columns"),
    };
    Ok(bytes / unit)
}

/// Returns the chip, unless the row uses a part of a card.
fn offered(point: &Point) -> Result<Soc, &'static str> {
    let hardware = point.text("hardware");
    if hardware.contains("vNPU") {
        return Err("a part of a card");
    }
    machine(hardware).map(|(soc, _)| soc).ok_or("the machine has no cost model")
}

fn tensor(point: &Point) -> Result<usize, &'static str> {
    point.leading("tp").filter(|cards| *cards > 0).ok_or("the split is not given")
}

/// Only layers have 8-bit weights. Experts are distributed over their axis, or sharded over the
/// tensor axis.
fn weight_bytes(point: &Point) -> Result<f64, &'static str> {
    let (model, tensor) = (PublishedModel::of(point)?, tensor(point)?);
    if model.experts > 0 && model.expert_width.is_none() {
        return Err("a mixture of experts; sizes of experts are not in the columns");
    }
    let Decoder { layers, hidden, head_dim, kv_heads, .. } = model.decoder;
    let copied = 2 * layers * hidden * head_dim * (kv_heads.div_ceil(tensor) * tensor - kv_heads);
    let tables = model.decoder.table_parameters();
    let experts = model.expert_parameters() as f64 / point.leading("ep").unwrap_or(1).max(tensor) as f64;
    let layers = (model.parameters() - model.expert_parameters() - tables + copied) as f64;
    let each = match precision(point).ok_or("unknown precision")? {
        ProductPrecision::Bits16 => 2.0,
        ProductPrecision::W8A8 | ProductPrecision::W8A8Static => 1.0,
        ProductPrecision::W4A8 => return Err("the set of 4-bit weights is not in the columns"),
    };
    Ok(each * (layers / tensor as f64 + experts) + 2.0 * tables as f64 / tensor as f64)
}

/// The larger peak of a feed-forward layer and of all logits in 16 and 32 bits.
fn activation_bytes(point: &Point) -> Result<f64, &'static str> {
    let (decoder, tensor) = (PublishedModel::of(point)?.decoder, tensor(point)? as f64);
    let most = |words, usual| number_behind(point.text("setting"), words).unwrap_or(usual);
    let (tokens, sequences) = (most("max-num-batched-tokens ", TOKENS), most("max-num-seqs ", SEQUENCES));
    let inner = (decoder.intermediate * decoder.feed_forward.weights()) as f64 / tensor;
    let layer = 2.0 * tokens * (2.0 * decoder.hidden as f64 + inner);
    Ok(layer.max(6.0 * sequences * decoder.vocabulary as f64))
}

fn cache_bytes(point: &Point) -> Result<f64, &'static str> {
    let setting = point.text("setting");
    let part = ["gpu-memory-utilization ", "util "].iter().find_map(|words| number_behind(setting, words));
    let part = part.ok_or("the requested part of the card is not given")?;
    let asked = part * offered(point)?.hbm_usable_bytes() as f64;
    let communicators = if tensor(point)? > 1 { COMMUNICATOR_BYTES.0 as f64 } else { 0.0 };
    let left = asked - weight_bytes(point)? - activation_bytes(point)? - CONTEXT_BYTES - communicators;
    if left > 0.0 { Ok(left) } else { Err("the weights leave no memory for the KV cache") }
}

fn number_behind(text: &str, words: &str) -> Option<f64> {
    let (_, behind) = text.split_once(words)?;
    let digits: String =
        behind.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(
        model: &str,
        dtype: &str,
        tp: &str,
        setting: &str,
        metric: &str,
        unit: &str,
    ) -> Result<f64, &'static str> {
        let text = format!(
            "extra,value,unit,metric,setting,tp,dtype,model,hardware\n?,1,{unit},{metric},{setting},{tp},{dtype},{model},910B3\n"
        );
        predict(&Point::all(&text)[0])
    }

    #[test]
    fn weights_are_those_that_servers_report() {
        // vllm-ascend issue 9372 reports 27.5376.
        let whole = of("Qwen3-14B", "bf16", "1", "", "weights loaded", "GB").unwrap();
        assert!((whole / 27.5376 - 1.0).abs() < 0.003, "{whole}");
        assert!(
            (of("Qwen3-14B", "bf16", "4", "", "weights", "MiB").unwrap() / (256.0 * whole) - 1.0).abs()
                < 1e-12
        );
        // Sixteen cards hold each of the eight key heads twice.
        let sixteen = of("Qwen3-14B", "bf16", "16", "", "weights", "GiB").unwrap();
        let more = (40 * 2 * 8 * 128 * 5120 * 2) as f64 / f64::from(1 << 30) / 16.0;
        assert!((sixteen - whole / 16.0 - more).abs() < 1e-9, "{sixteen}");
        let narrow = of("Qwen3-14B", "w8a8", "1", "", "weights", "GB").unwrap();
        assert!(narrow > whole / 2.0 && narrow < 0.6 * whole);
        let mixture = of("Qwen3-30B-A3B", "bf16", "4", "", "weights", "GB").unwrap();
        assert!((4.0 * mixture * GIB / 2.0 / 30.53e9 - 1.0).abs() < 1e-3, "{mixture}");
        assert!(of("DeepSeek-V3-671B", "bf16", "16", "", "weights", "GB").unwrap_err().contains("mixture"));
    }

    #[test]
    fn keys_and_values_fill_what_is_left_for_them() {
        let tokens = |tp| of("Qwen3-32B", "bf16", tp, "KV 4 GiB fixed", "KV cache size", "tokens").unwrap();
        // 64 layers, 8 heads of 128 dims, keys and values, 2 bytes.
        assert_eq!(tokens("1"), f64::from(1_u32 << 31) * 2.0 / (64.0 * 8.0 * 128.0 * 2.0 * 2.0));
        assert_eq!((tokens("4"), tokens("16")), (4.0 * tokens("1"), 8.0 * tokens("1")));
    }

    /// A server of a 0.6 billion parameter model reported 0.22 GiB of activations and
    /// 57,403,864,576 bytes of KV cache at 0.9 of 64 GiB (vllm-ascend PR 8289).
    #[test]
    fn what_a_server_leaves_for_keys_is_what_one_reported() {
        let setting = "gpu-memory-utilization 0.9";
        let activation = of("Qwen3-0.6B", "bf16", "1", setting, "peak activation", "GiB").unwrap();
        assert!((activation - 0.22).abs() < 0.005, "{activation}");
        let cache = of("Qwen3-0.6B", "bf16", "1", setting, "KV cache", "B").unwrap();
        assert!((cache / 57_403_864_576.0 - 1.0).abs() < 0.01, "{cache}");
        let tokens = of("Qwen3-0.6B", "bf16", "1", setting, "KV cache size", "tokens").unwrap();
        assert_eq!(tokens, cache / (28 * 8 * 128 * 2 * 2) as f64);
        assert!(of("Qwen3-0.6B", "bf16", "1", "", "KV cache", "B").unwrap_err().contains("requested part"));
    }

    #[test]
    fn what_a_row_lacks_is_said() {
        assert!(of("Qwen3-32B", "bf16", "1", "", "graph", "GiB").unwrap_err().contains("graphs"));
        assert!(of("Qwen3-32B", "bf16", "", "", "weights", "GiB").unwrap_err().contains("split"));
        assert!(of("Qwen3-32B", "bf16", "1", "", "weights", "pages").unwrap_err().contains("unit"));
        let asked = of("?", "", "1", "", "requested (util 0.9)", "GiB").unwrap();
        assert!((asked / of("?", "", "1", "", "total HBM", "GiB").unwrap() - 0.9).abs() < 1e-12);
    }
}
