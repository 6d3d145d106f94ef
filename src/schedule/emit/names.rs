//! Names of inputs and outputs in a plan of several micro-batches.

/// Returns the name in a plan of several micro-batches.
#[must_use]
pub fn numbered(micro_batch: usize, name: &str) -> String {
    format!("{micro_batch}.{name}")
}

/// Returns the name in the micro-batch's program.
#[must_use]
pub fn unnumbered(name: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('.').filter(|(number, _)| is_number(number)).map_or(name, |(_, name)| name)
}

/// Returns the micro-batch of a numbered name.
#[must_use]
pub fn micro_batch(name: &str) -> Option<usize> {
    name.strip_suffix(unnumbered(name))?.strip_suffix('.')?.parse().ok()
}
