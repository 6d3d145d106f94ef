//! Ascend cards and HCCL on the CPU, behind the C ABI of CANN.
//!
//! Input: a [`Config`]. Output: a [`Table`] with the same C functions a toolkit's libraries export. Cards are queues and
//! the cores of this host are the silicon: a stream is a FIFO of tasks, one pool of threads runs the ready tasks of all
//! cards, a collective is a task that becomes ready when every rank has arrived.
//!
//! Invariants: who waits sleeps, after looking again for no longer than a wake-up takes, and no rank owns a core; results do not depend on
//! the number of threads; what is not modelled is refused by name, never silently accepted. Does not: model what happens inside an operator
//! (kernels that [`compiler`] has compiled are run call by call). Time is that of the
//! host, or in timed mode ([`Mode::Timed`]) the one the cost model of `ascend_tp_machine` gives.
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

/// The rules of every function of HCCL that moves data.
#[must_use]
pub fn collective_rules() -> &'static [CollectiveRule] {
    hccl::rules::RULES
}

/// The rules of HCCL as a Markdown table.
#[must_use]
pub fn collective_table() -> String {
    hccl::rules::markdown()
}

/// The rules of every modelled aclnn operator as a Markdown table.
#[must_use]
pub fn operator_table() -> String {
    ascend_tp_emulator_operators::operator::markdown()
}

/// Every C function that `ascend_tp_sys` declares, its library, and whether it is modelled; the others refuse by name.
#[must_use]
pub fn coverage() -> Vec<(&'static str, ascend_tp_sys::Library, bool)> {
    abi::coverage()
}

/// The C functions that refuse, with the reason, as a Markdown table.
#[must_use]
pub fn refused_table() -> String {
    abi::refused::markdown(&abi::coverage())
}
