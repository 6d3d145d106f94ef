//! Links between processes.
//!
//! Messages reach the machine through its [`Endpoint`], data reaches the [`PendingTransfers`].
//!
//! Modules: `wire` is the protocol, `host` the identity of this host, `listener` accepts
//! connections. `connection` and `reader` are the two directions of a link, and `pending` matches
//! data with waiting receivers.
//!
//! Invariants:
//! - A connection without the secret of this process is dropped.
//! - The process with the greater id connects, so there is one link per pair.

pub(crate) mod connection;
pub(crate) mod endpoint;
pub(crate) mod host;
pub(crate) mod links;
mod listener;
pub(crate) mod pending;
mod reader;
pub(crate) mod wire;

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use connection::PeerLink;
use endpoint::{Endpoint, GRACE, HELLO_PATIENCE};
use pending::PendingTransfers;
use serde::Deserialize;
use wire::{Caller, ConnectionPurpose, FormationAnswer, Hello, ProcessAddress, Roster, Welcome};

use crate::base::failure::{Failure, code};
use crate::memory::pages::PageStore;
use crate::memory::peer::PeerMemory;
use crate::memory::peer::StoreAddress;
use crate::memory::place::MemoryPlace;
use crate::memory::raw::RawSpan;
use crate::memory::shared_words::SharedWords;
use crate::scheduler::bell::{BELL_BYTES, Bell};
use crate::scheduler::threads::Threads;

/// Limit for one attempt at one address.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Pause between rounds of attempts. Rounds are rare, because a process listens before it publishes
/// its address.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Network {
    endpoint: Weak<dyn Endpoint>,
    opened: OnceLock<Result<OpenedNetwork, Failure>>,
    pub(crate) pending: Arc<PendingTransfers>,
    pub(crate) threads: Threads,
    /// Signalled when a link is ready or has failed. Used with the machine's state lock.
    pub(crate) linked: Condvar,
    /// This process's store for its peers.
    shared: OnceLock<Option<SharedMemory>>,
}

#[derive(Debug)]
struct SharedMemory {
    memory: PeerMemory,
    lane: StoreAddress,
    bell: Arc<Bell>,
}

#[derive(Debug)]
struct OpenedNetwork {
    process: ProcessAddress,
    listener: TcpListener,
}

impl Network {
    /// Sockets are opened only when they are needed.
    pub(crate) fn new(endpoint: Weak<dyn Endpoint>, pending: &Arc<PendingTransfers>) -> Self {
        let pending = Arc::clone(pending);
        Self {
            endpoint,
            opened: OnceLock::new(),
            pending,
            threads: Threads::default(),
            linked: Condvar::new(),
            shared: OnceLock::new(),
        }
    }

    /// The first call starts listening.
    pub(crate) fn process(&self) -> Result<&ProcessAddress, Failure> {
        let opened = self.opened.get_or_init(|| self.open());
        opened.as_ref().map(|opened| &opened.process).map_err(Clone::clone)
    }

