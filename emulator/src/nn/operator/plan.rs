//! What planning an operator gives: a kernel, or a refusal.

use std::sync::{Arc, Mutex, PoisonError};

use crate::nn::Tiles;
use crate::nn::dtype::DType;
use crate::nn::fractal::Fractal;
use crate::nn::view::View;

/// A parameter is NULL.
pub(crate) const NULL_POINTER: i32 = 161_001;

/// A parameter breaks a rule of the operator.
pub(crate) const INVALID: i32 = 161_002;

/// Why a first-phase call was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// A code of `aclnnStatus`.
    pub(crate) code: i32,
    /// One sentence for the reader.
    pub(crate) message: String,
}

/// The shapes that a run has decided, of results for which the program gave room for the largest.
#[derive(Debug, Default)]
pub(crate) struct Decided(Mutex<Vec<(ViewIndex, Vec<usize>)>>);

impl Decided {
    /// What was decided.
    pub(crate) fn take(&self) -> Vec<(ViewIndex, Vec<usize>)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The tensors of a call as views, in the order of the parameters; lists are flattened and absent tensors skipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Views<'a> {
    views: &'a [View],
    decided: &'a Decided,
}

impl<'a> Views<'a> {
    /// These views, and where the run leaves the shapes that it decides.
    pub(crate) const fn new(views: &'a [View], decided: &'a Decided) -> Self {
        Self { views, decided }
    }

    /// The view of a tensor of the call that was planned.
    pub(crate) fn of(&self, slot: ViewIndex) -> &View {
        &self.views[slot.0]
    }

    /// What a tensor holds has these dims, row-major from its first element on.
    pub(crate) fn decide(&self, slot: ViewIndex, dims: Vec<usize>) {
        self.decided.0.lock().unwrap_or_else(PoisonError::into_inner).push((slot, dims));
    }
}

/// Which of the [`Views`] a tensor of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ViewIndex(pub(crate) usize);

/// Computes the outputs; the error is for the stream and names what only the data could show.
pub(crate) type Kernel = Arc<dyn Fn(&Views<'_>, &dyn Tiles) -> Result<(), String> + Send + Sync>;

/// A checked call.
pub(crate) struct Plan {
    pub(crate) kernel: Kernel,
    /// Device memory the second phase needs, besides that for making strided tensors contiguous.
    pub(crate) workspace_bytes: usize,
    /// Which strided tensors the kernel reads as they lie.
    pub(crate) strides: Strides,
    /// Tensors of which it reads a part.
    pub(crate) parts: Vec<PartRead>,
    /// What it is over if it is attention.
    pub(crate) attended: Option<Attended>,
    /// Tensors that the row writes but this call does not.
    pub(crate) unwritten: Vec<ViewIndex>,
    /// A tensor that the call lays into blocks, where it lies.
    pub(crate) blocked: Option<(ViewIndex, Fractal)>,
    /// The exchange with other cards that is part of the call.
    pub(crate) joined: Option<Joined>,
    /// What the page of the operator forbids and CANN's host code takes.
    pub(crate) notes: Vec<String>,
}

/// The exchange of an operator that joins it with its kernel.
#[derive(Clone)]
pub(crate) struct Joined {
    /// The name of the communicator.
    pub(crate) group: String,
    /// What is exchanged.
    pub(crate) exchange: JoinedExchange,
    /// What lies in the workspace: views behind those of the tensors.
    pub(crate) tensors: Vec<WorkspaceTensor>,
    /// What is computed of what the exchange has brought.
    pub(crate) behind: Option<Kernel>,
    /// What the operator asks of the chip and the communicator besides.
    pub(crate) check: Option<Check>,
}

/// A tensor in a workspace; strides and offset, from its first byte on, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkspaceTensor {
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<usize>,
    pub(crate) strides: Vec<isize>,
    pub(crate) offset: isize,
}

/// Where a call is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallPlace {
    /// Whether the card is one of an Atlas A2, else of an Atlas A3.
    pub(crate) is_a2: bool,
    /// Cards of the communicator, and the rank of this one.
    pub(crate) cards: usize,
    pub(crate) rank: usize,
}

