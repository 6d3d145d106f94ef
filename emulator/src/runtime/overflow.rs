//! The overflow status of a device, which streams write and reset.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::failure::{Failure, code};
use crate::machine::Machine;
use crate::memory::access::MemoryAccess;
use crate::runtime::saturation::Saturation;
use crate::runtime::stream::StreamEntry;
use crate::scheduler::pool::{StreamTask, Workers};

impl Machine {
    pub(crate) fn saturation(&self, card: u32) -> Arc<Saturation> {
        Arc::clone(&self.lock().runtime.cards[card as usize].saturation)
    }

    pub(crate) fn write_overflow_status(
        &self,
        address: *mut c_void,
        bytes: usize,
        stream: *mut c_void,
    ) -> Result<(), Failure> {
        let saturation = self.saturation(self.stream_card(stream)?);
        if bytes < STATUS_BYTES {
            let what = format!("outputSize is {bytes}; the status has {STATUS_BYTES} bytes");
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        let status = self.device_span(address, STATUS_BYTES)?;
        let accesses = self.watched(|| vec![MemoryAccess::write("outputAddr", &status)]);
        let task: StreamTask = Arc::new(move |_: &Workers| {
            let mut bytes = [0_u8; STATUS_BYTES];
            bytes[0] = u8::from(saturation.has_overflowed.load(Ordering::Relaxed));
            status.write(0, &bytes);
            Ok(())
        });
        let task = self.has_numbers().then_some(task);
        let entry = StreamEntry::Task { name: "aclrtGetOverflowStatus", task, load: None, is_brief: true };
        self.enqueue(stream, entry, accesses).map(|_| ())
    }

    pub(crate) fn reset_overflow_status(&self, stream: *mut c_void) -> Result<(), Failure> {
        let saturation = self.saturation(self.stream_card(stream)?);
        let task: StreamTask = Arc::new(move |_: &Workers| {
            saturation.has_overflowed.store(false, Ordering::Relaxed);
            Ok(())
        });
        let task = self.has_numbers().then_some(task);
        let entry = StreamEntry::Task { name: "aclrtResetOverflowStatus", task, load: None, is_brief: true };
        self.enqueue(stream, entry, Vec::new()).map(|_| ())
    }
}

/// Size for `aclrtGetOverflowStatus` (CANN runtime reference).
const STATUS_BYTES: usize = 64;
