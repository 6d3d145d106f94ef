//! Shards of a tensor for each rank, including sizes that do not divide: [`split_axis`] and its
//! inverse [`gather`].
//!
//! Input: a size, a number of parts and a [`Remainder`], or a [`TensorView`]. Output: index ranges,
//! or one [`Shard`] per rank.
//!
//! Invariants: the ranges of [`partition`] cover the size without gap or overlap, in order.
//! `gather(split_axis(x)) == x` for every tensor of rank 1 or more, every axis, world size and
//! remainder.
//!
//! Layouts, weights and checkpoints use the same [`Remainder::range`] and the same `shard/runs.rs`.
//! This module does not depend on meshes, files or devices. The split dim is called `axis`, as in
//! array libraries.

pub(crate) mod runs;
mod view;

use std::ops::Range;

pub use crate::base::Remainder;
use crate::base::{Diagnostic, Diagnostics, Shape};
use view::checked_elems;
pub use view::{Tensor, TensorView, ViewError};

/// A tensor or size that cannot be split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The tensor has fewer dims than `axis` requires.
    #[error(
        "split_axis: axis {axis} is out of bounds for rank {rank} (shape {shape}): expected an axis from 0 to {}",
        .rank - 1
    )]
    AxisOutOfBounds {
        /// The requested axis of the tensor.
        axis: usize,
        /// Number of dims, at least 1.
        rank: usize,
        /// The shape of the tensor.
        shape: Shape,
    },
    /// The tensor has no dims at all.
    #[error(
        "split_axis: axis {axis} is out of bounds for rank 0: a scalar has no axis to split; replicate it"
    )]
    Scalar {
        /// The requested axis of the tensor.
        axis: usize,
    },
    /// The number of ranks is 0.
    #[error("split_axis: world 0 along axis {axis} of rank {rank} (shape {shape}): expected at least 1 rank")]
    ZeroWorld {
        /// The requested axis of the tensor.
        axis: usize,
        /// Number of dims of the tensor.
        rank: usize,
        /// The shape of the tensor.
        shape: Shape,
    },
    /// The number of parts is 0.
    #[error("partition: size {size} cannot be divided into 0 parts: expected at least 1 part")]
    ZeroParts {
        /// The size to divide.
        size: usize,
    },
    /// The part index is out of bounds.
    #[error(
        "partition: part {index} of size {size} in {parts} parts does not exist: expected an index from 0 to {}",
        .parts - 1
    )]
    PartOutOfBounds {
        /// The requested index of a part.
        index: usize,
        /// Number of parts, at least 1.
        parts: usize,
        /// The size to divide.
        size: usize,
    },
}

/// Shards that do not form a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GatherError {
    /// The list of shards is empty.
    #[error("gather: there are no shards to gather along axis {axis}: expected one per rank, at least 1")]
    NoShards {
        /// The requested axis of the tensor.
        axis: usize,
    },
    /// The shards have fewer dims than `axis` requires.
    #[error(
        "gather: axis {axis} is out of bounds for rank {rank} (shape {shape} of part 0): \
         expected shards with more than {axis} dims"
    )]
    AxisOutOfBounds {
        /// The requested axis of the tensor.
        axis: usize,
        /// Number of dims of part 0.
        rank: usize,
        /// The shape of part 0.
        shape: Shape,
    },
    /// Parts with a wrong shape, one problem for each.
    #[error("gather: the parts do not fit together:\n{0}")]
    Parts(Diagnostics),
    /// The number of elements overflows. This happens only for views with stride 0.
    #[error("gather: a tensor of shape {shape} has more elements than fit in memory")]
    TooLarge {
        /// The shape of the whole tensor.
        shape: Shape,
    },
}

/// Returns the index range of each of `parts` parts, in order. The ranges do not include the zeros
/// of [`Remainder::ZeroPadded`]; see [`part_size`].
///
/// ```
/// use ascend_tp::placement::shard::{Remainder, partition};
///
/// assert_eq!(partition(10, 4, Remainder::Last)?, [0..2, 2..4, 4..6, 6..10]);
/// assert_eq!(partition(10, 4, Remainder::Balanced)?, [0..3, 3..5, 5..8, 8..10]);
/// assert_eq!(partition(10, 4, Remainder::ZeroPadded)?, [0..3, 3..6, 6..9, 9..10]);
/// # Ok::<(), ascend_tp::placement::shard::SplitError>(())
/// ```
///
/// # Errors
/// Returns [`SplitError::ZeroParts`] if `parts` is 0. With more parts than elements, some parts are
/// empty.
pub fn partition(size: usize, parts: usize, remainder: Remainder) -> Result<Vec<Range<usize>>, SplitError> {
    if parts == 0 {
        return Err(SplitError::ZeroParts { size });
    }
    Ok((0..parts).map(|index| remainder.range(size, parts, index)).collect())
}