/// Refuses places that an operator does not run at.
pub(crate) type Check = Arc<dyn Fn(CallPlace) -> Result<(), String> + Send + Sync>;

/// What an operator exchanges beside what it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinedExchange {
    /// The product, in this tensor, becomes the sum of all cards' products.
    AllReduce(ViewIndex),
    /// Before the product the second tensor gets the first of all cards; it has the elements of so many cards.
    AllGather([ViewIndex; 2], usize),
    /// This tensor gets its rows of the sum of all cards' products, which lie in the workspace: those of so many cards.
    ReduceScatter(ViewIndex, usize),
    /// The first block of the workspace, of so many bytes, goes to all cards; those of all cards come behind it.
    Gathered { block: usize, cards: usize },
    /// The first blocks of the workspace, of so many bytes, go to a card each; one of each card come behind them.
    Dealt { block: usize, cards: usize },
}

impl JoinedExchange {
    /// How many cards the shapes of the call are of, if they say it.
    pub(crate) const fn cards(self) -> Option<usize> {
        match self {
            Self::AllReduce(_) => None,
            Self::AllGather(_, cards)
            | Self::ReduceScatter(_, cards)
            | Self::Gathered { cards, .. }
            | Self::Dealt { cards, .. } => Some(cards),
        }
    }
}

/// A tensor of whose first dim each index has a length of its own: along `dim` nothing behind it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartRead {
    pub(crate) slot: ViewIndex,
    /// The dim that the lengths are along.
    pub(crate) dim: usize,
    /// By index of the first dim.
    pub(crate) lengths: Vec<usize>,
}

/// What attention is over, whatever the layout of its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attended {
    pub(crate) query: ViewIndex,
    /// Keys and values: a tensor each, or one for each sequence.
    pub(crate) keys: Vec<[ViewIndex; 2]>,
    /// Heads of queries, and of keys and values.
    pub(crate) heads: [usize; 2],
    /// Elements of a head of keys and of one of values.
    pub(crate) depths: [usize; 2],
    /// A mask that says only that each row sees its past.
    pub(crate) triangle: Option<ViewIndex>,
    /// What each sequence has.
    pub(crate) sequences: Vec<Sequence>,
}

/// A sequence that attention is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sequence {
    /// Rows of queries.
    pub(crate) rows: usize,
    /// Keys that are read.
    pub(crate) keys: usize,
    /// Keys there is room for where they lie.
    pub(crate) room: usize,
}

/// Which strided tensors an operator reads without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strides {
    /// None: each is copied to contiguous memory first.
    Copied,
    /// Matrices whose last two dims are swapped: the cube loads them either way round.
    Transposed,
}

