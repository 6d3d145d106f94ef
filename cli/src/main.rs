//! The binary `ascend-tp`: parses the command line, calls the library and prints the results.
//!
//! - Output: results on stdout, messages on stderr, and an exit code (see [`Failure`]).
//! - Problems of the input are found before a card works, and are reported together where possible.
//! - Each command with a report can print it as JSON.
//! - Only [`measure`] computes something that the library does not.

mod about;
mod arguments;
mod bench;
mod bind;
mod calibrate;
mod cards;
mod checkpoint;
mod children;
mod data;
mod doctor;
mod env;
mod explain;
mod failure;
mod files;
mod generate;
mod gradients;
mod interrupt;
mod kernel;
mod measure;
mod model;
mod models;
mod numbers;
mod plan;
mod processes;
mod progress;
mod prompts;
mod rehearse;
mod serve;
mod site;
mod template;
mod terminal;
mod train;
mod usage;
mod values;
mod verify;

use std::io::Write;
use std::process::ExitCode;
use std::sync::OnceLock;

use arguments::Command;
use failure::Failure;
use terminal::LineWidth;

fn main() -> ExitCode {
    let arguments = match usage::parse() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    terminal::set(if arguments.wide { LineWidth::Wide } else { LineWidth::Terminal });
    let verbosity = if arguments.quiet {
        Verbosity::Quiet
    } else if arguments.verbose {
        Verbosity::Verbose
    } else {
        Verbosity::Normal
    };
    // The verbosity is set only here, so this cannot fail.
    let _first = VERBOSITY.set(verbosity);
    let done = match arguments.command {
        Command::Generate(options) => generate::run(&options),
        Command::Serve(options) => serve::run(&options),
        Command::Verify(options) => verify::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Rehearse(options) => rehearse::run(&options),
        Command::Plan(options) => plan::run(&options),
        Command::Calibrate(options) => calibrate::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Data(options) => data::run(&options),
        Command::Train(options) => train::run(&options),
        Command::Checkpoint(options) => checkpoint::run(&options.command),
        Command::Kernel(options) => kernel::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Env(options) => env::run(&options),
        Command::Models(options) => models::run(&options),
        Command::Completions { shell } => about::completions(shell),
        Command::Man { command } => about::manual(command.as_deref()),
    };
    match done {
        // After a signal, an error is usually a consequence of the interruption and is not
        // reported. A command that ends in order reports it, because saving may have failed.
        Err(_) if interrupt::is_requested() && !interrupt::is_in_order() => Failure::Interrupted.report(),
        Ok(outcome) => outcome.exit_code(),
        Err(failure) => failure.report(),
    }
}

fn print_json(report: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(report).map_err(|error| Failure::Run(error.into()))?;
    print(&format!("{text}\n"))
}

/// Prints a report wrapped at the width of the terminal.
fn print_report(text: &str) -> Result<(), Failure> {
    print(&terminal::fit(text))
}

/// Writes to stdout and flushes, so that text appears during generation.
fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verbosity {
    Quiet,
    Normal,
    Verbose,
}

static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();

fn is_at_least(verbosity: Verbosity) -> bool {
    *VERBOSITY.get().unwrap_or(&Verbosity::Normal) >= verbosity
}

/// Writes a message to stderr. A closed stderr is ignored.
fn write_message(text: &str) {
    let _closed = writeln!(std::io::stderr(), "{}", terminal::fit_message(text));
}

/// Writes a line to stderr, unless `--quiet` is given.
fn note(text: &str) {
    if is_at_least(Verbosity::Normal) {
        write_message(text);
    }
}

/// Writes a line to stderr if `--verbose` is given.
fn detail(text: &str) {
    if is_at_least(Verbosity::Verbose) {
        write_message(text);
    }
}
