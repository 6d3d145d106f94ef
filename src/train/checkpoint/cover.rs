//! Parts of a tensor: whether some make up the whole, and which bytes of one are which of another.
//!
//! Input → output: ranges, one a dim → a problem or none; the parts of two layouts → the runs of elements that both have.
//! Invariant: pure arithmetic; a scalar has no ranges and one element.

use std::ops::Range;

use crate::base::{Dims, Shape};

/// Elements inside all ranges.
pub(super) fn volume(ranges: &[Range<usize>]) -> usize {
    ranges.iter().map(ExactSizeIterator::len).product()
}

/// Ranges as messages and files have them: `0..4,2..8`, or `all` of a scalar.
pub(super) fn text(ranges: &[Range<usize>]) -> String {
    if ranges.is_empty() {
        return "all".to_owned();
    }
    ranges.iter().map(|range| format!("{}..{}", range.start, range.end)).collect::<Vec<_>>().join(",")
}

/// Whether there is one range for each dim, inside it.
pub(super) fn is_inside(ranges: &[Range<usize>], shape: &Shape) -> bool {
    ranges.len() == shape.rank()
        && ranges.iter().zip(shape.iter()).all(|(range, size)| range.start <= range.end && range.end <= *size)
}

/// Why some parts, each inside the shape, are not every element once: what is expected and what is found.
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

/// The elements inside both, if there are any.
pub(super) fn shared(one: &[Range<usize>], other: &[Range<usize>]) -> Option<Vec<Range<usize>>> {
    let shared: Vec<Range<usize>> =
        one.iter().zip(other).map(|(one, other)| one.start.max(other.start)..one.end.min(other.end)).collect();
    shared.iter().all(|range| range.start < range.end).then_some(shared)
}

/// Elements that lie together in two parts of a tensor, each of which is dense and row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Runs {
    /// Elements of a run.
    pub(super) length: usize,
    /// Sizes of the dims outside a run.
    outer: Dims,
    /// By those dims: elements from one index to the next, in either part.
    strides: [Dims; 2],
    /// The first run's place in either part.
    first: [usize; 2],
}

impl Runs {
    /// The runs of what `from` and `to` share, if they share anything.
    pub(super) fn new(from: &[Range<usize>], to: &[Range<usize>]) -> Option<Self> {
        let shared = shared(from, to)?;
        let sizes: Vec<usize> = shared.iter().map(ExactSizeIterator::len).collect();
        // Inner dims that all three have whole belong to the run, and so does the first one outside of them.
        let is_whole = |dim: usize| sizes[dim] == from[dim].len() && sizes[dim] == to[dim].len();
        let whole = (0..sizes.len()).rev().take_while(|dim| is_whole(*dim)).count();
        let inner = sizes.len().saturating_sub(whole + 1);
        let strides = [from, to].map(|part| part.iter().map(ExactSizeIterator::len).collect::<Shape>().strides());
        let place = |at: usize, part: &[Range<usize>]| {
            let offsets = shared.iter().zip(part).map(|(shared, part)| shared.start - part.start);
            offsets.zip(&strides[at]).map(|(offset, stride)| offset * stride).sum()
        };
        let first = [place(0, from), place(1, to)];
        let length = sizes[inner..].iter().product();
        Some(Self { length, outer: sizes[..inner].iter().copied().collect(), strides, first })
    }

    /// The first element of each run, in `from` and in `to`; both ascend.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.outer.iter().product()).map(|run| {
            let (mut rest, mut place) = (run, self.first);
            for dim in (0..self.outer.len()).rev() {
                for (place, strides) in place.iter_mut().zip(&self.strides) {
                    *place += rest % self.outer[dim] * strides[dim];
                }
                rest /= self.outer[dim];
            }
            (place[0], place[1])
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop};
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    /// The elements of a part, numbered in the whole, in the part's order.
    fn elements(shape: &Shape, part: &[Range<usize>]) -> Vec<usize> {
        let strides = shape.strides();
        let inside = |element: &usize| (0..shape.rank()).all(|d| part[d].contains(&(element / strides[d] % shape[d])));
        (0..shape.elems()).filter(inside).collect()
    }

    fn parts() -> impl Strategy<Value = (Vec<usize>, Vec<Range<usize>>, Vec<Range<usize>>)> {
        let dim = (1..5usize).prop_flat_map(|size| {
            let range = (0..=size, 0..=size).prop_map(|(a, b)| a.min(b)..a.max(b));
            (proptest::prelude::Just(size), range.clone(), range)
        });
        prop::collection::vec(dim, 0..4).prop_map(|dims| {
            let mut parts = (Vec::new(), Vec::new(), Vec::new());
            for (size, one, other) in dims {
                parts.0.push(size);
                parts.1.push(one);
                parts.2.push(other);
            }
            parts
        })
    }

    proptest! {
        #[test]
        fn runs_are_what_two_parts_share((sizes, from, to) in parts()) {
            let shape = Shape::new(sizes);
            let (of_from, of_to) = (elements(&shape, &from), elements(&shape, &to));
            let expected: Vec<(usize, usize)> = of_from
                .iter()
                .enumerate()
                .filter_map(|(at, element)| Some((at, of_to.binary_search(element).ok()?)))
                .collect();
            let mut found = Vec::new();
            if let Some(runs) = Runs::new(&from, &to) {
                prop_assert!(runs.length > 0);
                for (one, other) in runs.places() {
                    found.extend((0..runs.length).map(|at| (one + at, other + at)));
                }
            }
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn rows_are_one_run() {
        let whole = Runs::new(&[0..4, 0..6], &[0..4, 0..6]).unwrap();
        assert_eq!((whole.length, whole.places().collect::<Vec<_>>()), (24, vec![(0, 0)]));
        let rows = Runs::new(&[1..3, 0..6], &[0..4, 0..6]).unwrap();
        assert_eq!((rows.length, rows.places().collect::<Vec<_>>()), (12, vec![(0, 6)]));
        let columns = Runs::new(&[0..2, 2..4], &[0..2, 0..6]).unwrap();
        assert_eq!((columns.length, columns.places().collect::<Vec<_>>()), (2, vec![(0, 2), (2, 8)]));
        assert_eq!(Runs::new(&[], &[]).unwrap().places().collect::<Vec<_>>(), [(0, 0)]);
        assert_eq!(Runs::new(&[0..2, 0..2], &[2..4, 0..2]), None);
    }

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
