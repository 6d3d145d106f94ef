//! Signals: words that streams set, clear and wait for. Events of a graph that is updated while it runs
//! (`ACL_EVENT_EXTERNAL`) are such, and events and notifies that processes of a host share.
//!
//! Input: acts, in the order streams reach them; keys of other processes. Output: held and released streams. A word of one
//! process is a number under the state lock; a shared one lies in a file of memory, with a bell on which a thread of each
//! process sleeps while a stream there waits. Invariants: a wait that a word grants is over at once; one that takes the word
//! leaves it to no other, in whatever process; a stream that no longer exists takes nothing. Does not: work in strict and timed
//! mode between processes, as nothing orders what another process does.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::machine::{Machine, State};
use crate::memory::ipc::{Name, Record, Shared};
use crate::memory::pages::{PAGE_BYTES, Range, Show, nameless_file};
use crate::memory::raw::{Allocation, Location};
use crate::memory::shared_words::SharedWords;
use crate::runtime::stream::Hold;
use crate::runtime::thread;
use crate::scheduler::bell::{BELL_BYTES, Bell};

/// What is shared under a key: the granularity of its record, which is none of memory's.
const GRANULARITY: u64 = 1;
/// Bytes of the words behind the bell: the value, and the last one that was asked for.
const WORDS_BYTES: usize = 8;
/// A thread that sleeps on a bell looks as often whether its machine still exists.
const LOOK: Duration = Duration::from_secs(1);

/// What a stream does with a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// The word is at least this from now on.
    Set(u32),
    /// The word is 0.
    Clear,
    /// Waits until the word is at least this.
    Await(u32),
    /// Waits until the word is not 0, and makes it 0.
    Take,
}

/// A word in memory that processes share.
#[derive(Debug)]
pub(crate) struct SharedWord {
    bell: Bell,
    words: SharedWords,
    record: Record,
    /// Of the process that made it: the file, which others find through it.
    _file: Option<File>,
    /// The card of the process that made it.
    card: u32,
}

#[derive(Debug)]
enum Word {
    Own(u32),
    Shared(Arc<SharedWord>),
}

/// A word with the streams that wait for it.
#[derive(Debug)]
pub(crate) struct Signal {
    word: Word,
    held: VecDeque<(u64, Act)>,
    /// A thread sleeps on the bell.
    is_watched: bool,
    machine: Weak<Machine>,
}

fn host(error: &io::Error) -> Failure {
    Failure::new(code::MEMORY_ALLOCATION, format!("this host cannot share a word between processes: {error}"))
}

impl SharedWord {
    /// A word of this process that others may import.
    ///
    /// # Errors
    /// The host has no memory for it.
    fn create(card: u32, value: u32, validates: bool) -> Result<Self, Failure> {
        let file = nameless_file().map_err(|error| host(&error))?;
        file.set_len(PAGE_BYTES as u64).map_err(|error| host(&error))?;
        let shared = Shared {
            file: u64::from(file.as_raw_fd().cast_unsigned()),
            at: 0,
            offset: 0,
            size: (BELL_BYTES + WORDS_BYTES) as u64,
            card: u64::from(card),
            granularity: GRANULARITY,
        };
        let record = Record::new(shared, validates)?;
        let word = Self::map(&file, record, card)?;
        word.value().store(value, Ordering::SeqCst);
        Ok(Self { _file: Some(file), ..word })
    }

