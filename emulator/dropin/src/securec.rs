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

/// Makes the text in `to` empty and returns the code that says so.
///
/// # Safety
///
/// `to` has at least one byte.
unsafe fn emptied(to: *mut c_char, code: c_int) -> c_int {
    // SAFETY: the caller promises this room.
    unsafe { to.write(0) };
    code + CLEARED
}

/// Returns the error code of arguments if every function of texts refuses them.
///
/// # Safety
///
/// `to` is NULL or has `room` bytes.
unsafe fn refused(to: *mut c_char, room: usize, from: *const c_char, count: usize) -> Option<c_int> {
    if room == 0 || room > MAX_MEMORY {
        return Some(RANGE);
    }
    if to.is_null() {
        return Some(INVALID);
    }
    let code = if from.is_null() {
        INVALID
    } else if count > MAX_MEMORY {
        RANGE
    } else {
        return None;
    };
    // SAFETY: the buffer is not NULL, and `room` is at least 1.
    Some(unsafe { emptied(to, code) })
}

/// Returns whether a text of `len` characters and its NUL share bytes with the target's `used`
/// bytes.
fn shares(to: *const c_char, used: usize, from: *const c_char, len: usize) -> bool {
    let (to, from) = (to.addr(), from.addr());
    (to < from && to + used >= from) || (from < to && from + len >= to)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strcpy_s(to: *mut c_char, room: usize, from: *const c_char) -> c_int {
    // SAFETY: the contract is the same. A text with as many characters as the buffer does not fit.
    unsafe { strncpy_s(to, room, from, room) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strncpy_s(to: *mut c_char, room: usize, from: *const c_char, count: usize) -> c_int {
    // SAFETY: the buffer is the caller's.
    if let Some(code) = unsafe { refused(to, room, from, count) } {
        return code;
    }
    // SAFETY: the text is the caller's; the call reads at most `count` characters.
    let len = unsafe { libc::strnlen(from, count.min(room)) };
    let code = if len == room {
        RANGE
    } else if shares(to, len, from, len) {
        OVERLAP
    } else {
        // SAFETY: the characters and the NUL fit.
        unsafe { put(to, from, len) };
        return 0;
    };
    // SAFETY: the buffer has at least one byte.
    unsafe { emptied(to, code) }
}

/// Writes `len` characters and a NUL.
///
/// # Safety
///
/// `from` has `len` characters, and `to` has room for one more.
unsafe fn put(to: *mut c_char, from: *const c_char, len: usize) {
    // SAFETY: the caller promises both ranges, and they may be the same.
    unsafe { std::ptr::copy(from, to, len) };
    // SAFETY: the caller promises this room.
    let end = unsafe { to.add(len) };
    // SAFETY: the caller promises this room.
    unsafe { end.write(0) };
}

/// Appends at most `count` characters to a text.
///
/// # Safety
///
/// `to` has `room` bytes, and its text `at`. `from` is a text or has `count` characters.
unsafe fn append(to: *mut c_char, at: usize, room: usize, from: *const c_char, count: usize) -> c_int {
    // SAFETY: the caller's text; the call reads at most `count` characters.
    let len = unsafe { libc::strnlen(from, count) };
    let is_behind = to.addr() + at <= from.addr();
    let is_shared = shares(to, at + len, from, len);
    let code = if at == room && (is_behind || !is_shared) {
        INVALID
    } else if is_shared {
        OVERLAP
    } else if at + len >= room || to.cast_const() == from {
        RANGE
    } else {
        // SAFETY: the text in the buffer ends before `room`.
        let end = unsafe { to.add(at) };
        // SAFETY: the characters and the NUL fit behind `at`.
        unsafe { put(end, from, len) };
        return 0;
    };
    // SAFETY: the buffer has at least one byte.
    unsafe { emptied(to, code) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strncat_s(to: *mut c_char, room: usize, from: *const c_char, count: usize) -> c_int {
    // SAFETY: the buffer is the caller's.
    if let Some(code) = unsafe { refused(to, room, from, count) } {
        return code;
    }
    // SAFETY: the buffer is the caller's; the call reads at most `room` bytes.
    let at = unsafe { libc::strnlen(to, room) };
    // SAFETY: the text is the caller's.
    unsafe { append(to, at, room, from, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strcat_s(to: *mut c_char, room: usize, from: *const c_char) -> c_int {
    // SAFETY: the buffer is the caller's.
    if let Some(code) = unsafe { refused(to, room, from, 0) } {
        return code;
    }
    // SAFETY: the buffer is the caller's; the call reads at most `room` bytes.
    let at = unsafe { libc::strnlen(to, room) };
    // SAFETY: the text is the caller's. A longer text does not fit.
    unsafe { append(to, at, room, from, room - at) }
}
