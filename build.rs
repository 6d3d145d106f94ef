//! Compiles `kernels/*.cpp` if an Ascend C compiler is installed. Otherwise the table of kernels is
//! empty.
//!
//! Input: the toolkit of `ASCEND_TOOLKIT_HOME` or `ASCEND_HOME_PATH`, and `ASCEND_TP_KERNELS`.
//! Output: `kernels.rs` in `OUT_DIR`, a table of file names and objects, which
//! `src/device/kernels.rs` includes.
//!
//! A missing toolkit or compiler is not an error. A failed compilation is a warning and leaves the
//! table empty. With `ASCEND_TP_KERNELS=require` both are errors; with `ASCEND_TP_KERNELS=off` the
//! build does not look for a compiler.
//!
//! Not here: running kernels, or compiling them for the host, which the tests do.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

/// Paths of the compiler in a toolkit: CANN 8.x, then 8.5 and newer.
const COMPILERS: [&str; 3] =
    ["compiler/ccec_compiler/bin/bisheng", "tools/ccec_compiler/bin/bisheng", "bin/bisheng"];
const LINKER: &str = "ld.lld";

/// Header folders of Ascend C in a toolkit, for both layouts. Missing folders are skipped.
const HEADERS: [&str; 9] = [
    "compiler/tikcpp/tikcfw",
    "compiler/tikcpp/tikcfw/impl",
    "compiler/tikcpp/tikcfw/interface",
    "tikcpp/tikcfw",
    "tikcpp/tikcfw/impl",
    "tikcpp/tikcfw/interface",
    "asc/include/basic_api",
    "asc/include",
    "include",
];

/// Options for the vector cores of Atlas A2 and A3, as in the toolkit's own operator build.
const OPTIONS: [&str; 18] = [
    "-c",
    "-x",
    "cce",
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "--cce-aicore-arch=dav-c220-vec",
    "--cce-aicore-only",
    "--cce-auto-sync",
    "--cce-disable-kernel-global-attr-check",
    "-DASCENDC_DUMP=0",
    "-mllvm",
    "-cce-aicore-stack-size=0x8000",
    "-mllvm",
    "-cce-aicore-function-stack-size=0x8000",
    "-mllvm",
    "-cce-aicore-addr-transform",
    "-Wno-unused-command-line-argument",
];

fn main() -> ExitCode {
    for name in ["ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "ASCEND_TP_KERNELS"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let wanted = env::var("ASCEND_TP_KERNELS").unwrap_or_default();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let built = if wanted == "off" { Ok(Vec::new()) } else { build(&out) };
    let objects = match built {
        Ok(objects) if objects.is_empty() && wanted == "require" => {
            println!(
                "cargo::error=ASCEND_TP_KERNELS=require, but ASCEND_TOOLKIT_HOME names no toolkit with one of {}",
                COMPILERS.join(", ")
            );
            return ExitCode::FAILURE;
        }
        Ok(objects) => objects,
        Err(what) => {
            let kind = if wanted == "require" { "error" } else { "warning" };
            what.lines().for_each(|line| println!("cargo::{kind}={line}"));
            if wanted == "require" {
                return ExitCode::FAILURE;
            }
            println!("cargo::warning=no kernel is built in: calls of the toolkit take their place");
            Vec::new()
        }
    };
    let rows = objects.iter().map(|(name, path)| format!("    ({name:?}, include_bytes!({path:?})),\n"));
    let table = format!("&[\n{}]\n", rows.collect::<String>());
    fs::write(out.join("kernels.rs"), table).expect("OUT_DIR can be written");
    ExitCode::SUCCESS
}

/// Returns the root of a toolkit and its compiler.
fn find() -> Option<(PathBuf, PathBuf)> {
    let homes =
        ["ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    homes
        .flat_map(|home| {
            let own = home.join(format!("{}-linux", env::consts::ARCH));
            [home, own]
        })
        .flat_map(|root| COMPILERS.map(|compiler| (root.clone(), root.join(compiler))))
        .find(|(_, compiler)| compiler.is_file())
}

/// Compiles and links each kernel. Returns an empty list without a compiler.
fn build(out: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let Some((root, compiler)) = find() else { return Ok(Vec::new()) };
    // Set only if a compiler exists: otherwise an edited kernel must not trigger a rebuild.
    println!("cargo::rerun-if-changed=kernels");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut sources: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    sources.retain(|source| source.extension().is_some_and(|extension| extension == "cpp"));
    sources.sort();
    let headers: Vec<PathBuf> =
        HEADERS.iter().map(|header| root.join(header)).filter(|header| header.is_dir()).collect();
    let mut objects = Vec::new();
    for source in sources {
        let name = source.file_stem().expect("a source has a name").to_string_lossy().into_owned();
        let (relocatable, object) = (out.join(format!("{name}.part.o")), out.join(format!("{name}.o")));
        let mut compile = Command::new(&compiler);
        compile.args(OPTIONS).args(headers.iter().flat_map(|header| [Path::new("-I"), header]));
        run(compile.arg(&source).arg("-o").arg(&relocatable))?;
        let mut link = Command::new(compiler.with_file_name(LINKER));
        run(link
            .args(["-m", "aicorelinux", "-Ttext=0", "-static"])
            .arg(&relocatable)
            .arg("-o")
            .arg(&object))?;
        objects.push((name, object));
    }
    Ok(objects)
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}
