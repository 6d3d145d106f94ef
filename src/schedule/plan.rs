//! The plan of one rank, which `exec` runs. This module holds data only.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use smallvec::smallvec;

use crate::base::{Bytes, DType, IdVec, Reduce, Shape, define_id};
use crate::call::{BufferId, Call, View, Views};
use crate::placement::shard::runs::Runs;
use crate::program::{OpId, Source, ValueId};

define_id!(
    /// An event between two streams of one rank.
    EventId,
    "e"
);
define_id!(
    /// A group of ranks that exchange data. The id is the same on all its ranks.
    GroupId,
    "g"
);

/// Alignment of each buffer, in bytes. CANN aligns allocations to 64 and vector units read blocks
/// of 32; CANN's own allocators use 512.
pub const ALIGNMENT_BYTES: u64 = 512;

/// Memory region of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    /// Weights, which are written once.
    Weights,
    /// States that persist between runs.
    States,
    /// Inputs that the host writes before each run.
    Inputs,
    /// Outputs that the host reads after each run.
    Outputs,
    /// Temporaries that live within one run.
    Arena,
}

impl Region {
    /// All regions, in the order of the text form.
    pub const ALL: [Self; 5] = [Self::Weights, Self::States, Self::Inputs, Self::Outputs, Self::Arena];

    /// Returns the name in the text form.
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
    /// Offset of the first byte in the region.
    pub offset: Bytes,
    /// Size of the buffer, in bytes.
    pub bytes: Bytes,
}

impl Slot {
    /// Returns the byte range within the region.
    #[must_use]
    pub const fn range(&self) -> Range<u64> {
        self.offset.0..self.offset.0 + self.bytes.0
    }
}

/// A stream of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum StreamKind {
    /// Stream of the operators.
    Compute,
    /// Stream of the collectives.
    Communication,
    /// Stream of the exchanges between pipeline stages. A transfer that waits for another stage
    /// does not block the collectives of this stage.
    Transfers,
}

impl StreamKind {
    /// All streams, in the order of the text form.
    pub const ALL: [Self; 3] = [Self::Compute, Self::Communication, Self::Transfers];

    /// Returns the name in the text form.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "communication",
            Self::Transfers => "transfers",
        }
    }
}

/// A tensor that is copied between host and device: a param, a state, an input or an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Name in the program.
    pub name: String,
    /// Shape of the whole tensor.
    pub shape: Shape,
    /// Type of the elements.
    pub dtype: DType,
    /// The shard of this rank, as ranges of the whole tensor. The shard is contiguous in its
    /// buffer.
    pub ranges: Vec<Range<usize>>,
    /// The buffer that holds the shard.
    pub buffer: BufferId,
    /// Offset in the buffer, in elements. It is nonzero if calls read several tensors as one.
    pub offset: usize,
    /// For params, the source of the whole tensor in a checkpoint.
    pub source: Option<Source>,
}

impl Tensor {
    /// Returns this rank's shard of the whole tensor's row-major bytes.
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

/// An exchange between the ranks of a group, or between two ranks. Counts are in elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Collective {
    /// The kind of exchange, with its parameters.
    pub kind: CollectiveKind,
    /// The ranks that take part.
    pub group: GroupId,
    /// Dense data that this rank sends. Empty for a receive.
    pub send: View,
    /// Dense buffer that this rank receives into. Empty for a send.
    pub recv: View,
    /// The fused product call, if any. For a sum, the product computes `send`, which is not stored.
    /// For a gather, the product reads the gathered data.
    pub product: Option<Box<Call>>,
}

impl Collective {
    /// Creates an exchange without a product.
    #[must_use]
    pub const fn alone(kind: CollectiveKind, group: GroupId, send: View, recv: View) -> Self {
        Self { kind, group, send, recv, product: None }
    }

