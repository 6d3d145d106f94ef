//! `bench peers`: compares this library with other programs at the same tasks.
//!
//! - Peers are searched on `PATH`. Their scripts in `cli/peers/` are embedded in this program.
//! - In each round this library and then a peer run, so that other load on the machine affects
//!   both.
//! - An installed peer that fails or prints unknown output is an error.
//! - Files for peers are unnamed, so nothing is left behind.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::measure::peers::{self, PeerMeasurement, PeerProgram, Turns};
use crate::measure::{Bench, Effort, MeasuredTable, figures, generation};
use anyhow::Context;
use ascend_tp::base::Diagnostics;

use super::BenchOutput;
use super::all::across_processes;
use crate::children::{ChildJob, ChildOutput};
use crate::failure::Failure;
use crate::{interrupt, note, print_report};

const TRANSFORMERS: &str = include_str!("../../peers/generate_transformers.py");
const GLOO: &str = include_str!("../../peers/all_reduce_gloo.py");
const OPEN_MPI: &str = include_str!("../../peers/all_reduce_mpi.c");
const GGUF: &str = include_str!("../../peers/shape_gguf.py");

/// Time limit of one run of a peer. The slowest run reads a gigabyte and starts an interpreter.
pub(super) const LIMIT: Duration = Duration::from_secs(600);

/// Time limit of all turns with `--quick`, which leaves time for the limits of the machine and the
/// table.
const QUICK: Duration = Duration::from_secs(210);

/// Expected time of a turn of both sides, before one has been measured.
const TURN: Duration = Duration::from_secs(30);

/// Returns the number of repetitions of each task in one run of a peer.
const fn repeats(effort: Effort) -> usize {
    match effort {
        Effort::Quick => 2,
        Effort::Full => 5,
    }
}

struct TurnClock {
    started: Instant,
    limit: Option<Duration>,
    /// The last turn of each peer.
    longest: Vec<Duration>,
}

impl TurnClock {
    fn new(effort: Effort) -> Self {
        let limit = match effort {
            Effort::Quick => Some(QUICK),
            Effort::Full => None,
        };
        Self { started: Instant::now(), limit, longest: vec![TURN; PeerProgram::ALL.len()] }
    }

    fn left(&self) -> Duration {
        self.limit.map_or(LIMIT, |limit| limit.saturating_sub(self.started.elapsed()))
    }

    fn has_time(&self, peer: usize) -> bool {
        self.left() >= self.longest[peer]
    }

    fn took(&mut self, peer: usize, turn: Duration) {
        self.longest[peer] = turn;
    }
}

/// Measures all installed peers. Prints each turn as it ends, and the table of the finished turns
/// if a signal ends the process.
pub(super) fn run(bench: &Bench, output: &BenchOutput) -> Result<Vec<MeasuredTable>, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut clock = TurnClock::new(bench.effort);
    let recorded = peers::recorded()?;
    let (mut installed, mut missing) = (Vec::new(), Vec::new());
    for peer in PeerProgram::ALL {
        match ReadyPeer::find(peer, bench.effort, threads, &clock)? {
            Ok(ready) => installed.push(ready),
            Err(what) => missing.push((peer, what)),
        }
    }
    let turns: Vec<Turns> =
        installed.iter().map(|ready| Turns { peer: ready.peer, rounds: Vec::new() }).collect();
    let turns = Arc::new(Mutex::new(turns));
    let tables = move |turns: &[Turns]| {
        let mut tables = vec![peers::compared(turns, threads)];
        tables.extend((!missing.is_empty()).then(|| peers::missing(&missing)));
        tables.push(recorded.clone());
        tables
    };
    let (so_far, show, of) = (Arc::clone(&turns), output.clone(), tables.clone());
    interrupt::report_at_end(move || {
        if let Err(failure) = show.show(of(&so_far.lock().unwrap_or_else(PoisonError::into_inner))) {
            failure.report();
        }
    });
    take_turns(bench, output, &installed, &mut clock, &turns)?;
    let turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(tables(&turns))
}

