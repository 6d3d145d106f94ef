//! Rows of single operators and collectives.
//!
//! A [`Point`] from `operators_measured.csv` becomes a [`MeasuredOperator`].

use std::collections::BTreeMap;

use ascend_tp_machine::launch::Access;
use ascend_tp_machine::work::WorkKind;
use ascend_tp_machine::{Element, Exchange, Launch, LaunchOperand, Soc, Topology, Work};
use ascend_tp_planner::calibrate::{Sample, SampleKind, SampleTask};

use super::{Class, Subclass};
use crate::points::{Point, dims, machine, settings, sizes};

/// A row of a single operator or collective.
#[derive(Debug, Clone)]
pub(crate) struct MeasuredOperator {
    pub(super) sample: Sample,
    pub(super) part: Option<Subclass>,
    unit: FigureUnit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PointTiming {
    /// Kernel time of the profiler, or time between events of a replayed graph.
    Kernel,
    /// A framework's layer call with all its kernels.
    Layer,
    /// Consecutive framework calls, each launched by the host.
    Issued,
}

#[derive(Debug, Clone, Copy)]
enum FigureUnit {
    Times(f64),
    Rate(f64),
}

/// Microseconds that frameworks add to kernels: per layer call of fused attention with its cache
/// writes, and at least between two Python calls (measured: `GroundUpScale`, issues 25 and 31).
/// Rows determine the first only as a sum with the kernel's minimum time.
const ATTENTION_LAYER_US: f64 = 33.0;
const ISSUE_US: f64 = 16.0;

impl MeasuredOperator {
    pub(super) fn figure(&self, us: f64) -> f64 {
        match self.unit {
            FigureUnit::Times(factor) => us / factor,
            FigureUnit::Rate(work) => work / us,
        }
    }

    pub(super) fn of(point: &Point) -> Result<Self, &'static str> {
        settings::operator(point).map_err(|gap| gap.why)?;
        let operator = point.text("operator").to_lowercase();
        let (soc, preset) = machine(point.text("hardware")).ok_or("the machine has no cost model")?;
        let value =
            point.number("value").filter(|value| *value > 0.0).ok_or("the figure is not a number above 0")?;
        let topology = Topology::preset(preset).ok_or("unknown topology")?;
        let (kind, task, amount) = task(point, &operator, topology)?;
        let unit = match point.text("unit") {
            "us" => FigureUnit::Times(1.0),
            "ms" => FigureUnit::Times(1e3),
            "s" => FigureUnit::Times(1e6),
            "TFLOP/s" | "TOP/s" => FigureUnit::Rate(amount / 1e6),
            "GB/s" => FigureUnit::Rate(amount / 1e3),
            _ => return Err("unknown unit"),
        };
        let measured_us = match unit {
            FigureUnit::Times(factor) => value * factor,
            FigureUnit::Rate(work) => work / value,
        };
        let (added_us, least_us) = match (timing(point, &operator), kind) {
            (PointTiming::Layer, SampleKind::Attention) => (ATTENTION_LAYER_US, 0.0),
            (PointTiming::Issued, _) => (0.0, ISSUE_US),
            (_, SampleKind::Collectives) => (0.0, call_us(point)),
            _ => (0.0, 0.0),
        };
        let page = point.text("source").to_owned();
        let part = part(&task);
        Ok(Self {
            part,
            sample: Sample { kind, page, soc, task, added_us, least_us, measured_us, weight: 1.0 },
            unit,
        })
    }
}

pub(super) fn class(point: &Point) -> Class {
    let operator = point.text("operator").to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| operator.contains(word));
    if exchange(&operator).is_some() || has(&["hccl", "hcom", "dispatch", "combine"]) {
        Class::Collectives
    } else if has(&["attention", "mla"]) {
        Class::Attention
    } else if has(&["group", "moe"]) {
        Class::Grouped
    } else if has(&["matmul", "linear"]) {
        Class::Products
    } else {
        Class::Vectors
    }
}

/// Least time between two calls of a collective on hosts where a row states it.
fn call_us(point: &Point) -> f64 {
    point.inside("note", "the floor of a call on this host is about ").map_or(0.0, |us| us as f64)
}

