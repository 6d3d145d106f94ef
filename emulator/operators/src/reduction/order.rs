//! Sorting along a dim: whole rows, or the k greatest or smallest.
//!
//! NaN is the greatest value. Equal values are ordered by position, ascending and descending alike.

use std::cmp::Ordering;

use crate::Tiles;
use crate::lane::Lane;
use crate::reduction::kernels::rows;
use crate::view::StridedView;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Ascending,
    Descending,
}

pub(crate) fn compare<L: Lane>(a: L, b: L) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Stores the first `k` elements of each sorted row, and their positions.
pub(crate) fn sort<L: Lane>(
    tiles: &dyn Tiles,
    x: &StridedView,
    row_len: usize,
    k: usize,
    direction: Direction,
    values: &StridedView,
    indices: &StridedView,
) {
    let count = x.len() / row_len.max(1);
    let (x, values, indices) = (x.collapsed(), values.collapsed(), indices.collapsed());
    rows(tiles, count, row_len, &|row| {
        let mut buffer = vec![L::default(); row_len];
        L::load(&x, row * row_len, &mut buffer);
        let order = |&a: &i64, &b: &i64| {
            let by_value = compare(buffer[a as usize], buffer[b as usize]);
            let by_value = if direction == Direction::Descending { by_value.reverse() } else { by_value };
            by_value.then(a.cmp(&b))
        };
        let mut positions: Vec<i64> = (0..row_len as i64).collect();
        if k > 0 && k < row_len {
            positions.select_nth_unstable_by(k - 1, order);
        }
        positions.truncate(k);
        positions.sort_unstable_by(order);
        let sorted: Vec<L> = positions.iter().map(|&p| buffer[p as usize]).collect();
        L::store(&values, row * k, &sorted);
        i64::store(&indices, row * k, &positions);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;
    use crate::dtype::AclType;
    use crate::raw::tests::span_of;
    use crate::view::contiguous_strides;

    fn run(x: &mut [f32], k: usize, direction: Direction) -> (Vec<f32>, Vec<i64>) {
        let n = x.len();
        let (mut values, mut indices) = (vec![0f32; k], vec![0i64; k]);
        let make =
            |span, dtype, len| StridedView::new(span, dtype, &[len], &contiguous_strides(&[len]), 0).unwrap();
        let v = make(span_of(&mut values), AclType::F32, k);
        let i = make(span_of(&mut indices), AclType::I64, k);
        sort::<f32>(&Serial, &make(span_of(x), AclType::F32, n), n, k, direction, &v, &i);
        (values, indices)
    }

    #[test]
    fn ties_go_to_the_lower_position_in_both_directions() {
        let mut x = [2f32, 7.0, 2.0, 7.0, 1.0];
        assert_eq!(run(&mut x, 3, Direction::Descending), (vec![7.0, 7.0, 2.0], vec![1, 3, 0]));
        assert_eq!(
            run(&mut x, 5, Direction::Ascending),
            (vec![1.0, 2.0, 2.0, 7.0, 7.0], vec![4, 0, 2, 1, 3])
        );
    }

    #[test]
    fn nan_is_the_greatest() {
        let mut x = [f32::INFINITY, f32::NAN, 3.0];
        assert_eq!(run(&mut x, 3, Direction::Descending).1, [1, 0, 2]);
        assert_eq!(run(&mut x, 3, Direction::Ascending).1, [2, 0, 1]);
    }

    #[test]
    fn the_first_k_agree_with_a_whole_sort() {
        let mut x: Vec<f32> = (0..257u32).map(|i| (i.wrapping_mul(2_654_435_761) % 97) as f32).collect();
        let whole = run(&mut x.clone(), 257, Direction::Descending);
        for k in [1, 2, 50, 256] {
            let part = run(&mut x, k, Direction::Descending);
            assert_eq!((&part.0[..], &part.1[..]), (&whole.0[..k], &whole.1[..k]));
        }
    }
}