/// Runs each peer in turns with this library, for a fixed number of rounds or until the time is
/// over.
fn take_turns(
    bench: &Bench,
    output: &BenchOutput,
    installed: &[ReadyPeer],
    clock: &mut TurnClock,
    turns: &Mutex<Vec<Turns>>,
) -> Result<(), Failure> {
    let rounds = match bench.effort {
        Effort::Quick => 2,
        Effort::Full => 5,
    };
    for round in 1..=rounds {
        for (peer_index, ready) in installed.iter().enumerate() {
            let name = ready.peer.name();
            if !clock.has_time(peer_index) {
                note(&format!(
                    "no time left with --quick for round {round} of {name}: leave --quick out for all rounds"
                ));
                continue;
            }
            note(&format!("round {round} of {rounds}: {name} and ours"));
            let started = Instant::now();
            // The peer runs first, so that its failures cost no other time.
            let theirs = match ready.measure(clock.left()) {
                Err(_) if bench.effort == Effort::Quick && clock.left().is_zero() => {
                    note(&format!("no time left with --quick: {name} did not finish round {round}"));
                    continue;
                }
                theirs => theirs.inspect_err(|_| interrupt::wait_for_signal())?,
            };
            let ours = ours(bench, ready.peer).inspect_err(|_| interrupt::wait_for_signal())?;
            let text = peers::round_text(ready.peer, &ours, &theirs);
            turns.lock().unwrap_or_else(PoisonError::into_inner)[peer_index].rounds.push((ours, theirs));
            clock.took(peer_index, started.elapsed());
            let text = format!("round {round} of {rounds}, {name}: {text}");
            if output.json { note(&text) } else { print_report(&format!("{text}\n"))? }
        }
    }
    Ok(())
}

fn ours(bench: &Bench, peer: PeerProgram) -> Result<PeerMeasurement, Failure> {
    if peer.generates() {
        Ok(PeerMeasurement::generated(&generation::run(bench, &figures::model()?)?))
    } else {
        Ok(PeerMeasurement::exchanged(&across_processes(bench.effort)?))
    }
}

struct ReadyPeer {
    peer: PeerProgram,
    effort: Effort,
    threads: usize,
    /// Program that runs the peer: an interpreter, a launcher, or the peer's own benchmark.
    program: PathBuf,
    file: Option<Unnamed>,
}

impl ReadyPeer {
    fn find(
        peer: PeerProgram,
        effort: Effort,
        threads: usize,
        clock: &TurnClock,
    ) -> Result<Result<Self, String>, Failure> {
        let ready = |program, file| Ok(Ok(Self { peer, effort, threads, program, file }));
        match peer {
            PeerProgram::Transformers => match python(&["torch", "transformers"]) {
                Ok(python) => ready(python, None),
                Err(what) => Ok(Err(what)),
            },
            PeerProgram::Gloo => match python(&["torch", "numpy"]) {
                Ok(python) => ready(python, None),
                Err(what) => Ok(Err(what)),
            },
            PeerProgram::OpenMpi => match (on_path("mpirun"), on_path("mpicc")) {
                (Some(_), Some(mpicc)) if !has_headers(&mpicc) => {
                    Ok(Err(format!("{} finds no mpi.h", mpicc.display())))
                }
                (Some(mpirun), Some(mpicc)) => ready(mpirun, Some(compiled(&mpicc, clock.left())?)),
                (None, _) => Ok(Err("no mpirun on PATH".to_owned())),
                (_, None) => Ok(Err("no mpicc on PATH".to_owned())),
            },
            PeerProgram::LlamaCpp => {
                let Some(program) = on_path("llama-bench") else {
                    return Ok(Err("no llama-bench on PATH".to_owned()));
                };
                match python(&["gguf", "numpy"]) {
                    Ok(python) => {
                        let vocabulary = LlamaVocabulary::None;
                        ready(program, Some(model(&python, threads, clock.left(), vocabulary)?))
                    }
                    Err(what) => Ok(Err(what)),
                }
            }
        }
    }

    fn measure(&self, limit: Duration) -> Result<PeerMeasurement, Failure> {
        let Self { peer, effort, threads, program, file } = self;
        let repeats = repeats(*effort);
        let run = |command: Vec<OsString>, processes: usize| self.run(command, processes, limit);
        let path = file.as_ref().map(Unnamed::path).unwrap_or_default();
        let times = match peer {
            PeerProgram::Transformers => {
                let shape = peers::generation_argument(*threads, repeats)?.to_string();
                peer.read(&run(words(program, &["-c", TRANSFORMERS, &shape]), 1)?)
            }
            PeerProgram::Gloo => {
                let mut command = words(program, &["-c", GLOO]);
                command.extend(peers::exchange_arguments(*peer).into_iter().map(OsString::from));
                peer.read(&run(command, figures::CARDS)?)
            }
            PeerProgram::OpenMpi => {
                let ranks = figures::CARDS.to_string();
                let options = [
                    "--oversubscribe",
                    "--bind-to",
                    "none",
                    "--mca",
                    "mpi_yield_when_idle",
                    "1",
                    "-np",
                    &ranks,
                ];
                let mut command = words(program, &options);
                // mpirun refuses to run as root without this option.
                command.extend(is_root().then(|| OsString::from("--allow-run-as-root")));
                command.push(path.into());
                command.extend(peers::exchange_arguments(*peer).into_iter().map(OsString::from));
                peer.read(&run(command, 1)?)
            }
            PeerProgram::LlamaCpp => {
                let [threads_text, runs] = [*threads, repeats].map(|number| number.to_string());
                let tests = peers::llama_bench_arguments().into_iter().map(|test| {
                    let mut command = words(program, &["-o", "json", "-r", &runs, "-t", &threads_text]);
                    command.extend(test.into_iter().map(OsString::from));
                    command.extend([OsString::from("-m"), path.clone().into()]);
                    run(command, 1)
                });
                PeerProgram::read_llama_bench(&tests.collect::<Result<Vec<_>, _>>()?, *threads)
            }
        };
        times.map_err(|problem| Failure::Run(Diagnostics::from(problem).into()))
    }

