//! Where the ranks of a communicator are.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::hccl::link::connection::Link;
use crate::hccl::link::wire::{Message, Token};

/// Where a rank is.
#[derive(Debug, Clone)]
pub(crate) enum RankLocation {
    /// In this process.
    Here,
    /// In the process at the other end of the link.
    There(Arc<Link>),
}

impl RankLocation {
    /// The link to the rank's process; None when it is this one.
    pub(crate) fn link(&self) -> Option<&Arc<Link>> {
        match self {
            Self::Here => None,
            Self::There(link) => Some(link),
        }
    }
}

/// Messages for communicators this process has yet to enter, with the link each came by.
pub(crate) type Unclaimed = BTreeMap<Token, Vec<(Arc<Link>, Message)>>;
