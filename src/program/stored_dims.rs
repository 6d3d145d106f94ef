//! The order of a param's dims in its checkpoint tensor.
//!
//! `0,3,21` describes a stored tensor of three dims. The first one is dim 0 of the param, the
//! second one is dim 3, and the third one is dim 2 and dim 1, fused in this order. A param
//! `[8,2,64,32]` is then stored as `[8,32,128]`, with the two matrices of dim 1 interleaved.
//!
//! Input: the text of an order, and the shape of a param. Output: the stored shape, and places in
//! the stored tensor.
//!
//! Invariant: each dim of the param occurs once.
//!
//! Not here: files and element types.

use std::fmt;

use crate::base::{Dims, Shape};

/// Largest number of dims, so that an order is a few bytes.
const MOST_DIMS: usize = 8;

/// The order of a param's dims in its checkpoint tensor.
///
/// ```
/// use ascend_tp::program::StoredDims;
///
/// let dims = StoredDims::parse("0,3,21").unwrap();
/// assert_eq!(dims.shape(&[8, 2, 64, 32].into()).unwrap().sizes(), [8, 32, 128]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoredDims {
    /// Dims of the param, in the order of the stored tensor.
    order: [u8; MOST_DIMS],
    /// Number of dims of the param.
    rank: u8,
    /// Bit `i` is set if the `i`-th dim of `order` starts a dim of the stored tensor.
    starts: u8,
}

impl StoredDims {
    /// Parses an order such as `0,3,21`: the dims of the stored tensor, each with one digit for
    /// each dim of the param.
    ///
    /// # Errors
    /// A sentence, if the text is not a permutation of at most eight dims.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut dims = Self { order: [0; MOST_DIMS], rank: 0, starts: 0 };
        let mut is_start = true;
        for letter in text.chars() {
            if letter == ',' && !is_start {
                is_start = true;
                continue;
            }
            let at = usize::from(dims.rank);
            let dim = letter.to_digit(10).and_then(|digit| u8::try_from(digit).ok());
            let (Some(dim), true) = (dim, at < MOST_DIMS) else { return Err(not_an_order(text)) };
            dims.order[at] = dim;
            dims.starts |= u8::from(is_start) << at;
            dims.rank += 1;
            is_start = false;
        }
        let is_once = |dim: u8| dims.order[..usize::from(dims.rank)].contains(&dim);
        if is_start || !(0..dims.rank).all(is_once) {
            return Err(not_an_order(text));
        }
        Ok(dims)
    }

    /// Returns the dims of the param, in the order of the stored tensor.
    #[must_use]
    pub fn order(&self) -> Dims {
        self.order[..usize::from(self.rank)].iter().map(|dim| usize::from(*dim)).collect()
    }

    /// Returns whether the elements have the same order in the param and in the stored tensor.
    #[must_use]
    pub fn is_row_major(&self) -> bool {
        self.order().iter().enumerate().all(|(at, dim)| at == *dim)
    }

    /// Returns whether the first dim of the stored tensor is the first dim of the param.
    #[must_use]
    pub fn keeps_first_dim(&self) -> bool {
        self.order[0] == 0 && (self.rank == 1 || self.starts & 2 != 0)
    }

    /// Returns the shape of the stored tensor of a param of shape `shape`.
    ///
    /// # Errors
    /// A sentence, if the param has another number of dims.
    pub fn shape(&self, shape: &Shape) -> Result<Shape, String> {
        if shape.rank() != usize::from(self.rank) {
            return Err(format!(
                "`{self}` is an order of {} dims, and {shape} has {}",
                self.rank,
                shape.rank()
            ));
        }
        let mut sizes = Dims::new();
        for (at, dim) in self.order().into_iter().enumerate() {
            match sizes.last_mut() {
                Some(last) if self.starts >> at & 1 == 0 => *last *= shape[dim],
                _ => sizes.push(shape[dim]),
            }
        }
        Ok(Shape::from(sizes))
    }

    /// Returns elements of a param of shape `shape` in the order of the stored tensor. Each element
    /// has `size` bytes.
    #[must_use]
    pub fn stored(&self, shape: &Shape, size: usize, bytes: &[u8]) -> Vec<u8> {
        let (strides, order) = (shape.strides(), self.order());
        let sizes: Dims = order.iter().map(|dim| shape[*dim]).collect();
        let strides: Dims = order.iter().map(|dim| strides[*dim]).collect();
        let (mut stored, mut index) = (Vec::with_capacity(bytes.len()), Dims::from_elem(0, order.len()));
        for _ in 0..shape.elems() {
            let element: usize = index.iter().zip(&strides).map(|(index, stride)| index * stride).sum();
            stored.extend_from_slice(&bytes[element * size..(element + 1) * size]);
            for (index, size) in index.iter_mut().zip(&sizes).rev() {
                *index += 1;
                if *index < *size {
                    break;
                }
                *index = 0;
            }
        }
        stored
    }
}

