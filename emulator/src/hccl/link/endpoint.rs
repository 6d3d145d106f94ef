//! What a network asks of the machine it belongs to, and what it tells it.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use super::connection::Link;
use super::wire::{Caller, Message, Process};
use crate::base::failure::Failure;
use crate::memory::pages::Store;
use crate::memory::peer::StoreAddress;

/// A connection that says nothing sensible for so long is dropped.
pub(super) const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// How much longer than its own deadline a rank waits for the answer that names the absent ranks.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// The machine, as its network sees it.
pub(crate) trait Endpoint: std::fmt::Debug + Send + Sync {
    /// The bytes of its cards.
    fn store(&self) -> &Arc<Store>;

    /// Whether processes of this host may reach the store in place. Strict mode watches every access, and keeps its own.
    fn lends_memory(&self) -> bool;

    /// How long a peer may take no data.
    fn patience(&self) -> Duration;

    /// Another process wants to be linked.
    ///
    /// # Errors
    /// It is gone.
    fn welcome(&self, peer: Process, lane: Option<StoreAddress>, socket: TcpStream) -> io::Result<()>;

    /// A link is there.
    fn add_link(&self, link: &Arc<Link>);

    /// A link has ended.
    fn lose_link(&self, link: &Arc<Link>, error: &io::Error);

    /// A message has come, with the data behind it.
    fn receive(&self, link: &Arc<Link>, message: Message, payload: &mut [u8]);

    /// A rank of another process has come to the gathering `root`; its number there, if it has to wait for the answer.
    fn gather_remote(&self, root: u64, caller: &Caller, reply: TcpStream) -> Option<u64>;

    /// A rank of another process waits no longer: it died (`why`), or its time is over.
    fn end_waiting(&self, root: u64, ticket: u64, why: Option<Failure>);

    /// Other processes have changed memory they share with this one.
    fn look_at_tables(&self);
}
