//! The folder of drop-in libraries.
//!
//! It has the shared library of this crate and one small file per CANN library. Each file has its
//! own SONAME and defines the names of its library. It is a *filter* (`DT_FILTER`) of the shared
//! library, so the dynamic linker resolves the names there. Programs may link or load any file and
//! always call the one shared library.
//!
//! `include` has the header of the emulator's own functions, `python` the package `acl` (pyACL).
//!
//! Invariants: a file defines the names of [`exports`] for its library; the files of AscendCL also
//! define [`OWN`]. Replacing a file does not affect processes that use it. The linker driver `cc`,
//! which rustc also needs, must be installed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use ascend_tp_sys::Library;

use crate::{OWN, exports};

/// File name and SONAME of the shared library.
const REAL: &str = "libascend_tp_emulator_dropin.so";
/// Files written unchanged, with their paths in the folder.
const TEXTS: [(&str, &str); 3] = [
    ("include/ascend_emulator.h", include_str!("../include/ascend_emulator.h")),
    ("python/acl/__init__.py", include_str!("../python/acl/__init__.py")),
    ("python/acl/functions.txt", include_str!("../python/acl/functions.txt")),
];

/// Name, library of its functions, and another required library.
struct LibraryFile {
    name: &'static str,
    owns: Option<Library>,
    needs: Option<&'static str>,
}

const fn part(name: &'static str, owns: Option<Library>, needs: Option<&'static str>) -> LibraryFile {
    LibraryFile { name, owns, needs }
}

/// A file may need earlier files. Since CANN 8.5 the runtime and communicators have separate
/// libraries with the same functions, and operators have one library per repository. Programs look
/// up operators in any of them. Programs link or open the last libraries, but use no functions that
/// only these contain.
const PARTS: [LibraryFile; 25] = [
    part("ascendcl", Some(Library::AscendCl), None),
    part("acl_rt", Some(Library::AscendCl), None),
    part("hccl", Some(Library::Hccl), None),
    part("hcomm", Some(Library::Hccl), None),
    part("nnopbase", Some(Library::NnopBase), None),
    // Programs look up functions of libnnopbase through libopapi.
    part("opapi", Some(Library::OpApi), Some("nnopbase")),
    part("opapi_math", Some(Library::OpApi), Some("nnopbase")),
    part("opapi_nn", Some(Library::OpApi), Some("nnopbase")),
    part("opapi_cv", Some(Library::OpApi), Some("nnopbase")),
    part("opapi_transformer", Some(Library::OpApi), Some("nnopbase")),
    part("opapi_oam", Some(Library::OpApi), Some("nnopbase")),
    part("opapi_legacy", Some(Library::OpApi), Some("nnopbase")),
    // ATB's names for C++ programs are resolved here and defined with AscendCL's.
    part("atb", Some(Library::AscendCl), None),
    part("acl_op_compiler", None, None),
    part("fmk_parser", None, None),
    part("ascend_protobuf", None, None),
    part("ge_runner", None, None),
    part("graph", None, None),
    part("acl_tdt_channel", None, None),
    part("acl_tdt_queue", None, None),
    part("acl_rt_impl", None, None),
    part("msprofiler", None, None),
    part("profapi", None, None),
    part("ascend_dump", None, None),
    part("c_sec", None, None),
];

/// Reason why the libraries could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The libraries do not exist for this system.
    #[error("the drop-in libraries are for Linux with glibc on x86_64 or aarch64, this is {found}")]
    System {
        /// Name of this system.
        found: String,
    },
    /// A file could not be written, copied or read.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file that could not be accessed.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The linker could not be started.
    #[error("cannot run the C linker driver `cc`, which rustc needs too: {0}")]
    NoLinker(#[source] io::Error),
    /// The linker returned an error.
    #[error("`cc` could not make lib{library}.so: {said}")]
    Linker {
        /// Name of the library without `lib` and `.so`.
        library: &'static str,
        /// Error output of the linker.
        said: String,
    },
}

