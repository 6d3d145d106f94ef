//! The emulator as a replacement for CANN's libraries, for programs in any language.
//!
//! - The environment (`ASCEND_EMULATOR`, `ASCEND_RT_VISIBLE_DEVICES`) is read at the first call.
//! - [`write_libraries`] writes `libascendcl.so`, `libhccl.so`, `libnnopbase.so`, `libopapi.so` and
//!   further names for one shared library.
//! - Invariants: a process has one machine, however many libraries and handles it uses. A function
//!   that is not modelled exists, reports its name and returns "not supported". Settings of the
//!   environment are applied or refused, never ignored.
//! - Not here: interposition. Programs find the libraries only through `LD_LIBRARY_PATH`, an
//!   explicit path or a linker's `-L`. The emulator refuses to work if CANN's libraries are loaded.

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
