//! The part of this process in a collective that transfers data over links.
//!
//! The results are bit-identical to those of `transfer::local`.
//!
//! A collective is a series of exchanges, in which every rank sends at most one block to every
//! other rank. Reductions come first, slice by slice to limit the staging memory, then copies.
//!
//! Invariants:
//! - All processes compute the same series from the same calls.
//! - A failed exchange fails the matching in all processes.
//! - The machine's timer ends an exchange that takes too long.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::hccl::CollectiveCall;
use crate::hccl::matching::Matching;
use crate::hccl::rank_location::RankLocation;
use crate::hccl::tcp::Network;
use crate::hccl::tcp::connection::PeerLink;
use crate::hccl::tcp::pending::EAGER_BYTES;
use crate::hccl::tcp::wire::{Address, CHUNK_BYTES, WireMessage};
use crate::hccl::transfer::reduce::reduce;
use crate::hccl::transfer::{Fan, RangeReduction, Side, Spot, Transfers};
use crate::machine::{Machine, guarded};
use crate::memory::location::Location;
use crate::memory::raw::{Allocation, RawSpan};
use crate::state::MachineState;

/// Maximum size for which every process receives and reduces all contributions. One exchange then
/// replaces two.
const DIRECT_BYTES: usize = 32 << 10;
const SLICE_BYTES: usize = 4 << 20;

impl Machine {
    pub(crate) fn launch_remote(&self, state: &mut MachineState, matching: Matching) {
        let Some((communicator, _)) = matching.elsewhere() else { return };
        let (key, now) = (matching.key(), state.scheduler.now());
        let matching = Arc::new(matching);
        state.hccl.communicators.moving.insert((communicator, key), now);
        state.scheduler.limit(now + state.scheduler.exec_timeout);
        let (machine, shared) = (self.weak(), Arc::clone(&matching));
        let body = move || {
            let Some(machine) = machine.upgrade() else { return };
            let outcome = machine.perform_remote(&shared);
            machine.update(|state| {
                state.hccl.communicators.moving.remove(&(communicator, key));
                state.end_matching(&shared, &outcome);
            });
        };
        if let Err(error) = self.network().threads.run(Box::new(body)) {
            state.hccl.communicators.moving.remove(&(communicator, key));
            let what = format!("{}: cannot start a thread: {error}", matching.place());
            state.end_matching(&matching, &Err(Failure::new(code::INTERNAL, what)));
        }
    }

    fn perform_remote(&self, matching: &Matching) -> Result<(), Failure> {
        let Some((communicator, rank_locations)) = matching.elsewhere() else { return Ok(()) };
        let key = matching.key();
        let address = Address { communicator, key, step: 0, from: 0, to: 0 };
        let exchange = LinkExchange { network: self.network(), rank_locations, address };
        let part = OwnPart::of(matching, rank_locations, exchange);
        let outcome = guarded(matching.name(), || {
            self.faults().before_transfer(matching, || self.lock().cards_of_matching(matching))?;
            part.perform()?;
            self.faults().after_transfer(matching)
        });
        self.network().pending.end(communicator, key);
        outcome.map_err(|failure| matching.placed(&failure))
    }
}

struct LinkTransfer {
    from: u32,
    to: u32,
    /// Source in the sender, target in the receiver.
    span: RawSpan,
}

struct LinkExchange<'a> {
    network: &'a Network,
    rank_locations: &'a [RankLocation],
    /// Each transfer sets the ranks, each exchange the step.
    address: Address,
}

