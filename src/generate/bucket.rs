//! The lengths that prompts are rounded up to.
//!
//! Input → output: tokens of a prompt and of the longest → those of the program that reads it.
//! Invariants: powers of two and what lies half-way between them, so that at most a third of a
//! program is padding; none below the least, none beyond the longest.

/// The shortest program. Cards choose other ways to multiply very few rows, which round
/// differently; programs from this length on give the same numbers, whichever reads a prompt.
const LEAST: usize = 32;

/// Tokens of the program that reads a prompt of `tokens`, of which the longest has `longest`.
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
