//! The store: small data exchanges outside HCCL, such as root infos and failures. Rank 0 runs the
//! [`server`]; every rank is a client.
//!
//! Invariants:
//!
//! - An exchange ends with the data of all ranks or with a failure. It never waits for a process
//!   that is gone.
//! - After a known failure no exchange succeeds, so no process ends well while others fail.
//! - Ranks make the same exchanges of a sequence in the same order. The error names the first that
//!   differs.

pub(super) mod connect;
mod life;
mod server;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use wire::Peer;

use super::error::{Error, PeerFailure};
use super::group::Notice;
use super::place::MeetingPlace;
use life::{Life, PULSE_TICKS, TICK};
use server::StoreServer;
use wire::{FRAME_BYTES, Socket, StoreMessage};

/// Maximum delay of a decision of rank 0.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// Connection of a process to the store. Rank 0 also owns the store.
pub(super) struct Store {
    peers: Vec<Peer>,
    rank: usize,
    writer: Arc<Mutex<(Socket, Rounds)>>,
    shared: Arc<ClientShared>,
    reader: Option<JoinHandle<()>>,
    pulse: Option<JoinHandle<()>>,
    /// Dropping it notifies the other ranks that rank 0 leaves.
    server: Option<StoreServer>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("rank", &self.rank)
            .field("peers", &self.peers.len())
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct ClientShared {
    life: Life,
    state: Mutex<ClientState>,
    changed: Condvar,
}

/// Sequences do not wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeSequence {
    Main,
    Aside,
}

#[derive(Debug, Default)]
struct Rounds([u64; 2]);

impl Rounds {
    /// The last bit of the number is the sequence.
    fn next(&mut self, sequence: ExchangeSequence) -> u64 {
        let at = sequence as usize;
        self.0[at] += 1;
        self.0[at] * 2 + at as u64
    }
}

pub(super) type FailureListener = Box<dyn FnOnce(&PeerFailure) + Send>;

#[derive(Default)]
struct ClientState {
    given: BTreeMap<u64, Vec<Vec<u8>>>,
    failure: Option<PeerFailure>,
    left: Vec<usize>,
    closing: bool,
    listeners: Vec<FailureListener>,
}

impl Store {
    pub(super) fn meet(
        place: &MeetingPlace,
        me: Peer,
        timeout: Duration,
        notice: &Notice,
    ) -> Result<Self, Error> {
        let server = (me.rank == 0).then(|| connect::serve(place, &me, timeout, notice)).transpose()?;
        let mut socket = connect::connect(place, me.rank, timeout, notice)?;
        let (rank, host_id) = (me.rank, me.host_id.clone());
        let broken = |what: &str| Error::Meeting(format!("rank {rank}: {what} at {place}"));
        socket
            .send(&StoreMessage::Hello(me))
            .map_err(|error| broken(&format!("cannot send to rank 0's store ({error})")))?;
        // Rank 0 gives all ranks their time once it serves. Another program may never answer.
        let answer =
            socket.limit_reads(Some(timeout + ON_ITS_WAY)).and_then(|()| socket.receive(FRAME_BYTES));
        let answer = answer.and_then(|answer| socket.limit_reads(None).map(|()| answer));
        let peers = match answer {
            Ok(StoreMessage::Roster(peers)) => peers,
            Ok(StoreMessage::Refused(text)) => return Err(Error::Meeting(text)),
            Ok(_) => return Err(broken("the peer uses another protocol")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let limit = (timeout + ON_ITS_WAY).as_secs();
                return Err(broken(&format!(
                    "the listening process did not answer within {limit} s: it is not rank 0 of this job"
                )));
            }
            Err(error) => {
                return Err(broken(&format!(
                    "rank 0 ended before all ranks connected ({error}), or the listener is not rank 0, or has another \
                     version"
                )));
            }
        };
        let shared = Arc::new(ClientShared::default());
        let reading =
            socket.try_clone().map_err(|error| broken(&format!("the connection broke ({error})")))?;
        let (names, listening) = (peers.clone(), Arc::clone(&shared));
        let reader = std::thread::Builder::new()
            .name("store news".to_owned())
            .spawn(move || listening.read(reading, &names))
            .map_err(|error| broken(&format!("cannot start a thread ({error})")))?;
        let writer = Arc::new(Mutex::new((socket, Rounds::default())));
        let (watched, watching, speaking) = (peers[0].clone(), Arc::clone(&shared), Arc::clone(&writer));
        let pulse = (rank != 0).then(|| {
            let body = move || watching.pulse(&speaking, &watched, &host_id);
            std::thread::Builder::new().name("store pulse".to_owned()).spawn(body)
        });
        let pulse = pulse.transpose().map_err(|error| broken(&format!("cannot start a thread ({error})")))?;
        Ok(Self { peers, rank, writer, shared, reader: Some(reader), pulse, server })
    }

    pub(super) fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Waits for the bytes of all ranks. Fails if a process failed or left.
    pub(super) fn exchange(
        &self,
        sequence: ExchangeSequence,
        what: &str,
        bytes: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, PeerFailure> {
        if let Some(failure) = &self.shared.lock().failure {
            return Err(failure.clone());
        }
        let round = {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let (socket, rounds) = &mut *writer;
            let round = rounds.next(sequence);
            if let Err(error) = socket.send(&StoreMessage::Give { round, what: what.to_owned(), bytes }) {
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
                let text = format!("it has ended, but this process must still exchange: {what}");
                return Err(failure(&self.peers, *rank, text));
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The process may end when the call returns.
    pub(super) fn fail(&self, text: &str) {
        if let Some(server) = &self.server {
            return server.fail(text);
        }
        let message = StoreMessage::Failed { rank: self.rank, text: text.to_owned() };
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // All other ranks know the failure if the store is gone.
        let _told = writer.0.send(&message);
    }

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

    /// Calls `listener` with the first failure of another process, even a past one.
    pub(super) fn on_failure(&self, listener: FailureListener) {
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
            // Rank 0's store itself announces that rank 0 leaves.
            let _told = writer.0.send(&StoreMessage::Left { rank: self.rank });
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
                Ok(StoreMessage::Given { round, parts }) => {
                    let mut state = self.lock();
                    if state.failure.is_none() {
                        state.given.insert(round, parts);
                    }
                }
                Ok(StoreMessage::Failed { rank, text }) => self.failed(&failure(peers, rank, text)),
                Ok(StoreMessage::Left { rank }) => self.lock().left.push(rank),
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

    /// Sends signs of life to rank 0 and watches it, until this process leaves.
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
                // The reader notices if rank 0 is gone.
                let _sent = writer.0.send(&StoreMessage::Pulse);
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
    failure(peers, 0, format!("the process ended without a message: it was killed, or it crashed ({how})"))
}

#[cfg(test)]
mod tests;
