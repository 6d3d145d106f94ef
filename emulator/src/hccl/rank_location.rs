//! Locations of the ranks of a communicator.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::hccl::tcp::connection::PeerLink;
use crate::hccl::tcp::wire::{CommunicatorToken, WireMessage};

#[derive(Debug, Clone)]
pub(crate) enum RankLocation {
    Here,
    There(Arc<PeerLink>),
}

impl RankLocation {
    pub(crate) fn link(&self) -> Option<&Arc<PeerLink>> {
        match self {
            Self::Here => None,
            Self::There(link) => Some(link),
        }
    }
}

/// For communicators that this process has not entered yet.
pub(crate) type Unclaimed = BTreeMap<CommunicatorToken, Vec<(Arc<PeerLink>, WireMessage)>>;
