//! What planning an operator gives: a kernel, or a refusal.

use std::sync::{Arc, Mutex, PoisonError};

use super::argument::{CheckedTensor, TensorRole};
use crate::Tiles;
use crate::dtype::AclType;
use crate::fractal::Fractal;
use crate::view::StridedView;

/// A parameter is NULL.
pub const NULL_POINTER: i32 = 161_001;

/// A parameter breaks a rule of the operator.
pub const INVALID: i32 = 161_002;

/// Why a first-phase call was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A code of `aclnnStatus`.
    pub code: i32,
    /// One sentence for the reader.
    pub message: String,
}

/// The shapes that a run has decided, of results for which the program gave room for the largest.
#[derive(Debug, Default)]
pub struct Decided(Mutex<Vec<(ViewIndex, Vec<usize>)>>);

impl Decided {
    /// What was decided.
    pub fn take(&self) -> Vec<(ViewIndex, Vec<usize>)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The tensors of a call as views, in the order of the parameters; lists are flattened and absent tensors skipped.
#[derive(Clone, Copy, Debug)]
pub struct StridedViews<'a> {
    views: &'a [StridedView],
    decided: &'a Decided,
}

impl<'a> StridedViews<'a> {
    /// These views, and where the run leaves the shapes that it decides.
    pub const fn new(views: &'a [StridedView], decided: &'a Decided) -> Self {
        Self { views, decided }
    }

    /// The view of a tensor of the call that was planned.
    pub(crate) fn of(&self, slot: ViewIndex) -> &StridedView {
        &self.views[slot.0]
    }

    /// What a tensor holds has these dims, row-major from its first element on.
    pub(crate) fn decide(&self, slot: ViewIndex, dims: Vec<usize>) {
        self.decided.0.lock().unwrap_or_else(PoisonError::into_inner).push((slot, dims));
    }
}

/// Which of the [`StridedViews`] a tensor of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewIndex(pub usize);

/// Computes the outputs; the error is for the stream and names what only the data could show.
pub type OperatorKernel = Arc<dyn Fn(&StridedViews<'_>, &dyn Tiles) -> Result<(), String> + Send + Sync>;

/// What a checked call does.
pub struct CallPlan {
    /// What computes its outputs.
    pub kernel: OperatorKernel,
    /// Device memory the second phase needs, besides that for making strided tensors contiguous.
    pub workspace_bytes: usize,
    /// Which strided tensors the kernel reads as they lie.
    pub strides: Strides,
    /// Tensors of which it reads a part.
    pub parts: Vec<PartRead>,
    /// What it is over if it is attention.
    pub(crate) attended: Option<Attended>,
    /// Tensors that the row writes but this call does not.
    pub(crate) unwritten: Vec<ViewIndex>,
    /// A tensor that the call lays into blocks, where it lies.
    pub blocked: Option<(ViewIndex, Fractal)>,
    /// The exchange with other cards that is part of the call.
    pub joined: Option<Joined>,
    /// What the page of the operator forbids and CANN's host code takes.
    pub notes: Vec<String>,
}

impl std::fmt::Debug for CallPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { workspace_bytes, strides, joined, .. } = self;
        f.debug_struct("CallPlan")
            .field("workspace_bytes", workspace_bytes)
            .field("strides", strides)
            .field("joined", joined)
            .finish_non_exhaustive()
    }
}

/// The exchange of an operator that joins it with its kernel.
#[derive(Clone)]
pub struct Joined {
    /// The name of the communicator.
    pub group: String,
    /// What is exchanged.
    pub exchange: JoinedExchange,
    /// What lies in the workspace: views behind those of the tensors.
    pub tensors: Vec<WorkspaceTensor>,
    /// What is computed of what the exchange has brought.
    pub behind: Option<OperatorKernel>,
    /// What the operator asks of the chip and the communicator besides.
    pub check: Option<Check>,
}

impl std::fmt::Debug for Joined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { group, exchange, tensors, .. } = self;
        f.debug_struct("Joined")
            .field("group", group)
            .field("exchange", exchange)
            .field("tensors", tensors)
            .finish_non_exhaustive()
    }
}

/// A tensor in a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceTensor {
    /// Type of its elements.
    pub dtype: AclType,
    /// Extents, outermost first.
    pub dims: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<isize>,
    /// Where it begins, in elements from the first byte of the workspace on.
    pub offset: isize,
}

/// Where a call is made.
#[derive(Clone, Copy, Debug)]
pub struct CallPlace {
    /// Whether the card is one of an Atlas A2, else of an Atlas A3.
    pub is_a2: bool,
    /// Cards of the communicator.
    pub cards: usize,
    /// The rank of this one in it.
    pub rank: usize,
}

/// Refuses places that an operator does not run at.
pub(crate) type Check = Arc<dyn Fn(CallPlace) -> Result<(), String> + Send + Sync>;

