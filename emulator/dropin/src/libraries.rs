//! The folder of libraries a program is pointed at.
//!
//! Input: a folder, and the shared library of this crate. Output: that library and, beside it, one small file for each
//! name CANN's libraries have: with its own SONAME, defining the names that library owns, and a *filter* (`DT_FILTER`) of
//! the shared library, so that the dynamic linker resolves each of those names there. A program may link them, load one
//! or several by any path, lazily or at once: it always gets the functions of the one shared library.
//!
//! Beside them, in `include`, the header of what only the emulator offers, and in `python` CANN's package `acl` for Python (pyACL),
//! which is a list of functions and calls the libraries beside it.
//!
//! Invariants: the names a file defines are those of [`exports`] for its library, and [`OWN`] for AscendCL's; a file that is being replaced
//! stays whole for who has it open. Needs the C linker driver `cc` that rustc needs too. Does not: install anything.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use ascend_tp_sys::Library;

use crate::{OWN, exports};

/// File name and SONAME of the shared library.
const REAL: &str = "libascend_tp_emulator_dropin.so";
/// Files that are written as they are: where in the folder, and what. The header is what a C program can ask of the emulator and of no
/// CANN, the package is CANN's `acl` for Python.
const TEXTS: [(&str, &str); 3] = [
    ("include/ascend_emulator.h", include_str!("../include/ascend_emulator.h")),
    ("python/acl/__init__.py", include_str!("../python/acl/__init__.py")),
    ("python/acl/functions.txt", include_str!("../python/acl/functions.txt")),
];

/// A file to write: its name, whose functions it has, and the library it needs beside the shared one.
struct LibraryFile {
    name: &'static str,
    owns: Option<Library>,
    needs: Option<&'static str>,
}

const fn part(name: &'static str, owns: Option<Library>, needs: Option<&'static str>) -> LibraryFile {
    LibraryFile { name, owns, needs }
}

/// Since CANN 8.5 the runtime and the communicators have a library of their own, with the same functions, and operators one for
/// each of their repositories, any of which programs look an operator up in. The last ones programs name on their link
/// line or open, and find there nothing that only they have. In this order: a part needs earlier ones.
const PARTS: [LibraryFile; 25] = [
    part("ascendcl", Some(Library::AscendCl), None),
    part("acl_rt", Some(Library::AscendCl), None),
    part("hccl", Some(Library::Hccl), None),
    part("hcomm", Some(Library::Hccl), None),
    part("nnopbase", Some(Library::NnopBase), None),
    // Programs look functions of libnnopbase up through the handle of libopapi.
    part("opapi", Some(Library::OpApi), Some("nnopbase")),
    part("opapi_math", Some(Library::OpApi), Some("nnopbase")),
    part("opapi_nn", Some(Library::OpApi), Some("nnopbase")),
    part("opapi_cv", Some(Library::OpApi), Some("nnopbase")),
    part("opapi_transformer", Some(Library::OpApi), Some("nnopbase")),
    part("opapi_oam", Some(Library::OpApi), Some("nnopbase")),
    part("opapi_legacy", Some(Library::OpApi), Some("nnopbase")),
    // What C++ programs call of ATB is named there too, and defined with the rest of AscendCL's.
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

/// Why the libraries could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The files below need another system.
    #[error("the drop-in libraries are for Linux with glibc on x86_64 or aarch64, this is {found}")]
    System {
        /// What this is.
        found: String,
    },
    /// A file could not be written, copied or read.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file that could not be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The linker could not be run.
    #[error("cannot run the C linker driver `cc`, which rustc needs too: {0}")]
    NoLinker(#[source] io::Error),
    /// The linker refused.
    #[error("`cc` could not make lib{library}.so: {said}")]
    Linker {
        /// The library without `lib` and `.so`.
        library: &'static str,
        /// What it printed.
        said: String,
    },
}

/// The shared library of this crate as cargo built it together with the running program (a test or `write-libraries`).
///
/// # Errors
/// It is in none of the places where cargo puts it.
pub fn real_library() -> Result<PathBuf, WriteError> {
    let program =
        env::current_exe().map_err(|source| WriteError::File { path: PathBuf::from("this program"), source })?;
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

/// Writes the folder of libraries; gives the paths of the files.
///
/// # Errors
/// The system has no such libraries, a file cannot be written, or the linker fails.
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
        let names = exports.iter().filter(|export| Some(export.library) == part.owns).map(|export| export.name);
        // Where programs that link AscendCL find them.
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

/// An instruction that is none, for a dynamic linker that does not know filters: the program ends at the call.
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

/// Global functions of these names at one place.
fn assembly<'a>(names: impl Iterator<Item = &'a str>, trap: &str) -> String {
    let mut text = String::from(".text\n");
    for name in names {
        // Writing to a String cannot fail.
        let _ = writeln!(text, ".globl {name}\n.type {name}, %function\n{name}:");
    }
    let _ = writeln!(text, "{trap}\n.section .note.GNU-stack, \"\", %progbits");
    text
}

fn link(part: &LibraryFile, folder: &Path, source: &Path, object: &Path) -> Result<(), WriteError> {
    let mut command = Command::new("cc");
    command.args(["-shared", "-nostdlib", "-o"]).arg(object).args(["-x", "assembler"]).arg(source).args(["-x", "none"]);
    command.arg(format!("-Wl,-soname,lib{}.so", part.name));
    command.arg(format!("-Wl,--filter={REAL}"));
    // The files are found by each other wherever the folder is moved.
    command.args(["-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"]);
    if let Some(needed) = part.needs {
        command.arg("-L").arg(folder).arg("-Wl,--no-as-needed").arg(format!("-l{needed}"));
    }
    let output = command.output().map_err(WriteError::NoLinker)?;
    if output.status.success() {
        return Ok(());
    }
    Err(WriteError::Linker { library: part.name, said: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}
