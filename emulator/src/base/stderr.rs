//! Terminal output of the emulator. [`Messages`] select the output for refused calls. Each function
//! and reason is reported once.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use crate::base::failure::{Failure, code};
use crate::config::Messages;

#[expect(clippy::print_stderr, reason = "the emulator's only output to the terminal")]
pub(crate) fn say(line: &str) {
    eprintln!("ascend emulator: {line}");
}

const MOST: usize = 1000;

#[derive(Debug)]
pub(crate) struct MessageLog {
    messages: Messages,
    /// Functions and messages without numbers. Calls in a loop differ only in addresses and counts,
    /// and the caller's return address is not portable.
    sites: Mutex<BTreeSet<String>>,
}

impl MessageLog {
    pub(crate) fn new(messages: Messages) -> Self {
        Self { messages, sites: Mutex::default() }
    }

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
            self.write("calls are refused in more than 1000 ways; further ones are not reported");
        } else {
            self.write(&format!("{name} returned {code}: {}", failure.message));
        }
    }

    fn write(&self, line: &str) {
        match self.messages {
            Messages::Quiet => {}
            Messages::StandardError => say(line),
            // A closed reader must not end the program.
            Messages::StandardOutput => {
                let _ = writeln!(io::stdout(), "ascend emulator: {line}");
            }
        }
    }
}

/// Programs poll with time limits of their own.
fn is_own_limit(code: i32) -> bool {
    matches!(code, code::WAIT_TIMEOUT | code::STREAM_SYNC_TIMEOUT | code::EVENT_SYNC_TIMEOUT)
}
