//! The arithmetic of sizes that do not divide.

use std::ops::Range;

/// Part `index` of `parts` of a size: parts differ by one element at most, and begin where those of any multiple of `parts` do, so that
/// parts of parts are parts of the whole. 10 in 4 parts: 3, 2, 3, 2.
///
/// # Panics
/// `parts` is 0.
#[must_use]
pub const fn balanced(size: usize, parts: usize, index: usize) -> Range<usize> {
    // A place is at most `size`; its product with the parts needs twice the bits.
    const fn place(size: usize, parts: usize, index: usize) -> usize {
        (size as u128 * index as u128).div_ceil(parts as u128) as usize
    }
    place(size, parts, index)..place(size, parts, index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_parts_are_parts_of_the_whole() {
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
