//! Saturation: the overflow mode of older chips, in which what overflows becomes the largest number, and who asks is told.
//!
//! Input: a device's mode (`aclrtSetDeviceSatMode`), the outputs of its operators. Output: outputs without infinities and NaN,
//! and whether there were some since the last reset. Method: a pass over an operator's outputs after it; what overflows
//! between two steps of one operator is not seen, and CANN promises no precision in this mode. Invariant: in the default mode
//! (INFNAN) it costs a look at a flag. Does not: treat copies and collectives, which keep bytes as they are.

use std::sync::atomic::{AtomicBool, Ordering};

use ascend_tp_emulator_operators::saturate::saturate;
use ascend_tp_emulator_operators::view::StridedView;

/// A device's mode and what it has seen.
#[derive(Debug, Default)]
pub(crate) struct Saturation {
    is_on: AtomicBool,
    pub(super) has_overflowed: AtomicBool,
}

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
    pub(crate) fn pass(&self, output: &StridedView) {
        if saturate(output) {
            self.has_overflowed.store(true, Ordering::Relaxed);
        }
    }
}
