//! Times of collectives, in the form of `hccl_test` and `nccl-tests`. Every rank checks its result
//! before timing. All ranks begin a sample together.
//!
//! | column | meaning |
//! |---|---|
//! | bytes | size of the whole tensor: the output of an `all_gather`, the input of a `reduce_scatter` |
//! | time | one collective in a queue of many: median and mean of the samples |
//! | alone | one collective that the host waits for before it enqueues the next |
//! | algbw | bytes / time |
//! | busbw | algbw times the share of the bytes that a ring moves over each link |
//! | of copy | memory traffic (each input read once, each output written once) / time / copy bandwidth |

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use super::error::Error;
use super::pattern::{self, ElementRun, MOST_RANKS};
use super::report::{CellForm, Column, MeasuredTable, PlotAxes, column};
use super::sample::Samples;
use super::{Bench, Effort};
use ascend_tp::base::{DType, Diagnostic, Diagnostics};
use ascend_tp::device::{Buffer, BufferSlice, Communicator, Device, ReduceOp, RootInfo, Stream};
use ascend_tp_planner::calibrate::on_all_ranks;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MeasuredCollective {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    AllToAll,
}

impl MeasuredCollective {
    pub(crate) const ALL: [Self; 5] =
        [Self::AllReduce, Self::AllGather, Self::ReduceScatter, Self::Broadcast, Self::AllToAll];

    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "all_to_all",
        }
    }

    /// Returns the share of the bytes on each link of a ring (nccl-tests, `doc/PERFORMANCE.md`).
    #[must_use]
    pub(crate) fn bus_factor(self, ranks: usize) -> f64 {
        let others = ranks.saturating_sub(1) as f64 / ranks.max(1) as f64;
        match self {
            Self::AllReduce => 2.0 * others,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => others,
            Self::Broadcast => 1.0,
        }
    }

    /// Returns memory traffic relative to the tensor's size. Each input is read once, each output
    /// written once.
    #[must_use]
    pub(crate) fn memory_factor(self, ranks: usize) -> f64 {
        let ranks = ranks as f64;
        match self {
            Self::AllReduce | Self::AllToAll => 2.0 * ranks,
            Self::AllGather | Self::ReduceScatter => ranks + 1.0,
            // The root's buffer is input and output.
            Self::Broadcast => ranks,
        }
    }

    /// Returns the elements that each rank sends and receives.
    const fn lengths(self, elems: usize, ranks: usize) -> (usize, usize) {
        match self {
            Self::AllReduce | Self::AllToAll | Self::Broadcast => (elems, elems),
            Self::AllGather => (elems / ranks, elems),
            Self::ReduceScatter => (elems, elems / ranks),
        }
    }

    /// Returns the result of a rank.
    fn expected(self, elems: usize, rank: usize, ranks: usize) -> Vec<ElementRun> {
        let part = elems / ranks;
        match self {
            Self::AllReduce => vec![ElementRun { elems, of: None, first: 0 }],
            Self::AllGather => {
                (0..ranks).map(|of| ElementRun { elems: part, of: Some(of), first: 0 }).collect()
            }
            Self::ReduceScatter => vec![ElementRun { elems: part, of: None, first: part * rank }],
            Self::Broadcast => vec![ElementRun { elems, of: Some(0), first: 0 }],
            Self::AllToAll => {
                (0..ranks).map(|of| ElementRun { elems: part, of: Some(of), first: part * rank }).collect()
            }
        }
    }
}

impl fmt::Display for MeasuredCollective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MeasuredCollective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|op| op.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("expected one of {names}, found {text}")
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExchangeSetting {
    pub(crate) ops: Vec<MeasuredCollective>,
    pub(crate) dtypes: Vec<DType>,
    /// Numbers of ranks, or the size of the world with several processes.
    pub(crate) ranks: Vec<usize>,
    pub(crate) bytes: Vec<usize>,
    /// Collectives in a sample; `None` chooses by size.
    pub(crate) iterations: Option<usize>,
    pub(crate) warmup: usize,
}

const MOST_BYTES: usize = 4 << 30;

impl ExchangeSetting {
    /// Returns a geometric series of sizes.
    #[must_use]
    pub(crate) fn sizes(least: usize, most: usize, factor: usize) -> Vec<usize> {
        let next = |bytes: &usize| bytes.checked_mul(factor.max(2)).filter(|next| *next <= most);
        std::iter::successors(Some(least).filter(|least| *least <= most), next).collect()
    }

