//! The safe layer over the C ABI: cards, streams, events, memory, tensors, operators and
//! communicators as owned values. [`Cann`] is made from a [`Table`](ascend_tp_sys::Table) of C
//! functions, and all other values from it:
//!
//! | type | AscendCL |
//! |---|---|
//! | [`Device`] | device and its default context |
//! | [`Stream`] | `aclrtStream` |
//! | [`Event`] | `aclrtEvent` |
//! | [`Buffer`], [`BufferSlice`] | device memory |
//! | [`Tensor`] | `aclTensor` |
//! | [`prepare`], [`Prepared`] | the two phases of an aclnn operator |
//! | [`Communicator`] | `HcclComm` |
//!
//! Invariants:
//! * A value keeps everything alive that it was made from (`Arc`), so nothing is used after it is
//!   freed. Dropping device memory first waits for the card's work.
//! * `enqueue_…` returns immediately. The `Transfer` owns the host memory of a copy until the
//!   copy has ended.
//! * Each call makes its card's context current on the calling thread, so threads need no
//!   preparation.
//! * `Drop` never panics. The first error of a teardown is parked in the [`Device`] and returned by
//!   its next call.
//! * Functions also return the errors of their library calls; `# Errors` sections list the other
//!   causes.
//!
//! Sizes are checked only where C functions do not. C names appear elsewhere only in the text of an
//! [`Error`].
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
#[doc(hidden)]
pub mod kernels;
#[doc(hidden)]
pub mod operator;
mod prepared;
mod root_info;
mod stream;
mod tensor;

pub use buffer::{Buffer, BufferSlice};
pub use cann::Cann;
#[doc(hidden)]
pub use cann::toolkit_version;
pub use card::{Device, Memory};
#[doc(hidden)]
pub use communicator::RankParts;
pub use communicator::{Communicator, ReduceOp};
#[doc(hidden)]
pub use copy::{HostBuffer, Transfer};
#[doc(hidden)]
pub use error::{CallError, Result};
pub use error::{Error, ErrorKind};
pub use event::Event;
#[doc(hidden)]
pub use graph::{Capture, Graph};
#[doc(hidden)]
pub use kernel::{Kernel, KernelArgument, KernelBinary, PreparedKernel};
pub use kernels::KernelSource;
#[doc(hidden)]
pub use kernels::LoadedKernels;
pub use operator::prepare;
pub use prepared::Prepared;
pub use root_info::RootInfo;
pub use stream::Stream;
pub use tensor::Tensor;
