//! Sessions on separate threads: requests come and go while the cards run.
//!
//! - Input: [`Request`]s from any thread ([`ServingEngine::submit`]).
//! - Output: a [`RequestHandle`] per request, with its tokens.
//! - Invariants: each request ends with its sequences or with an error. Dropping a handle cancels
//!   its request within one step. After the failure of a card or process, the requests of all
//!   replicas end with its error, and new ones are refused with it.
//! - Not here: which request runs (`serving`), and steps (`steps`).
//!
//! # Several processes
//! The process of rank 0 takes the requests. Before each step, it sends what arrived to the other
//! processes, and all processes do the same: schedulers and samplers are deterministic.

mod events;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::base::{Diagnostic, Diagnostics};
use crate::exec::panic_text;
use crate::serving::Load;
use crate::world::ProcessGroup;

use super::error::Error;
use super::limits::RequestLimits;
use super::request::Request;
use super::sequence::NewToken;
use super::session::Session;
use super::steps::{RequestKey, SequenceEvent, SequenceKey};
use events::{EventSender, RequestEnd, event_queue};
pub use events::{RequestHandle, RequestOutput};

/// A session that serves requests on a separate thread, or several sessions of one model, the
/// replicas.
///
/// ```
/// # use ascend_tp::emulator::{Config, Emulator};
/// # let emulator = Emulator::new(Config::with_cards(2))?;
/// # let cann = ascend_tp::Cann::new(emulator.table())?;
///
/// use ascend_tp::generate::{Model, Request, RequestOutput, ServingEngine, Session};
///
/// let model = Model::open("models/kjv-qwen2".as_ref())?;
/// let session = Session::builder(&cann, &model).cards(2).batch(4).context(64).start()?;
/// let engine = ServingEngine::start(session)?;
/// let handles = ["In the beginning", "The king"]
///     .map(|prompt| engine.submit(Request { max_new_tokens: Some(3), ..Request::new(prompt) }));
/// for handle in handles {
///     for output in handle? {
///         if let RequestOutput::Token { text, .. } = output? {
///             print!("{text}");
///         }
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ServingEngine {
    replicas: Vec<Replica>,
    limits: RequestLimits,
    next: AtomicU64,
}

/// A session on its thread.
#[derive(Debug)]
struct Replica {
    commands: Sender<EngineCommand>,
    status: Arc<Mutex<EngineStatus>>,
    /// Requests that have not ended.
    open: Arc<()>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum EngineCommand {
    Submit(Box<Submission>, EventSender),
    Cancel(u64),
    /// Ends a request with its last outputs.
    End(u64),
    /// Another process or replica failed, perhaps while this one was idle.
    Failed(Arc<Error>),
    Stop,
}

/// A checked request, as all processes get it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Submission {
    number: u64,
    ids: Vec<u32>,
    samples: u32,
    request: Request,
}

/// Requests and cancellations since the last step.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Arrivals {
    submissions: Vec<Submission>,
    cancelled: Vec<u64>,
    ended: Vec<u64>,
    stops: bool,
}

#[derive(Debug)]
enum EngineStatus {
    Running(Vec<Load>),
    Failed(Arc<Error>),
    Stopped,
}

