//! Rows of single operators and collectives.
//!
//! A [`Point`] from `operators_measured.csv` becomes a [`MeasuredOperator`].

use ascend_tp_machine::launch::Access;
use ascend_tp_machine::profile::Coefficients;
use ascend_tp_machine::{
    CollectiveCost, Element, Exchange, Launch, LaunchOperand, OperatorCost, Profile, Soc, Topology, Work,
};

use super::Class;
use crate::points::{Point, dims, machine, settings, sizes};

#[derive(Debug, Clone)]
enum MeasuredTask {
    /// Kernels that run in sequence.
    Kernels(Vec<Work>),
    /// Collective, bytes and topology indices of cards.
    Exchange(Exchange, f64, Vec<usize>),
}

#[derive(Debug, Clone)]
pub(crate) struct MeasuredOperator {
    pub(super) class: Class,
    /// Publication; its rows share errors.
    pub(super) page: String,
    pub(super) soc: Soc,
    topology: Topology,
    task: MeasuredTask,
    timing: PointTiming,
    pub(super) measured_us: f64,
    /// Weight relative to a published row that is alone on its page.
    pub(super) weight: f64,
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

/// Weight of a bench in published rows. A bench has about a fifth of their error, and weights are
/// squared.
const BENCH_WEIGHT: f64 = 25.0;

impl MeasuredOperator {
    /// Each benchmarked kernel is its own page.
    pub(crate) fn kernel(class: Class, soc: Soc, work: Work, us: f64) -> Self {
        Self::timed(class, soc, Topology::atlas_a2(1), MeasuredTask::Kernels(vec![work]), us)
    }

    pub(crate) fn exchange(
        soc: Soc,
        topology: Topology,
        exchange: Exchange,
        bytes: f64,
        cards: Vec<usize>,
        us: f64,
    ) -> Self {
        Self::timed(Class::Collectives, soc, topology, MeasuredTask::Exchange(exchange, bytes, cards), us)
    }

    fn timed(class: Class, soc: Soc, topology: Topology, task: MeasuredTask, us: f64) -> Self {
        let page = format!("{task:?}");
        let (timing, unit) = (PointTiming::Kernel, FigureUnit::Times(1.0));
        Self { class, page, soc, topology, task, timing, measured_us: us, weight: BENCH_WEIGHT, unit }
    }

    pub(super) fn predict_us(&self, coefficients: &Coefficients) -> f64 {
        let profile = Profile {
            coefficients: coefficients.clone(),
            origin: String::new(),
            soc: self.soc,
            hbm_installed_bytes: 0,
        };
        let us = match &self.task {
            MeasuredTask::Kernels(works) => {
                works.iter().map(|work| OperatorCost::of(&profile, work).duration_us).sum()
            }
            MeasuredTask::Exchange(exchange, bytes, cards) => {
                CollectiveCost::of(&profile, &self.topology, *exchange, *bytes, cards).duration_us
            }
        };
        match (self.timing, self.class) {
            (PointTiming::Layer, Class::Attention) => us + ATTENTION_LAYER_US,
            (PointTiming::Issued, _) => f64::max(us, ISSUE_US),
            _ => us,
        }
    }

    pub(super) fn figure(&self, us: f64) -> f64 {
        match self.unit {
            FigureUnit::Times(factor) => us / factor,
            FigureUnit::Rate(work) => work / us,
        }
    }