/// Returns element `index` of [`partition`], in constant time.
///
/// # Errors
/// Returns [`SplitError::ZeroParts`] if `parts` is 0, and [`SplitError::PartOutOfBounds`] if
/// `index` is not below `parts`.
pub fn part(
    size: usize,
    parts: usize,
    index: usize,
    remainder: Remainder,
) -> Result<Range<usize>, SplitError> {
    check_part(size, parts, index)?;
    Ok(remainder.range(size, parts, index))
}

/// Returns the size of part `index`, including the zeros of [`Remainder::ZeroPadded`].
///
/// # Errors
/// Fails like [`part`].
pub fn part_size(size: usize, parts: usize, index: usize, remainder: Remainder) -> Result<usize, SplitError> {
    check_part(size, parts, index)?;
    Ok(stored_size(size, parts, index, remainder))
}

/// The shard of one rank.
#[derive(Clone, Debug)]
pub enum Shard<'a, T> {
    /// A view of the split tensor, or any tensor for [`gather`].
    View(TensorView<'a, T>),
    /// A copy with zeros at the end. Only from [`Remainder::ZeroPadded`].
    Padded(Tensor<T>),
}

impl<T> Shard<'_, T> {
    /// Returns the shape, including zeros.
    #[must_use]
    #[doc(hidden)]
    pub const fn shape(&self) -> &Shape {
        match self {
            Self::View(view) => view.shape(),
            Self::Padded(tensor) => tensor.shape(),
        }
    }

    /// Returns the shard as a view.
    #[must_use]
    pub fn view(&self) -> TensorView<'_, T> {
        match self {
            Self::View(view) => view.clone(),
            Self::Padded(tensor) => tensor.view(),
        }
    }
}

impl<T: Clone> Shard<'_, T> {
    /// Copies the elements in row-major order, including zeros.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        self.view().to_vec()
    }
}

/// Splits a tensor along `axis` among `world` ranks; shard `r` belongs to rank `r`.
///
/// Shards are views without a copy, for any strides. Only a part that [`Remainder::ZeroPadded`]
/// extends is copied and padded with `T::default()`. With more ranks than elements, some shards are
/// empty.
///
/// ```
/// use ascend_tp::{Remainder, TensorView, gather, split_axis};
///
/// // A weight of shape [2, 5], its second dim over 2 ranks: [2, 2], and [2, 3] with the
/// // remainder.
/// let weight: Vec<f32> = (0..10u8).map(f32::from).collect();
/// let view = TensorView::contiguous(&weight, [2, 5])?;
/// let shards = split_axis(&view, 1, 2, Remainder::Last)?;
/// assert_eq!(shards[0].to_vec(), [0.0, 1.0, 5.0, 6.0]);
/// assert_eq!(shards[1].to_vec(), [2.0, 3.0, 4.0, 7.0, 8.0, 9.0]);
///
/// let whole = gather(&shards, 1, 5, Remainder::Last)?;
/// assert_eq!(whole.data(), weight);
///
/// let error = split_axis(&view, 2, 2, Remainder::Last).unwrap_err();
/// assert!(error.to_string().contains("axis 2 is out of bounds for rank 2"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Shapes
/// `view` is `[…, n, …]` with `n` at `axis`; shard `r` is `[…, part_size(n, world, r, remainder),
/// …]`.
///
/// # Errors
/// Returns [`SplitError::AxisOutOfBounds`] if the tensor has no such dim, [`SplitError::Scalar`] if
/// it has no dims, and [`SplitError::ZeroWorld`] if `world` is 0.
pub fn split_axis<'a, T: Clone + Default>(
    view: &TensorView<'a, T>,
    axis: usize,
    world: usize,
    remainder: Remainder,
) -> Result<Vec<Shard<'a, T>>, SplitError> {
    let (shape, rank) = (view.shape(), view.shape().rank());
    if rank == 0 {
        return Err(SplitError::Scalar { axis });
    }
    if axis >= rank {
        return Err(SplitError::AxisOutOfBounds { axis, rank, shape: shape.clone() });
    }
    if world == 0 {
        return Err(SplitError::ZeroWorld { axis, rank, shape: shape.clone() });
    }
    let size = shape[axis];
    let shard = |index| {
        let real = view.cut(axis, remainder.range(size, world, index));
        let stored = stored_size(size, world, index, remainder);
        if real.shape()[axis] == stored {
            Shard::View(real)
        } else {
            Shard::Padded(zero_padded(&real, axis, stored))
        }
    };
    Ok((0..world).map(shard).collect())
}

