//! Compiler of Ascend C kernels for this host.
//!
//! Invariants: the headers of `kernels/host` (`host` is a link) replace CANN's headers. Entries are
//! found in the preprocessed source, so excluded code has no entries. Only the library file
//! remains. Not here: execution of kernels, and compilation for cards (`build.rs` of the root
//! package).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use rayon::prelude::*;

/// Every header of the model, by name.
pub const HEADERS: [(&str, &str); 12] = [
    ("copy.h", include_str!("../host/copy.h")),
    ("core.h", include_str!("../host/core.h")),
    ("exports.h", include_str!("../host/exports.h")),
    ("harness.h", include_str!("../host/harness.h")),
    ("kernel_operator.h", include_str!("../host/kernel_operator.h")),
    ("launch.h", include_str!("../host/launch.h")),
    ("library.h", include_str!("../host/library.h")),
    ("reduce.h", include_str!("../host/reduce.h")),
    ("stub.h", include_str!("../host/stub.h")),
    ("tensor.h", include_str!("../host/tensor.h")),
    ("types.h", include_str!("../host/types.h")),
    ("vector.h", include_str!("../host/vector.h")),
];

/// Names the compiler. If unset, [`COMPILERS`] are tried.
const COMPILER_VARIABLE: &str = "CXX";

/// Compilers in the order of the attempts.
pub const COMPILERS: [&str; 3] = ["c++", "g++", "clang++"];

/// Kernels are C++17. Products and sums are rounded separately, as on a card. Samples use the macro
/// to guard launches with `<<<>>>`.
pub const OPTIONS: [&str; 4] = ["-std=c++17", "-O1", "-ffp-contract=off", "-DASCENDC_CPU_DEBUG=1"];

/// `__global__` expands to a word that survives the preprocessor.
const SCAN: &str = "-DASCEND_HOST_SCAN=1";
const MARK: &str = "__ascend_global__";

/// Reason why a library could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// No compiler of this host supports the types of the model.
    #[error(
        "none of {tried} compiles C++17 with _Float16 (GCC 12, clang 15 or newer); install one, or name it by CXX"
    )]
    NoCompiler {
        /// Names of the compilers that were tried.
        tried: String,
    },
    /// The compiler rejected a source file.
    #[error("{compiler} refuses {source_file}:\n{said}")]
    Refused {
        /// Name of the compiler program.
        compiler: String,
        /// The source file, or the library if linking failed.
        source_file: PathBuf,
        /// Error output of the compiler.
        said: String,
    },
    /// A source file contains no kernel.
    #[error(
        "{source_file} has no kernel: expected a function `extern \"C\" __global__ __aicore__ void name(…) {{`; a template is \
         launched through such a function"
    )]
    NoKernel {
        /// The file without a kernel.
        source_file: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file that could not be accessed.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
}

/// A C++ compiler that supports the types of the model.
#[derive(Debug, Clone)]
pub struct Compiler {
    program: OsString,
}

/// An entry function of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelEntry {
    /// Name of the kernel function.
    pub name: String,
    /// Names of the parameters, in order.
    pub params: Vec<String>,
    /// Parameter types for callers: an address or structure is `void *`, a 16-bit float is
    /// `uint16_t`.
    pub types: Vec<String>,
}

/// Equal for callers and kernels.
const SHARED_TYPES: [&str; 14] = [
    "bool", "float", "double", "char", "int", "unsigned", "int8_t", "uint8_t", "int16_t", "uint16_t",
    "int32_t", "uint32_t", "int64_t", "uint64_t",
];

impl KernelEntry {
    /// Returns the header with which C++ programs launch the kernel. It defines
    /// `ACLRT_LAUNCH_KERNEL` of the kernel's name with blocks, stream and arguments, like CANN's
    /// headers.
    #[must_use]
    pub fn header(&self) -> String {
        let Self { name, params, types } = self;
        let typed = types.iter().zip(params).enumerate();
        let params: String = typed
            .map(|(number, (kind, param))| {
                let param = if param.contains(' ') { format!("a{number}") } else { param.clone() };
                format!(", {kind} {param}")
            })
            .collect();
        format!(
            "#pragma once\n\n#include <stdint.h>\n\ntypedef void *aclrtStream;\n\n#ifndef ACLRT_LAUNCH_KERNEL\n#define \
             ACLRT_LAUNCH_KERNEL(kernel) aclrtlaunch_##kernel\n#endif\n\n#ifdef __cplusplus\nextern \"C\"\n#endif\nuint32_t \
             aclrtlaunch_{name}(uint32_t blocks, aclrtStream stream{params});\n"
        )
    }
}

