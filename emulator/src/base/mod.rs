//! Basic types of the emulator. Error codes of CANN are defined here only.

pub(crate) mod collective_engine;
pub(crate) mod failure;
pub(crate) mod handle;
pub(crate) mod report;
pub(crate) mod site;
pub(crate) mod stderr;
