//! Arguments that a plan does not contain: key lengths, and names of communicators. The code that
//! prepares a call inserts them at the given position.

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

    /// Returns the index of the key lengths in the arguments of attention, and the mask
    /// `[b,1,s,t]`. Keys after the last visible one need not be read.
    #[must_use]
    pub fn key_lengths(&self) -> Option<(usize, &View)> {
        match self {
            Self::FusedAttention { mask, .. } => Some((KEY_LENGTHS, mask)),
            _ => None,
        }
    }
}
