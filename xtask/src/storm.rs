//! Runs the package `ascend-tp-emulator-storm` in release mode.

use std::env;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

pub(crate) fn run(options: &[&str]) -> Result<ExitCode> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["run", "--quiet", "--release", "--package", "ascend-tp-emulator-storm", "--"])
        .args(options);
    let status = command.status().context("cannot run cargo")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
