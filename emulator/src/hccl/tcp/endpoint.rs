//! Interface between a network and its machine.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use super::connection::Link;
use super::wire::{Caller, Message, Process};
use crate::base::failure::Failure;
use crate::memory::pages::Store;
use crate::memory::peer::StoreAddress;

/// Time after which a connection without a valid handshake is dropped.
pub(super) const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// Extra time that a rank waits beyond its deadline for the answer that names the absent ranks.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// The machine, as its network sees it.
pub(crate) trait Endpoint: std::fmt::Debug + Send + Sync {
    fn store(&self) -> &Arc<Store>;

    /// Returns whether processes of this host may access the store directly. Strict mode checks
    /// every access and does not share its memory.
    fn lends_memory(&self) -> bool;

    /// Returns how long a peer may accept no data.
    fn patience(&self) -> Duration;

    /// Accepts a link that another process requests.
    ///
    /// # Errors
    /// The connection has ended.
    fn welcome(&self, peer: Process, lane: Option<StoreAddress>, socket: TcpStream) -> io::Result<()>;

    fn add_link(&self, link: &Arc<Link>);

    fn lose_link(&self, link: &Arc<Link>, error: &io::Error);

    fn receive(&self, link: &Arc<Link>, message: Message, payload: &mut [u8]);

    /// Admits a rank of another process to the rendezvous `root`. Returns its ticket if it must
    /// wait for the answer.
    fn gather_remote(&self, root: u64, caller: &Caller, reply: TcpStream) -> Option<u64>;

    /// Ends the wait of a remote rank, because its process died (`why`) or its deadline has passed.
    fn end_waiting(&self, root: u64, ticket: u64, why: Option<Failure>);

    /// Handles changes that other processes made in shared memory.
    fn read_tables(&self);
}
