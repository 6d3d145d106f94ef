//! Runs the comparison of predictions with published measurements.

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::built::{Built, cargo};
use crate::soak::code;

/// Builds the program with the features of the workspace, so that it shares build products.
pub(crate) fn run(options: &[&str]) -> Result<ExitCode> {
    let mut command = cargo();
    command.args(["build", "--quiet", "--workspace", "--bin", "validate"]);
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = command.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the build failed ({})", output.status);
    }
    let built = Built::all(&output.stdout)?.into_iter().find(|built| built.name == "validate");
    code(Command::new(built.context("cargo built no program validate")?.path).args(options))
}
