//! The fault overlay, which counts events of a machine and decides when a fault strikes.
//!
//! Events are calls, allocations, and collectives when all ranks have arrived. Without an active
//! fault each event costs one atomic load.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use super::fault::{Calls, Checksum, Fault};
use crate::base::failure::{Failure, code};
use crate::hccl::matching::Matching;
use crate::memory::location::Location;
use crate::memory::raw::RawSpan;
use crate::memory::store::AllocationHook;

#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Number of active faults; at 0 every hook returns immediately.
    armed: AtomicUsize,
    overlay: Mutex<Overlay>,
}

#[derive(Debug, Default)]
struct Overlay {
    last_id: u64,
    laid: Vec<LaidFault>,
}

#[derive(Debug)]
struct LaidFault {
    id: u64,
    fault: Fault,
    seen: u64,
    struck: u64,
    lost: Vec<u32>,
}

impl LaidFault {
    fn strikes_at(&mut self, at: u64) -> bool {
        self.seen += 1;
        let strikes = self.seen == at;
        self.struck += u64::from(strikes);
        strikes
    }
}

/// Functions that report errors. They must work on a broken machine, so they do not count as
/// events.
const REPORTING: &[&str] = &[
    "aclGetRecentErrMsg",
    "aclrtGetLastError",
    "aclrtPeekAtLastError",
    "HcclGetErrorString",
    "HcclGetCommAsyncError",
];

pub(super) enum CallFault {
    Error(i32),
    Lose(u32),
    Kill,
}

impl Faults {
    pub(super) fn number(&self) -> u64 {
        let mut overlay = self.lock();
        overlay.last_id += 1;
        overlay.last_id
    }

    pub(super) fn lay(&self, id: u64, fault: Fault) {
        let mut overlay = self.lock();
        overlay.laid.push(LaidFault { id, fault, seen: 0, struck: 0, lost: Vec::new() });
        self.armed.store(overlay.laid.len(), Ordering::Release);
    }

    pub(super) fn lift(&self, id: u64) -> Vec<u32> {
        let mut overlay = self.lock();
        let found = overlay.laid.iter().position(|laid| laid.id == id);
        let lost = found.map(|at| overlay.laid.remove(at).lost).unwrap_or_default();
        self.armed.store(overlay.laid.len(), Ordering::Release);
        lost
    }

    pub(super) fn struck(&self, id: u64) -> u64 {
        self.lock().laid.iter().find(|laid| laid.id == id).map_or(0, |laid| laid.struck)
    }

    fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Acquire) > 0
    }

    pub(crate) fn strike_transfers(&self) -> bool {
        self.lock().laid.iter().any(|laid| laid.fault.strikes_transfers())
    }

    fn lock(&self) -> MutexGuard<'_, Overlay> {
        self.overlay.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a call of this function is not an event.
    pub(super) fn passes_by(&self, name: &str) -> bool {
        !self.is_armed() || REPORTING.contains(&name)
    }

    /// Counts a call by a thread on which `card` is current. Returns the first fault that strikes
    /// it and the number of the event.
    pub(super) fn count_call(&self, name: &str, card: Option<u32>) -> Option<(CallFault, u64)> {
        let mut first = None;
        for laid in &mut self.lock().laid {
            let Some(calls) = laid.fault.calls().cloned() else { continue };
            if !matches(&calls, name, card)
                || (card.is_none() && matches!(laid.fault, Fault::CardLost { .. }))
            {
                continue;
            }
            if laid.strikes_at(calls.at) && first.is_none() {
                first = match (&laid.fault, card) {
                    (Fault::Error { code, .. }, _) => Some((CallFault::Error(*code), calls.at)),
                    (Fault::CardLost { .. }, Some(card)) => {
                        laid.lost.push(card);
                        Some((CallFault::Lose(card), calls.at))
                    }
                    _ => Some((CallFault::Kill, calls.at)),
                };
            }
        }
        first
    }

    /// Counts a collective before it transfers data between `cards`, indexed by rank of the
    /// matching.
    pub(crate) fn before_transfer(
        &self,
        matching: &Matching,
        cards: impl FnOnce() -> Vec<(u32, u32)>,
    ) -> Result<(), Failure> {
        if !self.is_armed() {
            return Ok(());
        }
        let cards = cards();
        let rank_on = |card: u32| cards.iter().find(|(_, on)| *on == card).map(|(rank, _)| *rank);
        for laid in &mut self.lock().laid {
            let Fault::LinkDown { at, cards: [a, b] } = laid.fault else { continue };
            let (Some(rank_a), Some(rank_b)) = (rank_on(a), rank_on(b)) else { continue };
            laid.seen += 1;
            if laid.seen >= at {
                laid.struck += 1;
                let what = format!(
                    "{}: the link between rank {rank_a} (card {a}) and rank {rank_b} (card {b}) is down",
                    matching.place()
                );
                return Err(Failure::new(code::REMOTE, what));
            }
        }
        Ok(())
    }

    /// Counts a collective after its transfer and flips bits of the received data.
    pub(crate) fn after_transfer(&self, matching: &Matching) -> Result<(), Failure> {
        if !self.is_armed() {
            return Ok(());
        }
        for laid in &mut self.lock().laid {
            let Fault::BitFlip { at, card, seed, checksum } = laid.fault else { continue };
            let received =
                matching.calls().filter_map(|call| call.recv.as_ref()).find(|span| span.card() == Some(card));
            let Some(received) = received.filter(|span| span.len_bytes() > 0) else { continue };
            if !laid.strikes_at(at) {
                continue;
            }
            let sent = crc32(received);
            let bit = flip(received, seed);
            let arrived = crc32(received);
            if checksum == Checksum::Verified && sent != arrived {
                let what = format!(
                    "{}: what card {card} received is damaged: checksum {arrived:#010x}, sent {sent:#010x} (injected \
                     fault, bit {bit} of {} bytes)",
                    matching.place(),
                    received.len_bytes()
                );
                return Err(Failure::new(code::REMOTE, what));
            }
        }
        Ok(())
    }
}

