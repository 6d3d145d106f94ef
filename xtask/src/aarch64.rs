//! Lints, builds and runs the workspace for aarch64 Linux, under qemu.
//!
//! - Input: the workspace, downloaded crates, Debian packages.
//! - Output: `target/aarch64-root`, which is reused, `target/aarch64`, and a table of runs.
//! - Invariants: mounts end with their command. A hanging run fails. Skipped tests are counted.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::built::{Built, cargo};
use crate::say;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const SUITE: &str = "sid";
const PACKAGES: &str = "ca-certificates,rustc,cargo,rust-clippy,libstd-rust-dev:arm64,gcc,gcc-aarch64-linux-gnu,libc6-dev-arm64-cross,qemu-user";
const NEEDED: [(&str, &str); 4] =
    [("mmdebstrap", "mmdebstrap"), ("apt-get", "apt"), ("unshare", "util-linux"), ("chroot", "coreutils")];
const LIMIT: Duration = Duration::from_secs(3600);

/// Extremes of `qemu-aarch64 -cpu`: ARMv8.0 of early servers, and all extensions except scalable
/// vectors, which no kernel uses.
const PROCESSORS: [&str; 2] = ["cortex-a57", "max,sve=off"];

/// Test binary next to the unit tests, with a prefix of test names.
const SUITE_TESTS: (&str, &str) = ("suite", "abi::");

/// Makes cargo build the program. These tests do not run, because they restart it.
const TESTS_OF_THE_PROGRAM: &str = "command";

/// Checkpoints and the number of cards for `verify`.
const CHECKPOINTS: [(&str, &str); 3] =
    [("tests/fixtures/qwen3-qknorm", "4"), ("tests/fixtures/qwen-v1-mha", "2"), ("models/kjv-qwen2", "8")];

const NOT_SHOWN: &str = "\
Not tested: strict mode, because it reads thread states from /proc and would see the calls of qemu. Its tests count as skipped.
Also not tested: programs that restart themselves as other processes, pages of 64 KiB, memory orders that x86-64 lacks, speed.";

/// Runs a command in the root `$1`, with workspace `$2` and crates `$3`. The new `/tmp` is mounted
/// first, because the workspace may be below it. The shell stays, because `timeout` must not be the
/// first process of a namespace.
const ENTER: &str = r#"
root=$1 workspace=$2 crates=$3
shift 3
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root$workspace" "$root/root/.cargo/registry" "$root/opt/target"
ln -sf /usr/bin/aarch64-linux-gnu-gcc "$root/opt/target/cc"
mount --bind "$workspace" "$root$workspace"
mount --bind "$crates" "$root/root/.cargo/registry"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
chroot "$root" env --chdir="$workspace" "$@" || exit $?
"#;

struct Root {
    folder: PathBuf,
    workspace: PathBuf,
    crates: PathBuf,
}

struct Tests {
    name: String,
    path: PathBuf,
    only: &'static str,
}

struct TimeRow {
    what: String,
    passed: u32,
    failed: u32,
    skipped: u32,
    took: Duration,
}

pub(crate) fn check() -> Result<String> {
    let since = Instant::now();
    let root = Root::prepare()?;
    root.lint()?;
    let (program, tests) = root.build()?;
    let built = since.elapsed();
    let mut rows = Vec::new();
    for processor in PROCESSORS {
        for tests in &tests {
            rows.push(root.test(processor, tests)?);
        }
        for (what, words, expected) in root.jobs()? {
            rows.push(root.job(processor, &program, &what, &words, &expected)?);
        }
    }
    let table = format!(
        "{}{NOT_SHOWN}\nbuild: {} s, total: {} s",
        table(&rows),
        built.as_secs(),
        since.elapsed().as_secs()
    );
    let failed = rows.iter().filter(|row| row.failed > 0).count();
    if failed > 0 {
        bail!("{failed} of {} runs failed; see the output above\n{table}", rows.len());
    }
    Ok(table)
}

impl Root {
    fn prepare() -> Result<Self> {
        let workspace =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().context("no workspace")?;
        need_tools()?;
        let status = cargo().args(["fetch", "--locked", "--target", TARGET]).current_dir(&workspace).status();
        if !status.context("cannot run cargo")?.success() {
            bail!(
                "cargo cannot fetch the crates of Cargo.lock; run `cargo fetch --locked` with a network connection"
            );
        }
        let home = env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cargo")));
        let crates = home.context("neither CARGO_HOME nor HOME is set")?.join("registry");
        let folder = workspace.join("target/aarch64-root");
        if !folder.is_dir() {
            make(&folder)?;
        }
        Ok(Self { folder, workspace, crates })
    }

    fn enter(&self, variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", ENTER, "sh"]);
        command.args([&self.folder, &self.workspace, &self.crates]);
        command.args(["PATH=/opt/target:/usr/bin:/bin", "HOME=/root", "LANG=C.UTF-8"]);
        command.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        command.stdin(Stdio::null());
        command
    }

