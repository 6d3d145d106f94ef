//! Sizes of explorations: a fixed sample in the suite, more cases in `cargo xtask soak`.

/// Multiple of the suite's cases, a whole number.
const CASES: &str = "ASCEND_TP_CASES";

const SEED: &str = "ASCEND_TP_SEED";

/// Returns the number of cases of an exploration that has `few` cases in the suite.
pub(crate) fn cases(few: usize) -> usize {
    few * number(CASES) as usize
}

/// Returns the seed of random cases, which is 1 in the suite.
pub(crate) fn seed() -> u64 {
    number(SEED)
}

/// Returns the first cases of a table: `few` in the suite.
pub(crate) fn first_cases<T>(table: &[T], few: usize) -> &[T] {
    &table[..cases(few).min(table.len())]
}

/// Returns the step through a long list: `nth` in the suite, less in a soak.
pub(crate) fn stride(nth: usize) -> usize {
    nth.div_ceil(cases(1))
}

/// Returns whether the case of this number belongs to the sample: every `nth` case in the suite,
/// all cases in a long soak.
pub(crate) fn is_sampled(number: usize, nth: usize) -> bool {
    number.is_multiple_of(stride(nth))
}

fn number(variable: &str) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}: expected a number, found `{text}`")),
        Err(_) => 1,
    }
}
