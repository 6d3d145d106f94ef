//! The part of strict mode inside the scheduling state.

use std::sync::Arc;

use crate::strict::Strict;
use crate::strict::makers::Makers;
use crate::strict::order::HappensBefore;

#[derive(Debug)]
pub(crate) struct StrictState {
    /// Has its own locks.
    pub(crate) shared: Arc<Strict>,
    pub(crate) order: HappensBefore,
    pub(crate) makers: Makers,
}

impl StrictState {
    pub(crate) fn new(strict: &Arc<Strict>) -> Self {
        Self { shared: Arc::clone(strict), order: HappensBefore::new(strict), makers: Makers::default() }
    }
}
