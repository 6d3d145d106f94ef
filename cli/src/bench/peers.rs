//! `bench peers`: ours and others at the same tasks, in turns.
//!
//! Input → output: a bench → the library's tables of both sides, of who is missing and of what was recorded elsewhere. Peers
//! are looked for on `PATH`; their programs are those of `cli/peers/`, which this one carries. Each round ours runs, then
//! a peer, so that what else the machine does meets both. Invariants: a peer that is installed and fails, or prints what is
//! not understood, is an error; nothing is left behind, files that peers read have no name.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::measure::peers::{self, Peer, Times, Turns};
use crate::measure::{Bench, Effort, Table, figures, generation};
use anyhow::Context;
use ascend_tp::base::Diagnostics;

use super::all::across_processes;
use crate::children::{ChildJob, ChildOutput};
use crate::failure::Failure;
use crate::note;

const TRANSFORMERS: &str = include_str!("../../peers/generate_transformers.py");
const GLOO: &str = include_str!("../../peers/all_reduce_gloo.py");
const OPEN_MPI: &str = include_str!("../../peers/all_reduce_mpi.c");
const GGUF: &str = include_str!("../../peers/shape_gguf.py");

/// How long a peer may take for one run: the slowest read a gigabyte and start an interpreter.
pub(super) const LIMIT: Duration = Duration::from_secs(600);

/// Runs of `llama-bench` for each of its figures.
const LLAMA_RUNS: &str = "5";

/// Measures all peers that are installed.
pub(super) fn run(bench: &Bench) -> Result<Vec<Table>, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (mut installed, mut missing) = (Vec::new(), Vec::new());
    for peer in Peer::ALL {
        match ReadyPeer::find(peer, threads)? {
            Ok(ready) => installed.push(ready),
            Err(what) => missing.push((peer, what)),
        }
    }
    let mut turns: Vec<Turns> = installed.iter().map(|ready| Turns { peer: ready.peer, rounds: Vec::new() }).collect();
    let rounds = match bench.effort {
        Effort::Quick => 2,
        Effort::Full => 5,
    };
    for round in 1..=rounds {
        for (ready, turns) in installed.iter().zip(&mut turns) {
            note(&format!("round {round} of {rounds}: {} and ours", ready.peer.name()));
            // What a peer cannot do is known before ours has taken its time.
            let theirs = ready.measure()?;
            turns.rounds.push((ours(bench, ready.peer)?, theirs));
        }
    }
    let mut tables = vec![peers::compared(&turns, threads)];
    if !missing.is_empty() {
        tables.push(peers::missing(&missing));
    }
    tables.push(peers::recorded()?);
    Ok(tables)
}

/// What a peer does, done by ours.
fn ours(bench: &Bench, peer: Peer) -> Result<Times, Failure> {
    if peer.generates() {
        Ok(Times::generated(&generation::run(bench, &figures::model()?)?))
    } else {
        Ok(Times::exchanged(&across_processes(bench.effort)?))
    }
}

/// A peer that is installed, with what it needs.
struct ReadyPeer {
    peer: Peer,
    threads: usize,
    /// What runs it: an interpreter, a launcher, or its own benchmark.
    program: PathBuf,
    /// A file without a name, that it reads or that is executed.
    file: Option<Unnamed>,
}

impl ReadyPeer {
    /// The peer, or what of it is missing.
    fn find(peer: Peer, threads: usize) -> Result<Result<Self, String>, Failure> {
        let ready = |program, file| Ok(Ok(Self { peer, threads, program, file }));
        match peer {
            Peer::Transformers => match python(&["torch", "transformers"]) {
                Ok(python) => ready(python, None),
                Err(what) => Ok(Err(what)),
            },
            Peer::Gloo => match python(&["torch", "numpy"]) {
                Ok(python) => ready(python, None),
                Err(what) => Ok(Err(what)),
            },
            Peer::OpenMpi => match (on_path("mpirun"), on_path("mpicc")) {
                (Some(_), Some(mpicc)) if !has_headers(&mpicc) => {
                    Ok(Err(format!("{} finds no mpi.h", mpicc.display())))
                }
                (Some(mpirun), Some(mpicc)) => ready(mpirun, Some(compiled(&mpicc)?)),
                (None, _) => Ok(Err("no mpirun on PATH".to_owned())),
                (_, None) => Ok(Err("no mpicc on PATH".to_owned())),
            },
            Peer::LlamaCpp => {
                let Some(program) = on_path("llama-bench") else { return Ok(Err("no llama-bench on PATH".to_owned())) };
                match python(&["gguf", "numpy"]) {
                    Ok(python) => ready(program, Some(model(&python, threads)?)),
                    Err(what) => Ok(Err(what)),
                }
            }
        }
    }

