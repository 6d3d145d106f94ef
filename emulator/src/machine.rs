//! One emulated machine, and the entry point of every C call.
//!
//! Invariants: one lock guards all scheduling state, and tasks run without it. A panic never
//! crosses the C boundary.

use std::any::Any;
use std::collections::btree_map::Entry;
use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Instant;

use crate::base::failure::{Failure, code};
use crate::base::site::CallSite;
use crate::base::stderr::MessageLog;
use crate::config::{Config, Mode};
use crate::faults::overlay::Faults;
use crate::hccl::matching::Matching;
use crate::hccl::tcp::Network;
use crate::hccl::transfer::local::{self, WorkShare};
use crate::memory::raw::RawSpan;
use crate::memory::store::DeviceMemory;
use crate::nn::objects::Objects;
use crate::runtime::callback::{HostThread, PostedCallback};
use crate::runtime::objects::Runtime;
use crate::runtime::state_callback::StateCallbacks;
use crate::runtime::thread::{self, Calling, MachineKey};
use crate::scheduler::bell::Bell;
use crate::scheduler::launch::ReadyLaunch;
use crate::scheduler::pool::{PoolJob, StreamTask, Workers};
use crate::scheduler::ran;
use crate::scheduler::ready::Scheduler;
use crate::scheduler::wait::Wait;
use crate::state::MachineState;
use crate::strict::state::StrictState;
use crate::strict::{self, Strict};
use crate::timed::TimedMode;
use crate::timed::schedule::VirtualSchedule;

