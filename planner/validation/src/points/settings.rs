//! Checks whether a row gives all that a prediction needs.
//!
//! The checks do not depend on what is modelled: a complete row without a prediction counts against
//! the model.

use serde::Serialize;

use super::{Point, PublishedModel, dims, is_named, sizes};
use crate::workload::Published;

/// Why a row is not comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GapKind {
    /// The row measures something else.
    Other,
    /// A setting is missing.
    Setting,
}

/// A property that a row lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gap {
    /// Kind of the gap.
    pub kind: GapKind,
    /// Description, such as `the machine is not named`.
    pub why: &'static str,
}

const fn other(why: &'static str) -> Gap {
    Gap { kind: GapKind::Other, why }
}

const fn setting(why: &'static str) -> Gap {
    Gap { kind: GapKind::Setting, why }
}

const THRESHOLD: Gap = other("a threshold of continuous integration, not a measurement");
const FIGURE: Gap = setting("the figure is not a number above 0");
const MACHINE: Gap = setting("the machine is not named");
const SPLIT: Gap = setting("the split is not given");

fn need(holds: bool, otherwise: Gap) -> Result<(), Gap> {
    if holds { Ok(()) } else { Err(otherwise) }
}

/// Returns the first gap.
fn all<const COUNT: usize>(needs: [Result<(), Gap>; COUNT]) -> Result<(), Gap> {
    needs.into_iter().collect()
}

fn has_figure(point: &Point) -> bool {
    point.number("value").is_some_and(|value| value > 0.0)
}

/// A note tells if the machine of a row is a guess.
fn has_machine(point: &Point) -> bool {
    is_named(point.text("hardware")) && !point.text("note").contains("card read as")
}

pub(crate) fn operator(point: &Point) -> Result<(), Gap> {
    // Kernels of frameworks that are named like CANN's.
    const OTHERS: [&str; 13] = [
        "pto",
        "tilelang",
        "sample",
        "triton",
        "deepep",
        "then",
        "half-k",
        "matmul+",
        "+matmul",
        "turboquant",
        "dispatch",
        "sparse",
        "primitives",
    ];
    let operator = point.text("operator").to_lowercase();
    let (shape, note) = (point.text("shape"), point.text("note"));
    let is_partial = ["few cores", "(aic_time)", " of 20 cores"].iter().any(|words| note.contains(words))
        || point.text("metric").contains("MTE2");
    let is_exchange = point.leading("ranks").unwrap_or(1) > 1
        && ["bytes", "block ", "benchmark maximum"].iter().any(|words| shape.contains(words));
    let is_sized =
        is_exchange || !sizes(shape).is_empty() || dims(shape).is_some_and(|dims| !dims.contains(&0));
    all([
        need(!point.text("quality").contains("ci"), THRESHOLD),
        need(
            !OTHERS.iter().any(|word| operator.contains(word)),
            other("a kernel that is not CANN's, or several in one"),
        ),
        need(
            !point.text("hardware").contains("guide case"),
            other("an example of a guide, not a library's kernel"),
        ),
        need(!is_partial, other("a kernel on some of the cores")),
        need(has_machine(point), MACHINE),
        need(has_figure(point), FIGURE),
        need(is_sized, setting("the sizes, the bytes or the ranks are not given")),
    ])
}

fn model(point: &Point) -> Result<(), Gap> {
    let name = point.text("model").rsplit('/').next().unwrap_or_default();
    if Published::of(name).is_some() {
        return Ok(());
    }
    PublishedModel::of(point).map(|_| ()).map_err(setting)
}

pub(crate) fn inference(point: &Point) -> Result<(), Gap> {
    const SPECULATION: [&str; 4] =
        ["speculative decoding on", "speculative drafting", "EAGLE3", "MTP setting in page"];
    let note = point.text("note");
    let given = |name| point.number(name).is_some_and(|value| value > 0.0);
    // The output length affects neither the time of one token at a context nor the first token.
    let metric = point.text("metric");
    let is_first = metric.contains("TTFT");
    let is_instant = is_first || matches!(metric, "TPOT" | "decode rate per user");
    // A layer waits mostly for the host.
    let is_layer = metric.ends_with("in one layer") || metric.ends_with("of one layer");
    let is_step = is_layer || point.text("output_len") == "one forward step";
    let has_output = given("output_len") || is_instant && point.text("output_len").is_empty();
    // With several prompts, first tokens depend on each other.
    let is_alone = point.number("batch") == Some(1.0);
    all([
        need(point.text("quality") != "ci-baseline", THRESHOLD),
        need(has_machine(point), MACHINE),
        need(has_figure(point), FIGURE),
        need(
            is_step || !SPECULATION.iter().any(|words| note.contains(words)),
            setting("speculation without the acceptance rate"),
        ),
        need(
            is_step || given("batch") || point.text("batch").contains("per instance"),
            setting("the batch is not given"),
        ),
        need(
            !note.contains("by Little's law"),
            setting("the batch follows from the measured times, at a rate of requests"),
        ),
        need(
            is_step || given("input_len") && !note.contains("length of the prompt is not stated"),
            setting("the input's length is not given"),
        ),
        need(is_step || has_output, setting("the output's length is not given")),
        need(!is_first || is_alone, setting("when the prompts arrive is not given")),
        need(point.leading("tp").is_some_and(|cards| cards > 0), SPLIT),
        need(!["", "see page"].contains(&point.text("dtype")), setting("the precision is not given")),
    ])?;
    model(point)
}

