//! Who works, who sleeps, and who is woken.
//!
//! Input: work that has become ready, limits, threads of the program that wait. Output: work run by a pool of one thread a
//! core, limits that end at their time, waiting threads that go on. Invariants: one timer ends every wait; who waits looks
//! for a bounded time and then sleeps; where a conductor decides (strict and timed mode) it decides at one turnstile, when
//! every thread is quiet. Does not: know what the work computes, or what makes an entry of a stream ready.

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
