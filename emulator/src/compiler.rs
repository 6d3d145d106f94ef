//! Compiler of Ascend C kernels for this host.
//!
//! Invariants: the headers of `kernels/host` (`host` is a link) replace CANN's headers. Entries are
//! found in the preprocessed source, so excluded code has no entries. The source is instrumented:
//! the model sees accesses through `__gm__` pointers. Only the library file remains. Not here:
//! execution of kernels, and compilation for cards (`build.rs` of the root package).

mod launches;
mod operator;
mod text;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use rayon::prelude::*;
use text::{closing, is_of_word, last_word, parts};

/// Every header of the model, by name.
pub const HEADERS: [(&str, &str); 19] = [
    ("bare.h", include_str!("../host/bare.h")),
    ("copy.h", include_str!("../host/copy.h")),
    ("core.h", include_str!("../host/core.h")),
    ("elementwise.h", include_str!("../host/elementwise.h")),
    ("exports.h", include_str!("../host/exports.h")),
    ("gather.h", include_str!("../host/gather.h")),
    ("harness.h", include_str!("../host/harness.h")),
    ("kernel_operator.h", include_str!("../host/kernel_operator.h")),
    ("launch.h", include_str!("../host/launch.h")),
    ("library.h", include_str!("../host/library.h")),
    ("masked.h", include_str!("../host/masked.h")),
    ("print.h", include_str!("../host/print.h")),
    ("reduce.h", include_str!("../host/reduce.h")),
    ("scalar.h", include_str!("../host/scalar.h")),
    ("stub.h", include_str!("../host/stub.h")),
    ("tensor.h", include_str!("../host/tensor.h")),
    ("tiling.h", include_str!("../host/tiling.h")),
    ("types.h", include_str!("../host/types.h")),
    ("vector.h", include_str!("../host/vector.h")),
];

/// Headers of CANN that declare parts of what `kernel_operator.h` declares.
const OTHER_HEADERS: [&str; 19] = [
    "adv_api/pad/broadcast.h",
    "ascendc/host_api/tiling/template_argument.h",
    "impl/dav_c220/kernel_operator_reg_others_impl.h",
    "kernel_common.h",
    "kernel_macros.h",
    "kernel_operator_intf.h",
    "kernel_operator_list_tensor_intf.h",
    "kernel_struct_mm.h",
    "kernel_tensor.h",
    "kernel_tensor_impl.h",
    "kernel_tiling/kernel_tiling.h",
    "kernel_tpipe.h",
    "kernel_type.h",
    "kernel_utils.h",
    "lib/pad/kernel_operator_pad_intf.h",
    "lib/sort/sort_intf.h",
    "lib/tiling_api.h",
    "tikcpp/kernel_operator.h",
    "toolchain/slog.h",
];

/// Names the compiler. If unset, [`COMPILERS`] are tried.
const COMPILER_VARIABLE: &str = "CXX";

/// Compilers in the order of the attempts.
pub const COMPILERS: [&str; 3] = ["c++", "g++", "clang++"];

/// CANN's compiler finds `ReduceSum<float>(…)` by its arguments even in C++17, which others do in
/// C++20. Products and sums are rounded separately, as on a card. Samples use the macro to guard
/// launches with `<<<>>>`.
pub const OPTIONS: [&str; 4] = ["-std=c++20", "-O1", "-ffp-contract=off", "-DASCENDC_CPU_DEBUG=1"];

/// Makes the compiler call a function of the model before each access to memory. Nothing is linked.
const INSTRUMENTED: [&str; 2] = ["-fsanitize=thread", "-DASCEND_HOST_INSTRUMENTED=1"];
const INSTRUMENTED_BY_GCC: [&str; 2] = ["--param", "tsan-instrument-func-entry-exit=0"];
const INSTRUMENTED_BY_CLANG: [&str; 6] = [
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
    "-mllvm",
    "-tsan-instrument-read-before-write=1",
    "-mllvm",
    "-tsan-instrument-atomics=0",
];

/// `__global__` expands to a word that survives the preprocessor.
const SCAN: &str = "-DASCEND_HOST_SCAN=1";
const MARK: &str = "__ascend_global__";

