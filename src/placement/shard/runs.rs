//! Contiguous runs of a shard's elements in memory.
//!
//! Input: sizes, strides, and the dim from which on elements are contiguous. Output: the first
//! element of each run, in order. All sharding uses this module: [`split_axis`](super::split_axis),
//! weight loading, and checkpoint resharding.
//!
//! Invariants: pure arithmetic. An empty shard has no runs, a scalar has one.

use std::ops::Range;

use crate::base::{Dims, Shape};

/// An iterator over the first elements of the runs of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Runs {
    length: usize,
    sizes: Dims,
    strides: Dims,
    first: usize,
    /// Indices of the next run, or `None` after the last.
    next: Option<Dims>,
}

impl Runs {
    /// Creates the runs of a tensor that is contiguous from dim `run_dim` on.
    pub(crate) fn new(sizes: &[usize], strides: &[usize], first: usize, run_dim: usize) -> Self {
        // The product of the other sizes may overflow if a size is 0.
        let has_elements = !sizes.contains(&0);
        let next = has_elements.then(|| std::iter::repeat_n(0, run_dim).collect());
        let length = if has_elements { sizes[run_dim..].iter().product() } else { 0 };
        let (sizes, strides) = (sizes[..run_dim].iter(), strides[..run_dim].iter());
        Self { length, sizes: sizes.copied().collect(), strides: strides.copied().collect(), first, next }
    }

    pub(crate) fn of_part(whole: &Shape, ranges: &[Range<usize>]) -> Self {
        // A run consists of the inner dims that the shard has in full, and the next dim outside.
        let is_whole = |dim: &usize| ranges[*dim].len() == whole[*dim];
        let inner = (0..whole.rank()).rev().take_while(is_whole).count();
        let sizes: Dims = ranges.iter().map(ExactSizeIterator::len).collect();
        let strides = whole.strides();
        let first = ranges.iter().zip(&strides).map(|(range, stride)| range.start * stride).sum();
        Self::new(&sizes, &strides, first, whole.rank().saturating_sub(inner + 1))
    }

    /// Creates the runs of the elements that two shards share, in the memory of each shard. Shards
    /// are dense and row-major. Returns `None` if they share nothing.
    pub(crate) fn of_shared(from: &[Range<usize>], to: &[Range<usize>]) -> Option<[Self; 2]> {
        let shared = shared(from, to)?;
        let sizes: Dims = shared.iter().map(ExactSizeIterator::len).collect();
        // A run consists of the inner dims that all three have in full, and the next dim outside.
        let is_whole = |dim: &usize| sizes[*dim] == from[*dim].len() && sizes[*dim] == to[*dim].len();
        let inner = (0..sizes.len()).rev().take_while(is_whole).count();
        Some([from, to].map(|part| {
            let strides = part.iter().map(ExactSizeIterator::len).collect::<Shape>().strides();
            let offsets = shared.iter().zip(part).map(|(shared, part)| shared.start - part.start);
            let first = offsets.zip(&strides).map(|(offset, stride)| offset * stride).sum();
            Self::new(&sizes, &strides, first, sizes.len().saturating_sub(inner + 1))
        }))
    }

    pub(crate) const fn length(&self) -> usize {
        self.length
    }

    /// Returns the smallest gap between two runs, or `None` if there is at most one run.
    pub(crate) fn gap(&self) -> Option<usize> {
        let outer = self.sizes.iter().rposition(|size| *size > 1)?;
        Some(self.strides[outer] - self.length)
    }

    pub(crate) fn from(mut self, mut run: usize) -> Self {
        if let Some(indices) = &mut self.next {
            for (index, size) in indices.iter_mut().zip(&self.sizes).rev() {
                *index = run % size;
                run /= size;
            }
        }
        // A remainder means that `run` is past the end.
        self.next = self.next.filter(|_| run == 0);
        self
    }

    pub(crate) fn place(&self, element: usize) -> Option<usize> {
        let run = element.checked_div(self.length)?;
        self.clone().from(run).next().map(|start| start + element % self.length)
    }
}

impl Iterator for Runs {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let indices = self.next.as_mut()?;
        let start = self.first
            + indices.iter().zip(&self.strides).map(|(index, stride)| index * stride).sum::<usize>();
        for dim in (0..indices.len()).rev() {
            indices[dim] += 1;
            if indices[dim] < self.sizes[dim] {
                return Some(start);
            }
            indices[dim] = 0;
        }
        self.next = None;
        Some(start)
    }
}

