//! The public interface of an emulated machine. The machine lives as long as the [`Emulator`] or
//! one of its tables.

use std::io;
use std::sync::Arc;

use ascend_tp_emulator_operators::simd::isa;
use ascend_tp_sys::Table;

use crate::abi;
use crate::base::failure::Failure;
use crate::base::report::Report;
use crate::config::{Config, Mode};
use crate::faults::fault::{Fault, FaultError};
use crate::faults::injected::Injected;
use crate::machine::Machine;
use crate::memory::allocation_table::CardUsage;
use crate::runtime::compiled::KernelRun;
use crate::runtime::kernel::KernelCall;
use crate::runtime::slots::MachineSlot;
use crate::runtime::state_callback::{CallbackSubject, StateCallback};
use crate::runtime::thread;
use crate::scheduler::conductor::Conductor;
use crate::scheduler::pool::WorkerPool;
use crate::scheduler::timer::Timer;
use crate::scheduler::watch;
use crate::strict::conductor;
use crate::strict::trace::TraceEvent;
use crate::timed::{self, LaneSpan, Recording, Total};

/// Reason why a machine cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatorError {
    /// The number of cards is 0 or too large.
    #[error("an emulator has 1 to {most} cards, found {asked}", most = Config::MAX_CARDS)]
    Cards {
        /// Number of cards in the configuration.
        asked: usize,
    },
    /// The configuration gives the cards no memory.
    #[error("hbm_bytes is 0: a card without memory cannot run anything")]
    NoMemory,
    /// The configuration gives the pool no threads.
    #[error("threads is 0: at least one thread must run the cards' tasks")]
    NoThreads,
    /// The configuration gives the pool too many threads.
    #[error("threads is {asked}: at most {most} threads run the cards' tasks", most = Config::MAX_THREADS)]
    TooManyThreads {
        /// Number of threads in the configuration.
        asked: usize,
    },
    /// The topology has fewer cards than the machine.
    #[error(
        "topology `{topology}` has {joined} cards, but the timed machine has {cards}; use a larger topology (more \
         servers) or fewer cards"
    )]
    Topology {
        /// Name of the topology.
        topology: String,
        /// Number of cards in the topology.
        joined: usize,
        /// Number of cards in the configuration.
        cards: usize,
    },
    /// The profile belongs to another chip.
    #[error(
        "the profile is of {profile}, but the timed machine's cards are {soc}; take Profile::of({soc}) or one fitted for it"
    )]
    Profile {
        /// Chip of the profile.
        profile: &'static str,
        /// Chip of the machine's cards.
        soc: &'static str,
    },
    /// The maximum number of machines is alive.
    #[error(
        "{} emulators are alive in this process, which is the most; drop one (with all its tables) first",
        thread::SLOTS
    )]
    TooManyEmulators,
    /// The operating system cannot create a memory file.
    #[error("this host has no file of memory for the cards")]
    Memory(#[source] io::Error),
    /// A fault of the configuration is invalid for the machine.
    #[error("{0}")]
    Fault(#[source] FaultError),
    /// The operating system cannot start a thread.
    #[error("cannot start the emulator's threads")]
    Threads(#[source] io::Error),
    /// Strict mode cannot observe the states of threads on this system.
    #[error(
        "strict mode must observe the threads of the process, but cannot here: {0}; run it where /proc/self/task \
         tells (sandboxes such as gVisor, or a /proc with hidepid, do not), or leave `strict` out"
    )]
    Blind(String),
    /// The instruction set that the environment selects is unavailable.
    #[error("{0}")]
    Isa(String),
}

/// A machine of emulated cards.
#[derive(Debug, Clone)]
pub struct Emulator {
    owner: Arc<MachineOwner>,
    table: Arc<Table>,
}

/// Drop order of the fields: first calls stop finding the machine, then its threads end.
#[derive(Debug)]
struct MachineOwner {
    machine: Arc<Machine>,
    _conductor: Option<Conductor>,
    _timer: Option<Timer>,
    _slot: MachineSlot,
    _pool: WorkerPool,
}

