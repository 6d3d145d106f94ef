//! Makes the generated files of `ascend-tp-sys`, or checks them.
//!
//! Input: `sys/include`, and the headers of a toolkit if one is named. Output: the files of `generate`. bindgen takes a minute
//! to build and no other chore needs it, so it is a feature of this package and the chore starts itself again with it.
//! Invariant: where libclang is not there, checking says so and passes. Does not: install anything.

#[cfg(feature = "bindgen")]
mod generate;
#[cfg(any(feature = "bindgen", test))]
mod since;

use std::process::ExitCode;

use anyhow::{Result, bail};

/// Runs the chore with its words: `--check`, or a toolkit's folder, or nothing.
///
/// # Errors
/// libclang is not there to make the files, or what is committed is not what is made.
pub(crate) fn run(words: &[&str]) -> Result<ExitCode> {
    let is_check = words == ["--check"];
    if words.len() > 1 || words.iter().any(|word| word.starts_with('-') && !is_check) {
        bail!("expected --check, or the folder of a toolkit, or nothing, found `{}`", words.join(" "));
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

/// Runs the chore in a build of this package that has bindgen.
#[cfg(not(feature = "bindgen"))]
fn again(words: &[&str]) -> Result<ExitCode> {
    use anyhow::Context as _;

    let mut command = crate::built::cargo();
    command.args(["run", "--quiet", "--locked", "--package", "xtask", "--features", "bindgen", "--", "bindings"]);
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