impl Plan {
    /// A plan without workspace of its own.
    pub(super) fn new(
        kernel: impl Fn(&Views<'_>, &dyn Tiles) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<Self, Refusal> {
        let (strides, parts, unwritten) = (Strides::Copied, Vec::new(), Vec::new());
        Ok(Self {
            kernel: Arc::new(kernel),
            workspace_bytes: 0,
            strides,
            parts,
            attended: None,
            unwritten,
            blocked: None,
            joined: None,
            notes: Vec::new(),
        })
    }

    /// The same plan for an operator that reads transposed matrices as they lie.
    pub(super) fn reading_transposed(self) -> Self {
        Self { strides: Strides::Transposed, ..self }
    }

    /// The same plan of an operator that reads parts of some tensors.
    pub(super) fn reading(self, parts: Vec<PartRead>) -> Self {
        Self { parts, ..self }
    }

    /// The same plan of attention.
    pub(super) fn attending(self, attended: Attended) -> Self {
        Self { attended: Some(attended), ..self }
    }

    /// The same plan for a call that writes fewer tensors than its row.
    pub(super) fn leaving(self, unwritten: Vec<ViewIndex>) -> Self {
        Self { unwritten, ..self }
    }

    /// The same plan of a call that lays a tensor into blocks, where it lies.
    pub(super) fn blocking(self, slot: ViewIndex, fractal: Fractal) -> Self {
        Self { blocked: Some((slot, fractal)), ..self }
    }

    /// The same plan of an operator whose kernel is one side of an exchange.
    pub(super) fn joined(self, joined: Joined) -> Self {
        Self { joined: Some(joined), ..self }
    }

    /// The same plan of a call of which strict mode tells this.
    pub(super) fn noting(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }

    /// The same plan with device memory for the second phase.
    pub(super) fn with_workspace(self, workspace_bytes: usize) -> Self {
        Self { workspace_bytes, ..self }
    }
}

/// Element types by what the documentation calls them together.
pub(crate) mod sets {
    use crate::nn::dtype::DType::{self, BF16, Bool, C64, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

    /// What the cube and most fused operators take.
    pub(crate) const FLOATING: &[DType] = &[F32, F16, BF16];
    /// What a quotient of is one of the same type.
    pub(crate) const REAL: &[DType] = &[F32, F16, BF16, F64];
    /// What linear systems are solved in.
    pub(crate) const WIDE: &[DType] = &[F32, F64];
    /// What the fused attention operators take without quantisation.
    pub(crate) const HALVES: &[DType] = &[F16, BF16];
    /// Quantised numbers of 8 bits.
    pub(crate) const BYTES: &[DType] = &[I8];
    /// Eight bits each.
    pub(crate) const OCTETS: &[DType] = &[U8];
    /// What has a sign worth a bit.
    pub(crate) const HALF_OR_SINGLE: &[DType] = &[F32, F16];
    /// What statistics and scales are in.
    pub(crate) const SINGLE: &[DType] = &[F32];
    /// Indices of 32 and of 64 bits.
    pub(crate) const INDEXES: &[DType] = &[I32, I64];
    /// Labels of classes.
    pub(crate) const LABELS: &[DType] = &[I32, I64, U8];
    /// 32-bit indices only.
    pub(crate) const WHOLE32: &[DType] = &[I32];
    /// 64-bit indices only.
    pub(crate) const INDEX64: &[DType] = &[I64];
    pub(crate) const BOOL: &[DType] = &[Bool];
    /// Masks of one byte an element.
    pub(crate) const MASKS: &[DType] = &[Bool, I8, U8];
    /// Conditions of a selection.
    pub(crate) const CONDITIONS: &[DType] = &[Bool, U8];
    /// Numbers and truth values arithmetic is defined for.
    pub(crate) const ARITHMETIC: &[DType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, Bool];
    /// Integers and truth values, which have bits.
    pub(crate) const WHOLE: &[DType] = &[I8, I16, I32, I64, U8, U16, U32, U64, Bool];
    /// Integers that 64 bits hold with their sign.
    pub(crate) const SHIFTABLE: &[DType] = &[I8, I16, I32, I64, U8, U16, U32];
    /// What the hardware's scales are stored in.
    pub(crate) const PACKED_SCALES: &[DType] = &[U64, I64];
    /// Numbers without truth values.
    pub(crate) const NUMBER: &[DType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8];
    /// What the movers of elements take that list no 16-bit integers and no doubles.
    pub(crate) const COMMON: &[DType] = &[F32, F16, BF16, I8, I32, I64, U8, Bool];
    /// What scattered additions take.
    pub(crate) const ADDABLE: &[DType] = &[F32, F16, BF16, I8, I32, I64, U8];
    /// What can be masked.
    pub(crate) const MASKABLE: &[DType] = &[F32, F16, BF16, I8, I32, I64, Bool];
    /// What a range can be made of.
    pub(crate) const RANGE: &[DType] = &[F32, F16, BF16, I32, I64];
    /// What the cube takes in blocks.
    pub(crate) const CUBED: &[DType] = &[F16, BF16, I8];
    /// How many values there are.
    pub(crate) const COUNTERS: &[DType] = &[I32, F32, F16];
    /// What can be copied.
    pub(crate) const COPIED: &[DType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bool, C64];
    /// Every type the emulator computes in.
    pub(crate) const ANY: &[DType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bool];
}
