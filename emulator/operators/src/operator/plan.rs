//! Results of planning an operator: a kernel, or an error.

use std::sync::{Arc, Mutex, PoisonError};

use super::argument::{CheckedTensor, TensorRole};
use crate::Tiles;
use crate::dtype::AclType;
use crate::fractal::Fractal;
use crate::lane::Lane;
use crate::view::StridedView;

/// Status code for a required parameter that is NULL.
pub const NULL_POINTER: i32 = 161_001;

/// Status code for a parameter that breaks a rule.
pub const INVALID: i32 = 161_002;

/// Error of a first-phase call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status code, as an `aclnnStatus` value.
    pub code: i32,
    /// Message of one sentence for users.
    pub message: String,
}

/// Data-dependent output shapes, for outputs with capacity for the largest result.
#[derive(Debug, Default)]
pub struct Decided(Mutex<Vec<(ViewIndex, Vec<usize>)>>);

impl Decided {
    /// Returns and clears the collected shapes.
    pub fn take(&self) -> Vec<(ViewIndex, Vec<usize>)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Tensors of a call, in parameter order. Lists are flattened, absent tensors skipped.
#[derive(Clone, Copy, Debug)]
pub struct StridedViews<'a> {
    views: &'a [StridedView],
    decided: &'a Decided,
}

impl<'a> StridedViews<'a> {
    /// Combines views and a store for shapes.
    pub const fn new(views: &'a [StridedView], decided: &'a Decided) -> Self {
        Self { views, decided }
    }

    pub(crate) fn of(&self, slot: ViewIndex) -> &StridedView {
        &self.views[slot.0]
    }

    /// Returns all elements, row-major.
    pub(crate) fn read<L: Lane>(&self, slot: ViewIndex) -> Vec<L> {
        let mut values = vec![L::default(); self.of(slot).len()];
        L::load(&self.of(slot).collapsed(), 0, &mut values);
        values
    }

    /// Returns all elements of a tensor that was given.
    pub(crate) fn read_given<L: Lane>(&self, slot: Option<ViewIndex>) -> Option<Vec<L>> {
        slot.map(|slot| self.read(slot))
    }

    /// Stores all elements, row-major.
    pub(crate) fn write<L: Lane>(&self, slot: ViewIndex, values: &[L]) {
        assert_eq!(values.len(), self.of(slot).len(), "a value for each element");
        L::store(&self.of(slot).collapsed(), 0, values);
    }

    /// Stores all elements of a tensor that was given.
    pub(crate) fn write_given<L: Lane>(&self, slot: Option<ViewIndex>, values: &[L]) {
        if let Some(slot) = slot {
            self.write(slot, values);
        }
    }

    /// The result is row-major.
    pub(crate) fn decide(&self, slot: ViewIndex, dims: Vec<usize>) {
        self.decided.0.lock().unwrap_or_else(PoisonError::into_inner).push((slot, dims));
    }
}

/// Index of a tensor within [`StridedViews`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewIndex(pub usize);

