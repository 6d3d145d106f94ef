//! Kills ranks of training runs and checks that the final weights stay the same.
//!
//! Runs of eight processes lose ranks to SIGKILL at random times. Other ranks must end within two
//! seconds, messages must name the rank, and no saved step may be repeated. The last checkpoint
//! must equal an undisturbed run's. A run then continues on eight, four, eight and six cards with
//! the same loss curve. With exact sums, eight, four and eight cards must give the same bits.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

use super::job::{has_met, is_there, ranks_of, signal};
use super::{LIMIT, LOOK, PATIENCE, build};
use crate::say;

const RANKS: usize = 8;

const STEPS: usize = 40;

struct CardsChange {
    name: &'static str,
    whole: &'static str,
    more: &'static str,
    cards: &'static [usize],
    /// Bounds of the loss and, relative, of the norm.
    bounds: (f64, f64),
}

const CHANGES: [CardsChange; 2] = [
    // Other numbers of cards change the order of sums.
    CardsChange { name: "changing", whole: "whole", more: "", cards: &[8, 4, 8, 6], bounds: (1e-5, 2e-5) },
    CardsChange {
        name: "exact",
        whole: "whole-exact",
        more: "--exact",
        cards: &[8, 4, 8],
        bounds: (0.0, 0.0),
    },
];

const EVERY: usize = 2;

const HANG: Duration = Duration::from_secs(300);

pub(crate) fn run(options: &[&str]) -> Result<ExitCode> {
    let mut kills = 20;
    let mut seed =
        SystemTime::now().duration_since(UNIX_EPOCH).context("the system time is before 1970")?.as_secs();
    let (mut program, mut launcher) = (None, JobLauncher::Own);
    for option in options.chunks(2) {
        match option {
            ["--kills", number] => {
                kills = number.parse().with_context(|| format!("--kills {number}: expected a number"))?;
            }
            ["--seed", number] => {
                seed = number.parse().with_context(|| format!("--seed {number}: expected a number"))?;
            }
            ["--program", path] => program = Some(PathBuf::from(path)),
            ["--launcher", name] => launcher = JobLauncher::of(name)?,
            other => {
                let known = "--kills N, --seed S, --launcher NAME and --program FILE";
                bail!("restarts: expected {known}, found `{}`", other.join(" "))
            }
        }
    }
    let program = program.map_or_else(build, Ok)?;
    let folder = env::temp_dir().join(format!("restarts-{}", std::process::id()));
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let training = Training { program, folder, launcher };
    say(&format!("{kills} kills, seed {seed}, ranks by {}", launcher.name()));
    training.whole(CHANGES[0].whole, "")?;
    let pace = training.pace()?;
    say(&format!("start: {} ms, step: {} ms", pace.start.as_millis(), pace.step.as_millis()));
    let mut random = StdRng::seed_from_u64(seed);
    let (mut findings, mut done, mut runs) = (Vec::new(), 0, 0);
    while done < kills && findings.is_empty() {
        let (killed, found) = training.kill(runs, kills - done, &pace, &mut random)?;
        done += killed;
        runs += 1;
        findings.extend(found);
    }
    if findings.is_empty() {
        training.whole(CHANGES[1].whole, CHANGES[1].more)?;
        for change in &CHANGES {
            findings.extend(training.change_cards(change, &mut random)?);
        }
    }
    findings.iter().for_each(|finding| say(&format!("    FINDING: {finding}")));
    say(&format!("restarts: {done} kills, {} findings", findings.len()));
    fs::remove_dir_all(&training.folder)?;
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct StepPace {
    start: Duration,
    step: Duration,
}

#[derive(Debug, PartialEq)]
struct KillTime {
    saved: usize,
    after: Duration,
}

impl StepPace {
    fn draw(&self, saved: usize, random: &mut StdRng) -> KillTime {
        let start = self.start.div_duration_f64(self.step);
        let at = random.random::<f64>() * (start + (STEPS - saved) as f64);
        let more = (at - start).max(0.0) as usize / EVERY * EVERY;
        // Before the next checkpoint, time counts from the start.
        let after = if more == 0 { at } else { at - start - more as f64 };
        KillTime { saved: saved + more, after: self.step.mul_f64(after) }
    }
}

#[derive(Clone, Copy)]
enum JobLauncher {
    Own,
    Torchrun,
}

impl JobLauncher {
    fn of(name: &str) -> Result<Self> {
        [Self::Own, Self::Torchrun]
            .into_iter()
            .find(|launcher| launcher.name() == name)
            .with_context(|| format!("--launcher {name}: expected own or torchrun"))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Torchrun => "torchrun",
        }
    }
}

