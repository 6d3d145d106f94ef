//! The receiving direction of a link: reads messages and data until the connection ends.
//!
//! Invariants:
//! - Everything a peer wrote before it died is delivered before its death is reported.
//! - The thread waits only for the peer.

use std::io::{self, BufReader, Read};
use std::net::TcpStream;
use std::sync::{Arc, Weak};

use super::connection::PeerLink;
use super::endpoint::Endpoint;
use super::wire::{self, WireMessage};

const BUFFER_BYTES: usize = 64 << 10;

pub(super) fn start(
    link: &Arc<PeerLink>,
    socket: TcpStream,
    endpoint: &Weak<dyn Endpoint>,
) -> io::Result<()> {
    let (linked, weak) = (Arc::clone(link), Weak::clone(endpoint));
    let body = move || {
        let outcome = receive(BufReader::with_capacity(BUFFER_BYTES, socket), &linked, &weak);
        linked.close();
        if let (Err(error), Some(endpoint)) = (outcome, weak.upgrade()) {
            endpoint.lose_link(&linked, &error);
        }
    };
    std::thread::Builder::new().name("ascend-link-read".into()).spawn(body).map(drop)
}

fn receive(mut stream: impl Read, link: &Arc<PeerLink>, endpoint: &Weak<dyn Endpoint>) -> io::Result<()> {
    crate::scheduler::thread::is_of_machine();
    let mut payload = Vec::new();
    loop {
        let message: WireMessage = wire::read(&mut stream, &mut payload)?;
        let Some(endpoint) = endpoint.upgrade() else { return Ok(()) };
        endpoint.receive(link, message, &mut payload);
    }
}