    /// Returns the name of the call, for texts and messages.
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

/// Kind of an exchange, with the counts that all ranks of the group agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectiveKind {
    /// Every rank receives the reduction of all `send` buffers.
    AllReduce {
        /// The operation that combines elements.
        reduce: Reduce,
    },
    /// Every rank receives the concatenation of all `send` buffers.
    AllGather {
        /// Number of elements that each rank sends.
        counts: Vec<usize>,
    },
    /// Every rank receives its block of the reduction of all `send` buffers.
    ReduceScatter {
        /// The operation that combines elements.
        reduce: Reduce,
        /// Number of elements in each rank's block.
        counts: Vec<usize>,
    },
    /// Every rank sends one block to each rank and receives one from each.
    AllToAll {
        /// Number of elements sent to each rank.
        send_counts: Vec<usize>,
        /// Number of elements received from each rank.
        recv_counts: Vec<usize>,
    },
    /// One rank receives the reduction of all `send` buffers. The `recv` contents of the other
    /// ranks are undefined.
    Reduce {
        /// The operation that combines elements.
        reduce: Reduce,
        /// Index of the receiving rank in the group.
        root: usize,
    },
    /// Every rank receives the `send` buffer of one rank, in place.
    Broadcast {
        /// Index of the sending rank in the group.
        root: usize,
    },
    /// Sends `send` to one rank.
    Send {
        /// Index of the receiver in the group.
        to: usize,
    },
    /// Receives `recv` from one rank.
    Receive {
        /// Index of the sender in the group.
        from: usize,
    },
}

impl CollectiveKind {
    /// Returns the name for texts and messages.
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

    /// Returns whether only two ranks of the group take part.
    #[must_use]
    pub const fn is_of_two(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Receive { .. })
    }
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Launches one operator on the compute stream.
    Launch(Box<Call>),
    /// Runs one collective or transfer, possibly fused with a product.
    Exchange(Box<Collective>),
    /// Records an event on the stream.
    Record(EventId),
    /// Makes the stream wait for an event.
    Wait(EventId),
}

/// One step and the op it belongs to. Steps are small because passes move many steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The stream that the action is enqueued on.
    pub stream: StreamKind,
    /// The action that is enqueued.
    pub action: Action,
    /// The op of the lowered program.
    pub op: OpId,
}

impl Step {
    /// Returns the operator or kernel call, if any.
    #[must_use]
    pub fn call(&self) -> Option<&Call> {
        match &self.action {
            Action::Launch(call) => Some(call),
            Action::Exchange(exchange) => exchange.product.as_deref(),
            Action::Record(_) | Action::Wait(_) => None,
        }
    }

    /// Returns the views that the step reads.
    #[must_use]
    pub fn reads(&self) -> Views<'_> {
        match &self.action {
            Action::Launch(call) => call.reads(),
            Action::Exchange(exchange) => exchange.reads(),
            Action::Record(_) | Action::Wait(_) => Views::new(),
        }
    }

    /// Returns the views that the step writes.
    #[must_use]
    pub fn writes(&self) -> Views<'_> {
        match &self.action {
            Action::Launch(call) => call.writes(),
            Action::Exchange(exchange) => exchange.writes(),
            Action::Record(_) | Action::Wait(_) => Views::new(),
        }
    }
}

/// A point of the plan at which a named value is available.
#[derive(Clone, Debug, PartialEq)]
pub struct Tap {
    /// The value that is shown.
    pub value: ValueId,
    /// This rank's shard, dense or strided.
    pub view: View,
    /// Ranges of the shard in the whole value.
    pub ranges: Vec<Range<usize>>,
    /// The pending reduction, if this rank holds a partial result.
    pub partial: Option<Reduce>,
    /// True on the first replica. Other ranks hold copies that must not be counted again.
    pub is_first_replica: bool,
    /// Number of steps after which the value is available.
    pub after_steps: usize,
}

/// One op of the lowered program, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpNote {
    /// Name of the op.
    pub kind: &'static str,
    /// Name of the result, or of the operand that a movement copies.
    pub value: String,
    /// The decoder layer, if the value's name contains one.
    pub layer: Option<usize>,
    /// Launch of the op, alone or shared.
    pub launch: Launched,
}

/// Launch of an op, alone or shared with other ops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Launched {
    /// The op has its own launches.
    #[default]
    Alone,
    /// The launch of this op also computes it. That op comes earlier, or later if it is an
    /// exchange.
    With(OpId),
    /// The op could share a launch but does not, for this reason.
    Apart(String),
}

impl fmt::Display for OpNote {
    /// Formats as `layer 3, all_reduce of layers.3.mlp.out`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(layer) = self.layer {
            write!(f, "layer {layer}, ")?;
        }
        write!(f, "{} of {}", self.kind, self.value)
    }
}

