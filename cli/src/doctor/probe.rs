//! Probes in separate processes, so that a broken driver or library does not end the report. A
//! probe prints its lines as JSON. The parent reports a crash, a failure or a timeout as a finding.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ascend_tp::Cann;
use ascend_tp::base::{Bytes, DType, Kernels, Number};
use ascend_tp::device::{Buffer, Communicator, Device, ReduceOp, RootInfo, Stream, Tensor, operator};
use ascend_tp::program::HostTensor;
use ascend_tp::world::ProcessGroup;
use ascend_tp_machine::Soc;
use clap::ValueEnum;

use super::report::{CheckLine, ReportGroup};
use super::system::{last_words, run};
use super::{operators, toolkit};
use crate::cards;
use crate::failure::Failure;
use crate::values::DeviceKind;

/// Time limit of a child. It exceeds 120 s, the smallest `HCCL_CONNECT_TIMEOUT`, plus the time to
/// load operators at the first use of a card.
const LIMIT: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Probe {
    Toolkit,
    Cards,
    Operators,
    Collectives,
    Capture,
    Kernels,
}

impl Probe {
    /// Probes of cards, in order. If the first fails, the rest cannot work.
    pub(super) const OF_CARDS: [Self; 5] =
        [Self::Cards, Self::Operators, Self::Collectives, Self::Capture, Self::Kernels];

