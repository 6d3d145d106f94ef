//! Messages of the library to the user, printed on standard error.

#[expect(
    clippy::print_stderr,
    reason = "a C program has no other place where its library could speak to a person"
)]
pub(crate) fn say(sentence: &str) {
    eprintln!("ascend emulator: {sentence}");
}