fn not_an_order(text: &str) -> String {
    format!("`{text}` is not an order of dims such as `0,3,21`, with each dim once")
}

impl fmt::Display for StoredDims {
    /// Prints `0,3,21`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, dim) in self.order().into_iter().enumerate() {
            if at > 0 && self.starts >> at & 1 == 1 {
                f.write_str(",")?;
            }
            write!(f, "{dim}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_their_text() {
        for text in ["0", "0,1", "10", "1,0", "0,3,21", "0,21,3", "3,1,2,0", "76543210"] {
            assert_eq!(StoredDims::parse(text).unwrap().to_string(), text);
        }
        for text in ["", ",", "0,", ",0", "0,,1", "0,2", "0,0", "1", "a", "0,3,2", "012345678", "0 1", "-1"] {
            let expected = format!("`{text}` is not an order of dims such as `0,3,21`, with each dim once");
            assert_eq!(StoredDims::parse(text), Err(expected));
        }
    }

    #[test]
    fn dims_are_fused_in_their_order() {
        let shape = Shape::from([3, 2, 5, 4]);
        for (text, expected, is_row_major, keeps_first_dim) in [
            ("0,1,2,3", &[3, 2, 5, 4][..], true, true),
            ("0,12,3", &[3, 10, 4], true, true),
            ("0123", &[120], true, false),
            ("0,3,21", &[3, 4, 10], false, true),
            ("0,21,3", &[3, 10, 4], false, true),
            ("10,2,3", &[6, 5, 4], false, false),
        ] {
            let dims = StoredDims::parse(text).unwrap();
            assert_eq!(dims.shape(&shape).unwrap().sizes(), expected, "{text}");
            assert_eq!(
                (dims.is_row_major(), dims.keeps_first_dim()),
                (is_row_major, keeps_first_dim),
                "{text}"
            );
        }
        assert_eq!(
            StoredDims::parse("0,1").unwrap().shape(&shape),
            Err("`0,1` is an order of 2 dims, and [3,2,5,4] has 4".to_owned())
        );
        assert!(StoredDims::parse("0").unwrap().keeps_first_dim());
    }

    #[test]
    fn interleaved_matrices_are_stored_by_columns() {
        // Matrices of two rows and three columns. Element (matrix, row, column) is a number of
        // three digits.
        let element = |matrix: u8, row: u8, column: u8| 100 * matrix + 10 * row + column;
        let mut param = Vec::new();
        for (matrix, row, column) in
            (0..2).flat_map(|m| (0..2).flat_map(move |r| (0..3).map(move |c| (m, r, c))))
        {
            param.push(element(matrix, row, column));
        }
        let stored = StoredDims::parse("2,10").unwrap().stored(&[2, 2, 3].into(), 1, &param);
        assert_eq!(stored, [0, 100, 10, 110, 1, 101, 11, 111, 2, 102, 12, 112]);
        let halves: Vec<u8> = stored.iter().flat_map(|x| [*x, 255 - *x]).collect();
        let halves_of_param: Vec<u8> = param.iter().flat_map(|x| [*x, 255 - *x]).collect();
        let dims = StoredDims::parse("2,10").unwrap();
        assert_eq!(dims.stored(&[2, 2, 3].into(), 2, &halves_of_param), halves);
    }
}
