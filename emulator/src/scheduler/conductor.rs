//! The conductor thread decides which thread passes the turnstile, and when.
//!
//! Not here: its policies (see `strict::conductor` and `timed::conductor`).

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::strangers;
use super::thread;
use super::turnstile::Turnstile;
use super::watch;

/// Dropping the conductor closes the turnstile, which releases all threads, and joins the thread.
#[derive(Debug)]
pub(crate) struct Conductor {
    turnstile: Arc<Turnstile>,
    handle: Option<JoinHandle<()>>,
}

impl Conductor {
    /// `conduct` must return when the turnstile is closed.
    pub(crate) fn spawn(
        turnstile: &Arc<Turnstile>,
        conduct: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let begun = Arc::clone(turnstile);
        let body = move || {
            thread::is_of_machine();
            begun.begin();
            conduct();
        };
        let before = strangers::threads();
        let handle = std::thread::Builder::new().name("ascend-conductor".into()).spawn(body)?;
        let began = if watch::is_possible() { strangers::threads() } else { BTreeSet::new() };
        turnstile.is_begun_by(began.difference(&before).copied().collect());
        Ok(Self { turnstile: Arc::clone(turnstile), handle: Some(handle) })
    }
}

impl Drop for Conductor {
    fn drop(&mut self) {
        self.turnstile.close();
        if let Some(handle) = self.handle.take()
            && handle.thread().id() != std::thread::current().id()
        {
            let _ = handle.join();
        }
    }
}
