//! The small things that processes exchange outside HCCL: where they meet, root infos, verdicts, and who failed.
//!
//! Input → output: a [`MeetingPlace`](super::MeetingPlace) and who this process is → a [`Store`]: exchanges in which every rank gives
//! bytes and gets everybody's, and news of failures as they happen. Rank 0 serves ([`server`]), every rank is a client.
//! Invariants: an exchange ends with all parts or with the failure that prevents it, never by waiting for a process that
//! is gone; where a failure is known no further exchange succeeds, so that no process ends well beside others that failed; ranks make the
//! same exchanges of a sequence in the same order, and the first that differ are named.

mod connect;
mod life;
mod server;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use wire::Peer;

use super::error::{Error, PeerFailure};
use super::group::Notice;
use super::place::MeetingPlace;
use life::{Life, PULSE_TICKS, TICK};
use server::Server;
use wire::{FRAME_BYTES, Message, Socket};

/// A process' connection to the store; rank 0's also holds the store itself.
pub(super) struct Store {
    peers: Vec<Peer>,
    rank: usize,
    writer: Arc<Mutex<(Socket, Rounds)>>,
    shared: Arc<ClientShared>,
    reader: Option<JoinHandle<()>>,
    pulse: Option<JoinHandle<()>>,
    /// Tells the others that rank 0 leaves, when it is dropped.
    server: Option<Server>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("rank", &self.rank).field("peers", &self.peers.len()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct ClientShared {
    /// Of rank 0.
    life: Life,
    state: Mutex<ClientState>,
    changed: Condvar,
}

/// Exchanges that follow one another. Those of one sequence do not wait for those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequence {
    /// Those of the thread that runs the program.
    Main,
    /// Those of one thread beside it.
    Aside,
}

/// How many exchanges of each sequence this process has begun.
#[derive(Debug, Default)]
struct Rounds([u64; 2]);

impl Rounds {
    /// Sequences are told apart by the number's last bit.
    fn next(&mut self, sequence: Sequence) -> u64 {
        let at = sequence as usize;
        self.0[at] += 1;
        self.0[at] * 2 + at as u64
    }
}

/// Called once with the first failure.
pub(super) type Listener = Box<dyn FnOnce(&PeerFailure) + Send>;

#[derive(Default)]
struct ClientState {
    given: BTreeMap<u64, Vec<Vec<u8>>>,
    failure: Option<PeerFailure>,
    left: Vec<usize>,
    closing: bool,
    listeners: Vec<Listener>,
}

impl Store {
    /// Meets all processes of the job.
    ///
    /// # Errors
    /// The place cannot be had, somebody did not come, or the processes disagree.
    pub(super) fn meet(place: &MeetingPlace, me: Peer, timeout: Duration, notice: &Notice) -> Result<Self, Error> {
        let server = (me.rank == 0).then(|| connect::serve(place, &me, timeout, notice)).transpose()?;
        let mut socket = connect::connect(place, me.rank, timeout, notice)?;
        let (rank, host_id) = (me.rank, me.host_id.clone());
        let broken = |what: &str| Error::Meeting(format!("rank {rank}: {what} at {place}"));
        socket
            .send(&Message::Hello(me))
            .map_err(|error| broken(&format!("cannot speak to rank 0's store ({error})")))?;
        let peers = match socket.receive(FRAME_BYTES) {
            Ok(Message::Roster(peers)) => peers,
            Ok(Message::Refused(text)) => return Err(Error::Meeting(text)),
            Ok(_) => return Err(broken("another protocol is spoken")),
            Err(error) => {
                return Err(broken(&format!("rank 0 ended before all had come ({error}), or no rank 0 listens")));
            }
        };
        let shared = Arc::new(ClientShared::default());
        let reading = socket.try_clone().map_err(|error| broken(&format!("the connection broke ({error})")))?;
        let (names, listening) = (peers.clone(), Arc::clone(&shared));
        let reader = std::thread::Builder::new()
            .name("store news".to_owned())
            .spawn(move || listening.read(reading, &names))
            .map_err(|error| broken(&format!("cannot start a thread ({error})")))?;
        let writer = Arc::new(Mutex::new((socket, Rounds::default())));
        let (watched, watching, speaking) = (peers[0].clone(), Arc::clone(&shared), Arc::clone(&writer));
        // Rank 0 need not watch itself.
        let pulse = (rank != 0).then(|| {
            let body = move || watching.pulse(&speaking, &watched, &host_id);
            std::thread::Builder::new().name("store pulse".to_owned()).spawn(body)
        });
        let pulse = pulse.transpose().map_err(|error| broken(&format!("cannot start a thread ({error})")))?;
        Ok(Self { peers, rank, writer, shared, reader: Some(reader), pulse, server })
    }

