//! `kernel`: builds Ascend C kernels for the emulator (`build`), and launches them on an emulated
//! card through its C ABI (`check`).

mod argument;
mod check;

use std::ffi::OsString;
use std::path::PathBuf;

use ascend_tp::base::Diagnostics;
use ascend_tp::emulator::compiler::{CompileError, Compiler, KernelEntry};
use clap::{Args, Subcommand};

use super::failure::{Failure, Outcome};
use super::{files, print_report};
use argument::KernelValue;

pub(super) const EXAMPLES: &str = "\
Needs a C++ compiler with _Float16 (GCC 12 or clang 15); CXX selects it.
See docs/KERNELS.md.

Examples:
  ascend-tp kernel check add_custom.cpp --launch add_custom --blocks 8 \\
      --arg in:f16:16384:random=1 --arg in:f16:16384:random=2 \\
      --arg out:f16:16384 --arg u32:16384
  ascend-tp kernel build add_custom.cpp --out libkernels.so";

#[derive(Debug, Args)]
pub(super) struct KernelOptions {
    #[command(subcommand)]
    command: KernelCommand,
}

#[derive(Debug, Subcommand)]
enum KernelCommand {
    /// Launch a kernel on an emulated card and report each broken rule of the vector cores
    Check(CheckOptions),
    /// Compile kernels into a library that the emulator's aclrtBinaryLoadFromFile loads
    Build(BuildOptions),
}

#[derive(Debug, Args)]
struct SourceOptions {
    /// Option for the compiler, such as -DNAME=1 or -Ifolder. Can be repeated
    #[arg(long = "option", value_name = "OPTION", allow_hyphen_values = true)]
    options: Vec<OsString>,
}

#[derive(Debug, Args)]
struct CheckOptions {
    /// Source file of the kernel
    #[arg(value_name = "FILE.cpp")]
    file: PathBuf,
    /// Name of the kernel function to launch
    #[arg(long, value_name = "NAME")]
    launch: String,
    /// Number of blocks of the launch
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    blocks: u32,
    /// Kernel argument: in|out|inout:TYPE:COUNT[:SOURCE] or TYPE:VALUE.
    /// Repeat the option for each parameter, in order.
    ///
    /// TYPE is f32, f16, bf16, i8, u8, i16, u16, i32, u32, i64 or u64.
    /// SOURCE of in and inout is a file of raw elements, or random=SEED.
    /// SOURCE of out is a file to write, or expect=FILE to compare with.
    /// bytes:FILE passes a structure by value.
    #[arg(long = "arg", value_name = "ARGUMENT", verbatim_doc_comment)]
    arguments: Vec<KernelValue>,
    /// Number of core schedules to try; stops at the first finding
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    orders: u64,
    /// Chip: 910b1 to 910b4, or a die of a 910C
    #[arg(long, value_name = "CHIP", default_value = "910b3")]
    card: String,
    #[command(flatten)]
    source: SourceOptions,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct BuildOptions {
    /// C++ source files of the kernels
    #[arg(value_name = "FILE.cpp", required = true)]
    files: Vec<PathBuf>,
    /// File for the library
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Folder for one `aclrtlaunch_NAME.h` per kernel. A C++ program that links the library then
    /// launches it by `ACLRT_LAUNCH_KERNEL(NAME)`
    #[arg(long, value_name = "FOLDER")]
    headers: Option<PathBuf>,
    #[command(flatten)]
    source: SourceOptions,
}

pub(super) fn run(options: &KernelOptions) -> Result<Outcome, Failure> {
    match &options.command {
        KernelCommand::Check(options) => check::run(options),
        KernelCommand::Build(options) => {
            if let Some(folder) = &options.headers {
                files::check_folder("--headers", folder).map_err(Diagnostics::from)?;
            }
            let compiler = Compiler::find().map_err(input)?;
            let entries =
                compiler.build(&options.files, &options.source.options, &options.out).map_err(input)?;
            if let Some(folder) = &options.headers {
                for entry in &entries {
                    let path = folder.join(format!("aclrtlaunch_{}.h", entry.name));
                    files::write("--headers", &path, |out| out.write_all(entry.header().as_bytes()))?;
                }
            }
            print_report(&entries.iter().map(signature).collect::<String>())?;
            Ok(Outcome::Done)
        }
    }
}

/// Maps compile errors to input errors.
fn input(error: CompileError) -> Failure {
    Failure::Input(error.into())
}

fn signature(entry: &KernelEntry) -> String {
    format!("{}({})\n", entry.name, entry.params.join(", "))
}