impl Compiler {
    /// Finds the compiler of `CXX`, or the first working one of [`COMPILERS`].
    ///
    /// # Errors
    ///
    /// No compiler works, or the folder for temporary files is not writable.
    pub fn find() -> Result<Self, CompileError> {
        let wanted = env::var_os(COMPILER_VARIABLE).filter(|name| !name.is_empty());
        let candidates = wanted.map_or_else(|| COMPILERS.map(OsString::from).to_vec(), |name| vec![name]);
        let folder = temporary()?;
        let probe = folder.path().join("probe.cpp");
        write(&probe, "#include <cstdint>\n_Float16 probe(float x) { return _Float16(x); }\n")?;
        let takes = |program: &OsString| {
            let output = Command::new(program).args(["-std=c++17", "-fsyntax-only"]).arg(&probe).output();
            output.is_ok_and(|output| output.status.success())
        };
        let tried =
            || candidates.iter().map(|name| name.display().to_string()).collect::<Vec<_>>().join(", ");
        let program = candidates.iter().find(|program| takes(program)).cloned();
        program.map(|program| Self { program }).ok_or_else(|| CompileError::NoCompiler { tried: tried() })
    }

    /// Returns the compiler command, without arguments.
    #[must_use]
    pub fn command(&self) -> Command {
        Command::new(&self.program)
    }

    /// Compiles `sources` into the shared library `out` and returns its kernels.
    ///
    /// # Errors
    ///
    /// A source cannot be read, contains no kernel or is rejected by the compiler; or `out` cannot
    /// be written.
    pub fn build(
        &self,
        sources: &[PathBuf],
        options: &[OsString],
        out: &Path,
    ) -> Result<Vec<KernelEntry>, CompileError> {
        let folder = temporary()?;
        for (name, text) in HEADERS {
            write(&folder.path().join(name), text)?;
        }
        let compile =
            |(number, source): (usize, &PathBuf)| self.compile(source, number, options, folder.path());
        let compiled: Vec<_> = sources.par_iter().enumerate().map(compile).collect();
        let (mut entries, mut link) = (Vec::new(), self.command());
        link.arg("-shared").args(options).arg("-o").arg(out);
        for of_source in compiled {
            let (found, object) = of_source?;
            entries.extend(found);
            link.arg(object);
        }
        self.run(link.arg("-ldl"), out)?;
        Ok(entries)
    }

    /// Returns the kernels and the object file in `folder`, which contains the headers.
    fn compile(
        &self,
        source: &Path,
        number: usize,
        options: &[OsString],
        folder: &Path,
    ) -> Result<(Vec<KernelEntry>, PathBuf), CompileError> {
        let command = || {
            let mut command = self.command();
            command.args(OPTIONS).arg("-I").arg(folder).args(options);
            command
        };
        let path = fs::canonicalize(source).map_err(|error| file_error(source, error))?;
        let scanned = self.run(command().args(["-E", "-P", SCAN]).arg(&path), source)?;
        let entries = scan(&scanned);
        if entries.is_empty() {
            return Err(CompileError::NoKernel { source_file: source.to_path_buf() });
        }
        let (wrapper, object) = (folder.join(format!("{number}.cpp")), folder.join(format!("{number}.o")));
        write(&wrapper, &wrap(&path, &entries, number == 0))?;
        self.run(
            command().args(["-fPIC", "-fvisibility=hidden", "-c"]).arg(&wrapper).arg("-o").arg(&object),
            source,
        )?;
        Ok((entries, object))
    }

