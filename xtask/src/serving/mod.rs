//! Runs `ascend-tp serve` under mixed load, and compares each answer with the answer to the same
//! request alone.
//!
//! - Input: a time, a seed, and a program.
//! - Output: a summary, and the findings with the bodies of their requests.
//! - Invariants: rounds draw new requests. In each round every request is answered alone first, and
//!   then many times next to the others: whole, streamed, on kept and new connections, between
//!   requests whose clients disconnect and malformed ones. After a round, no request may run and no
//!   cache block may be in use. The resident memory may grow by at most 5 % after the first tenth
//!   of the time.
//! - Not here: the life of processes (`kills`), and the API's fields (`server/tests`).

mod cases;
mod process;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use ascend_tp_server_client::{Connection, HttpRequest};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::{kills, say};
use cases::{Case, CheckedAnswer, MALFORMED};
use process::ServerProcess;

const MINUTES: f64 = 30.0;

/// Requests of a round.
const CASES: usize = 48;

/// Clients that send requests at the same time, more than sequences run at once.
const CLIENTS: u64 = 24;

/// Time of a round under load.
const ROUND: Duration = Duration::from_secs(30);

/// Time without a byte after which a request hangs.
const LIMIT: Duration = Duration::from_secs(120);

const LOOK: Duration = Duration::from_millis(50);

/// Number of findings after which the run ends.
const MAX_FINDINGS: usize = 10;

/// Growth of the resident memory after the first tenth.
const MAX_GROWTH: f64 = 0.05;

struct SoakLoadOptions {
    minutes: f64,
    seed: u64,
    program: Option<PathBuf>,
}

impl SoakLoadOptions {
    fn parse(words: &[&str]) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the system time is before 1970")?;
        let mut options = Self { minutes: MINUTES, seed: now.as_secs(), program: None };
        for pair in words.chunks(2) {
            let [name, value] = *pair else { bail!("{}: expected a value after the option", pair[0]) };
            let number = || format!("{name} {value}: expected a number");
            match name {
                "--minutes" => options.minutes = value.parse().with_context(number)?,
                "--seed" => options.seed = value.parse().with_context(number)?,
                "--program" => options.program = Some(value.into()),
                _ => bail!("unknown option `{name}`: expected --minutes N, --seed S or --program FILE"),
            }
        }
        ensure!(options.minutes > 0.0 && options.minutes.is_finite(), "--minutes: expected more than 0");
        Ok(options)
    }
}

/// Resident memory of the server, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct ResidentMemory {
    start: u64,
    /// After the first tenth of the time.
    tenth: u64,
    end: u64,
}

impl ResidentMemory {
    fn growth(&self) -> f64 {
        self.end as f64 / self.tenth.max(1) as f64 - 1.0
    }
}

