//! The plan of one rank: what `exec` walks. Data only.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use smallvec::smallvec;

use crate::base::{Bytes, DType, Id, IdVec, Reduce, Shape, define_id};
use crate::call::{BufferId, Call, View, Views};
use crate::placement::shard::runs::Runs;
use crate::program::{OpId, Source, ValueId};

define_id!(
    /// An event of one rank, between two of its streams.
    EventId,
    "e"
);
define_id!(
    /// One group of ranks that exchange data; the same on all its ranks.
    GroupId,
    "g"
);

/// Bytes of each buffer's alignment. CANN aligns allocations to 64 and vector units read in blocks of 32; 512 is what
/// its own allocators use.
pub const ALIGNMENT_BYTES: u64 = 512;

/// Which memory a buffer is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    /// Weights: written once.
    Weights,
    /// Kept between runs.
    States,
    /// Written by the host before each run.
    Inputs,
    /// Read by the host after each run.
    Outputs,
    /// What is made and used within a run.
    Arena,
}

impl Region {
    /// Every region, in the order of texts.
    pub const ALL: [Self; 5] = [Self::Weights, Self::States, Self::Inputs, Self::Outputs, Self::Arena];

    /// The name in texts.
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

/// Where a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The memory it is in.
    pub region: Region,
    /// First byte in the region.
    pub offset: Bytes,
    /// How many bytes it has from there on.
    pub bytes: Bytes,
}

impl Slot {
    /// The bytes of the region.
    #[must_use]
    pub const fn range(&self) -> Range<u64> {
        self.offset.0..self.offset.0 + self.bytes.0
    }
}

/// One of a rank's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum StreamKind {
    /// Operators run here.
    Compute,
    /// Collectives run here.
    Communication,
    /// Exchanges between the stages of a pipeline: one waits for another stage, and no collective of its own stage behind it.
    Transfers,
}

impl StreamKind {
    /// Every stream, in the order of texts.
    pub const ALL: [Self; 3] = [Self::Compute, Self::Communication, Self::Transfers];

    /// The name in texts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "communication",
            Self::Transfers => "transfers",
        }
    }
}

/// A tensor that crosses between host and card: a param, a state, an input or an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name in the program.
    pub name: String,
    /// The whole tensor's sizes.
    pub shape: Shape,
    /// Type of its elements.
    pub dtype: DType,
    /// The part of the whole that this rank holds, contiguous in its buffer.
    pub ranges: Vec<Range<usize>>,
    /// The buffer that holds it.
    pub buffer: BufferId,
    /// Elements of the buffer before it: those of tensors that calls take as one with it.
    pub offset: usize,
    /// For params: where a checkpoint has the whole.
    pub source: Option<Source>,
}

impl Tensor {
    /// This rank's part of the whole tensor's bytes, row-major.
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

/// An exchange between the ranks of a group, or between two of them. Counts are elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Collective {
    /// What is exchanged, and how.
    pub kind: CollectiveKind,
    /// The ranks that take part.
    pub group: GroupId,
    /// What this rank gives; dense. Empty where it receives only.
    pub send: View,
    /// What this rank gets; dense. Empty where it sends only.
    pub recv: View,
    /// The call that multiplies too, if one does: the product makes `send`, of which nothing stays, or takes what a gather gives.
    pub product: Option<Box<Call>>,
}

impl Collective {
    /// An exchange by itself.
    #[must_use]
    pub const fn alone(kind: CollectiveKind, group: GroupId, send: View, recv: View) -> Self {
        Self { kind, group, send, recv, product: None }
    }

