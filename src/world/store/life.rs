//! Detects processes that no longer run.
//!
//! Invariants: time is counted in ticks of the observing process, so a process that was itself
//! stopped does not blame others. A process under a debugger is ignored. A link that recovers
//! within five seconds is no failure.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::wire::Peer;

pub(super) const TICK: Duration = Duration::from_millis(250);

pub(super) const PULSE_TICKS: u32 = 4;

const STOPPED_TICKS: u32 = 4;

const SILENT_TICKS: u32 = 20;

#[derive(Debug, Default)]
pub(super) struct Life {
    silent: AtomicU32,
    stopped: AtomicU32,
}

impl Life {
    pub(super) fn heard(&self) {
        self.silent.store(0, Ordering::Relaxed);
    }

    /// Returns the reason to give up the process, if any. `host_id` is the observer's.
    pub(super) fn tick(&self, peer: &Peer, host_id: &str) -> Option<String> {
        if peer.host_id == host_id && is_stopped(peer.process_id) {
            let ticks = self.stopped.fetch_add(1, Ordering::Relaxed) + 1;
            // A stopped process sends no signs of life.
            self.heard();
            return (ticks >= STOPPED_TICKS).then(|| {
                let id = peer.process_id;
                format!(
                    "the process is stopped (SIGSTOP): end it with kill -KILL {id}, and start the job again"
                )
            });
        }
        self.stopped.store(0, Ordering::Relaxed);
        let ticks = self.silent.fetch_add(1, Ordering::Relaxed) + 1;
        (ticks >= SILENT_TICKS).then(|| {
            let seconds = TICK.as_secs_f64() * f64::from(SILENT_TICKS);
            format!("no message from the process for {seconds} s: its host or link is down, or it hangs")
        })
    }
}

/// Stopped by a signal and running the same program. In another namespace, the id belongs to
/// another process.
fn is_stopped(process_id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process_id}/stat")).unwrap_or_default();
    // The name in parentheses may contain any character.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    let program = |process: &str| fs::read_link(format!("/proc/{process}/exe")).ok();
    state == Some('T') && program(&process_id.to_string()).is_some_and(|other| Some(other) == program("self"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host_id: &str) -> Peer {
        Peer {
            rank: 1,
            size: 2,
            process_id: std::process::id(),
            host: "h".to_owned(),
            host_id: host_id.to_owned(),
            local_rank: None,
            card: None,
            physical_card: None,
        }
    }

    #[test]
    fn five_seconds_of_silence_end_a_process_and_a_word_begins_them_anew() {
        let life = Life::default();
        for host in ["here", "there"] {
            for _ in 0..3 {
                assert!((1..SILENT_TICKS).all(|_| life.tick(&peer(host), "here").is_none()));
                life.heard();
            }
            assert!((1..SILENT_TICKS).all(|_| life.tick(&peer(host), "here").is_none()));
            assert!(
                life.tick(&peer(host), "here").unwrap().starts_with("no message from the process for 5 s")
            );
            life.heard();
        }
    }

    #[test]
    fn this_process_moves() {
        assert!(!is_stopped(std::process::id()));
        assert!(!is_stopped(u32::MAX));
    }
}
