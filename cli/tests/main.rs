//! The tests of the command line and of the planner, in one program: linking one for each file
//! takes longer than running them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

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

/// The folder of the workspace, below which the fixtures, the models and the documents lie.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// A tiny checkpoint with what is expected of it.
fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures").join(name)
}

/// The command, in the folder of the workspace and without a terminal that it could ask. Its lines
/// are not wrapped; `terminal.rs` holds that they are.
fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ascend-tp"));
    command.stdin(Stdio::null()).current_dir(root()).env("COLUMNS", "10000");
    command
}
