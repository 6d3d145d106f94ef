//! Kills processes of running commands and checks how the remaining processes end.
//!
//! Each command runs in each launch form and receives each signal, at a random process and time.
//! Every other process must end within two seconds, with a failure code and a message that names
//! the rank. Requests of a server end within the same time, and name the rank. Nothing may be left
//! over. Kills before the rendezvous are not tested, because only a launcher can detect them.

mod job;
mod requests;
pub(crate) mod restarts;

use std::env;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::built::{Built, cargo};
use crate::say;
pub(crate) use job::signal;
use job::{CommandJob, JobEnd, JobLaunch, JobProcess, RANKS, code, has_mpirun};
use requests::RunningRequests;

/// Promised maximum delay of every end.
const LIMIT: Duration = Duration::from_secs(2);

/// After a failure of the engine, a server answers probes for this time before it ends.
const SERVER_GRACE: Duration = Duration::from_secs(1);

/// `/proc` has no notifications, so it is polled.
const LOOK: Duration = Duration::from_millis(5);

/// Additional waiting time to measure late ends.
const PATIENCE: Duration = Duration::from_secs(10);

const DRAWS: u32 = 30;

const SIGNALS: [&str; 4] = ["KILL", "TERM", "INT", "STOP"];

#[derive(Clone, Copy)]
struct KilledCommand {
    name: &'static str,
    /// Arguments; `{models}` is the folder of models, `{port}` a free port.
    words: &'static str,
    cards: &'static str,
    window: Duration,
    signals: &'static [&'static str],
    /// Trials of each form and signal.
    trials: usize,
}

impl KilledCommand {
    /// Nothing ends the only process of a server that is stopped.
    fn has(&self, form: JobLaunch, signal: &str) -> bool {
        !(self.name == SERVE && signal == "STOP" && matches!(form, JobLaunch::Alone))
    }
}

const SERVE: &str = "serve";

const COMMANDS: [KilledCommand; 4] = [
    KilledCommand {
        name: "generate",
        words: "generate --device emulator --model {models}/kjv-qwen2 --dtype f32 --max-new-tokens 900",
        cards: "--cards",
        window: Duration::from_secs(2),
        signals: &SIGNALS,
        trials: 1,
    },
    KilledCommand {
        name: "verify",
        words: "verify --device emulator --model {models}/kjv-qwen2 --dtype bf16",
        cards: "--cards",
        window: Duration::from_secs(1),
        signals: &SIGNALS,
        trials: 1,
    },
    KilledCommand {
        name: "bench",
        words: "bench collectives --device emulator --quick --op all_reduce --min-bytes 4K --max-bytes 4K --iterations 100000000",
        cards: "--ranks",
        window: Duration::from_secs(2),
        signals: &SIGNALS,
        trials: 1,
    },
    KilledCommand {
        name: SERVE,
        words: "serve --device emulator --model {models}/kjv-qwen2 --max-num-seqs 16 --max-model-len 512 --port {port}",
        cards: "--cards",
        window: Duration::from_secs(2),
        // SIGTERM and SIGINT end a server in order.
        signals: &["KILL", "STOP"],
        trials: 5,
    },
];

const TORCHRUN: &str = "TORCHELASTIC_RUN_ID={job} TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_USE_AGENT_STORE=True \
    RANK={rank} WORLD_SIZE={size} LOCAL_RANK={rank} LOCAL_WORLD_SIZE={size} MASTER_ADDR=127.0.0.1 MASTER_PORT={job}";
const SRUN: &str = "SLURM_JOB_ID={job} SLURM_STEP_ID=0 SLURM_PROCID={rank} SLURM_NTASKS={size} SLURM_STEP_NUM_TASKS={size} \
    SLURM_LOCALID={rank} SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE={size} SLURM_TASKS_PER_NODE={size}";
const MPIRUN: &str = "OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE={size} OMPI_COMM_WORLD_LOCAL_RANK={rank} \
    OMPI_COMM_WORLD_LOCAL_SIZE={size} PMIX_NAMESPACE={job} PMIX_RANK={rank}";

/// The flag selects the process without a rank. The last two forms are for `bench` only.
const FORMS: [(&str, JobLaunch, bool); 7] = [
    ("one process", JobLaunch::Alone, true),
    (
        "shell loop",
        JobLaunch::Each("RANK={rank} WORLD_SIZE={size} MASTER_ADDR=127.0.0.1 MASTER_PORT={job}"),
        false,
    ),
    ("mpirun", JobLaunch::Mpirun(MPIRUN), false),
    ("torchrun", JobLaunch::Each(TORCHRUN), false),
    ("srun", JobLaunch::Each(SRUN), false),
    ("--processes", JobLaunch::Own, false),
    ("--processes", JobLaunch::Own, true),
];

