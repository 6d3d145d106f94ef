//! Tests of `kernels/`, compiled for the host against the model of `kernels/host`, with random
//! sizes. Mutations of the kernels test the model: each must be reported or give wrong numbers.
//!
//! Compiling takes longer than running. All mutations of a kernel are therefore compiled into one
//! program and selected at run time. Without a compiler that supports `_Float16`, a note is printed
//! and nothing runs.
//!
//! `cargo xtask soak suite kernels::` runs more random cases per kernel.

mod build;
pub(crate) mod launched;
mod mutations;
mod said;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use ascend_tp_emulator::compiler::{Compiler, HEADERS, OPTIONS};

use crate::common::cases::{cases, seed};
use mutations::{Mutated, SHARED, mutate};

const ROUNDS: usize = 60;

/// Maximum number of random cases per mutation. The first one catches most mutations.
const ROUNDS_OF_MUTATION: &str = "40";

fn kernels_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
}

fn names(folder: &Path, ending: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let names =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name in UTF-8"));
    let mut names: Vec<String> = names.filter(|name| name.ends_with(ending)).collect();
    names.sort();
    names
}

#[expect(clippy::print_stderr, reason = "says what did not run")]
fn compiler() -> Option<Compiler> {
    Compiler::find().map_err(|why| eprintln!("skipped the kernels: {why}")).ok()
}

/// Compiles a source of `kernels/host`; sources in `folder` override `kernels/`.
fn build(compiler: &Compiler, source: &str, folder: &Path) -> PathBuf {
    let kernels = kernels_folder();
    let program = folder.join("program");
    let mut command = compiler.command();
    command
        .args(OPTIONS)
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(folder)
        .arg("-I")
        .arg(&kernels)
        .arg("-I");
    command.arg(kernels.join("host")).arg(kernels.join("host").join(source)).arg("-o").arg(&program);
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

fn run(program: &Path, options: &[&str]) -> String {
    let output = Command::new(program).args(options).output().unwrap_or_else(|error| panic!("{error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{} {options:?}: {}\n{said}", program.display(), output.status);
    said
}

struct Outcome {
    what: String,
    said: String,
}

fn check_kernel(compiler: &Compiler, check: &str, folder: &Path) -> (String, Vec<Outcome>) {
    let folder = folder.join(check);
    fs::create_dir(&folder).expect("a folder");
    let mut mutants = Vec::new();
    let shared = SHARED.iter().filter(|(_, kernel)| *kernel == check).map(|(file, _)| (*file).to_owned());
    for file in std::iter::once(format!("{check}.cpp")).chain(shared) {
        let source = fs::read_to_string(kernels_folder().join(&file)).expect("the source of a kernel");
        let Mutated { text, mutations } = mutate(&file, &source, mutants.len());
        fs::write(folder.join(&file), text).expect("the source is written");
        mutants.extend(mutations);
    }
    let program = build(compiler, &format!("check/{check}.cpp"), &folder);
    let (rounds, seed) = (cases(ROUNDS).to_string(), seed().to_string());
    let clean = run(&program, &["--rounds", &rounds, "--seed", &seed]);
    let count = mutants.len().to_string();
    let said = if mutants.is_empty() {
        String::new()
    } else {
        run(&program, &["--rounds", ROUNDS_OF_MUTATION, "--mutants", &count])
    };
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), mutants.len(), "{check}: a line for each mutation: {said}");
    let outcomes = mutants.into_iter().zip(lines).enumerate().map(|(index, (what, line))| {
        let said =
            line.strip_prefix(&format!("mutant {} ", index + 1)).unwrap_or_else(|| panic!("{check}: {line}"));
        Outcome { what, said: said.to_owned() }
    });
    (clean, outcomes.collect())
}

#[test]
fn every_header_of_the_model_is_part_of_the_compiler() {
    let known: Vec<&str> = HEADERS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names(&kernels_folder().join("host"), ".h"), known);
}

#[test]
fn the_model_names_what_breaks_its_rules() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(compiler) = compiler() else { return };
    let said = run(&build(&compiler, "rules.cpp", folder.path()), &[]);
    assert!(said.starts_with("rules: "), "{said}");
}

#[test]
fn kernels_compute_right_and_their_mutations_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(compiler) = compiler() else { return };
    let checks: Vec<String> = names(&kernels_folder().join("host/check"), ".cpp")
        .iter()
        .map(|name| name.trim_end_matches(".cpp").to_owned())
        .collect();
    assert_eq!(
        names(&kernels_folder(), ".h"),
        SHARED.map(|(file, _)| file),
        "what kernels share is mutated too"
    );
    for kernel in names(&kernels_folder(), ".cpp") {
        assert!(
            checks.iter().any(|check| kernel == format!("{check}.cpp")),
            "kernels/{kernel} has no check in kernels/host/check"
        );
    }
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(check) = checks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = check_kernel(&compiler, check, folder.path());
                    results.lock().expect("no check panics with it").push(result);
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no check panicked");
    results.sort_by(|a, b| a.0.cmp(&b.0));
    let outcomes: Vec<&Outcome> = results.iter().flat_map(|(_, outcomes)| outcomes).collect();
    let named = outcomes.iter().filter(|outcome| outcome.said.starts_with("named: ")).count();
    results.iter().for_each(|(clean, _)| print!("{clean}"));
    for outcome in outcomes.iter().filter(|outcome| {
        env::var_os("ASCEND_TP_KERNEL_ALL").is_some() || !outcome.said.starts_with("named: ")
    }) {
        println!("{}: {}", outcome.what, outcome.said);
    }
    println!("{} mutations, {named} named by the model", outcomes.len());
    let silent: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| outcome.said == "silent")
        .map(|outcome| outcome.what.as_str())
        .collect();
    assert!(silent.is_empty(), "unseen:\n{}", silent.join("\n"));
    assert!(named * 100 >= outcomes.len() * 95, "the model named {named} of {}", outcomes.len());
}
