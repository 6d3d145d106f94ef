//! The listening side of links.
//!
//! Invariants:
//! - Each connection has its own thread and a short timeout, so no connection delays another.
//! - A connection without the right secret receives no data.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Weak;
use std::time::{Duration, Instant};

use super::endpoint::{Endpoint, GRACE, HELLO_PATIENCE};
use super::wire::{self, ConnectionPurpose, FormationAnswer, Hello, Reason};
use crate::base::failure::{Failure, code};

pub(super) fn accept(listener: &TcpListener, secret: u64, endpoint: &Weak<dyn Endpoint>) {
    crate::scheduler::thread::is_of_machine();
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                let endpoint = Weak::clone(endpoint);
                let _ = std::thread::Builder::new()
                    .name("ascend-link-hello".into())
                    .spawn(move || serve(socket, secret, &endpoint));
            }
            Err(_) if endpoint.strong_count() == 0 => return,
            // The connection ended, or no file descriptor is free; the next accept may succeed.
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(_) => return,
        }
    }
}

fn serve(mut socket: TcpStream, secret: u64, weak: &Weak<dyn Endpoint>) -> io::Result<()> {
    crate::scheduler::thread::is_of_machine();
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(HELLO_PATIENCE))?;
    socket.set_write_timeout(Some(HELLO_PATIENCE))?;
    let mut payload = Vec::new();
    let hello: Hello = wire::read(&mut socket, &mut payload)?;
    if hello.magic != wire::MAGIC || hello.secret != secret {
        return Ok(());
    }
    if hello.version != wire::VERSION {
        let what = format!(
            "this process speaks version {} of the emulator's protocol, the other side version {}; use one emulator on \
             all ranks",
            hello.version,
            wire::VERSION
        );
        let refused = FormationAnswer::Refused(Reason::from(&Failure::new(code::HCCL_PARA, what)));
        return socket.write_all(&wire::frame(&refused, 0));
    }
    let wish: ConnectionPurpose = wire::read(&mut socket, &mut payload)?;
    let Some(endpoint) = weak.upgrade() else { return Ok(()) };
    match wish {
        ConnectionPurpose::Link { process, lane } => endpoint.welcome(process, lane, socket),
        ConnectionPurpose::Join { root, caller, patience_ms } => {
            let deadline = Instant::now() + Duration::from_millis(patience_ms);
            let reply = socket.try_clone()?;
            let who = caller.to_string();
            let Some(ticket) = endpoint.gather_remote(root, &caller, reply) else { return Ok(()) };
            drop(endpoint);
            socket.set_read_timeout(Some(
                (deadline.saturating_duration_since(Instant::now())).max(GRACE / 100),
            ))?;
            let failure = match wire::read::<Hello>(&mut socket, &mut payload) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    None
                }
                _ => Some(Failure::new(code::HCCL_REMOTE, format!("{who} died while the ranks gathered"))),
            };
            if let Some(endpoint) = weak.upgrade() {
                endpoint.end_waiting(root, ticket, failure);
            }
            Ok(())
        }
    }
}