struct KillCase {
    command: &'static str,
    words: Vec<OsString>,
    window: Duration,
    form: &'static str,
    launch: JobLaunch,
    is_parent: bool,
    signal: &'static str,
}

struct KillOutcome {
    victim: String,
    /// Delay of the signal after all ranks work.
    moment: Duration,
    /// Delay of the last end after the signal.
    slowest: Duration,
    codes: Vec<String>,
    said: String,
    findings: Vec<String>,
}

/// Options of `soak kills`.
#[derive(Debug, Default)]
struct KillOptions {
    seed: Option<u64>,
    /// The only command to kill.
    command: Option<String>,
    /// The command line program, if it is not to be built.
    program: Option<PathBuf>,
}

impl KillOptions {
    fn parse(options: &[&str]) -> Result<Self> {
        let mut parsed = Self::default();
        for pair in options.chunks(2) {
            match *pair {
                ["--seed", seed] => {
                    let seed = seed.parse().with_context(|| format!("--seed {seed}: expected a number"))?;
                    parsed.seed = Some(seed);
                }
                ["--command", command] if COMMANDS.iter().any(|killed| killed.name == command) => {
                    parsed.command = Some(command.to_owned());
                }
                ["--command", command] => {
                    let names = COMMANDS.map(|killed| killed.name).join(", ");
                    bail!("--command {command}: expected one of {names}");
                }
                ["--program", program] => parsed.program = Some(program.into()),
                _ => bail!(
                    "kills: expected --seed S, --command NAME, --program FILE, found `{}`",
                    pair.join(" ")
                ),
            }
        }
        Ok(parsed)
    }
}

pub(crate) fn run(options: &[&str]) -> Result<ExitCode> {
    let KillOptions { seed, command, program } = KillOptions::parse(options)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the system time is before 1970")?;
    let seed = seed.unwrap_or(now.as_secs());
    let program = program.map_or_else(build, Ok)?;
    let mut cases = cases()?;
    cases.retain(|case| command.as_deref().is_none_or(|command| case.command == command));
    say(&format!("{} kills, seed {seed}", cases.len()));
    if !has_mpirun() {
        say("mpirun is not installed: only its variables are set");
    }
    say("torchrun and srun: only their variables are set\n");
    say("command   launched as          signal           at    last end  exit codes          message");
    let mut random = StdRng::seed_from_u64(seed);
    let (mut kills, mut findings) = (0_u32, 0);
    for case in &cases {
        let outcome = case.run(&program, &mut random)?;
        say(&line(case, &outcome));
        outcome.findings.iter().for_each(|finding| say(&format!("    FINDING: {finding}")));
        kills += 1;
        findings += outcome.findings.len();
    }
    say(&format!("kills: {kills} kills, {findings} findings"));
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the command in release mode.
pub(crate) fn build() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--quiet", "--release", "--package", "ascend-tp-cli"]);
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = command.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the build failed ({})", output.status);
    }
    let built = Built::all(&output.stdout)?.into_iter().find(|built| built.name == "ascend-tp");
    Ok(built.context("cargo built no program ascend-tp")?.path)
}

fn cases() -> Result<Vec<KillCase>> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../models")
        .canonicalize()
        .context("the folder of models is missing")?;
    let models = models.to_str().context("the workspace's path is not UTF-8")?;
    let mut cases = Vec::new();
    for killed in COMMANDS {
        let KilledCommand { name: command, words, cards, window, signals, trials } = killed;
        for (form, launch, is_parent) in FORMS {
            if matches!(launch, JobLaunch::Own) && command != "bench" {
                continue;
            }
            let mut words: Vec<OsString> =
                words.split(' ').map(|word| word.replace("{models}", models).into()).collect();
            match launch {
                JobLaunch::Alone => words.extend([cards.into(), RANKS.to_string().into()]),
                JobLaunch::Own => words.extend(["--processes".into(), RANKS.to_string().into()]),
                JobLaunch::Each(_) | JobLaunch::Mpirun(_) => {}
            }
            let case =
                |signal| KillCase { command, words: words.clone(), window, form, launch, is_parent, signal };
            let hits = signals.iter().copied().filter(|signal| killed.has(launch, signal));
            cases.extend(hits.flat_map(|signal| std::iter::repeat_n(signal, trials)).map(case));
        }
    }
    Ok(cases)
}

