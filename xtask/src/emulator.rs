//! Writes the drop-in libraries of the emulator to a folder, and optionally packs it.
//!
//! The package `ascend-tp-emulator-dropin` writes the libraries in release mode. This chore adds
//! `set_env.sh`.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

/// Script for bash and zsh, and for sh in its folder. Works after a move.
const SET_ENV: &str = r#"# Source this file to use the emulator's libraries in this folder for programs of this shell.
if [ -n "${BASH_SOURCE:-}" ]; then
    ASCEND_TP_LIBRARIES=$(CDPATH= cd -- "$(dirname -- "$BASH_SOURCE")" && pwd)
elif [ -n "${ZSH_VERSION:-}" ]; then
    ASCEND_TP_LIBRARIES=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
else
    ASCEND_TP_LIBRARIES=$(pwd)
fi
export ASCEND_TP_LIBRARIES
export LD_LIBRARY_PATH="$ASCEND_TP_LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PYTHONPATH="$ASCEND_TP_LIBRARIES/python${PYTHONPATH:+:$PYTHONPATH}"
"#;

/// Builds and writes the libraries, and returns usage instructions.
pub(crate) fn write(folder: &str, archive: Option<&str>) -> Result<String> {
    let folder = env::current_dir().context("the current folder is unknown")?.join(folder);
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["run", "--quiet", "--release", "--package", "ascend-tp-emulator-dropin", "--"])
        .arg(&folder);
    let status = command.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the libraries were not written ({status})");
    }
    fs::write(folder.join("set_env.sh"), SET_ENV).with_context(|| format!("{}", folder.display()))?;
    let mut said = format!(
        "wrote {0}; link with -L{0}, then run with LD_LIBRARY_PATH={0} or source {0}/set_env.sh",
        folder.display()
    );
    if let Some(archive) = archive {
        pack(&folder, Path::new(archive))?;
        said.push_str(&format!("\npacked as {archive}"));
    }
    Ok(said)
}

fn pack(folder: &Path, archive: &Path) -> Result<()> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        bail!("{}: cannot pack a folder without a name", folder.display());
    };
    let mut command = Command::new("tar");
    command.arg("-czf").arg(archive).arg("-C").arg(parent).arg(name);
    let status = command.status().context("cannot run tar")?;
    if !status.success() {
        bail!("{} was not packed ({status})", archive.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_folder_names_the_place_where_it_was_unpacked() {
        let folder = env::temp_dir().join(format!("ascend-tp-pack-{}", std::process::id()));
        let (made, unpacked) = (folder.join("npu"), folder.join("elsewhere"));
        fs::create_dir_all(&made).unwrap();
        fs::create_dir_all(&unpacked).unwrap();
        fs::write(made.join("set_env.sh"), SET_ENV).unwrap();
        fs::write(made.join("libascendcl.so"), "x").unwrap();
        let archive = folder.join("npu.tar.gz");
        pack(&made, &archive).unwrap();
        let status = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&unpacked).status().unwrap();
        assert!(status.success() && unpacked.join("npu/libascendcl.so").is_file());
        let show = "echo $ASCEND_TP_LIBRARIES $LD_LIBRARY_PATH $PYTHONPATH";
        let script = format!("CDPATH=/; . {}/npu/set_env.sh; {show}", unpacked.display());
        let shell = |name: &str, script: &str| {
            let mut command = Command::new(name);
            command
                .args(["-c", script])
                .env("LD_LIBRARY_PATH", "/opt/other")
                .env("PYTHONPATH", "/opt/modules");
            command.current_dir(&unpacked).output()
        };
        let bash = shell("bash", &script);
        let sh = shell("sh", &format!("cd npu; . ./set_env.sh; {show}"));
        for shell in [bash, sh] {
            let place = unpacked.join("npu").canonicalize().unwrap();
            let said = String::from_utf8(shell.unwrap().stdout).unwrap();
            assert_eq!(said, format!("{0} {0}:/opt/other {0}/python:/opt/modules\n", place.display()));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
