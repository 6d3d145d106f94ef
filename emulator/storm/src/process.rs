//! One process of a program: a machine, a thread per rank, and messages to the supervisor.
//!
//! - Notes of other processes arrive on standard input.
//! - Standard output has the lines `note NAME TEXT`, `read RANK STEP HASHES`, `finding KIND TEXT`,
//!   `heard RANK`, `done`.
//! - A wait beyond its limit is reported and ends the process.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ascend_tp_emulator::{Config, Emulator, Mode, Sharing, Transport};

use crate::calls::Api;
use crate::program::{Ending, StormProgram};
use crate::rank::{RankDriver, fatal};
use crate::shrink::Excerpt;

/// Runs for as many milliseconds as cores.
pub(crate) const KERNEL: &CStr = c"storm_work";
const BROKEN: i32 = 3;

pub(crate) struct StormRank {
    pub(crate) program: StormProgram,
    notes: Mutex<BTreeMap<String, String>>,
    noted: Condvar,
    watched: Mutex<BTreeMap<u64, (Instant, String)>>,
    has_findings: AtomicBool,
    machine: OnceLock<Emulator>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The process ends with its supervisor.
    if writeln!(out, "{}", line.replace('\n', " ")).and_then(|()| out.flush()).is_err() {
        std::process::exit(BROKEN);
    }
}

/// Ends when it is dropped.
pub(crate) struct Watched<'a> {
    world: &'a StormRank,
    number: u64,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        locked(&self.world.watched).remove(&self.number);
    }
}

impl StormRank {
    /// Sends a text to all processes under a name.
    pub(crate) fn post(&self, name: &str, text: &str) {
        say(&format!("note {name} {text}"));
        self.note(name, text);
    }

    fn note(&self, name: &str, text: &str) {
        locked(&self.notes).insert(name.to_owned(), text.to_owned());
        self.noted.notify_all();
    }

    pub(crate) fn wait(&self, name: &str) -> String {
        let mut notes = locked(&self.notes);
        loop {
            if let Some(text) = notes.get(name) {
                return text.clone();
            }
            notes = self.noted.wait(notes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn finding(&self, kind: &str, what: &str) {
        self.has_findings.store(true, Ordering::Relaxed);
        say(&format!("finding {kind} {what}"));
    }

    pub(crate) fn read(&self, rank: u32, step: usize, hashes: &[u64]) {
        let mut line = format!("read {rank} {step}");
        for hash in hashes {
            let _ = write!(line, " {hash:016x}");
        }
        say(&line);
    }

    /// Ends the process with a finding unless the value is dropped in time. Strict mode has no real
    /// time: its limit is 100 times longer.
    pub(crate) fn watch(&self, what: String, limit: Duration) -> Watched<'_> {
        let mut watched = locked(&self.watched);
        let number = watched.last_key_value().map_or(0, |(number, _)| number + 1);
        let limit = if self.program.setup.strict.is_some() { limit * 100 } else { limit };
        watched.insert(number, (Instant::now() + limit, what));
        Watched { world: self, number }
    }

    /// Objects of a rank that stopped early do not count.
    fn tell_reports(&self) -> bool {
        let reports = self.machine.get().map(Emulator::reports).unwrap_or_default();
        let is_judged = !reports.is_empty() && !self.has_findings.load(Ordering::Relaxed);
        for report in reports.iter().filter(|_| is_judged) {
            self.finding("report", &report.to_string());
        }
        is_judged
    }

    fn look_at_the_watch(&self) {
        let now = Instant::now();
        let late =
            locked(&self.watched).values().find(|(until, _)| *until < now).map(|(_, what)| what.clone());
        if let Some(what) = late {
            self.finding("late", &format!("still waiting: {what}"));
            std::process::exit(BROKEN);
        }
    }
}

/// Runs process `index` of a program.
///
/// # Errors
///
/// The machine cannot be built.
pub fn run(cut: &Excerpt, index: usize) -> anyhow::Result<ExitCode> {
    let program = cut.program();
    let setup = program.setup.clone();
    let (notes, watched) = (Mutex::default(), Mutex::default());
    let world = Arc::new(StormRank {
        program,
        notes,
        noted: Condvar::new(),
        watched,
        has_findings: AtomicBool::new(false),
        machine: OnceLock::new(),
    });
    let listener = Arc::clone(&world);
    std::thread::Builder::new().name("notes".into()).spawn(move || listen(&listener))?;
    let watcher = Arc::clone(&world);
    // Strict mode does not wait for older threads that never call.
    std::thread::Builder::new().name("watch".into()).spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(50));
            watcher.look_at_the_watch();
            // After a resolved deadlock, one process continues, but others may wait forever.
            if watcher.tell_reports() {
                std::process::exit(BROKEN);
            }
        }
    })?;
    let config = Config {
        mode: setup.strict.map_or(Mode::Parallel, |seed| Mode::Strict { seed }),
        threads: setup.threads,
        transport: if setup.by_tcp { Transport::Tcp } else { Transport::Auto },
        exec_timeout: Duration::from_secs(setup.exec_limit_s),
        sharing: Sharing::Host,
        ..Config::with_cards(world.program.world() as usize)
    };
    let emulator = Emulator::new(config)?;
    let emulator = world.machine.get_or_init(|| emulator);
    emulator.register_kernel(KERNEL.to_string_lossy(), |call| {
        std::thread::sleep(Duration::from_millis(u64::from(call.blocks())));
        Ok(())
    });
    let api = Api::new(emulator.table());
    if let Err(failed) = api.init() {
        world.finding("code", &failed.to_string());
        return Ok(ExitCode::from(BROKEN as u8));
    }
    // Like most programs, a process with one rank has no other calling thread.
    std::thread::scope(|scope| {
        let (first, others) = setup.processes[index].split_first()?;
        for rank in others.iter().copied() {
            let (world, api) = (&*world, &api);
            // Fails only if the system is exhausted.
            let thread = std::thread::Builder::new().name(format!("rank-{rank}"));
            if let Err(error) = thread.spawn_scoped(scope, move || of_rank(world, api, rank, index as u32)) {
                world.finding("code", &format!("no thread for rank {rank}: {error}"));
            }
        }
        of_rank(&world, &api, *first, index as u32);
        Some(())
    });
    if matches!(world.program.ending, Ending::InOrder) {
        if let Err(failed) = api.finalize() {
            world.finding("code", &failed.to_string());
        }
        world.tell_reports();
    }
    say("done");
    Ok(ExitCode::SUCCESS)
}

fn listen(world: &StormRank) {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let mut words = line.splitn(3, ' ');
        if let (Some("note"), Some(name), Some(text)) = (words.next(), words.next(), words.next()) {
            world.note(name, text);
        }
    }
    std::process::exit(BROKEN);
}

fn of_rank(world: &StormRank, api: &Api, number: u32, process: u32) {
    let mut place = "at its start".to_owned();
    let outcome = RankDriver::new(world, api, number).and_then(|mut rank| {
        let outcome = rank.run().and_then(|()| crate::ending::of_rank(&mut rank, process));
        place = rank.place();
        outcome?;
        rank.end()
    });
    if let Err(failed) = outcome {
        world.tell_reports();
        world.finding("code", &fatal(number, &place, &failed));
        std::process::exit(BROKEN);
    }
}

pub(crate) fn heard(rank: u32) {
    say(&format!("heard {rank}"));
}
