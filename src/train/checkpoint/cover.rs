//! Checks whether parts of a tensor form the whole tensor. A part has one range per dim, and a
//! scalar has no ranges.

use std::ops::Range;

use crate::base::Shape;
use crate::placement::shard::runs::shared;

pub(super) fn volume(ranges: &[Range<usize>]) -> usize {
    ranges.iter().map(ExactSizeIterator::len).product()
}

/// Formats ranges as `0..4,2..8`, or `all` for a scalar.
pub(super) fn text(ranges: &[Range<usize>]) -> String {
    if ranges.is_empty() {
        return "all".to_owned();
    }
    ranges.iter().map(|range| format!("{}..{}", range.start, range.end)).collect::<Vec<_>>().join(",")
}

pub(super) fn is_inside(ranges: &[Range<usize>], shape: &Shape) -> bool {
    ranges.len() == shape.rank()
        && ranges.iter().zip(shape.iter()).all(|(range, size)| range.start <= range.end && range.end <= *size)
}

/// Returns the expected and the found state if the parts do not have each element once.
pub(super) fn problem(shape: &Shape, parts: &[&[Range<usize>]]) -> Option<(String, String)> {
    for (at, part) in parts.iter().enumerate() {
        if let Some(other) = parts[..at].iter().find(|other| shared(part, other).is_some()) {
            let found = format!("{} and {}", text(other), text(part));
            return Some(("parts that share no element".to_owned(), found));
        }
    }
    let covered: usize = parts.iter().map(|part| volume(part)).sum();
    (covered != shape.elems())
        .then(|| (format!("parts that have all {} elements", shape.elems()), format!("{covered} elements")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_whole_says_why() {
        let shape = Shape::from([4, 6]);
        let said = |parts: &[&[Range<usize>]]| problem(&shape, parts);
        assert_eq!(said(&[&[0..4, 0..2], &[0..4, 2..6]]), None);
        let hole = said(&[&[0..4, 0..2], &[0..4, 3..6]]).unwrap();
        assert_eq!(hole, ("parts that have all 24 elements".to_owned(), "20 elements".to_owned()));
        let twice = said(&[&[0..4, 0..3], &[0..4, 2..6]]).unwrap();
        assert_eq!(twice, ("parts that share no element".to_owned(), "0..4,0..3 and 0..4,2..6".to_owned()));
        assert_eq!(problem(&Shape::from([0, 3]), &[]), None, "nothing is whole");
        assert_eq!(problem(&Shape::default(), &[&[]]), None, "a scalar is one element");
        assert!(!is_inside(&[0..5, 0..6], &shape) && !is_inside(&[Range { start: 2, end: 1 }, 0..6], &shape));
    }
}
