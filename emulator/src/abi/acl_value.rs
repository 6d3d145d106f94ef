//! AscendCL: values in memory that streams write and wait for, and reductions by the copy engine.

use std::ffi::c_void;
use std::sync::Arc;

use ascend_tp_machine::launch::Access as AccessKind;
use ascend_tp_sys::{aclDataType, aclrtReduceKind, aclrtStream};

use crate::base::failure::{Failure, code};
use crate::hccl::transfer::reduce::reduce;
use crate::hccl::{CombineOp, DataType};
use crate::machine::Machine;
use crate::memory::access::MemoryAccess;
use crate::memory::raw::RawSpan;
use crate::runtime::stream::StreamEntry;
use crate::scheduler::pool::Without;
use crate::scheduler::pool::{StreamTask, Workers};
use crate::scheduler::stream_wait::{Compare, ValueWait};
use crate::timed::VirtualCost;

const VALUE_BYTES: usize = 8;
const TILE_ELEMENTS: usize = 1 << 18;

impl Machine {
    /// Values are 8 aligned bytes of device memory.
    fn value_place(&self, dev_addr: *mut c_void) -> Result<RawSpan, Failure> {
        if dev_addr.is_null() {
            return Err(Failure::null("dev_addr"));
        }
        if !dev_addr.addr().is_multiple_of(VALUE_BYTES) {
            let what = format!("devAddr {:#x} is no multiple of {VALUE_BYTES}", dev_addr.addr());
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        self.device_span(dev_addr, VALUE_BYTES)
    }

    pub(super) fn aclrtValueWrite(
        &self,
        dev_addr: *mut c_void,
        value: u64,
        flag: u32,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        if flag != 0 {
            return Err(Failure::new(
                code::INVALID_PARAM,
                format!("flag is {flag:#x}; it must be 0 (reserved)"),
            ));
        }
        let place = self.value_place(dev_addr)?;
        let accesses = vec![MemoryAccess::write("dev_addr", &place)];
        let task: StreamTask = Arc::new(move |_: &Workers| {
            place.write(0, &[value]);
            Ok(())
        });
        let entry = self.work("aclrtValueWrite", &VirtualCost::Nothing, Without::Same, task);
        self.enqueue(stream, entry, accesses).map(|_| ())
    }

    pub(super) fn aclrtValueWait(
        &self,
        dev_addr: *mut c_void,
        value: u64,
        flag: u32,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let compare = match flag {
            0 => Compare::GreaterOrEqual,
            1 => Compare::Equal,
            2 => Compare::And,
            3 => Compare::Nor,
            _ => {
                let what = format!("flag {flag:#x} is none of GEQ 0, EQ 1, AND 2, NOR 3");
                return Err(Failure::new(code::INVALID_PARAM, what));
            }
        };
        let place = self.value_place(dev_addr)?;
        self.enqueue(stream, StreamEntry::ValueWait(ValueWait { place, value, compare }), Vec::new())
            .map(|_| ())
    }

    /// `count` is in bytes. Atlas A2 and A3 support sum, max and min of int8, int16, int32, fp16,
    /// fp32 and bf16. All memory is on the stream's device (AscendCL guide, aclrtReduceAsync).
    pub(super) fn aclrtReduceAsync(
        &self,
        dst: *mut c_void,
        src: *const c_void,
        count: u64,
        kind: aclrtReduceKind,
        type_: aclDataType,
        stream: aclrtStream,
        reserve: *mut c_void,
    ) -> Result<(), Failure> {
        if !reserve.is_null() {
            return Err(Failure::new(code::INVALID_PARAM, "reserve is not NULL; it must be (reserved)"));
        }
        let op = match kind {
            aclrtReduceKind::ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM => CombineOp::Sum,
            aclrtReduceKind::ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX => CombineOp::Max,
            aclrtReduceKind::ACL_RT_MEMCPY_SDMA_AUTOMATIC_MIN => CombineOp::Min,
            other => {
                let what =
                    format!("kind {}: SUM 10, MAX 11 and MIN 12 are supported (EQUAL 13 is not)", other.0);
                return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
            }
        };
        let (dtype, size) = match type_ {
            aclDataType::ACL_INT8 => (DataType::Int8, 1),
            aclDataType::ACL_INT16 => (DataType::Int16, 2),
            aclDataType::ACL_INT32 => (DataType::Int32, 4),
            aclDataType::ACL_FLOAT16 => (DataType::Fp16, 2),
            aclDataType::ACL_BF16 => (DataType::Bf16, 2),
            aclDataType::ACL_FLOAT => (DataType::Fp32, 4),
            other => {
                let what = format!(
                    "type {}: an {} reduces ACL_INT8 2, ACL_INT16 6, ACL_INT32 3, ACL_FLOAT16 1, ACL_BF16 27 and ACL_FLOAT 0",
                    other.0,
                    self.config().soc.series()
                );
                return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
            }
        };
        let bytes = count as usize;
        if !bytes.is_multiple_of(size) {
            let what = format!("count is {count} bytes, no multiple of the {size} bytes of an element");
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        let (into, from) = (self.device_span(dst, bytes)?, self.device_span(src, bytes)?);
        let on = self.stream_card(stream)?;
        for (what, span) in [("dst", &into), ("src", &from)] {
            if span.card() != Some(on) {
                let what = format!("{what} is not on card {on}, where the stream is");
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
        }
        if into.overlaps(&from) {
            return Err(Failure::new(code::PARAM_INVALID, "dst and src overlap"));
        }
        let accesses = vec![
            MemoryAccess::read("dst", &into),
            MemoryAccess::write("dst", &into),
            MemoryAccess::read("src", &from),
        ];
        let elements = bytes / size;
        let task: StreamTask = Arc::new(move |workers: &Workers| {
            let (inputs, outputs) = ([into.clone(), from.clone()], [into.clone()]);
            workers.tiles(elements.div_ceil(TILE_ELEMENTS), &|tile| {
                let first = tile * TILE_ELEMENTS;
                reduce(&inputs, &outputs, dtype, op, first, TILE_ELEMENTS.min(elements - first));
            });
            Ok(())
        });
        let cost = VirtualCost::Pass(bytes, &[AccessKind::Update, AccessKind::Read]);
        let entry = self.work("aclrtReduceAsync", &cost, Without::Nothing, task);
        self.enqueue(stream, entry, accesses).map(|_| ())
    }
}
