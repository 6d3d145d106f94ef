//! Cost of stream entries.
//!
//! The cost model of `ascend_tp_machine`, which the planner uses too, computes a [`TimedLoad`] when
//! a call is planned. Equal loads are stored once.

use std::collections::HashMap;
use std::sync::Arc;

use ascend_tp_machine::collective::LinkLoad;
use ascend_tp_machine::launch::Access;
use ascend_tp_machine::{
    CollectiveCost, Element, Exchange, HostCall, Launch, LaunchOperand, OperatorCost, Profile, Work,
};

use super::timeline::{Lane, SpanKind, Timeline};
use super::{TimedMode, nanoseconds};
use crate::hccl::{Blocks, CollectiveCall, CollectiveOperation};
use crate::memory::copy::Copy;
use crate::scheduler::ran::MeasuredKernel;

#[derive(Debug)]
pub(crate) struct TimedLoad {
    pub(crate) duration_ns: u64,
    pub(crate) kind: SpanKind,
    pub(crate) links: Vec<LinkLoad>,
    /// The work measures its own cost.
    pub(crate) is_counted: bool,
}

impl TimedLoad {
    /// Returns the load of work on one card.
    fn of_card(
        duration_us: f64,
        name: &'static str,
        bound: &'static str,
        lane: Lane,
        flops: f64,
        bytes: f64,
        timeline: &mut Timeline,
    ) -> Self {
        let total = timeline.place(name, bound, lane);
        let kind = SpanKind { name, bound, lane, flops, bytes, group: None, total };
        Self { duration_ns: nanoseconds(duration_us), kind, links: Vec::new(), is_counted: false }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadId(u32);

/// Name, bound, lane, duration, operations, bytes, and whether the work counts itself.
type LoadContent = (&'static str, &'static str, Lane, u64, u64, u64, bool);

/// Distinct loads of operators and copies; there are few.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    all: Vec<TimedLoad>,
    by_content: HashMap<LoadContent, LoadId>,
}

impl Loads {
    pub(crate) fn intern(&mut self, load: TimedLoad) -> LoadId {
        let kind = &load.kind;
        let (flops, bytes) = (kind.flops.to_bits(), kind.bytes.to_bits());
        let content = (kind.name, kind.bound, kind.lane, load.duration_ns, flops, bytes, load.is_counted);
        let all = &mut self.all;
        *self.by_content.entry(content).or_insert_with(|| {
            all.push(load);
            LoadId(all.len() as u32 - 1)
        })
    }

    pub(crate) fn of(&self, id: LoadId) -> &TimedLoad {
        &self.all[id.0 as usize]
    }
}

/// Keys: communicator, exchange, bytes and duration of the fused product.
pub(crate) type ExchangeLoads = HashMap<(u64, Exchange, u64, u64), Arc<TimedLoad>>;

impl TimedMode {
    pub(crate) fn operator(&self, name: &'static str, work: &Work, timeline: &mut Timeline) -> TimedLoad {
        let cost = OperatorCost::of(&self.profile, work);
        let (bound, lane) = (cost.bound.name(), Lane::from(cost.engine));
        TimedLoad::of_card(cost.duration_us, name, bound, lane, work.flops(), work.bytes(), timeline)
    }

    pub(crate) fn counted(
        &self,
        name: &'static str,
        work: MeasuredKernel,
        timeline: &mut Timeline,
    ) -> TimedLoad {
        let cost = OperatorCost::of_kernel(&self.profile, work.cycles as f64, work.bytes as f64);
        let (bound, lane) = (cost.bound.name(), Lane::from(cost.engine));
        TimedLoad::of_card(cost.duration_us, name, bound, lane, 0.0, work.bytes as f64, timeline)
    }

    /// The copy is within a card, between a card and the host, or between two cards.
    pub(crate) fn copy(&self, name: &'static str, copy: &Copy, timeline: &mut Timeline) -> TimedLoad {
        let bytes = copy.width * copy.height;
        let (bound, duration_us) = match (copy.into.card(), copy.from.card()) {
            (Some(into), Some(from)) if into == from => {
                let (into, from) = (passing(bytes, Access::Write), passing(bytes, Access::Read));
                ("memory", pass_us(&self.profile, vec![into, from]))
            }
            (Some(into), Some(from)) => {
                let cards = [from as usize, into as usize];
                let cost = CollectiveCost::of(
                    &self.profile,
                    &self.topology,
                    Exchange::SendRecv,
                    bytes as f64,
                    &cards,
                );
                ("link", cost.duration_us)
            }
            _ => ("host link", self.transfer_us(bytes)),
        };
        TimedLoad::of_card(duration_us, name, bound, Lane::Copy, 0.0, bytes as f64, timeline)
    }

