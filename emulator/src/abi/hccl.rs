//! HCCL: collectives and transfers. Each function checks its arguments and enqueues a
//! [`CollectiveCall`].

use std::ffi::c_void;

use ascend_tp_sys::{HcclComm, HcclDataType, HcclReduceOp, HcclSendRecvItem, HcclSendRecvType, aclrtStream};

use crate::base::failure::{Failure, code};
use crate::config::CannVersion;
use crate::hccl::communicator::{ChosenTransport, CommunicatorMember};
use crate::hccl::rules::{CollectiveRule, InPlace, Named, rule_of};
use crate::hccl::{Blocks, CollectiveCall, CollectiveOperation, DataType};
use crate::machine::Machine;
use crate::memory::access::MemoryAccess;
use crate::memory::raw::{RawSpan, load_array};
use crate::runtime::stream::StreamEntry;
use crate::state::MachineState;

struct CollectiveCaller<'a> {
    machine: &'a Machine,
    name: &'static str,
    rule: &'static CollectiveRule,
    member: CommunicatorMember,
    stream: u64,
    world: usize,
    card: u32,
    dtype: DataType,
}

/// Runs before or after the collective that an operator fuses with it.
pub(super) struct JoinedCompute {
    pub(super) entry: StreamEntry,
    pub(super) accesses: Vec<MemoryAccess>,
}

fn invalid(what: String) -> Failure {
    Failure::new(code::HCCL_PARA, what)
}

fn null(argument: &str) -> Failure {
    Failure::new(code::HCCL_PTR, format!("argument {argument} is NULL"))
}

impl Machine {
    fn caller(
        &self,
        name: &'static str,
        dtype: HcclDataType,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<CollectiveCaller<'_>, Failure> {
        let (_, member) = self.member(comm)?;
        let stream = self.comm_stream(stream, member)?;
        let (world, card) = {
            let state = self.lock();
            let communicator = state.hccl.communicators.communicator(member.communicator)?;
            (communicator.cards.len(), communicator.cards[member.rank as usize])
        };
        let rule = rule_of(name);
        Ok(CollectiveCaller {
            machine: self,
            name,
            rule,
            member,
            stream,
            world,
            card,
            dtype: rule.data_type(dtype, self.config().soc)?,
        })
    }
}

