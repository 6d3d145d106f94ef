//! Runs the long explorations and prints one summary.
//!
//! Tests with random cases or tables of layouts run a fixed sample in the suite. Here they run more
//! cases, through two variables that `tests/common/cases.rs` reads.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use crate::built::cargo;
use crate::{kills, say, serving};

/// The default multiple of the suite's cases.
const CASES: u64 = 20;

const MINUTES: u64 = 30;

/// The explorations, in order of execution.
const EXPLORATIONS: [Exploration; 5] = [
    Exploration { name: "suite", run: suite },
    Exploration { name: "storm", run: storm },
    Exploration { name: "kills", run: kills::run },
    Exploration { name: "restarts", run: kills::restarts::run },
    Exploration { name: "serve", run: serving::run },
];

#[derive(Clone, Copy)]
struct Exploration {
    name: &'static str,
    run: fn(&[&str]) -> Result<ExitCode>,
}

struct SoakOptions {
    seed: String,
    cases: String,
    minutes: String,
}

impl SoakOptions {
    fn parse(words: &[&str]) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the system time is before 1970")?;
        let mut options =
            Self { seed: now.as_secs().to_string(), cases: CASES.to_string(), minutes: MINUTES.to_string() };
        for pair in words.chunks(2) {
            let [name, value] = *pair else { bail!("{}: expected a number after the option", pair[0]) };
            value.parse::<u64>().with_context(|| format!("{name} {value}: expected a number"))?;
            let option = match name {
                "--seed" => &mut options.seed,
                "--cases" => &mut options.cases,
                "--minutes" => &mut options.minutes,
                _ => bail!("unknown option `{name}`: expected --cases N, --minutes N or --seed S"),
            };
            value.clone_into(option);
        }
        Ok(options)
    }

    fn of(&self, name: &str) -> Vec<&str> {
        let seed = ["--seed", &self.seed];
        match name {
            "suite" => [seed, ["--cases", &self.cases]].concat(),
            "storm" | "serve" => [seed, ["--minutes", &self.minutes]].concat(),
            _ => seed.to_vec(),
        }
    }
}

/// Runs one exploration with its own options if the first word names it, otherwise all.
pub(crate) fn run(words: &[&str]) -> Result<ExitCode> {
    if let [name, options @ ..] = words
        && let Some(exploration) = EXPLORATIONS.iter().find(|exploration| exploration.name == *name)
    {
        return (exploration.run)(options);
    }
    let options = SoakOptions::parse(words)?;
    let mut summary = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for Exploration { name, run } in EXPLORATIONS {
        let words = options.of(name);
        let start = Instant::now();
        let result = run(&words).unwrap_or_else(|error| {
            say(&format!("{name}: {error:#}"));
            ExitCode::FAILURE
        });
        let is_passed = result == ExitCode::SUCCESS;
        if !is_passed {
            code = ExitCode::FAILURE;
        }
        summary.push(line(name, is_passed, start.elapsed(), &words));
    }
    say(&format!("\nexploration  result    time  command\n{}", summary.join("\n")));
    Ok(code)
}

fn line(name: &str, is_passed: bool, time: Duration, words: &[&str]) -> String {
    let result = if is_passed { "passed" } else { "FAILED" };
    format!("{name:11}  {result}  {:4} s  cargo xtask soak {name} {}", time.as_secs(), words.join(" "))
}

/// Runs the random programs over the emulator in release mode.
fn storm(options: &[&str]) -> Result<ExitCode> {
    let mut command = cargo();
    command
        .args(["run", "--quiet", "--release", "--package", "ascend-tp-emulator-storm", "--"])
        .args(options);
    code(&mut command)
}

/// Runs the library's suite with more cases. Other words select tests by a part of their name.
fn suite(options: &[&str]) -> Result<ExitCode> {
    let mut command = cargo();
    command.args(["test", "--quiet", "--package", "ascend-tp", "--test", "suite", "--"]);
    let (mut cases, mut words) = (CASES.to_string(), options.iter());
    while let Some(word) = words.next() {
        let mut number = || -> Result<&str> {
            let value = *words.next().with_context(|| format!("{word}: expected a number"))?;
            value.parse::<u64>().with_context(|| format!("{word} {value}: expected a number"))?;
            Ok(value)
        };
        match *word {
            "--cases" => number()?.clone_into(&mut cases),
            "--seed" => {
                command.env("ASCEND_TP_SEED", number()?);
            }
            part => {
                command.arg(part);
            }
        }
    }
    code(command.env("ASCEND_TP_CASES", cases))
}

pub(crate) fn code(command: &mut Command) -> Result<ExitCode> {
    let status =
        command.status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exploration_gets_the_options_that_it_knows() {
        let options = SoakOptions::parse(&["--seed", "7", "--minutes", "3"]).unwrap();
        assert_eq!(options.of("suite"), ["--seed", "7", "--cases", "20"]);
        assert_eq!(options.of("storm"), ["--seed", "7", "--minutes", "3"]);
        assert_eq!(options.of("serve"), options.of("storm"));
        assert_eq!(options.of("kills"), ["--seed", "7"]);
        for wrong in [["--seed", "x"], ["--runs", "3"]] {
            assert!(SoakOptions::parse(&wrong).is_err(), "{wrong:?}");
        }
        assert!(SoakOptions::parse(&["--seed"]).is_err());
    }
}
