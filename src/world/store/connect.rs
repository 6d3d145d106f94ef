//! Opens the store's listener, and connects to it.
//!
//! Invariants: if a port is taken, the error names the process that holds it. Socket files are in a
//! folder that only this user can enter, and files of dead processes are replaced.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use super::server::{Listener, PATIENCE, StoreServer};
use super::wire::{Peer, Socket};
use crate::world::error::Error;
use crate::world::group::Notice;
use crate::world::place::{MeetingPlace, OVERRIDE};

/// Time between messages about missing ranks.
const FIRST_WORD: Duration = Duration::from_secs(3);
const NEXT_WORD: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Reminder {
    next: Instant,
}

impl Reminder {
    pub(super) fn new(begun: Instant) -> Self {
        Self { next: begun + FIRST_WORD }
    }

    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.next;
        if is_due {
            self.next = now + NEXT_WORD;
        }
        is_due
    }

    pub(super) const fn next(&self) -> Instant {
        self.next
    }
}

pub(super) const RETRY: Duration = Duration::from_millis(20);

pub(super) fn serve(
    place: &MeetingPlace,
    me: &Peer,
    timeout: Duration,
    notice: &Notice,
) -> Result<StoreServer, Error> {
    check_open_files(me.size)?;
    let listener = match place {
        MeetingPlace::Tcp { host, port } => Listener::Tcp(listen(host, *port)?),
        MeetingPlace::Socket { job } => {
            let path = socket_path(job)?;
            Listener::Unix(listen_at(&path)?, path)
        }
        MeetingPlace::Nowhere => {
            return Err(Error::Meeting("a world of one process has no store".to_owned()));
        }
    };
    StoreServer::start(listener, place.to_string(), me, timeout, notice)
        .map_err(|error| Error::Meeting(format!("rank 0: cannot serve at {place}: {error}")))
}

fn listen(host: &str, port: u16) -> Result<TcpListener, Error> {
    // Only a loopback address is bound directly: host names often map to addresses that other hosts
    // cannot reach.
    let loopback = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    let addresses: Vec<SocketAddr> = if loopback {
        (host, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
    } else {
        vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
    };
    let mut failed = io::Error::other("no address");
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            // Do not fall back to the other address family.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let who =
                    holder(port).map_or_else(|| "another process".to_owned(), |who| format!("process {who}"));
                return Err(Error::Meeting(format!(
                    "rank 0: port {port} of this host is taken by {who}: end it, or set MASTER_PORT to a free port on all \
                     ranks ({OVERRIDE}=host:port if a launcher sets MASTER_PORT)"
                )));
            }
            Err(error) => failed = error,
        }
    }
    Err(Error::Meeting(format!("rank 0: cannot listen at {host}:{port}: {failed}")))
}

/// Returns a text such as `4711 (python3)`, if this user may see it.
fn holder(port: u16) -> Option<String> {
    let wanted = format!(":{port:04X}");
    let listening = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&wanted)) && fields.nth(1) == Some("0A")
    };
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        let text = fs::read_to_string(table).ok()?;
        text.lines().find(listening).and_then(|line| line.split_whitespace().nth(9).map(str::to_owned))
    })?;
    let socket = format!("socket:[{inode}]");
    for process in fs::read_dir("/proc").ok()?.flatten() {
        // Skips entries such as `self`.
        let is_process = process.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        let Some(files) = is_process.then(|| fs::read_dir(process.path().join("fd")).ok()).flatten() else {
            continue;
        };
        if files
            .flatten()
            .any(|file| fs::read_link(file.path()).is_ok_and(|link| link.as_os_str() == socket.as_str()))
        {
            let command = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("{} ({})", process.file_name().to_string_lossy(), command.trim()));
        }
    }
    None
}

fn socket_path(job: &str) -> Result<PathBuf, Error> {
    let unusable = |folder: &Path, what: String| Error::Meeting(format!("{}: {what}", folder.display()));
    // The owner of `/proc/self` is the current user.
    let user = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    let folder = runtime.unwrap_or_else(std::env::temp_dir).join(format!("ascend-tp-{user}"));
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(unusable(&folder, format!("cannot be made: {error}"))),
    }
    let found = fs::symlink_metadata(&folder).map_err(|error| unusable(&folder, error.to_string()))?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        let what = format!(
            "is not private: expected a folder of user {user} with mode 700, found one of user {} with mode {:o}",
            found.uid(),
            found.mode() & 0o777
        );
        return Err(unusable(&folder, what));
    }
    // Socket paths must be short, but job names may be long.
    let mut hasher = DefaultHasher::new();
    job.hash(&mut hasher);
    Ok(folder.join(format!("{:016x}.sock", hasher.finish())))
}

