//! Chores of the workspace. Builds and tests do not need them; they use committed files.

mod aarch64;
mod bindings;
mod built;
mod emulator;
mod house;
mod kernels;
mod kills;
mod operators;
mod pages;
mod project;
mod serving;
mod slowest;
mod soak;
mod tidy;
mod validate;

use std::env;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <chore>

Checks:
  tidy                 check the rules of the project: layers, purity, unsafe code, headers, lengths, prose, banned
                       words, unused files and public items; a test of xtask runs the same check
  house                count the code: lines by package, ambiguous type names, long functions, unused public items,
                       types spread over files, import cycles, packages of the library
  house --since COMMIT compare these figures between a commit and now, as a Markdown table

Generated files:
  bindings [TOOLKIT]   generate the bindings and the function list of ascend-tp-sys with bindgen (needs libclang)
                       from sys/include, or with types and signatures from the headers of a CANN toolkit
  bindings --check     generate the same from sys/include and fail if the committed files differ; skipped without
                       libclang
  emulator --out DIR [--tar FILE]
                       write the emulator's libascendcl.so and CANN's other libraries to DIR, for programs in any
                       language (LD_LIBRARY_PATH=DIR, or source DIR/set_env.sh); --tar packs DIR as a .tar.gz
  validate [OPTIONS]   compare predictions with published measurements, each predicted without its page
                       --points FILE… predict the rows of these files instead, --json, --fit CHIP print a profile fitted to
                       the rows of a file, --write write the coefficients, error bars and docs/VALIDATION.md again
  kernels --host --out DIR
                       build kernels/ as DIR/libascend_tp_kernels_host.so for the emulator; needs a C++ compiler
                       (CXX, otherwise c++, g++ or clang++)
  operators            list CANN's aclnn operators, each with a tab and `modelled` or `refused`
  pages --out DIR [--docs]
                       generate all pages and drawings, open each in headless Chromium, check for data and console
                       errors, and write screenshots to DIR; --docs also writes docs/rehearsal.png; skipped without
                       Chromium

Long tests:
  soak [OPTIONS]       run the five explorations below and print one summary with the command that repeats each; exit code 1
                       if anything was found
                       --cases N (20), --minutes N of the storm and of serve (30), --seed S (random)
  soak suite [OPTIONS] [PART]
                       run the library's suite, or tests whose names contain PART, with more random programs, meshes,
                       models and layouts
                       --cases N times as many as the suite (20), --seed S (1)
  soak storm [OPTIONS] run random programs over the emulator and check all bytes, codes and waits
                       --minutes N, --seed S, --programs N, --shrink SECONDS, --program SEED of an earlier failure
  soak kills [OPTIONS]
                       run `generate`, `verify`, `bench` and `serve` with 16 requests as one or several processes, send
                       SIGKILL, SIGTERM, SIGINT or SIGSTOP to one process, and check that all processes and requests end
                       within two seconds, name the rank and leave nothing behind
                       --seed S, --command generate|verify|bench|serve, --program FILE
  soak restarts [OPTIONS]
                       kill ranks of `train --processes 8 --max-restarts N`, then continue a run on fewer and more
                       cards; check that ranks end within two seconds, that no saved step is repeated, and that the
                       weights match an undisturbed run
                       --kills N, --seed S, --program FILE, --launcher own (train --processes) or torchrun
  soak serve [OPTIONS] run `serve` under mixed load: chats, streams, disconnects, schemas, prefix hits, malformed requests;
                       check that each answer matches the same request alone, and that the resident memory grows by
                       at most 5 % after the first tenth of the time
                       --minutes N (30), --seed S, --program FILE
  slowest [PART]       run every test of the workspace, or those whose names contain PART, in its own process, and print
                       the fifty slowest with their processor time
  aarch64              lint for aarch64 Linux, and run unit tests, C ABI tests, `verify` and the README's main job
                       under qemu; needs root, the Debian package mmdebstrap, and a network for the first run";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["bindings", options @ ..] = words.as_slice() {
        return bindings::run(options).unwrap_or_else(|error| failed(&error));
    }
    if let ["soak", options @ ..] = words.as_slice() {
        return soak::run(options).unwrap_or_else(|error| failed(&error));
    }
    if let ["validate", options @ ..] = words.as_slice() {
        return validate::run(options).unwrap_or_else(|error| failed(&error));
    }
    if words == ["operators"] {
        return operators::list().map_or_else(|error| failed(&error), print);
    }
    let result = match words.as_slice() {
        ["emulator", "--out", folder] => emulator::write(folder, None),
        ["emulator", "--out", folder, "--tar", archive] => emulator::write(folder, Some(archive)),
        ["house"] => house::count(),
        ["house", "--since", commit] => house::figures::since(commit),
        ["tidy"] => tidy::check(),
        ["kernels", "--host", "--out", folder] => kernels::write(folder),
        ["pages", "--out", folder] => pages::check(folder, pages::Docs::Keep),
        ["pages", "--out", folder, "--docs"] => pages::check(folder, pages::Docs::Write),
        ["slowest"] => slowest::list(""),
        ["slowest", part] => slowest::list(part),
        ["aarch64"] => aarch64::check(),
        _ => Err(anyhow::anyhow!("unknown chore `{}`\n{USAGE}", words.join(" "))),
    };
    match result {
        Ok(report) => {
            say(&report);
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    }
}

#[expect(clippy::print_stdout, reason = "the output is the result of the chore")]
#[expect(clippy::needless_pass_by_value, reason = "the last step of a chain of results")]
fn print(text: String) -> ExitCode {
    print!("{text}");
    ExitCode::SUCCESS
}

fn failed(error: &anyhow::Error) -> ExitCode {
    say(&format!("error: {error:#}"));
    ExitCode::from(2)
}

#[expect(clippy::print_stderr, reason = "chores report to standard error")]
fn say(text: &str) {
    eprintln!("{text}");
}
