//! Problems of texts: bad lines, which may be skipped up to a limit, and all other problems.

use super::MOST_PROBLEMS;
use crate::base::{Diagnostic, Diagnostics};

/// The bad lines that were skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedLines {
    /// Number of skipped lines.
    pub count: usize,
    /// Problems of the first skipped lines.
    pub problems: Diagnostics,
}

#[derive(Debug)]
pub(super) struct TextProblems {
    /// Maximum number of bad lines to skip.
    limit: usize,
    lines: SkippedLines,
    others: Diagnostics,
}

impl TextProblems {
    /// Returns an empty list. Up to `limit` bad lines will be skipped.
    pub(super) fn with_limit(limit: usize) -> Self {
        Self { limit, lines: SkippedLines::default(), others: Diagnostics::new() }
    }

    /// Adds the problems of one bad line.
    pub(super) fn push_line(&mut self, found: impl IntoIterator<Item = Diagnostic>) {
        self.lines.count += 1;
        if self.lines.problems.items().len() < MOST_PROBLEMS || self.lines.count > self.limit {
            found.into_iter().for_each(|problem| self.lines.problems.push(problem));
        }
    }

    /// Adds a problem that does not belong to a line.
    pub(super) fn push(&mut self, problem: Diagnostic) {
        self.others.push(problem);
    }

    /// Returns whether reading of a file stops, given its number of bad lines.
    pub(super) const fn are_too_many(&self, count: usize) -> bool {
        count >= MOST_PROBLEMS && self.lines.count > self.limit
    }

    /// Returns the skipped lines.
    ///
    /// # Errors
    /// All problems. The problems of lines are included if there are more bad lines than the limit.
    pub(super) fn into_result(self) -> Result<SkippedLines, Diagnostics> {
        let Self { limit, lines, others } = self;
        if lines.count <= limit {
            return others.into_result(lines);
        }
        let SkippedLines { count, mut problems } = lines;
        if limit > 0 {
            let help = "repair the lines, or raise the limit";
            problems.push(
                Diagnostic::new("bad lines", "too many to skip")
                    .expected(format!("at most {limit}"))
                    .found(count)
                    .help(help),
            );
        }
        problems.append(others);
        Err(problems)
    }
}