impl CollectiveCaller<'_> {
    fn buffer(&self, argument: &str, address: *const c_void, count: u64) -> Result<Option<RawSpan>, Failure> {
        if count == 0 {
            return Ok(None);
        }
        if address.is_null() {
            return Err(null(argument));
        }
        let element = self.dtype.size_bytes();
        if !address.addr().is_multiple_of(element) {
            return Err(invalid(format!(
                "{argument} is not aligned to {element} bytes, the size of {}",
                self.dtype
            )));
        }
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(element));
        let bytes = bytes
            .ok_or_else(|| invalid(format!("{argument}: {count} elements of {} overflow", self.dtype)))?;
        let span = self.machine.device_span(address, bytes).map_err(|failure| {
            invalid(format!("{argument} ({count} elements of {}): {}", self.dtype, failure.message))
        })?;
        match span.card() {
            Some(card) if card == self.card => Ok(Some(span)),
            card => {
                let on = card.map_or("the host".into(), |card| format!("card {card}"));
                let (rank, home) = (self.member.rank, self.card);
                Err(invalid(format!("{argument} is on {on}, but rank {rank} is on card {home}")))
            }
        }
    }

    fn extent(&self, argument: &str, blocks: &Blocks) -> Result<u64, Failure> {
        blocks
            .extent(self.world)
            .ok_or_else(|| invalid(format!("{argument}: counts and displacements overflow")))
    }

    /// Returns (displacement, count) per rank.
    ///
    /// # Safety
    ///
    /// Each array is NULL or has one `u64` per rank.
    unsafe fn listed(
        &self,
        what: [&str; 2],
        counts: *const c_void,
        displs: *const c_void,
    ) -> Result<Blocks, Failure> {
        // SAFETY: the caller upholds this contract.
        let counts =
            unsafe { load_array(what[0], counts.cast::<u64>(), self.world) }.map_err(|_| null(what[0]))?;
        // SAFETY: as above.
        let displs =
            unsafe { load_array(what[1], displs.cast::<u64>(), self.world) }.map_err(|_| null(what[1]))?;
        Ok(Blocks::Listed(displs.into_iter().zip(counts).collect()))
    }

    fn check_root(&self, root: u32) -> Result<bool, Failure> {
        self.check_named("root", root)?;
        Ok(root == self.member.rank)
    }

    fn check_named(&self, argument: &str, named: u32) -> Result<(), Failure> {
        let (world, own) = (self.world, self.member.rank);
        let is_rank = (named as usize) < world;
        match self.rule.names {
            Named::Root | Named::Anyone if !is_rank => {
                Err(invalid(format!("{argument} {named} is not a rank of a communicator of {world}")))
            }
            Named::Peer if !is_rank || named == own => Err(invalid(format!(
                "{argument} is {named}; expected another rank than {own} in a communicator of {world}"
            ))),
            _ => Ok(()),
        }
    }

    /// The function's rule may allow an overlap. `blocks` are the blocks of the larger buffer.
    fn check_overlap(
        &self,
        send: Option<&RawSpan>,
        recv: Option<&RawSpan>,
        blocks: &Blocks,
    ) -> Result<(), Failure> {
        let (Some(send), Some(recv)) = (send, recv) else { return Ok(()) };
        if !send.overlaps(recv) {
            return Ok(());
        }
        let is_allowed = match self.rule.in_place {
            InPlace::SameBuffer => send.is_same_as(recv),
            InPlace::OwnBlockOfSend => self.own_block(send, blocks).is_same_as(recv),
            InPlace::OwnBlockOfReceive => self.own_block(recv, blocks).is_same_as(send),
            InPlace::Never | InPlace::OneBuffer => false,
        };
        if is_allowed {
            return Ok(());
        }
        Err(invalid(format!("the send and receive buffers of {} overlap where they must not", self.name)))
    }

    fn enqueue(
        &self,
        kind: CollectiveOperation,
        send: Option<RawSpan>,
        recv: Option<RawSpan>,
    ) -> Result<(), Failure> {
        self.enqueue_all(vec![CollectiveCall {
            name: self.name,
            kind,
            dtype: self.dtype,
            send,
            recv,
            places: None,
            product_ns: 0,
        }])
    }

    /// CANN before 8.5 captures no collectives (AscendCL guide 8.5, capture). A capture cannot
    /// record the links that a communicator's first collective creates. This was observed on cards
    /// and is not documented, so only strict mode enforces it.
    fn check_captured(&self, state: &mut MachineState) -> Result<(), Failure> {
        let cann = self.machine.config().cann;
        let (code, why) = if cann < CannVersion::V8_5 {
            let has = cann.name();
            (
                code::HCCL_NOT_SUPPORT,
                format!(
                    "collectives can be captured from CANN 8.5 on, and this is {has}; capture the work between \
                     collectives"
                ),
            )
        } else if state.is_strict()
            && !state.hccl.communicators.communicator(self.member.communicator)?.has_called(self.member.rank)
        {
            let what = "the first collective of a communicator creates links, and a capture cannot record this; run it \
                        once before";
            (code::CAPTURE_MODE_NOT_SUPPORT, what.to_owned())
        } else {
            return Ok(());
        };
        let what = format!("{} on stream {}, which is being captured: {why}", self.name, self.stream);
        state.invalidate_capture(self.stream, &what)?;
        Err(Failure::new(code, what))
    }

    fn enqueue_all(&self, calls: Vec<CollectiveCall>) -> Result<(), Failure> {
        self.enqueue_beside(calls, None, None)
    }

    /// The calls and the fused compute tasks begin and end together.
    fn enqueue_beside(
        &self,
        mut calls: Vec<CollectiveCall>,
        before: Option<JoinedCompute>,
        behind: Option<JoinedCompute>,
    ) -> Result<(), Failure> {
        let transport =
            self.machine.lock().hccl.communicators.communicator(self.member.communicator)?.transport;
        if transport == Some(ChosenTransport::SharedMemory) {
            for call in &mut calls {
                call.places = self.machine.places(call);
                if call.places.is_none() {
                    let what = format!("{call}: this host has no memory for the list of mapped buffers");
                    return Err(Failure::new(code::HCCL_MEMORY, what));
                }
            }
        }
        let accesses = self.machine.watched(|| calls.iter().flat_map(CollectiveCall::accesses).collect());
        let compute = |state: &mut MachineState, beside: Option<JoinedCompute>| {
            let Some(JoinedCompute { entry, accesses }) = beside else { return Ok(()) };
            let queued = self.machine.queued(state, self.stream, entry, accesses);
            state.enqueue(self.stream, queued)
        };
        self.machine.update(|state| {
            if let Some(failure) =
                state.runtime.streams.get(&self.stream).and_then(|stream| stream.refusal().cloned())
            {
                return Err(failure);
            }
            if state.runtime.graphs.is_capturing(self.stream) {
                self.check_captured(state)?;
                compute(state, before)?;
                let queued = self.machine.queued(state, self.stream, StreamEntry::Meet(Vec::new()), accesses);
                state.capture_collective(self.stream, self.member, calls, queued)?;
                return compute(state, behind);
            }
            let mut rank_places = Vec::with_capacity(calls.len());
            for call in calls {
                rank_places.push(state.join(self.member.communicator, self.member.rank, call)?);
            }
            compute(state, before)?;
            let queued = self.machine.queued(state, self.stream, StreamEntry::Meet(rank_places), accesses);
            state.enqueue(self.stream, queued)?;
            compute(state, behind)
        })
    }
}