fn lock(status: &Mutex<EngineStatus>) -> std::sync::MutexGuard<'_, EngineStatus> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ServingEngine {
    /// Moves a session to a thread. In a world of several processes, each process starts an engine,
    /// and only rank 0 takes requests.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(session: Session) -> Result<Self, Error> {
        Self::start_replicas(vec![session])
    }

    /// Moves sessions of one model on different cards to threads. A request goes to the session
    /// with the fewest open requests.
    ///
    /// # Errors
    /// The sessions differ in their limits, or the system has no thread.
    pub fn start_replicas(sessions: Vec<Session>) -> Result<Self, Error> {
        let Some(first) = sessions.first() else {
            return Err(Diagnostics::from(Diagnostic::new("serving engine", "has no session")).into());
        };
        let limits = first.limits.clone();
        let stop_ids = first.stop_ids.clone();
        let mut problems = Diagnostics::new();
        for (replica, session) in sessions.iter().enumerate() {
            let place = || format!("replica {replica}");
            if !session.limits.are_those_of(&limits) || session.stop_ids != stop_ids {
                let problem = Diagnostic::new(place(), "differs from the first one");
                problems.push(problem.expected("the same model, context, head, grammars and programs"));
            }
            if sessions.len() > 1 && session.group.size() > 1 {
                problems.push(
                    Diagnostic::new(place(), "has cards in several processes")
                        .help("start an engine for each replica, and route requests between them"),
                );
            }
        }
        problems.into_result(())?;
        let channels: Vec<_> = sessions.iter().map(|_| unbounded()).collect();
        let all: Vec<Sender<EngineCommand>> = channels.iter().map(|(commands, _)| commands.clone()).collect();
        let replicas = sessions.into_iter().zip(channels);
        let replicas =
            replicas.map(|(session, (commands, inbox))| Replica::start(session, commands, inbox, &all));
        Ok(Self { replicas: replicas.collect::<Result<_, _>>()?, limits, next: AtomicU64::new(0) })
    }

    /// Adds a request to the queue.
    ///
    /// # Errors
    /// The request does not fit the session, or the engine has failed or stopped.
    pub fn submit(&self, request: Request) -> Result<RequestHandle, Error> {
        self.submit_samples(request, 1)
    }

    /// Adds a request for several samples of one prompt. They differ in their sample numbers, which
    /// count from the request's own.
    ///
    /// # Errors
    /// As [`ServingEngine::submit`].
    pub fn submit_samples(&self, request: Request, samples: u32) -> Result<RequestHandle, Error> {
        self.check()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut problems = Diagnostics::new();
        let place = format!("request {number}");
        let ids = self.limits.check(&place, &request, &mut problems);
        if samples == 0 {
            problems.push(Diagnostic::new(place, "asks for no sample").expected("at least 1").found(0));
        }
        let ids = problems.into_result(ids)?;
        let replica = self.replicas.iter().min_by_key(|replica| Arc::strong_count(&replica.open));
        let replica = replica.ok_or_else(stopped)?;
        let commands = replica.commands.clone();
        let (events, handle) = event_queue(samples, Arc::clone(&replica.open), move |end| {
            // The thread may have ended.
            let _gone = commands.send(match end {
                RequestEnd::Silent => EngineCommand::Cancel(number),
                RequestEnd::WithOutputs => EngineCommand::End(number),
            });
        });
        let submission = Submission { number, ids, samples, request };
        if replica.commands.send(EngineCommand::Submit(Box::new(submission), events)).is_err() {
            self.check()?;
            return Err(stopped());
        }
        Ok(handle)
    }

    /// Returns counts of sequences and free blocks, for each pool of cache blocks of each replica.
    ///
    /// # Errors
    /// The engine has failed or stopped.
    pub fn load(&self) -> Result<Vec<Load>, Error> {
        let mut loads = Vec::new();
        for replica in &self.replicas {
            match &*lock(&replica.status) {
                EngineStatus::Running(load) => loads.extend_from_slice(load),
                EngineStatus::Failed(error) => return Err(Error::Shared(Arc::clone(error))),
                EngineStatus::Stopped => return Err(stopped()),
            }
        }
        Ok(loads)
    }

    /// Returns whether the engine serves.
    ///
    /// # Errors
    /// The engine has failed or stopped.
    pub fn check(&self) -> Result<(), Error> {
        self.load().map(drop)
    }

    /// Waits until the threads end: after a failure, or in processes that take no requests, when
    /// the engine of rank 0 stops.
    ///
    /// # Errors
    /// The failure of a card or process.
    pub fn join(mut self) -> Result<(), Error> {
        self.replicas.iter_mut().for_each(Replica::end);
        let failure = self.replicas.iter().find_map(|replica| match &*lock(&replica.status) {
            EngineStatus::Failed(error) => Some(Arc::clone(error)),
            EngineStatus::Running(_) | EngineStatus::Stopped => None,
        });
        failure.map_or(Ok(()), |error| Err(Error::Shared(error)))
    }
}

