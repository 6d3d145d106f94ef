//! What the library tells the person who runs the program. Input: one sentence. Output: a line on standard error.
//! Does not: decide what is worth saying.

/// Says one sentence.
#[expect(clippy::print_stderr, reason = "a C program has no other place where its library could speak to a person")]
pub(crate) fn say(sentence: &str) {
    eprintln!("ascend emulator: {sentence}");
}
