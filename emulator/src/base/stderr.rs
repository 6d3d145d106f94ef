//! The one way the emulator speaks to the terminal.
//!
//! Input: a line. Output: the line on stderr, with the emulator's name before it; of refused calls on stdout or nowhere, as
//! the machine's [`Messages`] say. Invariant: a call of one kind that is refused for one reason is told of once. Does not:
//! decide what is refused.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use crate::base::failure::{Failure, code};
use crate::config::Messages;

/// Writes `ascend emulator: <line>` to stderr.
#[expect(clippy::print_stderr, reason = "the one place where the emulator speaks to the terminal")]
pub(crate) fn say(line: &str) {
    eprintln!("ascend emulator: {line}");
}

/// Kinds of refused calls that are told of; a program that is refused in more ways has been told enough.
const MOST: usize = 1000;

/// What a machine has said of refused calls.
#[derive(Debug)]
pub(crate) struct MessageLog {
    messages: Messages,
    /// Function and message without its numbers: the return address of a C caller is not to be had portably, and the
    /// calls of a loop differ in addresses and counts only.
    sites: Mutex<BTreeSet<String>>,
}

impl MessageLog {
    /// Nothing said yet.
    pub(crate) fn new(messages: Messages) -> Self {
        Self { messages, sites: Mutex::default() }
    }

    /// Says that `name` returns `code`, once a call site.
    pub(crate) fn tell(&self, name: &str, code: i32, failure: &Failure) {
        if self.messages == Messages::Quiet || failure.is_answer() || is_own_limit(failure.code) {
            return;
        }
        let site: String =
            format!("{name} {}", failure.message).split(|letter: char| letter.is_ascii_digit()).collect();
        let told = {
            let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
            if sites.len() > MOST || !sites.insert(site) {
                return;
            }
            sites.len()
        };
        if told > MOST {
            self.write("calls are refused in more than 1000 ways; of further ones nothing is said");
        } else {
            self.write(&format!("{name} returned {code}: {}", failure.message));
        }
    }

    fn write(&self, line: &str) {
        match self.messages {
            Messages::Quiet => {}
            Messages::StandardError => say(line),
            // A reader that has gone away is no reason to end the program.
            Messages::StandardOutput => {
                let _ = writeln!(io::stdout(), "ascend emulator: {line}");
            }
        }
    }
}

/// Whether a code says that the limit the caller itself gave is over: programs poll so.
fn is_own_limit(code: i32) -> bool {
    matches!(code, code::WAIT_TIMEOUT | code::STREAM_SYNC_TIMEOUT | code::EVENT_SYNC_TIMEOUT)
}
