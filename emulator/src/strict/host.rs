//! Page-locked host memory between the call of a copy and the copy.
//!
//! Until the copy has run, the host must not write the source and must not touch the target. The
//! emulator cannot see these accesses. So it compares the source with its digest at the call, and
//! fills the target with a pattern, which it compares too. Whole pages of the target are also
//! fenced, so that a read is seen.
//!
//! Invariant: an access that later calls or functions of the program may order before the copy is
//! not watched.

use std::sync::Arc;

use super::order::describe;
use crate::base::report::{Report, ReportKind};
use crate::base::site::CallSite;
use crate::memory::access::{AccessMode, MemoryAccess};
use crate::memory::fault::Fence;
use crate::memory::footprint::Footprint;
use crate::memory::guard::PENDING;

/// Bytes that are read or filled at a time.
const BLOCK_BYTES: usize = 4096;

#[derive(Debug)]
pub(super) struct HostWatch {
    pub(super) access: MemoryAccess,
    digest: u64,
    fence: Option<Fence>,
}

impl HostWatch {
    /// Returns `None` if the access is not to host memory that the emulator knows.
    pub(super) fn new(access: &MemoryAccess) -> Option<Self> {
        let footprint =
            access.footprint().filter(|footprint| access.is_on_host() && !footprint.is_empty())?;
        if access.mode == AccessMode::Read {
            return Some(Self { access: access.clone(), digest: digest(access), fence: None });
        }
        let pattern: Vec<u8> = PENDING.to_le_bytes().repeat(BLOCK_BYTES / 2);
        each_block(access, |offset, len| access.span.write(offset, &pattern[..len]));
        let digest = digest(access);
        let mut lines = footprint.each_line();
        let fence = match (lines.next(), lines.next(), access.span.allocation()) {
            (Some(line), None, Some(owner)) => {
                owner.fence(line.start - owner.base()..line.end - owner.base())
            }
            _ => None,
        };
        Some(Self { access: access.clone(), digest, fence })
    }

    /// Reports an access of the host since the call of `site` on `stream`.
    pub(super) fn finding(self, stream: u64, site: Option<&Arc<CallSite>>) -> Option<Report> {
        let Self { access, digest: before, fence } = self;
        let owner = access.span.allocation().filter(|owner| owner.freed().is_none())?;
        let touched = fence.as_ref().and_then(Fence::touched);
        drop(fence);
        let (buffer, what) = (describe(owner), access.what);
        let until = format!("synchronize stream {stream}, or an event recorded on it after [1],");
        let found = if let Some(address) = touched {
            format!(
                "byte {} of {buffer} was touched by the host before [1] wrote it as {what}; {until} before the host \
                 touches it",
                address - owner.base()
            )
        } else if digest(&access) == before {
            return None;
        } else {
            let bytes = access.footprint()?.extent();
            let verb = if access.mode == AccessMode::Read { "read" } else { "wrote" };
            format!(
                "bytes {} to {} of {buffer} were changed by the host before [1] {verb} them as {what}; {until} before \
                 the host writes them",
                bytes.start - owner.base(),
                bytes.end - 1 - owner.base()
            )
        };
        Some(Report::new(ReportKind::Race, found, site.into_iter().cloned().collect()))
    }
}

/// `visit` gets offsets in the span, and lengths.
fn each_block(access: &MemoryAccess, mut visit: impl FnMut(usize, usize)) {
    let start = access.span.address();
    for line in access.footprint().iter().flat_map(Footprint::each_line) {
        for at in line.clone().step_by(BLOCK_BYTES) {
            visit(at - start, BLOCK_BYTES.min(line.end - at));
        }
    }
}

fn digest(access: &MemoryAccess) -> u64 {
    let (mut block, mut state) = ([0_u64; BLOCK_BYTES / 8], 0_u64);
    each_block(access, |offset, len| {
        let words = &mut block[..len / 8];
        access.span.read(offset, words);
        let mut last = [0_u8; 8];
        let rest = len % 8;
        access.span.read(offset + len - rest, &mut last[..rest]);
        for word in words.iter().copied().chain([u64::from_le_bytes(last)]) {
            state = (state.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    });
    state
}