impl Replica {
    /// Starts the thread of a session. `all` has the inboxes of all replicas.
    fn start(
        session: Session,
        commands: Sender<EngineCommand>,
        inbox: Receiver<EngineCommand>,
        all: &[Sender<EngineCommand>],
    ) -> Result<Self, Error> {
        let status = Arc::new(Mutex::new(EngineStatus::Running(session.load())));
        let shared = Arc::clone(&status);
        let failed = commands.clone();
        session.group.on_failure(move |failure| {
            let error = Error::from(crate::exec::Error::from(failure.clone()));
            // The thread may have ended.
            let _gone = failed.send(EngineCommand::Failed(Arc::new(error)));
        });
        let all = all.to_vec();
        let body = move || {
            EngineThread::new(session, inbox, shared).run(&all);
        };
        let thread = std::thread::Builder::new().name("serving engine".to_owned()).spawn(body);
        let thread = thread.map_err(|error| {
            Diagnostics::from(Diagnostic::new("serving engine", "no thread can be started").found(error))
        })?;
        Ok(Self { commands, status, open: Arc::new(()), thread: Some(thread) })
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            warn!("the thread of the serving engine panicked");
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _gone = self.commands.send(EngineCommand::Stop);
        self.end();
    }
}

fn stopped() -> Error {
    Error::Refused(Diagnostic::new("serving engine", "has stopped").into())
}

/// A request in the thread.
struct OpenRequest {
    number: u64,
    /// Samples that have not ended.
    open: u32,
    /// None in processes that take no requests.
    events: Option<EventSender>,
}

struct EngineThread {
    session: Session,
    inbox: Receiver<EngineCommand>,
    status: Arc<Mutex<EngineStatus>>,
    group: Arc<ProcessGroup>,
    requests: BTreeMap<RequestKey, OpenRequest>,
    keys: BTreeMap<u64, RequestKey>,
    /// Queues of requests that arrived and were not yet submitted.
    queues: BTreeMap<u64, EventSender>,
}

impl EngineThread {
    fn new(session: Session, inbox: Receiver<EngineCommand>, status: Arc<Mutex<EngineStatus>>) -> Self {
        let group = Arc::clone(&session.group);
        Self {
            session,
            inbox,
            status,
            group,
            requests: BTreeMap::new(),
            keys: BTreeMap::new(),
            queues: BTreeMap::new(),
        }
    }

    /// Serves until the end, and tells `others` of a failure.
    fn run(mut self, others: &[Sender<EngineCommand>]) {
        let served = catch_unwind(AssertUnwindSafe(|| self.serve())).unwrap_or_else(|panic| {
            let problem = Diagnostic::new("serving engine", "its thread panicked");
            Err(Diagnostics::from(problem.found(panic_text(panic.as_ref()))).into())
        });
        let (ended, last) = match served {
            Ok(()) => (EngineStatus::Stopped, Arc::new(stopped())),
            Err(error) => {
                let error = Arc::new(error);
                (EngineStatus::Failed(Arc::clone(&error)), error)
            }
        };
        // New requests are refused before the queued ones end.
        if let EngineStatus::Failed(error) = &ended {
            for other in others {
                let _gone = other.send(EngineCommand::Failed(Arc::clone(error)));
            }
        }
        *lock(&self.status) = ended;
        let open = self.requests.values().filter_map(|request| request.events.as_ref());
        open.chain(self.queues.values()).for_each(|events| events.fail(&last));
        for command in self.inbox.try_iter() {
            if let EngineCommand::Submit(_, events) = command {
                events.fail(&last);
            }
        }
    }

