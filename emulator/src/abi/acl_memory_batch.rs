//! AscendCL: batches of copies between host and card.
//!
//! Invariant: a batch is checked as a whole before its first copy.

use std::ffi::c_void;

use ascend_tp_sys::{aclrtMemLocation, aclrtMemLocationType, aclrtMemcpyBatchAttr, aclrtStream};

use crate::abi::acl_memory::{CopySide, CopyTiming};
use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::machine::Machine;
use crate::memory::copy::Copy;
use crate::memory::raw::load_array;

/// Limit of the driver.
const MOST_COPIES: usize = 4096;

/// Arrays of the C call.
#[derive(Clone, Copy)]
struct BatchArrays {
    dsts: *mut *mut c_void,
    dest_maxs: *mut usize,
    srcs: *mut *mut c_void,
    sizes: *mut usize,
    num_batches: usize,
    attrs: *mut aclrtMemcpyBatchAttr,
    attrs_indexes: *mut usize,
    num_attrs: usize,
}

/// A refusal and, if only one copy is wrong, its index.
struct BatchFailure {
    failure: Failure,
    copy: Option<usize>,
}

impl From<Failure> for BatchFailure {
    fn from(failure: Failure) -> Self {
        Self { failure, copy: None }
    }
}

fn refuse<T>(code: i32, copy: Option<usize>, what: String) -> Result<T, BatchFailure> {
    Err(BatchFailure { failure: Failure::new(code, what), copy })
}

/// One direction of all copies, with the card.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchDirection {
    ToCard(u32),
    ToHost(u32),
}

impl BatchDirection {
    fn of(attribute: &aclrtMemcpyBatchAttr) -> Option<Self> {
        let aclrtMemcpyBatchAttr { dstLoc, srcLoc, .. } = attribute;
        let is_host =
            |place: &aclrtMemLocation| place.type_ == aclrtMemLocationType::ACL_MEM_LOCATION_TYPE_HOST;
        let is_card =
            |place: &aclrtMemLocation| place.type_ == aclrtMemLocationType::ACL_MEM_LOCATION_TYPE_DEVICE;
        if is_card(dstLoc) && is_host(srcLoc) {
            Some(Self::ToCard(dstLoc.id))
        } else if is_host(dstLoc) && is_card(srcLoc) {
            Some(Self::ToHost(srcLoc.id))
        } else {
            None
        }
    }

    fn is_like(self, other: Self) -> bool {
        matches!((self, other), (Self::ToCard(_), Self::ToCard(_)) | (Self::ToHost(_), Self::ToHost(_)))
    }
}

impl Machine {
    pub(super) unsafe fn aclrtMemcpyBatch(
        &self,
        dsts: *mut *mut c_void,
        dest_maxs: *mut usize,
        srcs: *mut *mut c_void,
        sizes: *mut usize,
        num_batches: usize,
        attrs: *mut aclrtMemcpyBatchAttr,
        attrs_indexes: *mut usize,
        num_attrs: usize,
        fail_index: Out<usize>,
    ) -> Result<(), Failure> {
        fail_index.set("fail_index", usize::MAX)?;
        let arrays =
            BatchArrays { dsts, dest_maxs, srcs, sizes, num_batches, attrs, attrs_indexes, num_attrs };
        // SAFETY: the caller upholds this contract.
        unsafe { self.copy_batch(arrays, CopyTiming::Now) }.or_else(|refused| tell(refused, fail_index))
    }

    pub(super) unsafe fn aclrtMemcpyBatchAsync(
        &self,
        dsts: *mut *mut c_void,
        dest_maxs: *mut usize,
        srcs: *mut *mut c_void,
        sizes: *mut usize,
        num_batches: usize,
        attrs: *mut aclrtMemcpyBatchAttr,
        attrs_indexes: *mut usize,
        num_attrs: usize,
        fail_index: Out<usize>,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        fail_index.set("fail_index", usize::MAX)?;
        let arrays =
            BatchArrays { dsts, dest_maxs, srcs, sizes, num_batches, attrs, attrs_indexes, num_attrs };
        // SAFETY: the caller upholds this contract.
        unsafe { self.copy_batch(arrays, CopyTiming::OnStream(stream)) }
            .or_else(|refused| tell(refused, fail_index))
    }

    pub(super) unsafe fn aclrtMemcpyBatchV2(
        &self,
        dsts: *mut *mut c_void,
        dest_maxs: *mut usize,
        srcs: *mut *mut c_void,
        sizes: *mut usize,
        num_batches: usize,
        attrs: *mut aclrtMemcpyBatchAttr,
        attrs_indexes: *mut usize,
        num_attrs: usize,
    ) -> Result<(), Failure> {
        let arrays =
            BatchArrays { dsts, dest_maxs, srcs, sizes, num_batches, attrs, attrs_indexes, num_attrs };
        // SAFETY: the caller upholds this contract.
        unsafe { self.copy_batch(arrays, CopyTiming::Now) }.map_err(|refused| refused.failure)
    }

    pub(super) unsafe fn aclrtMemcpyBatchAsyncV2(
        &self,
        dsts: *mut *mut c_void,
        dest_maxs: *mut usize,
        srcs: *mut *mut c_void,
        sizes: *mut usize,
        num_batches: usize,
        attrs: *mut aclrtMemcpyBatchAttr,
        attrs_indexes: *mut usize,
        num_attrs: usize,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let arrays =
            BatchArrays { dsts, dest_maxs, srcs, sizes, num_batches, attrs, attrs_indexes, num_attrs };
        // SAFETY: the caller upholds this contract.
        unsafe { self.copy_batch(arrays, CopyTiming::OnStream(stream)) }.map_err(|refused| refused.failure)
    }