impl Emulator {
    /// Builds a machine with idle cards.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, 32 machines are alive, or the host cannot start threads.
    pub fn new(config: Config) -> Result<Self, EmulatorError> {
        if config.cards == 0 || config.cards > Config::MAX_CARDS {
            return Err(EmulatorError::Cards { asked: config.cards });
        }
        if config.hbm_bytes == 0 {
            return Err(EmulatorError::NoMemory);
        }
        if config.threads == 0 {
            return Err(EmulatorError::NoThreads);
        }
        if config.threads > Config::MAX_THREADS {
            return Err(EmulatorError::TooManyThreads { asked: config.threads });
        }
        if let Mode::Timed { .. } = config.mode {
            let (joined, cards) = (config.topology.cards(), config.cards);
            if joined < cards {
                let topology = config.topology.name;
                return Err(EmulatorError::Topology { topology, joined, cards });
            }
            if config.profile.soc != config.soc {
                return Err(EmulatorError::Profile {
                    profile: config.profile.soc.name(),
                    soc: config.soc.name(),
                });
            }
        }
        isa::chosen().map_err(EmulatorError::Isa)?;
        if config.mode.seed().is_some() {
            watch::try_to_see().map_err(EmulatorError::Blind)?;
        }
        let slot = MachineSlot::take().ok_or(EmulatorError::TooManyEmulators)?;
        let pool = WorkerPool::new(config.threads).map_err(EmulatorError::Threads)?;
        let machine = Machine::new(config, slot.number(), pool.workers()).map_err(EmulatorError::Memory)?;
        slot.install(&machine);
        let strict = machine.strict().map(|strict| conductor::start(Arc::clone(strict), &machine));
        let conductor =
            strict.or_else(|| machine.timed().map(|timed| timed::conductor::start(timed, &machine)));
        let conductor = conductor.transpose().map_err(EmulatorError::Threads)?;
        let timer = if conductor.is_none() { Some(Timer::start(&machine)) } else { None };
        let timer = timer.transpose().map_err(EmulatorError::Threads)?;
        for fault in machine.config().faults.clone() {
            Injected::new(Arc::clone(&machine), fault).map_err(EmulatorError::Fault)?.stay();
        }
        let number = slot.number();
        let owner = Arc::new(MachineOwner {
            machine,
            _conductor: conductor,
            _timer: timer,
            _slot: slot,
            _pool: pool,
        });
        let table =
            abi::table(number, Arc::clone(&owner) as ascend_tp_sys::Owner, owner.machine.config().cann);
        let table = Arc::new(table);
        Ok(Self { owner, table })
    }

    /// Builds a strict machine with the default cards and this seed.
    ///
    /// # Errors
    ///
    /// See [`Emulator::new`].
    pub fn strict(seed: u64) -> Result<Self, EmulatorError> {
        Self::new(Config { mode: Mode::Strict { seed }, ..Config::default() })
    }

