//! Operators that fuse communication and computation. The computation is a task of the stream; the
//! exchange is a collective that matches other ranks like an HCCL call.

use std::ffi::c_void;

use ascend_tp_emulator_operators::dtype::AclType;
use ascend_tp_emulator_operators::operator::{
    CallPlace, CheckedTensor, Joined, JoinedExchange, ViewIndex, WorkspaceTensor,
};
use ascend_tp_machine::Soc;
use ascend_tp_sys::aclrtStream;

use crate::abi::hccl::JoinedCompute;
use crate::base::failure::{Failure, code};
use crate::hccl::communicator::CommunicatorMember;
use crate::hccl::{Blocks, CollectiveCall, CollectiveOperation, CombineOp, DataType};
use crate::machine::Machine;
use crate::memory::access::MemoryAccess;
use crate::memory::raw::RawSpan;
use crate::nn::executor::Executor;
use crate::runtime::stream::StreamEntry;
use crate::runtime::thread;
use crate::scheduler::pool::StreamTask;

pub(super) fn workspace_tensors(planned: &Executor) -> &[WorkspaceTensor] {
    planned.joined().map_or(&[], |joined| &joined.tensors)
}

/// Operators that exchange tokens make their own check.
fn runs_on(soc: Soc, exchange: JoinedExchange, cards: usize) -> bool {
    match exchange {
        JoinedExchange::AllReduce(_) => soc.series() == "Atlas A2" && soc.fuses_exchanges_of(cards),
        JoinedExchange::AllGather(..) | JoinedExchange::ReduceScatter(..) => soc.fuses_exchanges_of(cards),
        JoinedExchange::Gathered { .. } | JoinedExchange::Dealt { .. } => true,
    }
}

impl Machine {
    pub(super) fn joined_member(
        &self,
        name: &'static str,
        joined: &Joined,
        card: u32,
    ) -> Result<CommunicatorMember, Failure> {
        let state = self.lock();
        let (member, communicator) = state
            .hccl
            .communicators
            .of_name(&joined.group, card)
            .map_err(|failure| in_communicator(name, failure))?;
        let (world, soc) = (communicator.cards.len(), self.config().soc);
        let refuse = |what: String| Err(in_communicator(name, Failure::new(code::PARAM_INVALID_ACLNN, what)));
        if !runs_on(soc, joined.exchange, world) {
            return refuse(format!(
                "{world} cards of the {} do not support this operator: use a product and an HCCL call",
                soc.series()
            ));
        }
        if let Some(cards) = joined.exchange.cards().filter(|cards| *cards != world) {
            return refuse(format!("it has {world} cards, but the shapes are for {cards}"));
        }
        let place = CallPlace { is_a2: soc.series() == "Atlas A2", cards: world, rank: member.rank as usize };
        joined
            .check
            .as_ref()
            .map_or(Ok(()), |check| check(place))
            .map_err(|what| Failure::new(code::PARAM_INVALID_ACLNN, format!("{name}: {what}")))?;
        Ok(member)
    }

    pub(super) fn run_joined(
        &self,
        planned: &Executor,
        joined: &Joined,
        workspace: *mut c_void,
        workspace_bytes: u64,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let name = planned.name();
        let current = thread::context(self.key());
        let (stream, card) = self.update(|state| {
            let id = state.resolve_stream(stream, current)?;
            Ok((id, state.runtime.streams[&id].card))
        })?;
        let member = self.joined_member(name, joined, card)?;
        let bound = |kernel| self.bind(planned, kernel, workspace, workspace_bytes, card);
        let of_task = |(task, accesses): (Option<StreamTask>, Vec<MemoryAccess>), load| JoinedCompute {
            entry: StreamEntry::Task { name, task, load, is_brief: false },
            accesses,
        };
        let kernel = of_task(bound(planned.kernel())?, planned.load());
        let behind = joined
            .behind
            .clone()
            .map(|behind| bound(behind).map(|bound| of_task(bound, None)))
            .transpose()?;
        let block = |first: usize, bytes: usize| -> Result<Option<RawSpan>, Failure> {
            let span = self.workspace(planned, workspace, workspace_bytes, card)?;
            Ok(span.map(|span| span.slice(first, bytes)))
        };
        let buffer = |slot: ViewIndex| {
            let bound = &planned.tensors()[slot.0];
            self.memory_of(slot.0, bound, card).map(|span| span.map(|span| elements(&span, &bound.tensor)))
        };
        let count = |slot: ViewIndex| planned.tensors()[slot.0].tensor.len() as u64;
        let (function, kind, send, recv) = match joined.exchange {
            JoinedExchange::AllReduce(out) => {
                let kind = CollectiveOperation::AllReduce { count: count(out), op: CombineOp::Sum };
                ("HcclAllReduce", kind, buffer(out)?, buffer(out)?)
            }
            JoinedExchange::AllGather([part, gathered], _) => {
                let kind = CollectiveOperation::AllGather { blocks: Blocks::Uniform(count(part)) };
                ("HcclAllGather", kind, buffer(part)?, buffer(gathered)?)
            }
            JoinedExchange::ReduceScatter(out, _) => {
                let kind = CollectiveOperation::ReduceScatter {
                    blocks: Blocks::Uniform(count(out)),
                    op: CombineOp::Sum,
                };
                let product = self.workspace(planned, workspace, workspace_bytes, card)?;
                ("HcclReduceScatter", kind, product, buffer(out)?)
            }
            JoinedExchange::Gathered { block: bytes, cards } => {
                let kind = CollectiveOperation::AllGather { blocks: Blocks::Uniform(bytes as u64) };
                ("HcclAllGather", kind, block(0, bytes)?, block(bytes, bytes * cards)?)
            }
            JoinedExchange::Dealt { block: bytes, cards } => {
                let blocks = Blocks::Uniform(bytes as u64);
                let kind = CollectiveOperation::AllToAll { send: blocks.clone(), recv: blocks };
                ("HcclAlltoAll", kind, block(0, bytes * cards)?, block(bytes * cards, bytes * cards)?)
            }
        };
        let moves_bytes =
            matches!(joined.exchange, JoinedExchange::Gathered { .. } | JoinedExchange::Dealt { .. });
        let dtype = match planned.tensors()[0].tensor.dtype {
            _ if moves_bytes => DataType::Int8,
            AclType::F16 => DataType::Fp16,
            _ => DataType::Bf16,
        };
        // Packing, exchange and unpacking of tokens do not overlap.
        let product_ns = if moves_bytes { 0 } else { self.load_ns(planned.load()) };
        let call = CollectiveCall { name, kind, dtype, send, recv, places: None, product_ns };
        let (before, behind) = match joined.exchange {
            JoinedExchange::AllGather(..) => (None, Some(kernel)),
            _ => (Some(kernel), behind),
        };
        self.enqueue_joined(function, member, stream, call, before, behind).map_err(of_aclnn)
    }
}

fn elements(span: &RawSpan, tensor: &CheckedTensor) -> RawSpan {
    let size = tensor.dtype.size();
    span.slice(tensor.offset.unsigned_abs() * size, tensor.len() * size)
}

fn in_communicator(name: &str, failure: Failure) -> Failure {
    Failure { message: format!("{name}: group: {}", failure.message), ..failure }
}

/// HCCL codes are small numbers; aclnn codes have six digits.
fn of_aclnn(failure: Failure) -> Failure {
    match failure.code {
        ..100_000 => Failure { code: code::RUNTIME_ACLNN, ..failure },
        _ => failure,
    }
}