    fn run(&self, command: &mut Command, source: &Path) -> Result<String, CompileError> {
        let refused = |said: String| CompileError::Refused {
            compiler: self.program.display().to_string(),
            source_file: source.to_path_buf(),
            said,
        };
        let output = command.output().map_err(|error| refused(error.to_string()))?;
        if !output.status.success() {
            return Err(refused(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn temporary() -> Result<tempfile::TempDir, CompileError> {
    tempfile::tempdir().map_err(|error| file_error(&env::temp_dir(), error))
}

fn file_error(path: &Path, error: io::Error) -> CompileError {
    CompileError::File { path: path.to_path_buf(), error }
}

fn write(path: &Path, text: &str) -> Result<(), CompileError> {
    fs::write(path, text).map_err(|error| file_error(path, error))
}

fn wrap(source: &Path, entries: &[KernelEntry], exports: bool) -> String {
    let header = if exports { "exports.h" } else { "library.h" };
    let mut text = format!("#include \"{}\"\n#include \"{header}\"\n#include \"stub.h\"\n", source.display());
    for (number, KernelEntry { name, params, .. }) in entries.iter().enumerate() {
        let names = params.join(",");
        let stub = |param: usize| format!("ascend_host::Stub<{param}, decltype(&{name})>");
        let taken: String =
            (0..params.len()).map(|param| format!(", {}::Type a{param}", stub(param))).collect();
        let passed: Vec<String> =
            (0..params.len()).map(|param| format!("{}::value(a{param})", stub(param))).collect();
        let passed = passed.join(", ");
        text += &format!(
            "extern \"C\" __attribute__((visibility(\"default\"))) uint32_t aclrtlaunch_{name}(uint32_t blocks, void *stream{taken}) \
             {{ return ascend_host::launch_by_name(\"{name}\", blocks, stream, {{{passed}}}); }}\n"
        );
        text += &format!(
            "static const ascend_host::Added ascend_host_added_{number}{{\"{name}\", \"{names}\", {name}}};\n"
        );
    }
    text
}

fn scan(text: &str) -> Vec<KernelEntry> {
    let mut entries: Vec<KernelEntry> = Vec::new();
    for (at, _) in text.match_indices(MARK) {
        let before = &text[..at];
        let declaration = before.rfind([';', '}']).map_or(before, |end| &before[end + 1..]);
        if declaration.contains("template") {
            continue;
        }
        let Some((head, rest)) = text[at + MARK.len()..].split_once('(') else { continue };
        let Some(end) = closing(rest) else { continue };
        if !rest[end + 1..].trim_start().starts_with('{') {
            continue;
        }
        let name = last_word(head);
        let found = parts(&rest[..end]);
        let params = found.iter().enumerate().map(|(number, param)| name_of(param, number)).collect();
        let types = found.iter().map(|param| type_of(param)).collect();
        entries.push(KernelEntry { name: name.to_owned(), params, types });
    }
    entries
}

/// The parenthesis was opened before the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1_usize;
    text.char_indices().find_map(|(at, letter)| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// Splits at commas outside brackets.
fn parts(params: &str) -> Vec<&str> {
    let (mut depth, mut start, mut all) = (0_i32, 0, Vec::new());
    for (at, letter) in params.char_indices() {
        match letter {
            '(' | '<' | '[' | '{' => depth += 1,
            ')' | '>' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                all.push(&params[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(&params[start..]);
    all.retain(|param| !matches!(param.trim(), "" | "void"));
    all
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn last_word(text: &str) -> &str {
    let text = text.trim_end();
    let start = text.rfind(|letter| !is_of_word(letter)).map_or(0, |at| at + 1);
    &text[start..]
}

fn type_of(param: &str) -> String {
    let words = || param.split(|letter| !is_of_word(letter)).filter(|word| !word.is_empty());
    let shared = words().find(|word| SHARED_TYPES.contains(word));
    match shared {
        _ if param.contains('*') => "void *".to_owned(),
        Some(word) => word.to_owned(),
        None if words().any(|word| matches!(word, "half" | "bfloat16_t" | "_Float16")) => {
            "uint16_t".to_owned()
        }
        None => "void *".to_owned(),
    }
}

/// An unnamed parameter is named by its index.
fn name_of(param: &str, number: usize) -> String {
    let words =
        param.split(|letter| !is_of_word(letter)).filter(|word| !word.is_empty() && *word != "const").count();
    let name = last_word(param.split('=').next().unwrap_or(param));
    let is_named = words > 1
        || (words == 1 && !name.is_empty() && param.contains('*') && !param.trim_end().ends_with('*'));
    if is_named && !name.is_empty() { name.to_owned() } else { format!("argument {number}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, params: &[&str], types: &[&str]) -> KernelEntry {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        KernelEntry { name: name.to_owned(), params: owned(params), types: owned(types) }
    }

    #[test]
    fn kernels_are_found_with_the_names_of_their_parameters() {
        let text = r#"
            struct Tiling { uint32_t n; };
            extern "C" __ascend_global__ void declared(uint8_t * x);
            template <class T> __ascend_global__ void generic(uint8_t * x) { }
            extern "C" __ascend_global__ void add(uint8_t * x, const uint8_t *y, float scale, Tiling tiling) { if (x) { } }
            extern "C" __ascend_global__ void none() {}
            extern "C" __ascend_global__ void unnamed(uint8_t *, uint32_t) {}
        "#;
        assert_eq!(
            scan(text),
            [
                entry("add", &["x", "y", "scale", "tiling"], &["void *", "void *", "float", "void *"]),
                entry("none", &[], &[]),
                entry("unnamed", &["argument 0", "argument 1"], &["void *", "uint32_t"])
            ]
        );
    }
}
