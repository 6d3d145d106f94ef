//! `env`: replaces this process with a program that loads the emulator's drop-in libraries.
//!
//! Reports mistakes before the program starts: missing libraries, another toolkit on the library
//! path, unknown settings of the emulator, and a `torch_npu` for another `torch`.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::emulator::Config;
use clap::Args;

use super::doctor::{TOOL_LIMIT, run_limited};
use super::failure::{Failure, Outcome};
use super::note;

pub(super) const EXAMPLES: &str = "\
Ends with the exit code of the program.

Examples:
  ascend-tp env --libraries npu -- python train.py
      `cargo xtask emulator --out npu` writes the folder npu
  ASCEND_EMULATOR=strict ascend-tp env -- ./a.out
      after `source npu/set_env.sh`";

/// Environment variable with the default of `--libraries`. `set_env.sh` sets it.
const FOLDER: &str = "ASCEND_TP_LIBRARIES";
const PATH: &str = "LD_LIBRARY_PATH";
/// Search path of Python packages. The subfolder `python` of the libraries has the package `acl`.
const PYTHON_PATH: &str = "PYTHONPATH";

/// Python program that prints the versions of the two packages, which must match.
const VERSIONS: &str = "\
import importlib.metadata as m
for name in ('torch', 'torch_npu'):
    try: print(name, m.version(name))
    except m.PackageNotFoundError: pass";

#[derive(Debug, Args)]
pub(super) struct EnvOptions {
    /// Folder of the drop-in libraries [default: the value of `ASCEND_TP_LIBRARIES`]
    #[arg(long, value_name = "DIR")]
    libraries: Option<PathBuf>,
    /// Program to run, with its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the command. Returns only if there are problems or the program cannot be started.
pub(super) fn run(options: &EnvOptions) -> Result<Outcome, Failure> {
    let folder =
        options.libraries.clone().or_else(|| env::var_os(FOLDER).map(PathBuf::from)).ok_or_else(|| {
            let problem = Diagnostic::new("--libraries", "not given");
            Diagnostics::from(problem.help("pass the folder that `cargo xtask emulator --out DIR` wrote"))
        })?;
    let folder = folder.canonicalize().unwrap_or(folder);
    let old = env::var_os(PATH).unwrap_or_default();
    let mut problems = Diagnostics::new();
    library_problems(&folder, &old).into_iter().for_each(|problem| problems.push(problem));
    if let Err(error) = Config::from_env() {
        problems.push(Diagnostic::new("environment", error.to_string()));
    }
    let path = before(&folder, &old);
    let modules = before(&folder.join("python"), &env::var_os(PYTHON_PATH).unwrap_or_default());
    let name = options.program[0].to_string_lossy();
    let command = |arguments: &[OsString]| {
        let mut command = Command::new(&options.program[0]);
        command.args(arguments).env(PATH, &path).env(PYTHON_PATH, &modules);
        command
    };
    if problems.is_empty() && is_python(&options.program[0]) {
        let mut asked = command(&["-c".into(), VERSIONS.into()]);
        asked.stdin(std::process::Stdio::null());
        let version_problem = match run_limited(asked, TOOL_LIMIT) {
            Ok(Some(ended)) => version_problem(&ended.stdout),
            Ok(None) => {
                let limit = TOOL_LIMIT.as_secs();
                note(&format!("versions are not checked: {name} did not print them within {limit} s"));
                None
            }
            Err(error) => {
                Some(Diagnostic::new(&*name, error.to_string()).expected("a program on the search path"))
            }
        };
        version_problem.into_iter().for_each(|problem| problems.push(problem));
    }
    problems.into_result(())?;
    let error = command(&options.program[1..]).exec();
    Err(Diagnostics::from(
        Diagnostic::new(&*name, error.to_string()).expected("a program on the search path"),
    )
    .into())
}

fn before(folder: &Path, old: &OsString) -> OsString {
    let mut path = OsString::from(folder);
    if !old.is_empty() {
        path.push(":");
        path.push(old);
    }
    path
}

fn library_problems(folder: &Path, old: &OsString) -> Vec<Diagnostic> {
    const MARKS: [&str; 2] = ["libascendcl.so", "libascend_tp_emulator_dropin.so"];
    let mut problems = Vec::new();
    if let Some(missing) = MARKS.iter().find(|name| !folder.join(name).is_file()) {
        let problem =
            Diagnostic::new(format!("{}", folder.display()), "is not a folder of drop-in libraries");
        let help = "`cargo xtask emulator --out DIR` writes one";
        problems.push(problem.expected(format!("a file {missing}")).help(help));
    }
    let others =
        env::split_paths(old).filter(|other| other.canonicalize().is_ok_and(|other| other != folder));
    for other in others.filter(|other| other.join(MARKS[0]).is_file()) {
        let problem =
            Diagnostic::new(PATH, "contains another set of CANN libraries, but a process can load only one");
        let help = "use a shell that has not sourced the set_env.sh of a toolkit";
        problems.push(problem.found(other.display()).help(help));
    }
    problems
}

fn is_python(program: &OsString) -> bool {
    Path::new(program).file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
}

/// Returns a problem if `torch_npu` does not match the installed `torch`. Both must have the same
/// release, as `torch_npu` requires.
fn version_problem(told: &str) -> Option<Diagnostic> {
    let version = |package: &str| {
        let pairs = told.lines().filter_map(|line| line.split_once(' '));
        pairs.filter(|(name, _)| *name == package).map(|(_, version)| version.trim().to_owned()).next()
    };
    // A local build (+cpu) or a post-release (.post1) has the same interface.
    let release = |version: &str| version.split(['+']).next()?.split(".post").next().map(str::to_owned);
    let (torch, npu) = (version("torch")?, version("torch_npu")?);
    if release(&torch) == release(&npu) {
        return None;
    }
    let problem = Diagnostic::new("torch", format!("does not match torch_npu {npu}"));
    Some(
        problem
            .expected(release(&npu).unwrap_or_default())
            .found(torch)
            .help("docs/TORCH.md names the wheels"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torch_and_torch_npu_are_of_one_release() {
        for fits in [
            "",
            "torch 2.9.0\n",
            "torch 2.9.0+cpu\ntorch_npu 2.9.0\n",
            "torch 2.5.1\ntorch_npu 2.5.1.post1\n",
        ] {
            assert_eq!(version_problem(fits), None, "{fits}");
        }
        let problem = version_problem("torch 2.8.0+cpu\ntorch_npu 2.9.0\n").unwrap().to_string();
        assert!(problem.contains("expected 2.9.0, found 2.8.0+cpu"), "{problem}");
    }

    #[test]
    fn interpreters_are_known_by_their_names() {
        assert!(is_python(&"venv/bin/python3.12".into()) && is_python(&"python".into()));
        assert!(!is_python(&"./train".into()));
    }
}