impl AllocationHook for Faults {
    fn before_allocation(&self, size: usize, location: Location) -> Result<(), Failure> {
        let Location::Card(on) = location else { return Ok(()) };
        if !self.is_armed() {
            return Ok(());
        }
        let mut struck = None;
        for laid in &mut self.lock().laid {
            if let Fault::OutOfMemory { at, card } = laid.fault
                && card.is_none_or(|card| card == on)
                && laid.strikes_at(at)
            {
                struck = Some(at);
            }
        }
        struck.map_or(Ok(()), |at| {
            let what =
                format!("card {on} is out of memory: asked {size} B (injected fault at allocation {at})");
            Err(Failure::new(code::MEMORY_ALLOCATION, what))
        })
    }
}

fn matches(calls: &Calls, name: &str, card: Option<u32>) -> bool {
    let is_function = calls.function.as_deref().is_none_or(|function| function == name);
    is_function && (calls.card.is_none() || calls.card == card)
}

/// Inverts one bit of a span, selected by `seed`, and returns the index of the bit.
fn flip(span: &RawSpan, seed: u64) -> u64 {
    let bit = SplitMix64::seed_from_u64(seed).next_u64() % (span.len_bytes() as u64 * 8);
    let mut byte = [0_u8];
    let at = (bit / 8) as usize;
    span.read(at, &mut byte);
    span.write(at, &[byte[0] ^ (1 << (bit % 8))]);
    bit
}

fn crc32(span: &RawSpan) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    let mut block = [0_u8; 4096];
    for start in (0..span.len_bytes()).step_by(block.len()) {
        let block = &mut block[..4096.min(span.len_bytes() - start)];
        span.read(start, block);
        crc.update(block);
    }
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::raw::Allocation;

    #[test]
    fn the_checksum_is_crc_32_and_sees_every_flip() {
        let allocation = Arc::new(Allocation::new(9, Location::Card(0), None).expect("mapping"));
        let span = allocation.span(0, 9);
        span.write(0, b"123456789");
        // The standard check value of CRC-32.
        assert_eq!(crc32(&span), 0xcbf4_3926);
        for seed in 0..200 {
            let before = crc32(&span);
            flip(&span, seed);
            assert_ne!(crc32(&span), before);
            flip(&span, seed);
            assert_eq!(crc32(&span), before, "the same seed flips the same bit back");
        }
    }

    #[test]
    fn calls_are_matched_by_function_and_card() {
        let calls = Calls::nth(1).of("aclrtMalloc").on(2);
        assert!(matches(&calls, "aclrtMalloc", Some(2)));
        assert!(!matches(&calls, "aclrtFree", Some(2)));
        assert!(!matches(&calls, "aclrtMalloc", Some(1)));
        assert!(!matches(&calls, "aclrtMalloc", None));
        assert!(matches(&Calls::nth(1), "aclInit", None));
    }
}
