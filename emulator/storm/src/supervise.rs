//! Starts the processes of a program, forwards notes, compares bytes, and ends processes that hang.
//!
//! No process outlives the run. A finding names the step that wrote the differing bytes.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::oracle::{BLOCK_BYTES, Expected, interpret};
use crate::probe::{SLACK, StormProbe};
use crate::program::{Ending, StormProgram, StormStep};
use crate::shrink::Excerpt;

/// A deviation from the expected behaviour.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StormFinding {
    pub kind: String,
    pub what: String,
}

/// Starts the processes of programs with this binary.
#[derive(Debug, Clone)]
pub struct Supervisor {
    pub binary: PathBuf,
}

enum RankEvent {
    Line(usize, String),
    End(usize),
}

/// Dropping the value kills the process.
struct RankProcess {
    child: Child,
    input: Option<ChildStdin>,
    has_ended: bool,
    is_done: bool,
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        // Fails only for an ended process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct StormRun<'a> {
    program: &'a StormProgram,
    processes: Vec<RankProcess>,
    findings: Vec<StormFinding>,
    reads: Vec<(u32, usize, Vec<u64>)>,
    killed: Option<(usize, Instant)>,
    heard: BTreeSet<u32>,
}

impl Supervisor {
    /// Runs a shortened program once.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn run(&self, cut: &Excerpt) -> Result<Vec<StormFinding>> {
        let program = cut.program();
        let (sender, events) = channel();
        let processes = (0..program.setup.processes.len())
            .map(|index| self.start(cut, index, &sender))
            .collect::<Result<Vec<RankProcess>>>()?;
        drop(sender);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..program.setup.busy {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let oracle = scope.spawn(|| interpret(&program));
            let (findings, reads, heard, killed) = (Vec::new(), Vec::new(), BTreeSet::new(), None);
            let mut run = StormRun { program: &program, processes, findings, reads, killed, heard };
            run.follow(&events);
            is_over.store(true, Ordering::Relaxed);
            let expected = oracle.join().map_err(|_| anyhow::anyhow!("the oracle panicked"))?;
            run.compare(&expected);
            run.findings.sort();
            run.findings.dedup();
            Ok(run.findings)
        })
    }

    fn start(&self, cut: &Excerpt, index: usize, sender: &Sender<RankEvent>) -> Result<RankProcess> {
        let mut command = Command::new(&self.binary);
        command.args(["--process", &index.to_string()]).args(cut.arguments());
        command
            .env("HCCL_SOCKET_IFNAME", "lo")
            .env_remove("HCCL_EXEC_TIMEOUT")
            .env_remove("ASCEND_EMULATOR_TRANSPORT");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.binary.display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (process, sender) =
            (RankProcess { child, input, has_ended: false, is_done: false }, sender.clone());
        let lines = BufReader::new(output.context("no standard output")?).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(RankEvent::Line(index, line));
            }
            let _ = sender.send(RankEvent::End(index));
        });
        Ok(process)
    }
}

/// Returns a limit far above the normal duration.
fn limit(program: &StormProgram) -> Duration {
    let of_step = |step: &StormStep| match step {
        StormStep::Probe { probe: StormProbe::Limit { .. }, .. } | StormStep::Absent { .. } => 16,
        StormStep::Probe { .. } => 12,
        StormStep::Stall { .. } => 6,
        _ => 0,
    };
    let ending = if program.ending == Ending::InOrder { 0 } else { 20 };
    let strict = if program.setup.strict.is_some() { 30 } else { 0 };
    Duration::from_secs(60 + ending + strict + program.steps.iter().map(of_step).sum::<u64>())
}

