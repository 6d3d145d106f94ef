//! Rows of a card's memory: what a server reports of weights, of keys and values, and of what the card offers.
//!
//! Input → output: a [`Point`] → the figure in its unit, or what is missing. Servers print units of 2³⁰ bytes as GB. What a
//! server takes beside weights and keys (graphs, workspaces, the largest activations) is in no column, so rows of it are left
//! out; of this project's own programs it is counted, see [`crate::fit_memory`].

use ascend_tp_machine::Soc;

use super::super::workload::Precision;
use super::forward::precision;
use super::hardware::machine;
use crate::points::{Model, Point};

/// The figure of a row.
pub(super) fn predict(point: &Point) -> Result<f64, &'static str> {
    let unit = match point.text("unit") {
        "GiB" | "GB" => (1_u64 << 30) as f64,
        "MiB" | "MB" => (1_u64 << 20) as f64,
        "B" | "bytes" | "tokens" => 1.0,
        _ => return Err("unknown unit"),
    };
    let bytes = match point.text("metric") {
        "weights loaded" | "weights loaded per worker" | "weights" => weight_bytes(point)?,
        "total HBM" | "free HBM at start" => offered(point)?.hbm_usable_bytes() as f64,
        metric if metric.starts_with("requested (util ") => {
            let part = number_behind(metric, "util ").ok_or("the part that is requested is not given")?;
            part * offered(point)?.hbm_usable_bytes() as f64
        }
        "KV cache size" => {
            let gib =
                number_behind(point.text("setting"), "KV ").ok_or("what is left for keys and values is not given")?;
            let tensor = tensor(point)?;
            let model = Model::of(point)?;
            let heads = model.kv_heads.div_ceil(tensor) as f64 / model.kv_heads as f64;
            gib * (1_u64 << 30) as f64 / (model.cache_bytes_per_token() as f64 * heads)
        }
        _ => return Err("what a server keeps beside weights, keys and values is not in the columns"),
    };
    Ok(bytes / unit)
}

/// The chip of a row that is a whole card.
fn offered(point: &Point) -> Result<Soc, &'static str> {
    let hardware = point.text("hardware");
    if hardware.contains("vNPU") {
        return Err("a part of a card");
    }
    machine(hardware).map(|(soc, _)| soc).ok_or("unknown machine")
}

fn tensor(point: &Point) -> Result<usize, &'static str> {
    point.leading("tp").filter(|cards| *cards > 0).ok_or("the split is not given")
}

/// Weights of a dense decoder on one of the cards that share it: 8-bit ones in the layers alone.
fn weight_bytes(point: &Point) -> Result<f64, &'static str> {
    let (model, tensor) = (Model::of(point)?, tensor(point)?);
    if model.experts > 0 {
        return Err("a mixture of experts; sizes of experts are not in the columns");
    }
    let tables = if model.is_tied { 1 } else { 2 } * model.vocabulary * model.hidden;
    let copied =
        2 * model.layers * model.hidden * model.head_dim * (model.kv_heads.div_ceil(tensor) * tensor - model.kv_heads);
    let layers = model.parameters() - tables + copied;
    let each = match precision(point).ok_or("unknown precision")? {
        Precision::Bits16 => 2.0,
        Precision::W8A8 => 1.0,
        Precision::W4A8 => return Err("which weights have 4 bits is not in the columns"),
    };
    Ok((each * layers as f64 + 2.0 * tables as f64) / tensor as f64)
}

/// The number behind some words of a text.
fn number_behind(text: &str, words: &str) -> Option<f64> {
    let (_, behind) = text.split_once(words)?;
    let digits: String = behind.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(model: &str, dtype: &str, tp: &str, setting: &str, metric: &str, unit: &str) -> Result<f64, &'static str> {
        let text = format!(
            "extra,unit,metric,setting,tp,dtype,model,hardware\n?,{unit},{metric},{setting},{tp},{dtype},{model},910B3\n"
        );
        predict(&Point::all(&text)[0])
    }

    #[test]
    fn weights_are_those_that_servers_report() {
        // 27.5376 of vllm-ascend issue 9372.
        let whole = of("Qwen3-14B", "bf16", "1", "", "weights loaded", "GB").unwrap();
        assert!((whole / 27.5376 - 1.0).abs() < 0.003, "{whole}");
        assert!((of("Qwen3-14B", "bf16", "4", "", "weights", "MiB").unwrap() / (256.0 * whole) - 1.0).abs() < 1e-12);
        // Sixteen cards have twice the eight key heads.
        let sixteen = of("Qwen3-14B", "bf16", "16", "", "weights", "GiB").unwrap();
        let more = (40 * 2 * 8 * 128 * 5120 * 2) as f64 / f64::from(1 << 30) / 16.0;
        assert!((sixteen - whole / 16.0 - more).abs() < 1e-9, "{sixteen}");
        let narrow = of("Qwen3-14B", "w8a8", "1", "", "weights", "GB").unwrap();
        assert!(narrow > whole / 2.0 && narrow < 0.6 * whole);
        assert!(of("Qwen3-30B-A3B", "bf16", "1", "", "weights", "GB").unwrap_err().contains("mixture"));
    }

    #[test]
    fn keys_and_values_fill_what_is_left_for_them() {
        let tokens = |tp| of("Qwen3-32B", "bf16", tp, "KV 4 GiB fixed", "KV cache size", "tokens").unwrap();
        // 64 layers, 8 heads of 128, keys and values, 2 bytes.
        assert_eq!(tokens("1"), f64::from(1_u32 << 31) * 2.0 / (64.0 * 8.0 * 128.0 * 2.0 * 2.0));
        assert_eq!((tokens("4"), tokens("16")), (4.0 * tokens("1"), 8.0 * tokens("1")));
    }

    #[test]
    fn what_a_row_lacks_is_said() {
        assert!(of("Qwen3-32B", "bf16", "1", "", "graph", "GiB").unwrap_err().contains("beside"));
        assert!(of("Qwen3-32B", "bf16", "", "", "weights", "GiB").unwrap_err().contains("split"));
        assert!(of("Qwen3-32B", "bf16", "1", "", "weights", "pages").unwrap_err().contains("unit"));
        let asked = of("?", "", "1", "", "requested (util 0.9)", "GiB").unwrap();
        assert!((asked / of("?", "", "1", "", "total HBM", "GiB").unwrap() - 0.9).abs() < 1e-12);
    }
}
