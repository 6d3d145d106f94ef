//! This process's part of a collective with ranks in other processes.
//!
//! Input: a complete meeting, where the calls of ranks elsewhere have no buffers unless this process reaches them (see
//! `in_place`). Output: the results of the ranks here, bit for bit those `perform` gives when all ranks are here. Method: every collective is a series of exchanges,
//! in each of which every rank has at most one block for every other, and of reductions in rank order in between;
//! reductions of much data go slice by slice, so that the memory for what comes from elsewhere stays small.
//! Invariants: the processes compute the same series from the same calls; a failure on the way fails the meeting in all
//! of them. Does not: run on the cards' pool, because it waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::abi::raw::{Allocation, Location, RawSpan};
use crate::collective::meeting::Meeting;
use crate::collective::peer::Home;
use crate::collective::perform::{block, blocks_of, incomplete, receive, send};
use crate::collective::reduce::reduce;
use crate::collective::{Blocks, Call, DataType, Kind, ReduceOp};
use crate::failure::{Failure, code};
use crate::link::Network;
use crate::link::board::EAGER_BYTES;
use crate::link::connection::Link;
use crate::link::host;
use crate::link::wire::{Address, CHUNK_BYTES, Message};
use crate::machine::{Machine, State, guarded};

/// Up to this size every process gets all contributions whole and reduces them itself: one exchange instead of two.
const DIRECT_BYTES: usize = 32 << 10;
/// Bytes of the whole vector in one round of a larger reduction.
const SLICE_BYTES: usize = 4 << 20;

impl Machine {
    /// Runs a meeting with ranks elsewhere on a thread of its own.
    pub(crate) fn launch_remote(&self, state: &mut State, meeting: Meeting) {
        let meeting = Arc::new(meeting);
        state.groups.exchanging += 1;
        let (machine, shared) = (self.weak(), Arc::clone(&meeting));
        let body = move || {
            let Some(machine) = machine.upgrade() else { return };
            let outcome = machine.perform_remote(&shared);
            machine.update(|state| {
                state.groups.exchanging -= 1;
                state.end_meeting(&shared, &outcome);
            });
        };
        if let Err(error) = self.network().threads.run(Box::new(body)) {
            state.groups.exchanging -= 1;
            let what = format!("{}: cannot start a thread: {error}", meeting.place());
            state.end_meeting(&meeting, &Err(Failure::new(code::INTERNAL, what)));
        }
    }

    /// How long a strict machine in which nothing can happen waits for what other processes may do; None when none can.
    pub(crate) fn patience_for_others(&self) -> Option<Duration> {
        let state = self.lock();
        if state.groups.exchanging > 0 || state.meetings.is_any_elsewhere() {
            return Some(self.config().exec_timeout);
        }
        let gatherings = &state.groups.gatherings;
        let is_gathering =
            gatherings.has_callers_elsewhere() || gatherings.has_lone_caller() || host::is_one_of_several();
        (is_gathering && state.groups.gatherings.is_any_open()).then_some(self.config().connect_timeout)
    }

    fn perform_remote(&self, meeting: &Meeting) -> Result<(), Failure> {
        let Some((group, homes)) = meeting.elsewhere() else { return Ok(()) };
        let key = meeting.key();
        let deadline = Instant::now() + self.config().exec_timeout;
        let address = Address { group, key, step: 0, from: 0, to: 0 };
        let exchange = Exchange { network: self.network(), homes, address, deadline };
        let part = Part::of(meeting, homes, exchange);
        let outcome = guarded(meeting.name(), || {
            self.faults().before_transfer(meeting, || self.lock().cards_of_meeting(meeting))?;
            if meeting.is_in_place() {
                self.perform_in_place(meeting, part)?;
            } else {
                part.perform()?;
            }
            self.faults().after_transfer(meeting)
        });
        self.network().board.end(group, key);
        outcome.map_err(|failure| meeting.placed(&failure))
    }
}

