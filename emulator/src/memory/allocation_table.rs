//! The table of a machine's memory: live allocations, usage of each card and, in strict mode, freed
//! allocations.
//!
//! Invariants: charges never exceed a card's capacity. Strict mode never reuses an address.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};

use crate::base::failure::{Failure, code};
use crate::base::report::{Report, ReportKind};
use crate::base::site::CallSite;
use crate::memory::fault::KnownBuffer;
use crate::memory::guard::Arena;
use crate::memory::location::Location;
use crate::memory::raw::{Allocation, occupied_bytes};

/// Memory of a card that is held for an object without an address.
#[derive(Debug)]
pub(crate) struct Charge {
    table: Arc<RwLock<AllocationTable>>,
    card: u32,
    share: MemoryShare,
    held_bytes: u64,
}

impl Charge {
    pub(super) fn new(
        table: &Arc<RwLock<AllocationTable>>,
        card: u32,
        share: MemoryShare,
        held_bytes: u64,
    ) -> Self {
        Self { table: Arc::clone(table), card, share, held_bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.cards[self.card as usize].subtract(self.share, self.held_bytes);
    }
}

/// Memory usage of one card in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CardUsage {
    /// Bytes in use now: the sum of the three shares.
    pub used_bytes: u64,
    /// Largest value of `used_bytes` so far.
    pub peak_bytes: u64,
    /// Capacity of the card in bytes.
    pub total_bytes: u64,
    /// Bytes in use by `aclrtMalloc` and related functions, after rounding.
    pub allocated_bytes: u64,
    /// Bytes in use by `aclrtMallocPhysical`.
    pub physical_bytes: u64,
    /// Bytes in use by the buffers of communicators.
    pub communicator_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryShare {
    Allocation,
    Physical,
    Communicator,
}

impl CardUsage {
    fn share(&mut self, share: MemoryShare) -> &mut u64 {
        match share {
            MemoryShare::Allocation => &mut self.allocated_bytes,
            MemoryShare::Physical => &mut self.physical_bytes,
            MemoryShare::Communicator => &mut self.communicator_bytes,
        }
    }

    pub(super) fn add(&mut self, share: MemoryShare, count: u64) {
        *self.share(share) += count;
        self.used_bytes += count;
        self.peak_bytes = self.peak_bytes.max(self.used_bytes);
    }

    fn subtract(&mut self, share: MemoryShare, count: u64) {
        *self.share(share) -= count;
        self.used_bytes -= count;
    }

    fn other_shares(&self) -> String {
        let shares = [(self.physical_bytes, "physical memory"), (self.communicator_bytes, "communicators")];
        let held: Vec<String> = shares
            .iter()
            .filter(|(held, _)| *held > 0)
            .map(|(held, of)| format!("{} for {of}", bytes(*held)))
            .collect();
        if held.is_empty() { String::new() } else { format!(" ({})", held.join(", ")) }
    }
}

#[derive(Debug)]
pub(super) struct AllocationTable {
    pub(super) allocations: BTreeMap<usize, Arc<Allocation>>,
    pub(super) cards: Vec<CardUsage>,
    pub(super) quarantine: Option<Quarantine>,
}

/// Addresses of strict mode, each used only once.
#[derive(Debug)]
pub(super) struct Quarantine {
    pub(super) arena: Arc<Arena>,
    freed: BTreeMap<usize, Freed>,
    order: VecDeque<usize>,
}

/// Older ones are reported only as missing.
const REMEMBERED: usize = 1 << 16;

#[derive(Debug)]
struct Freed {
    size: usize,
    location: Location,
    allocated: Arc<CallSite>,
    freed: Arc<CallSite>,
    _known: Option<Arc<KnownBuffer>>,
}

impl Quarantine {
    /// First addresses will be odd multiples of `alignment`.
    pub(super) fn new(alignment: usize) -> Self {
        Self { arena: Arc::new(Arena::new(alignment)), freed: BTreeMap::new(), order: VecDeque::new() }
    }

    fn add(&mut self, allocation: &Allocation, freed: &Arc<CallSite>) {
        let Some(allocated) = allocation.site() else { return };
        allocation.retire(freed);
        let known = allocation.known();
        if let Some(known) = &known {
            known.free(freed.number);
        }
        let record = Freed {
            size: allocation.size(),
            location: allocation.location(),
            allocated: Arc::clone(allocated),
            freed: Arc::clone(freed),
            _known: known,
        };
        self.freed.insert(allocation.base(), record);
        self.order.push_back(allocation.base());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.freed.remove(&oldest);
        }
    }

    fn covering(&self, address: usize) -> Option<(usize, &Freed)> {
        let (base, freed) = self.freed.range(..=address).next_back()?;
        (address - base <= freed.size).then_some((*base, freed))
    }
}

/// Distance up to which an address counts as next to an allocation.
const NEAR_BYTES: usize = 4096;

/// An impossible size exceeds every card.
pub(super) fn footprint_bytes(size: usize) -> u64 {
    occupied_bytes(size).map_or(u64::MAX, |bytes| bytes as u64)
}

