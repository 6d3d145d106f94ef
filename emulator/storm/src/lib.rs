//! The storm: random programs for the C ABI of CANN, run on the emulator and checked.
//!
//! A *program* follows from its seed: up to eight ranks as threads and processes, with steps on
//! streams, memory and communicators. The checks are:
//!
//! - the contents of all buffers, against an oracle that computes them on the host,
//! - the codes that are determined,
//! - that every wait ends within its limit and every process death is noticed,
//! - that strict mode reports nothing for a legal program.
//!
//! Modules: `program` (steps), `generate` (program of a seed), `order` (race freedom), `oracle`
//! with `collective` and `element` (expected bytes), `rank` with `calls`, `probe` and `ending`
//! (execution), `process`, `supervise`, `shrink`, `storm`.
//!
//! The storm uses only the emulator's public interface, so it runs with all versions.
#![expect(missing_docs, reason = "this crate is not published, and its field names are self-explanatory")]

mod calls;
mod collective;
mod element;
mod ending;
pub mod generate;
mod oracle;
mod order;
mod probe;
pub mod process;
mod program;
mod random;
mod rank;
pub mod shrink;
pub mod storm;
pub mod supervise;