/// One block from one rank to another.
pub(super) struct Transfer {
    from: u32,
    to: u32,
    /// Where its bytes are, or go to.
    span: RawSpan,
}

/// One process's way to move blocks between ranks.
pub(super) struct Exchange<'a> {
    network: &'a Network,
    homes: &'a [Home],
    /// The meeting; steps and ranks are filled in.
    address: Address,
    deadline: Instant,
}

impl Exchange<'_> {
    fn link(&self, rank: u32) -> Result<&Arc<Link>, Failure> {
        let home = self.homes.get(rank as usize).and_then(Home::link);
        home.ok_or_else(|| Failure::new(code::HCCL_INTERNAL, format!("rank {rank} is not in another process")))
    }

    fn address(&self, transfer: &Transfer) -> Address {
        Address { from: transfer.from, to: transfer.to, ..self.address }
    }

    /// Sends to and receives from ranks elsewhere; returns when all that comes has come and all that goes has been
    /// taken from its place. Every process calls this for every step, with the other ends of each other's transfers.
    pub(super) fn run(&mut self, sends: &[Transfer], receives: &[Transfer]) -> Result<(), Failure> {
        let board = &self.network.board;
        let mut expected = Vec::with_capacity(receives.len());
        for transfer in receives.iter().filter(|transfer| transfer.span.len_bytes() > 0) {
            let (address, link) = (self.address(transfer), self.link(transfer.from)?);
            board.expect(address, transfer.span.clone(), link.peer.id)?;
            if transfer.span.len_bytes() > EAGER_BYTES {
                link.post(&Message::Want(address));
            }
            expected.push(address);
        }
        let mut waiting: BTreeMap<Address, &Transfer> = BTreeMap::new();
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
            let wanted = board.take_wanted(&asked, self.deadline)?;
            if let Some(transfer) = wanted.and_then(|address| waiting.remove(&address)) {
                self.send(transfer)?;
            }
        }
        board.await_all(&expected, self.deadline)?;
        self.address.step += 1;
        Ok(())
    }

    fn send(&self, transfer: &Transfer) -> Result<(), Failure> {
        let (address, link) = (self.address(transfer), self.link(transfer.to)?);
        let total = transfer.span.len_bytes();
        let mut chunk = vec![0_u8; total.min(CHUNK_BYTES)];
        for offset in (0..total).step_by(CHUNK_BYTES) {
            let bytes = &mut chunk[..CHUNK_BYTES.min(total - offset)];
            transfer.span.read(offset, bytes);
            let checksum = crc32fast::hash(bytes);
            let message = Message::Data { address, offset: offset as u64, total: total as u64, checksum };
            link.send(&message, bytes).map_err(|error| self.cannot_send(transfer.to, link, &error))?;
        }
        Ok(())
    }

    /// Why data could not be sent: the link's end, which its reader tells the board of, says it best.
    fn cannot_send(&self, to: u32, link: &Link, error: &std::io::Error) -> Failure {
        let address = Address { to, ..self.address };
        let reason = self.network.board.reason(&address, link.peer.id, self.deadline);
        reason
            .unwrap_or_else(|| Failure::new(code::REMOTE, format!("cannot send to rank {to} ({}): {error}", link.peer)))
    }
}

/// The ranks of this process in one meeting.
pub(super) struct Part<'a> {
    /// By position: of all ranks, or of sender and receiver.
    pub(super) calls: Vec<&'a Call>,
    /// The rank at each position.
    ranks: Vec<u32>,
    /// Positions here and elsewhere.
    pub(super) here: Vec<usize>,
    there: Vec<usize>,
    pub(super) exchange: Exchange<'a>,
}

impl<'a> Part<'a> {
    fn of(meeting: &'a Meeting, homes: &[Home], exchange: Exchange<'a>) -> Self {
        let ranks = meeting.ranks();
        let is_here = |position: &usize| homes[ranks[*position] as usize].link().is_none();
        let (here, there) = (0..ranks.len()).partition(is_here);
        Self { calls: meeting.calls().collect(), here, there, exchange, ranks }
    }

