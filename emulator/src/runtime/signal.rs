//! Signals: words that streams set, clear and await. They implement external events
//! (`ACL_EVENT_EXTERNAL`), and events and notifies shared between processes.
//!
//! The word of one process is a number under the state lock; a shared word is in a memory file,
//! with a futex. A thread sleeps on the futex while a stream of its process waits.
//!
//! Invariants: a satisfied wait ends at once; if it takes the word, no other wait in any process
//! gets the word. A destroyed stream takes nothing.
//!
//! Not here: strict and timed mode between processes, which cannot order the actions of another
//! process.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::base::failure::{Failure, code};
use crate::memory::ipc::{ExportedMemory, IpcName, IpcRecord};
use crate::memory::location::Location;
use crate::memory::pages::{PAGE_BYTES, PageContent, Range, nameless_file};
use crate::memory::raw::Allocation;
use crate::memory::shared_words::SharedWords;
use crate::scheduler::bell::{BELL_BYTES, Bell};
use crate::scheduler::thread;

/// Distinguishes a shared word from memory, whose granularity is larger.
const GRANULARITY: u64 = 1;
/// The value and the last requested value.
const WORDS_BYTES: usize = 8;
/// A sleeping thread checks in this interval whether its machine still exists.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalAction {
    Set(u32),
    Clear,
    Await(u32),
    Take,
}

#[derive(Debug)]
pub(crate) struct SharedWord {
    pub(super) bell: Bell,
    words: SharedWords,
    record: IpcRecord,
    /// Set in the creating process, through which other processes open the file.
    _file: Option<File>,
    pub(super) card: u32,
}

#[derive(Debug)]
pub(super) enum SignalWord {
    Own(u32),
    Shared(Arc<SharedWord>),
}

/// Checks a signal again; returns false if no stream waits. Does not keep the machine alive.
#[derive(Clone)]
pub(super) struct Recheck(pub(super) Arc<dyn Fn(u64) -> bool + Send + Sync>);

impl std::fmt::Debug for Recheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recheck")
    }
}

#[derive(Debug)]
pub(crate) struct Signal {
    pub(super) word: SignalWord,
    pub(super) waiting: VecDeque<(u64, SignalAction)>,
    pub(super) is_watched: bool,
    recheck: Recheck,
}

fn host(error: &io::Error) -> Failure {
    Failure::new(code::MEMORY_ALLOCATION, format!("this host cannot share a word between processes: {error}"))
}

impl SharedWord {
    /// Other processes may import the word.
    pub(super) fn create(card: u32, value: u32, validates: bool) -> Result<Self, Failure> {
        let file = nameless_file().map_err(|error| host(&error))?;
        file.set_len(PAGE_BYTES as u64).map_err(|error| host(&error))?;
        let shared = ExportedMemory {
            file: u64::from(file.as_raw_fd().cast_unsigned()),
            at: 0,
            offset: 0,
            size: (BELL_BYTES + WORDS_BYTES) as u64,
            card: u64::from(card),
            granularity: GRANULARITY,
        };
        let record = IpcRecord::new(shared, validates)?;
        let word = Self::map(&file, record, card)?;
        word.value().store(value, Ordering::SeqCst);
        Ok(Self { _file: Some(file), ..word })
    }

    pub(super) fn open(name: IpcName, what: &str) -> Result<Self, Failure> {
        let (record, shared, file) = IpcRecord::open(name)?;
        if shared.granularity != GRANULARITY {
            let what = format!("the key names memory and not {what}; import it by aclrtIpcMemImportByKey");
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        Self::map(&file, record, u32::try_from(shared.card).unwrap_or(u32::MAX))
    }

    fn map(file: &File, record: IpcRecord, card: u32) -> Result<Self, Failure> {
        let range = Range::reserve(PAGE_BYTES, PAGE_BYTES).map_err(|error| host(&error))?;
        range.show(0, PAGE_BYTES, PageContent::File(file, 0)).map_err(|error| host(&error))?;
        let memory = Arc::new(Allocation::part(
            &Arc::new(range),
            0,
            BELL_BYTES + WORDS_BYTES,
            Location::Host,
            None,
            0,
        ));
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

    pub(crate) fn name(&self) -> IpcName {
        self.record.name()
    }

    pub(crate) fn admit(&self, pids: &[i32]) -> Result<(), Failure> {
        self.record.admit(pids)
    }

    /// Returns the value that the next record sets.
    pub(crate) fn ask_next(&self) -> u32 {
        self.last_asked().fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns the value that the last record sets; 0 before the first.
    pub(crate) fn asked(&self) -> u32 {
        self.last_asked().load(Ordering::SeqCst)
    }

    pub(crate) fn has(&self, value: u32) -> bool {
        self.value().load(Ordering::SeqCst) >= value
    }

    /// Returns false if `deadline` passes before the word has the value.
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

impl SignalWord {
    pub(super) fn raise(&mut self, value: u32) {
        match self {
            Self::Own(word) => *word = (*word).max(value),
            Self::Shared(word) => {
                word.value().fetch_max(value, Ordering::SeqCst);
                word.bell.wake();
            }
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Own(word) => *word = 0,
            Self::Shared(word) => word.value().store(0, Ordering::SeqCst),
        }
    }

    /// A satisfied `Take` clears the word.
    pub(super) fn grants(&mut self, act: SignalAction) -> bool {
        match (self, act) {
            (_, SignalAction::Set(_) | SignalAction::Clear) => true,
            (Self::Own(word), SignalAction::Await(value)) => *word >= value,
            (Self::Own(word), SignalAction::Take) => std::mem::take(word) != 0,
            (Self::Shared(word), SignalAction::Await(value)) => word.has(value),
            (Self::Shared(word), SignalAction::Take) => word.value().swap(0, Ordering::SeqCst) != 0,
        }
    }
}

impl Signal {
    pub(super) fn new(word: SignalWord, recheck: Recheck) -> Self {
        Self { word, waiting: VecDeque::new(), is_watched: false, recheck }
    }

    pub(crate) fn shared(&self) -> Option<&Arc<SharedWord>> {
        match &self.word {
            SignalWord::Own(_) => None,
            SignalWord::Shared(word) => Some(word),
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        match &self.word {
            SignalWord::Own(word) => *word != 0,
            SignalWord::Shared(word) => word.has(1),
        }
    }

    pub(super) fn watch(&mut self, id: u64) -> Result<(), Failure> {
        let SignalWord::Shared(word) = &self.word else { return Ok(()) };
        if self.is_watched {
            return Ok(());
        }
        let (word, recheck, mut seen) = (Arc::clone(word), self.recheck.clone(), word.bell.rings());
        let body = move || {
            thread::is_of_machine();
            loop {
                if !(recheck.0)(id) {
                    return;
                }
                word.bell.sleep(seen, Some(LOOK));
                seen = word.bell.rings();
            }
        };
        let started = std::thread::Builder::new().name(format!("ascend-signal-{id}")).spawn(body);
        started.map_err(|error| {
            Failure::new(
                code::INTERNAL,
                format!("cannot start the thread that waits for other processes: {error}"),
            )
        })?;
        self.is_watched = true;
        Ok(())
    }
}