/// Reason why a library could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// No compiler of this host supports the types of the model.
    #[error(
        "none of {tried} compiles C++20 with _Float16 (GCC 12, clang 15 or newer); install one, or name it by CXX"
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

/// Whether CANN's compiler orders work of the vector and the scalar unit by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AutoSync {
    /// `--cce-auto-sync=on`, its default.
    #[default]
    On,
    /// `--cce-auto-sync=off`: the source orders all work.
    Off,
}

/// A C++ compiler that supports the types of the model.
#[derive(Debug, Clone)]
pub struct Compiler {
    program: OsString,
    is_clang: bool,
    auto_sync: AutoSync,
    checks_pointers: bool,
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
    /// Names that nothing defines, with the meanings that were assumed for the source.
    pub notes: Vec<String>,
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
        let Self { name, params, types, .. } = self;
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
            let output = Command::new(program).args(["-std=c++20", "-fsyntax-only"]).arg(&probe).output();
            output.is_ok_and(|output| output.status.success())
        };
        let tried =
            || candidates.iter().map(|name| name.display().to_string()).collect::<Vec<_>>().join(", ");
        let program = candidates.iter().find(|program| takes(program)).cloned();
        let program = program.ok_or_else(|| CompileError::NoCompiler { tried: tried() })?;
        let said = Command::new(&program).arg("--version").output();
        let is_clang = said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("clang"));
        Ok(Self { program, is_clang, auto_sync: AutoSync::default(), checks_pointers: false })
    }

    /// Sets whether kernels are checked as if CANN's compiler inserted synchronisations.
    #[must_use]
    pub fn with_auto_sync(self, auto_sync: AutoSync) -> Self {
        Self { auto_sync, ..self }
    }

    /// Returns a compiler whose kernels check and count each access through a `__gm__` pointer.
    /// They run 20 to 60 times as long, because the accesses of the model are looked at too.
    #[must_use]
    pub fn with_checked_pointers(self) -> Self {
        Self { checks_pointers: true, ..self }
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
        write_headers(folder.path())?;
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
        let path = fs::canonicalize(source).map_err(|error| file_error(source, error))?;
        let command = || {
            let mut command = self.command();
            command.args(OPTIONS).arg("-I").arg(folder).args(options);
            command
        };
        // Quoted names are not those of the model's headers.
        let file = |end: &str| folder.join("sources").join(format!("{number}{end}"));
        let included = self.run(command().args(["-MM", "-MG"]).arg(&path), source)?;
        let texts = read_all(&path, &included, folder)?;
        let generated = operator::generate(&path, &texts, &defined(options));
        write(&file("_generated.h"), &generated.declarations)?;
        let launching = launches::rewrite(&texts[0]);
        let (text, is_rewritten) = match &launching {
            Some(rewritten) => (format!("#line 1 \"{}\"\n{rewritten}", path.display()), true),
            None => (format!("#include \"{}\"\n", path.display()), false),
        };
        write(&file("_source.cpp"), &text)?;
        let command = || {
            let mut command = command();
            command.arg("-iquote").arg(path.parent().unwrap_or(folder));
            command.arg("-include").arg(folder.join("kernel_operator.h"));
            command.arg("-include").arg(file("_generated.h"));
            command
        };
        let scanned = self.run(command().args(["-E", "-P", SCAN]).arg(&path), source)?;
        let mut entries = scan(&scanned, &operator::instantiations(&texts));
        entries.iter_mut().for_each(|entry| entry.notes.clone_from(&generated.notes));
        if entries.is_empty() && !is_rewritten {
            return Err(CompileError::NoKernel { source_file: source.to_path_buf() });
        }
        let (wrapper, object) = (file(".cpp"), file(".o"));
        write(&wrapper, &wrap(&file("_source.cpp"), &entries, number == 0, is_rewritten))?;
        let mut compile = command();
        compile.args(["-fPIC", "-fvisibility=hidden"]);
        match (self.checks_pointers, self.is_clang) {
            (false, _) => &mut compile,
            (true, false) => compile.args(INSTRUMENTED).args(INSTRUMENTED_BY_GCC),
            (true, true) => compile.args(INSTRUMENTED).args(INSTRUMENTED_BY_CLANG),
        };
        compile.arg(format!("-DASCEND_HOST_AUTO_SYNC={}", u8::from(self.auto_sync == AutoSync::On)));
        self.run(compile.arg("-c").arg(&wrapper).arg("-o").arg(&object), source)?;
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

fn write_headers(folder: &Path) -> Result<(), CompileError> {
    for (name, text) in HEADERS {
        write(&folder.join(name), text)?;
    }
    fs::create_dir(folder.join("sources")).map_err(|error| file_error(folder, error))?;
    for name in OTHER_HEADERS {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|error| file_error(parent, error))?;
        write(&path, &format!("#include \"{}\"\n", folder.join("kernel_operator.h").display()))?;
    }
    Ok(())
}

