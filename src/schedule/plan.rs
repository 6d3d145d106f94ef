//! The plan of one rank: data only.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use smallvec::smallvec;

use crate::base::{Bytes, DType, IdVec, Reduce, Shape, define_id};
use crate::call::{BufferId, Call, View, Views};
use crate::placement::shard::runs::Runs;
use crate::program::{OpId, Source, ValueId};

define_id!(
    /// An event between two streams of a rank.
    EventId,
    "e"
);
define_id!(
    /// Ranks that exchange data. The id is the same on all of these ranks.
    GroupId,
    "g"
);

/// Alignment of buffers. CANN aligns allocations to 64 and vector units read blocks of 32; CANN's
/// own allocators use 512.
pub const ALIGNMENT_BYTES: u64 = 512;

/// Memory region of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    /// Weights, which are written once.
    Weights,
    /// States that persist between runs.
    States,
    /// Host writes before runs.
    Inputs,
    /// Host reads after runs.
    Outputs,
    /// Temporaries of one run.
    Arena,
}

#[doc(hidden)]
impl Region {
    /// Regions in text order.
    pub const ALL: [Self; 5] = [Self::Weights, Self::States, Self::Inputs, Self::Outputs, Self::Arena];

    /// Returns the text name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::States => "states",
            Self::Inputs => "inputs",
            Self::Outputs => "outputs",
            Self::Arena => "arena",
        }
    }
}

/// Location of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The memory region of the buffer.
    pub region: Region,
    /// First byte in the region.
    pub offset: Bytes,
    /// Size of the buffer, in bytes.
    pub bytes: Bytes,
}

impl Slot {
    /// Returns the byte range in the region.
    #[must_use]
    pub const fn range(&self) -> Range<u64> {
        self.offset.0..self.offset.0 + self.bytes.0
    }
}

/// Stream of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum StreamKind {
    /// Stream of the operators.
    Compute,
    /// Stream of the collectives.
    Communication,
    /// Exchanges between pipeline stages, which must not block the collectives of a stage.
    Transfers,
}

impl StreamKind {
    /// Streams in text order.
    pub const ALL: [Self; 3] = [Self::Compute, Self::Communication, Self::Transfers];

    /// Returns the text name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "communication",
            Self::Transfers => "transfers",
        }
    }
}

/// A param, state, input or output.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Name in the program.
    pub name: String,
    /// Shape of the whole tensor.
    pub shape: Shape,
    /// Type of the elements.
    pub dtype: DType,
    /// This rank's shard, as ranges of the whole tensor; contiguous in its buffer.
    pub ranges: Vec<Range<usize>>,
    /// Buffer of the shard.
    pub buffer: BufferId,
    /// Offset in elements; nonzero if calls read several tensors as one.
    pub offset: usize,
    /// Checkpoint source of params.
    pub source: Option<Source>,
}

impl Tensor {
    /// Returns this rank's shard of the row-major bytes.
    #[must_use]
    pub fn cut<'a>(&self, whole: &'a [u8]) -> Cow<'a, [u8]> {
        if self.ranges.iter().zip(self.shape.iter()).all(|(range, size)| range.len() == *size) {
            return Cow::Borrowed(whole);
        }
        let size = self.dtype.size_bytes();
        let runs = Runs::of_part(&self.shape, &self.ranges);
        let length = runs.length() * size;
        Cow::Owned(runs.flat_map(|start| &whole[start * size..][..length]).copied().collect())
    }
}

/// An exchange in a group. Counts are in elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Collective {
    /// The kind of exchange, with its parameters.
    pub kind: CollectiveKind,
    /// The ranks that take part.
    pub group: GroupId,
    /// Dense data to send. Empty for a receive.
    pub send: View,
    /// Dense receive buffer. Empty for a send.
    pub recv: View,
    /// Fused product, if any. For a sum, it computes `send`, which is not stored. For a gather, it
    /// reads the gathered data.
    pub product: Option<Box<Call>>,
}

impl Collective {
    /// Creates an exchange without product.
    #[must_use]
    pub const fn alone(kind: CollectiveKind, group: GroupId, send: View, recv: View) -> Self {
        Self { kind, group, send, recv, product: None }
    }

    /// Returns the call's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.product.as_ref().map_or(self.kind.name(), |call| call.name())
    }

    fn reads(&self) -> Views<'_> {
        match (&self.product, &self.kind) {
            (Some(call), _) => call.reads(),
            (None, CollectiveKind::Receive { .. }) => Views::new(),
            (None, _) => smallvec![&self.send],
        }
    }

    fn writes(&self) -> Views<'_> {
        match (&self.product, &self.kind) {
            (Some(call), _) => call.writes(),
            (None, CollectiveKind::Send { .. }) => Views::new(),
            (None, _) => smallvec![&self.recv],
        }
    }
}