    /// Returns the reports of strict mode so far; empty in other modes.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.owner.machine.strict().map(|strict| strict.reports()).unwrap_or_default()
    }

    /// Returns the last million steps of a strict machine, oldest first. A deterministic program
    /// has the same trace for the same seed. Empty in other modes.
    #[must_use]
    pub fn trace(&self) -> Vec<TraceEvent> {
        self.owner.machine.strict().map(|strict| strict.trace()).unwrap_or_default()
    }

    /// Returns the recorded loads of a timed machine; empty in other modes. A deterministic program
    /// has the same timeline in every run.
    #[must_use]
    pub fn timeline(&self) -> Vec<LaneSpan> {
        self.owner.machine.lock().timed.as_ref().map(|schedule| schedule.timeline.spans()).unwrap_or_default()
    }

    /// Returns the totals by name and bound; empty outside timed mode.
    #[must_use]
    pub fn totals(&self) -> Vec<Total> {
        self.owner
            .machine
            .lock()
            .timed
            .as_ref()
            .map(|schedule| schedule.timeline.totals())
            .unwrap_or_default()
    }

    /// Sets the recording of a timed machine, initially [`Recording::Totals`]. Synchronize first:
    /// queued work is recorded with the new setting. Other modes ignore the setting.
    pub fn record_timeline(&self, recording: Recording) {
        if let Some(schedule) = &mut self.owner.machine.lock().timed {
            schedule.timeline.recording = recording;
        }
    }

    /// Clears the spans and totals of a timed machine.
    pub fn clear_timeline(&self) {
        if let Some(schedule) = &mut self.owner.machine.lock().timed {
            schedule.timeline.clear();
        }
    }

    /// Returns the time in nanoseconds that the cards of a timed machine have reached; 0 in other
    /// modes.
    #[must_use]
    pub fn cards_now_ns(&self) -> u64 {
        self.owner.machine.lock().now_ns().unwrap_or_default()
    }

    /// Returns the calling thread's time in nanoseconds on a timed machine. 0 in other modes and
    /// before the thread's first call.
    #[must_use]
    pub fn thread_now_ns(&self) -> u64 {
        thread::clock(self.owner.machine.key())
    }

    /// Injects a fault until the returned value is dropped.
    ///
    /// # Errors
    ///
    /// The machine has no such card, function or event.
    pub fn inject(&self, fault: Fault) -> Result<Injected, FaultError> {
        Injected::new(Arc::clone(&self.owner.machine), fault)
    }

    /// Registers `kernel` as the host implementation of the kernel `name` in any binary. The
    /// emulator cannot run code compiled for a card.
    pub fn register_kernel(
        &self,
        name: impl Into<String>,
        kernel: impl Fn(&KernelCall<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.owner.machine.update(|state| state.runtime.kernels.register(name.into(), Arc::new(kernel)));
    }

    /// Registers `watcher` for launches of kernels compiled for this host. It runs on the kernel's
    /// thread.
    pub fn watch_kernels(&self, watcher: impl Fn(&KernelRun) + Send + Sync + 'static) {
        self.owner.machine.update(|state| state.runtime.kernels.watcher = Some(Arc::new(watcher)));
    }

    /// Notifies processes with common communicators that this process ends normally. Call this
    /// before an exit that does not drop the emulator. Its ranks then count as left.
    pub fn say_farewell(&self) {
        self.owner.machine.say_farewell();
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.owner.machine
    }

    /// Refuses a call of a C function that the table does not contain. Sets the thread's last error
    /// and recent message, and reports the call to [`Messages`](crate::Messages).
    pub fn refuse(&self, name: &'static str, code: i32) {
        let cann = self.config().cann;
        let _ = self.owner.machine.call(name, |code| code, &mut || {
            let is_young = abi::coverage().iter().any(|(other, _, modelled)| *other == name && *modelled);
            let young =
                || Failure::new(code, format!("{name} is not in CANN {}; cann=9.0 has it", cann.name()));
            Err(if is_young { young() } else { Failure::not_modelled(name, code) })
        });
    }

    /// Answers a call of a C function that the table does not contain. A failure is recorded and
    /// reported like a failure of the table's functions. Returns the code.
    pub fn answer(&self, name: &'static str, answer: impl FnOnce() -> Result<(), (i32, String)>) -> i32 {
        let failed = |(code, what): (i32, String)| Failure::new(code, what);
        let mut answer = Some(answer);
        let mut once = || answer.take().map_or(Ok(()), |answer| answer().map_err(failed));
        self.owner.machine.call(name, |code| code, &mut once).err().unwrap_or(0)
    }

    /// `aclrtGetOverflowStatus`: enqueues a write of 64 bytes to device memory. The value is 0
    /// unless an operator overflowed in saturation mode since the last reset.
    ///
    /// # Errors
    ///
    /// Returns code and reason if the arguments are invalid.
    pub fn write_overflow_status(
        &self,
        address: *mut std::ffi::c_void,
        bytes: usize,
        stream: *mut std::ffi::c_void,
    ) -> Result<(), (i32, String)> {
        let written = self.owner.machine.write_overflow_status(address, bytes, stream);
        written.map_err(|failure| (failure.code, failure.message))
    }

    /// `aclrtResetOverflowStatus`: resets the overflow status of the stream's device.
    ///
    /// # Errors
    /// Returns code and reason if the stream does not belong to the current context.
    pub fn reset_overflow_status(&self, stream: *mut std::ffi::c_void) -> Result<(), (i32, String)> {
        let reset = self.owner.machine.reset_overflow_status(stream);
        reset.map_err(|failure| (failure.code, failure.message))
    }

    /// Returns true between `aclInit` or `aclnnInit` and their finalization.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        self.owner.machine.lock().require_initialized().is_ok()
    }

    /// Registers a watcher under `name` for set and reset devices (device number and
    /// `aclrtDeviceState`). `None` removes the watcher.
    ///
    /// # Errors
    ///
    /// The name is in use, or no watcher has it.
    pub fn watch_devices(
        &self,
        name: &str,
        watcher: Option<Box<dyn Fn(u32, u32) + Send + Sync>>,
    ) -> Result<(), String> {
        let callback = watcher
            .map(|told| -> StateCallback { Arc::new(move |device, state| told(device as u32, state)) });
        let registered = self.owner.machine.state_callbacks().register(
            CallbackSubject::Devices,
            name.to_owned(),
            callback,
        );
        registered.map_err(|failure| failure.message)
    }

    /// Returns the machine's C functions. The table keeps the machine alive.
    #[must_use]
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table)
    }

    /// Returns the configuration of the machine.
    #[must_use]
    pub fn config(&self) -> &Config {
        self.owner.machine.config()
    }

    /// Returns the memory usage of each card, by ordinal.
    #[must_use]
    pub fn usage(&self) -> Vec<CardUsage> {
        self.owner.machine.memory().usage()
    }
}
