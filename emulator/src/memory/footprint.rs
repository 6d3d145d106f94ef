//! Exact set of bytes that an access touches: evenly spaced rows of bytes.
//!
//! Invariants: the answer is exact, so adjacent column slices do not overlap. A comparison takes at
//! most one step per row of the lower footprint.

use std::ops::Range;

/// Only views that slice many dims have more groups of rows; those are not watched.
const MAX_GROUPS: usize = 1 << 14;

/// `height` rows of `width` bytes. Row r starts at `start + r * pitch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PitchedRows {
    pub(crate) start: usize,
    pub(crate) width: usize,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footprint(Vec<PitchedRows>);

impl PitchedRows {
    fn line(range: Range<usize>) -> Self {
        Self { start: range.start, width: range.len(), pitch: range.len(), height: 1 }
    }

    fn end(&self) -> usize {
        self.start + (self.height - 1) * self.pitch + self.width
    }

    fn row(&self, index: usize) -> Range<usize> {
        let start = self.start + index * self.pitch;
        start..start + self.width
    }

    fn first_row_past(&self, at: usize) -> usize {
        if at < self.start + self.width { 0 } else { (at - self.start - self.width) / self.pitch.max(1) + 1 }
    }

    fn meets_line(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let index = self.first_row_past(range.start);
        if index >= self.height {
            return None;
        }
        let row = self.row(index);
        let common = row.start.max(range.start)..row.end.min(range.end);
        (!common.is_empty()).then_some(common)
    }

    fn meets(&self, other: &Self) -> Option<Range<usize>> {
        if self.start >= other.end() || other.start >= self.end() {
            return None;
        }
        let (few, many) = if self.height <= other.height { (self, other) } else { (other, self) };
        let first = few.first_row_past(many.start);
        (first..few.height).map(|index| few.row(index)).find_map(|row| many.meets_line(&row))
    }

    fn covers(&self, other: &Self) -> bool {
        if self.height == 1 || self.pitch == self.width {
            return self.start <= other.start && other.end() <= self.end();
        }
        self == other
    }
}

impl Footprint {
    pub(crate) fn line(range: Range<usize>) -> Self {
        Self(if range.is_empty() { Vec::new() } else { vec![PitchedRows::line(range)] })
    }

    pub(crate) fn lines(ranges: impl IntoIterator<Item = Range<usize>>) -> Self {
        Self(ranges.into_iter().filter(|range| !range.is_empty()).map(PitchedRows::line).collect())
    }