impl Machine {
    /// `function` is the HCCL function with the same semantics.
    pub(super) fn enqueue_joined(
        &self,
        function: &str,
        member: CommunicatorMember,
        stream: u64,
        call: CollectiveCall,
        before: Option<JoinedCompute>,
        behind: Option<JoinedCompute>,
    ) -> Result<(), Failure> {
        let (world, card) = {
            let state = self.lock();
            let communicator = state.hccl.communicators.communicator(member.communicator)?;
            (communicator.cards.len(), communicator.cards[member.rank as usize])
        };
        let (name, dtype, rule) = (call.name, call.dtype, rule_of(function));
        let caller = CollectiveCaller { machine: self, name, rule, member, stream, world, card, dtype };
        if let CollectiveOperation::AllGather { blocks } | CollectiveOperation::ReduceScatter { blocks, .. } =
            &call.kind
        {
            caller.check_overlap(call.send.as_ref(), call.recv.as_ref(), blocks)?;
        }
        caller.enqueue_beside(vec![call], before, behind)
    }

    pub(super) fn HcclAllReduce(
        &self,
        send_buf: *mut c_void,
        recv_buf: *mut c_void,
        count: u64,
        data_type: HcclDataType,
        op: HcclReduceOp,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let caller = self.caller("HcclAllReduce", data_type, comm, stream)?;
        let op = caller.rule.reduction(op, data_type, self.config().soc)?;
        let send = caller.buffer("send_buf", send_buf, count)?;
        let recv = caller.buffer("recv_buf", recv_buf, count)?;
        caller.check_overlap(send.as_ref(), recv.as_ref(), &Blocks::Uniform(count))?;
        caller.enqueue(CollectiveOperation::AllReduce { count, op }, send, recv)
    }

    pub(super) fn HcclReduce(
        &self,
        send_buf: *mut c_void,
        recv_buf: *mut c_void,
        count: u64,
        data_type: HcclDataType,
        op: HcclReduceOp,
        root: u32,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let caller = self.caller("HcclReduce", data_type, comm, stream)?;
        let op = caller.rule.reduction(op, data_type, self.config().soc)?;
        let is_root = caller.check_root(root)?;
        let send = caller.buffer("send_buf", send_buf, count)?;
        let recv = if is_root { caller.buffer("recv_buf", recv_buf, count)? } else { None };
        caller.check_overlap(send.as_ref(), recv.as_ref(), &Blocks::Uniform(count))?;
        caller.enqueue(CollectiveOperation::Reduce { count, op, root }, send, recv)
    }

    pub(super) fn HcclReduceScatter(
        &self,
        send_buf: *mut c_void,
        recv_buf: *mut c_void,
        recv_count: u64,
        data_type: HcclDataType,
        op: HcclReduceOp,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let caller = self.caller("HcclReduceScatter", data_type, comm, stream)?;
        let op = caller.rule.reduction(op, data_type, self.config().soc)?;
        let blocks = Blocks::Uniform(recv_count);
        let send = caller.buffer("send_buf", send_buf, caller.extent("send_buf", &blocks)?)?;
        let recv = caller.buffer("recv_buf", recv_buf, recv_count)?;
        caller.check_overlap(send.as_ref(), recv.as_ref(), &blocks)?;
        caller.enqueue(CollectiveOperation::ReduceScatter { blocks, op }, send, recv)
    }