/// Kernel that computes the outputs. Its errors depend on data and fail the stream.
pub type OperatorKernel = Arc<dyn Fn(&StridedViews<'_>, &dyn Tiles) -> Result<(), String> + Send + Sync>;

/// Effect of a checked call.
pub struct CallPlan {
    /// Kernel that computes the outputs.
    pub kernel: OperatorKernel,
    /// Device memory for the second phase in bytes.
    pub workspace_bytes: usize,
    /// Strided tensors that the kernel reads in place.
    pub strides: Strides,
    /// Tensors that the kernel reads only partially.
    pub parts: Vec<PartRead>,
    /// Set for attention operators.
    pub(crate) attended: Option<Attended>,
    /// Outputs that this call does not write.
    pub(crate) unwritten: Vec<ViewIndex>,
    /// Tensor that the call converts to blocks in place.
    pub blocked: Option<(ViewIndex, Fractal)>,
    /// Exchange with other cards within the call.
    pub joined: Option<Joined>,
    /// Notes on arguments that CANN accepts against its documentation.
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

/// Exchange between cards within an operator.
#[derive(Clone)]
pub struct Joined {
    /// Name of the communicator.
    pub group: String,
    /// Kind of the exchange.
    pub exchange: JoinedExchange,
    /// Workspace tensors, as views after the tensors of the call.
    pub tensors: Vec<WorkspaceTensor>,
    /// Kernel to run after the exchange.
    pub behind: Option<OperatorKernel>,
    /// Additional check of chip and communicator.
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
    /// Type of the elements.
    pub dtype: AclType,
    /// Extents of the tensor, outermost first.
    pub dims: Vec<usize>,
    /// Strides of the tensor, in elements.
    pub strides: Vec<isize>,
    /// Offset from the start of the workspace, in elements.
    pub offset: isize,
}

/// Device and communicator of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallPlace {
    /// True for a card of an Atlas A2, false for an A3.
    pub is_a2: bool,
    /// Number of cards of the communicator.
    pub cards: usize,
    /// Rank of this card in the communicator.
    pub rank: usize,
}

pub(crate) type Check = Arc<dyn Fn(CallPlace) -> Result<(), String> + Send + Sync>;

/// Kind of exchange within an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinedExchange {
    /// The tensor becomes the sum of all cards' products.
    AllReduce(ViewIndex),
    /// The second tensor gathers the first tensor of all cards (their number follows) before the
    /// product.
    AllGather([ViewIndex; 2], usize),
    /// The tensor receives its rows of the products' sum in the workspace; the number of cards
    /// follows.
    ReduceScatter(ViewIndex, usize),
    /// The first workspace block of all cards is gathered into the later blocks.
    Gathered {
        /// Size of a block in bytes.
        block: usize,
        /// Number of cards of the communicator.
        cards: usize,
    },
    /// Exchange of blocks (all-to-all): one workspace block to each card, then one received block
    /// per card.
    Dealt {
        /// Size of a block in bytes.
        block: usize,
        /// Number of cards of the communicator.
        cards: usize,
    },
}

impl JoinedExchange {
    /// Returns the number of cards implied by the shapes, if any.
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

/// Valid lengths per index of the first dim; later positions along `dim` are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRead {
    /// Tensor that is read partially.
    pub slot: ViewIndex,
    /// Dim along which the lengths count.
    pub dim: usize,
    /// Length per index of the first dim.
    pub lengths: Vec<usize>,
}

/// Independent of the tensor layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attended {
    pub(crate) query: ViewIndex,
    /// One pair, or one per sequence.
    pub(crate) keys: Vec<[ViewIndex; 2]>,
    pub(crate) heads: [usize; 2],
    pub(crate) depths: [usize; 2],
    /// Scales of the keys and of the values, in blocks.
    pub(crate) scales: Option<[ViewIndex; 2]>,
    /// A mask that is only causal.
    pub(crate) triangle: Option<ViewIndex>,
    pub(crate) sequences: Vec<KeySequence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeySequence {
    pub(crate) rows: usize,
    pub(crate) keys: usize,
    /// Capacity of the key tensor.
    pub(crate) room: usize,
}

/// Strided tensors that are read without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strides {
    /// Every strided tensor is copied to contiguous memory first.
    Copied,
    /// Matrices with swapped last dims are read in place: the cube unit loads both orders.
    Transposed,
}

impl CallPlan {
    /// Returns whether the call writes a tensor.
    #[must_use]
    pub fn writes(&self, tensor: &CheckedTensor) -> bool {
        tensor.role != TensorRole::Input && !self.unwritten.contains(&tensor.slot)
    }

