//! The public face: build a machine, get its table, ask for its memory accounts.
//!
//! Input: a [`Config`]. Output: an [`Emulator`]. Invariant: the machine lives as long as the emulator or any table of it.
//! Does not: touch the machine's state otherwise; programs do that through the table.

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
use crate::scheduler::pool::Pool;
use crate::scheduler::timer::Timer;
use crate::scheduler::watch;
use crate::strict::conductor;
use crate::strict::trace::TraceEvent;
use crate::timed::{self, LaneSpan, Recording, Total};

/// Why a machine cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatorError {
    /// The configuration asks for no cards, or for too many.
    #[error("an emulator has 1 to {most} cards, {asked} were asked for", most = Config::MAX_CARDS)]
    Cards {
        /// What the configuration says.
        asked: usize,
    },
    /// The configuration gives the cards no memory.
    #[error("hbm_bytes is 0: a card without memory cannot run anything")]
    NoMemory,
    /// The configuration gives the pool no threads.
    #[error("threads is 0: at least one thread must run the cards' tasks")]
    NoThreads,
    /// The configuration gives the pool more threads than any host has cores.
    #[error("threads is {asked}: at most {most} threads run the cards' tasks", most = Config::MAX_THREADS)]
    TooManyThreads {
        /// What the configuration says.
        asked: usize,
    },
    /// The topology is smaller than the machine.
    #[error(
        "topology `{topology}` joins {joined} cards, but the timed machine has {cards}; take a larger topology (more \
         servers) or fewer cards"
    )]
    Topology {
        /// The topology's name.
        topology: String,
        /// Cards of the machine that is there.
        joined: usize,
        /// Cards the machine was asked for.
        cards: usize,
    },
    /// The profile is of another chip.
    #[error(
        "the profile is of {profile}, but the timed machine's cards are {soc}; take Profile::of({soc}) or one fitted for it"
    )]
    Profile {
        /// The profile's chip.
        profile: &'static str,
        /// The chip the machine's cards have.
        soc: &'static str,
    },
    /// Too many machines are alive.
    #[error(
        "{} emulators are alive in this process, which is the most; drop one (with all its tables) first",
        thread::SLOTS
    )]
    TooManyEmulators,
    /// The operating system refuses a file of memory.
    #[error("this host has no file of memory for the cards")]
    Memory(#[source] io::Error),
    /// The machine cannot have a fault of the configuration.
    #[error("{0}")]
    Fault(#[source] FaultError),
    /// The operating system refuses a thread.
    #[error("cannot start the emulator's threads")]
    Threads(#[source] io::Error),
    /// Strict mode orders threads by what the system says they do, and it does not say.
    #[error(
        "strict mode has to see what the threads of the process do, and here it cannot: {0}; run it where /proc/self/task \
         tells (sandboxes such as gVisor, or a /proc with hidepid, do not), or leave `strict` out"
    )]
    Blind(String),
    /// The instruction set that the environment asks for cannot be used.
    #[error("{0}")]
    Isa(String),
}

/// A machine of emulated cards.
#[derive(Debug, Clone)]
pub struct Emulator {
    owner: Arc<MachineOwner>,
    table: Arc<Table>,
}

/// Keeps a machine alive. Fields are dropped in this order: calls stop finding the machine, then its threads end.
#[derive(Debug)]
struct MachineOwner {
    machine: Arc<Machine>,
    _conductor: Option<Conductor>,
    _timer: Option<Timer>,
    _slot: MachineSlot,
    _pool: Pool,
}

