//! Chores of the workspace. Builds and tests do not need them; they use committed files.

mod aarch64;
mod bindings;
mod built;
mod emulator;
mod house;
mod kernels;
mod kills;
mod meshes;
mod operators;
mod pages;
mod project;
mod storm;
mod tidy;

use std::env;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <chore>

chores:
  bindings [TOOLKIT]   make the committed bindings and the list of functions of ascend-tp-sys from sys/include with bindgen
                       (needs libclang); types and signatures from the headers of the CANN toolkit TOOLKIT if one is named
  bindings --check     make them from sys/include and fail if the committed ones differ; without libclang, say so and pass
  emulator --out DIR [--tar FILE]
                       write the emulator's libascendcl.so, libhccl.so, libnnopbase.so, libopapi.so and the further names
                       of CANN's libraries to DIR, for programs in any language (LD_LIBRARY_PATH=DIR, or source
                       DIR/set_env.sh), and pack the folder as FILE, a .tar.gz
  house                count the code: lines by package, names of several types, long functions, public
                       items nobody uses, types spread over files, circles of imports, packages of the library
  house --since COMMIT the figures of the house at a commit and now, side by side, as a table in Markdown
  tidy                 list where the project breaks its rules: layers, purity, unsafe code, headers, lengths, short doc comments,
                       words, files and public items that nothing names; a test of xtask does the same
  kernels --host --out DIR
                       write DIR/libascend_tp_kernels_host.so, the kernels of kernels/ as the emulator loads them; needs a C++
                       compiler (CXX, else c++, g++ or clang++)
  pages --out DIR [--docs]
                       make every page and drawing, open each in headless Chromium, require data and no error on the console, and
                       write screenshots to DIR; with --docs also docs/rehearsal.png; without Chromium, say so and pass
  operators            list CANN's aclnn operators, each with a tab and `modelled` or `refused`, on standard output
  storm [OPTIONS]      run random programs over the emulator and check every byte, code and wait: --minutes N, --seed S,
                       --programs N, --shrink SECONDS, or a --program that failed before; exits with 1 if anything was found
  kills [--seed S]     run `generate`, `verify` and `bench` as one process and several, hit one of them with SIGKILL, SIGTERM,
                       SIGINT or SIGSTOP, and check that all end within two seconds, that the rank is named and that nothing
                       is left behind; exits with 1 if anything was found
  restarts [OPTIONS]   run `train --processes 8 --max-restarts N`, kill one of its ranks at N moments, then have a run go on on
                       fewer and more cards, and check that the others end within two seconds, that no saved step is computed
                       again and that weights are those of an undisturbed run: --kills N, --seed S, --program FILE,
                       --launcher own (train --processes) or torchrun
  meshes [OPTIONS]     run steps of training on random meshes, recipes and orders of passes in strict mode, and check that there is no
                       report and that the bits are those of a free run, with sums in one order those of one card: --runs N (500), --seed S
  aarch64              lint everything for aarch64 Linux, and run the unit tests, the suite of the C ABI, `verify` and the
                       README's main job under qemu: needs root, the Debian package mmdebstrap and a network the first time";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["bindings", options @ ..] = words.as_slice() {
        return bindings::run(options).unwrap_or_else(|error| failed(&error));
    }
    if let ["storm", options @ ..] = words.as_slice() {
        return storm::run(options).unwrap_or_else(|error| failed(&error));
    }
    if let ["kills", options @ ..] = words.as_slice() {
        return kills::run(options).unwrap_or_else(|error| failed(&error));
    }
    if let ["restarts", options @ ..] = words.as_slice() {
        return kills::restarts::run(options).unwrap_or_else(|error| failed(&error));
    }
    if let ["meshes", options @ ..] = words.as_slice() {
        return meshes::run(options).unwrap_or_else(|error| failed(&error));
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

/// Writes to standard output, for other programs.
#[expect(clippy::print_stdout, reason = "a chore says what it was asked for")]
#[expect(clippy::needless_pass_by_value, reason = "ends a chain of results")]
fn print(text: String) -> ExitCode {
    print!("{text}");
    ExitCode::SUCCESS
}

fn failed(error: &anyhow::Error) -> ExitCode {
    say(&format!("error: {error:#}"));
    ExitCode::from(2)
}

#[expect(clippy::print_stderr, reason = "a chore reports to the person who runs it")]
fn say(text: &str) {
    eprintln!("{text}");
}
