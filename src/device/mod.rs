//! The safe layer over the C ABI: cards, streams, events, memory, tensors, operators and communicators as owned values.
//!
//! Input → output: a [`Table`](ascend_tp_sys::Table) of C functions, filled by an installed toolkit or by an emulator, becomes
//! [`Cann`], and from it everything else:
//!
//! | here | AscendCL | to a reader who knows CPUs |
//! |---|---|---|
//! | [`Device`] | device and its default context | a machine |
//! | [`Stream`] | `aclrtStream` | a thread: works through a queue in order |
//! | [`Event`] | `aclrtEvent` | a condition other threads wait for |
//! | [`Buffer`], [`BufferSlice`] | device memory | `Vec<u8>` and `&[u8]`, but not readable by the host |
//! | [`HostBuffer`] | page-locked memory | `Vec<u8>` the copy engine can reach |
//! | [`Tensor`] | `aclTensor` | a strided view of a slice |
//! | [`Graph`] | `aclmdlRI`, made by a capture | a recorded macro of a thread |
//! | [`operator`], [`Prepared`] | the two phases of an aclnn operator | a checked closure |
//! | [`KernelBinary`], [`Kernel`] | a loaded binary, and a function of it | a plug-in and its entry |
//! | [`Communicator`] | `HcclComm` | one end of a message bus |
//!
//! Invariants:
//! * A value keeps alive whatever it was made from (`Arc`), so nothing is used after it is freed and there are no
//!   lifetimes to thread through. Device memory waits, when it is dropped, for the work of its card.
//! * `enqueue_…` returns at once; the host memory of a copy in flight belongs to the [`Transfer`] until it has ended.
//! * Each call makes its card's context current on the calling thread first, so threads need no preparation.
//! * `Drop` never panics: the first error of a teardown is parked in the [`Device`] and comes back from its next call.
//! * Sizes are checked here only where the C function cannot check them; the rest is the library's to refuse.
//!
//! What it does not do: order streams (the caller records and waits), choose operators, or know of programs and plans.
//! No C name leaves this module, except inside the text of an [`Error`].
#![expect(unsafe_code, reason = "the safe layer is where C functions are called")]

mod buffer;
mod cann;
mod card;
mod communicator;
mod copy;
mod error;
mod event;
mod graph;
mod handle;
mod kernel;
pub mod kernels;
pub mod operator;
mod prepared;
mod root_info;
mod stream;
mod tensor;

pub use buffer::{Buffer, BufferSlice};
pub use cann::{Cann, toolkit_version};
pub use card::{Device, Memory};
pub use communicator::{Communicator, RankParts, ReduceOp};
pub use copy::{HostBuffer, Transfer};
pub use error::{CallError, Error, ErrorKind, Result};
pub use event::Event;
pub use graph::{Capture, Graph};
pub use kernel::{Kernel, KernelArgument, KernelBinary, PreparedKernel};
pub use kernels::{KernelSource, LoadedKernels};
pub use prepared::Prepared;
pub use root_info::RootInfo;
pub use stream::Stream;
pub use tensor::Tensor;
