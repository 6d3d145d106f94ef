//! Calls that created objects, for reports of leaks. At most about twice as many sites as objects
//! are stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::site::CallSite;

/// Sites in excess of existing objects before a cleanup.
const SLACK: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Makers {
    sites: BTreeMap<u64, Arc<CallSite>>,
    /// Number of sites that triggers a cleanup.
    limit: usize,
}

impl Makers {
    pub(super) fn note(&mut self, number: u64, site: CallSite, exists: impl Fn(u64) -> bool) {
        if self.sites.len() >= self.limit {
            self.sites.retain(|number, _| exists(*number));
            self.limit = 2 * self.sites.len() + SLACK;
        }
        self.sites.insert(number, Arc::new(site));
    }

    pub(super) fn site(&self, number: u64) -> Option<&Arc<CallSite>> {
        self.sites.get(&number)
    }
}