/// Returns the part of a class that a task belongs to.
fn part(task: &SampleTask) -> Option<Subclass> {
    match task {
        SampleTask::Exchange { bytes, .. } => (*bytes >= 1e6).then_some(Subclass::Collectives1Mb),
        SampleTask::Kernels(works) => match (works.first()?.kind, works.first()?.element) {
            (WorkKind::Product, Element::F16 | Element::Bf16) => Some(Subclass::Products16Bit),
            (WorkKind::Product, Element::I8) => Some(Subclass::Products8Bit),
            (WorkKind::Attention { is_prompt: true, .. }, _) => Some(Subclass::AttentionPrefill),
            (WorkKind::Attention { is_prompt: false, .. }, _) => Some(Subclass::AttentionDecode),
            _ => None,
        },
    }
}

/// Returns the part of a row that has no sample.
pub(super) fn part_of_text(point: &Point) -> Option<Subclass> {
    let operator = point.text("operator").to_lowercase();
    match (class(point), element(point.text("dtype"))) {
        (Class::Products, Some(Element::F16 | Element::Bf16)) => Some(Subclass::Products16Bit),
        (Class::Products, Some(Element::I8)) => Some(Subclass::Products8Bit),
        (Class::Attention, _) if operator.contains("prefill") => Some(Subclass::AttentionPrefill),
        (Class::Attention, _) if operator.contains("decode") => Some(Subclass::AttentionDecode),
        _ => None,
    }
}

fn timing(point: &Point, operator: &str) -> PointTiming {
    let metric = point.text("metric");
    if ["kernel time", "device time", "task", "median duration", "mean duration"]
        .iter()
        .any(|word| metric.contains(word))
    {
        PointTiming::Kernel
    } else if operator.contains("eager") || operator.starts_with("torch.matmul") {
        PointTiming::Issued
    } else {
        PointTiming::Layer
    }
}

/// Kind, task, and the operations or bytes that a rate counts.
fn task(
    point: &Point,
    operator: &str,
    topology: Topology,
) -> Result<(SampleKind, SampleTask, f64), &'static str> {
    const NO_SIZES: &str = "the sizes are not given";
    let (shape, element) = (point.text("shape"), element(point.text("dtype")));
    let sizes = sizes(shape);
    let size = |name: &str| sizes.get(name).copied().filter(|size| *size > 0);
    let has = |words: &[&str]| words.iter().any(|word| operator.contains(word));
    let kernels = |kind, works: Vec<Work>| {
        let flops = works.iter().map(Work::flops).sum();
        Ok((kind, SampleTask::Kernels(works), flops))
    };
    if let Some(exchange) = exchange(operator) {
        let (bytes, cards) =
            exchanged(point, exchange).ok_or("several copies in flight, or bytes in words")?;
        // On an Atlas A2 the host prepares exchanges, unless it is told otherwise.
        let by_copies = topology.name == "atlas-a2" && !point.text("note").contains("AIV");
        let task = SampleTask::Exchange { exchange, bytes, topology, cards, by_copies };
        return Ok((SampleKind::Collectives, task, bytes));
    }
    let element = element.ok_or("unknown element type");
    let narrow = operator.contains("int4").then_some(Element::I4);
    if has(&["attention"]) {
        return kernels(SampleKind::Attention, vec![attention(point, operator, &sizes, element?)?]);
    }
    if has(&["moe experts"]) {
        let all = ["tokens", "hidden", "inter", "experts", "topk", "local"].map(size);
        let [Some(tokens), Some(hidden), Some(inter), Some(all), Some(chosen), Some(local)] = all else {
            return Err(NO_SIZES);
        };
        let sizes = ExpertLayer { tokens, hidden, inter, all, chosen, local };
        return kernels(SampleKind::Grouped, experts(element?, &sizes));
    }
    if has(&["grouped"]) {
        return Err("the sizes of the groups are not given");
    }
    if has(&["batched matmul"]) {
        let operands = batched(shape, element?).ok_or(NO_SIZES)?;
        let work = Work::of(&Launch { operator: "aclnnBatchMatMul", operands });
        return kernels(SampleKind::Batched, vec![repeated(work, 1.0)]);
    }
    if has(&["matmul", "linear"]) || operator.starts_with("mm") {
        let (Some(m), Some(k), Some(n)) = (size("M"), size("K"), size("N")) else { return Err(NO_SIZES) };
        let element = element?;
        let work = Work::of(&Launch { operator: "aclnnMatmul", operands: product(element, m, k, n) });
        let mut works = vec![repeated(work, copies(operator, point.text("note")))];
        // A layer quantises its rows in a separate kernel.
        if element == Element::I8 && has(&["dynamic quantised"]) {
            works.push(vector("aclnnDynamicQuant", Element::Bf16, None, &[m, k]));
        }
        let kind = if element == Element::I8 { SampleKind::Products8Bit } else { SampleKind::Products };
        return kernels(kind, works);
    }
    let aclnn = vector_operator(operator).ok_or("an operator without a known workload")?;
    let dims = dims(shape).filter(|dims| !dims.contains(&0)).ok_or(NO_SIZES)?;
    let element = element?;
    let mut works = vec![vector(aclnn, element, narrow, &dims)];
    if operator.contains("gemma") {
        // This norm stores its weight minus 1, and torch adds 1 in a separate kernel.
        works.push(vector("aclnnAdds", element, None, &dims[dims.len() - 1..]));
    }
    kernels(SampleKind::Vectors, works)
}

