//! The storm: a sequence of programs within a time limit.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::random::scramble;
use crate::shrink::{Excerpt, shrink};
use crate::supervise::{StormFinding, Supervisor};

/// Summary of a storm.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    pub programs: u64,
    /// Number of steps, each counted once per executing rank.
    pub steps: u64,
    /// Number of programs with findings.
    pub findings: u64,
}

/// A program that failed.
#[derive(Debug, Clone)]
pub struct StormFailure {
    pub whole: Excerpt,
    /// The smallest failing part.
    pub least: Excerpt,
    /// Findings of the whole program.
    pub findings: Vec<StormFinding>,
}

/// Limits of a storm.
#[derive(Debug, Clone)]
pub struct Storm {
    /// Seed of the programs.
    pub seed: u64,
    /// Time after which no program is started.
    pub time: Duration,
    /// Maximum number of programs.
    pub most: u64,
    /// Time limit for shortening a failing program.
    pub shrink: Duration,
}

/// The first program uses the seed of the storm.
fn program_seed(seed: u64, index: u64) -> u64 {
    if index == 0 { seed } else { scramble(seed.wrapping_add(index)) >> 16 }
}

/// Returns the kind of finding to look for in shorter programs; wrong bytes come first.
fn gravest(findings: &[StormFinding]) -> &str {
    let of = |kind: &str| findings.iter().find(|finding| kind.is_empty() || finding.kind == kind);
    ["bytes", "report", "crash", ""].into_iter().find_map(of).map_or("", |finding| &finding.kind)
}

impl Storm {
    /// Runs the storm. `before` is called for every program, `tell` for every failure.
    ///
    /// # Errors
    /// Processes cannot be started.
    pub fn run(
        &self,
        binary: PathBuf,
        mut before: impl FnMut(u64, u64),
        mut tell: impl FnMut(&StormFailure),
    ) -> Result<Tally> {
        let (supervisor, until) = (Supervisor { binary }, Instant::now() + self.time);
        let mut tally = Tally::default();
        while Instant::now() < until && tally.programs < self.most {
            let seed = program_seed(self.seed, tally.programs);
            before(tally.programs, seed);
            tally.programs += 1;
            let whole = Excerpt::whole(seed);
            tally.steps += whole.program().size();
            if let Some(failure) = self.attempt(&supervisor, &whole)? {
                tally.findings += 1;
                tell(&failure);
            }
        }
        Ok(tally)
    }

    /// Runs one program; if it fails, searches for a smaller failing program.
    ///
    /// # Errors
    /// Processes cannot be started.
    pub fn attempt(&self, supervisor: &Supervisor, whole: &Excerpt) -> Result<Option<StormFailure>> {
        /// Failures that depend on chance are tried several times.
        const TRIES: usize = 3;
        let findings = supervisor.run(whole)?;
        if findings.is_empty() {
            return Ok(None);
        }
        let kind = gravest(&findings);
        let fails = |cut: &Excerpt| {
            (0..TRIES)
                .any(|_| supervisor.run(cut).unwrap_or_default().iter().any(|finding| finding.kind == kind))
        };
        let least = shrink(whole, self.shrink, fails);
        Ok(Some(StormFailure { whole: whole.clone(), least, findings }))
    }
}