/// Counts are the same on all ranks of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectiveKind {
    /// Every rank receives the reduction.
    AllReduce {
        /// The operation that combines elements.
        reduce: Reduce,
    },
    /// Every rank receives the concatenation.
    AllGather {
        /// Elements from each rank.
        counts: Vec<usize>,
    },
    /// Every rank receives its block of the reduction.
    ReduceScatter {
        /// The operation that combines elements.
        reduce: Reduce,
        /// Elements of each block.
        counts: Vec<usize>,
    },
    /// Every rank sends one block to each rank.
    AllToAll {
        /// Elements to each rank.
        send_counts: Vec<usize>,
        /// Elements from each rank.
        recv_counts: Vec<usize>,
    },
    /// One rank receives the reduction. The other `recv` contents are undefined.
    Reduce {
        /// The operation that combines elements.
        reduce: Reduce,
        /// Receiver in the group.
        root: usize,
    },
    /// Every rank receives one rank's `send`, in place.
    Broadcast {
        /// Sender in the group.
        root: usize,
    },
    /// Sends to one rank.
    Send {
        /// Receiver in the group.
        to: usize,
    },
    /// Receives from one rank.
    Receive {
        /// Sender in the group.
        from: usize,
    },
}

impl CollectiveKind {
    /// Returns the text name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AllReduce { .. } => "all_reduce",
            Self::AllGather { .. } => "all_gather",
            Self::ReduceScatter { .. } => "reduce_scatter",
            Self::AllToAll { .. } => "all_to_all",
            Self::Reduce { .. } => "reduce",
            Self::Broadcast { .. } => "broadcast",
            Self::Send { .. } => "send",
            Self::Receive { .. } => "receive",
        }
    }

    /// Returns whether only two ranks take part.
    #[must_use]
    pub const fn is_of_two(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Receive { .. })
    }
}

/// Action of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// One operator on the compute stream.
    Launch(Box<Call>),
    /// A collective or transfer, possibly with a product.
    Exchange(Box<Collective>),
    /// Records an event on the stream.
    Record(EventId),
    /// Waits for an event.
    Wait(EventId),
}

/// An action and its op. Steps are small because passes move many.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Stream of the action.
    pub stream: StreamKind,
    /// The action that is enqueued.
    pub action: Action,
    /// Op of the lowered program.
    pub op: OpId,
}

#[doc(hidden)]
impl Step {
    /// Returns the operator or kernel call.
    #[must_use]
    pub fn call(&self) -> Option<&Call> {
        match &self.action {
            Action::Launch(call) => Some(call),
            Action::Exchange(exchange) => exchange.product.as_deref(),
            Action::Record(_) | Action::Wait(_) => None,
        }
    }

    /// Returns the read views.
    #[must_use]
    pub fn reads(&self) -> Views<'_> {
        match &self.action {
            Action::Launch(call) => call.reads(),
            Action::Exchange(exchange) => exchange.reads(),
            Action::Record(_) | Action::Wait(_) => Views::new(),
        }
    }

    /// Returns the written views.
    #[must_use]
    pub fn writes(&self) -> Views<'_> {
        match &self.action {
            Action::Launch(call) => call.writes(),
            Action::Exchange(exchange) => exchange.writes(),
            Action::Record(_) | Action::Wait(_) => Views::new(),
        }
    }
}

/// Availability of a named value.
#[derive(Clone, Debug, PartialEq)]
pub struct Tap {
    /// The value that is shown.
    pub value: ValueId,
    /// This rank's shard, dense or strided.
    pub view: View,
    /// Ranges in the whole value.
    pub ranges: Vec<Range<usize>>,
    /// Pending reduction of a partial result.
    pub partial: Option<Reduce>,
    /// False for copies, which must not be counted again.
    pub is_first_replica: bool,
    /// Steps before the value is available.
    pub after_steps: usize,
}

/// An op, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpNote {
    /// Name of the op.
    pub kind: &'static str,
    /// Name of the result, or of the operand that a movement copies.
    pub value: String,
    /// Decoder layer in the value's name.
    pub layer: Option<usize>,
    /// Launch of the op, alone or shared.
    pub launch: Launched,
}

/// Launch of an op.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Launched {
    /// The op has its own launches.
    #[default]
    Alone,
    /// Computed by the launch of this op, which comes earlier, or later if it is an exchange.
    With(OpId),
    /// Could share a launch but does not, for this reason.
    Apart(String),
}

impl fmt::Display for OpNote {
    /// Formats the place as `layer 3, all_reduce of layers.3.mlp.out`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(layer) = self.layer {
            write!(f, "layer {layer}, ")?;
        }
        write!(f, "{} of {}", self.kind, self.value)
    }
}

/// Everything that one rank does.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name of the program.
    pub name: String,
    /// Rank of the plan.
    pub rank: usize,
    /// Ranks of the mesh.
    pub world: usize,
    /// Groups of all ranks, each ascending; the same on every rank.
    pub groups: IdVec<GroupId, Vec<usize>>,
    /// Weights, in program order.
    pub params: Vec<Tensor>,
    /// States that persist between runs.
    pub states: Vec<Tensor>,
    /// Inputs of each run.
    pub inputs: Vec<Tensor>,
    /// Outputs, in full on every rank.
    pub outputs: Vec<Tensor>,
    /// Location of every buffer.
    pub buffers: IdVec<BufferId, Slot>,
    /// Steps in enqueue order.
    pub steps: Vec<Step>,
    /// Number of events used.
    pub events: usize,
    /// Taps in step order.
    pub taps: Vec<Tap>,
    /// Descriptions of the ops, by op of the lowered program.
    pub notes: IdVec<OpId, OpNote>,
}