    /// Returns the time of a copy between host and card, in microseconds.
    pub(crate) fn transfer_us(&self, bytes: usize) -> f64 {
        self.profile.host_us(HostCall::Copy, bytes as f64) - self.profile.host_us(HostCall::Copy, 0.0)
    }

    /// A pass of the copy engine makes these accesses per byte.
    pub(crate) fn pass(
        &self,
        name: &'static str,
        bytes: usize,
        accesses: &[Access],
        timeline: &mut Timeline,
    ) -> TimedLoad {
        let operands = accesses.iter().map(|access| passing(bytes, *access)).collect();
        let moved = (bytes * accesses.len()) as f64;
        TimedLoad::of_card(pass_us(&self.profile, operands), name, "memory", Lane::Copy, 0.0, moved, timeline)
    }

    pub(crate) fn exchange(
        &self,
        calls: &[&CollectiveCall],
        cards: &[u32],
        timeline: &mut Timeline,
    ) -> TimedLoad {
        let (exchange, bytes) = exchanged(calls);
        let on: Vec<usize> = cards.iter().map(|card| *card as usize).collect();
        let product_us = product_ns(calls) as f64 / 1000.0;
        let cost = CollectiveCost::of(&self.profile, &self.topology, exchange, bytes, &on).beside(product_us);
        let name = calls.first().map_or("collective", |call| call.name);
        let bound = if cost.transfer_us > cost.latency_us { "link" } else { "latency" };
        let total = timeline.place(name, bound, Lane::Communication);
        let group = Some(Arc::from(cards));
        let kind = SpanKind { name, bound, lane: Lane::Communication, flops: 0.0, bytes, group, total };
        TimedLoad {
            duration_ns: nanoseconds(cost.duration_us),
            kind,
            links: cost.links(&self.topology, &on),
            is_counted: false,
        }
    }
}

fn passing(bytes: usize, access: Access) -> LaunchOperand {
    LaunchOperand::dense(Element::I8, [bytes], access)
}

/// Returns microseconds; a pass equals a kernel that only moves the data.
fn pass_us(profile: &Profile, operands: Vec<LaunchOperand>) -> f64 {
    OperatorCost::of(profile, &Work::of(&Launch { operator: "aclnnInplaceCopy", operands })).duration_us
}

/// Returns the exchange and bytes for the cost model.
pub(crate) fn exchanged(calls: &[&CollectiveCall]) -> (Exchange, f64) {
    let Some(first) = calls.first() else { return (Exchange::Barrier, 0.0) };
    let world = calls.len();
    let sum = |blocks: &Blocks| (0..world).map(|rank| blocks.at(rank).1).sum::<u64>();
    let (exchange, elements) = match &first.kind {
        CollectiveOperation::AllReduce { count, .. } => (Exchange::AllReduce, *count),
        CollectiveOperation::Reduce { count, .. } => (Exchange::Reduce, *count),
        CollectiveOperation::ReduceScatter { blocks, .. } => (Exchange::ReduceScatter, sum(blocks)),
        CollectiveOperation::AllGather { blocks } => (Exchange::AllGather, sum(blocks)),
        CollectiveOperation::Broadcast { count, .. } => (Exchange::Broadcast, *count),
        CollectiveOperation::Scatter { count, .. } => (Exchange::Scatter, count * world as u64),
        CollectiveOperation::AllToAll { .. } => {
            let blocks = |call: &CollectiveCall| match &call.kind {
                CollectiveOperation::AllToAll { send, .. } => {
                    (0..world).map(|rank| send.at(rank).1).collect()
                }
                _ => Vec::new(),
            };
            let sent: Vec<Vec<u64>> = calls.iter().map(|call| blocks(call)).collect();
            let is_shift = sent.iter().all(|blocks| blocks.iter().filter(|count| **count > 0).count() == 1);
            let most = sent.iter().map(|blocks| blocks.iter().sum()).max().unwrap_or(0);
            (if is_shift { Exchange::Shift } else { Exchange::AllToAll }, most)
        }
        CollectiveOperation::Barrier => (Exchange::Barrier, 0),
        CollectiveOperation::Send { count, .. } | CollectiveOperation::Recv { count, .. } => {
            (Exchange::SendRecv, *count)
        }
    };
    (exchange, elements as f64 * first.dtype.size_bytes() as f64)
}

/// Returns the minimum over all cards in nanoseconds, because only that much overlaps on every
/// card.
pub(crate) fn product_ns(calls: &[&CollectiveCall]) -> u64 {
    calls.iter().map(|call| call.product_ns).min().unwrap_or(0)
}
