//! Virtual memory: reserved addresses, physical memory, and mappings between them.
//!
//! Invariants:
//! - Only physical memory counts against a card.
//! - Adjacent mappings of a reservation form one range, so a buffer may cross them.
//! - Physical memory is released when it is freed and no longer mapped (AscendCL guide,
//!   aclrtFreePhysical).
//! - An unmapped address is never taken for host memory.
//! - Where the guide is silent, a handle has one mapping at a time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::sync::{Arc, RwLockWriteGuard};

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::memory::allocation_table::Charge;
use crate::memory::ipc::{ExportedMemory, IpcName, IpcRecord};
use crate::memory::keeper::Keepers;
use crate::memory::location::Location;
use crate::memory::pages::{PageContent, PageStore, Range};
use crate::memory::place::{FilePart, StoredParts};
use crate::memory::raw::Allocation;

/// 2 MB pages (AscendCL guide, aclrtMapMem).
pub(crate) const GRANULARITY_BYTES: usize = 2 << 20;
pub(crate) const GRANULARITY_1G_BYTES: usize = 1 << 30;

#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) card: u32,
    pub(crate) size: usize,
    pub(crate) granularity: usize,
    bytes: PhysicalBytes,
}

#[derive(Debug)]
enum PhysicalBytes {
    /// Bytes in this process's store, charged to the card.
    Own { store: Arc<PageStore>, at: u64, len: usize, _charge: Charge },
    /// Bytes in the store of another process, which is charged for them.
    Imported { file: File, at: u64 },
}

impl Drop for PhysicalBytes {
    fn drop(&mut self) {
        if let Self::Own { store, at, len, .. } = self {
            store.give(*at, *len);
        }
    }
}

impl Physical {
    pub(crate) fn new(
        card: u32,
        size: usize,
        granularity: usize,
        store: &Arc<PageStore>,
        charge: Charge,
    ) -> io::Result<Self> {
        let len = size.next_multiple_of(granularity);
        let at = store.take(len)?;
        let bytes = PhysicalBytes::Own { store: Arc::clone(store), at, len, _charge: charge };
        Ok(Self { card, size, granularity, bytes })
    }

    pub(crate) fn imported(card: u32, size: usize, granularity: usize, file: File, at: u64) -> Self {
        Self { card, size, granularity, bytes: PhysicalBytes::Imported { file, at } }
    }

    pub(crate) fn place(&self) -> (&File, u64) {
        match &self.bytes {
            PhysicalBytes::Own { store, at, .. } => (store.file(), *at),
            PhysicalBytes::Imported { file, at } => (file, *at),
        }
    }

    pub(crate) fn is_imported(&self) -> bool {
        matches!(self.bytes, PhysicalBytes::Imported { .. })
    }
}

#[derive(Debug)]
struct Mapping {
    handle: u64,
    physical: Arc<Physical>,
}

impl Mapping {
    fn part(&self) -> FilePart<'_> {
        let (file, at) = self.physical.place();
        FilePart { file, at, len_bytes: self.physical.size as u64 }
    }
}

#[derive(Debug)]
struct Reservation {
    range: Arc<Range>,
    mappings: BTreeMap<usize, Mapping>,
}

/// The file stays open for peers that access the memory through it.
#[derive(Debug)]
struct Imported {
    memory: Arc<Allocation>,
    record: IpcRecord,
    _file: File,
}

#[derive(Debug, Default)]
pub(crate) struct Virtual {
    /// For lists of mapped parts. `None` if other processes cannot access memory.
    lists: Option<Arc<PageStore>>,
    reservations: BTreeMap<usize, Reservation>,
    /// Maximal mapped ranges, by first address.
    runs: BTreeMap<usize, Arc<Allocation>>,
    physicals: BTreeMap<u64, Arc<Physical>>,
    /// Host memory of the program, by first address.
    registered: BTreeMap<usize, Arc<Allocation>>,
    /// May be this process's own memory; by first address.
    imported: BTreeMap<usize, Imported>,
    pub(crate) exports: Vec<(usize, IpcRecord)>,
    physical_exports: BTreeMap<u64, IpcRecord>,
}

