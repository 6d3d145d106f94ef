//! Run times of single operators: calls of a model's plans, and matrix products.
//!
//! Calls are prepared as in the executor, and enqueued many times on one card. As in a model,
//! activations fit the processor's caches, but weights and KV caches do not, because they are
//! repeated in memory. The limit is the longer of memory time and compute time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ascend_tp_machine::{Element, Launch, Work};

use super::error::Error;
use super::generation::GenerationSetting;
use super::random;
use super::report::{CellForm, Column, MeasuredTable, column};
use super::{Bench, Limits, Samples};
use ascend_tp::base::{Bytes, DType, Id};
use ascend_tp::call::{Call, View};
use ascend_tp::device::{Buffer, Device, Prepared, Stream, Tensor, operator};
use ascend_tp::exec::prepare;
use ascend_tp::generate::{DECODE, PREFILL};
use ascend_tp::schedule::Plan;
use ascend_tp::schedule::launch::launch;
use ascend_tp::schedule::plan::{Action, Region};

/// Minimum size of repeated weights: several times the processor's caches.
const OUT_OF_CACHE: usize = 256 << 20;

/// Maximum repetitions. Small weights cost little next to the call.
const MOST_REPETITIONS: usize = 64;

/// Approximate duration of a queue of calls.
const QUEUE: Duration = Duration::from_millis(2);

const MOST_QUEUED: usize = 256;

const COLUMNS: [Column; 11] = [
    column("program", "program", CellForm::Text),
    column("operator", "operator", CellForm::Text),
    column("count", "count", CellForm::Whole),
    column("time_us", "time µs", CellForm::Decimal),
    column("spread", "spread", CellForm::Percent),
    column("gb_s", "GB/s", CellForm::Decimal),
    column("gflops", "GFLOP/s", CellForm::Decimal),
    column("bound", "bound by", CellForm::Text),
    column("of_limit", "of limit", CellForm::Percent),
    column("share", "share", CellForm::Percent),
    column("shapes", "shapes", CellForm::Text),
];

/// Products at usual weight sizes, for decode (`m` = 1) and prefill.
pub(crate) const PRODUCTS: [Product; 8] = [
    Product { dtype: DType::BF16, m: 1, k: 8192, n: 8192 },
    Product { dtype: DType::BF16, m: 16, k: 4096, n: 4096 },
    Product { dtype: DType::BF16, m: 256, k: 4096, n: 4096 },
    Product { dtype: DType::BF16, m: 1024, k: 4096, n: 4096 },
    Product { dtype: DType::F16, m: 1, k: 8192, n: 8192 },
    Product { dtype: DType::F16, m: 256, k: 4096, n: 4096 },
    Product { dtype: DType::F32, m: 1, k: 8192, n: 8192 },
    Product { dtype: DType::F32, m: 256, k: 4096, n: 4096 },
];

/// Times the distinct calls of a model's plans, sorted by total time.
pub(crate) fn run(bench: &Bench, setting: &GenerationSetting) -> Result<MeasuredTable, Error> {
    setting.check()?;
    let cards = setting.cards.first().copied().unwrap_or(1);
    let plans = setting.deployment(cards).compile(&setting.model)?.into_vec();
    let plans: Vec<&Plan> = [DECODE, PREFILL].into_iter().map(|program| &plans[program.0][0]).collect();
    let of = if cards > 1 { format!("{}, one of {cards} cards", setting.name) } else { setting.name.clone() };
    calls(bench, format!("Operators of {of}"), &plans)
}

fn calls(bench: &Bench, title: String, plans: &[&Plan]) -> Result<MeasuredTable, Error> {
    let mut table = MeasuredTable::new("ops", title, &COLUMNS);
    let device = Device::open(&bench.cann, bench.group.card().unwrap_or(0))?;
    for plan in plans {
        let mut timed = Vec::new();
        for (launch, (call, count)) in distinct(plan) {
            timed.push((time(bench, &device, plan, call)?, launch, call, count));
        }
        let total: f64 = timed.iter().map(|(samples, _, _, count)| samples.median() * *count as f64).sum();
        timed.sort_by(|a, b| (b.0.median() * b.3 as f64).total_cmp(&(a.0.median() * a.3 as f64)));
        for (samples, launch, call, count) in timed {
            let (seconds, work) = (samples.median(), Work::of(&launch));
            let (limit_s, bound) = limit(&bench.limits, &work);
            table.row([
                plan.name.as_str().into(),
                launch.operator.into(),
                count.into(),
                (seconds * 1e6).into(),
                samples.spread().into(),
                (work.bytes() / seconds / 1e9).into(),
                (work.flops() / seconds / 1e9).into(),
                bound.into(),
                (limit_s / seconds).into(),
                (seconds * count as f64 / total).into(),
                shapes(call).into(),
            ]);
        }
    }
    Ok(table)
}

