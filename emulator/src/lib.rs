//! An emulator of Ascend cards and HCCL on the CPU, behind the C ABI of CANN.
//!
//! The input is a [`Config`], the output a [`Table`] of the C functions that CANN's libraries
//! export. A stream is a FIFO queue of tasks. One thread pool runs the ready tasks of all cards. A
//! collective is a task that becomes ready when every rank has arrived.
//!
//! Invariants: waiting threads sleep after a short spin, and no rank owns a core. Results do not
//! depend on the number of threads. Functions that are not modelled return an error. Operators are
//! not simulated internally, except kernels built by [`compiler`]. Times are host times, or in
//! timed mode ([`Mode::Timed`]) the times of the cost model in `ascend_tp_machine`.
//!
//! ```
//! use ascend_tp_emulator::{Config, Emulator};
//!
//! let emulator = Emulator::new(Config::with_cards(2))?;
//! let table = emulator.table();
//! let mut count = 0;
//! // SAFETY: `count` is a live `u32`.
//! let code = unsafe { (table.aclrtGetDeviceCount)(&raw mut count) };
//! assert_eq!((code, count), (0, 2));
//! # Ok::<(), ascend_tp_emulator::EmulatorError>(())
//! ```

mod abi;
mod base;
pub mod compiler;
mod config;
mod emulator;
mod environment;
mod faults;
mod hccl;

mod machine;
mod memory;
mod nn;
mod runtime;
mod scheduler;
mod state;
mod strict;
mod timed;

pub use abi::dropin;
pub use ascend_tp_emulator_operators::limits;
pub use ascend_tp_emulator_operators::simd::isa::{ISA_VARIABLE, Isa, isa};
pub use ascend_tp_machine::Soc;
pub use ascend_tp_sys::Table;
pub use base::collective_engine::CollectiveEngine;
pub use base::report::{Report, ReportKind};
pub use config::{CannVersion, Config, Messages, Mode, Numbers, Sharing, StrictRules, Transport};
pub use emulator::{Emulator, EmulatorError};
pub use environment::{EmulatorEnvironmentError, WORDS, Word};
pub use faults::fault::{Calls, Checksum, Fault, FaultError};
pub use faults::injected::Injected;
pub use hccl::rules::{CollectiveRule, InPlace, Named};
pub use memory::allocation_table::CardUsage;
pub use runtime::compiled::{KernelFinding, KernelRun, KernelTouch};
pub use runtime::fork;
pub use runtime::kernel::{KernelCall, KernelMemory};
pub use strict::trace::TraceEvent;
pub use timed::{Lane, LaneSpan, Recording, Total};

/// Returns the rules of every HCCL function that transfers data.
#[must_use]
pub fn collective_rules() -> &'static [CollectiveRule] {
    hccl::rules::RULES
}

/// Returns the rules of HCCL as a Markdown table.
#[must_use]
pub fn collective_table() -> String {
    hccl::rules::markdown()
}

/// Returns the rules of every modelled aclnn operator as a Markdown table.
#[must_use]
pub fn operator_table() -> String {
    ascend_tp_emulator_operators::operator::markdown()
}

/// Returns every declared C function with its library and whether it is modelled.
#[must_use]
pub fn coverage() -> Vec<(&'static str, ascend_tp_sys::Library, bool)> {
    abi::coverage()
}

/// Returns the C functions that are not modelled, with reasons, as a Markdown table.
#[must_use]
pub fn refused_table() -> String {
    abi::refused::markdown(&abi::coverage())
}
