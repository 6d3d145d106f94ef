//! Child processes of a command: this program for each rank, or other programs.
//!
//! - The system ends the children when this process ends, for any reason ([`run_beside`]).
//! - If one child fails, the other children get a moment to report and are then killed, even if
//!   they are stopped.
//! - A process that was started by a launcher starts no ranks.
//! - Ranks meet at a port that was free a moment before.

use std::ffi::OsString;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::world::{ProcessGroup, World};
use clap::Args;
use crossbeam_channel::{Receiver, bounded};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getppid, kill_process, set_parent_process_death_signal, waitid,
};

use crate::failure::{FAILED, Failure, INTERRUPTED, Outcome};
use crate::interrupt;

/// Time that children get to report after a failure, and time to read their output.
const GRACE: Duration = Duration::from_secs(1);

/// Environment variable for hiding cards from a process in CANN.
pub(super) const VISIBLE_CARDS: &str = "ASCEND_RT_VISIBLE_DEVICES";

const LOOK: Duration = Duration::from_millis(20);

/// A program that runs until it ends or until its parent ends.
#[derive(Debug, Args)]
pub(super) struct BesideOptions {
    /// Process id of the parent
    #[arg(long)]
    parent: i32,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Replaces this process by a program that the system kills when its parent ends.
///
/// A killed parent cannot pass on signals, and a stopped child does not receive them.
pub(super) fn run_beside(options: &BesideOptions) -> Failure {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Failure::Run(anyhow::Error::new(error).context("the request to end with the parent process"));
    }
    // The parent may have ended before the request to the system.
    if getppid() != Pid::from_raw(options.parent) {
        return Failure::Interrupted;
    }
    let [program, arguments @ ..] = options.command.as_slice() else { return Failure::Elsewhere };
    let error = Command::new(program).args(arguments).exec();
    Failure::Run(anyhow::Error::new(error).context(program.display().to_string()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildOutput {
    /// The first child writes to the stdout of this process.
    Through,
    /// [`Children::finish`] returns the output of the first child.
    Output,
    /// As `Output`; in addition, stderr is captured and reported if a child fails.
    OutputAndErrors,
}

#[derive(Debug)]
pub(super) struct ChildJob {
    pub(super) name: String,
    pub(super) command: Vec<OsString>,
    /// Number of processes; more than one get the environment variables of ranks.
    pub(super) processes: usize,
    /// Numbers of the cards visible to the processes; None keeps the cards of this process.
    pub(super) cards: Option<Vec<usize>>,
    pub(super) prints: ChildOutput,
}

impl ChildJob {
    pub(super) fn own(
        name: &str,
        processes: usize,
        arguments: &[OsString],
        prints: ChildOutput,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe()?.into_os_string();
        let command = [program].into_iter().chain(arguments.iter().cloned()).collect();
        Ok(Self { name: name.to_owned(), command, processes, cards: None, prints })
    }

    /// Starts all processes of the job.
    ///
    /// Must be called by the main thread: children end with the thread that started them.
    pub(super) fn start(self) -> Result<Children, Failure> {
        let Self { name, command, processes, cards, prints } = self;
        let cards = cards.map(|cards| cards.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let program = std::env::current_exe()?;
        let mut children = Children { name, processes: Vec::with_capacity(processes) };
        for rank in 0..processes {
            let mut beside = Command::new(&program);
            beside
                .args(["bench", "beside", "--parent", &std::process::id().to_string(), "--"])
                .args(&command);
            if processes > 1 {
                beside
                    .env("RANK", rank.to_string())
                    .env("WORLD_SIZE", processes.to_string())
                    .env("LOCAL_RANK", rank.to_string())
                    .env("LOCAL_WORLD_SIZE", processes.to_string())
                    .env("MASTER_ADDR", "127.0.0.1")
                    .env("MASTER_PORT", port.to_string());
            }
            beside.envs(cards.iter().map(|cards| (VISIBLE_CARDS, cards)));
            beside.stdin(Stdio::null()).stdout(match (rank, prints) {
                (0, ChildOutput::Through) => Stdio::inherit(),
                (0, _) => Stdio::piped(),
                _ => Stdio::null(),
            });
            if prints == ChildOutput::OutputAndErrors {
                beside.stderr(Stdio::piped());
            }
            let mut child = beside.spawn().with_context(|| children.who(rank)).map_err(Failure::Run)?;
            let output = child.stdout.take().map(read);
            let errors = child.stderr.take().map(read);
            children.processes.push(ChildProcess { child, output, errors, ended: None });
        }
        Ok(children)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderlyEnd {
    Done,
    /// The supervisor asked the children to end.
    Asked,
}

/// Running processes. Dropping the value kills the processes that still run.
#[derive(Debug)]
pub(super) struct Children {
    name: String,
    processes: Vec<ChildProcess>,
}

#[derive(Debug)]
struct ChildProcess {
    child: Child,
    output: Option<Receiver<String>>,
    errors: Option<Receiver<String>>,
    ended: Option<ExitStatus>,
}

impl ChildProcess {
    fn is_stopped(&self) -> bool {
        self.is(WaitIdOptions::STOPPED)
    }

    /// Returns whether the process is in a state, without reaping the process.
    fn is(&self, state: WaitIdOptions) -> bool {
        let asked = state | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), asked).is_ok_and(|found| found.is_some())
    }
}

impl Children {
    /// Waits until all processes have ended and returns the output of the first one, if captured.
    ///
    /// # Errors
    /// A process failed, with its name and exit status, or the processes did not end within
    /// `limit`. [`Failure::Elsewhere`] if a child with inherited stderr has already reported wrong
    /// input.
    pub(super) fn finish(mut self, limit: Option<Duration>) -> Result<String, Failure> {
        match self.wait(limit, None)? {
            Some(first) => Err(self.failure(first)),
            None => self.processes[0].output.as_ref().map_or(Ok(String::new()), |output| {
                let missing =
                    || Failure::Run(anyhow!("{}: its output did not end with the process", self.who(0)));
                output.recv_timeout(GRACE).map_err(|_| missing())
            }),
        }
    }

    /// Waits for children that save their work before they end.
    ///
    /// A request to end this process is passed on to the children. `is_due` is polled, and its
    /// request is passed on too.
    ///
    /// # Errors
    /// See [`Children::finish`]; also if the user asked the children to end.
    pub(super) fn finish_in_order(mut self, is_due: &mut dyn FnMut() -> bool) -> Result<OrderlyEnd, Failure> {
        let mut was_due = false;
        let mut is_asked = || {
            was_due = was_due || is_due();
            was_due || interrupt::is_requested()
        };
        let Some(first) = self.wait(None, Some(&mut is_asked))? else { return Ok(OrderlyEnd::Done) };
        let cause = self.cause(first);
        let code = self.processes[cause].ended.and_then(|ended| ended.code());
        // Children save before they end on request, and saving may fail.
        if interrupt::is_requested() && code != Some(i32::from(FAILED)) {
            return Err(Failure::Interrupted);
        }
        match code == Some(i32::from(INTERRUPTED)) {
            true if was_due => Ok(OrderlyEnd::Asked),
            true => Err(Failure::Interrupted),
            false => Err(self.failure(first)),
        }
    }

    pub(super) fn have_ended(&self) -> bool {
        self.processes.iter().all(|process| process.ended.is_some() || process.is(WaitIdOptions::EXITED))
    }

    /// Waits until all processes have ended, or until the grace period after a failure is over.
    /// Returns the first failed rank.
    ///
    /// Once `is_asked` returns true, the children are asked to end.
    fn wait(
        &mut self,
        limit: Option<Duration>,
        mut is_asked: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<Option<usize>, Failure> {
        let started = Instant::now();
        let mut failed: Option<(usize, Instant)> = None;
        while self.processes.iter().any(|process| process.ended.is_none()) {
            if is_asked.as_mut().is_some_and(|is_asked| is_asked()) {
                is_asked = None;
                for process in self.processes.iter().filter(|process| process.ended.is_none()) {
                    // A process that has just ended cannot receive the signal.
                    let _told = kill_process(Pid::from_child(&process.child), Signal::TERM);
                }
            }
            for (rank, process) in
                self.processes.iter_mut().enumerate().filter(|(_, process)| process.ended.is_none())
            {
                process.ended = process.child.try_wait()?;
                if process.ended.is_some_and(|ended| !ended.success()) {
                    failed.get_or_insert((rank, Instant::now() + GRACE));
                }
            }
            if let Some(limit) = limit
                && failed.is_none()
                && started.elapsed() > limit
            {
                let problem = format!("{} did not end within {} s", self.name, limit.as_secs());
                return Err(Failure::Run(anyhow!(problem)));
            }
            // A stopped process reports nothing more.
            let mut others = self.processes.iter().filter(|process| process.ended.is_none());
            if failed.is_some_and(|(_, deadline)| {
                Instant::now() > deadline || others.all(ChildProcess::is_stopped)
            }) {
                break;
            }
            std::thread::sleep(LOOK);
        }
        Ok(failed.map(|(first, _)| first))
    }

    /// Returns the rank that caused the failure. `first` is the rank that was seen to fail first.
    ///
    /// A rank that was killed or stopped by a signal comes first, then a rank that was asked to
    /// end, then `first`.
    fn cause(&self, first: usize) -> usize {
        let ended = |rank: usize| self.processes[rank].ended;
        let order = |rank: &usize| match ended(*rank).map(|ended| (ended.success(), ended.code())) {
            Some((false, None)) => 0,
            None if self.processes[*rank].is_stopped() => 0,
            Some((false, Some(code))) if code == i32::from(INTERRUPTED) => 1,
            _ if *rank == first => 2,
            _ => 3,
        };
        (0..self.processes.len()).min_by_key(order).unwrap_or(first)
    }

    fn failure(&self, first: usize) -> Failure {
        let ended = |rank: usize| self.processes[rank].ended;
        let cause = self.cause(first);
        // The child has already reported wrong input.
        if ended(cause).and_then(|ended| ended.code()) == Some(2) && self.processes[cause].errors.is_none() {
            return Failure::Elsewhere;
        }
        let how = ended(cause).map_or_else(|| "stopped by a signal".to_owned(), |ended| ended.to_string());
        let said = self.processes[cause].errors.as_ref().filter(|_| ended(cause).is_some());
        let said = said.and_then(|errors| errors.recv_timeout(GRACE).ok());
        let last = said.as_deref().map(str::trim).and_then(|said| said.lines().last()).unwrap_or_default();
        let colon = if last.is_empty() { "" } else { ": " };
        Failure::Run(anyhow!("{} failed ({how}){colon}{last}", self.who(cause)))
    }

    fn who(&self, rank: usize) -> String {
        let Self { name, processes } = self;
        match processes.get(rank).map(|process| process.child.id()) {
            Some(id) if processes.len() > 1 => format!("rank {rank} (process {id}) of {name}"),
            _ => name.clone(),
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ended = process.child.kill();
        }
        for process in &mut self.processes {
            let _status = process.child.wait();
        }
    }
}

/// Reads to the end on a separate thread, so that a full pipe does not block the child.
fn read(mut from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, text) = bounded(1);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A broken pipe keeps the bytes read before.
        let _read = from.read_to_end(&mut bytes);
        let _unread = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    text
}

/// Starts `wanted` processes with the arguments of this one and waits for them. Returns None if
/// `wanted` is None, or if this process is already a rank.
pub(super) fn start_ranks(wanted: Option<usize>) -> Result<Option<Outcome>, Failure> {
    let Some(wanted) = wanted else { return Ok(None) };
    let world = World::from_env().map_err(|error| Failure::Input(error.into()))?;
    if world.size == wanted {
        return Ok(None);
    }
    if world.size > 1 {
        let problem =
            Diagnostic::new("--processes", "a launcher has started a different number of processes");
        return Err(Diagnostics::from(
            problem.expected(world.size).found(wanted).help("leave --processes out"),
        )
        .into());
    }
    interrupt::end_at_once(&Arc::new(ProcessGroup::alone()));
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    ChildJob::own("the measurement", wanted, &arguments, ChildOutput::Through)?.start()?.finish(None)?;
    Ok(Some(Outcome::Done))
}