    const fn group(self) -> &'static str {
        match self {
            Self::Toolkit => "toolkit",
            Self::Cards => "cards",
            Self::Operators => "operators",
            Self::Collectives => "collectives",
            Self::Capture => "capture",
            Self::Kernels => "kernels",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum CardSource<'a> {
    Emulator,
    Toolkit(&'a Path),
}

pub(super) fn in_child(probe: Probe, behind: CardSource<'_>) -> Vec<CheckLine> {
    let arguments: Vec<OsString> = match behind {
        CardSource::Emulator => vec!["--emulator".into()],
        CardSource::Toolkit(folder) => vec!["--toolkit".into(), folder.into()],
    };
    let name = probe.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let command = std::env::current_exe().map(|program| {
        let mut command = Command::new(program);
        command.args(["doctor", "--probe", &name]).args(&arguments).stdin(std::process::Stdio::null());
        // Keeps logs off stdout.
        command.env_remove("ASCEND_SLOG_PRINT_TO_STDOUT");
        command
    });
    let ended = command.and_then(|command| run(command, LIMIT));
    let mut group = ReportGroup::new(probe.group());
    let remedy = "see the log of CANN (~/ascend/log) and dmesg; then run the command by hand";
    let (seen, expected) = match ended {
        Ok(Some(ended)) if ended.status.success() => match serde_json::from_str(&ended.stdout) {
            Ok(lines) => return lines,
            Err(_) => (format!("invalid output: {}", last_words(&ended)), "a report as JSON".to_owned()),
        },
        Ok(Some(ended)) => (format!("{}: {}", ended.status, last_words(&ended)), "exit code 0".to_owned()),
        Ok(None) => ("still running".to_owned(), format!("a result within {} s", LIMIT.as_secs())),
        Err(error) => (error.to_string(), "a process that starts".to_owned()),
    };
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    group.finding(format!("ascend-tp doctor --probe {name} {}", arguments.join(" ")), seen, expected, remedy);
    group.lines
}

/// Runs a probe in this process.
pub(super) fn here(probe: Probe, behind: CardSource<'_>) -> Result<Vec<CheckLine>, Failure> {
    if let (Probe::Toolkit, CardSource::Toolkit(folder)) = (probe, behind) {
        return Ok(toolkit::check_libraries(folder).lines);
    }
    let mut group = ReportGroup::new(probe.group());
    let (cann, emulated) = match behind {
        CardSource::Emulator => {
            let cards = cards::open(DeviceKind::Emulator, &ProcessGroup::alone())?;
            cards.require_numbers()?;
            (Arc::clone(&cards.cann), Some(cards))
        }
        CardSource::Toolkit(folder) => {
            (Cann::load(Some(folder)).map_err(|error| Failure::Run(error.into()))?, None)
        }
    };
    let is_emulated = emulated.is_some();
    let done = match probe {
        Probe::Toolkit => Ok(()),
        Probe::Cards => check_cards(&cann, &mut group),
        Probe::Operators => {
            group = operators::check(&cann);
            Ok(())
        }
        Probe::Collectives => check_collectives(&cann, is_emulated, &mut group),
        Probe::Capture => check_capture(&cann, &mut group),
        Probe::Kernels => {
            group = check_kernels(&cann, is_emulated);
            Ok(())
        }
    };
    if let Err(error) = done {
        let remedy = "see the card's log (~/ascend/log); the CANN documentation explains the code";
        group.finding(probe.group(), format!("{error:#}"), "no error", remedy);
    }
    Ok(group.lines)
}

fn check_cards(cann: &Arc<Cann>, group: &mut ReportGroup) -> anyhow::Result<()> {
    let count = cann.device_count()?;
    let chip = cann.soc_name().unwrap_or_default();
    match Soc::find(&chip) {
        Some(_) => group.well("chip", format!("{count} × {chip}")),
        None => group.finding(
            "chip",
            format!("{count} × {chip}"),
            format!("one of {}", Soc::ALL.map(|soc| soc.name()).join(", ")),
            "results are correct, but predicted times and limits are for other chips",
        ),
    }
    for card in 0..count {
        let memory = Device::open(cann, card)?.memory()?;
        let seen = format!("{} free of {}", memory.free, memory.total);
        // Driver and firmware reserve a few percent.
        if memory.free.0 * 10 < memory.total.0 * 9 {
            let remedy =
                "see `npu-smi info` for the processes on the card; killed processes may still hold memory";
            group.finding(format!("memory of card {card}"), seen, "at least 90 % free", remedy);
        } else {
            group.well(format!("memory of card {card}"), seen);
        }
    }
    Ok(())
}

fn check_collectives(cann: &Arc<Cann>, is_emulated: bool, group: &mut ReportGroup) -> anyhow::Result<()> {
    let world = cann.device_count()?;
    if world < 2 {
        group.skipped("all_reduce", "needs two cards");
        return Ok(());
    }
    let devices = (0..world).map(|card| Device::open(cann, card)).collect::<Result<Vec<_>, _>>()?;
    let root = RootInfo::create(&devices[0])?;
    let mut communicators = thread::scope(|scope| {
        let join = |(rank, device)| {
            let root = &root;
            scope.spawn(move || Communicator::join(root, world, rank, device))
        };
        let threads: Vec<_> = devices.iter().enumerate().map(join).collect();
        threads.into_iter().map(joined).collect::<anyhow::Result<Vec<_>>>()
    })?;
    let large = if is_emulated { Bytes(1 << 20) } else { Bytes(16 << 20) };
    for bytes in [Bytes(4 << 10), large] {
        let (wrong, seconds) = all_reduce(&devices, &mut communicators, bytes.0 as usize)?;
        let subject = format!("all_reduce of {bytes} on {world} cards");
        if let Some(what) = wrong {
            group.finding(
                subject,
                what,
                "the sum over all cards",
                "do not trust the links of this host; see `links`",
            );
        } else if is_emulated {
            group.well(subject, "correct sum");
        } else {
            // Bus bandwidth as in HCCL's tests: bytes that a ring moves over each link.
            let bus = 2.0 * (world - 1) as f64 / world as f64 * bytes.0 as f64 / seconds / 1e9;
            group.well(subject, format!("correct sum, {bus:.1} GB/s bus bandwidth"));
        }
    }
    Ok(())
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, ascend_tp::device::Result<T>>) -> anyhow::Result<T> {
    Ok(thread.join().map_err(|_| anyhow::anyhow!("a rank's thread panicked"))??)
}

const PERIOD: usize = 7;

/// Returns integers `factor · (i mod 7) + offset`. Their sums are exact in any order.
fn numbers(factor: usize, offset: usize, bytes: usize) -> Vec<u8> {
    let pattern: Vec<u8> = (0..PERIOD).flat_map(|at| ((factor * at + offset) as f32).to_le_bytes()).collect();
    let mut all = pattern.repeat(bytes.div_ceil(pattern.len()));
    all.truncate(bytes);
    all
}

/// Sums integers over all cards twice. Returns the first wrong element of the
/// second sum, and its duration on the slowest card in seconds.
fn all_reduce(
    devices: &[Arc<Device>],
    communicators: &mut [Communicator],
    bytes: usize,
) -> anyhow::Result<(Option<String>, f64)> {
    let outcomes = thread::scope(|scope| {
        let ranks = devices.iter().zip(communicators).enumerate();
        let threads: Vec<_> = ranks
            .map(|(rank, (device, comm))| scope.spawn(move || all_reduce_rank(rank, device, comm, bytes)))
            .collect();
        threads.into_iter().map(joined).collect::<anyhow::Result<Vec<_>>>()
    })?;
    let world = devices.len();
    let expected = numbers(world, world * (world - 1) / 2, bytes);
    let wrong = outcomes.iter().position(|(found, _)| *found != expected).map(|card| {
        let found = &outcomes[card].0;
        let at =
            (0..bytes).find(|at| found.get(*at) != expected.get(*at)).unwrap_or_default() / size_of::<f32>();
        format!("card {card} has a wrong value at element {at}")
    });
    Ok((wrong, outcomes.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max)))
}

/// Returns the received bytes and the duration of the second run in seconds.
fn all_reduce_rank(
    rank: usize,
    device: &Arc<Device>,
    communicator: &mut Communicator,
    bytes: usize,
) -> ascend_tp::device::Result<(Vec<u8>, f64)> {
    let (send, receive) = (Buffer::new(device, bytes)?, Buffer::new(device, bytes)?);
    send.write(0, &numbers(1, rank, bytes))?;
    let stream = Stream::new(device)?;
    let mut seconds = 0.0;
    for _ in 0..2 {
        let start = Instant::now();
        communicator.enqueue_all_reduce(
            &send.whole(),
            &receive.whole(),
            DType::F32,
            ReduceOp::Sum,
            &stream,
        )?;
        stream.synchronize()?;
        seconds = start.elapsed().as_secs_f64();
    }
    let mut found = vec![0; bytes];
    receive.read(0, &mut found)?;
    Ok((found, seconds))
}

/// Records an addition and replays it with other values.
fn check_capture(cann: &Arc<Cann>, group: &mut ReportGroup) -> anyhow::Result<()> {
    const ELEMS: usize = 64;
    let device = Device::open(cann, 0)?;
    let (x, y) = (Buffer::new(&device, ELEMS * 4)?, Buffer::new(&device, ELEMS * 4)?);
    let tensor = |buffer: &Buffer| Tensor::contiguous(&buffer.whole(), DType::F32, [ELEMS]);
    let (from, to) = (tensor(&x)?, tensor(&y)?);
    let mut add = operator::prepare(
        "aclnnAdd",
        [(&from).into(), (&from).into(), Number::Float(1.0).into(), (&to).into()],
    )?;
    let workspace = Buffer::new(&device, add.workspace_bytes().max(512))?;
    let stream = Stream::new(&device)?;
    // The first run sets up state that a capture cannot record.
    add.enqueue(&stream, Some(&workspace.whole()))?;
    stream.synchronize()?;
    let capture = stream.capture()?;
    add.enqueue(&stream, Some(&workspace.whole()))?;
    let graph = capture.end()?;
    for round in 1..=3 {
        let given =
            HostTensor::float([ELEMS], DType::F32, (0..ELEMS).map(|at| (at * round) as f32).collect());
        x.write(0, &given.to_bytes())?;
        graph.enqueue(&stream)?;
        stream.synchronize()?;
        let mut bytes = vec![0; ELEMS * 4];
        y.read(0, &mut bytes)?;
        let found = HostTensor::from_bytes([ELEMS], DType::F32, &bytes);
        if found
            .floats()
            .iter()
            .zip(given.floats())
            .any(|(found, given)| found.to_bits() != (2.0 * given).to_bits())
        {
            let seen = format!("replay {round} gives wrong results");
            group.finding("replay", seen, "twice the input", "do not use --captured");
            return Ok(());
        }
    }
    group.well("replay", "3 replays of a recorded operator with different inputs");
    Ok(())
}

fn check_kernels(cann: &Arc<Cann>, is_emulated: bool) -> ReportGroup {
    let mut group = ReportGroup::new(Probe::Kernels.group());
    match cards::kernels(is_emulated) {
        Err(problems) => {
            group.finding(
                "kernels",
                problems.to_string(),
                "an existing library",
                "correct or unset the variable",
            );
        }
        Ok(source) if source.kernels() == Kernels::NONE => {
            let why = "this build has no kernels because it found no Ascend C compiler; kernels are optional";
            let emulated =
                "no library given; `ascend-tp kernel build` builds one for ASCEND_TP_KERNEL_LIBRARY";
            group.skipped("kernels", if is_emulated { emulated } else { why });
        }
        Ok(source) => match Device::open(cann, 0).and_then(|device| source.load(&device)) {
            Ok(_) => return operators::check_kernels(cann, &source),
            Err(error) => {
                group.finding(
                    "kernels",
                    error.to_string(),
                    "kernels that load",
                    "build with the toolkit of this host",
                );
            }
        },
    }
    group
}