    pub(super) unsafe fn HcclReduceScatterV(
        &self,
        send_buf: *mut c_void,
        send_counts: *const c_void,
        send_displs: *const c_void,
        recv_buf: *mut c_void,
        recv_count: u64,
        data_type: HcclDataType,
        op: HcclReduceOp,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let caller = self.caller("HcclReduceScatterV", data_type, comm, stream)?;
        let op = caller.rule.reduction(op, data_type, self.config().soc)?;
        // SAFETY: the caller upholds this contract.
        let blocks = unsafe { caller.listed(["send_counts", "send_displs"], send_counts, send_displs) }?;
        caller.check_own_count("recv_count", recv_count, "send_counts", &blocks)?;
        let send = caller.buffer("send_buf", send_buf, caller.extent("send_buf", &blocks)?)?;
        let recv = caller.buffer("recv_buf", recv_buf, recv_count)?;
        caller.check_overlap(send.as_ref(), recv.as_ref(), &blocks)?;
        caller.enqueue(CollectiveOperation::ReduceScatter { blocks, op }, send, recv)
    }

    pub(super) fn HcclBroadcast(
        &self,
        buf: *mut c_void,
        count: u64,
        data_type: HcclDataType,
        root: u32,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let caller = self.caller("HcclBroadcast", data_type, comm, stream)?;
        let is_root = caller.check_root(root)?;
        let buffer = caller.buffer("buf", buf, count)?;
        let (send, recv) = if is_root { (buffer, None) } else { (None, buffer) };
        caller.enqueue(CollectiveOperation::Broadcast { count, root }, send, recv)
    }

    pub(super) fn HcclScatter(
        &self,
        send_buf: *mut c_void,
        recv_buf: *mut c_void,
        recv_count: u64,
        data_type: HcclDataType,
        root: u32,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let caller = self.caller("HcclScatter", data_type, comm, stream)?;
        let is_root = caller.check_root(root)?;
        let blocks = Blocks::Uniform(recv_count);
        let extent = caller.extent("send_buf", &blocks)?;
        let send = if is_root { caller.buffer("send_buf", send_buf, extent)? } else { None };
        let recv = caller.buffer("recv_buf", recv_buf, recv_count)?;
        caller.check_overlap(send.as_ref(), recv.as_ref(), &blocks)?;
        caller.enqueue(CollectiveOperation::Scatter { count: recv_count, root }, send, recv)
    }

    pub(super) fn HcclAllGather(
        &self,
        send_buf: *mut c_void,
        recv_buf: *mut c_void,
        send_count: u64,
        data_type: HcclDataType,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let caller = self.caller("HcclAllGather", data_type, comm, stream)?;
        let blocks = Blocks::Uniform(send_count);
        let send = caller.buffer("send_buf", send_buf, send_count)?;
        let recv = caller.buffer("recv_buf", recv_buf, caller.extent("recv_buf", &blocks)?)?;
        caller.check_overlap(send.as_ref(), recv.as_ref(), &blocks)?;
        caller.enqueue(CollectiveOperation::AllGather { blocks }, send, recv)
    }

    pub(super) unsafe fn HcclAllGatherV(
        &self,
        send_buf: *mut c_void,
        send_count: u64,
        recv_buf: *mut c_void,
        recv_counts: *const c_void,
        recv_displs: *const c_void,
        data_type: HcclDataType,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let caller = self.caller("HcclAllGatherV", data_type, comm, stream)?;
        // SAFETY: the caller upholds this contract.
        let blocks = unsafe { caller.listed(["recv_counts", "recv_displs"], recv_counts, recv_displs) }?;
        caller.check_own_count("send_count", send_count, "recv_counts", &blocks)?;
        let send = caller.buffer("send_buf", send_buf, send_count)?;
        let recv = caller.buffer("recv_buf", recv_buf, caller.extent("recv_buf", &blocks)?)?;
        caller.check_overlap(send.as_ref(), recv.as_ref(), &blocks)?;
        caller.enqueue(CollectiveOperation::AllGather { blocks }, send, recv)
    }

