//! Lists the slowest tests of the workspace by processor time.
//!
//! Each test runs in its own process, one after another. Its time includes the processes that it
//! starts and waits for. Examples in documentation are not listed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::built::{Built, cargo};
use crate::say;

const COUNT: usize = 50;

/// Clock ticks per second in `/proc`. Linux fixes this number for all programs.
const TICKS: u64 = 100;

struct TimedTest {
    name: String,
    processor: Duration,
    wall: Duration,
    is_passed: bool,
}

impl TimedTest {
    fn line(&self) -> String {
        let Self { name, processor, wall, .. } = self;
        format!("{:9.2} {:9.2}  {name}", processor.as_secs_f64(), wall.as_secs_f64())
    }
}

/// Runs all tests whose name contains `part`, and returns a table of the slowest.
pub(crate) fn list(part: &str) -> Result<String> {
    let mut tests = Vec::new();
    for built in built()? {
        for name in names(&built)?.into_iter().filter(|name| full_name(&built, name).contains(part)) {
            tests.push(time(&built, &name)?);
        }
    }
    tests.sort_by_key(|test| std::cmp::Reverse(test.processor));
    let sum = |of: fn(&TimedTest) -> Duration| tests.iter().map(of).sum::<Duration>().as_secs_f64();
    let mut lines = vec!["processor      wall  test (seconds)".to_owned()];
    lines.extend(tests.iter().take(COUNT).map(TimedTest::line));
    let (processor, wall) = (sum(|test| test.processor), sum(|test| test.wall));
    lines.push(format!("{processor:9.2} {wall:9.2}  {} tests", tests.len()));
    let failed: Vec<&str> =
        tests.iter().filter(|test| !test.is_passed).map(|test| test.name.as_str()).collect();
    if failed.is_empty() {
        return Ok(lines.join("\n"));
    }
    say(&lines.join("\n"));
    bail!("{} tests failed: {}", failed.len(), failed.join(", "));
}

fn built() -> Result<Vec<Built>> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    let output = command.stderr(std::process::Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the build failed ({})", output.status);
    }
    Ok(Built::all(&output.stdout)?.into_iter().filter(|built| built.is_test).collect())
}

/// Prepares a run of a test program as cargo runs it.
fn program(built: &Built) -> Command {
    let mut command = Command::new(&built.path);
    command.current_dir(&built.folder).env("CARGO_MANIFEST_DIR", &built.folder);
    command
}

fn names(built: &Built) -> Result<Vec<String>> {
    let mut command = program(built);
    command.args(["--list", "--format", "terse"]);
    let output = command.output().with_context(|| format!("cannot run {}", built.path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect())
}

fn full_name(built: &Built, test: &str) -> String {
    format!("{}::{test}", built.name)
}

fn time(built: &Built, test: &str) -> Result<TimedTest> {
    let (before, start) = (processor_time_of_children()?, Instant::now());
    let mut command = program(built);
    let output =
        command.args(["--exact", test]).output().with_context(|| format!("cannot run the test {test}"))?;
    Ok(TimedTest {
        name: full_name(built, test),
        processor: processor_time_of_children()?.saturating_sub(before),
        wall: start.elapsed(),
        is_passed: output.status.success(),
    })
}

/// Returns the processor time of all child processes that ended, and of their children.
fn processor_time_of_children() -> Result<Duration> {
    let path = Path::new("/proc/self/stat");
    let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    let ticks = ticks_of_children(&text).with_context(|| format!("{}: unknown format", path.display()))?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS))
}

/// Returns the fields `cutime` and `cstime`, added. They are the 14th and 15th after the name.
fn ticks_of_children(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(13).map(|field| field.parse::<u64>().ok());
    Some(times.next()?? + times.next()??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_children_are_two_fields_of_the_status() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 1 2 3 4 50 60 700 80 20 0 1 0 9 0 0";
        assert_eq!(ticks_of_children(stat), Some(780));
        assert_eq!(ticks_of_children("7 (a) S 1"), None);
    }

    #[test]
    fn the_time_of_a_child_counts() {
        let before = processor_time_of_children().unwrap();
        let shell =
            Command::new("sh").args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]).status();
        assert!(shell.unwrap().success());
        assert!(processor_time_of_children().unwrap() > before);
    }
}