    pub(crate) fn check(&self) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        for ranks in self.ranks.iter().filter(|ranks| !(1..=MOST_RANKS).contains(*ranks)) {
            let problem = Diagnostic::new("--ranks", "too many ranks for an exact check");
            problems.push(problem.expected(format!("1 to {MOST_RANKS}")).found(ranks));
        }
        for dtype in self.dtypes.iter().filter(|dtype| !dtype.is_float()) {
            problems.push(
                Diagnostic::new("--dtype", "is not a float type").expected("f32, f16 or bf16").found(dtype),
            );
        }
        let most = self.bytes.iter().max().copied().unwrap_or(0);
        if most == 0 {
            problems.push(
                Diagnostic::new("--min-bytes", "no sizes to measure")
                    .help("--min-bytes must be at least 1 and at most --max-bytes"),
            );
        } else if most > MOST_BYTES {
            problems.push(
                Diagnostic::new("--max-bytes", "is too large")
                    .expected(format!("at most {MOST_BYTES}"))
                    .found(most),
            );
        }
        if self.iterations == Some(0) {
            problems.push(Diagnostic::new("--iterations", "no iterations").expected("at least 1").found(0));
        }
        problems.into_result(())
    }
}

/// Default bytes of one sample.
const SAMPLE_BYTES: usize = 64 << 20;

/// Minimum and maximum collectives in a sample.
const ITERATIONS: (usize, usize) = (1, 200);

const COLUMNS: [Column; 12] = [
    column("op", "op", CellForm::Text),
    column("dtype", "dtype", CellForm::Text),
    column("ranks", "ranks", CellForm::Whole),
    column("bytes", "bytes", CellForm::Bytes),
    column("time_us", "time µs", CellForm::Decimal),
    column("mean_us", "mean µs", CellForm::Decimal),
    column("spread", "spread", CellForm::Percent),
    column("alone_us", "alone µs", CellForm::Decimal),
    column("algbw_gb_s", "algbw GB/s", CellForm::Decimal),
    column("busbw_gb_s", "busbw GB/s", CellForm::Decimal),
    column("of_copy", "of copy", CellForm::Percent),
    column("check", "check", CellForm::Text),
];

/// Returns the table of this process' first rank.
pub(crate) fn run(bench: &Bench, setting: &ExchangeSetting) -> Result<MeasuredTable, Error> {
    setting.check()?;
    let across = bench.group.size();
    let mut table = empty(across);
    for ranks in if across > 1 { vec![across] } else { setting.ranks.clone() } {
        let ends = communicators(bench, ranks)?;
        let found =
            on_all_ranks(ends, Error::is_consequence, |communicator| of_rank(bench, setting, communicator))?;
        for timing in found.into_iter().next().unwrap_or_default() {
            table.row(timing.cells(ranks, bench.limits.copy_bytes_s));
        }
    }
    Ok(table)
}

fn empty(processes: usize) -> MeasuredTable {
    let how =
        if processes > 1 { format!("across {processes} processes") } else { "in one process".to_owned() };
    let axes = PlotAxes { x: "bytes", y: "algbw_gb_s", series: &["op", "dtype", "ranks"] };
    MeasuredTable::new("collectives", format!("Collectives {how}"), &COLUMNS).drawn(axes)
}

/// Reads the table from the JSON report of the first of several processes.
#[must_use]
pub(crate) fn measured_by(processes: usize, report: &serde_json::Value) -> MeasuredTable {
    let mut table = empty(processes);
    table.read_rows(&report["tables"][0]);
    table
}

struct CollectiveTiming {
    op: MeasuredCollective,
    dtype: DType,
    bytes: usize,
    queued: Samples,
    alone: Samples,
}

impl CollectiveTiming {
    fn cells(&self, ranks: usize, copy_bytes_s: f64) -> [super::report::Cell; COLUMNS.len()] {
        let seconds = self.queued.median();
        let rate = self.bytes as f64 / seconds;
        [
            self.op.name().into(),
            self.dtype.name().into(),
            ranks.into(),
            self.bytes.into(),
            (seconds * 1e6).into(),
            (self.queued.mean() * 1e6).into(),
            self.queued.spread().into(),
            (self.alone.median() * 1e6).into(),
            (rate / 1e9).into(),
            (rate * self.op.bus_factor(ranks) / 1e9).into(),
            (rate * self.op.memory_factor(ranks) / copy_bytes_s).into(),
            "exact".into(),
        ]
    }
}

fn communicators(bench: &Bench, ranks: usize) -> Result<Vec<Communicator>, Error> {
    let Bench { cann, group, .. } = bench;
    if group.size() == 1 {
        let devices = (0..ranks).map(|card| Device::open(cann, card)).collect::<Result<Vec<_>, _>>()?;
        return Ok(Communicator::init_all(&devices)?);
    }
    let device = Device::open(cann, group.card().unwrap_or(0))?;
    let mine = if group.is_first() { RootInfo::create(&device)?.to_bytes() } else { Vec::new() };
    let all = group.exchange("root of the communicator", mine)?;
    let root = RootInfo::from_bytes(&all[0])?;
    Ok(vec![Communicator::join(&root, group.size(), group.rank(), &device)?])
}