/// Reads the source and the headers that it includes, without those of the model and the system.
fn read_all(source: &Path, included: &str, folder: &Path) -> Result<Vec<String>, CompileError> {
    let read = |path: &Path| fs::read(path).map_err(|error| file_error(path, error));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let mut texts = vec![text(read(source)?)];
    let files = included.split_whitespace().map(Path::new);
    for path in files.filter(|path| path.is_file() && *path != source && !path.starts_with(folder)) {
        texts.push(text(read(path)?));
    }
    Ok(texts)
}

/// Names that `-D` options define.
fn defined(options: &[OsString]) -> Vec<String> {
    let options = options.iter().map(|option| option.to_string_lossy());
    let names = options.filter_map(|option| Some(option.strip_prefix("-D")?.split('=').next()?.to_owned()));
    names.collect()
}

/// Launches in the source are functions for programs, so they are visible.
fn wrap(source: &Path, entries: &[KernelEntry], exports: bool, launches: bool) -> String {
    let header = if exports { "exports.h" } else { "library.h" };
    let (push, pop) = match launches {
        true => ("#pragma GCC visibility push(default)\n", "#pragma GCC visibility pop\n"),
        false => ("", ""),
    };
    let mut text =
        format!("#include \"{header}\"\n#include \"stub.h\"\n{push}#include \"{}\"\n{pop}", source.display());
    for (number, KernelEntry { name, params, .. }) in entries.iter().enumerate() {
        let names = params.join(",");
        text += &format!(
            "static const ascend_host::Added ascend_host_added_{number}{{\"{name}\", \"{names}\", {name}}};\n"
        );
        // A function of C has no template arguments.
        if name.contains('<') {
            continue;
        }
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
    }
    text
}

/// A template is an entry for each of `instantiations`.
fn scan(text: &str, instantiations: &[String]) -> Vec<KernelEntry> {
    let mut entries: Vec<KernelEntry> = Vec::new();
    for (at, _) in text.match_indices(MARK) {
        let before = &text[..at];
        let declaration = before.rfind([';', '}']).map_or(before, |end| &before[end + 1..]);
        let is_template = declaration.contains("template");
        let Some((head, rest)) = text[at + MARK.len()..].split_once('(') else { continue };
        let Some(end) = closing(rest) else { continue };
        if !rest[end + 1..].trim_start().starts_with('{') {
            continue;
        }
        let name = last_word(head);
        let found = parts(&rest[..end]);
        let params = found.iter().enumerate().map(|(number, param)| name_of(param, number)).collect();
        let types = found.iter().map(|param| type_of(param)).collect();
        let entry = KernelEntry { name: name.to_owned(), params, types, notes: Vec::new() };
        if is_template {
            let named = |arguments| KernelEntry { name: format!("{name}<{arguments}>"), ..entry.clone() };
            entries.extend(instantiations.iter().map(named));
        } else {
            entries.push(entry);
        }
    }
    entries
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
        KernelEntry { name: name.to_owned(), params: owned(params), types: owned(types), notes: Vec::new() }
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
            scan(text, &["float".to_owned()]),
            [
                entry("generic<float>", &["x"], &["void *"]),
                entry("add", &["x", "y", "scale", "tiling"], &["void *", "void *", "float", "void *"]),
                entry("none", &[], &[]),
                entry("unnamed", &["argument 0", "argument 1"], &["void *", "uint32_t"])
            ]
        );
    }
}
