//! Writes the emulator's drop-in libraries into a folder.
//!
//! Input: the folder. Output: `libascendcl.so` and the other libraries of CANN, in release mode. The work is done by the
//! package `ascend-tp-emulator-dropin`, which cargo builds first; its shared library is what the folder is about.

use std::env;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Builds and writes the libraries; says how to use them.
pub(crate) fn write(folder: &str) -> Result<String> {
    let folder = env::current_dir().context("no current folder")?.join(folder);
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--release", "--package", "ascend-tp-emulator-dropin", "--"]).arg(&folder);
    let status = command.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the libraries were not written ({status})");
    }
    Ok(format!("link with -L{0}, run with LD_LIBRARY_PATH={0}", folder.display()))
}
