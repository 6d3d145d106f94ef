//! Call sites: thread, card, stream and tag of a call.

use std::fmt;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallSite {
    /// Sequence number of the call on the machine, in order of admission.
    pub(crate) number: u64,
    pub(crate) call: &'static str,
    pub(crate) thread: Arc<str>,
    pub(crate) card: Option<u32>,
    /// Rank of the card in the first communicator it joined.
    pub(crate) rank: Option<u32>,
    pub(crate) stream: Option<u64>,
    /// The stream's last mark (`aclprofMarkEx`).
    pub(crate) tag: Option<Arc<str>>,
}

/// `aclnnMatmul (call 17 of thread rank-2, rank 2, card 2, stream 9, at "layer 3 o_proj")`
impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (call {} on thread {}", self.call, self.number, self.thread)?;
        if let Some(rank) = self.rank {
            write!(f, ", rank {rank}")?;
        }
        if let Some(card) = self.card {
            write!(f, ", card {card}")?;
        }
        if let Some(stream) = self.stream {
            write!(f, ", stream {stream}")?;
        }
        if let Some(tag) = &self.tag {
            write!(f, ", at {tag:?}")?;
        }
        f.write_str(")")
    }
}