    fn cargo(&self, words: &[&str]) -> Command {
        let mut command = self.enter(&[
            ("CARGO_NET_OFFLINE", "true"),
            ("CARGO_INCREMENTAL", "0"),
            ("CARGO_TERM_COLOR", "never"),
            ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"),
            ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-D warnings"),
        ]);
        if let Some(jobs) = env::var_os("CARGO_BUILD_JOBS") {
            command.arg(format!("CARGO_BUILD_JOBS={}", jobs.display()));
        }
        command.arg(format!("CARGO_TARGET_DIR={}", self.workspace.join("target/aarch64").display()));
        // Build scripts of the host need the host's `cc`.
        command.args(["PATH=/usr/bin:/bin", "cargo"]).args(words);
        command.args(["--workspace", "--locked", "--target", TARGET]);
        command
    }

    fn lint(&self) -> Result<()> {
        say("running lints for aarch64");
        let mut command = self.cargo(&["clippy", "--all-targets", "--quiet", "--keep-going"]);
        let status = command.args(["--", "-D", "warnings"]).status().context("cannot run unshare")?;
        if !status.success() {
            bail!("clippy for aarch64 failed ({status}); see the output above");
        }
        Ok(())
    }

    fn build(&self) -> Result<(PathBuf, Vec<Tests>)> {
        say("building for aarch64");
        let mut command = self.cargo(&["test", "--no-run", "--quiet"]);
        // The unit tests of the emulator and of its operators are separate packages. Chores run on
        // the developer's machine and need git.
        for package in ["ascend-tp-emulator", "ascend-tp-emulator-operators", "xtask"] {
            command.args(["--exclude", package]);
        }
        command.args(["--lib", "--bins", "--test", SUITE_TESTS.0]);
        command.args(["--test", TESTS_OF_THE_PROGRAM]);
        command.arg("--message-format=json-render-diagnostics");
        let output = command.stderr(Stdio::inherit()).output().context("cannot run unshare")?;
        if !output.status.success() {
            bail!("the build for aarch64 failed ({}); see the output above", output.status);
        }
        let (mut program, mut tests) = (None, Vec::new());
        for built in Built::all(&output.stdout)? {
            match built {
                Built { name, is_test: false, kind, path, .. } if kind == "bin" && name == "ascend-tp" => {
                    program = Some(path);
                }
                Built { name, is_test: true, kind, path, .. } if kind == "test" && name == SUITE_TESTS.0 => {
                    tests.push(Tests { name: "C ABI tests".to_owned(), path, only: SUITE_TESTS.1 });
                }
                Built { name, is_test: true, kind, path, .. }
                    if kind != "test" && kind != "bench" && kind != "example" =>
                {
                    tests.push(Tests { name: format!("unit tests, {kind} {name}"), path, only: "" });
                }
                _ => {}
            }
        }
        tests.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((program.context("cargo built no program ascend-tp")?, tests))
    }

    fn run(&self, processor: &str, program: &Path, words: &str) -> Result<(Output, Duration)> {
        let since = Instant::now();
        let mut command = self.enter(&[("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu")]);
        command.args(["timeout", "--kill-after=10", &LIMIT.as_secs().to_string()]);
        command.args(["sh", "-c", &format!("exec \"$@\" {words}"), "sh", "qemu-aarch64", "-cpu", processor]);
        command.arg(program);
        Ok((command.output().context("cannot run unshare")?, since.elapsed()))
    }

    fn test(&self, processor: &str, tests: &Tests) -> Result<TimeRow> {
        let (output, took) = self.run(processor, &tests.path, &format!("--show-output {}", tests.only))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut counts = TestCounts::of(&text);
        if !output.status.success() {
            counts.failed = counts.failed.max(1);
            say(&format!("{text}{}{}", String::from_utf8_lossy(&output.stderr), ended(&output)));
        }
        Ok(row(processor, &tests.name, counts, took))
    }