impl Plan {
    pub(super) fn empty(name: String, rank: usize, world: usize, groups: IdVec<GroupId, Vec<usize>>) -> Self {
        Self {
            name,
            rank,
            world,
            groups,
            params: Vec::new(),
            states: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            buffers: IdVec::new(),
            steps: Vec::new(),
            events: 0,
            taps: Vec::new(),
            notes: IdVec::new(),
        }
    }

    /// Returns the size of a region.
    #[must_use]
    pub fn region_bytes(&self, region: Region) -> Bytes {
        let slots = self.buffers.values().iter().filter(|slot| slot.region == region);
        Bytes(slots.map(|slot| slot.range().end).max().unwrap_or(0).next_multiple_of(ALIGNMENT_BYTES))
    }

    /// Returns the bytes that a view may touch.
    #[must_use]
    #[doc(hidden)]
    pub fn span(&self, view: &View) -> (Region, Range<u64>) {
        let slot = &self.buffers[view.buffer];
        let (elems, size) = (view.span(), view.dtype.size_bytes() as u64);
        let start = slot.offset.0 + elems.start as u64 * size;
        (slot.region, start..start + (elems.end - elems.start) as u64 * size)
    }

    /// Returns pairs of conflicting steps, earlier first, in the order of the later steps, possibly
    /// with duplicates. Steps conflict if they touch the same bytes of a buffer and at least one
    /// writes. A reordering that swaps no pair swaps no conflicting steps: other conflicts follow
    /// from pairs with a step between them.
    #[must_use]
    #[doc(hidden)]
    pub fn conflicts(&self) -> Vec<(usize, usize)> {
        type TouchingSteps = Vec<(Range<u64>, usize)>;
        let mut touched: IdVec<BufferId, [TouchingSteps; 2]> =
            self.buffers.ids().map(|_| Default::default()).collect();
        let mut conflicts = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let reads = step.reads().into_iter().map(|view| (view, false));
            for (view, is_write) in reads.chain(step.writes().into_iter().map(|view| (view, true))) {
                let (_, range) = self.span(view);
                let [reads, writes] = &mut touched[view.buffer];
                let read = if is_write { reads.as_slice() } else { &[] };
                let earlier = writes
                    .iter()
                    .chain(read)
                    .filter(|(other, by)| *by != index && other.start < range.end && range.start < other.end);
                conflicts.extend(earlier.map(|(_, by)| (*by, index)));
                if is_write {
                    // A later step that conflicts with a covered access conflicts with this write.
                    let is_covered =
                        |other: &Range<u64>| range.start <= other.start && other.end <= range.end;
                    [&mut *reads, &mut *writes]
                        .into_iter()
                        .for_each(|accesses| accesses.retain(|(other, _)| !is_covered(other)));
                    writes.push((range, index));
                } else {
                    reads.push((range, index));
                }
            }
        }
        conflicts
    }

    /// Returns the needed streams, at least two.
    #[must_use]
    #[doc(hidden)]
    pub fn streams(&self) -> &'static [StreamKind] {
        let has_transfers = self.steps.iter().any(|step| step.stream == StreamKind::Transfers);
        &StreamKind::ALL[..if has_transfers { 3 } else { 2 }]
    }

    /// Returns the location of a tensor.
    #[must_use]
    #[doc(hidden)]
    pub fn slot(&self, tensor: &Tensor) -> Slot {
        let Slot { region, offset, .. } = self.buffers[tensor.buffer];
        let size = tensor.dtype.size_bytes();
        let elems = tensor.ranges.iter().map(Range::len).product();
        Slot {
            region,
            offset: Bytes(offset.0 + (tensor.offset * size) as u64),
            bytes: Bytes::of(elems, size),
        }
    }

    /// Returns the tensor that a call takes as a host list, if the tensor is an input: the host
    /// then knows the numbers before a run.
    #[must_use]
    #[doc(hidden)]
    pub fn host_list<'a>(&self, call: &'a Call) -> Option<&'a View> {
        let is_input =
            |view: &&View| self.buffers[view.buffer].region == Region::Inputs && view.is_contiguous();
        call.lengths().map(|(_, lengths)| lengths).filter(is_input)
    }

    pub(super) fn hold_arena(&mut self, bytes: Bytes) {
        if self.region_bytes(Region::Arena) < bytes {
            // No step touches it, so it may overlap.
            self.buffer(Region::Arena, bytes);
        }
    }

    pub(super) fn buffer(&mut self, region: Region, bytes: Bytes) -> BufferId {
        self.buffers.push(Slot { region, offset: Bytes(0), bytes })
    }
}
