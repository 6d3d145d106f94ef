//! The two functions of `libc_sec.so` that torchair calls: `strcpy` and `vsnprintf` that know how much room there is.
//!
//! Input → output: as the C functions. Invariant: nothing is written beyond the room, and what does not fit is an error.
#![expect(unsafe_code, reason = "functions called from C, and a function of C")]

use std::ffi::{c_char, c_int, c_void};

/// The C library's numbers for a wrong argument and for too little room.
const INVALID: c_int = 22;
const RANGE: c_int = 34;

unsafe extern "C" {
    /// A list of arguments is passed as a pointer on the supported processors.
    fn vsnprintf(text: *mut c_char, room: usize, format: *const c_char, arguments: *mut c_void) -> c_int;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strcpy_s(to: *mut c_char, room: usize, from: *const c_char) -> c_int {
    if to.is_null() || from.is_null() || room == 0 {
        return INVALID;
    }
    // SAFETY: not NULL, so the caller's string, of which no more is read than there is room for.
    let len = unsafe { libc::strnlen(from, room) };
    if len == room {
        // SAFETY: there is room for one character at least.
        unsafe { to.write(0) };
        return RANGE;
    }
    // SAFETY: the string and its end fit; the two places may overlap.
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
    // SAFETY: the caller's format and arguments, and no more room than the caller has.
    let written = unsafe { vsnprintf(to, limit, format, arguments) };
    match usize::try_from(written) {
        Ok(len) if len < limit => written,
        // Cut at `count` is what the caller asked for, cut at the room is not.
        Ok(_) if limit <= count => {
            // SAFETY: there is room for one character at least.
            unsafe { to.write(0) };
            -1
        }
        _ => -1,
    }
}