    fn perform(mut self) -> Result<(), Failure> {
        let Some(first) = self.calls.first().copied() else { return Ok(()) };
        let (dtype, element) = (first.dtype, first.dtype.size_bytes());
        match &first.kind {
            Kind::AllReduce { count: 0, .. } | Kind::Reduce { count: 0, .. } | Kind::Broadcast { count: 0, .. } => {
                Ok(())
            }
            Kind::Scatter { count: 0, .. } | Kind::Send { count: 0, .. } | Kind::Barrier => Ok(()),
            Kind::AllReduce { count, op } if *count as usize * element <= DIRECT_BYTES => {
                self.all_reduce_whole(dtype, *op, *count as usize)
            }
            Kind::AllReduce { count, op } => self.all_reduce_sliced(dtype, *op, *count as usize),
            Kind::Reduce { count, op, root } => self.reduce_to(*root as usize, dtype, *op, *count as usize),
            Kind::ReduceScatter { blocks, op } => self.reduce_scatter(blocks, dtype, *op),
            Kind::AllGather { blocks } => self.move_blocks(
                |from, _, call| if blocks.at(from).1 == 0 { Ok(None) } else { send(call).map(Some) },
                |from, _, call| part_of(call.recv.as_ref(), blocks_of(call), from, element),
            ),
            Kind::Broadcast { root, .. } => self.move_blocks(
                |from, to, call| if from == *root as usize && to != from { send(call).map(Some) } else { Ok(None) },
                |from, to, call| if from == *root as usize && to != from { receive(call).map(Some) } else { Ok(None) },
            ),
            Kind::Scatter { count, root } => self.move_blocks(
                |from, to, call| {
                    let source = if from == *root as usize { call.send.as_ref() } else { None };
                    part_of(source, &Blocks::Uniform(*count), to, element)
                },
                |from, _, call| if from == *root as usize { receive(call).map(Some) } else { Ok(None) },
            ),
            Kind::AllToAll { .. } => self.move_blocks(
                |_, to, call| match &call.kind {
                    Kind::AllToAll { send, .. } => part_of(call.send.as_ref(), send, to, element),
                    _ => Err(incomplete(call)),
                },
                |from, _, call| match &call.kind {
                    Kind::AllToAll { recv, .. } => part_of(call.recv.as_ref(), recv, from, element),
                    _ => Err(incomplete(call)),
                },
            ),
            Kind::Send { .. } => self.move_blocks(
                |from, to, call| if (from, to) == (0, 1) { send(call).map(Some) } else { Ok(None) },
                |from, to, call| if (from, to) == (0, 1) { receive(call).map(Some) } else { Ok(None) },
            ),
            Kind::Recv { .. } => Err(incomplete(first)),
        }
    }

    pub(super) fn transfer(&self, from: usize, to: usize, span: RawSpan) -> Transfer {
        Transfer { from: self.ranks[from], to: self.ranks[to], span }
    }

    /// Moves one block from each position to each other: where it is (`source`, asked of the sender's call) and where
    /// it goes (`target`, asked of the receiver's); None when there is none.
    fn move_blocks(
        &mut self,
        source: impl Fn(usize, usize, &Call) -> Result<Option<RawSpan>, Failure>,
        target: impl Fn(usize, usize, &Call) -> Result<Option<RawSpan>, Failure>,
    ) -> Result<(), Failure> {
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for here in self.here.iter().copied() {
            for there in self.there.iter().copied() {
                if let Some(span) = source(here, there, self.calls[here])? {
                    sends.push(self.transfer(here, there, span));
                }
                if let Some(span) = target(there, here, self.calls[here])? {
                    receives.push(self.transfer(there, here, span));
                }
            }
            for other in self.here.iter().copied() {
                if let Some(from) = source(here, other, self.calls[here])?
                    && let Some(into) = target(here, other, self.calls[other])?
                    && !into.is_same_as(&from)
                {
                    into.copy_from(0, &from, 0, from.len_bytes());
                }
            }
        }
        self.exchange.run(&sends, &receives)
    }