    fn run(&self, command: Vec<OsString>, processes: usize, limit: Duration) -> Result<String, Failure> {
        let name = self.peer.name().to_owned();
        ChildJob { name, command, processes, cards: None, prints: ChildOutput::OutputAndErrors }
            .start()?
            .finish(Some(limit))
    }
}

pub(super) fn words(program: &Path, arguments: &[&str]) -> Vec<OsString> {
    let program = program.as_os_str().to_owned();
    [program].into_iter().chain(arguments.iter().map(OsString::from)).collect()
}

pub(super) fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Returns a Python with all modules, or an error that names the missing part.
pub(super) fn python(modules: &[&str]) -> Result<PathBuf, String> {
    let python = on_path("python3").or_else(|| on_path("python")).ok_or("no python3 on PATH")?;
    let has = |module: &&&str| {
        let look = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)";
        let mut command = Command::new(&python);
        command.args(["-c", look, module]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    match modules.iter().find(|module| !has(module)) {
        Some(module) => Err(format!("{} has no module {module}", python.display())),
        None => Ok(python),
    }
}

/// A file without a name, which exists as long as this process.
struct Unnamed(File);

impl Unnamed {
    /// Returns a path that other processes can open while this process lives.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()))
    }
}

/// Returns whether a compiler finds `mpi.h`. Debian has the headers in a separate package.
fn has_headers(compiler: &Path) -> bool {
    let mut command = Command::new(compiler);
    command.args(["-E", "-x", "c", "-include", "mpi.h", "/dev/null"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn compiled(compiler: &Path, limit: Duration) -> Result<Unnamed, Failure> {
    let folder = tempfile::tempdir()?;
    let (source, program) = (folder.path().join("all_reduce_mpi.c"), folder.path().join("all_reduce_mpi"));
    fs::write(&source, OPEN_MPI)?;
    let mut command = words(compiler, &["-O2", "-o"]);
    command.extend([program.clone().into(), source.into()]);
    let name = compiler.display().to_string();
    ChildJob { name, command, processes: 1, cards: None, prints: ChildOutput::OutputAndErrors }
        .start()?
        .finish(Some(limit))?;
    // The folder is deleted at once; the open file remains.
    Ok(Unnamed(File::open(&program).with_context(|| program.display().to_string()).map_err(Failure::Run)?))
}

/// The vocabulary in a file for llama.cpp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LlamaVocabulary {
    /// Programs that make up their tokens need none.
    None,
    /// A token for each byte, and a text for each further id.
    Bytes,
}

/// This library's model with random weights, as a file for llama.cpp.
pub(super) struct LlamaModel(Unnamed);

impl LlamaModel {
    /// Writes the file, or returns the missing part.
    pub(super) fn new(
        threads: usize,
        limit: Duration,
        vocabulary: LlamaVocabulary,
    ) -> Result<Result<Self, String>, Failure> {
        match python(&["gguf", "numpy"]) {
            Ok(python) => Ok(Ok(Self(model(&python, threads, limit, vocabulary)?))),
            Err(what) => Ok(Err(what)),
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.path()
    }
}

/// Writes this library's model with random weights as a file for llama.cpp.
fn model(
    python: &Path,
    threads: usize,
    limit: Duration,
    vocabulary: LlamaVocabulary,
) -> Result<Unnamed, Failure> {
    let file = Unnamed(tempfile::tempfile()?);
    let mut shape = peers::generation_argument(threads, 1)?;
    shape["has_tokens"] = (vocabulary == LlamaVocabulary::Bytes).into();
    let mut command = words(python, &["-c", GGUF, &shape.to_string()]);
    command.push(file.path().into());
    let name = "a model for llama.cpp".to_owned();
    ChildJob { name, command, processes: 1, cards: None, prints: ChildOutput::OutputAndErrors }
        .start()?
        .finish(Some(limit))?;
    Ok(file)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