    pub(crate) fn new(
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

    /// Transposed matrices are read in place.
    pub(crate) fn reading_transposed(self) -> Self {
        Self { strides: Strides::Transposed, ..self }
    }

    pub(crate) fn reading(self, parts: Vec<PartRead>) -> Self {
        Self { parts, ..self }
    }

    pub(crate) fn attending(self, attended: Attended) -> Self {
        Self { attended: Some(attended), ..self }
    }

    pub(crate) fn leaving(self, unwritten: Vec<ViewIndex>) -> Self {
        Self { unwritten, ..self }
    }

    pub(crate) fn blocking(self, slot: ViewIndex, fractal: Fractal) -> Self {
        Self { blocked: Some((slot, fractal)), ..self }
    }

    pub(crate) fn joined(self, joined: Joined) -> Self {
        Self { joined: Some(joined), ..self }
    }

    pub(crate) fn noting(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }

    pub(crate) fn with_workspace(self, workspace_bytes: usize) -> Self {
        Self { workspace_bytes, ..self }
    }
}

/// Named as in the documentation.
pub(crate) mod sets {
    use crate::dtype::AclType::{self, BF16, Bool, C64, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

    /// Types of the cube unit.
    pub(crate) const FLOATING: &[AclType] = &[F32, F16, BF16];
    /// Floats, and integers that become FLOAT.
    pub(crate) const CONVERTED: &[AclType] = &[F32, F16, BF16, I8, I16, I32, I64, U8, Bool];
    pub(crate) const EXPONENTS: &[AclType] = &[F32, F16, BF16, I64, Bool];
    /// Quotients have the same type.
    pub(crate) const REAL: &[AclType] = &[F32, F16, BF16, F64];
    pub(crate) const WIDE: &[AclType] = &[F32, F64];
    /// Types of fused attention without quantisation.
    pub(crate) const HALVES: &[AclType] = &[F16, BF16];
    pub(crate) const BYTES: &[AclType] = &[I8];
    pub(crate) const OCTETS: &[AclType] = &[U8];
    pub(crate) const HALF_OR_SINGLE: &[AclType] = &[F32, F16];
    pub(crate) const SINGLE: &[AclType] = &[F32];
    pub(crate) const INDEXES: &[AclType] = &[I32, I64];
    pub(crate) const LABELS: &[AclType] = &[I32, I64, U8];
    pub(crate) const WHOLE32: &[AclType] = &[I32];
    pub(crate) const INDEX64: &[AclType] = &[I64];
    pub(crate) const BOOL: &[AclType] = &[Bool];
    pub(crate) const MASKS: &[AclType] = &[Bool, I8, U8];
    pub(crate) const CONDITIONS: &[AclType] = &[Bool, U8];
    pub(crate) const ARITHMETIC: &[AclType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, Bool];
    pub(crate) const WHOLE: &[AclType] = &[I8, I16, I32, I64, U8, U16, U32, U64, Bool];
    /// Integers within a signed 64-bit number.
    pub(crate) const SHIFTABLE: &[AclType] = &[I8, I16, I32, I64, U8, U16, U32];
    pub(crate) const PACKED_SCALES: &[AclType] = &[U64, I64];
    pub(crate) const NUMBER: &[AclType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8];
    /// Copying operators exclude 16-bit integers and doubles.
    pub(crate) const COMMON: &[AclType] = &[F32, F16, BF16, I8, I32, I64, U8, Bool];
    pub(crate) const ADDABLE: &[AclType] = &[F32, F16, BF16, I8, I32, I64, U8];
    pub(crate) const MASKABLE: &[AclType] = &[F32, F16, BF16, I8, I32, I64, Bool];
    pub(crate) const RANGE: &[AclType] = &[F32, F16, BF16, I32, I64];
    /// Cube types in blocked layout.
    pub(crate) const CUBED: &[AclType] = &[F16, BF16, I8];
    pub(crate) const COUNTERS: &[AclType] = &[I32, F32, F16];
    pub(crate) const COPIED: &[AclType] =
        &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bool, C64];
    pub(crate) const ANY: &[AclType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bool];
}
