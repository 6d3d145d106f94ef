//! Addresses and handles do not leave the safe layer.

use ascend_tp::device::{BufferSlice, Stream};

fn main() {}

fn address(slice: &BufferSlice) -> *mut std::ffi::c_void {
    slice.address()
}

fn handle(stream: &Stream) -> *mut std::ffi::c_void {
    stream.raw()
}