    /// The word of another process, or of this one.
    fn open(name: Name, what: &str) -> Result<Self, Failure> {
        let (record, shared, file) = Record::open(name)?;
        if shared.granularity != GRANULARITY {
            let what = format!("the key names memory and not {what}; import it by aclrtIpcMemImportByKey");
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        Self::map(&file, record, u32::try_from(shared.card).unwrap_or(u32::MAX))
    }

    fn map(file: &File, record: Record, card: u32) -> Result<Self, Failure> {
        let range = Range::reserve(PAGE_BYTES, PAGE_BYTES).map_err(|error| host(&error))?;
        range.show(0, PAGE_BYTES, Show::File(file, 0)).map_err(|error| host(&error))?;
        let memory =
            Arc::new(Allocation::part(&Arc::new(range), 0, BELL_BYTES + WORDS_BYTES, Location::Host, (None, 0)));
        let words = |at: usize, bytes: usize| {
            SharedWords::of(memory.span(at, bytes), bytes)
                .ok_or_else(|| Failure::new(code::INTERNAL, "a page does not begin at a multiple of 8"))
        };
        let (bell, words) = (Bell::new(words(0, BELL_BYTES)?), words(BELL_BYTES, WORDS_BYTES)?);
        Ok(Self { bell, words, record, _file: None, card })
    }

    fn value(&self) -> &AtomicU32 {
        self.words.at_32(0)
    }

    fn last_asked(&self) -> &AtomicU32 {
        self.words.at_32(4)
    }

    /// What names it.
    pub(crate) fn name(&self) -> Name {
        self.record.name()
    }

    /// These processes may import it, too.
    pub(crate) fn admit(&self, pids: &[i32]) -> Result<(), Failure> {
        self.record.admit(pids)
    }

    /// The value the next record sets.
    pub(crate) fn ask_next(&self) -> u32 {
        self.last_asked().fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The value the last record sets, which is 0 before the first.
    pub(crate) fn asked(&self) -> u32 {
        self.last_asked().load(Ordering::SeqCst)
    }

    /// Whether it has come to a value.
    pub(crate) fn has(&self, value: u32) -> bool {
        self.value().load(Ordering::SeqCst) >= value
    }

    /// Waits until it has come to a value; false when `deadline` has passed before.
    pub(crate) fn wait(&self, value: u32, deadline: Option<Instant>) -> bool {
        loop {
            let seen = self.bell.rings();
            if self.has(value) {
                return true;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            self.bell.sleep(seen, left);
        }
    }
}

impl Word {
    fn raise(&mut self, value: u32) {
        match self {
            Self::Own(word) => *word = (*word).max(value),
            Self::Shared(word) => {
                word.value().fetch_max(value, Ordering::SeqCst);
                word.bell.wake();
            }
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Own(word) => *word = 0,
            Self::Shared(word) => word.value().store(0, Ordering::SeqCst),
        }
    }

    /// Whether a wait is over, which may take the word.
    fn grants(&mut self, act: Act) -> bool {
        match (self, act) {
            (_, Act::Set(_) | Act::Clear) => true,
            (Self::Own(word), Act::Await(value)) => *word >= value,
            (Self::Own(word), Act::Take) => std::mem::take(word) != 0,
            (Self::Shared(word), Act::Await(value)) => word.has(value),
            (Self::Shared(word), Act::Take) => word.value().swap(0, Ordering::SeqCst) != 0,
        }
    }
}

impl Signal {
    fn new(word: Word, machine: Weak<Machine>) -> Self {
        Self { word, held: VecDeque::new(), is_watched: false, machine }
    }

    /// The word in memory that processes share, if it is one.
    pub(crate) fn shared(&self) -> Option<&Arc<SharedWord>> {
        match &self.word {
            Word::Own(_) => None,
            Word::Shared(word) => Some(word),
        }
    }

    /// Whether the word is not 0.
    pub(crate) fn is_set(&self) -> bool {
        match &self.word {
            Word::Own(word) => *word != 0,
            Word::Shared(word) => word.has(1),
        }
    }

    /// Starts the thread that sleeps on the bell, unless it runs.
    fn watch(&mut self, id: u64) -> Result<(), Failure> {
        let Word::Shared(word) = &self.word else { return Ok(()) };
        if self.is_watched {
            return Ok(());
        }
        let (word, machine, mut seen) = (Arc::clone(word), Weak::clone(&self.machine), word.bell.rings());
        let body = move || {
            thread::is_of_machine();
            loop {
                let Some(machine) = machine.upgrade() else { return };
                if !machine.update(|state| state.recheck_signal(id)) {
                    return;
                }
                drop(machine);
                word.bell.sleep(seen, Some(LOOK));
                seen = word.bell.rings();
            }
        };
        let started = std::thread::Builder::new().name(format!("ascend-signal-{id}")).spawn(body);
        started.map_err(|error| {
            Failure::new(code::INTERNAL, format!("cannot start the thread that waits for other processes: {error}"))
        })?;
        self.is_watched = true;
        Ok(())
    }
}

impl State {
    /// A stream has reached an act.
    pub(crate) fn reach_signal(&mut self, id: u64, act: Act, stream: u64, by: Hold) {
        let Some(signal) = self.signals.get_mut(&id) else {
            self.settle(stream, Err(HandleKind::Event.gone(id)));
            return;
        };
        match act {
            Act::Set(value) => signal.word.raise(value),
            Act::Clear => signal.word.clear(),
            Act::Await(_) | Act::Take if !signal.word.grants(act) => {
                signal.held.push_back((stream, act));
                match signal.watch(id) {
                    Ok(()) => self.hold(stream, by),
                    Err(failure) => {
                        self.leave_signal(id, stream);
                        self.settle(stream, Err(failure));
                    }
                }
                return;
            }
            Act::Await(_) | Act::Take => self.drop_limit(stream),
        }
        self.settle(stream, Ok(()));
        self.recheck_signal(id);
    }

    /// An act that its stream will never reach: a record still releases who waits for it.
    pub(crate) fn discard_signal(&mut self, id: u64, act: Act) {
        if let (Some(signal), Act::Set(value)) = (self.signals.get_mut(&id), act) {
            signal.word.raise(value);
            self.recheck_signal(id);
        }
    }

    /// Lets the streams go on whose wait is over; whether one still waits, and the thread on the bell has to.
    pub(crate) fn recheck_signal(&mut self, id: u64) -> bool {
        let Self { signals, streams, .. } = self;
        let Some(signal) = signals.get_mut(&id) else { return false };
        signal.held.retain(|(stream, _)| streams.contains_key(stream));
        let (mut over, mut held) = (Vec::new(), VecDeque::new());
        for (stream, act) in signal.held.drain(..) {
            if signal.word.grants(act) {
                over.push(stream);
            } else {
                held.push_back((stream, act));
            }
        }
        signal.held = held;
        signal.is_watched &= !signal.held.is_empty();
        let goes_on = signal.is_watched;
        for stream in over {
            self.settle(stream, Ok(()));
        }
        goes_on
    }

    /// A stream waits no more.
    pub(crate) fn leave_signal(&mut self, id: u64, stream: u64) {
        if let Some(signal) = self.signals.get_mut(&id) {
            signal.held.retain(|(held, _)| *held != stream);
        }
    }

    /// Removes a signal, if there is one of this number; streams held by it fail.
    pub(crate) fn remove_signal(&mut self, id: u64, kind: HandleKind) {
        let Some(signal) = self.signals.remove(&id) else { return };
        for (stream, _) in signal.held {
            self.settle(stream, Err(kind.gone(id)));
        }
        if let Word::Shared(word) = signal.word {
            // The thread on it, if any, looks and ends.
            word.bell.wake();
        }
    }

    /// The shared word of an event or notify.
    pub(crate) fn shared_word(&self, id: u64) -> Option<Arc<SharedWord>> {
        self.signals.get(&id).and_then(|signal| signal.shared().cloned())
    }

    /// Fails unless work of `card` may reach the card on which a shared word was made.
    pub(crate) fn require_reach(&self, id: u64, card: u32) -> Result<(), Failure> {
        let Some(on) = self.shared_word(id).map(|word| word.card) else { return Ok(()) };
        if on == card || self.cards[card as usize].peers.contains(&on) {
            return Ok(());
        }
        let what = format!(
            "it was exported on device {on}; call aclrtDeviceEnablePeerAccess({on}) on device {card} first, or import it \
             with the flag for that"
        );
        Err(Failure::new(code::PARAM_INVALID, what))
    }
}

impl Machine {
    /// A signal of this process, under the number of its event.
    pub(crate) fn own_signal(&self) -> Signal {
        Signal::new(Word::Own(0), self.weak())
    }

    /// A signal that other processes may import.
    ///
    /// # Errors
    /// The mode orders one process only, or the host has no memory for it.
    pub(crate) fn shared_signal(&self, card: u32, is_set: bool, validates: bool) -> Result<Signal, Failure> {
        self.require_one_process()?;
        let word = SharedWord::create(card, u32::from(is_set), validates)?;
        Ok(Signal::new(Word::Shared(Arc::new(word)), self.weak()))
    }

    /// A signal of another process; `what` says what it should be. Also the card it was made on.
    ///
    /// # Errors
    /// As above, or what the key names is gone, for other processes, or something else.
    pub(crate) fn imported_signal(&self, name: Name, what: &str) -> Result<(Signal, u32), Failure> {
        self.require_one_process()?;
        let word = SharedWord::open(name, what)?;
        let card = word.card;
        Ok((Signal::new(Word::Shared(Arc::new(word)), self.weak()), card))
    }

    fn require_one_process(&self) -> Result<(), Failure> {
        if self.turnstile().is_none() {
            return Ok(());
        }
        let what = "events and notifies shared between processes are not modelled in strict and timed mode, which order one \
                    process";
        Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what))
    }
}
