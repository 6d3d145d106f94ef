//! Arguments that no plan knows: how many keys there are, and what a communicator is called.
//!
//! Input → output: a call → where such an argument stands among those of its C function. Whoever makes the call ready puts it there.

use super::{Call, View};

/// Where [`Call::FusedAttention`] takes `actualSeqLengthsKv`, among its arguments.
const KEY_LENGTHS: usize = 6;

/// Where the operators that multiply and exchange take the name of a communicator, among their arguments.
const GROUP: usize = 3;

impl Call {
    /// Of a product that is exchanged in the same call: where the name of its communicator, which only a card knows, stands among its
    /// arguments.
    #[must_use]
    pub const fn group_name(&self) -> Option<usize> {
        match self {
            Self::MatmulAllReduce { .. } | Self::AllGatherMatmul { .. } | Self::MatmulReduceScatter { .. } => {
                Some(GROUP)
            }
            _ => None,
        }
    }

    /// Of attention that can be told for each sequence how many keys to read: where that stands among its arguments, and the mask
    /// `[b,1,s,t]`, of whose places none behind the last that shows need be read.
    #[must_use]
    pub fn key_lengths(&self) -> Option<(usize, &View)> {
        match self {
            Self::FusedAttention { mask, .. } => Some((KEY_LENGTHS, mask)),
            _ => None,
        }
    }
}