    /// # Safety
    ///
    /// The arrays have the lengths that the call gives, and their addresses the sizes.
    unsafe fn copy_batch(&self, arrays: BatchArrays, order: CopyTiming) -> Result<(), BatchFailure> {
        // SAFETY: the caller upholds this contract.
        for copy in unsafe { self.copies_of(arrays) }? {
            self.start_copy(copy, order)?;
        }
        Ok(())
    }

    /// Returns the copies of at least one byte.
    ///
    /// # Safety
    ///
    /// See [`Machine::copy_batch`].
    unsafe fn copies_of(&self, arrays: BatchArrays) -> Result<Vec<Copy>, BatchFailure> {
        let count = arrays.num_batches;
        if count == 0 || count > MOST_COPIES {
            let what = format!("num_batches: expected 1 to {MOST_COPIES}, found {count}");
            return refuse(code::INVALID_PARAM, None, what);
        }
        // SAFETY: the caller upholds this contract.
        let dsts = unsafe { load_array("dsts", arrays.dsts, count) }?;
        // SAFETY: as above.
        let dest_maxs = unsafe { load_array("dest_maxs", arrays.dest_maxs, count) }?;
        // SAFETY: as above.
        let srcs = unsafe { load_array("srcs", arrays.srcs, count) }?;
        // SAFETY: as above.
        let sizes = unsafe { load_array("sizes", arrays.sizes, count) }?;
        // SAFETY: as above.
        let directions = unsafe { directions(arrays) }?;
        let mut copies = Vec::with_capacity(count);
        for (at, direction) in directions.into_iter().enumerate() {
            if sizes[at] > dest_maxs[at] {
                let what =
                    format!("sizes[{at}] is {}, more than dest_maxs[{at}], {}", sizes[at], dest_maxs[at]);
                return refuse(code::INVALID_PARAM, None, what);
            }
            if sizes[at] == 0 {
                continue;
            }
            let (card, to, from) = match direction {
                BatchDirection::ToCard(card) => (card, CopySide::Device, CopySide::Host),
                BatchDirection::ToHost(card) => (card, CopySide::Host, CopySide::Device),
            };
            // SAFETY: the caller guarantees the bytes at both addresses.
            let into = unsafe { self.side(dsts[at], sizes[at], to, &format!("dsts[{at}]")) }?;
            // SAFETY: as above.
            let source = unsafe { self.side(srcs[at], sizes[at], from, &format!("srcs[{at}]")) }?;
            let expected = if to == CopySide::Device { (Some(card), None) } else { (None, Some(card)) };
            if (into.card(), source.card()) != expected {
                let what = format!(
                    "copy {at}: its attribute says {}, but dsts[{at}] is on {}, srcs[{at}] on {}",
                    if to == CopySide::Device {
                        format!("from the host to card {card}")
                    } else {
                        format!("from card {card} to the host")
                    },
                    place(into.card()),
                    place(source.card()),
                );
                return refuse(code::PARAM_INVALID, Some(at), what);
            }
            copies.push(Copy::linear(into, source, sizes[at]));
        }
        Ok(copies)
    }
}

fn place(card: Option<u32>) -> String {
    card.map_or_else(|| "the host".to_owned(), |card| format!("card {card}"))
}

fn tell(refused: BatchFailure, fail_index: Out<usize>) -> Result<(), Failure> {
    if let Some(copy) = refused.copy {
        fail_index.set("fail_index", copy)?;
    }
    Err(refused.failure)
}

/// Returns the direction of each copy. Attribute k applies from its index to the next one.
///
/// # Safety
///
/// See [`Machine::copy_batch`].
unsafe fn directions(arrays: BatchArrays) -> Result<Vec<BatchDirection>, BatchFailure> {
    let (count, kinds) = (arrays.num_batches, arrays.num_attrs);
    if kinds == 0 || kinds > count {
        let what = format!("num_attrs: expected 1 to {count} (num_batches), found {kinds}");
        return refuse(code::PARAM_INVALID, None, what);
    }
    // SAFETY: the caller upholds this contract.
    let attributes = unsafe { load_array("attrs", arrays.attrs, kinds) }?;
    // SAFETY: as above.
    let firsts = unsafe { load_array("attrs_indexes", arrays.attrs_indexes, kinds) }?;
    if firsts[0] != 0 || firsts.windows(2).any(|pair| pair[0] >= pair[1]) || firsts[kinds - 1] >= count {
        let what = format!(
            "attrs_indexes: expected ascending indexes from 0 to less than {count}, found {firsts:?}"
        );
        return refuse(code::PARAM_INVALID, None, what);
    }
    let mut directions: Vec<BatchDirection> = Vec::with_capacity(count);
    for (kind, attribute) in attributes.iter().enumerate() {
        if attribute.rsv != [0; 16] {
            return refuse(code::INVALID_PARAM, None, format!("attrs[{kind}].rsv: expected zeros"));
        }
        let direction = BatchDirection::of(attribute)
            .filter(|found| directions.first().is_none_or(|first| first.is_like(*found)));
        let Some(direction) = direction else {
            let what = format!(
                "attrs[{kind}]: expected all copies from host to device, or all from device to host, found {} to {}",
                attribute.srcLoc.type_.0, attribute.dstLoc.type_.0
            );
            return refuse(code::PARAM_INVALID, Some(firsts[kind]), what);
        };
        let end = firsts.get(kind + 1).copied().unwrap_or(count);
        directions.resize(end, direction);
    }
    Ok(directions)
}