    fn serve(&mut self) -> Result<(), Error> {
        loop {
            let arrived = self.arrivals()?;
            for number in arrived.cancelled {
                if let Some(key) = self.keys.remove(&number) {
                    self.requests.remove(&key);
                    self.session.cancel(key);
                }
            }
            if arrived.stops {
                return Ok(());
            }
            for submission in arrived.submissions {
                self.submit(submission);
            }
            let Self { session, requests, keys, .. } = self;
            let ended: Vec<RequestKey> =
                arrived.ended.iter().filter_map(|number| keys.get(number)).copied().collect();
            let mut tell = |key: SequenceKey, event: SequenceEvent<'_>| {
                if let Some(request) = requests.get_mut(&key.request) {
                    request.tell(key.sample, event);
                    if request.open == 0 {
                        keys.remove(&request.number);
                        requests.remove(&key.request);
                    }
                }
                ControlFlow::Continue(())
            };
            ended.into_iter().for_each(|key| session.end_request(key, &mut tell));
            session.step(&mut tell)?;
            *lock(&self.status) = EngineStatus::Running(self.session.load());
        }
    }

    /// Returns the arrivals. Waits if there is nothing to do.
    fn arrivals(&mut self) -> Result<Arrivals, Error> {
        let mut arrived = Arrivals::default();
        if self.group.is_first() {
            let first = if self.session.is_idle() { self.inbox.recv().ok() } else { None };
            for command in first.into_iter().chain(self.inbox.try_iter()) {
                match command {
                    EngineCommand::Submit(submission, events) => {
                        self.queues.insert(submission.number, events);
                        arrived.submissions.push(*submission);
                    }
                    EngineCommand::Cancel(number) => arrived.cancelled.push(number),
                    EngineCommand::End(number) => arrived.ended.push(number),
                    EngineCommand::Failed(error) => return Err(Error::Shared(error)),
                    EngineCommand::Stop => arrived.stops = true,
                }
            }
        }
        // A request that is cancelled before it starts.
        let Arrivals { submissions, cancelled, .. } = &mut arrived;
        submissions.retain(|submission| !cancelled.contains(&submission.number));
        cancelled.iter().for_each(|number| drop(self.queues.remove(number)));
        if self.group.size() == 1 {
            return Ok(arrived);
        }
        let encoded = if self.group.is_first() {
            serde_json::to_vec(&arrived).map_err(|error| {
                Diagnostics::from(Diagnostic::new("requests", "cannot be sent").found(error))
            })?
        } else {
            Vec::new()
        };
        let all = self.group.exchange("the requests", encoded).map_err(crate::exec::Error::from)?;
        let sent = all.first().map_or(&[][..], Vec::as_slice);
        serde_json::from_slice(sent).map_err(|error| {
            let problem = Diagnostic::new("requests of rank 0", "cannot be read").found(error);
            Diagnostics::from(problem.help("run the same release in all processes")).into()
        })
    }

    fn submit(&mut self, submission: Submission) {
        let Submission { number, ids, samples, request } = submission;
        let events = self.queues.remove(&number);
        match self.session.submit(&Arc::new(request), &ids, samples) {
            Ok(key) => {
                self.requests.insert(key, OpenRequest { number, open: samples, events });
                self.keys.insert(number, key);
            }
            Err(problems) => {
                let error = Arc::new(problems.into());
                events.iter().for_each(|events| events.fail(&error));
            }
        }
    }
}

impl OpenRequest {
    fn tell(&mut self, sample: u32, event: SequenceEvent<'_>) {
        self.open = match &event {
            SequenceEvent::Token(..) => self.open,
            SequenceEvent::End(..) => self.open.saturating_sub(1),
            SequenceEvent::Failed(_) => 0,
        };
        let Some(events) = &self.events else { return };
        match event {
            SequenceEvent::Token(NewToken { id, text, log_probabilities }, _) => {
                let (text, log_probabilities) = (text.clone(), log_probabilities.clone());
                events.push(RequestOutput::Token { sample, id: *id, text, log_probabilities });
            }
            SequenceEvent::End(text, sequence) => {
                let sequence = Box::new(sequence.clone());
                events.push(RequestOutput::End { sample, text: text.to_owned(), sequence });
            }
            SequenceEvent::Failed(error) => {
                let error = match error {
                    Error::Sampling { position, source, place, .. } => {
                        let request = usize::try_from(self.number).unwrap_or(usize::MAX);
                        Error::Sampling { request, position, source, place }
                    }
                    error => error,
                };
                events.fail(&Arc::new(error));
            }
        }
    }
}