    pub(super) fn HcclAlltoAll(
        &self,
        send_buf: *const c_void,
        send_count: u64,
        send_type: HcclDataType,
        recv_buf: *const c_void,
        recv_count: u64,
        recv_type: HcclDataType,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let caller = self.caller("HcclAlltoAll", send_type, comm, stream)?;
        if send_count != recv_count {
            return Err(invalid(format!(
                "send_count {send_count} and recv_count {recv_count} must be equal"
            )));
        }
        caller.all_to_all(
            send_buf,
            Blocks::Uniform(send_count),
            recv_buf,
            Blocks::Uniform(recv_count),
            recv_type,
        )
    }

    pub(super) unsafe fn HcclAlltoAllV(
        &self,
        send_buf: *const c_void,
        send_counts: *const c_void,
        sdispls: *const c_void,
        send_type: HcclDataType,
        recv_buf: *const c_void,
        recv_counts: *const c_void,
        rdispls: *const c_void,
        recv_type: HcclDataType,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let caller = self.caller("HcclAlltoAllV", send_type, comm, stream)?;
        // SAFETY: the caller upholds this contract.
        let send = unsafe { caller.listed(["send_counts", "sdispls"], send_counts, sdispls) }?;
        // SAFETY: as above.
        let recv = unsafe { caller.listed(["recv_counts", "rdispls"], recv_counts, rdispls) }?;
        caller.all_to_all(send_buf, send, recv_buf, recv, recv_type)
    }

    pub(super) unsafe fn HcclAlltoAllVC(
        &self,
        send_buf: *const c_void,
        send_count_matrix: *const c_void,
        send_type: HcclDataType,
        recv_buf: *const c_void,
        recv_type: HcclDataType,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let caller = self.caller("HcclAlltoAllVC", send_type, comm, stream)?;
        let (world, rank) = (caller.world, caller.member.rank as usize);
        // SAFETY: the C caller passes NULL or a matrix of world x world counts, row = sender.
        let matrix =
            unsafe { load_array("send_count_matrix", send_count_matrix.cast::<u64>(), world * world) };
        let matrix = matrix.map_err(|_| null("send_count_matrix"))?;
        let overflows = || invalid("send_count_matrix: the counts overflow".into());
        let send = packed(matrix[rank * world..][..world].iter()).ok_or_else(overflows)?;
        let recv = packed(matrix.iter().skip(rank).step_by(world)).ok_or_else(overflows)?;
        caller.all_to_all(send_buf, send, recv_buf, recv, recv_type)
    }

    pub(super) fn HcclBarrier(&self, comm: HcclComm, stream: aclrtStream) -> Result<(), Failure> {
        // The type is arbitrary: no data.
        self.caller("HcclBarrier", HcclDataType::HCCL_DATA_TYPE_INT8, comm, stream)?.enqueue(
            CollectiveOperation::Barrier,
            None,
            None,
        )
    }

    pub(super) fn HcclSend(
        &self,
        send_buf: *mut c_void,
        count: u64,
        data_type: HcclDataType,
        dest_rank: u32,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let caller = self.caller("HcclSend", data_type, comm, stream)?;
        caller.check_named("dest_rank", dest_rank)?;
        let send = caller.buffer("send_buf", send_buf, count)?;
        caller.enqueue(CollectiveOperation::Send { count, to: dest_rank }, send, None)
    }

    pub(super) fn HcclRecv(
        &self,
        recv_buf: *mut c_void,
        count: u64,
        data_type: HcclDataType,
        src_rank: u32,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let caller = self.caller("HcclRecv", data_type, comm, stream)?;
        caller.check_named("src_rank", src_rank)?;
        let recv = caller.buffer("recv_buf", recv_buf, count)?;
        caller.enqueue(CollectiveOperation::Recv { count, from: src_rank }, None, recv)
    }

