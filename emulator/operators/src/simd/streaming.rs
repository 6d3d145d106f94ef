//! Copies that bypass the caches.
#![expect(unsafe_code, reason = "stores that no safe function offers")]

#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Bypasses the caches if the processor can: the target is not read first, and other cached data
/// stays.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `len` bytes, without overlap. Other threads may
/// change the source meanwhile.
pub unsafe fn copy_streaming(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        // The bytes before and after whole lines are copied normally.
        let head = to.align_offset(LINE).min(len);
        let lines = (len - head) / LINE;
        let tail = head + lines * LINE;
        // SAFETY: `head` is at most `len`.
        unsafe { std::ptr::copy_nonoverlapping(from, to, head) };
        for at in (head..tail).step_by(size_of::<__m128i>()) {
            #[expect(
                clippy::cast_ptr_alignment,
                reason = "one is loaded without alignment, the other has it: see below"
            )]
            let (from, to) = (from.wrapping_add(at).cast::<__m128i>(), to.wrapping_add(at).cast::<__m128i>());
            // SAFETY: below `len`; a load without alignment.
            let bytes = unsafe { _mm_loadu_si128(from) };
            // SAFETY: below `len`; addresses are aligned to 16 bytes from `head` on.
            unsafe { _mm_stream_si128(to, bytes) };
        }
        // SAFETY: part of every x86-64; orders the stores above.
        unsafe { _mm_sfence() };
        let (from, to) = (from.wrapping_add(tail), to.wrapping_add(tail));
        // SAFETY: `tail` is at most `len`.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len - tail) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's guarantee.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_from_and_at_any_address_and_none_beside_them() {
        let from: Vec<u8> = (0..512_usize).map(|at| (at * 7 % 251) as u8 + 1).collect();
        for (from_offset, offset, len) in (0..20).flat_map(|from| {
            (0..70).flat_map(move |to| [0, 1, 15, 16, 63, 64, 65, 200, 300].map(|len| (from, to, len)))
        }) {
            let mut to = [0_u8; 512];
            let (source, target) = (&from[from_offset..from_offset + len], &mut to[offset..offset + len]);
            // SAFETY: equal lengths, and the target is exclusive.
            unsafe { copy_streaming(source.as_ptr(), target.as_mut_ptr(), len) };
            assert_eq!(to[offset..offset + len], *source, "{len} bytes from {from_offset} to {offset}");
            assert!(
                to[..offset].iter().chain(&to[offset + len..]).all(|byte| *byte == 0),
                "{len} bytes to {offset}"
            );
        }
    }
}