    fn open(&self) -> Result<OpenedNetwork, Failure> {
        let failed = |what: &str, error: &io::Error| {
            Failure::new(code::HCCL_NETWORK, format!("cannot {what} for ranks of other processes: {error}"))
        };
        let addresses = host::addresses()?;
        // Both address families where the system supports them.
        let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
        let listener = listener.map_err(|error| failed("listen", &error))?;
        let port = listener.local_addr().map_err(|error| failed("listen", &error))?.port();
        let mut random = [0_u8; 24];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| failed("draw random numbers", &error.into()))?;
        let (id, secret) = random.split_at(16);
        let process = ProcessAddress {
            id: number(id),
            pid: std::process::id(),
            host: host::name(),
            host_id: host::id(),
            addresses,
            port,
            secret: number(secret) as u64,
        };
        let accepting = listener.try_clone().map_err(|error| failed("listen", &error))?;
        let (endpoint, secret) = (Weak::clone(&self.endpoint), process.secret);
        let accept = move || listener::accept(&accepting, secret, &endpoint);
        let thread = std::thread::Builder::new().name("ascend-link-accept".into()).spawn(accept);
        thread.map_err(|error| failed("start a thread", &error))?;
        Ok(OpenedNetwork { process, listener })
    }

    pub(crate) fn join(
        &self,
        at: &ProcessAddress,
        root: u64,
        caller: Caller,
        deadline: Instant,
    ) -> Result<Roster, Failure> {
        let who = format!("rank {}", caller.rank);
        let patience_ms = left(deadline).as_millis() as u64;
        let socket = connect(at, deadline).map_err(|error| unreachable_process(&who, at, &error))?;
        let wish = ConnectionPurpose::Join { root, caller, patience_ms };
        let lost = |error: io::Error| {
            let what = format!(
                "{who}: {at}, which made the root info, died or left while the ranks gathered: {error}"
            );
            Failure::new(code::HCCL_REMOTE, what)
        };
        let answer = ask(&socket, at, &wish, left(deadline) + GRACE).map_err(lost)?;
        match answer {
            FormationAnswer::Complete(roster) => Ok(roster),
            FormationAnswer::Refused(reason) => Err(reason.into_failure()),
        }
    }

    pub(crate) fn link_to(
        &self,
        peer: &ProcessAddress,
        who: &str,
        deadline: Instant,
    ) -> Result<Arc<PeerLink>, Failure> {
        let own = self.process()?;
        let socket = connect(peer, deadline).map_err(|error| unreachable_process(who, peer, &error))?;
        let lane = self.offer_lane(peer);
        let welcome =
            ask(&socket, peer, &ConnectionPurpose::Link { process: own.clone(), lane }, left(deadline));
        match welcome.map_err(|error| unreachable_process(who, peer, &error))? {
            Welcome::Linked { lane } => self.start_link(peer.clone(), socket, lane),
            Welcome::Refused(reason) => Err(reason.into_failure()),
        }
    }

    pub(crate) fn await_link<'a, T>(&self, state: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
        self.linked.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Processes on other hosts are assumed to listen.
    pub(crate) fn is_reachable(&self, peer: &ProcessAddress) -> bool {
        let Ok(own) = self.process() else { return false };
        if own.host_id != peer.host_id {
            return true;
        }
        let refuses = |address: &IpAddr| {
            let outcome = TcpStream::connect_timeout(&SocketAddr::new(*address, peer.port), ATTEMPT);
            outcome.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        peer.addresses.is_empty() || !peer.addresses.iter().all(refuses)
    }

    /// Returns the shared memory for a peer on the same host. Strict mode checks every access and
    /// shares none.
    fn offer_lane(&self, peer: &ProcessAddress) -> Option<StoreAddress> {
        let endpoint = self.endpoint.upgrade()?;
        let own = self.process().ok()?;
        if own.host_id != peer.host_id || !endpoint.lends_memory() {
            return None;
        }
        // The connection carries the data if there is no shared memory.
        self.shared.get_or_init(|| self.share(endpoint.store()).ok()).as_ref().map(|shared| shared.lane)
    }

    /// Creates the notification word and the thread that handles notifications.
    fn share(&self, store: &PageStore) -> io::Result<SharedMemory> {
        let bell = MemoryPlace { at: store.take(BELL_BYTES)?, len_bytes: BELL_BYTES as u64 };
        let lane = StoreAddress { pid: std::process::id(), fd: store.file().as_raw_fd(), bell };
        let memory = PeerMemory::open(lane)?;
        let words = SharedWords::of(memory.span(bell)?, BELL_BYTES).ok_or(io::ErrorKind::InvalidData)?;
        let bell = Arc::new(Bell::new(words));
        let (heard, endpoint) = (Arc::clone(&bell), Weak::clone(&self.endpoint));
        std::thread::Builder::new().name("ascend-bell".into()).spawn(move || hear(&heard, &endpoint))?;
        Ok(SharedMemory { memory, lane, bell })
    }

    /// Returns `None` if the process shares no memory.
    pub(crate) fn bell(&self) -> Option<&Arc<Bell>> {
        self.shared.get()?.as_ref().map(|shared| &shared.bell)
    }

    /// Peers can access this zeroed memory. It remains as long as any peer maps it, even after this
    /// process ends.
    pub(crate) fn take_shared(&self, len_bytes: usize) -> io::Result<(MemoryPlace, RawSpan)> {
        let endpoint = self.endpoint.upgrade().ok_or(io::ErrorKind::NotFound)?;
        let store = endpoint.store();
        let shared = self.shared.get().and_then(Option::as_ref).ok_or(io::ErrorKind::NotFound)?;
        let place = MemoryPlace { at: store.take(len_bytes)?, len_bytes: len_bytes as u64 };
        Ok((place, shared.memory.span(place)?))
    }

    fn start_link(
        &self,
        peer: ProcessAddress,
        socket: TcpStream,
        lane: Option<StoreAddress>,
    ) -> Result<Arc<PeerLink>, Failure> {
        let failed = |error: io::Error| {
            Failure::new(code::HCCL_NETWORK, format!("cannot link with another process: {error}"))
        };
        let Some(endpoint) = self.endpoint.upgrade() else {
            return Err(Failure::new(code::HCCL_INTERNAL, "the machine ends"));
        };
        // The connection carries the data if the peer's memory cannot be opened.
        let memory = lane.and_then(|lane| {
            let memory = PeerMemory::open(lane).ok()?;
            let bell = SharedWords::of(memory.span(lane.bell).ok()?, BELL_BYTES)?;
            Some((memory, Bell::new(bell)))
        });
        let link = PeerLink::start(peer, socket, memory, endpoint.patience()).map_err(failed)?;
        let socket = link.reader().map_err(failed)?;
        self.pending.meet(link.peer.id);
        endpoint.add_link(&link);
        let threads = reader::start(&link, socket, &self.endpoint);
        if let Err(error) = threads {
            link.close();
            return Err(failed(error));
        }
        Ok(link)
    }

    /// Accepts a link: the listening side of [`Network::link_to`].
    pub(crate) fn welcome(
        &self,
        peer: ProcessAddress,
        lane: Option<StoreAddress>,
        mut socket: TcpStream,
    ) -> io::Result<()> {
        let welcome = Welcome::Linked { lane: self.offer_lane(&peer) };
        socket.write_all(&wire::frame(&welcome, 0))?;
        let _ = self.start_link(peer, socket, lane);
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(bell) = self.bell() {
            bell.nudge();
        }
        if let Some(Ok(opened)) = self.opened.get() {
            let _ = rustix::net::shutdown(&opened.listener, rustix::net::Shutdown::Both);
        }
    }
}