/// What an operator exchanges beside what it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinedExchange {
    /// The product, in this tensor, becomes the sum of all cards' products.
    AllReduce(ViewIndex),
    /// Before the product the second tensor gets the first of all cards; it has the elements of so many cards.
    AllGather([ViewIndex; 2], usize),
    /// This tensor gets its rows of the sum of all cards' products, which lie in the workspace: those of so many cards.
    ReduceScatter(ViewIndex, usize),
    /// The first block of the workspace goes to all cards; those of all cards come behind it.
    Gathered {
        /// Bytes of a block.
        block: usize,
        /// Cards of the communicator.
        cards: usize,
    },
    /// The first blocks of the workspace go to a card each; one of each card come behind them.
    Dealt {
        /// Bytes of a block.
        block: usize,
        /// Cards of the communicator.
        cards: usize,
    },
}

impl JoinedExchange {
    /// How many cards the shapes of the call are of, if they say it.
    pub const fn cards(self) -> Option<usize> {
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
pub struct PartRead {
    /// The tensor that is read in part.
    pub slot: ViewIndex,
    /// The dim that the lengths are along.
    pub dim: usize,
    /// By index of the first dim.
    pub lengths: Vec<usize>,
}

/// What attention is over, whatever the layout of its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attended {
    /// The rows that attend.
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
pub enum Strides {
    /// None: each is copied to contiguous memory first.
    Copied,
    /// Matrices whose last two dims are swapped: the cube loads them either way round.
    Transposed,
}

impl CallPlan {
    /// Whether the call writes a tensor.
    #[must_use]
    pub fn writes(&self, tensor: &CheckedTensor) -> bool {
        tensor.role != TensorRole::Input && !self.unwritten.contains(&tensor.slot)
    }

    /// A plan without workspace of its own.
    pub(super) fn new(
        kernel: impl Fn(&StridedViews<'_>, &dyn Tiles) -> Result<(), String> + Send + Sync + 'static,
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
    use crate::dtype::AclType::{self, BF16, Bool, C64, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

    /// What the cube and most fused operators take.
    pub(crate) const FLOATING: &[AclType] = &[F32, F16, BF16];
    /// What a quotient of is one of the same type.
    pub(crate) const REAL: &[AclType] = &[F32, F16, BF16, F64];
    /// What linear systems are solved in.
    pub(crate) const WIDE: &[AclType] = &[F32, F64];
    /// What the fused attention operators take without quantisation.
    pub(crate) const HALVES: &[AclType] = &[F16, BF16];
    /// Quantised numbers of 8 bits.
    pub(crate) const BYTES: &[AclType] = &[I8];
    /// Eight bits each.
    pub(crate) const OCTETS: &[AclType] = &[U8];
    /// What has a sign worth a bit.
    pub(crate) const HALF_OR_SINGLE: &[AclType] = &[F32, F16];
    /// What statistics and scales are in.
    pub(crate) const SINGLE: &[AclType] = &[F32];
    /// Indices of 32 and of 64 bits.
    pub(crate) const INDEXES: &[AclType] = &[I32, I64];
    /// Labels of classes.
    pub(crate) const LABELS: &[AclType] = &[I32, I64, U8];
    /// 32-bit indices only.
    pub(crate) const WHOLE32: &[AclType] = &[I32];
    /// 64-bit indices only.
    pub(crate) const INDEX64: &[AclType] = &[I64];
    pub(crate) const BOOL: &[AclType] = &[Bool];
    /// Masks of one byte an element.
    pub(crate) const MASKS: &[AclType] = &[Bool, I8, U8];
    /// Conditions of a selection.
    pub(crate) const CONDITIONS: &[AclType] = &[Bool, U8];
    /// Numbers and truth values arithmetic is defined for.
    pub(crate) const ARITHMETIC: &[AclType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, Bool];
    /// Integers and truth values, which have bits.
    pub(crate) const WHOLE: &[AclType] = &[I8, I16, I32, I64, U8, U16, U32, U64, Bool];
    /// Integers that 64 bits hold with their sign.
    pub(crate) const SHIFTABLE: &[AclType] = &[I8, I16, I32, I64, U8, U16, U32];
    /// What the hardware's scales are stored in.
    pub(crate) const PACKED_SCALES: &[AclType] = &[U64, I64];
    /// Numbers without truth values.
    pub(crate) const NUMBER: &[AclType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8];
    /// What the movers of elements take that list no 16-bit integers and no doubles.
    pub(crate) const COMMON: &[AclType] = &[F32, F16, BF16, I8, I32, I64, U8, Bool];
    /// What scattered additions take.
    pub(crate) const ADDABLE: &[AclType] = &[F32, F16, BF16, I8, I32, I64, U8];
    /// What can be masked.
    pub(crate) const MASKABLE: &[AclType] = &[F32, F16, BF16, I8, I32, I64, Bool];
    /// What a range can be made of.
    pub(crate) const RANGE: &[AclType] = &[F32, F16, BF16, I32, I64];
    /// What the cube takes in blocks.
    pub(crate) const CUBED: &[AclType] = &[F16, BF16, I8];
    /// How many values there are.
    pub(crate) const COUNTERS: &[AclType] = &[I32, F32, F16];
    /// What can be copied.
    pub(crate) const COPIED: &[AclType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bool, C64];
    /// Every type the emulator computes in.
    pub(crate) const ANY: &[AclType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bool];
}
