//! The storm: random programs over the C ABI of CANN, run on the emulator and checked.
//!
//! A *program* is a function of its seed: up to eight ranks as threads and processes, and steps that they do on streams,
//! memory and communicators. What is checked: the bytes of all buffers against an oracle that computes them on the host, the
//! codes that are determined, that every wait ends within its limit and every death is heard of, and that strict mode reports
//! nothing of a legal program.
//!
//! Order of the parts: `program` (what there is to do), `generate` (a program of a seed), `order` (what makes it free of
//! races), `oracle` with `collective` and `element` (what every byte must be), `rank` with `calls`, `probe` and `ending` (doing
//! it), `process`, `supervise`, `shrink`, `storm`.
//!
//! Does not: use anything of the emulator but its public face, so that one storm runs over all versions of it.
#![expect(missing_docs, reason = "this crate is published to nobody; its fields are named by what they are")]

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