#[derive(Debug)]
pub(crate) struct Machine {
    this: Weak<Self>,
    key: MachineKey,
    built: Instant,
    config: Config,
    strict: Option<Arc<Strict>>,
    timed: Option<Arc<TimedMode>>,
    calls: AtomicU64,
    spoken: MessageLog,
    memory: DeviceMemory,
    faults: Arc<Faults>,
    aclnn: Arc<Objects>,
    workers: Arc<Workers>,
    network: Network,
    state: Mutex<MachineState>,
    state_callbacks: StateCallbacks,
    /// For events, rendezvous and reports; each stream has its own condition variable.
    pub(crate) progress: Condvar,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum WakeSource<'a> {
    /// From another thread of this process.
    Signal(&'a Condvar),
    /// A ring after the first `seen` rings, also from other processes.
    Ring { bell: &'a Bell, seen: u32 },
}

static MACHINES_BUILT: AtomicU64 = AtomicU64::new(0);

impl Machine {
    pub(crate) fn new(config: Config, slot: usize, workers: &Arc<Workers>) -> io::Result<Arc<Self>> {
        let key = MachineKey { slot, id: MACHINES_BUILT.fetch_add(1, Ordering::Relaxed) + 1 };
        let strict = match config.mode {
            Mode::Parallel | Mode::Timed { .. } | Mode::HostOnly => None,
            Mode::Strict { seed } => Some(Arc::new(Strict::new(seed, &config.strict))),
        };
        let built = Instant::now();
        let timed = match config.mode {
            Mode::Timed { .. } => Some(Arc::new(TimedMode::new(&config, built))),
            Mode::Parallel | Mode::Strict { .. } | Mode::HostOnly => None,
        };
        let faults = Arc::new(Faults::default());
        let memory =
            DeviceMemory::new(config.cards, config.hbm_bytes, config.sharing)?
                .with_hook(Arc::<Faults>::clone(&faults));
        let memory = if strict.is_some() { memory.watched(config.strict.alignment) } else { memory };
        let clock = (strict.is_some() || timed.is_some()).then_some(built);
        let mut state = MachineState::new(
            key,
            Runtime::new(config.cards),
            Scheduler::new(clock, config.exec_timeout),
            strict.as_ref().map(StrictState::new),
            timed.as_ref().map(|timed| VirtualSchedule::new(timed, config.cards)),
            &faults,
        );
        state.hccl.engine = config.engine;
        Ok(Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            key,
            built,
            strict,
            timed,
            calls: AtomicU64::new(0),
            spoken: MessageLog::new(config.messages),
            memory,
            faults,
            config,
            aclnn: Arc::default(),
            workers: Arc::clone(workers),
            network: Network::new(Weak::<Self>::clone(this), &state.hccl.communicators.pending),
            state: Mutex::new(state),
            progress: Condvar::new(),
            state_callbacks: StateCallbacks::default(),
        }))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn strict(&self) -> Option<&Arc<Strict>> {
        self.strict.as_ref()
    }

    pub(crate) fn timed(&self) -> Option<&Arc<TimedMode>> {
        self.timed.as_ref()
    }

    /// Returns the site of the running call; `None` outside strict mode.
    pub(crate) fn site(&self, state: &MachineState, stream: Option<u64>) -> Option<Arc<CallSite>> {
        self.strict.as_ref()?;
        let calling = thread::calling(self.key)?;
        let on = stream.and_then(|stream| state.runtime.streams.get(&stream));
        let current = || {
            thread::context(self.key).and_then(|context| state.runtime.contexts.get(&context)).map(|c| c.card)
        };
        let card = on.map(|stream| stream.card).or_else(current);
        Some(Arc::new(CallSite {
            number: calling.number,
            call: calling.name,
            thread: thread::name(self.key),
            card,
            rank: card.and_then(|card| state.hccl.communicators.first_rank_of_card(card)),
            stream,
            tag: on.and_then(|stream| stream.tag.clone()),
        }))
    }

    /// Returns the origin of the machine's timestamps.
    pub(crate) fn built(&self) -> Instant {
        self.built
    }

    /// Returns a reference for threads that must not keep the machine alive.
    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.this)
    }

    pub(crate) fn key(&self) -> MachineKey {
        self.key
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(crate) fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    pub(crate) fn state_callbacks(&self) -> &StateCallbacks {
        &self.state_callbacks
    }

    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    pub(crate) fn aclnn(&self) -> &Arc<Objects> {
        &self.aclnn
    }

    /// Executes a call of the C ABI: catches panics and records code and message. `translate`
    /// converts a code to the function's library.
    pub(crate) fn call(
        &self,
        name: &'static str,
        translate: fn(i32) -> i32,
        call: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(), i32> {
        let is_unordered = self.strict.is_some() && strict::is_unordered(name);
        if let Some(strict) = &self.strict
            && !is_unordered
        {
            strict.turnstile().join();
            let label = strict.pass(name, thread::context(self.key));
            thread::set_label(self.key, label);
        }
        if let Some(timed) = &self.timed {
            timed.begin_call(self.key, name);
        }
        // Unordered calls are not counted, so the numbers are equal in every run.
        let number = self.calls.fetch_add(u64::from(!is_unordered), Ordering::Relaxed) + 1;
        let before = thread::set_calling(self.key, Some(Calling { number, name }));
        let guarded = || self.before_call(name).map_err(Failure::quiet).and_then(|()| call());
        let outcome = catch_unwind(AssertUnwindSafe(guarded)).unwrap_or_else(|panic| {
            let what = format!("the emulator broke an invariant: {}", panic_text(panic.as_ref()));
            Err(Failure::new(code::INTERNAL, what))
        });
        let is_reported = match (&self.strict, &outcome) {
            (Some(strict), Err(failure)) => self.report_refusal(strict, failure),
            _ => false,
        };
        thread::set_calling(self.key, before);
        outcome.map_err(|failure| {
            let code = translate(failure.code);
            if !is_reported {
                self.spoken.tell(name, code, &failure);
            }
            if !failure.is_answer() {
                thread::record(self.key, code, format!("{name}: {}", failure.message));
            }
            code
        })
    }

    /// Gives ready work to the pool and wakes waiting threads after the change. The calling thread
    /// runs a brief launch itself.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut MachineState) -> R) -> R {
        let (result, last) = self.update_but_one(change);
        match last {
            Some(launch) if launch.is_done_at_once() => self.run_here(launch),
            last => self.workers.spawn(last.map(|launch| self.job(launch))),
        }
        result
    }

    /// Returns the last ready launch, which the calling thread runs.
    fn update_but_one<R>(&self, change: impl FnOnce(&mut MachineState) -> R) -> (R, Option<ReadyLaunch>) {
        let mut state = self.lock();
        let result = change(&mut state);
        let last = self.flush_but_one(&mut state);
        (result, last)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, MachineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, MachineState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Advances streams, launches the ready work, and signals waiting threads.
    pub(crate) fn flush(&self, state: &mut MachineState) {
        let last = self.flush_but_one(state);
        self.workers.spawn(last.map(|launch| self.job(launch)));
    }

    fn flush_but_one(&self, state: &mut MachineState) -> Option<ReadyLaunch> {
        if state.scheduler.is_conducted() {
            // The conductor starts one piece of work at a time.
            if state.is_strict() {
                state.recheck_values();
                state.scheduler.ready.clear();
            }
            state.runtime.exceptions.tell();
            state.scheduler.has_progressed = false;
            if let (Some(turnstile), None) = (self.turnstile(), thread::calling(self.key)) {
                // The conductor must check the changed state again.
                turnstile.nudge();
            }
            return None;
        }
        state.run_ready();
        // A launch outside the pool may fail its stream, which can make more entries ready.
        while let Some(place) = state.scheduler.launches.iter().position(|launch| !launch.is_for_pool()) {
            let launch = state.scheduler.launches.swap_remove(place);
            self.launch(state, launch);
            state.run_ready();
        }
        let last = state.scheduler.launches.pop();
        if !state.scheduler.launches.is_empty() {
            self.workers.spawn(state.scheduler.launches.drain(..).map(|launch| self.job(launch)));
        }
        state.runtime.exceptions.tell();
        if std::mem::take(&mut state.scheduler.has_progressed) && state.scheduler.watchers > 0 {
            self.progress.notify_all();
        }
        last
    }

    fn launch(&self, state: &mut MachineState, launch: ReadyLaunch) {
        let launch = match launch {
            ReadyLaunch::Matching(matching) if matching.is_with_others() => {
                return self.launch_remote(state, *matching);
            }
            launch => launch,
        };
        let ReadyLaunch::HostFunction { stream, card, body } = launch else {
            self.workers.spawn([self.job(launch)]);
            return;
        };
        let thread = match state.runtime.host_threads.entry(card) {
            Entry::Occupied(running) => running.into_mut(),
            Entry::Vacant(none) => match HostThread::start(card, self.host_functions()) {
                Ok(started) => none.insert(started),
                Err(error) => {
                    let what = format!("cannot start the thread for host functions of card {card}: {error}");
                    state.settle(stream, Err(Failure::new(code::INTERNAL, what)));
                    return;
                }
            },
        };
        if let Some(turnstile) = self.turnstile() {
            turnstile.expect_function();
        }
        thread.run(stream, body);
    }

    /// Returns the function of host function threads, while the machine lives.
    fn host_functions(&self) -> impl Fn(&PostedCallback) -> bool + Send + 'static {
        let machine = self.weak();
        move |posted| machine.upgrade().map(|machine| machine.run_host_function(posted)).is_some()
    }

    fn job(&self, launch: ReadyLaunch) -> PoolJob {
        let machine = Weak::clone(&self.this);
        Box::new(move |workers| {
            if let Some(machine) = machine.upgrade() {
                machine.run_on(launch, workers);
            }
        })
    }

    /// Runs work on a thread of the pool, then the work that became ready, without waking another
    /// thread.
    fn run_on(&self, launch: ReadyLaunch, workers: &Workers) {
        /// Maximum number of consecutive launches before work that waits for a thread runs first.
        const TURN: usize = 64;
        let mut next = Some(launch);
        for turn in 1_usize.. {
            let Some(launch) = next else { return };
            next = self.run(launch, workers);
            if workers.is_closed() || (turn.is_multiple_of(TURN) && workers.has_jobs()) {
                workers.spawn(next.map(|launch| self.job(launch)));
                return;
            }
        }
    }

    /// Continues with brief work that became ready; the pool helps.
    pub(crate) fn run_here(&self, launch: ReadyLaunch) {
        let mut next = self.run(launch, &self.workers);
        while let Some(launch) = next.take_if(|next| next.is_done_at_once()) {
            next = self.run(launch, &self.workers);
        }
        self.workers.spawn(next.map(|launch| self.job(launch)));
    }

    pub(crate) fn hand_over(&self, function: ReadyLaunch) {
        self.launch(&mut self.lock(), function);
    }

    fn run(&self, launch: ReadyLaunch, workers: &Workers) -> Option<ReadyLaunch> {
        match launch {
            ReadyLaunch::Task { stream, name, task, .. } => {
                let outcome = self.compute_on(name, &task, workers);
                drop(task);
                let ran = ran::take();
                let settle = |state: &mut MachineState| {
                    state.note_touched(stream, &ran.accesses);
                    state.settle(stream, outcome);
                };
                self.update_but_one(settle).1
            }
            ReadyLaunch::Matching(matching) => {
                let placed = |failure| {
                    if matching.elsewhere().is_some() { matching.placed(&failure) } else { failure }
                };
                let outcome = self.perform_on(&matching, workers).map_err(placed);
                self.update_but_one(|state| state.end_matching(&matching, &outcome)).1
            }
            ReadyLaunch::Share(work) => {
                let outcome = guarded(work.name, || work.perform(workers));
                self.update_but_one(|state| state.end_share(&work, &outcome)).1
            }
            ReadyLaunch::HostFunction { .. } => unreachable!("host functions have their own threads"),
        }
    }

    pub(crate) fn compute(&self, name: &'static str, task: &StreamTask) -> Result<(), Failure> {
        self.compute_on(name, task, &self.workers)
    }

    fn compute_on(&self, name: &'static str, task: &StreamTask, workers: &Workers) -> Result<(), Failure> {
        let outcome = guarded(name, || task(workers));
        outcome.map_err(|failure| named(name, &failure))
    }

    pub(crate) fn perform(&self, matching: &Matching) -> Result<(), Failure> {
        self.perform_on(matching, &self.workers)
    }

    fn perform_on(&self, matching: &Matching, workers: &Workers) -> Result<(), Failure> {
        guarded(matching.name(), || {
            self.faults.before_transfer(matching, || self.lock().cards_of_matching(matching))?;
            if !self.has_numbers() {
                return Ok(());
            }
            local::perform(&matching.calls().collect::<Vec<_>>(), WorkShare::ALL, workers)?;
            self.faults.after_transfer(matching)
        })
    }

    /// Waits without the lock until `alarm` or `deadline`, a limit of the call itself; in strict
    /// mode, for `wait`.
    ///
    /// Fails if strict mode has detected that `wait` will never end.
    pub(crate) fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, MachineState>,
        alarm: WakeSource<'_>,
        deadline: Option<Instant>,
        wait: Wait,
    ) -> Result<MutexGuard<'a, MachineState>, Failure> {
        self.flush(&mut state);
        if let Some(turnstile) = self.turnstile() {
            let site = self.site(&state, wait.stream());
            drop(state);
            turnstile.block(wait, deadline, site)?;
            let mut state = self.lock();
            if let Some(over) = state
                .timed
                .as_mut()
                .and_then(|schedule| schedule.take_over(crate::scheduler::thread::number()))
            {
                thread::raise_clock(self.key, over.at_ns);
                thread::set_late(self.key, over.is_late);
            }
            return Ok(state);
        }
        let limit = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        Ok(match (alarm, limit) {
            (WakeSource::Signal(condvar), None) => {
                condvar.wait(state).unwrap_or_else(PoisonError::into_inner)
            }
            (WakeSource::Signal(condvar), Some(limit)) => {
                condvar.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
            }
            (WakeSource::Ring { bell, seen }, limit) => {
                drop(state);
                bell.sleep(seen, limit);
                self.lock()
            }
        })
    }

    /// Sleeps on [`Machine::progress`].
    ///
    /// Fails if strict mode has detected that `wait` will never end.
    pub(crate) fn watch<'a>(
        &'a self,
        mut state: MutexGuard<'a, MachineState>,
        deadline: Option<Instant>,
        wait: Wait,
    ) -> Result<MutexGuard<'a, MachineState>, Failure> {
        if state.scheduler.is_conducted() {
            return self.sleep(state, WakeSource::Signal(&self.progress), deadline, wait);
        }
        state.scheduler.watchers += 1;
        let mut state = self.sleep(state, WakeSource::Signal(&self.progress), deadline, wait)?;
        state.scheduler.watchers -= 1;
        Ok(state)
    }

    /// The span keeps its allocation mapped.
    pub(crate) fn device_span(&self, address: *const c_void, bytes: usize) -> Result<RawSpan, Failure> {
        self.memory.device_span(address.addr(), bytes)
    }
}

/// A panic becomes a failure that names the operator.
pub(crate) fn guarded(name: &str, body: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let what = format!("the emulator's {name} broke an invariant: {}", panic_text(panic.as_ref()));
        Err(Failure::new(code::INTERNAL, what))
    })
}

fn named(name: &str, failure: &Failure) -> Failure {
    Failure { message: format!("{name}: {}", failure.message), ..failure.clone() }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown panic")
}