    /// Runs it once.
    fn measure(&self) -> Result<Times, Failure> {
        let Self { peer, threads, program, file } = self;
        let path = file.as_ref().map(Unnamed::path).unwrap_or_default();
        let times = match peer {
            Peer::Transformers => {
                let shape = peers::generation_argument(*threads)?.to_string();
                peer.read(&self.run(words(program, &["-c", TRANSFORMERS, &shape]), 1)?)
            }
            Peer::Gloo => {
                let mut command = words(program, &["-c", GLOO]);
                command.extend(peers::exchange_arguments(*peer).into_iter().map(OsString::from));
                peer.read(&self.run(command, figures::CARDS)?)
            }
            Peer::OpenMpi => {
                let ranks = figures::CARDS.to_string();
                let options =
                    ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-np", &ranks];
                let mut command = words(program, &options);
                // It asks those who are root whether they mean it.
                command.extend(is_root().then(|| OsString::from("--allow-run-as-root")));
                command.push(path.into());
                command.extend(peers::exchange_arguments(*peer).into_iter().map(OsString::from));
                peer.read(&self.run(command, 1)?)
            }
            Peer::LlamaCpp => {
                let threads_text = threads.to_string();
                let tests = peers::llama_bench_arguments().into_iter().map(|test| {
                    let mut command = words(program, &["-o", "json", "-r", LLAMA_RUNS, "-t", &threads_text]);
                    command.extend(test.into_iter().map(OsString::from));
                    command.extend([OsString::from("-m"), path.clone().into()]);
                    self.run(command, 1)
                });
                Peer::read_llama_bench(&tests.collect::<Result<Vec<_>, _>>()?, *threads)
            }
        };
        times.map_err(|problem| Failure::Run(Diagnostics::from(problem).into()))
    }

    /// What a command of the peer prints.
    fn run(&self, command: Vec<OsString>, processes: usize) -> Result<String, Failure> {
        let name = self.peer.name().to_owned();
        ChildJob { name, command, processes, cards: None, prints: ChildOutput::OutputAndErrors }
            .start()?
            .finish(Some(LIMIT))
    }
}

pub(super) fn words(program: &Path, arguments: &[&str]) -> Vec<OsString> {
    let program = program.as_os_str().to_owned();
    [program].into_iter().chain(arguments.iter().map(OsString::from)).collect()
}

/// A program that the user can start by its name.
fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// A Python that has the modules, or what is missing.
pub(super) fn python(modules: &[&str]) -> Result<PathBuf, String> {
    let found = on_path("python3").or_else(|| on_path("python")).ok_or("no python3 on PATH")?;
    let has = |module: &&&str| {
        let look = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)";
        let mut command = Command::new(&found);
        command.args(["-c", look, module]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    match modules.iter().find(|module| !has(module)) {
        Some(module) => Err(format!("{} has no module {module}", found.display())),
        None => Ok(found),
    }
}

/// A file that is there as long as this process.
struct Unnamed(File);

impl Unnamed {
    /// The path by which other processes open it while this one lives.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()))
    }
}

/// Whether a compiler finds what programs of MPI include: Debian has it in a package of its own.
fn has_headers(compiler: &Path) -> bool {
    let mut command = Command::new(compiler);
    command.args(["-E", "-x", "c", "-include", "mpi.h", "/dev/null"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The program of a peer that must be compiled.
fn compiled(compiler: &Path) -> Result<Unnamed, Failure> {
    let folder = tempfile::tempdir()?;
    let (source, program) = (folder.path().join("all_reduce_mpi.c"), folder.path().join("all_reduce_mpi"));
    fs::write(&source, OPEN_MPI)?;
    let mut command = words(compiler, &["-O2", "-o"]);
    command.extend([program.clone().into(), source.into()]);
    let name = compiler.display().to_string();
    ChildJob { name, command, processes: 1, cards: None, prints: ChildOutput::OutputAndErrors }
        .start()?
        .finish(Some(LIMIT))?;
    // The folder goes at once; what is open stays.
    Ok(Unnamed(File::open(&program).with_context(|| program.display().to_string()).map_err(Failure::Run)?))
}

/// The model of ours with random weights, as a file that llama.cpp reads.
fn model(python: &Path, threads: usize) -> Result<Unnamed, Failure> {
    let file = Unnamed(tempfile::tempfile()?);
    let shape = peers::generation_argument(threads)?.to_string();
    let mut command = words(python, &["-c", GGUF, &shape]);
    command.push(file.path().into());
    let name = "a model for llama.cpp".to_owned();
    ChildJob { name, command, processes: 1, cards: None, prints: ChildOutput::OutputAndErrors }
        .start()?
        .finish(Some(LIMIT))?;
    Ok(file)
}

/// Whether this process may do everything.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