    fn jobs(&self) -> Result<Vec<(String, String, String)>> {
        let read = |path: &str| {
            let path = self.workspace.join(path);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let readme = read("README.md")?;
        let main_job = readme.lines().find_map(|line| line.strip_prefix("cargo run -- "));
        let main_job =
            main_job.context("README.md: expected a line that starts with `cargo run -- `, found none")?;
        let expected: serde_json::Value = serde_json::from_str(&read("models/kjv-qwen2/expected.json")?)?;
        let said = expected["cases"][0]["text"].as_str().and_then(|text| text.lines().next());
        let said = said.context("models/kjv-qwen2/expected.json: the first case has no text")?;
        let verify = |(model, cards): &(&str, &str)| {
            (
                format!("verify {model}, {cards} cards"),
                format!("verify --model {model} --cards {cards}"),
                "passed".to_owned(),
            )
        };
        let mut jobs: Vec<_> = CHECKPOINTS.iter().map(verify).collect();
        jobs.push(("main job of the README".to_owned(), main_job.to_owned(), said.to_owned()));
        Ok(jobs)
    }

    fn job(
        &self,
        processor: &str,
        program: &Path,
        job: &str,
        words: &str,
        expected: &str,
    ) -> Result<TimeRow> {
        let (output, took) = self.run(processor, program, words)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let passed = output.status.success() && text.contains(expected);
        if !passed {
            let said = String::from_utf8_lossy(&output.stderr);
            say(&format!("{text}{said}{}; expected in the output: {expected}", ended(&output)));
        }
        let counts = TestCounts { passed: u32::from(passed), failed: u32::from(!passed), skipped: 0 };
        Ok(row(processor, job, counts, took))
    }
}

fn row(processor: &str, what: &str, counts: TestCounts, took: Duration) -> TimeRow {
    let TestCounts { passed, failed, skipped } = counts;
    let what = format!("{what}; {processor}");
    say(&format!("{what}: {passed} passed, {failed} failed, {skipped} skipped, {} s", took.as_secs()));
    TimeRow { what, passed, failed, skipped, took }
}

fn ended(output: &Output) -> String {
    match output.status.code() {
        Some(124 | 137) => format!("ended after {} s, as it did not end", LIMIT.as_secs()),
        _ => format!("ended with {}", output.status),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TestCounts {
    passed: u32,
    failed: u32,
    /// Ignored tests, and tests that print `skipped NAME: why`.
    skipped: u32,
}

impl TestCounts {
    fn of(text: &str) -> Self {
        let mut counts = Self::default();
        for line in text.lines() {
            if line.starts_with("skipped ") {
                counts.skipped += 1;
            }
            let Some(result) = line.strip_prefix("test result: ") else { continue };
            let words: Vec<&str> = result.split([' ', '.', ';']).filter(|word| !word.is_empty()).collect();
            for pair in words.windows(2) {
                let Ok(number) = pair[0].parse::<u32>() else { continue };
                match pair[1] {
                    "passed" => counts.passed += number,
                    "failed" => counts.failed += number,
                    "ignored" => counts.skipped += number,
                    _ => {}
                }
            }
        }
        // The harness counts a test that skips itself as passed.
        counts.passed = counts
            .passed
            .saturating_sub(text.lines().filter(|line| line.starts_with("skipped ")).count() as u32);
        counts
    }
}

fn need_tools() -> Result<()> {
    if cfg!(not(target_os = "linux")) || cfg!(target_arch = "aarch64") {
        bail!("this chore needs Linux on another architecture; on aarch64 run `cargo test --workspace`");
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    for (tool, package) in NEEDED {
        if !env::split_paths(&folders).any(|folder| folder.join(tool).is_file()) {
            bail!("`{tool}` is missing; run `apt-get install {package}`");
        }
    }
    is_root().then_some(()).context("this chore uses mount and chroot: run it as root")
}

#[cfg(unix)]
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

#[cfg(not(unix))]
fn is_root() -> bool {
    false
}

/// Uses a temporary name until the folder is complete.
fn make(folder: &Path) -> Result<()> {
    let partial = folder.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("cannot remove {}", partial.display()))?;
    }
    let mirror = mirror()?;
    say(&format!("creating {} with Debian {SUITE} from {mirror}", folder.display()));
    // An aborted run must not leave mounts in a folder that is removed later.
    let mut command = Command::new("unshare");
    command.args(["--mount", "mmdebstrap", "--quiet", "--variant=apt", "--architectures=amd64,arm64"]);
    command.arg("--aptopt=Acquire::Check-Valid-Until \"false\"").arg(format!("--include={PACKAGES}"));
    let status = command.arg(SUITE).arg(&partial).arg(&mirror).status().context("cannot run unshare")?;
    if !status.success() {
        bail!(
            "mmdebstrap could not create {} from {mirror} ({status}); see the output above",
            partial.display()
        );
    }
    fs::rename(&partial, folder).with_context(|| format!("cannot rename {}", partial.display()))
}

fn mirror() -> Result<String> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]);
    let output = command.output().context("cannot run apt-get")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().find(|uri| uri.trim_end_matches('/').ends_with("/debian"));
    found.map(str::to_owned).with_context(|| {
        let listed: Vec<&str> = text.lines().collect();
        format!(
            "apt has no Debian mirror: expected a source that ends in /debian, found: {}",
            listed.join(", ")
        )
    })
}

fn table(rows: &[TimeRow]) -> String {
    let wide = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
    let mut text = format!("{:wide$}  passed  failed  skipped  seconds\n", "under qemu");
    let total = TimeRow {
        what: "all".to_owned(),
        passed: rows.iter().map(|row| row.passed).sum(),
        failed: rows.iter().map(|row| row.failed).sum(),
        skipped: rows.iter().map(|row| row.skipped).sum(),
        took: rows.iter().map(|row| row.took).sum(),
    };
    for row in rows.iter().chain([&total]) {
        let TimeRow { what, passed, failed, skipped, took } = row;
        let _ = writeln!(text, "{what:wide$}  {passed:>6}  {failed:>6}  {skipped:>7}  {:>7}", took.as_secs());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_says_is_counted_once() {
        let text = "running 3 tests\n\nsuccesses:\n\n---- a stdout ----\nskipped a: no /proc\n\n\
                    test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 7 filtered out; finished in 0.02s\n";
        assert_eq!(TestCounts::of(text), TestCounts { passed: 1, failed: 1, skipped: 5 });
        assert_eq!(TestCounts::of("Segmentation fault\n"), TestCounts::default());
    }
}
