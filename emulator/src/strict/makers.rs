//! Which calls have made the objects that exist.
//!
//! Input: numbers with the calls that made the objects. Output: those calls, for reports of what is left. Invariant: what is
//! kept stays within twice the objects that exist. Does not: know what exists; who notes says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::site::Site;

/// Sites kept beyond those of objects that exist before they are looked through.
const SLACK: usize = 256;

/// The calls that made objects with a number.
#[derive(Debug, Default)]
pub(crate) struct Makers {
    sites: BTreeMap<u64, Arc<Site>>,
    /// The number of sites at which those of objects that are gone are dropped.
    limit: usize,
}

impl Makers {
    /// The call at `site` has made an object; `exists` says whether one still does.
    pub(super) fn note(&mut self, number: u64, site: Site, exists: impl Fn(u64) -> bool) {
        if self.sites.len() >= self.limit {
            self.sites.retain(|number, _| exists(*number));
            self.limit = 2 * self.sites.len() + SLACK;
        }
        self.sites.insert(number, Arc::new(site));
    }

    /// The call that made an object.
    pub(super) fn site(&self, number: u64) -> Option<&Arc<Site>> {
        self.sites.get(&number)
    }
}
