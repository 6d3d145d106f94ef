//! Tests of the command line and the planner, in one program, because linking several takes longer
//! than running them.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod bad_input;
mod bench;
mod checkpoint;
mod cli;
mod data;
mod doctor;
mod env;
mod explain;
mod formats;
mod generate;
mod kernel;
mod pages;
mod plan;
mod plan_train;
mod processes;
mod rehearse;
mod restarts;
mod resume;
mod serve;
mod terminal;
mod trace;
mod train;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Returns a tiny checkpoint with expected results.
fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures").join(name)
}

/// Returns the command in the workspace folder, without a terminal and without wrapping (see
/// `terminal.rs`).
fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ascend-tp"));
    command.stdin(Stdio::null()).current_dir(root()).env("COLUMNS", "10000");
    command
}

/// Variables of launchers, which the test runner may have.
const LAUNCHER: [&str; 7] =
    ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RANK_TABLE_FILE"];

fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    command().args(arguments).output().unwrap()
}

/// Runs the command with the words of a line.
fn words(line: &str) -> Output {
    run(line.split_whitespace())
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Returns the output of a successful command.
fn succeeds(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    stdout(output)
}

/// Returns the report of a successful command.
fn json(output: &Output) -> Value {
    serde_json::from_str(&succeeds(output)).unwrap()
}

/// Returns stderr after exit code 2 without stdout or panic.
fn refused(output: &Output) -> String {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!(stdout(output), "", "{message}");
    assert!(!message.contains("panicked"), "{message}");
    message
}

/// Returns the sorted names of a folder's entries.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}
