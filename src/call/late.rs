//! Arguments that a plan does not contain: lengths of sequences, and names of communicators. The
//! code that prepares a call inserts them at the given position.

use super::{Call, View};

/// Index of `actualSeqLengthsKv` in the arguments of [`Call::FusedAttention`].
const KEY_LENGTHS: usize = 6;

/// Index of the communicator's name in the arguments of fused exchanges.
const GROUP: usize = 3;

impl Call {
    /// Returns the index of the communicator's name in the arguments of a fused exchange.
    #[must_use]
    pub const fn group_name(&self) -> Option<usize> {
        match self {
            Self::MatmulAllReduce { .. }
            | Self::AllGatherMatmul { .. }
            | Self::MatmulReduceScatter { .. } => Some(GROUP),
            _ => None,
        }
    }

    /// Returns the index of the host list of lengths in the arguments of attention over blocks, and
    /// the tensor `[b]` that has the same numbers.
    #[must_use]
    pub fn lengths(&self) -> Option<(usize, &View)> {
        match self {
            Self::FusedAttention { lengths: Some(lengths), .. } => Some((KEY_LENGTHS, lengths)),
            _ => None,
        }
    }
}
