//! Random weights for measurements. Activations stay finite through any number of layers, no value
//! is denormal, and norm scales are 1. One repeated block makes generation cheap.

use std::collections::HashMap;
use std::ops::Range;

use half::{bf16, f16};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use ascend_tp::base::DType;
use ascend_tp::exec::{Error, Shards};
use ascend_tp::schedule::plan::Tensor;

const BLOCK: usize = 1 << 18;

const LARGEST: f32 = 0.05;

/// Returns numbers between plus and minus [`LARGEST`] as bytes. Integers are 0, a valid index and
/// mask.
pub(super) fn block(dtype: DType, elems: usize) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(1);
    let numbers = (0..elems).map(|_| random.random_range(-LARGEST..LARGEST));
    match dtype {
        DType::F32 => numbers.flat_map(f32::to_le_bytes).collect(),
        DType::F16 => numbers.flat_map(|x| f16::from_f32(x).to_le_bytes()).collect(),
        DType::BF16 => numbers.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect(),
        DType::I8 => numbers.map(|x| (x / LARGEST * 127.0) as i8 as u8).collect(),
        DType::I32 | DType::I64 | DType::U8 | DType::F8E4M3 | DType::Bool => {
            vec![0; elems * dtype.size_bytes()]
        }
    }
}

fn ones(dtype: DType, elems: usize) -> Vec<u8> {
    let one = match dtype {
        DType::F16 => f16::ONE.to_le_bytes().to_vec(),
        DType::BF16 => bf16::ONE.to_le_bytes().to_vec(),
        _ => 1.0_f32.to_le_bytes().to_vec(),
    };
    one.repeat(elems)
}

/// Fills all weights of all ranks.
pub(crate) fn weights(shards: &Shards<'_>) -> Result<(), Error> {
    let mut blocks = HashMap::new();
    for part in shards.parts() {
        let Tensor { dtype, ranges, shape, name, .. } = part.tensor();
        let elems: usize = ranges.iter().map(Range::len).product();
        // Norm scales are vectors. Biases are also vectors, but their names end with `bias`.
        if shape.rank() == 1 && name.ends_with("weight") {
            part.write(0, &ones(*dtype, elems))?;
            continue;
        }
        let block = blocks.entry(*dtype).or_insert_with(|| block(*dtype, BLOCK));
        let bytes = elems * dtype.size_bytes();
        for start in (0..bytes).step_by(block.len()) {
            part.write(start, &block[..block.len().min(bytes - start)])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_small_numbers_of_their_type() {
        for dtype in DType::ALL {
            assert_eq!(block(dtype, 7).len(), 7 * dtype.size_bytes());
        }
        let numbers = block(DType::F32, 1000);
        let largest =
            numbers.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).abs()).fold(0.0, f32::max);
        assert!(largest > 0.9 * LARGEST && largest <= LARGEST, "{largest}");
        assert_eq!(ones(DType::BF16, 2), [0x80, 0x3f, 0x80, 0x3f]);
    }
}
