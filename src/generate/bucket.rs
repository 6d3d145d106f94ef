//! Lengths of prefill programs: powers of two and three quarters of powers of two.
//!
//! From 32 tokens on, padding is less than a third of a program.

/// Tokens of the shortest program. Cards multiply very few rows with other algorithms, which round
/// differently. Longer programs all give the same numbers.
const LEAST: usize = 32;

/// Returns the length of the program for a prompt of `tokens`, at most `longest`.
pub(super) fn rounded_up(tokens: usize, longest: usize) -> usize {
    let power = tokens.max(LEAST).next_power_of_two();
    let between = power / 4 * 3;
    let rounded = if tokens <= between && between > LEAST { between } else { power };
    rounded.min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_two_lengths_a_doubling() {
        let lengths = |longest: usize| {
            let mut lengths: Vec<usize> = (1..=longest).map(|tokens| rounded_up(tokens, longest)).collect();
            assert!(lengths.iter().zip(1..).all(|(length, tokens)| *length >= tokens));
            lengths.dedup();
            lengths
        };
        assert_eq!(lengths(200), [32, 48, 64, 96, 128, 192, 200]);
        assert_eq!(lengths(33), [32, 33]);
        assert_eq!(lengths(7), [7]);
    }
}
