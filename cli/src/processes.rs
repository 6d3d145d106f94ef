//! The processes that run a command together.
//!
//! Input → output: the launcher's variables → a [`ProcessGroup`] that has agreed on what to do. Invariants: the first process
//! prints, the others only fail; a problem that all have is reported once.

use std::sync::Arc;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::world::{self, Notice, ProcessGroup, World};

use super::failure::Failure;
use super::note;

/// Meets the other processes, if a launcher started several.
pub(super) fn join() -> Result<Arc<ProcessGroup>, Failure> {
    let notice: Notice = Arc::new(note);
    let met = World::from_env().and_then(|world| ProcessGroup::join_telling(&world, &notice));
    met.map(Arc::new).map_err(|error| match error {
        error @ world::Error::Environment(_) => Failure::Input(error.into()),
        error => Failure::Run(error.into()),
    })
}

/// The number of cards to use: as many as there are processes, if there are several.
pub(super) fn cards(asked: Option<usize>, group: &ProcessGroup, default: Option<usize>) -> Result<usize, Diagnostic> {
    match (asked, group.size()) {
        (Some(cards), 1) => Ok(cards),
        (None, 1) => default.ok_or_else(|| {
            Diagnostic::new("--cards", "not given")
                .help("say on how many cards, or start one process a card with a launcher")
        }),
        (Some(cards), size) if cards != size => Err(Diagnostic::new("--cards", "differs from the number of processes")
            .expected(format!("{size}, one process a card"))
            .found(cards)
            .help("leave --cards out, or start as many processes")),
        (_, size) => Ok(size),
    }
}

/// What every process makes of its input: all must be given the same, and find it right.
///
/// # Errors
/// The problems, with the ranks that have them unless all do; on the first process only, the others end without a word.
pub(super) fn agree<T>(group: &ProcessGroup, options: &str, made: Result<T, Diagnostics>) -> Result<T, Failure> {
    if group.size() == 1 {
        return Ok(made?);
    }
    let problems = made.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let mine = format!("{options}\0{problems}");
    let all = group.exchange("the input", mine.into_bytes()).map_err(|failure| Failure::Run(failure.into()))?;
    let all: Vec<String> = all.into_iter().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
    let parts: Vec<(&str, &str)> = all.iter().map(|text| text.split_once('\0').unwrap_or((text, ""))).collect();
    let found = differences(&parts);
    match made {
        Ok(made) if found.is_empty() => Ok(made),
        _ if !group.is_first() => Err(Failure::Elsewhere),
        // All have the same problems: as if there were one process.
        Err(problems) if parts.iter().all(|part| *part == parts[0]) => Err(problems.into()),
        _ => Err(found.into()),
    }
}

/// What ranks were given otherwise than rank 0, and what each finds wrong.
fn differences(parts: &[(&str, &str)]) -> Diagnostics {
    let mut found = Diagnostics::new();
    for (rank, (options, problems)) in parts.iter().enumerate() {
        if *options != parts[0].0 {
            let problem = Diagnostic::new(format!("rank {rank}"), "was started with other options than rank 0");
            found.push(problem.expected(parts[0].0).found(options));
        }
        for problem in problems.lines() {
            found.push(Diagnostic::new(format!("rank {rank}"), problem));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_the_processes() {
        let alone = ProcessGroup::alone();
        assert_eq!(cards(None, &alone, Some(8)), Ok(8));
        assert_eq!(cards(Some(3), &alone, Some(8)), Ok(3));
        assert!(cards(None, &alone, None).unwrap_err().to_string().starts_with("--cards: not given"));
    }

    #[test]
    fn options_and_problems_are_reported_with_their_ranks() {
        assert!(differences(&[("a", ""), ("a", "")]).is_empty());
        let found = differences(&[("seed 1", ""), ("seed 2", ""), ("seed 1", "config.json: missing")]).to_string();
        assert_eq!(
            found,
            "rank 1: was started with other options than rank 0: expected seed 1, found seed 2\n\
             rank 2: config.json: missing"
        );
    }
}
