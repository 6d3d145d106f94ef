//! The ends of a command, and the exit codes of the process.

use std::io;
use std::process::ExitCode;

use ascend_tp::base::Diagnostics;
use ascend_tp::train::{self, checkpoint, data};
use ascend_tp::{exec, generate, weights};

use super::{note, write_message};

pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    verify: the results are outside the bound; kernel check, doctor: problems
       were found
  2    the arguments or the files are wrong; nothing was run
  3    a card, the runtime, another process or the output failed
  130  interrupted";

pub(super) const FAILED: u8 = 3;

/// Exit code of an interrupted command, as shells use it for SIGINT.
pub(super) const INTERRUPTED: u8 = 130;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 1.
    OutsideBound,
}

impl Outcome {
    pub(super) fn exit_code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            Self::OutsideBound => ExitCode::from(1),
        }
    }
}

#[derive(Debug)]
pub(super) enum Failure {
    /// Exit code 2: the input is wrong.
    Input(anyhow::Error),
    /// Exit code 3: the input is correct, but running it failed.
    Run(anyhow::Error),
    /// Exit code 2: the input is wrong, and another process reports the problem.
    Elsewhere,
    /// Exit code 130: the user or a launcher interrupted the command.
    Interrupted,
}

impl Failure {
    pub(super) fn report(&self) -> ExitCode {
        let (error, code) = match self {
            Self::Input(error) => (error, 2),
            Self::Run(error) if reader_is_gone(error) => return ExitCode::SUCCESS,
            Self::Run(error) => (error, FAILED),
            Self::Elsewhere => return ExitCode::from(2),
            Self::Interrupted => {
                note("interrupted");
                return ExitCode::from(INTERRUPTED);
            }
        };
        write_message(&message(error));
        ExitCode::from(code)
    }
}

impl Failure {
    /// Returns the message for the other processes, if they need one.
    pub(super) fn for_peers(&self) -> Option<String> {
        match self {
            Self::Run(error) if reader_is_gone(error) => Some("stopped: its output was closed".to_owned()),
            Self::Input(error) | Self::Run(error) => Some(format!("{error:#}")),
            Self::Elsewhere | Self::Interrupted => None,
        }
    }
}

/// Returns whether the reader of the output has closed the pipe, as `head` does.
fn reader_is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn message(error: &anyhow::Error) -> String {
    match error.downcast_ref::<Diagnostics>() {
        Some(problems) => {
            problems.lines().iter().map(|problem| format!("error: {problem}")).collect::<Vec<_>>().join("\n")
        }
        None => format!("error: {error:#}"),
    }
}

impl From<Diagnostics> for Failure {
    fn from(problems: Diagnostics) -> Self {
        Self::Input(problems.into())
    }
}

impl From<generate::Error> for Failure {
    /// Converts refusals and unreadable files into input failures.
    fn from(error: generate::Error) -> Self {
        match error {
            generate::Error::Refused(problems) | generate::Error::Run(exec::Error::Refused(problems)) => {
                problems.into()
            }
            error @ generate::Error::Weights(_) => Self::Input(error.into()),
            generate::Error::Run(exec::Error::Fill(source)) if source.is::<weights::Error>() => {
                Self::Input(exec::Error::Fill(source).into())
            }
            generate::Error::Run(exec::Error::Interrupted) => Self::Interrupted,
            error => Self::Run(error.into()),
        }
    }
}

impl From<data::Error> for Failure {
    fn from(error: data::Error) -> Self {
        match error {
            data::Error::Refused(problems) => problems.into(),
            error => Self::Run(error.into()),
        }
    }
}

impl From<checkpoint::Error> for Failure {
    fn from(error: checkpoint::Error) -> Self {
        match error {
            checkpoint::Error::Refused(problems) => problems.into(),
            error => Self::Run(error.into()),
        }
    }
}

impl From<weights::FolderError> for Failure {
    fn from(error: weights::FolderError) -> Self {
        match error {
            weights::FolderError::Refused(problems) => problems.into(),
            error => Self::Run(error.into()),
        }
    }
}

impl From<train::Error> for Failure {
    fn from(error: train::Error) -> Self {
        match error {
            train::Error::Refused(problems) | train::Error::Run(exec::Error::Refused(problems)) => {
                problems.into()
            }
            train::Error::Run(exec::Error::Interrupted) => Self::Interrupted,
            train::Error::Run(error) => generate::Error::Run(error).into(),
            error => Self::Run(error.into()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Run(error.into())
    }
}

#[cfg(test)]
mod tests {
    use ascend_tp::base::Diagnostic;

    use super::*;

    #[test]
    fn each_problem_has_a_line() {
        let mut problems = Diagnostics::new();
        problems.push(Diagnostic::new("config.json: vocab_size", "missing"));
        problems.push(Diagnostic::new("--cards", "more than there are").expected("1 to 8").found(9));
        let Failure::Input(error) = Failure::from(problems) else {
            panic!("diagnostics are about the input")
        };
        let expected = "error: config.json: vocab_size: missing\n\
                        error: --cards: more than there are: expected 1 to 8, found 9";
        assert_eq!(message(&error), expected);
    }

    #[test]
    fn a_reader_that_leaves_is_no_failure() {
        let Failure::Run(gone) = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)) else {
            panic!("not input")
        };
        assert!(reader_is_gone(&gone));
        let Failure::Run(full) = Failure::from(io::Error::from(io::ErrorKind::StorageFull)) else {
            panic!("not input")
        };
        assert!(!reader_is_gone(&full));
    }
}