/// Runs the exploration.
pub(crate) fn run(words: &[&str]) -> Result<ExitCode> {
    let SoakLoadOptions { minutes, seed, program } = SoakLoadOptions::parse(words)?;
    let program = program.map_or_else(kills::build, Ok)?;
    let mut server = ServerProcess::start(&program)?;
    let started = Instant::now();
    let time = Duration::from_secs_f64(60.0 * minutes);
    let tenth = started + time / 10;
    let mut memory = ResidentMemory { start: server.resident()?, ..ResidentMemory::default() };
    say(&format!("seed {seed}, {CLIENTS} clients, {minutes} minutes"));
    let load = ServingLoad::new(server.address);
    let mut rounds = 0_u64;
    while started.elapsed() < time && load.goes_on() {
        let round = RequestRound::draw(server.address, seed, rounds)?;
        let end = (Instant::now() + ROUND).min(started + time);
        std::thread::scope(|scope| -> Result<()> {
            for client in 0..CLIENTS {
                let (load, round) = (&load, &round);
                scope.spawn(move || load.run_client(round, seed, client, end));
            }
            // A short run can end before its first tenth would be measured.
            while Instant::now() < end && load.goes_on() {
                if memory.tenth == 0 && Instant::now() >= tenth {
                    memory.tenth = server.resident()?;
                }
                std::thread::sleep(LOOK);
            }
            memory.end = server.resident()?;
            Ok(())
        })?;
        rounds += 1;
        load.check_idle();
    }
    let metrics = MetricValues::read(server.address).context("the metrics of the server")?;
    server.stop().iter().for_each(|finding| load.find(finding));
    if memory.growth() > MAX_GROWTH {
        load.find(&format!("the resident memory grew by {:.1} %", 100.0 * memory.growth()));
    }
    say(&load.summary(rounds, &metrics, memory));
    let findings = load.findings.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    findings.iter().for_each(|finding| say(&format!("    FINDING: {finding}")));
    say(&format!("serve: {} findings, seed {seed}", findings.len()));
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Numbers of `/metrics`.
struct MetricValues(String);

impl MetricValues {
    fn read(address: SocketAddr) -> Result<Self> {
        let response = Connection::open(address, LIMIT)?.request(&HttpRequest::get("/metrics"))?;
        ensure!(response.status == 200, "/metrics has status {}", response.status);
        Ok(Self(String::from_utf8_lossy(&response.body).into_owned()))
    }

    /// Returns the sum over all labels of a series.
    fn sum(&self, name: &str) -> f64 {
        let name = format!("ascend_tp_{name}{{");
        let lines = self.0.lines().filter(|line| line.starts_with(&name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

/// The requests of a round, with the answers of each request alone.
struct RequestRound {
    number: u64,
    cases: Vec<(Case, CheckedAnswer)>,
}

impl RequestRound {
    fn draw(address: SocketAddr, seed: u64, number: u64) -> Result<Self> {
        let mut random = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let cases = (0..CASES).map(|at| {
            let case = Case::draw(&mut random);
            let answer = Connection::open(address, LIMIT)
                .map_err(anyhow::Error::from)
                .and_then(|mut connection| case.whole(&mut connection));
            let answer = answer.with_context(|| format!("request {at} of round {number}, alone: {case}"))?;
            Ok((case, answer))
        });
        Ok(Self { number, cases: cases.collect::<Result<_>>()? })
    }
}

/// Counts and findings of all clients.
struct ServingLoad {
    address: SocketAddr,
    compared: AtomicU64,
    streamed: AtomicU64,
    cancelled: AtomicU64,
    malformed: AtomicU64,
    findings: Mutex<Vec<String>>,
}

impl ServingLoad {
    fn new(address: SocketAddr) -> Self {
        Self {
            address,
            compared: AtomicU64::new(0),
            streamed: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            findings: Mutex::default(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.findings.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn find(&self, finding: &str) {
        self.lock().push(finding.to_owned());
    }

    fn goes_on(&self) -> bool {
        self.lock().len() < MAX_FINDINGS
    }

    /// Sends requests until `end`.
    fn run_client(&self, round: &RequestRound, seed: u64, client: u64, end: Instant) {
        let mut random = StdRng::seed_from_u64(seed ^ (round.number * CLIENTS + client + 1) << 20);
        let mut kept = None;
        while Instant::now() < end && self.goes_on() {
            let at = random.random_range(0..round.cases.len());
            let (case, alone) = &round.cases[at];
            let done = self.act(&mut random, &mut kept, case, alone);
            if let Err(error) = done {
                kept = None;
                self.find(&format!("request {at} of round {}: {error:#}: {case}", round.number));
            }
        }
    }

    /// Sends one request in one of several ways.
    fn act(
        &self,
        random: &mut StdRng,
        kept: &mut Option<Connection>,
        case: &Case,
        alone: &CheckedAnswer,
    ) -> Result<()> {
        let count = |counter: &AtomicU64| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let open = || Connection::open(self.address, LIMIT).context("cannot connect");
        let way = random.random_range(0..10);
        let mut connection = match kept.take() {
            Some(connection) if random.random_bool(0.8) => connection,
            _ => open()?,
        };
        match way {
            0..=3 => {
                alone.compare(&case.whole(&mut connection)?)?;
                count(&self.compared);
            }
            4..=6 => {
                alone.compare_text(&case.streamed(&mut connection)?)?;
                count(&self.streamed);
            }
            7 => {
                // The connection closes at the end of this block.
                case.abandon(&mut connection, random)?;
                count(&self.cancelled);
                return Ok(());
            }
            _ => {
                let body = MALFORMED[random.random_range(0..MALFORMED.len())];
                body.check(&mut connection)?;
                count(&self.malformed);
            }
        }
        *kept = Some(connection);
        Ok(())
    }

    /// Waits until no request runs, and checks that all cache blocks are free.
    fn check_idle(&self) {
        let started = Instant::now();
        loop {
            let left = match MetricValues::read(self.address) {
                Err(error) => Some(format!("{error:#}")),
                Ok(metrics) => {
                    let gauges = ["requests_running", "requests_waiting", "cache_usage_ratio"];
                    let used = gauges.iter().find(|gauge| metrics.sum(gauge) > 0.0);
                    used.map(|gauge| format!("{gauge} is still {} after a round", metrics.sum(gauge)))
                }
            };
            match left {
                None => return,
                Some(finding) if started.elapsed() > LIMIT => return self.find(&finding),
                Some(_) => std::thread::sleep(LOOK),
            }
        }
    }

    fn summary(&self, rounds: u64, metrics: &MetricValues, memory: ResidentMemory) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let ResidentMemory { start, tenth, end } = memory;
        format!(
            "{rounds} rounds: {} whole answers, {} streams, {} disconnects, {} malformed requests\n\
             {:.0} new tokens, {:.0} preemptions, {:.0} of {:.0} prompt tokens from the prefix cache\n\
             resident memory: {:.1} MiB at the start, {:.1} MiB after a tenth, {:.1} MiB at the end ({:+.1} %)",
            count(&self.compared),
            count(&self.streamed),
            count(&self.cancelled),
            count(&self.malformed),
            metrics.sum("new_tokens_total"),
            metrics.sum("preemptions_total"),
            metrics.sum("prefix_cache_hit_tokens_total"),
            metrics.sum("prefix_cache_query_tokens_total"),
            mib(start),
            mib(tenth),
            mib(end),
            100.0 * memory.growth(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_refused() {
        let options = SoakLoadOptions::parse(&["--minutes", "0.5", "--seed", "7", "--program", "a"]).unwrap();
        assert_eq!((options.minutes, options.seed, options.program), (0.5, 7, Some("a".into())));
        for wrong in [&["--minutes", "0"][..], &["--minutes", "x"], &["--runs", "1"], &["--seed"]] {
            assert!(SoakLoadOptions::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn series_are_summed_over_their_labels() {
        let metrics =
            MetricValues("ascend_tp_a{x=\"1\"} 2\nascend_tp_a{x=\"2\"} 3.5\nascend_tp_ab{} 9\n".to_owned());
        assert_eq!(metrics.sum("a"), 5.5);
    }

    #[test]
    fn memory_grows_after_the_first_tenth() {
        let memory = ResidentMemory { start: 1, tenth: 100, end: 106 };
        assert!(memory.growth() > MAX_GROWTH);
        assert!(ResidentMemory { end: 105, ..memory }.growth() <= MAX_GROWTH + 1e-9);
    }
}
