//! Locations of the ranks of a communicator.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::hccl::tcp::connection::Link;
use crate::hccl::tcp::wire::{CommunicatorToken, Message};

#[derive(Debug, Clone)]
pub(crate) enum RankLocation {
    Here,
    There(Arc<Link>),
}

impl RankLocation {
    pub(crate) fn link(&self) -> Option<&Arc<Link>> {
        match self {
            Self::Here => None,
            Self::There(link) => Some(link),
        }
    }
}

/// For communicators that this process has not entered yet.
pub(crate) type Unclaimed = BTreeMap<CommunicatorToken, Vec<(Arc<Link>, Message)>>;