impl StormRun<'_> {
    fn finding(&mut self, kind: &str, what: String) {
        self.findings.push(StormFinding { kind: kind.to_owned(), what });
    }

    /// Ends when all have ended or no more results can follow.
    fn follow(&mut self, events: &Receiver<RankEvent>) {
        let limit = limit(self.program);
        let mut until = Instant::now() + limit;
        let mut is_broken = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match events.recv_timeout(left.min(Duration::from_millis(200))) {
                Ok(RankEvent::Line(index, line)) => self.hear(index, &line),
                Ok(RankEvent::End(index)) => self.end(index),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.processes.iter().all(|process| process.has_ended) {
                break;
            }
            let broke = self.processes.iter().any(|process| process.has_ended && !process.is_done);
            if broke && self.killed.is_none() && !is_broken {
                // The others get a moment to report.
                is_broken = true;
                until = until.min(Instant::now() + Duration::from_secs(2));
            }
            self.judge_death();
            if Instant::now() >= until {
                if !is_broken {
                    self.finding("hang", format!("not over after {limit:?}; {}", self.states()));
                }
                break;
            }
        }
    }

    /// Survivors must notice a death in time.
    fn judge_death(&mut self) {
        let Some((victim, since)) = self.killed else { return };
        let survivors = self.program.world() as usize - self.program.setup.processes[victim].len();
        if self.heard.len() < survivors && since.elapsed() > SLACK {
            let what = format!("{} of {survivors} survivors had noticed after {SLACK:?}", self.heard.len());
            if !self.findings.iter().any(|finding| finding.kind == "death") {
                self.finding("death", format!("{:?}: {what}", self.program.ending));
            }
        }
        if since.elapsed() > 3 * SLACK {
            self.processes.iter_mut().filter(|process| !process.has_ended).for_each(|process| {
                let _ = process.child.kill();
            });
        }
    }

    fn states(&self) -> String {
        let state = |process: &RankProcess| if process.has_ended { "ended" } else { "runs" };
        let states: Vec<&str> = self.processes.iter().map(state).collect();
        format!("processes: {}", states.join(", "))
    }

    fn hear(&mut self, from: usize, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "note" => {
                let others = self.processes.iter_mut().enumerate().filter(|(index, _)| *index != from);
                for input in others.filter_map(|(_, process)| process.input.as_mut()) {
                    // An ended process does not read.
                    let _ = input.write_all(format!("{line} \n").as_bytes());
                }
                if rest.starts_with("die ") && self.killed.is_none() {
                    self.killed = Some((from, Instant::now()));
                    let _ = self.processes[from].child.kill();
                }
            }
            "read" => {
                let mut words = rest.split(' ');
                let mut number =
                    || words.next().and_then(|word| word.parse::<usize>().ok()).unwrap_or(usize::MAX);
                let (rank, step) = (number() as u32, number());
                let hashes = words.map(|word| u64::from_str_radix(word, 16).unwrap_or_default()).collect();
                self.reads.push((rank, step, hashes));
            }
            "finding" => {
                let (kind, what) = rest.split_once(' ').unwrap_or((rest, ""));
                self.finding(kind, what.to_owned());
            }
            "heard" => {
                self.heard.extend(rest.parse::<u32>());
            }
            "done" => self.processes[from].is_done = true,
            _ => self.finding("output", format!("process {from} said {line:?}")),
        }
    }

    fn end(&mut self, index: usize) {
        let process = &mut self.processes[index];
        process.has_ended = true;
        let status = process.child.wait();
        let goes = match self.program.ending {
            Ending::Quits { process } | Ending::Dies { process, .. } => Some(process as usize),
            Ending::Leaves { .. } | Ending::InOrder => None,
        };
        if goes == Some(index) {
            process.is_done = true;
        }
        let is_told = self.findings.iter().any(|finding| finding.kind != "bytes");
        if !process.is_done && !is_told {
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            self.finding("crash", format!("process {index} ended in the middle: {status}"));
        }
    }

    fn compare(&mut self, expected: &[Expected]) {
        for (rank, step, hashes) in std::mem::take(&mut self.reads) {
            let Some(expected) =
                expected.iter().find(|expected| expected.rank == rank && expected.step == step)
            else {
                self.finding("bytes", format!("rank {rank} read at step {step}, where it should not"));
                continue;
            };
            let blocks = hashes.iter().zip(&expected.hashes).enumerate();
            let wrong: Vec<usize> =
                blocks.filter(|(_, (found, right))| found != right).map(|(at, _)| at).collect();
            if let Some(first) = wrong.first() {
                let writer = expected.writers[*first].map_or_else(
                    || "nobody wrote it".to_owned(),
                    |writer| format!("written last by step {writer}, {:?}", self.program.steps[writer]),
                );
                let (count, of) = (wrong.len(), hashes.len());
                let what = format!(
                    "rank {rank}, step {step}: {count} of {of} blocks of {BLOCK_BYTES} bytes are wrong; the first, {first}, {writer}"
                );
                self.finding("bytes", what);
            }
        }
    }
}
