//! `storm`: runs random programs on the emulator, or is one process of such a program.
//!
//! See [`USAGE`] for the arguments. The output lists failing programs with the command to repeat
//! them. The exit code is 1 if anything was found.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ascend_tp_emulator_storm::generate::Flavour;
use ascend_tp_emulator_storm::process;
use ascend_tp_emulator_storm::shrink::Excerpt;
use ascend_tp_emulator_storm::storm::{Storm, StormFailure, Tally};
use ascend_tp_emulator_storm::supervise::Supervisor;

const USAGE: &str = "usage: storm [--minutes N] [--programs N] [--seed S] [--shrink SECONDS]
       storm --program SEED [--ranks N] [--steps LIST] [--in-order] [--times N] [--shrink SECONDS]
       storm --program SEED … --times 0

  --minutes N        start no program after N minutes (default without --programs: 10)
  --programs N       run at most N programs
  --seed S           seed of the programs (default: random)
  --shrink SECONDS   time limit for finding fewer steps that fail (default 30; 0: do not search)
  --program SEED     run one program; a failure prints this option, with --ranks, --steps and --in-order for the reduced program
  --times N          run the program up to N times (default 1; 0: print the program)";

#[derive(Default)]
struct StormArguments {
    minutes: Option<u64>,
    programs: Option<u64>,
    seed: Option<u64>,
    shrink: Option<u64>,
    program: Option<u64>,
    ranks: Option<u32>,
    steps: Option<String>,
    is_in_order: bool,
    times: Option<u64>,
    process: Option<usize>,
}

impl StormArguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut arguments = Self::default();
        while let Some(word) = words.next() {
            if word == "--in-order" {
                arguments.is_in_order = true;
                continue;
            }
            let value = words.next().with_context(|| format!("{word} needs a value\n{USAGE}"))?;
            let number = || {
                value.parse::<u64>().with_context(|| format!("{word} {value}: expected a number\n{USAGE}"))
            };
            match word.as_str() {
                "--minutes" => arguments.minutes = Some(number()?),
                "--programs" => arguments.programs = Some(number()?),
                "--seed" => arguments.seed = Some(number()?),
                "--shrink" => arguments.shrink = Some(number()?),
                "--program" => arguments.program = Some(number()?),
                "--ranks" => arguments.ranks = Some(number()? as u32),
                "--steps" => arguments.steps = Some(value),
                "--times" => arguments.times = Some(number()?),
                "--process" => arguments.process = Some(number()? as usize),
                _ => bail!("unknown argument {word}\n{USAGE}"),
            }
        }
        Ok(arguments)
    }
}

fn main() -> Result<ExitCode> {
    let arguments = StormArguments::parse(std::env::args().skip(1))?;
    let cut = arguments.program.map(|seed| {
        Excerpt::parse(seed, arguments.ranks, arguments.steps.as_deref(), !arguments.is_in_order)
    });
    if let Some(index) = arguments.process {
        let cut = cut.with_context(|| format!("--process belongs to a --program\n{USAGE}"))?;
        return process::run(&cut, index);
    }
    let binary = std::env::current_exe().context("the path of this binary")?;
    let minutes = match (arguments.minutes, arguments.programs) {
        (Some(minutes), _) => minutes,
        (None, Some(_)) => 60 * 24 * 365,
        (None, None) => 10,
    };
    let storm = Storm {
        seed: arguments.seed.unwrap_or_else(|| std::process::id().into()),
        time: Duration::from_secs(60 * minutes),
        most: arguments.programs.unwrap_or(u64::MAX),
        shrink: Duration::from_secs(arguments.shrink.unwrap_or(30)),
    };
    let tally = match cut {
        Some(cut) if arguments.times == Some(0) => {
            show_program(&cut);
            return Ok(ExitCode::SUCCESS);
        }
        Some(cut) => again(&storm, &Supervisor { binary }, &cut, arguments.times.unwrap_or(1))?,
        None => {
            let since = Instant::now();
            let before = |index: u64, seed: u64| {
                if index.is_multiple_of(50) {
                    say(&format!(
                        "seed {}: {index} programs after {:?}; next is {seed}",
                        storm.seed,
                        since.elapsed()
                    ));
                }
            };
            storm.run(binary, before, |failure| show(failure, since))?
        }
    };
    say(&format!("storm: {} programs, {} steps, {} findings", tally.programs, tally.steps, tally.findings));
    Ok(if tally.findings > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn again(storm: &Storm, supervisor: &Supervisor, cut: &Excerpt, times: u64) -> Result<Tally> {
    let (mut tally, since) = (Tally::default(), Instant::now());
    for _ in 0..times {
        tally.programs += 1;
        tally.steps += cut.size();
        if let Some(failure) = storm.attempt(supervisor, cut)? {
            tally.findings += 1;
            show(&failure, since);
            break;
        }
    }
    Ok(tally)
}

fn show_program(cut: &Excerpt) {
    for line in cut.lines() {
        say(&format!("  {line}"));
    }
}

fn show(failure: &StormFailure, since: Instant) {
    say(&format!(
        "\nprogram {} ({:?}), after {:?}:",
        failure.whole.seed,
        Flavour::of(failure.whole.seed),
        since.elapsed()
    ));
    for finding in &failure.findings {
        say(&format!("  {}: {}", finding.kind, finding.what));
    }
    show_program(&failure.least);
    say(&format!("  again:   cargo xtask soak storm {}", failure.whole.arguments().join(" ")));
    if failure.least != failure.whole {
        say(&format!("  shrunk:  cargo xtask soak storm {}", failure.least.arguments().join(" ")));
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