struct Training {
    program: PathBuf,
    folder: PathBuf,
    launcher: JobLauncher,
}

impl Training {
    fn command(&self, name: &str, more: &str) -> Result<Command> {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
        let data = tests.join("fixtures_training/qwen2-gqa-adamw/data.safetensors");
        let mut command = Command::new(&self.program);
        let size =
            format!("--steps {STEPS} --global-batch 8 --seq 32 --warmup-steps 4 --zero 1 --mesh dp=*,tp=2");
        command.args(["train", "--device", "emulator", "--keep", "3"]).args(size.split(' '));
        command.arg("--model").arg(tests.join("fixtures/qwen2-gqa")).arg("--data").arg(data);
        command.args(more.split_whitespace());
        command
            .arg("--save")
            .arg(self.saved(name))
            .arg("--metrics")
            .arg(self.folder.join(format!("{name}.jsonl")));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(self.errors(name))?);
        Ok(command)
    }

    fn saved(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn errors(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.errors"))
    }

    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.errors(name)).unwrap_or_default()
    }

    fn whole(&self, name: &str, more: &str) -> Result<()> {
        let status = self.command(name, &format!("--cards {RANKS} {more}"))?.status()?;
        if !status.success() {
            bail!("the undisturbed run ended with {status}: {}", self.said(name));
        }
        Ok(())
    }

    fn restarting(&self, name: &str, restarts: usize) -> Result<Command> {
        let every = format!("--save-every {EVERY}");
        match self.launcher {
            JobLauncher::Own => {
                self.command(name, &format!("--processes {RANKS} --max-restarts {restarts} {every}"))
            }
            JobLauncher::Torchrun => self.under_torchrun(name, RANKS, restarts, &every),
        }
    }

    fn under_torchrun(&self, name: &str, ranks: usize, restarts: usize, more: &str) -> Result<Command> {
        let own = self.command(name, &format!("--resume {more}"))?;
        let mut command = Command::new("torchrun");
        command.args(["--standalone", "--no-python", "--monitor-interval=0.1"]);
        command.arg(format!("--nproc-per-node={ranks}")).arg(format!("--max-restarts={restarts}"));
        command.arg(own.get_program()).args(own.get_args());
        // The processes do not use torch.
        command.env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(self.errors(name))?);
        Ok(command)
    }

    fn on_cards(&self, name: &str, cards: usize, more: &str) -> Result<Command> {
        let more = format!("--save-every 1 {more}");
        let mut command = match self.launcher {
            JobLauncher::Own => self.command(name, &format!("--processes 2:{RANKS} --resume {more}"))?,
            JobLauncher::Torchrun => self.under_torchrun(name, cards, 0, &more)?,
        };
        command.env("ASCEND_EMULATOR", format!("cards={cards}"));
        Ok(command)
    }

    fn pace(&self) -> Result<StepPace> {
        let name = "paced";
        let mut child = self.restarting(name, 1)?.spawn()?;
        let since = started(&mut child, &BTreeMap::new())?.map(|_| Instant::now());
        let since = since
            .with_context(|| format!("the run ended before its ranks were found: {}", self.said(name)))?;
        let mut first = None;
        loop {
            let saved = newest(&self.saved(name));
            first = first.or((saved > 0).then(|| (saved, since.elapsed())));
            if saved == STEPS || since.elapsed() > HANG || child.try_wait()?.is_some() {
                break;
            }
            std::thread::sleep(LOOK);
        }
        let all = since.elapsed();
        if !ended(&mut child)? {
            bail!("the undisturbed run failed: {}", self.said(name));
        }
        let first = first.filter(|(saved, _)| *saved < STEPS);
        let (saved, at) = first.context("no checkpoint was found before the run ended")?;
        let step = (all - at).div_f64((STEPS - saved) as f64);
        Ok(StepPace { start: at.saturating_sub(step.mul_f64(saved as f64)), step })
    }

    fn kill(
        &self,
        run: usize,
        most: usize,
        pace: &StepPace,
        random: &mut StdRng,
    ) -> Result<(usize, Vec<String>)> {
        let mut findings = Vec::new();
        let name = format!("killed-{run}");
        let mut child = self.restarting(&name, most)?.spawn()?;
        let mut behind = Vec::new();
        let mut before = BTreeMap::new();
        while behind.len() < most {
            let Some(ranks) = started(&mut child, &before)? else { break };
            let since_start = Instant::now();
            let moment = pace.draw(newest(&self.saved(&name)), random);
            let rank = random.random_range(0..RANKS);
            if !self.comes_to(&mut child, &name, &moment)? {
                break;
            }
            let (came, saved) = (since_start.elapsed().as_millis(), newest(&self.saved(&name)));
            let kill = format!("{run}.{}", behind.len() + 1);
            let id = ranks[&rank];
            let at_work = has_met(id);
            signal("KILL", id);
            let since = Instant::now();
            while ranks.values().any(|id| is_there(*id)) && since.elapsed() < PATIENCE {
                std::thread::sleep(LOOK);
            }
            let took = since.elapsed();
            if took > LIMIT {
                findings
                    .push(format!("kill {kill}: the other ranks ended after {:.2} s", took.as_secs_f64()));
            }
            let when = if at_work { "while working" } else { "before the rendezvous" };
            let took = took.as_secs_f64();
            say(&format!(
                "kill {kill:>4}: rank {rank} {came:>4} ms after its start, {when}, {saved:>3} steps saved; all ended in {took:.2} s"
            ));
            behind.push((rank, id, saved));
            before = ranks;
        }
        let status = ended(&mut child)?;
        let said = self.said(&name);
        if !status {
            findings.push(format!("the run failed: {}", said.lines().last().unwrap_or_default()));
        }
        findings.extend(match self.launcher {
            JobLauncher::Own => said_of(&said, &behind, most),
            JobLauncher::Torchrun => said_under_torchrun(&said, &behind),
        });
        // A failed run may have no last checkpoint.
        if status && self.last(&name)? != self.last(CHANGES[0].whole)? {
            findings.push("the last checkpoint differs from the undisturbed run".to_owned());
        }
        say("the run ended");
        Ok((behind.len(), findings))
    }

    /// Returns false if the run ended first.
    fn comes_to(&self, child: &mut Child, name: &str, moment: &KillTime) -> Result<bool> {
        let since = Instant::now();
        let is_there = |child: &mut Child| Ok::<_, std::io::Error>(child.try_wait()?.is_none());
        while newest(&self.saved(name)) < moment.saved {
            if !is_there(child)? {
                return Ok(false);
            }
            if since.elapsed() > HANG {
                signal("KILL", child.id());
                bail!("step {} was not reached: {}", moment.saved, self.said(name));
            }
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(moment.after);
        Ok(newest(&self.saved(name)) < STEPS && is_there(child)?)
    }

    fn last(&self, name: &str) -> Result<Vec<Value>> {
        digests(&self.saved(name).join(format!("step-{STEPS:08}")))
    }

    fn change_cards(&self, change: &CardsChange, random: &mut StdRng) -> Result<Vec<String>> {
        let CardsChange { name, whole, cards: parts, bounds: (loss_bound, norm_bound), .. } = *change;
        let mut findings = Vec::new();
        for (part, cards) in parts.iter().enumerate() {
            let mut child = self.on_cards(name, *cards, change.more)?.spawn()?;
            let until = (part + 1) * STEPS / parts.len();
            let is_last = part + 1 == parts.len();
            let since = Instant::now();
            while !is_last && newest(&self.saved(name)) < until && child.try_wait()?.is_none() {
                if since.elapsed() > HANG {
                    signal("KILL", child.id());
                    bail!("step {until} was not reached: {}", self.said(name));
                }
                std::thread::sleep(LOOK);
            }
            // SIGTERM reaches the ranks. SIGKILL ends only the parent, and torchrun's ranks would
            // survive.
            let is_asked = random.random() || matches!(self.launcher, JobLauncher::Torchrun);
            let by = if is_asked { "TERM" } else { "KILL" };
            if !is_last {
                signal(by, child.id());
            }
            let status = ended(&mut child)?;
            if is_last && !status {
                findings.push(format!("the run on {cards} cards failed: {}", self.said(name)));
            } else if !is_last && newest(&self.saved(name)) < until {
                findings
                    .push(format!("the run on {cards} cards ended before step {until}: {}", self.said(name)));
                return Ok(findings);
            }
            let how = if is_last { "to its end" } else { by };
            say(&format!("{cards} cards: {how} after {} steps", newest(&self.saved(name))));
        }
        let curve = |name: &str| curve(&self.folder.join(format!("{name}.jsonl")));
        let (found, expected) = (curve(name)?, curve(whole)?);
        let pairs = || found.iter().zip(&expected);
        let loss = pairs().map(|(one, other)| (one.0 - other.0).abs()).fold(0.0, f64::max);
        let norm = pairs().map(|(one, other)| (one.1 / other.1 - 1.0).abs()).fold(0.0, f64::max);
        say(&format!(
            "{name}: curve on other cards: {} steps, largest difference of losses {loss:.1e}, of norms {norm:.1e}",
            found.len()
        ));
        if found.len() != STEPS || loss > loss_bound || norm > norm_bound {
            findings.push(format!(
                "{name}: the curve differs by more than the bounds: {loss_bound:.0e} and {norm_bound:.0e}"
            ));
        }
        if loss_bound == 0.0 && self.last(name)? != self.last(whole)? {
            findings.push(format!("{name}: the last checkpoint differs from the undisturbed run"));
        }
        Ok(findings)
    }
}