/// Returns the shared library that cargo built with the running program (a test or
/// `write-libraries`).
///
/// # Errors
///
/// The library is not in the places where cargo stores it.
pub fn real_library() -> Result<PathBuf, WriteError> {
    let program = env::current_exe()
        .map_err(|source| WriteError::File { path: PathBuf::from("this program"), source })?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let places = [folder.join("deps").join(REAL), folder.join(REAL)];
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| WriteError::File {
        path: places[0].clone(),
        source: io::Error::new(
            io::ErrorKind::NotFound,
            "not built; build the package ascend-tp-emulator-dropin with cargo",
        ),
    })
}

/// Writes the folder of libraries and returns the paths of the files.
///
/// # Errors
/// The system is not supported, a file cannot be written, or the linker fails.
pub fn write_libraries(folder: &Path, real: &Path) -> Result<Vec<PathBuf>, WriteError> {
    let trap = trap()?;
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| WriteError::File { path, source }
    };
    fs::create_dir_all(folder).map_err(at(folder))?;
    let fresh = |name: &str| folder.join(format!(".{name}.{}", std::process::id()));
    let put = |from: &Path, name: &str| {
        let to = folder.join(name);
        fs::rename(from, &to).map_err(at(&to))?;
        Ok(to)
    };

    let copy = fresh(REAL);
    fs::copy(real, &copy).map_err(at(real))?;
    let mut written = vec![put(&copy, REAL)?];
    let exports = exports();
    for part in &PARTS {
        let names =
            exports.iter().filter(|export| Some(export.library) == part.owns).map(|export| export.name);
        // Programs link AscendCL for these functions.
        let own: &[&str] = if part.owns == Some(Library::AscendCl) { OWN } else { &[] };
        let names = names.chain(own.iter().copied());
        let source = fresh(&format!("{}.s", part.name));
        fs::write(&source, assembly(names, trap)).map_err(at(&source))?;
        let object = fresh(part.name);
        let linked = link(part, folder, &source, &object);
        fs::remove_file(&source).map_err(at(&source))?;
        linked?;
        written.push(put(&object, &format!("lib{}.so", part.name))?);
    }
    for (name, text) in TEXTS {
        let path = folder.join(name);
        let place = path.parent().unwrap_or(folder);
        fs::create_dir_all(place).map_err(at(place))?;
        fs::write(&path, text).map_err(at(&path))?;
        written.push(path);
    }
    Ok(written)
}

/// An illegal instruction makes a call fail if the dynamic linker lacks filters.
fn trap() -> Result<&'static str, WriteError> {
    match env::consts::ARCH {
        _ if !cfg!(all(target_os = "linux", target_env = "gnu")) => {
            Err(WriteError::System { found: format!("{} on {}", env::consts::OS, env::consts::ARCH) })
        }
        "x86_64" => Ok(".byte 0x0f, 0x0b"),
        "aarch64" => Ok(".long 0"),
        other => Err(WriteError::System { found: other.to_owned() }),
    }
}

/// Global functions of these names share one address.
fn assembly<'a>(names: impl Iterator<Item = &'a str>, trap: &str) -> String {
    let mut text = String::from(".text\n");
    for name in names {
        let _ = writeln!(text, ".globl {name}\n.type {name}, %function\n{name}:");
    }
    let _ = writeln!(text, "{trap}\n.section .note.GNU-stack, \"\", %progbits");
    text
}

fn link(part: &LibraryFile, folder: &Path, source: &Path, object: &Path) -> Result<(), WriteError> {
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-nostdlib", "-o"])
        .arg(object)
        .args(["-x", "assembler"])
        .arg(source)
        .args(["-x", "none"]);
    command.arg(format!("-Wl,-soname,lib{}.so", part.name));
    command.arg(format!("-Wl,--filter={REAL}"));
    // The files find each other in a moved folder.
    command.args(["-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"]);
    if let Some(needed) = part.needs {
        command.arg("-L").arg(folder).arg("-Wl,--no-as-needed").arg(format!("-l{needed}"));
    }
    let output = command.output().map_err(WriteError::NoLinker)?;
    if output.status.success() {
        return Ok(());
    }
    Err(WriteError::Linker {
        library: part.name,
        said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
