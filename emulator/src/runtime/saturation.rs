//! Saturation: the overflow mode of older chips, in which what overflows becomes the largest number, and who asks is told.
//!
//! Input: a device's mode (`aclrtSetDeviceSatMode`), the outputs of its operators. Output: outputs without infinities and NaN,
//! and whether there were some since the last reset. Method: a pass over an operator's outputs after it; what overflows
//! between two steps of one operator is not seen, and CANN promises no precision in this mode. Invariant: in the default mode
//! (INFNAN) it costs a look at a flag. Does not: treat copies and collectives, which keep bytes as they are.

use std::sync::atomic::{AtomicBool, Ordering};

use half::{bf16, f16};

use crate::nn::dtype::DType;
use crate::nn::raw::Pod;
use crate::nn::view::View;

/// Elements of one step of the pass.
const CHUNK: usize = 4096;

/// A device's mode and what it has seen.
#[derive(Debug, Default)]
pub(crate) struct Saturation {
    is_on: AtomicBool,
    pub(super) has_overflowed: AtomicBool,
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

impl Saturation {
    /// Whether what overflows becomes the largest number.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Changes the mode.
    pub(crate) fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// An operator has written `output`.
    pub(crate) fn pass(&self, output: &View) {
        let overflowed = match output.dtype() {
            DType::F32 => saturate::<f32>(output),
            DType::F64 => saturate::<f64>(output),
            DType::F16 => saturate::<f16>(output),
            DType::BF16 => saturate::<bf16>(output),
            _ => false,
        };
        if overflowed {
            self.has_overflowed.store(true, Ordering::Relaxed);
        }
    }
}

fn saturate<T: Float>(output: &View) -> bool {
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