pub(crate) fn shared(one: &[Range<usize>], other: &[Range<usize>]) -> Option<Vec<Range<usize>>> {
    let shared: Vec<Range<usize>> = one
        .iter()
        .zip(other)
        .map(|(one, other)| one.start.max(other.start)..one.end.min(other.end))
        .collect();
    shared.iter().all(|range| range.start < range.end).then_some(shared)
}

/// Returns the number of elements of a shard that precede an element of the tensor.
pub(crate) fn elements_before(whole: &Shape, ranges: &[Range<usize>], element: usize) -> usize {
    let strides = whole.strides();
    let (mut rest, mut before) = (element, 0);
    for (dim, range) in ranges.iter().enumerate() {
        let index = rest / strides[dim];
        rest %= strides[dim];
        let inner: usize = ranges[dim + 1..].iter().map(ExactSizeIterator::len).product();
        before += (index.clamp(range.start, range.end) - range.start) * inner;
        if !range.contains(&index) {
            return before;
        }
    }
    if ranges.is_empty() { element } else { before }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, prop};
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn rows_are_one_run_and_columns_many() {
        let whole = Shape::from([4, 6]);
        let runs = |ranges: &[Range<usize>]| {
            let runs = Runs::of_part(&whole, ranges);
            (runs.length(), runs.collect::<Vec<_>>())
        };
        assert_eq!(runs(&[1..3, 0..6]), (12, vec![6]));
        assert_eq!(runs(&[1..3, 2..4]), (2, vec![8, 14]));
        assert_eq!(runs(&[0..4, 0..6]), (24, vec![0]));
        assert_eq!(runs(&[2..2, 0..6]).1, Vec::<usize>::new());
        assert_eq!(Runs::of_part(&Shape::default(), &[]).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn what_two_parts_share_lies_in_both() {
        let shared = |from: &[Range<usize>], to: &[Range<usize>]| {
            let [from, to] = Runs::of_shared(from, to).unwrap();
            assert_eq!(from.length(), to.length());
            (from.length(), from.zip(to).collect::<Vec<_>>())
        };
        assert_eq!(shared(&[0..4, 0..6], &[0..4, 0..6]), (24, vec![(0, 0)]));
        assert_eq!(shared(&[1..3, 0..6], &[0..4, 0..6]), (12, vec![(0, 6)]));
        assert_eq!(shared(&[0..2, 2..4], &[0..2, 0..6]), (2, vec![(0, 2), (2, 8)]));
        assert_eq!(shared(&[], &[]), (1, vec![(0, 0)]));
        assert_eq!(Runs::of_shared(&[0..2, 0..2], &[2..4, 0..2]), None);
    }

    fn elements(whole: &Shape, part: &[Range<usize>]) -> Vec<usize> {
        let strides = whole.strides();
        let inside =
            |element: &usize| (0..whole.rank()).all(|d| part[d].contains(&(element / strides[d] % whole[d])));
        (0..whole.elems()).filter(inside).collect()
    }

    fn parts() -> impl Strategy<Value = (Vec<usize>, Vec<Range<usize>>, Vec<Range<usize>>)> {
        let dim = (1..5usize).prop_flat_map(|size| {
            let range = (0..=size, 0..=size).prop_map(|(a, b)| a.min(b)..a.max(b));
            (Just(size), range.clone(), range)
        });
        prop::collection::vec(dim, 0..5).prop_map(|dims| {
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
        fn runs_are_the_elements_inside_all_ranges((sizes, part, other) in parts()) {
            let whole = Shape::new(sizes);
            let expected = elements(&whole, &part);
            let runs = Runs::of_part(&whole, &part);
            for (number, element) in expected.iter().enumerate() {
                prop_assert_eq!(elements_before(&whole, &part, *element), number);
                prop_assert_eq!(elements_before(&whole, &part, *element + 1), number + 1);
                prop_assert_eq!(runs.place(number), Some(*element));
            }
            prop_assert_eq!(runs.place(expected.len()), None);
            let length = runs.length();
            prop_assert_eq!(&runs.flat_map(|start| start..start + length).collect::<Vec<_>>(), &expected);

            let of_other = elements(&whole, &other);
            let both: Vec<(usize, usize)> = expected
                .iter()
                .enumerate()
                .filter_map(|(at, element)| Some((at, of_other.binary_search(element).ok()?)))
                .collect();
            let mut found = Vec::new();
            if let Some([from, to]) = Runs::of_shared(&part, &other) {
                let length = from.length();
                prop_assert!(length > 0);
                found.extend(from.zip(to).flat_map(|(one, two)| (0..length).map(move |at| (one + at, two + at))));
            }
            prop_assert_eq!(found, both);
        }
    }
}
