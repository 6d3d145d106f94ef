//! Allocation and accounting of memory.
//!
//! Invariants:
//! - Allocations of one machine never overlap.
//! - A card's used memory never exceeds its capacity. Sizes are rounded up to 32 bytes plus 32, as
//!   on the card (AscendCL guide, aclrtMalloc on Atlas A2).
//! - Memory of cards stays in place until it is freed.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::allocation_table::Charge;
use crate::base::failure::{Failure, code};
use crate::base::report::{Report, ReportKind};
use crate::base::site::CallSite;
use crate::config::Sharing;
use crate::memory::allocation_table::AllocationTable;
use crate::memory::allocation_table::CardUsage;
use crate::memory::allocation_table::MemoryShare;
use crate::memory::allocation_table::Quarantine;
use crate::memory::allocation_table::bytes;
use crate::memory::allocation_table::damage_report;
use crate::memory::allocation_table::footprint_bytes;
use crate::memory::allocation_table::place;
use crate::memory::keeper::Keepers;
use crate::memory::location::Location;
use crate::memory::pages::PageStore;
use crate::memory::place::PeerBuffer;
use crate::memory::raw::{Allocation, RawSpan};
use crate::memory::virtual_memory::{MappingChange, Virtual};

pub(crate) trait AllocationHook: std::fmt::Debug + Send + Sync {
    /// May fail the allocation.
    fn before_allocation(&self, size: usize, location: Location) -> Result<(), Failure>;
}

#[derive(Debug)]
pub(crate) struct DeviceMemory {
    table: Arc<RwLock<AllocationTable>>,
    /// Locked before the table.
    virtual_memory: RwLock<Virtual>,
    store: Arc<PageStore>,
    sharing: Sharing,
    keepers: Keepers,
    hook: Option<Arc<dyn AllocationHook>>,
}

impl DeviceMemory {
    /// Creates the memory of empty cards with `hbm_bytes` each.
    pub(crate) fn new(cards: usize, hbm_bytes: u64, sharing: Sharing) -> io::Result<Self> {
        let empty = CardUsage { total_bytes: hbm_bytes, ..CardUsage::default() };
        let table =
            AllocationTable { allocations: BTreeMap::new(), cards: vec![empty; cards], quarantine: None };
        let store = Arc::new(PageStore::new()?);
        let lists = (sharing == Sharing::Host).then(|| Arc::clone(&store));
        Ok(Self {
            table: Arc::new(RwLock::new(table)),
            virtual_memory: RwLock::new(Virtual::new(lists)),
            store,
            sharing,
            keepers: Keepers::default(),
            hook: None,
        })
    }

    /// First addresses will be odd multiples of `alignment` bytes.
    pub(crate) fn watched(self, alignment: usize) -> Self {
        self.write().quarantine = Some(Quarantine::new(alignment));
        self
    }

    pub(crate) fn with_hook(self, hook: Arc<dyn AllocationHook>) -> Self {
        Self { hook: Some(hook), ..self }
    }

    /// Strict mode needs `site`, the requesting call.
    pub(crate) fn allocate(
        &self,
        size: usize,
        location: Location,
        site: Option<Arc<CallSite>>,
    ) -> Result<Arc<Allocation>, Failure> {
        if size == 0 {
            return Err(Failure::new(code::INVALID_PARAM, "size is 0; allocate at least one byte"));
        }
        if let Some(hook) = &self.hook {
            hook.before_allocation(size, location)?;
        }
        let mut table = self.write();
        if let Location::Card(card) = location {
            table.require(card, size as u64, footprint_bytes(size))?;
        }
        let store = match (location, self.sharing) {
            (Location::Card(_), Sharing::Host) => Some(&self.store),
            (Location::Host, _) | (_, Sharing::Process) => None,
        };
        let mapped = match (&table.quarantine, site) {
            (Some(quarantine), Some(site)) => {
                Allocation::guarded(&quarantine.arena, size, location, store, site)
            }
            _ => Allocation::new(size, location, store),
        };
        let allocation = mapped.map_err(|error| {
            let what = format!("this host cannot map {} for the emulator: {error}", bytes(size as u64));
            Failure::new(code::MEMORY_ALLOCATION, what)
        })?;
        let allocation = Arc::new(allocation);
        if let Location::Card(card) = location {
            table.cards[card as usize].add(MemoryShare::Allocation, footprint_bytes(size));
        }
        table.allocations.insert(allocation.base(), Arc::clone(&allocation));
        Ok(allocation)
    }

    /// The object has no address.
    pub(crate) fn charge(&self, card: u32, share: MemoryShare, count: u64) -> Result<Charge, Failure> {
        let mut table = self.write();
        table.require(card, count, count)?;
        table.cards[card as usize].add(share, count);
        Ok(Charge::new(&self.table, card, share, count))
    }

