//! Runs training steps on random meshes in strict mode, through a test of the suite.

use std::env;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

pub(crate) fn run(options: &[&str]) -> Result<ExitCode> {
    let (mut runs, mut seed) = (500_u64, 1_u64);
    for pair in options.chunks(2) {
        let [name, value] = *pair else { bail!("{}: expected a number after the option", pair[0]) };
        let number = || value.parse::<u64>().with_context(|| format!("{name} {value}: expected a number"));
        match name {
            "--runs" => runs = number()?.max(1),
            "--seed" => seed = number()?,
            _ => bail!("unknown option `{name}`: expected --runs N or --seed S"),
        }
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "test",
        "--quiet",
        "--package",
        "ascend-tp",
        "--test",
        "suite",
        "--",
        "--nocapture",
        "meshes::",
    ]);
    let status =
        command.env("ASCEND_TP_MESHES", format!("{runs} {seed}")).status().context("cannot run cargo")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
