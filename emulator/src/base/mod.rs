//! What every part of the emulator speaks of: failures, handles, prototypes, places in the program, reports, and the one voice.
//!
//! Input: what a part found wrong. Output: a code, a message, and in strict mode a report that names both calls. Invariants:
//! a number of CANN's error codes stands here and nowhere else; a handle says what kind of object it is. Does not: know any
//! part of the emulator, or decide what is wrong.

pub(crate) mod collective_engine;
pub(crate) mod failure;
pub(crate) mod handle;
pub(crate) mod report;
pub(crate) mod site;
pub(crate) mod stderr;