/// Everything that one rank does in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name of the program.
    pub name: String,
    /// The rank that runs the plan.
    pub rank: usize,
    /// Number of ranks in the mesh.
    pub world: usize,
    /// Groups that any rank exchanges in, with ascending ranks. The list is the same on every rank.
    pub groups: IdVec<GroupId, Vec<usize>>,
    /// Weights, in program order.
    pub params: Vec<Tensor>,
    /// States that persist between runs.
    pub states: Vec<Tensor>,
    /// Inputs of each run.
    pub inputs: Vec<Tensor>,
    /// Outputs, which every rank holds in full.
    pub outputs: Vec<Tensor>,
    /// Location of every buffer.
    pub buffers: IdVec<BufferId, Slot>,
    /// Steps of the rank, in enqueue order.
    pub steps: Vec<Step>,
    /// Number of events used.
    pub events: usize,
    /// Points at which values are available, in step order.
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

    /// Returns the size of a region, in bytes.
    #[must_use]
    pub fn region_bytes(&self, region: Region) -> Bytes {
        let slots = self.buffers.values().iter().filter(|slot| slot.region == region);
        Bytes(slots.map(|slot| slot.range().end).max().unwrap_or(0).next_multiple_of(ALIGNMENT_BYTES))
    }

    /// Returns the byte range that a view may touch, in its region.
    #[must_use]
    pub fn span(&self, view: &View) -> (Region, Range<u64>) {
        let slot = &self.buffers[view.buffer];
        let (elems, size) = (view.span(), view.dtype.size_bytes() as u64);
        let start = slot.offset.0 + elems.start as u64 * size;
        (slot.region, start..start + (elems.end - elems.start) as u64 * size)
    }

    /// Returns the pairs of conflicting steps, earlier step first. Two steps conflict if they touch
    /// the same bytes of a buffer and at least one writes.
    ///
    /// No reordering may swap a pair. The pairs are in the order of the later steps, possibly with
    /// duplicates.
    #[must_use]
    pub fn conflicts(&self) -> Vec<(usize, usize)> {
        type TouchingSteps = Vec<(Range<u64>, usize)>;
        // Reads and writes of each buffer.
        let mut touched: IdVec<BufferId, [TouchingSteps; 2]> =
            self.buffers.ids().map(|_| Default::default()).collect();
        let mut found = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            let reads = step.reads().into_iter().map(|view| (view, false));
            for (view, is_write) in reads.chain(step.writes().into_iter().map(|view| (view, true))) {
                let (_, range) = self.span(view);
                let [reads, writes] = &mut touched[view.buffer];
                let read = if is_write { reads.as_slice() } else { &[] };
                let earlier = writes
                    .iter()
                    .chain(read)
                    .filter(|(other, by)| *by != at && other.start < range.end && range.start < other.end);
                found.extend(earlier.map(|(_, by)| (*by, at)));
                if is_write { writes } else { reads }.push((range, at));
            }
        }
        found
    }

    /// Returns the streams that the plan needs. Every plan needs the first two.
    #[must_use]
    pub fn streams(&self) -> &'static [StreamKind] {
        let has_transfers = self.steps.iter().any(|step| step.stream == StreamKind::Transfers);
        &StreamKind::ALL[..if has_transfers { 3 } else { 2 }]
    }

    /// Returns the location of a tensor's shard.
    #[must_use]
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

    /// Returns the attention mask `[b,1,s,t]` of a call if it is an input. The host then knows
    /// before a run how many keys are read.
    #[must_use]
    pub fn known_mask<'a>(&self, call: &'a Call) -> Option<&'a View> {
        let is_input =
            |mask: &&View| self.buffers[mask.buffer].region == Region::Inputs && mask.is_contiguous();
        call.key_lengths().map(|(_, mask)| mask).filter(is_input)
    }

    pub(super) fn hold_arena(&mut self, bytes: Bytes) {
        if self.region_bytes(Region::Arena) < bytes {
            // No step touches this buffer, so it may overlap others.
            self.buffer(Region::Arena, bytes);
        }
    }

    pub(super) fn buffer(&mut self, region: Region, bytes: Bytes) -> BufferId {
        self.buffers.push(Slot { region, offset: Bytes(0), bytes })
    }
}
