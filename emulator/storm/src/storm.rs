//! The storm: programs, one after the other, as long as there is time.
//!
//! Input: a first seed, a time, a number of programs. Output: what was run and found. Does not: print (see the binary).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::random::scramble;
use crate::shrink::{Excerpt, shrink};
use crate::supervise::{Finding, Supervisor};

/// What of a storm has been run and found.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    pub programs: u64,
    /// Their steps, each counted for every rank that does it.
    pub steps: u64,
    /// Programs with findings.
    pub findings: u64,
}

/// A program that failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The whole program.
    pub whole: Excerpt,
    /// The least of it that was found to fail.
    pub least: Excerpt,
    /// What the whole found.
    pub findings: Vec<Finding>,
}

/// How much of it.
#[derive(Debug, Clone)]
pub struct Storm {
    /// Names the programs.
    pub seed: u64,
    /// No program is begun after this.
    pub time: Duration,
    /// Nor after so many.
    pub most: u64,
    /// How long to shrink a program that failed.
    pub shrink: Duration,
}

/// The seed of a storm's program; the first is the storm's own.
const fn program_seed(seed: u64, index: u64) -> u64 {
    if index == 0 { seed } else { scramble(seed.wrapping_add(index)) >> 16 }
}

/// The kind of finding to look for in fewer steps: wrong bytes before anything that can be seen.
fn gravest(findings: &[Finding]) -> &str {
    let of = |kind: &str| findings.iter().find(|finding| kind.is_empty() || finding.kind == kind);
    ["bytes", "report", "crash", ""].into_iter().find_map(of).map_or("", |finding| &finding.kind)
}

impl Storm {
    /// Runs it; `before` and `tell` hear of every program and every failure.
    ///
    /// # Errors
    /// Processes cannot be started.
    pub fn run(
        &self,
        binary: PathBuf,
        mut before: impl FnMut(u64, u64),
        mut tell: impl FnMut(&Failure),
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

    /// Runs one program; if it fails, looks for less that does.
    ///
    /// # Errors
    /// Processes cannot be started.
    pub fn attempt(&self, supervisor: &Supervisor, whole: &Excerpt) -> Result<Option<Failure>> {
        /// What depends on luck is tried more than once.
        const TRIES: usize = 3;
        let findings = supervisor.run(whole)?;
        if findings.is_empty() {
            return Ok(None);
        }
        let kind = gravest(&findings);
        let fails = |cut: &Excerpt| {
            (0..TRIES).any(|_| supervisor.run(cut).unwrap_or_default().iter().any(|finding| finding.kind == kind))
        };
        let least = shrink(whole, self.shrink, fails);
        Ok(Some(Failure { whole: whole.clone(), least, findings }))
    }
}
