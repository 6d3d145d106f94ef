//! Shortening of failing programs.
//!
//! Every sub-list of the steps is a valid program. Failures that depend on chance may need several
//! runs.

use std::time::{Duration, Instant};

use crate::generate;
use crate::program::{Ending, StormProgram};

/// A shortened program of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    pub seed: u64,
    /// Number of remaining ranks, starting with rank 0.
    pub world: u32,
    /// Indices of the remaining steps.
    pub keep: Vec<usize>,
    /// True if the original ending is kept; otherwise the program ends normally.
    pub has_ending: bool,
}

impl Excerpt {
    /// Returns the whole program of a seed.
    #[must_use]
    pub fn whole(seed: u64) -> Self {
        let program = generate::program(seed);
        Self { seed, world: program.world(), keep: (0..program.steps.len()).collect(), has_ending: true }
    }

    #[must_use]
    pub(crate) fn program(&self) -> StormProgram {
        let mut program = generate::program(self.seed).cut(self.world, &self.keep);
        if !self.has_ending {
            program.ending = Ending::InOrder;
        }
        program
    }

    /// Returns the number of steps, each counted once per executing rank.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.program().size()
    }

    /// Describes the program with one line per step.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let program = self.program();
        let steps = program.steps.iter().enumerate().map(|(number, step)| format!("{number}: {step:?}"));
        let ends = [format!("ends: {:?}", program.ending)];
        [format!("{:?}", program.setup)].into_iter().chain(steps).chain(ends).collect()
    }

    /// Returns the arguments of the storm for this program, which [`Excerpt::parse`] reads.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let whole = Self::whole(self.seed);
        let mut arguments = vec!["--program".to_owned(), self.seed.to_string()];
        if *self != whole {
            let keep: Vec<String> = self.keep.iter().map(ToString::to_string).collect();
            arguments.extend([
                "--ranks".to_owned(),
                self.world.to_string(),
                "--steps".to_owned(),
                keep.join(","),
            ]);
        }
        if !self.has_ending {
            arguments.push("--in-order".to_owned());
        }
        arguments
    }

    /// Parses the values of `--program`, `--ranks`, `--steps`.
    #[must_use]
    pub fn parse(seed: u64, ranks: Option<u32>, steps: Option<&str>, has_ending: bool) -> Self {
        let whole = Self::whole(seed);
        let keep =
            steps.map_or(whole.keep, |steps| steps.split(',').filter_map(|step| step.parse().ok()).collect());
        Self { seed, world: ranks.unwrap_or(whole.world).clamp(1, whole.world), keep, has_ending }
    }
}

/// Removes steps, then ranks, as long as `fails` returns true and time remains.
pub fn shrink(cut: &Excerpt, limit: Duration, mut fails: impl FnMut(&Excerpt) -> bool) -> Excerpt {
    let until = Instant::now() + limit;
    let mut least = cut.clone();
    let mut try_out = |least: &mut Excerpt, candidate: Excerpt| {
        let does = Instant::now() < until && candidate != *least && fails(&candidate);
        if does {
            *least = candidate;
        }
        does
    };
    if least.has_ending && generate::program(least.seed).ending != Ending::InOrder {
        let candidate = Excerpt { has_ending: false, ..least.clone() };
        if !try_out(&mut least, candidate) {
            let candidate = Excerpt { keep: Vec::new(), ..least.clone() };
            try_out(&mut least, candidate);
        }
    }
    let mut size = least.keep.len().div_ceil(2);
    while size > 0 && Instant::now() < until {
        let mut at = 0;
        while at < least.keep.len() && Instant::now() < until {
            let mut keep = least.keep.clone();
            keep.drain(at..(at + size).min(keep.len()));
            let candidate = Excerpt { keep, ..least.clone() };
            if !try_out(&mut least, candidate) {
                at += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    while least.world > 1 {
        let candidate = Excerpt { world: least.world - 1, ..least.clone() };
        if !try_out(&mut least, candidate) {
            break;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::program::note_comm;

    const LONG: Duration = Duration::from_secs(3600);

    /// Returns a seed of a program with many steps and a normal end.
    fn seed() -> u64 {
        (0..)
            .find(|seed| Excerpt::whole(*seed).keep.len() > 30 && Excerpt::whole(*seed).world > 3)
            .expect("most are long")
    }

    #[test]
    fn what_matters_is_left() {
        let whole = Excerpt::whole(seed());
        let least =
            shrink(&whole, LONG, |cut| cut.keep.contains(&7) && cut.keep.contains(&22) && cut.world >= 2);
        assert_eq!((least.keep, least.world), (vec![7, 22], 2));
    }

    #[test]
    fn without_time_nothing_is_tried() {
        let whole = Excerpt::whole(seed());
        assert_eq!(shrink(&whole, Duration::ZERO, |_| unreachable!("no time")), whole);
    }

    #[test]
    fn a_cut_is_found_again_from_its_arguments() {
        let cut = Excerpt { world: 2, keep: vec![1, 5, 9], has_ending: false, ..Excerpt::whole(seed()) };
        let arguments = cut.arguments();
        let value = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name).expect("it is given");
            arguments[at + 1].as_str()
        };
        let ranks = value("--ranks").parse().ok();
        let again = Excerpt::parse(
            cut.seed,
            ranks,
            Some(value("--steps")),
            !arguments.contains(&"--in-order".to_owned()),
        );
        assert_eq!(again, cut);
        assert_eq!(Excerpt::whole(3).arguments(), ["--program", "3"]);
    }

    #[test]
    fn every_cut_is_a_program_within_its_ranks() {
        for seed in 0..200 {
            let whole = Excerpt::whole(seed);
            let keep: Vec<usize> = whole.keep.iter().copied().filter(|step| step % 3 != 1).collect();
            for world in 1..=whole.world {
                let program = Excerpt { world, keep: keep.clone(), ..whole.clone() }.program();
                assert_eq!(program.world(), world);
                let mut comms = BTreeMap::new();
                for step in &program.steps {
                    note_comm(&mut comms, step);
                    let ranks = step.ranks(&comms);
                    assert!(
                        !ranks.is_empty() && ranks.iter().all(|rank| *rank < world),
                        "seed {seed}: {step:?}"
                    );
                }
            }
        }
    }
}
