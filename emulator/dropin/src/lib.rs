//! The emulator behind the names of CANN's own libraries: what a program in any language links or loads.
//!
//! Input: the environment (`ASCEND_EMULATOR`, `ASCEND_RT_VISIBLE_DEVICES`), read at the first call. Output: one shared
//! library that exports every C function of CANN, and [`write_libraries`], which puts `libascendcl.so`, `libhccl.so`,
//! `libnnopbase.so`, `libopapi.so` and the further names next to it.
//!
//! Invariants: a process has one machine, however many libraries and handles its calls come through; a function that is
//! not modelled exists, is refused by name and returns its library's "not supported"; what the environment asks for is
//! done or refused, never ignored. Does not: interpose itself. Only `LD_LIBRARY_PATH`, an explicit path or a linker's
//! `-L` leads to it, and it refuses to work beside a toolkit that is loaded already.

mod answered;
mod atb;
mod export;
mod failure;
mod kernel;
mod libraries;
mod loaded;
mod notice;
mod process;
mod securec;

pub use export::{Coverage, Export, exports};
pub use kernel::OWN;
pub use libraries::{WriteError, real_library, write_libraries};
