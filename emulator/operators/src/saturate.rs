//! What overflows becomes the largest number: a pass over what an operator wrote.
//!
//! Input: a view. Output: the same without infinities and NaN, and whether there were some. Does not: know the mode that asks for it.

use half::{bf16, f16};

use crate::dtype::AclType;
use crate::raw::Pod;
use crate::view::StridedView;

/// Elements of one step of the pass.
const CHUNK: usize = 4096;

/// Makes infinities the largest number and NaN zero; says whether there were any.
pub fn saturate(output: &StridedView) -> bool {
    match output.dtype() {
        AclType::F32 => saturate_as::<f32>(output),
        AclType::F64 => saturate_as::<f64>(output),
        AclType::F16 => saturate_as::<f16>(output),
        AclType::BF16 => saturate_as::<bf16>(output),
        _ => false,
    }
}

/// A number that overflows.
trait Float: Pod {
    /// What it becomes, if it is no finite number.
    fn saturated(self) -> Option<Self>;
}

macro_rules! floats {
    ($( $float:ty: $zero:expr; )*) => { $(
        impl Float for $float {
            fn saturated(self) -> Option<Self> {
                if self.is_finite() {
                    return None;
                }
                Some(if self.is_nan() { $zero } else if self.is_sign_positive() { Self::MAX } else { Self::MIN })
            }
        }
    )* };
}
floats! { f32: 0.0; f64: 0.0; f16: Self::ZERO; bf16: Self::ZERO; }

fn saturate_as<T: Float>(output: &StridedView) -> bool {
    let mut overflowed = false;
    let mut values = vec![T::default(); CHUNK.min(output.len())];
    for start in (0..output.len()).step_by(CHUNK) {
        let values = &mut values[..CHUNK.min(output.len() - start)];
        output.read(start, values);
        let mut changed = false;
        for value in values.iter_mut() {
            if let Some(saturated) = value.saturated() {
                *value = saturated;
                changed = true;
            }
        }
        if changed {
            output.write(start, values);
            overflowed = true;
        }
    }
    overflowed
}