/// `None` if the run ended.
fn started(child: &mut Child, before: &BTreeMap<usize, u32>) -> Result<Option<BTreeMap<usize, u32>>> {
    let since = Instant::now();
    loop {
        let ranks: BTreeMap<usize, u32> = ranks_of(child.id()).into_iter().collect();
        if ranks.len() == RANKS && ranks.values().all(|id| !before.values().any(|other| other == id)) {
            return Ok(Some(ranks));
        }
        if child.try_wait()?.is_some() {
            return Ok(None);
        }
        if since.elapsed() > HANG {
            signal("KILL", child.id());
            bail!("the ranks did not start within {} s", HANG.as_secs());
        }
        std::thread::sleep(LOOK);
    }
}

fn ended(child: &mut Child) -> Result<bool> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if since.elapsed() > HANG {
            signal("KILL", child.id());
        }
        std::thread::sleep(LOOK);
    }
}

/// Compares messages with kills: rank, process, saved steps.
fn said_of(said: &str, behind: &[(usize, u32, usize)], most: usize) -> Vec<String> {
    let mut findings = Vec::new();
    let mut rest = said;
    for (restart, (rank, id, saved)) in behind.iter().enumerate() {
        let Some((before, after)) = rest.split_once(&format!("; restart {} of {}\n", restart + 1, most))
        else {
            findings.push(format!("no message reports restart {}", restart + 1));
            break;
        };
        if !before.contains(&format!("rank {rank} (process {id}) of training failed")) {
            findings.push(format!("restart {} does not name rank {rank}, process {id}", restart + 1));
        }
        rest = after;
        // A run killed early does not report its step.
        let own = after.split("; restart ").next().unwrap_or_default();
        let step = own
            .split_once("goes on at step ")
            .and_then(|(_, step)| step.lines().next()?.parse::<usize>().ok());
        if step.is_some_and(|step| step < *saved) {
            findings.push(format!(
                "restart {} continued at step {step:?}, but {saved} steps were saved",
                restart + 1
            ));
        }
    }
    findings
}