    /// All contributions go to every process, which reduces them once for all its ranks.
    fn all_reduce_whole(&mut self, dtype: DataType, op: ReduceOp, count: usize) -> Result<(), Failure> {
        let bytes = count * dtype.size_bytes();
        let (lead, scratch) = (self.here[0], Scratch::new(self.there.len() * bytes)?);
        let mut sends = Vec::new();
        for here in self.here.iter().copied() {
            for lead in self.leads() {
                sends.push(self.transfer(here, lead, send(self.calls[here])?));
            }
        }
        let mut inputs: Vec<Option<RawSpan>> = self.calls.iter().map(|call| call.send.clone()).collect();
        let mut receives = Vec::new();
        for (index, there) in self.there.iter().copied().enumerate() {
            let place = scratch.at(index * bytes, bytes);
            inputs[there] = Some(place.clone());
            receives.push(self.transfer(there, lead, place));
        }
        self.exchange.run(&sends, &receives)?;
        let inputs: Vec<RawSpan> = inputs.into_iter().flatten().collect();
        let outputs: Result<Vec<RawSpan>, Failure> = self.here.iter().map(|here| receive(self.calls[*here])).collect();
        reduce(&inputs, &outputs?, dtype, op, 0, count);
        Ok(())
    }

    /// The first position of each other process: where what is for the whole process goes.
    pub(super) fn leads(&self) -> Vec<usize> {
        let mut leads: BTreeMap<u128, usize> = BTreeMap::new();
        for there in self.there.iter().copied() {
            if let Ok(link) = self.exchange.link(self.ranks[there]) {
                leads.entry(link.peer.id).or_insert(there);
            }
        }
        leads.into_values().collect()
    }

    /// Slice by slice: each rank reduces its balanced share of the slice and gives it to all.
    fn all_reduce_sliced(&mut self, dtype: DataType, op: ReduceOp, count: usize) -> Result<(), Failure> {
        let (element, world) = (dtype.size_bytes(), self.calls.len());
        let slice = SLICE_BYTES / element;
        let sends = |call: &Call| send(call);
        for first in (0..count).step_by(slice) {
            let length = slice.min(count - first);
            let share = |rank: usize| {
                let (start, end) = (first + length * rank / world, first + length * (rank + 1) / world);
                (start * element, (end - start) * element)
            };
            let part = |span: &RawSpan, rank: usize| {
                let (offset, bytes) = share(rank);
                span.slice(offset, bytes)
            };
            self.reduce_shares(
                dtype,
                op,
                |call, to| sends(call).map(|span| part(&span, to)),
                |call, own| receive(call).map(|span| part(&span, own)),
                |rank| share(rank).1,
            )?;
            self.move_blocks(
                |from, _, call| receive(call).map(|span| Some(part(&span, from))),
                |from, _, call| receive(call).map(|span| Some(part(&span, from))),
            )?;
        }
        Ok(())
    }

    fn reduce_scatter(&mut self, blocks: &Blocks, dtype: DataType, op: ReduceOp) -> Result<(), Failure> {
        let (element, world) = (dtype.size_bytes(), self.calls.len());
        let slice = (SLICE_BYTES / element / world).max(1);
        let longest = (0..world).map(|rank| blocks.at(rank).1 as usize).max().unwrap_or(0);
        for first in (0..longest).step_by(slice) {
            // Offset and bytes of this slice within a rank's block.
            let within = |rank: usize| {
                let count = blocks.at(rank).1 as usize;
                (first.min(count) * element, slice.min(count.saturating_sub(first)) * element)
            };
            self.reduce_shares(
                dtype,
                op,
                |call, to| {
                    let (offset, bytes) = within(to);
                    let whole = part_of(call.send.as_ref(), blocks_of(call), to, element)?;
                    whole.map(|whole| whole.slice(offset, bytes)).ok_or_else(|| incomplete(call))
                },
                |call, own| {
                    let (offset, bytes) = within(own);
                    receive(call).map(|span| span.slice(offset, bytes))
                },
                |rank| within(rank).1,
            )?;
        }
        Ok(())
    }

