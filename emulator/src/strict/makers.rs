//! Calls that created the existing objects, for reports of leaks. The number of stored sites is
//! bounded by about twice the number of existing objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::site::Site;

/// Number of sites stored in excess of existing objects before a cleanup.
const SLACK: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Makers {
    sites: BTreeMap<u64, Arc<Site>>,
    /// Number of sites at which sites of destroyed objects are removed.
    limit: usize,
}

impl Makers {
    /// Records that the call at `site` created an object; `exists` tests whether an object still
    /// exists.
    pub(super) fn note(&mut self, number: u64, site: Site, exists: impl Fn(u64) -> bool) {
        if self.sites.len() >= self.limit {
            self.sites.retain(|number, _| exists(*number));
            self.limit = 2 * self.sites.len() + SLACK;
        }
        self.sites.insert(number, Arc::new(site));
    }

    pub(super) fn site(&self, number: u64) -> Option<&Arc<Site>> {
        self.sites.get(&number)
    }
}
