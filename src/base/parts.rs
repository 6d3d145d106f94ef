//! Division of sizes that do not divide evenly. Shards, weights, checkpoints, layouts and tree sums
//! all use this rule.

use std::fmt;
use std::ops::Range;

/// How to distribute the remaining elements if the number of parts does not divide a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Remainder {
    /// `size / parts` elements each; the last part also gets the remainder. 10 in 4 parts: 2, 2, 2,
    /// 4.
    #[default]
    Last,
    /// Parts differ by at most one element. Parts of parts are parts of the whole, so all layouts
    /// use this mode. 10 in 4 parts: 3, 2, 3, 2.
    Balanced,
    /// `ceil(size / parts)` elements each, padded with zeros at the end. 10 in 4 parts: 3, 3, 3,
    /// and 1 with two zeros.
    ZeroPadded,
}

#[doc(hidden)]
impl Remainder {
    /// Returns the elements of part `index`, without zeros. Never overflows.
    ///
    /// # Panics
    /// Panics if `parts` is 0.
    #[must_use]
    pub fn range(self, size: usize, parts: usize, index: usize) -> Range<usize> {
        let start = |index: usize| match self {
            Self::Last if index == parts => size,
            Self::Last => size / parts * index,
            // The product needs twice the bits, although the result is at most `size`.
            Self::Balanced => (size as u128 * index as u128).div_ceil(parts as u128) as usize,
            Self::ZeroPadded => size.div_ceil(parts).saturating_mul(index).min(size),
        };
        start(index)..start(index + 1)
    }
}

impl fmt::Display for Remainder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Last => "last",
            Self::Balanced => "balanced",
            Self::ZeroPadded => "zero-padded",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_parts_are_parts_of_the_whole() {
        let balanced = |size, parts, index| Remainder::Balanced.range(size, parts, index);
        for size in 0..70 {
            for (outer, inner) in [(1, 5), (2, 2), (2, 3), (3, 4), (4, 4), (7, 2)] {
                for at in 0..outer {
                    let fine = |index: usize| balanced(size, outer * inner, at * inner + index);
                    assert_eq!(fine(0).start..fine(inner - 1).end, balanced(size, outer, at), "{size}");
                    assert!((0..inner).all(|index| fine(index).len().abs_diff(size / (outer * inner)) <= 1));
                }
            }
        }
    }
}