    /// The name of what is called, in texts and messages.
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

/// Which exchange, with the counts that all ranks of the group agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectiveKind {
    /// Everyone gets the reduction of everyone's `send`.
    AllReduce {
        /// How the ranks' elements are joined.
        reduce: Reduce,
    },
    /// Everyone gets all `send`s one after the other.
    AllGather {
        /// Elements of each rank's `send`.
        counts: Vec<usize>,
    },
    /// Everyone gets its block of the reduction of everyone's `send`.
    ReduceScatter {
        /// How the ranks' elements are joined.
        reduce: Reduce,
        /// Elements of each rank's block.
        counts: Vec<usize>,
    },
    /// Everyone gives each a block and gets one of each.
    AllToAll {
        /// Elements given to each rank.
        send_counts: Vec<usize>,
        /// Elements got of each rank.
        recv_counts: Vec<usize>,
    },
    /// One rank gets the reduction of everyone's `send`; what the others' `recv` holds is nobody's.
    Reduce {
        /// How the ranks' elements are joined.
        reduce: Reduce,
        /// Its place in the group.
        root: usize,
    },
    /// Everyone gets one rank's `send`, where it lies.
    Broadcast {
        /// Its place in the group.
        root: usize,
    },
    /// One rank gets `send`.
    Send {
        /// Its place in the group.
        to: usize,
    },
    /// `recv` is what one rank sends.
    Receive {
        /// Its place in the group.
        from: usize,
    },
}

impl CollectiveKind {
    /// The name in texts and messages.
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

    /// Whether two ranks of the group exchange, and the others know nothing of it.
    #[must_use]
    pub const fn is_of_two(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Receive { .. })
    }
}

/// What one step does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Runs one operator on the compute stream.
    Launch(Box<Call>),
    /// Runs one collective or transfer on a stream of exchanges, in the call of a product or by itself.
    Exchange(Box<Collective>),
    /// Marks what a stream has been given so far.
    Record(EventId),
    /// Holds a stream until a mark is reached.
    Wait(EventId),
}

/// One step, with the op it belongs to. It is small, as passes move many.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The stream it is enqueued on.
    pub stream: StreamKind,
    /// What is enqueued.
    pub action: Action,
    /// The op of the lowered program.
    pub op: OpId,
}

impl Step {
    /// The operator or kernel that is called, if one is.
    #[must_use]
    pub fn call(&self) -> Option<&Call> {
        match &self.action {
            Action::Launch(call) => Some(call),
            Action::Exchange(exchange) => exchange.product.as_deref(),
            Action::Record(_) | Action::Wait(_) => None,
        }
    }

    /// What the step reads.
    #[must_use]
    pub fn reads(&self) -> Views<'_> {
        match &self.action {
            Action::Launch(call) => call.reads(),
            Action::Exchange(exchange) => exchange.reads(),
            Action::Record(_) | Action::Wait(_) => Views::new(),
        }
    }

    /// What the step writes.
    #[must_use]
    pub fn writes(&self) -> Views<'_> {
        match &self.action {
            Action::Launch(call) => call.writes(),
            Action::Exchange(exchange) => exchange.writes(),
            Action::Record(_) | Action::Wait(_) => Views::new(),
        }
    }
}

/// Where a named value can be seen while the plan runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Tap {
    /// The value that is watched.
    pub value: ValueId,
    /// This rank's part, dense or not.
    pub view: View,
    /// The part of the whole.
    pub ranges: Vec<Range<usize>>,
    /// The reduction this rank holds a part of, if any.
    pub partial: Option<Reduce>,
    /// Whether this rank is the first of those that hold the same: the others repeat it and count no second time.
    pub is_first_replica: bool,
    /// The value is there once this many steps have run.
    pub after_steps: usize,
}

/// One op of the lowered program, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpNote {
    /// The op's name.
    pub kind: &'static str,
    /// Its value's name, or that of the value it moves.
    pub value: String,
    /// The decoder layer, where the name tells.
    pub layer: Option<usize>,
    /// How it is launched.
    pub launch: Launched,
}

/// What an op shares a launch with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Launched {
    /// No other op.
    #[default]
    Alone,
    /// The launch of this op, which stands before it, or behind it if it exchanges.
    With(OpId),
    /// Nothing, though it might: for this reason.
    Apart(String),
}

impl fmt::Display for OpNote {
    /// `layer 3, all_reduce of layers.3.mlp.out`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(layer) = self.layer {
            write!(f, "layer {layer}, ")?;
        }
        write!(f, "{} of {}", self.kind, self.value)
    }
}