impl Emulator {
    /// Builds a machine with idle cards.
    ///
    /// # Errors
    /// The configuration is impossible, 32 machines are alive already, or the host refuses threads.
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
                return Err(EmulatorError::Profile { profile: config.profile.soc.name(), soc: config.soc.name() });
            }
        }
        isa::chosen().map_err(EmulatorError::Isa)?;
        if config.mode.seed().is_some() {
            watch::try_to_see().map_err(EmulatorError::Blind)?;
        }
        let slot = MachineSlot::take().ok_or(EmulatorError::TooManyEmulators)?;
        let pool = Pool::new(config.threads).map_err(EmulatorError::Threads)?;
        let machine = Machine::new(config, slot.number(), pool.workers()).map_err(EmulatorError::Memory)?;
        slot.install(&machine);
        let strict = machine.strict().map(|strict| conductor::start(Arc::clone(strict), &machine));
        let conductor = strict.or_else(|| machine.timed().map(|timed| timed::conductor::start(timed, &machine)));
        let conductor = conductor.transpose().map_err(EmulatorError::Threads)?;
        let timer = if conductor.is_none() { Some(Timer::start(&machine)) } else { None };
        let timer = timer.transpose().map_err(EmulatorError::Threads)?;
        for fault in machine.config().faults.clone() {
            Injected::new(Arc::clone(&machine), fault).map_err(EmulatorError::Fault)?.stay();
        }
        let number = slot.number();
        let owner = Arc::new(MachineOwner { machine, _conductor: conductor, _timer: timer, _slot: slot, _pool: pool });
        let table = abi::table(number, Arc::clone(&owner) as ascend_tp_sys::Owner, owner.machine.config().cann);
        let table = Arc::new(table);
        Ok(Self { owner, table })
    }

    /// Builds a strict machine with the default cards; the seed picks the order of calls and tasks.
    ///
    /// # Errors
    /// As for [`Emulator::new`].
    pub fn strict(seed: u64) -> Result<Self, EmulatorError> {
        Self::new(Config { mode: Mode::Strict { seed }, ..Config::default() })
    }

    /// What strict mode has found so far; empty in other modes.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.owner.machine.strict().map(|strict| strict.reports()).unwrap_or_default()
    }

    /// The steps a strict machine has taken, oldest first (the last million); empty in other modes. A program that is
    /// itself deterministic has the same trace for the same seed.
    #[must_use]
    pub fn trace(&self) -> Vec<TraceEvent> {
        self.owner.machine.strict().map(|strict| strict.trace()).unwrap_or_default()
    }

    /// What the cards of a timed machine did, in the order of its end or start, as far as it was recorded; empty in other
    /// modes. The same program, if it is itself deterministic, has the same timeline.
    #[must_use]
    pub fn timeline(&self) -> Vec<LaneSpan> {
        self.owner.machine.lock().timed.as_ref().map(|schedule| schedule.timeline.spans()).unwrap_or_default()
    }

    /// What the cards of a timed machine did, summed by name and bound; empty in other modes.
    #[must_use]
    pub fn totals(&self) -> Vec<Total> {
        self.owner.machine.lock().timed.as_ref().map(|schedule| schedule.timeline.totals()).unwrap_or_default()
    }

    /// How much a timed machine writes down from now on; [`Recording::Totals`] at first. What is queued counts as later, so
    /// synchronize first. Without effect in other modes.
    pub fn record_timeline(&self, recording: Recording) {
        if let Some(schedule) = &mut self.owner.machine.lock().timed {
            schedule.timeline.recording = recording;
        }
    }

    /// Forgets the spans and totals of a timed machine.
    pub fn clear_timeline(&self) {
        if let Some(schedule) = &mut self.owner.machine.lock().timed {
            schedule.timeline.clear();
        }
    }

    /// The time to which the cards of a timed machine have come, in nanoseconds; 0 in other modes.
    #[must_use]
    pub fn cards_now_ns(&self) -> u64 {
        self.owner.machine.lock().now_ns().unwrap_or_default()
    }

    /// The calling thread's time on a timed machine, in nanoseconds; 0 in other modes, and before its first call.
    #[must_use]
    pub fn thread_now_ns(&self) -> u64 {
        thread::clock(self.owner.machine.key())
    }

    /// Lays a fault over the machine, until what this gives is dropped.
    ///
    /// # Errors
    /// The machine cannot have this fault: no such card, function or event.
    pub fn inject(&self, fault: Fault) -> Result<Injected, FaultError> {
        Injected::new(Arc::clone(&self.owner.machine), fault)
    }

    /// From now on the kernel `name`, looked up by `aclrtBinaryGetFunction` in any binary, runs as `kernel`: an emulator
    /// cannot run what a compiler made for a card.
    pub fn register_kernel(
        &self,
        name: impl Into<String>,
        kernel: impl Fn(&KernelCall<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.owner.machine.update(|state| state.runtime.kernels.register(name.into(), Arc::new(kernel)));
    }

    /// From now on `watcher` is told of every launch of a kernel that was compiled for this host, on the thread that ran it.
    pub fn watch_kernels(&self, watcher: impl Fn(&KernelRun) + Send + Sync + 'static) {
        self.owner.machine.update(|state| state.runtime.kernels.watcher = Some(Arc::new(watcher)));
    }

    /// Tells the other processes of this machine's communicators that this one ends in good order: for a process that is about
    /// to exit without dropping the emulator. Ranks that have not left their communicators count as left.
    pub fn say_farewell(&self) {
        self.owner.machine.say_farewell();
    }

    /// The machine behind it, for calls that no slot leads to.
    pub(crate) fn machine(&self) -> &Machine {
        &self.owner.machine
    }

    /// Refuses a call of a C function of CANN that the table does not have, as functions of the table refuse that are not
    /// modelled: the calling thread's last error is `code`, its recent message names the function, and the machine says so
    /// where its [`Messages`](crate::Messages) go.
    pub fn refuse(&self, name: &'static str, code: i32) {
        let cann = self.config().cann;
        // The code is the caller's.
        let _ = self.owner.machine.call(name, |code| code, &mut || {
            let is_young = abi::coverage().iter().any(|(other, _, modelled)| *other == name && *modelled);
            let young = || Failure::new(code, format!("{name} is not in CANN {}; cann=9.0 has it", cann.name()));
            Err(if is_young { young() } else { Failure::not_modelled(name, code) })
        });
    }

    /// Answers a call of a C function that the table does not have as those of the table are answered: a failure, a code with
    /// its reason, is noted for the calling thread and said. Gives the code.
    pub fn answer(&self, name: &'static str, answer: impl FnOnce() -> Result<(), (i32, String)>) -> i32 {
        let failed = |(code, what): (i32, String)| Failure::new(code, what);
        let mut answer = Some(answer);
        let mut once = || answer.take().map_or(Ok(()), |answer| answer().map_err(failed));
        self.owner.machine.call(name, |code| code, &mut once).err().unwrap_or(0)
    }

    /// `aclrtGetOverflowStatus`: the stream writes 64 bytes to device memory, 0 unless an operator of its device has overflowed
    /// in saturation mode since the last reset.
    ///
    /// # Errors
    /// Code and reason: the arguments are wrong.
    pub fn write_overflow_status(
        &self,
        address: *mut std::ffi::c_void,
        bytes: usize,
        stream: *mut std::ffi::c_void,
    ) -> Result<(), (i32, String)> {
        let written = self.owner.machine.write_overflow_status(address, bytes, stream);
        written.map_err(|failure| (failure.code, failure.message))
    }

    /// `aclrtResetOverflowStatus`.
    ///
    /// # Errors
    /// Code and reason: the stream is none of the current context.
    pub fn reset_overflow_status(&self, stream: *mut std::ffi::c_void) -> Result<(), (i32, String)> {
        let reset = self.owner.machine.reset_overflow_status(stream);
        reset.map_err(|failure| (failure.code, failure.message))
    }

    /// Whether `aclInit` or `aclnnInit` was called, and nothing that ends it.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        self.owner.machine.lock().require_initialized().is_ok()
    }

    /// From now on `watcher` is told, under `name`, when a device is set or reset: its number, and `aclrtDeviceState`. None
    /// forgets the one of that name.
    ///
    /// # Errors
    /// The name is taken, or nothing has it.
    pub fn watch_devices(
        &self,
        name: &str,
        watcher: Option<Box<dyn Fn(u32, u32) + Send + Sync>>,
    ) -> Result<(), String> {
        let callback =
            watcher.map(|told| -> StateCallback { Arc::new(move |device, state| told(device as u32, state)) });
        let registered =
            self.owner.machine.state_callbacks().register(CallbackSubject::Devices, name.to_owned(), callback);
        registered.map_err(|failure| failure.message)
    }

    /// The machine's C functions. The table keeps the machine alive.
    #[must_use]
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table)
    }

    /// What this machine was built from.
    #[must_use]
    pub fn config(&self) -> &Config {
        self.owner.machine.config()
    }

    /// Memory of each card, by ordinal.
    #[must_use]
    pub fn usage(&self) -> Vec<CardUsage> {
        self.owner.machine.memory().usage()
    }
}