impl KillCase {
    /// Retries if the command ended before the signal.
    fn run(&self, program: &Path, random: &mut StdRng) -> Result<KillOutcome> {
        let what = || format!("{} as {}", self.command, self.form);
        for _ in 0..DRAWS {
            let moment = self.window.mul_f64(random.random::<f64>());
            let rank = (!self.is_parent).then_some(random.random_range(0..RANKS));
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let words: Vec<OsString> = self.words.iter().map(|word| with_port(word, port)).collect();
            let mut job =
                CommandJob::start(program, &words, self.launch, random.random()).with_context(what)?;
            let requests = (self.command == SERVE)
                .then(|| RunningRequests::start(SocketAddr::from(([127, 0, 0, 1], port))))
                .transpose()
                .with_context(what)?;
            let at_work = Instant::now();
            std::thread::sleep(moment);
            job.look(at_work)?;
            let is_hit = |process: &JobProcess| process.rank == rank;
            let victim = job.processes.iter().position(is_hit).with_context(what)?;
            if job.processes.iter().any(|process| process.end.is_some()) {
                continue;
            }
            if let Some(outcome) = self.hit(&mut job, requests, victim, at_work.elapsed())? {
                return Ok(outcome);
            }
        }
        bail!("{}: the command ended before the signal in {DRAWS} attempts", what())
    }

    /// Returns `None` if the command was already finished.
    fn hit(
        &self,
        job: &mut CommandJob,
        requests: Option<RunningRequests>,
        victim: usize,
        moment: Duration,
    ) -> Result<Option<KillOutcome>> {
        let id = job.processes[victim].id;
        let mut since = Instant::now();
        signal(self.signal, id);
        let mut awaited: Vec<usize> = (0..job.processes.len()).collect();
        let is_stopped = self.signal == "STOP";
        if is_stopped && self.is_parent {
            // Nothing detects the stop. After SIGTERM and SIGCONT, the process must end.
            signal("TERM", id);
            since = Instant::now();
            signal("CONT", id);
        } else if is_stopped && job.processes.iter().all(|process| process.rank.is_some()) {
            // Only the sender can end the stopped process.
            awaited.retain(|at| *at != victim);
        }
        let is_launched = matches!(self.launch, JobLaunch::Mpirun(_)) && has_mpirun();
        if is_launched && is_stopped {
            // The launcher waits for the stopped rank, which must therefore continue.
            let others: Vec<usize> =
                awaited.iter().copied().filter(|at| is_other_rank(&job.processes[*at], id)).collect();
            job.wait(since, PATIENCE, &others)?;
            if others.iter().all(|at| job.processes[*at].end.is_some()) {
                signal("CONT", id);
            }
        }
        job.wait(since, PATIENCE, &awaited)?;
        if awaited.len() < job.processes.len() {
            signal("KILL", id);
            job.wait(since, since.elapsed() + PATIENCE, &[victim])?;
        }
        if was_at_its_end(&job.processes, victim) {
            return Ok(None);
        }
        // The launcher, and a rank that only it can end, are not timed.
        let is_timed =
            |at: usize| !is_launched || (job.processes[at].rank.is_some() && !(is_stopped && at == victim));
        let rank = job.processes[victim].rank;
        let (mut findings, mut telling) = (Vec::new(), None);
        for awaited_index in awaited.iter().copied() {
            let process = &job.processes[awaited_index];
            let (who, said) = (self.who(process), job.said(process));
            if is_timed(awaited_index) || process.end.is_none() {
                findings.extend(late(process.end, self.limit()).map(|late| format!("{who} {late}")));
            }
            let Some(code) = process.end.and_then(|end| end.status).map(code) else { continue };
            let asked = self.asked(awaited_index == victim, process.rank.is_none());
            if !asked.contains(&code.as_str()) {
                findings.push(format!("{who} ended with {code}, expected {}: {said}", asked.join(" or ")));
            }
            match rank.filter(|_| awaited_index != victim) {
                Some(rank) if !names(&said, rank, id) => {
                    findings.push(format!("{who} does not name rank {rank}, process {id}: {said}"));
                }
                // Prefers the message of a process that was not hit.
                hit => telling = telling.filter(|_| hit.is_none()).or(Some(telling_line(&said, hit, id))),
            }
        }
        // Nothing answers the requests of a stopped process.
        let is_unanswered = is_stopped && rank == Some(0);
        if let Some(requests) = requests.filter(|_| !is_unanswered) {
            let rank = rank.unwrap_or(0);
            findings.extend(requests.findings(since, rank != 0, rank, id));
        }
        findings.extend(job.left(LIMIT).into_iter().map(|what| format!("left behind: {what}")));
        let ends = awaited.iter().filter(|at| is_timed(**at)).filter_map(|at| job.processes[*at].end);
        Ok(Some(KillOutcome {
            victim: self.who(&job.processes[victim]),
            moment,
            slowest: ends.map(|end| end.after).max().unwrap_or(PATIENCE),
            codes: job.processes.iter().filter_map(|process| process.end?.status).map(code).collect(),
            said: telling.unwrap_or_default(),
            findings,
        }))
    }

