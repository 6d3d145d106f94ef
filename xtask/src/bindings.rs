//! Generates or checks the generated files of `ascend-tp-sys`, from `sys/include` or a toolkit.
//!
//! Building bindgen takes a minute, so it is a feature, with which the chore restarts itself.
//! Without libclang, a check is skipped.

#[cfg(feature = "bindgen")]
mod generate;
#[cfg(any(feature = "bindgen", test))]
mod since;

use std::process::ExitCode;

use anyhow::{Result, bail};

/// Takes `--check`, a toolkit folder, or no argument.
pub(crate) fn run(words: &[&str]) -> Result<ExitCode> {
    let is_check = words == ["--check"];
    if words.len() > 1 || words.iter().any(|word| word.starts_with('-') && !is_check) {
        bail!("bindings: expected --check, a toolkit folder, or no argument, found `{}`", words.join(" "));
    }
    match clang_sys::load() {
        Ok(()) => again(words),
        Err(why) if is_check => {
            crate::say(&format!("skipped: no libclang ({why})"));
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => bail!("bindgen needs libclang (Debian: libclang-dev): {why}"),
    }
}

#[cfg(not(feature = "bindgen"))]
fn again(words: &[&str]) -> Result<ExitCode> {
    use anyhow::Context as _;

    let mut command = crate::built::cargo();
    command.args([
        "run",
        "--quiet",
        "--locked",
        "--package",
        "xtask",
        "--features",
        "bindgen",
        "--",
        "bindings",
    ]);
    let status = command.args(words).status().context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(feature = "bindgen")]
fn again(words: &[&str]) -> Result<ExitCode> {
    let report = match words {
        ["--check"] => generate::check(),
        words => generate::write(words.first().map(std::path::Path::new)),
    };
    crate::say(&report?);
    Ok(ExitCode::SUCCESS)
}
