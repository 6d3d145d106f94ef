//! Names of what a plan of several micro-batches has of each.

/// The name of an input or output of a micro-batch in a plan of several.
#[must_use]
pub fn numbered(micro_batch: usize, name: &str) -> String {
    format!("{micro_batch}.{name}")
}

/// The name that an input or output has in its micro-batch's own program.
#[must_use]
pub fn unnumbered(name: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('.').filter(|(number, _)| is_number(number)).map_or(name, |(_, name)| name)
}

/// The micro-batch of such a name.
#[must_use]
pub fn micro_batch(name: &str) -> Option<usize> {
    name.strip_suffix(unnumbered(name))?.strip_suffix('.')?.parse().ok()
}