    /// The items of a batch begin and end together. Two items with the same direction must not name
    /// the same rank (HCCL guide).
    pub(super) unsafe fn HcclBatchSendRecv(
        &self,
        send_recv_info: *mut HcclSendRecvItem,
        item_num: u32,
        comm: HcclComm,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        // Arbitrary: each item has its own type.
        let mut caller = self.caller("HcclBatchSendRecv", HcclDataType::HCCL_DATA_TYPE_INT8, comm, stream)?;
        if item_num == 0 {
            return Err(invalid("item_num is 0; a batch has at least one send or receive".into()));
        }
        // SAFETY: the C caller passes NULL or `item_num` items.
        let items = unsafe { load_array("send_recv_info", send_recv_info, item_num as usize) };
        let items = items.map_err(|_| null("send_recv_info"))?;
        let mut calls: Vec<CollectiveCall> = Vec::with_capacity(items.len());
        for item in &items {
            caller.dtype = caller.rule.data_type(item.dataType, self.config().soc)?;
            caller.check_named("remoteRank", item.remoteRank)?;
            let buffer = caller.buffer("buf", item.buf, item.count)?;
            // HCCL compares bytes: programs receive activations as another type of their size.
            let (count, dtype) = if self.strict().is_some() {
                (item.count, caller.dtype)
            } else {
                (item.count * caller.dtype.size_bytes() as u64, DataType::Uint8)
            };
            let (kind, send, recv) = match item.sendRecvType {
                HcclSendRecvType::HCCL_SEND => {
                    (CollectiveOperation::Send { count, to: item.remoteRank }, buffer, None)
                }
                HcclSendRecvType::HCCL_RECV => {
                    (CollectiveOperation::Recv { count, from: item.remoteRank }, None, buffer)
                }
                other => {
                    return Err(invalid(format!("sendRecvType {} is neither SEND 0 nor RECV 1", other.0)));
                }
            };
            let is_same_direction = |other: &CollectiveCall| match (&other.kind, &kind) {
                (CollectiveOperation::Send { to: a, .. }, CollectiveOperation::Send { to: b, .. }) => a == b,
                (CollectiveOperation::Recv { from: a, .. }, CollectiveOperation::Recv { from: b, .. }) => {
                    a == b
                }
                _ => false,
            };
            if calls.iter().any(is_same_direction) {
                let what = format!("a batch names rank {} twice in one direction", item.remoteRank);
                return Err(invalid(what));
            }
            calls.push(CollectiveCall {
                name: caller.name,
                kind,
                dtype,
                send,
                recv,
                places: None,
                product_ns: 0,
            });
        }
        caller.enqueue_all(calls)
    }
}

impl CollectiveCaller<'_> {
    fn own_block(&self, span: &RawSpan, blocks: &Blocks) -> RawSpan {
        let element = self.dtype.size_bytes();
        let (displacement, count) = blocks.at(self.member.rank as usize);
        span.slice(displacement as usize * element, count as usize * element)
    }

    fn check_own_count(
        &self,
        argument: &str,
        count: u64,
        array: &str,
        blocks: &Blocks,
    ) -> Result<(), Failure> {
        let rank = self.member.rank as usize;
        let expected = blocks.at(rank).1;
        if count == expected {
            return Ok(());
        }
        Err(invalid(format!(
            "{argument} is {count}, but {array}[{rank}], for the same transfer, is {expected}"
        )))
    }

    fn all_to_all(
        &self,
        send_buf: *const c_void,
        send_blocks: Blocks,
        recv_buf: *const c_void,
        recv_blocks: Blocks,
        recv_type: HcclDataType,
    ) -> Result<(), Failure> {
        let recv_type = self.rule.data_type(recv_type, self.machine.config().soc)?;
        if recv_type != self.dtype {
            return Err(invalid(format!(
                "send type {} and receive type {recv_type} must be equal",
                self.dtype
            )));
        }
        let send = self.buffer("send_buf", send_buf, self.extent("send_buf", &send_blocks)?)?;
        let recv = self.buffer("recv_buf", recv_buf, self.extent("recv_buf", &recv_blocks)?)?;
        self.check_overlap(send.as_ref(), recv.as_ref(), &recv_blocks)?;
        self.enqueue(CollectiveOperation::AllToAll { send: send_blocks, recv: recv_blocks }, send, recv)
    }
}

/// Returns `None` if the counts overflow.
fn packed<'a>(counts: impl Iterator<Item = &'a u64>) -> Option<Blocks> {
    let mut end = 0_u64;
    let mut blocks = Vec::new();
    for count in counts {
        blocks.push((end, *count));
        end = end.checked_add(*count)?;
    }
    Some(Blocks::Listed(blocks))
}
