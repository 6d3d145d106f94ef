//! Builds `kernels/` as `libascend_tp_kernels_host.so` for the emulator, with `ascend-tp kernel
//! build`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

pub(crate) fn write(folder: &str) -> Result<String> {
    let folder = env::current_dir().context("the current folder is unknown")?.join(folder);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let library = folder.join("libascend_tp_kernels_host.so");
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
    let entries = kernels.read_dir().with_context(|| kernels.display().to_string())?;
    let mut sources: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    sources.retain(|source| source.extension().is_some_and(|extension| extension == "cpp"));
    sources.sort();
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--package", "ascend-tp-cli", "--", "kernel", "build"]);
    let status = command.args(sources).arg("--out").arg(&library).status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the library was not written ({status})");
    }
    Ok(format!("wrote {} for aclrtBinaryLoadFromFile of the emulator", library.display()))
}