/// Concatenates shards: the inverse of [`split_axis`] with the same `axis` and `remainder`, and one
/// rank per shard. `original_size` is the global size at `axis`; zeros of [`Remainder::ZeroPadded`]
/// beyond it are dropped.
///
/// Shards may come from other ranks: wrap received data in [`Shard::View`].
///
/// # Shapes
/// Shard `r` of `w` is `[…, part_size(original_size, w, r, remainder), …]`, the result is `[…,
/// original_size, …]`.
///
/// # Errors
/// Returns [`GatherError::NoShards`] for an empty list, [`GatherError::AxisOutOfBounds`] if part 0
/// has no such dim, and [`GatherError::Parts`] with all parts of a wrong shape.
pub fn gather<T: Clone>(
    shards: &[Shard<'_, T>],
    axis: usize,
    original_size: usize,
    remainder: Remainder,
) -> Result<Tensor<T>, GatherError> {
    let world = shards.len();
    let shape = shards.first().ok_or(GatherError::NoShards { axis })?.shape();
    if axis >= shape.rank() {
        return Err(GatherError::AxisOutOfBounds { axis, rank: shape.rank(), shape: shape.clone() });
    }

    let mut problems = Diagnostics::new();
    for (index, shard) in shards.iter().enumerate() {
        let expected = shape.with(axis, stored_size(original_size, world, index, remainder));
        if *shard.shape() != expected {
            problems.push(
                Diagnostic::new(format!("part {index} of {world}"), "wrong shape")
                    .expected(&expected)
                    .found(shard.shape())
                    .help(format_args!(
                        "axis {axis} of size {original_size} in {world} parts (remainder {remainder}) gives this part \
                         {}, and the other dims must equal part 0",
                        expected[axis]
                    )),
            );
        }
    }
    problems.into_result(()).map_err(GatherError::Parts)?;

    let shape = shape.with(axis, original_size);
    let elems = checked_elems(&shape).ok_or_else(|| GatherError::TooLarge { shape: shape.clone() })?;
    let mut data = Vec::with_capacity(elems);
    if elems > 0 {
        let real_size = |index| remainder.range(original_size, world, index).len();
        let parts: Vec<_> = shards
            .iter()
            .enumerate()
            .map(|(index, shard)| shard.view().cut(axis, 0..real_size(index)))
            .collect();
        for row in 0..rows_before(&shape, axis) {
            for part in &parts {
                part.append_row(axis, row, &mut data);
            }
        }
    }
    Ok(Tensor::from_parts(data, shape))
}

const fn check_part(size: usize, parts: usize, index: usize) -> Result<(), SplitError> {
    if parts == 0 {
        return Err(SplitError::ZeroParts { size });
    }
    if index >= parts {
        return Err(SplitError::PartOutOfBounds { index, parts, size });
    }
    Ok(())
}

fn stored_size(size: usize, parts: usize, index: usize, remainder: Remainder) -> usize {
    match remainder {
        Remainder::Last | Remainder::Balanced => remainder.range(size, parts, index).len(),
        Remainder::ZeroPadded => size.div_ceil(parts),
    }
}

fn zero_padded<T: Clone + Default>(real: &TensorView<'_, T>, axis: usize, stored: usize) -> Tensor<T> {
    let shape = real.shape().with(axis, stored);
    let mut data = Vec::new();
    // The product of the other sizes may overflow if a size is 0.
    if !shape.contains(&0) {
        let row_elems: usize = shape[axis..].iter().product();
        let rows = rows_before(&shape, axis);
        data.reserve_exact(rows * row_elems);
        for row in 0..rows {
            real.append_row(axis, row, &mut data);
            data.resize((row + 1) * row_elems, T::default());
        }
    }
    Tensor::from_parts(data, shape)
}

fn rows_before(shape: &Shape, axis: usize) -> usize {
    shape[..axis].iter().product()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Remainder; 3] = [Remainder::Last, Remainder::Balanced, Remainder::ZeroPadded];

    fn split_ten(world: usize, remainder: Remainder) -> Vec<Vec<i32>> {
        let data: Vec<i32> = (1..=10).collect();
        let view = TensorView::contiguous(&data, [10]).expect("ten elements");
        split_axis(&view, 0, world, remainder).expect("axis 0").iter().map(Shard::to_vec).collect()
    }

    #[test]
    fn the_last_part_takes_the_rest() {
        assert_eq!(split_ten(4, Remainder::Last), [vec![1, 2], vec![3, 4], vec![5, 6], vec![7, 8, 9, 10]]);
        assert_eq!(Remainder::default(), Remainder::Last);
    }

    #[test]
    fn balanced_parts_differ_by_one_at_most() {
        assert_eq!(
            split_ten(4, Remainder::Balanced),
            [vec![1, 2, 3], vec![4, 5], vec![6, 7, 8], vec![9, 10]]
        );
    }

    #[test]
    fn padded_parts_have_one_size() {
        let expected = [vec![1, 2, 3], vec![4, 5, 6], vec![7, 8, 9], vec![10, 0, 0]];
        assert_eq!(split_ten(4, Remainder::ZeroPadded), expected);
    }

    #[test]
    fn parts_tile_the_size() {
        for remainder in ALL {
            for size in 0..40 {
                for parts in 1..12 {
                    let ranges = partition(size, parts, remainder).expect("parts is not 0");
                    assert_eq!(ranges.len(), parts);
                    let mut end = 0;
                    for (index, range) in ranges.iter().enumerate() {
                        assert_eq!(range.start, end, "{size} in {parts}, {remainder}");
                        end = range.end;
                        assert_eq!(part(size, parts, index, remainder).as_ref(), Ok(range));
                        let stored = part_size(size, parts, index, remainder).expect("index is below parts");
                        assert!(stored >= range.len());
                        assert!(stored == range.len() || remainder == Remainder::ZeroPadded);
                    }
                    assert_eq!(end, size, "{size} in {parts}, {remainder}");
                }
            }
        }
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        for remainder in ALL {
            for (size, parts) in
                [(usize::MAX, usize::MAX - 1), (usize::MAX, 3), (usize::MAX - 1, usize::MAX), (7, 8)]
            {
                let last = part(size, parts, parts - 1, remainder).expect("the last part");
                assert_eq!(last.end, size, "{size} in {parts}, {remainder}");
                assert_eq!(part(size, parts, 0, remainder).expect("the first part").start, 0);
            }
        }
    }

    #[test]
    fn more_parts_than_elements_leave_some_empty() {
        assert_eq!(partition(2, 4, Remainder::Last), Ok(vec![0..0, 0..0, 0..0, 0..2]));
        assert_eq!(partition(2, 4, Remainder::Balanced), Ok(vec![0..1, 1..1, 1..2, 2..2]));
        assert_eq!(partition(2, 4, Remainder::ZeroPadded), Ok(vec![0..1, 1..2, 2..2, 2..2]));
        assert_eq!(part_size(2, 4, 3, Remainder::ZeroPadded), Ok(1));
    }

    #[test]
    fn only_short_padded_parts_are_copied() {
        let data = [1, 2, 3, 4, 5];
        let view = TensorView::contiguous(&data, [5]).expect("five elements");
        for remainder in ALL {
            for (index, shard) in split_axis(&view, 0, 3, remainder).expect("axis 0").iter().enumerate() {
                let copied = matches!(shard, Shard::Padded(_));
                assert_eq!(copied, remainder == Remainder::ZeroPadded && index == 2);
                if let Some(slice) = shard.view().as_slice().filter(|_| !copied) {
                    assert!(
                        data.as_ptr_range().contains(&slice.as_ptr()),
                        "a view lies in the tensor's memory"
                    );
                }
            }
        }
    }

    #[test]
    fn arithmetic_refuses_what_has_no_meaning() {
        let message = |result: Result<Range<usize>, SplitError>| result.expect_err("a refusal").to_string();
        assert_eq!(
            message(part(6, 0, 0, Remainder::Last)),
            "partition: size 6 cannot be divided into 0 parts: expected at least 1 part"
        );
        assert_eq!(
            message(part(6, 2, 2, Remainder::Last)),
            "partition: part 2 of size 6 in 2 parts does not exist: expected an index from 0 to 1"
        );
        assert_eq!(partition(6, 0, Remainder::Balanced), Err(SplitError::ZeroParts { size: 6 }));
    }
}
