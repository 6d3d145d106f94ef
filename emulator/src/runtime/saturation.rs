//! Saturation: the overflow mode of older chips.
//!
//! A pass over an operator's outputs replaces overflows by the largest number. Overflows within an
//! operator are not detected; CANN promises no precision in this mode.

use std::sync::atomic::{AtomicBool, Ordering};

use ascend_tp_emulator_operators::saturate::saturate;
use ascend_tp_emulator_operators::view::StridedView;

#[derive(Debug, Default)]
pub(crate) struct Saturation {
    is_on: AtomicBool,
    pub(super) has_overflowed: AtomicBool,
}

impl Saturation {
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Overflows in the output are saturated and recorded.
    pub(crate) fn pass(&self, output: &StridedView) {
        if saturate(output) {
            self.has_overflowed.store(true, Ordering::Relaxed);
        }
    }
}