fn distinct(plan: &Plan) -> Vec<(Launch, (&Call, usize))> {
    let mut index_of: HashMap<Launch, usize> = HashMap::new();
    let mut launches: Vec<(Launch, (&Call, usize))> = Vec::new();
    for step in &plan.steps {
        let Action::Launch(call) = &step.action else { continue };
        let launch = launch(call);
        match index_of.get(&launch) {
            Some(index) => launches[*index].1.1 += 1,
            None => {
                index_of.insert(launch.clone(), launches.len());
                launches.push((launch, (call, 1)));
            }
        }
    }
    launches
}

fn shapes(call: &Call) -> String {
    let list = |views: &[&View]| {
        let text = |view: &&View| format!("{}{}", view.dtype, view.shape);
        views.iter().map(text).collect::<Vec<_>>().join(" × ")
    };
    format!("{} → {}", list(&call.reads()), list(&call.writes()))
}

/// Returns the minimum seconds of a call, and its limit.
fn limit(limits: &Limits, work: &Work) -> (f64, &'static str) {
    let memory = work.read_bytes / limits.read_bytes_s + 2.0 * work.written_bytes / limits.copy_bytes_s;
    let dtype = if work.element == Element::Bf16 { DType::BF16 } else { DType::F32 };
    let products = work.flops() / limits.flops(dtype);
    if products > memory { (products, "products") } else { (memory, "memory") }
}

fn time(bench: &Bench, device: &Arc<Device>, plan: &Plan, call: &Call) -> Result<Samples, Error> {
    let is_kept = |view: &View| matches!(plan.buffers[view.buffer].region, Region::Weights | Region::States);
    let views: Vec<&View> = call.reads().into_iter().chain(call.writes()).collect();
    let bytes_of = |view: &View| plan.buffers[view.buffer].bytes.0.max(1) as usize;
    let kept: usize = views.iter().filter(|view| is_kept(view)).map(|view| bytes_of(view)).sum();
    let repetitions = if kept == 0 { 1 } else { OUT_OF_CACHE.div_ceil(kept).clamp(1, MOST_REPETITIONS) };
    let mut memory: HashMap<usize, Buffer> = HashMap::new();
    let mut prepared = Vec::with_capacity(repetitions);
    for _ in 0..repetitions {
        for view in &views {
            let at = view.buffer.index();
            if is_kept(view) || !memory.contains_key(&at) {
                memory.insert(at, filled(device, bytes_of(view), view.dtype)?);
            }
        }
        let tensor = |view: &View| {
            let slice = memory[&view.buffer.index()].whole();
            Tensor::with_strides(&slice, view.dtype, view.shape.clone(), &view.strides, view.offset)
        };
        prepared.push(prepare(call, &tensor, None)?);
    }
    queued(bench, device, &mut prepared)
}

fn filled(device: &Arc<Device>, bytes: usize, dtype: DType) -> Result<Buffer, Error> {
    let buffer = Buffer::new(device, bytes)?;
    let block = random::block(dtype, bytes.min(1 << 20).div_ceil(dtype.size_bytes()));
    for start in (0..bytes).step_by(block.len()) {
        buffer.write(start, &block[..block.len().min(bytes - start)])?;
    }
    Ok(buffer)
}

/// Returns the seconds of one call, with all operators in turn.
fn queued(bench: &Bench, device: &Arc<Device>, prepared: &mut [Prepared]) -> Result<Samples, Error> {
    let stream = Stream::new(device)?;
    let workspace = prepared.iter().map(Prepared::workspace_bytes).max().unwrap_or(0);
    let workspace = if workspace > 0 { Some(Buffer::new(device, workspace)?.whole()) } else { None };
    let mut next = 0;
    let mut run = |calls: usize| -> Result<(), Error> {
        for _ in 0..calls {
            prepared[next].enqueue(&stream, workspace.as_ref())?;
            next = (next + 1) % prepared.len();
        }
        Ok(stream.synchronize()?)
    };
    let once = Samples::take(Duration::ZERO, || run(1))?.median();
    let calls = (QUEUE.as_secs_f64() / once) as usize;
    let calls = calls.clamp(1, MOST_QUEUED);
    let samples = Samples::take(bench.effort.budget(), || run(calls))?;
    Ok(samples.each(calls))
}

