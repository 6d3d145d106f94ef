//! Functions of `libc_sec.so` that fill, copy and print within bounds. If a result does not fit,
//! the function returns an error and clears the target.
//!
//! Not here: functions with a variable number of arguments. This library cannot export them.
#![expect(unsafe_code, reason = "functions called from C, and a function of C")]

use std::ffi::{c_char, c_int, c_void};

/// Invalid argument, and a buffer that is too small.
const INVALID: c_int = 22;
const RANGE: c_int = 34;

/// Two texts or ranges of memory that share bytes.
const OVERLAP: c_int = 54;
/// Added to a code if the target was cleared.
const CLEARED: c_int = 128;

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

/// Largest size of memory and of text that the functions accept.
const MAX_MEMORY: usize = 0x7fff_ffff;

/// Copies `count` bytes. Ranges that share bytes are refused if `overlap` is.
///
/// # Safety
///
/// `to` has `room` bytes, and `from` has `count` bytes.
unsafe fn copy(to: *mut u8, room: usize, from: *const u8, count: usize, overlap: Overlap) -> c_int {
    if room == 0 || room > MAX_MEMORY {
        return RANGE;
    }
    if to.is_null() {
        return INVALID;
    }
    let clear = |code: c_int| {
        // SAFETY: the caller's buffer has `room` bytes.
        unsafe { std::ptr::write_bytes(to, 0, room) };
        code + CLEARED
    };
    if from.is_null() {
        return clear(INVALID);
    }
    if count > room {
        return clear(RANGE);
    }
    let is_shared = to.addr() < from.addr() + count && from.addr() < to.addr() + count;
    if overlap == Overlap::Refused && is_shared && to.cast_const() != from {
        return clear(OVERLAP);
    }
    // SAFETY: both ranges have `count` bytes; they may overlap.
    unsafe { std::ptr::copy(from, to, count) };
    0
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Overlap {
    Allowed,
    Refused,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy_s(to: *mut c_void, room: usize, from: *const c_void, count: usize) -> c_int {
    // SAFETY: the caller's ranges.
    unsafe { copy(to.cast(), room, from.cast(), count, Overlap::Refused) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memmove_s(to: *mut c_void, room: usize, from: *const c_void, count: usize) -> c_int {
    // SAFETY: the caller's ranges.
    unsafe { copy(to.cast(), room, from.cast(), count, Overlap::Allowed) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memset_s(to: *mut c_void, room: usize, value: c_int, count: usize) -> c_int {
    if room == 0 || room > MAX_MEMORY {
        return RANGE;
    }
    if to.is_null() {
        return INVALID;
    }
    let filled = count.min(room);
    // SAFETY: the caller's buffer has `room` bytes.
    unsafe { std::ptr::write_bytes(to.cast::<u8>(), value as u8, filled) };
    if count > room { RANGE + CLEARED } else { 0 }
}

/// Copies at most `count` characters of `from` to `to + at`, and a NUL.
///
/// # Safety
///
/// `to` has `room` bytes, and `from` is text or has `count` characters.
unsafe fn append(to: *mut c_char, at: usize, room: usize, from: *const c_char, count: usize) -> c_int {
    // SAFETY: at most `count` characters of the text are read.
    let len = unsafe { libc::strnlen(from, count.min(room - at)) };
    if len >= room - at {
        // SAFETY: the buffer has at least one byte.
        unsafe { to.write(0) };
        return RANGE + CLEARED;
    }
    // SAFETY: `at` is inside the buffer.
    let end = unsafe { to.add(at) };
    // SAFETY: the characters fit behind `at`; both texts may overlap.
    unsafe { std::ptr::copy(from, end, len) };
    // SAFETY: the NUL fits behind the characters.
    let end = unsafe { end.add(len) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strncpy_s(to: *mut c_char, room: usize, from: *const c_char, count: usize) -> c_int {
    if to.is_null() || from.is_null() || room == 0 || room > MAX_MEMORY {
        return INVALID;
    }
    // SAFETY: not NULL, so the caller's text and buffer.
    unsafe { append(to, 0, room, from, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strncat_s(to: *mut c_char, room: usize, from: *const c_char, count: usize) -> c_int {
    if to.is_null() || from.is_null() || room == 0 || room > MAX_MEMORY {
        return INVALID;
    }
    // SAFETY: not NULL, so the caller's buffer; at most `room` bytes are read.
    let at = unsafe { libc::strnlen(to, room) };
    if at == room {
        return INVALID;
    }
    // SAFETY: as above; the text in the buffer ends before `room`.
    unsafe { append(to, at, room, from, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strcat_s(to: *mut c_char, room: usize, from: *const c_char) -> c_int {
    // SAFETY: the same contract, with no limit of the characters.
    unsafe { strncat_s(to, room, from, usize::MAX) }
}
