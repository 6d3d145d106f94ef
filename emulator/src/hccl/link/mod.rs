//! Links: how processes find, reach and talk to each other, and notice each other's death.
//!
//! Input: addresses from a root info or a roster. Output: one [`Link`] per pair of processes, whose messages reach
//! the machine as its [`Endpoint`] and whose data reaches the [`Board`]. Parts: `wire` is the protocol, `host` says who and where
//! this host is, `listener` takes connections, `connection` and `reader` are the two directions of one link, `bell` wakes a
//! process for what happens in memory it shares, `board` matches data with who waits for it, `threads` keeps threads for
//! running collectives. Invariants: ports are the system's choice; a connection that does not know this process's
//! secret is dropped unheard; of two processes the one with the greater id connects, so there is one link a pair.
//! Does not: know what a collective is.

pub(crate) mod board;
pub(crate) mod connection;
pub(crate) mod endpoint;
pub(crate) mod host;
mod listener;
mod reader;
pub(crate) mod wire;

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use board::Board;
use connection::Link;
use endpoint::{Endpoint, GRACE, HELLO_PATIENCE};
use serde::Deserialize;
use wire::{Answer, Caller, ConnectionPurpose, Hello, Process, Roster, Welcome};

use crate::base::failure::{Failure, code};
use crate::memory::pages::Store;
use crate::memory::peer::PeerMemory;
use crate::memory::peer::StoreAddress;
use crate::memory::place::Place;
use crate::memory::raw::RawSpan;
use crate::memory::shared_words::SharedWords;
use crate::scheduler::bell::{BELL_BYTES, Bell};
use crate::scheduler::threads::Threads;

/// How long one attempt to reach one address may take.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Between rounds of attempts; the listener is there before anyone is told of it, so rounds are rare.
const PAUSE: Duration = Duration::from_millis(50);

/// One machine's part in the network.
#[derive(Debug)]
pub(crate) struct Network {
    endpoint: Weak<dyn Endpoint>,
    opened: OnceLock<Result<OpenedNetwork, Failure>>,
    /// Transfers of running collectives.
    pub(crate) board: Arc<Board>,
    /// Threads of running collectives with ranks elsewhere.
    pub(crate) threads: Threads,
    /// Signalled when a link is there, or will not be; goes with the machine's state.
    pub(crate) linked: Condvar,
    /// This process's own store as its peers see it.
    shared: OnceLock<Option<SharedMemory>>,
}

/// Memory of this process that its peers reach.
#[derive(Debug)]
struct SharedMemory {
    memory: PeerMemory,
    lane: StoreAddress,
    bell: Arc<Bell>,
}

#[derive(Debug)]
struct OpenedNetwork {
    process: Process,
    listener: TcpListener,
}

impl Network {
    /// A network that opens nothing until it is needed.
    pub(crate) fn new(endpoint: Weak<dyn Endpoint>, board: &Arc<Board>) -> Self {
        let board = Arc::clone(board);
        Self {
            endpoint,
            opened: OnceLock::new(),
            board,
            threads: Threads::default(),
            linked: Condvar::new(),
            shared: OnceLock::new(),
        }
    }

    /// This process as others know it; listens from the first call on.
    ///
    /// # Errors
    /// The host has no usable address, or the system refuses a socket or a thread.
    pub(crate) fn process(&self) -> Result<&Process, Failure> {
        let opened = self.opened.get_or_init(|| self.open());
        opened.as_ref().map(|opened| &opened.process).map_err(Clone::clone)
    }