/// Checks that messages name each killed rank, and that later starts continue at or after the saved
/// step.
fn said_under_torchrun(said: &str, behind: &[(usize, u32, usize)]) -> Vec<String> {
    const GOES_ON: &str = "goes on at step ";
    let mut findings = Vec::new();
    let mut named = Vec::new();
    for (rank, id, saved) in behind {
        let by_others = format!("error: rank {rank} (card {rank}, process {id} on ");
        let by_torchrun = format!("local_rank: {rank} (pid: {id})");
        match [by_others, by_torchrun].iter().filter_map(|name| said.find(name)).min() {
            Some(place) => named.push((place, *saved)),
            None => findings.push(format!("no message names rank {rank}, process {id}")),
        }
    }
    for (place, _) in said.match_indices(GOES_ON) {
        let digits = said[place + GOES_ON.len()..].split(|letter: char| !letter.is_ascii_digit()).next();
        let step: usize = digits.and_then(|digits| digits.parse().ok()).unwrap_or_default();
        let saved = named.iter().filter(|(before, _)| *before < place).map(|(_, saved)| *saved).max();
        if saved.is_some_and(|saved| step < saved) {
            findings.push(format!(
                "a start continued at step {step}, but {} steps were saved",
                saved.unwrap_or_default()
            ));
        }
    }
    findings
}