/// Runs all collectives of one rank, in the same order on all ranks.
fn of_rank(
    bench: &Bench,
    setting: &ExchangeSetting,
    communicator: &Communicator,
) -> Result<Vec<CollectiveTiming>, Error> {
    let ranks = communicator.world();
    // At least one element for each rank.
    let most = setting.bytes.iter().max().copied().unwrap_or(0).max(ranks * size_of::<f32>());
    let device = communicator.device();
    let (send, recv) = (Buffer::new(device, most)?, Buffer::new(device, most)?);
    let stream = Stream::new(device)?;
    let mut measured = Vec::new();
    for op in &setting.ops {
        for dtype in &setting.dtypes {
            for bytes in &setting.bytes {
                // Remaining elements are dropped, because shards have equal lengths.
                let elems = (bytes / dtype.size_bytes() / ranks).max(1) * ranks;
                let exchange =
                    MeasuredExchange::new(*op, *dtype, elems, &send, &recv, communicator, &stream)?;
                exchange.check(&send, &recv)?;
                measured.push(exchange.time(setting, bench.effort)?);
            }
        }
    }
    Ok(measured)
}

struct MeasuredExchange<'a> {
    op: MeasuredCollective,
    dtype: DType,
    elems: usize,
    send: BufferSlice,
    recv: BufferSlice,
    communicator: &'a Communicator,
    stream: &'a Stream,
}

impl<'a> MeasuredExchange<'a> {
    fn new(
        op: MeasuredCollective,
        dtype: DType,
        elems: usize,
        send: &Buffer,
        recv: &Buffer,
        communicator: &'a Communicator,
        stream: &'a Stream,
    ) -> Result<Self, Error> {
        let (gives, gets) = op.lengths(elems, communicator.world());
        let send = send.slice(0..gives * dtype.size_bytes())?;
        let recv = recv.slice(0..gets * dtype.size_bytes())?;
        Ok(Self { op, dtype, elems, send, recv, communicator, stream })
    }

    fn enqueue(&self) -> Result<(), Error> {
        let Self { dtype, send, recv, communicator, stream, .. } = self;
        match self.op {
            MeasuredCollective::AllReduce => {
                communicator.enqueue_all_reduce(send, recv, *dtype, ReduceOp::Sum, stream)?;
            }
            MeasuredCollective::AllGather => communicator.enqueue_all_gather(send, recv, *dtype, stream)?,
            MeasuredCollective::ReduceScatter => {
                communicator.enqueue_reduce_scatter(send, recv, *dtype, ReduceOp::Sum, stream)?;
            }
            MeasuredCollective::Broadcast => communicator.enqueue_broadcast(recv, *dtype, 0, stream)?,
            MeasuredCollective::AllToAll => communicator.enqueue_all_to_all(send, recv, *dtype, stream)?,
        }
        Ok(())
    }

    /// Runs the collective on known numbers.
    fn check(&self, send: &Buffer, recv: &Buffer) -> Result<(), Error> {
        let (rank, ranks) = (self.communicator.rank(), self.communicator.world());
        let own =
            ElementRun { elems: self.send.len_bytes() / self.dtype.size_bytes(), of: Some(rank), first: 0 };
        let given = pattern::bytes(&[own], ranks, self.dtype);
        let gets = self.recv.len_bytes();
        send.write(0, &given)?;
        // A broadcast works in place. Otherwise overwrite old results, which could look correct.
        match self.op {
            MeasuredCollective::Broadcast => recv.write(0, &given)?,
            _ => recv.write(0, &vec![0xff; gets])?,
        }
        self.enqueue()?;
        self.stream.synchronize()?;
        let mut got = vec![0; gets];
        recv.read(0, &mut got)?;
        let what = format!("{} of {} {} elements", self.op, self.elems, self.dtype);
        pattern::check(&what, rank, &got, &self.op.expected(self.elems, rank, ranks), ranks, self.dtype)
    }

    fn time(&self, setting: &ExchangeSetting, effort: Effort) -> Result<CollectiveTiming, Error> {
        let bytes = self.elems * self.dtype.size_bytes();
        // All ranks must choose the same number, independent of measurements.
        let moved = bytes * self.communicator.world();
        let iterations =
            setting.iterations.unwrap_or_else(|| (SAMPLE_BYTES / moved).clamp(ITERATIONS.0, ITERATIONS.1));
        for _ in 0..setting.warmup {
            self.enqueue()?;
        }
        let alone = self.sample(effort.samples().max(iterations.min(50)), 1)?;
        let queued = self.sample(effort.samples(), iterations)?;
        Ok(CollectiveTiming { op: self.op, dtype: self.dtype, bytes, queued, alone })
    }

    /// Takes samples. A collective before each sample synchronizes the ranks.
    fn sample(&self, samples: usize, iterations: usize) -> Result<Samples, Error> {
        let mut seconds = Vec::with_capacity(samples);
        for _ in 0..samples {
            self.enqueue()?;
            self.stream.synchronize()?;
            let started = Instant::now();
            for _ in 0..iterations {
                self.enqueue()?;
            }
            self.stream.synchronize()?;
            seconds.push(started.elapsed().as_secs_f64() / iterations as f64);
        }
        Ok(Samples::new(seconds))
    }
}