/// Cached spans are invalidated when the change is complete but still locked. Earlier, a thread
/// could cache memory that is about to change.
#[derive(Debug)]
pub(crate) struct MappingChange<'a> {
    changed: RwLockWriteGuard<'a, Virtual>,
    keepers: &'a Keepers,
}

impl<'a> MappingChange<'a> {
    pub(crate) fn new(changed: RwLockWriteGuard<'a, Virtual>, keepers: &'a Keepers) -> Self {
        Self { changed, keepers }
    }
}

impl Deref for MappingChange<'_> {
    type Target = Virtual;

    fn deref(&self) -> &Virtual {
        &self.changed
    }
}

impl DerefMut for MappingChange<'_> {
    fn deref_mut(&mut self) -> &mut Virtual {
        &mut self.changed
    }
}

impl Drop for MappingChange<'_> {
    fn drop(&mut self) {
        self.keepers.end_generation();
    }
}

fn invalid(what: String) -> Failure {
    Failure::new(code::PARAM_INVALID, what)
}

fn host(error: &io::Error) -> Failure {
    Failure::new(code::MEMORY_ALLOCATION, format!("this host refuses the mapping: {error}"))
}

impl Virtual {
    pub(crate) fn new(lists: Option<Arc<PageStore>>) -> Self {
        Self { lists, ..Self::default() }
    }

