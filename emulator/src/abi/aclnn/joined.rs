//! Operators that join a product with an exchange: the product is a task of the stream, the exchange a collective of the group's
//! communicator, and the calls of all ranks meet as those of HCCL do.

use std::ffi::c_void;

use ascend_tp_machine::Soc;
use ascend_tp_sys::aclrtStream;

use crate::abi::hccl::Product;
use crate::base::failure::{Failure, code};
use crate::hccl::group::Member;
use crate::hccl::{Blocks, CollectiveCall, CollectiveKind, DataType, ReduceOp};
use crate::machine::Machine;
use crate::memory::raw::RawSpan;
use crate::nn::dtype::DType;
use crate::nn::executor::Executor;
use crate::nn::operator::{Joined, JoinedExchange, Tensor, ViewIndex};
use crate::nn::view::contiguous_strides;
use crate::runtime::stream::Entry;
use crate::runtime::thread;

/// A product in a workspace.
pub(super) struct Workspace {
    pub(super) dtype: DType,
    pub(super) dims: Vec<usize>,
    pub(super) strides: Vec<isize>,
}

/// The product of a call that makes it in its workspace, from the first byte on.
pub(super) fn product_in_workspace(planned: &Executor) -> Option<Workspace> {
    let JoinedExchange::ReduceScatter(out, cards) = planned.joined()?.exchange else { return None };
    let out = &planned.tensors()[out.0].tensor;
    let dims = vec![out.dims[0] * cards, out.dims[1]];
    Some(Workspace { dtype: out.dtype, strides: contiguous_strides(&dims), dims })
}

/// Whether the cards of a chip do so over this many of them.
fn runs_on(soc: Soc, exchange: JoinedExchange, cards: usize) -> bool {
    let has = !matches!(exchange, JoinedExchange::AllReduce(_)) || soc.series() == "Atlas A2";
    has && soc.fuses_exchanges_of(cards)
}

impl Machine {
    /// This card's rank in the group of a call, once that group is one the call can be of.
    pub(super) fn joined_member(&self, name: &'static str, joined: &Joined, card: u32) -> Result<Member, Failure> {
        let state = self.lock();
        let (member, group) =
            state.hccl.groups.of_name(&joined.group, card).map_err(|failure| in_group(name, failure))?;
        let (world, soc) = (group.cards.len(), self.config().soc);
        let refuse = |what: String| Err(in_group(name, Failure::new(code::PARAM_INVALID_ACLNN, what)));
        if !runs_on(soc, joined.exchange, world) {
            return refuse(format!(
                "{world} cards of the {} have no such operator: use HCCL beside a product",
                soc.series()
            ));
        }
        match joined.exchange.cards() {
            Some(cards) if cards != world => refuse(format!("its {world} cards, but the shapes are those of {cards}")),
            _ => Ok(member),
        }
    }

    /// Second phase of an operator that joins a product with an exchange.
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
        let (task, accesses) = self.bind(planned, workspace, workspace_bytes, card)?;
        let buffer = |slot: ViewIndex| {
            let bound = &planned.tensors()[slot.0];
            self.memory_of(slot.0, bound, card).map(|span| span.map(|span| elements(&span, &bound.tensor)))
        };
        let count = |slot: ViewIndex| planned.tensors()[slot.0].tensor.len() as u64;
        let op = ReduceOp::Sum;
        let (function, kind, send, recv) = match joined.exchange {
            JoinedExchange::AllReduce(out) => {
                let kind = CollectiveKind::AllReduce { count: count(out), op };
                ("HcclAllReduce", kind, buffer(out)?, buffer(out)?)
            }
            JoinedExchange::AllGather([part, gathered], _) => {
                let kind = CollectiveKind::AllGather { blocks: Blocks::Uniform(count(part)) };
                ("HcclAllGather", kind, buffer(part)?, buffer(gathered)?)
            }
            JoinedExchange::ReduceScatter(out, _) => {
                let kind = CollectiveKind::ReduceScatter { blocks: Blocks::Uniform(count(out)), op };
                let product = self.workspace(planned, workspace, workspace_bytes, card)?;
                ("HcclReduceScatter", kind, product, buffer(out)?)
            }
        };
        let dtype = match planned.tensors()[0].tensor.dtype {
            DType::F16 => DataType::Fp16,
            _ => DataType::Bf16,
        };
        let product_ns = self.load_ns(planned.load());
        let call = CollectiveCall { name, kind, dtype, send, recv, places: None, product_ns };
        let entry = Entry::Task { name, task, load: planned.load(), is_brief: false };
        let is_first = !matches!(joined.exchange, JoinedExchange::AllGather(..));
        // HCCL numbers its own failures from 1 on; a status of aclnn has six digits.
        let of_aclnn = |failure: Failure| match failure.code {
            ..100_000 => Failure { code: code::RUNTIME_ACLNN, ..failure },
            _ => failure,
        };
        let product = Product { entry, accesses, is_first };
        self.enqueue_joined(function, (member, stream), call, product).map_err(of_aclnn)
    }
}

/// The bytes of a dense tensor in the memory from its storage on.
fn elements(span: &RawSpan, tensor: &Tensor) -> RawSpan {
    let size = tensor.dtype.size();
    span.slice(tensor.offset.unsigned_abs() * size, tensor.len() * size)
}

fn in_group(name: &str, failure: Failure) -> Failure {
    Failure { message: format!("{name}: group: {}", failure.message), ..failure }
}