fn element(text: &str) -> Option<Element> {
    const ELEMENTS: [(&str, Element); 8] = [
        ("bf16", Element::Bf16),
        ("fp16", Element::F16),
        ("half", Element::F16),
        ("fp32", Element::F32),
        ("hf32", Element::F32),
        ("int8", Element::I8),
        ("w8a8", Element::I8),
        ("int4", Element::I4),
    ];
    ELEMENTS.iter().find(|(name, _)| text.starts_with(name)).map(|(_, element)| *element)
}

/// Weights that a benchmark rotates to avoid cache hits: `six weights rotated`.
fn copies(operator: &str, note: &str) -> f64 {
    // In a step, other weights replace those of a product.
    if ["served model", "bench loop", "qwen3-32b", "qwq-32b"].iter().any(|words| operator.contains(words)) {
        return f64::INFINITY;
    }

    const NUMBERS: [&str; 9] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    let Some((before, _)) = note.split_once(" weights rotated") else { return 1.0 };
    let word = before.rsplit(' ').next().unwrap_or_default();
    let named = NUMBERS.iter().position(|number| *number == word).map(|index| index as f64 + 1.0);
    named.or_else(|| word.parse().ok()).unwrap_or(1.0)
}

/// Benchmarks repeat calls. All chips in rows have this cache size.
fn repeated(work: Work, copies: f64) -> Work {
    work.repeated(copies, Soc::Ascend910B2.l2_bytes() as f64)
}

fn product(element: Element, m: usize, k: usize, n: usize) -> Vec<LaunchOperand> {
    let out = if element == Element::F32 { Element::F32 } else { Element::Bf16 };
    vec![
        LaunchOperand::dense(element, [m, k], Access::Read),
        LaunchOperand::dense(element, [k, n], Access::Read),
        LaunchOperand::dense(out, [m, n], Access::Write),
    ]
}

/// Parses `128 products of 16x512 by 512x128`.
fn batched(shape: &str, element: Element) -> Option<Vec<LaunchOperand>> {
    let (before, behind) = shape.split_once(" products of ")?;
    let count: usize = before.rsplit(' ').next()?.parse().ok()?;
    let mut words = behind.split(' ');
    let (left, by, right) = (words.next()?, words.next()?, words.next()?);
    let ([m, k], [inner, n]) = (dims(left)?.try_into().ok()?, dims(right)?.try_into().ok()?);
    let matches = by == "by" && k == inner && count > 0;
    let operand = |dims: [usize; 2], access| LaunchOperand::dense(element, [count, dims[0], dims[1]], access);
    matches.then(|| {
        vec![operand([m, k], Access::Read), operand([k, n], Access::Read), operand([m, n], Access::Write)]
    })
}

/// Positions of each sequence.
fn positions(sizes: &BTreeMap<&str, usize>) -> Option<usize> {
    first(sizes, &["seq", "S_kv", "S1", "kv"])
}

/// Queries of each sequence. A prompt without a stated number has as many as positions.
fn queries(operator: &str, sizes: &BTreeMap<&str, usize>) -> Result<usize, &'static str> {
    let of_name = || match (operator.contains("prefill"), operator.contains("decode")) {
        (true, _) => positions(sizes),
        (_, true) => Some(1),
        _ => None,
    };
    first(sizes, &["S_q", "S0"]).or_else(of_name).ok_or("the number of queries is not given")
}

fn first(sizes: &BTreeMap<&str, usize>, names: &[&str]) -> Option<usize> {
    names.iter().find_map(|name| sizes.get(name).copied()).filter(|size| *size > 0)
}

