//! Saturation: the overflow mode of older chips, which replaces overflows by the largest number and
//! reports them.
//!
//! Input: a device's mode (`aclrtSetDeviceSatMode`), outputs of its operators. Output: outputs
//! without infinities and NaN, and whether there were any since the last reset.
//!
//! Method: a pass over the outputs after each operator. Overflows between two steps of one operator
//! are not detected; CANN promises no precision in this mode. Invariant: the default mode (INFNAN)
//! costs only a flag check. Not here: copies and collectives, which keep bytes unchanged.

use std::sync::atomic::{AtomicBool, Ordering};

use ascend_tp_emulator_operators::saturate::saturate;
use ascend_tp_emulator_operators::view::StridedView;

#[derive(Debug, Default)]
pub(crate) struct Saturation {
    is_on: AtomicBool,
    pub(super) has_overflowed: AtomicBool,
}

impl Saturation {
    /// Returns whether overflows become the largest number.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Saturates the output of an operator and records overflows.
    pub(crate) fn pass(&self, output: &StridedView) {
        if saturate(output) {
            self.has_overflowed.store(true, Ordering::Relaxed);
        }
    }
}
