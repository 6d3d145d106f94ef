//! The binary `ascend-tp`: the library behind a command line.

mod cli;

fn main() -> std::process::ExitCode {
    cli::run()
}