fn newest(folder: &Path) -> usize {
    let names = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("step-")?.parse().ok()).max().unwrap_or(0)
}

fn digests(checkpoint: &Path) -> Result<Vec<Value>> {
    let text = fs::read(checkpoint.join("index.json")).with_context(|| checkpoint.display().to_string())?;
    let index: Value = serde_json::from_slice(&text)?;
    let files =
        index["files"].as_array().with_context(|| format!("{} lists no files", checkpoint.display()))?;
    Ok(files.iter().map(|file| file["digest"].clone()).collect())
}

fn curve(metrics: &Path) -> Result<Vec<(f64, f64)>> {
    let text = fs::read_to_string(metrics).with_context(|| metrics.display().to_string())?;
    let number = |line: &Value, key: &str| line[key].as_f64().with_context(|| format!("a step has no {key}"));
    let point = |line: &str| {
        let line: Value = serde_json::from_str(line)?;
        Ok((number(&line, "loss")?, number(&line, "grad_norm")?))
    };
    text.lines().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_within_what_is_left_of_a_run() {
        let pace = StepPace { start: Duration::from_millis(900), step: Duration::from_millis(100) };
        let mut random = StdRng::seed_from_u64(7);
        for saved in [0, 10, STEPS - EVERY, STEPS] {
            let drawn: Vec<KillTime> = (0..1000).map(|_| pace.draw(saved, &mut random)).collect();
            let one_step_more = pace.step * (EVERY as u32);
            for moment in &drawn {
                let (of_start, step) = (moment.saved == saved, moment.saved % EVERY == 0);
                let longest = if of_start { pace.start + one_step_more } else { one_step_more };
                assert!(
                    step && (saved..=STEPS).contains(&moment.saved) && moment.after <= longest,
                    "{moment:?}"
                );
            }
            let early = drawn.iter().filter(|moment| moment.saved == saved).count();
            let left = (STEPS - saved) as f64;
            let expected = 1000.0 * (9.0 + left.min(EVERY as f64)) / (9.0 + left);
            assert!(
                (early as f64 - expected).abs() < 50.0,
                "{saved} saved: {early} of 1000, expected {expected}"
            );
        }
    }

    #[test]
    fn what_is_said_under_torchrun_is_held_against_the_kills() {
        let said = "error: rank 6 (card 6, process 70 on vm): the process ended\ngoes on at step 28\n\
                    failed (exitcode: -9) local_rank: 2 (pid: 81) of binary: x\ngoes on at step 36\n";
        assert_eq!(said_under_torchrun(said, &[(6, 70, 28), (2, 81, 36)]), Vec::<String>::new());
        assert_eq!(said_under_torchrun(said, &[(5, 70, 28), (2, 82, 36)]).len(), 2);
        assert_eq!(
            said_under_torchrun(said, &[(6, 70, 30), (2, 81, 36)]),
            ["a start continued at step 28, but 30 steps were saved"]
        );
    }

    #[test]
    fn what_is_said_of_restarts_is_held_against_the_kills() {
        let said = "error: x\nrank 3 (process 70) of training failed (signal: 9 (SIGKILL)); restart 1 of 2\n\
                    goes on at step 4\nrank 0 (process 81) of training failed (signal: 9 (SIGKILL)); restart 2 of 2\n";
        assert_eq!(said_of(said, &[(3, 70, 4), (0, 81, 6)], 2), Vec::<String>::new());
        assert_eq!(said_of(said, &[(2, 70, 6), (0, 81, 6)], 2).len(), 2);
        assert_eq!(said_of(said, &[(3, 70, 4), (0, 81, 6), (1, 9, 8)], 2), ["no message reports restart 3"]);
    }
}