pub(crate) fn training(point: &Point) -> Result<(), Gap> {
    let note = point.text("note");
    let cards = |name| point.leading(name).is_some_and(|cards| cards > 0);
    all([
        need(
            !note.contains("SUSPECT"),
            other("impossible as printed: needs more than twice the chip's rate"),
        ),
        need(!note.contains("same number as RC3"), other("the same measurement as the row of RC3")),
        need(has_machine(point), MACHINE),
        need(has_figure(point), FIGURE),
        need(["cards", "tp", "pp"].into_iter().all(cards) && (cards("dp") || cards("cp")), SPLIT),
        need(
            !point.text("script").is_empty(),
            setting("no script: recomputation and sharding over the copies are not stated"),
        ),
        need(!note.contains("dynamic length"), setting("sequence lengths are not given")),
        need(
            ["seq", "mbs", "gbs"].into_iter().all(cards),
            setting("sequence, micro-batch or batch is not given"),
        ),
    ])?;
    model(point)
}

pub(crate) fn memory(point: &Point) -> Result<(), Gap> {
    let (metric, text) = (point.text("metric"), point.text("setting"));
    let is_offer =
        matches!(metric, "total HBM" | "free HBM at start") || metric.starts_with("requested (util ");
    let is_training = text.contains("training") || text.contains("tuning") || text.contains("mbs");
    let names = |words: &[&str]| words.iter().any(|words| text.contains(words));
    // A server's KV cache gets the requested memory minus the rest.
    let is_state = !["saved", "allocated"].iter().any(|words| metric.contains(words));
    let is_cache = metric.contains("in use") || metric.contains("KV cache") && !text.contains("KV ");
    all([
        need(has_machine(point), MACHINE),
        need(has_figure(point), FIGURE),
        need(is_state, other("a difference between two runs, or memory of a process that serves nothing")),
        need(
            !is_training || names(&["recompute"]),
            setting("micro-batch, recomputation or sharding over the copies is not given"),
        ),
        need(
            !point.text("hardware").contains("vNPU") || metric.contains("weights"),
            setting("the part of the card in use is not given"),
        ),
        need(!is_cache || names(&["util"]), setting("the requested part of the card is not given")),
        need(
            !["graph", "non-torch"].iter().any(|kind| metric.contains(kind)),
            setting("the captured graphs and the loaded libraries are not given"),
        ),
        need(is_offer || point.leading("tp").is_some_and(|cards| cards > 0), SPLIT),
    ])?;
    if is_offer { Ok(()) } else { model(point) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: &[(&str, &str)]) -> Point {
        let (names, values): (Vec<&str>, Vec<String>) =
            columns.iter().map(|(name, value)| (*name, format!("\"{value}\""))).unzip();
        Point::all(&format!("{}\n{}\n", names.join(","), values.join(",")))[0].clone()
    }

    fn changed(
        whole: &[(&'static str, &'static str)],
        check: fn(&Point) -> Result<(), Gap>,
        changes: &[(&'static str, &'static str)],
    ) -> Option<Gap> {
        let mut columns = whole.to_vec();
        for change in changes {
            let place = columns.iter().position(|(name, _)| *name == change.0).unwrap();
            columns[place] = *change;
        }
        check(&row(&columns)).err()
    }

    #[test]
    fn serving_needs_what_a_prediction_is_made_of() {
        const WHOLE: [(&str, &str); 11] = [
            ("hardware", "910B3"),
            ("model", "Qwen3-32B"),
            ("dtype", "bf16"),
            ("tp", "4"),
            ("batch", "8"),
            ("input_len", "512"),
            ("output_len", "64"),
            ("metric", "TPOT"),
            ("value", "40"),
            ("quality", "measured-doc"),
            ("note", ""),
        ];
        let gap = |changes: &[(&'static str, &'static str)]| changed(&WHOLE, inference, changes);
        assert_eq!(gap(&[]), None);
        // A stack that the model lacks is not a gap.
        assert_eq!(gap(&[("note", "lmdeploy eager")]), None);
        assert_eq!(gap(&[("output_len", "")]), None, "a time of one token");
        assert_eq!(gap(&[("quality", "ci-baseline")]).unwrap().kind, GapKind::Other);
        for (column, value, why) in [
            ("hardware", "a card", "machine"),
            ("model", "see issue", "sizes of the model"),
            ("dtype", "", "precision"),
            ("tp", "", "split"),
            ("batch", "high concurrency", "batch"),
            ("input_len", "short", "input"),
            ("value", "20+", "figure"),
            ("note", "EAGLE3 speculation", "acceptance"),
        ] {
            let found = gap(&[(column, value)]).unwrap();
            assert!(found.kind == GapKind::Setting && found.why.contains(why), "{column}: {found:?}");
        }
        assert!(gap(&[("output_len", ""), ("metric", "output throughput")]).unwrap().why.contains("output"));
        assert!(gap(&[("metric", "TTFT")]).unwrap().why.contains("arrive"));
        assert_eq!(gap(&[("metric", "TTFT"), ("batch", "1"), ("output_len", "")]), None);
    }

    #[test]
    fn training_needs_a_split_a_batch_and_a_script() {
        const WHOLE: [(&str, &str); 14] = [
            ("hardware", "910B"),
            ("model", "Mixtral-8x7B"),
            ("cards", "64"),
            ("tp", "8"),
            ("pp", "4"),
            ("dp", "2"),
            ("cp", ""),
            ("seq", "4096"),
            ("mbs", "1"),
            ("gbs", "128"),
            ("value", "700"),
            ("script", "a.sh"),
            ("ep", "1"),
            ("note", ""),
        ];
        let gap = |changes: &[(&'static str, &'static str)]| changed(&WHOLE, training, changes);
        assert_eq!(gap(&[]), None, "a mixture says all, whether the planner trains it or not");
        assert_eq!(gap(&[("note", "SUSPECT")]).unwrap().kind, GapKind::Other);
        for (column, why) in [("dp", "split"), ("tp", "split"), ("script", "script"), ("mbs", "micro-batch")]
        {
            let found = gap(&[(column, "")]).unwrap();
            assert!(found.kind == GapKind::Setting && found.why.contains(why), "{column}: {found:?}");
        }
    }

    #[test]
    fn operators_need_sizes_and_are_of_the_library() {
        const WHOLE: [(&str, &str); 8] = [
            ("hardware", "910B3"),
            ("operator", "addmv (torch_npu)"),
            ("shape", "64x64"),
            ("ranks", "1"),
            ("value", "3"),
            ("quality", "measured-doc"),
            ("unit", "us"),
            ("note", ""),
        ];
        let gap = |changes: &[(&'static str, &'static str)]| changed(&WHOLE, operator, changes);
        assert_eq!(gap(&[]), None, "whether its work is known or not");
        assert!(gap(&[("shape", "mean over all shapes")]).unwrap().why.contains("sizes"));
        assert_eq!(gap(&[("operator", "all_reduce"), ("shape", "1024 bytes"), ("ranks", "8")]), None);
        for change in [("operator", "matmul (tilelang)"), ("quality", "ci-baseline"), ("note", "(aic_time)")]
        {
            assert_eq!(gap(&[change]).unwrap().kind, GapKind::Other, "{change:?}");
        }
    }

    #[test]
    fn memory_needs_what_takes_it() {
        const WHOLE: [(&str, &str); 7] = [
            ("hardware", "910B3"),
            ("model", "Qwen3-14B"),
            ("dtype", "bf16"),
            ("tp", "1"),
            ("setting", "gpu-memory-utilization 0.9"),
            ("metric", "KV cache"),
            ("value", "1"),
        ];
        let gap = |changes: &[(&'static str, &'static str)]| changed(&WHOLE, memory, changes);
        assert_eq!(gap(&[]), None);
        assert!(gap(&[("setting", "eager")]).unwrap().why.contains("requested part"));
        assert!(gap(&[("setting", "training mbs 1")]).unwrap().why.contains("recomputation"));
        assert!(gap(&[("metric", "graph")]).unwrap().why.contains("graphs"));
        assert_eq!(gap(&[("metric", "total HBM"), ("model", "?"), ("setting", "")]), None);
    }
}
