//! Links of a machine to other processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::hccl::tcp::connection::PeerLink;
use crate::hccl::tcp::wire::WireMessage;

#[derive(Debug, Default)]
pub(crate) struct PeerLinks {
    by_peer: BTreeMap<u128, Arc<PeerLink>>,
    pub(in crate::hccl) connecting: BTreeSet<u128>,
}

impl PeerLinks {
    pub(crate) fn to(&self, peer: u128) -> Option<Arc<PeerLink>> {
        self.by_peer.get(&peer).filter(|link| !link.is_closed()).cloned()
    }

    pub(crate) fn insert(&mut self, link: &Arc<PeerLink>) {
        self.by_peer.insert(link.peer.id, Arc::clone(link));
    }

    pub(crate) fn remove(&mut self, link: &Arc<PeerLink>) {
        if self.by_peer.get(&link.peer.id).is_some_and(|known| Arc::ptr_eq(known, link)) {
            self.by_peer.remove(&link.peer.id);
        }
    }
}

impl PeerLinks {
    /// Announces the orderly exit of this process, after flushing all earlier messages. Without
    /// those, peers would name this exit as the cause of a failure.
    pub(in crate::hccl) fn say_farewell(&self) {
        const LIMIT: Duration = Duration::from_secs(1);
        let deadline = Instant::now() + LIMIT;
        self.by_peer.values().for_each(|link| link.post(&WireMessage::Farewell));
        self.by_peer.values().for_each(|link| link.flush(deadline));
    }
}

impl Drop for PeerLinks {
    fn drop(&mut self) {
        self.say_farewell();
        self.by_peer.values().for_each(|link| link.close());
    }
}