/// Matrix product `[m, k] × [k, n]` with the second matrix stored as `[n, k]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Product {
    pub(crate) dtype: DType,
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) n: usize,
}

const PRODUCT_COLUMNS: [Column; 9] = [
    column("dtype", "dtype", CellForm::Text),
    column("m", "m", CellForm::Whole),
    column("k", "k", CellForm::Whole),
    column("n", "n", CellForm::Whole),
    column("time_us", "time µs", CellForm::Decimal),
    column("spread", "spread", CellForm::Percent),
    column("gb_s", "GB/s", CellForm::Decimal),
    column("gflops", "GFLOP/s", CellForm::Decimal),
    column("of_limit", "of limit", CellForm::Percent),
];

pub(crate) fn products(bench: &Bench, products: &[Product]) -> Result<MeasuredTable, Error> {
    let mut table =
        MeasuredTable::new("products", "Matrix products on one card, weights out of cache", &PRODUCT_COLUMNS);
    let device = Device::open(&bench.cann, bench.group.card().unwrap_or(0))?;
    for product in products {
        let Product { dtype, m, k, n } = *product;
        let size = dtype.size_bytes();
        let tensor = |rows: usize, columns: usize, strides: [usize; 2]| {
            let memory = filled(&device, rows * columns * size, dtype)?;
            Ok::<_, Error>(Tensor::with_strides(&memory.whole(), dtype, [rows, columns], &strides, 0)?)
        };
        let (a, out) = (tensor(m, k, [k, 1])?, tensor(m, n, [n, 1])?);
        let repetitions = OUT_OF_CACHE.div_ceil(k * n * size).min(MOST_REPETITIONS);
        let prepare = |_| {
            let b = tensor(k, n, [1, k])?;
            Ok::<_, Error>(operator::prepare(
                "aclnnMatmul",
                [(&a).into(), (&b).into(), (&out).into(), 0_i64.into()],
            )?)
        };
        let mut prepared = (0..repetitions).map(prepare).collect::<Result<Vec<_>, _>>()?;
        let samples = queued(bench, &device, &mut prepared)?;
        let bytes = [m * k, k * n, m * n].map(|elems| Bytes::of(elems, size).0 as f64);
        let (seconds, flops) = (samples.median(), 2.0 * (m * k * n) as f64);
        let limits = &bench.limits;
        let memory_s = (bytes[0] + bytes[1]) / limits.read_bytes_s + 2.0 * bytes[2] / limits.copy_bytes_s;
        table.row([
            dtype.name().into(),
            m.into(),
            k.into(),
            n.into(),
            (seconds * 1e6).into(),
            samples.spread().into(),
            (bytes.iter().sum::<f64>() / seconds / 1e9).into(),
            (flops / seconds / 1e9).into(),
            (memory_s.max(flops / limits.flops(dtype)) / seconds).into(),
        ]);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_bound_by_the_slower_of_memory_and_products() {
        let limits = Limits {
            read_bytes_s: 10.0,
            copy_bytes_s: 20.0,
            bf16_flops: 100.0,
            f32_flops: 50.0,
            ..Limits::default()
        };
        let work = |m: usize| {
            let dense = |dims: [usize; 2], access| {
                ascend_tp_machine::LaunchOperand::dense(Element::Bf16, dims, access)
            };
            use ascend_tp_machine::launch::Access::{Read, Write};
            let operands = vec![dense([m, 4], Read), dense([4, 4], Read), dense([m, 4], Write)];
            Work::of(&Launch { operator: "aclnnMatmul", operands })
        };
        // One row: 40 bytes read, 8 written; 32 operations. Small products with more rows stay
        // bound by memory.
        assert_eq!(limit(&limits, &work(1)), (4.0 + 0.8, "memory"));
        let fast_memory = Limits { read_bytes_s: 1e6, copy_bytes_s: 1e6, ..limits };
        assert_eq!(limit(&fast_memory, &work(1)), (0.32, "products"));
    }
}