    /// Every rank reduces its share: `input` is the part of a contribution that is for a rank, `output` where that rank
    /// wants its result, `bytes` their length.
    fn reduce_shares(
        &mut self,
        dtype: DataType,
        op: ReduceOp,
        input: impl Fn(&Call, usize) -> Result<RawSpan, Failure>,
        output: impl Fn(&Call, usize) -> Result<RawSpan, Failure>,
        bytes: impl Fn(usize) -> usize,
    ) -> Result<(), Failure> {
        let total: usize = self.here.iter().map(|here| bytes(*here)).sum();
        let scratch = Scratch::new(total * self.there.len())?;
        let mut end = 0;
        let (mut sends, mut receives, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
        for here in self.here.iter().copied() {
            for there in self.there.iter().copied().filter(|there| bytes(*there) > 0) {
                sends.push(self.transfer(here, there, input(self.calls[here], there)?));
            }
            let mut of_rank = Vec::with_capacity(self.calls.len());
            for (from, call) in self.calls.iter().enumerate().filter(|_| bytes(here) > 0) {
                if self.there.contains(&from) {
                    let place = scratch.at(end, bytes(here));
                    end += bytes(here);
                    receives.push(self.transfer(from, here, place.clone()));
                    of_rank.push(place);
                } else {
                    of_rank.push(input(call, here)?);
                }
            }
            inputs.push(of_rank);
        }
        self.exchange.run(&sends, &receives)?;
        for (here, inputs) in self.here.iter().copied().zip(inputs).filter(|(_, inputs)| !inputs.is_empty()) {
            let count = bytes(here) / dtype.size_bytes();
            reduce(&inputs, &[output(self.calls[here], here)?], dtype, op, 0, count);
        }
        Ok(())
    }

    /// Slice by slice, all contributions go to the root's process.
    fn reduce_to(&mut self, root: usize, dtype: DataType, op: ReduceOp, count: usize) -> Result<(), Failure> {
        let (element, world) = (dtype.size_bytes(), self.calls.len());
        let slice = (SLICE_BYTES / element / world).max(1);
        for first in (0..count).step_by(slice) {
            let (offset, bytes) = (first * element, slice.min(count - first) * element);
            let share = |rank: usize| if rank == root { bytes } else { 0 };
            self.reduce_shares(
                dtype,
                op,
                |call, _| send(call).map(|span| span.slice(offset, bytes)),
                |call, _| receive(call).map(|span| span.slice(offset, bytes)),
                share,
            )?;
        }
        Ok(())
    }
}

/// A rank's block of a buffer; None when it is empty.
fn part_of(span: Option<&RawSpan>, blocks: &Blocks, rank: usize, element: usize) -> Result<Option<RawSpan>, Failure> {
    match span {
        Some(span) if blocks.at(rank).1 > 0 => block(span, blocks, rank, element).map(Some),
        _ => Ok(None),
    }
}

/// Host memory for what comes from elsewhere.
pub(super) struct Scratch(Option<Arc<Allocation>>);

impl Scratch {
    pub(super) fn new(bytes: usize) -> Result<Self, Failure> {
        if bytes == 0 {
            return Ok(Self(None));
        }
        let memory = Allocation::new(bytes, Location::Host);
        let memory = memory.map_err(|error| {
            Failure::new(code::HCCL_MEMORY, format!("cannot get {bytes} bytes for data of other ranks: {error}"))
        })?;
        Ok(Self(Some(Arc::new(memory))))
    }

    pub(super) fn at(&self, offset: usize, bytes: usize) -> RawSpan {
        let Some(memory) = &self.0 else { unreachable!("a place of {bytes} bytes in no memory") };
        memory.span(offset, bytes)
    }
}