/// Used while no thread of the program waits. Ends with the machine.
fn hear(bell: &Bell, endpoint: &Weak<dyn Endpoint>) {
    crate::scheduler::thread::is_of_machine();
    let mut seen = 0;
    loop {
        bell.await_unheard(seen);
        seen = bell.unheard();
        let Some(endpoint) = endpoint.upgrade() else { return };
        endpoint.read_tables();
    }
}

fn ask<T: for<'a> Deserialize<'a>>(
    mut socket: &TcpStream,
    to: &ProcessAddress,
    wish: &ConnectionPurpose,
    patience: Duration,
) -> io::Result<T> {
    let hello = Hello { magic: wire::MAGIC, version: wire::VERSION, secret: to.secret };
    socket.set_write_timeout(Some(HELLO_PATIENCE))?;
    socket.set_read_timeout(Some(patience.max(ATTEMPT)))?;
    socket.write_all(&wire::frame(&hello, 0))?;
    socket.write_all(&wire::frame(wish, 0))?;
    wire::read(&mut socket, &mut Vec::new())
}

/// A refused connection means that a process on the same host has ended; on another host, a route
/// may still appear.
fn connect(to: &ProcessAddress, deadline: Instant) -> io::Result<TcpStream> {
    let is_here = to.host_id == host::id();
    loop {
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "it gave no address");
        for address in &to.addresses {
            let attempt = left(deadline).clamp(Duration::from_millis(1), ATTEMPT);
            match TcpStream::connect_timeout(&SocketAddr::new(*address, to.port), attempt) {
                Ok(socket) => return Ok(socket),
                Err(error) => {
                    last = io::Error::new(error.kind(), format!("{address} port {}: {error}", to.port));
                }
            }
        }
        if left(deadline).is_zero() || (is_here && last.kind() == io::ErrorKind::ConnectionRefused) {
            return Err(last);
        }
        std::thread::sleep(PAUSE.min(left(deadline)));
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

fn unreachable_process(who: &str, process: &ProcessAddress, error: &io::Error) -> Failure {
    let ports: Vec<String> = process.addresses.iter().map(ToString::to_string).collect();
    let what = format!(
        "{who} cannot reach {process} at {} port {}: {error}; HCCL_IF_IP or HCCL_SOCKET_IFNAME on that host chooses \
         another address",
        ports.join(", "),
        process.port
    );
    Failure::new(code::HCCL_TCP_CONNECT, what)
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
}