fn attention(
    point: &Point,
    operator: &str,
    sizes: &BTreeMap<&str, usize>,
    element: Element,
) -> Result<Work, &'static str> {
    const NO_SIZES: &str = "the sizes of the attention are not given";
    let (shape, note) = (point.text("shape"), point.text("note"));
    let first = |names: &[&str]| first(sizes, names);
    let heads = first(&["heads"]).or_else(|| shape.contains("one head").then_some(1)).ok_or(NO_SIZES)?;
    let positions = positions(sizes).ok_or(NO_SIZES)?;
    let query = queries(operator, sizes)?;
    let key_heads = first(&["kv_heads"]).unwrap_or(heads);
    let width = first(&["head_dim", "D", "qk_dim"]).ok_or(NO_SIZES)?;
    let value_width = first(&["v_dim"]).unwrap_or(width);
    let batch = first(&["batch", "B"]).unwrap_or(1);
    let rows = |tokens: usize, heads: usize, width: usize, access| {
        LaunchOperand::dense(element, [batch, tokens, heads, width], access)
    };
    let mut operands = vec![
        rows(query, heads, width, Access::Read),
        rows(positions, key_heads, width, Access::Read),
        rows(positions, key_heads, value_width, Access::Read),
    ];
    let is_causal =
        [operator, note].iter().any(|text| text.contains("causal") && !text.contains("not causal"));
    if is_causal {
        operands.push(LaunchOperand::dense(Element::I8, [2048, 2048], Access::Read));
    }
    operands.push(rows(query, heads, value_width, Access::Write));
    Ok(repeated(Work::of(&Launch { operator: "aclnnFusedInferAttentionScoreV2", operands }), 1.0))
}

/// Sizes of an expert layer with `local` experts per card.
struct ExpertLayer {
    tokens: usize,
    hidden: usize,
    inter: usize,
    all: usize,
    chosen: usize,
    local: usize,
}

/// The kernels after sorting the rows: both products and the gate, quantisation for 8 bits, and the
/// sum over each token's experts. Rows of other cards' experts are zeroed first.
fn experts(element: Element, sizes: &ExpertLayer) -> Vec<Work> {
    let &ExpertLayer { tokens, hidden, inter, all, chosen, local } = sizes;
    let every = tokens * chosen;
    let rows = ((every * local) as f64 / all as f64).round().max(1.0) as usize;
    let weight_bytes = element.bytes((3 * hidden * inter * local) as f64);
    let grouped = |k: usize, n: usize| {
        let operands = vec![
            LaunchOperand::dense(element, [rows, k], Access::Read),
            LaunchOperand::dense(element, [local, k, n], Access::Read),
            LaunchOperand::dense(Element::Bf16, [rows, n], Access::Write),
        ];
        // The weights of both products share the cache.
        let turns = weight_bytes / element.bytes((k * n * local) as f64);
        repeated(Work::of(&Launch { operator: "aclnnGroupedMatmulV4", operands }), turns)
    };
    let one = |operator, dims: [usize; 2]| vector(operator, Element::Bf16, None, &dims);
    let moved = |operator, read: Option<usize>, written: usize| {
        let read = read.map(|rows| LaunchOperand::dense(Element::Bf16, [rows, hidden], Access::Read));
        let written = LaunchOperand::dense(Element::Bf16, [written, hidden], Access::Write);
        Work::of(&Launch { operator, operands: read.into_iter().chain([written]).collect() })
    };
    let mut works = Vec::new();
    if element == Element::I8 {
        works.extend([one("aclnnInplaceCopy", [rows, hidden]), one("aclnnDynamicQuant", [rows, hidden])]);
    }
    works.extend([grouped(hidden, 2 * inter), one("aclnnSwiGlu", [rows, 2 * inter])]);
    if element == Element::I8 {
        works.push(one("aclnnDynamicQuant", [rows, inter]));
    }
    works.push(grouped(inter, hidden));
    if local < all {
        works.extend([moved("aclnnInplaceZero", None, every), moved("aclnnInplaceCopy", Some(rows), rows)]);
    }
    works.push(moved("aclnnMoeTokenUnpermute", Some(every), tokens));
    works
}

/// The first word of a name decides.
fn vector_operator(operator: &str) -> Option<&'static str> {
    const OPERATORS: [(&str, &str); 22] = [
        ("swiglu", "aclnnSwiGlu"),
        ("addrmsnorm", "aclnnAddRmsNorm"),
        ("addrmsnormbias", "aclnnAddRmsNorm"),
        ("addrmsnormdynamicquant", "aclnnAddRmsNormDynamicQuant"),
        ("rmsnorm", "aclnnRmsNorm"),
        ("layernorm", "aclnnLayerNorm"),
        ("dynamicquant", "aclnnDynamicQuant"),
        ("ascendquantv2", "aclnnAscendQuantV3"),
        ("gelu", "aclnnGelu"),
        ("silu", "aclnnSilu"),
        ("softmax", "aclnnSoftmax"),
        ("add", "aclnnAdd"),
        ("mul", "aclnnMul"),
        ("muls", "aclnnMuls"),
        ("cast", "aclnnCast"),
        ("concatd", "aclnnCat"),
        ("padv3", "aclnnConstantPadNd"),
        ("memset", "aclnnInplaceZero"),
        ("moetokenpermute", "aclnnMoeTokenPermute"),
        ("argmaxv2", "aclnnArgMax"),
        ("mean", "aclnnMean"),
        ("addmv", "aclnnMv"),
    ];
    let name = operator.trim_start_matches("torch ").split(' ').next().unwrap_or_default();
    OPERATORS.iter().find(|(word, _)| name == *word).map(|(_, aclnn)| *aclnn)
}

