//! The emulator as a replacement for CANN's libraries, for programs in any language.
//!
//! - Input: the environment (`ASCEND_EMULATOR`, `ASCEND_RT_VISIBLE_DEVICES`), read at the first
//!   call.
//! - Output: one shared library that exports every C function of CANN, and [`write_libraries`],
//!   which writes `libascendcl.so`, `libhccl.so`, `libnnopbase.so`, `libopapi.so` and further
//!   names.
//! - Invariants: a process has one machine, however many libraries and handles it uses. A function
//!   that is not modelled exists, reports its name and returns its library's "not supported".
//!   Settings of the environment are applied or refused, never ignored.
//! - Not here: interposition. Programs find the libraries only through `LD_LIBRARY_PATH`, an
//!   explicit path or a linker's `-L`. The emulator refuses to work if CANN's libraries are already
//!   loaded.

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
