//! Saturation of an operator's output.

use half::{bf16, f16};

use crate::dtype::AclType;
use crate::raw::Pod;
use crate::view::StridedView;

const CHUNK: usize = 4096;

/// Replaces infinities by the largest number and NaN by zero. Returns whether any value changed.
pub fn saturate(output: &StridedView) -> bool {
    match output.dtype() {
        AclType::F32 => saturate_as::<f32>(output),
        AclType::F64 => saturate_as::<f64>(output),
        AclType::F16 => saturate_as::<f16>(output),
        AclType::BF16 => saturate_as::<bf16>(output),
        _ => false,
    }
}

/// A number that can overflow.
trait Float: Pod {
    /// Returns the replacement of a non-finite number.
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
