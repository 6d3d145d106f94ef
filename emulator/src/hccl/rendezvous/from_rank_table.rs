//! Communicators from a rank table: the ranks share a file instead of a root info.
//!
//! On the host of rank 0, the first rank creates a root info and serves it to the other ranks.
//! Ranks on the same host read it from an abstract Unix socket named after a hash of the table.
//! Ranks on other servers read it from the first free host port of HCCL (`HCCL_IF_BASE_PORT`,
//! 60000, and the 15 ports after it).
//!
//! Invariant: ranks with different tables do not match.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use crate::base::failure::{Failure, code};
use crate::hccl::rendezvous::rank_table::RankTableFile;
use crate::hccl::rendezvous::root_info;
use crate::hccl::tcp::wire::ProcessAddress;
use crate::machine::Machine;

/// HCCL uses at most this many host ports.
const PORTS: u16 = 16;
const FIRST_PORT: u16 = 60_000;
const ATTEMPT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Dropping these sockets ends the service.
struct Handout {
    local: UnixListener,
    network: Option<TcpListener>,
}

impl Drop for Handout {
    fn drop(&mut self) {
        // Wakes the accepting threads, which then end.
        let _ = rustix::net::shutdown(&self.local, rustix::net::Shutdown::Both);
        if let Some(network) = &self.network {
            let _ = rustix::net::shutdown(network, rustix::net::Shutdown::Both);
        }
    }
}

fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn first_port() -> Result<u16, Failure> {
    let Ok(text) = std::env::var("HCCL_IF_BASE_PORT") else { return Ok(FIRST_PORT) };
    let port = text.trim().parse().ok().filter(|port| (1024..=65_520).contains(port));
    port.ok_or_else(|| {
        let what = format!("HCCL_IF_BASE_PORT is {text:?}; expected a number from 1024 to 65520");
        Failure::new(code::HCCL_PARA, what)
    })
}

fn hand_out(mut stream: impl Read + Write, digest: u64, info: &[u8]) -> io::Result<()> {
    let mut said = [0; 8];
    stream.read_exact(&mut said)?;
    if said == digest.to_le_bytes() { stream.write_all(info) } else { Ok(()) }
}

fn ask(mut stream: impl Read + Write, digest: u64) -> io::Result<(ProcessAddress, u64)> {
    stream.write_all(&digest.to_le_bytes())?;
    let mut info = Vec::new();
    stream.read_to_end(&mut info)?;
    root_info::decode(&info).map_err(|failure| io::Error::new(io::ErrorKind::InvalidData, failure.message))
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::new(code::HCCL_NETWORK, format!("cannot {what} for the ranks of a rank table: {error}"))
}