    fn open(&self) -> Result<OpenedNetwork, Failure> {
        let failed = |what: &str, error: &io::Error| {
            Failure::new(code::HCCL_NETWORK, format!("cannot {what} for ranks of other processes: {error}"))
        };
        let addresses = host::addresses()?;
        // Both families where the system has both.
        let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
        let listener = listener.map_err(|error| failed("listen", &error))?;
        let port = listener.local_addr().map_err(|error| failed("listen", &error))?.port();
        let mut random = [0_u8; 24];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| failed("draw random numbers", &error.into()))?;
        let (id, secret) = random.split_at(16);
        let process = Process {
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

    /// Comes to the gathering `root` of the process `at` and waits for its end.
    ///
    /// # Errors
    /// Nobody is there, or the gathering failed.
    pub(crate) fn join(&self, at: &Process, root: u64, caller: Caller, deadline: Instant) -> Result<Roster, Failure> {
        let who = format!("rank {}", caller.rank);
        let patience_ms = left(deadline).as_millis() as u64;
        let socket = connect(at, deadline).map_err(|error| unreachable_process(&who, at, &error))?;
        let wish = ConnectionPurpose::Join { root, caller, patience_ms };
        let lost = |error: io::Error| {
            let what = format!("{who}: {at}, which made the root info, died or left while the ranks gathered: {error}");
            Failure::new(code::HCCL_REMOTE, what)
        };
        let answer = ask(&socket, at, &wish, left(deadline) + GRACE).map_err(lost)?;
        match answer {
            Answer::Complete(roster) => Ok(roster),
            Answer::Refused(reason) => Err(reason.into_failure()),
        }
    }

    /// Connects to a process that listens.
    ///
    /// # Errors
    /// It cannot be reached before the deadline, or refuses.
    pub(crate) fn link_to(&self, peer: &Process, who: &str, deadline: Instant) -> Result<Arc<Link>, Failure> {
        let own = self.process()?;
        let socket = connect(peer, deadline).map_err(|error| unreachable_process(who, peer, &error))?;
        let lane = self.offer_lane(peer);
        let welcome = ask(&socket, peer, &ConnectionPurpose::Link { process: own.clone(), lane }, left(deadline));
        match welcome.map_err(|error| unreachable_process(who, peer, &error))? {
            Welcome::Linked { lane } => self.start_link(peer.clone(), socket, lane),
            Welcome::Refused(reason) => Err(reason.into_failure()),
        }
    }

    /// Sleeps until a link is there or `limit` is over.
    pub(crate) fn await_link<'a, T>(&self, state: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
        self.linked.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Whether a process on this host still listens; one on another host is given the benefit of the doubt.
    pub(crate) fn is_reachable(&self, peer: &Process) -> bool {
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

    /// This process's memory for a peer on the same host. Strict mode watches every access, and keeps its own.
    fn offer_lane(&self, peer: &Process) -> Option<StoreAddress> {
        let endpoint = self.endpoint.upgrade()?;
        let own = self.process().ok()?;
        if own.host_id != peer.host_id || !endpoint.lends_memory() {
            return None;
        }
        // Without memory to share the connection carries the data.
        self.shared.get_or_init(|| self.share(endpoint.store()).ok()).as_ref().map(|shared| shared.lane)
    }

    /// This process's memory for its peers, with the bell they ring and the thread that hears it when nobody else does.
    fn share(&self, store: &Store) -> io::Result<SharedMemory> {
        let bell = Place { at: store.take(BELL_BYTES)?, len_bytes: BELL_BYTES as u64 };
        let lane = StoreAddress { pid: std::process::id(), fd: store.file().as_raw_fd(), bell };
        let memory = PeerMemory::open(lane)?;
        let words = SharedWords::of(memory.span(bell)?, BELL_BYTES).ok_or(io::ErrorKind::InvalidData)?;
        let bell = Arc::new(Bell::new(words));
        let (heard, endpoint) = (Arc::clone(&bell), Weak::clone(&self.endpoint));
        std::thread::Builder::new().name("ascend-bell".into()).spawn(move || hear(&heard, &endpoint))?;
        Ok(SharedMemory { memory, lane, bell })
    }

    /// The bell of this process; None when it shares no memory.
    pub(crate) fn bell(&self) -> Option<&Arc<Bell>> {
        self.shared.get()?.as_ref().map(|shared| &shared.bell)
    }

    /// `len_bytes` of memory that this process's peers reach, all zero. It stays as long as any of them can look at it, even
    /// beyond the end of this process.
    ///
    /// # Errors
    /// The system has none, or this process shares none.
    pub(crate) fn take_shared(&self, len_bytes: usize) -> io::Result<(Place, RawSpan)> {
        let endpoint = self.endpoint.upgrade().ok_or(io::ErrorKind::NotFound)?;
        let store = endpoint.store();
        let shared = self.shared.get().and_then(Option::as_ref).ok_or(io::ErrorKind::NotFound)?;
        let place = Place { at: store.take(len_bytes)?, len_bytes: len_bytes as u64 };
        Ok((place, shared.memory.span(place)?))
    }

    /// Starts the threads of a link and makes it known.
    fn start_link(&self, peer: Process, socket: TcpStream, lane: Option<StoreAddress>) -> Result<Arc<Link>, Failure> {
        let failed =
            |error: io::Error| Failure::new(code::HCCL_NETWORK, format!("cannot link with another process: {error}"));
        let Some(endpoint) = self.endpoint.upgrade() else {
            return Err(Failure::new(code::HCCL_INTERNAL, "the machine ends"));
        };
        // With a peer whose memory cannot be opened data goes over the connection.
        let memory = lane.and_then(|lane| {
            let memory = PeerMemory::open(lane).ok()?;
            let bell = SharedWords::of(memory.span(lane.bell).ok()?, BELL_BYTES)?;
            Some((memory, Bell::new(bell)))
        });
        let link = Link::start(peer, socket, memory, endpoint.patience()).map_err(failed)?;
        let socket = link.reader().map_err(failed)?;
        self.board.meet(link.peer.id);
        endpoint.add_link(&link);
        let threads = reader::start(&link, socket, &self.endpoint);
        if let Err(error) = threads {
            link.close();
            return Err(failed(error));
        }
        Ok(link)
    }

    /// The listening side of [`Network::link_to`].
    pub(crate) fn welcome(&self, peer: Process, lane: Option<StoreAddress>, mut socket: TcpStream) -> io::Result<()> {
        let welcome = Welcome::Linked { lane: self.offer_lane(&peer) };
        socket.write_all(&wire::frame(&welcome, 0))?;
        // The peer finds the connection ended if this fails.
        let _ = self.start_link(peer, socket, lane);
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(bell) = self.bell() {
            // Wakes the thread that hears it, which then ends.
            bell.nudge();
        }
        if let Some(Ok(opened)) = self.opened.get() {
            // Wakes the accepting thread, which then ends.
            let _ = rustix::net::shutdown(&opened.listener, rustix::net::Shutdown::Both);
        }
    }
}

/// Looks at shared memory whenever the bell rings and no thread of the program listens; ends with the machine.
fn hear(bell: &Bell, endpoint: &Weak<dyn Endpoint>) {
    crate::scheduler::thread::is_of_machine();
    let mut seen = 0;
    loop {
        bell.await_unheard(seen);
        seen = bell.unheard();
        let Some(endpoint) = endpoint.upgrade() else { return };
        endpoint.look_at_tables();
    }
}

/// Says hello and reads the answer.
fn ask<T: for<'a> Deserialize<'a>>(
    mut socket: &TcpStream,
    to: &Process,
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

/// Tries the addresses of a process until one answers. On one host an address that refuses says that the process is
/// gone; elsewhere a route may still appear.
fn connect(to: &Process, deadline: Instant) -> io::Result<TcpStream> {
    let is_here = to.host_id == host::id();
    loop {
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "it gave no address");
        for address in &to.addresses {
            let attempt = left(deadline).clamp(Duration::from_millis(1), ATTEMPT);
            match TcpStream::connect_timeout(&SocketAddr::new(*address, to.port), attempt) {
                Ok(socket) => return Ok(socket),
                Err(error) => last = io::Error::new(error.kind(), format!("{address} port {}: {error}", to.port)),
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

fn unreachable_process(who: &str, process: &Process, error: &io::Error) -> Failure {
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