    /// The bytes stay mapped while a task uses them. Strict mode needs `site`, the freeing call.
    /// Fails if no allocation starts there, or if it needs the other free function.
    pub(crate) fn free(
        &self,
        address: usize,
        by: FreedBy,
        site: Option<&Arc<CallSite>>,
    ) -> Result<Option<Arc<Allocation>>, Failure> {
        let exports = self.mapped().exports_of(address);
        if exports > 0 {
            let what =
                format!("address {address:#x} is exported under {exports} keys; call aclrtIpcMemClose first");
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        let mut table = self.write();
        let Some(allocation) = table.allocations.get(&address) else {
            drop(table);
            if let Some(how) = self.mapped().how_to_free(address) {
                let what = format!("address {address:#x} {how}");
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
            let table = self.read();
            let what = format!("nothing to free: {}", table.describe(address));
            return Err(table.found(address, ReportKind::Misuse, Failure::new(code::PARAM_INVALID, what)));
        };
        match (by, allocation.location()) {
            (FreedBy::Device, Location::Host) => {
                let what =
                    format!("address {address:#x} is page-locked host memory; free it with aclrtFreeHost");
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
            (FreedBy::Host, Location::Card(card)) => {
                let what = format!("address {address:#x} is memory of card {card}; free it with aclrtFree");
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
            _ => {}
        }
        let freed = table.remove(address, site);
        // Unmapping can be slow, so the table is free again.
        drop(table);
        self.keepers.end_generation();
        if let Some(freed) = &freed
            && Arc::strong_count(freed) > 1
        {
            freed.poison_freed();
        }
        Ok(freed)
    }

    pub(crate) fn free_card(&self, card: u32, site: Option<&Arc<CallSite>>) {
        let mut table = self.write();
        let of_card = |a: &Arc<Allocation>| a.location() == Location::Card(card);
        let addresses: Vec<usize> =
            table.allocations.values().filter(|a| of_card(a)).map(|a| a.base()).collect();
        for address in addresses {
            table.remove(address, site);
        }
        drop(table);
        self.virtual_memory().reset_card(card);
    }

    pub(crate) fn live(&self) -> Vec<Arc<Allocation>> {
        self.read().allocations.values().cloned().collect()
    }

    /// Reports damage since the last call, in strict mode. `site` is the call that checks.
    pub(crate) fn take_damage(&self, site: Option<&Arc<CallSite>>) -> Vec<Report> {
        let table = self.read();
        if table.quarantine.is_none() {
            return Vec::new();
        }
        table.allocations.values().filter_map(|allocation| damage_report(allocation, site)).collect()
    }

    /// Returns `None` if the address is unknown. Fails if the address is known, but the span
    /// exceeds its allocation.
    pub(crate) fn find(&self, address: usize, len: usize) -> Result<Option<RawSpan>, Failure> {
        let table = self.read();
        let allocation = if let Some(allocation) = table.covering(address) {
            Arc::clone(allocation)
        } else if table.quarantine.as_ref().is_some_and(|quarantine| quarantine.arena.contains(address)) {
            // The cards' address ranges contain no memory of the program's allocator.
            let failure = Failure::new(code::PARAM_INVALID, table.describe(address));
            return Err(table.found(address, ReportKind::OutOfBounds, failure));
        } else {
            drop(table);
            let mapped = self.mapped();
            match (mapped.covering(address), mapped.reserved(address)) {
                (Some(run), _) => Arc::clone(run),
                (None, Some(what)) => return Err(Failure::new(code::PARAM_INVALID, what)),
                (None, None) => return Ok(None),
            }
        };
        let offset = address - allocation.base();
        if len > allocation.usable() - offset {
            let spare = match allocation.usable() - allocation.size() {
                0 => String::new(),
                spare => format!(" (and {spare} spare bytes)"),
            };
            let what = format!(
                "out of bounds: {len} bytes at {address:#x}, but that is offset {offset} of an allocation of {} bytes{spare} on {}",
                allocation.size(),
                place(allocation.location()),
            );
            let site = allocation.site().cloned().into_iter().collect();
            return Err(Failure::new(code::PARAM_INVALID, what).found(ReportKind::OutOfBounds, site));
        }
        Ok(Some(allocation.span(offset, len)))
    }

    pub(crate) fn device_span(&self, address: usize, len: usize) -> Result<RawSpan, Failure> {
        match self.find(address, len)? {
            Some(span) if span.card().is_some() => Ok(span),
            _ => {
                let table = self.read();
                let what = format!("device memory expected: {}", table.describe(address));
                Err(table.found(address, ReportKind::Misuse, Failure::new(code::PARAM_INVALID, what)))
            }
        }
    }

    pub(crate) fn keepers(&self) -> &Keepers {
        &self.keepers
    }

    pub(crate) fn usage(&self) -> Vec<CardUsage> {
        self.read().cards.clone()
    }

    /// Fails if the memory overlaps known memory.
    pub(crate) fn register(&self, memory: Allocation) -> Result<(), Failure> {
        let (first, last) = (memory.base(), memory.base() + memory.size() - 1);
        let table = self.read();
        let known = table.covering(last).filter(|other| other.base() + other.size() > first);
        if let Some(other) = known {
            let what = format!(
                "ptr: {} bytes at {first:#x} overlap an allocation of {} bytes on {}, which needs no registering",
                memory.size(),
                other.size(),
                place(other.location()),
            );
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        drop(table);
        self.virtual_memory().register(memory)
    }

    pub(crate) fn virtual_memory(&self) -> MappingChange<'_> {
        let changed = self.virtual_memory.write().unwrap_or_else(PoisonError::into_inner);
        MappingChange::new(changed, &self.keepers)
    }

    fn mapped(&self) -> RwLockReadGuard<'_, Virtual> {
        self.virtual_memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn store(&self) -> &Arc<PageStore> {
        &self.store
    }

    pub(crate) fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// Returns `None` if other processes cannot access the span.
    pub(crate) fn place(&self, span: &RawSpan) -> Option<PeerBuffer> {
        let allocation = span.allocation()?;
        let offset = (span.address() - allocation.base()) as u64;
        Some(allocation.place()?.slice(offset, span.len_bytes() as u64))
    }

    fn read(&self) -> RwLockReadGuard<'_, AllocationTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, AllocationTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FreedBy {
    Device,
    Host,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_follow_allocations_and_frees() {
        let memory = DeviceMemory::new(2, 1000, Sharing::Process).expect("a file of memory");
        let a = memory.allocate(100, Location::Card(1), None).expect("fits");
        let held = CardUsage {
            used_bytes: 160,
            peak_bytes: 160,
            total_bytes: 1000,
            allocated_bytes: 160,
            ..CardUsage::default()
        };
        assert_eq!(memory.usage()[1], held);
        memory.free(a.base(), FreedBy::Device, None).expect("allocated above");
        assert_eq!(memory.usage()[1].used_bytes, 0);
        assert_eq!(memory.usage()[1].peak_bytes, 160);
        let again = memory.free(a.base(), FreedBy::Device, None).expect_err("freed already");
        assert!(again.message.contains("lies in no allocation"), "{again}");
    }

    #[test]
    fn out_of_memory_gives_the_cards_numbers() {
        let memory = DeviceMemory::new(1, 4096, Sharing::Process).expect("a file of memory");
        memory.allocate(1000, Location::Card(0), None).expect("fits");
        let failure = memory.allocate(4000, Location::Card(0), None).expect_err("does not fit");
        assert_eq!(failure.code, code::MEMORY_ALLOCATION);
        assert_eq!(
            failure.message,
            "card 0 is out of memory: asked 4000 B, used 1056 B of 4096 B, free 3040 B, peak 1056 B"
        );
        assert_eq!(memory.allocate(0, Location::Card(0), None).expect_err("zero").code, code::INVALID_PARAM);
    }

    #[test]
    fn charges_count_by_share_and_come_back() {
        let memory = DeviceMemory::new(1, 4096, Sharing::Process).expect("a file of memory");
        let buffer = memory.charge(0, MemoryShare::Communicator, 3000).expect("fits");
        memory.allocate(1000, Location::Card(0), None).expect("fits");
        let usage = memory.usage()[0];
        assert_eq!((usage.communicator_bytes, usage.allocated_bytes, usage.used_bytes), (3000, 1056, 4056));
        let failure = memory.charge(0, MemoryShare::Physical, 41).expect_err("40 are left");
        assert_eq!(
            failure.message,
            "card 0 is out of memory: asked 41 B, used 4056 B (3000 B for communicators) of 4096 B, free 40 B, peak 4056 B"
        );
        drop(buffer);
        assert_eq!((memory.usage()[0].used_bytes, memory.usage()[0].communicator_bytes), (1056, 0));
    }

    #[test]
    fn lookups_are_bounds_checked() {
        let memory = DeviceMemory::new(1, 1 << 20, Sharing::Process).expect("a file of memory");
        let a = memory.allocate(100, Location::Card(0), None).expect("fits");
        assert_eq!(memory.device_span(a.base() + 10, 150).expect("inside").len_bytes(), 150);
        assert_eq!(memory.device_span(a.base() + 160, 0).expect("empty at the end").len_bytes(), 0);
        let failure = memory.device_span(a.base() + 10, 151).expect_err("outside");
        let told = "offset 10 of an allocation of 100 bytes (and 60 spare bytes) on card 0";
        assert!(failure.message.contains(told), "{failure}");
        let exact = memory.allocate(8, Location::Host, None).expect("host memory");
        assert!(memory.find(exact.base(), 9).is_err(), "host memory has no spare bytes");
        let host = memory.allocate(8, Location::Host, None).expect("host memory");
        assert!(memory.device_span(host.base(), 8).expect_err("host").message.contains("on the host"));
        assert!(
            memory
                .free(host.base(), FreedBy::Device, None)
                .expect_err("kind")
                .message
                .contains("aclrtFreeHost")
        );
        assert!(memory.device_span(0, 1).expect_err("null").message.contains("NULL"));
    }

    #[test]
    fn resetting_a_card_returns_all_its_memory() {
        let memory = DeviceMemory::new(2, 1 << 20, Sharing::Process).expect("a file of memory");
        for card in [0, 0, 1] {
            memory.allocate(64, Location::Card(card), None).expect("fits");
        }
        memory.free_card(0, None);
        let used: Vec<u64> = memory.usage().iter().map(|card| card.used_bytes).collect();
        assert_eq!(used, [0, 96]);
    }
}