    fn limit(&self) -> Duration {
        if self.command == SERVE { LIMIT + SERVER_GRACE } else { LIMIT }
    }

    fn who(&self, process: &JobProcess) -> String {
        process.rank.map_or_else(|| self.form.to_owned(), |rank| format!("rank {rank}"))
    }

    const fn asked(&self, is_victim: bool, is_parent: bool) -> &'static [&'static str] {
        match (is_victim, self.signal.as_bytes(), is_parent) {
            (true, b"KILL", _) => &["signal 9"],
            (true, ..) => &["130"],
            // Open MPI returns the code of the rank that ended first.
            (false, _, true) if matches!(self.launch, JobLaunch::Mpirun(_)) => &["3", "130", "137"],
            (false, ..) => &["3"],
        }
    }
}

fn with_port(word: &OsString, port: u16) -> OsString {
    if word == "{port}" { port.to_string().into() } else { word.clone() }
}

fn is_other_rank(process: &JobProcess, id: u32) -> bool {
    process.rank.is_some() && process.id != id
}

fn was_at_its_end(processes: &[JobProcess], victim: usize) -> bool {
    let known =
        processes.iter().enumerate().filter_map(|(at, process)| Some((at, process.end?.status?.success())));
    let (hit, others): (Vec<_>, Vec<_>) = known.partition(|(at, _)| *at == victim);
    let telling = if others.is_empty() { hit } else { others };
    !telling.is_empty() && telling.iter().all(|(_, well)| *well)
}

fn late(end: Option<JobEnd>, limit: Duration) -> Option<String> {
    match end {
        Some(JobEnd { after, .. }) if after <= limit => None,
        Some(JobEnd { after, .. }) => Some(format!("ended after {:.2} s", after.as_secs_f64())),
        None => Some(format!("had not ended after {} s", PATIENCE.as_secs())),
    }
}

fn names(said: &str, rank: usize, process: u32) -> bool {
    said.lines().any(|line| line_names(line, rank, process))
}

fn line_names(line: &str, rank: usize, process: u32) -> bool {
    line.contains(&format!("rank {rank} (")) && line.contains(&format!("process {process}"))
}

/// Falls back to the last line.
fn telling_line(said: &str, rank: Option<usize>, process: u32) -> String {
    let naming = said.lines().find(|line| rank.is_some_and(|rank| line_names(line, rank, process)));
    naming.or(said.lines().last()).unwrap_or_default().to_owned()
}

fn line(case: &KillCase, outcome: &KillOutcome) -> String {
    let KillOutcome { victim, moment, slowest, codes, said, .. } = outcome;
    let victim = if case.is_parent { "itself" } else { victim };
    let hit = format!("{} {victim}", case.signal);
    let (moment, slowest) = (format!("{} ms", moment.as_millis()), format!("{:.2} s", slowest.as_secs_f64()));
    let codes = codes.join(" ");
    format!("{:8}  {:12}  {hit:12}  {moment:>8}  {slowest:>8}  {codes:20}  {said}", case.command, case.form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_hit_by_every_signal_in_every_form() {
        let cases = cases().unwrap();
        let of_serve = cases.iter().filter(|case| case.command == SERVE).count();
        assert_eq!(cases.len() - of_serve, SIGNALS.len() * ((COMMANDS.len() - 1) * 5 + 2));
        assert!(of_serve >= 40, "{of_serve}");
        assert!(cases.iter().all(|case| case.words.len() > 3));
    }

    #[test]
    fn a_name_is_a_rank_with_its_process() {
        let said = "error: rank 2 (card 2, process 4711 on node): the process ended without a message";
        assert!(names(said, 2, 4711));
        assert!(!names(said, 1, 4711) && !names(said, 2, 4712));
    }

    #[test]
    fn late_is_after_two_seconds() {
        let end = |millis| Some(JobEnd { after: Duration::from_millis(millis), status: None });
        assert_eq!(late(end(1999), LIMIT), None);
        assert_eq!(late(end(2500), LIMIT).unwrap(), "ended after 2.50 s");
        assert_eq!(late(None, LIMIT).unwrap(), "had not ended after 10 s");
    }
}
