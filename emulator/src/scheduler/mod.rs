//! Scheduling: execution of ready work, sleeping threads, and wake-ups.
//!
//! Invariants:
//! - In strict and timed mode, a conductor decides at one turnstile, when every thread is quiet.

pub(crate) mod alarm;
pub(crate) mod bell;
pub(crate) mod conductor;
pub(crate) mod done;
pub(crate) mod launch;
pub(crate) mod pool;
pub(crate) mod queues;
pub(crate) mod quiet;
pub(crate) mod ran;
pub(crate) mod ready;
pub(crate) mod spin;
pub(crate) mod strangers;
pub(crate) mod stream_wait;
pub(crate) mod stream_waits;
pub(crate) mod synchronize;
pub(crate) mod thread;
pub(crate) mod threads;
pub(crate) mod timer;
pub(crate) mod turnstile;
pub(crate) mod wait;
pub(crate) mod watch;
