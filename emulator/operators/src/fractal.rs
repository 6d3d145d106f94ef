//! The `FRACTAL_NZ` matrix layout: blocks of 16 rows by 32 bytes, in columns of blocks. Padding is
//! zero.
//!
//! Only one-byte and two-byte types: producers use different block widths for four-byte types.

use std::ops::Range;

use super::Tiles;
use super::dtype::AclType;
use super::raw::MemorySpan;

/// Code of this format in `aclFormat`.
pub const FRACTAL_NZ: i32 = 29;

const ROWS: usize = 16;
const ROW_BYTES: usize = 32;
/// A tile unpacks at least this many bytes.
const TILE_BYTES: usize = 64 << 10;

/// Extents of matrices in `FRACTAL_NZ` layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fractal {
    matrices: usize,
    rows: usize,
    columns: usize,
    element_bytes: usize,
}

impl Fractal {
    /// Returns the layout for matrices of these dims.
    pub fn of(dtype: AclType, dims: &[usize]) -> Option<Self> {
        let (outer, &[rows, columns]) = dims.split_last_chunk::<2>()?;
        let is_blocked = matches!(dtype, AclType::F16 | AclType::BF16 | AclType::I8);
        let element_bytes = dtype.size();
        let matrices = outer.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
        let fractal = Self { matrices, rows, columns, element_bytes };
        let padded =
            rows.checked_next_multiple_of(ROWS)?.checked_mul(columns.checked_next_multiple_of(ROW_BYTES)?)?;
        let bytes = padded.checked_mul(matrices)?.checked_mul(element_bytes)?;
        (is_blocked && bytes <= isize::MAX as usize).then_some(fractal)
    }

    const fn width(&self) -> usize {
        ROW_BYTES / self.element_bytes
    }

    /// Returns the trailing storage dims: block columns, block rows, rows and columns per block.
    pub const fn storage(&self) -> [usize; 4] {
        [self.columns.div_ceil(self.width()), self.rows.div_ceil(ROWS), ROWS, self.width()]
    }

    /// Returns the number of elements in the storage.
    pub fn storage_len(&self) -> usize {
        self.matrices * self.storage().iter().product::<usize>()
    }

    /// Returns the number of bytes in the storage.
    pub fn bytes(&self) -> usize {
        self.storage_len() * self.element_bytes
    }

    /// Returns the number of bytes without padding.
    pub const fn plain_bytes(&self) -> usize {
        self.matrices * self.rows * self.columns * self.element_bytes
    }

    /// Returns the storage offset, plain offset and byte count of each row of a block.
    fn pieces(&self, rows: Range<usize>) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let [across, down, ..] = self.storage();
        let (plain, block) = (self.columns * self.element_bytes, down * ROWS * ROW_BYTES);
        rows.flat_map(move |at| {
            let (matrix, row) = (at / self.rows, at % self.rows);
            (0..across).map(move |column| {
                let stored = (matrix * across + column) * block + row * ROW_BYTES;
                let start = at * plain + column * ROW_BYTES;
                (stored, start, ROW_BYTES.min(plain - column * ROW_BYTES))
            })
        })
    }

    /// Copies the elements from `storage` to matrices without padding.
    pub fn unpack(&self, tiles: &dyn Tiles, storage: MemorySpan, plain: MemorySpan) {
        let rows = self.matrices * self.rows;
        let each = (TILE_BYTES / (self.columns * self.element_bytes).max(1)).max(1);
        tiles.run(rows.div_ceil(each), &|tile| {
            let mut piece = [0u8; ROW_BYTES];
            for (stored, start, bytes) in self.pieces(tile * each..rows.min((tile + 1) * each)) {
                storage.read_run(stored, 1, &mut piece[..bytes]);
                plain.write_run(start, 1, &piece[..bytes]);
            }
        });
    }

    /// Copies the elements of matrices without padding to `storage` and zeros the padding.
    pub fn pack(&self, plain: &[u8], storage: MemorySpan) {
        storage.write_run(0, 1, &vec![0u8; self.bytes()]);
        for (stored, start, bytes) in self.pieces(0..self.matrices * self.rows) {
            storage.write_run(stored, 1, &plain[start..start + bytes]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::tests::span_of;
    use crate::tests::Threads;

    #[test]
    fn elements_lie_where_the_layout_says() {
        // Row 17, column 33 of the second matrix: block column 2, block row 1, row 1, column 1.
        let fractal = Fractal::of(AclType::F16, &[2, 20, 40]).unwrap();
        assert_eq!(fractal.storage(), [3, 2, 16, 16]);
        let mut plain: Vec<u8> = vec![0; fractal.plain_bytes()];
        let at = 2 * (800 + 17 * 40 + 33);
        plain[at..at + 2].copy_from_slice(&[7, 9]);
        let mut storage = vec![1u8; fractal.bytes()];
        fractal.pack(&plain, span_of(&mut storage));
        let place = 2 * ((((3 + 2) * 2 + 1) * 16 + 1) * 16 + 1);
        let found: Vec<(usize, u8)> =
            storage.iter().copied().enumerate().filter(|(_, byte)| *byte != 0).collect();
        assert_eq!(found, [(place, 7), (place + 1, 9)]);
    }

    #[test]
    fn what_is_packed_comes_back() {
        for (dtype, dims) in
            [(AclType::I8, vec![33, 50]), (AclType::BF16, vec![3, 5, 16]), (AclType::F16, vec![2, 0, 4])]
        {
            let fractal = Fractal::of(dtype, &dims).unwrap();
            let plain: Vec<u8> = (0..fractal.plain_bytes()).map(|at| (at * 7 % 251) as u8).collect();
            let mut storage = vec![1u8; fractal.bytes()];
            fractal.pack(&plain, span_of(&mut storage));
            for threads in [1, 3] {
                let mut back = vec![0u8; plain.len()];
                fractal.unpack(&Threads(threads), span_of(&mut storage), span_of(&mut back));
                assert_eq!(back, plain, "{dtype} {dims:?}");
            }
        }
        assert_eq!(Fractal::of(AclType::F32, &[4, 4]), None);
        assert_eq!(Fractal::of(AclType::F16, &[4]), None);
        assert_eq!(Fractal::of(AclType::F16, &[usize::MAX / 2, 4]), None);
    }
}