    /// Returns `None` if other processes cannot access memory.
    pub(crate) fn listed<'a>(
        &self,
        parts: impl IntoIterator<Item = FilePart<'a>>,
    ) -> io::Result<Option<Arc<StoredParts>>> {
        self.lists.as_ref().map(|store| StoredParts::new(store, parts)).transpose()
    }

    /// The memory contains the address or ends there.
    pub(crate) fn covering(&self, address: usize) -> Option<&Arc<Allocation>> {
        let covering = |known: &'_ BTreeMap<usize, Arc<Allocation>>| {
            let (base, memory) = known.range(..=address).next_back()?;
            (address - base <= memory.size()).then_some(*base)
        };
        let run = covering(&self.runs).and_then(|base| self.runs.get(&base));
        let registered = || covering(&self.registered).and_then(|base| self.registered.get(&base));
        let imported = || {
            let (base, import) = self.imported.range(..=address).next_back()?;
            (address - base <= import.memory.size()).then_some(&import.memory)
        };
        run.or_else(registered).or_else(imported)
    }

    pub(crate) fn import(&mut self, memory: Allocation, record: IpcRecord, file: File) {
        self.imported.insert(memory.base(), Imported { memory: Arc::new(memory), record, _file: file });
    }

    pub(crate) fn exports_of(&self, base: usize) -> usize {
        self.exports.iter().filter(|(exported, _)| *exported == base).count()
    }

    pub(crate) fn close(&mut self, name: IpcName) -> Result<(), Failure> {
        let import =
            self.imported.iter().find(|(_, import)| import.record.name() == name).map(|(base, _)| *base);
        if let Some(base) = import {
            if let Some(import) = self.imported.remove(&base) {
                import.record.count_importer(-1)?;
            }
            return Ok(());
        }
        let Some(place) = self.exports.iter().position(|(_, record)| record.name() == name) else {
            return Err(invalid(
                "key: this process has neither imported nor exported it, or has closed it".into(),
            ));
        };
        let importers = self.exports[place].1.importers()?;
        if importers > 0 {
            let what = format!(
                "key: {importers} imports of the key are open; importers must close before the exporter"
            );
            return Err(invalid(what));
        }
        self.exports.remove(place);
        Ok(())
    }

    /// A handle can be exported once.
    pub(crate) fn export_physical(&mut self, number: u64, validates: bool) -> Result<IpcName, Failure> {
        let physical = self.physical(number)?;
        if physical.is_imported() {
            return Err(invalid(format!(
                "handle: physical memory {number} was imported; its owner exports it"
            )));
        }
        if self.physical_exports.contains_key(&number) {
            let what = format!(
                "handle: physical memory {number} is exported already; a handle has one shareable handle"
            );
            return Err(invalid(what));
        }
        let (file, at) = physical.place();
        let shared = ExportedMemory {
            file: u64::from(file.as_raw_fd().cast_unsigned()),
            at,
            offset: 0,
            size: physical.size as u64,
            card: u64::from(physical.card),
            granularity: physical.granularity as u64,
        };
        let record = IpcRecord::new(shared, validates)?;
        let name = record.name();
        self.physical_exports.insert(number, record);
        Ok(name)
    }

    pub(crate) fn admit_physical(&self, handle: u64, pids: &[i32]) -> Result<(), Failure> {
        let export = self.physical_exports.values().find(|record| record.name().handle() == handle);
        let Some(record) = export else {
            return Err(invalid(format!(
                "shareableHandle: this process has not exported {handle:#x}, or has freed it"
            )));
        };
        record.admit(pids)
    }

    /// Returns `None` if the address is unknown or an allocation.
    pub(crate) fn how_to_free(&self, address: usize) -> Option<&'static str> {
        match self.covering(address)?.location() {
            Location::Card(_) if self.imported.contains_key(&address) => {
                Some("was imported with aclrtIpcMemImportByKey; call aclrtIpcMemClose")
            }
            Location::Card(_) => Some("was mapped with aclrtMapMem; unmap it with aclrtUnmapMem"),
            Location::Host => Some("was registered with aclrtHostRegister; call aclrtHostUnregister"),
        }
    }

    pub(crate) fn register(&mut self, memory: Allocation) -> Result<(), Failure> {
        let (first, end) = (memory.base(), memory.base() + memory.size());
        let before = self.registered.range(..end).next_back();
        if let Some((other, known)) = before.filter(|(other, known)| **other + known.size() > first) {
            let what = format!(
                "ptr: {} bytes at {first:#x} overlap the {} bytes at {other:#x} that are registered already",
                memory.size(),
                known.size()
            );
            return Err(invalid(what));
        }
        self.registered.insert(first, Arc::new(memory));
        Ok(())
    }

    /// Fails while queued work uses the memory.
    pub(crate) fn unregister(&mut self, address: usize) -> Result<(), Failure> {
        let Some(memory) = self.registered.get(&address) else {
            return Err(invalid(format!(
                "ptr: {address:#x} is not registered; pass the address given to aclrtHostRegister"
            )));
        };
        if Arc::strong_count(memory) > 1 {
            let what = format!(
                "ptr: queued work still uses the memory registered at {address:#x}; synchronize first"
            );
            return Err(invalid(what));
        }
        self.registered.remove(&address);
        Ok(())
    }

    /// Returns `None` if the address is not reserved.
    pub(crate) fn reserved(&self, address: usize) -> Option<String> {
        let (base, reservation) = self.reservations.range(..=address).next_back()?;
        let len = reservation.range.len_bytes();
        (address - base < len).then(|| {
            format!(
                "address {address:#x} is offset {} of {len} bytes reserved with aclrtReserveMemAddress, and nothing is \
                 mapped there; call aclrtMapMem first",
                address - base
            )
        })
    }

    pub(crate) fn reserve(&mut self, size: usize) -> Result<usize, Failure> {
        let len = size.checked_next_multiple_of(GRANULARITY_BYTES).filter(|len| *len > 0);
        let len = len.ok_or_else(|| {
            Failure::new(code::INVALID_PARAM, format!("size is {size} bytes; it must be more than 0"))
        })?;
        let range = Range::reserve(len, GRANULARITY_BYTES).map_err(|error| host(&error))?;
        let base = range.base().addr().get();
        self.reservations.insert(base, Reservation { range: Arc::new(range), mappings: BTreeMap::new() });
        Ok(base)
    }

    pub(crate) fn release(&mut self, address: usize) -> Result<(), Failure> {
        let Some(reservation) = self.reservations.get(&address) else {
            return Err(invalid(format!(
                "virPtr: {address:#x} was not returned by aclrtReserveMemAddress, or is released"
            )));
        };
        if let Some(mapped) = reservation.mappings.keys().next() {
            let what = format!(
                "virPtr: {} parts of the reservation at {address:#x} are still mapped, the first at {mapped:#x}; call \
                 aclrtUnmapMem first",
                reservation.mappings.len()
            );
            return Err(invalid(what));
        }
        self.reservations.remove(&address);
        Ok(())
    }

    pub(crate) fn keep(&mut self, number: u64, physical: Physical) {
        self.physicals.insert(number, Arc::new(physical));
    }

    pub(crate) fn physical(&self, number: u64) -> Result<&Arc<Physical>, Failure> {
        self.physicals.get(&number).ok_or_else(|| HandleKind::Physical.gone(number))
    }

    /// The memory is released with its last mapping.
    pub(crate) fn free(&mut self, number: u64) -> Result<(), Failure> {
        self.physical_exports.remove(&number);
        self.physicals.remove(&number).map(|_| ()).ok_or_else(|| HandleKind::Physical.gone(number))
    }

    fn reservation(&mut self, address: usize, size: usize) -> Result<(usize, &mut Reservation), Failure> {
        let found = self.reservations.range_mut(..=address).next_back();
        match found {
            Some((base, reservation)) if address - base < reservation.range.len_bytes() => {
                let len = reservation.range.len_bytes();
                if size > len - (address - base) {
                    let what = format!(
                        "virPtr: {size} bytes at offset {} leave the {len} bytes reserved at {base:#x}",
                        address - base
                    );
                    return Err(invalid(what));
                }
                Ok((*base, reservation))
            }
            _ => Err(invalid(format!(
                "virPtr: {address:#x} is not reserved; call aclrtReserveMemAddress first"
            ))),
        }
    }

    pub(crate) fn map(&mut self, address: usize, size: usize, number: u64) -> Result<(), Failure> {
        let physical = Arc::clone(self.physical(number)?);
        if size != physical.size || !size.is_multiple_of(physical.granularity) {
            let what = format!(
                "size is {size} bytes; it must be the size of the handle, {}, and a multiple of {} \
                 (aclrtMemGetAllocationGranularity)",
                physical.size, physical.granularity
            );
            return Err(invalid(what));
        }
        if !address.is_multiple_of(physical.granularity) {
            return Err(invalid(format!(
                "virPtr: {address:#x} is no multiple of {} bytes",
                physical.granularity
            )));
        }
        let elsewhere = self.reservations.values().flat_map(|reservation| &reservation.mappings);
        if let Some((at, _)) = elsewhere.into_iter().find(|(_, mapping)| mapping.handle == number) {
            let what = format!(
                "handle: physical memory {number} is mapped at {at:#x} already; unmap it there first"
            );
            return Err(invalid(what));
        }
        let (base, reservation) = self.reservation(address, size)?;
        let overlapping = reservation.mappings.range(..address + size).next_back();
        if let Some((at, mapping)) = overlapping.filter(|(at, mapping)| *at + mapping.physical.size > address)
        {
            let what = format!(
                "virPtr: {size} bytes at {address:#x} overlap the {} bytes mapped at {at:#x}; unmap those first",
                mapping.physical.size
            );
            return Err(invalid(what));
        }
        if let Some(other) = reservation.mappings.values().next().map(|mapping| &mapping.physical) {
            if other.card != physical.card {
                let what = format!(
                    "handle: its memory is of card {}, but the reservation at {base:#x} holds memory of card {}; a \
                     reservation is bound to one device",
                    physical.card, other.card
                );
                return Err(invalid(what));
            }
            if other.is_imported() != physical.is_imported() {
                let what = format!(
                    "handle: the reservation at {base:#x} would hold both memory of aclrtMallocPhysical and imported \
                     memory; use one reservation for each"
                );
                return Err(invalid(what));
            }
        }
        let (file, at) = physical.place();
        reservation
            .range
            .show(address - base, size, PageContent::File(file, at))
            .map_err(|error| host(&error))?;
        reservation.mappings.insert(address, Mapping { handle: number, physical });
        self.rebuild_runs(base);
        Ok(())
    }

    /// Spans of queued work then read blank pages of no card.
    pub(crate) fn unmap(&mut self, address: usize) -> Result<(), Failure> {
        let in_use = self.covering(address).is_some_and(|run| Arc::strong_count(run) > 1);
        let (base, reservation) = self.reservation(address, 0)?;
        let Some(mapping) = reservation.mappings.get(&address) else {
            return Err(invalid(format!(
                "virPtr: no mapping starts at {address:#x}; pass the address given to aclrtMapMem"
            )));
        };
        let what = if in_use { PageContent::Blank } else { PageContent::Nothing };
        reservation.range.show(address - base, mapping.physical.size, what).map_err(|error| host(&error))?;
        reservation.mappings.remove(&address);
        self.rebuild_runs(base);
        Ok(())
    }

    pub(crate) fn mapped_card(&mut self, address: usize, size: usize) -> Result<u32, Failure> {
        let (_, reservation) = self.reservation(address, size)?;
        match reservation.mappings.get(&address) {
            Some(mapping) if mapping.physical.size == size => Ok(mapping.physical.card),
            found => {
                let found = found.map_or(0, |mapping| mapping.physical.size);
                let what = format!(
                    "virPtr and size: {size} bytes at {address:#x}; pass the range of aclrtMapMem, which mapped \
                     {found} bytes there"
                );
                Err(invalid(what))
            }
        }
    }

    /// Address reservations remain valid.
    pub(crate) fn reset_card(&mut self, card: u32) {
        let of_card = |(at, mapping): (&usize, &Mapping)| (mapping.physical.card == card).then_some(*at);
        let mapped: Vec<usize> = self
            .reservations
            .values()
            .flat_map(|reservation| reservation.mappings.iter().filter_map(of_card))
            .collect();
        for address in mapped {
            // Only the host can refuse. The mapping then remains.
            let _ = self.unmap(address);
        }
        self.physicals.retain(|_, physical| physical.card != card);
        let (physicals, of_card) = (&self.physicals, Location::Card(card));
        self.physical_exports.retain(|number, _| physicals.contains_key(number));
        self.imported.retain(|_, import| import.memory.location() != of_card);
    }

    /// Existing spans keep their old range.
    fn rebuild_runs(&mut self, base: usize) {
        let Some(reservation) = self.reservations.get(&base) else { return };
        let end = base + reservation.range.len_bytes();
        let old: Vec<usize> = self.runs.range(base..end).map(|(at, _)| *at).collect();
        for at in old {
            self.runs.remove(&at);
        }
        let mappings: Vec<(&usize, &Mapping)> = reservation.mappings.iter().collect();
        let mut runs = Vec::new();
        for run in mappings.chunk_by(|(at, mapping), (next, _)| **at + mapping.physical.size == **next) {
            let (first, card) = (*run[0].0, run[0].1.physical.card);
            let size = run.iter().map(|(_, mapping)| mapping.physical.size).sum();
            // Other processes cannot access a range without a list; a collective reports that.
            let parts = self.listed(run.iter().map(|(_, mapping)| mapping.part())).unwrap_or_default();
            let run =
                Allocation::part(&reservation.range, first - base, size, Location::Card(card), parts, 0);
            runs.push((first, Arc::new(run)));
        }
        self.runs.extend(runs);
    }
}