fn listen_at(path: &Path) -> Result<UnixListener, Error> {
    let failed = |what: String| Error::Meeting(format!("rank 0: {}: {what}", path.display()));
    if UnixStream::connect(path).is_ok() {
        let what = "another rank 0 of the same job listens here: two processes have rank 0";
        return Err(failed(what.to_owned()));
    }
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(failed(format!("a socket that was left behind cannot be removed: {error}")));
    }
    UnixListener::bind(path).map_err(|error| failed(format!("cannot listen: {error}")))
}

pub(in crate::world) fn check_name(place: &MeetingPlace) -> Result<(), String> {
    let MeetingPlace::Tcp { host, port } = place else { return Ok(()) };
    match (host.as_str(), *port).to_socket_addrs().map(|mut found| found.next()) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(format!(
            "rank 0 is said to be on {host}, a name without an address here: see MASTER_ADDR and {OVERRIDE}"
        )),
        Err(error) => Err(format!(
            "rank 0 is said to be on {host}, a name without an address here ({error}): set MASTER_ADDR (or {OVERRIDE}) to an \
             address, or to a name that this host knows"
        )),
    }
}

/// Fails if the system allows rank 0 too few open files.
pub(super) fn check_open_files(size: usize) -> Result<(), Error> {
    // Each rank's connection has two.
    let needed = FILES_OF_PROGRAM + 2 * size as u64;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => Err(Error::Meeting(format!(
            "rank 0 needs {needed} open files for the connections of {size} ranks: the limit is {limit}; raise it with \
             `ulimit -n {needed}`, or check WORLD_SIZE"
        ))),
        _ => Ok(()),
    }
}

/// Approximate number of open files of rank 0 that are not connections.
const FILES_OF_PROGRAM: u64 = 32;

pub(super) fn connect(
    place: &MeetingPlace,
    rank: usize,
    timeout: Duration,
    notice: &Notice,
) -> Result<Socket, Error> {
    let begun = Instant::now();
    let deadline = begun + timeout;
    let mut told = Reminder::new(begun);
    // The name may get its address later.
    if let Err(what) = check_name(place) {
        notice(&format!("rank {rank}: {what}; trying for {} s", timeout.as_secs()));
    }
    loop {
        let tried = match place {
            MeetingPlace::Tcp { host, port } => reach(host, *port),
            MeetingPlace::Socket { job } => UnixStream::connect(socket_path(job)?).map(Socket::Unix),
            MeetingPlace::Nowhere => Err(io::Error::other("a world of one process has no store")),
        };
        match tried.and_then(|socket| socket.prepare(PATIENCE)) {
            Ok(socket) => return Ok(socket),
            Err(error) if Instant::now() >= deadline => {
                return Err(Error::Meeting(format!(
                    "rank 0 did not answer at {place} within {} s (last: {error}): check that it was started on that \
                     host, and read its output",
                    timeout.as_secs()
                )));
            }
            Err(error) => {
                if told.is_due() {
                    notice(&format!("rank {rank} waits for rank 0 at {place} (last: {error})"));
                }
                std::thread::sleep(RETRY);
            }
        }
    }
}

fn reach(host: &str, port: u16) -> io::Result<Socket> {
    let mut failed = io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(Socket::Tcp(stream)),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_names_its_holder() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let message = listen("127.0.0.1", port).unwrap_err().to_string();
        assert!(
            message
                .contains(&format!("port {port} of this host is taken by process {} (", std::process::id())),
            "{message}"
        );
        assert!(message.contains("set MASTER_PORT to a free port"), "{message}");
    }

    #[test]
    fn ranks_beyond_the_limit_of_open_files_are_refused() {
        assert!(check_open_files(2).is_ok());
        let message = check_open_files(1 << 50).unwrap_err().to_string();
        assert!(
            message.contains("open files for the connections of 1125899906842624 ranks: the limit is "),
            "{message}"
        );
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.sock");
        drop(UnixListener::bind(&path).unwrap());
        let listener = listen_at(&path).unwrap();
        let message = listen_at(&path).unwrap_err().to_string();
        assert!(message.contains("two processes have rank 0"), "{message}");
        drop(listener);
    }
}