impl Machine {
    /// Returns the handle of this rank. Fails if the table does not place this rank on this device.
    pub(crate) fn gather_by_table(
        &self,
        text: &str,
        rank: u32,
        card: u32,
        name: Option<String>,
    ) -> Result<u64, Failure> {
        let table = RankTableFile::parse(text)?;
        let world = table.ranks.len() as u32;
        let invalid = |what: String| Failure::new(code::HCCL_PARA, what);
        let Some(entry) = table.ranks.get(rank as usize) else {
            return Err(invalid(format!(
                "rank {rank} is not in the rank table, which has ranks 0 to {}",
                world - 1
            )));
        };
        if entry.device != card {
            let what = format!(
                "rank {rank} is on device {} in the rank table, but device {card} is set",
                entry.device
            );
            return Err(invalid(what));
        }
        if self.timed().is_some() && !table.is_one_server() {
            let what = "the rank table names several servers, but in timed mode all ranks of a communicator are threads of \
                        one process with one clock; remove `timed`";
            return Err(Failure::new(code::HCCL_NOT_SUPPORT, what));
        }
        let deadline = Instant::now() + self.config().connect_timeout;
        let digest = digest(text);
        if entry.server != table.ranks[0].server {
            let (at, root) = find_elsewhere(&table, rank, digest, deadline)?;
            return self.gather(&at, root, world, rank, card, name);
        }
        // Two jobs of one user with the same table want the same devices. The second job fails,
        // because its rank is already present. Jobs of other users have different sockets.
        let user = rustix::process::getuid().as_raw();
        let name_of_socket = format!("ascend-emulator-{user}-{digest:016x}");
        let address = LocalAddr::from_abstract_name(&name_of_socket)
            .map_err(|error| failed("name a socket", &error))?;
        loop {
            match UnixListener::bind_addr(&address) {
                Ok(local) => {
                    let process = self.network().process()?.clone();
                    let root = self.update(|state| state.issue_root());
                    let info = root_info::encode(&process, root)?;
                    let _handout = start_handout(local, digest, info, table.is_one_server())?;
                    return self.gather(&process, root, world, rank, card, name);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(failed("listen", &error)),
            }
            // The serving process may be starting or ending, so try both roles again.
            if let Ok((at, root)) = UnixStream::connect_addr(&address).and_then(|stream| ask(stream, digest))
            {
                return self.gather(&at, root, world, rank, card, name);
            }
            if Instant::now() >= deadline {
                return Err(Failure::new(
                    code::HCCL_TIMEOUT,
                    "the first rank of the rank table does not answer",
                ));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Serves until the returned value is dropped.
fn start_handout(
    local: UnixListener,
    digest: u64,
    info: [u8; root_info::BYTES],
    is_one_server: bool,
) -> Result<Handout, Failure> {
    let network = if is_one_server { None } else { Some(bind_free_port()?) };
    let listening = local.try_clone().map_err(|error| failed("listen", &error))?;
    let spawn = |body: Box<dyn FnOnce() + Send>| {
        let thread = std::thread::Builder::new().name("ascend-rank-table".into()).spawn(body);
        thread.map(drop).map_err(|error| failed("start a thread", &error))
    };
    spawn(Box::new(move || {
        while let Ok((stream, _)) = listening.accept() {
            let _ = stream.set_read_timeout(Some(ATTEMPT));
            let _ = hand_out(stream, digest, &info);
        }
    }))?;
    if let Some(network) = &network {
        let listening = network.try_clone().map_err(|error| failed("listen", &error))?;
        spawn(Box::new(move || {
            while let Ok((stream, _)) = listening.accept() {
                let _ = stream.set_read_timeout(Some(ATTEMPT));
                let _ = hand_out(stream, digest, &info);
            }
        }))?;
    }
    Ok(Handout { local, network })
}

fn bind_free_port() -> Result<TcpListener, Failure> {
    let first = first_port()?;
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in first..first.saturating_add(PORTS) {
        match TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port))) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(failed(&format!("listen on a port from {first} on (HCCL_IF_BASE_PORT)"), &last))
}

fn find_elsewhere(
    table: &RankTableFile,
    rank: u32,
    digest: u64,
    deadline: Instant,
) -> Result<(ProcessAddress, u64), Failure> {
    let root = &table.ranks[0];
    let Some(host) = root.host else {
        let what = format!(
            "rank {rank} is on another server than rank 0, and server {:?} has no address: give it a host_ip, or its \
             address as server_id",
            root.server
        );
        return Err(Failure::new(code::HCCL_PARA, what));
    };
    let first = first_port()?;
    loop {
        let ports = first..first.saturating_add(PORTS);
        if let Some(found) = ports.into_iter().find_map(|port| ask_port(host, port, digest)) {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            let what = format!(
                "rank {rank}: nobody at {host}, the host of rank 0, answers for this rank table on ports {first} to {} \
                 (HCCL_CONNECT_TIMEOUT, HCCL_IF_BASE_PORT)",
                first.saturating_add(PORTS - 1)
            );
            return Err(Failure::new(code::HCCL_TIMEOUT, what));
        }
        std::thread::sleep(PAUSE);
    }
}

fn ask_port(host: IpAddr, port: u16, digest: u64) -> Option<(ProcessAddress, u64)> {
    let stream = TcpStream::connect_timeout(&SocketAddr::new(host, port), ATTEMPT).ok()?;
    stream.set_read_timeout(Some(ATTEMPT)).ok()?;
    ask(stream, digest).ok()
}
