//! Strict mode's part of the scheduling state.

use std::sync::Arc;

use crate::strict::Strict;
use crate::strict::makers::Makers;
use crate::strict::order::HappensBefore;

/// What strict mode knows under the machine's lock.
#[derive(Debug)]
pub(crate) struct StrictState {
    /// Reports, trace and turnstile, which have locks of their own.
    pub(crate) shared: Arc<Strict>,
    /// What happened before what.
    pub(crate) order: HappensBefore,
    /// Who made the objects that exist.
    pub(crate) makers: Makers,
}

impl StrictState {
    /// Nothing has happened.
    pub(crate) fn new(strict: &Arc<Strict>) -> Self {
        Self { shared: Arc::clone(strict), order: HappensBefore::new(strict), makers: Makers::default() }
    }
}