impl AllocationTable {
    /// `asked` is the requested size, for the message.
    pub(super) fn require(&self, card: u32, asked: u64, footprint: u64) -> Result<(), Failure> {
        let usage = &self.cards[card as usize];
        if footprint <= usage.total_bytes - usage.used_bytes {
            return Ok(());
        }
        let what = format!(
            "card {card} is out of memory: asked {}, used {}{} of {}, free {}, peak {}",
            bytes(asked),
            bytes(usage.used_bytes),
            usage.other_shares(),
            bytes(usage.total_bytes),
            bytes(usage.total_bytes - usage.used_bytes),
            bytes(usage.peak_bytes),
        );
        Err(Failure::new(code::MEMORY_ALLOCATION, what))
    }

    pub(super) fn covering(&self, address: usize) -> Option<&Arc<Allocation>> {
        let (base, allocation) = self.allocations.range(..=address).next_back()?;
        // An empty span may start one past the end.
        (address - base <= allocation.usable()).then_some(allocation)
    }

    pub(super) fn remove(&mut self, address: usize, site: Option<&Arc<CallSite>>) -> Option<Arc<Allocation>> {
        let allocation = self.allocations.remove(&address)?;
        if let (Some(quarantine), Some(site)) = (&mut self.quarantine, site) {
            quarantine.add(&allocation, site);
        }
        if let Location::Card(card) = allocation.location() {
            self.cards[card as usize].subtract(MemoryShare::Allocation, footprint_bytes(allocation.size()));
        }
        Some(allocation)
    }

    pub(super) fn describe(&self, address: usize) -> String {
        if address == 0 {
            return "the address is NULL".into();
        }
        if let Some(allocation) = self.covering(address) {
            return format!(
                "address {address:#x} is offset {} of an allocation of {} bytes on {}",
                address - allocation.base(),
                allocation.size(),
                place(allocation.location()),
            );
        }
        if let Some((base, freed)) = self.freed(address) {
            return format!(
                "address {address:#x} is offset {} of an allocation of {} bytes on {} that was freed",
                address - base,
                freed.size,
                place(freed.location),
            );
        }
        if let Some((distance, allocation)) = self.near(address) {
            return format!(
                "address {address:#x} is {distance} an allocation of {} bytes on {}",
                allocation.size(),
                place(allocation.location()),
            );
        }
        format!("address {address:#x} lies in no allocation of this machine (freed, or never allocated)")
    }

    fn freed(&self, address: usize) -> Option<(usize, &Freed)> {
        self.quarantine.as_ref()?.covering(address)
    }

    fn near(&self, address: usize) -> Option<(String, &Arc<Allocation>)> {
        self.quarantine.as_ref()?;
        let before = self.allocations.range(..=address).next_back().and_then(|(base, allocation)| {
            let past = address.checked_sub(base + allocation.usable())?;
            (past < NEAR_BYTES).then(|| (format!("{past} bytes past the end of"), allocation))
        });
        before.or_else(|| {
            let (base, allocation) = self.allocations.range(address..).next()?;
            (base - address < NEAR_BYTES).then(|| (format!("{} bytes before", base - address), allocation))
        })
    }

    /// Adds strict mode's findings about an address to a failure. `kind` applies to an address in a
    /// live allocation.
    pub(super) fn found(&self, address: usize, kind: ReportKind, failure: Failure) -> Failure {
        let site = |allocation: &Arc<Allocation>| allocation.site().cloned().into_iter().collect();
        if let Some(allocation) = self.covering(address) {
            return failure.found(kind, site(allocation));
        }
        if let Some((_, freed)) = self.freed(address) {
            let sites = vec![Arc::clone(&freed.allocated), Arc::clone(&freed.freed)];
            return failure.found(ReportKind::UseAfterFree, sites);
        }
        match self.near(address) {
            Some((_, allocation)) => failure.found(ReportKind::OutOfBounds, site(allocation)),
            None => failure,
        }
    }
}

pub(crate) fn place(location: Location) -> String {
    match location {
        Location::Card(card) => format!("card {card}"),
        Location::Host => "the host".into(),
    }
}

pub(super) fn bytes(count: u64) -> String {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    match count {
        0..MIB => format!("{count} B"),
        MIB..GIB => format!("{count} B ({:.2} MiB)", count as f64 / MIB as f64),
        _ => format!("{count} B ({:.2} GiB)", count as f64 / GIB as f64),
    }
}

/// Reports writes to the red zones of an allocation since the last call.
pub(crate) fn damage_report(allocation: &Allocation, site: Option<&Arc<CallSite>>) -> Option<Report> {
    let damage = allocation.take_damage()?;
    let what = format!(
        "bytes {} to {} of a buffer with bytes 0 to {} on {} were written by the program; [1] allocated it, [2] found that",
        damage.first,
        damage.last,
        allocation.size() - 1,
        place(allocation.location()),
    );
    let sites = allocation.site().into_iter().chain(site).cloned().collect();
    Some(Report::new(ReportKind::OutOfBounds, what, sites))
}