    /// All processes, by rank.
    pub(super) fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Gives bytes and gets everybody's, by rank; waits for all.
    ///
    /// # Errors
    /// A process failed or left.
    pub(super) fn exchange(&self, sequence: Sequence, what: &str, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, PeerFailure> {
        if let Some(failure) = &self.shared.lock().failure {
            return Err(failure.clone());
        }
        let round = {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let (socket, rounds) = &mut *writer;
            let round = rounds.next(sequence);
            if let Err(error) = socket.send(&Message::Give { round, what: what.to_owned(), bytes }) {
                drop(writer);
                let limit = Duration::from_secs(1);
                return Err(self
                    .failure_within(limit)
                    .unwrap_or_else(|| rank_0_is_gone(&self.peers, &error.to_string())));
            }
            round
        };
        let mut state = self.shared.lock();
        loop {
            if let Some(parts) = state.given.remove(&round) {
                return Ok(parts);
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if let Some(rank) = state.left.first() {
                let text = format!("it has ended, and this process was still to exchange: {what}");
                return Err(failure(&self.peers, *rank, text));
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tells all others that this process fails, which may end as soon as this returns.
    pub(super) fn fail(&self, text: &str) {
        if let Some(server) = &self.server {
            return server.fail(text);
        }
        let message = Message::Failed { rank: self.rank, text: text.to_owned() };
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // If the store is gone they know already that the job has failed.
        let _told = writer.0.send(&message);
    }

    /// The first failure of another process, if one is known within `limit`.
    pub(super) fn failure_within(&self, limit: Duration) -> Option<PeerFailure> {
        let deadline = Instant::now() + limit;
        let mut state = self.shared.lock();
        while state.failure.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.failure.clone()
    }

    /// Has `listener` called with the first failure of another process, at once if there was one.
    pub(super) fn on_failure(&self, listener: Listener) {
        let known = {
            let mut state = self.shared.lock();
            match state.failure.clone() {
                None => {
                    state.listeners.push(listener);
                    return;
                }
                Some(failure) => failure,
            }
        };
        listener(&known);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        if self.server.take().is_none() {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            // A store that is gone knows nobody to tell. The store of rank 0 said it itself, and closed this connection.
            let _told = writer.0.send(&Message::Left { rank: self.rank });
            writer.0.close();
        }
        self.shared.changed.notify_all();
        for reader in self.reader.take().into_iter().chain(self.pulse.take()) {
            let _panicked = reader.join();
        }
    }
}

impl ClientShared {
    fn lock(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, mut socket: Socket, peers: &[Peer]) {
        loop {
            match socket.receive_hearing(FRAME_BYTES, &|| self.life.heard()) {
                Ok(Message::Given { round, parts }) => {
                    let mut state = self.lock();
                    if state.failure.is_none() {
                        state.given.insert(round, parts);
                    }
                }
                Ok(Message::Failed { rank, text }) => self.failed(&failure(peers, rank, text)),
                Ok(Message::Left { rank }) => self.lock().left.push(rank),
                Ok(_) => {}
                Err(error) => {
                    let expected = {
                        let state = self.lock();
                        state.closing || state.left.contains(&0)
                    };
                    if !expected {
                        self.failed(&rank_0_is_gone(peers, &error.to_string()));
                    }
                    return;
                }
            }
            self.changed.notify_all();
        }
    }

    /// Gives signs of life to rank 0's store, and looks whether rank 0 does, until this process leaves.
    fn pulse(&self, writer: &Mutex<(Socket, Rounds)>, rank_0: &Peer, host_id: &str) {
        let mut next = Instant::now() + TICK;
        let mut ticks = 0;
        let mut state = self.lock();
        while !state.closing && state.failure.is_none() && !state.left.contains(&0) {
            let left = next.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            drop(state);
            next = Instant::now() + TICK;
            ticks += 1;
            if ticks % PULSE_TICKS == 0
                && let Ok(mut writer) = writer.try_lock()
            {
                // Whoever reads notices that rank 0 is gone.
                let _sent = writer.0.send(&Message::Pulse);
            }
            if let Some(text) = self.life.tick(rank_0, host_id) {
                self.failed(&PeerFailure { rank: 0, process: rank_0.to_string(), text });
            }
            state = self.lock();
        }
    }

    fn failed(&self, failure: &PeerFailure) {
        let listeners = {
            let mut state = self.lock();
            if state.failure.is_some() {
                return;
            }
            state.failure = Some(failure.clone());
            std::mem::take(&mut state.listeners)
        };
        self.changed.notify_all();
        listeners.into_iter().for_each(|listener| listener(failure));
    }
}

fn failure(peers: &[Peer], rank: usize, text: String) -> PeerFailure {
    let process = peers.get(rank).map_or_else(|| format!("rank {rank}"), Peer::to_string);
    PeerFailure { rank, process, text }
}

fn rank_0_is_gone(peers: &[Peer], how: &str) -> PeerFailure {
    failure(peers, 0, format!("the process ended without a word: it was killed, or it crashed ({how})"))
}

#[cfg(test)]
mod tests;
