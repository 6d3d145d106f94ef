//! `completions` and `man`: shell completions and manual pages from the definition of the command
//! line.

use std::io::Write as _;

use anyhow::anyhow;
use ascend_tp::base::Diagnostic;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::arguments::Arguments;
use super::failure::{Failure, Outcome};

pub(super) fn completions(shell: Shell) -> Result<Outcome, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "ascend-tp", &mut text);
    write(&text)
}

pub(super) fn manual(command: Option<&str>) -> Result<Outcome, Failure> {
    let mut whole = Arguments::command();
    whole.build();
    let page = match command {
        None => whole,
        Some(name) => {
            let names =
                || whole.get_subcommands().map(clap::Command::get_name).collect::<Vec<_>>().join(", ");
            let found = whole.find_subcommand(name).cloned();
            found
                .ok_or_else(|| {
                    Diagnostic::new("man", "there is no such command").expected(names()).found(name)
                })
                .map_err(|problem| Failure::Input(anyhow!(problem.to_string())))?
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    write(&text)
}

fn write(text: &[u8]) -> Result<Outcome, Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text)?;
    stdout.flush()?;
    Ok(Outcome::Done)
}