/// A quantisation writes `narrow`, `I8` by default.
fn vector(operator: &'static str, element: Element, narrow: Option<Element>, dims: &[usize]) -> Work {
    let (last, outer) = dims.split_last().map_or((1, &[][..]), |(last, outer)| (*last, outer));
    let with_last = |last: usize| -> Vec<usize> { outer.iter().copied().chain([last]).collect() };
    let read = || LaunchOperand::dense(element, dims, Access::Read);
    let write = |element, dims: Vec<usize>| LaunchOperand::dense(element, dims, Access::Write);
    let narrow = narrow.unwrap_or(Element::I8);
    let reads = match operator {
        "aclnnInplaceZero" => 0,
        "aclnnAdd" | "aclnnMul" | "aclnnAddRmsNorm" | "aclnnAddRmsNormDynamicQuant" => 2,
        _ => 1,
    };
    let whole = || with_last(last);
    let writes = match operator {
        "aclnnSwiGlu" => vec![write(element, with_last((last / 2).max(1)))],
        "aclnnDynamicQuant" => vec![write(narrow, whole()), write(Element::F32, outer.to_vec())],
        "aclnnAscendQuantV3" => vec![write(narrow, whole())],
        // The sum is a result too.
        "aclnnAddRmsNorm" => vec![write(element, whole()), write(element, whole())],
        "aclnnAddRmsNormDynamicQuant" => vec![write(narrow, whole()), write(element, whole())],
        "aclnnMean" => vec![write(element, vec![1])],
        "aclnnMv" => vec![write(element, outer.to_vec())],
        "aclnnArgMax" => vec![write(Element::I64, outer.to_vec())],
        _ => vec![write(element, whole())],
    };
    Work::of(&Launch { operator, operands: (0..reads).map(|_| read()).chain(writes).collect() })
}

fn exchange(operator: &str) -> Option<Exchange> {
    const EXCHANGES: [(&str, Exchange); 9] = [
        ("all_reduce", Exchange::AllReduce),
        ("allreduce", Exchange::AllReduce),
        ("all_gather", Exchange::AllGather),
        ("allgather", Exchange::AllGather),
        ("reduce_scatter", Exchange::ReduceScatter),
        ("all_to_all", Exchange::AllToAll),
        ("alltoall", Exchange::AllToAll),
        ("broadcast", Exchange::Broadcast),
        ("p2p copy", Exchange::SendRecv),
    ];
    EXCHANGES.iter().find(|(word, _)| operator.contains(word)).map(|(_, exchange)| *exchange)
}

/// Total bytes and cards. The unspecified maximum size of a benchmark is 1 GiB.
fn exchanged(point: &Point, exchange: Exchange) -> Option<(f64, Vec<usize>)> {
    const GIB: f64 = 1_073_741_824.0;
    let shape = point.text("shape");
    let ranks = point.leading("ranks").filter(|ranks| *ranks > 1)?;
    if exchange == Exchange::SendRecv {
        // The launch time of several concurrent copies is unknown.
        if !shape.contains("one block") {
            return None;
        }
        let kib = point.inside("shape", "block ")?;
        let other = point.inside("note", "device 0->").unwrap_or(1);
        return Some((kib as f64 * 1024.0, vec![0, other]));
    }
    let bytes =
        match shape.split(['(', ' ', ')']).collect::<Vec<_>>().windows(2).find(|pair| pair[1] == "bytes") {
            Some(pair) => {
                let own: f64 = pair[0].parse().ok()?;
                // Gathers and scatters state the shard of a rank.
                let is_part = matches!(exchange, Exchange::AllGather | Exchange::ReduceScatter);
                if is_part { own * ranks as f64 } else { own }
            }
            None if shape.contains("benchmark maximum") => GIB,
            None => return None,
        };
    Some((bytes, (0..ranks).collect()))
}