    pub(crate) fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        Self(parts.into_iter().flat_map(|part| part.0).collect())
    }

    pub(crate) fn rows(rows: PitchedRows) -> Self {
        if rows.width == 0 || rows.height == 0 {
            return Self(Vec::new());
        }
        Self::gathered(rows.start, rows.width, vec![(rows.height, rows.pitch)]).unwrap_or(Self(Vec::new()))
    }

    /// The element at index zero is at byte `start`; strides are in elements. `None` if the tensor
    /// has too many pieces to watch.
    pub(crate) fn tensor(start: usize, size: usize, dims: &[usize], strides: &[isize]) -> Option<Self> {
        if dims.contains(&0) {
            return Some(Self(Vec::new()));
        }
        let mut first = start;
        let mut steps = Vec::with_capacity(dims.len());
        for (&count, &stride) in dims.iter().zip(strides) {
            if count > 1 && stride != 0 {
                let pitch = stride.unsigned_abs().checked_mul(size)?;
                if stride < 0 {
                    first = first.checked_sub((count - 1).checked_mul(pitch)?)?;
                }
                steps.push((count, pitch));
            }
        }
        Self::gathered(first, size, steps)
    }

    /// Builds rows of `width` bytes, repeated by each (count, pitch).
    fn gathered(start: usize, mut width: usize, mut steps: Vec<(usize, usize)>) -> Option<Self> {
        steps.sort_by_key(|(_, pitch)| *pitch);
        let mut spaced: Vec<(usize, usize)> = Vec::with_capacity(steps.len());
        for (count, pitch) in steps {
            match spaced.last_mut() {
                None if pitch <= width => width += (count - 1) * pitch,
                Some((inner, inner_pitch)) if pitch == *inner * *inner_pitch => *inner *= count,
                _ => spaced.push((count, pitch)),
            }
        }
        let (height, pitch) = if spaced.is_empty() { (1, width) } else { spaced.remove(0) };
        let groups = spaced.iter().try_fold(1_usize, |all, (count, _)| all.checked_mul(*count))?;
        if groups > MAX_GROUPS {
            return None;
        }
        let mut starts = vec![start];
        for (count, pitch) in spaced {
            starts =
                (0..count).flat_map(|index| starts.iter().map(move |start| start + index * pitch)).collect();
        }
        Some(Self(starts.into_iter().map(|start| PitchedRows { start, width, pitch, height }).collect()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn each_line(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.0.iter().flat_map(|rows| (0..rows.height).map(|index| rows.row(index)))
    }

    pub(crate) fn extent(&self) -> Range<usize> {
        let start = self.0.iter().map(|rows| rows.start).min().unwrap_or(0);
        start..self.0.iter().map(PitchedRows::end).max().unwrap_or(0)
    }

    pub(crate) fn meets(&self, other: &Self) -> Option<Range<usize>> {
        self.0.iter().find_map(|rows| other.0.iter().find_map(|others| rows.meets(others)))
    }

    /// May return false although every byte is covered.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|others| self.0.iter().any(|rows| rows.covers(others)))
    }

    pub(crate) fn shifted(&self, by: usize) -> Self {
        Self(self.0.iter().map(|rows| PitchedRows { start: rows.start + by, ..*rows }).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn bytes(footprint: &Footprint) -> BTreeSet<usize> {
        footprint.0.iter().flat_map(|rows| (0..rows.height).flat_map(|index| rows.row(index))).collect()
    }

    #[test]
    fn columns_side_by_side_do_not_meet() {
        let column =
            |first: usize| Footprint::tensor(1000 + 4 * first, 4, &[100, 8], &[64, 1]).expect("few pieces");
        assert_eq!(column(0).meets(&column(8)), None);
        assert_eq!(column(0).meets(&column(7)), Some(1028..1032));
        assert!(column(3).covers(&column(3)) && !column(3).covers(&column(4)));
    }

    #[test]
    fn contiguous_tensors_are_one_line_whatever_their_dims() {
        let whole = Footprint::tensor(64, 2, &[3, 4, 5], &[20, 5, 1]).expect("one piece");
        assert_eq!(whole, Footprint::line(64..184));
        assert_eq!(Footprint::tensor(64, 2, &[3, 0], &[1, 1]).expect("nothing"), Footprint::line(0..0));
        let reversed = Footprint::tensor(64 + 18, 2, &[10], &[-1]).expect("one piece");
        assert_eq!(reversed, Footprint::line(64..84));
        let repeated = Footprint::tensor(64, 2, &[7, 3], &[0, 1]).expect("one piece");
        assert_eq!(repeated, Footprint::line(64..70));
    }

    #[test]
    fn too_many_pieces_are_not_watched() {
        assert!(Footprint::tensor(0, 1, &[200, 200, 2], &[100_000, 400, 3]).is_none());
    }

    proptest! {
        #[test]
        fn matching_and_covering_agree_with_the_bytes(
            a in tensor(), b in tensor(),
        ) {
            let [a_bytes, b_bytes] = [&a, &b].map(bytes);
            let common = a_bytes.intersection(&b_bytes).next();
            prop_assert_eq!(a.meets(&b).is_some(), common.is_some());
            if let Some(mut found) = a.meets(&b) {
                prop_assert!(found.all(|at| a_bytes.contains(&at) && b_bytes.contains(&at)));
            }
            if a.covers(&b) {
                prop_assert!(b_bytes.is_subset(&a_bytes));
            }
        }
    }

    /// Generates a view of up to three dims.
    fn tensor() -> impl Strategy<Value = Footprint> {
        let dims = proptest::collection::vec((1_usize..5, -9_isize..10), 0..4);
        (200_usize..260, 1_usize..4, dims).prop_map(|(start, size, dims)| {
            let (counts, strides): (Vec<usize>, Vec<isize>) = dims.into_iter().unzip();
            let footprint = Footprint::tensor(start, size, &counts, &strides).expect("few pieces");
            let mut firsts = vec![start.cast_signed()];
            for (count, stride) in counts.iter().zip(&strides) {
                let step = stride * size.cast_signed();
                let steps = 0..count.cast_signed();
                firsts =
                    steps.flat_map(|index| firsts.iter().map(move |first| first + index * step)).collect();
            }
            let expected: BTreeSet<usize> = firsts
                .into_iter()
                .flat_map(|first| first.cast_unsigned()..first.cast_unsigned() + size)
                .collect();
            assert_eq!(bytes(&footprint), expected);
            footprint
        })
    }
}
