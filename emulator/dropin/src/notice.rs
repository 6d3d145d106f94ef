//! Messages of the library to the user, printed on standard error.

#[expect(clippy::print_stderr, reason = "a library in a C program has no other way to reach the user")]
pub(crate) fn say(sentence: &str) {
    eprintln!("ascend emulator: {sentence}");
}
