//! The two functions of `libc_sec.so` that torchair calls: bounded `strcpy` and `vsnprintf`. Text
//! that does not fit is an error.
#![expect(unsafe_code, reason = "functions called from C, and a function of C")]

use std::ffi::{c_char, c_int, c_void};

/// Invalid argument, and a buffer that is too small.
const INVALID: c_int = 22;
const RANGE: c_int = 34;

unsafe extern "C" {
    /// The supported processors pass an argument list as a pointer.
    fn vsnprintf(text: *mut c_char, room: usize, format: *const c_char, arguments: *mut c_void) -> c_int;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strcpy_s(to: *mut c_char, room: usize, from: *const c_char) -> c_int {
    if to.is_null() || from.is_null() || room == 0 {
        return INVALID;
    }
    // SAFETY: not NULL, so the caller's string; at most `room` bytes are read.
    let len = unsafe { libc::strnlen(from, room) };
    if len == room {
        // SAFETY: the buffer has at least one byte.
        unsafe { to.write(0) };
        return RANGE;
    }
    // SAFETY: the string and its NUL fit; the two buffers may overlap.
    unsafe { std::ptr::copy(from, to, len + 1) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vsnprintf_s(
    to: *mut c_char,
    room: usize,
    count: usize,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    if to.is_null() || format.is_null() || room == 0 {
        return -1;
    }
    let limit = room.min(count.saturating_add(1));
    // SAFETY: the caller's format and arguments; `limit` does not exceed the buffer.
    let written = unsafe { vsnprintf(to, limit, format, arguments) };
    match usize::try_from(written) {
        Ok(len) if len < limit => written,
        // Truncation at `count` is requested; truncation at the buffer size is an error.
        Ok(_) if limit <= count => {
            // SAFETY: the buffer has at least one byte.
            unsafe { to.write(0) };
            -1
        }
        _ => -1,
    }
}