impl LinkExchange<'_> {
    fn link(&self, rank: u32) -> Result<&Arc<PeerLink>, Failure> {
        let location = self.rank_locations.get(rank as usize).and_then(RankLocation::link);
        location.ok_or_else(|| {
            Failure::new(code::HCCL_INTERNAL, format!("rank {rank} is not in another process"))
        })
    }

    fn address(&self, transfer: &LinkTransfer) -> Address {
        Address { from: transfer.from, to: transfer.to, ..self.address }
    }

    /// Every process calls this function for every step, with the matching transfers. On return,
    /// all blocks have arrived and the sources may be reused.
    fn run(&mut self, sends: &[LinkTransfer], receives: &[LinkTransfer]) -> Result<(), Failure> {
        let pending = &self.network.pending;
        let mut expected = Vec::with_capacity(receives.len());
        for transfer in receives.iter().filter(|transfer| transfer.span.len_bytes() > 0) {
            let (address, link) = (self.address(transfer), self.link(transfer.from)?);
            pending.expect(address, transfer.span.clone(), link.peer.id)?;
            if transfer.span.len_bytes() > EAGER_BYTES {
                link.post(&WireMessage::Want(address));
            }
            expected.push(address);
        }
        let mut waiting: BTreeMap<Address, &LinkTransfer> = BTreeMap::new();
        for transfer in sends.iter().filter(|transfer| transfer.span.len_bytes() > 0) {
            if transfer.span.len_bytes() > EAGER_BYTES {
                waiting.insert(self.address(transfer), transfer);
            } else {
                self.send(transfer)?;
            }
        }
        while !waiting.is_empty() {
            let mut asked = Vec::with_capacity(waiting.len());
            for (address, transfer) in &waiting {
                asked.push((*address, self.link(transfer.to)?.peer.id));
            }
            let wanted = pending.take_wanted(&asked)?;
            if let Some(transfer) = wanted.and_then(|address| waiting.remove(&address)) {
                self.send(transfer)?;
            }
        }
        pending.await_all(&expected)?;
        self.address.step += 1;
        Ok(())
    }

    fn send(&self, transfer: &LinkTransfer) -> Result<(), Failure> {
        let (address, link) = (self.address(transfer), self.link(transfer.to)?);
        let total = transfer.span.len_bytes();
        let mut chunk = vec![0_u8; total.min(CHUNK_BYTES)];
        for offset in (0..total).step_by(CHUNK_BYTES) {
            let bytes = &mut chunk[..CHUNK_BYTES.min(total - offset)];
            transfer.span.read(offset, bytes);
            let checksum = crc32fast::hash(bytes);
            let message = WireMessage::Data { address, offset: offset as u64, total: total as u64, checksum };
            link.send(&message, bytes).map_err(|_| self.network.pending.reason(&address, link.peer.id))?;
        }
        Ok(())
    }
}

struct OwnPart<'a> {
    /// Calls by position: one per rank, or sender and receiver.
    calls: Vec<&'a CollectiveCall>,
    ranks: Vec<u32>,
    processes: Vec<usize>,
    is_here: Vec<bool>,
    exchange: LinkExchange<'a>,
}

impl<'a> OwnPart<'a> {
    fn of(matching: &'a Matching, rank_locations: &[RankLocation], exchange: LinkExchange<'a>) -> Self {
        let ranks = matching.ranks();
        let process =
            |position: usize| rank_locations[ranks[position] as usize].link().map(|link| link.peer.id);
        let first_of = |position| {
            (0..ranks.len()).find(|first| process(*first) == process(position)).unwrap_or(position)
        };
        let processes = (0..ranks.len()).map(first_of).collect();
        let is_here = (0..ranks.len()).map(|position| process(position).is_none()).collect();
        Self { calls: matching.calls().collect(), ranks, processes, is_here, exchange }
    }

    fn perform(mut self) -> Result<(), Failure> {
        let transfers = Transfers::of(&self.calls)?.with_shares(DIRECT_BYTES);
        let element = transfers.dtype.size_bytes();
        let at_once = (SLICE_BYTES / element / transfers.reductions.len().max(1)).max(1);
        let longest = transfers.reductions.iter().map(|reduction| reduction.count).max().unwrap_or(0);
        for first in (0..longest).step_by(at_once) {
            let slice = |whole: &RangeReduction| {
                let moved = |spot: &Spot| Spot { offset_bytes: spot.offset_bytes + first * element, ..*spot };
                let count = at_once.min(whole.count.saturating_sub(first));
                let to = whole.to.iter().map(moved).collect();
                RangeReduction { from_bytes: whole.from_bytes + first * element, to, count }
            };
            let slices: Vec<RangeReduction> =
                transfers.reductions.iter().map(slice).filter(|slice| slice.count > 0).collect();
            self.reduce(&transfers, &slices)?;
        }
        self.copy(&transfers.fans)
    }

    fn transfer(&self, from: usize, to: usize, span: RawSpan) -> LinkTransfer {
        LinkTransfer { from: self.ranks[from], to: self.ranks[to], span }
    }