    pub(super) fn of(point: &Point) -> Result<Self, &'static str> {
        settings::operator(point).map_err(|gap| gap.why)?;
        let operator = point.text("operator").to_lowercase();
        let (soc, preset) = machine(point.text("hardware")).ok_or("unknown machine")?;
        let value =
            point.number("value").filter(|value| *value > 0.0).ok_or("the figure is not a number above 0")?;
        let (class, task, amount) = task(point, &operator)?;
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
        let topology = Topology::preset(preset).ok_or("unknown topology")?;
        let timing = timing(point, &operator);
        let page = point.text("source").to_owned();
        Ok(Self { class, page, soc, topology, task, timing, measured_us, weight: 1.0, unit })
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

fn timing(point: &Point, operator: &str) -> PointTiming {
    let metric = point.text("metric");
    if ["kernel time", "device time", "task"].iter().any(|word| metric.contains(word)) {
        PointTiming::Kernel
    } else if operator.contains("eager") || operator.starts_with("torch.matmul") {
        PointTiming::Issued
    } else {
        PointTiming::Layer
    }
}

/// Class, task, and the operations or bytes that a rate counts.
fn task(point: &Point, operator: &str) -> Result<(Class, MeasuredTask, f64), &'static str> {
    const NO_SIZES: &str = "the sizes are not given";
    let (shape, element) = (point.text("shape"), element(point.text("dtype")));
    let sizes = sizes(shape);
    let size = |name: &str| sizes.get(name).copied().filter(|size| *size > 0);
    let has = |words: &[&str]| words.iter().any(|word| operator.contains(word));
    let kernels = |class, works: Vec<Work>| {
        let flops = works.iter().map(Work::flops).sum();
        Ok((class, MeasuredTask::Kernels(works), flops))
    };
    if let Some(exchange) = exchange(operator) {
        let (bytes, cards) =
            exchanged(point, exchange).ok_or("several copies in flight, or bytes in words")?;
        return Ok((Class::Collectives, MeasuredTask::Exchange(exchange, bytes, cards), bytes));
    }
    let element = element.ok_or("unknown element type");
    let narrow = operator.contains("int4").then_some(Element::I4);
    if has(&["attention"]) {
        return kernels(Class::Attention, vec![attention(shape, &sizes, element?).ok_or(NO_SIZES)?]);
    }
    if has(&["moe experts"]) {
        let all = ["tokens", "hidden", "inter", "experts", "topk", "local"].map(size);
        let [Some(tokens), Some(hidden), Some(inter), Some(all), Some(chosen), Some(local)] = all else {
            return Err(NO_SIZES);
        };
        let sizes = ExpertLayer { tokens, hidden, inter, all, chosen, local };
        return kernels(Class::Grouped, experts(element?, &sizes));
    }
    if has(&["grouped"]) {
        return Err("the sizes of the groups are not given");
    }
    if has(&["matmul", "linear"]) || operator.starts_with("mm") {
        let (Some(m), Some(k), Some(n)) = (size("M"), size("K"), size("N")) else { return Err(NO_SIZES) };
        let work = Work::of(&Launch { operator: "aclnnMatmul", operands: product(element?, m, k, n) });
        return kernels(Class::Products, vec![repeated(work, copies(point.text("note")))]);
    }
    let aclnn = vector_operator(operator).ok_or("an operator without a known workload")?;
    let dims = dims(shape).filter(|dims| !dims.contains(&0)).ok_or(NO_SIZES)?;
    let element = element?;
    let mut works = vec![vector(aclnn, element, narrow, &dims)];
    if operator.contains("gemma") {
        // This norm stores its weight minus 1, and torch adds 1 in a separate kernel.
        works.push(vector("aclnnAdds", element, None, &dims[dims.len() - 1..]));
    }
    kernels(Class::Vectors, works)
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
fn copies(note: &str) -> f64 {
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

/// Size names of attention rows.
fn attention(shape: &str, sizes: &std::collections::BTreeMap<&str, usize>, element: Element) -> Option<Work> {
    let first =
        |names: &[&str]| names.iter().find_map(|name| sizes.get(name).copied()).filter(|size| *size > 0);
    let heads = first(&["heads"]).or_else(|| shape.contains("one head").then_some(1))?;
    let positions = first(&["seq", "S_kv", "S1", "kv"])?;
    let query = first(&["S_q", "S0"]).unwrap_or(1);
    let key_heads = first(&["kv_heads"]).unwrap_or(heads);
    let width = first(&["head_dim", "D"])?;
    let batch = first(&["batch", "B"]).unwrap_or(1);
    let q = [batch, query, heads, width];
    let k = [batch, positions, key_heads, width];
    let operands = vec![
        LaunchOperand::dense(element, q, Access::Read),
        LaunchOperand::dense(element, k, Access::Read),
        LaunchOperand::dense(element, k, Access::Read),
        LaunchOperand::dense(element, q, Access::Write),
    ];
    Some(repeated(Work::of(&Launch { operator: "aclnnFusedInferAttentionScoreV2", operands }), 1.0))
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

fn vector_operator(operator: &str) -> Option<&'static str> {
    const OPERATORS: [(&str, &str); 10] = [
        ("swiglu", "aclnnSwiGlu"),
        ("addrmsnorm", "aclnnAddRmsNorm"),
        ("rmsnorm", "aclnnRmsNorm"),
        ("layernorm", "aclnnLayerNorm"),
        ("dynamicquant", "aclnnDynamicQuant"),
        ("gelu", "aclnnGelu"),
        ("silu", "aclnnSilu"),
        ("softmax", "aclnnSoftmax"),
        ("add (", "aclnnAdd"),
        ("mul (", "aclnnMul"),
    ];
    OPERATORS.iter().find(|(word, _)| operator.contains(word)).map(|(_, aclnn)| *aclnn)
}

/// A quantisation writes `narrow`, `I8` by default.
fn vector(operator: &'static str, element: Element, narrow: Option<Element>, dims: &[usize]) -> Work {
    let (last, outer) = dims.split_last().map_or((1, &[][..]), |(last, outer)| (*last, outer));
    let halved: Vec<usize> = outer.iter().copied().chain([(last / 2).max(1)]).collect();
    let mut operands = vec![LaunchOperand::dense(element, dims, Access::Read)];
    if matches!(operator, "aclnnAdd" | "aclnnMul" | "aclnnAddRmsNorm") {
        operands.push(LaunchOperand::dense(element, dims, Access::Read));
    }
    operands.push(match operator {
        "aclnnSwiGlu" => LaunchOperand::dense(element, halved, Access::Write),
        "aclnnDynamicQuant" => LaunchOperand::dense(narrow.unwrap_or(Element::I8), dims, Access::Write),
        _ => LaunchOperand::dense(element, dims, Access::Write),
    });
    Work::of(&Launch { operator, operands })
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
