//! Interface between a network and its machine.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use super::connection::PeerLink;
use super::wire::{Caller, ProcessAddress, WireMessage};
use crate::base::failure::Failure;
use crate::memory::pages::PageStore;
use crate::memory::peer::StoreAddress;

/// A connection must send a valid handshake within this time.
pub(super) const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// Time beyond a rank's deadline for the answer that names the absent ranks.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// The machine, as its network sees it.
pub(crate) trait Endpoint: std::fmt::Debug + Send + Sync {
    fn store(&self) -> &Arc<PageStore>;

    /// Allows processes of this host direct access to the store. Strict mode checks every access
    /// and refuses.
    fn lends_memory(&self) -> bool;

    /// Maximum time for which a peer may accept no data.
    fn patience(&self) -> Duration;

    fn welcome(&self, peer: ProcessAddress, lane: Option<StoreAddress>, socket: TcpStream) -> io::Result<()>;

    fn add_link(&self, link: &Arc<PeerLink>);

    fn lose_link(&self, link: &Arc<PeerLink>, error: &io::Error);

    fn receive(&self, link: &Arc<PeerLink>, message: WireMessage, payload: &mut [u8]);

    fn gather_remote(&self, root: u64, caller: &Caller, reply: TcpStream) -> Option<u64>;

    /// The process died (`why`), or the deadline has passed.
    fn end_waiting(&self, root: u64, ticket: u64, why: Option<Failure>);

    fn read_tables(&self);
}
