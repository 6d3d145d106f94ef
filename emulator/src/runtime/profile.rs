//! Profiling sessions: validation of calls, without data, because the emulator's times say nothing
//! about a card.
//!
//! Invariants: a card belongs to at most one running configuration, and stop takes the
//! configuration of start (CANN runtime guide, profiling).

use std::collections::BTreeMap;

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;

/// Limits of `aclprofInit` and of marks (CANN runtime guide).
pub(crate) const MAX_PATH_BYTES: usize = 4096;
pub(crate) const MAX_MARK_BYTES: usize = 127;

#[derive(Debug, Default)]
pub(crate) struct Profiling {
    is_open: bool,
    configs: BTreeMap<u64, ProfileConfig>,
}

#[derive(Debug)]
struct ProfileConfig {
    cards: Vec<u32>,
    running: bool,
}

impl Profiling {
    /// Implements `aclprofInit`; fails while a session is open.
    pub(crate) fn open(&mut self) -> Result<(), Failure> {
        if self.is_open {
            let what = "aclprofInit was called before; call aclprofFinalize first";
            return Err(Failure::new(code::REPEAT_INITIALIZE, what));
        }
        self.is_open = true;
        Ok(())
    }

    /// Implements `aclprofFinalize`; fails while a configuration runs.
    pub(crate) fn close(&mut self) -> Result<(), Failure> {
        self.require_open("aclprofFinalize")?;
        if let Some((id, config)) = self.configs.iter().find(|(_, config)| config.running) {
            let what = format!(
                "profiling configuration {id} (cards {:?}) still runs; call aclprofStop with it before aclprofFinalize",
                config.cards
            );
            return Err(Failure::new(code::PROF_ALREADY_RUN, what));
        }
        self.is_open = false;
        Ok(())
    }

    pub(crate) fn create(&mut self, id: u64, cards: Vec<u32>) {
        self.configs.insert(id, ProfileConfig { cards, running: false });
    }

    /// Fails while the configuration runs.
    pub(crate) fn destroy(&mut self, id: u64) -> Result<(), Failure> {
        if self.config(id)?.running {
            let what = format!("profiling configuration {id} still runs; call aclprofStop with it first");
            return Err(Failure::new(code::PROF_ALREADY_RUN, what));
        }
        self.configs.remove(&id);
        Ok(())
    }

    /// Fails if a running configuration contains one of the cards.
    pub(crate) fn start(&mut self, id: u64) -> Result<(), Failure> {
        self.require_open("aclprofStart")?;
        let cards = self.config(id)?.cards.clone();
        let busy = self.configs.iter().filter(|(_, config)| config.running);
        for (other, config) in busy {
            if let Some(card) = cards.iter().find(|card| config.cards.contains(card)) {
                let what = format!(
                    "card {card} of profiling configuration {id} is already profiled by configuration {other}; stop that first"
                );
                return Err(Failure::new(code::PROF_ALREADY_RUN, what));
            }
        }
        self.config(id)?.running = true;
        Ok(())
    }

    pub(crate) fn stop(&mut self, id: u64) -> Result<(), Failure> {
        self.require_open("aclprofStop")?;
        let config = self.config(id)?;
        if !config.running {
            let what = format!(
                "profiling configuration {id} does not run; start and stop take the same configuration"
            );
            return Err(Failure::new(code::PROF_NOT_RUN, what));
        }
        config.running = false;
        Ok(())
    }

    fn require_open(&self, call: &str) -> Result<(), Failure> {
        if self.is_open {
            return Ok(());
        }
        Err(Failure::new(code::PROF_NOT_RUN, format!("{call} before aclprofInit, or after aclprofFinalize")))
    }

    fn config(&mut self, id: u64) -> Result<&mut ProfileConfig, Failure> {
        self.configs.get_mut(&id).ok_or_else(|| HandleKind::ProfilingConfig.gone(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_profiled_once_and_sessions_nest() {
        let mut profiling = Profiling::default();
        profiling.create(1, vec![0, 1]);
        profiling.create(2, vec![1, 2]);
        assert!(profiling.start(1).expect_err("not open").message.contains("before aclprofInit"));
        profiling.open().expect("first");
        assert_eq!(profiling.open().expect_err("second").code, code::REPEAT_INITIALIZE);
        profiling.start(1).expect("free cards");
        assert!(profiling.start(2).expect_err("card 1 is taken").message.contains("card 1"));
        assert!(profiling.stop(2).expect_err("never started").message.contains("does not run"));
        assert!(profiling.close().expect_err("still runs").message.contains("[0, 1]"));
        assert!(profiling.destroy(1).is_err());
        profiling.stop(1).expect("runs");
        profiling.start(2).expect("card 1 is free now");
        profiling.stop(2).expect("runs");
        profiling.destroy(1).expect("stopped");
        profiling.close().expect("nothing runs");
    }
}