    /// Each process with an output of a reduction receives all contributions, at its first such
    /// position.
    fn reduce(&mut self, transfers: &Transfers, reductions: &[RangeReduction]) -> Result<(), Failure> {
        let element = transfers.dtype.size_bytes();
        let (mut sends, mut receives, mut work) = (Vec::new(), Vec::new(), Vec::new());
        let there = self.is_here.iter().filter(|is_here| !**is_here).count();
        let is_ours =
            |reduction: &&RangeReduction| reduction.to.iter().any(|spot| self.is_here[spot.position]);
        let counts = reductions.iter().filter(is_ours).map(|reduction| reduction.count * element);
        let mut scratch = StagingMemory::new(counts.sum::<usize>() * there)?;
        for RangeReduction { from_bytes, to, count } in reductions {
            let len_bytes = count * element;
            let contribution = |position| Spot { position, side: Side::Send, offset_bytes: *from_bytes };
            let mut reducers: Vec<usize> = to.iter().map(|spot| spot.position).collect();
            reducers.sort_unstable_by_key(|position| (self.processes[*position], *position));
            reducers.dedup_by_key(|position| self.processes[*position]);
            for reducer in reducers {
                if !self.is_here[reducer] {
                    for from in (0..self.calls.len()).filter(|from| self.is_here[*from]) {
                        sends.push(self.transfer(
                            from,
                            reducer,
                            contribution(from).span(&self.calls, len_bytes)?,
                        ));
                    }
                    continue;
                }
                let mut inputs = Vec::with_capacity(self.calls.len());
                for from in 0..self.calls.len() {
                    let input = if self.is_here[from] {
                        contribution(from).span(&self.calls, len_bytes)?
                    } else {
                        let place = scratch.take(len_bytes);
                        receives.push(self.transfer(from, reducer, place.clone()));
                        place
                    };
                    inputs.push(input);
                }
                let here = to.iter().filter(|spot| self.is_here[spot.position]);
                let outputs: Result<Vec<RawSpan>, Failure> =
                    here.map(|spot| spot.span(&self.calls, len_bytes)).collect();
                work.push((inputs, outputs?, *count));
            }
        }
        self.exchange.run(&sends, &receives)?;
        for (inputs, outputs, count) in work {
            reduce(&inputs, &outputs, transfers.dtype, transfers.op, 0, count);
        }
        Ok(())
    }

    fn copy(&mut self, fans: &[Fan]) -> Result<(), Failure> {
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for Fan { from, to, len_bytes } in fans {
            for spot in to {
                let (source, target) = (self.is_here[from.position], self.is_here[spot.position]);
                let from_span = if source { Some(from.span(&self.calls, *len_bytes)?) } else { None };
                let to_span = if target { Some(spot.span(&self.calls, *len_bytes)?) } else { None };
                match (from_span, to_span) {
                    (Some(source), Some(target)) if !target.is_same_as(&source) => {
                        target.copy_from(0, &source, 0, *len_bytes);
                    }
                    (Some(source), None) => sends.push(self.transfer(from.position, spot.position, source)),
                    (None, Some(target)) => {
                        receives.push(self.transfer(from.position, spot.position, target));
                    }
                    (Some(_), Some(_)) | (None, None) => {}
                }
            }
        }
        self.exchange.run(&sends, &receives)
    }
}

/// Host memory for data of remote ranks.
struct StagingMemory {
    memory: Option<Arc<Allocation>>,
    used: usize,
}

impl StagingMemory {
    fn new(bytes: usize) -> Result<Self, Failure> {
        let memory = (bytes > 0).then(|| Allocation::new(bytes, Location::Host, None)).transpose();
        let memory = memory.map_err(|error| {
            Failure::new(
                code::HCCL_MEMORY,
                format!("cannot get {bytes} bytes for data of other ranks: {error}"),
            )
        })?;
        Ok(Self { memory: memory.map(Arc::new), used: 0 })
    }

    fn take(&mut self, bytes: usize) -> RawSpan {
        let Some(memory) = &self.memory else { unreachable!("a place of {bytes} bytes in no memory") };
        self.used += bytes;
        memory.span(self.used - bytes, bytes)
    }
}
