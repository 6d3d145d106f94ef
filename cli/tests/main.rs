//! Tests of the command line and the planner, in one program, because linking several takes longer
//! than running them.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod bad_input;
mod bench;
mod checkpoint;
mod cli;
mod costs;
mod data;
mod doctor;
mod env;
mod explain;
mod generate;
mod kernel;
mod pages;
mod plan;
mod plan_train;
mod processes;
mod rehearse;
mod restarts;
mod resume;
mod terminal;
mod trace;
mod train;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the workspace folder.
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
