//! Identity of a collective within a communicator, equal in every process.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Key {
    /// The n-th collective of all ranks.
    Collective(u64),
    /// The n-th transfer between two ranks.
    Pair { from: u32, to: u32, number: u64 },
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Collective(number) => write!(f, "collective {number}"),
            Self::Pair { from, to, number } => write!(f, "transfer {number} from rank {from} to rank {to}"),
        }
    }
}
