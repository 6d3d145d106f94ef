//! The store of rank 0: gathers the processes, distributes their data, and reports failures.
//!
//! Invariants: each connection has one thread, which blocks in reading. The listener closes when
//! all processes have arrived. A connection that ends without a farewell is a failure of its
//! process.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::connect::{RETRY, Reminder};
use super::life::{Life, TICK};
use super::wire::{FRAME_BYTES, HELLO_BYTES, Peer, Socket, StoreMessage, VERSION};
use crate::world::group::Notice;
use crate::world::ranks::named_ranks;

/// Timeout of a hello and of writes.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Socket::Tcp(stream)),
            Self::Unix(listener, _) => listener.accept().map(|(stream, _)| Socket::Unix(stream)),
        }
    }

    fn waker(&self) -> io::Result<Waker> {
        Ok(match self {
            Self::Tcp(listener) => {
                let mut address = listener.local_addr()?;
                if address.ip().is_unspecified() {
                    let v4 = address.is_ipv4();
                    address.set_ip(if v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
                }
                Waker::Tcp(address)
            }
            Self::Unix(_, path) => Waker::Unix(path.clone()),
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _gone = std::fs::remove_file(path);
        }
    }
}

#[derive(Debug)]
enum Waker {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Waker {
    fn wake(&self) {
        // A refused connection means that the listener is closed.
        let _woken = match self {
            Self::Tcp(address) => TcpStream::connect_timeout(address, PATIENCE).map(drop),
            Self::Unix(path) => UnixStream::connect(path).map(drop),
        };
    }
}

#[derive(Debug)]
pub(super) struct StoreServer {
    shared: Arc<ServerShared>,
    waker: Waker,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct ServerShared {
    size: usize,
    host_id: String,
    lives: Vec<Life>,
    state: Mutex<StoreState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StoreState {
    here: BTreeMap<usize, (Peer, Socket)>,
    phase: ServerPhase,
    rounds: BTreeMap<u64, ExchangeRound>,
    left: Vec<usize>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum ServerPhase {
    #[default]
    Gathering,
    Running,
    /// Late processes get the reason.
    Refused(String),
    Over,
}

#[derive(Debug)]
struct ExchangeRound {
    what: String,
    first: usize,
    parts: BTreeMap<usize, Vec<u8>>,
}

impl StoreServer {
    /// Serves until dropped. The rendezvous fails if a rank has not arrived after `timeout`.
    pub(super) fn start(
        listener: Listener,
        place: String,
        me: &Peer,
        timeout: Duration,
        notice: &Notice,
    ) -> io::Result<Self> {
        let (size, host_id) = (me.size, me.host_id.clone());
        let lives = (0..size).map(|_| Life::default()).collect();
        let shared =
            Arc::new(ServerShared { size, host_id, lives, state: Mutex::default(), changed: Condvar::new() });
        let waker = listener.waker()?;
        let accepting = Arc::clone(&shared);
        let accept = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || accepting.accept(&listener))?;
        let (watching, deadline_waker) = (Arc::clone(&shared), listener_waker(&waker));
        let begun = Instant::now();
        let notice = Arc::clone(notice);
        let watch = std::thread::Builder::new()
            .name("store watch".to_owned())
            .spawn(move || watching.watch(begun, timeout, &place, &deadline_waker, &notice))?;
        Ok(Self { shared, waker, threads: vec![accept, watch] })
    }

    /// Returns when all other processes have been told.
    pub(super) fn fail(&self, text: &str) {
        self.shared.fail(0, text.to_owned());
    }
}

#[cfg(test)]
impl StoreServer {
    /// Simulates a killed process.
    pub(super) fn break_all(&self) {
        let mut state = self.shared.lock();
        state.phase = ServerPhase::Over;
        state.here.values().for_each(|(_, socket)| socket.close());
    }
}

fn listener_waker(waker: &Waker) -> Waker {
    match waker {
        Waker::Tcp(address) => Waker::Tcp(*address),
        Waker::Unix(path) => Waker::Unix(path.clone()),
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        let readers = {
            let mut state = self.shared.lock();
            if state.phase == ServerPhase::Running {
                state.tell_others(0, &StoreMessage::Left { rank: 0 });
            }
            state.phase = ServerPhase::Over;
            state.here.values().for_each(|(_, socket)| socket.close());
            std::mem::take(&mut state.readers)
        };
        self.shared.changed.notify_all();
        self.waker.wake();
        for thread in self.threads.drain(..).chain(readers) {
            // A panic of the thread ends with the store.
            let _panicked = thread.join();
        }
    }
}

impl ServerShared {
    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &Listener) {
        while matches!(self.lock().phase, ServerPhase::Gathering | ServerPhase::Refused(_)) {
            let Ok(socket) = listener.accept() else {
                // Most often out of open files: some may be closed soon.
                std::thread::sleep(RETRY);
                continue;
            };
            let shared = Arc::clone(self);
            let serve = move || {
                if let Ok(socket) = socket.prepare(PATIENCE) {
                    shared.serve(socket);
                }
            };
            let started = std::thread::Builder::new().name("store connection".to_owned()).spawn(serve);
            if let Ok(reader) = started {
                self.lock().readers.push(reader);
            }
        }
    }

    /// Ends the rendezvous after the timeout; then watches for signs of life.
    fn watch(&self, begun: Instant, timeout: Duration, place: &str, waker: &Waker, notice: &Notice) {
        let (deadline, mut told) = (begun + timeout, Reminder::new(begun));
        let mut state = self.lock();
        while state.phase == ServerPhase::Gathering {
            let left = deadline.saturating_duration_since(Instant::now());
            let absent = || named_ranks((0..self.size).filter(|rank| !state.here.contains_key(rank)));
            if told.is_due() {
                let limit = timeout.as_secs();
                notice(&format!(
                    "rank 0 waits for {} of {} at {place}, for {limit} s at most",
                    absent(),
                    self.size
                ));
            }
            if left.is_zero() {
                let text = format!(
                    "{} of {} did not come to {place} within {} s: see whether they were started with the same \
                     MASTER_ADDR, MASTER_PORT and WORLD_SIZE, and what they say (HCCL_CONNECT_TIMEOUT changes the limit)",
                    absent(),
                    self.size,
                    timeout.as_secs()
                );
                state.refuse(&text);
                break;
            }
            let left = left.min(told.next().saturating_duration_since(Instant::now()));
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_running = state.phase == ServerPhase::Running;
        drop(state);
        if is_running {
            // No further process may join, so the listener closes.
            waker.wake();
        }
        self.look_after();
    }

    fn look_after(&self) {
        let mut state = self.lock();
        let mut next = Instant::now() + TICK;
        while state.phase == ServerPhase::Running {
            let left = next.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            next = Instant::now() + TICK;
            let others = state.here.iter().filter(|(rank, _)| **rank != 0 && !state.left.contains(rank));
            let gone = others
                .filter_map(|(rank, (peer, _))| Some((*rank, self.lives[*rank].tick(peer, &self.host_id)?)));
            for (rank, text) in gone.collect::<Vec<_>>() {
                state.left.push(rank);
                state.tell_others(rank, &StoreMessage::Failed { rank, text });
                state.here.get(&rank).into_iter().for_each(|(_, socket)| socket.close());
            }
        }
    }

    fn serve(&self, mut socket: Socket) {
        // Ignores strangers and port scans.
        let Ok(()) = socket.limit_reads(Some(PATIENCE)) else { return };
        let peer = match socket.receive(HELLO_BYTES) {
            Ok(StoreMessage::Hello(peer)) => peer,
            Ok(StoreMessage::OtherVersion(found)) => return self.refuse_version(socket, found),
            _ => return,
        };
        let Ok(()) = socket.limit_reads(None) else { return };
        let Ok(writer) = socket.try_clone() else { return };
        let rank = peer.rank;
        if !self.join(peer, writer) {
            return;
        }
        loop {
            match socket.receive_hearing(FRAME_BYTES, &|| self.lives[rank].heard()) {
                Ok(StoreMessage::Pulse) => self.lock().tell(rank, &StoreMessage::Pulse),
                Ok(StoreMessage::Give { round, what, bytes }) => self.give(rank, round, &what, bytes),
                Ok(StoreMessage::Failed { text, .. }) => self.fail(rank, text),
                Ok(StoreMessage::Left { .. }) => {
                    let mut state = self.lock();
                    state.left.push(rank);
                    state.tell_others(rank, &StoreMessage::Left { rank });
                    self.changed.notify_all();
                    return;
                }
                Ok(_) => {}
                Err(error) => return self.lost(rank, &error),
            }
        }
    }

    fn refuse_version(&self, mut socket: Socket, found: u8) {
        let text = format!(
            "a process speaks version {found} of this protocol and rank 0 version {VERSION}: install the same ascend-tp on all \
             hosts"
        );
        // The process may be gone.
        let _told = socket.send(&StoreMessage::Refused(text.clone()));
        let mut state = self.lock();
        if state.phase == ServerPhase::Gathering {
            state.refuse(&text);
        }
        self.changed.notify_all();
    }

    fn join(&self, peer: Peer, writer: Socket) -> bool {
        let mut state = self.lock();
        let late = match &state.phase {
            ServerPhase::Gathering => None,
            ServerPhase::Refused(text) => Some(text.clone()),
            ServerPhase::Running | ServerPhase::Over => {
                Some(format!("the {} ranks of this job have met already", self.size))
            }
        };
        let mut writer = writer;
        if let Some(text) = late {
            let _told = writer.send(&StoreMessage::Refused(text));
            return false;
        }
        let problem = if peer.size != self.size {
            Some(format!("{peer} was told of {} ranks, rank 0 of {}", peer.size, self.size))
        } else if peer.rank >= self.size {
            Some(format!("{peer} came to a meeting of {} ranks", self.size))
        } else {
            state
                .here
                .get(&peer.rank)
                .map(|(other, _)| format!("two processes are rank {}: {other} and {peer}", peer.rank))
        };
        let rank = peer.rank;
        if let Some(problem) = problem {
            // The process may be gone; the rendezvous fails for all.
            let _told = writer.send(&StoreMessage::Refused(problem.clone()));
            state.refuse(&problem);
        } else {
            state.here.insert(rank, (peer, writer));
            if state.here.len() == self.size {
                state.begin();
            }
        }
        self.changed.notify_all();
        !matches!(state.phase, ServerPhase::Refused(_))
    }

    fn fail(&self, rank: usize, text: String) {
        self.lock().tell_others(rank, &StoreMessage::Failed { rank, text });
    }

    fn give(&self, rank: usize, round: u64, what: &str, bytes: Vec<u8>) {
        let mut state = self.lock();
        let entry = state.rounds.entry(round).or_insert_with(|| ExchangeRound {
            what: what.to_owned(),
            first: rank,
            parts: BTreeMap::new(),
        });
        if entry.what != what {
            let text = format!(
                "the processes run different programs: rank {} is at {}, rank {rank} at {what}",
                entry.first, entry.what
            );
            state.tell_all(&StoreMessage::Failed { rank, text });
            return;
        }
        entry.parts.insert(rank, bytes);
        if entry.parts.len() == self.size
            && let Some(round_done) = state.rounds.remove(&round)
        {
            let parts = round_done.parts.into_values().collect();
            state.tell_all(&StoreMessage::Given { round, parts });
        }
    }

    /// The connection ended without a farewell.
    fn lost(&self, rank: usize, error: &io::Error) {
        let mut state = self.lock();
        match state.phase {
            ServerPhase::Refused(_) | ServerPhase::Over => {}
            ServerPhase::Running => {
                let text = match error.kind() {
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                        "the process ended without a message: it was killed, or it crashed".to_owned()
                    }
                    _ => format!("the connection to it broke: {error}"),
                };
                if state.left.contains(&rank) {
                    // The process was given up before.
                    return;
                }
                state.left.push(rank);
                state.tell_others(rank, &StoreMessage::Failed { rank, text });
            }
            ServerPhase::Gathering => {
                let who = state
                    .here
                    .get(&rank)
                    .map_or_else(|| format!("rank {rank}"), |(peer, _)| peer.to_string());
                state.refuse(&format!("{who} ended before all ranks connected: read its output"));
            }
        }
        self.changed.notify_all();
    }
}

impl StoreState {
    fn begin(&mut self) {
        self.phase = ServerPhase::Running;
        match place_on_hosts(self.here.values().map(|(peer, _)| peer.clone()).collect()) {
            Ok(roster) => self.tell_all(&StoreMessage::Roster(roster)),
            Err(problem) => self.refuse(&problem),
        }
    }

    fn refuse(&mut self, text: &str) {
        self.phase = ServerPhase::Refused(text.to_owned());
        self.tell_all(&StoreMessage::Refused(text.to_owned()));
    }

    fn tell(&mut self, rank: usize, message: &StoreMessage) {
        if let Some((_, socket)) = self.here.get_mut(&rank)
            && socket.send(message).is_err()
        {
            socket.close();
        }
    }

    fn tell_all(&mut self, message: &StoreMessage) {
        self.tell_others(usize::MAX - 1, message);
    }

    /// Tells this process last, because it may end as soon as it knows of a failure.
    fn tell_others(&mut self, but: usize, message: &StoreMessage) {
        for (rank, (_, socket)) in self.here.iter_mut().rev() {
            if *rank != but && !self.left.contains(rank) && socket.send(message).is_err() {
                // The connection's reader notices.
                socket.close();
            }
        }
    }
}

/// Assigns local ranks and cards to processes without, in rank order on each host.
fn place_on_hosts(mut roster: Vec<Peer>) -> Result<Vec<Peer>, String> {
    let mut by_host: BTreeMap<String, usize> = BTreeMap::new();
    for peer in &mut roster {
        let next = by_host.entry(peer.host_id.clone()).or_default();
        peer.local_rank.get_or_insert(*next);
        *next += 1;
        peer.card = peer.card.or(peer.local_rank);
    }
    for (at, peer) in roster.iter().enumerate() {
        let card = |peer: &Peer| peer.physical_card.or(peer.card);
        let same = |other: &&Peer| other.host_id == peer.host_id && card(other) == card(peer);
        if let Some(other) = roster[..at].iter().find(same) {
            let card = card(peer).unwrap_or_default();
            return Err(format!(
                "{other} and {peer} would both use card {card} of their host: give each its own local rank"
            ));
        }
    }
    Ok(roster)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(rank: usize, host: &str, local: Option<usize>, physical: Option<usize>) -> Peer {
        Peer {
            rank,
            size: 4,
            process_id: 100 + rank as u32,
            host: host.to_owned(),
            host_id: host.to_owned(),
            local_rank: local,
            card: local,
            physical_card: physical,
        }
    }

    #[test]
    fn the_process_with_the_store_hears_last() {
        let (mut state, mut ends) = (StoreState::default(), Vec::new());
        for rank in 0..4 {
            let (here, end) = UnixStream::pair().unwrap();
            state.here.insert(rank, (peer(rank, "a", None, None), Socket::Unix(here)));
            // A missing message must not wait.
            end.set_nonblocking(rank != 0).unwrap();
            ends.push(Socket::Unix(end));
        }
        let told = StoreMessage::Failed { rank: 2, text: "lost".to_owned() };
        let _it_fails = ends.remove(2);
        let mut others = ends.split_off(1);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..200 {
                    ends[0].receive(FRAME_BYTES).unwrap();
                    // Rank 0 may end now.
                    for (rank, other) in [1, 3].into_iter().zip(&mut others) {
                        assert!(other.receive(FRAME_BYTES).is_ok(), "rank {rank} was not told before rank 0");
                    }
                }
            });
            (0..200).for_each(|_| state.tell_others(2, &told));
        });
    }

    #[test]
    fn ranks_without_a_place_get_one_on_their_host() {
        let roster = vec![
            peer(0, "a", None, None),
            peer(1, "b", None, None),
            peer(2, "a", None, None),
            peer(3, "b", None, None),
        ];
        let placed = place_on_hosts(roster).unwrap();
        let found: Vec<_> = placed.iter().map(|peer| (peer.local_rank, peer.card)).collect();
        assert_eq!(found, [(Some(0), Some(0)), (Some(0), Some(0)), (Some(1), Some(1)), (Some(1), Some(1))]);
    }

    #[test]
    fn one_card_for_two_is_refused_with_both() {
        let error =
            place_on_hosts(vec![peer(0, "a", Some(1), None), peer(1, "a", Some(1), None)]).unwrap_err();
        assert_eq!(
            error,
            "rank 0 (card 1, process 100 on a) and rank 1 (card 1, process 101 on a) would both use card 1 of their host: \
             give each its own local rank"
        );
        let own = vec![peer(0, "a", Some(0), Some(4)), peer(1, "a", Some(0), Some(5))];
        assert!(place_on_hosts(own).is_ok(), "each process sees one card of its own");
    }
}