/// All that one rank does in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The program's name.
    pub name: String,
    /// The rank the plan is of.
    pub rank: usize,
    /// How many ranks the mesh has.
    pub world: usize,
    /// Groups that some rank exchanges in: the same list on every rank; ranks ascend.
    pub groups: IdVec<GroupId, Vec<usize>>,
    /// Weights, in the order of the program.
    pub params: Vec<Tensor>,
    /// States that stay from run to run.
    pub states: Vec<Tensor>,
    /// Inputs of each run.
    pub inputs: Vec<Tensor>,
    /// Outputs; whole on every rank.
    pub outputs: Vec<Tensor>,
    /// Where every buffer lies.
    pub buffers: IdVec<BufferId, Slot>,
    /// The steps, in the order they are enqueued.
    pub steps: Vec<Step>,
    /// Number of events.
    pub events: usize,
    /// Named values, in order.
    pub taps: Vec<Tap>,
    /// By op of the lowered program.
    pub notes: IdVec<OpId, OpNote>,
}

impl Plan {
    /// A plan that does nothing yet.
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

    /// Bytes of a region.
    #[must_use]
    pub fn region_bytes(&self, region: Region) -> Bytes {
        let slots = self.buffers.values().iter().filter(|slot| slot.region == region);
        Bytes(slots.map(|slot| slot.range().end).max().unwrap_or(0).next_multiple_of(ALIGNMENT_BYTES))
    }

    /// The bytes a view may touch, in its region.
    #[must_use]
    pub fn span(&self, view: &View) -> (Region, Range<u64>) {
        let slot = &self.buffers[view.buffer];
        let (elems, size) = (view.span(), view.dtype.size_bytes() as u64);
        let start = slot.offset.0 + elems.start as u64 * size;
        (slot.region, start..start + (elems.end - elems.start) as u64 * size)
    }

    /// Pairs of steps that touch the same bytes of a buffer, one of them writing, the earlier step first: what no order of the steps may
    /// change. In the order of the later steps; a pair may be there several times.
    #[must_use]
    pub fn conflicts(&self) -> Vec<(usize, usize)> {
        /// Bytes that steps touched.
        type TouchingSteps = Vec<(Range<u64>, usize)>;
        // By buffer: what was read and what was written.
        let mut touched: IdVec<BufferId, [TouchingSteps; 2]> = self.buffers.ids().map(|_| Default::default()).collect();
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

    /// The streams a card needs for it: all have the first two.
    #[must_use]
    pub fn streams(&self) -> &'static [StreamKind] {
        let has_transfers = self.steps.iter().any(|step| step.stream == StreamKind::Transfers);
        &StreamKind::ALL[..if has_transfers { 3 } else { 2 }]
    }

    /// Where a tensor's elements lie.
    #[must_use]
    pub fn slot(&self, tensor: &Tensor) -> Slot {
        let Slot { region, offset, .. } = self.buffers[tensor.buffer];
        let size = tensor.dtype.size_bytes();
        let elems = tensor.ranges.iter().map(Range::len).product();
        Slot { region, offset: Bytes(offset.0 + (tensor.offset * size) as u64), bytes: Bytes::of(elems, size) }
    }

    /// The mask `[b,1,s,t]` of attention, if it is an input, so that before a run the host knows how many keys are to be read.
    #[must_use]
    pub fn known_mask<'a>(&self, call: &'a Call) -> Option<&'a View> {
        let is_input = |mask: &&View| self.buffers[mask.buffer].region == Region::Inputs && mask.is_contiguous();
        call.key_lengths().map(|(_, mask)| mask).filter(is_input)
    }

    /// Makes the arena no smaller than so many bytes.
    pub(super) fn hold_arena(&mut self, bytes: Bytes) {
        if self.region_bytes(Region::Arena) < bytes {
            // Nothing touches it, so it may lie where others do.
            self.buffer(Region::Arena, bytes);
        }
    }

    /// A new buffer, not placed yet.
    pub(super) fn buffer(&mut self, region: Region, bytes: Bytes) -> BufferId {
        self.buffers.push(Slot { region, offset: Bytes(0), bytes })
    }
}

/// Whether no id of `groups` is named twice and each group's ranks ascend below `world`.
pub(super) fn groups_are_sound(groups: &IdVec<GroupId, Vec<usize>>, world: usize) -> bool {
    groups.iter().all(|(id, ranks)| {
        ranks.is_sorted_by(|a, b| a < b)
            && ranks.last().is_some_and(|last| *last < world)
            && !groups.values()[..id.index()].contains(ranks)
    })
}
