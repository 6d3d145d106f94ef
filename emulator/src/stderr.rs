//! The one way the emulator speaks to the terminal.
//!
//! Input: a line. Output: the line on stderr, with the emulator's name before it. Does not: decide what is worth it.

/// Writes `ascend emulator: <line>` to stderr.
#[expect(clippy::print_stderr, reason = "the one place where the emulator speaks to the terminal")]
pub(crate) fn say(line: &str) {
    eprintln!("ascend emulator: {line}");
}
